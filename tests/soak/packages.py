"""A cluster from packages, on machines with a systemd and a network of their own: the commands of docs/how-to/cluster.md, and then for
PACKAGES_SECONDS (120) what machines go through. Files with two replicas are copied in all the time. Meanwhile one machine at a time has
its service killed or restarted, or its package installed again. At the end every file whose copy succeeded is read back. It ends with 1
if one of them is missing or differs, if a service does not come back, or if something is wrong with the cluster."""

import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from booted import NotHere
from harness import ROOT, WEIR_BIN
from machines import DOMAIN, Machines, commands, make

SECONDS = float(os.environ.get("PACKAGES_SECONDS", "120"))
# How long a service may take to be ready again, and the cluster to be healthy at the end.
READY_SECONDS = 60
HEALTHY_SECONDS = 120
BYTES = (1000, 200_000, 5_000_000)
# Which machines write; each also has a disk server.
WRITERS = ("ds1", "ds2", "ds3")
EVENTS = ("kill", "restart", "install")


def wait_for(what: str, fact, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not fact():
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds:.0f} s: {what}")
        time.sleep(0.2)


def disturb(machines: Machines, name: str, event: str) -> None:
    system = machines[name]
    # systemd counts all starts, and would soon start no more.
    system.ok("systemctl", "reset-failed", "weir")
    if event == "kill":
        system.ok("systemctl", "kill", "-s", "KILL", "weir")
    elif event == "restart":
        system.ok("systemctl", "restart", "weir", timeout=READY_SECONDS)
    else:
        system.ok("dpkg", "--no-triggers", "-i", "/tmp/weir.deb", timeout=READY_SECONDS)
    wait_for(f"the service of {name} after {event}", lambda: system("systemctl", "is-active", "weir").stdout == "active\n", READY_SECONDS)


def online(machines: Machines) -> bool:
    asked = machines["mgr1"]("weir", "stores", "--json")
    return asked.returncode == 0 and all(store["state"] == "online" for store in json.loads(asked.stdout))


def run(machines: Machines, random_numbers: random.Random) -> int:
    make(machines, commands())
    manager = machines["mgr1"]
    manager.ok("weir", "policy", "set", "/", "replica(2)")
    written: dict[str, str] = {}
    events = failed = 0
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        wait_for("all stores", lambda: online(machines), READY_SECONDS)
        name, event = random_numbers.choice(machines.names), random_numbers.choice(EVENTS)
        writer = machines[random_numbers.choice([one for one in WRITERS if one != name])]
        number = len(written) + failed
        content = random_numbers.randbytes(random_numbers.choice(BYTES))
        writer.path("/root/content").write_bytes(content)
        inside = ["nsenter", "--target", str(writer.init), "--all", "weir", "cp", "/root/content", f"root://mgr1.{DOMAIN}//soak/{number}"]
        with subprocess.Popen(inside, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as copy:
            disturb(machines, name, event)
            events += 1
            if copy.wait(READY_SECONDS) == 0:
                written[f"/soak/{number}"] = hashlib.sha256(content).hexdigest()
            else:
                failed += 1
    wait_for("a cluster without missing replicas", lambda: not json.loads(manager.ok("weir", "missing", "--json")), HEALTHY_SECONDS)
    lost = 0
    for path, digest in written.items():
        reader = machines[random_numbers.choice(WRITERS)]
        read = reader("weir", "cp", "--force", f"root://mgr1.{DOMAIN}/{path}", "/root/back", timeout=READY_SECONDS)
        if read.returncode != 0 or hashlib.sha256(reader.path("/root/back").read_bytes()).hexdigest() != digest:
            print(f"LOST: {path}: {read.stderr.strip() or 'its content differs'}")
            lost += 1
    counts = f"{len(written)} files written, {failed} refused, {lost} lost"
    print(f"a cluster from packages: {events} kills, restarts and installations; {counts}")
    return 1 if lost or not written else 0


def main() -> int:
    seed = int(os.environ.get("PACKAGES_SEED", random.randrange(1 << 32)))
    print(f"a cluster from packages: {SECONDS:.0f} s, PACKAGES_SEED={seed}", flush=True)
    made = subprocess.run([ROOT / "scripts/deb.sh", WEIR_BIN], cwd=ROOT, check=True, capture_output=True, text=True, timeout=300)
    with tempfile.TemporaryDirectory(prefix="weir-packages-") as place:
        try:
            with Machines(Path(place), ["mgr1", *WRITERS], ROOT / made.stdout.splitlines()[-1]) as machines:
                machines.install()
                return run(machines, random.Random(seed))
        except NotHere as reason:
            print(f"a cluster from packages: left out, because no machines can be started here: {reason}")
            return 0


if __name__ == "__main__":
    sys.exit(main())
