"""`weir store remove --lost`: says what will be lost before it is, and the states of a store that is away, removed, back and replaced."""

import json
import subprocess

import pytest
from clients import Xrdfs, xrdcp
from cluster import Cluster
from content import MIB, content, write
from harness import remove, until, weir

AWAY_SECONDS = 60
# Wrong command line: nothing was touched.
USAGE, NOT_FOUND, SOME_LEFT = 2, 11, 1


@pytest.fixture
def cluster(base, request):
    with Cluster(base / request.node.name, 3, ("--grace-seconds", "5")) as made:
        made.policy("/one", "replica(1) near=client")
        made.policy("/two", "replica(2)")
        made.policy("/dealt", "stripe(2, 64KiB)")
        yield made
    remove(made.home)


def state_of(cluster: Cluster, store: str) -> str:
    return next((one["state"] for one in cluster.stores() if one["store"] == store), "gone")


def lost(cluster: Cluster, *arguments: str) -> subprocess.CompletedProcess:
    return weir("store", "remove", "--lost", "--data", cluster.data, *arguments)


def put(cluster: Cluster, tmp_path, path: str, size: int, near: str = "") -> None:
    xrdcp("-f", write(tmp_path / "source", path, size), cluster.url + path + near).ok()


def test_what_will_be_lost_is_said_first_and_wants_a_yes(cluster, tmp_path):
    goes = cluster.disks[1]
    store = cluster.store_of(goes)
    near = "?weir.location=site2/rack1/disk2"
    alone = [f"/one/f{number:02}" for number in range(12)]
    for path in alone:
        put(cluster, tmp_path, path, 1000, near)
    put(cluster, tmp_path, "/one/elsewhere", 1000, "?weir.location=site1/rack1/disk1")
    for number in range(6):
        put(cluster, tmp_path, f"/two/f{number}", MIB)
        put(cluster, tmp_path, f"/dealt/f{number}", 300_000)
    both = [path for path in (f"/two/f{number}" for number in range(6)) if store in cluster.whole_on(path)]
    units = {path: cluster.file(path)["object"]["units"] for path in (f"/dealt/f{number}" for number in range(6))}
    dealt = [path for path, parts in units.items() if any(store == one["store"] for part in parts for one in part["replicas"])]
    assert both and dealt and all(cluster.whole_on(path) == {store} for path in alone)
    expected = {"files": len(alone) + len(dealt), "bytes": 1000 * len(alone) + 300_000 * len(dealt)}

    view = lambda done: json.loads(done.stdout)  # noqa: E731

    # A list is no removal, so the node may be online.
    listed = lost(cluster, store, "--dry-run", "--json")
    assert listed.returncode == 0, listed.stderr
    assert (view(listed)["lost"], view(listed)["readable"]["files"]) == (expected, len(both)), listed.stdout
    assert len(view(listed)["first_lost"]) == 10 and set(view(listed)["first_lost"]) <= {*alone, *dealt}
    assert not view(listed)["is_removed"]
    refused = lost(cluster, store, "--yes")
    assert refused.returncode != 0 and "is not lost: its node is online" in refused.stderr, refused
    goes.kill()
    until(lambda: state_of(cluster, store) == "offline", AWAY_SECONDS)

    refused = lost(cluster, "disk2")
    assert refused.returncode == USAGE and "nothing was changed" in refused.stderr and "--yes" in refused.stderr, refused
    assert f"{expected['files']} files" in refused.stdout and "will be lost" in refused.stdout, refused.stdout
    assert f"  and {expected['files'] - 10} more" in refused.stdout
    assert all(len(line) <= 80 for line in (refused.stdout + refused.stderr).splitlines()), refused
    assert state_of(cluster, store) == "offline"
    assert weir("repair", "--store", store, "--data", cluster.data).returncode == USAGE, "repair loses nothing"
    wrong = lost(cluster, store, "--yes", "--dry-run")
    assert wrong.returncode == USAGE and state_of(cluster, store) == "offline"
    needed = weir("store", "remove", store, "--data", cluster.data)
    assert needed.returncode != 0 and "depends on it" in needed.stderr and "--lost" in needed.stderr

    removed = lost(cluster, "disk2", "--yes")
    assert removed.returncode == 0 and f"{expected['files']} files" in removed.stdout and "are lost" in removed.stdout, removed
    assert state_of(cluster, store) == "removed"
    # What can be repaired is, and the rest is named.
    done = weir("repair", "--wait", "--data", cluster.data, timeout=120)
    assert done.returncode == SOME_LEFT, done
    for path in both:
        assert len(cluster.whole_on(path) - {store}) == 2, path
    missing = {file["path"] for file in cluster.asked("missing", "--unreadable")}
    assert missing == {*alone, *dealt}
    fs = Xrdfs(cluster.url)
    for path in (*alone, *dealt):
        fs("rm", path).ok()
    done = weir("repair", "--wait", "--data", cluster.data, timeout=120)
    assert done.returncode == 0 and "is replaced" in done.stdout, done
    assert state_of(cluster, store) == "replaced"
    assert "replaced" in cluster.weir("stores", "--data", cluster.data)
    cluster.weir("store", "remove", store, "--data", cluster.data)
    assert state_of(cluster, store) == "gone"
    done = weir("repair", "--wait", "--data", cluster.data, timeout=120)
    assert done.returncode == 0 and "no replica is missing" in done.stdout, done


def test_a_removed_store_that_is_back_says_so_and_is_read(base, request, tmp_path):
    """No other store can replace it."""
    with Cluster(base / request.node.name, 1) as cluster:
        (disk,) = cluster.disks
        store = cluster.store_of(disk)
        put(cluster, tmp_path, "/only-here", 1000)
        forced = lost(cluster, store, "--yes", "--force")
        assert forced.returncode == 0 and "/only-here" in forced.stdout, forced
        until(lambda: state_of(cluster, store) == "returned", AWAY_SECONDS)
        xrdcp("-f", f"{cluster.url}/only-here", tmp_path / "back").ok()
        assert (tmp_path / "back").read_bytes() == content("/only-here", 1000)
        assert cluster.asked("status")["stores"] == {"returned": 1}
        disk.kill()
        until(lambda: state_of(cluster, store) == "removed", AWAY_SECONDS)
        assert [file["state"] for file in cluster.asked("missing")] == ["lost"]
        disk.start()
        until(lambda: state_of(cluster, store) == "returned", AWAY_SECONDS)
        xrdcp("-f", f"{cluster.url}/only-here", tmp_path / "back").ok()
    remove(cluster.home)


def test_a_server_is_removed_with_all_its_stores_and_its_files_count_once(cluster, tmp_path):
    """Both replicas of a file are on two stores of one server: it is lost with the server, though not with either store."""
    disk = cluster.disks[2]
    config = disk.home / "weir.toml"
    second = disk.home / "second"
    config.write_text(
        "".join(
            f'[[store]]\ndir = "{path}"\nlocation = "site3/rack{rack}/disk3"\n' for rack, path in ((1, disk.data / "store"), (2, second))
        )
    )
    disk.stop()
    disk.flags = ("--config", str(config))
    disk.start()
    cluster.wait_sessions()
    stores = {one["store"] for one in cluster.stores() if one["location"].startswith("site3/")}
    assert len(stores) == 2
    number = next(str(one["node"]) for one in cluster.stores() if one["store"] in stores)
    cluster.policy("/both", "replica(2) spread=rack prefer=site3")
    paths = []
    for place in range(40):
        put(cluster, tmp_path, f"/both/f{place}", 1000)
        paths += [f"/both/f{place}"] if cluster.whole_on(f"/both/f{place}") == stores else []
    if not paths:
        pytest.skip("no file was put on both")
    one = json.loads(lost(cluster, min(stores), "--dry-run", "--json").stdout)
    assert one["lost"]["files"] == 0 and one["readable"]["files"] >= len(paths), one
    all_of_it = json.loads(lost(cluster, "--node", number, "--dry-run", "--json").stdout)
    assert all_of_it["lost"] == {"files": len(paths), "bytes": 1000 * len(paths)}, all_of_it
    # A whole server is drained by its number or its name as well.
    done = weir("drain", "--node", number, "--data", cluster.data)
    assert done.returncode == 0 and all(f"store {store} at" in done.stdout for store in stores), done
    done = weir("drain", "--node", number, "--stop", "--data", cluster.data)
    assert done.returncode == 0 and "no store is draining" in done.stdout, done
    done = weir("drain", "--node", "nobody", "--data", cluster.data)
    assert done.returncode == NOT_FOUND and "there is no node nobody" in done.stderr, done
    # Or by the end of the location of its stores, if no node has that name.
    location = next(one["location"] for one in cluster.stores() if one["store"] in stores)
    done = weir("drain", "--node", location.rpartition("/")[2], "--data", cluster.data)
    assert done.returncode == 0 and all(f"store {store} at" in done.stdout for store in stores), done
    assert weir("drain", "--node", location, "--stop", "--data", cluster.data).returncode == 0
    # All nodes of this test run on one machine and have its name.
    name = next(node["name"] for node in cluster.asked("status")["nodes"] if str(node["node"]) == number)
    done = weir("node", "remove", name, "--data", cluster.data)
    assert done.returncode != 0 and f"there are several nodes `{name}`" in done.stderr, done
