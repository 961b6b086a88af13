#!/bin/bash
# suite.sh URI [--pid SERVER_PID] [--label L] [--rep N] [--out FILE] [--sec 1] [--warm 0.15] [--pause 0] [--only "w1 w2"]
# The standard workloads against one running server, a JSON line each.
# --pause: seconds of rest after each workload that wrote (a cloud disk's token bucket refills).
. "$(dirname "$0")/common.sh"
uri=${1:-}; shift
[ -n "$uri" ] || { sed -n 2,4p "$0"; exit 2; }
pid=0 label='' rep=1 out=/dev/stdout sec=1 warm=0.15 pause=0 only=''
while [ $# -gt 0 ]; do
  case $1 in
  --pid) pid=$2 ;; --label) label=$2 ;; --rep) rep=$2 ;; --out) out=$2 ;; --sec) sec=$2 ;; --warm) warm=$2 ;;
  --pause) pause=$2 ;; --only) only=$2 ;; *) die "what is $1?" ;;
  esac
  shift 2 || die "$1 needs a value"
done
[ -x "$NBDLOAD" ] || { workdir; build_load; }
blk=$(block_device)

run() { # run WORKLOAD nbdload-arguments
  local w=$1 j; shift
  [ -z "$only" ] || [[ " $only " == *" $w "* ]] || return 0
  j=$(timeout 40 "$NBDLOAD" --uri "$uri" "$@" --seconds "$sec" --warmup "$warm" --seed "$(seed)" --server-pid "$pid" ${blk:+--blkstat "$blk"} --label "$label")
  jq -c -n --arg w "$w" --arg l "$label" --argjson r "$rep" --argjson j "${j:-null}" \
    '{workload: $w, label: $l, rep: $r} + ($j // {failed: true})' >>"$out"
  [[ $* != *randwrite* ]] || sleep "$pause"
}
run rr-qd1     --rw randread  --depth 1
run rr-32x1    --rw randread  --depth 32
run rr-32x4    --rw randread  --depth 32 --conns 4
run rw-32x1    --rw randwrite --depth 32
run rw-32x4    --rw randwrite --depth 32 --conns 4
run seq64k     --rw read --bs 64k --depth 16
run seq1m      --rw read --bs 1M  --depth 4
run wflush-1   --rw randwrite --depth 1 --flush-every 1
run wflush-32  --rw randwrite --depth 1 --flush-every 1 --conns 32
