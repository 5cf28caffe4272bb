#!/usr/bin/env python3
"""Enforces deny.toml on the crates in Cargo.lock: licences, bans, duplicate versions, sources. Prints each violation; exit 1 if any."""

import json
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def packages(target: str) -> dict[str, dict]:
    """The ids of the packages that are built for `target`, including tests."""
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", target]
    meta = json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)
    used = {node["id"] for node in meta["resolve"]["nodes"]}
    return {package["id"]: package for package in meta["packages"] if package["id"] in used}


def licence_ok(expression: str, allowed: set[str]) -> bool:
    """Whether an SPDX expression can be met with the allowed licences; AND binds tighter than OR, `/` is the old OR."""
    tokens = re.findall(r"[()]|[^\s()]+", expression.replace("/", " OR "))

    def alternatives() -> bool:
        result = conjunction()
        while tokens and tokens[0] == "OR":
            tokens.pop(0)
            right = conjunction()
            result = result or right
        return result

    def conjunction() -> bool:
        result = single()
        while tokens and tokens[0] == "AND":
            tokens.pop(0)
            right = single()
            result = result and right
        return result

    def single() -> bool:
        token = tokens.pop(0)
        if token == "(":
            result = alternatives()
            tokens.pop(0)
            return result
        if tokens and tokens[0] == "WITH":
            tokens.pop(0)
            token = f"{token} WITH {tokens.pop(0)}"
        return token in allowed

    return alternatives() and not tokens


def violations(policy: dict, crates: dict[str, dict]) -> list[str]:
    found = []
    allowed = set(policy["licenses"]["allow"])
    banned = {entry["crate"]: entry["reason"] for entry in policy["bans"]["deny"]}
    skipped = {entry["crate"] for entry in policy["bans"]["skip"]}
    registries = {f"registry+{url}" for url in policy["sources"]["allow-registry"]}
    versions = defaultdict(set)
    for crate in crates.values():
        name, version, source = crate["name"], crate["version"], crate["source"]
        versions[name].add(version)
        if name in banned:
            found.append(f"{name} {version}: banned: {banned[name]}")
        if source is not None and source not in registries:
            found.append(f"{name} {version}: comes from {source}, not from an allowed registry")
        if not licence_ok(crate["license"] or "none", allowed):
            found.append(f"{name} {version}: licence {crate['license']!r} is not allowed")
        if source is None:
            for wish in crate["dependencies"]:
                if wish["req"] == "*" and wish["source"] is not None:
                    found.append(f"{name}: asks for any version of {wish['name']}")
    for name, several in versions.items():
        extra = [version for version in several if f"{name}@{version}" not in skipped]
        if len(extra) > 1:
            found.append(f"{name}: several versions: {', '.join(sorted(several))}; unite them, or list one under [bans] skip with a reason")
    for entry in skipped:
        name, _, version = entry.partition("@")
        if version not in versions.get(name, ()):
            found.append(f"deny.toml skips {entry}, which is not used any more")
    return found


def main() -> int:
    policy = tomllib.loads((ROOT / "deny.toml").read_text())
    crates = {}
    for target in policy["graph"]["targets"]:
        crates.update(packages(target))
    found = violations(policy, crates)
    for line in found:
        print(f"dependencies: {line}")
    print(f"dependencies: {len(crates)} crates checked against deny.toml, {len(found)} violations")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
