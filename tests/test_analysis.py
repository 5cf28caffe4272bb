"""Analysis as physicists do it: uproot through fsspec-xrootd on real ROOT files. Each value is compared with a local read."""

import awkward as ak
import pytest
import uproot
from clients import xrdcp
from harness import root_file, root_files

pytestmark = pytest.mark.peer_ok

FILES = root_files()


@pytest.fixture(scope="module", params=FILES, ids=lambda path: path.stem)
def pair(request, node):
    """A local file and its URL on the server."""
    path = request.param
    url = f"{node.url}/analysis/{path.name}"
    xrdcp("-f", "-p", path, url).ok()
    return path, url


def readable(local) -> list[str]:
    """The trees and RNTuples in a file, without cycle numbers."""
    classes = local.classnames(cycle=False)
    return [name for name, kind in classes.items() if kind in ("TTree", "ROOT::RNTuple")]


def same(here, there) -> bool:
    return here.fields == there.fields and ak.to_packed(here).layout.is_equal_to(ak.to_packed(there).layout, all_parameters=False)


def columns(tree) -> list[str]:
    """Up to forty branches or fields that uproot can read, spread over the tree."""
    names = list(tree.keys())
    picked = names[:: max(1, len(names) // 40)]
    good = []
    for name in picked:
        try:
            tree[name].array(entry_stop=1)
        except Exception:  # a class that uproot cannot interpret, locally or remotely
            continue
        good.append(name)
    return good


def test_branches_have_the_same_values(pair):
    path, url = pair
    with uproot.open(path) as local, uproot.open(url) as remote:
        assert remote.classnames() == local.classnames()
        trees = readable(local)
        assert trees
        compared = 0
        for name in trees:
            here, there = local[name], remote[name]
            assert here.num_entries == there.num_entries
            for column in columns(here):
                assert same(here[column].array(), there[column].array()), f"{name}/{column}"
                compared += 1
        assert compared > 0, "no branch could be read even locally"


def test_a_slice_of_the_entries(pair):
    path, url = pair
    with uproot.open(path) as local, uproot.open(url) as remote:
        name, column = next((name, column) for name in readable(local) for column in columns(local[name])[:1])
        count = local[name].num_entries
        first, last = count // 3, count // 2
        here = local[name][column].array(entry_start=first, entry_stop=last)
        assert len(here) == last - first
        assert same(here, remote[name][column].array(entry_start=first, entry_stop=last))


def test_iterating_over_a_tree(node):
    path = root_file("uproot-HZZ.root")
    url = f"{node.url}/analysis/iterated.root"
    xrdcp("-f", "-p", path, url).ok()
    wanted = ["Jet_Px", "NMuon", "MET_px"]
    here = list(uproot.iterate(f"{path}:events", wanted, step_size=500))
    there = list(uproot.iterate({url: "events"}, wanted, step_size=500))
    assert len(here) == len(there) == 5
    assert all(same(left, right) for left, right in zip(here, there, strict=True))


def test_fsspec_lists_and_removes(node):
    import fsspec

    remote, _ = fsspec.core.url_to_fs(f"{node.url}/listing")
    remote.mkdir("/listing")
    with remote.open("/listing/file", "wb") as file:
        file.write(b"x" * 100_000)
    assert remote.info("/listing/file")["size"] == 100_000
    assert [entry["name"].rpartition("/")[2] for entry in remote.ls("/listing", detail=True)] == ["file"]
    assert remote.cat_file("/listing/file", start=5, end=10) == b"xxxxx"
    assert remote.exists("/listing/file")
    remote.rm_file("/listing/file")
    assert not remote.exists("/listing/file")
