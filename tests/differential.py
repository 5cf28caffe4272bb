"""Sends the same session to two servers and compares their answers. A difference is a finding, unless it is one of `INTENDED`, which
`docs/reference/differences.md` explains."""

import select
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import raw
from random_sessions import PREPARED, Step
from raw import Answer, Closed, Raw

WAIT, WAITRESP, ATTN, ASYNRESP = 4005, 4006, 4001, 5008
FILE_LOCKED = 3003
ANSWER_SECONDS = 10
# Longest time for the checksum of a small file.
LATE_SECONDS = 3
# Longest time until a server notices that a connection is gone.
GONE_SECONDS = 5


@dataclass(frozen=True)
class Outcome:
    """What a client receives: `ok`, `error` with its number, or the end of the connection."""

    kind: str
    number: int | None = None
    body: object = None

    @property
    def ok(self) -> bool:
        return self.kind == "ok"

    def __str__(self) -> str:
        text = f"error {self.number}" if self.kind == "error" else f"{self.kind} {self.body!r}"
        return text if len(text) < 400 else text[:400] + "..."


class Player:
    """Plays the steps of a session on one server."""

    def __init__(self, port: int):
        self.port = port
        self.lost = False
        self.connection = Raw(port, timeout=ANSWER_SECONDS)
        self.bound: list[Raw] = []
        self.handles: dict[int | str, bytes] = {}

    def close(self) -> None:
        for connection in (self.connection, *self.bound):
            connection.socket.close()
        self.bound.clear()

    def play(self, step: Step) -> Outcome:
        if step.loses:
            self.close()
            self.handles.clear()
            self.lost = True
            self.connection = Raw(self.port, timeout=ANSWER_SECONDS)
            return Outcome("ok")
        handle = self.handles.get(step.handle, b"\x7f\x7f\x7f\x7f") if step.handle is not None else b""
        parameters, payload = step.make(handle)
        try:
            answer = self._bind(step) if step.binds else self._ask(step, parameters, payload)
        except Closed:
            return Outcome("closed")
        except TimeoutError:
            return Outcome("silent")
        if step.closes is not None:
            self.handles.pop(step.closes, None)
        if answer.status == raw.ERROR:
            assert answer.text.strip(), f"an error without words for {step}"
            return Outcome("error", answer.error)
        assert answer.status in (raw.OK, raw.STATUS), answer
        if step.opens is not None:
            self.handles[step.opens] = answer.body[:4]
        if step.prepares:
            self.handles[PREPARED] = answer.body.rstrip(b"\0")
        return Outcome("ok", body=step.normal(answer.body))

    def _ask(self, step: Step, parameters: bytes, payload: bytes) -> Answer:
        noticed = time.monotonic() + GONE_SECONDS
        late = time.monotonic() + LATE_SECONDS
        for _ in range(200):
            stream = self.connection.send(step.code, parameters, payload, length=step.length, under=step.under)
            answer = self._answering(step).answer(stream)
            while answer.status == WAITRESP:
                answer = self._late()
            while answer.status == raw.STATUS and answer.body[7] == 1:  # partial
                more = self.connection.receive()
                answer = Answer(more.stream, more.status, more.body[:7] + b"\0" + more.body[8:16] + answer.body[16:] + more.body[24:])
            if answer.error == FILE_LOCKED and step.code == raw.OPEN and self.lost and time.monotonic() < noticed:
                time.sleep(0.05)
                continue
            if answer.status != WAIT:
                return answer
            if step.name == "query 3" and time.monotonic() > late:
                raise TimeoutError  # each forgotten answer occupies one of the stock server's slots for checksums for good
            time.sleep(min(struct.unpack(">i", answer.body[:4])[0], 1))
        raise AssertionError("told to wait again and again")

    def _bind(self, step: Step) -> Answer:
        further = Raw(self.port, login=False, timeout=ANSWER_SECONDS)
        further.handshake()
        answer = further.request(step.code, step.make(self.connection.session)[0])
        if answer.status == raw.OK:
            self.bound.append(further)
        else:
            further.socket.close()
        return answer

    def _answering(self, step: Step) -> Raw:
        """The connection of the answer: the one that was named, but the stock server sends some errors on the session's own."""
        if not step.path_id:
            return self.connection
        may = {connection.socket: connection for connection in (self.connection, *self.bound)}
        ready, _, _ = select.select(list(may), [], [], ANSWER_SECONDS)
        if not ready:
            raise TimeoutError
        return may[ready[0]]

    def _late(self) -> Answer:
        # The stock server sometimes forgets an answer that it has announced.
        patience = self.connection.socket.gettimeout()
        self.connection.socket.settimeout(LATE_SECONDS)
        attention = self.connection.receive()
        self.connection.socket.settimeout(patience)
        assert attention.status == ATTN and struct.unpack(">i", attention.body[:4])[0] == ASYNRESP, attention
        stream, status, length = struct.unpack(">2sHi", attention.body[8:16])
        return Answer(stream, status, attention.body[16 : 16 + length])


def same_but_for_sums(mine: Outcome, other: Outcome) -> bool:
    """Whether two listings differ only because the stock server lacks the requested checksum of some files."""
    if not isinstance(mine.body, dict) or not isinstance(other.body, dict) or mine.body.keys() != other.body.keys():
        return False
    pairs = [(mine.body[name], other.body[name]) for name in mine.body]
    kinds = [(a[1] or b"").split(b":")[0] == (b[1] or b"").split(b":")[0] for a, b in pairs]
    return all(kinds) and all(a == b or (a[0] == b[0] and b[1].endswith(b":none")) for a, b in pairs)


class History:
    """The past of a session, as far as it explains later differences."""

    def __init__(self) -> None:
        self.taken_away: set[str] = set()  # names whose files were removed while they were open for writing
        self.abandoned: set[str] = set()  # names of files that were open for writing when the connection was lost
        self._connected()

    def _connected(self) -> None:
        self.open: dict[int, str] = {}  # by slot: the name at which the file was opened
        self.now: dict[int, str] = {}  # and its new name after a move
        self.options: dict[int, int] = {}  # by slot: the options of the open
        self.left: dict[int, str] = {}  # of the names, those that are no longer the file's
        self.cut: set[int] = set()  # slots of files that may be shorter than at their open
        self.prepared = False  # the session has the number of a prepare request

    def happened(self, step: Step) -> None:
        """Records that both servers did `step`."""
        if step.loses:
            self.abandoned |= {path for slot, path in self.open.items() if self.options[slot] & WRITES}
            self._connected()
        if step.closes is not None:
            for known in (self.open, self.now, self.left):
                known.pop(step.closes, None)
            self.cut.discard(step.closes)
        self.prepared |= step.prepares
        if step.about.get("cuts"):
            self.cut |= self.open.keys()  # the file may have another name than at its open: consider all
        if step.opens is not None:
            path = step.about["path"]
            self.open[step.opens], self.now[step.opens], self.options[step.opens] = path, path, step.about["options"]
            if step.about["options"] & NEW_OR_DELETE:
                self.taken_away.discard(path)
        if old := step.about.get("old"):
            self._left(old, step.about.get("new"))

    def _left(self, old: str, new: str | None) -> None:
        """Records that the file at `old` is now at `new`, or gone."""
        self.left |= {slot: path for slot, path in self.open.items() if path == old or path.startswith(old + "/")}
        for slot, path in self.now.items():
            if path == old and new is None and self.options[slot] & WRITES:
                self.taken_away.add(self.open[slot])
            elif new and (path == old or path.startswith(old + "/")):
                self.now[slot] = new + path[len(old) :]

    def has_left(self, step: Step) -> bool:
        """Whether `step` opens a name that an open file had at its open but has no longer."""
        return step.opens is not None and step.about["path"] in self.left.values()


WRITES = raw.OPEN_UPDATE | raw.OPEN_NEW | raw.OPEN_DELETE
NEW_OR_DELETE = raw.OPEN_NEW | raw.OPEN_DELETE
# From this many bytes on, the stock server sends from the file to the socket.
SENDFILE_MIN_BYTES = 8192


def stale_size(step: Step, mine: Outcome, other: Outcome, history: History) -> bool:
    """The stock server tries to send as many bytes as the file had at its open, and fails."""
    cut = step.name == "read" and step.handle in history.cut and mine.ok and len(mine.body) < step.about["count"]
    return cut and step.about["count"] >= SENDFILE_MIN_BYTES and other.kind == "closed"


def made_without_update(step: Step, mine: Outcome, other: Outcome, history: History) -> bool:
    """The stock server gives a read handle for `new` or `delete` alone; here it can be used for writing."""
    changes = step.name in ("fattr set", "fattr del") and step.handle in history.options
    options = history.options[step.handle] if changes else raw.OPEN_UPDATE
    return not options & raw.OPEN_UPDATE and bool(options & NEW_OR_DELETE) and mine.ok and other.number == raw.INVALID_REQUEST


def remade(step: Step, mine: Outcome, other: Outcome, history: History) -> bool:
    """A client that was killed makes the same new file again."""
    return step.opens is not None and step.about["path"] in history.abandoned and mine.ok and other.number == raw.EXISTS


def found_again(step: Step, mine: Outcome, other: Outcome, history: History) -> bool:
    """A client opens for update the name at which it opened a file for writing, and the file has another name by now."""
    if step.opens is None or not step.about["options"] & raw.OPEN_UPDATE:
        return False
    moved = {path for slot, path in history.left.items() if history.options[slot] & WRITES and history.now[slot] != path}
    return step.about["path"] in moved and mine.ok and other.number == raw.NOT_FOUND


# Steps after which both servers still hold the same.
HARMLESS = {
    "dots-lead-nowhere",
    *("rmdir-missing", "checksum-unknown-kind", "not-empty-number", "mkdir-existing"),
    *("listing-has-checksums", "removed-while-written", "prepare-unknown-id"),
}
# By name, as in docs/reference/differences.md: whether the difference explains these two answers, weir's first, given the history.
INTENDED: dict[str, Callable[[Step, Outcome, Outcome, History], bool]] = {
    "rmdir-missing": lambda step, mine, other, _: step.name == "rmdir" and mine.number == raw.NOT_FOUND and other.ok,
    "mv-makes-parents": lambda step, mine, other, _: step.name == "mv" and mine.number == raw.NOT_FOUND,
    "mkdir-existing": lambda step, mine, other, _: step.name == "mkdir" and {mine.number, other.number} == {None, raw.EXISTS},
    "not-empty-number": lambda step, mine, other, _: (
        step.name.split()[0] in ("rm", "rmdir", "mv") and mine.number in (raw.EXISTS, raw.IS_DIRECTORY) and other.number == raw.FS_ERROR
    ),
    "checksum-never-told": lambda step, mine, other, _: step.name == "query 3" and other.kind == "silent",
    "checksum-unknown-kind": lambda step, mine, other, _: "nosuch" in step.shown and (mine.number, other.number) == (raw.UNSUPPORTED, 3012),
    "removed-while-written": lambda step, mine, other, history: (
        (step.opens is not None and step.about["path"] in history.taken_away)
        and (mine.number == raw.FILE_NOT_OPEN and other.number in (raw.NOT_FOUND, raw.IS_DIRECTORY, FILE_LOCKED))
    ),
    "listing-has-checksums": lambda step, mine, other, _: (
        step.name == "dirlist" and mine.ok and other.ok and same_but_for_sums(mine, other)
    ),
    "left-name-is-free": lambda step, mine, other, history: (
        history.has_left(step) and (other.number == FILE_LOCKED or (other.ok and mine.number in (None, raw.NOT_FOUND, raw.IS_DIRECTORY)))
    ),
    "cut-while-open": stale_size,
    "made-file-has-attributes": made_without_update,
    "unfinished-is-made-again": remade,
    "own-file-is-found": found_again,
    "dots-lead-nowhere": lambda step, mine, other, _: "/.." in step.shown and mine.number == raw.NOT_AUTHORIZED,
    "prepare-unknown-id": lambda step, mine, other, history: (
        step.handle == PREPARED and not history.prepared and mine.ok and other.number == raw.ARG_INVALID
    ),
}
# After these the servers may differ although their answers were equal.
SILENT: dict[str, Callable[[Step, Outcome, History], bool]] = {
    # the stock server makes the new name's directories before it looks for the old name
    "mv-makes-parents": lambda step, outcome, _: step.name == "mv" and step.about["nested"] and not outcome.ok,
    # the stock server makes the directory that the slash asks for, and then refuses to open it
    "open-makes-parents": lambda step, outcome, _: (
        step.opens is not None and step.about["slash"] and step.about["options"] & NEW_OR_DELETE and not outcome.ok
    ),
    # the stock server ends the connection, sometimes only after the next request
    "refused-data-ends": lambda step, outcome, _: (step.name == "writev" or step.under) and not outcome.ok,
    # a client that lost its connection is refused a new file of that name: at the stock server the file is empty by now, if it was to
    # be replaced
    "replaced-at-close": lambda step, outcome, history: (
        step.opens is not None and step.about["path"] in history.abandoned and outcome.number == raw.EXISTS
    ),
    # the stock server may have opened the file that was moved away from that name
    "left-name-is-free": lambda step, outcome, history: outcome.ok and history.has_left(step),
}


def why_different(step: Step, mine: Outcome, other: Outcome, history: History) -> str | None:
    """The intended difference that explains these two answers to `step`; `None`: none does."""
    return next((name for name, explains in INTENDED.items() if explains(step, mine, other, history)), None)


def may_differ_after(step: Step, outcome: Outcome, history: History) -> str | None:
    """The intended difference that makes states differ after equal answers."""
    return next((name for name, holds in SILENT.items() if holds(step, outcome, history)), None)


@dataclass(frozen=True)
class Difference:
    """Two answers without an explanation."""

    at: int  # the request's number in its session
    step: Step
    mine: Outcome
    other: Outcome

    def same_kind(self, other: "Difference") -> bool:
        return self._kind() == other._kind()

    def _kind(self) -> tuple:
        return (self.step.name, self.mine.kind, self.mine.number, self.other.kind, self.other.number)


@dataclass
class Comparison:
    """The result of one session."""

    compared: int = 0
    intended: set[str] = field(default_factory=set)
    difference: Difference | None = None
    played: list[str] = field(default_factory=list)  # in words
    last: tuple[Outcome, Outcome] | None = None  # the last answers
    done: set[str] = field(default_factory=set)  # the requests that both servers did


def compare(steps: Sequence[Step], weir_port: int, stock_port: int) -> Comparison:
    """Plays one session. Stops at a difference, because afterwards the two servers may hold different files."""
    ours, theirs = Player(weir_port), Player(stock_port)
    found, history = Comparison(), History()
    try:
        for at, step in enumerate(steps):
            mine, other = ours.play(step), theirs.play(step)
            found.played.append(f"  {step}\n      weir:   {mine}\n      xrootd: {other}")
            found.compared += 1
            found.last = (mine, other)
            if mine == other:
                if silent := may_differ_after(step, mine, history):
                    found.intended.add(silent)
                if silent or mine.kind == "closed":
                    break
                if mine.ok:
                    found.done.add(step.name)
                    history.happened(step)
                continue
            reason = why_different(step, mine, other, history)
            if reason is None:
                found.difference = Difference(at, step, mine, other)
                break
            found.intended.add(reason)
            if reason not in HARMLESS:
                break
    finally:
        ours.close()
        theirs.close()
    return found
