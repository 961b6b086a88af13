#!/usr/bin/env bash
# Whether a modelled disk in real time is as fast as on the virtual clock.
#
#   benches/sim_rate.sh [SECONDS [MODEL...]]    a table: the same program in virtual time, through the engine, over NBD
#   benches/sim_rate.sh nbdcopy [MODEL...]      nbdcopy out of an export, beside the lab's sequential reader
#
# Beyond what this machine's CPUs can move, and where a client keeps fewer requests in flight than the disk needs, a real
# disk behind NBD would be slower than by itself, and so is a modelled one.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "${1:-}" != nbdcopy ]; then
  cargo bench -q -p fairlift-cli --bench sim_rate -- "$@"
  exit
fi
shift
command -v nbdcopy >/dev/null || { echo "nbdcopy is missing (Debian: apt-get install libnbd-bin)"; exit 1; }
cargo build -q --release -p fairlift-cli
# Each says its size last, in G: the lab's reader goes over nearly all of it, as nbdcopy does, and again and again: a hard
# disk is half as fast at its end as at its beginning.
[ $# -gt 0 ] || set -- sata-7200,size=1G ssd-2010,size=2G ssd-plextor-m5,size=4G
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
echo "| model | depth | virtual, KiB/s | nbdcopy, KiB/s | |"; echo "|---|---|---|---|---|"
for model; do for depth in 1 64; do
  size=$(sed 's/.*size=\([0-9]*\)G$/\1/' <<<"$model")
  target/release/fairlift iostest --device "sim:$model" --scheduler none -w dsr -m 1 --iodepth $depth --bs 256k \
    --filesize $((1024 * size - 2))m --runtime 300 --json "$dir/r.json" >/dev/null
  target/release/fairlift serve "d=sim:$model" --listen "unix:$dir/s" --scheduler none >/dev/null 2>&1 & server=$!
  until [ -S "$dir/s" ]; do sleep 0.05; done
  uri="nbd+unix:///d?socket=$dir/s"
  bytes=$(nbdinfo --size "$uri")
  start=$(date +%s.%N)
  # What was never written is a hole, which nbdcopy would not read.
  nbdcopy --no-extents --connections=1 --requests=$depth "$uri" null:
  end=$(date +%s.%N)
  kill "$server"; wait "$server" || true
  python3 - "$model" "$depth" "$dir/r.json" "$bytes" "$start" "$end" <<'PY'
import json, sys
model, depth, results = sys.argv[1:4]
size, start, end = map(float, sys.argv[4:])
wanted, got = json.load(open(results))["runs"][0]["total_kb_s"], size / 1024 / (end - start)
print(f"| `{model}` | {depth} | {wanted:.0f} | {got:.0f} | {(got / wanted - 1) * 100:+.1f} % |")
PY
done; done
