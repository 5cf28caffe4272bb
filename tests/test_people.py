"""Administration by people: roles of principals and groups, by token from other machines and as users of this one, and owners of trees."""

import json
import os
import pwd
import re
import subprocess

import pytest
from harness import WEIR_BIN, Weir, remove, until
from people import DENIED, ROLES, Bearer, Site, cluster_of, settings_of, shared_folder, trusted_grid

# Users of every Debian machine, whose primary groups have their names.
LOCAL = {"viewer": "daemon", "operator": "bin", "owner": "games", "nobody": "mail"}


@pytest.fixture(scope="module")
def shared():
    with shared_folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def settings(authority, issuer, base):
    return settings_of(authority, issuer, trusted_grid(authority, base / "people-grid"))


@pytest.fixture(scope="module", params=["node", "cluster"])
def site(request, base, settings, shared):
    if request.param == "cluster":
        with cluster_of(base, "people-cluster", settings, shared) as site:
            yield site
        return
    home = base / "people-node"
    config, socket = base / "people-node.toml", shared / "node.socket"
    config.write_text(settings(socket))
    server = Weir(home, None, ("--config", str(config))).start()
    yield Site(server, shared, socket, config, home)
    server.kill()
    remove(home)


cluster_alone = pytest.mark.parametrize("site", ["cluster"], indirect=True)


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
