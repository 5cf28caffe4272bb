"""Third-party copies: a client has one server fetch from another. Stock xrdcp and gfal2, weir and stock xrootd, both ways."""

import hashlib
import random
import socket
import struct
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from harness import WEIR_BIN, Weir, Xrootd, weir
from raw import ERROR, NOT_AUTHORIZED, NOT_FOUND, OK, OPEN, OPEN_NEW, OPEN_READ, OPEN_UPDATE, SYNC, Answer, Raw

MIB = 1 << 20
ATTN, WAIT, WAITRESP = 4001, 4005, 4006


class TpcXrootd(Xrootd):
    """A stock xrootd that takes part in third-party copies."""

    more = "ofs.tpc ttl 60 60 pgm /usr/bin/xrdcp --server\n"


def content(size: int) -> bytes:
    part = random.Random(size).randbytes(min(size, 8 * MIB))
    return (part * (size // len(part) + 1))[:size]


def digest(path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def xrdcp(*arguments, timeout=120):
    return subprocess.run(["xrdcp", "-s", *arguments], capture_output=True, text=True, timeout=timeout)


@pytest.fixture(scope="module")
def other(base):
    with Weir(base / "tpc-other") as server:
        yield server


@pytest.fixture(scope="module")
def peer(base):
    with TpcXrootd(base / "tpc-peer") as server:
        yield server


@pytest.fixture
def source(node, tmp_path):
    path = tmp_path / "source"
    path.write_bytes(content(50 * MIB + 17))
    name = f"{node.url}/tpc-{tmp_path.name}"
    assert weir("cp", str(path), name).returncode == 0
    return name, path


def same(url, path, tmp_path) -> bool:
    back = tmp_path / "back"
    done = weir("cp", "-f", url, str(back))
    assert done.returncode == 0, done.stderr
    return digest(path) == digest(back)


def test_between_two_weirs(other, source, tmp_path):
    url, path = source
    done = xrdcp("--tpc", "only", url, f"{other.url}/copy-{tmp_path.name}")
    assert done.returncode == 0, done.stderr
    assert same(f"{other.url}/copy-{tmp_path.name}", path, tmp_path)
    assert "fetched" in other.log_text()


def test_with_checksum_and_force(other, source, tmp_path):
    url, path = source
    target = f"{other.url}/copy-{tmp_path.name}"
    for _ in range(2):
        done = xrdcp("-f", "--cksum", "adler32", "--tpc", "only", url, target)
        assert done.returncode == 0, done.stderr
    assert xrdcp("--tpc", "only", url, target).returncode != 0, "it is there"
    assert same(target, path, tmp_path)


def test_an_empty_file(node, other, tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    url = f"{node.url}/{tmp_path.name}-empty"
    assert weir("cp", str(tmp_path / "empty"), url).returncode == 0
    done = xrdcp("--tpc", "only", url, f"{other.url}/{tmp_path.name}-empty")
    assert done.returncode == 0, done.stderr


def test_from_weir_to_stock(peer, source, tmp_path):
    url, path = source
    done = xrdcp("--tpc", "only", url, f"{peer.url}/copy-{tmp_path.name}")
    assert done.returncode == 0, done.stderr
    assert same(f"{peer.url}/copy-{tmp_path.name}", path, tmp_path)


def test_from_stock_to_weir(peer, other, source, tmp_path):
    url, path = source
    there = f"{peer.url}/src-{tmp_path.name}"
    assert weir("cp", str(path), there).returncode == 0
    done = xrdcp("--tpc", "only", there, f"{other.url}/from-{tmp_path.name}")
    assert done.returncode == 0, done.stderr
    assert same(f"{other.url}/from-{tmp_path.name}", path, tmp_path)


def test_onto_itself_changes_nothing(node, source, tmp_path):
    url, path = source
    xrdcp("-f", "--tpc", "only", url, url)
    assert same(url, path, tmp_path)


def test_from_nowhere_and_from_what_is_not_there(node, other, source, tmp_path):
    url, _ = source
    done = xrdcp("--tpc", "only", f"{node.url}/nothing", f"{other.url}/x-{tmp_path.name}")
    assert done.returncode != 0
    assert weir("stat", f"{other.url}/x-{tmp_path.name}").returncode == 11, "nothing is visible"


@pytest.fixture
def silent():
    """The address of a source that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def begin_copy(me: Raw, path: str, source: str) -> Answer:
    """Opens a target that is to be fetched from `source`, and starts it: the answer to that, with the handle before it."""
    opaque = f"?tpc.src={source}&tpc.key=key{path[1:]}&tpc.lfn=/there&tpc.stage=copy"
    answer = me.request(OPEN, struct.pack(">HH12x", 0o644, OPEN_NEW | OPEN_UPDATE), (path + opaque).encode())
    assert answer.status == OK, answer
    me.handle = answer.body[:4]
    return me.request(SYNC, me.handle)


def end_of_copy(me: Raw, patience: float) -> str:
    """Why it has failed."""
    me.socket.settimeout(patience)
    answer = me.request(SYNC, me.handle)
    if answer.status == WAITRESP:
        answer = me.receive()
    assert answer.status == ATTN and struct.unpack(">H", answer.body[10:12])[0] == ERROR, answer
    return answer.body[20:].rstrip(b"\0").decode()


def test_from_where_nobody_listens_and_from_who_says_nothing(node, silent, tmp_path):
    with Raw(node.port) as me:
        assert begin_copy(me, f"/nobody-{tmp_path.name}", "127.0.0.1:1").status == OK
        assert "cannot connect to 127.0.0.1:1" in end_of_copy(me, 5)
        assert me.stat(f"/nobody-{tmp_path.name}").error == NOT_FOUND, "nothing is visible"
    with Raw(node.port) as me:
        assert begin_copy(me, f"/silent-{tmp_path.name}", silent).status == OK
        assert f"{silent} has said nothing for 10 s" in end_of_copy(me, 20)
        assert me.stat(f"/silent-{tmp_path.name}").error == NOT_FOUND
        assert me.close(me.handle).status == ERROR, "what was not fetched is not closed as whole"
        assert me.stat(f"/silent-{tmp_path.name}").error == NOT_FOUND


def test_copies_from_who_says_nothing_leave_room_for_others(other, source, silent, tmp_path):
    """Another machine begins as many as it gets, and they stand still; this one's copy is done meanwhile."""
    url, path = source
    with ExitStack() as stack:
        begun = []
        for number in range(20):
            me = stack.enter_context(Raw(other.port, machine="127.0.0.2"))
            begun.append(begin_copy(me, f"/silent-{number}-{tmp_path.name}", silent))
        assert {answer.status for answer in begun} == {OK, WAIT}, begun
        refused = next(answer for answer in begun if answer.status == WAIT)
        assert b"Your machine has its share" in refused.body
        begin = time.monotonic()
        done = xrdcp("--tpc", "only", url, f"{other.url}/beside-{tmp_path.name}")
        assert done.returncode == 0, done.stderr
        assert time.monotonic() - begin < 8, "it waited for the others' silence"
    assert same(f"{other.url}/beside-{tmp_path.name}", path, tmp_path)


def opened(raw: Raw, path: str):
    return raw.request(OPEN, struct.pack(">HH12x", 0, OPEN_READ), path.encode())


def test_a_stolen_key_opens_nothing(node, source):
    url, _ = source
    path = "/" + url.removeprefix(node.url).lstrip("/")
    with Raw(node.port) as client, Raw(node.port) as thief:
        assert opened(client, f"{path}?tpc.key=secretkey1&tpc.dst=192.0.2.1&tpc.stage=copy").status == OK
        answer = opened(thief, f"{path}?tpc.key=secretkey1&tpc.org=raw.4242@localhost&tpc.stage=copy")
        assert answer.error == NOT_AUTHORIZED and "another server" in answer.text, answer
        # a good key, for another file or another client
        assert opened(client, f"{path}?tpc.key=secretkey2&tpc.dst=127.0.0.1&tpc.stage=copy").status == OK
        answer = opened(thief, "/nothing?tpc.key=secretkey2&tpc.org=raw.4242@localhost&tpc.stage=copy")
        assert answer.error == NOT_AUTHORIZED and "another file" in answer.text, answer
        answer = opened(thief, f"{path}?tpc.key=secretkey2&tpc.org=eve.1@localhost&tpc.stage=copy")
        assert answer.error == NOT_AUTHORIZED and "another client" in answer.text, answer
        assert opened(thief, f"{path}?tpc.key=secretkey2&tpc.org=raw.4242@localhost&tpc.stage=copy").status == OK
    with Raw(node.port) as thief:
        thief.socket.settimeout(40)
        answer = opened(thief, f"{path}?tpc.key=secretkey2&tpc.org=raw.4242@localhost&tpc.stage=copy")
        assert answer.error == NOT_AUTHORIZED and "no client" in answer.text, "the grant has gone with the client"
    assert "secretkey" not in node.log_text()


def test_a_cut_client_leaves_nothing_visible(node, other, tmp_path, base):
    path = tmp_path / "large"
    path.write_bytes(content(250 * MIB))
    url = f"{node.url}/large-{tmp_path.name}"
    assert weir("cp", str(path), url).returncode == 0
    target = f"{other.url}/cut-{tmp_path.name}"
    copy = subprocess.Popen(["xrdcp", "-s", "--tpc", "only", url, target])
    time.sleep(0.15)
    copy.kill()
    copy.wait()
    time.sleep(1)
    assert weir("stat", target).returncode == 11
    assert other.alive() and node.alive()
    # and again, whole
    done = xrdcp("-f", "--tpc", "only", url, target)
    assert done.returncode == 0, done.stderr


def test_the_source_dies_in_the_middle(other, tmp_path, base):
    path = tmp_path / "large"
    path.write_bytes(content(250 * MIB))
    with Weir(base / "tpc-dying") as dying:
        url = f"{dying.url}/large"
        assert weir("cp", str(path), url).returncode == 0
        target = f"{other.url}/dying-{tmp_path.name}"
        copy = subprocess.Popen(["xrdcp", "-s", "--tpc", "only", url, target], stderr=subprocess.PIPE, text=True)
        time.sleep(0.2)
        dying.kill()
        dying.start()
        # the key has gone with the connection that it was given on: it is refused, not hung, and nothing is visible
        said = copy.communicate(timeout=120)[1]
        if copy.returncode == 0:
            assert same(target, path, tmp_path), "it was done before the kill"
        else:
            assert weir("stat", target).returncode == 11, said


def test_gfal_copies(other, source, tmp_path):
    url, path = source
    target = f"{other.url}/gfal-{tmp_path.name}"
    command = [sys.executable, Path(__file__).parent / "gfal.py", "copy", url, target, "adler32"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert same(target, path, tmp_path)
    assert "fetched" in other.log_text()


def test_weir_cp_by_third_party(other, source, tmp_path):
    url, path = source
    done = subprocess.run([WEIR_BIN, "cp", "--tpc", url, f"{other.url}/w-{tmp_path.name}"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert same(f"{other.url}/w-{tmp_path.name}", path, tmp_path)
    assert "fetched" in other.log_text()
