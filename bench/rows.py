"""The rows of the speed table with their bars, and the table as text."""

import json
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Row:
    key: str
    work: str
    unit: str
    limit: float
    more_is_better: bool
    relative: bool  # the bar is a ratio to xrootd in the same run; else it is the figure itself

    @property
    def bar(self) -> str:
        sign = "at least" if self.more_is_better else "at most"
        return f"{sign} {self.limit:g} x xrootd" if self.relative else f"{sign} {self.limit:,.4g} {self.unit}"

    def passed(self, value: float) -> bool:
        return value >= self.limit if self.more_is_better else value <= self.limit


MORE, LESS = True, False
ROWS = [
    Row(
        "life-rate", "namespace library: whole life of a small file, durable, 64 outstanding, 1,000 directories", "1/s", 40_000, MORE, False
    ),
    Row("life-p999", "the same: p99.9 at half that rate over 10 minutes", "ms", 50, LESS, False),
    Row("list-rate", "listing with attributes", "1/s", 1_000_000, MORE, False),
    Row("open-after-kill", "opening after SIGKILL under load with 10 M files", "s", 2, LESS, False),
    Row("memory-10m", "memory with 10 M files", "MiB", 256, LESS, False),
    Row("small-rate", "small files through the store, 4 KiB, durable, one core", "1/s", 20_000, MORE, False),
    Row("stream-share", "stream through the store: share of a bare direct-I/O writer with CRC32C", "", 0.9, MORE, False),
    Row("create-rate", "4 KiB create+write+close, 8 threads: rate", "1/s", 1.0, MORE, True),
    Row("create-cpu", "the same: server CPU per operation", "us", 0.6, LESS, True),
    Row("stat-rate", "stat, 8 threads: rate", "1/s", 1.1, MORE, True),
    Row("stat-cpu", "the same: server CPU per operation", "us", 0.4, LESS, True),
    Row("read-rate", "4 KiB open+read+close, 8 threads: rate", "1/s", 1.1, MORE, True),
    Row("read-cpu", "the same: server CPU per operation", "us", 0.4, LESS, True),
    Row("remove-rate", "remove, 8 threads: rate", "1/s", 0.9, MORE, True),
    Row("remove-cpu", "the same: server CPU per operation", "us", 0.4, LESS, True),
    Row("alone-create", "4 KiB create+write+close, durable, 1 waiting client", "us", 1.0, LESS, True),
    Row("alone-stat", "stat, 1 waiting client", "us", 0.8, LESS, True),
    Row("alone-read", "4 KiB open+read+close, 1 waiting client", "us", 0.8, LESS, True),
    Row("alone-remove", "remove, durable, 1 waiting client", "us", 0.9, LESS, True),
    Row("put-wall", "xrdcp 1 GiB write: wall", "s", 0.8, LESS, True),
    Row("put-cpu", "the same: server CPU per GB", "s", 0.4, LESS, True),
    Row("after-wall", "xrdcp 1 GiB read right after it was written: wall", "s", 0.6, LESS, True),
    Row("after-cpu", "the same: server CPU per GB", "s", 0.3, LESS, True),
    Row("cold-wall", "xrdcp 1 GiB read, cold: wall", "s", 1.1, LESS, True),
    Row("cold-cpu", "the same: server CPU per GB", "s", 0.5, LESS, True),
    Row("warm-wall", "xrdcp 1 GiB read, warm: wall", "s", 1.0, LESS, True),
    Row("warm-cpu", "the same: server CPU per GB", "s", 0.3, LESS, True),
    Row("readv-cpu", "readv of 512 random segments of 8 KiB, 8 clients, warm: bytes per server CPU-second", "MB/s", 1.5, MORE, True),
    Row("readv-16k-wall", "readv of 200 random segments of 16 KiB, 1 client, warm: wall per GB", "s", 0.8, LESS, True),
    Row("readv-16k-cpu", "the same: server CPU per GB", "s", 0.7, LESS, True),
    Row("readv-16k-cold", "the same, cold: wall per GB", "s", 0.8, LESS, True),
    Row("readv-8k-wall", "readv of 512 random segments of 8 KiB, 1 client, warm: wall per GB", "s", 0.8, LESS, True),
    Row("readv-8k-cpu", "the same: server CPU per GB", "s", 0.7, LESS, True),
    Row("readv-8k-cold", "the same, cold: wall per GB", "s", 0.8, LESS, True),
    Row("follow-disk", "a follower of a recording of 2 GiB at 400 MB/s: bytes that the server reads from its disk", "MiB", 0, LESS, False),
    Row("follow-lag", "the same: how far it is behind what is published, at most", "s", 1.1, LESS, False),
    Row("cp-up-wall", "weir cp (xrdcp in the other column) of 1 GiB to the same weir server: wall", "s", 0.5, LESS, True),
    Row("cp-up-cpu", "the same: client CPU per GB", "s", 0.35, LESS, True),
    Row("cp-down-wall", "weir cp of 1 GiB from it, warm: wall", "s", 0.5, LESS, True),
    Row("cp-down-cpu", "the same: client CPU per GB", "s", 0.35, LESS, True),
    Row("tree-up-rate", "weir cp -r of 20,000 files of 4 KiB to it", "1/s", 8, MORE, True),
    Row("tree-down-rate", "and back", "1/s", 8, MORE, True),
    Row("streams-share", "6 streams of weir cp to one node: share of a bare sink, sockets to direct I/O with CRC32C", "", 0.9, MORE, False),
    Row("ls-first", "weir ls -l of 1,000,000 entries: first lines", "s", 0.2, LESS, False),
    Row("ls-all", "the same: all", "s", 5, LESS, False),
    Row("ls-client-memory", "the same: the client's memory", "MiB", 64, LESS, False),
    Row("ls-server-memory", "the same: what the server's memory grows by", "MiB", 256, LESS, False),
    Row("idle-memory", "1,000 idle connections: memory", "MiB", 64, LESS, False),
    Row("writers-memory", "200 connections writing at once: memory", "MiB", 512, LESS, False),
    Row("readers-memory", "200 slow readers of a file of 1 GiB: memory", "MiB", 512, LESS, False),
    Row("fair-read", "one user with 200 streams beside one with 1: share of what the one has alone, reading", "", 0.3, MORE, False),
    Row("fair-write", "the same, writing", "", 0.3, MORE, False),
]


@dataclass
class Figures:
    """Samples by row and system, and what else is to be told."""

    samples: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    commands: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)  # by row or subject
    invalid: dict[str, str] = field(default_factory=dict)  # row: why its figure does not count
    measured: dict[str, str] = field(default_factory=dict)  # row: the day and the commit

    def add(self, row: str, system: str, value: float) -> None:
        self.samples.setdefault(row, {}).setdefault(system, []).append(value)

    def stamp(self, when: str) -> None:
        """Notes the day and the commit of the rows that have none yet."""
        for row in self.samples:
            self.measured.setdefault(row, when)

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1))

    def fill_up(self, path: Path) -> None:
        """Takes what was not measured this time from the figures that an earlier run saved."""
        if not path.exists():
            return
        anew = set(self.samples)
        for name, earlier in json.loads(path.read_text()).items():
            own = getattr(self, name)
            for key, value in earlier.items():
                # What was said of a row's earlier figures, that they do not count above all, is not true of those of today.
                if key not in anew:
                    own.setdefault(key, value)


def show(values: list[float]) -> str:
    """The median and the spread."""
    if len(values) == 1:
        return f"{values[0]:,.4g}"
    return f"{statistics.median(values):,.4g} ({min(values):,.4g} to {max(values):,.4g})"


def judge(row: Row, systems: list[str], figures: Figures) -> tuple[str, str, str, str]:
    """Own figure, the peer's, their ratio, and the verdict."""
    by_system = figures.samples.get(row.key, {})
    ours, peers = by_system.get(systems[0]), by_system.get(systems[1])
    if not ours:
        return "", "", "", "not measured"
    value, ratio = statistics.median(ours), ""
    if row.relative:
        if not peers:
            return show(ours), "", "", "no peer"
        value /= statistics.median(peers)
        ratio = f"{value:.2f}"
    verdict = "pass" if row.passed(value) else "**missed**"
    if row.key in figures.invalid:
        verdict = f"does not count: {figures.invalid[row.key]}"
    return show(ours), show(peers) if peers else "", ratio, verdict


def table(systems: list[str], figures: Figures, chosen: set[str] | None) -> list[str]:
    lines = [f"| work | bar | {systems[0]} | {systems[1]} | ratio | verdict |", "| --- | --- | --- | --- | --- | --- |"]
    for row in ROWS:
        if chosen is not None and row.key not in figures.samples:
            continue
        ours, peers, ratio, verdict = judge(row, systems, figures)
        unit = f" [{row.unit}]" if row.unit else ""
        lines.append(f"| {row.work}{unit} | {row.bar} | {ours} | {peers} | {ratio} | {verdict} |")
    known = {row.key for row in ROWS}
    others = {key: value for key, value in figures.samples.items() if key not in known}
    if others:
        lines += ["", "Without a bar:", "", f"| figure | {systems[0]} | {systems[1]} |", "| --- | --- | --- |"]
        for key, by_system in others.items():
            lines.append(
                f"| {key} | {show(by_system.get(systems[0], [])) if systems[0] in by_system else ''} | "
                f"{show(by_system[systems[1]]) if systems[1] in by_system else ''} |"
            )
    return lines
