"""Network namespaces for tests, joined by a bridge. Nothing outside them can be reached, and nothing there reaches them. Needs root."""

import itertools
import os
import subprocess

import pytest

SUBNET = "10.78.0"
_COUNT = itertools.count()


def ip(*words: str) -> subprocess.CompletedProcess:
    return subprocess.run(["ip", *words], capture_output=True, text=True, timeout=30)


class Networks:
    """A namespace with a bridge, and one for each site, with a cable to the bridge. `count` includes the first."""

    def __init__(self, count: int):
        made = next(_COUNT)
        self.names = [f"weir-{os.getpid()}-{made}-{number}" for number in range(count)]

    def __enter__(self) -> "Networks":
        hub, *sites = self.names
        made = ip("netns", "add", hub)
        if made.returncode:
            pytest.skip(f"no network namespaces here (they need root): {made.stderr.strip()}")
        try:
            self.do(f"-n {hub} link add bridge type bridge", f"-n {hub} address add {SUBNET}.1/24 dev bridge")
            self.do(f"-n {hub} link set bridge up", f"-n {hub} link set lo up")
            for number, site in enumerate(sites, 1):
                self.do(f"netns add {site}", f"-n {hub} link add cable{number} type veth peer name cable netns {site}")
                self.do(f"-n {hub} link set cable{number} master bridge up", f"-n {site} address add {self.address(number)}/24 dev cable")
                self.do(f"-n {site} link set cable up", f"-n {site} link set lo up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_) -> None:
        for name in self.names:
            ip("netns", "delete", name)

    @staticmethod
    def do(*commands: str) -> None:
        for command in commands:
            done = ip(*command.split())
            assert done.returncode == 0, (command, done.stderr)

    @staticmethod
    def address(number: int) -> str:
        return f"{SUBNET}.{number + 1}"

    def within(self, number: int) -> list[str]:
        """The prefix of a command in a namespace."""
        return ["ip", "netns", "exec", self.names[number]]

    def cable(self, number: int, state: str) -> None:
        self.do(f"-n {self.names[0]} link set cable{number} {state}")

    def cut(self, one: int, other: int) -> None:
        """Loses all packets between two sites; both reach the others."""
        self.do(f"-n {self.names[one]} route add blackhole {self.address(other)}/32")
        self.do(f"-n {self.names[other]} route add blackhole {self.address(one)}/32")

    def mend(self, one: int, other: int) -> None:
        self.do(f"-n {self.names[one]} route delete blackhole {self.address(other)}/32")
        self.do(f"-n {self.names[other]} route delete blackhole {self.address(one)}/32")
