"""How fast a cluster of four disk servers is: six streams beside a bare sink, opens that are redirected, creates of small files."""

import json
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import measure
import streams
from clusters import DISKS, LocalCluster, Processes, XrootdCluster, single
from harness import WEIR_BIN, Weir, Xrootd
from streams import STREAMS

BYTES = 256 << 20  # of each stream
STREAM_RUNS, OPEN_RUNS = 5, 5
FILES, DIRS, SMALL, PASSES, THREADS = 2000, 20, 4096, 5, 8
CREATED = 2000
BATCH_CLIENTS, BATCHED, BATCH_RUNS = 4, 5000, 3
TREE = 20_000  # files of a tree that is copied in batches
SIMULATIONS, SEEDS = 3, 200
COPIED, COPY_RUNS = 64 << 20, 3
PAUSE_SECONDS = 2


def add(samples: dict, key: str, value: float) -> None:
    samples.setdefault(key, []).append(value)


def alternately(number: int, all_of: list) -> list:
    """Another one first each time."""
    at = number % len(all_of)
    return all_of[at:] + all_of[:at]


class Used:
    """CPU time that the nodes of a cluster and the commands of this process use, from its making on; for each of what is done."""

    def __init__(self, cluster: LocalCluster):
        measure.settle(cluster.everybody)
        self.cluster, self.nodes = cluster, {name: Processes(node["pid"]) for name, node in cluster.nodes.items()}
        self.before = {name: node.cpu_seconds() for name, node in self.nodes.items()}
        self.children = os.times()

    def tell(self, samples: dict, what: str, each: float) -> None:
        ended = os.times()
        client = ended.children_user + ended.children_system - self.children.children_user - self.children.children_system
        measure.settle(self.cluster.everybody)
        add(samples, f"{what} client CPU", client / each)
        servers = {name: (node.cpu_seconds() - self.before[name]) / each for name, node in self.nodes.items()}
        add(samples, f"{what} manager CPU", servers.pop("manager"))
        add(samples, f"{what} servers CPU", sum(servers.values()))
        samples.setdefault(f"{what} each server's CPU", []).append([round(value, 3) for value in servers.values()])


def six_streams(cluster: LocalCluster, folder: Path, samples: dict) -> None:
    """`weir cp` of six files at once, to `replica(1)` and to `replica(2) sync=2`, and the same bytes into a bare sink: receive, CRC32C,
    direct writes, a sync. Until all is durable."""
    sink, sunk = measure.build_example("weir-store", "sink_bench"), folder / "sunk"
    gigabytes = STREAMS * BYTES / 1e9

    def even() -> None:
        shutil.rmtree(sunk, ignore_errors=True)
        sunk.mkdir(parents=True)
        measure.settle(cluster.everybody)
        os.sync()
        time.sleep(PAUSE_SECONDS)

    with measure.random_source(BYTES) as source:

        def bare() -> float:
            return streams.into_sink(sink, str(source), str(sunk), BYTES)

        def into(directory: str, number: int, copies: int) -> float:
            targets = [f"{cluster.url}{directory}/stream-{number}-{stream}" for stream in range(STREAMS)]
            used, begun = Used(cluster), time.monotonic()
            streams.together([[str(WEIR_BIN), "cp", "-q", str(source), target] for target in targets])
            wall = time.monotonic() - begun
            used.tell(samples, directory, gigabytes)
            measure.run([str(WEIR_BIN), "rm", *targets])
            return STREAMS * BYTES * copies / wall / 1e6

        work: list[tuple[str, Callable[[int], float]]] = [
            ("sink", lambda _: bare()),
            ("one", lambda number: into("one", number, 1)),
            ("two", lambda number: into("two", number, 2)),
        ]
        for number in range(STREAM_RUNS):
            for name, does in alternately(number, work):
                even()
                add(samples, f"{name} MB/s", does(number))
            rates = {name: samples[f"{name} MB/s"][-1] for name, _ in work}
            for name in ("one", "two"):
                add(samples, f"{name} / sink", rates[name] / rates["sink"])
            add(samples, "two / one", rates["two"] / rates["one"])
            print("streams", number, {name: round(rate) for name, rate in rates.items()}, flush=True)
    shutil.rmtree(sunk, ignore_errors=True)


def by_xrdcp(cluster: LocalCluster, xrootd: XrootdCluster, samples: dict) -> None:
    """Six of the stock client at once, to new files and back: at both clusters of its protocol."""
    with measure.random_source(COPIED) as source:
        for number in range(COPY_RUNS):
            for name, url, everybody in alternately(
                number, [("weir", f"{cluster.url}/one", cluster.everybody), ("xrootd", xrootd.url, xrootd.everybody)]
            ):
                targets = [f"{url}/copied-{number}-{stream}" for stream in range(STREAMS)]
                measure.settle(everybody)
                os.sync()
                for phase, commands in (
                    ("write", [["xrdcp", "-s", str(source), target] for target in targets]),
                    ("read", [["xrdcp", "-s", "-f", target, "/dev/null"] for target in targets]),
                ):
                    add(samples, f"{name} xrdcp {phase} MB/s", STREAMS * COPIED / streams.together(commands) / 1e6)
            print("xrdcp", number, {key: round(values[-1]) for key, values in samples.items()}, flush=True)


def load(url: str, phase: str, threads: int, files: int, passes: int = 1) -> dict:
    numbers = (threads, files, DIRS, SMALL, passes)
    return json.loads(measure.run([str(measure.load_program()), url, phase, *map(str, numbers)]))


def small_files(cluster: LocalCluster, xrootd: XrootdCluster, folder: Path, samples: dict) -> None:
    """open+read+close by the stock client with eight threads, and what it costs who only redirects; beside single nodes."""
    with Weir(folder / "single-weir").start() as node, Xrootd(folder / "single-xrootd").start() as server:
        # Who is asked, where, and whose CPU time counts as that of who redirects, and of all.
        asked = {
            "weir": (f"{cluster.url}/one", cluster.manager, cluster.everybody),
            "single weir": (f"{node.url}/one", single(node), single(node)),
            "xrootd": (f"{xrootd.url}/one", xrootd.redirector, xrootd.everybody),
            "single xrootd": (f"{server.url}/one", single(server), single(server)),
        }
        creates(asked, samples)
        batches({"one": f"{cluster.url}/one", "two": f"{cluster.url}/two", "single": f"{node.url}/one"}, folder, samples)
        trees(cluster, folder, samples)
        by_hand(xrootd)
        for name, (url, _, _) in asked.items():
            result = load(url, "read", THREADS, FILES)  # everybody knows where they are
            print("warm", name, result, flush=True)
        for number in range(OPEN_RUNS):
            for name in alternately(number, list(asked)):
                url, door, everybody = asked[name]
                measure.settle(everybody)
                before = (door.cpu_seconds(), everybody.cpu_seconds())
                children = os.times()
                result = load(url, "read", THREADS, FILES, PASSES)
                ended = os.times()
                measure.settle(everybody)
                client = ended.children_user + ended.children_system - children.children_user - children.children_system
                add(samples, f"{name} reads/s", result["rate"])
                add(samples, f"{name} client CPU us", client / result["ops"] * 1e6)
                add(samples, f"{name} door CPU us", (door.cpu_seconds() - before[0]) / result["ops"] * 1e6)
                add(samples, f"{name} CPU us", (everybody.cpu_seconds() - before[1]) / result["ops"] * 1e6)
                costs = [round(samples[f"{name} {key}"][-1], 1) for key in ("door CPU us", "CPU us")]
                print(f"reads {number} {name}: {result['rate']:.0f}/s, CPU us each of who redirects and of all: {costs}", flush=True)
            for kind in ("weir", "xrootd"):
                add(samples, f"{kind} reads / single", samples[f"{kind} reads/s"][-1] / samples[f"single {kind} reads/s"][-1])
    for name in ("single-weir", "single-xrootd"):
        shutil.rmtree(folder / name, ignore_errors=True)


def creates(asked: dict, samples: dict) -> None:
    """Files of 4 KiB one by one: each is open, write, close; by one thread, and by eight."""
    for name in ("weir", "single weir", "single xrootd"):
        url, door, everybody = asked[name]
        for threads in (1, THREADS):
            measure.settle(everybody)
            before = (door.cpu_seconds(), everybody.cpu_seconds())
            result = load(f"{url}/create{threads}", "create", threads, CREATED)
            measure.settle(everybody)
            add(samples, f"{name} creates/s by {threads}", result["rate"])
            add(samples, f"{name} create door CPU us by {threads}", (door.cpu_seconds() - before[0]) / CREATED * 1e6)
            add(samples, f"{name} create CPU us by {threads}", (everybody.cpu_seconds() - before[1]) / CREATED * 1e6)
            print("creates", name, threads, result, flush=True)
        load(url, "create", THREADS, FILES)


def batches(places: dict[str, str], folder: Path, samples: dict) -> None:
    """Files of 4 KiB by weir's own client, hundreds in one request, each durable when it is answered."""
    for number in range(BATCH_RUNS):
        for name in alternately(number, list(places)):
            rate = batched(places[name], folder, BATCH_CLIENTS, BATCHED)
            add(samples, f"{name} batched creates/s", rate)
            print("batches", number, name, round(rate), flush=True)


def trees(cluster: LocalCluster, folder: Path, samples: dict) -> None:
    """What batches cost whom: a tree of small files by one `weir cp -r`, each durable when it is answered; microseconds a file."""
    tree = folder / "tree"
    for number in range(TREE):
        path = tree / f"d{number % DIRS}/f{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(SMALL))
    for number in range(BATCH_RUNS):
        for directory in alternately(number, ["one", "two"]):
            target = f"{cluster.url}/{directory}/tree-{number}"
            used = Used(cluster)
            measure.run([str(WEIR_BIN), "cp", "-q", "-r", str(tree), target])
            used.tell(samples, f"{directory} batched create", TREE / 1e6)
            measure.run([str(WEIR_BIN), "rm", "-r", target])
        told = {key: round(values[-1], 1) for key, values in samples.items() if "batched create" in key and "each" not in key}
        print("trees", number, told, flush=True)
    shutil.rmtree(tree, ignore_errors=True)


def batched(place: str, folder: Path, clients: int, files: int) -> float:
    """Files a second that a campaign's clients make at `place`, where they make and remove `files` each."""
    campaign, results = folder / "batches.toml", folder / "batches"
    shutil.rmtree(results, ignore_errors=True)
    campaign.write_text(f"""name = "batches"
repeats = 1
[[system]]
name = "weir"
place = "{place}"
[[small]]
name = "batches"
batch = true
clients = {clients}
files = {files}
file = "4KiB"
""")
    measure.run([str(WEIR_BIN), "bench", "run", "-q", str(campaign), "--results", str(results)])
    records = map(json.loads, (results / "trials.jsonl").read_text().splitlines())
    (trial,) = [record for record in records if "system" in record]
    made = next(phase["measured"] for phase in trial["phases"] if phase["phase"] == "create")
    assert made["tally"]["operations"] == clients * files, made
    return made["tally"]["operations"] / made["wall_s"]


def by_hand(xrootd: XrootdCluster) -> None:
    """The files of XRootD's cluster, a quarter at each data server: through the redirector each would wait for seconds."""
    for number in range(FILES):
        path = xrootd.data(number % DISKS) / f"one/d{number % DIRS}/f{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(SMALL))


def simulator(samples: dict) -> None:
    """Seeds of the simulation on one core: four servers and four clients for 60 simulated seconds each, with all faults."""
    measure.run(["cargo", "build", "--release", "--locked", "-q", "-p", "weir-sim"], cwd=measure.ROOT)
    program = measure.TARGET / "release/weir-sim"
    for number in range(SIMULATIONS):
        first = number * SEEDS
        begun = time.monotonic()
        told = measure.run(["taskset", "-c", "0", str(program), "--from", str(first), "--to", str(first + SEEDS)])
        wall = time.monotonic() - begun
        found = re.search(r": (\d+) events, (\d+) messages", told)
        assert found, told
        add(samples, "sim events/s", int(found[1]) / wall)
        add(samples, "sim messages/s", int(found[2]) / wall)
        print("simulator", told.strip(), flush=True)
