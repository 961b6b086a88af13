#!/usr/bin/env bash
# Instructions of one request in the core, by callgrind: the same on every run, whatever else the machine does.
#
#   benches/instructions.sh                              a line for each scheduler, number of streams and of groups
#   benches/instructions.sh bfq cfq                      only these schedulers
#   benches/instructions.sh bfq rotational=1 KEY=VALUE   with these settings
#   STREAMS="64" GROUPS_="0 8" benches/instructions.sh   only these numbers
#   benches/instructions.sh fair_queue                   the fair queue alone, by the slot: the queue leaves and comes back, or stays
#
# A request here is all of it: the bio is made, submitted, scheduled, dispatched, completed and told; 256 wait all the time.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v valgrind >/dev/null || { echo "valgrind is missing (Debian: apt-get install valgrind)"; exit 1; }
if [ "${1:-}" = fair_queue ]; then
  bench=$(cargo bench --no-run -p fairlift-core --bench fair_queue 2>&1 | sed -n 's/.*(\(.*fair_queue-[0-9a-f]*\)).*/\1/p')
  count() { valgrind --tool=callgrind --callgrind-out-file=/dev/null "$bench" --count "$@" 2>&1 | sed -n 's/.*Collected : //p'; }
  echo "| groups | queues | instructions per slot: leaves | stays |"; echo "|---|---|---|---|"
  for groups in 0 8 1000; do for queues in 1 8 64 512 1000 10000; do
    [ "$queues" -ge "$groups" ] || continue
    line="| $groups | $queues |"
    for what in leaves stays; do
      few=$(count "$groups" "$queues" $what 20000); many=$(count "$groups" "$queues" $what 60000)
      line+=" $(((many - few) / 40000)) |"
    done
    echo "$line"
  done; done
  exit
fi
bench=${BENCH:-$(cargo bench --no-run -p fairlift-core --bench request 2>&1 | sed -n 's/.*(\(.*request-[0-9a-f]*\)).*/\1/p')}
schedulers=() settings=()
for word in "$@"; do [[ $word == *=* ]] && settings+=("$word") || schedulers+=("$word"); done
[ ${#schedulers[@]} -gt 0 ] || mapfile -t schedulers < <("$bench" --memory | sed -n 's/^| \([a-z][a-z-]*\) | [0-9].*/\1/p')
count() {
  valgrind --tool=callgrind --callgrind-out-file=/dev/null "$bench" --count "$@" ${settings[@]+"${settings[@]}"} 2>&1 | sed -n 's/.*Collected : //p'
}
[ ${#settings[@]} -eq 0 ] || echo "With ${settings[*]}:"$'\n'
echo "| scheduler | streams | groups | instructions per request |"; echo "|---|---|---|---|"
for scheduler in "${schedulers[@]}"; do for streams in ${STREAMS:-1 64 10000}; do for groups in ${GROUPS_:-0 8 1000}; do
  # Each stream has had its turn before what is counted.
  warm=$((500 + streams / 32 * 2))
  few=$(count "$scheduler" "$streams" "$groups" $warm); many=$(count "$scheduler" "$streams" "$groups" $((warm + 2000)))
  echo "| $scheduler | $streams | $groups | $(((many - few) / (2000 * 32))) |"
done; done; done
