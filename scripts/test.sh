#!/usr/bin/env bash
# Everything that must pass before a change goes in. All parts run even when one fails; the last lines are a summary with a total.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

export WEIR_BIN=${WEIR_BIN:-$(realpath -m "${CARGO_TARGET_DIR:-target}")/release/weir}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
passed=0
failed=0
missing=0
summary=()

# part NAME KIND COMMAND...: runs a part, counts its tests. KIND says how its output is counted: cargo, pytest, or one (the part is one check).
part() {
    local name=$1 kind=$2 good=0 bad=0 skipped=0 ok=yes start=$SECONDS
    shift 2
    echo "=== $name: $*"
    "$@" 2>&1 | tee "$log" || ok=no
    case $kind in
    cargo)
        good=$(awk '/^test result:/ {n += $4} END {print n + 0}' "$log")
        bad=$(awk '/^test result:/ {n += $6} END {print n + 0}' "$log")
        ;;
    pytest)
        good=$(tail -n 1 "$log" | grep -oE '[0-9]+ passed' | awk '{n = $1} END {print n + 0}')
        bad=$(tail -n 1 "$log" | grep -oE '[0-9]+ (failed|errors?)' | awk '{n += $1} END {print n + 0}')
        # What cannot run here (loop devices need root) proves nothing: it is named in the output and counted apart.
        skipped=$(tail -n 1 "$log" | grep -oE '[0-9]+ skipped' | awk '{n = $1} END {print n + 0}')
        ;;
    one) [[ $ok == yes ]] && good=1 ;;
    esac
    [[ $ok == no && $bad == 0 ]] && bad=1
    passed=$((passed + good))
    failed=$((failed + bad))
    missing=$((missing + skipped))
    summary+=("$(printf '%-14s %5d passed, %d failed, %d missing (%d s)' "$name" "$good" "$bad" "$skipped" $((SECONDS - start)))")
}

part setup one scripts/setup.sh test
part format one cargo fmt --all --check
part fuzz-format one rustfmt --check --edition 2024 fuzz/fuzz_targets/*.rs
part dependencies one scripts/check_dependencies.py
part scripts one .venv/bin/ruff check
# The compiler that checks the lints also makes the test programs: everything is compiled once for both.
export RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-Dwarnings
part clippy one cargo test --locked --workspace --all-targets --no-run
part crates cargo scripts/test_crates.py
unset RUSTC_WORKSPACE_WRAPPER CLIPPY_ARGS
part build one cargo build --release --locked -p weir
# Most tests wait for something nearly all of their time; a file's tests share servers and stay together.
part clients pytest .venv/bin/python -m pytest tests -q -m 'not alone' -n "${TEST_WORKERS:-5}" --dist loadfile --durations=10
part clients-alone pytest .venv/bin/python -m pytest tests -q -m alone --durations=10

echo
printf '%s\n' "${summary[@]}"
((missing == 0)) || echo "$missing tests could not run here; the reasons are above (SKIPPED)"
echo "$passed passed, $failed failed"
[[ $failed == 0 && $passed -gt 0 ]]
