"""weir's own client over TLS, with weir's servers and a stock xrootd: what it encrypts, whom it trusts, and what it shows of its user."""

# ruff: noqa: F811 (the fixtures of another file)

import os
import socket
import ssl
import struct
import subprocess
import threading
import time
from pathlib import Path

import pytest
from authority import Authority
from clients import run
from cluster import Cluster
from content import MIB, write
from harness import WEIR_BIN, weir
from proxy import DOWN, UP, Proxy
from raw import AUTH, LOGIN, OK, PROTOCOL, STAT
from stock import TlsXrootd
from test_third_party import digest
from test_tls import secure, served, trusting  # noqa: F401 (fixtures)

HAVE_TLS, GOTO_TLS, IS_SERVER = 0x80000000, 0x40000000, 1
TOKEN = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJzZWNyZXQifQ.c2VjcmV0"


def ok(*arguments: str | Path) -> str:
    done = weir(*map(str, arguments))
    assert done.returncode == 0, f"{arguments}: {done.stderr}"
    return done.stdout


def fails(*arguments: str | Path) -> str:
    done = weir(*map(str, arguments), timeout=60)
    assert done.returncode != 0, f"{arguments}: {done.stdout}"
    return done.stderr


def plain(node) -> str:
    return f"root://localhost:{node.port}"


def there_and_back(url: str, tmp_path: Path, *flags: str) -> None:
    """Every kind of transfer that there is, at `url`, which has nothing yet."""
    source, back = write(tmp_path / "source", url, 20 * MIB + 4711), tmp_path / "back"
    ok("cp", *flags, source, f"{url}//file")
    for how in ((), ("-S", "4"), ("--no-verify",)):
        ok("cp", "--force", *flags, *how, f"{url}//file", back)
        assert digest(back) == digest(source), how
    assert "file" in ok("ls", "-l", f"{url}//") and str(source.stat().st_size) in ok("stat", f"{url}//file")
    assert ok("checksum", "-a", "crc32c", f"{url}//file").split()[0] == ok("checksum", "-a", "crc32c", source).split()[0]
    tree = tmp_path / "tree"
    tree.mkdir()
    for number in range(300):
        (tree / f"{number}").write_bytes(b"%d" % number * number)
    ok("cp", "-r", *flags, tree, f"{url}//tree")
    ok("cp", "-r", *flags, f"{url}//tree", tmp_path / "tree-back")
    for path in tree.iterdir():
        assert (tmp_path / "tree-back" / path.name).read_bytes() == path.read_bytes()
    ok("mv", f"{url}//file", f"{url}//renamed")
    assert ok("cat", f"{url}//tree/7") == "7777777"
    with open(tmp_path / "source", "rb") as piped:
        assert subprocess.run([WEIR_BIN, "cp", "-", f"{url}//piped"], stdin=piped, timeout=60).returncode == 0
    ok("cp", f"{url}//piped", f"{url}//copied")
    ok("rm", "-r", f"{url}//tree", f"{url}//renamed", f"{url}//piped", f"{url}//copied")


@pytest.mark.parametrize("required", ["[]", '["login"]', '["session"]', '["data"]'])
def test_everything_works_over_tls(served, trusting, tmp_path, required):
    there_and_back(secure(served(required)), tmp_path)


@pytest.mark.parametrize("required", ['["login"]', '["session"]', '["data"]'])
def test_what_a_server_requires_it_gets(served, trusting, tmp_path, required):
    there_and_back(plain(served(required)), tmp_path)


def test_nothing_is_in_the_clear(served, trusting, tmp_path):
    node = served()
    secret = b"this must not be seen by others "
    (tmp_path / "source").write_bytes(secret * 1000)
    seen = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as proxy:

        def pump(one, other):
            while data := one.recv(65536):
                seen.extend(data)
                other.sendall(data)

        def serve():
            while True:
                client, _ = proxy.accept()
                server = socket.create_connection(("127.0.0.1", node.port))
                threading.Thread(target=pump, args=(client, server), daemon=True).start()
                threading.Thread(target=pump, args=(server, client), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        url = f"roots://localhost:{proxy.getsockname()[1]}"
        ok("cp", tmp_path / "source", f"{url}//file")
        ok("cat", f"{url}//file")
    assert len(seen) > 64_000 and secret not in seen and b"/file" not in seen


def test_a_server_without_tls_is_refused(own_node, tmp_path):
    node = own_node()
    (tmp_path / "source").write_bytes(b"x")
    assert "does not offer TLS" in fails("cp", tmp_path / "source", f"{secure(node)}//file")
    assert ok("ls", f"{plain(node)}//") == ""


def test_only_the_right_server_is_trusted(served, authority, own_node, tmp_path, monkeypatch):
    node = served()
    # Nobody has said that this authority is to be trusted.
    assert "X509_CERT_DIR" in fails("ls", f"{secure(node)}//")
    monkeypatch.setenv("X509_CERT_DIR", str(tmp_path / "nowhere"))
    assert "nowhere" in fails("ls", f"{secure(node)}//")
    monkeypatch.setenv("X509_CERT_DIR", str(authority.trusted))
    assert ok("ls", f"{secure(node)}//") == ""
    assert ok("ls", f"roots://127.0.0.1:{node.port}//") == ""
    # An address in 127/8 is this machine, but no name of the certificate.
    certificate, key = authority.issue("other", "DNS:disk1.example.org")
    config = tmp_path / "other.toml"
    config.write_text(f'tls.certificate = "{certificate}"\ntls.key = "{key}"\n')
    other = own_node("--config", str(config))
    for host in ("localhost", "127.0.0.1"):
        why = fails("ls", f"roots://{host}:{other.port}//")
        assert "certificate" in why and "disk1.example.org" in why, why
    # A file does as well.
    monkeypatch.delenv("X509_CERT_DIR")
    monkeypatch.setenv("X509_CERT_FILE", str(authority.home / "ca.pem"))
    assert ok("ls", f"{secure(node)}//") == ""


def test_a_revoked_certificate_is_refused(own_node, tmp_path, monkeypatch):
    (tmp_path / "site").mkdir()
    site = Authority(tmp_path / "site", "site")
    config, nodes = tmp_path / "weir.toml", []
    for name in ("good", "stolen"):
        certificate, key = site.issue(name)
        config.write_text(f'tls.certificate = "{certificate}"\ntls.key = "{key}"\n')
        nodes.append(own_node("--config", str(config)))
    monkeypatch.setenv("X509_CERT_DIR", str(site.trusted))
    good, stolen = nodes
    ok("ls", f"{secure(stolen)}//")
    [listed] = [path.name.removesuffix(".0") for path in site.trusted.iterdir()]
    (site.trusted / f"{listed}.r0").write_text(site.revoke(site.home / "stolen.pem"))
    assert "evoked" in fails("ls", f"{secure(stolen)}//")
    ok("ls", f"{secure(good)}//")


@pytest.mark.parametrize("way", [UP, DOWN])
def test_a_copy_survives_the_death_of_its_server(served, trusting, tmp_path, way):
    node = served('["login"]')
    source, back = write(tmp_path / "source", "killed", 24 * MIB), tmp_path / "back"
    url = secure(node)
    if way == DOWN:
        ok("cp", source, f"{url}//file")
    with Proxy(node.port) as proxy:
        killed = threading.Event()

        def kill_and_restart():
            node.kill()
            killed.set()
            threading.Thread(target=node.start, daemon=True).start()

        proxy.at(way, 9 * MIB, kill_and_restart)
        through = f"roots://localhost:{proxy.port}//file"
        ok("cp", source, through) if way == UP else ok("cp", through, back)
        assert killed.is_set()
    ok("cp", "--force", f"{url}//file", back)
    assert digest(back) == digest(source)


def test_a_cluster_keeps_tls_over_its_redirects(base, authority, tmp_path, monkeypatch):
    monkeypatch.setenv("X509_CERT_DIR", str(authority.trusted))
    hosts = ",".join(f"IP:127.0.0.{number}" for number in range(1, 5))
    certificate, key = authority.issue("cluster", f"DNS:localhost,{hosts}")
    config = tmp_path / "weir.toml"
    config.write_text(f'tls.certificate = "{certificate}"\ntls.key = "{key}"\n')
    with Cluster(base / "cluster-tls", 3, ("--config", str(config))) as cluster:
        url = cluster.url.replace("root://", "roots://").rstrip("/")
        there_and_back(url, tmp_path)
        # Striped files go to several servers at once.
        cluster.policy("/striped", "stripe(3, 1MiB)")
        source, back = tmp_path / "source", tmp_path / "back"
        ok("cp", source, f"{url}//striped/file")
        ok("cp", "--force", f"{url}//striped/file", back)
        assert digest(back) == digest(source)
        # A disk server whose certificate has another name gets nothing.
        ok("cp", source, f"{url}//file")
        for disk in cluster.disks:
            disk.stop()
        certificate, key = authority.issue("strangers", "DNS:elsewhere.example.org")
        config.write_text(f'tls.certificate = "{certificate}"\ntls.key = "{key}"\n')
        for disk in cluster.disks:
            disk.start()
        cluster.wait_sessions()
        assert "elsewhere.example.org" in fails("cp", "--force", f"{url}//file", back)


def test_servers_copy_among_themselves_over_tls(own_node, authority, trusting, tmp_path):
    certificate, key = authority.issue("copying")
    config = tmp_path / "weir.toml"
    tls = f'tls.certificate = "{certificate}"\ntls.key = "{key}"\ntls.required = ["login"]\n'
    config.write_text(f'{tls}third_party_copy = true\nthird_party_sources = ["*"]\n')
    one, other = own_node("--config", str(config)), own_node("--config", str(config))
    source, back = write(tmp_path / "source", "third party", 9 * MIB), tmp_path / "back"
    ok("cp", source, f"{secure(one)}//file")
    ok("cp", "--tpc", f"{secure(one)}//file", f"{secure(other)}//file")
    ok("cp", f"{secure(other)}//file", back)
    assert digest(back) == digest(source)
    # The stock client asks for the same.
    run(["xrdcp", "--tpc", "only", f"{secure(one)}//file", f"{secure(other)}//again"]).ok()
    ok("cp", "--force", f"{secure(other)}//again", back)
    assert digest(back) == digest(source)


def at_stock(url: str, tmp_path: Path) -> None:
    source, back = write(tmp_path / "source", url, 9 * MIB + 17), tmp_path / "back"
    ok("cp", source, f"{url}//file")
    ok("cp", "--force", f"{url}//file", back)
    assert digest(back) == digest(source)
    assert str(source.stat().st_size) in ok("ls", "-l", f"{url}//file")
    tree = tmp_path / "tree"
    tree.mkdir()
    for number in range(50):
        (tree / f"{number}").write_bytes(b"%d" % number * number)
    # A stock server computes few checksums at a time, and lets the others wait for long.
    ok("cp", "-r", "--no-verify", tree, f"{url}//tree")
    ok("cp", "-r", "--no-verify", f"{url}//tree", tmp_path / "tree-back")
    assert (tmp_path / "tree-back" / "49").read_bytes() == b"49" * 49
    ok("rm", "-r", f"{url}//tree", f"{url}//file")


@pytest.mark.parametrize("required", ["none", "login", "session", "data", "all"])
def test_a_stock_server_with_tls(base, authority, trusting, tmp_path, required):
    with TlsXrootd(base / f"stock-{required}", authority, required) as server:
        at_stock(secure(server), tmp_path)
        if required != "data":  # then xrootd 5.5.3 serves not even its own client
            (tmp_path / "again").mkdir()
            at_stock(plain(server), tmp_path / "again")


@pytest.mark.parametrize("required", ["none", "all"])
def test_a_stock_server_that_wants_to_know_the_user(base, authority, trusting, tmp_path, required, monkeypatch):
    method = "unix"
    more = f"xrootd.seclib libXrdSec.so\nsec.protocol {method}\nsec.protbind * only {method}\n"
    with TlsXrootd(base / f"known-{required}-{method}", authority, required, more) as server:
        at_stock(secure(server), tmp_path)
        monkeypatch.setenv("XrdSecPROTOCOL", "ztn")
        why = fails("ls", f"{secure(server)}//")
        assert f"which offers {method} (" in why and "XrdSecPROTOCOL" in why, why


class Asking:
    """A server that keeps the credentials that clients show, and then answers each stat."""

    def __init__(self, methods: bytes, certificate: tuple[Path, Path] | None):
        self.methods, self.shown = methods, []
        self.context = None
        if certificate:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(*certificate)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]

    def __enter__(self) -> "Asking":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_) -> None:
        self.listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            connection.settimeout(30)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        def exactly(count: int) -> bytes:
            got = b""
            while len(got) < count:
                more = peer.recv(count - len(got))
                if not more:
                    raise ConnectionError
                got += more
            return got

        def answer(stream: bytes, body: bytes = b"") -> None:
            peer.sendall(stream + struct.pack(">Hi", OK, len(body)) + body)

        try:
            exactly(20)
            answer(b"\0\0", struct.pack(">ii", 0x511, 1))
            while True:
                head = exactly(24)
                stream, code = head[:2], struct.unpack(">H", head[2:4])[0]
                data = exactly(struct.unpack(">i", head[20:24])[0])
                if code == PROTOCOL:
                    flags = HAVE_TLS | GOTO_TLS if self.context else 0
                    answer(stream, struct.pack(">iI", 0x511, IS_SERVER | flags))
                    if self.context:
                        peer = self.context.wrap_socket(peer, server_side=True)
                elif code == LOGIN:
                    answer(stream, bytes(range(16)) + self.methods)
                elif code == AUTH:
                    self.shown.append(head[16:20] + data)
                    answer(stream)
                elif code == STAT:
                    answer(stream, b"7 5 48 1000000000\0")
                else:
                    answer(stream)
        except OSError:
            peer.close()


@pytest.mark.parametrize("methods", [b"&P=ztn,0:4096:&P=unix\0", b"&P=unix\0", b"&P=host\0"])
def test_credentials_are_those_of_the_stock_client(authority, trusting, tmp_path, monkeypatch, methods):
    monkeypatch.setenv("BEARER_TOKEN", f" {TOKEN}\n")
    with Asking(methods, authority.issue("asking")) as server:
        run(["xrdfs", f"roots://localhost:{server.port}", "stat", "/file"]).ok()
        ok("stat", f"roots://localhost:{server.port}//file")
        stock, own = server.shown
    # The stock client sends some bytes of its memory behind the token.
    assert stock.startswith(own) and len(own) > 4, (stock, own)
    if b"ztn" in methods:
        assert own == b"ztn\0ztn\0\0T\0\0" + struct.pack(">H", len(TOKEN) + 1) + TOKEN.encode() + b"\0"
        assert len(stock) - len(own) <= 2
    else:
        assert stock == own


def test_tokens_are_found_where_tools_leave_them(authority, trusting, tmp_path, monkeypatch):
    for name in ("BEARER_TOKEN", "BEARER_TOKEN_FILE", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    with Asking(b"&P=ztn,0:4096:\0", authority.issue("finding")) as server:
        url = f"roots://localhost:{server.port}//file"

        def shown() -> bytes:
            done = weir("stat", url)
            assert TOKEN not in done.stdout + done.stderr
            if done.returncode == 0:
                return server.shown[-1]
            return done.stderr.encode()

        assert b"no token was found" in shown() and not server.shown
        file = tmp_path / "token"
        file.write_text(TOKEN + "\n")
        file.chmod(0o600)
        monkeypatch.setenv("BEARER_TOKEN_FILE", str(file))
        assert TOKEN.encode() in shown()
        file.chmod(0o644)
        assert b"mode 0644" in shown() and len(server.shown) == 1
        monkeypatch.delenv("BEARER_TOKEN_FILE")
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
        file.chmod(0o600)
        file.rename(tmp_path / f"bt_u{os.geteuid()}")
        assert TOKEN.encode() in shown()
        monkeypatch.setenv("BEARER_TOKEN", "x" * 5000)
        assert b"longer than the 4095 bytes" in shown()


def test_a_token_is_not_sent_in_the_clear(monkeypatch):
    monkeypatch.setenv("BEARER_TOKEN", TOKEN)
    with Asking(b"&P=ztn,0:4096:\0", None) as server:
        why = fails("stat", f"root://localhost:{server.port}//file")
        assert "roots://" in why and TOKEN not in why and not server.shown, why


def test_a_server_that_keeps_silent_in_tls_is_given_up(authority, trusting):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def serve():
            peer, _ = listener.accept()
            peer.recv(20, socket.MSG_WAITALL)
            peer.recv(24, socket.MSG_WAITALL)
            peer.sendall(b"\0\0\0\0\0\0\0\x08" + struct.pack(">ii", 0x511, 1))
            peer.sendall(b"\0\1\0\0\0\0\0\x08" + struct.pack(">iI", 0x511, HAVE_TLS | GOTO_TLS | IS_SERVER))
            time.sleep(60)

        threading.Thread(target=serve, daemon=True).start()
        begin = time.monotonic()
        assert "nothing for 10 s" in fails("ls", f"roots://localhost:{port}//")
        assert time.monotonic() - begin < 30  # two attempts
