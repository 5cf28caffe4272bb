"""The server side of `gsi` of XRootD 6.2: that of the libraries in the Python package `xrootd`, in a small program compiled here."""

import os
import select
import shutil
import struct
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from authority import Authority
from fakeserver import ERROR, OK, FakeServer, Peer
from harness import ROOT
from raw import AUTH

AUTHMORE, NOT_AUTHORIZED = 4002, 3010
ANSWER_SECONDS = 30


def compiled(folder: Path, sources: Path) -> Path | None:
    """The program; `None` if it cannot be compiled. `sources` has the source of the package, for its headers."""
    spec = find_spec("pyxrootd")
    archives = sorted(sources.glob("xrootd-*.tar.gz"))
    if shutil.which("g++") is None or spec is None or spec.origin is None or not archives:
        return None
    libraries, top = Path(spec.origin).parent, archives[-1].name.removesuffix(".tar.gz")
    subprocess.run(["tar", "xzf", str(archives[-1]), f"{top}/src"], cwd=folder, check=True)
    program = folder / "gsi_server"
    linked = [str(libraries / "libXrdSecgsi-6.so"), "-L", str(libraries), "-lXrdUtils", f"-Wl,-rpath,{libraries}"]
    command = ["g++", "-std=c++17", "-I", str(folder / top / "src"), "-o", str(program), str(ROOT / "tests/gsi_server.cc"), *linked]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        print(done.stderr, file=sys.stderr)
        return None
    return program


class GsiServer(FakeServer):
    """It has one file, for clients that log in by `gsi`. Somebody on the way tells the client that the server has the version `shown`, and
    the server that the client has the version `told`."""

    def __init__(self, program: Path, authority: Authority, shown: int | None = None, told: int | None = None):
        certificate, key = authority.issue("newest")
        options = f"-certdir:{authority.trusted} -cert:{certificate} -key:{key} -crl:0 -gmapopt:10 -vomsat:0"
        quiet = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen([str(program), options], **quiet)
        try:
            kind, offer = self._said()
            assert kind == b"O", (kind, offer)
        except BaseException:
            self._kill()
            raise
        self.own, self.told, self.seen, self.name = offer, told, None, None
        if shown is not None:
            offer = offer.replace(b"v:10700", f"v:{shown}".encode())
        super().__init__(b"content", self._answer, b"&P=gsi," + offer)

    def __exit__(self, *_) -> None:
        super().__exit__()
        self._kill()

    def _kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def _said(self) -> tuple[bytes, bytes]:
        kind = self._exactly(1)
        return kind, self._exactly(int.from_bytes(self._exactly(4), "big"))

    def _exactly(self, count: int) -> bytes:
        got, output = b"", self.process.stdout.fileno()
        while len(got) < count:
            if not select.select([output], [], [], ANSWER_SECONDS)[0]:
                raise ConnectionError(f"the program has said nothing for {ANSWER_SECONDS} s")
            more = os.read(output, count - len(got))
            if not more:
                raise ConnectionError("the program has ended")
            got += more
        return got

    def _answer(self, peer: Peer, code: int, stream: bytes, _parameters: bytes, data: bytes) -> bool:
        if code != AUTH:
            return False
        data = self._with_version(data)
        self.process.stdin.write(struct.pack(">I", len(data)) + data)
        self.process.stdin.flush()
        kind, text = self._said()
        if kind == b"M":
            peer.answer(stream, text, AUTHMORE)
        elif kind == b"D":
            self.name = text
            peer.answer(stream, b"", OK)
        else:
            peer.answer(stream, struct.pack(">i", NOT_AUTHORIZED) + text + b"\0", ERROR)
        return True

    def _with_version(self, frame: bytes) -> bytes:
        """The frame with another version of the client, if it has one, and notes that."""
        at, parts = 8, []
        while (kind := int.from_bytes(frame[at : at + 4], "big")) != 0:
            length = int.from_bytes(frame[at + 4 : at + 8], "big")
            content = frame[at + 8 : at + 8 + length]
            if kind == 3014:
                self.seen = int.from_bytes(content, "big")
                content = content if self.told is None else self.told.to_bytes(4, "big")
            parts.append(struct.pack(">II", kind, length) + content)
            at += 8 + length
        return frame[:8] + b"".join(parts) + frame[at:]
