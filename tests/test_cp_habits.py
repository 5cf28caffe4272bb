"""`weir cp` and related commands treat arguments as people know it from cp, rsync, ls and find, and never take one thing for another."""

import json
import os
import signal
import subprocess
import threading
import time

import pytest
from content import MIB, content
from fakeserver import FakeServer
from harness import WEIR_BIN, Weir, Xrootd, weir
from proxy import DOWN, UP, Proxy
from raw import CLOSE, READ, WRITE
from test_cp import ok

USAGE, FAILED, STOPPED, NOT_FOUND, EXISTS, UNREACHABLE = 2, 6, 9, 11, 12, 15


@pytest.fixture
def place(node, request):
    """A directory of its own on the server, as a URL."""
    name = request.node.name.translate(str.maketrans("[]/", "___"))
    return f"{node.url}/habits-{name}"


def tree_of(path, names=("a", "sub/b", "sub/deep/c")):
    for name in names:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content(name, 5000))
    return path


def names(place: str) -> list[str]:
    """The files below a place, as paths."""
    found = ok("find", place, "--type", "f").split()
    return sorted(path.partition(place.rpartition("//")[2].rstrip("/") + "/")[2] for path in found)


@pytest.fixture
def tree(tmp_path):
    return tree_of(tmp_path / "tree")


WHOLE = ["a", "sub/b", "sub/deep/c"]


@pytest.mark.parametrize("where", ["server", "here"])
def test_a_tree_is_continued_and_not_nested(place, tree, tmp_path, where):
    target = f"{place}/copy" if where == "server" else str(tmp_path / "copy")
    ok("cp", "-r", tree, target)
    ok("rm", f"{target}/sub/b")
    said = weir("cp", "-v", "-r", "--resume", str(tree), target)
    assert said.returncode == 0, said.stderr
    assert names(target) == WHOLE and said.stdout.count("(was there)") == 2, said.stdout
    # The same after a copy into a directory that was there before.
    above = f"{place}/above" if where == "server" else str(tmp_path / "above")
    ok("mkdir", above)
    ok("cp", "-r", tree, above)
    ok("rm", f"{above}/tree/a")
    ok("cp", "-r", "--resume", tree, above)
    assert names(above) == [f"tree/{name}" for name in WHOLE]
    # If both may be meant, nothing is done.
    tree_of(tree / "tree")
    done = weir("cp", "-r", "--resume", str(tree), above)
    assert done.returncode == USAGE and "no-target-directory" in done.stderr, done
    assert names(above) == [f"tree/{name}" for name in WHOLE]


@pytest.mark.parametrize("where", ["server", "here"])
def test_a_slash_and_no_target_directory_are_those_of_rsync_and_cp(place, tree, tmp_path, where):
    base = place if where == "server" else str(tmp_path)
    for number, (source, options, there, expected) in enumerate(
        [
            ("tree", [], False, ""),
            ("tree", [], True, "tree/"),
            ("tree/", [], False, ""),
            ("tree/", [], True, ""),
            ("tree", ["-T"], False, ""),
            ("tree", ["-T"], True, ""),
        ]
    ):
        target = f"{base}/t{number}"
        if there:
            ok("mkdir", target)
        ok("cp", "-r", *options, f"{tmp_path}/{source}", target)
        assert names(target) == [expected + name for name in WHOLE], (source, options, there)
    # A target that ends in a slash is a directory.
    ok("cp", "-r", tree, f"{base}/new/")
    assert names(f"{base}/new") == [f"tree/{name}" for name in WHOLE]
    # Several contents are merged.
    other = tree_of(tmp_path / "other", ["d"])
    ok("cp", "-r", f"{tree}/", f"{other}/", f"{base}/merged/")
    assert names(f"{base}/merged") == ["a", "d", "sub/b", "sub/deep/c"]
    # From there as well.
    ok("cp", "-r", f"{base}/new/tree/", tmp_path / "back")
    assert names(str(tmp_path / "back")) == WHOLE
    done = weir("cp", "-T", str(tree / "a"), str(other / "d"), f"{base}/new")
    assert done.returncode == USAGE and "no-target-directory" in done.stderr, done
    done = weir("cp", "-T", str(tree / "a"), f"{base}/new")
    assert done.returncode not in (0, EXISTS) and names(f"{base}/new") == [f"tree/{name}" for name in WHOLE], done


def test_a_name_that_no_server_can_have_is_named_and_the_rest_is_copied(place, tree):
    (tree / "what?").write_bytes(b"1")
    tree_of(tree / "why?now", ["x"])
    done = weir("cp", "-r", str(tree), f"{place}/up")
    assert done.returncode == FAILED, done
    assert "what?" in done.stderr and "why?now" in done.stderr and "rename it" in done.stderr, done.stderr
    assert done.stderr.count("?") == 4, f"each once, with `?` named: {done.stderr}"
    assert names(f"{place}/up") == WHOLE
    done = weir("sync", "--delete", str(tree), f"{place}/up")
    assert done.returncode == FAILED and names(f"{place}/up") == WHOLE, done
    done = weir("cp", str(tree / "what?"), f"{place}/up/")
    assert done.returncode == FAILED and names(f"{place}/up") == WHOLE, done


def test_a_name_with_a_mark_at_a_server_is_not_taken_for_a_shorter_one(base, tmp_path):
    """A stock server shows such names of its disk, and no request can be for them."""
    with Xrootd(base / "marked") as peer:
        (peer.data / "d").mkdir()
        for name in ["f", "f?x", "g?y"]:
            (peer.data / "d" / name).write_text(name)
        (peer.data / "d").chmod(0o777)
        done = weir("cp", "-r", f"{peer.url}/d", str(tmp_path / "back"))
        assert done.returncode == FAILED and "f?x" in done.stderr, done
        assert [path.name for path in (tmp_path / "back").iterdir()] == ["f"]
        done = weir("rm", "-r", f"{peer.url}/d")
        assert done.returncode != 0 and "f?x" in done.stderr, done
        assert sorted(path.name for path in (peer.data / "d").iterdir()) == ["f?x", "g?y"]


WRONG = ["root:/h//a", "root:h", "http://h/a", "davs://h:443/a", "s3://bucket/key", "file://other/a", "h:1094//a"]


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_addresses_are_no_paths(wrong, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(b"1")
    for arguments in [
        ["cp", str(source), wrong],
        ["cp", wrong, "x"],
        ["sync", str(tmp_path), wrong],
        ["ls", wrong],
        ["mkdir", "-p", wrong],
        ["rm", "-r", wrong],
        ["checksum", str(source), wrong],
        ["mkdir", "good", wrong],
        ["du", wrong],
        ["mv", "source", wrong],
    ]:
        done = subprocess.run([WEIR_BIN, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=30)
        assert done.returncode == USAGE and wrong in done.stderr, (arguments, done)
        assert "//" in done.stderr.replace(wrong, "") or "./" in done.stderr, done.stderr
        assert done.stdout == ""
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_a_path_that_looks_like_an_address_is_a_path_with_a_dot(tmp_path):
    (tmp_path / "http:" / "h").mkdir(parents=True)
    (tmp_path / "http:" / "h" / "f").write_bytes(b"1")
    (tmp_path / "a:b").write_bytes(b"2")
    run = lambda *arguments: subprocess.run([WEIR_BIN, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=30)  # noqa: E731
    assert run("cat", "./http://h/f").stdout == "1" and run("cat", "a:b").stdout == "2"
    assert run("cat", f"file://{tmp_path}/a:b").stdout == "2" and run("cat", f"file:{tmp_path}/a:b").stdout == "2"


def test_usage_errors_after_work_have_another_code(place, tree, tmp_path):
    """Code 2 says that nothing was touched."""
    assert weir("cp", str(tree / "sub"), f"{place}/x").returncode == USAGE
    done = weir("cp", str(tree / "a"), str(tree / "sub"), f"{place}/into/")
    assert done.returncode == FAILED and names(f"{place}/into") == ["a"], done
    assert weir("rm", f"{place}/into").returncode == USAGE
    done = weir("rm", f"{place}/into/a", f"{place}/into")
    assert done.returncode == FAILED and names(place) == [], done
    (tmp_path / "file").write_bytes(b"")
    done = weir("mkdir", f"{place}/m", "file:///", "root:/h")
    assert done.returncode == USAGE and weir("stat", f"{place}/m").returncode == NOT_FOUND, "nothing was touched"


def test_commands_go_on_after_an_error_and_name_it(place, tree):
    ok("cp", "-r", tree, f"{place}/t")
    here, missing, there = f"{place}/t/a", f"{place}/t/none", f"{place}/t/sub/b"
    for command in (["ls"], ["stat"], ["cat"], ["checksum"], ["du"]):
        done = weir(*command, here, missing, there)
        assert done.returncode == NOT_FOUND and "t/none" in done.stderr, (command, done)
        if command != ["cat"]:
            assert "/a" in done.stdout and "sub/b" in done.stdout, (command, done.stdout)
    done = weir("mkdir", "-v", f"{place}/n1", f"{place}/no/n2", f"{place}/n3")
    assert done.returncode == NOT_FOUND and "n1" in done.stdout and "n3" in done.stdout and "no/n2" in done.stderr, done


def test_checksums_of_one_list_can_be_compared(base, tmp_path):
    (tmp_path / "f").write_bytes(content("sum", MIB))
    with Weir(base / "sums") as server, Xrootd(base / "sums-stock") as peer:
        for url in (server.url, peer.url):
            ok("cp", tmp_path / "f", f"{url}/f")
        lines = ok("checksum", tmp_path / "f", f"{server.url}/f", f"{peer.url}/f").splitlines()
        assert len({line.split()[0] for line in lines}) == 1 and len(lines) == 3, lines
        lines = ok("checksum", "-a", "adler32,crc32c", tmp_path / "f", f"{peer.url}/f").splitlines()
        assert [line.partition(":")[0] for line in lines] == ["adler32", "crc32c"] * 2, lines
        assert lines[0].split()[0] == lines[2].split()[0] and lines[1].split()[0] == lines[3].split()[0], lines
    with FakeServer(b"12345") as server:
        done = weir("checksum", str(tmp_path / "f"), f"{server.url}/f")
        assert done.returncode == USAGE and "-a" in done.stderr and str(server.port) in done.stderr, done


def test_a_stopped_copy_counts_what_is_there(node, place, tmp_path):
    """Small and large files: what is reported as copied is there, and nothing that is not whole."""
    tree = tmp_path / "many"
    tree.mkdir()
    for number in range(40):
        (tree / f"big{number:02}").write_bytes(content(f"b{number}", 4 * MIB))
    for number in range(400):
        (tree / f"small{number:03}").write_bytes(content(f"s{number}", 3000))
    with Proxy(node.port) as proxy:
        reached = threading.Event()
        proxy.at(UP, 60 * MIB, lambda: (proxy.stall(), reached.set()))
        target = place.replace(node.url, proxy.url) + "/up"
        command = [WEIR_BIN, "cp", "-r", "--json", str(tree), target]
        copy = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert reached.wait(60)
        copy.send_signal(signal.SIGINT)
        time.sleep(0.3)
        proxy.resume()
        out, said = copy.communicate(timeout=60)
    assert copy.returncode == STOPPED, said
    lines = [json.loads(line) for line in out.splitlines()]
    summary = lines[-1]["summary"]
    copied = {os.path.basename(line["to"]) for line in lines[:-1] if line["state"] == "copied"}
    there = set(names(f"{place}/up"))
    assert copied <= there, sorted(copied - there)
    # The stop may come between the close of a file and its answer. Such a file is there, and whole.
    for name in there - copied:
        shown = subprocess.run([WEIR_BIN, "cat", f"{place}/up/{name}"], capture_output=True)
        if shown.returncode == 0:
            assert shown.stdout == (tree / name).read_bytes(), name
        else:
            # An open that was on its way at the stop arrives after its client has gone. The file is empty, and nobody takes it for whole.
            assert shown.stdout == b"" and (b"interrupted" in shown.stderr or b"being written" in shown.stderr), shown
    assert summary["copied"] == len(copied) and summary["failed"] == 0 and summary["stopped"] > 0, summary
    assert summary["copied"] + summary["stopped"] + summary["not_begun"] == 440 or not summary["all_found"], summary


def test_the_end_of_a_stopped_copy_says_what_was_done(tmp_path):
    (tmp_path / "tree").mkdir()
    for number in range(10):
        (tmp_path / "tree" / f"f{number}").write_bytes(content(str(number), MIB))
    writes = []

    def answers(peer, code, *_):
        if code == WRITE:
            writes.append(code)
            if len(writes) > 3:
                time.sleep(30)
        return False

    with FakeServer(b"", answers) as server:
        command = [WEIR_BIN, "cp", "-r", "-j", "1", "--no-verify", str(tmp_path / "tree"), f"{server.url}/new"]
        copy = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        while len(writes) < 4:
            time.sleep(0.01)
        copy.send_signal(signal.SIGINT)
        said = copy.communicate(timeout=30)[1]
    assert copy.returncode == STOPPED
    assert "stopped before it was done: 3 files" in said and "1 ended on the way" in said and "6 not begun" in said, said


def test_a_second_signal_ends_a_copy_at_once(tmp_path):
    """The first one waits for the cleaning up at a server that does not answer."""
    (tmp_path / "f").write_bytes(content("f", 5 * MIB))

    def answers(peer, code, *_):
        if code in (WRITE, CLOSE, READ) or reached.is_set():
            reached.set()
            time.sleep(30)
        return False

    reached = threading.Event()
    with FakeServer(b"", answers) as server:
        copy = subprocess.Popen([WEIR_BIN, "cp", str(tmp_path / "f"), f"{server.url}/new"], stderr=subprocess.DEVNULL)
        assert reached.wait(30)
        copy.send_signal(signal.SIGINT)
        time.sleep(1)
        assert copy.poll() is None, "it cleans up"
        begin = time.monotonic()
        copy.send_signal(signal.SIGINT)
        # The cleaning up alone would last for ten seconds.
        assert copy.wait(10) == STOPPED and time.monotonic() - begin < 5


@pytest.mark.parametrize("keeps", [True, False])
def test_what_was_copied_of_a_file_stays_if_one_says_so(node, place, tmp_path, keeps):
    data = content("partial", 64 * MIB)
    (tmp_path / "f").write_bytes(data)
    ok("cp", tmp_path / "f", f"{place}/whole")
    options = ["--partial"] if keeps else []
    with Proxy(node.port) as proxy:
        there = f"{proxy.url}{place.removeprefix(node.url)}"
        for way, arguments in ((DOWN, [f"{there}/whole", tmp_path / "down"]), (UP, [tmp_path / "f", f"{there}/up"])):
            half = threading.Event()
            proxy.at(way, proxy.count[way] + 30 * MIB, lambda event=half: (proxy.stall(), event.set()))
            copy = subprocess.Popen([WEIR_BIN, "cp", *options, *arguments], stderr=subprocess.DEVNULL)
            assert half.wait(60)
            time.sleep(1.5)
            copy.send_signal(signal.SIGINT)
            time.sleep(0.3)
            proxy.resume()
            assert copy.wait(60) == STOPPED
    part = tmp_path / ".down.weir-part"
    assert part.exists() == keeps and not (tmp_path / "down").exists()
    assert (weir("stat", f"{place}/up").returncode == 0) == keeps
    if keeps:
        assert 0 < part.stat().st_size < len(data)
        ok("cp", "--resume", f"{place}/whole", tmp_path / "down")
        assert (tmp_path / "down").read_bytes() == data and not part.exists()


def test_h_shows_units_and_help_is_help(place, tmp_path):
    (tmp_path / "f").write_bytes(bytes(3 * MIB))
    ok("cp", tmp_path / "f", f"{place}/f")
    for command in (["ls", "-lh"], ["ls", "-lH"], ["du", "-h"], ["du", "-sh"], ["df", "-h"]):
        assert "iB" in ok(*command, place), command
    assert "3.00 MiB" in ok("ls", "-lh", place) and "3.00 MiB" in ok("du", "-sh", place)
    for command in ("ls", "du", "df", "cp"):
        assert "Usage:" in ok(command, "--help")
    assert "Usage:" in ok("cp", "-h") and "Usage:" in ok("find", "-h")


def test_find_takes_the_words_of_find(place, tree):
    ok("cp", "-r", tree, f"{place}/t")
    assert ok("find", f"{place}/t", "-name", "b") == ok("find", f"{place}/t", "--name", "b") != ""
    assert ok("find", f"{place}/t", "-type", "d", "-maxdepth", "1").split() == [f"{place}/t/sub"]


def test_a_dry_run_does_nothing(place, tree, tmp_path):
    assert "copy" in ok("cp", "-rn", tree, f"{place}/up/") and weir("stat", f"{place}/up").returncode == NOT_FOUND
    assert "copy" in ok("cp", "-rn", tree, f"{tmp_path}/new/") and not (tmp_path / "new").exists()
    ok("cp", "-r", tree, f"{place}/up")
    done = weir("cp", "-rTn", str(tree), f"{place}/up")
    assert done.returncode == EXISTS, done
    assert ok("cp", "-rTnf", tree, f"{place}/up").count("replace") == 3
    assert len(ok("rm", "-rn", f"{place}/up").splitlines()) == 6 and names(f"{place}/up") == WHOLE
    assert len(ok("rm", "-rn", tree).splitlines()) == 6 and tree.exists()
    assert len(ok("rm", "-rv", f"{place}/up").splitlines()) == 6


def test_v_names_each_file(place, tree, tmp_path):
    lines = ok("cp", "-rv", tree, f"{place}/up").splitlines()
    assert sorted(line.split(" -> ")[1].partition("/up/")[2] for line in lines) == WHOLE, lines
    (tree / "a").unlink()
    (tree / "new").write_bytes(b"1")
    lines = ok("sync", "-v", "--delete", tree, f"{place}/up").splitlines()
    assert len(lines) == 2 and any(line.startswith("removed ") and line.endswith("/up/a") for line in lines), lines
    assert ok("mv", "-v", f"{place}/up/new", f"{place}/up/newer").count(" -> ") == 1
    done = subprocess.run([WEIR_BIN, "cp", "-v", f"{place}/up/newer", "-"], capture_output=True, timeout=30)
    assert done.stdout == b"1", done


@pytest.mark.parametrize("direction", ["up", "down", "many"])
def test_bwlimit_limits_the_rate(place, tmp_path, direction):
    (tmp_path / "f").write_bytes(content("rate", 8 * MIB))
    tree = tmp_path / "tree"
    tree.mkdir()
    for number in range(80):
        (tree / f"f{number}").write_bytes(content(str(number), 100_000))
    ok("cp", tmp_path / "f", f"{place}/f")
    command = {
        "up": [tmp_path / "f", f"{place}/limited"],
        "down": [f"{place}/f", tmp_path / "back"],
        "many": ["-r", tree, f"{place}/tree"],
    }[direction]
    begin = time.monotonic()
    ok("cp", "--bwlimit", "2MiB", *command)
    took = time.monotonic() - begin
    assert 3.3 < took < 9, took


def test_times_and_modes_are_kept(node, place, tree, tmp_path):
    os.chmod(tree / "sub" / "b", 0o640)
    os.chmod(tree / "sub", 0o750)
    for path in (tree / "sub" / "b", tree / "sub" / "deep", tree / "sub"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    ok("cp", "-a", tree, f"{place}/kept")
    ok("cp", "-a", f"{place}/kept", tmp_path / "back")
    for name in ("sub/b", "sub/deep", "sub"):
        info = json.loads(ok("stat", "--json", f"{place}/kept/{name}"))["info"]
        here, back = (tree / name).stat(), (tmp_path / "back" / name).stat()
        assert info["mtime"] == 1_000_000_000 == back.st_mtime, name
        assert info["mode"] == here.st_mode & 0o777 == back.st_mode & 0o777, name
