"""A file is read while it is being written."""

import threading
import time

import pytest
from clients import Xrdfs
from content import KIB, MIB, content
from XRootD import client
from XRootD.client.flags import OpenFlags

PATIENCE_SECONDS = 10


def grown_to(path_size, wanted: int) -> int:
    """The size once it has reached `wanted`, or what it stood at when patience ended."""
    end = time.monotonic() + PATIENCE_SECONDS
    while (size := path_size()) < wanted and time.monotonic() < end:
        time.sleep(0.1)
    return size


@pytest.mark.peer_ok
@pytest.mark.parametrize("chunk", [10 * KIB, 700_001])
def test_a_reader_follows_a_recording(node, fs, place, chunk):
    """What a reader sees is always a true prefix, it grows while the file is written, and ends as the whole."""
    data = content(f"follow {chunk}", 12 * chunk)
    url = f"{node.url}{place}/growing"
    writer = client.File()
    assert writer.open(url, OpenFlags.NEW)[0].ok
    sizes = []
    for number in range(12):
        assert writer.write(data[number * chunk : (number + 1) * chunk], number * chunk)[0].ok
        if number % 4 == 3:
            sizes.append(grown_to(lambda: fs.size(f"{place}/growing"), (number + 1) * chunk))
            reader = client.File()
            status, _ = reader.open(url, OpenFlags.READ)
            assert status.ok, status.message
            status, seen = reader.read(0, len(data))
            assert status.ok and seen == data[: len(seen)] and len(seen) >= sizes[-1]
            reader.close()
    assert sizes == [4 * chunk, 8 * chunk, 12 * chunk]
    assert writer.close()[0].ok
    assert fs.size(f"{place}/growing") == len(data)


@pytest.mark.peer_ok
def test_an_open_reader_sees_the_file_grow(node, fs, place):
    data = content("one reader", 6 * MIB)
    url = f"{node.url}{place}/growing"
    writer, reader = client.File(), client.File()
    assert writer.open(url, OpenFlags.NEW)[0].ok
    assert writer.write(data[:MIB], 0)[0].ok and writer.sync()[0].ok
    assert reader.open(url, OpenFlags.READ)[0].ok
    for end in range(MIB, len(data), MIB):
        status, seen = reader.read(end - MIB, MIB)
        assert status.ok and seen == data[end - MIB : end]
        assert writer.write(data[end : end + MIB], end)[0].ok and writer.sync()[0].ok
    assert writer.close()[0].ok
    status, seen = reader.read(0, len(data))
    assert status.ok and seen == data
    reader.close()


def test_a_size_is_never_shown_over_a_hole(node, fs, place):
    """Chunks arrive in any order: bytes behind a gap are not published, and the gap is never read as zeros."""
    data = content("hole", 4 * MIB)
    url = f"{node.url}{place}/holey"
    writer = client.File()
    assert writer.open(url, OpenFlags.NEW)[0].ok
    assert writer.write(data[:MIB], 0)[0].ok
    assert writer.write(data[2 * MIB : 4 * MIB], 2 * MIB)[0].ok
    assert writer.sync()[0].ok
    assert grown_to(lambda: fs.size(f"{place}/holey"), MIB) == MIB
    reader = client.File()
    assert reader.open(url, OpenFlags.READ)[0].ok
    status, seen = reader.read(0, 4 * MIB)
    assert status.ok and seen == data[:MIB]
    assert writer.write(data[MIB : 2 * MIB], MIB)[0].ok
    assert grown_to(lambda: fs.size(f"{place}/holey"), 4 * MIB) == 4 * MIB
    assert writer.close()[0].ok
    status, seen = reader.read(0, 4 * MIB)
    assert status.ok and seen == data
    reader.close()


def test_published_without_any_sync_within_seconds(node, fs, place):
    """A recorder that never syncs is followed all the same: the server syncs by itself, once a second."""
    writer = client.File()
    assert writer.open(f"{node.url}{place}/quiet", OpenFlags.NEW)[0].ok
    assert writer.write(content("quiet", MIB), 0)[0].ok
    begin = time.monotonic()
    assert grown_to(lambda: fs.size(f"{place}/quiet"), MIB) == MIB
    assert time.monotonic() - begin < 5
    assert writer.close()[0].ok


def test_readers_never_see_a_mixture_during_an_overwrite(node, place, tmp_path):
    """While a new version is being written over a file, whoever opens it gets the old one whole, or the new one whole."""
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
