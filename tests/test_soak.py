"""The soak itself, in a minute: that it passes a node that keeps its promises, and notices one that does not."""

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from soak.drift import Metric, judge
from soak.ledger import Content, Ledger, broken
from soak.report import METRICS, Rounds

TIMES = [4.0 * number for number in range(15)]
MEMORY = next(metric for metric in METRICS if metric.name == "memory")
RATE = next(metric for metric in METRICS if metric.name == "stat relative rate")


def scattered(seed: int, at: float, change: float, scatter: float) -> list[float]:
    """Around `at`, and `change` of it more at the end."""
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


@pytest.mark.timeout(280)
def test_a_short_soak_passes_but_for_the_loss_that_is_planted(base):
    """Two rounds with everything in them; after the second a file that was acknowledged is removed behind the soak's back."""
    home = base / "soak"
    command = [sys.executable, "-m", "soak", "--minutes", "0.4", "--rounds", "2", "--plant", "loss", "--home", str(home)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=270, cwd=Path(__file__).parent)
    said = done.stdout + done.stderr
    problems = re.findall(r"PROBLEM (.*)", said)
    assert done.returncode == 1 and len(problems) == 1 and re.fullmatch(r"LOST /\S+: gone; \d+ bytes were acknowledged", problems[0]), said
    assert "2 kills" in said and "1 problems" in (home / "report.txt").read_text()
    assert len((home / "rounds.csv").read_text().splitlines()) == 3
    assert not os.path.ismount(home / "disk/mounted")
