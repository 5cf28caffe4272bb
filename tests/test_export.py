"""`weir export`: writes the contents of a node as plain files, with and without its namespace, and names damaged ones."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from clients import Xrdfs
from content import KIB, MIB, write
from harness import Killer, Weir, until, weir
from test_damage import flip, places_of, put

WITHOUT_RECENT = True

STRANGE_GROUP = 4711
SIZES = {"/small": 20 * KIB, "/large": 5 * MIB + 33, "/run1/deep/er/file": 70 * KIB, "/run1/empty": 0, "/run1/b \N{SNOWMAN}": 100}


def export(server: Weir, target: Path, *flags: str) -> tuple[int, dict]:
    done = weir("export", "--data", str(server.data), str(target), "--json", *flags)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout)


def files_below(target: Path) -> dict[str, bytes]:
    files = (path for path in target.rglob("*") if path.is_file() and not path.is_symlink())
    return {"/" + str(path.relative_to(target)): path.read_bytes() for path in files}


@pytest.fixture
def filled(own_node, tmp_path):
    """A stopped node, and its files."""
    server = own_node()
    fs = Xrdfs(server.url)
    fs("mkdir", "-p", "/run1/deep/er").ok()
    contents = {path: put(server, path, size, tmp_path) for path, size in SIZES.items()}
    # Small files are in the journal at first, which some tests lose.
    small = [data for data in contents.values() if 0 < len(data) <= 64 * KIB]
    until(lambda: all(places_of(server.data / "store/segments", data) for data in small), 30)
    time.sleep(3)  # the index follows
    return server, contents


def test_with_names_modes_and_times(filled, tmp_path):
    server, contents = filled
    fs = Xrdfs(server.url)
    fs("chmod", "/small", "rw-r-----").ok()
    fs("mv", "/large", "/run1/moved").ok()
    contents["/run1/moved"] = contents.pop("/large")
    written = fs.field(fs("stat", "/small").ok().out, "MTime")
    server.stop()
    target = tmp_path / "out"
    code, report = export(server, target)
    assert code == 0 and report["files"] == len(contents) and report["directories"] == 3, report
    assert files_below(target) == contents
    there = (target / "small").stat()
    assert there.st_mode & 0o777 == 0o640
    assert time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(there.st_mtime)) in written or str(int(there.st_mtime)) in written
    assert not (target / ".weir-export").exists()
    # Again: nothing is written twice, nothing is overwritten.
    code, report = export(server, target)
    assert (code, report["files"], report["already_there"]) == (0, 0, len(contents)), report
    (target / "small").write_text("mine")
    code, report = export(server, target)
    assert (target / "small").read_text() == "mine" and report["renamed"] == 1 and report["files"] == 1
    (other,) = target.glob("small.weir-*")
    assert other.read_bytes() == contents["/small"]


@pytest.mark.parametrize("lost", [["namespace"], ["namespace", "journal"], ["namespace", "journal", "store/index", "store/checkpoint"]])
def test_without_the_namespace(filled, tmp_path, lost):
    server, contents = filled
    server.stop()
    for name in lost:
        shutil.rmtree(server.data / name)
    target = tmp_path / "out"
    if "journal" in lost:  # with its whole journal the namespace would be rebuilt from that
        refused = weir("export", "--data", str(server.data), str(target))
        assert refused.returncode not in (0, 1) and "--without-namespace" in refused.stderr, refused.stderr
    kept = files_below(server.data / "store/objects"), files_below(server.data / "store/segments")
    code, report = export(server, target, "--without-namespace")
    assert code == 0, report
    found = files_below(target)
    empty = [path for path, data in contents.items() if not data]
    for path, data in contents.items():
        # Without the index, nothing remains of an empty file.
        assert path in empty or found[path] == data, path
    assert len([path for path in found if not path.startswith("/weir-unnamed")]) in (len(contents), len(contents) - len(empty))
    assert (files_below(server.data / "store/objects"), files_below(server.data / "store/segments")) == kept
    code, report = export(server, target, "--without-namespace")
    assert code == 0 and report["files"] == 0, "nothing is written twice"


def test_several_contents_made_at_one_path(own_node, tmp_path):
    server = own_node()
    put(server, "/file", 100 * KIB, tmp_path)
    fs = Xrdfs(server.url)
    fs("mv", "/file", "/older").ok()
    source = write(tmp_path / "second", "second", 90 * KIB)
    subprocess.run(["xrdcp", "--nopbar", source, f"{server.url}/file"], check=True)
    time.sleep(3)
    server.stop()
    shutil.rmtree(server.data / "namespace")
    code, report = export(server, tmp_path / "out", "--without-namespace")
    assert code == 0 and report["renamed"] == 1
    assert (tmp_path / "out/file").read_bytes() == source.read_bytes(), "the newest has the name"
    (other,) = (tmp_path / "out").glob("file.weir-*")
    assert other.stat().st_size == 100 * KIB


@pytest.mark.parametrize("names", [True, False])
def test_damaged_files_are_named_and_marked_or_left_out(filled, tmp_path, names):
    server, contents = filled
    server.stop()
    spot = 2 * MIB
    (place,) = places_of(server.data / "store", contents["/large"][spot : spot + 4096])
    flip(place[0], place[1] + 5)
    flags = [] if names else ["--without-namespace"]
    code, report = export(server, tmp_path / "out", *flags)
    assert code == 1 and report["damaged"] == 1 and report["listed"][0]["path"] == "/large", report
    found = files_below(tmp_path / "out")
    assert "/large" not in found
    expected = bytearray(contents["/large"])
    expected[spot : spot + 4096] = bytes(4096)
    assert found["/large.weir-damaged"] == expected
    assert all(found[path] == data for path, data in contents.items() if path != "/large")
    code, report = export(server, tmp_path / "out", *flags)
    assert (code, report["files"], report["damaged"], report["renamed"]) == (1, 0, 1, 0) and files_below(tmp_path / "out") == found
    code, report = export(server, tmp_path / "out2", "--damaged", "leave-out", *flags)
    assert code == 1 and report["left_out"] == 1
    assert not [path for path in files_below(tmp_path / "out2") if "large" in path]


def test_interrupted_files_are_told_from_whole_ones(own_node, tmp_path):
    server = own_node("--grace-seconds", "1")
    writer = subprocess.Popen(
        [sys.executable, str(Path(__file__).parent / "writer.py"), f"{server.url}/cut", "cut", str(MIB), "3"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    while int(writer.stdout.readline()) < 3 * MIB:
        pass
    writer.kill()
    writer.wait()
    until(lambda: "interrupted" in weir("cat", f"{server.url}/cut").stderr, 30)
    server.stop()
    code, report = export(server, tmp_path / "out")
    assert code == 0 and report["interrupted"] == 1
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["cut.weir-interrupted"]


def test_attributes_go_with_their_files(filled, tmp_path):
    server, contents = filled
    fs = Xrdfs(server.url)
    fs("xattr", "/small", "set", "run=4711").ok()
    fs("xattr", "/small", "set", "site=Genève").ok()
    fs("xattr", "/run1", "set", "policy=keep").ok()
    fs("xattr", "/large", "set", "note=" + "x" * 20_000).ok()
    server.stop()
    flags = ["--owners"] if os.getuid() == 0 else []
    target = tmp_path / "out"
    target.mkdir()
    if flags:  # files made in it get a foreign group; root's files must have root's, by request or not
        os.chown(target, -1, STRANGE_GROUP)
        target.chmod(0o2755)
    code, report = export(server, target, *flags)
    assert files_below(target) == contents
    assert {name: os.getxattr(target / "small", name) for name in os.listxattr(target / "small") if name.startswith("user.")} == {
        "user.run": b"4711",
        "user.site": "Genève".encode(),
    }
    assert os.getxattr(target / "run1", "user.policy") == b"keep"
    try:
        os.setxattr(target / "run1/empty", "user.long", b"x" * 20_000)
        assert code == 0 and os.getxattr(target / "large", "user.note") == b"x" * 20_000
    except OSError:  # ext4 has room for 4 KiB: an error names it, and the file exists
        assert code == 1 and report["attributes"] == 1, report
        assert [(found["kind"], found["path"]) for found in report["listed"]] == [("attribute", "/large")]
        assert "note" in report["listed"][0]["what"]
    # What failed then fails again, and is reported again; the rest is there.
    again = export(server, target, *flags)
    assert (again[0], again[1]["attributes"], again[1]["files"]) == (code, report["attributes"], 0), again
    os.removexattr(target / "small", "user.run")
    export(server, target, *flags)
    assert os.getxattr(target / "small", "user.run") == b"4711"
    if flags:
        assert {((there := path.stat()).st_uid, there.st_gid) for path in target.rglob("*")} == {(0, 0)}
    else:
        refused = weir("export", "--data", str(server.data), str(tmp_path / "out2"), "--owners")
        assert refused.returncode in (1, 8), refused


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_owners_that_were_not_asked_for_at_first_are_given_later(filled, tmp_path):
    server, contents = filled
    server.stop()
    target = tmp_path / "out"
    target.mkdir()
    os.chown(target, -1, STRANGE_GROUP)
    target.chmod(0o2755)
    assert export(server, target)[0] == 0
    assert {path.stat().st_gid for path in target.rglob("*")} == {STRANGE_GROUP}
    (target / "large").chmod(0o600)
    os.chown(target / "large", 4242, -1)
    times = {path: path.stat().st_mtime_ns for path in target.rglob("*") if path.is_file()}
    code, report = export(server, target, "--owners")
    assert (code, report["files"], report["already_there"]) == (0, 0, len(contents)), report
    assert {((there := path.stat()).st_uid, there.st_gid) for path in target.rglob("*")} == {(0, 0)}
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert (target / "large").stat().st_mode & 0o777 == 0o644


def test_a_killed_export_goes_on(filled, tmp_path):
    server, contents = filled
    server.stop()
    target = tmp_path / "out"
    command = ["export", "--data", server.data]
    killer = Killer(5, *command, tmp_path / "first")
    for _ in range(50):
        if killer.killed >= 8:
            break
        killer.run(*command, target)
        for path, data in files_below(target).items():
            assert path.startswith("/.weir-export/") or contents[path] == data, "a file has its name when it is whole"
    assert killer.killed >= 8
    assert export(server, target)[0] == 0
    assert files_below(target) == contents


def test_the_data_directory_is_no_target(filled):
    server, _ = filled
    server.stop()
    refused = weir("export", "--data", str(server.data), str(server.data / "out"))
    assert refused.returncode == 2 and not (server.data / "out").exists()
