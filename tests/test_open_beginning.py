"""weir's extension of open: the answer also has the beginning of the file, so that a short read needs no further round trip."""

import struct

import pytest
import raw
from clients import xrdcp
from content import KIB, content, write
from harness import weir
from raw import Raw
from test_damage import flip, places_of

RETSTAT = 0x0400
VERSION, OLDER = 0x520, 0x511


@pytest.fixture(scope="module")
def server(node_or_manager):
    return node_or_manager


def opened(server, path: str, kib: int, options: int = raw.OPEN_READ | RETSTAT, version: int = VERSION) -> tuple[Raw, bytes, bytes]:
    """The connection, the handle, and what is behind it and the eight bytes about compression."""
    connection, target = Raw(server.port), path
    while True:
        assert connection.request(raw.PROTOCOL, struct.pack(">iBB10x", version, 0, 0)).status == raw.OK
        answer = connection.request(raw.OPEN, struct.pack(">HHHB9x", 0o644, options, 0, kib), target.encode())
        if answer.status != raw.REDIRECT:
            break
        port, host, capability = answer.redirect
        connection.socket.close()
        connection, target = Raw(port, host=host), f"{path}?{capability}"
    assert answer.status == raw.OK, answer
    return connection, answer.body[:4], answer.body[12:]


def beginning(server, files: dict[str, bytes], path: str, kib: int, options: int = raw.OPEN_READ | RETSTAT) -> bytes:
    connection, handle, rest = opened(server, path, kib, options)
    attributes, _, bytes_of_file = rest.partition(b"\0")
    assert not options & RETSTAT or len(attributes.split()) in (4, 9)
    # The handle works as any.
    assert connection.read(handle, 0, 10).body == files[path][:10]
    connection.socket.close()
    return bytes_of_file


@pytest.fixture(scope="module")
def files(server, tmp_path_factory):
    """Their contents by name: one that is stored with the namespace's records, and one in a file of its own."""
    folder, sizes = tmp_path_factory.mktemp("sources"), {"/small": 5000, "/large": 3_000_001}
    for name, size in sizes.items():
        xrdcp("-f", write(folder / name[1:], name, size), f"{server.url}/{name}").ok()
    return {name: content(name, size) for name, size in sizes.items()}


def test_the_answer_has_the_beginning(server, files):
    assert beginning(server, files, "/small", 64) == files["/small"]
    assert beginning(server, files, "/small", 2) == files["/small"][: 2 * KIB]
    assert beginning(server, files, "/large", 1) == files["/large"][:KIB]
    assert beginning(server, files, "/large", 64) == files["/large"][: 64 * KIB]
    # Whatever a client asks for.
    assert beginning(server, files, "/large", 255) == files["/large"][: 64 * KIB]


def test_only_a_reader_that_asks_gets_it(server, files):
    assert beginning(server, files, "/small", 0) == b""
    assert beginning(server, files, "/small", 64, raw.OPEN_UPDATE | RETSTAT) == b""
    connection, _, rest = opened(server, "/small", 64, raw.OPEN_READ)
    assert rest == b""
    connection.socket.close()
    # To an older client, these bytes have no meaning.
    connection, _, rest = opened(server, "/small", 64, version=OLDER)
    assert rest.endswith(b"\0") and len(rest) < 100
    connection.socket.close()


def test_an_empty_file_has_none(server, tmp_path):
    xrdcp("-f", write(tmp_path / "empty", "empty", 0), f"{server.url}//empty").ok()
    connection, _, rest = opened(server, "/empty", 64)
    assert rest.endswith(b"\0")
    connection.socket.close()


def test_a_damaged_beginning_is_not_sent(own_node, tmp_path):
    node = own_node()
    source = write(tmp_path / "source", "damaged", 300_000)
    xrdcp(source, f"{node.url}//damaged").ok()
    node.stop()
    [(path, at)] = places_of(node.data, source.read_bytes()[:64])
    flip(path, at + 100)
    node.start()
    connection, handle, rest = opened(node, "/damaged", 64)
    assert rest.endswith(b"\0") and len(rest) < 100, "the attributes alone"
    assert connection.read(handle, 0, 10).status == raw.ERROR
    connection.socket.close()
    assert weir("cat", f"{node.url}//damaged").returncode != 0
