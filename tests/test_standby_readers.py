"""Standby managers answer readers: what they answer themselves, and what only the active one can."""

import subprocess
import time

import pytest
from clients import Xrdfs, start_xrdcp, xrdcp
from content import MIB, write
from harness import WEIR_BIN, remove, weir
from managers import Managers, new_database
from postgres import Postgres
from test_metrics import named, samples

DONE = 0


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


@pytest.fixture
def standby(cluster):
    standby = cluster.other(cluster.active())
    cluster.until(lambda: cluster.status(standby).get("answers_readers"))
    return standby


def clients_of(node) -> float:
    """How many clients have connected with a node."""
    return named(samples(node), "weir_connections_accepted_total")


def test_readers_need_no_other_manager(cluster, standby, tmp_path):
    active = cluster.active()
    source = write(tmp_path / "source", "read at a standby", 3 * MIB)
    writer = Xrdfs(active.url)
    writer("mkdir", "/read").ok()
    xrdcp(source, f"{active.url}/read/whole").ok()
    writer("xattr", "/read/whole", "set", "run=7").ok()

    def is_located_by_standby() -> bool:
        before = clients_of(active)
        Xrdfs(standby.url)("locate", "/read/whole").ok()
        return clients_of(active) == before

    # Stores report soon after their start. Until then only the active manager knows that they are there.
    cluster.until(is_located_by_standby)
    at_active, at_standby = ({} for _ in range(2))
    for url, found in ((active.url, at_active), (standby.url, at_standby)):
        names = Xrdfs(url)
        before = clients_of(active)
        for asked in (
            ("stat", "/read/whole"),
            ("stat", "/read"),
            ("ls", "-l", "/read"),
            ("query", "checksum", "/read/whole"),
            ("xattr", "/read/whole", "get", "run"),
            ("query", "space", "/"),
        ):
            answer = names(*asked).ok().out.replace(url, "").replace(url.removeprefix("root://"), "")
            # What is free changes all the time.
            found[asked] = answer.split("&oss.free")[0]
        found["missing"] = names("stat", "/read/missing").refused(3011).error
        names("locate", "/read/whole").ok()
        xrdcp(f"{url}/read/whole", tmp_path / "back", "-f").ok()
        assert (tmp_path / "back").read_bytes() == source.read_bytes()
        found["came"] = clients_of(active) > before
    assert at_active.pop("came") and not at_standby.pop("came"), "the standby sent a reader to the active manager"
    assert at_standby == at_active
    assert named(samples(standby), "weir_standby_answers_readers") == 1


def test_what_is_acknowledged_is_there_at_once(cluster, standby, tmp_path):
    active = cluster.active()
    source = write(tmp_path / "source", "fresh", 4096)
    here, there = Xrdfs(active.url), Xrdfs(standby.url)
    for turn in range(12):
        xrdcp(source, f"{active.url}/fresh-{turn}").ok()
        assert "Size:   4096" in there("stat", f"/fresh-{turn}").ok().out
        here("mv", f"/fresh-{turn}", f"/moved-{turn}").ok()
        assert there.exists(f"/moved-{turn}") and not there.exists(f"/fresh-{turn}")
        here("rm", f"/moved-{turn}").ok()
        assert not there.exists(f"/moved-{turn}")


def test_changes_and_files_that_are_being_written_go_to_the_active_manager(cluster, standby):
    active = cluster.active()
    with subprocess.Popen([str(WEIR_BIN), "cp", "-", f"{standby.url}/growing"], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as writing:
        writing.stdin.write(b"x" * MIB)
        writing.stdin.flush()
        before = clients_of(active)
        cluster.until(lambda: weir("stat", f"{standby.url}/growing").returncode == DONE)
        assert clients_of(active) > before, "only the active manager knows the length"
        listed = cluster.until(lambda: "growing" in Xrdfs(standby.url)("ls", "-l", "/").ok().out)
        assert listed
        writing.stdin.close()
        assert writing.wait(60) == 0, writing.stderr.read()
    assert f"Size:   {MIB}" in Xrdfs(standby.url)("stat", "/growing").ok().out


def test_a_disk_server_that_is_away_is_not_named(cluster, standby, tmp_path):
    source = write(tmp_path / "source", "on two", MIB)
    xrdcp(source, f"{cluster.active().url}/on-two").ok()
    cluster.until(lambda: len(cluster.holders("/on-two")) == 2)
    away, left = cluster.disks
    away.kill()
    cluster.until(lambda: str(away.port) not in Xrdfs(standby.url)("locate", "/on-two").ok().out)
    for _ in range(4):
        begin = time.monotonic()
        xrdcp(f"{standby.url}/on-two", tmp_path / "back", "-f").ok()
        assert time.monotonic() - begin < 10
    assert (tmp_path / "back").read_bytes() == source.read_bytes()
    away.start()
    cluster.until(lambda: str(away.port) in Xrdfs(standby.url)("locate", "/on-two").ok().out)


def test_a_standby_that_hears_nothing_answers_nobody(cluster, standby):
    """Its view of the disk servers is too old then; the client waits, and another manager answers it."""
    active = cluster.active()
    names = Xrdfs(standby.url)
    names("stat", "/").ok()
    active.freeze()
    try:
        begin = time.monotonic()
        names("stat", "/").ok()
        assert time.monotonic() - begin < 3, "it had heard of the active manager a moment before"
        cluster.until(lambda: not cluster.status(standby).get("answers_readers"), 12)
        cluster.until(lambda: cluster.role(standby) == "manager", 15)
        names("stat", "/").ok()
    finally:
        active.thaw()
    cluster.wait_standby(active)
    cluster.until(lambda: cluster.status(active).get("answers_readers"))
    Xrdfs(active.url)("stat", "/").ok()


def test_a_change_that_is_refused_fails_at_once(cluster, standby, tmp_path):
    """The active manager refuses it, and the client comes back to the standby with that: it must not be sent there again and again."""
    names = Xrdfs(standby.url)
    for asked in (
        ("rm", "/absent"),
        ("rmdir", "/absent"),
        ("mv", "/absent", "/other"),
        ("mkdir", "/absent/below"),
        ("chmod", "/absent", "rwxr-xr-x"),
        ("truncate", "/absent", "10"),
    ):
        begin = time.monotonic()
        names(*asked).refused(3011)
        assert time.monotonic() - begin < 10, asked
    names("mkdir", "/a-directory").ok()
    xrdcp(write(tmp_path / "source", "a file", 4096), f"{standby.url}/a-file").ok()
    for asked in (("rmdir", "/a-file"), ("mkdir", "/a-file/below"), ("rm", "/a-file/below"), ("mv", "/a-directory", "/a-file")):
        begin = time.monotonic()
        refused = names(*asked)
        assert refused.code != 0 and "edirect limit" not in refused.out + refused.err, refused
        assert refused.error == Xrdfs(cluster.active().url)(*asked).error, refused
        assert time.monotonic() - begin < 10, asked
    # What is asked for often is no circle.
    for number in range(8):
        names("xattr", "/a-file", "set", f"n{number}=1").ok()
    names("mkdir", "-p", "/made/below").ok()
    names("rmdir", "/made/below").ok()


def test_a_stock_reader_goes_on_when_its_disk_server_dies(cluster, standby, tmp_path):
    source = write(tmp_path / "source", "read slowly", 24 * MIB)
    xrdcp(source, f"{standby.url}/slowly").ok()
    cluster.until(lambda: len(cluster.whole_on("/slowly")) == 2)
    before = {disk: served(disk) for disk in cluster.disks}
    with start_xrdcp("-f", "--xrate", "4m", f"{standby.url}/slowly", tmp_path / "back") as reading:
        server = cluster.until(lambda: next((disk for disk in cluster.disks if served(disk) > before[disk]), None))
        server.kill()
        assert reading.wait(100) == 0, reading.stdout.read()
    assert (tmp_path / "back").read_bytes() == source.read_bytes()
    server.start()


def served(disk) -> float:
    return named(samples(disk), "weir_read_bytes_total")
