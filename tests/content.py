"""File contents generated from a seed, so that a checker needs no copy, and their checksums."""

import functools
import random
import subprocess
import zlib
from pathlib import Path

KIB, MIB = 1024, 1024 * 1024
# `randbytes` returns less than 256 MiB at a time.
STEP = 128 * MIB


def content(seed: int | str, size: int) -> bytes:
    """Incompressible bytes, the same for the same seed on every machine."""
    source = random.Random(f"content {seed}")
    return b"".join(source.randbytes(min(STEP, size - at)) for at in range(0, size, STEP))


def write(path: Path, seed: int | str, size: int) -> Path:
    path.write_bytes(content(seed, size))
    return path


def adler32(data: bytes) -> str:
    return f"{zlib.adler32(data):08x}"


def crc32c(path: Path) -> str:
    """Computed by XRootD's tool, so that our code does not check itself."""
    return subprocess.run(["xrdcrc32c", str(path)], check=True, capture_output=True, text=True).stdout.split()[0]


@functools.cache
def _crc32c_table() -> tuple[int, ...]:
    def entry(value: int) -> int:
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        return value

    return tuple(map(entry, range(256)))


def page_sum(page: bytes) -> int:
    """The CRC32C of a page on the wire, computed bit by bit from its definition."""
    table, value = _crc32c_table(), 0xFFFFFFFF
    for byte in page:
        value = table[(value ^ byte) & 0xFF] ^ value >> 8
    return value ^ 0xFFFFFFFF
