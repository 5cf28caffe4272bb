"""Signed requests (kXR_sigver): clients sign what the server wants signed. Whoever changes a request on its way, drops its
signature or sends it again gets nowhere."""

import contextlib
import socket
import struct
import sys
import threading

import pytest
import raw
import xrdcl
from authority import HOSTS
from clients import run
from cluster import Cluster
from content import write
from harness import WEIR_BIN, remove
from proxies import User
from stock import GsiXrootd
from test_metrics import named, samples

LEVELS = ["none", "compatible", "standard", "intense", "pedantic"]
PROTOCOL, SIGVER, MKDIR, STAT, RM = 3006, 3029, 3008, 3017, 3014


@pytest.fixture(scope="module")
def keeper(authority):
    return User(authority, "keeper").proxy()


@pytest.fixture
def served(own_node, authority, keeper, tmp_path, monkeypatch):
    """Starts a node whose clients have certificates."""
    monkeypatch.setenv("X509_CERT_DIR", str(authority.trusted))
    monkeypatch.setenv("XrdSecPROTOCOL", "gsi,unix")
    monkeypatch.setenv("X509_USER_PROXY", str(keeper))

    def start(level: str, mechanisms: str = '"gsi"'):
        certificate, key = authority.issue(tmp_path.name, "DNS:localhost,IP:127.0.0.1")
        config = tmp_path / "weir.toml"
        config.write_text(
            f"""
tls.certificate = "{certificate}"
tls.key = "{key}"
metrics.listen = "127.0.0.1:0"
[authentication]
mechanisms = [{mechanisms}]
signing = "{level}"
gsi_authorities = "{authority.trusted}"
[[identity]]
certificate = "/DC=org/DC=example/CN=keeper"
principal = "admin"
[[identity]]
local_user = "*"
principal = "admin"
"""
        )
        return own_node("--config", str(config))

    return start


def counted(node, result: str) -> float:
    return named(samples(node), "weir_signatures_total", result=result)


def own(*arguments):
    """weir's own client."""
    return run([str(WEIR_BIN), *map(str, arguments)])


def stock_work(url: str, tmp_path) -> None:
    source, back = write(tmp_path / "source", "a", 3_000_000), tmp_path / "back"
    fs = lambda *arguments: run(["xrdfs", url, *arguments]).ok()  # noqa: E731
    fs("mkdir", "-p", "/a/b")
    run(["xrdcp", "-f", str(source), f"{url}//a/b/file"]).ok()
    run(["xrdcp", "-f", f"{url}//a/b/file", str(back)]).ok()
    assert back.read_bytes() == source.read_bytes()
    fs("chmod", "/a/b/file", "rw-r-----")
    fs("mv", "/a/b/file", "/a/b/moved")
    assert "moved" in fs("ls", "-l", "/a/b").out
    fs("stat", "/a/b/moved")
    fs("locate", "/a/b/moved")
    fs("query", "checksum", "/a/b/moved")
    fs("xattr", "/a/b/moved", "set", "color=red")
    fs("truncate", "/a/b/moved", "100")
    fs("cat", "/a/b/moved")
    fs("rm", "/a/b/moved")
    fs("rmdir", "/a/b")


def own_work(url: str, tmp_path) -> None:
    source, back = write(tmp_path / "source", "a", 3_000_000), tmp_path / "back"
    small = tmp_path / "small"
    small.mkdir(exist_ok=True)
    for number in range(40):
        (small / f"f{number}").write_bytes(b"x" * number)
    own("mkdir", f"{url}//o").ok()
    own("cp", "--force", source, f"{url}//o/file").ok()
    own("cp", "--force", f"{url}//o/file", back).ok()
    assert back.read_bytes() == source.read_bytes()
    # A batch cannot be signed: the files go one by one.
    own("cp", "-r", small, f"{url}//o/small").ok()
    assert "f39" in own("ls", f"{url}//o/small").ok().out
    own("chmod", "640", f"{url}//o/file").ok()
    own("chown", "admin", f"{url}//o/file").ok()
    own("mv", f"{url}//o/file", f"{url}//o/moved").ok()
    own("rm", f"{url}//o/moved").ok()
    own("rm", "-r", f"{url}//o").ok()


@pytest.mark.parametrize("level", LEVELS)
def test_clients_sign_at_each_level(served, level, tmp_path):
    node = served(level)
    url = f"root://localhost:{node.port}"
    verified = [counted(node, "verified")]
    for work in (stock_work, own_work):
        work(url, tmp_path)
        verified.append(counted(node, "verified"))
        assert (verified[-1] > verified[-2]) == (level != "none"), verified
    assert counted(node, "refused") == 0
    # The protocol over TLS needs signatures as well: clients do not know the difference.
    run(["xrdfs", f"roots://localhost:{node.port}", "rmdir", "/a"]).ok()
    assert (counted(node, "verified") > verified[-1]) == (level != "none")
    errors = named(samples(node), "weir_errors_total", error="SigVerErr", number="3022") if level != "none" else 0
    assert errors in (0, None)


def test_the_node_says_which_requests_it_wants_signed(served):
    for level, number in (("none", None), ("standard", 2)):
        node = served(level)
        with raw.Raw(node.port, login=False) as client:
            client.handshake()
            answer = client.request(PROTOCOL, struct.pack(">iBB10x", 0x520, 1, 3))
            assert answer.body[8:] == (b"" if number is None else bytes([ord("S"), 0, 0, 0, number, 0])), answer
            # Who does not ask is not told.
            assert len(client.request(PROTOCOL, struct.pack(">iBB10x", 0x520, 0, 3)).body) == 8
        node.kill()


def test_a_mechanism_without_a_key_needs_no_signatures(served, monkeypatch):
    node = served("pedantic", '"unix"')
    run(["xrdfs", f"root://localhost:{node.port}", "mkdir", "/u"]).ok()
    own("rm", "-r", f"root://localhost:{node.port}//u").ok()
    assert counted(node, "verified") == counted(node, "refused") == 0


class Between:
    """Stands between a client and a node. `change` gets each request of the client as `(code, bytes)`, and returns what is sent on;
    `answer` gets each answer to `protocol`."""

    def __init__(self, port: int, change=lambda code, frame: frame, answer=lambda body: body):
        self.to, self.change, self.answer = port, change, answer
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                server = socket.create_connection(("127.0.0.1", self.to))
                threading.Thread(target=self._requests, args=(client, server), daemon=True).start()
                threading.Thread(target=self._answers, args=(server, client), daemon=True).start()

    def _requests(self, client, server):
        with contextlib.suppress(OSError, EOFError):
            server.sendall(exactly(client, 20))
            while True:
                header = exactly(client, 24)
                (code,), (length,) = struct.unpack(">H", header[2:4]), struct.unpack(">i", header[20:24])
                server.sendall(self.change(code, header + exactly(client, length)))

    def _answers(self, server, client):
        with contextlib.suppress(OSError, EOFError):
            client.sendall(exactly(server, 16))
            header = exactly(server, 8)
            body = self.answer(exactly(server, struct.unpack(">i", header[4:])[0]))
            client.sendall(header[:4] + struct.pack(">i", len(body)) + body)
            while data := server.recv(1 << 16):
                client.sendall(data)
            client.shutdown(socket.SHUT_WR)


def exactly(one: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        if not (part := one.recv(count - len(data))):
            raise EOFError
        data += part
    return data


def attacked(node, reason: str, *command: str, **between) -> None:
    """A command through somebody on the way fails, and the node says why."""
    before, log = counted(node, "refused"), len(node.log.read_text())
    there = Between(node.port, **between)
    outcome = own(*(part.replace("NODE", f"root://localhost:{there.port}/") for part in command))
    assert outcome.code != 0, outcome
    assert reason in outcome.err and reason in node.log.read_text()[log:], (outcome, node.log.read_text()[log:])
    assert counted(node, "refused") > before


def test_who_is_on_the_way_changes_nothing(served, tmp_path):
    node = served("standard")
    url = f"root://localhost:{node.port}/"
    for name in ("/mine", "/keep", "/gone"):
        own("mkdir", url + name).ok()
    # It works through somebody who changes nothing.
    there = Between(node.port)
    own("mkdir", f"root://localhost:{there.port}//through").ok()
    own("stat", f"{url}/through").ok()
    # Another path of the same length, in a request that is signed.
    attacked(
        node,
        "the request has changed on its way",
        *("mkdir", "NODE/new1"),
        change=lambda code, frame: frame.replace(b"/new1", b"/new2") if code == MKDIR else frame,
    )
    # A signature that is changed itself, which is random bytes to its end.
    attacked(
        node,
        "the request has changed on its way",
        *("mkdir", "NODE/new1"),
        change=lambda code, frame: frame[:-1] + bytes([frame[-1] ^ 1]) if code == SIGVER else frame,
    )
    # No signature.
    attacked(node, "must be signed", *("mkdir", "NODE/new1"), change=lambda code, frame: b"" if code == SIGVER else frame)
    # The client is told that nothing must be signed.
    attacked(node, "must be signed", *("mkdir", "NODE/new1"), answer=lambda body: body[:8])
    # The same request again, with its signature; the client waits for one answer.
    seen = []

    def twice(code, frame):
        seen.append(frame)
        if code == MKDIR:
            return frame + b"".join(seen[-2:])
        return frame

    before = counted(node, "refused")
    own("mkdir", f"root://localhost:{Between(node.port, change=twice).port}//once")
    assert counted(node, "refused") == before + 1
    assert "somebody may have sent it again" in node.log.read_text()
    own("stat", f"{url}/once").ok()
    # A signed request of another connection.
    recorded = seen[-2:]
    assert struct.unpack(">H", recorded[0][2:4]) == (SIGVER,)

    def other(code, frame):
        return b"" if code == SIGVER else b"".join(recorded) if code == MKDIR else frame

    attacked(node, "another key has signed it", *("mkdir", "NODE/new3"), change=other)
    for name in ("/new1", "/new2", "/new3"):
        assert own("stat", url + name).code != 0, name
    for name in ("/mine", "/keep"):
        own("stat", url + name).ok()
    # What this level does not want signed passes.
    own("stat", f"root://localhost:{Between(node.port, change=lambda code, frame: b'' if code == SIGVER else frame).port}//keep").ok()


@pytest.mark.parametrize("level", ["compatible", "pedantic"])
def test_weirs_client_signs_for_a_stock_server(base, authority, keeper, level, tmp_path, monkeypatch):
    monkeypatch.setenv("X509_CERT_DIR", str(authority.trusted))
    monkeypatch.setenv("X509_USER_PROXY", str(keeper))
    monkeypatch.setenv("XrdSecPROTOCOL", "gsi")
    server = GsiXrootd(base / f"stock-{level}", authority)
    server.more += f"sec.level {level}\n"
    with server:
        url = f"root://localhost:{server.port}"
        source, back = write(tmp_path / "source", "a", 3_000_000), tmp_path / "back"
        # The judge: without signatures nothing goes.
        outcome = own(
            "mkdir", f"root://localhost:{Between(server.port, change=lambda code, frame: b'' if code == SIGVER else frame).port}//x"
        )
        assert (outcome.code != 0) == (level == "pedantic"), outcome
        own("mkdir", f"{url}//d").ok()
        own("cp", "--force", source, f"{url}//d/file").ok()
        own("cp", "--force", f"{url}//d/file", back).ok()
        assert back.read_bytes() == source.read_bytes()
        assert "file" in own("ls", f"{url}//d").ok().out
        own("mv", f"{url}//d/file", f"{url}//d/moved").ok()
        own("rm", f"{url}//d/moved").ok()


OPEN = """
import sys
from XRootD import client
from XRootD.client.flags import OpenFlags
flags = {"write": OpenFlags.WRITE, "update": OpenFlags.UPDATE}[sys.argv[2]]
with client.File() as file:
    status, _ = file.open(sys.argv[1], flags)
    print("open", status.ok, status.errno, status.message)
"""


@pytest.mark.parametrize("level", ["compatible", "standard"])
def test_an_open_only_to_write_is_signed(served, level, tmp_path):
    node = served(level)
    url = f"root://localhost:{node.port}//file"
    own("cp", write(tmp_path / "source", "a", 1000), url).ok()
    opened = lambda how: run([sys.executable, "-c", OPEN, url, how]).out  # noqa: E731
    assert "open True" in opened("update")
    # The stock client signs this one at the level standard only.
    assert ("open True" in opened("write")) == (level == "standard")
    assert (counted(node, "refused") > 0) == (level == "compatible")


@pytest.mark.parametrize("level", [pytest.param("standard", marks=pytest.mark.long), "intense"])
def test_a_vector_write_is_refused_where_writes_must_be_signed(served, level, tmp_path):
    node = served(level)
    url = f"root://localhost:{node.port}//file"
    own("cp", write(tmp_path / "source", "a", 100_000), url).ok()
    with xrdcl.File(xrdcl.build(tmp_path), url) as file:
        if level == "standard":
            file("writev", "10:5:a")
        else:
            with pytest.raises(xrdcl.Refused) as why:
                file("writev", "10:5:a")
            assert why.value.number == 3013
            # The file cannot be completed without these bytes.
            file("write", 10, 5, "c")
        # The connection lives, and a plain write is signed.
        file("write", 0, 3, "b")
        file("close")
    assert counted(node, "refused") == 0
    own("cp", "--force", url, tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes()[10:15] == (b"aaaaa" if level == "standard" else b"ccccc")
    assert (tmp_path / "back").read_bytes()[:3] == b"bbb"


@pytest.mark.parametrize("level", [pytest.param("intense", marks=pytest.mark.long), "pedantic"])
def test_over_several_connections_of_a_session(served, level, tmp_path):
    node = served(level)
    url = f"root://localhost:{node.port}//file"
    source, back = write(tmp_path / "source", "a", 40_000_000), tmp_path / "back"
    run(["xrdcp", "-S", "4", str(source), url]).ok()
    run(["xrdcp", "-S", "4", url, str(back)]).ok()
    assert back.read_bytes() == source.read_bytes()
    assert counted(node, "verified") > 0 and counted(node, "refused") == 0


@pytest.mark.parametrize("level", ["standard", "pedantic"])
def test_over_tls(served, level, tmp_path):
    node = served(level)
    url = f"roots://localhost:{node.port}"
    stock_work(url, tmp_path)
    own_work(url, tmp_path)
    assert counted(node, "verified") > 0 and counted(node, "refused") == 0


@pytest.mark.parametrize("level", ["standard", "pedantic"])
def test_on_a_cluster(base, authority, keeper, level, tmp_path, monkeypatch):
    monkeypatch.setenv("X509_CERT_DIR", str(authority.trusted))
    monkeypatch.setenv("XrdSecPROTOCOL", "gsi")
    monkeypatch.setenv("X509_USER_PROXY", str(keeper))
    monkeypatch.setenv("XrdSecGSISRVNAMES", "*")
    certificate, key = authority.issue(f"signing-cluster-{level}", HOSTS)
    config = tmp_path / "weir.toml"
    config.write_text(
        f"""
tls.certificate = "{certificate}"
tls.key = "{key}"
[authentication]
mechanisms = ["gsi"]
signing = "{level}"
gsi_authorities = "{authority.trusted}"
[[identity]]
certificate = "/DC=org/DC=example/CN=keeper"
principal = "admin"
"""
    )
    with Cluster(base / f"signing-cluster-{level}", 2, ("--config", str(config))) as cluster:
        url = f"root://127.0.0.1:{cluster.manager.port}"
        stock_work(url, tmp_path)
        own_work(url, tmp_path)
        there = Between(cluster.manager.port, change=lambda code, frame: b"" if code == SIGVER else frame)
        outcome = own("mkdir", f"root://127.0.0.1:{there.port}//unsigned")
        assert outcome.code != 0 and "must be signed" in outcome.err, outcome
    remove(cluster.home)
