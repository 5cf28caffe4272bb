"""Six streams to one node: `weir cp` into weir beside a bare sink that receives, sums and writes; the sink beside iperf3 and fio."""

import argparse
import json
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import machine
import measure
import rows
from harness import WEIR_BIN, Server, Weir

STREAMS = 6
BYTES = 512 << 20  # of each
BLOCK = 8 << 20  # that the sink writes at a time
# Before each measurement: a disk that is told what was deleted (mounted with `discard`) is busy with it after the sync has come back.
PAUSE_SECONDS = 5
# More than a bare sink can only be reached while something held that up.
SHARE_MAX = 1.1
PEER_SHARE_MIN = 0.95
FIO_HUGE_PAGES = STREAMS * 8  # of 2 MiB: a buffer of 8 MiB for each, and room


def together(commands: list[list[str]]) -> float:
    """Seconds until the last of some commands that begin at the same time has ended."""
    begin = time.monotonic()
    running = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for command in commands]
    codes = [process.wait() for process in running]
    wall = time.monotonic() - begin
    if any(codes):
        raise SystemExit(f"failed ({codes}): {' '.join(commands[0])}")
    return wall


def into_sink(sink: Path, source: str, folder: str, size: int = BYTES) -> float:
    """MB/s of six senders into a sink; `-` for a source in memory, and for one that keeps nothing."""
    with subprocess.Popen([str(sink), "receive", str(STREAMS), str(size), folder], stdout=subprocess.PIPE, text=True) as receiver:
        assert receiver.stdout is not None
        port = receiver.stdout.readline().strip()
        wall = together([[str(sink), "send", port, str(size), source]] * STREAMS)
    return STREAMS * size / wall / 1e6


def made_even(folder: Path, server: Server) -> Path:
    """The same state before each measurement, whichever was before: nothing lies in the sink's folder, what was deleted there and by the
    node is given back, and nobody is at work any more."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    measure.settle(server)
    os.sync()
    time.sleep(PAUSE_SECONDS)
    return folder


def by_fio(folder: Path) -> float:
    """MB/s of the same writes; from huge pages if there are any, as the sink does it."""
    command = ["fio", "--name=sink", f"--directory={folder}", "--ioengine=psync", "--direct=1", "--rw=write"]
    command += [f"--bs={BLOCK}", f"--size={BYTES}", f"--numjobs={STREAMS}", "--thread", "--group_reporting", "--end_fsync=1"]
    command += ["--output-format=json"]
    with machine.huge_pages(FIO_HUGE_PAGES) as there:
        result = json.loads(measure.run([*command, *(["--mem=shmhuge", "--hugepage-size=2m"] if there else [])]))
    return result["jobs"][0]["write"]["bw_bytes"] / 1e6


def by_iperf3() -> float:
    """MB/s of as many bytes through as many sockets."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with subprocess.Popen(["iperf3", "-s", "-1", "-p", str(port)], stdout=subprocess.DEVNULL) as server:
        time.sleep(0.5)
        command = ["iperf3", "-c", "127.0.0.1", "-p", str(port), "-P", str(STREAMS), "-n", str(STREAMS * BYTES), "-l", "1M", "-J"]
        result = json.loads(measure.run(command))
        server.wait(10)
    return result["end"]["sum_received"]["bits_per_second"] / 8e6


def judge(figures: rows.Figures) -> None:
    """Whether the share counts: the sink has to be as good as others that do its work, and no node can be much better than it."""
    for check, peer in (("bare sink's writes / fio", "fio"), ("bare sink's sockets / iperf3", "iperf3")):
        share = rows.statistics.median(figures.samples[check]["weir"])
        if share < PEER_SHARE_MIN:
            figures.invalid["streams-share"] = f"{check.partition(' / ')[0]} are at {share:.2f} of {peer}"
    share = rows.statistics.median(figures.samples["streams-share"]["weir"])
    if share > SHARE_MAX:
        figures.invalid["streams-share"] = f"the bare sink was held up: the node is at {share:.2f} of it"


def streams(folder: Path, options: argparse.Namespace, figures: rows.Figures) -> None:
    sink = measure.build_example("weir-store", "sink_bench")
    sunk = folder / "sunk"
    with measure.random_source(BYTES) as source, Weir(folder / "server").start() as server:

        def node(number: int) -> float:
            made_even(sunk, server)
            targets = [f"{server.url}/stream-{number}-{stream}" for stream in range(STREAMS)]
            wall = together([[str(WEIR_BIN), "cp", "-q", str(source), target] for target in targets])
            measure.run([str(WEIR_BIN), "rm", *targets])
            return STREAMS * BYTES / wall / 1e6

        def bare_sink() -> float:
            return into_sink(sink, str(source), str(made_even(sunk, server)))

        for number in range(options.runs):
            if number % 2 == 0:
                ours, bare = node(number), bare_sink()
            else:
                bare, ours = bare_sink(), node(number)
            alone = measure.run([str(sink), "write", str(STREAMS), str(BYTES), str(made_even(sunk, server))])
            written = json.loads(alone)["mb_per_second"]
            fio = by_fio(made_even(sunk, server))
            made_even(sunk, server)
            iperf3 = by_iperf3()
            sockets = into_sink(sink, "-", "-")
            figures.add("streams-share", "weir", ours / bare)
            figures.add("six streams [MB/s]", "weir", ours)
            figures.add("bare sink [MB/s]", "weir", bare)
            figures.add("bare sink's writes / fio", "weir", written / fio)
            figures.add("bare sink's sockets / iperf3", "weir", sockets / iperf3)
            print(
                f"run {number} {ours:.0f} MB/s, bare sink {bare:.0f}: {ours / bare:.2f}; "
                f"writes {written:.0f}, fio {fio:.0f}; sockets {sockets:.0f}, iperf3 {iperf3:.0f}",
                flush=True,
            )
    shutil.rmtree(sunk, ignore_errors=True)
    judge(figures)
    commands = [f"{STREAMS} x weir cp -q {source} root://HOST//stream-N", f"{STREAMS} x sink_bench send PORT {BYTES} {source}"]
    figures.commands["streams-share"] = "; ".join(commands)
    figures.notes["six streams"] = f"{STREAMS} processes, each sends the same {BYTES >> 20} MiB from {source.parent}, until all is durable"
