"""Checkpoints and vector writes: changes of an open file that are kept or undone as one, by XrdCl, by xrdcp, and frame by frame."""

import struct
import time
import zipfile
from contextlib import ExitStack

import pytest
import raw
import xrdcl
from clients import Xrdfs, xrdcp
from content import content, crc32c, page_sum, write
from harness import weir
from raw import Raw

WITHOUT_RECENT = True

BEGIN, COMMIT, QUERY, ROLLBACK = raw.CKP_BEGIN, raw.CKP_COMMIT, raw.CKP_QUERY, raw.CKP_ROLLBACK
NOT_FOUND, EXISTS, CONFLICT, OVER_QUOTA, NOT_OPEN = 3011, 3018, 3032, 3021, 3004
UPDATE = raw.OPEN_UPDATE
SIZE = 300_000


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    return xrdcl.build(tmp_path_factory.mktemp("xrdcl"))


@pytest.fixture
def old(node, place, tmp_path) -> bytes:
    source = write(tmp_path / "old", place, SIZE)
    xrdcp(source, f"{node.url}{place}/file").ok()
    return source.read_bytes()


def bytes_of(node, path: str) -> bytes:
    with Raw(node.port) as reader:
        return reader.read(reader.open(path), 0, 1 << 30).body


def chkpoint(connection: Raw, handle: bytes, operation: int) -> raw.Answer:
    return connection.request(raw.CHKPOINT, handle + bytes(11) + bytes([operation]))


def execute(connection: Raw, code: int, parameters: bytes, data: bytes = b"", length: int | None = None) -> raw.Answer:
    return connection.request(code, parameters, data, length=length, under=True)


def write_under(connection: Raw, handle: bytes, offset: int, data: bytes) -> raw.Answer:
    return execute(connection, raw.WRITE, handle + struct.pack(">q4x", offset), data)


# By the stock client library.


@pytest.mark.peer_ok
def test_xrdcl_commits_and_rolls_back(node, fs, place, old, program):
    with xrdcl.File(program, f"{node.url}{place}/file") as file:
        file("begin")
        file("ckpwrite", 1000, 5000, "a")
        file("ckpwritev", 200_000, "3000:b", "70000:c", "40000:d")
        file("rollback")
        file("begin")
        file("ckpwrite", 5, 10, "x")
        file("ckpwritev", SIZE - 10, "20:y", "5000:z")
        file("commit")
        file("close")
    new = old[:5] + b"x" * 10 + old[15 : SIZE - 10] + b"y" * 20 + b"z" * 5000
    assert bytes_of(node, f"{place}/file") == new
    assert fs("query", "checksum", f"{place}/file").ok().out.split()[0] == "adler32"


@pytest.mark.peer_ok
def test_a_close_rolls_back(node, place, old, program):
    with xrdcl.File(program, f"{node.url}{place}/file") as file:
        file("begin")
        file("ckpwrite", 0, 100_000, "a")
        file("close")
    assert bytes_of(node, f"{place}/file") == old


def test_xrdcl_misuses(node, place, old, program):
    with xrdcl.File(program, f"{node.url}{place}/file") as file:
        for operation in (["commit"], ["rollback"], ["ckpwrite", 0, 10, "a"]):
            with pytest.raises(xrdcl.Refused) as refused:
                file(*operation)
            assert refused.value.number == NOT_FOUND
        file("begin")
        with pytest.raises(xrdcl.Refused) as refused:
            file("begin")
        assert refused.value.number == EXISTS
        file("rollback")
        file("close")
    assert bytes_of(node, f"{place}/file") == old


def test_a_client_that_dies_leaves_the_file_as_it_was(node, place, old, program):
    with xrdcl.File(program, f"{node.url}{place}/file") as file:
        file("begin")
        file("ckpwrite", 0, 100_000, "a")
    until = time.monotonic() + 20
    while bytes_of(node, f"{place}/file") != old:
        assert time.monotonic() < until, "not rolled back"
        time.sleep(0.05)


@pytest.mark.parametrize("committed", [False, True])
def test_after_a_kill_it_is_all_or_nothing(own_node, tmp_path, program, committed):
    server = own_node("--grace-seconds", "2")
    source = write(tmp_path / "old", "kill", SIZE)
    xrdcp(source, f"{server.url}/file").ok()
    old = source.read_bytes()
    with xrdcl.File(program, f"{server.url}/file") as file:
        file("begin")
        file("ckpwrite", 1000, 150_000, "a")
        file("ckpwritev", SIZE, "100000:b", "1:c")
        if committed:
            file("commit")
        server.kill()
        looked = weir("fsck", "--data", str(server.data))
        assert looked.returncode == 0, looked.stdout + looked.stderr
        server.start()
        new = old[:1000] + b"a" * 150_000 + old[151_000:] + b"b" * 100_000 + b"c"
        expected = new if committed else old
        assert bytes_of(server, "/file") == expected, "the first who looks sees it"
    fs = Xrdfs(server.url)
    until = time.monotonic() + 30
    while (asked := fs("query", "checksum", "/file?cks.type=crc32c")).code != 0:
        assert time.monotonic() < until, asked.err
        time.sleep(0.2)
    (tmp_path / "expected").write_bytes(expected)
    assert asked.out.split()[1] == crc32c(tmp_path / "expected")


@pytest.mark.peer_ok
def test_xrdcp_appends_to_a_zip_archive(node, place, tmp_path):
    """The stock command that relies on checkpoints overwrites the archive's directory with a new one."""
    expected = {}
    for number in range(3):
        member = write(tmp_path / f"member{number}", f"zip{number}", 200_000 + number)
        expected[member.name] = member.read_bytes()
        xrdcp("--zip-append", member, f"{node.url}{place}/archive.zip").ok()
    (tmp_path / "back.zip").write_bytes(bytes_of(node, f"{place}/archive.zip"))
    with zipfile.ZipFile(tmp_path / "back.zip") as archive:
        assert archive.testzip() is None
        assert {name: archive.read(name) for name in archive.namelist()} == expected


@pytest.mark.peer_ok
def test_vector_writes_by_xrdcl(node, place, old, program):
    with xrdcl.File(program, f"{node.url}{place}/file") as file:
        file("writev", "10:5:a", "4090:10:b", "100000:8192:c", f"{SIZE + 1000}:3:d")
        file("close")
    new = bytearray(old + bytes(1003))
    for offset, count, letter in [(10, 5, b"a"), (4090, 10, b"b"), (100_000, 8192, b"c"), (SIZE + 1000, 3, b"d")]:
        new[offset : offset + count] = letter * count
    assert bytes_of(node, f"{place}/file") == bytes(new)


# Frame by frame.


def test_every_kind_of_write_inside_one(node, place, old):
    path = f"{place}/file"
    with Raw(node.port) as me:
        handle = me.open(path, UPDATE)
        for end in (ROLLBACK, COMMIT):
            assert chkpoint(me, handle, BEGIN).status == raw.OK
            assert write_under(me, handle, 0, b"w" * 10).status == raw.OK
            page = b"p" * 4096
            with_sum = struct.pack(">I", page_sum(page)) + page
            paged = execute(me, raw.PGWRITE, handle + struct.pack(">q", 8192), with_sum)
            assert paged.status == raw.STATUS and len(paged.body) == 24
            segments = [(20, b"one"), (100_000, b"two")]
            places = b"".join(handle + struct.pack(">iq", len(data), offset) for offset, data in segments)
            joined = places + b"".join(data for _, data in segments)
            assert execute(me, raw.WRITEV, b"", joined, length=len(places)).status == raw.OK
            assert execute(me, raw.TRUNCATE, handle + struct.pack(">q", 150_000)).status == raw.OK
            new = bytearray(old[:150_000])
            for offset, data in [(0, b"w" * 10), (8192, page), *segments]:
                new[offset : offset + len(data)] = data
            assert me.read(handle, 0, SIZE).body == bytes(new)
            limit, used = struct.unpack(">II", chkpoint(me, handle, QUERY).body)
            # 150,000 bytes cut off from within a page, and three pages before that
            assert 150_000 < used < 180_000 and limit >= 1 << 20
            assert chkpoint(me, handle, end).status == raw.OK
            assert chkpoint(me, handle, QUERY).error == NOT_FOUND
            assert me.read(handle, 0, SIZE + 1).body == (bytes(new) if end == COMMIT else old)
        assert me.close(handle).status == raw.OK
    assert bytes_of(node, path) == bytes(new)


def test_too_large_a_checkpoint_is_refused_and_can_be_undone(node, place, tmp_path):
    source = write(tmp_path / "big", "big", 20 << 20)
    xrdcp(source, f"{node.url}{place}/big").ok()
    before = node.rss_bytes()
    with Raw(node.port) as me:
        handle = me.open(f"{place}/big", UPDATE)
        assert chkpoint(me, handle, BEGIN).status == raw.OK
        # appended bytes need no undo
        assert write_under(me, handle, 20 << 20, bytes(20 << 20)).status == raw.OK
        assert execute(me, raw.TRUNCATE, handle + struct.pack(">q", 0)).error == OVER_QUOTA
        for offset in range(0, 16 << 20, 1 << 20):
            assert write_under(me, handle, offset, b"n" * (1 << 20)).status == raw.OK
        assert write_under(me, handle, 16 << 20, b"n").error == OVER_QUOTA
        assert node.rss_bytes() - before < 64 << 20
        assert chkpoint(me, handle, ROLLBACK).status == raw.OK
        assert me.close(handle).status == raw.OK, "what was refused under it is forgotten with it"
    assert bytes_of(node, f"{place}/big") == source.read_bytes()


def test_misuses_leave_the_connection_as_it_was(node, place, old):
    path = f"{place}/file"
    with Raw(node.port) as me:
        reader = me.open(path)
        assert chkpoint(me, reader, BEGIN).error == CONFLICT
        assert chkpoint(me, reader, COMMIT).error == NOT_FOUND
        assert chkpoint(me, b"\xff" * 4, BEGIN).error == NOT_OPEN
        assert write_under(me, b"\xff" * 4, 0, b"data of nobody").error == NOT_OPEN
        assert me.close(reader).status == raw.OK
        handle, other = me.open(path, UPDATE), me.open(f"{place}/other", raw.OPEN_NEW | UPDATE)
        assert write_under(me, handle, 0, b"without").error == NOT_FOUND
        assert chkpoint(me, handle, BEGIN).status == raw.OK
        places = handle + struct.pack(">iq", 3, 0) + other + struct.pack(">iq", 3, 0)
        assert execute(me, raw.WRITEV, b"", places + b"onetwo", length=len(places)).error == raw.UNSUPPORTED
        assert me.stat(path).status == raw.OK
        assert me.close(handle).status == raw.OK and me.close(other).status == raw.OK
    assert bytes_of(node, path) == old
    for inner in (raw.READ, raw.CHKPOINT, raw.MKDIR):
        with Raw(node.port) as me:
            assert execute(me, inner, b"", b"", length=0).error == raw.ARG_INVALID
            with pytest.raises(raw.Closed):  # the beginning of the next request is unknown
                me.stat(path)
                me.stat(path)


def test_those_that_are_never_ended_hold_nobody_up(own_node, tmp_path):
    """A dozen checkpoints, each with a megabyte to undo. Others still write, and the journal is trimmed; after a kill all files have their
    old contents."""
    config = tmp_path / "weir.toml"
    config.write_text('grace_seconds = 1\n[journal]\nsegment_size = "4MiB"\n')
    server = own_node("--config", str(config))
    size, count = 2 << 20, 12
    old = content("never ended", size)

    def segments() -> set[str]:
        return {file.name for file in (server.data / "journal").glob("*.seg*")}

    with ExitStack() as stack:
        before = server.rss_bytes()
        for number in range(count):
            me = stack.enter_context(Raw(server.port, timeout=60))
            handle = me.open(f"/f{number}", raw.OPEN_NEW | raw.OPEN_UPDATE)
            assert me.write(handle, 0, old).status == raw.OK and me.close(handle).status == raw.OK
            handle = me.open(f"/f{number}", UPDATE)
            assert chkpoint(me, handle, BEGIN).status == raw.OK
            assert write_under(me, handle, 4096 * number + 1, bytes(1 << 20)).status == raw.OK
        other = stack.enter_context(Raw(server.port))
        # The length of the journal at a moment depends on how fast the index is checkpointed; but the dozen's bytes certainly leave it.
        theirs, until = segments(), time.monotonic() + 90
        while theirs & segments():
            assert time.monotonic() < until, f"{len(segments())} segments of the log, and {theirs & segments()} still among them"
            for number in range(200):
                handle = other.open(f"/other{number % 20}", raw.OPEN_DELETE | raw.OPEN_UPDATE)
                assert other.write(handle, 0, bytes(50_000)).status == raw.OK and other.close(handle).status == raw.OK
        assert server.rss_bytes() - before < 128 << 20
        server.kill()
    server.start()
    until = time.monotonic() + 20
    while any(bytes_of(server, f"/f{number}") != old for number in range(count)):
        assert time.monotonic() < until, "not rolled back"
        time.sleep(0.5)
    assert server.stop()[0] == 0
    checked = weir("fsck", "--data", str(server.data))
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_whoever_takes_the_file_up_finds_it_rolled_back(node, place, old):
    path = f"{place}/file"
    with Raw(node.port) as first, Raw(node.port) as second:
        handle = first.open(path, UPDATE)
        assert chkpoint(first, handle, BEGIN).status == raw.OK
        assert write_under(first, handle, 0, b"x" * 50_000).status == raw.OK
        mine = second.open(path, UPDATE)  # the same client, according to itself
        assert second.read(mine, 0, SIZE).body == old
        assert chkpoint(second, mine, QUERY).error == NOT_FOUND
        assert write_under(first, handle, 0, b"y").error == NOT_OPEN
        assert second.close(mine).status == raw.OK
    assert bytes_of(node, path) == old


def test_who_follows_a_recording_never_sees_what_may_be_undone(node, place):
    path = f"{place}/new"
    with Raw(node.port) as writer, Raw(node.port) as reader:
        handle = writer.open(path, raw.OPEN_NEW | UPDATE)
        assert writer.write(handle, 0, b"k" * 10_000).status == raw.OK
        assert writer.request(raw.SYNC, handle).status == raw.OK
        following = reader.open(path + "?weir.follow=1")
        assert chkpoint(writer, handle, BEGIN).status == raw.OK
        assert write_under(writer, handle, 10_000, b"u" * 10_000).status == raw.OK
        assert writer.request(raw.SYNC, handle).status == raw.OK
        assert reader.read(following, 0, 30_000).body == b"k" * 10_000
        assert chkpoint(writer, handle, COMMIT).status == raw.OK
        assert reader.read(following, 0, 30_000).body == b"k" * 10_000 + b"u" * 10_000
        assert writer.close(handle).status == raw.OK


@pytest.mark.parametrize("broken", ["a foreign handle", "a reader"])
def test_a_vector_write_to_a_wrong_place_writes_nothing(node, place, old, broken):
    with Raw(node.port) as me:
        handle = me.open(f"{place}/file", UPDATE)
        wrong = me.open(f"{place}/file") if broken == "a reader" else b"\xff" * 4
        places = handle + struct.pack(">iq", 3, 0) + wrong + struct.pack(">iq", 3, 0)
        me.send(raw.WRITEV, b"", places + b"onetwo", length=len(places))
        assert me.receive().error in (NOT_OPEN, raw.NOT_AUTHORIZED)
        assert me.read(handle, 0, SIZE).body == old
        assert me.write(handle, 0, b"one").status == raw.OK, "the connection goes on, and what was refused can come again"
        assert me.close(handle).status == raw.OK
    assert bytes_of(node, f"{place}/file") == b"one" + old[3:]


def test_a_vector_write_is_durable_when_it_asks_to_be(own_node, tmp_path):
    server = own_node()
    with Raw(server.port) as me:
        handle = me.open("/file", raw.OPEN_NEW | UPDATE)
        places = handle + struct.pack(">iq", 5000, 0) + handle + struct.pack(">iq", 5000, 5000)
        data = content("durable", 10_000)
        me.send(raw.WRITEV, b"\1", places + data, length=len(places))
        assert me.receive().status == raw.OK
        with Raw(server.port) as reader:  # a follower sees only durable bytes
            assert reader.read(reader.open("/file?weir.follow=1"), 0, 20_000).body == data
        me.close(handle)


def test_a_signature_is_taken_and_the_request_done(node, place):
    with Raw(node.port) as me:
        me.send(raw.SIGVER, struct.pack(">HBBQBxxx", raw.MKDIR, 0, 0, 1, 1), bytes(32))
        assert me.request(raw.MKDIR, struct.pack(">14xH", 0o755), f"{place}/signed".encode()).status == raw.OK
