"""Compares what the kill -9 loop's writers were promised with what the server has."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from clients import INTERRUPTED
from content import content
from killwriter import seed
from XRootD import client
from XRootD.client.flags import OpenFlags


@dataclass
class History:
    """The history of one name: the latest acknowledged state, and later attempts with unknown outcome."""

    size: int | None = None  # None: no such file
    attempt: int = 0
    acknowledged: bool = False
    later: list[tuple[int, int | None]] = field(default_factory=list)


def histories(logs: list[Path]) -> tuple[dict[str, History], Counter]:
    names: dict[str, History] = {}
    counts: Counter = Counter()
    for log in logs:
        pending: tuple[int, int | None] | None = None
        for line in log.read_text().splitlines():
            what, *rest = line.split()
            if what == "end":
                continue
            name, attempt = rest[0], int(rest[1])
            history = names.setdefault(name, History())
            if what in ("put", "remove"):
                counts[what] += 1
                pending = (attempt, int(rest[2]) if what == "put" else None)
                history.later.append(pending)
            elif what == "ok":
                counts["acknowledged"] += 1
                assert pending is not None and pending[0] == attempt
                history.attempt, history.size, history.acknowledged = attempt, pending[1], True
                history.later = []
            else:
                counts["failed"] += 1
    return names, counts


def state(url: str, name: str) -> bytes | None | str:
    """The content; None if there is no such name; the reason if it cannot be read."""
    file = client.File()
    status, _ = file.open(f"{url}/{name}", OpenFlags.READ)
    if not status.ok:
        return None if status.errno == 3011 else f"open: {status.message.strip()}"
    status, data = file.read()
    file.close()
    return bytes(data) if status.ok else f"read: {status.message.strip()}"


def problems(url: str, logs: list[Path]) -> tuple[list[str], Counter]:
    """Every broken promise in words, and counts of the operations."""
    names, counts = histories(logs)
    found = []
    for name, history in sorted(names.items()):
        allowed = [(history.attempt, history.size)] + history.later
        now = state(url, name)
        counts["checked"] += 1
        if now is None:
            if not any(size is None for _, size in allowed):
                found.append(f"{name}: gone; acknowledged was attempt {history.attempt} with {history.size} bytes")
        elif isinstance(now, str):
            # Only a file that was never acknowledged may stay unfinished.
            standing = history.acknowledged and history.size is not None
            if standing or not history.later or not INTERRUPTED.search(now):
                found.append(f"{name}: cannot be read ({now}); acknowledged: {history.attempt}, {history.size} bytes")
        elif not any(size is not None and len(now) == size and now == content(seed(name, attempt), size) for attempt, size in allowed):
            found.append(f"{name}: {len(now)} bytes that are none of the attempts {allowed}")
    return found, counts
