#!/usr/bin/env python3
"""
Measures this build of weir beside another one, of an earlier commit say, in alternating runs on one machine. Prints each row with the
ratio, and ends with 1 if a row is worse than the bar allows.

    bench/compare.py --before /elsewhere/target/release/weir         everything
    bench/compare.py --before BINARY --only clients --runs 3         parts: clients, ahead (cold reads), node and cluster (campaigns)
    bench/compare.py --before target/release/weir                    the method against itself: all ratios should be about 1
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import ahead  # noqa: E402
import run  # noqa: E402
import vectors  # noqa: E402
from clusters import LocalCluster  # noqa: E402
from harness import WEIR_BIN, Weir  # noqa: E402
from measure import BUILD, ROOT, random_source  # noqa: E402
from rows import ROWS, Figures, show  # noqa: E402

NOW, BEFORE = "now", "before"
# A row is worse when its median is worse by more than this, and the two spreads do not meet.
WORSE = 0.05
CAMPAIGNS = {"node": ["small", "streams"], "cluster": ["cluster-small", "cluster-streams"]}
PARTS = ["clients", "ahead", *CAMPAIGNS]
LARGE = 1 << 30
# Bytes by unit: figures of a rate are better when they are more.
MORE_IS_BETTER = ("rate", "readv-cpu", "MB/s")


class Build(Weir):
    """A node of another build."""

    binary = str(WEIR_BIN)

    def command(self) -> list[str]:
        return [self.binary, *super().command()[1:]]


def more_is_better(row: str) -> bool:
    known = {row.key: row.more_is_better for row in ROWS}
    return known.get(row, any(part in row for part in MORE_IS_BETTER))


def worse(row: str, now: list[float], before: list[float]) -> bool:
    ratio = statistics.median(now) / statistics.median(before)
    if more_is_better(row):
        return ratio < 1 - WORSE and max(now) < min(before)
    return ratio > 1 + WORSE and min(now) > max(before)


def measured(parts: list[str], builds: dict[str, type[Build]], options: argparse.Namespace) -> list[str]:
    """The rows that clients on this machine measure. Returns those that are worse."""
    figures = Figures()
    with ExitStack() as stack:
        servers = {}
        for name, build in builds.items():
            home = options.dir / f"server-{name}"
            shutil.rmtree(home, ignore_errors=True)
            servers[name] = stack.enter_context(build(home).start())
            stack.callback(shutil.rmtree, home, ignore_errors=True)
        source = stack.enter_context(random_source(LARGE))
        if "clients" in parts:
            run.small_files(servers, options.runs, options.files, figures)
            run.big_files(servers, options.runs, source, figures)
            vectors.readv(servers, options.runs, source, figures)
        if "ahead" in parts:
            ahead.cold(servers, options.runs, source, figures)
    found = []
    print(f"\n{'row':24} {NOW:>34} {BEFORE:>34}  ratio")
    for row, samples in figures.samples.items():
        ratio = statistics.median(samples[NOW]) / statistics.median(samples[BEFORE])
        verdict = ""
        if worse(row, samples[NOW], samples[BEFORE]):
            verdict = "WORSE"
            found.append(row)
        print(f"{row:24} {show(samples[NOW]):>34} {show(samples[BEFORE]):>34}  {ratio:.2f} {verdict}")
    return found


def campaign(name: str, systems: str, options: argparse.Namespace) -> bool:
    """Runs a campaign with both builds as systems, and prints its table. Returns whether it ran."""
    results = options.dir / name
    shutil.rmtree(results, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{name}.toml"
        file.write_text((ROOT / "bench/campaigns" / f"{name}.toml").read_text() + "\n" + systems)
        done = subprocess.run([WEIR_BIN, "bench", "run", file, "--results", results])
    if done.returncode not in (0, 1):
        print(f"campaign {name} ended with {done.returncode}", file=sys.stderr)
    return done.returncode in (0, 1)


def system(name: str, url: str) -> str:
    return f'[[system]]\nname = "{name}"\nplace = "{url}/bench"\nprocesses = {json.dumps(["weir"])}\n'


def on_nodes(builds: dict[str, type[Build]], options: argparse.Namespace) -> bool:
    with ExitStack() as stack:
        lines = ""
        for name, build in builds.items():
            home = options.dir / f"node-{name}"
            shutil.rmtree(home, ignore_errors=True)
            server = stack.enter_context(build(home).start())
            stack.callback(shutil.rmtree, home, ignore_errors=True)
            subprocess.run([WEIR_BIN, "mkdir", f"{server.url}/bench"], check=True)
            lines += system(name, server.url)
        return all([campaign(name, lines, options) for name in CAMPAIGNS["node"]])


def on_clusters(builds: dict[str, type[Build]], options: argparse.Namespace) -> bool:
    with ExitStack() as stack:
        lines = ""
        for name, build in builds.items():
            cluster = stack.enter_context(LocalCluster(options.dir / f"cluster-{name}", binary=build.binary))
            cluster.directory("/bench", "replica(2)")
            lines += system(name, cluster.url)
        return all([campaign(name, lines, options) for name in CAMPAIGNS["cluster"]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True, help="the other build's binary")
    parser.add_argument("--only", action="append", choices=PARTS, help="measure this part alone; may be repeated")
    parser.add_argument("--runs", type=int, default=5, help="alternating runs of the rows of stock clients")
    parser.add_argument("--files", type=int, default=run.FILES, help="small files a run")
    parser.add_argument("--dir", type=Path, default=BUILD / "compare", help="where the servers keep their data: a real disk")
    options = parser.parse_args()
    options.dir = options.dir.absolute()
    options.dir.mkdir(parents=True, exist_ok=True)
    builds = {NOW: Build, BEFORE: type("Before", (Build,), {"binary": str(options.before.absolute())})}
    wanted = options.only or PARTS
    of_clients = [part for part in wanted if part not in CAMPAIGNS]
    bad = measured(of_clients, builds, options) if of_clients else []
    ran = [on(builds, options) for part, on in (("node", on_nodes), ("cluster", on_clusters)) if part in wanted]
    if bad:
        print(f"worse by more than {WORSE:.0%}, outside the spread: {', '.join(bad)}")
    sys.exit(1 if bad or not all(ran) else 0)


if __name__ == "__main__":
    main()
