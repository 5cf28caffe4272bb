"""TLS with the stock client: who must use it, that it is used, and certificates that are replaced while the node runs."""

import os
import socket
import ssl
import struct
import time

import pytest
from clients import run
from content import MIB, write
from harness import weir
from raw import LOGIN, OK, PING, PROTOCOL, READ, READV, Raw


@pytest.fixture
def served(own_node, authority, tmp_path):
    """Starts a node with a certificate."""

    def start(required: str = "[]"):
        certificate, key = authority.issue(tmp_path.name)
        config = tmp_path / "weir.toml"
        config.write_text(f'tls.certificate = "{certificate}"\ntls.key = "{key}"\ntls.required = {required}\n')
        return own_node("--config", str(config))

    return start


@pytest.fixture
def trusting(authority, monkeypatch):
    monkeypatch.setenv("X509_CERT_DIR", str(authority.trusted))


def secure(node) -> str:
    return f"roots://localhost:{node.port}"


def copies(url: str, tmp_path, size: int = 20 * MIB + 4711) -> None:
    source, back = write(tmp_path / "source", "tls", size), tmp_path / "back"
    run(["xrdcp", "-f", str(source), f"{url}//file"]).ok()
    run(["xrdcp", "-f", f"{url}//file", str(back)]).ok()
    assert back.read_bytes() == source.read_bytes()
    assert f"{size}" in run(["xrdfs", url, "stat", "/file"]).ok().out


def test_a_stock_client_speaks_tls_if_it_wants(served, trusting, tmp_path):
    node = served()
    for url in (secure(node), node.url.rstrip("/")):
        copies(url, tmp_path)


@pytest.mark.parametrize("required", ['["login"]', '["session"]', '["data"]', '["login", "data"]'])
def test_what_requires_tls_gets_it_from_a_client_that_can(served, trusting, tmp_path, required):
    node = served(required)
    copies(node.url.rstrip("/"), tmp_path)
    # And with further connections for the data.
    source, back = tmp_path / "source", tmp_path / "back"
    run(["xrdcp", "-f", "-S", "4", f"{node.url}/file", str(back)]).ok()
    assert back.read_bytes() == source.read_bytes()
    # One that cannot is refused, with the reason.
    from raw import Raw

    with pytest.raises(AssertionError, match="TLS"):
        Raw(node.port)


def test_nothing_is_in_the_clear(served, trusting, tmp_path):
    node = served('["login"]')
    secret = b"this must not be seen by others "
    (tmp_path / "source").write_bytes(secret * 1000)
    seen = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        port = proxy.getsockname()[1]
        import threading

        def pump(one, other):
            while data := one.recv(65536):
                seen.extend(data)
                other.sendall(data)

        def serve():
            client, _ = proxy.accept()
            server = socket.create_connection(("127.0.0.1", node.port))
            threading.Thread(target=pump, args=(client, server), daemon=True).start()
            threading.Thread(target=pump, args=(server, client), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        run(["xrdcp", "-f", str(tmp_path / "source"), f"roots://localhost:{port}//file"]).ok()
    assert len(seen) > 32_000 and secret not in seen and b"/file" not in seen


def shown(node) -> bytes:
    """The certificate that the node shows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", node.port), timeout=20) as plain:
        plain.sendall(struct.pack(">iiiii", 0, 0, 0, 4, 2012))
        # The answer to the handshake, then kXR_protocol with kXR_wantTLS.
        assert len(plain.recv(16, socket.MSG_WAITALL)) == 16
        plain.sendall(struct.pack(">2sHiBB10xi", b"\0\1", 3006, 0x511, 0x06, 3, 0))
        header = plain.recv(8, socket.MSG_WAITALL)
        assert header[:4] == b"\0\1\0\0", header
        flags = plain.recv(struct.unpack(">i", header[4:])[0], socket.MSG_WAITALL)
        assert struct.unpack(">iI", flags[:8])[1] & 0xC0000000 == 0xC0000000
        with context.wrap_socket(plain) as encrypted:
            return encrypted.getpeercert(binary_form=True)


def test_a_replaced_certificate_is_used_without_a_restart(served, authority, tmp_path):
    node = served()
    before = shown(node)
    certificate, key = authority.issue("replacing")
    here = authority.home / f"{tmp_path.name}.pem"
    os.replace(key, authority.home / f"{tmp_path.name}.key")
    os.replace(certificate, here)
    end = time.monotonic() + 30
    while (after := shown(node)) == before:
        assert time.monotonic() < end
        time.sleep(1)
    assert ssl.DER_cert_to_PEM_cert(after).strip() == here.read_text().strip()


def test_half_a_handshake_and_silence_harm_nobody(served, trusting, tmp_path):
    node = served('["login"]')
    idle = []
    for sent in (b"", b"\x16\x03\x01\x02\x00\x01", b"GET / HTTP/1.0\r\n\r\n", bytes(1000)):
        plain = socket.create_connection(("127.0.0.1", node.port), timeout=20)
        plain.sendall(struct.pack(">iiiii", 0, 0, 0, 4, 2012))
        plain.recv(16, socket.MSG_WAITALL)
        plain.sendall(struct.pack(">2sHiBB10xi", b"\0\1", 3006, 0x511, 0x06, 3, 0))
        plain.recv(16, socket.MSG_WAITALL)
        plain.sendall(sent)
        idle.append(plain)
    copies(secure(node), tmp_path, 100_000)
    # What is no TLS is cut off.
    for plain in idle[2:]:
        while plain.recv(4096):
            pass
    for plain in idle:
        plain.close()


def test_a_certificate_that_cannot_be_used_is_told_at_the_start(authority, tmp_path):
    certificate, key = authority.issue("told")
    config = tmp_path / "weir.toml"

    def refused(text: str) -> str:
        config.write_text(text)
        done = weir("serve", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--config", str(config), timeout=30)
        assert done.returncode == 2, done
        return done.stderr

    assert "there is no certificate" in refused('tls.required = ["login"]\n')
    assert "`tls.certificate` is not" in refused(f'tls.key = "{key}"\n')
    assert "cannot read the certificate" in refused(f'tls.certificate = "{tmp_path}/none"\n')
    key.chmod(0o644)
    assert "mode 0644" in refused(f'tls.certificate = "{certificate}"\ntls.key = "{key}"\n')
    assert "login, session and data" in refused('tls.required = ["all"]\n')


def test_each_answer_has_records_of_its_own(served, trusting):
    """A stock client that has read an answer waits for the socket, and does not look at what else was in the record."""
    node = served('["login"]')
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(received, sent)
    with Raw(node.port, login=False) as client:
        client.handshake()
        client.socket.sendall(struct.pack(">2sHiBB10xi", b"\0\1", PROTOCOL, 0x511, 0x06, 3, 0))
        assert client.receive().status == OK

        def exchange(step, records: list[bytes]):
            """Does a step of TLS, and keeps the records that it takes."""
            while True:
                try:
                    return step()
                except ssl.SSLWantReadError:
                    client.socket.sendall(sent.read())
                    header = client.exactly(5)
                    records.append(header + client.exactly(struct.unpack(">H", header[3:])[0]))
                    received.write(records[-1])

        exchange(tls.do_handshake, [])
        tls.write(Raw.frame(LOGIN, struct.pack(">i8sBBBB", 4242, b"raw", 0, 0, 5, 0)))
        header = exchange(lambda: tls.read(8), [])
        exchange(lambda: tls.read(struct.unpack(">i", header[4:])[0]), [])
        tls.write(b"".join(Raw.frame(PING, stream=struct.pack(">H", number)) for number in range(1, 6)))
        records = []
        answers = [exchange(lambda: tls.read(8), records) for _ in range(5)]
        assert [answer[:4] for answer in answers] == [struct.pack(">HH", number, OK) for number in range(1, 6)]
        assert len(records) == 5


@pytest.mark.parametrize("vector", [False, True])
def test_a_slow_client_gets_all_of_a_large_answer(served, trusting, tmp_path, vector):
    """The socket takes only a part of the encrypted answer at once."""
    node, size = served('["login", "data"]'), 8 * MIB + 4711
    source = write(tmp_path / "source", "slow", size)
    run(["xrdcp", "-f", str(source), f"{secure(node)}//file"]).ok()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with Raw(node.port, login=False) as client:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
        client.handshake()
        client.socket.sendall(struct.pack(">2sHiBB10xi", b"\0\1", PROTOCOL, 0x511, 0x06, 3, 0))
        assert client.receive().status == OK
        client.socket = context.wrap_socket(client.socket)
        client.request(LOGIN, struct.pack(">i8sBBBB", 4242, b"raw", 0, 0, 5, 0))
        handle, part = client.open("/file"), 1 * MIB
        if vector:
            pieces = [handle + struct.pack(">iq", part, at) for at in range(0, 8 * MIB, part)]
            number = client.send(READV, data=b"".join(pieces))
        else:
            number = client.send(READ, handle + struct.pack(">qi", 0, size))
        time.sleep(1)
        got = client.answer(number)
        assert got.status == OK, got.body[:100]
        body = got.body if not vector else b"".join(got.body[at + 16 : at + 16 + part] for at in range(0, len(got.body), 16 + part))
        assert body == source.read_bytes()[: len(body)] and len(body) == (8 * MIB if vector else size)
        assert client.request(PING).status == OK
