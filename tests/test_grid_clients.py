"""Clients that use XrdCl in their own ways: gfal2, and xrootdfs as a mount."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from clients import PATIENCE, environment
from content import adler32, crc32c, write
from harness import until

SECONDS = 60
# What gfal2 makes of the error kXR_FSError, which a file gets that is named like a directory.
NO_DIRECTORY = errno.ENODEV


def gfal(operation: str, *arguments: str | Path) -> dict:
    program = Path(__file__).with_name("gfal.py")
    command = [sys.executable, str(program), operation, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=environment(PATIENCE))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def fine(operation: str, *arguments: str | Path) -> dict:
    answer = gfal(operation, *arguments)
    assert answer["code"] == 0, answer
    return answer


@pytest.mark.parametrize("named", ["ADLER32", "CRC32C"])
def test_gfal_copies_both_ways_and_compares(node, place, tmp_path, named):
    source = write(tmp_path / "source", named, 3_000_001)
    url = f"{node.url}{place}/new/dir/file"
    for _ in range(2):  # the second replaces
        fine("copy", f"file://{source}", url, named)
    expected = adler32(source.read_bytes()) if named == "ADLER32" else crc32c(source)
    assert fine("sum", url, named)["sum"] == expected
    fine("copy", url, f"file://{tmp_path}/back", named)
    assert (tmp_path / "back").read_bytes() == source.read_bytes()


def test_gfal_works_on_names(node, place, tmp_path):
    top = f"{node.url}{place}/top"
    source = write(tmp_path / "source", "names", 1234)
    fine("mkdir", f"{top}/a/b")
    fine("mkdir", f"{top}/a/b")
    fine("copy", f"file://{source}", f"{top}/a/file", "ADLER32")
    assert sorted(set(fine("ls", f"{top}/a")["names"]) - {".", ".."}) == ["b", "file"]
    assert fine("stat", f"{top}/a/file")["size"] == 1234
    fine("rename", f"{top}/a/file", f"{top}/a/other")
    assert gfal("stat", f"{top}/a/file")["code"] == errno.ENOENT
    assert gfal("rmdir", f"{top}/a")["code"] == errno.ENOTEMPTY
    fine("rm", f"{top}/a/other")
    fine("rmdir", f"{top}/a/b")
    fine("rmdir", f"{top}/a")
    assert gfal("ls", f"{top}/a")["code"] == errno.ENOENT


def test_gfal_removes_a_tree(node, fs, place, tmp_path):
    source = write(tmp_path / "source", "tree", 100)
    for path in ("one", "a/two", "a/b/three", "a/b/c/four"):
        fine("copy", f"file://{source}", f"{node.url}{place}/top/{path}", "ADLER32")
    assert fine("rm_r", f"{node.url}{place}/top")["removed"] == 4 + 4
    assert fs.names(place) == []


def test_gfal_shows_attributes(node, place, tmp_path):
    url = f"{node.url}{place}/file"
    source = write(tmp_path / "source", "attributes", 1000)
    fine("copy", f"file://{source}", url, "ADLER32")
    assert fine("xattr", url, "xroot.cksum")["value"].split()[:2] == ["adler32", adler32(source.read_bytes())]
    assert "oss.used=1000" in fine("xattr", url, "xroot.xattr")["value"]
    assert int(fine("xattr", url, "xroot.space")["value"].split("oss.free=")[1].split("&")[0]) > 0


def test_gfal_finds_everything_on_disk(node, place, tmp_path):
    url = f"{node.url}{place}/file"
    fine("copy", f"file://{write(tmp_path / 'source', 'stage', 10)}", url, "ADLER32")
    assert fine("xattr", url, "user.status")["value"].strip() == "ONLINE"
    staged = fine("stage", url)
    assert staged["online"] and staged["token"]


@pytest.mark.peer_ok
@pytest.mark.parametrize("end", ["/", "//", "/."], ids=["slash", "slashes", "dot"])
def test_gfal_does_not_reach_a_file_by_the_name_of_a_directory(node, fs, place, tmp_path, end):
    at, source = f"{node.url}{place}", write(tmp_path / "source", "by a directory's name", 5)
    fine("copy", f"file://{source}", f"{at}/file", "ADLER32")
    named = f"{at}/file{end}"
    copied = ("copy", f"file://{source}", named, "ADLER32"), ("copy", named, f"file://{tmp_path}/back", "ADLER32")
    calls = [("stat", named), ("rm", named), ("rmdir", named), ("ls", named), ("sum", named, "ADLER32"), ("xattr", named, "xroot.cksum")]
    for call in (*calls, *copied, ("rename", named, f"{at}/other")):
        answer = gfal(*call)
        assert answer["code"] == NO_DIRECTORY and answer["message"], (call, answer)
        assert fs.names(place) == ["file"], call
    assert not (tmp_path / "back").exists()
    assert fine("stat", f"{at}/file") == {"code": 0, "message": "", "size": 5, "directory": False}
    fine("copy", f"{at}/file", f"file://{tmp_path}/back", "ADLER32")
    assert (tmp_path / "back").read_bytes() == source.read_bytes()


@pytest.mark.peer_ok
def test_gfal_reaches_a_directory_with_a_slash_or_without(node, fs, place, tmp_path):
    at, source = f"{node.url}{place}", write(tmp_path / "source", "into a directory", 5)
    fine("mkdir", f"{at}/dir/")
    fine("mkdir", f"{at}/a/b/")
    fine("copy", f"file://{source}", f"{at}/dir/file", "ADLER32")
    for name in ("dir", "dir/", "dir//", "dir/."):
        assert fine("stat", f"{at}/{name}")["directory"], name
        assert set(fine("ls", f"{at}/{name}")["names"]) - {".", ".."} == {"file"}, name
    assert gfal("ls", f"{at}/new/")["code"] == gfal("stat", f"{at}/new/")["code"] == errno.ENOENT
    # A copy makes no file where a directory is meant, whether there is one or not.
    for name in ("newname/", "newname//", "newname/sub/", "dir/"):
        answer = gfal("copy", f"file://{source}", f"{at}/{name}", "ADLER32")
        assert answer["code"] == errno.EISDIR and "[3016]" in answer["message"], (name, answer)
        assert fs.names(f"{place}/dir") == ["file"]
    made = set(fs.names(place)) - {"a", "dir"}
    # The stock server makes the directory that it then refuses to open.
    assert made == set() if node.kind == "weir" else all("IsDir" in fs.flags(f"{place}/{name}") for name in made)
    fine("rename", f"{at}/a/b/", f"{at}/a/c/")
    assert fs.names(f"{place}/a") == ["c"]
    fine("rmdir", f"{at}/a/c/")
    fine("rmdir", f"{at}/a/")
    # The stock server has no number of its own for a directory that is not empty.
    assert gfal("rmdir", f"{at}/dir/")["code"] == (errno.ENOTEMPTY if node.kind == "weir" else errno.ENODEV)
    assert fine("rm_r", f"{at}/dir/")["removed"] == 2
    assert not fs.exists(f"{place}/dir")


@pytest.fixture
def mount(node, place, tmp_path):
    """The node as a mounted file system; returns this test's folder in it."""
    if not os.access("/dev/fuse", os.W_OK):
        pytest.skip("no /dev/fuse here, or not ours to use")
    point = tmp_path / "mount"
    point.mkdir()
    command = ["xrootdfs", "-f", "-o", f"rdr={node.url}//", str(point)]
    log = (tmp_path / "log").open("wb")
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment(PATIENCE))
    try:
        until = ["timeout", "20", "bash", "-c", 'until mountpoint -q "$0"; do sleep 0.05; done', str(point)]
        assert subprocess.run(until).returncode == 0, (tmp_path / "log").read_text()
        yield Path(f"{point}{place}")
    finally:
        subprocess.run(["umount", "-l", str(point)], check=False)
        process.kill()
        process.wait()
        log.close()


def shell(script: str, *arguments: Path) -> str:
    """In a process with a time limit, because a call into a dead mount never returns."""
    command = ["timeout", "-s", "KILL", str(SECONDS), "bash", "-ec", script, "bash", *map(str, arguments)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_xrootdfs_is_a_file_system(mount, node, fs, place, tmp_path):
    source = write(tmp_path / "source", "mounted", 2_000_003)
    # FUSE closes a file some time after its user does. Until then the mount holds back the last bytes, and the kernel caches the size
    closed = f'until [[ $(stat -c %s "$1/file") == {source.stat().st_size} ]]; do sleep 0.1; done'
    shell(f'cp "$2" "$1/file"; {closed}; cmp "$2" "$1/file"', mount, source)
    shell(f"until [[ $(xrdfs {node.url} stat {place}/file | grep Size) == *{source.stat().st_size} ]]; do sleep 0.1; done")
    assert fs.size(f"{place}/file") == 2_000_003
    # While it is being written, nobody truncates it, and the mount does not pass the refusal on.
    until(lambda: "POSCPending" not in fs.flags(f"{place}/file"), 30)
    assert shell('mkdir "$1/dir"; mv "$1/file" "$1/dir/other"; ls "$1" "$1/dir"; stat -c %s "$1/dir/other"', mount).split()[-2:] == [
        "other",
        "2000003",
    ]

    def truncated() -> bool:
        shell('truncate -s 100 "$1/dir/other"; cmp -n 100 "$2" "$1/dir/other"', mount, source)
        return fs.size(f"{place}/dir/other") == 100

    # Nor does it pass on that it has not quite closed the file yet.
    until(truncated, 30)
    shell('rm "$1/dir/other"; rmdir "$1/dir"; df "$1"', mount)
    assert fs.names(place) == []
