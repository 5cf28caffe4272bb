"""Foreign tools on the same work: weir bench does not grade itself."""

import json
import shutil
import statistics
import subprocess
import time
from pathlib import Path

import pytest
from harness import WEIR_BIN
from ports import free_port

# This machine also runs other things, and the speed of loopback follows its processors: two runs of the same tool differ by 20 %. The tools
# alternate, and their medians must agree within the noise that remains after five rounds.
TURNS = 5
TOLERANCE = 0.4


def listening(command: list[str | Path], word: str) -> tuple[subprocess.Popen, str]:
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    end = time.monotonic() + 20
    while time.monotonic() < end:
        line = process.stdout.readline()
        if word in line:
            return process, line
        assert line or process.poll() is None, command
    raise AssertionError(f"{command[0]} does not listen")


@pytest.mark.alone  # it compares rates
@pytest.mark.parametrize("flows", [pytest.param(1, marks=pytest.mark.long), 6])
def test_flows_agree_with_iperf3(tmp_path, flows):
    if not shutil.which("iperf3"):
        pytest.skip("no iperf3 here (scripts/setup.sh test)")
    flows_server, said = listening([WEIR_BIN, "bench", "flows", "--listen", "127.0.0.1:0"], "listening on ")
    address = said.removeprefix("listening on ").strip()
    # Before version 3.16, iperf3 does all flows in one thread. So several flows are compared as separate processes, on both sides.
    ports = [str(free_port()) for _ in range(flows)]
    peers = [listening(["iperf3", "-s", "-B", "127.0.0.1", "-p", port, "--forceflush"], "Server listening")[0] for port in ports]

    def ours(turn: int) -> float:
        file, results = tmp_path / "campaign.toml", tmp_path / f"results-{turn}"
        file.write_text(f"""
            name = "flows"
            repeats = 1
            [[system]]
            name = "loopback"
            place = "{tmp_path}"
            peer = "{address}"
            [[network]]
            name = "flows"
            directions = ["to"]
            flows = {flows}
            processes = "each"
            seconds = 1
        """)
        command = [WEIR_BIN, "bench", "run", file, "--results", results, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        [row] = json.loads(done.stdout)["rows"]
        return row["cells"][0]["median"]

    def theirs(_: int) -> float:
        commands = [["iperf3", "-c", "127.0.0.1", "-p", port, "-t", "1", "-J"] for port in ports]
        clients = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
        received = [json.loads(client.communicate(timeout=60)[0])["end"]["sum_received"] for client in clients]
        return sum(one["bytes"] / one["seconds"] for one in received)

    try:
        rates = {ours: [], theirs: []}
        for turn in range(TURNS):
            for tool in (ours, theirs) if turn % 2 else (theirs, ours):
                rates[tool].append(tool(turn))
    finally:
        for process in (flows_server, *peers):
            process.terminate()
            process.wait(20)
    ratio = statistics.median(rates[ours]) / statistics.median(rates[theirs])
    # Slower would mean that the generator is the limit. How much faster depends on the other tool's own costs, which have no tight bound
    # here.
    assert 1 - TOLERANCE < ratio < 2, (ratio, rates[ours], rates[theirs])


class Server:
    """`iperf3 -s` on loopback."""

    def __init__(self):
        self.port = str(free_port())
        self.process, _ = listening(["iperf3", "-s", "-B", "127.0.0.1", "-p", self.port, "--forceflush"], "Server listening")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(20)


@pytest.fixture
def network_server():
    """The address of a `weir bench flows`."""
    process, said = listening([WEIR_BIN, "bench", "flows", "--listen", "127.0.0.1:0"], "listening on ")
    yield said.removeprefix("listening on ").strip()
    process.terminate()
    process.wait(20)


def run_beside(tmp_path: Path, network_server: str, port: str, work: str) -> tuple[subprocess.CompletedProcess, list[dict]]:
    """A campaign with iperf3 beside our own flows, and its trials."""
    if not shutil.which("iperf3"):
        pytest.skip("no iperf3 here (scripts/setup.sh test)")
    file, results = tmp_path / "campaign.toml", tmp_path / "results"
    file.write_text(f"""
        name = "beside"
        repeats = 1
        [[system]]
        name = "loopback"
        place = "{tmp_path}"
        peer = "{network_server}"
        iperf3 = "127.0.0.1:{port}"
        [[network]]
        name = "flows"
        beside = ["iperf3"]
        {work}
    """)
    command = [WEIR_BIN, "bench", "run", file, "--results", results, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return done, [json.loads(line) for line in (results / "trials.jsonl").read_text().splitlines()]


@pytest.mark.alone  # it compares rates
def test_iperf3_stands_beside_our_flows(tmp_path, network_server):
    with Server() as server:
        done, trials = run_beside(tmp_path, network_server, server.port, "flows = [1, 6]\nseconds = 1")
    assert done.returncode == 0, done.stderr
    rows = {(dict(row["parameters"])["flows"], row["phase"]): row["cells"][0] for row in json.loads(done.stdout)["rows"]}
    phases = ["to", "to by iperf3", "from", "from by iperf3"]
    assert sorted(rows) == sorted((flows, phase) for flows in ("1", "6") for phase in phases)
    assert [[phase["phase"] for phase in trial["phases"]] for trial in trials] == [phases, phases]
    for (flows, phase), cell in rows.items():
        ours = rows[flows, phase.removesuffix(" by iperf3")]["median"]
        # Before version 3.16, iperf3 has one thread for all six; ours have one each.
        apart = 3 if flows == "1" else 12
        assert ours / apart < cell["median"] < ours * 3, (flows, phase, ours, cell)
        assert not cell["ceilings"], (flows, phase, cell)
    for phase in (phase for trial in trials for phase in trial["phases"] if "iperf3" in phase["phase"]):
        # By iperf3's own clock, without its start and the exchange at the end.
        assert 0.9 < phase["measured"]["wall_s"] < 2, phase["phase"]
        assert phase["measured"]["client_cpu_s"] > 0 and not phase["measured"]["tally"].get("network")


@pytest.mark.paced  # it measures the rates that it has set
def test_iperf3_has_the_rates_and_directions_of_our_flows(tmp_path, network_server):
    work = """
        protocols = ["tcp", "udp"]
        directions = ["to", "from", "both"]
        flows = 2
        rate = "1MB"
        seconds = 1
    """
    with Server() as server:
        done, trials = run_beside(tmp_path, network_server, server.port, work)
    assert done.returncode == 0, done.stderr
    found = {(dict(trial["parameters"])["protocol"], phase["phase"]): phase for trial in trials for phase in trial["phases"]}
    assert len(found) == 2 * 3 * 2
    for (protocol, phase), record in found.items():
        rate = record["measured"]["tally"]["bytes"] / record["measured"]["wall_s"]
        asked = 4e6 if phase.startswith("both") else 2e6
        assert 0.8 * asked < rate < 1.1 * asked, (protocol, phase, rate)


def test_an_iperf3_that_is_busy_or_absent_ends_the_trial(tmp_path, network_server):
    def ended(name: str, port: str) -> str:
        (tmp_path / name).mkdir()
        done, [trial] = run_beside(tmp_path / name, network_server, port, "seconds = 1")
        assert done.returncode != 0
        assert [phase["phase"] for phase in trial["phases"]] == ["to", "to by iperf3"], trial
        return trial["ended"]

    with Server() as server:
        command = ["iperf3", "-c", "127.0.0.1", "-p", server.port, "-t", "60", "-b", "1M", "--forceflush"]
        long = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            while "sec" not in (line := long.stdout.readline()):
                assert line, "the other test does not begin"
            why = ended("busy", server.port)
        finally:
            long.terminate()
            long.wait(20)
    assert "to by iperf3" in why and "127.0.0.1" in why and server.port in why and "busy" in why, why
    why = ended("absent", str(free_port()))
    assert "Connection refused" in why, why
