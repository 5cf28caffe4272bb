"""Shared secrets: keytabs that `xrdsssadmin` makes, and credentials of `sss` that no stock client would send.

The cipher is that of OpenSSL, as in the stock plug-in. Layouts: XrdSecsssRR.hh of XRootD 5."""

import ctypes
import os
import re
import struct
import subprocess
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

EPOCH = 1222183880
NAME, GROUPS, RANDOM, HOST = 0x01, 0x04, 0x07, 0x20
SEND_LOGIN = 1  # the client wants the server to show who it is


def add_key(keytab: Path, name: str, user: str = "nobody", group: str = "nogroup", length: int = 32, days: int | None = None) -> None:
    command = ["xrdsssadmin", "-k", name, "-u", user, "-g", group, "-l", str(length)]
    command += ["-x", str(days)] if days is not None else []
    subprocess.run([*command, "add", str(keytab)], input="y\n", capture_output=True, text=True, check=True)


@dataclass
class Key:
    """A line of a keytab."""

    line: str

    def part(self, tag: str) -> str:
        return re.search(rf" {tag}:(\S+)", self.line)[1]

    @property
    def number(self) -> int:
        return int(self.part("N"))

    @property
    def secret(self) -> bytes:
        return bytes.fromhex(self.part("k"))

    def alone(self, path: Path) -> Path:
        """A keytab with this key only, as its holder has it."""
        return write_keytab(path, [self])


def keys(keytab: Path) -> dict[str, Key]:
    return {(key := Key(line)).part("n"): key for line in keytab.read_text().splitlines() if line.strip()}


def write_keytab(path: Path, wanted) -> Path:
    path.write_text("".join(f"{key.line}\n" for key in wanted))
    path.chmod(0o600)
    return path


class Blowfish:
    """Blowfish in the mode CFB64, by OpenSSL."""

    def __init__(self):
        self.lib = lib = ctypes.CDLL("libcrypto.so.3")
        for name in ("OSSL_PROVIDER_load", "EVP_CIPHER_CTX_new", "EVP_bf_cfb64"):
            getattr(lib, name).restype = ctypes.c_void_p
        for provider in (b"default", b"legacy"):
            assert lib.OSSL_PROVIDER_load(None, provider)

    def encrypt(self, key: bytes, data: bytes) -> bytes:
        lib, out, length = self.lib, ctypes.create_string_buffer(len(data) + 16), ctypes.c_int()
        context = ctypes.c_void_p(lib.EVP_CIPHER_CTX_new())
        cipher = ctypes.c_void_p(lib.EVP_bf_cfb64())
        assert lib.EVP_EncryptInit_ex(context, cipher, None, None, None) == 1
        assert lib.EVP_CIPHER_CTX_set_key_length(context, len(key)) == 1
        assert lib.EVP_EncryptInit_ex(context, None, None, key, bytes(8)) == 1
        assert lib.EVP_EncryptUpdate(context, out, ctypes.byref(length), data, len(data)) == 1
        lib.EVP_CIPHER_CTX_free(context)
        return out.raw[: length.value]


BLOWFISH = Blowfish()


def item(kind: int, text: bytes) -> bytes:
    return struct.pack(">BH", kind, len(text) + 1) + text + b"\0"


def credential(
    key: Key,
    user: str = "ana",
    groups: str | None = None,
    address: str | None = "[::ffff:127.0.0.1]",
    made: float = 0,
    number: int | None = None,
    name: str | None = None,
    options: int = 0,
    more: bytes = b"",
    padding: bytes = bytes(3),
) -> bytes:
    """`made`: in seconds from now."""
    items = item(HOST, address.encode()) if address else b""
    items += item(NAME, user.encode()) + (item(GROUPS, groups.encode()) if groups else b"") + more + item(RANDOM, os.urandom(40))
    data = os.urandom(32) + struct.pack(">i3sB", int(time.time() + made) - EPOCH, padding, options) + items
    sealed = BLOWFISH.encrypt(key.secret, data + struct.pack(">I", zlib.crc32(data)))
    called = (key.part("n") if name is None else name).encode()
    called += bytes(8 - len(called) % 8)
    return b"sss\0\0\0" + bytes([len(called)]) + b"0" + struct.pack(">q", key.number if number is None else number) + called + sealed
