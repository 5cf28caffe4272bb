"""The promises to clients, by name, and whether the server keeps them."""

import hashlib
import threading
from dataclasses import dataclass, field

from clients import INTERRUPTED


@dataclass(frozen=True)
class Content:
    """One version of a file: enough to recognise it, little enough to keep for hours."""

    size: int
    digest: bytes

    @staticmethod
    def of(data: bytes) -> "Content":
        return Content(len(data), hashlib.sha256(data).digest())


@dataclass
class Promise:
    """One name: the last acknowledged state, and later attempts with unknown outcome."""

    stands: Content | None = None  # None: there is no such file
    acknowledged: bool = False
    perhaps: list[Content | None] = field(default_factory=list)


class Ledger:
    """Each name has one writer at a time, which announces each action."""

    def __init__(self) -> None:
        self.promises: dict[str, Promise] = {}
        self.acknowledged = 0
        self.lock = threading.Lock()

    def about_to(self, name: str, content: Content | None) -> None:
        """Announces writing this, or removing it. Until the acknowledgement it may or may not have happened."""
        with self.lock:
            self.promises.setdefault(name, Promise()).perhaps.append(content)

    def done(self, name: str) -> None:
        """Records that the last attempt was acknowledged."""
        with self.lock:
            promise = self.promises[name]
            promise.stands, promise.acknowledged, promise.perhaps = promise.perhaps[-1], True, []
            self.acknowledged += 1

    def copy(self) -> dict[str, Promise]:
        with self.lock:
            return {name: Promise(p.stands, p.acknowledged, list(p.perhaps)) for name, p in self.promises.items()}

    def standing(self) -> list[str]:
        """Names that certainly exist."""
        with self.lock:
            return [name for name, p in self.promises.items() if p.stands and not p.perhaps]


def broken(name: str, promise: Promise, found: Content | None | str) -> str | None:
    """Describes a broken promise. `found`: a content, nothing, or the reason why it cannot be read."""
    allowed = [promise.stands, *promise.perhaps]
    if isinstance(found, str):
        # Only a name that never stood for a whole file may stay unfinished.
        if promise.stands is None and promise.perhaps and INTERRUPTED.search(found):
            return None
        return f"{name}: cannot be read: {found}"
    if found in allowed:
        return None
    if found is None:
        return f"{name}: gone; {promise.stands.size if promise.stands else 0} bytes were acknowledged"
    return f"{name}: {found.size} bytes that are none of the {len(allowed)} contents that it may have"
