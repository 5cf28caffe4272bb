"""Kills random nodes of a cluster of several managers, and its PostgreSQL server, and starts each again after a random while."""

import random
import time
from collections import Counter
from collections.abc import Callable

from cluster import Node
from harness import until
from managers import Managers
from postgres import Postgres

# A manager that cannot reach its database when it starts ends with this, and is started again.
UNREACHABLE = 15
ROLES = ["active manager", "standby manager", "disk server", "database"]
# For how long each is away at most. A standby takes the place of the active manager after 5 s.
AWAY_SECONDS = {"active manager": 9, "standby manager": 6, "disk server": 4, "database": 3}
PAUSE_SECONDS = (0.5, 4)
READY_SECONDS = 60


def crash(postgres: Postgres, how: str) -> None:
    {"killed": postgres.kill, "killed postmaster": postgres.kill_postmaster, "immediate": lambda: postgres.stop("immediate")}[how]()


class Faults:
    """`done` has how often each role was hit, `takeovers` how often another manager became active. `ended` has the nodes that ended by
    themselves: none may."""

    def __init__(self, cluster: Managers, seed: str):
        self.cluster, self.pick = cluster, random.Random(f"faults {seed}")
        self.done: Counter = Counter()
        self.takeovers = 0
        self.ended: list[str] = []
        self._last_active = cluster.active()
        # When what was killed is started again.
        self._away: dict[Node | Postgres, float] = {}
        self._bag: list[str] = []

    def run(self, seconds: float, is_enough: Callable[[], bool], more_seconds: float) -> None:
        """Goes on for that long, then until all roles were hit and it is enough, for some more time at most. Everything runs at the end."""
        begin = time.monotonic()
        following = begin
        while True:
            now = time.monotonic()
            if now > begin + seconds and (now > begin + seconds + more_seconds or (set(ROLES) <= self._roles() and is_enough())):
                break
            if now > following:
                self._hit()
                following = time.monotonic() + self.pick.uniform(*PAUSE_SECONDS)
            self._start_those_due(time.monotonic())
            time.sleep(0.05)
        self._start_those_due(float("inf"))
        until(self._all_ready, READY_SECONDS, self.cluster.logs)
        self._look_who_is_active()

    def _roles(self) -> set[str]:
        return {role for role in ROLES if any(hit.startswith(role) for hit in self.done)}

    def _look_who_is_active(self) -> Node | None:
        running = [node for node in self.cluster.managers if node.alive()]
        active = next((node for node in running if self.cluster.role(node) == "manager"), None)
        if active and active is not self._last_active:
            self._last_active = active
            self.takeovers += 1
        return active

    def _hit(self) -> None:
        """Kills one of the role that comes next, if one runs. Each role has its turn in a random order."""
        if not self._bag:
            self._bag = self.pick.sample(ROLES, len(ROLES))
        role = self._bag[-1]
        active = self._look_who_is_active()
        if role == "database":
            victims = [self.cluster.postgres]
        elif role == "disk server":
            victims = self.cluster.disks
        else:
            victims = [node for node in self.cluster.managers if active and (node is active) == (role == "active manager")]
        victims = [victim for victim in victims if victim not in self._away and victim.alive()]
        if not victims:
            return
        self._bag.pop()
        victim, how = self.pick.choice(victims), "killed"
        if role == "database":
            how = self.pick.choice(["killed", "killed postmaster", "immediate"])
            crash(victim, how)
        else:
            victim.kill()
        self.done[f"{role} {how}"] += 1
        self._away[victim] = time.monotonic() + self.pick.uniform(0, AWAY_SECONDS[role])

    def _start_those_due(self, now: float) -> None:
        for victim, due in list(self._away.items()):
            if due <= now:
                del self._away[victim]
                victim.start() if isinstance(victim, Postgres) else victim.launch()
        for node in self.cluster.nodes:
            if node not in self._away and not node.alive():
                if node.role != "manager" or node.process.returncode != UNREACHABLE:
                    self.ended.append(f"{node.home.name} with {node.process.returncode}: {node.log_text()[-500:]}")
                node.launch()

    def _all_ready(self) -> bool:
        self._start_those_due(0)
        return all(node.alive() and node.ready.read_text().startswith("weir: ready ") for node in self.cluster.nodes)
