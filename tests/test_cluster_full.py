"""A store of a cluster fills up under its writers. A write moves to another in-sync replica; a replica that has no room is left out; and
what only a full store has is kept as interrupted. New files go elsewhere until the store has room again."""

import signal
import subprocess
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from clients import PATIENCE, STUBBORN, Xrdfs, start_xrdcp, xrdcp
from cluster import Cluster, Node
from content import KIB, MIB, content, write
from harness import WEIR_BIN, remove, until, weir
from loopfs import free_bytes
from mounts import why_not

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "")

NO_SPACE, NO_SPACE_EXIT = 3009, 14
DISK_BYTES = 256 * MIB
CONFIG = '[space]\nballast = "8MiB"\nfloor = "16MiB"\n[journal]\nsegment_size = "4MiB"\n'
GRACE_SECONDS = 3


@contextmanager
def small_disk(folder: Path):
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture(scope="module")
def lasting(base):
    home = base / "full-stores"
    home.mkdir()
    (home / "weir.toml").write_text(CONFIG)
    flags = ("--config", str(home / "weir.toml"), "--grace-seconds", str(GRACE_SECONDS))
    cluster = Cluster(home / "cluster", 3, flags)
    with ExitStack() as disks:
        for disk in cluster.disks:
            disk.data = disks.enter_context(small_disk(disk.home / "mounted")) / "data"
        with cluster:
            cluster.policy("/two", "replica(2) sync=2 prefer=site1/rack1/disk1")
            cluster.policy("/one", "replica(1) prefer=site1/rack1/disk1")
            cluster.policy("/stripes", "stripe(2, 1MiB) replica(2) sync=2")
            cluster.policy("/plain-stripes", "stripe(3, 1MiB)")
            yield cluster
            assert all(node.alive() for node in cluster.nodes), cluster.logs()
    remove(home)


@pytest.fixture
def cluster(lasting):
    yield lasting
    for disk in lasting.disks:
        empty(disk)
    for path in ("/two", "/one", "/stripes", "/plain-stripes"):
        for name in Xrdfs(lasting.url).names(path):
            Xrdfs(lasting.url)("rm", f"{path}/{name}")
    lasting.until(lambda: [store["state"] for store in lasting.stores()] == ["online"] * 3)
    # Room that an earlier test's files leave would come after the next test has filled a disk. Their bytes go within a second.
    lasting.until(lambda: lasting.asked("status")["deletions"]["count"] == 0)
    time.sleep(1)


def filler(disk: Node) -> Path:
    return disk.data.parent / "filler"


def fill(disk: Node, left: int = 0) -> None:
    """Leaves `left` bytes above the floor on the disk. A client that writes may take a part of the room meanwhile."""

    def try_it() -> subprocess.CompletedProcess:
        room = free_bytes(disk.data) - 16 * MIB - left
        return subprocess.run(["fallocate", "--length", str(max(room, 4096)), str(filler(disk))], capture_output=True, text=True)

    done = try_it()
    while done.returncode != 0:
        assert "No space left" in done.stderr, done.stderr
        done = try_it()


def empty(disk: Node) -> None:
    filler(disk).unlink(missing_ok=True)


def objects(disk: Node) -> set[Path]:
    """The files of large objects on the disk."""
    return {path for path in disk.data.rglob("objects/*/*/*") if path.is_file()}


def state(cluster: Cluster, disk: Node) -> str:
    return next(store["state"] for store in cluster.stores() if store["store"] == cluster.store_of(disk))


class Pipe:
    """`weir cp` from a pipe."""

    def __init__(self, url: str, *flags: str):
        command = [WEIR_BIN, "cp", *flags, "-", url]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, stdout=subprocess.PIPE)

    def put(self, data: bytes) -> None:
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def end(self) -> tuple[int, str]:
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        code = self.process.wait(90)
        return code, self.process.stderr.read().decode()


def put_in_halves(pipe: Pipe, data: bytes, between) -> None:
    """Writes the first half, waits until it has left, calls `between`, and writes the rest as far as it is taken."""
    half = len(data) // 2
    pipe.put(data[:half])
    time.sleep(1)
    between()
    try:
        for start in range(half, len(data), MIB):
            pipe.put(data[start : start + MIB])
    except BrokenPipeError:
        pass


def primary_of(cluster: Cluster, path: str) -> Node:
    return cluster.holders(path)[0]


def back(cluster: Cluster, path: str, tmp_path: Path) -> bytes:
    xrdcp("-f", f"{cluster.url}{path}", tmp_path / "back", patience=STUBBORN).ok()
    return (tmp_path / "back").read_bytes()


def test_a_write_from_a_pipe_moves_from_a_full_primary(cluster, tmp_path):
    data = content("moves", 64 * MIB)
    pipe = Pipe(f"{cluster.url}/two/moves")
    put_in_halves(pipe, data, lambda: fill(cluster.disks[0]))
    code, said = pipe.end()
    assert code == 0, said + cluster.logs()
    assert back(cluster, "/two/moves", tmp_path) == data
    full = cluster.store_of(cluster.disks[0])
    assert full not in cluster.whole_on("/two/moves")
    assert "another store takes over" in cluster.manager.log_text()


def test_xrdcp_of_a_file_goes_on_when_its_primary_is_full(cluster, tmp_path):
    source = write(tmp_path / "source", "stock", 64 * MIB)
    process = start_xrdcp("--xrate", "16m", source, f"{cluster.url}/two/stock")
    time.sleep(1.5)
    fill(cluster.disks[0])
    out = process.communicate(timeout=120)[0].decode()
    assert process.returncode == 0, out + cluster.logs()
    assert back(cluster, "/two/stock", tmp_path) == source.read_bytes()


def test_a_full_replica_is_left_out_and_the_write_goes_on(cluster, tmp_path):
    data = content("left out", 64 * MIB)
    pipe = Pipe(f"{cluster.url}/two/left-out")
    put_in_halves(pipe, data, lambda: [fill(disk) for disk in cluster.disks[1:]])
    code, said = pipe.end()
    assert code == 0, said + cluster.logs()
    assert back(cluster, "/two/left-out", tmp_path) == data
    assert cluster.whole_on("/two/left-out") == {cluster.store_of(cluster.disks[0])}


def test_a_missing_replica_is_made_when_its_store_has_room_again(cluster, tmp_path):
    data = content("repaired", 48 * MIB)
    pipe = Pipe(f"{cluster.url}/two/repaired")
    put_in_halves(pipe, data, lambda: fill(cluster.disks[0]))
    assert pipe.end()[0] == 0
    assert len(cluster.whole_on("/two/repaired")) == 1
    empty(cluster.disks[0])
    cluster.until(lambda: len(cluster.whole_on("/two/repaired")) == 2, 60)


def test_what_a_pipe_has_delivered_to_a_single_full_store_is_kept(cluster, tmp_path):
    data = content("kept", 64 * MIB)
    pipe = Pipe(f"{cluster.url}/one/kept")
    put_in_halves(pipe, data, lambda: fill(cluster.disks[0]))
    code, said = pipe.end()
    assert code == NO_SPACE_EXIT, (code, said)
    assert "space" in said
    # An ordinary copy of it is refused, and `?weir.partial=1` reads what was acknowledged.
    until(lambda: "interrupted" in weir("cp", "-f", f"{cluster.url}/one/kept", str(tmp_path / "no")).stderr, GRACE_SECONDS + 15)
    xrdcp("-f", f"{cluster.url}/one/kept?weir.partial=1", tmp_path / "part").ok()
    part = (tmp_path / "part").read_bytes()
    assert len(part) >= len(data) // 2 - 8 * MIB and part == data[: len(part)], len(part)


def test_a_single_full_store_refuses_xrdcp_with_no_space(cluster, tmp_path):
    source = write(tmp_path / "source", "refused", 64 * MIB)
    first = cluster.disks[0]
    before = objects(first)
    process = start_xrdcp("--xrate", "16m", source, f"{cluster.url}/one/refused", patience=PATIENCE)
    # If the disk were full before, another store would get the file.
    until(lambda: any(path.stat().st_blocks * 512 > 4 * MIB for path in objects(first) - before), 30, cluster.logs)
    fill(first)
    out = process.communicate(timeout=120)[0].decode()
    assert process.returncode != 0 and "space" in out.lower(), out


def test_weir_copies_a_file_again_to_another_store(cluster, tmp_path):
    """The client still has the file. The only store that the manager chose for it fills up while it is written."""
    source = write(tmp_path / "source", "again", 96 * MIB)
    first = cluster.disks[0]
    before = free_bytes(first.data)
    copy = subprocess.Popen([WEIR_BIN, "cp", str(source), f"{cluster.url}/one/again"], stderr=subprocess.PIPE, text=True)
    while before - free_bytes(first.data) < 4 * MIB:
        assert copy.poll() is None, copy.stderr.read()
        copy.send_signal(signal.SIGCONT)
        time.sleep(0.005)
        copy.send_signal(signal.SIGSTOP)
    time.sleep(1)  # what has left the client arrives
    fill(first)
    copy.send_signal(signal.SIGCONT)
    assert copy.wait(60) == 0, copy.stderr.read() + cluster.logs()
    assert back(cluster, "/one/again", tmp_path) == source.read_bytes()
    assert cluster.store_of(first) not in cluster.whole_on("/one/again")


def test_stripe_units_move_from_full_primaries(cluster, tmp_path):
    data = content("striped", 64 * MIB)
    pipe = Pipe(f"{cluster.url}/stripes/moves")
    put_in_halves(pipe, data, lambda: fill(cluster.disks[0]))
    code, said = pipe.end()
    assert code == 0, said + cluster.logs()
    assert back(cluster, "/stripes/moves", tmp_path) == data


def test_a_stock_client_writes_a_striped_file_on_when_a_store_is_full(cluster, tmp_path):
    source = write(tmp_path / "source", "striped stock", 64 * MIB)
    process = start_xrdcp("--xrate", "16m", source, f"{cluster.url}/stripes/stock")
    time.sleep(1.5)
    fill(cluster.disks[0])
    out = process.communicate(timeout=120)[0].decode()
    assert process.returncode == 0, out + cluster.logs()
    assert back(cluster, "/stripes/stock", tmp_path) == source.read_bytes()


def test_a_stripe_unit_without_a_second_replica_ends_the_write_and_keeps_the_beginning(cluster, tmp_path):
    data = content("plain stripes", 96 * MIB)
    pipe = Pipe(f"{cluster.url}/plain-stripes/kept")
    put_in_halves(pipe, data, lambda: fill(cluster.disks[0]))
    code, said = pipe.end()
    assert code == NO_SPACE_EXIT and "space" in said, (code, said)
    path = "/plain-stripes/kept"
    until(lambda: "interrupted" in weir("cp", "-f", f"{cluster.url}{path}", str(tmp_path / "no")).stderr, 3 * GRACE_SECONDS + 20)


def test_no_new_file_goes_to_a_store_that_has_said_that_it_is_full(cluster, tmp_path):
    """Also within the second until its next report, and although a little room is left."""
    first = cluster.disks[0]
    pipe = Pipe(f"{cluster.url}/two/tells")
    put_in_halves(pipe, content("tells", 48 * MIB), lambda: fill(first, left=3 * MIB))
    small = [write(tmp_path / f"small{number}", "small", 300 * KIB) for number in range(8)]
    full = cluster.store_of(first)
    assert pipe.end()[0] == 0, cluster.logs()
    xrdcp(*small, f"{cluster.url}/one/").ok()
    # Soon the store deletes its part of the first file, and has room again.
    assert state(cluster, first) == "full"
    assert all(full not in cluster.whole_on(f"/one/small{number}") for number in range(8))
    empty(first)
    cluster.until(lambda: state(cluster, first) == "online")
    xrdcp(small[0], f"{cluster.url}/one/again").ok()
    assert full in cluster.whole_on("/one/again")


@pytest.mark.parametrize("policy", ["/one", "/two"])
def test_a_new_file_goes_elsewhere_although_the_manager_does_not_know_yet_that_a_store_is_full(cluster, tmp_path, policy):
    """Its knowledge is up to a second old. A stock client cannot write a file again whose store runs out of space."""
    source = write(tmp_path / "source", policy, 48 * MIB)
    first = cluster.disks[0]
    for number in range(3):
        cluster.until(lambda: state(cluster, first) == "online")
        fill(first, left=8 * MIB)
        if number == 2:
            assert weir("cp", str(source), f"{cluster.url}{policy}/new2").returncode == 0
        else:
            xrdcp(source, f"{cluster.url}{policy}/new{number}").ok()
        assert cluster.store_of(first) not in cluster.whole_on(f"{policy}/new{number}")
        empty(first)
    assert back(cluster, f"{policy}/new0", tmp_path) == source.read_bytes()


def test_only_when_no_store_has_room_is_a_new_file_refused(cluster, tmp_path):
    source = write(tmp_path / "source", "nowhere", 48 * MIB)
    for disk in cluster.disks:
        fill(disk, left=8 * MIB)
    xrdcp(source, f"{cluster.url}/one/nowhere").refused(NO_SPACE)
    xrdcp(source, f"{cluster.url}/two/nowhere").refused(NO_SPACE)
    # A name that was made before the disk server found too little room is not taken for a file.
    for place in ("/one", "/two"):
        assert xrdcp("-f", f"{cluster.url}{place}/nowhere", tmp_path / "nothing").code != 0


@pytest.mark.parametrize("policy", ["/one", "/two"])
def test_batches_of_small_files_go_elsewhere(cluster, tmp_path, policy):
    """The first store fills up while they come."""
    tree = tmp_path / "tree"
    for number in range(7):
        (tree / f"d{number}").mkdir(parents=True)
    for number in range(600):
        write(tree / f"d{number % 7}" / f"f{number}", f"batch {number}", 100 * KIB)
    fill(cluster.disks[0], left=12 * MIB)
    done = weir("cp", "-r", str(tree), f"{cluster.url}{policy}/tree", timeout=120)
    assert done.returncode == 0, done.stderr + cluster.logs()
    done = weir("cp", "-r", f"{cluster.url}{policy}/tree", str(tmp_path / "back"), timeout=120)
    assert done.returncode == 0, done.stderr
    for path in tree.rglob("f*"):
        assert (tmp_path / "back" / path.relative_to(tree)).read_bytes() == path.read_bytes()
    weir("rm", "-r", f"{cluster.url}{policy}/tree", timeout=120)


def test_a_third_party_copy_to_a_store_that_fills_up_fails_in_words_and_works_again_at_once(cluster, tmp_path):
    source = write(tmp_path / "source", "third party", 60 * MIB)
    xrdcp(source, f"{cluster.url}/two/source").ok()
    fill(cluster.disks[0], left=24 * MIB)
    # The manager does not know the length of a third-party copy that announces none.
    done = xrdcp("--tpc", "only", f"{cluster.url}/two/source", f"{cluster.url}/two/copied", patience=STUBBORN)
    again = done if done.code == 0 else xrdcp("-f", "--tpc", "only", f"{cluster.url}/two/source", f"{cluster.url}/two/copied")
    again.ok()
    assert back(cluster, "/two/copied", tmp_path) == source.read_bytes()
