"""Every wait of the client ends when its option says so, and after two seconds the client says what it waits for."""

import re
import signal
import struct
import subprocess
import time

import pytest
from cluster import Cluster
from content import MIB, content
from fakeserver import OK, FakeServer
from harness import WEIR_BIN, Weir, remove, weir
from raw import CLOSE, OPEN, STAT, SYNC, WRITE

UNREACHABLE = 15
NAGIOS_UNKNOWN = 3
ATTN, WAITRESP = 4001, 4006
RETRY, SLACK = 4, 4


def piped(url, *options, data=b"", timeout=90):
    """Copies from a pipe. Returns the exit code, what was said, and how long it took."""
    begin = time.monotonic()
    done = subprocess.run([WEIR_BIN, "cp", *options, "-", url], input=data, capture_output=True, timeout=timeout)
    return done.returncode, done.stderr.decode(errors="replace"), time.monotonic() - begin


def told(said: str) -> list[str]:
    return [line for line in said.splitlines() if "gives up in" in line]


class Lost(FakeServer):
    """Cuts the first connection at the third write. Then it does what `then` says with the next connections."""

    def __init__(self, then: str):
        super().__init__(answers=self.answer)
        self.then, self.cut_at, self.writes = then, 0.0, 0

    def answer(self, peer, code, stream, *_):
        if not self.cut_at:
            self.writes += code == WRITE
            if self.writes == 3:
                self.cut_at = time.monotonic()
                peer.socket.close()
                raise OSError
            return False
        if code == OPEN and self.then == "asks to wait":
            peer.wait(stream, 1, "the store is away")
            return True
        if code == OPEN and self.then == "asks to wait for long":
            peer.wait(stream, 60, "the store is away")
            return True
        if code == OPEN and self.then == "opens late":
            peer.answer(stream, struct.pack(">i", 600), WAITRESP)
            return True
        if code == WRITE and self.then == "loses each":
            time.sleep(1)
            peer.socket.close()
            raise OSError
        return False

    def _serve(self, peer):
        if self.cut_at and self.then == "says nothing":
            peer.exactly(20)
            time.sleep(60)
        super()._serve(peer)


@pytest.mark.parametrize("then", ["asks to wait", "asks to wait for long", "opens late", "says nothing", "loses each"])
def test_a_lost_connection_is_given_up_when_retry_for_says(then):
    with Lost(then) as server:
        code, said, _ = piped(f"{server.url}/file", "--retry-for", str(RETRY), data=content("p", 30 * MIB))
        took = time.monotonic() - server.cut_at
    assert code == UNREACHABLE, said
    assert RETRY - 1.5 < took < RETRY + SLACK, f"{took:.1f} s: {said}"
    assert told(said), said
    if then == "asks to wait":
        assert "asks to wait: the store is away" in said, said


def gives_up(copy: subprocess.Popen, more: bytes, seconds: float) -> str:
    """Gives `more` to a copy from a pipe whose server has gone. Returns what it said when it gave up."""
    try:
        copy.stdin.write(more)
        copy.stdin.close()
    except BrokenPipeError:
        pass
    said = copy.stderr.read().decode()
    assert copy.wait(seconds) == UNREACHABLE, said
    return said


def test_a_server_that_is_gone_is_given_up_when_retry_for_says():
    with Lost("") as server:
        server.then = "is gone"
        command = [WEIR_BIN, "cp", "--retry-for", str(RETRY), "-", f"{server.url}/file"]
        copy = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        copy.stdin.write(content("q", 8 * MIB))
        copy.stdin.flush()
        while server.writes < 1:
            time.sleep(0.01)
        gone = time.monotonic()
        server.__exit__()
        said = gives_up(copy, content("q", 40 * MIB), 60)
        took = time.monotonic() - gone
    assert RETRY - 1.5 < took < RETRY + SLACK, f"{took:.1f} s: {said}"
    assert f"gave up after trying for {RETRY} s" in said and told(said), said


@pytest.mark.parametrize("how", ["silence", "chatter", "promises"])
@pytest.mark.parametrize("code", [WRITE, CLOSE])
def test_a_server_that_never_answers_is_given_up_whatever_it_says_meanwhile(how, code):
    """Messages for people, and promises of a later answer, do not extend the time."""

    def answers(peer, of, stream, *_):
        if of != code:
            return False
        end = time.monotonic() + 30
        while time.monotonic() < end:
            if how == "chatter":
                peer.answer(b"\0\0", struct.pack(">i", 5002) + b"all is well", ATTN)
            elif how == "promises":
                peer.answer(stream, struct.pack(">i", 5), WAITRESP)
            time.sleep(0.3)
        return True

    options = ["--timeout", "3", "--wait-for", "4", "--retry-for", "1"]
    with FakeServer(b"", answers) as server:
        code, said, took = piped(f"{server.url}/file", *options, data=content("s", MIB))
    assert code == UNREACHABLE, said
    # One wait for an answer, one attempt to connect again, and one more wait over the new connection.
    assert took < 14, f"{took:.1f} s: {said}"
    assert told(said), said


@pytest.mark.parametrize("command", [["stat"], ["ls", "-d"], ["checksum"]])
def test_commands_on_names_say_what_they_wait_for(command):
    def answers(peer, code, stream, *_):
        if not server.connections == 1 or code == OPEN:
            return False
        time.sleep(4)
        return False

    with FakeServer(b"12345", answers) as server:
        done = weir(*command, f"{server.url}/file")
    lines = told(done.stderr)
    assert len(lines) == 1, done.stderr
    assert re.search(rf"weir {command[0]}: 127\.0\.0\.1:{server.port} does not answer \(.*file\); waiting for 2 s", lines[0]), lines


def test_a_fast_copy_says_nothing_and_a_quiet_one_neither():
    def answers(peer, code, stream, *_):
        if code == SYNC or code == CLOSE:
            time.sleep(3.5)
        return False

    with FakeServer(b"") as server:
        code, said, _ = piped(f"{server.url}/file", data=content("f", MIB))
        assert code == OK and said.count("waiting") == 0, said
    for options, lines in [([], 1), (["-q"], 0)]:
        with FakeServer(b"", answers) as server:
            code, said, _ = piped(f"{server.url}/file", *options, data=content("f", MIB))
        assert code == OK and len(told(said)) == lines, said


def test_a_tree_does_not_wait_for_each_file_when_a_server_is_gone(tmp_path):
    tree = tmp_path / "tree"
    tree.mkdir()
    for number in range(20):
        (tree / f"f{number}").write_bytes(content(str(number), MIB))
    with FakeServer(b"", lambda peer, code, *_: code == STAT and time.sleep(0)) as server:

        def answers(peer, code, stream, *_):
            if code == WRITE:
                server._listener.close()
                peer.socket.close()
                raise OSError
            return False

        server.answers = answers
        begin = time.monotonic()
        done = weir("cp", "-r", "-j", "1", "--retry-for", str(RETRY), str(tree), f"{server.url}/new")
    assert done.returncode == UNREACHABLE, done.stderr
    # The first file is waited for. Each of the others is tried a few times.
    assert time.monotonic() - begin < RETRY + SLACK + 20 * 3, done.stderr


@pytest.fixture(scope="module")
def striped(base):
    with Cluster(base / "waits", 3, ("--grace-seconds", "5")) as cluster:
        cluster.policy("/one", "stripe(3, 256KiB)")
        yield cluster
    remove(cluster.home)


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_a_striped_copy_from_a_pipe_ends_when_it_says_after_a_units_server_has_gone(striped, how):
    path, options = f"/one/{how}", ["--retry-for", str(RETRY), "--timeout", "3"]
    before = {disk: set(disk.objects()) for disk in striped.disks}
    command = [WEIR_BIN, "cp", *options, "-", striped.url + path]
    copy = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    victim = striped.disks[1]
    try:
        copy.stdin.write(content("u", 12 * MIB))
        copy.stdin.flush()
        end = time.monotonic() + 20
        while not all(set(disk.objects()) - before[disk] for disk in striped.disks):
            assert time.monotonic() < end
            time.sleep(0.05)
        gone = time.monotonic()
        if how == "killed":
            victim.kill()
        else:
            victim.freeze()
        said = gives_up(copy, content("v", 40 * MIB), 100)
        took = time.monotonic() - gone
        # A frozen server is noticed when it has been silent for --timeout; one more wait may follow at another server.
        assert took < (0 if how == "killed" else 6) + RETRY + SLACK + 4, f"{took:.1f} s: {said}"
        assert told(said), said
    finally:
        if copy.poll() is None:
            copy.send_signal(signal.SIGKILL)
        if how == "killed":
            victim.start()
        else:
            victim.thaw()
        striped.wait_sessions()
    # What the pipe has delivered stays.
    striped.until(lambda: striped.file(path)["object"]["state"] == "interrupted", 60)


def test_commands_say_that_a_node_hangs_and_when_they_give_up(base):
    """The process is stopped, as by a debugger, or by a disk that does not answer."""
    with Weir(base / "hangs") as node:
        node.process.send_signal(signal.SIGSTOP)
        try:
            begin = time.monotonic()
            check = weir("status", "--check", "--data", str(node.data))
            # Monitoring systems end a check after 10 s, and an ended check says nothing.
            assert check.returncode == NAGIOS_UNKNOWN and "UNKNOWN" in check.stdout and time.monotonic() - begin < 10, check
            assert "no answer for 8 s" in check.stdout and check.stderr == "", check
            # Other commands wait for longer, and say so.
            asks = [WEIR_BIN, "status", "--data", str(node.data)]
            with subprocess.Popen(asks, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as waits:
                line = waits.stderr.readline()
                waits.kill()
            assert re.search(r"the node on .* does not answer; waiting for \d s, gives up in 11\d s", line), line
            # The login of a client ends earlier than its other waits, and its words say so.
            begin = time.monotonic()
            stat = weir("stat", f"{node.url}/f")
            took = time.monotonic() - begin
            assert stat.returncode == UNREACHABLE and told(stat.stderr), stat
            waited, left = map(int, re.search(r"waiting for (\d+) s, gives up in (\d+) s", told(stat.stderr)[0]).groups())
            assert waited + left <= took + 2, (took, stat.stderr)
        finally:
            node.process.send_signal(signal.SIGCONT)
