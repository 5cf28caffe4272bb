"""The scrub of a running node: it reports each damage once, continues after a restart, keeps its rate, and gives no false alarm while files
change."""

import json
import os
import subprocess
import threading
import time

import pytest
from clients import Xrdfs, start_xrdcp, xrdcp
from content import KIB, MIB, content, write
from harness import Weir, until, weir
from test_damage import CHECKSUM_ERROR, flip, places_of, put

WITHOUT_RECENT = True

PAGE = 4096


def scrub(server: Weir, *flags: str) -> dict:
    done = weir("scrub", "--data", str(server.data), "--json", *flags)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def ended(server: Weir, *flags: str, patience_seconds: float = 60) -> dict:
    """Starts a pass; returns the status at its end."""
    number = scrub(server)["pass"] + 1
    scrub(server, "--now", *flags)
    end = time.monotonic() + patience_seconds
    while time.monotonic() < end:
        status = scrub(server)
        if status["pass"] >= number and not status["running"]:
            return status
        time.sleep(0.05)
    raise AssertionError(f"the pass did not end: {status}")


def settled(server: Weir, small: bytes = b"") -> None:
    """Small files stay in the journal for a moment, where the scrub has nothing to compare with the disk. `small`: bytes of one."""
    until(lambda: places_of(server.data / "store", small), 30)
    time.sleep(3)  # the index follows


def complaints(server: Weir, path: str) -> int:
    return server.log_text().count(f"scrub: {path} is damaged on the disk")


def test_damage_is_found_under_load_and_said_once(own_node, tmp_path):
    server = own_node()
    large, small = put(server, "/large", 5 * MIB + 77, tmp_path), put(server, "/small", 20 * KIB, tmp_path)
    put(server, "/neighbour", 5 * MIB, tmp_path)
    settled(server, small[2 * PAGE : 3 * PAGE])
    damaged = []
    for data, spot in ((large, 3 * MIB), (small, 2 * PAGE)):
        (place,) = places_of(server.data / "store", data[spot : spot + PAGE])
        flip(place[0], place[1] + 100)
        damaged.append(place[0])
    (tmp_path / "load").write_bytes(content("load", 10 * MIB) * 20)
    load = [start_xrdcp("-f", tmp_path / "load", f"{server.url}/load{number}") for number in range(3)]
    status = ended(server, "--rate", "1GiB")
    assert status["last"]["damaged"] == 2 and status["last"]["whole"] >= 1
    fs = Xrdfs(server.url)
    for path in ("/large", "/small"):
        assert complaints(server, path) == 1, server.log_text()
        refused = fs("query", "checksum", path).refused(CHECKSUM_ERROR)
        assert "marked" in refused.err and "damaged on the disk" in refused.err
    fs("query", "checksum", "/neighbour").ok()
    for client in load:
        assert client.wait(120) == 0, client.stdout.read()
    status = ended(server, "--rate", "4GiB")
    assert status["last"]["damaged"] == 2 and status["last"]["whole"] == 4
    assert complaints(server, "/large") == complaints(server, "/small") == 1, "each is said once"
    put(server, "/large", 5 * MIB, tmp_path)
    until(lambda: not damaged[0].exists(), 30)
    assert ended(server, "--rate", "4GiB")["last"]["damaged"] == 1
    fs("query", "checksum", "/large").ok()
    # However it was repaired, the file is no longer reported as damaged.
    (place,) = places_of(server.data / "store", small[PAGE : 2 * PAGE])
    flip(place[0], place[1] + PAGE + 100)
    assert ended(server, "--rate", "4GiB")["last"]["damaged"] == 0
    fs("query", "checksum", "/small").ok()
    flip(place[0], place[1] + PAGE + 100)
    server.stop()
    checked = weir("fsck", "--data", str(server.data))
    assert "/small" in checked.stdout and "/large" not in checked.stdout and "/load" not in checked.stdout


def test_no_false_alarm_while_files_change_and_go(own_node, tmp_path):
    from XRootD import client
    from XRootD.client.flags import OpenFlags

    server = own_node()
    fs = Xrdfs(server.url)
    for number in range(8):
        put(server, f"/changing{number}", 3 * MIB, tmp_path)
    stop = threading.Event()
    rounds = [0, 0]

    def update() -> None:
        while not stop.is_set():
            file = client.File()
            status, _ = file.open(f"{server.url}/changing{rounds[0] % 8}", OpenFlags.UPDATE)
            assert status.ok, status.message
            for at in range(0, 3 * MIB, 300_001):
                file.write(bytes([rounds[0] % 251 + 1]) * 5000, at)
            file.close()
            rounds[0] += 1

    def replace() -> None:
        while not stop.is_set():
            path = f"/gone{rounds[1] % 5}"
            source = write(tmp_path / "replaced", rounds[1], 20 * KIB if rounds[1] % 2 else MIB)
            xrdcp("-f", source, f"{server.url}{path}").ok()
            if rounds[1] % 3 == 0:
                fs("rm", path).ok()
            rounds[1] += 1

    threads = [threading.Thread(target=update), threading.Thread(target=replace)]
    for thread in threads:
        thread.start()
    try:
        passes, end = 0, time.monotonic() + 90
        while (passes < 8 or min(rounds) < 5) and time.monotonic() < end:
            status = ended(server, "--rate", "1GiB")
            assert status["last"]["damaged"] == 0, server.log_text()
            passes += 1
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert min(rounds) >= 5, "there was something to disturb"
    assert "is damaged" not in server.log_text()
    status = ended(server, "--rate", "1GiB")
    assert status["last"]["damaged"] == 0 and status["last"]["whole"] >= 8


def test_the_rate_is_held_and_a_restart_goes_on_in_the_middle(own_node, tmp_path):
    config = tmp_path / "weir.toml"
    # Slow enough to stop it in the middle, and to look before its end.
    config.write_text('[scrub]\nrate = "2MiB"\n')
    server = own_node("--config", str(config))
    contents = [put(server, f"/file{number}", 4 * MIB, tmp_path) for number in range(8)]
    status = ended(server, "--rate", "8MiB")
    took = status["last"]["ended"] - status["last"]["began"]
    assert took >= 3, f"32 MiB at 8 MiB a second, in {took} s"
    scrub(server, "--rate", "2MiB")
    while scrub(server)["current"]["bytes"] < 12 * MIB:
        time.sleep(0.05)
    server.stop()
    # Behind the part that was checked before the stop.
    (place,) = places_of(server.data / "store", contents[6][MIB : MIB + PAGE])
    flip(place[0], place[1])
    server.start()
    assert scrub(server)["current"]["bytes"] >= 12 * MIB, "it goes on where it was"
    scrub(server, "--rate", "1GiB")
    while scrub(server)["running"]:
        time.sleep(0.05)
    last = scrub(server)["last"]
    assert last["damaged"] == 1 and last["whole"] == 7, last
    assert last["bytes"] < 36 * MIB, "the first half was not read again"
    assert complaints(server, "/file6") == 1


def test_stop_and_a_node_that_is_not_there(own_node, tmp_path):
    server = own_node()
    put(server, "/file", 8 * MIB, tmp_path)
    assert scrub(server, "--rate", "1MiB")["running"]
    scrub(server, "--stop")
    server.kill()
    server.start()
    assert not scrub(server)["running"], "what was ended stays so"
    assert scrub(server, "--rate", "1MiB")["running"]
    scrub(server, "--stop")
    server.restart()
    assert not scrub(server)["running"], "also through an orderly stop"
    said = weir("scrub", "--data", str(server.data), "--status")
    assert said.returncode == 0 and "the next pass begins" in said.stdout, said.stdout
    server.kill()
    refused = weir("scrub", "--data", str(server.data))
    assert refused.returncode == 6 and "no node is running" in refused.stderr
    server.start()
    assert scrub(server)["pass"] == 2


def test_a_pass_by_hand_where_none_is_begun_by_itself(own_node, tmp_path):
    config = tmp_path / "weir.toml"
    config.write_text('[scrub]\nrate = "0B"\n')
    server = own_node("--config", str(config))
    contents = put(server, "/file", 8 * MIB, tmp_path)
    refused = weir("scrub", "--data", str(server.data), "--now")
    assert refused.returncode != 0 and "--rate" in refused.stderr, "nobody said how fast"
    assert not scrub(server)["running"]
    # Stopped and restarted at once, many times: each is a new pass from the beginning, and only one comes to its end.
    for number in range(20):
        assert scrub(server, "--rate", "1MiB")["running"]
        scrub(server, "--stop")
        assert scrub(server)["pass"] == number + 1 and not scrub(server)["running"]
    (place,) = places_of(server.data / "store", contents[:PAGE])
    flip(place[0], place[1])
    assert ended(server, "--rate", "1GiB")["last"]["damaged"] == 1
    time.sleep(0.5)
    assert scrub(server)["pass"] == 21, "no other was begun"
    # A second request during the pass continues the same one.
    flip(place[0], place[1])
    scrub(server, "--rate", "1MiB")
    scrub(server, "--rate", "1GiB")
    end = time.monotonic() + 30
    while scrub(server)["running"]:
        assert time.monotonic() < end
        time.sleep(0.05)
    time.sleep(0.5)
    assert scrub(server)["pass"] == 22, "no other was begun"


def cached_pages(path) -> int:
    return int(subprocess.run(["fincore", "-n", "-r", "-o", "PAGES", path], check=True, capture_output=True, text=True).stdout)


@pytest.mark.alone  # the page cache is everybody's
def test_the_page_cache_is_left_as_it_is(own_node, tmp_path):
    server = own_node()
    put(server, "/cold", 4 * MIB, tmp_path)
    put(server, "/warm", 4 * MIB, tmp_path)
    large = list((server.data / "store/objects").rglob("*.0"))
    assert len(large) == 2
    cold, warm = sorted(large)
    os.sync()
    for path in (cold, warm):
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if cached_pages(cold) > 0:
        pytest.skip("this file system keeps its files in memory")
    warm.read_bytes()
    before = cached_pages(warm)
    assert before > 900
    assert ended(server, "--rate", "1GiB")["last"]["whole"] == 2
    # The kernel may keep some pages if memory is short; a scrub that drops what it reads leaves none.
    assert cached_pages(cold) == 0 and cached_pages(warm) > before * 3 // 4
