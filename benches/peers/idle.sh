#!/bin/bash
# idle.sh [COUNT] [NAME ...]     memory of servers with COUNT (1000) idle connections, a Markdown table
# Default: the peers and fairlift where it is built. Names: server.sh list.
. "$(dirname "$0")/common.sh"
count=1000
[[ ${1:-} =~ ^[0-9]+$ ]] && { count=$1; shift; }
[[ ${1:-} != -* ]] || { sed -n 2,3p "$0"; exit 2; }
names=("$@")
[ $# -gt 0 ] || names=(qsd-null qnbd-ram nbdkit-null nbdsrv-ram)
[ $# -gt 0 ] || [ ! -x "$FAIRLIFT" ] || names+=(fairlift-null fairlift-file-ram fairlift-file-ram-mq-deadline)
need_peers
workdir
"$HERE/prepare.sh" || exit 1
one_at_a_time
ulimit -n $((count * 2 + 256)) 2>/dev/null || ulimit -n "$(ulimit -Hn)"
trap stop_all EXIT
trap 'exit 130' INT TERM

machine
echo
echo "RSS in MiB of all processes of a server ($count connections after NBD_OPT_GO; then each has read 64 KiB once; then all closed)"
echo
echo "| server | before | $count idle | KiB each | after a read each | KiB each | closed again | PSS, idle | threads / processes, idle | |"
echo "|---|---|---|---|---|---|---|---|---|---|"
for name in "${names[@]}"; do
  read -r uri pid < <("$HERE/server.sh" start "$name") || { echo "| $name | failed | | | | | | | | |"; continue; }
  python3 "$HERE/idle.py" "$uri" "$pid" "$count" | jq -r --arg l "$name" '
    def mib: . / 102.4 | round / 10;
    def each($x): ($x.rss_kb - .before.rss_kb) / ([.connections, 1] | max) * 10 | round / 10;
    "| \($l) | \(.before.rss_kb | mib) | **\(.idle.rss_kb | mib)** | \(each(.idle)) | \(if .after_read then (.after_read.rss_kb | mib) else "-" end) | \(if .after_read then each(.after_read) else "-" end) | \(.closed.rss_kb | mib) | \(.idle.pss_kb | mib) | \(.idle.threads) / \(.idle.processes) | \(.error // "") |"'
  "$HERE/server.sh" stop "$pid"
done
