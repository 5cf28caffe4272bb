#!/usr/bin/env bash
# Makes the wheel of the Python package, build/weir-VERSION-cp39-abi3-PLATFORM.whl, and prints its path: scripts/wheel.sh [FOLDER]
# Building it needs Rust and any Python from 3.11. Users of the wheel need Python from 3.9, and nothing else.
# WHEEL_LIBRARY=FILE: with this library of the crate weir-python, instead of building it.
# WHEEL_TARGET=aarch64-unknown-linux-gnu: for another machine than this one, with Rust's library for it (`rustup target add`) and Debian's compiler
# (gcc-aarch64-linux-gnu).
set -euo pipefail
cd "$(dirname "$0")/.."

folder=${1:-build}
# The same commit gives the same bytes.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH
target=${WHEEL_TARGET:-}
built=${CARGO_TARGET_DIR:-target}/release
strip=strip
if [ -n "$target" ]; then
    tools=${target%%-*}-linux-gnu
    linker=CARGO_TARGET_$(echo "$target" | tr 'a-z-' 'A-Z_')_LINKER
    export "$linker=${!linker:-$tools-gcc}" PYO3_NO_PYTHON=1
    built=${CARGO_TARGET_DIR:-target}/$target/release
    strip=$tools-strip
fi
library=${WHEEL_LIBRARY:-}
if [ -z "$library" ]; then
    cargo build --release --locked -p weir-python ${target:+--target "$target"} >&2
    library=$built/lib_weir.so
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$strip" --strip-unneeded -o "$work/_weir.so" "$library"
python3 scripts/wheel.py "$work/_weir.so" "$folder"
