"""A cluster whose namespace moves from the manager's directory into PostgreSQL and back: `weir db import`, `export`, `dump` and
`continue`. All files stay as they were, byte for byte, however the commands are killed."""

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
from clients import Xrdfs, xrdcp
from cluster import Cluster
from content import KIB, MIB, adler32, content, write
from harness import WEIR_BIN, remove, weir
from postgres import Postgres

DIRECTORY_REFUSED, FAILED = 3, 6
SIZES = (0, 1, 4 * KIB, 300 * KIB, 2 * MIB)


@pytest.fixture
def postgres(base, request):
    with Postgres(base / f"{request.node.name}-postgres") as server:
        yield server


@pytest.fixture
def cluster(base, request):
    with Cluster(base / request.node.name, 2, ("--grace-seconds", "5")) as made:
        made.policy("/", "replica(2)")
        yield made
    remove(made.home)


@pytest.fixture
def database(postgres) -> str:
    """The address of a database with weir's tables."""
    url = postgres.url(database=postgres.create_database())
    done = weir("db", "init", "--database", url)
    assert done.returncode == 0, done.stderr
    return url


def put(cluster: Cluster, tmp_path: Path, path: str, size: int) -> bytes:
    xrdcp("-f", "-p", write(tmp_path / "source", path, size), f"{cluster.url}{path}").ok()
    return content(path, size)


def all_there(cluster: Cluster, contents: dict[str, bytes], tmp_path: Path) -> None:
    fs = Xrdfs(cluster.url)
    for path, data in contents.items():
        xrdcp("-f", f"{cluster.url}{path}", tmp_path / "back").ok()
        assert (tmp_path / "back").read_bytes() == data, path
        assert adler32(data) in fs("query", "checksum", path).ok().out


def db(command: str, url: str, *flags: str | Path, code: int = 0) -> dict | str:
    """The JSON output of a command, or its messages if it is to fail."""
    done = weir("db", command, "--database", url, "--json", *map(str, flags))
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout) if code == 0 else done.stderr


def run_on(cluster: Cluster, *flags: str) -> None:
    cluster.manager.start(*flags)
    cluster.wait_sessions()


def refuses_to_start(cluster: Cluster, word: str, *flags: str) -> None:
    process = cluster.manager.launch(*flags).process
    assert process.wait(30) != 0
    assert word in cluster.manager.log_text(since_start=True), cluster.manager.log_text(since_start=True)


def killed(command: str, url: str, data: str, seconds: float) -> bool:
    """Runs a command and kills it after some time. Returns whether it was still running."""
    process = subprocess.Popen(
        [WEIR_BIN, "db", command, "--database", url, "--data", data], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    time.sleep(seconds)
    if process.poll() is not None:
        return False
    process.send_signal(signal.SIGKILL)
    process.wait()
    return True


def test_a_cluster_moves_into_a_database_and_back(cluster, database, tmp_path):
    contents = {}
    for number, size in enumerate(SIZES):
        path = f"/embedded/dir {number}/file'{number}"
        contents[path] = put(cluster, tmp_path, path, size)
    in_use = db("import", database, "--data", cluster.data, code=4)
    assert "lock" in in_use or "process" in in_use, in_use
    assert cluster.manager.stop() == 0
    imported = db("import", database, "--data", cluster.data)
    assert imported["entries"] > 50
    # The directory alone is not the namespace any more.
    refuses_to_start(cluster, "is in the database")
    assert "--database" in db("import", database, "--data", cluster.data, code=DIRECTORY_REFUSED)
    assert weir("fsck", "--data", cluster.data).returncode != 0

    run_on(cluster, "--database", database)
    all_there(cluster, contents, tmp_path)
    fs = Xrdfs(cluster.url)
    for number, size in enumerate(SIZES):
        path = f"/database/file{number}"
        contents[path] = put(cluster, tmp_path, path, size)
    fs("mv", "/embedded/dir 1/file'1", "/database/moved").ok()
    contents["/database/moved"] = contents.pop("/embedded/dir 1/file'1")
    fs("rm", "/embedded/dir 2/file'2").ok()
    del contents["/embedded/dir 2/file'2"]
    assert cluster.manager.stop() == 0

    exported = db("export", database, "--data", cluster.data)
    assert exported["entries"] > imported["entries"]
    refuses_to_start(cluster, "is in its data directory", "--database", database)
    run_on(cluster)
    all_there(cluster, contents, tmp_path)
    listed = Xrdfs(cluster.url)("ls", "-R", "/").ok().out
    assert "file'2" not in listed and "dir 1/file'1" not in listed
    contents["/embedded/again"] = put(cluster, tmp_path, "/embedded/again", 300 * KIB)
    assert cluster.manager.stop() == 0
    # Backups from before the export are not taken for complete.
    assert "--replace" in db("import", database, "--data", cluster.data, code=FAILED)
    db("import", database, "--data", cluster.data, "--replace")
    run_on(cluster, "--database", database)
    all_there(cluster, contents, tmp_path)


def test_killed_moves_are_finished_by_the_next_run(cluster, database, tmp_path):
    rng = random.Random(os.environ.get("WEIR_SEED", "7"))
    contents = {path: put(cluster, tmp_path, path, size) for path, size in (("/a", 4 * KIB), ("/b/c", 2 * MIB), ("/b/d", 0))}
    fs = Xrdfs(cluster.url)
    for number in range(300):
        fs("mkdir", "-p", f"/many/{number % 10}/directory{number}").ok()
    assert cluster.manager.stop() == 0
    for command, flags in (("import", ("--database", database)), ("export", ())):
        # Each run gets a little longer, so that kills hit early and late steps, however fast the machine is.
        kills = sum(killed(command, database, cluster.data, rng.uniform(0.5, 1) * longest) for longest in (0.02, 0.05, 0.1, 0.2, 0.3, 0.5))
        # A kill may have come after the last step. Otherwise the next run ends the move.
        done = weir("db", command, "--database", database, "--data", cluster.data)
        assert done.returncode == 0 or "start the manager" in done.stderr.lower() or "namespace of its own" in done.stderr, done.stderr
        assert kills > 0
        run_on(cluster, *flags)
        all_there(cluster, contents, tmp_path)
        assert Xrdfs(cluster.url)("ls", "/many/7").ok().out.count("directory") == 30
        assert cluster.manager.stop() == 0


def test_a_dump_goes_into_another_database_and_into_a_directory(cluster, database, postgres, tmp_path):
    contents = {"/kept": put(cluster, tmp_path, "/kept", 300 * KIB)}
    assert cluster.manager.stop() == 0
    db("import", database, "--data", cluster.data)
    run_on(cluster, "--database", database)
    dumps = tmp_path / "dumps"
    done = weir("db", "dump", str(dumps), "--database", database, "--data", cluster.data, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["kind"] == "full"
    assert weir("restore", str(dumps), "--verify").returncode == 0
    put(cluster, tmp_path, "/after", 4 * KIB)
    assert cluster.manager.stop() == 0
    # The database is lost, and a new one takes its place. Nothing may be removed on the disk servers before that is accepted.
    second = postgres.url(database=postgres.create_database())
    assert weir("db", "init", "--database", second).returncode == 0
    db("import", second, "--backup", dumps)
    run_on(cluster, "--database", second)
    all_there(cluster, contents, tmp_path)
    report = json.loads(weir("restored", "--data", cluster.data, "--json").stdout)
    assert "/after" in json.dumps(report)
    put(cluster, tmp_path, "/new", 4 * KIB)


def test_a_database_that_was_set_back_must_be_continued(cluster, database, postgres, tmp_path):
    contents = {"/kept": put(cluster, tmp_path, "/kept", 300 * KIB)}
    assert cluster.manager.stop() == 0
    db("import", database, "--data", cluster.data)
    name = database.rpartition("/")[2].partition("?")[0]
    # A copy of the database as of now, as a base backup has it.
    postgres.psql(f"CREATE DATABASE earlier TEMPLATE {name}")
    run_on(cluster, "--database", database)
    put(cluster, tmp_path, "/lost", 300 * KIB)
    assert cluster.manager.stop() == 0
    postgres.psql(f"DROP DATABASE {name}")
    postgres.psql(f"ALTER DATABASE earlier RENAME TO {name}")
    # However often it is tried.
    for _ in range(3):
        refuses_to_start(cluster, "is older than this manager's directory", "--database", database)
    assert db("continue", database, "--after-restore")["continued"] is True
    run_on(cluster, "--database", database)
    all_there(cluster, contents, tmp_path)
    contents["/new"] = put(cluster, tmp_path, "/new", 300 * KIB)
    reasons = {found["reason"] for found in cluster.asked("status")["health"]["reasons"]}
    assert "old-namespace" in reasons, reasons
    all_there(cluster, contents, tmp_path)
