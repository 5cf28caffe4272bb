"""A manager that is cut off from the database alone: clients, disk servers and other managers still reach it."""

import pytest
from clients import Xrdfs, xrdcp
from content import KIB, write
from harness import remove
from managers import TAKE_OVER_SECONDS, Managers, new_database
from plain_client import NothingDone, PlainClient
from postgres import Postgres
from proxy import Proxy
from test_standby import Uploads, by_weir

# It grants leases for 4 s after the last sign of life that the database has confirmed.
LEASE_SECONDS = 4
# Without a lease for so long, it becomes a standby.
GIVES_UP_SECONDS = 15


@pytest.fixture(scope="module")
def cluster(base):
    """Two managers. The active one reaches the database by `cluster.way`."""
    home = base / "cut"
    with Postgres(base / "cut-postgres") as postgres, Proxy(postgres.port) as way:
        with Managers(home, 2, ("--grace-seconds", "5"), new_database(postgres), managers=2) as cluster:
            direct, through = f":{postgres.port}/", f":{way.port}/"
            first = cluster.active()
            second = cluster.other(first)
            assert second.stop() == 0
            assert any(direct in str(flag) for flag in second.flags)
            second.flags = tuple(str(flag).replace(direct, through) for flag in second.flags)
            second.start()
            cluster.wait_standby(second)
            assert first.stop() == 0
            cluster.wait_active(second)
            first.start()
            cluster.wait_standby(first)
            cluster.way = way
            yield cluster
    remove(home)


def test_a_manager_that_is_cut_off_from_the_database_alone_hands_over_and_shows_nothing_old(cluster, tmp_path):
    cut_off = cluster.active()
    other = cluster.other(cut_off)
    assert cluster.way.connections > 0
    old, new = write(tmp_path / "old", "old", 100 * KIB), write(tmp_path / "new", "new", 200 * KIB)
    xrdcp(old, f"{cut_off.url}/file").ok()
    at_old = PlainClient([(cut_off.host, cut_off.port)], 1)
    assert at_old.stat("/file")[1] == 100 * KIB
    both = ",".join(f"{node.host}:{node.port}" for node in (cut_off, other))
    with Uploads([by_weir(f"root://{both}/")], old) as uploads:
        cluster.until(lambda: len(uploads.done) > 1)
        cluster.way.go_away()
        cluster.until(lambda: cluster.role(other) == "manager", TAKE_OVER_SECONDS)
        xrdcp("-f", new, f"{other.url}/file").ok()
        # It cannot know who is active, so it has its clients wait.
        with pytest.raises(NothingDone):
            at_old.stat("/file")
        cluster.until(lambda: cluster.role(cut_off) == "standby", GIVES_UP_SECONDS + LEASE_SECONDS + 5)
        cluster.way.come_back()
        cluster.wait_standby(cut_off)
        done = len(uploads.done)
        cluster.until(lambda: len(uploads.done) > done + 2, 30)
    assert not uploads.failed, uploads.failed
    cluster.until(lambda: cluster.status(cut_off).get("answers_readers"))
    assert at_old.stat("/file")[1] == 200 * KIB
    at_old.close()
    names = set(Xrdfs(cut_off.url).names("/"))
    assert {*uploads.done, "file"} <= names
    for name in ("file", uploads.done[-1]):
        xrdcp("-f", f"{cut_off.url}/{name}", tmp_path / "back").ok()
        assert (tmp_path / "back").read_bytes() == (new if name == "file" else old).read_bytes()
