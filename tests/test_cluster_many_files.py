"""Many processes write into one directory of a cluster: listed, counted, read back. Two thousand files here, two million in `make soak`."""

import pytest
from clients import Xrdfs, xrdcp
from cluster import Cluster
from content import write
from harness import remove
from soak.files import DISKS, FOLDER, SIZE_MAX, Work, all_processes, listed, name_of, size_for


@pytest.fixture(scope="module")
def work(base):
    with Cluster(base / "many", DISKS) as cluster:
        cluster.policy(FOLDER, "replica(1)")
        work = Work(cluster.url, processes=8, files=250, size=1000)
        written = all_processes(work, "write")
        assert (written.done, written.problems) == (work.count, [])
        yield work
        assert all(node.alive() for node in cluster.nodes), cluster.logs()
    remove(cluster.home)


def test_all_files_are_listed_and_are_what_was_written(work):
    there = listed(work)
    assert (there.done, there.problems) == (work.count, [])
    read = all_processes(work, "read")
    assert (read.done, read.problems) == (work.count, [])


def test_a_loss_and_a_change_are_noticed(work, tmp_path):
    fs = Xrdfs(work.url)
    lost, changed, strange = name_of(2, 17), name_of(5, 3), "of-somebody-else"
    fs("rm", f"{FOLDER}/{lost}").ok()
    for name in (changed, strange):
        xrdcp("-f", write(tmp_path / "other", "other", work.size), f"{work.url}{FOLDER}/{name}").ok()
    there = listed(work)
    assert there.done == work.count
    assert there.problems == [f"{strange} is listed, and was never written, or is listed twice", f"{lost} is missing in the listing"]
    read = all_processes(work, "read")
    assert read.done == work.count - 2
    said = sorted(problem.partition(":")[0] for problem in read.problems)
    assert said == [f"{lost} is not read", f"{changed} is not what was written ({work.size} bytes)"]


def test_the_size_follows_from_the_space():
    assert size_for(2_000_000, 200 << 30) == SIZE_MAX
    assert size_for(2_000_000, 8 << 30) == (8 << 30) // 8_000_000
    assert size_for(2_000_000, 0) == 64
