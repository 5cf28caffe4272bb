"""What one, two and three managers on one database do in a second, with as many clients of the stock library for each of them, where each
answer of the database takes a stated time. Without that time the processors of one machine would be the limit."""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from late_proxy import Late  # noqa: E402
from managers import Managers, new_database  # noqa: E402
from measure import load_program, run  # noqa: E402
from postgres import Postgres  # noqa: E402
from tables import Table  # noqa: E402

LATENCY_SECONDS = 0.02
THREADS, FILES, DIRS, BYTES = 8, 800, 8, 4096
PASSES = {"create": 1, "read": 2, "stat": 2}
COUNTS = {2: "two", 3: "three"}
SEVERAL, ONE, ALONE = "several managers", "one, as many clients in all", f"one, {THREADS} clients"
BARS = {"two": "at least 1.9", "three": "at least 2.8"}


def rate(managers: list[str], phase: str, name: str) -> float:
    """Operations a second of all clients together: some for each of these addresses, which may be one manager's several times."""

    def load(number: int) -> int:
        numbers = map(str, (THREADS, FILES, DIRS, BYTES, PASSES[phase]))
        run([str(load_program()), f"{managers[number]}/{name}-{number}", phase, *numbers])
        return FILES * PASSES[phase]

    begin = time.monotonic()
    with ThreadPoolExecutor(len(managers)) as pool:
        operations = sum(pool.map(load, range(len(managers))))
    return operations / (time.monotonic() - begin)


def scale(home: Path, runs: int) -> Table:
    """Each number of managers has its clients, and one manager has as many: what more clients alone bring is not the managers' doing."""
    title = f"Several managers on a database whose answers take {LATENCY_SECONDS * 1000:.0f} ms more; {THREADS} stock clients for each"
    rows = {f"{COUNTS[count]} managers: {phase} [1/s]": BARS[COUNTS[count]] for phase in PASSES for count in COUNTS}
    table = Table(title, [SEVERAL, ONE, ALONE], rows)
    with Postgres(home / "late-postgres") as postgres, Late(postgres.port, LATENCY_SECONDS) as late:
        for number in range(runs):
            url = new_database(postgres).replace(f":{postgres.port}/", f":{late.port}/")
            assert f":{late.port}/" in url, "the database is reached directly"
            with Managers(home / f"late-{number}", 2, database=url, managers=max(COUNTS)) as cluster:
                active = cluster.manager.url
                others = [node.url for node in cluster.managers if node is not cluster.manager]
                for phase in PASSES:
                    alone = rate([active], phase, f"alone-{number}")
                    for count, word in COUNTS.items():
                        row = f"{word} managers: {phase} [1/s]"
                        table.add(row, ALONE, alone)
                        table.add(row, ONE, rate([active] * count, phase, f"one-{number}-{count}"))
                        table.add(row, SEVERAL, rate([active, *others[: count - 1]], phase, f"several-{number}-{count}"))
                        print(row, {system: round(values[-1]) for system, values in table.rows[row].items()}, flush=True)
    return table
