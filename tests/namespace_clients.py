"""Clients that do random operations on few names of a cluster, and record them in a history."""

import itertools
import random
import threading
import time
import traceback

import raw
from cluster import Node
from history import A_FILE, MAYBE, History, Lost, NothingDone, Operation, Undone
from namespace_model import State, beginning
from plain_client import BEING_WRITTEN, REPLACE, WRITE_NEW, Address, PlainClient

# How often each client does what.
OFTEN = {"stat": 5, "read": 4, "list": 2, "new": 4, "replace": 3, "rename": 4, "remove": 3, "mkdir": 2, "rmdir": 2, "rename directory": 1}
PAUSE_SECONDS = 0.2
LARGEST = 1 << 16


class Clients:
    """They run while this is entered. Each has a list of managers of its own: `managers[client]`."""

    def __init__(self, folder: str, managers: list[list[Address]], seed: int):
        self.history = History()
        self.folder, self.managers, self.seed = folder, managers, seed
        shared, moved = [f"{folder}/a", f"{folder}/b"], [f"{folder}/c", f"{folder}/d"]
        self.shared, self.moved = shared, moved
        self.files = [f"{place}/{number}" for place in shared for number in (1, 2)] + [f"{place}/1" for place in moved]
        self.sizes = itertools.count(1)
        self.failures: list[str] = []
        self.kills: list[tuple[int, int]] = []
        self._end = threading.Event()
        self.threads = [threading.Thread(target=self._run, args=(number, list(given))) for number, given in enumerate(managers)]

    @property
    def beginning(self) -> State:
        return beginning(self.folder, *self.shared)

    def __enter__(self) -> "Clients":
        first = PlainClient([self.managers[0][0]], 99)
        for place in (self.folder, *self.shared):
            assert first.mkdir(place) == "ok"
        first.close()
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._end.set()
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive()
        for killed, ready in self.kills:
            self.history.killed(killed, ready)

    def kill(self, manager: Node) -> None:
        """Kills a manager and starts it again."""
        manager.kill()
        killed = time.monotonic_ns()
        manager.start()
        self.kills.append((killed, time.monotonic_ns()))

    def until(self, more: int, seconds: float = 60) -> None:
        """Waits for so many more operations."""
        goal, end = len(self.history) + more, time.monotonic() + seconds
        while len(self.history) < goal:
            assert not self.failures, self.failures[0]
            assert time.monotonic() < end, f"{len(self.history)} of {goal} operations after {seconds} s: {self.history.left_out}"
            time.sleep(0.02)

    def _run(self, number: int, managers: list[Address]) -> None:
        one = Client(self, PlainClient(managers, number), number)
        try:
            while not self._end.is_set():
                one.do_something()
        except Exception:
            self.failures.append(traceback.format_exc())
        finally:
            one.client.close()


class Client:
    def __init__(self, clients: Clients, client: PlainClient, number: int):
        self.all, self.client, self.number = clients, client, number
        self.pick = random.Random(f"{clients.seed}-{number}")
        self.writers = itertools.count(1)

    def do_something(self) -> None:
        what = self.pick.choices(list(OFTEN), OFTEN.values())[0]
        try:
            getattr(self, "_" + what.replace(" ", "_"))()
        except (Lost, NothingDone):
            time.sleep(PAUSE_SECONDS)

    def _record(self, name: str, arguments: tuple, call) -> object:
        return self.all.history.run(self.number, name, arguments, call)

    def _simple(self, name: str, *paths: str) -> None:
        self._record(name, paths, lambda: getattr(self.client, name)(*paths))

    def _any_path(self) -> str:
        return self.pick.choice([*self.all.files, *self.all.moved])

    def _file(self) -> str:
        return self.pick.choice(self.all.files)

    def _stat(self) -> None:
        self._simple("stat", self._any_path())

    def _list(self) -> None:
        self._simple("list", self.pick.choice([*self.all.shared, *self.all.moved]))

    def _rename(self) -> None:
        self._simple("rename", self._file(), self._file())

    def _rename_directory(self) -> None:
        self._simple("rename", *self.pick.sample(self.all.moved, 2))

    def _remove(self) -> None:
        self._simple("remove", self._file())

    def _mkdir(self) -> None:
        self._simple("mkdir", self.pick.choice(self.all.moved))

    def _rmdir(self) -> None:
        self._simple("rmdir", self.pick.choice(self.all.moved))

    def _read(self) -> None:
        path = self._file()

        def call() -> object:
            begun = self.client.begin(path, raw.OPEN_READ)
            if isinstance(begun, str):
                return begun
            file = self.client.open_there(*begun, raw.OPEN_READ)
            if file == BEING_WRITTEN:
                return (A_FILE, None)
            found = self.client.read(file, LARGEST)
            assert found == content(len(found)), f"{path} has neither content: {found[:50]}"
            return (A_FILE, len(found))

        self._record("read", (path,), call)

    def _new(self) -> None:
        self._write("new", WRITE_NEW)

    def _replace(self) -> None:
        self._write("replace", REPLACE)

    def _write(self, name: str, options: int) -> None:
        path, size = self._file(), next(self.all.sizes)
        writer = f"writer {self.number}.{next(self.writers)}"
        history, start, begun = self.all.history, time.monotonic_ns(), None

        def may_be(name: str, end: int | None = None) -> None:
            history.add(Operation(self.number, name, (writer,), MAYBE, start, end))

        def call() -> str:
            nonlocal begun
            found = self.client.begin(path, options)
            if isinstance(found, str):
                return found
            begun = found
            return "ok"

        try:
            if self._record(name, (path, writer), call) != "ok":
                return
            to = self.client.open_there(*begun, options)
            self.client.write(to, content(size))
            # It is refused if the name has become another's, and then the writer has ended.
            self._record("close", (writer, size), lambda: self.client.finish(to))
        except Undone:
            may_be("take back", time.monotonic_ns())
            raise
        except (Lost, NothingDone) as error:
            if begun is not None or isinstance(error, Lost):
                may_be("abandon")
                may_be("take back")
            raise


def content(size: int) -> bytes:
    """The bytes of the content with this size. No two contents have a common beginning."""
    return (f"{size} " * (size // 2 + 1)).encode()[:size]
