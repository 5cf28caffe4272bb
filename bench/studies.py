#!/usr/bin/env python3
"""
Does the studies that weir was built after, scaled, on a single node and on a cluster of four disk servers of this machine; writes
bench/reports/cluster-study-*.

    bench/studies.py            all five
    bench/studies.py d e        some

Study D has the scenarios of placement of docs/how-to/policies.md, each a directory with its policy: disk1 and disk3 are at the
reliable site, disk2 and disk4 at the client's.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))  # measure stands on the tests' harness
from clusters import LocalCluster  # noqa: E402
from harness import WEIR_BIN, Weir  # noqa: E402
from measure import BUILD, ROOT  # noqa: E402

# By how much each is divided, and how often it is done: the whole takes a quarter of an hour.
SCALED = {"a": (3000, 1), "b": (1000, 1), "c": (2000, 2), "d": (1000, 3), "e": (2000, 1)}


# The scenarios of a federation, with the sites of this cluster: site1 is the default and reliable one, clients stand at site2.
SCENARIOS = {
    "0": "replica(1) spread=site",
    "1": "replica(1) near=client prefer=site1",
    "2.1": "replica(2) sync=2 spread=site near=client prefer=site1",
    "2.2": "replica(2) sync=1 spread=site",
}
# Where clients of this machine stand, unless they say otherwise.
PLACES = 'clients.locations = ["127.0.0.1/32 site2"]\n'


def study(name: str, systems: dict[str, str], sites: dict[str, str]) -> None:
    scale, repeats = SCALED[name]
    results, kept = BUILD / f"bench/cluster-study-{name}", ROOT / f"bench/reports/cluster-study-{name}"
    shutil.rmtree(results, ignore_errors=True)
    results.parent.mkdir(parents=True, exist_ok=True)
    lines = results.with_suffix(".toml")
    at = ", ".join(f'"{host}" = "{site}"' for host, site in sites.items())
    system = '[[system]]\nname = "{}"\nplace = "{}"\nprocesses = ["weir"]\nsites = {{ {} }}\n'
    lines.write_text("\n".join(system.format(name, place, at) for name, place in systems.items()))
    words = ["--scale", str(scale), "--repeats", str(repeats), "--phase-limit", "5s", "--results", str(results), "--systems", str(lines)]
    done = subprocess.run([WEIR_BIN, "bench", "study", name, "-q", *words], text=True, stdout=subprocess.PIPE)
    print(done.stdout, flush=True)
    if done.returncode not in (0, 1):
        sys.exit(f"study {name} ended with {done.returncode}")
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    (kept / "study.txt").write_text(done.stdout.replace(f"{ROOT}/", ""))
    (kept / "campaign.toml").write_text(json.loads((results / "run.json").read_text())["campaign"])
    for file in ("report.html", "table.csv"):
        shutil.copy(results / file, kept / file)
    shutil.copytree(results / "figures", kept / "figures")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(SCALED), metavar="a|b|c|d|e")
    names = parser.parse_args().names
    if unknown := set(names) - set(SCALED):
        parser.error(f"no study {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory(prefix="weir-bench-", dir="/var/tmp") as temporary:
        with Weir(Path(temporary) / "single").start() as single, LocalCluster(Path(temporary) / "weir", PLACES) as cluster:
            cluster.directory("/one", "replica(1)")
            cluster.directory("/two", "replica(2) sync=2 spread=site")
            for scenario, policy in SCENARIOS.items():
                cluster.directory(f"/scenario{scenario}", policy)
            copies = {f"weir-cluster-replica{copies}": f"{cluster.url}/{at}" for copies, at in ((1, "one"), (2, "two"))}
            scenarios = {f"weir-cluster-scenario-{scenario}": f"{cluster.url}/scenario{scenario}" for scenario in SCENARIOS}
            for name in names:
                of_cluster = scenarios if name == "d" else copies
                study(name, {"weir": single.url, **of_cluster}, cluster.sites)


if __name__ == "__main__":
    main()
