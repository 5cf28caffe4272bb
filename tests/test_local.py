"""A cluster on one machine: `weir local` and what its user sees, with the real binary."""

import json
import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from harness import WEIR_BIN, remove, weir
from postgres import Postgres, clean_environment, program

DONE, USAGE, DIRECTORY, FAILED, LISTEN, NOT_FOUND, UNREACHABLE = 0, 2, 3, 6, 7, 11, 15


class Local:
    """A cluster in a folder, by `weir local` alone."""

    def __init__(self, home: Path):
        self.dir = home / "cluster"

    def command(self, *arguments: str | Path) -> subprocess.CompletedProcess:
        return weir("local", *map(str, arguments), "--dir", str(self.dir), timeout=300)

    def up(self, *flags: str | Path) -> str:
        """Its output when it is ready."""
        done = self.command("up", *flags)
        assert done.returncode == DONE, done.stderr
        ready = re.fullmatch(r"weir: ready (root://127\.0\.0\.1:\d+/)\n", done.stdout)
        assert ready, done.stdout
        return ready[1]

    def done(self, *arguments: str) -> str:
        done = self.command(*arguments)
        assert done.returncode == DONE, done.stderr
        return done.stdout

    def nodes(self) -> dict[str, dict]:
        return {node["name"]: node for node in json.loads(self.done("status", "--json"))["nodes"]}

    def running(self) -> list[str]:
        return [name for name, node in self.nodes().items() if node["pid"]]

    def database(self) -> dict:
        return json.loads(self.done("status", "--json"))["database"]

    def log(self, name: str) -> str:
        return (self.dir / f"{name}.log").read_text(errors="replace")

    def __enter__(self) -> "Local":
        self.dir.parent.mkdir()
        return self

    def __exit__(self, *_):
        """Nothing keeps running."""
        if (self.dir / "local.json").exists():
            self.done("down")
            assert self.running() == []


@pytest.fixture
def local(base, request):
    home = base / re.sub(r"\W+", "_", request.node.name)
    with Local(home) as cluster:
        yield cluster
    if not request.config.getoption("--keep"):
        remove(home)


@pytest.fixture(scope="module")
def two(base):
    """A cluster of two disk servers that no test disturbs."""
    with Local(base / "test_local") as cluster:
        cluster.up("--disks", "2", "--listen", "127.0.0.1:0")
        yield cluster


def session_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[3])


def test_a_cluster_comes_up_and_goes_on_by_itself(two):
    nodes = two.nodes()
    assert list(nodes) == ["manager", "disk1", "disk2"]
    for name, node in nodes.items():
        # A session of its own: neither a terminal's end nor Ctrl-C reaches it.
        assert session_of(node["pid"]) == node["pid"], name
        assert Path(f"/proc/{node['pid']}/exe").resolve() == Path(WEIR_BIN).resolve()
    hosts = [node["clients"].split(":")[0] for node in nodes.values()]
    assert hosts == ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
    assert [node["location"] for node in nodes.values()] == [None, "site1/rack1/disk1", "site2/rack1/disk2"]
    # Ephemeral ports could be taken while a node is down.
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    if first > 11_000:
        assert all(int(node[kind].split(":")[1]) < first for node in nodes.values() for kind in ("clients", "nodes"))
    # The tokens are gone.
    assert list((two.dir / "run").glob("*token*")) == []
    table = two.done("status").splitlines()
    assert table[0].split() == ["node", "process", "clients", "nodes", "location"]
    assert table[3].split() == ["disk1", *(str(nodes["disk1"][key]) for key in ("pid", "clients", "nodes", "location"))]


def test_up_again_changes_nothing(two):
    before = two.nodes()
    address = two.up()
    assert address == f"root://{before['manager']['clients']}/"
    assert two.up("--disks", "2", "--listen", before["manager"]["clients"]) == address
    assert two.nodes() == before
    refused = two.command("up", "--disks", "1")
    assert refused.returncode == USAGE and "has 2 disk servers" in refused.stderr
    refused = two.command("up", "--listen", "127.0.0.1:1")
    assert refused.returncode == USAGE and f"listens on {before['manager']['clients']}" in refused.stderr
    assert two.nodes() == before


def test_nodes_are_killed_stopped_and_started(local):
    local.up("--disks", "2", "--listen", "127.0.0.1:0")
    before = local.nodes()
    pid = before["disk2"]["pid"]
    assert local.done("kill", "disk2") == f"disk2 was killed (process {pid})\n"
    assert local.running() == ["manager", "disk1"]
    assert "stopped cleanly" not in local.log("disk2")
    refused = local.command("kill", "disk2")
    assert refused.returncode == FAILED and "disk2 is not running" in refused.stderr
    assert local.done("stop", "disk2") == "disk2 was not running\n"
    assert local.done("start", "disk2") == "disk2 is ready\n"
    assert "the last stop was not clean" in local.log("disk2")
    after = local.nodes()
    assert after["disk2"].pop("pid") != before["disk2"].pop("pid")
    assert after == before
    assert "is running already" in local.done("start", "disk2")
    # All at once, and the manager as well.
    assert local.done("stop", "manager", "disk1") == "manager was stopped\ndisk1 was stopped\n"
    for name in ("manager", "disk1"):
        assert local.log(name).count("stopped cleanly") == 1
    assert local.running() == ["disk2"]
    assert local.done("start", "disk1", "manager") == "manager is ready\ndisk1 is ready\n"
    refused = local.command("kill", "disk3")
    assert refused.returncode == USAGE and "there is no node `disk3`; there are manager, disk1, disk2" in refused.stderr


def test_a_cluster_is_resumed_and_grows(local):
    address = local.up("--disks", "1", "--listen", "127.0.0.1:0")
    before = local.nodes()
    local.done("kill", "manager")
    assert local.up() == address
    assert local.running() == ["manager", "disk1"]
    assert local.done("down") == "manager was stopped\ndisk1 was stopped\n"
    assert local.running() == []
    assert local.log("disk1").count("stopped cleanly") == 1
    assert local.up("--disks", "3") == address
    after = local.nodes()
    assert list(after) == ["manager", "disk1", "disk2", "disk3"] == local.running()
    for name, node in before.items():
        assert {**node, "pid": 0} == {**after[name], "pid": 0}


def test_who_does_not_stop_is_killed(local):
    local.up("--disks", "1", "--listen", "127.0.0.1:0")
    pid = local.nodes()["disk1"]["pid"]
    os.kill(pid, signal.SIGSTOP)
    begin = time.monotonic()
    assert local.done("stop", "disk1") == "disk1 did not stop within 15 s and was killed\n"
    assert 15 <= time.monotonic() - begin < 30
    assert local.running() == ["manager"]


def test_another_process_with_the_number_is_let_alone(local):
    local.up("--disks", "1", "--listen", "127.0.0.1:0")
    local.done("kill", "disk1")
    file = local.dir / "run/disk1.pid"
    _, started, boot = file.read_text().split()
    with subprocess.Popen(["sleep", "60"]) as other:
        file.write_text(f"{other.pid} {started} {boot}\n")
        assert local.running() == ["manager"]
        assert local.command("kill", "disk1").returncode == FAILED
        assert local.done("down") == "manager was stopped\ndisk1 was not running\n"
        assert other.poll() is None
        other.kill()


def test_what_went_wrong_in_a_start_is_shown(local):
    local.up("--disks", "2", "--listen", "127.0.0.1:0")
    nodes = local.nodes()
    local.done("down")
    host, port = nodes["disk2"]["nodes"].split(":")
    with socket.create_server((host, int(port))):
        refused = local.command("start", "manager", "disk1", "disk2")
        assert refused.returncode == LISTEN, refused.stderr
        assert "disk2 did not start (exit status: 7)" in refused.stderr
        assert f"cannot listen for nodes on {host}:{port}" in refused.stderr
        assert str(local.dir / "disk2.log") in refused.stderr
        # The healthy nodes continue.
        assert local.running() == ["manager", "disk1"]
        local.done("down")
        # A cluster that does not start leaves no part running.
        assert local.command("up").returncode == LISTEN
        assert local.running() == []
    local.up()


def test_settings_for_all_nodes(local):
    config = local.dir.parent / "settings.toml"
    config.write_text('log = "error"\n')
    local.up("--disks", "1", "--listen", "127.0.0.1:0", "--config", config)
    config.unlink()
    local.done("down")
    local.up()
    # What administrators change is logged always.
    assert local.log("disk1") == ""
    (audited,) = local.log("manager").splitlines()
    assert 'INFO audit: change by="root"' in audited and "create a token for a disk server" in audited
    config.write_text("nonsense = 1\n")
    refused = local.command("up", "--config", config)
    assert refused.returncode == USAGE and "nonsense" in refused.stderr, refused.stderr
    # The earlier files are still there.
    local.done("down")
    local.up()


def test_folders_and_addresses_that_are_not_for_it(local):
    for command in (("status",), ("down",), ("kill", "disk1"), ("start", "disk1")):
        refused = local.command(*command)
        assert refused.returncode == DIRECTORY and "there is no cluster" in refused.stderr
    assert not local.dir.exists()
    for address, code, words in [("0.0.0.0:0", LISTEN, "refused to listen"), ("nowhere", USAGE, "no address")]:
        refused = local.command("up", "--listen", address)
        assert refused.returncode == code and words in refused.stderr, refused.stderr
    for disks in ("0", "65", "x"):
        assert local.command("up", "--disks", disks).returncode == USAGE
    local.dir.mkdir(exist_ok=True)
    (local.dir / "thesis.tex").write_text("years of work")
    refused = local.command("up", "--disks", "1")
    assert refused.returncode == DIRECTORY and "holds `thesis.tex`" in refused.stderr
    assert [path.name for path in local.dir.iterdir()] == ["thesis.tex"]
    (local.dir / "thesis.tex").unlink()
    (local.dir / "local.json").write_text('{"version": 2}')
    refused = local.command("up", "--disks", "1")
    assert refused.returncode == DIRECTORY and "of version 2" in refused.stderr
    (local.dir / "local.json").unlink()


def asked(local: Local, *arguments: str) -> dict | list:
    answer = weir(*arguments, "--data", str(local.dir / "manager"), "--json")
    assert answer.returncode == DONE, answer.stderr
    return json.loads(answer.stdout)


def shown(local: Local, *arguments: str) -> str:
    answer = weir(*arguments, "--data", str(local.dir / "manager"))
    assert answer.returncode == DONE, answer.stderr
    return answer.stdout


def refused(local: Local, *arguments: str) -> str:
    answer = weir(*arguments, "--data", str(local.dir / "manager"))
    assert answer.returncode in (FAILED, NOT_FOUND) and answer.stdout == "", (answer.returncode, answer.stdout, answer.stderr)
    return answer.stderr


def wait_until(what, seconds: float = 60):
    """Waits until `what()` is true; returns its value."""
    end = time.monotonic() + seconds
    while not (value := what()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return value


def put(address: str, path: str, content: bytes, source: Path) -> None:
    source.write_bytes(content)
    done = subprocess.run(["xrdcp", "-s", "-f", source, f"{address}{path}"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_policies_are_set_inherited_and_taken_away(two, base):
    address = f"root://{two.nodes()['manager']['clients']}/"
    assert "no directory has a policy" in shown(two, "policy", "list")
    assert weir("mkdir", "-p", f"{address}/raw/run1").returncode == 0
    built_in = {"path": "/raw", "policy": "replica(1) spread=host", "from": None, "is_given": False}
    assert asked(two, "policy", "get", "/raw") == built_in
    # Words in any order; they are shown in one form.
    assert asked(two, "policy", "set", "/raw", "spread=site", "replica(2)")["policy"] == "replica(2) sync=2 spread=site"
    inherited = {"path": "/raw/run1", "policy": "replica(2) sync=2 spread=site", "from": "/raw", "is_given": False}
    assert asked(two, "policy", "get", "/raw/run1") == inherited
    assert shown(two, "policy", "get", "/raw/run1") == "replica(2) sync=2 spread=site\n/raw/run1: inherited from /raw\n"
    shown(two, "policy", "set", "/", "replica(1)")
    assert [one["path"] for one in asked(two, "policy", "list")] == ["/", "/raw"]
    assert shown(two, "policy", "list").splitlines()[2].split(maxsplit=1) == ["/", "replica(1) spread=host"]
    root = {"path": "/raw", "policy": "replica(1) spread=host", "from": "/", "is_given": False}
    assert asked(two, "policy", "remove", "/raw") == root
    assert "no such policy set on this directory itself" in refused(two, "policy", "remove", "/raw")
    shown(two, "policy", "remove", "/")


def test_policies_that_cannot_be_are_refused(two):
    for words, why in [
        (["replica(3)", "spread=site"], "on 3 different sites, and there are 2; ask for fewer replicas"),
        (["class=t1:1"], "stores of class t1"),
        (["replica(0)"], "is no policy"),
        (["nonsense"], "is no policy"),
    ]:
        assert why in refused(two, "policy", "set", "/", *words), words
    assert "/nowhere" in refused(two, "policy", "set", "/nowhere", "replica(1)")
    assert "does not begin with `/`" in refused(two, "policy", "set", "nowhere", "replica(1)")
    assert asked(two, "policy", "list") == []
    # A policy that prefers an unknown location is probably mistyped.
    set_ = weir("policy", "set", "/", "prefer=site7", "--data", str(two.dir / "manager"))
    assert set_.returncode == DONE and "there is no store at site7" in set_.stderr
    shown(two, "policy", "remove", "/")


def test_stores_and_nodes_are_shown(two):
    stores = asked(two, "stores")
    assert [(store["location"], store["state"]) for store in stores] == [
        ("site1/rack1/disk1", "online"),
        ("site2/rack1/disk2", "online"),
    ]
    assert all(0 < store["free"] <= store["capacity"] for store in stores)
    for name, store in zip(("disk1", "disk2"), stores, strict=True):
        text = (two.dir / name / "store/FORMAT").read_text()
        assert f"store = {store['store']}\n" in text
    table = shown(two, "stores").splitlines()
    # Without classes the table has no column for them, and fits a terminal.
    assert table[0].split() == ["location", "node", "state", "capacity", "free", "store"]
    assert all(len(line) <= 80 for line in table), table
    assert table[2].split()[:3] == ["site1/rack1/disk1", "2", "online"] or table[2].split()[2] == "online"
    assert table[-1] == "2 stores"
    status = asked(two, "status")
    assert [(node["roles"], node["presence"], node["stores"]) for node in status["nodes"]] == [
        ("manager", None, 0),
        ("disk", "online", 1),
        ("disk", "online", 1),
    ]
    assert status["stores"] == {"online": 2}
    assert status["capacity"] >= status["available"] > 0
    for what in ("missing", "deletions", "writers"):
        assert status[what] == {"count": 0, "and_more": False}, what
    words = shown(two, "status")
    assert "2 stores: 2 online" in words and "0 missing replicas" in words


def test_a_file_and_its_copies_are_shown(local):
    address = local.up("--disks", "2", "--listen", "127.0.0.1:0")
    source = local.dir.parent / "source"
    assert "/none" in refused(local, "file", "/none")
    shown(local, "policy", "set", "/", "replica(2)", "sync=1", "spread=site")
    assert asked(local, "file", "/")["kind"] == "directory"
    put(address, "/first", b"one" * 1000, source)

    def has(path: str) -> dict[str, str]:
        return {copy["location"]: copy["replica"] for copy in asked(local, "file", path)["object"]["replicas"]}

    both = {"site1/rack1/disk1": "complete", "site2/rack1/disk2": "complete"}
    wait_until(lambda: has("/first") == both)
    content = asked(local, "file", "/first")["object"]
    assert (content["state"], content["len"], content["writer"]) == ("complete", 3000, None)
    # Replicas are on the disks under the shown number; large objects have files.
    put(address, "/large", bytes(1 << 20), source)
    wait_until(lambda: has("/large") == both)
    body = asked(local, "file", "/large")["object"]["id"]
    for disk in ("disk1", "disk2"):
        assert len(list((local.dir / disk / "store").glob(f"**/objects/**/{body}.*"))) >= 1, (disk, body)
    # A disk server is gone: new files lack its replica, and files that only it has are unreadable meanwhile.
    local.done("kill", "disk2")
    wait_until(lambda: asked(local, "status")["stores"].get("online") == 1)
    wait_until(lambda: {copy["state"] for copy in asked(local, "file", "/first")["object"]["replicas"]} == {"online", "offline"})
    answer = weir("policy", "set", "/", "replica(2)", "spread=site", "--data", str(local.dir / "manager"))
    assert answer.returncode == DONE and "at present no file can be created under it" in answer.stderr
    status = shown(local, "status")
    assert "2 stores: 1 online, 1 offline" in status and "away" in status
    local.done("start", "disk2")
    assert {copy["state"] for copy in asked(local, "file", "/first")["object"]["replicas"]} == {"online"}
    lines = shown(local, "file", "/first").splitlines()
    assert lines[0].startswith("/first: file, inode ") and "complete, 3000 bytes" in lines[1]
    assert lines[3].split() == ["location", "node", "state", "replica", "store"]


def test_a_file_being_written_and_one_with_a_missing_replica(local):
    address = local.up("--disks", "2", "--listen", "127.0.0.1:0")
    shown(local, "policy", "set", "/", "replica(2)", "sync=2", "spread=site")
    writer = subprocess.Popen(
        ["xrdcp", "-s", "-f", "-", f"{address}/growing"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    with writer:
        writer.stdin.write(bytes(20_000_000))
        writer.stdin.flush()
        wait_until(lambda: asked(local, "status")["writers"]["count"] == 1)
        content = asked(local, "file", "/growing")["object"]
        assert content["state"] == "writing" and content["writer"]["epoch"] >= 1
        assert [copy["replica"] for copy in content["replicas"]] == ["primary", "in-sync"]
        second = content["replicas"][1]["location"].split("/")[2]
        local.done("kill", second)
        # The primary notices at the next bytes (all those above may have been written before), and continues alone; the other replica is
        # missing.
        writer.stdin.write(bytes(20_000_000))
        writer.stdin.flush()
        wait_until(lambda: [copy["replica"] for copy in asked(local, "file", "/growing")["object"]["replicas"]] == ["primary", "pending"])
        writer.stdin.close()
        assert writer.wait(60) == 0, writer.stderr.read()
    assert {copy["replica"] for copy in asked(local, "file", "/growing")["object"]["replicas"]} == {"complete", "missing"}
    assert asked(local, "status")["missing"] == {"count": 1, "and_more": False}
    assert "1 missing replica" in shown(local, "status")
    local.done("start", second)
    wait_until(lambda: asked(local, "status")["missing"]["count"] == 0)
    assert {copy["replica"] for copy in asked(local, "file", "/growing")["object"]["replicas"]} == {"complete"}


def test_nobody_answers_where_no_manager_runs(local, own_node):
    local.up("--disks", "1", "--listen", "127.0.0.1:0")
    local.done("down")
    for command in (("status",), ("stores",), ("file", "/x"), ("policy", "list")):
        said = refused(local, *command)
        assert "no node is running on" in said and "answered by a running manager" in said
    node = own_node()
    answer = weir("stores", "--data", str(node.data))
    assert answer.returncode == FAILED and "this is a single node" in answer.stderr


def psql(url: str, sql: str) -> subprocess.CompletedProcess:
    command = [program("psql"), "-X", "-q", "-A", "-t", "-d", url, "-c", sql]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=clean_environment())


def runs(pid: str) -> bool:
    """A zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_database_of_its_own(local):
    """What a manager acknowledged outlives a crash of all processes. Nobody without the password reaches it."""
    address = local.up("--disks", "1", "--listen", "127.0.0.1:0", "--database")
    before, database = local.nodes(), local.database()
    assert list(before) == ["manager", "disk1"]
    row = next(line.split() for line in local.done("status").splitlines() if line.startswith("database "))
    assert row == ["database", str(database["pid"]), database["address"]]
    # A process like the others; PostgreSQL refuses root.
    assert session_of(database["pid"]) == database["pid"]
    assert Path(f"/proc/{database['pid']}").stat().st_uid != 0
    assert (local.dir / "database").stat().st_mode & 0o777 == 0o700
    for secret in ("manager.pgpass", "database.pgpass", "local.json", "run/manager.toml"):
        about = (local.dir / secret).stat()
        assert (about.st_mode & 0o777, about.st_uid) == (0o600, os.getuid()), secret
    assert not (local.dir / "run/database.password").exists()
    # The manager's account has the rights that it needs, and no more.
    url = database["url"]
    assert psql(url, "SELECT count(*) FROM weir.committers").stdout == "1\n"
    assert "must be owner" in psql(url, "DROP SCHEMA weir CASCADE").stderr
    assert "password" in psql(url.partition("?")[0], "SELECT 1").stderr
    assert psql(database["admin_url"], "SHOW fsync").stdout == "on\n"

    put(address, "/kept", b"kept" * 1000, local.dir.parent / "source")
    children = Path(f"/proc/{database['pid']}/task/{database['pid']}/children").read_text().split()
    assert local.done("kill", "database", "manager", "disk1").count("was killed") == 3
    assert children and not any(runs(pid) for pid in children)
    refused = local.command("start", "manager")
    assert refused.returncode == UNREACHABLE and "its database is not running" in refused.stderr, refused.stderr
    assert local.up("--database") == address
    assert {**local.database(), "pid": 0} == {**database, "pid": 0}
    assert asked(local, "file", "/kept")["object"]["len"] == 4000
    assert local.done("down") == "database was stopped\nmanager was stopped\ndisk1 was stopped\n"
    assert "database system is shut down" in local.log("database")
    refused = local.command("up", "--database", "postgres://weir@127.0.0.1/weir")
    assert refused.returncode == USAGE and "a database of its own" in refused.stderr, refused.stderr
    # Its data is never made again.
    (local.dir / "database").rename(local.dir / "elsewhere")
    refused = local.command("up")
    assert refused.returncode == DIRECTORY and "database has no data" in refused.stderr, refused.stderr
    assert not (local.dir / "database").exists() and local.running() == []


def test_a_given_database(local):
    with Postgres(local.dir.parent / "postgres") as server:
        server.create_user("weir")
        url = server.url("weir", server.create_database())
        made = weir("db", "init", "--grant-to", "weir", "--database", server.url(database=url.rpartition("/")[2]))
        assert made.returncode == DONE, made.stderr
        local.up("--disks", "1", "--listen", "127.0.0.1:0", "--database", url)
        assert local.running() == ["manager", "disk1"]
        password = server.passwords["weir"]
        assert local.database() == {"url": url.replace(f":{password}@", "@")}
        assert f"database: {local.database()['url']}" in local.done("status")
        for pid in (node["pid"] for node in local.nodes().values()):
            assert password not in Path(f"/proc/{pid}/cmdline").read_text()
        assert (local.dir / "local.json").stat().st_mode & 0o777 == 0o600
        local.done("down")


def test_databases_and_managers_that_cannot_be(local, two):
    config = local.dir.parent / "settings.toml"
    config.write_text('database.url = "postgres://weir@127.0.0.1/weir"\n')
    for flags, words in [
        (("--managers", "2"), "several managers need a database"),
        (("--managers", "0", "--database"), "0 is not in 1..=9"),
        (("--managers", "10", "--database"), "10 is not in 1..=9"),
        (("--database", "mysql://weir@127.0.0.1/weir"), "begins with `postgres://`"),
        (("--config", config), "give it as --database"),
    ]:
        refused = local.command("up", "--disks", "1", "--listen", "127.0.0.1:0", *flags)
        assert refused.returncode == USAGE and words in refused.stderr, refused.stderr
    assert not local.dir.exists()
    for flags, words in [(("--managers", "3"), "several managers need a database"), (("--database",), "the manager's data directory")]:
        refused = two.command("up", *flags)
        assert refused.returncode == USAGE and words in refused.stderr, refused.stderr
