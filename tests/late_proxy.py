"""A proxy for what is far away: answers arrive late, however many are under way."""

import socket
import threading
import time
from queue import SimpleQueue

from proxy import UP, Proxy


class Late(Proxy):
    """A way to a server on which each answer arrives later by `seconds`, however many are under way."""

    def __init__(self, port: int, seconds: float):
        self.seconds = seconds
        super().__init__(port)

    def _pump(self, source: socket.socket, sink: socket.socket, direction: str) -> None:
        sink.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if direction == UP:
            return super()._pump(source, sink, direction)
        waiting: SimpleQueue[tuple[float, bytes]] = SimpleQueue()

        def receive() -> None:
            data = b"more"
            while data:
                try:
                    data = source.recv(1 << 16)
                except OSError:
                    data = b""
                waiting.put((time.monotonic() + self.seconds, data))

        threading.Thread(target=receive, daemon=True).start()
        try:
            while True:
                due, data = waiting.get()
                time.sleep(max(0.0, due - time.monotonic()))
                if not data:
                    return sink.shutdown(socket.SHUT_WR)
                sink.sendall(data)
        except OSError:
            return None
