"""The server is killed with SIGKILL and restarted, over and over, while several clients create, overwrite (as `xrdcp -f` does) and remove
files. Every acknowledged file exists byte for byte, and no file mixes old and new. A further test shows that the check notices a loss."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from clients import Xrdfs, environment, xrdcp
from content import content
from killcheck import histories, problems
from killwriter import seed

pytestmark = pytest.mark.managers_ok

HERE = Path(__file__).parent
KILLS = int(os.environ.get("WEIR_KILL_ROUNDS", "12"))
SEED = int(os.environ.get("WEIR_KILL_SEED", "0")) or random.SystemRandom().randrange(1, 2**32)
# How the clients treat a dead server: they retry soon, and for long enough.
PATIENCE = {"XRD_CONNECTIONWINDOW": "1", "XRD_CONNECTIONRETRY": "20", "XRD_STREAMERRORWINDOW": "1", "XRD_TIMEOUTRESOLUTION": "1"}
GRACE_SECONDS = 2


def start_writers(url: str, home: Path) -> tuple[list[subprocess.Popen], list[Path]]:
    writers, logs = [], []
    for who, how in enumerate(["bindings", "bindings", "bindings", "xrdcp", "xrdcp"]):
        log = home / f"log-{who}"
        command = [sys.executable, str(HERE / "killwriter.py"), url, f"w{who}", str(log), how]
        writers.append(subprocess.Popen(command, env=environment(PATIENCE)))
        logs.append(log)
    return writers, logs


def end_writers(writers: list[subprocess.Popen], logs: list[Path]) -> None:
    """A client that hangs in its library is killed: its last attempt stays open in the log, and promises nothing."""
    for log in logs:
        log.with_name(f"{log.name}.stop").touch()
    end = time.monotonic() + 60
    for writer in writers:
        try:
            writer.wait(max(1.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            writer.kill()
            writer.wait()


@pytest.fixture(scope="module")
def aftermath(kind, base, request):
    """A server after the loop, and the writers' logs."""
    home = base / "kill-loop"
    home.mkdir()
    print(f"kill loop: WEIR_KILL_SEED={SEED} WEIR_KILL_ROUNDS={KILLS}")
    pick = random.Random(SEED)
    server = kind(home / "server", flags=("--grace-seconds", str(GRACE_SECONDS)) if kind.kind == "weir" else ())
    server.start()
    writers, logs = start_writers(server.url, home)
    try:
        for _ in range(KILLS):
            time.sleep(pick.uniform(0.2, 1.8))
            server.kill()
            server.fsck()  # interrupted operations are no damage
            server.start()
        time.sleep(3)  # the clients come back
    finally:
        end_writers(writers, logs)
    time.sleep(GRACE_SECONDS + 3)  # every detached file is now complete, interrupted or dropped
    yield server, logs
    if server.alive():
        server.kill()


@pytest.mark.peer_ok
@pytest.mark.timeout(900)
def test_everything_acknowledged_is_there(aftermath):
    server, logs = aftermath
    found, counts = problems(server.url, logs)
    print(f"kill loop: seed {SEED}, {KILLS} kills, {dict(counts)}")
    assert counts["acknowledged"] > 5 * KILLS, "too little was going on to prove anything"
    assert counts["checked"] > 30
    assert not found, "\n".join(found)
    server.restart()
    found, _ = problems(server.url, logs)
    assert not found, "after a clean restart:\n" + "\n".join(found)


def acknowledged_files(logs: list[Path]) -> list[tuple[str, int, int]]:
    names, _ = histories(logs)
    return [(name, h.attempt, h.size) for name, h in names.items() if h.acknowledged and h.size and h.size > 5000 and not h.later]


def broken(server, logs: list[Path]) -> set[str]:
    """The names whose promise is broken."""
    return {line.split(":")[0] for line in problems(server.url, logs)[0]}


@pytest.mark.peer_ok
def test_the_check_notices_a_lost_file(aftermath):
    server, logs = aftermath
    before = broken(server, logs)
    name = next(name for name, _, _ in acknowledged_files(logs) if name not in before)
    saved = server.home / "saved"
    xrdcp("-f", f"{server.url}/{name}", saved).ok()
    Xrdfs(server.url)("rm", f"/{name}").ok()
    assert broken(server, logs) == before | {name}
    xrdcp(saved, f"{server.url}/{name}").ok()
    assert broken(server, logs) == before


@pytest.mark.peer_ok
@pytest.mark.parametrize("damage", ["one byte", "short", "old and new", "older version"])
def test_the_check_notices_changed_content(aftermath, damage, tmp_path):
    server, logs = aftermath
    before = broken(server, logs)
    name, attempt, size = next(entry for entry in acknowledged_files(logs) if entry[1] > 1 and entry[0] not in before)
    data = content(seed(name, attempt), size)
    older = content(seed(name, attempt - 1), size)
    bad = {
        "one byte": data[:100] + bytes([data[100] ^ 1]) + data[101:],
        "short": data[:-1],
        "old and new": data[: size // 2] + older[size // 2 :],
        "older version": older,
    }[damage]
    for version, expected in ((bad, before | {name}), (data, before)):
        (tmp_path / "version").write_bytes(version)
        xrdcp("-f", tmp_path / "version", f"{server.url}/{name}").ok()
        assert broken(server, logs) == expected


def test_fsck_finds_nothing_after_it(aftermath):
    server, _ = aftermath
    assert server.stop()[0] == 0
    server.fsck()
