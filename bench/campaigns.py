#!/usr/bin/env python3
"""
Measures weir beside its peers by campaigns of `weir bench`, in the testbed of `weir bench testbed` on this machine; writes
bench/CAMPAIGNS.md and, for each campaign, a report in build/bench.

    bench/campaigns.py                       all of them
    bench/campaigns.py small streams         some; bench/CAMPAIGNS.md keeps what it says of the others
    bench/campaigns.py --peers weir,xrootd   beside others; what can be started: weir bench testbed up --help
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))  # measure stands on the tests' harness
from harness import free_port, listening  # noqa: E402
from machine import commit  # noqa: E402
from measure import BUILD, ROOT  # noqa: E402

CAMPAIGNS, TABLES = ROOT / "bench/campaigns", BUILD / "bench"
RESULTS = ROOT / "bench/CAMPAIGNS.md"
WEIR = os.environ.get("WEIR_BIN") or str(ROOT / "target/release/weir")
# What is measured by path on this machine's own disk alone, and what over its loopback.
ON_DISK_ALONE, ON_LOOPBACK = {"generator"}, {"flows"}
HEAD = """# Campaigns

What `make bench` measured: campaigns of `weir bench` (`bench/campaigns`) on systems that `weir bench testbed` started, all on one
machine. Figures are medians of six repeats; `docs/bench.md` explains the letters. Each has the day and the commit it was measured at.
"""


def table(name: str, systems: str, temporary: Path) -> str:
    """Runs a campaign; the table, as it is printed."""
    text = (CAMPAIGNS / f"{name}.toml").read_text()
    campaign = temporary / f"{name}.toml"
    campaign.write_text(text + "\n" + systems)
    results = TABLES / name
    shutil.rmtree(results, ignore_errors=True)
    # What a phase has left on its way to the disk is nobody's of the next.
    os.sync()
    done = subprocess.run([WEIR, "bench", "run", campaign, "--results", results], text=True, stdout=subprocess.PIPE)
    print(done.stdout, flush=True)
    if done.returncode not in (0, 1):
        sys.exit(f"campaign {name} ended with {done.returncode}")
    return done.stdout.rsplit("\n\n", 1)[0].strip()


@contextmanager
def far_sides(folder: Path) -> Iterator[str]:
    """The far side of our own flows, and iperf3's: a system's lines."""
    ours, theirs = free_port(), free_port()
    address = f"127.0.0.1:{ours}"
    commands = [[WEIR, "bench", "flows", "--listen", address], ["iperf3", "-s", "-B", "127.0.0.1", "-p", str(theirs)]]
    started, end = [], time.monotonic() + 20
    try:
        for command in commands:
            started.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        while not (listening(ours) and listening(theirs)):
            if any(one.poll() is not None for one in started) or time.monotonic() > end:
                sys.exit("a far side of flows did not begin to listen")
            time.sleep(0.05)
        yield f'[[system]]\nname = "loopback"\nplace = "{folder}"\npeer = "{address}"\niperf3 = "127.0.0.1:{theirs}"\n'
    finally:
        for one in started:
            one.terminate()
            one.wait()


def write(tables: dict) -> None:
    """What is known by now: a long run that is stopped has told what it did."""
    parts = [f"## {name}\n\n{one['day']}, {one['commit']}\n\n```\n{one['table']}\n```\n" for name, one in sorted(tables.items())]
    RESULTS.write_text("\n".join([HEAD, *parts]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=sorted(file.stem for file in CAMPAIGNS.glob("*.toml")))
    parser.add_argument("--peers", default="weir,xrootd", help="systems of the testbed beside the disk")
    wanted = parser.parse_args()
    for name in wanted.names:
        if not (CAMPAIGNS / f"{name}.toml").exists():
            parser.error(f"no campaign {name} in {CAMPAIGNS}")
    saved = TABLES / "tables.json"
    TABLES.mkdir(parents=True, exist_ok=True)
    # Before this writes into the checkout itself.
    at = commit(ROOT)
    tables = json.loads(saved.read_text()) if saved.exists() else {}
    with tempfile.TemporaryDirectory(prefix="weir-bench-", dir="/var/tmp") as temporary:
        os.chmod(temporary, 0o755)  # servers that run as users of their own look into it
        bed, folder = Path(temporary) / "bed", Path(temporary) / "disk"
        folder.mkdir()
        disk = f'[[system]]\nname = "disk"\nplace = "{folder}"\n'
        try:
            up = [WEIR, "bench", "testbed", "up", *wanted.peers.split(","), "--dir", bed]
            lines = subprocess.run(up, check=True, text=True, stdout=subprocess.PIPE).stdout
            # The disk below all of them is their ceiling.
            lines = lines.replace("\nprocesses = ", '\ndisk = "disk"\nprocesses = ')
            for name in wanted.names:
                # Nothing of one kind of work idles beside the other.
                with far_sides(folder) if name in ON_LOOPBACK else nullcontext(disk if name in ON_DISK_ALONE else disk + lines) as systems:
                    found = table(name, systems, bed.parent)
                tables[name] = {"table": found, "commit": at, "day": date.today().isoformat()}
                saved.write_text(json.dumps(tables))
                write(tables)
        finally:
            subprocess.run([WEIR, "bench", "testbed", "down", "--dir", bed], check=False)
    print(f"written: {RESULTS}; reports: {TABLES}/*/report.html")


if __name__ == "__main__":
    main()
