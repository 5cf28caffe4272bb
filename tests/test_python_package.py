"""The Python package `weir`: its wheel in a fresh environment, and its file system against weir, a stock xrootd and a cluster, whatever
happens to servers meanwhile."""

import asyncio
import base64
import calendar
import concurrent.futures
import contextlib
import csv
import errno
import gc
import hashlib
import io
import multiprocessing
import os
import pickle
import random
import re
import shutil
import subprocess
import sys
import threading
import time
import zipfile
import zlib
from pathlib import Path
from types import SimpleNamespace

import fsspec
import fsspec.core
import numpy as np
import pytest
import uproot
from cluster import Cluster
from content import content
from harness import ROOT, Weir, Xrootd, remove, until, weir
from proxy import Proxy
from recorder import acknowledged, start_writer
from test_cluster_failover import connected_to
from wheel import make_wheel

KIB, MIB = 1 << 10, 1 << 20
GRACE = 3


@pytest.fixture(scope="module")
def short(base):
    """A node that ends what a gone writer has left after a few seconds."""
    with Weir(base / "python-node", flags=("--grace-seconds", str(GRACE))) as node:
        yield node


@pytest.fixture(scope="module")
def stock(base):
    with Xrootd(base / "python-xrootd") as server:
        yield server


@pytest.fixture(params=["short", "stock"])
def server(request):
    """Weir, and a stock xrootd."""
    return request.getfixturevalue(request.param)


def host(server) -> str:
    return server.url.removeprefix("root://").rstrip("/")


def file_system(package, server, **options):
    """A file system with connections of its own."""
    return package.WeirFileSystem(hostid=host(server), skip_instance_cache=True, **options)


@pytest.fixture
def fs(package, server):
    return file_system(package, server)


@pytest.fixture
def place(fs, request) -> str:
    path = "/" + re.sub(r"\W+", "_", request.node.name)
    fs.makedirs(path)
    return path


class Counted:
    """The native pool, with the number of its reads and what they asked for."""

    def __init__(self, fs):
        self.native, self.reads, self.kept = fs.pool, [], 0
        fs._native = self

    def read_ranges(self, url, ranges, version=None):
        self.reads.append(len(ranges))
        return self.native.read_ranges(url, ranges, version)

    def read_kept(self, url, ranges):
        found = self.native.read_kept(url, ranges)
        self.kept += found is not None
        return found

    def __getattr__(self, name):
        return getattr(self.native, name)


class Slow(Proxy):
    """A proxy that delays what goes through it by some milliseconds each way."""

    def _awaited(self, direction, data):
        time.sleep(0.003)
        return super()._awaited(direction, data)


# The wheel


@pytest.mark.long  # it makes the wheel twice; the others install one
def test_the_wheel_is_complete_and_the_same_each_time(environment, tmp_path):
    wheel = make_wheel()
    assert re.fullmatch(r"weir-[0-9.]+-cp39-abi3-(many)?linux_[a-z0-9_]+\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        library = archive.extract("weir/_weir.abi3.so", tmp_path)
        made = str(calendar.timegm(archive.infolist()[0].date_time))
        [record] = [name for name in names if name.endswith(".dist-info/RECORD")]
        listed = {row[0]: row[1:] for row in csv.reader(io.StringIO(archive.read(record).decode()))}
        assert set(listed) == set(names)
        for name, (digest, length) in listed.items():
            data = archive.read(name)
            if name != record:
                found = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                assert (digest, length) == (f"sha256={found}", str(len(data))), name
        assert {"weir/_weir.abi3.so", "weir/_weir.pyi", "weir/py.typed", "weir/fs.py"} <= set(names)
    again = [sys.executable, ROOT / "scripts/wheel.py", library, tmp_path / "again"]
    subprocess.run(again, cwd=ROOT, env=os.environ | {"SOURCE_DATE_EPOCH": made}, check=True)
    assert (tmp_path / "again" / wheel.name).read_bytes() == wheel.read_bytes()
    # Installed alone, it serves `weir://` without being imported first, and nothing else.
    program = """
import fsspec
assert fsspec.get_filesystem_class("weir").__module__ == "weir.fs"
assert fsspec.get_filesystem_class("root").__module__.startswith("fsspec_xrootd")
import weir
weir.register()
assert fsspec.get_filesystem_class("root") is weir.WeirFileSystem
"""
    environment.run(program)


def test_the_examples_of_the_page_run(environment, short):
    page = (ROOT / "docs/how-to/python.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 9
    for name in ["pandas", "pyarrow", "dask"]:
        pytest.importorskip(name)
    blocks = [block.replace("data.example.org", host(short)) for block in blocks]
    environment.run(f"for block in {blocks!r}: exec(compile(block, block, 'exec'), {{'__name__': '__main__'}})")


# Each operation


def test_each_operation_does_what_fsspec_says(fs, place, tmp_path):
    data = content("python", 3 * MIB + 5)
    fs.pipe_file(f"{place}/a/b/file", data)
    assert fs.cat_file(f"{place}/a/b/file") == data and fs.size(f"{place}/a/b/file") == len(data)
    assert fs.exists(f"{place}/a") and not fs.exists(f"{place}/no") and not fs.exists(f"{place}/no/file")
    assert fs.isdir(f"{place}/a/b") and fs.isfile(f"{place}/a/b/file") and not fs.isfile(f"{place}/a")
    assert fs.ls(place, detail=False) == [f"{place}/a"] and fs.find(place) == [f"{place}/a/b/file"]
    assert [entry["type"] for entry in fs.ls(f"{place}/a/b")] == ["file"]
    assert fs.ls(f"{place}/a/b/file", detail=False) == [f"{place}/a/b/file"]
    assert fs.glob(f"{place}/*/b/f*") == [f"{place}/a/b/file"]
    assert fs.expand_path(f"{place}/*", recursive=True)[-1] == f"{place}/a/b/file"
    assert abs(fs.modified(f"{place}/a/b/file").timestamp() - time.time()) < 60
    algorithm, value = fs.checksum(f"{place}/a/b/file", "adler32")
    assert (algorithm, int(value, 16)) == ("adler32", zlib.adler32(data))
    fs.mkdir(f"{place}/made/below")
    fs.makedirs(f"{place}/made", exist_ok=True)
    fs.rmdir(f"{place}/made/below")
    (tmp_path / "local").write_bytes(data[:100_000])
    fs.put_file(str(tmp_path / "local"), f"{place}/put")
    fs.get_file(f"{place}/put", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == data[:100_000]
    fs.get(f"{place}/a", str(tmp_path / "tree"), recursive=True)
    assert (tmp_path / "tree/b/file").read_bytes() == data
    fs.put(str(tmp_path / "tree"), f"{place}/copies/", recursive=True)
    assert fs.cat_file(f"{place}/copies/tree/b/file") == data
    fs.cp_file(f"{place}/put", f"{place}/copy")
    fs.mv(f"{place}/copy", f"{place}/moved")
    assert fs.cat([f"{place}/put", f"{place}/moved"]) == {name: data[:100_000] for name in (f"{place}/put", f"{place}/moved")}
    assert not fs.exists(f"{place}/copy")
    fs.truncate(f"{place}/moved", 7)
    assert fs.cat_file(f"{place}/moved") == data[:7]
    fs.pipe_file(f"{place}/moved", b"new")
    assert fs.cat_file(f"{place}/moved") == b"new"
    fs.touch(f"{place}/empty")
    assert fs.cat_file(f"{place}/empty") == b"" and fs.size(f"{place}/empty") == 0
    fs.rm_file(f"{place}/empty")
    fs.rm(place, recursive=True)
    assert not fs.exists(place)


def test_open_files_read_write_and_append(package, fs, server, place):
    data, path = content("open", 9 * MIB + 1), f"{place}/file"
    with fs.open(path, "xb") as file:
        for at in range(0, len(data), MIB):
            file.write(data[at : at + MIB])
        assert file.tell() == len(data)
    with fs.open(path, "rb") as file:
        assert file.read(10) == data[:10] and file.seek(-3, 2) and file.read() == data[-3:]
        assert file.seek(4 * MIB) and file.read(MIB) == data[4 * MIB : 5 * MIB]
        again = pickle.loads(pickle.dumps(file))
        assert again.read(5) == data[5 * MIB : 5 * MIB + 5]
    with fs.open(path, "ab") as file:
        assert file.tell() == len(data)
        file.write(b"more")
    assert fs.cat_file(path) == data + b"more"
    with fs.open(f"{place}/new", "ab") as file:
        file.write(b"appended to nothing")
    assert fs.cat_file(f"{place}/new") == b"appended to nothing"
    with package.open(f"{server.url}{place}/text", "w") as file:
        file.write("ä\nb\n")
    assert list(package.open(f"weir://{host(server)}/{place}/text", "r")) == ["ä\n", "b\n"]

    async def later():
        async with await fs.open_async(path, "rb") as file:
            await file.seek(3)
            return await file.read(4)

    assert asyncio.run(later()) == data[3:7]


def test_a_write_that_fails_is_not_complete(package, short):
    fs = file_system(package, short)
    fs.pipe_file("/kept", b"before")
    for mode, path in [("wb", "/kept"), ("xb", "/never")]:
        with pytest.raises(KeyError), fs.open(path, mode) as file:
            file.write(b"x" * 100)
            raise KeyError
    time.sleep(GRACE + 1)
    assert fs.cat_file("/kept") == b"before"
    with pytest.raises(OSError):
        fs.cat_file("/never")


ERRORS_IN_WITH = {
    "bytes": {"mode": "wb"},
    "text": {"mode": "w", "encoding": "utf-8"},
    "gzip": {"mode": "wb", "compression": "gzip"},
    "text in gzip": {"mode": "wt", "compression": "infer"},
}


@pytest.mark.parametrize("options", ERRORS_IN_WITH.values(), ids=ERRORS_IN_WITH)
def test_an_error_in_a_with_block_keeps_what_was_there(package, short, options, recwarn):
    fs, path = file_system(package, short), f"/in-with-{options['mode']}-{len(options)}.gz"
    some = (lambda size: b"x" * size) if "b" in options["mode"] else (lambda size: "x" * size)
    with fs.open(path, **options) as file:
        file.write(some(10))
    with fs.open(path, **{**options, "mode": options["mode"].replace("w", "r")}) as file:
        assert file.read() == some(10)
    before = fs.cat_file(path)
    with pytest.raises(KeyError), fs.open(path, **options) as file:
        file.write(some(100))
        raise KeyError
    # Nobody has closed this one.
    file = fs.open(path, **options)
    file.write(some(100))
    del file
    gc.collect()
    assert [str(one.message) for one in recwarn if one.category is ResourceWarning and path in str(one.message)]
    time.sleep(GRACE + 1)
    assert fs.cat_file(path) == before


def test_a_writer_that_is_left_open_does_not_keep_python_from_ending(package, environment, short):
    opened = """
import fsspec, sys, weir
def write():
    file = weir.open(sys.argv[1], "wb")
    file.write(b"x" * 100)
    file.flush()
    return file
"""
    programs = {
        "in-function": "def main():\n    file = write()\n    raise SystemExit('left')\nmain()",
        "in-module": "file = write()\nraise SystemExit('left')",
        "in-traceback": "def main():\n    file = write()\n    print(1 / 0)\nmain()",
        "in-text": "import io\nfile = io.TextIOWrapper(write())\nfile.write('y')\nraise SystemExit('left')",
        "of-fsspec": "file = fsspec.open(sys.argv[1], 'w').open()\nfile.write('y')\nraise SystemExit('left')",
    }
    for name, program in programs.items():
        command = [environment.python, "-c", opened + program, f"weir://{host(short)}//left-{name}"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20)
        assert done.returncode == 1 and ("left" in done.stderr or "ZeroDivisionError" in done.stderr), done.stderr
    time.sleep(GRACE + 1)
    for name in programs:
        with pytest.raises(OSError):
            file_system(package, short).cat_file(f"/left-{name}")


def test_a_file_that_was_given_up_takes_nothing_more(package, fs, place):
    fs.pipe_file(f"{place}/read", b"x")
    with fs.open(f"{place}/read", "rb") as file, pytest.raises(ValueError, match="open for reading"):
        file.sync()
    file = fs.open(f"{place}/file", "wb")
    file.write(b"x")
    file.discard()
    for call in (file.flush, file.sync):
        with pytest.raises(ValueError, match="given up"):
            call()
    file.close()
    assert file.closed
    with pytest.raises(ValueError, match="closed"):
        file.write(b"x")


def test_info_and_reads_tell_that_a_file_is_not_complete(package, short):
    fs, other = file_system(package, short), file_system(package, short, idle=29)
    with fs.open("/state", "wb") as file:
        file.write(b"x" * 100)
        file.flush()
        assert other.info("/state")["state"] == other.ls("/state")[0]["state"] == "being written"
        with pytest.raises(OSError, match="being written by") as caught:
            other.cat_file("/state")
        assert caught.value.errno == errno.EBUSY
    assert "state" not in other.info("/state") and other.cat_file("/state") == b"x" * 100
    with pytest.raises(KeyError), fs.open("/state-of-a-failed-write", "wb") as file:
        file.write(b"x" * 100)
        file.sync()
        begin = time.monotonic()
        raise KeyError
    # For a while its writer may come back. A reader waits for that, but not longer than it wants.
    path = "/state-of-a-failed-write"
    assert other.info(path)["state"] == "being written"
    impatient = file_system(package, short, wait=0)

    def refusal() -> OSError:
        with pytest.raises(OSError) as caught:
            impatient.cat_file(path)
        return caught.value

    # The server may not have noticed at once that the writer went away.
    until(lambda: isinstance(why := refusal(), TimeoutError) and "may come back" in str(why), GRACE)
    assert time.monotonic() - begin < GRACE, "it has not waited for the grace period"
    with pytest.raises(OSError, match="interrupted") as caught:
        other.cat_file(path)
    assert caught.value.errno == errno.EIO and time.monotonic() - begin >= GRACE
    assert other.info(path)["state"] == "interrupted" and other.exists(path)
    assert other.cat_file(f"{path}?weir.partial=1") == b"x" * 100
    other.pipe_file(path, b"again")
    assert other.cat_file(path) == b"again" and "state" not in other.info(path)


LOGINS = {"of the number": {}, "of the environment": {"USER": "bob"}, "as told": {"USER": "bob", "TOLD": "alice"}}


@pytest.mark.parametrize("environ", LOGINS.values(), ids=LOGINS)
def test_it_logs_in_with_the_name_of_its_user(environment, short, environ):
    program = """
import os, pwd, sys
import fsspec
for name in ("USER", "LOGNAME"):
    os.environ.pop(name, None)
url, environ = sys.argv[1], dict(word.split("=") for word in sys.argv[2:])
os.environ.update(environ)
name = environ.get("TOLD", environ.get("USER", pwd.getpwuid(os.getuid()).pw_name))
options = {"user": "alice"} if "TOLD" in environ else {}
with fsspec.open(url, "xb", **options) as file:
    file.flush()
    try:
        fsspec.open(url, idle=29).open()
    except OSError as error:
        assert f"being written by {name[:8]}." in str(error), error
    else:
        raise SystemExit("no error")
"""
    url = f"weir://{host(short)}//login-{len(environ)}"
    environment.run(program, url, *(f"{name}={value}" for name, value in environ.items()))


def test_giving_up_does_not_wait_for_the_thread_that_writes(package, short):
    with Proxy(short.port) as proxy:
        fs = file_system(package, proxy)
        writer = fs.pool.write(fs._url("/given-up"), "w", 0o644)
        writer.write(b"x" * 1000)
        proxy.stall()
        failed = []

        def sync() -> None:
            try:
                writer.sync()
                writer.write(b"y")
            except ValueError as error:
                failed.append(error)

        thread = threading.Thread(target=sync, daemon=True)
        thread.start()
        time.sleep(0.3)
        assert thread.is_alive()
        begin = time.monotonic()
        writer.abandon()
        assert time.monotonic() - begin < 1
        proxy.resume()
        thread.join(30)
        assert failed, "the thread has not given the file up"
        with pytest.raises(ValueError):
            writer.close()


def test_a_file_that_was_given_up_can_be_written_again_at_once(package, fs, place):
    """The server may notice the new writer before the end of the old one's connection."""
    for number in range(200):
        with pytest.raises(RuntimeError, match="off"), fs.open(f"{place}/again", "wb") as file:
            file.write(b"abc")
            raise RuntimeError("the detector is off")
        fs.pipe_file(f"{place}/again", b"%d" % number)
        assert fs.cat_file(f"{place}/again") == b"%d" % number


def test_another_writer_is_not_waited_for(package, fs, place):
    with fs.open(f"{place}/taken", "wb") as file:
        file.write(b"abc")
        begin = time.monotonic()
        with pytest.raises(OSError) as refused:
            fs.pipe_file(f"{place}/taken", b"xyz")
        assert refused.value.errno == errno.EBUSY and time.monotonic() - begin < 5


def test_copies_look_for_the_source_before_they_empty_the_target(package, fs, place, tmp_path):
    fs.pipe_file(f"{place}/good", b"good")
    (tmp_path / "good").write_bytes(b"good")
    # `info` knows the file, and the open then fails.
    fs.cat_file(f"{place}/good")
    fs._info = no_info
    with pytest.raises(OSError):
        fs.cp_file(f"{place}/none", f"{place}/good")
    with pytest.raises(OSError):
        fs.get_file(f"{place}/none", str(tmp_path / "good"))
    for same in (f"{place}/good", f"{place}//good", f"{place}/./good"):
        with pytest.raises(shutil.SameFileError):
            fs.cp_file(f"{place}/good", same)
    assert fs.cat_file(f"{place}/good") == b"good" == (tmp_path / "good").read_bytes()


async def no_info(path):
    return {"type": "file"}


def test_names_and_patterns_with_a_question_mark(package, fs, server, place):
    for name in ("a.root", "b.root", "ab.root"):
        fs.pipe_file(f"{place}/{name}", b"x")
    assert fs.glob(f"{place}/?.root") == [f"{place}/a.root", f"{place}/b.root"]
    assert fs.glob(f"weir://{host(server)}/{place}/a?.roo?") == [f"{place}/ab.root"]
    fs.rm(f"{place}/?.root")
    assert fs.ls(place, detail=False) == [f"{place}/ab.root"]
    with pytest.raises(FileNotFoundError):
        fs.rm(f"{place}/?.root")
    with pytest.raises(ValueError, match="cannot be sent"):
        fs.rm_file(f"{place}/?.root")
    # Words behind an address still go to the server.
    address = f"weir://{host(server)}/{place}/ab.root?weir.test=1&b=2"
    assert package.open(address).read() == b"x" and fs.cat_file(address) == b"x"
    assert fs._url(address) == f"root://{host(server)}/{place}/ab.root?weir.test=1&b=2"


def test_rm_takes_no_depth(fs, place):
    fs.pipe_file(f"{place}/a/b/file", b"x")
    with pytest.raises(NotImplementedError):
        fs.rm(f"{place}/a", recursive=True, maxdepth=1)
    assert fs.exists(f"{place}/a/b/file")


def test_nothing_exists_below_a_file(fs, place):
    fs.pipe_file(f"{place}/file", b"x")
    assert not fs.exists(f"{place}/file/below") and not fs.exists(f"{place}/file/far/below")


def test_an_address_leads_back_to_the_file_system(package, fs, server, place):
    fsspec.register_implementation("weir", package.WeirFileSystem, clobber=True)
    again, path = fsspec.core.url_to_fs(fs.unstrip_protocol(f"{place}/file"))
    assert isinstance(again, package.WeirFileSystem) and (again.hostid, path) == (host(server), f"{place}/file")


def test_a_server_that_lists_what_is_no_name_is_not_believed(package, short):
    fs = file_system(package, short)

    class Lying:
        def list(self, url):
            return [(listed[-1], None)]

        def __getattr__(self, attribute):
            return getattr(native, attribute)

    native, fs._native, listed = fs.pool, Lying(), []
    for name in ("..", "../up", "a/b", ""):
        listed.append(name)
        with pytest.raises(OSError, match="no name of an entry"):
            fs.ls("/")


def test_errors_say_what_was_tried(package, fs, server, place):
    fs.pipe_file(f"{place}/file", b"x")
    cases = [
        (FileNotFoundError, "open", lambda: fs.cat_file(f"{place}/none")),
        (FileNotFoundError, "stat", lambda: fs.info(f"{place}/none")),
        (FileNotFoundError, "list", lambda: fs.ls(f"{place}/none")),
        (FileNotFoundError, "rm", lambda: fs.rm_file(f"{place}/none")),
        (FileNotFoundError, "open", lambda: fs.open(f"{place}/none", "rb")),
        (FileExistsError, "open", lambda: fs.open(f"{place}/file", "xb")),
        # A stock xrootd says nothing of a directory that exists already.
        *([(FileExistsError, "mkdir", lambda: fs.mkdir(place))] if server.kind == "weir" else []),
        (OSError, "rmdir", lambda: fs.rmdir(place)),
        (IsADirectoryError, "directory", lambda: fs.rm(place)),
        (IsADirectoryError, "open", lambda: fs.cat_file(place)),
        (ConnectionRefusedError, "connect", lambda: package.open("root://127.0.0.1:1//x")),
        (PermissionError, "does not offer TLS", lambda: package.open(f"roots://{host(server)}//x")),
        (ValueError, "server", lambda: package.WeirFileSystem()),
        (ValueError, "port", lambda: package.open("root://127.0.0.1:x//y")),
        (ValueError, "alone", lambda: package.WeirFileSystem(hostid=server.url)),
        (TypeError, "did you mean `read_ahead`", lambda: package.WeirFileSystem(hostid=host(server), read_ahed=0)),
        (NotImplementedError, "either for reading", lambda: fs.open(f"{place}/file", "r+b")),
        (OSError, "nowhere.invalid", lambda: package.open("root://nowhere.invalid//x")),
    ]
    for kind, word, call in cases:
        with pytest.raises(kind, match=word) as caught:
            call()
        assert word in str(caught.value), caught.value
    with pytest.raises(FileNotFoundError, match=re.escape(host(server))):
        fs.cat_file(f"{place}/none")
    found = fs.cat_ranges([f"{place}/none", f"{place}/file"], [0, 0], [1, 1])
    assert isinstance(found[0], FileNotFoundError) and found[1] == b"x"
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges([f"{place}/none"], [0], [1], on_error="raise")


def test_a_server_that_is_silent_is_given_up(package, short):
    with Proxy(short.port) as proxy:
        fs = file_system(package, proxy, timeout=1, recovery=1)
        fs.pipe_file("/silent", b"x" * 1000)
        assert fs.cat_file("/silent", 0, 5) == b"x" * 5
        fs.invalidate_cache()
        proxy.stall()
        begin = time.monotonic()
        with pytest.raises(TimeoutError, match=re.escape(f"127.0.0.1:{proxy.port}")):
            fs.cat_file("/silent", 0, 5)
        assert time.monotonic() - begin < 15


def test_a_silent_server_is_waited_for_once(package, short):
    with Proxy(short.port) as proxy:
        fs = file_system(package, proxy, timeout=2, recovery=0)
        fs.pipe_file("/silent-once", b"x" * 100_000)
        # Now it is open; its beginning came with that and is kept.
        assert fs.cat_file("/silent-once", 70_000, 100_000) == b"x" * 30_000
        proxy.stall()
        begin = time.monotonic()
        with pytest.raises(TimeoutError):
            fs.cat_file("/silent-once", 70_000, 100_000)
        assert time.monotonic() - begin < 3.5


@pytest.mark.parametrize("read_ahead", [None, 0])
def test_the_beginning_of_a_file_comes_with_its_open(package, short, read_ahead):
    data = content("beginning", 100_000)
    with Proxy(short.port) as proxy:
        fs = file_system(package, proxy, timeout=1, recovery=0, **({} if read_ahead is None else {"read_ahead": read_ahead}))
        fs.pipe_file("/beginning", data)
        assert fs.cat_file("/beginning", 70_000, 100_000) == data[70_000:]
        proxy.stall()
        if read_ahead is None:
            assert fs.cat_file("/beginning", 0, 64 * KIB) == data[: 64 * KIB]
        else:  # nothing is kept
            with pytest.raises(TimeoutError):
                fs.cat_file("/beginning", 0, 64 * KIB)


# Ranges


def some_ranges(rng, size: int, count: int):
    """Ranges of all kinds: within the file, overlapping, empty, reversed, from the end, and beyond it."""
    ends = [None, 0, 1, -1, size, size + 1, size * 10, -size - 5]
    for _ in range(count):
        start = rng.choice([rng.randrange(size), rng.randrange(size), rng.choice(ends)])
        yield start, rng.choice([rng.choice(ends), *([(start or 0) + rng.randrange(40_000)] * 3)])


@pytest.mark.parametrize("options", [{}, {"gap": 0, "connections": 1}, {"gap": MIB, "read_ahead": 0}], ids=["usual", "single", "wide"])
def test_ranges_have_their_bytes(package, server, place, options):
    fs, rng = file_system(package, server, **options), random.Random(7)
    data, path = content("ranges", 5 * MIB + 123), f"{place}/ranges"
    fs.pipe_file(path, data)
    for count in (1, 3, 3000):
        ranges = list(some_ranges(rng, len(data), count))
        found = fs.cat_ranges([path] * count, [start for start, _ in ranges], [end for _, end in ranges])
        for (start, end), part in zip(ranges, found, strict=True):
            assert part == data[start:end], (start, end)
    assert fs.cat_ranges([path, path], 5, [7, 9]) == [data[5:7], data[5:9]]
    large = content("large", 70 * MIB) if server.kind == "weir" and not options else data
    fs.pipe_file(path, large)
    assert fs.cat_file(path) == large


def test_what_was_just_read_can_be_written_at_a_stock_server(package, stock):
    """It lets nobody write a file that is open for reading, and other threads may still have it open."""
    fs, data, path = file_system(package, stock), content("written again", 5 * MIB), "/written-again"
    for _ in range(20):
        fs.pipe_file(path, data)
        # This read takes so long that the next one opens more connections, for those after it.
        assert fs.cat_file(path) == data
        assert fs.cat_ranges([path, path], 5, [7, 9]) == [data[5:7], data[5:9]]


def test_a_range_that_is_none_fails_alone(package, short):
    file_system(package, short).pipe_file("/range", b"0123456789")

    async def together():
        fs = file_system(package, short, asynchronous=True)
        calls = [fs._cat_file("/range", 0, end) for end in (3, 1e6, 1 << 63, -1 << 64, np.int64(4), None)]
        return await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 20)

    good, wrong, large, small, numpy, whole = asyncio.run(together())
    assert (good, numpy, whole) == (b"012", b"0123", b"0123456789")
    assert isinstance(wrong, TypeError) and isinstance(large, ValueError) and isinstance(small, ValueError)

    async def broken():
        fs = file_system(package, short, asynchronous=True)

        class Broken:
            def read_kept(self, url, ranges):
                raise MemoryError

        fs._native = Broken()
        return await asyncio.wait_for(asyncio.gather(*(fs._cat_file("/range") for _ in range(3)), return_exceptions=True), 20)

    assert [type(error) for error in asyncio.run(broken())] == [MemoryError] * 3


def test_a_read_for_which_there_is_no_memory_fails_alone(package, environment, short):
    file_system(package, short).pipe_file("/huge", b"x")
    file_system(package, short).truncate("/huge", 1 << 40)
    program = """
import resource, sys, weir
fs = weir.WeirFileSystem(hostid=sys.argv[1])
assert fs.cat_file("/huge", 0, 2) == b"x\\0"
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
for call in (lambda: fs.cat_file("/huge"), lambda: weir.follow(f"weir://{sys.argv[1]}//huge").read(1 << 40)):
    try:
        call()
    except MemoryError:
        continue
    raise SystemExit("no error")
assert fs.cat_file("/huge", 0, 2) == b"x\\0"
"""
    environment.run(program, host(short))


def test_ranges_that_are_asked_for_together_are_few_reads(package, short):
    data = content("together", MIB)
    file_system(package, short).pipe_file("/together", data)

    async def together():
        fs = file_system(package, short, asynchronous=True)
        counted = Counted(fs)
        parts = await asyncio.gather(*(fs._cat_file("/together", at, at + 100) for at in range(0, 500_000, 500)))
        assert parts == [data[at : at + 100] for at in range(0, 500_000, 500)]
        assert counted.reads == [1000]
        # What comes while each connection has a read gathers.
        later = [asyncio.ensure_future(fs._cat_file("/together", at, None)) for at in range(1000)]
        assert [len(part) for part in await asyncio.gather(*later)] == [len(data) - at for at in range(1000)]
        assert len(counted.reads) <= 3

    asyncio.run(together())


def test_what_is_read_ahead_has_its_bytes(package, server):
    """Columns of groups of rows, whose sizes vary, as uproot asks for them: most are there before they are asked for."""
    rng, data = random.Random(3), content("ahead", 8 * MIB)
    file_system(package, server).pipe_file("/ahead", data)
    with Slow(server.port) as proxy:
        fs = file_system(package, proxy)
        counted, at, groups, hits = Counted(fs), 700, 0, []
        while at < len(data) - 300_000:
            columns = []
            for column in range(30):
                length = 4000 + 50 * column + rng.randrange(80)
                if column % 7 == 3:
                    columns.append((at, at + length))
                at += length
            before = len(counted.reads)
            found = fs.cat_ranges(["/ahead"] * len(columns), [one[0] for one in columns], [one[1] for one in columns])
            assert found == [data[start:end] for start, end in columns]
            hits.append(len(counted.reads) == before)
            groups += 1
        assert groups > 40 and sum(hits) > groups / 3, hits
        # Then another order, all over the file: nothing from elsewhere is taken for it.
        for start, end in some_ranges(rng, len(data), 60):
            assert fs.cat_file("/ahead", start, end) == data[start:end]


def test_many_threads_share_a_file_system(package, server):
    fs, data = file_system(package, server), content("threads", 4 * MIB)
    fs.pipe_file("/threads", data)
    failed = []

    def read(seed: int) -> None:
        rng = random.Random(seed)
        for start, end in some_ranges(rng, len(data), 60):
            if fs.cat_file("/threads", start, end) != data[start:end]:
                failed.append((start, end))
        with fs.open("/threads", "rb", block_size=64 * KIB) as file:
            for _ in range(20):
                at = rng.randrange(len(data))
                file.seek(at)
                if file.read(5000) != data[at : at + 5000]:
                    failed.append(at)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_waiting_for_a_server_lets_other_threads_run(package, short):
    with Proxy(short.port) as proxy:
        fs = file_system(package, proxy)
        fs.pipe_file("/waits", b"x" * 100)
        fs.cat_file("/waits", 0, 1)
        fs.invalidate_cache()
        proxy.stall()
        reader = threading.Thread(target=lambda: fs.pool.read_ranges(fs._url("/waits"), [(0, 5)]))
        reader.start()
        begin, turns = time.monotonic(), 0
        while time.monotonic() - begin < 0.3:
            turns += 1
        assert turns > 1000 and reader.is_alive()
        proxy.resume()
        reader.join(30)


# Processes


def sockets_to(port: int) -> set[str]:
    """The sockets of this process that are connected to a port."""
    lines = [line.split() for table in ("tcp", "tcp6") for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]]
    connected = {f"socket:[{line[9]}]" for line in lines if line[2].endswith(f":{port:04X}")}
    held = set()
    for entry in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            held.add(os.readlink(f"/proc/self/fd/{entry}"))
    return held & connected


def at_rest(port: int) -> set[str]:
    """The sockets of this process, when its other threads open and close no more: a fork copies what they use just then."""
    end = time.monotonic() + 30
    sockets, since = sockets_to(port), time.monotonic()
    while time.monotonic() - since < 0.5:
        time.sleep(0.02)
        if (now := sockets_to(port)) != sockets:
            assert time.monotonic() < end, now
            sockets, since = now, time.monotonic()
    return sockets


def read_there(fs, path: str, expected: bytes, of_parent: set[str], answers) -> None:
    """Runs in another process."""
    port = int(fs.hostid.rpartition(":")[2])
    try:
        for _ in range(30):
            assert fs.cat_file(path) == expected
        assert fs.cat_ranges([path] * 3, [0, 5, 9], [4, 8, 20]) == [expected[0:4], expected[5:8], expected[9:20]]
        with fs.open(path, "rb") as file:
            assert file.read() == expected
        fs.pipe_file(f"{path}.{os.getpid()}", expected)
        assert sockets_to(port) and not sockets_to(port) & of_parent
        answers.put("good")
    except BaseException as error:
        answers.put(repr(error))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_other_processes_use_it(fs, place, method):
    path, data = f"{place}/file", content("processes", 100_000)
    fs.pipe_file(path, data)
    assert fs.cat_file(path) == data  # it has connections and an open file
    context, sockets = multiprocessing.get_context(method), at_rest(int(fs.hostid.rpartition(":")[2]))
    assert sockets
    answers = context.SimpleQueue()
    children = [context.Process(target=read_there, args=(fs, path, data, sockets, answers)) for _ in range(3)]
    for child in children:
        child.start()
    while any(child.is_alive() for child in children):
        # The parent goes on meanwhile, over the connections that the children have inherited.
        assert fs.cat_file(path) == data
    assert [answers.get() for _ in children] == ["good"] * 3
    for child in children:
        child.join(30)
    assert fs.cat_file(path) == data


def test_it_can_be_pickled(package, fs, place):
    fs.pipe_file(f"{place}/file", b"pickled")
    again = pickle.loads(pickle.dumps(fs))
    assert (again.hostid, again.cat_file(f"{place}/file")) == (fs.hostid, b"pickled")
    other = pickle.loads(pickle.dumps(package.WeirFileSystem(hostid=fs.hostid, timeout=7.5, connections=2)))
    assert other._options["silence"] == 7.5 and other._connections == 2


# What changes meanwhile


def test_a_replaced_file_never_gives_mixed_bytes(package, fs, server, place):
    path, old, new = f"{place}/file", b"o" * (9 * MIB), b"n" * (10 * MIB)
    fs.pipe_file(path, old)
    with fs.open(path, "rb") as file:
        assert file.read(100) == b"o" * 100
        file_system(package, server).pipe_file(path, new)
        fs.invalidate_cache(path)
        with pytest.raises(OSError, match="was replaced or changed since it was opened") as caught:
            file.seek(8 * MIB)
            file.read(10)
        assert caught.value.errno == errno.ESTALE
    assert fs.cat_file(path) == new
    # What this file system changes, it sees at once.
    fs.pipe_file(path, old)
    assert fs.cat_file(path, 0, 10) == b"o" * 10 and fs.size(path) == len(old)
    fs.rm_file(path)
    with pytest.raises(FileNotFoundError):
        fs.cat_file(path)

    # Readers of a file that is replaced again and again.
    end, wrong, reads = time.monotonic() + 2, [], [0]
    fs.pipe_file(path, old)

    def read() -> None:
        reader = file_system(package, server, idle=0.05)
        while time.monotonic() < end:
            reader.invalidate_cache(path)
            try:
                data = reader.cat_file(path)
            except OSError:
                continue  # it does not exist, or is being written
            reads[0] += 1
            if data not in (old, new):
                wrong.append((len(data), data[:1], data[-1:]))

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    while time.monotonic() < end:
        for data in (new, old):
            fs.pipe_file(f"{path}.new", data)
            fs.mv(f"{path}.new", path)
            time.sleep(0.05)
    for thread in threads:
        thread.join()
    assert reads[0] > 5 and not wrong, wrong


def test_directories_that_change_places_do_not_mix_their_files(fs, place):
    for name in ("a", "b"):
        fs.pipe_file(f"{place}/{name}/below/file", name.encode() * 100)
        assert fs.cat_file(f"{place}/{name}/below/file", 0, 5) == name.encode() * 5
    fs.mv(f"{place}/a", f"{place}/c")
    fs.mv(f"{place}/b", f"{place}/a")
    fs.mv(f"{place}/c", f"{place}/b")
    assert fs.cat_file(f"{place}/a/below/file", 0, 5) == b"bbbbb"
    assert fs.cat_file(f"{place}/b/below/file", 0, 5) == b"aaaaa"


def test_an_open_file_begins_with_the_present_version(package, short, monkeypatch):
    fs, path = file_system(package, short), "/present"
    fs.pipe_file(path, b"old")
    assert fs.cat_file(path) == b"old"
    file_system(package, short, idle=29).pipe_file(path, b"newer")  # over connections of its own
    with fs.open(path, "rb") as file:
        assert file.read() == b"old"  # opened a moment ago
    monkeypatch.setattr(package.file, "FRESH_SECONDS", 0.1)
    time.sleep(0.2)
    with fs.open(path, "rb") as file:
        assert file.read() == b"newer"


def test_calls_of_one_asynchronous_file_take_turns(package, short):
    data = content("turns", MIB)
    fs = file_system(package, short)
    fs.pipe_file("/turns", data)

    async def read() -> list[bytes]:
        async with await fs.open_async("/turns", "rb", block_size=1000) as file:
            return await asyncio.gather(*(file.read(1000) for _ in range(1048)))

    parts = asyncio.run(read())
    assert sorted(parts) == sorted(data[at : at + 1000] for at in range(0, 1048 * 1000, 1000))


def test_reads_go_on_when_the_server_restarts(package, base):
    data = content("restarted", 20 * MIB)
    with Weir(base / "python-restarted") as node:
        fs = file_system(package, node)
        fs.pipe_file("/file", data)
        stop, failed, reads = threading.Event(), [], [0]

        def read(seed: int) -> None:
            rng = random.Random(seed)
            while not stop.is_set():
                starts = [rng.randrange(len(data) - 9000) for _ in range(20)]
                found = fs.cat_ranges(["/file"] * 20, starts, [start + 9000 for start in starts])
                if found != [data[start : start + 9000] for start in starts]:
                    failed.append([error for error in found if isinstance(error, Exception)] or "wrong bytes")
                reads[0] += 1

        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        node.kill()
        time.sleep(0.3)
        node.start()
        before = reads[0]
        end = time.monotonic() + 20
        while reads[0] < before + 20 and time.monotonic() < end:
            time.sleep(0.05)
        stop.set()
        for thread in threads:
            thread.join(60)
        assert not failed and reads[0] >= before + 20, (failed[:1], reads, before)


def test_a_connection_that_is_lost_in_the_middle_of_an_answer_leaves_no_wrong_bytes(package, short):
    data, rng = content("in the middle", 8 * MIB), random.Random(3)
    file_system(package, short).pipe_file("/in-the-middle", data)
    for part in (100, 70_000, MIB + 7, 3 * MIB, 5 * MIB):
        with Proxy(short.port) as proxy:
            fs = file_system(package, proxy, connections=1, read_ahead=0, gap=0)
            assert fs.cat_file("/in-the-middle", 0, 9) == data[:9]
            before = proxy.connections
            proxy.at("down", proxy.count["down"] + part, proxy.cut)
            starts = sorted(rng.sample(range(0, 8 * MIB - 10_000, 10_100), 600))
            found = fs.cat_ranges(["/in-the-middle"] * 600, starts, [start + 10_000 for start in starts])
            assert found == [data[start : start + 10_000] for start in starts] and proxy.cuts == 1
            assert proxy.connections == before + 1, "the requests are sent again once, over one new connection"


def test_reads_go_on_at_another_replica_when_a_disk_server_dies(package, base, tmp_path):
    data = content("replicas", 12 * MIB)
    with Cluster(base / "python-cluster", 3) as cluster:
        cluster.policy("/two", "replica(2)")
        (tmp_path / "source").write_bytes(data)
        assert weir("cp", str(tmp_path / "source"), f"{cluster.url}/two/file").returncode == 0
        assert len(cluster.holders("/two/file")) == 2
        fs = file_system(package, cluster, connections=1)
        with fs.open("/two/file", "rb", block_size=256 * KIB) as file:
            assert file.read(MIB) == data[:MIB] and fs.cat_file("/two/file", 5, 90) == data[5:90]
            [victim] = {node.port: node for node in connected_to(SimpleNamespace(pid=os.getpid()), cluster)}.values()
            # Others read over several connections, perhaps from both.
            many = file_system(package, cluster)
            starts = list(range(0, 11 * MIB, 300_000))

            def read_all() -> bool:
                found = many.cat_ranges(["/two/file"] * len(starts), starts, [start + 100_000 for start in starts])
                return found == [data[start : start + 100_000] for start in starts]

            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                before = [pool.submit(read_all) for _ in range(20)]
                victim.kill()
                after = [pool.submit(read_all) for _ in range(20)]
                assert all(one.result() for one in before + after)
            begin = time.monotonic()
            assert fs.cat_file("/two/file", 8 * MIB, 9 * MIB) == data[8 * MIB : 9 * MIB]
            assert file.read() == data[MIB:]
            assert time.monotonic() - begin < 15
    remove(cluster.home)


# A file that grows


def test_a_recording_is_followed_to_its_end(package, short):
    fs, data = file_system(package, short), content("followed", 600_000)
    url, got = f"{short.url}/live", []
    writer = fs.open("/live", "wb")
    writer.write(data[:1000])
    writer.sync()
    follower = package.follow(url)
    reader = threading.Thread(target=lambda: got.extend(follower))
    reader.start()
    end = time.monotonic() + 20
    for at in range(1000, len(data), 100_000):
        while sum(map(len, got)) < at and time.monotonic() < end:
            time.sleep(0.02)
        assert b"".join(got) == data[:at], "it has not got what is durable"
        writer.write(data[at : at + 100_000])
        writer.sync()
    time.sleep(0.5)
    assert reader.is_alive(), "it has ended before its writer"
    writer.close()
    reader.join(20)
    assert b"".join(got) == data and follower.tell() == len(data)
    # A complete file is read to its end, also by an event loop and by a buffered reader.
    assert io.BufferedReader(package.follow(url)).read() == data

    async def later() -> bytes:
        return b"".join([part async for part in package.follow(url)])

    assert asyncio.run(later()) == data


def test_a_recording_that_ends_badly_says_so(package, short, stock):
    fs, url = file_system(package, short), f"{short.url}/silent-recording"
    with fs.open("/silent-recording", "wb") as writer:
        writer.write(b"x" * 100)
        writer.sync()
        with package.follow(url, timeout=1.5) as follower:
            assert follower.read(1000) == b"x" * 100
            with pytest.raises(TimeoutError, match="has not grown for 1.5 s; 100 bytes were read"):
                follower.read(1)
    url = f"{short.url}/interrupted-recording"
    process = start_writer(url, "killed", 1000, 3)
    acknowledged(process, 3000)
    follower = package.follow(url, timeout=60)
    assert len(follower.read(5000)) == 3000
    process.kill()
    process.wait()
    with pytest.raises(BrokenPipeError, match="its writer went away; 3000 bytes were read"):
        follower.read(1)
    with pytest.raises(FileNotFoundError, match="no such file"):
        package.follow(f"{short.url}/never-recorded")
    file_system(package, stock).pipe_file("/stock", b"x")
    with pytest.raises(OSError, match="is not a weir server"):
        package.follow(f"{stock.url}/stock")


def test_a_read_of_a_recording_that_is_interrupted_loses_nothing(package, short, monkeypatch):
    data = content("interrupted-read", 5000)
    file_system(package, short).pipe_file("/interrupted-read", data)
    follower = package.follow(f"{short.url}/interrupted-read")
    assert follower.read(1000) == data[:1000]
    wait_for, calls = package.threads.wait_for, []

    def interrupted(call, *args):
        found = wait_for(call, *args)
        calls.append(call)
        if len(calls) in (1, 3):
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(package.threads, "wait_for", interrupted)
    monkeypatch.setattr(sys.modules["weir.follow"], "PART", 1000)
    with pytest.raises(KeyboardInterrupt):
        follower.read(1000)
    with pytest.raises(KeyboardInterrupt):
        follower.read()  # in its second part
    assert follower.tell() == 1000 and follower.read() == data[1000:] and follower.tell() == 5000


# Threads


def test_a_thread_that_cannot_be_made_is_not_counted(package, monkeypatch):
    threads, begin, done = package.threads.Threads(), threading.Thread.start, threading.Semaphore(0)

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    for _ in range(package.threads.THREADS_MAX + 1):
        with pytest.raises(RuntimeError):
            threads.start(done.release)
    monkeypatch.setattr(threading.Thread, "start", begin)
    threads.start(done.release)
    assert done.acquire(timeout=10)
    # With one thread already, calls wait for it.
    held = threading.Event()
    threads.start(held.wait)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    for _ in range(3):
        threads.start(done.release)
    held.set()
    for _ in range(3):
        assert done.acquire(timeout=10)


# uproot


def test_uproot_reads_what_it_wrote(package, fs, server, place, tmp_path):
    rng, expected = np.random.default_rng(5), []
    with uproot.recreate(tmp_path / "events.root") as file:
        tree = file.mktree("Events", {f"b{number}": np.float32 for number in range(20)})
        for _ in range(25):
            rows = {f"b{number}": np.round(rng.normal(size=700), 1 + number % 3).astype(np.float32) for number in range(20)}
            expected.append(rows["b7"])
            tree.extend(rows)
    fs.put_file(str(tmp_path / "events.root"), f"{place}/events.root")
    with Slow(server.port) as proxy:
        fsspec.register_implementation("weir", package.WeirFileSystem, clobber=True)
        with uproot.open(f"weir://{host(proxy)}/{place}/events.root:Events") as events:
            assert isinstance(events.file.source._fs, package.WeirFileSystem)
            steps = [step["b7"] for step in events.iterate(["b2", "b7", "b15"], step_size=700, library="np")]
            whole = events.arrays(["b7"], library="np")["b7"]
    assert np.array_equal(np.concatenate(steps), np.concatenate(expected)) and np.array_equal(whole, np.concatenate(expected))
