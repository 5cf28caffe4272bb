"""Checksums that are computed on demand (`files.checksums`): announced, right, and kept until the content changes."""

import hashlib
import struct
from pathlib import Path

import pytest
import raw
from clients import Xrdfs, xrdcp
from cluster import Cluster
from content import MIB, content, write
from harness import Weir, until, weir
from raw import Raw
from test_damage import PAGE, flip, places_of

CONFIG = 'files.checksums = ["md5", "sha256", "crc64"]\n'
ANNOUNCED = "0:adler32,1:crc32c,2:md5,3:sha256,4:crc64"
CHECKSUM_ERROR, UNSUPPORTED, IS_DIRECTORY, IN_PROGRESS = 3019, 3013, 3016, 3020
DSTAT, DCKSM = 2, 4


def crc64(data: bytes) -> str:
    """CRC-64/XZ, bit by bit."""
    value = 0xFFFFFFFFFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0xC96C5795D7870F42 if value & 1 else 0)
    return f"{value ^ 0xFFFFFFFFFFFFFFFF:016x}"


SUMS = {"md5": lambda data: hashlib.md5(data).hexdigest(), "sha256": lambda data: hashlib.sha256(data).hexdigest(), "crc64": crc64}


class Where:
    def __init__(self, url: str, port: int):
        self.url, self.port, self.fs = url, port, Xrdfs(url)

    def sum(self, path: str, kind: str) -> str:
        name, value = self.fs("query", "checksum", f"{path}?cks.type={kind}").ok().out.split()
        assert name == kind
        return value


@pytest.fixture(scope="module")
def config(base) -> Path:
    path = base / "digests.toml"
    path.write_text(CONFIG)
    return path


@pytest.fixture(scope="module")
def single(base, config):
    with Weir(base / "digests-node", flags=("--config", str(config))) as node:
        yield node


@pytest.fixture(scope="module")
def cluster(base, config):
    with Cluster(base / "digests-cluster", 2, flags=("--config", str(config))) as cluster:
        cluster.policy("/", "replica(2) sync=2")
        cluster.policy("/striped", "stripe(2, 64KiB)")
        yield cluster


@pytest.fixture(params=["node", "cluster"])
def where(request) -> Where:
    if request.param == "node":
        node = request.getfixturevalue("single")
        return Where(node.url, node.port)
    cluster = request.getfixturevalue("cluster")
    return Where(cluster.url, cluster.manager.port)


@pytest.fixture
def place(where, request) -> str:
    path = "/" + request.node.name.translate(str.maketrans("[]-", "___"))
    where.fs("mkdir", path).ok()
    return path


def test_they_are_announced(where, node):
    assert where.fs("query", "config", "chksum").ok().out.strip() == ANNOUNCED
    assert Xrdfs(node.url)("query", "config", "chksum").ok().out.strip() == "0:adler32,1:crc32c", "without the setting"


@pytest.mark.parametrize("size", [0, 1, 5000, 3 * MIB + 7])
def test_they_are_right(where, place, tmp_path, size):
    source = write(tmp_path / "source", f"{place}{size}", size)
    xrdcp(source, f"{where.url}{place}/file").ok()
    data = source.read_bytes()
    for kind, sum_of in SUMS.items():
        if size < MIB or kind != "crc64":  # bit by bit, a large one takes long here
            assert where.sum(f"{place}/file", kind) == sum_of(data), kind
            assert where.sum(f"{place}/file", kind) == sum_of(data), "from the note"


def test_stock_commands_compare_them(where, place, tmp_path):
    source = write(tmp_path / "source", place, MIB)
    told = xrdcp("--cksum", "md5:print", source, f"{where.url}{place}/file").ok()
    assert hashlib.md5(source.read_bytes()).hexdigest() in told.out + told.err
    xrdcp("--cksum", "md5:source", f"{where.url}{place}/file", tmp_path / "back").ok()
    own = weir("checksum", "--algorithm", "sha256", f"{where.url}{place}/file")
    assert own.returncode == 0 and hashlib.sha256(source.read_bytes()).hexdigest() in own.stdout, own.stderr


def test_they_change_with_the_content(where, place, tmp_path):
    path, data = f"{place}/file", bytearray(content("before", 200_000))
    (tmp_path / "source").write_bytes(data)
    xrdcp(tmp_path / "source", f"{where.url}{path}").ok()
    assert where.sum(path, "md5") == SUMS["md5"](bytes(data))
    where.fs("truncate", path, "100000").ok()
    assert where.sum(path, "md5") == SUMS["md5"](bytes(data[:100_000])), "cut"
    (tmp_path / "source").write_bytes(b"another")
    xrdcp("-f", tmp_path / "source", f"{where.url}{path}").ok()
    assert where.sum(path, "md5") == SUMS["md5"](b"another"), "replaced"
    where.fs("mv", path, f"{path}-moved").ok()
    assert where.sum(f"{path}-moved", "md5") == SUMS["md5"](b"another")
    assert "digest" not in where.fs("xattr", f"{path}-moved", "list").ok().out


def listed(where: Where, path: str, kind: str) -> dict[bytes, bytes]:
    with Raw(where.port) as connection:
        answer = connection.request(raw.DIRLIST, bytes(15) + bytes([DSTAT | DCKSM]), f"{path}?cks.type={kind}".encode())
    lines = answer.body.rstrip(b"\0").rstrip(b"\n").split(b"\n")[2:]
    return {name: line.partition(b"[ ")[2].rstrip(b" ]") for name, line in zip(lines[::2], lines[1::2], strict=True)}


def test_a_listing_shows_those_that_are_known(where, place, tmp_path):
    for name in ("asked", "not"):
        xrdcp(write(tmp_path / name, name, 1000), f"{where.url}{place}/{name}").ok()
    value = where.sum(f"{place}/asked", "md5")
    # It is kept while the answer is on its way.
    until(lambda: listed(where, place, "md5") == {b"asked": f"md5:{value}".encode(), b"not": b"md5:none"}, 10)


def test_what_has_none(where, place, tmp_path, node):
    xrdcp(write(tmp_path / "source", place, 100), f"{where.url}{place}/file").ok()
    where.fs("query", "checksum", f"{place}?cks.type=md5").refused(IS_DIRECTORY)
    told = where.fs("query", "checksum", f"{place}/file?cks.type=sha1").refused(UNSUPPORTED)
    assert "md5, sha256, crc64" in told.out + told.err
    fs = Xrdfs(node.url)
    xrdcp("-f", tmp_path / "source", f"{node.url}/plain").ok()
    fs("query", "checksum", "/plain?cks.type=md5").refused(UNSUPPORTED)
    if where.port != node.port:
        with Raw(where.port) as connection:
            answer = connection.ask_open(f"{place}/open", raw.OPEN_NEW | raw.OPEN_UPDATE)
            asked = connection.request(raw.QUERY, struct.pack(">H14x", 3), f"{place}/open?cks.type=md5".encode())
            assert asked.error == IN_PROGRESS, (answer, asked)


def test_they_are_kept_and_a_damaged_file_gets_no_new_one(own_node, config, tmp_path):
    """The second question is answered without a read: the file is damaged by then. Also after a restart."""
    node = own_node("--config", str(config))
    where, source = Where(node.url, node.port), write(tmp_path / "source", "kept", MIB)
    data = source.read_bytes()
    xrdcp(source, f"{node.url}/file").ok()
    assert where.sum("/file", "md5") == SUMS["md5"](data)
    node.stop()
    (found,) = places_of(node.data, data[3 * PAGE : 4 * PAGE])
    flip(found[0], found[1] + 100)
    node.start()
    assert where.sum("/file", "md5") == SUMS["md5"](data)
    where.fs("query", "checksum", "/file?cks.type=sha256").refused(CHECKSUM_ERROR)


def test_of_striped_files(cluster, tmp_path):
    where, source = Where(cluster.url, cluster.manager.port), write(tmp_path / "source", "striped", MIB + 5)
    xrdcp(source, f"{cluster.url}/striped/file").ok()
    for kind in ("md5", "sha256"):
        assert where.sum("/striped/file", kind) == SUMS[kind](source.read_bytes())


def test_a_wrong_setting_is_told(base):
    for value, words in (('["md4"]', "it may have md5, sha256, crc64"), ('["adler32"]', "always kept"), ('"md5"', "takes a list")):
        path = base / "wrong.toml"
        path.write_text(f"files.checksums = {value}\n")
        refused = weir("serve", "--data", str(base / "nothing"), "--config", str(path), "--check")
        assert refused.returncode == 2 and words in refused.stderr, refused
