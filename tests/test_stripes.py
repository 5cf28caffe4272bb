"""Striped files as stock clients meet them: one file at the manager, its units on the disks."""

import json
import os
import struct
from contextlib import suppress

import pytest
import raw
from clients import Xrdfs, xrdcp
from cluster import Cluster, Node
from content import MIB, adler32, content
from harness import remove, weir
from XRootD import client
from XRootD.client.flags import OpenFlags

pytestmark = pytest.mark.managers_ok

CHUNK = 256 << 10
WIDTH = 3
BIG = 20_000_000


@pytest.fixture(scope="module")
def cluster(base):
    with Cluster(base / "stripes", 4, ("--grace-seconds", "5")) as cluster:
        cluster.policy("/striped", f"stripe({WIDTH}, 256KiB)")
        cluster.policy("/twice", f"stripe({WIDTH}, 256KiB) replica(2)")
        yield cluster
        assert all(node.alive() for node in cluster.nodes), cluster.logs()
    remove(cluster.home)


@pytest.fixture
def fs(cluster) -> Xrdfs:
    return Xrdfs(cluster.url)


def good(result):
    status, value = result
    assert status.ok, status.message
    return value


def opened(url: str, flags: OpenFlags = OpenFlags.READ) -> client.File:
    file = client.File()
    good(file.open(url, flags))
    return file


def unit_of(data: bytes, unit: int) -> bytes:
    """The bytes in one unit of a file."""
    chunks = range(unit * CHUNK, max(len(data), 1), WIDTH * CHUNK)
    return b"".join(data[start : start + CHUNK] for start in chunks)


def objects(cluster: Cluster) -> dict[str, list[tuple[Node, bytes]]]:
    """Large objects on the disks, and the servers of each."""
    found: dict[str, list[tuple[Node, bytes]]] = {}
    for disk in cluster.disks:
        if disk.alive():
            for path in disk.objects():
                # Those of a file that another test removed go meanwhile.
                with suppress(FileNotFoundError):
                    data = path.read_bytes()
                    found.setdefault(path.name, []).append((disk, data))
    return found


def new_objects(cluster: Cluster, before: dict) -> dict[str, list[tuple[Node, bytes]]]:
    return {name: copies for name, copies in objects(cluster).items() if name not in before}


def test_a_file_that_was_written_over_is_read_for_its_checksum(cluster, fs):
    data, path = os.urandom(BIG), "/striped/over"
    file = opened(cluster.url + path, OpenFlags.NEW)
    good(file.write(bytes(MIB), 0))
    good(file.write(data, 0))
    good(file.close())
    assert not cluster.file(path)["object"]["adler32"]
    for _ in range(2):
        assert fs("query", "checksum", path).ok().out.split() == ["adler32", adler32(data)]
    assert cluster.file(path)["object"]["adler32"] == adler32(data)


@pytest.mark.parametrize("size", [0, 100, CHUNK, CHUNK + 1, WIDTH * CHUNK, 5 * CHUNK + 4_321, BIG])
def test_a_file_is_what_was_written(cluster, fs, tmp_path, size):
    (tmp_path / "source").write_bytes(os.urandom(size))
    path = f"/striped/made/size{size}"
    xrdcp("--cksum", "adler32:source", tmp_path / "source", cluster.url + path).ok()
    assert fs.size(path) == size
    assert fs("query", "checksum", path).ok().out.split()[1] == adler32((tmp_path / "source").read_bytes())
    xrdcp("-f", cluster.url + path, tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == (tmp_path / "source").read_bytes()


@pytest.mark.parametrize(("folder", "copies"), [("/striped", 1), ("/twice", 2)])
def test_each_unit_is_where_it_should_be_and_goes_with_the_file(cluster, fs, tmp_path, folder, copies):
    before = objects(cluster)
    data = os.urandom(BIG)
    (tmp_path / "source").write_bytes(data)
    path = f"{folder}/looked_at"
    xrdcp(tmp_path / "source", cluster.url + path).ok()
    found = new_objects(cluster, before)
    units = [unit_of(data, unit) for unit in range(WIDTH)]
    assert sum(map(len, units)) == BIG
    assert len(found) == WIDTH
    firsts = set()
    for unit in units:
        holders = [[disk for disk, _ in there] for there in found.values() if there[0][1][: len(unit)] == unit]
        assert len(holders) == 1 and len(set(map(id, holders[0]))) == copies, holders
        firsts.update(id(disk) for disk in holders[0])
    assert len(firsts) >= WIDTH, "on as many servers as there are units"
    assert all(len({data for _, data in there}) == 1 for there in found.values()), "copies are equal"
    seen = cluster.file(path)["object"]
    assert (seen["state"], seen["chunk"], seen["replicas"]) == ("complete", CHUNK, [])
    assert [unit["len"] for unit in seen["units"]] == [len(unit) for unit in units]
    assert all([copy["replica"] for copy in unit["replicas"]] == ["complete"] * copies for unit in seen["units"])
    assert "striped over 3 units in chunks of 256 KiB" in cluster.weir("file", path, "--data", cluster.data)
    fs("rm", path).ok()
    cluster.until(lambda: not new_objects(cluster, before))


def test_another_file_takes_its_place_when_it_is_whole(cluster, fs, tmp_path):
    path = "/striped/replaced"
    for size in (3_000_000, 5_000_000):
        data = os.urandom(size)
        (tmp_path / "source").write_bytes(data)
        xrdcp("-f", tmp_path / "source", cluster.url + path).ok()
        xrdcp("-f", cluster.url + path, tmp_path / "back").ok()
        assert (tmp_path / "back").read_bytes() == data and fs.size(path) == size


def test_reads_here_and_there_and_many_at_once(cluster, tmp_path):
    data = os.urandom(BIG)
    (tmp_path / "source").write_bytes(data)
    xrdcp(tmp_path / "source", cluster.url + "/striped/read").ok()
    file = opened(cluster.url + "/striped/read")
    for offset, size in [(0, 1), (CHUNK - 1, 2), (CHUNK * 2 - 10, CHUNK + 20), (5, 7 * CHUNK), (BIG - 9, 100), (BIG, 10)]:
        assert good(file.read(offset, size)) == data[offset : offset + size], offset
    places = [(CHUNK * n - 7, 1_000 + n) for n in range(1, 60)]
    for chunk in good(file.vector_read(places)).chunks:
        assert chunk.buffer == data[chunk.offset : chunk.offset + chunk.length]
    good(file.close())


def test_what_is_written_out_of_order_with_gaps_and_cut_is_one_file(cluster, fs, tmp_path):
    path = "/striped/patched"
    file = opened(cluster.url + path, OpenFlags.NEW)
    expected = bytearray(6 * CHUNK)
    for offset, size in [(5 * CHUNK, CHUNK), (CHUNK // 2, 2 * CHUNK), (3, 10)]:
        piece = os.urandom(size)
        good(file.write(piece, offset))
        expected[offset : offset + size] = piece
    assert good(file.read(0, len(expected))) == bytes(expected), "by who writes it"
    good(file.truncate(4 * CHUNK + 5))
    good(file.sync())
    expected = expected[: 4 * CHUNK + 5]
    good(file.write(b"end", 7 * CHUNK))
    expected += bytes(7 * CHUNK - len(expected)) + b"end"
    good(file.close())
    assert fs.size(path) == len(expected)
    xrdcp("-f", cluster.url + path, tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == bytes(expected)
    # Nobody knows the checksum after rewriting and truncation, so the file is read for it.
    assert fs("query", "checksum", path).ok().out.split()[1] == adler32(bytes(expected))


def test_a_file_in_the_making_is_shown_as_far_as_it_is_whole(cluster):
    path = "/striped/followed"
    writer = opened(cluster.url + path, OpenFlags.NEW)
    data = os.urandom(4 * CHUNK)
    good(writer.write(data[: 2 * CHUNK], 0))
    # Behind a gap: it is not visible yet.
    good(writer.write(data[3 * CHUNK :], 3 * CHUNK))
    good(writer.sync())
    reader = opened(cluster.url + path)
    cluster.until(lambda: good(reader.stat(True)).size == 2 * CHUNK)
    assert good(reader.read(0, 4 * CHUNK)) == data[: 2 * CHUNK]
    good(writer.write(data[2 * CHUNK : 3 * CHUNK], 2 * CHUNK))
    good(writer.sync())
    cluster.until(lambda: good(reader.stat(True)).size == 4 * CHUNK)
    assert good(reader.read(0, 4 * CHUNK)) == data
    good(reader.close())
    good(writer.close())


def test_what_is_closed_can_be_replaced_and_not_changed(cluster, tmp_path):
    (tmp_path / "source").write_bytes(b"x" * 100)
    xrdcp(tmp_path / "source", cluster.url + "/striped/closed").ok()
    status, _ = client.File().open(cluster.url + "/striped/closed", OpenFlags.UPDATE)
    assert not status.ok and "cannot be changed in place" in status.message, status.message


def test_what_is_closed_and_empty_can_be_written(cluster, fs, tmp_path):
    """As uproot does: it makes a file, closes it, and reopens it for writing. Until then the file is empty."""
    path = "/striped/filled"
    (tmp_path / "source").write_bytes(b"")
    xrdcp(tmp_path / "source", cluster.url + path).ok()
    fs("chmod", path, "rw-r-----").ok()
    before = cluster.file(path)["ino"]
    data = content("filled", 3 * CHUNK + 17)
    file = client.File()
    good(file.open(cluster.url + path, OpenFlags.UPDATE))
    good(file.write(data[:CHUNK], 0))
    assert fs.size(path) == 0, "somebody else sees it too early"
    good(file.write(data[CHUNK:], CHUNK))
    assert good(file.read(0, len(data))) == data
    good(file.close())
    xrdcp("-f", cluster.url + path, tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == data
    assert cluster.file(path)["ino"] == before
    assert json.loads(weir("stat", "--json", cluster.url + path).stdout)["info"]["mode"] & 0o777 == 0o640
    # From then on it is like any other.
    status, _ = client.File().open(cluster.url + path, OpenFlags.UPDATE)
    assert not status.ok and "cannot be changed in place" in status.message, status.message


def test_a_writer_that_was_guessed_is_none(cluster):
    """A reader knows or can find out everything about a writer except its secret."""
    path = "/striped/guessed"
    with raw.Raw.to(cluster.manager) as there:
        port, host, permission = there.ask_open(path, raw.OPEN_NEW | raw.OPEN_UPDATE).redirect
        with raw.Raw(port, host=host) as writer:
            handle = writer.open(f"{path}?{permission}", raw.OPEN_NEW | raw.OPEN_UPDATE)
            assert writer.write(handle, 0, b"mine" * CHUNK).status == raw.OK
            body = int(permission.partition("weir.object=")[2][:16], 16)
            for secret in ("0" * 16 + "." + "0" * 16, "f" * 16 + "." + "f" * 16):
                guess = f"{0:016x}.{body:016x}.00000001.{secret}"
                refused = there.ask_open(f"{path}?weir.unit=0&weir.writer={guess}", raw.OPEN_UPDATE)
                assert refused.error == raw.NOT_AUTHORIZED and b"capability" in refused.body, refused
                refused = there.request(raw.QUERY, struct.pack(">H14x", 32), f"{path}?weir.op=complete&weir.writer={guess}".encode())
                assert refused.error == raw.NOT_AUTHORIZED, refused
            assert writer.close(handle).status == raw.OK
    assert good(opened(cluster.url + path).read()) == b"mine" * CHUNK


def test_one_client_writes_through_two_handles(cluster):
    """As XrdCl does after a recovery."""
    path, data = "/striped/two-handles", content("two handles", 6 * CHUNK)
    with raw.Raw.to(cluster.manager) as there:
        port, host, permission = there.ask_open(path, raw.OPEN_NEW | raw.OPEN_UPDATE).redirect
    with raw.Raw(port, host=host) as writer:
        handles = [writer.open(f"{path}?{permission}", raw.OPEN_NEW | raw.OPEN_UPDATE) for _ in range(2)]
        for at in range(6):
            part = data[at * CHUNK : (at + 1) * CHUNK]
            assert writer.write(handles[at % 2], at * CHUNK, part).status == raw.OK, at
        assert writer.close(handles[1]).status == raw.OK
    assert good(opened(cluster.url + path).read()) == data
