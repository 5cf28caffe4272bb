"""The scrub of disk servers: a damaged replica is found, replaced from an intact one and counted. The last replica is never touched,
whatever it is like, and nobody gets wrong bytes."""

import json
import threading
import time
from pathlib import Path

import pytest
from clients import Xrdfs, xrdcp
from cluster import Cluster, Node
from content import KIB, MIB, write
from harness import READY_SECONDS, remove, until, weir
from test_damage import CHECKSUM_ERROR, flip, places_of
from test_metrics import named, samples

WITHOUT_RECENT = True

PAGE = 4096
REPAIRED_SECONDS = 60


def scrub(node: Node, *flags: str) -> dict:
    done = weir("scrub", "--data", str(node.data), "--json", *flags)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def of_store(disk: Node, *flags: str) -> dict:
    (one,) = scrub(disk, *flags)["stores"]
    return one


def ended(disk: Node, *flags: str) -> dict:
    """Starts a pass; returns the status at its end."""
    number = of_store(disk)["pass"] + 1
    scrub(disk, "--now", *flags)
    end = time.monotonic() + 60
    while (status := of_store(disk))["running"] or status["pass"] < number:
        assert time.monotonic() < end, f"the pass did not end: {status}\n{disk.log_text()}"
        time.sleep(0.05)
    return status


def objects_in(disk: Node) -> Path:
    return disk.data / "store" / "store"


def place_of(disk: Node, page: bytes) -> tuple[Path, int]:
    (place,) = places_of(objects_in(disk), page)
    return place


def put(cluster: Cluster, path: str, size: int, tmp_path) -> bytes:
    source = write(tmp_path / "put", path, size)
    xrdcp("-f", source, cluster.url + path).ok()
    return source.read_bytes()


def damaged(cluster: Cluster) -> dict[str, str]:
    """What the manager lists: the state of each damaged replica, by path and store."""
    found = scrub(cluster.manager)["replicas"]
    return {one["path"]: one["state"] for one in found}


def repaired(cluster: Cluster) -> int:
    return scrub(cluster.manager)["repaired"]


@pytest.fixture
def make(base, request):
    made = []

    def make(disks: int = 2, settings: str = "") -> Cluster:
        home = base / request.node.name
        home.mkdir()
        config = home / "weir.toml"
        config.write_text(f'limits.recent = "0B"\n{settings}')
        made.append(Cluster(home, disks, ("--config", str(config), "--grace-seconds", "5")).start())
        if disks > 1:
            made[-1].policy("/two", "replica(2)")
        made[-1].policy("/one", "replica(1)")
        return made[-1]

    yield make
    for cluster in made:
        cluster.__exit__()
        remove(cluster.home)


def settled(disk: Node, page: bytes) -> None:
    """Small files, of which one has this page, stay in the journal for a moment, where the scrub has nothing to compare with the disk."""
    until(lambda: places_of(objects_in(disk) / "segments", page), READY_SECONDS, disk.log_text)
    time.sleep(1)  # the index names the new place


def test_a_flipped_byte_is_found_replaced_and_counted(make, tmp_path):
    cluster = make()
    first = cluster.disks[0]
    large, small = put(cluster, "/two/large", 5 * MIB + 77, tmp_path), put(cluster, "/two/small", 20 * KIB, tmp_path)
    put(cluster, "/two/neighbour", 2 * MIB, tmp_path)
    settled(first, small[2 * PAGE : 3 * PAGE])
    for data, spot in ((large, 3 * MIB), (small, 2 * PAGE)):
        place = place_of(first, data[spot : spot + PAGE])
        flip(place[0], place[1] + 100)
    status = ended(first, "--rate", "1GiB")
    assert (status["last"]["damaged"], status["last"]["whole"]) == (2, 1), first.log_text()
    assert first.log_text().count("is damaged on the disk: ") == 2
    cluster.until(lambda: repaired(cluster) == 2, REPAIRED_SECONDS)
    assert damaged(cluster) == {} and of_store(first)["damaged_now"] == 0
    cluster.until(lambda: cluster.asked("status")["missing"]["count"] == 0)
    stores = {cluster.store_of(disk) for disk in cluster.disks}
    for path in ("/two/large", "/two/small"):
        assert cluster.whole_on(path) == stores
        assert f"{path} is damaged on" in cluster.manager.log_text()
        assert f"{path} is intact on" in cluster.manager.log_text()
    settled(first, small[2 * PAGE : 3 * PAGE])
    place_of(first, large[3 * MIB : 3 * MIB + PAGE])
    place_of(first, small[2 * PAGE : 3 * PAGE])
    assert ended(first, "--rate", "1GiB")["last"]["damaged"] == 0
    cluster.disks[1].kill()
    for path, data in (("/two/large", large), ("/two/small", small)):
        xrdcp("-f", cluster.url + path, tmp_path / "back").ok()
        assert (tmp_path / "back").read_bytes() == data, path


def test_a_damaged_last_replica_stays_and_is_listed(make, tmp_path):
    cluster = make(1)
    (disk,) = cluster.disks
    data = put(cluster, "/one/file", 3 * MIB, tmp_path)
    place = place_of(disk, data[MIB : MIB + PAGE])
    flip(place[0], place[1] + 9)
    as_it_is = place[0].read_bytes()
    assert ended(disk, "--rate", "1GiB")["last"]["damaged"] == 1
    cluster.until(lambda: damaged(cluster) == {"/one/file": "no-other"})
    status = json.loads(weir("status", "--json", "--data", cluster.data).stdout)
    assert status["health"]["verdict"] == "critical" and status["damaged"]["no_other"] == 1, status
    assert "damaged-objects" in [reason["reason"] for reason in status["health"]["reasons"]]
    of_disk = json.loads(weir("status", "--json", "--data", str(disk.data)).stdout)
    assert "damaged-objects" in [reason["reason"] for reason in of_disk["health"]["reasons"]]
    said = cluster.weir("scrub", "--data", cluster.data)
    assert "/one/file: damaged on" in said and "no other store has it intact" in said, said
    assert [one["replica"] for one in cluster.file("/one/file")["object"]["replicas"]] == ["damaged"]
    fs = Xrdfs(cluster.url)
    # The mark is made durable first.
    cluster.until(lambda: fs("query", "checksum", "/one/file").code != 0)
    refused = fs("query", "checksum", "/one/file").refused(CHECKSUM_ERROR)
    assert "marked" in refused.err, refused
    assert xrdcp("-f", f"{cluster.url}/one/file", tmp_path / "back").code != 0, "wrong bytes were sent"
    # Neither time nor restarts change the replica.
    disk.kill()
    cluster.manager.kill()
    cluster.manager.start()
    disk.start()
    cluster.wait_sessions()
    cluster.until(lambda: damaged(cluster) == {"/one/file": "no-other"})
    assert place[0].read_bytes() == as_it_is
    # Written again, it is a file like any other.
    put(cluster, "/one/file", 3 * MIB, tmp_path)
    cluster.until(lambda: damaged(cluster) == {} and of_store(disk)["damaged_now"] == 0, 90)
    fs("query", "checksum", "/one/file").ok()
    xrdcp("-f", f"{cluster.url}/one/file", tmp_path / "back").ok()


def test_two_damaged_replicas_cost_no_byte(make, tmp_path):
    cluster = make()
    data = put(cluster, "/two/file", 4 * MIB, tmp_path)
    before = []
    for disk, spot in zip(cluster.disks, (MIB, 3 * MIB), strict=True):
        place = place_of(disk, data[spot : spot + PAGE])
        flip(place[0], place[1] + 9)
        before.append((place[0], place[0].read_bytes()))
    for disk in cluster.disks:
        assert ended(disk, "--rate", "1GiB")["last"]["damaged"] == 1
    cluster.until(lambda: [one["state"] for one in scrub(cluster.manager)["replicas"]].count("no-other") == 1)
    # One counts as missing. Its store tries to fetch the other, which is damaged elsewhere.
    cluster.until(lambda: cluster.asked("repair")["failed"] > 0, REPAIRED_SECONDS)
    assert repaired(cluster) == 0
    for path, content in before:
        assert path.read_bytes() == content, "a byte of the last replicas was lost"
    assert xrdcp("-f", f"{cluster.url}/two/file", tmp_path / "back").code != 0, "wrong bytes were sent"


def test_kills_between_finding_and_replacing(make, tmp_path):
    cluster = make()
    first = cluster.disks[0]
    data = put(cluster, "/two/file", 6 * MIB, tmp_path)
    cluster.until(lambda: len(cluster.whole_on("/two/file")) == 2)
    spot = 4 * MIB
    place = place_of(first, data[spot : spot + PAGE])
    flip(place[0], place[1] + 9)
    # Found while there is no manager, and the disk server is killed before it can report.
    cluster.manager.kill()
    assert ended(first, "--rate", "1GiB")["last"]["damaged"] == 1
    first.kill()
    first.launch()
    cluster.manager.start()
    first.wait_ready()
    cluster.wait_sessions()
    # The manager is killed when it has recorded the damage, or a little later.
    cluster.until(lambda: "repair replaces that replica" in cluster.manager.log_text(since_start=True))
    cluster.manager.kill()
    cluster.manager.start()
    first.kill()
    first.start()
    cluster.wait_sessions()
    cluster.until(lambda: of_store(first)["damaged_now"] == 0 and len(cluster.whole_on("/two/file")) == 2, REPAIRED_SECONDS)
    cluster.until(lambda: damaged(cluster) == {})
    place_of(first, data[spot : spot + PAGE])
    assert ended(first, "--rate", "1GiB")["last"]["damaged"] == 0
    cluster.disks[1].kill()
    xrdcp("-f", f"{cluster.url}/two/file", tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == data


def test_damage_waits_for_an_offline_store(make, tmp_path):
    cluster = make()
    first, second = cluster.disks
    data = put(cluster, "/two/file", 2 * MIB, tmp_path)
    place = place_of(first, data[MIB : MIB + PAGE])
    flip(place[0], place[1] + 9)
    second.kill()
    cluster.until(lambda: [store["state"] for store in cluster.stores()].count("offline") == 1, 60)
    ended(first, "--rate", "1GiB")
    cluster.until(lambda: damaged(cluster) == {"/two/file": "waiting"})
    fs = Xrdfs(cluster.url)
    fs("query", "checksum", "/two/file").ok()
    second.start()
    cluster.wait_sessions()
    cluster.until(lambda: repaired(cluster) == 1, REPAIRED_SECONDS)
    place_of(first, data[MIB : MIB + PAGE])


def test_a_read_that_fails_has_the_replica_replaced(make, tmp_path):
    """Without any pass of the scrub."""
    cluster = make()
    first = cluster.disks[0]
    data = put(cluster, "/two/file", 2 * MIB, tmp_path)
    place = place_of(first, data[MIB : MIB + PAGE])
    flip(place[0], place[1] + 9)

    def read_and_look() -> bool:
        # It may be sent to the intact replica.
        if xrdcp("-f", f"{cluster.url}/two/file", tmp_path / "back").code == 0:
            assert (tmp_path / "back").read_bytes() == data, "wrong bytes were sent"
        return repaired(cluster) == 1

    cluster.until(read_and_look, REPAIRED_SECONDS)
    assert of_store(first)["pass"] == 0
    place_of(first, data[MIB : MIB + PAGE])


def test_a_damaged_page_that_is_overwritten_is_good_again(make, tmp_path):
    from XRootD import client
    from XRootD.client.flags import OpenFlags

    cluster = make(1)
    (disk,) = cluster.disks
    data = put(cluster, "/one/file", 2 * MIB, tmp_path)
    place = place_of(disk, data[MIB : MIB + PAGE])
    flip(place[0], place[1] + 9)
    ended(disk, "--rate", "1GiB")
    cluster.until(lambda: damaged(cluster) == {"/one/file": "no-other"})
    file = client.File()
    assert file.open(f"{cluster.url}/one/file", OpenFlags.UPDATE)[0].ok
    assert file.write(data[MIB : MIB + PAGE], MIB)[0].ok
    assert file.close()[0].ok
    cluster.until(lambda: of_store(disk)["damaged_now"] == 0 and damaged(cluster) == {})
    xrdcp("-f", f"{cluster.url}/one/file", tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == data
    cluster.until(lambda: Xrdfs(cluster.url)("query", "checksum", "/one/file").code == 0)


def test_no_false_alarm_while_files_change_and_go(make, tmp_path):
    from XRootD import client
    from XRootD.client.flags import OpenFlags

    cluster = make()
    fs = Xrdfs(cluster.url)
    for number in range(4):
        put(cluster, f"/two/changing{number}", 2 * MIB, tmp_path)
    stop = threading.Event()
    rounds = [0, 0]

    def update() -> None:
        while not stop.is_set():
            file = client.File()
            status, _ = file.open(f"{cluster.url}/two/changing{rounds[0] % 4}", OpenFlags.UPDATE)
            assert status.ok, status.message
            for at in range(0, 2 * MIB, 300_001):
                file.write(bytes([rounds[0] % 251 + 1]) * 5000, at)
            file.close()
            rounds[0] += 1

    def replace() -> None:
        while not stop.is_set():
            path = f"/two/gone{rounds[1] % 5}"
            source = write(tmp_path / "replaced", rounds[1], 20 * KIB if rounds[1] % 2 else MIB)
            xrdcp("-f", source, cluster.url + path).ok()
            if rounds[1] % 3 == 0:
                fs("rm", path).ok()
            rounds[1] += 1

    threads = [threading.Thread(target=update), threading.Thread(target=replace)]
    for thread in threads:
        thread.start()
    try:
        passes, end = 0, time.monotonic() + 90
        while (passes < 6 or min(rounds) < 5) and time.monotonic() < end:
            for disk in cluster.disks:
                assert ended(disk, "--rate", "1GiB")["last"]["damaged"] == 0, disk.log_text()
            passes += 1
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert min(rounds) >= 5, "there was something to disturb"
    assert not any("is damaged" in node.log_text() for node in cluster.nodes)
    assert damaged(cluster) == {} and repaired(cluster) == 0


def test_the_rate_is_held_and_a_kill_goes_on_in_the_middle(make, tmp_path):
    # So slow that the pass is not over before anybody looks, also after the restart.
    cluster = make(1, '[scrub]\nrate = "2MiB"\n')
    (disk,) = cluster.disks
    for number in range(8):
        put(cluster, f"/one/file{number}", 4 * MIB, tmp_path)
    last = ended(disk, "--rate", "8MiB")["last"]
    assert last["ended"] - last["began"] >= 3, "32 MiB at 8 MiB a second"
    scrub(disk, "--rate", "4MiB")
    while of_store(disk)["current"]["bytes"] < 12 * MIB:
        time.sleep(0.05)
    assert disk.stop() == 0
    disk.start()
    assert of_store(disk)["current"]["bytes"] >= 12 * MIB, "it goes on where it was"
    scrub(disk, "--stop")
    disk.kill()
    disk.start()
    status = of_store(disk)
    assert not status["running"] and status["pass"] == 2, "what was ended stays so"
    words = weir("scrub", "--data", str(disk.data)).stdout
    assert words.startswith(f"store {status['store']} in ") and "the next pass begins" in words, words
    refused = weir("scrub", "--data", cluster.data, "--now")
    assert refused.returncode != 0 and "run the command on a disk server" in refused.stderr


def test_metrics_of_the_scrub(make, tmp_path):
    cluster = make(1)
    (disk,) = cluster.disks
    for node in cluster.nodes:
        node.stop()
        node.start("--metrics", "127.0.0.1:0")
    cluster.wait_sessions()
    data = put(cluster, "/one/file", 2 * MIB, tmp_path)
    place = place_of(disk, data[MIB : MIB + PAGE])
    flip(place[0], place[1] + 9)
    store = ended(disk, "--rate", "1GiB")["store"]
    seen = samples(disk)
    assert named(seen, "weir_scrub_damaged_objects", store=str(store)) == 1
    assert named(seen, "weir_scrub_pass") == 1 and named(seen, "weir_scrub_running") == 0
    assert named(seen, "weir_scrub_read_bytes") >= MIB and named(seen, "weir_scrub_last_pass_time_seconds") > 1e9
    assert named(seen, "weir_health", reason="damaged-objects") == 2
    cluster.until(lambda: named(samples(cluster.manager), "weir_cluster_damaged_replicas", state="no_other") == 1)
    assert named(samples(cluster.manager), "weir_cluster_damaged_repaired_total") == 0
