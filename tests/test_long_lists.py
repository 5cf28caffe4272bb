"""Lists that are longer than the protocol allows: refused with the stock server's numbers, in words of what the list holds."""

import struct

import pytest
import raw
from raw import Closed, Raw

NEW = raw.OPEN_NEW | raw.OPEN_UPDATE
NO_MEMORY = 3008
SEGMENTS_MAX, SEGMENT_MAX = 1024, 2_097_136


@pytest.fixture
def file(node, place):
    with Raw(node.port) as connection:
        handle = connection.open(f"{place}/file", NEW)
        assert connection.write(handle, 0, b"x" * 100).status == raw.OK
        yield connection, handle


def segments(handle: bytes, count: int) -> bytes:
    return (handle + struct.pack(">iq", 1, 0)) * count


@pytest.mark.peer_ok
@pytest.mark.parametrize("count", [SEGMENTS_MAX + 1, 3000])
def test_a_readv_of_too_many_segments(node, file, count):
    connection, handle = file
    answer = connection.request(raw.READV, b"", segments(handle, count))
    assert answer.error == raw.ARG_TOO_LONG
    if node.kind == "weir":
        assert answer.text == f"readv request with {count} segments; {SEGMENTS_MAX} is the limit"
    answer = connection.request(raw.READV, b"", segments(handle, SEGMENTS_MAX))
    assert answer.status == raw.OK and answer.body.count(b"x") == SEGMENTS_MAX, "the connection goes on"


@pytest.mark.peer_ok
def test_a_readv_segment_that_is_too_long(file):
    connection, handle = file
    assert connection.request(raw.READV, b"", handle + struct.pack(">iq", SEGMENT_MAX + 1, 0)).error == NO_MEMORY
    assert connection.request(raw.READV, b"", handle + struct.pack(">iq", -1, 0)).error == raw.ARG_INVALID
    assert connection.read(handle, 0, 10).body == b"x" * 10


@pytest.mark.peer_ok
def test_a_writev_of_too_many_segments_ends_the_connection(node, file, place):
    """Its data follows the list, and the server cannot know how much."""
    connection, handle = file
    count = SEGMENTS_MAX + 1
    answer = connection.request(raw.WRITEV, b"", segments(handle, count) + b"y" * count, length=16 * count)
    assert answer.error == raw.ARG_TOO_LONG
    if node.kind == "weir":
        assert f"{count} segments" in answer.text
    with pytest.raises(Closed):
        connection.request(raw.PING)
    with Raw(node.port) as again:
        assert again.request(raw.PING).status == raw.OK


def test_a_clone_of_too_many_ranges(file):
    connection, handle = file
    answer = connection.request(raw.CLONE, handle, (handle + struct.pack(">4xQQQ", 0, 1, 200)) * 2000)
    assert answer.error == raw.ARG_TOO_LONG and answer.text == "clone request with 2000 ranges; 1024 is the limit"
    assert connection.read(handle, 0, 10).body == b"x" * 10, "the connection goes on"
