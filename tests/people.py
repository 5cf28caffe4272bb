"""People who administer, and nodes and clusters whose settings give them roles."""

import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from authority import Authority
from clients import run
from cluster import Cluster
from harness import WEIR_BIN, remove, until
from issuer import AUDIENCE, Issuer

DENIED = 13
ROLES = """
[[administrator]]
principal = "vera"
role = "viewer"
[[administrator]]
principal = "omar"
role = "operator"
[[administrator]]
principal = "ada"
role = "admin"
[[administrator]]
group = "ops"
role = "operator"
[[administrator]]
group = "looks"
role = "viewer"
[[administrator]]
principal = "local-daemon"
role = "viewer"
[[administrator]]
group = "local-bin"
role = "operator"
"""


@contextmanager
def shared_folder() -> Iterator[Path]:
    """A folder that all users of the machine reach, with the binary in it."""
    folder = Path(tempfile.mkdtemp(prefix="weir-people-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        os.link(WEIR_BIN, folder / "weir")
    except OSError:
        shutil.copy2(WEIR_BIN, folder / "weir")
    yield folder
    remove(folder)


def trusted_grid(authority: Authority, folder: Path) -> Path:
    """Makes the folder of what the nodes trust of the grid: `authorities`, and `vomsdir` with the server of an organization."""
    organization = folder / "vomsdir" / "wlcg"
    organization.mkdir(parents=True)
    (organization / "voms.example.org.lsc").write_text("/DC=org/DC=example/CN=voms.example.org\n/DC=org/DC=example/CN=authority\n")
    shutil.copytree(authority.trusted, folder / "authorities")
    return folder


def settings_of(authority: Authority, issuer: Issuer, grid: Path) -> Callable[..., str]:
    """The configuration for a socket, with these roles."""
    hosts = ",".join(["DNS:localhost", *(f"{kind}:127.0.0.{number}" for number in range(1, 4) for kind in ("DNS", "IP"))])
    certificate, key = authority.issue("people", hosts)

    def text(socket: Path, roles: str = ROLES, certificates: bool = True) -> str:
        return f"""
tls.certificate = "{certificate}"
tls.key = "{key}"
authentication.mechanisms = ["ztn", "gsi"]
authentication.gsi_authorities = "{grid / "authorities"}"
authentication.voms_servers = "{grid / "vomsdir"}"
authentication.ca = "{authority.home / "ca.pem"}"
administration.socket = "{socket}"
administration.certificates = {"true" if certificates else "false"}
audit.to = "files"
{roles}
[[issuer]]
url = "{issuer.url}"
base_paths = ["/"]
audiences = ["{AUDIENCE}"]
without_scopes = "identity"
[[identity]]
issuer = "{issuer.url}"
subject = "banned"
refuse = true
[[identity]]
issuer = "{issuer.url}"
principal = "{{subject}}"
groups = ["{{groups}}"]
[[identity]]
certificate = "/DC=org/DC=example/CN=banned"
refuse = true
[[identity]]
voms = "/wlcg/Role=ops"
principal = "wanda"
groups = ["ops"]
[[identity]]
certificate = "/DC=org/DC=example/CN=vera"
principal = "vera"
[[identity]]
certificate = "/DC=org/DC=example/CN=ada"
principal = "ada"
[[identity]]
certificate = "/DC=org/DC=example/CN=otto"
principal = "otto"
[[identity]]
local_user = "mail"
refuse = true
[[identity]]
local_user = "*"
principal = "local-{{user}}"
groups = ["local-{{groups}}"]
"""

    return text


class Site:
    """A node, or a cluster with its manager."""

    def __init__(self, server, shared: Path, socket: Path, config: Path, home: Path):
        self.server, self.shared, self.socket, self.config, self.home = server, shared, socket, config, home
        self.data = server.data

    def weir(self, *arguments: str) -> str:
        """As root."""
        done = subprocess.run([WEIR_BIN, *arguments, "--data", self.data], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, (arguments, done.stderr)
        return done.stdout

    def as_user(self, name: str, *arguments: str):
        """As a user of this machine, by the socket for all."""
        user = pwd.getpwnam(name)
        command = [str(self.shared / "weir"), *arguments, "--cluster", str(self.socket)]
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            user=user.pw_uid,
            group=user.pw_gid,
            extra_groups=[],
            cwd="/",
            env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
        )

    def reload(self, text: str) -> None:
        before = self.server.log_text().count("SIGHUP: ")
        self.config.write_text(text)
        self.server.process.send_signal(signal.SIGHUP)
        until(lambda: self.server.log_text().count("SIGHUP: ") > before, 10, self.server.log_text)

    def audit(self, *parts: str) -> str:
        """The newest line of a change in the log with all these parts."""

        def found():
            lines = [line for line in self.server.log_text().splitlines() if " audit: change " in line]
            return next((line for line in reversed(lines) if all(part in line for part in parts)), None)

        return until(found, 5, lambda: f"no audit line of {parts}:\n{self.server.log_text()[-3000:]}")

    def audited(self, principal: str) -> list[dict]:
        """The lines of the audit log about somebody's commands."""
        lines = run([str(WEIR_BIN), "audit", "--json", "--principal", principal, "--event", "admin", "--data", str(self.data)]).ok().out
        return [json.loads(line) for line in lines.splitlines()]

    def audited_logins(self, mechanism: str) -> list[dict]:
        """The lines of the audit log about logins by it."""
        lines = run([str(WEIR_BIN), "audit", "--json", "--event", "login", "--data", str(self.data)]).ok().out
        return [one for one in map(json.loads, lines.splitlines()) if one["mechanism"] == mechanism]


@contextmanager
def cluster_of(base: Path, name: str, settings: Callable[..., str], shared: Path) -> Iterator[Site]:
    """A cluster of one disk server."""
    home, config, socket = base / name, base / f"{name}.toml", shared / f"{name}.socket"
    config.write_text(settings(socket))
    # Disk servers read the same settings, and one socket is for one node.
    disk_config = base / f"{name}-disk.toml"
    disk_config.write_text(re.sub(r"administration.socket.*\n", "", settings(socket)))
    cluster = Cluster(home, 1, ("--config", str(config)))
    cluster.disks[0].flags = tuple(str(disk_config) if flag == str(config) else flag for flag in cluster.disks[0].flags)
    with cluster:
        site = Site(cluster.manager, shared, socket, config, home)
        site.cluster = cluster
        yield site
    remove(home)


class Bearer:
    """Somebody on another machine with a token, or with what other variables of the environment name."""

    def __init__(self, site: Site, token: str, **variables: object):
        self.home, self.token = Path(tempfile.mkdtemp(dir=site.home)), token
        self.variables = {name: str(value) for name, value in variables.items()}
        line = site.weir("admin", "authority").split()
        assert line[:4] == ["weir", "context", "add", "NAME"], line
        self.done("context", "add", "lab", *line[4:])

    def weir(self, *arguments: str):
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("WEIR_", "XDG_", "BEARER_", "X509"))}
        env = {**kept, "HOME": str(self.home), "BEARER_TOKEN": self.token, **self.variables}
        return subprocess.run([str(WEIR_BIN), *arguments], capture_output=True, text=True, timeout=60, env=env, check=False)

    def done(self, *arguments: str) -> str:
        ended = self.weir(*arguments)
        assert ended.returncode == 0, (arguments, ended.returncode, ended.stderr)
        return ended.stdout

    def denied(self, *arguments: str) -> str:
        ended = self.weir(*arguments)
        assert ended.returncode == DENIED, (arguments, ended.returncode, ended.stdout, ended.stderr)
        assert not self.token or self.token not in ended.stderr
        return ended.stderr
