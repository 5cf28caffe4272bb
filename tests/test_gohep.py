"""go-hep, the client in Go: its commands, and through the program in gohep/ all functions of its packages."""

import base64
import json
import os
import re
import subprocess
import threading
import time
from pathlib import Path

import pytest
import uproot
from clients import INTERRUPTED, Outcome, Xrdfs, run, xrdcp
from content import KIB, MIB, adler32, content, write
from harness import ROOT, root_files
from ports import free_port
from proxy import Proxy

PROGRAMS = ROOT / "build/gohep"
SECONDS = 60

pytestmark = pytest.mark.skipif(
    not (PROGRAMS / "made-of.txt").exists(), reason="go-hep's programs are not built: see what scripts/gohep.sh says"
)

DELETE, NEW, READ, UPDATE, MKPATH, RETSTAT, POSC = 2, 8, 16, 32, 256, 1024, 4096
DIRECTORY, READABLE, WRITABLE = 2, 16, 32
FILE_NOT_OPEN, NOT_AUTHORIZED, NOT_FOUND, IS_DIRECTORY, EXISTS = 3004, 3010, 3011, 3016, 3018


class Refused(Exception):
    """A Go error; `code` is the server's, or 0 for an error of go-hep itself."""

    def __init__(self, fault: dict):
        super().__init__(f"{fault['code']}: {fault['text']}")
        self.code = fault["code"]


class Go:
    """A session of go-hep's client: `go("stat", path="/a")` is its answer, or raises Refused."""

    def __init__(self, port: int, user: str = "gopher"):
        command = [PROGRAMS / "gohep", f"127.0.0.1:{port}", user]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        # It waits for an answer for ever.
        self.timer = threading.Timer(SECONDS, self.process.kill)
        self.timer.start()

    def __enter__(self) -> "Go":
        self._answer()
        return self

    def __exit__(self, kind, *_) -> None:
        try:
            self.process.stdin.close()
            if kind is None:
                self._answer()
                assert self.process.wait(SECONDS) == 0, self.process.stderr.read()
        finally:
            self.end()

    def end(self) -> None:
        self.timer.cancel()
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            pipe.close()

    def __call__(self, do: str, **fields):
        fields = {
            name: base64.b64encode(value).decode() if isinstance(value, bytes) else str(value) if isinstance(value, Path) else value
            for name, value in fields.items()
        }
        self.process.stdin.write(json.dumps({"do": do, **fields}) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self):
        line = self.process.stdout.readline()
        assert line, f"it ended, or did not within {SECONDS} s\n{self.process.stderr.read()[:4000]}"
        reply = json.loads(line)
        if "error" in reply:
            raise Refused(reply["error"])
        return reply["answer"]

    def refused(self, do: str, *codes: int, **fields) -> None:
        with pytest.raises(Refused) as refused:
            self(do, **fields)
        assert refused.value.code in codes, refused.value

    def open(self, path: str, options: int = READ, mode: int = 0o644) -> int:
        return self("open", path=path, options=options, mode=mode)["file"]

    def put(self, path: str, data: bytes) -> None:
        file = self.open(path, NEW | UPDATE)
        assert self("write", file=file, offset=0, data=data) == len(data)
        self("close", file=file)

    def read(self, file: int, offset: int, length: int, do: str = "read") -> bytes:
        return base64.b64decode(self(do, file=file, offset=offset, length=length))


@pytest.fixture(scope="session", autouse=True)
def programs():
    """They exist, and agree with their sources."""
    subprocess.run([ROOT / "scripts/gohep.sh"], check=True, timeout=600)


@pytest.fixture
def go(node):
    with Go(node.port) as go:
        yield go


def command(name: str, *arguments: str | Path) -> Outcome:
    return run([str(PROGRAMS / name), *map(str, arguments)], timeout=SECONDS)


# Its commands.


@pytest.fixture
def tree(node, place, tmp_path) -> dict[str, bytes]:
    """Files below `place`, by their paths there; also in `tmp_path/tree`. Some exceed the 16 MiB that xrd-cp reads at once."""
    sizes = {"empty": 0, "one": 1, "a/page": 4096, "a/b/large": 20 * MIB + 77, "a/b/even": 32 * MIB, "a/c d/blank in name": 12345}
    files = {path: content(path, size) for path, size in sizes.items()}
    for path, data in files.items():
        local = tmp_path / "tree" / path
        local.parent.mkdir(parents=True, exist_ok=True)
        local.write_bytes(data)
        xrdcp("-p", local, f"{node.url}{place}/{path}").ok()
    return files


@pytest.mark.peer_ok
def test_xrd_ls(node, place, tree):
    url = f"{node.url}{place}"
    first, *rest = command("xrd-ls", url).ok().out.split()
    assert (first, sorted(rest)) == (place, [f"{place}/a", f"{place}/empty", f"{place}/one"])
    assert command("xrd-ls", f"{url}/one").ok().out.split() == [f"{place}/one"]
    assert command("xrd-ls", f"{url}/none").fails("3011").code == 1
    both = command("xrd-ls", f"{url}/a", f"{url}/a/b").ok().out
    assert both.index(f"{place}/a/page") < both.index(f"\n\n{place}/a/b\n") < both.index(f"{place}/a/b/even")


@pytest.mark.peer_ok
def test_xrd_ls_long_and_recursive(node, place, tree):
    out = command("xrd-ls", "-l", "-R", f"{node.url}{place}").ok().out
    seen, directory = {}, None
    for line in out.splitlines():
        if line.endswith(":"):
            directory = line[:-1]
        elif found := re.fullmatch(r"\s*([-d])([-rwx]{9})\s+(\d+) +\w{3} \d\d \d\d:\d\d +(.*)", line):
            kind, mode, size, name = found.groups()
            assert mode == "rw-rw-rw-", line  # go-hep shows our own permissions for everybody
            seen[f"{directory}/{name}"] = None if kind == "d" else int(size)
        else:
            assert re.fullmatch(r"total \d+|", line), line
    directories = {f"{place}/{path}": None for path in ("a", "a/b", "a/c d")}
    assert seen == directories | {f"{place}/{path}": len(data) for path, data in tree.items()}


@pytest.mark.peer_ok
def test_xrd_cp_files(node, place, tree, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    for path, data in tree.items():
        command("xrd-cp", f"{node.url}{place}/{path}", out).ok()
        assert (out / Path(path).name).read_bytes() == data, path
    command("xrd-cp", f"{node.url}{place}/a/page", tmp_path / "other").ok()
    assert (tmp_path / "other").read_bytes() == tree["a/page"]
    shown = subprocess.run([PROGRAMS / "xrd-cp", f"{node.url}{place}/a/page", "-"], capture_output=True, timeout=SECONDS, check=False)
    assert shown.stdout == tree["a/page"]
    assert command("xrd-cp", f"{node.url}{place}/none", out).fails("3011").code == 1
    command("xrd-cp", f"{node.url}{place}/a", out).fails("-r not specified")


@pytest.mark.peer_ok
@pytest.mark.parametrize("there", [True, False], ids=["into", "as"])
def test_xrd_cp_copies_a_tree(node, place, tree, tmp_path, there):
    out = tmp_path / "out"
    if there:
        out.mkdir()
    command("xrd-cp", "-r", f"{node.url}{place}", out).ok()
    top = out / place[1:] if there else out
    assert {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()} == tree


# Its packages.


@pytest.mark.peer_ok
def test_logs_in(node):
    for user in ("gopher", "", "longer-than-eight"):
        with Go(node.port, user) as go:
            go("ping")
            answer = go("protocol")
            assert answer["BinaryProtocolVersion"] >= 0x511 and answer["Flags"] & 1, answer
            assert (answer["HasSecurityInfo"], answer["SecurityLevel"]) == (False, 0), "nothing is to be signed"
    with pytest.raises(Refused, match="connection refused"), Go(free_port()):
        pass


@pytest.mark.peer_ok
def test_stats(node, go, place):
    go.put(f"{place}/file", b"x" * 1234)
    file, directory = go("stat", path=f"{place}/file"), go("stat", path=place)
    assert (file["EntrySize"], file["Flags"]) == (1234, READABLE | WRITABLE)
    assert directory["Flags"] & DIRECTORY and not file["Flags"] & DIRECTORY and file["ID"] != directory["ID"]
    assert abs(file["Mtime"] - os.stat(node.log).st_mtime) < 3600
    assert go("statx", paths=[place, f"{place}/file", "/"]) == [DIRECTORY, 0, DIRECTORY]
    space = go("vfs", path="/")
    assert space["NumberRW"] == 1 and space["FreeRW"] > 0 and 0 <= space["UtilizationRW"] <= 100
    for do in ("stat", "dirlist"):
        go.refused(do, NOT_FOUND, path=f"{place}/none")
    go.refused("statx", NOT_FOUND, paths=[place, f"{place}/none"])


@pytest.mark.peer_ok
def test_lists_with_attributes(go, place):
    assert go("dirlist", path=place) == []
    for number in range(300):
        go.put(f"{place}/file {number}", b"x" * number)
    go("mkdir", path=f"{place}/dir", mode=0o755)
    entries = {entry["EntryName"]: entry for entry in go("dirlist", path=place)}
    assert all(entry["HasStatInfo"] for entry in entries.values())
    assert entries.pop("dir")["Flags"] & DIRECTORY
    assert {name: entry["EntrySize"] for name, entry in entries.items()} == {f"file {number}": number for number in range(300)}


@pytest.mark.peer_ok
def test_names(go, fs, place):
    go("mkdir", path=f"{place}/a", mode=0o755)
    go.refused("mkdir", NOT_FOUND, path=f"{place}/none/b", mode=0o755)
    go("mkdirall", path=f"{place}/a/b/c/d", mode=0o755)
    go("mkdirall", path=f"{place}/a/b/c/d", mode=0o755)
    go.put(f"{place}/a/file", b"data")
    go("rename", path=f"{place}/a/file", to=f"{place}/a/b/other")
    go.refused("rename", NOT_FOUND, path=f"{place}/a/file", to=f"{place}/a/b/other")
    go("rename", path=f"{place}/a/b/c", to=f"{place}/c")
    assert go("stat", path=f"{place}/c/d")["Flags"] & DIRECTORY
    go("truncate", path=f"{place}/a/b/other", size=100_000)
    file = go.open(f"{place}/a/b/other")
    assert go.read(file, 0, 200_000) == b"data" + bytes(99_996)
    go("close", file=file)
    go("truncate", path=f"{place}/a/b/other", size=2)
    assert go("stat", path=f"{place}/a/b/other")["EntrySize"] == 2
    go("chmod", path=f"{place}/a/b/other", mode=0o640)
    assert fs.field(fs("stat", f"{place}/a/b/other").ok().out, "Mode") == "0640"
    go("rm", path=f"{place}/a/b/other")
    go("rmdir", path=f"{place}/a/b")
    go("rmdir", path=f"{place}/a")
    for do, more in {"rm": {}, "truncate": {"size": 1}, "chmod": {"mode": 0o600}}.items():
        go.refused(do, NOT_FOUND, path=f"{place}/a/b/other", **more)
    assert [entry["EntryName"] for entry in go("dirlist", path=place)] == ["c"]


@pytest.mark.peer_ok
def test_removes_a_tree(go, place):
    go("mkdirall", path=f"{place}/a/b/c", mode=0o755)
    for path in ("a/1", "a/b/2", "a/b/c/3"):
        go.put(f"{place}/{path}", b"x")
    go("removeall", path=f"{place}/a")
    assert go("dirlist", path=place) == []
    go.refused("removeall", NOT_FOUND, path=f"{place}/a")


def test_what_is_refused_says_why(go, place):
    """As Go errors with the server's number; some numbers are weir's own (see docs/reference/differences.md)."""
    go("mkdirall", path=f"{place}/a/b", mode=0o755)
    go.put(f"{place}/file", b"x")
    go.refused("mkdir", EXISTS, path=f"{place}/a", mode=0o755)
    go.refused("rmdir", EXISTS, path=f"{place}/a")
    go.refused("rmdir", NOT_FOUND, path=f"{place}/none")
    go.refused("rm", IS_DIRECTORY, path=f"{place}/a")
    go.refused("open", EXISTS, path=f"{place}/file", options=NEW | UPDATE, mode=0o644)
    go.refused("open", IS_DIRECTORY, path=f"{place}/a", options=READ)
    go.refused("mkdir", NOT_AUTHORIZED, path="relative", mode=0o755)
    go.refused("stat", NOT_AUTHORIZED, path=f"{place}/../x")
    file = go.open(f"{place}/file")
    go.refused("write", NOT_AUTHORIZED, file=file, offset=0, data=b"y")
    assert go.read(file, 0, 10) == b"x", "the session goes on, and nothing was written"


@pytest.mark.peer_ok
def test_opens(go, place):
    go.refused("open", NOT_FOUND, path=f"{place}/file", options=UPDATE)
    first = go("open", path=f"{place}/x/y/file", options=NEW | UPDATE | MKPATH | RETSTAT, mode=0o644)
    assert first["info"]["EntrySize"] == 0 and first["compression"]["PageSize"] == 0
    go("write", file=first["file"], offset=0, data=b"0123456789")
    go("close", file=first["file"])
    again = go("open", path=f"{place}/x/y/file", options=READ | RETSTAT)
    assert again["info"]["EntrySize"] == 10
    go("close", file=again["file"])
    update = go.open(f"{place}/x/y/file", UPDATE)
    go("write", file=update, offset=5, data=b"abc")
    assert go.read(update, 0, 100) == b"01234abc89"
    go("close", file=update)
    replaced = go.open(f"{place}/x/y/file", DELETE | UPDATE)
    go("write", file=replaced, offset=0, data=b"new")
    go("close", file=replaced)
    file = go.open(f"{place}/x/y/file")
    assert go.read(file, 0, 100) == b"new"
    go("close", file=file)
    posc = go.open(f"{place}/posc", NEW | UPDATE | POSC)
    go("write", file=posc, offset=0, data=b"posc")
    go("close", file=posc)
    assert go("stat", path=f"{place}/posc")["EntrySize"] == 4


@pytest.mark.peer_ok
def test_works_on_an_open_file(go, place):
    file, data = go.open(f"{place}/file", NEW | UPDATE), content("open", 5 * MIB + 3)
    pieces = [(0, 1), (1, 4095), (4096, MIB), (4096 + MIB, len(data) - 4096 - MIB)]
    for offset, length in pieces:
        assert go("write", file=file, offset=offset, data=data[offset : offset + length]) == length
    go("fsync", file=file)
    assert go("fstat", file=file)["EntrySize"] == len(data)
    for offset, length in [*pieces, (len(data) - 5, 100), (len(data), 10), (len(data) + MIB, 10)]:
        assert go.read(file, offset, length) == data[offset : offset + length]
    go("ftruncate", file=file, size=1000)
    assert go("fstat", file=file)["EntrySize"] == 1000 and go.read(file, 990, 100) == data[990:1000]
    go("ftruncate", file=file, size=3000)
    assert go.read(file, 0, 5000) == data[:1000] + bytes(2000)
    go("closeverify", file=file, size=3000)
    for do, more in {"close": {}, "fsync": {}, "fstat": {}, "read": {"length": 5}, "ftruncate": {"size": 5}}.items():
        go.refused(do, FILE_NOT_OPEN, file=file, **more)
    assert go("stat", path=f"{place}/file")["EntrySize"] == 3000


def test_a_write_to_what_is_not_open_harms_nothing_else(go, place):
    """The stock server ends the connection, and go-hep itself with it."""
    closed, file = go.open(f"{place}/closed", NEW | UPDATE), go.open(f"{place}/file", NEW | UPDATE)
    go("close", file=closed)
    for length in (5, 3 * MIB):
        go.refused("write", FILE_NOT_OPEN, file=closed, offset=0, data=bytes(length))
    go("write", file=file, offset=0, data=b"good")
    go("close", file=file)
    assert go("stat", path=f"{place}/file")["EntrySize"] == 4


def test_a_verified_write_is_never_taken_for_one(own_node):
    """Its request code (3026) now means pgwrite, with another checksum. go-hep reports a refused write as written, but nobody sees a whole
    file. At the stock server the file exists, with some checksum."""
    node = own_node("--grace-seconds", "1")
    go = Go(node.port).__enter__()
    try:
        assert go("verifywrite", file=go.open("/file", NEW | UPDATE), offset=0, data=b"data") is None
    finally:
        go.end()  # it understands neither this answer nor any later one
    until = time.monotonic() + 10
    while "interrupted: its writer went away path=/file kept_len=0" not in node.log_text():
        assert time.monotonic() < until, "something was written"
        time.sleep(0.05)
    assert INTERRUPTED.search(Xrdfs(node.url)("cat", "/file").err)


def test_asks_for_checksums_and_configuration(go, place, node):
    """At the stock server go-hep panics: it does not know waitresp, which precedes a checksum there."""
    data = content("sum", 100_000)
    go.put(f"{place}/file", data)
    assert go("query", code=3, path=f"{place}/file").rstrip("\0").split() == ["adler32", adler32(data)]
    assert go("query", code=7, path="bind_max chksum").splitlines()[0] == "15"
    assert go("locate", path=f"{place}/file").rstrip("\0").endswith(f":{node.port}")
    assert go("prepare", paths=[f"{place}/file"]).rstrip("\0")
    assert go("fvfs", file=go.open(f"{place}/file"))["NumberRW"] == 1


@pytest.mark.peer_ok
def test_reads_and_writes_large_files_over_several_connections(node, place, tmp_path):
    """go-hep binds up to eight further connections, and also sends written data over them."""
    source = write(tmp_path / "source", "large", 64 * MIB + 4321)
    with Proxy(node.port) as proxy, Go(proxy.port) as go:
        more = {"workers": 12, "length": MIB - 7}
        go("store", path=f"{place}/file", local=source, options=NEW | UPDATE, mode=0o644, **more)
        assert proxy.connections > 4, "no further connections for writing"
        go("fetch", path=f"{place}/file", local=tmp_path / "back", **more)
    assert (tmp_path / "back").read_bytes() == source.read_bytes()
    xrdcp(f"{node.url}{place}/file", tmp_path / "again").ok()
    assert (tmp_path / "again").read_bytes() == source.read_bytes()


@pytest.mark.peer_ok
def test_many_goroutines_share_a_session(go, place):
    assert go("many", path=place, workers=100, length=30 * KIB) == []
    assert len(go("dirlist", path=place)) == 100
    for number in (0, 99):
        assert [entry["EntryName"] for entry in go("dirlist", path=f"{place}/{number}")] == ["file"]
    file = go.open(f"{place}/42/file")
    assert go.read(file, 0, MIB) == bytes([42]) * (90 * KIB)
    go("close", file=file)


def test_what_was_written_is_there_after_a_kill(own_node, tmp_path):
    """Writes over further connections are promised like any others."""
    node, source = own_node(), write(tmp_path / "source", "kill", 9 * MIB)
    with Go(node.port) as go:
        go("store", path="/file", local=source, options=NEW | UPDATE, mode=0o644, workers=8, length=300_000)
    node.kill()
    node.start()
    xrdcp(f"{node.url}/file", tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == source.read_bytes()


@pytest.mark.peer_ok
def test_xrdio(node, go, place, tmp_path):
    data = content("xrdio", 3 * MIB + 5)
    go.put(f"{place}/file", data)
    opened = go("xopen", path=f"{node.url}{place}/file")
    file = opened["file"]
    assert opened["name"] == f"{place}/file"
    assert (go("xstat", file=file)["size"], go("xstat", file=file)["dir"]) == (len(data), False)
    got = go("xread", file=file, length=1000)
    assert (base64.b64decode(got["data"]), got["end"]) == (data[:1000], False)
    assert go("xseek", file=file, offset=500, whence=1) == 1500
    assert base64.b64decode(go("xread", file=file, length=10)["data"]) == data[1500:1510]
    assert go("xseek", file=file, offset=10, whence=2) == len(data) - 10
    got = go("xread", file=file, length=1000)
    assert (base64.b64decode(got["data"]), got["end"]) == (data[-10:], True)
    assert go.read(file, MIB, 2 * MIB, do="xreadat") == data[MIB : 3 * MIB]
    go("xseek", file=file, offset=0, whence=0)
    assert go("xcopy", file=file, local=tmp_path / "back") == len(data)
    assert (tmp_path / "back").read_bytes() == data
    go("xclose", file=file)
    go.refused("xopen", NOT_FOUND, path=f"{node.url}{place}/none")


# Reading ROOT files in place, with groot.


@pytest.mark.peer_ok
@pytest.mark.parametrize("source", root_files(), ids=lambda path: path.stem)
def test_groot_reads_the_keys(node, go, place, source):
    url = f"{node.url}{place}/{source.name}"
    xrdcp(source, url).ok()
    with uproot.open(source) as file:
        assert go("root", path=url)["keys"] == file.classnames(cycle=False, recursive=False)


@pytest.mark.peer_ok
@pytest.mark.parametrize(
    ("name", "branches"), [("uproot-HZZ.root", ["NMuon", "MET_px", "EventWeight"]), ("uproot-Zmumu.root", ["Run", "px1", "M"])]
)
def test_groot_reads_a_tree(node, go, place, name, branches):
    source, url = ROOT / "testdata/root" / name, f"{node.url}{place}/{name}"
    xrdcp(source, url).ok()
    answer = go("root", path=url, name="events", paths=branches)
    with uproot.open(source) as file:
        tree = file["events"]
        assert answer["entries"] == tree.num_entries
        expected = {branch: pytest.approx(float(tree[branch].array(library="np").astype("f8").sum())) for branch in branches}
    assert answer["sums"] == expected
