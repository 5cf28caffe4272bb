"""Suspect and draining stores: a client that opens a file goes elsewhere, as long as a healthy replica exists."""

import pytest
import raw
from clients import xrdcp
from cluster import Cluster, Node
from content import MIB, content, write
from harness import remove, until, weir

pytestmark = pytest.mark.managers_ok

OPENS = 40


@pytest.fixture(scope="module")
def cluster(base):
    """disk1 and disk3 on the first site, disk2 and disk4 on the second one."""
    with Cluster(base / "avoided", 4, ("--grace-seconds", "2")) as cluster:
        cluster.policy("/one", "replica(1)")
        cluster.policy("/near", "replica(1) near=client")
        cluster.policy("/two", "replica(2) spread=site")
        yield cluster
        assert all(node.alive() for node in cluster.nodes), cluster.logs()
    remove(cluster.home)


def state_of(cluster: Cluster, disk: Node) -> str:
    store = cluster.store_of(disk)
    return next(there["state"] for there in cluster.stores() if there["store"] == store)


def sent_to(cluster: Cluster, client: Node, path: str, options: int = raw.OPEN_READ) -> set[str]:
    """The hosts that a client on one machine is sent to when it opens a file again and again. New files have a number behind the name."""
    names = [path] * OPENS if options == raw.OPEN_READ else [f"{path}{number}" for number in range(OPENS)]
    with raw.Raw.to(cluster.manager, machine=client.host, timeout=60) as there:
        return {there.ask_open(name, options).redirect[1] for name in names}


def on(cluster: Cluster, disk: Node, folder: str, tmp_path) -> str:
    """A file with a replica there."""
    source = write(tmp_path / "source", folder, MIB)
    for number in range(40):
        path = f"{folder}/on-{disk.home.name}-{number}"
        xrdcp("-f", source, cluster.url + path).ok()
        if disk in cluster.holders(path):
            return path
    raise AssertionError(f"none of 40 files is on {disk.home.name}")


def test_no_client_is_sent_to_an_unknown_store(cluster, tmp_path):
    frozen = cluster.disks[0]
    path, alone = on(cluster, frozen, "/two", tmp_path), on(cluster, frozen, "/one", tmp_path)
    # A client on its machine is nearest to it.
    assert sent_to(cluster, frozen, path) == sent_to(cluster, frozen, alone) == {frozen.host}
    assert sent_to(cluster, frozen, "/near/before", raw.OPEN_NEW | raw.OPEN_UPDATE) == {frozen.host}
    (other,) = until(lambda: [disk.host for disk in cluster.holders(path) if disk is not frozen], 40)
    # Its lease has not ended, so it may still be serving. The lease ends after 2.5 s, and on a busy machine the requests here may take
    # longer.
    for attempt in range(5):
        frozen.freeze()
        try:
            until(lambda: state_of(cluster, frozen) == "suspect", 10)
            readers = sent_to(cluster, frozen, path)
            made = [f"{folder}/meanwhile{attempt}-" for folder in ("/near", "/one", "/two")]
            makers = [sent_to(cluster, frozen, path, raw.OPEN_NEW | raw.OPEN_UPDATE) for path in made]
            is_suspect_still = state_of(cluster, frozen) == "suspect"
        finally:
            frozen.thaw()
        assert readers == {other}
        assert all(hosts and frozen.host not in hosts for hosts in makers), makers
        until(lambda: state_of(cluster, frozen) == "online", 20)
        if is_suspect_still:
            break
    assert is_suspect_still
    until(lambda: sent_to(cluster, frozen, path) == {frozen.host}, 20)


def test_no_client_is_sent_to_a_draining_store(cluster, tmp_path):
    draining, neighbour = cluster.disks[0], cluster.disks[2]
    path, alone = on(cluster, draining, "/two", tmp_path), on(cluster, draining, "/one", tmp_path)
    (other,) = until(lambda: [disk.host for disk in cluster.holders(path) if disk is not draining], 40)
    # No other store can replace it in a group that is spread over sites, so it keeps its replicas.
    neighbour.kill()
    until(lambda: state_of(cluster, neighbour) == "offline", 40)
    store = cluster.store_of(draining)
    assert weir("drain", store, "--data", cluster.data).returncode == 0
    try:
        assert state_of(cluster, draining) == "draining"
        assert store in cluster.whole_on(path)
        assert sent_to(cluster, draining, path) == {other}
        makers = [sent_to(cluster, draining, f"{folder}/drained", raw.OPEN_NEW | raw.OPEN_UPDATE) for folder in ("/near", "/one")]
        assert all(hosts and draining.host not in hosts for hosts in makers), makers
        # It serves files that only it has until others have them.
        xrdcp("-f", cluster.url + alone, tmp_path / "back").ok()
        assert (tmp_path / "back").read_bytes() == content("/one", MIB)
    finally:
        assert weir("drain", store, "--stop", "--data", cluster.data).returncode == 0
        neighbour.start()
    until(lambda: state_of(cluster, neighbour) == "online", 40)
