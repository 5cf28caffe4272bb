"""Administrators: people who run the commands of a cluster from other machines, each with a role, and what the audit log says of them."""

import base64
import contextlib
import json
import os
import re
import socket
import ssl
import stat
import subprocess
import time
from pathlib import Path

import pytest
from cluster import Cluster
from harness import WEIR_BIN, remove, until

USAGE, FAILED, NOT_FOUND, EXISTS, DENIED, UNREACHABLE = 2, 6, 11, 12, 13, 15
HELLO = b'{"ask":"stores"}\n'


@pytest.fixture(scope="module")
def cluster(base):
    cluster = Cluster(base / "administration", 2)
    with cluster:
        yield cluster
    remove(cluster.home)


class Machine:
    """Another machine: a home of its own, no data directory, no settings of this one."""

    def __init__(self, home: Path):
        home.mkdir(parents=True)
        self.home = home

    def weir(self, *arguments: str, env: dict[str, str] | None = None, stdin: str = "") -> subprocess.CompletedProcess:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("WEIR_", "XDG_"))}
        env = {**kept, "HOME": str(self.home), **(env or {})}
        return subprocess.run(
            [str(WEIR_BIN), *arguments], input=stdin, capture_output=True, text=True, errors="replace", timeout=60, env=env, check=False
        )

    def done(self, *arguments: str, **others) -> str:
        ended = self.weir(*arguments, **others)
        assert ended.returncode == 0, (arguments, ended.returncode, ended.stderr)
        return ended.stdout

    def refused(self, code: int, *arguments: str, **others) -> str:
        ended = self.weir(*arguments, **others)
        assert ended.returncode == code, (arguments, ended.returncode, ended.stdout, ended.stderr)
        return ended.stderr

    def join(self, invitation: str, name: str = "here", *flags: str) -> str:
        return self.done("context", "add", name, "--invite-file", "-", *flags, stdin=invitation)

    def context(self, name: str = "here") -> Path:
        return self.home / ".config/weir/contexts" / name


@pytest.fixture
def machine(base, request):
    """Makes machines."""
    home = base / re.sub(r"\W+", "_", request.node.name)
    count = iter(range(100))
    yield lambda: Machine(home / f"machine{next(count)}")
    remove(home)


def invite(cluster: Cluster, name: str, role: str, *flags: str) -> str:
    text = cluster.weir("admin", "invite", name, "--role", role, *flags, "--data", cluster.data)
    assert text.startswith("weir-invite-") and text.count("\n") == 1, text
    return text


def administrators(cluster: Cluster) -> dict[str, str]:
    return {one["name"]: one["state"] for one in cluster.asked("admin", "list")}


def audit(cluster: Cluster, *parts: str) -> str:
    """The newest audit line with all these parts. The log may be a moment behind the answer."""

    def found():
        lines = [line for line in cluster.manager.log_text().splitlines() if " audit: change " in line]
        return next((line for line in reversed(lines) if all(part in line for part in parts)), None)

    return until(found, 5, lambda: f"no audit line of {parts}:\n{cluster.manager.log_text()[-3000:]}")


def test_a_new_cluster_invites_its_first_administrator(base, machine):
    home = base / "first_administrator"
    with Cluster(home, 1) as cluster:
        file = cluster.manager.data / "cluster/first-invitation"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600 and str(file) in cluster.manager.log_text()
        assert file.read_text().strip() not in cluster.logs()
        first = machine()
        assert "you are first-admin there, admin" in first.join(file.read_text(), "lab")
        assert "online" in first.done("status")
        first.done("admin", "invite", "alice", "--role", "viewer")
        # Later starts invite nobody.
        file.unlink()
        cluster.weir("admin", "revoke", "first-admin", "--data", cluster.data)
        cluster.manager.stop()
        cluster.manager.start()
        assert not file.exists() and administrators(cluster)["first-admin"] == "revoked"
    remove(home)


def test_commands_work_from_another_machine(cluster, machine):
    alice = machine()
    said = alice.join(invite(cluster, "alice", "admin"), "lab")
    assert "lab is a context, and the current one: you are alice there, admin" in said
    here = f"127.0.0.1:{cluster.manager.nodes_port}"
    stores = json.loads(alice.done("stores", "--json"))
    assert [store["store"] for store in stores] == [store["store"] for store in cluster.stores()] and len(stores) == 2
    for arguments in (["--cluster", "lab", "status"], ["status", "--cluster", "lab"], ["--cluster", here, "status"]):
        assert "online" in alice.done(*arguments), arguments
    assert json.loads(alice.done("top", "--once", "--json"))["nodes"]
    assert alice.weir("status", "--check").stdout.startswith("WEIR ")
    alice.done("policy", "set", "/", "replica(2)")
    assert json.loads(alice.done("policy", "get", "/", "--json"))["policy"].startswith("replica(2)")
    token = alice.done("token", "create").strip()
    assert token.startswith("weir-join-") and json.loads(alice.done("token", "list", "--json")) == cluster.asked("token", "list")
    # Her key is hers alone, and no secret is in any log.
    for path in (alice.context("lab"), alice.home / ".config/weir/current", cluster.manager.data / "cluster/administrators"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert stat.S_IMODE((alice.home / ".config/weir/contexts").stat().st_mode) == 0o700
    key = re.search(r"^key (.*)$", alice.context("lab").read_text(), re.M)[1]
    assert not any(secret in cluster.logs() for secret in (token, key, "weir-invite-"))
    alice.context("lab").chmod(0o640)
    assert "may be read by others" in alice.refused(USAGE, "status")


def test_a_drain_is_followed_from_another_machine(cluster, machine):
    alice = machine()
    alice.join(invite(cluster, "drainer", "operator"))
    cluster.policy("/", "replica(1)")
    source = alice.home / "file"
    source.write_bytes(os.urandom(3_000_000))
    subprocess.run([WEIR_BIN, "cp", str(source), f"{cluster.url}/drained"], check=True, capture_output=True, timeout=60)
    (store,) = cluster.whole_on("/drained")
    drained = alice.weir("drain", store, "--wait")
    assert drained.returncode == 0 and "is drained" in drained.stdout, drained
    assert f'what="drain store {store}" outcome="done"' in audit(cluster, 'by="drainer"', "role=operator")
    alice.done("drain", store, "--stop")
    assert "stop draining" in audit(cluster, 'by="drainer"', store)
    assert alice.weir("repair", "--wait").returncode == 0


READS = [
    ["status"],
    ["stores"],
    ["missing"],
    ["file", "/nothing"],
    ["policy", "list"],
    ["repair"],
    ["drain"],
    ["token", "list"],
    ["admin", "list"],
]
OPERATES = [["store", "read-only", "STORE"], ["store", "online", "STORE"], ["drain", "STORE", "--stop"]]
ADMINISTERS = [
    ["policy", "set", "/p", "replica(1)"],
    ["policy", "remove", "/p"],
    ["store", "remove", "1"],
    ["store", "remove", "1", "--lost", "--yes"],
    ["node", "remove", "nobody"],
    ["token", "create"],
    ["token", "revoke", "0"],
    ["admin", "invite", "friend", "--role", "viewer"],
    ["admin", "revoke", "friend"],
]


@pytest.mark.parametrize("role", ["viewer", "operator", "admin"])
def test_each_role_does_what_it_may(cluster, machine, role):
    one, store = machine(), cluster.store_of(cluster.disks[0])
    one.join(invite(cluster, role, role))
    state = cluster.stores()
    for least, commands in enumerate([READS, OPERATES, ADMINISTERS]):
        may = ["viewer", "operator", "admin"].index(role) >= least
        for command in commands:
            ended = one.weir(*[store if word == "STORE" else word for word in command])
            if may:
                assert ended.returncode != DENIED and "needs the role" not in ended.stderr, (command, ended)
            else:
                assert ended.returncode == DENIED and f"{role} is {role}, and this needs the role" in ended.stderr, (command, ended)
                assert "denied" in audit(cluster, f'by="{role}"', f"role={role}", 'outcome="denied: ')
    assert [(one["store"], one["state"]) for one in cluster.stores()] == [(one["store"], one["state"]) for one in state]


def test_a_viewer_may_not_even_see_what_a_removal_would_lose(cluster, machine):
    one, store = machine(), cluster.store_of(cluster.disks[0])
    one.join(invite(cluster, "looker", "viewer"))
    assert "needs the role operator" in one.refused(DENIED, "store", "remove", store, "--lost", "--dry-run")
    two = machine()
    two.join(invite(cluster, "planner", "operator"))
    # The node is online: an operator learns that, and cannot force it.
    assert "needs the role admin" in two.refused(DENIED, "store", "remove", store, "--lost", "--force", "--yes")
    assert len(cluster.stores()) == 2


def test_an_invitation_is_good_once_and_for_its_time(cluster, machine):
    text = invite(cluster, "once", "viewer")
    assert administrators(cluster)["once"] == "invited"
    one, two = machine(), machine()
    one.join(text)
    assert administrators(cluster)["once"] == "active"
    said = two.refused(DENIED, "context", "add", "mine", "--invite-file", "-", stdin=text)
    assert "was redeemed already" in said and "weir admin revoke once" in said
    assert not two.context("mine").exists()
    assert "refused" in audit(cluster, "redeem invitation")
    late = invite(cluster, "late", "viewer", "--valid", "1s")
    time.sleep(1.2)
    assert "expired" in two.refused(DENIED, "context", "add", "mine", "--invite-file", "-", stdin=late)
    assert administrators(cluster)["late"] == "expired"
    unused = invite(cluster, "unused", "viewer")
    cluster.weir("admin", "revoke", "unused", "--data", cluster.data)
    assert "was revoked" in two.refused(DENIED, "context", "add", "mine", "--invite-file", "-", stdin=unused)
    for wrong, words in (
        ("weir-join-AAAA", "a token with which a node joins"),
        ("", "does not begin"),
        (text[:60] + ("A" if text[60] == "B" else "B") + text[61:], "altered"),
    ):
        assert words in two.refused(USAGE, "context", "add", "mine", "--invite-file", "-", stdin=wrong)
    # A token for a node is no invitation, and an invitation is no token.
    ended = two.weir("serve", "--role", "disk", "--data", str(two.home / "d"), "--join", text.strip())
    assert ended.returncode == USAGE and "weir-join-" in ended.stderr, ended.stderr
    # A name that is in use is not given twice; a wrong one not at all.
    for name, words in (("once", "already"), ("a b", "is no name"), ("../x", "is no name")):
        made = two.weir("admin", "invite", name, "--role", "viewer", "--data", cluster.data)
        assert made.returncode == FAILED and words in made.stderr, made
    for flags in (["--valid", "31d"], ["--valid", "0s"], ["--access", "0s"], ["--role", "root"]):
        wrong = ["admin", "invite", "x", *(["--role", "viewer"] if flags[0] != "--role" else []), *flags, "--data", cluster.data]
        assert two.weir(*wrong).returncode == USAGE, flags


class Connection:
    """A connection with an administrator's certificate, made without weir."""

    def __init__(self, cluster: Cluster, context: Path, protocol: str = "weir-admin-1"):
        lines = dict(line.split(" ", 1) for line in context.read_text().splitlines()[1:])
        pem = ""
        for kind, name in (("PRIVATE KEY", "key"), ("CERTIFICATE", "certificate")):
            text = base64.encodebytes(base64.b64decode(lines[name])).decode()
            pem += f"-----BEGIN {kind}-----\n{text}-----END {kind}-----\n"
        path = context.parent / "pem"
        path.write_text(pem)
        settings = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        settings.check_hostname, settings.verify_mode = False, ssl.CERT_NONE
        settings.minimum_version = ssl.TLSVersion.TLSv1_3
        settings.load_cert_chain(path)
        settings.set_alpn_protocols([protocol])
        path.unlink()
        plain = socket.create_connection(("127.0.0.1", cluster.manager.nodes_port), timeout=20)
        self.tls = settings.wrap_socket(plain)

    def send(self, data: bytes) -> "Connection":
        with contextlib.suppress(OSError):
            self.tls.sendall(data)
        return self

    def rest(self) -> bytes:
        """Everything up to the end of the connection."""
        got = b""
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while more := self.tls.recv(1 << 16):
                got += more
        return got

    def ended_within(self, seconds: float) -> bool:
        self.tls.settimeout(seconds)
        try:
            return self.rest() == b""
        except TimeoutError:
            return False


def test_a_revocation_holds_at_once_also_for_open_connections(cluster, machine):
    mallory, other = machine(), machine()
    mallory.join(invite(cluster, "mallory", "admin"))
    other.join(invite(cluster, "other", "viewer"))
    mallory.done("stores")
    silent, half = Connection(cluster, mallory.context()), Connection(cluster, mallory.context())
    half.send(b'{"ask":"policy-set","path":"/evil"')
    kept = Connection(cluster, other.context())
    time.sleep(0.3)  # all three are open at the manager
    cluster.weir("admin", "revoke", "mallory", "--data", cluster.data)
    cluster.manager.kill()  # what was answered is durable
    assert silent.ended_within(2) and half.ended_within(2)
    cluster.manager.start()
    cluster.wait_sessions()
    kept.tls.close()
    said = mallory.refused(DENIED, "stores")
    assert "administrator mallory was revoked" in said, said
    assert Connection(cluster, mallory.context()).send(HELLO).rest().startswith(b'{"denied":true,"error":')
    assert administrators(cluster)["mallory"] == "revoked"
    other.done("stores")


def test_a_revocation_cuts_the_connections_of_one_administrator_alone(cluster, machine):
    one, other = machine(), machine()
    one.join(invite(cluster, "one", "admin"))
    other.join(invite(cluster, "another", "viewer"))
    silent, kept = Connection(cluster, one.context()), Connection(cluster, other.context())
    half = Connection(cluster, one.context()).send(b'{"ask":"policy-set","path":"/evil"')
    time.sleep(0.3)
    cluster.weir("admin", "revoke", "one", "--data", cluster.data)
    assert silent.ended_within(2) and half.ended_within(2)
    assert kept.send(HELLO).rest().startswith(b'{"ok":null}\n[')
    assert cluster.weir("admin", "list", "--data", cluster.data).count("revoked") >= 1
    # The name is free for somebody else, with another key; the old one stays out.
    new = machine()
    new.join(invite(cluster, "one", "viewer"))
    new.done("stores")
    one.refused(DENIED, "stores")


def test_access_ends_and_a_certificate_is_renewed_before(cluster, machine):
    guest = machine()
    guest.join(invite(cluster, "guest", "viewer", "--access", "15s"))
    before = guest.context().read_text()
    ends = int(re.search("^expires (.*)$", before, re.M)[1])
    guest.done("stores")
    assert guest.context().read_text() == before, "it is new"
    time.sleep(max(0, ends - 3.5 - time.time()))  # less than a third of its time is left
    guest.done("stores")
    after = guest.context().read_text()
    of = {name: [re.search(f"^{name} (.*)$", text, re.M)[1] for text in (before, after)] for name in ("key", "certificate", "expires")}
    assert of["key"][0] != of["key"][1] and of["certificate"][0] != of["certificate"][1]
    assert abs(int(of["expires"][0]) - int(of["expires"][1])) <= 1, "it is not valid beyond the access"
    guest.done("stores")
    time.sleep(max(0, ends + 1.5 - time.time()))
    said = guest.refused(DENIED, "stores")
    assert "expired" in said or "ended" in said, said
    assert administrators(cluster)["guest"] == "expired"


def test_what_names_the_cluster(cluster, machine):
    one = machine()
    nowhere = one.refused(FAILED, "stores")
    for words in ("/var/lib/weir/data", "--data", "WEIR_DATA", "--cluster", "WEIR_CLUSTER"):
        assert words in nowhere, nowhere
    env = {"WEIR_DATA": cluster.data}
    assert "site1" in one.done("stores", env=env)
    assert "named by WEIR_DATA" in one.refused(FAILED, "stores", env={"WEIR_DATA": str(one.home)})
    assert "no context has this name" in one.refused(USAGE, "--cluster", "lab", "stores", env=env)
    one.join(invite(cluster, "named", "viewer"), "lab")
    one.done("stores")
    one.done("stores", env={"WEIR_CLUSTER": "lab", "WEIR_DATA": "/nowhere"})
    assert "/nowhere" in one.refused(FAILED, "stores", env={"WEIR_DATA": "/nowhere"})
    assert "/other" in one.refused(FAILED, "stores", "--data", "/other", env={"WEIR_CLUSTER": "lab"})
    assert "cannot ask `x y`" in one.refused(USAGE, "stores", env={"WEIR_CLUSTER": "x y"})
    one.refused(UNREACHABLE, "--cluster", "127.0.0.1:1", "stores")
    assert "cannot be used with" in one.refused(USAGE, "--cluster", "lab", "stores", "--data", cluster.data)
    assert "asks none" in one.refused(USAGE, "--cluster", "lab", "ls", "/tmp")


def test_contexts_are_listed_chosen_and_removed(cluster, machine):
    one = machine()
    assert "there are no contexts" in one.done("context", "list")
    one.join(invite(cluster, "first", "viewer"), "a")
    one.join(invite(cluster, "second", "admin"), "b", "--manager", f"localhost:{cluster.manager.nodes_port}")
    listed = {context["name"]: context for context in json.loads(one.done("context", "list", "--json"))}
    assert [(listed[name]["current"], listed[name]["role"]) for name in "ab"] == [(True, "viewer"), (False, "admin")]
    assert listed["b"]["managers"] == [f"localhost:{cluster.manager.nodes_port}"]
    assert "second" in one.done("context", "list")
    assert "needs the role admin" in one.refused(DENIED, "policy", "remove", "/")
    one.done("context", "use", "b")
    one.done("policy", "set", "/", "replica(1)")
    unused = invite(cluster, "third", "viewer")
    assert "already" in one.refused(EXISTS, "context", "add", "b", "--invite-file", "-", stdin=unused)
    assert administrators(cluster)["third"] == "invited", "nothing was used up"
    for name in ("../b", ".b", "", "a/b"):
        one.refused(USAGE, "context", "add", name, "--invite-file", "-", stdin=unused)
    one.refused(NOT_FOUND, "context", "use", "c")
    one.refused(NOT_FOUND, "context", "remove", "c")
    one.done("context", "remove", "b")
    assert not one.context("b").exists()
    assert "/var/lib/weir/data" in one.refused(FAILED, "stores"), "there is no current context any more"
    damaged = one.context("a").read_text()
    one.context("a").write_text(damaged.replace("role viewer", "role admin"))
    assert "damaged" in one.refused(USAGE, "--cluster", "a", "stores")
    assert "damaged" in one.done("context", "list")


def test_local_changes_are_logged_with_the_user(cluster):
    store = cluster.store_of(cluster.disks[0])
    cluster.weir("store", "read-only", store, "--data", cluster.data)
    import pwd

    user = pwd.getpwuid(os.getuid()).pw_name
    line = audit(cluster, f'what="make store {store} read-only"')
    assert f'by="{user}" role=admin peer="control socket, uid {os.getuid()}"' in line and 'outcome="done"' in line
    cluster.weir("store", "online", store, "--data", cluster.data)
    audit(cluster, f'by="{user}"', f'what="put store {store} online"', 'outcome="done"')
    subprocess.run([WEIR_BIN, "node", "remove", "no\nbody", "--data", cluster.data], capture_output=True, check=False)
    assert 'what="remove node no\\nbody" outcome="failed: ' in audit(cluster, "remove node")
    before = cluster.manager.log_text().count(" audit: ")
    cluster.stores()
    cluster.asked("status")
    assert cluster.manager.log_text().count(" audit: ") == before, "reads are not logged"


def test_hostile_bytes_do_no_harm(cluster, machine):
    one = machine()
    one.join(invite(cluster, "hostile", "viewer"))
    context = one.context()
    for sent in (
        b"\n",
        b"{}\n",
        b"\0" * 100 + b"\n",
        b'{"ask":"dance"}\n',
        b'{"ask":"file","path":"/","x":1}\n',
        b"[" * 70_000 + b"\n",
        b"x" * 200_000,
    ):
        got = Connection(cluster, context).send(sent).rest()
        assert b"does not understand" in got or got == b"", (sent[:20], got[:200])
    # What follows the request is not read; another protocol is not spoken.
    assert Connection(cluster, context).send(HELLO * 2).rest().count(b'{"ok":null}') == 1
    for protocol in ("weir-node", "weir-join"):
        assert b"ok" not in Connection(cluster, context, protocol).send(HELLO).rest()
    with pytest.raises((ssl.SSLError, ConnectionError)):
        Connection(cluster, context, "http/1.1")
    # A silent one is closed, and one that sends slowly has no more time.
    begin = time.monotonic()
    slow = Connection(cluster, context)
    while time.monotonic() - begin < 9:
        try:
            slow.tls.sendall(b" ")
            time.sleep(0.3)
        except OSError:
            break
    assert 4 < time.monotonic() - begin < 8
    one.done("stores")


def test_connections_are_bounded(cluster, machine):
    one, other = machine(), machine()
    one.join(invite(cluster, "many", "viewer"))
    other.join(invite(cluster, "few", "viewer"))
    held = [Connection(cluster, one.context()) for _ in range(8)]
    time.sleep(0.3)
    got = Connection(cluster, one.context()).send(HELLO).rest()
    assert b"too many commands at a time" in got, got
    other.done("stores")
    assert held[0].send(HELLO).rest().startswith(b'{"ok":null}')
    held[1].tls.close()
    until(lambda: Connection(cluster, one.context()).send(HELLO).rest().startswith(b'{"ok":null}'), 5)


def test_a_manager_of_another_cluster_gets_nothing(cluster, machine, base):
    one = machine()
    one.join(invite(cluster, "visitor", "admin"))
    with Cluster(base / "administration-other", 0) as other:
        at = f"127.0.0.1:{other.manager.nodes_port}"
        said = one.refused(DENIED, "--cluster", at, "stores")
        assert "of cluster" in said, said
        text = invite(cluster, "second-visitor", "viewer")
        said = one.refused(UNREACHABLE, "context", "add", "x", "--invite-file", "-", "--manager", at, stdin=text)
        assert "is not the one that" in said, said
        one.join(text, "x")
        # Nothing of this was a request for the other cluster's manager.
        assert " audit: " not in other.manager.log_text()
    remove(other.home)
