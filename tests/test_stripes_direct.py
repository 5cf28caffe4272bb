"""`weir cp` and striped files: the bytes go directly between the client and the units' servers, and no server forwards them."""

import json
import os
import random
import subprocess
import threading
import time

import pytest
import raw
from clients import Xrdfs, xrdcp
from cluster import Cluster, Node
from content import MIB, adler32, content
from harness import WEIR_BIN, remove, until, weir
from recorder import acknowledged, start_writer
from test_cluster_failover import connected_to
from test_cluster_faults import in_session
from test_metrics import named, samples
from XRootD import client
from XRootD.client.flags import OpenFlags

pytestmark = pytest.mark.managers_ok

CHUNK = 256 << 10
WIDTH = 3
GRACE_SECONDS = 5


@pytest.fixture(scope="module")
def shared(base):
    flags = ("--grace-seconds", str(GRACE_SECONDS), "--metrics", "127.0.0.1:0")
    with Cluster(base / "stripes-direct", 4, flags) as cluster:
        cluster.policy("/one", f"stripe({WIDTH}, 256KiB)")
        cluster.policy("/two", f"stripe({WIDTH}, 256KiB) replica(2)")
        yield cluster
    remove(cluster.home)


@pytest.fixture
def cluster(shared):
    yield shared
    for node in shared.nodes:
        if not node.alive():
            node.start()
    in_session(shared)


def moved(cluster: Cluster) -> tuple[int, int]:
    """Bytes that the disk servers got from clients and sent to clients, including other servers that combine files."""
    found = [samples(disk) for disk in cluster.disks]
    return tuple(sum(int(named(one, name)) for one in found) for name in ("weir_written_bytes_total", "weir_read_bytes_total"))


def opens(cluster: Cluster) -> int:
    """How many opens the manager got."""
    return int(named(samples(cluster.manager), "weir_request_seconds_count", request="open"))


def cp(*arguments) -> str:
    done = weir("cp", *map(str, arguments), timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def state(cluster: Cluster, path: str) -> str:
    return cluster.file(path)["object"]["state"]


class Fed:
    """A `weir cp` that gets its bytes slowly, so that a test can disturb it in the middle."""

    def __init__(self, cluster: Cluster, path: str, data: bytes, *flags: str):
        self.cluster = cluster
        command = [WEIR_BIN, "cp", *flags, "-", cluster.url + path]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        self.feeder = threading.Thread(target=self._feed, args=(data,))
        self.feeder.start()
        until(lambda: len(connected_to(self.process, cluster)) >= WIDTH, 20)
        time.sleep(1)

    def _feed(self, data: bytes) -> None:
        try:
            for at in range(0, len(data), CHUNK):
                self.process.stdin.write(data[at : at + CHUNK])
                self.process.stdin.flush()
                time.sleep(0.05)
            self.process.stdin.close()
        except BrokenPipeError:
            pass  # it has given up, and says so by its exit code

    def servers(self) -> list[Node]:
        return connected_to(self.process, self.cluster)

    def end(self) -> None:
        self.feeder.join(120)
        assert self.process.wait(120) == 0, self.process.stderr.read()


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, WIDTH * CHUNK, 7 * CHUNK + 4_321, 40_000_000])
def test_files_go_there_and_back_and_are_the_same_for_everybody(cluster, tmp_path, size):
    data = random.Random(size).randbytes(size)
    (tmp_path / "source").write_bytes(data)
    path = f"/one/size{size}"
    said = json.loads(cp("--json", tmp_path / "source", cluster.url + path).splitlines()[0])
    assert said["verified"] is True, said
    fs = Xrdfs(cluster.url)
    assert fs.size(path) == size
    # The checksum is the file's: stock clients compare it.
    assert fs("query", "checksum", path).ok().out.split()[1] == adler32(data)
    xrdcp("-f", "--cksum", "adler32:source", cluster.url + path, tmp_path / "stock").ok()
    assert (tmp_path / "stock").read_bytes() == data
    cp(cluster.url + path, tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == data
    xrdcp(tmp_path / "source", f"{cluster.url}/one/stock{size}").ok()
    cp("-f", f"{cluster.url}/one/stock{size}", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == data


def test_no_server_hands_bytes_on(cluster, tmp_path):
    size = 30 * MIB
    (tmp_path / "source").write_bytes(os.urandom(size))
    before = moved(cluster)
    cp(tmp_path / "source", f"{cluster.url}/one/direct")
    cp(f"{cluster.url}/one/direct", tmp_path / "back")
    written, read = (now - then for now, then in zip(moved(cluster), before, strict=True))
    assert (tmp_path / "back").read_bytes() == (tmp_path / "source").read_bytes()
    # Each byte once, and some overhead.
    assert size <= written < 1.02 * size and size <= read < 1.02 * size, (written / size, read / size)
    # Checks that this would show: for a stock client one of them forwards everything.
    before = moved(cluster)
    xrdcp(tmp_path / "source", f"{cluster.url}/one/relayed").ok()
    xrdcp("-f", f"{cluster.url}/one/relayed", tmp_path / "back").ok()
    written, read = (now - then for now, then in zip(moved(cluster), before, strict=True))
    assert written >= 2 * size and read >= 2 * size


def test_from_one_striped_file_to_another_and_into_a_pipe(cluster, tmp_path):
    data = content("between", 9 * MIB + 77)
    (tmp_path / "source").write_bytes(data)
    cp(tmp_path / "source", f"{cluster.url}/one/from")
    cp("--streams", "3", f"{cluster.url}/one/from", f"{cluster.url}/two/to")
    piped = subprocess.run([WEIR_BIN, "cp", f"{cluster.url}/two/to", "-"], capture_output=True, timeout=60)
    assert piped.returncode == 0 and piped.stdout == data
    cp("-p", f"{cluster.url}/two/to", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == data


def test_what_is_there_is_replaced_only_if_that_was_said_and_keeps_its_time(cluster, tmp_path):
    path = f"{cluster.url}/one/again"
    for number in range(2):
        (tmp_path / "source").write_bytes(os.urandom(3 * MIB + number))
        os.utime(tmp_path / "source", (1_000_000_000 + number, 1_000_000_000 + number))
        cp("-p", "-f", tmp_path / "source", path)
    assert weir("cp", str(tmp_path / "source"), path).returncode != 0
    cp("-p", path, tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == (tmp_path / "source").read_bytes()
    assert int((tmp_path / "back").stat().st_mtime) == 1_000_000_001


def test_many_files_of_a_directory(cluster, tmp_path):
    tree = tmp_path / "tree"
    tree.mkdir()
    for number in range(12):
        (tree / f"f{number}").write_bytes(os.urandom(number * 300_000))
    cp("-r", tree, f"{cluster.url}/one/tree")
    cp("-r", f"{cluster.url}/one/tree", tmp_path / "back")
    for number in range(12):
        assert (tmp_path / "back" / f"f{number}").read_bytes() == (tree / f"f{number}").read_bytes()


def test_a_write_goes_on_when_a_units_server_dies(cluster, tmp_path):
    data = content("unit dies", 24 * MIB)
    fed = Fed(cluster, "/two/unit-dies", data)
    fed.servers()[0].kill()
    fed.end()
    cp(f"{cluster.url}/two/unit-dies", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == data


def test_a_write_goes_on_over_restarts_of_a_units_only_server_and_of_the_manager(cluster, tmp_path):
    data = content("all come back", 24 * MIB)
    fed = Fed(cluster, "/one/all-come-back", data)
    for node in (fed.servers()[0], cluster.manager):
        node.kill()
        time.sleep(0.5)
        node.start()
    fed.end()
    in_session(cluster)
    cp(f"{cluster.url}/one/all-come-back", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == data


def test_a_reader_goes_on_when_a_units_server_dies(cluster, tmp_path):
    data = content("reader", 128 * MIB)
    (tmp_path / "source").write_bytes(data)
    cp(tmp_path / "source", f"{cluster.url}/two/read")
    back = tmp_path / "back"
    # It takes seconds, however fast this machine is.
    command = [WEIR_BIN, "cp", "--bwlimit", "32MiB", f"{cluster.url}/two/read", back]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    servers = until(lambda: found if len(found := connected_to(process, cluster)) >= 2 else None, 20)
    servers[0].freeze()
    time.sleep(0.2)
    servers[0].kill()
    assert process.wait(120) == 0, process.stderr.read()
    assert back.read_bytes() == data


def test_a_client_that_is_killed_leaves_it_interrupted_soon(cluster):
    path = "/one/client-gone"
    fed = Fed(cluster, path, content("client gone", 64 * MIB))
    assert state(cluster, path) == "writing"
    fed.process.kill()
    gone = time.monotonic()
    until(lambda: state(cluster, path) == "interrupted", 3 * GRACE_SECONDS + 20)
    assert time.monotonic() - gone < GRACE_SECONDS + 6, "one grace period, and what two looks take"
    fed.feeder.join()
    # Nothing blocks another attempt.
    cp("-f", WEIR_BIN, cluster.url + path)
    assert state(cluster, path) == "complete"


def test_a_stock_client_that_is_killed_leaves_it_interrupted_soon(cluster):
    path = "/one/stock-gone"
    writer = start_writer(cluster.url + path, "stock gone", 100_000, 400)
    acknowledged(writer, 3_000_000)
    writer.kill()
    gone = time.monotonic()
    until(lambda: state(cluster, path) == "interrupted", 3 * GRACE_SECONDS + 20)
    assert time.monotonic() - gone < GRACE_SECONDS + 6, "one grace period, and what two looks take"


def test_all_that_was_announced_is_a_file_when_the_one_grace_period_is_over(cluster):
    path = "/one/announced"
    writer = start_writer(f"{cluster.url}{path}?oss.asize=3000000", "announced", 100_000, 30)
    acknowledged(writer, 3_000_000)
    writer.kill()
    gone = time.monotonic()
    assert state(cluster, path) == "writing", "its client may come back"
    until(lambda: state(cluster, path) == "complete", 3 * GRACE_SECONDS + 20)
    assert GRACE_SECONDS - 1 < time.monotonic() - gone < GRACE_SECONDS + 6
    assert Xrdfs(cluster.url).size(path) == 3_000_000


def test_what_was_interrupted_is_gone_on_with(cluster, tmp_path):
    data, path = content("resumed", 30 * MIB + 5), "/one/resumed"
    (tmp_path / "source").write_bytes(data)
    fed = Fed(cluster, path, data)
    fed.process.kill()
    fed.feeder.join()
    until(lambda: state(cluster, path) == "interrupted", 40)
    kept = Xrdfs(cluster.url).size(path)
    assert 0 < kept < len(data)
    # A different file is not taken for its beginning, and nothing changes then.
    (tmp_path / "other").write_bytes(bytes(len(data)))
    assert weir("cp", "--resume", str(tmp_path / "other"), cluster.url + path).returncode != 0
    assert state(cluster, path) == "interrupted"
    before = moved(cluster)
    cp("--resume", tmp_path / "source", cluster.url + path)
    written = moved(cluster)[0] - before[0]
    assert len(data) - kept <= written < 1.05 * (len(data) - kept) + MIB, "the rest, and that once"
    cp(cluster.url + path, tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == data
    # A download, too.
    part = tmp_path / ".half.weir-part"
    part.write_bytes(data[: 9 * MIB])
    before = moved(cluster)
    cp("--resume", cluster.url + path, tmp_path / "half")
    assert (tmp_path / "half").read_bytes() == data


def test_who_goes_on_has_time_to_open_the_units(cluster):
    path = "/one/slowly"
    fed = Fed(cluster, path, content("slowly", 8 * MIB))
    fed.process.kill()
    fed.feeder.join()
    until(lambda: state(cluster, path) == "interrupted", 40)
    with raw.Raw.to(cluster.manager) as there:
        assert there.ask_open(f"{path}?weir.resume=1&weir.direct=1", raw.OPEN_UPDATE).redirect
        # None of its units is written yet, and not all are complete; the manager checks every two seconds.
        time.sleep(3.5)
        assert state(cluster, path) == "writing"
    until(lambda: state(cluster, path) == "interrupted", 40)


def test_a_stock_client_goes_on_with_what_was_interrupted(cluster, tmp_path):
    path, data = "/two/resumed", content("stock resumed", 4_000_000)
    writer = start_writer(cluster.url + path, "stock resumed", 100_000, 40)
    acknowledged(writer, 3_000_000)
    writer.kill()
    until(lambda: state(cluster, path) == "interrupted", 40)
    kept = Xrdfs(cluster.url).size(path)
    assert kept >= 3_000_000
    file = client.File()
    status, _ = file.open(f"{cluster.url}{path}?weir.resume=1", OpenFlags.UPDATE)
    assert status.ok, status.message
    assert file.write(data[kept:], kept)[0].ok and file.close()[0].ok
    xrdcp(cluster.url + path, tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == data


def test_one_that_is_stopped_leaves_nothing(cluster, tmp_path):
    fed = Fed(cluster, "/one/stopped", content("stopped", 64 * MIB))
    fed.process.terminate()
    assert fed.process.wait(30) != 0
    fed.feeder.join()
    assert Xrdfs(cluster.url)("stat", "/one/stopped").code != 0


@pytest.mark.parametrize("folder", ["/one", "/two"])
def test_one_answer_says_what_it_is_and_where_to_read_its_units(cluster, folder, tmp_path):
    path = f"{folder}/one-answer"
    for size in (2 * WIDTH * CHUNK + 5, CHUNK + 1, CHUNK, 0):
        data = content(path, size)
        (tmp_path / "source").write_bytes(data)
        cp("-f", tmp_path / "source", cluster.url + path)
        before = opens(cluster)
        assert subprocess.run([WEIR_BIN, "cat", cluster.url + path], capture_output=True).stdout == data
        # A reader of all units also asks for those that hold none of the file.
        in_use = min(WIDTH, -(-size // CHUNK))
        assert opens(cluster) - before in (1, 1 + WIDTH - in_use), size
        before = opens(cluster)
        cp("-f", cluster.url + path, tmp_path / "back")
        assert (tmp_path / "back").read_bytes() == data
        assert opens(cluster) - before <= 1 + WIDTH - in_use, size
