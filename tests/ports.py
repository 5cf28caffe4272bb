"""Ports for servers that tests start. They are below the kernel's ephemeral ports, and each process of a run has its own range. So a
stopped server keeps its port, whatever else runs on the machine."""

import itertools
import os
import re
import socket

FIRST, RANGE, RANGES = 10240, 1400, 16


def _ports():
    # Parallel runs of tests number their workers.
    number = re.fullmatch(r"gw(\d+)", os.environ.get("PYTEST_XDIST_WORKER", ""))
    worker = int(number[1]) + 1 if number else 0
    assert worker < RANGES
    begin = FIRST + worker * RANGE
    return itertools.cycle(range(begin, begin + RANGE))


_NEXT = _ports()


def free_port(host: str = "127.0.0.1") -> int:
    """A free port, which is not given out again for long."""
    for port in itertools.islice(_NEXT, RANGE):
        with socket.socket() as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return port
    raise OSError(f"no port of {host} is free")
