"""Users who share trees with quotas: they create, replace, truncate, move, give away and remove files, and change modes and ACLs, while
nodes are killed. They remember what was acknowledged. Afterwards every file is compared with that, and the usage is counted again from
outside."""

import json
import random
import re
import signal
import subprocess
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from clients import INTERRUPTED, STUBBORN, Outcome, environment, run
from content import MIB, content
from harness import WEIR_BIN, until

OVER_QUOTA, EXISTS, NOT_FOUND = 3021, 3018, 3011
KEEPER = "keeper"
# Who is in which groups. The first group is that of new files.
GROUPS = {"ana": ("atlas",), "ben": ("atlas", "cms"), "cat": ("cms",)}
TREES = ("/one", "/two")
SIZES = (1, 700, 70_000, MIB // 2, 2 * MIB)
KINDS = ("new", "new", "new", "replace", "truncate", "remove", "move", "chmod", "acl", "give", "give")
DIRECTORY_MODE = "rwxrwxrwx"


@dataclass(frozen=True)
class State:
    """A file, as its user was told that it is."""

    path: str
    seed: str
    # The bytes that were made from the seed, how many of them are left, and the length with the zeros after them.
    made: int
    left: int
    size: int
    owner: str
    group: str
    # The permissions of the owner, the owning group and others.
    mode: tuple[str, str, str] = ("rw-", "r--", "r--")
    named: tuple[tuple[str, str], ...] = ()
    mask: str | None = None

    def bytes(self) -> bytes:
        return content(self.seed, self.made)[: self.left].ljust(self.size, b"\0")

    def replaced(self, seed: str, size: int) -> "State":
        return replace(self, seed=seed, made=size, left=size, size=size)

    def truncated(self, size: int) -> "State":
        return replace(self, left=min(self.left, size), size=size)

    def with_mode(self, mode: tuple[str, str, str]) -> "State":
        if self.mask is None:
            return replace(self, mode=mode)
        return replace(self, mode=(mode[0], self.mode[1], mode[2]), mask=mode[1])

    def with_acl(self, group: str, named: tuple[tuple[str, str], ...]) -> "State":
        both = [group, *(granted for _, granted in named)]
        mask = "".join(right if any(right in granted for granted in both) else "-" for right in "rwx")
        return replace(self, mode=(self.mode[0], group, self.mode[2]), named=named, mask=mask if named else None)

    @property
    def acl(self) -> set[str]:
        """The lines of `weir acl get`."""
        entries = {f"user::{self.mode[0]}", f"group::{self.mode[1]}", f"other::{self.mode[2]}"}
        entries |= {f"{who}:{granted}" for who, granted in self.named}
        return entries | ({f"mask::{self.mask}"} if self.mask else set())

    def lets(self, user: str, right: str) -> bool:
        """The rules of POSIX for somebody who is not the administrator."""
        if user == self.owner:
            return right in self.mode[0]
        within = self.mask or "rwx"
        named = dict(self.named)
        if f"user:{user}" in named:
            return right in named[f"user:{user}"] and right in within
        groups = [named[f"group:{group}"] for group in GROUPS[user] if f"group:{group}" in named]
        groups += [self.mode[1]] if self.group in GROUPS[user] else []
        if groups:
            return right in within and any(right in granted for granted in groups)
        return right in self.mode[2]


@dataclass
class File:
    # What may be true of it: one state if the last change was acknowledged or refused. None: it is not there.
    states: set[State | None]
    names: set[str] = field(default_factory=set)
    # A write of it had no acknowledged end, so it may be unfinished.
    may_be_interrupted: bool = False

    @property
    def settled(self) -> State | None:
        return next(iter(self.states)) if len(self.states) == 1 else None


class Site:
    """The service, and the credentials of its users: what `env` puts before a command."""

    def __init__(self, url: str, data: Path, credentials: dict[str, list[str]], home: Path):
        self.url, self.data, self.credentials, self.home = url.rstrip("/"), data, credentials, home
        # Rises before each kill and after it, so that a user knows whether one happened meanwhile.
        self.kills = 0

    def does(self, who: str, *command: str | Path, patience: dict[str, str] = STUBBORN) -> Outcome:
        command = ["env", *self.credentials[who], *map(str, command)]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(command, env=environment(patience), **pipes) as client:
            try:
                out, err = client.communicate(timeout=120)
            except subprocess.TimeoutExpired:
                talking = subprocess.run(["ss", "-Htnp", "state", "established"], capture_output=True, text=True, check=True).stdout
                client.kill()
                # XrdCl 5.5.3 may lock itself up when a connection is refused: `Stream::ForceConnect` holds the stream and waits for the
                # poller, which waits for the stream in `Stream::OnConnectError`. Then it has no connection, and the server no part in it.
                assert f"pid={client.pid}," not in talking, f"no answer to {command}"
                return Outcome(-signal.SIGKILL, "", "the client has locked itself up")
        return Outcome(client.returncode, out.decode(errors="replace"), err.decode(errors="replace"))

    def fs(self, who: str, *arguments: str) -> Outcome:
        return self.does(who, "xrdfs", self.url, *arguments)

    def weir(self, who: str, *arguments: str) -> Outcome:
        return self.does(who, WEIR_BIN, *arguments)

    def node(self, *arguments: str) -> Outcome:
        """A command on the node itself."""
        return run([str(WEIR_BIN), *arguments, "--data", str(self.data)], patience=STUBBORN)

    def prepare(self, users: int) -> None:
        for user in GROUPS:
            self.node("identity", "add", user).ok()
        for group in {group for groups in GROUPS.values() for group in groups}:
            self.node("identity", "add", "--group", group).ok()
        for tree in TREES:
            self.node("tree", "create", tree, "--mkdir").ok()
            self.fs(KEEPER, "chmod", tree, DIRECTORY_MODE).ok()
            for number in range(users):
                self.fs(KEEPER, "mkdir", f"{tree}/{number}").ok()
                self.fs(KEEPER, "chmod", f"{tree}/{number}", DIRECTORY_MODE).ok()
        self.node("quota", "set", "/one", "--bytes", "24MiB", "--files", "60").ok()
        self.node("quota", "set", "/one", "--user", "ana", "--bytes", "7MiB").ok()
        self.node("quota", "set", "/one", "--user", "ben", "--files", "12").ok()
        self.node("quota", "set", "/two", "--group", "cms", "--bytes", "5MiB").ok()

    def quotas(self, tree: str) -> list[dict]:
        return json.loads(self.node("quota", "list", tree, "--json").ok().out)

    def reserved(self) -> int:
        return sum(one["bytes"]["reserved"] + one["files"]["reserved"] for tree in TREES for one in self.quotas(tree))


class User(threading.Thread):
    """Works on files of its own, each as the user who owns it."""

    def __init__(self, site: Site, seed: str, number: int):
        super().__init__()
        self.site, self.number, self.seed, self.count = site, number, f"{seed} {number}", 0
        self.pick = random.Random(self.seed)
        self.source = site.home / f"source-{number}"
        self.files: list[File] = []
        self.done, self.refused, self.unexpected = Counter(), Counter(), []
        self.is_over, self.failure = threading.Event(), None

    def run(self) -> None:
        try:
            while not self.is_over.is_set():
                self.step()
        except Exception as failure:  # the thread that joins this one raises it
            self.failure = failure

    def step(self) -> None:
        self.count += 1
        there = [file for file in self.files if file.settled and not file.may_be_interrupted]
        kind = self.pick.choice(KINDS) if len(there) > 3 else "new"
        if kind == "new":
            owner = self.pick.choice(list(GROUPS))
            path = f"{self.pick.choice(TREES)}/{self.number}/{self.count}"
            file, before = File({None}), None
            self.files.append(file)
            size = self.pick.choice(SIZES)
            wanted = State(path, f"{self.seed} {self.count}", size, size, size, owner, GROUPS[owner][0])
        else:
            file = self.pick.choice(there)
            before = file.settled
            wanted = self.wanted(kind, before)
        file.names |= {state.path for state in (before, wanted) if state}
        kills = self.site.kills
        outcome = self.ask(kind, before, wanted)
        # The number is odd while a node is down.
        was_calm = kills == self.site.kills and kills % 2 == 0
        is_write = kind in ("new", "replace", "truncate")
        if outcome.code == 0:
            self.done[kind] += 1
            file.states = {wanted}
            if kind == "new":
                self.set_mode(file, wanted)
            return
        if was_calm and outcome.error == OVER_QUOTA:
            # A refusal changes nothing.
            self.refused[kind] += 1
            file.states = {before}
            return
        file.states = {before, wanted}
        file.may_be_interrupted |= is_write
        self.refused[f"{kind}, while nodes were killed"] += 1
        if was_calm:
            self.unexpected.append(f"{kind} {before} -> {wanted}: {outcome}")

    def set_mode(self, file: File, wanted: State) -> None:
        """Before a stock client repeats an open for which it was told to wait, it removes the owner's `w` from the mode of the new file
        (`RewriteRequestWait` in XrdCl, which wants to remove another bit of another request)."""
        if self.ask("chmod", wanted, wanted).code != 0:
            file.states = {wanted, replace(wanted, mode=("r--", "r--", "r--"))}

    def wanted(self, kind: str, before: State) -> State | None:
        match kind:
            case "replace":
                return before.replaced(f"{self.seed} {self.count}", self.pick.choice(SIZES))
            case "truncate":
                return before.truncated(self.pick.choice([0, before.size // 2, before.size + 1000, MIB]))
            case "move":
                tree = next(tree for tree in TREES if not before.path.startswith(tree))
                return replace(before, path=f"{tree}/{self.number}/{self.count}")
            case "chmod":
                return before.with_mode(("rw-", self.pick.choice(["rw-", "r--", "---"]), self.pick.choice(["r--", "---"])))
            case "acl":
                named = [(f"user:{user}", granted) for user, granted in zip(GROUPS, ("r--", "rw-", "---"), strict=True)]
                named += [("group:cms", "r--")]
                return before.with_acl(self.pick.choice(["r--", "---"]), tuple(self.pick.sample(named, self.pick.randint(1, 3))))
            case "give":
                owner = self.pick.choice([user for user in GROUPS if user != before.owner])
                return replace(before, owner=owner, group=GROUPS[owner][0])
        return None

    def ask(self, kind: str, before: State | None, wanted: State | None) -> Outcome:
        site, owner = self.site, (before or wanted).owner
        match kind:
            case "new" | "replace":
                self.source.write_bytes(wanted.bytes())
                return site.does(owner, "xrdcp", "--nopbar", "-f", self.source, f"{site.url}/{wanted.path}")
            case "truncate":
                return site.fs(owner, "truncate", before.path, str(wanted.size))
            case "remove":
                return site.fs(owner, "rm", before.path)
            case "move":
                return site.fs(owner, "mv", before.path, wanted.path)
            case "chmod":
                shown = (wanted.mode[0], wanted.mask or wanted.mode[1], wanted.mode[2])
                return site.fs(owner, "chmod", before.path, "".join(shown))
            case "acl":
                entries = ",".join([f"group::{wanted.mode[1]}", *(f"{who}:{granted}" for who, granted in wanted.named)])
                return site.weir(owner, "acl", "set", "--replace", entries, f"{site.url}/{before.path}")
            case "give":
                return site.weir(KEEPER, "chown", f"{wanted.owner}:{wanted.group}", f"{site.url}/{before.path}")
        raise AssertionError(kind)


class Users:
    """All of them at once while a `with` lasts; then their memories."""

    def __init__(self, site: Site, seed: str, count: int):
        self.all = [User(site, seed, number) for number in range(count)]

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
                raise AssertionError("a user did not come to its end") from user.failure

    @property
    def files(self) -> list[File]:
        return [file for user in self.all for file in user.files]

    @property
    def done(self) -> Counter:
        return sum((user.done for user in self.all), Counter())

    @property
    def refused(self) -> Counter:
        return sum((user.refused for user in self.all), Counter())

    @property
    def unexpected(self) -> list[str]:
        return [text for user in self.all for text in user.unexpected]

    def did_enough(self) -> bool:
        return self.done.total() >= 40 and set(KINDS) <= set(self.done)


@dataclass(frozen=True)
class Seen:
    """What the stock client shows of a file or directory."""

    path: str
    size: int
    owner: str
    group: str
    mode: str
    is_directory: bool


def seen(site: Site, path: str) -> Seen | None:
    """None: it is not there."""
    outcome = site.fs(KEEPER, "stat", path)
    if outcome.code != 0:
        assert outcome.error == NOT_FOUND, outcome
        return None
    found = dict(re.findall(r"^(\w+): +(.*?) *$", outcome.out, re.MULTILINE))
    return Seen(path, int(found["Size"]), found["Owner"], found["Group"], found["Mode"], "IsDir" in found["Flags"])


def problems_of(site: Site, file: File, there: dict[str, Seen], back: Path) -> list[str]:
    """How a file differs from all that it may be."""
    names = [name for name in file.names if name in there]
    if not names:
        return [] if None in file.states else ["it is gone"]
    if len(names) > 1:
        return [f"it is at {names} at once"]
    [name] = names
    states = [state for state in file.states if state and state.path == name]
    got = site.does(KEEPER, "xrdcp", "--nopbar", "-f", f"{site.url}/{name}", back)
    acl = site.weir(KEEPER, "acl", "get", f"{site.url}/{name}").ok().out
    entries = {line.strip() for line in acl.splitlines() if line.strip() and not line.startswith("#")}
    if got.code != 0 and file.may_be_interrupted and INTERRUPTED.search(got.out + got.err):
        return []
    if got.code != 0:
        return [f"it cannot be read: {got}"]
    found = there[name]
    problems = [f"it is there again: {found}"] if not states else []
    for state in states:
        wrong = []
        if back.read_bytes() != state.bytes():
            wrong.append(f"{found.size} other bytes")
        if (found.owner, found.group) != (state.owner, state.group):
            wrong.append(f"belongs to {found.owner}:{found.group}")
        if entries != state.acl:
            wrong.append(f"the ACL is {sorted(entries)}")
        if not wrong:
            return []
        problems.append(f"{wrong}, expected {state}")
    return problems


def usage_by(entries: list[Seen]) -> dict[tuple[str, str], tuple[int, int]]:
    """Bytes and files that a tree with these entries uses, in all and by user and group."""
    counted: dict[tuple[str, str], tuple[int, int]] = {}
    for entry in entries:
        for key in (("tree", ""), ("user", entry.owner), ("group", entry.group)):
            size, files = counted.get(key, (0, 0))
            counted[key] = (size + (0 if entry.is_directory else entry.size), files + 1)
    return counted


def usage_said(site: Site, tree: str) -> dict[tuple[str, str], tuple[int, int]]:
    said = {}
    for one in site.quotas(tree):
        used = (one["bytes"]["used"], one["files"]["used"])
        if used != (0, 0):
            said[one["kind"], "" if one["kind"] == "tree" else one["name"]] = used
    return said


def listed(site: Site, tree: str) -> list[Seen]:
    """Everything in a tree, its root too."""
    lines = site.fs(KEEPER, "ls", "-R", tree).ok().out.splitlines()
    paths = [tree, *(line.strip() for line in lines if line.strip().startswith("/"))]
    with ThreadPoolExecutor(4) as lookers:
        found = list(lookers.map(lambda path: seen(site, path), dict.fromkeys(paths)))
    assert None not in found, "a name that is listed is not there"
    return found


def amiss(site: Site, users: Users) -> list[str]:
    """What is not as acknowledged: files, their owners and permissions, names that nobody made, and the usage of each tree."""
    found, there = [], {}
    for tree in TREES:
        entries = listed(site, tree)
        there |= {entry.path: entry for entry in entries if not entry.is_directory}
        counted, said = usage_by(entries), usage_said(site, tree)
        if counted != said:
            found.append(f"{tree} uses {counted}; the quotas say {said}")
    known = {name for file in users.files for name in file.names}
    found += [f"nobody made {name}" for name in set(there) - known]

    def look(file: File) -> list[str]:
        problems = problems_of(site, file, there, site.home / f"back-{threading.get_ident()}")
        return [f"{sorted(file.names)}: {problem}" for problem in problems]

    with ThreadPoolExecutor(4) as lookers:
        return found + [problem for problems in lookers.map(look, users.files) for problem in problems]


def strangers_to_rules(site: Site, users: Users, most: int) -> list[str]:
    """Reads some files as each user, and compares the answers with what the acknowledged permissions let them do."""
    found = []
    pick = random.Random(0)
    settled = [file.settled for file in users.files if file.settled and not file.may_be_interrupted]
    for state in pick.sample(settled, min(most, len(settled))):
        for user in GROUPS:
            got = site.does(user, "xrdcp", "--nopbar", "-f", f"{site.url}/{state.path}", site.home / "seen")
            if (got.code == 0) != state.lets(user, "r"):
                found.append(f"{user} reads {state}: {got}")
    return found


def settle(site: Site, seconds: float = 120) -> None:
    """Waits until no open write and no kept upload has anything reserved."""
    until(lambda: site.reserved() == 0, seconds, lambda: f"reserved: {site.quotas('/one')} {site.quotas('/two')}")


def kill_for(site: Site, pick: random.Random, seconds: float, kill, is_enough, patience: float = 60) -> int:
    """Calls `kill` at random moments for that long, and until the users did enough."""
    kills, begin = 0, time.monotonic()
    while (elapsed := time.monotonic() - begin) < seconds or kills < 3 or not is_enough():
        assert elapsed < seconds + patience, "the users do not get on"
        time.sleep(pick.uniform(0.3, 2.5))
        site.kills += 1
        kill()
        kills += 1
        site.kills += 1
    return kills
