"""Opens a file for update by XrdCl's Python binding and tells what that lets it do: `updater.py URL`; with `new`, a file that it makes. The
output is JSON."""

import json
import os
import sys

from XRootD import client
from XRootD.client.flags import OpenFlags


def main() -> None:
    file = client.File()
    status, _ = file.open(sys.argv[1], OpenFlags.NEW if sys.argv[2:] else OpenFlags.UPDATE)
    told = {"open": status.message if not status.ok else "done"}
    if status.ok:
        for name, act in {
            "write": lambda: file.write(b"0123456789ab" if sys.argv[2:] else b"new", 0 if sys.argv[2:] else 5)[0],
            "read": lambda: file.read(0, 10),
            "readv": lambda: file.vector_read([(0, 4), (8, 4)]),
            "attributes": file.list_xattr,
            "close": lambda: file.close()[0],
        }.items():
            done = act()
            status, data = done if isinstance(done, tuple) else (done, None)
            told[name] = "done" if status.ok else status.message
            if name == "read" and status.ok:
                told["data"] = bytes(data).decode("latin-1")
    print(json.dumps(told))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
