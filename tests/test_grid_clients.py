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
    shell('truncate -s 100 "$1/dir/other"; cmp -n 100 "$2" "$1/dir/other"', mount, source)
    assert fs.size(f"{place}/dir/other") == 100
    shell('rm "$1/dir/other"; rmdir "$1/dir"; df "$1"', mount)
    assert fs.names(place) == []
