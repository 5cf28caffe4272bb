"""Measures the node's full speed: short slices of each kind of work in turn, each beside a slice of the yardstick. The result is the median
of the slices' ratios, which does not depend on other load of the machine."""

import struct
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median

import raw
from harness import Server
from raw import Raw

from soak.ledger import Content
from soak.load import STILL, STILL_BYTES, Load
from soak.yardstick import Yardstick

BATCH = 200
READ_BYTES = 4096
WRITERS, FILES_EACH, FILE_BYTES = 16, 16, 4096
SLICE_SECONDS = 0.4


def written_bytes(server: Server) -> int:
    """Bytes that the process has sent to the disk."""
    text = Path(f"/proc/{server.pid}/io").read_text()
    return int(text.split("write_bytes: ")[1].split()[0])


class Bursts:
    def __init__(self, server: Server, load: Load, yardstick: Yardstick):
        self.server, self.load, self.yardstick = server, load, yardstick
        self.number = 0

    def measure(self, seconds: float) -> dict[str, float]:
        """Operations a second, the same as multiples of the yardstick's, and the server's cost of each."""
        self.reader, self.echo = Raw(self.server.port, timeout=60), self.yardstick.connect()
        self.writers = [Raw(self.server.port, timeout=60) for _ in range(WRITERS)]
        self.handle = self.reader.open("/still/large")
        kinds: dict[str, tuple[Callable[[], int], str]] = {
            "stat": (self.stats, "echo"),
            "read": (self.reads, "long echo"),
            "create": (self.creates, "sync"),
        }
        rates: dict[str, list[float]] = defaultdict(list)
        operations: dict[str, int] = defaultdict(int)
        cpu: dict[str, float] = defaultdict(float)
        written = echoes = 0
        echo_cpu = 0.0
        end = time.monotonic() + seconds
        try:
            while time.monotonic() < end:
                cpu_before = self.yardstick.cpu_seconds()
                count, echo_rate = self.slice(self.echoes)
                echo_cpu, echoes = echo_cpu + self.yardstick.cpu_seconds() - cpu_before, echoes + count
                yard = {"echo": echo_rate, "long echo": self.slice(self.long_echoes)[1], "sync": self.slice(self.syncs)[1]}
                for kind, (work, measure) in kinds.items():
                    cpu_before, bytes_before = self.server.cpu_seconds(), written_bytes(self.server)
                    count, rate = self.slice(work)
                    operations[kind] += count
                    cpu[kind] += self.server.cpu_seconds() - cpu_before
                    if kind == "create":
                        written += written_bytes(self.server) - bytes_before
                    rates[kind].append(rate)
                    rates[f"{kind} relative"].append(rate / yard[measure])
                for kind, rate in yard.items():
                    rates[kind].append(rate)
        finally:
            for one in (self.reader.socket, self.echo.socket, *(writer.socket for writer in self.writers)):
                one.close()
        figures = {f"{kind} rate": median(values) for kind, values in rates.items()}
        figures |= {f"{kind} cpu us": cpu[kind] / operations[kind] * 1e6 for kind in kinds}
        figures["echo cpu us"] = max(echo_cpu, 0.01) / echoes * 1e6
        figures |= {f"{kind} cpu": figures[f"{kind} cpu us"] / figures["echo cpu us"] for kind in kinds}
        figures["create written KiB"] = written / operations["create"] / 1024
        return figures

    @staticmethod
    def slice(work: Callable[[], int]) -> tuple[int, float]:
        """The operations of one slice, and operations a second."""
        begin, count = time.monotonic(), 0
        while (took := time.monotonic() - begin) < SLICE_SECONDS:
            count += work()
        return count, count / took

    def echoes(self) -> int:
        self.yardstick.echo(self.echo, BATCH)
        return BATCH

    def long_echoes(self) -> int:
        self.yardstick.echo(self.echo, BATCH, READ_BYTES)
        return BATCH

    def syncs(self) -> int:
        self.yardstick.sync()
        return 1

    def stats(self) -> int:
        frames = [Raw.frame(raw.STAT, data=f"/still/{number % STILL}".encode()) for number in range(BATCH)]
        self.reader.socket.sendall(b"".join(frames))
        for _ in range(BATCH):
            answer = self.reader.receive()
            assert answer.status == raw.OK and int(answer.body.split()[1]) == STILL_BYTES, answer
        return BATCH

    def reads(self) -> int:
        place = [self.handle + struct.pack(">qi", number * 40960, READ_BYTES) for number in range(BATCH)]
        self.reader.socket.sendall(b"".join(Raw.frame(raw.READ, one) for one in place))
        for _ in range(BATCH):
            answer = self.reader.receive()
            assert answer.status == raw.OK and len(answer.body) == READ_BYTES, answer
        return BATCH

    def creates(self) -> int:
        """Each of the writers replaces a file of 4 KiB. They work in step, so that they share the journal's syncs as real ones do."""
        self.number += 1
        data = struct.pack(">Q", self.number) * (FILE_BYTES // 8)
        names = [f"/burst/{number}-{self.number % FILES_EACH}" for number in range(WRITERS)]
        options = raw.OPEN_DELETE | raw.OPEN_UPDATE | 0x100
        for writer, name in zip(self.writers, names, strict=True):
            self.load.ledger.about_to(name, Content.of(data))
            writer.send(raw.OPEN, struct.pack(">HH12x", 0o644, options), f"{name}?oss.asize={FILE_BYTES}".encode())
        handles = []
        for writer in self.writers:
            answer = writer.receive()
            assert answer.status == raw.OK, answer
            handles.append(answer.body[:4])
        for writer, handle in zip(self.writers, handles, strict=True):
            writer.send(raw.WRITE, handle + bytes(12), data)
            writer.send(raw.CLOSE, handle)
        for writer, name in zip(self.writers, names, strict=True):
            for _ in range(2):
                answer = writer.receive()
                assert answer.status == raw.OK, answer
            self.load.ledger.done(name)
        return WRITERS
