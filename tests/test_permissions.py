"""Who may do what: operations by owner, group, others, ACL entries and scopes of tokens, with stock clients, on a node and on a cluster.
Users come by tokens; for some operations also by shared secrets and by certificates, which have no scopes.

The directory `/m/d` belongs to ana and the group atlas, with the mode rwxr-x---, and the file `f` in it with rw-r-----. ACLs
give nils rwx and rw-, and the group cms r-x and r--. The last three columns are ana with a token whose scope is less than all.
"""

import json
import sys
from pathlib import Path

import pytest
from authority import HOSTS
from clients import run
from cluster import Cluster
from content import write
from harness import WEIR_BIN, Weir, remove, weir
from issuer import trusting
from proxies import User
from secrets_of import add_key, keys

ALL = "storage.read:/ storage.modify:/"
USERS = {
    "keeper": {},
    "ana": {},
    "mia": {"wlcg.groups": ["/atlas"]},
    "nils": {},
    "gus": {"wlcg.groups": ["/cms"]},
    "otto": {},
    "reads": {"sub": "ana", "scope": "storage.read:/m"},
    "creates": {"sub": "ana", "scope": "storage.create:/m"},
    "modifies": {"sub": "ana", "scope": "storage.modify:/m"},
    "elsewhere": {"sub": "ana", "scope": "storage.read:/mm storage.modify:/mm"},
}
TABLE = """
operation  keeper ana mia nils gus otto reads creates elsewhere
stat       yes    yes yes yes  yes no   yes   yes     no
list       yes    yes yes yes  yes no   yes   no      no
read       yes    yes yes yes  yes no   yes   no      no
checksum   yes    yes yes yes  yes no   yes   yes     no
attribute  yes    yes no  yes  no  no   no    no      no
overwrite  yes    yes no  yes  no  no   no    no      no
truncate   yes    yes no  yes  no  no   no    no      no
create     yes    yes no  yes  no  no   no    yes     no
mkdir      yes    yes no  yes  no  no   no    yes     no
rename     yes    yes no  yes  no  no   no    yes     no
remove     yes    yes no  yes  no  no   no    no      no
chmod      yes    yes no  no   no  no   no    no      no
acl        yes    yes no  no   no  no   no    no      no
chown      yes    no  no  no   no  no   no    no      no
"""


# The operations that users of other mechanisms try too: one for each rule that can decide.
OTHERS = ("read", "overwrite", "create", "chmod", "chown")
WITHOUT_SCOPES = ("keeper", "ana", "mia", "nils", "gus", "otto")


def groups_of(user: str) -> list[str]:
    return [group.strip("/") for group in USERS[user].get("wlcg.groups", [])]


@pytest.fixture(scope="module")
def config(authority, issuer, base):
    path = base / "permissions.toml"
    tls = authority.issue("permissions", HOSTS)
    path.write_text(trusting(issuer, authority, tls, of_issuer='groups = "always"', of_rule='groups = ["{groups}"]'))
    return path


def serve(home, kind: str, config, scheme: str):
    if kind == "cluster":
        with Cluster(home, 2, ("--config", str(config))) as cluster:
            yield f"{scheme}://127.0.0.1:{cluster.manager.port}", cluster.manager.home / "data"
    else:
        with Weir(home, None, ("--config", str(config))) as server:
            yield f"{scheme}://127.0.0.1:{server.port}", server.data
    remove(home)


@pytest.fixture(scope="module", params=["node", "cluster"])
def url(request, base, config):
    yield from serve(base / f"permissions-{request.param}", request.param, config, "roots")


@pytest.fixture(scope="module")
def held(authority, base):
    """What `env` puts before the commands of each user, by mechanism."""
    keytab = base / "permissions.keytab"
    shown: dict[str, dict[str, list[str]]] = {"sss": {}, "gsi": {}}
    for user in WITHOUT_SCOPES:
        add_key(keytab, user, user, (groups_of(user) or ["nogroup"])[0])
        proxy = User(authority, user).proxy()
        shown["gsi"][user] = [f"X509_USER_PROXY={proxy}", f"X509_CERT_DIR={authority.trusted}", "XrdSecPROTOCOL=gsi", "XrdSecGSISRVNAMES=*"]
    for user, key in keys(keytab).items():
        shown["sss"][user] = [f"XrdSecSSSKT={key.alone(base / f'permissions-{user}.keytab')}", "XrdSecPROTOCOL=sss"]
    return shown


@pytest.fixture(scope="module", params=["sss-node", "sss-cluster", "gsi-node", "gsi-cluster"])
def other(request, authority, held, base):
    """Another mechanism: the address, the data directory, and the credentials of its users. `prepares` is the keeper by a secret."""
    mechanism, kind = request.param.split("-")
    certificate, key = authority.issue(f"permissions-{request.param}", HOSTS)
    path = base / f"permissions-{request.param}.toml"
    condition = {"sss": 'secret = "{}"', "gsi": 'certificate = "/DC=org/DC=example/CN={}"'}[mechanism]
    rules = "".join(
        f"""[[identity]]
{condition.format(user)}
principal = "{"admin" if user == "keeper" else user}"
groups = {json.dumps(groups_of(user))}
"""
        for user in WITHOUT_SCOPES
    )
    if mechanism == "gsi":
        rules += '[[identity]]\nsecret = "keeper"\nprincipal = "admin"\n'
    path.write_text(
        f"""
tls.certificate = "{certificate}"
tls.key = "{key}"
authentication.mechanisms = ["sss"{', "gsi"' if mechanism == "gsi" else ""}]
authentication.keytab = "{base / "permissions.keytab"}"
authentication.gsi_authorities = "{authority.trusted}"
{rules}"""
    )
    for address in serve(base / f"permissions-{request.param}", kind, path, "root"):
        # A login by a certificate costs the stock client a tenth of a second of processor time.
        yield *address, held[mechanism] | {"prepares": held["sss"]["keeper"]}


class Site:
    """What the users do there."""

    def __init__(self, url: str, data, credentials: dict[str, list[str]], tmp_path):
        self.url, self.data, self.tmp_path = url, data, tmp_path
        self.credentials = {"prepares": credentials["keeper"]} | credentials
        for arguments in (["ana"], ["nils"], ["--group", "atlas"], ["--group", "cms"]):
            done = weir("identity", "add", *arguments, "--data", str(self.data))
            assert done.returncode == 0, done
        self.source = write(tmp_path / "source", "m", 100_000)

    def does(self, who: str, *command):
        return run(["env", *self.credentials[who], *map(str, command)])

    def fs(self, who: str, *arguments):
        return self.does(who, "xrdfs", self.url, *arguments)

    def weir(self, who: str, *arguments):
        return self.does(who, WEIR_BIN, *arguments)

    def update(self, who: str, path: str) -> dict[str, str]:
        """What a client may do that opens the file for update."""
        return json.loads(self.does(who, sys.executable, Path(__file__).with_name("updater.py"), f"{self.url}/{path}").ok().out)

    def put(self, who: str, path: str):
        return self.does(who, "xrdcp", "-f", self.source, f"{self.url}/{path}")

    def fresh(self) -> None:
        """The directory as the table expects it."""
        for path in ("/m/d/new", "/m/d/moved"):
            self.fs("prepares", "rm", path)
        self.fs("prepares", "rmdir", "/m/d/sub")
        self.fs("prepares", "mkdir", "-p", "-mrwxr-xr-x", "/m").ok()
        self.fs("prepares", "mkdir", "-p", "/m/d").ok()
        self.give("/m/d", "rwxr-x---", "group::r-x,user:nils:rwx,group:cms:r-x")
        for path in ("/m/d/f", "/m/d/victim"):
            self.fresh_file(path)

    def fresh_file(self, path: str) -> None:
        self.put("prepares", path).ok()
        self.give(path, "rw-r-----", "group::r--,user:nils:rw-,group:cms:r--")

    def give(self, path: str, mode: str, acl: str) -> None:
        self.weir("prepares", "chown", "ana:atlas", f"{self.url}/{path}").ok()
        self.fs("prepares", "chmod", path, mode).ok()
        self.weir("prepares", "acl", "set", "--replace", acl, f"{self.url}/{path}").ok()

    def undo(self, operation: str) -> None:
        """The directory as before an operation that was done."""
        match operation:
            case "overwrite":
                self.fresh_file("/m/d/f")
            case "create":
                self.fs("prepares", "rm", "/m/d/new").ok()
            case "mkdir":
                self.fs("prepares", "rmdir", "/m/d/sub").ok()
            case "rename":
                self.fs("prepares", "rm", "/m/d/moved").ok()
                self.fresh_file("/m/d/victim")
            case "remove":
                self.fresh_file("/m/d/victim")
            case "chown":
                self.weir("prepares", "chown", "ana:atlas", f"{self.url}//m/d/f").ok()

    def try_it(self, operation: str, who: str):
        f = "/m/d/f"
        match operation:
            case "stat":
                return self.fs(who, "stat", f)
            case "list":
                return self.fs(who, "ls", "/m/d")
            case "read":
                return self.does(who, "xrdcp", "-f", f"{self.url}/{f}", self.tmp_path / "back")
            case "checksum":
                return self.fs(who, "query", "checksum", f)
            case "attribute":
                return self.fs(who, "xattr", f, "set", "colour=red")
            case "overwrite":
                return self.put(who, f)
            case "truncate":
                return self.fs(who, "truncate", f, "10")
            case "create":
                return self.put(who, "/m/d/new")
            case "mkdir":
                return self.fs(who, "mkdir", "/m/d/sub")
            case "rename":
                return self.fs(who, "mv", "/m/d/victim", "/m/d/moved")
            case "remove":
                return self.fs(who, "rm", "/m/d/victim")
            case "chmod":
                return self.fs(who, "chmod", f, "rw-r-----")
            case "acl":
                return self.weir(who, "acl", "set", "-m", "user:nils:rw-", f"{self.url}/{f}")
            case "chown":
                return self.weir(who, "chown", "nils", f"{self.url}/{f}")
        raise AssertionError(operation)


@pytest.fixture
def site(url, issuer, authority, tmp_path):
    token = {name: {"scope": ALL, "sub": name, **claims} for name, claims in USERS.items()}
    tokens = {name: issuer.token(claims.pop("sub"), claims.pop("scope"), **claims) for name, claims in token.items()}
    credentials = {name: [f"BEARER_TOKEN={shown}", f"X509_CERT_DIR={authority.trusted}"] for name, shown in tokens.items()}
    return Site(*url, credentials, tmp_path)


@pytest.fixture
def other_site(other, tmp_path):
    return Site(*other, tmp_path)


LINES = TABLE.strip().splitlines()[1:]


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.split()[0])
def test_the_table_is_what_happens(site, line):
    follow(site, line, TABLE.split()[1:10])


@pytest.mark.parametrize("line", [line for line in LINES if line.split()[0] in OTHERS], ids=lambda line: line.split()[0])
def test_the_table_is_what_happens_by_other_mechanisms(other_site, line):
    follow(other_site, line, WITHOUT_SCOPES)


def follow(site: Site, line: str, users) -> None:
    """Tries the operation as each user, and compares the outcomes with the line."""
    operation, *expected = line.split()
    expected = expected[: len(users)]
    site.fresh()
    found = []
    for who in users:
        done = site.try_it(operation, who)
        found.append("yes" if done.code == 0 else "no")
        if done.code != 0:
            said = (done.out + done.err).lower()
            assert "denied" in said or "not allow" in said or "[3010]" in said or "may" in said, (who, done)
        else:
            site.undo(operation)
    assert found == expected, dict(zip(users, found, strict=True))


def test_identities_are_listed(site):
    done = weir("identity", "list", "--data", str(site.data))
    assert done.returncode == 0 and "ana" in done.stdout and "nils" in done.stdout, done
    shown = weir("identity", "show", "ana", "--data", str(site.data)).stdout
    number = shown.split()[-1]
    renamed = weir("identity", "rename", "ana", "anna", "--data", str(site.data))
    assert renamed.returncode == 0 and number in renamed.stdout, renamed
    site.fs("keeper", "mkdir", "-p", "/renamed").ok()
    site.weir("keeper", "chown", "anna", f"{site.url}//renamed").ok()
    assert "Owner:  anna" in site.fs("keeper", "stat", "/renamed").ok().out
    back = weir("identity", "rename", "anna", "ana", "--data", str(site.data))
    assert back.returncode == 0, back
    assert "Owner:  ana" in site.fs("keeper", "stat", "/renamed").ok().out


def test_a_scope_ends_where_links_and_dots_lead_out(site):
    """`reads` may read below /m, and everything there is open to all."""
    site.fresh()
    site.fs("keeper", "mkdir", "-p", "-mrwxrwxrwx", "/out/side").ok()
    site.put("keeper", "/out/side/file").ok()
    for name, target in (("absolute", "/out/side"), ("relative", "../out/side"), ("inside", "d")):
        site.fs("keeper", "rm", f"/m/{name}")
        site.weir("keeper", "ln", "-s", target, f"{site.url}//m/{name}").ok()
    for path in ("/out/side/file", "/m/absolute/file", "/m/relative/file", "/m/../out/side/file", "/mm", "/m/absolute/gone"):
        for arguments in (["stat", path], ["cat", path], ["query", "checksum", path]):
            refused = site.fs("reads", *arguments)
            assert refused.code != 0, (path, refused)
            assert "not found" not in (refused.out + refused.err).lower() or ".." in path, (path, refused)
    site.fs("reads", "stat", "/m/inside/f").ok()
    site.fs("keeper", "stat", "/m/absolute/file").ok()


def test_inherited_acls_let_a_group_share(site):
    site.fs("keeper", "rmdir", "/m/share")
    site.fs("keeper", "mkdir", "-p", "-mrwxr-x---", "/m/share").ok()
    site.fs("keeper", "rm", "/m/share/one")
    url = f"{site.url}//m/share"
    site.weir("keeper", "acl", "set", "-m", "group:cms:rwx,default:group:cms:rw-", url).ok()
    assert "default:group:cms:rw-" in site.weir("keeper", "acl", "get", url).ok().out
    site.put("gus", "/m/share/one").ok()
    site.fs("gus", "stat", "/m/share/one").ok()
    assert site.fs("otto", "stat", "/m/share/one").code != 0
    site.weir("keeper", "acl", "set", "-b", url).ok()
    assert site.fs("gus", "ls", "/m/share").code != 0
    site.weir("keeper", "acl", "set", "-k", url).ok()
    assert "default" not in site.weir("keeper", "acl", "get", url).ok().out


def test_a_right_to_write_reads_nothing(site):
    """By a token with `storage.modify` alone, and by an ACL that gives `w` and no `r`."""
    site.fresh()
    path = "/m/d/f"
    site.weir("keeper", "acl", "set", "-m", "user:otto:--x", f"{site.url}//m/d").ok()
    site.weir("keeper", "acl", "set", "-m", "user:otto:-w-", f"{site.url}/{path}").ok()
    for who in ("modifies", "otto"):
        told = site.update(who, path)
        assert (told["open"], told["write"], told["close"]) == ("done", "done", "done"), (who, told)
        for request in ("read", "readv", "attributes"):
            assert "cannot read" in told[request].lower() or "not authorized" in told[request].lower(), (who, told)
        assert "data" not in told, (who, told)
    told = site.update("ana", path)
    assert all(told[request] == "done" for request in ("open", "write", "read", "readv", "attributes", "close")), told
    assert told["data"][5:8] == "new"
    assert "[" in site.update("creates", path)["open"], "a right to create opens no file of before"


def test_who_makes_a_file_reads_it_back(site):
    """As with open(2), through the handle that has made it: also by a token that may create files alone."""
    site.fresh()
    told = site.does("creates", sys.executable, Path(__file__).with_name("updater.py"), f"{site.url}//m/d/new", "new").ok().out
    assert all(json.loads(told)[request] == "done" for request in ("open", "write", "read", "close")), told
