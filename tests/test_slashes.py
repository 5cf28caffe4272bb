"""A path that ends in a slash names a directory in every request, and never a file: on a node, on a cluster, and at the stock server."""

import json
import struct
from pathlib import Path

import pytest
import raw
from clients import Xrdfs, xrdcp
from cluster import Cluster
from harness import weir
from raw import Answer, Raw
from XRootD import client
from XRootD.client.flags import OpenFlags

pytestmark = pytest.mark.managers_ok

FS_ERROR, NOT_FOUND, IS_DIRECTORY, EXISTS, ARG_INVALID = 3005, 3011, 3016, 3018, 3000
NEW, REPLACE = raw.OPEN_NEW | raw.OPEN_UPDATE, raw.OPEN_DELETE | raw.OPEN_UPDATE
MKPATH, POSC, STAGE = 0x100, 0x1000, 8
QUERY_CHECKSUM, QUERY_XATTR = 3, 4


class Where:
    """A server with `/TEST/f` (5 bytes), `/TEST/d` (empty) and `/TEST/full` (with `x`)."""

    def __init__(self, url: str, port: int, is_weir: bool, place: str, tmp_path: Path):
        self.url, self.port, self.is_weir, self.place = url, port, is_weir, place
        self.fs = Xrdfs(url)
        self.source = tmp_path / "source"
        self.source.write_bytes(b"hello")
        self.fs("mkdir", "-p", f"{place}/d").ok()
        self.fs("mkdir", f"{place}/full").ok()
        for name in ("f", "full/x"):
            xrdcp(self.source, f"{url}{place}/{name}").ok()

    def whole(self) -> None:
        """Nothing has come or gone, and the file is as it was."""
        assert self.fs.names(self.place) == ["d", "f", "full"]
        assert self.fs.names(f"{self.place}/full") == ["x"] and self.fs.names(f"{self.place}/d") == []
        assert self.fs.size(f"{self.place}/f") == 5


@pytest.fixture(scope="module")
def cluster(base):
    with Cluster(base / "slashes-cluster", 2) as cluster:
        cluster.policy("/", "replica(2) sync=2")
        yield cluster


@pytest.fixture(params=["node", pytest.param("cluster", marks=[])])
def where(request, kind, tmp_path) -> Where:
    place = "/" + request.node.name.translate(str.maketrans("[]-:, /.", "______sd"))
    if request.param == "node":
        node = request.getfixturevalue("node")
        return Where(node.url, node.port, node.kind == "weir", place, tmp_path)
    if kind.kind != "weir":
        pytest.skip("weir's own clusters")
    cluster = request.getfixturevalue("cluster")
    return Where(cluster.url, cluster.manager.port, True, place, tmp_path)


@pytest.mark.peer_ok
def test_copies_into_a_directory_that_is_not_there_make_no_file(where):
    """Three copies had left one file with the content of the last, and three exit codes 0."""
    options = ((), ("-f",), ("--posc",))
    for number, flags in enumerate(options):
        for again in range(3 if where.is_weir else 1):
            done = xrdcp(*flags, where.source, f"{where.url}{where.place}/newrun{number}/")
            assert done.code != 0, f"{flags}, {again}: {done.out}"
    if where.is_weir:
        return where.whole()
    for name in where.fs.names(where.place):  # the stock server makes the directory and then refuses
        assert name == "f" or "IsDir" in where.fs.flags(f"{where.place}/{name}")


@pytest.mark.peer_ok
def test_xrdcp_that_makes_directories_copies_into_one(where):
    """With `-p` and a slash behind the target, xrdcp asks for the source's name in that directory."""
    for _ in range(2):
        xrdcp("-f", "-p", where.source, f"{where.url}{where.place}/newrun/").ok()
    assert where.fs.names(where.place) == ["d", "f", "full", "newrun"] and where.fs.names(f"{where.place}/newrun") == ["source"]


@pytest.mark.peer_ok
@pytest.mark.parametrize("end", ["/", "//", "/."])
def test_commands_do_not_reach_a_file_by_the_name_of_a_directory(where, end, tmp_path):
    file = f"{where.place}/f{end}"
    where.fs("rm", file).refused(FS_ERROR)
    where.fs("rmdir", file).refused(FS_ERROR)
    where.fs("mv", file, f"{where.place}/g").refused(FS_ERROR)
    where.fs("stat", file).refused(FS_ERROR)
    where.fs("truncate", file, "1").refused(FS_ERROR)
    where.fs("chmod", file, "rw-------").refused(FS_ERROR)
    where.fs("query", "checksum", file).refused(FS_ERROR)
    where.fs("query", "xattr", file).refused(FS_ERROR)
    where.fs("locate", file).refused(FS_ERROR)
    where.fs("ls", file).refused(FS_ERROR)
    where.fs("xattr", file, "set", "a=b").refused(FS_ERROR)
    where.fs("xattr", file, "list").refused(FS_ERROR)
    where.fs("cat", file).refused(FS_ERROR)
    assert xrdcp(f"{where.url}{file}", tmp_path / "back").code != 0 and not (tmp_path / "back").exists()
    assert xrdcp("-f", where.source, f"{where.url}{file}").code != 0
    where.whole()
    assert "a=" not in where.fs("xattr", f"{where.place}/f", "list").ok().out


@pytest.mark.peer_ok
def test_a_directory_is_reached_with_a_slash_or_without(where):
    at = where.place
    assert "IsDir" in where.fs.flags(f"{at}/d/") and "IsDir" in where.fs.flags(f"{at}/d/.")
    assert where.fs.names(f"{at}/full/") == ["x"]
    where.fs("mkdir", f"{at}/made/").ok()
    where.fs("mkdir", "-p", f"{at}/made/a/b/").ok()
    where.fs("mv", f"{at}/made/a/b/", f"{at}/made/c/").ok()
    assert where.fs.names(f"{at}/made") == ["a", "c"]
    where.fs("chmod", f"{at}/made/", "rwx------").ok()
    where.fs("xattr", f"{at}/made/", "set", "a=b").ok()
    where.fs("rmdir", f"{at}/made/c/").ok()
    where.fs("rm", f"{at}/made/a/").ok()
    where.fs("rmdir", f"{at}/made/.").refused(ARG_INVALID)
    where.fs("rmdir", f"{at}/made/").ok()
    assert where.fs.size(f"{at}//./full//./x") == 5, "on the way, they change nothing"
    where.whole()


@pytest.mark.peer_ok
def test_a_file_is_not_moved_to_the_name_of_a_directory(where):
    at = where.place
    where.fs("mv", f"{at}/f", f"{at}/f/").refused(FS_ERROR)
    where.fs("mv", f"{at}/f", f"{at}/d/").refused(FS_ERROR, IS_DIRECTORY)
    where.whole()
    where.fs("mv", f"{at}/f", f"{at}/new/").refused(FS_ERROR)
    assert where.fs.size(f"{at}/f") == 5
    if where.is_weir:  # the stock server makes the directory
        where.whole()


ENDS = ("/", "//", "/.")
# Of raw requests: what the path ends in, and the number of the error.
OPENS = [
    *((options, f"f{end}", FS_ERROR) for options in (raw.OPEN_READ, raw.OPEN_UPDATE, NEW, REPLACE, NEW | POSC) for end in ENDS),
    *((options, "d/", IS_DIRECTORY) for options in (raw.OPEN_READ, raw.OPEN_UPDATE, REPLACE)),
    *((options, "d/", EXISTS) for options in (NEW, NEW | POSC)),
    *((options, "new/", IS_DIRECTORY) for options in (NEW, REPLACE, NEW | POSC)),
    *((options, "new/", NOT_FOUND) for options in (raw.OPEN_READ, raw.OPEN_UPDATE)),
    *((options, "new/.", NOT_FOUND) for options in (NEW, REPLACE, NEW | POSC)),
    *((options, "a/new/", NOT_FOUND) for options in (NEW, REPLACE)),
]


@pytest.mark.peer_ok
def test_opens_of_directories_are_told_as_such(where):
    with Raw(where.port) as connection:
        for options, name, number in OPENS:
            answer = connection.ask_open(f"{where.place}/{name}", options)
            assert answer.error == number, f"{options:#x} {name}: {answer}"
    where.whole()
    with Raw(where.port) as connection:
        for options in (NEW, REPLACE, NEW | POSC):
            for name in (f"{options}/", f"{options}./.", f"a/{options}/"):
                answer = connection.ask_open(f"{where.place}/{name}", options | MKPATH)
                assert answer.error == IS_DIRECTORY, f"{options:#x} {name}: {answer}"
    if where.is_weir:
        where.whole()


def by_path(connection: Raw, path: str) -> dict[str, Answer]:
    """Requests that no stock command sends with a slash at the end, or not alone."""
    at, attribute = path.encode(), b"\0\0a\0"
    return {
        "statx": connection.request(raw.STATX, b"", b"/\n" + at),
        "fattr list": connection.request(raw.FATTR, bytes(4) + b"\2\0\0", at + b"\0"),
        "fattr set": connection.request(raw.FATTR, bytes(4) + b"\3\1\0", at + b"\0" + attribute + struct.pack(">i", 1) + b"v"),
        "dirlist": connection.request(raw.DIRLIST, bytes(15) + b"\2", at),
        "locate": connection.request(raw.LOCATE, b"", b"*" + at),
    }


@pytest.mark.peer_ok
def test_the_other_requests(where):
    with Raw(where.port) as connection:
        for end in ("/", "/./", "/."):
            answers = by_path(connection, f"{where.place}/f{end}")
            set_one = answers.pop("fattr set")
            assert set_one.body[:4] == struct.pack(">BBH", 1, 1, FS_ERROR), set_one
            assert {name: answer.error for name, answer in answers.items()} == dict.fromkeys(answers, FS_ERROR)
            prepared = connection.request(raw.PREPARE, bytes([STAGE]), f"{where.place}/f{end}".encode())
            assert prepared.status == raw.OK, "as for any name, also one that is not there"
    where.whole()


def test_a_query_of_a_prepared_directory_name_does_not_find_the_file(where):
    remote = client.FileSystem(where.url)
    question = "\n".join(["weir-0123456789abcdef", f"{where.place}/f/", f"{where.place}/f", f"{where.place}/d/"])
    status, answer = remote.query(client.flags.QueryCode.PREPARE, question)
    assert status.ok, status.message
    told = [(one["path_exists"], one["online"]) for one in json.loads(answer.rstrip(b"\0"))["responses"]]
    assert told == [(False, False), (True, True), (True, False)]


def test_a_third_party_copy_makes_no_file_of_that_name(where):
    at = where.place
    done = xrdcp("--tpc", "only", f"{where.url}{at}/f", f"{where.url}{at}/newrun/")
    assert done.code != 0, done.out
    done = xrdcp("--tpc", "only", f"{where.url}{at}/f/", f"{where.url}{at}/g")
    assert done.code != 0, done.out
    assert "newrun" not in where.fs.names(at)


def test_the_writer_of_a_file_does_not_come_back_by_the_name_of_a_directory(where):
    with client.File() as file:
        assert file.open(f"{where.url}{where.place}/mine", OpenFlags.NEW)[0].ok
        assert file.write(b"half")[0].ok
        with client.File() as again:
            status, _ = again.open(f"{where.url}{where.place}/mine/", OpenFlags.UPDATE)
            assert status.errno == FS_ERROR, status.message
        assert file.write(b"done", 4)[0].ok
        assert file.close()[0].ok
    assert where.fs.size(f"{where.place}/mine") == 8


def test_weirs_own_commands(where, tmp_path):
    at, file = f"{where.url}{where.place}", f"{where.url}{where.place}/f"
    for command in (
        ("rm", f"{file}/"), ("stat", f"{file}/"), ("cat", f"{file}/"), ("checksum", f"{file}/"), ("touch", f"{at}/new/"),
        ("mv", f"{file}/", f"{at}/g"), ("mv", file, f"{at}/new/"), ("cp", f"{file}/", str(tmp_path / "back")),
        ("cp", str(where.source), f"{file}/"), ("ln", file, f"{at}/new/"), ("xattr", "set", f"{file}/", "a", "b"),
    ):  # fmt: skip
        done = weir(*command)
        assert done.returncode not in (0, -6, 101) and done.stderr, (command, done)
        assert "directory" in done.stderr or command[0] == "xattr", done.stderr
    where.whole()
    # The target's slash says that the copy keeps its name, in a directory that may not be there yet.
    for _ in range(2):
        done = weir("cp", "-f", str(where.source), f"{at}/newrun/")
        assert done.returncode == 0, done.stderr
    assert where.fs.names(where.place) == ["d", "f", "full", "newrun"]
    assert where.fs.names(f"{where.place}/newrun") == ["source"]


def test_a_batch_makes_no_file_of_that_name(where, tmp_path):
    """Many small files at a time go in batches. Each name is checked like that of a single open."""
    port, path = where.port, f"{where.place}/new/".encode()
    create = struct.pack(">BBHHHII", 4, 0, 0, len(path), 0, 0, 5) + path
    with Raw(port) as connection:
        told = connection.request(raw.QUERY, struct.pack(">H14x", 7), b"weir.batch").body
        assert told.split()[0] == b"1", told
        parameters = struct.pack(">B3xII4x", 1, 1, len(create))
        answer = connection.request(30565, parameters, create)
    status, length = struct.unpack(">2xHi", answer.body[:8])
    number = struct.unpack(">i", answer.body[8:12])[0]
    if status == raw.ERROR and number == raw.UNSUPPORTED:  # a single node takes creates alone
        content = b"hello"
        create = struct.pack(">BBHHHII", 1, 0, 0, len(path), 0, len(content), raw_crc32c(content)) + path
        with Raw(port) as connection:
            answer = connection.request(30565, struct.pack(">B3xII4x", 1, 1, len(create)), create + content)
        status, length = struct.unpack(">2xHi", answer.body[:8])
        number = struct.unpack(">i", answer.body[8:12])[0]
    assert status == raw.ERROR and number == IS_DIRECTORY, answer
    where.whole()


def raw_crc32c(data: bytes) -> int:
    from content import page_sum

    return page_sum(data)
