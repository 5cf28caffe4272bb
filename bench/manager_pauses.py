"""How long clients wait when a manager, or the primary of the database under Patroni, is killed: the longest step of a reader and a writer
with an open file, of clients that open files, and Patroni's own time beside it. The managers' name has an address for each of them, as in
the DNS. Needs root."""

import json
import os
import random
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from clients import STUBBORN, environment  # noqa: E402
from content import KIB, MIB  # noqa: E402
from harness import WEIR_BIN, until  # noqa: E402
from managers import ACCOUNT, Managers, new_database  # noqa: E402
from measure import run  # noqa: E402
from patroni import Patroni  # noqa: E402
from ports import free_port  # noqa: E402
from postgres import Postgres  # noqa: E402
from tables import Table  # noqa: E402

NAME = "managers.example.org"
FILE, FILE_SIZE, STEP = "/pauses/read", 16 * MIB, 64 * KIB
BETWEEN_SECONDS = 0.02
# With its defaults, a stock client asks a server that is gone for minutes before it gives up and the open can be repeated.
HASTY = {**STUBBORN, "XRD_CONNECTIONWINDOW": "2", "XRD_CONNECTIONRETRY": "1"}
READER, WRITER, STOCK_OPEN, OWN_OPEN = "stock reader, open file", "stock writer, open file", "stock client opens", "weir cat opens"
WORKERS = {READER: "read", WRITER: "write", STOCK_OPEN: "open", OWN_OPEN: "cat"}
STANDBY, ACTIVE, PRIMARY = "standby killed", "active manager killed", "primary killed, after Patroni"
PATRONI = "Patroni's own time"
BARS = {STANDBY: {READER: 2, WRITER: 2, STOCK_OPEN: 5, OWN_OPEN: 5}, ACTIVE: dict.fromkeys(WORKERS, 10), PRIMARY: dict.fromkeys(WORKERS, 5)}
# Steps before the kill, and how long a step may take after it before the measurement counts as failed.
WARM_STEPS, LONGEST_SECONDS = 20, 120
# What breaks later than at the kill still counts.
AFTER_SECONDS = 12


def row(victim: str, work: str) -> str:
    return f"{victim}: {work} [s]"


class Worker:
    """A process that does its steps one after the other, and says when each began and ended."""

    def __init__(self, kind: str, number: int, cluster: Managers, addresses: list[str], hosts: Path, prefix: list[str]):
        # Each process sees its own /etc/hosts, with all managers under one name.
        own_hosts = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', str(hosts)]
        names = addresses if kind == "cat" else [NAME]
        url = f"root://{','.join(f'{name}:{cluster.managers[0].port}' for name in names)}/"
        path = f"/pauses/written-{number}" if kind == "write" else FILE
        self.kind, self.out, self.errors = kind, hosts.parent / f"steps-{kind}", hosts.parent / f"errors-{kind}"
        patience = HASTY if kind == "open" else STUBBORN
        command = [*prefix, *own_hosts, sys.executable, __file__, kind, url + path]
        with open(self.out, "w") as out, open(self.errors, "w") as errors:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=errors, env=environment(patience))

    def steps(self) -> list[tuple[float, float]]:
        if self.process.poll() is not None:
            raise SystemExit(f"the client that should {self.kind} ended: {self.errors.read_text()[-1000:]}")
        return [tuple(json.loads(line)) for line in self.out.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def longest(self, since: float) -> float:
        """The longest step, of which only the time after `since` counts."""
        return max(end - max(begin, since) for begin, end in self.steps() if end > since)

    def end(self) -> None:
        self.process.stdin.close()
        if self.process.wait(LONGEST_SECONDS):
            raise SystemExit(f"the client that should {self.kind} failed: {self.errors.read_text()[-1000:]}")


class Site:
    """A cluster of three managers whose clients have port and name in common."""

    def __init__(self, home: Path, database: str, prefix: list[str]):
        self.home, self.prefix, self.number = home, prefix, 0
        self.cluster = Managers(home / "cluster", 2, (), database)
        port = free_port()
        for node in self.cluster.managers:
            node.port = port
        for node in self.cluster.nodes:
            node.prefix = tuple(prefix)
        self.hosts = home / "hosts"

    def __enter__(self) -> "Site":
        self.cluster.__enter__()
        self.cluster.weir("policy", "set", "/", "replica(2)", "--data", self.cluster.data)
        source = self.home / "source"
        source.write_bytes(random.Random(1).randbytes(FILE_SIZE))
        run([*self.prefix, str(WEIR_BIN), "cp", str(source), self.cluster.managers[0].url + FILE])
        return self

    def __exit__(self, *_) -> None:
        self.cluster.__exit__()

    def resolve_to(self, addresses: list[str]) -> None:
        self.hosts.write_text("127.0.0.1 localhost\n" + "".join(f"{address} {NAME}\n" for address in addresses))

    def measure(self, table: Table, victim: str, first: str, disturb) -> None:
        """Disturbs clients that have reached the manager at `first`. `disturb` may return the time from which pauses count."""
        self.number += 1
        addresses = [first, *(node.host for node in self.cluster.managers if node.host != first)]
        # A stock client takes any address of a name, so it gets to know the others when it has connected.
        self.resolve_to([first])
        with ExitStack() as stack:
            workers = {what: Worker(kind, self.number, self.cluster, addresses, self.hosts, self.prefix) for what, kind in WORKERS.items()}
            for worker in workers.values():
                stack.callback(worker.process.kill)
            until(lambda: all(len(worker.steps()) >= WARM_STEPS for worker in workers.values()), LONGEST_SECONDS)
            self.resolve_to(addresses)
            killed = time.monotonic()
            since = disturb() or killed
            # Nobody still waits in a step that began before this.
            end = since + AFTER_SECONDS
            until(lambda: all(worker.steps()[-1][0] > end for worker in workers.values()), AFTER_SECONDS + LONGEST_SECONDS)
            for what, worker in workers.items():
                longest = worker.longest(since)
                print(f"{row(victim, what)}: {longest:.2f} {worker.errors.read_text()[:500]}", flush=True)
                table.add(row(victim, what), table.systems[0], longest)
            for worker in workers.values():
                worker.end()

    def settle(self) -> None:
        for node in self.cluster.managers:
            if not node.alive():
                node.start()
        active = self.cluster.active()
        self.cluster.wait_active(active)
        for node in self.cluster.managers:
            if node is not active:
                self.cluster.wait_standby(node, 60)


def of_managers(table: Table, home: Path, runs: int) -> None:
    with Postgres(home / "pauses-postgres") as postgres, Site(home / "pauses", new_database(postgres), []) as site:
        for _ in range(runs):
            victim = site.cluster.standbys()[0]
            site.measure(table, STANDBY, victim.host, victim.kill)
            site.settle()
            active = site.cluster.active()
            site.measure(table, ACTIVE, active.host, active.kill)
            site.settle()


def of_primary(table: Table, home: Path, runs: int) -> None:
    with Patroni(home / "pauses-patroni") as patroni:
        patroni.create_user(ACCOUNT)
        name, within = patroni.create_database(), patroni.within()
        owner = patroni.url(database=name, sslmode="disable")
        run([*within, str(WEIR_BIN), "db", "init", "--grant-to", ACCOUNT, "--database", owner])
        with Site(home / "pauses-on-patroni", patroni.url(ACCOUNT, name, sslmode="disable"), within) as site:
            for _ in range(runs):
                first = patroni.wait_for_primary()

                def fail_over(first: str = first) -> float:
                    begin = time.monotonic()
                    patroni.kill(first)
                    patroni.wait_for_primary(other_than=first)
                    replaced = time.monotonic()
                    table.add(row(PRIMARY, PATRONI), table.systems[0], replaced - begin)
                    return replaced

                site.measure(table, PRIMARY, site.cluster.standbys()[0].host, fail_over)
                patroni.start(first)
                patroni.wait_for_standbys(120)
                site.settle()


def pauses(home: Path, runs: int) -> Table:
    bars = {row(victim, work): f"at most {bar} s" for victim, works in BARS.items() for work, bar in works.items()}
    table = Table("The longest pauses of clients of three managers", ["longest pause"], bars)
    of_managers(table, home, runs)
    of_primary(table, home, runs)
    return table


def opens_by_stock(url: str) -> bool:
    from XRootD import client
    from XRootD.client.flags import OpenFlags

    file = client.File()
    status, _ = file.open(url, OpenFlags.READ)
    if not status.ok:
        print(f"{time.monotonic():.1f} {status.message}", file=sys.stderr, flush=True)
        return False
    status, data = file.read(0, STEP)
    file.close()
    return status.ok and len(data) == STEP


def opens_by_weir(url: str) -> bool:
    return subprocess.run([str(WEIR_BIN), "cat", url], stdout=subprocess.DEVNULL).returncode == 0


def steps(kind: str, url: str) -> None:
    """A worker: it ends when its input does."""
    from XRootD import client
    from XRootD.client.flags import AccessMode, OpenFlags

    def good(result):
        status, value = result
        if not status.ok:
            raise SystemExit(status.message)
        return value

    data, pick, file, at = os.urandom(STEP), random.Random(2), client.File(), 0
    if kind == "read":
        good(file.open(url, OpenFlags.READ))
    elif kind == "write":
        good(file.open(url, OpenFlags.NEW | OpenFlags.UPDATE, AccessMode.UR | AccessMode.UW))
    os.set_blocking(sys.stdin.fileno(), False)
    while sys.stdin.buffer.raw.read(1) is None:
        begin = time.monotonic()
        if kind == "read":
            assert len(good(file.read(pick.randrange(FILE_SIZE // STEP) * STEP, STEP))) == STEP
        elif kind == "write":
            good(file.write(data, at))
            at += STEP
        else:
            # An open that fails is repeated, and its time counts.
            while not (opens_by_stock(url) if kind == "open" else opens_by_weir(url)):
                time.sleep(BETWEEN_SECONDS)
        print(json.dumps([begin, time.monotonic()]), flush=True)
        time.sleep(BETWEEN_SECONDS)
    if kind == "write":
        good(file.close())
    os._exit(0)  # the threads of the client library may still wait for a dead server


if __name__ == "__main__":
    steps(*sys.argv[1:])
