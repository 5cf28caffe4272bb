"""A read at the end of a file that is being written waits at the server until there is more."""

import struct
import threading
import time

import pytest
import raw
from content import content
from harness import Weir
from raw import Raw

WAITRESP, ATTN = 4006, 4001
LONG, SHORT = 5, 1  # seconds that a read may wait


@pytest.fixture(scope="module")
def server(node_or_manager):
    return node_or_manager


class Opened:
    """A file that is open on a connection of its own."""

    def __init__(self, server, path: str, options: int, words: str = "", pid: int = 1):
        self.connection = Raw(server.port, pid=pid)
        answer = self.connection.ask_open(path + words, options)
        if answer.status == raw.REDIRECT:
            port, host, capability = answer.redirect
            self.connection.socket.close()
            self.connection = Raw(port, host=host, pid=pid)
            separator = "&" if words else "?"
            answer = self.connection.ask_open(f"{path}{words}{separator}{capability}", options)
        assert answer.status == raw.OK, answer
        self.handle = answer.body[:4]

    def write(self, offset: int, data: bytes) -> None:
        assert self.connection.write(self.handle, offset, data).status == raw.OK

    def close(self) -> None:
        assert self.connection.close(self.handle).status == raw.OK
        self.connection.socket.close()

    def send_read(self, offset: int, length: int, seconds: int) -> None:
        arguments = struct.pack(">BB6x", 0, seconds)
        self.stream = self.connection.send(raw.READ, self.handle + struct.pack(">qi", offset, length), arguments)

    def announced(self) -> None:
        """The server says that its answer comes later."""
        answer = self.connection.receive()
        assert answer.status == WAITRESP and 1 <= struct.unpack(">i", answer.body)[0] <= 60, answer

    def late(self) -> raw.Answer:
        """The answer that the server has announced."""
        answer = self.connection.receive()
        assert answer.status == ATTN and answer.body[:4] == struct.pack(">i", 5008), answer
        inner, status, length = struct.unpack(">2sHi", answer.body[8:16])
        assert (inner, length) == (self.stream, len(answer.body) - 16)
        return raw.Answer(inner, status, answer.body[16:])

    def read_when_grown(self, offset: int, length: int, seconds: int) -> tuple[bytes, float]:
        """What comes, and after how many seconds."""
        begin = time.monotonic()
        self.send_read(offset, length, seconds)
        self.announced()
        answer = self.late()
        assert answer.status == raw.OK, answer
        return answer.body, time.monotonic() - begin

    def drop(self) -> None:
        self.connection.socket.close()


def recording(server, name: str, data: bytes) -> Opened:
    """A new file with these bytes, which a follower sees."""
    writer = Opened(server, name, raw.OPEN_NEW)
    writer.write(0, data)
    assert writer.connection.request(raw.SYNC, writer.handle).status == raw.OK
    return writer


def follower(server, name: str) -> Opened:
    return Opened(server, name, raw.OPEN_READ, "?weir.follow=1", pid=2)


def last_bytes(server, reader: Opened, name: str, offset: int) -> bytes:
    """What a read gets that waited for the writer's close. In a cluster the primary's part is over then: it sends its
    readers back to the manager."""
    answer = reader.late()
    if answer.status == raw.OK:
        return answer.body
    assert answer.status == raw.REDIRECT and not isinstance(server, Weir), answer
    again = follower(server, name)
    rest = again.connection.read(again.handle, offset, 1 << 20).body
    again.drop()
    return rest


def test_a_read_is_answered_when_the_file_has_grown(server):
    data = content("grown", 200_000)
    writer = recording(server, "/grown", data[:100_000])
    reader = follower(server, "/grown")
    assert reader.connection.read(reader.handle, 0, 1 << 20).body == data[:100_000]
    timer = threading.Timer(0.5, writer.write, (100_000, data[100_000:]))
    timer.start()
    got, seconds = reader.read_when_grown(100_000, 1 << 20, LONG)
    timer.join()
    # Written after 0.5 s, it becomes durable within a second, and then comes at once.
    assert 0.5 <= seconds < 4.5
    assert len(got) == 4096 and data[100_000:].startswith(got)
    rest = reader.connection.read(reader.handle, 100_000 + len(got), 1 << 20).body
    assert got + rest == data[100_000:]
    reader.drop()
    writer.close()


def test_the_last_bytes_come_with_the_close_and_then_nothing_waits(server):
    data = content("closed", 5000)
    writer = recording(server, "/closed", data[:1000])
    reader = follower(server, "/closed")
    reader.send_read(1000, 1 << 20, LONG)
    reader.announced()
    begin = time.monotonic()
    writer.write(1000, data[1000:])
    writer.close()
    assert last_bytes(server, reader, "/closed", 1000) == data[1000:] and time.monotonic() - begin < 2
    reader.drop()
    reader = follower(server, "/closed")
    begin = time.monotonic()
    reader.send_read(5000, 100, LONG)
    answer = reader.connection.receive()
    assert (answer.status, answer.body) == (raw.OK, b"") and time.monotonic() - begin < 1
    reader.drop()


def test_a_close_that_adds_nothing_ends_the_wait(server):
    writer = recording(server, "/ends", b"x" * 1000)
    reader = follower(server, "/ends")
    reader.send_read(1000, 100, LONG)
    reader.announced()
    begin = time.monotonic()
    writer.close()
    assert last_bytes(server, reader, "/ends", 1000) == b"" and time.monotonic() - begin < 2
    reader.drop()


def test_it_waits_no_longer_than_it_was_asked_to_and_the_connection_works_meanwhile(server):
    writer = recording(server, "/silent", b"x" * 1000)
    reader = follower(server, "/silent")
    reader.send_read(1000, 100, LONG)
    reader.announced()
    assert reader.connection.read(reader.handle, 500, 5000).body == b"x" * 500
    assert reader.late().body == b""
    got, seconds = reader.read_when_grown(1000, 100, SHORT)
    assert got == b"" and 0.9 <= seconds < 4
    # Whatever a client asks for, it hears from the server after five seconds.
    got, seconds = reader.read_when_grown(1000, 100, 255)
    assert got == b"" and 4.5 <= seconds < 10
    reader.drop()
    writer.close()


def test_only_a_read_at_the_end_waits(server):
    writer = recording(server, "/before", b"x" * 1000)
    reader = follower(server, "/before")
    reader.send_read(999, 100, LONG)
    assert reader.connection.receive().body == b"x"
    # Without the extension, the answer comes at once.
    begin = time.monotonic()
    assert reader.connection.read(reader.handle, 1000, 100).body == b"" and time.monotonic() - begin < 0.7
    # The writer itself never waits.
    writer.send_read(1000, 100, LONG)
    answer = writer.connection.receive()
    assert (answer.status, answer.body) == (raw.OK, b"")
    reader.drop()
    writer.close()


def test_many_reads_wait_at_a_time(server):
    writer = recording(server, "/many", b"x" * 1000)
    readers = [follower(server, "/many") for _ in range(20)]
    for reader in readers:
        reader.streams = set()
        for _ in range(10):
            reader.send_read(1000, 100, LONG)
            reader.streams.add(reader.stream)
        for _ in range(10):
            reader.announced()
    # Half of them go away.
    for reader in readers[::2]:
        reader.drop()
    writer.write(1000, b"y" * 50)
    assert writer.connection.request(raw.SYNC, writer.handle).status == raw.OK
    for reader in readers[1::2]:
        answers = {reader.connection.receive().body[8:] for _ in range(10)}
        assert answers == {struct.pack(">2sHi", stream, raw.OK, 50) + b"y" * 50 for stream in reader.streams}
        reader.drop()
    writer.close()
    assert "dropped without an answer" not in server.log_text()


def test_a_removed_file_is_waited_for_no_longer_than_asked(server):
    """Its name is gone, but its writer and its readers still have it open."""
    writer = recording(server, "/away", b"x" * 1000)
    reader = follower(server, "/away")
    reader.send_read(1000, 100, SHORT)
    reader.announced()
    with Raw(server.port, pid=1) as other:
        assert other.request(raw.RM, b"", b"/away").status == raw.OK
    assert reader.late().body == b""
    reader.drop()
    writer.drop()


def test_a_stop_does_not_wait_for_them(tmp_path):
    node = Weir(tmp_path / "node").start()
    recording(node, "/stop", b"x" * 1000)
    reader = follower(node, "/stop")
    reader.send_read(1000, 100, LONG)
    reader.announced()
    begin = time.monotonic()
    node.stop()
    assert time.monotonic() - begin < 4
    log = node.log_text()
    assert "has died" not in log and "dropped without an answer" not in log and "panicked" not in log
