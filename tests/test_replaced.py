"""Files that are replaced or removed while they are read: a reader gets the file before or after that, never a mixture."""

import threading
import time
from contextlib import suppress

import pytest
from clients import Xrdfs, xrdcp
from cluster import Cluster
from content import MIB
from harness import remove, until, weir
from XRootD import client
from XRootD.client.flags import OpenFlags

WIDTH = 3
SECONDS = 6
SIZES = (WIDTH * (256 << 10) + 5, 3 * MIB + 77, 100)
# A stock client waits for half an hour otherwise.
PATIENCE = 60
ENOUGH = 3
KINDS = ("striped", "plain")


@pytest.fixture(scope="module")
def cluster(base):
    with Cluster(base / "replaced", 4) as cluster:
        cluster.policy("/striped", f"stripe({WIDTH}, 256KiB)")
        yield cluster
        assert all(node.alive() for node in cluster.nodes), cluster.logs()
    remove(cluster.home)


def version(number: int) -> bytes:
    """Each version has bytes of its own."""
    return bytes([number % 251 + 1]) * SIZES[number % 251 % len(SIZES)]


def is_a_version(data: bytes) -> bool:
    return len(data) > 0 and data == version(data[0] - 1)


class Readers:
    """Threads that do the same again and again until the time is over, and what they have met."""

    def __init__(self, seconds: float):
        self.seconds, self.end = seconds, 0.0
        self.wrong: list[str] = []
        self.whole: dict[str, int] = {}
        self.threads: list[threading.Thread] = []

    def add(self, name: str, work) -> None:
        """`work` returns whether it got the whole file; what is wrong, it raises."""
        self.whole[name] = 0

        def run():
            # On a busy machine, until all have seen enough: a reader needs the writer for that.
            while time.monotonic() < self.end + (PATIENCE if min(self.whole.values()) < ENOUGH else 0) and not self.wrong:
                try:
                    self.whole[name] += work()
                except Exception as error:  # noqa: BLE001 (it is reported)
                    self.wrong.append(f"{name}: {error!r}")

        self.threads.append(threading.Thread(target=run, daemon=True))

    def run(self) -> None:
        self.end = time.monotonic() + self.seconds
        for thread in self.threads:
            thread.start()
        end = self.end + 3 * PATIENCE
        for thread in self.threads:
            thread.join(max(0, end - time.monotonic()))
        assert not any(thread.is_alive() for thread in self.threads), self.whole
        assert not self.wrong, (self.whole, len(self.wrong), self.wrong[:10])
        assert all(count >= ENOUGH for count in self.whole.values()), self.whole


def told(message: str, *allowed: str) -> bool:
    """The reader was told why it cannot go on; it has no file."""
    assert "amaged" not in message and any(words in message for words in allowed), message
    return False


def through_a_server(url: str, *allowed: str) -> bool:
    """Reads it as a stock client does: a server puts a striped file together."""
    file = client.File()
    status, _ = file.open(url, OpenFlags.READ, timeout=PATIENCE)
    if not status.ok:
        return told("open: " + status.message, *allowed)
    data = b""
    while True:
        status, got = file.read(len(data), 300_000, timeout=PATIENCE)
        if not status.ok:
            with suppress(ValueError):  # the client has closed it
                file.close(timeout=PATIENCE)
            return told("read: " + status.message, "replaced meanwhile", "was replaced", *allowed)
        if not got:
            break
        data += got
    file.close(timeout=PATIENCE)
    assert is_a_version(data), (len(data), set(data))
    return True


def directly(url: str, to, *allowed: str) -> bool:
    """Reads it as weir's own client does: a striped file from the servers of its units."""
    to.unlink(missing_ok=True)
    # It would compare the bytes with the checksum of what has the name after the copy.
    done = weir("cp", "--no-verify", url, str(to))
    if done.returncode != 0:
        return told(done.stderr, "replaced meanwhile", "was replaced", *allowed)
    data = to.read_bytes()
    assert is_a_version(data), (len(data), set(data))
    return True


@pytest.mark.parametrize("kind", KINDS)
def test_readers_of_a_file_that_is_replaced_all_the_time(cluster, tmp_path, kind):
    path, number = f"/{kind}/replaced", 0
    url, source = cluster.url + path, tmp_path / "source"

    def replace() -> bool:
        nonlocal number
        number += 1
        source.write_bytes(version(number))
        done = weir("cp", "--force", str(source), url)
        assert done.returncode == 0, done.stderr
        return True

    replace()
    readers = Readers(SECONDS)
    readers.add("writer", replace)
    for reader in range(4):
        readers.add(f"stock client {reader}", lambda: through_a_server(url))
    for reader in range(2):
        to = tmp_path / f"read{reader}"
        readers.add(f"weir cp {reader}", lambda to=to: directly(url, to))

    def look() -> bool:
        seen = cluster.file(path)["object"]
        assert kind == "plain" or len(seen["units"]) == WIDTH, seen
        return True

    readers.add("weir file", look)
    readers.run()


@pytest.mark.parametrize("kind", KINDS)
def test_readers_of_a_file_that_is_removed_and_made_again(cluster, tmp_path, kind):
    path, number = f"/{kind}/removed", 0
    url, source = cluster.url + path, tmp_path / "source"
    # While it is made again, it is not there or is being written.
    gone = ("does not exist", "no such file", "is being written", "not complete", "was replaced", "replaced meanwhile")

    def make_again() -> bool:
        nonlocal number
        number += 1
        source.write_bytes(version(number))
        xrdcp("-f", source, url).ok()
        time.sleep(0.3)
        Xrdfs(cluster.url)("rm", path).ok()
        return True

    make_again()
    readers = Readers(SECONDS)
    readers.add("writer", make_again)
    for reader in range(3):
        readers.add(f"stock client {reader}", lambda: through_a_server(url, *gone))
    to = tmp_path / "read"
    readers.add("weir cp", lambda: directly(url, to, *gone))
    readers.run()


def places(cluster, byte: int) -> set[str]:
    """The files on the disks that hold this byte."""
    while True:
        with suppress(FileNotFoundError):  # one is deleted meanwhile
            return {str(path) for disk in cluster.disks for path in disk.objects() if path.read_bytes()[:1] == bytes([byte])}


@pytest.mark.parametrize("how", ["replaced", "removed"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_reader_goes_on_in_no_other_file(cluster, tmp_path, kind, how):
    """It keeps its bytes, or is told at once that they are gone. A stock client opens the file again by its name then."""
    path, source = f"/{kind}/open_{how}", tmp_path / "source"
    # No other file has this byte.
    byte = 255 - 2 * KINDS.index(kind) - (how == "removed")
    url, old = cluster.url + path, bytes([byte]) * SIZES[1]
    source.write_bytes(old)
    xrdcp(source, url).ok()
    assert len(places(cluster, byte)) == (WIDTH if kind == "striped" else 1)
    files = [client.File() for _ in range(2)]
    for file in files:
        status, _ = file.open(url, OpenFlags.READ, timeout=PATIENCE)
        assert status.ok, status.message
    # One of them has read some of it.
    status, got = files[0].read(0, 1000, timeout=PATIENCE)
    assert status.ok and got == old[:1000]
    if how == "replaced":
        source.write_bytes(version(4))
        xrdcp("-f", source, url).ok()
    else:
        Xrdfs(cluster.url)("rm", path).ok()
    until(lambda: not places(cluster, byte), 30, lambda: "the old objects stay")
    for file in files:
        for offset in range(0, len(old), 300_000):
            begin = time.monotonic()
            status, got = file.read(offset, 300_000, timeout=PATIENCE)
            if status.ok:
                assert got == old[offset : offset + 300_000], (offset, set(got))
            else:
                told(status.message, "replaced meanwhile", "was replaced", "does not exist", "no such file")
                assert time.monotonic() - begin < 10
                break
        else:
            pytest.fail("all bytes of a file were read whose objects are gone")
        with suppress(ValueError):  # the client has closed it
            file.close(timeout=PATIENCE)


def test_a_reader_whose_unit_hangs_while_the_file_is_replaced(cluster, tmp_path):
    """A stock client gives a silent server up after 60 s, and opens the file again by its name."""
    path, source = "/striped/hangs", tmp_path / "source"
    url, old = cluster.url + path, bytes([1]) * (30 * MIB)
    source.write_bytes(old)
    xrdcp(source, url).ok()
    file = client.File()
    status, _ = file.open(url, OpenFlags.READ, timeout=300)
    assert status.ok, status.message
    status, got = file.read(0, MIB, timeout=300)
    assert status.ok and got == old[:MIB]
    reads_at = file.get_property("DataServer")
    hangs = next(disk for disk in cluster.holders(path) if not reads_at.endswith(f":{disk.port}"))
    hangs.freeze()
    try:
        # Until the manager puts nothing on it any more.
        time.sleep(8)
        source.write_bytes(bytes([2]) * len(old))
        done = weir("cp", "--force", str(source), url)
        assert done.returncode == 0, done.stderr
        for offset in range(MIB, len(old), MIB):
            status, got = file.read(offset, MIB, timeout=300)
            if not status.ok:
                told(status.message, "replaced meanwhile", "was replaced")
                break
            assert got == old[offset : offset + MIB], (offset, set(got))
        else:
            pytest.fail("all bytes of a replaced file were read while a unit's server hung")
    finally:
        hangs.thaw()
    with suppress(ValueError):  # the client has closed it
        file.close(timeout=PATIENCE)


def test_a_stock_client_reads_on_when_a_unit_comes_back(cluster, tmp_path):
    """The server that combines the units gives up before a stock client does, and the manager lets the reader wait."""
    path, source = "/striped/comes-back", tmp_path / "source"
    url, data = cluster.url + path, bytes(range(256)) * (30 * 4096)
    source.write_bytes(data)
    xrdcp(source, url).ok()
    file = client.File()
    status, _ = file.open(url, OpenFlags.READ, timeout=300)
    assert status.ok, status.message
    status, got = file.read(0, MIB, timeout=300)
    assert status.ok and got == data[:MIB]
    reads_at = file.get_property("DataServer")
    hangs = next(disk for disk in cluster.holders(path) if not reads_at.endswith(f":{disk.port}"))
    hangs.freeze()
    thawing = threading.Timer(40, hangs.thaw)
    thawing.start()
    try:
        for offset in range(MIB, len(data), MIB):
            status, got = file.read(offset, MIB, timeout=300)
            assert status.ok, (offset, status.message)
            assert got == data[offset : offset + MIB], offset
        assert not thawing.is_alive(), "it has read without the unit"
    finally:
        thawing.cancel()
        hangs.thaw()
    file.close(timeout=PATIENCE)
