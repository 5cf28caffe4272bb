"""The Python package and a cluster: reads of a striped file go directly to the servers of its stripe units, those of a replicated file to
several replicas, and a server that dies meanwhile does no harm."""

import concurrent.futures
import errno
import multiprocessing
import random
import re
import threading
import time

import pytest
from clients import xrdcp
from cluster import Cluster, Node
from content import KIB, MIB, content
from harness import remove, weir
from test_metrics import fetch, named, samples
from test_python_package import sockets_to

pytestmark = pytest.mark.managers_ok

CHUNK = 256 * KIB
WIDTH = 3


@pytest.fixture(scope="module")
def shared(base):
    with Cluster(base / "python-units", 4, ("--grace-seconds", "3", "--metrics", "127.0.0.1:0")) as cluster:
        cluster.policy("/striped", f"stripe({WIDTH}, 256KiB)")
        cluster.policy("/twice", f"stripe({WIDTH}, 256KiB) replica(2)")
        cluster.policy("/one", "replica(1)")
        cluster.policy("/two", "replica(2)")
        yield cluster
    remove(cluster.home)


@pytest.fixture
def cluster(shared):
    yield shared
    killed = [node for node in shared.nodes if not node.alive()]
    for node in killed:
        node.start()
    if killed:
        shared.wait_sessions()


@pytest.fixture
def sent(cluster, tmp_path):
    """Puts a file into the cluster, and returns its bytes."""

    def send(path: str, size: int) -> bytes:
        data = content(path, size)
        (tmp_path / "source").write_bytes(data)
        done = weir("cp", "-f", str(tmp_path / "source"), cluster.url + path, timeout=120)
        assert done.returncode == 0, done.stderr
        return data

    return send


def file_system(package, cluster: Cluster, **options):
    """A file system that reads nothing but what is asked for. Those with the same options share their connections."""
    host = cluster.url.removeprefix("root://").rstrip("/")
    return package.WeirFileSystem(hostid=host, skip_instance_cache=True, **({"read_ahead": 0, "gap": 0} | options))


def figures(cluster: Cluster, name: str, **labels: str) -> dict[Node, float]:
    """A figure of each disk server that runs."""
    return {disk: named(samples(disk), name, **labels) for disk in cluster.disks if disk.alive()}


def since(before: dict[Node, float], now: dict[Node, float]) -> dict[Node, float]:
    return {disk: now[disk] - before[disk] for disk in now if now[disk] > before[disk]}


def read_bytes(cluster: Cluster) -> dict[Node, float]:
    return figures(cluster, "weir_read_bytes_total")


def opens(cluster: Cluster) -> dict[Node, float]:
    return figures(cluster, "weir_request_seconds_count", request="open")


def vector_reads(cluster: Cluster) -> dict[Node, float]:
    return figures(cluster, "weir_request_seconds_count", request="readv")


def ranges_of(rng: random.Random, size: int, count: int) -> list[tuple[int, int]]:
    """Ranges that overlap, are empty, cross chunks, are longer than a round of all units, and end where the file does."""
    found = [(0, size), (size, size), (size // 2, size // 2), (max(0, size - 1), size)]
    for _ in range(count):
        begin = rng.randrange(size + 1)
        found.append((begin, min(size, begin + rng.choice([0, 1, 100, CHUNK, 5 * CHUNK + 3]))))
    found += [(at, min(size, at + 2)) for at in range(CHUNK - 1, size, CHUNK)]
    rng.shuffle(found)
    return found


def read_many(fs, path: str, ranges: list[tuple[int, int]]) -> list[bytes]:
    return fs.cat_ranges([path] * len(ranges), [begin for begin, _ in ranges], [end for _, end in ranges])


@pytest.mark.parametrize("options", [{}, {"read_ahead": 64 * MIB, "gap": 16 * KIB}])
@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, WIDTH * CHUNK, 7 * CHUNK + 4_321, 20_000_003])
def test_ranges_of_a_striped_file_have_their_bytes(package, cluster, sent, size, options):
    path = f"/striped/size{size}"
    data, rng = sent(path, size), random.Random(size)
    fs = file_system(package, cluster, **options)
    assert fs.cat_file(path) == data and fs.size(path) == size
    for _ in range(3):
        ranges = ranges_of(rng, size, 60)
        assert read_many(fs, path, ranges) == [data[begin:end] for begin, end in ranges]
    with fs.open(path, "rb") as file:
        assert file.read() == data


def test_vector_reads_of_a_striped_file_go_to_the_servers_of_its_units(package, cluster, sent, tmp_path):
    path, size = "/striped/direct", 24 * MIB
    data, fs = sent(path, size), file_system(package, cluster)
    assert fs.cat_file(path, 5, 9) == data[5:9]
    before, opened, vectors = read_bytes(cluster), opens(cluster), vector_reads(cluster)
    ranges = [(begin, begin + 20_000) for begin in range(0, size - 20_000, 40_000)]
    assert read_many(fs, path, ranges) == [data[begin:end] for begin, end in ranges]
    read, asked = since(before, read_bytes(cluster)), sum(end - begin for begin, end in ranges)
    # Each server sends a third, and no server reads at another one.
    assert len(read) == WIDTH and not since(opened, opens(cluster)), read
    assert all(0.3 * asked < one < 0.37 * asked for one in read.values()) and sum(read.values()) < 1.01 * asked, (read, asked)
    assert all(count <= 2 for count in since(vectors, vector_reads(cluster)).values()), "few requests"
    # A range within one unit is asked for at its server alone.
    before = read_bytes(cluster)
    assert read_many(fs, path, [(10, 500), (900, 1000)]) == [data[10:500], data[900:1000]]
    assert list(since(before, read_bytes(cluster)).values()) == [590]
    # Checks that this would show: for a stock client, a server puts the file together.
    before = read_bytes(cluster)
    xrdcp("-f", cluster.url + path, tmp_path / "back").ok()
    assert sum(since(before, read_bytes(cluster)).values()) > 1.5 * size


def test_the_attributes_of_a_striped_file_are_those_that_the_manager_gives(package, cluster, sent):
    sent("/striped/attributes", MIB)
    fs = file_system(package, cluster)
    before = fs.info("/striped/attributes")
    fs.cat_file("/striped/attributes")
    after = fs.info("/striped/attributes")
    assert before["size"] == MIB
    for key in ("size", "mtime", "mode", "type"):
        assert after[key] == before[key], key


def reads_while(read_all, change, count: int = 16) -> None:
    """Reads in several threads, while `change` is called in the middle. All reads must be right."""
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        before = [pool.submit(read_all) for _ in range(count)]
        concurrent.futures.wait(before, return_when=concurrent.futures.FIRST_COMPLETED)
        change()
        after = [pool.submit(read_all) for _ in range(count)]
        wrong = [one.result() for one in before + after if one.result()]
    assert not wrong, wrong


def test_reads_of_a_striped_file_go_on_when_a_units_server_dies(package, cluster, sent):
    path, size = "/twice/killed", 20_000_003
    data, rng = sent(path, size), random.Random(7)
    fs = file_system(package, cluster)

    def read_all() -> list:
        ranges = ranges_of(rng, size, 40)
        found = read_many(fs, path, ranges)
        return [asked for asked, one in zip(ranges, found, strict=True) if one != data[asked[0] : asked[1]]]

    before = read_bytes(cluster)
    assert not read_all()
    read = since(before, read_bytes(cluster))
    reads_while(read_all, max(read, key=read.get).kill)
    # It still reads at the servers of the units, and each byte once. The connection that was used last is used next.
    assert fs.cat_file(path) == data
    opened, before = settled_opens(cluster), read_bytes(cluster)
    assert fs.cat_file(path) == data
    read = since(before, read_bytes(cluster))
    assert size <= sum(read.values()) < 1.01 * size and not since(opened, opens(cluster)), read
    # Another one, which opens it now.
    assert file_system(package, cluster, idle=20).cat_file(path) == data


def settled_opens(cluster: Cluster) -> dict[Node, float]:
    """The number of opens at each server, once no more come: other threads open connections for later reads."""
    seen = [opens(cluster)]

    def are_settled() -> bool:
        time.sleep(0.5)
        seen.append(opens(cluster))
        return seen[-1] == seen[-2]

    cluster.until(are_settled, 20)
    return seen[-1]


def sent_by(server: Node) -> float:
    """Its count of bytes that were read, as quickly as possible."""
    return float(re.search(r"^weir_read_bytes_total (\S+)$", fetch(server), re.MULTILINE)[1])


def dies_in_its_answers(victim: Node, read) -> bytes:
    """Kills a server that has sent some of what is read, and returns what was read all the same."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        for _ in range(20):
            before, reading = sent_by(victim), pool.submit(read)
            while sent_by(victim) == before and not reading.done():
                pass
            victim.freeze()
            time.sleep(0.5)
            if not reading.done():
                victim.kill()
                return reading.result()
            victim.thaw()
        pytest.fail("the read took no time")


@pytest.mark.parametrize("folder", ["/twice", "/two"])
def test_a_server_that_dies_in_the_middle_of_its_answers_leaves_no_wrong_bytes(package, cluster, sent, folder):
    path = f"{folder}/in-the-middle"
    data, fs = sent(path, 96 * MIB), file_system(package, cluster)
    before = read_bytes(cluster)
    assert fs.cat_file(path) == data
    read = since(before, read_bytes(cluster))
    assert dies_in_its_answers(max(read, key=read.get), lambda: fs.cat_file(path)) == data


def test_a_striped_file_that_is_replaced_never_gives_mixed_bytes(package, cluster):
    path, old, new = "/striped/replaced", b"o" * (9 * MIB), b"n" * (10 * MIB)
    fs = file_system(package, cluster)
    fs.pipe_file(path, old)
    with fs.open(path, "rb") as file:
        assert file.read(100) == b"o" * 100
        file_system(package, cluster, idle=20).pipe_file(path, new)
        fs.invalidate_cache(path)
        with pytest.raises(OSError, match="was replaced or changed since it was opened") as caught:
            file.seek(8 * MIB)
            file.read(10)
        assert caught.value.errno == errno.ESTALE
    assert fs.cat_file(path) == new
    begun, wrong, reads, replaced = time.monotonic(), [], [0], 0
    enough = threading.Event()

    def read() -> None:
        reader = file_system(package, cluster, idle=0.05)
        while not enough.is_set():
            reader.invalidate_cache(path)
            try:
                parts = read_many(reader, path, [(at, at + 1000) for at in range(0, 9 * MIB, 300_000)])
            except OSError:
                continue  # it does not exist, or is being written
            if any(isinstance(part, Exception) for part in parts):
                continue
            reads[0] += 1
            if len({part[:1] for part in parts}) != 1 or any(part != part[:1] * 1000 for part in parts):
                wrong.append({part[:1] for part in parts})

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        # For three seconds, and on a slow machine for longer.
        while (age := time.monotonic() - begun) < 3 or (age < 60 and (reads[0] <= 5 or replaced <= 5)):
            for data in (old, new):
                fs.pipe_file(f"{path}.new", data)
                fs.mv(f"{path}.new", path)
                replaced += 1
    finally:
        enough.set()
        for thread in threads:
            thread.join()
    assert reads[0] > 5 and replaced > 5 and not wrong, (reads, replaced, wrong)


def connections_of_reads(fs, paths: list[str], ports: list[int]) -> tuple[list[bytes], int]:
    """Runs in a process that has no other file system. Returns the bytes, and the number of connections to the ports."""
    data = [fs.cat_file(path) for path in paths]
    return data, len(set().union(*map(sockets_to, ports)))


def test_many_open_striped_files_have_few_connections(package, cluster, sent):
    paths = [f"/striped/many{number}" for number in range(6)]
    data, ports = [sent(path, WIDTH * CHUNK) for path in paths], [disk.port for disk in cluster.disks]
    # One connection for each unit. All files together may have eight.
    fs = file_system(package, cluster, connections=1, open_files=4)
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        for _ in range(3):
            found, count = process.submit(connections_of_reads, fs, paths, ports).result(60)
            assert found == data and 0 < count <= 8, count


def test_a_file_that_is_closed_for_others_is_opened_again_by_its_readers(package, cluster, sent):
    paths = ["/striped/closed1", "/striped/closed2", "/two/closed3"]
    data = {path: sent(path, WIDTH * CHUNK) for path in paths}
    fs = file_system(package, cluster, connections=1, open_files=1)

    def read(path: str) -> bool:
        with fs.open(path, "rb") as file:
            return file.read() == data[path] and fs.cat_file(path) == data[path]

    # Each open closes the file that another thread is about to read.
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        assert all(pool.map(read, paths * 40))


def read_until_opens(cluster: Cluster, before: dict[Node, float], servers: set[Node], read) -> None:
    """Reads until the file was opened at exactly these servers. Only a read that needs another connection opens one, and it may be over
    before that one has come."""

    def are_used() -> bool:
        read()
        return set(since(before, opens(cluster))) == servers

    cluster.until(are_used, 10)


def test_the_connections_of_a_large_read_go_to_all_replicas(package, cluster, sent):
    path, size = "/two/large", 40 * MIB
    data, holders = sent(path, size), set(cluster.holders("/two/large"))
    assert len(holders) == 2
    # With chance alone, half of them would use one replica.
    for number in range(8):
        # On a busy machine, one connection can be ready for the second part before the other one has begun with it.
        for attempt in range(10):
            before, opened = read_bytes(cluster), opens(cluster)
            # File systems with the same options share their connections.
            fs = file_system(package, cluster, connections=2, idle=20 + 10 * number + attempt)
            read_until_opens(cluster, opened, holders, lambda fs=fs: fs.cat_file(path))
            assert fs.cat_file(path) == data
            read = since(before, read_bytes(cluster))
            assert set(read) <= holders
            if len(read) == 2 and min(read.values()) > 0.2 * size:
                break
        else:
            pytest.fail(f"one replica was hardly used: {list(read.values())}")


def test_large_reads_of_a_file_with_one_replica_need_no_other(package, cluster, sent):
    path = "/one/large"
    data, opened = sent(path, 70 * MIB), opens(cluster)
    fs = file_system(package, cluster)

    def counts() -> list[float]:
        assert fs.cat_file(path) == data
        return list(since(opened, opens(cluster)).values())

    # A read may be over before another connection has come.
    cluster.until(lambda: sum(counts()) >= 2, 10)
    for _ in range(3):
        counts()
    [count] = since(opened, settled_opens(cluster)).values()
    assert 2 <= count <= 4, "several connections, to the only server that has it"


def test_large_reads_go_on_when_the_server_of_a_replica_dies(package, cluster, sent):
    path = "/two/killed"
    data, fs = sent(path, 40 * MIB), file_system(package, cluster)
    [victim, other] = cluster.holders(path)

    def read_all() -> list:
        return ["wrong bytes"] if fs.cat_file(path) != data else []

    read_until_opens(cluster, opens(cluster), {victim, other}, lambda: fs.cat_file(path))
    assert not read_all()
    reads_while(read_all, victim.kill, 8)
    before = read_bytes(cluster)
    assert not read_all() and set(since(before, read_bytes(cluster))) == {other}
