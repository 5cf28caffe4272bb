"""The present speed of the machine itself: round trips over loopback to a process that only answers, and syncs of a small file on the
node's file system. Comparing the node's figures with these keeps other load of the machine from looking like drift.

Questions and answers are frames like the node's. Each question has the length of its answer, and the client reads the answers one by one as
it reads the node's. So both figures contain the same costs of the client and of two processes that share the processors."""

import os
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

from raw import OK, Raw

HERE = Path(__file__).resolve().parent.parent
ASK = 64  # bytes, about those of a stat
ANSWER, ANSWER_MAX = 40, 1 << 20  # bytes of an answer's body, about those of a stat


def answer_for_ever() -> None:
    """The answering process."""

    def serve(peer: socket.socket) -> None:
        asked = b""
        while got := peer.recv(1 << 16):
            asked += got
            whole = len(asked) - len(asked) % ASK
            for at in range(0, whole, ASK):
                stream, length = struct.unpack_from(">2s2xI", asked, at)
                length = min(length, ANSWER_MAX)
                peer.sendall(struct.pack(">2sHi", stream, OK, length) + bytes(length))
            asked = asked[whole:]

    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    while True:
        peer, _ = listener.accept()
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=serve, args=(peer,), daemon=True).start()


class Yardstick:
    def __init__(self, folder: Path):
        command = [sys.executable, "-m", "soak.yardstick"]
        self.process = subprocess.Popen(command, cwd=HERE, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())
        self.path = folder / "yardstick"
        self.path.write_bytes(bytes(1 << 20))
        self.file = os.open(self.path, os.O_WRONLY)
        os.fsync(self.file)
        self.at = 0

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.file)

    def cpu_seconds(self) -> float:
        """CPU time of the answering process: it shows how much work this machine's processors do in a second at present."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def connect(self) -> Raw:
        return Raw(self.port, login=False, timeout=60)

    @staticmethod
    def echo(peer: Raw, count: int = 1, length: int = ANSWER) -> None:
        """That many round trips, pipelined."""
        peer.socket.sendall(struct.pack(">2s2xI", b"\0\1", length).ljust(ASK, b"\0") * count)
        for _ in range(count):
            answer = peer.receive()
            assert answer.status == OK and len(answer.body) == length, answer

    def sync(self) -> None:
        """One page written and synced."""
        self.at = (self.at + 4096) % (1 << 20)
        os.pwrite(self.file, os.urandom(4096), self.at)
        os.fdatasync(self.file)


if __name__ == "__main__":
    answer_for_ever()
