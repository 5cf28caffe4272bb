"""Files without checksums, because an update in place ended without a close. The server reads them when a client asks for one."""

import struct
import time

import pytest
import raw
from clients import Xrdfs
from content import MIB, adler32, content
from harness import until

SIZE = 384 * MIB
BLOCK = 4 * MIB
CHECKSUM = struct.pack(">H14x", 3)
WAITRESP = 4006


@pytest.fixture
def node(own_node):
    return own_node("--grace-seconds", "1")


def without_checksums(node, path: str) -> bytearray:
    """Makes such a file, and returns its contents."""
    data = bytearray(content(path, BLOCK) * (SIZE // BLOCK))
    with raw.Raw(node.port, timeout=60) as there:
        handle = there.open(path, raw.OPEN_NEW | raw.OPEN_UPDATE)
        for offset in range(0, SIZE, BLOCK):
            assert there.write(handle, offset, bytes(data[offset : offset + BLOCK])).status == raw.OK
        assert there.close(handle).status == raw.OK
        handle = there.open(path, raw.OPEN_UPDATE)
        assert there.write(handle, 1000, b"changed").status == raw.OK
    data[1000:1007] = b"changed"
    until(lambda: f"interrupted: its writer went away path={path} " in node.log_text(), 20)
    return data


def test_who_leaves_while_a_file_is_read_for_its_checksum_leaves_it_without(node):
    data = without_checksums(node, "/left")
    with raw.Raw(node.port, timeout=60) as other:
        for delay in (0.005, 0.02, 0.05):
            asker = raw.Raw(node.port)
            asker.send(raw.QUERY, CHECKSUM, b"/left")
            time.sleep(delay)
            # Like a client whose connection was lost: nobody waits for its answers any more.
            assert other.request(raw.ENDSESS, asker.session).status == raw.OK
    assert Xrdfs(node.url)("query", "checksum", "/left").ok().out.split() == ["adler32", adler32(bytes(data))]


def test_a_file_that_is_changed_while_it_is_read_is_not_given_a_checksum_of_both(node):
    data = without_checksums(node, "/both")
    before = adler32(bytes(data))
    asker = raw.Raw(node.port, timeout=60)
    with raw.Raw(node.port, timeout=60) as there:
        asked = asker.send(raw.QUERY, CHECKSUM, b"/both")
        announced = asker.answer(asked)
        assert announced.status == WAITRESP, "so much is read that the answer is announced first"
        time.sleep(0.01)
        handle = there.open("/both", raw.OPEN_UPDATE)
        for offset in (0, SIZE - 1):
            assert there.write(handle, offset, b"x").status == raw.OK
            data[offset : offset + 1] = b"x"
        attention = asker.receive()
        stream, status, length = struct.unpack(">2sHi", attention.body[8:16])
        assert stream == asked
        answer = raw.Answer(stream, status, attention.body[16 : 16 + length])
        if answer.status == raw.ERROR:
            assert "was changed while it was read" in answer.text
        else:
            assert answer.body.split()[1].rstrip(b"\0") == before.encode(), answer
        assert there.close(handle).status == raw.OK
    assert Xrdfs(node.url)("query", "checksum", "/both").ok().out.split()[1] == adler32(bytes(data))
