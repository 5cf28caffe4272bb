"""The Python package and a cluster: reads of a striped file go directly to the servers of its stripe units, those of a replicated file to
several replicas, and a server that dies meanwhile does no harm."""

import concurrent.futures
import random
import threading
import time

import pytest
from clients import xrdcp
from cluster import Cluster, Node
from content import KIB, MIB, content
from harness import remove, weir
from test_metrics import named, samples
from test_python_package import sockets_to

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
    assert {key: after[key] for key in ("size", "mtime", "mode", "type") if key in before} == {
        key: before[key] for key in ("size", "mtime", "mode", "type") if key in before
    }


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
    victim = max(since(before, read_bytes(cluster)), key=since(before, read_bytes(cluster)).get)
    reads_while(read_all, victim.kill)
    # It still reads at the servers of the units, and each byte once.
    opened, before = opens(cluster), read_bytes(cluster)
    assert fs.cat_file(path) == data
    read = since(before, read_bytes(cluster))
    assert size <= sum(read.values()) < 1.01 * size and not since(opened, opens(cluster)), read
    # Another one, which opens it now.
    assert file_system(package, cluster, idle=20).cat_file(path) == data


def dies_in_its_answers(victim: Node, read) -> bytes:
    """Kills a server while it sends what is read, and returns what was read all the same."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        for seconds in (0.04, 0.02, 0.01, 0):
            reading = pool.submit(read)
            time.sleep(seconds)
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
        with pytest.raises(OSError, match="another file since it was opened"):
            file.seek(8 * MIB)
            file.read(10)
    assert fs.cat_file(path) == new
    end, wrong, reads = time.monotonic() + 3, [], [0]

    def read() -> None:
        reader = file_system(package, cluster, idle=0.05)
        while time.monotonic() < end:
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
    while time.monotonic() < end:
        for data in (old, new):
            fs.pipe_file(f"{path}.new", data)
            fs.mv(f"{path}.new", path)
    for thread in threads:
        thread.join()
    assert reads[0] > 5 and not wrong, (reads, wrong)


def test_many_open_striped_files_have_few_connections(package, cluster, sent):
    paths = [f"/striped/many{number}" for number in range(6)]
    data = [sent(path, WIDTH * CHUNK) for path in paths]

    def sockets() -> set[str]:
        return set().union(*(sockets_to(disk.port) for disk in cluster.disks))

    # Those of other file systems may end meanwhile.
    before = sockets()
    # One connection for each unit. All files together may have eight.
    fs = file_system(package, cluster, connections=1, open_files=4)
    for _ in range(3):
        assert [fs.cat_file(path) for path in paths] == data
        assert 0 < len(sockets() - before) <= 8


def await_opens(cluster: Cluster, before: dict[Node, float], servers: set[Node]) -> None:
    """Waits until a file was opened at exactly these servers. A connection that is opened while others read may come a moment later."""
    cluster.until(lambda: set(since(before, opens(cluster))) == servers, 10)


def test_the_connections_of_a_large_read_go_to_all_replicas(package, cluster, sent):
    path, size = "/two/large", 40 * MIB
    data, holders = sent(path, size), set(cluster.holders("/two/large"))
    assert len(holders) == 2
    # With chance alone, half of them would use one replica.
    for number in range(8):
        before, opened = read_bytes(cluster), opens(cluster)
        # File systems with the same options share their connections.
        fs = file_system(package, cluster, connections=2, idle=20 + number)
        assert fs.cat_file(path) == data
        await_opens(cluster, opened, holders)
        # On a busy machine, one connection can be ready for the second part before the other one has begun with it.
        for _ in range(10):
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
    for _ in range(3):
        assert fs.cat_file(path) == data
    [(_, count)] = since(opened, opens(cluster)).items()
    assert 2 <= count <= 4, "several connections, to the only server that has it"


def test_large_reads_go_on_when_the_server_of_a_replica_dies(package, cluster, sent):
    path = "/two/killed"
    data, fs = sent(path, 40 * MIB), file_system(package, cluster)
    [victim, other] = cluster.holders(path)

    def read_all() -> list:
        return ["wrong bytes"] if fs.cat_file(path) != data else []

    opened = opens(cluster)
    assert not read_all()
    await_opens(cluster, opened, {victim, other})
    reads_while(read_all, victim.kill, 8)
    before = read_bytes(cluster)
    assert not read_all() and set(since(before, read_bytes(cluster))) == {other}
