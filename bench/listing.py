"""`weir ls -l` of a directory of a million entries: when its first lines are there, when all, and what memory it takes at both ends."""

import argparse
import re
import shutil
import subprocess
import time
from pathlib import Path

import measure
import rows
from harness import WEIR_BIN, Weir

ENTRIES = 1_000_000
LOOK_EVERY = 50  # reads of the listing between two looks at the client's memory


def high_water(pid: int) -> int:
    """The most memory that a process has had so far, in bytes; 0 if it has ended."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found.group(1)) << 10 if found else 0


def listing(folder: Path, options: argparse.Namespace, figures: rows.Figures) -> None:
    fill = measure.build_example("weir", "fill_directory")
    home = folder / "node"
    home.mkdir()
    begin = time.monotonic()
    measure.run([str(fill), str(home / "data"), "/many", str(ENTRIES)])
    print(f"filled {ENTRIES} entries in {time.monotonic() - begin:.1f} s", flush=True)
    try:
        for number in range(options.runs):
            with Weir(home).start() as server:  # a fresh one each time: nothing of an earlier listing is in its memory
                Path(f"/proc/{server.pid}/clear_refs").write_text("5")  # the opening's high-water mark is not the listing's
                before = server.rss_bytes()
                first, last, memory = once([str(WEIR_BIN), "ls", "-l", f"{server.url}/many"])
                grown = high_water(server.pid) - before
            figures.add("ls-first", "weir", first)
            figures.add("ls-all", "weir", last)
            figures.add("ls-client-memory", "weir", memory / (1 << 20))
            figures.add("ls-server-memory", "weir", grown / (1 << 20))
            print(f"run {number} ls -l: first {first:.3f} s, all {last:.2f} s, {memory >> 20} MiB, server +{grown >> 20} MiB", flush=True)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    figures.commands["ls-first"] = "weir ls -l root://HOST//many"
    note = f"{ENTRIES} empty files in one directory, of a server just started; the client's memory at its largest while it prints"
    figures.notes["ls -l"] = note


def once(command: list[str]) -> tuple[float, float, int]:
    """Seconds to the first line and to the end, and the client's memory in bytes; every entry must be there once, in order."""
    begin = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0) as client:
        assert client.stdout is not None
        parts, first, memory = [], 0.0, 0
        while part := client.stdout.read(1 << 16):
            if not parts:
                first = time.monotonic() - begin
            if len(parts) % LOOK_EVERY == 0:
                memory = max(memory, high_water(client.pid))
            parts.append(part)
        client.wait()
    last = time.monotonic() - begin
    names = [line.rsplit(b" ", 1)[-1] for line in b"".join(parts).splitlines()]
    if client.returncode != 0 or names != sorted(set(names)) or len(names) != ENTRIES:
        raise SystemExit(f"{' '.join(command)} ended with {client.returncode} and {len(names)} lines")
    return first, last, memory
