"""Batches (docs/reference/xrootd-wire.md) by hand: many small requests in one frame, at a single node or a cluster."""

import struct
from dataclasses import dataclass, field

import raw
from content import page_sum
from raw import Raw

BATCH = 0x7765
CREATE, STAT, REMOVE, OPEN = 1, 2, 3, 4
REPLACE = 1


@dataclass
class Entry:
    op: int
    path: str
    data: bytes = b""
    flags: int = 0
    mode: int = 0o644
    value: int = 0


def create(path: str, data: bytes, **more) -> Entry:
    return Entry(CREATE, path, data, value=page_sum(data), **more)


def opening(path: str, length: int, **more) -> Entry:
    return Entry(OPEN, path, value=length, **more)


def send(connection: Raw, entries: list[Entry]) -> bytes:
    heads = [struct.pack(">BBHHHII", one.op, one.flags, one.mode, len(one.path.encode()), 0, len(one.data), one.value) for one in entries]
    listed = b"".join(head + one.path.encode() for head, one in zip(heads, entries, strict=True))
    return connection.send(BATCH, struct.pack(">B3xII", 1, len(entries), len(listed)), listed + b"".join(one.data for one in entries))


def receive(connection: Raw, stream: bytes, count: int) -> list[raw.Answer]:
    """The answer to each entry, in order."""
    answer = connection.answer(stream)
    assert answer.status == raw.OK, answer
    found, rest = {}, answer.body
    while rest:
        (number, status, length), rest = struct.unpack(">HHi", rest[:8]), rest[8:]
        found[number], rest = raw.Answer(struct.pack(">H", number), status, rest[:length]), rest[length:]
    assert sorted(found) == list(range(count)), sorted(found)
    return [found[number] for number in range(count)]


def ask(connection: Raw, entries: list[Entry]) -> list[raw.Answer]:
    return receive(connection, send(connection, entries), len(entries))


@dataclass
class Dealer:
    """A client of a cluster. It sends names to the manager, and objects to the disk server that the manager names."""

    manager: Raw
    places: dict[tuple[str, int], Raw] = field(default_factory=dict)

    def place(self, host: str, port: int) -> Raw:
        if (host, port) not in self.places:
            self.places[host, port] = Raw(port, host=host)
        return self.places[host, port]

    def make(self, files: dict[str, bytes], acknowledged) -> None:
        """Makes the files; calls `acknowledged` with each acknowledged path."""
        opened = ask(self.manager, [opening(path, len(data)) for path, data in files.items()])
        dealt: dict[tuple[str, int], list[tuple[str, Entry]]] = {}
        for (path, data), answer in zip(files.items(), opened, strict=True):
            if answer.status == raw.REDIRECT:
                port, host, opaque = answer.redirect
                dealt.setdefault((host, port), []).append((path, create(f"{path}?{opaque}", data)))
        sent = [(place, them, send(self.place(*place), [entry for _, entry in them])) for place, them in dealt.items()]
        for place, them, stream in sent:
            for (path, _), answer in zip(them, receive(self.place(*place), stream, len(them)), strict=True):
                if answer.status == raw.OK:
                    acknowledged(path)

    def close(self) -> None:
        for connection in [self.manager, *self.places.values()]:
            connection.socket.close()
