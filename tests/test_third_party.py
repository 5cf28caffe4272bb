"""Third-party copies: a client has one server fetch from another. Stock xrdcp and gfal2, weir and stock xrootd, both ways."""

import hashlib
import json
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from fakeserver import REDIRECT, FakeServer
from harness import WEIR_BIN, Weir, Xrootd, of_processes, weir
from proxy import DOWN, Proxy
from raw import CLOSE, ERROR, NOT_AUTHORIZED, NOT_FOUND, OK, OPEN, OPEN_NEW, OPEN_READ, OPEN_UPDATE, QUERY, READ, STAT, SYNC, Answer, Raw

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


def fetched(server, target: str) -> bool:
    """Whether the target's node has fetched this file itself. A copy that streamed through the client leaves no such line."""
    path = re.escape("/" + target.removeprefix(server.url).lstrip("/"))
    return re.search(rf"pull: fetched path={path} ", server.log_text()) is not None


def until(true, what: str, seconds: float = 15) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.02)


def pulls(server) -> int:
    """Threads of the node that fetch."""
    return of_processes(f"{server.pid}/task/*/comm").count("pull\n")


def test_between_two_weirs(other, source, tmp_path):
    url, path = source
    done = xrdcp("--tpc", "only", url, f"{other.url}/copy-{tmp_path.name}")
    assert done.returncode == 0, done.stderr
    assert same(f"{other.url}/copy-{tmp_path.name}", path, tmp_path)
    assert fetched(other, f"{other.url}/copy-{tmp_path.name}")


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
    target = f"{other.url}/{tmp_path.name}-empty"
    assert weir("stat", target).returncode == 11
    done = xrdcp("--tpc", "only", url, target)
    assert done.returncode == 0, done.stderr
    told = weir("stat", "--json", target)
    assert told.returncode == 0 and json.loads(told.stdout)["info"]["size"] == 0, told
    assert fetched(other, target)
    assert same(target, tmp_path / "empty", tmp_path)
    done = weir("cp", "--tpc", "--force", url, target)
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
    """The address of a source that accepts connections and stays silent."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def begin_copy(me: Raw, path: str, source: str) -> Answer:
    """Opens a target for a copy from `source`, and starts the copy. Returns the target's handle and the answer to the start."""
    opaque = f"?tpc.src={source}&tpc.key=key{path[1:]}&tpc.lfn=/there&tpc.stage=copy"
    answer = me.request(OPEN, struct.pack(">HH12x", 0o644, OPEN_NEW | OPEN_UPDATE), (path + opaque).encode())
    assert answer.status == OK, answer
    me.handle = answer.body[:4]
    return me.request(SYNC, me.handle)


def end_of_copy(me: Raw, patience: float) -> str:
    """The reason why it failed."""
    me.socket.settimeout(patience)
    answer = me.request(SYNC, me.handle)
    # It had already.
    if answer.status == ERROR:
        return answer.text
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
        assert f"{silent} has sent nothing for 10 s" in end_of_copy(me, 20)
        assert me.stat(f"/silent-{tmp_path.name}").error == NOT_FOUND
        assert me.close(me.handle).status == ERROR, "what was not fetched is not closed as whole"
        assert me.stat(f"/silent-{tmp_path.name}").error == NOT_FOUND


def test_copies_from_who_says_nothing_leave_room_for_others(node, other, silent, tmp_path):
    """Another machine starts as many copies as it may, and they stall; this machine's copy completes meanwhile."""
    # A small file: however slow the disk is, its copy does not last as long as their silence.
    url, path = large(node, tmp_path, MIB)
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
        end = time.monotonic() + 10
        # The server notices a moment later that the client has gone.
        while (answer := opened(thief, f"{path}?tpc.key=secretkey2&tpc.org=raw.4242@localhost&tpc.stage=copy")).status == OK:
            assert time.monotonic() < end, "the grant has gone with the client"
        assert answer.error == NOT_AUTHORIZED and "no client" in answer.text, answer
    assert "secretkey" not in node.log_text()


def large(node, tmp_path, size: int = 250 * MIB) -> tuple[str, Path]:
    path = tmp_path / "large"
    path.write_bytes(content(size))
    url = f"{node.url}/large-{tmp_path.name}"
    assert weir("cp", str(path), url).returncode == 0
    return url, path


def through(proxy: Proxy, node, url: str) -> str:
    return proxy.url + url.removeprefix(node.url)


def test_a_cut_client_leaves_nothing_visible(node, other, tmp_path):
    url, path = large(node, tmp_path)
    target = f"{other.url}/cut-{tmp_path.name}"
    with Proxy(node.port) as proxy:
        half = threading.Event()
        proxy.at(DOWN, 100 * MIB, lambda: (proxy.stall(), half.set()))
        copy = subprocess.Popen(["xrdcp", "-s", "--tpc", "only", through(proxy, node, url), target])
        assert half.wait(60) and pulls(other) > 0 and copy.poll() is None, "it is in the middle"
        copy.kill()
        copy.wait()
        # the source stays silent: only the end of the client can end the copy
        until(lambda: pulls(other) == 0, "the copy was not cancelled")
        assert 0 < proxy.count[DOWN] < 250 * MIB
    assert weir("stat", target).returncode == 11
    assert other.alive() and node.alive()
    # and again, whole
    done = xrdcp("-f", "--tpc", "only", url, target)
    assert done.returncode == 0, done.stderr
    assert same(target, path, tmp_path)


def test_the_source_dies_in_the_middle(other, tmp_path, base):
    with Weir(base / "tpc-dying") as dying:
        url, path = large(dying, tmp_path)
        target = f"{other.url}/dying-{tmp_path.name}"
        with Proxy(dying.port) as proxy:
            killed = threading.Event()
            proxy.at(DOWN, 100 * MIB, lambda: (dying.kill(), killed.set()))
            copy = subprocess.Popen(["xrdcp", "-s", "--tpc", "only", through(proxy, dying, url), target], stderr=subprocess.PIPE, text=True)
            assert killed.wait(60) and copy.poll() is None and proxy.count[DOWN] < 250 * MIB, "it is in the middle"
            dying.start()
            # the key is gone with its connection: the copy is refused, does not hang, and nothing is visible
            said = copy.communicate(timeout=120)[1]
            assert copy.returncode != 0, said
        assert weir("stat", target).returncode == 11, said
        until(lambda: pulls(other) == 0, "nobody fetches any more")


def slow_source(seconds_each: float = 0.2):
    """Takes part in a third-party copy, but sends only a byte now and then."""

    def answers(peer, code, stream, *_):
        if code == READ:
            peer.socket.sendall(stream + b"\0\0" + (4 * MIB).to_bytes(4, "big"))
            for _ in range(int(120 / seconds_each)):
                peer.socket.sendall(b"x")
                time.sleep(seconds_each)
            return True
        return False

    return FakeServer(content(16 * MIB), answers)


@pytest.mark.parametrize("how", ["nothing", "a byte now and then"])
@pytest.mark.parametrize("end", ["killed", "terminated"])
def test_a_copy_from_a_hostile_source_ends_with_its_client(other, how, end, tmp_path):
    source = slow_source() if how != "nothing" else FakeServer(content(16 * MIB), lambda peer, code, *_: code == READ)
    target = f"{other.url}/hostile-{tmp_path.name}"
    with source:
        copy = subprocess.Popen([WEIR_BIN, "cp", "--tpc", f"{source.url}/file", target], stderr=subprocess.PIPE, text=True)
        until(lambda: source.count(READ) > 0, "it fetches")
        assert pulls(other) > 0
        begin = time.monotonic()
        copy.send_signal(signal.SIGKILL if end == "killed" else signal.SIGTERM)
        until(lambda: pulls(other) == 0, "the node stops fetching", 5)
        copy.communicate(timeout=20)
        assert time.monotonic() - begin < 12
    assert copy.returncode == (-9 if end == "killed" else 9)
    until(lambda: re.search(rf"not fetched path=/hostile-{re.escape(tmp_path.name)} .*it was stopped", other.log_text()), "the log says so")
    assert weir("stat", target).returncode == 11


def test_a_hostile_source_is_given_up_by_the_node_itself(other, tmp_path):
    target = f"{other.url}/drip-{tmp_path.name}"
    with slow_source() as source:
        done = weir("cp", "--tpc", f"{source.url}/file", target, timeout=110)
    assert done.returncode != 0 and "too slow" in done.stderr, done
    assert weir("stat", target).returncode == 11
    until(lambda: pulls(other) == 0, "nobody fetches any more")


def test_weir_cp_gives_up_a_copy_that_does_not_grow(node, other, tmp_path):
    url, _ = large(node, tmp_path)
    target = f"{other.url}/stalled-{tmp_path.name}"
    with Proxy(node.port) as proxy:
        proxy.at(DOWN, 100 * MIB, proxy.stall)
        done = weir("cp", "--tpc", "--timeout", "3", through(proxy, node, url), target, timeout=60)
        assert done.returncode == 15 and "shows no progress for 3 s" in done.stderr, done
        until(lambda: pulls(other) == 0, "it was cancelled at the target", 5)
    assert weir("stat", target).returncode == 11


def test_interrupting_weir_cp_cancels_at_a_stock_target(node, peer, tmp_path):
    url, _ = large(node, tmp_path)
    target = f"{peer.url}/stopped-{tmp_path.name}"

    def helpers():
        found = of_processes("[0-9]*/cmdline")
        return [line for line in found if "xrdcp" in line and "--server" in line and f"large-{tmp_path.name}" in line]

    with Proxy(node.port) as proxy:
        half = threading.Event()
        proxy.at(DOWN, 100 * MIB, lambda: (proxy.stall(), half.set()))
        copy = subprocess.Popen([WEIR_BIN, "cp", "--tpc", through(proxy, node, url), target], stderr=subprocess.PIPE, text=True)
        assert half.wait(60) and copy.poll() is None and helpers(), "it is in the middle"
        copy.terminate()
        said = copy.communicate(timeout=20)[1]
        assert copy.returncode == 9, said
        until(lambda: not helpers(), "the target has stopped its copy", 10)
    until(lambda: weir("stat", target).returncode == 11, "nothing is left at the target", 10)


def lying_source(sum_text: bytes = b"crc32c deadbeef"):
    def answers(peer, code, stream, parameters, data):
        kind = struct.unpack(">H", parameters[:2])[0] if code == QUERY else 0
        if kind == 7 and data.startswith(b"chksum"):
            peer.answer(stream, b"0:crc32c\n")
        elif kind == 3:
            peer.answer(stream, sum_text + b"\0")
        else:
            return False
        return True

    return FakeServer(content(3 * MIB), answers)


def test_the_close_of_a_copy_that_failed_says_why(other, tmp_path):
    with lying_source() as source, Raw(other.port) as client:
        words = f"tpc.key=secretkey9&tpc.src=127.0.0.1:{source.port}&tpc.lfn=/file&tpc.spr=root&tpc.stage=copy"
        handle = client.open(f"/closed-{tmp_path.name}?{words}", OPEN_NEW | OPEN_UPDATE)
        assert client.request(SYNC, handle).status == OK
        until(lambda: source.count(CLOSE) > 0 and pulls(other) == 0, "it has been fetched and compared")
        answer = client.close(handle)
    assert answer.error is not None and "the source says crc32c:deadbeef" in answer.text, answer
    assert "18446744073709551615" not in answer.text


@pytest.mark.parametrize("client", [["xrdcp", "-s", "--tpc", "only"], [str(WEIR_BIN), "cp", "--tpc"]], ids=["xrdcp", "weir"])
def test_a_damaged_copy_is_told_in_words_that_make_sense(other, client, tmp_path):
    target = f"{other.url}/damaged-{tmp_path.name}"
    with lying_source() as source:
        done = subprocess.run([*client, f"{source.url}/file", target], capture_output=True, text=True, timeout=60)
    said = done.stdout + done.stderr
    assert done.returncode != 0 and weir("stat", target).returncode == 11
    assert "18446744073709551615" not in said + other.log_text()
    if "weir" in client[0]:
        assert "the source says crc32c:deadbeef" in said, said


def test_the_end_of_a_copy_may_be_answered_before_the_last_look_at_it(source):
    url, path = source
    ends = []

    def answers(peer, code, stream, _parameters, data):
        if code == QUERY and b"tpc" in data:
            peer.answer(stream, b"1\n")
        elif code == SYNC and target.count(SYNC) == 2:  # the first one lets the client go to the source
            ends.append(stream)
        elif code == STAT and ends:
            # The client looks how far the copy is. That is complete meanwhile.
            peer.answer(ends.pop())
            peer.answer(stream, target.stat_line() + b"\0")
            looks.append(stream)
        else:
            return False
        return True

    looks = []
    with FakeServer(path.read_bytes(), answers) as target:
        done = weir("cp", "--tpc", url, f"{target.url}/file")
    assert done.returncode == 0 and looks, done


def test_only_named_sources_are_fetched_from(own_node, base, node, source, tmp_path):
    config = tmp_path / "weir.toml"
    config.write_text('third_party_sources = ["127.0.0.*", "*.example.org"]\n')
    picky = own_node("--config", str(config))
    url, path = source
    assert weir("cp", "--tpc", url, f"{picky.url}/good").returncode == 0
    elsewhere = url.replace("127.0.0.1", "localhost")
    for command in (["xrdcp", "-s", "--tpc", "only"], [str(WEIR_BIN), "cp", "--tpc"]):
        done = subprocess.run([*command, elsewhere, f"{picky.url}/bad"], capture_output=True, text=True, timeout=60)
        assert done.returncode not in (0, 2) and "from some hosts only" in done.stderr, done
    assert weir("stat", f"{picky.url}/bad").returncode == 11

    # nor from a server to which an allowed one redirects: the client is accepted, the redirected fetch is not
    def answers(peer, code, stream, _parameters, data):
        if code == OPEN and b"tpc.org" in data:
            peer.answer(stream, struct.pack(">i", node.port) + b"localhost", REDIRECT)
            return True
        return False

    with FakeServer(content(1000), answers) as sends_on:
        done = weir("cp", "--tpc", f"{sends_on.url}/file", f"{picky.url}/bad")
    assert done.returncode != 0 and "not among the servers" in done.stderr, done
    assert weir("stat", f"{picky.url}/bad").returncode == 11


def test_gfal_copies(other, source, tmp_path):
    url, path = source
    target = f"{other.url}/gfal-{tmp_path.name}"
    command = [sys.executable, Path(__file__).parent / "gfal.py", "copy", url, target, "adler32"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert same(target, path, tmp_path)
    assert fetched(other, target)


def test_weir_cp_by_third_party(other, source, tmp_path):
    url, path = source
    done = subprocess.run([WEIR_BIN, "cp", "--tpc", url, f"{other.url}/w-{tmp_path.name}"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert same(f"{other.url}/w-{tmp_path.name}", path, tmp_path)
    assert fetched(other, f"{other.url}/w-{tmp_path.name}")
