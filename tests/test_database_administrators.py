"""What administrators of PostgreSQL do to a manager's database: they end its sessions in the middle of a change, point it at a replica, and
put a base backup in the place of the server's files."""

import contextlib
import subprocess
import threading

import pytest
from clients import Outcome, Xrdfs, xrdcp
from cluster import Cluster, Node
from content import KIB, content, write
from harness import remove, until, weir
from managers import ACCOUNT, new_database
from postgres import Postgres, clean_environment, program
from test_database_manager import UNREACHABLE, WRONG, check, reasons, serve
from test_database_move import all_there, db, put, refuses_to_start, run_on

OF_WEIR = "application_name = 'weir'"


@pytest.fixture(scope="module")
def postgres(base):
    with Postgres(base / "postgres") as server:
        yield server


def name_of(url: str) -> str:
    return url.rpartition("/")[2].partition("?")[0]


@contextlib.contextmanager
def locked(postgres: Postgres, database: str):
    """Another session holds a lock that keeps weir from changing entries, and not from reading them."""
    command = [program("psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", postgres.socket_url(database=database)]
    session = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, env=clean_environment())
    try:
        session.stdin.write("BEGIN; LOCK TABLE weir.entries IN EXCLUSIVE MODE;\n")
        session.stdin.flush()
        granted = "SELECT count(*) FROM pg_locks WHERE relation = 'weir.entries'::regclass AND mode = 'ExclusiveLock' AND granted"
        until(lambda: postgres.psql(granted, database=database) == "1", 20)
        yield
    finally:
        session.stdin.close()  # the transaction ends with the session
        assert session.wait(20) == 0


@contextlib.contextmanager
def unconfirmed(postgres: Postgres, database: str):
    """Each commit waits for a replica that is not there."""

    def set_to(names: str) -> None:
        postgres.psql(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
        postgres.psql("SELECT pg_reload_conf()")
        until(lambda: postgres.psql("SHOW synchronous_standby_names") == names, 20)

    set_to("nobody")
    try:
        yield
    finally:
        set_to("")


class AtOnce:
    """Operations of several clients at the same time, each of which can be done only once: a second time, it fails."""

    def __init__(self, url: str, number: str, source):
        fs = Xrdfs(url)
        self.work = {
            "mkdir": lambda: fs("mkdir", f"/new{number}"),
            "mv": lambda: fs("mv", f"/old{number}", f"/moved{number}"),
            "rmdir": lambda: fs("rmdir", f"/gone{number}"),
            "upload": lambda: xrdcp(source, f"{url}/file{number}"),
        }
        self.outcomes: dict[str, Outcome] = {}
        self.threads = [threading.Thread(target=self._run, args=(name,)) for name in self.work]

    def _run(self, name: str) -> None:
        self.outcomes[name] = self.work[name]()

    def start(self) -> "AtOnce":
        for thread in self.threads:
            thread.start()
        return self

    def join(self) -> None:
        for thread in self.threads:
            thread.join(90)


@pytest.fixture(scope="module")
def cluster(base, postgres):
    with Cluster(base / "administrators", 1, database=new_database(postgres)) as cluster:
        yield cluster
    remove(cluster.home)


@pytest.mark.parametrize(
    ("hold", "waits"), [(locked, "wait_event_type = 'Lock'"), (unconfirmed, "wait_event = 'SyncRep'")], ids=["lock", "commit"]
)
@pytest.mark.parametrize("end", ["terminate_backends", "cancel_statements"])
def test_a_session_that_an_administrator_ends_loses_no_change_and_repeats_none(cluster, postgres, tmp_path, hold, waits, end):
    number = f"-{end}-{hold.__name__}"
    fs, database = Xrdfs(cluster.url), name_of(cluster.manager.flags[1])
    fs("mkdir", f"/old{number}").ok()
    fs("mkdir", f"/gone{number}").ok()
    before = set(fs.names("/"))
    source = write(tmp_path / "source", number, 300 * KIB)
    of_batch = f"{OF_WEIR} AND datname = '{database}' AND {waits}"
    waiting = f"SELECT string_agg(pid::text, ',') FROM pg_stat_activity WHERE {of_batch}"
    clients = AtOnce(cluster.url, number, source)
    with hold(postgres, database):
        clients.start()
        for _ in range(2):
            until(lambda: postgres.psql(waiting), 20, cluster.logs)
            assert getattr(postgres, end)(of_batch) >= 1
        assert "mkdir" not in clients.outcomes and "mv" not in clients.outcomes, clients.outcomes
    clients.join()
    assert len(clients.outcomes) == len(clients.work)
    for outcome in clients.outcomes.values():
        outcome.ok()
    after = (before - {f"old{number}", f"gone{number}"}) | {f"{name}{number}" for name in ("new", "moved", "file")}
    assert set(fs.names("/")) == after
    # What the manager knows is what the database has.
    cluster.manager.kill()
    cluster.manager.start()
    cluster.wait_sessions()
    assert set(fs.names("/")) == after
    all_there(cluster, {f"/file{number}": content(number, 300 * KIB)}, tmp_path)


def test_a_replica_is_refused_with_its_reason(base, postgres, tmp_path):
    url = new_database(postgres)
    name, node = name_of(url), Node(base / "moved", "manager", "127.0.0.1")
    words = "accepts no changes: it is a replica"
    try:
        with Postgres(base / "replica", primary=postgres) as replica:
            assert replica.psql("SELECT pg_is_in_recovery()") == "t"
            of_replica = replica.url(ACCOUNT, name)
            for command in ("init", "migrate"):
                done = weir("db", command, "--database", replica.url(database=name))
                assert done.returncode == UNREACHABLE and words in done.stderr, done
            code, found = check(of_replica)
            assert code == WRONG and found["is_read_only"] and "it is a replica" in found["refused"], found
            done = serve(tmp_path / "new", "--database", of_replica)
            assert done.returncode == UNREACHABLE and words in done.stderr, done
            assert not (tmp_path / "new").exists()

            # Whoever says that any server will do is told the same.
            done = serve(tmp_path / "new", "--database", f"{of_replica}?target_session_attrs=any")
            assert "replica" in done.stderr or "recovery" in done.stderr, done

            # A manager that has worked before waits until the server accepts changes.
            node.start("--database", url)
            Xrdfs(node.url)("mkdir", "/kept").ok()
            assert node.stop() == 0
            end = postgres.psql("SELECT pg_current_wal_flush_lsn()")
            until(lambda: replica.psql(f"SELECT pg_last_wal_replay_lsn() >= '{end}'") == "t", 20)
            node.launch("--database", of_replica)
            until(lambda: "waits until the database answers" in node.log_text(since_start=True), 20, node.log_text)
            assert words in node.log_text(since_start=True) and node.alive()
            replica.psql("SELECT pg_promote()")
            node.wait_ready()
            until(lambda: Xrdfs(node.url)("mkdir", "/again").code == 0, 20, node.log_text)
            assert Xrdfs(node.url).names("/") == ["again", "kept"]
            assert node.stop() == 0
    finally:
        if node.alive():
            node.kill()
    remove(node.home)


def numbers_of(cluster: Cluster, path: str) -> tuple[int, str]:
    """The numbers of a file's inode and of its object."""
    file = cluster.file(path)
    return file["ino"], file["object"]["id"]


@pytest.mark.parametrize("is_running", [False, True], ids=["manager stopped", "manager running"])
def test_a_base_backup_in_the_place_of_the_server_must_be_continued(base, tmp_path, is_running):
    home = base / f"restored-{is_running}"
    with Postgres(base / f"restored-server-{is_running}") as server:
        url = new_database(server)
        owner = server.url(database=name_of(url))
        with Cluster(home, 1, ("--grace-seconds", "5"), database=url) as cluster:
            contents = {"/kept": put(cluster, tmp_path, "/kept", 300 * KIB)}
            backup = server.base_backup(base / f"backup-{is_running}")
            # A stopped manager notices a loss only if it has started since the backup. Each start takes new numbers.
            assert cluster.manager.stop() == 0
            run_on(cluster)
            used = []
            for number in range(5):
                put(cluster, tmp_path, f"/lost{number}", 300 * KIB)
                used.append(numbers_of(cluster, f"/lost{number}"))
            if not is_running:
                assert cluster.manager.stop() == 0
            server.stop()
            remove(server.data)
            backup.rename(server.data)
            server.start()
            if is_running:
                assert cluster.manager.process.wait(60) == 5, cluster.logs()
                log = cluster.manager.log_text()
                assert "has lost at least" in log, log
                code, found = check(owner)
                assert code == WRONG and "lost" in found["refused"], found
                refuses_to_start(cluster, "cannot be used")
            else:
                for _ in range(2):
                    refuses_to_start(cluster, "is older than this manager's directory")
            assert db("continue", owner, "--after-restore")["continued"] is True
            run_on(cluster)
            assert "old-namespace" in reasons(cluster)
            all_there(cluster, contents, tmp_path)
            new = []
            for number in range(5):
                contents[f"/new{number}"] = put(cluster, tmp_path, f"/new{number}", 300 * KIB)
                new.append(numbers_of(cluster, f"/new{number}"))
            assert min(ino for ino, _ in new) > max(ino for ino, _ in used), (used, new)
            assert len({number for _, number in (*used, *new)}) == 10, (used, new)
            all_there(cluster, contents, tmp_path)
            report = weir("restored", "--data", cluster.data, "--json").stdout
            assert all(f"/lost{number}" in report for number in range(5)), report
    remove(home)
