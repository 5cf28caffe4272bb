"""A cluster whose manager keeps the namespace in PostgreSQL: what clients do, kills of the manager and of the database, and everything
that the manager must refuse."""

import contextlib
import json
import re
import subprocess
import threading
import time

import pytest
from clients import Xrdfs, xrdcp
from cluster import Cluster, Node
from content import MIB, write
from harness import ROOT, remove, until, weir
from postgres import Postgres
from test_metrics import fetch, named, samples

DONE, WRONG, REFUSED, FAILED, DENIED, UNREACHABLE = 0, 1, 3, 6, 13, 15
CRITICAL = 2
ACCOUNT = "weir"


@pytest.fixture(scope="module")
def postgres(base):
    with Postgres(base / "postgres") as server:
        server.create_user(ACCOUNT)
        yield server


def new_database(postgres: Postgres) -> str:
    """A database with weir's tables, and with the rights that a manager needs. Returns its name."""
    name = postgres.create_database()
    made = weir("db", "init", "--grant-to", ACCOUNT, "--database", postgres.url(database=name))
    assert made.returncode == DONE and "made the tables" in made.stdout, made
    return name


@pytest.fixture(scope="module")
def cluster(base, postgres):
    url = postgres.url(ACCOUNT, new_database(postgres))
    with Cluster(base / "database-manager", 2, ("--metrics", "127.0.0.1:0"), database=url) as cluster:
        cluster.policy("/", "replica(2)")
        yield cluster
    remove(cluster.home)


def serve(home, *flags: str) -> subprocess.CompletedProcess:
    """A manager that must not start."""
    flags = ("--data", str(home), "--listen", "127.0.0.1:0", "--nodes", "127.0.0.1:0", *flags)
    done = weir("serve", "--role", "manager", *flags, timeout=60)
    assert done.returncode != DONE and not done.stdout, done
    return done


def reasons(cluster: Cluster) -> dict[str, str]:
    return {found["reason"]: found["text"] for found in cluster.asked("status")["health"]["reasons"]}


def test_files_come_and_go(cluster, tmp_path):
    names = Xrdfs(cluster.url)
    source = write(tmp_path / "source", "in a database", 5 * MIB)
    names("mkdir", "-p", "/a/b").ok()
    xrdcp(source, f"{cluster.url}/a/b/file").ok()
    xrdcp(f"{cluster.url}/a/b/file", tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == source.read_bytes()
    names("mv", "/a/b/file", "/a/moved").ok()
    assert (names.names("/a"), names.names("/a/b")) == (["b", "moved"], [])
    assert len(cluster.until(lambda: cluster.whole_on("/a/moved"))) == 2
    names("rm", "/a/moved").ok()
    names("rmdir", "/a/b").ok()
    assert names.names("/a") == [] and not names.exists("/a/moved")
    told = samples(cluster.manager)
    assert named(told, "weir_database_up") == 1 and named(told, "weir_database_outage_seconds") == 0
    assert named(told, "weir_database_operations_total", outcome="committed") > 5
    assert 0 < named(told, "weir_database_batches_total") < named(told, "weir_database_round_trips_total")


def test_the_documents_list_every_metric(cluster):
    every, text = (ROOT / "docs/reference/metrics.md").read_text().split("\n## Nodes of a cluster\n")
    documented = dict(re.findall(r"^\| `((?:weir|process)_\w+)` \| (\w+) \|", every, re.MULTILINE))
    of_data = ("weir_scrub_", "weir_recent_", "weir_first_read_", "weir_read_ahead_")
    left_out = set(re.search(r"exports these, and not `(\w+)` and `(\w+)`", text).groups())
    rows = re.findall(r"^\| `(weir_\w+)` \| (\w+) \| ([a-z ]+) \|", text, re.MULTILINE)
    expected = {name: kind for name, kind in documented.items() if not name.startswith(of_data) and name not in left_out}
    expected |= {name: kind for name, kind, role in rows if role in ("manager", "manager with a database")}
    assert dict(re.findall(r"^# TYPE (\w+) (\w+)$", fetch(cluster.manager), re.MULTILINE)) == expected


def test_the_manager_starts_again_after_any_stop(cluster, tmp_path):
    names = Xrdfs(cluster.url)
    source = write(tmp_path / "source", "kept", MIB)
    segments = []
    for number, end in enumerate((cluster.manager.stop, cluster.manager.kill, cluster.manager.stop, cluster.manager.kill)):
        xrdcp(source, f"{cluster.url}/kept{number}").ok()
        end()
        cluster.manager.start()
        segments.append(len(list((cluster.manager.data / "journal").iterdir())))
        cluster.wait_sessions()
    assert names.names("/")[-4:] == [f"kept{number}" for number in range(4)]
    for number in range(4):
        xrdcp("-f", f"{cluster.url}/kept{number}", tmp_path / "back").ok()
        assert (tmp_path / "back").read_bytes() == source.read_bytes()
    # The journal of the directory has nothing to keep.
    assert max(segments) <= 4, segments
    assert "database" not in reasons(cluster)


class Makers:
    """Processes that make directories one after the other, each until it is told to end. `made` has those that were acknowledged."""

    def __init__(self, url: str, count: int):
        self.names, self.end = Xrdfs(url), threading.Event()
        self.made: list[str] = []
        self.failed: list[str] = []
        self.longest_seconds = 0.0
        self.threads = [threading.Thread(target=self._make, args=(number,)) for number in range(count)]

    def _make(self, number: int) -> None:
        for turn in range(10_000):
            if self.end.is_set():
                return
            path, begin = f"/load/{number}-{turn}", time.monotonic()
            outcome = self.names("mkdir", path, timeout=120)
            self.longest_seconds = max(self.longest_seconds, time.monotonic() - begin)
            # The answer of a stock client's first try may be lost, and then the second one finds the directory.
            if outcome.code == 0 or outcome.error == 3018:
                self.made.append(path)
            else:
                self.failed.append(f"{path}: {outcome.err}")

    def __enter__(self) -> "Makers":
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.end.set()
        for thread in self.threads:
            thread.join(150)


@contextlib.contextmanager
def killed(postgres: Postgres):
    postgres.kill()
    try:
        yield
    finally:
        postgres.start()


@pytest.mark.parametrize("end", ["kill", "restart"])
def test_the_database_dies_under_load(cluster, postgres, end):
    names = Xrdfs(cluster.url)
    names("mkdir", "-p", "/load").ok()
    with Makers(cluster.url, 4) as makers:
        cluster.until(lambda: len(makers.made) > 10)
        if end == "restart":
            postgres.restart()
        else:
            with killed(postgres):
                assert "cannot reach the database" in cluster.until(lambda: reasons(cluster).get("database"), 60)
                asked = weir("status", "--check", "--data", cluster.data)
                assert asked.returncode == CRITICAL and "database" in asked.stdout, asked
                told = until(lambda: named(found := samples(cluster.manager), "weir_database_outage_seconds") and found, 10)
                assert named(told, "weir_database_up") == 0
                assert named(told, "weir_health", reason="database") == 2
                assert "cannot read its names now" in cluster.weir("status", "--data", cluster.data)
        begin = len(makers.made)
        cluster.until(lambda: len(makers.made) > begin + 20, 60)
    assert not makers.failed, makers.failed
    assert makers.longest_seconds < 60
    assert {path.rpartition("/")[2] for path in makers.made} <= set(names.names("/load"))
    cluster.until(lambda: "database" not in reasons(cluster), 20)
    assert cluster.manager.alive()


def test_a_manager_that_starts_waits_for_its_database(cluster, postgres):
    assert cluster.manager.stop() == DONE
    with killed(postgres):
        cluster.manager.launch()
        waits = "this manager waits until the database answers"
        cluster.until(lambda: waits in cluster.manager.log_text(since_start=True))
        # Whoever stops it need not wait.
        assert cluster.manager.stop() == DONE
        cluster.manager.launch()
        cluster.until(lambda: waits in cluster.manager.log_text(since_start=True))
    cluster.manager.wait_ready()
    log = cluster.manager.log_text(since_start=True)
    assert log.count(waits) == 1 and "the database answers, after" in log, log
    cluster.wait_sessions()
    # What a person must mend ends it at once.
    assert cluster.manager.stop() == DONE
    wrong = postgres.url(ACCOUNT, "postgres").replace(postgres.passwords[ACCOUNT], "wrong")
    assert serve(cluster.manager.data, "--database", wrong).returncode == DENIED
    cluster.manager.start()
    cluster.wait_sessions()


def test_a_database_that_becomes_read_only_is_an_outage(base, postgres):
    name = new_database(postgres)
    with Cluster(base / "read-only", 0, database=postgres.url(ACCOUNT, name)) as cluster:
        postgres.psql(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
        postgres.terminate_backends(f"datname = '{name}'")
        cluster.until(lambda: "accepts no changes" in reasons(cluster).get("database", ""), 60)
        postgres.psql(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
        postgres.terminate_backends(f"datname = '{name}'")
        cluster.until(lambda: "database" not in reasons(cluster), 20)
        Xrdfs(cluster.url)("mkdir", "/again").ok()


def test_what_cannot_be_used_is_refused_and_leaves_no_directory(base, postgres, tmp_path):
    empty, good = postgres.create_database(), new_database(postgres)
    newer, read_only = new_database(postgres), new_database(postgres)
    postgres.psql("UPDATE weir.schema SET version = 1000", database=newer)
    postgres.psql(f'ALTER DATABASE "{read_only}" SET default_transaction_read_only = on')
    account = postgres.url(ACCOUNT, good)
    poor = postgres.create_user("poor")
    cases = [
        (account.replace(postgres.passwords[ACCOUNT], "wrong"), DENIED, "password authentication failed"),
        (postgres.url(poor, good), DENIED, "permission denied"),
        (re.sub(r":\d+/", ":1/", account), UNREACHABLE, "cannot reach the database"),
        (postgres.url(ACCOUNT, empty), FAILED, "weir db init"),
        (postgres.url(ACCOUNT, newer), FAILED, "newer weir"),
        (postgres.url(ACCOUNT, read_only), UNREACHABLE, "accepts no changes"),
        ("postgres://weir@127.0.0.1/weir?passfile=/does/not/exist", 2, "password file"),
        ("mysql://weir:secret@127.0.0.1/weir", 2, "postgres://"),
    ]
    for number, (url, code, words) in enumerate(cases):
        data = tmp_path / f"data{number}"
        done = serve(data, "--database", url)
        assert done.returncode == code and words in done.stderr, (words, done)
        assert not data.exists(), words
        for secret in ("secret", "wrong", *postgres.passwords.values()):
            assert f":{secret}@" not in done.stderr, done.stderr
    for role in ([], ["--role", "disk"]):
        done = weir("serve", *role, "--data", str(tmp_path / "other"), "--database", account, timeout=30)
        assert done.returncode == 2 and "is for a cluster's manager" in done.stderr, done


def check(url: str) -> tuple[int, dict]:
    done = weir("db", "check", "--json", "--database", url)
    return done.returncode, json.loads(done.stdout)


def test_a_check_says_whether_a_manager_can_start(cluster, postgres, tmp_path):
    name = postgres.create_database()
    url = postgres.url(database=name)
    code, found = check(url)
    assert (code, found["tables"]) == (WRONG, None) and "weir db init" in found["refused"]
    for words in ("made the tables", "there already"):
        made = weir("db", "init", "--database", url)
        assert made.returncode == DONE and words in made.stdout, made
    code, found = check(url)
    assert (code, found["tables"], found["cluster"], found["refused"]) == (DONE, found["tables_needed"], None, None)
    assert found["server"].startswith("PostgreSQL ") and not found["is_encrypted"] and not found["is_read_only"]
    moved = weir("db", "migrate", "--database", url)
    assert moved.returncode == DONE and "nothing was changed" in moved.stdout, moved
    postgres.psql("UPDATE weir.schema SET closed = 'lost a lot'", database=name)
    assert check(url)[0] == WRONG and check(url)[1]["refused"] == "lost a lot"
    postgres.psql("UPDATE weir.schema SET closed = NULL, version = 1000", database=name)
    assert check(url)[0] == WRONG and "newer" in check(url)[1]["refused"]
    assert weir("db", "migrate", "--database", url).returncode == FAILED

    config = tmp_path / "weir.toml"
    config.write_text(f'[database]\nurl = "{cluster.manager.flags[1]}"\n')
    shown = weir("db", "check", "--config", str(config))
    assert shown.returncode == DONE and "a manager can start on it" in shown.stdout, shown
    assert postgres.passwords[ACCOUNT] not in shown.stdout
    assert re.search(r"cluster: +[0-9a-f]{32}", shown.stdout), shown
    assert weir("db", "check", "--database", re.sub(r":\d+/", ":1/", url)).returncode == UNREACHABLE
    assert weir("db", "check").returncode == 2


@contextlib.contextmanager
def running(node: Node):
    try:
        yield node.start()
    finally:
        if node.alive():
            node.kill()


def test_directory_and_database_belong_together(base, postgres, tmp_path):
    mine, other = new_database(postgres), new_database(postgres)
    url = postgres.url(ACCOUNT, mine)
    with running(Node(base / "one", "manager", "127.0.0.1", ("--database", url))) as one:
        # Whoever is refused does not disturb the one that runs.
        done = serve(tmp_path / "new", "--database", url)
        assert done.returncode == REFUSED and "belongs to the cluster" in done.stderr, done
        assert not (tmp_path / "new").exists()
        backup = weir("backup", str(tmp_path / "backup"), "--data", str(one.data))
        assert backup.returncode != DONE and "pg_basebackup" in backup.stderr, backup
        assert not (tmp_path / "backup").exists()
        time.sleep(2)
        assert one.alive() and one.stop() == DONE
        mark = (one.data / "DATABASE").read_text()
        assert f"{ACCOUNT}@127.0.0.1:{postgres.port}/{mine}" in mark and postgres.passwords[ACCOUNT] not in mark
        done = serve(one.data)
        assert done.returncode == REFUSED and "is in the database" in done.stderr and "--database" in done.stderr, done
        done = serve(one.data, "--database", postgres.url(ACCOUNT, other))
        assert done.returncode == REFUSED and "has no namespace yet" in done.stderr, done
        assert weir("backup", str(tmp_path / "backup"), "--data", str(one.data)).returncode != DONE
        assert weir("fsck", "--data", str(one.data)).returncode == REFUSED
        one.start()

    with running(Node(base / "two", "manager", "127.0.0.1")) as two:
        two.stop()
        done = serve(two.data, "--database", postgres.url(ACCOUNT, other))
        assert done.returncode == REFUSED and "weir db import" in done.stderr, done
        done = serve(two.data, "--database", url)
        assert done.returncode == REFUSED, done
    assert check(postgres.url(ACCOUNT, other))[1]["cluster"] is None
    remove(one.home)
    remove(two.home)


def test_a_second_manager_waits_until_the_first_one_has_ended(base, postgres):
    url = postgres.url(ACCOUNT, new_database(postgres))
    with running(Node(base / "first", "manager", "127.0.0.1", ("--database", url))) as first:
        second = Node(base / "second", "manager", "127.0.0.2", ("--database", url))
        subprocess.run(["cp", "-a", first.data, second.data], check=True)
        # It has the identity of the first one, too, so nobody can know them apart. It does not disturb it.
        second.launch()
        until(lambda: "an earlier run of this manager has ended" in second.log_text(), 20, second.log_text)
        Xrdfs(first.url)("mkdir", "/there").ok()
        assert first.alive() and second.alive()
        first.kill()
        try:
            second.wait_ready()
            until(lambda: Xrdfs(second.url).names("/") == ["there"], 30, second.log_text)
        finally:
            second.kill()
    remove(first.home)
    remove(second.home)


def test_passwords_are_not_shown(cluster, postgres):
    password = postgres.passwords[ACCOUNT]
    texts = [cluster.manager.log_text(), fetch(cluster.manager), cluster.weir("status", "--data", cluster.data)]
    assert all(password not in text for text in texts)
    assert "all users of this machine can see the password" in texts[0]
