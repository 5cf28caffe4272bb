"""Requests that a manager forwards to a disk server: third-party copies from and to a cluster, and truncation by name. Stock clients."""

import re
import signal
import time

import pytest
import raw
from clients import PATIENCE, STUBBORN, Outcome, Xrdfs, start_xrdcp, xrdcp
from cluster import Cluster, Node
from content import MIB, content, write
from harness import Weir, Xrootd, of_processes, remove, until, weir
from ports import free_port

pytestmark = pytest.mark.managers_ok

SIZE = 30 * MIB + 17
# How long a capability from the manager may be used for the first time.
PERMISSION_SECONDS = 60


class TpcXrootd(Xrootd):
    """A stock xrootd that takes part in third-party copies."""

    more = "ofs.tpc ttl 60 60 pgm /usr/bin/xrdcp --server\n"


@pytest.fixture(scope="module")
def one(base):
    with Cluster(base / "tpc-one", 4, ("--grace-seconds", "5")) as cluster:
        cluster.policy("/", "replica(2) spread=site")
        cluster.policy("/striped", "stripe(3, 256KiB)")
        yield cluster
        assert cluster.manager.alive(), cluster.logs()
    remove(cluster.home)


@pytest.fixture
def cluster(one):
    yield one
    for node in one.disks:
        if not node.alive():
            node.start()
    until(lambda: [store["state"] for store in one.stores()] == ["online"] * len(one.disks), 40)


@pytest.fixture(scope="module")
def two(base):
    cluster = Cluster(base / "tpc-two", 2)
    # A stock source checks where the target comes from; connections between loopback addresses come from the first one.
    for disk in cluster.disks:
        disk.host, disk.port = "127.0.0.1", free_port("127.0.0.1")
    with cluster:
        yield cluster
        assert all(node.alive() for node in cluster.nodes), cluster.logs()
    remove(cluster.home)


@pytest.fixture(scope="module")
def alone(base):
    with Weir(base / "tpc-alone") as server:
        yield server


@pytest.fixture(scope="module")
def stock(base):
    with TpcXrootd(base / "tpc-stock") as server:
        yield server


def third_party(source: str, target: str, *flags: str, **more) -> Outcome:
    return xrdcp("-f", "--tpc", "only", *flags, source, target, **more)


def fetched_by(cluster: Cluster, path: str) -> list[Node]:
    """The nodes that have fetched this file from another server."""
    return [node for node in cluster.nodes if re.search(rf"fetched path={re.escape(path)} ", node.log_text())]


def back(url: str, tmp_path) -> bytes:
    xrdcp("-f", url, tmp_path / "back", patience=STUBBORN).ok()
    return (tmp_path / "back").read_bytes()


def put(url: str, name: str, tmp_path, size: int = SIZE) -> bytes:
    source = write(tmp_path / "source", name, size)
    xrdcp("-f", source, url + name).ok()
    return source.read_bytes()


def test_from_a_cluster_to_a_single_node(cluster, alone, tmp_path):
    data = put(cluster.url, "/there", tmp_path)
    third_party(f"{cluster.url}/there", f"{alone.url}/from-cluster", "--cksum", "adler32").ok()
    assert back(f"{alone.url}/from-cluster", tmp_path) == data
    assert "fetched path=/from-cluster" in alone.log_text()


def test_to_a_cluster_from_a_single_node(cluster, alone, tmp_path):
    data = put(alone.url, "/here", tmp_path)
    third_party(f"{alone.url}/here", f"{cluster.url}/from-alone", "--cksum", "adler32").ok()
    assert back(f"{cluster.url}/from-alone", tmp_path) == data
    # A disk server with a replica has fetched it, and both replicas have the source's content.
    (by,) = fetched_by(cluster, "/from-alone")
    assert by in cluster.holders("/from-alone")
    assert len(cluster.whole_on("/from-alone")) == 2


def test_from_cluster_to_cluster_and_within_one(cluster, two, tmp_path):
    data = put(cluster.url, "/first", tmp_path)
    third_party(f"{cluster.url}/first", f"{two.url}/second").ok()
    assert back(f"{two.url}/second", tmp_path) == data
    assert len(fetched_by(two, "/second")) == 1
    third_party(f"{cluster.url}/first", f"{cluster.url}/third").ok()
    assert back(f"{cluster.url}/third", tmp_path) == data
    # Our own client asks in the same way. Of two servers that have the file, it goes to the same one twice.
    for number in range(6):
        done = weir("cp", "--tpc", f"{cluster.url}/first", f"{two.url}/fourth{number}")
        assert done.returncode == 0, done.stderr
        assert back(f"{two.url}/fourth{number}", tmp_path) == data
        assert len(fetched_by(two, f"/fourth{number}")) == 1


def test_striped_files_go_both_ways(cluster, alone, tmp_path):
    data = put(cluster.url, "/striped/first", tmp_path)
    third_party(f"{cluster.url}/striped/first", f"{alone.url}/from-striped").ok()
    assert back(f"{alone.url}/from-striped", tmp_path) == data
    third_party(f"{alone.url}/from-striped", f"{cluster.url}/striped/second").ok()
    assert back(f"{cluster.url}/striped/second", tmp_path) == data
    assert len(fetched_by(cluster, "/striped/second")) == 1
    # Its units are at several servers, which cannot be truncated together by name: nothing changes.
    refused = Xrdfs(cluster.url)("truncate", "/striped/second", "1000")
    assert refused.code != 0, refused
    assert back(f"{cluster.url}/striped/second", tmp_path) == data


def test_with_a_stock_server(two, stock, tmp_path):
    data = put(two.url, "/ours", tmp_path)
    third_party(f"{two.url}/ours", f"{stock.url}/theirs").ok()
    assert back(f"{stock.url}/theirs", tmp_path) == data
    third_party(f"{stock.url}/theirs", f"{two.url}/ours-again").ok()
    assert back(f"{two.url}/ours-again", tmp_path) == data
    assert len(fetched_by(two, "/ours-again")) == 1


def test_a_key_is_for_one_copy_alone(cluster, tmp_path):
    """Without the client's capability, or with a key for another file, a disk server gives nothing to another server."""
    put(cluster.url, "/kept", tmp_path, MIB)
    put(cluster.url, "/other", tmp_path, MIB)
    with raw.Raw.to(cluster.manager) as there:
        port, host, opaque = there.ask_open("/kept").redirect
    with raw.Raw(port, host=host) as owner, raw.Raw(port, host=host) as comer:
        assert owner.ask_open(f"/kept?{opaque}&tpc.key=k&tpc.dst={host}&tpc.stage=copy").status == raw.OK
        origin = "raw.4242@here"
        for name, key, who in [("/other", "k", origin), ("/kept", "k", "eve.1@here")]:
            answer = comer.ask_open(f"{name}?tpc.key={key}&tpc.org={who}&tpc.stage=copy")
            assert answer.error == raw.NOT_AUTHORIZED, answer
        answer = comer.ask_open(f"/kept?tpc.key=k&tpc.org={origin}&tpc.stage=copy")
        assert answer.status == raw.OK
        assert comer.read(answer.body[:4], 0, 1000).body == content("/kept", 1000)


def test_a_copy_may_come_again_as_long_as_its_client_is_there(cluster, tmp_path):
    """However old the client's capability is, a copy with a lost connection continues."""
    put(cluster.url, "/long", tmp_path, MIB)
    with raw.Raw.to(cluster.manager) as there:
        port, host, opaque = there.ask_open("/long").redirect
    with raw.Raw(port, host=host, timeout=120) as owner:
        handle = owner.open(f"/long?{opaque}&tpc.key=l&tpc.dst={host}&tpc.stage=copy")
        fetch = "/long?tpc.key=l&tpc.org=raw.4242@here&tpc.stage=copy"
        for wait in (0, PERMISSION_SECONDS + 2):
            time.sleep(wait)
            with raw.Raw(port, host=host) as comer:
                assert comer.read(comer.open(fetch), 0, 1000).body == content("/long", 1000)
        # The capability alone is no longer valid.
        with raw.Raw(port, host=host) as late:
            assert late.ask_open(f"/long?{opaque}").status == raw.REDIRECT
        assert owner.close(handle).status == raw.OK


def test_the_fetching_disk_server_dies(cluster, alone, tmp_path):
    """No part of the copy is visible, and the next one is whole."""
    data = put(alone.url, "/large", tmp_path, 200 * MIB)
    before = {path for disk in cluster.disks for path in disk.objects()}
    copy = start_xrdcp("-f", "--tpc", "only", f"{alone.url}/large", f"{cluster.url}/target", patience=PATIENCE)

    def comer() -> Node | None:
        begun = [disk for disk in cluster.disks if any(path.stat().st_size > MIB for path in set(disk.objects()) - before)]
        return begun[0] if begun else None

    until(comer, 30)
    alone.process.send_signal(signal.SIGSTOP)
    try:
        assert not any(fetched_by(cluster, "/target")), "it was done before it could be disturbed"
        fetching = [disk for disk in cluster.disks if "pull" in threads_of(disk)]
        assert len(fetching) == 1, fetching
        fetching[0].kill()
    finally:
        alone.process.send_signal(signal.SIGCONT)
    said, _ = copy.communicate(timeout=180)
    assert copy.returncode != 0, said
    fs = Xrdfs(cluster.url)
    assert not fs.exists("/target")
    fetching[0].start()
    third_party(f"{alone.url}/large", f"{cluster.url}/target", patience=STUBBORN).ok()
    assert back(f"{cluster.url}/target", tmp_path) == data


def threads_of(node: Node) -> list[str]:
    return [name.strip() for name in of_processes(f"{node.process.pid}/task/*/comm")]


def test_a_cut_by_name_outlives_the_death_of_its_disk_server(cluster, tmp_path):
    """The client was sent to a server that had just died: the other one truncates."""
    data = put(cluster.url, "/cut", tmp_path, MIB)
    with raw.Raw.to(cluster.manager) as there:
        answer = there.request(raw.TRUNCATE, bytes(4) + (1000).to_bytes(8, "big"), b"/cut")
        port, host, _ = answer.redirect
        primary = cluster.at(f"{host}:{port}")
        primary.kill()
        # The words of a stock client that cannot reach a server.
        end = time.monotonic() + 60
        while True:
            answer = there.request(raw.TRUNCATE, bytes(4) + (1000).to_bytes(8, "big"), f"/cut?tried={host}".encode())
            if answer.status != raw.WAIT:
                break
            assert time.monotonic() < end
            time.sleep(1)
        port, host, opaque = answer.redirect
        assert cluster.at(f"{host}:{port}") is not primary
        with raw.Raw(port, host=host, timeout=60) as other:
            answer = other.request(raw.TRUNCATE, bytes(4) + (1000).to_bytes(8, "big"), f"/cut?{opaque}".encode())
            assert answer.status == raw.OK, answer
    assert back(f"{cluster.url}/cut", tmp_path) == data[:1000]
    primary.start()
    # It has the longer content, which is not shown any more.
    cluster.until(lambda: len(cluster.whole_on("/cut")) == 2)
    for _ in range(5):
        assert back(f"{cluster.url}/cut", tmp_path) == data[:1000]
