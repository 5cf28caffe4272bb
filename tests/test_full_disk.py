"""A full disk refuses new data with a clear error, keeps every acknowledged byte, allows deletion, and recovers when space returns."""

import time

import pytest
from clients import Xrdfs, xrdcp
from content import KIB, MIB, content, write
from harness import weir
from loopfs import free_bytes, loop_file_system, why_not

# The journals and the ballast are as users get them.
SHIPPED_SIZES = True
NO_SPACE = 3009
pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


@pytest.fixture(params=["xfs", pytest.param("ext4", marks=pytest.mark.long)])
def disk(request, base):
    with loop_file_system(base / f"loop-{request.param}-{request.node.name[:40].replace('[', '-')}", request.param, 640 * MIB) as folder:
        folder.chmod(0o777)
        yield folder


@pytest.fixture
def server(own_node, disk, kind):
    flags = ("--grace-seconds", "1") if kind.kind == "weir" else ()
    yield (server := own_node(*flags, data=disk / "data"))
    if server.alive():
        server.kill()  # before the file system goes


def fill(server, tmp_path, size: int, most: int) -> tuple[dict[str, str], list]:
    """Uploads files of `size` until three in a row are refused. Returns the acknowledged ones, by name and seed, and the errors."""
    kept, refusals = {}, []
    for number in range(most):
        source = write(tmp_path / "fill", f"fill {size} {number}", size)
        outcome = xrdcp(source, f"{server.url}/fill-{size}-{number}")
        if outcome.code == 0:
            kept[f"/fill-{size}-{number}"] = f"fill {size} {number}"
        else:
            refusals.append(outcome)
            if len(refusals) == 3:
                return kept, refusals
    raise AssertionError(f"never full after {most} files of {size} bytes; free: {free_bytes(server.data)}")


def until_taken(server, source) -> None:
    """Space returns soon after a deletion, because objects are deleted in the background."""
    end = time.monotonic() + 20
    while xrdcp("-f", source, f"{server.url}/again").code != 0:
        assert time.monotonic() < end, "no new data although files were deleted"
        time.sleep(0.5)


def check_all(server, kept: dict[str, str], size: int, tmp_path) -> None:
    for path, seed in kept.items():
        xrdcp("-f", f"{server.url}{path}", tmp_path / "check").ok()
        assert (tmp_path / "check").read_bytes() == content(seed, size), path


@pytest.mark.peer_ok
def test_large_files(server, tmp_path):
    size = 16 * MIB
    kept, refusals = fill(server, tmp_path, size, 80)
    assert len(kept) >= 10
    for refusal in refusals:
        assert refusal.error == NO_SPACE or "no space left" in (refusal.out + refusal.err).lower(), refusal
    assert server.alive()
    check_all(server, kept, size, tmp_path)
    fs = Xrdfs(server.url)
    if server.kind == "weir":
        fs("mkdir", "/still-possible").ok()
    for path in list(kept)[:6]:
        fs("rm", path).ok()
        del kept[path]
    again = write(tmp_path / "again", "again", size)
    until_taken(server, again)
    check_all(server, kept | {"/again": "again"}, size, tmp_path)


def test_restarting_on_a_full_disk(server, tmp_path):
    size = 16 * MIB
    kept, _ = fill(server, tmp_path, size, 80)
    server.restart()
    check_all(server, kept, size, tmp_path)
    server.kill()
    server.start()
    check_all(server, kept, size, tmp_path)
    Xrdfs(server.url)("rm", next(iter(kept))).ok()
    assert server.stop()[0] == 0
    checked = weir("fsck", "--data", str(server.data))
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_small_files_fill_what_is_left(server, tmp_path):
    """Fills with large files first, for speed; then with 60 KiB ones until these are refused too. Then names can still be removed."""
    kept, _ = fill(server, tmp_path, 16 * MIB, 80)
    small, refusals = fill(server, tmp_path, 60 * KIB, 4000)
    assert all(r.error == NO_SPACE or "no space left" in (r.out + r.err).lower() for r in refusals), refusals
    check_all(server, small, 60 * KIB, tmp_path)
    fs = Xrdfs(server.url)
    for path in [*list(small)[:20], *list(kept)[:4]]:
        fs("rm", path).ok()
    until_taken(server, write(tmp_path / "again", "again", 60 * KIB))


def test_weir_cp_leaves_the_old_file_where_the_new_one_does_not_fit(server, tmp_path):
    """At a full server, and on a full local disk."""
    old, new = write(tmp_path / "old", "old", 4 * MIB), write(tmp_path / "new", "new", 96 * MIB)
    assert weir("cp", str(old), f"{server.url}/file").returncode == 0
    assert weir("cp", str(new), f"{server.url}/new").returncode == 0
    fill(server, tmp_path, 16 * MIB, 80)
    done = weir("cp", "-f", str(new), f"{server.url}/file")
    assert done.returncode == 14, done
    assert weir("cp", f"{server.url}/file", str(tmp_path / "back")).returncode == 0
    assert (tmp_path / "back").read_bytes() == old.read_bytes()
    with loop_file_system(tmp_path / "small", "ext4", 32 * MIB) as here:
        (here / "file").write_bytes(old.read_bytes())
        for how in ("auto", "never"):
            done = weir("cp", "-f", "--direct", how, f"{server.url}/new", str(here / "file"))
            assert done.returncode == 14, done
            assert (here / "file").read_bytes() == old.read_bytes()
            assert [path.name for path in here.iterdir() if path.name != "lost+found"] == ["file"]


def test_an_overwrite_that_does_not_fit_leaves_the_old_file(server, tmp_path):
    old = write(tmp_path / "old", "old", 4 * MIB)
    xrdcp(old, f"{server.url}/file").ok()
    fill(server, tmp_path, 16 * MIB, 80)
    new = write(tmp_path / "new", "new", 64 * MIB)
    assert xrdcp("-f", new, f"{server.url}/file").code != 0
    xrdcp(f"{server.url}/file", tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == old.read_bytes()
