#!/bin/bash
# fair.sh [REPS] [--quick] [--peers-only] [--throttles] [--cases "NAME ..."] [--sec S] [--a "OPTIONS"] [--b "OPTIONS"]
# fair.sh --uris URI_A URI_B [--a ...] [--b ...] [--sec S]     against a running server: one JSON line
#
# What a shallow client keeps when a deep one joins: A reads 4k at depth 1, B at depth 64, one process each.
# A alone, B alone, then both; interleaved repetitions (default 3, 2 s together); a Markdown table.
# --throttles adds the limits of QEMU and nbdkit (fair-servers.sh); --a and --b take options of nbdload.
. "$(dirname "$0")/common.sh"

PEERS="nbdkit-mem nbdkit-file-disk-nc nbdkit-file-ram qsd-uring-disk qsd-ram qnbd-uring-disk qnbd-ram nbdsrv-disk nbdsrv-ram"
OURS="fairlift-mem fairlift-file-disk fairlift-mem-mq-deadline fairlift-file-disk-mq-deadline fairlift-file-ram fairlift-file-ram-mq-deadline"
KEY="nbdkit-mem qsd-uring-disk fairlift-mem fairlift-file-disk fairlift-mem-mq-deadline fairlift-file-disk-mq-deadline"

reps='' sec='' a_options="--depth 1" b_options="--depth 64" cases='' quick='' peers_only='' throttles='' uri_a='' uri_b=''
while [ $# -gt 0 ]; do
  case $1 in
  --quick) quick=1 ;; --peers-only) peers_only=1 ;; --throttles) throttles=1 ;;
  --cases) cases=${2:-}; shift ;; --sec) sec=${2:-}; shift ;; --a) a_options=${2:-}; shift ;; --b) b_options=${2:-}; shift ;;
  --uris) uri_a=${2:-} uri_b=${3:-}; shift 2 ;;
  [1-9] | [1-9][0-9]) reps=$1 ;;
  *) sed -n 2,7p "$0" | sed 's/^# \{0,1\}//'; exit 2 ;;
  esac
  shift || die "the last argument needs a value"
done
: "${reps:=$([ "$quick" ] && echo 1 || echo 3)}" "${sec:=$([ "$quick" ] && echo 1 || echo 2)}"

load() { timeout 60 "$NBDLOAD" --rw randread --seed "$(seed)" "$@"; }
measure() { # measure LABEL REP URI_A URI_B PID: one JSON line
  local a0 b0 a b half; half=$(echo "$sec / 2" | bc -l)
  # shellcheck disable=SC2086
  {
    a0=$(load --uri "$3" $a_options --seconds "$half" --warmup 0.2 --server-pid "$5")
    b0=$(load --uri "$4" $b_options --seconds "$half" --warmup 0.2 --server-pid "$5")
    load --uri "$4" $b_options --seconds "$(echo "$sec + 0.2" | bc)" --warmup 0.5 --server-pid "$5" >"$RUN/fair-b.json" &
    a=$(load --uri "$3" $a_options --seconds "$sec" --warmup 0.6)
    wait $!
  }
  b=$(cat "$RUN/fair-b.json")
  # While both run, A's client is what B's generator takes for someone else.
  jq -cn --arg l "$1" --argjson r "$2" --argjson a0 "${a0:-null}" --argjson b0 "${b0:-null}" --argjson a "${a:-null}" --argjson b "${b:-null}" '
    if $a0 and $b0 and $a and $b then
      {label: $l, rep: $r, a_alone: $a0.iops, b_alone: $b0.iops, a: $a.iops, b: $b.iops, a_share: ($a.iops / ($a.iops + $b.iops)),
       a_kept: ($a.iops / $a0.iops), a_alone_p50_us: $a0.all.p50_us, a_p50_us: $a.all.p50_us, a_p99_us: $a.all.p99_us,
       a_p999_us: $a.all.p999_us, b_p50_us: $b.all.p50_us, b_p99_us: $b.all.p99_us, server: $b.server,
       other_cpu_cores: ([$a0.other_cpu_cores // 0, $b0.other_cpu_cores // 0, ($b.other_cpu_cores // 0) - $a.client_cpu_cores] | max)}
    else {label: $l, rep: $r, failed: true} end'
}

workdir
if [ -n "$uri_a" ]; then
  build_load
  measure given 1 "$uri_a" "${uri_b:?--uris takes two}" 0
  exit
fi

[ -n "$cases" ] || cases=$([ "$quick" ] && echo "$KEY" || echo "$PEERS $OURS")
[ -z "$throttles" ] || cases+=" qsd-limit-b qsd-one-limit qsd-3-to-1 nbdkit-rate nbdkit-connection-rate"
# shellcheck disable=SC2001
[ -z "$peers_only" ] || cases=$(sed 's/fairlift-[^ ]*//g' <<<"$cases")
need_peers
build_load
[[ $cases != *fairlift-* ]] || build_fairlift
"$HERE/prepare.sh" || exit 1
one_at_a_time
stamp=$(date +%Y%m%d-%H%M%S)
out=$RESULTS/fair-$stamp.jsonl
trap stop_all EXIT
trap 'exit 130' INT TERM

for rep in $(seq "$reps"); do
  for name in $cases; do
      if ! read -r ua ub pid < <("$HERE/fair-servers.sh" start "$name"); then
      jq -cn --arg l "$name" --argjson r "$rep" '{label: $l, rep: $r, failed: true}' >>"$out"; continue
    fi
    case $name in *-mem*) timeout 60 nbdcopy --connections=1 --requests=8 "$RAM" "$ua" || say "$name: could not be filled" ;; esac
    measure "$name" "$rep" "$ua" "$ub" "$pid" >>"$out"
    "$HERE/server.sh" stop "$pid"
      say "repetition $rep of $reps: $name"
  done
done

{
  echo "## A client at depth 1 beside one at depth 64"
  echo
  machine
  echo "* Command: benches/peers/fair.sh $reps${quick:+ --quick}, A: 4k random reads, $a_options; B: $b_options; $sec s together. \"A keeps\": its rate beside B ÷ its rate alone. Medians (range)."
  echo
  jq -rs '
    def med: sort | if length == 0 then 0 elif length % 2 == 1 then .[length / 2 | floor] else (.[length / 2 - 1] + .[length / 2]) / 2 end;
    def k: if . >= 99950 then "\(. / 1000 | round)k" else "\(. / 100 | round / 10)k" end;
    def us: if . >= 9999.5 then "\(. / 100 | round / 10)ms" else "\(round)" end;
    def pc: "\(. * 100 | round)";
    "| server | A alone | B alone | A with B | B with A | A share % | A keeps % | A p50 µs alone → with B | A p99 / p99.9 µs | server CPU µs/IO |",
    "|---|---|---|---|---|---|---|---|---|---|",
    (map(.label) | to_entries | unique_by(.value) | sort_by(.key) | map(.value)) as $labels
    | $labels[] as $l | map(select(.label == $l and (.failed | not))) as $all
    | ($all | map(select(.other_cpu_cores <= 0.15))) as $calm | (if $calm == [] then $all else $calm end) as $r
    | if $r == [] then "| \($l) | failed | | | | | | | | |" else
      "| \($l)\(if $calm == [] then " ~" else "" end) | \($r | map(.a_alone) | med | k) | \($r | map(.b_alone) | med | k) | \($r | map(.a) | med | k) | \($r | map(.b) | med | k) | \($r | map(.a_share) | med | pc) (\($r | map(.a_share) | min | pc)..\($r | map(.a_share) | max | pc)) | **\($r | map(.a_kept) | med | pc)** (\($r | map(.a_kept) | min | pc)..\($r | map(.a_kept) | max | pc)) | \($r | map(.a_alone_p50_us) | med | us) → \($r | map(.a_p50_us) | med | us) | \($r | map(.a_p99_us) | med | us) / \($r | map(.a_p999_us) | med | us) | \($r | map(.server.cpu_cores * 1e6 / (.a + .b)) | med * 10 | round / 10) |" end' "$out"
  echo
  echo "~: other processes took more than 0.15 cores in every repetition."
} | tee "$RESULTS/fair-$stamp.md"
say "raw: $out, tables: $RESULTS/fair-$stamp.md"
