"""A cluster from packages, by the commands of the pages in docs/how-to, on machines with a systemd and a network of their own: the first
file, and then what an operator does in a cluster's life, each by the counted commands of its section."""

import fcntl
import json
import os
import re
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from booted import Booted, NotHere
from debian_package import make_package
from harness import ROOT, until
from loopfs import why_not
from machines import DOMAIN, Machines, commands, make

COMMANDS_MAX = 6
PAGES = ROOT / "docs/how-to"
COUNTS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight"]
# The machines that the six commands make nodes of. Another one is there, without the package.
FIRST = ["mgr1", "ds1", "ds2", "ds3"]
NEW = "ds4"
PLACE = "/var/lib/weir"
READER = "ds2"
WAIT_SECONDS = 60
# The ioctl of ext4 and XFS after which every write fails with EIO, as on a disk that has died; 2: write nothing more.
SHUT_DOWN, AT_ONCE = 0x8004587D, 2
DISK_BYTES_MAX = 1 << 40


def counted(page: str, section: str, nth: int = 0) -> list[tuple[str, str]]:
    """The nth list of numbered commands in a section, as (machine, command). The sentence before it says how many they are."""
    text = (PAGES / page).read_text()
    start = re.search(rf"^(##+) {re.escape(section)}\n", text, re.M)
    assert start, (page, section)
    text = text[start.end() :]
    end = re.search(rf"^#{{2,{len(start[1])}}} ", text, re.M)
    before, listed = "", []
    for piece in re.split(r"^```(?:sh)?\n", text[: end.start() if end else None], flags=re.M):
        lines = [re.fullmatch(r"(.*?)\s+# (\d+)\. (\w+)(?:: .*)?", line) for line in piece.splitlines()]
        if lines and all(lines):
            assert [int(line[2]) for line in lines] == list(range(1, len(lines) + 1)), piece
            said = before.rstrip().rpartition("\n")[2]
            assert re.search(rf"\b{COUNTS[len(lines)]} commands?\b", said, re.I), (section, said)
            listed.append([(line[3], line[1]) for line in lines])
        before = piece
    return listed[nth]


class Operator:
    """Runs a list of the pages, each command on its machine. `before[N]` is done before command N; `words` are what stands for others."""

    def __init__(self, machines: Machines):
        self.machines = machines
        self.words: dict[str, str] = {}
        self.said: list[str] = []

    def follow(self, listed: list[tuple[str, str]], before: dict[int, Callable[[], object]] | None = None) -> list[str]:
        self.said = said = []
        for number, (machine, command) in enumerate(listed, 1):
            if before and number in before:
                before[number]()
            for word, meant in self.words.items():
                command = re.sub(rf"\b{word}\b", meant, command)
            # What the page lets paste is the line before.
            paste = f" <<<'{said[-1].strip()}'" if "/dev/stdin" in command else ""
            done = self.machines[machine]("bash", "-c", f"cd && {command}{paste}", timeout=120)
            log = self.machines[machine]("journalctl", "-u", "weir", "--no-pager").stdout if done.returncode else ""
            assert done.returncode == 0, (machine, command, done.stdout, done.stderr, log)
            said.append(done.stdout)
        return said


class Files:
    """Files with replicas. They are read whole after each step, and some more are written."""

    def __init__(self, machines: Machines):
        self.machines = machines
        self.contents: dict[str, bytes] = {}
        self.url = f"root://mgr1.{DOMAIN}//kept"
        self.write()

    def write(self) -> None:
        # On both sides of the limit of small files; enough that each store gets some.
        more = {f"f{len(self.contents) + number}": os.urandom(500 if number % 2 else 150_000 + number) for number in range(60)}
        system = self.machines[READER]
        folder = system.path("/root/more")
        folder.mkdir()
        for name, content in more.items():
            (folder / name).write_bytes(content)
        system.ok("weir", "cp", "-r", "/root/more", self.url, timeout=120)
        shutil.rmtree(folder)
        self.contents |= more

    def read(self) -> None:
        system = self.machines[READER]
        system.ok("weir", "cp", "-r", self.url, "/root/all", timeout=120)
        back = system.path("/root/all")
        found = {path.name: path.read_bytes() for path in back.rglob("f*") if path.is_file()}
        assert set(found) == set(self.contents)
        assert [name for name in found if found[name] != self.contents[name]] == []
        shutil.rmtree(back)

    def whole(self) -> None:
        """Each has all its replicas, can be read, and others can be written."""
        manager = self.machines["mgr1"]
        until(lambda: json.loads(manager.ok("weir", "missing", "--json")) == [], WAIT_SECONDS)
        self.read()
        self.write()
        # How full the disks of this machine are is another matter.
        figures = json.loads(manager.ok("weir", "status", "--json"))["health"]["figures"]
        wrong = ("nodes_away", "stores_offline", "under_replicated_files", "unreadable_files", "damaged_objects", "interrupted_files")
        assert {name: figures[name] for name in wrong} == dict.fromkeys(wrong, 0)


class Disk:
    """A disk of its own, as large as the file system of these tests has space, so that it gets its share of files."""

    def __init__(self, machines: Machines, name: str):
        image = machines.place / name
        state = os.statvfs(machines.place)
        with open(image, "wb") as file:
            file.truncate(min(state.f_bavail * state.f_frsize, DISK_BYTES_MAX))
        lazy = "lazy_itable_init=1,lazy_journal_init=1"
        subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", "-J", "size=16", "-E", lazy, image], check=True, capture_output=True)
        made = subprocess.run(["losetup", "-f", "--show", image], check=True, capture_output=True, text=True)
        self.device = made.stdout.strip()
        # While it is mounted, this waits for the end of that.
        machines.stack.callback(subprocess.run, ["losetup", "-d", self.device], check=True)

    def plug(self, system: Booted) -> None:
        number = self.device.removeprefix("/dev/loop")
        system.ok("mknod", self.device, "b", "7", number)

    def mount(self, system: Booted, folder: str) -> None:
        """Now and at each boot. In a container, systemd reads no /etc/fstab, so this is the unit that it would make of a line there."""
        self.plug(system)
        unit = folder.strip("/").replace("/", "-") + ".mount"
        made = f"[Mount]\nWhat={self.device}\nWhere={folder}\nType=ext4\n[Install]\nWantedBy=multi-user.target\n"
        system.path(f"/etc/systemd/system/{unit}").write_text(made)
        system.ok("systemctl", "daemon-reload")
        system.ok("systemctl", "enable", unit)
        system.ok("systemctl", "start", unit)
        assert system.ok("findmnt", "-n", "-o", "SOURCE", folder) == self.device

    def die(self, mounted: Path) -> None:
        """From now on, reads that need the disk and all writes fail with EIO."""
        folder = os.open(mounted, os.O_RDONLY)
        try:
            fcntl.ioctl(folder, SHUT_DOWN, struct.pack("I", AT_ONCE))
        finally:
            os.close(folder)

    def pull(self, system: Booted, folder: str) -> None:
        """The machine has it no more, and would wait in vain for its file system."""
        system.ok("umount", folder)
        system.ok("rm", self.device)


def exchange(machines: Machines, name: str) -> None:
    """Another machine with the same name and address, on which nothing was ever installed."""
    card = json.loads(machines[name].ok("ip", "-json", "link", "show", "eth0"))[0]["address"]
    machines[name].__exit__()
    held = machines.place / f"{name}-new-held"
    held.mkdir()
    machines.systems[name] = machines.stack.enter_context(Booted(machines.place / f"{name}-new", held, PLACE))
    machines.plug(machines.names.index(name) + 1, name)
    # The others would look for the old network card for up to a minute, and nothing here announces another one as a real boot does.
    machines[name].ok("ip", "link", "set", "eth0", "address", card)


def nodes(machines: Machines) -> dict[str, dict]:
    return {node["name"]: node for node in json.loads(machines["mgr1"].ok("weir", "status", "--json"))["nodes"]}


def stores(machines: Machines) -> list[dict]:
    return json.loads(machines["mgr1"].ok("weir", "stores", "--json"))


def all_online(machines: Machines, number: int) -> None:
    def states() -> list[str]:
        asked = machines["mgr1"]("weir", "stores", "--json")
        return [store["state"] for store in json.loads(asked.stdout)] if asked.returncode == 0 else [asked.stderr]

    until(lambda: states() == ["online"] * number, WAIT_SECONDS, lambda: str(states()))


def test_six_commands_are_on_the_page():
    listed = commands()
    assert len(listed) <= COMMANDS_MAX and all("\n" not in command and "&&" not in command and ";" not in command for _, command in listed)
    assert [machine for machine, _ in listed] == ["mgr1", "mgr1", "ds1", "ds2", "ds3", "any machine"]


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    network = Machines(tmp_path_factory.mktemp("machines"), [*FIRST, NEW], make_package())
    try:
        network.__enter__()
    except NotHere as reason:
        pytest.skip(f"no machines can be started here: {reason}")
    try:
        for name in FIRST:
            network[name].ok("dpkg", "--no-triggers", "-i", "/tmp/weir.deb", timeout=120)
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
    for name in FIRST:
        system = machines[name]
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


# What follows is one story: each test goes on with the cluster and the files of the one before.


@pytest.fixture(scope="module")
def files(machines) -> Files:
    if reason := why_not():
        pytest.skip(reason)
    return Files(machines)


@pytest.fixture(scope="module")
def backups(machines, files) -> Disk:
    """A disk for backups, which survives the manager's machine."""
    return Disk(machines, "backups")


def test_a_broken_disk_is_replaced_in_eight_commands(machines, files):
    server, operator = machines["ds1"], Operator(machines)
    whole = len(stores(machines)) + 1
    old, new = Disk(machines, "old"), Disk(machines, "new")
    old.mount(server, "/srv/disk1")
    operator.words["disk2"] = "disk1"  # the name of this disk
    operator.follow(counted("cluster.md", "Add a store"))
    all_online(machines, whole)
    files.whole()

    def pulled() -> None:
        old.pull(server, "/srv/disk1")
        settings = server.path("/etc/weir/weir.toml")
        rest = settings.read_text().replace('[[store]]\ndir = "/srv/disk1/weir"\n', "")
        assert "/srv/disk1" not in rest
        settings.write_text(rest)

    def one_is_offline() -> None:
        # A disk server is ready a moment before the manager knows its stores.
        until(lambda: [store["state"] for store in stores(machines)].count("offline") == 1, WAIT_SECONDS)

    def found() -> None:
        [operator.words["STORE"]] = re.findall(r" offline .* (\d+)$", operator.said[-1], re.M)

    old.die(server.path("/srv/disk1"))
    files.write()
    until(lambda: server("systemctl", "is-failed", "weir").stdout == "failed\n", WAIT_SECONDS)
    files.read()
    between = {2: pulled, 3: one_is_offline, 4: found, 6: lambda: new.mount(server, "/srv/disk1")}
    said = operator.follow(counted("cluster.md", "Replace a broken disk"), between)
    kept = re.search(r"^(\d+) files, .*: stay readable", said[3], re.M)
    assert re.search(r"^0 files, 0 B: will be lost", said[3], re.M) and kept and int(kept[1]) > 0, said[3]
    all_online(machines, whole)
    files.whole()


def test_a_server_is_added_in_four_commands(machines, files):
    before = len(stores(machines))
    new = machines[NEW]
    command = "apt-get install ./build/weir_*.deb"
    assert f"\n{command}\n" in (PAGES / "install.md").read_text()
    new.ok("bash", "-c", f"cd && mkdir build && cp /tmp/weir.deb build/{machines.package.name} && {command}", timeout=120)
    for number in (1, 2):
        Disk(machines, f"{NEW}-{number}").mount(new, f"/srv/disk{number}")
    Operator(machines).follow(counted("cluster.md", "Add a disk server"))
    assert not new.path("/root/token").exists()
    all_online(machines, before + 2)
    files.whole()
    objects = new.ok("find", "/srv/disk1/weir/store/objects", "/srv/disk2/weir/store/objects", "-type", "f")
    assert objects, "new files go to the new server, too"


def test_a_server_is_taken_out_of_service_in_four_commands(machines, files):
    left = [store for store in stores(machines) if store["name"] != "ds3"]

    def lease_has_ended() -> None:
        manager = machines["mgr1"]
        refused = manager("weir", "node", "remove", "ds3")
        assert refused.returncode == 6 and "try again" in refused.stderr, refused
        until(lambda: nodes(machines)["ds3"]["presence"] == "away", WAIT_SECONDS, lambda: str(nodes(machines)))

    said = Operator(machines).follow(counted("cluster.md", "Take a store or a server out of service"), {4: lease_has_ended})
    assert "is drained" in said[0], said
    assert "ds3" not in nodes(machines) and len(stores(machines)) == len(left)
    assert machines["ds3"]("systemctl", "is-enabled", "weir").stdout == "disabled\n"
    files.whole()


def test_the_manager_is_restored_in_five_commands(machines, files, backups):
    manager, online = machines["mgr1"], len(stores(machines))
    backups.plug(manager)
    manager.ok("mkdir", "/mnt/other")
    manager.ok("mount", backups.device, "/mnt/other")
    operator = Operator(machines)
    operator.follow(counted("operate.md", "Back up"))
    files.write()
    lose = {2: lambda: manager.ok("rm", "-r", f"{PLACE}/data/namespace", f"{PLACE}/data/cluster")}
    said = operator.follow(counted("cluster.md", "Restore the manager"), lose)
    assert "nothing is lost" in said[1], said
    all_online(machines, online)
    files.whole()


def test_a_new_machine_becomes_the_manager_in_six_commands(machines, files, backups):
    online = len(stores(machines))
    Operator(machines).follow(counted("operate.md", "Back up")[-1:])
    exchange(machines, "mgr1")
    manager = machines["mgr1"]
    manager.ok("dpkg", "--no-triggers", "-i", "/tmp/weir.deb", timeout=120)
    backups.plug(manager)
    manager.ok("mkdir", "/mnt/other")
    manager.ok("mount", backups.device, "/mnt/other")
    said = Operator(machines).follow(counted("cluster.md", "Restore the manager", 1), {5: lambda: all_online(machines, online)})
    assert "later changes are lost" in said[0] and "\n0 files lost" in said[4], said
    files.whole()
    assert "ds3" not in nodes(machines)
