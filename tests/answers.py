"""Reduces an answer to the parts that both servers must share: no ids, times, owners, order of a listing, or figures of one server."""

import struct

from content import page_sum

POSC_PENDING, STICKY = 64, 0o1000
PAGE = 4096


def stat_fields(line: bytes) -> tuple:
    """Size, flags and permission bits; a directory has no size that means anything."""
    _, size, flags, _, *more = line.rstrip(b"\0").split()
    is_dir = int(flags) & 2
    mode = more[2] if len(more) > 2 else None
    return (None if is_dir else int(size), int(flags), mode)


def posc_fields(line: bytes) -> tuple:
    """For a file that stays only if it is closed: while it is written, the stock server shows that."""
    size, flags, mode = stat_fields(line)
    return (size, flags & ~POSC_PENDING, b"%04o" % (int(mode, 8) & ~STICKY) if mode else None)


def opened(body: bytes) -> object:
    return stat_fields(body[12:]) if len(body) > 12 else None


def opened_posc(body: bytes) -> object:
    return posc_fields(body[12:]) if len(body) > 12 else None


def names(body: bytes) -> object:
    return sorted(body.rstrip(b"\0").split(b"\n")) if body.rstrip(b"\0") else []


def listing(body: bytes) -> object:
    lines = body.rstrip(b"\0").rstrip(b"\n").split(b"\n")
    assert lines[:2] == [b".", b"0 0 0 0"], body[:100]
    entries = {}
    for name, line in zip(lines[2::2], lines[3::2], strict=True):
        stat, bracket, checksum = line.partition(b"[ ")
        entries[name] = (stat_fields(stat), checksum.rstrip(b" ]") if bracket else None)
    return entries


def keys(body: bytes) -> object:
    """Of `a=1&b=2`, the keys without the values. Behind the NUL at the end, the stock server sends a byte that it never set."""
    return [part.split(b"=")[0] for part in body.partition(b"\0")[0].rstrip(b"\n").split(b"&")]


def attributes(body: bytes) -> object:
    """The pairs of an fattr list, in any order."""
    pairs, at = [], 0
    while at < len(body):
        end = body.index(b"\0", at)
        length = struct.unpack(">i", body[end + 1 : end + 5])[0]
        pairs.append((body[at:end], body[end + 5 : end + 5 + length]))
        at = end + 5 + length
    return sorted(pairs)


def fields(body: bytes) -> object:
    """For figures that differ between servers: how many there are."""
    return len(body.rstrip(b"\0").split())


def written_pages(body: bytes) -> object:
    """Of a pgwrite answer, behind its header: the offset, and the pages that do not match their checksums."""
    return (body[16:24], body[24:])


def nothing(_: bytes) -> object:
    return None


def without_nul(body: bytes) -> object:
    return body.rstrip(b"\0")


def places(body: bytes) -> object:
    """Of a locate answer: the kinds of servers, and whether they are writable."""
    return [part[:2] for part in body.rstrip(b"\0").split()]


def pages(body: bytes) -> object:
    """Of a pgread answer, behind its header: the data, each page compared with its checksum."""
    offset = struct.unpack(">q", body[16:24])[0]
    data, rest, room = b"", body[24:], PAGE - offset % PAGE
    while rest:
        told, page = struct.unpack(">I", rest[:4])[0], rest[4 : 4 + room]
        assert told == page_sum(page), "a page that does not match its sum"
        data, rest, room = data + page, rest[4 + room :], PAGE
    return data


def segments_of(body: bytes) -> object:
    found = []
    while body:
        length, offset = struct.unpack(">4xiq", body[:16])
        found.append((offset, body[16 : 16 + length]))
        body = body[16 + length :]
    return found
