"""What all parts measure with: a server's CPU time over a piece of work, alternating runs, sources, commands."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Protocol

from harness import Server

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).absolute()
IDLE_SHARE, SETTLE_SECONDS_MAX = 0.03, 20  # work that a server puts off until after the answer counts too: until it is idle for a second


class Cpu:
    """CPU seconds of a server over a piece of work, with what it does right afterwards."""

    def __init__(self, server: Server):
        self.server = server

    def __enter__(self) -> "Cpu":
        self.begin, self.start = self.server.cpu_seconds(), time.monotonic()
        return self

    def __exit__(self, *_) -> None:
        self.wall = time.monotonic() - self.start
        settle(self.server)
        self.seconds = self.server.cpu_seconds() - self.begin


class Working(Protocol):
    """Whoever uses CPU time: a server, or several processes."""

    def cpu_seconds(self) -> float: ...


def settle(server: Working) -> None:
    """Waits until a server is idle."""
    end, now, before = time.monotonic() + SETTLE_SECONDS_MAX, server.cpu_seconds(), -1.0
    while now - before > IDLE_SHARE and time.monotonic() < end:
        time.sleep(1)
        before, now = now, server.cpu_seconds()


def run(command: list[str], **more) -> str:
    done = subprocess.run(command, capture_output=True, text=True, **more)
    if done.returncode != 0:
        raise SystemExit(f"failed ({done.returncode}): {' '.join(command)}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def alternate(servers: dict[str, Server], number: int) -> list[tuple[str, Server]]:
    """Both servers, each run in the other order."""
    pairs = list(servers.items())
    return pairs if number % 2 == 0 else pairs[::-1]


@cache
def load_program() -> Path:
    """The program on the stock client library."""
    load = BUILD / "xrdload"
    flags = ["-O2", "-std=c++17", "-isystem", "/usr/include/xrootd"]
    run(["g++", *flags, "-o", str(load), str(ROOT / "bench/xrdload.cc"), "-lXrdCl", "-lXrdUtils", "-lpthread"])
    return load


def build_example(package: str, name: str) -> Path:
    """A crate's example, built."""
    run(["cargo", "build", "--release", "--locked", "-q", "-p", package, "--example", name], cwd=ROOT)
    return TARGET / "release/examples" / name


@contextmanager
def random_source(size: int) -> Iterator[Path]:
    """A file of random bytes: in memory where there is room for it twice."""
    shared = Path("/dev/shm")
    room = shutil.disk_usage(shared).free if shared.is_dir() else 0
    source = (shared if room > 2 * size else BUILD) / f"weir-bench-{os.getpid()}"
    try:
        with open(source, "wb") as file:
            for begin in range(0, size, 1 << 24):
                file.write(os.urandom(min(1 << 24, size - begin)))
        yield source
    finally:
        source.unlink(missing_ok=True)
