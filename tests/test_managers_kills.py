"""Kill -9 of everything at random under load, on three managers with PostgreSQL: whatever was acknowledged is there byte for byte, what
was removed stays removed, and the namespace is consistent. MANAGERS_SECONDS and MANAGERS_SEED choose the length and the choices of the long
run."""

import os
import random

import pytest
from acknowledged import ROOT, Clients, compare, damage_promises, promises
from harness import remove, weir
from kills import settle
from managers import Managers
from managers_faults import Faults

SECONDS = {"short": 8, "long": int(os.environ.get("MANAGERS_SECONDS", "300"))}
SEED = os.environ.get("MANAGERS_SEED") or str(random.SystemRandom().randrange(1, 2**32))
CLIENTS = 4
KINDS = {"new by xrdcp", "new by weir cp", "batch", "rename", "remove"}
# So many files of a short run are compared on each of their disk servers.
CLOSER = 10
pytestmark = [pytest.mark.timeout(SECONDS["long"] + 900)]


@pytest.fixture(scope="module", params=["short", pytest.param("long", marks=pytest.mark.long)])
def aftermath(request, base):
    """The cluster after the kills, what the journals promise, and the clients and faults."""
    seconds, folder = SECONDS[request.param], base / f"managers-kills-{request.param}"
    print(f"MANAGERS_SEED={SEED} MANAGERS_SECONDS={seconds}")
    with Managers(folder / "cluster", 3, ("--grace-seconds", "5")) as cluster:
        cluster.policy(f"{ROOT}/one", "replica(1)")
        cluster.policy(f"{ROOT}/two", "replica(2)")

        def is_enough() -> bool:
            promised = promises(clients.journals)
            return faults.takeovers > 0 and set(promised.done) >= KINDS and promised.done.total() >= 20 and clients.reads.total() > 5

        with Clients(cluster, SEED, CLIENTS, folder) as clients:
            faults = Faults(cluster, SEED)
            faults.run(seconds, is_enough, more_seconds=90)
        cluster.wait_sessions()
        yield cluster, promises(clients.journals), clients, faults
    remove(folder)


@pytest.fixture
def closer(request, aftermath):
    """Whether a file is compared on each of its disk servers: all files of a long run, some of a short one."""
    settled = sorted(path for path, state in aftermath[1].settled().items() if state)
    chosen = set(settled if len(settled) <= CLOSER else random.Random(SEED).sample(settled, CLOSER))
    return (lambda path: True) if "long" in request.node.callspec.id else chosen.__contains__


def test_everything_acknowledged_is_there_and_nothing_else(aftermath, closer, tmp_path):
    cluster, promised, clients, faults = aftermath
    told = f"{faults.done}, {faults.takeovers} take-overs, acknowledged {promised.done}, read {clients.reads}"
    print(f"seed {SEED}: {told}, {len(promised.failed)} failed: {promised.failed[:5]}")
    assert faults.ended == []
    assert set(promised.done) >= KINDS and faults.takeovers, told
    assert clients.wrong == []
    settle(cluster, promised.may_be)
    found = compare(cluster, promised, tmp_path, closer)
    assert not found, "\n".join(f"{path}: {problems}" for path, problems in found.items())


def test_names_and_stores_agree(aftermath, tmp_path):
    cluster, promised, *_ = aftermath
    settle(cluster, promised.may_be)

    def is_sound() -> bool:
        found.append(weir("fsck", "--cluster", "--data", cluster.data, "--json"))
        return found[-1].returncode == 0

    found = []
    cluster.until(is_sound)
    # The namespace recounts itself when it comes back from a dump.
    dumped = weir("db", "dump", str(tmp_path / "dump"), "--data", cluster.data, "--database", cluster.database)
    assert dumped.returncode == 0, dumped
    restored = weir("restore", str(tmp_path / "dump"), "--data", str(tmp_path / "restored"))
    assert restored.returncode == 0 and "the names agree with each other" in restored.stdout, restored


def test_the_comparison_notices_a_loss_a_change_and_what_is_back(aftermath, tmp_path):
    cluster, promised, *_ = aftermath
    settle(cluster, promised.may_be)
    before = compare(cluster, promised, tmp_path, lambda path: False)
    damaged = damage_promises(cluster, promised, tmp_path)
    found = compare(cluster, promised, tmp_path, lambda path: False)
    assert found.keys() - before.keys() == damaged, found
