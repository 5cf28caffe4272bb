"""Clients that are too slow, too many, or too greedy: cut off with a reason, or served in order; memory stays bounded."""

import struct
import sys
import threading
import time
from contextlib import suppress

import pytest
import raw
from content import KIB, MIB
from harness import ROOT
from raw import Closed, Raw

sys.path.insert(0, str(ROOT / "bench"))
import crowds  # noqa: E402
import fairness  # noqa: E402

WITHOUT_RECENT = True


@pytest.fixture
def hasty(own_node, tmp_path):
    """Two seconds for every time limit that is usually half a minute."""
    config = tmp_path / "hasty.toml"
    config.write_text('[times]\nrequest = "2s"\nanswer = "2s"\nlogin = "2s"\n')
    return own_node("--config", str(config))


def ends(me: Raw, patience: float = 15) -> float:
    """The time until the server ends the connection."""
    begin = time.monotonic()
    me.socket.settimeout(patience)
    try:
        while me.socket.recv(1 << 20):
            pass
    except ConnectionError:
        pass
    return time.monotonic() - begin


def logged(server, words: str) -> bool:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if any(words in line and "raw.4242@127.0.0.1" in line for line in server.log_text().splitlines()):
            return True
        time.sleep(0.05)
    return False


def begin_half_a_header(me: Raw) -> None:
    me.socket.sendall(me.frame(raw.STAT, data=b"/")[:10])


def begin_half_a_path(me: Raw) -> None:
    me.socket.sendall(me.frame(raw.STAT, data=b"/abc", length=100))


def begin_half_a_write(me: Raw) -> None:
    handle = me.open("/written", raw.OPEN_NEW | raw.OPEN_UPDATE)
    me.socket.sendall(me.frame(raw.WRITE, handle + struct.pack(">q4x", 0), bytes(100_000), length=200_000))


def begin_a_refused_write(me: Raw) -> None:
    me.socket.sendall(me.frame(raw.WRITE, b"\7\7\7\7" + struct.pack(">q4x", 0), bytes(1000), length=200_000))


@pytest.mark.parametrize("begin", [begin_half_a_header, begin_half_a_path, begin_half_a_write, begin_a_refused_write])
@pytest.mark.parametrize("drip", [False, True], ids=["silence", "drops"])
def test_who_sends_too_slowly_is_cut_off_and_the_log_says_why(hasty, begin, drip):
    with Raw(hasty.port) as me, Raw(hasty.port) as idle:
        begin(me)
        stop = threading.Event()

        def drops() -> None:
            while drip and not stop.wait(0.2):
                try:
                    me.socket.sendall(b"x")
                except OSError:
                    return

        thread = threading.Thread(target=drops)
        thread.start()
        # After a hundred drops, 20 s, only half a path is complete: too late.
        took = ends(me)
        stop.set()
        thread.join()
        assert 1 < took < 8
        assert logged(hasty, "came too slowly")
        time.sleep(max(0, 4 - took))
        assert idle.stat("/").status == raw.OK, "being idle is no offence"


@pytest.mark.parametrize("code", [raw.READ, raw.STAT], ids=["large answers", "small answers"])
def test_who_takes_no_answers_is_cut_off_and_the_log_says_why(hasty, code):
    crowds.make(hasty, "/file", 16 * MIB)
    with Raw(hasty.port) as me, Raw(hasty.port) as other:
        if code == raw.READ:
            request = (raw.READ, me.open("/file") + struct.pack(">qi", 0, 16 * MIB))
            frames = b"".join(me.frame(*request) for _ in range(20))
        else:
            frames = me.frame(raw.STAT, data=b"/file") * 200_000

        def ask() -> None:
            with suppress(OSError):
                me.socket.sendall(frames)

        me.socket.settimeout(30)
        thread = threading.Thread(target=ask, daemon=True)
        begin = time.monotonic()
        thread.start()
        assert logged(hasty, "of its answers in 2s"), hasty.log_text()
        # A slow machine needs seconds for so many answers that no more are taken.
        assert time.monotonic() - begin < 20
        assert other.stat("/file").status == raw.OK


def test_who_takes_answers_slowly_but_steadily_is_served(hasty):
    crowds.make(hasty, "/file", 16 * MIB)
    with Raw(hasty.port) as me:
        me.socket.setsockopt(raw.socket.SOL_SOCKET, raw.socket.SO_RCVBUF, 64 * KIB)
        handle = me.open("/file")
        me.send(raw.READ, handle + struct.pack(">qi", 0, 16 * MIB))
        taken, begin = 0, time.monotonic()
        while time.monotonic() - begin < 6:  # three times what it has
            taken += len(me.exactly(128 * KIB))
            time.sleep(0.1)
        assert taken > 4 * MIB


@pytest.mark.parametrize("crowd,most", [(crowds.idle, 48 * MIB), (crowds.writers, 490 * MIB), (crowds.slow_readers, 490 * MIB)])
def test_crowds_in_little_memory(own_node, crowd, most):
    """1,000 idle connections; 200 that write large files at once; 200 that read a large file slowly. What they add counts, not the pages of
    the program, of which a new node has about 20 MiB."""
    server = own_node()
    before = crowds.high_water(server)
    took = crowd(server) - before
    print(f"{crowd.__name__}: {took / MIB:.1f} MiB")
    assert took < most


def test_a_million_pipelined_requests(own_node):
    """Sent without reading the answers: the server stops reading until the client does, and then answers every one."""
    server = own_node()
    before = crowds.high_water(server)
    with Raw(server.port, timeout=120) as me:
        frames = me.frame(raw.PING) * 10_000

        def ask() -> None:
            for _ in range(100):
                me.socket.sendall(frames)

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        time.sleep(3)
        assert thread.is_alive(), "the server has taken all of it"
        assert crowds.high_water(server) - before < 16 * MIB
        left, one = 8 * 1_000_000, struct.pack(">2sHi", b"\0\1", raw.OK, 0)
        while left:
            got = me.exactly(min(left, 1_000_000 * 8 // 100))
            assert got == one * (len(got) // 8)
            left -= len(got)
        thread.join(10)
        assert me.stat("/").status == raw.OK
    assert crowds.high_water(server) - before < 32 * MIB


@pytest.mark.alone  # it measures rates
@pytest.mark.parametrize("what", ["read", "write"])
def test_one_stream_beside_many_of_another_user(own_node, tmp_path, what):
    """It gets its own share, not one hundredth. With one transfer slot the server is what limits the rate. If the clients were, the system
    would give each of their threads the same part of the processors."""
    crowds.allow_descriptors()
    config = tmp_path / "weir.toml"
    config.write_text("[limits]\ntransfers = 1\n")
    server = own_node("--config", str(config))
    result = fairness.measure(server.port, what, streams=100, seconds=3)
    print(result)
    # In order of arrival it would get one part in a hundred. (The bench measures the rest, because other programs use this machine too.)
    assert result["beside_mb_per_second"] > 0.1 * result["crowd_mb_per_second"], result
    assert server.alive()


@pytest.mark.alone  # it measures time
def test_a_flooded_node_still_lets_others_in(own_node):
    """While a user moves data on many connections, the server answers another user's small requests."""
    server = own_node()
    fairness.prepare(server.port)
    many = fairness.Crowd(server.port, "crowd", 50, "read")
    try:
        time.sleep(2)
        with Raw(server.port) as me:
            took = []
            for _ in range(50):
                begin = time.monotonic()
                assert me.stat("/fairness-read").status == raw.OK
                took.append(time.monotonic() - begin)
                time.sleep(0.01)
        assert sorted(took)[25] < 0.1, took
    finally:
        many.end()


def test_who_never_logs_in_is_cut_off(hasty):
    with Raw(hasty.port, login=False) as me, pytest.raises(Closed):
        me.exactly(1)
