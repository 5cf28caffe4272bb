"""Histories of several clients of a cluster are linearizable, also when its manager is killed and when its database breaks off connections."""

import time

import pytest
from clients import Xrdfs
from cluster import Cluster
from harness import remove
from linearizability import NotLinearizable, check
from namespace_clients import Clients
from postgres import Postgres
from test_database_manager import ACCOUNT, new_database

CLIENTS = 6


@pytest.fixture(scope="module")
def postgres(base):
    with Postgres(base / "postgres") as server:
        server.create_user(ACCOUNT)
        yield server


@pytest.fixture(scope="module", params=["embedded", "postgres"])
def cluster(base, request):
    database = None
    if request.param == "postgres":
        postgres = request.getfixturevalue("postgres")
        database = postgres.url(ACCOUNT, new_database(postgres))
    with Cluster(base / f"linearizability-{request.param}", 2, database=database) as cluster:
        yield cluster
    remove(cluster.home)


def address(cluster):
    return (cluster.manager.host, cluster.manager.port)


def test_of_a_cluster_whose_manager_is_killed(cluster):
    clients = Clients("/killed", [[address(cluster)]] * CLIENTS, 1)
    with clients:
        clients.until(1000)
        cluster.manager.kill()
        cluster.manager.start()
        clients.until(1000)
    h = clients.history
    import collections, pickle
    print(len(h), h.left_out)
    print(collections.Counter((o.name, str(o.result)[:9]) for o in h.operations))
    pickle.dump((h.operations), open("/tmp/o-linear/h.pickle", "wb"))
    b = time.monotonic()
    check(h.operations, clients.beginning)
    print("checked in", time.monotonic() - b)
