"""Clients that stop reading, send a byte a second or half a frame, or never finish."""

import select
import socket
import struct
import time
from contextlib import suppress

import raw
from content import KIB, MIB
from raw import Raw

from soak.client import Client
from soak.load import LARGE_BYTES, Load

CUT = {"takes nothing": 10, "sips": 5, "drips": 10, "half a header": 5, "half a path": 5, "half a write": 5, "floods": 3}
CHECKPOINTS, HOARDERS, HOARD, IDLE = 5, 2, 500, 100
FLOOD = 50_000


class SlowClients:
    """The server must end those in `cut`, and must keep those in `kept`."""

    def __init__(self, load: Load):
        self.load = load
        self.cut: list[tuple[str, socket.socket]] = []
        self.kept: list[Raw] = []
        self.ended = 0

    def come(self) -> None:
        port = self.load.server.port
        for what, count in CUT.items():
            for number in range(count):
                me = Raw(port, timeout=30)
                self.cut.append((what, me.socket))
                self.begin(what, number, me)
        for number in range(CHECKPOINTS):
            self.checkpoint(number)
        for _ in range(HOARDERS):
            me = self.keep()
            for number in range(HOARD):
                me.open(f"/still/{number % 200}")
        for _ in range(IDLE):
            self.keep()

    def keep(self) -> Raw:
        me = Raw(self.load.server.port, timeout=30)
        self.kept.append(me)
        return me

    def begin(self, what: str, number: int, me: Raw) -> None:
        if what in ("takes nothing", "sips"):
            handle = me.open("/still/large")
            me.socket.sendall(me.frame(raw.READ, handle + struct.pack(">qi", 0, LARGE_BYTES)) * 4)
        elif what in ("drips", "half a header"):
            me.socket.sendall(me.frame(raw.STAT, data=b"/")[:10])
        elif what == "half a path":
            me.socket.sendall(me.frame(raw.STAT, data=b"/abc", length=100))
        elif what == "half a write":
            # The file is never whole: afterwards it may be missing, or marked interrupted.
            handle = me.open(f"/slow/{number}", raw.OPEN_DELETE | raw.OPEN_UPDATE | 0x100)
            me.socket.sendall(me.frame(raw.WRITE, handle + struct.pack(">q4x", 0), bytes(100 * KIB), length=MIB))
        elif what == "floods":
            me.socket.setblocking(False)
            with suppress(BlockingIOError):
                me.socket.send(me.frame(raw.DIRLIST, data=b"/still") * FLOOD)

    def checkpoint(self, number: int) -> None:
        """Changes that are never committed: the file must stay the same."""
        name = f"/checkpoint/{number}"
        me = self.keep()
        if name not in self.load.ledger.promises:
            client = Client(self.load.server.port)
            self.load.put(client, name, self.load.pick.randbytes(300 * KIB))
            client.close()
        handle = me.open(name, raw.OPEN_UPDATE)
        begun = me.request(raw.CHKPOINT, handle + bytes(11) + bytes([raw.CKP_BEGIN]))
        assert begun.status == raw.OK, begun
        for at in (0, 5000, 200 * KIB):
            answer = me.write(handle, at, bytes(70 * KIB), under=True)
            assert answer.status == raw.OK, answer

    def linger(self, seconds: float) -> None:
        """Sends and reads single bytes until the time is over."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for what, peer in self.cut:
                with suppress(OSError):
                    peer.setblocking(False)
                    if what == "drips":
                        peer.send(b"x")
                    elif what == "sips":
                        peer.recv(512)
            time.sleep(0.5)

    def check_cut(self, patience: float) -> list[str]:
        """Describes the connections that the server has not ended."""
        left = []
        end = time.monotonic() + patience
        # First those that must not be drained; the end of the others can be found at any time.
        for what, peer in sorted(self.cut, key=lambda one: one[0] != "floods"):
            if is_reset(peer, end) if what == "floods" else is_ended(peer, end):
                self.ended += 1
            else:
                left.append(f"a client that {what} was not cut off")
            peer.close()
        self.cut = []
        return left

    def go(self) -> None:
        for me in self.kept:
            me.socket.close()
        for _, peer in self.cut:
            peer.close()
        self.kept, self.cut = [], []


def is_reset(peer: socket.socket, end: float) -> bool:
    """Whether the server has ended this connection without reading all requests. Reads nothing, because that would let the server go on."""
    look = select.poll()
    look.register(peer, select.POLLRDHUP)  # errors and a reset are always reported
    return bool(look.poll(max(0.01, end - time.monotonic()) * 1000))


def is_ended(peer: socket.socket, end: float) -> bool:
    """Whether the server has ended this connection: the end follows the buffered bytes."""
    peer.setblocking(True)
    with suppress(OSError):
        while time.monotonic() < end:
            peer.settimeout(max(0.01, min(0.5, end - time.monotonic())))
            try:
                if not peer.recv(MIB):
                    return True
            except TimeoutError:
                return False
        return False
    return True
