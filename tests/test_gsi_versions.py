"""Versions of gsi: from 6.2 on, XRootD signs digests of random tags. Its server's side of that version judges weir's client."""

import os
import sys
from pathlib import Path

import pytest
from clients import run
from gsi_server import GsiServer, compiled
from harness import WEIR_BIN
from proxies import User

SOURCES = Path(os.environ.get("WEIR_XROOTD_SOURCES", Path(sys.prefix) / "sources"))
NEWEST = 10_700
OLDER = 10_600


@pytest.fixture(scope="module")
def program(base):
    folder = base / "gsi-server"
    folder.mkdir()
    made = compiled(folder, SOURCES)
    if made is None:
        pytest.skip("needs g++, and the source of the package xrootd: see scripts/setup.sh")
    return made


@pytest.fixture
def stat(authority, program):
    """What weir's client finds at a server of XRootD 6.2, and the server. The versions are what each side is told of the other one."""
    ana = User(authority, "ana")

    def ask(shown: int | None = None, told: int | None = None, user: User = ana):
        with GsiServer(program, authority, shown, told) as server:
            found = run(
                ["env", f"X509_CERT_DIR={authority.trusted}", f"X509_USER_PROXY={user.proxy()}"]
                + [str(WEIR_BIN), "stat", f"root://localhost:{server.port}//file"]
            )
            return found, server

    return ask


def test_weirs_client_logs_in_at_the_newest_stock_server(stat):
    found, server = stat()
    assert server.own.startswith(f"v:{NEWEST},".encode()), server.own
    assert server.seen == NEWEST
    found.ok()
    assert b"CN=ana" in server.name, server.name


def test_somebody_who_lowers_one_version_only_is_noticed(stat):
    for shown, told in ((OLDER, None), (None, OLDER)):
        found, server = stat(shown, told)
        assert found.code != 0 and server.name is None, found


def test_the_newest_stock_server_and_weirs_client_fall_back_together(stat):
    """As with an older peer. The stock server cannot tell that somebody has lowered both."""
    found, server = stat(OLDER, OLDER)
    found.ok()
    assert b"CN=ana" in server.name, server.name
