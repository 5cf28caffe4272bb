#!/usr/bin/env python3
"""
Measures weir beside its peers by campaigns of `weir bench`, in the testbed of `weir bench testbed` on this machine; writes
bench/CAMPAIGNS.md and, for each campaign, a report in build/bench.

    bench/campaigns.py                       all of them
    bench/campaigns.py small streams         some; bench/CAMPAIGNS.md keeps what it says of the others
    bench/campaigns.py cluster               a manager and four disk servers, beside clusters of XRootD and GlusterFS
    bench/campaigns.py cluster --parts small,repair    some of it; the other figures are those of the last time
    bench/campaigns.py --peers weir,xrootd   beside others; what can be started: weir bench testbed up --help
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))  # measure stands on the tests' harness
import cluster_campaign  # noqa: E402
import clusters  # noqa: E402
from harness import listening  # noqa: E402
from machine import commit  # noqa: E402
from measure import BUILD, ROOT  # noqa: E402
from ports import free_port  # noqa: E402

CAMPAIGNS, TABLES = ROOT / "bench/campaigns", BUILD / "bench"
RESULTS = ROOT / "bench/CAMPAIGNS.md"
WEIR = os.environ.get("WEIR_BIN") or str(ROOT / "target/release/weir")
# What is measured by path on this machine's own disk alone, and what over its loopback.
ON_DISK_ALONE, ON_LOOPBACK = {"generator"}, {"flows"}
HEAD = """# Campaigns

What `make bench` measured: campaigns of `weir bench` (`bench/campaigns`) on systems that `weir bench testbed` started, all on one
machine. Figures are medians of six repeats if nothing else is said; `docs/how-to/bench.md` explains the letters. Each has the
day and the commit it was measured at.
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
def network_servers(folder: Path) -> Iterator[str]:
    """The server of our own flows, and iperf3's: a system's lines."""
    ours, theirs = free_port(), free_port()
    address = f"127.0.0.1:{ours}"
    commands = [[WEIR, "bench", "flows", "--listen", address], ["iperf3", "-s", "-B", "127.0.0.1", "-p", str(theirs)]]
    started, end = [], time.monotonic() + 20
    try:
        for command in commands:
            started.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        while not (listening(ours) and listening(theirs)):
            if any(one.poll() is not None for one in started) or time.monotonic() > end:
                sys.exit("a server of network tests did not begin to listen")
            time.sleep(0.05)
        yield f'[[system]]\nname = "loopback"\nplace = "{folder}"\npeer = "{address}"\niperf3 = "127.0.0.1:{theirs}"\n'
    finally:
        for one in started:
            one.terminate()
            one.wait()


def write(name: str, at: str, text: str) -> None:
    """Renews a section; a long run that is stopped has told what it did."""
    found = re.split(r"^## (.+)\n", RESULTS.read_text() if RESULTS.exists() else "", flags=re.MULTILINE)
    parts = dict(zip(found[1::2], found[2::2], strict=True)) | {name: f"\n{date.today().isoformat()}, {at}\n\n{text}\n"}
    RESULTS.write_text("\n".join([HEAD, *(f"## {name}\n\n{part.strip()}\n" for name, part in sorted(parts.items()))]))


def fenced(text: str) -> str:
    return f"```\n{text}\n```"


def on_testbed(names: list[str], peers: str, at: str, temporary: Path, disk: str) -> None:
    bed, folder = temporary / "bed", temporary / "disk"
    try:
        up = [WEIR, "bench", "testbed", "up", *peers.split(","), "--dir", bed]
        lines = subprocess.run(up, check=True, text=True, stdout=subprocess.PIPE).stdout
        # The disk below all of them is their ceiling.
        lines = lines.replace("\nprocesses = ", '\ndisk = "disk"\nprocesses = ')
        for name in names:
            # Nothing of one kind of work idles beside the other.
            own = nullcontext(disk if name in ON_DISK_ALONE else disk + lines)
            with network_servers(folder) if name in ON_LOOPBACK else own as systems:
                write(name, at, fenced(table(name, systems, temporary)))
    finally:
        subprocess.run([WEIR, "bench", "testbed", "down", "--dir", bed], check=False)


def on_clusters(names: list[str], parts: list[str], at: str, temporary: Path, disk: str) -> None:
    with cluster_campaign.up(temporary) as all_of:
        for name in names:
            if name != cluster_campaign.NAME:
                systems = clusters.systems(all_of.weir, all_of.gluster)
                write(name, at, fenced(table(name, disk + systems, temporary)))
        # It ends with servers that are lost.
        if cluster_campaign.NAME in names:
            write(cluster_campaign.NAME, at, cluster_campaign.section(all_of, parts, at))


def main() -> None:
    # Who is told to stop takes down what it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=[*sorted(file.stem for file in CAMPAIGNS.glob("*.toml")), cluster_campaign.NAME])
    parser.add_argument("--peers", default="weir,xrootd", help="systems of the testbed beside the disk")
    parser.add_argument("--parts", default="", help=f"of the cluster's campaign: {' '.join(cluster_campaign.PARTS)}")
    wanted = parser.parse_args()
    names = list(wanted.names)
    if cluster_campaign.NAME in names and not wanted.parts:
        names += [file.stem for file in sorted(CAMPAIGNS.glob("cluster-*.toml"))]
    for name in names:
        if name != cluster_campaign.NAME and not (CAMPAIGNS / f"{name}.toml").exists():
            parser.error(f"no campaign {name} in {CAMPAIGNS}")
    parts = [part for part in wanted.parts.split(",") if part]
    if unknown := set(parts) - set(cluster_campaign.PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))} of the cluster's campaign")
    TABLES.mkdir(parents=True, exist_ok=True)
    # Before this writes into the checkout itself.
    at = commit(ROOT)
    of_cluster = [name for name in dict.fromkeys(names) if name.startswith(cluster_campaign.NAME)]
    others = [name for name in names if name not in of_cluster]
    with tempfile.TemporaryDirectory(prefix="weir-bench-", dir="/var/tmp") as temporary:
        os.chmod(temporary, 0o755)  # servers that run as users of their own look into it
        folder = Path(temporary) / "disk"
        folder.mkdir()
        disk = f'[[system]]\nname = "disk"\nplace = "{folder}"\n'
        if others:
            on_testbed(others, wanted.peers, at, Path(temporary), disk)
        if of_cluster:
            on_clusters(of_cluster, parts, at, Path(temporary), disk)
    print(f"written: {RESULTS}; reports: {TABLES}/*/report.html")


if __name__ == "__main__":
    main()
