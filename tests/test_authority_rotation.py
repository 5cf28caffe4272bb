"""The key of a cluster's authority is replaced while clients work: `weir admin authority rotate` and `retire`. Each step survives a kill of
the manager. Afterwards somebody with the old key gets in nowhere. A forced removal of a node survives a kill, too."""

import base64
import json
import shutil
import socket
import ssl
import subprocess
import threading
import time
from pathlib import Path

import pytest
from clients import STUBBORN, xrdcp
from cluster import Cluster, Node
from content import KIB, write
from harness import WEIR_BIN, remove, until, weir
from test_administration import DENIED, Machine, invite

FAILED = 6
# A node asks every 10 seconds which authorities to trust.
SOON_SECONDS = 60


@pytest.fixture
def cluster(base, request):
    with Cluster(base / request.node.name, 3) as made:
        made.policy("/", "replica(2)")
        yield made
    remove(made.home)


def authority(cluster: Cluster) -> dict:
    return cluster.asked("admin", "authority")


def reasons(cluster: Cluster) -> dict[str, str]:
    return {found["reason"]: found["text"] for found in cluster.asked("status")["health"]["reasons"]}


def all_have_moved(cluster: Cluster) -> bool:
    replaces = authority(cluster).get("replaces")
    return replaces is not None and replaces["waiting_for"] == []


def restart(node: Node) -> None:
    node.kill()
    node.start()


class Thief:
    """Somebody with a copy of the manager's secrets of one moment."""

    def __init__(self, cluster: Cluster, home: Path):
        home.mkdir()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.context.check_hostname, self.context.verify_mode = False, ssl.CERT_NONE
        self.context.set_alpn_protocols(["weir-node"])
        lines = dict(line.split(" ", 1) for line in (cluster.manager.data / "cluster/identity").read_text().splitlines()[1:])
        pem = home / "pem"
        pem.write_text(
            f"-----BEGIN PRIVATE KEY-----\n{lines['key']}\n-----END PRIVATE KEY-----\n"
            + ssl.DER_cert_to_PEM_cert(base64.b64decode(lines["certificate"]))
        )
        self.context.load_cert_chain(pem)

    def gets_into(self, node: Node) -> bool:
        """Whether a node takes the stolen certificate: then it begins to talk."""
        with socket.create_connection((node.host, node.nodes_port), 20) as plain:
            try:
                with self.context.wrap_socket(plain) as tls:
                    tls.settimeout(5)
                    tls.sendall(b"weirnode")
                    return tls.recv(8) != b""
            except TimeoutError:
                # It was not refused, and the node waits for the rest.
                return True
            except (ssl.SSLError, ConnectionError):
                return False


class Traffic:
    """Clients that write and read without a pause, and remember each error."""

    def __init__(self, cluster: Cluster, home: Path):
        self.cluster, self.home = cluster, home
        self.stop, self.errors, self.files, self.longest = threading.Event(), [], 0, 0.0
        self.threads = [threading.Thread(target=self.run, args=(number,)) for number in range(2)]

    def run(self, client: int) -> None:
        source = write(self.home / f"source{client}", f"rotation {client}", 300 * KIB)
        number = 0
        while not self.stop.is_set():
            path, back = f"{self.cluster.url}/c{client}-{number}", self.home / f"back{client}"
            for arguments in ((source, path), ("-f", path, back)):
                began = time.monotonic()
                done = xrdcp(*arguments, patience=STUBBORN)
                self.longest = max(self.longest, time.monotonic() - began)
                if done.code != 0:
                    self.errors.append((path, done.out, done.err))
            if back.exists() and back.read_bytes() != source.read_bytes():
                self.errors.append((path, "other bytes came back"))
            number += 1
            self.files += 1

    def __enter__(self) -> "Traffic":
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join()


def test_the_authority_is_replaced_while_clients_work(cluster, tmp_path):
    manager, first = cluster.manager, cluster.disks[0]
    old = authority(cluster)["authority"]
    alice, bob, carol = (Machine(tmp_path / name) for name in ("alice", "bob", "carol"))
    alice.join(invite(cluster, "alice", "admin"))
    bob.join(invite(cluster, "bob", "viewer"))
    invitation = invite(cluster, "carol", "viewer")
    token = tmp_path / "token"
    token.write_text(cluster.weir("token", "create", "--data", cluster.data))
    late_token = tmp_path / "late-token"
    late_token.write_text(cluster.weir("token", "create", "--data", cluster.data))
    thief = Thief(cluster, tmp_path / "thief")
    assert thief.gets_into(first)
    contexts = {machine: machine.context().read_text() for machine in (alice, bob)}

    with Traffic(cluster, tmp_path) as traffic:
        assert "no earlier authority" in weir("admin", "authority", "retire", "--data", cluster.data).stderr
        assert DENIED == bob.weir("admin", "authority", "rotate").returncode
        said = alice.done("admin", "authority", "rotate")
        manager.kill()
        assert "make a backup" in said
        manager.start()
        new = authority(cluster)
        assert new["authority"] != old and new["replaces"]["authority"] == old and new["authority"] in said
        refused = weir("admin", "authority", "rotate", "--data", cluster.data)
        assert refused.returncode == FAILED and "being replaced already" in refused.stderr, refused
        assert "authority-replaced" in reasons(cluster)
        cluster.until(lambda: all_have_moved(cluster), SOON_SECONDS)
        # What was handed out before works.
        for machine in (alice, bob):
            machine.done("status")
            assert machine.context().read_text() != contexts[machine], "the context knows the new authority"
        carol.join(invitation)
        assert "online" in carol.done("status")
        joining = Node(cluster.home / "disk4", "disk", "127.0.0.5", ("--location", "site1/rack1/disk4"))
        cluster.disks.append(joining)
        joining.start("--join-file", token)
        cluster.until(lambda: all_have_moved(cluster), SOON_SECONDS)
        restart(first)
        cluster.wait_sessions()
        assert "`weir admin authority retire`" in reasons(cluster)["authority-replaced"]

        bob.done("admin", "authority")
        ended = alice.done("admin", "authority", "retire")
        manager.kill()
        assert new["authority"] in ended
        manager.start()
        assert "replaces" not in authority(cluster)
        cluster.until(lambda: all("is not trusted any more" in disk.log_text() for disk in cluster.disks), SOON_SECONDS)
        cluster.wait_sessions()
        time.sleep(2)
    assert not traffic.errors, traffic.errors
    assert traffic.files > 10, traffic.files
    print(f"{traffic.files} files, the longest copy took {traffic.longest:.1f} s")

    assert "authority-replaced" not in reasons(cluster)
    for node in cluster.nodes:
        assert not thief.gets_into(node), node.log_text()
    for machine in (alice, bob, carol):
        machine.done("status")
    # Too late for a token of before.
    strange = Node(cluster.home / "disk5", "disk", "127.0.0.6", ("--location", "site1/rack1/disk5"))
    strange.launch("--join-file", late_token)
    assert strange.process.wait(60) != 0 and "has replaced its authority since" in strange.log_text(), strange.log_text()
    for node in cluster.nodes:
        restart(node)
    cluster.wait_sessions()
    # A unit of systemd has the token on its command line for ever.
    first.kill()
    first.start("--join-file", first.home / "token")
    assert "of another authority than this node knows; it was not used" in first.log_text(since_start=True)
    cluster.wait_sessions()


def test_a_node_that_was_away_is_named_and_then_shut_out(cluster):
    away, *others = cluster.disks
    number = next(one["node"] for one in cluster.stores() if one["store"] == cluster.store_of(away))
    away.stop()
    cluster.weir("admin", "authority", "rotate", "--data", cluster.data)
    cluster.until(lambda: len(authority(cluster)["replaces"]["waiting_for"]) == 1, SOON_SECONDS)
    refused = weir("admin", "authority", "retire", "--data", cluster.data)
    assert refused.returncode == FAILED, refused
    assert f"(node {number})" in refused.stderr and "--force" in refused.stderr, refused
    cluster.weir("admin", "authority", "retire", "--force", "--data", cluster.data)
    away.launch()
    until(lambda: "not made by this cluster's authority" in away.log_text(since_start=True), SOON_SECONDS, cluster.logs)
    assert "join again" in away.log_text(since_start=True)
    assert "in session with the manager" not in away.log_text(since_start=True)
    assert all(disk.alive() for disk in others)


def test_a_backup_in_the_middle_brings_both_authorities_back(cluster, tmp_path):
    cluster.weir("admin", "authority", "rotate", "--data", cluster.data)
    before = authority(cluster)
    cluster.until(lambda: all_have_moved(cluster), SOON_SECONDS)
    done = weir("backup", "--data", cluster.data, str(tmp_path / "backups"), "--json")
    assert done.returncode == 0, done.stderr
    cluster.manager.kill()
    shutil.rmtree(cluster.manager.data)
    done = weir("restore", str(tmp_path / "backups"), "--data", cluster.data, "--json")
    assert done.returncode == 0 and json.loads(done.stdout), done.stderr
    cluster.manager.start("--existing")
    cluster.wait_sessions()
    after = authority(cluster)
    assert (after["authority"], after["replaces"]["authority"]) == (before["authority"], before["replaces"]["authority"])
    cluster.until(lambda: all_have_moved(cluster), SOON_SECONDS)
    cluster.weir("admin", "authority", "retire", "--data", cluster.data)
    cluster.until(lambda: all("is not trusted any more" in disk.log_text() for disk in cluster.disks), SOON_SECONDS)


@pytest.mark.long
def test_a_backup_in_the_middle_that_is_restored_after_the_end_is_retired_again(cluster, tmp_path):
    cluster.weir("admin", "authority", "rotate", "--data", cluster.data)
    cluster.until(lambda: all_have_moved(cluster), SOON_SECONDS)
    done = weir("backup", "--data", cluster.data, str(tmp_path / "backups"), "--json")
    assert done.returncode == 0, done.stderr
    cluster.weir("admin", "authority", "retire", "--data", cluster.data)
    cluster.until(lambda: all("is not trusted any more" in disk.log_text() for disk in cluster.disks), SOON_SECONDS)
    cluster.manager.kill()
    shutil.rmtree(cluster.manager.data)
    done = weir("restore", str(tmp_path / "backups"), "--data", cluster.data, "--json")
    assert done.returncode == 0 and json.loads(done.stdout), done.stderr
    cluster.manager.start("--existing")
    cluster.wait_sessions()
    assert "replaces" in authority(cluster)
    logged = [disk.log_text().count("could not be renewed") for disk in cluster.disks]
    # Two looks of each node.
    time.sleep(22)
    assert [disk.log_text().count("could not be renewed") for disk in cluster.disks] == logged
    cluster.until(lambda: all_have_moved(cluster), SOON_SECONDS)
    cluster.weir("admin", "authority", "retire", "--data", cluster.data)
    assert "replaces" not in authority(cluster)


def test_a_forced_removal_survives_a_kill_of_the_manager(cluster):
    gone, manager = cluster.disks[0], cluster.manager
    number = next(one["node"] for one in cluster.stores() if one["store"] == cluster.store_of(gone))
    command = [str(WEIR_BIN), "node", "remove", str(number), "--force", "--data", cluster.data]
    removing = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: "is cut off, to be removed" in manager.log_text(), 30, cluster.logs)
    # The node has a lease, so it is not removed yet.
    manager.kill()
    removing.wait(60)
    sessions = gone.log_text().count("in session with the manager")
    manager.start()
    cluster.until(lambda: number not in {node["node"] for node in cluster.asked("status")["nodes"]})
    time.sleep(3)
    assert gone.log_text().count("in session with the manager") == sessions, gone.log_text()
    # Usual refusals are not logged in the first seconds.
    cluster.until(lambda: "is not in this cluster any more" in gone.log_text() or "is being removed" in gone.log_text())
