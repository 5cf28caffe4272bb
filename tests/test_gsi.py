"""Certificates and proxies: the stock client logs in by gsi, and whoever must not get in does not."""

import contextlib
import os
import shutil
import socket
import struct
import sys
import threading
import time

import pytest
import raw
from authority import Authority
from clients import run
from content import write
from gsi_servers import weir_settings
from harness import WEIR_BIN, weir
from proxies import User
from stock import GsiXrootd

AUTHMORE = 4002


@pytest.fixture(scope="module")
def users(authority):
    return User(authority, "ana"), User(authority, "ben"), User(authority, "keeper")


@pytest.fixture
def served(own_node, authority, tmp_path, monkeypatch):
    """Starts a node that trusts the authority."""
    monkeypatch.setenv("X509_CERT_DIR", str(authority.trusted))
    monkeypatch.setenv("XrdSecPROTOCOL", "gsi")
    # Without it, a client without a proxy asks for a passphrase.
    monkeypatch.setenv("X509_USER_PROXY", str(tmp_path / "none"))

    def start(more: str = "", hosts: str = "DNS:localhost,IP:127.0.0.1"):
        config = tmp_path / "weir.toml"
        voms = f'authentication.voms_servers = "{tmp_path / "vomsdir"}"'
        config.write_text(weir_settings(authority, tmp_path.name, f"{voms}\n{more}", hosts))
        node = own_node("--config", str(config))
        node.config = config
        return node

    return start


def fs(node, proxy, *arguments: str, **more: str):
    environment = [f"{name}={value}" for name, value in {"X509_USER_PROXY": proxy, **more}.items()]
    return run(["env", *environment, "xrdfs", f"root://localhost:{node.port}", *arguments])


def refused(node, proxy, reason: str):
    """A login is refused, and the log says why."""
    before = len(node.log.read_text())
    outcome = fs(node, proxy, "stat", "/")
    assert outcome.code != 0, outcome
    added = node.log.read_text()[before:]
    assert reason in added, added
    return outcome


def test_the_stock_client_logs_in_with_a_proxy(served, users, tmp_path):
    node, (ana, _, keeper) = served(), users
    proxy, of_keeper = ana.proxy(), keeper.proxy()
    fs(node, of_keeper, "query", "config", "version").ok()
    fs(node, of_keeper, "mkdir", "/shared").ok()
    fs(node, of_keeper, "chmod", "/shared", "rwxrwxrwx").ok()
    source, back = write(tmp_path / "source", "ana", 300_000), tmp_path / "back"
    url = f"root://localhost:{node.port}//shared/file"
    run(["env", f"X509_USER_PROXY={proxy}", "xrdcp", str(source), url]).ok()
    run(["env", f"X509_USER_PROXY={proxy}", "xrdcp", url, str(back)]).ok()
    assert back.read_bytes() == source.read_bytes()
    shown = fs(node, proxy, "stat", "/shared/file").ok().out
    assert "Owner:  ana" in shown and "physics" in shown, shown
    # She may what she may, and no more.
    assert fs(node, proxy, "mkdir", "/top").code != 0
    # A proxy of a proxy is she as well, and a limited one too: it limits jobs.
    deeper = ana.proxy(of=proxy)
    fs(node, deeper, "rm", "/shared/file").ok()
    fs(node, ana.proxy("limited"), "stat", "/shared").ok()


def test_the_stock_client_logs_in_with_a_certificate_alone(served, users):
    node, (ana, _, _) = served(), users
    alone = {"X509_USER_CERT": str(ana.certificate), "X509_USER_KEY": str(ana.key), "XrdSecGSICREATEPROXY": "0"}
    fs(node, "/nonexistent", "stat", "/", **alone).ok()


STAT = """
import sys
from XRootD import client
status, _ = client.FileSystem(sys.argv[1]).stat("/")
sys.exit(0 if status.ok else status.message)
"""


def test_the_newest_stock_client_logs_in(served, users):
    """XrdCl of PyPI. From 6.2.1 on, it signs only tags that look like those of its own servers."""
    node = served()
    run(["env", f"X509_USER_PROXY={users[0].proxy()}", sys.executable, "-c", STAT, f"root://localhost:{node.port}"]).ok()


def test_each_cipher_and_the_encrypted_protocol_work(served, users):
    node, (ana, _, _) = served(), users
    proxy = ana.proxy()
    run(["env", f"X509_USER_PROXY={proxy}", "xrdfs", f"roots://localhost:{node.port}", "stat", "/"]).ok()


def test_bad_credentials_are_refused_with_the_reason(served, users, base, tmp_path):
    node, (ana, ben, _) = served(), users
    good = ana.proxy()
    fs(node, good, "stat", "/").ok()
    # Nobody has given ben a name.
    refused(node, ben.proxy(), "CN=ben")
    # The stock client does not show one that has expired.
    before = len(node.log.read_text())
    expired = own_client("stat", f"root://localhost:{node.port}//", X509_USER_PROXY=str(ana.proxy(days=-1)))
    assert expired.code != 0 and "ended" in expired.err + node.log.read_text()[before:], expired
    home = tmp_path / "strangers"
    home.mkdir()
    stranger = User(Authority(home, "stranger"), "ana")
    # The stock client needs the authority of its own certificate.
    for file in stranger.authority.trusted.iterdir():
        shutil.copy(file, home / file.name)
    both = tmp_path / "both"
    shutil.copytree(stranger.authority.trusted, both)
    for file in ana.authority.trusted.iterdir():
        shutil.copy(file, both / file.name)
    before = len(node.log.read_text())
    assert fs(node, stranger.proxy(), "stat", "/", X509_CERT_DIR=str(both)).code != 0
    assert "the client is not let in: the certificate" in node.log.read_text()[before:]
    fs(node, good, "stat", "/").ok()


class Recorder:
    """Stands between a client and a node, and keeps what the client sends."""

    def __init__(self, port: int):
        self.to, self.sent = port, b""
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                server = socket.create_connection(("127.0.0.1", self.to))
                for one, other, keep in ((client, server, True), (server, client, False)):
                    threading.Thread(target=self._pump, args=(one, other, keep), daemon=True).start()

    def _pump(self, one, other, keep):
        with contextlib.suppress(OSError):
            while data := one.recv(1 << 16):
                if keep:
                    self.sent += data
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)

    def credentials(self) -> list[bytes]:
        """What was in the requests with credentials."""
        found, rest = [], self.sent[20:]
        while len(rest) >= 24:
            (code,), (length,) = struct.unpack(">H", rest[2:4]), struct.unpack(">i", rest[20:24])
            if code == raw.AUTH:
                found.append(rest[24 : 24 + length])
            rest = rest[24 + length :]
        return found


def logging_in(node) -> raw.Raw:
    """A connection that must show who it is."""
    client = raw.Raw(node.port, login=False)
    client.handshake()
    answer = client.request(raw.LOGIN, struct.pack(">i8sBBBB", 4242, b"raw", 0, 0, 5, 0))
    assert answer.status == raw.OK and b"&P=gsi,v:10700,c:ssl,ca:" in answer.body, answer
    return client


def show(client: raw.Raw, credential: bytes) -> raw.Answer:
    return client.request(raw.AUTH, bytes(12) + b"gsi\0", credential)


@pytest.fixture
def recorded(users):
    """The two frames of a good login at a node."""

    def record(node) -> list[bytes]:
        recorder = Recorder(node.port)
        proxy = users[0].proxy()
        run(["env", f"X509_USER_PROXY={proxy}", "xrdfs", f"root://localhost:{recorder.port}", "stat", "/"]).ok()
        frames = recorder.credentials()
        assert len(frames) == 2, frames
        return frames

    return record


def test_a_recorded_login_lets_nobody_in(served, recorded):
    node = served()
    first, second = recorded(node)
    for _ in range(2):
        with logging_in(node) as client:
            assert show(client, first).status == AUTHMORE
            assert show(client, second).error is not None
            assert client.stat("/").error is not None
    # Not without the first frame either.
    with logging_in(node) as client:
        assert show(client, second).error is not None


def test_half_a_handshake_is_no_login(served, recorded, users):
    node = served('times.login = "3s"')
    first, _ = recorded(node)
    with logging_in(node) as client:
        assert show(client, first).status == AUTHMORE
        answer = client.stat("/")
        assert answer.error == raw.INVALID_REQUEST and "show who you are" in answer.text, answer
        # Another first frame ends it.
        assert show(client, first).error is not None
        began = time.monotonic()
        with contextlib.suppress(raw.Closed):
            client.socket.settimeout(30)
            client.receive()
        assert time.monotonic() - began < 20
    fs(node, users[0].proxy(), "stat", "/").ok()


def test_garbage_is_refused_and_disturbs_nobody(served, recorded, users):
    node = served()
    first, second = recorded(node)
    garbage = [
        b"",
        b"gsi",
        b"gsi\0",
        b"gsi\0\0\0\x03\xe8",
        first[:-5],
        b"gsi\0" + os.urandom(60_000),
        first[:8] + b"\0\0\x0b\xb9\x7f\xff\xff\xff",
    ]
    for place in range(4, len(first), 9):
        garbage.append(first[:place] + bytes([first[place] ^ 0x55]) + first[place + 1 :])
    for credential in garbage:
        with logging_in(node) as client:
            answer = show(client, credential)
            assert answer.error is not None or answer.status == AUTHMORE, credential
            assert show(client, second).error is not None
    assert node.alive()
    # Whoever tries again and again is cut off.
    with logging_in(node) as client, pytest.raises(raw.Closed):
        for _ in range(20):
            assert show(client, b"gsi\0garbage").error is not None
    fs(node, users[0].proxy(), "stat", "/").ok()


def test_the_certificate_and_the_authorities_are_needed(authority, tmp_path):
    config = tmp_path / "weir.toml"
    common = 'authentication.mechanisms = ["gsi"]\nidentity_default = "x"\n'
    certificate, key = authority.issue("needed")
    empty = tmp_path / "empty"
    empty.mkdir()
    authorities = f'authentication.gsi_authorities = "{authority.trusted}"\n'
    own = f'authentication.gsi_certificate = "{certificate}"\n'
    elliptic = authority.home / "elliptic.pem"
    authority.openssl(
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-keyout",
        "elliptic.key",
        "-out",
        str(elliptic),
        "-subj",
        "/CN=x",
    )
    (authority.home / "elliptic.key").chmod(0o600)
    for settings, reason in (
        (authorities, "has no certificate for it"),
        (own + authorities, "others have access to it"),
        (
            own + f'authentication.gsi_key = "{key}"\nauthentication.gsi_authorities = "{empty}"\n',
            "no certificate of an authority was found",
        ),
        (
            f'authentication.gsi_certificate = "{elliptic}"\nauthentication.gsi_key = "{authority.home / "elliptic.key"}"\n' + authorities,
            "RSA",
        ),
    ):
        config.write_text(common + settings)
        done = weir("serve", "--data", str(tmp_path / "data"), "--config", str(config), "--listen", "127.0.0.1:0", timeout=30)
        assert done.returncode != 0 and reason in done.stderr, done


def own_client(*arguments, **environment: str):
    """weir's own client."""
    return run(["env", *(f"{name}={value}" for name, value in environment.items()), str(WEIR_BIN), *map(str, arguments)])


def test_weirs_client_logs_in_at_weir(served, users, tmp_path):
    node, (ana, ben, keeper) = served(), users
    url = f"root://localhost:{node.port}"
    proxy, of_keeper = str(ana.proxy()), str(keeper.proxy("limited", of=keeper.proxy()))
    # Her first login gives her a number.
    own_client("stat", f"{url}//", X509_USER_PROXY=proxy).ok()
    own_client("mkdir", f"{url}//shared", X509_USER_PROXY=of_keeper).ok()
    own_client("chown", "ana:physics", f"{url}//shared", X509_USER_PROXY=of_keeper).ok()
    source, back = write(tmp_path / "source", "ana", 300_000), tmp_path / "back"
    own_client("cp", source, f"{url}//shared/file", X509_USER_PROXY=proxy).ok()
    # The certificate alone is enough.
    both = {"X509_USER_CERT": str(ana.certificate), "X509_USER_KEY": str(ana.key)}
    own_client("cp", f"{url}//shared/file", back, X509_USER_PROXY="", **both).ok()
    assert back.read_bytes() == source.read_bytes()
    why = own_client("stat", f"{url}//shared", X509_USER_PROXY=str(ben.proxy()))
    assert why.code != 0 and "CN=ben" in why.err, why
    why = own_client("stat", f"{url}//shared", X509_USER_PROXY=str(tmp_path / "gone"))
    assert why.code != 0 and "gone" in why.err and "gsi" in why.err, why


def test_weirs_client_shows_itself_to_the_right_server_only(served, users, tmp_path):
    # The certificate is for this name, and not for the address.
    node, proxy = served(hosts="DNS:localhost"), str(users[0].proxy())
    own_client("stat", f"root://localhost:{node.port}//", X509_USER_PROXY=proxy).ok()
    why = own_client("stat", f"root://127.0.0.1:{node.port}//", X509_USER_PROXY=proxy)
    assert why.code != 0 and "the server's certificate is not good" in why.err, why
    home = tmp_path / "others"
    home.mkdir()
    others = Authority(home, "others").trusted
    why = own_client("stat", f"root://localhost:{node.port}//", X509_USER_PROXY=proxy, X509_CERT_DIR=str(others))
    assert why.code != 0 and "the server's certificate is not good" in why.err, why


def test_weirs_client_logs_in_at_a_stock_server(base, authority, users, tmp_path, monkeypatch):
    monkeypatch.setenv("X509_CERT_DIR", str(authority.trusted))
    ana = users[0]
    with GsiXrootd(base / "stock-gsi", authority) as server:
        url = f"root://localhost:{server.port}"
        source, back = write(tmp_path / "source", "ana", 300_000), tmp_path / "back"
        for proxy in (ana.proxy(), ana.proxy(of=ana.proxy())):
            own_client("cp", "--force", source, f"{url}//file", X509_USER_PROXY=str(proxy)).ok()
            own_client("cp", "--force", f"{url}//file", back, X509_USER_PROXY=str(proxy)).ok()
            assert back.read_bytes() == source.read_bytes()
        home = tmp_path / "strangers"
        home.mkdir()
        stranger = User(Authority(home, "stranger"), "ana")
        assert own_client("stat", f"{url}//file", X509_USER_PROXY=str(stranger.proxy())).code != 0


def test_identity_test_says_who_a_proxy_is(served, users):
    node, (ana, ben, _) = served(), users
    test = lambda file: weir("identity", "test", "--config", str(node.config), str(file))  # noqa: E731
    known = test(ana.proxy("limited"))
    assert known.returncode == 0 and "principal ana, groups physics" in known.stdout and "limited" in known.stdout, known
    unknown = test(ben.proxy())
    assert unknown.returncode != 0 and "FAIL  identity" in unknown.stdout, unknown
    expired = test(ana.proxy(days=-1))
    assert expired.returncode != 0 and "FAIL  chain" in expired.stdout, expired


@pytest.mark.skipif(shutil.which("voms-proxy-fake") is None, reason="needs voms-clients")
def test_voms_attributes_give_a_name(served, users, authority, tmp_path):
    server = authority.issue("voms.example.org", hosts="DNS:voms.example.org")
    organization = tmp_path / "vomsdir" / "wlcg"
    organization.mkdir(parents=True)
    lsc = "/DC=org/DC=example/CN=voms.example.org\n/DC=org/DC=example/CN=authority\n"
    (organization / "voms.example.org.lsc").write_text(lsc)
    rule = '[[identity]]\nvoms = "/wlcg/Role=test"\nprincipal = "tester"\ngroups = ["wlcg"]\n'
    node, ben = served(rule), users[1]
    fs(node, ben.voms_proxy(server, "/wlcg/Role=test", "/wlcg"), "stat", "/").ok()
    tested = weir("identity", "test", "--config", str(node.config), str(ben.voms_proxy(server, "/wlcg/Role=test", "/wlcg")))
    assert tested.returncode == 0 and "principal tester, groups wlcg" in tested.stdout, tested
    # Without the attribute, or with one that another server has signed, he is nobody.
    refused(node, ben.voms_proxy(server, "/wlcg"), "CN=ben")
    stranger = authority.issue("stranger.example.org", hosts="DNS:voms.example.org")
    refused(node, ben.voms_proxy(stranger, "/wlcg/Role=test"), "CN=ben")
