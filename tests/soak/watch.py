"""Samples the resources of the node's process once a second."""

import os
import threading
from pathlib import Path
from statistics import median

from harness import Server

MIB = 1 << 20


class Watch(threading.Thread):
    def __init__(self, server: Server):
        super().__init__(daemon=True)
        self.server = server
        self.done = threading.Event()
        self.seen: list[tuple[int, int, int]] = []

    def run(self) -> None:
        while not self.done.wait(1 if self.seen else 0):
            folder = Path(f"/proc/{self.server.pid}")
            try:
                self.seen.append((self.server.rss_bytes(), len(os.listdir(folder / "fd")), len(os.listdir(folder / "task"))))
            except (OSError, AssertionError):
                return  # it has ended; other checks notice that too

    def end(self) -> dict[str, float]:
        """The median of memory, and the minimum of descriptors and threads: temporary use is no leak."""
        self.done.set()
        self.join()
        later = self.seen[len(self.seen) // 2 :]
        return {
            "memory": median(rss for rss, _, _ in later) / MIB,
            "descriptors": min(descriptors for _, descriptors, _ in self.seen),
            "threads": min(threads for _, _, threads in self.seen),
        }


def folder_bytes(folder: Path) -> int:
    """The bytes of its files."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_blocks * 512
            except FileNotFoundError:
                pass
    return total
