"""A client of weir gets the same answers as a client of a stock xrootd, except for the differences in docs/reference/differences.md."""

import itertools
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import raw
from differential import INTENDED, SILENT, Comparison, Difference, History, Outcome, compare, why_different
from harness import ROOT, Weir, Xrootd
from random_sessions import (
    QUERY_CHECKSUM,
    QUERY_CHECKSUM_CANCEL,
    QUERY_CONFIG,
    QUERY_SPACE,
    QUERY_STATS,
    QUERY_XATTR,
    Session,
    Step,
    closing,
    making,
    marking,
    moving,
    opening,
    reading,
    removing,
    truncating,
    writing,
)
from shrink import shrink

FIRST = int(os.environ.get("WEIR_SEED", "0"))
SEEDS = int(os.environ.get("WEIR_SEEDS", "200"))
# The sessions of one test; few, so that a failure is repeated quickly.
PER_TEST = 25


@pytest.fixture(scope="module")
def servers(base: Path):
    with Weir(base / "differential-weir") as weir, Xrootd(base / "differential-xrootd") as stock:
        yield weir, stock
        assert weir.alive() and stock.alive()


@pytest.fixture(scope="module")
def done() -> set[str]:
    """The requests of random sessions that both servers did."""
    return set()


def shortened(seed: int, found: Difference, weir: Weir, stock: Xrootd) -> str:
    """In words: the shortest session with the same difference."""
    fresh = itertools.count()

    def again(left: list[int]) -> Comparison:
        steps = Session(seed, below=f"/shrinking-{seed}-{next(fresh)}").steps
        return compare([steps[at] for at in left], weir.port, stock.port)

    left = shrink(Session(seed).steps, found, lambda left: again(left).difference)
    return "\n".join(again(left).played)


@pytest.mark.parametrize("part", range(-(-SEEDS // PER_TEST)))
def test_the_same_session_is_told_the_same(servers, done, part):
    unexplained, compared = [], 0
    for seed in range(FIRST + part * PER_TEST, min(FIRST + (part + 1) * PER_TEST, FIRST + SEEDS)):
        found = compare(Session(seed).steps, servers[0].port, servers[1].port)
        compared += found.compared
        done |= found.done
        if found.difference:
            played = "\n".join(found.played[-4:])
            unexplained.append(f"seed {seed}:\n{played}\n shortened:\n{shortened(seed, found.difference, *servers)}")
    assert not unexplained, "\n\n".join(unexplained)
    assert compared > 10 * PER_TEST or SEEDS < PER_TEST, "sessions that end at once compare nothing"


# Requests that must also succeed: one that always fails compares only errors.
ASKED = {
    *("open", "open again", "close", "lose", "bind", "read", "readv", "pgread", "write", "writev", "pgwrite", "pgwrite again", "sync"),
    *("truncate", "stat", "stat of a handle", "stat of the space", "statx", "dirlist", "locate", "mkdir", "rm", "rmdir", "mv", "chmod"),
    *("open of the dead", "rm of a written file", "mv of a written file", "fattr set", "fattr get", "fattr list", "fattr del"),
    *("chkpoint begin", "chkpoint commit", "chkpoint query", "chkpoint rollback"),
    *("prepare stage", "prepare evict", "prepare cancel", "prepare query", "prepare hint"),
    *(f"query {kind}" for kind in (QUERY_STATS, QUERY_CHECKSUM, QUERY_XATTR, QUERY_SPACE, QUERY_CHECKSUM_CANCEL, QUERY_CONFIG)),
    *(f"request {code}" for code in (raw.PING, raw.SET)),
}


def test_the_sessions_ask_everything(servers, done):
    """Both servers do each kind of request at some time: in the earlier sessions, or in some more."""
    for seed in range(FIRST + SEEDS, FIRST + SEEDS + 400):
        if done >= ASKED:
            return
        done |= compare(Session(seed).steps, servers[0].port, servers[1].port).done
    assert done >= ASKED, f"never done: {ASKED - done}"


# Findings of random sessions, in their shortest form: the steps in a directory of their own, weir's answer to the last one, and the
# difference that explains the stock server's.
READ, NEW, UPDATE = raw.OPEN_READ, raw.OPEN_NEW | raw.OPEN_UPDATE, raw.OPEN_UPDATE
LOSE = Step("lose", 0, lambda _: (b"", b""), "the connection", loses=True)
FOUND: dict[str, tuple[Callable[[str], list[Step]], Outcome, str]] = {
    "the directory of an open file is moved": (
        lambda at: [
            *(making(f"{at}/d"), opening(f"{at}/d/x", NEW, 0), closing(0)),
            *(opening(f"{at}/d/x", READ, 0), moving(f"{at}/d", f"{at}/a"), opening(f"{at}/d/x", READ, 1)),
        ],
        Outcome("error", raw.NOT_FOUND),
        "left-name-is-free",
    ),
    "a written file is moved": (
        lambda at: [opening(f"{at}/x", NEW, 0), moving(f"{at}/x", f"{at}/y"), opening(f"{at}/x", raw.OPEN_DELETE, 1)],
        Outcome("ok"),
        "left-name-is-free",
    ),
    "a file that is read is moved": (
        lambda at: [
            *(opening(f"{at}/x", NEW, 0), closing(0)),
            *(opening(f"{at}/x", READ, 0), moving(f"{at}/x", f"{at}/y"), opening(f"{at}/x", NEW, 1)),
        ],
        Outcome("ok"),
        "left-name-is-free",
    ),
    "a written file is removed": (
        lambda at: [opening(f"{at}/x", NEW, 0), removing(f"{at}/x"), opening(f"{at}/x", NEW, 1)],
        Outcome("ok"),
        "left-name-is-free",
    ),
    "a written file is moved, removed, and looked for where it was": (
        lambda at: [
            *(opening(f"{at}/x", NEW, 0), moving(f"{at}/x", f"{at}/y"), removing(f"{at}/y")),
            opening(f"{at}/x", UPDATE, 1),
        ],
        Outcome("error", raw.FILE_NOT_OPEN),
        "removed-while-written",
    ),
    "a file is read behind its new end": (
        lambda at: [
            *(opening(f"{at}/x", NEW, 0), writing(0, 0, bytes(70_000)), closing(0)),
            *(opening(f"{at}/x", UPDATE, 0), truncating(0, 10_000), reading(0, 20_000, 8192)),
        ],
        Outcome("ok", body=b""),
        "cut-while-open",
    ),
    "a client that was killed makes its file again": (
        lambda at: [opening(f"{at}/x", NEW, 0), writing(0, 0, b"old"), LOSE, opening(f"{at}/x", NEW, 0, name="open of the dead")],
        Outcome("ok"),
        "unfinished-is-made-again",
    ),
    "a file that is being made gets an attribute": (
        lambda at: [opening(f"{at}/x", raw.OPEN_NEW, 0), marking(0, b"run", b"4711")],
        Outcome("ok", body=b"\0\1\0\0run\0"),
        "made-file-has-attributes",
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found(servers, name):
    """Both servers answer as they did when it was found, and without the earlier steps no difference would explain it."""
    steps_at, expected, difference = FOUND[name]
    at = f"/found-{list(FOUND).index(name)}"
    steps = [making(at), *steps_at(at)]
    found = compare(steps, servers[0].port, servers[1].port)
    assert found.difference is None and found.intended == {difference}, "\n".join(found.played)
    assert found.compared == len(steps), "it is the last request that differs"
    mine, other = found.last
    assert mine == expected != other and why_different(steps[-1], mine, other, History()) is None


def test_a_session_is_shortened_to_what_shows_its_difference():
    """On a server that forgets the file `b` when `a` is read after `c` was made."""
    names = [name for name in "xaybzcwab" for _ in range(3)]
    steps = [making(f"/{name}") for name in names]

    def played(left: list[int]) -> Difference | None:
        seen = "".join(names[at] for at in left)
        shows = re.search("c.*a.*b", seen)
        at = shows.end() - 1 if shows else 0
        return Difference(at, steps[left[at]], Outcome("ok"), Outcome("error", 3011)) if shows else None

    whole = played(list(range(len(steps))))
    left = shrink(steps, whole, played)
    assert "".join(names[at] for at in left) == "cab"


def test_a_difference_would_be_seen():
    step = Step("stat", 3017, lambda _: (b"", b""), "/x")
    ok, error = Outcome("ok", body=(1, 48, b"0644")), Outcome("error", 3011)
    for mine, other in [(ok, error), (error, ok), (ok, Outcome("ok", body=(2, 48, b"0644"))), (error, Outcome("error", 3012))]:
        assert mine != other and why_different(step, mine, other, History()) is None


def test_each_intended_difference_is_explained_and_none_else():
    text = (ROOT / "docs/reference/differences.md").read_text()
    explained = set(re.findall(r"^\| `([a-z-]+)` \|", text, re.MULTILINE))
    assert explained == {*INTENDED, *SILENT}
