#!/bin/bash
# fair-servers.sh list | start CASE -> "URI_A URI_B PID"     (stop: server.sh stop PID)
# The set-ups of the sharing test. Any name of server.sh is a case: A and B then share its one export.
# The other cases are what operators can set up today with ceilings: two exports of one RAM file (QEMU throttle
# groups) or two connections (nbdkit rate filters). None of them has weights.
. "$(dirname "$0")/common.sh"

case ${1:-} in
list) "$HERE/server.sh" list; printf '%s\n' qsd-limit-b qsd-one-limit qsd-3-to-1 nbdkit-rate nbdkit-connection-rate; exit ;;
start) [ -n "${2:-}" ] || exit 2 ;;
*) sed -n 2,5p "$0"; exit 2 ;;
esac
exec 9>&- # not the lock of fair.sh
workdir
export FAIRLIFT_PEERS=$RUN # by this stop_all knows them
name=$2 id=$2.$$
sock=$RUN/$id.sock pid=$RUN/$id.pid log=$LOGS/$id.log
rm -f "$sock" "$pid"
a="nbd+unix:///a?socket=$sock" b="nbd+unix:///b?socket=$sock"

two_exports() { # two_exports GROUP_OF_A GROUP_OF_B --object throttle-group,...
  local ga=$1 gb=$2; shift 2
  qemu-storage-daemon --blockdev "driver=file,node-name=f,filename=$RAM,aio=io_uring,cache.direct=on" \
    --blockdev driver=raw,node-name=d,file=f "$@" \
    --blockdev "driver=throttle,node-name=ta,throttle-group=$ga,file=d" \
    --blockdev "driver=throttle,node-name=tb,throttle-group=$gb,file=d" \
    --nbd-server "addr.type=unix,addr.path=$sock,max-connections=64" --pidfile "$pid" \
    --export type=nbd,id=ea,node-name=ta,name=a --export type=nbd,id=eb,node-name=tb,name=b </dev/null >"$log" 2>&1 &
}
rated() { nbdkit -U "$sock" -P "$pid" --filter=rate memory "${RAM_MIB}M" "$@" </dev/null >"$log" 2>&1; a="nbd+unix:///?socket=$sock" b=$a; }

case $name in
qsd-limit-b)            two_exports ga gb --object throttle-group,id=ga,x-iops-total=1000000 --object throttle-group,id=gb,x-iops-total=5000 ;;
qsd-one-limit)          two_exports g g --object throttle-group,id=g,x-iops-total=10000 ;;
qsd-3-to-1)             two_exports ga gb --object throttle-group,id=ga,x-iops-total=15000 --object throttle-group,id=gb,x-iops-total=5000 ;;
nbdkit-rate)            rated rate=320M ;;            # 40 MB/s for all
nbdkit-connection-rate) rated connection-rate=160M ;; # 20 MB/s each
*)
  read -r uri p < <("$HERE/server.sh" start "$name") || exit 1
  echo "$uri $uri $p"; exit ;;
esac
for _ in $(seq 100); do [ -s "$pid" ] && [ -S "$sock" ] && break; sleep 0.05; done
sleep 0.1
[ -s "$pid" ] && [ -S "$sock" ] || die "$name did not start: $(tail -5 "$log")"
echo "$a $b $(cat "$pid")"
