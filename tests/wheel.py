"""The Python package: its wheel, and an environment in which it is installed."""

import fcntl
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from harness import ROOT


def make_wheel() -> Path:
    """Makes the wheel, or finds that it is up to date. Parallel test processes wait for each other. `scripts/test.sh` has made it
    before: it is `WEIR_WHEEL`, since Cargo is busy meanwhile."""
    if made := os.environ.get("WEIR_WHEEL"):
        return ROOT / made
    folder = ROOT / "build"
    folder.mkdir(exist_ok=True)
    with open(folder / ".wheel-lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run([ROOT / "scripts/wheel.sh"], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return ROOT / done.stdout.split()[-1]


class Environment:
    """A virtual environment that has the wheel, and takes fsspec and others from the environment of the tests."""

    def __init__(self, home: Path, wheel: Path):
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
        self.python = home / "bin/python"
        self.packages = next(home.glob("lib/python*/site-packages"))
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", self.python, "install", "-q"]
        # The list of what is installed must hold the wheel alone meanwhile.
        subprocess.run([*pip, "--no-deps", "--no-index", wheel], check=True)
        others = [sysconfig.get_paths()["purelib"], *filter(None, os.environ.get("PYTHONPATH", "").split(":"))]
        (self.packages / "others.pth").write_text("\n".join(others) + "\n")

    def run(self, program: str, *arguments: str, seconds: float = 120) -> str:
        command = [self.python, "-c", program, *arguments]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout
