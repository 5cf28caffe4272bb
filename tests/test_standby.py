"""Several managers on one database: joining, what a standby does, and how it takes over."""

import subprocess
import threading
import time

import pytest
from clients import Xrdfs, xrdcp
from cluster import Cluster, Node
from content import MIB, write
from harness import remove, weir
from managers import ACCOUNT, TAKE_OVER_SECONDS, Managers, new_database
from postgres import Postgres
from test_metrics import named, samples

DONE, USAGE, REFUSED, DENIED = 0, 2, 3, 13


@pytest.fixture(scope="module")
def postgres(base):
    with Postgres(base / "postgres") as server:
        yield server


@pytest.fixture(scope="module")
def cluster(base, postgres):
    with Managers(base / "managers", 2, ("--metrics", "127.0.0.1:0"), new_database(postgres), managers=2) as cluster:
        cluster.policy("/", "replica(2)")
        yield cluster
    remove(cluster.home)


@pytest.fixture(autouse=True)
def both_run(request):
    """The tests of the cluster begin with one active manager and one standby."""
    if "cluster" not in request.fixturenames:
        return
    cluster = request.getfixturevalue("cluster")
    for node in cluster.managers:
        if not node.alive():
            node.start()
    active = cluster.active()
    cluster.wait_standby(cluster.other(active))
    cluster.wait_active(active)


def refused(node: Node, *arguments: str) -> str:
    done = weir(*arguments, "--data", str(node.data))
    assert done.returncode != DONE, done
    return done.stderr


def test_a_standby_says_where_the_active_one_is(cluster):
    active = cluster.active()
    standby = cluster.other(active)
    status = cluster.status(standby)
    assert status["database_trouble"] is None and status["health"]["verdict"] == "healthy", status
    assert status["active"]["nodes"] == f"{active.host}:{active.nodes_port}"
    assert status["active"]["clients"] == f"{active.host}:{active.port}"
    words = cluster.weir("status", "--data", str(standby.data))
    assert "a standby manager" in words and "the database answers" in words, words
    for command in (["stores"], ["token", "create"], ["drain", "1"]):
        why = refused(standby, *command)
        assert f"this manager is a standby; the active one is {active.host}:{active.nodes_port}" in why, why
    assert named(samples(standby), "weir_manager_active") == 0 and named(samples(active), "weir_manager_active") == 1
    states = {one["node"]: one["manager"] for one in cluster.status(active)["nodes"] if one["roles"] == "manager"}
    assert sorted(states.values()) == ["active", "standby"], states


def test_stock_clients_are_redirected(cluster, tmp_path):
    standby = cluster.other(cluster.active())
    names = Xrdfs(standby.url)
    source = write(tmp_path / "source", "through a standby", 3 * MIB)
    xrdcp(source, f"{standby.url}/through").ok()
    xrdcp(f"{standby.url}/through", tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == source.read_bytes()
    names("mkdir", "/made").ok()
    names("mv", "/made", "/moved").ok()
    assert {"through", "moved"} <= set(names.names("/")) and names.exists("/moved")
    assert "Size:   3145728" in names("stat", "/through").ok().out
    names("truncate", "/through", "1000").ok()
    names("chmod", "/moved", "rwxr-x---").ok()
    names("rmdir", "/moved").ok()
    names("rm", "/through").ok()
    assert not names.exists("/through")
    names("locate", "/").ok()
    done = weir("cp", str(source), f"{standby.url}/by-weir")
    assert done.returncode == DONE, done
    done = weir("cp", f"{standby.url}/by-weir", str(tmp_path / "again"))
    assert done.returncode == DONE and (tmp_path / "again").read_bytes() == source.read_bytes(), done


def test_a_clean_stop_hands_over_at_once(cluster, tmp_path):
    active = cluster.active()
    standby = cluster.other(active)
    source = write(tmp_path / "source", "kept over a stop", MIB)
    xrdcp(source, f"{active.url}/kept-stop").ok()
    begin = time.monotonic()
    assert active.stop() == DONE
    cluster.until(lambda: cluster.role(standby) == "manager", 6)
    assert time.monotonic() - begin < 6
    cluster.wait_active(standby)
    xrdcp("-f", f"{standby.url}/kept-stop", tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == source.read_bytes()
    active.start()
    cluster.wait_standby(active)
    assert Xrdfs(active.url).exists("/kept-stop")


class Uploads:
    """Clients that copy files one after the other until told to end. `done` has the names of those whose copy succeeded."""

    def __init__(self, commands: list, source):
        self.commands, self.source, self.end = commands, source, threading.Event()
        self.done: list[str] = []
        self.failed: list[str] = []
        self.threads = [threading.Thread(target=self._run, args=(number,)) for number in range(len(commands))]

    def _run(self, number: int) -> None:
        for turn in range(10_000):
            if self.end.is_set():
                return
            name = f"load-{number}-{turn}"
            outcome = self.commands[number](self.source, name)
            (self.done if outcome[0] == 0 else self.failed).append(name if outcome[0] == 0 else f"{name}: {outcome[1]}")
            time.sleep(0.05)

    def __enter__(self) -> "Uploads":
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.end.set()
        for thread in self.threads:
            thread.join(120)


def by_weir(url: str):
    def copy(source, name: str) -> tuple[int, str]:
        done = weir("cp", str(source), f"{url}/{name}", timeout=100)
        return done.returncode, done.stderr

    return copy


def test_a_killed_manager_is_replaced_within_ten_seconds(cluster, tmp_path):
    active = cluster.active()
    standby = cluster.other(active)
    source = write(tmp_path / "source", "kept over a kill", 2 * MIB)
    large = write(tmp_path / "large", "large", 40 * MIB)
    xrdcp(source, f"{active.url}/read-over").ok()
    # A stock client that writes slowly goes on with its disk server, and closes at the new manager.
    upload = subprocess.Popen(["xrdcp", "-f", "-s", "--xrate", "4m", large, f"{active.url}/slow"], stderr=subprocess.PIPE, text=True)
    reader = subprocess.Popen(
        ["xrdcp", "-f", "-s", "--xrate", "200k", f"{active.url}/read-over", tmp_path / "slow-back"], stderr=subprocess.PIPE, text=True
    )
    both = ",".join(f"{node.host}:{node.port}" for node in (standby, active))
    with Uploads([by_weir(f"root://{both}/")], source) as uploads:
        cluster.until(lambda: len(uploads.done) > 2)
        active.kill()
        begin = time.monotonic()
        cluster.until(lambda: cluster.role(standby) == "manager", TAKE_OVER_SECONDS)
        done_before = len(uploads.done)
        cluster.until(lambda: len(uploads.done) > done_before + 2, 30)
        took = time.monotonic() - begin
    assert not uploads.failed, uploads.failed
    assert took < TAKE_OVER_SECONDS + 8, took
    assert upload.wait(60) == 0, upload.stderr.read()
    assert reader.wait(60) == 0, reader.stderr.read()
    assert (tmp_path / "slow-back").read_bytes() == source.read_bytes()
    names = set(Xrdfs(standby.url).names("/"))
    assert {*uploads.done, "slow"} <= names
    for name in [uploads.done[0], uploads.done[-1]]:
        xrdcp("-f", f"{standby.url}/{name}", tmp_path / "back").ok()
        assert (tmp_path / "back").read_bytes() == source.read_bytes()
    xrdcp("-f", f"{standby.url}/slow", tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == large.read_bytes()
    assert cluster.status(standby)["health"]["verdict"] != "critical"
    cluster.until(lambda: any(one["reason"] == "managers" for one in cluster.status(standby)["health"]["reasons"]))
    # The killed one comes back as the standby of the other.
    active.start()
    cluster.wait_standby(active)
    cluster.until(lambda: all(one["reason"] != "managers" for one in cluster.status(standby)["health"]["reasons"]))


def test_a_frozen_manager_grants_nothing_when_it_goes_on(cluster):
    active = cluster.active()
    standby = cluster.other(active)
    active.freeze()
    try:
        cluster.wait_active(standby)
        Xrdfs(standby.url)("mkdir", "/while-frozen").ok()
        time.sleep(2)
    finally:
        active.thaw()
    cluster.wait_standby(active)
    log = active.log_text(since_start=True)
    assert "this manager is a standby again" in log, log
    assert cluster.role(standby) == "manager" and cluster.online(standby) == len(cluster.disks)
    assert Xrdfs(active.url).exists("/while-frozen")
    # Nothing of it was committed after the other one had taken over.
    assert cluster.active() is standby


def serve(home, *flags) -> subprocess.CompletedProcess:
    """A manager that must not start."""
    flags = ("--data", str(home), "--listen", "127.0.0.1:0", "--nodes", "127.0.0.1:0", *map(str, flags))
    return weir("serve", "--role", "manager", *flags, timeout=60)


def test_what_cannot_join_is_refused(cluster, base, postgres, tmp_path):
    token = tmp_path / "token"
    token.write_text(cluster.token())
    # Without a database, a manager is alone.
    done = serve(tmp_path / "alone", "--join-file", token)
    assert done.returncode == USAGE and "does not join" in done.stderr, done
    # A token for disk servers.
    of_disk = tmp_path / "of-disk"
    of_disk.write_text(cluster.weir("token", "create", "--data", cluster.active().home / "data"))
    done = serve(tmp_path / "disk", "--join-file", of_disk, "--database", cluster.database)
    assert done.returncode == DENIED, done
    # A token, and the database of another cluster.
    done = serve(tmp_path / "other", "--join-file", token, "--database", new_database(postgres))
    assert done.returncode == REFUSED, done
    # The same, with a namespace: the token is not used for it.
    name = postgres.create_database()
    assert weir("db", "init", "--grant-to", ACCOUNT, "--database", postgres.url(database=name)).returncode == DONE
    postgres.psql("UPDATE weir.schema SET cluster = decode(repeat('07', 16), 'hex')", database=name)
    done = serve(tmp_path / "third", "--join-file", token, "--database", postgres.url(ACCOUNT, name))
    assert done.returncode == REFUSED and "the token was not used" in done.stderr, done
    # No token, and the database of this one.
    done = serve(tmp_path / "none", "--database", cluster.database)
    assert done.returncode == REFUSED and "belongs to the cluster" in done.stderr, done
    # No address that standbys and clients could be told.
    anywhere = ["--data", str(tmp_path / "anywhere"), "--nodes", "127.0.0.1:0", "--listen", "0.0.0.0:0", "--insecure"]
    anywhere += ["--database", cluster.database, "--check"]
    done = weir("serve", "--role", "manager", *anywhere)
    assert done.returncode == USAGE and "clients cannot be sent to 0.0.0.0:0" in done.stderr, done
    done = weir("serve", "--role", "manager", *anywhere, "--advertise", "127.0.0.1:1094")
    assert done.returncode == DONE, done
    # A manager of a cluster of its own gives no such token, and cannot use one.
    with Cluster(base / "own", 0) as own:
        done = weir("token", "create", "--role", "manager", "--data", own.data)
        assert done.returncode != DONE and "one manager" in done.stderr, done
        own.manager.stop()
        again = tmp_path / "again"
        again.write_text(cluster.token())
        done = serve(own.manager.data, "--join-file", again, "--database", cluster.database)
        assert done.returncode == REFUSED and "nothing was changed" in done.stderr, done
    remove(own.home)
    assert len([one for one in cluster.status(cluster.active())["nodes"] if one["roles"] == "manager"]) == 2


def test_a_manager_that_was_removed_stays_out(cluster, base, postgres):
    extra = Node(base / "extra", "manager", "127.0.0.8", ("--database", cluster.database))
    token = extra.home / "token"
    token.write_text(cluster.token())
    extra.start("--join-file", token)
    try:
        cluster.wait_standby(extra)
        data = str(cluster.active().data)
        node = str(cluster.status(extra)["node"])
        done = weir("node", "remove", node, "--data", data)
        assert done.returncode != DONE and "stop it first" in done.stderr, done
        assert extra.stop() == DONE
        cluster.until(lambda: weir("node", "remove", node, "--data", data).returncode == DONE)
        extra.start()
        cluster.until(lambda: "not in this cluster any more" in extra.log_text(since_start=True), 20)
        assert cluster.status(extra)["active"]["is_connected"] is False
        # When the place is free, it does not take it.
        extra.kill()
        active = cluster.active()
        assert cluster.other(active).stop() == DONE and active.stop() == DONE
        fence = "SELECT fence, process FROM weir.committers"
        name = cluster.database.rpartition("/")[2]
        before = postgres.psql(fence, database=name)
        done = serve(extra.data, "--database", cluster.database)
        assert done.returncode == REFUSED and "was removed from its cluster" in done.stderr, done
        assert postgres.psql(fence, database=name) == before
    finally:
        extra.kill()
        remove(extra.home)
