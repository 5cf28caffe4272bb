"""`weir missing` when a disk is gone: it names under-replicated files, files that nobody can read for now, and lost files, and no
others."""

import pytest
from clients import Xrdfs, xrdcp
from cluster import Cluster
from content import content, write
from harness import remove, until, weir

# More than the manager examines for one answer.
MANY = 700
AWAY_SECONDS = 60


@pytest.fixture(scope="module")
def cluster(base):
    with Cluster(base / "missing", 3, ("--grace-seconds", "5")) as cluster:
        cluster.policy("/one", "replica(1)")
        cluster.policy("/two", "replica(2) spread=host")
        cluster.policy("/dealt", "stripe(2, 64KiB)")
        yield cluster
        assert cluster.manager.alive(), cluster.logs()
    remove(cluster.home)


def missing(cluster: Cluster, *flags: str) -> dict[str, dict]:
    files = cluster.asked("missing", *flags)
    assert len({file["path"] for file in files}) == len(files), "one twice"
    return {file["path"]: file for file in files}


def stores_of(cluster: Cluster, path: str) -> list[set[str]]:
    """Of each part of the file."""
    found = cluster.file(path)["object"]
    return [{copy["store"] for copy in part["replicas"] if copy["replica"] == "complete"} for part in found.get("units") or [found]]


def test_what_a_lost_disk_means_for_which_files(cluster, tmp_path):
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(MANY):
        (folder / f"f{number}").write_bytes(content(number, 1 + number % 50))
    assert weir("cp", "-r", str(folder), f"{cluster.url}one/").returncode == 0
    others = ["/one/with space", "/one/übrig", *(f"{folder}/f{number}" for folder in ("/two", "/dealt") for number in range(12))]
    for path in others:
        xrdcp(write(tmp_path / "source", path, 300_000), cluster.url + path).ok()
    paths = [f"/one/many/f{number}" for number in range(MANY)] + others
    until(lambda: cluster.asked("status")["missing"]["count"] == 0, AWAY_SECONDS, cluster.logs)
    where = {path: stores_of(cluster, path) for path in paths}
    assert missing(cluster) == {}
    assert "under-replicated" not in cluster.weir("status", "--data", cluster.data)

    gone = cluster.disks[1]
    store = cluster.store_of(gone)
    gone.kill()
    until(lambda: [one["state"] for one in cluster.stores()].count("offline") == 1, AWAY_SECONDS)
    alone = {path for path, parts in where.items() if {store} in parts}
    fewer = {path for path, parts in where.items() if path not in alone and any(store in part for part in parts)}
    assert len(alone) > MANY / 6 and fewer and any(path.startswith("/dealt") for path in alone), (alone, fewer)

    def shown(path: str) -> str:
        return path.encode().decode("latin-1").encode("unicode_escape").decode() if not path.isascii() else path

    found = missing(cluster)
    assert {path for path, file in found.items() if file["state"] == "unavailable"} == {shown(path) for path in alone}
    assert {path for path, file in found.items() if file["state"] == "under-replicated"} == fewer
    assert set(found) == {shown(path) for path in alone} | fewer
    for path in fewer:
        assert (found[path]["replicas"], found[path]["target_replicas"]) == (1, 2)
    for path in alone:
        file = found[shown(path)]
        assert file["replicas"] == 0 and len(file["stores"]) == 1 and f"store {store} at site2/rack1/disk2" in file["stores"][0]
        units = [number for number, part in enumerate(where[path]) if part == {store}]
        assert file.get("units", []) == (units if path.startswith("/dealt") else [])
    assert set(missing(cluster, "--unreadable")) == {shown(path) for path in alone}
    # For people: a line each, and totals.
    *lines, last = cluster.weir("missing", "--data", cluster.data).splitlines()
    assert len(lines) == len(found)
    assert last.startswith(f"0 files lost, {len(alone)} files not readable until a store returns"), last
    assert f", {len(fewer)} under-replicated" in last
    status = cluster.weir("status", "--data", cluster.data)
    places = [node["locations"] for node in cluster.asked("status")["nodes"]]
    # In the order in which they joined.
    assert sorted(places) == [[], ["site1/rack1/disk1"], ["site1/rack1/disk3"], ["site2/rack1/disk2"]]
    assert "site2/rack1/disk2" in status and f"{len(found)} files under-replicated" in status
    assert f"{len(alone)} of them cannot be read now" in status
    assert all(len(line) <= 80 for line in [*lines, last, *status.splitlines()]), (lines, status)

    # The store never comes back. Files that another store has are copied; the others are reported as lost.
    cluster.weir("store", "remove", "disk2", "--lost", "--yes", "--data", cluster.data)
    until(lambda: all(file["state"] == "lost" for file in missing(cluster).values()), AWAY_SECONDS, cluster.logs)
    assert set(missing(cluster)) == {shown(path) for path in alone}
    last = cluster.weir("missing", "--unreadable", "--data", cluster.data).splitlines()[-1]
    assert last == f"{len(alone)} files lost, 0 files not readable until a store returns"
    for path in fewer:
        xrdcp("-f", cluster.url + path, tmp_path / "back").ok()
        assert (tmp_path / "back").read_bytes() == content(path, 300_000)
    # After the names of lost files are removed, nothing remains counted on the disk.
    fs = Xrdfs(cluster.url)
    for path in sorted(alone):
        fs("rm", path).ok()
    assert missing(cluster) == {}
    until(lambda: cluster.asked("repair")["lost"][0]["groups"] == 0, AWAY_SECONDS, cluster.logs)
    cluster.weir("store", "remove", "site2/rack1/disk2", "--data", cluster.data)
    assert store not in [one["store"] for one in cluster.stores()]
    assert "under-replicated" not in cluster.weir("status", "--data", cluster.data)


def test_stores_are_named_and_disk_servers_say_whom_to_ask(cluster):
    def refused(*arguments: str) -> str:
        done = weir(*arguments)
        assert done.returncode != 0, done.stdout
        return done.stderr

    words = refused("drain", "disk7", "--data", cluster.data)
    assert "there is no store disk7" in words and "weir stores" in words, words
    cluster.weir("store", "read-only", "disk3", "--data", cluster.data)
    assert {store["location"][-5:]: store["wanted"] for store in cluster.stores()}["disk3"] == "read-only"
    cluster.weir("store", "online", "rack1/disk3", "--data", cluster.data)
    # At a disk server.
    data = str(cluster.disks[0].home / "data")
    words = refused("stores", "--data", data)
    assert "disk server" in words and f"127.0.0.1:{cluster.manager.port}" in words, words
    done = weir("scrub", "--data", data)
    assert done.returncode == 0 and "the next pass begins" in done.stdout, done


def test_a_file_is_meant_by_its_url_too(cluster, tmp_path):
    xrdcp(write(tmp_path / "source", "url", 10), f"{cluster.url}/one/by-url").ok()
    assert cluster.file(f"{cluster.url}/one/by-url") == cluster.file("/one/by-url")
