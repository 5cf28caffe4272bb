"""A cluster from packages, by the commands of docs/how-to/cluster.md, on machines with a systemd and a network of their own."""

import json
import os
import re
import subprocess

import pytest
from booted import NotHere
from harness import ROOT, WEIR_BIN, until
from machines import DOMAIN, Machines, commands, make

COMMANDS_MAX = 6


def test_six_commands_are_on_the_page():
    listed = commands()
    assert len(listed) <= COMMANDS_MAX and all("\n" not in command and "&&" not in command and ";" not in command for _, command in listed)
    assert [machine for machine, _ in listed] == ["mgr1", "mgr1", "ds1", "ds2", "ds3", "any machine"]


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    made = subprocess.run([ROOT / "scripts/deb.sh", WEIR_BIN], cwd=ROOT, check=True, capture_output=True, text=True, timeout=300)
    package = ROOT / made.stdout.splitlines()[-1]
    network = Machines(tmp_path_factory.mktemp("machines"), ["mgr1", "ds1", "ds2", "ds3"], package)
    try:
        network.__enter__()
    except NotHere as reason:
        pytest.skip(f"no machines can be started here: {reason}")
    try:
        network.install()
        yield network
    finally:
        network.__exit__()


def test_from_packages_to_the_first_file_in_six_commands(machines):
    content = os.urandom(3_000_000)
    machines["ds1"].path("/root/file.root").write_bytes(content)
    make(machines, commands())
    manager = machines["mgr1"]
    back = machines["ds3"]
    back.ok("xrdcp", f"root://mgr1.{DOMAIN}//run1/file.root", "/root/back")
    assert back.path("/root/back").read_bytes() == content
    # Every node runs as its user, at each boot, and says how it is.
    for name, system in machines.systems.items():
        assert system.ok("systemctl", "is-enabled", "weir") == "enabled"
        assert system.ok("stat", "-c", "%U %a", "/var/lib/weir/data") == "weir 700"
        owners = set(system.ok("find", "/var/lib/weir/data", "-printf", "%u\n").split())
        assert owners == {"weir"}, name
        shown = system.ok("systemctl", "show", "-P", "StatusText", "weir")
        assert re.match(rf"root://({name}|{machines.address(name)}):1094/", shown), shown

    def stores() -> list[tuple[str, str]]:
        return sorted((store["location"], store["state"]) for store in json.loads(manager.ok("weir", "stores", "--json")))

    # A disk server is ready a moment before the manager knows its store.
    until(lambda: stores() == [(f"default/default/ds{number}", "online") for number in (1, 2, 3)], 60, lambda: str(stores()))


def test_a_store_on_another_disk_with_one_command(machines):
    """Outside the folder of the package: systemd must let the service write there."""
    disk = machines["ds1"]
    disk.ok("mkdir", "/srv/disk2")
    refused = disk("weir", "store", "add", "/srv/none/weir", "--restart")
    assert refused.returncode == 3 and not disk.path("/etc/systemd/system/weir.service.d/directories.conf").exists()
    said = disk.ok("weir", "store", "add", "/srv/disk2/weir", "--restart", timeout=120)
    assert "uses the store" in said and disk.ok("stat", "-c", "%U", "/srv/disk2/weir/FORMAT") == "weir"
    assert "/srv/disk2/weir" in disk.ok("systemctl", "show", "-P", "RequiresMountsFor", "weir")

    def online() -> int:
        stores = json.loads(machines["mgr1"].ok("weir", "stores", "--json"))
        return sum(store["state"] == "online" for store in stores)

    until(lambda: online() == 4, 60)


def test_a_machine_that_boots_again_is_a_node_again(machines):
    """The unit alone: the boot itself cannot be done in a namespace."""
    for name in ("ds2", "mgr1"):
        system = machines[name]
        pid = system.ok("systemctl", "show", "-P", "MainPID", "weir")
        system.ok("systemctl", "kill", "-s", "KILL", "weir")
        until(lambda s=system, p=pid: s.ok("systemctl", "show", "-P", "MainPID", "weir") not in (p, "0"), 60)
        until(lambda s=system: s("systemctl", "is-active", "weir").stdout == "active\n", 60)
    machines["ds3"].ok("xrdcp", "-f", f"root://mgr1.{DOMAIN}//run1/file.root", "/root/back", timeout=120)


def test_a_node_of_a_cluster_is_not_made_twice(machines):
    for name in ("mgr1", "ds1"):
        before = machines[name].path("/etc/weir/weir.toml").read_text()
        refused = machines[name]("weir", "init", "--role", "single", "--start")
        assert refused.returncode == 12 and machines[name].path("/etc/weir/weir.toml").read_text() == before, refused
        refused = machines[name]("weir", "init", "--role", "single", "--force")
        assert refused.returncode in (3, 4) and machines[name].path("/etc/weir/weir.toml").read_text() == before, refused
