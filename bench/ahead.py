"""Cold reads with a pause after each request, as a program makes them that works on what it has read: strided, of the same columns again
and again, and at random places. The figures are the times that the program waits."""

import random
import struct
import time
from collections.abc import Callable
from pathlib import Path

import machine
import measure
import raw
import rows
from harness import Server

PAUSE_SECONDS = 0.003
MIB = 1 << 20
LENGTH = 1 << 30
READ, SEGMENT, SEGMENTS = 65536, 12000, 40
Request = list[tuple[int, int]]  # offsets and lengths; one of them is a plain read


def strided() -> list[Request]:
    """64 KiB of each MiB."""
    return [[(number * MIB + 12345, READ)] for number in range(300)]


def clusters() -> list[Request]:
    """The same 40 segments of each 8 MiB."""
    return [[(number * 8 * MIB + column * 150_000, SEGMENT) for column in range(SEGMENTS)] for number in range(100)]


def columns() -> list[Request]:
    """40 columns, each of which moves by another amount that varies a little."""
    vary = random.Random(7)
    places = [column * 20 * MIB for column in range(SEGMENTS)]
    steps = [60_000 + vary.randrange(250_000) for _ in places]
    requests = []
    for _ in range(60):
        requests.append([(place, SEGMENT + vary.randrange(1000)) for place in places])
        places = [place + step + vary.randrange(4000) - 2000 for place, step in zip(places, steps, strict=True)]
    return requests


def in_order() -> list[Request]:
    return [[(number * READ, READ)] for number in range(300)]


def anywhere() -> list[Request]:
    pick = random.Random(8)
    return [[(pick.randrange(LENGTH - READ), READ)] for _ in range(300)]


def vectors_anywhere() -> list[Request]:
    pick = random.Random(9)
    return [sorted((pick.randrange(LENGTH - SEGMENT), SEGMENT) for _ in range(SEGMENTS)) for _ in range(60)]


WAYS: list[Callable[[], list[Request]]] = [strided, clusters, columns, in_order, anywhere, vectors_anywhere]


def waited(server: Server, requests: list[Request]) -> float:
    """Seconds that one client waits for its answers."""
    seconds = 0.0
    with raw.Raw(server.port, timeout=60) as me:
        handle = me.open("/ahead", raw.OPEN_READ)
        for request in requests:
            begin = time.perf_counter()
            if len(request) == 1:
                answer = me.read(handle, *request[0])
            else:
                answer = me.request(raw.READV, b"", b"".join(struct.pack(">4siq", handle, length, at) for at, length in request))
            seconds += time.perf_counter() - begin
            if answer.status != raw.OK:
                raise SystemExit(f"failed: {answer}")
            time.sleep(PAUSE_SECONDS)
    return seconds


def cold(servers: dict[str, Server], runs: int, source: Path, figures: rows.Figures) -> None:
    for server in servers.values():
        measure.run(["xrdcp", "-s", "-f", str(source), f"{server.url}/ahead"])
    for number in range(runs):
        for way in WAYS:
            for system, server in measure.alternate(servers, number):
                machine.drop_caches(server)
                requests = way()
                took = waited(server, requests) / len(requests) * 1000
                figures.add(f"ahead-{way.__name__.replace('_', '-')} [ms]", system, took)
                print(f"run {number} {system:8} {way.__name__:18} {took:8.3f} ms a request", flush=True)
