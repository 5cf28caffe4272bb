"""Decides whether a history of the namespace is linearizable: whether each operation can be given one moment between its start and its
end so that all answers are right.

The search is that of Wing and Gong with the memory of Lowe, over all orders at once: it goes through the starts and ends in their order,
and keeps every *possibility*, that is a state of the namespace with the operations that are under way and have not taken effect in it. At
the end of an operation, those possibilities remain in which it can have taken effect by then. If none remains, there is no such order.

- An operation that changes nothing takes effect as soon as its answer is right: that never rules out a later step.
- One whose answer was lost is under way for ever. A possibility in which it can still take effect includes the same one in which it cannot.
- At the end of an operation, another one takes effect before it only if the order of the two matters, directly or by others between them.
  Otherwise it can as well take effect later.
- Paths that no operation connects are independent, so each connected part is a search of its own: a history is linearizable if that of each
  object is (Herlihy and Wing)."""

import collections
import functools
from collections.abc import Iterable
from dataclasses import dataclass, field

from history import CHANGES, Operation
from namespace_model import State, step

# The most steps of one search. A history that needs more is too long, or has too many lost answers: the tests then fail.
MOST_STEPS = 3_000_000
# To shorten a counterexample: the most states that it may begin with, and the most possibilities.
MOST_BEGINNINGS, MOST_POSSIBILITIES = 300, 20_000
MOST_OPERATIONS_SHOWN = 60


class Undecided(Exception):
    """The search has ended at its bound."""


class NotLinearizable(AssertionError):
    """With the operations that contradict each other."""


@dataclass
class Violation:
    # They have no order, whatever the state before the first one, of those that the history went through.
    window: list[Operation]
    states_before: list[State]
    total: int

    def __str__(self) -> str:
        origin = min(operation.start for operation in self.window)
        shown = self.window[-MOST_OPERATIONS_SHOWN:]
        lines = [operation.told(origin) for operation in sorted(shown, key=lambda operation: operation.start)]
        states = [f"  {state.told()}" for state in self.states_before[:3]]
        more = f" (the first 3 of {len(self.states_before)})" if len(states) < len(self.states_before) else ""
        return "\n".join(
            [
                f"not linearizable: these {len(self.window)} of {self.total} operations have no order (start and end in seconds):",
                *lines,
                f"The last one to end was {self.window[-1].told(origin).strip()}",
                f"Before it, the namespace could have been{more}:",
                *states,
            ]
        )


def check(operations: Iterable[Operation], beginning: State, most_steps: int = MOST_STEPS) -> None:
    """Raises `NotLinearizable` with a short counterexample, or `Undecided`."""
    for part in independent(list(operations)):
        violation = Search(part, beginning, most_steps).run()
        if violation is not None:
            raise NotLinearizable(str(violation))


def paths(operation: Operation) -> list[str]:
    return [argument for argument in operation.arguments if isinstance(argument, str) and argument.startswith("/")]


def independent(operations: list[Operation]) -> list[list[Operation]]:
    """The operations in parts that share no name."""
    leader: dict[object, object] = {}

    def find(cell: object) -> object:
        root = cell
        while leader.setdefault(root, root) != root:
            root = leader[root]
        while leader[cell] != root:
            leader[cell], cell = root, leader[cell]
        return root

    def join(one: object, other: object) -> None:
        leader[find(one)] = find(other)

    def writer(operation: Operation) -> object | None:
        at = {"new": 1, "replace": 1, "close": 0, "abandon": 0, "take back": 0}.get(operation.name)
        return None if at is None else ("writer", operation.arguments[at])

    named = {path for operation in operations for path in paths(operation)}
    changed = {path for operation in operations if operation.name in CHANGES for path in paths(operation)}
    # What happens to a directory concerns the names in it, and so does its list.
    whole = changed | {path for operation in operations if operation.name == "list" for path in paths(operation)}
    for path in named:
        find(path)
        at = path.rfind("/")
        while at > 0:
            if path[:at] in whole:
                join(path, path[:at])
            at = path.rfind("/", 0, at)
    for operation in operations:
        cells = [*paths(operation), *([writer(operation)] if writer(operation) else [])]
        for other in cells[1:]:
            join(cells[0], other)
    parts = collections.defaultdict(list)
    for operation in operations:
        parts[find((paths(operation) or [writer(operation)])[0])].append(operation)
    return list(parts.values())


def events(operations: list[Operation]) -> list[tuple[int, bool, int]]:
    """The time, whether it is an end, and the number of the operation. What ends when another starts overlaps with it."""
    starts = [(operation.start, False, number) for number, operation in enumerate(operations)]
    ends = [(operation.end, True, number) for number, operation in enumerate(operations) if operation.end is not None]
    return sorted(starts + ends)


# Paths. With a directory, they mean what is in it.
Cells = frozenset[str]
# That of an operation of which nobody knows where it looked.
EVERYWHERE: Cells = frozenset([""])


@functools.lru_cache(100_000)
def meet(some: Cells, others: Cells) -> bool:
    return any(one == other or one.startswith(other + "/") or other.startswith(one + "/") for one in some for other in others)


# A state by its number, and the operations under way that have not taken effect, one bit each.
Possibility = tuple[int, int]


@dataclass
class Search:
    operations: list[Operation]
    beginning: State
    most_steps: int = MOST_STEPS
    steps: int = 0
    states: list[State] = field(default_factory=list)
    numbers: dict[tuple, int] = field(default_factory=dict)
    after: dict[tuple[int, int], int | None] = field(default_factory=dict)
    cells: dict[tuple[int, int], "Cells"] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.operations = sorted(self.operations, key=lambda operation: operation.start)

    def number(self, state: State) -> int:
        found = self.numbers.setdefault(state.key, len(self.states))
        if found == len(self.states):
            self.states.append(state)
        return found

    def step(self, state: int, operation: int) -> int | None:
        key = (state, operation)
        if key in self.after:
            return self.after[key]
        self.steps += 1
        if self.steps > self.most_steps:
            raise Undecided(f"undecided: no answer after {self.most_steps} steps on a part of {len(self.operations)} operations")
        before = self.states[state]
        found = step(before, self.operations[operation])
        result = None if found is None else state if found is before else self.number(found)
        self.after[key] = result
        return result

    def touched(self, state: int, operation: int) -> "Cells":
        """The paths that the operation looks at or changes in this state, in which it can take effect."""
        key = (state, operation)
        if key not in self.cells:
            before, after = self.states[state].nodes, self.states[self.step(state, operation)].nodes
            changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
            self.cells[key] = frozenset(changed.union(paths(self.operations[operation]))) or EVERYWHERE
        return self.cells[key]

    def run(self) -> Violation | None:
        pending = Pending(self, {(self.number(self.beginning), 0)})
        recent: collections.deque[int] = collections.deque(maxlen=20 * MOST_BEGINNINGS)
        for _, is_end, number in events(self.operations):
            if not is_end:
                pending.begin(number)
                continue
            before = pending.possibilities
            recent.extend(state for state, _ in before)
            pending.end(number)
            if not pending.possibilities:
                states = [self.states[state] for state in dict.fromkeys(state for state, _ in before)]
                try:
                    window = self._shortest(number, recent)
                except Undecided:
                    window = [*self._beside([number]), self.operations[number]]
                return Violation(window, states, len(self.operations))
        return None

    def _shortest(self, last: int, recent: Iterable[int]) -> list[Operation]:
        """The operations of the shortest window before this end that has no order."""
        self.most_steps = self.steps + MOST_STEPS
        beginnings = list(dict.fromkeys(reversed(list(recent))))[:MOST_BEGINNINGS]
        whole = events(self.operations)
        end = next(at for at, (_, is_end, number) in enumerate(whole) if is_end and number == last)

        def fits(size: int) -> bool:
            return self._contradicts(whole, end - size, end, beginnings)

        size = 1
        while size <= end and not fits(size):
            size *= 2
        if size > end:
            window = [number for _, is_end, number in whole[: end + 1] if is_end or self.operations[number].is_maybe]
        else:
            low, high = size // 2, size
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if fits(middle) else (middle, high)
            window = self._needed(whole, end - high, end, beginnings)
        beside = self._beside(window) if size <= end else []
        return [*beside, *(self.operations[number] for number in window if number != last), self.operations[last]]

    def _beside(self, window: list[int]) -> list[Operation]:
        """The changes of the same paths that were under way beside these operations, and that could have had an effect too."""
        those = [self.operations[number] for number in window]
        begin, end = min(one.start for one in those), max(one.end for one in those)
        cells = frozenset(path for one in those for path in paths(one)) or EVERYWHERE

        def is_beside(one: Operation) -> bool:
            overlaps = one.start <= end and one.end is not None and one.end >= begin
            return overlaps and one.name in CHANGES and one.result == "ok" and meet(frozenset(paths(one)) or cells, cells)

        return [one for number, one in enumerate(self.operations) if number not in window and is_beside(one)]

    def _contradicts(self, whole: list, begin: int, end: int, beginnings: list[int], without: frozenset[int] = frozenset()) -> bool:
        """Whether the operations that end in the window have no order, from whichever of these states on."""
        pending = Pending(self, {(state, 0) for state in beginnings})
        started = {number for _, is_end, number in whole[:begin] if not is_end}
        ended = {number for _, is_end, number in whole[:begin] if is_end}
        ends_in_it = {number for _, is_end, number in whole[begin : end + 1] if is_end}
        for number in sorted(started - ended - without):
            if self.operations[number].is_maybe or number in ends_in_it or self.operations[number].name in CHANGES:
                pending.begin(number, may_be_done=True)
                if len(pending.possibilities) > MOST_POSSIBILITIES:
                    return False
        for _, is_end, number in whole[begin : end + 1]:
            if number in without:
                continue
            pending.end(number) if is_end else pending.begin(number)
            if not pending.possibilities:
                return True
            if len(pending.possibilities) > MOST_POSSIBILITIES:
                return False
        return False

    def _needed(self, whole: list, begin: int, end: int, beginnings: list[int]) -> list[int]:
        """The operations that end in the window, without those answers that the contradiction does not need."""
        numbers = [number for _, is_end, number in whole[begin : end + 1] if is_end]
        without: set[int] = set()
        for number in numbers[:-1]:
            operation = self.operations[number]
            is_change = operation.name in CHANGES and operation.result == "ok"
            if not is_change and self._contradicts(whole, begin, end, beginnings, frozenset(without | {number})):
                without.add(number)
        return [number for number in numbers if number not in without]


class Pending:
    """The operations under way, and all possibilities."""

    def __init__(self, search: Search, possibilities: set[Possibility]):
        self.search, self.possibilities = search, possibilities
        self.bits: dict[int, int] = {}
        # Those of them that may have changed nothing.
        self.quiet: dict[int, int] = {}
        self.free: list[int] = []
        # The bits of operations that may never have been done.
        self.maybe = 0

    def begin(self, number: int, may_be_done: bool = False) -> None:
        """`may_be_done`: it began earlier, and may have taken effect already."""
        bit = self.free.pop() if self.free else 1 << len(self.bits)
        self.bits[number] = bit
        operation = self.search.operations[number]
        if operation.is_maybe:
            self.maybe |= bit
        elif operation.result != "ok" or operation.name in ("close", "rename"):
            self.quiet[number] = bit
        begun = {(state, self._at_once(state, under_way | bit)[0]) for state, under_way in self.possibilities}
        self.possibilities = self.possibilities | begun if may_be_done else begun

    def end(self, number: int) -> None:
        bit = self.bits[number]
        if bit & self.maybe:
            # It takes effect now at the latest, or never does.
            never = {(state, under_way & ~bit) for state, under_way in self.possibilities}
            self.possibilities = self._done(bit) | never
            self.maybe &= ~bit
        else:
            self.possibilities = self._done(bit)
        del self.bits[number]
        self.quiet.pop(number, None)
        self.free.append(bit)
        if self.maybe:
            self.possibilities = self._without_included(self._without_vain(self.possibilities))

    def _done(self, bit: int) -> set[Possibility]:
        """Those in which this operation can have taken effect, perhaps after others."""
        found = {possibility for possibility in self.possibilities if not possibility[1] & bit}
        # The third: for each one that has taken effect, where a later one must look so that their order matters.
        left = [(state, under_way, frozenset()) for state, under_way in self.possibilities if under_way & bit]
        seen = set(left)
        while left:
            state, under_way, owed = left.pop()
            for other, its_bit in self.bits.items():
                if not under_way & its_bit:
                    continue
                after = self.search.step(state, other)
                if after is None or after == state and its_bit & self.maybe:
                    continue
                cells = self.search.touched(state, other)
                still = {one for one in owed if not meet(one, cells)}
                if its_bit == bit:
                    if not still:
                        found.add((after, self._at_once(after, under_way & ~its_bit)[0]))
                    continue
                still.add(cells)
                then, at_once = self._at_once(after, under_way & ~its_bit)
                for answered in at_once:
                    cells = self.search.touched(after, answered)
                    if answered in self.bits and self.bits[answered] == bit:
                        if all(meet(one, cells) for one in still):
                            found.add((after, then))
                        break
                    still = {one | cells if meet(one, cells) else one for one in still}
                else:
                    next_one = (after, then, frozenset(still))
                    if next_one not in seen:
                        seen.add(next_one)
                        left.append(next_one)
        return found

    def _at_once(self, state: int, under_way: int) -> tuple[int, list[int]]:
        """Lets everything take effect that changes nothing: what is under way then, and what is not any more."""
        done = []
        for number, bit in self.quiet.items():
            if under_way & bit and self.search.step(state, number) == state:
                under_way &= ~bit
                done.append(number)
        return under_way, done

    def _without_vain(self, possibilities: set[Possibility]) -> set[Possibility]:
        """Drops what may still happen to writers that do not exist, and cannot begin any more."""
        operations = self.search.operations
        begins = {operations[number].arguments[1] for number in self.bits if operations[number].name in ("new", "replace")}
        ends = [
            (bit, operations[number].arguments[0])
            for number, bit in self.bits.items()
            if bit & self.maybe and operations[number].name in ("close", "abandon", "take back")
        ]
        ends = [(bit, writer) for bit, writer in ends if writer not in begins]
        if not ends:
            return possibilities
        left = set()
        for state, under_way in possibilities:
            writers = self.search.states[state].writers
            for bit, writer in ends:
                if writer not in writers:
                    under_way &= ~bit
            left.add((state, under_way))
        return left

    def _without_included(self, possibilities: set[Possibility]) -> set[Possibility]:
        groups = collections.defaultdict(list)
        for state, under_way in possibilities:
            groups[state, under_way & ~self.maybe].append(under_way & self.maybe)
        kept = set()
        for (state, certain), masks in groups.items():
            masks.sort(key=int.bit_count, reverse=True)
            largest: list[int] = []
            for mask in masks:
                if not any(mask & other == mask for other in largest):
                    largest.append(mask)
            kept.update((state, certain | mask) for mask in largest)
        return kept
