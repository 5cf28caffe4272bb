"""Kill -9 under load with identities, permissions and quotas: several users share two trees, by shared secrets on a node and by tokens on a
cluster. Nothing that was acknowledged is lost, and the usage equals a recount."""

import json
import os
import random

import pytest
from authority import Authority
from cluster import Cluster
from harness import Weir, remove, weir
from issuer import AUDIENCE, SCOPES, Issuer
from secrets_of import add_key, keys
from sharers import GROUPS, KEEPER, Site, Users, amiss, kill_for, settle, strangers_to_rules

SEED, SECONDS = os.environ.get("IDENTITY_SEED", "24"), float(os.environ.get("IDENTITY_SECONDS", "8"))
USERS = 4
# What open writes of killed clients have reserved is given back soon.
SOON = 'grace_seconds = 2\nfiles.uploads_kept = "3s"\n'


def check(site: Site, users: Users) -> None:
    """What must be true when all nodes are back."""
    settle(site)
    print(f"seed {SEED}: acknowledged {users.done}, refused {users.refused}, without a kill: {users.unexpected[:5]}")
    assert amiss(site, users) == []
    assert strangers_to_rules(site, users, 8) == []
    # The judge itself notices a file that goes away behind its back, another owner, and an ACL that nobody has set.
    lost, given, opened = [file for file in users.files if file.settled and not file.may_be_interrupted][:3]
    site.fs(KEEPER, "rm", lost.settled.path).ok()
    site.weir(KEEPER, "chown", "admin", f"{site.url}/{given.settled.path}").ok()
    site.weir(KEEPER, "acl", "set", "-m", "user:cat:rwx", f"{site.url}/{opened.settled.path}").ok()
    found = amiss(site, users)
    assert len(found) == 3 and all(any(next(iter(sorted(file.names))) in text for text in found) for file in (lost, given, opened)), found


@pytest.fixture
def by_secrets(base, tmp_path):
    """A configuration with shared secrets, and the credentials of its users."""
    keytab = tmp_path / "node.keytab"
    for user in (KEEPER, *GROUPS):
        add_key(keytab, user, user, GROUPS.get(user, ("staff",))[0])
    groups = "".join(
        f'[[identity]]\nsecret = "{user}"\nprincipal = "{user}"\ngroups = {json.dumps(list(of))}\n' for user, of in GROUPS.items()
    )
    keeper = f'[[identity]]\nsecret = "{KEEPER}"\nprincipal = "admin"\n'
    config = tmp_path / "weir.toml"
    config.write_text(f'{SOON}authentication.mechanisms = ["sss"]\nauthentication.keytab = "{keytab}"\n{keeper}{groups}')
    held = {}
    for name, key in keys(keytab).items():
        held[name] = [f"XrdSecSSSKT={key.alone(tmp_path / f'{name}.keytab')}", "XrdSecPROTOCOL=sss"]
    return config, held


@pytest.mark.long
@pytest.mark.timeout(300 + SECONDS)
def test_a_node_keeps_what_it_acknowledged_and_counts_exactly(base, tmp_path, by_secrets):
    config, held = by_secrets
    pick = random.Random(SEED)
    server = Weir(base / "identity-kills", None, ("--config", str(config))).start()
    site = Site(server.url, server.data, held, tmp_path)
    site.prepare(USERS)

    def kill() -> None:
        server.kill()
        checked = weir("fsck", "--data", str(server.data))
        assert checked.returncode == 0, f"{checked.stdout}{checked.stderr}"
        server.start()

    with Users(site, SEED, USERS) as users:
        kills = kill_for(site, pick, SECONDS, kill, users.did_enough)
    print(f"{kills} kills")
    check(site, users)
    server.stop()
    assert weir("fsck", "--data", str(server.data)).returncode == 0
    remove(server.home)


@pytest.fixture
def by_tokens(base, tmp_path):
    """A configuration of all nodes of a cluster, and the credentials of its users."""
    authority = Authority(tmp_path)
    issuer = Issuer(tmp_path, authority.issue("issuer"))
    hosts = ",".join(["DNS:localhost", *(f"{kind}:127.0.0.{number}" for number in range(1, 5) for kind in ("DNS", "IP"))])
    certificate, key = authority.issue("nodes", hosts)
    rule = f'[[identity]]\nissuer = "{issuer.url}"\n'
    config = tmp_path / "weir.toml"
    config.write_text(
        f"""{SOON}
tls.certificate = "{certificate}"
tls.key = "{key}"
authentication.mechanisms = ["ztn"]
authentication.ca = "{authority.home / "ca.pem"}"
[[issuer]]
url = "{issuer.url}"
base_paths = ["/"]
audiences = ["{AUDIENCE}"]
groups = "always"
{rule}subject = "{KEEPER}"
principal = "admin"
{rule}principal = "{{subject}}"
groups = ["{{groups}}"]
"""
    )
    held = {}
    for user in (KEEPER, *GROUPS):
        groups = [f"/{group}" for group in GROUPS.get(user, ())]
        token = issuer.token(user, SCOPES, seconds=7200, **{"wlcg.groups": groups})
        held[user] = [f"BEARER_TOKEN={token}", f"X509_CERT_DIR={authority.trusted}", "XrdSecPROTOCOL=ztn"]
    yield config, held
    issuer.stop()


@pytest.mark.timeout(400 + SECONDS)
def test_a_cluster_keeps_what_it_acknowledged_and_counts_exactly(base, tmp_path, by_tokens):
    config, held = by_tokens
    pick = random.Random(SEED)
    home = base / "identity-kills-cluster"
    with Cluster(home, 3, ("--config", str(config))) as cluster:
        url = cluster.url.replace("root://", "roots://")
        site = Site(url, cluster.data, held, tmp_path)
        site.prepare(USERS)
        cluster.weir("policy", "set", "/", "replica(2)", "--data", cluster.data)

        def kill() -> None:
            # The manager has the names and quotas, so it dies more often.
            victim = pick.choice([cluster.manager, *cluster.nodes])
            victim.kill()
            victim.start()

        with Users(site, SEED, USERS) as users:
            kills = kill_for(site, pick, SECONDS, kill, users.did_enough)
        print(f"{kills} kills")
        cluster.wait_sessions()
        check(site, users)
        # The namespace recounts itself when it comes back from a backup.
        backup = tmp_path / "backup"
        done = weir("backup", "--data", cluster.data, str(backup))
        assert done.returncode == 0, done
    restored = weir("restore", str(backup), "--data", str(tmp_path / "restored"))
    assert restored.returncode == 0 and "the names agree with each other" in restored.stdout, restored
    remove(home)
