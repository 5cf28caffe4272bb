"""A namespace in memory that several clients use at once, in a time of its own, right or with a planted bug: its histories test the
checker."""

import heapq
import itertools
import random

from history import A_DIRECTORY, A_FILE, CHANGES, MAYBE, Operation
from namespace_model import DIRECTORY, MEANING, State, beginning

BUGS = ("stale cache", "lost rename", "rename in two steps", "answered before done")
FOLDERS = ("/a", "/b")
PATHS = ("/a/1", "/a/2", "/b/1", "/b/2", "/a/c", "/b/c")
NAMES = ("stat", "stat", "read", "list", "new", "replace", "rename", "rename", "remove", "mkdir", "rmdir")
LONGEST = 1000


def answer(state: State, name: str, path: str) -> object:
    if name == "list":
        return state.names(path)
    node = state.nodes[path]
    return A_DIRECTORY if node.kind == DIRECTORY else (A_FILE, node.size)


class SimulatedNamespace:
    def __init__(self, seed: int, clients: int, bug: str | None = None, lost: float = 0.0):
        """`lost`: the probability that an answer to a change is lost. Half of those changes are made."""
        self.pick, self.bug, self.lost = random.Random(seed), bug, lost
        self.state = self.beginning = beginning(*FOLDERS)
        self.before = [self.state]
        self.history: list[Operation] = []
        self.numbers = itertools.count(1)
        self.bugs = 0
        # What happens next: the time, a number to order what happens at one time, and what.
        self.soon: list = []
        self.idle = {client: None for client in range(clients)}
        for client in self.idle:
            self._at(self.pick.randint(0, LONGEST), self._begin, client)

    def _at(self, time: int, what, *arguments) -> None:
        heapq.heappush(self.soon, (time, next(self.numbers), what, arguments))

    def run(self, operations: int) -> list[Operation]:
        while len(self.history) < operations:
            self.now, _, what, arguments = heapq.heappop(self.soon)
            what(*arguments)
        return self.history

    def _begin(self, client: int) -> None:
        """A client that has a file open closes it next."""
        if self.idle[client] is not None:
            name, arguments = "close", (self.idle[client], next(self.numbers))
        else:
            name = self.pick.choice(NAMES)
            if name == "list":
                arguments = (self.pick.choice(FOLDERS),)
            elif name == "rename":
                arguments = tuple(self.pick.sample(PATHS, 2))
            else:
                arguments = (self.pick.choice(PATHS),)
            if name in ("new", "replace"):
                arguments = (*arguments, f"writer {next(self.numbers)}")
        is_lost = name in CHANGES and self.pick.random() < self.lost
        end = self.now + self.pick.randint(2, LONGEST)
        if is_lost and self.pick.random() < 0.5:
            self._end(client, name, arguments, self.now, None, MAYBE)
        elif is_lost:
            late = self.now + self.pick.randint(1, 20 * LONGEST)
            self._at(late, self._take_effect, name, arguments, lambda _: None)
            self._end(client, name, arguments, self.now, None, MAYBE)
        else:
            begin, moment = self.now, self.pick.randint(self.now + 1, end - 1)
            if self.bug == "answered before done" and name == "remove":
                self.bugs += 1
                moment = end + LONGEST // 2
                self._at(moment, self._take_effect, name, arguments, lambda _: None)
                self._at(end, lambda: self._end(client, name, arguments, begin, end, self._result(name, arguments)))
                return

            def then(result: object) -> None:
                self._end(client, name, arguments, begin, end, result)

            self._at(moment, self._take_effect, name, arguments, then)

    def _end(self, client: int, name: str, arguments: tuple, begin: int, end: int | None, result: object) -> None:
        self.history.append(Operation(client, name, arguments, result, begin, end))
        self.idle[client] = arguments[1] if name in ("new", "replace") and result == "ok" else None
        self._at((end or self.now) + self.pick.randint(1, LONGEST), self._begin, client)

    def _result(self, name: str, arguments: tuple) -> object:
        errors, _ = MEANING[name](self.state, *arguments)
        return self.pick.choice(sorted(errors)) if errors else "ok"

    def _take_effect(self, name: str, arguments: tuple, then) -> None:
        shown = self.state
        if self.bug == "stale cache" and name == "stat" and len(self.before) > 8 and self.pick.random() < 0.1:
            self.bugs += 1
            shown = self.before[-8]
        errors, after = MEANING[name](shown, *arguments)
        if errors:
            then(self.pick.choice(sorted(errors)))
        elif name not in CHANGES:
            then(answer(shown, name, arguments[0]))
        elif self.bug == "lost rename" and name == "rename" and self.pick.random() < 0.3:
            self.bugs += 1
            then("ok")
        elif self.bug == "rename in two steps" and name == "rename":
            self.bugs += 1
            source, target = arguments
            moved = self.state.nodes[source]
            self._become(self.state.removed(source))
            self._at(self.now + LONGEST, self._appear, target, moved, then)
        else:
            self._become(after())
            then("ok")

    def _become(self, state: State) -> None:
        self.state = state
        self.before.append(state)

    def _appear(self, target: str, moved, then) -> None:
        self._become(self.state.made(target, moved))
        then("ok")
