"""One connection that reconnects: small operations of a client, request by request."""

import struct
import time

import raw
from raw import Answer, Closed, Raw

from soak.ledger import Content

WAIT = 4005
NO_SPACE = 3009
MKPATH = 0x100
STEP = 1 << 20


class Refused(Exception):
    """The server has refused."""

    def __init__(self, answer: Answer):
        super().__init__(f"error {answer.error}: {answer.text}")
        self.number = answer.error


# The connection or the server is gone, or no answer comes.
LOST = (Closed, OSError)


class Client:
    """Connects when necessary. After a lost connection the next operation begins with a new one."""

    def __init__(self, port: int, timeout: float = 30):
        self.port, self.timeout = port, timeout
        self.connection: Raw | None = None

    def close(self) -> None:
        if self.connection:
            self.connection.socket.close()
        self.connection = None

    def ask(self, code: int, parameters: bytes = b"", data: bytes = b"") -> bytes:
        """The body of the answer. Waits when the server says so."""
        try:
            if self.connection is None:
                self.connection = Raw(self.port, timeout=self.timeout)
            while True:
                answer = self.connection.request(code, parameters, data)
                if answer.status != WAIT:
                    break
                time.sleep(min(struct.unpack(">i", answer.body[:4])[0], 5))
        except (*LOST, AssertionError) as lost:
            self.close()
            raise lost if isinstance(lost, LOST) else Closed(str(lost)) from None
        if answer.status != raw.OK:
            raise Refused(answer)
        return answer.body

    def open(self, path: str, options: int = raw.OPEN_READ) -> bytes:
        return self.ask(raw.OPEN, struct.pack(">HH12x", 0o644, options), path.encode())[:4]

    def stat(self, path: str) -> bytes:
        return self.ask(raw.STAT, b"", path.encode())

    def put(self, path: str, data: bytes) -> None:
        """Writes a new file, or a new content of an old one."""
        handle = self.open(f"{path}?oss.asize={len(data)}", raw.OPEN_DELETE | raw.OPEN_UPDATE | MKPATH)
        try:
            for at in range(0, len(data), STEP):
                self.ask(raw.WRITE, handle + struct.pack(">q4x", at), data[at : at + STEP])
        except Refused:
            # A handle that nobody closes would count as an unfinished file for ever.
            try:
                self.ask(raw.CLOSE, handle)
            except Refused:
                pass
            raise
        self.ask(raw.CLOSE, handle)

    def remove(self, path: str) -> None:
        self.ask(raw.RM, b"", path.encode())

    def read(self, path: str, offset: int, count: int) -> bytes:
        handle = self.open(path)
        data = self.ask(raw.READ, handle + struct.pack(">qi", offset, count))
        self.ask(raw.CLOSE, handle)
        return data

    def readv(self, path: str, parts: list[tuple[int, int]]) -> bytes:
        handle = self.open(path)
        data = self.ask(raw.READV, b"", b"".join(handle + struct.pack(">iq", count, offset) for offset, count in parts))
        self.ask(raw.CLOSE, handle)
        return data

    def names(self, path: str) -> int:
        """The number of entries of a directory, listed with the attributes of each."""
        return len(self.ask(raw.DIRLIST, bytes(15) + b"\2", path.encode()).split(b"\n")) // 2 - 1

    def content(self, path: str) -> Content | None | str:
        """The content of a whole file; None if there is none; the reason if it cannot be read."""
        try:
            handle = self.open(path)
        except Refused as refused:
            return None if refused.number == raw.NOT_FOUND else str(refused)
        parts: list[bytes] = []
        try:
            while True:
                part = self.ask(raw.READ, handle + struct.pack(">qi", len(parts) * STEP, STEP))
                parts.append(part)
                if len(part) < STEP:
                    break
        except Refused as refused:
            return str(refused)
        finally:
            if self.connection:
                self.ask(raw.CLOSE, handle)
        return Content.of(b"".join(parts))
