"""Who a client is, and what that lets it do: bearer tokens of a local issuer, with the stock client over TLS."""

import base64
import json
import socket
import struct
import sys
import time

import pytest
import raw
from clients import run
from content import write
from harness import WEIR_BIN, weir
from issuer import Issuer, encoded, trusting

RIGHTS = "storage.read:/ storage.modify:/"


@pytest.fixture
def issuer(authority, tmp_path):
    issuer = Issuer(tmp_path, authority.issue(f"issuer-{tmp_path.name}"))
    yield issuer
    issuer.stop()


@pytest.fixture
def served(own_node, authority, issuer, tmp_path, monkeypatch):
    """Starts a node that trusts the issuer. Its user `keeper` is the administrator there."""
    monkeypatch.setenv("X509_CERT_DIR", str(authority.trusted))
    monkeypatch.delenv("BEARER_TOKEN", raising=False)

    def start(mechanisms: str = '["ztn"]', more: str = "", of_issuer: str = "", of_rule: str = 'groups = ["{groups}"]'):
        config = tmp_path / "weir.toml"
        config.write_text(trusting(issuer, authority, authority.issue(tmp_path.name), mechanisms, more, of_issuer, of_rule))
        node = own_node("--config", str(config))
        node.secure = f"roots://localhost:{node.port}"
        return node

    return start


class User:
    """Somebody with a token, at the stock client."""

    def __init__(self, node, token: str):
        self.url, self.token = node.secure, token

    def fs(self, *arguments: str):
        return run(["env", f"BEARER_TOKEN={self.token}", "xrdfs", self.url, *arguments])

    def put(self, source, path: str):
        return run(["env", f"BEARER_TOKEN={self.token}", "xrdcp", "-f", str(source), f"{self.url}/{path}"])

    def get(self, path: str, target):
        return run(["env", f"BEARER_TOKEN={self.token}", "xrdcp", "-f", f"{self.url}/{path}", str(target)])


@pytest.fixture
def node(served):
    return served()


@pytest.fixture
def users(node, issuer):
    """Each has a directory of their own."""
    keeper, ana, ben = (User(node, issuer.token(name)) for name in ("keeper", "ana", "ben"))
    keeper.fs("mkdir", "-mrwxrwxrwx", "/shared").ok()
    keeper.fs("chmod", "/shared", "rwxrwxrwx").ok()
    return keeper, ana, ben


def test_two_users_keep_their_files_apart(users, tmp_path):
    keeper, ana, ben = users
    source, back = write(tmp_path / "source", "ana", 300_000), tmp_path / "back"
    ana.fs("mkdir", "-mrwxr-x---", "/shared/ana").ok()
    ana.put(source, "/shared/ana/file").ok()
    ana.get("/shared/ana/file", back).ok()
    assert back.read_bytes() == source.read_bytes()
    for refused in (
        ben.get("/shared/ana/file", tmp_path / "stolen"),
        ben.put(source, "/shared/ana/more"),
        ben.fs("ls", "/shared/ana"),
        ben.fs("rm", "/shared/ana/file"),
        ben.fs("mv", "/shared/ana/file", "/shared/mine"),
        ben.fs("mkdir", "/top"),
        ben.fs("chmod", "/shared/ana", "rwxrwxrwx"),
    ):
        assert refused.code != 0 and "denied" in (refused.out + refused.err).lower(), refused
    # The administrator may.
    keeper.get("/shared/ana/file", back).ok()


def test_a_denial_does_not_tell_whether_a_hidden_name_exists(users, tmp_path):
    _, ana, ben = users
    source = write(tmp_path / "source", "ana", 1000)
    ana.fs("mkdir", "-mrwx------", "/shared/ana").ok()
    ana.put(source, "/shared/ana/there").ok()
    told = [ben.fs("stat", f"/shared/ana/{name}") for name in ("there", "gone")]
    words = [(one.code, (one.out + one.err).replace("there", "x").replace("gone", "x")) for one in told]
    assert words[0] == words[1], words


def test_listings_show_names(users, tmp_path):
    _, ana, _ = users
    ana.put(write(tmp_path / "source", "ana", 1000), "/shared/file").ok()
    shown = ana.fs("stat", "/shared/file").ok().out
    assert "Owner:  ana" in shown, shown


def refusals(node, issuer, authority, tmp_path):
    now = int(time.time())
    key = issuer.keys["first"]
    header = {"alg": "RS256", "typ": "JWT", "kid": "first"}
    good = issuer.token("ana")
    content = json.loads(base64.urlsafe_b64decode(good.split(".")[1] + "=="))
    head, body, signature = good.split(".")
    other = encoded(json.dumps({**content, "sub": "keeper"}).encode())
    nobody = encoded(b'{"alg":"none","kid":"first"}')
    secret = encoded(b'{"alg":"HS256","kid":"first"}')
    return {
        "expired": (issuer.token("ana", seconds=-3600), "expired"),
        "not yet valid": (issuer.token("ana", nbf=now + 3600), "valid"),
        "another audience": (issuer.token("ana", aud="https://elsewhere.example"), "audience"),
        "another issuer": (issuer.signed(header, {**content, "iss": "https://other.example"}, key), "other.example"),
        "unknown key": (issuer.signed({**header, "kid": "second"}, content, key), "second"),
        "changed": (f"{head}.{other}.{signature}", "signature"),
        "no algorithm": (f"{nobody}.{body}.", "not signed"),
        "symmetric": (f"{secret}.{body}.{encoded(bytes(32))}", "shared secret"),
        "no token": ("nonsense", "token"),
    }


def test_bad_tokens_are_refused_with_the_reason(served, issuer, authority, tmp_path):
    node = served()
    ana = User(node, issuer.token("ana"))
    ana.fs("stat", "/").ok()
    log = node.log.read_text()
    for name, (token, reason) in refusals(node, issuer, authority, tmp_path).items():
        refused = User(node, token).fs("stat", "/")
        assert refused.code != 0, name
        added = node.log.read_text()[len(log) :]
        log += added
        assert reason in added.lower(), (name, added)
        assert token not in added, name
    ana.fs("stat", "/").ok()
    # A flood of unknown keys costs the issuer one further request.
    asked = issuer.asked.count("/jwks")
    for number in range(20):
        header = {"alg": "RS256", "typ": "JWT", "kid": f"k{number}"}
        assert User(node, issuer.signed(header, {"iss": issuer.url}, issuer.keys["first"])).fs("stat", "/").code != 0
    assert issuer.asked.count("/jwks") <= asked + 1


def test_nothing_is_done_for_who_shows_no_token(node, issuer):
    assert run(["env", "-u", "BEARER_TOKEN", "xrdfs", node.secure, "stat", "/"]).code != 0
    # In the clear, tokens are not even asked for.
    with pytest.raises(AssertionError, match="TLS"):
        raw.Raw(node.port)
    silent = raw.Raw(node.port, login=False)
    silent.handshake()
    for request in (raw.STAT, raw.DIRLIST, raw.RM, raw.MKDIR, raw.OPEN, raw.QUERY, raw.LOCATE, raw.SET):
        answer = silent.request(request, bytes(16), b"/")
        assert answer.error == raw.INVALID_REQUEST, (request, answer)


def test_a_new_key_is_found_and_old_keys_work_while_the_issuer_is_away(served, issuer):
    node = served()
    User(node, issuer.token("ana")).fs("stat", "/").ok()
    issuer.stop()
    User(node, issuer.token("ben")).fs("stat", "/").ok()


def unix(node, user: str, group: str = "") -> raw.Raw:
    """A connection that says who it is."""
    client = raw.Raw(node.port, login=False)
    client.handshake()
    answer = client.request(raw.LOGIN, struct.pack(">i8sBBBB", 7, user.encode()[:8], 0, 0, 5, 0))
    assert answer.status == raw.OK and b"&P=unix" in answer.body, answer
    client.session = answer.body[:16]
    assert client.request(raw.STAT, bytes(16), b"/").error == raw.INVALID_REQUEST
    answer = client.request(raw.AUTH, bytes(12) + b"unix", f"unix\0{user} {group}\0".encode())
    assert answer.status == raw.OK, answer
    return client


RULE = '[[identity]]\nlocal_user = "{}"\nprincipal = "{}"\n'
LOCAL = "".join(RULE.format(*rule) for rule in (("root", "robot"), ("keeper", "admin"), ("*", "{user}")))


@pytest.fixture
def local_node(own_node, tmp_path):
    config = tmp_path / "weir.toml"
    config.write_text(f'authentication.mechanisms = ["unix"]\n{LOCAL}')
    return own_node("--config", str(config))


def test_local_users_are_believed_on_this_machine(local_node):
    with unix(local_node, "keeper") as keeper, unix(local_node, "ana") as ana:
        assert keeper.request(raw.MKDIR, bytes(14) + struct.pack(">H", 0o777), b"/open").status == raw.OK
        assert keeper.request(raw.CHMOD, bytes(14) + struct.pack(">H", 0o777), b"/open").status == raw.OK
        assert ana.request(raw.MKDIR, bytes(14) + struct.pack(">H", 0o700), b"/top").error == raw.NOT_AUTHORIZED
        assert ana.request(raw.MKDIR, bytes(14) + struct.pack(">H", 0o700), b"/open/ana").status == raw.OK
        with unix(local_node, "ben") as ben:
            assert ben.request(raw.DIRLIST, bytes(16), b"/open/ana").error == raw.NOT_AUTHORIZED


def test_the_stock_client_is_a_local_user(local_node):
    run(["env", "XrdSecPROTOCOL=unix", "xrdfs", local_node.url, "mkdir", "/root"]).refused(raw.NOT_AUTHORIZED)


def test_a_session_takes_no_connection_of_another(local_node):
    """Whoever knows the id of a session may bind a connection to it. Neither numbers nor times of the server tell it."""
    sessions = []
    for _ in range(4):
        with unix(local_node, "ana") as one:
            sessions.append(one.session[8:])
    assert len({*sessions}) == 4 and len({session[:4] for session in sessions}) > 1
    with unix(local_node, "ana") as ana:
        for guessed in (ana.session[:8] + bytes(8), ana.session[:8] + sessions[0]):
            thief = raw.Raw(local_node.port, login=False)
            thief.handshake()
            assert thief.request(raw.BIND, guessed).error == raw.NOT_FOUND


def test_too_many_bad_credentials_end_the_connection(local_node):
    client = raw.Raw(local_node.port, login=False)
    client.handshake()
    client.request(raw.LOGIN, struct.pack(">i8sBBBB", 7, b"eve", 0, 0, 5, 0))
    with pytest.raises(raw.Closed):
        for _ in range(20):
            assert client.request(raw.AUTH, bytes(12) + b"unix", b"host\0").error is not None
    with unix(local_node, "ana") as ana:
        assert ana.stat(b"/").status == raw.OK


def test_mechanisms_that_are_not_offered_are_refused(local_node):
    client = raw.Raw(local_node.port, login=False)
    client.handshake()
    client.request(raw.LOGIN, struct.pack(">i8sBBBB", 7, b"eve", 0, 0, 5, 0))
    for name, credential in ((b"host", b"host\0"), (b"ztn\0", b"ztn\0\0T\0\0\0\5nono\0"), (b"gsi\0", b"gsi\0"), (b"sss\0", bytes(100))):
        answer = client.request(raw.AUTH, bytes(12) + name, credential)
        assert answer.error is not None and "not offered" in answer.text, answer


def test_half_credentials_harm_nobody(served, issuer):
    """Bytes that are no credential of `ztn`, over TLS."""
    import ssl

    node = served()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    head = b"ztn\0\0T\0\0"
    for credential in (b"", b"ztn", head, head + b"\0\0", head + b"\0\5ab", head + b"\xff\xffab\0", head + b"\0\3abc", head[:5] + b"S\0\0"):
        with socket.create_connection(("127.0.0.1", node.port), timeout=20) as plain:
            plain.sendall(struct.pack(">iiiii", 0, 0, 0, 4, 2012))
            plain.recv(16, socket.MSG_WAITALL)
            plain.sendall(struct.pack(">2sHiBB10xi", b"\0\1", 3006, 0x511, 0x06, 3, 0))
            header = plain.recv(8, socket.MSG_WAITALL)
            plain.recv(struct.unpack(">i", header[4:])[0], socket.MSG_WAITALL)
            with context.wrap_socket(plain) as client:
                client.sendall(struct.pack(">2sHi8sBBBBi", b"\0\1", 3007, 7, b"eve", 0, 0, 5, 0, 0))
                answer = client.recv(4096)
                assert answer[:4] == b"\0\1\0\0" and b"&P=ztn,0:4096:" in answer, answer
                client.sendall(struct.pack(">2sH12s4si", b"\0\1", 3000, bytes(12), b"ztn\0", len(credential)) + credential)
                answer = client.recv(4096)
                assert struct.unpack(">H", answer[2:4])[0] == raw.ERROR, (credential, answer)
    User(node, issuer.token("ana")).fs("stat", "/").ok()


def test_a_session_is_encrypted_after_the_user_is_known(own_node, authority, tmp_path, monkeypatch):
    """Stock clients show who they are before TLS begins, where only the session requires it."""
    monkeypatch.setenv("X509_CERT_DIR", str(authority.trusted))
    certificate, key = authority.issue(tmp_path.name)
    config = tmp_path / "weir.toml"
    config.write_text(
        f'tls.certificate = "{certificate}"\ntls.key = "{key}"\ntls.required = ["session"]\nauthentication.mechanisms = ["unix"]\n{LOCAL}'
    )
    node = own_node("--config", str(config))
    url = f"root://localhost:{node.port}"
    run(["env", "XrdSecPROTOCOL=unix", "xrdfs", url, "ls", "/"]).ok()
    weir_ls = run(["env", "XrdSecPROTOCOL=unix", WEIR_BIN, "ls", f"{url}//"])
    assert weir_ls.code == 0, weir_ls


@pytest.mark.parametrize(
    ("mechanisms", "code"), [('["ztn"]', 0), ('["unix", "ztn"]', 0), ('["unix"]', 7), ('["unix", "host"]', 7), ("[]", 7)]
)
def test_a_node_listens_on_the_network_only_if_clients_prove_who_they_are(authority, issuer, tmp_path, mechanisms, code):
    certificate, key = authority.issue(tmp_path.name)
    config = tmp_path / "weir.toml"
    config.write_text(
        f'listen = "0.0.0.0:0"\ntls.certificate = "{certificate}"\ntls.key = "{key}"\nauthentication.mechanisms = {mechanisms}\n'
        f'authentication.ca = "{authority.home / "ca.pem"}"\n{LOCAL}'
        f'[[issuer]]\nurl = "{issuer.url}"\nbase_paths = ["/"]\naudiences = ["a"]\n'
    )
    done = weir("serve", "--check", "--config", str(config), "--data", str(tmp_path / "data"))
    assert done.returncode == code, done
    assert code == 0 or "authentication.mechanisms" in done.stderr, done


ISSUER = '[[issuer]]\nurl = "https://a.example"\nbase_paths = ["/"]\naudiences = ["a"]\n'


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('authentication.mechanisms = ["gsi"]', "gsi"),
        ('authentication.mechanisms = ["ztn"]', "[[issuer]]"),
        (f'authentication.mechanisms = ["ztn"]\nidentity_default = "x"\n{ISSUER}', "tls.certificate"),
        ('authentication.mechanisms = ["unix"]', "[[identity]]"),
        ('authentication.mechanisms = ["unix"]\n[[identity]]\nlocal_user = "*"\nprincipal = "{host}"', "host"),
        ('authentication.mechanisms = ["unix"]\nidentity_default = "x"\n[[identity]]\nissuer = "https://a"\nprincipal = "x"', "https://a"),
        ('authentication.trusted_networks = ["10.0.0.0/99"]', "10.0.0.0/99"),
    ],
)
def test_settings_that_do_not_go_together_are_told(tmp_path, text, why):
    config = tmp_path / "weir.toml"
    config.write_text(text + "\n")
    done = weir("serve", "--check", "--config", str(config), "--data", str(tmp_path / "data"))
    assert done.returncode == 2 and why in done.stderr, done


def test_a_reload_takes_over_rules_and_issuers(local_node, tmp_path):
    config = tmp_path / "weir.toml"
    refused = '[[identity]]\nlocal_user = "eve"\nrefuse = true\n'
    with unix(local_node, "eve"):
        pass
    config.write_text(config.read_text().replace("\n", f"\n{refused}", 1))
    done = weir("reload", "--data", str(local_node.data))
    assert done.returncode == 0, done
    end = time.monotonic() + 20
    while "taken over" not in local_node.log.read_text():
        assert time.monotonic() < end
        time.sleep(0.1)
    client = raw.Raw(local_node.port, login=False)
    client.handshake()
    client.request(raw.LOGIN, struct.pack(">i8sBBBB", 7, b"eve", 0, 0, 5, 0))
    assert client.request(raw.AUTH, bytes(12) + b"unix", b"unix\0eve\0").error is not None
    with unix(local_node, "ana"):
        pass


def test_a_token_that_ends_begins_nothing_more(served, issuer):
    """The connection stays, and so do open files."""
    node = served()
    # A process of its own: XrdCl reads the environment once.
    program = f"""
import time
from XRootD import client
fs = client.FileSystem({node.secure!r})
assert fs.stat("/")[0].ok
time.sleep(5)
status, _ = fs.stat("/")
assert not status.ok and "ended" in status.message, status
"""
    done = run(["env", f"BEARER_TOKEN={issuer.token('keeper', seconds=4)}", sys.executable, "-c", program])
    assert done.code == 0, done
