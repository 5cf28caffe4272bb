"""Clusters that a campaign needs, all on this machine: weir's own by `weir local`, XRootD's redirector with data servers, GlusterFS with
bricks. Each ends what it has started."""

import json
import os
import pwd
import shutil
import subprocess
import time
from pathlib import Path

from harness import WEIR_BIN, Server, listening
from measure import run
from ports import free_port

DISKS = 4
MIB = 1 << 20


class Processes:
    """Some processes of this machine, as one: what they have used, what they have."""

    def __init__(self, *pids: int):
        self.pids = pids

    def cpu_seconds(self) -> float:
        """User and system time of all their threads, ended ones included."""
        return sum(cpu_seconds(pid) for pid in self.pids)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid: int, field: str = "VmRSS") -> int:
    """Bytes; `VmHWM` is the most that there ever was since `forget_most`."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise SystemExit(f"no {field} of process {pid}: it has ended")


def forget_most(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


class LocalCluster:
    """A manager and disk servers of `weir local`; places over two sites."""

    def __init__(self, home: Path, settings: str = "", binary: str = str(WEIR_BIN)):
        self.home, self.settings, self.binary = home, settings, binary

    def __enter__(self) -> "LocalCluster":
        shutil.rmtree(self.home, ignore_errors=True)
        more = []
        if self.settings:
            config = self.home.with_suffix(".toml")
            config.write_text(self.settings)
            more = ["--config", str(config)]
        self.local("up", "--disks", str(DISKS), "--listen", "127.0.0.1:0", *more)
        time.sleep(1.5)  # a report of their space
        return self

    def __exit__(self, *_) -> None:
        self.local("down")
        shutil.rmtree(self.home, ignore_errors=True)

    def local(self, verb: str, *words: str) -> str:
        return run([self.binary, "local", verb, *words, "--dir", str(self.home)])

    @property
    def nodes(self) -> dict[str, dict]:
        """By name: `clients`, the address, and `pid`."""
        return {node["name"]: node for node in json.loads(self.local("status", "--json"))["nodes"]}

    def pid(self, name: str) -> int:
        return self.nodes[name]["pid"]

    @property
    def manager(self) -> Processes:
        return Processes(self.pid("manager"))

    @property
    def everybody(self) -> Processes:
        return Processes(*(node["pid"] for node in self.nodes.values()))

    @property
    def port(self) -> int:
        return int(self.nodes["manager"]["clients"].rpartition(":")[2])

    @property
    def url(self) -> str:
        return f"root://{self.nodes['manager']['clients']}/"

    @property
    def sites(self) -> dict[str, str]:
        """Where each disk server stands, by the address that clients are sent to."""
        return {node["clients"]: node["location"].partition("/")[0] for node in self.nodes.values() if node.get("location")}

    def asked(self, *words: str):
        return json.loads(run([self.binary, *words, "--json", "--data", str(self.home / "manager")]))

    def directory(self, path: str, policy: str) -> None:
        run([self.binary, "mkdir", self.url + path])
        run([self.binary, "policy", "set", path, policy, "--data", str(self.home / "manager")])

    def at(self, address: str) -> str:
        """The node that clients reach there."""
        return next(name for name, node in self.nodes.items() if node["clients"] == address)

    def wait_whole(self, seconds: float = 60) -> None:
        """Waits until all stores are online and no replica is missing."""
        end = time.monotonic() + seconds
        while any(store["state"] != "online" for store in self.asked("stores")) or self.asked("repair")["missing"]["count"]:
            if time.monotonic() > end:
                raise SystemExit(f"the cluster is not whole after {seconds} s: {self.asked('status')}")
            time.sleep(0.2)

    def contents(self, *without: str) -> int:
        """Bytes of large contents on all disks."""
        folders = [self.home / name for name in self.nodes if name != "manager" and name not in without]
        files = (path for folder in folders for path in folder.rglob("objects/*/*/*") if not path.name.endswith(".crc"))
        return sum(path.stat().st_blocks * 512 for path in files if path.is_file())


class XrootdCluster:
    """A redirector and data servers, each an xrootd with its cmsd, without authentication, with both checksums that weir keeps."""

    # A file that nobody has is looked for so long before it is made: 5 s by default.
    LOOKUP_SECONDS = 1

    def __init__(self, home: Path):
        self.home, self.started = home, []

    def __enter__(self) -> "XrootdCluster":
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir(parents=True)
        names = ["redirector", *(f"server{number}" for number in range(1, DISKS + 1))]
        ports = {name: free_port() for name in [*names, "cmsd"]}
        self.port, self.ports = ports["redirector"], [ports[name] for name in names[1:]]
        try:
            for name in names:
                self.start(name, ports)
            end = time.monotonic() + 30
            while not all(listening(port) for port in ports.values()):
                if time.monotonic() > end:
                    raise SystemExit(f"XRootD's cluster did not start; {self.home}/*/*/*.log")
                time.sleep(0.1)
            while subprocess.run(["xrdfs", self.url, "ls", "/"], capture_output=True).returncode and time.monotonic() < end:
                time.sleep(0.5)
            time.sleep(4)  # all data servers have told the redirector of themselves
        except BaseException:
            self.__exit__()
            raise
        return self

    def start(self, name: str, ports: dict[str, int]) -> None:
        folder = self.home / name
        (folder / "data").mkdir(parents=True)
        role = "manager" if name == "redirector" else "server"
        lines = ["all.export /", f"all.role {role}", f"all.manager 127.0.0.1:{ports['cmsd']}"]
        lines += [f"all.adminpath {folder}/admin", f"all.pidpath {folder}/admin"]
        if role == "manager":
            lines += [f"cms.delay startup 2 servers {DISKS} lookup {self.LOOKUP_SECONDS}"]
            lines += ["if exec cmsd", f"xrd.port {ports['cmsd']}", "else", f"xrd.port {ports[name]}", "fi"]
        else:
            lines += [f"oss.localroot {folder}/data", "xrootd.chksum max 4 adler32 crc32c"]
            lines += ["if exec xrootd", f"xrd.port {ports[name]}", "fi"]
        config = folder / "cfg"
        config.write_text("\n".join(lines) + "\n")
        user = pwd.getpwnam("xrootd")
        for path in (self.home, folder, folder / "data"):
            os.chown(path, user.pw_uid, user.pw_gid)
            path.chmod(0o755)
        for program in ("cmsd", "xrootd"):
            command = [program, "-c", str(config), "-l", str(folder / f"{program}.log"), "-n", name, "-R", "xrootd"]
            null = subprocess.DEVNULL
            self.started.append((name, subprocess.Popen(command, stdin=null, stdout=null, stderr=null, cwd=folder)))

    def __exit__(self, *_) -> None:
        for _, process in self.started:
            process.kill()  # a cmsd takes its time over SIGTERM
            process.wait()
        shutil.rmtree(self.home, ignore_errors=True)

    @property
    def url(self) -> str:
        return f"root://127.0.0.1:{self.port}/"

    def of(self, name: str) -> list[int]:
        return [process.pid for who, process in self.started if who == name]

    @property
    def redirector(self) -> Processes:
        return Processes(*self.of("redirector"))

    @property
    def everybody(self) -> Processes:
        return Processes(*(process.pid for _, process in self.started))

    def data(self, number: int) -> Path:
        """The folder of a data server, 0 to 3."""
        return self.home / f"server{number + 1}/data"


class Gluster:
    """Two volumes over four bricks, distribute and replica 2, mounted by the FUSE client. The daemon and its network are of
    `weir bench testbed`; its own volume of one brick lies idle."""

    VOLUMES = {"distribute": [], "replica": ["replica", "2"]}

    def __init__(self, home: Path):
        self.home, self.bed, self.mounted = home, home / "bed", {}

    def __enter__(self) -> "Gluster":
        self.home.mkdir(parents=True, exist_ok=True)
        try:
            told = run([str(WEIR_BIN), "bench", "testbed", "up", "glusterfs", "--dir", str(self.bed)])
            self.daemon = next(pid for pid in pids_of("glusterd") if f"{self.bed}" in mounts_of(pid))
            address = self.gluster("volume", "info", "bench").partition("Brick1: ")[2].partition(":")[0]
            assert address, told
            for name, kind in self.VOLUMES.items():
                bricks = [self.home / f"{name}{number}" for number in range(DISKS)]
                for brick in bricks:
                    brick.mkdir()
                self.gluster("volume", "create", name, *kind, *(f"{address}:{brick}" for brick in bricks), "force")
                self.gluster("volume", "start", name)
                self.mount(name, address)
        except BaseException:
            self.__exit__()
            raise
        return self

    def gluster(self, *words: str) -> str:
        enter = ["nsenter", "--target", str(self.daemon), "--net", "--mount"]
        return run([*enter, "gluster", "--mode=script", *words])

    def mount(self, name: str, address: str) -> None:
        at = self.home / f"mount-{name}"
        at.mkdir()
        command = ["glusterfs", "--no-daemon", "--process-name", "fuse", f"--volfile-server={address}", f"--volfile-id=/{name}"]
        client = subprocess.Popen([*command, f"--log-file={self.home}/{name}.log", str(at)])
        self.mounted[name] = (at, client)
        end = time.monotonic() + 30
        while not os.path.ismount(at):
            if time.monotonic() > end:
                raise SystemExit(f"GlusterFS's volume {name} was not mounted; {self.home}/{name}.log")
            time.sleep(0.1)

    def __exit__(self, *_) -> None:
        for at, client in self.mounted.values():
            subprocess.run(["umount", str(at)], check=False)
            client.terminate()
            client.wait()
        subprocess.run([str(WEIR_BIN), "bench", "testbed", "down", "--dir", str(self.bed)], check=False, stdout=subprocess.DEVNULL)
        shutil.rmtree(self.home, ignore_errors=True)

    def at(self, name: str) -> Path:
        return self.mounted[name][0]

    def client(self, name: str) -> Processes:
        return Processes(self.mounted[name][1].pid)

    def bricks(self, name: str) -> list[int]:
        """The servers of a volume, in the order of its bricks."""
        found = []
        for number in range(DISKS):
            brick = f"{self.home}/{name}{number}"
            found.append(next(pid for pid in pids_of("glusterfsd") if brick in arguments(pid)))
        return found


def pids_of(name: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "comm").read_text().strip() == name:
                found.append(int(entry.name))
        except OSError:
            pass
    return found


def arguments(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")


def mounts_of(pid: int) -> str:
    return Path(f"/proc/{pid}/mountinfo").read_text()


def systems(weir: LocalCluster, gluster: Gluster) -> str:
    """The lines of a campaign. XRootD's cluster is not in it: its redirector makes a directory at one server alone, so that nothing in it
    can be made at the others."""
    lines = []

    def system(name: str, place: str, processes: list[str], client: list[str] | None = None) -> None:
        lines.append(f'[[system]]\nname = "{name}"\nplace = "{place}"\ndisk = "disk"\nprocesses = {json.dumps(processes)}')
        if client:
            lines.append(f"client_processes = {json.dumps(client)}")
        lines.append("")

    system("weir, replica(1)", f"{weir.url}/one", ["weir"])
    system("weir, replica(2)", f"{weir.url}/two", ["weir"])
    system("glusterfs, distribute", str(gluster.at("distribute")), ["glusterd", "glusterfsd"], ["glusterfs"])
    system("glusterfs, replica 2", str(gluster.at("replica")), ["glusterd", "glusterfsd"], ["glusterfs"])
    return "\n".join(lines)


def single(server: Server) -> Processes:
    return Processes(server.pid)
