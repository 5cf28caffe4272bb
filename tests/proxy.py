"""A TCP proxy between client and server that cuts or stalls connections at a given byte, so that tests can interrupt a copy in the
middle."""

import socket
import threading
import time
from collections.abc import Callable

from ports import free_port

UP, DOWN = "up", "down"


class Proxy:
    """Forwards to the server's port. `at(UP, n, action)`: once n bytes have gone up in all, run `action` before any more do."""

    def __init__(self, target_port: int):
        self.target_port = target_port
        self.count = {UP: 0, DOWN: 0}
        self.connections = 0
        self.cuts = 0
        self._triggers: list[tuple[str, int, Callable[[], None]]] = []
        self._words: list[tuple[str, bytes, Callable[[Callable[[], None]], None]]] = []
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()
        self._flow = {UP: threading.Event(), DOWN: threading.Event()}
        self.resume()
        # It must get the same port again after it was away.
        self.port = free_port()
        self._listen()

    def _listen(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=64)
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"root://127.0.0.1:{self.port}/"

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(self, *_) -> None:
        self._listener.close()
        self.resume()
        self.reset()

    def at(self, direction: str, total_bytes: int, action: Callable[[], None]) -> None:
        with self._lock:
            self._triggers.append((direction, total_bytes, action))

    def when(self, direction: str, words: bytes, action: Callable[[Callable[[], None]], None]) -> None:
        """Calls `action` the first time that `words` go this way. Its argument forwards them and all bytes that came with them. Nothing
        more goes this way on that connection until `action` returns."""
        with self._lock:
            self._words.append((direction, words, action))

    def cut(self) -> None:
        """Ends every connection: the client reads its end, the server finds it reset."""
        self.cuts += 1
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for client, server in pairs:
            _end(client)
            _reset(server)

    def reset(self) -> None:
        """Ends every connection with a reset towards both sides. XrdCl 5.5 may take this for a fatal error ("broken pipe")."""
        self.cuts += 1
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                _reset(end)

    def go_away(self) -> None:
        """Ends every connection, and does not listen any more."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def come_back(self) -> None:
        """Listens again, at the same port."""
        self._listen()

    def away(self, seconds: float) -> None:
        """Ends every connection, and listens again only after that time."""
        self.go_away()
        threading.Timer(seconds, self._listen).start()

    def stall(self, *directions: str) -> None:
        """Keeps connections up without forwarding (in one direction, if given) until `resume`."""
        for direction in directions or (UP, DOWN):
            self._flow[direction].clear()

    def resume(self) -> None:
        for flow in self._flow.values():
            flow.set()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            self.connections += 1
            server = self._reach_server()
            if server is None:
                _reset(client)
                continue
            with self._lock:
                self._pairs.append((client, server))
            for source, sink, direction in ((client, server, UP), (server, client, DOWN)):
                threading.Thread(target=self._pump, args=(source, sink, direction), daemon=True).start()

    def _reach_server(self) -> socket.socket | None:
        """Waits for a server that restarts: accepting a connection and then resetting it triggers a bug of XrdCl 5.5."""
        for _ in range(200):
            try:
                server = socket.create_connection(("127.0.0.1", self.target_port), timeout=5)
                server.settimeout(None)
                return server
            except OSError:
                time.sleep(0.05)
        return None

    def _pump(self, source: socket.socket, sink: socket.socket, direction: str) -> None:
        broken = False
        try:
            while data := self._changed(direction, source.recv(65536)):
                self._flow[direction].wait()
                action = self._awaited(direction, data)
                if not broken:
                    try:
                        action(lambda: sink.sendall(data)) if action else sink.sendall(data)
                    except OSError:  # go on reading: a client must be able to finish its write before it reads the end
                        broken = True
                for action in self._due(direction, len(data)):
                    action()
        except OSError:
            pass
        if direction == UP:
            _reset(source)
            _reset(sink)
        else:
            _reset(source)
            _end(sink)

    def _changed(self, _direction: str, data: bytes) -> bytes:
        """What goes on in place of these bytes."""
        return data

    def _awaited(self, direction: str, data: bytes) -> Callable[[Callable[[], None]], None] | None:
        with self._lock:
            for awaited in self._words:
                if awaited[0] == direction and awaited[1] in data:
                    self._words.remove(awaited)
                    return awaited[2]
        return None

    def _due(self, direction: str, more: int) -> list[Callable[[], None]]:
        with self._lock:
            self.count[direction] += more
            due = [t for t in self._triggers if t[0] == direction and self.count[direction] >= t[1]]
            self._triggers = [t for t in self._triggers if t not in due]
        return [action for _, _, action in due]


def _end(client: socket.socket) -> None:
    """The client reads an end; what it still sends is dropped."""
    try:
        client.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def _reset(end: socket.socket) -> None:
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    end.close()
