"""Readers follow a file while it is written."""

import os
import socket
import struct
import threading
import time

import pytest
import raw
from clients import Xrdfs
from content import KIB, MIB, content
from raw import Raw
from XRootD import client
from XRootD.client.flags import DirListFlags, OpenFlags

PATIENCE_SECONDS = 10


class Another:
    """Another client for reading. The bindings of one process are one client, and a client sees its own writes at once."""

    def __init__(self, node, path: str):
        self.connection = Raw(node.port)
        self.handle = self.connection.open(f"{path}?weir.follow=1")

    def read(self, length: int) -> bytes:
        return self.connection.read(self.handle, 0, length).body

    def close(self) -> None:
        self.connection.socket.close()


def grown_to(path_size, wanted: int) -> int:
    """The size once it has reached `wanted`, or its last value when the time is over."""
    end = time.monotonic() + PATIENCE_SECONDS
    while (size := path_size()) < wanted and time.monotonic() < end:
        time.sleep(0.1)
    return size


@pytest.mark.peer_ok
@pytest.mark.parametrize("chunk", [10 * KIB, 700_001])
def test_a_reader_follows_a_recording(node, fs, place, chunk):
    """A reader always sees a true prefix, which grows with the file and ends as the whole."""
    data = content(f"follow {chunk}", 12 * chunk)
    url = f"{node.url}{place}/growing"
    writer = client.File()
    assert writer.open(url, OpenFlags.NEW)[0].ok
    sizes = []
    for number in range(12):
        assert writer.write(data[number * chunk : (number + 1) * chunk], number * chunk)[0].ok
        if number % 4 == 3:
            sizes.append(grown_to(lambda: fs.size(f"{place}/growing"), (number + 1) * chunk))
            reader = Another(node, f"{place}/growing")
            seen = reader.read(len(data))
            assert seen == data[: len(seen)] and len(seen) >= sizes[-1]
            reader.close()
    assert sizes == [4 * chunk, 8 * chunk, 12 * chunk]
    assert writer.close()[0].ok
    assert fs.size(f"{place}/growing") == len(data)


@pytest.mark.peer_ok
def test_an_open_reader_sees_the_file_grow(node, fs, place):
    data = content("one reader", 6 * MIB)
    url = f"{node.url}{place}/growing"
    writer = client.File()
    assert writer.open(url, OpenFlags.NEW)[0].ok
    assert writer.write(data[:MIB], 0)[0].ok and writer.sync()[0].ok
    reader = Another(node, f"{place}/growing")
    for end in range(MIB, len(data), MIB):
        assert reader.read(len(data)) == data[:end]
        assert writer.write(data[end : end + MIB], end)[0].ok and writer.sync()[0].ok
    assert writer.close()[0].ok
    assert reader.read(len(data)) == data
    reader.close()


def test_a_size_is_never_shown_over_a_hole(node, fs, place):
    """Chunks arrive in any order: bytes behind a gap are not visible, and the gap is never read as zeros."""
    data = content("hole", 4 * MIB)
    url = f"{node.url}{place}/holey"
    writer = client.File()
    assert writer.open(url, OpenFlags.NEW)[0].ok
    assert writer.write(data[:MIB], 0)[0].ok
    assert writer.write(data[2 * MIB : 4 * MIB], 2 * MIB)[0].ok
    assert writer.sync()[0].ok
    assert grown_to(lambda: fs.size(f"{place}/holey"), MIB) == MIB
    reader = Another(node, f"{place}/holey")
    assert reader.read(4 * MIB) == data[:MIB]
    assert writer.write(data[MIB : 2 * MIB], MIB)[0].ok
    assert grown_to(lambda: fs.size(f"{place}/holey"), 4 * MIB) == 4 * MIB
    assert writer.close()[0].ok
    assert reader.read(4 * MIB) == data
    reader.close()


def test_published_without_any_sync_within_seconds(node, fs, place):
    """A recorder that never syncs can be followed too: the server itself syncs once a second."""
    writer = client.File()
    assert writer.open(f"{node.url}{place}/quiet", OpenFlags.NEW)[0].ok
    assert writer.write(content("quiet", MIB), 0)[0].ok
    begin = time.monotonic()
    assert grown_to(lambda: fs.size(f"{place}/quiet"), MIB) == MIB
    assert time.monotonic() - begin < 5
    assert writer.close()[0].ok


def test_readers_never_see_a_mixture_during_an_overwrite(node, place, tmp_path):
    """While a new version replaces a file, every open gets the whole old one or the whole new one."""
    versions = [content(f"version {number}", 2 * MIB) for number in range(5)]
    url = f"{node.url}{place}/file"
    stop, wrong, reads = threading.Event(), [], [0]

    def put(data: bytes) -> None:
        file = client.File()
        status, _ = file.open(url, OpenFlags.DELETE)
        assert status.ok, status.message
        for offset in range(0, len(data), 256 * KIB):
            assert file.write(data[offset : offset + 256 * KIB], offset)[0].ok
        assert file.close()[0].ok

    def look() -> None:
        while not stop.is_set():
            file = client.File()
            status, _ = file.open(url, OpenFlags.READ)
            if not status.ok:
                wrong.append(status.message)
                return
            status, seen = file.read(0, 3 * MIB)
            file.close()
            reads[0] += 1
            if not status.ok or bytes(seen) not in versions:
                wrong.append(f"a mixture: {len(seen or b'')} bytes, {status.message}")
                return

    put(versions[0])
    reader = threading.Thread(target=look)
    reader.start()
    for data in versions[1:]:
        put(data)
    stop.set()
    reader.join()
    assert not wrong and reads[0] > 0
    assert Xrdfs(node.url).names(place) == ["file"]


@pytest.mark.peer_ok
def test_a_client_sees_at_once_what_it_has_written(node, place):
    """By name and through a handle of its own, before anything is durable, with holes as zeros; later like anybody else."""
    data = content("own", 3 * MIB)
    url = f"{node.url}{place}/own"
    remote = client.FileSystem(node.url)
    writer, reader = client.File(), client.File()
    assert writer.open(url, OpenFlags.NEW)[0].ok
    for start, end in [(2 * MIB, 3 * MIB), (0, 10), (10, MIB)]:
        assert writer.write(data[start:end], start)[0].ok
        assert remote.stat(f"{place}/own")[1].size == 3 * MIB
        (entry,) = remote.dirlist(place, DirListFlags.STAT)[1]
        assert entry.statinfo.size == 3 * MIB
    status, _ = reader.open(url, OpenFlags.READ)
    assert status.ok, status.message
    assert reader.stat()[1].size == 3 * MIB
    assert reader.read(0, len(data))[1] == data[:MIB] + bytes(MIB) + data[2 * MIB :]
    assert writer.truncate(100)[0].ok
    assert remote.stat(f"{place}/own")[1].size == 100 and reader.read(0, len(data))[1] == data[:100]
    assert writer.write(data[100:], 100)[0].ok
    assert reader.read(0, len(data))[1] == data
    assert writer.close()[0].ok
    assert reader.read(0, len(data))[1] == data and reader.close()[0].ok


def test_sessions_of_one_process_are_one_client(node, place):
    """As xrootdfs has them, under several names. A process with the same number on another host, or on an unknown one, is another
    client."""
    path = f"{place}/own"
    writer = client.File()
    assert writer.open(f"root://one@127.0.0.1:{node.port}/{path}", OpenFlags.NEW)[0].ok
    assert writer.write(b"x" * 10, 5)[0].ok
    assert client.FileSystem(f"root://two@127.0.0.1:{node.port}/").stat(path)[1].size == 15
    host = socket.gethostname()
    for name, pid, says in [(host, os.getpid() + 1, True), ("elsewhere", os.getpid(), True), (host, os.getpid(), False)]:
        info = f"?xrd.cc=us&xrd.tz=1&xrd.appname=python&xrd.hostname={name}" if says else "?xrd.cc=us"
        with Raw(node.port, login=False) as other:
            other.handshake()
            assert other.request(raw.LOGIN, struct.pack(">i8sBBBB", pid, b"one", 0, 0, 5, 0), info.encode()).status == raw.OK
            assert other.stat(path).body.split()[1] == b"0", (name, pid)
    assert writer.close()[0].ok


def test_a_client_sees_what_it_appends_to_a_file_at_once(node, place):
    url = f"{node.url}{place}/grows"
    remote = client.FileSystem(node.url)
    file = client.File()
    assert file.open(url, OpenFlags.NEW)[0].ok and file.write(b"a" * 5000, 0)[0].ok and file.close()[0].ok
    assert file.open(url, OpenFlags.UPDATE)[0].ok and file.write(b"b" * 5000, 5000)[0].ok
    assert remote.stat(f"{place}/grows")[1].size == 10_000
    reader = client.File()
    assert reader.open(url, OpenFlags.READ)[0].ok
    assert reader.read(0, 20_000)[1] == b"a" * 5000 + b"b" * 5000
    assert reader.close()[0].ok and file.close()[0].ok


def test_what_replaces_a_file_is_not_seen_before_its_close(node, place):
    """Not even by its writer: a name has the whole old content, or the whole new one."""
    url = f"{node.url}{place}/file"
    remote = client.FileSystem(node.url)
    file, reader = client.File(), client.File()
    assert file.open(url, OpenFlags.NEW)[0].ok and file.write(b"old", 0)[0].ok and file.close()[0].ok
    assert file.open(url, OpenFlags.DELETE)[0].ok and file.write(b"new content", 0)[0].ok
    assert remote.stat(f"{place}/file")[1].size == 3
    assert reader.open(url, OpenFlags.READ)[0].ok and reader.read(0, 100)[1] == b"old" and reader.close()[0].ok
    assert file.close()[0].ok
    assert remote.stat(f"{place}/file")[1].size == 11
