#!/usr/bin/env python3
"""
One user with one stream beside one user with many: what is left of the single stream's rate.

    bench/fairness.py root://HOST:PORT/ [--streams 200] [--seconds 10] [--only read|write]

Each stream keeps four requests of 8 MiB under way, as xrdcp does. Prints one JSON object for reads and one for writes. Both users
run on this machine: a part of what the single stream loses goes to the other user's clients, not to the server.
"""

import argparse
import json
import multiprocessing
import struct
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlparse

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import raw  # noqa: E402
from raw import Raw  # noqa: E402

CHUNK, IN_FLIGHT = 8 << 20, 4
FILE = 256 << 20  # a writer begins a new file after so much, and removes the old one
PROCESSES = 8
MIB = 1 << 20


class User(Raw):
    """A connection that logs in under a name of its own."""

    def __init__(self, port: int, name: str, pid: int):
        super().__init__(port, login=False, timeout=120)
        self.handshake()
        answer = self.request(raw.LOGIN, struct.pack(">i8sBBBB", pid, name.encode(), 0, 0, 5, 0))
        assert answer.status == raw.OK, answer
        self.scratch = bytearray(MIB)

    def opened(self, path: str, options: int) -> bytes:
        """Asks again when it is told to wait, as stock clients do."""
        while True:
            answer = self.request(raw.OPEN, struct.pack(">HH12x", 0o644, options), path.encode())
            if answer.status == raw.OK:
                return answer.body[:4]
            assert answer.status == 4005, answer
            time.sleep(struct.unpack(">i", answer.body[:4])[0])

    def take(self, count: int) -> None:
        """Receives so many bytes and forgets them."""
        while count:
            count -= self.socket.recv_into(self.scratch, min(count, MIB)) or sys.exit("the server has ended the connection")

    def take_answer(self) -> None:
        while True:
            _, status, length = struct.unpack(">2sHi", self.exactly(8))
            assert status in (raw.OK, raw.OKSOFAR), (status, self.exactly(length))
            self.take(length)
            if status == raw.OK:
                return


class Stream(threading.Thread):
    """Reads or writes until it is told to stop, and counts the bytes that were answered for."""

    def __init__(self, port: int, user: str, number: int, kind: str, stop):
        super().__init__(daemon=True)
        self.port, self.user, self.number, self.kind, self.stop = port, user, number, kind, stop
        self.moved = 0
        self.trouble: Exception | None = None

    def run(self) -> None:
        try:
            with User(self.port, self.user, 1000 + self.number) as me:
                (self.read if self.kind == "read" else self.write)(me)
        except Exception as trouble:
            self.trouble = trouble

    def read(self, me: User) -> None:
        handle = me.opened("/fairness-read", raw.OPEN_READ)
        sent = 0
        while not self.stop.is_set():
            while sent < IN_FLIGHT:
                me.send(raw.READ, handle + struct.pack(">qi", (sent % 8) * CHUNK, CHUNK))
                sent += 1
            me.take_answer()
            self.moved += CHUNK
            sent -= 1

    def write(self, me: User) -> None:
        data = memoryview(bytes(range(256)) * (CHUNK // 256))
        path = f"/fairness-{self.user}-{self.number}"
        while not self.stop.is_set():
            handle = me.opened(path, raw.OPEN_DELETE | raw.OPEN_UPDATE)
            offset = waiting = 0
            while offset < FILE and not self.stop.is_set():
                me.send(raw.WRITE, handle + struct.pack(">q4x", offset), length=CHUNK)
                me.socket.sendall(data)
                offset += CHUNK
                waiting += 1
                if waiting == IN_FLIGHT:
                    me.take_answer()
                    self.moved += CHUNK
                    waiting -= 1
            for _ in range(waiting):
                me.take_answer()
                self.moved += CHUNK
            me.close(handle)
            me.request(raw.RM, b"", path.encode())


def crowd(port: int, user: str, numbers: range, kind: str, stop, moved) -> None:
    streams = [Stream(port, user, number, kind, stop) for number in numbers]
    for stream in streams:
        stream.start()
    while not stop.is_set():
        moved.value = sum(stream.moved for stream in streams)
        time.sleep(0.05)
    for stream in streams:
        stream.join(60)
    troubles = [stream.trouble for stream in streams if stream.trouble]
    if troubles:
        sys.exit(f"{user}: {troubles[0]!r}, {len(troubles)} in all")


class Crowd:
    """Streams of one user, in processes of their own."""

    def __init__(self, port: int, user: str, streams: int, kind: str):
        self.stop = multiprocessing.Event()
        processes = min(PROCESSES, streams)
        self.moved = [multiprocessing.Value("q", 0) for _ in range(processes)]
        self.processes = [
            multiprocessing.Process(target=crowd, args=(port, user, range(number, streams, processes), kind, self.stop, self.moved[number]))
            for number in range(processes)
        ]
        for process in self.processes:
            process.start()

    def total(self) -> int:
        return sum(moved.value for moved in self.moved)

    def end(self) -> None:
        self.stop.set()
        for process in self.processes:
            process.join(90)
            if process.exitcode != 0:
                raise SystemExit(f"a load process ended with {process.exitcode}")


def rates(seconds: float, *crowds: Crowd) -> list[float]:
    """MB/s of each, after a second to begin."""
    time.sleep(1.5)
    begin, before = time.monotonic(), [crowd.total() for crowd in crowds]
    time.sleep(seconds)
    took = time.monotonic() - begin
    return [(crowd.total() - was) / took / 1e6 for crowd, was in zip(crowds, before, strict=True)]


def prepare(port: int) -> None:
    with User(port, "prepare", 1) as me:
        handle = me.opened("/fairness-read", raw.OPEN_DELETE | raw.OPEN_UPDATE)
        for offset in range(0, 8 * CHUNK, CHUNK):
            assert me.write(handle, offset, bytes([offset // CHUNK]) * CHUNK).status == raw.OK
        assert me.close(handle).status == raw.OK


def measure(port: int, kind: str, streams: int, seconds: float) -> dict:
    """The single stream alone, then beside the many."""
    if kind == "read":
        prepare(port)
    one = Crowd(port, "single", 1, kind)
    alone = rates(seconds, one)[0]
    many = Crowd(port, "crowd", streams, kind)
    time.sleep(2)
    beside, crowds = rates(seconds, one, many)
    one.end()
    many.end()
    return {
        "kind": kind,
        "streams": streams,
        "alone_mb_per_second": round(alone, 1),
        "beside_mb_per_second": round(beside, 1),
        "crowd_mb_per_second": round(crowds, 1),
        "share": round(beside / alone, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--only", choices=["read", "write"])
    options = parser.parse_args()
    port = urlparse(options.url).port or 1094
    for kind in [options.only] if options.only else ["read", "write"]:
        print(json.dumps(measure(port, kind, options.streams, options.seconds)), flush=True)


if __name__ == "__main__":
    main()
