"""Shared secrets (`sss`): keytabs of `xrdsssadmin`, the stock client and ours, a stock server, and credentials of thieves."""

import os
import re
import signal
import struct
import subprocess
import time

import pytest
import raw
from authority import Authority
from clients import run
from content import write
from harness import WEIR_BIN, weir
from secrets_of import SEND_LOGIN, add_key, credential, item, keys, write_keytab
from stock import SssXrootd
from test_third_party import digest

NOT_NOW = 3012  # kXR_ServerError: the client may try again
RULES = """
[[identity]]
secret = "boss"
principal = "admin"
[[identity]]
secret = "any"
user = "eve"
refuse = true
[[identity]]
secret = "any"
principal = "any-{user}"
groups = ["{groups}"]
[[identity]]
secret = "*"
principal = "{user}"
groups = ["{groups}"]
"""


@pytest.fixture(scope="module")
def keytab(base):
    """The secrets of the node."""
    path = base / "sss-server.keytab"
    add_key(path, "boss", "keeper", "staff")
    add_key(path, "daq", "daq", "online", length=16)
    add_key(path, "long", "long", length=128)
    add_key(path, "any", "anybody", "anygroup")
    add_key(path, "all", "allusers", "usrgroup")
    add_key(path, "farm+", "farm", "online")
    return path


@pytest.fixture
def served(own_node, keytab, tmp_path):
    """Starts a node with a keytab of its own."""

    def start(more: str = ""):
        own = write_keytab(tmp_path / "node.keytab", keys(keytab).values())
        config = tmp_path / "weir.toml"
        config.write_text(f'{more}authentication.mechanisms = ["sss"]\nauthentication.keytab = "{own}"\n{RULES}')
        node = own_node("--config", str(config))
        node.keytab = own
        return node

    return start


@pytest.fixture
def node(served):
    return served()


@pytest.fixture
def held(keytab, tmp_path):
    """The environment of somebody who has one secret."""

    def environment(name: str, variable: str = "XrdSecSSSKT"):
        path = keys(keytab)[name].alone(tmp_path / f"{name}.keytab")
        return ["env", "-u", "XrdSecSSSKT", "-u", "XrdSecsssKT", f"HOME={tmp_path}", f"{variable}={path}"]

    return environment


def log_in(port: int, shown: bytes, machine: str = "127.0.0.1") -> tuple[raw.Raw, raw.Answer]:
    """What the server answers to this credential."""
    client = raw.Raw(port, login=False, machine=machine)
    client.handshake()
    offer = client.request(raw.LOGIN, struct.pack(">i8sBBBB", 7, b"eve", 0, 0, 5, 0))
    assert b"&P=sss,0.+13:" in offer.body, offer
    return client, client.request(raw.AUTH, bytes(12) + b"sss\0", shown)


def refused(port: int, shown: bytes, machine: str = "127.0.0.1") -> str:
    client, answer = log_in(port, shown, machine)
    assert answer.error is not None, answer
    assert client.request(raw.STAT, bytes(16), b"/").error is not None
    return answer.text


def accepted(port: int, shown: bytes, machine: str = "127.0.0.1") -> raw.Raw:
    client, answer = log_in(port, shown, machine)
    assert answer.status == raw.OK, answer
    return client


@pytest.mark.parametrize("variable", ["XrdSecSSSKT", "XrdSecsssKT"])
def test_the_stock_client_logs_in_with_its_keytab(node, held, tmp_path, variable):
    source, back = write(tmp_path / "source", "sss", 300_000), tmp_path / "back"
    run([*held("boss", variable), "xrdfs", node.url, "mkdir", "-mrwxrwxrwx", "/shared"]).ok()
    run([*held("boss", variable), "xrdfs", node.url, "chmod", "/shared", "rwxrwxrwx"]).ok()
    for name, user in (("daq", "daq"), ("long", "long"), ("farm+", "farm")):
        run([*held(name, variable), "xrdcp", "-f", str(source), f"{node.url}//shared/{user}"]).ok()
        run([*held(name, variable), "xrdcp", "-f", f"{node.url}//shared/{user}", str(back)]).ok()
        assert digest(back) == digest(source)
        assert f"Owner:  {user}" in run([*held("boss"), "xrdfs", node.url, "stat", f"/shared/{user}"]).ok().out
    assert run([*held("daq", variable), "xrdfs", node.url, "mkdir", "/top"]).code != 0


def test_the_stock_client_finds_the_keytab_at_home(node, keytab, tmp_path):
    (tmp_path / ".xrd").mkdir()
    home = keys(keytab)["daq"].alone(tmp_path / ".xrd" / "sss.keytab")
    command = ["env", "-u", "XrdSecSSSKT", "-u", "XrdSecsssKT", f"HOME={tmp_path}"]
    run([*command, "xrdfs", node.url, "stat", "/"]).ok()
    assert weir_run(command, "ls", f"{node.url}//").code == 0
    home.unlink()
    assert run([*command, "xrdfs", node.url, "stat", "/"]).code != 0
    why = weir_run(command, "ls", f"{node.url}//")
    assert why.code != 0 and "XrdSecSSSKT" in why.err, why


def weir_run(command: list[str], *arguments: str):
    return run([*command, WEIR_BIN, *arguments])


def test_our_client_logs_in_with_its_keytab(node, held, tmp_path):
    source, back = write(tmp_path / "source", "sss", 300_000), tmp_path / "back"
    for name in ("boss", "farm+"):
        for variable in ("XrdSecSSSKT", "XrdSecsssKT"):
            assert weir_run(held(name, variable), "ls", f"{node.url}//").code == 0
    assert weir_run(held("boss"), "cp", str(source), f"{node.url}//file").code == 0
    assert weir_run(held("boss"), "cp", "--force", f"{node.url}//file", str(back)).code == 0
    assert digest(back) == digest(source)
    # A keytab that others may read is not used.
    environment = held("daq")
    os.chmod(environment[-1].split("=", 1)[1], 0o644)
    why = weir_run(environment, "ls", f"{node.url}//")
    assert why.code != 0 and "chmod 600" in why.err, why


def test_both_clients_use_the_same_key_of_several(talkative, keytab, tmp_path):
    node, mine = talkative, keys(keytab)
    for number, names in enumerate((["daq", "long"], ["long", "daq"], ["farm+", "boss", "daq"])):
        path = write_keytab(tmp_path / f"several-{number}", [mine[name] for name in names])
        for command in (["xrdfs", node.url, "stat", "/"], [WEIR_BIN, "ls", f"{node.url}//"]):
            run(["env", "XrdSecDEBUG=1", f"XrdSecSSSKT={path}", *command]).ok()
    lines = logins(node)
    assert len(lines) == 6 and lines[0::2] == lines[1::2] and len(set(lines)) == 2, lines


def logins(node) -> list[str]:
    """Not the texts of refusals: who was let in, as the log of a node that says much has it."""
    return re.findall(r"authenticated.*?principal=(\S+)", node.log.read_text())


@pytest.fixture
def talkative(served):
    return served('log = "debug"\n')


def test_our_client_logs_in_at_a_stock_server(base, keytab, held, tmp_path):
    source, back = write(tmp_path / "source", "stock", 3_000_017), tmp_path / "back"
    with SssXrootd(base / "stock-sss", keys(keytab).values()) as server:
        for name in ("daq", "long", "any", "farm+"):
            for host in ("localhost", "127.0.0.1"):
                url = f"root://{host}:{server.port}"
                assert weir_run(held(name), "cp", "--force", str(source), f"{url}//{name}").code == 0, server.log_text()
                assert weir_run(held(name), "cp", "--force", f"{url}//{name}", str(back)).code == 0
                assert digest(back) == digest(source)
        stranger = tmp_path / "stranger.keytab"
        add_key(stranger, "daq", "daq", "online")
        why = weir_run(["env", f"XrdSecSSSKT={stranger}"], "ls", f"root://localhost:{server.port}//")
        assert why.code != 0 and "sss" in why.err, why


def test_a_key_for_any_user_lets_its_holder_choose(node, keytab):
    mine = keys(keytab)
    for name, user, groups, listed in (("any", "ana", "atlas cms", True), ("all", "ben", "atlas", True), ("any", "eve", None, False)):
        shown = credential(mine[name], user=user, groups=groups)
        if listed:
            accepted(node.port, shown)
        else:
            assert "refuse = true" in refused(node.port, shown)
    names = weir("identity", "list", "--data", str(node.data)).stdout
    assert "any-ana" in names and re.search(r"^ben\s", names, re.M) and "eve" not in names, names
    groups = weir("identity", "list", "--group", "--data", str(node.data)).stdout
    assert "atlas" in groups and "cms" in groups, groups
    # A key of a user does not.
    accepted(node.port, credential(mine["daq"], user="admin", groups="wheel"))
    assert "wheel" not in weir("identity", "list", "--group", "--data", str(node.data)).stdout
    # And nobody chooses to be the administrator.
    assert "admin" in refused(node.port, credential(mine["all"], user="admin"))


def test_credentials_that_do_not_count_are_refused(node, keytab, tmp_path):
    mine = keys(keytab)
    daq, other = mine["daq"], tmp_path / "other.keytab"
    add_key(other, "daq", "daq", "online")
    stranger = keys(other)["daq"]
    good = credential(daq)
    accepted(node.port, good)
    # Which keys there are is not told.
    hidden = {
        refused(node.port, credential(stranger)),
        refused(node.port, credential(stranger, number=daq.number)),
        refused(node.port, credential(daq, number=stranger.number)),
        refused(node.port, credential(daq, name="boss")),
        refused(node.port, credential(daq)[:-1]),
    }
    assert len(hidden) == 1 and "shared secret is not accepted" in hidden.pop()
    for shown, reason in (
        (good, "used before"),
        (good[:4] + b"\1\1" + good[6:], "used before"),
        (credential(daq, made=-60), "clocks"),
        (credential(daq, made=-24), "clocks"),
        (credential(daq, made=12), "clocks"),
        (credential(daq, made=3600), "clocks"),
        (credential(daq, address=None), "address"),
        (credential(daq, address="pc.example.org"), "address"),
        (credential(daq, address="[::ffff:127.0.0.2]"), "127.0.0.2"),
        (credential(daq, options=SEND_LOGIN), "TLS"),
        (credential(daq, more=b"\x01\xff\xffab"), "sss"),
        (credential(mine["any"], more=item(1, b"ben")), "twice"),
        (b"", "sss"),
        (b"sss\0", "sss"),
        (good[:60], "sss"),
        (b"sss\0" + bytes(40_000), "sss"),
    ):
        assert reason in refused(node.port, shown), (reason, shown[:64])
    accepted(node.port, credential(daq, made=9))
    log = node.log.read_text()
    assert f"{stranger.number}" in log, "the operator learns which key it was"
    assert all(key.part("k") not in log for key in mine.values())


def test_a_credential_counts_from_one_address_unless_its_key_is_for_all(node, keytab):
    mine = keys(keytab)
    stolen = credential(mine["daq"])
    assert "127.0.0.2" in refused(node.port, stolen, machine="127.0.0.2")
    accepted(node.port, stolen)
    accepted(node.port, credential(mine["farm+"]), machine="127.0.0.2")
    accepted(node.port, credential(mine["daq"], address="[::127.0.0.1]:1234"))


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_credential_does_not_count_again_after_a_restart(served, held, keytab, end):
    node = served()
    daq = keys(keytab)["daq"]
    shown = credential(daq)
    accepted(node.port, shown)
    time.sleep(1.1)  # credentials have whole seconds
    getattr(node, end)()
    node.start()
    assert "try again in" in refused(node.port, shown)
    # Who has a clock that is right need not wait.
    run([*held("daq"), "xrdfs", node.url, "stat", "/"]).ok()
    assert weir_run(held("daq"), "ls", f"{node.url}//").code == 0


def test_nor_one_that_was_made_by_a_clock_that_is_ahead(served, keytab):
    node = served()
    daq = keys(keytab)["daq"]
    early = credential(daq, made=9)
    accepted(node.port, early)
    node.kill()
    node.start()
    _, answer = log_in(node.port, early)
    assert answer.error == NOT_NOW and "try again in" in answer.text, answer
    assert (node.data / "seen-secrets").stat().st_mode & 0o777 == 0o600
    time.sleep(10.1)
    assert "try again in" in refused(node.port, early)
    accepted(node.port, credential(daq))


def test_after_a_crash_of_the_machine_a_node_trusts_nobody_at_once(served, keytab):
    node = served()
    daq = keys(keytab)["daq"]
    accepted(node.port, credential(daq))
    node.kill()
    seen = node.data / "seen-secrets"
    seen.write_text(f"{'0' * 36} {seen.read_text().split()[1]}\n")
    node.start()
    assert "try again in" in refused(node.port, credential(daq))
    assert "try again in" in refused(node.port, credential(daq, made=5))
    time.sleep(11)
    accepted(node.port, credential(daq))


def test_an_address_cannot_try_as_often_as_it_wants(served, keytab, tmp_path):
    node = served()
    mine = keys(keytab)
    add_key(other := tmp_path / "other.keytab", "daq", "daq", "online")
    for _ in range(20):
        assert "not accepted" in refused(node.port, credential(keys(other)["daq"], number=mine["daq"].number))
    _, answer = log_in(node.port, credential(mine["daq"]))
    assert answer.error == NOT_NOW and "try again in a minute" in answer.text, answer
    accepted(node.port, credential(mine["farm+"]), machine="127.0.0.2")


def test_bytes_that_clients_leave_zero_must_be_zero(node, keytab):
    daq = keys(keytab)["daq"]
    assert "not accepted" in refused(node.port, credential(daq, padding=b"\0\1\0"))
    accepted(node.port, credential(daq))


def reload(node, expected: str) -> None:
    length = len(node.log.read_text())
    node.process.send_signal(signal.SIGHUP)
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if expected in (added := node.log.read_text()[length:]):
            return
        time.sleep(0.05)
    raise AssertionError(f"{expected!r} not in {added!r}")


def test_keys_are_revoked_and_added_by_a_reload(node, keytab, tmp_path):
    mine = keys(keytab)
    write_keytab(node.keytab, [mine["boss"]])
    kept = credential(mine["boss"])
    accepted(node.port, kept)
    accepted(node.port, credential(mine["daq"]))
    reload(node, "SIGHUP: ")
    assert "not accepted" in refused(node.port, credential(mine["daq"]))
    # A reload forgets no credential.
    assert "used before" in refused(node.port, kept)
    # A keytab that cannot be used changes nothing.
    node.keytab.chmod(0o644)
    reload(node, "chmod 600")
    accepted(node.port, credential(mine["boss"]))
    add_key(new := tmp_path / "new.keytab", "new", "new")
    write_keytab(node.keytab, [*mine.values(), keys(new)["new"]])
    reload(node, "SIGHUP: ")
    accepted(node.port, credential(keys(new)["new"]))
    accepted(node.port, credential(mine["daq"]))


def test_a_key_ends(served, keytab, tmp_path):
    node = served()
    mine = keys(keytab)
    ending = mine["daq"].line.replace("e:0", f"e:{int(time.time()) + 3}")
    node.keytab.write_text(f"{ending}\n{mine['boss'].line}\n")
    reload(node, "SIGHUP: ")
    client = accepted(node.port, credential(mine["daq"]))
    assert client.stat(b"/").status == raw.OK
    time.sleep(4)
    assert "not accepted" in refused(node.port, credential(mine["daq"]))
    assert "ended" in client.stat(b"/").text
    accepted(node.port, credential(mine["boss"]))


@pytest.mark.parametrize(
    ("mode", "text", "why"),
    [
        (0o644, None, "chmod 600"),
        (0o640, None, "chmod 600"),
        (0o600, "nonsense", "line 1"),
        (0o600, "", "no key"),
        (0o600, "0 N:1 k:0011223344556677", "8 bytes"),
    ],
)
def test_keytabs_that_cannot_be_used_are_refused(keytab, tmp_path, mode, text, why):
    own = tmp_path / "keytab"
    own.write_text(keytab.read_text() if text is None else text)
    own.chmod(mode)
    config = tmp_path / "weir.toml"
    config.write_text(f'authentication.mechanisms = ["sss"]\nauthentication.keytab = "{own}"\n{RULES}')
    done = weir("serve", "--check", "--config", str(config), "--data", str(tmp_path / "data"))
    assert done.returncode != 0 and why in done.stderr, done


def test_a_shared_secret_is_a_proof_so_the_node_may_listen_on_the_network(keytab, tmp_path):
    own = write_keytab(tmp_path / "node.keytab", keys(keytab).values())
    config = tmp_path / "weir.toml"
    for more, code in ((f'authentication.keytab = "{own}"\n', 0), ("", 7)):
        config.write_text(f'listen = "0.0.0.0:0"\nauthentication.mechanisms = ["sss"]\n{more}{RULES}')
        done = weir("serve", "--check", "--config", str(config), "--data", str(tmp_path / "data"))
        assert (done.returncode == 0) == (code == 0), done
    assert "keytab" in done.stderr, done


def test_over_tls(own_node, base, keytab, held, tmp_path, monkeypatch):
    (tmp_path / "authority").mkdir()
    authority = Authority(tmp_path / "authority")
    monkeypatch.setenv("X509_CERT_DIR", str(authority.trusted))
    certificate, key = authority.issue("node")
    own = write_keytab(tmp_path / "node.keytab", keys(keytab).values())
    config = tmp_path / "weir.toml"
    config.write_text(
        f'tls.certificate = "{certificate}"\ntls.key = "{key}"\ntls.required = ["login", "data"]\n'
        f'authentication.mechanisms = ["sss"]\nauthentication.keytab = "{own}"\n{RULES}'
    )
    node = own_node("--config", str(config))
    url = f"roots://localhost:{node.port}"
    run([*held("daq"), "xrdfs", url, "stat", "/"]).ok()
    assert weir_run(held("daq"), "ls", f"{url}//").code == 0


def test_other_clients_of_xrootd(node, held, tmp_path):
    """The client of PyPI, in a process of its own."""
    import sys

    script = (
        "import sys; from XRootD import client; status, about = client.FileSystem(sys.argv[1]).stat('/'); "
        "print(status.message); sys.exit(not status.ok)"
    )
    done = subprocess.run([*held("daq"), sys.executable, "-c", script, node.url], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done
    stranger = tmp_path / "stranger.keytab"
    add_key(stranger, "daq", "daq")
    done = subprocess.run(
        ["env", f"XrdSecSSSKT={stranger}", sys.executable, "-c", script, node.url], capture_output=True, text=True, timeout=60
    )
    assert done.returncode != 0, done
