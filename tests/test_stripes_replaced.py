"""Striped files that are replaced or removed while they are read: a reader gets the file before or after that, never a mixture."""

import threading
import time

import pytest
from clients import Xrdfs, xrdcp
from cluster import Cluster
from content import MIB
from harness import remove, weir
from XRootD import client
from XRootD.client.flags import OpenFlags

WIDTH = 3
SECONDS = 12
SIZES = (WIDTH * (256 << 10) + 5, 3 * MIB + 77, 100)


@pytest.fixture(scope="module")
def cluster(base):
    with Cluster(base / "stripes-replaced", 4) as cluster:
        cluster.policy("/striped", f"stripe({WIDTH}, 256KiB)")
        yield cluster
        assert all(node.alive() for node in cluster.nodes), cluster.logs()
    remove(cluster.home)


def version(number: int) -> bytes:
    """Each version has bytes of its own."""
    return bytes([number % 251 + 1]) * SIZES[number % len(SIZES)]


def is_a_version(data: bytes) -> bool:
    return data in {version(number) for number in range(251 * len(SIZES)) if number % 251 + 1 == data[0]}


class Readers:
    """Threads that do the same again and again until the time is over, and what they have met."""

    def __init__(self, seconds: float):
        self.end = time.monotonic() + seconds
        self.wrong: list[str] = []
        self.done: dict[str, int] = {}
        self.threads: list[threading.Thread] = []

    def start(self, name: str, work) -> None:
        def run():
            while time.monotonic() < self.end:
                try:
                    wrong = work()
                except Exception as error:  # noqa: BLE001 (it is reported)
                    wrong = repr(error)
                self.done[name] = self.done.get(name, 0) + 1
                if wrong:
                    self.wrong.append(f"{name}: {wrong}")

        thread = threading.Thread(target=run)
        thread.start()
        self.threads.append(thread)

    def finish(self) -> None:
        for thread in self.threads:
            thread.join(120)
        assert not self.wrong, (self.done, len(self.wrong), self.wrong[:10])
        assert all(count >= 3 for count in self.done.values()), self.done


def told(message: str, *allowed: str) -> str:
    """Nothing, if the reader was told why it cannot go on."""
    is_clear = "amaged" not in message and any(words in message for words in allowed)
    return "" if is_clear else message


def through_a_server(url: str, *allowed: str) -> str:
    """Reads it as a stock client does: a server puts it together."""
    file = client.File()
    status, _ = file.open(url, OpenFlags.READ)
    if not status.ok:
        return told("open: " + status.message, *allowed)
    data = b""
    while True:
        status, got = file.read(len(data), 300_000)
        if not status.ok:
            file.close()
            return told("read: " + status.message, "replaced meanwhile", *allowed)
        if not got:
            break
        data += got
    file.close()
    return "" if is_a_version(data) else f"{len(data)} bytes are of no version: {sorted(set(data))}"


def directly(url: str, to, *allowed: str) -> str:
    """Reads it as weir's own client does: from the servers of the units."""
    to.unlink(missing_ok=True)
    # It would compare the bytes with the checksum of what has the name after the copy.
    done = weir("cp", "--no-verify", url, str(to))
    if done.returncode != 0:
        return told(done.stderr, "replaced meanwhile", *allowed)
    return "" if is_a_version(to.read_bytes()) else f"no version: {sorted(set(to.read_bytes()))}"


def test_readers_of_a_file_that_is_replaced_all_the_time(cluster, tmp_path):
    path, number = "/striped/replaced", 0
    url, source = cluster.url + path, tmp_path / "source"

    def replace() -> str:
        nonlocal number
        number += 1
        source.write_bytes(version(number))
        done = weir("cp", "--force", str(source), url)
        return done.stderr if done.returncode else ""

    assert not replace()
    readers = Readers(SECONDS)
    readers.start("writer", replace)
    for reader in range(4):
        readers.start(f"stock client {reader}", lambda: through_a_server(url))
    for reader in range(2):
        to = tmp_path / f"read{reader}"
        readers.start(f"weir cp {reader}", lambda to=to: directly(url, to))

    def look() -> str:
        seen = cluster.file(path)["object"]
        return "" if len(seen["units"]) == WIDTH else f"{seen}"

    readers.start("weir file", look)
    readers.start("locate", lambda: told(Xrdfs(cluster.url)("locate", path).ok().out, ":"))
    readers.finish()


def test_readers_of_a_file_that_is_removed_and_made_again(cluster, tmp_path):
    path, number = "/striped/removed", 0
    url, source = cluster.url + path, tmp_path / "source"
    # While it is made again, it is not there or is being written.
    gone = ("does not exist", "no such file", "is being written", "not complete", "replaced meanwhile")

    def make_again() -> str:
        nonlocal number
        number += 1
        source.write_bytes(version(number))
        xrdcp("-f", source, url).ok()
        time.sleep(0.1)
        Xrdfs(cluster.url)("rm", path).ok()
        return ""

    readers = Readers(SECONDS)
    readers.start("writer", make_again)
    for reader in range(3):
        readers.start(f"stock client {reader}", lambda: through_a_server(url, *gone))
    to = tmp_path / "read"
    readers.start("weir cp", lambda: directly(url, to, *gone))
    readers.finish()


@pytest.mark.parametrize("how", ["replaced", "removed"])
def test_an_open_file_keeps_its_bytes_or_says_that_they_are_gone(cluster, tmp_path, how):
    path, source = f"/striped/open_{how}", tmp_path / "source"
    url, old = cluster.url + path, version(1)
    source.write_bytes(old)
    xrdcp(source, url).ok()
    before = {name for disk in cluster.disks for name in disk.objects()}
    files = [client.File() for _ in range(2)]
    for file in files:
        status, _ = file.open(url, OpenFlags.READ)
        assert status.ok, status.message
    # One of them has read some of it.
    status, got = files[0].read(0, 1000)
    assert status.ok and got == old[:1000]
    if how == "replaced":
        source.write_bytes(version(4))
        xrdcp("-f", source, url).ok()
    else:
        Xrdfs(cluster.url)("rm", path).ok()
    # The old units are deleted.
    cluster.until(lambda: len(before & {name for disk in cluster.disks for name in disk.objects()}) <= len(before) - WIDTH)
    for file in files:
        for offset in range(0, len(old), 300_000):
            status, got = file.read(offset, 300_000)
            if status.ok:
                assert got == old[offset : offset + 300_000], offset
            else:
                assert not told(status.message, "replaced meanwhile", "does not exist", "no such file"), status.message
        file.close()
