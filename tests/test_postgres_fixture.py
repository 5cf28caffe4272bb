"""The PostgreSQL server for tests does what tests of managers need from it."""

import subprocess
import time

import pytest
from authority import Authority
from harness import StartFailed
from postgres import Postgres, clean_environment, program


def query(url: str, sql: str) -> subprocess.CompletedProcess:
    """What a client gets that knows the URL only."""
    command = [program("psql"), "-X", "-q", "-A", "-t", "-d", url, "-c", sql]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, env=clean_environment())


@pytest.fixture(scope="module")
def postgres(base):
    with Postgres(base / "postgres") as server:
        yield server


def test_it_starts_quickly(base, postgres):
    begin = time.monotonic()
    with Postgres(base / "second") as second:
        assert time.monotonic() - begin < 10  # about a second on an idle machine
        assert second.port != postgres.port
        socket = second.socket
    assert not (base / "second").exists() and not socket.exists()


def test_it_is_durable(postgres):
    settings = ("fsync", "synchronous_commit", "full_page_writes")
    assert [postgres.psql(f"SHOW {name}") for name in settings] == ["on"] * 3


def test_users_have_passwords_and_no_rights(postgres):
    user = postgres.create_user("least")
    mine, other = postgres.create_database(user), postgres.create_database()
    assert query(postgres.url(user, mine), "CREATE TABLE t (k bytea); SELECT count(*) FROM t").stdout == "0\n"
    assert "permission denied" in query(postgres.url(user, other), "CREATE TABLE t (k bytea)").stderr
    assert query(postgres.socket_url(user, mine), "SELECT current_user").stdout == "least\n"
    wrong = postgres.url(user, mine).replace(postgres.passwords[user], "wrong")
    assert "password authentication failed" in query(wrong, "SELECT 1").stderr
    assert 'password authentication failed for user "least"' in postgres.log_text()


def test_committed_data_survives_a_kill(postgres):
    database = postgres.create_database()
    postgres.psql("CREATE TABLE t (n int)", database=database)
    for number, end in enumerate((postgres.kill, lambda: postgres.stop("immediate"), postgres.stop)):
        postgres.psql(f"INSERT INTO t VALUES ({number})", database=database)
        end()
        assert not postgres.alive()
        assert "refused" in query(postgres.url(database=database), "SELECT 1").stderr
        postgres.start()
        assert postgres.psql("SELECT count(*) FROM t", database=database) == str(number + 1)


def test_connections_can_be_terminated(postgres):
    command = [program("psql"), "-X", "-d", postgres.url(), "-c", "SELECT pg_sleep(60)"]
    client = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment())
    end = time.monotonic() + 20
    while not (ended := postgres.terminate_backends("query LIKE '%pg_sleep(60)%'")):
        assert time.monotonic() < end
        time.sleep(0.05)
    assert ended == 1
    assert "terminating connection due to administrator command" in client.communicate(timeout=20)[1]


def test_connections_are_limited(base):
    with Postgres(base / "small", max_connections=4, settings={"superuser_reserved_connections": 1}) as small:
        assert small.psql("SHOW max_connections") == "4"


def test_tls_only(base):
    home = base / "authority-of-postgres"
    home.mkdir()
    with Postgres(base / "tls", authority=Authority(home)) as server:
        encrypted = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
        assert query(server.url(), encrypted).stdout == "t\n"
        assert "no encryption" in query(server.url(sslmode="disable"), encrypted).stderr


def test_a_failed_start_shows_the_log(base):
    with pytest.raises(StartFailed, match='unrecognized configuration parameter "weir"'):
        Postgres(base / "wrong", settings={"weir": 1}).__enter__()
    assert not (base / "wrong").exists()
