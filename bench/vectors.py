"""Vector reads as analysis makes them: many short segments at random places of one large file that is in memory."""

import json
from pathlib import Path

import machine
import measure
import rows
from harness import Server

CLIENTS, SEGMENTS, BYTES = 8, 512, 8192
REQUESTS = 800  # of 4 MiB: CPU time is counted in steps of 10 ms


# One client: the segments of a request and their bytes; enough requests that the processor time, counted in steps of 10 ms, says something.
ALONE = {"16k": (200, 16384), "8k": (512, 8192)}
WARM, COLD = 240, 24


def alone(server: Server, name: str, requests: int, source: Path) -> tuple[float, float]:
    """Wall and CPU seconds for each GB that one client reads."""
    segments, size = ALONE[name]
    with measure.Cpu(server) as cpu:
        command = [str(measure.load_program()), f"{server.url}/vectors", "readv", "1", str(requests), str(segments), str(size), str(source)]
        result = json.loads(measure.run(command))
    gigabytes = result["ops"] * segments * size / 1e9
    return result["seconds"] / gigabytes, cpu.seconds / gigabytes


def readv(servers: dict[str, Server], runs: int, source: Path, figures: rows.Figures) -> None:
    load = measure.load_program()
    for server in servers.values():
        # Twice: weir has memory for all of what was written recently from the second time on.
        for _ in range(2):
            measure.run(["xrdcp", "-s", "-f", str(source), f"{server.url}/vectors"])
    numbers = [CLIENTS, REQUESTS, SEGMENTS, BYTES]
    for number in range(runs):
        for system, server in measure.alternate(servers, number):
            measure.run(["xrdcp", "-s", "-f", f"{server.url}/vectors", "/dev/null"])  # so that it is in memory
            for name in ALONE:
                wall, seconds = alone(server, name, WARM, source)
                figures.add(f"readv-{name}-wall", system, wall)
                figures.add(f"readv-{name}-cpu", system, seconds)
                print(f"run {number} {system:8} readv {name} warm {wall:6.3f} s/GB  {seconds:6.3f} CPU-s/GB", flush=True)
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
    for number in range(runs):
        for system, server in measure.alternate(servers, number):
            for name in ALONE:
                machine.drop_caches(server)
                wall, _ = alone(server, name, COLD, source)
                figures.add(f"readv-{name}-cold", system, wall)
                print(f"run {number} {system:8} readv {name} cold {wall:6.3f} s/GB", flush=True)
    for server in servers.values():
        measure.run(["xrdfs", server.url, "rm", "/vectors"])
    figures.commands["readv-cpu"] = f"xrdload root://HOST//vectors readv {' '.join(map(str, numbers))} {source}"
