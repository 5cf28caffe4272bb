"""Striped files while disk servers are killed: acknowledged bytes stay, and a file with an incomplete unit never looks whole."""

import random
import time

import pytest
from clients import STUBBORN, start_xrdcp, xrdcp
from cluster import Cluster, Node
from content import MIB, content
from harness import remove, until
from kills import Users, amiss, kill_at_random, settle, with_more
from recorder import acknowledged, start_writer
from test_cluster_failover import connected_to
from test_cluster_faults import SECONDS, SEED, Recording, fetched, in_session, restarted, zeroed_on
from XRootD import client

pytestmark = pytest.mark.managers_ok

CHUNK = 256 << 10
WIDTH = 3
BIG = 16 * MIB


@pytest.fixture(scope="module")
def shaken(base):
    """Each test leaves all nodes running."""
    with Cluster(base / "shaken-stripes", 4, ("--grace-seconds", "8")) as cluster:
        cluster.policy("/one", f"stripe({WIDTH}, 256KiB)")
        cluster.policy("/two", f"stripe({WIDTH}, 256KiB) replica(2)")
        yield cluster
    remove(cluster.home)


@pytest.fixture
def cluster(shaken):
    yield shaken
    for node in shaken.nodes:
        if not node.alive():
            node.start()
    in_session(shaken)


def entry_of(process, cluster: Cluster) -> Node:
    """The disk server that combines the file for it."""
    return until(lambda: connected_to(process, cluster), 20)[0]


def has_unit(cluster: Cluster, before: set, but: Node) -> Node:
    """Another disk server, which has a part of a newer file."""

    def others() -> list[Node]:
        found = {disk.home.name for disk in cluster.disks for path in disk.objects() if path.name not in before}
        return [disk for disk in cluster.disks if disk is not but and disk.home.name in found]

    return until(others, 40)[0]


def names(cluster: Cluster) -> set[str]:
    return {path.name for disk in cluster.disks for path in disk.objects()}


def state(cluster: Cluster, path: str) -> str:
    return cluster.file(path)["object"]["state"]


def test_a_reader_goes_on_when_a_units_server_dies(cluster, tmp_path):
    data, before = content("reader", BIG), names(cluster)
    (tmp_path / "source").write_bytes(data)
    xrdcp(tmp_path / "source", cluster.url + "/two/read").ok()
    file = client.File()
    assert file.open(cluster.url + "/two/read")[0].ok
    status, got = file.read(0, MIB)
    assert status.ok
    entry = cluster.at(file.get_property("DataServer").split("@")[-1])
    has_unit(cluster, before, entry).kill()
    while len(got) < BIG:
        status, more = file.read(len(got), MIB)
        assert status.ok and more, status.message
        got += more
    assert got == data
    assert file.close()[0].ok


def test_a_reader_goes_on_when_the_server_dies_that_puts_it_together(cluster, tmp_path):
    data = content("reader of entry", 64 * MIB)
    (tmp_path / "source").write_bytes(data)
    xrdcp(tmp_path / "source", cluster.url + "/two/read-on").ok()
    # It takes seconds, however fast this machine is.
    copy = start_xrdcp("--xrate", "16m", "-f", cluster.url + "/two/read-on", tmp_path / "back")
    entry_of(copy, cluster).kill()
    assert copy.wait(120) == 0, copy.stdout.read()
    assert (tmp_path / "back").read_bytes() == data


def test_a_write_goes_on_when_a_units_server_dies(cluster, tmp_path):
    data, before = content("unit dies", BIG), names(cluster)
    recording = Recording(cluster, "/two/unit-dies", data)
    entry = entry_of(recording.copy, cluster)
    victim = has_unit(cluster, before, entry)
    victim.kill()
    assert recording.end(), recording.said
    assert fetched(cluster.url + recording.path, tmp_path) == data
    victim.start()
    in_session(cluster)
    assert fetched(cluster.url + recording.path, tmp_path) == data


def test_a_write_goes_on_over_a_restart_of_the_only_server_of_a_unit(cluster, tmp_path):
    data, before = content("unit comes back", BIG), names(cluster)
    recording = Recording(cluster, "/one/unit-comes-back", data)
    victim = has_unit(cluster, before, entry_of(recording.copy, cluster))
    victim.kill()
    recording.may_end.set()
    time.sleep(1)
    victim.start()
    assert recording.end(), recording.said
    assert fetched(cluster.url + recording.path, tmp_path) == data


def test_a_write_goes_on_over_a_restart_of_the_server_that_puts_it_together(cluster, tmp_path):
    writer = start_writer(cluster.url + "/two/entry-dies", "entry dies", CHUNK, 40)
    acknowledged(writer, 10 * CHUNK)
    entry = entry_of(writer, cluster)
    entry.kill()
    time.sleep(1)
    entry.start()
    acknowledged(writer, 40 * CHUNK)
    writer.stdin.write("\n")
    writer.stdin.flush()
    assert writer.wait(60) == 0, writer.stdout.read()
    assert fetched(cluster.url + "/two/entry-dies", tmp_path) == content("entry dies", 40 * CHUNK)


def test_a_write_that_loses_a_unit_never_looks_whole_and_what_was_acknowledged_comes_back(cluster, tmp_path):
    path, before = "/one/unit-gone", names(cluster)
    writer = start_writer(cluster.url + path, "unit gone", CHUNK, 400)
    written = acknowledged(writer, 12 * CHUNK)
    entry = entry_of(writer, cluster)
    victim = has_unit(cluster, before, entry)
    victim.kill()
    writer.kill()
    for line in writer.stdout:
        written = int(line) if line.strip().isdigit() else written
    # Longer than all grace periods: only its server knows the acknowledged bytes of the unit, so nothing is decided without it.
    time.sleep(25)
    xrdcp("-f", cluster.url + path, tmp_path / "refused", patience={**STUBBORN, "XRD_REQUESTTIMEOUT": "5"}, timeout=200)
    assert state(cluster, path) != "complete"
    victim.start()
    until(lambda: state(cluster, path) == "interrupted", 60)
    kept = fetched(f"{cluster.url}{path}?weir.partial=1", tmp_path)
    assert content("unit gone", 400 * CHUNK).startswith(kept) and len(kept) >= written


def test_a_client_that_is_killed_leaves_what_was_acknowledged(cluster, tmp_path):
    path = "/one/client-gone"
    writer = start_writer(cluster.url + path, "client gone", 100_000, 400)
    written = acknowledged(writer, 3_000_000)
    writer.kill()
    for line in writer.stdout:
        written = int(line) if line.strip().isdigit() else written
    until(lambda: state(cluster, path) == "interrupted", 60)
    xrdcp(cluster.url + path, tmp_path / "refused").fails("writer")
    kept = fetched(f"{cluster.url}{path}?weir.partial=1", tmp_path)
    assert content("client gone", 100_000 * 400).startswith(kept) and len(kept) >= written


@pytest.mark.long
def test_kills_at_random_under_load_lose_nothing_that_was_acknowledged(cluster, tmp_path):
    # A complete striped file is not changed in place.
    pick = random.Random(f"stripes {SEED}")
    with Users(cluster, SEED, tmp_path, ["one", "two", "two"], changes=False) as users:
        faults = kill_at_random(cluster, pick, SECONDS, frozen=0)
        # A slow machine needs longer for as much.
        end = time.monotonic() + 60
        while users.done.total() < 5 and time.monotonic() < end:
            faults += kill_at_random(cluster, pick, 1, frozen=0)
    in_session(cluster)
    settle(cluster, users.may_be)
    print(f"seed {SEED}: {faults}, acknowledged {users.done}, {len(users.refused)} refused: {users.refused[:5]}")
    assert users.done.total() >= 5
    assert amiss(cluster, users.may_be, tmp_path) == {}
    # Checks that this notices a loss: one replica of one unit is zeroed on its disk.
    path = "/two/loop/spoiled"
    may_be = with_more(cluster, users.may_be, [path], tmp_path)
    body = cluster.file(path)["object"]["units"][1]["id"]
    spoiled = next(disk for disk in cluster.disks if zeroed_on(disk, body))
    restarted(cluster)
    found = amiss(cluster, may_be, tmp_path)
    assert set(found) == {path}, found
    assert {problem.partition(":")[0] for problem in found[path]} - {"xrdcp"} == {f"unit 1 at {spoiled.home.name}"}, found
