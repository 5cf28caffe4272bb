"""A client's disk server is killed for good: weir's own client continues at another one. And a replica's server that was away during an
in-place change shows nothing old when it comes back."""

import json
import os
import subprocess
import threading
import time
from pathlib import Path

import pytest
from clients import xrdcp
from cluster import Cluster, Node
from harness import WEIR_BIN

pytestmark = pytest.mark.managers_ok

MB = 1_000_000
PAUSE_MAX_SECONDS = 10


@pytest.fixture
def cluster(base, request):
    with Cluster(base / request.node.name, 3) as cluster:
        cluster.weir("policy", "set", "/", "replica(2)", "sync=2", "--data", str(cluster.manager.home / "data"))
        yield cluster


def connected_to(process: subprocess.Popen, cluster: Cluster) -> list[Node]:
    """The disk servers that a process is connected to."""
    sockets = set()
    for entry in os.listdir(f"/proc/{process.pid}/fd"):
        try:
            target = os.readlink(f"/proc/{process.pid}/fd/{entry}")
        except FileNotFoundError:
            continue
        if target.startswith("socket:["):
            sockets.add(target[len("socket:[") : -1])
    ports = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[9] in sockets:
                ports.add(int(fields[2].rpartition(":")[2], 16))
    return [disk for disk in cluster.disks if disk.port in ports]


def wait_for_one(process: subprocess.Popen, cluster: Cluster) -> Node:
    end = time.monotonic() + 10
    while not (nodes := connected_to(process, cluster)):
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.01)
    return nodes[0]


def test_a_writer_outlives_the_death_of_its_disk_server(cluster, tmp_path):
    data = os.urandom(40 * MB)
    process = subprocess.Popen([WEIR_BIN, "cp", "-", cluster.url + "/big"], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    pauses = [0.0]

    def feed() -> None:
        last = time.monotonic()
        for start in range(0, len(data), MB):
            process.stdin.write(data[start : start + MB])
            process.stdin.flush()
            now = time.monotonic()
            pauses.append(now - last)
            time.sleep(0.05)
            last = time.monotonic()
        process.stdin.close()

    feeder = threading.Thread(target=feed)
    feeder.start()
    victim = wait_for_one(process, cluster)
    time.sleep(1)
    victim.kill()
    feeder.join(60)
    assert process.wait(60) == 0, process.stderr.read()
    assert max(pauses) < PAUSE_MAX_SECONDS, pauses
    xrdcp(cluster.url + "/big", tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == data


def test_a_reader_outlives_the_death_of_its_disk_server(cluster, tmp_path):
    data = os.urandom(40 * MB)
    (tmp_path / "source").write_bytes(data)
    xrdcp(tmp_path / "source", cluster.url + "/big").ok()
    process = subprocess.Popen([WEIR_BIN, "cp", cluster.url + "/big", "-"], stdout=subprocess.PIPE)
    got = process.stdout.read(4 * MB)
    wait_for_one(process, cluster).kill()
    begin = time.monotonic()
    got += process.stdout.read()
    assert process.wait(60) == 0 and got == data
    assert time.monotonic() - begin < PAUSE_MAX_SECONDS


def test_a_change_in_place_without_a_holder_shows_nothing_old_later(cluster, tmp_path):
    client = pytest.importorskip("XRootD.client")
    flags = pytest.importorskip("XRootD.client.flags")
    (tmp_path / "source").write_bytes(b"a" * 3 * MB)
    xrdcp(tmp_path / "source", cluster.url + "/file").ok()
    away, there = [disk for disk in cluster.disks if disk.objects()]
    away.kill()
    file = client.File()
    status, _ = file.open(cluster.url + "/file", flags.OpenFlags.UPDATE)
    assert status.ok, status.message
    assert file.write(b"b" * MB, offset=0)[0].ok and file.close()[0].ok
    changed = b"b" * MB + b"a" * 2 * MB
    away.start()
    end = time.monotonic() + 40

    def states() -> set[str]:
        return {replica["replica"] for replica in cluster.asked("file", "/file")["object"]["replicas"]}

    # A replica that is missing is "copying" while it is made.
    while states() != {"complete"}:
        xrdcp("-f", cluster.url + "/file", tmp_path / "back").ok()
        assert (tmp_path / "back").read_bytes() == changed
        assert time.monotonic() < end, "the missing replica was not made"
        time.sleep(0.5)
    # The returned server has the new content, and serves it alone.
    there.kill()
    xrdcp("-f", cluster.url + "/file", tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == changed


FOLLOWED = """
name = "followed"
repeats = 1
[[system]]
name = "weir"
place = "{url}"
[[daq]]
name = "building"
recorders = 2
files = 2
file = "24MiB"
block = "1MiB"
rate = "20MB"
followers = 2
"""


def test_who_follows_a_recording_reads_it_to_its_end(cluster, tmp_path):
    """At the end of an open write, its disk server sends readers to the manager, and the file is longer than at their open."""
    (tmp_path / "followed.toml").write_text(FOLLOWED.format(url=cluster.url))
    command = [WEIR_BIN, "bench", "run", tmp_path / "followed.toml", "--results", tmp_path / "results", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    trials = [json.loads(line) for line in (tmp_path / "results/trials.jsonl").read_text().splitlines()]
    phases = {phase["phase"]: phase["measured"] for phase in trials[0]["phases"]}
    tallies = {name: measured["tally"] for name, measured in phases.items()}
    # A question after the close is redirected at once, not delayed until the capability expires.
    assert phases["follow"]["wall_s"] < phases["record"]["wall_s"] + 10
    assert tallies["follow"]["verified"] == 2 * tallies["record"]["bytes"] == 2 * 4 * 24 * 1024 * 1024, (tallies["follow"], done.stderr)
