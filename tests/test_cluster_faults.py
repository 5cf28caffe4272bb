"""A cluster whose processes are killed or stand still during use: acknowledged data stays, and nobody sees anything else."""

import os
import random
import struct
import subprocess
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import raw
from clients import STUBBORN, Xrdfs, start_xrdcp, xrdcp
from cluster import Cluster, Node
from content import KIB, MIB, adler32, content, write
from harness import ROOT, WEIR_BIN, remove, until
from kills import Users, amiss, kill_at_random, settle, with_more
from recorder import start_reader
from test_cluster_failover import connected_to
from XRootD import client
from XRootD.client.flags import OpenFlags

pytestmark = pytest.mark.managers_ok

BIG = 16 * MIB


@pytest.fixture(scope="module")
def shaken(base):
    """Two sites with two disk servers each. Each test leaves all nodes running."""
    with Cluster(base / "shaken", 4, ("--grace-seconds", "5")) as cluster:
        cluster.policy("/one", "replica(1)")
        cluster.policy("/two", "replica(2) spread=site")
        cluster.policy("/late", "replica(2) sync=1 spread=site")
        yield cluster
    remove(cluster.home)


@pytest.fixture
def cluster(shaken):
    yield shaken
    for node in shaken.nodes:
        if not node.alive():
            node.start()
    in_session(shaken)


@pytest.fixture
def fs(cluster) -> Xrdfs:
    return Xrdfs(cluster.url)


def in_session(cluster: Cluster) -> None:
    """Waits until files can be made on all disk servers."""
    until(lambda: [store["state"] for store in cluster.stores()] == ["online"] * len(cluster.disks), 40)


def restarted(cluster: Cluster) -> None:
    """Restarts the disk servers, so that they read what is on their disks, and not what they wrote last and still have in memory."""
    for disk in cluster.disks:
        disk.stop()
        disk.start()
    in_session(cluster)


def fetched(url: str, tmp_path: Path) -> bytes:
    xrdcp("-f", url, tmp_path / "fetched", patience=STUBBORN).ok()
    return (tmp_path / "fetched").read_bytes()


def opened(url: str, flags: OpenFlags, patience_seconds: int = 3) -> client.File | None:
    file = client.File()
    status, _ = file.open(url, flags, timeout=patience_seconds)
    return file if status.ok else None


def is_whole(cluster: Cluster, path: str) -> bool:
    return Xrdfs(cluster.url)("query", "checksum", path).code == 0


class Recording:
    """An xrdcp that gets its bytes slowly, so that a test can disturb it in the middle. It gets the last ones after `may_end` only: however
    slow the machine is, the test comes before its end."""

    def __init__(self, cluster: Cluster, path: str, data: bytes, patience: dict[str, str] = STUBBORN):
        self.cluster, self.path, self.data = cluster, path, data
        self.before, self.may_end = objects(cluster), threading.Event()
        self.copy = start_xrdcp("-", cluster.url + path, patience=patience, stdin=subprocess.PIPE)
        self.feeder = threading.Thread(target=self._feed)
        self.feeder.start()
        # Some of it is on the disks.
        until(lambda: objects(cluster) - self.before, 40)
        time.sleep(0.5)

    def _feed(self) -> None:
        try:
            for at in range(0, len(self.data), MIB):
                if at + MIB >= len(self.data):
                    self.may_end.wait(60)
                self.copy.stdin.write(self.data[at : at + MIB])
                self.copy.stdin.flush()
                time.sleep(0.25)
            self.copy.stdin.close()
        except BrokenPipeError:
            pass  # it has given up, and says so by its exit code

    @property
    def primary(self) -> Node:
        (primary,) = self.cluster.holders(self.path)
        return primary

    @property
    def replica(self) -> Node:
        primary = self.primary

        def others() -> list[Node]:
            has = {disk for disk, _ in objects(self.cluster) - self.before}
            return [disk for disk in self.cluster.disks if disk is not primary and disk.home.name in has]

        return until(others, 40)[0]

    def end(self) -> bool:
        """Returns whether it reports success."""
        self.may_end.set()
        self.feeder.join(120)
        code = self.copy.wait(180)
        self.said = self.copy.stdout.read().decode(errors="replace")
        return code == 0


def objects(cluster: Cluster) -> set[tuple[str, str]]:
    return {(disk.home.name, path.name) for disk in cluster.disks for path in disk.objects()}


def test_a_write_goes_on_when_a_replica_dies_and_its_copy_is_made_later(cluster, tmp_path):
    data = content("replica dies", BIG)
    recording = Recording(cluster, "/two/replica-dies", data)
    victim = recording.replica
    victim.kill()
    assert recording.end(), recording.said
    assert fetched(cluster.url + recording.path, tmp_path) == data
    victim.start()
    holders = until(lambda: len(found := cluster.holders(recording.path)) == 2 and found, 40)
    for away in holders:
        assert fetched(f"{cluster.url}{recording.path}?tried={away.host}", tmp_path) == data


def test_a_write_goes_on_over_a_restart_of_its_primary(cluster, tmp_path):
    data = content("primary comes back", BIG)
    # This version of the client resends interrupted page writes as half a frame, but plain writes correctly.
    recording = Recording(cluster, "/two/primary-comes-back", data, {**STUBBORN, "XRD_CPUSEPGWRTRD": "0"})
    victim = recording.primary
    victim.kill()
    recording.may_end.set()
    time.sleep(1)
    victim.start()
    assert recording.end(), recording.said
    assert fetched(cluster.url + recording.path, tmp_path) == data


def test_a_write_whose_primary_is_gone_ends_with_an_error(cluster, fs, tmp_path):
    path, data = "/two/primary-gone", content("primary gone", BIG)
    recording = Recording(cluster, path, data, {**STUBBORN, "XRD_CONNECTIONRETRY": "3"})
    # Some of it is acknowledged: on both disks.
    until(lambda: fs.size(path), 40)
    recording.primary.kill()
    assert not recording.end()
    assert not is_whole(cluster, path)
    # The acknowledged part is on the other store, and is kept for readers.
    until(lambda: cluster.file(path)["object"]["state"] == "interrupted", 40)
    xrdcp(cluster.url + path, tmp_path / "refused").fails("interrupted")
    kept = fetched(f"{cluster.url}{path}?weir.partial=1", tmp_path)
    assert kept and data.startswith(kept)
    # The user tries again, and it works without that disk server.
    source = write(tmp_path / "source", "again", MIB)
    xrdcp("-f", source, cluster.url + path).ok()
    assert fetched(cluster.url + path, tmp_path) == source.read_bytes()


def test_who_waits_for_a_writer_that_does_not_come_back_is_told_so(cluster, fs, tmp_path):
    recording = Recording(cluster, "/one/left-alone", content("left alone", BIG))
    primary = recording.primary
    primary.kill()
    recording.copy.kill()
    assert not recording.end()
    primary.start()
    # The server has not noticed yet that its writer is gone; the cluster waits 5 s for that.
    until(lambda: fs.size(recording.path) is not None, 40)
    began = time.monotonic()
    got = xrdcp("-f", cluster.url + recording.path, tmp_path / "back", patience=STUBBORN)
    assert got.code != 0 and "interrupted" in got.err, got
    assert time.monotonic() - began < 40


def half_changed(cluster, path: str, data: bytes) -> bytes:
    """Makes a file with a change in place that never ended; returns its content. It has no checksums."""
    data = bytearray(data)
    with raw.Raw.to(cluster.manager) as there:
        port, host, permission = there.ask_open(path, raw.OPEN_NEW | raw.OPEN_UPDATE).redirect
        with raw.Raw(port, host=host, timeout=60) as disk:
            handle = disk.open(f"{path}?{permission}", raw.OPEN_NEW | raw.OPEN_UPDATE)
            for offset in range(0, len(data), 4 * MIB):
                assert disk.write(handle, offset, bytes(data[offset : offset + 4 * MIB])).status == raw.OK
            assert disk.close(handle).status == raw.OK
        port, host, permission = there.ask_open(path, raw.OPEN_UPDATE).redirect
        with raw.Raw(port, host=host) as disk:
            handle = disk.open(f"{path}?{permission}", raw.OPEN_UPDATE)
            assert disk.write(handle, 1000, b"changed").status == raw.OK
    data[1000:1007] = b"changed"
    until(lambda: (content := cluster.file(path)["object"])["state"] == "complete" and not content["adler32"], 40)
    # It is on all its stores, whichever of them knew first.
    until(lambda: len(cluster.whole_on(path)) == 2, 40)
    return bytes(data)


def test_a_change_in_place_that_nobody_ended_leaves_a_file_that_is_read_for_its_checksum(cluster, fs, tmp_path):
    path = "/two/half-changed"
    data = half_changed(cluster, path, content("half changed", 200_000))
    for disk in [disk for disk in cluster.disks if cluster.store_of(disk) in cluster.whole_on(path)]:
        assert fetched(f"{cluster.url}{path}?tried={disk.host}", tmp_path) == data
    # Computed for many requests at once; also stored, but no request waits for that.
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: fs("query", "checksum", path).ok().out.split(), range(8)))
    assert found == [["adler32", adler32(data)]] * 8
    until(lambda: cluster.file(path)["object"]["adler32"] == adler32(data), 10)


def test_whoever_dies_while_a_file_is_read_for_its_checksum_the_other_copy_is_read(cluster, fs):
    path = "/two/read-for-it"
    data = half_changed(cluster, path, content("read for it", 4 * MIB) * 16)
    holders = [disk for disk in cluster.disks if cluster.store_of(disk) in cluster.whole_on(path)]
    for disk in holders:
        disk.freeze()
    with ThreadPoolExecutor(1) as pool:
        try:
            asked = pool.submit(lambda: fs("query", "checksum", path))
            time.sleep(1)
            holders[0].kill()
        finally:
            holders[1].thaw()
        assert asked.result().ok().out.split() == ["adler32", adler32(data)]


def test_a_copy_that_cannot_be_read_gives_no_checksum(cluster, fs):
    path = "/two/damaged"
    data = half_changed(cluster, path, content("damaged", 4 * MIB))
    holders = [disk for disk in cluster.disks if cluster.store_of(disk) in cluster.whole_on(path)]

    def damage(disk: Node) -> None:
        found = [there for there in disk.objects() if there.read_bytes() == data]
        assert len(found) == 1
        with found[0].open("r+b") as there:
            there.seek(2 * MIB)
            there.write(b"not what was written")

    damage(holders[0])
    for _ in range(3):
        assert fs("query", "checksum", path).ok().out.split() == ["adler32", adler32(data)]
    path = "/two/damaged-twice"
    data = half_changed(cluster, path, content("damaged twice", 4 * MIB))
    for disk in [disk for disk in cluster.disks if cluster.store_of(disk) in cluster.whole_on(path)]:
        damage(disk)
    began = time.monotonic()
    refused = fs("query", "checksum", path)
    assert refused.code != 0 and "does not match its checksum" in refused.err, refused
    assert time.monotonic() - began < 20
    assert not cluster.file(path)["object"]["adler32"]


def test_a_write_goes_on_over_a_restart_of_the_manager(cluster, tmp_path):
    data = content("manager dies", BIG)
    recording = Recording(cluster, "/two/manager-dies", data)
    cluster.manager.kill()
    recording.may_end.set()
    time.sleep(1)
    cluster.manager.start()
    assert recording.end(), recording.said
    assert fetched(cluster.url + recording.path, tmp_path) == data
    assert is_whole(cluster, recording.path)


def test_a_reader_goes_on_from_the_other_copy(cluster, tmp_path):
    data = write(tmp_path / "source", "read on", BIG).read_bytes()
    path = "/two/read-on"
    xrdcp(tmp_path / "source", cluster.url + path).ok()
    file = client.File()
    status, _ = file.open(cluster.url + path, OpenFlags.READ)
    assert status.ok, status
    assert file.read(0, 1000)[1] == data[:1000]
    holder = cluster.at(file.get_property("DataServer"))
    holder.kill()
    began = time.monotonic()
    status, got = file.read(5 * MIB, 100_000)
    assert status.ok and got == data[5 * MIB : 5 * MIB + 100_000], status
    assert time.monotonic() - began < 15
    file.close()
    # So does a client that comes now.
    assert fetched(cluster.url + path, tmp_path) == data


HZZ = "testdata/root/uproot-HZZ.root"


def reader_without_its_server(cluster: Cluster, how: str, patience: dict[str, str], back_after: float | None = None) -> str:
    """The result of a read after the reader's disk server was killed."""
    url, source = f"{cluster.url}/two/hzz.root", ROOT / HZZ
    xrdcp("-f", source, url).ok()
    reader = start_reader(url, how, 100_000, 50_000, patience)
    (holder,) = connected_to(reader, cluster)
    holder.kill()
    reader.stdin.write("\n")
    reader.stdin.flush()
    if back_after is not None:
        time.sleep(back_after)
        holder.start()
    said = reader.communicate(timeout=120)[0].strip()
    return "read" if said == f"{zlib.crc32(source.read_bytes()[100_000:150_000]):08x}" else said


@pytest.mark.parametrize("how", ["read", "uproot"])
def test_a_stock_reader_that_has_said_that_it_reads_goes_on_from_the_other_copy(cluster, how):
    assert reader_without_its_server(cluster, how, STUBBORN) == "read"


@pytest.mark.parametrize("how", ["default", "uproot-xrootd"])
def test_a_stock_reader_with_default_flags_stays_with_its_server(cluster, how):
    """XrdCl returns to the manager only with a file that was opened with `kXR_open_read`. Otherwise it waits for the same server."""
    said = reader_without_its_server(cluster, how, {**STUBBORN, "XRD_CONNECTIONRETRY": "3"})
    assert said.startswith("not read: ") and "Connection error" in said, said


def test_a_stock_reader_with_default_flags_goes_on_when_its_server_is_back(cluster):
    assert reader_without_its_server(cluster, "default", STUBBORN, back_after=1) == "read"


def test_nobody_is_sent_to_a_server_whose_end_has_come_here(cluster, fs, tmp_path):
    """A stock client waits for two minutes at a dead server, and it arrives at the moment when its server dies."""
    write(tmp_path / "source", "just gone", MIB)
    cluster.policy("/dealt", "stripe(2, 64KiB) replica(2)")
    opening = struct.pack(">HH12x", 0o644, raw.OPEN_READ)
    for path in ["/two/just-gone", "/dealt/just-gone"] * 4:
        if not fs.exists(path):
            xrdcp(tmp_path / "source", cluster.url + path).ok()
        with raw.Raw.to(cluster.manager, timeout=60) as there:
            _, host, _ = there.ask_open(path).redirect
            dead = next(disk for disk in cluster.disks if disk.host == host)
            # The ends of its connections arrive together with the request.
            cluster.manager.freeze()
            try:
                dead.kill()
                asked = [there.send(raw.OPEN, opening, path.encode()) for _ in range(8)]
            finally:
                cluster.manager.thaw()
            answers = [there.answer(stream) for stream in asked]
            assert all(answer.redirect[1] != host for answer in answers)
        dead.start()
        in_session(cluster)


def test_a_new_file_is_begun_where_somebody_is_or_not_at_all(cluster, fs):
    """A client that must wait repeats the request. The retry must not fail because the file exists by then."""

    def opening(mode: int) -> bytes:
        return struct.pack(">HH12x", mode, raw.OPEN_NEW | raw.OPEN_UPDATE)

    def ask(there: raw.Raw, name: str, dead: list, count: int) -> list[raw.Answer]:
        cluster.manager.freeze()
        try:
            for disk in dead:
                disk.kill()
            for number in range(count):
                there.send(raw.OPEN, opening(0o644), f"/one/{name}{number}".encode())
        finally:
            cluster.manager.thaw()
        return [there.receive() for _ in range(count)]

    one, *others = cluster.disks
    with raw.Raw.to(cluster.manager, timeout=60) as there:
        assert all(answer.redirect[1] != one.host for answer in ask(there, "begun", [one], 16))
    with raw.Raw.to(cluster.manager, timeout=60) as there:
        answers = ask(there, "nowhere", others, 16)
        assert {answer.status for answer in answers} == {raw.WAIT}
        assert fs("ls", "/one").ok().out.count("nowhere") == 0
        for disk in cluster.disks:
            disk.start()
        in_session(cluster)
        # The stock client clears the owner's permission to write when it repeats an open.
        assert there.request(raw.OPEN, opening(0o444), b"/one/nowhere0").status == raw.REDIRECT
        assert there.request(raw.OPEN, opening(0o444), b"/one/another").status == raw.REDIRECT
    listed = fs("ls", "-l", "/one").ok().out.splitlines()
    modes = {line.split()[-1]: line.split()[0] for line in listed}
    assert modes["/one/nowhere0"].startswith("-rw-") and modes["/one/another"].startswith("-r--"), listed


def test_open_writes_whose_names_were_replaced_are_ended_too(cluster, fs):
    """Files that are renamed or removed while they are written, with another file of the same client under the name."""
    places = {}

    def begin(there: raw.Raw, path: str) -> None:
        port, host, permission = there.ask_open(path, raw.OPEN_NEW | raw.OPEN_UPDATE).redirect
        disk = places.setdefault((host, port), raw.Raw(port, host=host))
        handle = disk.open(f"{path}?{permission}", raw.OPEN_NEW | raw.OPEN_UPDATE)
        assert disk.write(handle, 0, b"some of it").status == raw.OK

    # Those that earlier tests have left end at any moment.
    until(lambda: cluster.asked("status")["writers"]["count"] == 0, 60)
    with raw.Raw.to(cluster.manager) as there:
        begin(there, "/one/given-away")
        fs("mv", "/one/given-away", "/one/renamed").ok()
        begin(there, "/one/given-away")
        begin(there, "/one/goes")
        fs("rm", "/one/goes").ok()
        assert cluster.asked("status")["writers"]["count"] == 3
        used = [disk for disk in cluster.disks if (disk.host, disk.port) in places]
        for disk in used:
            disk.kill()
    for connection in places.values():
        connection.socket.close()
    for disk in used:
        disk.start()
    until(lambda: cluster.asked("status")["writers"]["count"] == 0, 60)
    for path in ("/one/renamed", "/one/given-away"):
        assert cluster.file(path)["object"]["state"] == "interrupted"
    assert fs("stat", "/one/goes").code != 0


def test_one_server_that_is_away_does_not_hold_up_the_deletions_of_others(cluster, fs, tmp_path):
    count = 3000
    (tmp_path / "many").mkdir()
    for number in range(count):
        (tmp_path / "many" / f"f{number}").write_bytes(b"x")
    done = subprocess.run([WEIR_BIN, "cp", "-r", tmp_path / "many", f"{cluster.url}/two/many"], capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    away = cluster.disks[0]
    away.kill()
    system = client.FileSystem(cluster.url)
    with ThreadPoolExecutor(16) as pool:
        removed = pool.map(lambda number: system.rm(f"/two/many/f{number}")[0].ok, range(count))
        assert all(removed)
    write(tmp_path / "source", "large", MIB)
    for number in range(4):
        xrdcp(tmp_path / "source", f"{cluster.url}/one/large{number}").ok()
    there = [disk for disk in cluster.disks if disk is not away]
    before = {object for disk in there for object in disk.objects()}
    for number in range(4):
        fs("rm", f"/one/large{number}").ok()
    until(lambda: len(before & {object for disk in there for object in disk.objects()}) <= len(before) - 4, 40)
    away.start()
    in_session(cluster)


def test_whoever_stood_still_shows_nothing_that_was_changed_meanwhile(cluster, tmp_path):
    old = write(tmp_path / "source", "stood still", MIB).read_bytes()
    path = "/two/stood-still"
    xrdcp(tmp_path / "source", cluster.url + path).ok()
    frozen, other = until(lambda: len(found := cluster.holders(path)) == 2 and found, 40)
    with raw.Raw.to(cluster.manager, machine=frozen.host) as there:
        port, host, permission = there.ask_open(path).redirect
    assert (port, host) == (frozen.port, frozen.host)
    reader = raw.Raw(port, host=host, timeout=60)
    handle = reader.ask_open(f"{path}?{permission}").body[:4]
    assert reader.read(handle, 0, 4096).body == old[:4096]
    frozen.freeze()
    try:
        # These wait at the stopped server until it continues.
        offsets = range(0, MIB, 64 * KIB)
        asked = [reader.send(raw.READ, handle + struct.pack(">qi", offset, 4096)) for offset in offsets]
        # While the manager waits for the lease to end, it may redirect the client there; the client does not wait long.
        file = until(lambda: opened(cluster.url + path, OpenFlags.UPDATE), 40)
        new = content("changed", MIB)
        status, _ = file.write(new, 0)
        assert status.ok, status
        status, _ = file.close()
        assert status.ok, status
        assert fetched(cluster.url + path, tmp_path) == new
    finally:
        frozen.thaw()
    for offset, stream in zip(offsets, asked, strict=True):
        answer = reader.answer(stream)
        assert answer.status != raw.OK or answer.body == new[offset : offset + 4096], f"what is shown of {offset} is old"
    # It gets the new content, and serves it.
    until(lambda: len(cluster.holders(path)) == 2, 40)
    assert fetched(f"{cluster.url}{path}?tried={other.host}", tmp_path) == new


def zeroed_on(disk: Node, body: str) -> bool:
    """Overwrites this server's replicas of that object with zeros; returns whether it had any."""
    pieces = [piece for piece in disk.objects() if piece.name.startswith(body)]
    for piece in pieces:
        piece.write_bytes(bytes(piece.stat().st_size))
    return bool(pieces)


SEED, SECONDS = os.environ.get("CLUSTER_SEED", "0"), int(os.environ.get("CLUSTER_SECONDS", "12"))


def test_kills_at_random_under_load_lose_nothing_that_was_acknowledged(cluster, fs, tmp_path):
    def is_enough() -> bool:
        done = users.done
        # Each way of copying survives the deaths of servers; chance decides which one copies at that moment.
        return done.total() >= 20 and all(any(how.endswith(by) for how in done) for by in ("by weir cp", "by xrdcp"))

    pick = random.Random(SEED)
    with Users(cluster, SEED, tmp_path, ["one", "two", "two", "late"]) as users:
        faults = kill_at_random(cluster, pick, SECONDS, frozen=0.2)
        # A slow machine needs longer for as much.
        end = time.monotonic() + 60
        while not is_enough() and time.monotonic() < end:
            faults += kill_at_random(cluster, pick, 1, frozen=0.2)
    in_session(cluster)
    settle(cluster, users.may_be)
    print(f"seed {SEED}: {faults}, acknowledged {users.done}, {len(users.refused)} refused: {users.refused[:5]}")
    assert is_enough(), users.done
    own = [text for text in users.refused if "by weir cp" in text]
    assert not [text for text in own if "is being written by" in text], own
    assert amiss(cluster, users.may_be, tmp_path) == {}
    # Checks that this notices a loss: one of two replicas is zeroed on its disk, all replicas of another file, and one is removed behind
    # its back.
    half, gone, removed = paths = ["/two/loop/half", "/one/loop/gone", "/two/loop/removed"]
    may_be = with_more(cluster, users.may_be, paths, tmp_path)
    spoiled = next(disk for disk in cluster.disks if zeroed_on(disk, cluster.file(half)["object"]["id"]))
    assert any(zeroed_on(disk, cluster.file(gone)["object"]["id"]) for disk in cluster.disks)
    fs("rm", removed).ok()
    restarted(cluster)
    found = amiss(cluster, may_be, tmp_path)
    assert set(found) == {half, gone, removed}, found
    assert {problem.partition(":")[0] for problem in found[half]} - {"xrdcp"} == {spoiled.home.name}, found
