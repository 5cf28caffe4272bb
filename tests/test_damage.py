"""Bit rot: a damaged page is never served as good, fsck names the file, and a damaged journal is refused with position and remedy."""

from pathlib import Path

import pytest
from clients import Xrdfs, xrdcp
from content import KIB, MIB, content, write
from harness import StartFailed, Weir, weir
from XRootD import client
from XRootD.client.flags import OpenFlags

WITHOUT_RECENT = True

CHECKSUM_ERROR, FINDINGS, DAMAGED = 3019, 1, 5
PAGE = 4096


def places_of(data: Path, needle: bytes) -> list[tuple[Path, int]]:
    """The positions of these bytes in a data directory."""
    found = []
    for path in sorted(data.rglob("*")):
        if path.is_file():
            at = path.read_bytes().find(needle)
            if at >= 0:
                found.append((path, at))
    return found


def flip(path: Path, offset: int) -> None:
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 0x10]))


@pytest.fixture
def server(own_node):
    return own_node()


def put(server: Weir, path: str, size: int, tmp_path) -> bytes:
    source = write(tmp_path / "put", path, size)
    xrdcp("-f", source, f"{server.url}{path}").ok()
    return source.read_bytes()


def read(server: Weir, path: str, offset: int, length: int):
    file = client.File()
    status, _ = file.open(f"{server.url}{path}", OpenFlags.READ)
    if not status.ok:  # a small file may be read when it is opened
        return status, b""
    result = file.read(offset, length)
    file.close()
    return result


def refused(server: Weir, tmp_path: Path) -> None:
    """The stock client fails to copy it, and names the reason, sometimes in its own words."""
    copied = xrdcp(f"{server.url}/victim", tmp_path / "back")
    said = copied.err.lower()
    assert copied.code != 0, copied
    assert ("checksum" in said and "/victim" in said) or "received corrupted data" in said, copied


@pytest.mark.parametrize("size", [300_000, 9 * MIB + 100])
@pytest.mark.parametrize("running", [True, False], ids=["running", "stopped"])
def test_a_damaged_page_of_a_large_file(server, tmp_path, size, running):
    data, neighbour = put(server, "/victim", size, tmp_path), put(server, "/neighbour", size, tmp_path)
    if not running:
        server.stop()
    spot = (size // 2) // PAGE * PAGE
    (place,) = places_of(server.data, data[spot : spot + PAGE])
    flip(place[0], place[1] + 1000)
    if not running:
        server.start()
    status, got = read(server, "/victim", spot, PAGE)
    assert not status.ok, "a damaged page was served"
    assert status.errno == CHECKSUM_ERROR and "checksum" in status.message.lower()
    for offset, length in ((0, spot), (spot + PAGE, size - spot - PAGE)):
        status, got = read(server, "/victim", offset, length)
        assert status.ok and got == data[offset : offset + length], "the pages around it are good"
    refused(server, tmp_path)
    xrdcp(f"{server.url}/neighbour", tmp_path / "back2").ok()
    assert (tmp_path / "back2").read_bytes() == neighbour
    assert server.alive()
    server.stop()
    checked = weir("fsck", "--data", str(server.data))
    assert checked.returncode == FINDINGS, checked.stdout
    assert "/victim" in checked.stdout and "/neighbour" not in checked.stdout


def test_a_file_marked_damaged_has_no_checksum_until_it_is_written_again(server, tmp_path):
    data = put(server, "/victim", 300_000, tmp_path)
    server.stop()
    (place,) = places_of(server.data, data[8 * PAGE : 9 * PAGE])
    flip(place[0], place[1])
    weir("fsck", "--data", str(server.data), "--repair")
    server.start()
    fs = Xrdfs(server.url)
    fs("query", "checksum", "/victim").refused(CHECKSUM_ERROR)
    status, got = read(server, "/victim", 0, 8 * PAGE)
    assert status.ok and got == data[: 8 * PAGE]
    refused(server, tmp_path)
    put(server, "/victim", 300_000, tmp_path)
    fs("query", "checksum", "/victim").ok()


def test_a_damaged_small_file(server, tmp_path):
    """Wherever its bytes are at the time, they are never served wrong."""
    data, neighbour = put(server, "/victim", 20_000, tmp_path), put(server, "/neighbour", 20_000, tmp_path)
    places = places_of(server.data, data[5000:5100])
    assert places
    for path, offset in places:
        flip(path, offset + 50)
    status, got = read(server, "/victim", 0, 20_000)
    assert not status.ok or got == data
    status, got = read(server, "/neighbour", 0, 20_000)
    assert status.ok and got == neighbour


def test_a_damaged_sidecar_is_never_believed(server, tmp_path):
    data = put(server, "/victim", 3 * MIB, tmp_path)
    server.stop()
    sidecars = [path for path in (server.data / "store").rglob("*.crc")]
    assert sidecars
    for path in sidecars:
        flip(path, path.stat().st_size // 2)
    server.start()
    file = client.File()
    status, _ = file.open(f"{server.url}/victim", OpenFlags.READ)
    for offset in range(0, len(data), MIB):
        if not status.ok:
            break
        status, got = file.read(offset, MIB)
        assert not status.ok or got == data[offset : offset + MIB]


@pytest.mark.parametrize("lost", ["shortened", "gone"])
def test_a_lost_object_is_an_error_and_fsck_says_so(server, tmp_path, lost):
    data = put(server, "/victim", MIB, tmp_path)
    put(server, "/neighbour", MIB, tmp_path)
    server.stop()
    (place,) = places_of(server.data, data[500_000:504_096])
    if lost == "gone":
        place[0].unlink()
    else:
        with open(place[0], "r+b") as file:
            file.truncate(100_000)
    server.start()
    xrdcp(f"{server.url}/victim", tmp_path / "back").fails("error")
    xrdcp(f"{server.url}/neighbour", tmp_path / "back2").ok()
    Xrdfs(server.url)("ls", "-l", "/").ok()
    server.stop()
    checked = weir("fsck", "--data", str(server.data))
    assert checked.returncode == FINDINGS and "/victim" in checked.stdout and "/neighbour" not in checked.stdout


def segments(server: Weir) -> list[Path]:
    found = sorted(path for path in (server.data / "journal").iterdir() if path.is_file() and path.stat().st_size > 0)
    assert found
    return found


def used(path: Path) -> int:
    """The offset of the last non-zero byte: segments may be preallocated."""
    return len(path.read_bytes().rstrip(b"\0"))


@pytest.mark.parametrize("how_it_ended", ["stopped", "killed"])
@pytest.mark.parametrize("where", [0.3, 0.6])
def test_a_damaged_journal_is_refused_with_place_and_remedy(server, tmp_path, how_it_ended, where):
    """Acknowledged changes lie behind the damage: starting without them would silently forget them."""
    for number in range(30):
        put(server, f"/file{number}", 5 * KIB, tmp_path)
    server.stop() if how_it_ended == "stopped" else server.kill()
    segment = max(segments(server), key=used)
    flip(segment, int(used(segment) * where))
    with pytest.raises(StartFailed) as refused:
        server.start()
    assert refused.value.code == DAMAGED, refused.value.log
    assert segment.name in refused.value.log
    assert "fsck" in refused.value.log, "no remedy is named"
    assert "ready" not in (server.home / "ready").read_text()


def test_a_journal_cut_short_after_a_clean_stop_is_refused(server, tmp_path):
    for number in range(30):
        put(server, f"/file{number}", 5 * KIB, tmp_path)
    server.stop()
    segment = max(segments(server), key=used)
    with open(segment, "r+b") as file:
        file.truncate(used(segment) * 2 // 3)
    with pytest.raises(StartFailed) as refused:
        server.start()
    assert refused.value.code == DAMAGED, refused.value.log


@pytest.mark.parametrize("index", ["namespace/index", "store/index"])
@pytest.mark.parametrize("how", ["gone", "damaged"])
def test_an_index_is_rebuilt(server, tmp_path, index, how):
    """The index can be rebuilt from the journal and its checkpoints."""
    sizes = {f"/file{number}": 100 + number * 7001 for number in range(30)}
    for path, size in sizes.items():
        put(server, path, size, tmp_path)
    server.restart()
    server.stop()
    folder = server.data / index
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    for path in files:
        if how == "gone":
            path.unlink()
        elif path.stat().st_size:
            flip(path, path.stat().st_size // 2)
    server.start()
    for path, size in sizes.items():
        xrdcp("-f", f"{server.url}{path}", tmp_path / "back").ok()
        assert (tmp_path / "back").read_bytes() == content(path, size)
