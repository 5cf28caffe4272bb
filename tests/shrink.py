"""Shortens a random session as long as the same request gets the same two answers. A session that differs only sometimes may stay longer
than necessary, but still shows the difference."""

from collections.abc import Callable, Sequence

from differential import Difference
from random_sessions import Step

# Most tries of one session at the two servers.
TRIES = 250


def parts(steps: Sequence[Step]) -> list[frozenset[int]]:
    """The parts that can be left out as one, larger ones first: a lost connection with the opens that follow it, a file from its open to
    its close, one request. Steps that open, move or close a file stay as long as the file does; otherwise the rest may differ by design."""
    files: list[set[int]] = []
    being_used: dict[int, set[int]] = {}
    losses: list[set[int]] = []
    alone: list[set[int]] = []
    for at, step in enumerate(steps):
        if step.loses:
            losses.append({at})
        elif step.name == "open again":
            losses[-1].add(at)
            being_used.get(step.opens, set()).add(at)
        elif step.opens is not None:
            being_used[step.opens] = {at}
            files.append(being_used[step.opens])
        elif step.about.get("of") in being_used:
            being_used[step.about["of"]].add(at)
        elif step.handle in being_used:
            being_used[step.handle].add(at)
            if step.closes is None:
                alone.append({at})
            else:
                del being_used[step.handle]
        else:
            alone.append({at})
    return [frozenset(part) for part in [*files, *losses, *alone]]


def shrink(steps: Sequence[Step], found: Difference, again: Callable[[list[int]], Difference | None]) -> list[int]:
    """The numbers of the remaining steps. `again` plays given steps in a fresh directory, and returns the difference."""
    left = list(range(len(steps)))[: found.at + 1]
    tries = 0

    def without(dropped: frozenset[int]) -> list[int] | None:
        nonlocal tries
        tries += 1
        rest = [at for at in left if at not in dropped or at == found.at]
        if tries > TRIES or len(rest) == len(left):
            return None
        difference = again(rest)
        same = difference is not None and difference.same_kind(found) and rest[difference.at] == found.at
        return rest if same else None

    count = -1
    while count != len(left):
        count = len(left)
        many = [part & frozenset(left) for part in parts(steps)]
        many = [part for part in many if part]
        size = len(many) // 2
        while size > 1:  # halves, quarters, ... of them together
            for first in range(0, len(many), size):
                left = without(frozenset().union(*many[first : first + size])) or left
            size //= 2
        for part in many:
            left = without(part) or left
    return left
