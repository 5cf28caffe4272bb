"""`weir cp` and related commands, against weir and (with --peer) against a stock xrootd."""

import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import threading
import time
from functools import partial
from itertools import product

import pytest
from fakeserver import FakeServer
from harness import WEIR_BIN, Weir, Xrootd, weir
from proxy import DOWN, UP, Proxy
from raw import CLOSE, DIRLIST, FATTR, OK, OPEN, OPEN_NEW, OPEN_UPDATE, QUERY, RM, RMDIR, STAT, SYNC, Raw

KIB, MIB = 1 << 10, 1 << 20


def content(size: int, seed: int = 1) -> bytes:
    part = random.Random(seed).randbytes(min(size, 64 * MIB))
    return (part * (size // max(len(part), 1) + 1))[:size] if size > len(part) else part


def digest(path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def files(top) -> dict[str, str]:
    """Paths below it, with the contents of the files there."""
    return {str(path.relative_to(top)): digest(path) for path in top.rglob("*") if path.is_file()}


def ok(*arguments, **more) -> str:
    done = weir(*[str(argument) for argument in arguments], **more)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def place(node, request):
    """A directory of its own on the server, as a URL."""
    name = request.node.name.translate(str.maketrans("[]/", "___"))
    return f"{node.url}/cp-{name}"


@pytest.mark.peer_ok
@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 300 * KIB, 5 * MIB + 3, 70 * MIB + 77])
def test_there_and_back(place, tmp_path, size):
    source, back = tmp_path / "source", tmp_path / "back"
    source.write_bytes(content(size))
    said = [json.loads(line) for line in ok("cp", "--json", source, f"{place}/file").splitlines()]
    assert said[0]["state"] == "copied" and said[0]["bytes"] == size and said[-1]["summary"]["failed"] == 0
    assert said[0]["verified"]
    ok("cp", f"{place}/file", back)
    assert digest(source) == digest(back)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["back", "source"], "nothing else is left"


@pytest.mark.peer_ok
def test_many_streams_read_one_file(place, tmp_path):
    source, back = tmp_path / "source", tmp_path / "back"
    source.write_bytes(content(90 * MIB + 5))
    ok("cp", source, f"{place}/file")
    ok("cp", "-S", "4", "--direct", "never", f"{place}/file", back)
    assert digest(source) == digest(back)


@pytest.mark.peer_ok
def test_what_is_there_stays_unless_forced(place, tmp_path):
    old, new, here = tmp_path / "old", tmp_path / "new", tmp_path / "here"
    for size in (100, 3 * MIB):  # by a batch and one by one
        old.write_bytes(content(size, 1))
        new.write_bytes(content(size, 2))
        target = f"{place}/file{size}"
        ok("cp", old, target)
        refused = weir("cp", str(new), target)
        assert refused.returncode == 12 and "--force" in refused.stderr, refused.stderr
        ok("cp", target, here, "--force")
        assert digest(here) == digest(old)
        refused = weir("cp", target, str(here))
        assert refused.returncode == 12, refused.stderr
        ok("cp", "-f", new, target)
        ok("cp", "-f", target, here)
        assert digest(here) == digest(new)


@pytest.mark.peer_ok
def test_a_tree_goes_there_and_back(place, tmp_path):
    tree = tmp_path / "tree"
    random_sizes = random.Random(7)
    for number in range(300):
        path = tree / f"d{number % 7}" / f"e{number % 3}" / f"file {number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content(random_sizes.choice([0, 10, 5000, 100_000, 400_000]), number))
    (tree / "empty").mkdir()
    (tree / "link").symlink_to(tree / "d0" / "e0" / "file 0")
    (tree / "dirlink").symlink_to(tree / "d0")
    (tree / "d1" / "back").symlink_to(tree)
    said = weir("cp", "-r", str(tree), f"{place}/up")
    assert said.returncode == 0 and "d1/back: it leads back to a directory that it is in" in said.stderr, said.stderr
    ok("cp", "-r", "-j", "3", f"{place}/up", tmp_path / "back")
    ours = {str(path.relative_to(tree)): digest(path) for path in tree.rglob("*") if path.is_file()}
    ours |= {f"dirlink/{path.relative_to(tree / 'd0')}": digest(path) for path in (tree / "d0").rglob("*") if path.is_file()}
    back = files(tmp_path / "back")
    assert ours == back and len(back) > 301
    assert (tmp_path / "back" / "empty").is_dir()
    # into an existing directory: under its name
    (tmp_path / "other").mkdir()
    ok("cp", "-r", f"{place}/up/d1", tmp_path / "other")
    assert len(list((tmp_path / "other" / "d1").rglob("file*"))) == len(list((tree / "d1").rglob("file*")))


@pytest.mark.peer_ok
def test_one_bad_file_does_not_stop_the_others(place, tmp_path):
    for number in range(20):
        (tmp_path / f"f{number}").write_bytes(content(1000, number))
    ok("cp", tmp_path / "f3", f"{place}/all/f3")
    done = weir("cp", "--json", *[str(tmp_path / f"f{number}") for number in range(20)], str(tmp_path / "nowhere"), f"{place}/all/")
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert said[-1]["summary"]["copied"] == 19 and said[-1]["summary"]["failed"] == 2
    assert done.returncode == 6  # two kinds of failure
    assert {line["from"].rsplit("/", 1)[1] for line in said[:-1] if line["state"] == "failed"} == {"f3", "nowhere"}


@pytest.mark.peer_ok
def test_pipes(place, tmp_path):
    data = content(9 * MIB + 11)
    put = subprocess.run([WEIR_BIN, "cp", "-", f"{place}/piped"], input=data, capture_output=True)
    assert put.returncode == 0, put.stderr
    got = subprocess.run([WEIR_BIN, "cp", f"{place}/piped", "-"], capture_output=True)
    assert got.stdout == data
    got = subprocess.run([WEIR_BIN, "cat", f"{place}/piped"], capture_output=True)
    assert got.stdout == data


def test_between_servers(node, place, tmp_path, base):
    with Xrootd(base / "cp-peer") as peer:
        source, back = tmp_path / "source", tmp_path / "back"
        source.write_bytes(content(20 * MIB + 1))
        ok("cp", source, f"{place}/a")
        ok("cp", f"{place}/a", f"{peer.url}/b")
        ok("cp", f"{peer.url}/b", f"{place}/c")
        ok("cp", f"{place}/c", back)
        assert digest(source) == digest(back)


@pytest.mark.parametrize("size", [1 * MIB, 4 * MIB, 6 * MIB, 13 * MIB])
def test_between_servers_in_a_few_requests(place, tmp_path, size):
    """Fewer parts than simultaneous requests: reading must not wait for buffers that the writer holds."""
    (tmp_path / "source").write_bytes(content(size))
    ok("cp", tmp_path / "source", f"{place}/a")
    ok("cp", f"{place}/a", f"{place}/b", timeout=30)
    ok("cp", "-S", "3", f"{place}/b", f"{place}/c", timeout=30)
    ok("cp", f"{place}/c", tmp_path / "back")
    assert digest(tmp_path / "source") == digest(tmp_path / "back")


def test_resume(place, tmp_path):
    source, back = tmp_path / "source", tmp_path / "back"
    data = content(40 * MIB + 123)
    source.write_bytes(data)
    ok("cp", source, f"{place}/file")
    (tmp_path / ".back.weir-part").write_bytes(data[: 11 * MIB + 5])
    said = [json.loads(line) for line in ok("cp", "--resume", "--json", f"{place}/file", back).splitlines()]
    assert said[0]["bytes"] == len(data) - 11 * MIB and digest(source) == digest(back)
    said = [json.loads(line) for line in ok("cp", "--resume", "--json", f"{place}/file", back).splitlines()]
    assert said[0]["state"] == "skipped" and said[0]["verified"]
    # A file that is no beginning of the source is begun again; a difference in the middle shows at the end.
    back.unlink()
    (tmp_path / ".back.weir-part").write_bytes(content(11 * MIB, 99))
    said = [json.loads(line) for line in ok("cp", "--resume", "--json", f"{place}/file", back).splitlines()]
    assert said[0]["bytes"] == len(data) and digest(source) == digest(back)
    back.unlink()
    (tmp_path / ".back.weir-part").write_bytes(data[: 5 * MIB] + b"#" + data[5 * MIB + 1 : 11 * MIB])
    wrong = weir("cp", "--resume", f"{place}/file", str(back))
    assert wrong.returncode == 16 and not back.exists(), wrong.stderr
    assert not (tmp_path / ".back.weir-part").exists(), "the next one starts from the beginning"


class Middle:
    """Kills the server during the copy once that many bytes have gone through; then starts it again."""

    def __init__(self, proxy, server):
        self.proxy, self.server = proxy, server

    def hit(self, direction: str, after: int, size: int, *arguments) -> str:
        """The final output of the copy."""
        killed = threading.Event()
        before = self.proxy.count[direction]
        self.proxy.at(direction, before + after, lambda: (self.server.kill(), killed.set()))
        copy = subprocess.Popen([WEIR_BIN, "cp", "--log", "info", *map(str, arguments)], stderr=subprocess.PIPE, text=True)
        assert killed.wait(60) and copy.poll() is None, "it was under way"
        assert after <= self.proxy.count[direction] - before < size, "it was in the middle"
        self.server.start()
        said = copy.communicate(timeout=120)[1]
        assert copy.returncode == 0, said
        return said


@pytest.mark.long
def test_a_killed_server_is_waited_for(base, tmp_path):
    source, back, size = tmp_path / "source", tmp_path / "back", 200 * MIB
    source.write_bytes(content(size))
    with Weir(base / "cp-killed") as server, Proxy(server.port) as proxy:
        middle = Middle(proxy, server)
        for round_number in range(3):
            target = f"{proxy.url}/up{round_number}"
            assert "again" in middle.hit(UP, (20 + 60 * round_number) * MIB, size, source, target)
            assert "again" in middle.hit(DOWN, (150 - 60 * round_number) * MIB, size, "-f", target, back)
            assert digest(source) == digest(back)


def test_small_files_survive_a_killed_server(base, tmp_path):
    tree = tmp_path / "tree"
    tree.mkdir()
    for number in range(3000):
        (tree / f"f{number}").write_bytes(content(2000, number))
    with Weir(base / "cp-killed-small") as server, Proxy(server.port) as proxy:
        said = Middle(proxy, server).hit(UP, 3_000_000, 6_000_000, "-r", tree, f"{proxy.url}/up")
        assert "small files were under way: copying them again" in said
        ok("cp", "-r", f"{server.url}/up", tmp_path / "back")
        assert files(tree) == files(tmp_path / "back")


class Break:
    """Breaks the connection once the server has opened a file for the copy, and runs an action before the copy reconnects. `answered`: the
    copy has received the answer to its open."""

    def __init__(self, proxy: Proxy, words: bytes, answered: bool, is_there, meanwhile):
        self.proxy, self.answered, self.is_there, self.meanwhile = proxy, answered, is_there, meanwhile
        self.failed: BaseException | None = None
        self.done = False
        proxy.when(UP, words, self.act)

    def act(self, go_on) -> None:
        try:
            before = self.proxy.count[DOWN]
            if not self.answered:
                self.proxy.stall()
            go_on()
            until(lambda: self.proxy.count[DOWN] > before if self.answered else self.is_there())
            self.meanwhile()
            self.done = True
        except BaseException as failed:  # the copy waits for this
            self.failed = failed
        finally:
            self.proxy.cut()
            self.proxy.resume()


def until(true, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize("at, answered", [("weir", True), ("weir", False), ("weir, in a batch", False), ("stock", True), ("stock", False)])
def test_what_somebody_else_makes_while_the_connection_is_lost_stays(node, without_batches, base, tmp_path, at, answered):
    """A small file is begun, the connection breaks, and another file takes its name: the copy must not replace it."""
    ours, other = tmp_path / "ours", tmp_path / "other"
    ours.mkdir()
    (ours / "f").write_bytes(content(2000, 1))
    other.write_bytes(content(2000, 2))
    where = {"weir": without_batches, "weir, in a batch": lambda: node, "stock": lambda: Xrootd(base / f"cp-break-{answered}").start()}
    server = where[at]()
    with server if at == "stock" else contextlib.nullcontext(), Proxy(server.port) as proxy:
        for number, (meanwhile, flags, code) in enumerate(
            [("other", [], 12), ("same", [], 0), ("other", ["-f"], 0), ("nothing", [], 0 if answered or at != "stock" else 12)]
        ):
            path = f"broken-{answered}/{number}"
            direct = f"{server.url}/{path}/f"

            def put(source=other if meanwhile == "other" else ours / "f", direct=direct, path=path):
                if at == "stock":  # which does not remove a file with a writer
                    (server.data / "new").write_bytes(source.read_bytes())
                    if os.getuid() == 0:
                        shutil.chown(server.data / "new", "xrootd", "xrootd")
                    os.replace(server.data / "new", server.data / path / "f")
                else:
                    ok("rm", direct)
                    ok("cp", source, direct)

            broken = Break(
                proxy,
                content(2000, 1)[:100] if at == "weir, in a batch" else b"/f?oss.asize=2000",
                answered,
                lambda direct=direct: weir("stat", direct).returncode == 0,
                put if meanwhile != "nothing" else lambda: None,
            )
            done = weir("cp", "--log", "info", "-r", *flags, str(ours), f"{proxy.url}/{path}")
            assert broken.done and broken.failed is None and "copying them again" in done.stderr, (broken.failed, done)
            assert done.returncode == code, (meanwhile, flags, done)
            if code == 12 and meanwhile == "nothing":
                assert "may be somebody else's" in done.stderr, done
                ok("cp", "-f", ours / "f", direct)
            back = tmp_path / f"back{number}"
            ok("cp", direct, back)
            assert digest(back) == digest(other if meanwhile == "other" and not flags else ours / "f"), (meanwhile, flags, done)


def number_of(server, path: str) -> bytes:
    with Raw(server.port) as raw:
        return raw.stat(path).body.split()[0]


@pytest.mark.parametrize("at", ["weir", "stock"])
def test_what_somebody_else_puts_over_a_finished_copy_stays(node, base, tmp_path, at):
    """The close of a small file succeeds, its answer is lost, and somebody replaces the file before the copy reconnects. In weir the file
    keeps its number; a stock server rewrites it in place."""
    ours, other = tmp_path / "ours", tmp_path / "other"
    ours.mkdir()
    with Xrootd(base / "cp-over") if at == "stock" else contextlib.nullcontext(node) as server, Proxy(server.port) as proxy:
        for number, size in enumerate((2000, 1500, 0)):
            (ours / "f").write_bytes(content(2000, 1))
            other.write_bytes(content(size, 2))
            direct, sent = f"{server.url}/over/{number}/f", threading.Event()

            def lose_answers(go_on, sent=sent):
                proxy.stall(DOWN)
                go_on()
                sent.set()

            proxy.when(UP, content(2000, 1)[:100], lose_answers)
            command = [WEIR_BIN, "cp", "--log", "info", "-r", str(ours), f"{proxy.url}/over/{number}"]
            copy = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
            assert sent.wait(30)
            until(lambda direct=direct: weir("stat", direct).returncode == 0)
            before = number_of(server, f"/over/{number}/f")
            # Nobody gets it before its close.
            until(lambda direct=direct: weir("cp", "-f", str(other), direct).returncode == 0)
            assert number_of(server, f"/over/{number}/f") == before, "it tells nothing"
            if at == "stock":  # whose clock tells seconds
                os.utime(server.data / "over" / str(number) / "f", (1_000_000_000, 1_000_000_000))
            proxy.cut()
            proxy.resume()
            said = copy.communicate(timeout=60)[1]
            assert copy.returncode == 12 and "copying them again" in said and "may be somebody else's" in said, said
            back = tmp_path / f"back{number}"
            ok("cp", direct, back)
            assert digest(back) == digest(other), said


def test_an_interrupted_small_file_begins_again(without_batches, tmp_path):
    """The server has marked it before the copy reconnects: it is this copy's own, and nobody has completed it."""
    server = without_batches("--grace-seconds", "0")
    ours = tmp_path / "ours"
    ours.mkdir()
    (ours / "f").write_bytes(content(2000))
    with Proxy(server.port) as proxy:

        def mark():
            proxy.stall()
            proxy.cut()
            until(lambda: "interrupted" in weir("cat", f"{server.url}/up/f").stderr)

        broken = Break(proxy, b"/f?oss.asize=2000", True, lambda: True, mark)
        done = weir("cp", "--log", "info", "-r", str(ours), f"{proxy.url}/up")
        assert broken.done and broken.failed is None and "copying them again" in done.stderr, (broken.failed, done)
    assert done.returncode == 0, done
    ok("cp", f"{server.url}/up/f", tmp_path / "back")
    assert digest(tmp_path / "back") == digest(ours / "f")


@pytest.mark.parametrize("happens", ["connection lost", "source gone"])
def test_what_happens_while_it_is_found_out_what_is_there(tmp_path, happens):
    """The answer to an open is lost, and the next open finds a file. If the connection breaks during the comparison, the copy reconnects.
    If the source is gone, the existing file may still be ours."""
    source = tmp_path / "source"
    source.write_bytes(content(5000))
    told = json.loads(ok("checksum", "-a", "crc32c", "--json", source).splitlines()[0])
    opens, lost = [], []

    def answers(peer, code, stream, parameters, data):
        if code == OPEN:
            opens.append(data)
            if len(opens) == 1:
                peer.socket.close()
            else:
                if happens == "source gone":
                    source.unlink(missing_ok=True)
                peer.refuse(stream, 3018, "it is there")
        elif code == STAT and len(opens) == 2 and happens == "connection lost":
            lost.append(data)
            peer.socket.close()
        elif code == STAT and not opens:
            peer.refuse(stream, 3011, "nothing there")
        elif code == QUERY and parameters[1] == 7:
            peer.answer(stream, b"0:crc32c\n" if data == b"chksum" else data + b"\n")
        elif code == QUERY:
            peer.answer(stream, b"crc32c " + told["value"].encode() + b"\0")
        else:
            return False
        return True

    with FakeServer(content(5000), answers) as server:
        done = weir("cp", "--retry-for", "0", str(source), f"{server.url}/file")
    if happens == "connection lost":
        # Over the connection that the refused open used, which may have been lost long ago, and over a new one.
        assert done.returncode == 0 and len(lost) == 2 and len(opens) == 3, (done, opens, lost)
    else:
        assert done.returncode == 12 and "may be somebody else's" in done.stderr, done


@pytest.mark.parametrize("id_then, seed, ours", [(7, 1, True), (7, 2, False), (8, 1, False)])
def test_what_a_server_refuses_to_close_is_removed_if_it_is_ours(tmp_path, id_then, seed, ours):
    """For a server that does not know whether files are complete. Nobody has it open any more, so another client may have written to it
    since."""
    (tmp_path / "source").write_bytes(content(5000))
    removed, opened = [], []

    def answers(peer, code, stream, parameters, data):
        if code == OPEN:
            opened.append(data)
            return False
        if code == CLOSE and len(opened) == 1:
            peer.refuse(stream, 3005, "the disk has failed")
        elif code == STAT and not opened:
            peer.refuse(stream, 3011, "nothing there")
        elif code == STAT:
            peer.answer(stream, f"{id_then} 5000 48 1000000000".encode() + b"\0")
        elif code == RM:
            removed.append(data)
            peer.answer(stream)
        else:
            return False
        return True

    with FakeServer(content(5000, seed), answers) as server:
        for force in ([], ["-f"]):
            opened.clear()
            done = weir("cp", *force, str(tmp_path / "source"), f"{server.url}/file")
            assert done.returncode == 6 and "the disk has failed" in done.stderr, done
    assert len(removed) == (1 if ours else 0), "what was there before -f is not ours either"


def begin(server, path: str, data: bytes) -> None:
    """A file whose writer left before its end."""
    with Raw(server.port) as raw:
        handle = raw.open(path, OPEN_NEW | OPEN_UPDATE)
        for offset in range(0, len(data), MIB):
            assert raw.write(handle, offset, data[offset : offset + MIB]).status == 0
        assert raw.request(SYNC, handle).status == 0
    until(lambda: "interrupted" in weir("cat", f"{server.url}{path}").stderr)


@pytest.mark.parametrize("verify", [[], ["--no-verify"]])
@pytest.mark.parametrize("source", ["here", "at a server"])
def test_resume_compares_what_a_server_has(own_node, node, place, tmp_path, source, verify):
    """Unless the part at a server is the beginning of the source, the copy does not continue. This also holds without a checksum at the
    end, and for a source at a server."""
    server = own_node("--grace-seconds", "0")
    size, begun = 9 * MIB + 7, 5 * MIB + 3
    (tmp_path / "source").write_bytes(content(size))
    ok("cp", tmp_path / "source", f"{place}/source")
    source = tmp_path / "source" if source == "here" else f"{place}/source"
    begin(server, "/same", content(size)[:begun])
    said = [json.loads(line) for line in ok("cp", "--resume", "--json", *verify, source, f"{server.url}/same").splitlines()]
    assert said[0]["bytes"] == size - begun and said[0]["verified"] == (not verify), said
    ok("cp", f"{server.url}/same", tmp_path / "same")
    assert digest(tmp_path / "same") == digest(tmp_path / "source")
    begin(server, "/other", content(begun, 99))
    done = weir("cp", "--resume", *verify, str(source), f"{server.url}/other")
    assert done.returncode == 12 and "not the beginning" in done.stderr and "--force" in done.stderr, done
    assert "interrupted" in weir("cat", f"{server.url}/other").stderr, "what was recorded is as it was, at once"
    assert json.loads(ok("stat", "--json", f"{server.url}/other"))["info"]["size"] == begun
    ok("cp", "--no-verify", f"{server.url}/other?weir.partial=1", tmp_path / "kept")
    assert (tmp_path / "kept").read_bytes() == content(begun, 99)
    ok("cp", "--resume", "--force", *verify, source, f"{server.url}/other")
    ok("cp", f"{server.url}/other", tmp_path / "other")
    assert digest(tmp_path / "other") == digest(tmp_path / "source")


def test_resume_compares_what_a_stock_server_has(node, place, base, tmp_path):
    """A stock server does not mark unfinished files: the part is compared, by its checksum if the server has one."""
    size, begun = 9 * MIB + 7, 5 * MIB + 3
    (tmp_path / "source").write_bytes(content(size))
    ok("cp", tmp_path / "source", f"{place}/source")
    with Xrootd(base / "cp-resume-stock") as peer:
        for number, (source, verify) in enumerate(product((tmp_path / "source", f"{place}/source"), ([], ["--no-verify"]))):
            target = f"{peer.url}/resumed{number}"
            # It caches the checksum of a file by the second of its change, so the earlier answer must be of another second.
            age = partial(os.utime, peer.data / f"resumed{number}", (1_000_000_000, 1_000_000_000))
            (tmp_path / "part").write_bytes(content(size)[:begun])
            ok("cp", tmp_path / "part", target)
            age()
            said = [json.loads(line) for line in ok("cp", "--resume", "--json", *verify, source, target).splitlines()]
            assert said[0]["bytes"] == size - begun, said
            ok("cp", "-f", target, tmp_path / "back")
            assert digest(tmp_path / "back") == digest(tmp_path / "source")
            (tmp_path / "part").write_bytes(content(begun, 99))
            time.sleep(1.1)
            ok("cp", "-f", tmp_path / "part", target)
            age()
            done = weir("cp", "--resume", *verify, str(source), target)
            assert done.returncode == 12 and "not the beginning" in done.stderr, done
            ok("cp", "-f", target, tmp_path / "back")
            assert digest(tmp_path / "back") == digest(tmp_path / "part"), "it is as it was"


def test_damage_is_told_and_nothing_put_in_place(base, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(content(3 * MIB))
    with Weir(base / "cp-damaged") as server:
        ok("cp", source, f"{server.url}/file")
        server.stop()
        [piece] = [path for path in (server.data / "store" / "objects").rglob("*") if path.is_file() and path.suffix != ".crc"]
        with open(piece, "r+b") as file:
            file.seek(2 * MIB)
            file.write(b"damage")
        server.start()
        done = weir("cp", f"{server.url}/file", str(tmp_path / "back"))
        assert done.returncode not in (0, 2), done.stderr
        assert not (tmp_path / "back").exists() and not list(tmp_path.glob(".*part"))


def test_errors_say_what_would_help(node, place, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(b"x")
    for arguments, code, words in [
        (["cp", str(source)], 2, "required"),
        (["cp", f"{place}/nothing", str(tmp_path / "x")], 11, "nothing"),
        (["cp", str(tmp_path / "nothing"), place], 11, "nothing"),
        (["cp", "root://127.0.0.1:1//x", str(tmp_path / "x")], 15, "127.0.0.1:1"),
        (["cp", "root://", str(tmp_path / "x")], 2, "names no host"),
        (["cp", str(tmp_path), place], 2, "-r"),
        (["ls", f"{place}/nothing"], 11, "nothing"),
        (["mv", f"{place}/a", "/tmp/b"], 6, "copy it"),
    ]:
        done = weir(*arguments)
        assert done.returncode == code and words in done.stderr, (arguments, done.returncode, done.stderr)


@pytest.mark.peer_ok
def test_names(place, tmp_path):
    ok("mkdir", "-p", f"{place}/a/b")
    (tmp_path / "f").write_bytes(b"12345")
    ok("cp", tmp_path / "f", f"{place}/a/f")
    assert sorted(ok("ls", f"{place}/a").split()) == ["b/", "f"]
    entries = {line["name"]: line["info"] for line in map(json.loads, ok("ls", "--json", f"{place}/a").splitlines())}
    assert entries["f"]["size"] == 5 and entries["b"]["kind"] == "directory"
    assert "file" in ok("stat", f"{place}/a/f") and ok("cat", f"{place}/a/f") == "12345"
    ok("mv", f"{place}/a/f", f"{place}/a/b/g")
    assert ok("find", place, "--type", "f").strip().endswith("/a/b/g")
    assert ok("find", place, "--name", "g*", "--larger", "4B").count("\n") == 1
    assert ok("find", place, "--name", "g*", "--larger", "5B") == ""
    assert ok("du", place).split()[:2] == ["5", "1"]
    here, there = ok("checksum", "-a", "adler32", tmp_path / "f").split()[0], ok("checksum", "-a", "adler32", f"{place}/a/b/g").split()[0]
    assert here == there
    assert "%" in ok("df", place)
    ok("touch", f"{place}/new")
    assert ok("ls", f"{place}").split() == ["a/", "new"] or sorted(ok("ls", place).split()) == ["a/", "new"]
    ok("xattr", "set", f"{place}/new", "colour", "blue green")
    assert ok("xattr", "get", f"{place}/new", "colour") == "blue green\n"
    assert "colour=blue green" in ok("xattr", "ls", f"{place}/new")
    ok("xattr", "rm", f"{place}/new", "colour")
    assert weir("xattr", "get", f"{place}/new", "colour").returncode == 11
    assert weir("rm", f"{place}/a").returncode == 2
    ok("rm", "-r", f"{place}/a", f"{place}/new")
    assert ok("ls", place) == ""


def test_a_stopped_copy_leaves_nothing(node, place, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(content(200 * MIB))
    with Proxy(node.port) as proxy:
        half = threading.Event()
        proxy.at(UP, 100 * MIB, lambda: (proxy.stall(), half.set()))
        target = place.replace(node.url, proxy.url) + "/up"
        copy = subprocess.Popen([WEIR_BIN, "cp", str(source), target], stderr=subprocess.PIPE, text=True)
        assert half.wait(60) and copy.poll() is None
        for _ in range(100):  # only durable bytes are visible, and the server syncs once a second
            size = json.loads(ok("stat", "--json", f"{place}/up"))["info"]["size"]
            if size:
                break
            time.sleep(0.1)
        assert 0 < size < 200 * MIB, "it was in the middle"
        copy.terminate()
        time.sleep(0.5)
        proxy.resume()
        said = copy.communicate(timeout=60)[1]
        assert copy.returncode == 9 and proxy.count[UP] < 200 * MIB, said
    assert weir("stat", f"{place}/up").returncode == 11


def test_head_ends_it_quietly(place, tmp_path):
    for number in range(50):
        (tmp_path / f"f{number}").write_bytes(b"x")
    ok("cp", "-r", tmp_path, f"{place}/many")
    done = subprocess.run(["sh", "-c", f"{WEIR_BIN} ls -l {place}/many | head -1"], capture_output=True, text=True)
    assert done.stdout.count("\n") == 1 and done.stderr == ""


def test_sync_moves_only_what_differs(place, tmp_path):
    tree = tmp_path / "tree"
    for number in range(40):
        path = tree / f"d{number % 4}" / f"f{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content(1000 + number, number))
    (tree / "large").write_bytes(content(3 * MIB, 5))

    def sync(*flags, source=tree, target=f"{place}/mirror"):
        lines = [json.loads(line) for line in ok("sync", "--json", *flags, source, target).splitlines()]
        return {line["to"].rsplit("/", 1)[1]: line["state"] for line in lines[:-1] if line.get("state") != "skipped"}

    assert len(sync()) == 41 and sync() == {}
    (tree / "d1" / "f1").write_bytes(content(1001, 77))  # as long as before
    (tree / "d2" / "f2").write_bytes(b"shorter")
    (tree / "new").write_bytes(b"new")
    (tree / "d3" / "f3").unlink()
    would = weir("sync", "-n", "--delete", str(tree), f"{place}/mirror").stdout
    assert sorted(line.split()[0] for line in would.splitlines() if "compare" not in line) == ["copy", "remove", "replace"]
    assert sync("--delete") == {"f1": "copied", "f2": "copied", "new": "copied", "f3": "removed"}
    back = tmp_path / "back"
    assert len(sync(source=f"{place}/mirror", target=back)) == 41
    ours = {str(path.relative_to(tree)): digest(path) for path in tree.rglob("*") if path.is_file()}
    assert ours == {str(path.relative_to(back)): digest(path) for path in back.rglob("*") if path.is_file()}
    (back / "d1" / "f1").write_bytes(content(1001, 78))
    assert sync(source=f"{place}/mirror", target=back) == {"f1": "copied"}
    assert digest(back / "d1" / "f1") == ours["d1/f1"]


def test_links_and_touch(place, tmp_path):
    (tmp_path / "f").write_bytes(b"12345")
    ok("cp", tmp_path / "f", f"{place}/f")
    ok("ln", f"{place}/f", f"{place}/second")
    ok("ln", "-s", "f", f"{place}/soft")
    assert ok("cat", f"{place}/second") == ok("cat", f"{place}/soft") == "12345"
    ok("rm", f"{place}/f")
    assert ok("cat", f"{place}/second") == "12345" and weir("cat", f"{place}/soft").returncode == 11
    before = json.loads(ok("stat", "--json", f"{place}/second"))["info"]["mtime"]
    time.sleep(1.1)
    ok("touch", f"{place}/second")
    assert json.loads(ok("stat", "--json", f"{place}/second"))["info"]["mtime"] > before
    assert weir("ln", f"{place}/nothing", f"{place}/third").returncode == 11


def test_man_pages_and_completions(tmp_path):
    ok("generate", tmp_path)
    assert {"weir.1", "weir-cp.1", "weir-serve.1"} <= {path.name for path in (tmp_path / "man").iterdir()}
    if os.path.exists("/usr/bin/man"):
        page = subprocess.run(["man", "-l", tmp_path / "man" / "weir-cp.1"], capture_output=True, text=True)
        assert "resume" in page.stdout
    bash = tmp_path / "completions" / "weir.bash"
    script = f'source {bash}; COMP_WORDS=(weir c); COMP_CWORD=1; _weir weir c weir; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert "cp" in done.stdout and "cat" in done.stdout, done


def test_a_link_is_removed_and_not_what_it_leads_to(place, tmp_path):
    (tmp_path / "f").write_bytes(b"12345")
    ok("cp", tmp_path / "f", f"{place}/kept/f")
    ok("mkdir", f"{place}/d")
    ok("ln", "-s", "../kept", f"{place}/d/link")
    ok("ln", "-s", "nowhere", f"{place}/d/broken")
    ok("rm", "-r", f"{place}/d")
    assert ok("cat", f"{place}/kept/f") == "12345"
    here = tmp_path / "here"
    (here / "kept").mkdir(parents=True)
    (here / "kept" / "f").write_bytes(b"1")
    (here / "link").symlink_to(here / "kept")
    ok("rm", "-r", f"{here}/link/")
    assert (here / "kept" / "f").exists() and not (here / "link").is_symlink()
    assert weir("rm", "-r", f"{place.split('//cp-')[0]}//").returncode == 2


def test_nothing_is_copied_into_itself(place, tmp_path):
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "f").write_bytes(b"12345")
    ok("cp", "-r", tree, f"{place}/tree")
    for arguments in (
        ["cp", "-r", tree, tree / "sub"],
        ["cp", "-rf", f"{place}/tree", f"{place}/tree/sub"],
        ["cp", "-f", tree / "f", tree / "f"],
        ["cp", "-f", f"{place}/tree/f", f"{place}/tree/f"],
        ["sync", "--delete", f"{place}/tree", f"{place}"],
    ):
        done = weir(*map(str, arguments))
        assert done.returncode == 2 and "itself" in done.stderr, (arguments, done)
    assert ok("cat", f"{place}/tree/f") == "12345" and (tree / "f").read_bytes() == b"12345"


def test_two_copies_to_one_place(place, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).write_bytes(content(200 * MIB, len(name) + ord(name[0])))
        ok("cp", tmp_path / name, f"{place}/{name}")
    for _ in range(3):
        target = tmp_path / "target"
        target.unlink(missing_ok=True)
        copies = [subprocess.Popen([WEIR_BIN, "cp", f"{place}/{name}", str(target)], stderr=subprocess.DEVNULL) for name in ("one", "two")]
        codes = [copy.wait(60) for copy in copies]
        assert 0 in codes
        assert digest(target) in (digest(tmp_path / "one"), digest(tmp_path / "two"))
        assert not list(tmp_path.glob(".*part"))


def test_sync_here_sees_a_change_of_the_same_length(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "a" / "f").write_bytes(b"new")
    (tmp_path / "b" / "f").write_bytes(b"old")
    ok("sync", tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b" / "f").read_bytes() == b"new"


def test_resume_does_not_go_on_with_something_else(place, tmp_path):
    (tmp_path / "short").write_bytes(content(1 * MIB, 1))
    (tmp_path / "long").write_bytes(content(3 * MIB, 2))
    (tmp_path / "begun").write_bytes(content(3 * MIB, 2)[: 1 * MIB])
    ok("cp", tmp_path / "short", f"{place}/file")
    done = weir("cp", "--resume", str(tmp_path / "long"), f"{place}/file")
    assert done.returncode == 12, done
    ok("cp", f"{place}/file", tmp_path / "back")
    assert digest(tmp_path / "back") == digest(tmp_path / "short"), "it is as it was"
    ok("cp", tmp_path / "begun", f"{place}/begun")
    ok("cp", "--resume", tmp_path / "long", f"{place}/begun")
    ok("cp", f"{place}/begun", tmp_path / "whole")
    assert digest(tmp_path / "whole") == digest(tmp_path / "long")


@pytest.mark.long
def test_small_downloads_survive_a_killed_server(base, tmp_path):
    tree = tmp_path / "tree"
    tree.mkdir()
    for number in range(4000):
        (tree / f"f{number}").write_bytes(content(30_000, number))
    with Weir(base / "cp-killed-down") as server:
        ok("cp", "-r", tree, f"{server.url}/up")
        back = tmp_path / "back"
        copy = subprocess.Popen([WEIR_BIN, "cp", "--log", "info", "-r", f"{server.url}/up", str(back)], stderr=subprocess.PIPE, text=True)
        while not back.exists() or len(os.listdir(back)) < 300:
            time.sleep(0.005)
        server.kill()
        missing = 4000 - len(os.listdir(back))
        server.start()
        said = copy.communicate(timeout=120)[1]
        assert copy.returncode == 0 and missing > 0, said
        for number in range(4000):
            assert digest(tree / f"f{number}") == digest(back / f"f{number}"), number


def test_a_file_that_is_being_written_is_not_copied_as_if_it_were_whole(node, place, tmp_path):
    writer = subprocess.Popen([WEIR_BIN, "cp", "-", f"{place}/open"], stdin=subprocess.PIPE)
    writer.stdin.write(content(8 * MIB))
    writer.stdin.flush()
    for _ in range(100):
        if weir("stat", f"{place}/open").returncode == 0:
            break
        time.sleep(0.05)
    done = weir("cp", f"{place}/open", str(tmp_path / "x"))
    assert done.returncode != 0 and not (tmp_path / "x").exists(), done
    writer.stdin.close()
    assert writer.wait(30) == 0
    ok("cp", f"{place}/open", tmp_path / "x")


def test_links_at_a_server_are_followed(place, tmp_path):
    tree = tmp_path / "tree"
    (tree / "d").mkdir(parents=True)
    (tree / "d" / "f").write_bytes(b"12345")
    ok("cp", "-r", tree, f"{place}/tree")
    ok("ln", "-s", "d/f", f"{place}/tree/to-file")
    ok("ln", "-s", "d", f"{place}/tree/to-dir")
    ok("ln", "-s", "..", f"{place}/tree/d/up")
    said = weir("cp", "-r", f"{place}/tree", str(tmp_path / "back"))
    assert said.returncode == 0 and "d/up: it leads back" in said.stderr, said
    assert sorted(files(tmp_path / "back")) == ["d/f", "to-dir/f", "to-file"]
    assert (tmp_path / "back" / "to-dir" / "f").read_bytes() == b"12345"
    # a dangling link is an error, and the rest is copied
    ok("ln", "-s", "nowhere", f"{place}/tree/broken")
    said = weir("cp", "-r", f"{place}/tree", str(tmp_path / "more"))
    assert said.returncode == 11 and "broken" in said.stderr and (tmp_path / "more" / "to-file").exists(), said


def test_resume_of_a_file_that_lacks_only_its_end(own_node, tmp_path):
    """All bytes are there, but the close is missing: the file was marked as interrupted. `--resume` compares, completes, and copies
    nothing."""
    server = own_node("--grace-seconds", "0")
    data = content(6 * MIB + 7)
    (tmp_path / "source").write_bytes(data)
    for name, there in (("same", data), ("other", content(6 * MIB + 7, 2))):
        with Raw(server.port) as raw:
            handle = raw.open(f"/{name}", OPEN_NEW | OPEN_UPDATE)
            for offset in range(0, len(there), MIB):
                assert raw.write(handle, offset, there[offset : offset + MIB]).status == 0
            assert raw.request(SYNC, handle).status == 0
        for _ in range(100):
            if "interrupted" in weir("cat", f"{server.url}/{name}").stderr:
                break
            time.sleep(0.1)
        told = weir("checksum", f"{server.url}/{name}")
        assert told.returncode != 0 and "writer went away" in told.stderr, told
    said = [json.loads(line) for line in ok("cp", "--resume", "--json", tmp_path / "source", f"{server.url}/same").splitlines()]
    assert said[0]["bytes"] == 0 and said[0]["size"] == len(data) and said[0]["verified"], said
    ok("cp", f"{server.url}/same", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == data
    done = weir("cp", "--resume", str(tmp_path / "source"), f"{server.url}/other")
    assert done.returncode == 12 and "not the beginning" in done.stderr, "what is there is something else"
    assert "interrupted" in weir("cat", f"{server.url}/other").stderr, "as it was"


def test_resume_goes_on_with_what_it_has_written_itself(node, place, tmp_path):
    """The connection breaks, and the copy restarts in the same process. Others see only the durable part of its bytes, and the server may
    still be receiving more."""
    source, size = tmp_path / "source", 120 * MIB
    source.write_bytes(content(size))
    for number in range(4):
        with Proxy(node.port) as proxy:
            proxy.at(UP, (30 + 9 * number) * MIB, proxy.cut)
            target = f"{place.replace(node.url, proxy.url)}/up{number}"
            done = weir("cp", "--log", "info", "--json", "--resume", "--retry-for", "0", str(source), target)
            assert done.returncode == 0 and "copying" in done.stderr and proxy.cuts == 1, done
        [moved, _] = [json.loads(line) for line in done.stdout.splitlines()]
        assert moved["bytes"] < size and moved["verified"], moved
        ok("cp", "-f", f"{place}/up{number}", tmp_path / "back")
        assert digest(tmp_path / "back") == digest(source)


@pytest.mark.parametrize("wrong_at", ["the first", "the last"])
def test_resume_of_a_long_part_looks_at_its_ends(own_node, tmp_path, wrong_at):
    """The whole is compared at the end; a different file is noticed before anything is written."""
    server = own_node("--grace-seconds", "0")
    size, begun = 30 * MIB, 20 * MIB + 9
    (tmp_path / "source").write_bytes(content(size))
    part = bytearray(content(size)[:begun])
    part[0 if wrong_at == "the first" else -1] ^= 1
    begin(server, "/part", bytes(part))
    for _ in range(2):
        done = weir("cp", "--resume", str(tmp_path / "source"), f"{server.url}/part")
        assert done.returncode == 12 and "not the beginning" in done.stderr, done
        assert json.loads(ok("stat", "--json", f"{server.url}/part"))["info"]["size"] == begun
    ok("cp", "--resume", "--force", tmp_path / "source", f"{server.url}/part")
    ok("cp", f"{server.url}/part", tmp_path / "back")
    assert digest(tmp_path / "back") == digest(tmp_path / "source")


def test_connections_serve_for_several_files(node, place, tmp_path):
    """Large files one after the other, with a refused one among them, over the same connections."""
    (tmp_path / "file").write_bytes(content(2 * MIB))
    for number in range(12):
        ok("cp", tmp_path / "file", f"{place}/f{number}")
    (tmp_path / "back").mkdir()
    (tmp_path / "back" / "f5").write_bytes(b"there already")
    with Proxy(node.port) as proxy:
        places = [place.replace(node.url, proxy.url) + f"/f{number}" for number in range(12)]
        done = weir("cp", "-j", "1", *places, str(tmp_path / "back"))
        assert done.returncode == 12, done
        assert proxy.connections <= 4, "each file had a connection of its own"
    assert len(list((tmp_path / "back").iterdir())) == 12


def test_times_and_modes_are_kept(node, place, tmp_path):
    tree = tmp_path / "tree"
    tree.mkdir()
    for number, (name, size) in enumerate({"small": 1000, "large": 3 * MIB, "huge": 40 * MIB}.items()):
        (tree / name).write_bytes(content(size, number))
        (tree / name).chmod(0o640 + number)
        os.utime(tree / name, ns=(0, (1_000_000_000 + number) * 10**9 + 123_456_789))
    ok("cp", "-r", "-p", tree, f"{place}/kept")
    ok("cp", "-r", tree, f"{place}/not")
    ok("cp", "-p", "-f", tree / "small", f"{place}/not/small")
    ok("cp", "-p", "--tpc", f"{place}/kept/large", f"{place}/by-tpc")

    def mtime(name: str) -> int:
        return json.loads(ok("stat", "--json", f"{place}/{name}"))["info"]["mtime"]

    assert [mtime(f"kept/{name}") for name in ("small", "large", "huge")] == [1_000_000_000, 1_000_000_001, 1_000_000_002]
    assert mtime("by-tpc") == 1_000_000_001 and mtime("not/small") == 1_000_000_000
    assert mtime("not/large") > 1_700_000_000, "only where it was asked for"
    ok("cp", "-r", "-p", f"{place}/kept", tmp_path / "back")
    ok("cp", "-r", "-p", tree, tmp_path / "here")
    ok("cp", "-r", f"{place}/kept", tmp_path / "new")
    for name in ("small", "large", "huge"):
        ours, back, here = (path.joinpath(name).stat() for path in (tree, tmp_path / "back", tmp_path / "here"))
        assert (int(ours.st_mtime), ours.st_mode) == (int(back.st_mtime), back.st_mode), name
        assert (ours.st_mtime_ns, ours.st_mode) == (here.st_mtime_ns, here.st_mode), name
        assert (tmp_path / "new" / name).stat().st_mtime > 1_700_000_000
    # a time survives a restart of the server, as the file does
    node.restart()
    assert mtime("kept/huge") == 1_000_000_002


def test_times_are_not_kept_where_a_server_takes_none(base, tmp_path):
    (tmp_path / "f").write_bytes(b"12345")
    with Xrootd(base / "cp-no-times") as peer:
        done = weir("cp", "-p", str(tmp_path / "f"), f"{peer.url}/f")
        assert done.returncode == 0 and "takes no times" in done.stderr, done
        done = weir("cp", str(tmp_path / "f"), f"{peer.url}/g")
        assert done.returncode == 0 and done.stderr == "", done


def test_sync_by_time_reads_nothing_that_looks_alike(place, tmp_path):
    tree = tmp_path / "tree"
    tree.mkdir()
    for number in range(5):
        (tree / f"f{number}").write_bytes(content(2000 + number, number))
    (tree / "large").write_bytes(content(3 * MIB))

    def sync(*flags, source=tree, target=f"{place}/mirror"):
        lines = [json.loads(line) for line in ok("sync", "--json", "--mtime", *flags, source, target).splitlines()]
        return {line["to"].rsplit("/", 1)[1]: line["state"] for line in lines[:-1]}

    for target in (f"{place}/mirror", tmp_path / "here"):
        assert len(sync(target=target)) == 6 and sync(target=target) == {}
        os.utime(tree / "f1", (1_000_000_000, 1_000_000_000))  # touched, but unchanged
        (tree / "f2").write_bytes(content(2002, 99))  # changed, with the same length
        os.utime(tree / "f2", (1_000_000_001, 1_000_000_001))
        assert sync(target=target) == {"f1": "skipped", "f2": "copied"} and sync(target=target) == {}
        (tree / "f1").touch()
        (tree / "f2").write_bytes(content(2002, 2))
    back = tmp_path / "back"
    ok("sync", "--mtime", tree, f"{place}/mirror")
    assert len(sync(source=f"{place}/mirror", target=back)) == 6 and sync(source=f"{place}/mirror", target=back) == {}
    assert files(back) == files(tree)


@pytest.mark.peer_ok
def test_filters(place, tmp_path):
    tree = tmp_path / "tree"
    for name in ("a.root", "a.tmp", "keep.tmp", "logs/x.log", "d/logs/y.root", "d/e/b.tmp", "d/e/c.root"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(name.encode())
    chosen = ["--include", "keep.tmp", "--exclude", "*.tmp", "--exclude", "/logs/"]
    ok("cp", "-r", *chosen, tree, f"{place}/up")
    ok("cp", "-r", f"{place}/up", tmp_path / "back")
    assert sorted(files(tmp_path / "back")) == ["a.root", "d/e/c.root", "d/logs/y.root", "keep.tmp"]
    ok("cp", "-r", tree, f"{place}/all")
    ok("cp", "-r", "--include", "*/", "--include", "*.root", "--exclude", "*", f"{place}/all", tmp_path / "roots")
    assert sorted(files(tmp_path / "roots")) == ["a.root", "d/e/c.root", "d/logs/y.root"]
    # files that the filters exclude stay at the target, with their directories
    (tree / "a.root").unlink()
    (tree / "d" / "e" / "c.root").unlink()
    (tree / "d" / "e" / "b.tmp").unlink()
    (tree / "d" / "e").rmdir()
    ok("sync", "--delete", "--exclude", "*.tmp", "--exclude", "/logs/", tree, f"{place}/all")
    ok("cp", "-r", f"{place}/all", tmp_path / "left")
    assert sorted(files(tmp_path / "left")) == ["a.tmp", "d/e/b.tmp", "d/logs/y.root", "keep.tmp", "logs/x.log"]
    assert weir("cp", "-r", "--exclude", "[", str(tree), str(tmp_path / "x")).returncode == 2


def test_rm_goes_on(node, place, tmp_path):
    (tmp_path / "f").write_bytes(b"1")
    for name in ("a", "b", "d/e/f", "d/g"):
        ok("cp", tmp_path / "f", f"{place}/{name}")
    done = weir("rm", f"{place}/a", f"{place}/nothing", f"{place}/b")
    assert done.returncode == 11 and done.stderr.count("weir rm:") == 1 and "nothing" in done.stderr, done
    assert ok("ls", place).split() == ["d/"]
    done = weir("rm", f"{place}/nothing", f"{place}/d")
    assert done.returncode == 6 and done.stderr.count("weir rm:") == 2, "two kinds of failure"
    assert weir("rm", "-f", f"{place}/nothing").returncode == 0
    ok("rm", "-r", f"{place}/d")
    # locally: a file that cannot be removed (it is read-only for all) keeps nothing else
    here = tmp_path / "here"
    for name in ("a/x", "b/locked/y", "c/z"):
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_bytes(b"1")
    locked = subprocess.run(["chattr", "+i", str(here / "b" / "locked" / "y")], capture_output=True)
    try:
        done = weir("rm", "-r", str(here / "none"), str(here))
        if locked.returncode == 0:
            assert done.returncode == 6 and sorted(files(here)) == ["b/locked/y"], done
            assert "locked/y" in done.stderr and done.stderr.count("weir rm:") == 2, done
        else:
            assert done.returncode == 11 and not here.exists(), done
    finally:
        subprocess.run(["chattr", "-i", str(here / "b" / "locked" / "y")], capture_output=True)
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "f").write_bytes(b"1")
    (tmp_path / "top" / "d").mkdir(parents=True)
    (tmp_path / "top" / "d" / "link").symlink_to(tmp_path / "kept")
    ok("rm", "-r", tmp_path / "top")
    assert not (tmp_path / "top").exists() and (tmp_path / "kept" / "f").exists()


def test_rm_at_a_server_goes_on_below(tmp_path):
    """One of a directory's three names cannot be removed. The others are removed, the directory stays, and there is one error."""
    removed = []

    def answers(peer, code, stream, _, data):
        path = data.split(b"?")[0].decode()
        if code == STAT:
            peer.answer(stream, b"9 4096 51 1000000000\0" if path == "/d" else b"7 5 48 1\0")
        elif code == DIRLIST:
            peer.answer(stream, b".\n0 0 0 0\na\n7 5 48 1\nb\n8 5 48 1\nc\n9 5 48 1\0")
        elif code in (RM, RMDIR):
            if path in ("/d", "/d/b"):
                peer.refuse(stream, 3016 if path == "/d" else 3010, f"cannot remove {path}")
            else:
                removed.append(path)
                peer.answer(stream)
        else:
            return False
        return True

    with FakeServer(answers=answers) as server:
        done = weir("rm", "-r", f"{server.url}/d")
    assert removed == ["/d/a", "/d/c"] and done.returncode == 13, done
    assert done.stderr.count("weir rm:") == 1 and "/d/b" in done.stderr, done


def test_rm_does_not_go_around_us(place, tmp_path):
    """Names that `.*` matches in a shell, and parent directories: none of them is removed."""
    here = tmp_path / "top" / "here"
    for name in ("f", "sub/g", "../beside/h"):
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_bytes(b"1")
    all_of_it = files(tmp_path)

    def rm(*arguments: object) -> subprocess.CompletedProcess:
        return subprocess.run([WEIR_BIN, "rm", "-rf", *map(str, arguments)], cwd=here, capture_output=True, text=True)

    around = (".", "..", "./", "../", "sub/..", "sub/../..", "sub/.", "..//", here, f"{here}/", tmp_path, f"{here}/../../top", "../here")
    for path in around:
        done = rm(path)
        assert done.returncode == 2 and str(path).rstrip("/") in done.stderr, (path, done)
        assert files(tmp_path) == all_of_it, path
    # the others are still removed, and a link to the working directory is only a link
    (here / "link").symlink_to(here)
    assert rm("..", "sub", "link", "../beside").returncode == 6, "2 would say that nothing was touched"
    assert sorted(files(tmp_path)) == ["top/here/f"] and not (here / "link").is_symlink()
    ok("cp", here / "f", f"{place}/d/e/f")
    for path in (f"{place}/d/..", f"{place}/d/e/../", f"{place}/d/."):
        assert weir("rm", "-r", path).returncode == 2
    assert ok("cat", f"{place}/d/e/f") == "1"


def test_resume_looks_at_what_is_here(place, tmp_path):
    """A copy continues an earlier part if that is a beginning of the source, also if no server's checksum confirms it at the end."""
    size, begun = 20 * MIB + 5, 11 * MIB
    source, back, part = tmp_path / "source", tmp_path / "back", tmp_path / ".back.weir-part"
    source.write_bytes(content(size))
    ok("cp", source, f"{place}/file")
    for how, beginning, moved in (
        ([source], content(size)[:begun], size - begun),
        ([source], content(begun, 99), size),
        (["--no-verify", f"{place}/file"], content(begun, 99), size),
        (["--no-verify", f"{place}/file"], content(size)[:begun], size),
    ):
        part.write_bytes(beginning)
        said = [json.loads(line) for line in ok("cp", "--resume", "--json", *how, back).splitlines()]
        assert digest(back) == digest(source), how
        assert said[0]["bytes"] == moved, (how, said)
        back.unlink()


@pytest.mark.parametrize("told", ["differs", "nothing", "none", "same"])
def test_a_server_to_server_copy_that_cannot_be_compared_is_no_success(told):
    """Both servers have a checksum. Only a server that says that it keeps none is exempt."""
    removed = []

    def answers(peer, code, stream, parameters, data):
        path = data.split(b"?")[0].decode()
        kind = parameters[1] if code == QUERY else None
        if kind == 7:
            peer.answer(stream, b"0:crc32c\n" if data == b"chksum" else data + b"\n")
        elif kind == 3 and path == "/b":
            peer.answer(stream, b"crc32c 00000001\0")
        elif kind == 3 and told in ("same", "differs"):
            peer.answer(stream, b"crc32c 00000001\0" if told == "same" else b"crc32c 00000002\0")
        elif kind == 3:
            peer.refuse(stream, 3013 if told == "none" else 3007, "cannot read it")
        elif code == RM:
            removed.append(path)
            peer.answer(stream)
        else:
            return False
        return True

    with FakeServer(b"12345", answers) as server:
        for force in ([], ["-f"]):
            done = weir("cp", "--tpc", *force, f"{server.url}/a", f"{server.url}/b")
            assert done.returncode == {"differs": 16, "nothing": 6, "none": 0, "same": 0}[told], done
            if told == "differs":
                assert "it may be what somebody else has put there" in done.stderr and "--force" in done.stderr, done
    assert removed == [], "what is complete may be somebody else's"


def test_a_stopped_sync_removes_nothing_more(tmp_path):
    source, target, count = tmp_path / "source", tmp_path / "target", 60_000
    for path in (source, target):
        path.mkdir()
    for number in range(count):
        (target / f"f{number:05}").touch()
    sync = subprocess.Popen([WEIR_BIN, "sync", "--delete", str(source), str(target)], stderr=subprocess.PIPE, text=True)
    last = target / f"f{count - 1:05}"  # goes first
    while last.exists():
        assert sync.poll() is None
        time.sleep(0.001)
    sync.send_signal(signal.SIGINT)
    said = sync.communicate(timeout=30)[1]
    assert sync.returncode == 9 and 0 < len(os.listdir(target)) < count, said


def test_sync_here_leaves_links_that_the_filters_leave_out(tmp_path):
    source, target, big = tmp_path / "source", tmp_path / "target", tmp_path / "big"
    for name in ("source/logs/l", "source/x/f", "target/old/f", "target/f.tmp", "big/data"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    for name in ("logs", "gone", "old/logs", "a.tmp"):
        (target / name).symlink_to(big)
    ok("sync", "--delete", "--exclude", "logs/", "--exclude", "*.tmp", source, target)
    assert sorted(str(path.relative_to(target)) for path in target.rglob("*")) == ["a.tmp", "f.tmp", "logs", "old", "old/logs", "x", "x/f"]
    # a file may replace a link that only a rule for directories keeps
    (source / "logs" / "l").unlink()
    (source / "logs").rmdir()
    (source / "logs").write_bytes(b"a file now")
    ok("sync", "--delete", "--exclude", "logs/", source, target)
    assert not (target / "logs").is_symlink() and (target / "logs").read_bytes() == b"a file now"
    assert os.listdir(big) == ["data"]


def test_sync_does_not_fill_what_a_link_leads_to(tmp_path):
    source, target, elsewhere = tmp_path / "source", tmp_path / "target", tmp_path / "elsewhere"
    for path in (source / "d", target, elsewhere):
        path.mkdir(parents=True)
    (source / "d" / "f").write_bytes(b"1")
    (source / "g").write_bytes(b"2")
    (target / "d").symlink_to(elsewhere)
    (target / "h").write_bytes(b"3")
    for _ in range(2):
        done = weir("sync", "--delete", str(source), str(target))
        assert done.returncode == 12 and "target/d is in the way" in done.stderr and "nothing was removed" in done.stderr, done
        assert sorted(os.listdir(target)) == ["d", "g", "h"] and os.listdir(elsewhere) == []
    (target / "d").unlink()
    ok("sync", "--delete", source, target)
    assert files(target) == files(source)


def test_what_may_have_been_done_is_not_asked_for_again():
    """The connection is lost before the answer. A second request would be refused, because the first one has succeeded."""

    def answers(peer, code, stream, parameters, data):
        if code == FATTR or code == QUERY and parameters[1] == 32:
            peer.socket.close()
            return True
        return False

    with FakeServer(answers=answers) as server:
        file = f"{server.url}/f"
        for arguments, code in ((["xattr", "rm", file, "colour"], FATTR), (["ln", file, f"{server.url}/g"], QUERY)):
            done = weir(*arguments)
            assert done.returncode == 15 and "lost" in done.stderr and server.count(code) == 1, (done, server.requests)


def test_a_copy_that_was_not_compared_says_so(tmp_path):
    data, back = content(600 * KIB), tmp_path / "back"
    with FakeServer(data) as server:
        done = weir("cp", "--quiet", f"{server.url}/file", str(back))
        assert done.returncode == 0 and back.read_bytes() == data
        assert "not all copied files were compared" in done.stderr and f"127.0.0.1:{server.port} gives no checksum" in done.stderr, done
        done = weir("cp", "-f", "--no-verify", f"{server.url}/file", str(back))
        assert done.returncode == 0 and done.stderr == "", "that was wanted"
    done = weir("cp", str(back), str(tmp_path / "more"))
    assert done.returncode == 0 and done.stderr == "", "nobody was to be asked"


def test_what_is_gone_on_with_is_not_whole_before_its_source_is_known_to_be(own_node, node, tmp_path):
    """A copy between servers continues an earlier part, which is as long as the source but differs at its end. It is killed before it has
    removed that end."""
    target, path = own_node("--grace-seconds", "1"), f"/{tmp_path.name}-gone-on-with"
    data = content(2 * MIB)
    (tmp_path / "source").write_bytes(data)
    ok("cp", tmp_path / "source", node.url + path)
    with Raw(target.port) as earlier:
        handle = earlier.open(path, OPEN_NEW | OPEN_UPDATE)
        assert earlier.write(handle, 0, data[:-10] + b"otherwise.").status == OK

    def is_refused() -> bool:
        done = weir("cp", "-f", target.url + path, str(tmp_path / "back"))
        return done.returncode != 0 and "interrupted" in done.stderr

    until(is_refused)
    with Proxy(target.port) as proxy:
        process = None

        def kill(go_on) -> None:
            proxy.stall(DOWN)
            go_on()
            time.sleep(0.3)
            process.kill()
            proxy.cut()
            proxy.resume()

        proxy.when(UP, b"weir.resume=1", kill)
        process = subprocess.Popen([WEIR_BIN, "cp", "--resume", node.url + path, proxy.url + path])
        assert process.wait(30) == -signal.SIGKILL
    # Longer than the server waits for its writer.
    time.sleep(3)
    until(is_refused)
    ok("cp", "--resume", node.url + path, target.url + path)
    ok("cp", target.url + path, tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == data
