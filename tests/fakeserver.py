"""A tiny XRootD server that does what no good server does: it answers with kXR_wait for ever, sends a byte a second, or nothing."""

import socket
import struct
import threading
import time
from collections.abc import Callable

from raw import CLOSE, DIRLIST, LOGIN, OPEN, PGREAD, PROTOCOL, QUERY, READ, STAT, SYNC, WRITE

OK, OKSOFAR, ERROR, REDIRECT, WAIT = 0, 4000, 4003, 4004, 4005
NOT_FOUND, UNSUPPORTED = 3011, 3013
STALE_SECONDS = 120


class Peer:
    """One connection. A test's function answers its requests."""

    def __init__(self, connection: socket.socket):
        self.socket = connection

    def exactly(self, count: int) -> bytes:
        got = b""
        while len(got) < count:
            more = self.socket.recv(count - len(got))
            if not more:
                raise ConnectionError
            got += more
        return got

    def answer(self, stream: bytes, body: bytes = b"", status: int = OK) -> None:
        self.socket.sendall(stream + struct.pack(">Hi", status, len(body)) + body)

    def wait(self, stream: bytes, seconds: int, text: str = "busy") -> None:
        self.answer(stream, struct.pack(">i", seconds) + text.encode(), WAIT)

    def refuse(self, stream: bytes, number: int, text: str) -> None:
        self.answer(stream, struct.pack(">i", number) + text.encode() + b"\0", ERROR)


class FakeServer:
    """Calls `answers(peer, code, stream, parameters, data)` for each request after the login. If it returns `False`, the server answers
    well: it has one file, of `content`, under any name. `offer` is what it says about mechanisms: then `answers` must let clients in."""

    def __init__(self, content: bytes = b"", answers: Callable[..., bool] = lambda *_: False, offer: bytes = b""):
        self.content, self.answers, self.offer = content, answers, offer
        self.requests: list[tuple[float, int]] = []
        self.written: dict[int, bytes] = {}
        self.connections = 0
        self._peers: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._listener.getsockname()[1]

    @property
    def url(self) -> str:
        return f"root://127.0.0.1:{self.port}/"

    def __enter__(self) -> "FakeServer":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_) -> None:
        self._listener.close()
        for peer in self._peers:
            peer.close()

    def count(self, code: int) -> int:
        return sum(1 for _, of in self.requests if of == code)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.settimeout(STALE_SECONDS)
            self.connections += 1
            self._peers.append(connection)
            threading.Thread(target=self._serve, args=(Peer(connection),), daemon=True).start()

    def _serve(self, peer: Peer) -> None:
        try:
            peer.exactly(20)
            peer.answer(b"\0\0", struct.pack(">ii", 0x511, 1))
            while True:
                head = peer.exactly(24)
                stream, code = head[:2], struct.unpack(">H", head[2:4])[0]
                data = peer.exactly(struct.unpack(">i", head[20:24])[0])
                self.requests.append((time.monotonic(), code))
                if code == PROTOCOL:
                    peer.answer(stream, struct.pack(">ii", 0x511, 1))
                elif code == LOGIN:
                    peer.answer(stream, bytes(range(16)) + self.offer)
                elif not self.answers(peer, code, stream, head[4:20], data):
                    self._usual(peer, code, stream, head[4:20], data)
        except OSError:
            peer.socket.close()

    def stat_line(self) -> bytes:
        return f"7 {len(self.content)} 48 1000000000".encode()

    def _usual(self, peer: Peer, code: int, stream: bytes, parameters: bytes, data: bytes) -> None:
        if code == OPEN:
            peer.answer(stream, b"\0\0\0\1" + bytes(8) + self.stat_line() + b"\0")
        elif code == STAT:
            peer.answer(stream, self.stat_line() + b"\0")
        elif code == READ:
            offset, length = struct.unpack(">qi", parameters[4:16])
            peer.answer(stream, self.content[offset : offset + length])
        elif code == WRITE:
            self.written[struct.unpack(">q", parameters[4:12])[0]] = data
            peer.answer(stream)
        elif code == DIRLIST:
            peer.answer(stream, b".\n0 0 0 0\nfile\n" + self.stat_line() + b"\0")
        elif code == QUERY:
            kind = struct.unpack(">H", parameters[:2])[0]
            if kind == 7:  # configuration: it knows no key
                peer.answer(stream, data.replace(b" ", b"\n") + b"\n")
            else:
                peer.refuse(stream, UNSUPPORTED, "no such query")
        elif code in (CLOSE, SYNC):
            peer.answer(stream)
        else:
            assert code != PGREAD, "it offers no pages"
            peer.refuse(stream, UNSUPPORTED, "not here")
