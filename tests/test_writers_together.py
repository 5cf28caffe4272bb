"""Several handles of one principal change one complete file at the same time, in place: on a node and in a cluster, from one connection or
from several, of one client or of several, as IOzone and the rewrite phases of `weir bench` do."""

import json
import random
import signal
import subprocess
import sys
import threading
import time

import pytest
import raw
from clients import STUBBORN, Xrdfs, xrdcp
from cluster import Cluster
from content import KIB, MIB, content, write
from harness import WEIR_BIN, Weir, remove
from raw import Raw

pytestmark = pytest.mark.managers_ok

BLOCK = 64 * KIB
APPENDING = raw.OPEN_APPEND | raw.OPEN_UPDATE


@pytest.fixture(scope="module")
def replicated(base):
    with Cluster(base / "together", 3, ("--grace-seconds", "5")) as cluster:
        cluster.policy("/", "replica(2) sync=2")
        yield cluster
        assert all(node.alive() for node in cluster.nodes), cluster.logs()
    remove(cluster.home)


@pytest.fixture(scope="module")
def alone(base):
    with Weir(base / "together-alone", flags=("--grace-seconds", "5")) as node:
        yield node
    remove(node.home)


def patient(connection: Raw, path: str, options: int) -> raw.Answer:
    """Opens it. Others may be opening it at the same moment."""
    for _ in range(20):
        answer = connection.ask_open(path, options)
        if answer.status != raw.WAIT:
            break
        time.sleep(1)
    return answer


class Handle:
    """A file that is open for writing, with the connection that it has to itself."""

    def __init__(
        self,
        url: str,
        path: str,
        options: int = raw.OPEN_UPDATE,
        pid: int = 4242,
        over: "Handle | None" = None,
        ends: "Handle | None" = None,
    ):
        """`over`: opens it on the connection of another handle. `ends`: ends the session of another handle before."""
        host, _, port = url.removeprefix("root://").rstrip("/").partition(":")
        if over and over.is_at_node:
            self.connection = over.connection
        else:
            self.connection = Raw(int(port), host=host, pid=pid)
        if ends and ends.is_at_node:
            assert self.connection.request(raw.ENDSESS, ends.connection.session).status == raw.OK
        self.opened = patient(self.connection, path, options)
        self.is_at_node = self.opened.status != raw.REDIRECT
        if not self.is_at_node:
            self.connection.socket.close()
            port, host, opaque = self.opened.redirect
            self.connection = over.connection if over else Raw(port, host=host, pid=pid)
            if ends:
                assert self.connection.request(raw.ENDSESS, ends.connection.session).status == raw.OK
            self.opened = patient(self.connection, f"{path}?{opaque}", options)
        while self.opened.status == raw.REDIRECT:
            # The open write has ended meanwhile. A client brings along what it had.
            port, host, more = self.opened.redirect
            opaque = "&".join(word for word in (more, opaque) if word)
            self.connection = Raw(port, host=host, pid=pid)
            self.opened = patient(self.connection, f"{path}?{opaque}", options)
        self.handle = self.opened.body[:4]

    def write(self, offset: int, data: bytes) -> raw.Answer:
        return self.connection.write(self.handle, offset, data)

    def close(self) -> raw.Answer:
        return self.connection.close(self.handle)


@pytest.fixture(params=["node", "cluster"])
def url(request):
    if request.param == "node":
        return request.getfixturevalue("alone").url.rstrip("/")
    return request.getfixturevalue("replicated").url.rstrip("/")


def back(url: str, path: str, tmp_path) -> bytes:
    """Its bytes, which the stock client compares with the file's checksum."""
    xrdcp("-f", "--cksum", "adler32:source", f"{url}/{path}", tmp_path / "back", patience=STUBBORN).ok()
    return (tmp_path / "back").read_bytes()


def make(url: str, path: str, size: int, tmp_path) -> bytearray:
    data = content(path, size)
    xrdcp("-f", write(tmp_path / "made", path, size), f"{url}/{path}").ok()
    return bytearray(data)


def test_interleaved_writes_from_two_connections_and_two_clients(url, tmp_path, request):
    path = f"/{request.node.originalname}"
    expected = make(url, path, 4 * MIB, tmp_path)
    first = Handle(url, path)
    handles = [first, Handle(url, path), Handle(url, path, pid=77), Handle(url, path, over=first)]
    assert all(handle.opened.status == raw.OK for handle in handles), [handle.opened for handle in handles]
    drawn = random.Random(7)
    for number, block in enumerate(drawn.sample(range(4 * MIB // BLOCK), 48)):
        data = content(f"block {block}", BLOCK)
        assert handles[number % 4].write(block * BLOCK, data).status == raw.OK
        expected[block * BLOCK : (block + 1) * BLOCK] = data
    while handles:
        handle = handles.pop(drawn.randrange(len(handles)))
        assert handle.write(0, content(f"last of {len(handles)}", 5000)).status == raw.OK
        expected[:5000] = content(f"last of {len(handles)}", 5000)
        assert handle.close().status == raw.OK
    assert back(url, path, tmp_path) == expected


def test_many_threads_write_their_own_parts(url, tmp_path, request):
    path = f"/{request.node.originalname}"
    make(url, path, 8 * MIB, tmp_path)
    answers = []

    def run(number: int) -> None:
        handle = Handle(url, path, pid=100 + number % 3)
        answers.append(handle.opened)
        for block in range(number, 8 * MIB // BLOCK, 8):
            answers.append(handle.write(block * BLOCK, content(f"new {block}", BLOCK)))
        answers.append(handle.close())

    threads = [threading.Thread(target=run, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 8 * MIB // BLOCK + 2 * 8
    assert not [answer.text for answer in answers if answer.status != raw.OK]
    assert back(url, path, tmp_path) == b"".join(content(f"new {block}", BLOCK) for block in range(8 * MIB // BLOCK))


class Visitor:
    """A client that keeps its connections while it opens and closes files."""

    def __init__(self, url: str, pid: int):
        self.pid, self.connections = pid, {}
        host, _, port = url.removeprefix("root://").partition(":")
        self.first = self.at(int(port), host)

    def at(self, port: int, host: str) -> Raw:
        if (port, host) not in self.connections:
            self.connections[port, host] = Raw(port, host=host, pid=self.pid)
        return self.connections[port, host]

    def change(self, path: str, offset: int, data: bytes) -> list[raw.Answer]:
        """The answers to a write and a close."""
        at, words = self.first, ""
        while True:
            opened = at.ask_open(f"{path}?{words}", raw.OPEN_UPDATE)
            if opened.status == raw.OK:
                return [at.write(opened.body[:4], offset, data), at.close(opened.body[:4])]
            if opened.status == raw.REDIRECT:
                port, host, words = opened.redirect
                at = self.at(port, host)
            else:
                assert opened.status == raw.WAIT, opened
                time.sleep(0.01)


def test_clients_that_come_and_go_all_the_time_are_never_sent_away_with_a_handle(url, tmp_path, request):
    """Each open meets others that are just being closed. Before, some clients got a handle of an open write that another client's close
    had just ended, or a close did not learn its outcome because the next open write had begun; and closes at the same time took a tenth of
    a second each on a cluster. That needs a machine that has no time."""
    paths = [f"/{request.node.name}-{number}".translate(str.maketrans("[]", "__")) for number in range(4)]
    expected = [make(url, path, 8 * BLOCK, tmp_path) for path in paths]
    closed, surprises, end = [0] * 8, [], time.monotonic() + 8

    def come_and_go(part: int) -> None:
        visitor = Visitor(url, pid=100 + part)
        while time.monotonic() < end:
            closed[part] += 1
            which, data = (part + closed[part]) % len(paths), content(f"{part}-{closed[part]}", KIB)
            surprises.extend(answer for answer in visitor.change(paths[which], part * BLOCK, data) if answer.status != raw.OK)
            expected[which][part * BLOCK : part * BLOCK + KIB] = data

    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3)]
    try:
        threads = [threading.Thread(target=come_and_go, args=(part,)) for part in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert not surprises, surprises[:5]
    assert min(closed) > 10, closed
    for path, data in zip(paths, expected, strict=True):
        assert back(url, path, tmp_path) == data


def test_a_new_file_and_one_that_is_appended_to_have_one_writer(url, tmp_path, request):
    path = f"/{request.node.originalname}"
    new = Handle(url, path, raw.OPEN_NEW | raw.OPEN_UPDATE)
    assert new.write(0, b"new").status == raw.OK
    assert Handle(url, path, pid=77).opened.error == raw.FILE_LOCKED
    assert new.close().status == raw.OK
    appending = Handle(url, path, APPENDING)
    assert appending.write(3, b" and more").status == raw.OK
    other = Handle(url, path, pid=77).opened
    assert other.error == raw.FILE_LOCKED and "is appending to it" in other.text, other
    assert appending.close().status == raw.OK
    changing = Handle(url, path)
    assert Handle(url, path, APPENDING, pid=77).opened.error == raw.FILE_LOCKED
    assert changing.close().status == raw.OK
    assert back(url, path, tmp_path) == b"new and more"


def test_a_checkpoint_is_of_a_writer_that_is_alone(alone, tmp_path):
    url, path = alone.url.rstrip("/"), "/checkpointed"
    make(url, path, 10_000, tmp_path)
    one, other = Handle(url, path), Handle(url, path, pid=77)
    begin = lambda: one.connection.request(raw.CHKPOINT, one.handle + bytes(11) + bytes([raw.CKP_BEGIN]))  # noqa: E731
    refused = begin()
    assert refused.status == raw.ERROR and "open for writing elsewhere" in refused.text, refused
    assert other.close().status == raw.OK
    assert begin().status == raw.OK
    refused = Handle(url, path, pid=77).opened
    assert refused.error == raw.FILE_LOCKED and "has an open checkpoint" in refused.text, refused
    assert one.connection.request(raw.CHKPOINT, one.handle + bytes(11) + bytes([raw.CKP_COMMIT])).status == raw.OK
    other = Handle(url, path, pid=77)
    assert other.opened.status == raw.OK and other.close().status == raw.OK and one.close().status == raw.OK


WRITER = """
import os, sys, time
os.environ.update(XRD_CONNECTIONWINDOW="2", XRD_CONNECTIONRETRY="30", XRD_STREAMERRORWINDOW="2", XRD_TIMEOUTRESOLUTION="1")
from XRootD import client
from XRootD.client.flags import OpenFlags

url, half, pause = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
# Two files of one process share its connection.
files = [client.File(), client.File()]
for file in files:
    status, _ = file.open(url, OpenFlags.UPDATE)
    assert status.ok, status.message
for number in range(16):
    block = 2 * number + half
    status, _ = files[number % 2].write(bytes([65 + block]) * (1 << 19), offset=block << 19)
    assert status.ok, status.message
    print(block, flush=True)
    time.sleep(pause)
for file in files:
    status, _ = file.close()
    assert status.ok, status.message
print("closed", flush=True)
"""
UNIT = MIB // 2


def begin_writers(url: str, path: str, pauses: tuple[float, float]) -> list[subprocess.Popen]:
    """Two stock clients, each with two files, that change the file's blocks in turn."""
    pytest.importorskip("XRootD.client")
    command = [sys.executable, "-c", WRITER, f"{url}/{path}"]
    return [subprocess.Popen([*command, str(half), str(pause)], stdout=subprocess.PIPE, text=True) for half, pause in enumerate(pauses)]


def acknowledged(writer: subprocess.Popen, until: int) -> list[int]:
    """The blocks that it reports, up to this number of them."""
    return [int(writer.stdout.readline()) for _ in range(until)]


def check(data: bytes, before: bytes, acked: list[int], may_be: list[int] = ()) -> None:
    """Each block has what was acknowledged, and the others are as before."""
    for block in range(len(before) // UNIT):
        there, old, new = data[block * UNIT : (block + 1) * UNIT], before[block * UNIT : (block + 1) * UNIT], bytes([65 + block]) * UNIT
        if block in acked:
            assert there == new, f"block {block} was acknowledged"
        elif block not in may_be:
            assert there == old, f"block {block} was not written"


def test_a_killed_writer_does_not_hold_up_the_other_one(url, tmp_path, request):
    path = f"/{request.node.originalname}"
    before = bytes(make(url, path, 16 * MIB, tmp_path))
    killed, other = begin_writers(url, path, (0.05, 0.2))
    of_killed = acknowledged(killed, 5)
    killed.send_signal(signal.SIGKILL)
    of_killed += [int(line) for line in killed.communicate()[0].split()]
    out, _ = other.communicate(timeout=60)
    assert other.returncode == 0 and out.endswith("closed\n"), out
    # Complete, with its checksum, at the close of the one that is left.
    data = back(url, path, tmp_path)
    acked = of_killed + [int(line) for line in out.split()[:-1]]
    check(data, before, acked, may_be=[2 * len(of_killed)])


def test_when_both_are_killed_the_file_stands_with_what_was_acknowledged(url, tmp_path, request):
    path = f"/{request.node.originalname}"
    before = bytes(make(url, path, 16 * MIB, tmp_path))
    writers = begin_writers(url, path, (0.5, 0.5))
    acked = [block for writer in writers for block in acknowledged(writer, 4)]
    for writer in writers:
        writer.send_signal(signal.SIGKILL)
    more = [int(line) for writer in writers for line in writer.communicate()[0].split()]
    begun = [max([block for block in acked + more if block % 2 == half]) + 2 for half in range(2)]
    deadline = time.monotonic() + 40
    while xrdcp("-f", "--cksum", "adler32:source", f"{url}/{path}", tmp_path / "back").code and time.monotonic() < deadline:
        time.sleep(1)
    check(back(url, path, tmp_path), before, acked + more, may_be=begun)


@pytest.mark.parametrize("kind", ["node", "cluster"])
def test_writers_together_outlive_a_kill_of_their_server(base, tmp_path, kind):
    home, path = base / f"together-dies-{kind}", "/shared"
    if kind == "node":
        serving = Weir(home, flags=("--grace-seconds", "20"))
    else:
        serving = Cluster(home, 3, ("--grace-seconds", "20"))
    with serving:
        if kind == "cluster":
            serving.policy("/", "replica(2) sync=2")
        url = serving.url.rstrip("/")
        before = bytes(make(url, path, 16 * MIB, tmp_path))
        writers = begin_writers(url, path, (0.1, 0.1))
        for writer in writers:
            acknowledged(writer, 6)
        # Stock clients return to the same server.
        server = serving if kind == "node" else serving.holders(path)[0]
        server.kill()
        server.start()
        for writer in writers:
            out, _ = writer.communicate(timeout=120)
            assert writer.returncode == 0 and out.endswith("closed\n"), out
        check(back(url, path, tmp_path), before, list(range(32)))
    remove(home)


def test_a_reader_sees_pages_that_are_old_or_new(url, tmp_path, request):
    path = f"/{request.node.originalname}"
    (tmp_path / "old").write_bytes(b"o" * 4 * MIB)
    xrdcp("-f", tmp_path / "old", f"{url}/{path}").ok()
    handles = [Handle(url, path, pid=pid) for pid in (1, 2)]
    assert all(handle.opened.status == raw.OK for handle in handles)

    def write(number: int) -> None:
        for _ in range(12):
            for at in range(0, 4 * MIB, MIB):
                # Both write all pages, at the same time.
                assert handles[number].write(at, (b"AB"[number : number + 1]) * MIB).status == raw.OK

    threads = [threading.Thread(target=write, args=[number]) for number in range(2)]
    for thread in threads:
        thread.start()
    reads = 0
    while any(thread.is_alive() for thread in threads) or not reads:
        copied = xrdcp("-f", f"{url}/{path}", tmp_path / "read")
        if copied.code == 0:
            data = (tmp_path / "read").read_bytes()
            assert len(data) == 4 * MIB
            mixed = [at for at in range(0, len(data), 4096) if len(set(data[at : at + 4096])) != 1]
            assert not mixed, f"{len(mixed)} pages are mixed, the first at {mixed[0]}"
            reads += 1
    for thread in threads:
        thread.join()
    assert all(handle.close().status == raw.OK for handle in handles)
    data = back(url, path, tmp_path)
    assert all(data[at : at + 4096] in (b"A" * 4096, b"B" * 4096) for at in range(0, len(data), 4096))


def test_a_session_that_was_ended_writes_no_more(url, tmp_path, request):
    """As a client does that has lost its connection: it ends its old session, and opens the file again."""
    path = f"/{request.node.originalname}"
    expected = make(url, path, MIB, tmp_path)
    old, other = Handle(url, path), Handle(url, path, pid=77)
    assert old.write(0, b"1" * 100).status == raw.OK
    new = Handle(url, path, ends=old)
    assert new.opened.status == raw.OK
    assert new.write(0, b"2" * 100).status == raw.OK
    try:
        assert old.write(0, b"1" * 100).status == raw.ERROR
    except (raw.Closed, ConnectionError):
        pass
    assert other.write(100, b"3" * 100).status == raw.OK
    assert new.close().status == raw.OK and other.close().status == raw.OK
    expected[:200] = b"2" * 100 + b"3" * 100
    assert back(url, path, tmp_path) == expected


CAMPAIGN = """
name = "chunks"
repeats = 1
[[system]]
name = "weir"
place = "{place}"
[[streams]]
name = "large"
phases = ["write", "rewrite", "read", "random-write", "record-rewrite", "mixed", "reread"]
file = "8MiB"
block = "256KiB"
streams = 2
chunks = {chunks}
"""


@pytest.mark.parametrize("chunks", [2, 4])
def test_the_bench_rewrites_in_chunks(url, tmp_path, request, chunks):
    folder = f"/bench{chunks}"
    Xrdfs(url)("mkdir", folder).ok()
    (tmp_path / "c.toml").write_text(CAMPAIGN.format(place=f"{url}{folder}", chunks=chunks))
    command = [WEIR_BIN, "bench", "run", tmp_path / "c.toml", "--results", tmp_path / "results", "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    trials = [json.loads(line) for line in (tmp_path / "results" / "trials.jsonl").read_text().splitlines()]
    tallies = {phase["phase"]: phase["measured"]["tally"] for trial in trials for phase in trial["phases"]}
    assert len(tallies) == 7 and not any(tally.get("failures") for tally in tallies.values()), tallies


def test_a_refused_client_and_the_one_that_it_met_are_not_told_later_that_their_write_has_ended(alone, tmp_path):
    """An appending client is alone. Both may open what has replaced the file afterwards, and a removed file is not there."""
    small = write(tmp_path / "small", "small", 3 * KIB)
    xrdcp(small, f"{alone.url}/met").ok()
    appends = Handle(alone.url, "/met", APPENDING, pid=1)
    assert appends.opened.status == raw.OK
    host, _, port = alone.url.removeprefix("root://").rstrip("/").partition(":")
    with Raw(int(port), host=host, pid=2) as other:
        assert other.ask_open("/met", raw.OPEN_UPDATE).status == raw.ERROR
        assert appends.close().status == raw.OK
        xrdcp("-f", small, f"{alone.url}/met").ok()
        assert patient(other, "/met", raw.OPEN_UPDATE).status == raw.OK
    again = Handle(alone.url, "/met", pid=1)
    assert again.opened.status == raw.OK, again.opened
    assert again.close().status == raw.OK
