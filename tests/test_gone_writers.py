"""A file whose writer was killed. Another client of the same principal replaces or continues it at once, long before the grace period is
over. A reader that does not say that it follows never takes a file in the making for a whole one. On a node and in a cluster."""

import time
from pathlib import Path

import pytest
from clients import INTERRUPTED, Xrdfs, start_xrdcp, xrdcp
from cluster import Cluster
from content import MIB, content, write
from harness import until, weir
from recorder import acknowledged, start_writer

FILE_LOCKED = 3003
CHUNK, COUNT = 700_000, 4
LENGTH = CHUNK * COUNT


@pytest.fixture(params=["node", "cluster"])
def place(request, base, own_node):
    """Starts a node or a cluster with a configuration, and returns its URL."""
    clusters = []

    def start(config: str) -> str:
        file = base / f"{Path(request.node.name).name.translate(str.maketrans('[]', '__'))}.toml"
        file.write_text(config)
        if request.param == "node":
            return own_node("--config", str(file)).url
        clusters.append(Cluster(base / f"{file.stem}-cluster", 2, ("--config", str(file))))
        clusters[-1].__enter__()
        return clusters[-1].url

    yield start
    for cluster in clusters:
        cluster.__exit__(None, None, None)


def begun(url: str, chunk: int = CHUNK):
    """A writer that has written its chunks, and does not close the file."""
    writer = start_writer(url, "gone", chunk, COUNT)
    acknowledged(writer, chunk * COUNT)
    return writer


def killed(url: str) -> None:
    writer = begun(url)
    writer.kill()
    writer.wait()


def test_a_stock_client_replaces_it_at_once(place, tmp_path):
    url = place("grace_seconds = 600\n")
    killed(f"{url}/f")
    source = write(tmp_path / "source", "new", 3 * MIB)
    begin = time.monotonic()
    xrdcp("-f", source, f"{url}/f").ok()
    assert time.monotonic() - begin < 30
    xrdcp(f"{url}/f", tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == source.read_bytes()


@pytest.mark.parametrize("option", ["--force", "--resume"])
def test_weir_replaces_it_or_goes_on_at_once(place, tmp_path, option):
    url = place("grace_seconds = 600\n")
    killed(f"{url}/f")
    whole = tmp_path / "source"
    whole.write_bytes(content("gone", LENGTH) + b"the rest" * 100_000)
    begin = time.monotonic()
    done = weir("cp", option, str(whole), f"{url}/f")
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - begin < 30
    xrdcp(f"{url}/f", tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == whole.read_bytes()


def test_what_a_living_writer_has_open_is_refused_and_the_refusal_says_who_has_it(place, tmp_path):
    url = place("grace_seconds = 600\n")
    writer = begun(f"{url}/f")
    source = write(tmp_path / "source", "other", MIB)
    for refused in [xrdcp("-f", source, f"{url}/f"), weir("cp", "--force", str(source), f"{url}/f")]:
        said = refused.err if hasattr(refused, "err") else refused.stderr
        code = refused.code if hasattr(refused, "code") else refused.returncode
        assert code != 0 and "is being written by" in said and "(principal 0)" in said and "which opened it" in said, said
    out, _ = writer.communicate("close\n", timeout=30)
    assert "closed" in out
    xrdcp(f"{url}/f", tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == content("gone", LENGTH)


def test_a_plain_copy_of_a_file_in_the_making_is_refused_and_a_follower_reads_it(place, tmp_path):
    url = place("")
    writer = begun(f"{url}/f")
    until(lambda: Xrdfs(url).size("/f") == LENGTH, 10)  # by path, in a cluster too
    assert "POSCPending" in Xrdfs(url).flags("/f")
    xrdcp(f"{url}/f", tmp_path / "short").refused(FILE_LOCKED)
    assert not (tmp_path / "short").exists()
    refused = weir("cp", f"{url}/f", str(tmp_path / "short"))
    assert refused.returncode != 0 and "weir cp --follow" in refused.stderr, refused
    xrdcp(f"{url}/f?weir.follow=1", tmp_path / "part").ok()
    assert (tmp_path / "part").read_bytes() == content("gone", LENGTH)
    out, _ = writer.communicate("close\n", timeout=30)
    assert "closed" in out
    assert "POSCPending" not in Xrdfs(url).flags("/f")
    xrdcp(f"{url}/f", tmp_path / "whole").ok()
    assert (tmp_path / "whole").read_bytes() == content("gone", LENGTH)


def test_a_plain_copy_of_what_a_dead_writer_left_waits_until_that_is_decided(place, tmp_path):
    url = place("grace_seconds = 4\n")
    killed(f"{url}/f")
    begin = time.monotonic()
    refused = xrdcp(f"{url}/f", tmp_path / "short")
    assert refused.code != 0 and INTERRUPTED.search(refused.err), refused
    assert time.monotonic() - begin > 2 and not (tmp_path / "short").exists()


def test_by_configuration_a_plain_copy_waits_for_the_whole(place, tmp_path):
    url = place('[files]\nunfinished = "wait"\n')
    writer = begun(f"{url}/f")
    copy = start_xrdcp(f"{url}/f", tmp_path / "back")
    time.sleep(4)
    assert copy.poll() is None
    writer.communicate("close\n", timeout=30)
    assert copy.wait(30) == 0
    assert (tmp_path / "back").read_bytes() == content("gone", LENGTH)


def test_in_a_followed_directory_plain_readers_follow(place, tmp_path):
    url = place('[files]\nfollowed = ["/daq"]\n')
    writers = [begun(f"{url}/daq/run1"), begun(f"{url}/other")]
    until(lambda: Xrdfs(url).size("/daq/run1") == LENGTH, 10)
    xrdcp(f"{url}/daq/run1", tmp_path / "part").ok()
    assert (tmp_path / "part").read_bytes() == content("gone", LENGTH)
    xrdcp(f"{url}/other", tmp_path / "short").refused(FILE_LOCKED)
    for writer in writers:
        writer.communicate("close\n", timeout=30)
