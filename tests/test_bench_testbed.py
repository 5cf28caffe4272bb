"""weir bench testbed: systems come up, are measured, and go without a trace, in whatever state they were."""

import json
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from harness import WEIR_BIN, until
from test_bench import cells

PEERS = {
    "weir": None,
    "xrootd": "xrootd",
    "nginx": "nginx",
    "glusterfs": "glusterd",
    "moosefs": "mfsmaster",
    "nfs": "ganesha.nfsd",
}
FAILURE = """
name = "failure"
repeats = 1
[[failure]]
name = "failure"
writers = 2
readers = 2
file = "1MiB"
block = "256KiB"
seconds = 16
fail_at = 3
restore_at = 5
wait = 30
"""

PATH = "/usr/sbin:/usr/bin:/sbin:/bin"

CAMPAIGN = """
name = "testbed"
repeats = 1
[[streams]]
name = "large"
phases = ["write", "read", "random-read"]
file = "8MiB"
block = "256KiB"
streams = 2
[[small]]
name = "small"
clients = 2
files = 20
file = "3000B"
"""

pytestmark = [
    pytest.mark.together,  # each test compares the testbeds' networks before it and after it
    pytest.mark.skipif(os.getuid() != 0, reason="a testbed makes network namespaces: only root may"),
]


def bed(folder: Path, *arguments: str, code: int = 0) -> subprocess.CompletedProcess:
    command = [WEIR_BIN, "bench", "testbed", *arguments, "--dir", folder]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done


def traces(folder: Path) -> list[str]:
    """The remains of a testbed in this folder."""
    left = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if f" {folder}/" in line]
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (OSError, NotADirectoryError):
            continue
        if entry.name.isdigit() and str(folder) in line and int(entry.name) != os.getpid():
            left.append(line)
    return left + ([str(folder)] if folder.exists() else [])


def networks() -> set[str]:
    links = {name for name in os.listdir("/sys/class/net") if name.startswith("wtb")}
    spaces = Path("/run/netns")
    return links | ({name for name in os.listdir(spaces) if name.startswith("weir-testbed")} if spaces.exists() else set())


@pytest.fixture
def folder(base, request):
    before = networks()
    made = base / f"tb-{request.node.name.translate(str.maketrans('[]', '--'))}"
    yield made
    subprocess.run([WEIR_BIN, "bench", "testbed", "down", "--dir", made], capture_output=True, timeout=120)
    assert networks() == before and not traces(made)


def up(folder: Path, peer: str, *arguments: str) -> str:
    program = PEERS[peer]
    if program and not shutil.which(program, path=PATH):
        pytest.skip(f"{peer} is not installed")
    if peer == "nfs" and "nfs4" not in Path("/proc/filesystems").read_text():
        refused = bed(folder, "up", "nfs", *arguments, code=6)
        assert "does not know the file system `nfs4`" in refused.stderr and not folder.exists()
        pytest.skip("this kernel does not know NFS")
    return bed(folder, "up", peer, *arguments).stdout


def run(tmp_path: Path, text: str, *before: str) -> dict:
    """The cells of a campaign; `before`: the prefix of the bench's command."""
    tmp_path.mkdir(exist_ok=True)
    (tmp_path / "campaign.toml").write_text(text)
    command = [*before, WEIR_BIN, "bench", "run", tmp_path / "campaign.toml", "--results", tmp_path / "results", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, (done.stdout[-2000:], done.stderr)
    return cells(json.loads(done.stdout))


@pytest.mark.parametrize(
    "peer", [pytest.param(peer, marks=pytest.mark.long) if peer in ("glusterfs", "moosefs") else peer for peer in PEERS]
)
def test_a_system_comes_up_is_measured_and_goes(peer, folder, tmp_path):
    lines = up(folder, peer)
    assert bed(folder, "list").stdout.split()[:2] == [peer, "up"]
    found = run(tmp_path, CAMPAIGN + lines)
    systems = lines.count("[[system]]")
    assert len(found) == systems * (3 + 5)
    for key, cell in found.items():
        assert not {"wrong-data", "failures", "ended-early"} & set(cell["flags"]), (key, cell)
        assert "partial-client-cpu" not in cell["flags"], (key, cell)
    if peer in ("glusterfs", "moosefs"):
        # Without the name of the mount's process, the error says what is missing.
        assert "\nclient_processes = " in lines
        nameless = "\n".join(line for line in lines.splitlines() if not line.startswith("client_processes"))
        for key, cell in run(tmp_path / "nameless", CAMPAIGN + nameless).items():
            assert "partial-client-cpu" in cell["flags"], (key, cell)
    bed(folder, "down")
    assert not traces(folder)
    assert bed(folder, "list").stdout == ""


def test_several_at_a_time_each_by_itself(folder):
    lines = up(folder, "weir") + up(folder, "xrootd")
    assert len({line for line in lines.splitlines() if line.startswith("place")}) == 3
    refused = bed(folder, "up", "weir", code=12)
    assert "is up already" in refused.stderr
    bed(folder, "down", "weir")
    assert bed(folder, "list").stdout.split()[:2] == ["xrootd", "up"]
    assert "not up" in bed(folder, "down", "weir", code=11).stderr


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("peer", ["weir", "glusterfs", "moosefs"])
def test_what_a_crash_half_way_left_is_taken_down(peer, seed, folder):
    if PEERS[peer] and not shutil.which(PEERS[peer], path=PATH):
        pytest.skip(f"{peer} is not installed")
    start = subprocess.Popen([WEIR_BIN, "bench", "testbed", "up", peer, "--dir", folder], stdout=subprocess.DEVNULL)
    try:
        start.wait(random.Random(seed).uniform(0.02, 0.5 if peer == "weir" else 3))
    except subprocess.TimeoutExpired:
        start.send_signal(signal.SIGKILL)
        start.wait()
    time.sleep(0.2)
    # weir itself reports its settings, and `down` removes all of it.
    subprocess.run([WEIR_BIN, "bench", "testbed", "list", "--dir", folder], check=False)
    # A child of the killed command may still have its lock until it has become another program.
    down = [WEIR_BIN, "bench", "testbed", "down", "--dir", folder]
    until(lambda: subprocess.run(down, capture_output=True, timeout=120).returncode != 6, 20)
    bed(folder, "down")
    assert not traces(folder)


def test_a_server_that_has_ended_is_told(folder):
    up(folder, "weir")
    state = json.loads((folder / "testbed.json").read_text())
    os.kill(state[0]["processes"][0]["pid"], signal.SIGKILL)
    shown = [WEIR_BIN, "bench", "testbed", "list", "--dir", folder]
    until(lambda: "ended: weir" in subprocess.run(shown, capture_output=True, text=True, timeout=120).stdout, 20)
    bed(folder, "list", code=1)
    bed(folder, "down")


@pytest.mark.parametrize("peer", ["weir", *(pytest.param(peer, marks=pytest.mark.long) for peer in ("xrootd", "glusterfs", "moosefs"))])
def test_a_killed_server_comes_back(peer, folder, tmp_path):
    """The lines that `up` prints kill it in the middle, and start it again; nothing acknowledged is lost."""
    lines = up(folder, peer)
    # MooseFS's client notices only minutes later that its chunk server is back.
    first = "[[system]]" + lines.split("[[system]]")[1]
    found = run(tmp_path, FAILURE + first) if peer != "moosefs" else {}
    assert bed(folder, "list").stdout.split()[:2] == [peer, "up"]
    for work, phase, system in found:
        cell = found[work, phase, system]
        assert "lost" not in cell["flags"] and "wrong-data" not in cell["flags"], cell
        if phase == "write":
            # It paused while the server was down, and continued: 13 s of the phase remain at the kill. The speed depends on the disk.
            assert 1 <= cell["recoveries"][0]["still_s"] <= 11, cell["recoveries"]
    bed(folder, "kill", peer)
    assert "ended" in bed(folder, "list", code=1).stdout
    bed(folder, "kill", peer, code=11)
    bed(folder, "start", peer)
    assert bed(folder, "list").stdout.split()[:2] == [peer, "up"]


def test_what_is_there_already_stays(folder):
    (folder / "weir").mkdir(parents=True)
    (folder / "weir/precious").write_text("x")
    refused = bed(folder, "up", "weir", code=12)
    assert "is there already" in refused.stderr
    bed(folder, "down")
    assert (folder / "weir/precious").read_text() == "x"
    shutil.rmtree(folder)


@pytest.mark.paced  # it measures the rate that it has set
def test_a_link_is_as_fast_as_it_was_said(folder, tmp_path):
    refused = bed(folder, "up", "weir", "--link", "fast", code=2)
    assert "100mbit" in refused.stderr and not folder.exists()
    lines = up(folder, "weir", "--link", "100mbit")
    streams = CAMPAIGN[: CAMPAIGN.index("[[small]]")].replace('["write", "read", "random-read"]', '["write", "read"]')
    found = run(tmp_path, streams.replace("8MiB", "16MiB") + lines)
    for key, cell in found.items():
        assert 0.6 * 12.5e6 < cell["median"] < 1.1 * 12.5e6, (key, cell["median"])
