"""`weir demo`: its story must be true; it reports a failure, and leaves nothing behind."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from harness import WEIR_BIN

PATIENCE_SECONDS = 180
STREAMS = 6


class Demo:
    """A run of the demo, in a folder."""

    def __init__(self, within: Path, **environment: str):
        self.within = within
        within.mkdir()
        self.out = within.parent / f"{within.name}.out"
        with open(self.out, "wb") as out:
            command = [WEIR_BIN, "demo", "--within", within, "--files", within]
            self.process = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, **environment})

    def text(self) -> str:
        """Its output, with wrapped lines joined."""
        return " ".join(self.out.read_text().split())

    def wait_for(self, words: str) -> None:
        end = time.monotonic() + PATIENCE_SECONDS
        while words not in self.text():
            assert self.process.poll() is None and time.monotonic() < end, self.out.read_text()
            time.sleep(0.02)

    def processes(self) -> dict[int, list[str]]:
        """Its running processes, by their command lines: the nodes are not its children."""
        found = {}
        for entry in Path("/proc").iterdir():
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0") if entry.name.isdigit() else []
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1]) if words else 0
            except OSError:
                continue
            if words and int(entry.name) != self.process.pid:
                if parent == self.process.pid or any(str(self.within) in word for word in words):
                    found[int(entry.name)] = words
        return found

    def recorder(self, stream: str) -> int:
        return next(pid for pid, words in self.processes().items() if "cp" in words and any(word.endswith(f"/{stream}") for word in words))

    def end(self) -> int:
        return self.process.wait(PATIENCE_SECONDS)

    def left_nothing(self) -> bool:
        return not self.processes() and not list(self.within.iterdir())


@pytest.fixture
def demo(tmp_path):
    started = []

    def start(**environment: str) -> Demo:
        started.append(Demo(tmp_path / "place", **environment))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.send_signal(signal.SIGTERM)
            one.end()


def test_all_is_as_promised_also_without_the_stock_client(demo, tmp_path):
    run = demo(PATH=str(tmp_path / "no programs"))
    assert run.end() == 0, run.out.read_text()
    text = run.text()
    assert "xrdcp is not installed" in text and "KILLED disk" in text and "Everything is as promised." in text
    assert text.count("all 6 streams are complete; read back, every byte is as it was recorded") == 2
    assert "12 of 12 replicas are there" in text
    # The lease of the killed server is no secret while the reader waits for it.
    waits = re.search(
        r"KILLED (disk\d) .* the reader waits for the lease of (disk\d) to end, at most 5 s .* the reader goes on after", text
    )
    assert waits and waits[1] == waits[2], text
    assert all(len(line) <= 80 for line in run.out.read_text().splitlines()[1:]), text
    # The table: two replicas of each, on both sites.
    rows = re.findall(r"stream\d 40\.0 MiB \S+ MiB/s \S+ \S+ 2, disk(\d) disk(\d)", text)
    assert len(rows) == STREAMS and all((int(one) - int(other)) % 2 == 1 for one, other in rows), text
    assert run.left_nothing()


def test_a_stream_that_is_not_whole_is_noticed(demo):
    """One of the recorders is killed: its stream has no end."""
    run = demo()
    run.wait_for("KILLED disk")
    os.kill(run.recorder("stream4"), signal.SIGKILL)
    assert run.end() == 1
    assert "stream4 is not whole" in run.text() and "Everything is as promised" not in run.text()
    assert run.left_nothing()


@pytest.mark.parametrize("ends", [signal.SIGINT, signal.SIGTERM])
def test_what_it_started_ends_with_it(demo, ends):
    run = demo()
    run.wait_for("handed over")
    assert len(run.processes()) >= STREAMS + 5
    run.process.send_signal(ends)
    assert run.end() == 6
    assert "Stopped before the end" in run.text()
    assert run.left_nothing()
