"""weir's own client beside xrdcp, both against the same weir server: one large file, and a tree of small ones."""

import os
import resource
import shutil
import subprocess
import time
from pathlib import Path

import rows
from harness import WEIR_BIN, Server

FILES, BYTES = 20_000, 4096
TREE_RUNS_OF_XRDCP = 1  # it takes half a minute a run, whatever the noise


def timed(command: list[str]) -> tuple[float, float]:
    """Wall time and CPU time of a command, in seconds."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True)
    wall, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise SystemExit(f"failed ({done.returncode}): {' '.join(command)}\n{done.stderr}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


CLIENTS = {"weir": [str(WEIR_BIN), "cp", "-q"], "xrootd": ["xrdcp", "-s"]}


def both(number: int) -> list[tuple[str, list[str]]]:
    pairs = list(CLIENTS.items())
    return pairs if number % 2 == 0 else pairs[::-1]


def large(server: Server, runs: int, source: Path, figures: rows.Figures) -> None:
    gigabytes = source.stat().st_size / 1e9

    def copy(row: str, client: str, command: list[str]) -> None:
        wall, cpu = timed(command)
        figures.add(f"{row}-wall", client, wall)
        figures.add(f"{row}-cpu", client, cpu / gigabytes)
        print(f"{'weir cp' if client == 'weir' else 'xrdcp':8} {row:7} {wall:6.2f} s  {cpu / gigabytes:6.2f} s CPU/GB", flush=True)

    for number in range(runs):
        for client, command in both(number):
            os.sync()
            url = f"{server.url}/large-{client}"
            copy("cp-up", client, [*command, str(source), url])
            subprocess.run([*command, url, "/dev/null"], capture_output=True)  # so that it is in memory
            copy("cp-down", client, [*command, *(["-f"] if client == "xrootd" else []), url, "/dev/null"])
            timed([str(WEIR_BIN), "rm", url])
    figures.commands["cp-up-wall"] = f"weir cp -q {source.parent}/source root://HOST//large; xrdcp -s ..."
    figures.commands["cp-down-wall"] = "weir cp -q root://HOST//large /dev/null; xrdcp -s -f ..."


def tree(server: Server, runs: int, folder: Path, figures: rows.Figures) -> None:
    source = folder / "tree"
    shutil.rmtree(folder, ignore_errors=True)
    source.mkdir(parents=True)
    for number in range(FILES):
        (source / f"f{number:05}").write_bytes(os.urandom(BYTES))
    try:
        for number in range(runs):
            for client, command in both(number):
                if client == "xrootd" and number >= TREE_RUNS_OF_XRDCP:
                    continue
                # Nothing is removed before the end: ext4 is slow to make files for some seconds after many were removed.
                up, down = f"{server.url}/tree-{client}-{number}", folder / f"down-{client}-{number}"
                down.mkdir()
                timed([str(WEIR_BIN), "mkdir", up])
                # Both put the folder's name into the target.
                for row, arguments in (("tree-up", [str(source), f"{up}/"]), ("tree-down", [f"{up}/tree", str(down)])):
                    wall, cpu = timed([*command, "-r", *arguments])
                    figures.add(f"{row}-rate", client, FILES / wall)
                    who = "weir cp" if client == "weir" else "xrdcp"
                    print(f"{who:8} {row:9} {FILES / wall:8.0f} files/s  {cpu:6.2f} s CPU", flush=True)
                found = sum(1 for path in down.rglob("f*") if path.is_file())
                if found != FILES:
                    raise SystemExit(f"{client} brought {found} files back instead of {FILES}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    figures.commands["tree-up-rate"] = "weir cp -q -r tree root://HOST//up/; xrdcp -s -r ..."
    figures.notes["trees"] = f"{FILES} files of {BYTES} bytes in one folder; xrdcp measured {TREE_RUNS_OF_XRDCP} time"
