"""The namespace as one client alone sees it: what each operation of `tests/history.py` does, and which answers are right."""

import functools
from typing import NamedTuple

from history import A_DIRECTORY, A_FILE, CHANGES, Operation

DIRECTORY, COMPLETE, UNFINISHED, INTERRUPTED = "directory", "complete", "unfinished", "interrupted"
MISSING, EXISTS, IS_DIRECTORY, NOT_A_DIRECTORY, LOCKED = "missing", "exists", "directory", "not a directory", "locked"
INTO_ITSELF = "invalid"
ROOT = "/"


class Node(NamedTuple):
    kind: str
    # Of a complete file.
    size: int | None = None
    # Of an unfinished one.
    writer: object = None


class Upload(NamedTuple):
    """What a writer writes to replace a file: at the close it goes to this name, if nothing or the same file is there. Directory and file
    by their present paths; `None` if they are gone."""

    directory: str | None
    name: str
    replaces: str | None


class State:
    """Never changes; operations make another one."""

    def __init__(self, nodes: dict[str, Node], uploads: dict[object, Upload]):
        self.nodes, self.uploads = nodes, uploads
        self.key = (frozenset(nodes.items()), frozenset(uploads.items()))

    @functools.cached_property
    def writers(self) -> set[object]:
        return {node.writer for node in self.nodes.values()} | self.uploads.keys()

    def walk(self, path: str) -> str | None:
        """The error of a walk to the directory of the path."""
        at = 0
        while (at := path.find("/", at + 1)) > 0:
            node = self.nodes.get(path[:at])
            if node is None:
                return MISSING
            if node.kind != DIRECTORY:
                return NOT_A_DIRECTORY
        return None

    def names(self, path: str) -> tuple[str, ...]:
        before = path.rstrip("/") + "/"
        return tuple(sorted(name[len(before) :] for name in self.nodes if name.startswith(before) and "/" not in name[len(before) :]))

    def made(self, path: str, node: Node) -> "State":
        return State({**self.nodes, path: node}, self.uploads)

    def removed(self, path: str) -> "State":
        return self.moved({path: None})

    def moved(self, moves: dict[str, str | None]) -> "State":
        """`None`: it is removed."""
        gone = {*moves, *moves.values()}
        nodes = {path: node for path, node in self.nodes.items() if path not in gone}
        nodes.update((to, self.nodes[path]) for path, to in moves.items() if to is not None)

        def now(path: str | None) -> str | None:
            return moves[path] if path in moves else None if path in gone else path

        uploads = {writer: Upload(now(one.directory), one.name, now(one.replaces)) for writer, one in self.uploads.items()}
        return State(nodes, uploads)

    def told(self) -> str:
        if not self.nodes:
            return "nothing"
        lines = []
        for path, node in sorted(self.nodes.items()):
            of = f", {node.size} bytes" if node.size is not None else f" of {node.writer}" if node.writer else ""
            lines.append(f"{path} ({node.kind}{of})")
        return ", ".join(lines)


def beginning(*directories: str) -> State:
    return State({path: Node(DIRECTORY) for path in directories}, {})


def parent(path: str) -> str:
    return path.rpartition("/")[0] or ROOT


def step(state: State, operation: Operation) -> State | None:
    """The state after the operation, the same object if it changes nothing; `None` if its result cannot come about in this state. Of an
    operation that may never have been done, only an effect matters."""
    errors, after = MEANING[operation.name](state, *operation.arguments)
    if operation.is_maybe:
        found = None if errors else after()
        # A writer whose client does not know of it replaces nothing.
        return None if found is None or found.nodes is state.nodes else found
    if errors:
        return state if operation.result in errors else None
    if operation.name in CHANGES:
        return after() if operation.result == "ok" else None
    return state if after(operation.result) else None


# Each returns all errors that it may answer, and what happens if there are none: the next state, or whether an answer is right.


def _mkdir(state: State, path: str):
    errors = _free(state, path)
    return errors, lambda: state.made(path, Node(DIRECTORY))


def _free(state: State, path: str) -> set[str]:
    if error := state.walk(path):
        return {error}
    return {EXISTS} if path in state.nodes else set()


def _present(state: State, path: str) -> set[str]:
    if error := state.walk(path):
        return {error}
    return set() if path in state.nodes or path == ROOT else {MISSING}


def _rmdir(state: State, path: str):
    errors = _present(state, path)
    if not errors and state.nodes[path].kind != DIRECTORY:
        errors = {NOT_A_DIRECTORY}
    elif not errors and state.names(path):
        errors = {EXISTS}
    return errors, lambda: state.removed(path)


def _remove(state: State, path: str):
    errors = _present(state, path)
    if not errors and state.names(path):
        errors = {IS_DIRECTORY}
    return errors, lambda: state.removed(path)


def _rename(state: State, source: str, target: str):
    errors = _present(state, source)
    if error := state.walk(target):
        errors.add(error)
    if errors or source == target:
        return errors, lambda: state
    if target.startswith(source + "/"):
        return {INTO_ITSELF, NOT_A_DIRECTORY}, None
    moved, there = state.nodes[source], state.nodes.get(target)
    if there is not None and (moved.kind == DIRECTORY) != (there.kind == DIRECTORY):
        return {IS_DIRECTORY if there.kind == DIRECTORY else NOT_A_DIRECTORY}, None
    if there is not None and state.names(target):
        return {EXISTS}, None

    def after() -> State:
        paths = (path for path in state.nodes if path == source or path.startswith(source + "/"))
        return state.moved({path: target + path[len(source) :] for path in paths})

    return set(), after


def _new(state: State, path: str, writer: object):
    return _free(state, path), lambda: state.made(path, Node(UNFINISHED, writer=writer))


def _replace(state: State, path: str, writer: object):
    errors = _free(state, path)
    if errors != {EXISTS}:
        return _new(state, path, writer)
    there = state.nodes[path]
    if there.kind == DIRECTORY:
        return {IS_DIRECTORY}, None
    if there.kind == UNFINISHED:
        return {LOCKED}, None
    upload = Upload(parent(path), path.rpartition("/")[2], path)
    return set(), lambda: State(state.nodes, {**state.uploads, writer: upload})


def _written_by(state: State, writer: object) -> str | None:
    return next((path for path, node in state.nodes.items() if node.writer == writer), None)


def _close(state: State, writer: object, size: int):
    upload = state.uploads.get(writer)
    if upload is None:
        path = _written_by(state, writer)
        if path is None:
            # The file was removed or replaced: what its writer wrote goes with it.
            return set(), lambda: state
        return set(), lambda: state.made(path, Node(COMPLETE, size))
    if upload.directory is None:
        return {MISSING}, None
    path = f"{upload.directory.rstrip('/')}/{upload.name}"
    there = state.nodes.get(path)
    if there is not None and there.kind == DIRECTORY:
        return {IS_DIRECTORY}, None
    if there is not None and path != upload.replaces:
        return {EXISTS}, None
    rest = {other: one for other, one in state.uploads.items() if other != writer}
    return set(), lambda: State({**state.nodes, path: Node(COMPLETE, size)}, rest)


def _abandon(state: State, writer: object):
    path = _written_by(state, writer)
    return set(), lambda: state if path is None else state.made(path, Node(INTERRUPTED))


def _take_back(state: State, writer: object):
    path = _written_by(state, writer)
    return set(), lambda: state if path is None else state.removed(path)


def _stat(state: State, path: str):
    def is_right(result: object) -> bool:
        node = state.nodes.get(path)
        if node is None or node.kind == DIRECTORY:
            return result == A_DIRECTORY
        # What is shown of an interrupted file depends on how far its writer came.
        return result == (A_FILE, node.size) or node.kind == INTERRUPTED and result[0] == A_FILE

    return _present(state, path), is_right


def _read(state: State, path: str):
    errors = _present(state, path)
    if not errors and (path == ROOT or state.nodes[path].kind == DIRECTORY):
        errors = {IS_DIRECTORY}
    return errors, lambda result: result == (A_FILE, state.nodes[path].size)


def _list(state: State, path: str):
    errors = _present(state, path)
    if not errors and path != ROOT and state.nodes[path].kind != DIRECTORY:
        errors = {NOT_A_DIRECTORY}
    return errors, lambda result: result == state.names(path)


MEANING = {
    "mkdir": _mkdir,
    "rmdir": _rmdir,
    "remove": _remove,
    "rename": _rename,
    "new": _new,
    "replace": _replace,
    "close": _close,
    "abandon": _abandon,
    "take back": _take_back,
    "stat": _stat,
    "read": _read,
    "list": _list,
}
