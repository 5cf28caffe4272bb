"""A client that sends every request once. Stock clients repeat a request whose answer was lost, and so may answer "exists" about their own
first attempt; this one says that the answer was lost. Its names for answers are those of `tests/history.py`."""

import select
import struct
import time
from dataclasses import dataclass

import raw
from history import A_DIRECTORY, A_FILE, Lost, NothingDone, Undone
from raw import Raw

SILENCE_SECONDS = 20
# How long it does what a server asks: to wait and then to send the request again.
PATIENCE_SECONDS = 3.0
ERRORS = {
    raw.NOT_FOUND: "missing",
    raw.EXISTS: "exists",
    raw.IS_DIRECTORY: "directory",
    raw.FILE_LOCKED: "locked",
    raw.ARG_INVALID: "invalid",
}
# Flags of a stat.
IS_DIRECTORY, IS_BEING_WRITTEN = 2, 64
BEING_WRITTEN = "being written"
WRITE_NEW = raw.OPEN_NEW | raw.OPEN_UPDATE
REPLACE = raw.OPEN_DELETE | raw.OPEN_UPDATE

Address = tuple[str, int]


@dataclass
class Writing:
    """A file that is open for writing at a disk server."""

    server: Address
    handle: bytes


class PlainClient:
    """`managers` are tried in turn. After a loss it logs in as another client: a server must not take it for the one that comes back."""

    def __init__(self, managers: list[Address], number: int):
        self.managers, self.number = managers, number
        self.lives = 0
        self.at = number % len(managers)
        self.open: dict[Address, Raw] = {}

    def close(self) -> None:
        for connection in self.open.values():
            connection.socket.close()
        self.open = {}

    def _lost(self) -> None:
        self.close()
        self.lives += 1
        self.at = (self.at + 1) % len(self.managers)

    def _connection(self, server: Address) -> Raw:
        found = self.open.get(server)
        if found is not None:
            # Whoever sends nothing unasked has closed the connection.
            if not select.select([found.socket], [], [], 0)[0]:
                return found
            self._lost()
        try:
            self.open[server] = Raw(server[1], host=server[0], timeout=SILENCE_SECONDS, pid=1000 * (self.number + 1) + self.lives)
        except (OSError, raw.Closed) as error:
            self._lost()
            raise NothingDone("not sent") from error
        return self.open[server]

    def _request(self, server: Address | None, code: int, parameters: bytes, data: bytes) -> raw.Answer:
        """What a server answers; `None`: a manager, its own one or that to which that one sends it."""
        end, to = time.monotonic() + PATIENCE_SECONDS, server
        while True:
            connection = self._connection(to or self.managers[self.at])
            try:
                answer = connection.request(code, parameters, data)
            except (OSError, raw.Closed) as error:
                self._lost()
                raise Lost from error
            if answer.status == raw.REDIRECT and (elsewhere := manager_of(answer)) in self.managers and server is None:
                if time.monotonic() > end:
                    raise NothingDone("the managers send it to each other")
                to = elsewhere
                continue
            if answer.status != raw.WAIT:
                return answer
            to = server
            # A server that asks to wait has done nothing, except that an open may have made a file and removed it again.
            if server is None and code == raw.OPEN and parameters != READING:
                raise Undone(answer.text)
            seconds = struct.unpack(">i", answer.body[:4])[0]
            if time.monotonic() + seconds > end:
                raise NothingDone(answer.text)
            time.sleep(seconds)

    def _change(self, code: int, parameters: bytes, data: bytes) -> str:
        answer = self._request(None, code, parameters, data)
        return "ok" if answer.status == raw.OK else refusal(answer)

    def mkdir(self, path: str) -> str:
        return self._change(raw.MKDIR, b"\0" * 14 + b"\1\xed", path.encode())

    def remove(self, path: str) -> str:
        return self._change(raw.RM, b"", path.encode())

    def rmdir(self, path: str) -> str:
        return self._change(raw.RMDIR, b"", path.encode())

    def rename(self, source: str, target: str) -> str:
        data = f"{source} {target}".encode()
        return self._change(raw.MV, b"\0" * 14 + struct.pack(">H", len(source.encode())), data)

    def stat(self, path: str) -> object:
        """The kind, and of a complete file the size."""
        answer = self._request(None, raw.STAT, b"", path.encode())
        if answer.status != raw.OK:
            return refusal(answer)
        _, size, flags, *_ = answer.body.rstrip(b"\0").split()
        if int(flags) & IS_DIRECTORY:
            return A_DIRECTORY
        return (A_FILE, None if int(flags) & IS_BEING_WRITTEN else int(size))

    def list(self, path: str) -> object:
        answer = self._request(None, raw.DIRLIST, b"", path.encode())
        if answer.status != raw.OK:
            return refusal(answer)
        return tuple(sorted(answer.body.decode().rstrip("\0").split("\n"))) if answer.body.rstrip(b"\0") else ()

    def begin(self, path: str, options: int) -> tuple[Address, str] | str:
        """The manager's part of an open: the disk server, and what to send there."""
        answer = self._request(None, raw.OPEN, opening(options), path.encode())
        if answer.status == raw.REDIRECT:
            port, host, opaque = answer.redirect
            return (host, port), f"{path}?{opaque}"
        return refusal(answer)

    def open_there(self, server: Address, words: str, options: int) -> Writing | str:
        """The disk server's part of an open. The other result is that of a reader."""
        answer = self._request(server, raw.OPEN, opening(options), words.encode())
        if options == raw.OPEN_READ and answer.status == raw.ERROR and "is being written" in answer.text:
            return BEING_WRITTEN
        if answer.status != raw.OK:
            raise NothingDone(str(answer))
        return Writing(server, answer.body[:4])

    def write(self, to: Writing, data: bytes) -> None:
        answer = self._request(to.server, raw.WRITE, to.handle + bytes(12), data)
        if answer.status != raw.OK:
            raise NothingDone(str(answer))

    def finish(self, to: Writing) -> str:
        answer = self._request(to.server, raw.CLOSE, to.handle, b"")
        return "ok" if answer.status == raw.OK else refusal(answer)

    def read(self, of: Writing, most: int) -> bytes:
        answer = self._request(of.server, raw.READ, of.handle + struct.pack(">qi", 0, most), b"")
        if answer.status != raw.OK:
            raise NothingDone(str(answer))
        self._request(of.server, raw.CLOSE, of.handle, b"")
        return answer.body


def manager_of(answer: raw.Answer) -> Address:
    port, host, _ = answer.redirect
    return host, port


def opening(options: int) -> bytes:
    return struct.pack(">HH12x", 0o644, options)


READING = opening(raw.OPEN_READ)


def refusal(answer: raw.Answer) -> str:
    if answer.status == raw.ERROR and answer.error in ERRORS:
        return ERRORS[answer.error]
    if answer.status == raw.ERROR and answer.text.endswith("not a directory"):
        return "not a directory"
    raise Lost(str(answer))
