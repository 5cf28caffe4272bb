"""weir bench names what bounds a figure: bottlenecks that are planted on this machine, each with its evidence."""

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness import WEIR_BIN, Weir
from test_bench_testbed import bed, cells, folder, up  # noqa: F401 (a fixture)

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="loop devices, limits on them and networks: only root may")

THROTTLE = Path("/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device")
SLOW_BYTES = 20_000_000

STREAMS = """
name = "planted"
repeats = 1
[[streams]]
name = "large"
phases = ["write"]
file = "{file}"
block = "1MiB"
streams = {streams}
window = 4
"""


JOB = """
name = "planted"
repeats = 1
[[analysis]]
name = "job"
synthetic = { file = "30MB", events = 10000, branches = 20, read = 10, basket = "16KiB" }
jobs = 1
mode = "vector"
compute = 0.1
"""


def measure(tmp_path: Path, campaign: str, *before: str) -> dict:
    (tmp_path / "campaign.toml").write_text(campaign)
    command = [*before, WEIR_BIN, "bench", "run", tmp_path / "campaign.toml", "--results", tmp_path / "results", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, (done.stdout[-2000:], done.stderr)
    return cells(json.loads(done.stdout))


def sh(*command: object) -> str:
    return subprocess.run([*map(str, command)], check=True, capture_output=True, text=True).stdout.strip()


@contextmanager
def disk_on(image: Path, size: str, at: Path) -> Iterator[str]:
    """A file system on a file: its device, mounted."""
    sh("truncate", "-s", size, image)
    device = sh("losetup", "--find", "--show", image)
    try:
        sh("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", device)
        at.mkdir()
        sh("mount", device, at)
        try:
            yield device
        finally:
            sh("umount", at)
    finally:
        sh("losetup", "--detach", device)


@pytest.mark.skipif(not THROTTLE.exists(), reason="no blkio cgroup of version 1: no disk can be made slow")
def test_a_slow_disk(base, tmp_path):
    """The disk that is measured lies on one that takes 20 MB a second."""
    home = base / "slow"
    home.mkdir()
    with disk_on(home / "below.img", "600M", home / "below") as below:
        number = os.stat(below).st_rdev
        number = f"{os.major(number)}:{os.minor(number)}"
        with disk_on(home / "below/disk.img", "400M", home / "disk") as device:
            sh("losetup", "--direct-io=on", device)
            THROTTLE.write_text(f"{number} {SLOW_BYTES}")
            try:
                system = f'[[system]]\nname = "disk"\nplace = "{home}/disk"\n'
                for attempt in range(3):
                    (tmp_path / f"{attempt}").mkdir()
                    found = measure(tmp_path / f"{attempt}", STREAMS.format(file="64MiB", streams=2) + system)["large", "write", "disk"]
                    # What else the machine does may take all of its processors, and is told first.
                    if "bench itself used 0.0" not in found["verdict"]["evidence"]:
                        break
            finally:
                THROTTLE.write_text(f"{number} 0")
    assert found["median"] == pytest.approx(SLOW_BYTES, rel=0.4), found["median"]
    assert found["verdict"]["bound"] == "disk" and Path(device).name in found["verdict"]["evidence"], found["verdict"]


def test_a_throttled_link(folder, tmp_path):  # noqa: F811
    """100 Mb/s between the namespace of the server and this one: what is known of it is what the stage before has measured."""
    lines = up(folder, "weir", "--link", "100mbit")
    namespace = re.search(r"in the namespace (\S+)", lines).group(1)
    address = re.search(r"root://([0-9.]+):", lines).group(1)
    token = tmp_path / "token"
    sh(WEIR_BIN, "bench", "token", token)
    flows = [WEIR_BIN, "bench", "flows", "--listen", f"{address}:7070", "--token-file", token]
    side = subprocess.Popen(["ip", "netns", "exec", namespace, *flows], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        network = '[[network]]\nname = "network"\nflows = 2\nseconds = 3\n'
        peer = f'peer = "{address}:7070"\ntoken_file = "{token}"\n'
        found = measure(tmp_path, STREAMS.format(file="16MiB", streams=2) + network + lines.rstrip() + "\n" + peer)
    finally:
        side.kill()
        side.wait()
    cell = found["large", "write", "weir"]
    assert cell["median"] == pytest.approx(12.5e6, rel=0.3), cell["median"]
    assert cell["verdict"]["bound"] == "network-stage", cell["verdict"]
    bed(folder, "down")


def test_a_client_with_a_busy_core(base, tmp_path):
    """A job that computes has one core, and somebody else computes there, too; the server has the other core."""
    if (os.cpu_count() or 1) < 2:
        pytest.skip("one core: nothing can be put beside it")
    spin = "while True: pass"
    with Weir(base / "busy") as server:
        os.sched_setaffinity(server.process.pid, {1})
        for task in Path(f"/proc/{server.process.pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), {1})
        busy = subprocess.Popen(["taskset", "-c", "0", "python3", "-c", spin])
        try:
            time.sleep(0.2)
            system = f'[[system]]\nname = "weir"\nplace = "{server.url}"\n'
            found = measure(tmp_path, JOB + system, "taskset", "-c", "0")
        finally:
            busy.kill()
            busy.wait()
    cell = found["job", "analyse", "weir"]
    # Half of the core is the other's: the job's CPU time is that share of its time, and yet storage is not what it waits for.
    assert cell["median"] < 0.75 and cell["verdict"]["bound"] == "client-core", cell
