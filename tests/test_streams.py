"""Several connections of one session (bind): xrdcp --streams, and on the level of bytes."""

import struct

import pytest
import raw
from clients import xrdcp
from content import MIB, content, write
from proxy import DOWN, Proxy
from raw import Raw

NOT_FOUND, NOT_AUTHORIZED, INVALID, ARG_INVALID, NO_MEMORY = 3011, 3010, 3006, 3000, 3008
SIZE = 64 * MIB + 4321


@pytest.mark.peer_ok
def test_xrdcp_reads_over_several(node, place, tmp_path):
    source = write(tmp_path / "source", "streams", SIZE)
    xrdcp("--streams", "4", source, f"{node.url}{place}/file").ok()
    with Proxy(node.port) as proxy:
        xrdcp("--streams", "4", f"{proxy.url}{place}/file", tmp_path / "back").ok()
        assert proxy.connections > 4, "the client opened no further connections"
    assert (tmp_path / "back").read_bytes() == source.read_bytes()


def test_a_copy_outlives_the_loss_of_its_connections(node, place, tmp_path):
    source = write(tmp_path / "source", "lost streams", SIZE)
    xrdcp(source, f"{node.url}{place}/file").ok()
    with Proxy(node.port) as proxy:
        proxy.at(DOWN, 20 * MIB, proxy.cut)
        done = xrdcp("--streams", "4", f"{proxy.url}{place}/file", tmp_path / "back")
        assert proxy.cuts >= 1
    # XrdCl 5.5 may give the copy up, or crash; a reported success must be one
    assert done.code != 0 or (tmp_path / "back").read_bytes() == source.read_bytes()
    xrdcp("-f", f"{node.url}{place}/file", tmp_path / "back").ok()


@pytest.fixture
def data() -> bytes:
    return content("bound", 3 * MIB)


@pytest.fixture
def session(node, place, data):
    """A session with an open file of `data`."""
    with Raw(node.port) as main:
        handle = main.open(f"{place}/file", raw.OPEN_NEW)
        assert main.write(handle, 0, data).status == raw.OK
        assert main.close(handle).status == raw.OK
        main.handle = main.open(f"{place}/file")
        yield main


def bind(node, session_id: bytes) -> tuple[Raw, raw.Answer]:
    further = Raw(node.port, login=False)
    further.handshake()
    return further, further.request(raw.BIND, session_id)


def read_on(main: Raw, path_id: int, offset: int, length: int) -> bytes:
    return main.send(raw.READ, main.handle + struct.pack(">qi", offset, length), bytes([path_id]) + b"\0" * 7)


def whole_answer(connection: Raw, stream: bytes) -> bytes:
    got = b""
    while True:
        part = connection.receive()
        assert part.stream == stream and part.status in (raw.OK, raw.OKSOFAR), part
        got += part.body
        if part.status == raw.OK:
            return got


def test_answers_come_on_the_stream_that_was_named(node, session, data):
    bound = [bind(node, session.session) for _ in range(3)]
    assert [answer.body for _, answer in bound] == [b"\1", b"\2", b"\3"]
    streams = [read_on(session, path_id, path_id * 1000, MIB) for path_id in (1, 2, 3)]
    small = read_on(session, 2, 7, 10)
    assert session.stat("/").status == raw.OK, "the session's own connection goes on meanwhile"
    for path_id, (connection, _), stream in zip((1, 2, 3), bound, streams, strict=True):
        assert whole_answer(connection, stream) == data[path_id * 1000 : path_id * 1000 + MIB]
    assert whole_answer(bound[1][0], small) == data[7:17]
    vector = b"".join(session.handle + struct.pack(">iq", 100, at) for at in (5, 50_000))
    stream = session.send(raw.READV, b"\0" * 15 + b"\1", vector)
    answer = whole_answer(bound[0][0], stream)
    assert answer[16:116] == data[5:105] and answer[132:232] == data[50_000:50_100]
    # an error goes there as well
    session.handle = b"\7\7\7\7"
    stream = read_on(session, 3, 0, 10)
    assert bound[2][0].receive().error == raw.FILE_NOT_OPEN
    for connection, _ in bound:
        connection.socket.close()


def test_a_stream_that_is_not_there(node, session, data):
    read_on(session, 1, 0, 10)
    assert session.receive().error == ARG_INVALID
    further, _ = bind(node, session.session)
    further.socket.close()
    gone, asked = False, []
    for _ in range(100):
        asked.append(read_on(session, 1, 0, 10))
        session.socket.settimeout(0.2)
        try:
            answer = session.receive()
        except TimeoutError:
            continue  # it went to the stream that has just been closed, or its answer is late
        assert answer.stream in asked and answer.error == ARG_INVALID
        gone = True
        break
    session.socket.settimeout(15)
    assert gone, "the closed stream is never forgotten"
    # and its number is free again
    again, answer = bind(node, session.session)
    assert answer.body == b"\1"
    assert whole_answer(again, read_on(session, 1, 0, 10)) == data[:10]
    again.socket.close()


def test_what_cannot_be_bound(node, session):
    assert bind(node, b"\0" * 16)[1].error == NOT_FOUND
    stolen = session.session[:8] + bytes(8)
    assert bind(node, stolen)[1].error == NOT_FOUND, "a number alone is no session"
    with Raw(node.port) as other:
        assert other.request(raw.BIND, session.session).error == INVALID
        assert other.stat("/").status == raw.OK
    bound = [bind(node, session.session) for _ in range(16)]
    assert [answer.error for _, answer in bound] == [None] * 15 + [NO_MEMORY]
    for connection, _ in bound:
        connection.socket.close()


def test_streams_end_with_their_session(node, session):
    further, _ = bind(node, session.session)
    session.socket.close()
    with pytest.raises(raw.Closed):
        further.receive()


def test_a_stream_that_takes_nothing_holds_nobody_else_up(node, session, data):
    stuck, _ = bind(node, session.session)
    lively, _ = bind(node, session.session)
    for _ in range(20):
        read_on(session, 1, 0, 3 * MIB)
    assert whole_answer(lively, read_on(session, 2, 0, 100)) == data[:100]
    assert session.stat("/").status == raw.OK
    stuck.socket.close()
