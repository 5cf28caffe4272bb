"""A disk server that was restored from an old copy lacks objects that the manager expects there. It sends readers to a server that has
them, or tells them that none has, and which stores had them."""

import os
import shutil

import pytest
from clients import xrdcp
from cluster import Cluster, Node
from content import MIB
from harness import weir

SIZES = {"/two/small": 1000, "/two/large": 5 * MIB + 3, "/striped/file": 3 * MIB}


def from_old_copy(disk: Node) -> None:
    disk.stop()
    shutil.rmtree(disk.data)
    shutil.copytree(disk.home / "old", disk.data)
    disk.start()


@pytest.fixture
def cluster(base, request, tmp_path):
    with Cluster(base / request.node.name, 2) as cluster:
        cluster.policy("/two", "replica(2) sync=2")
        cluster.policy("/striped", "stripe(2, 64KiB) replica(2) sync=2")
        (tmp_path / "before").write_bytes(b"before")
        xrdcp(tmp_path / "before", f"{cluster.url}/two/before").ok()
        for disk in cluster.disks:
            disk.stop()
            shutil.copytree(disk.data, disk.home / "old")
            disk.start()
        cluster.wait_sessions()
        yield cluster


def near(cluster: Cluster, disk: Node, path: str) -> str:
    number = cluster.disks.index(disk)
    return f"{cluster.url}{path}?weir.location=site{number % 2 + 1}/rack1/disk{number + 1}"


def test_readers_continue_at_another_replica_or_learn_that_there_is_none(cluster, tmp_path):
    contents = {}
    for path, size in SIZES.items():
        (tmp_path / "source").write_bytes(os.urandom(size))
        contents[path] = (tmp_path / "source").read_bytes()
        xrdcp(tmp_path / "source", cluster.url + path).ok()
        if path.startswith("/two"):
            assert len(cluster.whole_on(path)) == 2, path
    back = tmp_path / "back"
    first, second = cluster.disks
    from_old_copy(first)
    cluster.wait_sessions()
    for path, data in contents.items():
        for disk in cluster.disks:
            xrdcp(near(cluster, disk, path), back).ok()
            assert back.read_bytes() == data, path
            back.unlink()
            done = weir("cp", near(cluster, disk, path), str(back))
            assert done.returncode == 0 and back.read_bytes() == data, done.stderr
            back.unlink()
    assert "an object that is not here" in first.log_text()
    from_old_copy(second)
    cluster.wait_sessions()
    for path in contents:
        for disk in cluster.disks:
            # A server that combines a striped file can only refuse it; a stock client then asks the next one.
            words = "restored from an old copy" if path.startswith("/two") else "were tried and refused it"
            xrdcp(near(cluster, disk, path), back).fails(words)
            assert not back.exists()
            done = weir("cp", near(cluster, disk, path), str(back))
            assert done.returncode != 0 and not back.exists()
            assert "restored from an old copy" in done.stderr, (path, done.stderr)
    xrdcp(f"{cluster.url}/two/before", back).ok()
    assert back.read_bytes() == b"before"
