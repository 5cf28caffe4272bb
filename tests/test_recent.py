"""Recently written data is read from the node's memory: right after the write, while it is recorded, and by other servers. The disk is the
truth: what it has lost is found, and a restart reads it."""

import contextlib
import os
import struct
import threading
import time
from pathlib import Path

import pytest
import raw
from clients import xrdcp
from cluster import Cluster
from content import MIB, content, write
from harness import Weir, until, weir
from raw import Raw
from test_damage import flip, places_of
from test_metrics import named, samples
from test_scrub import ended, settled

LIMIT = 64 * MIB


def configured(tmp_path: Path, limit: str) -> tuple[str, ...]:
    config = tmp_path / "weir.toml"
    config.write_text(f'limits.recent = "{limit}"\n')
    return "--config", str(config), "--metrics", "127.0.0.1:0"


@pytest.fixture
def node(own_node, tmp_path) -> Weir:
    return own_node(*configured(tmp_path, "64MiB"))


def memory(server) -> float:
    return named(samples(server), "weir_recent_memory_bytes")


def reads(server) -> tuple[float, float]:
    """Bytes that readers got from memory, and from the disk."""
    found = samples(server)
    return tuple(named(found, "weir_recent_read_bytes_total", **{"from": source}) for source in ("memory", "disk"))


def prepared(server, tmp_path, bytes_at_least: int) -> None:
    """Writes until so much memory is ready."""
    source, end = write(tmp_path / "early", "early", 16 * MIB), time.monotonic() + 60
    while memory(server) < bytes_at_least:
        xrdcp("-f", source, f"{server.url}/early").ok()
        assert time.monotonic() < end, memory(server)
    # Memory that a thread still prepares is counted already.
    until(lambda: "recent-memory" not in threads_of(server), 30)


def threads_of(server) -> set[str]:
    names = set()
    for thread in Path(f"/proc/{server.process.pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            names.add((thread / "comm").read_text().strip())
    return names


def back(server, path: str, tmp_path) -> bytes:
    xrdcp("-f", f"{server.url}{path}", tmp_path / "back").ok()
    return (tmp_path / "back").read_bytes()


def test_the_first_reader_needs_no_disk(node, tmp_path):
    prepared(node, tmp_path, 48 * MIB)
    data = content("first", 12 * MIB + 4711)
    xrdcp(write(tmp_path / "source", "first", len(data)), f"{node.url}/file").ok()
    before = reads(node)
    assert back(node, "/file", tmp_path) == data
    after = reads(node)
    assert after[0] - before[0] >= len(data) and after[1] == before[1], (before, after)
    # The memory is bounded, and a long file does not take all of it.
    xrdcp(write(tmp_path / "long", "long", 200 * MIB), f"{node.url}/long").ok()
    assert memory(node) <= LIMIT
    before = reads(node)
    assert back(node, "/file", tmp_path) == data
    assert reads(node)[1] == before[1], "the long write has left it alone"
    assert named(samples(node), "weir_recent_memory_limit_bytes") == LIMIT


SEGMENTS = [(4096 * at + at % 7, 5000 + at) for at in range(0, 2000, 9)]
SEGMENTS += [(3, 10), (2 * MIB - 7, 14), (0, 70_000), (5 * MIB, MIB), (MIB, 0)]


def vector(handle: bytes, segments: list[tuple[int, int]]) -> bytes:
    return b"".join(struct.pack(">4siq", handle, length, at) for at, length in segments)


def segments_of(answer: bytes) -> list[tuple[int, bytes]]:
    """The offsets and the bytes of a readv's answer."""
    found, at = [], 0
    while at < len(answer):
        _, length, offset = struct.unpack_from(">4siq", answer, at)
        found.append((offset, answer[at + 16 : at + 16 + length]))
        at += 16 + length
    return found


def lent(server) -> float:
    return named(samples(server), "weir_recent_lent_bytes_total")


def test_vectors_come_from_memory_and_have_every_byte(node, tmp_path):
    prepared(node, tmp_path, 48 * MIB)
    data = content("vector", 12 * MIB)
    xrdcp(write(tmp_path / "source", "vector", len(data)), f"{node.url}/file").ok()
    before, lent_before = reads(node), lent(node)
    with Raw(node.port) as me:
        handle = me.open("/file", raw.OPEN_READ)
        answer = me.request(raw.READV, b"", vector(handle, SEGMENTS))
    assert answer.status == raw.OK and segments_of(answer.body) == [(at, data[at : at + length]) for at, length in SEGMENTS]
    after = reads(node)
    assert after[0] > before[0] and after[1] == before[1], (before, after)
    assert lent(node) - lent_before > 1_000_000, "most of them without a copy"


def test_vectors_beside_changes_in_place_end_and_have_whole_pages(node, tmp_path):
    """Short and long segments of the same memory, while another client opens, changes and closes the file."""
    prepared(node, tmp_path, 48 * MIB)
    xrdcp(write(tmp_path / "source", "beside", 4 * MIB), f"{node.url}/file").ok()
    pages, end = 512, time.monotonic() + 3
    values = [(tmp_path / "source").read_bytes()[at * 4096 : at * 4096 + 4096] for at in range(pages)]
    seen: list[set[bytes]] = [{value} for value in values]
    failed: list[BaseException] = []

    def change() -> None:
        try:
            turn = 0
            with Raw(node.port) as writer:
                while time.monotonic() < end:
                    turn += 1
                    own = writer.open("/file", raw.OPEN_UPDATE)
                    for page in range(turn % 7, pages, 41):
                        value = bytes([turn % 256]) * 4096
                        seen[page].add(value)
                        assert writer.write(own, page * 4096, value).status == raw.OK
                    assert writer.close(own).status == raw.OK
        except BaseException as error:
            failed.append(error)

    changer = threading.Thread(target=change)
    changer.start()
    lent_before, rounds = lent(node), 0
    with Raw(node.port) as me:
        while time.monotonic() < end:
            answer = me.request(raw.OPEN, struct.pack(">HH12x", 0o644, raw.OPEN_READ), b"/file")
            if answer.status != raw.OK:  # somebody writes to it
                continue
            asked = [(page * 4096, 4096) for page in range(0, pages, 3)] + [(page * 4096 + 7, 100) for page in range(0, pages, 5)]
            answer = me.request(raw.READV, b"", vector(answer.body[:4], sorted(asked)))
            for offset, segment in segments_of(answer.body) if answer.status == raw.OK else []:
                page, at = divmod(offset, 4096)
                assert any(value[at : at + len(segment)] == segment for value in tuple(seen[page])), offset
            rounds += answer.status == raw.OK
    changer.join(30)
    assert not changer.is_alive() and not failed, failed
    assert rounds > 10 and lent(node) > lent_before, rounds


def test_vectors_of_a_cold_file_have_every_byte(own_node, tmp_path):
    node = own_node(*configured(tmp_path, "0B"))
    data = content("cold", 12 * MIB)
    xrdcp(write(tmp_path / "source", "cold", len(data)), f"{node.url}/file").ok()
    for turn in range(2):
        node.restart()
        os.sync()
        if os.geteuid() == 0:
            Path("/proc/sys/vm/drop_caches").write_text("3")
        with Raw(node.port) as me:
            handle = me.open("/file", raw.OPEN_READ)
            # From the last to the first, too: the order of the answer is that of the request.
            asked = SEGMENTS if turn == 0 else SEGMENTS[::-1]
            answer = me.request(raw.READV, b"", vector(handle, asked))
        assert answer.status == raw.OK and segments_of(answer.body) == [(at, data[at : at + length]) for at, length in asked]


def test_a_reader_that_takes_nothing_does_not_stop_a_writer_of_the_same_pages(node, tmp_path):
    """What a slow client was to get is copied before the server waits for it: it has the bytes of the time of its read."""
    prepared(node, tmp_path, 48 * MIB)
    data = content("slow", 12 * MIB)
    xrdcp(write(tmp_path / "source", "slow", len(data)), f"{node.url}/file").ok()
    segments = [(8192 * at, 8192) for at in range(1024)]
    with Raw(node.port) as slow:
        handle = slow.open("/file", raw.OPEN_READ)
        # More than the sockets hold.
        asked = [slow.send(raw.READV, b"", vector(handle, segments)) for _ in range(4)]
        time.sleep(0.5)
        with Raw(node.port) as writer:
            own = writer.open("/file", raw.OPEN_UPDATE)
            begin = time.monotonic()
            for at in range(0, 8 * MIB, MIB):
                assert writer.write(own, at, bytes(MIB)).status == raw.OK
            assert time.monotonic() - begin < 3
            assert writer.close(own).status == raw.OK
        answers = [slow.answer(stream).body for stream in asked]
        now = bytes(8 * MIB) + data[8 * MIB :]
        for number, answer in enumerate(answers):
            for offset, segment in segments_of(answer):
                assert segment in (data[offset : offset + 8192], now[offset : offset + 8192]), (number, offset)
        assert segments_of(answers[0])[0][1] == data[:8192], "it was read before the change"


def test_a_killed_node_reads_the_disk(node, tmp_path):
    prepared(node, tmp_path, 32 * MIB)
    data = content("killed", 5 * MIB)
    xrdcp(write(tmp_path / "source", "killed", len(data)), f"{node.url}/file").ok()
    node.kill()
    node.start()
    assert memory(node) == 0
    assert back(node, "/file", tmp_path) == data
    assert reads(node)[0] == 0


def test_what_the_disk_has_lost_is_found_below_the_memory(node, tmp_path):
    prepared(node, tmp_path, 32 * MIB)
    data = content("lost", 5 * MIB)
    xrdcp(write(tmp_path / "source", "lost", len(data)), f"{node.url}/file").ok()
    settled(node)
    (place,) = places_of(node.data / "store", data[3 * MIB : 3 * MIB + 4096])
    flip(place[0], place[1] + 100)
    assert back(node, "/file", tmp_path) == data, "the memory has it"
    assert ended(node, "--rate", "1GiB")["last"]["damaged"] == 1


def test_caches_that_were_dropped_are_filled_from_the_disk(node, tmp_path):
    prepared(node, tmp_path, 32 * MIB)
    data = content("dropped", 5 * MIB)
    xrdcp(write(tmp_path / "source", "dropped", len(data)), f"{node.url}/file").ok()
    dropped = weir("drop-caches", "--data", str(node.data))
    if os.geteuid() != 0:
        assert dropped.returncode == 1 and "cannot empty this machine's page cache" in dropped.stderr
    else:
        assert dropped.returncode == 0 and "are empty" in dropped.stdout, dropped
    before = reads(node)
    assert back(node, "/file", tmp_path) == data
    after = reads(node)
    assert after[0] == before[0] and after[1] - before[1] >= len(data), (before, after)
    # What is written from now on is kept again.
    xrdcp("-f", tmp_path / "source", f"{node.url}/file").ok()
    before = reads(node)
    assert back(node, "/file", tmp_path) == data
    assert reads(node)[1] == before[1]
    node.stop()
    refused = weir("drop-caches", "--data", str(node.data))
    assert refused.returncode == 6 and "no node is running" in refused.stderr, refused


def test_replaced_changed_and_removed_files(node, tmp_path):
    prepared(node, tmp_path, 32 * MIB)
    for turn in range(6):
        data = content(f"turn {turn}", (turn % 3 + 1) * MIB + turn)
        xrdcp("-f", write(tmp_path / "source", f"turn {turn}", len(data)), f"{node.url}/file").ok()
        assert back(node, "/file", tmp_path) == data


def test_without_memory_all_comes_from_the_disk(own_node, tmp_path):
    node = own_node(*configured(tmp_path, "0B"))
    data = content("none", 5 * MIB)
    xrdcp(write(tmp_path / "source", "none", len(data)), f"{node.url}/file").ok()
    assert back(node, "/file", tmp_path) == data
    found = samples(node)
    assert named(found, "weir_recent_memory_bytes") == named(found, "weir_recent_memory_limit_bytes") == 0


def test_another_server_copies_from_memory(base, tmp_path):
    """A file gets its second replica after its close: the source's disk is not read."""
    with Cluster(base / "recent", 2, configured(tmp_path, "64MiB")) as cluster:
        cluster.policy("/", "replica(2) sync=1")
        prepared_by(cluster, tmp_path)
        before = [reads(disk) for disk in cluster.disks]
        data = content("copied", 10 * MIB)
        xrdcp(write(tmp_path / "source", "copied", len(data)), f"{cluster.url}/file").ok()
        cluster.until(lambda: len(cluster.whole_on("/file")) == 2)
        grown = [(now[0] - then[0], now[1] - then[1]) for now, then in zip(map(reads, cluster.disks), before, strict=True)]
        assert sum(memory for memory, _ in grown) >= len(data), grown
        assert sum(disk for _, disk in grown) == 0, grown


def prepared_by(cluster: Cluster, tmp_path) -> None:
    number = 0

    def enough() -> bool:
        nonlocal number
        number += 1
        xrdcp("-f", write(tmp_path / "early", "early", 16 * MIB), f"{cluster.url}/early{number}").ok()
        return all(memory(disk) >= 48 * MIB for disk in cluster.disks)

    until(enough, 60)
    # The copies of the first ones are read from the disk: their memory was not there yet.
    cluster.until(lambda: all(len(cluster.whole_on(f"/early{file}")) == 2 for file in range(1, number + 1)))
