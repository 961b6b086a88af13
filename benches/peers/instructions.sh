#!/bin/bash
# instructions.sh [NAME ...]     instructions per I/O of servers, 4k random reads at 32x1
# With hardware counters: perf stat, user and kernel. Without (most virtual machines): callgrind, user space only,
# and slow; a run with load less a run without, so start and handshake do not count.
# Under callgrind one I/O comes at a time, so batches are small: compare servers and commits, not machines.
. "$(dirname "$0")/common.sh"
[[ ${1:-} != -* ]] || { sed -n 2,5p "$0"; exit 2; }
names=("$@")
[ $# -gt 0 ] || names=(nbdkit-file-ram qsd-ram)
[ $# -gt 0 ] || [ ! -x "$FAIRLIFT" ] || names+=(fairlift-file-ram fairlift-file-ram-mq-deadline)
need_peers
workdir
build_load
"$HERE/prepare.sh" || exit 1
one_at_a_time
trap stop_all EXIT
trap 'exit 130' INT TERM

# shellcheck disable=SC2154
load() { timeout 60 "$NBDLOAD" --uri "$uri" --rw randread --depth 32 --warmup "$1" --seconds "$2" --seed 1; }

# For a machine without counters: EVENT=task-clock tries the plumbing.
: "${EVENT:=instructions}"
by_perf() { # perf looks at 1.5 s in the middle of the load
  local uri pid j u k
  read -r uri pid < <("$HERE/server.sh" start "$1") || return 1
  (sleep 1 && exec perf stat -x, -e "$EVENT:u,$EVENT:k" -p "$(echo "$pid" "$(pgrep -d, -P "$pid")" | sed 's/ *$//; s/ /,/')" -o "$RUN/perf.csv" -- sleep 1.5) &
  j=$(load 0.5 3)
  wait $!
  "$HERE/server.sh" stop "$pid"
  read -r u k < <(awk -F, -v e="$EVENT" '$3 == e ":u" {u = $1} $3 == e ":k" {k = $1} END {print u, k}' "$RUN/perf.csv")
  jq -er --arg u "$u" --arg k "$k" '"\(($u | tonumber) / (.iops * 1.5) | round) | \(($k | tonumber) / (.iops * 1.5) | round)"' <<<"$j"
}

counted() { # counted NAME SECONDS: total instructions of a server's life, and I/Os done
  local uri pid n
  rm -f "$RUN"/callgrind.*
  read -r uri pid < <(WRAP="valgrind --tool=callgrind --callgrind-out-file=$RUN/callgrind.%p" "$HERE/server.sh" start "$1") || return 1
  n=$(load 0 "$2" | jq .all.n)
  "$HERE/server.sh" stop "$pid"
  echo "$(awk '/^(totals|summary):/{if ($2 > m) m = $2} END{print m + 0}' "$RUN"/callgrind.*) $n"
}
by_callgrind() {
  local i0 n0 i1 n1
  read -r i0 n0 < <(counted "$1" 0.2) && read -r i1 n1 < <(counted "$1" 2) || return 1
  [ "$n1" -gt "$n0" ] || return 1
  echo "$(((i1 - i0) / (n1 - n0))) | -"
}

if ! perf stat -x, -e "$EVENT:u,$EVENT:k" true 2>&1 | grep -q "^[0-9.]*,.*$EVENT:k"; then
  command -v valgrind >/dev/null || die "no hardware counters here, and no valgrind"
  how=by_callgrind; say "no hardware counters here: callgrind, user space only"
else how=by_perf; fi
echo "| server ($how) | user instructions per I/O | kernel |"
echo "|---|---|---|"
for name in "${names[@]}"; do echo "| $name | $($how "$name" || echo 'failed | -') |"; done
