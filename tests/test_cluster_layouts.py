"""Every layout, written and read by the stock client, by uproot and by our own client: readers see no difference between writers."""

import hashlib
from pathlib import Path

import numpy
import pytest
import uproot
from clients import Xrdfs, xrdcp
from cluster import Cluster
from content import MIB, adler32, write
from harness import remove, root_file, weir

pytestmark = pytest.mark.managers_ok

LAYOUTS = {
    "one": "replica(1)",
    "two": "replica(2)",
    "late": "replica(2) sync=1",
    "three": "replica(3) sync=2",
    "dealt": "stripe(4, 64KiB)",
    "twice": "stripe(2, 1MiB) replica(2)",
}
# For striped files, those of each unit.
COPIES = {"one": 1, "two": 2, "late": 2, "three": 3, "dealt": 1, "twice": 2}


@pytest.fixture(scope="module")
def cluster(base):
    with Cluster(base / "layouts", 4) as cluster:
        for folder, words in LAYOUTS.items():
            cluster.policy(f"/{folder}", words)
        yield cluster
        assert all(node.alive() for node in cluster.nodes), cluster.logs()
    remove(cluster.home)


def by_stock(source: Path, url: str) -> None:
    xrdcp("--cksum", "adler32:source", source, url).ok()


def by_own(source: Path, url: str) -> None:
    done = weir("cp", str(source), url)
    assert done.returncode == 0, done.stderr


def back_by_stock(url: str, target: Path) -> None:
    xrdcp("-f", "--cksum", "adler32:print", url, target).ok()


def back_by_own(url: str, target: Path) -> None:
    done = weir("cp", "--force", url, str(target))
    assert done.returncode == 0, done.stderr


def has_its_copies(cluster: Cluster, folder: str, path: str) -> bool:
    content = cluster.file(path)["object"]
    parts = content.get("units") or [content]
    assert len(parts) == {"dealt": 4, "twice": 2}.get(folder, 1)
    return all([copy["replica"] for copy in part["replicas"]] == ["complete"] * COPIES[folder] for part in parts)


@pytest.mark.parametrize("writer", [by_stock, by_own])
@pytest.mark.parametrize("folder", LAYOUTS)
def test_files_are_the_same_for_everybody(cluster, tmp_path, folder, writer):
    fs = Xrdfs(cluster.url)
    for size in (0, 1, 70_000, 5 * MIB + 12_345):
        source = write(tmp_path / "source", f"{folder} {size}", size)
        path = f"/{folder}/{writer.__name__}-{size}"
        url = f"{cluster.url}{path}"
        writer(source, url)
        for number, reader in enumerate((back_by_stock, back_by_own)):
            target = tmp_path / f"back{number}"
            reader(url, target)
            assert hashlib.sha256(target.read_bytes()).digest() == hashlib.sha256(source.read_bytes()).digest(), reader
        assert adler32(source.read_bytes()) in fs("query", "checksum", path).ok().out
        cluster.until(lambda path=path: has_its_copies(cluster, folder, path))


@pytest.mark.parametrize("writer", [by_stock, by_own])
@pytest.mark.parametrize("folder", LAYOUTS)
def test_uproot_reads_what_was_copied(cluster, folder, writer):
    local = root_file("uproot-HZZ.root")
    url = f"{cluster.url}/{folder}/{writer.__name__}-hzz.root"
    writer(local, url)
    with uproot.open(local) as here, uproot.open(url) as there:
        for branch in ("NMuon", "Muon_Px", "MET_px", "Jet_E"):
            mine, theirs = (file["events"][branch].array() for file in (here, there))
            assert mine.tolist() == theirs.tolist(), branch


@pytest.mark.parametrize("folder", LAYOUTS)
def test_what_uproot_writes_everybody_reads(cluster, tmp_path, folder):
    url = f"{cluster.url}/{folder}/by-uproot.root"
    columns = {"x": numpy.arange(200_000.0), "n": numpy.arange(200_000) % 7}
    with uproot.recreate(url) as made:
        made.mktree("t", {"x": "f8", "n": "i8"})
        # Several baskets; each rewrites the tree's header.
        for part in range(4):
            made["t"].extend({name: values[part * 50_000 : (part + 1) * 50_000] for name, values in columns.items()})
    for number, reader in enumerate((back_by_stock, back_by_own)):
        reader(url, tmp_path / f"back{number}.root")
    for place in (url, tmp_path / "back0.root", tmp_path / "back1.root"):
        with uproot.open(place) as file:
            for name, values in columns.items():
                assert numpy.array_equal(file["t"][name].array(library="np"), values), (place, name)
