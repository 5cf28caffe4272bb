"""From nothing to a node: `weir init`, tokens for several uses, `weir store add` and `weir reload`, with plain processes."""

import json
import os
import re
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from clients import xrdcp
from harness import READY_SECONDS, WEIR_BIN, remove, until, weir
from ports import free_port

DONE, USAGE, DIRECTORY, FAILED, LISTEN, EXISTS, DENIED, UNREACHABLE = 0, 2, 3, 6, 7, 12, 13, 15


class Node:
    """A node whose directory and configuration `weir init` makes, on loopback."""

    def __init__(self, home: Path, role: str):
        home.mkdir(parents=True)
        self.home, self.role = home, role
        self.data, self.config, self.log = home / "data", home / "weir.toml", home / "log"
        self.port, self.nodes_port = free_port(), free_port()
        self.process: subprocess.Popen | None = None
        self.ready_line = ""

    def init(self, *flags: str | Path) -> subprocess.CompletedProcess:
        place = ["--data", self.data, "--config", self.config, "--listen", f"127.0.0.1:{self.port}"]
        if self.role != "single":
            place += ["--nodes", f"127.0.0.1:{self.nodes_port}"]
        return weir("init", "--role", self.role, *map(str, [*place, *flags]))

    def made(self, *flags: str | Path) -> "Node":
        done = self.init(*flags)
        assert done.returncode == DONE, done.stderr
        return self

    def start(self) -> "Node":
        with open(self.log, "ab") as log:
            command = [WEIR_BIN, "serve", "--config", self.config]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True)
        self.ready_line = self.process.stdout.readline()
        assert self.ready_line.startswith("weir: ready "), self.log_text()
        return self

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)

    def log_text(self) -> str:
        return self.log.read_text()

    def token(self, *flags: str) -> str:
        made = weir("token", "create", "--data", str(self.data), *flags)
        assert made.returncode == DONE, made.stderr
        return made.stdout.strip()

    def ask(self, *arguments: str) -> str:
        done = weir(*arguments, "--data", str(self.data))
        assert done.returncode == DONE, done.stderr
        return done.stdout

    def stores(self) -> list[str]:
        """The states of the cluster's stores."""
        return [store["state"] for store in json.loads(self.ask("stores", "--json"))]


@pytest.fixture
def made(base, request):
    nodes: list[Node] = []
    home = base / re.sub(r"\W+", "_", request.node.name)

    def make(role: str) -> Node:
        nodes.append(Node(home / f"{role}{len(nodes)}", role))
        return nodes[-1]

    yield make
    for node in nodes:
        if node.process and node.process.poll() is None:
            node.process.kill()
            node.process.wait()
    if not request.config.getoption("--keep"):
        remove(home)


@pytest.fixture
def manager(made) -> Node:
    return made("manager").made().start()


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_manager_and_three_disk_servers_with_one_token(made, manager, tmp_path):
    token = manager.token("--uses", "3")
    disks = [made("disk") for _ in range(3)]
    with ThreadPoolExecutor() as pool:  # all at a time
        done = list(pool.map(lambda disk: disk.init("--join", token), disks))
    assert [one.returncode for one in done] == [DONE] * 3, [one.stderr for one in done]
    for disk in disks:
        disk.start()
    (tmp_path / "file").write_bytes(os.urandom(300_000))
    url = manager.ready_line.removeprefix("weir: ready ").strip()
    xrdcp("-p", tmp_path / "file", f"{url}/run1/file").ok()
    xrdcp(f"{url}/run1/file", tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == (tmp_path / "file").read_bytes()
    # The token is used up, and says by whom.
    late = made("disk")
    refused = late.init("--join", token)
    assert refused.returncode == DENIED and "was used already, by nodes 2, 3 and 4" in refused.stderr, refused.stderr
    assert tree(late.home) == [], "nothing is left of the attempt"
    listed = json.loads(manager.ask("token", "list", "--json"))
    assert [(one["uses"], one["used_by"]) for one in listed] == [(3, [2, 3, 4])]
    # A later start needs neither the token nor the network's answer.
    assert disks[0].stop() == DONE
    disks[0].start()


def test_the_rest_of_a_token_can_be_revoked(made, manager):
    token = manager.token("--uses", "3")
    first = made("disk").made("--join", token).start()
    (listed,) = json.loads(manager.ask("token", "list", "--json"))
    assert "used by node 2; can be used by 2 more nodes" in manager.ask("token", "list")
    assert json.loads(manager.ask("token", "revoke", listed["id"], "--json")) == []
    refused = made("disk").init("--join", token)
    assert refused.returncode == DENIED and "not known to this cluster" in refused.stderr, refused.stderr
    # Whoever is in stays in, also after a restart of the manager.
    assert manager.stop() == DONE
    manager.start()
    until(lambda: manager.stores() == ["online"], READY_SECONDS, first.log_text)
    for wrong in ("0", "257", "x"):
        done = weir("token", "create", "--data", str(manager.data), "--uses", wrong)
        assert done.returncode == USAGE and "--uses" in done.stderr, done.stderr


def test_a_token_for_several_survives_a_crash_of_the_manager(made, manager):
    token = manager.token("--uses", "2")
    made("disk").made("--join", token)
    manager.process.kill()
    manager.process.wait()
    manager.start()
    made("disk").made("--join", token)
    refused = made("disk").init("--join", token)
    assert refused.returncode == DENIED and "by nodes 2 and 3" in refused.stderr, refused.stderr


def test_a_manager_serves_its_network_unless_told_otherwise(made):
    """The usual command: all addresses, and the words that say so."""
    node = made("manager")
    done = weir("init", "--role", "manager", "--data", str(node.data), "--config", str(node.config), "--host", "192.0.2.7")
    # The host's address is not this machine's, so it cannot be listened on.
    assert done.returncode == LISTEN and "192.0.2.7:1095" in done.stderr and tree(node.home) == [], done
    done = weir("init", "--role", "manager", "--data", str(node.data), "--config", str(node.config))
    if done.returncode == LISTEN:
        pytest.skip(f"the usual ports are in use here: {done.stderr}")
    assert done.returncode == DONE, done.stderr
    assert "anybody who reaches this port can read, write and delete everything" in done.stdout
    settings = node.config.read_text()
    assert 'listen = "0.0.0.0:1094"\ninsecure = true\n' in settings or 'listen = "[::]:1094"\ninsecure = true\n' in settings
    assert re.search(r'^advertise = "[^"]+:1094"$', settings, re.M) and 'nodes = "127.' not in settings, settings
    assert "without authentication" not in made("manager").made().init("--force").stdout


def test_a_configuration_file_is_not_replaced(made):
    node = made("single").made()
    before, data = node.config.read_text(), tree(node.data)
    node.config.write_text(before + "# mine\n")
    again = node.init()
    assert again.returncode == EXISTS and "--force" in again.stderr and str(node.config) in again.stderr, again.stderr
    assert node.config.read_text() == before + "# mine\n" and tree(node.data) == data
    assert node.init("--force").returncode == DONE
    assert node.config.read_text() == before and not list(node.home.glob("*.new"))
    node.start()
    assert node.stop() == DONE
    # A link to nowhere is a file, too.
    other = made("single")
    other.config.symlink_to(other.home / "elsewhere")
    assert other.init().returncode == EXISTS and not (other.home / "elsewhere").exists() and not other.data.exists()


def test_what_fails_makes_nothing(made, manager):
    taken = made("manager")
    taken.port = manager.port
    refused = taken.init()
    assert refused.returncode == LISTEN and "is another server there?" in refused.stderr, refused.stderr
    disk = made("disk")
    for flags, code, words in [
        ((), USAGE, "has not joined a cluster yet"),
        (("--join", "nonsense"), USAGE, "this is no token to join with"),
        (("--join-file", disk.home / "none"), USAGE, "cannot read the token"),
        (("--join", manager.token(), "--store", disk.home / "no/such"), DIRECTORY, "the folder above it does not exist"),
        (("--join", manager.token(), "--store", manager.data), DIRECTORY, "cannot be a store"),
        (("--join", manager.token(), "--location", "cern"), USAGE, "is not a location"),
        (("--join", manager.token(), "--start"), USAGE, "--start needs the package's unit"),
    ]:
        refused = disk.init(*flags)
        assert refused.returncode == code and words in refused.stderr, (flags, refused)
        assert tree(disk.home) == [], flags
    # Nor was a token used.
    assert all(token["used_by"] == [] for token in json.loads(manager.ask("token", "list", "--json")))
    refused = weir("init", "--role", "single", "--data", str(disk.data), "--config", str(disk.config), "--listen", "0.0.0.0:0")
    assert refused.returncode == LISTEN and "--insecure" in refused.stderr and tree(disk.home) == [], refused
    for role, flag in [("manager", ("--join", "x")), ("single", ("--store", "/x")), ("single", ("--host", "x"))]:
        refused = made(role).init(*flag)
        assert refused.returncode == USAGE and flag[0] in refused.stderr, refused.stderr
    token = manager.token()
    assert manager.stop() == DONE
    refused = disk.init("--join", token)
    assert refused.returncode == UNREACHABLE and tree(disk.home) == [], refused


def test_an_interrupted_init_can_be_repeated(made, manager):
    """The directories are made, the file is not: the disk server has joined, and needs no token any more."""
    disk = made("disk").made("--join", manager.token(), "--store", manager.home / "s1", "--store", manager.home / "s2")
    settings = disk.config.read_text()
    disk.config.unlink()
    again = disk.init("--store", manager.home / "s1", "--store", manager.home / "s2")
    assert again.returncode == DONE and again.stdout.count("is there already") == 3, again
    assert disk.config.read_text() == settings
    disk.start()
    until(lambda: manager.stores() == ["online", "online"], READY_SECONDS, disk.log_text)


def test_a_configuration_file_describes_a_node(made, manager):
    """As a tool that installs machines writes it; `join_file` names the token."""
    disk = made("disk")
    token = disk.home / "token"
    token.write_text(manager.token())
    disk.config.write_text(
        f'role = "disk"\ndata = "{disk.data}"\nlisten = "127.0.0.1:{disk.port}"\nnodes = "127.0.0.1:{disk.nodes_port}"\n'
        f'join_file = "{token}"\nexisting = true\nlocation = "cern/r1/d7"\n'
    )
    before = disk.config.read_text()
    done = weir("init", "--config", str(disk.config))
    assert done.returncode == DONE and "made; the data directory of node 2" in done.stdout, done
    assert disk.config.read_text() == before
    # Once it has joined, nobody looks at the file.
    token.unlink()
    assert weir("init", "--config", str(disk.config)).returncode == DONE
    disk.start()
    until(lambda: "cern/r1/d7" in manager.ask("stores"), READY_SECONDS, disk.log_text)


def test_join_file_in_the_configuration_lets_a_first_start_join(made, manager):
    disk = made("disk")
    token = disk.home / "token"
    addresses = f'listen = "127.0.0.1:{disk.port}"\nnodes = "127.0.0.1:{disk.nodes_port}"\n'
    disk.config.write_text(f'role = "disk"\ndata = "{disk.data}"\n{addresses}join_file = "{token}"\n')
    refused = weir("serve", "--config", str(disk.config))
    assert refused.returncode == USAGE and "cannot read the token" in refused.stderr and not disk.data.exists(), refused
    token.write_text(manager.token())
    disk.start()
    assert disk.stop() == DONE
    token.unlink()
    disk.start()
    for role, words in [("", "join_file is for a disk server"), ('role = "manager"\n', "a manager does not join")]:
        wrong = disk.home / "wrong.toml"
        wrong.write_text(f'{role}data = "{disk.home}/none"\nnodes = "127.0.0.1:0"\nlisten = "127.0.0.1:0"\njoin_file = "{token}"\n')
        refused = weir("serve", "--config", str(wrong))
        assert refused.returncode == USAGE and words in refused.stderr, refused.stderr


def test_a_store_is_added_with_one_command(made, manager, tmp_path):
    disk = made("disk").made("--join", manager.token()).start()
    added = weir("store", "add", str(disk.home / "second"), "--data", str(disk.data), "--config", str(disk.config))
    assert added.returncode == DONE and "names it now" in added.stdout and "next: start the disk server again" in added.stdout, added
    assert [path.name for path in disk.home.iterdir() if path.suffix == ".new"] == []
    again = weir("store", "add", str(disk.home / "second"), "--data", str(disk.data), "--config", str(disk.config))
    assert again.returncode == DONE and "is there already" in again.stdout and "names it already" in again.stdout, again
    assert disk.config.read_text().count("[[store]]") == 2
    assert disk.stop() == DONE
    disk.start()
    until(lambda: manager.stores() == ["online", "online"], READY_SECONDS, disk.log_text)
    # A file in the present directory, by its name alone.
    by_name = weir("store", "add", "third", "--data", str(disk.data), "--config", disk.config.name, cwd=disk.home)
    assert by_name.returncode == DONE and "names it now" in by_name.stdout and (disk.home / "third").is_dir(), by_name
    # The first table must not leave out the store that needs none.
    assert disk.stop() == DONE
    disk.config.write_text(disk.config.read_text().partition("\n[[store]]")[0])
    other = weir("store", "add", str(disk.home / "fourth"), "--data", str(disk.data), "--config", str(disk.config))
    assert other.returncode == DONE and f'dir = "{disk.data}/store"' in disk.config.read_text(), other
    disk.start()


def test_a_store_is_not_added_where_it_cannot_be_named(made, manager):
    disk = made("disk").made("--join", manager.token())
    third = disk.home / "third"
    listed = disk.config.read_text().partition("\n[[store]]")[0] + f'store = [{{ dir = "{disk.data}/store" }}]\n'
    disk.config.write_text(listed)
    for config, code, words in [
        (disk.config, USAGE, "add it yourself"),
        (manager.config, USAGE, "is not about the disk server"),
        (disk.home / "none.toml", USAGE, "cannot read"),
    ]:
        refused = weir("store", "add", str(third), "--data", str(disk.data), "--config", str(config))
        assert refused.returncode == code and words in refused.stderr and not third.exists(), refused
    assert disk.config.read_text() == listed
    refused = weir("store", "add", str(third), "--data", str(disk.data), "--restart")
    assert refused.returncode == USAGE and "--restart needs" in refused.stderr and not third.exists(), refused


def test_a_reload_is_checked_first(made):
    node = made("single").made().start()
    settings = node.config.read_text()
    node.config.write_text(settings + 'log = "debug"\n')
    done = weir("reload", "--data", str(node.data))
    assert done.returncode == DONE and f"node {node.process.pid} reads" in done.stdout, done
    until(lambda: "SIGHUP: taken over: `log`" in node.log_text(), 10, node.log_text)
    node.config.write_text(settings + "nonsense = 1\n")
    for target in (("--data", str(node.data)), ("--pid", str(node.process.pid))):
        refused = weir("reload", *target)
        assert refused.returncode == USAGE and "unknown key `nonsense`" in refused.stderr, refused
        assert "the node goes on" in refused.stderr
    time.sleep(0.5)
    assert "nothing was changed" not in node.log_text(), "it was not even asked"
    for target, words in [
        (("--pid", str(os.getpid())), "it does not run `weir serve`"),
        (("--pid", "0"), "no number of a node"),
        (("--pid", "1"), "no number of a node"),
        (("--data", str(node.home)), "no node is running"),
    ]:
        refused = weir("reload", *target)
        assert refused.returncode == FAILED and words in refused.stderr, refused
    assert node.stop() == DONE


def test_a_reload_finds_a_file_that_was_named_relative_to_the_folder_of_the_node(made):
    node = made("single").made()
    with open(node.log, "ab") as log:
        command = [WEIR_BIN, "serve", "--config", "weir.toml"]
        node.process = subprocess.Popen(command, cwd=node.home, stdout=subprocess.PIPE, stderr=log, text=True)
    assert node.process.stdout.readline().startswith("weir: ready ")
    node.config.write_text(node.config.read_text() + "grace_seconds = 7\n")
    assert weir("reload", "--data", str(node.data)).returncode == DONE
    until(lambda: "SIGHUP: taken over: `grace_seconds`" in node.log_text(), 10, node.log_text)
