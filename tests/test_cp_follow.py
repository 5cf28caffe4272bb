"""`weir cp --follow`: a file that is still being written is copied to its end, from a node and from a cluster, whatever happens to its
writer and to the servers meanwhile."""

import re
import subprocess
import time

import pytest
from cluster import Cluster
from content import KIB, MIB, content, write
from harness import WEIR_BIN, Weir, Xrootd, remove, until, weir
from recorder import acknowledged, start_writer
from XRootD import client
from XRootD.client.flags import OpenFlags

pytestmark = pytest.mark.managers_ok

FAILED, USAGE, NOT_FOUND = 6, 2, 11
CHUNK, COUNT = 700_001, 6
GRACE = 4
LAYOUTS = {"one": "replica(1)", "two": "replica(2)", "dealt": "stripe(3, 256KiB)"}


class Recording:
    """A file that this process writes. `add` returns when followers can see the bytes."""

    def __init__(self, url: str, flags=OpenFlags.NEW):
        self.file, self.at = client.File(), 0
        self._good(self.file.open(url, flags | OpenFlags.UPDATE | OpenFlags.MAKEPATH))

    @staticmethod
    def _good(answer):
        status, result = answer
        assert status.ok, status.message
        return result

    def add(self, data: bytes) -> None:
        self._good(self.file.write(data, self.at))
        self._good(self.file.sync())
        self.at += len(data)

    def put(self, data: bytes, at: int) -> None:
        self._good(self.file.write(data, at))

    def close(self) -> None:
        self._good(self.file.close())


class Follower:
    """A copy that follows. A local target is seen under its part's name until it is complete."""

    def __init__(self, url: str, target, *options: str, out=subprocess.DEVNULL):
        self.target = target
        self.part = None if target == "-" else target.with_name(f".{target.name}.weir-part")
        command = [WEIR_BIN, "cp", "--follow", *options, url, str(target)]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE)

    def has(self, length: int, seconds: float = 60) -> None:
        """Waits until it has copied that much."""
        until(lambda: self.part.exists() and self.part.stat().st_size >= length or self.ended(), seconds)
        assert not self.ended(), self.process.stderr.read().decode()
        assert self.part.stat().st_size == length

    def ended(self) -> bool:
        return self.process.poll() is not None

    def end(self, code: int = 0) -> str:
        said = self.process.communicate(timeout=90)[1].decode()
        assert self.process.returncode == code, (self.process.returncode, said)
        return said


@pytest.fixture(scope="module")
def cluster(base):
    with Cluster(base / "followed", 4, ("--grace-seconds", str(GRACE))) as cluster:
        for folder, words in LAYOUTS.items():
            cluster.policy(f"/{folder}", words)
        yield cluster
        assert all(node.alive() for node in cluster.nodes), cluster.logs()
    remove(cluster.home)


@pytest.fixture(scope="module")
def short(base):
    """A node that ends what a gone writer has left after a few seconds."""
    with Weir(base / "follow-short", flags=("--grace-seconds", str(GRACE))) as node:
        yield node


@pytest.fixture(params=["node", *LAYOUTS])
def url(request, tmp_path):
    """The URL of a new file on a node, or in a cluster with each layout."""
    name = f"{request.node.originalname}-{request.param}"
    if request.param == "node":
        return f"{request.getfixturevalue('short').url}/{name}"
    return f"{request.getfixturevalue('cluster').url}/{request.param}/{name}"


def test_a_copy_goes_on_until_the_writer_has_closed_the_file(url, tmp_path):
    data = content("followed", COUNT * CHUNK)
    recording = Recording(url)
    recording.add(data[:CHUNK])
    copy = Follower(url, tmp_path / "copy")
    for number in range(1, COUNT):
        copy.has(number * CHUNK)
        recording.add(data[number * CHUNK : (number + 1) * CHUNK])
    copy.has(COUNT * CHUNK)
    # A pause is not the end.
    time.sleep(1)
    assert not copy.ended() and not (tmp_path / "copy").exists()
    recording.close()
    copy.end()
    assert (tmp_path / "copy").read_bytes() == data and not copy.part.exists()


def test_the_last_bytes_come_with_the_close(url, tmp_path):
    """They are durable only then. And a file may be longer than all requests of a round."""
    data = content("last bytes", 30 * MIB + 17)
    recording = Recording(url)
    recording.add(data[:1])
    copy = Follower(url, tmp_path / "copy", "-p", "--json", out=subprocess.PIPE)
    copy.has(1)
    recording.put(data[1:], 1)
    recording.close()
    out, said = copy.process.communicate(timeout=60)
    assert copy.process.returncode == 0, said
    assert (tmp_path / "copy").read_bytes() == data
    assert b'"verified":true' in out, out
    stat = weir("stat", "--json", url).stdout
    assert f'"mtime":{int((tmp_path / "copy").stat().st_mtime)}' in stat, stat


def test_an_interrupted_file_ends_the_copy(url, tmp_path):
    writer = start_writer(url, "killed", CHUNK, COUNT)
    acknowledged(writer, CHUNK * COUNT)
    copies = [Follower(url, tmp_path / "none"), Follower(url, tmp_path / "some", "--partial")]
    for copy in copies:
        copy.has(CHUNK * COUNT)
    # The server does not show it to followers any more when this one gets to its end.
    slow = Follower(url, tmp_path / "slow", "--partial", "--bwlimit", "500KiB")
    until(slow.part.exists, 30)
    writer.kill()
    writer.wait()
    for copy in [*copies, slow]:
        said = copy.end(FAILED)
        assert "is interrupted" in said and f"after {CHUNK * COUNT} bytes" in said, said
        assert not copy.target.exists() and "trying again" not in said, said
    assert not copies[0].part.exists()
    assert copies[1].part.read_bytes() == slow.part.read_bytes() == content("killed", CHUNK * COUNT)
    # Before its first byte, too.
    said = Follower(url, tmp_path / "late").end(FAILED)
    assert "interrupted" in said or "writer went away" in said, said


def test_a_file_that_does_not_grow_is_given_up(short, tmp_path):
    url = f"{short.url}/silent"
    recording = Recording(url)
    recording.add(b"x" * 1000)
    begin = time.monotonic()
    said = Follower(url, tmp_path / "copy", "--wait-for", "4").end(FAILED)
    assert time.monotonic() - begin >= 4
    assert "has not grown for 4 s; 1000 bytes were read" in said and "--wait-for" in said, said
    told = next(line for line in said.splitlines() if "gives up in" in line)
    assert "the writer has not closed the file" in told and re.search(r"waiting for \d+ s, gives up in", told), said
    assert "gives up in" not in Follower(url, tmp_path / "copy", "--wait-for", "3", "-q").end(FAILED)
    recording.close()


def test_a_pipe_gets_what_there_is_at_once(short, tmp_path):
    url, data = f"{short.url}/piped", content("piped", 100_000)
    recording = Recording(url)
    recording.add(data[:40_000])
    copy = Follower(url, "-", out=subprocess.PIPE)
    assert copy.process.stdout.read(40_000) == data[:40_000]
    recording.add(data[40_000:])
    assert copy.process.stdout.read(60_000) == data[40_000:]
    recording.close()
    assert copy.process.stdout.read() == b""
    copy.end()


def test_bytes_that_the_writer_changes_later_are_copied_again(short, tmp_path):
    """Programs that write ROOT files change the beginning of a file before they close it."""
    url, data = f"{short.url}/rewritten", content("rewritten", 3 * MIB)
    recording = Recording(url)
    recording.add(b"header to be" + data[12:])
    file, pipe = Follower(url, tmp_path / "copy"), Follower(url, "-", out=subprocess.PIPE)
    file.has(len(data))
    assert pipe.process.stdout.read(len(data))[:12] == b"header to be"
    recording.put(data[:12], 0)
    recording.close()
    file.end()
    assert (tmp_path / "copy").read_bytes() == data
    assert "changed bytes that were copied already" in pipe.end(16)


def test_a_file_that_is_removed_meanwhile_is_missed(short, tmp_path):
    url = f"{short.url}/removed"
    recording = Recording(url)
    recording.add(b"x" * 1000)
    copy = Follower(url, tmp_path / "copy")
    copy.has(1000)
    assert weir("rm", url).returncode == 0
    copy.end(NOT_FOUND)


def test_from_server_to_server_it_goes_through_the_client(short, cluster, tmp_path):
    data = content("onwards", 5 * CHUNK)
    for target in [f"{short.url}/onwards-copy", f"{cluster.url}/two/onwards", f"{cluster.url}/dealt/onwards"]:
        source = f"{short.url}/onwards-{target.split('/')[-2]}"
        recording = Recording(source)
        recording.add(data[:CHUNK])
        copy = subprocess.Popen([WEIR_BIN, "cp", "--follow", source, target], stderr=subprocess.PIPE, text=True)
        # It has begun, and follows.
        until(lambda target=target: weir("stat", target).returncode == 0, 60)
        for number in range(1, 5):
            recording.add(data[number * CHUNK : (number + 1) * CHUNK])
        assert copy.poll() is None, copy.stderr.read()
        recording.close()
        assert copy.wait(60) == 0, copy.stderr.read()
        assert weir("cp", target, str(tmp_path / "back"), "--force").returncode == 0
        assert (tmp_path / "back").read_bytes() == data


def test_a_stopped_copy_leaves_nothing_or_what_a_later_one_continues(short, tmp_path):
    url, data = f"{short.url}/stopped", content("stopped", 3 * MIB)
    recording = Recording(url)
    recording.add(data[: 2 * MIB])
    copy, kept = Follower(url, tmp_path / "copy"), Follower(url, tmp_path / "kept", "--partial")
    for one in (copy, kept):
        one.has(2 * MIB)
        one.process.terminate()
        assert "1 ended on the way" in one.end(9)
        assert not one.target.exists()
    assert not copy.part.exists() and kept.part.exists()
    recording.add(data[2 * MIB :])
    recording.close()
    done = weir("cp", "--resume", "--json", url, str(kept.target))
    assert done.returncode == 0 and f'"bytes":{MIB},' in done.stdout, done
    assert kept.target.read_bytes() == data


def test_in_a_tree_each_file_is_followed(short, tmp_path):
    recordings = {name: Recording(f"{short.url}/tree/{name}") for name in ["a", "b"]}
    for name, recording in recordings.items():
        recording.add(name.encode() * 100)
    done = write(tmp_path / "done", "done", 10 * KIB)
    assert weir("cp", str(done), f"{short.url}/tree/done").returncode == 0
    copy = subprocess.Popen([WEIR_BIN, "cp", "--follow", "-r", f"{short.url}/tree", str(tmp_path)], stderr=subprocess.PIPE)
    until(lambda: all((tmp_path / "tree" / f".{name}.weir-part").exists() for name in recordings), 30)
    for name, recording in recordings.items():
        recording.add(name.encode() * 100)
        recording.close()
    assert copy.wait(60) == 0, copy.stderr.read()
    assert (tmp_path / "tree/done").read_bytes() == done.read_bytes()
    assert [(tmp_path / "tree" / name).read_text() for name in recordings] == ["a" * 200, "b" * 200]


def test_what_is_complete_is_copied_as_ever_and_what_cannot_be_followed_is_refused(short, base, tmp_path):
    source = write(tmp_path / "source", "complete", 3 * MIB)
    url = f"{short.url}/complete"
    assert weir("cp", str(source), url).returncode == 0
    Follower(url, tmp_path / "copy").end()
    assert (tmp_path / "copy").read_bytes() == source.read_bytes()
    here = weir("cp", "--follow", str(source), f"{url}-2")
    assert here.returncode == USAGE and "files at weir's servers" in here.stderr, here
    for option in ["--tpc", "--resume"]:
        refused = weir("cp", "--follow", option, url, f"{url}-2")
        assert refused.returncode == USAGE and option in refused.stderr, refused
    with Xrootd(base / "follow-stock") as stock:
        assert weir("cp", str(source), f"{stock.url}/f").returncode == 0
        said = Follower(f"{stock.url}/f", tmp_path / "stock").end(FAILED)
        assert "not one of weir's servers" in said, said


def test_the_copy_survives_restarts_of_the_servers(base, tmp_path):
    """First the manager, then the disk server that the writer and the copy use."""
    with Cluster(base / "follow-restarts", 2, ("--grace-seconds", "60")) as cluster:
        cluster.policy("/two", "replica(2)")
        url = f"{cluster.url}/two/f"
        writer = subprocess.Popen([WEIR_BIN, "cp", "-", url], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        # It sends parts of 4 MiB.
        data = content("restarts", 16 * MIB)
        writer.stdin.write(data[: 4 * MIB])
        writer.stdin.flush()
        until(lambda: weir("stat", url).returncode == 0, 30)
        copy = Follower(url, tmp_path / "copy")
        copy.has(4 * MIB)
        cluster.manager.kill()
        cluster.manager.start()
        cluster.wait_sessions()
        writer.stdin.write(data[4 * MIB : 8 * MIB])
        writer.stdin.flush()
        copy.has(8 * MIB)
        (primary,) = cluster.holders("/two/f")
        primary.kill()
        writer.stdin.write(data[8 * MIB : 12 * MIB])
        writer.stdin.flush()
        copy.has(12 * MIB)
        primary.start()
        writer.stdin.write(data[12 * MIB :])
        writer.stdin.close()
        assert writer.wait(60) == 0, writer.stderr.read()
        copy.end()
        assert (tmp_path / "copy").read_bytes() == data
    remove(cluster.home)


def test_the_copy_survives_a_restart_of_its_node(own_node, tmp_path):
    node = own_node("--grace-seconds", "60")
    url, data = f"{node.url}/f", content("node restarts", 8 * MIB)
    writer = subprocess.Popen([WEIR_BIN, "cp", "-", url], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    writer.stdin.write(data[: 4 * MIB])
    writer.stdin.flush()
    until(lambda: weir("stat", url).returncode == 0, 30)
    copy = Follower(url, tmp_path / "copy")
    copy.has(4 * MIB)
    node.kill()
    node.start()
    writer.stdin.write(data[4 * MIB :])
    writer.stdin.close()
    assert writer.wait(60) == 0, writer.stderr.read()
    copy.end()
    assert (tmp_path / "copy").read_bytes() == data
