"""The additions of protocol 5.2.0: copying on the server (clone, and open with a template), by XrdCl 6 and frame by frame."""

import struct
import time

import pytest
import raw
from clients import xrdcp
from content import MIB, content, write
from raw import Raw
from XRootD import client
from XRootD.client.flags import OpenFlags

WITHOUT_RECENT = True

SIZE = 3 * MIB + 1234
VERSION = 0x520
RETSTAT = 0x400
NEW = raw.OPEN_NEW | raw.OPEN_UPDATE
QUERY_FINFO, QUERY_FSINFO = 9, 10
WAITRESP, IN_PROGRESS = 4006, 3020


@pytest.fixture
def source(node, place, tmp_path) -> str:
    xrdcp(write(tmp_path / "source", place, SIZE), f"{node.url}{place}/source").ok()
    return f"{place}/source"


@pytest.fixture
def data(source, tmp_path) -> bytes:
    return (tmp_path / "source").read_bytes()


def bytes_of(node, path: str) -> bytes:
    with Raw(node.port) as reader:
        return reader.read(reader.open(path), 0, 1 << 30).body


def speak(connection: Raw, version: int) -> int:
    """Announces the version of this client; returns the server's."""
    answer = connection.request(raw.PROTOCOL, struct.pack(">iBB", version, 0, 3))
    assert answer.status == raw.OK
    return struct.unpack(">i", answer.body[:4])[0]


def open_like(connection: Raw, path: str, template: bytes, options2: int, options: int = NEW) -> raw.Answer:
    parameters = struct.pack(">HHH6x", 0o640, options, options2) + template
    return connection.request(raw.OPEN, parameters, path.encode())


def clone(connection: Raw, target: bytes, *ranges: tuple[bytes, int, int, int]) -> raw.Answer:
    """`ranges`: source, offset there, length, offset in the target."""
    listed = b"".join(source + struct.pack(">4xQQQ", *places) for source, *places in ranges)
    return connection.request(raw.CLONE, target, listed)


def test_xrdcl_6_clones_ranges(node, place, source, data):
    """The stock client uses clone only if the server announces a version that has it."""
    url = f"{node.url}{place}/target"
    one, target = client.File(), client.File()
    assert one.open(f"{node.url}{source}", OpenFlags.READ)[0].ok
    assert target.open(url, OpenFlags.NEW)[0].ok
    assert target.write(b"head", 0)[0].ok
    ranges = [(0, MIB + 3, 4), (2 * MIB, 0, 2 * MIB)]
    locations = [dict(src_file=one, src_offset=offset, src_length=length, dest_offset=to) for offset, length, to in ranges]
    status, _ = target.clone(locations)
    assert status.ok, status.message
    assert target.close()[0].ok and one.close()[0].ok
    gap = bytes(2 * MIB - (MIB + 3 + 4))
    assert bytes_of(node, f"{place}/target") == b"head" + data[: MIB + 3] + gap + data[2 * MIB :]


@pytest.mark.parametrize("flags", [OpenFlags.DUP, OpenFlags.DUP | OpenFlags.SAMEFS, OpenFlags.SAMEFS])
def test_xrdcl_6_opens_with_a_template(node, fs, place, source, data, flags):
    one, target = client.File(), client.File()
    assert one.open(f"{node.url}{source}", OpenFlags.READ)[0].ok
    status, _ = target.openusingtemplate(one, f"{node.url}{place}/like", OpenFlags.NEW | OpenFlags.UPDATE | flags)
    assert status.ok, status.message
    assert target.write(b"changed", 10)[0].ok
    assert target.close()[0].ok
    expected = data if flags & OpenFlags.DUP else bytes(10)
    assert bytes_of(node, f"{place}/like") == expected[:10] + b"changed" + expected[17:]
    assert bytes_of(node, source) == data, "a copy is not the same file"
    assert "No checksum" not in fs("query", "checksum", f"{place}/like").ok().out


def test_the_version_that_is_announced(node):
    with Raw(node.port, login=False) as connection:
        connection.socket.sendall(struct.pack(">iiiii", 0, 0, 0, 4, 2012))
        assert struct.unpack(">ii", connection.receive().body) == (VERSION, 1)
        assert speak(connection, 0x511) == VERSION


def test_an_older_client_may_have_anything_in_the_reserved_bytes(node, place, source):
    for version in (None, 0x511):
        with Raw(node.port) as connection:
            if version:
                speak(connection, version)
            answer = open_like(connection, f"{place}/old-{version}", b"junk", 0xFFFF)
            assert answer.status == raw.OK and len(answer.body) == 4, answer
            assert connection.close(answer.body[:4]).status == raw.OK


def test_templates_that_are_refused(node, place, source):
    with Raw(node.port) as connection:
        speak(connection, VERSION)
        like = connection.open(source)
        path = f"{place}/refused"
        for answer, number in [
            (open_like(connection, path, b"none", raw.OPEN_DUP), raw.FILE_NOT_OPEN),
            (open_like(connection, path, b"none", raw.OPEN_SAMEFS), raw.FILE_NOT_OPEN),
            (open_like(connection, path, like, raw.OPEN_DUP, raw.OPEN_READ | raw.OPEN_NEW), raw.ARG_INVALID),
            (open_like(connection, source, like, raw.OPEN_DUP, raw.OPEN_UPDATE), raw.ARG_INVALID),
            (open_like(connection, source, like, raw.OPEN_SAMEFS, raw.OPEN_READ), raw.ARG_INVALID),
            (open_like(connection, source, like, raw.OPEN_DUP), raw.EXISTS),
        ]:
            assert answer.error == number, answer
        assert connection.stat(path).error == raw.NOT_FOUND
        # A stat line, as with `retstat`, and a hint that changes nothing.
        answer = open_like(connection, path, like, raw.OPEN_DUP | raw.OPEN_RETSTATX | raw.OPEN_DIRECTIO)
        assert answer.status == raw.OK and answer.body[12:].split()[1] == str(SIZE).encode(), answer
        assert connection.close(answer.body[:4]).status == raw.OK


def test_clones_that_are_refused_change_nothing(node, place, source, data):
    with Raw(node.port) as connection:
        one, target = connection.open(source), connection.open(f"{place}/target", NEW)
        assert connection.write(target, 0, b"x" * 100).status == raw.OK
        good = (one, 0, 50, 0)
        for answer, number in [
            (clone(connection, b"none", good), raw.FILE_NOT_OPEN),
            (clone(connection, target, good, (b"none", 0, 1, 0)), raw.FILE_NOT_OPEN),
            (clone(connection, target, good, (one, SIZE - 5, 6, 0)), raw.ARG_INVALID),
            (clone(connection, target, good, (one, SIZE + 1, 0, 0)), raw.ARG_INVALID),
            (clone(connection, target, good, (one, 0, 10, (1 << 63) - 5)), raw.ARG_INVALID),
            (clone(connection, target, good, (one, 0, 10, 1 << 45)), raw.ARG_INVALID),
            (clone(connection, target, good, (target, 0, 51, 50)), raw.ARG_INVALID),
            (clone(connection, target), raw.ARG_INVALID),
            (connection.request(raw.CLONE, target, one + bytes(27)), raw.ARG_INVALID),
        ]:
            assert answer.error == number, answer
        assert clone(connection, one, (one, 0, 1, 10)).error, "it is open for reading"
        assert connection.read(target, 0, 1000).body == b"x" * 100
        # Within a file, ranges must not overlap. Then the file is as whole as any other.
        assert clone(connection, target, (target, 0, 50, 50), (one, SIZE - 5, 5, 95), (one, SIZE, 0, 0)).status == raw.OK
        assert connection.close(target).status == raw.OK
    assert bytes_of(node, f"{place}/target") == b"x" * 95 + data[-5:]


def test_a_clone_that_breaks_off_is_not_taken_for_whole(own_node, tmp_path):
    """A page of the source is damaged. The requested bytes are missing, so the target is not complete."""
    node = own_node()
    path = write(tmp_path / "source", "damaged", SIZE)
    xrdcp(path, f"{node.url}/source").ok()
    node.stop()
    stored = max(node.data.glob("store/objects/*/*/*"), key=lambda file: file.stat().st_size)
    with stored.open("r+b") as file:
        file.seek(2 * MIB)
        file.write(b"rot")
    node.start()
    with Raw(node.port) as connection:
        speak(connection, VERSION)
        one, target = connection.open("/source"), connection.open("/target", NEW)
        assert clone(connection, target, (one, 0, 0, 0)).error == raw.CHECKSUM_ERROR
        assert connection.close(target).error, "bytes are missing"
        assert open_like(connection, "/like", one, raw.OPEN_DUP).error == raw.CHECKSUM_ERROR
        for path in ("/target", "/like"):
            end = time.monotonic() + 5
            while True:
                answer = connection.request(raw.OPEN, struct.pack(">HH12x", 0, raw.OPEN_READ), path.encode())
                if answer.error == IN_PROGRESS:
                    break
                # The error does not wait for the mark; until then nobody may take the file for a whole one.
                assert answer.status == raw.WAIT and time.monotonic() < end, answer
                time.sleep(0.1)
    status, _ = client.FileSystem(node.url).stat("/source")
    assert status.ok


def test_a_long_clone_is_announced(own_node):
    """Beyond 256 MiB the server announces at once that the answer will follow."""
    node = own_node()
    data, times = content("long", MIB), 300
    with Raw(node.port, timeout=120) as connection:
        one, target = connection.open("/one", NEW), connection.open("/target", NEW)
        assert connection.write(one, 0, data).status == raw.OK
        answer = clone(connection, target, *[(one, 0, MIB, number * MIB) for number in range(times)])
        assert answer.status == WAITRESP, answer
        attention = connection.receive()
        assert attention.body[8:10] == answer.stream and struct.unpack(">H", attention.body[10:12])[0] == raw.OK, attention
        assert connection.read(target, (times - 1) * MIB, MIB).body == data
        assert connection.close(target).status == raw.OK and connection.close(one).status == raw.OK
    assert client.FileSystem(node.url).stat("/target")[1].size == times * MIB


@pytest.mark.peer_ok
def test_queries_of_the_implementations_own_kind(node, place, source):
    with Raw(node.port) as connection:
        handle = connection.open(source)
        for code in (QUERY_FINFO, QUERY_FSINFO):
            text = source.encode() if code == QUERY_FSINFO else b""
            assert connection.request(raw.QUERY, struct.pack(">H2x", code) + handle, text).error in (raw.UNSUPPORTED, raw.ARG_INVALID)
        assert connection.request(raw.QUERY, struct.pack(">H2x", QUERY_FINFO) + b"none").error in (raw.FILE_NOT_OPEN, raw.ARG_INVALID)


def test_extended_listings_are_what_they_were(node, place, source):
    """No server up to 6.1 lists extended attributes: the option alone lists names, as at the stock server."""
    with Raw(node.port) as connection:
        plain = connection.request(raw.DIRLIST, bytes(16), place.encode())
        assert connection.request(raw.DIRLIST, bytes(15) + b"\x08", place.encode()).body == plain.body
        with_stat = connection.request(raw.DIRLIST, bytes(15) + b"\x02", place.encode())
        assert connection.request(raw.DIRLIST, bytes(15) + b"\x0a", place.encode()).body == with_stat.body
