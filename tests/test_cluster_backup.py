"""`weir backup` of a cluster's manager while it runs, and `weir restore` after its directory is lost. The disk servers are newer than a
restored manager: nothing on them is removed or replaced before an administrator has seen the list of `weir restored` and accepts it."""

import json
import os
import shutil
import stat
import subprocess
import threading
import time
from pathlib import Path

import pytest
from clients import Xrdfs, xrdcp
from cluster import Cluster
from content import KIB, MIB, adler32, content, write
from harness import WEIR_BIN, Killer, remove, until, weir

DIRECTORY_REFUSED, WRONG = 3, 1
DAY_SECONDS = 86_400


@pytest.fixture
def cluster(base, request):
    with Cluster(base / request.node.name, 3, ("--grace-seconds", "5")) as made:
        made.policy("/", "replica(2)")
        yield made
    remove(made.home)


def backup(cluster: Cluster, target: Path, *flags: str) -> dict:
    done = weir("backup", "--data", cluster.data, str(target), "--json", *flags)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def restore(cluster: Cluster, target: Path, *flags: str) -> dict:
    done = weir("restore", str(target), "--data", cluster.data, "--json", *flags)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def restored(cluster: Cluster, *flags: str) -> tuple[int, dict]:
    done = weir("restored", "--data", cluster.data, "--json", "--list", "1000", *flags)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def reasons(cluster: Cluster) -> dict[str, str]:
    return {found["reason"]: found["text"] for found in cluster.asked("status")["health"]["reasons"]}


def put(cluster: Cluster, tmp_path: Path, path: str, size: int, seed: str = "") -> bytes:
    xrdcp("-f", "-p", write(tmp_path / "source", path + seed, size), f"{cluster.url}{path}").ok()
    return content(path + seed, size)


def all_there(cluster: Cluster, contents: dict[str, bytes], tmp_path: Path) -> None:
    fs = Xrdfs(cluster.url)
    for path, data in contents.items():
        xrdcp("-f", f"{cluster.url}{path}", tmp_path / "back").ok()
        assert (tmp_path / "back").read_bytes() == data, path
        assert adler32(data) in fs("query", "checksum", path).ok().out


def lose_the_manager(cluster: Cluster) -> None:
    cluster.manager.kill()
    shutil.rmtree(cluster.manager.data)


def start_again(cluster: Cluster) -> None:
    cluster.manager.start("--existing")
    cluster.wait_sessions()


def start_writer(cluster: Cluster, path: str) -> subprocess.Popen:
    """A copy from a pipe, which the caller feeds."""
    command = [WEIR_BIN, "cp", "--retry-for", "60", "-", cluster.url + path]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)


class Load:
    """A client that writes and removes files while this lasts. It knows what was acknowledged, and goes on when the manager is away."""

    def __init__(self, cluster: Cluster, home: Path):
        self.cluster, self.home = cluster, home
        self.stop = threading.Event()
        self.closed: dict[str, bytes] = {}
        # Files that were removed at any time, and files whose writer got an error.
        self.touched: set[str] = set()
        self.unclear: set[str] = set()
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        fs = Xrdfs(self.cluster.url)
        number = 0
        while not self.stop.is_set():
            size = (2000, 30 * KIB, 300 * KIB)[number % 3]
            path = f"/load/d{number % 4}/file{number}"
            source = write(self.home / "load", path, size)
            done = xrdcp("-p", source, f"{self.cluster.url}{path}")
            if done.code == 0:
                self.closed[path] = content(path, size)
            else:
                self.unclear.add(path)
            gone = f"/load/d{(number - 2) % 4}/file{number - 2}"
            if number % 5 == 4 and gone in self.closed:
                self.touched.add(gone)
                del self.closed[gone]
                fs("rm", gone)
            number += 1

    def __enter__(self) -> "Load":
        self.thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.stop.set()
        self.thread.join()


def test_a_manager_whose_directory_is_lost_comes_back_from_a_backup_under_load(cluster, tmp_path):
    target = tmp_path / "backups"
    early = {path: put(cluster, tmp_path, path, size) for path, size in (("/kept", 3 * MIB), ("/gone", 100 * KIB), ("/over", 70 * KIB))}
    unused = tmp_path / "token"
    unused.write_text(cluster.weir("token", "create", "--data", cluster.data))
    with Load(cluster, tmp_path) as load:
        backup(cluster, target)
        # Killed backups leave the others as they are.
        killer = Killer(3, "backup", "--data", cluster.data, target)
        until(lambda: not killer.run("backup", "--data", cluster.data, target) and killer.killed >= 3, 60)
        until(lambda: len(load.closed) > 10, 60)
        before = dict(load.closed)
        taken = backup(cluster, target)
        assert weir("restore", str(target), "--verify").returncode == 0
        until(lambda: len(load.closed) > len(before) + 5, 60)
        # After the backup: a file removed, one replaced, a new one.
        Xrdfs(cluster.url)("rm", "/gone").ok()
        put(cluster, tmp_path, "/over", 90 * KIB, "later")
        put(cluster, tmp_path, "/later", 500 * KIB)
        until(lambda: cluster.asked("status")["deletions"]["count"] == 0, 30)
        lose_the_manager(cluster)
        key = target / "cluster-authority"
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        report = restore(cluster, target)
        after = {path for path in dict(load.closed) if path not in before} | {"/later", "/over"}
        assert (report["backup"]["number"], report["nothing_lost"]) == (taken["number"], False)
        start_again(cluster)
        # Writers go on: the same client writes on after the restore.
        goes_on = len(load.closed)
        until(lambda: len(load.closed) > goes_on + 5, 60)
    since = dict(load.closed)
    assert (cluster.manager.data / "cluster/authority").read_bytes() == key.read_bytes()

    # All that was complete at the backup, and all that was written since the restore.
    complete = {path: data for path, data in before.items() if path not in load.touched}
    new = {path: data for path, data in since.items() if path not in before and path not in after}
    assert len(complete) > 5 and len(new) > 3, (len(complete), len(new))
    all_there(cluster, {"/kept": early["/kept"], **complete, **new}, tmp_path)
    for path in ("/gone", "/over"):
        assert Xrdfs(cluster.url).exists(path)
        assert xrdcp("-f", f"{cluster.url}{path}", tmp_path / "back").code != 0, path
    assert not Xrdfs(cluster.url).exists("/later")

    # The disagreement is said, and listed in words.
    assert "weir restored --accept" in reasons(cluster)["old-namespace"]
    code, found = restored(cluster)
    assert code == WRONG and found["is_held"] and found["stores"] == 3 and not found["not_compared"]
    assert {"/gone", "/over"} <= {file["path"] for file in found["lost"]} <= {"/gone", "/over", *load.touched}, found["lost"]
    extra = {replica["made_as"] for replica in found["extra"] if replica["is_complete"]}
    # One file may have been in the making at the moment of the backup. It has a name.
    assert len(after - load.touched - extra) <= 1 and extra <= after | load.touched | load.unclear, (after, extra)
    assert sum(replica["made_as"] == "/later" for replica in found["extra"]) == 2, "both replicas"
    words = weir("restored", "--data", cluster.data, "--list", "1000").stdout
    assert "/gone: 100 KiB" in words and "made as /later: 500 KiB" in words, words
    assert all(len(line) <= 80 for line in words.splitlines()), words

    # Nothing of it is removed, not even when its store is drained.
    numbers = {replica["object"] for replica in found["extra"]}
    there = [path for disk in cluster.disks for path in disk.objects() if path.name.split(".")[0] in numbers]
    assert len(there) >= 4, there
    cluster.weir("drain", "disk3", "--data", cluster.data)
    time.sleep(5)
    assert all(path.exists() for path in there)
    cluster.weir("drain", "disk3", "--stop", "--data", cluster.data)

    # Tokens that may be used up or revoked let nobody join, and numbers of nodes are not given twice.
    addresses = ("--listen", "127.0.0.9:0", "--nodes", "127.0.0.9:0")
    newcomer = weir("serve", "--role", "disk", "--data", str(tmp_path / "new"), *addresses, "--join-file", str(unused))
    assert newcomer.returncode != 0 and "token" in newcomer.stderr, newcomer.stderr

    # Accepted: what is gone counts as lost, and the rest goes on as usual.
    flags = ["--accept"]
    if found["finished"]:
        # The one in the making has become complete since the backup.
        refused = weir("restored", "--data", cluster.data, "--accept")
        assert refused.returncode != 0 and "are complete on their stores" in refused.stderr, refused
        flags.append("--force")
    code, accepted = restored(cluster, *flags)
    assert code == 0 and not accepted["is_held"]
    lost = {file["path"] for file in cluster.asked("missing", "--unreadable") if file["state"] == "lost"}
    assert {"/gone", "/over"} <= lost
    assert "old-namespace" not in reasons(cluster)
    all_there(cluster, complete, tmp_path)
    put(cluster, tmp_path, "/over", 10 * KIB, "once more")
    cluster.manager.stop()
    start_again(cluster)
    assert not restored(cluster)[1]["is_held"]
    assert backup(cluster, target)["kind"] == "full", "of another history"


def test_with_its_journal_nothing_is_lost_and_a_writer_goes_on(cluster, tmp_path):
    target = tmp_path / "backups"
    kept = {"/before": put(cluster, tmp_path, "/before", 300 * KIB)}
    backup(cluster, target)
    kept["/after"] = put(cluster, tmp_path, "/after", 300 * KIB)
    data = os.urandom(8 * MIB)
    writer = start_writer(cluster, "/long")
    writer.stdin.write(data[: 4 * MIB])
    writer.stdin.flush()
    until(lambda: Xrdfs(cluster.url).exists("/long"), 20)
    cluster.manager.kill()
    shutil.rmtree(cluster.manager.data / "namespace")
    report = restore(cluster, target)
    assert report["nothing_lost"], report
    start_again(cluster)
    writer.stdin.write(data[4 * MIB :])
    writer.stdin.close()
    assert writer.wait(60) == 0, writer.stderr.read()
    all_there(cluster, {**kept, "/long": data}, tmp_path)
    assert "old-namespace" not in reasons(cluster)
    refused = weir("restored", "--data", cluster.data)
    assert refused.returncode != 0 and "never restored" in refused.stderr, refused


def test_a_file_that_was_being_written_at_the_backup_is_never_taken_for_what_it_was(cluster, tmp_path):
    """Its writer has gone on since. Neither it nor a reader gets the older state without a word."""
    target = tmp_path / "backups"
    data = os.urandom(6 * MIB)
    writer = start_writer(cluster, "/long")
    writer.stdin.write(data[: 3 * MIB])
    writer.stdin.flush()
    until(lambda: cluster.asked("status")["writers"]["count"] == 1, 20)
    backup(cluster, target)
    writer.stdin.write(data[3 * MIB :])
    writer.stdin.close()
    assert writer.wait(30) == 0, writer.stderr.read()
    all_there(cluster, {"/long": data}, tmp_path)
    lose_the_manager(cluster)
    restore(cluster, target)
    start_again(cluster)
    time.sleep(12)  # longer than the grace period
    xrdcp("-f", f"{cluster.url}/long", tmp_path / "back").fails("was being written when the backup was taken")
    # The bytes are on the disks, whole.
    sizes = [path.stat().st_size for disk in cluster.disks for path in disk.objects()]
    assert sizes.count(6 * MIB) == 2, sizes
    # The same principal replaces it, without waiting for an administrator.
    source = write(tmp_path / "source", "again", 200 * KIB)
    cluster.weir("cp", "--force", str(source), cluster.url + "/long")
    all_there(cluster, {"/long": content("again", 200 * KIB)}, tmp_path)


def test_an_older_state_by_time_and_by_record(cluster, tmp_path):
    target = tmp_path / "backups"
    put(cluster, tmp_path, "/one", 10 * KIB)
    first = backup(cluster, target)
    time.sleep(1.1)
    middle = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
    put(cluster, tmp_path, "/two", 10 * KIB)
    record = backup(cluster, tmp_path / "elsewhere")["upto"]
    put(cluster, tmp_path, "/three", 10 * KIB)
    backup(cluster, target)
    cluster.manager.stop()
    report = restore(cluster, target, "--until", str(record))
    assert (report["record"], report["backup"]["number"]) == (record, first["number"])
    start_again(cluster)
    assert sorted(Xrdfs(cluster.url).names("/")) == ["one", "two"]
    assert {replica["made_as"] for replica in restored(cluster)[1]["extra"]} == {"/three"}
    cluster.manager.stop()
    done = weir("restore", str(target), "--data", cluster.data, "--until", middle)
    assert done.returncode == 0 and "restored as of backup 1" in done.stdout, done
    assert "weir restored --accept" in done.stdout and "tokens that nobody has used" in done.stdout, done.stdout
    start_again(cluster)
    assert Xrdfs(cluster.url).names("/") == ["one"]
    assert {replica["made_as"] for replica in restored(cluster)[1]["extra"]} == {"/two", "/three"}


def test_a_restore_that_is_killed_is_run_again(cluster, tmp_path):
    target = tmp_path / "backups"
    kept = {f"/f{number}": put(cluster, tmp_path, f"/f{number}", 20 * KIB) for number in range(10)}
    backup(cluster, target)
    lose_the_manager(cluster)
    command = ["restore", target, "--data", cluster.data]
    killer = Killer(5, "restore", target, "--verify")
    for _ in range(12):
        killer.run(*command)
    assert killer.killed >= 3, killer.killed
    restore(cluster, target)
    start_again(cluster)
    all_there(cluster, kept, tmp_path)


def test_a_recent_backup_of_the_manager_is_no_reason_to_worry(cluster, tmp_path):
    backup(cluster, tmp_path / "backups")
    last = cluster.manager.data / "last-backup"
    old = time.time() - 3 * DAY_SECONDS
    os.utime(last, (old, old))
    assert "no-backup" in reasons(cluster)
    assert backup(cluster, tmp_path / "backups")["kind"] == "delta"
    assert "no-backup" not in reasons(cluster)
    cluster.manager.stop()
    assert backup(cluster, tmp_path / "backups", "--full")["kind"] == "full"  # of a stopped manager
    start_again(cluster)


def test_directories_of_other_roles_are_refused(cluster, tmp_path):
    target = tmp_path / "backups"
    backup(cluster, target)
    of_disk = weir("backup", "--data", str(cluster.disks[0].data), str(tmp_path / "of-disk"))
    assert of_disk.returncode == DIRECTORY_REFUSED and "back up the cluster's manager" in of_disk.stderr, of_disk
    assert not (tmp_path / "of-disk").exists()
    single = tmp_path / "single"
    assert weir("init", "--data", str(single)).returncode == 0
    refused = weir("restore", str(target), "--data", str(single))
    assert refused.returncode == DIRECTORY_REFUSED and "nothing was touched" in refused.stderr, refused
    # Without the cluster's key a backup would be of no use.
    key = cluster.manager.data / "cluster/authority"
    key.rename(tmp_path / "key")
    lacks = weir("backup", "--data", cluster.data, str(target))
    assert lacks.returncode != 0 and "the key of the cluster" in lacks.stderr, lacks
    (tmp_path / "key").rename(key)
