"""
What the machine itself gives at this moment: round trips over loopback to a process that only answers, and syncs of a small file on the
node's file system. The node's figures are compared with these, so that what else runs on the machine is not taken for drift.
"""

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

ASK, ANSWER = 64, 48  # bytes, about those of a stat


def answer_for_ever() -> None:
    """The process: `ANSWER` bytes for each `ASK`."""

    def serve(peer: socket.socket) -> None:
        waiting = 0
        while got := peer.recv(1 << 16):
            whole, waiting = divmod(waiting + len(got), ASK)
            if whole:
                peer.sendall(bytes(ANSWER) * whole)

    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    while True:
        peer, _ = listener.accept()
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=serve, args=(peer,), daemon=True).start()


class Yardstick:
    def __init__(self, folder: Path):
        self.process = subprocess.Popen([sys.executable, __file__], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
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
        """What the answering process has used: how much work a second of this machine's processors is at the moment."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def connect(self) -> socket.socket:
        peer = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return peer

    @staticmethod
    def echo(peer: socket.socket, count: int = 1) -> None:
        """That many round trips, pipelined."""
        peer.sendall(bytes(ASK) * count)
        left = ANSWER * count
        while left:
            left -= len(peer.recv(left))

    def sync(self) -> None:
        """One page written and synced."""
        self.at = (self.at + 4096) % (1 << 20)
        os.pwrite(self.file, os.urandom(4096), self.at)
        os.fdatasync(self.file)


if __name__ == "__main__":
    answer_for_ever()
