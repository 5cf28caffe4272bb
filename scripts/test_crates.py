#!/usr/bin/env python3
"""Runs the crates' test programs, one after the other, then the examples in doc comments, and lists the ten slowest tests.

Cargo builds the programs. This script runs them as `cargo test` would, because only the programs themselves can report
the time of each test. Arguments go to `cargo test` (`-p weir-store` picks a crate). The exit status is 1 if anything failed.
"""

import json
import os
import re
import subprocess
import sys
import time

# The flag that reports times is not stable. This variable lets a stable test program take it; Cargo itself must not see the variable, since
# build scripts would run again because of it.
REPORT_TIMES = {"RUSTC_BOOTSTRAP": "1"}
TIMED = re.compile(r"^test (\S+)(?: - should panic)? \.\.\. (?:ok|FAILED).* <([0-9.]+)s>$")


def programs(selection):
    """The test programs of the workspace as (name, path, directory to run in)."""
    made = subprocess.run(
        ["cargo", "test", "--locked", *selection, "--all-targets", "--no-run", "--message-format=json-render-diagnostics"],
        stdout=subprocess.PIPE,
        text=True,
    )
    if made.returncode:
        sys.exit(made.returncode)
    for line in made.stdout.splitlines():
        message = json.loads(line)
        if message.get("reason") == "compiler-artifact" and message["profile"]["test"] and message.get("executable"):
            home = os.path.dirname(message["manifest_path"])
            yield f"{os.path.basename(home)}/{message['target']['name']}", message["executable"], home


def run(name, program, home, times):
    """Runs one program, prints its output, and notes the duration of each of its tests."""
    print(f"     Running {name}", flush=True)
    env = {**os.environ, **REPORT_TIMES, "CARGO_MANIFEST_DIR": home}
    child = subprocess.Popen([program, "-Zunstable-options", "--report-time"], cwd=home, env=env, stdout=subprocess.PIPE, text=True)
    for line in child.stdout:
        print(line, end="", flush=True)
        if timed := TIMED.match(line):
            times.append((float(timed[2]), f"{name} {timed[1]}"))
    return child.wait() == 0


def main():
    selection = sys.argv[1:] or ["--workspace"]
    failed, times, began = [], [], time.monotonic()
    for name, program, home in programs(selection):
        if not run(name, program, home, times):
            failed.append(name)
    if subprocess.run(["cargo", "test", "--locked", *selection, "--doc", "--no-fail-fast"]).returncode:
        failed.append("examples in doc comments")
    print(f"\nThe slowest tests of {time.monotonic() - began:.0f} s:")
    for seconds, test in sorted(times, reverse=True)[:10]:
        print(f"{seconds:8.1f} s  {test}")
    if failed:
        print("failed: " + ", ".join(failed))
    sys.exit(bool(failed))


main()
