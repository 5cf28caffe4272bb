"""A cluster whose namespace is in PostgreSQL under Patroni goes on after the loss of the primary. The outage is Patroni's own time and a
few seconds, and nothing that was acknowledged is lost. Where Patroni promotes a replica that was behind, the manager says so and stops."""

import subprocess
import threading
import time

import pytest
from clients import PATIENCE, STUBBORN, environment
from cluster import Cluster
from harness import WEIR_BIN, until
from patroni import Patroni

ACCOUNT = "weir"
DAMAGED, FAILED = 5, 6
FAILOVER_SECONDS = 60
BACK_SECONDS = 120
# The time between the new primary and the first change that a client gets through.
AFTER_PATRONI_SECONDS = 5
# The longest wait of uploads for a lost replica (Patroni stops waiting for it), and for a lost etcd member (nothing waits for it).
REPLICA_LOST_SECONDS, ETCD_LOST_SECONDS = 30, 10
pytestmark = pytest.mark.timeout(600)


class Uploads:
    """A client that uploads small files one after the other, and notes which of them were acknowledged, and when."""

    def __init__(self, patroni: Patroni, cluster: Cluster, work, patience: dict[str, str] = STUBBORN):
        self.patroni, self.url, self.work, self.patience = patroni, f"{cluster.url}/files", work, patience
        self.acknowledged: list[tuple[str, float]] = []
        self.number = 0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Uploads":
        self.work.mkdir()
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.thread.join()

    @staticmethod
    def content(name: str) -> bytes:
        return (name + "\n").encode() * 500

    def _run(self) -> None:
        while not self.ended.is_set():
            self.number += 1
            name = f"file-{self.number}"
            (self.work / name).write_bytes(self.content(name))
            if self.xrdcp(self.work / name, f"{self.url}/{name}").returncode == 0:
                self.acknowledged.append((name, time.monotonic()))
            (self.work / name).unlink()

    def xrdcp(self, *arguments: object) -> subprocess.CompletedProcess:
        command = [*self.patroni.within(), "xrdcp", "--nopbar", "--force", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment(self.patience))

    def goes_on(self, since: float, seconds: float) -> float:
        """Waits for a file that is acknowledged after `since`. Returns when that was."""

        def found() -> float | None:
            return next((at for _, at in reversed(self.acknowledged) if at > since), None)

        return until(found, seconds)

    def compare(self) -> None:
        """Every acknowledged file is there with its bytes."""
        back = self.work / "back"
        for name, _ in self.acknowledged:
            done = self.xrdcp(f"{self.url}/{name}", back)
            assert done.returncode == 0 and back.read_bytes() == self.content(name), (name, done.stderr)


def cluster_on(patroni: Patroni, home) -> Cluster:
    """A cluster whose processes all run where the clients of the database do."""
    patroni.create_user(ACCOUNT)
    database = patroni.create_database()
    init = [*patroni.within(), WEIR_BIN, "db", "init", "--grant-to", ACCOUNT]
    subprocess.run([*init, "--database", patroni.url(database=database, sslmode="disable")], check=True, timeout=60)
    cluster = Cluster(home, 2, database=patroni.url(ACCOUNT, database, sslmode="disable"))
    for node in cluster.nodes:
        node.prefix = tuple(patroni.within())
    return cluster


def test_the_loss_of_the_primary_is_a_pause(base, tmp_path):
    with (
        Patroni(base / "patroni") as patroni,
        cluster_on(patroni, base / "cluster") as cluster,
        Uploads(patroni, cluster, tmp_path / "work") as uploads,
    ):
        uploads.goes_on(0, 30)
        first = patroni.primary()
        patroni.kill(first)
        second = patroni.wait_for_primary(other_than=first, seconds=FAILOVER_SECONDS)
        replaced = time.monotonic()
        paused = uploads.goes_on(replaced, FAILOVER_SECONDS) - replaced
        print(f"the first upload after a killed primary ended {paused:.1f} s after Patroni had replaced it")
        assert paused < AFTER_PATRONI_SECONDS
        patroni.start(first)
        patroni.wait_for_standbys(BACK_SECONDS)

        # Its connections stay open, and nothing comes from there any more.
        patroni.isolate(second)
        assert patroni.wait_for_primary(other_than=second, seconds=FAILOVER_SECONDS) == first
        replaced = time.monotonic()
        paused = uploads.goes_on(replaced, FAILOVER_SECONDS) - replaced
        print(f"the first upload after an isolated primary ended {paused:.1f} s after Patroni had replaced it")
        assert paused < AFTER_PATRONI_SECONDS

        uploads.ended.set()
        uploads.thread.join()
        assert len(uploads.acknowledged) > 3
        uploads.compare()


def test_lost_members_of_etcd_and_a_lost_replica_are_a_pause(base, tmp_path):
    with (
        Patroni(base / "patroni", etcds=3) as patroni,
        cluster_on(patroni, base / "cluster") as cluster,
        Uploads(patroni, cluster, tmp_path / "work") as uploads,
    ):

        def goes_on_within(seconds: float) -> None:
            lost = time.monotonic()
            # The first one may have been under way already.
            first = uploads.goes_on(lost, FAILOVER_SECONDS)
            assert uploads.goes_on(first, FAILOVER_SECONDS) - lost < seconds

        uploads.goes_on(0, 30)
        primary = patroni.primary()
        (replica,) = patroni.standbys()
        for lose, back in ((patroni.kill_etcd, patroni.start_etcd), (patroni.isolate, patroni.heal)):
            lose("witness")
            goes_on_within(ETCD_LOST_SECONDS)
            back("witness")
            goes_on_within(ETCD_LOST_SECONDS)
        for lose, back in ((patroni.kill, patroni.start), (patroni.isolate, patroni.heal)):
            lose(replica)
            goes_on_within(REPLICA_LOST_SECONDS)
            back(replica)
            patroni.wait_for_standbys(BACK_SECONDS)
        assert patroni.primary() == primary

        # Without a majority nobody may be primary: changes wait.
        patroni.kill_etcd("witness")
        patroni.kill_etcd(replica)
        until(lambda: patroni.primary() is None, FAILOVER_SECONDS)
        patroni.start_etcd("witness")
        patroni.start_etcd(replica)
        patroni.wait_for_primary()
        healed = time.monotonic()
        assert uploads.goes_on(uploads.goes_on(healed, FAILOVER_SECONDS), FAILOVER_SECONDS) - healed < FAILOVER_SECONDS

        uploads.ended.set()
        uploads.thread.join()
        uploads.compare()


def test_a_replica_that_was_behind_is_not_gone_on_with(base, tmp_path):
    with (
        Patroni(base / "patroni", synchronous=False) as patroni,
        cluster_on(patroni, base / "cluster") as cluster,
        Uploads(patroni, cluster, tmp_path / "work", PATIENCE) as uploads,
    ):
        uploads.goes_on(0, 30)
        primary = patroni.primary()
        (standby,) = patroni.standbys()
        patroni.cut(primary, standby)
        uploads.goes_on(time.monotonic(), 30)
        patroni.kill(primary)
        assert patroni.wait_for_primary(other_than=primary, seconds=FAILOVER_SECONDS) == standby
        manager = cluster.manager
        assert manager.process.wait(60) == DAMAGED
        assert "has lost at least" in manager.log_text()
        # The reason stays in the database, for every manager.
        manager.launch()
        assert manager.process.wait(60) == FAILED
        assert "cannot be used" in manager.log_text(since_start=True)
