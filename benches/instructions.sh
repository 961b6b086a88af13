#!/usr/bin/env bash
# Instructions of one request in the core, by callgrind: the same on every run, whatever else the machine does.
#
#   benches/instructions.sh        a line for each scheduler and number of streams
#   benches/instructions.sh fair   BFQ's fair queue alone, by the slot: the queue leaves and comes back, or stays
#
# A request here is all of it: the bio is made, submitted, scheduled, dispatched, completed and told; 256 wait all the time.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v valgrind >/dev/null || { echo "valgrind is missing (Debian: apt-get install valgrind)"; exit 1; }
which=${1:-request}
bench=$(cargo bench --no-run -p fairlift-core --bench "$which" 2>&1 | sed -n "s/.*(\(.*$which-[0-9a-f]*\)).*/\1/p")
count() { valgrind --tool=callgrind --callgrind-out-file=/dev/null "$bench" --count "$@" 2>&1 | sed -n 's/.*Collected : //p'; }
if [ "$which" = fair ]; then
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
echo "| scheduler | streams | instructions per request |"; echo "|---|---|---|"
for scheduler in none mq-deadline; do for streams in 1 8 64 512; do
  few=$(count $scheduler $streams 500); many=$(count $scheduler $streams 2500)
  echo "| $scheduler | $streams | $(((many - few) / (2000 * 32))) |"
done; done
