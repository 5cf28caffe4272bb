#!/usr/bin/env python3
"""Makes the wheel of the Python package from its native part: wheel.py LIBRARY FOLDER. Prints the wheel's path.

It needs only Python's standard library. The same sources, compiler and SOURCE_DATE_EPOCH give the same bytes.
"""

import base64
import hashlib
import os
import platform
import re
import sys
import time
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "python/weir"
# The libraries that manylinux lets a wheel use.
ALLOWED = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libgcc_s.so.1"}
ALLOWED |= {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
# The first glibc that each architecture's wheels may name.
OLDEST = {"x86_64": (2, 5), "aarch64": (2, 17)}
# `e_machine` of the ELF header.
MACHINES = {62: "x86_64", 183: "aarch64"}


class Elf:
    """The parts of a shared library (64 bits, little endian) that say what it needs."""

    def __init__(self, data: bytes):
        if data[:6] != b"\x7fELF\x02\x01":
            raise SystemExit("the library is no ELF file of 64 bits")
        self.data = data
        self.machine = MACHINES.get(self.number(0x12, 2), platform.machine())
        begin, size, count = self.number(0x28, 8), self.number(0x3A, 2), self.number(0x3C, 2)
        fields = [("kind", 4, 4), ("offset", 0x18, 8), ("size", 0x20, 8), ("link", 0x28, 4), ("info", 0x2C, 4)]
        at = [begin + index * size for index in range(count)]
        self.sections = [{name: self.number(start + place, width) for name, place, width in fields} for start in at]

    def number(self, at: int, width: int) -> int:
        return int.from_bytes(self.data[at : at + width], "little")

    def text(self, section: dict, at: int) -> str:
        begin = self.sections[section["link"]]["offset"] + at
        return self.data[begin : self.data.index(b"\0", begin)].decode()

    def needed(self) -> set[str]:
        """The libraries that it loads (`DT_NEEDED`)."""
        [dynamic] = [section for section in self.sections if section["kind"] == 6]
        entries = range(dynamic["offset"], dynamic["offset"] + dynamic["size"], 16)
        return {self.text(dynamic, self.number(at + 8, 8)) for at in entries if self.number(at, 8) == 1}

    def versions(self) -> set[str]:
        """The versions of symbols that it needs (`SHT_GNU_verneed`), such as GLIBC_2.34."""
        found = set()
        for section in (section for section in self.sections if section["kind"] == 0x6FFFFFFE):
            at = section["offset"]
            for _ in range(section["info"]):
                entry = at + self.number(at + 8, 4)
                for _ in range(self.number(at + 2, 2)):
                    found.add(self.text(section, self.number(entry + 8, 4)))
                    entry += self.number(entry + 12, 4)
                at += self.number(at + 12, 4)
        return found


def platform_tag(library: bytes) -> str:
    """The tag that the library itself proves: the newest glibc whose symbols it uses, and no other libraries."""
    elf = Elf(library)
    machine = elf.machine
    glibc = [version for version in elf.versions() if version.startswith("GLIBC_")]
    numbers = [tuple(map(int, version[6:].split("."))) for version in glibc if re.fullmatch(r"GLIBC_[0-9.]+", version)]
    strange = [version for version in elf.versions() if not version.startswith(("GLIBC_", "GCC_"))]
    if elf.needed() - ALLOWED or strange or len(numbers) != len(glibc) or not numbers or machine not in OLDEST:
        return f"linux_{machine}"
    major, minor = max(OLDEST[machine], *(number[:2] for number in numbers))
    return f"manylinux_{major}_{minor}_{machine}"


def digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def main(library: Path, folder: Path) -> None:
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    native = library.read_bytes()
    tag = f"cp39-abi3-{platform_tag(native)}"
    info = f"weir-{version}.dist-info"
    files = {f"weir/{path.name}": path.read_bytes() for path in sorted(SOURCES.iterdir()) if path.suffix in (".py", ".pyi", ".typed")}
    files["weir/py.typed"] = b""
    files["weir/_weir.abi3.so"] = native
    metadata = f"""Metadata-Version: 2.1
Name: weir
Version: {version}
Summary: Files of XRootD servers and of weir, for fsspec, uproot, dask and pandas
License: Apache-2.0
Requires-Python: >=3.9
Requires-Dist: fsspec>=2023.6.0
Description-Content-Type: text/markdown

"""
    files[f"{info}/METADATA"] = metadata.encode() + (ROOT / "docs/how-to/python.md").read_bytes()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: weir ({version})\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    files[f"{info}/entry_points.txt"] = b"[fsspec.specs]\nweir = weir.fs:WeirFileSystem\n"
    record = "".join(f"{name},sha256={digest(data)},{len(data)}\n" for name, data in files.items())
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    moment = time.gmtime(max(int(os.environ["SOURCE_DATE_EPOCH"]), 315532800))[:6]
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"weir-{version}-{tag}.whl"
    new = folder / f".{wheel.name}.{os.getpid()}"
    with zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, moment)
            entry.external_attr = (0o755 if name.endswith(".so") else 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    new.replace(wheel)
    print(wheel)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
