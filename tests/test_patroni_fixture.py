"""The PostgreSQL cluster for tests does what a site's cluster does: it survives the loss of its primary, and keeps what it acknowledged if
it replicates synchronously. The same check notices a loss where it does not."""

import subprocess
import threading
import time

import pytest
from harness import until
from patroni import Patroni

# Patroni's own time is its ttl and two rounds, eleven seconds on an idle machine.
FAILOVER_SECONDS = 60
BACK_SECONDS = 120
pytestmark = pytest.mark.timeout(600)


class Writer:
    """Inserts numbers all the time, each with a connection of its own, and remembers which of them were acknowledged."""

    def __init__(self, cluster: Patroni):
        self.cluster, self.acknowledged = cluster, []
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Writer":
        self.cluster.psql("CREATE TABLE numbers (n int PRIMARY KEY)")
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.thread.join()

    def _run(self) -> None:
        number = 0
        while not self.ended.is_set():
            number += 1
            try:
                done = self.cluster.ask(f"INSERT INTO numbers VALUES ({number})", self.cluster.url(), timeout=10)
            except subprocess.TimeoutExpired:
                continue
            if done.returncode == 0:
                self.acknowledged.append(number)
            else:
                time.sleep(0.1)

    def goes_on(self) -> None:
        """Waits for an insert that begins from now on."""
        before = len(self.acknowledged)
        until(lambda: len(self.acknowledged) > before + 1, FAILOVER_SECONDS)

    def lost(self) -> set[int]:
        return set(self.acknowledged) - set(map(int, self.cluster.psql("SELECT n FROM numbers").split()))


@pytest.mark.long  # test_database_patroni.py loses one under a manager
def test_a_lost_primary_loses_nothing(base):
    with Patroni(base / "patroni") as cluster:
        first = cluster.primary()
        assert cluster.psql("SHOW synchronous_standby_names") in cluster.standbys()
        assert [cluster.psql(f"SHOW {name}") for name in ("fsync", "synchronous_commit")] == ["on", "on"]
        with Writer(cluster) as writer:
            writer.goes_on()

            begin = time.monotonic()
            cluster.kill(first)
            second = cluster.wait_for_primary(other_than=first, seconds=FAILOVER_SECONDS)
            print(f"a killed primary was replaced after {time.monotonic() - begin:.1f} s")
            writer.goes_on()
            cluster.start(first)
            cluster.wait_for_standbys(BACK_SECONDS)

            begin = time.monotonic()
            cluster.isolate(second)
            assert cluster.wait_for_primary(seconds=FAILOVER_SECONDS) == first
            print(f"an isolated primary was replaced after {time.monotonic() - begin:.1f} s")
            writer.goes_on()
            cluster.heal(second)
            cluster.wait_for_standbys(BACK_SECONDS)

            begin = time.monotonic()
            assert cluster.switchover() == second
            print(f"a switchover took {time.monotonic() - begin:.1f} s")
            writer.goes_on()
        assert writer.lost() == set()
        assert cluster.processes()
    assert cluster.processes() == []
    assert not cluster.home.exists()


def test_an_asynchronous_standby_lacks_the_last_commits(base):
    with Patroni(base / "patroni", synchronous=False) as cluster:
        primary = cluster.primary()
        (standby,) = cluster.standbys()
        with Writer(cluster) as writer:
            writer.goes_on()
            cluster.cut(primary, standby)
            writer.goes_on()
        cluster.kill(primary)
        assert cluster.wait_for_primary(seconds=FAILOVER_SECONDS) == standby
        assert writer.lost()
