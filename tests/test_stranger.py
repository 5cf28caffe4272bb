"""A stranger reaches the port of a node, a manager or a disk server that lets in only clients that show who they are: malformed frames of
every kind, half handshakes, 10,000 silent connections. It changes nothing and reads nothing, and users are served meanwhile."""

import random
import resource
import socket
import struct
import subprocess
import threading
import time
from collections import Counter
from contextlib import suppress

import pytest
import raw
from authority import Authority
from clients import STUBBORN, run
from cluster import Cluster
from content import MIB, write
from harness import WEIR_BIN, Weir, remove, until
from raw import Raw
from secrets_of import add_key, keys

# What a stranger may not learn, and does not send itself: who owns the hidden file, and its bytes.
SECRETS = (b"ana-the-owner", b"treasure treasure")
CROWD = 10_000
HELLO = struct.pack(">iiiii", 0, 0, 0, 4, 2012)
# A client that can speak TLS asks for it; the server then expects a TLS handshake.
BEGIN_TLS = HELLO + Raw.frame(raw.PROTOCOL, struct.pack(">iBB10x", 0x511, 0x04 | 0x02, 3))
LOG_IN = struct.pack(">i8sBBBB", 7, b"eve", 0, 0, 5, 0)
CLIENT_HELLO = bytes.fromhex("16030100a5010000a10303") + bytes(160)
# The only requests that a stranger gets an OK for: the protocol's version, the offer of mechanisms, and a sign of life.
MAY_BE_OK = {raw.PROTOCOL, raw.LOGIN, raw.PING}
# A disk server sends everybody who asks about names to the manager. It tells its space (a stat with the option for that).
AT_DISK_SERVERS = {(raw.STAT, raw.OK), (raw.ENDSESS, raw.OK)} | {
    (code, raw.REDIRECT)
    for code in (
        *(raw.QUERY, raw.CHMOD, raw.DIRLIST, raw.MKDIR, raw.MV, raw.OPEN, raw.RM, raw.RMDIR, raw.STAT, raw.PREPARE, raw.STATX),
        *(raw.LOCATE, raw.TRUNCATE),
    )
}
KINDS = [*range(2998, 3035), 0, 65535]


def variants(code: int) -> list[bytes]:
    """Frames of a kind: as an honest client has it, and malformed."""
    path, gone = b"/hidden/treasure", b"/hidden/nothing"
    some = struct.pack(">HH12x", 0o777, raw.OPEN_UPDATE | raw.OPEN_FORCE | raw.OPEN_DELETE)
    return [
        Raw.frame(code, some, path),
        Raw.frame(code, some, gone),
        Raw.frame(code, struct.pack(">H14x", 3), path),
        Raw.frame(code, struct.pack(">14xh", 16), path + b" /stolen"),
        Raw.frame(code, struct.pack(">4sqi", bytes(4), 0, 1 << 20)),
        Raw.frame(code, bytes(16), b"", length=-1),
        Raw.frame(code, bytes(16), b"/x", length=2**31 - 1),
        Raw.frame(code, b"\xff" * 16, b"\xff" * 4000),
        Raw.frame(code, bytes(16), bytes(1 << 16)),
        Raw.frame(code, some, path)[:20],
    ]


class Place:
    """A service with a hidden file of its user ana. `ports` are those at which a stranger tries."""

    def __init__(self, url: str, held, ports: list[tuple[str, int]], servers, tmp_path):
        self.url, self.held, self.ports, self.servers, self.tmp_path = url.rstrip("/"), held, ports, servers, tmp_path

    def fs(self, who: str, *arguments: str):
        return run([*self.held[who], "xrdfs", self.url, *arguments])

    def everything(self) -> str:
        """All names with their sizes, modes, owners and times, and the bytes of the hidden file."""
        listed = self.fs("keeper", "ls", "-l", "-R", "/").ok().out
        run([*self.held["ana"], "xrdcp", "-f", f"{self.url}//hidden/treasure", str(self.tmp_path / "seen")]).ok()
        seen = subprocess.run(["sha256sum", str(self.tmp_path / "seen")], capture_output=True, text=True, check=True).stdout
        return listed + self.fs("keeper", "stat", "/hidden/treasure").ok().out + seen


@pytest.fixture(scope="module")
def settings(base):
    home = base / "stranger"
    home.mkdir()
    authority = Authority(home)
    hosts = ",".join(["DNS:localhost", *(f"{kind}:127.0.0.{number}" for number in range(1, 4) for kind in ("DNS", "IP"))])
    certificate, key = authority.issue("stranger", hosts)
    keytab = home / "node.keytab"
    add_key(keytab, "keeper", "keeper", "staff")
    add_key(keytab, "ana", "ana-the-owner", "atlas")
    config = home / "weir.toml"
    config.write_text(
        f"""
tls.certificate = "{certificate}"
tls.key = "{key}"
authentication.mechanisms = ["sss", "gsi", "ztn"]
authentication.gsi_authorities = "{authority.trusted}"
authentication.keytab = "{keytab}"
[[issuer]]
url = "https://issuer.example"
audiences = ["root://weir.example"]
base_paths = ["/"]
[[identity]]
secret = "keeper"
principal = "admin"
[[identity]]
secret = "ana"
principal = "{{user}}"
groups = ["{{groups}}"]
"""
    )
    held = {name: ["env", f"XrdSecSSSKT={one.alone(home / f'{name}.keytab')}", "XrdSecPROTOCOL=sss"] for name, one in keys(keytab).items()}
    return config, held


@pytest.fixture(scope="module", params=[pytest.param("node", marks=pytest.mark.long), "cluster"])
def started(request, base, settings):
    config, held = settings
    home = base / f"stranger-{request.param}"
    if request.param == "cluster":
        with Cluster(home, 2, ("--config", str(config))) as cluster:
            ports = [("127.0.0.1", cluster.manager.port), (cluster.disks[0].host, cluster.disks[0].port)]
            yield cluster.url, held, ports, [node.process.pid for node in cluster.nodes]
            assert all(node.alive() for node in cluster.nodes)
    else:
        with Weir(home, None, ("--config", str(config))) as server:
            yield server.url, held, [("127.0.0.1", server.port)], [server.pid]
            assert server.alive()
    remove(home)


@pytest.fixture
def place(started, tmp_path):
    place = Place(*started, tmp_path)
    place.fs("keeper", "mkdir", "-p", "-mrwxr-xr-x", "/hidden")
    run([*place.held["ana"], "xrdfs", place.url, "stat", "/"]).ok()
    source = write(tmp_path / "source", "treasure", 300_000)
    source.write_bytes(b"treasure " * 40_000)
    run([*place.held["keeper"], "xrdcp", "-f", str(source), f"{place.url}//hidden/treasure"]).ok()
    place.fs("keeper", "chmod", "/hidden/treasure", "rw-------").ok()
    run([*place.held["keeper"], str(WEIR_BIN), "chown", "ana-the-owner", f"{place.url}//hidden/treasure"]).ok()
    return place


def heard(port: tuple[str, int], sent: bytes, seconds: float = 0.25) -> bytes:
    """All that the server says to this, until it is silent or ends the connection."""
    answer = b""
    with socket.create_connection(port, timeout=10) as peer:
        with suppress(OSError):
            peer.sendall(sent)
            peer.settimeout(seconds)
            while part := peer.recv(1 << 16):
                answer += part
    return answer


def answers(data: bytes) -> list[tuple[int, bytes]]:
    """Status and body of each answer."""
    found = []
    while len(data) >= 8:
        _, status, length = struct.unpack(">2sHi", data[:8])
        found.append((status, data[8 : 8 + length]))
        data = data[8 + length :]
    return found


BEFORE = {"no login": HELLO, "a login that shows nothing": HELLO + Raw.frame(raw.LOGIN, LOG_IN)}


@pytest.mark.parametrize("stage", BEFORE)
def test_no_request_of_any_kind_is_done_for_a_stranger(place, stage):
    before = place.everything()
    count = Counter()
    begun = len(answers(heard(place.ports[0], BEFORE[stage])))
    assert begun == (1 if stage == "no login" else 2)
    for port in place.ports:
        tries = [(code, frame) for code in KINDS for frame in variants(code)]
        # A quarter of a second each, on many connections at once.
        found: list[tuple[int, bytes]] = []
        turn = iter(tries)
        lock = threading.Lock()

        def work(port=port, turn=turn, found=found, lock=lock):
            while True:
                with lock:
                    code, frame = next(turn, (None, b""))
                if code is None:
                    return
                heard_now = heard(port, BEFORE[stage] + frame)
                with lock:
                    found.append((code, heard_now))

        threads = [threading.Thread(target=work) for _ in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == len(tries)
        done = set()
        for code, said in found:
            assert not any(secret in said for secret in SECRETS), (port, code, said)
            for status, body in answers(said)[begun:]:
                count[status] += 1
                if status == raw.REDIRECT:
                    assert body[4:].startswith(b"127.0.0.1") and len(body) < 100, (port, code, body)
                if status != raw.ERROR:
                    done.add((code, status))
        unexpected = done - {(code, raw.OK) for code in MAY_BE_OK}
        if stage != "no login" and port is place.ports[-1] and len(place.ports) > 1:
            unexpected -= AT_DISK_SERVERS
        assert not unexpected, f"{port}: {sorted(unexpected)}"
    print(count)
    assert count[raw.ERROR] > 100
    assert place.everything() == before


def test_a_denial_does_not_say_whether_a_name_exists(place):
    for port in place.ports:
        for code in (raw.STAT, raw.OPEN, raw.DIRLIST, raw.RM, raw.LOCATE, raw.QUERY, raw.STATX, raw.MKDIR, raw.CHMOD, raw.TRUNCATE):
            said = [heard(port, BEFORE["a login that shows nothing"] + Raw.frame(code, b"", path)) for path in (b"/hidden", b"/gone")]
            bodies = [answers(one)[2:] for one in said]
            assert bodies[0] == bodies[1] and bodies[0], (port, code, bodies)


def test_mutated_frames_of_a_stranger_change_nothing(place):
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    pick = random.Random(seed)
    before = place.everything()
    frames = [frame for code in KINDS for frame in variants(code)]
    for port in place.ports:
        for _ in range(60):
            sent = bytearray(pick.choice(list(BEFORE.values())))
            for _ in range(20):
                frame = bytearray(pick.choice(frames)[:3000])
                for _ in range(pick.choice([0, 1, 2, 5])):
                    frame[pick.randrange(len(frame))] = pick.randrange(256)
                sent += frame
            said = heard(port, bytes(sent), 0.1)
            assert not any(secret in said for secret in SECRETS), said
    assert place.everything() == before


def threads_of(pid: int) -> int:
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("Threads:"))


def resident(pid: int) -> int:
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))


@pytest.mark.alone  # thousands of threads and connections: what runs beside them, and the user here, would wait too long
@pytest.mark.timeout(300)
def test_ten_thousand_connections_of_strangers_keep_out_no_user(place, tmp_path):
    """They are silent, in the middle of a handshake of one kind or another, or never show who they are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CROWD + 500
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"this system allows only {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    beginnings = [
        b"",
        HELLO[:7],
        HELLO,
        BEGIN_TLS,
        BEGIN_TLS + CLIENT_HELLO[:30],
        BEGIN_TLS + CLIENT_HELLO,
        BEFORE["a login that shows nothing"],
        BEFORE["a login that shows nothing"] + Raw.frame(raw.AUTH, bytes(12) + b"sss\0", b"sss\0" + bytes(200)),
        BEFORE["a login that shows nothing"] + Raw.frame(raw.AUTH, bytes(12) + b"gsi\0", bytes(3000), length=8000),
        HELLO + Raw.frame(raw.WRITE, bytes(16), length=1 << 24),
        b"GET / HTTP/1.1\r\n",
    ]
    before = place.everything()
    usual = [resident(pid) for pid in place.servers]
    crowd: list[socket.socket] = []
    served, wrong, is_over = Counter(), [], threading.Event()

    def use() -> None:
        source = write(tmp_path / "mine", "user", 100_000)
        while not is_over.is_set():
            begin = time.monotonic()
            # The system may drop a connection in the flood. The client of a real user tries again for minutes.
            put = run([*place.held["keeper"], "xrdcp", "-f", str(source), f"{place.url}//user"], patience=STUBBORN)
            got = run([*place.held["keeper"], "xrdcp", "-f", f"{place.url}//user", str(tmp_path / "back")], patience=STUBBORN)
            if put.code or got.code or (tmp_path / "back").read_bytes() != source.read_bytes():
                wrong.append((put, got))
            served["times"] += 1
            served["slowest"] = max(served["slowest"], int(1000 * (time.monotonic() - begin)))

    user = threading.Thread(target=use)
    user.start()
    refused = 0
    try:
        for number in range(CROWD):
            port = place.ports[number % len(place.ports)]
            # From forty addresses: each may have its share of the connections only.
            peer = socket.socket()
            peer.settimeout(5)
            try:
                peer.bind((f"127.0.1.{1 + number % 40}", 0))
                peer.connect(port)
                peer.sendall(beginnings[number % len(beginnings)])
                crowd.append(peer)
            except OSError:
                refused += 1
                peer.close()
            if number % 20 == 0:  # the system drops a connection that the server has no place for yet, and tries again after a second
                time.sleep(0.02)
        time.sleep(2)
    finally:
        is_over.set()
        user.join()
        for peer in crowd:
            peer.close()
    took = [resident(pid) - was for pid, was in zip(place.servers, usual, strict=True)]
    print(f"{len(crowd)} connected, {refused} refused; user {dict(served)} ms; memory {[f'{one / MIB:.0f} MiB' for one in took]}")
    assert wrong == [], wrong[:2]
    assert served["times"] >= 2 and len(crowd) > CROWD // 2
    assert max(took) < 600 * MIB, took
    run([*place.held["keeper"], "xrdfs", place.url, "rm", "/user"]).ok()
    until(lambda: max(threads_of(pid) for pid in place.servers) < 300, 100, lambda: "the threads of gone strangers are still there")
    after = place.everything()
    assert [line for line in after.splitlines() if "hidden" in line or "treasure" in line] == [
        line for line in before.splitlines() if "hidden" in line or "treasure" in line
    ]
