"""The load of ordinary clients. Small operations have fixed times (open loop): each is due at its time whether or not the previous one is
done, and its latency counts from then. Whole files are copied by stock clients, by `weir cp`, and from server to server."""

import random
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from pathlib import Path

from clients import STUBBORN, environment
from content import KIB, MIB
from harness import WEIR_BIN, Server

from soak.client import LOST, NO_SPACE, Client, Refused
from soak.ledger import Content, Ledger
from soak.report import say
from soak.yardstick import Yardstick

NAMES = 400  # small files that are rewritten again and again
STILL, STILL_BYTES = 200, 16 * KIB  # files that never change
LARGE_BYTES = 64 * MIB
SIZES = [0, 1, 100, 4 * KIB, 4 * KIB, 5000, 16 * KIB, 60 * KIB, 70_000, 256 * KIB]
POOL_SIZES = [300 * KIB, MIB, 3 * MIB, 8 * MIB + 1, 16 * MIB]
BIG_NAMES = 12
# A worker that is this late starts over. Operations that were due by then count as having waited until now.
LATE_SECONDS = 1.0
# Longest time of an operation, and longest time while the disk is full. Nothing is asked of a killed node.
STALL_SECONDS = 10.0
ENOUGH_SECONDS = 30.0
# The yardstick explains a stall of the node if it stood still for this share of it, at the same time.
YARD_SHARE = 0.5
WRITERS = ("write", "write large", "remove")
PROBLEMS_SHOWN = 100
COPY_SECONDS = 150


class Gate:
    """Workers pass it before each piece of work, and wait there while it is closed."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.closed = True
        self.ending = False
        self.opened = time.monotonic()
        self.workers = self.waiting = 0

    def passed(self) -> bool:
        """Waits while it is closed. False: the run must end."""
        with self.changed:
            self.waiting += 1
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.ending or not self.closed)
            self.waiting -= 1
            return not self.ending

    def open(self) -> None:
        with self.changed:
            self.closed = False
            self.opened = time.monotonic()
            self.changed.notify_all()

    def close(self, patience: float = 180) -> None:
        """Closes it, and waits until all workers have finished their operation."""
        with self.changed:
            self.closed = True
            if not self.changed.wait_for(lambda: self.waiting >= self.workers, patience):
                raise AssertionError(f"{self.workers - self.waiting} clients still wait for an answer after {patience:.0f} s")

    def end(self) -> None:
        with self.changed:
            self.ending = True
            self.changed.notify_all()


@dataclass(frozen=True)
class Stall:
    """A very slow operation, or a very slow yardstick."""

    kind: str
    begin: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.begin

    def explains(self, other: "Stall") -> bool:
        """Whether the machine stood still, or its disk did during a write."""
        fits = self.kind == "echo" or other.kind in WRITERS
        return fits and min(self.end, other.end) - max(self.begin, other.begin) >= YARD_SHARE * other.seconds


class Journal:
    """Failures without an explanation, and the durations of operations."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.excuses: set[str] = set()
        self.problems: list[str] = []
        self.samples: dict[str, list[float]] = defaultdict(list)
        self.stalls: list[Stall] = []
        self.yard: list[Stall] = []
        self.refused_for_space = self.lost = self.transfers = 0

    def problem(self, text: str) -> None:
        with self.lock:
            self.problems.append(f"{time.strftime('%H:%M:%S')} {text}")
        if len(self.problems) <= PROBLEMS_SHOWN:
            say(f"PROBLEM {text}")

    def failed(self, kind: str, error: Exception | str) -> None:
        """Records a failed operation. It is excused while the node is killed, or if its disk is full and that is the reason."""
        no_space = getattr(error, "number", None) == NO_SPACE or "space" in str(error).lower()
        if no_space and self.excuses & {"full", "kill"}:
            self.refused_for_space += 1
        elif "kill" in self.excuses:
            self.lost += 1
        else:
            self.problem(f"{kind} failed: {error!r}")

    def patience(self) -> float:
        """The time that an operation may take now."""
        if "kill" in self.excuses:
            return inf
        return ENOUGH_SECONDS if "full" in self.excuses else STALL_SECONDS

    def took(self, kind: str, seconds: float, patience: float = 0) -> None:
        """`patience`: the limit when it began."""
        now = time.monotonic()
        with self.lock:
            self.samples[kind].append(seconds)
            if kind in ("echo", "sync"):
                if seconds > LATE_SECONDS:
                    self.yard.append(Stall(kind, now - seconds, now))
            elif seconds > max(patience, self.patience()):
                self.stalls.append(Stall(kind, now - seconds, now))

    def waited(self, kind: str, seconds: float) -> None:
        """Records an overdue operation that never started, because the previous one had not ended."""
        with self.lock:
            self.samples[kind].append(seconds)

    def judge_stalls(self) -> None:
        """Called when nothing is in progress, so that the yardstick has also reported its times."""
        with self.lock:
            stalls, yard, self.stalls, self.yard = self.stalls, self.yard, [], []
        for stall in stalls:
            if not any(one.explains(stall) for one in yard):
                self.problem(f"{stall.kind} took {stall.seconds:.1f} s, and the machine did not stand still")

    def take(self) -> dict[str, list[float]]:
        """The times since the last call."""
        with self.lock:
            taken, self.samples = self.samples, defaultdict(list)
            return taken


class Worker(threading.Thread):
    """Does `work` at fixed times until the gate ends. `work` returns its kind, or None if it does not count."""

    def __init__(self, kind: str, per_second: float, work: Callable[[], str | None], gate: Gate, journal: Journal):
        super().__init__(daemon=True, name=kind)
        self.kind, self.interval, self.work, self.gate, self.journal = kind, 1 / per_second, work, gate, journal
        gate.workers += 1

    def run(self) -> None:
        due = time.monotonic()
        while self.gate.passed():
            due = max(due, self.gate.opened)  # nothing is due while it is closed
            now = time.monotonic()
            if now < due:
                time.sleep(min(due - now, 0.5))
                if due - now > 0.5:
                    continue  # so that the gate need not wait
            patience = self.journal.patience()
            try:
                kind = self.work()
                ended = time.monotonic()
                if kind:
                    self.journal.took(kind, ended - due, patience)
                due += self.interval
                # Without these, a stalled node would get the fewest requests during the stall, and look good.
                while ended - due > LATE_SECONDS:
                    if kind:
                        self.journal.waited(kind, ended - due)
                    due += self.interval
            except Exception as trouble:
                if isinstance(trouble, (Refused, *LOST)):
                    self.journal.failed(self.kind, trouble)
                else:
                    self.journal.problem(f"{self.kind}: {trouble!r}")
                time.sleep(0.1)
                # It is reported already, or excused.
                due = max(due + self.interval, time.monotonic() - LATE_SECONDS)


@dataclass(frozen=True)
class Source:
    path: Path
    content: Content


class Load:
    """The whole load on one node; `other` is the node that files are copied from and to."""

    def __init__(self, server: Server, other: Server, home: Path, yardstick: Yardstick, pick: random.Random, transfer_seconds: float):
        self.server, self.other, self.home, self.pick = server, other, home, pick
        self.ledger, self.journal, self.gate = Ledger(), Journal(), Gate()
        self.still: dict[str, Content] = {}
        self.pool: list[Source] = []
        self.transfer_number = 0
        self.copier: subprocess.Popen | None = None
        self.yardstick, self.echo = yardstick, yardstick.connect()
        clients = {kind: Client(server.port) for kind in ("stat", "read", "write", "list", "readv")}
        self.workers = [
            Worker("stat", 20, lambda: self.stat(clients["stat"]), self.gate, self.journal),
            Worker("read", 10, lambda: self.read(clients["read"]), self.gate, self.journal),
            Worker("write", 10, lambda: self.write(clients["write"]), self.gate, self.journal),
            Worker("list", 2, lambda: self.list(clients["list"]), self.gate, self.journal),
            Worker("readv", 2, lambda: self.readv(clients["readv"]), self.gate, self.journal),
            Worker("echo", 20, self.yard_echo, self.gate, self.journal),
            Worker("sync", 10, self.yard_sync, self.gate, self.journal),
            Worker("transfer", 1 / transfer_seconds, self.transfer, self.gate, self.journal),
        ]

    def populate(self) -> None:
        """Makes the initial files."""
        client, make = Client(self.server.port), random.Random(f"soak {self.pick.random()}").randbytes
        for name in [f"/still/{number}" for number in range(STILL)] + ["/still/large"]:
            self.put(client, name, make(LARGE_BYTES if name.endswith("large") else STILL_BYTES))
            self.still[name] = self.ledger.promises[name].stands
        for number in range(NAMES):
            self.put(client, f"/small/{number}", make(self.pick.choice(SIZES)))
        folder = self.home / "pool"
        folder.mkdir()
        copier = Client(self.other.port)
        for number, size in enumerate(POOL_SIZES):
            data = make(size)
            (folder / str(number)).write_bytes(data)
            self.pool.append(Source(folder / str(number), Content.of(data)))
            copier.put(f"/pool/{number}", data)
        client.close()
        copier.close()

    def start(self) -> None:
        for worker in self.workers:
            worker.start()

    def put(self, client: Client, name: str, data: bytes) -> None:
        self.ledger.about_to(name, Content.of(data))
        client.put(name, data)
        self.ledger.done(name)

    def remove(self, client: Client, name: str) -> None:
        self.ledger.about_to(name, None)
        client.remove(name)
        self.ledger.done(name)

    # Small operations.

    def stat(self, client: Client) -> str:
        size = int(client.stat(f"/still/{self.pick.randrange(STILL)}").split()[1])
        if size != STILL_BYTES:
            self.journal.problem(f"a file of {STILL_BYTES} bytes has {size}")
        return "stat"

    def read(self, client: Client) -> str:
        name = f"/still/{self.pick.randrange(STILL)}"
        if Content.of(client.read(name, 0, STILL_BYTES)) != self.still[name]:
            self.journal.problem(f"{name} reads as something else")
        return "read"

    def write(self, client: Client) -> str:
        name = f"/small/{self.pick.randrange(NAMES)}"
        if self.pick.random() < 0.1 and self.ledger.promises[name].stands and not self.ledger.promises[name].perhaps:
            self.remove(client, name)
            return "remove"
        size = self.pick.choice(SIZES)
        self.put(client, name, self.pick.randbytes(size))
        return "write" if size <= 64 * KIB else "write large"

    def list(self, client: Client) -> str:
        if client.names("/still") != STILL + 1:
            self.journal.problem("a listing of another length")
        return "list"

    def readv(self, client: Client) -> str:
        client.readv("/still/large", [(self.pick.randrange(LARGE_BYTES - 8192), 8192) for _ in range(64)])
        return "readv"

    def yard_echo(self) -> str:
        self.yardstick.echo(self.echo)
        return "echo"

    def yard_sync(self) -> str:
        self.yardstick.sync()
        return "sync"

    # Whole files.

    def transfer(self) -> None:
        """One copy; the kinds take turns. Only this worker uses its name on the node."""
        self.transfer_number += 1
        kinds = [self.upload, self.download, self.copy_in, self.upload, self.download, self.copy_out]
        kinds[self.transfer_number % len(kinds)](self.transfer_number // len(kinds) % 2 == 0)
        self.journal.transfers += 1

    def run(self, *command: str | Path) -> None:
        arguments = [str(part) for part in command]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        with subprocess.Popen(arguments, text=True, errors="replace", env=environment(STUBBORN), **pipes) as self.copier:
            try:
                said = self.copier.communicate(timeout=COPY_SECONDS)[1]
            except subprocess.TimeoutExpired:
                self.copier.kill()
                raise OSError(f"{Path(command[0]).name} did not end in {COPY_SECONDS} s") from None
        if self.copier.returncode != 0:
            raise OSError(f"{Path(command[0]).name} ended with {self.copier.returncode}: {said.strip()[-300:]}")

    def end(self) -> None:
        """Stops all new work, and cuts off the copy in progress."""
        self.journal.excuses |= {"kill"}
        self.gate.end()
        if self.copier and self.copier.poll() is None:
            self.copier.kill()

    def _put_by(self, name: str, source: Source, *command: str | Path) -> None:
        self.ledger.about_to(name, source.content)
        self.run(*command)
        self.ledger.done(name)

    def upload(self, stock: bool) -> None:
        name, source = f"/big/{self.pick.randrange(BIG_NAMES)}", self.pick.choice(self.pool)
        command = ["xrdcp", "--nopbar", "-f", "-p"] if stock else [WEIR_BIN, "cp", "-f"]
        self._put_by(name, source, *command, source.path, f"{self.server.url}{name}")

    def download(self, stock: bool) -> None:
        names = [name for name in self.ledger.standing() if name.startswith("/big/")]
        if not names:
            return
        name, target = self.pick.choice(names), self.home / "download"
        self.run(*(["xrdcp", "--nopbar", "-f"] if stock else [WEIR_BIN, "cp", "-f"]), f"{self.server.url}{name}", target)
        if Content.of(target.read_bytes()) != self.ledger.promises[name].stands:
            self.journal.problem(f"{name} was copied out as something else")

    def copy_in(self, stock: bool) -> None:
        number = self.pick.randrange(len(self.pool))
        name = f"/big/{self.pick.randrange(BIG_NAMES)}"
        command = ["xrdcp", "--nopbar", "-f", "--tpc", "only"] if stock else [WEIR_BIN, "cp", "-f", "--tpc"]
        self._put_by(name, self.pool[number], *command, f"{self.other.url}/pool/{number}", f"{self.server.url}{name}")

    def copy_out(self, stock: bool) -> None:
        names = [name for name in self.ledger.standing() if name.startswith("/big/")]
        if not names:
            return
        name = self.pick.choice(names)
        command = ["xrdcp", "--nopbar", "-f", "--tpc", "only"] if stock else [WEIR_BIN, "cp", "-f", "--tpc"]
        self.run(*command, f"{self.server.url}{name}", f"{self.other.url}/copied")
        with_other = Client(self.other.port)
        if with_other.content("/copied") != self.ledger.promises[name].stands:
            self.journal.problem(f"{name} was copied to the other server as something else")
        with_other.close()
