"""A full disk: first as full as the node lets its clients make it, then filled by other programs to the last byte."""

import errno
import os
import time
from pathlib import Path

from content import MIB
from loopfs import free_bytes

from soak.client import NO_SPACE, Client, Refused
from soak.load import Load

LEFT = 48 * MIB  # above the floor, for clients to fill
FILE = 8 * MIB
FILES_MAX = 60
FLOOR_SHARE = 20  # the node's `space.floor`: a twentieth of so small a file system
BACK_SECONDS = 30


class FullDisk:
    def __init__(self, load: Load, folder: Path):
        self.load, self.folder = load, folder
        self.fillers: list[Path] = []
        self.refused = 0

    def _take(self, size: int) -> None:
        """Allocates a file without writing it."""
        path = self.folder / f"filler-{len(self.fillers)}"
        self.fillers.append(path)
        with open(path, "wb") as file:
            if size > 0:
                os.posix_fallocate(file.fileno(), 0, size)

    def to_the_floor(self) -> None:
        """Other programs take most of the disk, then a client writes until it is refused. Reading and removing continue."""
        state = os.statvfs(self.folder)
        floor = state.f_blocks * state.f_frsize // FLOOR_SHARE
        self._take(free_bytes(self.folder) - floor - LEFT)
        client, refusals = Client(self.load.server.port), 0
        for number in range(FILES_MAX):
            try:
                self.load.put(client, f"/fill/{number}", self.load.pick.randbytes(FILE))
            except Refused as refused:
                if refused.number != NO_SPACE:
                    self.load.journal.problem(f"on a full disk a write was refused for another reason: {refused}")
                refusals += 1
                if refusals == 3:
                    break
        else:
            self.load.journal.problem(f"the disk was never full; {free_bytes(self.folder) >> 20} MiB are free")
        self.refused += refusals
        self.load.read(client)
        self.remove_one(client)
        client.close()

    def remove_one(self, client: Client) -> None:
        for name in self.load.ledger.standing():
            if name.startswith("/fill/"):
                return self.load.remove(client, name)

    def to_the_last_byte(self) -> None:
        for size in (256 * MIB, 16 * MIB, MIB, 1 << 16, 4096):
            for _ in range(64):
                try:
                    self._take(size)
                except OSError as error:
                    assert error.errno == errno.ENOSPC, error
                    break
        client = Client(self.load.server.port)
        self.load.read(client)
        client.close()

    def others_go(self) -> None:
        for path in self.fillers:
            path.unlink(missing_ok=True)
        self.fillers = []

    def clean(self) -> None:
        """Removes all files that filled it; soon the node accepts new data again."""
        client, end = Client(self.load.server.port), time.monotonic() + BACK_SECONDS
        while time.monotonic() < end:
            try:
                self.load.put(client, "/fill/again", bytes(FILE))
                break
            except Refused:
                time.sleep(0.5)
        else:
            self.load.journal.problem(f"no new data {BACK_SECONDS} s after the space came back")
        for name, promise in self.load.ledger.copy().items():
            if name.startswith("/fill/") and (promise.stands or promise.perhaps):
                try:
                    self.load.remove(client, name)
                except Refused as refused:
                    if refused.number == 3011:  # a refused file never existed
                        self.load.ledger.done(name)
                    else:
                        self.load.journal.problem(f"{name} cannot be removed: {refused}")
        client.close()
