"""Histories of several clients of a cluster are linearizable, also when its manager is killed and when its database breaks off
connections."""

import collections
import random
import struct

import pytest
import raw
from cluster import Cluster
from harness import remove
from history import CHANGES
from linearizability import NotLinearizable, check
from namespace_clients import Clients
from plain_client import Address
from postgres import Postgres
from proxy import UP, Proxy
from test_database_manager import ACCOUNT, new_database

CLIENTS = 6
# Operations before, between and after what is done to the cluster.
OPERATIONS = 300


@pytest.fixture(scope="module", params=["embedded", "postgres"])
def engine(base, request):
    """A cluster, and the server that has its database."""
    if request.param == "embedded":
        with Cluster(base / "linearizability-embedded", 2) as cluster:
            yield cluster, None
    else:
        with Postgres(base / "linearizability-postgres") as postgres:
            postgres.create_user(ACCOUNT)
            database = postgres.url(ACCOUNT, new_database(postgres))
            with Cluster(base / "linearizability-database", 2, database=database) as cluster:
                yield cluster, postgres
    remove(cluster.home)


def managers(cluster: Cluster) -> list[Address]:
    return [(cluster.manager.host, cluster.manager.port)]


def check_clients(clients: Clients) -> None:
    assert not clients.failures, clients.failures[0]
    operations = clients.history.operations
    done = collections.Counter(operation.name for operation in operations if operation.result == "ok" or operation.name not in CHANGES)
    # Enough of everything, so that a wrong answer could be noticed.
    assert min(done[name] for name in ("mkdir", "rmdir", "new", "replace", "close", "rename", "remove", "stat", "read", "list")) > 2, done
    check(operations, clients.beginning)


def test_a_history_in_which_the_manager_is_killed(engine):
    cluster, _ = engine
    with Clients("/killed", [managers(cluster)] * CLIENTS, 1) as clients:
        clients.until(OPERATIONS)
        clients.kill(cluster.manager)
        clients.until(OPERATIONS)
    check_clients(clients)
    assert any(operation.is_maybe for operation in clients.history.operations)


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_a_history_in_which_the_database_breaks_off_connections(engine):
    cluster, postgres = engine
    with Clients("/cut", [managers(cluster)] * CLIENTS, 2) as clients:
        for _ in range(4):
            clients.until(OPERATIONS // 4)
            assert postgres.terminate_backends(f"usename = '{ACCOUNT}'") > 0
        clients.until(OPERATIONS // 2)
    check_clients(clients)


class Stale(Proxy):
    """Sometimes answers a client's stat with the answer to an earlier one. For one client, which waits for each answer."""

    def __init__(self, port: int):
        self.asked: bytes | None = None
        self.answers: dict[bytes, bytes] = {}
        self.pick = random.Random(1)
        self.lies = 0
        super().__init__(port)

    def _changed(self, direction: str, data: bytes) -> bytes:
        if direction == UP:
            is_stat = len(data) > 24 and struct.unpack(">H", data[2:4])[0] == raw.STAT
            self.asked = data[24:] if is_stat else None
        elif self.asked is not None:
            known = self.answers.setdefault(self.asked, data)
            if known[2:] != data[2:] and self.pick.random() < 0.5:
                self.lies += 1
                return data[:2] + known[2:]
            self.answers[self.asked] = data
        return data


@pytest.mark.parametrize("engine", ["embedded"], indirect=True)
def test_a_stale_answer_in_a_history_is_found(engine):
    cluster, _ = engine
    with Stale(cluster.manager.port) as proxy:
        to_others = [managers(cluster)] * (CLIENTS - 1)
        with Clients("/stale", [*to_others, [("127.0.0.1", proxy.port)]], 3) as clients:
            cluster.until(lambda: proxy.lies > 5)
    assert not clients.failures, clients.failures[0]
    with pytest.raises(NotLinearizable, match=f"client {CLIENTS - 1}  stat"):
        check(clients.history.operations, clients.beginning)
