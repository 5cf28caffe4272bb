"""Limited resources: descriptors, connections, memory of writers."""

import os
import re
import struct
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
import raw
from clients import Xrdfs, xrdcp
from content import KIB, MIB, content, write
from harness import Weir
from raw import Closed, Raw

WITHOUT_RECENT = True

OVERLOADED = 3024
NO_MEMORY = 3008


class Poor(Weir):
    """A node that the system allows 256 descriptors."""

    def command(self) -> list[str]:
        return ["prlimit", "--nofile=256:256", *super().command()]


def test_few_descriptors_bound_connections_and_files(base, tmp_path):
    with Poor(base / "poor") as server:
        told = re.search(r"the system allows 256 open files: (\d+) connections instead of \d+, (\d+) files", server.log_text())
        assert told, server.log_text()
        connections, files = map(int, told.groups())
        assert connections + 3 * files < 256
        with ExitStack() as stack:
            # One machine gets half of them; an open file keeps its connection.
            held, refused, handles = [], 0, 0
            for number in range(connections):
                try:
                    one = stack.enter_context(Raw(server.port, timeout=60))
                except (Closed, AssertionError):
                    refused += 1
                    continue
                held.append(one)
                answer = one.request(raw.OPEN, struct.pack(">HH12x", 0o644, raw.OPEN_NEW | raw.OPEN_UPDATE), f"/f{number}".encode())
                assert answer.status in (raw.OK, 4005), answer  # 4005: wait
                if answer.status == raw.OK:
                    handles += 1
                    assert one.write(answer.body[:4], 0, bytes(100 * KIB)).status == raw.OK
            assert handles >= 8 and refused >= 1
            assert "open files (" not in server.log_text() and "os error 24" not in server.log_text(), "out of descriptors"
        source = write(tmp_path / "source", "after", 3 * MIB)
        copied = xrdcp("-f", source, f"{server.url}/after")
        copied.ok()
        assert Xrdfs(server.url).size("/after") == 3 * MIB


def test_ten_thousand_open_files(own_node):
    """One machine asks for ten thousand and gets its share. Another one is served at once, memory hardly grows, and all is free again
    afterwards."""
    server = own_node()
    with Raw(server.port) as me:
        for number in range(100):
            handle = me.open(f"/f{number}", raw.OPEN_NEW | raw.OPEN_UPDATE)
            assert me.write(handle, 0, bytes(100 * KIB)).status == raw.OK and me.close(handle).status == raw.OK
    before = server.rss_bytes()
    descriptors = len(os.listdir(f"/proc/{server.pid}/fd"))
    with ExitStack() as stack:
        opened, refused = 0, []
        for _ in range(4):
            me = stack.enter_context(Raw(server.port, machine="127.0.0.2"))
            frames = [me.frame(raw.OPEN, struct.pack(">HH12x", 0, raw.OPEN_READ), f"/f{number % 100}".encode()) for number in range(2500)]
            me.socket.sendall(b"".join(frames))
            answers = [me.receive() for _ in frames]
            opened += sum(answer.status == raw.OK for answer in answers)
            refused += [answer for answer in answers if answer.status != raw.OK]
        assert opened >= 1000 and opened + len(refused) == 10_000
        assert all(answer.status == 4005 or answer.error == NO_MEMORY for answer in refused), refused[0]
        assert all(answer.body[4:].strip() for answer in refused), "a refusal without words"
        with Raw(server.port) as other:
            begin = time.monotonic()
            assert other.read(other.open("/f7"), 0, 200 * KIB).body == bytes(100 * KIB)
            assert time.monotonic() - begin < 2
        assert server.rss_bytes() - before < 64 * MIB
    end = time.monotonic() + 10
    while len(os.listdir(f"/proc/{server.pid}/fd")) > descriptors:
        assert time.monotonic() < end, "files of clients who have gone stay open"
        time.sleep(0.1)
    with Raw(server.port, machine="127.0.0.2") as me:
        me.open("/f1")


def high_water(pid: int) -> int:
    """The peak memory of a process, in bytes."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", text).group(1)) * KIB


def test_two_hundred_writers_in_little_memory(own_node):
    """Each writes a megabyte in odd parts, so that the server must hold partial pages for all of them."""
    server = own_node()
    wrong = []

    def one(number: int) -> None:
        data = content(f"writer {number}", MIB)
        try:
            with Raw(server.port, timeout=300) as me:
                handle = me.open(f"/w{number}", raw.OPEN_NEW | raw.OPEN_UPDATE)
                ready.wait(300)
                for start in (7 * KIB + 1, 0):  # every second part first, then those between
                    for offset in range(start, MIB, 14 * KIB + 2):
                        answer = me.write(handle, offset, data[offset : offset + 7 * KIB + 1])
                        assert answer.status == raw.OK, answer
                assert me.close(handle).status == raw.OK
        except Exception as trouble:
            wrong.append((number, trouble))
            ready.abort()

    ready = threading.Barrier(200)
    threads = [threading.Thread(target=one, args=(number,)) for number in range(200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[:3]
    assert high_water(server.pid) < 512 * MIB
    with Raw(server.port) as me:
        for number in (0, 77, 199):
            assert me.read(me.open(f"/w{number}"), 0, MIB).body == content(f"writer {number}", MIB)


@pytest.mark.parametrize("announced", [100, None], ids=["small", "unknown"])
def test_writers_beyond_the_memory_are_told_to_wait(own_node, tmp_path, announced):
    config = tmp_path / "weir.toml"
    config.write_text('[limits]\nwriters_memory = "3MiB"\n')
    server = own_node("--config", str(config))
    opaque = f"?oss.asize={announced}" if announced else ""
    with Raw(server.port) as me:
        opened = []
        for number in range(60):
            answer = me.request(raw.OPEN, struct.pack(">HH12x", 0o644, raw.OPEN_NEW | raw.OPEN_UPDATE), f"/f{number}{opaque}".encode())
            if answer.status != raw.OK:
                assert answer.status == 4005 and b"memory" in answer.body
                break
            opened.append(answer.body[:4])
        assert len(opened) == (24 if announced else 4), "one machine gets half"
        for handle in opened:
            assert me.write(handle, 0, bytes(announced or 10)).status == raw.OK
            assert me.close(handle).status == raw.OK
        source = write(tmp_path / "source", "waits", MIB)
        xrdcp(source, f"{server.url}/after").ok()
