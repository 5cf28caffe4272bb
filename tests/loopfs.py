"""Small file systems on loop devices, for full-disk tests. Needs root."""

import os
import subprocess
from contextlib import contextmanager
from pathlib import Path

# Leaves no work for the background.
MAKE = {
    "ext4": ["mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
    "xfs": ["mkfs.xfs", "-q", "-f"],
}


def why_not() -> str | None:
    """Why such tests cannot run here, or None."""
    if os.getuid() != 0:
        return "mounting a loop device needs root"
    if not Path("/dev/loop-control").exists():
        return "this machine has no loop devices"
    return None


@contextmanager
def loop_file_system(home: Path, kind: str, size_bytes: int):
    """A mounted file system of that size; returns its folder."""
    home.mkdir(parents=True, exist_ok=True)
    image, folder = home / "image", home / "mounted"
    folder.mkdir()
    with open(image, "wb") as file:
        file.truncate(size_bytes)
    subprocess.run([*MAKE[kind], str(image)], check=True, capture_output=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)
        image.unlink()


def device_of(folder: Path) -> Path:
    """The device of such a file system."""
    found = subprocess.run(["findmnt", "-n", "-o", "SOURCE", folder], check=True, capture_output=True, text=True)
    return Path(found.stdout.strip())


def free_bytes(folder: Path) -> int:
    state = os.statvfs(folder)
    return state.f_bavail * state.f_frsize
