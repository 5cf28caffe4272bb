"""The remains of a stopped copy. No copy continues without a comparison."""

import contextlib
import json
import os
import signal
import subprocess
import threading
import time

import pytest
from fakeserver import UNSUPPORTED, FakeServer
from harness import WEIR_BIN, Xrootd, weir
from proxy import DOWN, UP, Proxy
from raw import CLOSE, OPEN, QUERY, RM, STAT
from test_cp import MIB, content, digest, ok, until

STOPPED, EXISTS, NOT_FOUND = 9, 12, 11
IN_PROGRESS = 3020


@pytest.fixture
def place(node, request):
    name = request.node.name.translate(str.maketrans("[]/", "___"))
    return f"{node.url}/left-{name}"


@pytest.mark.parametrize("at", ["weir", "batches", "stock"])
def test_a_stopped_copy_of_small_files_leaves_none_of_those_under_way(node, without_batches, base, tmp_path, at):
    tree = tmp_path / "tree"
    tree.mkdir()
    for number in range(40):
        (tree / f"f{number}").write_bytes(content(2000, 0))
    where = {"weir": without_batches, "batches": lambda: node, "stock": lambda: Xrootd(base / "left-stock").start()}
    server = where[at]()
    with server if at == "stock" else contextlib.nullcontext(), Proxy(server.port) as proxy:
        stuck, free = threading.Event(), threading.Event()

        def hold(_):
            stuck.set()
            free.wait(60)

        proxy.when(UP, content(2000, 0)[:100], hold)
        command = [WEIR_BIN, "cp", "-r", "-j", "1", str(tree), f"{proxy.url}/left-{at}"]
        copy = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            assert stuck.wait(30)
            all_open = 0 if at == "batches" else 40
            end = time.monotonic() + 20
            while len(weir("ls", f"{server.url}/left-{at}").stdout.split()) != all_open:
                assert time.monotonic() < end, "all are open, and none is written; in a batch, none is there at all"
            came = None
            while came != proxy.count[DOWN]:
                came = proxy.count[DOWN]
                time.sleep(0.5)  # the answers to the opens come
            copy.terminate()
            said = copy.communicate(timeout=30)[1]
        finally:
            free.set()
            copy.kill()
        assert copy.returncode == STOPPED, said
        left = weir("ls", f"{server.url}/left-{at}")
        assert left.stdout == "" and left.returncode == (NOT_FOUND if at == "batches" else 0), (said, left)


@pytest.mark.parametrize("whose", ["ours", "somebody else's"])
def test_what_was_begun_is_taken_back_whatever_the_clocks_say(tmp_path, whose):
    """The servers of a cluster need not agree on when the file was made. Its own server knows who began it."""
    done, opens = [], []

    def answers(peer, code, stream, parameters, data):
        if code == OPEN:
            opens.append(data)
            if len(opens) == 1 or whose == "ours":
                return False
            peer.refuse(stream, 3018, "it is there")
        elif code == STAT:
            peer.answer(stream, b"7 0 48 1000000001 1000000001 1000000001 0644 u g\0")
        elif code == QUERY and parameters[1] == 7:
            peer.answer(stream, b"1\n" if data == b"weir.mtime" else data + b"\n")
        elif code == QUERY:
            peer.refuse(stream, IN_PROGRESS, "somebody writes it")
        elif code == RM:
            done.append("removed")
            peer.answer(stream)
        elif code == CLOSE:
            done.append("closed")
            return False
        else:
            return False
        return True

    with FakeServer(answers=answers) as server:
        copy = subprocess.Popen([WEIR_BIN, "cp", "-", f"{server.url}/file"], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        until(lambda: opens)
        time.sleep(0.5)
        copy.terminate()
        # Its input ends after that, and must not be taken for complete.
        assert copy.wait(30) == STOPPED, copy.stderr.read()
        copy.communicate()
    assert len(opens) == 2 and b"tried=" in opens[1] and done == (["removed"] if whose == "ours" else []), (opens, done)


def with_another_checksum(peer, code, stream, parameters, data):
    """A server whose file does not match the reported checksum."""
    if code != QUERY or parameters[:2] not in (b"\0\3", b"\0\7"):
        return False
    summed = parameters[:2] == b"\0\3"
    peer.answer(stream, b"crc32c 00000001\0" if summed else data.replace(b"chksum", b"0:crc32c").replace(b" ", b"\n") + b"\n")
    return True


def shown(url: str) -> int | None:
    """The length of a file; `None`: it does not exist."""
    found = weir("stat", "--json", url)
    return json.loads(found.stdout)["info"]["size"] if found.returncode == 0 else None


@pytest.mark.parametrize("how", ["-f", "--resume"])
@pytest.mark.parametrize("why", ["is being written", "has another checksum", "has nothing yet"])
def test_what_turns_out_to_be_no_file_never_takes_the_place_of_one(node, own_node, place, tmp_path, why, how):
    """The error comes when all bytes have been read. The target's server would take the file for complete with the announced number of
    bytes once nobody returns for it."""
    size = {"is being written": 8 * MIB, "has another checksum": 9 * MIB + 5, "has nothing yet": 0}[why]
    server, before = own_node("--grace-seconds", "1"), content(size + 1, 7)
    (tmp_path / "before").write_bytes(before)
    target = f"{server.url}/file"
    if how == "-f":
        ok("cp", tmp_path / "before", target)
    with contextlib.ExitStack() as stack:
        if why == "has another checksum":
            source = f"{stack.enter_context(FakeServer(content(size), with_another_checksum)).url}/file"
        else:
            source = f"{place}/open"
            writer = stack.enter_context(subprocess.Popen([WEIR_BIN, "cp", "-", source], stdin=subprocess.PIPE))
            stack.callback(writer.kill)
            writer.stdin.write(content(size))
            writer.stdin.flush()
            until(lambda: shown(source) == size)
        done = weir("cp", how, source, target)
        assert done.returncode != 0, done
        time.sleep(3)
        if how == "-f":
            ok("cp", target, tmp_path / "after")
            assert (tmp_path / "after").read_bytes() == before
        else:
            assert weir("checksum", target).returncode != 0, "it is not there, or interrupted"


def unsummed(peer, code, stream, parameters, data):
    """A server that lists its checksums, but returns none of them."""
    if code != QUERY:
        return False
    if parameters[:2] == b"\0\7" and b"chksum" in data:
        peer.answer(stream, b"0:adler32\n")
    elif parameters[:2] == b"\0\3":
        peer.refuse(stream, UNSUPPORTED, "not supported")
    else:
        return False
    return True


def test_what_is_here_is_not_gone_on_with_if_its_source_gives_no_checksum_after_all(tmp_path):
    data = content(20 * MIB + 5)
    (tmp_path / ".back.weir-part").write_bytes(data[: 5 * MIB] + b"#" + data[5 * MIB + 1 : 12 * MIB])
    with FakeServer(data, unsummed) as server:
        done = weir("cp", "--resume", f"{server.url}/file", str(tmp_path / "back"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "back").read_bytes() == data
    assert "were compared" in done.stderr


def test_what_is_at_a_server_is_read_back_if_it_gives_no_checksum_after_all(tmp_path):
    data = content(20 * MIB + 5)
    (tmp_path / "source").write_bytes(data)
    with FakeServer(data[: 5 * MIB] + b"#" + data[5 * MIB + 1 : 12 * MIB], unsummed) as server:
        done = weir("cp", "--resume", str(tmp_path / "source"), f"{server.url}/file")
        assert done.returncode == EXISTS and not server.written, done
    with FakeServer(data[: 12 * MIB], unsummed) as server:
        ok("cp", "--resume", tmp_path / "source", f"{server.url}/file")
        assert min(server.written) == 12 * MIB and b"".join(part for _, part in sorted(server.written.items())) == data[12 * MIB :]


def test_a_pipe_gets_what_several_connections_could_give_in_order(place, tmp_path):
    source, pipe, back = tmp_path / "source", tmp_path / "pipe", tmp_path / "back"
    source.write_bytes(content(90 * MIB + 7))
    ok("cp", source, f"{place}/file")
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cp", str(pipe), str(back)])
    ok("cp", "-S", "3", f"{place}/file", pipe, timeout=60)
    assert reader.wait(30) == 0 and digest(source) == digest(back)


@pytest.mark.parametrize(
    "other", ["idle producer", "pipe that nobody opens", "reader of a pipe that stops", "reader of its output that stops"]
)
def test_a_copy_is_stopped_at_once_whoever_it_waits_for(place, tmp_path, other):
    source, pipe = tmp_path / "source", tmp_path / "pipe"
    source.write_bytes(content(20 * MIB))
    ok("cp", source, f"{place}/file")
    os.mkfifo(pipe)
    arguments = {"idle producer": ["-", f"{place}/recording"], "reader of its output that stops": [f"{place}/file", "-"]}
    arguments = arguments.get(other, [f"{place}/file", str(pipe)])
    with contextlib.ExitStack() as ends:
        copy = subprocess.Popen([WEIR_BIN, "cp", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        ends.callback(copy.kill)
        if other == "idle producer":
            copy.stdin.write(content(9 * MIB))
            copy.stdin.flush()
        elif other == "reader of a pipe that stops":
            reader = ends.enter_context(pipe.open("rb"))
            assert len(reader.read(MIB)) == MIB
        elif other == "reader of its output that stops":
            assert len(copy.stdout.read(MIB)) == MIB
        time.sleep(1)
        assert copy.poll() is None, "it waits"
        copy.send_signal(signal.SIGINT)
        assert copy.wait(5) == STOPPED, copy.stderr.read()
    assert weir("stat", f"{place}/recording").returncode == NOT_FOUND
