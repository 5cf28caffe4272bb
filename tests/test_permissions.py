"""Who may do what: operations by owner, group, others, ACL entries and scopes of tokens, with stock clients, on a node and on a cluster.

The directory `/m/d` belongs to ana and the group atlas, with the mode rwxr-x---, and the file `f` in it with rw-r-----. ACLs
give nils rwx and rw-, and the group cms r-x and r--. The last three columns are ana with a token whose scope is less than all.
"""

import pytest
from authority import HOSTS
from clients import run
from cluster import Cluster
from content import write
from harness import WEIR_BIN, Weir, remove, weir
from issuer import trusting

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


@pytest.fixture(scope="module")
def config(authority, issuer, base):
    path = base / "permissions.toml"
    tls = authority.issue("permissions", HOSTS)
    path.write_text(trusting(issuer, authority, tls, of_issuer='groups = "always"', of_rule='groups = ["{groups}"]'))
    return path


@pytest.fixture(scope="module", params=["node", "cluster"])
def url(request, base, config):
    if request.param == "cluster":
        with Cluster(base / "permissions", 2, ("--config", str(config))) as cluster:
            yield f"roots://127.0.0.1:{cluster.manager.port}", cluster.manager.home / "data"
        remove(base / "permissions")
        return
    server = Weir(base / "permissions-node", None, ("--config", str(config))).start()
    yield f"roots://127.0.0.1:{server.port}", server.data
    server.kill()
    remove(server.home)


class Site:
    """What the users do there."""

    def __init__(self, url: str, data, issuer, tmp_path, trusted):
        self.url, self.data, self.tmp_path, self.trusted = url, data, tmp_path, trusted
        token = {name: {"scope": ALL, "sub": name, **claims} for name, claims in USERS.items()}
        self.tokens = {name: issuer.token(claims.pop("sub"), claims.pop("scope"), **claims) for name, claims in token.items()}
        self.source = write(tmp_path / "source", "m", 100_000)

    def does(self, who: str, *command):
        token = ["env", f"BEARER_TOKEN={self.tokens[who]}", f"X509_CERT_DIR={self.trusted}"]
        return run([*token, *map(str, command)])

    def fs(self, who: str, *arguments):
        return self.does(who, "xrdfs", self.url, *arguments)

    def weir(self, who: str, *arguments):
        return self.does(who, WEIR_BIN, *arguments)

    def put(self, who: str, path: str):
        return self.does(who, "xrdcp", "-f", self.source, f"{self.url}/{path}")

    def fresh(self) -> None:
        """The directory as the table expects it."""
        self.does("keeper", "xrdfs", self.url, "rm", "/m/d/new")
        for path in ("/m/d/new", "/m/d/moved"):
            self.fs("keeper", "rm", path)
        self.fs("keeper", "rmdir", "/m/d/sub")
        self.fs("keeper", "mkdir", "-p", "-mrwxr-xr-x", "/m").ok()
        self.fs("keeper", "mkdir", "-p", "/m/d").ok()
        for path in ("/m/d/f", "/m/d/victim"):
            self.put("keeper", path).ok()
        for path, mode, acl in (
            ("/m/d", "rwxr-x---", "user:nils:rwx,group:cms:r-x"),
            ("/m/d/f", "rw-r-----", "user:nils:rw-,group:cms:r--"),
            ("/m/d/victim", "rw-r-----", "user:nils:rw-,group:cms:r--"),
        ):
            self.weir("keeper", "chown", "ana:atlas", f"{self.url}/{path}").ok()
            self.fs("keeper", "chmod", path, mode).ok()
            self.weir("keeper", "acl", "set", "--replace", f"group::{'r-x' if path == '/m/d' else 'r--'},{acl}", f"{self.url}/{path}").ok()

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
    site = Site(*url, issuer, tmp_path, authority.trusted)
    for arguments in (["ana"], ["nils"], ["--group", "atlas"], ["--group", "cms"]):
        done = weir("identity", "add", *arguments, "--data", str(site.data))
        assert done.returncode == 0, done
    return site


@pytest.mark.parametrize("line", TABLE.strip().splitlines()[1:], ids=lambda line: line.split()[0])
def test_the_table_is_what_happens(site, line):
    operation, *expected = line.split()
    changes = operation not in ("stat", "list", "read", "checksum", "attribute", "acl", "chmod")
    site.fresh()
    found = []
    for who, may in zip(TABLE.split()[1:10], expected, strict=True):
        done = site.try_it(operation, who)
        found.append("yes" if done.code == 0 else "no")
        if done.code != 0:
            said = (done.out + done.err).lower()
            assert "denied" in said or "not allow" in said or "[3010]" in said or "may" in said, (who, done)
        if changes and may == "yes":
            site.fresh()
    assert found == expected, dict(zip(TABLE.split()[1:10], found, strict=True))


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
