"""weir bench on several machines: agents, watchers, live views. Here they are all processes of this machine."""

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness import WEIR_BIN
from test_bench_network import NetworkServer

CAMPAIGN = """
name = "shared"
repeats = 1
[[system]]
name = "disk"
place = "{disk}"
[[system]]
name = "weir"
place = "{weir}"
[[streams]]
name = "large"
phases = ["write", "read", "random-read"]
file = "4MiB"
block = "256KiB"
streams = 3
chunks = 2
[[small]]
name = "small"
least = "0s"
clients = 5
files = 20
file = "3000B"
one_directory = [false, true]
[[daq]]
name = "daq"
recorders = 3
files = 2
file = "4MiB"
block = "256KiB"
followers = 2
copiers = 1
copy_to = "{copies}"
"""

SLOW = """
name = "slow"
repeats = {repeats}
[[system]]
name = "disk"
place = "{disk}"
[[streams]]
name = "large"
phases = ["write", "read"]
file = "{file}"
block = "64KiB"
streams = 4
rate = "2MiB"
"""


ASKING = """
name = "asking"
repeats = 1
[[system]]
name = "disk"
place = "{disk}"
[[analysis]]
name = "yesterday"
recording = "{recording}"
[[streams]]
name = "beside"
phases = ["write"]
file = "4MiB"
block = "1MiB"
beside = ["fio"]
"""

FLOWS = """
name = "flows"
repeats = 1
[[system]]
name = "one"
place = "{disk}"
peer = "{one}"
token_file = "{token}"
[[system]]
name = "two"
place = "{disk}"
peer = "{two}"
token_file = "{token}"
[[network]]
name = "flows"
directions = ["to", "from"]
processes = ["one", "each"]
flows = 4
at_once = [false, true]
seconds = 1
"""

RECORDING = """\
94,Open,1000.000000000,root://h//a.root?x=1;16;0;0,1000.100000000,[SUCCESS],
94,Stat,1000.150000000,false;0,1000.160000000,[SUCCESS],9000;0;0;0;0;0;;;
94,Read,1000.200000000,4000;1000;0,1000.300000000,[SUCCESS],1000
94,Close,1002.000000000,0,1002.000100000,[SUCCESS],
"""


@pytest.fixture
def token(tmp_path) -> Path:
    file = tmp_path / "token"
    subprocess.run([WEIR_BIN, "bench", "token", file], check=True, capture_output=True)
    return file


@pytest.fixture
def disk(tmp_path) -> Path:
    (tmp_path / "disk").mkdir()
    return tmp_path / "disk"


class Run:
    """A `weir bench run` that others join."""

    def __init__(self, campaign: Path, token: Path, *options: str, agents: int = 0, results: Path | None = None):
        number = time.monotonic_ns()
        self.results = results or campaign.parent / f"results-{number}"
        command = [WEIR_BIN, "bench", "run", campaign, "--listen", "127.0.0.1:0", "--token-file", token, "--json"]
        command += ["--agents", agents, "--results", self.results, *options]
        self.log = campaign.parent / f"said-{number}"
        with open(self.log, "w") as log:
            self.process = subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, stderr=log, text=True)
        self.address = self.hears(r"join at (127\.0\.0\.1:\d+)")

    @property
    def said(self) -> str:
        return self.log.read_text()

    def hears(self, pattern: str, seconds: float = 60) -> str:
        """Waits until stderr contains this."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := re.search(pattern, self.said):
                return found.group(1) if found.groups() else found.group()
            assert self.process.poll() is None, (self.process.returncode, self.said, self.process.stdout.read())
            time.sleep(0.02)
        raise AssertionError((pattern, self.said))

    def end(self, code: int = 0, seconds: float = 120) -> dict:
        """Waits for its end; returns the summary."""
        try:
            out = self.process.communicate(timeout=seconds)[0]
        finally:
            self.process.kill()
        assert self.process.returncode == code, (self.process.returncode, out, self.said)
        return json.loads(out) if out.strip() else {}

    def trials(self) -> list[dict]:
        return [json.loads(line) for line in (self.results / "trials.jsonl").read_text().splitlines()]

    def phase_begins(self, files: int, folder: Path) -> None:
        """Waits until that many files are being written."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if len([file for file in folder.rglob("f*") if file.is_file()]) >= files:
                return
            time.sleep(0.02)
        raise AssertionError(list(folder.rglob("*")))


def agent(run: Run | str, token: Path, *options: str) -> subprocess.Popen:
    address = run if isinstance(run, str) else run.address
    command = [WEIR_BIN, "bench", "agent", "--join", address, "--token-file", str(token), *options]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


@contextmanager
def agents(run: Run, token: Path, *names: str) -> Iterator[list[subprocess.Popen]]:
    started = [agent(run, token, "--name", name) for name in names]
    try:
        yield started
    finally:
        for one in started:
            one.kill()
            one.wait()


def ends(process: subprocess.Popen, code: int, seconds: float = 40) -> str:
    said = process.communicate(timeout=seconds)[1]
    assert process.returncode == code, (process.returncode, said)
    return said


def sums(trials: list[dict]) -> dict:
    """The work of each phase, over all agents."""
    found = {}
    for trial in trials:
        assert trial["ended"] is None, trial
        for phase in trial["phases"]:
            tally = phase["measured"]["tally"]
            assert (tally["wrong"], tally["failures"]) == (0, {}), phase
            key = (trial["system"], trial["work"], str(trial["parameters"]), phase["phase"])
            found[key] = (tally["operations"], tally["bytes"], tally["verified"])
    return found


def test_agents_do_together_what_one_machine_does(node, place, fs, tmp_path, disk, token):
    fs("mkdir", f"{place}/bench").ok()
    (tmp_path / "copies").mkdir()
    campaign = tmp_path / "campaign.toml"
    campaign.write_text(CAMPAIGN.format(disk=disk, weir=f"{node.url}{place}/bench", copies=tmp_path / "copies"))
    alone = Run(campaign, token)
    alone.end()
    run = Run(campaign, token, agents=2)
    with agents(run, token, "one", "two") as both:
        summary = run.end()
        for one in both:
            assert "the campaign is over" in ends(one, 0)
    assert sums(run.trials()) == sums(alone.trials())
    for row in summary["rows"]:
        for cell in row["cells"]:
            assert not {"lost-agents", "failures", "wrong-data"} & set(cell["flags"]), (row, cell)
    for trial in run.trials():
        for phase in trial["phases"]:
            machines = phase["machines"]
            assert machines["missing"] == []
            if phase["phase"] in ("follow", "copy-out"):
                assert machines["agents"] == []
                continue
            assert [one["name"] for one in machines["agents"]] == ["one", "two"]
            did = [role for one in machines["agents"] for role in one["roles"] if role["role"] in ("", phase["phase"])]
            tally = phase["measured"]["tally"]
            assert sum(role["bytes"] for role in did) == tally["bytes"] and min(role["operations"] for role in did) > 0
            assert max(role["wall_s"] for role in did) == phase["measured"]["wall_s"]
            assert all(one["samples"] and one["round_trip_us"] < 1_000_000 for one in machines["agents"])
            if phase["phase"] != "list":  # which counts entries, not calls
                assert phase["measured"]["seconds"][-1]["bytes"] == tally["bytes"]
    assert list(disk.iterdir()) == [] and list((tmp_path / "copies").iterdir()) == []
    assert fs("ls", f"{place}/bench").ok().out.strip() == ""


CUT = """
name = "cut"
repeats = 1
[[system]]
name = "disk"
place = "{disk}"
[[robust]]
name = "robust"
clients = 2
files = 2000
sizes = ["100B", "4KiB"]
operations = 2000
rate = 300
[[small]]
name = "small"
least = "0s"
clients = 2
files = 1000
file = "100B"
one_directory = true
rate = 300
[[streams]]
name = "paced"
phases = ["write", "read"]
file = "2MiB"
block = "64KiB"
streams = 2
files = 4
rate = "3MiB"
"""


def test_agents_know_from_phase_to_phase_how_far_they_came(tmp_path, disk, token):
    campaign = tmp_path / "campaign.toml"
    campaign.write_text(CUT.format(disk=disk))
    run = Run(campaign, token, "--phase-limit", "1s", agents=2)
    with agents(run, token, "one", "two") as both:
        summary = run.end()
        for one in both:
            ends(one, 0)
    rows = {(row["work"], row["phase"]): row["cells"][0] for row in summary["rows"]}
    assert len(rows) == 3 + 5 + 2
    for key, cell in rows.items():
        assert not {"wrong-data", "lost", "failures", "ended-early"} & set(cell["flags"]), (key, cell)
    tallies = {(t["work"], p["phase"]): p["measured"]["tally"] for t in run.trials() for p in t["phases"]}
    for made in [("robust", "fill"), ("small", "create"), ("paced", "write")]:
        assert tallies[made]["cut"] == 2, tallies[made]
    assert tallies["robust", "read-back"]["verified"] > 0 and tallies["robust", "mixed"]["left_out"] > 0
    assert tallies["paced", "read"]["verified"] > 0
    assert list(disk.iterdir()) == []


def test_an_agent_that_is_killed_flags_the_figure_and_hangs_nothing(tmp_path, disk, token):
    campaign = tmp_path / "campaign.toml"
    campaign.write_text(SLOW.format(disk=disk, repeats=2, file="6MiB"))
    run = Run(campaign, token, agents=2)
    with agents(run, token, "stays", "dies") as (stays, dies):
        run.phase_begins(4, disk)
        time.sleep(1.2)
        dies.kill()
        summary = run.end()
        ends(stays, 0)
    assert "dies is lost: connection lost" in run.said
    first, second = run.trials()
    write, read = first["phases"]
    half, whole = 2 * 6 * 1024 * 1024, 4 * 6 * 1024 * 1024
    # The work of the remaining agent, whose files are right.
    assert write["measured"]["tally"]["bytes"] == half and write["machines"]["missing"] == ["dies (connection lost)"]
    assert read["measured"]["tally"]["verified"] == half and read["machines"]["missing"] == ["dies (connection lost)"]
    # The next trial is divided again: fewer agents do all of it.
    assert [phase["measured"]["tally"]["bytes"] for phase in second["phases"]] == [whole, whole]
    assert second["phases"][0]["machines"]["missing"] == ["dies (connection lost)"]
    for row in summary["rows"]:
        (cell,) = row["cells"]
        assert "lost-agents" in cell["flags"] and not {"failures", "ended-early", "wrong-data"} & set(cell["flags"])
        assert cell["missing"] == ["dies (connection lost)"]
    assert list(disk.iterdir()) == []


def test_a_silent_agent_is_lost_too(tmp_path, disk, token):
    campaign = tmp_path / "campaign.toml"
    campaign.write_text(SLOW.format(disk=disk, repeats=1, file="40MiB"))
    run = Run(campaign, token, agents=2)
    with agents(run, token, "stays", "sleeps") as (_, sleeps):
        run.phase_begins(4, disk)
        sleeps.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        run.hears("sleeps is lost: silent for 10 s", seconds=20)
        assert 8 < time.monotonic() - began < 14
        run.process.send_signal(signal.SIGINT)
        run.end(code=1)
        # It finds no coordinator when it continues, and ends.
        sleeps.send_signal(signal.SIGCONT)
        assert sleeps.wait(timeout=40) in (0, 15)


def test_when_all_are_gone_the_run_says_so_and_can_go_on_later(tmp_path, disk, token):
    campaign = tmp_path / "campaign.toml"
    campaign.write_text(SLOW.format(disk=disk, repeats=2, file="4MiB"))
    run = Run(campaign, token, agents=1)
    with agents(run, token, "only") as (only,):
        run.phase_begins(4, disk)
        only.kill()
        run.end(code=15)
    assert "all agents are lost" in run.said
    (trial,) = run.trials()
    assert "no agent is left: only (connection lost)" in trial["ended"]
    assert list(disk.iterdir()) == []
    again = Run(campaign, token, agents=2, results=run.results)
    with agents(again, token, "only", "another"):
        summary = again.end()
    trials = again.trials()
    assert [trial["trial"]["repeat"] for trial in trials] == [0, 0, 1], "the one that ended is done again, and then the other"
    for cell in (row["cells"][0] for row in summary["rows"]):
        assert len(cell["values"]) == 2 and not {"ended-early", "lost-agents"} & set(cell["flags"]), cell
    told = [[machine["name"] for machine in trial.get("settings", [])] for trial in trials]
    assert "only" in told[0] and "another" in told[1], told
    assert list(disk.iterdir()) == []


@pytest.mark.skipif(os.getuid() != 0, reason="a mount of its own for an agent: only root may")
def test_a_slow_agent_is_named_with_the_settings_that_set_it_apart(tmp_path, disk, token):
    """One of five agents has another mount of the place than the others. It is delayed for longer than the others take in all."""
    campaign = tmp_path / "campaign.toml"
    text = SLOW.format(disk=disk, repeats=1, file="8MiB").replace("streams = 4", "streams = 5").replace(', "read"]', "]")
    campaign.write_text(text)
    run = Run(campaign, token, agents=5)
    own = f'mount --bind {disk} {disk} && mount -o remount,bind,noatime {disk} && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", own, "-", WEIR_BIN, "bench", "agent", "--join", run.address, "--token-file", token]
    slow = subprocess.Popen([*command, "--name", "slow"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    run.hears("slow has joined")
    with agents(run, token, "a", "b", "c", "d"):
        run.phase_begins(4, disk)
        slow.send_signal(signal.SIGSTOP)
        time.sleep(5.5)
        slow.send_signal(signal.SIGCONT)
        summary = run.end()
    slow.wait(30)
    (cell,) = summary["rows"][0]["cells"]
    (outlier,) = cell["outliers"]
    assert outlier["agent"] == "slow" and outlier["ratio"] < 0.9 and "outlier-agents" in cell["flags"]
    (apart,) = (apart for apart in outlier["apart"] if apart["name"] == f"mount of {disk}")
    assert "noatime" in apart["own"] and "noatime" not in apart["others"], apart
    (unlike,) = (unlike for unlike in summary["unlike"] if unlike["name"] == f"mount of {disk}")
    assert [having["machines"] for having in unlike["values"]] == [["a", "b", "c", "d"], ["slow"]]
    page = (run.results / "report.html").read_text()
    assert "agent slow: x 0." in page and "Settings that differ" in page and "noatime" in page
    shown = subprocess.run([WEIR_BIN, "bench", "report", run.results], capture_output=True, text=True, check=True)
    assert f"unlike them, mount of {disk} is {apart['own']} instead of {apart['others']}" in shown.stdout, shown.stdout


def test_agents_end_when_the_coordinator_is_gone(tmp_path, disk, token):
    campaign = tmp_path / "campaign.toml"
    campaign.write_text(SLOW.format(disk=disk, repeats=1, file="60MiB"))
    run = Run(campaign, token, agents=2)
    with agents(run, token, "one", "two") as both:
        run.phase_begins(4, disk)
        run.process.kill()
        for one in both:
            said = ends(one, 15)
            assert "the coordinator is gone" in said and "work was stopped" in said
    sizes = [file.stat().st_size for file in disk.rglob("f*")]
    time.sleep(0.5)
    assert [file.stat().st_size for file in disk.rglob("f*")] == sizes


def test_who_has_no_right_to_join_is_told_before_anything_is_written(tmp_path, disk, token):
    campaign = tmp_path / "campaign.toml"
    campaign.write_text(SLOW.format(disk=disk, repeats=1, file="1MiB"))
    run = Run(campaign, token, agents=1)
    other = tmp_path / "other"
    subprocess.run([WEIR_BIN, "bench", "token", other], check=True, capture_output=True)
    said = ends(agent(run, other), 13)
    assert "another" in said and "token" in said, said
    other.chmod(0o644)
    assert "can read the token file" in ends(agent(run, other), 13)
    assert "the campaign has no system `tape`" in ends(agent(run, token, "--watch", "--as", "tape"), 13)
    assert list(disk.iterdir()) == [] and run.process.poll() is None
    with agents(run, token, "right") as (right,):
        run.end()
        ends(right, 0)


def test_an_agent_waits_for_its_coordinator_and_can_be_stopped(token):
    waits = agent("127.0.0.1:1", token)
    time.sleep(1)
    assert waits.poll() is None
    waits.send_signal(signal.SIGTERM)
    ends(waits, 0)


def test_files_and_tools_of_an_agent_are_used_where_it_allows_them(tmp_path, disk, token):
    """One campaign names a recording and one runs fio: a machine does neither unless its owner allows it."""
    (tmp_path / "campaign.toml").write_text(ASKING.format(disk=disk, recording=tmp_path / "recording.csv"))
    (tmp_path / "recording.csv").write_text(RECORDING)
    for options, refused in [
        ([], "--files"),
        (["--files", disk], "--files"),
        (["--files", tmp_path], "--tools"),
        (["--files", tmp_path, "--tools"], None),
    ]:
        run = Run(tmp_path / "campaign.toml", token, agents=1)
        one = agent(run, token, *map(str, options))
        try:
            run.end(code=0 if refused is None else 1)
        finally:
            one.kill()
            one.wait()
        ended = [trial["ended"] for trial in run.trials() if trial["ended"]]
        assert any(refused in why for why in ended) if refused else ended == [], (options, ended)
        assert list(disk.iterdir()) == []


@pytest.mark.long
def test_flows_go_from_each_agent_to_each_server(tmp_path, disk, token):
    campaign = tmp_path / "campaign.toml"
    with NetworkServer(tmp_path / "one", token=token) as one, NetworkServer(tmp_path / "two", token=token) as two:
        campaign.write_text(FLOWS.format(disk=disk, token=token, one=one.address, two=two.address))
        run = Run(campaign, token, agents=3)
        with agents(run, token, "a", "b", "c"):
            summary = run.end()
        found = set()
        for trial in run.trials():
            assert trial["ended"] is None, trial
            parameters = dict(map(tuple, trial["parameters"]))
            together = trial["system"] not in ("one", "two")
            for phase in trial["phases"]:
                outcomes = phase["measured"]["tally"]["network"]
                systems = ["one", "two"] if together else [trial["system"]]
                assert sorted(outcome["system"] for outcome in outcomes) == sorted(3 * systems), trial
                # Four flows over three agents: one of them has two.
                flows = [[flow["bytes"] for way in outcome["ways"] for flow in way["flows"]] for outcome in outcomes]
                assert sorted(map(len, flows)) == sorted([1, 1, 2] * len(systems)) and all(map(all, flows)), flows
                assert sum(map(sum, flows)) == phase["measured"]["tally"]["bytes"]
                assert [agent["name"] for agent in phase["machines"]["agents"]] == ["a", "b", "c"]
                found.add((phase["phase"], parameters["processes"], trial["system"]))
        assert len(found) == 2 * 2 * 3, found
        for row in summary["rows"]:
            for cell in row["cells"]:
                assert not {"failures", "ended-early", "lost-agents"} & set(cell["flags"]), cell
                if cell["network"]["systems"]:
                    # Each by the seconds of its own flows; together by the time until the last has reported its end.
                    added = sum(rate for _, rate in cell["network"]["systems"])
                    assert 0.2 * added < cell["median"] < 1.1 * added, cell
        other = tmp_path / "other-token"
        subprocess.run([WEIR_BIN, "bench", "token", other], check=True, capture_output=True)
        command = [WEIR_BIN, "bench", "run", campaign, "--listen", "127.0.0.1:0", "--token-file", other, "--agents", "1"]
        refused = subprocess.run([*map(str, command), "--results", str(tmp_path / "none")], capture_output=True, text=True, timeout=20)
    assert refused.returncode == 13 and "another token than the agents" in refused.stderr, (refused.returncode, refused.stderr)


@pytest.mark.alone  # it counts the CPU time of all processes of the name `weir`
@pytest.mark.parametrize("watched", ["by an agent", "here"])
@pytest.mark.parametrize("count", [0, 2])
def test_the_servers_cpu_time_stands_beside_the_figures(node, place, fs, tmp_path, disk, token, watched, count):
    fs("mkdir", f"{place}/bench").ok()
    campaign = tmp_path / "campaign.toml"
    # Long enough to read that the server's CPU time, counted in steps of 10 ms, is not 0.
    text = SLOW.format(disk=disk, repeats=1, file="256MiB").replace('rate = "2MiB"\n', "")
    processes = 'processes = ["weir"]\n' if watched == "here" else ""
    text = text.replace("[[streams]]", f'[[system]]\nname = "weir"\nplace = "{node.url}{place}/bench"\n{processes}[[streams]]')
    campaign.write_text(text)
    run = Run(campaign, token, *([] if processes else ["--watchers", "1"]), agents=count)
    names = [f"n{number}" for number in range(count)]
    watcher = agent(run, token, "--watch", "--as", "weir", "--process", "weir", "--name", "server") if not processes else None
    if watcher:
        run.hears("server is watched")
    with agents(run, token, *names):
        summary = run.end()
    if watcher:
        ends(watcher, 0)
    cells = {(row["phase"], cell["system"]): cell for row in summary["rows"] for cell in row["cells"]}
    for phase in ("write", "read"):
        assert cells[phase, "disk"]["server_cpu"] is None
        assert 0.01 < cells[phase, "weir"]["server_cpu"] < 60, cells[phase, "weir"]
    for trial in run.trials():
        servers = [phase["machines"]["servers"] for phase in trial["phases"]]
        if trial["system"] == "disk":
            assert servers == [[], []]
            continue
        for (server,), phase in zip(servers, trial["phases"], strict=True):
            assert (server["system"], server["is_whole"], server["processes"]) == ("weir", True, ["weir"])
            seconds = sum(sample["seconds"] for sample in server["samples"])
            # Requested and answered by messages, on a machine that also does everything else.
            assert phase["measured"]["wall_s"] - 0.5 <= seconds <= phase["measured"]["wall_s"] + 1.5
    table = subprocess.run([WEIR_BIN, "bench", "report", run.results], capture_output=True, text=True, check=True).stdout
    assert "s CPU/GB of the server" in table


def test_what_launch_prints_starts_agents(tmp_path, disk, token):
    """The lines for ssh, with an ssh and an scp that stay on this machine."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "ssh").write_text('#!/bin/sh\n[ "$1" = -n ] && shift\nhost=$1; shift\nmkdir -p "$HOME/$host"; cd "$HOME/$host" && exec "$@"\n')
    (tools / "scp").write_text('#!/bin/sh\nhost=${3%%:*}; mkdir -p "$HOME/$host"; exec cp -p "$2" "$HOME/$host/${3#*:}"\n')
    (tools / "weir").symlink_to(WEIR_BIN)
    for tool in ("ssh", "scp"):
        (tools / tool).chmod(0o755)
    campaign = tmp_path / "campaign.toml"
    campaign.write_text(SLOW.format(disk=disk, repeats=1, file="1MiB"))
    run = Run(campaign, token, agents=2)
    command = [WEIR_BIN, "bench", "launch", "--via", "ssh", "--join", run.address, "--token-file", token, "n1", "n2"]
    lines = subprocess.run([*map(str, command)], capture_output=True, text=True, check=True).stdout
    environment = os.environ | {"PATH": f"{tools}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    subprocess.run(["sh", "-e", "-c", lines], env=environment, check=True, capture_output=True, timeout=60)
    run.end()
    assert [one["name"] for one in run.trials()[0]["phases"][0]["machines"]["agents"]] == ["n1", "n2"]
    refused = subprocess.run([*map(str, command[:-2])], capture_output=True, text=True)
    assert refused.returncode == 2 and "hosts" in refused.stderr


def asks(url: str, path: str, method: str = "GET", key: str | None = None) -> dict:
    address, own = url.split("/#")
    head = {"Authorization": f"Bearer {own if key is None else key}"}
    with urllib.request.urlopen(urllib.request.Request(f"{address}/{path}", method=method, headers=head), timeout=10) as answer:
        return json.load(answer)


def steady(live: dict) -> bool:
    """Whether the page's last second shows both agents with their two streams of 2 MiB/s each."""
    both = live.get("agents", [])
    rates = [one["bytes"] == pytest.approx(4 << 20, rel=0.3) and 0 < one["cpu"] <= 1 and one["memory"] > 0 for one in both]
    return [one["name"] for one in both] == ["one", "two"] and all(rates)


def test_the_page_shows_all_machines_and_stops_the_run(tmp_path, disk, token):
    campaign = tmp_path / "campaign.toml"
    campaign.write_text(SLOW.format(disk=disk, repeats=1, file="120MiB"))
    run = Run(campaign, token, "--web", "127.0.0.1:0", "--watchers", "1", agents=2)
    url = run.hears(r"shown at (http://\S+)")
    assert asks(url, "live.json")["planned"] == 2
    watcher = agent(run, token, "--watch", "--as", "disk", "--name", "server")
    with agents(run, token, "one", "two") as both:
        run.phase_begins(4, disk)
        # A busy machine may be late for a second, but not for all of them.
        end, live = time.monotonic() + 40, {}
        while time.monotonic() < end and not steady(live):
            time.sleep(0.5)
            live = asks(url, "live.json")
        assert steady(live), live
        assert "large" in live["trial"] and live["phase"] == "write" and 1 <= live["elapsed_s"] < 60
        assert [(one["name"], one["system"]) for one in live["servers"]] == [("server", "disk")]
        with pytest.raises(urllib.error.HTTPError, match="401"):
            asks(url, "stop", "POST", key="guessed")
        time.sleep(0.5)
        assert run.process.poll() is None
        asks(url, "stop", "POST")
        run.end(code=1)
        for one in (*both, watcher):
            ends(one, 0)
    assert list(disk.iterdir()) == []


def test_a_key_stops_the_run_and_the_terminal_is_as_before(tmp_path, disk, token):
    """On a terminal: the table of all machines, and `q`."""
    campaign = tmp_path / "campaign.toml"
    campaign.write_text(SLOW.format(disk=disk, repeats=1, file="60MiB"))
    command = [WEIR_BIN, "bench", "run", campaign, "--listen", "127.0.0.1:0", "--token-file", token, "--agents", "2"]
    command += ["--results", tmp_path / "results"]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(str(WEIR_BIN), [*map(str, command)])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 140, 0, 0))
    before = termios.tcgetattr(terminal)[3]
    shown = b""

    def sees(pattern: str, seconds: float = 30) -> str:
        nonlocal shown
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := re.search(pattern, shown.decode(errors="replace")):
                return found.group(1)
            if select.select([terminal], [], [], 0.2)[0]:
                shown += os.read(terminal, 65536)
        raise AssertionError((pattern, shown))

    address = sees(r"join at (127\.0\.0\.1:\d+)")
    both = [agent(address, token, "--name", name) for name in ("one", "two")]
    try:
        sees(r"(q: stop)")
        sees(r"(one +[34]\.\d+ MB/s)")
        sees(r"(total +[789]\.\d+ MB/s)")
        assert not termios.tcgetattr(terminal)[3] & termios.ECHO
        os.write(terminal, b"xq")
        deadline = time.monotonic() + 30
        ended = 0
        while not ended and time.monotonic() < deadline:
            if select.select([terminal], [], [], 0.1)[0]:
                with contextlib.suppress(OSError):  # the other side is closed
                    shown += os.read(terminal, 65536)
            ended, status = os.waitpid(pid, os.WNOHANG)
        assert ended and os.waitstatus_to_exitcode(status) == 1, shown
        with contextlib.suppress(termios.error):
            assert termios.tcgetattr(terminal)[3] == before
    finally:
        for one in both:
            one.kill()
            one.wait()
        os.close(terminal)
    assert list(disk.iterdir()) == []
