"""`weir policy apply` gives existing files the replicas that their policies ask for, and `weir policy set --mkdir`."""

import json
import time

import pytest
from clients import Xrdfs, xrdcp
from cluster import Cluster
from content import KIB, MIB, content, write
from harness import Killer, remove, until, weir

WRONG = 1


@pytest.fixture
def cluster(base, request):
    with Cluster(base / request.node.name, 3, ("--grace-seconds", "5")) as made:
        yield made
    remove(made.home)


def put(cluster: Cluster, tmp_path, path: str, size: int) -> bytes:
    xrdcp("-f", "-p", write(tmp_path / "source", path, size), f"{cluster.url}{path}").ok()
    return content(path, size)


def apply(cluster: Cluster, path: str, *flags: str) -> tuple[int, dict]:
    done = weir("policy", "apply", path, "--data", cluster.data, "--json", *flags)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def replicas(cluster: Cluster, path: str) -> int:
    units = cluster.file(path)["object"].get("units") or [cluster.file(path)["object"]]
    return min(sum(one["replica"] == "complete" for one in unit["replicas"]) for unit in units)


def all_there(cluster: Cluster, contents: dict[str, bytes], tmp_path) -> None:
    for path, data in contents.items():
        xrdcp("-f", f"{cluster.url}{path}", tmp_path / "back").ok()
        assert (tmp_path / "back").read_bytes() == data, path


def test_files_get_the_replicas_that_their_policies_ask_for(cluster, tmp_path):
    cluster.policy("/dealt", "stripe(2, 64KiB)")
    files = {f"/raw/d{number % 3}/f{number}": (2000, 100 * KIB, 2 * MIB)[number % 3] for number in range(9)}
    files = {path: put(cluster, tmp_path, path, size) for path, size in {**files, "/raw/own/f": 3000, "/dealt/f": 300_000}.items()}
    assert all(replicas(cluster, path) == 1 for path in files)
    cluster.policy("/raw", "replica(2)")
    cluster.policy("/raw/own", "replica(3) sync=1")
    cluster.policy("/dealt", "stripe(2, 64KiB) replica(2)")
    code, shown = apply(cluster, "/", "--dry-run")
    assert code == 0 and shown["is_dry_run"] and (shown["files"], shown["widened"]) == (12, 12), shown
    bytes_of_raw = sum(len(data) for path, data in files.items() if path.startswith("/raw/d"))
    assert shown["copied_bytes"] == bytes_of_raw + 2 * 3000 + 300_000
    assert all(replicas(cluster, path) == 1 for path in files), "nothing was changed"

    # The command is killed several times, and the manager once; what was done stays done.
    killer = Killer(3, "policy", "apply", "/raw", "--data", cluster.data, "--files-per-second", "10")
    for _ in range(3):
        killer.run("policy", "apply", "/raw", "--data", cluster.data, "--files-per-second", "10")
    cluster.manager.kill()
    cluster.manager.start()
    cluster.wait_sessions()
    code, done = apply(cluster, "/")
    assert code == 0 and done["fit"] + done["widened"] == 12 and not done["later"], done
    assert apply(cluster, "/")[1]["fit"] == 12
    until(lambda: all(replicas(cluster, path) == (3 if "/own/" in path else 2) for path in files), 60)
    all_there(cluster, files, tmp_path)

    # The new replicas are real: each file outlives the loss of any one server.
    for disk in cluster.disks:
        disk.kill()
        time.sleep(1)
        all_there(cluster, files, tmp_path)
        disk.start()
        cluster.wait_sessions()
    # And they take part in what comes after.
    put(cluster, tmp_path, "/raw/d0/f0", 50 * KIB)
    Xrdfs(cluster.url)("rm", "/raw/d1/f1").ok()
    until(lambda: len(cluster.whole_on("/raw/d0/f0")) == 2, 30)


def test_what_cannot_be_done_is_said(cluster, tmp_path):
    files = {f"/f{number}": put(cluster, tmp_path, f"/f{number}", 3000) for number in range(2)}
    cluster.policy("/", "replica(2) spread=site")
    cluster.policy("/many", "replica(3)")
    files["/many/f"] = put(cluster, tmp_path, "/many/f", 3000)
    cluster.policy("/many", "replica(1)")
    # All servers of the other site are away.
    away = [disk for number, disk in enumerate(cluster.disks) if number % 2 == 1]
    alone = [path for path in files if cluster.whole_on(path) == {cluster.store_of(cluster.disks[0])}]
    for disk in away:
        disk.kill()
    until(lambda: sum(store["state"] == "offline" for store in cluster.stores()) == len(away), 60)
    code, done = apply(cluster, "/")
    assert done["surplus"] == 1 and done["failed"] >= len(alone), done
    assert (code == WRONG) == (done["failed"] > 0)
    words = weir("policy", "apply", "/", "--dry-run", "--data", cluster.data).stdout
    assert "1 have more replicas than their policies ask for, and keep them" in words, words
    assert all(len(line) <= 80 for line in words.splitlines()), words
    for disk in away:
        disk.start()
    cluster.wait_sessions()
    assert apply(cluster, "/")[0] == 0
    until(lambda: all(replicas(cluster, path) == 2 for path in ("/f0", "/f1")), 60)
    refused = weir("policy", "apply", "/f0", "--data", cluster.data)
    assert refused.returncode != 0 and "directory" in refused.stderr.lower(), refused


def test_set_makes_the_directory_if_that_is_wanted(cluster):
    missing = weir("policy", "set", "/a/b", "replica(2)", "--data", cluster.data)
    assert missing.returncode != 0 and not Xrdfs(cluster.url).exists("/a")
    wrong = weir("policy", "set", "--mkdir", "/a/b", "replica(9)", "--data", cluster.data)
    assert wrong.returncode != 0 and not Xrdfs(cluster.url).exists("/a"), "a wrong policy makes nothing"
    for words in ("replica(2)", "replica(3)"):
        cluster.weir("policy", "set", "--mkdir", "/a/b", words, "--data", cluster.data)
        assert cluster.asked("policy", "get", "/a/b")["policy"].startswith(words)
    assert Xrdfs(cluster.url).names("/a") == ["b"]


def test_a_cluster_on_one_machine_keeps_one_replica_by_default(cluster):
    """Its addresses are loopback addresses, as those of `weir local`."""
    time.sleep(3)
    status = cluster.asked("status")
    assert (status["default_policy"], status["is_default_given"]) == ("replica(1) spread=host", False)
    assert "default policy: replica(1)" in weir("status", "--data", cluster.data).stdout
    assert weir("policy", "get", "/", "--data", cluster.data).stdout.startswith("replica(1)")
