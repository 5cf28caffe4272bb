#!/usr/bin/env python3
"""Striped files by `weir cp` straight to and from the servers of the units, beside a client that lets one server put the file together
(an earlier weir, `--relayed BINARY`, or else xrdcp): wall time, and CPU time of the client and of all nodes, for a file of
`stripe(4, 4MiB)`."""

import argparse
import os
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "bench")]

import measure  # noqa: E402
from clusters import LocalCluster  # noqa: E402
from copies import timed  # noqa: E402
from harness import WEIR_BIN  # noqa: E402

BYTES = 1 << 30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="for the cluster's data; it is removed again")
    parser.add_argument("--relayed", help="the weir that knows of no units")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    relayed = [options.relayed, "cp", "-q"] if options.relayed else ["xrdcp", "-s"]
    clients = {"direct": [str(WEIR_BIN), "cp", "-q"], "relayed": relayed}
    found: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    with LocalCluster(options.folder) as cluster, measure.random_source(BYTES) as source:
        cluster.directory("/d", "stripe(4, 4MiB)")
        nodes = cluster.everybody
        for number in range(options.runs):
            for name in sorted(clients, reverse=bool(number % 2)):
                path = f"{cluster.url}d/{name}{number}"
                for way, ends in (("up", [str(source), path]), ("down", [path, "/dev/shm/weir-stripes-back"])):
                    os.sync()
                    time.sleep(1)
                    before = nodes.cpu_seconds()
                    wall, cpu = timed([*clients[name], *ends])
                    found.setdefault((way, name), []).append((wall, cpu, nodes.cpu_seconds() - before))
                os.unlink("/dev/shm/weir-stripes-back")
                measure.run(["xrdfs", cluster.url.rstrip("/"), "rm", f"/d/{name}{number}"])
    gigabytes = BYTES / 1e9
    heads = ("way", "client", "MB/s (median, least to most)", "CPU s/GB of the client", "CPU s/GB of all nodes")
    print(f"| {' | '.join(heads)} |\n{'| --- ' * len(heads)}|")
    for (way, name), runs in sorted(found.items()):
        rates = sorted(BYTES / 1e6 / wall for wall, _, _ in runs)
        client, server = (statistics.median(run[which] for run in runs) / gigabytes for which in (1, 2))
        print(f"| {way} | {name} | {statistics.median(rates):.0f} ({rates[0]:.0f} to {rates[-1]:.0f}) | {client:.2f} | {server:.2f} |")


if __name__ == "__main__":
    main()
