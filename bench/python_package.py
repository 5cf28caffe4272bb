#!/usr/bin/env python3
"""Measures uproot over the Python package and over fsspec-xrootd, on one weir node, at once and behind a delay:

    WEIR_BIN=target/release/weir .venv/bin/python bench/python_package.py [--runs 5] [--delay-ms 6] [--clusters 60] [--events 5000]

Each run is a process of its own that opens a file and reads 10 of its 120 branches, one cluster after the other. Prints the medians.
Then a job that computes for 20 ms for each MB of its arrays, over a local file and behind the delay: CPU time a second of each.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import numpy as np
import uproot
from harness import Weir, weir
from wheel import Environment, make_wheel

READ = """
import json, sys, time, uproot
protocol, url, events, per_mb = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
if protocol == "weir": import weir
names, count, begin = [f"b{number:03}" for number in range(5, 120, 12)], 0, time.perf_counter()
with uproot.open(f"{protocol}://{url}") as file:
    tree = file["Events"]
    opened, used = time.perf_counter(), time.process_time()
    for step in tree.iterate(names, step_size=events, library="np"):
        count += len(step[names[0]])
        until = time.perf_counter() + per_mb * sum(array.nbytes for array in step.values()) / 1e6
        while time.perf_counter() < until: pass
end = time.perf_counter()
print(json.dumps([opened - begin, count / (end - opened), count / (end - begin), (time.process_time() - used) / (end - opened)]))
"""
COMPUTE_SECONDS_PER_MB = 0.02


class Delay:
    """Forwards to a port, and delays each direction. It counts the bytes."""

    def __init__(self, target: int, seconds: float):
        self.target, self.seconds, self.bytes = target, seconds, 0
        self.loop, self.port = asyncio.new_event_loop(), 0
        ready = threading.Event()
        threading.Thread(target=self._run, args=(ready,), daemon=True).start()
        ready.wait()

    def _run(self, ready: threading.Event) -> None:
        async def main() -> None:
            server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 20)
            self.port = server.sockets[0].getsockname()[1]
            ready.set()
            await server.serve_forever()

        self.loop.run_until_complete(main())

    async def _serve(self, reader, writer) -> None:
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self.target)
        await asyncio.gather(self._pump(reader, server_writer), self._pump(server_reader, writer), return_exceptions=True)
        writer.close()
        server_writer.close()

    async def _pump(self, reader, writer) -> None:
        late: asyncio.Queue = asyncio.Queue()

        async def send() -> None:
            while (item := await late.get()) is not None:
                due, data = item
                await asyncio.sleep(max(0.0, due - self.loop.time()))
                self.bytes += len(data)
                writer.write(data)
                await writer.drain()
            writer.write_eof()

        sending = asyncio.create_task(send())
        while data := await reader.read(1 << 18):
            late.put_nowait((self.loop.time() + self.seconds, data))
        late.put_nowait(None)
        await sending


def write(path: Path, clusters: int, events: int) -> None:
    """A file whose baskets differ in size from branch to branch, and a little from cluster to cluster."""
    rng = np.random.default_rng(1)
    with uproot.recreate(path, compression=uproot.LZ4(1)) as file:
        tree = file.mktree("Events", {f"b{number:03}": np.float32 for number in range(120)})
        for _ in range(clusters):
            rows = {f"b{number:03}": np.round(rng.normal(size=events), 1 + number % 3) for number in range(120)}
            tree.extend({name: values.astype(np.float32) for name, values in rows.items()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--delay-ms", type=float, default=6, help="each way")
    parser.add_argument("--clusters", type=int, default=60)
    parser.add_argument("--events", type=int, default=5000, help="in a cluster")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as folder:
        home = Path(folder)
        environment = Environment(home / "venv", make_wheel())
        write(home / "events.root", options.clusters, options.events)
        with Weir(home / "node") as node:
            assert weir("cp", str(home / "events.root"), f"{node.url}/events.root").returncode == 0
            proxy = Delay(node.port, options.delay_ms / 1000)
            for name, port in [("no delay", node.port), (f"{2 * options.delay_ms:g} ms round trip", proxy.port)]:
                rates = {}
                for protocol in ("root", "weir"):
                    before, runs = proxy.bytes, []
                    for _ in range(options.runs):
                        runs.append(json.loads(environment.run(READ, protocol, f"127.0.0.1:{port}//events.root", str(options.events), "0")))
                    opened, rate, whole, _ = map(statistics.median, zip(*runs, strict=True))
                    rates[protocol] = (rate, whole)
                    moved = (proxy.bytes - before) / options.runs / 1e6
                    client = "weir" if protocol == "weir" else "fsspec-xrootd"
                    rest = f"{rate:,.0f} events/s, {whole:,.0f} with the open, {moved:.1f} MB by the proxy"
                    print(f"{name}: {client}: open {opened:.3f} s, {rest}", flush=True)
                ratios = [mine / theirs for mine, theirs in zip(rates["weir"], rates["root"], strict=True)]
                print(f"{name}: {ratios[0]:.2f} times the events/s, {ratios[1]:.2f} with the open")
            compute(environment, home / "events.root", proxy.port, options)


def compute(environment: Environment, path: Path, port: int, options: argparse.Namespace) -> None:
    """A job that computes, over a local file and behind the delay, in turns. Reading ahead takes CPU time, too: see the rate."""
    found: dict[str, list] = {"file": [], "weir": []}
    for _ in range(options.runs):
        for protocol, where in (("file", path), ("weir", f"127.0.0.1:{port}//events.root")):
            arguments = (protocol, str(where), str(options.events), str(COMPUTE_SECONDS_PER_MB))
            found[protocol].append(json.loads(environment.run(READ, *arguments)))
    (_, rate, whole, cpu), (_, far_rate, far_whole, far_cpu) = (map(statistics.median, zip(*runs, strict=True)) for runs in found.values())
    print(f"20 ms a MB: local file {rate:,.0f} events/s, {cpu:.2f} CPU-s a second; weir behind the delay {far_rate:,.0f}, {far_cpu:.2f}")
    print(f"20 ms a MB: {far_rate / rate:.2f} times the local rate, {far_whole / whole:.2f} with the open; CPU {far_cpu / cpu:.2f}")


if __name__ == "__main__":
    main()
