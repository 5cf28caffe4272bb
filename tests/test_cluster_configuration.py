"""Settings for all nodes are changed at the manager once; an absent node gets them when it comes back."""

import pytest
import raw
from clients import xrdcp
from cluster import Cluster
from content import MIB, content, write
from harness import remove, until
from ports import free_port

BACK_SECONDS = 40


@pytest.fixture
def cluster(base):
    with Cluster(base / "configuration", 3, ("--grace-seconds", "5")) as cluster:
        cluster.policy("/all", "replica(3)")
        cluster.policy("/one", "replica(1)")
        yield cluster
        assert cluster.manager.alive(), cluster.logs()
    remove(cluster.home)


def test_a_node_that_was_away_gets_what_was_changed_meanwhile(cluster, tmp_path):
    away, moved, _ = cluster.disks
    store = cluster.store_of(away)
    away.stop()
    # Meanwhile another disk server and the manager get new addresses, and the absent store becomes read-only.
    moved.stop()
    moved.port, moved.nodes_port = free_port(moved.host), free_port(moved.host)
    moved.start()
    cluster.weir("store", "read-only", store, "--data", cluster.data)
    cluster.manager.stop()
    cluster.manager.port = free_port(cluster.manager.host)
    cluster.manager.start()
    away.start()

    def states() -> dict[str, str]:
        return {one["store"]: one["state"] for one in cluster.stores()}

    until(lambda: sorted(states().values()) == ["online", "online", "read-only"], BACK_SECONDS, cluster.logs)
    # The disk server redirects questions about names to the manager's present address.
    with raw.Raw(away.port, host=away.host) as there:
        answer = there.request(raw.STAT, bytes(16), b"/one")
        assert answer.redirect[:2] == (cluster.manager.port, cluster.manager.host)
    # It gets no new objects.
    assert states()[store] == "read-only"
    for number in range(12):
        path = f"/one/f{number}"
        xrdcp(write(tmp_path / "source", path, 1000), cluster.url + path).ok()
        assert store not in cluster.whole_on(path)
    cluster.weir("store", "online", store, "--data", cluster.data)
    until(lambda: states()[store] == "online", BACK_SECONDS, cluster.logs)
    # It reaches the disk server that moved, and is reached: a primary must find the other replicas.
    for number in range(6):
        path = f"/all/f{number}"
        xrdcp(write(tmp_path / "source", path, MIB), cluster.url + path).ok()
        assert len(cluster.whole_on(path)) == 3, path
        for disk in cluster.disks:
            others = ",".join(other.host for other in cluster.disks if other is not disk)
            xrdcp("-f", f"{cluster.url}{path}?tried={others}", tmp_path / "back").ok()
            assert (tmp_path / "back").read_bytes() == content(path, MIB)
