"""A reader for tests to disturb, as a separate process: `reader.py URL HOW OFFSET LENGTH`. It opens the file, reads its first bytes,
reports that, and waits for a line on stdin. Then it reads LENGTH bytes at OFFSET and prints their CRC32, or the error. HOW: by XrdCl's
Python binding, opened to `read` or with its `default` flags; by `uproot` as it opens by itself, or by uproot's own source for XRootD
(`uproot-xrootd`)."""

import os
import sys
import zlib

import uproot
from XRootD import client
from XRootD.client.flags import OpenFlags


def by_binding(url: str, flags: tuple[OpenFlags, ...]):
    file = client.File()
    status, _ = file.open(url, *flags)
    assert status.ok, status.message

    def read(offset: int, length: int) -> bytes:
        status, data = file.read(offset, length)
        assert status.ok, status.message
        return data

    return read


def by_uproot(url: str, **options):
    source = uproot.open(url, **options).file.source

    def read(offset: int, length: int) -> bytes:
        return bytes(source.chunk(offset, offset + length).raw_data)

    return read


def main() -> None:
    url, how, offset, length = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    read = {
        "read": lambda: by_binding(url, (OpenFlags.READ,)),
        "default": lambda: by_binding(url, ()),
        "uproot": lambda: by_uproot(url),
        "uproot-xrootd": lambda: by_uproot(url, handler=uproot.XRootDSource),
    }[how]()
    read(0, 100)
    print("open", flush=True)
    sys.stdin.readline()
    try:
        print(f"{zlib.crc32(read(offset, length)):08x}", flush=True)
    except Exception as why:
        print(f"not read: {why}", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
