"""Requests that xrdcp does not send, through XRootD's own Python bindings: vector reads, pages, in-place changes, many clients at once."""

import random
import threading

import pytest
from clients import Xrdfs, xrdcp
from content import KIB, MIB, adler32, content, write
from XRootD import client
from XRootD.client.flags import AccessMode, OpenFlags, QueryCode

pytestmark = [pytest.mark.peer_ok, pytest.mark.managers_ok]

PAGE = 4096


@pytest.fixture
def opened(node, place):
    """`opened("name", flags)`: an open remote file; closed at the end whatever happens."""
    files = []

    def opened(name: str, flags: OpenFlags, mode: AccessMode = AccessMode.UR | AccessMode.UW) -> client.File:
        file = client.File()
        status, _ = file.open(f"{node.url}{place}/{name}", flags, mode)
        assert status.ok, status.message
        files.append(file)
        return file

    yield opened
    for file in files:
        if file.is_open():
            file.close()


@pytest.fixture
def big(node, place, tmp_path) -> bytes:
    source = write(tmp_path / "big", "big", 9 * MIB + 1234)
    xrdcp(source, f"{node.url}{place}/big").ok()
    return source.read_bytes()


def good(result):
    status, value = result
    assert status.ok, status.message
    return value


def test_reads_anywhere(opened, big):
    file = opened("big", OpenFlags.READ)
    pick = random.Random(1)
    for _ in range(200):
        offset = pick.randrange(len(big))
        length = pick.choice([1, 17, PAGE - 1, PAGE, PAGE + 1, 70_000, 3 * MIB])
        assert good(file.read(offset, length)) == big[offset : offset + length]


def test_reads_at_and_past_the_end(opened, big):
    file = opened("big", OpenFlags.READ)
    size = len(big)
    assert good(file.read(size - 10, 100)) == big[-10:]
    assert good(file.read(size, 100)) == b""
    assert good(file.read(size + 5 * MIB, 100)) == b""
    assert good(file.stat()).size == size


def test_vector_reads(opened, big):
    file = opened("big", OpenFlags.READ)
    pick = random.Random(2)
    for count in (1, 2, 100, 1024):
        chunks = [(pick.randrange(len(big) - 5000), pick.randrange(1, 5000)) for _ in range(count)]
        got = good(file.vector_read(chunks))
        assert [chunk.buffer for chunk in got.chunks] == [big[o : o + n] for o, n in chunks]
    backwards = [(8 * MIB, 10), (0, 10), (4 * MIB, MIB), (4 * MIB + 5, MIB), (4095, 2)]
    got = good(file.vector_read(backwards))
    assert [chunk.buffer for chunk in got.chunks] == [big[o : o + n] for o, n in backwards]


def test_a_vector_read_past_the_end_fails_whole(opened, big):
    file = opened("big", OpenFlags.READ)
    status, _ = file.vector_read([(0, 10), (len(big) - 5, 10)])
    assert not status.ok
    assert good(file.read(0, 10)) == big[:10]


@pytest.mark.parametrize("offset", [0, 1, 100, PAGE - 1, PAGE, 5 * PAGE + 7, MIB - 3])
@pytest.mark.parametrize("size", [1, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE + 5, MIB, 2 * MIB + 77])
def test_page_reads_and_writes(node, place, opened, offset, size):
    """pgwrite sends a CRC32C for each page; a short first page aligns the rest. The bindings check the CRCs of pgread."""
    data = content(f"{offset} {size}", size)
    file = opened("pages", OpenFlags.NEW)
    assert file.write(data, offset)[0].ok
    assert file.close()[0].ok
    expected = b"\0" * offset + data
    xrd = opened("pages", OpenFlags.READ)
    assert good(xrd.read(0, len(expected) + 10)) == expected
    answer = good(client.FileSystem(node.url).query(QueryCode.CHECKSUM, f"{place}/pages"))
    assert answer.rstrip(b"\n\0").split() == [b"adler32", adler32(expected).encode()]


def test_writes_in_any_order_fill_the_file(node, opened, place):
    chunk = 64 * KIB + 1
    data = content("order", 40 * chunk)
    numbers = list(range(40))
    random.Random(3).shuffle(numbers)
    file = opened("shuffled", OpenFlags.NEW)
    for number in numbers:
        assert file.write(data[number * chunk : (number + 1) * chunk], number * chunk)[0].ok
    assert file.close()[0].ok
    assert good(opened("shuffled", OpenFlags.READ).read()) == data


def test_a_writer_reads_what_it_wrote(opened):
    data = content("own", 3 * MIB)
    file = opened("own", OpenFlags.NEW)
    assert file.write(data[:MIB], 0)[0].ok
    assert file.write(data[2 * MIB :], 2 * MIB)[0].ok
    assert good(file.read(100, 1000)) == data[100:1100]
    assert good(file.read(2 * MIB + 5, 1000)) == data[2 * MIB + 5 : 2 * MIB + 1005]
    assert file.sync()[0].ok
    assert file.write(data[MIB : 2 * MIB], MIB)[0].ok
    assert file.close()[0].ok
    assert good(opened("own", OpenFlags.READ).read()) == data


def test_random_changes_in_place(node, place, opened, tmp_path):
    """Compares a model in memory with a file that is opened, changed, cut, grown and closed again and again."""
    pick = random.Random(4)
    model = bytearray(content("model", 300_000))
    file = opened("model", OpenFlags.NEW)
    assert file.write(bytes(model), 0)[0].ok and file.close()[0].ok
    for round_number in range(8):
        file = opened("model", OpenFlags.UPDATE)
        for _ in range(12):
            if pick.random() < 0.2:
                length = pick.randrange(1, 500_000)
                assert file.truncate(length)[0].ok
                model = model[:length].ljust(length, b"\0")
            else:
                offset, size = pick.randrange(400_000), pick.choice([1, 10, PAGE, 5000, 70_000, 150_000])
                data = pick.randbytes(size)
                assert file.write(data, offset)[0].ok
                model = model.ljust(offset + size, b"\0")
                model[offset : offset + size] = data
            if pick.random() < 0.3:
                spot = pick.randrange(len(model))
                assert good(file.read(spot, 9000)) == model[spot : spot + 9000]
        assert file.close()[0].ok
        reader = opened("model", OpenFlags.READ)
        assert good(reader.read()) == model, f"round {round_number}"
        assert reader.close()[0].ok
        if node.kind == "weir":  # the peer's cached checksum may be older than the file
            answer = good(client.FileSystem(node.url).query(QueryCode.CHECKSUM, f"{place}/model"))
            assert answer.rstrip(b"\n\0").split()[1].decode() == adler32(bytes(model))


def test_open_flags(node, place, opened):
    def refused(name: str, flags: OpenFlags) -> int:
        status, _ = client.File().open(f"{node.url}{place}/{name}", flags)
        assert not status.ok
        return status.errno

    assert refused("missing", OpenFlags.READ) == 3011
    assert refused("missing", OpenFlags.UPDATE) == 3011
    made = opened("no/parent", OpenFlags.NEW)  # the bindings send the flag async, which makes the parents
    assert made.close()[0].ok
    file = opened("file", OpenFlags.NEW)
    assert file.write(b"old content", 0)[0].ok and file.close()[0].ok
    assert refused("file", OpenFlags.NEW) == 3018
    assert refused("", OpenFlags.READ) == 3016
    file = opened("file", OpenFlags.DELETE)
    assert file.write(b"new", 0)[0].ok and file.close()[0].ok
    assert good(opened("file", OpenFlags.READ).read()) == b"new"
    file = opened("deep/er/file", OpenFlags.NEW | OpenFlags.MAKEPATH)
    assert file.close()[0].ok
    reader = opened("file", OpenFlags.READ)
    assert not reader.write(b"x", 0)[0].ok


def test_truncate_through_the_handle(opened):
    file = opened("cut", OpenFlags.NEW)
    assert file.write(content("cut", 200_000), 0)[0].ok
    assert file.truncate(100_001)[0].ok
    assert good(file.stat(True)).size == 100_001
    assert file.close()[0].ok
    assert good(opened("cut", OpenFlags.READ).read()) == content("cut", 200_000)[:100_001]


def test_many_clients_at_once(node, place, tmp_path):
    """Twelve processes, each with its own connection, write and read different files at the same time."""
    failures = []

    def one(number: int) -> None:
        try:
            for round_number in range(3):
                name = f"{place}/client{number}-{round_number}"
                source = write(tmp_path / f"up{number}", name, 1_500_000 + number)
                xrdcp(source, f"{node.url}{name}").ok()
                xrdcp("-f", f"{node.url}{name}", tmp_path / f"down{number}").ok()
                assert (tmp_path / f"down{number}").read_bytes() == source.read_bytes()
        except BaseException as error:
            failures.append(f"client {number}: {error!r}")

    threads = [threading.Thread(target=one, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(Xrdfs(node.url).names(place)) == 36


def test_only_one_of_many_makes_the_name(node, place):
    """Eight threads create the same new file: exactly one may."""
    results = []

    def one() -> None:
        file = client.File()
        status, _ = file.open(f"{node.url}{place}/same", OpenFlags.NEW)
        results.append(status.ok)
        if status.ok:
            file.close()

    threads = [threading.Thread(target=one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [False] * 7 + [True]
