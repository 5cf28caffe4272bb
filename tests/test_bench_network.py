"""weir bench's flows between two machines: the real binary, on loopback and over a throttled link between network namespaces."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from harness import WEIR_BIN, of_processes, until

CAMPAIGN = """
name = "network"
repeats = 1
[[system]]
name = "there"
place = "{place}"
peer = "{peer}"
{token}
[[network]]
name = "flows"
{work}
"""


class NetworkServer:
    """`weir bench flows`, in the namespace of `prefix`."""

    def __init__(self, log: Path, listen: str = "127.0.0.1:0", token: Path | None = None, prefix: tuple[str, ...] = ()):
        command = [*prefix, WEIR_BIN, "bench", "flows", "--listen", listen]
        command += ["--token-file", token] if token else []
        self.log = log
        with open(log, "wb") as out:
            self.process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=out, text=True)
        said = self.process.stdout.readline()
        assert said.startswith("listening on "), (said, log.read_text())
        self.address = said.removeprefix("listening on ").strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(20)
        self.process.stdout.close()


@pytest.fixture
def token(tmp_path) -> Path:
    file = tmp_path / "token"
    subprocess.run([WEIR_BIN, "bench", "token", file], check=True, capture_output=True)
    return file


def campaign(tmp_path: Path, peer: str, work: str, token: Path | None = None) -> Path:
    file = tmp_path / "campaign.toml"
    line = f'token_file = "{token}"' if token else ""
    file.write_text(CAMPAIGN.format(place=tmp_path, peer=peer, token=line, work=work))
    return file


def run(tmp_path: Path, file: Path, code: int = 0, prefix: tuple[str, ...] = ()) -> subprocess.CompletedProcess:
    results = tmp_path / "results"
    shutil.rmtree(results, ignore_errors=True)
    command = [*prefix, WEIR_BIN, "bench", "run", file, "--results", results]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done


def phases(tmp_path: Path) -> list[tuple[dict, dict]]:
    """Parameters and phase of all measurements."""
    trials = [json.loads(line) for line in (tmp_path / "results/trials.jsonl").read_text().splitlines()]
    return [(dict(trial["parameters"]), phase) for trial in trials for phase in trial["phases"]]


@pytest.mark.paced  # it measures the rate that it has set
def test_all_kinds_of_flows_on_loopback(tmp_path, token):
    work = """
    protocols = ["tcp", "udp"]
    directions = ["to", "from", "both"]
    flows = [1, 3]
    processes = ["one", "each"]
    rate = "4MB"
    seconds = 1
    """
    with NetworkServer(tmp_path / "log", token=token) as server:
        said = run(tmp_path, campaign(tmp_path, server.address, work, token)).stdout
    found = phases(tmp_path)
    assert len(found) == 2 * 2 * 2 * 3
    for parameters, phase in found:
        tally = phase["measured"]["tally"]
        assert not tally["failures"] and not tally["complaints"], (parameters, phase["phase"], tally)
        [outcome] = tally["network"]
        ways = {"to": [True], "from": [False], "both": [True, False]}[phase["phase"]]
        assert [way["to"] for way in outcome["ways"]] == ways
        flows = [flow for way in outcome["ways"] for flow in way["flows"]]
        assert len(flows) == int(parameters["flows"]) * len(ways)
        assert outcome["client"]["interface"] == outcome["server"]["interface"] == "lo"
        for flow in flows:
            # The measured rate is at most the requested one, and not much less unless the machine is overloaded.
            assert 2e6 < flow["bytes"] / flow["seconds"] < 4.3e6, (parameters, phase["phase"], flow)
            assert (flow["tcp"] is None) == (parameters["protocol"] == "UDP"), flow
            assert (flow["datagrams"] is None) == (parameters["protocol"] == "TCP"), flow
    assert "segments retransmitted" in said and "% lost" in said and "by lo" in said
    assert "no figure" not in said


def test_processes_of_flows_are_processes(tmp_path):
    """Both sides have one for each flow, and none remains afterwards."""
    work = 'flows = 3\nprocesses = "each"\nseconds = 3\ndirections = ["both"]\nrate = "1MB"'

    def children(of: int) -> int:
        return sum(len(ids.split()) for ids in of_processes(f"{of}/task/*/children"))

    with NetworkServer(tmp_path / "log") as server:
        file = campaign(tmp_path, server.address, work)
        client = subprocess.Popen([WEIR_BIN, "bench", "run", file, "--results", tmp_path / "results"], stdout=subprocess.PIPE)
        end, most = time.monotonic() + 20, (0, 0)
        while client.poll() is None and time.monotonic() < end:
            most = max(most, (children(client.pid), children(server.process.pid)))
            time.sleep(0.05)
        client.communicate(timeout=20)
        assert client.returncode == 0 and most == (6, 6), (client.returncode, most)
        until(lambda: children(server.process.pid) == 0, 20)


def test_two_systems_at_once(tmp_path):
    work = 'at_once = [false, true]\nseconds = 1\nrate = "2MB"\ndirections = ["to"]'
    with NetworkServer(tmp_path / "a") as a, NetworkServer(tmp_path / "b") as b:
        file = campaign(tmp_path, a.address, work)
        second = f'[[system]]\nname = "second"\nplace = "{tmp_path}"\npeer = "{b.address}"\n[[system]]\nname = "none"\nplace = "/tmp"\n'
        file.write_text(file.read_text().replace("[[network]]", second + "[[network]]"))
        said = run(tmp_path, file).stdout
        assert "3 trials" in said
    systems = [[one["system"] for one in phase["measured"]["tally"]["network"]] for _, phase in phases(tmp_path)]
    assert sorted(systems) == [["second"], ["there"], ["there", "second"]]
    assert "all at once" in said and re.search(r"there [12]\.\d MB/s, second [12]\.\d MB/s", said), said


def test_a_wrong_token_is_told_on_both_sides_before_anything_is_measured(tmp_path, token):
    other = tmp_path / "other"
    subprocess.run([WEIR_BIN, "bench", "token", other], check=True, capture_output=True)
    with NetworkServer(tmp_path / "log", token=token) as server:
        refused = run(tmp_path, campaign(tmp_path, server.address, "seconds = 1", other), code=13)
        assert "the network server of `there`" in refused.stderr and "same token file" in refused.stderr
        assert "has a token" in run(tmp_path, campaign(tmp_path, server.address, "seconds = 1"), code=13).stderr
        token.chmod(0o644)
        assert "chmod 600" in run(tmp_path, campaign(tmp_path, server.address, "seconds = 1", token), code=13).stderr
    assert not (tmp_path / "results/trials.jsonl").exists() or not (tmp_path / "results/trials.jsonl").read_text()
    assert "has another token" in server.log.read_text() and "no token" in server.log.read_text()
    nobody = run(tmp_path, campaign(tmp_path, server.address, "seconds = 1", other), code=15).stderr
    assert "is `weir bench flows` running there" in nobody


def test_a_token_is_made_once_and_for_its_owner_alone(tmp_path, token):
    assert token.stat().st_mode & 0o777 == 0o600
    again = subprocess.run([WEIR_BIN, "bench", "token", token], capture_output=True, text=True)
    assert again.returncode == 12 and "exists" in again.stderr
    refused = subprocess.run([WEIR_BIN, "bench", "flows", "--listen", "0.0.0.0:0"], capture_output=True, text=True, timeout=20)
    assert refused.returncode == 7 and "weir bench token" in refused.stderr


@pytest.mark.parametrize("processes", ["one", "each"])
def test_a_server_that_dies_in_the_middle(tmp_path, processes):
    work = f'seconds = 60\nflows = 2\nprocesses = "{processes}"\ndirections = ["both"]'
    with NetworkServer(tmp_path / "log") as server:
        file = campaign(tmp_path, server.address, work)
        client = subprocess.Popen(
            [WEIR_BIN, "bench", "run", file, "--results", tmp_path / "results"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        end = time.monotonic() + 20
        while "asks for" not in server.log.read_text() and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(1)
        begun = time.monotonic()
        server.process.send_signal(signal.SIGKILL)
        said, _ = client.communicate(timeout=30)
    assert client.returncode == 1 and time.monotonic() - begun < 15
    assert "no figure: operations failed" in said
    [(_, phase)] = phases(tmp_path)
    complaints = phase["measured"]["tally"]["complaints"]
    assert any(server.address in complaint["text"] for complaint in complaints), complaints


@pytest.fixture
def link(tmp_path):
    """Two network namespaces with a link of 100 Mb/s each way. Its queue is smaller than one burst of a socket, so it drops what is too
    fast.

    Returns the prefixes of commands in them, and an address in the second."""
    names = [f"weir-{os.getpid()}-{side}" for side in "ab"]

    def ip(*words: str) -> subprocess.CompletedProcess:
        return subprocess.run(words, capture_output=True, text=True)

    made = ip("ip", "netns", "add", names[0])
    if made.returncode:
        pytest.skip(f"no network namespaces here: {made.stderr.strip()}")
    try:
        commands = [f"ip netns add {names[1]}", f"ip -n {names[0]} link add cable type veth peer name cable netns {names[1]}"]
        for name, address in zip(names, ("10.77.0.1/24", "10.77.0.2/24"), strict=True):
            commands += [f"ip -n {name} address add {address} dev cable", f"ip -n {name} link set cable up"]
            commands += [f"ip -n {name} link set lo up", f"tc -n {name} qdisc add dev cable root tbf rate 100mbit burst 32kb limit 60kb"]
        for command in commands:
            done = ip(*command.split())
            if done.returncode and "tbf" in command:
                pytest.skip(f"no token bucket in this kernel: {done.stderr.strip()}")
            assert done.returncode == 0, (command, done.stderr)
        yield [("ip", "netns", "exec", name) for name in names], "10.77.0.2:7070"
    finally:
        for name in names:
            ip("ip", "netns", "delete", name)


@pytest.mark.alone  # it measures rates
def test_a_throttled_link_is_measured_as_fast_as_it_is(tmp_path, token, link):
    (client, server_prefix), address = link
    # Pin the sender to one processor: another one has another queue, from which a datagram may overtake earlier ones.
    client = (*client, "taskset", "-c", "0")
    work = """
    protocols = "tcp"
    directions = ["to", "from"]
    flows = [1, 6]
    seconds = 2
    [[network]]
    name = "datagrams"
    protocols = "udp"
    directions = ["to"]
    rate = "25MB"
    seconds = 2
    """
    with NetworkServer(tmp_path / "log", address, token, server_prefix):
        run(tmp_path, campaign(tmp_path, address, work, token), prefix=client)
    found = phases(tmp_path)
    assert len(found) == 5
    for parameters, phase in found:
        measured = phase["measured"]
        [outcome] = measured["tally"]["network"]
        assert outcome["client"]["interface"] == outcome["server"]["interface"] == "cable"
        # 100 Mb/s of frames; 1,448 of 1,514 bytes are payload in TCP, 1,400 of 1,442 in UDP. The bucket is full at the start.
        rate = measured["tally"]["bytes"] / measured["wall_s"]
        assert 0.85 * 12.5e6 < rate < 1.02 * 12.5e6, (parameters, phase["phase"], rate)
        counts = outcome["client"]["counts"]["interfaces"]["cable"]
        assert counts["sent"] + counts["received"] > measured["tally"]["bytes"]
        flows = [flow for way in outcome["ways"] for flow in way["flows"]]
        if len(flows) == 6:
            assert sum(flow["tcp"]["retransmitted"] for flow in flows) > 0
        if parameters["protocol"] == "UDP":
            # Twice the rate of the link: half is lost, and nothing is out of order.
            [datagrams] = [flow["datagrams"] for flow in flows]
            assert 0.4 < 1 - datagrams["received"] / datagrams["sent"] < 0.6 and datagrams["reordered"] == 0, datagrams


def test_a_network_is_the_ceiling_of_what_goes_through_it(tmp_path, node, place, fs):
    fs("mkdir", f"{place}/bench").ok()
    with NetworkServer(tmp_path / "log") as server:
        file = campaign(tmp_path, server.address, "seconds = 1")
        streams = '[[streams]]\nname = "s"\nphases = ["write", "read"]\nfile = "64MiB"\nblock = "1MiB"\n'
        file.write_text(file.read_text().replace(f'place = "{tmp_path}"', f'place = "{node.url}{place}/bench"') + streams)
        said = run(tmp_path, file).stdout
    assert said.count("% of the network") == 2, said
