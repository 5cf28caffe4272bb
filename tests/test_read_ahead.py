"""The node reads ahead of strided reads and of vectors that repeat, and of no others."""

import os
import random
import struct
import time
from pathlib import Path

import pytest
import raw
from clients import xrdcp
from cluster import Cluster
from content import MIB, write
from harness import Weir, until, weir
from raw import Raw
from test_metrics import named, samples
from test_recent import segments_of, vector

LENGTH = 64 * MIB
PAUSE = 0.005
# Stores keep nothing of their own in memory, so that what is not in the page cache is on the disk.
BASE = 'limits.recent = "0B"\n'

# They empty the page cache of the machine. So may others beside them at any time, campaigns of `weir bench` for example; the marked tests
# need what they have put there.
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can empty the page cache")


def flags(tmp_path: Path, config: str = BASE) -> tuple[str, ...]:
    file = tmp_path / "weir.toml"
    file.write_text(config)
    return "--config", str(file), "--metrics", "127.0.0.1:0"


@pytest.fixture
def source(tmp_path) -> Path:
    return write(tmp_path / "source", "ahead", LENGTH)


@pytest.fixture
def node(own_node, tmp_path, source) -> Weir:
    node = own_node(*flags(tmp_path))
    xrdcp(source, f"{node.url}/file").ok()
    cold(node)
    return node


def cold(server) -> None:
    dropped = weir("drop-caches", "--data", str(server.data))
    assert dropped.returncode == 0, dropped


def ahead(server) -> tuple[float, float]:
    """Bytes that were read ahead, and those of them that were requested."""
    found = samples(server)
    return named(found, "weir_read_ahead_bytes_total"), named(found, "weir_read_ahead_used_bytes_total")


def read_one_by_one(server, ranges: list[tuple[int, int]], data: bytes) -> None:
    with Raw(server.port) as me:
        handle = me.open("/file", raw.OPEN_READ)
        for at, length in ranges:
            answer = me.request(raw.READ, struct.pack(">4sqi", handle, at, length))
            assert answer.status == raw.OK and answer.body == data[at : at + length], at
            time.sleep(PAUSE)
        assert me.close(handle).status == raw.OK


def read_vectors(server, requests: list[list[tuple[int, int]]], data: bytes) -> None:
    with Raw(server.port) as me:
        handle = me.open("/file", raw.OPEN_READ)
        for segments in requests:
            answer = me.request(raw.READV, b"", vector(handle, segments))
            assert answer.status == raw.OK
            assert segments_of(answer.body) == [(at, data[at : at + length]) for at, length in segments]
            time.sleep(PAUSE)


STRIDED = [(4711 + number * MIB, 50_000) for number in range(60)]


@pytest.mark.alone  # the page cache is everybody's
@pytest.mark.parametrize("way", ["forwards", "backwards"])
def test_strided_reads(node, source, way):
    data = source.read_bytes()
    ranges = STRIDED if way == "forwards" else STRIDED[::-1]
    read_one_by_one(node, ranges, data)
    announced, used = ahead(node)
    # The first four requests show what it is.
    assert used >= 0.9 * 50_000 * (len(ranges) - 4), (announced, used)
    assert announced <= 50_000 * len(ranges), "nothing behind the file's ends"
    # What is cached is not read ahead.
    read_one_by_one(node, ranges, data)
    assert ahead(node) == (announced, used)


def test_long_strided_reads_and_reads_with_checksums(node, source):
    data = source.read_bytes()
    read_one_by_one(node, [(number * 3 * MIB, 300_000) for number in range(20)], data)
    announced, used = ahead(node)
    assert used >= 12 * 300_000, (announced, used)
    cold(node)
    with Raw(node.port) as me:
        handle = me.open("/file", raw.OPEN_READ)
        for number in range(20):
            answer = me.request(raw.PGREAD, struct.pack(">4sqi", handle, number * 2 * MIB, 65536))
            assert answer.status == raw.STATUS and data[number * 2 * MIB : number * 2 * MIB + 4096] in answer.body
            time.sleep(PAUSE)
    assert ahead(node)[1] - used >= 12 * 65536


def test_vectors_that_repeat(node, source):
    """Columns of a file, each of which moves by another amount that varies a little."""
    vary = random.Random(5)
    places = [MIB + column * 3 * MIB for column in range(20)]
    requests = []
    for _ in range(40):
        requests.append([(place, 9000 + vary.randrange(500)) for place in places])
        places = [place + 50_000 + column * 700 + vary.randrange(1000) for column, place in enumerate(places)]
    read_vectors(node, requests, source.read_bytes())
    announced, used = ahead(node)
    asked = sum(length for segments in requests for _, length in segments)
    assert used > 0.7 * asked and announced < 2 * used, (announced, used, asked)


def test_random_readers_cost_nothing(node, source):
    data, pick = source.read_bytes(), random.Random(7)
    read_one_by_one(node, [(pick.randrange(LENGTH - MIB), 1 + pick.randrange(100_000)) for _ in range(100)], data)
    cold(node)
    vectors = [sorted((pick.randrange(LENGTH - 10_000), 9000) for _ in range(30)) for _ in range(40)]
    read_vectors(node, vectors, data)
    assert ahead(node) == (0, 0)


def test_a_whole_file_in_order_is_left_to_the_kernel(node, source, tmp_path):
    xrdcp("-f", f"{node.url}/file", tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == source.read_bytes()
    cold(node)
    read_one_by_one(node, [(number * 65536, 65536) for number in range(100)], source.read_bytes())
    assert ahead(node) == (0, 0)


def test_it_can_be_turned_off_and_on(own_node, tmp_path, source):
    off = BASE + 'limits.read_ahead = "0B"\n'
    node = own_node(*flags(tmp_path, off))
    xrdcp(source, f"{node.url}/file").ok()
    cold(node)
    data = source.read_bytes()
    read_one_by_one(node, STRIDED, data)
    assert ahead(node) == (0, 0)
    (tmp_path / "weir.toml").write_text(BASE + 'limits.read_ahead = "100KiB"\n')
    assert weir("reload", "--data", str(node.data)).returncode == 0
    until(lambda: "taken over: `limits.read_ahead`" in node.log_text(), 10)
    cold(node)
    read_one_by_one(node, STRIDED, data)
    assert ahead(node)[1] > 0


def test_files_that_are_removed_or_closed_meanwhile(node, source):
    data = source.read_bytes()
    for _ in range(3):
        cold(node)
        read_one_by_one(node, STRIDED[:8], data)
    with Raw(node.port) as me:
        handle = me.open("/file", raw.OPEN_READ)
        cold(node)
        for number, (at, length) in enumerate(STRIDED):
            if number == 20:
                assert me.request(raw.RM, b"", b"/file").status == raw.OK
            answer = me.request(raw.READ, struct.pack(">4sqi", handle, at, length))
            assert answer.status == raw.OK and answer.body == data[at : at + length]
    assert node.alive()


def test_disk_servers_read_ahead(base, tmp_path, source):
    with Cluster(base / "ahead", 1, flags(tmp_path)) as cluster:
        xrdcp(source, f"{cluster.url}/file").ok()
        (disk,) = cluster.disks
        cold(disk)
        data = source.read_bytes()
        with Raw.to(cluster.manager) as me:
            _, _, capability = me.ask_open("/file").redirect
        with Raw(disk.port, host=disk.host) as me:
            answer = me.ask_open(f"/file?{capability}")
            assert answer.status == raw.OK, answer
            for at, length in STRIDED:
                got = me.request(raw.READ, struct.pack(">4sqi", answer.body[:4], at, length))
                assert got.status == raw.OK and got.body == data[at : at + length]
                time.sleep(PAUSE)
        assert ahead(disk)[1] >= 0.9 * 50_000 * (len(STRIDED) - 4)
