"""One client of the kill -9 loop: `killwriter.py URL ID LOG HOW`. HOW is `bindings` or `xrdcp`. It ends when there is a file LOG.stop.

It creates, overwrites and removes files whose content follows from (name, attempt). It logs each attempt before the attempt begins, and
each acknowledgement after it arrives, durably before it continues. So everything that the log calls acknowledged must exist afterwards."""

import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from content import KIB, MIB, content

NAMES = 12
SIZES = [0, 1, 100, 4096, 5000, 60_000, 64 * KIB, 70_000, 300_000, MIB + 1, 3 * MIB]
CHUNK = 256 * KIB


def seed(name: str, attempt: int) -> str:
    return f"{name} {attempt}"


class Log:
    def __init__(self, path: str):
        self.file = open(path, "a")

    def line(self, *fields) -> None:
        self.file.write(" ".join(map(str, fields)) + "\n")
        self.file.flush()
        os.fsync(self.file.fileno())


def put_by_bindings(url: str, data: bytes, over: bool) -> bool:
    from XRootD import client
    from XRootD.client.flags import AccessMode, OpenFlags

    file = client.File()
    # Open for update, as xrdcp does: otherwise XrdCl reopens the file for reading after a lost connection.
    flags = (OpenFlags.DELETE if over else OpenFlags.NEW) | OpenFlags.UPDATE
    status, _ = file.open(f"{url}?oss.asize={len(data)}", flags, AccessMode.UR | AccessMode.UW)
    if not status.ok:
        return False
    good = all(file.write(data[at : at + CHUNK], at)[0].ok for at in range(0, len(data), CHUNK))
    return file.close()[0].ok and good


def put_by_xrdcp(url: str, data: bytes, over: bool) -> bool:
    with tempfile.NamedTemporaryFile() as source:
        source.write(data)
        source.flush()
        command = ["xrdcp", "--nopbar", *(["-f"] if over else []), source.name, url]
        return subprocess.run(command, capture_output=True).returncode == 0


def remove(url: str, name: str) -> bool:
    from XRootD import client

    return client.FileSystem(url).rm("/" + name)[0].ok


def main() -> None:
    url, who, log_path, how = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4]
    log, pick = Log(log_path), random.Random(f"writer {who}")
    put = put_by_xrdcp if how == "xrdcp" else put_by_bindings
    exists: set[str] = set()
    attempt = 0
    while not os.path.exists(log_path + ".stop"):
        attempt += 1
        name = f"{who}-{pick.randrange(NAMES)}"
        if name in exists and pick.random() < 0.15:
            log.line("remove", name, attempt)
            done = remove(url, name)
            if done:
                exists.discard(name)
        else:
            size = pick.choice(SIZES)
            log.line("put", name, attempt, size)
            # After a failure nobody knows whether the name exists: overwriting works in both cases.
            done = put(f"{url}{name}" if url.endswith("//") else f"{url}/{name}", content(seed(name, attempt), size), name in exists)
            exists.add(name)
        log.line("ok" if done else "failed", name, attempt)
        if not done:
            time.sleep(0.1)
    log.line("end")
    log.file.close()
    Path(log_path + ".done").touch()
    os._exit(0)  # the client library's threads may still be waiting for a dead server


if __name__ == "__main__":
    main()
