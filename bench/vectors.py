"""Vector reads as analysis makes them: many short segments at random places of one large file that is in memory."""

import json
from pathlib import Path

import measure
import rows
from harness import Server

CLIENTS, SEGMENTS, BYTES = 8, 512, 8192
REQUESTS = 800  # of 4 MiB: CPU time is counted in steps of 10 ms


def readv(servers: dict[str, Server], runs: int, source: Path, figures: rows.Figures) -> None:
    load = measure.load_program()
    for server in servers.values():
        measure.run(["xrdcp", "-s", str(source), f"{server.url}/vectors"])
    numbers = [CLIENTS, REQUESTS, SEGMENTS, BYTES]
    for number in range(runs):
        for system, server in measure.alternate(servers, number):
            measure.run(["xrdcp", "-s", "-f", f"{server.url}/vectors", "/dev/null"])  # so that it is in memory
            with measure.Cpu(server) as cpu:
                result = json.loads(measure.run([str(load), f"{server.url}/vectors", "readv", *map(str, numbers), str(source)]))
            moved = result["ops"] * SEGMENTS * BYTES
            figures.add("readv-cpu", system, moved / cpu.seconds / 1e6)
            figures.add("readv-rate [MB/s]", system, moved / result["seconds"] / 1e6)
            figures.add("readv-p99 [us]", system, result["p99_us"])
            print(
                f"run {number} {system:8} readv   {moved / result['seconds'] / 1e6:8.0f} MB/s  {moved / cpu.seconds / 1e6:8.0f} MB/CPU-s",
                flush=True,
            )
    for server in servers.values():
        measure.run(["xrdfs", server.url, "rm", "/vectors"])
    figures.commands["readv-cpu"] = f"xrdload root://HOST//vectors readv {' '.join(map(str, numbers))} {source}"
