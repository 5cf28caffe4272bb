"""xrdfs: each subcommand that works on one node, and its errors."""

import re
import subprocess
import time
from xml.etree import ElementTree

import pytest
from clients import environment, run, xrdcp
from content import adler32, content, write
from XRootD import client
from XRootD.client.flags import DirListFlags, OpenFlags

pytestmark = [pytest.mark.peer_ok, pytest.mark.managers_ok]

NOT_FOUND, NOT_AUTHORIZED, IS_DIRECTORY, EXISTS, UNSUPPORTED = 3011, 3010, 3016, 3018, 3013
# The peer reports a plain file system error; weir reports the specific one.
FS_ERROR, NOT_FILE, TOO_LONG, INVALID, ITEM_CONFLICT = 3005, 3015, 3002, 3000, 3032


@pytest.fixture
def put(node, tmp_path):
    def put(path: str, size: int = 100) -> bytes:
        source = write(tmp_path / "put", path, size)
        xrdcp("-f", source, f"{node.url}{path}").ok()
        return source.read_bytes()

    return put


def test_mkdir_needs_the_parent_unless_told(fs, place):
    fs("mkdir", f"{place}/a/b").refused(NOT_FOUND)
    fs("mkdir", "-p", f"{place}/a/b/c").ok()
    fs("mkdir", "-p", f"{place}/a/b/c").ok()
    assert "IsDir" in fs.flags(f"{place}/a/b/c")


def test_mkdir_over_a_file_or_through_one(fs, place, put, node):
    put(f"{place}/file")
    fs("mkdir", "-p", f"{place}/file/x").refused(FS_ERROR, NOT_FILE, EXISTS)
    fs("mkdir", f"{place}/file").refused(EXISTS)
    assert fs.size(f"{place}/file") == 100


def test_ls_shows_names_kinds_sizes_and_times(fs, place, put):
    fs("mkdir", f"{place}/dir").ok()
    put(f"{place}/file", 12345)
    assert fs.names(place) == ["dir", "file"]
    lines = fs("ls", "-l", place).ok().out.strip().splitlines()
    by_name = {line.rpartition("/")[2]: line for line in lines}
    assert set(by_name) == {"dir", "file"}
    assert by_name["dir"].startswith("d") and by_name["file"].startswith("-rw")
    assert re.search(r"\s12345\s", by_name["file"])
    shown = re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", by_name["file"]).group()
    assert abs(time.mktime(time.strptime(shown, "%Y-%m-%d %H:%M:%S")) - time.timezone - time.time()) < 100


def test_ls_of_an_empty_directory_and_of_the_root(fs, place):
    assert fs.names(place) == []
    assert place[1:] in fs.names("/")


def test_ls_goes_down_the_whole_tree(fs, place, put):
    for path in ["a/b/c/one", "a/two", "three"]:
        fs("mkdir", "-p", f"{place}/{path.rpartition('/')[0]}").ok()
        put(f"{place}/{path}", 10)
    listed = set(fs("ls", "-R", place).ok().out.split())
    assert listed == {f"{place}/{path}" for path in ["a", "a/b", "a/b/c", "a/b/c/one", "a/two", "three"]}


def test_ls_of_many_entries(fs, place, node):
    remote = client.FileSystem(node.url)
    names = {f"entry-{number:05}-{'x' * 60}" for number in range(2500)}
    for name in names:
        assert remote.mkdir(f"{place}/{name}")[0].ok
    assert set(fs.names(place)) == names
    assert len(fs("ls", "-l", place).ok().out.splitlines()) == 2500


def test_ls_of_what_is_not_there(fs, place):
    fs("ls", f"{place}/missing").refused(NOT_FOUND)


def test_stat_of_files_and_directories(fs, place, put):
    put(f"{place}/file", 777)
    shown = fs("stat", f"{place}/file").ok().out
    assert fs.field(shown, "Size") == "777"
    assert {"IsReadable", "IsWritable"} <= fs.flags(f"{place}/file")
    assert "IsDir" not in fs.flags(f"{place}/file") and "IsDir" in fs.flags(place)
    ids = {fs.field(fs("stat", path).ok().out, "Id") for path in (place, f"{place}/file")}
    assert len(ids) == 2
    fs("stat", f"{place}/missing").refused(NOT_FOUND)
    fs("stat", f"{place}/file/below").refused(FS_ERROR, NOT_FOUND, NOT_FILE)
    assert fs("stat", "-q", "IsDir", place).code == 0
    assert fs("stat", "-q", "IsDir", f"{place}/file").code != 0


def test_rm_and_rmdir(node, fs, place, put):
    put(f"{place}/file")
    fs("mkdir", "-p", f"{place}/dir/sub").ok()
    fs("rmdir", f"{place}/dir").refused(FS_ERROR, EXISTS, ITEM_CONFLICT)
    fs("rmdir", f"{place}/file").refused(FS_ERROR, NOT_FILE, INVALID)
    fs("rm", f"{place}/dir").refused(FS_ERROR, IS_DIRECTORY)
    fs("rm", f"{place}/missing").refused(NOT_FOUND)
    if node.kind == "weir":  # the peer reports success
        fs("rmdir", f"{place}/missing").refused(NOT_FOUND)
    assert fs.names(place) == ["dir", "file"]
    fs("rm", f"{place}/file").ok()
    fs("rmdir", f"{place}/dir/sub").ok()
    fs("rmdir", f"{place}/dir").ok()
    assert fs.names(place) == []


def test_mv_of_files(node, fs, place, put):
    data = put(f"{place}/a", 5000)
    fs("mv", f"{place}/a", f"{place}/b").ok()
    assert fs.names(place) == ["b"] and fs.size(f"{place}/b") == 5000
    put(f"{place}/c", 10)
    fs("mv", f"{place}/b", f"{place}/c").ok()
    assert fs.names(place) == ["c"] and fs.size(f"{place}/c") == len(data)
    fs("mv", f"{place}/missing", f"{place}/d").refused(NOT_FOUND)
    if node.kind == "weir":  # the peer makes the parents
        fs("mv", f"{place}/c", f"{place}/no/such/parent").refused(NOT_FOUND)
        assert fs.names(place) == ["c"]


def test_mv_of_directories(fs, place, put):
    fs("mkdir", "-p", f"{place}/d/e").ok()
    put(f"{place}/d/e/file", 20)
    put(f"{place}/file", 20)
    fs("mv", f"{place}/d", f"{place}/d/e/inside").refused(INVALID, FS_ERROR)
    fs("mv", f"{place}/d", f"{place}/file").refused(FS_ERROR, NOT_FILE)
    fs("mv", f"{place}/file", f"{place}/d").refused(IS_DIRECTORY, FS_ERROR)
    fs("mv", f"{place}/d", f"{place}/moved").ok()
    assert fs.size(f"{place}/moved/e/file") == 20
    assert fs.names(place) == ["file", "moved"]


def test_chmod(fs, place, put):
    put(f"{place}/file")
    for given, shown in [("rw-r-----", "0640"), ("r--r--r--", "0444"), ("rwxrwxr-x", "0775")]:
        fs("chmod", f"{place}/file", given).ok()
        assert fs.field(fs("stat", f"{place}/file").ok().out, "Mode") == shown
    fs("chmod", place, "rwxr-x---").ok()
    assert fs.field(fs("stat", place).ok().out, "Mode") == "0750"
    fs("chmod", f"{place}/missing", "rw-r-----").refused(NOT_FOUND)


@pytest.mark.parametrize("size", [10, 100_000, 3_000_000])
def test_truncate(fs, place, put, node, tmp_path, size):
    data = put(f"{place}/file", size)
    for length in [size // 3, size // 3, size * 2, size * 2 + 1, 0, 7]:
        fs("truncate", f"{place}/file", str(length)).ok()
        data = data[:length].ljust(length, b"\0")
        assert fs.size(f"{place}/file") == length
        xrdcp("-f", f"{node.url}{place}/file", tmp_path / "back").ok()
        assert (tmp_path / "back").read_bytes() == data
    fs("truncate", place, "5").refused(IS_DIRECTORY, FS_ERROR)
    fs("truncate", f"{place}/missing", "5").refused(NOT_FOUND)


def test_query_config(fs):
    assert fs("query", "config", "readv_iov_max").ok().out.strip() == "1024"
    assert int(fs("query", "config", "readv_ior_max").ok().out) >= 2_000_000
    both = fs("query", "config", "readv_iov_max readv_ior_max").ok().out.split()
    assert len(both) == 2 and both[0] == "1024"
    sums = fs("query", "config", "chksum").ok().out
    assert "adler32" in sums and "crc32c" in sums
    assert fs("query", "config", "no_such_key").ok().out.strip() == "no_such_key"
    assert fs("query", "config", "version").ok().out.strip()
    assert fs("query", "config", "role").ok().out.strip() == "server"


def test_ls_in_its_other_forms(node, fs, place, put):
    data = put(f"{place}/file", 4321)
    fs("mkdir", "-mrwxr-x---", f"{place}/dir").ok()
    assert fs.field(fs("stat", f"{place}/dir").ok().out, "Mode") == "0750"
    sums = fs("ls", "-C", place).ok().out.splitlines()
    if node.kind == "weir":  # the peer knows a checksum after it was asked for it
        assert any(adler32(data) in line and "file" in line for line in sums)
    assert f"{node.url}{place}/file" in [line.strip() for line in fs("ls", "-u", place).ok().out.splitlines()]
    assert len(fs("ls", "-D", place).ok().out.split()) == 2


def test_a_session_at_the_prompt(node, place, put):
    put(f"{place}/file")
    said = f"cd {place}\npwd\nmkdir below\nls\nrmdir below\nexit\n"
    done = subprocess.run(["xrdfs", node.url], input=said, capture_output=True, text=True, timeout=60, env=environment())
    assert done.returncode == 0, done.stderr
    assert place in done.stdout and f"{place}/file" in done.stdout and f"{place}/below" in done.stdout


def test_queries(fs, place, put):
    put(f"{place}/file", 1234)
    stats = fs("query", "stats", "a").ok().out
    assert stats.startswith("<statistics") and ElementTree.fromstring(stats.strip().rstrip("\0")).tag == "statistics"
    shown = dict(pair.split("=") for pair in fs("query", "xattr", f"{place}/file").ok().out.strip().strip("\0").split("&"))
    assert shown["oss.type"] == "f" and shown["oss.used"] == "1234"
    fs("query", "xattr", f"{place}/missing").refused(NOT_FOUND)
    fs("query", "opaque", "question").refused(UNSUPPORTED)
    fs("query", "opaquefile", f"{place}/file").refused(UNSUPPORTED)


def test_locate_in_its_other_forms(fs, place, put, node):
    put(f"{place}/file")
    for option in ("-d", "-r", "-n", "-m", "-i", "-p"):
        assert f":{node.port}" in fs("locate", option, f"{place}/file").ok().out


def test_cat_to_a_file_and_tail_of_the_end(node, fs, place, tmp_path, put):
    data = put(f"{place}/file", 100_000)
    fs("cat", "-o", str(tmp_path / "out"), f"{place}/file").ok()
    assert (tmp_path / "out").read_bytes() == data
    fs("tail", f"{place}/missing").refused(NOT_FOUND)


def test_xrdmapc_finds_one_server(node, place, put):
    put(f"{place}/file")
    host = f"127.0.0.1:{node.port}"
    listed = run(["xrdmapc", "--list", "all", host]).ok().out
    assert f":{node.port}" in listed and "none" not in listed.lower()
    assert f":{node.port}" in run(["xrdmapc", "--verify", "--refresh", host, f"{place}/file"]).ok().out


def test_query_checksum_of_what_has_none(fs, place, put):
    put(f"{place}/file")
    fs("query", "checksum", f"{place}/missing").refused(NOT_FOUND)
    fs("query", "checksum", place).refused(IS_DIRECTORY, INVALID, FS_ERROR)
    assert fs("query", "checksum", f"{place}/file?cks.type=nosuch").code != 0


def test_space(fs):
    fields = dict(pair.split("=") for pair in fs("query", "space", "/").ok().out.strip().split("&"))
    total, free, used = (int(fields[f"oss.{name}"]) for name in ("space", "free", "used"))
    assert 0 < free <= total and used <= total
    assert "Path" in fs("spaceinfo", "/").ok().out
    assert "Nodes with RW space:                1" in fs("statvfs", "/").ok().out


def test_locate_names_this_server(fs, place, put, node):
    put(f"{place}/file")
    for asked in (f"{place}/file", place, "*"):
        line = fs("locate", asked).ok().out.strip()
        assert line.split()[0].endswith(f":{node.port}") and "Server" in line
    fs("locate", f"{place}/missing").refused(NOT_FOUND)


def test_cat_and_tail(node, fs, place, tmp_path):
    text = "".join(f"line {number}\n" for number in range(3000))
    (tmp_path / "text").write_text(text)
    xrdcp(tmp_path / "text", f"{node.url}{place}/text").ok()
    assert fs("cat", f"{place}/text").ok().out.startswith(text)
    assert fs("tail", "-c", "100", f"{place}/text").ok().out.startswith(text[-100:])
    fs("cat", f"{place}/missing").refused(NOT_FOUND)
    fs("cat", place).refused(IS_DIRECTORY)


def test_rm_of_a_file_that_is_being_read(node, fs, place, put):
    data = put(f"{place}/file", 3_000_000)
    reader = client.File()
    assert reader.open(f"{node.url}{place}/file", OpenFlags.READ)[0].ok
    fs("rm", f"{place}/file").ok()
    fs("stat", f"{place}/file").refused(NOT_FOUND)
    status, got = reader.read(0, len(data))
    assert status.ok and got == data
    reader.close()


def test_the_time_of_change_moves(fs, place, put):
    put(f"{place}/file")
    first = fs.field(fs("stat", f"{place}/file").ok().out, "MTime")
    time.sleep(1.1)
    put(f"{place}/file")
    assert fs.field(fs("stat", f"{place}/file").ok().out, "MTime") > first


# Names.

ODD = [
    "with space",
    "  leading and trailing  ",
    "ümläut-日本語-🙂",
    "a" * 255,
    "é" * 127,
    "-dash",
    "percent%20and%2F",
    "plus+equals=comma,semi;",
    "quote'\"quote",
    "back\\slash",
    "star*question[bracket]{brace}",
    "...",
    "..file",
    ".hidden",
    "tab\there",
    "hash#and!bang~tilde",
    "colon:name@host",
]


@pytest.mark.parametrize("name", ODD, ids=lambda name: name[:12].encode("unicode_escape").decode())
def test_odd_names(node, place, name):
    """Through the bindings, because shells and xrdfs parse names themselves."""
    remote = client.FileSystem(node.url)
    if node.kind == "xrootd" and len(name.encode()) > 253:
        pytest.skip("the peer's listing cuts the last byte off")
    path, data = f"{place}/{name}", content(name, 1234)
    with client.File() as file:
        status, _ = file.open(f"{node.url}{path}", OpenFlags.NEW)
        assert status.ok, status.message
        assert file.write(data)[0].ok and file.close()[0].ok
    for how in (DirListFlags.NONE, DirListFlags.STAT):
        status, listing = remote.dirlist(place, how)
        assert status.ok and [entry.name for entry in listing] == [name]
    status, info = remote.stat(path)
    assert status.ok and info.size == 1234
    with client.File() as file:
        assert file.open(f"{node.url}{path}", OpenFlags.READ)[0].ok
        status, got = file.read()
        assert status.ok and got == data
    status, _ = remote.mv(path, f"{place}/plain")
    assert status.ok, status.message
    status, _ = remote.mv(f"{place}/plain", path)
    assert status.ok, status.message
    assert remote.rm(path)[0].ok
    assert remote.dirlist(place)[1].size == 0


def test_names_that_are_too_long(fs, place):
    fs("mkdir", f"{place}/{'a' * 255}").ok()
    fs("mkdir", f"{place}/{'a' * 256}").refused(TOO_LONG)
    fs("stat", f"{place}/{'a' * 256}").refused(TOO_LONG, NOT_FOUND)
    fs("mkdir", "-p", place + "/" + "/".join(["b" * 200] * 25)).refused(TOO_LONG)
    assert [name[:250] for name in fs.names(place)] == ["a" * 250]


def test_a_newline_in_a_name_never_makes_two_names(node, fs, place):
    """An XRootD listing separates names by newlines: such a name is refused or escaped, never listed as two."""
    if node.kind == "xrootd":
        pytest.skip("the peer lists two names")
    remote = client.FileSystem(node.url)
    status, _ = remote.mkdir(f"{place}/one\ntwo")
    status_list, listing = remote.dirlist(place)
    assert status_list.ok
    assert listing.size == (1 if status.ok else 0)
    assert all("\n" not in entry.name for entry in listing)


def test_paths_with_dots_never_leave(node, fs, place, put):
    put(f"{place}/file")
    paths = [f"{place}/../..", f"{place}/../{place[1:]}/file", "/../etc/passwd"]
    if node.kind == "weir":  # the peer shows the directory above its root
        paths.append("/..")
    for path in paths:
        fs("stat", path).refused(NOT_AUTHORIZED, INVALID)
    for path in (f"{place}/../escape", f"{place}/dir/../x"):
        fs("mkdir", "-p", path).refused(NOT_AUTHORIZED, INVALID)
    fs("rm", f"{place}/../{place[1:]}/file").refused(NOT_AUTHORIZED, INVALID)
    assert fs.names(place) == ["file"]


def test_doubled_slashes_are_one(fs, place, put):
    put(f"{place}/file", 55)
    assert fs.size(f"/{place}//file") == 55
