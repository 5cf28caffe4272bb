"""A real PostgreSQL cluster under Patroni. Its machines are network namespaces. Each has a PostgreSQL server, except for the last one, the
witness, which has an etcd. The programs are Debian's packages. Needs root."""

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote, urlencode

from harness import StartFailed, of_processes, remove, until
from networks import Networks
from postgres import ADMIN, PASSWORD, PostgresMissing, as_account, clean_environment, give, program

CLIENTS_PORT, API_PORT, ETCD_PORT, PEERS_PORT = 5432, 8008, 2379, 2380
START_SECONDS = 120
# Patroni asks for ttl >= loop_wait + 2 * retry_timeout. Its defaults are 30, 10 and 10 seconds.
TTL_SECONDS, LOOP_SECONDS, RETRY_SECONDS = 8, 2, 3
# What a client does to wait no longer for a host that does not answer. PostgreSQL's clients take two seconds at least.
CONNECT_SECONDS = 2
# Asks a Patroni: METHOD URL BODY.
ASK = """
import sys, urllib.error, urllib.request
request = urllib.request.Request(sys.argv[2], method=sys.argv[1], data=sys.argv[3].encode() or None)
try:
    print(urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60).read().decode())
except urllib.error.HTTPError as error:
    sys.exit(f"{error.code} {error.read().decode()}")
"""


class Machine:
    """One namespace, with PostgreSQL under Patroni, with an etcd, or with both."""

    def __init__(self, number: int, name: str, home: Path):
        self.number, self.name, self.home = number, name, home
        self.etcd: subprocess.Popen | None = None
        self.patroni: subprocess.Popen | None = None
        self.isolated = False

    @property
    def address(self) -> str:
        return Networks.address(self.number)

    @property
    def config(self) -> Path:
        return self.home / "patroni.json"

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def log(self) -> Path:
        return self.home / "log"

    def alive(self) -> bool:
        return self.patroni is not None and self.patroni.poll() is None


class Patroni:
    """The cluster runs while this is entered. `home` must be accessible to other users (`base` is); it is removed at the end.

    Its machines are the first `nodes + 1` sites of `networks`: `pg1` to `pgN` in the namespaces with these numbers, then the witness.
    Clients can be in namespace 0 (`within()`), or in further ones that a test has made for them.

    Usually the witness has the only etcd, so the loss of a node disturbs nothing else. With `etcds=3`, the first two nodes have one each
    as well, as a site would have it."""

    def __init__(
        self,
        home: Path,
        nodes: int = 2,
        *,
        synchronous: bool = True,
        etcds: int = 1,
        ttl_seconds: int = TTL_SECONDS,
        networks: Networks | None = None,
        settings: dict[str, str | int] | None = None,
    ):
        self.home, self.synchronous, self.ttl_seconds = home, synchronous, ttl_seconds
        self.given, self.networks = networks, networks or Networks(nodes + 2)
        self.settings = {"max_connections": 100, **(settings or {})}
        names = [f"pg{number}" for number in range(1, nodes + 1)]
        self.machines = [Machine(number, name, home / name) for number, name in enumerate([*names, "witness"], 1)]
        self.nodes = {machine.name: machine for machine in self.machines[:-1]}
        self.with_etcd = [self.machines[-1], *self.machines[: etcds - 1]]
        self.passwords = {ADMIN: PASSWORD}
        self.databases = 0
        self.stack = ExitStack()

    def __enter__(self) -> "Patroni":
        try:
            if not shutil.which("patroni") or not shutil.which("etcd"):
                raise PostgresMissing("cannot run a PostgreSQL cluster: no patroni or etcd in PATH; `scripts/setup.sh test` installs them")
            if self.given is None:
                self.stack.enter_context(self.networks)
            self.home.mkdir(parents=True)
            for machine in self.machines:
                machine.home.mkdir()
                give(machine.home, 0o755)
                machine.config.write_text(json.dumps(self._config(machine), indent=1))
            for machine in self.with_etcd:
                self._start_etcd(machine)
            for node in self.nodes:
                self.start(node)
            self.wait_for_standbys(START_SECONDS)
        except BaseException:
            log = self.log_text()
            self.__exit__()
            if isinstance(sys.exc_info()[1], AssertionError):
                raise StartFailed(None, log) from None
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._kill(*(process for machine in self.machines for process in (machine.patroni, machine.etcd)))
        self.stack.close()
        remove(self.home)

    def within(self) -> list[str]:
        """The prefix of a client's command."""
        return self.networks.within(0)

    def url(self, user: str = ADMIN, database: str = "postgres", **parameters: str | int) -> str:
        """The address of the primary for clients that know several hosts."""
        hosts = ",".join(f"{node.address}:{CLIENTS_PORT}" for node in self.nodes.values())
        return self._url(hosts, user, database, {"target_session_attrs": "read-write", **parameters})

    def url_of(self, node: str, user: str = ADMIN, database: str = "postgres", **parameters: str | int) -> str:
        """The address of one server, whatever it is at the moment."""
        return self._url(f"{self.nodes[node].address}:{CLIENTS_PORT}", user, database, parameters)

    def _url(self, hosts: str, user: str, database: str, parameters: dict) -> str:
        parameters = {"connect_timeout": CONNECT_SECONDS, **parameters}
        return f"postgres://{user}:{quote(self.passwords[user], safe='')}@{hosts}/{database}?{urlencode(parameters)}"

    def create_database(self, owner: str = ADMIN) -> str:
        """Makes an empty database and returns its name."""
        self.databases += 1
        self.psql(f'CREATE DATABASE "weir{self.databases}" OWNER "{owner}"')
        return f"weir{self.databases}"

    def create_user(self, name: str, options: str = "") -> str:
        """Makes a user with a password, and without any right unless `options` has some; returns the name."""
        self.passwords[name] = secrets.token_urlsafe(12)
        self.psql(f"CREATE USER \"{name}\" {options} PASSWORD '{self.passwords[name]}'")
        return name

    def psql(self, sql: str, node: str | None = None, database: str = "postgres", timeout: float = 60) -> str:
        """Runs statements on the primary, or on one server. Returns the rows as lines, with `|` between columns."""
        done = self.ask(sql, self.url_of(node, database=database) if node else self.url(database=database), timeout)
        assert done.returncode == 0, f"psql failed on {sql!r}: {done.stderr.strip()}"
        return done.stdout.strip()

    def ask(self, sql: str, url: str, timeout: float = 60) -> subprocess.CompletedProcess:
        """What a client gets that knows the URL only."""
        command = [*self.within(), program("psql"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", url, "-c", sql]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=clean_environment())

    def primary(self) -> str | None:
        """The server that takes changes, as a client finds it; none during a failover."""
        for name, node in self.nodes.items():
            if node.alive() and not node.isolated:
                done = self.ask("SELECT pg_is_in_recovery()", self.url_of(name))
                if done.returncode == 0 and done.stdout.strip() == "f":
                    return name
        return None

    def wait_for_primary(self, other_than: str | None = None, seconds: float = 60) -> str:
        """Waits for a server that takes changes, and returns its name."""

        def found() -> str | None:
            primary = self.primary()
            return None if primary == other_than else primary

        return until(found, seconds, lambda: f"no primary beside {other_than} within {seconds} s:\n{self.log_text()}")

    def standbys(self) -> list[str]:
        """The other servers that clients can reach."""
        primary = self.primary()
        return [name for name, node in self.nodes.items() if name != primary and node.alive() and not node.isolated]

    def wait_for_standbys(self, seconds: float = 60) -> None:
        """Waits until all servers that run and are not isolated follow the primary, one of them synchronously if the cluster is so.
        From then on a failover loses nothing (asynchronous: nothing that was committed before)."""

        def follow() -> bool:
            standbys = self.standbys()
            if (primary := self.primary()) is None:
                return False
            rows = self.ask("SELECT application_name FROM pg_stat_replication WHERE state = 'streaming'", self.url_of(primary))
            if not set(standbys) <= set(rows.stdout.split()):
                return False
            roles = [member["role"] for member in self.api(primary, "GET", "cluster")["members"]]
            return not self.synchronous or not standbys or "sync_standby" in roles

        until(follow, seconds, lambda: f"no complete cluster within {seconds} s:\n{self.log_text()}")

    def api(self, node: str, method: str, path: str, body: dict | None = None) -> dict:
        """Asks the Patroni of a node."""
        url = f"http://{self.nodes[node].address}:{API_PORT}/{path}"
        command = [*self.within(), sys.executable, "-c", ASK, method, url, json.dumps(body) if body else ""]
        done = subprocess.run(command, capture_output=True, text=True, timeout=90)
        assert done.returncode == 0, f"Patroni of {node} refused {method} {path}: {done.stderr.strip()}"
        return json.loads(done.stdout) if done.stdout.lstrip().startswith("{") else {"said": done.stdout.strip()}

    def kill(self, node: str) -> None:
        """Kills Patroni and the whole PostgreSQL server at one moment with SIGKILL; the machine's etcd goes with them."""
        self._kill(self.nodes[node].patroni, self.nodes[node].etcd)

    def start(self, node: str) -> None:
        """Starts what does not run on a node. It becomes a standby if there is a primary meanwhile."""
        machine = self.nodes[node]
        if machine in self.with_etcd:
            self._start_etcd(machine)
        if machine.alive():
            return
        # Process numbers begin again with each start, so the number in the lock file could be of another process now.
        (machine.data / "postmaster.pid").unlink(missing_ok=True)
        # As the first process of a namespace of its own, Patroni takes all processes of the server with it when it is killed. `setpriv`
        # sets the signal after the account, since a change of the account clears it.
        own = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        machine.patroni = self._spawn(machine, "setpriv", "--pdeathsig", "KILL", *own, *_patroni(machine.config))

    def kill_etcd(self, machine: str) -> None:
        """Kills the etcd of a machine with SIGKILL, and leaves its Patroni and PostgreSQL alone."""
        self._kill(self._machine(machine).etcd)

    def start_etcd(self, machine: str) -> None:
        self._start_etcd(self._machine(machine))

    def _machine(self, name: str) -> Machine:
        return next(machine for machine in self.machines if machine.name == name)

    def isolate(self, name: str) -> None:
        """Pulls the network cable of a machine: nobody gets a reply or an error from there."""
        self._cable(name, is_isolated=True)

    def heal(self, name: str) -> None:
        self._cable(name, is_isolated=False)

    def _cable(self, name: str, is_isolated: bool) -> None:
        machine = self._machine(name)
        self.networks.cable(machine.number, "down" if is_isolated else "up")
        machine.isolated = is_isolated

    def cut(self, one: str, other: str) -> None:
        """Two nodes lose each other and reach the rest: a standby does not get what is committed from now on."""
        self.networks.cut(self.nodes[one].number, self.nodes[other].number)

    def mend(self, one: str, other: str) -> None:
        self.networks.mend(self.nodes[one].number, self.nodes[other].number)

    def switchover(self, to: str | None = None) -> str:
        """Makes a standby the primary in an orderly way, and returns its name."""
        primary = self.wait_for_primary()
        to = to or self.standbys()[0]
        self.api(primary, "POST", "switchover", {"leader": primary, "candidate": to})
        return self.wait_for_primary(other_than=primary)

    def log_text(self, lines: int = 60) -> str:
        """The ends of the nodes' logs, where PostgreSQL writes too."""
        logs = [(machine.name, machine.log.read_text(errors="replace").splitlines()) for machine in self.machines if machine.log.exists()]
        return "\n".join(f"== {name}\n" + "\n".join(text[-lines:]) for name, text in logs)

    def processes(self) -> list[str]:
        """Command lines of the cluster's processes, for tests that nothing is left."""
        return [line for line in of_processes("[0-9]*/cmdline") if str(self.home) in line]

    def _spawn(self, machine: Machine, *command: str | Path) -> subprocess.Popen:
        with open(machine.log, "ab") as log:
            return subprocess.Popen(
                [*self.networks.within(machine.number), *map(str, command)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=clean_environment(),
                cwd=machine.home,
                start_new_session=True,  # a Ctrl-C is for the tests
            )

    def _start_etcd(self, machine: Machine) -> None:
        if machine.etcd is not None and machine.etcd.poll() is None:
            return
        peers = ",".join(f"{other.name}=http://{other.address}:{PEERS_PORT}" for other in self.with_etcd)
        mine = {
            "name": machine.name,
            "data-dir": machine.home / "etcd",
            "listen-client-urls": f"http://{machine.address}:{ETCD_PORT}",
            "advertise-client-urls": f"http://{machine.address}:{ETCD_PORT}",
            "listen-peer-urls": f"http://{machine.address}:{PEERS_PORT}",
            "initial-advertise-peer-urls": f"http://{machine.address}:{PEERS_PORT}",
            "initial-cluster": peers,
            # One that comes back asks before it stands for election, as etcd 3.5 does by default.
            "pre-vote": "true",
            "logger": "zap",
            "log-level": "error",
        }
        flags = [f"--{name}={value}" for name, value in mine.items()]
        machine.etcd = self._spawn(machine, *as_account("setpriv", "--pdeathsig", "KILL", "etcd", *flags))

    @staticmethod
    def _kill(*processes: subprocess.Popen | None) -> None:
        running = [process for process in processes if process is not None and process.poll() is None]
        for process in running:
            # The first process of a process namespace: the kernel kills all others before that one counts as ended.
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            for child in children or [process.pid]:
                os.kill(int(child), signal.SIGKILL)
        for process in running:
            process.wait(60)

    def _config(self, machine: Machine) -> dict:
        dcs = {
            "ttl": self.ttl_seconds,
            "loop_wait": LOOP_SECONDS,
            "retry_timeout": RETRY_SECONDS,
            "synchronous_mode": self.synchronous,
            "postgresql": {"use_pg_rewind": True, "use_slots": True, "parameters": self.settings},
        }
        accounts = {"superuser": ADMIN, "replication": "replicator", "rewind": "rewinder"}
        return {
            "scope": "weir",
            "name": machine.name,
            "restapi": {"listen": f"{machine.address}:{API_PORT}", "connect_address": f"{machine.address}:{API_PORT}"},
            "etcd3": {"hosts": [f"{other.address}:{ETCD_PORT}" for other in self.with_etcd]},
            "bootstrap": {"dcs": dcs, "initdb": [{"encoding": "UTF8"}, {"locale": "C.UTF-8"}, "data-checksums", "no-sync"]},
            "postgresql": {
                "listen": f"{machine.address}:{CLIENTS_PORT}",
                "connect_address": f"{machine.address}:{CLIENTS_PORT}",
                "bin_dir": str(Path(program("postgres")).parent),
                "data_dir": str(machine.data),
                "pgpass": str(machine.home / "pgpass"),
                "authentication": {kind: {"username": name, "password": PASSWORD} for kind, name in accounts.items()},
                "parameters": {"unix_socket_directories": "", "password_encryption": "scram-sha-256"},
                "pg_hba": ["host all all 0.0.0.0/0 scram-sha-256", "host replication all 0.0.0.0/0 scram-sha-256"],
                "basebackup": [{"checkpoint": "fast"}, "no-sync"],
            },
        }


def _patroni(config: Path) -> list[str]:
    return as_account("setpriv", "--pdeathsig", "KILL", "patroni", config)
