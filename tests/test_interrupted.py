"""A file whose writer has died is kept and marked. Clients that want a whole file are refused; clients that ask for a part can read it."""

import json
import time

import pytest
from clients import INTERRUPTED, Xrdfs, start_xrdcp, xrdcp
from content import MIB, adler32, content, write
from harness import until, weir
from proxy import UP, Proxy
from raw import OPEN_NEW, OPEN_UPDATE, WAIT, Raw
from recorder import acknowledged, start_writer

GRACE_SECONDS = 2


def killed(url: str, seed: str, chunk: int, count: int, flag: str = "NEW") -> int:
    """Kills a writer that has all its chunks acknowledged; returns their bytes."""
    writer = start_writer(url, seed, chunk, count, flag)
    got = acknowledged(writer, chunk * count)
    writer.kill()
    writer.wait()
    return got


def until_interrupted(url: str, path: str, seconds: float = GRACE_SECONDS + 10) -> str:
    """Waits until a stock open is refused because the file is interrupted; returns the reason."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        outcome = Xrdfs(url)("cat", path)
        if outcome.code != 0 and INTERRUPTED.search(outcome.err):
            return outcome.err
        time.sleep(0.2)
    raise AssertionError(f"{path} was never marked interrupted; last: {outcome}")


@pytest.fixture
def server(own_node):
    return own_node("--grace-seconds", str(GRACE_SECONDS))


@pytest.mark.parametrize("chunk,count", [(1000, 3), (100_000, 7), (MIB, 9)])
def test_a_dead_writers_file_is_kept_and_marked(server, tmp_path, chunk, count):
    url, fs = server.url, Xrdfs(server.url)
    got = killed(f"{url}/recording", "dead", chunk, count)
    until_interrupted(url, "/recording")
    data = content("dead", chunk * count)
    refused = xrdcp(f"{url}/recording", tmp_path / "whole")
    assert refused.code != 0 and INTERRUPTED.search(refused.err) and "weir.partial=1" in refused.err, refused
    xrdcp(f"{url}/recording?weir.partial=1", tmp_path / "part").ok()
    part = (tmp_path / "part").read_bytes()
    assert len(part) >= got and part == data[: len(part)]
    # There is no checksum to compare it with.
    done = weir("cp", f"{url}/recording?weir.partial=1", str(tmp_path / "same"))
    assert done.returncode == 0 and (tmp_path / "same").read_bytes() == part, done
    assert fs.size("/recording") == len(part)
    assert fs.names("/") == ["recording"]
    assert fs("query", "checksum", "/recording").code != 0


def test_within_the_grace_period_it_is_not_interrupted(own_node):
    server = own_node("--grace-seconds", "30")
    killed(f"{server.url}/recording", "grace", MIB, 2)
    time.sleep(3)
    Xrdfs(server.url)("stat", "/recording").ok()
    with Raw(server.port) as reader:
        end = time.monotonic() + 2
        while time.monotonic() < end:
            assert reader.ask_open("/recording").status == WAIT, "its writer may return"
            time.sleep(0.2)


def test_the_grace_period_can_come_from_the_configuration(own_node, base):
    config = base / "grace.toml"
    config.write_text("grace_seconds = 1\n")
    server = own_node("--config", str(config))
    killed(f"{server.url}/recording", "config", MIB, 2)
    until_interrupted(server.url, "/recording", 8)


def test_an_interrupted_file_stays_so_over_restarts(server, tmp_path):
    got = killed(f"{server.url}/recording", "restart", 300_000, 5)
    until_interrupted(server.url, "/recording")
    server.restart()
    until_interrupted(server.url, "/recording")
    server.kill()
    server.start()
    until_interrupted(server.url, "/recording")
    xrdcp(f"{server.url}/recording?weir.partial=1", tmp_path / "part").ok()
    assert (tmp_path / "part").read_bytes()[:got] == content("restart", 1_500_000)[:got]


@pytest.mark.parametrize("chunk,count", [(1000, 3), (100_000, 7), (MIB, 9)])
def test_server_and_writer_both_die(server, tmp_path, chunk, count):
    """A SIGKILL of the server loses no acknowledged write: the kernel has them."""
    writer = start_writer(f"{server.url}/recording", "both", chunk, count)
    got = acknowledged(writer, chunk * count)
    server.kill()
    writer.kill()
    writer.wait()
    server.start()
    until_interrupted(server.url, "/recording")
    xrdcp(f"{server.url}/recording?weir.partial=1", tmp_path / "part").ok()
    part = (tmp_path / "part").read_bytes()
    assert len(part) >= got and part == content("both", chunk * count)[: len(part)]


def test_an_interrupted_overwrite_leaves_the_old_file(server, tmp_path):
    old = write(tmp_path / "old", "old file", 3 * MIB)
    xrdcp(old, f"{server.url}/file").ok()
    killed(f"{server.url}/file", "overwrite", MIB, 2, "DELETE")
    time.sleep(GRACE_SECONDS + 2)
    xrdcp(f"{server.url}/file", tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == old.read_bytes()
    fs = Xrdfs(server.url)
    assert fs.names("/") == ["file"]
    assert fs("query", "checksum", "/file").ok().out.split()[1] == adler32(old.read_bytes())
    server.restart()
    xrdcp("-f", f"{server.url}/file", tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == old.read_bytes()


def test_a_new_copy_may_replace_it(server, tmp_path):
    killed(f"{server.url}/recording", "replace", MIB, 2)
    until_interrupted(server.url, "/recording")
    source = write(tmp_path / "source", "replacement", 4 * MIB)
    xrdcp("-f", source, f"{server.url}/recording").ok()
    xrdcp(f"{server.url}/recording", tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == source.read_bytes()


def test_it_can_be_removed_and_renamed(server):
    fs = Xrdfs(server.url)
    killed(f"{server.url}/a", "remove", MIB, 2)
    until_interrupted(server.url, "/a")
    fs("mv", "/a", "/b").ok()
    until_interrupted(server.url, "/b")
    fs("rm", "/b").ok()
    assert fs.names("/") == []


def test_a_writer_that_comes_back_in_time_goes_on(own_node, tmp_path):
    """The connection is lost for less than the grace period."""
    server = own_node("--grace-seconds", "20")
    with Proxy(server.port) as proxy:
        writer = start_writer(f"{proxy.url}/recording", "back", 700_000, 10)
        acknowledged(writer, 2_100_000)
        proxy.cut()
        acknowledged(writer, 7_000_000)
        out, _ = writer.communicate("close\n", timeout=60)
    assert "closed" in out
    xrdcp(f"{server.url}/recording", tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == content("back", 7_000_000)


def test_posc_leaves_nothing_behind(server, tmp_path):
    """Persist on successful close: a writer that dies leaves no name."""
    with Proxy(server.port) as proxy:
        source = write(tmp_path / "source", "posc", 30 * MIB)
        copy = start_xrdcp("--posc", source, f"{proxy.url}/file")
        proxy.at(UP, 10 * MIB, copy.kill)
        copy.wait()
    until(lambda: Xrdfs(server.url).names("/") == [], GRACE_SECONDS + 10, server.log_text)


def test_an_open_that_a_kill_cut_off_before_the_first_byte_is_no_damage(server):
    with Raw(server.port) as client:
        client.open("/begun", OPEN_NEW | OPEN_UPDATE)
        server.kill()
    checked = weir("fsck", "--json", "--data", str(server.data))
    assert checked.returncode == 0 and json.loads(checked.stdout)["being_written"] == 1, checked
    server.start()
    until_interrupted(server.url, "/begun")
    server.stop()
    checked = weir("fsck", "--data", str(server.data))
    assert checked.returncode == 0, checked
