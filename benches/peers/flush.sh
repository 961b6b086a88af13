#!/bin/bash
# flush.sh [REPS] [--quick] [--peers-only] [--servers "NAME ..."] [--conns "1 8 32 128"] [--sec S]
#
# What flushes cost: connections that each write 4 KiB at random and flush, on one file on a disk. Acknowledged commits
# (a write and its flush) in a second, and how many syncs of the file and flushes of the disk each took; interleaved
# repetitions (default 3), medians in a Markdown table. Nothing else should use the disk meanwhile.
#
# File syncs are counted by the kernel (tracepoint ext4_sync_file_enter: every fsync and fdatasync of this one file, also
# through io_uring), so the file must be on ext4, and tracefs writable (root); else the column is empty. Flushes of the
# disk are everybody's.
. "$(dirname "$0")/common.sh"

PEERS="nbdkit-file-disk qnbd-uring-disk nbdsrv-disk qsd-uring-disk"
OURS="fairlift-file-disk fairlift-file-disk-mq-deadline"
reps='' sec='' conns='1 8 32 128' servers='' quick='' peers_only=''
while [ $# -gt 0 ]; do
  case $1 in
  --quick) quick=1 ;; --peers-only) peers_only=1 ;;
  --servers) servers=${2:-}; shift ;; --conns) conns=${2:-}; shift ;; --sec) sec=${2:-}; shift ;;
  [1-9] | [1-9][0-9]) reps=$1 ;;
  *) sed -n 2,9p "$0" | sed 's/^# \{0,1\}//'; exit 2 ;;
  esac
  shift || die "the last argument needs a value"
done
: "${reps:=$([ "$quick" ] && echo 1 || echo 3)}" "${sec:=$([ "$quick" ] && echo 1 || echo 2)}"
[ -n "$servers" ] || servers="$PEERS $OURS"
# shellcheck disable=SC2001
[ -z "$peers_only" ] || servers=$(sed 's/fairlift-[^ ]*//g' <<<"$servers")

need_peers
workdir
build_load
[[ $servers != *fairlift-* ]] || build_fairlift
"$HERE/prepare.sh" || exit 1
one_at_a_time
stamp=$(date +%Y%m%d-%H%M%S)
out=$RESULTS/flush-$stamp.jsonl
blk=$(block_device)

# ---- counting syncs: an instance of the kernel's trace, of which only the number of entries is read
tracefs=/sys/kernel/tracing
[ -d $tracefs/events ] || mount -t tracefs nodev $tracefs 2>/dev/null
trace=$tracefs/instances/fairlift-flush event=events/ext4/ext4_sync_file_enter/enable
if mkdir "$trace" 2>/dev/null && [ -e "$trace/$event" ] && echo "ino == $(stat -c %i "$DISK")" >"$trace/${event%enable}filter"; then
  syncs() { awk '/^(entries|overrun):/ {n += $2} END {print n + 0}' "$trace"/per_cpu/cpu*/stats; }
  counting() { echo "$1" >"$trace/$event"; }
else
  say "no tracepoint ext4_sync_file_enter here: file syncs are not counted"
  rmdir "$trace" 2>/dev/null
  trace=''
  syncs() { echo -1; }
  counting() { :; }
fi
tidy() {
  stop_all
  [ -z "$trace" ] || { counting 0; rmdir "$trace"; }
}
trap tidy EXIT
trap 'exit 130' INT TERM

one() { # one NAME REP
  local uri pid n j before after
  if ! read -r uri pid < <("$HERE/server.sh" start "$1"); then
    for n in $conns; do jq -cn --arg l "$1" --argjson r "$2" --argjson n "$n" '{label: $l, rep: $r, conns: $n, failed: true}' >>"$out"; done
    return
  fi
  for n in $conns; do
    [ -z "$trace" ] || echo >"$trace/trace"
    counting 1
    before=$(syncs)
    j=$(timeout 60 "$NBDLOAD" --uri "$uri" --rw randwrite --depth 1 --flush-every 1 --conns "$n" --seconds "$sec" --warmup 0 \
      --seed "$(seed)" --server-pid "$pid" ${blk:+--blkstat "$blk"} --label "$1")
    after=$(syncs)
    counting 0
    jq -cn --arg l "$1" --argjson r "$2" --argjson n "$n" --argjson s "$((after - before))" --argjson j "${j:-null}" \
      '{label: $l, rep: $r, conns: $n} + if $j then {file_syncs: $s, run: $j} else {failed: true} end' >>"$out"
    sleep 0.5 # a cloud disk's token bucket
  done
  "$HERE/server.sh" stop "$pid"
  say "repetition $2 of $reps: $1"
}
read -r -d '' -a list <<<"$servers"
for rep in $(seq "$reps"); do # there and back again, as compare.sh
  if [ $((rep % 2)) = 1 ]; then order=("${list[@]}"); else
    order=(); for name in "${list[@]}"; do order=("$name" "${order[@]}"); done
  fi
  for name in "${order[@]}"; do one "$name" "$rep"; done
done

{
  echo "## Flushes beside other NBD servers"
  echo
  machine
  echo "* Command: benches/peers/flush.sh $reps${quick:+ --quick}${peers_only:+ --peers-only} --conns \"$conns\" --sec $sec, servers interleaved, unix sockets, one client thread, 4 KiB random writes, a flush after each."
  echo
  python3 "$HERE/flush_report.py" "$out"
} | tee "$RESULTS/flush-$stamp.md"
say "raw: $out, table: $RESULTS/flush-$stamp.md"
