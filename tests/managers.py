"""A cluster of several managers on a PostgreSQL server, as `cluster.py` has one of one manager. Tests that know that one run on this as
well: `cluster.manager` is the active manager, and clients get a standby's address."""

import json
import os
import tempfile
import time
from pathlib import Path

from cluster import Cluster, Node, port_of
from harness import Server, weir
from postgres import Postgres

ACCOUNT = "weir"
# The database shows for 5 s that the active manager is silent before another one takes over.
TAKE_OVER_SECONDS = 10
# Addresses of further managers. Those of disk servers begin at 127.0.0.2.
FIRST_ADDRESS = 101


def new_database(postgres: Postgres) -> str:
    """A database with weir's tables; returns its URL for an account that has a manager's rights."""
    if ACCOUNT not in postgres.passwords:
        postgres.create_user(ACCOUNT)
    name = postgres.create_database()
    made = weir("db", "init", "--grant-to", ACCOUNT, "--database", postgres.url(database=name))
    assert made.returncode == 0, made
    return postgres.url(ACCOUNT, name)


class Managers(Cluster):
    """Its managers, disk servers, and PostgreSQL server, if it is given no `database`."""

    def __init__(self, home: Path, disks: int, flags: tuple[str, ...] = (), database: str | None = None, managers: int = 3):
        self.database, self.postgres = database, None
        # The manager that was active when it was last looked for.
        self._latest: Node | None = None
        super().__init__(home, disks, flags)
        self.managers = [self._latest]
        for number in range(managers - 1):
            self.managers.append(Node(home / f"manager{number + 2}", "manager", f"127.0.0.{FIRST_ADDRESS + number}", flags))

    @property
    def manager(self) -> Node:
        """The active manager. One that a test has killed or stopped is returned until it runs again, so that the test can start it."""
        if self._latest.alive() and not self._latest.is_frozen and len(self.managers) > 1 and self.role(self._latest) != "manager":
            self._latest = self.active()
        return self._latest

    @manager.setter
    def manager(self, node: Node) -> None:
        self._latest = node

    @property
    def nodes(self) -> list[Node]:
        return [*self.managers, *self.disks]

    @property
    def url(self) -> str:
        """The address of a manager that is a standby, as long as no other one has taken over."""
        return next((node for node in reversed(self.managers) if node is not self._latest), self._latest).url

    @property
    def data(self) -> str:
        return str(self.active().data)

    def token(self) -> str:
        return self.weir("token", "create", "--role", "manager", "--data", self.data).strip()

    def start_managers(self) -> None:
        """Disk servers get the addresses of all managers when they join after this."""
        if self.database is None:
            # `home` may be closed to other users, and PostgreSQL runs as one.
            place = Path(tempfile.mkdtemp(prefix="weir-test-postgres-", dir=os.environ.get("WEIR_TEST_DIR")))
            place.chmod(0o755)
            self.postgres = Postgres(place).start()
            self.database = new_database(self.postgres)
        for node in self.managers:
            node.flags = ("--database", self.database, *node.flags)
        first, *others = self.managers
        first.start()
        for node in others:
            token = node.home / "token"
            token.write_text(self.token())
            node.start("--join-file", token)
        for node in others:
            self.wait_standby(node)

    def status(self, node: Node) -> dict:
        done = weir("status", "--json", "--data", str(node.data))
        return json.loads(done.stdout) if done.returncode == 0 else {"role": None, "active": None}

    def role(self, node: Node) -> str | None:
        return self.status(node)["role"]

    def active(self) -> Node:
        """Waits until a manager is active, and returns it."""

        def found() -> Node | None:
            likely = (self._latest, *self.managers)
            return next((node for node in likely if node.alive() and not node.is_frozen and self.role(node) == "manager"), None)

        return self.until(found)

    def standbys(self) -> list[Node]:
        active = self.active()
        return [node for node in self.managers if node is not active]

    def other(self, node: Node) -> Node:
        return next(other for other in self.managers if other is not node)

    def wait_active(self, node: Node, seconds: float = TAKE_OVER_SECONDS) -> float:
        """Waits until this manager is active and has the disk servers again, and returns the seconds until it was active."""
        begin = time.monotonic()
        self.until(lambda: self.role(node) == "manager", seconds)
        took = time.monotonic() - begin
        self.until(lambda: self.online(node) == len([disk for disk in self.disks if disk.alive()]), 20)
        return took

    def online(self, node: Node) -> int:
        return len([one for one in self.status(node).get("nodes", []) if one.get("presence") == "online"])

    def wait_standby(self, node: Node, seconds: float = 20) -> None:
        def follows() -> bool:
            status = self.status(node)
            return status["role"] == "standby" and status["active"] is not None and status["active"]["is_connected"]

        self.until(follows, seconds)

    def __exit__(self, *_) -> None:
        super().__exit__()
        if self.postgres:
            self.postgres.__exit__()
            self.postgres = None


class ManagersServer(Server):
    """The cluster in place of the single server of a test. Its address is a standby's, and what is killed is the active manager."""

    kind = "weir"

    def __init__(self, home: Path, data: Path | None = None, flags: tuple[str, ...] = ()):
        super().__init__(home, data)
        self.cluster = Managers(home / "cluster", 2, flags)
        self.killed: Node | None = None

    def start(self) -> "ManagersServer":
        if self.killed:
            self.killed.start()
            self.killed = None
        else:
            self.cluster.__enter__()
            self.port = port_of(self.cluster.url)
        return self

    @property
    def url(self) -> str:
        return self.cluster.url

    @property
    def host(self) -> str:
        return self.cluster.url.removeprefix("root://").partition(":")[0]

    def alive(self) -> bool:
        return all(node.alive() for node in self.cluster.nodes)

    def kill(self) -> None:
        self.killed = self.cluster.active()
        self.killed.kill()

    def stop(self, patience_seconds: float = 30) -> tuple[int, float]:
        begin = time.monotonic()
        self.killed = self.cluster.active()
        return self.killed.stop(), time.monotonic() - begin

    def log_text(self) -> str:
        return self.cluster.logs()

    def __exit__(self, *_) -> None:
        self.cluster.__exit__()
