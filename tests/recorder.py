"""Starts `writer.py`, which tests kill while it writes, and `reader.py`, whose server they kill."""

import subprocess
import sys
from pathlib import Path

from clients import STUBBORN, environment


def start_writer(url: str, seed: str, chunk: int, count: int, flag: str = "NEW", offset: int = 0) -> subprocess.Popen:
    command = [sys.executable, str(Path(__file__).parent / "writer.py"), url, seed, str(chunk), str(count), flag, str(offset)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(STUBBORN))


def start_reader(url: str, how: str, offset: int, length: int, patience: dict[str, str] = STUBBORN) -> subprocess.Popen:
    """Returns when it has opened the file and read some of it."""
    command = [sys.executable, str(Path(__file__).parent / "reader.py"), url, how, str(offset), str(length)]
    reader = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(patience))
    assert reader.stdout.readline() == "open\n"
    return reader


def acknowledged(writer: subprocess.Popen, at_least: int) -> int:
    """Waits until the writer has that many bytes acknowledged."""
    got = 0
    while got < at_least:
        line = writer.stdout.readline()
        assert line and line.strip().isdigit(), line
        got = int(line)
    return got
