"""weir bench names the bottleneck of a figure: bottlenecks planted on this machine, each with its evidence."""

import os
import re
import subprocess
import time
from pathlib import Path

import pytest
from content import MIB
from harness import WEIR_BIN, Weir
from loopfs import device_of, loop_file_system
from test_bench_testbed import bed, folder, run, up  # noqa: F401 (a fixture)

pytestmark = [pytest.mark.alone, pytest.mark.skipif(os.getuid() != 0, reason="loop devices, limits on them and networks: only root may")]

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


@pytest.mark.skipif(not THROTTLE.exists(), reason="no blkio cgroup of version 1: no disk can be made slow")
def test_a_slow_disk(base, tmp_path):
    """The measured disk accepts only 20 MB a second."""
    with loop_file_system(base / "slow", "ext4", 600 * MIB) as below:
        number = os.stat(device_of(below)).st_rdev
        number = f"{os.major(number)}:{os.minor(number)}"
        with loop_file_system(below / "disk", "ext4", 400 * MIB) as disk:
            device = device_of(disk)
            subprocess.run(["losetup", "--direct-io=on", device], check=True)
            THROTTLE.write_text(f"{number} {SLOW_BYTES}")
            try:
                system = f'[[system]]\nname = "disk"\nplace = "{disk}"\n'
                for attempt in range(3):
                    (tmp_path / f"{attempt}").mkdir()
                    found = run(tmp_path / f"{attempt}", STREAMS.format(file="64MiB", streams=2) + system)["large", "write", "disk"]
                    # Other work may take all of this machine's processors, and is then named first.
                    if "bench itself used 0.0" not in found["verdict"]["evidence"]:
                        break
            finally:
                THROTTLE.write_text(f"{number} 0")
    assert found["median"] == pytest.approx(SLOW_BYTES, rel=0.4), found["median"]
    assert found["verdict"]["bound"] == "disk" and device.name in found["verdict"]["evidence"], found["verdict"]


def test_a_throttled_link(folder, tmp_path):  # noqa: F811
    """100 Mb/s between the namespace of the server and this one; the previous stage has measured the link."""
    lines = up(folder, "weir", "--link", "100mbit")
    namespace = re.search(r"in the namespace (\S+)", lines).group(1)
    address = re.search(r"root://([0-9.]+):", lines).group(1)
    token = tmp_path / "token"
    subprocess.run([WEIR_BIN, "bench", "token", token], check=True, capture_output=True)
    flows = [WEIR_BIN, "bench", "flows", "--listen", f"{address}:7070", "--token-file", token]
    side = subprocess.Popen(["ip", "netns", "exec", namespace, *flows], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert side.stdout.readline().startswith("listening on ")
        network = '[[network]]\nname = "network"\nflows = 2\nseconds = 3\n'
        peer = f'peer = "{address}:7070"\ntoken_file = "{token}"\n'
        found = run(tmp_path, STREAMS.format(file="16MiB", streams=2) + network + lines.rstrip() + "\n" + peer)
    finally:
        side.kill()
        side.wait()
    cell = found["large", "write", "weir"]
    assert cell["median"] == pytest.approx(12.5e6, rel=0.3), cell["median"]
    assert cell["verdict"]["bound"] == "network-stage", cell["verdict"]
    bed(folder, "down")


def test_a_client_with_a_busy_core(base, tmp_path):
    """A job that computes shares its only core with another process; the server has the other core."""
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
            found = run(tmp_path, JOB + system, "taskset", "-c", "0")
        finally:
            busy.kill()
            busy.wait()
    cell = found["job", "analyse", "weir"]
    # The other process takes half of the core: the job's CPU time is half of its time, yet it does not wait for storage.
    assert cell["median"] < 0.75, cell
    # If other processes take the rest of the machine, all of its processors are busy, which is named first.
    bound, evidence = cell["verdict"]["bound"], cell["verdict"]["evidence"]
    assert bound == "client-core" or (bound == "client-cpu" and "bench itself used 0." in evidence), cell
