#!/usr/bin/env python3
"""
Measures weir beside a stock xrootd on the same disk, in alternating runs, and the libraries alone; writes bench/RESULTS.md.

    bench/run.py                          everything (takes long); writes bench/RESULTS.md
    bench/run.py --only stat --runs 3     a part, to the screen only; parts: create stat read remove alone put get readv cp limits
                                          streams follow ls namespace store
    bench/run.py --only store --renew     the same, and renews its rows in bench/RESULTS.md
    bench/run.py --systems xrootd,xrootd  the method against itself: all ratios should be about 1
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import copies  # noqa: E402
import crowds  # noqa: E402
import fairness  # noqa: E402
import following  # noqa: E402
import listing  # noqa: E402
import machine  # noqa: E402
import rows  # noqa: E402
import streams  # noqa: E402
import vectors  # noqa: E402
from harness import Server, Weir, Xrootd  # noqa: E402
from measure import BUILD, ROOT, Cpu, alternate, build_example, load_program, random_source, run  # noqa: E402

SAVED = BUILD / "bench-figures.json"
THREADS, FILES, DIRS, BYTES = 8, 20_000, 100, 4096
GIB = 1 << 30
FIO_HUGE_PAGES = 16  # of 2 MiB: its one buffer of 8 MiB, and room
# How often over all files: CPU time is counted in steps of 10 ms, so a phase has to take many.
SMALL = {"create": 1, "stat": 8, "read": 3, "remove": 1}
# The same for one client that waits for each answer; its phases take a second and more.
ALONE = {"create": 1, "stat": 8, "read": 4, "remove": 1}
ALONE_FILES, ALONE_DIRS = 4_000, 20
BIG = ["put", "get"]
VECTORS = ["readv"]
COPIES = ["cp"]  # weir's own client


def small_files(servers: dict[str, Server], runs: int, files: int, figures: rows.Figures) -> None:
    """The four phases of many small files, by a program on the stock client library."""
    load = load_program()
    for number in range(runs):
        for system, server in alternate(servers, number):
            for phase, passes in SMALL.items():
                os.sync()
                numbers = (THREADS, files, DIRS, BYTES, passes)
                command = [str(load), f"{server.url}/run{number}", phase, *map(str, numbers)]
                with Cpu(server) as cpu:
                    result = json.loads(run(command))
                figures.add(f"{phase}-rate", system, result["rate"])
                figures.add(f"{phase}-cpu", system, cpu.seconds / result["ops"] * 1e6)
                figures.add(f"{phase}-p99 [us]", system, result["p99_us"])
                figures.commands[f"{phase}-rate"] = f"xrdload root://HOST//runN {phase} {' '.join(map(str, numbers))}"
                print(
                    f"run {number} {system:8} {phase:7} {result['rate']:8.0f}/s  {cpu.seconds / result['ops'] * 1e6:6.1f} us CPU/op",
                    flush=True,
                )


def alone(servers: dict[str, Server], runs: int, figures: rows.Figures) -> None:
    """The four phases by one client that waits for each answer."""
    load = load_program()
    for number in range(runs):
        for system, server in alternate(servers, number):
            for phase, passes in ALONE.items():
                os.sync()
                numbers = (1, ALONE_FILES, ALONE_DIRS, BYTES, passes)
                result = json.loads(run([str(load), f"{server.url}/alone{number}", phase, *map(str, numbers)]))
                figures.add(f"alone-{phase}", system, 1e6 / result["rate"])
                figures.commands[f"alone-{phase}"] = f"xrdload root://HOST//aloneN {phase} {' '.join(map(str, numbers))}"
                print(f"run {number} {system:8} alone {phase:7} {1e6 / result['rate']:8.1f} us", flush=True)


def big_files(servers: dict[str, Server], runs: int, source: Path, figures: rows.Figures) -> None:
    """xrdcp of one large file up, and down again: from the disk, then from memory."""
    gigabytes = source.stat().st_size / 1e9

    def copy(row: str, system: str, server: Server, *arguments: str) -> None:
        with Cpu(server) as cpu:
            run(["xrdcp", "--nopbar", *arguments])
        figures.add(f"{row}-wall", system, cpu.wall)
        figures.add(f"{row}-cpu", system, cpu.seconds / gigabytes)
        shown = " ".join(arguments).replace(server.url, "root://HOST/").replace(str(source), "/dev/shm/source")
        figures.commands[f"{row}-wall"] = f"xrdcp --nopbar {shown}"
        print(f"{system:8} {row:5} {cpu.wall:6.2f} s  {cpu.seconds / gigabytes:6.2f} s CPU/GB", flush=True)

    for number in range(runs):
        for system, server in alternate(servers, number):
            os.sync()
            url = f"{server.url}/big"
            copy("put", system, server, str(source), url)
            copy("after", system, server, "-f", url, "/dev/null")
            how = machine.drop_caches(server)
            copy("cold", system, server, "-f", url, "/dev/null")
            copy("warm", system, server, "-f", url, "/dev/null")
            run(["xrdfs", server.url, "rm", "/big"])
    figures.notes["cold reads"] = f"page cache emptied by {how}, after `weir drop-caches` on weir"
    figures.notes["xrdcp writes"] = f"the source lies in {source.parent}"


def example(name: str, arguments: list[str], one_core: bool = False) -> tuple[str, list[dict]]:
    """Runs a crate's bench; its command line, and the JSON objects that it prints. None where it failed: the rest goes on."""
    pin = ["taskset", "-c", "0"] if one_core else []
    command = pin + [str(build_example(f"weir-{name}", f"{name}_bench")), *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)  # how it goes on is told on stderr
    if done.returncode != 0:
        print(f"failed ({done.returncode}): {' '.join(command)}", file=sys.stderr)
    out = done.stdout if done.returncode == 0 else ""
    shown = " ".join(command).replace(str(ROOT) + "/", "")
    return shown, [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def namespace(folder: Path, options: argparse.Namespace, figures: rows.Figures) -> None:
    more = ["--csv", str(BUILD / "life-latency.csv")] + (["--quick"] if options.quick else [])
    shown, results = example("namespace", ["--dir", str(folder), *more])
    for figure in results:
        for value in figure.get("samples") or [figure["value"]]:
            figures.add(figure["row"], "weir", float(value))
        figures.commands[figure["row"]] = shown
        figures.notes[figure["row"]] = figure.get("note", "")
        print(figure, flush=True)


def store(folder: Path, options: argparse.Namespace, figures: rows.Figures) -> None:
    """Small files on one core, and streams beside the bare writer; the bare writer beside fio on the same work, in turns."""
    for number in range(options.runs):
        shown, results = example("store", [str(folder), "small"], one_core=True)
        figures.add("small-rate", "weir", max(r["per_second"] for r in results if r["bench"] == "small_4k_durable"))
        figures.commands["small-rate"] = shown
        fio = [fio_write(folder, figures)]
        shown, results = example("store", [str(folder), "stream"])
        aligned = next(r for r in results if r["bench"] == "stream" and r["aligned"] and r["chunk"] == 8 << 20)
        fio.append(fio_write(folder, figures))
        figures.add("stream-share", "weir", aligned["share_of_bare_same_chunk"])
        figures.add("bare writer [MB/s]", "weir", aligned["bare_mb_per_second"])
        figures.add("bare writer / fio", "weir", aligned["bare_mb_per_second"] / rows.statistics.mean(fio))
        figures.commands["stream-share"] = shown
        print(f"run {number} {aligned} fio {fio}", flush=True)
    share = rows.statistics.median(figures.samples["bare writer / fio"]["weir"])
    if share < 0.95:
        figures.invalid["stream-share"] = f"the bare writer is at {share:.2f} of fio"


def fio_write(folder: Path, figures: rows.Figures) -> float:
    """MB/s of the same writes by fio, which computes no checksums; from huge pages, as the bare writer does it."""
    target = folder / "fio"
    command = ["fio", "--name=bare", f"--filename={target}", "--ioengine=psync", "--direct=1", "--rw=write", "--bs=8M", "--size=2G"]
    with machine.huge_pages(FIO_HUGE_PAGES) as there:
        if there:
            command += ["--mem=shmhuge", "--hugepage-size=2m"]
        else:
            figures.notes["fio"] = "without huge pages (they need root), which the bare writer has"
        result = json.loads(run([*command, "--end_fsync=1", "--output-format=json"]))
    target.unlink()
    rate = result["jobs"][0]["write"]["bw_bytes"] / 1e6
    figures.add("fio [MB/s]", "weir", rate)
    figures.commands["fio [MB/s]"] = " ".join(command).replace(str(target), "FILE") + " --end_fsync=1"
    return rate


def limits(folder: Path, options: argparse.Namespace, figures: rows.Figures) -> None:
    """Memory under crowds of clients, each on a server of its own, and what a crowd leaves to a single stream."""
    for number in range(options.runs):
        for row, measure in crowds.MEASURES.items():
            with Weir(folder / f"{row}-{number}").start() as server:
                figures.add(row, "weir", measure(server) / (1 << 20))
            shutil.rmtree(server.home, ignore_errors=True)
        with Weir(folder / f"fair-{number}").start() as server:
            for kind in ("read", "write"):
                result = fairness.measure(server.port, kind, 200, 10)
                figures.add(f"fair-{kind}", "weir", result["share"])
                figures.commands[f"fair-{kind}"] = f"bench/fairness.py root://HOST/ --only {kind}"
                print(result, flush=True)
        shutil.rmtree(server.home, ignore_errors=True)


LIBRARIES = {
    "namespace": namespace,
    "store": store,
    "limits": limits,
    "streams": streams.streams,
    "follow": following.following,
    "ls": listing.listing,
}
PARTS = [*SMALL, "alone", *BIG, *VECTORS, *COPIES, *LIBRARIES]


def report(folder: Path, systems: list[str], figures: rows.Figures, runs: int, chosen: set[str] | None) -> str:
    lines = ["# Measured", "", f"By `make bench-clients`, {runs} alternating runs: medians, with the spread in brackets.", ""]
    lines += rows.table(systems, figures, chosen)
    lines += ["", "weir syncs at close, xrootd does not. Server CPU: user and system time of all its threads, with what it does after the "
              "last answer until it is idle.", "", "## Machine", ""]  # fmt: skip
    lines += [f"- {name}: {value}" for name, value in machine.describe(folder, ROOT).items()]
    lines += ["", "## Command lines", ""]
    lines += [f"- {row}: `{command}`" for row, command in figures.commands.items()]
    lines += ["", "## Notes", ""] + [f"- {subject}: {note}" for subject, note in figures.notes.items()]
    for when in sorted(set(figures.measured.values())):
        lines.append(f"- measured on {when}: " + ", ".join(row for row, at in figures.measured.items() if at == when))
    by_hand = ROOT / "bench/NOTES.md"
    if chosen is None and by_hand.exists():
        lines += ["", by_hand.read_text().rstrip()]
    return "\n".join(lines) + "\n"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=PARTS, help="measure this part alone; may be repeated")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--files", type=int, default=FILES, help="small files a run")
    parser.add_argument("--size", type=int, default=GIB, help="bytes of the large file")
    parser.add_argument("--systems", default="weir,xrootd")
    parser.add_argument("--dir", type=Path, default=BUILD / "bench", help="where the servers keep their data: a real disk")
    parser.add_argument("--renew", action="store_true", help="with --only: renew these rows in bench/RESULTS.md, keep the others")
    parser.add_argument("--quick", action="store_true", help="a quick run of the namespace's bench")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    chosen = set(options.only) if options.only else None
    wanted = chosen or set(PARTS)
    BUILD.mkdir(exist_ok=True)
    options.dir = options.dir.absolute()  # the servers run elsewhere
    options.dir.mkdir(parents=True, exist_ok=True)
    if machine.file_system(options.dir)[0] in ("tmpfs", "ramfs", "overlay"):
        raise SystemExit(f"{options.dir} is not on a real disk; name one with --dir")
    kinds = {"weir": Weir, "xrootd": Xrootd}
    names = options.systems.split(",")
    systems = [name if name not in names[:at] else f"{name}-again" for at, name in enumerate(names)]
    figures = rows.Figures()
    full = (chosen is None or options.renew) and names == ["weir", "xrootd"]
    try:
        with_clients(wanted, dict(zip(systems, (kinds[name] for name in names), strict=True)), options, figures)
        for name, measure in LIBRARIES.items():
            if name in wanted:
                folder = options.dir / name
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                measure(folder, options, figures)
                shutil.rmtree(folder, ignore_errors=True)
    finally:  # an hour's figures are not lost for one part that failed
        figures.stamp(f"{date.today()} at {machine.describe(options.dir, ROOT)['weir']}")
        if full:
            if options.renew:
                figures.fill_up(SAVED)
            figures.save(SAVED)
            text = report(options.dir, systems, figures, options.runs, None)
            (ROOT / "bench/RESULTS.md").write_text(text)
            print("written: bench/RESULTS.md")
        else:
            text = report(options.dir, systems, figures, options.runs, chosen)
        print(text)


def with_clients(wanted: set[str], kinds: dict[str, type[Server]], options: argparse.Namespace, figures: rows.Figures) -> None:
    """The parts that stock clients measure, on servers that live as long as they last."""
    servers: dict[str, Server] = {}
    try:
        if wanted & {*SMALL, "alone", *BIG, *VECTORS, *COPIES}:
            for system, kind in kinds.items():
                home = options.dir / f"server-{system}"
                shutil.rmtree(home, ignore_errors=True)
                servers[system] = kind(home).start()
        if wanted & set(SMALL):
            small_files(servers, options.runs, options.files, figures)
        if "alone" in wanted:
            alone(servers, options.runs, figures)
        if wanted & {*BIG, *VECTORS, *COPIES}:
            with random_source(options.size) as source:
                if wanted & set(BIG):
                    big_files(servers, options.runs, source, figures)
                if wanted & set(VECTORS):
                    vectors.readv(servers, options.runs, source, figures)
                if wanted & set(COPIES) and "weir" in servers:
                    copies.large(servers["weir"], options.runs, source, figures)
        if wanted & set(COPIES) and "weir" in servers:
            copies.tree(servers["weir"], options.runs, options.dir / "copies", figures)
    finally:
        for server in servers.values():
            if server.alive():
                server.stop()
            shutil.rmtree(server.home, ignore_errors=True)


if __name__ == "__main__":
    main()
