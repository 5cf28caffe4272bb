"""A reader that follows a recording: what it costs the disk, and how far it is behind."""

import argparse
import bisect
import os
import shutil
import subprocess
import threading
import time
from pathlib import Path

import rows
from harness import WEIR_BIN, Weir
from test_metrics import named, samples
from XRootD import client

BLOCK = 1 << 20
SIZE = 2 << 30
RATE = 400e6  # bytes a second: what one writer and one reader can do on two processors, beside the clocks
LOOK_EVERY_SECONDS = 0.02


class Clock:
    """How far something had come at what time."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.ends: list[int] = []

    def reached(self, end: int) -> None:
        self.times.append(time.monotonic())
        self.ends.append(end)

    def behind(self, other: "Clock") -> list[float]:
        """For each point that `other` has reached: how much later this one has."""
        return [self.times[bisect.bisect_left(self.ends, end)] - when for when, end in zip(other.times, other.ends, strict=True)]


def record(url: str, size: int, written: Clock) -> None:
    """Writes so many bytes from a pipe, at the rate."""
    block = os.urandom(BLOCK)
    with subprocess.Popen([str(WEIR_BIN), "cp", "-q", "-", url], stdin=subprocess.PIPE) as writer:
        begin = time.monotonic()
        for end in range(BLOCK, size + 1, BLOCK):
            time.sleep(max(0, begin + end / RATE - time.monotonic()))
            writer.stdin.write(block)
            written.reached(end)
        writer.stdin.close()
        if writer.wait() != 0:
            raise SystemExit("the recording failed")


def watch(url: str, path: str, writer: threading.Thread, size: int, published: Clock) -> None:
    """Looks again and again how much of the file the server shows."""
    names, seen = client.FileSystem(url), 0
    while seen < size and (writer.is_alive() or seen == 0 or published.times[-1] > time.monotonic() - 10):
        status, stat = names.stat(path)
        if status.ok and stat.size > seen:
            seen = stat.size
            published.reached(seen)
        time.sleep(LOOK_EVERY_SECONDS)


def follow(url: str, got: Clock) -> None:
    """Reads the file while it grows, as the next program of a pipe does."""
    seen = 0
    with subprocess.Popen([str(WEIR_BIN), "cp", "-q", "--follow", url, "-"], stdout=subprocess.PIPE, bufsize=0) as reader:
        while part := os.read(reader.stdout.fileno(), BLOCK):
            seen += len(part)
            got.reached(seen)
        if reader.wait() != 0:
            raise SystemExit("the follower failed")


def read_from_disk(server: Weir) -> float:
    """Bytes that readers got from the disk or the page cache, and not from the memory for recently written data."""
    return named(samples(server), "weir_recent_read_bytes_total", **{"from": "disk"})


def once(server: Weir, name: str, size: int) -> tuple[float, float, float]:
    """Bytes from the disk, and how far the reader was behind what is published and behind the writer, at most, in seconds."""
    url = f"{server.url}/{name}"
    written, published, got = Clock(), Clock(), Clock()
    before = read_from_disk(server)
    writer = threading.Thread(target=record, args=(url, size, written))
    writer.start()
    while not client.FileSystem(server.url).stat(f"/{name}")[0].ok:
        time.sleep(LOOK_EVERY_SECONDS)
    others = [
        threading.Thread(target=watch, args=(server.url, f"/{name}", writer, size, published)),
        threading.Thread(target=follow, args=(url, got)),
    ]
    for thread in others:
        thread.start()
    for thread in (writer, *others):
        thread.join()
    if got.ends[-1] != size:
        raise SystemExit(f"the follower got {got.ends[-1]} of {size} bytes")
    return read_from_disk(server) - before, max(got.behind(published)), max(got.behind(written))


def following(folder: Path, options: argparse.Namespace, figures: rows.Figures) -> None:
    """A recording of 2 GiB and its follower, on a node that has written as much before, so that its memory for new data is there."""
    with Weir(folder / "follow", flags=("--metrics", "127.0.0.1:0")).start() as server:
        once(server, "first", SIZE)
        for number in range(options.runs):
            disk, lag, behind = once(server, f"run{number}", SIZE)
            figures.add("follow-disk", "weir", disk / (1 << 20))
            figures.add("follow-lag", "weir", lag)
            figures.add("follower behind the writer [s]", "weir", behind)
            print(
                f"run {number} follow {disk / (1 << 20):8.1f} MiB from the disk  {lag:5.2f} s behind what is published  {behind:5.2f} s",
                flush=True,
            )
    figures.commands["follow-lag"] = "weir cp -q - root://HOST//run; weir cp -q --follow root://HOST//run -"
    figures.notes["follow"] = f"2 GiB at {RATE / 1e6:.0f} MB/s; what is published: by stat, every {LOOK_EVERY_SECONDS * 1000:.0f} ms"
    shutil.rmtree(server.home, ignore_errors=True)
