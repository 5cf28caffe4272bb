"""weir bench on a local path and on root://, with weir and with a stock server."""

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from harness import WEIR_BIN, Xrootd
from test_metrics import named, samples

CAMPAIGN = """
name = "both"
repeats = 2
[[system]]
name = "disk"
place = "{disk}"
[[system]]
name = "weir"
place = "{weir}"
[[streams]]
name = "large"
phases = ["write", "read", "random-read", "rewrite", "reread"]
file = "8MiB"
block = "256KiB"
streams = 2
window = [1, 3]
[[small]]
name = "small"
least = "0s"
clients = 3
files = 40
file = "3000B"
one_directory = [false, true]
"""


def bench(*arguments: str | Path, code: int = 0, cwd: Path | None = None) -> subprocess.CompletedProcess:
    done = subprocess.run([WEIR_BIN, "bench", *map(str, arguments)], cwd=cwd, capture_output=True, text=True, timeout=280)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done


@pytest.fixture
def campaign(node, place, fs, tmp_path) -> Path:
    fs("mkdir", f"{place}/bench").ok()
    (tmp_path / "disk").mkdir()
    file = tmp_path / "campaign.toml"
    file.write_text(CAMPAIGN.format(disk=tmp_path / "disk", weir=f"{node.url}{place}/bench"))
    return file


def cells(summary: dict) -> dict[tuple[str, str, str], dict]:
    """By work, phase and system; of several combinations of parameters, the last."""
    return {(row["work"], row["phase"], cell["system"]): cell for row in summary["rows"] for cell in row["cells"]}


COLD = """
name = "cold"
repeats = 1
[[system]]
name = "weir"
place = "{url}"
empty_caches = {command}
[[streams]]
name = "large"
phases = ["write", "after-write", "read"]
file = "8MiB"
block = "256KiB"
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can empty the page cache")
def test_a_command_empties_the_caches_of_a_server_before_cold_reads(own_node, tmp_path):
    config = tmp_path / "weir.toml"
    config.write_text('limits.recent = "64MiB"\n')
    node = own_node("--config", str(config), "--metrics", "127.0.0.1:0")
    file = tmp_path / "campaign.toml"

    def measured(command: list[str], code: int) -> tuple[dict, str]:
        file.write_text(COLD.format(url=node.url, command=json.dumps(command)))
        done = bench("run", file, "--results", tmp_path / "-".join(command).replace("/", "_"), "--json", code=code)
        return cells(json.loads(done.stdout)), done.stdout

    def from_disk() -> float:
        return named(samples(node), "weir_recent_read_bytes_total", **{"from": "disk"})

    before = from_disk()
    found, _ = measured([str(WEIR_BIN), "drop-caches", "--data", str(node.data)], 0)
    assert "maybe-cached" not in found["large", "read", "weir"]["flags"]
    assert "maybe-cached" in found["large", "after-write", "weir"]["flags"]
    assert from_disk() - before >= 8 << 20, "the read of the disk"
    found, said = measured(["false"], 1)
    assert "ended-early" in found["large", "read", "weir"]["flags"] or ("large", "read", "weir") not in found, found
    assert "the command `false` of `empty_caches` failed" in said


def test_a_campaign_measures_both_and_leaves_nothing_behind(campaign, tmp_path, place, fs):
    done = bench("run", campaign, "--results", tmp_path / "results", "--json")
    found = cells(json.loads(done.stdout))
    assert len(found) == 2 * (5 + 5)
    for key, cell in found.items():
        assert len(cell["values"]) == 2 and min(cell["values"]) > 0, (key, cell)
        assert not {"wrong-data", "failures", "ended-early"} & set(cell["flags"]), (key, cell)
    assert os.listdir(tmp_path / "disk") == []
    assert fs("ls", f"{place}/bench").ok().out.strip() == ""
    trials = [json.loads(line) for line in (tmp_path / "results/trials.jsonl").read_text().splitlines()]
    assert len(trials) == 2 * 2 * 4
    for trial in trials:
        for phase in trial["phases"]:
            tally = phase["measured"]["tally"]
            expected = 2 * 8 * 1024 * 1024 if trial["work"] == "large" else 120 * 3000
            assert tally["bytes"] == (expected if phase["phase"] not in ("list", "stat", "remove") else 0), phase
            if phase["phase"] in ("read", "random-read", "reread"):
                assert tally["verified"] == expected
    table = bench("report", tmp_path / "results").stdout
    assert "large: file 8 MiB, block 256 KiB" in table and "random-read" in table and "[n]" in table


def test_a_phase_that_a_limit_cuts_makes_nothing_look_lost(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "c.toml").write_text(f"""
name = "cut"
repeats = 1
[[system]]
name = "disk"
place = "{tmp_path / "disk"}"
[[repeat]]
name = "jobs"
jobs = 2
files = 100
sizes = ["100B", "10KiB"]
operations = 100000
rate = 500
[[streams]]
name = "paced"
phases = ["write", "rewrite", "read", "random-write", "reread"]
file = "2MiB"
block = "64KiB"
files = 4
rate = "3MiB"
""")
    results = tmp_path / "results"
    found = cells(json.loads(bench("run", tmp_path / "c.toml", "--results", results, "--phase-limit", "1s", "--json").stdout))
    assert len(found) == 2 + 5
    for key, cell in found.items():
        assert not {"wrong-data", "lost", "failures", "ended-early"} & set(cell["flags"]), (key, cell)
    trials = [json.loads(line) for line in (results / "trials.jsonl").read_text().splitlines()]
    tallies = {phase["phase"]: phase["measured"]["tally"] for trial in trials for phase in trial["phases"]}
    assert tallies["mixed"]["cut"] == 2 and tallies["write"]["cut"] == 1
    # The unfinished file is read up to its present end.
    assert tallies["read"]["left_out"] >= 1 and tallies["reread"]["verified"] > 0
    assert os.listdir(tmp_path / "disk") == []


@pytest.mark.paced  # processors that are all busy would have latencies of their own
def test_latency_at_a_fixed_rate_is_the_same_with_any_window(node, place, fs, tmp_path):
    fs("mkdir", f"{place}/paced").ok()
    (tmp_path / "c.toml").write_text(f"""
name = "paced"
repeats = 1
[[system]]
name = "weir"
place = "{node.url}{place}/paced"
[[streams]]
name = "paced"
phases = ["write", "read"]
file = "1MiB"
block = "64KiB"
rate = "1MiB"
window = [1, 4]
""")
    found = json.loads(bench("run", tmp_path / "c.toml", "--results", tmp_path / "results", "--json").stdout)
    assert len(found["rows"]) == 4
    # A request is due each 62 ms.
    for row in found["rows"]:
        assert row["cells"][0]["latency_us"][0] < 40_000, row


def test_a_dry_run_touches_nothing(campaign, tmp_path):
    said = bench("run", campaign, "--dry-run").stdout
    assert "16 trials" in said and "large" in said and "on weir" in said
    assert os.listdir(tmp_path / "disk") == [] and not (tmp_path / "weir-bench-results").exists()


def test_a_directory_that_is_missing_is_named_with_the_command_that_makes_it(node, place, fs, tmp_path):
    url = f"{node.url}{place}/missing"
    cases = ((url, f"weir mkdir -p {url}"), (tmp_path / "missing", f"mkdir -p {tmp_path}/missing"))
    for number, (where, make) in enumerate(cases):
        file = tmp_path / "c.toml"
        streams = '[[streams]]\nname = "s"\nphases = ["write"]\nfile = "64KiB"\nblock = "64KiB"\n'
        file.write_text(f'name = "c"\nrepeats = 1\n[[system]]\nname = "a"\nplace = "{where}"\n{streams}')
        checked = bench("run", file, "--dry-run", code=11)
        assert "1 trial; " in checked.stdout and f"a: the directory `{where}` does not exist" in checked.stderr and make in checked.stderr
        assert make in bench("run", file, "--results", tmp_path / f"results{number}", code=11).stderr
        assert make in bench("study", "E", "--dry-run", "--scale", "100000", f"a={where}", code=11).stderr
    assert not (tmp_path / "missing").exists() and "missing" not in fs("ls", place).ok().out
    # A server that does not answer may be there when the run begins.
    file.write_text(file.read_text().replace(str(tmp_path / "missing"), "root://127.0.0.1:1//x"))
    assert "warning: a: cannot check" in bench("run", file, "--dry-run").stderr


def test_a_run_that_was_stopped_goes_on_where_it_was(campaign, tmp_path):
    results = tmp_path / "results"
    run = subprocess.Popen([WEIR_BIN, "bench", "run", campaign, "--results", results], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    lines = results / "trials.jsonl"
    end = time.monotonic() + 60
    while time.monotonic() < end and (not lines.exists() or len(lines.read_text().splitlines()) < 3):
        time.sleep(0.02)
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=30)
    before = lines.read_text()
    assert 3 <= len(before.splitlines()) < 16
    assert os.listdir(tmp_path / "disk") == []
    bench("run", campaign, "--results", results)
    after = lines.read_text()
    assert after.startswith(before) and len(after.splitlines()) == 16
    trials = [json.loads(line)["trial"] for line in after.splitlines()]
    assert len({json.dumps(trial) for trial in trials}) == 16
    # The same folder is refused for another campaign.
    campaign.write_text(campaign.read_text().replace("repeats = 2", "repeats = 3"))
    assert "another campaign" in bench("run", campaign, "--results", results, code=2).stderr


def test_quick_on_a_stock_server_and_a_disk(base, tmp_path):
    with Xrootd(base / "bench-stock") as peer:
        done = bench("quick", tmp_path, f"{peer.url}/", "--time", "1s", "--results", tmp_path / "results")
    assert "large files" in done.stdout and "GB/s" in done.stdout or "MB/s" in done.stdout
    assert "no figure" not in done.stdout


def test_quick_makes_the_directory_that_it_is_given(node, place, fs, tmp_path):
    new = [tmp_path / "new" / "disk", f"{node.url}{place}/new/server"]
    done = bench("quick", *new, "--time", "1s", "--results", tmp_path / "results")
    assert "large files" in done.stdout and "no figure" not in done.stdout
    assert os.listdir(new[0]) == [] and fs("ls", f"{place}/new/server").ok().out.strip() == ""


def test_quick_keeps_each_run_in_a_folder_with_its_date(tmp_path):
    (tmp_path / "disk").mkdir()
    for _ in range(2):
        bench("quick", tmp_path / "disk", "--time", "1s", cwd=tmp_path)
        time.sleep(1.1)
    runs = sorted((tmp_path / "weir-bench-results").iterdir())
    assert len(runs) == 2 and all(re.fullmatch(r"quick-\d{8}t\d{6}z", run.name) for run in runs), runs
    assert all((run / "run.json").exists() and (run / "report.html").exists() for run in runs)
    assert list((tmp_path / "disk").iterdir()) == []


def test_what_cannot_be_done_is_said_before_anything_is_written(campaign, tmp_path):
    text = campaign.read_text()

    def said(*change: str, code: int) -> str:
        campaign.write_text(text.replace(*change))
        results = tmp_path / f"results-{len(os.listdir(tmp_path))}"
        refused = bench("run", campaign, "--results", results, code=code)
        assert code != 2 or not results.exists()
        return refused.stderr

    assert "blok" in said("block =", "blok =", code=2)
    assert "gopher" in said(str(tmp_path / "disk"), "gopher://x/", code=2)
    assert "room" in said('file = "8MiB"', 'file = "900TiB"', code=14)
    assert "No such file" in said(str(tmp_path / "disk"), str(tmp_path / "missing"), code=11)
    start = text.index("root://")
    server = text[start : text.index("//", start + len("root://"))]
    assert "cannot connect" in said(server, "root://127.0.0.1:1", code=15)
    assert os.listdir(tmp_path / "disk") == []
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/file").write_text("x")
    campaign.write_text(text)
    assert "not empty" in bench("run", campaign, "--results", tmp_path / "precious", code=2).stderr
    assert (tmp_path / "precious/file").read_text() == "x"


def test_a_system_that_changes_bytes_gets_no_figure(campaign, tmp_path):
    """A file changes behind the system's back between writing and reading."""
    text = campaign.read_text()
    start, end = text.index('[[system]]\nname = "weir"'), text.index("[[streams]]")
    text = text[:start] + text[end : text.index("[[small]]")]
    campaign.write_text(text.replace("repeats = 2", "repeats = 1").replace('"8MiB"', '"256MiB"').replace("[1, 3]", "1"))
    run = subprocess.Popen([WEIR_BIN, "bench", "run", campaign, "--results", tmp_path / "results"], stdout=subprocess.PIPE, text=True)
    end = time.monotonic() + 60
    done = False
    while not done and time.monotonic() < end:
        for file in (tmp_path / "disk").glob("*/s000001/f000000"):
            if file.stat().st_size > 9_000_000:
                with open(file, "r+b") as changed:
                    changed.seek(5_000_000)
                    changed.write(b"not what was written")
                done = True
    out = run.communicate(timeout=60)[0]
    assert done and run.returncode == 1, out
    assert "no figure: reads returned wrong data" in out
    complaints = (tmp_path / "results/trials.jsonl").read_text()
    assert "s000001/f000000: wrong data from byte 5000" in complaints


STAGES = """
name = "stages"
repeats = 2
[[system]]
name = "disk"
place = "{disk}"
[[system]]
name = "weir"
place = "{weir}"
disk = "disk"
[[client]]
name = "client"
threads = 2
block = "256KiB"
seconds = 1
[[streams]]
name = "large"
phases = ["write", "read"]
file = "8MiB"
block = "256KiB"
streams = 2
"""


def test_figures_stand_beside_what_the_stages_below_them_do(campaign, node, place, tmp_path):
    campaign.write_text(STAGES.format(disk=tmp_path / "disk", weir=f"{node.url}{place}/bench"))
    done = bench("run", campaign, "--results", tmp_path / "results", "--json")
    found = cells(json.loads(done.stdout))
    alone = {phase: cell["median"] for (work, phase, system), cell in found.items() if system == "this client"}
    assert set(alone) == {"make", "make-and-sum", "check", "check-and-sum"} and min(alone.values()) > 0
    for phase, of_path, of_root in (("write", "make", "make-and-sum"), ("read", "check", "check-and-sum")):
        disk, weir = found["large", phase, "disk"], found["large", phase, "weir"]
        assert {c["stage"]: c["rate"] for c in disk["ceilings"]} == {"client": alone[of_path]}
        rates = {c["stage"]: c["rate"] for c in weir["ceilings"]}
        assert rates == {"client": alone[of_root], "disk": disk["median"]}
        for ceiling in weir["ceilings"]:
            assert ceiling["share"] == pytest.approx(weir["median"] / ceiling["rate"])
    table = bench("report", tmp_path / "results").stdout
    assert "% of the disk" in table and "% of the client" in table and "this client" in table


DAQ = """
name = "daq"
repeats = 1
[[system]]
name = "weir"
place = "{weir}"
[[daq]]
name = "building"
recorders = 2
files = 2
file = "24MiB"
block = "1MiB"
rate = "{rate}"
buffer = "{buffer}"
followers = 2
copiers = 1
copy_to = "{copies}"
window = 3
"""


AT_ITS_RATE = pytest.param("20MB", "64MiB", False, marks=pytest.mark.paced)  # it measures the rate that it has set


@pytest.mark.parametrize("rate, buffer, missed", [AT_ITS_RATE, ("20GB", "1MiB", True)])
def test_recorders_followers_and_copies(node, place, fs, tmp_path, rate, buffer, missed):
    fs("mkdir", f"{place}/daq").ok()
    (tmp_path / "copies").mkdir()
    campaign = tmp_path / "daq.toml"
    campaign.write_text(DAQ.format(weir=f"{node.url}{place}/daq", rate=rate, buffer=buffer, copies=tmp_path / "copies"))
    found = cells(json.loads(bench("run", campaign, "--results", tmp_path / "results", "--json").stdout))
    trials = [json.loads(line) for line in (tmp_path / "results/trials.jsonl").read_text().splitlines()]
    tallies = {phase["phase"]: phase["measured"]["tally"] for phase in trials[0]["phases"]}
    all_bytes = 2 * 2 * 24 * 1024 * 1024
    assert {role: tally["bytes"] for role, tally in tallies.items()} == {
        "record": all_bytes,
        "follow": 2 * all_bytes,
        "copy-out": all_bytes,
    }
    assert tallies["follow"]["verified"] == 2 * all_bytes and tallies["copy-out"]["verified"] == all_bytes
    record = found["building", "record", "weir"]
    assert ("missed-deadlines" in record["flags"]) == missed == (record["missed"] > 0)
    if not missed:  # at the requested pace: two files of each after the other
        assert record["median"] == pytest.approx(40e6, rel=0.1)
    assert os.listdir(tmp_path / "copies") == [] and fs("ls", f"{place}/daq").ok().out.strip() == ""


JOBS = """
name = "jobs"
repeats = 1
[[system]]
name = "disk"
place = ["{first}", "{second}"]
[[system]]
name = "weir"
place = "{weir}"
[[repeat]]
name = "job"
jobs = 3
files = 60
sizes = ["10B", "300KiB"]
operations = 300
[[robust]]
name = "robust"
clients = 8
files = 20
operations = 50
[[placement]]
name = "placement"
clients = 2
file = "2MiB"
[[streams]]
name = "iozone"
phases = [
    "write", "rewrite", "read", "reread", "random-read", "random-write", "backward-read", "record-rewrite", "stride-read",
    "fwrite", "frewrite", "fread", "freread",
]
file = "1MiB"
block = "64KiB"
[[streams]]
name = "two"
phases = ["write", "read"]
file = "1MiB"
block = "64KiB"
files = 2
targets = [1, 2]
"""


@pytest.mark.long
def test_jobs_robust_placement_and_iozones_thirteen(node, place, fs, tmp_path):
    fs("mkdir", f"{place}/bench").ok()
    disks = [tmp_path / name for name in ("first", "second")]
    for disk in disks:
        disk.mkdir()
    file = tmp_path / "jobs.toml"
    file.write_text(JOBS.format(first=disks[0], second=disks[1], weir=f"{node.url}{place}/bench"))
    # The protocol has no fwrite: the run reports that, and ends as incomplete.
    found = cells(json.loads(bench("run", file, "--results", tmp_path / "results", "--json", code=1).stdout))
    unsupported = {key for key, cell in found.items() if "unsupported" in cell["flags"]}
    assert unsupported == {("iozone", phase, "weir") for phase in ("fwrite", "frewrite", "fread", "freread")}
    for key, cell in found.items():
        if key not in unsupported:
            assert not {"wrong-data", "failures", "ended-early", "lost"} & set(cell["flags"]), (key, cell)
            assert cell["lost"] == 0 and cell["failed"] == 0, (key, cell)
    elapsed, user, system = found["job", "mixed", "disk"]["times_s"]
    assert elapsed > 0 and user + system > 0
    assert {key[1] for key in found if key[0] == "placement"} == {"write", "read", "read-others"}
    assert found["placement", "read-others", "weir"]["served"] == {f"127.0.0.1:{node.port}": 1.0}
    assert found["placement", "read", "disk"]["served"] == {}
    # Two places: only the operations that both have.
    assert ("two", "read", "weir") in found and all(os.listdir(disk) == [] for disk in disks)
    assert "elapsed" in bench("report", tmp_path / "results").stdout


FAILURE = """
name = "killed"
repeats = 1
[[system]]
name = "weir"
place = "{place}"
fail = ["kill", "-9", "{pid}"]
restore = ["{restore}"]
[[failure]]
name = "killed"
writers = 2
readers = 1
file = "3MiB"
block = "256KiB"
seconds = 12
fail_at = 4
restore_at = 6
"""


@pytest.mark.alone  # how long nothing is written depends on who else uses disk and processors
def test_a_server_is_killed_and_all_that_was_acknowledged_is_there(own_node, tmp_path):
    server = own_node()
    restart = tmp_path / "restart"
    log = tmp_path / "again.log"
    pid = tmp_path / "again.pid"
    command = [WEIR_BIN, "serve", "--data", str(server.data), "--listen", f"127.0.0.1:{server.port}"]
    restart.write_text(f"#!/bin/sh\n{' '.join(map(str, command))} > {log} 2>&1 < /dev/null &\necho $! > {pid}\n")
    restart.chmod(0o755)
    file = tmp_path / "failure.toml"
    file.write_text(FAILURE.format(place=f"root://127.0.0.1:{server.port}//", pid=server.process.pid, restore=restart))
    try:
        found = cells(json.loads(bench("run", file, "--results", tmp_path / "results", "--json").stdout))
    finally:
        if pid.exists():
            os.kill(int(pid.read_text()), signal.SIGTERM)
    written, checked = found["killed", "write", "weir"], found["killed", "check", "weir"]
    assert checked["lost"] == 0 and set(checked["flags"]) <= {"few-repeats", "brief"}, checked
    [recovery] = written["recoveries"]
    # The client reconnects, so no operation need fail. But for two of the eight seconds after the kill nothing was written. It certainly
    # continued; its speed depends on the disk.
    assert 1 <= recovery["still_s"] <= 6, written
    [trial] = [json.loads(line) for line in (tmp_path / "results/trials.jsonl").read_text().splitlines()]
    assert [(fault["what"], fault["error"]) for fault in trial["phases"][0]["faults"]] == [("fail", None), ("restore", None)]
    done = {phase["phase"]: phase["measured"]["tally"] for phase in trial["phases"]}
    assert done["check"]["verified"] > 0 and done["check"]["verified"] % (3 << 20) == 0
    assert done["check"]["verified"] <= done["write"]["bytes"]
    assert trial["ended"] is None


def test_a_command_that_breaks_nothing_gives_no_figure(own_node, tmp_path):
    server = own_node()
    file = tmp_path / "failure.toml"
    text = FAILURE.format(place=f"root://127.0.0.1:{server.port}//", pid=server.process.pid, restore="true")
    file.write_text(text.replace('["kill", "-9"', '["false"').replace("seconds = 12", "seconds = 5").replace("restore_at = 6", ""))
    table = bench("run", file, "--results", tmp_path / "results", code=1).stdout
    assert "no figure" in table and "ended before all work was done" in table


def test_who_opens_file_after_file_stays_connected(own_node, tmp_path):
    """As any persistent client does: otherwise the bench would measure a new connection for each file."""
    server = own_node("--metrics", "127.0.0.1:0")
    before = named(samples(server), "weir_connections_accepted_total")
    (tmp_path / "campaign.toml").write_text(
        f"""
name = "many"
repeats = 1
[[system]]
name = "weir"
place = "{server.url}"
[[small]]
name = "small"
least = "0s"
clients = 2
files = 100
file = "4KiB"
"""
    )
    bench("run", tmp_path / "campaign.toml", "--results", tmp_path / "results")
    assert 2 <= named(samples(server), "weir_connections_accepted_total") - before < 40
