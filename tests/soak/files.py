"""Many processes write many small files each into one directory of a cluster of four disk servers. Then as many processes list all files,
count them as the manager has them, and read and compare them. The default is 100 processes of 20,000 files, two million in all; the free
space determines their size. With `--managers`, the namespace is in PostgreSQL, and the processes have the address of a standby, if there is
one. It ends with 1 if a file is missing, differs from the written one or was never written, or if an operation failed."""

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile

from cluster import Cluster
from content import KIB, content
from harness import ROOT, WEIR_BIN
from managers import Managers, new_database
from postgres import Postgres
from XRootD import client
from XRootD.client.flags import OpenFlags

DISKS = 4
FOLDER = "/many"
# Largest size to choose; beyond it the test would measure bytes instead of files.
SIZE_MAX = 16 * KIB
# The usable share of the free space: objects occupy whole records, and the namespace and its checkpoints need space too.
SHARE = 4
# Marks a folder that this made and may remove.
MARK = "made-by-soak-files"
SHOWN = 20
# A process reports its progress after this many files, and the test prints it this often [s].
AT_A_TIME = 100
TOLD_EVERY = 30


def name_of(process: int, number: int) -> str:
    return f"{process:04d}-{number:06d}"


@dataclass
class Work:
    """The number of processes, of files for each, and of bytes for each file."""

    url: str
    processes: int
    files: int
    size: int

    @property
    def count(self) -> int:
        return self.processes * self.files

    def expected(self) -> set[str]:
        return {name_of(process, number) for process in range(self.processes) for number in range(self.files)}


@dataclass
class Outcome:
    """What was done, and the problems."""

    done: int = 0
    seconds: float = 0
    problems: list[str] = field(default_factory=list)


def write_one(url: str, name: str, size: int) -> str | None:
    """Writes a file; returns the reason if that fails."""
    file = client.File()
    status, _ = file.open(f"{url}{FOLDER}/{name}", OpenFlags.NEW | OpenFlags.MAKEPATH)
    if status.ok and size:
        status, _ = file.write(content(name, size))
    if status.ok:
        status, _ = file.close()
    return None if status.ok else f"{name} is not written: {status.message.strip()}"


def read_one(url: str, name: str, size: int) -> str | None:
    """Reads a file; returns the reason if it differs."""
    file = client.File()
    status, _ = file.open(f"{url}{FOLDER}/{name}", OpenFlags.READ)
    data = b""
    if status.ok:
        # One byte more, to notice a longer file.
        status, data = file.read(0, size + 1)
        file.close()
    if not status.ok:
        return f"{name} is not read: {status.message.strip()}"
    return None if data == content(name, size) else f"{name} is not what was written ({len(data)} bytes)"


def worker(action: str, url: str, process: int, files: int, size: int) -> None:
    """One process: prints a line for each problem, the number of files now and then, and at the end."""
    one = {"write": write_one, "read": read_one}[action]
    done = 0
    for number in range(files):
        problem = one(url, name_of(process, number), size)
        if problem is None:
            done += 1
        else:
            print(problem, flush=True)
        if number % AT_A_TIME == AT_A_TIME - 1:
            print(f"so far {done}", flush=True)
    print(f"done {done}", flush=True)


def all_processes(work: Work, action: str) -> Outcome:
    """Runs the part of each process; they begin together, as far as possible."""

    begin = time.monotonic()
    so_far = [0] * work.processes

    def one(process: int) -> tuple[int, list[str]]:
        arguments = [action, work.url, process, work.files, work.size]
        command = [sys.executable, "-m", "soak.files", "--worker", *map(str, arguments)]
        done, problems = None, []
        with TemporaryFile("w+", errors="replace") as errors:
            with subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, errors="replace", cwd=ROOT / "tests"
            ) as running:
                for line in running.stdout:
                    match line.split():
                        case ["so", "far", count]:
                            so_far[process] = int(count)
                        case ["done", count]:
                            done = int(count)
                        case _:
                            problems.append(line.rstrip("\n"))
            if running.returncode != 0 or done is None:
                errors.seek(0)
                return 0, [*problems, f"process {process} ended with {running.returncode}: {errors.read()[-500:]}"]
        return done, problems

    outcome = Outcome()
    with ThreadPoolExecutor(work.processes) as pool:
        running = [pool.submit(one, process) for process in range(work.processes)]
        while wait(running, timeout=TOLD_EVERY).not_done:
            print(f"  {action}: {sum(so_far)} of {work.count} after {time.monotonic() - begin:.0f} s", flush=True)
        for done, problems in (ended.result() for ended in running):
            outcome.done += done
            outcome.problems += problems
    outcome.seconds = time.monotonic() - begin
    return outcome


def listed(work: Work) -> Outcome:
    """Checks that the directory has these names and no others."""
    begin = time.monotonic()
    missing = work.expected()
    outcome = Outcome()
    with subprocess.Popen(["xrdfs", work.url.rstrip("/"), "ls", FOLDER], stdout=subprocess.PIPE, text=True) as listing:
        for line in listing.stdout:
            name = line.strip().rpartition("/")[2]
            outcome.done += 1
            if name in missing:
                missing.remove(name)
            else:
                outcome.problems.append(f"{name} is listed, and was never written, or is listed twice")
    if listing.returncode != 0:
        outcome.problems.append(f"the listing ended with {listing.returncode}")
    outcome.problems += [f"{name} is missing in the listing" for name in sorted(missing)]
    outcome.seconds = time.monotonic() - begin
    return outcome


def counted(work: Work, data: str) -> Outcome:
    """Checks the numbers of files and bytes that the manager reports, and that none is lost, under-replicated or being written."""
    begin = time.monotonic()
    sums = json.loads(asked("du", "--json", work.url + FOLDER))
    outcome = Outcome(done=sums["files"])
    if sums["bytes"] != work.count * work.size:
        outcome.problems.append(f"{sums['bytes']} bytes are there, and not {work.count * work.size}")
    missing = json.loads(asked("missing", "--json", "--data", data))
    outcome.problems += [f"{entry['path']} lacks {entry['lacks']}" for entry in missing]
    writing = json.loads(asked("status", "--json", "--data", data))["writers"]["count"]
    if writing:
        outcome.problems.append(f"{writing} files are still being written")
    outcome.seconds = time.monotonic() - begin
    return outcome


def asked(*arguments: str) -> str:
    return subprocess.run([WEIR_BIN, *arguments], check=True, capture_output=True, text=True, timeout=1800).stdout


def size_for(count: int, free: int) -> int:
    """The largest size for which all replicas fit."""
    return max(64, min(SIZE_MAX, free // (SHARE * count)))


@contextmanager
def cluster_of(home: Path, managers: int) -> Iterator[Cluster]:
    """One manager with the embedded engine, or so many on PostgreSQL."""
    if not managers:
        with Cluster(home / "cluster", DISKS) as cluster:
            yield cluster
        return
    with Postgres(home / "postgres") as postgres, Managers(home / "cluster", DISKS, (), new_database(postgres), managers) as cluster:
        yield cluster


def main() -> int:
    parser = argparse.ArgumentParser(prog="soak.files", description=__doc__)
    parser.add_argument("--processes", type=int, default=100)
    parser.add_argument("--files", type=int, default=20_000, help="of each process")
    parser.add_argument("--size", type=int, help="bytes of each; chosen by the free space if not given")
    parser.add_argument("--managers", type=int, default=0, help="on PostgreSQL; none: one manager with the embedded engine")
    parser.add_argument("--home", type=Path, default=ROOT / "build/soak-files")
    parser.add_argument("--worker", nargs=5, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.worker:
        action, url, *numbers = chosen.worker
        worker(action, url, *map(int, numbers))
        return 0
    home = chosen.home.resolve()
    if home.exists() and not (home / MARK).exists():
        parser.error(f"{home} is there, and was not made by this; name another")
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    (home / MARK).touch()
    count = chosen.processes * chosen.files
    size = chosen.size if chosen.size is not None else size_for(count, shutil.disk_usage(home).free)
    print(f"{chosen.processes} processes, {chosen.files} files each of {size} bytes, {WEIR_BIN}", flush=True)
    bad = 0
    with cluster_of(home, chosen.managers) as cluster:
        cluster.policy(FOLDER, "replica(1)")
        work = Work(cluster.url, chosen.processes, chosen.files, size)
        steps = [
            ("written", lambda: all_processes(work, "write")),
            ("listed", lambda: listed(work)),
            ("counted", lambda: counted(work, cluster.data)),
            ("read", lambda: all_processes(work, "read")),
        ]
        for what, step in steps:
            outcome = step()
            rate = outcome.done / max(outcome.seconds, 1e-9)
            told = f"{outcome.done} of {work.count} in {outcome.seconds:.1f} s, {rate:.0f}/s, {len(outcome.problems)} problems"
            print(f"{what}: {told}", flush=True)
            for problem in outcome.problems[:SHOWN]:
                print(f"  {problem}")
            bad += len(outcome.problems) + (outcome.done != work.count)
    if not bad:
        shutil.rmtree(home)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
