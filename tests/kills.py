"""Clients write, replace, change and remove files while nodes are killed. Afterwards each replica of each file is compared byte for
byte."""

import json
import random
import re
import struct
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import raw
from clients import STUBBORN, Xrdfs, xrdcp
from cluster import Cluster, Node
from content import MIB, content
from harness import until, weir
from recorder import start_writer

# A little longer than a disk server may serve without hearing from the manager.
LEASE_SECONDS = 5
# Bytes of a replica in one read.
AT_ONCE = 4 * MIB
# A change in place is one write, so it is done in whole or not at all.
CHANGE_MAX = 5000


@dataclass(frozen=True)
class Version:
    """A content as its recipe, so that many can be remembered: the seed of its bytes, and the later changes in place."""

    seed: str
    size: int
    changes: tuple[tuple[int, str, int], ...] = ()

    def changed(self, offset: int, seed: str, length: int) -> "Version":
        return Version(self.seed, self.size, (*self.changes, (offset, seed, length)))

    def bytes(self) -> bytes:
        made = bytearray(content(self.seed, self.size))
        for offset, seed, length in self.changes:
            made[offset : offset + length] = content(seed, length)
        return bytes(made)


class User(threading.Thread):
    """A client that copies files into the cluster by xrdcp and `weir cp`, replaces, changes and removes some. It remembers the versions
    that each file may have, or None for no file."""

    def __init__(self, cluster: Cluster, seed: str, number: int, folder: Path, places: list[str], changes: bool = True):
        super().__init__()
        self.cluster, self.number, self.places = cluster, number, places
        self.source = folder / f"source-{number}"
        self.seed, self.count = f"{seed} {number}", 0
        self.pick = random.Random(self.seed)
        self.kinds = ["new", "new", "new", "replace", "remove", *(["change"] if changes else [])]
        self.may_be: dict[str, set[Version | None]] = {}
        self.done, self.refused = Counter(), []
        self.is_over, self.failure = threading.Event(), None

    def run(self) -> None:
        try:
            self.go_on()
        except Exception as failure:  # the thread that joins this one raises any exception
            self.failure = failure

    def go_on(self) -> None:
        while not self.is_over.is_set():
            settled = [path for path, seen in self.may_be.items() if len(seen) == 1 and None not in seen]
            what = self.pick.choice(self.kinds) if len(settled) > 5 else "new"
            path = self.pick.choice(settled) if what != "new" else self.new_path()
            wanted, how, problem = self.do(what, path)
            if problem is None:
                self.done[how] += 1
                self.may_be[path] = {wanted}
            else:
                self.refused.append(f"{how} {path}: {problem}")
                self.may_be[path] = self.may_be.get(path, {None}) | {wanted}

    def do(self, what: str, path: str) -> tuple[Version | None, str, str | None]:
        """Does an operation; records the possible versions afterwards, and the reason of a failure."""
        url = self.cluster.url + path
        self.count += 1
        seed = f"{self.seed} {self.count}"
        if what == "remove":
            gone = Xrdfs(self.cluster.url)("rm", path)
            return None, "removed", None if gone.code == 0 else gone.err[-200:]
        if what == "change":
            (before,) = self.may_be[path]
            length = self.pick.randint(1, min(CHANGE_MAX, before.size))
            offset = self.pick.randint(0, before.size - length)
            writer = start_writer(url, seed, length, 1, "UPDATE", offset)
            said, _ = writer.communicate("\n", timeout=300)
            return before.changed(offset, seed, length), "changed in place", None if writer.returncode == 0 else said[-200:]
        wanted = Version(seed, self.pick.choice([100, 50_000, 70_000, MIB, 3 * MIB]))
        self.source.write_bytes(wanted.bytes())
        if self.pick.random() < 0.3:
            copy = weir("cp", "--force", str(self.source), url, timeout=300)
            return wanted, f"{what} by weir cp", None if copy.returncode == 0 else copy.stderr[-200:]
        copy = xrdcp("-f", self.source, url, patience=STUBBORN, timeout=300)
        return wanted, f"{what} by xrdcp", None if copy.code == 0 else copy.err[-200:]

    def new_path(self) -> str:
        return f"/{self.pick.choice(self.places)}/loop/{self.number}-{len(self.may_be)}"


class Users:
    """Several users at once while a `with` lasts; then their memories."""

    def __init__(self, cluster: Cluster, seed: str, folder: Path, places: list[str], changes: bool = True):
        self.all = [User(cluster, seed, number, folder, places, changes) for number in range(4)]

    def __enter__(self) -> "Users":
        for user in self.all:
            user.start()
        return self

    def __exit__(self, *_) -> None:
        for user in self.all:
            user.is_over.set()
        for user in self.all:
            user.join()
        for user in self.all:
            if user.failure:
                raise AssertionError(f"a user of {user.places} did not come to its end") from user.failure

    @property
    def may_be(self) -> dict[str, set[Version | None]]:
        return {path: seen for user in self.all for path, seen in user.may_be.items()}

    @property
    def done(self) -> Counter:
        return sum((Counter(user.done) for user in self.all), Counter())

    @property
    def refused(self) -> list[str]:
        return [line for user in self.all for line in user.refused]


def with_more(cluster: Cluster, may_be: dict[str, set[Version | None]], paths: list[str], folder: Path) -> dict[str, set[Version | None]]:
    """Some of the files, and new ones of 3 MiB that a test may damage, with all their replicas made."""
    some = dict(list(may_be.items())[:50])
    for path in paths:
        version = Version(path, 3 * MIB)
        (folder / "spoiled").write_bytes(version.bytes())
        xrdcp("-f", folder / "spoiled", cluster.url + path).ok()
        some[path] = {version}
    settle(cluster, some)
    assert amiss(cluster, some, folder) == {}
    return some


def looked_up(cluster: Cluster, path: str) -> dict | None:
    """The output of `weir file` for it; None: there is no such file."""
    done = weir("file", path, "--json", "--data", cluster.data)
    assert done.returncode == 0 or "no such file" in done.stderr, done.stderr
    return json.loads(done.stdout) if done.returncode == 0 else None


def settle(cluster: Cluster, may_be: dict[str, set[Version | None]], seconds: float = 120) -> None:
    """Waits until none of the files has a writer or a missing replica."""

    def unsettled() -> str | None:
        view = cluster.asked("status")
        if view["writers"]["count"]:
            return f"{view['writers']['count']} are written"
        missing = [entry for entry in cluster.asked("missing") if entry["path"] in may_be]
        return f"{len(missing)} are under-replicated, {missing[:3]}" if missing else None

    until(lambda: unsettled() is None, seconds, lambda: f"{unsettled()}\n{cluster.logs()}")


def copy_of(cluster: Cluster, path: str, words: str, disk: Node) -> bytes:
    """The replica that this disk server serves. The manager sends a client there that has tried all others."""
    tried = ",".join(other.host for other in cluster.disks if other is not disk)
    with raw.Raw.to(cluster.manager, timeout=60) as there:
        answer = there.ask_open(f"{path}?{words}tried={tried}")
        assert answer.status == raw.REDIRECT, f"the manager answers {answer}"
        port, host, permission = answer.redirect
    assert (host, port) == (disk.host, disk.port), f"sent to {host}:{port}"
    found = bytearray()
    with raw.Raw(port, host=host, timeout=60) as there:
        opened = there.ask_open(f"{path}?{words}{permission}")
        assert opened.status == raw.OK, f"its open is answered {opened}"
        while True:
            part = there.request(raw.READ, opened.body[:4] + struct.pack(">qi", len(found), AT_ONCE))
            assert part.status == raw.OK, f"a read at {len(found)} is answered {part}"
            if not part.body:
                return bytes(found)
            found += part.body


@dataclass(frozen=True)
class Part:
    """A content that a file consists of: the file's own, or one of the units of a striped file."""

    known: dict
    # The opaque words that request it.
    words: str = ""
    name: str = ""
    # For a unit: its number, the number of units, and the bytes of a chunk.
    unit: tuple[int, int, int] | None = None

    def of(self, data: bytes) -> bytes:
        """The part's bytes in the file."""
        if self.unit is None:
            return data
        number, width, chunk = self.unit
        return b"".join(data[at : at + chunk] for at in range(number * chunk, len(data), width * chunk))


def parts(view: dict) -> list[Part]:
    whole = view["object"]
    units = whole.get("units")
    if not units:
        return [Part(whole)]
    words = [f"weir.unit={number}&weir.of={whole['id']}&" for number in range(len(units))]
    dealt = [(number, len(units), whole["chunk"]) for number in range(len(units))]
    return [Part(unit, words[number], f"unit {number} at ", dealt[number]) for number, unit in enumerate(units)]


def difference(found: bytes, wanted: bytes) -> str:
    at = next((at for at, pair in enumerate(zip(found, wanted, strict=False)) if pair[0] != pair[1]), min(len(found), len(wanted)))
    return f"{len(found)} bytes, other than they should be from {at} on"


def not_as_it_should_be(cluster: Cluster, path: str, may_be: set[Version | None], back: Path) -> list[str]:
    """What is wrong with a file: as xrdcp gets it, and each of its replicas by the name of its disk server."""
    view = looked_up(cluster, path)
    if view is None:
        return [] if None in may_be else ["it is not there"]
    if view["object"]["state"] == "interrupted":
        # After an unknown outcome, or a failure, an interrupted file may remain.
        return [] if len(may_be) > 1 else [f"it is interrupted: {view}"]
    versions = [version.bytes() for version in may_be if version]
    if not versions:
        return [f"it is there again: {view}"]
    problems = []
    # The bytes of each replica, and the part that it should be.
    shown = []
    wanted_copies = int(re.search(r"replica\((\d+)\)", view["policy"]).group(1))
    for part in parts(view):
        holders = [copy["location"].rpartition("/")[2] for copy in part.known["replicas"] if copy["replica"] == "complete"]
        if len(holders) < wanted_copies:
            problems.append(f"{part.name}{len(holders)} of {wanted_copies}: {part.known}")
        for holder in holders:
            disk = next(disk for disk in cluster.disks if disk.home.name == holder)
            try:
                shown.append((part.name + holder, part, copy_of(cluster, path, part.words, disk)))
            except (AssertionError, raw.Closed) as why:
                problems.append(f"{part.name}{holder}: {str(why)[:300]}")
    # After the replicas: one that it finds damaged is soon repaired.
    got = xrdcp("-f", cluster.url + path, back)
    if got.code == 0:
        shown.append(("xrdcp", Part(view), back.read_bytes()))
    else:
        problems.append(f"xrdcp: {got.err[-300:]} {view}")
    # All of them must be the same one of the versions.
    different = [
        [f"{name}: {difference(found, part.of(version))}" for name, part, found in shown if found != part.of(version)]
        for version in versions
    ]
    return problems + min(different, key=len)


def amiss(cluster: Cluster, may_be: dict[str, set[Version | None]], folder: Path) -> dict[str, list[str]]:
    """The files of which a disk server with a replica serves something unexpected."""
    assert any(None not in seen for seen in may_be.values()), "nothing to compare"

    def look(path: str) -> list[str]:
        return not_as_it_should_be(cluster, path, may_be[path], folder / f"back-{threading.get_ident()}")

    with ThreadPoolExecutor(4) as lookers:
        seen = dict(zip(may_be, lookers.map(look, may_be), strict=True))
    return {path: problems for path, problems in seen.items() if problems}


def kill_at_random(cluster: Cluster, pick: random.Random, seconds: float, frozen: float) -> Counter:
    """Kills random nodes with SIGKILL for that long, and until both the manager and a disk server were hit. Returns how often each was. Now
    and then (`frozen`) a node only stands still, perhaps until its lease has ended."""
    faults = Counter()
    end = time.monotonic() + seconds
    # A node starts slowly on a busy machine.
    while time.monotonic() < end or faults.total() < 3 or not {"manager killed", "disk killed"} <= set(faults):
        time.sleep(pick.uniform(0.2, 2))
        victim = pick.choice(cluster.nodes)
        if pick.random() < frozen:
            faults[f"{victim.role} frozen"] += 1
            victim.freeze()
            time.sleep(pick.uniform(0, 1.5 * LEASE_SECONDS))
            victim.thaw()
        else:
            faults[f"{victim.role} killed"] += 1
            victim.kill()
            time.sleep(pick.uniform(0, 2))
            victim.start()
    return faults
