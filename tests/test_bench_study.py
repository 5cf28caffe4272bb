"""weir bench study: the shipped studies, much smaller than they are, on a local path, on root:// and over WebDAV."""

import json
import os
import re
import subprocess

import pytest
from harness import ROOT, Nginx
from test_bench import bench

SCALE = "20000"


# The others need much longer.
@pytest.mark.parametrize("study", ["D", *(pytest.param(study, marks=pytest.mark.long) for study in "ABCE")])
def test_a_study_runs_and_prints_its_own_table(study, node, place, fs, tmp_path):
    fs("mkdir", f"{place}/{study}").ok()
    disk = tmp_path / "disk"
    disk.mkdir()
    targets = [f"local disk={disk}", f"weir={node.url}{place}/{study}"]
    # Operations that root:// lacks (fwrite and fread) have no figure. The exit code says so.
    code = 1 if study == "C" else 0
    # Study B needs a round of baskets in its files.
    scale = "1000" if study == "B" else SCALE
    how = ["--scale", scale, "--repeats", "1", "--rate", "1MB"]
    done = bench("study", study, *how, *targets, "--results", tmp_path / "results", code=code)
    assert os.listdir(disk) == [] and fs("ls", f"{place}/{study}").ok().out.strip() == ""
    own = done.stdout[done.stdout.index("Scaled down") :]
    assert "repeats: 1 instead of" in own and ("130 Gb/s" in own) == (study != "B")
    assert "full study:" in done.stdout and "this run:" in done.stdout
    # One chart shows the best of both systems.
    overview = (tmp_path / "results/figures/overview.svg").read_text()
    assert f"study {study}: {study}. " in overview and ">local disk<" in overview and ">weir<" in overview
    assert overview.count('<rect class="b s') > 1
    lines = own.splitlines()
    best = next(number for number, line in enumerate(lines) if line.startswith("best of each"))
    assert lines[best].split() == ["best", "of", "each", "local", "disk", "weir"]
    table = lines[best + 1 : lines.index("", best)]
    assert table and not any("no figure" in line for line in table), own
    if study == "B":
        assert all("%" in line for line in table)
        return
    # Unknown properties of a disk are not guessed; weir's own are known.
    assert any(line.startswith("open source") and "not known" in line and "yes" in line for line in lines)
    assert "local disk: " in own[own.index("Parameters that reach") :] and "none of the measured" not in own


@pytest.mark.long
def test_a_study_over_webdav_says_what_it_cannot(base, tmp_path):
    with Nginx(base / "study-webdav") as nginx:
        how = ["--scale", "1000000", "--repeats", "1", "--results", tmp_path / "results"]
        done = bench("study", "a", *how, f"nginx={nginx.http_url}", code=1)
    own = done.stdout[done.stdout.index("best of each") :].splitlines()
    rows = {line.split("  ")[0]: line for line in own if "  " in line}
    assert "/s" in rows["write"] and "/s" in rows["read"] and "no figure" in rows["rewrite in chunks"]


def test_what_would_be_done_is_said_and_nothing_is_done(tmp_path):
    said = bench("study", "A", "--dry-run", "--scale", "10", f"a={tmp_path}").stdout
    assert "A. Write-intensive recording" in said and "full study:" in said and "sizes, streams and chunks" in said
    (full,) = (line for line in said.splitlines() if line.startswith("full study:"))
    assert re.search(r" TB moved in all, 300 GB on a system at a time, about [0-9.]+ days$", full), full
    assert "file=9 MiB block=1 MiB " in said and "(at 300 MB/s and " in said
    assert os.listdir(tmp_path) == []
    assert "at least 1" in bench("study", "A", "--scale", "0.1", str(tmp_path), code=2).stderr
    assert "gopher" in bench("study", "A", "x=gopher://h/", code=2).stderr


def test_the_analysis_of_a_root_file(tmp_path):
    file = ROOT / "testdata/root/uproot-HZZ.root"
    arguments = ["study", "B", "--scale", "1000", "--repeats", "1", "--root-file", file, f"disk={tmp_path / 'disk'}"]
    (tmp_path / "disk").mkdir()
    done = bench(*arguments, "--results", tmp_path / "results")
    assert "[y]" not in done.stdout and str(file) in (tmp_path / "results/run.json").read_text()
    assert "study B" in bench("study", "E", "--root-file", file, str(tmp_path), code=2).stderr


def test_a_study_goes_on_where_it_was(tmp_path):
    how = ["--scale", "1000000", "--repeats", "1", "--results", tmp_path / "results", "--json"]
    arguments = ["study", "E", *how, f"a={tmp_path / 'disk'}"]
    (tmp_path / "disk").mkdir()
    first: subprocess.CompletedProcess = bench(*arguments)
    assert json.loads(first.stdout)["rows"] == json.loads(bench(*arguments).stdout)["rows"]
