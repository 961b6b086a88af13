#!/bin/bash
# compare.sh [REPS] [--quick] [--peers-only] [--only "workload ..."] [--servers "NAME ..."] [--sec S] [--sparse]
# compare.sh report FILE.jsonl     the tables of an earlier run once more
# compare.sh clean                 unmount and delete all that these scripts made
#
# Builds fairlift, prepares the backings, measures fairlift and the other NBD servers in turn, REPS times
# (default 3, about 12 minutes; --quick: key servers, 2 times, half-second cells, under 3 minutes),
# and prints Markdown tables. Nothing else should run on the machine meanwhile.
# --sparse leaves RAM disks empty; otherwise they are filled first, so that reads move real data.
. "$(dirname "$0")/common.sh"

# Disk servers and RAM servers take turns, so that the disk's token bucket refills.
ALL="nbdkit-mem nbdkit-file-disk fairlift-mem fairlift-file-disk fairlift-mem-mq-deadline qnbd-uring-disk
  nbdkit-file-ram fairlift-file-ram fairlift-file-disk-mq-deadline fairlift-file-ram-mq-deadline qnbd-ram qsd-uring-disk
  qsd-null fairlift-null nbdkit-file-disk-nc fairlift-null-mq-deadline qsd-ram nbdsrv-disk nbdsrv-ram"
KEY="nbdkit-mem fairlift-mem fairlift-file-disk qsd-null fairlift-null nbdkit-file-ram qsd-uring-disk fairlift-file-ram"

case ${1:-} in
clean) exec "$HERE/prepare.sh" clean ;;
report) exec python3 "$HERE/report.py" "$2" ;;
esac
reps='' sec='' quick='' peers_only='' sparse='' only='' servers=''
while [ $# -gt 0 ]; do
  case $1 in
  --quick) quick=1 ;; --peers-only) peers_only=1 ;; --sparse) sparse=1 ;;
  --only) only=${2:-}; shift ;; --servers) servers=${2:-}; shift ;; --sec) sec=${2:-}; shift ;;
  [1-9] | [1-9][0-9]) reps=$1 ;;
  *) sed -n 2,9p "$0" | sed 's/^# \{0,1\}//'; exit 2 ;;
  esac
  shift || die "the last argument needs a value"
done
: "${reps:=$([ "$quick" ] && echo 2 || echo 3)}" "${sec:=$([ "$quick" ] && echo 0.5 || echo 1)}"
[ -n "$servers" ] || servers=$([ "$quick" ] && echo "$KEY" || echo "$ALL")
# shellcheck disable=SC2001
[ -z "$peers_only" ] || servers=$(sed 's/fairlift-[^ ]*//g' <<<"$servers")
read -r -d '' -a list <<<"$servers"
[ ${#list[@]} -gt 0 ] || die "no servers to measure"

need_peers
workdir
build_load
[[ $servers != *fairlift-* ]] || build_fairlift
"$HERE/prepare.sh" || exit 1
one_at_a_time
stamp=$(date +%Y%m%d-%H%M%S)
out=$RESULTS/$stamp.jsonl
trap stop_all EXIT
trap 'exit 130' INT TERM

{
  echo "## Fairlift beside other NBD servers"
  echo
  machine
  echo "* Command: benches/peers/compare.sh $reps${quick:+ --quick}${peers_only:+ --peers-only}${sparse:+ --sparse}, $sec s per cell after 0.15 s of warm-up, servers interleaved, unix sockets, one client thread. RAM disks ${sparse:+not }filled beforehand."
} >"$RESULTS/$stamp.head.md"

one() { # one NAME REP
  local uri pid t=$SECONDS pause=0
  if ! read -r uri pid < <("$HERE/server.sh" start "$1"); then
    jq -cn --arg l "$1" --argjson r "$2" '{workload: "start", label: $l, rep: $r, failed: true}' >>"$out"
    return
  fi
  case $1 in
  *-mem*) [ "$sparse" ] || timeout 60 nbdcopy --connections=1 --requests=8 "$RAM" "$uri" || say "$1: could not be filled" ;;
  *-disk*) pause=0.5 ;;
  esac
  "$HERE/suite.sh" "$uri" --pid "$pid" --label "$1" --rep "$2" --out "$out" --sec "$sec" --pause "$pause" ${only:+--only "$only"}
  "$HERE/server.sh" stop "$pid"
  say "repetition $2 of $reps: $1, $((SECONDS - t)) s"
}
for rep in $(seq "$reps"); do # there and back again: nobody is always first, or always after the same one
  if [ $((rep % 2)) = 1 ]; then order=("${list[@]}"); else
    order=(); for name in "${list[@]}"; do order=("$name" "${order[@]}"); done
  fi
  for name in "${order[@]}"; do one "$name" "$rep"; done
done

python3 "$HERE/report.py" "$out" --head "$RESULTS/$stamp.head.md" | tee "$RESULTS/$stamp.md"
say "raw: $out, tables: $RESULTS/$stamp.md"
