"""The file system for `fsspec`, asynchronous and synchronous."""

from __future__ import annotations

import asyncio
import atexit
import difflib
import errno
import functools
import inspect
import operator
import os
import posixpath
import pwd
import shutil
import threading
import weakref
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from fsspec.asyn import AsyncFileSystem, get_loop, mirror_sync_methods, sync_wrapper
from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.compression import compr
from fsspec.core import get_compression
from fsspec.exceptions import FSTimeoutError

from . import _weir, threads
from .address import PROTOCOLS, cut, join, split, wants_tls
from .file import FRESH_SECONDS, AsyncWeirFile, CompressedFile, TextFile, WeirFile

if TYPE_CHECKING:
    # The first byte and the one behind the last, as in a slice.
    Range = tuple[int | None, int | None]

# Flags of a file, as the protocol has them.
IS_DIRECTORY, OTHER, READABLE, BEING_WRITTEN = 2, 4, 16, 64
# What every file system of `fsspec` takes.
OPTIONS_OF_FSSPEC = {"add_aliases", "add_docs", "batch_size", "listings_expiry_time", "max_paths", "use_listings_cache"}
# Bytes of one step of a copy.
STEP = 32 << 20

# The connections of this process. File systems with the same options share them.
_pools: weakref.WeakValueDictionary[tuple[Any, ...], Any] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def _pool(options: dict[str, Any]) -> Any:
    key = (os.getpid(), *options.values())
    with _lock:
        pool = _pools.get(key)
        if pool is None:
            pool = _pools[key] = _weir.Pool(**options)
    return pool


def _after_fork() -> None:
    """In the child: forgets the parent's connections. Servers hear nothing of it."""
    global _lock, _pools
    _lock = threading.Lock()
    _parents.append(list(_pools.values()))
    for pool in _parents[-1]:
        pool.drop_after_fork()
    _pools = weakref.WeakValueDictionary()


# What threads of the parent were changing at the fork is never touched again.
_parents: list[Any] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@atexit.register
def _stop_all() -> None:
    for pool in list(_pools.values()):
        pool.stop()


def _with_reason(method: Callable[..., Any]) -> Callable[..., Any]:
    """The same method. `fsspec` replaces a `TimeoutError` by one without a text; this raises the original."""

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except FSTimeoutError as error:
            if isinstance(error.__cause__, TimeoutError) and error.__cause__.args:
                raise error.__cause__ from None
            raise

    return call


def _nearest(name: str) -> str:
    known = [known for known in inspect.signature(WeirFileSystem.__init__).parameters if known not in ("self", "options")]
    return "".join(f"; did you mean `{near}`?" for near in difflib.get_close_matches(name, known, 1))


def _login_name() -> str | None:
    """The name of the user who runs this process."""
    try:
        return os.environ.get("USER") or os.environ.get("LOGNAME") or pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # the system has no name for the number
        return None


def _synchronous(method: Callable[..., Any]) -> Callable[..., Any]:
    return _with_reason(sync_wrapper(method))


class WeirFileSystem(AsyncFileSystem):
    """The files of one XRootD server or weir cluster.

    Parameters
    ----------
    hostid:
        The server: `HOST[:PORT]`. `fsspec` takes it from an address.
    timeout:
        How many seconds the server may be silent before a request fails.
    connect_timeout:
        How many seconds making a connection may take.
    recovery:
        For how many seconds a lost connection is restored, at another server if there is one.
    wait:
        For how many seconds in all a server may ask to wait.
    connections:
        How many connections read one file.
    open_files, idle:
        How many files stay open after a read, and for how many seconds without another one.
    gap:
        Two ranges with at most this many bytes between them are read as one.
    read_ahead:
        How many bytes are kept because they will probably be asked for. The open files share them. 0 turns this off.
    user:
        The name to log in with, by default that of the user who runs this. A server that does not authenticate believes
        it. An address with `USER@` says another one.
    tls:
        Whether connections must be encrypted, as with an address that begins with `roots://`. A server may require it anyway.
    """

    protocol = PROTOCOLS
    root_marker = "/"
    async_impl = True
    mirror_sync_methods = False  # `__init__` does it

    def __init__(
        self,
        hostid: str | None = None,
        *,
        timeout: float = 300.0,
        connect_timeout: float = 10.0,
        recovery: float = 60.0,
        wait: float = 600.0,
        connections: int = 4,
        open_files: int = 64,
        idle: float = 30.0,
        gap: int = 16 << 10,
        read_ahead: int = 64 << 20,
        user: str | None = None,
        tls: bool = False,
        asynchronous: bool = False,
        loop: asyncio.AbstractEventLoop | None = None,
        **options: Any,
    ) -> None:
        for name in options.keys() - OPTIONS_OF_FSSPEC:
            raise TypeError(f"WeirFileSystem has no option `{name}`{_nearest(name)}")
        super().__init__(asynchronous=asynchronous, loop=loop, **options)
        # `fsspec` makes synchronous methods from coroutines.
        mirror_sync_methods(self)
        for name, method in list(vars(self).items()):
            if callable(method) and asyncio.iscoroutinefunction(getattr(self, f"_{name}", None)):
                setattr(self, name, _with_reason(method))
        if not hostid:
            raise ValueError("which server? Give hostid='HOST[:PORT]', or open an address such as weir://HOST//PATH")
        if "/" in hostid or "?" in hostid:
            raise ValueError(f"hostid is `{hostid}`; give HOST[:PORT] alone, as in data.example.org:1094")
        self.hostid, self.tls = hostid, tls
        self._options = {
            "connect_timeout": connect_timeout,
            "silence": timeout,
            "recovery": recovery,
            "wait": wait,
            "connections": connections,
            "files": open_files,
            "idle": idle,
            "gap": gap,
            "ahead": read_ahead,
            "user": user or _login_name(),
        }
        self._connections = max(1, connections)
        self._begin()

    def _begin(self) -> None:
        """What belongs to one process."""
        self._pool_pid = os.getpid()
        self._lock = threading.Lock()
        self._native = _pool(self._options)
        self._batches: dict[tuple[int, str], _Batches] = {}

    @property
    def pool(self) -> Any:
        """The connections of this process. After a fork, the child makes its own."""
        if self._pool_pid != os.getpid():
            self._begin()
        return self._native

    @property
    def loop(self) -> Any:
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._loop = None if self.asynchronous else get_loop()
        return self._loop

    # Names

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        return split(os.fspath(path))[1]

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        server, _ = split(path)
        if not server:
            return {}
        return {"hostid": server, "tls": True} if wants_tls(path) else {"hostid": server}

    def unstrip_protocol(self, name: str) -> str:
        """The whole address of a path."""
        return join(self.hostid, self._strip_protocol(name), "roots" if self.tls else self.protocol[0])

    def _url(self, path: str) -> str:
        """The address that the client sends."""
        self._check_tls(path)
        path = self._strip_protocol(path)
        if "?" in cut(path)[0]:
            # Servers take what is behind a `?` for words, so this would mean another file.
            raise ValueError(f"`{path}`: a name with `?` cannot be sent to a server")
        return join(self.hostid, path, "roots" if self.tls else "root")

    def _check_tls(self, path: Any) -> None:
        """Refuse `roots://` where this file system speaks without TLS, rather than send everything in the clear."""
        if not self.tls and any(wants_tls(os.fspath(one)) for one in (path if isinstance(path, list) else [path])):
            raise ValueError(f"`{path}` asks for TLS, and this file system was made without: make it with `tls=True`")

    async def _run(self, call: Callable[..., Any], *args: Any) -> Any:
        return await threads.start(asyncio.get_running_loop(), call, *args)

    def invalidate_cache(self, path: str | None = None) -> None:
        """Close files that are open for reading, so that the next read sees the present ones."""
        self.pool.forget(None if path is None else self._url(path))
        super().invalidate_cache(path)

    # Attributes and listings

    def _attributes(self, path: str, found: Any) -> dict[str, Any]:
        if found is None:
            return {"name": path, "size": None, "type": "other"}
        size, flags, mtime, mode, number, owner, group = found
        kind = "directory" if flags & IS_DIRECTORY else "other" if flags & OTHER else "file"
        size = 0 if kind == "directory" else size
        info = {"name": path, "size": size, "type": kind, "mtime": mtime, "id": number}
        if mode is not None:
            info |= {"mode": mode, "owner": owner, "group": group}
        if kind == "file" and flags & BEING_WRITTEN:
            info["state"] = "being written"
        return info

    def _info_now(self, path: str) -> dict[str, Any]:
        self._check_tls(path)
        path = self._strip_protocol(path)
        url = self._url(path)
        found = self.pool.stat_of_open(url, FRESH_SECONDS)
        if found is None:
            found = self.pool.stat(url)
        info = self._attributes(cut(path)[0], found)
        # Only of a file that this user may not read, it may be that its writer went away.
        if info["type"] == "file" and not found[1] & (READABLE | BEING_WRITTEN) and self.pool.state(url) == "interrupted":
            info["state"] = "interrupted"
        return info

    async def _info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        found = self.pool.stat_of_open(self._url(path), FRESH_SECONDS)
        if found is not None:
            return self._attributes(cut(self._strip_protocol(path))[0], found)
        return await self._run(self._info_now, path)

    async def _exists(self, path: str, **kwargs: Any) -> bool:
        try:
            await self._info(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            # The protocol has no number for a name below a file.
            if error.errno != errno.EIO or not await self._is_below_a_file(path):
                raise
            return False
        return True

    async def _is_below_a_file(self, path: str) -> bool:
        path = cut(self._strip_protocol(path))[0]
        while (path := self._parent(path)) != self.root_marker:
            try:
                return (await self._info(path))["type"] == "file"
            except OSError:  # it is below the file as well
                continue
        return False

    async def _ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        path = self._strip_protocol(path)
        try:
            found = await self._run(self.pool.list, self._url(path))
        except FileNotFoundError:
            raise
        except OSError:
            info = await self._info(path)
            if info["type"] == "directory":
                raise
            return [info] if detail else [info["name"]]
        for name, _ in found:
            if "/" in name or name in ("", ".", ".."):
                # It would lead out of the directory, also of a local one below which `get` writes.
                raise OSError(errno.EBADMSG, f"{self._url(path)}: the server lists `{name}`, which is no name of an entry")
        folder = cut(path)[0].rstrip("/")
        entries = [self._attributes(f"{folder}/{name}", attributes) for name, attributes in found]
        entries.sort(key=lambda entry: entry["name"])
        return entries if detail else [entry["name"] for entry in entries]

    async def _modified(self, path: str) -> datetime:
        return datetime.fromtimestamp((await self._info(path))["mtime"], tz=timezone.utc)  # noqa: UP017 (Python 3.9 has no `UTC`)

    modified = _synchronous(_modified)

    async def _checksum(self, path: str, algorithm: str | None = None) -> tuple[str, str]:
        """The name and the value (in hexadecimal) of a checksum that the server keeps or computes."""
        return await self._run(self.pool.checksum, self._url(path), algorithm)

    checksum = _synchronous(_checksum)

    async def _space(self, path: str = "/") -> dict[str, int]:
        """Total, free and used bytes of the server."""
        total, free, used = await self._run(self.pool.space, self._url(path))
        return {"total": total, "free": free, "used": used}

    space = _synchronous(_space)

    # Reads

    def _ask(self, path: str, ranges: list[Range]) -> asyncio.Future[list[bytes]]:
        """Asks for ranges. Those of one file that are asked for in the same step of the loop become few requests."""
        pool, loop, url = self.pool, asyncio.get_running_loop(), self._url(path)
        key = (id(loop), url)
        with self._lock:
            batches = self._batches.get(key)
            if batches is None or batches.loop is not loop:
                batches = self._batches[key] = _Batches(self, pool, loop, url)
        return batches.ask(ranges)

    def _forget_batches(self, batches: _Batches) -> None:
        with self._lock:
            if self._batches.get((id(batches.loop), batches.url)) is batches:
                del self._batches[(id(batches.loop), batches.url)]

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        return (await self._ask(path, [_range(start, end)]))[0]

    async def _cat_ranges(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        batch_size: int | None = None,
        on_error: str = "return",
        **kwargs: Any,
    ) -> list[Any]:
        if not isinstance(paths, list):
            raise TypeError("paths must be a list")
        starts = list(starts) if isinstance(starts, Iterable) else [starts] * len(paths)
        ends = list(ends) if isinstance(ends, Iterable) else [ends] * len(paths)
        if len(starts) != len(paths) or len(ends) != len(paths):
            raise ValueError(f"{len(paths)} paths, {len(starts)} starts and {len(ends)} ends")
        ranges = [_range(start, end) for start, end in zip(starts, ends)]  # noqa: B905
        places: dict[str, list[int]] = {}
        for place, path in enumerate(paths):
            places.setdefault(path, []).append(place)
        asked = [self._ask(path, [ranges[place] for place in of]) for path, of in places.items()]
        found: list[Any] = [None] * len(paths)
        for of, parts in zip(places.values(), await asyncio.gather(*asked, return_exceptions=True)):  # noqa: B905
            if isinstance(parts, BaseException):
                if on_error != "return":
                    raise parts
                parts = [parts] * len(of)
            for place, part in zip(of, parts):  # noqa: B905
                found[place] = part
        return found

    async def _get_file(self, rpath: str, lpath: str, callback: Any = DEFAULT_CALLBACK, **kwargs: Any) -> None:
        if (await self._info(rpath))["type"] == "directory":
            os.makedirs(lpath, exist_ok=True)
            return

        def get() -> None:
            version = self._version(rpath)  # before the local file is emptied
            os.makedirs(os.path.dirname(os.path.abspath(lpath)), exist_ok=True)
            with open(lpath, "wb") as out:
                self._each_step(rpath, version, out.write, callback)

        await self._run(get)

    def _version(self, path: str) -> Any:
        return self.pool.version(self._url(path), FRESH_SECONDS)

    def _each_step(self, path: str, version: Any, write: Callable[[bytes], Any], callback: Any) -> None:
        """Reads a whole file in steps, all of one version of it."""
        url, size = self._url(path), version[1]
        callback.set_size(size)
        for at in range(0, size, STEP):
            data = self.pool.read_ranges(url, [(at, min(at + STEP, size))], version)[0]
            write(data)
            callback.relative_update(len(data))

    # Changes

    async def _pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        def pipe() -> None:
            writer = self.pool.write(self._url(path), "x" if mode == "create" else "w", 0o644)
            _write_all(writer, lambda write: write(bytes(value)))

        await self._run(pipe)

    async def _put_file(self, lpath: str, rpath: str, mode: str = "overwrite", callback: Any = DEFAULT_CALLBACK, **kwargs: Any) -> None:
        if os.path.isdir(lpath):
            await self._makedirs(rpath, exist_ok=True)
            return

        def put() -> None:
            with open(lpath, "rb") as source:
                callback.set_size(os.fstat(source.fileno()).st_size)
                writer = self.pool.write(self._url(rpath), "x" if mode == "create" else "w", 0o644)

                def copy(write: Callable[[bytes], Any]) -> None:
                    while part := source.read(4 << 20):
                        write(part)
                        callback.relative_update(len(part))

                _write_all(writer, copy)

        await self._run(put)

    async def _cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        """Copies a file through this process."""
        if (await self._info(path1))["type"] == "directory":
            await self._makedirs(path2, exist_ok=True)
            return

        source, target = (posixpath.normpath(cut(self._strip_protocol(path))[0]) for path in (path1, path2))
        if source == target:
            raise shutil.SameFileError(f"{self._url(path1)} and {self._url(path2)} are the same file")

        def copy() -> None:
            version = self._version(path1)  # before the target is emptied
            writer = self.pool.write(self._url(path2), "w", 0o644)
            _write_all(writer, lambda write: self._each_step(path1, version, write, DEFAULT_CALLBACK))

        await self._run(copy)

    async def _mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        try:
            await self._run(self.pool.mkdir, self._url(path), 0o755, False)
        except FileNotFoundError:
            if not create_parents:
                raise
            await self._run(self.pool.mkdir, self._url(path), 0o755, True)

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        try:
            await self._mkdir(path)
        except FileExistsError:
            if not exist_ok or (await self._info(path))["type"] != "directory":
                raise

    async def _rm_file(self, path: str, **kwargs: Any) -> None:
        await self._run(self.pool.rm, self._url(path))

    async def _rmdir(self, path: str) -> None:
        """Removes an empty directory."""
        await self._run(self.pool.rmdir, self._url(path))

    rmdir = _synchronous(_rmdir)

    async def _rm(
        self,
        path: Any,
        recursive: bool = False,
        batch_size: int | None = None,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> None:
        if maxdepth is not None:
            raise NotImplementedError("rm with maxdepth: it would have to leave what is deeper, and the directories above")
        for one in await self._expand_path(path):
            if (await self._info(one))["type"] != "directory":
                await self._rm_file(one)
                continue
            if not recursive:
                raise IsADirectoryError(f"{self._url(one)} is a directory; give recursive=True to remove all below it")
            found = await self._find(one, withdirs=True, detail=True)
            folders = [name for name, info in found.items() if info["type"] == "directory" and name != one]
            await asyncio.gather(*(self._rm_file(name) for name, info in found.items() if info["type"] != "directory"))
            for folder in sorted(folders, key=len, reverse=True):
                await self._rmdir(folder)
            await self._rmdir(one)

    async def _mv(self, path1: str, path2: str, recursive: bool = False, maxdepth: Any = None, **kwargs: Any) -> None:
        """Renames a file or a directory. Replaces a file."""
        await self._run(self.pool.mv, self._url(path1), self._url(path2))

    mv = _synchronous(_mv)

    async def _mv_file(self, path1: str, path2: str) -> None:
        await self._mv(path1, path2)

    async def _chmod(self, path: str, mode: int) -> None:
        """Sets permission bits."""
        await self._run(self.pool.chmod, self._url(path), mode)

    chmod = _synchronous(_chmod)

    async def _truncate(self, path: str, size: int) -> None:
        """Sets the length of a file."""
        await self._run(self.pool.truncate, self._url(path), size)

    truncate = _synchronous(_truncate)

    # Open files

    def open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        cache_options: dict[str, Any] | None = None,
        compression: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Opens a file.

        If its `with` block ends with an error, the file does not become complete, whatever the mode and the compression.
        `encoding`, `errors` and `newline` are for text.
        """
        self._check_tls(path)
        if "b" not in mode:
            text = {name: kwargs.pop(name) for name in ("encoding", "errors", "newline") if name in kwargs}
            mode = mode.replace("t", "") + "b"
            file = self.open(path, mode, block_size, cache_options, compression, **kwargs)
            return _around(file, lambda: TextFile(file, **text))
        if compression is None or "r" in mode:
            return super().open(path, mode, block_size, cache_options, compression, **kwargs)
        name = get_compression(self._strip_protocol(path), compression)
        file = super().open(path, mode, block_size, cache_options, **kwargs)
        if name is None:
            return file
        return _around(file, lambda: CompressedFile(compr[name](file, mode=mode[0]), file))

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> WeirFile:
        return WeirFile(self, path, mode, block_size or "default", autocommit=autocommit, cache_options=cache_options, **kwargs)

    async def open_async(self, path: str, mode: str = "rb", **kwargs: Any) -> AsyncWeirFile:
        """Opens a file whose methods are coroutines."""
        if "b" not in mode or kwargs.pop("compression", None):
            raise ValueError("only binary modes without compression")
        return AsyncWeirFile(await self._run(lambda: self._open(path, mode, **kwargs)))


def _around(file: Any, wrap: Callable[[], Any]) -> Any:
    """Wraps an open file. If that fails, nobody has the file."""
    try:
        return wrap()
    except BaseException:
        if file.writable():
            file.give_up()
        raise


def _range(start: Any, end: Any) -> Range:
    """The range, if its ends are numbers that the native part takes."""
    for position in (start, end):
        if position is not None and not -(1 << 63) <= operator.index(position) < 1 << 63:
            raise ValueError(f"{position} is no position in a file")
    return (None if start is None else operator.index(start), None if end is None else operator.index(end))


def _write_all(writer: Any, copy: Callable[[Callable[[bytes], Any]], Any]) -> None:
    """Writes a file. If that fails, the file does not become complete."""
    try:
        copy(writer.write)
        writer.close()
    except BaseException:
        writer.abandon()
        raise


class _Batches:
    """The ranges of one file that are asked for by one event loop."""

    def __init__(self, fs: WeirFileSystem, pool: Any, loop: asyncio.AbstractEventLoop, url: str) -> None:
        self.fs, self.pool, self.loop, self.url = fs, pool, loop, url
        self._waiting: list[tuple[list[Range], asyncio.Future[list[bytes]]]] = []
        self._under_way = 0
        self._due = False

    def ask(self, ranges: list[Range]) -> asyncio.Future[list[bytes]]:
        future = self.loop.create_future()
        self._waiting.append((ranges, future))
        if not self._due and self._under_way < self.fs._connections:
            self._due = True
            self.loop.call_soon(self._send)
        return future

    def _send(self) -> None:
        """Sends all that wait as one read. While each connection has a read, further ranges gather."""
        self._due = False
        batch = [one for one in self._waiting if not one[1].done()]
        self._waiting = []
        if not batch:
            self._end()
            return
        ranges = [one for ranges, _ in batch for one in ranges]
        try:
            kept = self.pool.read_kept(self.url, ranges)
            read = None if kept is not None else threads.start(self.loop, self.pool.read_ranges, self.url, ranges)
        except BaseException as error:  # otherwise only the loop would hear of it
            for _, future in batch:
                future.set_exception(error)
            self._end()
            return
        if read is None:
            self._give(batch, kept)
            self._end()
            return
        self._under_way += 1
        read.add_done_callback(lambda done: self._answer(batch, done))

    def _give(self, batch: list[Any], parts: list[bytes]) -> None:
        begin = 0
        for ranges, future in batch:
            end = begin + len(ranges)
            if not future.done():
                future.set_result(parts[begin:end])
            begin = end

    def _answer(self, batch: list[Any], done: asyncio.Future[list[bytes]]) -> None:
        self._under_way -= 1
        error = None if done.cancelled() else done.exception()
        if error is None and not done.cancelled():
            self._give(batch, done.result())
        for _, future in batch:
            if future.done():
                continue
            if error is None:
                future.cancel()
            else:
                future.set_exception(error)
        if self._waiting and not self._due:
            self._due = True
            self.loop.call_soon(self._send)
        self._end()

    def _end(self) -> None:
        if not self._waiting and not self._under_way:
            self.fs._forget_batches(self)
