"""A writer for tests to kill, as a separate process: `writer.py URL SEED CHUNK COUNT [FLAG [OFFSET]]`. It writes COUNT chunks in order, and
prints after each how many bytes are acknowledged. Then it waits for a line on stdin, and closes."""

import os
import sys

from content import content
from XRootD import client
from XRootD.client.flags import AccessMode, OpenFlags


def main() -> None:
    url, seed, chunk, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    # Open for update, as xrdcp does, so that XrdCl can reopen the file after a lost connection.
    flag = getattr(OpenFlags, sys.argv[5] if len(sys.argv) > 5 else "NEW") | OpenFlags.UPDATE
    start = int(sys.argv[6]) if len(sys.argv) > 6 else 0
    data = content(seed, chunk * count)
    file = client.File()
    status, _ = file.open(url, flag, AccessMode.UR | AccessMode.UW)
    if not status.ok:
        print(f"refused {status.errno} {status.message}", flush=True)
        os._exit(2)
    for number in range(count):
        status, _ = file.write(data[number * chunk : (number + 1) * chunk], start + number * chunk)
        if not status.ok:
            print(f"failed {status.errno} {status.message}", flush=True)
            os._exit(3)
        print((number + 1) * chunk, flush=True)
    sys.stdin.readline()
    status, _ = file.close()
    print("closed" if status.ok else f"failed {status.errno} {status.message}", flush=True)
    os._exit(0 if status.ok else 4)


if __name__ == "__main__":
    main()
