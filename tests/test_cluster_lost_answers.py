"""`weir cp` into a cluster when the manager is gone at the wrong moment: it continues once the manager is back, and recognises its own
unfinished files."""

import os
import time

import pytest
from clients import xrdcp
from cluster import Cluster
from content import MIB
from harness import weir
from proxy import DOWN, UP, Proxy

pytestmark = pytest.mark.managers_ok

SMALL, LARGE = 5000, 3 * MIB
AWAY_SECONDS = 3


@pytest.fixture(scope="module")
def cluster(base):
    with Cluster(base / "lost-answers", 3) as cluster:
        cluster.policy("/two", "replica(2) sync=2")
        cluster.policy("/striped", "stripe(2, 64KiB)")
        yield cluster


class Lost:
    """For the client, the answer with `words` in it, or the request, is lost."""

    def __init__(self, proxy: Proxy, direction: str, words: bytes, cut):
        self.is_done = False

        def act(go_on) -> None:
            if direction == UP:
                # It reaches its server, but the answer is lost.
                proxy.stall(DOWN)
                go_on()
                time.sleep(0.3)
            self.is_done = True
            cut()
            proxy.resume()

        proxy.when(direction, words, act)


@pytest.mark.parametrize("gone", ["cut", "away"])
@pytest.mark.parametrize("flags", [[], ["-f"]], ids=["new", "force"])
@pytest.mark.parametrize(
    "folder, size, at",
    [
        ("/two", SMALL, (DOWN, b"weir.cap=")),
        ("/two", LARGE, (DOWN, b"weir.cap=")),
        ("/striped", LARGE, (DOWN, b"weir.striped=")),
        ("/striped", LARGE, (UP, b"weir.op=complete")),
    ],
    ids=["small", "large", "striped", "striped-end"],
)
def test_an_answer_that_is_lost_is_asked_for_again(cluster, tmp_path, folder, size, at, flags, gone):
    source, back = tmp_path / "source", tmp_path / "back"
    source.write_bytes(os.urandom(size))
    path = f"{folder}/{gone}{len(flags)}-{size}-{at[0]}"
    with Proxy(cluster.manager.port) as proxy:
        lost = Lost(proxy, *at, proxy.cut if gone == "cut" else lambda: proxy.away(AWAY_SECONDS))
        begin = time.monotonic()
        done = weir("cp", "--log", "info", *flags, str(source), f"{proxy.url}{path}", timeout=100)
        took = time.monotonic() - begin
        assert lost.is_done and done.returncode == 0, done
        assert took < (10 if gone == "cut" else 10 + AWAY_SECONDS), done.stderr
    xrdcp(cluster.url + path, back).ok()
    assert back.read_bytes() == source.read_bytes()


def test_workers_that_have_not_met_the_manager_wait_for_it_too(cluster, tmp_path):
    tree, back = tmp_path / "tree", tmp_path / "back"
    tree.mkdir()
    for number in range(200):
        (tree / f"f{number}").write_bytes(os.urandom(SMALL))
    with Proxy(cluster.manager.port) as proxy:
        # The first worker has begun; the others connect for the first time.
        lost = Lost(proxy, DOWN, b"weir.cap=", lambda: proxy.away(AWAY_SECONDS))
        done = weir("cp", "-r", "-j", "4", str(tree), f"{proxy.url}/two/workers", timeout=100)
        assert lost.is_done and done.returncode == 0, done
    done = weir("cp", "-r", f"{cluster.url}/two/workers", str(back))
    assert done.returncode == 0, done
    assert {p.name: p.read_bytes() for p in tree.iterdir()} == {p.name: p.read_bytes() for p in back.iterdir()}


def test_who_was_never_there_is_not_waited_for(tmp_path):
    (tmp_path / "source").write_bytes(b"x")
    begin = time.monotonic()
    done = weir("cp", str(tmp_path / "source"), "root://127.0.0.1:1//file", timeout=100)
    assert done.returncode == 15 and time.monotonic() - begin < 5, done
