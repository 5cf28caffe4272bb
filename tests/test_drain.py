"""`weir drain`: other stores replace a draining one, and its objects are deleted, while files are read and written."""

import json
import time

import pytest
import raw
from clients import Xrdfs, start_xrdcp, xrdcp
from cluster import Cluster
from content import MIB, write
from harness import remove, weir
from XRootD import client
from XRootD.client.flags import OpenFlags

# The exit code of a command that has found something wrong.
WRONG = 1


@pytest.fixture
def make(base, request):
    made = []

    def make(disks: int, policy: str = "replica(2)", rate: str = "100MiB") -> Cluster:
        home = base / request.node.name
        made.append(Cluster(home, disks, ("--grace-seconds", "3")))
        config = home / "weir.toml"
        config.write_text(f'repair.rate = "{rate}"\n')
        made[-1].manager.flags = (*made[-1].manager.flags, "--config", str(config))
        made[-1].start().policy("/", policy)
        return made[-1]

    yield make
    for cluster in made:
        cluster.__exit__()
        remove(cluster.home)


def drain(cluster: Cluster, *arguments: str):
    return weir("drain", *arguments, "--data", cluster.data, timeout=120)


def left_unfinished(cluster: Cluster, path: str, data: bytes) -> None:
    """Its client dies in the middle; 3 s later it is marked as interrupted."""
    before = {disk.home.name: len(disk.objects()) for disk in cluster.disks}
    copy = start_xrdcp("-", cluster.url + path, stdin=-1)
    copy.stdin.write(data)
    copy.stdin.flush()
    cluster.until(lambda: {disk.home.name: len(disk.objects()) for disk in cluster.disks} != before)
    cluster.until(lambda: Xrdfs(cluster.url).size(path) >= MIB)
    copy.kill()
    copy.wait()
    cluster.until(lambda: cluster.file(path)["object"]["state"] == "interrupted")


def test_a_store_is_drained_while_its_files_are_read(make, tmp_path):
    cluster = make(3)
    goes = cluster.disks[1]
    store = cluster.store_of(goes)
    files = {}
    for number, size in enumerate([3 * MIB] * 10 + [MIB, 300_000, 70_000, 5000, 1, 0] * 2):
        source = write(tmp_path / "source", number, size)
        xrdcp("-f", source, f"{cluster.url}/f{number}").ok()
        files[f"/f{number}"] = source.read_bytes()
    left_unfinished(cluster, "/unfinished", bytes(range(256)) * 4096 * 20)
    kept = cluster.file("/unfinished")["object"]["len"]
    assert kept >= MIB
    # At first only its primary has it; the other one gets it like every other file.
    cluster.until(lambda: len(cluster.whole_on("/unfinished")) == 2)
    path = next(path for path in files if len(files[path]) == 3 * MIB and store in cluster.whole_on(path))
    other = next(disk for disk in cluster.disks if disk is not goes and cluster.store_of(disk) in cluster.whole_on(path))
    reader = client.File()
    status, _ = reader.open(f"{cluster.url}{path}?tried={other.host}", OpenFlags.READ)
    assert status.ok and str(goes.port) in reader.get_property("DataServer")
    taken = reader.read(0, MIB)[1]
    assert goes.objects()

    drained = drain(cluster, store, "--wait")
    assert drained.returncode == 0, drained.stderr
    assert f"store {store} at" in drained.stdout and "is drained: its disk can be taken away" in " ".join(drained.stdout.split())
    assert "still depend" in " ".join(drained.stderr.split()), drained.stderr

    assert cluster.until(lambda: goes.objects() == [])
    assert next(one for one in cluster.stores() if one["store"] == store)["state"] == "draining"
    # A client that had a file open there continues at the file's new store.
    taken += reader.read(MIB, 2 * MIB)[1]
    assert taken == files[path]
    reader.close()
    write(tmp_path / "new", "after", MIB)
    xrdcp("-f", tmp_path / "new", f"{cluster.url}/new").ok()
    assert store not in cluster.whole_on("/new") and not goes.objects()
    # Its disk is taken away, and the store is removed. Nodes get their numbers in order of joining.
    number = str(next(one for one in cluster.stores() if one["store"] == store)["node"])
    assert cluster.weir("store", "remove", store, "--data", cluster.data).endswith("2 stores left\n")
    assert store not in [one["store"] for one in cluster.stores()]
    node = ["node", "remove", number, "--data", cluster.data]
    there = weir(*node)
    assert there.returncode != 0 and "stop it first" in there.stderr
    goes.kill()
    cluster.until(lambda: weir(*node).returncode == 0)
    left = [str(one["node"]) for one in cluster.asked("status")["nodes"]]
    assert len(left) == 3 and number not in left
    goes.launch()
    cluster.until(lambda: f"node {number} is not in this cluster any more" in goes.log_text())
    goes.kill()
    for path, content in files.items():
        assert len(cluster.whole_on(path)) == 2
        xrdcp("-f", cluster.url + path, tmp_path / "back").ok()
        assert (tmp_path / "back").read_bytes() == content, path
    for disk in cluster.disks:
        if disk is not goes:
            xrdcp("-f", f"{cluster.url}/unfinished?weir.partial=1&tried={disk.host}", tmp_path / "back").ok()
            assert (tmp_path / "back").read_bytes() == (bytes(range(256)) * 4096 * 20)[:kept]


def test_a_drained_store_that_is_used_again_gets_the_same_files_back_at_once(make, tmp_path):
    """Its replicas were deleted seconds ago, and other stores had the files meanwhile."""
    cluster = make(3)
    first, second, _ = [cluster.store_of(disk) for disk in cluster.disks]
    for number in range(20):
        xrdcp(write(tmp_path / "source", number, 70_000), f"{cluster.url}/f{number}").ok()
    xrdcp(write(tmp_path / "source", "one", MIB), f"{cluster.url}/one").ok()
    assert drain(cluster, first, "--wait").returncode == 0
    cluster.until(lambda: not cluster.disks[0].objects())
    assert drain(cluster, first, "--stop").returncode == 0
    begin = time.monotonic()
    drained = drain(cluster, second, "--wait")
    assert drained.returncode == 0, drained.stderr + cluster.logs()
    # The rule that refuses late orders after a deletion holds for two minutes.
    assert time.monotonic() - begin < 60
    for path in [*(f"/f{number}" for number in range(20)), "/one"]:
        assert first in cluster.whole_on(path) and second not in cluster.whole_on(path)
    assert not any("since the copy was ordered" in node.log_text() for node in cluster.nodes)
    # Nor does a new policy leave out the store that has left the group of these files and is used again.
    assert drain(cluster, second, "--stop").returncode == 0
    cluster.policy("/", "replica(3)")
    applied = weir("policy", "apply", "/", "--data", cluster.data, timeout=60)
    assert applied.returncode == 0 and "no further store" not in applied.stdout + applied.stderr, applied
    cluster.until(lambda: len(cluster.whole_on("/one")) == 3)


def test_a_store_that_cannot_be_drained_says_why_and_may_stay(make, tmp_path):
    cluster = make(2)
    source = write(tmp_path / "source", "two", MIB)
    xrdcp(source, f"{cluster.url}/two").ok()
    nowhere = weir("file", "/none", "--data", cluster.data)
    assert nowhere.returncode == 11 and "none: no such file" in nowhere.stderr, nowhere
    unknown = drain(cluster, "4711")
    assert unknown.returncode != 0 and "4711" in unknown.stderr
    store = cluster.store_of(cluster.disks[0])
    assert drain(cluster, store, "--stop").returncode != 0, "it has not been begun"
    assert drain(cluster).stdout == "no store is draining\n"
    assert drain(cluster, store).returncode == 0
    cluster.until(lambda: "still needs" in drain(cluster).stdout)
    view = json.loads(drain(cluster, "--json").stdout)
    assert view["draining"][0]["groups"] == 1 and not view["draining"][0]["is_empty"]
    # Nothing would end the wait but the administrator.
    waited = drain(cluster, store, "--wait")
    assert waited.returncode == WRONG and "still needs" in waited.stdout, waited
    refused = xrdcp(source, f"{cluster.url}/no-place")
    assert refused.code != 0
    assert Xrdfs(cluster.url).size("/two") == MIB
    assert len(cluster.whole_on("/two")) == 2
    needed = weir("store", "remove", store, "--data", cluster.data)
    assert needed.returncode != 0 and "depends on it" in needed.stderr
    # A store that is only read from gets nothing new either.
    assert cluster.weir("store", "read-only", store, "--data", cluster.data).endswith("is read-only\n")
    assert drain(cluster).stdout == "no store is draining\n"
    assert xrdcp(source, f"{cluster.url}/no-place").code != 0
    assert cluster.weir("store", "online", store, "--data", cluster.data).endswith("is online\n")
    assert drain(cluster, store).returncode == 0
    assert drain(cluster, store, "--stop").returncode == 0
    cluster.until(lambda: xrdcp(source, f"{cluster.url}/a-place").code == 0)
    cluster.until(lambda: len(cluster.whole_on("/a-place")) == 2)


def test_a_store_keeps_what_it_has_alone_when_its_successor_is_to_go_as_well(make, tmp_path):
    cluster = make(2, "replica(1) near=client", rate="1MiB")
    files = {}
    for number in range(12):
        source = write(tmp_path / "source", f"alone {number}", MIB)
        xrdcp("-f", source, f"{cluster.url}/f{number}?weir.location=site1/rack1/disk1").ok()
        files[f"/f{number}"] = source.read_bytes()
    first, second = map(cluster.store_of, cluster.disks)
    assert drain(cluster, first).returncode == 0
    cluster.until(lambda: cluster.asked("repair")["backfill"] == 0 and cluster.asked("repair")["missing"]["count"])
    # Most of it is still on its way, and no store could replace the second one.
    assert drain(cluster, second).returncode == 0
    assert cluster.asked("repair")["missing"]["count"] > 3

    def readable() -> None:
        for path, content in files.items():
            xrdcp("-f", cluster.url + path, tmp_path / "back").ok()
            assert (tmp_path / "back").read_bytes() == content, path

    for _ in range(3):
        readable()
        time.sleep(0.5)
    said = json.loads(drain(cluster, "--json").stdout)
    assert said["stuck"] and all(stuck["store"] == second for stuck in said["stuck"]), said
    # It still gets all of it; then nothing remains counted on the first one.
    cluster.until(lambda: len(cluster.asked("repair")["draining"]) == 2 and not cluster.disks[0].objects())
    readable()
    assert all(cluster.whole_on(path) == {second} for path in files)


def test_files_lost_with_another_store_do_not_stop_a_drain(make, tmp_path):
    cluster = make(2, "replica(2) sync=2")
    files = {}
    for number in range(6):
        source = write(tmp_path / "source", f"both {number}", MIB)
        xrdcp("-f", source, f"{cluster.url}/f{number}").ok()
        files[f"/f{number}"] = source.read_bytes()
    part = write(tmp_path / "source", "lost", MIB).read_bytes()
    with raw.Raw.to(cluster.manager) as manager:
        port, host, opaque = manager.ask_open("/lost", raw.OPEN_NEW | raw.OPEN_UPDATE).redirect
        lost = cluster.at(f"{host}:{port}")
        (goes,) = [disk for disk in cluster.disks if disk is not lost]
        with raw.Raw(port, host=host, timeout=60) as there:
            handle = there.open(f"/lost?{opaque}", raw.OPEN_NEW | raw.OPEN_UPDATE)
            assert there.write(handle, 0, part).status == raw.OK
            # From here on only one of them has it.
            goes.kill()
            assert there.write(handle, MIB, part).status == raw.OK
            assert there.close(handle).status == raw.OK
    first, second = cluster.store_of(lost), cluster.store_of(goes)
    assert cluster.whole_on("/lost") == {first}
    lost.kill()
    cluster.until(lambda: weir("store", "remove", first, "--lost", "--yes", "--data", cluster.data).returncode == 0)
    goes.start()
    more = Cluster(cluster.home / "more", 2)
    for number, disk in enumerate(more.disks):
        disk.flags = ("--location", f"site{number}/rack2/new{number}")
        disk.start("--join", cluster.weir("token", "create", "--data", cluster.data).strip())
    cluster.disks += more.disks
    drained = drain(cluster, second, "--wait")
    assert drained.returncode == 0, drained.stderr + cluster.logs()
    assert cluster.until(lambda: goes.objects() == [])
    for path, data in files.items():
        assert len(cluster.whole_on(path) - {first, second}) == 2
        xrdcp("-f", cluster.url + path, tmp_path / "back").ok()
        assert (tmp_path / "back").read_bytes() == data, path
    # Its former store is still known.
    assert [file["path"] for file in cluster.asked("missing", "--unreadable")] == ["/lost"]
    assert [one["groups"] for one in cluster.asked("repair")["lost"]] == [1]
    Xrdfs(cluster.url)("rm", "/lost").ok()
    cluster.until(lambda: [one["groups"] for one in cluster.asked("repair")["lost"]] == [0])
