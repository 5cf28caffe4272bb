"""`weir explain`: the rule that decides is the one by which the stock client is let through or refused, on a node and on a cluster."""

import json

import pytest
from authority import HOSTS
from clients import run
from cluster import Cluster
from content import write
from harness import WEIR_BIN, Weir, remove, weir
from issuer import trusting

ALL = "storage.read:/ storage.modify:/"
USERS = {"keeper": [], "ana": [], "mia": ["atlas"], "nils": [], "gus": ["cms"], "otto": []}


@pytest.fixture(scope="module")
def config(authority, issuer, base):
    path = base / "explain.toml"
    tls = authority.issue("explain", HOSTS)
    path.write_text(trusting(issuer, authority, tls, of_issuer='groups = "always"', of_rule='groups = ["{groups}"]'))
    return path


class Site:
    def __init__(self, url, data, issuer, tmp_path, trusted):
        self.url, self.data, self.issuer, self.tmp_path, self.trusted = url, data, issuer, tmp_path, trusted
        self.source = write(tmp_path / "source", "explain", 1000)

    def does(self, who, *command, scope=ALL):
        claims = {"wlcg.groups": [f"/{group}" for group in USERS[who]]} if USERS[who] else {}
        token = self.issuer.token(who, scope, **claims)
        return run(["env", f"BEARER_TOKEN={token}", f"X509_CERT_DIR={self.trusted}", *map(str, command)])

    def fs(self, who, *arguments, **more):
        return self.does(who, "xrdfs", self.url, *arguments, **more)

    def put(self, who, path):
        return self.does(who, "xrdcp", "-f", self.source, f"{self.url}/{path}")

    def asked(self, who, operation, path, *more):
        groups = [word for group in USERS.get(who, []) for word in ("--group", group)]
        name = "admin" if who == "keeper" else who
        return weir("explain", path, "--as", name, "--do", operation, *groups, *more, "--json", "--data", str(self.data))

    def explained(self, who, operation, path, *more):
        done = self.asked(who, operation, path, *more)
        assert done.returncode in (0, 8, 13) or done.stdout, done
        return json.loads(done.stdout)


@pytest.fixture(scope="module", params=["node", "cluster"])
def served(request, base, config):
    if request.param == "cluster":
        with Cluster(base / "explain", 1, ("--config", str(config))) as cluster:
            yield f"roots://127.0.0.1:{cluster.manager.port}", cluster.manager.home / "data"
        remove(base / "explain")
        return
    server = Weir(base / "explain-node", None, ("--config", str(config))).start()
    yield f"roots://127.0.0.1:{server.port}", server.data
    server.kill()
    remove(server.home)


@pytest.fixture(scope="module")
def prepared(served, issuer, authority, base):
    home = base / f"explain-{served[0].rsplit(':', 1)[1]}"
    home.mkdir()
    site = Site(*served, issuer, home, authority.trusted)
    for arguments in (["ana"], ["mia"], ["nils"], ["gus"], ["otto"], ["--group", "atlas"], ["--group", "cms"]):
        assert weir("identity", "add", *arguments, "--data", str(site.data)).returncode == 0
    site.fs("keeper", "mkdir", "-p", "-mrwxr-xr-x", "/e/d").ok()
    site.fs("keeper", "mkdir", "-p", "-mrwxr-x---", "/e/closed").ok()
    site.put("keeper", "/e/d/f").ok()
    site.put("keeper", "/e/closed/f").ok()
    for path in ("/e/d/f", "/e/closed", "/e/closed/f"):
        site.does("keeper", WEIR_BIN, "chown", "ana:atlas", f"{site.url}/{path}").ok()
    site.fs("keeper", "chmod", "/e/d/f", "rw-r-----").ok()
    site.does("keeper", WEIR_BIN, "acl", "set", "-m", "user:nils:rw-,group:cms:r--,mask::r--", f"{site.url}//e/d/f").ok()
    return site


@pytest.fixture
def site(prepared):
    return prepared


def test_each_answer_is_what_the_stock_client_gets(site):
    different = []
    for who in USERS:
        for operation, path, command in (
            ("stat", "/e/d/f", ["xrdfs", site.url, "stat", "/e/d/f"]),
            ("stat", "/e/closed/f", ["xrdfs", site.url, "stat", "/e/closed/f"]),
            ("stat", "/e/closed/gone", ["xrdfs", site.url, "stat", "/e/closed/gone"]),
            ("read", "/e/d/f", ["xrdcp", "-f", f"{site.url}//e/d/f", site.tmp_path / "back"]),
            ("read", "/e/closed/f", ["xrdcp", "-f", f"{site.url}//e/closed/f", site.tmp_path / "back"]),
            ("list", "/e/closed", ["xrdfs", site.url, "ls", "-l", "/e/closed"]),
            ("write", "/e/d/f", ["xrdfs", site.url, "truncate", "/e/d/f", "1000"]),
            ("chmod", "/e/closed", ["xrdfs", site.url, "chmod", "/e/closed", "rwxr-x---"]),
            ("remove", "/e/d", ["xrdfs", site.url, "rmdir", "/e/d"]),
        ):
            view = site.explained(who, operation, path)
            done = site.does(who, *command)
            said = (done.out + done.err).lower()
            is_denied = done.code != 0 and ("denied" in said or "[3010]" in said)
            if view["allowed"] == is_denied or (view["allowed"] and (view["otherwise"] is None) != (done.code == 0)):
                different.append((who, operation, path, view, done))
    assert not different, different


@pytest.mark.parametrize(
    ("who", "operation", "path", "rule"),
    [
        ("keeper", "write", "/e/closed/f", "the administrator may do everything"),
        ("ana", "read", "/e/d/f", "gives owner r, and you are ana"),
        ("mia", "read", "/e/closed/f", "gives group r, and you are mia"),
        ("nils", "read", "/e/d/f", "the ACL's entry user:nils:rw- and the mask r-- give r, and you are nils"),
        ("nils", "write", "/e/d/f", "the ACL's entry user:nils:rw- and the mask r-- give no w, and you are nils"),
        ("gus", "read", "/e/d/f", "the ACL's entry group:cms:r-- and the mask r-- give r, and you are gus"),
        ("otto", "read", "/e/d/f", "the ACL's entry other::--- gives no r, and you are otto"),
        ("otto", "stat", "/e/closed/f", "mode 0750 of owner ana group atlas gives others no x, and you are otto"),
        ("otto", "chmod", "/e/d/f", "only its owner (ana) may, you are otto"),
        ("ana", "chown", "/e/d/f", "only the administrator may change a file's owner"),
        ("otto", "create", "/e/d/new", "mode 0755 of owner admin group admin gives others no w, and you are otto"),
    ],
)
def test_the_rule_is_named_with_names(site, who, operation, path, rule):
    view = site.explained(who, operation, path)
    assert rule in view["rule"], view
    shown = weir("explain", path, "--as", "admin", "--do", operation, "--data", str(site.data))
    assert shown.stdout.strip().splitlines()[-1].startswith(("allowed:", "It would")), shown


def test_the_search_permission_that_is_missing_is_at_its_directory(site):
    view = site.explained("otto", "read", "/e/closed/f")
    last = view["steps"][-1]
    assert (last["place"], last["needs"], last["allowed"]) == ("/e/closed", "x", False), view
    assert [(step["place"], step["allowed"]) for step in view["steps"][:-1]] == [("/", True), ("/e", True)], view


def test_scopes_limit_and_nothing_is_changed(site):
    view = site.explained("ana", "read", "/e/d/f", "--scope", "storage.read:/other")
    assert not view["allowed"] and "storage.read:/other" in view["rule"], view
    assert site.explained("ana", "read", "/e/d/f", "--scope", "storage.read:/e")["allowed"]
    before = site.fs("keeper", "ls", "-lR", "/e").ok().out
    for operation, path, more in (
        ("remove", "/e/d/f", ()),
        ("rename", "/e/d/f", ("--to", "/e/d/g")),
        ("mkdir", "/e/d/sub", ()),
        ("create", "/e/d/new", ()),
        ("replace", "/e/d/f", ()),
        ("chown", "/e/d/f", ()),
        ("set-acl", "/e/d/f", ()),
        ("symlink", "/e/d/link", ()),
    ):
        view = site.explained("keeper", operation, path, *more)
        assert view["allowed"] and view["otherwise"] is None, (operation, view)
    assert site.fs("keeper", "ls", "-lR", "/e").ok().out == before
    assert "user:nils:rw-" in site.does("keeper", WEIR_BIN, "acl", "get", f"{site.url}//e/d/f").ok().out


def test_who_asks_wrongly_learns_why(site):
    done = site.asked("nobody-here", "stat", "/e")
    assert done.returncode != 0 and "No user is called nobody-here" in done.stderr, done
    done = weir("explain", "/e", "--as", "ana", "--do", "dance", "--data", str(site.data))
    assert done.returncode == 2 and "it is one of stat" in done.stderr, done
    done = weir("explain", "/e", "--as", "ana", "--do", "rename", "--data", str(site.data))
    assert done.returncode != 0 and "give a new name" in done.stderr, done


def test_denials_of_clients_have_names(site):
    refused = site.fs("otto", "chmod", "/e/d/f", "rwxrwxrwx")
    assert "only its owner (ana) may, you are otto" in refused.out + refused.err, refused
    # Whether the name is there or not, the answer is the same.
    there, gone = (site.fs("otto", "stat", f"/e/closed/{name}") for name in ("f", "gone"))
    assert (there.out + there.err).replace("closed/f", "") == (gone.out + gone.err).replace("closed/gone", ""), (there, gone)
