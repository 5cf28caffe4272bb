"""weir bench on real ROOT files: where baskets and pages lie, and analysis jobs that read them from a disk, weir and a stock server."""

import json
import os
import subprocess
import zlib
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import uproot
from clients import xrdcp
from content import KIB
from harness import WEIR_BIN, Xrootd, root_file, root_files

FILES = root_files()
HZZ, ZMUMU = root_file("uproot-HZZ.root"), root_file("uproot-Zmumu.root")


def bench(*arguments: str | Path, code: int = 0) -> subprocess.CompletedProcess:
    done = subprocess.run([WEIR_BIN, "bench", *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done


def found_in(path: Path) -> dict[str, dict]:
    """The trees that weir finds in a file, by name; also decompresses all of it."""
    return {tree["name"]: tree for tree in json.loads(bench("root-file", path, "--unpack", "--json").stdout)["trees"]}


def packed(path: Path) -> float:
    """The share that remains after a compressor with windows of 128 KiB."""
    whole = path.read_bytes()
    parts = [whole[at : at + 128 * KIB] for at in range(0, len(whole), 128 * KIB)]
    return sum(min(len(part), len(zlib.compress(part, 1))) for part in parts) / len(whole)


def baskets(tree) -> dict[str, list[tuple[int, int, int]]]:
    """Of each branch: the offsets, lengths and last entries of its baskets, as uproot finds them in the tree's own object."""
    found = defaultdict(list)
    for branch in tree.itervalues(recursive=True):
        seeks, lengths, entries = (branch.member(name) for name in ("fBasketSeek", "fBasketBytes", "fBasketEntry"))
        for number in range(branch.num_baskets):
            if number < len(seeks) and seeks[number]:
                last = int(entries[number + 1]) if number + 1 < len(entries) else tree.num_entries
                found[branch.member("fName")].append((int(seeks[number]), int(lengths[number]), last))
    return found


def pages(ntuple) -> dict[int, list[tuple[int, int]]]:
    """Of each field: the offsets of its columns' pages, and their lengths with checksums."""
    found = defaultdict(list)
    for cluster in ntuple.page_link_list:
        for column, described in zip(ntuple.column_records, cluster, strict=True):
            for page in described.pages:
                found[column.field_id].append((page.locator.offset, page.locator.num_bytes + (8 if page.has_checksum else 0)))
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_baskets_and_pages_are_where_uproot_finds_them(path):
    mine = found_in(path)
    compared = 0
    with uproot.open(path) as file:
        for name, kind in file.classnames(cycle=False).items():
            there = file[name]
            tree = mine[name.rsplit("/", 1)[-1]]
            assert tree["entries"] == there.num_entries, name
            ours = {branch["name"]: [(part["offset"], part["bytes"]) for part in branch["parts"]] for branch in tree["branches"]}
            if kind == "TTree":
                theirs = baskets(there)
                assert {branch: [(at, length) for at, length, _ in of] for branch, of in theirs.items()} == ours, name
                for branch in tree["branches"]:
                    ends = [part["first_entry"] + part["entries"] for part in branch["parts"]]
                    assert ends == [end for _, _, end in theirs[branch["name"]]], branch["name"]
            else:
                theirs = pages(there).values()
                assert sorted(map(sorted, theirs)) == sorted(sorted(parts) for parts in ours.values()), name
            compared += sum(map(len, ours.values()))
    assert compared > 0


@pytest.mark.parametrize("kind", ["mktree", "mkrntuple"])
@pytest.mark.parametrize("method", ["ZLIB", "LZMA", "LZ4", "ZSTD"])
def test_each_compression_is_undone(method, kind, tmp_path):
    path = tmp_path / "packed.root"
    numbers = np.arange(200_000) // 7
    with uproot.recreate(path, compression=getattr(uproot, method)(4)) as file:
        getattr(file, kind)("t", {"x": np.int64, "y": np.float64}).extend({"x": numbers, "y": numbers * 0.5})
    tree = found_in(path)["t"]
    parts = [part for branch in tree["branches"] for part in branch["parts"]]
    assert tree["entries"] == 200_000 and sum(part["uncompressed"] for part in parts) == 2 * 8 * 200_000
    assert sum(part["bytes"] for part in parts) < 800_000
    raw = bytearray(path.read_bytes())
    for byte in range(parts[0]["offset"] + parts[0]["bytes"] - 40, parts[0]["offset"] + parts[0]["bytes"]):
        raw[byte] ^= 0xFF
    path.write_bytes(raw)
    bench("root-file", path, "--unpack", code=6)


def test_what_is_no_root_file_is_said_to_be_none(tmp_path):
    (tmp_path / "x").write_bytes(b"something else" * 100)
    assert "not a ROOT file" in bench("root-file", tmp_path / "x", code=2).stderr
    assert "No such file" in bench("root-file", tmp_path / "y", code=11).stderr
    whole = HZZ.read_bytes()
    (tmp_path / "cut").write_bytes(whole[: len(whole) // 2])
    assert "cut off" in bench("root-file", tmp_path / "cut", code=2).stderr


SYSTEMS = """
name = "analysis"
repeats = 1
[[system]]
name = "disk"
place = "{disk}"
[[system]]
name = "weir"
place = "{weir}"
[[system]]
name = "xrootd"
place = "{stock}"
"""


@pytest.fixture
def systems(node, place, fs, base, tmp_path):
    """Places on a disk, on weir and on a stock server, as the beginning of a campaign."""
    fs("mkdir", f"{place}/bench").ok()
    (tmp_path / "disk").mkdir()
    with Xrootd(base / "bench-analysis-stock") as peer:
        yield SYSTEMS.format(disk=tmp_path / "disk", weir=f"{node.url}{place}/bench", stock=f"{peer.url}/")
        assert list((tmp_path / "disk").iterdir()) == [] and fs("ls", f"{place}/bench").ok().out.strip() == ""


def count(row: dict) -> int:
    """The number of simultaneous jobs."""
    return int(dict(map(tuple, row["parameters"]))["jobs"])


def run(tmp_path: Path, systems: str, work: str) -> tuple[list[dict], list[dict]]:
    """Runs a campaign. Returns its rows of reading jobs, each cell with its parameters, and all trials."""
    campaign = tmp_path / "campaign.toml"
    campaign.write_text(systems + work)
    done = bench("run", campaign, "--results", tmp_path / "results", "--json")
    rows = [row for row in json.loads(done.stdout)["rows"] if row["phase"] == "analyse"]
    cells = [dict(map(tuple, row["parameters"])) | {"count": count(row)} | cell for row in rows for cell in row["cells"]]
    trials = [json.loads(line) for line in (tmp_path / "results/trials.jsonl").read_text().splitlines()]
    for trial in trials:
        assert trial["ended"] is None, trial
        for phase in trial["phases"]:
            assert not phase["measured"]["tally"]["complaints"], phase["measured"]["tally"]["complaints"]
    return cells, trials


REAL = """
[[analysis]]
name = "real"
root_file = "{file}"
{more}
jobs = [1, 3]
mode = ["direct", "vector", "read-ahead", "copy-in"]
cache = "{cache}"
events = ["all", "1%"]
order = ["ordered", "unordered"]
"""


@pytest.mark.parametrize(
    "name, more, cache",
    [
        pytest.param(HZZ.name, "", "50kB", marks=pytest.mark.long),
        pytest.param("nanoAOD_2015_CMS_Open_Data_ttbar.root", "", "20MB", marks=pytest.mark.long),
        ("uproot-physlite-rntuple_v1-0-0-0.root", 'tree = "EventData"', "200kB"),
    ],
    ids=["baskets", "within-the-tree", "pages"],
)
def test_jobs_read_real_files_and_every_basket_is_what_it_was(name, more, cache, systems, tmp_path):
    path = root_file(name)
    cells, trials = run(tmp_path, systems, REAL.format(file=path, more=more, cache=cache))
    assert len(cells) == 3 * 2 * 4 * 2 * 2
    trees = found_in(path)
    largest = trees["EventData"] if "EventData" in trees else max(trees.values(), key=lambda tree: tree["entries"])
    head = sum(part["bytes"] for part in largest["head"])
    baskets = sum(part["bytes"] for branch in largest["branches"] for part in branch["parts"])
    for cell in cells:
        jobs, what = cell["jobs"], (cell["system"], cell["mode"], cell["events"], cell["order"])
        assert "synthetic" not in cell["flags"] and 0 < cell["median"] <= 1.05, what
        # Of the three, the file of pages is packed loosely, and zlib finds the same.
        assert ("compressible" in cell["flags"]) == (packed(path) < 0.9), what
        if cell["events"] == "all":
            assert jobs["asked"] == cell["count"] * (head + baskets), what
        if cell["mode"] == "copy-in":
            assert jobs["moved"] % path.stat().st_size == 0, what
        elif cell["mode"] != "read-ahead":
            assert jobs["moved"] == jobs["asked"], what
    for trial in trials:
        measured = trial["phases"][1]["measured"]
        jobs = measured["tally"]["jobs"]
        assert measured["tally"]["verified"] == sum(job["asked"] for job in jobs)
        if "all" in dict(map(tuple, trial["parameters"]))["events"]:
            assert all(job["events"] == largest["entries"] for job in jobs)


def test_vector_reads_take_fewer_requests_where_the_protocol_has_them(systems, tmp_path):
    work = """
[[analysis]]
name = "few"
synthetic = { file = "40MB", events = 5000, branches = 100, read = 30, basket = "4000B" }
mode = ["direct", "vector"]
cache = "5MB"
"""
    cells, _ = run(tmp_path, systems, work)
    requests = {(cell["system"], cell["mode"]): cell["jobs"]["requests"] for cell in cells}
    assert requests["disk", "direct"] == requests["disk", "vector"] == requests["weir", "direct"] == 3002
    # 12 MB in three caches of 1,250 baskets each: two requests of at most 1,024 places for each.
    assert requests["weir", "vector"] == requests["xrootd", "vector"] == 2 + 5
    assert all("synthetic" in cell["flags"] for cell in cells)


@pytest.mark.alone  # it compares times
def test_a_round_trip_that_is_added_costs_efficiency_and_a_cache_wins_it_back(systems, tmp_path):
    work = f"""
[[analysis]]
name = "far"
root_file = "{ZMUMU}"
compute = 0.5
mode = ["direct", "vector"]
added_round_trip = ["0ms", "20ms"]
"""
    cells, _ = run(tmp_path, systems, work)
    by = {(cell["system"], cell["mode"], cell["added round trip"]): cell for cell in cells}
    zero = next(key[2] for key in by if not key[2].startswith("20"))
    far = next(key[2] for key in by if key[2].startswith("20"))
    for system in ("disk", "weir", "xrootd"):
        assert by[system, "direct", far]["median"] < by[system, "direct", zero]["median"], system
    for system in ("weir", "xrootd"):
        assert by[system, "vector", far]["median"] > by[system, "direct", far]["median"], system
        # Twenty baskets, the tree's object, an open and a close; with a cache all baskets at once.
        requests = [by[system, mode, far]["jobs"]["requests"] for mode in ("direct", "vector")]
        assert requests == [23, 4], system


def test_a_job_that_xrootds_plug_in_recorded_is_replayed(systems, node, place, tmp_path):
    library = next(Path("/usr/lib").glob("*/libXrdClRecorder-5.so"), None)
    if library is None:
        pytest.skip("no libXrdClRecorder")
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins/recorder.conf").write_text(f"url = 127.0.0.1:{node.port}\nlib = {library}\nenable = true\n")
    recording = tmp_path / "recorded.csv"
    url = f"{node.url}{place}/recorded"
    source = root_file("uproot-issue79.root")
    xrdcp("-f", source, url).ok()
    environment = dict(os.environ, XRD_PLUGINCONFDIR=str(tmp_path / "plugins"), XRD_RECORDERPATH=str(recording))
    subprocess.run(["xrdcp", "-f", url, tmp_path / "copy"], env=environment, check=True, capture_output=True, timeout=60)
    assert "Read" in recording.read_text()
    work = f'[[analysis]]\nname = "replay"\nrecording = "{recording}"\njobs = 2\nmode = ["direct", "read-ahead"]\ngaps = "compute"\n'
    cells, _ = run(tmp_path, systems, work)
    size = source.stat().st_size
    assert [cell["jobs"]["asked"] for cell in cells] == [2 * size] * 6
    assert all("recording recorded.csv" in cell["source"] for cell in cells)


def test_what_cannot_be_read_here_is_said_before_anything_is_written(systems, tmp_path):
    def said(work: str) -> str:
        campaign = tmp_path / "campaign.toml"
        campaign.write_text(systems + '[[analysis]]\nname = "a"\n' + work)
        return bench("run", campaign, "--results", tmp_path / "none", code=2).stderr

    assert "/nowhere" in said('root_file = "/nowhere/x.root"')
    none = said(f'root_file = "{ZMUMU}"\nbranches = ["nothing*", "E1", "Muon_*"]')
    assert "has no branch that `nothing*` or `Muon_*` match" in none and "weir bench root-file" in none
    assert "it has events" in said(f'root_file = "{ZMUMU}"\ntree = "other"')
    assert "one of root_file, recording and synthetic" in said("jobs = 1")
    assert "jobs is 0" in said(f'root_file = "{ZMUMU}"\njobs = 0')
    assert "150%" in said(f'root_file = "{ZMUMU}"\nevents = "150%"')
    (tmp_path / "x.csv").write_text("1,Write,1,0;5;0,2,[SUCCESS],\n")
    assert "line 1: `Write`" in said(f'recording = "{tmp_path}/x.csv"')
    assert not (tmp_path / "none").exists()
