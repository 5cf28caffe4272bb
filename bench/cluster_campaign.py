"""What a cluster of four disk servers is measured by: all that `weir bench` alone cannot, and the table with the bars."""

import json
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import cluster_faults
import cluster_rates
import measure
from clusters import Gluster, LocalCluster, XrootdCluster

SAVED = measure.BUILD / "bench/cluster.json"
NAME = "cluster"
PARTS = ["streams", "xrdcp", "small", "idle", "memory", "pauses", "writers", "repair", "simulator"]
REPAIR_SHARE = 0.1


@dataclass(frozen=True)
class Clusters:
    """All that run at the same time; who is not asked is idle."""

    folder: Path
    weir: LocalCluster
    xrootd: XrootdCluster
    gluster: Gluster


@contextmanager
def up(folder: Path) -> Iterator[Clusters]:
    settings = f'repair.rate = "{cluster_faults.REPAIR_RATE // (1 << 20)}MiB"\n'
    with (
        LocalCluster(folder / "weir", settings) as weir,
        XrootdCluster(folder / "xrootd") as xrootd,
        Gluster(folder / "gluster") as gluster,
    ):
        weir.directory("/one", "replica(1)")
        weir.directory("/two", "replica(2) sync=2 spread=site")
        yield Clusters(folder, weir, xrootd, gluster)


def measured(clusters: Clusters, parts: list[str], at: str) -> tuple[dict, dict[str, str]]:
    """Samples by what they are of, and the commit of each part; parts that are not wanted are as they were."""
    weir, xrootd, gluster, folder = clusters.weir, clusters.xrootd, clusters.gluster, clusters.folder
    does = {
        "streams": lambda samples: cluster_rates.six_streams(weir, folder, samples),
        "xrdcp": lambda samples: cluster_rates.by_xrdcp(weir, xrootd, samples),
        "small": lambda samples: cluster_rates.small_files(weir, xrootd, folder, samples),
        "idle": lambda samples: cluster_faults.idle_clients(weir, samples),
        "memory": lambda samples: cluster_faults.streams_memory(weir, samples),
        "pauses": lambda samples: cluster_faults.pauses(weir, gluster, samples),
        "writers": lambda samples: cluster_faults.stock_writers(weir, samples),
        "repair": lambda samples: cluster_faults.repair(weir, samples),
        "simulator": cluster_rates.simulator,
    }
    saved = json.loads(SAVED.read_text()) if SAVED.exists() else {}
    # In this order: the repair takes what the others need.
    for part in (part for part in does if part in parts or not parts):
        saved[part] = {"commit": at, "samples": {}}
        does[part](saved[part]["samples"])
        SAVED.write_text(json.dumps(saved, indent=1))
    samples = {key: values for part in saved.values() for key, values in part["samples"].items()}
    return samples, {name: part["commit"] for name, part in saved.items()}


def show(values: list[float], digits: int = 3) -> str:
    """The median and the spread."""

    def text(value: float) -> str:
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.{digits}g}"

    middle = text(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} ({text(min(values))} to {text(max(values))})"


def verdict(value: float, bar: float, more_is_better: bool) -> str:
    """Met or missed, and the figure's share of the bar."""
    met = value >= bar if more_is_better else value <= bar
    return f"{'met' if met else '**missed**'}, {value / bar:.2f} of the bar"


class Table:
    """Rows of the work, its bar, what was measured, and whether that is enough."""

    def __init__(self, samples: dict):
        self.samples = samples
        self.lines = ["| work | bar | measured | |", "| --- | --- | --- | --- |"]

    def of(self, key: str) -> str:
        return show(self.samples[key]) if self.samples.get(key) else "not measured"

    def tell(self, work: str, bar: str, text: str, judged: str = "") -> None:
        self.lines.append(f"| {work} | {bar} | {text} | {judged} |")

    def cpu(self, work: str, what: str) -> None:
        """Whose CPU it takes."""
        for copies, key in COPIES.items():
            key += what
            if self.samples.get(f"{key} client CPU"):
                each = self.samples[f"{key} each server's CPU"][median_run(self.samples[f"{key} servers CPU"])]
                text = f"client {self.of(f'{key} client CPU')}; manager {self.of(f'{key} manager CPU')}; disk servers together "
                text += f"{self.of(f'{key} servers CPU')}, each in the median run {', '.join(f'{value:.3g}' for value in each)}"
                self.tell(f"{work}, {copies}", "", text)

    def judge(self, work: str, bar: str, key: str, judge: Callable[[list[float]], str], beside: str) -> None:
        if self.samples.get(key):
            self.tell(work, bar, self.of(key) + beside, judge(self.samples[key]))
        else:
            self.tell(work, bar, "not measured")

    def at_least(self, work: str, bar: float, key: str, beside: str = "") -> None:
        self.judge(work, f"at least {bar:,g}", key, lambda values: verdict(statistics.median(values), bar, True), beside)

    def at_most(self, work: str, bar: float, unit: str, key: str, beside: str = "", worst: bool = False) -> None:
        """`worst`: the largest value counts instead of the median."""
        pick = max if worst else statistics.median
        self.judge(work, f"at most {bar:g} {unit}", key, lambda values: verdict(pick(values), bar, False), f" {unit}{beside}")


# By the directory's name.
COPIES = {"`replica(1)`": "one", "`replica(2) sync=2`": "two"}


def table(samples: dict) -> str:
    made = Table(samples)
    of = made.of
    beside = f"; XRootD's redirector with its cmsd {of('xrootd door CPU us')} us"
    made.at_most("redirect of an open for reading: CPU of the manager", 33, "us", "weir door CPU us", beside)
    beside = f": {of('weir reads/s')} of {of('single weir reads/s')}/s; XRootD's cluster {of('xrootd reads / single')} of a single server: "
    beside += f"{of('xrootd reads/s')} of {of('single xrootd reads/s')}/s"
    made.at_least("stock client, 8 threads, open+read+close: share of the single node's rate", 0.6, "weir reads / single", beside)
    beside = f": {of('one MB/s')} of {of('sink MB/s')} MB/s"
    made.at_least("one client, 6 streams, `replica(1)`: share of a bare sink", 0.9, "one / sink", beside)
    beside = f": {of('two MB/s')} MB/s; of `replica(1)` {of('two / one')}"
    made.at_least("`replica(2) sync=2`: physical bytes, share of the bare sink", 0.8, "two / sink", beside)
    text = f"write {of('weir xrdcp write MB/s')}, read {of('weir xrdcp read MB/s')}; XRootD's cluster {of('xrootd xrdcp write MB/s')} "
    text += f"with the wait for new files, and {of('xrootd xrdcp read MB/s')}"
    made.tell("six `xrdcp` at once, 64 MiB each, `replica(1)`, in MB/s", "", text)
    beside = f" by four clients, `replica(1)`; `replica(2)` {of('two batched creates/s')}, a single node {of('single batched creates/s')}"
    made.at_least("native batches of small creates, 4 KiB, durable, a second", 20000, "one batched creates/s", beside)
    text = ", ".join(f"{of(f'weir creates/s by {threads}')}/s by {threads} thread{'s' * (threads > 1)}" for threads in (1, 8))
    text += (
        f" (a single node {of('single weir creates/s by 1')} and {of('single weir creates/s by 8')}; a single xrootd, which syncs nothing, "
    )
    text += f"{of('single xrootd creates/s by 1')} and {of('single xrootd creates/s by 8')})"
    made.tell("creates of 4 KiB one by one by the stock client, each open, write and durable close", "", text)
    made.cpu("CPU-seconds a GB of file, six streams", "")
    made.cpu("CPU of a batched create of 4 KiB in us, one `weir cp -r` of 20,000 files", " batched create")
    text = f"client {of('weir client CPU us')}, all nodes {of('weir CPU us')} (a single node {of('single weir client CPU us')} and "
    text += f"{of('single weir CPU us')}; XRootD's cluster {of('xrootd client CPU us')} and {of('xrootd CPU us')}, "
    text += f"a single xrootd {of('single xrootd client CPU us')} and {of('single xrootd CPU us')})"
    made.tell("CPU of an open+read+close in us, client and servers", "", text)
    text = f"all nodes {of('weir create CPU us by 8')}, of that the manager {of('weir create door CPU us by 8')} "
    text += f"(a single node {of('single weir create CPU us by 8')}, a single xrootd {of('single xrootd create CPU us by 8')})"
    made.tell("CPU of a create of 4 KiB by 8 threads in us, servers", "", text)
    made.at_most("memory of a manager for each connected idle client", 64, "KiB", "manager KiB per idle client")
    for work, key in COPIES.items():
        key = f"{key} disk server MiB per stream"
        made.at_most(f"memory of a disk server for each stream, {work}", 4, "MiB", key, " (each of the four)", worst=True)
    made.at_most("pause at the death of a server: our reader", 2, "s", "pause of our reader", worst=True)
    beside = f"; by path on GlusterFS, replica 2: {of('pause of glusterfs')} s"
    made.at_most("pause at the death of a server: stock reader", 10, "s", "pause of stock reader", beside, worst=True)
    made.at_most("pause at the death of a server: our writer", 10, "s", "pause of our writer", worst=True)
    if samples.get("pause of stock writer"):
        ended = samples["stock writers that came to their end"]
        text = f"its server is back after {cluster_faults.BACK_AFTER} s: pause of {of('pause of stock writer')} s, {sum(ended):.0f} of "
        text += f"{len(ended)} files complete; it does not come back: an error after {of('stock writer gives up')} s (XrdCl is told to try "
        text += "every 2 s for a minute; by default it does every 120 s, and gives up after 480 s)"
        made.tell("death of the server of a stock writer, `replica(2) sync=2`", "", text)
    rate = cluster_faults.REPAIR_RATE >> 20

    def kept(values: list[float]) -> str:
        share = statistics.median(values) / rate
        return f"{'met' if abs(share - 1) <= REPAIR_SHARE else '**missed**'}, {share:.2f} of the rate"

    made.judge("repair: the configured rate is kept", "within 10 %", "repair MiB/s", kept, f" MiB/s of {rate}")
    beside = f"/s; messages alone {of('sim messages/s')}/s"
    work = "the simulator, one core, seeds 0 to 599: delivered events a second, which are messages, ticks, answers of disks and faults"
    made.at_least(work, 200_000, "sim events/s", beside)
    return "\n".join(made.lines)


def median_run(values: list[float]) -> int:
    """Which of them is the median."""
    return values.index(statistics.median_low(values))


ABOUT = f"""One manager and four disk servers by `weir local up --disks 4`, beside XRootD (a redirector and four data servers, each with its
cmsd) and GlusterFS (four bricks, by its FUSE client); clients, servers and sinks share two processors and one disk. Medians, with the least
and the most of all runs; the largest pause and the largest memory count. Shares are of the same run. How each is taken and what limits it:
`bench/NOTES.md`. What weir and GlusterFS do alike is in `cluster-streams` and `cluster-small`. XRootD's redirector waits
{XrootdCluster.LOOKUP_SECONDS} s for a new file (`cms.delay lookup`; 5 s by default), and makes a directory at one server alone.
"""


def section(clusters: Clusters, parts: list[str], at: str) -> str:
    """The cluster's section of bench/CAMPAIGNS.md."""
    samples, commits = measured(clusters, parts, at)
    others = ", ".join(f"{part} at {commit}" for part, commit in commits.items() if commit != at)
    return ABOUT + (f"Measured before: {others}.\n" if others else "") + "\n" + table(samples)
