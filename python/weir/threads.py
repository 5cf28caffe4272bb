"""Worker threads for calls that wait for a server. They never keep a process from ending."""

from __future__ import annotations

import asyncio
import os
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any

THREADS_MAX = 32


class Threads:
    """Up to `THREADS_MAX` daemon threads. They are made when they are needed."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._free = 0

    def start(self, call: Callable[[], None]) -> None:
        """Runs `call`, which handles its own errors, in a thread."""
        with self._lock:
            if self._free > 0:
                self._free -= 1
            elif self._threads < THREADS_MAX:
                self._begin()
            # Otherwise the call waits for the next thread, which then does not count as free.
            else:
                self._free -= 1
        self._calls.put(call)

    def _begin(self) -> None:
        """Makes a thread. Without any, it raises why it cannot."""
        try:
            threading.Thread(target=self._work, name=f"weir-{self._threads + 1}", daemon=True).start()
        except RuntimeError:
            if self._threads == 0:
                raise
            self._free -= 1  # as if all were made
        else:
            self._threads += 1

    def _work(self) -> None:
        while True:
            self._calls.get()()
            with self._lock:
                self._free += 1


_threads: Threads | None = None
_pid = 0


def threads() -> Threads:
    """The threads of this process. After a fork the child has none of its parent's."""
    global _threads, _pid
    if _threads is None or _pid != os.getpid():
        _threads, _pid = Threads(), os.getpid()
    return _threads


def start(loop: asyncio.AbstractEventLoop, call: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
    """Calls in a thread. The future belongs to `loop`, which is running in this thread."""
    future = loop.create_future()

    def set_result(result: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def run() -> None:
        result, error = None, None
        try:
            result = call(*args)
        except BaseException as caught:
            error = caught
        try:
            loop.call_soon_threadsafe(set_result, result, error)
        except RuntimeError:  # the loop was closed meanwhile: nobody waits any more
            pass

    threads().start(run)
    return future


def wait_for(call: Callable[..., Any], *args: Any) -> Any:
    """Calls and returns the result. In the main thread, an interrupt (Ctrl-C) ends the wait at once."""
    # While Python ends, other threads stand still.
    if threading.current_thread() is not threading.main_thread() or sys.is_finalizing():
        return call(*args)
    done = threading.Event()
    result: list[Any] = [None, None]

    def run() -> None:
        try:
            result[0] = call(*args)
        except BaseException as caught:
            result[1] = caught
        done.set()

    threads().start(run)
    done.wait()
    if result[1] is not None:
        raise result[1]
    return result[0]
