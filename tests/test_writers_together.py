"""Several handles of one principal change one complete file at the same time, in place: on a node and in a cluster, from one connection or
from several, of one client or of several, as IOzone and the rewrite phases of `weir bench` do."""

import json
import random
import subprocess
import sys
import threading

import pytest
import raw
from clients import STUBBORN, Xrdfs, xrdcp
from cluster import Cluster
from content import KIB, MIB, content, write
from harness import WEIR_BIN, remove
from raw import Raw

BLOCK = 64 * KIB
APPENDING = raw.OPEN_APPEND | raw.OPEN_UPDATE


@pytest.fixture(scope="module")
def replicated(base):
    with Cluster(base / "together", 3, ("--grace-seconds", "5")) as cluster:
        cluster.policy("/", "replica(2) sync=2")
        yield cluster
        assert all(node.alive() for node in cluster.nodes), cluster.logs()
    remove(cluster.home)


class Handle:
    """A file that is open for writing, with the connection that it has to itself."""

    def __init__(self, url: str, path: str, options: int = raw.OPEN_UPDATE, pid: int = 4242, over: "Handle | None" = None):
        """`over`: opens it on the connection of another handle."""
        host, _, port = url.removeprefix("root://").rstrip("/").partition(":")
        with Raw(int(port), host=host, pid=pid) as first:
            answer = first.ask_open(path, options)
            if answer.status == raw.REDIRECT:
                to_port, to_host, opaque = answer.redirect
                host, port, path = to_host, to_port, f"{path}?{opaque}"
        self.connection = over.connection if over else Raw(int(port), host=host, pid=pid)
        self.opened = self.connection.ask_open(path, options)
        self.handle = self.opened.body[:4]

    def write(self, offset: int, data: bytes) -> raw.Answer:
        return self.connection.write(self.handle, offset, data)

    def close(self) -> raw.Answer:
        return self.connection.close(self.handle)


@pytest.fixture(params=["node", "cluster"])
def url(request):
    if request.param == "node":
        return request.getfixturevalue("node").url.rstrip("/")
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
        for block in range(number, 8 * MIB // BLOCK, 8):
            answers.append(handle.write(block * BLOCK, content(f"new {block}", BLOCK)).status)
        answers.append(handle.close().status)

    threads = [threading.Thread(target=run, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 8 * MIB // BLOCK + 8 and set(answers) == {raw.OK}
    assert back(url, path, tmp_path) == b"".join(content(f"new {block}", BLOCK) for block in range(8 * MIB // BLOCK))


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


def test_a_checkpoint_is_of_a_writer_that_is_alone(node, tmp_path):
    url, path = node.url.rstrip("/"), "/checkpointed"
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


def test_writers_together_outlive_the_death_of_their_primary(base, tmp_path):
    with Cluster(base / "together-dies", 3, ("--grace-seconds", "20")) as cluster:
        cluster.policy("/", "replica(2) sync=2")
        url, path = cluster.url.rstrip("/"), "/shared"
        expected = make(url, path, 16 * MIB, tmp_path)
        script = "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]); import rewriter; rewriter.main(*sys.argv[2:])"
        folder = str(tmp_path)
        (tmp_path / "rewriter.py").write_text(REWRITER)
        pytest.importorskip("XRootD.client")
        command = [sys.executable, "-c", script, folder, f"{url}/{path}"]
        writers = [subprocess.Popen([*command, str(half)], stdout=subprocess.PIPE, text=True) for half in range(2)]
        for writer in writers:
            assert writer.stdout.readline() == "half done\n"
        cluster.holders(path)[0].kill()
        for writer in writers:
            out, _ = writer.communicate(timeout=120)
            assert writer.returncode == 0, out + cluster.logs()
        for block in range(16):
            expected[block * MIB : (block + 1) * MIB] = bytes([65 + block]) * MIB
        assert back(url, path, tmp_path) == expected


REWRITER = """
import os, sys, time
os.environ.update(XRD_CONNECTIONWINDOW="2", XRD_CONNECTIONRETRY="30", XRD_STREAMERRORWINDOW="2", XRD_TIMEOUTRESOLUTION="1")
from XRootD import client
from XRootD.client.flags import OpenFlags

def main(url, half):
    file = client.File()
    status, _ = file.open(url, OpenFlags.UPDATE)
    assert status.ok, status.message
    for number in range(8):
        block = 2 * number + int(half)
        status, _ = file.write(bytes([65 + block]) * (1 << 20), offset=block << 20)
        assert status.ok, status.message
        if number == 3:
            print("half done", flush=True)
            time.sleep(1)
    status, _ = file.close()
    assert status.ok, status.message
"""


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
