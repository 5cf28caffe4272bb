"""Programs of physicists and of the grid with a token: uproot through fsspec-xrootd, and gfal2. On a node and on a cluster."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import uproot
from clients import PATIENCE
from content import adler32, write
from harness import root_file
from tokenhost import TokenHost, start

MINE = "storage.read:/ana storage.modify:/ana"
# XrdCl reads the credentials of a process once, so each user is a process.
UPROOT = """
import json, sys, uproot
with uproot.open(sys.argv[1]) as file:
    tree = file[sys.argv[2]]
    column = tree[sys.argv[3]].array(library="np")
    print(json.dumps([tree.num_entries, column.tolist()]))
"""


@pytest.fixture(scope="module", params=["node", "cluster"])
def host(request, base):
    yield from start(request.param, base, 'base_paths = ["/"]', '[[identity]]\nISSUER\nprincipal = "{subject}"\n')


@pytest.fixture(scope="module")
def home(host):
    """A directory of the user ana, which nobody else may enter."""
    host.keeper("xrdfs", host.url, "mkdir", "/ana").ok()
    host.does(host.issuer.token("ana", MINE), "xrdfs", host.url, "stat", "/ana").ok()
    host.chown("ana", "/ana")
    host.keeper("xrdfs", host.url, "chmod", "/ana", "rwx------").ok()
    return "/ana"


def as_user(host: TokenHost, token: str | None, command: list[str]) -> subprocess.CompletedProcess:
    environment = {**os.environ, **PATIENCE, **host.environment(token)}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, stdin=subprocess.DEVNULL)


def test_uproot_reads_a_tree_with_a_token(host, home):
    path = root_file("uproot-HZZ.root")
    ana, ben = host.issuer.token("ana", MINE), host.issuer.token("ben", "storage.read:/")
    host.does(ana, "xrdcp", "-f", path, f"{host.url}/{home}/events.root").ok()
    # fsspec-xrootd knows no `roots`. The server requires TLS for the login, and the client is able to.
    url = host.url.replace("roots:", "root:")
    command = [sys.executable, "-c", UPROOT, f"{url}/{home}/events.root", "events", "MET_px"]
    read = as_user(host, ana, command)
    assert read.returncode == 0, read.stderr
    with uproot.open(path) as local:
        tree = local["events"]
        assert json.loads(read.stdout) == [tree.num_entries, tree["MET_px"].array(library="np").tolist()]
    for token in (ben, None, host.issuer.token("ana", MINE, seconds=-600), host.issuer.token("ana", "storage.modify:/ana")):
        refused = as_user(host, token, command)
        assert refused.returncode != 0 and refused.stdout == "", refused
        assert any(word in refused.stderr.lower() for word in ("denied", "auth", "permit", "permission", "not allow")), refused.stderr[
            -2000:
        ]


def gfal(host: TokenHost, token: str | None, operation: str, *arguments: str | Path) -> dict:
    done = as_user(host, token, [sys.executable, str(Path(__file__).with_name("gfal.py")), operation, *map(str, arguments)])
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_gfal_copies_and_removes_with_a_token(host, home, tmp_path):
    ana, ben = host.issuer.token("ana", MINE), host.issuer.token("ben", "storage.read:/ storage.modify:/")
    source = write(tmp_path / "source", "gfal", 2_000_001)
    there = f"{host.url}/{home}/new/gfal"
    assert gfal(host, ana, "copy", f"file://{source}", there, "ADLER32")["code"] == 0
    assert gfal(host, ana, "stat", there)["size"] == 2_000_001
    assert gfal(host, ana, "sum", there, "ADLER32")["sum"] == adler32(source.read_bytes())
    assert gfal(host, ana, "copy", there, f"file://{tmp_path}/back", "ADLER32")["code"] == 0
    assert (tmp_path / "back").read_bytes() == source.read_bytes()
    for token in (ben, None):
        for call in (("stat", there), ("ls", f"{host.url}/{home}"), ("rm", there), ("copy", f"file://{source}", f"{there}-2", "ADLER32")):
            refused = gfal(host, token, *call)
            assert refused["code"] not in (0, errno.ENOENT), (call, refused)
    assert gfal(host, ana, "rm", there)["code"] == 0
    assert gfal(host, ana, "stat", there)["code"] == errno.ENOENT
