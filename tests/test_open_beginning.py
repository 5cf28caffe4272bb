"""weir's extension of open: the answer also has the beginning of the file, so that a short read needs no further round trip."""

import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import raw
from clients import xrdcp
from cluster import Cluster
from content import KIB, MIB, content, write
from harness import WEIR_BIN, Weir, weir
from proxy import DOWN, Proxy
from raw import Raw
from test_damage import flip, places_of
from test_metrics import named, samples

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


# What weir's own client makes of it.

BEGINNING = 64 * KIB
SIZES = [0, 1, BEGINNING - 1, BEGINNING, BEGINNING + 1, 9 * MIB + 7]
# Long enough for several connections.
LARGE = 33 * MIB + 7


class Counted:
    """A node, or a cluster with its manager, that counts the requests of its clients."""

    def __init__(self, url: str, nodes: list):
        self.url, self.nodes = url, nodes

    def count(self, *requests: str) -> int:
        found = [samples(node) for node in self.nodes]
        return int(sum(named(of, "weir_request_seconds_count", request=request) for of in found for request in requests))

    def reads(self) -> int:
        return self.count("read", "readv", "pgread")


@pytest.fixture(scope="module", params=["node", "cluster"])
def counted(request, tmp_path_factory) -> Iterator[Counted]:
    home, flags = tmp_path_factory.mktemp(request.param) / "home", ("--metrics", "127.0.0.1:0")
    if request.param == "node":
        with Weir(home, flags=flags).start() as node:
            yield Counted(node.url, [node])
    else:
        with Cluster(home, 2, flags) as cluster:
            yield Counted(cluster.url, cluster.nodes)


@pytest.fixture(scope="module")
def sized(counted, tmp_path_factory) -> dict[int, bytes]:
    folder, found = tmp_path_factory.mktemp("sized"), {}
    for size in [*SIZES, LARGE]:
        source = write(folder / str(size), f"sized {size}", size)
        xrdcp("-f", source, f"{counted.url}//{size}").ok()
        found[size] = source.read_bytes()
    return found


def cp(*options: str):
    def copied(url: str, folder: Path) -> bytes:
        done = weir("cp", *options, url, str(folder / "copy"))
        assert done.returncode == 0, done.stderr
        return (folder / "copy").read_bytes()

    return copied


def into_a_pipe(*command: str):
    def copied(url: str, _: Path) -> bytes:
        done = subprocess.run([WEIR_BIN, *(word.format(url=url) for word in command)], capture_output=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return copied


THREE = "cp over three connections"
# With and without a comparison with the server's checksum.
WAYS = {
    "cp": cp(),
    "cp to a pipe": into_a_pipe("cp", "{url}", "-"),
    "cat": into_a_pipe("cat", "{url}"),
    "cp without a checksum": cp("--no-verify"),
    THREE: cp("--no-verify", "--streams", "3"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_download_reads_only_what_did_not_come_with_the_open(counted, sized, tmp_path, way):
    for size in [*SIZES, LARGE] if way == THREE else SIZES:
        before, opens = counted.reads(), counted.count("open")
        assert WAYS[way](f"{counted.url}//{size}", tmp_path) == sized[size], size
        reads = counted.reads() - before
        # The manager counts its own.
        assert size != LARGE or counted.count("open") - opens >= 3
        if size > BEGINNING:
            # A server may send less than was asked for. `cat` reads up to an empty answer.
            assert reads >= 1, size
        else:
            # That a file is empty, `cat` believes only a read.
            assert reads == (way == "cat" and size == 0), size
        (tmp_path / "copy").unlink(missing_ok=True)


def test_a_verified_download_asks_for_the_checksum(counted, sized, tmp_path):
    for size in SIZES:
        queries = []
        for options in ((), ("--no-verify",)):
            before = counted.count("query")
            assert cp(*options)(f"{counted.url}//{size}", tmp_path) == sized[size], size
            queries.append(counted.count("query") - before)
            (tmp_path / "copy").unlink()
        assert queries[0] > queries[1], size


class Damaging(Proxy):
    """Changes these bytes whenever they come from the server."""

    def __init__(self, port: int, words: bytes):
        super().__init__(port)
        self.words, self.damaged = words, 0

    def _changed(self, direction, data):
        if direction != DOWN or self.words not in data:
            return data
        self.damaged += 1
        return data.replace(self.words, self.words[::-1])


@pytest.mark.parametrize("size", SIZES[2:])
def test_a_beginning_that_was_damaged_on_its_way_is_no_copy(node, place, tmp_path, size):
    path, source = f"{place}/damaged{size}", write(tmp_path / "source", f"damaged {size}", size)
    xrdcp("-f", source, f"{node.url}{path}").ok()
    with Damaging(node.port, source.read_bytes()[100:116]) as proxy:
        url = f"{proxy.url}{path}"
        # Checks that it is changed.
        assert into_a_pipe("cat", "{url}")(url, tmp_path) != source.read_bytes()
        damaged = proxy.damaged
        done = weir("cp", url, str(tmp_path / "copy"), timeout=60)
        assert done.returncode != 0 and not (tmp_path / "copy").exists(), done.stderr
        assert proxy.damaged > damaged


@pytest.mark.parametrize("size", SIZES[1:])
def test_a_copy_that_goes_on_gets_what_it_lacks(counted, sized, tmp_path, size):
    copy, part, expected = tmp_path / "copy", tmp_path / ".copy.weir-part", sized[size]
    for kept in {0, 1, min(size, BEGINNING) // 2, size // 2, size - 1}:
        part.write_bytes(expected[:kept])
        before = counted.reads()
        done = weir("cp", "--resume", f"{counted.url}//{size}", str(copy))
        assert done.returncode == 0 and copy.read_bytes() == expected, (kept, done.stderr)
        # Nothing came with the open.
        assert counted.reads() > before, kept
        copy.unlink()
