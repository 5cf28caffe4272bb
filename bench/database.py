#!/usr/bin/env python3
"""
What a manager on PostgreSQL does in a second, beside one with the embedded engine, in alternating runs on one machine. Each has two disk
servers. PostgreSQL has its defaults: it syncs each commit. Prints the table, and writes bench/DATABASE.md if all was measured:

    bench/database.py --only batches  files of 4 KiB by weir's own client, hundreds in one request
    bench/database.py --only phases   create, stat and open+read+close by 8 threads of the stock client
    bench/database.py --only listing  a directory of 100,000 entries with attributes, by weir's own client
    bench/database.py --only growth   creates in a database that grows to --files files, and bytes a file
    bench/database.py --only scale    two and three managers beside one, on a database that answers late
    bench/database.py --only pauses   how long clients of three managers wait when one of them, or the database's primary, is killed
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import cluster_rates  # noqa: E402
import machine  # noqa: E402
import manager_pauses  # noqa: E402
import several_managers  # noqa: E402
from cluster import Cluster  # noqa: E402
from clusters import Processes  # noqa: E402
from harness import WEIR_BIN  # noqa: E402
from measure import ROOT, load_program, run, settle  # noqa: E402
from postgres import Postgres  # noqa: E402
from tables import Table  # noqa: E402

CLIENTS, BATCHED = 4, 5000
THREADS, FILES, DIRS, BYTES = 8, 10_000, 100, 4096
PASSES = {"create": 1, "stat": 4, "read": 2}
ENTRIES = 100_000
# Trees of empty files that one `weir cp` copies, and how many of them are measured at the beginning and at the end.
TREE, TREES_MEASURED = 50_000, 3
GROWTH, SCALE, PAUSES = "growth", "scale", "pauses"
SYSTEMS = ["PostgreSQL", "embedded"]
BARS = {
    "batches: creates [1/s]": "at least 0.3",
    "create by 8 threads [1/s]": "at least 0.5",
    "stat by 8 threads [1/s]": "at least 0.8",
    "read by 8 threads [1/s]": "at least 0.7",
    "listing [entries/s]": "at least 100,000 entries/s",
    "creates [1/s]": "at least 0.8",
    "bytes a file": "at most 600",
}

Clusters = dict[str, Cluster]


def in_turns(clusters: Clusters, number: int) -> list[tuple[str, Cluster]]:
    pairs = list(clusters.items())
    return pairs if number % 2 == 0 else pairs[::-1]


def quiet(clusters: Clusters) -> None:
    """Waits until nobody works any more."""
    settle(Processes(*(node.process.pid for cluster in clusters.values() for node in cluster.nodes)))


def batches(table: Table, clusters: Clusters, home: Path, runs: int) -> None:
    for number in range(runs):
        for system, cluster in in_turns(clusters, number):
            place = f"{cluster.url}/batches-{number}"
            run([str(WEIR_BIN), "mkdir", place])
            quiet(clusters)
            rate = cluster_rates.batched(place, home, CLIENTS, BATCHED)
            table.add("batches: creates [1/s]", system, rate)


def phases(table: Table, clusters: Clusters, _home: Path, runs: int) -> None:
    for number in range(runs):
        for system, cluster in in_turns(clusters, number):
            for phase, passes in PASSES.items():
                quiet(clusters)
                numbers = map(str, (THREADS, FILES, DIRS, BYTES, passes))
                result = json.loads(run([str(load_program()), f"{cluster.url}/phases-{number}", phase, *numbers]))
                table.add(f"{phase} by {THREADS} threads [1/s]", system, result["rate"])


def listing(table: Table, clusters: Clusters, home: Path, runs: int) -> None:
    tree = home / "tree"
    tree.mkdir()
    for number in range(ENTRIES):
        (tree / f"entry-{number:06}").touch()
    for cluster in clusters.values():
        run([str(WEIR_BIN), "cp", "-q", "-r", str(tree), f"{cluster.url}/listing"])
    for number in range(runs):
        for system, cluster in in_turns(clusters, number):
            quiet(clusters)
            begin = time.monotonic()
            listed = run([str(WEIR_BIN), "ls", "-l", f"{cluster.url}/listing"])
            table.add("listing [entries/s]", system, ENTRIES / (time.monotonic() - begin))
            assert listed.count("\n") >= ENTRIES, listed[:1000]


def growth(home: Path, files: int) -> str:
    """Copies one tree again and again. The files are empty, so that the names are all that grows."""
    tree = home / "grows"
    for number in range(TREE):
        path = tree / f"d{number % 50}/file-{number:06}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    rates = []
    with Postgres(home / "growing") as postgres:
        name = postgres.create_database()
        url = postgres.url(database=name)
        subprocess.run([str(WEIR_BIN), "db", "init", "--database", url], check=True)

        def size() -> int:
            return int(postgres.psql(f"select pg_database_size('{name}')"))

        with Cluster(home / "grown", 1, database=url) as cluster:
            before = size()
            for number in range(max(files // TREE, 2 * TREES_MEASURED)):
                begin = time.monotonic()
                run([str(WEIR_BIN), "cp", "-q", "-r", str(tree), f"{cluster.url}/tree-{number}"])
                rates.append(TREE / (time.monotonic() - begin))
                print(f"{(number + 1) * TREE} files: {rates[-1]:.0f} creates/s", flush=True)
            postgres.psql("vacuum", database=name)
            each = (size() - before) / (len(rates) * TREE)
    full, empty = rates[-TREES_MEASURED:], rates[:TREES_MEASURED]
    count, measured = len(rates) * TREE, TREES_MEASURED * TREE
    table = Table(f"A database that grows to {count:,} files: the last {measured:,} beside the first", ["full", "empty"], BARS)
    for system, values in (("full", full), ("empty", empty)):
        for value in values:
            table.add("creates [1/s]", system, value)
    sizes = Table("Its size, after a vacuum", ["full"], BARS)
    sizes.add("bytes a file", "full", each)
    return "\n".join([table.markdown(), sizes.markdown()])


PARTS: dict[str, Callable[[Table, Clusters, Path, int], None]] = {"batches": batches, "phases": phases, "listing": listing}


def rates(parts: list[str], home: Path, runs: int) -> Table:
    table = Table("One manager on PostgreSQL beside the embedded engine", SYSTEMS, BARS)
    with Postgres(home / "postgres") as postgres:
        url = postgres.url(database=postgres.create_database())
        subprocess.run([str(WEIR_BIN), "db", "init", "--database", url], check=True)
        with Cluster(home / "database", 2, database=url) as database, Cluster(home / "embedded", 2) as embedded:
            clusters = dict(zip(SYSTEMS, (database, embedded), strict=True))
            for part in parts:
                PARTS[part](table, clusters, home, runs)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=[*PARTS, GROWTH, SCALE, PAUSES], help="measure this part alone; may be repeated")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--files", type=int, default=10_000_000, help="how many files the part `growth` makes; at least 300,000")
    options = parser.parse_args()
    chosen = options.only or [*PARTS, GROWTH, SCALE, PAUSES]
    tables = []
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as folder:
        home = Path(folder)
        home.chmod(0o755)
        if parts := [part for part in chosen if part in PARTS]:
            tables.append(rates(parts, home, options.runs).markdown())
        if GROWTH in chosen:
            tables.append(growth(home, options.files))
        if SCALE in chosen:
            tables.append(several_managers.scale(home, options.runs).markdown())
        if PAUSES in chosen:
            tables.append(manager_pauses.pauses(home, options.runs).markdown())
        about = "; ".join(f"{key}: {value}" for key, value in machine.describe(home, ROOT).items())
    print("\n".join(tables), flush=True)
    if not options.only:
        how = f"`make bench-database`, {date.today()}, {options.runs} runs in turns: medians, and the least to the most."
        (ROOT / "bench/DATABASE.md").write_text("\n".join([f"# A manager on PostgreSQL\n\n{how}\n{about}.\n", *tables]))


if __name__ == "__main__":
    main()
