"""The Debian package of the binary that is tested."""

import fcntl
import os
import subprocess
from pathlib import Path

from harness import ROOT, WEIR_BIN


def make_package(again: bool = False) -> Path:
    """Makes the package, or finds that this run of the tests has made it. Parallel test processes wait for each other."""
    (ROOT / "build").mkdir(exist_ok=True)
    # It need not be small, and a good compression takes a processor for a minute.
    environment = os.environ | {"DPKG_DEB_COMPRESSOR_LEVEL": "1"}
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    with open(ROOT / "build/.package-lock", "a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.seek(0)
        made_by, _, path = lock.read().partition(" ")
        if again or made_by != run or not Path(path).exists():
            command = [ROOT / "scripts/deb.sh", WEIR_BIN]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, env=environment)
            assert done.returncode == 0, done.stderr
            path = str(ROOT / done.stdout.splitlines()[-1])
            lock.truncate(0)
            lock.write(f"{run} {path}")
    return Path(path)
