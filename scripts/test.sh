#!/usr/bin/env bash
# Runs everything that must pass before a change is merged. All parts run even if one fails; the last lines are a summary with a total.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

# Everything is compiled once: the program, the Python package and the crates' test programs have one profile, with the assertions of
# debug builds, and clippy's compiler makes them. TEST_PROFILE=release tests them as users get them; that takes longer.
profile=${TEST_PROFILE:-dev}
export RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-Dwarnings
built=$(realpath -m "${CARGO_TARGET_DIR:-target}")/${profile/dev/debug}
export WEIR_BIN=$built/weir
# Line numbers in backtraces would cost a seventh of the compilers' time: a panic tells its own line without them.
export CARGO_PROFILE_DEV_DEBUG=${CARGO_PROFILE_DEV_DEBUG:-false}
# Notes for the next compilation would only cost time.
export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}
logs=$(mktemp -d)
beside=
trap '[[ -z $beside ]] || kill -- "-$beside"; rm -rf "$logs"' EXIT
# All parts add the times of their tests, as `SECONDS NAME`.
export WEIR_TEST_TIMES=$logs/times
: >"$WEIR_TEST_TIMES"
passed=0
failed=0
missing=0
summary=()
failed_parts=()

# run NAME COMMAND...: runs a part, and keeps its output, its exit status and its duration.
run() {
    local name=$1 start=$SECONDS
    shift
    echo "=== $name: $*"
    "$@" 2>&1 | tee "$logs/$name"
    echo "${PIPESTATUS[0]} $((SECONDS - start))" >"$logs/$name.end"
}

# count NAME KIND: counts the tests of a part that has ended. KIND is the format of its output: cargo, pytest, or one (a single check).
count() {
    local name=$1 kind=$2 good=0 bad=0 skipped=0 status took log=$logs/$1
    read -r status took <"$log.end"
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
    one) [[ $status == 0 ]] && good=1 ;;
    esac
    [[ $status != 0 && $bad == 0 ]] && bad=1
    ((bad == 0)) || failed_parts+=("$name")
    passed=$((passed + good))
    failed=$((failed + bad))
    missing=$((missing + skipped))
    summary+=("$(printf '%-14s %5d passed, %d failed, %d missing (%d s)' "$name" "$good" "$bad" "$skipped" "$took")")
}

# part NAME KIND COMMAND...: runs a part and counts its tests.
part() {
    local name=$1 kind=$2
    shift 2
    run "$name" "$@"
    count "$name" "$kind"
}

# beside NAME COMMAND...: starts a command beside the next parts. Its process group of its own ends with this script.
beside() {
    echo "=== $1: beside the next part; the output comes after it"
    set -m
    "${@:2}" >"$logs/beside" 2>&1 &
    beside=$!
    set +m
}

# joined: waits for what was started beside the parts, and shows its output.
joined() {
    wait "$beside"
    beside=
    cat "$logs/beside"
}

# marked MARK: the files that have tests with this mark. To collect all others as well would take each process seconds.
marked() {
    grep -l "pytest\.mark\.$1\b" tests/test_*.py
}

# The crates' test programs. The compilers take the processor time that the clients' tests leave.
crates() {
    run clippy nice -n 19 cargo test --locked --workspace --no-run
    run crates scripts/test_crates.py --others
}

# Installing mostly waits for networks and disks, so the compilers work meanwhile, if they need nothing of what it installs. Only for
# root, since others may be asked for a password.
if [[ $EUID == 0 ]] && cc -x c -o "$logs/program" - <<<'int main(void) { return 0; }' 2>/dev/null; then
    beside setup run setup scripts/setup.sh test
else
    run setup scripts/setup.sh test
fi
part format one cargo fmt --all --check
part fuzz-format one rustfmt --check --edition 2024 fuzz/fuzz_targets/*.rs
# With a test program, features that only tests ask for count as well: others' crates and ours are the same as below.
part build one cargo build --locked --profile "$profile" --workspace --lib --bin weir --test rate
[[ -z $beside ]] || joined
count setup one
part dependencies one scripts/check_dependencies.py
part scripts one .venv/bin/ruff check
part wheel one env WHEEL_LIBRARY="$built/lib_weir.so" scripts/wheel.sh
WEIR_WHEEL=$(tail -n 1 "$logs/wheel")
export WEIR_WHEEL
# Pytest's changes to the tests' bytecode, kept for the processes below. Each would need seconds of its processor's time to make them.
part collect one env PYTHONDONTWRITEBYTECODE= .venv/bin/python -m pytest tests -qq --collect-only
beside "clippy, crates" crates
# Most of these tests wait nearly all of their time.
part clients pytest .venv/bin/python -m pytest tests -q -m 'not alone and not paced and not long' -n "${TEST_WORKERS:-6}"
joined
count clippy one
count crates cargo
# These measure time or rates, so nothing runs beside them.
part crates-alone cargo scripts/test_crates.py --measuring
mapfile -t files < <(marked alone)
part clients-alone pytest .venv/bin/python -m pytest "${files[@]}" -q -m 'alone and not long'
# These measure what they have set themselves, far below what the machine can do, so a few run side by side.
mapfile -t files < <(marked paced)
part clients-paced pytest .venv/bin/python -m pytest "${files[@]}" -q -m 'paced and not long' -n 6

echo
echo "The slowest tests:"
sort -rn "$WEIR_TEST_TIMES" | head -n 10 | awk '{printf "%8.1f s  ", $1; $1 = ""; print substr($0, 2)}'
# The names of failed tests are repeated here, and the table of the parts comes last: the start of a long output is easily cut off.
((failed == 0)) || echo "What failed:"
for name in "${failed_parts[@]}"; do
    # The output of a failed test may have lines that begin like a compiler's. So those of compilers count only where no test has failed.
    { grep -ahE '^(FAILED|ERROR) |^test .* \.\.\. FAILED' "$logs/$name" || grep -ahE '^error(\[|:)' "$logs/$name"; } |
        sed "s/^/    $name: /" | cut -c 1-300 | head -n 40
done
((missing == 0)) || echo "$missing tests could not run here; the reasons are above (SKIPPED)"
printf '%s\n' "${summary[@]}"
echo "$passed passed, $failed failed in $SECONDS s"
[[ $failed == 0 && $passed -gt 0 ]]
