#!/usr/bin/env bash
# Makes the wheel of the Python package, build/weir-VERSION-cp39-abi3-PLATFORM.whl, and prints its path: scripts/wheel.sh [FOLDER]
# Building it needs Rust and any Python from 3.11. Users of the wheel need Python from 3.9, and nothing else.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=${1:-build}
# The same commit gives the same bytes.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH
cargo build --release --locked -p weir-python >&2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
strip --strip-unneeded -o "$work/_weir.so" "${CARGO_TARGET_DIR:-target}/release/lib_weir.so"
python3 scripts/wheel.py "$work/_weir.so" "$folder"
