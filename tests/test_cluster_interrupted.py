"""A new file in a cluster whose writer has died. Its bytes are on as many stores as the client was told, without any repair."""

import pytest
from clients import xrdcp
from cluster import Cluster
from content import content
from test_interrupted import killed, until_interrupted
from test_metrics import named, samples

pytestmark = pytest.mark.managers_ok

CHUNK, COUNT = 300_000, 5


@pytest.fixture
def cluster(base, request):
    with Cluster(base / request.node.name, 2, ("--grace-seconds", "2", "--metrics", "127.0.0.1:0")) as cluster:
        cluster.policy("/", "replica(2)")
        yield cluster


def test_all_in_sync_replicas_keep_what_a_dead_writer_left(cluster, tmp_path):
    url = cluster.url
    assert killed(f"{url}/f", "dead", CHUNK, COUNT) == CHUNK * COUNT
    until_interrupted(url, "/f")
    replicas = cluster.file("/f")["object"]["replicas"]
    assert [copy["replica"] for copy in replicas] == ["complete"] * 2, replicas
    assert named(samples(cluster.manager), "weir_cluster_repairs_total") == 0, "the second one is a copy that repair made"
    # One of the two is lost at once.
    cluster.disks[0].kill()
    xrdcp(f"{url}/f?weir.partial=1", tmp_path / "part").ok()
    assert (tmp_path / "part").read_bytes() == content("dead", CHUNK * COUNT)
