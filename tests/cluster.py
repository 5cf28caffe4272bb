"""A cluster of real processes on loopback: a manager and disk servers. Each has an address of its own in 127/8, so that clients that name
hosts without ports (`tried=`) distinguish them."""

import json
import re
import signal
import subprocess
import time
from pathlib import Path

from clients import run
from harness import READY_SECONDS, WEIR_BIN, Defaults, of_processes, until
from ports import free_port


class Node:
    """One process. Its ports stay the same over restarts."""

    def __init__(self, home: Path, role: str, host: str, flags: tuple[str, ...] = ()):
        home.mkdir(parents=True)
        self.home, self.role, self.host, self.flags = home, role, host, flags
        self.data, self.log, self.ready = home / "data", home / "log", home / "ready"
        self.port, self.nodes_port = free_port(host), free_port(host)
        self.process: subprocess.Popen | None = None
        # Length of its log at the last start.
        self.logged_before = 0
        # Prefix of its command: where it runs.
        self.prefix: tuple[str, ...] = ()
        self.is_frozen = False

    def launch(self, *flags: str | Path) -> "Node":
        command = [*self.prefix, WEIR_BIN, "serve", "--role", self.role, "--data", self.data]
        command += ["--listen", f"{self.host}:{self.port}"]
        command += ["--nodes", f"{self.host}:{self.nodes_port}", *Defaults.flags(self.home, (*self.flags, *flags))]
        with open(self.log, "ab") as log, open(self.ready, "wb") as out:
            self.logged_before = log.tell()
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=log)
        return self

    def start(self, *flags: str | Path) -> "Node":
        self.launch(*flags)
        return self.wait_ready()

    def wait_ready(self) -> "Node":
        end = time.monotonic() + READY_SECONDS
        while not self.ready.read_text().startswith("weir: ready "):
            assert self.process.poll() is None, self.log_text()
            assert time.monotonic() < end, self.log_text()
            time.sleep(0.01)
        return self

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def log_text(self, since_start: bool = False) -> str:
        """Its whole log, or the part since its last start."""
        if not self.log.exists():
            return ""
        logged = self.log.read_bytes()[self.logged_before if since_start else 0 :]
        return logged.decode(errors="replace")

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)

    def kill(self) -> None:
        """Sends SIGKILL: the process does not execute another instruction."""
        self.process.kill()
        self.process.wait()

    def freeze(self) -> None:
        """Stops the process without its knowledge, like a stalled machine or a lost network. All threads have stopped when this returns."""
        self.is_frozen = True
        self.process.send_signal(signal.SIGSTOP)
        while any(stat.rpartition(")")[2].split()[0] != "T" for stat in of_processes(f"{self.process.pid}/task/*/stat")):
            time.sleep(0.01)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.is_frozen = False

    @property
    def url(self) -> str:
        return f"root://{self.host}:{self.port}/"

    def objects(self) -> list[Path]:
        """The files of large objects on its disk."""
        found = (self.home / "data").rglob("objects/*/*/*")
        return [path for path in found if path.is_file() and not path.name.endswith(".crc")]


class Cluster:
    """`database`: the address of the database that has the namespace, instead of the manager's data directory."""

    def __init__(self, home: Path, disks: int, flags: tuple[str, ...] = (), database: str | None = None):
        self.home = home
        of_manager = ("--database", database, *flags) if database else flags
        self.manager = Node(home / "manager", "manager", "127.0.0.1", of_manager)
        self.disks = []
        for number in range(1, disks + 1):
            place = f"site{(number - 1) % 2 + 1}/rack1/disk{number}"
            self.disks.append(Node(home / f"disk{number}", "disk", f"127.0.0.{number + 1}", ("--location", place, *flags)))

    @property
    def url(self) -> str:
        return f"root://127.0.0.1:{self.manager.port}/"

    @property
    def nodes(self) -> list[Node]:
        return [self.manager, *self.disks]

    def weir(self, *arguments: str) -> str:
        done = subprocess.run([WEIR_BIN, *arguments], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"weir {arguments}: {done.stderr}"
        return done.stdout

    def start_managers(self) -> None:
        self.manager.start()

    def start(self) -> "Cluster":
        self.start_managers()
        for disk in self.disks:
            token = disk.home / "token"
            token.write_text(self.weir("token", "create", "--data", self.data))
            disk.launch("--join-file", token)
        for disk in self.disks:
            disk.wait_ready()
        self.wait_sessions()
        return self

    def wait_sessions(self) -> None:
        """Waits until all running disk servers have a session with the present manager, begun after their own start."""
        end = time.monotonic() + READY_SECONDS
        for disk in self.disks:
            while disk.alive() and not self._is_in_session(disk):
                assert time.monotonic() < end, disk.log_text()
                time.sleep(0.05)
        time.sleep(1.2)  # the servers get each other's addresses

    def _is_in_session(self, disk: Node) -> bool:
        if "in session with the manager" not in disk.log_text(since_start=True):
            return False
        address = f"{disk.host}:{disk.nodes_port}"
        of_it = [node for node in self.asked("status")["nodes"] if address in node["nodes"]]
        return any(node["presence"] == "online" and node["capacity"] > 0 for node in of_it)

    def policy(self, path: str, words: str) -> None:
        """Sets the policy of new files in the directory."""
        if path != "/":
            run(["xrdfs", self.url.rstrip("/"), "mkdir", "-p", path]).ok()
        self.weir("policy", "set", path, words, "--data", self.data)

    def at(self, address: str) -> Node:
        """The disk server at `host:port`."""
        return next(disk for disk in self.disks if address == f"{disk.host}:{disk.port}")

    @property
    def data(self) -> str:
        return str(self.manager.home / "data")

    def asked(self, *arguments: str):
        """The JSON output of a command."""
        return json.loads(self.weir(*arguments, "--json", "--data", self.data))

    def stores(self) -> list[dict]:
        return self.asked("stores")

    def file(self, path: str) -> dict:
        """The output of `weir file` for it."""
        return self.asked("file", path)

    def store_of(self, disk: Node) -> str:
        place = f"disk{self.disks.index(disk) + 1}"
        return next(store["store"] for store in self.stores() if store["location"].endswith(place))

    def whole_on(self, path: str) -> set[str]:
        """The stores that have a complete replica of a file."""
        return {copy["store"] for copy in self.file(path)["object"]["replicas"] if copy["replica"] == "complete"}

    def holders(self, path: str) -> list[Node]:
        """The disk servers that serve a file, according to `xrdfs locate`."""
        lines = run(["xrdfs", self.url.rstrip("/"), "locate", path]).ok().out.splitlines()
        return [self.at(line.split()[0].removeprefix("[::").replace("]", "")) for line in lines if line]

    def __enter__(self) -> "Cluster":
        try:
            return self.start()
        except BaseException:
            # Nothing else stops the running nodes.
            self.__exit__()
            raise

    def __exit__(self, *_) -> None:
        for node in self.nodes:
            if node.alive():
                node.process.send_signal(signal.SIGTERM)
        for node in self.nodes:
            if node.process is not None:
                try:
                    node.process.wait(30)
                except subprocess.TimeoutExpired:
                    node.kill()

    def until(self, fact, seconds: float = 40):
        return until(fact, seconds, self.logs)

    def logs(self) -> str:
        return "\n".join(f"== {node.home.name}\n{node.log_text()[-3000:]}" for node in self.nodes)


def port_of(url: str) -> int:
    return int(re.findall(r":(\d+)/", url)[0])
