"""Kerberos: the stock client logs in with tickets of a KDC on this machine, and whoever must not get in does not."""

import os
import shutil
import struct
import time

import pytest
import raw
from authority import HOSTS, Authority
from clients import run
from cluster import Cluster
from content import write
from harness import remove, weir
from kdc import ENCTYPES, REALM, Kdc
from test_gsi import Recorder

pytestmark = pytest.mark.skipif(
    shutil.which("krb5kdc", path=f"{os.environ['PATH']}:/usr/sbin") is None, reason="needs krb5-kdc, krb5-admin-server and krb5-user"
)
SERVICE = "xrootd/localhost"


@pytest.fixture(scope="module")
def kdc(base):
    kdc = Kdc(base / "kdc")
    for user in ("ana", "ben", "keeper/admin"):
        kdc.add_user(user)
    kdc.add_service(SERVICE, base / "kdc" / "service.keytab")
    yield kdc
    kdc.stop()


def rules(kdc, folder, more: str = "", keytab=None):
    """The configuration of a node."""
    own, config = folder / "keytab", folder / "weir.toml"
    shutil.copy(keytab or kdc.home / "service.keytab", own)
    own.chmod(0o600)
    config.write_text(
        f"""
{more}
authentication.mechanisms = ["krb5"]
authentication.kerberos_keytab = "{own}"
[[identity]]
kerberos = "keeper/admin@{REALM}"
principal = "admin"
[[identity]]
kerberos = "ben@{REALM}"
refuse = true
[[identity]]
kerberos = "*@{REALM}"
principal = "{{user}}"
"""
    )
    return config


@pytest.fixture
def served(own_node, kdc, tmp_path):
    def start(keytab=None):
        config = rules(kdc, tmp_path, keytab=keytab)
        node = own_node("--config", str(config), "--metrics", "127.0.0.1:0")
        node.config = config
        return node

    return start


def fs(node, tickets, *arguments: str, port: int | None = None):
    environment = [f"{name}={value}" for name, value in tickets.environment.items()]
    return run(["env", *environment, "xrdfs", f"root://localhost:{port or node.port}", *arguments])


def refused(node, tickets, reason: str) -> None:
    """A login is refused, and the log says why."""
    before = len(node.log.read_text())
    outcome = fs(node, tickets, "stat", "/")
    assert outcome.code != 0, outcome
    added = node.log.read_text()[before:]
    assert reason in added, (outcome, added)


def logging_in(node) -> raw.Raw:
    """A connection that must show who it is."""
    client = raw.Raw(node.port, login=False)
    client.handshake()
    answer = client.request(raw.LOGIN, struct.pack(">i8sBBBB", 4242, b"raw", 0, 0, 5, 0))
    assert answer.status == raw.OK and answer.body[16:].rstrip(b"\0") == f"&P=krb5,{SERVICE}@{REALM}".encode(), answer
    return client


def show(client: raw.Raw, credential: bytes) -> raw.Answer:
    return client.request(raw.AUTH, bytes(12) + b"krb5", credential)


def recorded(node, tickets) -> bytes:
    """The credential of a good login."""
    recorder = Recorder(node.port)
    fs(node, tickets, "stat", "/", port=recorder.port).ok()
    (credential,) = recorder.credentials()
    return credential


@pytest.mark.parametrize("enctype", ENCTYPES)
def test_the_stock_client_logs_in_with_each_encryption_type(served, kdc, enctype, tmp_path):
    name = f"xrootd/{enctype}"
    keytab = kdc.add_service(name, tmp_path / "other.keytab", enctype)
    node = served(keytab)
    fs(node, kdc.tickets("ana"), "stat", "/").ok()


def test_principals_become_who_the_rules_say(served, kdc):
    node = served()
    keeper, ana = kdc.tickets("keeper/admin"), kdc.tickets("ana")
    fs(node, keeper, "mkdir", "/shared").ok()
    fs(node, keeper, "chmod", "/shared", "rwxrwxrwx").ok()
    fs(node, ana, "mkdir", "/shared/hers").ok()
    assert "Owner:  ana" in fs(node, ana, "stat", "/shared/hers").ok().out
    assert fs(node, ana, "mkdir", "/top").code != 0
    refused(node, kdc.tickets("ben"), f"ben@{REALM}")


def test_a_credential_counts_once_also_over_a_restart(served, kdc):
    node = served()
    credential = recorded(node, kdc.tickets("ana"))
    for _ in range(2):
        with logging_in(node) as client:
            answer = show(client, credential)
            assert answer.error is not None and "used before" in answer.text, answer
            assert client.stat("/").error is not None
    node.stop()
    assert (node.data / "seen-tickets").stat().st_mode & 0o777 == 0o600
    node.start()
    with logging_in(node) as client:
        answer = show(client, credential)
        assert answer.error is not None and "before the server's start" in answer.text, answer
    time.sleep(1.1)  # times are whole seconds
    fs(node, kdc.tickets("ana"), "stat", "/").ok()


def test_other_keys_and_other_services_are_refused(served, kdc, tmp_path):
    node = served()
    good = recorded(node, kdc.tickets("ana"))
    # The KDC has a newer key than the keytab.
    name, old = "xrootd/changing", tmp_path / "old.keytab"
    kdc.add_service(name, old)
    copy = shutil.copy(old, tmp_path / "copy.keytab")
    kdc.new_key(name, old)
    changed = served(copy)
    refused(changed, kdc.tickets("ana"), "and the keytab does not have that")
    # With the new one it works; a reload is enough.
    shutil.copy(old, tmp_path / "keytab")
    done = weir("reload", "--data", str(changed.data))
    assert done.returncode == 0, done
    fs(changed, kdc.tickets("ana"), "stat", "/").ok()
    # A ticket for another node.
    with logging_in_at(changed, name) as client:
        answer = show(client, good)
        assert answer.error is not None and f"is for {SERVICE}@{REALM}" in answer.text, answer
    # A key of the same version that is another one.
    changed.kill()
    other = kdc.home / "other.keytab"
    kdc.add_service("xrootd/elsewhere", other)
    wrong = bytearray(other.read_bytes())
    entries, at = [], 2
    while at < len(wrong):
        (length,) = struct.unpack(">i", wrong[at : at + 4])
        # The last byte of the key, before the four of its version.
        wrong[at + 4 + length - 5] ^= 0xFF
        entries.append(length)
        at += 4 + length
    assert len(entries) == len(ENCTYPES)
    (tmp_path / "wrong.keytab").write_bytes(wrong)
    refused(served(tmp_path / "wrong.keytab"), kdc.tickets("ana"), "cannot be decrypted with the keytab")


def logging_in_at(node, name: str) -> raw.Raw:
    client = raw.Raw(node.port, login=False)
    client.handshake()
    answer = client.request(raw.LOGIN, struct.pack(">i8sBBBB", 4242, b"raw", 0, 0, 5, 0))
    assert f"{name}@{REALM}".encode() in answer.body, answer
    return client


def test_clocks_and_ends_are_checked(served, kdc):
    node = served()
    short = kdc.tickets("ana", f"{SERVICE}@{REALM}", life="6s")
    fs(node, short, "stat", "/").ok()
    # With a clock that is further behind, the client would not use its ticket, which has not begun.
    for seconds, allowed in ((-200, True), (200, True), (400, False)):
        tickets = kdc.tickets("ana", f"{SERVICE}@{REALM}")
        tickets.shift_clock(seconds)
        if allowed:
            fs(node, tickets, "stat", "/").ok()
        else:
            refused(node, tickets, "differ by 40")
    time.sleep(7)
    # The client believes that its ticket has not ended.
    short.shift_clock(-60)
    refused(node, short, "the Kerberos ticket has ended")


def test_garbage_is_refused_and_disturbs_nobody(served, kdc):
    node = served()
    tickets = kdc.tickets("ana")
    credential = recorded(node, tickets)
    garbage = [
        b"",
        b"krb5",
        b"krb5\0",
        b"krb5\0\x6e\x84\xff\xff\xff\xff",
        credential[:-1],
        credential + b"\0",
        b"krb5\0" + os.urandom(60_000),
    ]
    garbage += [credential[:at] + bytes([credential[at] ^ 0x55]) + credential[at + 1 :] for at in range(5, len(credential), 23)]
    for wrong in garbage:
        with logging_in(node) as client:
            assert show(client, wrong).error is not None, wrong
            assert client.stat("/").error is not None
    assert node.alive()
    fs(node, tickets, "stat", "/").ok()


def test_the_configuration_must_make_sense(kdc, tmp_path):
    config = tmp_path / "weir.toml"
    both, damaged = tmp_path / "both.keytab", tmp_path / "damaged.keytab"
    shutil.copy(kdc.home / "service.keytab", both)
    kdc.add_service("host/localhost", both)
    damaged.write_bytes(b"0 N:1 k:00")
    for file in (both, damaged):
        file.chmod(0o600)
    keytab = lambda path: f'authentication.kerberos_keytab = "{path}"\n'  # noqa: E731
    for settings, reason in (
        ("", "`kerberos_keytab` must say where"),
        (keytab(tmp_path / "gone"), "cannot read the keytab"),
        (keytab(damaged), "not a keytab of Kerberos"),
        (keytab(both), "say with `kerberos_principal`"),
        (keytab(both) + 'authentication.kerberos_principal = "nfs/localhost@EXAMPLE.ORG"\n', "no key of nfs/localhost"),
    ):
        config.write_text('authentication.mechanisms = ["krb5"]\nidentity_default = "x"\n' + settings)
        done = weir("serve", "--data", str(tmp_path / "data"), "--config", str(config), "--listen", "127.0.0.1:0", timeout=30)
        assert done.returncode != 0 and reason in done.stderr, done


def test_over_tls(own_node, kdc, base, tmp_path):
    authority = Authority(tmp_path)
    certificate, key = authority.issue("krb5-tls", HOSTS)
    tls = f'tls.certificate = "{certificate}"\ntls.key = "{key}"\n'
    # Where requests must be signed, a mechanism without a key is offered in the clear on this machine only.
    config = rules(kdc, tmp_path, tls + 'authentication.signing = "standard"\n')
    node = own_node("--config", str(config))
    tickets = kdc.tickets("ana")
    for scheme in ("roots", "root"):
        environment = [f"{name}={value}" for name, value in (tickets.environment | {"X509_CERT_DIR": str(authority.trusted)}).items()]
        run(["env", *environment, "xrdfs", f"{scheme}://localhost:{node.port}", "stat", "/"]).ok()


def test_on_a_cluster(kdc, base, tmp_path):
    config = rules(kdc, tmp_path, "")
    with Cluster(base / "krb5-cluster", 2, ("--config", str(config))) as cluster:
        url = f"root://localhost:{cluster.manager.port}"
        source, back = write(tmp_path / "source", "a", 3_000_000), tmp_path / "back"
        keeper, ana = (
            ["env", *(f"{name}={value}" for name, value in kdc.tickets(user).environment.items())] for user in ("keeper/admin", "ana")
        )
        run([*keeper, "xrdfs", url, "mkdir", "/shared"]).ok()
        run([*keeper, "xrdfs", url, "chmod", "/shared", "rwxrwxrwx"]).ok()
        run([*ana, "xrdcp", str(source), f"{url}//shared/hers"]).ok()
        run([*ana, "xrdcp", f"{url}//shared/hers", str(back)]).ok()
        assert back.read_bytes() == source.read_bytes()
        assert "Owner:  ana" in run([*ana, "xrdfs", url, "stat", "/shared/hers"]).ok().out
        assert run([*ana, "xrdfs", url, "mkdir", "/top"]).code != 0
        nobody = [*ana[:1], "KRB5CCNAME=FILE:/nowhere", *(one for one in ana[1:] if not one.startswith("KRB5CCNAME"))]
        assert run([*nobody, "xrdfs", url, "stat", "/shared/hers"]).code != 0
    remove(cluster.home)
