#!/usr/bin/env python3
"""Runs the crates' test programs, and the examples in doc comments if there are any.

  test_crates.py [--measuring | --others] [SELECTION...]

Cargo builds the programs; SELECTION goes to it (`-p weir-store` picks a crate). This script runs them as `cargo test`
would, because only the programs themselves can report the time of each test. Several run side by side. Those that
measure time run after the others, one at a time; `--measuring` and `--others` run only one of the two kinds. The exit
status is 1 if anything failed. The times of all tests are added to the file $WEIR_TEST_TIMES, one `SECONDS NAME` a line;
without it the script lists the ten slowest.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The flag that reports times is not stable. This variable lets a stable test program take it; Cargo itself must not see the variable, since
# build scripts would run again because of it.
REPORT_TIMES = {"RUSTC_BOOTSTRAP": "1"}
TIMED = re.compile(r"^test (\S+)(?: - should panic)? \.\.\. (?:ok|FAILED).* <([0-9.]+)s>$")
# These programs measure time; others beside them would count.
MEASURING = {"bench/all", "bench/cpu", "bench/weir_bench", "link/rate", "manager/opens"}
SIDE_BY_SIDE = os.cpu_count() or 1
# A program that hangs would keep its part of `make test` from ever ending.
LONGEST_SECONDS = 600
# Lines of doc comments: a fence, an empty line, and an indented line, which is code if it comes after an empty one.
FENCE = re.compile(r"^\s*//[/!]\s*```(\S*)")
EMPTY = re.compile(r"^\s*//[/!]\s*$")
INDENTED = re.compile(r"^\s*//[/!] {5}")


@dataclass
class Program:
    name: str
    path: str
    home: str


@dataclass
class Result:
    name: str
    good: bool
    output: str
    seconds: float


def programs(selection: list[str]) -> Iterator[Program]:
    """Builds the test programs of the workspace."""
    made = subprocess.run(
        ["cargo", "test", "--locked", *selection, "--no-run", "--message-format=json-render-diagnostics"],
        stdout=subprocess.PIPE,
        text=True,
    )
    if made.returncode:
        sys.exit(made.returncode)
    for line in made.stdout.splitlines():
        message = json.loads(line)
        if message.get("reason") == "compiler-artifact" and message["profile"]["test"] and message.get("executable"):
            home = os.path.dirname(message["manifest_path"])
            yield Program(f"{os.path.basename(home)}/{message['target']['name']}", message["executable"], home)


def run(program: Program) -> Result:
    env = {**os.environ, **REPORT_TIMES, "CARGO_MANIFEST_DIR": program.home}
    began = time.monotonic()
    command = [program.path, "-Zunstable-options", "--report-time"]
    with subprocess.Popen(
        command, cwd=program.home, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        try:
            output, _ = process.communicate(timeout=LONGEST_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            output += (
                f"\ntest {program.name} ... FAILED: it did not end within {LONGEST_SECONDS} s; it says above which tests run for long\n"
            )
    return Result(program.name, process.returncode == 0, output, time.monotonic() - began)


def has_examples() -> bool:
    """Whether a doc comment may have code that rustdoc would compile. Without any, rustdoc need not look through all crates."""
    for source in ROOT.glob("crates/*/src/**/*.rs"):
        inside, before = False, ""
        for line in source.read_text().splitlines():
            if fence := FENCE.match(line):
                if not inside and fence[1] != "text":
                    return True
                inside = not inside
            elif not inside and INDENTED.match(line) and EMPTY.match(before):
                return True
            before = line
    return False


def main() -> None:
    words = sys.argv[1:]
    kinds = {word for word in words if word in ("--measuring", "--others")} or {"--measuring", "--others"}
    selection = [word for word in words if not word.startswith(("--measuring", "--others"))] or ["--workspace"]
    built = list(programs(selection))
    failed, times, began = [], [], time.monotonic()

    def report(result: Result) -> None:
        print(f"     Running {result.name} ({result.seconds:.1f} s)\n{result.output}", flush=True)
        found = [TIMED.match(line) for line in result.output.splitlines()]
        times.extend((float(timed[2]), f"{result.name} {timed[1]}") for timed in found if timed)
        if not result.good:
            failed.append(result.name)

    if "--others" in kinds:
        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            for result in pool.map(run, [program for program in built if program.name not in MEASURING]):
                report(result)
        if has_examples() and subprocess.run(["cargo", "test", "--locked", *selection, "--doc", "--no-fail-fast"]).returncode:
            failed.append("examples in doc comments")
    if "--measuring" in kinds:
        for program in built:
            if program.name in MEASURING:
                report(run(program))
    times.sort(reverse=True)
    if noted := os.environ.get("WEIR_TEST_TIMES"):
        with open(noted, "a") as file:
            file.writelines(f"{seconds:.1f} {test}\n" for seconds, test in times)
    else:
        print(f"\nThe slowest tests of {time.monotonic() - began:.0f} s:")
        for seconds, test in times[:10]:
            print(f"{seconds:8.1f} s  {test}")
    if failed:
        print("failed: " + ", ".join(failed))
    sys.exit(bool(failed))


main()
