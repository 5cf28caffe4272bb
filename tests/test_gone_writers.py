"""A file whose writer was killed. Another client of the same principal replaces or continues it at once, long before the grace period is
over. A reader that does not say that it follows never takes a file in the making for a whole one. On a node and in a cluster, there with
replicated and with striped files."""

import json
import re
import subprocess
import time
from pathlib import Path

import pytest
import raw
from clients import INTERRUPTED, Xrdfs, start_xrdcp, xrdcp
from cluster import Cluster
from content import MIB, content, write
from harness import WEIR_BIN, Defaults, until, weir
from raw import Raw
from recorder import acknowledged, start_writer

FILE_LOCKED = 3003
CHUNK, COUNT = 700_000, 4
LENGTH = CHUNK * COUNT
PIPED = 24 * MIB  # several buffers of `weir cp`


@pytest.fixture(params=["node", "cluster", "striped"])
def place(request, base, own_node):
    """Starts a node or a cluster with a configuration, and returns its URL."""
    clusters = []

    def start(config: str) -> str:
        file = base / f"{Path(request.node.name).name.translate(str.maketrans('[]', '__'))}.toml"
        file.write_text(Defaults.SMALL + config)
        if request.param == "node":
            return own_node("--config", str(file)).url
        clusters.append(Cluster(base / f"{file.stem}-cluster", 2, ("--config", str(file))))
        clusters[-1].__enter__()
        if request.param == "striped":
            clusters[-1].policy("/", "stripe(2, 64KiB)")
        return clusters[-1].url

    yield start
    for cluster in clusters:
        cluster.__exit__(None, None, None)


def begun(url: str, chunk: int = CHUNK):
    """A writer that has written its chunks, and does not close the file."""
    writer = start_writer(url, "gone", chunk, COUNT)
    acknowledged(writer, chunk * COUNT)
    return writer


def killed(url: str) -> None:
    writer = begun(url)
    writer.kill()
    writer.wait()


def test_a_stock_client_replaces_it_at_once(place, tmp_path):
    url = place("grace_seconds = 600\n")
    killed(f"{url}/f")
    source = write(tmp_path / "source", "new", 3 * MIB)
    begin = time.monotonic()
    xrdcp("-f", source, f"{url}/f").ok()
    assert time.monotonic() - begin < 30
    xrdcp(f"{url}/f", tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == source.read_bytes()


def piped(url: str, data: bytes) -> subprocess.Popen:
    """`weir cp` from a pipe that has delivered the data and does not end."""
    writer = subprocess.Popen([WEIR_BIN, "cp", "-", url], stdin=subprocess.PIPE)
    writer.stdin.write(data)
    writer.stdin.flush()
    server, _, path = url.rpartition("/")
    # The last buffer may not be full yet.
    until(lambda: Xrdfs(server).exists(f"/{path}") and Xrdfs(server).size(f"/{path}") > 0, 20)
    return writer


@pytest.mark.parametrize("option", ["--force", "--resume"])
def test_weir_replaces_it_or_goes_on_at_once(place, tmp_path, option):
    url = place("grace_seconds = 600\n")
    killed(f"{url}/f")
    whole = tmp_path / "source"
    whole.write_bytes(content("gone", LENGTH) + b"the rest" * 100_000)
    begin = time.monotonic()
    done = weir("cp", option, str(whole), f"{url}/f")
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - begin < 30
    xrdcp(f"{url}/f", tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("option", ["--force", "--resume"])
def test_what_weir_left_is_replaced_or_continued_at_once(place, tmp_path, option):
    """It writes a striped file at the servers of the units. A pipe has no length that the servers could wait for."""
    url = place("grace_seconds = 600\n")
    writer = piped(f"{url}/f", content("gone", PIPED))
    writer.kill()
    writer.wait()
    whole = tmp_path / "source"
    whole.write_bytes(content("gone", PIPED) + b"the rest" * 100_000)
    begin = time.monotonic()
    done = weir("cp", option, str(whole), f"{url}/f")
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - begin < 30
    xrdcp(f"{url}/f", tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == whole.read_bytes()


def test_what_weir_has_open_is_refused_and_goes_on(place, tmp_path):
    url = place("grace_seconds = 600\n")
    writer = piped(f"{url}/f", content("gone", PIPED))
    source = write(tmp_path / "source", "other", MIB)
    said = xrdcp("-f", source, f"{url}/f").refused(FILE_LOCKED).err
    assert "is being written by" in said and "(principal 0)" in said and "which opened it" in said, said
    said = xrdcp(f"{url}/f", tmp_path / "short").refused(FILE_LOCKED).err
    assert "is being written by" in said and "which opened it" in said and "weir cp --follow" in said, said
    writer.stdin.close()
    assert writer.wait(30) == 0
    xrdcp(f"{url}/f", tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == content("gone", PIPED)


def test_what_a_living_writer_has_open_is_refused_and_the_refusal_says_who_has_it(place, tmp_path):
    url = place("grace_seconds = 600\n")
    writer = begun(f"{url}/f")
    source = write(tmp_path / "source", "other", MIB)
    for refused in [xrdcp("-f", source, f"{url}/f"), weir("cp", "--force", str(source), f"{url}/f")]:
        said = refused.err if hasattr(refused, "err") else refused.stderr
        code = refused.code if hasattr(refused, "code") else refused.returncode
        assert code != 0 and "is being written by" in said and "(principal 0)" in said and "which opened it" in said, said
    out, _ = writer.communicate("close\n", timeout=30)
    assert "closed" in out
    xrdcp(f"{url}/f", tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == content("gone", LENGTH)


def test_a_plain_copy_of_a_file_in_the_making_is_refused_and_a_follower_reads_it(place, tmp_path):
    url = place("")
    writer = begun(f"{url}/f")
    until(lambda: Xrdfs(url).size("/f") == LENGTH, 10)  # by path, in a cluster too
    assert "POSCPending" in Xrdfs(url).flags("/f")
    xrdcp(f"{url}/f", tmp_path / "short").refused(FILE_LOCKED)
    assert not (tmp_path / "short").exists()
    refused = weir("cp", f"{url}/f", str(tmp_path / "short"))
    assert refused.returncode != 0 and "weir cp --follow" in refused.stderr, refused
    xrdcp(f"{url}/f?weir.follow=1", tmp_path / "part").ok()
    assert (tmp_path / "part").read_bytes() == content("gone", LENGTH)
    out, _ = writer.communicate("close\n", timeout=30)
    assert "closed" in out
    assert "POSCPending" not in Xrdfs(url).flags("/f")
    xrdcp(f"{url}/f", tmp_path / "whole").ok()
    assert (tmp_path / "whole").read_bytes() == content("gone", LENGTH)


def test_a_plain_copy_of_what_a_dead_writer_left_waits_until_that_is_decided(place, tmp_path):
    url = place("grace_seconds = 4\n")
    killed(f"{url}/f")
    begin = time.monotonic()
    refused = xrdcp(f"{url}/f", tmp_path / "short")
    assert refused.code != 0 and INTERRUPTED.search(refused.err), refused
    assert time.monotonic() - begin > 2 and not (tmp_path / "short").exists()


def test_by_configuration_a_plain_copy_waits_for_the_whole(place, tmp_path):
    url = place('[files]\nunfinished = "wait"\n')
    writer = begun(f"{url}/f")
    copy = start_xrdcp(f"{url}/f", tmp_path / "back")
    time.sleep(4)
    assert copy.poll() is None
    writer.communicate("close\n", timeout=30)
    assert copy.wait(30) == 0
    assert (tmp_path / "back").read_bytes() == content("gone", LENGTH)


def test_in_a_followed_directory_plain_readers_follow(place, tmp_path):
    url = place('[files]\nfollowed = ["/daq"]\n')
    writers = [begun(f"{url}/daq/run1"), begun(f"{url}/other")]
    until(lambda: Xrdfs(url).size("/daq/run1") == LENGTH, 10)
    xrdcp(f"{url}/daq/run1", tmp_path / "part").ok()
    assert (tmp_path / "part").read_bytes() == content("gone", LENGTH)
    xrdcp(f"{url}/other", tmp_path / "short").refused(FILE_LOCKED)
    for writer in writers:
        writer.communicate("close\n", timeout=30)


@pytest.mark.parametrize("manner", ["combined", "direct"])
def test_the_old_writer_of_a_striped_file_can_change_nothing_any_more(base, tmp_path, manner):
    """It comes back with what it was given: to the server that combines the units, or to the servers of the units. While it is connected to
    one of them, nobody takes its file."""
    with Cluster(base / f"fenced-{manner}", 3, ("--grace-seconds", "600")) as cluster:
        cluster.policy("/", "stripe(2, 64KiB)")
        source = write(tmp_path / "source", "new", 3 * MIB)
        with Raw.to(cluster.manager) as manager:
            doors = [("/f", manager.ask_open("/f?weir.direct=1", raw.OPEN_NEW | raw.OPEN_UPDATE).redirect)]
            writer = re.search(r"weir\.striped=[^&]*\.w\.([^&]*)", doors[0][1][2]).group(1)
            units = [f"/f?weir.unit={unit}&weir.writer={writer}" for unit in range(2)]
            if manner == "direct":
                doors = [(unit, manager.ask_open(unit, raw.OPEN_UPDATE).redirect) for unit in units]
        paths = [(port, host, f"{path}{'&' if '?' in path else '?'}{words}") for path, (port, host, words) in doors]
        connections = []
        for port, host, path in paths:
            connections.append(Raw(port, host=host))
            handle = connections[-1].open(path, raw.OPEN_UPDATE)
            assert connections[-1].write(handle, 0, b"old" * 100_000).status == raw.OK
        while connections:
            xrdcp("-f", source, f"{cluster.url}/f").refused(FILE_LOCKED)
            connections.pop().socket.close()
        # The server needs a moment to notice that the last connection has ended.
        until(lambda: xrdcp("-f", source, f"{cluster.url}/f").code == 0, 10)
        for port, host, path in paths:
            with Raw(port, host=host) as late:
                assert late.ask_open(path, raw.OPEN_UPDATE).status != raw.OK
        with Raw.to(cluster.manager) as manager:
            assert [manager.ask_open(unit, raw.OPEN_UPDATE).error is not None for unit in units] == [True, True]
        xrdcp(f"{cluster.url}/f", tmp_path / "back").ok()
        assert (tmp_path / "back").read_bytes() == source.read_bytes()


def test_listings_say_which_files_are_unfinished(place, tmp_path):
    url = place("grace_seconds = 1\n")
    xrdcp(write(tmp_path / "source", "whole", MIB), f"{url}/whole").ok()

    def said(file: str) -> list[str]:
        """What `ls -l`, `ls --json` and `stat` note about it."""
        line = next(line for line in weir("ls", "-l", f"{url}/").stdout.splitlines() if f" {file}" in line)
        listed = [json.loads(line) for line in weir("ls", "--json", f"{url}/").stdout.splitlines()]
        note = next(entry["info"]["note"] for entry in listed if entry["name"] == file)
        found = re.search("note +(.*)", weir("stat", f"{url}/{file}").stdout)
        return [line.partition("  (")[2].rstrip(")"), note or "", found.group(1) if found else ""]

    writer = begun(f"{url}/f")
    assert said("f") == ["being written"] * 3
    writer.kill()
    writer.wait()
    until(lambda: said("f") == ["interrupted"] * 3, 30)
    assert said("whole") == [""] * 3
