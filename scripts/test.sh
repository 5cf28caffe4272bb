#!/usr/bin/env bash
# Runs everything that must pass before a change is merged. All parts run even if one fails; the last lines are a summary with a total.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

export WEIR_BIN=${WEIR_BIN:-$(realpath -m "${CARGO_TARGET_DIR:-target}")/release/weir}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
passed=0
failed=0
missing=0
summary=()

# part NAME KIND COMMAND...: runs a part and counts its tests. KIND is the format of its output: cargo, pytest, or one (a single check).
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
        # A test that cannot run here (loop devices need root) proves nothing: the output names it, and the summary counts it apart.
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
# Clippy's compiler also makes the test programs, so that everything is compiled only once.
export RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-Dwarnings
part clippy one cargo test --locked --workspace --all-targets --no-run
part crates cargo scripts/test_crates.py
unset RUSTC_WORKSPACE_WRAPPER CLIPPY_ARGS
part build one cargo build --release --locked -p weir
# Most tests wait nearly all of their time, so they run in parallel; a file's tests share servers and stay together.
part clients pytest .venv/bin/python -m pytest tests -q -m 'not alone' -n "${TEST_WORKERS:-4}" --dist loadfile --durations=10
part clients-alone pytest .venv/bin/python -m pytest tests -q -m alone --durations=10

echo
printf '%s\n' "${summary[@]}"
((missing == 0)) || echo "$missing tests could not run here; the reasons are above (SKIPPED)"
echo "$passed passed, $failed failed"
[[ $failed == 0 && $passed -gt 0 ]]
