"""The first read of a large file goes past the page cache, and what it has fetched is there for the next."""

import os
import struct

import pytest
import raw
from clients import xrdcp
from content import MIB, content, write
from raw import Raw
from test_metrics import named, samples
from test_read_ahead import cold, flags
from test_recent import prepared, reads

LENGTH = 96 * MIB + 4711

# They empty the page cache of the machine. So may others beside them at any time, campaigns of `weir bench` for example; the marked tests
# need what they have put there.
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can empty the page cache")


@pytest.fixture(scope="module")
def data() -> bytes:
    return content("first read", LENGTH)


@pytest.fixture
def served(own_node, tmp_path):
    """A node that has the file on its disk alone."""

    def start(config: str, ready: int = 48 * MIB):
        node = own_node(*flags(tmp_path, config))
        prepared(node, tmp_path, 48 * MIB)
        xrdcp(write(tmp_path / "source", "first read", LENGTH), f"{node.url}/file").ok()
        prepared(node, tmp_path, ready)
        cold(node)
        return node

    return start


def first_reads(server) -> float:
    return named(samples(server), "weir_first_read_bytes_total")


def read_from_disk(server) -> int:
    """The bytes that its process has had read from disks."""
    with open(f"/proc/{server.process.pid}/io") as io:
        return int(dict(line.split(": ") for line in io)["read_bytes"])


def back(server, tmp_path) -> bytes:
    xrdcp("-f", f"{server.url}/file", tmp_path / "back").ok()
    return (tmp_path / "back").read_bytes()


@pytest.mark.alone  # the page cache is everybody's
def test_the_first_read_goes_past_the_cache_and_serves_the_next(served, data, tmp_path):
    # With less memory, what it has fetched first makes room for what it fetches last.
    node = served('limits.recent = "256MiB"\n', ready=128 * MIB)
    before = reads(node)
    assert back(node, tmp_path) == data
    # The first two requests are read through the cache: only then is it known that the reader goes on.
    once = first_reads(node)
    assert LENGTH * 0.6 < once < LENGTH + 4096
    assert reads(node)[0] == before[0] and reads(node)[1] - before[1] >= LENGTH, "it counts as read from the disk"
    # What it has fetched serves the next reader, and what it has read before that is in the page cache.
    before = reads(node)
    assert back(node, tmp_path) == data
    assert first_reads(node) == once and reads(node)[0] - before[0] >= once - 4096
    taken = read_from_disk(node)
    assert back(node, tmp_path) == data
    assert read_from_disk(node) - taken < LENGTH * 0.1
    # When all memory is emptied, the next read is like the first one.
    cold(node)
    assert back(node, tmp_path) == data
    assert LENGTH * 0.6 < first_reads(node) - once < LENGTH + 4096


WITHOUT = {"little memory": 'limits.recent = "64MiB"\n', "off": 'limits.recent = "256MiB"\nlimits.read_ahead = "0B"\n'}


@pytest.mark.parametrize("config", [pytest.param(WITHOUT["little memory"], marks=pytest.mark.long), WITHOUT["off"]], ids=WITHOUT.keys())
def test_without_memory_for_it_or_without_reading_ahead_all_goes_through_the_cache(served, data, tmp_path, config):
    node = served(config)
    assert back(node, tmp_path) == data
    assert first_reads(node) == 0


def test_a_reader_that_goes_elsewhere_reads_through_the_cache(served, data):
    node = served('limits.recent = "256MiB"\n')
    step = 4 * MIB
    with Raw(node.port) as me:
        handle = me.open("/file", raw.OPEN_READ)

        def read(at: int, length: int) -> None:
            answer = me.request(raw.READ, struct.pack(">4sqi", handle, at, length))
            assert answer.status == raw.OK and answer.body == data[at : at + length], at

        for at in range(0, 5 * step, step):
            read(at, step)
        assert first_reads(node) > 0
        # What was already asked for still comes.
        read(80 * MIB, 100)
        once = first_reads(node)
        for at in range(40 * MIB, 60 * MIB, step):
            read(at, step)
        assert first_reads(node) - once <= 16 * MIB
        assert me.close(handle).status == raw.OK


def test_a_few_adjacent_reads_begin_none(served, data):
    node = served('limits.recent = "256MiB"\n')
    with Raw(node.port) as me:
        handle = me.open("/file", raw.OPEN_READ)
        for start in (0, 50 * MIB):
            for at in range(start, start + MIB, MIB // 4):
                answer = me.request(raw.READ, struct.pack(">4sqi", handle, at, MIB // 4))
                assert answer.status == raw.OK and answer.body == data[at : at + MIB // 4], at
        assert me.close(handle).status == raw.OK
    assert first_reads(node) == 0
