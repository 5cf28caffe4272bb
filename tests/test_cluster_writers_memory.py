"""The disk servers' memory for files that are being written: a client waits if there is none, and no file is made."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import raw
from clients import Xrdfs, xrdcp
from cluster import Cluster
from content import KIB, content
from harness import remove, until

# A file of unknown length may hold 384 KiB: two of them fit.
FILE_BYTES = 384 * KIB
MEMORY = "1MiB"
NEW = raw.OPEN_NEW | raw.OPEN_UPDATE


@pytest.fixture(scope="module")
def whole(base):
    (base / "little.toml").write_text(f'limits.writers_memory = "{MEMORY}"\n')
    with Cluster(base / "memory", 2, ("--config", str(base / "little.toml"), "--grace-seconds", "3")) as cluster:
        cluster.policy("/one", "replica(1)")
        cluster.policy("/two", "replica(2) spread=host")
        cluster.policy("/striped", "stripe(2, 64KiB)")
        yield cluster
        assert all(node.alive() for node in cluster.nodes), cluster.logs()
    remove(cluster.home)


@pytest.fixture
def cluster(whole):
    yield whole
    until(lambda: whole.asked("status")["writers"]["count"] == 0, 60)
    until(lambda: taken(whole) == [0, 0], 20, lambda: f"{taken(whole)} bytes are taken")


def taken(cluster: Cluster) -> list[int]:
    """Bytes of memory in use at the disk servers."""
    said = [node["activity"] for node in cluster.asked("top", "--once")["nodes"]]
    return [one["writers_memory"] for one in said if one]


class Writer:
    """An open write."""

    def __init__(self, cluster: Cluster, path: str, options: int = NEW):
        with raw.Raw.to(cluster.manager) as there:
            self.answer = there.ask_open(path, options)
        if self.answer.status == raw.REDIRECT:
            port, host, permission = self.answer.redirect
            self.there = raw.Raw(port, host=host)
            self.handle = self.there.open(f"{path}?{permission}", options)
            assert self.there.write(self.handle, 0, b"some").status == raw.OK

    def close(self) -> None:
        assert self.there.close(self.handle).status == raw.OK
        self.there.socket.close()


def opened(cluster: Cluster, paths: list[str], replicas: int = 1) -> list[Writer]:
    """Opens these files, each when the manager has heard of those before. A report that is under way at an open does not have it: until the
    next one the manager takes the server for emptier than it is."""
    writers = []
    for path in paths:
        writers.append(Writer(cluster, path))
        assert writers[-1].answer.status == raw.REDIRECT, writers[-1].answer
        expected = len(writers) * replicas * FILE_BYTES
        until(lambda least=expected: sum(taken(cluster)) >= least, 20, lambda: f"{taken(cluster)} bytes are taken")
    return writers


@pytest.mark.parametrize("place, most, replicas", [("/one", 4, 1), ("/two", 2, 2)])
def test_as_many_are_written_as_there_is_memory_for(cluster, tmp_path, place, most, replicas):
    writers = opened(cluster, [f"{place}/file{number}" for number in range(most)], replicas)
    for look in range(2):
        refused = Writer(cluster, f"{place}/more").answer
        assert refused.status == raw.WAIT and "memory" in refused.text, refused
        time.sleep(2 * (1 - look))
    fs = Xrdfs(cluster.url)
    assert "more" not in fs("ls", place).ok().out
    # A client that lost its connection can continue the existing file, and read it.
    writers[0].there.socket.close()
    again = Writer(cluster, f"{place}/file0", raw.OPEN_UPDATE)
    assert again.answer.status == raw.REDIRECT, again.answer
    (tmp_path / "source").write_bytes(content("waits", 1_000_000))
    with ThreadPoolExecutor(1) as pool:
        copy = pool.submit(lambda: xrdcp(tmp_path / "source", f"{cluster.url}{place}/more"))
        time.sleep(1)
        assert not copy.done()
        for writer in writers[1:]:
            writer.close()
        copy.result().ok()
    again.close()
    xrdcp(f"{cluster.url}{place}/more", tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == (tmp_path / "source").read_bytes()


def test_units_of_striped_files_count_where_they_are(cluster):
    writers = opened(cluster, [f"/one/beside{number}" for number in range(4)])
    with raw.Raw.to(cluster.manager) as there:
        refused = there.ask_open("/striped/more", NEW)
    assert refused.status == raw.WAIT and "memory" in refused.text, refused
    for writer in writers:
        writer.close()


def test_a_file_that_is_changed_counts_as_one_that_is_made(cluster):
    Writer(cluster, "/one/old").close()
    until(lambda: taken(cluster) == [0, 0], 20, lambda: f"{taken(cluster)} bytes are taken")
    writers = opened(cluster, [f"/one/other{number}" for number in range(4)])
    with raw.Raw.to(cluster.manager) as there:
        refused = there.ask_open("/one/old", raw.OPEN_UPDATE)
    assert refused.status == raw.WAIT and "memory" in refused.text, refused
    for writer in writers:
        writer.close()


def test_files_that_come_and_go_are_not_held_up(cluster):
    """More files in a second than would fit if all were open at once."""
    began = time.monotonic()
    with raw.Raw.to(cluster.manager) as there:
        connections = {}
        for number in range(60):
            opened = there.ask_open(f"/one/passing{number}", NEW)
            assert opened.status == raw.REDIRECT, (number, opened)
            port, host, permission = opened.redirect
            disk = connections[host] = connections.get(host) or raw.Raw(port, host=host)
            handle = disk.open(f"/one/passing{number}?{permission}", NEW)
            assert disk.close(handle).status == raw.OK
    # If each waited for the next report, it would be a minute.
    assert time.monotonic() - began < 45
