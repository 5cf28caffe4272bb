"""Clients of a cluster that write, replace, rename, remove and read files, each with a journal outside of the cluster. A journal has each
operation before it begins, and its acknowledgement when it has arrived, durably. What the cluster has afterwards is compared with it."""

import json
import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from clients import STUBBORN, run, xrdcp
from content import KIB, MIB
from harness import WEIR_BIN, remove, weir
from kills import Version, not_as_it_should_be
from managers import Managers

ROOT = "/acknowledged"
PLACES = ["one", "two"]
SIZES = [0, 100, 5000, 70_000, MIB, 3 * MIB]
BATCH = 30
# Clients retry for a minute; a client that needs longer than this hangs.
PATIENCE_SECONDS = 300

# What a path has: a version of a file, or none.
State = Version | None


class Journal:
    """One client's. Its lines: `begin` with the state of each path afterwards, then `done` or `failed`."""

    def __init__(self, path: Path):
        self.file = open(path, "a")

    def line(self, *fields: object) -> None:
        self.file.write(json.dumps(fields) + "\n")
        self.file.flush()
        os.fsync(self.file.fileno())

    def begin(self, what: str, after: dict[str, State]) -> None:
        self.line("begin", what, {path: state and [state.seed, state.size] for path, state in after.items()})


@dataclass
class Promises:
    """What the journals promise: for each path the states that it may have. Of each pair of `renames`, exactly one exists: it is not known
    whether the rename was made."""

    may_be: dict[str, set[State]] = field(default_factory=dict)
    renames: list[tuple[str, str]] = field(default_factory=list)
    done: Counter = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)

    def settled(self) -> dict[str, State]:
        return {path: next(iter(states)) for path, states in self.may_be.items() if len(states) == 1}

    def add(self, what: str, after: dict[str, State], acknowledged: bool) -> None:
        if acknowledged:
            self.may_be.update((path, {state}) for path, state in after.items())
            self.done[what] += 1
            return
        for path, state in after.items():
            self.may_be[path] = self.may_be.get(path, {None}) | {state}
        if what == "rename":
            self.renames.append(tuple(after))


def promises(journals: Iterable[Path]) -> Promises:
    found = Promises()
    for journal in journals:
        begun = None
        for line in journal.read_text().splitlines():
            kind, *fields = json.loads(line)
            if kind == "begin":
                what, after = fields
                begun = what, {path: state and Version(*state) for path, state in after.items()}
                continue
            found.add(*begun, acknowledged=kind == "done")
            if kind == "failed":
                found.failed.append(f"{begun[0]} {list(begun[1])[:2]}: {fields[0]}")
            begun = None
        if begun:
            found.add(*begun, acknowledged=False)
    return found


class Client(threading.Thread):
    """Works on files of its own with stock clients, at a random manager, and with weir's, which know all managers."""

    def __init__(self, cluster: Managers, seed: str, number: int, folder: Path):
        super().__init__()
        self.number, self.pick = number, random.Random(f"{seed} {number}")
        self.folder = folder / f"client-{number}"
        self.folder.mkdir(parents=True)
        self.journal_path = self.folder / "journal"
        self.journal, self.known = Journal(self.journal_path), Promises()
        self.addresses = [f"{node.host}:{node.port}" for node in cluster.managers]
        self.count = 0
        self.reads, self.wrong = Counter(), []
        self.is_over, self.failure = threading.Event(), None

    @property
    def one(self) -> str:
        """The address of one of the managers."""
        return f"root://{self.pick.choice(self.addresses)}/"

    @property
    def all(self) -> str:
        return f"root://{','.join(self.addresses)}/"

    def run(self) -> None:
        actions = [
            self.write_by_xrdcp,
            self.write_by_weir,
            self.write_batch,
            self.rename,
            self.remove,
            self.read_by_xrdcp,
            self.read_by_weir,
        ]
        try:
            bag = []
            while not self.is_over.is_set():
                bag = bag or self.pick.sample(actions, len(actions))
                self.count += 1
                bag.pop()()
        except Exception as failure:  # the thread that joins this one raises it
            self.failure = failure

    def new_path(self, place: str = "") -> str:
        return f"{ROOT}/{place or self.pick.choice(PLACES)}/{self.number}-{self.count}"

    def file(self) -> str | None:
        """A file of which is known what it has."""
        known = [path for path, state in self.known.settled().items() if state]
        return self.pick.choice(known) if len(known) > 3 else None

    def change(self, what: str, after: dict[str, State], command: list[str | Path]) -> None:
        self.journal.begin(what, after)
        done = run([str(word) for word in command], PATIENCE_SECONDS, STUBBORN)
        self.journal.line(*(["done"] if done.code == 0 else ["failed", done.err[-300:]]))
        self.known.add(what, after, done.code == 0)

    def version(self, size: int | None = None, part: int = 0) -> Version:
        return Version(f"{self.number} {self.count} {part}", self.pick.choice(SIZES) if size is None else size)

    def written_over(self) -> tuple[str, str]:
        """A path to write, new or not, and what that is called."""
        path = self.file() if self.pick.random() < 0.3 else None
        return ("replace", path) if path else ("new", self.new_path())

    def write_by_xrdcp(self) -> None:
        (what, path), version = self.written_over(), self.version()
        source = self.folder / "source"
        source.write_bytes(version.bytes())
        self.change(f"{what} by xrdcp", {path: version}, ["xrdcp", "--nopbar", "--force", source, self.one + path])

    def write_by_weir(self) -> None:
        (what, path), version = self.written_over(), self.version()
        source = self.folder / "source"
        source.write_bytes(version.bytes())
        self.change(f"{what} by weir cp", {path: version}, [WEIR_BIN, "cp", "--quiet", "--force", source, self.all + path])

    def write_batch(self) -> None:
        """Small files go to the manager by the hundred, in one request."""
        path, tree = self.new_path(), self.folder / "tree"
        remove(tree)
        tree.mkdir()
        after = {f"{path}/{part}": self.version(self.pick.choice(SIZES[:3]), part) for part in range(BATCH)}
        for name, version in after.items():
            (tree / name.rpartition("/")[2]).write_bytes(version.bytes())
        self.change("batch", after, [WEIR_BIN, "cp", "--quiet", "--recursive", tree, self.all + path])

    def rename(self) -> None:
        if path := self.file():
            # A file keeps its number of replicas, so it stays where as many are wanted.
            new = self.new_path(path.removeprefix(f"{ROOT}/").partition("/")[0])
            self.change("rename", {path: None, new: self.known.settled()[path]}, ["xrdfs", self.one, "mv", path, new])

    def remove(self) -> None:
        if path := self.file():
            self.change("remove", {path: None}, ["xrdfs", self.one, "rm", path])

    def read_by_xrdcp(self) -> None:
        if path := self.file():
            back = self.folder / "back"
            done = xrdcp("--force", self.one + path, back, timeout=PATIENCE_SECONDS, patience=STUBBORN)
            self.judge("xrdcp", path, back.read_bytes() if done.code == 0 else None)

    def read_by_weir(self) -> None:
        if path := self.file():
            back = self.folder / "back"
            done = weir("cp", "--quiet", "--force", self.all + path, str(back), timeout=PATIENCE_SECONDS)
            self.judge("weir cp", path, back.read_bytes() if done.returncode == 0 else None)

    def judge(self, by: str, path: str, found: bytes | None) -> None:
        """A read may fail. One that does not has what was acknowledged last."""
        self.reads[by if found is not None else f"failed by {by}"] += 1
        if found is not None and found != self.known.settled()[path].bytes():
            self.wrong.append(f"{path}: {by} has read {len(found)} bytes other than {self.known.settled()[path]}")


class Clients:
    """They work while this is entered."""

    def __init__(self, cluster: Managers, seed: str, count: int, folder: Path):
        self.all = [Client(cluster, seed, number, folder) for number in range(count)]

    def __enter__(self) -> "Clients":
        for client in self.all:
            client.start()
        return self

    def __exit__(self, *_) -> None:
        for client in self.all:
            client.is_over.set()
        for client in self.all:
            client.join()
        for client in self.all:
            if client.failure:
                raise AssertionError("a client did not come to its end") from client.failure

    @property
    def journals(self) -> list[Path]:
        return [client.journal_path for client in self.all]

    @property
    def reads(self) -> Counter:
        return sum((Counter(client.reads) for client in self.all), Counter())

    @property
    def wrong(self) -> list[str]:
        return [line for client in self.all for line in client.wrong]


def compare(cluster: Managers, promised: Promises, folder: Path, look_closer: Callable[[str], bool]) -> dict[str, list[str]]:
    """What is wrong with each path. All files are fetched; of those that `look_closer` wants, each replica as well."""
    here = folder / "fetched"
    remove(here)
    fetched = weir("cp", "--quiet", "--recursive", cluster.url + ROOT, str(here), timeout=600)
    there = {f"{ROOT}/{file.relative_to(here)}": file for file in here.rglob("*") if file.is_file()}
    assert there, fetched
    found = {path: ["nobody has written it"] for path in there.keys() - promised.may_be.keys()}
    for path, states in promised.may_be.items():
        has = there[path].read_bytes() if path in there else None
        if has in {state.bytes() if state else None for state in states} and not (has is not None and look_closer(path)):
            continue
        # What was not fetched may be interrupted, or there is an error to tell.
        if problems := not_as_it_should_be(cluster, path, states, folder / "back"):
            found[path] = problems
    for old, new in promised.renames:
        if old not in found and new not in found and (old in there) == (new in there):
            found[old] = [f"it and {new} are both {'there' if old in there else 'gone'}, after a rename without an answer"]
    return found


def damage_promises(cluster: Managers, promised: Promises, folder: Path) -> set[str]:
    """Changes a file, removes one, and brings one back behind the journals' back. Returns their paths."""
    settled = promised.settled()
    changed, gone = [path for path, state in sorted(settled.items()) if state and state.size > KIB][:2]
    removed = next(path for path, state in sorted(settled.items()) if not state)
    source = folder / "source"
    for path, version in ((changed, Version("something else", settled[changed].size)), (removed, Version("what was removed", KIB))):
        source.write_bytes(version.bytes())
        xrdcp("--force", source, cluster.url + path).ok()
    run(["xrdfs", cluster.url, "rm", gone]).ok()
    return {changed, gone, removed}
