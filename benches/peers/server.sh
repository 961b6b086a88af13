#!/bin/bash
# server.sh list                      names of all servers
# server.sh start NAME [unix|tcp]     starts one, prints "URI PID"; TCP is 127.0.0.1:$PORT
# server.sh stop PID
# The one place where every measured server's exact command line is written down.
# FAIRLIFT=path of the binary, FAIRLIFT_ARGS=more arguments, WRAP="valgrind ..." in front of any server.
. "$(dirname "$0")/common.sh"

PEERS="nbdkit-null nbdkit-mem nbdkit-file-ram nbdkit-file-disk nbdkit-file-disk-nc qnbd-ram qnbd-uring-disk
  qsd-null qsd-ram qsd-uring-disk nbdsrv-ram nbdsrv-disk"
OURS="fairlift-null fairlift-mem fairlift-file-ram fairlift-file-disk"

gone() { # gone PID: ended, or a zombie that its parent has yet to reap
  local s; s=$(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -c1)
  [ -z "$s" ] || [ "$s" = Z ]
}

case ${1:-} in
list)
  # shellcheck disable=SC2086
  printf '%s\n' $PEERS; for n in $OURS; do printf '%s\n' "$n" "$n-mq-deadline"; done; exit ;;
stop)
  kill "$2" 2>/dev/null
  for _ in $(seq 200); do gone "$2" && exit 0; sleep 0.05; done
  say "server $2 did not end within 10 s of SIGTERM, killed"
  kill -9 "$2"; exit 1 ;;
start) [ -n "${2:-}" ] || exit 2 ;;
*) sed -n 2,6p "$0"; exit 2 ;;
esac

exec 9>&- # not the lock of compare.sh
workdir
export FAIRLIFT_PEERS=$RUN # by this stop_all knows them
name=$2 transport=${3:-unix}
id=$name.$$ sock=$RUN/$id.sock pid=$RUN/$id.pid log=$LOGS/$id.log
rm -f "$sock" "$pid"
case $transport in
unix) uri="nbd+unix:///?socket=$sock" ;;
tcp) uri="nbd://127.0.0.1:$PORT/" ;;
*) die "transport $transport: unix or tcp" ;;
esac
unix() { [ "$transport" = unix ]; }

# shellcheck disable=SC2086
{
fairlift() { # fairlift BACKING SCHEDULER
  local listen="unix:$sock"; unix || listen="tcp:127.0.0.1:$PORT"
  ${WRAP:-} "$FAIRLIFT" serve "d=$1" --listen "$listen" --scheduler "$2" ${FAIRLIFT_ARGS:-} </dev/null >"$log" 2>&1 &
  echo $! >"$pid"
}
nbdkit() { # no -f: in the foreground nbdkit 1.32 asks to die with the shell that started it
  local listen=(-U "$sock"); unix || listen=(-i 127.0.0.1 -p "$PORT")
  ${WRAP:-} "$(type -P nbdkit)" "${listen[@]}" -P "$pid" "$@" </dev/null >"$log" 2>&1
}
qemu_nbd() {
  local listen=(-k "$sock"); unix || listen=(-b 127.0.0.1 -p "$PORT")
  ${WRAP:-} qemu-nbd -t -e 2048 -x "" "${listen[@]}" --pid-file="$pid" -f raw "$@" </dev/null >"$log" 2>&1 &
}
qsd() { # qsd --blockdev ...,node-name=d
  local at="addr.type=unix,addr.path=$sock"; unix || at="addr.type=inet,addr.host=127.0.0.1,addr.port=$PORT"
  ${WRAP:-} qemu-storage-daemon "$@" --nbd-server "$at,max-connections=2048" \
    --export type=nbd,id=e,node-name=d,name=,writable=on --pidfile "$pid" </dev/null >"$log" 2>&1 &
}
qsd_file() { qsd --blockdev "driver=file,node-name=f,filename=$1,aio=io_uring,cache.direct=on" --blockdev driver=raw,node-name=d,file=f; }
nbd_server() { # no -d: with -d it serves one connection and exits
  local conf=$RUN/$id.conf at="unixsock = $sock"; unix || at="listenaddr = 127.0.0.1"$'\n'"port = $PORT"
  printf '[generic]\nallowlist = true\n%s\n[e]\nexportname = %s\nflush = true\nfua = true\ntrim = true\n' "$at" "$1" >"$conf"
  uri=${uri/nbd+unix:\/\/\//nbd+unix:///e}; unix || uri+=e
  ${WRAP:-} nbd-server -C "$conf" -p "$pid" </dev/null >"$log" 2>&1
}
}

# Every server of the disk starts with none of its file in the page cache.
case $name in *-disk*) sync -d "$DISK"; dd if="$DISK" iflag=nocache count=0 status=none ;; esac

case $name in
nbdkit-null)          nbdkit null size=4G ;;
nbdkit-mem)           nbdkit memory "${RAM_MIB}M" ;;
nbdkit-file-ram)      nbdkit file "$RAM" ;;
nbdkit-file-disk)     nbdkit file "$DISK" ;;                             # through the page cache
nbdkit-file-disk-nc)  nbdkit file "$DISK" cache=none fadvise=random ;;   # page cache, dropped behind
qnbd-ram)             qemu_nbd --cache=none --aio=io_uring "$RAM" ;;     # O_DIRECT
qnbd-uring-disk)      qemu_nbd --cache=none --aio=io_uring "$DISK" ;;    # O_DIRECT
qsd-null)             qsd --blockdev driver=null-co,node-name=d,size=4294967296,read-zeroes=off ;;
qsd-ram)              qsd_file "$RAM" ;;                                 # O_DIRECT
qsd-uring-disk)       qsd_file "$DISK" ;;                                # O_DIRECT
nbdsrv-ram)           nbd_server "$RAM" ;;
nbdsrv-disk)          nbd_server "$DISK" ;;                              # through the page cache
fairlift-*)                                                              # fairlift-BACKING[-SCHEDULER]
  [ -x "$FAIRLIFT" ] || die "no executable $FAIRLIFT"
  case $name in
  fairlift-null*)      backing=null:4G          rest=${name#fairlift-null} ;;
  fairlift-mem*)       backing=mem:${RAM_MIB}M  rest=${name#fairlift-mem} ;;
  fairlift-file-ram*)  backing=file:$RAM        rest=${name#fairlift-file-ram} ;;
  fairlift-file-disk*) backing=file:$DISK       rest=${name#fairlift-file-disk} ;;
  *) die "unknown server $name" ;;
  esac
  fairlift "$backing" "$(s=${rest#-}; echo "${s:-none}")" ;;
*) die "unknown server $name; known: $("$0" list | tr '\n' ' ')" ;;
esac

up() { [ -s "$pid" ] && if unix; then [ -S "$sock" ]; else (: <"/dev/tcp/127.0.0.1/$PORT") 2>/dev/null; fi; }
for i in $(seq 200); do # 10 s
  up && break
  if [ "$i" -gt 10 ] && [ -s "$pid" ] && gone "$(cat "$pid")"; then break; fi
  sleep 0.05
done
sleep 0.1
if ! up || gone "$(cat "$pid")"; then
  [ -s "$pid" ] && kill "$(cat "$pid")" 2>/dev/null
  die "$name did not start: $(tail -5 "$log")"
fi
echo "$uri $(cat "$pid")"
