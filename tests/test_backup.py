"""`weir backup` of a running node under load, and `weir restore` after its namespace is lost. Everything committed before the backup is
restored byte for byte. Interrupted backups and restores can be repeated; torn and damaged ones are recognised."""

import json
import os
import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest
from clients import Xrdfs, xrdcp
from content import KIB, MIB, adler32, content, write
from harness import READY_SECONDS, WEIR_BIN, Killer, StartFailed, Weir, until, weir
from test_damage import flip, places_of, put

DAMAGED = 5


def backup(server: Weir, target: Path, *flags: str) -> dict:
    done = weir("backup", "--data", str(server.data), str(target), "--json", *flags)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def restore(server: Weir, target: Path, *flags: str) -> tuple[int, dict]:
    done = weir("restore", str(target), "--data", str(server.data), "--json", *flags)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout)


def listed(target: Path, *flags: str) -> list[dict]:
    return json.loads(weir("restore", str(target), "--list", "--json", *flags).stdout)["backups"]


def all_there(server: Weir, contents: dict[str, bytes], tmp_path: Path) -> None:
    fs = Xrdfs(server.url)
    for path, data in contents.items():
        xrdcp("-f", f"{server.url}{path}", tmp_path / "back").ok()
        assert (tmp_path / "back").read_bytes() == data, path
        assert adler32(data) in fs("query", "checksum", path).ok().out


class Load:
    """A client that writes, replaces and removes files while this lasts; it knows what was acknowledged."""

    def __init__(self, server: Weir, home: Path):
        self.server, self.home = server, home
        self.stop = threading.Event()
        self.closed: dict[str, bytes] = {}
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        fs = Xrdfs(self.server.url)
        number = 0
        while not self.stop.is_set():
            size = (2000, 30 * KIB, 300 * KIB)[number % 3]
            path = f"/load/d{number % 4}/file{number}"
            source = write(self.home / "load", path, size)
            xrdcp("-p", source, f"{self.server.url}{path}").ok()
            self.closed[path] = content(path, size)
            if number % 5 == 4:
                gone = f"/load/d{(number - 2) % 4}/file{number - 2}"
                fs("rm", gone).ok()
                del self.closed[gone]
            number += 1

    def __enter__(self) -> "Load":
        self.thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.stop.set()
        self.thread.join()


@pytest.fixture
def server(own_node, tmp_path):
    return own_node("--config", str(write_config(tmp_path)))


def write_config(tmp_path: Path) -> Path:
    """Small journal segments: what a node goes through in days happens in seconds."""
    path = tmp_path / "weir.toml"
    path.write_text('journal.segment_size = "1MiB"\nspace.ballast = "1MiB"\n')
    return path


def lose_the_namespace(server: Weir) -> None:
    shutil.rmtree(server.data / "namespace")


@pytest.mark.parametrize("end", [pytest.param("stopped", marks=pytest.mark.long), "killed"])
def test_backups_under_load_and_a_lost_namespace(server, tmp_path, end):
    target = tmp_path / "backups"
    with Load(server, tmp_path) as load:
        kinds = []
        for number in range(5):
            time.sleep(2.5)
            # A busy machine may need longer for enough files.
            until(lambda enough=4 * number: len(load.closed) >= enough, 60, lambda: f"{len(load.closed)} files")
            before = dict(load.closed)
            kinds.append(backup(server, target)["kind"])
    assert kinds[0] == "full" and "delta" in kinds, kinds
    committed = {path: data for path, data in before.items() if path in load.closed}
    assert len(committed) > 10
    server.stop() if end == "stopped" else server.kill()
    lose_the_namespace(server)
    code, report = restore(server, target)
    assert code == 0 and report["nothing_lost"], report
    server.start()
    all_there(server, load.closed, tmp_path)
    server.stop()
    assert weir("fsck", "--data", str(server.data)).returncode == 0


@pytest.mark.parametrize("log", ["there", "lost"])
def test_a_record_between_two_backups(server, tmp_path, log):
    """The journal has the records after a backup. If it is lost, only the backup remains."""
    target = tmp_path / "backups"
    kept = {"/before": put(server, "/before", 3000, tmp_path)}
    first = backup(server, target)
    kept["/wanted"] = put(server, "/wanted", 200 * KIB, tmp_path)
    record = backup(server, tmp_path / "elsewhere")["upto"]
    put(server, "/unwanted", 200 * KIB, tmp_path)
    Xrdfs(server.url)("rm", "/before").ok()
    assert backup(server, target)["upto"] > record > first["upto"]
    put(server, "/last", 1000, tmp_path)
    server.stop()
    lose_the_namespace(server)
    if log == "lost":
        shutil.rmtree(server.data / "journal")
    done = weir("restore", str(target), "--data", str(server.data), "--json", "--until", str(record))
    report = json.loads(done.stdout)
    assert done.returncode == 1 and report["backup"]["number"] == 1 and not report["nothing_lost"], done
    assert report["record"] == (record if log == "there" else first["upto"])
    server.start()
    fs = Xrdfs(server.url)
    assert sorted(fs.names("/")) == (["before", "wanted"] if log == "there" else ["before"])
    if log == "there":
        assert weir_bytes(server, "/wanted", tmp_path) == kept["/wanted"]
    put(server, "/new", 100 * KIB, tmp_path)


@pytest.mark.parametrize("json_wanted", [True, False])
def test_a_record_that_is_not_there_yet_is_the_logs_end(server, tmp_path, json_wanted):
    """Nothing is lost then, and no loss is reported; the node keeps its incarnation."""
    target = tmp_path / "backups"
    kept = {"/before": put(server, "/before", 3000, tmp_path)}
    first = backup(server, target)
    kept["/after"] = put(server, "/after", 200 * KIB, tmp_path)
    server.stop()
    lose_the_namespace(server)
    beyond = 1_000_000_000
    done = weir("restore", str(target), "--data", str(server.data), "--until", str(beyond), *(["--json"] if json_wanted else []))
    assert done.returncode == 0 and "begins incarnation" not in done.stderr, done
    if json_wanted:
        report = json.loads(done.stdout)
        assert report["nothing_lost"] and first["upto"] < report["record"] < beyond, report
    else:
        assert "nothing is lost" in done.stdout and "later changes are lost" not in done.stdout, done.stdout
        assert f"there is no record {beyond}: the journal ends with" in done.stdout
    server.start()
    all_there(server, kept, tmp_path)


def objects(server: Weir) -> set[Path]:
    """The files of its large objects."""
    return {path for path in (server.data / "store/objects").rglob("*") if path.is_file()}


def weir_bytes(server: Weir, path: str, tmp_path: Path) -> bytes:
    xrdcp(f"{server.url}{path}", tmp_path / "back").ok()
    return (tmp_path / "back").read_bytes()


def test_an_older_state_and_what_is_not_in_it(server, tmp_path):
    target = tmp_path / "backups"
    Xrdfs(server.url)("mkdir", "/kept").ok()
    kept = {path: put(server, path, size, tmp_path) for path, size in (("/kept/a", 3000), ("/kept/b", MIB), ("/kept/empty", 0))}
    before = objects(server)
    gone = put(server, "/gone", 200 * KIB, tmp_path)
    of_gone = objects(server) - before
    first = backup(server, target)
    put(server, "/later", 200 * KIB, tmp_path)
    Xrdfs(server.url)("rm", "/gone").ok()
    second = backup(server, target)
    assert (first["kind"], second["kind"], second["after"]) == ("full", "delta", first["upto"])
    # The removed object goes.
    until(lambda: not of_gone & objects(server), READY_SECONDS, server.log_text)
    server.stop()
    lose_the_namespace(server)
    done = weir("restore", str(target), "--data", str(server.data), "--json", "--until", str(first["upto"]))
    code, report = done.returncode, json.loads(done.stdout)
    assert code == 1 and not report["nothing_lost"] and report["backup"]["number"] == 1
    assert "begins incarnation 2" in done.stderr and "incarnation = 2\n" in (server.data / "FORMAT").read_text()
    kinds = {finding["kind"]: finding for finding in report["listed"]}
    assert kinds["object-missing"]["path"] == "/gone" and "made as /later" in kinds["unreferenced"]["what"], report
    server.start()
    all_there(server, kept, tmp_path)
    fs = Xrdfs(server.url)
    assert not fs.exists("/later") and fs.exists("/gone")
    # Numbers of objects are not given out again.
    new = {f"/new{number}": put(server, f"/new{number}", 100 * KIB, tmp_path) for number in range(3)}
    put(server, "/gone", len(gone), tmp_path)
    server.restart()
    all_there(server, {**kept, **new}, tmp_path)
    server.stop()
    found = json.loads(weir("fsck", "--data", str(server.data), "--json").stdout)
    assert set(found["kinds"]) == {"unreferenced"}, "the content of /later is kept, and nothing else is wrong"
    # A new backup works. It starts from the beginning, because the old backups belong to another history.
    server.start()
    assert backup(server, target)["number"] == 3


@pytest.mark.parametrize("lost", ["namespace and journal", "all but the contents", "FORMAT too"])
def test_other_disasters(server, tmp_path, lost):
    target = tmp_path / "backups"
    sizes = {"/f0": 10, "/f1": 40 * KIB, "/f2": 70 * KIB, "/f3": 3 * MIB}
    files = {path: put(server, path, size, tmp_path) for path, size in sizes.items()}
    # Small files move into segments.
    small = [data for data in files.values() if len(data) <= 64 * KIB]
    until(lambda: all(places_of(server.data / "store/segments", data) for data in small), READY_SECONDS, server.log_text)
    backup(server, target)
    server.stop()
    for name in ["namespace", "journal"] + (["store/index", "store/checkpoint"] if lost != "namespace and journal" else []):
        shutil.rmtree(server.data / name)
    if lost == "FORMAT too":
        (server.data / "FORMAT").unlink()
    with pytest.raises(StartFailed):
        server.start()
    code, report = restore(server, target)
    assert code == 0 and not report["nothing_lost"], report
    server.start()
    all_there(server, files, tmp_path)
    put(server, "/new", MIB, tmp_path)
    server.restart()
    all_there(server, files, tmp_path)


def test_a_new_data_directory_gets_the_names_alone(server, tmp_path):
    target = tmp_path / "backups"
    put(server, "/file", 100 * KIB, tmp_path)
    server.stop()
    backup(server, target)  # of a stopped node
    server.data = tmp_path / "elsewhere"
    code, report = restore(server, target)
    assert code == 1 and report["kinds"]["object-missing"]["found"] == 1
    server.start()
    assert Xrdfs(server.url).size("/file") == 100 * KIB
    xrdcp(f"{server.url}/file", tmp_path / "back").fails("error")


def test_interrupted_backups_leave_the_others_as_they_are(server, tmp_path):
    target = tmp_path / "backups"
    for number in range(40):
        Xrdfs(server.url)("mkdir", "-p", f"/dir{number}/with/some/more").ok()
    files = {"/file": put(server, "/file", 5000, tmp_path)}
    command = ["backup", "--data", server.data, target]
    killer = Killer(7, *command)
    for number in range(100):
        if killer.killed >= 10:
            break
        files[f"/n{number}"] = put(server, f"/n{number}", 5000, tmp_path)
        killer.run(*command, *(["--full"] if number % 2 else []))
        assert all(one["trouble"] is None for one in listed(target, "--verify"))
    assert killer.killed >= 10
    backup(server, target)
    assert not list(target.glob("*.tmp"))
    server.stop()
    lose_the_namespace(server)
    assert restore(server, target)[0] == 0
    server.start()
    all_there(server, files, tmp_path)


def test_a_node_that_dies_under_a_backup_leaves_no_half_of_one(server, tmp_path):
    target = tmp_path / "backups"
    put(server, "/file", 5000, tmp_path)
    backup(server, target)
    command = [WEIR_BIN, "backup", "--data", server.data, target, "--full"]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    server.kill()
    child.wait(60)
    backups = listed(target, "--verify")
    assert all(one["trouble"] is None for one in backups) and backups[0]["number"] == 1


def test_damaged_and_foreign_backups_are_refused_before_anything_is_touched(server, own_node, tmp_path):
    target = tmp_path / "backups"
    put(server, "/file", 5000, tmp_path)
    backup(server, target)
    put(server, "/file2", 5000, tmp_path)
    backup(server, target)
    other = own_node()
    refused = weir("backup", "--data", str(other.data), str(target))
    assert refused.returncode == 3 and "another node" in refused.stderr
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/chapter").write_text("x")
    refused = weir("backup", "--data", str(other.data), str(tmp_path / "thesis"))
    assert refused.returncode == 3 and "chapter" in refused.stderr
    other.stop()
    refused = weir("restore", str(target), "--data", str(other.data))
    assert refused.returncode == 3 and "another node" in refused.stderr
    refused = weir("restore", str(target), "--data", str(server.data))
    assert refused.returncode == 4, "a running node is left alone"
    server.stop()
    before = sorted(path for path in server.data.rglob("*") if "lock" not in path.name)
    for name in ("00000001-full.ckpt", "00000002-delta.ckpt"):
        flip(target / name, 150)
        refused = weir("restore", str(target), "--data", str(server.data))
        assert refused.returncode == DAMAGED and name in refused.stderr, refused.stderr
        assert weir("restore", str(target), "--verify").returncode == 1
        flip(target / name, 150)
    assert sorted(path for path in server.data.rglob("*") if "lock" not in path.name) == before
    whole = (target / "00000002-delta.ckpt").read_bytes()
    (target / "00000002-delta.ckpt").write_bytes(whole[:-100])
    refused = weir("restore", str(target), "--data", str(server.data))
    assert refused.returncode == DAMAGED
    server.start()
    assert backup(server, target)["kind"] == "full", "a chain with a torn link is not gone on with"
    # The state before the damage can still be restored.
    server.stop()
    lose_the_namespace(server)
    first = listed(target)[0]
    assert restore(server, target, "--until", str(first["upto"]))[1]["backup"]["number"] == 1


def test_old_backups_are_removed_when_asked(server, tmp_path):
    target = tmp_path / "backups"
    for number in range(6):
        put(server, f"/file{number}", 5000, tmp_path)
        backup(server, target, *(["--full"] if number % 2 == 0 else []))
    fulls = [one["number"] for one in listed(target) if one["kind"] == "full"]
    assert backup(server, target, "--full", "--keep", "2")["removed"] == fulls[-1] - 1
    left = listed(target, "--verify")
    assert [one["number"] for one in left] == list(range(fulls[-1], 8)) and all(one["trouble"] is None for one in left)


def test_an_interrupted_restore_is_not_started_on_and_done_again(server, tmp_path):
    target = tmp_path / "backups"
    files = {f"/file{number}": put(server, f"/file{number}", 5000, tmp_path) for number in range(10)}
    backup(server, target)
    server.stop()
    lose_the_namespace(server)
    command = ["restore", target, "--data", server.data]
    killer = Killer(3, *command)
    unfinished = 0
    for _ in range(100):
        if unfinished > 2:
            break
        shutil.rmtree(server.data / "namespace", ignore_errors=True)
        killer.run(*command)
        if (server.data / "RESTORING").exists():
            unfinished += 1
            with pytest.raises(StartFailed) as refused:
                server.start()
            assert refused.value.code == DAMAGED and "weir restore" in refused.value.log
            assert weir("fsck", "--data", str(server.data)).returncode == DAMAGED
    assert unfinished > 2, f"killed {killer.killed} times"
    assert restore(server, target)[0] == 0
    server.start()
    all_there(server, files, tmp_path)


class Halfway:
    """Kills `weir restore` at a random moment, and notes its progress."""

    def __init__(self, server: Weir, seed: int, *command: str | Path):
        self.server, self.command = server, command
        self.killer = Killer(seed, *command)
        self.begun = self.placed = 0

    def kill(self) -> bool:
        """Returns whether the restore was in progress."""
        self.killer.run(*self.command)
        mark = self.server.data / "RESTORING"
        if not mark.exists():
            return False
        self.begun += 1
        self.placed += "placed nothing" not in mark.read_text()
        return True


def state(server: Weir, tmp_path: Path) -> dict[str, bytes | None]:
    """The node's files; None: they cannot be read."""
    server.start()
    fs = Xrdfs(server.url)
    found = {}
    for name in fs.names("/"):
        (tmp_path / "back").unlink(missing_ok=True)
        copied = weir("cp", f"{server.url}/{name}", str(tmp_path / "back"))
        found[name] = (tmp_path / "back").read_bytes() if copied.returncode == 0 else None
    server.stop()
    return found


def test_an_interrupted_restore_to_a_record_gives_what_an_undisturbed_one_gives(server, tmp_path):
    """Killed at random moments, again and again: the journal then has records of the attempts behind its end, and may have been trimmed."""
    target = tmp_path / "backups"
    kept = {"before": put(server, "/before", 3000, tmp_path)}
    backup(server, target)
    kept["wanted"] = put(server, "/wanted", 200 * KIB, tmp_path)
    record = backup(server, tmp_path / "elsewhere")["upto"]
    put(server, "/unwanted", 200 * KIB, tmp_path)
    Xrdfs(server.url)("rm", "/before").ok()
    put(server, "/last", 1000, tmp_path)
    server.stop()
    lose_the_namespace(server)
    asked = ("--until", str(record))
    lost, before = server.data, tmp_path / "lost"
    shutil.copytree(lost, before, ignore=shutil.ignore_patterns("control"))
    code, undisturbed = restore(server, target, *asked)
    assert undisturbed["record"] == record and not undisturbed["nothing_lost"]
    expected = state(server, tmp_path)
    assert expected["wanted"] == kept["wanted"] and "unwanted" not in expected and "before" in expected
    halfway = Halfway(server, 11, "restore", target, "--data", server.data, *asked)
    for _ in range(60):
        if halfway.begun > 5 and halfway.placed > 1:
            break
        shutil.rmtree(lost)
        shutil.copytree(before, lost)
        if not any([halfway.kill() for _ in range(2)]) or not (lost / "RESTORING").exists():
            continue
        with pytest.raises(StartFailed) as refused:
            server.start()
        assert refused.value.code == DAMAGED and "weir restore" in refused.value.log
        again, report = restore(server, target, *asked)
        assert (again, report["record"], report["nothing_lost"]) == (code, record, False), report
        assert {kind: found["found"] for kind, found in report["kinds"].items()} == {
            kind: found["found"] for kind, found in undisturbed["kinds"].items()
        }, report
        assert state(server, tmp_path) == expected
    assert halfway.begun > 5 and halfway.placed > 1, (halfway.begun, halfway.placed)


def almost_restored(server: Weir, target: Path, *asked: str) -> None:
    """The state of a restore that is killed just before its last step, which removes the mark."""
    mark, before = server.data / "RESTORING", server.data.with_name("before-restore")
    shutil.copytree(server.data, before, ignore=shutil.ignore_patterns("control"))
    for _ in range(20):
        child = subprocess.Popen([WEIR_BIN, "restore", str(target), "--data", str(server.data), *asked], stdout=subprocess.DEVNULL)
        last = b""
        while child.poll() is None:
            try:
                last = mark.read_bytes()
            except FileNotFoundError:
                pass
            time.sleep(0.001)
        assert child.returncode in (0, 1) and not mark.exists()
        if last and b"placed nothing" not in last:
            break
        # On a busy machine the last text of the mark may be gone before anybody has looked.
        shutil.rmtree(server.data)
        shutil.copytree(before, server.data)
    else:
        raise AssertionError(f"never seen: the last text of the mark, only {last}")
    shutil.rmtree(before)
    mark.write_bytes(last)


@pytest.mark.parametrize("first", ["to a record", "to the end", "to the last record"])
def test_after_an_interrupted_restore_the_logs_end_is_where_it_was(server, tmp_path, first):
    """Whatever the interrupted attempt wrote behind the end. The next one may restore another state, and loses nothing."""
    target = tmp_path / "backups"
    kept = {"before": put(server, "/before", 3000, tmp_path)}
    backup(server, target)
    kept["wanted"] = put(server, "/wanted", 200 * KIB, tmp_path)
    record = backup(server, tmp_path / "elsewhere")["upto"]
    kept["last"] = put(server, "/last", 1000, tmp_path)
    server.stop()
    lose_the_namespace(server)
    before = tmp_path / "lost"
    shutil.copytree(server.data, before, ignore=shutil.ignore_patterns("control"))
    end = restore(server, target)[1]["record"]
    shutil.rmtree(server.data)
    shutil.copytree(before, server.data)
    until = {"to a record": ("--until", str(record)), "to the end": (), "to the last record": ("--until", str(end))}[first]
    almost_restored(server, target, *until)
    code, report = restore(server, target, "--until", str(end))
    assert code == 0 and report["nothing_lost"] and report["record"] == end, report
    assert state(server, tmp_path) == kept


@pytest.mark.parametrize("first,then", [("daily", "weekly"), ("weekly", "daily")])
def test_an_interrupted_restore_is_not_taken_for_one_of_another_folder(server, tmp_path, first, then):
    """Every folder of backups counts from 1."""
    upto, names = {}, {}
    for folder in ("daily", "weekly"):
        names[folder] = [f"of-{folder}", *names.get("daily", [])]
        put(server, f"/of-{folder}", 3000, tmp_path)
        upto[folder] = backup(server, tmp_path / folder)["upto"]
    put(server, "/later", 3000, tmp_path)
    server.stop()
    lose_the_namespace(server)
    almost_restored(server, tmp_path / first, "--until", str(upto[first]))
    _, report = restore(server, tmp_path / then, "--until", str(upto[then]))
    assert (report["backup"]["number"], report["record"]) == (1, upto[then]) and not report["nothing_lost"]
    assert report["moved_aside"] == "namespace-lost-1", report
    assert sorted(state(server, tmp_path)) == sorted(names[then])


def test_what_an_interrupted_restore_has_put_in_place_is_never_removed(server, tmp_path):
    """The journal may have been trimmed since, so the restored files may be the only ones of their state."""
    target = tmp_path / "backups"
    put(server, "/before", 3000, tmp_path)
    first = backup(server, target)
    for number in range(40):  # more than one segment of the journal
        put(server, f"/wanted{number}", 60 * KIB, tmp_path)
    record = backup(server, tmp_path / "elsewhere")["upto"]
    put(server, "/unwanted", 3000, tmp_path)
    server.stop()
    lose_the_namespace(server)
    almost_restored(server, target, "--until", str(record))
    checkpoint = {path.name: path.read_bytes() for path in (server.data / "namespace/checkpoint").iterdir()}
    assert checkpoint
    done = weir("restore", str(target), "--data", str(server.data), "--until", str(first["upto"]))
    assert done.returncode == 1 and "the namespace that was there is in namespace-lost-1" in done.stdout, done
    aside = server.data / "namespace-lost-1"
    assert {path.name: path.read_bytes() for path in (aside / "checkpoint").iterdir()} == checkpoint
    assert sorted(state(server, tmp_path)) == ["before"]


def test_with_the_same_words_what_is_in_place_is_gone_on_with(server, tmp_path):
    target = tmp_path / "backups"
    put(server, "/before", 3000, tmp_path)
    backup(server, target)
    for number in range(40):
        put(server, f"/wanted{number}", 60 * KIB, tmp_path)
    record = backup(server, tmp_path / "elsewhere")["upto"]
    put(server, "/unwanted", 3000, tmp_path)
    server.stop()
    lose_the_namespace(server)
    for _ in range(2):
        almost_restored(server, target, "--until", str(record))
    _, report = restore(server, target, "--until", str(record))
    assert report["record"] == record and report["moved_aside"] is None
    assert not list(server.data.glob("namespace-lost-*"))
    assert sorted(state(server, tmp_path)) == sorted(["before", *(f"wanted{number}" for number in range(40))])


@pytest.mark.parametrize("log", ["of an older copy", "gone", "not there at first"])
def test_an_interrupted_restore_does_not_insist_on_a_log_that_is_no_more(server, tmp_path, log):
    """Somebody put the journal back, or lost it, between two attempts."""
    target = tmp_path / "backups"
    kept = {"before": put(server, "/before", 200 * KIB, tmp_path)}
    upto = backup(server, target)["upto"]
    kept["after"] = put(server, "/after", 200 * KIB, tmp_path)
    server.stop()
    lose_the_namespace(server)
    copy = tmp_path / "copy"
    shutil.copytree(server.data, copy, ignore=shutil.ignore_patterns("control"))
    asked = ()
    if log == "not there at first":
        shutil.rmtree(server.data / "journal")
        asked = ("--until", str(upto))
    almost_restored(server, target, *asked)
    shutil.rmtree(server.data / "journal")
    if log != "gone":
        shutil.rmtree(server.data / "store")
        for name in ("journal", "store"):
            shutil.copytree(copy / name, server.data / name)
    _, report = restore(server, target, *asked)
    assert report["nothing_lost"] == (log == "of an older copy") and report["moved_aside"] == "namespace-lost-1", report
    found = state(server, tmp_path)
    assert found == kept if log == "of an older copy" else found == {"before": kept["before"]}


@pytest.mark.parametrize("namespace", ["lost", "there"])
@pytest.mark.parametrize("then", ["to its end", "interrupted again"])
def test_a_mark_that_does_not_read_promises_nothing(server, tmp_path, namespace, then):
    """Nobody knows where the journal ended before; an upgrade finds the empty mark of an earlier version."""
    target = tmp_path / "backups"
    kept = {"before": put(server, "/before", 3000, tmp_path)}
    backup(server, target)
    kept["after"] = put(server, "/after", 200 * KIB, tmp_path)
    server.stop()
    if namespace == "lost":
        lose_the_namespace(server)
    (server.data / "RESTORING").write_bytes(b"")
    if then == "interrupted again":
        almost_restored(server, target)
        code, report = restore(server, target)
        assert code == 0 and not report["nothing_lost"], report
    else:
        done = weir("restore", str(target), "--data", str(server.data))
        assert done.returncode == 0 and "nothing is lost" not in done.stdout and "is not known" in done.stdout, done
        assert ("namespace-lost-1" in done.stdout) == (namespace == "there")
    assert (server.data / "namespace-lost-1").exists() == (namespace == "there")
    assert state(server, tmp_path) == kept


class OfAUser(Weir):
    """A node that another user runs."""

    USER = 65_534

    def command(self) -> list[str]:
        # The user may have no way to the binary itself.
        program = self.home / "weir"
        if not program.exists():
            shutil.copy(WEIR_BIN, program)
        _, *arguments = super().command()
        return ["setpriv", f"--reuid={self.USER}", f"--regid={self.USER}", "--clear-groups", str(program), *arguments]


@pytest.mark.skipif(os.getuid() != 0, reason="only root runs commands as another user")
def test_root_makes_a_backup_as_the_user_of_the_node(base, tmp_path):
    """The timer makes the next one as this user, in the same folder; and root writes nothing through a link of this user's."""
    user = OfAUser.USER
    base.chmod(0o755)
    with Weir(base / "of-a-user") as server:
        put(server, "/f", 70_000, tmp_path)
    for place in (server.home, server.data, *server.data.rglob("*")):
        os.chown(place, user, user, follow_symlinks=False)
    with OfAUser(base / "of-a-user") as server:
        mine = base / "mine"
        mine.mkdir()
        # A place of root's is for root's backups.
        backup(server, mine / "of-root")
        assert {place.stat().st_uid for place in (mine / "of-root").rglob("*")} == {0}
        assert (server.data / "last-backup").stat().st_uid == user
        os.chown(mine, user, user)
        for _ in range(2):
            backup(server, mine / "new")
        assert [place for place in (mine / "new", *(mine / "new").rglob("*")) if place.stat().st_uid != user] == []
        noted, secret = server.data / "last-backup", base / "secret"
        assert noted.stat().st_uid == user
        secret.touch()
        for target in (mine / "new", mine.parent / "another-of-root"):
            noted.unlink()
            noted.symlink_to(secret)
            backup(server, target)
            assert secret.stat().st_uid == 0 and secret.read_text() == ""
            assert not noted.is_symlink() and noted.stat().st_uid == user
