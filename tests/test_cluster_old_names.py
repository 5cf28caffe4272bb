"""A manager that is brought back from an old copy of its directory: what was made since has no name, and nothing takes its place on the
disks."""

import shutil

import pytest
from clients import Xrdfs, xrdcp
from cluster import Cluster
from content import MIB, write
from harness import remove


@pytest.fixture
def cluster(base, request):
    made = Cluster(base / request.node.name, 1).start()
    yield made
    made.__exit__()
    remove(made.home)


def test_no_number_that_is_in_use_is_given_out_again(cluster, tmp_path):
    def put(path: str, seed: str) -> bytes:
        source = write(tmp_path / "source", seed, MIB)
        xrdcp("-f", source, cluster.url + path).ok()
        return source.read_bytes()

    def brought_back() -> None:
        cluster.manager.stop()
        shutil.rmtree(cluster.manager.home / "data")
        shutil.copytree(cluster.home / "copy", cluster.manager.home / "data")
        cluster.manager.start()
        cluster.wait_sessions()

    kept = put("/before", "before")
    cluster.manager.stop()
    shutil.copytree(cluster.manager.home / "data", cluster.home / "copy", ignore=shutil.ignore_patterns("control"))
    cluster.manager.start()
    cluster.wait_sessions()
    since = [put(f"/since{number}", f"since {number}") for number in range(5)]
    assert not cluster.asked("status")["is_older_than_stores"]
    for start in range(2):
        brought_back()
        assert cluster.asked("status")["is_older_than_stores"]
        assert "older than what is on this disk server's stores" in cluster.manager.log_text()
        new = [put(f"/new{number}", f"new {start} {number}") for number in range(5)]
        for path, content in [("/before", kept), *((f"/new{number}", content) for number, content in enumerate(new))]:
            xrdcp("-f", cluster.url + path, tmp_path / "back").ok()
            assert (tmp_path / "back").read_bytes() == content, path
        assert Xrdfs(cluster.url)("stat", "/since0").code != 0
        on_disk = [path.read_bytes() for path in cluster.disks[0].objects()]
        assert all(content in on_disk for content in [*since, *new]), "what has no name is there still"
        since += new
