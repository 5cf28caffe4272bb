"""The checker of histories accepts those of a right namespace, and finds what is wrong with the others: written by hand, and of simulated
namespaces with planted bugs."""

import itertools

import pytest
from history import A_DIRECTORY, A_FILE, MAYBE, History, Lost, NothingDone, Operation, Undone
from linearizability import NotLinearizable, Undecided, check, independent
from namespace_model import beginning
from simulated_namespace import BUGS, SimulatedNamespace

FREE, BUSY = beginning("/d"), beginning("/d", "/d/sub")


def op(start: int, end: int | None, name: str, *arguments, client: int = 0) -> Operation:
    """The last argument is the result."""
    return Operation(client, name, arguments[:-1], arguments[-1], start, end)


def written(start: int, path: str, size: int, how: str = "new") -> list[Operation]:
    """A file that is written without anything beside it, in three units of time."""
    return [op(start, start + 1, how, path, f"w{size}", "ok"), op(start + 2, start + 3, "close", f"w{size}", size, "ok")]


def is_linearizable(operations: list[Operation], state=FREE) -> bool:
    try:
        check(operations, state)
    except NotLinearizable:
        return False
    return True


FILE = written(0, "/d/f", 7)
RIGHT = {
    "one after the other": [*FILE, op(5, 6, "stat", "/d/f", (A_FILE, 7)), op(7, 8, "read", "/d/f", (A_FILE, 7))],
    "old or new beside a replacement": [
        *FILE,
        op(10, 11, "replace", "/d/f", "w8", "ok"),
        op(12, 20, "close", "w8", 8, "ok"),
        op(13, 14, "stat", "/d/f", (A_FILE, 7)),
        op(15, 16, "stat", "/d/f", (A_FILE, 8)),
        op(17, 18, "read", "/d/f", (A_FILE, 8)),
    ],
    "one of two creates": [op(0, 9, "mkdir", "/d/x", "ok"), op(1, 8, "mkdir", "/d/x", "exists")],
    "unfinished": [
        op(0, 1, "new", "/d/f", "w", "ok"),
        op(2, 3, "stat", "/d/f", (A_FILE, None)),
        op(4, 5, "replace", "/d/f", "v", "locked"),
    ],
    "a rename beside a list": [
        *FILE,
        op(5, 9, "rename", "/d/f", "/d/g", "ok"),
        op(6, 7, "list", "/d", ("f",)),
        op(7, 8, "list", "/d", ("g",)),
    ],
    "written under its new name": [
        op(0, 1, "new", "/d/f", "w", "ok"),
        op(2, 3, "rename", "/d/f", "/d/g", "ok"),
        op(4, 5, "close", "w", 5, "ok"),
        op(6, 7, "list", "/d", ("g",)),
        op(8, 9, "stat", "/d/g", (A_FILE, 5)),
    ],
    "a replacement goes to the name": [
        *FILE,
        op(10, 11, "replace", "/d/f", "w8", "ok"),
        op(12, 13, "rename", "/d/f", "/d/g", "ok"),
        op(14, 15, "close", "w8", 8, "ok"),
        op(16, 17, "stat", "/d/g", (A_FILE, 7)),
        op(18, 19, "stat", "/d/f", (A_FILE, 8)),
    ],
    "a replacement of what is another's now": [
        *FILE,
        op(10, 11, "replace", "/d/f", "w8", "ok"),
        op(12, 13, "remove", "/d/f", "ok"),
        *written(14, "/d/f", 9),
        op(18, 19, "close", "w8", 8, "exists"),
        op(20, 21, "read", "/d/f", (A_FILE, 9)),
    ],
    "removed while written": [
        op(0, 1, "new", "/d/f", "w", "ok"),
        op(2, 3, "remove", "/d/f", "ok"),
        op(4, 5, "close", "w", 5, "ok"),
        op(6, 7, "stat", "/d/f", "missing"),
    ],
    "maybe, late": [op(0, None, "mkdir", "/d/x", MAYBE), op(5, 6, "stat", "/d/x", "missing"), op(90, 91, "stat", "/d/x", A_DIRECTORY)],
    "maybe, never": [op(0, None, "mkdir", "/d/x", MAYBE), op(5, 6, "stat", "/d/x", "missing"), op(90, 91, "mkdir", "/d/x", "ok")],
    "maybe, at its end": [op(0, 3, "mkdir", "/d/x", MAYBE), op(4, 5, "stat", "/d/x", A_DIRECTORY)],
    "maybe, taken back": [
        op(0, 9, "new", "/d/f", "w", MAYBE),
        op(0, 9, "take back", "w", MAYBE),
        op(4, 5, "stat", "/d/f", (A_FILE, None)),
        op(6, 7, "stat", "/d/f", "missing"),
    ],
    "abandoned": [
        op(0, 1, "new", "/d/f", "w", "ok"),
        op(2, None, "abandon", "w", MAYBE),
        op(3, 4, "replace", "/d/f", "v", "locked"),
        op(5, 6, "replace", "/d/f", "u", "ok"),
    ],
    "a whole directory is moved": [
        *written(0, "/d/sub/f", 3),
        op(5, 6, "rename", "/d/sub", "/d/x", "ok"),
        op(7, 8, "stat", "/d/x/f", (A_FILE, 3)),
        op(7, 8, "stat", "/d/sub/f", "missing"),
    ],
}
WRONG = {
    "stale read": [*FILE, *written(10, "/d/f", 8, "replace"), op(20, 21, "stat", "/d/f", (A_FILE, 7))],
    "stale absence": [*FILE, op(5, 6, "stat", "/d/f", "missing")],
    "stale content": [*FILE, *written(10, "/d/f", 8, "replace"), op(20, 21, "read", "/d/f", (A_FILE, 7))],
    "new, then old": [
        *FILE,
        op(10, 11, "replace", "/d/f", "w8", "ok"),
        op(12, 20, "close", "w8", 8, "ok"),
        op(13, 14, "stat", "/d/f", (A_FILE, 8)),
        op(15, 16, "stat", "/d/f", (A_FILE, 7)),
    ],
    "lost update": [op(0, 1, "mkdir", "/d/x", "ok"), op(2, 3, "rmdir", "/d/x", "missing")],
    "double create": [op(0, 9, "mkdir", "/d/x", "ok"), op(1, 8, "mkdir", "/d/x", "ok", client=1)],
    "double new": [op(0, 9, "new", "/d/f", "w", "ok"), op(1, 8, "new", "/d/f", "v", "ok", client=1)],
    "double remove": [*FILE, op(5, 9, "remove", "/d/f", "ok"), op(6, 8, "remove", "/d/f", "ok", client=1)],
    "rename seen half": [*FILE, op(5, 9, "rename", "/d/f", "/d/g", "ok"), op(6, 7, "list", "/d", ())],
    "rename seen twice": [*FILE, op(5, 9, "rename", "/d/f", "/d/g", "ok"), op(6, 7, "list", "/d", ("f", "g"))],
    "rename seen by halves": [
        *FILE,
        op(5, 20, "rename", "/d/f", "/d/g", "ok"),
        op(6, 7, "stat", "/d/f", "missing"),
        op(8, 9, "stat", "/d/g", "missing"),
    ],
    "rename undone": [*FILE, op(5, 6, "rename", "/d/f", "/d/g", "ok"), op(7, 8, "stat", "/d/f", (A_FILE, 7))],
    "maybe, twice": [op(0, None, "mkdir", "/d/x", MAYBE), op(5, 6, "rmdir", "/d/x", "ok"), op(7, 8, "rmdir", "/d/x", "ok")],
    "maybe, before its start": [op(5, None, "mkdir", "/d/x", MAYBE), op(1, 2, "stat", "/d/x", A_DIRECTORY)],
    "maybe, after its end": [op(0, 3, "mkdir", "/d/x", MAYBE), op(4, 5, "stat", "/d/x", "missing"), op(6, 7, "stat", "/d/x", A_DIRECTORY)],
    "written over another's file": [
        *FILE,
        op(10, 11, "replace", "/d/f", "w8", "ok"),
        op(12, 13, "remove", "/d/f", "ok"),
        *written(14, "/d/f", 9),
        op(18, 19, "close", "w8", 8, "ok"),
    ],
    "not empty": [*written(0, "/d/sub/f", 3), op(5, 6, "rmdir", "/d/sub", "ok")],
    "empty": [op(5, 6, "rmdir", "/d/sub", "exists")],
    "left behind": [*written(0, "/d/sub/f", 3), op(5, 6, "rename", "/d/sub", "/d/x", "ok"), op(7, 8, "stat", "/d/x/f", "missing")],
}


@pytest.mark.parametrize("name", RIGHT)
def test_right(name):
    check(RIGHT[name], BUSY if "sub" in str(RIGHT[name]) else FREE)


@pytest.mark.parametrize("name", WRONG)
def test_wrong(name):
    assert not is_linearizable(WRONG[name], BUSY if "sub" in str(WRONG[name]) else FREE)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("lost", [0.0, 0.01])
def test_a_right_namespace_is_accepted(seed, lost):
    simulated = SimulatedNamespace(seed, 8, lost=lost)
    check(simulated.run(500), simulated.beginning)


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug):
    simulated = SimulatedNamespace(1, 8, bug)
    operations = simulated.run(400)
    assert simulated.bugs > 1
    with pytest.raises(NotLinearizable):
        check(operations, simulated.beginning)


def test_one_wrong_answer_in_thousands_is_shown_with_few_others():
    simulated = SimulatedNamespace(5, 8)
    operations = simulated.run(2000)
    at = operations[1500].end
    before = max(
        (one for one in operations if one.name == "close" and one.result == "ok" and one.end < at), key=lambda operation: operation.end
    )
    path = next(one.arguments[0] for one in operations if one.arguments[1:] == before.arguments[:1])
    wrong = Operation(9, "stat", (path,), (A_FILE, 10**9), at, at + 1)
    with pytest.raises(NotLinearizable) as found:
        check([*operations, wrong], simulated.beginning)
    told = str(found.value)
    assert "The last one to end was" in told and f"client 9  stat {path}: ('a file', 1000000000)" in told
    assert told.count("client ") < 30, told


def test_a_history_that_is_too_much_is_not_accepted():
    simulated = SimulatedNamespace(0, 8)
    with pytest.raises(Undecided, match="undecided: no answer after 100 steps"):
        check(simulated.run(200), simulated.beginning, most_steps=100)


def test_names_that_nothing_connects_are_apart():
    apart = [op(0, 9, "mkdir", "/d/x", "ok"), op(0, 9, "mkdir", "/d/y", "ok"), *written(0, "/e/f", 1), op(0, 9, "stat", "/e/g", "missing")]
    assert sorted(map(len, independent(apart))) == [1, 1, 1, 2]
    for joins in (
        op(0, 9, "list", "/d", ()),
        op(0, 9, "rename", "/d/x", "/d/y", "ok"),
        op(0, 9, "remove", "/d", "ok"),
    ):
        assert sorted(map(len, independent([*apart, joins]))) == [1, 2, 3], joins
    # Many at once: the orders of operations that do not concern each other are not tried.
    many = [op(0, 9, "mkdir", f"/d/{number}", "ok") for number in range(50)]
    check(many, FREE, most_steps=1000)


def test_a_history_leaves_out_what_says_nothing():
    history, ticks = History(), itertools.count()

    def fails(error: Exception):
        def call() -> object:
            next(ticks)
            raise error

        return call

    for name, error in (("stat", Lost()), ("mkdir", NothingDone()), ("mkdir", Lost()), ("new", Undone())):
        with pytest.raises(type(error)):
            history.run(3, name, ("/d/x",), fails(error))
    assert history.run(3, "stat", ("/d/x",), lambda: "missing") == "missing"
    lost, undone, stat = history.operations
    assert lost.is_maybe and lost.end is None and lost.name == "mkdir"
    assert undone.is_maybe and undone.start < undone.end <= stat.start < stat.end and stat.result == "missing"
    assert history.left_out.total() == 2
