"""A manager and a PostgreSQL server that takes connections with TLS only: the server's certificate and name are checked, and what does not
fit is refused with its reason, without a storm of attempts."""

import re
from urllib.parse import quote

import pytest
from authority import Authority
from clients import Xrdfs, xrdcp
from cluster import Cluster, Node
from content import MIB, write
from harness import remove, until, weir
from managers import new_database
from postgres import Postgres
from test_database_manager import DENIED, UNREACHABLE, check, serve

LOGGED = {"log_connections": "on"}


@pytest.fixture(scope="module")
def postgres(base, authority):
    with Postgres(base / "postgres", authority=authority, settings=LOGGED) as server:
        yield server


@pytest.fixture(scope="module")
def plain(base):
    """A server without TLS."""
    with Postgres(base / "plain", settings=LOGGED) as server:
        yield server


@pytest.fixture(scope="module")
def other(base):
    """An authority that has not issued the server's certificate."""
    home = base / "other-authority"
    home.mkdir()
    return Authority(home, "other")


def database_of(url: str) -> str:
    return re.search(r":\d+/(\w+)", url).group(1)


def attempts(server: Postgres) -> int:
    """The connections that the server was asked for over TCP, whether they came about or not."""
    return server.log_text().count(f"connection received: host={server.address}")


def test_a_cluster_works_over_tls(base, postgres, tmp_path):
    url = new_database(postgres)
    assert "sslmode=verify-full" in url
    code, found = check(url)
    assert code == 0 and found["is_encrypted"], found
    with Cluster(base / "encrypted", 1, database=url) as cluster:
        names = Xrdfs(cluster.url)
        source = write(tmp_path / "source", "encrypted", MIB)
        names("mkdir", "-p", "/a/b").ok()
        xrdcp(source, f"{cluster.url}/a/b/file").ok()
        xrdcp(f"{cluster.url}/a/b/file", tmp_path / "back").ok()
        assert (tmp_path / "back").read_bytes() == source.read_bytes()
        of_weir = "FROM pg_stat_activity JOIN pg_stat_ssl USING (pid) WHERE application_name = 'weir' AND datname = "
        of_weir += f"'{database_of(url)}'"
        found = postgres.psql(f"SELECT count(*), bool_and(ssl), min(version) {of_weir}")
        count, encrypted, version = found.split("|")
        assert int(count) >= 3 and encrypted == "t" and version in ("TLSv1.2", "TLSv1.3"), found
        # Connections that are made later are encrypted as well.
        assert postgres.terminate_backends(f"datname = '{database_of(url)}'") >= 3
        names("mkdir", "/again").ok()
        assert until(lambda: postgres.psql(f"SELECT bool_and(ssl) {of_weir}"), 20) == "t"
        assert names.names("/") == ["a", "again"]
        assert cluster.manager.alive()
    remove(cluster.home)


def wrong_address(case: str, postgres: Postgres, plain: Postgres, other: Authority) -> tuple[Postgres, str, int, str]:
    """A server, an address of it with which weir must not work, the exit code, and words of the reason."""
    if case == "wrong authority":
        return postgres, postgres.url(sslrootcert=str(other.home / "ca.pem")), UNREACHABLE, "invalid peer certificate: UnknownIssuer"
    if case == "wrong name":
        elsewhere = postgres.url(hostaddr=postgres.address).replace(f"@{postgres.address}:", "@db.example.org:")
        return postgres, elsewhere, UNREACHABLE, "certificate not valid for name"
    if case == "no encryption":
        return postgres, postgres.url(sslmode="disable"), DENIED, "no encryption"
    certificates = quote(str(other.home / "ca.pem"), safe="")
    return plain, f"{plain.url()}?sslmode=verify-full&sslrootcert={certificates}", UNREACHABLE, "does not support TLS"


@pytest.mark.parametrize("case", ["wrong authority", "wrong name", "no encryption", "no TLS there"])
def test_what_does_not_fit_is_refused_with_its_reason(case, postgres, plain, other, tmp_path):
    server, url, code, words = wrong_address(case, postgres, plain, other)
    for command in ("init", "check", "migrate"):
        before = attempts(server)
        done = weir("db", command, "--database", url)
        assert done.returncode == code and words in done.stderr, done
        assert attempts(server) - before <= 2
        assert not any(quote(password, safe="") in done.stderr or password in done.stderr for password in server.passwords.values())
    before = attempts(server)
    done = serve(tmp_path / "data", "--database", url)
    assert done.returncode == code and words in done.stderr, done
    assert not (tmp_path / "data").exists()
    assert attempts(server) - before <= 2


def test_a_certificate_file_without_certificates_is_refused(postgres, tmp_path):
    for name, text in (("absent.pem", None), ("empty.pem", "no certificate\n")):
        if text:
            (tmp_path / name).write_text(text)
        done = serve(tmp_path / "data", "--database", postgres.url(sslrootcert=str(tmp_path / name)))
        assert "sslrootcert" in done.stderr and name in done.stderr, done


def test_a_manager_waits_calmly_while_the_certificate_is_not_trusted(base, postgres, other):
    """A certificate can be mended at the server, so a manager that has worked before waits."""
    url = new_database(postgres)
    trusted = str(postgres.authority.home / "ca.pem")
    wrong = url.replace(quote(trusted, safe=""), quote(str(other.home / "ca.pem"), safe=""))
    assert wrong != url
    node = Node(base / "waits", "manager", "127.0.0.1")
    try:
        node.start("--database", url)
        assert node.stop() == 0
        before = attempts(postgres)
        node.launch("--database", wrong)
        until(lambda: attempts(postgres) >= before + 4, 30, node.log_text)
        assert node.alive() and not node.ready.read_text()
        log = node.log_text(since_start=True)
        assert log.count("UnknownIssuer") == 1 and "waits until the database answers" in log, log
        assert node.stop() == 0
    finally:
        if node.alive():
            node.kill()
    remove(node.home)
