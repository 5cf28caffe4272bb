"""What a client of weir is told is what a client of a stock xrootd is told, but for the differences in docs/differences.md."""

import os
import re
from pathlib import Path

import pytest
from differential import HARMLESS, INTENDED, SILENT, Outcome, Player, Session, Step, may_differ_after, why_different
from harness import ROOT, Weir, Xrootd

FIRST = int(os.environ.get("WEIR_SEED", "0"))
SEEDS = int(os.environ.get("WEIR_SEEDS", "200"))
# The sessions of one test, so that what fails is found again quickly.
PER_TEST = 25


@pytest.fixture(scope="module")
def servers(base: Path):
    with Weir(base / "differential-weir") as weir, Xrootd(base / "differential-xrootd") as stock:
        yield weir, stock
        assert weir.alive() and stock.alive()


class Findings:
    def __init__(self) -> None:
        self.compared = 0
        self.intended: set[str] = set()
        self.unexplained: list[str] = []


def compare(seed: int, weir: Weir, stock: Xrootd, findings: Findings) -> None:
    """Plays one session. After a difference the two servers may hold different things: the rest of it would say nothing."""
    ours, theirs = Player(weir.port), Player(stock.port)
    played: list[str] = []
    try:
        for step in Session(seed).steps:
            mine, other = ours.play(step), theirs.play(step)
            played.append(f"  {step}\n      weir:   {mine}\n      xrootd: {other}")
            findings.compared += 1
            if mine == other:
                if silent := may_differ_after(step, mine):
                    findings.intended.add(silent)
                if silent or mine.kind == "closed":
                    return
                continue
            reason = why_different(step, mine, other)
            if reason is None:
                findings.unexplained.append(f"seed {seed}:\n" + "\n".join(played[-12:]))
                return
            findings.intended.add(reason)
            if reason not in HARMLESS:
                return
    finally:
        ours.close()
        theirs.close()


@pytest.mark.parametrize("part", range(-(-SEEDS // PER_TEST)))
def test_the_same_session_is_told_the_same(servers, part):
    findings = Findings()
    for seed in range(FIRST + part * PER_TEST, min(FIRST + (part + 1) * PER_TEST, FIRST + SEEDS)):
        compare(seed, *servers, findings)
    assert not findings.unexplained, "\n\n".join(findings.unexplained)
    assert findings.compared > 10 * PER_TEST or SEEDS < PER_TEST, "sessions that end at once compare nothing"


def test_a_difference_would_be_seen():
    step = Step("stat", 3017, lambda _: (b"", b""), "/x")
    ok, error = Outcome("ok", body=(1, 48, b"0644")), Outcome("error", 3011)
    for mine, other in [(ok, error), (error, ok), (ok, Outcome("ok", body=(2, 48, b"0644"))), (error, Outcome("error", 3012))]:
        assert mine != other and why_different(step, mine, other) is None


def test_each_intended_difference_is_explained_and_none_else():
    text = (ROOT / "docs/differences.md").read_text()
    explained = set(re.findall(r"^\| `([a-z-]+)` \|", text, re.MULTILINE))
    assert explained == {*INTENDED, *SILENT}
