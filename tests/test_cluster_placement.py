"""Where replicas are placed, by policies and by the states of stores: real processes, several stores on a disk server, and checks of the
disks."""

import subprocess
from pathlib import Path

import pytest
import raw
from clients import Xrdfs, xrdcp
from cluster import Cluster, Node
from content import MIB, content, write
from harness import WEIR_BIN, remove, until

# The stores of each disk server: name, location, class, reserve.
STORES = [
    [("s1", "site1/rack1/h1", "t1", None), ("s2", "site1/rack1/h1", "ssd", None)],
    [("s3", "site1/rack2/h2", "t1", None)],
    [("s4", "site2/rack1/h3", "tn", None), ("s5", "site2/rack1/h3", "vast", "512TiB")],
]
AWAY_SECONDS = 60


class Several(Cluster):
    """Disk servers with one or two stores each."""

    def __init__(self, home: Path):
        super().__init__(home, 0, ("--grace-seconds", "5"))
        for number, stores in enumerate(STORES, 1):
            node = Node(home / f"disk{number}", "disk", f"127.0.0.{number + 1}")
            config = node.home / "weir.toml"
            for name, place, kind, reserve in stores:
                with config.open("a") as text:
                    text.write(f'[[store]]\ndir = "{home}/{name}"\nlocation = "{place}"\nclass = "{kind}"\n')
                    text.write(f'reserve = "{reserve}"\n' if reserve else "")
            node.flags = ("--config", str(config))
            self.disks.append(node)

    def names(self) -> dict[str, str]:
        """The stores' names by number: each has its own class or location."""
        by = {(place, kind): name for stores in STORES for name, place, kind, _ in stores}
        return {store["store"]: by[(store["location"], store["class"])] for store in self.stores()}

    def put(self, path: str, tmp_path: Path, opaque: str = "", size: int = MIB) -> set[str]:
        """Copies a new file in; returns its stores, according to the manager and to the disks."""
        xrdcp("-f", write(tmp_path / "source", path, size), f"{self.url}/{path}{opaque}").ok()
        # On a busy machine a store may be left out of a write, and gets its replica later.
        until(lambda: all(copy["replica"] == "complete" for copy in self.file(path)["object"]["replicas"]), 40, self.logs)
        return self.on(path)

    def on(self, path: str) -> set[str]:
        found, names = self.file(path)["object"], self.names()
        told = {names[copy["store"]] for copy in found["replicas"] if copy["replica"] == "complete"}
        folders = {name: self.home / name for stores in STORES for name, *_ in stores}
        seen = {name for name, folder in folders.items() if list(folder.rglob(f"objects/*/*/{found['id']}*"))}
        assert told == seen, f"{path}: told {told}, on the disks {seen}"
        return told


@pytest.fixture(scope="module")
def cluster(base):
    with Several(base / "placement") as cluster:
        until(lambda: len(cluster.stores()) == 5 and all(store["capacity"] for store in cluster.stores()), 20, cluster.logs)
        yield cluster
        assert cluster.manager.alive(), cluster.logs()
    remove(cluster.home)


def refused(*arguments: str) -> str:
    done = subprocess.run([WEIR_BIN, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0, done.stdout
    return done.stderr


def test_copies_are_on_stores_of_the_wanted_classes(cluster, tmp_path):
    cluster.policy("/ssd", "replica(1) class=ssd:1")
    cluster.policy("/mixed", "replica(2) class=t1:1,tn:1")
    for number in range(6):
        assert cluster.put(f"/ssd/f{number}", tmp_path) == {"s2"}
        one, other = sorted(cluster.put(f"/mixed/f{number}", tmp_path))
        assert one in ("s1", "s3") and other == "s4"


def test_copies_are_as_far_apart_as_was_said(cluster, tmp_path):
    cluster.policy("/racks", "replica(3) spread=rack")
    cluster.policy("/hosts", "replica(2) spread=host")
    cluster.policy("/sites", "replica(2) spread=site")
    seen, number = set(), 0
    # All pairs are possible; chance decides which ones come first.
    while number < 10 or seen != {"s1", "s2", "s3", "s4"}:
        # There are three racks, and two stores in one of them.
        assert {"s3", "s4"} < cluster.put(f"/racks/f{number}", tmp_path)
        pair = cluster.put(f"/hosts/f{number}", tmp_path)
        assert len(pair) == 2 and pair != {"s1", "s2"}
        seen |= pair
        pair = cluster.put(f"/sites/f{number}", tmp_path)
        assert len(pair) == 2 and "s4" in pair
        number += 1
        assert number < 60, seen


def test_what_can_never_be_is_refused(cluster, tmp_path):
    Xrdfs(cluster.url)("mkdir", "/never")
    for words, why in [
        ("replica(4) spread=rack", "4 different racks, and there are 3"),
        ("replica(3) spread=site", "3 different sites, and there are 2"),
        ("replica(1) class=gold:1", "gold"),
    ]:
        said = refused("policy", "set", "/never", words, "--data", cluster.data)
        assert "can never meet" in said and why in said, said
    assert cluster.asked("policy", "get", "/never")["from"] is None


def test_a_store_without_room_gets_nothing(cluster, tmp_path):
    assert {store["class"]: store["state"] for store in cluster.stores()}["vast"] == "full"
    cluster.policy("/vast", "replica(1) class=vast:1")
    failed = xrdcp("-f", write(tmp_path / "source", "vast", 1000), f"{cluster.url}/vast/file")
    assert failed.code != 0 and "no stores can be chosen" in failed.err and "take new objects" in failed.err, failed
    assert not Xrdfs(cluster.url).exists("/vast/file"), "a name is left"
    assert not list((cluster.home / "s5").rglob("objects/*/*/*"))


def test_policies_are_inherited_and_hold_for_what_is_new(cluster, tmp_path):
    cluster.policy("/tree", "replica(1) class=ssd:1")
    Xrdfs(cluster.url)("mkdir", "-p", "/tree/a/b").ok()
    assert cluster.put("/tree/a/b/old", tmp_path) == {"s2"}
    cluster.policy("/tree/a", "replica(1) class=tn:1")
    assert cluster.put("/tree/a/b/new", tmp_path) == cluster.put("/tree/a/new", tmp_path) == {"s4"}
    assert cluster.put("/tree/new", tmp_path) == {"s2"}
    assert cluster.on("/tree/a/b/old") == {"s2"}
    # Its replacement is new.
    assert cluster.put("/tree/a/b/old", tmp_path) == {"s4"}
    cluster.weir("policy", "remove", "/tree/a", "--data", cluster.data)
    assert cluster.put("/tree/a/b/newest", tmp_path) == {"s2"}


def test_a_store_that_is_only_read_gets_nothing_and_gives(cluster, tmp_path):
    cluster.policy("/t1", "replica(1) class=t1:1")
    before = {}
    while set().union(*before.values()) != {"s1", "s3"}:
        before[f"/t1/f{len(before)}"] = cluster.put(f"/t1/f{len(before)}", tmp_path)
        assert len(before) < 60
    number = next(number for number, name in cluster.names().items() if name == "s1")
    cluster.weir("store", "read-only", number, "--data", cluster.data)
    for new in range(6):
        assert cluster.put(f"/t1/new{new}", tmp_path) == {"s3"}
    for path in before:
        xrdcp("-f", cluster.url + path, tmp_path / "back").ok()
        assert (tmp_path / "back").read_bytes() == content(path, MIB)
    cluster.weir("store", "online", number, "--data", cluster.data)


def test_two_stores_of_one_server_outlive_its_kill(cluster, tmp_path):
    cluster.policy("/h1", "replica(1) prefer=site1/rack1/h1")
    files = {}
    while set().union(*files.values()) != {"s1", "s2"}:
        files[f"/h1/f{len(files)}"] = cluster.put(f"/h1/f{len(files)}", tmp_path)
        assert len(files) < 60 and set().union(*files.values()) <= {"s1", "s2"}
    server = cluster.disks[0]
    server.kill()
    server.start()
    until(lambda: [store["state"] for store in cluster.stores()].count("online") == 4, AWAY_SECONDS, cluster.logs)
    for path, stores in files.items():
        xrdcp("-f", cluster.url + path, tmp_path / "back").ok()
        assert (tmp_path / "back").read_bytes() == content(path, MIB)
        assert cluster.on(path) == stores


def test_near_the_client_else_where_it_is_preferred_else_anywhere(cluster, tmp_path):
    cluster.policy("/near", "replica(1) near=client prefer=site2")
    assert cluster.put("/near/host", tmp_path, "?weir.location=site1/rack2/h2") == {"s3"}
    assert cluster.put("/near/rack", tmp_path, "?weir.location=site1/rack2/other") == {"s3"}
    assert cluster.put("/near/site", tmp_path, "?weir.location=site1/rack9/other") <= {"s1", "s2", "s3"}
    assert cluster.put("/near/nowhere", tmp_path, "?weir.location=site9/rack9/other") == {"s4"}
    # A client that cannot reach the server returns, and gets another one.
    assert cluster.put("/near/unreachable", tmp_path, f"?weir.location=site1/rack2/h2&tried={cluster.disks[1].host}") == {"s4"}
    with raw.Raw.to(cluster.manager) as manager:
        tried = ",".join(disk.host for disk in cluster.disks[1:])
        asked = manager.ask_open(f"/near/neither?weir.location=site1/rack2/h2&tried={tried}", raw.OPEN_NEW | raw.OPEN_UPDATE)
        assert asked.redirect[:2] == (cluster.disks[0].port, cluster.disks[0].host)
    # Its rack's only store is away, so another one of its site.
    cluster.disks[1].kill()
    until(lambda: [store["state"] for store in cluster.stores()].count("offline") == 1, AWAY_SECONDS, cluster.logs)
    for number in range(4):
        assert cluster.put(f"/near/fallback{number}", tmp_path, "?weir.location=site1/rack2/h2") <= {"s1", "s2"}
    # The preferred one is away, too.
    cluster.disks[2].kill()
    until(lambda: [store["state"] for store in cluster.stores()].count("offline") == 3, AWAY_SECONDS, cluster.logs)
    assert cluster.put("/near/left", tmp_path, "?weir.location=site9/rack9/other") <= {"s1", "s2"}
    for server in cluster.disks[1:]:
        server.start()
    until(lambda: [store["state"] for store in cluster.stores()].count("online") == 4, AWAY_SECONDS, cluster.logs)
