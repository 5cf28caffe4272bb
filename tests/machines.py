"""Several systems, each under a systemd of its own ([booted.py]), on one network that nothing else is on."""

import re
import subprocess
from contextlib import ExitStack
from pathlib import Path

from booted import Booted, NotHere
from harness import ROOT

DOMAIN = "example.org"
PAGE = ROOT / "docs/how-to/cluster.md"


class Machines:
    """Systems by name. `names` gives their order, and so their addresses."""

    def __init__(self, place: Path, names: list[str], package: Path):
        self.place, self.names, self.package = place, names, package
        self.systems: dict[str, Booted] = {}
        self.stack = ExitStack()
        self.switch: subprocess.Popen | None = None

    def __enter__(self) -> "Machines":
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def start(self) -> None:
        self.switch = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "sleep", "infinity"])
        self.stack.callback(self.switch.wait)
        self.stack.callback(self.switch.kill)
        for name in self.names:
            held = self.place / f"{name}-held"
            held.mkdir()
            system = Booted(self.place / name, held, "/var/lib/weir")
            self.systems[name] = self.stack.enter_context(system)
        self.of_switch("ip", "link", "add", "lan", "type", "bridge")
        self.of_switch("ip", "link", "set", "lan", "up")
        for number, name in enumerate(self.names, 1):
            self.plug(number, name)

    def plug(self, number: int, name: str) -> None:
        system, port = self.systems[name], f"port{number}"
        self.of_switch("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(system.init))
        self.of_switch("ip", "link", "set", port, "master", "lan", "up")
        system.ok("ip", "addr", "add", f"{self.address(name)}/24", "dev", "eth0")
        system.ok("ip", "link", "set", "eth0", "up")
        system.ok("hostname", name)
        hosts = [f"{self.address(other)} {other}.{DOMAIN} {other}\n" for other in self.names]
        system.path("/etc/hosts").write_text("127.0.0.1 localhost\n" + "".join(hosts))
        system.path("/tmp/weir.deb").write_bytes(self.package.read_bytes())

    def address(self, name: str) -> str:
        return f"10.77.0.{self.names.index(name) + 1}"

    def of_switch(self, *command: str) -> None:
        inside = ["nsenter", "--target", str(self.switch.pid), "--net", *command]
        done = subprocess.run(inside, capture_output=True, text=True, timeout=30)
        if done.returncode != 0:
            raise NotHere(f"no network of its own can be made: {' '.join(command)}: {done.stderr.strip()}")

    def install(self) -> None:
        for system in self.systems.values():
            system.ok("dpkg", "--no-triggers", "-i", "/tmp/weir.deb", timeout=120)

    def __getitem__(self, name: str) -> Booted:
        return self.systems[name]

    def __exit__(self, *_: object) -> None:
        self.stack.close()


def commands() -> list[tuple[str, str]]:
    """The counted list of the page: (machine, command)."""
    block = PAGE.read_text().partition("## A cluster from packages")[2].partition("```sh\n")[2].partition("```")[0]
    found = [re.fullmatch(r"(.*?)\s+# (\d+)\. (\w+( machine)?).*", line) for line in block.splitlines()]
    assert all(found), block
    assert [int(one[2]) for one in found] == list(range(1, len(found) + 1))
    return [(one[3], one[1]) for one in found]


def make(machines: Machines, listed: list[tuple[str, str]]) -> None:
    """Runs the commands of the list, each on its machine."""
    token = ""
    for machine, command in listed:
        system = machines["ds1" if machine == "any machine" else machine]
        if command.startswith("xrdcp"):
            system.ok("bash", "-c", "[[ -e /root/file.root ]] || echo content >/root/file.root")
        done = system("bash", "-c", f"cd && {command.replace('TOKEN', token)}", timeout=120)
        said = system("journalctl", "-u", "weir", "--no-pager").stdout if done.returncode else ""
        assert done.returncode == 0, (machine, command, done.stdout, done.stderr, said)
        if "token create" in command:
            token = done.stdout.strip()
