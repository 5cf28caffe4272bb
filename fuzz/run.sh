#!/bin/bash
# Runs each fuzz target for a bounded time: run.sh [SECONDS (60)] [TARGET...]; without targets also random sessions against
# the real binary. A finding ends it with status 1 and is left in fuzz/artifacts/. Wants cargo-fuzz (installed if it is missing)
# and compiler flags of nightly, which stable Rust gives with RUSTC_BOOTSTRAP=1 where there is no nightly.
set -euo pipefail
cd "$(dirname "$0")"
seconds=${1:-60}
shift || true
targets=("$@")
whole=no
if [ ${#targets[@]} -eq 0 ]; then
    whole=yes
    mapfile -t targets < <(sed -n 's/^name = "\(.*\)"$/\1/p' Cargo.toml | grep -v '^weir-fuzz$')
fi
if ! cargo fuzz --version >/dev/null 2>&1; then
    cargo install cargo-fuzz --locked
fi
cargo=(cargo)
if rustup toolchain list 2>/dev/null | grep -q '^nightly'; then
    cargo=(cargo +nightly)
else
    export RUSTC_BOOTSTRAP=1
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for target in "${targets[@]}"; do
    python3 seeds.py "$target" "corpus/$target"
    more=(-timeout=10)
    # Connections that are cut for being slow take their time. What a server holds after one input is no leak; looking for one plays
    # each input twice.
    [ "$target" = sessions ] && more=(-timeout=60 -detect_leaks=0)
    echo "fuzz: $target for $seconds s"
    if ! "${cargo[@]}" fuzz run "$target" -- -max_total_time="$seconds" -max_len=20000 -rss_limit_mb=2048 \
        "${more[@]}" -print_final_stats=1 >"$log" 2>&1; then
        tail -n 60 "$log"
        echo "fuzz: $target found something (or did not build), see above; inputs are in fuzz/artifacts/$target" >&2
        exit 1
    fi
    grep -E '^stat::(number_of_executed_units|average_exec_per_sec|peak_rss_mb)|DONE' "$log"
done
if [ $whole = yes ]; then
    echo "fuzz: sessions against the real binary for $seconds s"
    (cd .. && unset RUSTC_BOOTSTRAP && WEIR_FUZZ_SECONDS=$seconds cargo test --locked -p weir --test all sessions_of_random_bytes -- --nocapture) 2>&1 | tee "$log" | grep '^sessions:' ||
        { tail -n 60 "$log"; exit 1; }
fi
echo "fuzz: nothing found"
