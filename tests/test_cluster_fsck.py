"""`weir fsck --cluster`: names, groups and stores are compared while the cluster serves. It finds what is lost, absent, stale, extra or
damaged, and nothing else, whatever clients do meanwhile."""

import json
import shutil
import threading
import time

import pytest
from clients import Xrdfs, xrdcp
from cluster import Cluster
from content import KIB, MIB, content, write
from harness import remove, weir
from test_cluster_scrub import ended, place_of
from test_damage import flip
from XRootD import client
from XRootD.client.flags import OpenFlags

WITHOUT_RECENT = True

PAGE = 4096
SOUND, WRONG, INCOMPLETE = 0, 1, 6
# More than one page of an inventory.
MANY = 600


@pytest.fixture
def make(base, request):
    made = []

    def make(disks: int) -> Cluster:
        home = base / request.node.name
        home.mkdir()
        made.append(Cluster(home, disks, ("--grace-seconds", "3")).start())
        if disks > 1:
            made[-1].policy("/two", "replica(2)")
        made[-1].policy("/one", "replica(1)")
        return made[-1]

    yield make
    for cluster in made:
        cluster.__exit__()
        remove(cluster.home)


def fsck(cluster: Cluster, expected: int, *flags: str) -> dict:
    done = weir("fsck", "--cluster", "--data", cluster.data, "--json", *flags)
    assert done.returncode == expected, f"{done}\n{cluster.logs()}"
    return json.loads(done.stdout)


def kinds(found: dict) -> dict[str, set]:
    """The paths of each kind; without a path the object."""
    all_of = {}
    for one in found["findings"]:
        all_of.setdefault(one["kind"], set()).add(one["path"] or one["object"])
    return all_of


def put(cluster: Cluster, path: str, size: int, tmp_path, what: str = "") -> bytes:
    source = write(tmp_path / "put", path + what, size)
    xrdcp("-f", source, cluster.url + path).ok()
    return source.read_bytes()


def placed_on_first(cluster: Cluster) -> str:
    """A path whose file gets its only replica on the first disk server. Others are placed at random, perhaps all on another one."""
    cluster.policy("/first", "replica(1) prefer=site1")
    return "/first/file"


def update(cluster: Cluster, path: str) -> None:
    file = client.File()
    status, _ = file.open(cluster.url + path, OpenFlags.UPDATE)
    assert status.ok, status.message
    assert file.write(b"changed in place", 5000)[0].ok
    assert file.close()[0].ok


def test_a_sound_cluster_has_no_problem(make, tmp_path):
    cluster = make(3)
    cluster.policy("/dealt", "stripe(2, 64KiB)")
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(MANY):
        (folder / f"f{number}").write_bytes(content(number, 1 + number % 50))
    assert weir("cp", "-r", str(folder), f"{cluster.url}two/").returncode == 0
    for number in range(4):
        put(cluster, f"/dealt/f{number}", 300 * KIB, tmp_path)
        put(cluster, f"/one/f{number}", 300 * KIB, tmp_path)
    put(cluster, "/two/changed", MIB, tmp_path)
    update(cluster, "/two/changed")
    put(cluster, "/two/removed", MIB, tmp_path)
    Xrdfs(cluster.url)("rm", "/two/removed").ok()
    held = client.File()
    assert held.open(f"{cluster.url}/two/held", OpenFlags.NEW)[0].ok
    assert held.write(bytes(MIB), 0)[0].ok
    cluster.until(lambda: cluster.asked("status")["missing"]["count"] == 0)
    found = fsck(cluster, SOUND)
    assert (found["checked_stores"], found["unchecked_stores"], found["findings"]) == (3, [], [])
    assert found["compared"] == 2 * MANY + 4 * 2 + 4 + 2
    said = cluster.weir("fsck", "--cluster", "--data", cluster.data)
    assert said == f"{found['compared']} replicas on 3 stores compared with the namespace: no problem\n"
    held.close()


def test_a_store_from_an_old_copy_is_told_in_plain_words(make, tmp_path):
    cluster = make(2)
    first, second = cluster.disks
    put(cluster, "/two/same", MIB, tmp_path)
    put(cluster, "/two/changed", MIB, tmp_path)
    put(cluster, "/two/removed", MIB, tmp_path)
    object_of_removed = cluster.file("/two/removed")["object"]["id"]
    cluster.until(lambda: all(len(cluster.whole_on(f"/two/{name}")) == 2 for name in ("same", "changed", "removed")))
    assert first.stop() == 0
    shutil.copytree(first.data, first.home / "copy", symlinks=True, ignore=shutil.ignore_patterns("control"))
    first.start()
    cluster.wait_sessions()
    # After the copy: one is changed, one removed, some are made.
    update(cluster, "/two/changed")
    Xrdfs(cluster.url)("rm", "/two/removed").ok()
    put(cluster, "/two/new", MIB, tmp_path)
    alone = [*(f"/one/f{number}" for number in range(8)), placed_on_first(cluster)]
    for path in alone:
        put(cluster, path, 100 * KIB, tmp_path)
    store = cluster.store_of(first)
    on_first = {path for path in alone if cluster.whole_on(path) == {store}}
    assert on_first
    cluster.until(lambda: cluster.asked("status")["deletions"]["count"] == 0)
    fsck(cluster, SOUND)
    assert first.stop() == 0
    remove(first.data)
    (first.home / "copy").rename(first.data)
    first.start()
    cluster.wait_sessions()
    found = fsck(cluster, WRONG)
    assert kinds(found) == {"lost": on_first, "absent": {"/two/new"}, "stale": {"/two/changed"}, "extra": {object_of_removed}}
    assert all(f"store {store} at" in one["store"] for one in found["findings"])
    done = weir("fsck", "--cluster", "--data", cluster.data)
    lines = done.stdout.splitlines()
    assert done.returncode == WRONG and lines[-1].endswith(f": {len(on_first)} lost, 1 absent, 1 stale, 1 extra"), lines
    assert [line for line in lines if line.startswith("stale: /two/changed: store ")]
    # The other store is away: what only it could tell is not known.
    second.kill()
    cluster.until(lambda: [one["state"] for one in cluster.stores()].count("offline") == 1, 60)
    found = fsck(cluster, WRONG)
    assert kinds(found)["unchecked"] == {"/two/new"} and "absent" not in kinds(found)
    assert len(found["unchecked_stores"]) == 1 and found["unchecked_stores"][0]["why"] == "it is offline"


def test_damage_and_offline_stores_are_told(make, tmp_path):
    cluster = make(2)
    first, second = cluster.disks
    names = [*(f"/one/f{number}" for number in range(6)), placed_on_first(cluster)]
    contents = {name: put(cluster, name, MIB, tmp_path) for name in names}
    name = next(name for name in names if cluster.whole_on(name) == {cluster.store_of(first)})
    place = place_of(first, contents[name][:PAGE])
    flip(place[0], place[1] + 9)
    fsck(cluster, SOUND)  # nobody has read it yet
    ended(first, "--rate", "1GiB")
    assert kinds(fsck(cluster, WRONG)) == {"damaged": {name}}
    flip(place[0], place[1] + 9)
    ended(first, "--rate", "1GiB")
    fsck(cluster, SOUND)
    second.kill()
    cluster.until(lambda: [one["state"] for one in cluster.stores()].count("offline") == 1, 60)
    found = fsck(cluster, INCOMPLETE)
    assert found["findings"] == [] and len(found["unchecked_stores"]) == 1
    refused = weir("fsck", "--cluster", "--data", str(first.data))
    assert refused.returncode not in (SOUND, WRONG) and "manager" in refused.stderr


def test_no_false_alarm_while_clients_work(make, tmp_path):
    cluster = make(3)
    fs = Xrdfs(cluster.url)
    for number in range(4):
        put(cluster, f"/two/changing{number}", MIB, tmp_path)
    stop = threading.Event()
    rounds = [0, 0, 0]

    def change() -> None:
        while not stop.is_set():
            update(cluster, f"/two/changing{rounds[0] % 4}")
            rounds[0] += 1

    def replace_and_remove() -> None:
        while not stop.is_set():
            path = f"/two/gone{rounds[1] % 5}"
            source = write(tmp_path / "replaced", rounds[1], 20 * KIB if rounds[1] % 2 else MIB)
            xrdcp("-f", source, cluster.url + path).ok()
            fs("mv", path, f"/two/moved{rounds[1] % 5}").ok()
            fs("rm", f"/two/moved{rounds[1] % 5}").ok()
            rounds[1] += 1

    def many_small() -> None:
        folder = tmp_path / "small"
        folder.mkdir()
        for number in range(100):
            (folder / f"f{number}").write_bytes(content(number, 100 + number))
        while not stop.is_set():
            assert weir("cp", "-r", "-T", str(folder), f"{cluster.url}two/small{rounds[2]}").returncode == 0
            assert weir("rm", "-r", f"{cluster.url}two/small{rounds[2]}").returncode == 0
            rounds[2] += 1

    threads = [threading.Thread(target=work) for work in (change, replace_and_remove, many_small)]
    for thread in threads:
        thread.start()
    try:
        checks, end = 0, time.monotonic() + 120
        while (checks < 10 or min(rounds) < 5) and time.monotonic() < end:
            assert fsck(cluster, SOUND)["findings"] == []
            checks += 1
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert min(rounds) >= 5 and checks >= 5, "there was something to disturb"
