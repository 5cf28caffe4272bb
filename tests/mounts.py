"""Disks that are mounted over folders in use, and unmounted. Needs root."""

import hashlib
import os
import subprocess
from contextlib import contextmanager
from pathlib import Path


def why_not() -> str | None:
    """Why such tests cannot run here, or None."""
    return None if os.getuid() == 0 else "mounting needs root"


@contextmanager
def mounted_over(folder: Path, what: Path | None = None):
    """Mounts the folder `what`, or an empty file system, over `folder`."""
    command = ["mount", "--bind", str(what)] if what else ["mount", "-t", "tmpfs", "-o", "size=1g", "tmpfs"]
    subprocess.run([*command, str(folder)], check=True)
    try:
        yield folder
    finally:
        # Also if a process still uses it.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def contents(folder: Path) -> dict[str, str]:
    """All names below a folder, with checksums of files. Not the lock, which names the last process that tried."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.name != "lock":
            found[str(path.relative_to(folder))] = hashlib.md5(path.read_bytes()).hexdigest() if path.is_file() else ""
    return found
