"""A node that somebody else controls does not stop when it is asked to. Its removal cuts it off at once, everywhere. Its files stay
readable from the other stores."""

import time

import pytest
from clients import run, xrdcp
from cluster import Cluster
from content import MIB, write
from harness import remove, weir

CLIENT_SECONDS = 60


@pytest.fixture
def cluster(base):
    made = Cluster(base / "node-removal", 3).start()
    made.policy("/", "replica(2) sync=2")
    yield made
    made.__exit__()
    remove(made.home)


def peers(node, others) -> set[tuple[str, str]]:
    """Ends (own and other address) of established connections between a disk server and others, whoever began them."""
    ports = " or ".join(f"sport = :{one.nodes_port} or dport = :{one.nodes_port}" for one in (node, *others))
    shown = run(["ss", "-Htnp", "state", "established", f"( {ports} )"]).ok().out.splitlines()
    # The manager's connections have its own port.
    return {(line.split()[2], line.split()[3]) for line in shown if f"pid={node.process.pid}," in line}


def test_a_node_that_is_online_is_cut_off_everywhere_within_a_minute(cluster, tmp_path):
    gone, *others = cluster.disks
    store = cluster.store_of(gone)
    number = next(str(one["node"]) for one in cluster.stores() if one["store"] == store)
    source = write(tmp_path / "source", "removal", 2 * MIB)
    paths = [f"/f{place}" for place in range(12)]
    for path in paths:
        xrdcp(source, f"{cluster.url}/{path}").ok()
    had = [path for path in paths if store in cluster.whole_on(path)]
    assert had, "no file is on the node that goes"
    assert peers(gone, others)

    removing = ["node", "remove", number, "--data", cluster.data]
    refused = weir(*removing)
    assert refused.returncode != 0 and "--force" in refused.stderr, refused
    began = time.monotonic()
    done = weir(*removing, "--force", timeout=60)
    took = time.monotonic() - began
    assert done.returncode == 0 and "is removed" in done.stdout, done
    assert took < 30, took
    assert number not in {str(node["node"]) for node in cluster.asked("status")["nodes"]}

    # It runs on and tries to come back: to the manager and to the other disk servers.
    assert gone.alive()
    cluster.until(lambda: "is not in this cluster any more" in gone.log_text())
    time.sleep(5)
    assert "in session with the manager" not in gone.log_text().rpartition("is not in this cluster any more")[2]
    # It tries to come back, and the kernel shows a connection that is refused at once as established for that moment. None lasts.
    seen = peers(gone, others)
    time.sleep(3)
    assert not seen & peers(gone, others), [disk.log_text() for disk in others]
    assert time.monotonic() - began < 60
    # It has no lease, so it shows nothing, and clients are not sent there.
    for path in had:
        xrdcp("-f", f"{cluster.url}/{path}", tmp_path / "back").ok()
        assert (tmp_path / "back").read_bytes() == source.read_bytes()
    more = [f"/g{place}" for place in range(6)]
    for path in more:
        xrdcp(source, f"{cluster.url}/{path}").ok()
        assert store not in cluster.whole_on(path)
    # Neither a restart of it nor of the manager lets it in again.
    gone.stop()
    gone.launch()
    cluster.manager.stop()
    cluster.manager.start()
    time.sleep(5)
    assert number not in {str(node["node"]) for node in cluster.asked("status")["nodes"]}
    gone.kill()
