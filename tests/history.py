"""A history: what several clients asked of one namespace, when, and the answers. `tests/linearizability.py` decides whether an order of
these operations explains all answers.

| operation | arguments | result |
| --- | --- | --- |
| `mkdir`, `rmdir`, `remove` | path | `ok` or an error |
| `rename` | source, target | `ok` or an error |
| `new`, `replace` | path, writer | `ok` or an error: a file is open for writing, as a new one only, or in place of what has the name |
| `close` | writer, size | `ok` or an error: what the writer wrote becomes the file's content |
| `abandon` | writer | always `MAYBE`: the writer's client is gone, and the server ends the writer; the file is interrupted |
| `take back` | writer | always `MAYBE`: the server has opened a new file, finds nowhere to write it, and removes it |
| `stat` | path | `A_DIRECTORY`, `(A_FILE, size)`, `(A_FILE, None)` while it is being written, or an error |
| `read` | path | `(A_FILE, size)`, `(A_FILE, None)` for one that is being written, or an error |
| `list` | path | the names, or an error |

Each content has a size of its own, so a size tells which content it is. An error is a word, and says that nothing was done. `MAYBE` is the
result of an operation of which nobody knows whether it was done: it takes effect between its start and its end, or never. If its answer was
lost, it has no end: it may take effect at any later time."""

import collections
import dataclasses
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

MAYBE = "maybe"
A_DIRECTORY, A_FILE = "a directory", "a file"
CHANGES = ("mkdir", "rmdir", "remove", "rename", "new", "replace", "close", "abandon", "take back")


class Lost(Exception):
    """The answer did not arrive, or does not say whether the change was made."""


class Undone(Lost):
    """The change was not made, or it was made and taken back before the answer."""


class NothingDone(Exception):
    """The request did not leave, or was refused for a reason that has nothing to do with the names. The history has no such operation."""


@dataclass(frozen=True)
class Operation:
    client: int
    name: str
    arguments: tuple
    result: object
    # Nanoseconds of one clock for all clients.
    start: int
    end: int | None

    @property
    def is_maybe(self) -> bool:
        return self.result == MAYBE

    def told(self, origin: int = 0) -> str:
        def seconds(at: int | None) -> str:
            return f"{(at - origin) / 1e9:10.6f}" if at is not None else " " * 10

        arguments = " ".join(map(str, self.arguments))
        return f"{seconds(self.start)} {seconds(self.end)}  client {self.client}  {self.name} {arguments}: {self.result}"


class History:
    """Clients record into it at once, each from a thread of its own."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.left_out: collections.Counter[str] = collections.Counter()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.operations)

    def run(self, client: int, name: str, arguments: tuple, call: Callable[[], object]) -> object:
        """Records the operation with the result of the call, and returns that. An exception of the call goes on to the caller."""
        start = time.monotonic_ns()
        try:
            result = call()
        except (Lost, NothingDone) as error:
            if isinstance(error, Lost) and name in CHANGES:
                end = time.monotonic_ns() if isinstance(error, Undone) else None
                self.add(Operation(client, name, arguments, MAYBE, start, end))
            else:
                with self._lock:
                    self.left_out[f"{name}: {error}"] += 1
            raise
        self.add(Operation(client, name, arguments, result, start, time.monotonic_ns()))
        return result

    def killed(self, killed: int, ready: int) -> None:
        """A manager was killed and started again. What was lost with the first process has taken effect before the second one was ready, or
        never does. Disk servers send a `close` again, and an `abandon` is theirs."""
        with self._lock:
            for at, one in enumerate(self.operations):
                if one.end is None and one.start < killed and one.name not in ("close", "abandon"):
                    self.operations[at] = dataclasses.replace(one, end=ready)

    def add(self, operation: Operation) -> None:
        with self._lock:
            self.operations.append(operation)
