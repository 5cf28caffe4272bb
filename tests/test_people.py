"""Administration by people: roles of principals and groups, by token and by certificate
from other machines and as users of this one, and owners of trees."""

import base64
import contextlib
import json
import os
import pwd
import re
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
from pathlib import Path

import pytest
from authority import Authority
from clients import run
from cluster import Cluster
from harness import WEIR_BIN, Weir, remove, until
from issuer import AUDIENCE
from proxies import User

DENIED = 13
# Users of every Debian machine, whose primary groups have their names.
LOCAL = {"viewer": "daemon", "operator": "bin", "owner": "games", "nobody": "mail"}
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


@pytest.fixture(scope="module")
def shared():
    """A folder that all users of the machine reach, with the binary in it."""
    folder = Path(tempfile.mkdtemp(prefix="weir-people-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        os.link(WEIR_BIN, folder / "weir")
    except OSError:
        shutil.copy2(WEIR_BIN, folder / "weir")
    yield folder
    remove(folder)


@pytest.fixture(scope="module")
def grid(authority, base):
    """The folder of what the nodes trust of the grid: `authorities`, and `vomsdir` with the server of an organization."""
    folder = base / "people-grid"
    organization = folder / "vomsdir" / "wlcg"
    organization.mkdir(parents=True)
    (organization / "voms.example.org.lsc").write_text("/DC=org/DC=example/CN=voms.example.org\n/DC=org/DC=example/CN=authority\n")
    shutil.copytree(authority.trusted, folder / "authorities")
    return folder


@pytest.fixture(scope="module")
def settings(authority, issuer, grid):
    hosts = ",".join(["DNS:localhost", *(f"{kind}:127.0.0.{number}" for number in range(1, 4) for kind in ("DNS", "IP"))])
    certificate, key = authority.issue("people", hosts)

    def text(socket: Path, roles: str = ROLES) -> str:
        return f"""
tls.certificate = "{certificate}"
tls.key = "{key}"
authentication.mechanisms = ["ztn", "gsi"]
authentication.gsi_authorities = "{grid / "authorities"}"
authentication.voms_servers = "{grid / "vomsdir"}"
authentication.ca = "{authority.home / "ca.pem"}"
administration.socket = "{socket}"
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


@pytest.fixture(scope="module", params=["node", "cluster"])
def site(request, base, settings, shared):
    home = base / f"people-{request.param}"
    config, socket = base / f"people-{request.param}.toml", shared / f"{request.param}.socket"
    config.write_text(settings(socket))
    if request.param == "cluster":
        # Disk servers read the same settings, and one socket is for one node.
        disk_config = base / "people-disk.toml"
        disk_config.write_text(re.sub(r"administration.socket.*\n", "", settings(socket)))
        cluster = Cluster(home, 1, ("--config", str(config)))
        cluster.disks[0].flags = tuple(str(disk_config) if flag == str(config) else flag for flag in cluster.disks[0].flags)
        with cluster:
            site = Site(cluster.manager, shared, socket, config, home)
            site.cluster = cluster
            yield site
        remove(home)
        return
    server = Weir(home, None, ("--config", str(config))).start()
    yield Site(server, shared, socket, config, home)
    server.kill()
    remove(home)


cluster_alone = pytest.mark.parametrize("site", ["cluster"], indirect=True)


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


@pytest.fixture
def bearer(site, issuer):
    return lambda subject, *groups, scope=None, **more: Bearer(
        site, issuer.token(subject, scope, **({"wlcg.groups": [f"/{group}" for group in groups]} if groups else {}), **more)
    )


# What each may do by token: read, run the cluster, administer it.
BY_TOKEN = [
    (("vera",), 0),
    (("omar",), 1),
    (("ada",), 2),
    (("otto", "ops"), 1),
    (("otto", "looks"), 0),
    (("otto", "looks", "more", "ops"), 1),
    (("vera", "ops"), 1),
    (("otto", "more"), -1),
    (("ops",), -1),
]


@cluster_alone
@pytest.mark.parametrize(("who", "may"), BY_TOKEN)
def test_a_token_gives_the_highest_role_of_its_principal_and_groups(site, bearer, who, may):
    one = bearer(*who)
    store = site.cluster.store_of(site.cluster.disks[0])
    for least, commands in enumerate(
        [
            [["status"], ["stores"], ["tree", "list"], ["quota", "list"], ["policy", "list"], ["admin", "list"]],
            [["store", "read-only", store], ["store", "online", store]],
            [["identity", "add", "somebody"], ["token", "create"]],
        ]
    ):
        for command in commands:
            if may >= least:
                one.done(*command)
            else:
                said = one.denied(*command)
                role = ["viewer", "operator", "admin"][may] if may >= 0 else None
                expected = f"{who[0]} is {role}, and this needs the role" if role else f"{who[0]} has no role, and this needs the role"
                assert expected in said and (role or "no [[administrator]]" in said), said
                assert 'outcome="denied: ' in site.audit(f'by="{who[0]}"', f"for `{who[0]}`")
    if may >= 1:
        line = site.audit(f'by="{who[0]}"', f"put store {store} online", 'outcome="done"', f"for `{who[0]}`")
        assert f"role={['viewer', 'operator', 'admin'][may]}" in line and "127.0.0.1:" in line, line
        # The node writes the lines behind its answers.
        made = until(
            lambda: [line for line in site.audited(who[0]) if (line["operation"], line["result"]) == ("store-read-only", "ok")], 10
        )
        last = made[-1]
        assert last["mechanism"] == "ztn", last
        assert last["credential"].startswith(("operator, a token of https://", "admin, a token of https://")), last
        assert one.token not in site.server.log_text()


@cluster_alone
def test_bad_tokens_are_refused_with_the_reason(site, bearer, issuer):
    bad = {
        "expired": (bearer("ada", seconds=-3600), "expired"),
        "audience": (bearer("ada", aud="https://elsewhere.example"), "audience"),
        "banned": (bearer("banned"), "refuse = true"),
        "for jobs": (bearer("ada", scope="storage.read:/ storage.modify:/"), "without storage scopes"),
        "every service": (bearer("ada", aud="https://wlcg.cern.ch/jwt/v1/any"), "for every service"),
        "nonsense": (Bearer(site, "not.a.token"), "token"),
    }
    forged = bearer("ada").token.rpartition(".")[0] + "." + bearer("vera").token.rpartition(".")[2]
    bad["forged"] = (Bearer(site, forged), "signature")
    for name, (one, reason) in bad.items():
        assert reason in one.denied("status"), name
        one.denied("identity", "add", "mallory")
    assert "mallory" not in site.weir("identity", "list")
    nobody = bearer("ada")
    nobody.token = ""
    assert "no token was found" in nobody.denied("status")


@cluster_alone
def test_a_token_is_shown_only_to_a_manager_of_the_cluster(site, bearer):
    one = bearer("ada")
    context = one.home / ".config/weir/contexts/lab"
    assert "weir cluster 1" in context.read_text() and one.token not in context.read_text()
    line = site.weir("admin", "authority").split()
    at = line[line.index("--manager") + 1]
    one.done("context", "add", "impostor", "--authority", "0" * 64, "--manager", at)
    ended = one.weir("--cluster", "impostor", "status")
    assert ended.returncode == DENIED and "leads to another cluster" in ended.stderr, ended
    assert one.weir("context", "add", "short", "--authority", "00", "--manager", at).returncode == 2
    assert "by token" in one.done("context", "list")


@cluster_alone
def test_a_role_ends_with_its_rule(site, bearer, settings):
    omar, otto = bearer("omar"), bearer("otto", "ops")
    store = site.cluster.store_of(site.cluster.disks[0])
    for one in (omar, otto):
        one.done("store", "online", store)
    without = ROLES.replace('principal = "omar"\nrole = "operator"', 'principal = "omar"\nrole = "viewer"').replace('"ops"', '"other"')
    try:
        site.reload(settings(site.socket, without))
        assert "omar is viewer" in omar.denied("store", "online", store)
        assert "otto has no role" in otto.denied("stores")
        omar.done("stores")
        # A wrong file takes nobody's role, and gives none.
        site.reload(settings(site.socket, ROLES.replace('"viewer"', '"king"')))
        assert "nothing was changed" in [line for line in site.server.log_text().splitlines() if "SIGHUP: " in line][-1]
        assert "otto has no role" in otto.denied("stores")
    finally:
        site.reload(settings(site.socket))
    omar.done("store", "online", store)


@cluster_alone
def test_the_roles_of_the_settings_are_listed_and_who_has_invited_others(site, bearer):
    bearer("ada").done("admin", "invite", "carol", "--role", "viewer")
    listed = site.weir("admin", "list")
    for line in (r"user vera +viewer +the settings +active", r"group ops +operator +the settings +active"):
        assert re.search(line, listed), listed
    listed = json.loads(site.weir("admin", "list", "--json"))
    names = {(one["kind"], one["name"]): one["role"] for one in listed}
    assert names[("user", "ada")] == "admin" and names[("group", "local-bin")] == "operator"
    carol = next(one for one in listed if one["name"] == "carol")
    assert carol["kind"] == "certificate" and carol["invited_by"].startswith("ada, by a token of https://"), carol


@pytest.fixture(scope="module")
def users(authority):
    return {name: User(authority, name) for name in ("vera", "ada", "otto", "banned", "nobody", "stolen")}


@pytest.fixture
def holder(site):
    """Somebody on another machine with this proxy."""
    return lambda proxy: Bearer(site, "", X509_USER_PROXY=proxy)


@cluster_alone
def test_a_certificate_gives_the_role_of_its_principal(site, holder, users):
    store = site.cluster.store_of(site.cluster.disks[0])
    by = {name: holder(users[name].proxy()) for name in ("vera", "ada", "otto")}
    for command in ("status", "stores", "tree list"):
        by["vera"].done(*command.split())
    assert "vera is viewer, and this needs the role operator" in by["vera"].denied("store", "online", store)
    assert "otto has no role, and this needs the role viewer: no [[administrator]]" in by["otto"].denied("stores")
    by["ada"].done("store", "online", store)
    by["ada"].done("identity", "add", "by-certificate")
    line = site.audit('by="ada"', f"put store {store} online", 'outcome="done"', "the certificate /DC=org/DC=example/CN=ada")
    assert "role=admin" in line and "127.0.0.1:" in line, line
    made = until(lambda: [one for one in site.audited("ada") if (one["mechanism"], one["result"]) == ("gsi", "ok")], 10)
    assert made[-1]["credential"] == "admin, the certificate /DC=org/DC=example/CN=ada", made[-1]
    # A proxy of a proxy, and the certificate alone, where the tools of Globus keep it.
    holder(users["vera"].proxy(of=users["vera"].proxy())).done("stores")
    alone = Bearer(site, "")
    (alone.home / ".globus").mkdir()
    for name, file in (("usercert.pem", users["vera"].certificate), ("userkey.pem", users["vera"].key)):
        shutil.copy2(file, alone.home / ".globus" / name)
    if not Path(f"/tmp/x509up_u{os.geteuid()}").exists():
        alone.done("stores")
    # What the user names goes first, and a token before a certificate.
    by["vera"].token = "not.a.token"
    assert "token" in by["vera"].denied("stores")


@cluster_alone
@pytest.mark.skipif(shutil.which("voms-proxy-fake") is None, reason="needs voms-clients")
def test_a_voms_attribute_gives_the_role_of_its_group(site, holder, users, authority):
    server = authority.issue("voms.example.org", hosts="DNS:voms.example.org")
    store = site.cluster.store_of(site.cluster.disks[0])
    wanda = users["nobody"]
    holder(wanda.voms_proxy(server, "/wlcg/Role=ops", "/wlcg")).done("store", "online", store)
    line = site.audit('by="wanda"', f"put store {store} online", "role=operator")
    assert "CN=nobody" in line, line
    # Without the role in the organization, and with one that another server has signed.
    assert "CN=nobody" in holder(wanda.voms_proxy(server, "/wlcg")).denied("stores")
    stranger = authority.issue("stranger.example.org", hosts="DNS:voms.example.org")
    assert "CN=nobody" in holder(wanda.voms_proxy(stranger, "/wlcg/Role=ops")).denied("stores")


@cluster_alone
def test_bad_certificates_are_refused_with_the_reason(site, holder, users, authority, grid, settings, tmp_path):
    ada = users["ada"]
    home = tmp_path / "strangers"
    home.mkdir()
    bad = {
        "expired": (ada.proxy(days=-1), "ended"),
        "limited": (ada.proxy("limited"), "the proxy is limited"),
        "of a limited one": (ada.proxy(of=ada.proxy("limited")), "the proxy is limited"),
        "banned": (users["banned"].proxy(), "refuse = true"),
        "unknown": (users["nobody"].proxy(), "CN=nobody"),
        "of a stranger": (User(Authority(home, "stranger"), "ada").proxy(), "the certificate"),
        "gone": (tmp_path / "gone", "cannot read"),
    }
    for name, (proxy, reason) in bad.items():
        one = holder(proxy)
        assert reason in one.denied("status"), name
        one.denied("identity", "add", "mallory")
    assert "mallory" not in site.weir("identity", "list")
    login = site.audited_logins("gsi")
    assert any("CN=nobody" in one["reason"] for one in login) and all(one["result"] == "denied" for one in login), login
    # Somebody whose certificate is revoked while the manager runs.
    stolen = holder(users["stolen"].proxy())
    roles = ROLES + '[[administrator]]\nprincipal = "stolen"\nrole = "admin"\n'
    roles += '[[identity]]\ncertificate = "/DC=org/DC=example/CN=stolen"\nprincipal = "stolen"\n'
    [hashed] = [path.name.removesuffix(".0") for path in grid.joinpath("authorities").glob("*.0")]
    revoked = grid / "authorities" / f"{hashed}.r0"
    try:
        site.reload(settings(site.socket, roles))
        stolen.done("stores")
        revoked.write_text(authority.revoke(users["stolen"].certificate))
        site.reload(settings(site.socket, roles))
        assert "revoked" in stolen.denied("stores")
        holder(ada.proxy()).done("stores")
    finally:
        revoked.unlink(missing_ok=True)
        site.reload(settings(site.socket))


@cluster_alone
def test_what_is_no_request_with_certificates_does_no_harm(site, holder, users):
    """Over TLS made without weir, by the name in TLS that says what follows."""
    line = site.weir("admin", "authority").split()
    host, _, port = line[line.index("--manager") + 1].rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["weir-admin-certificate-1"])

    def said(sent: bytes) -> bytes:
        with socket.create_connection((host, int(port)), timeout=10) as plain, context.wrap_socket(plain) as tls:
            assert tls.selected_alpn_protocol() == "weir-admin-certificate-1"
            tls.sendall(sent)
            answer = b""
            with contextlib.suppress(OSError):
                while more := tls.recv(4096):
                    answer += more
            return answer

    chain = [base64.b64encode(ssl.PEM_cert_to_DER_cert(users["ada"].certificate.read_text())).decode()]
    request = {"ask": "identity-add", "kind": "user", "name": "mallory"}
    for certificates, signature, reason in (
        (chain, "", b"has not signed this connection"),
        (chain, base64.b64encode(bytes(256)).decode(), b"has not signed this connection"),
        ([], "", b"0 certificates"),
        (chain * 17, "", b"does not understand"),
        (["MAA="], "", b"RSA key"),
        (["!"], "", b"does not understand"),
    ):
        answer = said(json.dumps({"certificates": certificates, "signature": signature, "request": request}).encode() + b"\n")
        assert reason in answer and b'"ok"' not in answer, (certificates, answer)
    for sent in (b"\n", b"{}\n", os.urandom(1000) + b"\n", json.dumps(request).encode() + b"\n"):
        assert b'"ok"' not in said(sent), sent
    holder(users["ada"].proxy()).done("stores")


@pytest.fixture
def as_root():
    if os.geteuid() != 0:
        pytest.skip("only root can be several users")


def test_users_of_the_machine_administer_by_the_socket_for_all(site, as_root):
    # Nobody but root reaches the socket in the data directory.
    status = ["scrub"] if not hasattr(site, "cluster") else ["stores"]
    for role, name in LOCAL.items():
        for command, may in ((status, role in ("viewer", "operator")), (["identity", "add", "x"], False)):
            ended = site.as_user(name, *command)
            assert (ended.returncode == 0) == may, (name, command, ended)
            assert may or ended.returncode == DENIED, (name, command, ended)
    assert "refuse = true" in site.as_user("mail", *status).stderr
    denied = site.as_user("daemon", "identity", "add", "x").stderr
    assert "local-daemon is viewer, and this needs the role admin" in denied, denied
    user = pwd.getpwnam("daemon")
    assert "denied" in site.audit('by="local-daemon"', f"control socket, uid {user.pw_uid}", "role=viewer")
    assert "has no role" in site.as_user("games", *status).stderr
    # By a group.
    if hasattr(site, "cluster"):
        store = site.cluster.store_of(site.cluster.disks[0])
        assert site.as_user("bin", "store", "online", store).returncode == 0
        assert f"put store {store} online" in site.audit('by="local-bin"', "role=operator", "the local user `bin`")
    else:
        assert site.as_user("bin", "scrub", "--now").returncode == 0
        assert "begin a scrub pass" in site.audit('by="local-bin"', "role=operator")
        assert site.as_user("daemon", "scrub", "--now").returncode == DENIED
    # Root is the administrator there, too.
    assert subprocess.run([WEIR_BIN, "identity", "add", "y", "--cluster", site.socket], capture_output=True, check=False).returncode == 0


def tree(site, path: str, *owner: str) -> str:
    site.weir("tree", "create", path, "--mkdir")
    site.weir("quota", "set", path, "--bytes", "10MiB")
    if owner:
        site.weir("tree", "owner", path, *owner)
    return path


def test_an_owner_sets_quotas_in_the_own_tree_alone(site, as_root):
    for kind, name in ((), "local-games"), (("--group",), "local-games"):
        site.weir("identity", "add", name, *kind)
    mine = tree(site, "/mine", "local-games")
    inner = tree(site, f"{mine}/inner")
    by_group = tree(site, "/ours", "--group", "local-games")
    other = tree(site, "/theirs")

    def owner(*command: str):
        return site.as_user("games", *command)

    listed = json.loads(site.weir("tree", "list", "--json"))
    assert {one["quota"]["tree"]: one["owner"] for one in listed if one["quota"]["tree"] in (mine, by_group, other)} == {
        mine: "user local-games",
        by_group: "group local-games",
        other: None,
    }
    for path in (mine, inner, by_group):
        assert owner("quota", "set", path, "--user", "local-games", "--bytes", "1MiB").returncode == 0, path
        assert owner("quota", "set", path, "--group", "local-games", "--files", "5").returncode == 0
        assert owner("quota", "set", path, "--bytes", "9MiB").returncode == 0
        for more in (["--bytes", "10MiB"], ["--bytes", "none"]):
            raised = owner("quota", "set", path, *more)
            assert raised.returncode == DENIED and "only an administrator raises" in raised.stderr, raised
        usage = json.loads(owner("quota", "list", path, "--json").stdout)
        assert next(one for one in usage if one["kind"] == "tree")["bytes"]["hard"] == 9 << 20
    done = site.audit('by="local-games"', "role=owner", f"set the quota of tree {inner}", 'outcome="done"')
    assert "the local user `games`" in done
    assert site.audit('by="local-games"', "role=none", f"set the quota of tree {inner}", 'outcome="denied: ')
    for whose in ("--user", "--group"):
        unknown = owner("quota", "set", mine, whose, "4000000000", "--bytes", "1MiB")
        assert unknown.returncode != 0 and "here has this number" in unknown.stderr, unknown
    # Nothing outside, also by the ways that look as if they were inside.
    outside = [other, "/", "/absent", f"{mine}/../theirs", f"{other}/absent"]
    for path in outside:
        for command in (["quota", "set", path, "--user", "local-games", "--bytes", "1MiB"], ["quota", "list", path]):
            ended = owner(*command)
            assert ended.returncode != 0 and (".." in path or ended.returncode == DENIED), (command, ended)
    for command in (
        ["quota", "list"],
        ["tree", "list"],
        ["tree", "create", f"{mine}/more", "--mkdir"],
        ["tree", "owner", other, "local-games"],
        ["tree", "owner", mine, "--nobody"],
        ["explain", mine, "--as", "local-games", "--do", "read"],
    ):
        ended = owner(*command)
        assert ended.returncode == DENIED and "has no role, and this needs the role" in ended.stderr, (command, ended)
    # The administrator takes the tree away.
    site.weir("tree", "owner", mine, "--nobody")
    assert owner("quota", "list", mine).returncode == DENIED
    site.weir("quota", "set", inner, "--bytes", "none")


@cluster_alone
def test_an_owner_sets_policies_in_the_own_tree_alone(site, bearer):
    for name in ("olga", "paul"):
        site.weir("identity", "add", name)
    mine, other = tree(site, "/olga", "olga"), tree(site, "/paul", "paul")
    olga = bearer("olga")
    assert "has no role" in olga.denied("stores")
    olga.done("policy", "set", mine, "replica(1)")
    assert json.loads(olga.done("policy", "get", mine, "--json"))["policy"].startswith("replica(1)")
    assert "role=owner" in site.audit('by="olga"', f"set the policy of {mine}", 'outcome="done"', "for `olga`")
    for path in (other, "/", "/absent", f"{mine}x", f"{other}/absent"):
        said = olga.denied("policy", "set", path, "replica(1)")
        assert "only an administrator decides there, or the owner of the tree" in said, said
        olga.denied("policy", "get", path)
        olga.denied("policy", "remove", path)
    assert olga.weir("policy", "get", f"{mine}/absent").returncode == 11
    assert "weir mkdir" in olga.denied("policy", "set", f"{mine}/new", "replica(1)", "--mkdir")
    # The namespace's own tests have the links that lead out of a tree.
    assert olga.weir("policy", "set", f"{mine}/../paul", "replica(1)").returncode != 0
    assert json.loads(site.weir("policy", "get", other, "--json"))["from"] != other
    olga.done("policy", "remove", mine)
    for command in (["policy", "list"], ["policy", "apply", mine, "--dry-run"], ["policy", "apply", mine]):
        assert "has no role" in olga.denied(*command)
    # A token for jobs is not enough, whoever it is of.
    assert "without storage scopes" in bearer("olga", scope="storage.modify:/").denied("policy", "set", mine, "replica(1)")


def test_an_owner_survives_a_kill(site):
    site.weir("identity", "add", "kept")
    path = tree(site, "/kept", "kept")
    site.server.kill()
    site.server.start()
    owners = {one["quota"]["tree"]: one["owner"] for one in json.loads(site.weir("tree", "list", "--json"))}
    assert owners[path] == "user kept"
