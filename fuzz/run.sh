#!/bin/sh
# Runs every fuzz target for a while; exits with 1 if any crashed.
#
#   fuzz/run.sh [SECONDS]                10 seconds each unless said otherwise; 0: only build
#   TARGETS="nbd" fuzz/run.sh 600        only these
#
# Stable Rust, no cargo-fuzz: the flags below are what `cargo fuzz` would set. Seeds are in corpus/TARGET; what the
# fuzzer adds goes to target/corpus/TARGET, and what crashes to target/crashes/TARGET. To run one again:
#   fuzz/target/HOST/release/TARGET FILE
set -eu
cd "$(dirname "$0")"
seconds=${1:-10}
host=$(rustc -vV | sed -n 's/^host: //p')
targets=${TARGETS:-$(for file in fuzz_targets/*.rs; do basename "$file" .rs; done)}

# `--target` keeps the flags away from build scripts, which have no fuzzer to report to.
RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1" \
    cargo build --release --target "$host" ${CARGO_JOBS:+-j "$CARGO_JOBS"}

work=${CARGO_TARGET_DIR:-target}
built=$work/$host/release
failed=
if [ "$seconds" = 0 ]; then exit 0; fi
for target in $targets; do
    found=$work/corpus/$target crashes=$work/crashes/$target
    mkdir -p "$found" "$crashes"
    seeds=
    if [ -d "corpus/$target" ]; then seeds=corpus/$target; fi
    echo "fuzz: $target for $seconds s"
    # shellcheck disable=SC2086
    "$built/$target" -max_total_time="$seconds" -use_value_profile=1 -timeout=5 -rss_limit_mb=1024 \
        -artifact_prefix="$crashes/" -print_final_stats=1 "$found" $seeds || failed="$failed $target"
done
if [ -n "$failed" ]; then
    echo "fuzz: crashed:$failed" >&2
    echo "to repeat it, at commit $(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown):" >&2
    for target in $failed; do
        crash=$(ls -t "$work/crashes/$target" | head -1)
        echo "  fuzz/run.sh 0 && fuzz/${built#"$PWD"/}/$target fuzz/${work#"$PWD"/}/crashes/$target/$crash" >&2
    done
    exit 1
fi
