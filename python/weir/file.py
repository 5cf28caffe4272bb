"""Open files."""

from __future__ import annotations

import asyncio
import contextlib
import io
import sys
import threading
import warnings
from typing import TYPE_CHECKING, Any

from fsspec.spec import AbstractBufferedFile

from . import threads

if TYPE_CHECKING:
    from .fs import WeirFileSystem


# For so long, what an open has said of a file counts as its present state: one round trip less.
FRESH_SECONDS = 5.0
MODES = ("rb", "wb", "xb", "ab")


class WeirFile(AbstractBufferedFile):
    """A file that is open for reading (`rb`) or for writing (`wb`, `xb`, `ab`).

    A reader sees one version of the file: if the file is replaced meanwhile, its reads fail with an `OSError`
    (`ESTALE`). A file that is written becomes complete when it is closed. If a `with` block ends with an error, or nobody
    closes the file, it does not become complete.
    """

    DEFAULT_BLOCK_SIZE = 4 << 20
    _closed = True  # until it is open
    _given_up = False
    path = ""

    def __init__(self, fs: WeirFileSystem, path: str, mode: str = "rb", *args: Any, **kwargs: Any) -> None:
        self._url = fs._url(path)
        self._writer: Any = None
        if mode not in MODES:
            raise NotImplementedError(f"mode `{mode}`: a file is open either for reading (r) or for writing (w, x, a)")
        if mode == "rb":
            self._version = threads.wait_for(fs.pool.version, self._url, FRESH_SECONDS)
            kwargs["size"] = self._version[1]
        super().__init__(fs, path, mode, *args, **kwargs)
        if mode != "rb":
            try:
                self._writer = threads.wait_for(fs.pool.write, self._url, mode[0], 0o644)
            except BaseException:
                self.closed = True
                raise
            self.loc = self.offset = self._writer.tell()

    def _fetch_range(self, start: int, end: int) -> bytes:
        return threads.wait_for(self.fs.pool.read_ranges, self._url, [(start, end)], self._version)[0]

    def write(self, data: Any) -> int:
        """Write bytes at the end. They are sent later, in blocks."""
        if self.closed:
            raise ValueError("write to a closed file")
        return super().write(data)

    def flush(self, force: bool = False) -> None:
        """Send what was written so far. With `force`, as at the end, nothing more can be written."""
        if self.closed:
            raise ValueError("flush of a closed file")
        if self.mode == "rb":
            return
        if self._writer is None:
            raise ValueError("flush of a file that was completed or given up")
        data = self.buffer.getvalue()
        self.buffer = io.BytesIO()
        if data:
            threads.wait_for(self._writer.write, data)
            self.offset += len(data)
        if force:
            self.forced = True
            if self.autocommit:
                self.commit()

    def sync(self) -> None:
        """Send what was written so far, and wait until it is durable."""
        if self.mode == "rb":
            raise ValueError("sync of a file that is open for reading")
        self.flush()
        threads.wait_for(self._writer.sync)

    def commit(self) -> None:
        """Complete the file."""
        writer, self._writer = self._writer, None
        if writer is not None:
            threads.wait_for(writer.close)

    def discard(self) -> None:
        """Give the file up: it does not become complete. Does not wait for the server."""
        writer, self._writer = self._writer, None
        self._given_up = True
        if writer is not None:
            writer.abandon()

    def close(self) -> None:
        """Close the file. A file that is written becomes complete."""
        if self.closed:
            return
        if self.mode != "rb" and (self._given_up or sys.is_finalizing()):
            # While Python ends, nobody could hear of an error.
            self.give_up()
        elif self.mode != "rb" and self._writer is None:
            self.closed = True  # it was committed
        else:
            super().close()

    def give_up(self) -> None:
        """Close it without completing the file."""
        self.discard()
        self.closed = True

    def __exit__(self, kind: Any, *rest: Any) -> None:
        end_with(self, kind)

    def __del__(self) -> None:
        drop(self, self.path)


def end_with(file: Any, kind: Any) -> None:
    """At the end of a `with` block: close the file, or after an error give it up."""
    if kind is None or file.closed or not file.writable():
        file.close()
    else:
        file.give_up()


def drop(file: Any, path: str) -> None:
    """Nobody uses the file any more, and nobody has closed it."""
    if file.closed:
        return
    if not file.writable():
        file.close()
        return
    file.give_up()
    warnings.warn(f"{path} was not closed, so it does not become complete", ResourceWarning, stacklevel=3, source=file)


class CompressedFile(io.BufferedIOBase):
    """A writer that compresses. Closing it closes the file."""

    def __init__(self, compressor: Any, file: WeirFile) -> None:
        super().__init__()
        self._compressor, self._file, self.path = compressor, file, file.path

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return self._compressor.write(data)

    def flush(self) -> None:
        if not self.closed:
            self._compressor.flush()

    def tell(self) -> int:
        return self._compressor.tell()

    @property
    def closed(self) -> bool:
        return self._file.closed

    def close(self) -> None:
        if self.closed:
            return
        try:
            self._compressor.close()
        except BaseException:
            self.give_up()
            raise
        self._file.close()

    def give_up(self) -> None:
        """Close it without completing the file."""
        self._file.give_up()
        with contextlib.suppress(Exception):
            self._compressor.close()  # what it writes now is refused

    def __exit__(self, kind: Any, *rest: Any) -> None:
        end_with(self, kind)

    def __del__(self) -> None:
        drop(self, self.path)


class TextFile(io.TextIOWrapper):
    """A file of text."""

    def give_up(self) -> None:
        """Close it without completing the file."""
        self.buffer.give_up()

    def __exit__(self, kind: Any, *rest: Any) -> None:
        end_with(self, kind)

    def __del__(self) -> None:
        with contextlib.suppress(ValueError):  # its `__init__` has failed
            drop(self, getattr(self.buffer, "path", "a file"))


class AsyncWeirFile:
    """An open file whose methods are coroutines."""

    def __init__(self, file: WeirFile) -> None:
        self._file = file
        self._lock = threading.Lock()

    async def _run(self, call: Any, *args: Any) -> Any:
        def alone() -> Any:
            with self._lock:
                return call(*args)

        return await threads.start(asyncio.get_running_loop(), alone)

    async def read(self, length: int = -1) -> bytes:
        """Read bytes from the present position."""
        return await self._run(self._file.read, length)

    async def write(self, data: bytes) -> int:
        """Write bytes at the end."""
        return await self._run(self._file.write, data)

    async def flush(self) -> None:
        """Send what was written so far."""
        await self._run(self._file.flush)

    async def seek(self, offset: int, whence: int = 0) -> int:
        """Change the position of a reader."""
        return await self._run(self._file.seek, offset, whence)

    def tell(self) -> int:
        """Return the present position."""
        return self._file.tell()

    async def close(self) -> None:
        """Close the file."""
        await self._run(self._file.close)

    async def __aenter__(self) -> AsyncWeirFile:
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._run(self._file.__exit__, *error)
