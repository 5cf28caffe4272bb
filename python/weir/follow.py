"""A reader of a file that is still being written."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

from . import threads
from .address import join, split, wants_tls

PART = 1 << 20
# The longest uninterrupted wait.
SLICE_SECONDS = 1.0


class Follower(io.RawIOBase):
    """Reads a file while it grows. Iterating gives its bytes as they become durable, and ends when its writer has closed it.

    A read raises a `BrokenPipeError` if the writer goes away without closing the file, as soon as the server has given it
    up, and a `TimeoutError` if the file does not grow for `timeout` seconds.
    """

    def __init__(self, url: str, timeout: float = 600.0, **options: Any) -> None:
        super().__init__()
        from .fs import WeirFileSystem

        server, path = split(url)
        if server is None:
            raise ValueError(f"`{url}` has no server; write weir://HOST[:PORT]//PATH")
        tls = wants_tls(url) or bool(options.pop("tls", False))
        self.url, self.timeout = join(server, path, "roots" if tls else "root"), timeout
        fs = WeirFileSystem(hostid=server, tls=tls, **options)
        self._native = threads.wait_for(fs.pool.follow, self.url)
        self._at = 0

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def read(self, size: int | None = -1) -> bytes:  # type: ignore[override]
        """Wait for more bytes and return at most `size` of them. Empty: the file is complete. -1: read to its end."""
        if size is None or size < 0:
            begin = self._at
            try:
                return b"".join(self)
            except BaseException:
                self._at = begin  # nobody has seen the bytes
                raise
        data = self._read_at(self._at, size)
        self._at += len(data)
        return data

    def _read_at(self, at: int, size: int) -> bytes:
        """Read from a position. An interrupt or a cancellation loses nothing: only the caller moves on."""
        if size == 0:
            return b""
        end = time.monotonic() + self.timeout
        while True:
            seconds = min(SLICE_SECONDS, max(0.0, end - time.monotonic()))
            data = threads.wait_for(self._native.read, at, size, seconds)
            if data is not None:
                return data
            if time.monotonic() >= end:
                raise TimeoutError(f"{self.url} has not grown for {self.timeout:g} s; {at} bytes were read")

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        return self.read(-1)

    def __iter__(self) -> Iterator[bytes]:  # type: ignore[override]
        while data := self.read(PART):
            yield data

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while data := await threads.start(asyncio.get_running_loop(), self._read_at, self._at, PART):
            self._at += len(data)
            yield data

    def close(self) -> None:
        if not self.closed:
            self._native.close()
        super().close()


def follow(url: str, timeout: float = 600.0, **options: Any) -> Follower:
    """Read a recording while it grows.

    The server must be weir, because others do not say which bytes are durable. A complete file is read to its end::

        for part in weir.follow("root://daq.example.org//run.root"):
            process(part)
    """
    return Follower(url, timeout, **options)
