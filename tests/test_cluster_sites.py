"""Sites with networks of their own: the manager and one disk server of each of two sites are in network namespaces, joined by a bridge.
Each client gets the replica of its own site; the link between the sites is cut and comes back. Needs root."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from clients import STUBBORN, Outcome, environment, run
from cluster import Cluster
from content import MIB, content, write
from harness import ROOT, remove, until
from networks import SUBNET, Networks

CLIENTS_PORT, NODES_PORT = 11094, 11095
# Time until an absent store has the state "offline", a missing replica is made, or a disk server is in session again.
HEAL_SECONDS = 90


class Sites(Cluster):
    """The manager is in the first namespace, disk1 of site1 and disk2 of site2 in the next ones. The last one has only clients."""

    def __init__(self, home: Path, networks: Networks):
        super().__init__(home, 2, ("--insecure", "--grace-seconds", "5"))
        self.networks = networks
        for number, node in enumerate(self.nodes):
            node.host, node.port, node.nodes_port = networks.address(number), CLIENTS_PORT, NODES_PORT
            node.prefix = tuple(networks.within(number))
        self.config = home / "manager.toml"
        self.config.write_text("")
        self.manager.flags += ("--config", str(self.config))

    @property
    def url(self) -> str:
        return self.manager.url

    def run(self, site: int, *command: str | Path, **more) -> Outcome:
        """A client at a site."""
        return run([*self.networks.within(site), *map(str, command)], **more)

    def policy(self, path: str, words: str) -> None:
        self.run(0, "xrdfs", self.url.rstrip("/"), "mkdir", "-p", path).ok()
        self.weir("policy", "set", path, words, "--data", self.data)

    def start_client(self, site: int, *command: str | Path) -> subprocess.Popen:
        words = [*self.networks.within(site), *map(str, command)]
        pipe = subprocess.PIPE
        return subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, env=environment(STUBBORN), cwd=ROOT / "tests")

    def redirected_to(self, site: int, path: str) -> str:
        """The host that a client there is sent to."""
        ask = f"import raw; print(raw.Raw({self.manager.port}, machine='{self.networks.address(site)}', host='{self.manager.host}')"
        found = self.run(site, "env", f"PYTHONPATH={ROOT}/tests", sys.executable, "-c", f"{ask}.ask_open('{path}').redirect[1])")
        return found.ok().out.strip()

    def back(self, site: int, path: str, tmp_path: Path) -> bytes:
        self.run(site, "xrdcp", "--nopbar", "-f", f"{self.url}{path}", tmp_path / "back", patience=STUBBORN).ok()
        return (tmp_path / "back").read_bytes()

    def all_online(self) -> bool:
        return [store["state"] for store in self.stores()] == ["online", "online"]


@pytest.fixture(scope="module")
def networks():
    with Networks(4) as networks:
        yield networks


@pytest.fixture(scope="module")
def sites(base, networks):
    with Sites(base / "sites", networks) as cluster:
        cluster.policy("/both", "replica(2) spread=site near=client")
        cluster.policy("/near", "replica(1) near=client")
        yield cluster
        assert all(node.alive() for node in cluster.nodes), cluster.logs()
    remove(cluster.home)


@pytest.fixture
def cluster(sites):
    yield sites
    for number in (1, 2):
        sites.networks.cable(number, "up")
    until(sites.all_online, HEAL_SECONDS, sites.logs)


def test_each_client_gets_the_copy_of_its_site(cluster, tmp_path):
    source = write(tmp_path / "source", "both", MIB)
    cluster.run(1, "xrdcp", "--nopbar", source, f"{cluster.url}/both/file").ok()
    for site in (1, 2):
        assert {cluster.redirected_to(site, "/both/file") for _ in range(6)} == {cluster.networks.address(site)}
        assert cluster.back(site, "/both/file", tmp_path) == source.read_bytes()
        for number in range(3):
            path = f"/near/{site}-{number}"
            cluster.run(site, "xrdcp", "--nopbar", source, f"{cluster.url}{path}").ok()
            assert [copy["location"] for copy in cluster.file(path)["object"]["replicas"]] == [f"site{site}/rack1/disk{site}"]


def stands_at(cluster: Sites, place: str) -> None:
    """From now on, clients without a disk server on their host have this location."""
    address, reloads = cluster.networks.address(3), cluster.manager.log_text().count("SIGHUP: ")
    cluster.config.write_text(f'clients.locations = ["{SUBNET}.0/24 nowhere", "{address}/32 {place}"]\n')
    cluster.manager.process.send_signal(signal.SIGHUP)
    until(lambda: cluster.manager.log_text().count("SIGHUP: ") > reloads, 10, cluster.logs)


def test_a_client_stands_where_its_address_does(cluster, tmp_path):
    source = write(tmp_path / "source", "ranges", MIB)
    cluster.run(1, "xrdcp", "--nopbar", source, f"{cluster.url}/both/ranges").ok()
    for number, site in enumerate((1, 2, 1)):
        stands_at(cluster, f"site{site}/rack1" if number else f"site{site}")
        assert {cluster.redirected_to(3, "/both/ranges") for _ in range(8)} == {cluster.networks.address(site)}
        assert cluster.back(3, "/both/ranges", tmp_path) == source.read_bytes()
        # A location from the client itself counts more, and a disk server's own host is more precise than a range.
        other = 3 - site
        assert {cluster.redirected_to(3, f"/both/ranges?weir.location=site{other}") for _ in range(8)} == {cluster.networks.address(other)}
        assert {cluster.redirected_to(other, "/both/ranges") for _ in range(8)} == {cluster.networks.address(other)}
        for copy in range(4):
            path = f"/near/ranges-{number}-{copy}"
            cluster.run(3, "xrdcp", "--nopbar", source, f"{cluster.url}{path}").ok()
            assert [copy["location"] for copy in cluster.file(path)["object"]["replicas"]] == [f"site{site}/rack1/disk{site}"]


def test_a_recording_outlives_the_cut_of_the_link(cluster, tmp_path):
    """It continues with the replica of its own site. The other site gets its replica when the link is back, and nothing is lost."""
    data = content("recorded", 24 * MIB)
    copy = cluster.start_client(1, "xrdcp", "--nopbar", "-", f"{cluster.url}/both/recorded")
    copy.stdin.write(data[: 16 * MIB])
    copy.stdin.flush()
    until(lambda: cluster.asked("status")["writers"]["count"] == 1, 20)
    cluster.networks.cable(2, "down")
    begin = time.monotonic()
    said, _ = copy.communicate(data[16 * MIB :], timeout=HEAL_SECONDS)
    assert copy.returncode == 0, said
    assert time.monotonic() - begin < 60
    # The acknowledged bytes are available, while the other site cannot be reached.
    assert cluster.back(1, "/both/recorded", tmp_path) == data
    assert len(cluster.whole_on("/both/recorded")) == 1
    cluster.networks.cable(2, "up")
    until(lambda: len(cluster.whole_on("/both/recorded")) == 2, HEAL_SECONDS, cluster.logs)
    assert cluster.redirected_to(2, "/both/recorded") == cluster.networks.address(2)
    assert cluster.back(2, "/both/recorded", tmp_path) == data


READER = """
import sys
from XRootD import client
file = client.File()
def good(result):
    assert result[0].ok, result[0].message
    return result[1]
good(file.open(sys.argv[1]))
half = int(sys.argv[2])
first = good(file.read(0, half))
print("half", flush=True)
sys.stdin.readline()
second = good(file.read(half, half))
open(sys.argv[3], "wb").write(first + second)
good(file.close())
"""


def test_a_reader_at_another_site_waits_for_the_link(cluster, tmp_path):
    """The only replica is at the site that is cut off: the reader waits, and then gets every byte."""
    source = write(tmp_path / "source", "far", 8 * MIB)
    cluster.run(2, "xrdcp", "--nopbar", source, f"{cluster.url}/near/far").ok()
    target = tmp_path / "read"
    reader = cluster.start_client(1, sys.executable, "-c", READER, f"{cluster.url}/near/far", str(4 * MIB), target)
    assert reader.stdout.readline() == b"half\n"
    cluster.networks.cable(2, "down")
    reader.stdin.write(b"on\n")
    reader.stdin.flush()
    time.sleep(5)
    assert reader.poll() is None, "it has not waited"
    cluster.networks.cable(2, "up")
    said, _ = reader.communicate(timeout=HEAL_SECONDS)
    assert reader.returncode == 0, said
    assert target.read_bytes() == source.read_bytes()
