"""Changes and readers of a file of which a disk has damaged a replica: no byte is lost that another store has."""

import json
import os

import pytest
import raw
from clients import Xrdfs, xrdcp
from cluster import Cluster, Node
from harness import until, weir
from test_damage import PAGE, flip, places_of

WITHOUT_RECENT = True

MIB = 1 << 20
GRACE_SECONDS = 3


@pytest.fixture
def cluster(base, request):
    with Cluster(base / request.node.name, 2, ("--grace-seconds", str(GRACE_SECONDS))) as cluster:
        cluster.policy("/", "replica(2) sync=2")
        yield cluster


def put(cluster: Cluster, path: str, tmp_path) -> bytes:
    data = os.urandom(5 * MIB + 7)
    (tmp_path / "source").write_bytes(data)
    xrdcp(tmp_path / "source", cluster.url + path).ok()
    until(lambda: len(cluster.whole_on(path)) == 2, 40, cluster.logs)
    return data


def damage(disk: Node, data: bytes, at: int) -> None:
    (place,) = places_of(disk.data / "store" / "store", data[at : at + PAGE])
    flip(place[0], place[1] + 1000)


def known_damage(cluster: Cluster) -> list[str]:
    done = weir("scrub", "--data", cluster.data, "--json")
    assert done.returncode == 0, done.stderr
    return [one["state"] for one in json.loads(done.stdout)["replicas"]]


def scrub(disk: Node) -> None:
    assert weir("scrub", "--data", str(disk.data), "--now", "--rate", "1GiB").returncode == 0


def open_on(cluster: Cluster, disk: Node, path: str, options: int) -> tuple[raw.Raw, bytes]:
    """Opens a file on this disk server."""
    with raw.Raw.to(cluster.manager, machine=disk.host) as manager:
        redirect = manager.ask_open(f"{path}?weir.location=site{cluster.disks.index(disk) + 1}/rack1/disk1", options).redirect
        port, host, permission = redirect
    assert (port, host) == (disk.port, disk.host)
    there = raw.Raw(port, host=host)
    return there, there.open(f"{path}?{permission}", options)


def back(cluster: Cluster, path: str, tmp_path) -> bytes:
    xrdcp("-f", cluster.url + path, tmp_path / "back").ok()
    return (tmp_path / "back").read_bytes()


def test_a_file_is_not_changed_on_a_damaged_replica_while_the_intact_one_is_away(cluster, tmp_path):
    data = put(cluster, "/file", tmp_path)
    one, other = cluster.disks
    other.kill()
    damage(one, data, 3 * MIB)
    scrub(one)
    until(lambda: known_damage(cluster) == ["waiting"], 40, cluster.logs)
    with raw.Raw.to(cluster.manager) as manager:
        refused = manager.ask_open("/file", raw.OPEN_UPDATE)
    # It may be back soon, or has been away for long.
    assert refused.status in (raw.WAIT, raw.ERROR) and "the intact one is away" in refused.text, refused
    other.start()
    until(lambda: len(cluster.whole_on("/file")) == 2 and known_damage(cluster) == [], 60, cluster.logs)
    assert back(cluster, "/file", tmp_path) == data


def test_whoever_reads_a_damaged_replica_is_sent_on_when_it_is_replaced(cluster, tmp_path):
    cluster.policy("/", "replica(2) sync=2 near=client")
    data = put(cluster, "/file", tmp_path)
    one = cluster.disks[0]
    there, handle = open_on(cluster, one, "/file", raw.OPEN_READ)
    assert there.read(handle, 0, 1000).body == data[:1000]
    damage(one, data, 3 * MIB)
    scrub(one)
    until(lambda: "is intact on" in cluster.manager.log_text(), 40, cluster.logs)
    # From the old replica it might get a part of the new one.
    for ask in (there.read(handle, 0, 1000), there.read(handle, 3 * MIB, 2 * MIB)):
        assert ask.status == raw.REDIRECT and ask.redirect[0] == cluster.manager.port, ask
    there.socket.close()
    assert back(cluster, "/file", tmp_path) == data


def test_a_change_whose_client_vanishes_is_kept_by_all_in_sync_replicas(cluster, tmp_path):
    """The primary's replica has damage that nobody has found. The other one has everything that was acknowledged."""
    data = put(cluster, "/file", tmp_path)
    with raw.Raw.to(cluster.manager) as manager:
        port, host, permission = manager.ask_open("/file", raw.OPEN_UPDATE).redirect
    primary = next(disk for disk in cluster.disks if (disk.port, disk.host) == (port, host))
    there = raw.Raw(port, host=host)
    handle = there.open(f"/file?{permission}", raw.OPEN_UPDATE)
    assert there.write(handle, 0, b"changed").status == raw.OK
    damage(primary, data, 3 * MIB)
    there.socket.close()
    expected = b"changed" + data[7:]
    until(lambda: "interrupted: its writer went away" in primary.log_text(), GRACE_SECONDS + 40, cluster.logs)
    scrub(primary)
    until(lambda: len(cluster.whole_on("/file")) == 2 and known_damage(cluster) == [], 60, cluster.logs)
    until(lambda: "is intact on" in cluster.manager.log_text(), 40, cluster.logs)
    assert back(cluster, "/file", tmp_path) == expected
    assert Xrdfs(cluster.url).size("/file") == len(data)
