"""The metrics of a cluster: on every node, in `weir top` over all nodes, and after a reload of the configuration."""

import json
import re
import signal
import struct
import subprocess
import time
from collections import Counter

import pytest
import raw
from clients import xrdcp
from cluster import Cluster, Node
from content import MIB, write
from harness import ROOT, WEIR_BIN, remove, until, weir
from ports import free_port
from raw import Raw
from test_metrics import fetch, named, samples
from XRootD import client
from XRootD.client.flags import OpenFlags

LABELS = {
    "version",
    "request",
    "error",
    "number",
    "reason",
    "outcome",
    "index",
    "state",
    "store",
    "from",
    "le",
    "mechanism",
    "result",
    "issuer",
    "tree",
    "kind",
    "principal",
}
CONFIG = 'log = "info"\n'


@pytest.fixture(scope="module")
def cluster(base):
    home = base / "cluster_metrics"
    home.mkdir()
    (home / "weir.toml").write_text(CONFIG)
    with Cluster(home, 2, ("--metrics", "127.0.0.1:0", "--config", str(home / "weir.toml"))) as cluster:
        cluster.policy("/", "replica(2)")
        yield cluster
    remove(home)


def store_of(cluster: Cluster, number: int) -> dict:
    return next(store for store in cluster.stores() if store["location"].endswith(f"/disk{number}"))


def manager_data(cluster: Cluster) -> str:
    return str(cluster.manager.home / "data")


def top(cluster: Cluster) -> dict:
    shown = weir("top", "--data", manager_data(cluster), "--json", timeout=10)
    assert shown.returncode == 0 and shown.stdout.count("\n") == 1, shown
    return json.loads(shown.stdout)


def test_every_node_counts_what_it_does(cluster, tmp_path):
    source = write(tmp_path / "source", "counted", 3 * MIB)
    xrdcp(source, f"{cluster.url}/file").ok()
    xrdcp("-f", f"{cluster.url}/file", tmp_path / "back").ok()
    held = client.File()
    assert held.open(f"{cluster.url}/held", OpenFlags.NEW)[0].ok
    assert held.write(bytes(MIB), 0)[0].ok
    manager, disks = samples(cluster.manager), [samples(disk) for disk in cluster.disks]

    assert [named(manager, "weir_cluster_nodes", state=state) for state in ("online", "suspect", "away")] == [2, 0, 0]
    assert named(manager, "weir_cluster_stores", state="online") == named(manager, "weir_cluster_stores") == 2
    assert 0 < named(manager, "weir_cluster_available_bytes") < named(manager, "weir_cluster_capacity_bytes")
    assert named(manager, "weir_cluster_writers") == 1
    assert named(manager, "weir_cluster_missing_replicas") == named(manager, "weir_cluster_repairs_running") == 0
    assert named(manager, "weir_redirects_total") >= 3 and named(manager, "weir_read_bytes_total") == 0
    assert named(manager, "weir_request_seconds_count", request="open") >= 3
    assert named(manager, "weir_operations_total", outcome="committed") >= 2
    # Its own disk, not those of the stores: both are on this one, and would count twice.
    assert named(manager, "weir_space_total_bytes") * 2 == named(manager, "weir_cluster_capacity_bytes")

    # Bytes from clients count once, with the checksums of their pages; both stores write them.
    assert 4 * MIB <= sum(named(disk, "weir_written_bytes_total") for disk in disks) < 4.1 * MIB
    assert 3 * MIB <= sum(named(disk, "weir_read_bytes_total") for disk in disks) < 3.1 * MIB
    assert sum(named(disk, "weir_writers") for disk in disks) == sum(named(disk, "weir_open_files") for disk in disks) == 1
    for number, disk in enumerate(disks, 1):
        store = store_of(cluster, number)["store"]
        assert named(disk, "weir_in_session") == 1
        assert named(disk, "weir_store_open_replicas", store=store) == 1
        assert named(disk, "weir_store_capacity_bytes", store=store) == named(disk, "weir_space_total_bytes") > 0
        assert 0 < named(disk, "weir_store_floor_bytes", store=store) < named(disk, "weir_store_free_bytes", store=store)
        assert 0 <= named(disk, "weir_load_ratio") <= 1
        assert named(disk, "weir_journal_sync_seconds_count", store=store) >= 1
        assert named(disk, "weir_index_batches_total", store=store, index="store") >= 1
        # No other node's stores, whatever the cluster has.
        assert {value for key in disk for name, value in key[1:] if name == "store"} == {store}

    assert held.close()[0].ok
    ended = [samples(node) for node in cluster.nodes]
    assert all(named(node, "weir_store_open_replicas") + named(node, "weir_cluster_writers") == 0 for node in ended)
    for node in ended:
        assert {name for key in node for name, _ in key[1:]} <= LABELS and len(node) < 2000


def test_users_with_a_quota_have_metrics_and_others_do_not(cluster, tmp_path):
    data = manager_data(cluster)
    assert weir("tree", "create", "/limited", "--mkdir", "--data", data).returncode == 0
    xrdcp(write(tmp_path / "source", "limited", MIB), f"{cluster.url}/limited/file").ok()
    before = samples(cluster.manager)
    assert not any(key[0].startswith("weir_quota_") for key in before)
    listed = json.loads(weir("quota", "list", "/limited", "--json", "--data", data).stdout)
    me = next(one["name"] for one in listed if one["kind"] == "user")
    assert weir("quota", "set", "/limited", "--user", me, "--bytes", "1GiB", "--data", data).returncode == 0
    after = samples(cluster.manager)
    of_me = {"tree": "/limited", "kind": "user", "principal": me}
    assert named(after, "weir_quota_bytes", **of_me) == MIB
    assert named(after, "weir_quota_limit_bytes", **of_me) == 1 << 30
    assert {dict(key[1:])["principal"] for key in after if key[0].startswith("weir_quota_")} == {me}
    assert not any(key[0] == "weir_quota_limit_files" for key in after)


def trips(nodes: list[Node], action) -> tuple[Counter, Counter]:
    """The requests of each kind at the manager and the disk servers meanwhile, without those that begin a session."""

    def counted() -> list[Counter]:
        found = [Counter(), Counter()]
        for number, node in enumerate(nodes):
            for key, value in samples(node).items():
                if key[0] == "weir_request_seconds_count":
                    found[min(number, 1)][dict(key[1:])["request"]] += int(value)
        return found

    before = counted()
    action()
    grown = [after - earlier for after, earlier in zip(counted(), before, strict=True)]
    for kinds in grown:
        for beginning in ("handshake", "protocol", "login", "ping", "endsess"):
            kinds.pop(beginning, None)
    return grown[0], grown[1]


def test_our_client_makes_few_trips(cluster, tmp_path):
    def run(*arguments: str) -> str:
        done = weir(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    xrdcp(write(tmp_path / "source", "trips", 100_000), f"{cluster.url}/trips/file").ok()
    # A lookup with attributes, location and capability takes one round trip.
    manager, disks = trips(cluster.nodes, lambda: run("cat", f"{cluster.url}trips/file"))
    assert manager == {"open": 1} and disks["open"] == 1 and set(disks) <= {"open", "read", "pgread", "close"}, (manager, disks)
    # For a striped file, the answer also locates its units.
    cluster.policy("/dealt", "stripe(2, 64KiB)")
    xrdcp(tmp_path / "source", f"{cluster.url}/dealt/file").ok()
    shown = []
    manager, disks = trips(cluster.nodes, lambda: shown.append(subprocess.check_output([WEIR_BIN, "cat", f"{cluster.url}dealt/file"])))
    assert shown == [(tmp_path / "source").read_bytes()]
    assert manager == {"open": 1} and disks["open"] == 2, (manager, disks)
    # Hundreds of new files go in batches: the manager gets the names, the disk servers the objects. How many batches: a batch does not wait
    # for files that the listing of the directory has not come to yet.
    many = tmp_path / "many"
    many.mkdir()
    for number in range(600):
        (many / f"f{number}").write_bytes(bytes([number % 256]) * 1000)
    manager, disks = trips(cluster.nodes, lambda: run("cp", "-r", str(many), f"{cluster.url}trips/"))
    assert 1 <= manager["batch"] and manager.total() <= 20 and disks.total() <= 20, (manager, disks)
    # Hundreds of attributes as well.
    names = [f"{cluster.url}/trips/many/f{number}" for number in range(600)]
    said = []
    manager, disks = trips(cluster.nodes, lambda: said.append(run("stat", "--json", *names)))
    assert manager == {"query": 2, "batch": 2} and not disks, (manager, disks)
    shown = [json.loads(line) for line in said[0].splitlines()]
    assert [one["path"] for one in shown] == names and {one["info"]["size"] for one in shown} == {1000}
    assert [one["info"] for one in shown[:3]] == [json.loads(run("stat", "--json", name))["info"] for name in names[:3]]
    # An error concerns only its own entry, and all others are shown.
    done = weir("stat", "--json", *names[:10], f"{cluster.url}/trips/nothing", *names[10:20])
    assert done.returncode == 11 and len(done.stdout.splitlines()) == 20 and "trips/nothing" in done.stderr, done
    # The client waits for an unreachable server once, not for each name.
    begin = time.monotonic()
    assert weir("stat", *(f"root://127.0.0.1:{free_port()}//f{number}" for number in range(1)), timeout=60).returncode != 0
    once = time.monotonic() - begin
    port, begin = free_port(), time.monotonic()
    assert weir("stat", *(f"root://127.0.0.1:{port}//f{number}" for number in range(100)), timeout=60).returncode != 0
    assert time.monotonic() - begin < 5 * once + 5


def test_repaired_replicas_are_counted(cluster, tmp_path):
    cluster.policy("/late", "replica(2) sync=1")
    before = samples(cluster.manager)
    xrdcp(write(tmp_path / "source", "late", 2 * MIB), f"{cluster.url}/late/file").ok()

    def grown(name: str) -> float:
        return named(samples(cluster.manager), name) - named(before, name)

    cluster.until(lambda: grown("weir_cluster_repairs_total") == 1)
    assert grown("weir_cluster_repaired_bytes_total") == 2 * MIB
    assert [copy["replica"] for copy in cluster.file("/late/file")["object"]["replicas"]] == ["complete", "complete"]


def test_the_documents_list_every_metric(cluster):
    page = (ROOT / "docs/reference/metrics.md").read_text()
    every_node, text = page.split("\n## Nodes of a cluster\n")
    every = dict(re.findall(r"^\| `((?:weir|process)_\w+)` \| (\w+) \|", every_node, re.MULTILINE))
    of_role = {"manager": {}, "disk server": {}, "manager with a database": {}, "standby manager": {}}
    for name, kind, role in re.findall(r"^\| `(weir_\w+)` \| (\w+) \| ([a-z ]+) \|", text, re.MULTILINE):
        of_role[role][name] = kind
    without = re.search(r"A disk server exports all except (.+?)\.", text).group(1)
    left_out = set(re.findall(r"`(weir_\w+)`", without))
    assert left_out and left_out <= every.keys()

    def told(node) -> dict[str, str]:
        return dict(re.findall(r"^# TYPE (\w+) (\w+)$", fetch(node), re.MULTILINE))

    prefixes = ("weir_scrub_", "weir_recent_", "weir_first_read_", "weir_read_ahead_")
    of_data = {name: kind for name, kind in every.items() if name.startswith(prefixes)}
    except_these = "except those of the scrub, of recently written data, of first reads and of reading ahead."
    assert of_data and f"A manager exports all of the metrics above {except_these}" in text
    of_manager = {name: kind for name, kind in every.items() if name not in of_data}
    assert told(cluster.manager) == of_manager | of_role["manager"]
    for disk in cluster.disks:
        assert told(disk) == {name: kind for name, kind in every.items() if name not in left_out} | of_role["disk server"]


@pytest.mark.parametrize("role", ["manager", "disk"])
def test_metrics_are_not_for_everybody(tmp_path, role):
    refused = weir("serve", "--role", role, "--data", str(tmp_path / "data"), "--metrics", "0.0.0.0:0")
    assert refused.returncode == 7 and "metrics" in refused.stderr and "--insecure" in refused.stderr, refused
    assert not (tmp_path / "data").exists()


def test_the_configuration_is_read_again(cluster):
    config = cluster.home / "weir.toml"
    changed = 'log = "debug"\ngrace_seconds = 1\nrepair.rate = "7MiB"\nindex.cache = "33MiB"\n'
    try:
        config.write_text(changed)
        for node in cluster.nodes:
            node.process.send_signal(signal.SIGHUP)
        taken_over = "taken over: `log`, `grace_seconds`, `repair.rate`; `index.cache` at the next start only"
        for node in cluster.nodes:
            until(lambda: taken_over in node.log_text(), 10)  # noqa: B023
        # The log says more now.
        with Raw.to(cluster.manager) as me:
            until(lambda: "logged in" in cluster.manager.log_text(), 10)
            # A client that never arrives at its disk server is waited for no longer than the new time.
            sent = me.request(raw.OPEN, struct.pack(">HH12x", 0o644, raw.OPEN_NEW | raw.OPEN_UPDATE), b"/never")
            assert sent.status == raw.REDIRECT, sent
            until(lambda: "its writer has not come back: the open write is ended path=/never" in cluster.manager.log_text(), 30)
        # A wrong file changes nothing.
        config.write_text("nonsense = 1\n")
        for node in cluster.nodes:
            node.process.send_signal(signal.SIGHUP)
        for node in cluster.nodes:
            until(lambda: "nothing was changed" in node.log_text(), 10)  # noqa: B023
            assert node.alive()
    finally:
        config.write_text(CONFIG)
        for node in cluster.nodes:
            node.process.send_signal(signal.SIGHUP)


def test_top_says_what_is_wrong(cluster, own_node, tmp_path):
    for arguments, code in (([], 6), (["127.0.0.1:1", "--data", str(tmp_path)], 2)):
        failed = weir("top", *arguments)
        assert failed.returncode == code and "--data" in failed.stderr and not failed.stdout, failed
    failed = weir("top", "--data", str(tmp_path))
    assert failed.returncode == 6 and "running manager" in failed.stderr, failed
    alone = own_node()
    failed = weir("top", "--data", str(alone.data))
    assert failed.returncode == 6 and "this is a single node" in failed.stderr, failed


def test_top_shows_all_nodes_and_how_old_the_figures_of_one_are_that_is_away(cluster):
    """The last one: a node of the cluster does not come back."""
    file = client.File()
    assert file.open(f"{cluster.url}/stream", OpenFlags.NEW)[0].ok
    written = 0

    def flowing() -> dict | None:
        """The view, if something was written between the servers' last two reports."""
        nonlocal written
        assert file.write(bytes(MIB // 4), written)[0].ok
        written += MIB // 4
        now = top(cluster)
        return now if now["written_bytes_per_second"] else None

    view = until(flowing, 10)
    manager, *disks = view["nodes"]
    assert manager["presence"] is None and manager["activity"] is None
    assert [disk["presence"] for disk in disks] == ["online", "online"]
    assert all(disk["capacity"] > disk["available"] > 0 and disk["load_permille"] <= 1000 for disk in disks)
    assert all(disk["activity"]["age_millis"] < 3000 and disk["activity"]["read_bytes_per_second"] == 0 for disk in disks)
    # Traffic of a writer counts at the server of its connection, not at the second replica's.
    assert view["open_files"] == sum(disk["activity"]["writing"] for disk in disks) == 1
    assert sorted(disk["activity"]["written_bytes_per_second"] > 0 for disk in disks) == [False, True]
    assert view["writers"] == {"count": 1, "and_more": False}
    shown = weir("top", "--data", manager_data(cluster), "--once").stdout
    assert "2 of 2 disk servers online   stores 2 online" in shown and "being written 1" in shown, shown
    assert file.close()[0].ok

    room = view["available"]
    killed = cluster.disks[1]
    killed.kill()

    def of_killed(view: dict) -> dict:
        """What the view has of it. The servers started together and joined in either order."""
        return next(node for node in view["nodes"] if f"{killed.host}:{killed.nodes_port}" in node["nodes"])

    def away() -> dict | None:
        now = top(cluster)
        node = of_killed(now)
        # Its last report may have come a second or more after its last lease.
        is_old = node["activity"]["age_millis"] > 4000
        return now if node["presence"] == "away" and now["stores"].get("offline") and is_old else None

    view = until(away, 15)
    gone = of_killed(view)["activity"]
    assert gone["written_bytes_per_second"] is None and gone["up_millis"] > 0, gone
    assert view["available"] < room * 0.75 and of_killed(view)["available"] > 0, "what it had is not counted as room"
    shown = weir("top", "--data", manager_data(cluster), "--once").stdout
    assert "1 of 2 disk servers online, 1 away   stores 1 online, 1 offline" in shown, shown
    line = next(line for line in shown.splitlines() if f"{killed.host}:{killed.port}" in line)
    assert re.search(r"away +- +- +- +- +- +[\d.]+ \w+ +\d+ s ago$", line), line
