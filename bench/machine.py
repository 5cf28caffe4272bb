"""What a figure must be read with: the machine, the disk, the versions."""

import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness import WEIR_BIN, Server

HUGE_PAGES = Path("/proc/sys/vm/nr_hugepages")
DROP_CACHES = "/proc/sys/vm/drop_caches"


def output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        return ""


def file_system(folder: Path) -> tuple[str, str]:
    """Kind and device of the file system that a folder is on."""
    fields = output("findmnt", "-n", "-o", "FSTYPE,SOURCE", "--target", str(folder)).split()
    return (fields[0], fields[1]) if len(fields) >= 2 else ("unknown", "unknown")


@contextmanager
def huge_pages(count: int) -> Iterator[bool]:
    """Sees to it that the kernel has so many huge pages, and gives back what it took; says whether they are there."""
    before = int(HUGE_PAGES.read_text())
    try:
        HUGE_PAGES.write_text(str(max(before, count)))
    except PermissionError:
        yield before >= count
        return
    try:
        yield int(HUGE_PAGES.read_text()) >= count
    finally:
        HUGE_PAGES.write_text(str(before))


def commit(root: Path) -> str:
    """The commit that a checkout is at, and whether it is all of it."""
    dirty = " with uncommitted changes" if output("git", "-C", str(root), "status", "--porcelain", "--untracked-files=no") else ""
    return output("git", "-C", str(root), "rev-parse", "--short", "HEAD") + dirty


def describe(folder: Path, root: Path) -> dict[str, str]:
    cpu = next(
        (line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), "?"
    )
    memory = int(Path("/proc/meminfo").read_text().split()[1]) // 1024
    kind, device = file_system(folder)
    return {
        "CPU": f"{os.cpu_count()} x {cpu}",
        "memory": f"{memory} MiB",
        "kernel": platform.release(),
        "disk": f"{kind} on {device}",
        "weir": commit(root),
        "xrootd": output("dpkg-query", "-W", "-f", "${Version}", "xrootd-server"),
        "XrdCl": output("dpkg-query", "-W", "-f", "${Version}", "libxrdcl3"),
        "fio": output("fio", "--version"),
    }


def drop_caches(server: Server) -> str:
    """Empties what a server and the system have of its data in memory, for cold reads; how it was done."""
    folder = server.data
    if server.kind == "weir":
        done = subprocess.run([str(WEIR_BIN), "drop-caches", "--data", str(folder)], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return DROP_CACHES
        print(f"`weir drop-caches` failed: {done.stderr.strip()}", flush=True)
    os.sync()
    try:
        Path(DROP_CACHES).write_text("3\n")
        return DROP_CACHES
    except OSError:
        for path in folder.rglob("*"):
            if path.is_file():
                with open(path, "rb") as file:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return "posix_fadvise"
