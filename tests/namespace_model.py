"""The namespace as one client alone sees it: what each operation of `tests/history.py` does, and which answers are right."""

from typing import NamedTuple

from history import A_DIRECTORY, A_FILE, CHANGES, Operation

DIRECTORY, COMPLETE, UNFINISHED, INTERRUPTED = "directory", "complete", "unfinished", "interrupted"
MISSING, EXISTS, IS_DIRECTORY, NOT_A_DIRECTORY, LOCKED = "missing", "exists", "directory", "not a directory", "locked"
INTO_ITSELF = "invalid"
ROOT = "/"


class Node(NamedTuple):
    # The same over renames, and not that of another node: the number of the operation that made it.
    id: object
    kind: str
    # Of a complete file.
    size: int | None = None
    # Of an unfinished one.
    writer: object = None


class Upload(NamedTuple):
    """What a writer writes to replace a file: it goes to this name when it is closed."""

    directory: object
    name: str
    replaces: object


class State:
    """Never changes; operations make another one."""

    def __init__(self, nodes: dict[str, Node], uploads: dict[object, Upload]):
        self.nodes, self.uploads = nodes, uploads
        self.key = (frozenset(nodes.items()), frozenset(uploads.items()))

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

    def id_of(self, path: str) -> object:
        return ROOT if path in ("", ROOT) else self.nodes[path].id

    def changed(self, gone: tuple[str, ...] = (), made: dict[str, Node] | None = None) -> "State":
        nodes = {path: node for path, node in self.nodes.items() if path not in gone}
        return State({**nodes, **(made or {})}, self.uploads)

    def told(self) -> str:
        if not self.nodes:
            return "nothing"
        lines = []
        for path, node in sorted(self.nodes.items()):
            of = f", {node.size} bytes" if node.size is not None else f" of {node.writer}" if node.writer else ""
            lines.append(f"{path} ({node.kind}{of})")
        return ", ".join(lines)


def beginning(*directories: str) -> State:
    return State({path: Node(path, DIRECTORY) for path in directories}, {})


def parent(path: str) -> str:
    return path.rpartition("/")[0] or ROOT


def step(state: State, number: int, operation: Operation) -> State | None:
    """The state after the operation, the same object if it changes nothing; `None` if its result cannot come about in this state. Of an
    operation that may never have been done, only an effect matters."""
    errors, after = MEANING[operation.name](state, number, *operation.arguments)
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


def _mkdir(state: State, number: int, path: str):
    errors = _free(state, path)
    return errors, lambda: state.changed(made={path: Node(number, DIRECTORY)})


def _free(state: State, path: str) -> set[str]:
    if error := state.walk(path):
        return {error}
    return {EXISTS} if path in state.nodes else set()


def _present(state: State, path: str) -> set[str]:
    if error := state.walk(path):
        return {error}
    return set() if path in state.nodes or path == ROOT else {MISSING}


def _rmdir(state: State, _: int, path: str):
    errors = _present(state, path)
    if not errors and state.nodes[path].kind != DIRECTORY:
        errors = {NOT_A_DIRECTORY}
    elif not errors and state.names(path):
        errors = {EXISTS}
    return errors, lambda: state.changed((path,))


def _remove(state: State, _: int, path: str):
    errors = _present(state, path)
    if not errors and state.names(path):
        errors = {IS_DIRECTORY}
    return errors, lambda: state.changed((path,))


def _rename(state: State, _: int, source: str, target: str):
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
        below = source + "/"
        gone = tuple(path for path in state.nodes if path == source or path.startswith(below))
        return state.changed(gone, {target + path[len(source) :]: state.nodes[path] for path in gone})

    return set(), after


def _new(state: State, number: int, path: str, writer: object):
    return _free(state, path), lambda: state.changed(made={path: Node(number, UNFINISHED, writer=writer)})


def _replace(state: State, number: int, path: str, writer: object):
    errors = _free(state, path)
    if errors != {EXISTS}:
        return _new(state, number, path, writer)
    there = state.nodes[path]
    if there.kind == DIRECTORY:
        return {IS_DIRECTORY}, None
    if there.kind == UNFINISHED:
        return {LOCKED}, None
    upload = Upload(state.id_of(parent(path)), path.rpartition("/")[2], there.id)
    return set(), lambda: State(state.nodes, {**state.uploads, writer: upload})


def _written_by(state: State, writer: object) -> str | None:
    return next((path for path, node in state.nodes.items() if node.writer == writer), None)


def _close(state: State, number: int, writer: object, size: int):
    upload = state.uploads.get(writer)
    if upload is None:
        path = _written_by(state, writer)
        if path is None:
            # The file was removed or replaced: what its writer wrote goes with it.
            return set(), lambda: state
        return set(), lambda: state.changed(made={path: Node(state.nodes[path].id, COMPLETE, size)})
    rest = {other: one for other, one in state.uploads.items() if other != writer}
    folders = [ROOT, *(path for path, node in state.nodes.items() if node.kind == DIRECTORY)]
    folder = next((path for path in folders if state.id_of(path) == upload.directory), None)
    if folder is None:
        return {MISSING}, None
    path = f"{folder.rstrip('/')}/{upload.name}"
    there = state.nodes.get(path)
    if there is None:
        return set(), lambda: State({**state.nodes, path: Node(number, COMPLETE, size)}, rest)
    if there.kind == DIRECTORY:
        return {IS_DIRECTORY}, None
    if there.id != upload.replaces:
        return {EXISTS}, None
    return set(), lambda: State({**state.nodes, path: Node(there.id, COMPLETE, size)}, rest)


def _abandon(state: State, _: int, writer: object):
    path = _written_by(state, writer)
    return set(), lambda: state if path is None else state.changed(made={path: Node(state.nodes[path].id, INTERRUPTED)})


def _take_back(state: State, _: int, writer: object):
    path = _written_by(state, writer)
    return set(), lambda: state if path is None else state.changed((path,))


def _stat(state: State, _: int, path: str):
    def is_right(result: object) -> bool:
        node = state.nodes.get(path)
        if node is None or node.kind == DIRECTORY:
            return result == A_DIRECTORY
        # What is shown of an interrupted file depends on how far its writer came.
        return result == (A_FILE, node.size) or node.kind == INTERRUPTED and result[0] == A_FILE

    return _present(state, path), is_right


def _read(state: State, _: int, path: str):
    errors = _present(state, path)
    if not errors and (path == ROOT or state.nodes[path].kind == DIRECTORY):
        errors = {IS_DIRECTORY}
    return errors, lambda result: state.nodes[path].kind == COMPLETE and result == (A_FILE, state.nodes[path].size)


def _list(state: State, _: int, path: str):
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
