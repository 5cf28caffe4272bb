"""The output of the soak: lines while it runs, a CSV with a line for each round, and a table at the end."""

import csv
import time
from pathlib import Path

from soak.drift import ROUNDS_MIN, Metric, Verdict, judge

MIB = 1 << 20

# Tolerances. Rates, CPU and latencies are compared as multiples of the yardstick's, because the same work can cost twice the CPU on a
# shared machine. A scatter of a tenth or two remains; a p99 rests on a few samples a round.
METRICS = [
    Metric("memory", "MiB", +1, relative=0.10, absolute=8),
    Metric("descriptors", "", +1, absolute=16),
    Metric("threads", "", +1, absolute=8),
    Metric("stat relative rate", "x echo", -1, relative=0.20),
    Metric("read relative rate", "x long echo", -1, relative=0.20),
    Metric("create relative rate", "x sync", -1, relative=0.25),
    Metric("stat cpu", "x echo", +1, relative=0.25),
    Metric("read cpu", "x echo", +1, relative=0.25),
    Metric("create cpu", "x echo", +1, relative=0.30),
    Metric("create written KiB", "KiB", +1, relative=0.25),
    Metric("stat p50", "x echo", +1, relative=0.25),
    Metric("read p50", "x echo", +1, relative=0.25),
    Metric("write p50", "x sync", +1, relative=0.30),
    Metric("list p50", "x echo", +1, relative=0.30),
    Metric("readv p50", "x echo", +1, relative=0.30),
    Metric("stat p99", "x echo", +1, relative=1.0),
    Metric("read p99", "x echo", +1, relative=1.0),
    Metric("write p99", "x sync", +1, relative=1.0),
    Metric("restart seconds", "s", +1, relative=0.50, absolute=0.5),
    Metric("data directory", "MiB", +1, relative=0.25, absolute=64),
    Metric("stat cpu us", "us", 0),
    Metric("read cpu us", "us", 0),
    Metric("create cpu us", "us", 0),
    Metric("echo cpu us", "us", 0),
    Metric("stat p50 ms", "ms", 0),
    Metric("stat p99 ms", "ms", 0),
    Metric("write p50 ms", "ms", 0),
    Metric("write p99 ms", "ms", 0),
    Metric("stat most ms", "ms", 0),
    Metric("read most ms", "ms", 0),
    Metric("write most ms", "ms", 0),
    Metric("echo most ms", "ms", 0),
    Metric("sync most ms", "ms", 0),
    Metric("echo p50 ms", "ms", 0),
    Metric("sync p50 ms", "ms", 0),
    Metric("stat rate", "/s", 0),
    Metric("read rate", "/s", 0),
    Metric("create rate", "/s", 0),
    Metric("echo rate", "/s", 0),
    Metric("long echo rate", "/s", 0),
    Metric("sync rate", "/s", 0),
    Metric("stat p99 beside slow clients ms", "ms", 0),
]
# Within one life of the node, whose first round fills the caches.
LIFE = {
    "memory": Metric("memory in one life", "MiB", +1, relative=0.10, absolute=8),
    "descriptors": Metric("descriptors in one life", "", +1, absolute=16),
    "threads": Metric("threads in one life", "", +1, absolute=8),
}


def percentile(samples: list[float], part: float) -> float:
    return sorted(samples)[min(len(samples) - 1, int(len(samples) * part))]


def latencies(samples: dict[str, list[float]]) -> dict[str, float]:
    """p50 and p99 of each kind: in ms, and as multiples of the yardstick's; and the maximum, in ms."""
    figures = {}
    for kind, yard in {"stat": "echo", "read": "echo", "write": "sync", "list": "echo", "readv": "echo", "echo": "", "sync": ""}.items():
        for name, part in (("p50", 0.5), ("p99", 0.99)):
            if len(samples.get(kind, [])) < 5:
                continue
            value = percentile(samples[kind], part)
            figures[f"{kind} {name} ms"] = value * 1000
            if yard and len(samples.get(yard, [])) >= 5:
                figures[f"{kind} {name}"] = value / percentile(samples[yard], part)
        if samples.get(kind):
            figures[f"{kind} most ms"] = max(samples[kind]) * 1000
    return figures


class Rounds:
    """The figures of all rounds."""

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []

    def add(self, figures: dict[str, float]) -> None:
        self.rows.append(figures)

    def write_csv(self, path: Path) -> None:
        names = list(dict.fromkeys(name for row in self.rows for name in row))
        with open(path, "w", newline="") as file:
            writer = csv.DictWriter(file, names, restval="", lineterminator="\n")
            writer.writeheader()
            writer.writerows({name: f"{value:.6g}" for name, value in row.items()} for row in self.rows)

    def verdicts(self, life: list[int]) -> list[Verdict]:
        """`life`: the rounds of the long life. The first round of all is a warm-up, if there are enough others."""
        found = []
        counted = self.rows[1:] if len(self.rows) > ROUNDS_MIN else self.rows
        for metric in METRICS:
            # Memory grows with the age of a life while its caches fill, so compare rounds of the same age.
            young = metric.name in LIFE
            rows = [row for row in counted if metric.name in row and not (young and row["age"] > 0)]
            if rows:
                found.append(judged(metric, metric.name, rows))
        rows = [row for row in self.rows if row["round"] in life[1:]]
        if rows:
            found += [judged(metric, name, rows) for name, metric in LIFE.items()]
        return found


def judged(metric: Metric, name: str, rows: list[dict[str, float]]) -> Verdict:
    return judge(metric, [row["minute"] for row in rows], [row[name] for row in rows])


def table(verdicts: list[Verdict]) -> str:
    lines = [
        f"{'':34} {'start':>10} {'end':>10} {'change':>8}  {'trend over the time, 95 %':>28}  {'allowed':>12}  ",
        "-" * 122,
    ]
    for verdict in verdicts:
        metric = verdict.metric
        change = f"{100 * (verdict.end / verdict.start - 1):+.1f} %" if verdict.start else ""
        trend = f"{verdict.trend:+.3g} ({verdict.least:+.3g} to {verdict.most:+.3g})" if verdict.judged else ""
        allowed = " + ".join(
            part
            for part in (f"{100 * metric.relative:.0f} %" if metric.relative else "", f"{metric.absolute:g}" if metric.absolute else "")
            if part
        )
        name = f"{metric.name} [{metric.unit}]" if metric.unit else metric.name
        lines.append(f"{name:34} {verdict.start:10.4g} {verdict.end:10.4g} {change:>8}  {trend:>28}  {allowed:>12}  {verdict.word}")
    return "\n".join(lines)


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def of_round(figures: dict[str, float]) -> str:
    """One line."""
    parts = [
        f"{figures.get('stat rate', 0):,.0f} stat/s {figures.get('create rate', 0):,.0f} create/s",
        f"stat {figures.get('stat p50 ms', 0):.2f}/{figures.get('stat p99 ms', 0):.1f} ms",
        f"write {figures.get('write p50 ms', 0):.1f}/{figures.get('write p99 ms', 0):.0f} ms",
        f"{figures.get('memory', 0):.0f} MiB, {figures.get('descriptors', 0):.0f} descriptors, {figures.get('threads', 0):.0f} threads",
    ]
    return "; ".join(parts)
