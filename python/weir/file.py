"""Open files."""

from __future__ import annotations

import asyncio
import io
from typing import TYPE_CHECKING, Any

from fsspec.spec import AbstractBufferedFile

from . import threads

if TYPE_CHECKING:
    from .fs import WeirFileSystem


class WeirFile(AbstractBufferedFile):
    """A file that is open for reading (`rb`) or for writing (`wb`, `xb`, `ab`).

    A reader sees one version of the file: if the file is replaced meanwhile, its reads fail with an `OSError`. A file
    that is written becomes complete when it is closed. If a `with` block ends with an error, it does not become complete.
    """

    DEFAULT_BLOCK_SIZE = 4 << 20

    def __init__(self, fs: WeirFileSystem, path: str, mode: str = "rb", *args: Any, **kwargs: Any) -> None:
        self._url = fs._url(path)
        self._writer: Any = None
        if mode == "rb":
            self._version = threads.wait_for(fs.pool.version, self._url)
            kwargs["size"] = self._version[1]
        super().__init__(fs, path, mode, *args, **kwargs)
        if mode != "rb":
            self._writer = threads.wait_for(fs.pool.write, self._url, mode[0], 0o644)
            self.loc = self.offset = self._writer.tell()

    def _fetch_range(self, start: int, end: int) -> bytes:
        return threads.wait_for(self.fs.pool.read_ranges, self._url, [(start, end)], self._version)[0]

    def flush(self, force: bool = False) -> None:
        """Send what was written so far. With `force`, as at the end, nothing more can be written."""
        if self.closed:
            raise ValueError("flush of a closed file")
        if self.mode == "rb" or self._writer is None:
            return
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
        self.flush()
        threads.wait_for(self._writer.sync)

    def commit(self) -> None:
        """Complete the file."""
        writer, self._writer = self._writer, None
        if writer is not None:
            threads.wait_for(writer.close)

    def discard(self) -> None:
        """Give the file up."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.abandon()

    def __exit__(self, kind: Any, *rest: Any) -> None:
        if kind is not None and self.mode != "rb" and not self.closed:
            self.discard()
            self.closed = True
            return
        self.close()


class AsyncWeirFile:
    """An open file whose methods are coroutines."""

    def __init__(self, file: WeirFile) -> None:
        self._file = file

    async def _run(self, call: Any, *args: Any) -> Any:
        return await threads.start(asyncio.get_running_loop(), call, *args)

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
        return self._file.seek(offset, whence)

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
