"""After a failed write or sync nobody knows which acknowledged, unsynced bytes the disk has, and a later sync proves nothing. Their writer
is refused when it comes back, even if the machine was not restarted. A kill alone does no harm."""

import os
import re
import shutil
import subprocess
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import raw
from content import KIB, MIB, content
from harness import until
from loopfs import loop_file_system, why_not
from raw import Raw

DISK_FAILED = 8
FILE = "/file"
# To the server, raw clients are one process, on whatever connection.
GRACE = ("--grace-seconds", "60")


@contextmanager
def failing_syncs(pid: int, paths: list[Path]):
    """The system fails each fdatasync of these files with EIO."""
    if shutil.which("strace") is None:
        pytest.skip("no strace here")
    only = [word for path in paths for word in ("-P", str(path))]
    command = ["strace", "-f", "-p", str(pid), "-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO", *only]
    tracer = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    line = tracer.stderr.readline()
    if "attached" not in line:
        tracer.wait()
        pytest.skip(f"strace cannot attach: {line}")
    os.set_blocking(tracer.stderr.fileno(), False)
    try:
        yield
    finally:
        if tracer.poll() is None:
            tracer.terminate()
        tracer.wait()


def begin(server, size: int) -> tuple[Raw, bytes]:
    """An open write with that many bytes acknowledged."""
    client = Raw(server.port)
    handle = client.open(FILE, raw.OPEN_NEW | raw.OPEN_UPDATE)
    assert client.write(handle, 0, content("body", size)).status == raw.OK
    return client, handle


def mark(server) -> list[str]:
    return [path.name for path in (server.data / "journal").iterdir() if re.fullmatch(r"(sound|failed)-\d+", path.name)]


def refused_and_written_again(server) -> None:
    """Its client learns that bytes may be lost, and writes the file again."""
    assert "a write or a sync had failed before the node stopped" in server.log_text()
    with Raw(server.port) as client:
        answer = client.request(raw.OPEN, (0o644).to_bytes(2, "big") + raw.OPEN_UPDATE.to_bytes(2, "big"), FILE.encode())
        assert answer.status == raw.ERROR and "its disk has failed" in answer.text, answer
        handle = client.open(FILE, raw.OPEN_DELETE | raw.OPEN_UPDATE)
        assert client.write(handle, 0, b"again").status == raw.OK
        assert client.close(handle).status == raw.OK
        assert client.read(client.open(FILE), 0, 100).body == b"again"


def goes_on_after_a_kill(server, path: str) -> None:
    with Raw(server.port) as client:
        handle = client.open(path, raw.OPEN_NEW | raw.OPEN_UPDATE)
        assert client.write(handle, 0, content("goes on", 300 * KIB)).status == raw.OK
        server.kill()
    marked = mark(server)
    server.start()
    assert mark(server) == marked
    with Raw(server.port) as client:
        handle = client.open(path, raw.OPEN_UPDATE)
        assert client.write(handle, 300 * KIB, b"end").status == raw.OK
        assert client.close(handle).status == raw.OK
        assert client.read(client.open(path), 0, MIB).body == content("goes on", 300 * KIB) + b"end"


def test_a_kill_alone_does_no_harm(own_node):
    server = own_node(*GRACE)
    assert mark(server) == ["sound-0"]
    goes_on_after_a_kill(server, "/one")
    goes_on_after_a_kill(server, "/two")
    assert mark(server) == ["sound-0"]


def test_after_a_failed_sync_of_the_log(own_node):
    server = own_node(*GRACE)
    client, handle = begin(server, 20 * KIB)
    with client, failing_syncs(server.pid, list((server.data / "journal").glob("*.wseg"))):
        client.write(handle, 20 * KIB, b"more, and acknowledged or not")
        until(lambda: not server.alive(), 20)
    assert server.process.returncode == DISK_FAILED
    assert mark(server) == ["failed-0"]
    server.start()
    assert mark(server) == ["sound-1"]
    refused_and_written_again(server)
    # It is told once; writers that began later are not affected.
    goes_on_after_a_kill(server, "/later")


def test_after_a_failed_sync_of_a_content(own_node):
    server = own_node(*GRACE)
    client, handle = begin(server, 300 * KIB)
    contents = until(lambda: [path for path in (server.data / "store/objects").rglob("*") if path.is_file()], 20)
    with client, failing_syncs(server.pid, contents):
        client.write(handle, 300 * KIB, content("more", 200 * KIB))
        until(lambda: mark(server) == ["failed-0"], 20)
        # The mark exists before the writer hears of it.
        until(lambda: client.write(handle, 500 * KIB, b"x").status == raw.ERROR, 10)
    assert server.alive(), "one content's trouble is not the node's"
    server.kill()
    server.start()
    refused_and_written_again(server)
    goes_on_after_a_kill(server, "/later")


def extents(path: Path) -> list[tuple[int, int, int]]:
    """The extents of a file: offset in the file, offset on the device, length; in bytes."""
    shown = subprocess.run(["filefrag", "-v", "-b1", path], check=True, capture_output=True, text=True).stdout
    found = re.findall(r"^\s*\d+:\s+(\d+)\.\.\s*(\d+):\s+(\d+)\.\.", shown, re.MULTILINE)
    return [(int(first), int(place), int(last) + 1 - int(first)) for first, last, place in found]


@contextmanager
def small_memory(folder: Path, size_bytes: int):
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_after_a_failed_write_of_the_log(own_node, base):
    """The device is an image with a hole under an unused part of the journal, and without room to fill holes."""
    with (
        small_memory(base / "memory-of-failed-write", 320 * MIB) as memory,
        loop_file_system(memory / "loop", "ext4", 256 * MIB) as disk,
    ):
        disk.chmod(0o777)
        (config := memory / "weir.toml").write_text('[space]\nballast = "16MiB"\n[journal]\nsegment_size = "16MiB"\n')
        server = own_node(*GRACE, "--config", str(config), data=disk / "data")
        try:
            client, _ = begin(server, 20 * KIB)
            until(lambda: len(list((server.data / "journal").glob("*.wseg"))) >= 3, 20)
            time.sleep(1)  # fills the last one, and syncs it
            subprocess.run(["sync", "-f", str(disk)], check=True)
            segment = min((server.data / "journal").glob("*.wseg"))
            subprocess.run(["fallocate", "--length", str(256 * MIB), str(memory / "loop/image")], check=True)
            used = len(segment.read_bytes().rstrip(b"\0"))
            beyond = used + 256 * KIB
            for first, place, length in extents(segment):
                start = max(first, beyond)
                if start < first + length:
                    at, rest = place + start - first, first + length - start
                    hole = ["fallocate", "--punch-hole", "--offset", str(at), "--length", str(rest), str(memory / "loop/image")]
                    subprocess.run(hole, check=True)
            with open(memory / "filler", "wb") as filler, pytest.raises(OSError, match="No space"):
                while True:
                    filler.write(bytes(MIB))
                    filler.flush()
            with client:
                # Small files go through the journal.
                with suppress(raw.Closed, AssertionError):
                    for number in range(64):
                        small = client.open(f"/small-{number}", raw.OPEN_NEW | raw.OPEN_UPDATE)
                        assert client.write(small, 0, bytes(16 * KIB)).status == raw.OK
                until(lambda: not server.alive(), 20)
            assert server.process.returncode == DISK_FAILED
            assert mark(server) == ["failed-0"]
            (memory / "filler").unlink()
            server.start()
            refused_and_written_again(server)
        finally:
            if server.alive():
                server.kill()
