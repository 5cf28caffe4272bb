"""The judgement of a node and of a cluster: in `weir status`, its check for Nagios, the metrics and the probes. promtool evaluates the
packaged alert rules on pages that were read in each state."""

import json
import os
import re
import shutil
import struct
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import loopfs
import pytest
import raw
from clients import xrdcp
from cluster import Cluster
from content import MIB, content, page_sum, write
from harness import ROOT, remove, until, weir
from raw import Raw
from test_attributes import SET, fattr
from test_cluster_scrub import ended as ended_on
from test_cluster_scrub import place_of
from test_damage import flip, places_of, put
from test_metrics import fetch, metrics_port, named, samples
from test_scrub import ended, scrub, settled

WITHOUT_RECENT = True

RULES = ROOT / "packaging/weir-alerts.yml"
DASHBOARD = ROOT / "packaging/weir-dashboard.json"
DAY_SECONDS = 86_400
# Until the manager takes a server for away, and back.
AWAY_SECONDS = 30
# Of an object's sidecar: the bytes of each of its two headers. Of a segment of the journal: where the first record's payload begins, behind
# the segment's page and the record's header.
SLOT, FIRST_PAYLOAD = 8192, 4096 + 48
NAGIOS = {0: "OK", 1: "WARNING", 2: "CRITICAL"}
VERDICTS = ["healthy", "warning", "critical"]
# Of the machine that the tests run on.
OF_THE_MACHINE = {"space-low"}

Page = dict[tuple, float]


def health(data: Path | str) -> dict[str, str]:
    """The severities by reason. The ways to see the judgement must agree."""
    done = weir("status", "--data", str(data), "--json")
    assert done.returncode == 0, done.stderr
    judged = json.loads(done.stdout)["health"]
    found = {reason["reason"]: reason["severity"] for reason in judged["reasons"]}
    assert judged["verdict"] == max(found.values(), key=VERDICTS.index, default="healthy")
    return {reason: severity for reason, severity in found.items() if reason not in OF_THE_MACHINE}


def is_judged(data: Path | str, expected: dict[str, str]) -> None:
    """Waits for it."""
    until(lambda: health(data) == expected, AWAY_SECONDS, lambda: f"{health(data)} is not {expected}")


def check(data: Path | str) -> tuple[int, str]:
    done = weir("status", "--data", str(data), "--check")
    assert done.stdout.count("\n") == 1 and not done.stderr, done
    return done.returncode, done.stdout


def checked(data: Path | str) -> int:
    """The exit code of the check, whose line fits it."""
    code, line = check(data)
    assert re.fullmatch(rf"WEIR {NAGIOS[code]} - [^|]+ \| (\w+=\d+[Bs]? ?)+\n", line), line
    return code


def probe(server, page: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port(server)}/{page}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except urllib.error.URLError:
        return 0, "nobody listens"


def scraped(server, expected: dict[str, str]) -> Page:
    """The metrics, once they show the judgement: it may be some seconds old."""

    def told() -> dict[str, str]:
        found = {dict(key[1:])["reason"]: value for key, value in samples(server).items() if key[0] == "weir_health"}
        assert len(found) == 22
        return {reason: VERDICTS[int(value)] for reason, value in found.items() if value and reason not in OF_THE_MACHINE}

    until(lambda: told() == expected, 20, lambda: f"{told()} is not {expected}")
    return {key: value for key, value in samples(server).items() if dict(key[1:]).get("reason") not in OF_THE_MACHINE}


def fits(data: Path | str, verdict: str) -> str:
    done = weir("status", "--data", str(data))
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and lines[0] == verdict and all(len(line) <= 80 for line in lines), done
    return done.stdout


@pytest.fixture(scope="module")
def cluster(base) -> Iterator[Cluster]:
    home = base / "status"
    home.mkdir()
    with Cluster(home, 2, ("--metrics", "127.0.0.1:0")) as cluster:
        cluster.policy("/", "replica(2)")
        yield cluster
    remove(home)


class Alerts:
    """Pages and the alerts that must fire on them, for promtool."""

    def __init__(self, tmp_path: Path):
        self.file = tmp_path / "tests.json"
        self.tests: list[dict] = []
        self.rules = RULES.read_text()
        self.names = re.findall(r"- alert: (\w+)", self.rules)

    def annotations(self, alert: str, labels: dict[str, str]) -> dict[str, str]:
        block = self.rules.split(f"- alert: {alert}\n")[1].split("- alert:")[0]
        found = dict(re.findall(r'^ +(summary|description): "(.*)"$', block, re.MULTILINE))
        return {name: re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda label: labels[label[1]], text) for name, text in found.items()}

    def add(self, page: Page, fire: list[tuple[str, str, dict[str, str]]], up: int = 1, changed: dict | None = None) -> None:
        """`fire`: (alert, severity, labels). `changed`: other values of these series, or of all of a name."""
        own = {"instance": "node:9094", "job": "weir"}
        series: dict[tuple, str] = {}
        changed = changed or {}
        for key, value in page.items():
            if re.search(rf"\b{key[0]}\b", self.rules):
                series[key] = changed.get(key, changed.get(key[0], f"{value}+0x60"))
        series[("up",)] = f"{up}+0x60"
        labels = [", ".join(f'{name}="{value}"' for name, value in (dict(key[1:]) | own).items()) for key in series]
        given = [{"series": f"{key[0]}{{{text}}}", "values": values} for (key, values), text in zip(series.items(), labels, strict=True)]
        expected: dict[str, list[dict]] = {name: [] for name in self.names}
        for alert, severity, more in fire:
            all_labels = own | more | {"severity": severity}
            expected[alert].append({"exp_labels": all_labels, "exp_annotations": self.annotations(alert, all_labels)})
        alerts = [{"eval_time": "40m", "alertname": alert, "exp_alerts": found} for alert, found in expected.items()]
        self.tests.append({"interval": "1m", "input_series": given, "alert_rule_test": alerts})

    def judged(self, page: Page, found: dict[str, str]) -> None:
        """The alerts of a page in which these reasons apply."""
        alerts = {"warning": "WeirWarning", "critical": "WeirCritical"}
        self.add(page, [(alerts[severity], severity, {"reason": reason}) for reason, severity in found.items()])

    def verify(self) -> None:
        self.file.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": self.tests}))
        done = subprocess.run(["promtool", "test", "rules", self.file], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0 and "SUCCESS" in done.stdout + done.stderr, done.stdout + done.stderr


@pytest.fixture
def alerts(tmp_path) -> Alerts:
    if shutil.which("promtool") is None:
        pytest.skip("no promtool here: scripts/setup.sh installs it")
    return Alerts(tmp_path)


def with_reason(page: Page, reason: str, value: float) -> Page:
    return page | {("weir_health", ("reason", reason)): value}


def test_a_cluster_in_each_state(cluster, alerts, tmp_path):
    manager, (first, second) = cluster.manager, cluster.disks
    server_data = str(first.home / "data")

    # Nothing is wrong.
    xrdcp(write(tmp_path / "source", "judged", MIB), f"{cluster.url}/file").ok()
    for data in (cluster.data, server_data):
        is_judged(data, {})
    assert set(json.loads(weir("status", "--data", cluster.data, "--json").stdout)) > {"role", "health", "nodes", "stores", "missing"}
    assert "full at the present rate: not known yet" in weir("status", "--data", cluster.data).stdout
    healthy = scraped(manager, {})
    alerts.judged(healthy, {})
    alerts.judged(scraped(first, {}), {})
    for node in cluster.nodes:
        assert (probe(node, "healthz"), probe(node, "readyz")) == ((200, "alive\n"), (200, "ready\n"))
    assert "a disk server of the cluster at root://127.0.0.1:" in weir("status", "--data", server_data).stdout

    # A backup that is old. The time of the file counts, so that it may be touched by whoever makes backups.
    backup = manager.home / "data/last-backup"
    backup.touch()
    is_judged(cluster.data, {})
    old = time.time() - 10 * DAY_SECONDS
    os.utime(backup, (old, old))
    is_judged(cluster.data, {"no-backup": "warning"})
    assert "backup of the namespace is 10 days old" in fits(cluster.data, "warning")
    alerts.judged(scraped(manager, {"no-backup": "warning"}), {"no-backup": "warning"})
    backup.unlink()

    # One of two servers is away.
    second.kill()
    one_away = dict.fromkeys(("store-offline", "node-away", "single-copy-files", "under-replicated-files"), "warning")
    is_judged(cluster.data, one_away)
    assert checked(cluster.data) == 1
    words = fits(cluster.data, "warning")
    assert "1 store is offline: site2/rack1/disk2" in words and "1 file has one replica left" in words, words
    assert "stores_offline=1" in check(cluster.data)[1]
    alerts.judged(scraped(manager, one_away), one_away)

    # Both are.
    first.kill()
    all_away = {
        "unreadable-files": "critical",
        "space-full": "critical",
        "store-offline": "warning",
        "node-away": "warning",
        "under-replicated-files": "warning",
    }
    is_judged(cluster.data, all_away)
    assert checked(cluster.data) == 2
    fits(cluster.data, "critical")
    alerts.judged(scraped(manager, all_away), all_away)
    assert probe(manager, "readyz")[0] == 200, "it still answers for names"

    # They return, and nothing of it remains.
    for disk in cluster.disks:
        disk.start()
    is_judged(cluster.data, {})
    scraped(manager, {})

    # A disk server without its manager.
    manager.kill()
    is_judged(server_data, {"no-lease": "critical"})
    assert checked(server_data) == 2
    code, why = probe(first, "readyz")
    assert code == 503 and why.startswith("not ready: ") and "no lease" in why, why
    assert probe(first, "healthz") == (200, "alive\n")
    alerts.judged(scraped(first, {"no-lease": "critical"}), {"no-lease": "critical"})
    # Nobody is there to be asked.
    code, line = check(cluster.data)
    assert code == 3 and line.startswith("WEIR UNKNOWN - ") and "no node is running" in line, line
    assert weir("status", "--check", "--nonsense").returncode == 3
    # One that starts meanwhile waits, and says so.
    second.stop()
    second.launch()
    until(lambda: probe(second, "readyz")[0] == 503, 20)
    assert probe(second, "healthz")[0] == 200
    manager.start()
    for disk in cluster.disks:
        until(lambda: probe(disk, "readyz") == (200, "ready\n"), AWAY_SECONDS)  # noqa: B023

    # These take days.
    for reason in ("space-ends", "certificate-ends"):
        for value, severity in ((1, "warning"), (2, "critical")):
            alerts.judged(with_reason(healthy, reason, value), {reason: severity})
    alerts.judged(with_reason(healthy, "authority-replaced", 1), {"authority-replaced": "warning"})
    # What a node cannot say about itself, and what points to its disk or to a bug.
    alerts.add({}, [("WeirDown", "critical", {})], up=0)
    unjudged = {key: value for key, value in healthy.items() if key[0] != "weir_health"}
    version = next(dict(key[1:]) for key in healthy if key[0] == "weir_build_info")
    alerts.add(unjudged, [("WeirNotJudged", "warning", version)])
    alerts.add(healthy, [("WeirRestarts", "warning", {})], changed={"weir_start_time_seconds": "1 1 1 2 2 2 3 3 3 4+0x60"})
    alerts.add(healthy, [("WeirIndexDamaged", "warning", {})], changed={"weir_index_healed_total": "0+0x10 1+0x60"})
    alerts.add(healthy, [("WeirBug", "warning", {})], changed={"weir_journal_panics_total": "0+0x10 1+0x60"})
    alerts.add(healthy, [("WeirNearLimit", "warning", {})], changed={"weir_open_files": "65000+0x60"})
    slow = ("weir_journal_sync_seconds_bucket", ("le", "+Inf"))
    assert slow in healthy
    alerts.add(healthy, [("WeirSlowSyncs", "warning", {})], changed={slow: "1000+10x60"})
    alerts.verify()


def test_repairs_that_fail(cluster, alerts, tmp_path):
    """Both replicas of a file are damaged, in different places: neither store can fetch the whole file from the other."""
    is_judged(cluster.data, {})
    data = content("both damaged", 4 * MIB)
    source = write(tmp_path / "source", "both damaged", 4 * MIB)
    xrdcp(source, f"{cluster.url}/both-damaged").ok()
    cluster.until(lambda: len(cluster.whole_on("/both-damaged")) == 2)
    for disk, spot in zip(cluster.disks, (MIB, 3 * MIB), strict=True):
        file, offset = place_of(disk, data[spot : spot + 4096])
        flip(file, offset + 9)
        assert ended_on(disk, "--rate", "1GiB")["last"]["damaged"] == 1
    fail = {
        "damaged-objects": "critical",
        "single-copy-files": "warning",
        "under-replicated-files": "warning",
        "repairs-fail": "warning",
    }
    is_judged(cluster.data, fail)
    assert checked(cluster.data) == 2 and "failed_repairs=1" in check(cluster.data)[1]
    assert "1 replica could not be made yet; `weir repair` says why" in fits(cluster.data, "critical")
    why = " ".join(cluster.weir("repair", "--data", cluster.data).split())
    assert "/both-damaged" in why and "bytes on its disk are damaged" in why, why
    alerts.judged(scraped(cluster.manager, fail), fail)
    damaged = {"damaged-objects": "critical"}
    for disk in cluster.disks:
        is_judged(disk.data, damaged)
        alerts.judged(scraped(disk, damaged), damaged)
    # The file is written again from its source.
    xrdcp("-f", source, f"{cluster.url}/both-damaged").ok()
    for node in cluster.nodes:
        is_judged(node.data, {})
        alerts.judged(scraped(node, {}), {})
    alerts.verify()


def test_a_store_that_was_removed_as_lost_and_is_back(base, alerts, tmp_path):
    """No other store can replace it."""
    home = base / "status-returned"
    home.mkdir()
    with Cluster(home, 2, ("--metrics", "127.0.0.1:0")) as cluster:
        cluster.policy("/", "replica(2)")
        xrdcp(write(tmp_path / "source", "returned", MIB), f"{cluster.url}/file").ok()
        goes = cluster.disks[1]
        store = cluster.store_of(goes)
        goes.kill()
        until(lambda: health(cluster.data).keys() >= {"store-offline", "node-away"}, AWAY_SECONDS)
        cluster.weir("store", "remove", "--lost", "--yes", store, "--data", cluster.data)
        away = dict.fromkeys(("node-away", "single-copy-files", "under-replicated-files"), "warning")
        is_judged(cluster.data, away)
        goes.start()
        returned = {"store-returned": "warning"}
        is_judged(cluster.data, returned)
        assert checked(cluster.data) == 1
        assert "1 store is back: site2/rack1/disk2; removed as lost before" in fits(cluster.data, "warning")
        page = scraped(cluster.manager, returned)
        assert page["weir_cluster_stores", ("state", "returned")] == 1
        alerts.judged(page, returned)
        assert health(goes.data) == {}, "the server itself has nothing to worry about"
        goes.kill()
        is_judged(cluster.data, away)
        alerts.judged(scraped(cluster.manager, away), away)
        alerts.verify()
    remove(home)


def as_of_a_newer_weir(sidecar: Path) -> None:
    """Raises the version in the headers of a large object's sidecar, which are intact otherwise (docs/reference/formats.md)."""
    data = bytearray(sidecar.read_bytes())
    slots = [at for at in (0, SLOT) if data[at : at + 8] == b"WEIRCRC1"]
    assert slots, sidecar
    for at in slots:
        data[at + 8 : at + 10] = struct.pack("<H", 2)
        end = at + SLOT - 4
        data[end : end + 4] = struct.pack("<I", page_sum(bytes(data[at:end])))
    sidecar.write_bytes(data)


@pytest.mark.parametrize("role", ["single node", "disk server"])
def test_a_scrub_that_cannot_continue(request, alerts, tmp_path, role):
    """It meets an object that a newer weir has written, which it can neither call whole nor damaged."""
    if role == "single node":
        server = request.getfixturevalue("own_node")("--metrics", "127.0.0.1:0")
        url, objects = server.url, server.data / "store/objects"
    else:
        cluster = request.getfixturevalue("cluster")
        server = cluster.disks[0]
        url, objects = cluster.url, server.data / "store/store/objects"
    is_judged(server.data, {})
    known = set(objects.rglob("*.crc"))
    xrdcp(write(tmp_path / "source", "newer", MIB), f"{url}/newer").ok()
    (sidecar,) = until(lambda: set(objects.rglob("*.crc")) - known, 20)
    before = sidecar.read_bytes()
    as_of_a_newer_weir(sidecar)
    scrub(server, "--now", "--rate", "1GiB")
    fails = {"scrub-fails": "warning"}
    is_judged(server.data, fails)
    assert checked(server.data) == 1
    why = "the scrub cannot continue: a sidecar (version 2, features 0) was written by a newer version of weir"
    assert why in " ".join(fits(server.data, "warning").split())
    alerts.judged(scraped(server, fails), fails)
    if role == "disk server":
        assert health(cluster.data) == {}, "the manager knows nothing of it"
    sidecar.write_bytes(before)
    scrub(server, "--now", "--rate", "1GiB")  # goes on at once, where it was
    is_judged(server.data, {})
    alerts.judged(scraped(server, {}), {})
    alerts.verify()
    assert named(samples(server), "weir_scrub_damaged_objects") == 0


def test_an_index_that_makes_no_checkpoint(own_node, alerts, tmp_path):
    """A segment of the journal has rotted since it was written. The node reads it again when several have become full."""
    (tmp_path / "weir.toml").write_text('journal.segment_size = "1MiB"\n')
    server = own_node("--metrics", "127.0.0.1:0", "--config", str(tmp_path / "weir.toml"))
    put(server, "/file", 1000, tmp_path)
    names = [b"a%d" % number for number in range(14)]

    def journal(mebibytes: int) -> None:
        with Raw(server.port) as me:
            for number in range(mebibytes):
                answer = fattr(me, SET, b"/file", names, [bytes([number]) * 65_000] * len(names))
                assert answer.status == raw.OK, answer

    segment = min((server.data / "journal").glob("*.wseg"))
    journal(2)
    flip(segment, FIRST_PAYLOAD)
    assert health(server.data) == {}, "nobody has read it"
    journal(5)
    trouble = {"index-trouble": "warning"}
    is_judged(server.data, trouble)
    assert checked(server.data) == 1
    words = " ".join(fits(server.data, "warning").split())
    assert "changes cannot be moved to the index on disk, or checkpoints fail; the log says why" in words
    assert f"the journal is damaged in journal/{segment.name}" in server.log_text()
    page = scraped(server, trouble)
    assert named(page, "weir_index_trouble") >= 1
    alerts.judged(page, trouble)
    put(server, "/another", 1000, tmp_path)
    # The disk reads as it should again. The checkpoint is made, and the segment is not needed any more.
    flip(segment, FIRST_PAYLOAD)
    is_judged(server.data, {})
    until(lambda: not segment.exists(), 20)
    page = scraped(server, {})
    assert named(page, "weir_index_trouble") == 0
    alerts.judged(page, {})
    alerts.verify()


def test_a_single_node_in_each_state(own_node, alerts, tmp_path):
    server = own_node("--metrics", "127.0.0.1:0", "--grace-seconds", "1")
    assert health(server.data) == {} and probe(server, "readyz") == (200, "ready\n")
    assert "a single node" in weir("status", "--data", str(server.data)).stdout
    alerts.judged(scraped(server, {}), {})

    # Backups are nobody's business until somebody has made one.
    assert weir("backup", "--data", str(server.data), str(tmp_path / "backups")).returncode == 0
    assert health(server.data) == {}
    old = time.time() - 3 * DAY_SECONDS
    os.utime(server.data / "last-backup", (old, old))
    assert health(server.data) == {"no-backup": "warning"}
    assert weir("backup", "--data", str(server.data), str(tmp_path / "backups")).returncode == 0
    assert health(server.data) == {}

    # A writer goes away.
    with Raw(server.port) as me:
        held = me.open("/new", raw.OPEN_NEW | raw.OPEN_UPDATE)
        assert me.write(held, 0, bytes(100)).status == raw.OK
    interrupted = {"interrupted-files": "warning"}
    until(lambda: health(server.data) == interrupted, 20)
    assert checked(server.data) == 1
    alerts.judged(scraped(server, interrupted), interrupted)
    xrdcp("-f", write(tmp_path / "source", "again", 1000), f"{server.url}/new").ok()
    assert health(server.data) == {}

    # A damaged object.
    data = put(server, "/large", 5 * MIB, tmp_path)
    settled(server)
    (place,) = places_of(server.data / "store", data[3 * MIB : 3 * MIB + 4096])
    flip(place[0], place[1] + 100)
    ended(server, "--rate", "1GiB")
    damaged = {"damaged-objects": "critical"}
    assert health(server.data) == damaged and checked(server.data) == 2
    alerts.judged(scraped(server, damaged), damaged)
    put(server, "/large", 5 * MIB, tmp_path)

    def is_whole_again() -> bool:
        # The old object is deleted in the background.
        ended(server, "--rate", "1GiB")
        return health(server.data) == {}

    until(is_whole_again, 30)
    alerts.verify()


def test_a_disk_that_fills_up(own_node, alerts, tmp_path):
    if reason := loopfs.why_not():
        pytest.skip(reason)
    with loopfs.loop_file_system(tmp_path / "small", "ext4", 1024 * MIB) as folder:
        server = own_node("--metrics", "127.0.0.1:0", data=folder / "data")
        try:
            assert "space-low" not in weir("status", "--data", str(server.data), "--json").stdout
            time.sleep(3)  # the journal makes its segments
            figures = samples(server)
            floor, free = (int(figures[(f"weir_space_{name}_bytes",)]) for name in ("floor", "free"))
            with open(folder / "others", "wb") as others:
                os.posix_fallocate(others.fileno(), 0, free - floor - 20 * MIB)

            def seen() -> dict[str, str]:
                found = json.loads(weir("status", "--data", str(server.data), "--json").stdout)["health"]["reasons"]
                return {reason["reason"]: reason["severity"] for reason in found}

            until(lambda: seen() == {"space-low": "warning"}, 20)
            assert checked(server.data) == 1
            with open(folder / "more", "wb") as others:
                os.posix_fallocate(others.fileno(), 0, 22 * MIB)
            until(lambda: seen() == {"space-full": "critical"}, 20)
            assert checked(server.data) == 2 and probe(server, "readyz")[0] == 200, "it still serves readers"
            full = {"space-full": "critical"}
            alerts.judged(scraped(server, full), full)
            alerts.verify()
        finally:
            server.stop()


def test_rules_and_dashboard_name_existing_metrics():
    documented = set(re.findall(r"^\| `((?:weir|process)_\w+)` \|", (ROOT / "docs/reference/metrics.md").read_text(), re.MULTILINE))
    panels = json.loads(DASHBOARD.read_text())["panels"]
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    for text in [RULES.read_text(), *asked]:
        used = {re.sub(r"_(bucket|count|sum)$", "", name) for name in re.findall(r"\b(?:weir|process)_\w+", text)}
        assert used <= documented, used - documented
    assert len({panel["id"] for panel in panels}) == len(panels) and all(asked)


def test_the_documents_list_every_reason(own_node):
    server = own_node("--metrics", "127.0.0.1:0")
    told = set(re.findall(r'^weir_health\{reason="([\w-]+)"\}', fetch(server), re.MULTILINE))
    section = (ROOT / "docs/reference/metrics.md").read_text().split("\n### Health\n")[1].split("\n### ")[0]
    # The head of the table names the label itself.
    assert told == set(re.findall(r"^\| `([a-z-]+)` \|", section, re.MULTILINE)) - {"reason"}
