"""A cluster with one manager behind several addresses, some of which are dead: disk servers, clients and commands find it, and go on when
an address dies under them."""

import re
import subprocess
import time

import pytest
from cluster import Cluster
from content import MIB, content
from harness import WEIR_BIN, remove, until, weir
from ports import free_port
from proxy import Proxy
from test_administration import Machine, invite


def dead() -> str:
    """An address at which nobody listens."""
    return f"127.0.0.1:{free_port()}"


@pytest.fixture(scope="module")
def cluster(base):
    with Cluster(base / "several-addresses", 1) as cluster:
        yield cluster
    remove(cluster.home)


@pytest.fixture
def live(cluster) -> str:
    return f"127.0.0.1:{cluster.manager.port}"


@pytest.fixture
def gate(cluster):
    """A second address of the manager, which can die."""
    with Proxy(cluster.manager.port) as proxy:
        yield proxy


def test_a_disk_server_finds_the_manager_behind_a_dead_address(cluster):
    disk = cluster.disks[0]
    disk.stop()
    flags = disk.flags
    settings = disk.home / "managers.toml"
    settings.write_text(f'managers = ["{dead()}", "127.0.0.1:{cluster.manager.nodes_port}"]\n')
    disk.flags = (*flags, "--config", str(settings))
    try:
        disk.start()
        cluster.wait_sessions()
        # The manager is away: the disk server notices soon that it is back.
        cluster.manager.stop()
        cluster.manager.start()
        began = time.monotonic()
        until(lambda: "in session with the manager" in disk.log_text(since_start=True), 20)
        cluster.wait_sessions()
        assert time.monotonic() - began < 15
    finally:
        disk.stop()
        disk.flags = flags
        disk.start()
        cluster.wait_sessions()


def test_weirs_client_goes_past_a_dead_address(cluster, live, tmp_path):
    data = content("several", 3 * MIB)
    (tmp_path / "source").write_bytes(data)
    url = f"root://{dead()},{live}/"
    assert weir("cp", tmp_path / "source", f"{url}/several").returncode == 0
    assert "several" in weir("ls", f"{url}/").stdout.split()
    for servers in (f"{dead()},{live}", f"{live},{dead()}"):
        done = weir("cp", "-f", f"root://{servers}//several", tmp_path / "back")
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "back").read_bytes() == data
    nobody = weir("ls", f"root://{dead()},{dead()}//")
    assert nobody.returncode == 15 and "cannot connect" in nobody.stderr, nobody


def test_an_upload_goes_on_when_the_address_of_its_manager_dies(cluster, live, gate):
    data = content("long", 4 * MIB)
    upload = subprocess.Popen(
        [WEIR_BIN, "cp", "-", f"root://127.0.0.1:{gate.port},{live}//long"], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    )
    upload.stdin.write(data[: len(data) // 2])
    upload.stdin.flush()
    until(lambda: gate.connections > 0 and "long" in weir("ls", f"root://{live}//").stdout, 20)
    gate.go_away()
    _, said = upload.communicate(data[len(data) // 2 :], timeout=60)
    assert upload.returncode == 0, said
    assert subprocess.run([WEIR_BIN, "cat", f"root://{live}//long"], capture_output=True, check=True).stdout == data


def test_the_python_package_goes_on_when_an_address_dies(package, cluster, live, gate):
    servers, data = f"127.0.0.1:{gate.port},{live}", content("python", MIB)
    files = package.WeirFileSystem(hostid=servers, skip_instance_cache=True)
    files.pipe("/python", data)
    assert files.info("/python")["size"] == MIB and gate.connections > 0
    gate.go_away()
    assert files.info("/python")["size"] == MIB
    with package.open(f"root://{servers}//python") as file:
        assert file.read() == data


def test_commands_ask_the_managers_in_turn(cluster, tmp_path):
    one, at = Machine(tmp_path / "machine"), f"127.0.0.1:{cluster.manager.nodes_port}"
    one.join(invite(cluster, "several", "admin"), "lab", "--manager", dead(), "--manager", at)
    assert "disk1" in one.done("stores")
    assert "disk1" in one.done("--cluster", f"{dead()},{at}", "stores")
    assert "disk1" in one.done("stores", env={"WEIR_CLUSTER": f"{at},{dead()}"})
    said = one.refused(15, "--cluster", f"{dead()},{dead()}", "stores")
    assert said.count("Connection refused") == 2, said
    # A single manager is known to whoever asks it: the context stays as it is.
    managers = re.search(r"^managers (.*)$", one.context("lab").read_text(), re.M)[1]
    assert managers.split()[1:] == [at]
