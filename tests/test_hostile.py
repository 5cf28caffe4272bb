"""Frames that no honest client sends: the server answers with a protocol error or ends the connection. Other clients never notice, and
memory stays bounded."""

import random
import socket
import struct
import threading
import time
from contextlib import suppress

import pytest
import raw
from clients import Xrdfs, xrdcp
from content import KIB, MIB, content, write
from raw import Closed, Raw

WITHOUT_RECENT = True

I63 = 2**63 - 1
REFUSALS = range(3000, 3036)
peer_ok = pytest.mark.peer_ok


@pytest.fixture
def honest(node, place, tmp_path):
    """Another client with an open file, which must not notice anything; it confirms that at the end."""
    source = write(tmp_path / "honest", "honest", 2 * MIB)
    xrdcp("-f", source, f"{node.url}{place}/honest").ok()
    with Raw(node.port) as other:
        handle = other.open(f"{place}/honest")
        yield f"{place}/honest"
        answer = other.read(handle, 4096, 100_000)
        assert answer.status == raw.OK and answer.body == source.read_bytes()[4096:104_096]
        assert node.alive()
        assert Xrdfs(node.url).size(f"{place}/honest") == 2 * MIB


@peer_ok
def test_this_client_speaks_the_protocol(node, place):
    data = content("raw", 300_000)
    with Raw(node.port) as me:
        handle = me.open(f"{place}/file", raw.OPEN_NEW | raw.OPEN_UPDATE)
        assert me.write(handle, 0, data).status == raw.OK
        assert me.read(handle, 1000, 5000).body == data[1000:6000]
        assert me.close(handle).status == raw.OK
        assert me.stat(f"{place}/file").body.split()[1] == b"300000"
        assert me.stat(f"{place}/missing").error == raw.NOT_FOUND


# Frames before the login: an error or the end of the connection; nothing else happens.
BEFORE_LOGIN = {
    "nothing": b"",
    "half a handshake": struct.pack(">iii", 0, 0, 0),
    "zeros": bytes(4000),
    "ones": b"\xff" * 4000,
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "TLS": bytes.fromhex("16030100a5010000a10303") + bytes(160),
    "wrong magic": struct.pack(">iiiii", 0, 0, 0, 4, 2013),
    "request before login": struct.pack(">iiiii", 0, 0, 0, 4, 2012) + Raw.frame(raw.STAT, data=b"/"),
    "write before login": struct.pack(">iiiii", 0, 0, 0, 4, 2012) + Raw.frame(raw.WRITE, data=bytes(1000)),
    "huge login": struct.pack(">iiiii", 0, 0, 0, 4, 2012) + Raw.frame(raw.LOGIN, length=0x7FFFFFFF),
}


@pytest.mark.parametrize("what", BEFORE_LOGIN)
def test_before_login(node, honest, what):
    with socket.create_connection(("127.0.0.1", node.port), timeout=3) as peer:
        with suppress(OSError):
            peer.sendall(BEFORE_LOGIN[what])
            peer.shutdown(socket.SHUT_WR)
            while peer.recv(65536):
                pass


def bad(code: int, parameters: bytes = b"", data: bytes = b"", *, length: int | None = None, errors=REFUSALS):
    return code, parameters, data, length, errors


NO_HANDLE = (raw.FILE_NOT_OPEN, raw.ARG_INVALID)
FOREIGN = b"\x07\x07\x07\x07"
AFTER_LOGIN = {
    "request 2999": bad(2999, errors=[raw.INVALID_REQUEST, raw.UNSUPPORTED]),
    "request 3033": bad(3033, errors=[raw.INVALID_REQUEST, raw.UNSUPPORTED]),
    "clone without a range": bad(raw.CLONE, b"none"),
    "clone with half a range": bad(raw.CLONE, b"none", bytes(31)),
    "clone of files that are not open": bad(raw.CLONE, b"none", bytes(32), errors=[raw.FILE_NOT_OPEN]),
    "clone with offsets below zero": bad(raw.CLONE, b"none", b"\xff" * 32),
    "request 0": bad(0, errors=[raw.INVALID_REQUEST, raw.UNSUPPORTED]),
    "request 65535": bad(65535, errors=[raw.INVALID_REQUEST, raw.UNSUPPORTED]),
    "negative length": bad(raw.STAT, length=-1),
    "lowest length": bad(raw.STAT, length=-(2**31)),
    "highest length": bad(raw.STAT, b"", b"/x", length=2**31 - 1),
    "stat of nothing": bad(raw.STAT, errors=[raw.ARG_MISSING, raw.ARG_INVALID, raw.FILE_NOT_OPEN]),
    "mkdir of nothing": bad(raw.MKDIR, errors=[raw.ARG_MISSING, raw.ARG_INVALID]),
    "relative path": bad(raw.STAT, b"", b"a/b", errors=[raw.ARG_INVALID, raw.NOT_AUTHORIZED, raw.NOT_FOUND]),
    "path with NUL": bad(raw.STAT, b"", b"/a\0b", errors=[raw.ARG_INVALID, raw.NOT_FOUND]),
    "path of 5000": bad(raw.STAT, b"", b"/" + b"a/" * 2500, errors=[raw.ARG_TOO_LONG, raw.NOT_FOUND]),
    "path of 1 MB": bad(raw.STAT, b"", b"/" + b"a" * 1_000_000),
    "dots": bad(raw.STAT, b"", b"/../../etc/passwd", errors=[raw.ARG_INVALID, raw.NOT_AUTHORIZED]),
    "dots at the end": bad(raw.MKDIR, b"", b"/a/..", errors=[raw.ARG_INVALID, raw.NOT_AUTHORIZED]),
    "dots in open": bad(raw.OPEN, struct.pack(">HH", 0o644, raw.OPEN_NEW), b"/a/../b", errors=[raw.ARG_INVALID, raw.NOT_AUTHORIZED]),
    "close of a foreign handle": bad(raw.CLOSE, FOREIGN, errors=NO_HANDLE),
    "read of a foreign handle": bad(raw.READ, FOREIGN + struct.pack(">qi", 0, 100), errors=NO_HANDLE),
    "write to a foreign handle": bad(raw.WRITE, FOREIGN + struct.pack(">q", 0), bytes(100), errors=NO_HANDLE),
    "write of 1 MB to a foreign handle": bad(raw.WRITE, FOREIGN + struct.pack(">q", 0), bytes(MIB), errors=NO_HANDLE),
    "pgread of a foreign handle": bad(raw.PGREAD, FOREIGN + struct.pack(">qi", 0, 4096), errors=NO_HANDLE),
    "pgwrite to a foreign handle": bad(raw.PGWRITE, FOREIGN + struct.pack(">q", 0), bytes(4100), errors=NO_HANDLE),
    "sync of a foreign handle": bad(raw.SYNC, FOREIGN, errors=NO_HANDLE),
    "truncate of a foreign handle": bad(raw.TRUNCATE, FOREIGN + struct.pack(">q", 5), errors=NO_HANDLE),
    "readv of 17 bytes": bad(raw.READV, b"", bytes(17)),
    "readv of nothing": bad(raw.READV),
    "readv of 5000 pieces": bad(raw.READV, b"", struct.pack(">4siq", FOREIGN, 10, 0) * 5000),
    "readv of a foreign handle": bad(raw.READV, b"", struct.pack(">4siq", FOREIGN, 10, 0), errors=NO_HANDLE),
    "mv without a second path": bad(raw.MV, b"", b"/a"),
    "mv with a wrong first length": bad(raw.MV, struct.pack(">14xh", 3000), b"/a /b"),
    "mv with a negative first length": bad(raw.MV, struct.pack(">14xh", -5), b"/a /b"),
    "query of an unknown kind": bad(raw.QUERY, struct.pack(">H", 999), b"x"),
    "checksum of nothing": bad(raw.QUERY, struct.pack(">H", 3)),
    "truncate to a negative size": bad(raw.TRUNCATE, struct.pack(">4xq", -1), b"/HONEST"),
    "truncate past 2^63": bad(raw.TRUNCATE, struct.pack(">4xQ", 2**63 + 5), b"/HONEST"),
    "bind to nobody": bad(raw.BIND, bytes(range(16))),
    "gpfile": bad(raw.GPFILE),
    "fattr of rubbish": bad(raw.FATTR, FOREIGN + b"\x09\xff\xff", b"\xff" * 50),
    "set of 1 MB": bad(raw.SET, b"", b"x" * 1_000_000),
    "auth with nothing": bad(raw.AUTH, b"", b"\xff" * 100),
}


@pytest.mark.parametrize("what", AFTER_LOGIN)
def test_after_login(node, honest, what):
    """A protocol error; if the end of the frame is unknown, the connection may end instead."""
    code, parameters, data, length, errors = AFTER_LOGIN[what]
    with Raw(node.port) as me:
        me.socket.settimeout(20)
        try:
            answer = me.request(code, parameters, data.replace(b"/HONEST", honest.encode()), length=length)
        except Closed:
            assert length is not None or len(data) > 64 * KIB, "the connection ended where an error was due"
            return
        assert answer.error in errors, answer
        assert answer.text.strip(), "an error without words"
        if length is None and len(data) < 64 * KIB:
            assert me.stat(honest).status == raw.OK, "after an error the connection goes on"


@pytest.mark.parametrize(
    "offset,length",
    [(-1, 10), (-(2**63), 10), (I63, 10), (I63 - 5, 10), (2**62, 2**31 - 1), (0, -1), (0, -(2**31)), (I63, 2**31 - 1)],
)
@pytest.mark.parametrize("code", [raw.READ, raw.PGREAD], ids=["read", "pgread"])
def test_reads_at_impossible_places(node, honest, code, offset, length):
    with Raw(node.port) as me:
        handle = me.open(honest)
        answer = me.request(code, handle + struct.pack(">qi", offset, length))
        if answer.status == raw.ERROR:
            assert answer.error in REFUSALS
        else:
            assert len(answer.body) < 100, "bytes from nowhere"
        assert me.read(handle, 0, 10).body == content("honest", 2 * MIB)[:10]


@pytest.mark.parametrize("offset", [-1, -(2**63), I63, I63 - 5, 2**62])
@pytest.mark.parametrize("code", [raw.WRITE, raw.PGWRITE], ids=["write", "pgwrite"])
def test_writes_at_impossible_places(node, place, honest, code, offset):
    with Raw(node.port) as me:
        handle = me.open(f"{place}/target", raw.OPEN_DELETE | raw.OPEN_UPDATE)
        assert me.write(handle, 0, b"good").status == raw.OK
        answer = me.request(code, handle + struct.pack(">q", offset), bytes(100))
        assert answer.status == raw.ERROR or code == raw.PGWRITE, answer
        me.close(handle)
        assert int(me.stat(f"{place}/target").body.split()[1]) == 4


@pytest.mark.parametrize("length", [2**62, 2**63 - 1, 2**50, 2**44], ids=["2^62", "2^63-1", "2^50", "2^44"])
def test_a_length_that_no_file_can_have_is_refused_and_the_file_stands(node, place, honest, length):
    data = content("stands", 100_000)
    with Raw(node.port) as me, Raw(node.port) as other:
        handle = me.open(f"{place}/file", raw.OPEN_NEW | raw.OPEN_UPDATE)
        assert me.write(handle, 0, data).status == raw.OK and me.close(handle).status == raw.OK
        answer = me.request(raw.TRUNCATE, struct.pack(">4xQ", length), f"{place}/file".encode())
        assert answer.error in REFUSALS and answer.text.strip(), answer
        handle = me.open(f"{place}/file", raw.OPEN_UPDATE)
        for code, payload in ((raw.TRUNCATE, b""), (raw.WRITE, b"x")):
            assert me.request(code, handle + struct.pack(">Q", length), payload).status == raw.ERROR
        me.close(handle)  # it may say that a write was refused
        end = time.monotonic() + 5
        while other.read(other.open(f"{place}/file"), 0, 200_000).body != data:
            assert time.monotonic() < end, "the file is not what it was"
            time.sleep(0.1)


def test_holes_cost_nothing(node, place, honest):
    """Changing a file of 8 TiB, nearly all of it a hole, is as quick as changing a small one."""
    length, path = 2**43, f"{place}/holes"
    with Raw(node.port, timeout=10) as me:
        me.close(me.open(path, raw.OPEN_NEW | raw.OPEN_UPDATE))
        begin = time.monotonic()
        assert me.request(raw.TRUNCATE, struct.pack(">4xq", length), path.encode()).status == raw.OK
        for offset in (10, length - 5000):
            handle = me.open(path, raw.OPEN_UPDATE)
            assert me.write(handle, offset, b"y" * 4990).status == raw.OK and me.close(handle).status == raw.OK
        assert int(me.stat(path).body.split()[1]) == length
        handle = me.open(path)
        assert me.read(handle, length - 5002, 10_000).body == b"\0\0" + b"y" * 4990 + bytes(10)
        assert me.request(raw.RM, b"", path.encode()).status == raw.OK
        # To go through the hole would take much longer.
        assert time.monotonic() - begin < 30


def test_a_read_of_two_gigabytes_stays_bounded(node, honest):
    """A length of 2^31-1 on a 2 MiB file returns the file, without a buffer of that size."""
    before = node.rss_bytes()
    with Raw(node.port) as me:
        handle = me.open(honest)
        for _ in range(5):
            assert len(me.read(handle, 0, 2**31 - 1).body) == 2 * MIB
    assert node.rss_bytes() - before < 64 * MIB


def test_a_signature_that_nobody_asked_for(node, honest):
    """A signature has no answer of its own: the next request is answered, or the connection ends."""
    with Raw(node.port) as me, suppress(Closed):
        me.send(raw.SIGVER, b"\xff" * 16, bytes(3))
        me.send(raw.PING)
        assert me.receive().status in (raw.OK, raw.ERROR)


def test_a_handle_belongs_to_its_connection(node, honest):
    with Raw(node.port) as owner, Raw(node.port) as thief:
        handle = owner.open(honest)
        assert thief.read(handle, 0, 10).error in NO_HANDLE
        assert thief.close(handle).error in NO_HANDLE
        assert owner.read(handle, 0, 10).status == raw.OK


def test_ending_somebody_elses_session(node, honest):
    with Raw(node.port) as owner, Raw(node.port) as other:
        handle = owner.open(honest)
        with suppress(Closed):  # it may mean its own session
            for session in (b"\xff" * 16, bytes(16)):
                other.request(raw.ENDSESS, session)
        assert owner.read(handle, 0, 10).status == raw.OK


def test_a_page_with_a_wrong_checksum_is_never_stored_as_good(node, place):
    """pgwrite with a wrong CRC32C: the answer names the page, and a close without its correction fails."""
    page = content("page", 4096)
    with Raw(node.port) as me:
        handle = me.open(f"{place}/pages", raw.OPEN_NEW | raw.OPEN_UPDATE)
        answer = me.request(raw.PGWRITE, handle + struct.pack(">q", 0), struct.pack(">I", 0xDEADBEEF) + page)
        assert answer.status in (raw.STATUS, raw.ERROR)
        if answer.status == raw.STATUS:
            assert len(answer.body) > 24, "the answer names no bad page"
            assert me.close(handle).error == raw.CHECKSUM_ERROR
        else:
            assert answer.error == raw.CHECKSUM_ERROR


@peer_ok
def test_a_slow_sender_is_served(node, honest):
    """One byte at a time."""
    with Raw(node.port) as me:
        for byte in me.frame(raw.STAT, data=honest.encode()):
            me.socket.sendall(bytes([byte]))
            time.sleep(0.002)
        assert me.receive().status == raw.OK


@peer_ok
def test_a_thousand_requests_in_one_packet(node, honest):
    with Raw(node.port) as me:
        frames = [me.frame(raw.STAT, data=honest.encode(), stream=struct.pack(">H", number)) for number in range(1000)]
        me.socket.sendall(b"".join(frames))
        answers = [me.receive() for _ in range(1000)]
    assert all(answer.status == raw.OK for answer in answers)
    assert sorted(answer.stream for answer in answers) == [struct.pack(">H", number) for number in range(1000)]


def test_who_never_reads_costs_little(node, honest):
    """Ten clients ask for 2 GB each and read nothing: memory stays bounded, and the others are served."""
    before = node.rss_bytes()
    lazy = [Raw(node.port) for _ in range(10)]
    for me in lazy:
        handle = me.open(honest)
        frames = b"".join(me.frame(raw.READ, handle + struct.pack(">qi", 0, 2 * MIB)) for _ in range(1000))
        me.socket.settimeout(1)
        with suppress(TimeoutError):
            me.socket.sendall(frames)
    time.sleep(2)
    grown = node.rss_bytes() - before
    begin = time.monotonic()
    assert Xrdfs(node.url).size(honest) == 2 * MIB
    # Those who do not read are cut off after a minute.
    assert time.monotonic() - begin < 15, "others wait"
    for me in lazy:
        me.socket.close()
    assert grown < 10 * 12 * MIB, f"{grown >> 20} MiB for ten idle readers"


def test_promised_lengths_cost_nothing(node, honest):
    """Three hundred connections announce 2 GB each and send nothing more."""
    before = node.rss_bytes()
    liars = []
    for _ in range(300):
        me = Raw(node.port)
        with suppress(ConnectionError):
            me.send(raw.WRITE, FOREIGN, b"", length=2**31 - 1)
        liars.append(me)
    time.sleep(1)
    grown = node.rss_bytes() - before
    for me in liars:
        me.socket.close()
    assert grown < 150 * MIB, f"{grown >> 20} MiB for 300 promises"


def test_open_and_gone_many_times(node, place, honest):
    """Clients that open files and vanish leave no memory and no handles behind."""

    def once(number: int) -> None:
        with Raw(node.port) as me:
            for name in range(5):
                me.open(honest)
                me.open(f"{place}/gone-{number % 50}-{name}", raw.OPEN_DELETE | raw.OPEN_UPDATE)

    for number in range(100):
        once(number)
    time.sleep(1)
    before = node.rss_bytes()
    for number in range(300):
        once(number)
    time.sleep(1)
    assert node.rss_bytes() - before < 64 * MIB


def mutated(pick: random.Random, path: bytes) -> bytes:
    """A valid frame with changes in a few places."""
    code = pick.choice(range(3000, 3033))
    data = pick.choice([b"", path, path + b" " + path + b"2", pick.randbytes(pick.randrange(100)), bytes(16) * pick.randrange(5)])
    frame = bytearray(Raw.frame(code, pick.randbytes(16) if pick.random() < 0.7 else bytes(16), data))
    for _ in range(pick.choice([0, 1, 1, 2, 5])):
        frame[pick.randrange(len(frame))] = pick.randrange(256)
    return bytes(frame)


def test_two_thousand_mutated_frames(node, place, honest):
    seed = random.SystemRandom().randrange(2**32)
    print(f"mutated frames: seed {seed}")
    pick = random.Random(seed)
    before = node.rss_bytes()
    answered = 0
    for _ in range(200):
        with Raw(node.port) as me, suppress(Closed, ConnectionError, TimeoutError):
            me.socket.settimeout(0.3)
            for _ in range(10):
                me.socket.sendall(mutated(pick, f"{place}/fuzz".encode()))
            while True:
                me.receive()
                answered += 1
    assert answered > 200
    assert node.rss_bytes() - before < 200 * MIB


def test_a_flood_of_connections(node, honest):
    """A thousand connections at once are served or refused; afterwards the node is as before."""
    many = []
    with suppress(OSError):
        for _ in range(1000):
            many.append(socket.create_connection(("127.0.0.1", node.port), timeout=2))
    threads = [threading.Thread(target=lambda: Xrdfs(node.url).size(honest)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for one in many:
        one.close()
    for thread in threads:
        thread.join()


def test_the_log_names_the_client_and_the_reason_once(own_node):
    """The log names it, but a persistent client does not fill the log."""
    server = own_node()
    with Raw(server.port) as me:
        for _ in range(500):
            me.request(2999)
    with Raw(server.port) as me, suppress(Closed):
        me.request(raw.STAT, length=-5)
    time.sleep(0.5)
    lines = [line for line in server.log_text().splitlines() if "raw.4242@127.0.0.1" in line]
    assert any("2999" in line for line in lines), "the reason is not in the log"
    assert len(lines) < 50, f"{len(lines)} lines for two clients"
