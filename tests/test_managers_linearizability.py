"""Histories of clients of three managers are linearizable: each client asks a manager of its own first, most of them standbys, and what
one sees, the next one that asks sees, too. The database answers late, so changes are there for a while before they are acknowledged."""

import time

import pytest
from harness import remove
from late_proxy import Late
from managers import Managers, new_database
from namespace_clients import Clients
from plain_client import Address
from postgres import Postgres
from test_linearizability import CLIENTS, OPERATIONS, check_clients

LATE_SECONDS = 0.005


@pytest.fixture(scope="module")
def cluster(base):
    place = base / "linearizability-managers"
    with Postgres(place / "postgres") as postgres, Late(postgres.port, LATE_SECONDS) as late:
        database = new_database(postgres).replace(f":{postgres.port}/", f":{late.port}/")
        with Managers(place, 2, database=database) as cluster:
            yield cluster
    remove(place)


def managers(cluster: Managers, active_first: int) -> list[list[Address]]:
    """The managers of each client, in its order: so many begin with the active one."""
    active, *others = [(node.host, node.port) for node in (cluster.active(), *cluster.standbys())]
    orders = [[active, *others]] * active_first
    return orders + [[others[number % 2], others[1 - number % 2], active] for number in range(CLIENTS - active_first)]


def test_a_history_through_several_managers(cluster):
    for node in cluster.standbys():
        cluster.until(lambda node=node: cluster.status(node).get("answers_readers"))
    with Clients("/several", managers(cluster, 2), 4) as clients:
        clients.until(4 * OPERATIONS)
    check_clients(clients)


def test_a_history_in_which_the_active_manager_is_killed(cluster):
    with Clients("/takeover", managers(cluster, 2), 5) as clients:
        clients.until(OPERATIONS)
        active = cluster.active()
        active.kill()
        killed = time.monotonic_ns()
        other = cluster.active()
        cluster.wait_active(other)
        clients.kills.append((killed, time.monotonic_ns()))
        active.start()
        clients.until(OPERATIONS)
    check_clients(clients)
    assert other is not active
    assert any(operation.is_maybe for operation in clients.history.operations)
