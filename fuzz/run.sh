#!/bin/sh
# Runs fuzz targets for a while, as many at once as there are processors; exits with 1 if any crashed.
#
#   fuzz/run.sh [SECONDS]                10 seconds each unless said otherwise; 0: only build
#   TARGETS="nbd" fuzz/run.sh 600        only these
#
# Stable Rust, no cargo-fuzz: the flags below are what `cargo fuzz` would set. Seeds are in corpus/TARGET; what the
# fuzzer adds goes to target/corpus/TARGET, what it says to target/TARGET.log, and what crashes to target/crashes/TARGET. To run
# one again:
#   fuzz/target/HOST/release/TARGET FILE
set -eu
cd "$(dirname "$0")"
seconds=${1:-10}
host=$(rustc -vV | sed -n 's/^host: //p')
targets=${TARGETS:-$(for file in fuzz_targets/*.rs; do basename "$file" .rs; done)}
features=
case " $(echo $targets) " in *" config "* | *" control "* | *" trace "*) features="--features command" ;; esac

# `--target` keeps the flags away from build scripts, which have no fuzzer to report to.
# shellcheck disable=SC2086
RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1" \
    cargo build --release --target "$host" $features ${CARGO_JOBS:+-j "$CARGO_JOBS"}
if [ "$seconds" = 0 ]; then exit 0; fi

export WORK="${CARGO_TARGET_DIR:-target}" SECONDS_EACH="$seconds"
export BUILT="$WORK/$host/release"
# shellcheck disable=SC2016
echo $targets | tr ' ' '\n' | xargs -P "$(nproc)" -I@ sh -c '
    found=$WORK/corpus/@ crashes=$WORK/crashes/@ log=$WORK/@.log
    mkdir -p "$found" "$crashes"
    rm -f "$WORK/@.crashed"
    seeds=
    if [ -d corpus/@ ]; then seeds=corpus/@; fi
    "$BUILT/@" -max_total_time="$SECONDS_EACH" -use_value_profile=1 -timeout=5 -rss_limit_mb=1024 \
        -artifact_prefix="$crashes/" -print_final_stats=1 "$found" $seeds >"$log" 2>&1 || : >"$WORK/@.crashed"
    tried=$(sed -n "s/^stat::number_of_executed_units: *//p" "$log")
    echo "fuzz: @: ${tried:-0} inputs in $SECONDS_EACH s, $(grep -o "cov: [0-9]*" "$log" | tail -1)"'

failed=
for target in $targets; do
    if [ -e "$WORK/$target.crashed" ]; then failed="$failed $target"; fi
done
if [ -n "$failed" ]; then
    echo "fuzz: crashed:$failed" >&2
    for target in $failed; do
        grep -A3 -E "panicked|ERROR: libFuzzer" "$WORK/$target.log" | head -12 >&2
        crash=$(ls -t "$WORK/crashes/$target" | head -1)
        echo "to repeat it, at commit $(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown):" >&2
        echo "  TARGETS=$target fuzz/run.sh 0 && fuzz/${BUILT#"$PWD"/}/$target fuzz/${WORK#"$PWD"/}/crashes/$target/$crash" >&2
    done
    exit 1
fi
