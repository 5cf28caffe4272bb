"""How nodes of a cluster start: tokens, stores, and errors, with the real binary."""

import json
import os
import re
import shutil
import time
from pathlib import Path

import cluster
import pytest
from harness import READY_SECONDS, Weir, remove, weir

LISTEN = ("--listen", "127.0.0.1:0", "--nodes", "127.0.0.1:0")
USAGE, DIRECTORY, IN_USE, DENIED, UNREACHABLE = 2, 3, 4, 13, 15


class Node(cluster.Node):
    """A node that must join or fail. Its stdout and stderr are in `ready` and `log`."""

    def __init__(self, home: Path, role: str, data: Path | None = None):
        super().__init__(home, role, "127.0.0.1")
        self.data = data or self.data

    def refused(self, code: int, *flags: str | Path) -> str:
        """Starts it, expects exit code `code`, and returns its last output."""
        self.launch(*flags)
        assert self.process.wait(READY_SECONDS) == code, self.log_text()
        assert self.ready.read_text() == ""
        return self.log_text().rpartition("weir: ")[2]

    def wait_for(self, words: str, times: int = 1) -> None:
        end = time.monotonic() + READY_SECONDS
        while self.log_text().count(words) < times:
            assert time.monotonic() < end, f"no {words!r} in\n{self.log_text()}"
            time.sleep(0.01)

    def token(self, *flags: str) -> str:
        made = weir("token", "create", "--data", str(self.data), *flags)
        assert made.returncode == 0, made.stderr
        assert made.stdout.startswith("weir-join-") and made.stdout.count("\n") == 1
        return made.stdout.strip()

    def ask(self, *arguments: str) -> str:
        done = weir(*arguments, "--data", str(self.data))
        assert done.returncode == 0, done.stderr
        return done.stdout

    def store_id(self) -> str:
        return re.findall(r"store = (\d+)", (self.data / "store/FORMAT").read_text())[0]


@pytest.fixture
def made(base, request):
    """Makes nodes, and ends those that are left."""
    nodes: list[Node] = []
    home = base / re.sub(r"\W+", "_", request.node.name)

    def make(role: str, data: Path | None = None) -> Node:
        nodes.append(Node(home / f"{role}{len(nodes)}", role, data))
        return nodes[-1]

    yield make
    for node in nodes:
        if node.process and node.process.poll() is None:
            node.kill()
    if not request.config.getoption("--keep"):
        remove(home)


@pytest.fixture
def manager(made) -> Node:
    return made("manager").start()


def files(root: Path) -> dict[str, bytes]:
    """All files below, except locks, which name the last process that tried."""
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file() and path.name != "lock"}


def test_a_disk_server_joins_and_needs_no_token_afterwards(made, manager):
    disk = made("disk")
    token = disk.home / "token"
    token.write_text(manager.token() + "\n")
    disk.start("--join-file", token, "--location", "cern/r1/d1")
    manager.wait_for("a node has joined")
    manager.wait_for("a disk server is here")
    assert "as node 2" in disk.log_text()
    assert disk.stop() == 0
    disk.start()
    # A crash of either must not matter.
    disk.kill()
    disk.start()
    manager.kill()
    manager.start()
    manager.wait_for("a disk server is here", 4)
    # The used token is no obstacle, and is not used again.
    assert disk.stop() == 0
    disk.start("--join-file", token)
    assert "not needed" in disk.log_text()
    assert manager.stop() == 0 and disk.stop() == 0
    for node in (manager, disk):
        for log in (node.log_text(), node.ready.read_text()):
            assert token.read_text().strip() not in log
    assert oct((disk.data / "node/identity").stat().st_mode)[-3:] == "600"
    assert oct((manager.data / "cluster/authority").stat().st_mode)[-3:] == "600"


def test_a_disk_server_waits_for_its_manager(made, manager):
    disk = made("disk")
    disk.start("--join", manager.token())
    assert disk.stop() == 0
    assert manager.stop() == 0
    disk.launch()
    disk.wait_for("cannot be reached, tried again and again")
    time.sleep(0.5)
    assert disk.ready.read_text() == ""
    manager.start()
    end = time.monotonic() + READY_SECONDS
    while not disk.ready.read_text():
        assert time.monotonic() < end, disk.log_text()
        time.sleep(0.01)


def test_a_token_is_good_for_one_node(made, manager):
    token = manager.token()
    made("disk").start("--join", token)
    said = made("disk").refused(DENIED, "--join", token)
    assert "was used already, by node 2" in said and "weir token create" in said
    manager.wait_for("a node was not let in")


def test_a_token_that_came_too_late(made, manager):
    token = manager.token("--valid", "1s")
    time.sleep(1.2)
    disk = made("disk")
    said = disk.refused(DENIED, "--join", token)
    assert "expired" in said and "by the manager's clock" in said
    # Nothing blocks a valid one.
    disk.start("--join", manager.token())


def test_tokens_are_listed_and_revoked(made, manager):
    def tokens() -> list[dict]:
        return json.loads(manager.ask("token", "list", "--json"))

    assert tokens() == [] and "no tokens" in manager.ask("token", "list")
    used, lost, late = manager.token(), manager.token(), manager.token("--valid", "1s")
    disk = made("disk").start("--join", used)
    time.sleep(1.2)
    first, second, third = tokens()
    assert (first["used_by"], second["used_by"], third["used_by"]) == ([2], [], [])
    assert [token["has_expired"] for token in tokens()] == [False, False, True]
    assert [token["roles"] for token in tokens()] == ["disk"] * 3 and all(token["id"] not in used + lost + late for token in tokens())
    shown = manager.ask("token", "list")
    assert "used by node 2" in shown and "can be used" in shown and "has expired" in shown
    # Nobody joins with a file that other users could read.
    left = json.loads(manager.ask("token", "revoke", second["id"][:12], "--json"))
    assert left == [first, third] == tokens()
    refused = made("disk").refused(DENIED, "--join", lost)
    assert "not known" in refused or "no token" in refused, refused
    for what, words in [(first["id"], "used by node 2"), ("ffffnone", "there is no token"), ("", "there is no token")]:
        done = weir("token", "revoke", what, "--data", str(manager.data))
        assert done.returncode != 0 and words in done.stderr, done
    assert disk.alive()


def test_no_token_makes_a_second_manager(manager):
    done = weir("token", "create", "--role", "manager", "--data", str(manager.data))
    assert done.returncode != 0 and "so it has one manager" in done.stderr and not done.stdout, done
    assert json.loads(manager.ask("token", "list", "--json")) == []


def test_a_token_of_another_cluster(made, manager):
    other = made("manager").start()
    foreign = other.token()
    # Another cluster's manager now has the address in the token.
    nodes = other.nodes_port
    assert other.stop() == 0 and manager.stop() == 0
    manager.nodes_port = nodes
    manager.start()
    disk = made("disk")
    said = disk.refused(UNREACHABLE, "--join", foreign)
    assert "authority" in said, said
    # For a node that already belongs to a cluster.
    disk.start("--join", manager.token())
    assert disk.stop() == 0
    identity = (disk.data / "node/identity").read_bytes()
    disk.start("--join", foreign)
    said = disk.log_text(since_start=True)
    assert "belongs to cluster" in said and "the token is another cluster's" in said
    assert (disk.data / "node/identity").read_bytes() == identity


def test_what_is_no_token(made, manager):
    token = manager.token()
    wrong = made("disk")
    altered = token[:40] + ("y" if token[40] == "x" else "x") + token[41:]
    for text in ("", "weir-join-", token[:-1], altered, "hello"):
        said = wrong.refused(USAGE, "--join", text)
        assert "this is no token to join with" in said, said
    assert not wrong.data.exists()
    assert "has not joined a cluster yet" in wrong.refused(USAGE)
    assert not wrong.data.exists()
    assert "cannot read the token" in wrong.refused(USAGE, "--join-file", wrong.home / "none")


def test_nobody_is_there(made, manager):
    token = manager.token()
    assert manager.stop() == 0
    said = made("disk").refused(UNREACHABLE, "--join", token)
    assert "no manager could be asked" in said and "refused" in said, said


def test_a_node_of_another_cluster_is_not_let_in(made, manager):
    other = made("manager").start()
    disk = made("disk").start("--join", other.token())
    assert disk.stop() == 0
    config = disk.home / "weir.toml"
    config.write_text(f'managers = ["127.0.0.1:{manager.nodes_port}"]\n')
    disk.launch("--config", config)
    disk.wait_for("cannot be reached, tried again and again")
    line = [line for line in disk.log_text().splitlines() if "tried again and again" in line][-1]
    assert "cluster" in line, line
    manager.wait_for("a connection to this node did not come about")
    assert disk.ready.read_text() == ""
    assert disk.stop() == 0


def test_a_store_of_another_cluster(made, manager):
    other = made("manager").start()
    foreign = made("disk").start("--join", other.token())
    assert foreign.stop() == 0
    disk = made("disk")
    config = disk.home / "weir.toml"
    config.write_text(f'[[store]]\ndir = "{foreign.data}/store"\n')
    before = files(foreign.data / "store")
    said = disk.refused(DIRECTORY, "--config", config, "--join", manager.token())
    assert said.count("cluster") >= 2 and "nothing was touched" in said, said
    assert files(foreign.data / "store") == before


def test_a_store_is_at_one_node(made, manager):
    one = made("disk").start("--join", manager.token())
    assert one.stop() == 0
    two = made("disk")
    copy = two.home / "copy"
    shutil.copytree(one.data / "store", copy)
    one.start()
    config = two.home / "weir.toml"
    config.write_text(f'[[store]]\ndir = "{copy}"\n')
    said = two.refused(DIRECTORY, "--config", config, "--join", manager.token())
    assert f"store {one.store_id()} is at node 2" in said, said
    # Its current holder goes on.
    manager.wait_for("a disk server is here", 2)
    assert one.process.poll() is None
    # Two replicas at one node.
    config.write_text(f'[[store]]\ndir = "{copy}"\n[[store]]\ndir = "{two.home}/more"\n')
    shutil.copytree(one.data / "store", two.home / "more")
    said = two.refused(DIRECTORY, "--config", config)
    assert "one is a copy of the other" in said, said


def test_a_copy_of_a_whole_node(made, manager):
    one = made("disk").start("--join", manager.token())
    assert one.stop() == 0
    two = made("disk")
    shutil.copytree(one.data, two.data)
    one.start()
    two.launch()
    end = time.monotonic() + READY_SECONDS
    while one.process.poll() is None and two.process.poll() is None:
        assert time.monotonic() < end, one.log_text() + two.log_text()
        time.sleep(0.05)
    ended = one if one.process.poll() is not None else two
    assert ended.process.poll() == DIRECTORY
    assert "another process runs as node 2" in ended.log_text()


def test_several_stores_with_their_own_places(made, manager):
    disk = made("disk")
    config = disk.home / "weir.toml"
    stores = "".join(f'[[store]]\ndir = "{disk.home}/s{n}"\nlocation = "cern/r{n}/d1"\nclass = "t{n}"\n' for n in (1, 2, 3))
    config.write_text(f'role = "disk"\nlocation = "cern/r0/d1"\n{stores}')
    disk.start("--config", config, "--join", manager.token())
    manager.wait_for("stores=3")
    assert not (disk.data / "store").exists()
    # One of them is in use: a second node does not take it.
    other = made("disk")
    second = other.home / "weir.toml"
    second.write_text(f'[[store]]\ndir = "{disk.home}/s2"\n')
    said = other.refused(IN_USE, "--config", second, "--join", manager.token())
    assert f"process {disk.process.pid}" in said, said


def test_directories_are_what_they_are(made, manager, base):
    disk = made("disk").start("--join", manager.token())
    assert disk.stop() == 0
    assert manager.stop() == 0
    single = Weir(manager.home / "single")
    with single:
        pass
    for role, data, words in [
        ("disk", manager.data, "a cluster's manager"),
        ("manager", disk.data, "a disk server's data directory"),
        ("manager", disk.data / "store", "a disk server's store"),
        ("disk", single.data, "a single node's data directory"),
        ("manager", single.data, "a single node's data directory"),
    ]:
        before = files(data)
        said = made(role, data).refused(DIRECTORY)
        assert words in said and "nothing was touched" in said, said
        assert files(data) == before
    assert "cannot become part of a cluster yet" in made("manager", single.data).refused(DIRECTORY)
    for data in (manager.data, disk.data, disk.data / "store"):
        for command in (("serve", "--listen", "127.0.0.1:0"), ("fsck",)):
            ended = weir(*command, "--data", str(data))
            assert ended.returncode == DIRECTORY and "nothing was touched" in ended.stderr, ended.stderr


def test_a_lost_authority_or_identity_stops_the_start(made, manager):
    disk = made("disk").start("--join", manager.token())
    assert disk.stop() == 0 and manager.stop() == 0
    authority = manager.data / "cluster/authority"
    authority.rename(manager.home / "authority")
    assert "put back the file of a backup" in manager.refused(DIRECTORY)
    (manager.home / "authority").rename(authority)
    # The manager's authority issues its own identity again.
    (manager.data / "cluster/identity").unlink()
    manager.start()
    identity = disk.data / "node/identity"
    identity.rename(disk.home / "identity")
    said = disk.refused(DIRECTORY)
    assert "had joined cluster" in said and "Put the file back" in said, said
    (disk.home / "identity").rename(identity)
    os.chmod(identity, 0o644)
    assert "may be read by others" in disk.refused(DIRECTORY)
    os.chmod(identity, 0o600)
    disk.start()
    assert disk.stop() == 0
    (disk.data / "node/managers").write_text("weir managers 1\n127.0.0.1:1\ncrc32c 00000000\n")
    assert "say where the managers are" in disk.refused(DIRECTORY)
    config = disk.home / "weir.toml"
    config.write_text(f'managers = ["127.0.0.1:{manager.nodes_port}"]\n')
    disk.start("--config", config)


def test_words_for_the_command_line(made, manager):
    home = manager.home
    for flags, words in [
        (("--role", "king"), "invalid value 'king'"),
        (("--role", "disk", "--location", "cern"), "is not a location"),
        (("--role", "disk", "--class", "a b"), "class"),
        (("--role", "disk", "--advertise", "nowhere"), "HOST:PORT"),
        (("--role", "disk", "--nodes", "0.0.0.0:1095"), "cannot connect to it"),
        (("--role", "disk", "--nodes", "nonsense"), "`nodes` is `nonsense`"),
        (("--role", "disk", "--listen", "0.0.0.0:0", "--insecure"), "say --advertise"),
        (("--role", "manager", "--join", "x"), "a manager does not join"),
        (("--join", "x"), "say --role disk"),
    ]:
        ended = weir("serve", "--data", str(home / "none"), *flags)
        assert ended.returncode == USAGE and words in ended.stderr, (flags, ended.returncode, ended.stderr)
    assert not (home / "none").exists()
    for flags, words in [(("--valid", "1"), "--valid"), (("--valid", "31d"), "1 s to 30 d"), (("--role", "x"), "invalid value")]:
        ended = weir("token", "create", "--data", str(manager.data), *flags)
        assert ended.returncode == USAGE and words in ended.stderr, ended.stderr
    assert manager.stop() == 0
    ended = weir("token", "create", "--data", str(manager.data))
    assert ended.returncode == 6 and "no node is running" in ended.stderr, ended.stderr


def test_a_single_node_makes_no_tokens(own_node):
    node = own_node()
    ended = weir("token", "create", "--data", str(node.data))
    assert ended.returncode == 6 and "this is a single node" in ended.stderr, ended.stderr


def test_the_check_of_settings_touches_nothing(made):
    for role in ("manager", "disk"):
        node = made(role)
        ended = weir("serve", "--role", role, "--data", str(node.data), *LISTEN, "--check")
        assert ended.returncode == 0, ended.stderr
        assert not node.data.exists()
