"""A disk is mounted over a directory that a node uses, or is not mounted when a node starts. The node keeps to the directory that it
opened, and stops; it never takes an empty folder for a new node or store."""

import json
import re
import shutil
import socket
import time
from pathlib import Path

import cluster
import pytest
from clients import xrdcp
from content import content, write
from harness import READY_SECONDS, StartFailed, Weir, remove, until, weir
from loopfs import loop_file_system
from loopfs import why_not as no_loop
from mounts import contents, mounted_over, why_not

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "")

DONE, USAGE, DIRECTORY, DAMAGED, LISTEN, DENIED = 0, 2, 3, 5, 7, 13
# A watch looks once a second.
NOTICED_SECONDS = 10


@pytest.fixture
def home(base, request):
    home = base / re.sub(r"\W+", "_", request.node.name)
    home.mkdir()
    yield home
    if not request.config.getoption("--keep"):
        remove(home)


def filled(server: Weir, name: str, source: Path) -> Weir:
    """A server with a small and a large file in it, both called by `name`."""
    for size, kind in ((1000, "small"), (200_000, "large")):
        write(source, f"{name} {kind}", size)
        xrdcp(source, f"{server.url}/{name}-{kind}").ok()
    return server


def has(server: Weir, name: str, back: Path) -> None:
    for size, kind in ((1000, "small"), (200_000, "large")):
        xrdcp("-f", f"{server.url}/{name}-{kind}", back).ok()
        assert back.read_bytes() == content(f"{name} {kind}", size)


def writes_until_it_ends(node: Weir, source: Path) -> None:
    for number in range(100):
        if not node.alive():
            return
        xrdcp(write(source, number, 70_000 if number % 2 else 700), f"{node.url}/late-{number}")


def ends(process, code: int, log, *words: str) -> None:
    assert process.wait(NOTICED_SECONDS + 10) == code, log()
    last = log().rpartition("weir: ")[2]
    for word in words:
        assert word in last, last


def node_with(home: Path, name: str, back: Path, data: Path | None = None) -> Weir:
    """A stopped node that has two files."""
    server = Weir(home / name, data).start()
    filled(server, name, back)
    assert server.stop()[0] == DONE
    return server


def test_a_node_stops_when_its_directory_is_shadowed_and_writes_nothing_to_what_is_there(home, tmp_path):
    back = tmp_path / "file"
    with loop_file_system(home / "disk", "ext4", 300 << 20) if not no_loop() else mounted_over(home) as mounted:
        other = node_with(home, "other", back, mounted / "weir")
        before = contents(other.data)
        node = filled(Weir(home / "node").start(), "node", back)
        with mounted_over(node.data, other.data):
            # The files of the last moment: nothing of them may reach the other disk.
            writes_until_it_ends(node, back)
            ends(node.process, DIRECTORY, node.log_text, str(node.data), "a disk was mounted over it", "nothing was written to what is")
            assert "the next start recovers" not in node.log_text(), "the stop was clean"
            assert contents(other.data) == before == contents(node.data)
            # The same command serves the disk that is there now.
            node.start()
            has(node, "other", back)
            assert node.stop()[0] == DONE
            assert "index was built" not in node.log_text().rpartition("created")[2], "its index is whole"
        node.start()
        has(node, "node", back)
        assert "not clean" not in node.log_text()
        assert node.stop()[0] == DONE
        assert weir("fsck", "--data", str(node.data)).returncode == DONE
        assert weir("fsck", "--data", str(other.data)).returncode == DONE


@pytest.mark.parametrize("part", ["store", "journal", "namespace/index"])
def test_a_node_stops_when_a_part_of_its_directory_is_shadowed(home, tmp_path, part):
    back = tmp_path / "file"
    node = filled(Weir(home / "node").start(), "node", back)
    with mounted_over(node.data / part) as there:
        writes_until_it_ends(node, back)
        ends(node.process, DIRECTORY, node.log_text, f"{node.data / part} is not the directory")
        assert contents(there) == {}
    node.start()
    has(node, "node", tmp_path / "file")
    assert node.stop()[0] == DONE


def test_a_node_stops_when_its_disk_is_unmounted_and_loses_nothing(home, tmp_path):
    disk = home / "disk"
    mount_point = home / "mounted"
    disk.mkdir()
    mount_point.mkdir()
    with mounted_over(mount_point, disk):
        node = filled(Weir(home / "node", mount_point / "data").start(), "node", tmp_path / "file")
    ends(node.process, DIRECTORY, node.log_text, str(node.data), "is gone")
    assert list(mount_point.iterdir()) == []
    with mounted_over(mount_point, disk):
        node.start()
        has(node, "node", tmp_path / "file")
        assert node.stop()[0] == DONE


def test_a_moved_directory_stops_its_node(home, tmp_path):
    node = filled(Weir(home / "node").start(), "node", tmp_path / "file")
    node.data.rename(home / "moved")
    ends(node.process, DIRECTORY, node.log_text, "moved")
    assert not node.data.exists()
    (home / "moved").rename(node.data)
    node.start()
    has(node, "node", tmp_path / "file")
    assert node.stop()[0] == DONE


def overlaid(over: Weir, by: Weir) -> None:
    """What an earlier weir did under a later mount: its indexes are on the other node's disk, over that node's own."""
    for part in ("namespace", "store"):
        shutil.copytree(by.data / part / "index", over.data / part / "index", dirs_exist_ok=True)


def test_an_index_that_another_node_wrote_is_built_again(home, tmp_path):
    back = tmp_path / "file"
    node, other = node_with(home, "node", back), node_with(home, "other", back)
    overlaid(node, other)
    node.start()
    assert node.log_text().count("a node on another directory had written it") == 2, node.log_text()
    has(node, "node", back)
    assert node.stop()[0] == DONE
    assert weir("fsck", "--data", str(node.data)).returncode == DONE
    node.start()
    assert node.log_text().count("a node on another directory") == 2, "once is enough"
    has(node, "node", back)


def test_the_advice_for_an_index_of_unknown_origin_works(home, tmp_path):
    """A directory of an earlier weir does not say which journal is its own, and a young one has no checkpoint that shows it."""
    back = tmp_path / "file"
    node, other = node_with(home, "node", back), node_with(home, "other", back)
    overlaid(node, other)
    (node.data / "JOURNAL").unlink()
    for part in ("namespace", "store"):
        with pytest.raises(StartFailed) as refused:
            node.start()
        assert refused.value.code == DAMAGED
        assert f"move {part}/index away, and it is built again" in refused.value.log, refused.value.log
        (node.data / part / "index").rename(home / f"{part}-index")
    node.start()
    has(node, "node", back)
    assert (node.data / "JOURNAL").exists()


def test_a_journal_of_another_node_is_still_refused(home, tmp_path):
    back = tmp_path / "file"
    node, other = node_with(home, "node", back), node_with(home, "other", back)
    (node.data / "journal").rename(home / "journal")
    shutil.copytree(other.data / "journal", node.data / "journal")

    def namespace() -> dict[str, str]:
        # Opening tables removes lists of them that are not in use.
        return {name: found for name, found in contents(node.data / "namespace").items() if not re.search(r"/v\d+$", name)}

    before = namespace()
    with pytest.raises(StartFailed) as refused:
        node.start()
    assert refused.value.code == DAMAGED
    assert "put the journal back" in refused.value.log and "away" not in refused.value.log.rpartition("weir: ")[2]
    assert namespace() == before
    shutil.rmtree(node.data / "journal")
    (home / "journal").rename(node.data / "journal")
    node.start()
    has(node, "node", back)


def test_a_start_that_cannot_listen_makes_no_directory(home):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        free = "127.0.0.1:0"
        data = home / "data"
        config = home / "weir.toml"
        config.write_text(f'[metrics]\nlisten = "{address}"\n')
        for role in ((), ("--role", "manager")):
            for clients, nodes, more in ((address, free, ()), (free, free, ("--config", str(config))), (free, address, ())):
                if nodes == address and not role:
                    continue
                flags = ("--listen", clients, *(("--nodes", nodes) if role else ()), *more)
                refused = weir("serve", *role, "--data", str(data), *flags, timeout=20)
                assert refused.returncode == LISTEN and address in refused.stderr, refused.stderr
                assert not data.exists(), flags
        local = weir("local", "up", "--dir", str(home / "local"), "--listen", address)
        assert local.returncode == LISTEN and address in local.stderr, local.stderr
        assert not (home / "local").exists()


class Disk(cluster.Node):
    def refused(self, code: int, *flags: str | Path) -> str:
        self.launch(*flags)
        assert self.process.wait(READY_SECONDS) == code, self.log_text()
        return self.log_text().rpartition("weir: ")[2]


@pytest.fixture
def nodes(home):
    """A manager, and a disk server that has not joined. Its stores, `one` and `two`, are on disks."""
    manager = cluster.Node(home / "manager", "manager", "127.0.0.1").start()
    disk = Disk(home / "disk", "disk", "127.0.0.2", ("--config", str(home / "weir.toml")))
    dirs = {name: home / "disks" / name for name in ("one", "two")}
    for folder in dirs.values():
        folder.mkdir(parents=True)
    (home / "weir.toml").write_text("".join(f'[[store]]\ndir = "{folder}/weir"\n' for folder in dirs.values()))
    yield manager, disk, dirs
    for node in (disk, manager):
        if node.alive():
            node.kill()


def token(manager) -> str:
    made = weir("token", "create", "--data", str(manager.data))
    assert made.returncode == DONE, made.stderr
    return made.stdout.strip()


def stores(manager) -> dict[str, str]:
    return {one["store"]: one["state"] for one in json.loads(weir("stores", "--json", "--data", str(manager.data)).stdout)}


def test_a_disk_server_does_not_take_an_unmounted_disk_for_a_new_store(nodes):
    manager, disk, dirs = nodes
    disk.start("--join", token(manager))
    until(lambda: list(stores(manager).values()) == ["online"] * 2, 20)
    known = set(stores(manager))
    assert disk.stop() == DONE
    number = re.findall(r"store = (\d+)", (dirs["two"] / "weir/FORMAT").read_text())[0]
    with mounted_over(dirs["two"]) as there:
        for flags in ((), ("--existing",)):
            said = disk.refused(DIRECTORY, *flags)
            assert f"store {number} was in {there}/weir" in said and "is its disk mounted?" in said, said
            assert list(there.iterdir()) == []
        # An empty folder is no store either.
        (there / "weir").mkdir()
        assert "is its disk mounted?" in disk.refused(DIRECTORY)
        assert list((there / "weir").iterdir()) == []
    disk.start()
    until(lambda: list(stores(manager).values()) == ["online"] * 2, 20)
    assert set(stores(manager)) == known
    assert disk.stop() == DONE
    # The disk was replaced.
    with mounted_over(dirs["two"]) as there:
        added = weir("store", "add", str(there / "weir"), "--data", str(disk.data))
        assert added.returncode == DONE and "made; store " in added.stdout, added.stderr
        disk.start("--existing")
        until(lambda: sorted(stores(manager).values()) == ["offline", "online", "online"], 40)
        assert disk.stop() == DONE


def test_no_store_is_made_by_itself_on_a_disk_server_that_had_others(nodes, home):
    manager, disk, dirs = nodes
    disk.start("--join", token(manager))
    until(lambda: list(stores(manager).values()) == ["online"] * 2, 20)
    assert disk.stop() == DONE
    config = home / "weir.toml"
    named = config.read_text()
    config.write_text("")
    said = disk.refused(DIRECTORY)
    assert all(f"{folder}/weir" in said for folder in dirs.values()) and "no new store is made" in said, said
    assert not (disk.data / "store").exists()
    # A store that is left out is not served, and the log says so.
    config.write_text(named.partition("[[store]]\n")[0] + f'[[store]]\ndir = "{dirs["one"]}/weir"\n')
    disk.start()
    assert f"in {dirs['two']}/weir and is not served" in disk.log_text(since_start=True)
    assert disk.stop() == DONE
    config.write_text(named)
    disk.start()
    until(lambda: list(stores(manager).values()) == ["online"] * 2, 20)


def test_a_store_can_only_be_added_to_a_disk_server_that_has_joined(nodes, home):
    manager, disk, dirs = nodes
    for data, words in [(manager.data, "the data directory of a cluster's manager"), (home / "none", "is its disk mounted")]:
        refused = weir("store", "add", str(dirs["one"] / "weir"), "--data", str(data))
        assert refused.returncode == DIRECTORY and words in refused.stderr, refused.stderr
    assert list(dirs["one"].iterdir()) == []


def test_a_disk_server_stops_when_a_store_or_its_own_directory_is_shadowed(nodes):
    manager, disk, dirs = nodes
    disk.start("--join", token(manager))
    until(lambda: list(stores(manager).values()) == ["online"] * 2, 20)
    for shadowed, named in ((dirs["two"], dirs["two"] / "weir"), (disk.data, disk.data)):
        with mounted_over(shadowed) as there:
            ends(disk.process, DIRECTORY, disk.log_text, str(named))
            assert list(there.iterdir()) == []
        disk.start()
        until(lambda: list(stores(manager).values()) == ["online"] * 2, 20)
    with mounted_over(manager.data) as there:
        ends(manager.process, DIRECTORY, manager.log_text, str(manager.data), "a disk was mounted over it")
        assert list(there.iterdir()) == []
    manager.start()
    until(lambda: list(stores(manager).values()) == ["online"] * 2, 40)
    assert manager.stop() == DONE and disk.stop() == DONE


def test_a_disk_server_whose_directory_is_not_mounted_does_not_join_again(nodes, home):
    manager, disk, _ = nodes
    file = home / "token"
    file.write_text(token(manager) + "\n")
    disk.start("--join-file", file)
    assert disk.stop() == DONE
    with mounted_over(disk.data) as there:
        for flags in ((), ("--join-file", file), ("--join-file", file, "--existing")):
            said = disk.refused(DIRECTORY if "--existing" in flags else DENIED if flags else USAGE, *flags)
            assert "mounted" in said, said
            assert list(there.iterdir()) == [], "nothing is left of the attempt"
    disk.start()
    until(lambda: list(stores(manager).values()) == ["online"] * 2, 20)


def test_a_disk_server_that_cannot_listen_makes_no_directory_and_does_not_join(nodes, home):
    manager, disk, dirs = nodes
    joining = token(manager)
    with socket.create_server((disk.host, disk.port)):
        disk.refused(LISTEN, "--join", joining)
    assert not disk.data.exists() and not any((folder / "weir").exists() for folder in dirs.values())
    with socket.create_server((disk.host, disk.nodes_port)):
        disk.refused(LISTEN, "--join", joining)
    assert not disk.data.exists()
    # The token was not used up.
    disk.start("--join", joining)


def test_a_local_cluster_does_not_replace_a_node_whose_directory_is_empty(home):
    folder = home / "local"

    def local(*arguments: str):
        return weir("local", *arguments, "--dir", str(folder), timeout=300)

    assert local("up", "--disks", "2", "--listen", "127.0.0.1:0").returncode == DONE
    try:
        assert local("down").returncode == DONE
        for name, hint in (("disk2", "--new"), ("manager", "another one in a new folder")):
            with mounted_over(folder / name) as there:
                for command in (("up",), ("start", "manager", "disk1", "disk2")):
                    refused = local(*command)
                    assert refused.returncode == DIRECTORY, refused.stderr
                    assert f"{name} has no data in {folder / name} any more: is its disk mounted?" in refused.stderr
                    assert hint in refused.stderr
                    assert list(there.iterdir()) == []
        assert local("up").returncode == DONE
        data = folder / "manager"

        def nodes() -> int:
            return len(json.loads(weir("status", "--json", "--data", str(data)).stdout)["nodes"])

        assert nodes() == 3
        assert local("kill", "disk2").returncode == DONE
        shutil.rmtree(folder / "disk2")
        assert local("start", "disk2").returncode == DIRECTORY
        time.sleep(1)
        started = local("start", "disk2", "--new")
        assert started.returncode == DONE, started.stderr
        assert nodes() == 4
        assert local("start", "disk2").returncode == DONE
    finally:
        local("down")
