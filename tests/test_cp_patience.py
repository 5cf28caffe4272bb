"""`weir cp` and related commands against servers that delay them, fall asleep, or have ended the connection long ago."""

import socket
import subprocess
import time

import pytest
from fakeserver import OKSOFAR, FakeServer
from harness import WEIR_BIN, Weir, weir
from proxy import DOWN, UP, Proxy
from raw import CLOSE, DIRLIST, MKDIR, OPEN, READ, RM, STAT, WRITE
from test_cp import MIB, content, digest, ok

UNREACHABLE, STOPPED = 15, 9


def timed(*arguments, timeout=60, **more):
    begin = time.monotonic()
    done = weir(*map(str, arguments), timeout=timeout, **more)
    return done, time.monotonic() - begin


@pytest.mark.parametrize("code", [OPEN, READ, WRITE, STAT, DIRLIST])
def test_a_server_that_asks_to_wait_for_ever_is_given_up(code, tmp_path):
    (tmp_path / "source").write_bytes(content(5 * MIB))
    asked = []

    def answers(peer, of, stream, *_):
        if of == code:
            asked.append(time.monotonic())
            peer.wait(stream, 1, "the tape robot is on holiday")
            return True
        return False

    with FakeServer(content(5 * MIB), answers) as server:
        arguments = {
            OPEN: ["cp", "--wait-for", 3, "--no-verify", f"{server.url}/file", tmp_path / "back"],
            READ: ["cp", "--wait-for", 3, "--no-verify", f"{server.url}/file", tmp_path / "back"],
            WRITE: ["cp", "-f", "--wait-for", 3, "--no-verify", tmp_path / "source", f"{server.url}/file"],
            STAT: ["cp", "--wait-for", 3, "--no-verify", f"{server.url}/file", tmp_path / "back"],
            DIRLIST: ["cp", "-r", "--wait-for", 3, f"{server.url}/dir", tmp_path / "back"],
        }[code]
        if code == DIRLIST:
            server.answers = directory_or(answers)
        done, took = timed(*arguments)
    assert done.returncode == UNREACHABLE, done
    assert "3 s in all" in done.stderr and "on holiday" in done.stderr, done.stderr
    assert len(asked) >= 4 and took < 15
    left = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "source"]
    assert left == [], "nothing that looks like a copy"


def test_others_go_on_while_one_request_is_put_off(tmp_path):
    """Several requests read one file. The server delays one for two seconds; the others must not wait for it."""
    data = content(48 * MIB)
    put_off = []

    def answers(peer, code, stream, parameters, _):
        if code == READ and parameters[4:12] == bytes(8) and not put_off:
            put_off.append(time.monotonic())
            peer.wait(stream, 2)
            return True
        return False

    with FakeServer(data, answers) as server:
        done = weir("cp", "--no-verify", f"{server.url}/file", str(tmp_path / "back"))
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "back").read_bytes() == data
        meanwhile = [at for at, code in server.requests if code == READ and put_off[0] < at < put_off[0] + 1.5]
    # Only as many as there are buffers, which are few on a short path. If all waited for the one, it would be one more at best.
    assert len(meanwhile) >= 3, "the pipeline stood still"


def test_others_go_on_while_a_write_is_put_off(tmp_path):
    data = content(48 * MIB)
    (tmp_path / "source").write_bytes(data)
    put_off = []

    def answers(peer, code, stream, parameters, _):
        if code == WRITE and parameters[4:12] == bytes(8) and not put_off:
            put_off.append(time.monotonic())
            peer.wait(stream, 2)
            return True
        return False

    with FakeServer(answers=answers) as server:
        done = weir("cp", "-f", "--no-verify", str(tmp_path / "source"), f"{server.url}/file")
        assert done.returncode == 0, done.stderr
        assert b"".join(part for _, part in sorted(server.written.items())) == data
        meanwhile = [at for at, code in server.requests if code == WRITE and put_off[0] < at < put_off[0] + 1.5]
    # Only as many as there are buffers, which are few on a short path. If all waited for the one, it would be one more at best.
    assert len(meanwhile) >= 3, "the pipeline stood still"


def test_small_files_go_on_while_some_are_put_off(base, tmp_path):
    """A real server with room for few writers delays opens. All files arrive, and not one after the other."""
    tree = tmp_path / "tree"
    tree.mkdir()
    for number in range(300):
        (tree / f"f{number}").write_bytes(content(60_000, number))
    with Weir(base / "cp-little-room") as server:
        server.stop()
        config = server.home / "weir.toml"
        config.write_text('limits.writers_memory = "1MiB"\n')
        server.flags = ("--config", str(config), "--log", "info")
        server.start()
        done, took = timed("cp", "--log", "info", "-r", "-j", "1", tree, f"{server.url}/up")
        assert done.returncode == 0, done.stderr
        assert "asks to wait" in done.stderr, "nothing was put off: the test shows nothing"
        ok("cp", "-r", f"{server.url}/up", tmp_path / "back")
    for number in range(300):
        assert digest(tree / f"f{number}") == digest(tmp_path / "back" / f"f{number}"), number
    waits = done.stderr.count("asks to wait")
    assert took < 3 * waits / 3, f"{waits} waits of 3 s in {took:.0f} s: they were waited for one by one"


@pytest.mark.parametrize("how", ["silent", "a byte a second", "tiny parts"])
def test_a_server_that_is_too_slow_is_given_up(how, tmp_path):
    data = content(5 * MIB)

    def answers(peer, code, stream, *_):
        if code != READ:
            return False
        if how == "a byte a second":
            peer.socket.sendall(stream + b"\0\0" + (2 * MIB).to_bytes(4, "big"))
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if how == "a byte a second":
                peer.socket.sendall(b"x")
            elif how == "tiny parts":
                peer.answer(stream, b"x", OKSOFAR)
            time.sleep(0.5)
        return True

    with FakeServer(data, answers) as server:
        done, took = timed("cp", "--timeout", 3, "--retry-for", 1, "--no-verify", f"{server.url}/file", tmp_path / "back")
    assert done.returncode == UNREACHABLE, done
    assert ("nothing for 3 s" if how == "silent" else "too slow") in done.stderr, done.stderr
    assert took < 40 and not list(tmp_path.iterdir())


def test_a_copy_from_a_silent_server_can_be_stopped(tmp_path):
    with FakeServer(content(5 * MIB), lambda peer, code, *_: code == READ) as server:
        copy = subprocess.Popen([WEIR_BIN, "cp", f"{server.url}/file", str(tmp_path / "back")], stderr=subprocess.PIPE, text=True)
        while server.count(READ) == 0:
            time.sleep(0.01)
        copy.terminate()
        said = copy.communicate(timeout=10)[1]
    assert copy.returncode == STOPPED and "stopped" in said, said
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["rm", "stat", "mkdir", "cat"])
def test_a_connection_that_has_ended_while_it_was_kept_is_made_again(command):
    """The server ends each connection with its answer, as others do after hours. Even requests that must not run twice are repeated,
    because they were never sent over the dead connection."""
    asked = []

    def answers(peer, code, stream, _, data):
        if code not in (STAT, RM, MKDIR, CLOSE):
            return False
        asked.append((code, data))
        peer.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)  # the answer and the end arrive together
        peer.answer(stream, server.stat_line() + b"\0" if code == STAT else b"")
        peer.socket.close()
        raise OSError

    with FakeServer(b"12345", answers) as server:
        begin = time.monotonic()
        done = weir(command, *(f"{server.url}/f{number}" for number in range(4)))
        took = time.monotonic() - begin
    assert done.returncode == 0, done
    told = {"rm": RM, "stat": STAT, "mkdir": MKDIR, "cat": CLOSE}[command]
    assert sum(1 for code, _ in asked if code == told) == 4 and took < 5, "each was asked once"


def directory_or(answers):
    """The requested name is a directory; `answers` handles the rest."""

    def first(peer, code, stream, *more):
        if code == STAT:
            peer.answer(stream, b"9 4096 51 1000000000\0")
            return True
        return answers(peer, code, stream, *more)

    return first


def test_a_listing_that_is_cut_before_its_first_entry_is_asked_for_again(tmp_path):
    cuts = []

    def answers(peer, code, stream, *_):
        if code == DIRLIST and len(cuts) < 2:
            cuts.append(peer)
            peer.socket.close()
            raise OSError
        return False

    with FakeServer(b"12345", directory_or(answers)) as server:
        assert ok("ls", f"{server.url}/dir").split() == ["file"]
        assert len(cuts) == 2 and server.count(DIRLIST) == 3


def test_a_listing_that_is_cut_in_the_middle_is_not_given_out_twice(tmp_path):
    def answers(peer, code, stream, *_):
        if code == DIRLIST:
            peer.answer(stream, b".\n0 0 0 0\nfirst\n7 5 48 1\nsecond\n", OKSOFAR)
            time.sleep(0.3)
            peer.socket.close()
            raise OSError
        return False

    with FakeServer(b"12345", directory_or(answers)) as server:
        done = weir("ls", f"{server.url}/dir")
    assert done.returncode == UNREACHABLE and done.stdout.split() == ["first"] and "lost" in done.stderr, done


@pytest.mark.parametrize("command", [["cp"], ["cat"]])
def test_output_to_a_pipe_that_is_cut_short_is_told(command, base, tmp_path):
    """The server dies for good in the middle: the output is no whole file, and the exit code says so."""
    (tmp_path / "source").write_bytes(content(64 * MIB))
    with Weir(base / f"cp-cut-out-{command[0]}") as server:
        ok("cp", tmp_path / "source", f"{server.url}/file")
        with Proxy(server.port) as proxy:
            proxy.at(DOWN, 20 * MIB, lambda: (server.kill(), proxy.cut()))
            target = ["-"] if command == ["cp"] else []
            options = ["--retry-for", "1"] if command == ["cp"] else []
            read = subprocess.run([WEIR_BIN, *command, *options, f"{proxy.url}/file", *target], capture_output=True, timeout=120)
    assert 0 < len(read.stdout) < 64 * MIB and content(64 * MIB).startswith(read.stdout), "it was cut in the middle"
    assert read.returncode == UNREACHABLE, (read.returncode, read.stderr)
    assert any(words in read.stderr for words in (b"lost", b"connect", b"sent nothing")), read.stderr


def test_input_from_a_pipe_that_cannot_be_delivered_is_told(base, tmp_path):
    with Weir(base / "cp-cut-in") as server, Proxy(server.port) as proxy:
        proxy.at(UP, 20 * MIB, lambda: (server.kill(), proxy.cut()))
        command = [WEIR_BIN, "cp", "--retry-for", "1", "-", f"{proxy.url}/file"]
        written = subprocess.run(command, input=content(64 * MIB), capture_output=True, timeout=120)
        assert written.returncode == UNREACHABLE, (written.returncode, written.stderr)
        assert any(words in written.stderr for words in (b"lost", b"connect", b"sent nothing")), written.stderr
        server.start()
        assert weir("cp", f"{server.url}/file", str(tmp_path / "back")).returncode != 0, "it is not taken for whole"


def test_pipes_go_on_over_a_lost_connection(node, tmp_path):
    data = content(64 * MIB)
    with Proxy(node.port) as proxy:
        url = f"{proxy.url}/piped-{tmp_path.name}"
        for at in (11, 33):
            proxy.at(UP, at * MIB, proxy.cut)
            proxy.at(DOWN, at * MIB, proxy.cut)
        put = subprocess.run([WEIR_BIN, "cp", "-", url], input=data, capture_output=True, timeout=120)
        assert put.returncode == 0, put.stderr
        got = subprocess.run([WEIR_BIN, "cp", url, "-"], capture_output=True, timeout=120)
        assert got.returncode == 0 and got.stdout == data, got.stderr
        assert proxy.cuts == 4
