"""Small files in batches on a cluster: the manager gets the names, the disk servers the objects."""

import json
import random
import signal
import struct
import subprocess
import threading
import time

import pytest
import raw
from batches import CREATE, OPEN, REMOVE, REPLACE, STAT, Dealer, Entry, ask, create, opening
from clients import Xrdfs, xrdcp
from cluster import Cluster
from harness import WEIR_BIN, remove, until, weir
from raw import Raw
from test_batch import tree_of
from test_cp import content, files, ok
from test_metrics import samples


@pytest.fixture(scope="module")
def lasting(base):
    """Two disk servers, and directories with one replica, two replicas, and stripes."""
    with Cluster(base / "batches", 2, ("--grace-seconds", "3", "--metrics", "127.0.0.1:0")) as cluster:
        cluster.policy("/one", "replica(1)")
        cluster.policy("/two", "replica(2)")
        cluster.policy("/striped", "stripe(2,64KiB)")
        yield cluster
    remove(cluster.home)


@pytest.fixture
def cluster(lasting):
    """All nodes run, also after a test that kills."""
    yield lasting
    for node in lasting.nodes:
        if not node.alive():
            node.start()
    all_online(lasting)


def all_online(cluster: Cluster) -> None:
    until(lambda: [store["state"] for store in cluster.stores()] == ["online"] * len(cluster.disks), 40)


@pytest.fixture
def manager(cluster):
    with Raw.to(cluster.manager) as connection:
        yield connection


def at_disk(answer: raw.Answer) -> tuple[Raw, str]:
    """A connection to the server that an open named, and the opaque words for it."""
    port, host, opaque = answer.redirect
    return Raw(port, host=host), opaque


def read_back(cluster: Cluster, path: str, tmp_path) -> bytes:
    xrdcp("-f", f"{cluster.url}{path}", tmp_path / "read").ok()
    return (tmp_path / "read").read_bytes()


@pytest.mark.parametrize("folder", ["one", "two"])
def test_a_tree_goes_to_a_cluster_in_few_requests(cluster, folder, tmp_path):
    tree = tree_of(tmp_path / "tree", 600)
    (tree / "empty").write_bytes(b"")
    (tree / "large").write_bytes(content(250_000))
    (tree / "below").mkdir()
    (tree / "below" / "f").write_bytes(b"below")
    before = opens(cluster)
    ok("cp", "-j", "1", "-r", tree, f"{cluster.url}{folder}/tree")
    assert opens(cluster) == before, "opened one by one"
    ok("cp", "-r", f"{cluster.url}{folder}/tree", tmp_path / "back")
    assert files(tree) == files(tmp_path / "back")
    stores = {store for number in range(40) for store in cluster.whole_on(f"/{folder}/tree/f{number}")}
    copies = {len(cluster.whole_on(f"/{folder}/tree/f{number}")) for number in range(40)}
    assert len(stores) == 2 and copies == {1 if folder == "one" else 2}


def opens(cluster: Cluster) -> int:
    """Requests that open one file, at all nodes."""
    counted = 0
    for node in cluster.nodes:
        for (name, *labels), count in samples(node).items():
            if name == "weir_request_seconds_count" and dict(labels).get("request") == "open":
                counted += count
    return counted


def test_the_times_and_modes_are_kept(cluster, tmp_path):
    tree = tree_of(tmp_path / "tree", 20)
    (tree / "f3").chmod(0o600)
    ok("cp", "-p", "-r", tree, f"{cluster.url}one/times")
    ok("cp", "-p", "-r", f"{cluster.url}one/times", tmp_path / "back")
    for number in range(20):
        there, back = (tree / f"f{number}").stat(), (tmp_path / "back" / f"f{number}").stat()
        assert (int(there.st_mtime), there.st_mode) == (back.st_mtime, back.st_mode), number


def test_what_is_striped_goes_one_by_one_and_what_is_taken_is_said(cluster, tmp_path):
    tree = tree_of(tmp_path / "tree", 40)
    ok("cp", "-r", tree, f"{cluster.url}striped/tree")
    ok("cp", "-r", f"{cluster.url}striped/tree", tmp_path / "striped")
    assert files(tree) == files(tmp_path / "striped")
    place = f"{cluster.url}one/taken"
    ok("cp", tree / "f1", f"{place}/tree/f7")
    ok("mkdir", f"{place}/tree/f9")
    done = weir("cp", "-r", str(tree), place)
    named = {name for name in ("f7", "f9") if f"/tree/{name}" in done.stderr}
    assert done.returncode != 0 and named == {"f7", "f9"} and "f8" not in done.stderr, done.stderr
    place += "/tree"
    ok("cp", "-f", tree / "f7", f"{place}/f7")
    ok("rm", "-r", f"{place}/f9")
    ok("cp", tree / "f9", f"{place}/f9")
    ok("cp", "-r", place, tmp_path / "taken")
    assert files(tree) == files(tmp_path / "taken")
    (tmp_path / "other").mkdir()
    other = tree_of(tmp_path / "other" / "tree", 40, 3000)
    ok("cp", "-f", "-r", other, f"{cluster.url}one/taken")
    ok("cp", "-r", place, tmp_path / "replaced")
    assert files(other) == files(tmp_path / "replaced")


def test_a_server_says_what_it_takes(cluster, manager):
    def said(connection: Raw) -> str:
        return connection.request(raw.QUERY, struct.pack(">H", 7), b"weir.batch").body.decode().strip("\n\0")

    assert said(manager) == "1 512 4194304 names"
    with Raw(cluster.disks[0].port, host=cluster.disks[0].host) as disk:
        assert said(disk) == "1 512 4194304 contents"


def test_entries_that_belong_elsewhere_are_refused_and_fail_no_others(cluster, manager, tmp_path):
    made = ask(
        manager,
        [
            opening("/one/refused/good", 4),
            create("/one/refused/here", b"here"),
            opening("/one/refused/long", (256 << 10) + 1),
            opening("/one/../refused", 4),
            opening("/striped/f", 4),
            Entry(99, "/one/refused/strange"),
            Entry(STAT, "/one/refused/nothing"),
            Entry(REMOVE, "/one/refused/nothing"),
            opening("/one/refused/good", 4),
        ],
    )
    errors = [answer.error for answer in made]
    assert errors[1:4] == [raw.UNSUPPORTED, raw.ARG_TOO_LONG, raw.NOT_AUTHORIZED], made
    assert errors[4:8] == [raw.UNSUPPORTED, raw.UNSUPPORTED, raw.NOT_FOUND, raw.NOT_FOUND], made
    # The same name twice is one of them.
    twice = [made[0], made[8]]
    (good,) = [answer for answer in twice if answer.status == raw.REDIRECT]
    (refused,) = [answer for answer in twice if answer.status == raw.ERROR]
    assert refused.error in (raw.EXISTS, raw.FILE_LOCKED), refused
    disk, opaque = at_disk(good)
    with disk:
        answers = ask(
            disk,
            [
                opening("/one/refused/other", 4),
                Entry(STAT, "/one/refused/good"),
                create("/one/refused/bare", b"bare"),
                create("/one/refused/forged?weir.cap=AAAA", b"bare"),
                Entry(CREATE, f"/one/refused/good?{opaque}", b"torn", value=5),
            ],
        )
        assert [answer.status for answer in answers[:3]] == [raw.REDIRECT] * 3, answers
        assert {answer.redirect[0] for answer in answers[:3]} == {cluster.manager.port}
        assert answers[3].error is not None and answers[4].error == raw.CHECKSUM_ERROR, answers
        # The open has not taken effect yet, and does now; a second time is too late.
        assert ask(disk, [create(f"/one/refused/good?{opaque}", b"good")])[0].status == raw.OK
        assert ask(disk, [create(f"/one/refused/good?{opaque}", b"more")])[0].status != raw.OK
    assert read_back(cluster, "/one/refused/good", tmp_path) == b"good"
    names = Xrdfs(cluster.url)("ls", "/one/refused").ok().out.split()
    assert names == ["/one/refused/good"], "what was refused has left something"


def test_a_permission_is_good_for_its_file_and_once(cluster, manager, tmp_path):
    first, second = ask(manager, [opening("/one/own/a", 1), opening("/one/own/b", 1)])
    (disk, of_a), (other, of_b) = at_disk(first), at_disk(second)
    with disk, other:
        # The same capability several times in one batch: one entry writes, and contents are never mixed.
        answers = ask(disk, [create(f"/one/own/a?{of_a}", letter) for letter in (b"x", b"y", b"z")])
        written = [letter for letter, answer in zip((b"x", b"y", b"z"), answers, strict=True) if answer.status == raw.OK]
        assert len(written) == 1 and {answer.status for answer in answers} <= {raw.OK, raw.WAIT, raw.REDIRECT, raw.ERROR}, answers
        assert read_back(cluster, "/one/own/a", tmp_path) == written[0]
        # With another path nothing is written, neither there nor to the capability's own file. The capability stays valid for that file.
        strange = ask(other, [create(f"/one/own/strange?{of_b}", b"x"), create(f"/one/own/a?{of_b}", b"x")])
        assert [answer.error for answer in strange] == [raw.NOT_AUTHORIZED] * 2, strange
        assert all(b"for another file" in answer.body for answer in strange), strange
        assert ask(other, [create(f"/one/own/b?{of_b}", b"b")])[0].status == raw.OK
    assert read_back(cluster, "/one/own/b", tmp_path) == b"b"
    assert Xrdfs(cluster.url)("ls", "/one/own").ok().out.split() == ["/one/own/a", "/one/own/b"]
    # A capability for changes in place does not permit creation.
    answer = manager.ask_open("/one/own/b", raw.OPEN_UPDATE)
    updating, opaque = at_disk(answer)
    with updating:
        assert ask(updating, [create(f"/one/own/b?{opaque}", b"c")])[0].error == raw.NOT_AUTHORIZED
        updating.close(updating.open(f"/one/own/b?{opaque}", raw.OPEN_UPDATE))
    # One that permits only reading.
    reading, opaque = at_disk(manager.ask_open("/one/own/a"))
    with reading:
        assert ask(reading, [create(f"/one/own/a?{opaque}", b"c")])[0].error == raw.NOT_AUTHORIZED
    assert read_back(cluster, "/one/own/a", tmp_path) == written[0]


def test_what_is_opened_and_never_sent_ends_with_the_grace(cluster, manager):
    manager.send(0x7765, struct.pack(">B3xII", 1, 1, 16 + 13), struct.pack(">BBHHHII", OPEN, 0, 0o644, 13, 0, 0, 9) + b"/one/left/off")
    manager.receive()
    manager.socket.close()
    until(lambda: cluster.file("/one/left/off")["object"]["state"] == "interrupted", 30)
    with Raw.to(cluster.manager) as again:
        assert ask(again, [opening("/one/left/off", 9)])[0].error is not None
        replaced = ask(again, [opening("/one/left/off", 4, flags=REPLACE)])[0]
        disk, opaque = at_disk(replaced)
        with disk:
            assert ask(disk, [create(f"/one/left/off?{opaque}", b"here")])[0].status == raw.OK


@pytest.mark.parametrize("folder", [pytest.param("one", marks=pytest.mark.long), "two"])
def test_what_was_acknowledged_is_there_after_kills(cluster, folder, tmp_path):
    """Batches continue while nodes are killed at random moments. Then the acknowledged files are read back."""
    random.seed(folder)
    acknowledged: list[str] = []
    begun, number = time.monotonic(), 0
    stopped = threading.Event()

    def kill():
        while not stopped.wait(random.uniform(0.3, 1.2)):
            node = random.choice(cluster.nodes)
            node.kill()
            time.sleep(random.uniform(0, 0.5))
            node.start()

    def data(path: str) -> bytes:
        return content(1000 + len(path) % 5 * 700, path)

    killing = threading.Thread(target=kill)
    killing.start()
    try:
        # For long enough, and until enough has happened; a busy machine may need longer for that.
        while (took := time.monotonic() - begun) < 12 or (len(acknowledged) <= 300 and took < 60):
            number += 1
            batch = {f"/{folder}/kills/{number}/f{one}": None for one in range(100)}
            dealer = None
            try:
                dealer = Dealer(Raw.to(cluster.manager))
                dealer.make({path: data(path) for path in batch}, acknowledged.append)
            except (raw.Closed, OSError):
                time.sleep(0.1)
            finally:
                if dealer:
                    dealer.close()
    finally:
        stopped.set()
        killing.join()
    all_online(cluster)
    assert len(acknowledged) > 300, (len(acknowledged), number)
    # An end that was cut off is no end: every file listed as whole is whole.
    back = tmp_path / "back"
    copied = weir("cp", "-r", f"{cluster.url}{folder}/kills", str(back), timeout=120)
    there = {f"/{folder}/kills/{path.relative_to(back)}": path for path in back.rglob("*") if path.is_file()}
    missing = [path for path in acknowledged if path not in there]
    assert not missing, (missing[:5], len(missing), len(acknowledged), copied.stderr[:2000])
    wrong = [path for path, local in there.items() if local.read_bytes() != data(path)]
    assert not wrong, wrong[:5]


@pytest.mark.parametrize("role", ["disk", pytest.param("manager", marks=pytest.mark.long)])
def test_a_copy_ends_well_over_a_killed_node(cluster, role, tmp_path):
    tree = tree_of(tmp_path / "tree", 3000)
    node = cluster.manager if role == "manager" else cluster.disks[0]

    def kill():
        time.sleep(0.4)
        node.kill()
        time.sleep(0.5)
        node.start()

    killing = threading.Thread(target=kill)
    killing.start()
    done = weir("cp", "-r", str(tree), f"{cluster.url}two/killed-{role}", timeout=180)
    killing.join()
    assert done.returncode == 0, done.stderr[-3000:]
    all_online(cluster)
    ok("cp", "-r", f"{cluster.url}two/killed-{role}", tmp_path / "back")
    assert files(tree) == files(tmp_path / "back")


def test_a_server_that_says_nothing_is_waited_for_once(cluster, tmp_path):
    tree = tree_of(tmp_path / "tree", 400)
    ok("cp", "-j", "1", "-r", tree, f"{cluster.url}one/before")
    silent = cluster.disks[0]
    silent.freeze()
    try:
        # Its connection to the manager is up. It accepts ours, but does nothing else.
        begun = time.monotonic()
        ok("cp", "-j", "1", "-r", tree, f"{cluster.url}one/silent", timeout=280)
        assert time.monotonic() - begun < 120
    finally:
        silent.thaw()
    all_online(cluster)
    ok("cp", "-r", f"{cluster.url}one/silent", tmp_path / "back")
    assert files(tree) == files(tmp_path / "back")


def test_a_store_that_says_nothing_holds_up_nobody_else_and_no_stop(cluster, tmp_path):
    tree = tree_of(tmp_path / "tree", 3000)
    ok("cp", "-j", "1", "-r", tree, f"{cluster.url}two/warm")
    working, silent = cluster.disks
    silent.freeze()
    copy = subprocess.Popen([WEIR_BIN, "cp", "-j", "4", "-r", tree, f"{cluster.url}two/held"], stderr=subprocess.DEVNULL)
    try:
        time.sleep(1)
        with Raw.to(cluster.manager, timeout=60) as there:
            for number in range(5):
                begun = time.monotonic()
                opened = there.ask_open(f"/one/beside{number}?weir.location=site1/rack1/disk1", raw.OPEN_NEW | raw.OPEN_UPDATE)
                port, host, opaque = opened.redirect
                if host == working.host:
                    with Raw(port, host=host, timeout=60) as disk:
                        disk.open(f"/one/beside{number}?{opaque}", raw.OPEN_NEW | raw.OPEN_UPDATE)
                    assert time.monotonic() - begun < 8
        # Not by its watchdog.
        assert working.stop() == 0, working.log_text()[-2000:]
    finally:
        silent.thaw()
        copy.kill()
        copy.wait()


def test_of_a_copy_that_is_stopped_nothing_stays_that_is_not_whole(cluster, tmp_path):
    # So many that it takes longer than to see the first ones there.
    count = 12_000
    tree = tree_of(tmp_path / "tree", count)
    copy = subprocess.Popen([WEIR_BIN, "cp", "-j", "1", "-r", tree, f"{cluster.url}one/stopped"], stderr=subprocess.DEVNULL)
    fs = Xrdfs(cluster.url)

    def there() -> list[int]:
        listed = fs("ls", "-l", "/one/stopped")
        return [int(line.split()[3]) for line in listed.out.splitlines() if line.strip()] if listed.code == 0 else []

    until(there, 20)
    copy.send_signal(signal.SIGINT)
    assert copy.wait(60) != 0
    assert len(there()) < count, "it was done before it was stopped"
    # Objects on their way are soon whole; any other would be marked at the end of the grace period.
    until(lambda: cluster.asked("status")["writers"]["count"] == 0, 30)
    sizes = {path.stat().st_size for path in tree.iterdir()}
    assert set(there()) <= sizes and 0 not in there()


def test_a_campaign_measures_batches_of_a_cluster(cluster, tmp_path):
    (tmp_path / "campaign.toml").write_text(f"""
name = "batches"
repeats = 1
[[system]]
name = "weir"
place = "{cluster.url}one/bench"
[[small]]
name = "small"
batch = true
clients = 2
files = 900
least = "0s"
file = "4KiB"
""")
    ok("mkdir", f"{cluster.url}one/bench")
    done = weir("bench", "run", "-q", str(tmp_path / "campaign.toml"), "--results", str(tmp_path / "results"))
    records = [json.loads(line) for line in (tmp_path / "results" / "trials.jsonl").read_text().splitlines()]
    (found,) = [record for record in records if "system" in record]
    text = json.dumps(found)
    assert '"failures": {}' in text and '"wrong": 0' in text and text.count('"verified": 7372800') >= 1, (done, text[:3000])
