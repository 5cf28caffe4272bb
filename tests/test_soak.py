"""The soak itself, in a minute: it passes a good node, and notices a bad one. Also tests the bench's conclusions from measured figures."""

import argparse
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from harness import ROOT
from soak.__main__ import verdict_line
from soak.drift import Metric, judge
from soak.ledger import Content, Ledger, broken
from soak.load import ENOUGH_SECONDS, STALL_SECONDS, Gate, Journal, Worker
from soak.report import METRICS, Rounds, latencies

sys.path.insert(0, str(ROOT / "bench"))
import rows  # noqa: E402
import streams  # noqa: E402

TIMES = [4.0 * number for number in range(15)]
MEMORY = next(metric for metric in METRICS if metric.name == "memory")
RATE = next(metric for metric in METRICS if metric.name == "stat relative rate")
DESCRIPTORS = next(metric for metric in METRICS if metric.name == "descriptors")


def scattered(seed: int, at: float, change: float, scatter: float) -> list[float]:
    """Values scattered around `at`, and higher by the share `change` at the end."""
    pick = random.Random(seed)
    return [at * (1 + change * number / (len(TIMES) - 1)) * (1 + pick.gauss(0, scatter)) for number in range(len(TIMES))]


@pytest.mark.parametrize("seed", range(20))
def test_scatter_is_no_drift_and_a_change_for_the_better_neither(seed):
    for metric in (MEMORY, RATE):
        assert not judge(metric, TIMES, scattered(seed, 100, 0, 0.08)).is_worse
    assert not judge(MEMORY, TIMES, scattered(seed, 100, -0.4, 0.05)).is_worse
    assert not judge(RATE, TIMES, scattered(seed, 100, 0.6, 0.05)).is_worse


@pytest.mark.parametrize("seed", range(20))
def test_a_leak_and_a_loss_of_speed_are_drift(seed):
    assert judge(MEMORY, TIMES, scattered(seed, 100, 0.5, 0.05)).is_worse
    assert judge(RATE, TIMES, scattered(seed, 100, -0.5, 0.08)).is_worse


def test_one_bad_round_is_no_drift():
    values = [100.0] * 15
    for number in (0, 7, 14):
        assert not judge(MEMORY, TIMES, values[:number] + [300.0] + values[number + 1 :]).is_worse


def test_a_busy_while_of_the_machine_is_no_drift():
    assert not judge(MEMORY, TIMES, [100.0] * 5 + [200.0] * 5 + [125.0] * 5).is_worse


@pytest.mark.parametrize("last", [4, 5, 6, 7])
def test_a_step_is_drift_although_it_is_no_trend(last):
    times = TIMES[:14]
    assert judge(DESCRIPTORS, times, [100.0] * (14 - last) + [250.0] * last).is_worse
    assert judge(DESCRIPTORS, times, [100.0] * (14 - last) + [120.0] * last).is_worse, "little, but each round"
    assert judge(RATE, times, [5.0] * (14 - last) + [2.5] * last).is_worse
    assert not judge(DESCRIPTORS, times, [250.0] * (14 - last) + [100.0] * last).is_worse, "for the better"
    assert not judge(DESCRIPTORS, times, [100.0] * (14 - last) + [110.0] * last).is_worse, "within the tolerance"


@pytest.mark.parametrize("rounds", [5, 6, 7, 8])
def test_one_bad_round_at_the_end_of_few_is_no_step(rounds):
    for metric in (MEMORY, DESCRIPTORS):
        assert not judge(metric, TIMES[:rounds], [100.0] * (rounds - 1) + [300.0]).is_worse
        assert judge(metric, TIMES[:rounds], [100.0] * (rounds - 3) + [300.0] * 3).is_worse


def test_few_rounds_are_not_judged():
    verdict = judge(MEMORY, TIMES[:4], [100, 200, 300, 400])
    assert not verdict.judged and verdict.word == "too few rounds"
    assert judge(Metric("told", "", 0), TIMES, scattered(1, 100, 5, 0)).word == "told only"


def test_growth_within_one_life_is_drift_although_each_kill_ends_it():
    life, rounds, age = [3, 4, 5, 6, 7, 8, 9], Rounds(), 0
    for number in range(15):
        figures = {"memory": 100.0 + 8 * age, "descriptors": 20.0, "threads": 20.0 + 4 * age}
        rounds.add({"round": number, "minute": TIMES[number], "age": age} | figures)
        age = age + 1 if number in life[:-1] else 0
    worse = {verdict.metric.name for verdict in rounds.verdicts(life) if verdict.is_worse}
    assert worse == {"memory in one life", "threads in one life"}


@pytest.mark.paced  # it measures the times that it has set
def test_what_was_due_while_the_node_stood_still_counts():
    """Open loop: a long operation delays later ones, and each of these is reported."""
    gate, journal, delays = Gate(), Journal(), [0, 0, 3]

    def work() -> str:
        time.sleep(delays.pop(0) if delays else 0)
        return "stat"

    worker = Worker("stat", 20, work, gate, journal)
    worker.start()
    time.sleep(1.5)  # the gate is closed: nothing is due
    gate.open()
    time.sleep(4)
    gate.close()
    samples = journal.take()["stat"]
    gate.end()
    worker.join()
    assert len([seconds for seconds in samples if 1 < seconds < 3]) >= 35 and max(samples) >= 3, samples
    assert 70 <= len(samples) <= 82, "those that were due in 4 s"
    figures = latencies({"stat": samples})
    assert figures["stat p99 ms"] > 2000 and figures["stat most ms"] >= 3000
    assert not journal.problems and not journal.stalls


@pytest.mark.parametrize(
    ("kind", "seconds", "yard", "excuses", "problems"),
    [
        ("stat", STALL_SECONDS + 2, [], set(), 1),
        ("stat", STALL_SECONDS - 1, [], set(), 0),
        ("stat", STALL_SECONDS + 2, [("echo", STALL_SECONDS)], set(), 0),
        ("stat", STALL_SECONDS + 2, [("echo", 2)], set(), 1),
        ("stat", STALL_SECONDS + 2, [("sync", STALL_SECONDS)], set(), 1),
        ("write", STALL_SECONDS + 2, [("sync", STALL_SECONDS)], set(), 0),
        ("write", STALL_SECONDS + 2, [], {"full"}, 0),
        ("write", ENOUGH_SECONDS + 2, [], {"full"}, 1),
        ("write", ENOUGH_SECONDS + 2, [], {"kill"}, 0),
    ],
)
def test_a_stall_is_a_problem_unless_the_machine_stood_still(kind, seconds, yard, excuses, problems):
    journal = Journal()
    journal.excuses |= excuses
    journal.took(kind, seconds)
    for name, late in yard:
        journal.took(name, late)
    journal.judge_stalls()
    assert len(journal.problems) == problems, journal.problems
    journal.judge_stalls()
    assert len(journal.problems) == problems, "each is told once"


def test_the_verdict_says_what_was_left_out():
    assert verdict_line(0, "") == "nothing lost, no drift" and verdict_line(3, "") == "3 problems"
    assert verdict_line(0, "it needs root") == "nothing lost, no drift; NOT TRIED: a full disk (it needs root)"
    assert verdict_line(2, "it needs root").startswith("2 problems; NOT TRIED")


def test_the_ledger_tells_a_loss_from_what_may_be():
    old, new, other = (Content.of(data) for data in (b"old", b"new", b"other"))
    ledger = Ledger()
    ledger.about_to("/a", old)
    ledger.done("/a")
    ledger.about_to("/a", new)  # and nobody was told
    ledger.about_to("/b", new)
    a, b = (ledger.copy()[name] for name in ("/a", "/b"))
    assert ledger.standing() == []
    for found in (old, new):
        assert broken("/a", a, found) is None
    for found in (None, other, Content.of(b""), "error 3005: interrupted"):
        assert broken("/a", a, found), found
    for found in (None, new, "error 3005: its writer went away"):
        assert broken("/b", b, found) is None
    assert broken("/b", b, other) and broken("/b", b, "error 3007: the disk failed")
    ledger.done("/a")
    assert broken("/a", ledger.copy()["/a"], old), "the older version is a loss, too"
    ledger.about_to("/a", None)
    ledger.done("/a")
    assert broken("/a", ledger.copy()["/a"], new), "what was removed is back"


@pytest.mark.long
@pytest.mark.timeout(520)
def test_a_short_soak_passes_but_for_what_is_planted(base):
    """Two rounds with everything in them. After the first the soak gets wrong expectations of files; after the second an acknowledged file
    is removed behind its back."""
    home = base / "soak"
    command = [sys.executable, "-m", "soak", "--minutes", "0.4", "--rounds", "2", "--home", str(home)]
    command += ["--plant", "error", "--plant", "loss"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, cwd=Path(__file__).parent)
    said = done.stdout + done.stderr
    problems = re.findall(r"PROBLEM (.*)", said)
    total = f"{len(problems)} problems"
    # Only an hour's soak judges whether the node was too slow for a while; here other load on the machine decides that.
    problems = [problem for problem in problems if not problem.endswith("and the machine did not stand still")]
    lost = [problem for problem in problems if re.fullmatch(r"LOST /\S+: gone; \d+ bytes were acknowledged", problem)]
    wrong = [problem for problem in problems if re.fullmatch(r"/still/\d+ reads as something else", problem)]
    assert done.returncode == 1 and len(lost) == 1 and wrong and len(problems) == 1 + len(wrong), said
    assert "2 kills" in said and total in (home / "report.txt").read_text()
    assert len((home / "rounds.csv").read_text().splitlines()) == 3
    assert not os.path.ismount(home / "disk/mounted")


def test_a_row_that_is_measured_again_replaces_the_old_one(tmp_path):
    saved, earlier, now = tmp_path / "saved.json", rows.Figures(), rows.Figures()
    for row in ("streams-share", "stream-share", "put-wall"):
        earlier.add(row, "weir", 0.5)
        earlier.invalid[row] = earlier.notes[row] = earlier.commands[row] = "of then"
    earlier.notes["xrdcp writes"] = "of then"
    earlier.stamp("then")
    earlier.save(saved)
    now.add("streams-share", "weir", 0.95)
    now.add("stream-share", "weir", 0.9)
    now.invalid["stream-share"] = "of today"
    now.stamp("today")
    now.fill_up(saved)
    assert now.invalid == {"stream-share": "of today", "put-wall": "of then"}
    assert now.notes == {"put-wall": "of then", "xrdcp writes": "of then"} and now.commands == {"put-wall": "of then"}
    assert now.measured == {"streams-share": "today", "stream-share": "today", "put-wall": "then"}
    assert now.samples["streams-share"] == {"weir": [0.95]} and now.samples["put-wall"] == {"weir": [0.5]}


@pytest.mark.parametrize(
    ("share", "fio", "why"), [(0.95, 1.0, None), (1.09, 1.0, None), (1.3, 1.0, "1.30 of it"), (0.95, 0.8, "0.80 of fio")]
)
def test_a_share_of_a_sink_that_was_held_up_does_not_count(share, fio, why):
    figures = rows.Figures()
    for row, value in (("streams-share", share), ("bare sink's writes / fio", fio), ("bare sink's sockets / iperf3", 1.0)):
        figures.add(row, "weir", value)
    streams.judge(figures)
    assert (why in figures.invalid["streams-share"]) if why else not figures.invalid


def test_each_of_the_streams_begins_alike(tmp_path, monkeypatch):
    """The node, the sink, the sink's writes, fio: before each, the remains of the previous one are removed and the disk is at rest."""
    events: list[str] = []
    monkeypatch.setattr(streams, "made_even", lambda folder, server: events.append("even") or folder)
    monkeypatch.setattr(streams.measure, "build_example", lambda *_: Path("sink"))
    monkeypatch.setattr(streams.measure, "run", lambda command, **_: events.append(command[1]) or '{"mb_per_second": 1}')
    monkeypatch.setattr(streams, "together", lambda *_: events.append("node") or 1.0)
    monkeypatch.setattr(streams, "into_sink", lambda sink, source, folder: events.append("sink" if folder != "-" else "sockets") or 1.0)
    monkeypatch.setattr(streams, "by_fio", lambda _: events.append("fio") or 1.0)
    monkeypatch.setattr(streams, "by_iperf3", lambda: events.append("iperf3") or 1.0)
    monkeypatch.setattr(streams, "BYTES", 1 << 20)
    streams.streams(tmp_path, argparse.Namespace(runs=2), rows.Figures())
    for name in ("node", "sink", "write", "fio"):
        assert [events[at - 1] for at, event in enumerate(events) if event == name] == ["even"] * 2, (name, events)
    assert [event for event in events if event in ("node", "sink")] == ["node", "sink", "sink", "node"]


def test_nothing_is_left_of_what_was_before(tmp_path, monkeypatch):
    done: list[str] = []
    monkeypatch.setattr(streams.measure, "settle", lambda server: done.append("settled"))
    monkeypatch.setattr(os, "sync", lambda: done.append("synced"))
    monkeypatch.setattr(time, "sleep", lambda seconds: done.append("rested"))
    (tmp_path / "sunk").mkdir()
    (tmp_path / "sunk/1").write_bytes(b"x")
    assert list(streams.made_even(tmp_path / "sunk", None).iterdir()) == [] and done == ["settled", "synced", "rested"]
