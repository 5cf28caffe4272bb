"""The soak. For SOAK_MINUTES (60) a node serves ordinary clients, in rounds with slow or stuck clients, a full disk and kill -9. Each round
has these parts: an undisturbed time in which rates, latencies, memory, descriptors and threads are measured; slow clients; a full disk;
kill -9 and a restart; a comparison of every file that was ever acknowledged. In the middle rounds nothing is killed, so that growth within
one life of the node shows. The soak ends with 1 if anything acknowledged was lost, if an operation failed without an explanation, or if a
figure is worse at the end than at the start (see `drift.py`)."""

import argparse
import os
import random
import shutil
import signal
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from harness import ROOT, StartFailed, Weir, weir
from loopfs import loop_file_system, why_not

from soak.bursts import Bursts
from soak.client import LOST, Client
from soak.full import FullDisk
from soak.ledger import broken
from soak.load import PROBLEMS_SHOWN, Load
from soak.report import Rounds, latencies, of_round, percentile, say, table
from soak.slow import SlowClients
from soak.watch import MIB, Watch, folder_bytes
from soak.yardstick import Yardstick

DISK_BYTES = 3 << 30
# Marks a folder that a soak made and may empty.
MARK = "made-by-soak"
ROUND_SECONDS = 240
GRACE_SECONDS = 2
SEGMENT = "8MiB"
CHECKERS = 4
# Parts of a round.
PACED, BURSTS, SLOW, FULL = 0.42, 0.15, 0.15, 0.08
# Deliberate damage, to check that the soak notices it.
PLANTS = ("loss", "leak", "error")


@dataclass
class Plan:
    """The duration, the number of rounds, and the rounds without a kill."""

    minutes: float
    rounds: int

    @staticmethod
    def of(minutes: float, rounds: int | None) -> "Plan":
        return Plan(minutes, rounds or max(3, round(minutes * 60 / ROUND_SECONDS)))

    @property
    def round_seconds(self) -> float:
        return self.minutes * 60 / self.rounds

    @property
    def life(self) -> list[int]:
        """The rounds of the long life: about half of them, in the middle."""
        first = self.rounds // 4
        return list(range(first, first + max(1, self.rounds // 2)))

    def kills_after(self, number: int) -> bool:
        return number not in self.life[:-1]

    def kills_when_full(self, number: int) -> bool:
        return number % 2 == 1 and self.kills_after(number)

    @property
    def patience_seconds(self) -> int:
        """The time that the node gives its slow clients."""
        return max(1, min(10, int(self.round_seconds * SLOW / 3)))


class Soak:
    def __init__(self, plan: Plan, server: Weir, load: Load, yardstick: Yardstick, disk: Path | None, plants: list[str]):
        self.plan, self.server, self.load, self.disk, self.plants = plan, server, load, disk, plants
        self.rounds, self.bursts, self.pick = Rounds(), Bursts(server, load, yardstick), load.pick
        self.begin = time.monotonic()
        self.checked = self.kills = self.cut = self.refused = 0
        self.age = 0
        self.leaked: list[Client] = []

    def problem(self, text: str) -> None:
        self.load.journal.problem(text)

    def play(self, number: int) -> None:
        """Plays one round."""
        seconds = self.plan.round_seconds
        end = time.monotonic() + seconds
        figures = {"round": number, "minute": (time.monotonic() - self.begin) / 60, "age": self.age}
        self.load.journal.take()
        self.load.gate.open()
        watch = Watch(self.server)
        watch.start()
        time.sleep(seconds * PACED)
        figures |= watch.end()
        self.load.gate.close()  # operations still in progress count too
        figures |= latencies(self.load.journal.take())
        figures |= self.bursts.measure(seconds * BURSTS)
        self.load.gate.open()
        slow = SlowClients(self.load)
        try:
            self.slow_clients(slow, seconds * SLOW, figures)
            self.age += 1
            self.full_and_killed(number, slow, seconds, figures)
        finally:
            slow.go()
        self.plant_something(number)
        self.load.gate.close()
        self.load.journal.judge_stalls()
        time.sleep(GRACE_SECONDS + 1)  # by now every detached file is complete, interrupted or dropped
        self.check()
        figures["data directory"] = folder_bytes(self.server.data) / MIB
        self.rounds.add(figures)
        killed = f", started again in {figures['restart seconds']:.1f} s" if "restart seconds" in figures else ""
        acknowledged, left = self.load.ledger.acknowledged, max(0.0, end - time.monotonic())
        say(f"round {number + 1}/{self.plan.rounds}: {of_round(figures)}{killed}; {acknowledged:,} acknowledged, {self.checked:,} checked")
        time.sleep(left)

    def slow_clients(self, slow: SlowClients, seconds: float, figures: dict[str, float]) -> None:
        self.load.journal.take()
        slow.come()
        slow.linger(max(seconds, 2.5 * self.plan.patience_seconds))
        for left in slow.check_cut(patience=15):
            self.problem(left)
        self.cut += slow.ended
        samples = self.load.journal.take().get("stat", [])
        if samples:
            figures["stat p99 beside slow clients ms"] = percentile(samples, 0.99) * 1000

    def full_and_killed(self, number: int, slow: SlowClients, seconds: float, figures: dict[str, float]) -> None:
        journal = self.load.journal
        full = FullDisk(self.load, self.disk) if self.disk else None
        if full:
            journal.excuses |= {"full"}
            full.to_the_floor()
            full.to_the_last_byte()
            time.sleep(seconds * FULL)
        if self.plan.kills_after(number) and not self.plan.kills_when_full(number):
            # Checkpoints are open, and hoarders hold their files.
            if full:
                full.others_go()
            self.kill(figures)
        elif self.plan.kills_after(number):
            self.kill(figures)
        else:
            slow.go()
        if full:
            full.others_go()
            full.clean()
            self.refused += full.refused
            journal.excuses -= {"full"}

    def kill(self, figures: dict[str, float]) -> None:
        journal = self.load.journal
        journal.excuses |= {"kill"}
        time.sleep(self.pick.uniform(0, 1))
        self.server.kill()
        self.kills += 1
        self.age = 0
        time.sleep(self.pick.uniform(0, 0.5))
        begin = time.monotonic()
        self.server.start()
        figures["restart seconds"] = time.monotonic() - begin
        # Clients reconnect, and their operations fail or complete.
        self.load.gate.close()
        journal.excuses -= {"kill"}
        self.load.gate.open()

    def check(self) -> None:
        """Reads every acknowledged file and compares it."""
        promises = sorted(self.load.ledger.copy().items())
        found: list[str] = []

        def some(part: int) -> None:
            client = Client(self.server.port, timeout=60)
            try:
                for name, promise in promises[part::CHECKERS]:
                    complaint = broken(name, promise, client.content(name))
                    if complaint:
                        found.append(f"LOST {complaint}")
            except LOST as trouble:
                found.append(f"the check came to no end: {trouble!r}")
            client.close()

        threads = [threading.Thread(target=some, args=(part,)) for part in range(CHECKERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.checked += len(promises)
        for complaint in found:
            self.problem(complaint)

    def plant_something(self, number: int) -> None:
        if "loss" in self.plants and number == 1:
            client = Client(self.server.port)
            # Not one that is being copied as a whole: its copy would fail, too.
            client.remove([path for path in self.load.ledger.standing() if not path.startswith("/big/")][-1])
            client.close()
        if "error" in self.plants and number == 0:  # in many files, as each is seldom read; from the next round on
            self.load.still |= dict.fromkeys(list(self.load.still)[::10], self.load.still["/still/large"])
        if "leak" in self.plants:
            for _ in range(40):  # each costs a thread, a descriptor and some memory that the node never gets back
                client = Client(self.server.port)
                client.stat("/")
                self.leaked.append(client)


def data_place(home: Path, stack: ExitStack) -> tuple[Path, Path | None]:
    """The folder for the node's data, and the separate file system that may be filled."""
    reason = why_not()
    if reason:
        say(f"MISSING: the full disk is left out: {reason}")
        return home, None
    disk = stack.enter_context(loop_file_system(home / "disk", "ext4", DISK_BYTES))
    return disk, disk


def configuration(home: Path, plan: Plan) -> tuple[str, ...]:
    """Short time limits, and small journal segments, so that each round trims the journal and makes checkpoints, as hours do otherwise.
    Little memory for recently written data: readers get most from the disk, and the first round fills it."""
    path = home / "weir.toml"
    patience = f'"{plan.patience_seconds}s"'
    path.write_text(
        f'grace_seconds = {GRACE_SECONDS}\nlimits.recent = "4MiB"\n[journal]\nsegment_size = "{SEGMENT}"\n'
        f"[times]\nrequest = {patience}\nanswer = {patience}\nlogin = {patience}\n"
    )
    return ("--config", str(path))


def run(plan: Plan, home: Path, seed: int, plants: list[str]) -> int:
    pick = random.Random(seed)
    say(f"soak: {plan.minutes:g} min in {plan.rounds} rounds of {plan.round_seconds:.0f} s, seed {seed}, in {home}")
    say(f"rounds {plan.life[0] + 1} to {plan.life[-1] + 1} are one life of the node; it is killed at the end of each other one")
    with ExitStack() as stack:
        place, disk = data_place(home, stack)
        other = stack.enter_context(Weir(home / "other"))
        server = Weir(home / "server", place / "data", configuration(home, plan))
        stack.callback(lambda: server.alive() and server.kill())
        server.start()
        yardstick = Yardstick(place)
        stack.callback(yardstick.end)
        load = Load(server, other, home, yardstick, pick, transfer_seconds=max(1.0, plan.round_seconds / 60))
        load.populate()
        load.start()
        stack.callback(load.end)
        soak = Soak(plan, server, load, yardstick, disk, plants)
        try:
            for number in range(plan.rounds):
                soak.play(number)
                soak.rounds.write_csv(home / "rounds.csv")
        except (AssertionError, StartFailed, *LOST) as trouble:
            soak.problem(f"the soak cannot go on: {trouble!r}")
        return report(soak, home)


def report(soak: Soak, home: Path) -> int:
    """The end: kills the node once more and checks its data directory; prints the table; returns the exit code."""
    soak.load.end()
    if soak.server.alive():
        soak.server.kill()
    checked = weir("fsck", "--data", str(soak.server.data), timeout=600)
    if checked.returncode != 0:
        soak.problem(f"fsck after the last kill ended with {checked.returncode}:\n{checked.stdout}{checked.stderr}")
    verdicts = soak.rounds.verdicts(soak.plan.life)
    for verdict in verdicts:
        if verdict.is_worse:
            soak.problem(f"DRIFT {verdict.metric.name}: {verdict.start:.4g} at the start, {verdict.end:.4g} at the end")
    problems, journal = soak.load.journal.problems, soak.load.journal
    lines = [
        table(verdicts),
        "",
        f"{soak.load.ledger.acknowledged:,} changes acknowledged, {soak.checked:,} files read and compared, "
        f"{journal.transfers:,} copies of whole files;",
        f"{soak.kills} kills, {journal.lost:,} operations cut off by them; {soak.cut} slow clients cut off; "
        f"{soak.refused + journal.refused_for_space:,} operations refused for want of space",
        *problems[:PROBLEMS_SHOWN],
        verdict_line(len(problems), "" if soak.disk else why_not() or ""),
    ]
    text = "\n".join(lines)
    print(text, flush=True)
    (home / "report.txt").write_text(text + "\n")
    return 1 if problems else 0


def verdict_line(problems: int, no_full_disk: str) -> str:
    """The last line; `no_full_disk`: why there was no full disk, so that the reader need not search for it."""
    verdict = f"{problems} problems" if problems else "nothing lost, no drift"
    return f"{verdict}; NOT TRIED: a full disk ({no_full_disk})" if no_full_disk else verdict


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=float(os.environ.get("SOAK_MINUTES", "60")))
    parser.add_argument("--rounds", type=int, help=f"usually one for each {ROUND_SECONDS} s")
    where = "where data, logs, rounds.csv and report.txt go; emptied first"
    parser.add_argument("--home", type=Path, default=ROOT / "build/soak", help=where)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SOAK_SEED", "0")) or random.SystemRandom().randrange(1, 2**32))
    parser.add_argument("--plant", choices=PLANTS, action="append", default=[], help="do a wrong to see that it is noticed")
    options = parser.parse_args()
    home = options.home.resolve()
    if home.exists() and not (home / MARK).exists():
        parser.error(f"{home} is there and was not made by a soak: another --home, or remove it")
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    (home / MARK).touch()
    return run(Plan.of(options.minutes, options.rounds), home, options.seed, options.plant)


if __name__ == "__main__":
    # An end by a signal also removes mounts and processes.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    # Their times are measured, so no thread may wait long for the interpreter's lock.
    sys.setswitchinterval(0.001)
    sys.exit(main())
