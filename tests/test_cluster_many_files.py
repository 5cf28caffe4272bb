"""Many processes write into one directory of a cluster: listed, counted, read back. Two thousand files here, two million in `make soak`."""

import pytest
from clients import Xrdfs, xrdcp
from cluster import Cluster
from content import write
from harness import remove
from soak.files import DISKS, FOLDER, SIZE_MAX, Work, all_processes, counted, listed, name_of, size_for

pytestmark = pytest.mark.managers_ok


@pytest.fixture(scope="module")
def written(base):
    with Cluster(base / "many", DISKS) as cluster:
        cluster.policy(FOLDER, "replica(1)")
        work = Work(cluster.url, processes=8, files=250, size=1000)
        done = all_processes(work, "write")
        assert (done.done, done.problems) == (work.count, [])
        yield work, cluster.data
        assert all(node.alive() for node in cluster.nodes), cluster.logs()
    remove(cluster.home)


def test_all_files_are_listed_counted_and_are_what_was_written(written):
    work, data = written
    for there in (listed(work), counted(work, data)):
        assert (there.done, there.problems) == (work.count, [])
    read = all_processes(work, "read")
    assert (read.done, read.problems) == (work.count, [])


def test_a_loss_and_a_change_are_noticed(written, tmp_path):
    work, data = written
    fs = Xrdfs(work.url)
    lost, changed, strange = name_of(2, 17), name_of(5, 3), "of-somebody-else"
    fs("rm", f"{FOLDER}/{lost}").ok()
    for name in (changed, strange):
        xrdcp("-f", write(tmp_path / "other", "other", work.size), f"{work.url}{FOLDER}/{name}").ok()
    there, sums = listed(work), counted(work, data)
    assert there.done == sums.done == work.count and sums.problems == []
    assert there.problems == [f"{strange} is listed, and was never written, or is listed twice", f"{lost} is missing in the listing"]
    read = all_processes(work, "read")
    assert read.done == work.count - 2
    said = sorted(problem.partition(":")[0] for problem in read.problems)
    assert said == [f"{lost} is not read", f"{changed} is not what was written ({work.size} bytes)"]


def test_a_file_that_is_short_or_too_many_is_counted(written, tmp_path):
    work, data = written
    url = f"{work.url}{FOLDER}/short"
    before = counted(work, data)
    xrdcp("-f", write(tmp_path / "short", "short", 10), url).ok()
    after = counted(work, data)
    assert after.done == before.done + 1
    assert after.problems == [f"{work.count * work.size + 10} bytes are there, and not {work.count * work.size}"]


def test_the_size_follows_from_the_space():
    assert size_for(2_000_000, 200 << 30) == SIZE_MAX
    assert size_for(2_000_000, 8 << 30) == (8 << 30) // 8_000_000
    assert size_for(2_000_000, 0) == 64
