"""An XRootD client on the level of bytes, for frames that no stock client would send. Layouts: XProtocol.hh of XRootD 5."""

import socket
import struct
from dataclasses import dataclass

OK, OKSOFAR, ERROR, REDIRECT, WAIT, STATUS = 0, 4000, 4003, 4004, 4005, 4007
AUTH, QUERY, CHMOD, CLOSE, DIRLIST, GPFILE, PROTOCOL, LOGIN, MKDIR, MV, OPEN, PING = range(3000, 3012)
CHKPOINT, READ, RM, RMDIR, SYNC, STAT, SET, WRITE, FATTR, PREPARE, STATX, ENDSESS = range(3012, 3024)
BIND, READV, PGWRITE, LOCATE, TRUNCATE, SIGVER, PGREAD, WRITEV, CLONE = range(3024, 3033)
CKP_BEGIN, CKP_COMMIT, CKP_QUERY, CKP_ROLLBACK, CKP_EXECUTE = range(5)
OPEN_DELETE, OPEN_FORCE, OPEN_NEW, OPEN_READ, OPEN_UPDATE, OPEN_APPEND = 2, 4, 8, 16, 32, 512
OPEN_DUP, OPEN_SAMEFS, OPEN_RETSTATX, OPEN_DIRECTIO = 1, 2, 4, 8  # of protocol 5.2.0, in a field of their own

ARG_INVALID, ARG_MISSING, ARG_TOO_LONG, FILE_NOT_OPEN, INVALID_REQUEST, NOT_AUTHORIZED, NOT_FOUND = 3000, 3001, 3002, 3004, 3006, 3010, 3011
FILE_LOCKED, FS_ERROR, UNSUPPORTED, IS_DIRECTORY, EXISTS, CHECKSUM_ERROR = 3003, 3005, 3013, 3016, 3018, 3019


@dataclass
class Answer:
    stream: bytes
    status: int
    body: bytes

    @property
    def error(self) -> int | None:
        return struct.unpack(">i", self.body[:4])[0] if self.status == ERROR else None

    @property
    def redirect(self) -> tuple[int, str, str]:
        """The port, host and opaque words of a redirect."""
        assert self.status == REDIRECT, self
        host, _, opaque = self.body[4:].decode().partition("?")
        return struct.unpack(">i", self.body[:4])[0], host, opaque

    @property
    def text(self) -> str:
        return self.body[4:].rstrip(b"\0").decode(errors="replace")


class Closed(Exception):
    """The server has ended the connection."""


class Raw:
    """One connection. `request` sends a frame and waits for its answer."""

    def __init__(
        self, port: int, login: bool = True, timeout: float = 15, machine: str = "127.0.0.1", host: str = "127.0.0.1", pid: int = 4242
    ):
        """`machine`: the source address; the whole of 127.0.0.0/8 belongs to this machine. `pid`: connections with one are one client."""
        self.socket = socket.create_connection((host, port), timeout=timeout, source_address=(machine, 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.number = 0
        if login:
            self.handshake()
            answer = self.request(LOGIN, struct.pack(">i8sBBBB", pid, b"raw", 0, 0, 5, 0))
            assert answer.status == OK, answer
            self.session = answer.body[:16]

    @classmethod
    def to(cls, node, **more) -> "Raw":
        """A connection with a node of a cluster."""
        return cls(node.port, host=node.host, **more)

    def __enter__(self) -> "Raw":
        return self

    def __exit__(self, *_) -> None:
        self.socket.close()

    def handshake(self) -> None:
        self.socket.sendall(struct.pack(">iiiii", 0, 0, 0, 4, 2012))
        answer = self.receive()
        assert answer.status == OK and len(answer.body) == 8, answer

    @staticmethod
    def frame(code: int, parameters: bytes = b"", data: bytes = b"", stream: bytes = b"\0\1", length: int | None = None) -> bytes:
        """A header of 24 bytes and the data; `length` lies about the amount of data."""
        said = len(data) if length is None else length
        return stream + struct.pack(">H", code & 0xFFFF) + parameters.ljust(16, b"\0")[:16] + struct.pack(">i", said) + data

    def send(self, code: int, parameters: bytes = b"", data: bytes = b"", under: bool = False, **more) -> bytes:
        """`under`: inside a chkpoint, which holds the request's header; its payload follows."""
        self.number = (self.number + 1) % 65536
        stream = struct.pack(">H", self.number)
        frame = self.frame(code, parameters, data, stream=stream, **more)
        if under:
            frame = self.frame(CHKPOINT, bytes(15) + bytes([CKP_EXECUTE]), frame[:24], stream=stream) + frame[24:]
        try:
            self.socket.sendall(frame)
        except ConnectionError:
            raise Closed from None
        return stream

    def request(self, code: int, parameters: bytes = b"", data: bytes = b"", **more) -> Answer:
        return self.answer(self.send(code, parameters, data, **more))

    def answer(self, stream: bytes) -> Answer:
        """The answer to the request with this number."""
        answer = self.receive()
        assert answer.stream == stream, f"answer to {answer.stream!r} instead of {stream!r}"
        while answer.status == OKSOFAR:
            part = self.receive()
            answer = Answer(part.stream, part.status, answer.body + part.body)
        return answer

    def receive(self) -> Answer:
        stream, status, length = struct.unpack(">2sHi", self.exactly(8))
        body = self.exactly(length)
        if status == STATUS:  # the announced data follows its own header
            extra = struct.unpack(">i", body[12:16])[0]
            body += self.exactly(extra)
        return Answer(stream, status, body)

    def exactly(self, count: int) -> bytes:
        got = b""
        while len(got) < count:
            try:
                more = self.socket.recv(min(count - len(got), 1 << 20))
            except ConnectionError:
                raise Closed from None
            if not more:
                raise Closed
            got += more
        return got

    # The basic requests of the tests.

    def stat(self, path: bytes | str) -> Answer:
        return self.request(STAT, b"", path.encode() if isinstance(path, str) else path)

    def ask_open(self, path: str, options: int = OPEN_READ, mode: int = 0o644) -> Answer:
        """Accepts any answer."""
        return self.request(OPEN, struct.pack(">HH12x", mode, options), path.encode())

    def open(self, path: str, options: int = OPEN_READ, mode: int = 0o644) -> bytes:
        answer = self.request(OPEN, struct.pack(">HH12x", mode, options), path.encode())
        assert answer.status == OK, answer
        return answer.body[:4]

    def read(self, handle: bytes, offset: int, length: int) -> Answer:
        return self.request(READ, handle + struct.pack(">qi", offset, length))

    def write(self, handle: bytes, offset: int, data: bytes, **more) -> Answer:
        return self.request(WRITE, handle + struct.pack(">q4x", offset), data, **more)

    def close(self, handle: bytes) -> Answer:
        return self.request(CLOSE, handle)
