"""A manager that is restored from an old copy of its directory: newer files have no name, and nothing replaces them on the disks."""

import shutil
from contextlib import suppress

import pytest
from clients import Xrdfs, xrdcp
from cluster import Cluster
from content import MIB, write
from harness import remove, weir


@pytest.fixture
def cluster(base, request):
    with Cluster(base / request.node.name, 2) as made:
        yield made
    remove(made.home)


def copied(cluster: Cluster) -> None:
    """Copied while the manager does not run, as the documentation says."""
    cluster.manager.stop()
    shutil.copytree(cluster.manager.home / "data", cluster.home / "copy", ignore=shutil.ignore_patterns("control"))
    cluster.manager.start()
    cluster.wait_sessions()


def brought_back(cluster: Cluster) -> None:
    cluster.manager.stop()
    shutil.rmtree(cluster.manager.home / "data")
    shutil.copytree(cluster.home / "copy", cluster.manager.home / "data")
    cluster.manager.start()
    cluster.wait_sessions()


def on_disks(cluster: Cluster) -> list[bytes]:
    found = []
    for disk in cluster.disks:
        for path in disk.objects():
            # What was drained is deleted meanwhile.
            with suppress(FileNotFoundError):
                found.append(path.read_bytes())
    return found


def test_no_number_that_is_in_use_is_given_out_again(cluster, tmp_path):
    def put(path: str, seed: str) -> bytes:
        source = write(tmp_path / "source", seed, MIB)
        xrdcp("-f", source, cluster.url + path).ok()
        return source.read_bytes()

    kept = put("/before", "before")
    copied(cluster)
    since = [put(f"/since{number}", f"since {number}") for number in range(5)]
    assert not cluster.asked("status")["is_older_than_stores"]
    for start in range(2):
        brought_back(cluster)
        assert cluster.asked("status")["is_older_than_stores"]
        assert "older than the objects on this disk server's stores" in cluster.manager.log_text(since_start=True)
        new = [put(f"/new{number}", f"new {start} {number}") for number in range(5)]
        for path, content in [("/before", kept), *((f"/new{number}", content) for number, content in enumerate(new))]:
            xrdcp("-f", cluster.url + path, tmp_path / "back").ok()
            assert (tmp_path / "back").read_bytes() == content, path
        assert Xrdfs(cluster.url)("stat", "/since0").code != 0
        on_disk = on_disks(cluster)
        assert all(content in on_disk for content in [*since, *new]), "what has no name is there still"
        since += new


def test_a_disk_server_that_comes_back_late_keeps_what_has_no_name(cluster, tmp_path):
    cluster.policy("/", "replica(1) near=client")
    first, late = cluster.disks

    def put(path: str, seed: str, disk: int) -> bytes:
        source = write(tmp_path / "source", seed, MIB)
        xrdcp(source, f"{cluster.url}{path}?weir.location=site{disk}/rack1/disk{disk}").ok()
        assert cluster.whole_on(path) == {cluster.store_of(cluster.disks[disk - 1])}
        return source.read_bytes()

    copied(cluster)
    since = [put(f"/since{number}", f"since {number}", 2) for number in range(8)]
    late.stop()
    brought_back(cluster)
    new = {path: put(path, path, 1) for path in (f"/new{number}" for number in range(8))}
    assert not cluster.asked("status")["is_older_than_stores"], "who is there has nothing newer"
    late.start()
    cluster.wait_sessions()
    assert cluster.asked("status")["is_older_than_stores"]
    # Files made meanwhile go there as well.
    cluster.weir("drain", str(cluster.store_of(first)), "--data", cluster.data)
    cluster.until(lambda: all(cluster.whole_on(path) == {cluster.store_of(late)} for path in new))
    for path, content in new.items():
        xrdcp("-f", cluster.url + path, tmp_path / "back").ok()
        assert (tmp_path / "back").read_bytes() == content, path
    on_disk = on_disks(cluster)
    assert [content in on_disk for content in since] == [True] * len(since)


def test_a_file_that_was_removed_since_is_refused_with_the_stores_that_had_it(cluster, tmp_path):
    """The manager has the name again, and the disk servers, which ran all the time, have deleted the object."""
    cluster.policy("/", "replica(2)")
    cluster.policy("/dealt", "stripe(2, 64KiB) replica(2)")
    fs, sizes = Xrdfs(cluster.url), {"/removed": MIB, "/small": 1000, "/replaced": MIB, "/dealt/removed": MIB}
    for path, size in sizes.items():
        xrdcp(write(tmp_path / "source", path, size), cluster.url + path).ok()
    before = {disk.home.name: len(disk.objects()) for disk in cluster.disks}
    copied(cluster)
    for path in ("/removed", "/small", "/dealt/removed"):
        fs("rm", path).ok()
    xrdcp("-f", write(tmp_path / "source", "newer", MIB), f"{cluster.url}/replaced").ok()
    # Each disk server has deleted two objects and two units, and has one new object.
    cluster.until(lambda: cluster.asked("status")["deletions"]["count"] == 0)
    cluster.until(lambda: all(len(disk.objects()) < before[disk.home.name] for disk in cluster.disks))
    brought_back(cluster)
    stores = [cluster.store_of(disk) for disk in cluster.disks]
    for path in sizes:
        assert fs("stat", path).code == 0
        # A server that combines a striped file can only refuse it; a stock client then asks the next one.
        words = "should have it and has lost it" if not path.startswith("/dealt") else "were tried and refused it"
        refused = xrdcp("-f", cluster.url + path, tmp_path / "back")
        refused.fails(words)
        assert all(f"store {store}" in refused.err + refused.out for store in stores), refused
        done = weir("cp", "--force", cluster.url + path, str(tmp_path / "back"))
        assert done.returncode != 0 and "should have it and has lost it" in done.stderr, (path, done)
        assert not (tmp_path / "back").exists()
    for disk in cluster.disks:
        assert "an object that is not here" in disk.log_text(), disk.log_text()
