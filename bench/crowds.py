"""Crowds of clients, and the most memory that the server has had under each."""

import re
import resource
import struct
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import raw  # noqa: E402
from harness import Server  # noqa: E402
from raw import Raw  # noqa: E402

KIB, MIB = 1 << 10, 1 << 20


def allow_descriptors(count: int = 8192) -> None:
    """For so many sockets of our own."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, count), hard))


def high_water(server: Server) -> int:
    """The most memory that it has ever had, in bytes."""
    text = Path(f"/proc/{server.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", text).group(1)) * KIB


def make(server: Server, path: str, size: int) -> None:
    with Raw(server.port, timeout=60) as me:
        handle = me.open(path, raw.OPEN_NEW | raw.OPEN_UPDATE)
        for offset in range(0, size, 8 * MIB):
            assert me.write(handle, offset, bytes(min(8 * MIB, size - offset))).status == raw.OK
        assert me.close(handle).status == raw.OK


def idle(server: Server, count: int = 1000) -> int:
    """Connections that have logged in, asked for something, and are silent then."""
    allow_descriptors()
    with ExitStack() as stack:
        everybody = [stack.enter_context(Raw(server.port)) for _ in range(count)]
        for me in everybody:
            assert me.stat("/").status == raw.OK
        time.sleep(2)
        assert all(me.stat("/").status == raw.OK for me in everybody[:: count // 10])
        return high_water(server)


def writers(server: Server, count: int = 200, size: int = 16 * MIB) -> int:
    """Connections that all write large files at the same time."""
    allow_descriptors()
    wrong: list[Exception] = []
    data = bytes(range(256)) * (8 * MIB // 256)
    together = threading.Barrier(count)

    def one(number: int) -> None:
        try:
            with Raw(server.port, timeout=300) as me:
                handle = me.open(f"/writer-{number}", raw.OPEN_NEW | raw.OPEN_UPDATE)
                together.wait(120)
                for offset in range(0, size, len(data)):
                    assert me.write(handle, offset, data).status == raw.OK
                assert me.close(handle).status == raw.OK
        except Exception as trouble:
            wrong.append(trouble)
            together.abort()

    threads = [threading.Thread(target=one, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[:3]
    return high_water(server)


def slow_readers(server: Server, count: int = 200, size: int = 1024 * MIB) -> int:
    """Each asks for four times the file and takes a little now and then; somebody else is served at once."""
    allow_descriptors()
    make(server, "/large", size)
    with ExitStack() as stack:
        readers = []
        for _ in range(count):
            me = stack.enter_context(Raw(server.port))
            handle = me.open("/large")
            me.socket.sendall(b"".join(me.frame(raw.READ, handle + struct.pack(">qi", 0, size)) for _ in range(4)))
            readers.append(me)
        for _ in range(5):
            for me in readers:
                me.exactly(4 * KIB)
            time.sleep(0.5)
        with Raw(server.port) as other:
            begin = time.monotonic()
            assert len(other.read(other.open("/large"), 0, 8 * MIB).body) == 8 * MIB
            assert time.monotonic() - begin < 3, "others wait for the slow ones"
        return high_water(server)


MEASURES: dict[str, Callable[[Server], int]] = {"idle-memory": idle, "writers-memory": writers, "readers-memory": slow_readers}
