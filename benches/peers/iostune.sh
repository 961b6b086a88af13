#!/usr/bin/env bash
# `fairlift iostune` against fio on the same path: the same reads, in turns.
#
#   benches/peers/iostune.sh [ROUNDS] > table.md
#
# In each round and for each path: iostune --quick, then fio for each figure that is compared. A cell is the ratio of the
# medians, iostune ÷ fio. On a disk fio asks as iostune does, by io_uring and O_DIRECT; a file in RAM by plain system
# calls (psync), as Fairlift serves it, which has no depth: there 1 in flight is compared.
set -u
cd "$(dirname "$0")" && . ./common.sh
need fio=fio jq=jq
workdir
rounds=${1:-3} seconds=${SECONDS_EACH:-2}
: "${RAM_FILE:=/dev/shm/fairlift-iostune.img}"

# A file of random data, unless it is there.
filled() { # PATH MIB
  [ "$(stat -c %s "$1" 2>/dev/null)" = $(($2 << 20)) ] && return
  mkdir -p "$(dirname "$1")" && head -c "${2}M" /dev/urandom >"$1" && sync "$1"
}
filled "$DISK" "$DISK_MIB"
filled "$RAM_FILE" 1024
trap 'rm -f "$RAM_FILE"' EXIT

# NAME ENGINE FLAGS...: one line "name iops"
with_fio() { # PATH NAME FLAGS...
  local path=$1 name=$2; shift 2
  fio --name=x --filename="$path" --readonly --direct=1 --time_based --runtime="$seconds" --group_reporting \
    --randrepeat=0 --norandommap --output-format=json "$@" 2>/dev/null |
    jq -r --arg name "$name" '"\($name) \([.jobs[].read.iops] | add)"'
}
with_iostune() { # PATH
  "$FAIRLIFT" iostune "$1" --quick --seed "$(seed)" --json "$RUN/iostune.json" >/dev/null 2>&1 || die "iostune failed"
  jq -r '(.random[] | "random-\(.depth) \(.iops)"),
    (.streams[] | "streams-\(.n) \(.total_mb_s * 1e6 / 131072)"),
    (.sizes[] | "\(.op)-\(.block)-\(.depth) \(.iops)")' "$RUN/iostune.json"
}

: >"$RESULTS/iostune.txt"
for round in $(seq "$rounds"); do
  for where in disk ram; do
    path=$DISK; [ $where = ram ] && path=$RAM_FILE
    say "round $round, $where: iostune"
    with_iostune "$path" | sed "s/^/$where iostune /" >>"$RESULTS/iostune.txt"
    say "round $round, $where: fio"
    {
      if [ $where = ram ]; then
        with_fio "$path" random-1 --ioengine=psync --rw=randread --bs=4k
        with_fio "$path" streams-1 --ioengine=psync --rw=read --bs=128k
        with_fio "$path" random-read-65536-1 --ioengine=psync --rw=randread --bs=64k
        with_fio "$path" random-read-1048576-1 --ioengine=psync --rw=randread --bs=1m
        with_fio "$path" sequential-read-4096-1 --ioengine=psync --rw=read --bs=4k
      else
        for depth in 1 4 16 64; do
          with_fio "$path" random-$depth --ioengine=io_uring --rw=randread --bs=4k --iodepth=$depth
        done
        for n in 1 4 16; do
          # All from one thread, as iostune: a job for each stream, in a part of its own.
          with_fio "$path" streams-$n --ioengine=io_uring --rw=read --bs=128k --iodepth=2 --numjobs=$n --thread \
            --size=$((100 / n))% --offset_increment=$((100 / n))%
        done
        with_fio "$path" random-read-65536-1 --ioengine=io_uring --rw=randread --bs=64k
        with_fio "$path" sequential-read-1048576-4 --ioengine=io_uring --rw=read --bs=1m --iodepth=4
      fi
    } | sed "s/^/$where fio /" >>"$RESULTS/iostune.txt"
  done
done

echo "| path | figure | iostune, a second | fio, a second | ratio | spread of fio |"
echo "|---|---|---|---|---|---|"
python3 - "$RESULTS/iostune.txt" <<'P'
import statistics
import sys

figures = {}
for line in open(sys.argv[1]):
    where, who, name, figure = line.split()
    figures.setdefault((where, name), {}).setdefault(who, []).append(float(figure))
for (where, name), both in figures.items():
    if len(both) == 2:
        ours, theirs = (statistics.median(both[who]) for who in ("iostune", "fio"))
        spread = (max(both["fio"]) - min(both["fio"])) / 2 / theirs * 100
        print(f"| {where} | {name} | {ours:.0f} | {theirs:.0f} | {ours / theirs:.2f} | ± {spread:.0f} % |")
P
uptime | sed 's/^/load: /' >&2
