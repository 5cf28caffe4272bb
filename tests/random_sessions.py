"""Random sessions: a seed determines the steps. Each step is a frame that is the same for every server except for handles. It also knows
which parts of its answer a client can rely on."""

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

import raw
from answers import (
    PAGE,
    attributes,
    fields,
    keys,
    listing,
    names,
    nothing,
    opened,
    opened_posc,
    pages,
    places,
    posc_fields,
    segments_of,
    stat_fields,
    without_nul,
    written_pages,
)
from content import page_sum

QUERY_STATS, QUERY_PREPARE, QUERY_CHECKSUM, QUERY_XATTR, QUERY_SPACE, QUERY_CHECKSUM_CANCEL, QUERY_CONFIG, QUERY_VISA = range(1, 9)
QUERY_OPAQUE, QUERY_OPAQUE_FILE, QUERY_OPAQUE_HANDLE = 16, 32, 64
DONLINE, DSTAT, DCKSM = 1, 2, 4
FORCE, ASYNC, REFRESH, MKPATH, APPEND, RETSTAT, POSC, NOWAIT, SEQIO = 4, 0x40, 0x80, 0x100, 0x200, 0x400, 0x1000, 0x2000, 0x4000
PREPARE_CANCEL, PREPARE_NOERRS, PREPARE_STAGE, PREPARE_WMODE, PREPARE_COLOC, PREPARE_FRESH = 1, 4, 8, 16, 32, 64
PREPARE_EVICT = 1  # in a field of its own
PGRETRY = 1
NEW, DELETE = raw.OPEN_NEW | raw.OPEN_UPDATE, raw.OPEN_DELETE | raw.OPEN_UPDATE
HANDLES = 3
PREPARED = "prepared"
# Further connections of a session.
STREAMS = 2


@dataclass
class Step:
    """One request. `handle`: the slot of the handle that it needs; `opens`: the slot that its answer fills. The slot `PREPARED` holds the
    number of the last prepare request."""

    name: str
    code: int
    make: Callable[[bytes], tuple[bytes, bytes]]
    shown: str
    handle: int | str | None = None
    opens: int | None = None
    closes: int | None = None
    length: int | None = None  # of the payload, if data follows it
    under: bool = False  # a checkpoint
    path_id: int = 0  # the bound connection for the answer
    binds: bool = False  # on a further connection
    prepares: bool = False
    loses: bool = False  # no request: the connection breaks
    normal: Callable[[bytes], object] = bytes
    about: dict = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.name} {self.shown}"


# Steps of any session.


def plain(path: str) -> str:
    """The path without repeated slashes, dots, and a slash at the end."""
    return "/" + "/".join(part for part in path.split("/") if part not in ("", "."))


def opening(path: str, options: int, slot: int, mode: int = 0o644, name: str = "open", normal=nothing) -> Step:
    parameters, payload = struct.pack(">HH12x", mode, options), path.encode()
    about = {"path": plain(path), "options": options, "cuts": bool(options & raw.OPEN_DELETE), "slash": path.endswith(("/", "/."))}
    shown = f"{path} {options:#x} {mode:o} as {slot}"
    return Step(name, raw.OPEN, lambda _: (parameters, payload), shown, opens=slot, normal=normal, about=about)


def closing(slot: int) -> Step:
    return Step("close", raw.CLOSE, lambda handle: (handle, b""), str(slot), handle=slot, closes=slot, normal=nothing)


def writing(slot: int, offset: int, data: bytes) -> Step:
    place = struct.pack(">q4x", offset)
    return Step("write", raw.WRITE, lambda handle: (handle + place, data), f"{slot}: {offset}+{len(data)}", handle=slot, normal=nothing)


def reading(slot: int, offset: int, count: int) -> Step:
    place, about = struct.pack(">qi", offset, count), {"count": count}
    return Step("read", raw.READ, lambda handle: (handle + place, b""), f"{slot}: {offset}+{count}", handle=slot, about=about)


def truncating(slot: int, length: int) -> Step:
    to, about = struct.pack(">q", length), {"cuts": True}
    shown = f"{slot}: to {length}"
    return Step("truncate", raw.TRUNCATE, lambda handle: (handle + to, b""), shown, handle=slot, normal=nothing, about=about)


def making(path: str, mode: int = 0o755, mkpath: bool = False) -> Step:
    parameters, payload = struct.pack(">B13xH", mkpath, mode), path.encode()
    return Step("mkdir", raw.MKDIR, lambda _: (parameters, payload), f"{path} {mode:o} -p {mkpath}", normal=nothing)


def moving(old: str, new: str, name: str = "mv", **about) -> Step:
    parameters, payload = struct.pack(">14xH", len(old)), f"{old} {new}".encode()
    about = {"old": plain(old), "new": plain(new), "nested": False} | about
    return Step(name, raw.MV, lambda _: (parameters, payload), f"{old} {new}", normal=nothing, about=about)


def removing(path: str) -> Step:
    return Step("rm", raw.RM, lambda _: (b"", path.encode()), path, normal=nothing, about={"old": plain(path)})


def marking(slot: int, name: bytes, value: bytes) -> Step:
    """Sets an extended attribute by a handle."""
    data = b"\0\0\0" + name + b"\0" + struct.pack(">i", len(value)) + value
    return Step("fattr set", raw.FATTR, lambda handle: (handle + b"\3\1\0", data), f"{slot}: {name!r}", handle=slot)


def page_units(offset: int, data: bytes) -> list[bytes]:
    """The payload of pgwrite: each page after its checksum."""
    units, room = [], PAGE - offset % PAGE
    while data:
        units.append(struct.pack(">I", page_sum(data[:room])) + data[:room])
        data, room = data[room:], PAGE
    return units


class Session:
    """The steps of one seed. It never names files that are open for writing: others see them differently by design."""

    def __init__(self, seed: int, length: int = 60, below: str = ""):
        """`below`: an unused directory; the requests are the same in each."""
        self.pick = random.Random(f"differential {seed}")
        self.top = f"{below}/session-{seed}"
        self.paths = [f"{self.top}/{name}" for name in ("a", "b", "c", "d", "d/x", "d/y", "e", "e/z", "e/f/g", "a/under")]
        self.open: dict[int, tuple[str, bool]] = {}
        self.dead: list[str] = []  # files whose writer lost its connection and has not come back
        self.posc: set[int] = set()  # slots of files that stay only if they are closed
        self.replacing: set[int] = set()  # slots of files that replace another
        self.posc_was_lost = False
        self.checkpoints: set[int] = set()  # slots whose file has a checkpoint
        self.bound = 0  # further connections
        self.prepared = False  # there is a prepare request to ask about
        self.nameless: set[int] = set()  # slots of files that were moved or removed since their open, or may have been
        # Some initial files; otherwise most requests would find nothing.
        self.steps = [making(path, mkpath=True) for path in (f"{self.top}/d", f"{self.top}/e/f")]
        for path in (f"{self.top}/b", f"{self.top}/d/x"):
            self.steps += self._a_file(path)
        kinds = self._kinds()
        while len(self.steps) < length:
            step = self.pick.choices(list(kinds), list(kinds.values()))[0]()
            if isinstance(step, list):
                self.steps += step
            elif step:
                self.steps.append(step)

    def _kinds(self) -> dict[Callable[[], Step | None], int]:
        return {
            self.op_stat: 6,
            self.op_stat_space: 1,
            self.op_statx: 1,
            self.op_dirlist: 4,
            self.op_mkdir: 6,
            self.op_rm: 4,
            self.op_rmdir: 3,
            self.op_mv: 5,
            self.op_chmod: 2,
            self.op_truncate_path: 3,
            self.op_locate: 1,
            self.op_query: 4,
            self.op_query_handle: 1,
            self.op_fattr: 4,
            self.op_fattr_handle: 2,
            self.op_prepare: 2,
            self.op_other: 2,
            self.op_bind: 2,
            self.op_open: 16,
            self.op_close: 8,
            self.op_write: 14,
            self.op_writev: 3,
            self.op_pgwrite: 4,
            self.op_pgwrite_damaged: 2,
            self.op_truncate: 3,
            self.op_read: 8,
            self.op_readv: 2,
            self.op_pgread: 3,
            self.op_sync: 2,
            self.op_stat_handle: 3,
            self.op_chkpoint: 5,
            self.op_lose: 1,
            self.op_die: 1,
            self.op_come_back: 3,
            self.op_stat_above: 1,
            self.op_rm_written: 1,
            self.op_mv_written: 1,
        }

    def _named(self, name, code, path: str, parameters: bytes, normal, shown: str = "", **about) -> Step:
        payload = path.encode()
        return Step(name, code, lambda _: (parameters, payload), f"{path} {shown}", normal=normal, about=about)

    def _a_file(self, path: str) -> list[Step]:
        data = self.data(self.pick.choice([10, PAGE, 70_000]))
        return [opening(path, NEW, 0, normal=opened), writing(0, 0, data), closing(0)]

    def path(self) -> str:
        """A path without a writer at it or below it."""
        written = [path for path, writes in self.open.values() if writes] + self.dead
        # In weir, a file that stays only if it is closed has no name yet, so nothing is below it either.
        hidden = [self.open[slot][0] + "/" for slot in self.posc]
        free = [path for path in self.paths if not any(busy == path or busy.startswith(path + "/") for busy in written)]
        free = [path for path in free if not path.startswith(tuple(hidden))] or [self.top]
        return self.pick.choice(free)

    def slot(self, writes: bool | None = None) -> int | None:
        slots = [slot for slot, (_, w) in self.open.items() if writes is None or w == writes]
        return self.pick.choice(slots) if slots and self.pick.random() > 0.03 else None

    def spelled(self, path: str, dot_at_end: bool = True) -> str:
        """The path as people and programs write it: often with more slashes, with dots, and with a slash at the end."""
        if self.pick.random() < 0.75:
            return path
        if self.pick.random() < 0.4:
            parts = path.split("/")
            at = self.pick.randrange(1, len(parts))
            return "/".join([*parts[:at], self.pick.choice(["", ".", "./", "/", "./."]), *parts[at:]])
        return path + self.pick.choice(["/", "/", "//"] + ["/.", "/./"] * dot_at_end)

    # By name.

    def op_stat(self) -> Step:
        return self._named("stat", raw.STAT, self.spelled(self.path()), b"", stat_fields)

    def op_stat_above(self) -> Step:
        """By a path that leads up again."""
        below, name = self.pick.choice(["d", "d/x", "nosuch"]), self.pick.choice(["", "/", "/b"])
        return self._named("stat of a parent", raw.STAT, f"{self.top}/{below}/..{name}", b"", stat_fields)

    def op_stat_space(self) -> Step:
        """Of the file system: the free space of this machine's disk, in megabytes."""
        return self._named("stat of the space", raw.STAT, self.path(), b"\1", fields)

    def op_statx(self) -> Step:
        paths = [self.spelled(self.path()) + self.pick.choice(["", "", "?a=b"]) for _ in range(self.pick.choice([1, 2, 3, 8]))]
        paths += [self.top, "/"] * (self.pick.random() < 0.3)
        return self._named("statx", raw.STATX, "\n".join(paths), b"", bytes)

    def op_dirlist(self) -> Step | None:
        if self.dead or any(writes for _, writes in self.open.values()):
            return None
        options = self.pick.choice([0, DONLINE, DSTAT, DSTAT | DONLINE, DCKSM, DSTAT | DCKSM])
        path = self.spelled(self.pick.choice([self.top, self.path()]))
        form = listing if options & (DSTAT | DCKSM) else names
        if options & DCKSM:
            path += self.pick.choice(["", "?cks.type=crc32c", "?cks.type=nosuch"])
        return self._named("dirlist", raw.DIRLIST, path, bytes(15) + bytes([options]), form, f"options {options}")

    def op_mkdir(self) -> Step:
        mode, mkpath = self.pick.choice([0o755, 0o700, 0o750]), self.pick.random() < 0.3
        return making(self.spelled(self.path()), mode, mkpath)

    def op_rm(self) -> Step:
        path = self.path()
        self.nameless |= {slot for slot, (other, _) in self.open.items() if other == path}
        return removing(self.spelled(path))

    def op_rmdir(self) -> Step:
        return self._named("rmdir", raw.RMDIR, self.spelled(self.path()), b"", nothing)

    def op_mv(self) -> Step | None:
        old, new = self.path(), self.path()
        if self.pick.random() < 0.8:
            new = f"{self.top}/{self.pick.choice('abc')}"
            written = [path for path, writes in self.open.values() if writes] + self.dead
            if any(path == new or path.startswith(new + "/") for path in written):
                return None
        self.nameless |= {slot for slot, (path, _) in self.open.items() if path in (old, new) or path.startswith(old + "/")}
        # The stock server lets a client that names a directory by its dot wait without end.
        old, to = self.spelled(old, dot_at_end=False), self.spelled(new, dot_at_end=False)
        return moving(old, to, nested=new.rpartition("/")[0] != self.top or to.endswith("/"))

    def op_chmod(self) -> Step:
        mode = self.pick.choice([0o755, 0o700, 0o744, 0o750])
        return self._named("chmod", raw.CHMOD, self.spelled(self.path()), struct.pack(">14xH", mode), nothing, f"{mode:o}")

    def op_truncate_path(self) -> Step:
        length = self.pick.choice([0, 1, PAGE, 10_000, 70_000])
        path = self.spelled(self.path())
        return self._named("truncate", raw.TRUNCATE, path, struct.pack(">4xq", length), nothing, f"to {length}", cuts=True)

    def op_locate(self) -> Step:
        options = sum(self.pick.sample([1, REFRESH, 0x100, NOWAIT], self.pick.randint(0, 2)))
        one = self.spelled(self.path())
        path = self.pick.choice([one, one, "*", f"*{one}"])
        return self._named("locate", raw.LOCATE, path, struct.pack(">H", options), places, f"options {options:#x}")

    def op_query(self) -> Step:
        path = self.spelled(self.path())
        kind, text, normal = self.pick.choice(
            [
                (QUERY_CHECKSUM, path, without_nul),
                (QUERY_CHECKSUM, f"{path}?cks.type=crc32c", without_nul),
                (QUERY_CHECKSUM, f"{path}?cks.type=nosuch", without_nul),
                (QUERY_XATTR, path, keys),
                (QUERY_SPACE, self.top, keys),
                (QUERY_CONFIG, "readv_iov_max role nosuch", without_nul),
                (QUERY_STATS, "a", nothing),
                (QUERY_CHECKSUM_CANCEL, self.path(), nothing),
                (QUERY_OPAQUE, "something", nothing),
                (QUERY_OPAQUE_FILE, self.path(), nothing),
                (999, self.path(), nothing),
            ]
        )
        return self._named(f"query {kind}", raw.QUERY, text, struct.pack(">H", kind), normal)

    def op_query_handle(self) -> Step | None:
        kind, payload = self.pick.choice([(QUERY_VISA, b""), (QUERY_OPAQUE_HANDLE, b"something")])
        parameters = struct.pack(">H2x", kind)
        return self._on(f"query {kind}", raw.QUERY, lambda handle: (parameters + handle, payload), "", nothing, None)

    def op_fattr(self) -> Step:
        path = self.spelled(self.path())
        return self._fattr(path.encode(), path, lambda _: bytes(4), {})

    def op_fattr_handle(self) -> Step | None:
        """By a handle, of a file that still has the name of its open, because the stock server uses that name."""
        slot = self.slot()
        named = slot is not None and slot not in self.replacing and slot not in self.nameless
        return self._fattr(b"", f"{slot}:", lambda handle: handle, {"handle": slot}) if named else None

    def _fattr(self, path: bytes, shown: str, handle: Callable[[bytes], bytes], more: dict) -> Step:
        which = self.pick.choice(["del", "get", "list", "set", "set"])
        names = [] if which == "list" else self.pick.sample([b"one", b"two", b"three"], self.pick.randint(1, 2))
        data = path + b"\0" + b"".join(b"\0\0" + name + b"\0" for name in names)
        if which == "set":
            data += b"".join(struct.pack(">i", 3 * n) + b"val" * n for n, _ in enumerate(names))
        code = ["del", "get", "list", "set"].index(which)
        options = 0x10 if which == "list" else self.pick.choice([0, 0, 1]) if which == "set" else 0
        what = bytes([code, len(names), options])
        normal = attributes if which == "list" else bytes
        shown = f"{shown} {names} options {options}"
        return Step(f"fattr {which}", raw.FATTR, lambda slot: (handle(slot) + what, data), shown, normal=normal, **more)

    def op_prepare(self) -> Step:
        """Stages, cancels and evicts files, and queries the state, which each server words differently."""
        known = self.prepared or self.pick.random() < 0.1
        which = self.pick.choice(["stage", "hint", "evict"] + ["cancel", "query"] * known)
        if which in ("cancel", "query"):
            of = self.path().encode()
            parameters = bytes([PREPARE_CANCEL]) if which == "cancel" else struct.pack(">H", QUERY_PREPARE)
            code, lines = (raw.PREPARE, b"") if which == "cancel" else (raw.QUERY, b"\n" + of)
            return Step(f"prepare {which}", code, lambda given: (parameters, given + lines), repr(of), handle=PREPARED, normal=nothing)
        paths = "\n".join(self.spelled(self.path()) for _ in range(self.pick.choice([0, 1, 1, 2, 3]))).encode()
        options = sum(self.pick.sample([PREPARE_NOERRS, PREPARE_WMODE, PREPARE_COLOC, PREPARE_FRESH], self.pick.randint(0, 2)))
        options |= PREPARE_STAGE if which == "stage" else 0
        self.prepared |= which == "stage"
        parameters = struct.pack(">BBHH", options, self.pick.choice([0, 1, 3]), 0, PREPARE_EVICT if which == "evict" else 0)
        shown = f"{paths!r} options {options}"
        return Step(f"prepare {which}", raw.PREPARE, lambda _: (parameters, paths), shown, normal=nothing, prepares=which == "stage")

    def op_bind(self) -> Step | None:
        """Binds a further connection to the session."""
        if self.bound == STREAMS:
            return None
        known = self.pick.random() < 0.9
        self.bound += known
        return Step("bind", raw.BIND, lambda session: (session if known else bytes(16), b""), f"known {known}", binds=True)

    def op_other(self) -> Step:
        code, payload, normal = self.pick.choice(
            [
                (raw.PING, b"", bytes),
                (raw.SET, b"appid test", bytes),
                (raw.SET, b"monitor on", bytes),
                (raw.SET, b"nonsense", bytes),
            ]
        )
        return Step(f"request {code}", code, lambda _: (b"", payload), repr(payload), normal=normal)

    # By handle.

    def op_open(self) -> Step | None:
        free = [slot for slot in range(HANDLES) if slot not in self.open]
        if not free:
            return None
        slot, path = self.pick.choice(free), self.path()
        reading = any(other == path for other, _ in self.open.values())
        posc, spelled = False, self.spelled(path)
        how = self.pick.choice([raw.OPEN_READ] if reading else [raw.OPEN_READ, raw.OPEN_UPDATE, NEW, raw.OPEN_NEW, DELETE, raw.OPEN_DELETE])
        writes = how != raw.OPEN_READ
        # XRootD 5.5 takes `refresh` with `delete` for `mkpath`; later versions do not
        hints = [FORCE, RETSTAT, NOWAIT, SEQIO, ASYNC] + [REFRESH] * (how == raw.OPEN_READ)
        options = how | sum(self.pick.sample(hints, self.pick.randint(0, 3)))
        if writes and self.pick.random() < 0.3:
            options |= MKPATH
        if how & raw.OPEN_UPDATE and how != DELETE and self.pick.random() < 0.2:
            options |= APPEND
        if how & raw.OPEN_NEW and self.pick.random() < 0.4:
            posc = True
            options |= POSC
            self.posc.add(slot)
        mode = self.pick.choice([0o644, 0o600, 0o755])
        if spelled.endswith(("/", "/.")):
            self.posc.discard(slot)
            return opening(spelled, options, slot, mode, normal=nothing)  # opens nothing
        self.open[slot] = (path, writes)
        if how & raw.OPEN_DELETE:
            self.replacing.add(slot)
        return opening(spelled, options, slot, mode, normal=opened_posc if posc else opened)

    def op_lose(self) -> list[Step] | None:
        """The connection breaks. The client reopens its files, as stock clients do, and goes on."""
        if not self.open or any("/moved-" in path for path, _ in self.open.values()):
            return None  # weir continues a file under the name of its open
        steps = [self._lost()]
        for slot, (path, writes) in sorted(self.open.items()):
            steps.append(opening(path, raw.OPEN_UPDATE if writes else raw.OPEN_READ, slot, 0, "open again"))
        return steps

    def _lost(self) -> Step:
        self.checkpoints.clear()
        self.bound, self.prepared = 0, False
        self.posc_was_lost |= bool(self.posc)
        return Step("lose", 0, lambda _: (b"", b""), "the connection", loses=True)

    def op_die(self) -> list[Step] | None:
        """The client is killed, and starts again without its open files."""
        if self.posc or not self.open or any("/moved-" in path for path, _ in self.open.values()):
            return None  # the stock server holds the name of a file that stays only if it is closed
        self.dead += [path for path, writes in self.open.values() if writes and path not in self.dead]
        for known in (self.open, self.replacing, self.nameless):
            known.clear()
        return [self._lost()]

    def op_come_back(self) -> Step | None:
        """A client opens the file that it was writing when it was killed: to go on, or to write it again."""
        free = [slot for slot in range(HANDLES) if slot not in self.open]
        if not free or not self.dead:
            return None
        slot, path = self.pick.choice(free), self.dead.pop(self.pick.randrange(len(self.dead)))
        how = self.pick.choice([raw.OPEN_UPDATE, DELETE, NEW])
        self.open[slot] = (path, True)
        if how == DELETE:
            self.replacing.add(slot)
        return opening(path, how, slot, name="open of the dead")

    def _written(self) -> int | None:
        slots = [slot for slot, (_, writes) in self.open.items() if writes and slot not in self.posc and slot not in self.replacing]
        return self.pick.choice(slots) if slots else None

    def op_rm_written(self) -> Step | None:
        """Removes a file while it is written. Its writer continues, and its bytes are lost."""
        slot = self._written()
        if slot is None:
            return None
        path, _ = self.open[slot]
        self.nameless.add(slot)
        about = {"of": slot, "old": path}
        return Step("rm of a written file", raw.RM, lambda _: (b"", path.encode()), path, normal=nothing, about=about)

    def op_mv_written(self) -> Step | None:
        slot = self._written()
        if slot is None:
            return None
        self.nameless.add(slot)
        old, new = self.open[slot][0], f"{self.top}/moved-{len(self.steps)}"
        self.open[slot] = (new, True)
        return moving(old, new, "mv of a written file", of=slot)

    def op_close(self) -> Step | None:
        slot = self.slot()
        if slot is None:
            return None
        self.open.pop(slot)
        self.posc.discard(slot)
        self.replacing.discard(slot)
        self.nameless.discard(slot)
        self.checkpoints.discard(slot)
        return closing(slot)

    def _on(self, name: str, code: int, make, shown: str, normal, writes: bool | None, slot: int | None = -1, **more) -> Step | None:
        slot = self.slot(writes) if slot == -1 else slot
        if slot is None and self.pick.random() > 0.05:
            return None  # sometimes a handle that is not open
        # In weir, an open checkpoint covers all writes to its file; in the stock server, only its own.
        under = slot in self.checkpoints and code in (raw.WRITE, raw.WRITEV, raw.PGWRITE, raw.TRUNCATE)
        if under and code == raw.PGWRITE:
            return None  # the stock server answers it as a chkpoint, which no client understands
        return Step(name, code, make, f"{slot}: {shown}", handle=-1 if slot is None else slot, normal=normal, under=under, **more)

    def extent(self) -> tuple[int, int]:
        offset = self.pick.choice([0, 0, 1, 100, PAGE - 1, PAGE, 3 * PAGE + 5, 50_000, 66_000, 200_000])
        return offset, self.pick.choice([1, 10, PAGE, PAGE + 1, 9_000, 70_000])

    def data(self, count: int) -> bytes:
        return bytes([self.pick.randrange(65, 91)]) * count

    def op_write(self) -> Step | None:
        offset, count = self.extent()
        data = self.data(count)
        return self._on(
            "write", raw.WRITE, lambda handle: (handle + struct.pack(">q4x", offset), data), f"{offset}+{count} {data[:1]!r}", nothing, True
        )

    def op_writev(self) -> Step | None:
        parts = [(*self.extent(),) for _ in range(self.pick.randint(1, 4))]
        datas = [self.data(count) for _, count in parts]

        def make(handle: bytes) -> tuple[bytes, bytes]:
            listed = b"".join(handle + struct.pack(">iq", count, offset) for offset, count in parts)
            return bytes([sync]), listed + b"".join(datas)

        sync = self.pick.choice([0, 1])
        return self._on("writev", raw.WRITEV, make, f"{parts}", nothing, True, length=16 * len(parts))

    def path_id(self) -> int:
        """The connection for the answer."""
        return self.pick.choice([0, *range(self.bound + 1)])

    def op_pgwrite(self) -> Step | None:
        offset, count = self.extent()
        units = b"".join(page_units(offset, self.data(count)))
        place = struct.pack(">q", offset)
        return self._on("pgwrite", raw.PGWRITE, lambda handle: (handle + place, units), f"{offset}+{count}", written_pages, True)

    def op_pgwrite_damaged(self) -> list[Step] | None:
        """One page is damaged on its way, and sent again."""
        slot, (offset, count) = self._written(), self.extent()
        if slot is None or slot in self.checkpoints:
            return None
        units, place = page_units(offset, self.data(count)), struct.pack(">q", offset)
        bad = self.pick.randrange(len(units))
        sent = b"".join(unit if at != bad else bytes([unit[0] ^ 1]) + unit[1:] for at, unit in enumerate(units))
        begin = (offset // PAGE + bad) * PAGE if bad else offset
        again = struct.pack(">qBB", begin, 0, PGRETRY)
        shown = f"{slot}: {offset}+{count}"
        return [
            Step("pgwrite", raw.PGWRITE, lambda handle: (handle + place, sent), f"{shown} bad {bad}", handle=slot, normal=written_pages),
            Step("pgwrite again", raw.PGWRITE, lambda handle: (handle + again, units[bad]), shown, handle=slot, normal=written_pages),
        ]

    def op_truncate(self) -> Step | None:
        length = self.pick.choice([0, 1, PAGE, 10_000, 70_000])
        payload = struct.pack(">q", length)
        about = {"cuts": True}
        return self._on("truncate", raw.TRUNCATE, lambda handle: (handle + payload, b""), f"to {length}", nothing, True, about=about)

    def op_read(self) -> Step | None:
        (offset, count), path_id = self.extent(), self.path_id()
        place, on = struct.pack(">qi", offset, count), struct.pack("B7x", path_id) if path_id else b""
        shown, about = f"{offset}+{count} on {path_id}", {"count": count}
        return self._on("read", raw.READ, lambda handle: (handle + place, on), shown, bytes, None, about=about, path_id=path_id)

    def op_readv(self) -> Step | None:
        parts, path_id = [(*self.extent(),) for _ in range(self.pick.randint(1, 4))], self.path_id()

        def make(handle: bytes) -> tuple[bytes, bytes]:
            return struct.pack("15xB", path_id), b"".join(handle + struct.pack(">iq", count, offset) for offset, count in parts)

        return self._on("readv", raw.READV, make, f"{parts} on {path_id}", segments_of, None, path_id=path_id)

    def op_pgread(self) -> Step | None:
        (offset, count), path_id = self.extent(), self.path_id()
        place, on = struct.pack(">qi", offset, count), bytes([path_id, 0]) if path_id else b""
        shown = f"{offset}+{count} on {path_id}"
        return self._on("pgread", raw.PGREAD, lambda handle: (handle + place, on), shown, pages, None, path_id=path_id)

    def op_sync(self) -> Step | None:
        return self._on("sync", raw.SYNC, lambda handle: (handle, b""), "", nothing, None)

    def op_stat_handle(self) -> Step | None:
        return self._on("stat of a handle", raw.STAT, lambda handle: (bytes(12) + handle, b""), "", posc_fields, None)

    def op_chkpoint(self) -> Step | None:
        if self.posc or self.posc_was_lost:
            return None  # weir also accepts checkpoints of such files; the stock server remembers their state after their close
        slot = self.slot(True)
        likely = [raw.CKP_QUERY, raw.CKP_COMMIT, raw.CKP_ROLLBACK] if slot in self.checkpoints else [raw.CKP_BEGIN]
        operation = self.pick.choice([*likely * 6, raw.CKP_BEGIN, raw.CKP_QUERY, raw.CKP_COMMIT, raw.CKP_ROLLBACK])
        name = ["begin", "commit", "query", "rollback"][operation]
        what = bytes(11) + bytes([operation])
        step = self._on(f"chkpoint {name}", raw.CHKPOINT, lambda handle: (handle + what, b""), "", nothing, True, slot=slot)
        if step and operation == raw.CKP_BEGIN:
            self.checkpoints.add(step.handle)
        elif step and operation != raw.CKP_QUERY:
            self.checkpoints.discard(step.handle)
        return step
