"""weir bench with uproot beside its own analysis jobs, on the path as it is and on a delayed one."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import uproot
from cluster import Cluster
from harness import WEIR_BIN, Xrootd
from test_bench_report import valid
from wheel import Environment, make_wheel

BRANCHES, CLUSTERS, EVENTS = 12, 20, 2000
READ = 3
SECONDS = 0.012

CAMPAIGN = """
name = "uproot"
repeats = 1
{systems}
[[analysis]]
name = "beside"
root_file = "{file}"
branches = ["b00[0-2]"]
jobs = 2
copies = 2
mode = "vector"
cache = "48kB"
beside = ["uproot"]
{more}
"""


def bench(*arguments: str | Path, code: int = 0, cwd: Path | None = None) -> subprocess.CompletedProcess:
    done = subprocess.run([WEIR_BIN, "bench", *map(str, arguments)], cwd=cwd, capture_output=True, text=True, timeout=300)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done


def system(name: str, place: str | Path) -> str:
    return f'[[system]]\nname = "{name}"\nplace = "{place}"\n'


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    """Two steps of the jobs' cache for each cluster: 40 in all."""
    path = tmp_path_factory.mktemp("root") / "events.root"
    numbers = np.random.default_rng(3)
    with uproot.recreate(path, compression=uproot.LZ4(1)) as root:
        tree = root.mktree("Events", {f"b{number:03}": np.float32 for number in range(BRANCHES)})
        for _ in range(CLUSTERS):
            tree.extend({f"b{number:03}": numbers.normal(size=EVENTS).astype(np.float32) for number in range(BRANCHES)})
    return path


def baskets(file: Path) -> int:
    """The bytes of the baskets that jobs read."""
    (tree,) = json.loads(bench("root-file", file, "--json").stdout)["trees"]
    read = [branch for branch in tree["branches"] if branch["name"] in ("b000", "b001", "b002")]
    assert len(read) == READ
    return sum(part["bytes"] for branch in read for part in branch["parts"])


def check_figures(tmp_path: Path, file: Path, systems: str, python: str, package: str) -> None:
    more = f'python = "{python}"\nuproot_with = "{package}"\nround_trip = ["0ms", "12ms"]\n'
    campaign, results = tmp_path / "campaign.toml", tmp_path / "results"
    campaign.write_text(CAMPAIGN.format(systems=systems, file=file, more=more))
    summary = json.loads(bench("run", campaign, "--results", results, "--json").stdout)
    valid(summary, "summary")
    cells = {}
    for row in summary["rows"]:
        words = dict(map(tuple, row["parameters"]))
        assert words["uproot with"] == package
        cells |= {(cell["system"], row["phase"], words["round trip"]): cell for cell in row["cells"]}
    read = {key: cell for key, cell in cells.items() if key[1] != "put"}
    names = {key[0] for key in read}
    near, far = sorted({key[2] for key in read})
    assert len(read) == len(names) * 2 * 2 and far.startswith("12")
    wanted = baskets(file)
    for (name, phase, path), cell in read.items():
        jobs, what = cell["jobs"], (name, phase, path, cell)
        assert 0 < cell["median"] <= 1.6 and jobs["event_rate"] > 0, what
        assert 2 * wanted <= jobs["asked"] <= 2 * 1.3 * wanted, what
        if phase == "analyse":
            assert "opened_with" not in jobs and jobs["io_cpu_share"] > 0, what
            continue
        # How fast the bench's own jobs were, not how much CPU both took.
        own = read[name, "analyse", path]
        ratio = own["jobs"]["event_rate"] / jobs["event_rate"]
        assert cell["ours_event_rate"]["ratio"] == pytest.approx(ratio) and jobs["event_rates"] == [jobs["event_rate"]], what
        # uproot's process does not say how long it waited.
        assert jobs["opened_with"] == package and jobs["io_cpu_share"] is None and jobs["waited_share"] is None, what
        # weir's package also reads what lies between ranges, and ahead.
        most = 4 if package == "weir" else 1.1
        assert jobs["asked"] <= jobs["moved"] <= most * jobs["asked"] + 200_000, what
        assert jobs["requests"] >= 2 * 2, what
    for trial in map(json.loads, (results / "trials.jsonl").read_text().splitlines()):
        valid(trial, "trial")
        assert trial["ended"] is None, trial
        is_far = dict(map(tuple, trial["parameters"]))["round trip"] == far
        for phase in trial["phases"][1:]:
            for job in phase["measured"]["tally"]["jobs"]:
                assert job["events"] == CLUSTERS * EVENTS and 0 < job["cpu_s"], phase
                # A handshake, an open, the first bytes and the tree, at least.
                assert not is_far or job["wall_s"] > 4 * SECONDS, job
                if is_far and (package != "weir" or phase["phase"] == "analyse"):
                    # Nothing reads ahead: each request waits for the one before. uproot counts those of a step as one.
                    assert job["wall_s"] > (10 if phase["phase"] == "analyse" else 20) * SECONDS, job
    for name in names:
        for phase in ("analyse", "analyse by uproot"):
            assert read[name, phase, far]["jobs"]["event_rate"] < read[name, phase, near]["jobs"]["event_rate"], (name, phase)
            assert read[name, phase, far]["median"] < read[name, phase, near]["median"], (name, phase)
    text = bench("report", results).stdout
    assert text.count(" of its events/s, at x ") == 2 * len(names)
    assert text.count("opened with " + ("weir's Python package" if package == "weir" else package)) == 2 * len(names)


@pytest.mark.alone  # it compares times
def test_uproot_over_fsspec_xrootd_reads_beside_our_jobs_near_and_far(node, place, fs, base, file, tmp_path):
    with Xrootd(base / "bench-uproot-stock") as peer:
        systems = system("weir", f"{node.url}{place}") + system("xrootd", peer.url + "/")
        check_figures(tmp_path, file, systems, sys.executable, "fsspec-xrootd")
    assert fs("ls", place).ok().out.strip() == ""


@pytest.mark.alone  # it compares times
def test_uproot_over_the_python_package_reads_beside_our_jobs_near_and_far(node, place, file, tmp_path):
    environment = Environment(tmp_path / "venv", make_wheel())
    check_figures(tmp_path, file, system("weir", f"{node.url}{place}"), str(environment.python), "weir")


@pytest.mark.long
def test_study_b_makes_a_file_for_uproot_and_has_its_columns(node, place, fs, tmp_path):
    how = ["--scale", "1000", "--repeats", "1", "--by", "uproot", "--python", sys.executable, "--uproot-with", "fsspec-xrootd"]
    arguments = ["study", "B", *how, "--results", tmp_path / "results", f"weir={node.url}{place}"]
    said = bench(*arguments, "--dry-run").stdout
    assert "put, analyse, analyse by uproot" in said and "round trip=12 ms" in said
    assert os.listdir(tmp_path) == []
    done = bench(*arguments)
    assert fs("ls", place).ok().out.strip() == ""
    (made,) = tmp_path.glob("results-uproot-*.root")
    with uproot.open(made) as root:
        assert len(root["Events"].keys()) == 120 and root["Events"].num_entries > 20_000
    table = done.stdout[done.stdout.index("best of each") :].splitlines()
    rows = [line for line in table if line.startswith("ROOT file")]
    assert [line.split("  ")[0] for line in rows] == [
        "ROOT file, vector",
        "ROOT file, by uproot",
        "ROOT file, delayed path, vector",
        "ROOT file, delayed path, by uproot",
    ]
    assert all(re.search(r"[0-9.]+ %, [0-9]+ events/s", line) for line in rows), rows
    compared = [line for line in table if re.search(r"analyse by uproot [0-9]+ events/s, the bench's own jobs x [0-9.]+$", line)]
    assert len(compared) == 4 and "the ROOT file that uproot makes, about: " in done.stdout
    # It continues with the same file, and has nothing left to do.
    before = made.stat().st_mtime_ns
    bench(*arguments)
    assert made.stat().st_mtime_ns == before


def test_a_server_that_redirects_clients_around_the_delay_is_refused(base, file, tmp_path):
    more = f'python = "{sys.executable}"\nuproot_with = "fsspec-xrootd"\nround_trip = "12ms"\n'
    with Cluster(base / "bench-uproot-cluster", 1) as cluster:
        campaign = tmp_path / "campaign.toml"
        campaign.write_text(CAMPAIGN.format(systems=system("cluster", cluster.url + "/"), file=file, more=more))
        said = bench("run", campaign, "--results", tmp_path / "results", code=1)
    assert "redirects clients to" in said.stdout + said.stderr and "added_round_trip" in said.stdout + said.stderr


def test_what_uproot_lacks_or_cannot_do_is_said_before_anything_is_written(file, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()

    def said(more: str, text: str = CAMPAIGN) -> str:
        campaign = tmp_path / "campaign.toml"
        campaign.write_text(text.format(systems=system("disk", disk), file=file, more=more))
        return bench("run", campaign, "--results", tmp_path / "none", code=2).stderr

    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    bare = f'python = "{tmp_path}/bare/bin/python"'
    assert "-m pip install uproot" in said(bare)
    assert "make wheel" in said(f'python = "{sys.executable}"\nuproot_with = "weir"')
    assert "cannot run uproot with `/nowhere/python`" in said('python = "/nowhere/python"')
    assert "use `round_trip`" in said('added_round_trip = "12ms"')
    assert "`vector`" in said("", CAMPAIGN.replace('"vector"', '["vector", "direct"]'))
    assert "a share of events" in said('events = "1%"')
    assert "only study B" in bench("study", "A", "--by", "uproot", disk, code=2).stderr
    assert "--by" in bench("study", "B", "--python", "python3", disk, code=2).stderr
    # A dry run tries the same Python, even if the file is still to be made.
    how = ["--by", "uproot", "--scale", "1000", "--dry-run", "--results", tmp_path / "none"]
    assert "-m pip install uproot" in bench("study", "B", *how, "--python", tmp_path / "bare/bin/python", disk, code=2).stderr
    too_large = bench("study", "B", "--scale", "5000", disk, code=2).stderr
    assert "the scale 5000 is too large for study B, which takes at most 1907" in too_large
    assert list(disk.iterdir()) == [] and not (tmp_path / "none").exists()


@pytest.mark.long
def test_uproot_reads_by_path_too(file, tmp_path):
    (tmp_path / "disk").mkdir()
    campaign = tmp_path / "campaign.toml"
    campaign.write_text(CAMPAIGN.format(systems=system("disk", tmp_path / "disk"), file=file, more=f'python = "{sys.executable}"'))
    summary = json.loads(bench("run", campaign, "--results", tmp_path / "results", "--json").stdout)
    cells = {row["phase"]: row["cells"][0] for row in summary["rows"]}
    assert cells["analyse by uproot"]["jobs"]["opened_with"] == "path" and cells["analyse by uproot"]["jobs"]["event_rate"] > 0
    assert list((tmp_path / "disk").iterdir()) == []


def test_a_path_is_opened_by_uproot_itself_once_and_cannot_be_delayed(node, place, fs, file, tmp_path):
    (tmp_path / "disk").mkdir()
    more = f'python = "{sys.executable}"\nuproot_with = ["fsspec-xrootd", "auto"]\nround_trip = ["0ms", "12ms"]\n'
    systems = system("disk", tmp_path / "disk") + system("weir", f"{node.url}{place}")
    campaign, results = tmp_path / "campaign.toml", tmp_path / "results"
    campaign.write_text(CAMPAIGN.format(systems=systems, file=file, more=more))
    planned = bench("run", campaign, "--dry-run").stdout
    assert planned.count(" on disk: ") == 2 and planned.count(" on weir: ") == 4
    # What the path cannot do has no figure, and nothing was put there for it.
    summary = json.loads(bench("run", campaign, "--results", results, "--json", code=1).stdout)
    valid(summary, "summary")
    cells = [(row, cell) for row in summary["rows"] for cell in row["cells"] if cell["system"] == "disk"]
    found = {(row["phase"], dict(map(tuple, row["parameters"]))["round trip"][:2]): cell for row, cell in cells}
    assert len(cells) == 4 and set(found) == {("put", "0 "), ("analyse", "0 "), ("analyse by uproot", "0 "), ("analyse", "12")}
    assert found["analyse by uproot", "0 "]["jobs"]["opened_with"] == "path"
    assert "unsupported" in found["analyse", "12"]["flags"]
    for trial in map(json.loads, (results / "trials.jsonl").read_text().splitlines()):
        valid(trial, "trial")
    text = bench("report", results).stdout
    assert "opened by uproot itself" in text and "`round_trip`, which needs a single place by root://" in text
    assert list((tmp_path / "disk").iterdir()) == [] and fs("ls", place).ok().out.strip() == ""
