"""A disk server never comes back: repair makes its replicas on the others, at the configured rate."""

import time
from contextlib import suppress

import pytest
from clients import xrdcp
from cluster import Cluster
from content import MIB, write
from harness import remove, weir


class Repaired(Cluster):
    def __init__(self, home, rate: str, disks: int):
        super().__init__(home, disks)
        config = home / "weir.toml"
        config.write_text(f'repair.rate = "{rate}"\n')
        self.manager.flags = ("--config", str(config))

    def remove_lost(self, disk, *flags: str):
        return weir("store", "remove", self.lost, "--lost", "--yes", *flags, "--data", self.data)

    def lose(self, disk) -> None:
        """Kills its node for good, and removes it as lost once it is away."""
        self.lost = self.store_of(disk)
        refused = self.remove_lost(disk)
        assert refused.returncode != 0 and "is not lost: its node is online" in refused.stderr, refused.stderr
        disk.kill()
        end = time.monotonic() + 40
        while (done := self.remove_lost(disk)).returncode != 0:
            assert "is not lost" in done.stderr and time.monotonic() < end, done.stderr
            time.sleep(0.5)

    def wait_repaired(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not (view := self.asked("repair"))["lost"] or view["lost"][0]["groups"] or view["missing"]["count"]:
            assert time.monotonic() < end, f"{view}\n{self.logs()}"
            time.sleep(0.1)
        assert view["backfill"] == 0 and view["stuck"] == []

    def bytes_on_disks(self) -> int:
        return sum(path.stat().st_blocks * 512 for disk in self.disks if disk.alive() for path in disk.objects())


@pytest.fixture
def make(base, request):
    made = []

    def make(rate: str, disks: int = 3) -> Repaired:
        home = base / request.node.name
        home.mkdir()
        made.append(Repaired(home, rate, disks).start())
        made[-1].weir("policy", "set", "/", "replica(2)", "--data", made[-1].data)
        return made[-1]

    yield make
    for cluster in made:
        cluster.__exit__()
        remove(cluster.home)


def recorded(cluster, tmp_path, sizes: list[int]) -> dict[str, bytes]:
    files = {}
    for number, size in enumerate(sizes):
        source = write(tmp_path / "source", number, size)
        xrdcp("-f", source, f"{cluster.url}/f{number}").ok()
        files[f"/f{number}"] = source.read_bytes()
    return files


def readable(cluster, tmp_path, files: dict[str, bytes]) -> None:
    for path, content in files.items():
        xrdcp("-f", cluster.url + path, tmp_path / "back").ok()
        assert (tmp_path / "back").read_bytes() == content, path


def intact(cluster: Repaired, content: bytes) -> int:
    """Files with this content on the first three disks. Those that are replaced just now may go while this looks."""
    found = 0
    for disk in cluster.disks[:3]:
        for there in disk.objects():
            with suppress(FileNotFoundError):
                found += there.read_bytes() == content
    return found


@pytest.mark.paced  # it measures the rate that it has set
def test_what_a_lost_store_had_is_on_two_others_and_the_rate_is_kept(make, tmp_path):
    rate = 3 * MIB
    cluster = make("3MiB")
    files = recorded(cluster, tmp_path, [2 * MIB] * 30 + [0, 1, 5000, 70_000, 300_000])
    first, lost, last = cluster.disks
    cluster.lose(lost)
    before = cluster.bytes_on_disks()
    while cluster.bytes_on_disks() < before + 3 * MIB:
        time.sleep(0.01)
    begun, at_begin = time.monotonic(), cluster.bytes_on_disks()
    ended, at_end = begun, at_begin
    while cluster.asked("repair")["missing"]["count"] > 5:
        time.sleep(0.02)
        ended, at_end = time.monotonic(), cluster.bytes_on_disks()
    copied, seconds = at_end - at_begin, ended - begun
    assert copied > 12 * MIB, f"only {copied} bytes were seen being copied"
    print(f"{copied / seconds / MIB:.2f} MiB/s of {rate / MIB} over {seconds:.1f} s")
    assert 0.9 <= copied / seconds / rate <= 1.1, f"{copied / seconds / MIB:.2f} MiB/s"
    cluster.wait_repaired(60)
    others = {cluster.store_of(first), cluster.store_of(last)}
    assert all(cluster.whole_on(path) == others for path in files)
    readable(cluster, tmp_path, files)
    first.kill()
    readable(cluster, tmp_path, files)


def test_a_manager_that_is_killed_in_the_middle_goes_on(make, tmp_path):
    cluster = make("2MiB")
    files = recorded(cluster, tmp_path, [MIB] * 20 + [100, 200_000])
    first, lost, last = cluster.disks
    cluster.lose(lost)
    end = time.monotonic() + 20
    while not 0 < cluster.asked("repair")["missing"]["count"] < 12:
        assert time.monotonic() < end, cluster.logs()
        time.sleep(0.05)
    cluster.manager.kill()
    cluster.manager.start()
    cluster.wait_repaired(90)
    last.kill()
    readable(cluster, tmp_path, files)


def test_a_damaged_copy_keeps_no_good_one_from_being_copied(make, tmp_path):
    cluster = make("100MiB", disks=4)
    cluster.weir("policy", "set", "/", "replica(3)", "--data", cluster.data)
    files = recorded(cluster, tmp_path, [2 * MIB] * 6)
    lost = cluster.disks[3]
    on_it = [path for path in files if cluster.store_of(lost) in cluster.whole_on(path)]
    assert on_it
    # One of the two remaining replicas of each has a damaged page, which is found by reading.
    for path in on_it:
        disk = next(disk for disk in cluster.disks[:3] if cluster.store_of(disk) in cluster.whole_on(path))
        (there,) = (there for there in disk.objects() if there.read_bytes() == files[path])
        with there.open("r+b") as damaged:
            damaged.seek(MIB)
            damaged.write(b"not what was written")
    cluster.lose(lost)
    cluster.wait_repaired(120)
    for path in on_it:
        # A damaged replica that a copy was to be made from is replaced, too. Without that, nobody has read it yet.
        wanted = 3 if f"{path} is damaged on" in cluster.manager.log_text() else 2
        cluster.until(lambda path=path, wanted=wanted: intact(cluster, files[path]) == wanted)
    cluster.wait_repaired(60)
    # Each failed copy was logged with its reason. All of them have succeeded since, so none is shown any more.
    failed = [line for line in cluster.manager.log_text().splitlines() if "a replica could not be made" in line]
    assert all("bytes on its disk are damaged" in line for line in failed), failed
    view = cluster.asked("repair")
    assert (view["failed"], view["last_failed"], view["missing_bytes"]["count"]) == (0, None, 0), view


def test_large_copies_between_the_same_servers_do_not_fail(make, tmp_path):
    """A connection drops a message for which its queue has no room. The third of three copies used to wait for its part in vain."""
    cluster = make("400MiB")
    files = recorded(cluster, tmp_path, [12 * MIB] * 24)
    _, lost, _ = cluster.disks
    cluster.lose(lost)
    begun = time.monotonic()
    cluster.wait_repaired(90)
    print(f"{len(files)} files in {time.monotonic() - begun:.1f} s")
    log = cluster.manager.log_text()
    assert "a replica could not be made" not in log, log
    readable(cluster, tmp_path, files)
