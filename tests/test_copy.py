"""xrdcp in and out: sizes around every border, checksums, overwriting, trees."""

import subprocess

import pytest
from clients import PATIENCE, environment, xrdcp
from content import KIB, MIB, adler32, content, crc32c, write

pytestmark = [pytest.mark.peer_ok, pytest.mark.managers_ok]

SIZES = [
    0,
    1,
    4095,
    4096,
    4097,
    64 * KIB - 1,
    64 * KIB,
    64 * KIB + 1,
    MIB - 1,
    MIB,
    MIB + 1,
    8 * MIB - 1,
    8 * MIB,
    8 * MIB + 1,
    100_000_000,
]


@pytest.mark.parametrize("size", SIZES)
def test_what_goes_in_comes_out(node, fs, place, tmp_path, size):
    source = write(tmp_path / "source", size, size)
    xrdcp(source, f"{node.url}{place}/file").ok()
    assert fs.size(f"{place}/file") == size
    xrdcp(f"{node.url}{place}/file", tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == source.read_bytes()


@pytest.mark.parametrize("size", SIZES)
def test_the_server_knows_both_checksums(node, fs, place, tmp_path, size):
    source = write(tmp_path / "source", size, size)
    xrdcp(source, f"{node.url}{place}/file").ok()
    plain = fs("query", "checksum", f"{place}/file").ok().out.split()
    assert plain == ["adler32", adler32(source.read_bytes())]
    assert fs("query", "checksum", f"{place}/file?cks.type=CRC32C").ok().out.split()[0] == "crc32c"
    chosen = fs("query", "checksum", f"{place}/file?cks.type=crc32c").ok().out.split()
    assert chosen == ["crc32c", crc32c(source)]


@pytest.mark.parametrize("kind_of_sum", ["adler32", "crc32c"])
def test_xrdcp_compares_checksums_itself(node, place, tmp_path, kind_of_sum):
    source = write(tmp_path / "source", kind_of_sum, 5 * MIB + 17)
    expected = adler32(source.read_bytes()) if kind_of_sum == "adler32" else crc32c(source)
    up = xrdcp("--cksum", f"{kind_of_sum}:print", source, f"{node.url}{place}/file").ok()
    assert expected in up.out + up.err
    xrdcp("--cksum", kind_of_sum, source, f"{node.url}{place}/again").ok()
    down = xrdcp("--cksum", f"{kind_of_sum}:source", f"{node.url}{place}/file", tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == source.read_bytes(), down.err


def test_a_wrong_checksum_is_noticed(node, place, tmp_path):
    source = write(tmp_path / "source", "wrong sum", 70_000)
    outcome = xrdcp("--cksum", "adler32:deadbeef", source, f"{node.url}{place}/file")
    assert outcome.code != 0


def test_an_existing_file_stands_unless_forced(node, fs, place, tmp_path):
    old = write(tmp_path / "old", "old", 100_000)
    new = write(tmp_path / "new", "new", 30_000)
    xrdcp(old, f"{node.url}{place}/file").ok()
    xrdcp(new, f"{node.url}{place}/file").fails("file exists")
    assert fs.size(f"{place}/file") == 100_000
    xrdcp("-f", new, f"{node.url}{place}/file").ok()
    xrdcp(f"{node.url}{place}/file", tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == new.read_bytes()
    assert fs.names(place) == ["file"]


@pytest.mark.parametrize("sizes", [(0, 10), (10, 0), (70_000, 5), (5, 70_000), (3 * MIB, 3 * MIB), (9 * MIB, 65_536)])
def test_overwriting_leaves_nothing_of_the_old(node, fs, place, tmp_path, sizes):
    for round_number, size in enumerate(sizes):
        source = write(tmp_path / f"{round_number}", f"{sizes} {round_number}", size)
        xrdcp("-f", source, f"{node.url}{place}/file").ok()
        xrdcp("-f", f"{node.url}{place}/file", tmp_path / "back").ok()
        assert (tmp_path / "back").read_bytes() == source.read_bytes()
        if node.kind == "weir":  # the peer answers from a cache that is wrong within the second of the overwrite
            assert fs("query", "checksum", f"{place}/file").ok().out.split()[1] == adler32(source.read_bytes())


@pytest.mark.parametrize("size", [0, 10_000, 3 * MIB])
def test_persist_on_successful_close(node, fs, place, tmp_path, size):
    source = write(tmp_path / "source", "posc", size)
    xrdcp("--posc", source, f"{node.url}{place}/file").ok()
    xrdcp(f"{node.url}{place}/file", tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == source.read_bytes()
    xrdcp("--posc", source, f"{node.url}{place}/file").fails("file exists")
    assert fs.names(place) == ["file"]


def test_parents_are_made(node, fs, place, tmp_path):
    source = write(tmp_path / "source", "parents", 1000)
    xrdcp("-p", source, f"{node.url}{place}/a/b/c/file").ok()
    assert fs.size(f"{place}/a/b/c/file") == 1000
    # every XrdCl says async when it makes a file, and the stock server takes that for the same wish
    xrdcp(source, f"{node.url}{place}/d/e/file").ok()
    assert fs.size(f"{place}/d/e/file") == 1000


def test_a_tree_goes_up_and_comes_down(node, fs, place, tmp_path):
    tree = tmp_path / "tree"
    for number in range(40):
        path = tree / f"dir{number % 4}" / f"sub{number % 3}" / f"file{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, f"tree {number}", number * 3001)
    xrdcp("-r", tree, f"{node.url}{place}/").ok()
    back = tmp_path / "back"
    back.mkdir()
    xrdcp("-r", f"{node.url}{place}/tree", back).ok()
    back = back / "tree"
    sent = {path.relative_to(tree): path.read_bytes() for path in tree.rglob("*") if path.is_file()}
    got = {path.relative_to(back): path.read_bytes() for path in back.rglob("*") if path.is_file()}
    assert got == sent and len(sent) == 40


def test_several_streams(node, place, tmp_path):
    source = write(tmp_path / "source", "streams", 40 * MIB + 3)
    xrdcp("-S", "3", source, f"{node.url}{place}/file").ok()
    xrdcp("-S", "3", f"{node.url}{place}/file", tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == source.read_bytes()


def test_from_a_pipe_without_an_announced_size(node, fs, place, tmp_path):
    data = content("pipe", 20 * MIB + 5)
    done = subprocess.run(
        ["xrdcp", "--nopbar", "-", f"{node.url}{place}/file"], input=data, capture_output=True, timeout=120, env=environment()
    )
    assert done.returncode == 0, done.stderr
    xrdcp(f"{node.url}{place}/file", tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == data


def test_without_page_checksums_on_the_wire(node, place, tmp_path):
    """Old clients use read and write, new ones pgread and pgwrite: both must work."""
    old = {**PATIENCE, "XRD_CPUSEPGWRTRD": "0"}
    source = write(tmp_path / "source", "plain", 11 * MIB + 4095)
    xrdcp(source, f"{node.url}{place}/file", patience=old).ok()
    xrdcp(f"{node.url}{place}/file", tmp_path / "back", patience=old).ok()
    assert (tmp_path / "back").read_bytes() == source.read_bytes()


def test_a_server_takes_ten_files_at_once(node, fs, place, tmp_path):
    for number in range(10):
        write(tmp_path / f"f{number}", f"parallel {number}", 2_000_003)
    xrdcp("--parallel", "4", *[tmp_path / f"f{n}" for n in range(10)], f"{node.url}{place}/").ok()
    for number in range(10):
        xrdcp(f"{node.url}{place}/f{number}", tmp_path / f"back{number}").ok()
        assert (tmp_path / f"back{number}").read_bytes() == (tmp_path / f"f{number}").read_bytes()
