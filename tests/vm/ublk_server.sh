# In the guest, read by a test: starts and stops servers whose exports are block devices here.
export XDG_RUNTIME_DIR=/tmp RUST_LOG=info FAIRLIFT_CONTROL=unix:/tmp/fairlift.control.sock
has() { # WORDS: looks for them without another process, which would take its time from the server that is waited for
  while read -r line; do case $line in *"$1"*) return 0;; esac; done
  return 1
}
serve() { # EXPORTS… FLAGS…: waits until the block devices are there
  : >/tmp/said # or what the previous server has said would be found
  fairlift serve "$@" >>/tmp/said 2>>/tmp/server.log &
  server=$!
  until has "block device" </tmp/said; do
    kill -0 $server 2>/dev/null || { cat /tmp/said /tmp/server.log; return 1; }
    sleep 0.02
  done
}
# Orders something of the server. If that is gone, what it said last is told.
order() {
  timeout 60 fairlift "$@" >/tmp/ordered 2>&1 && return
  cat /tmp/ordered
  kill -0 $server 2>/dev/null || { echo "the server is gone: $*"; tail -40 /tmp/server.log; }
  return 1
}
stop() { kill $server; wait $server; }
left() { ls /dev | grep -c '^ublk[bc]' || true; }
up() { cut -d' ' -f1 /proc/uptime; }
errors() { dmesg | grep -ciE 'i/o error|blk_update|hung|ext4.*error|WARNING' || true; }
fio_says() { awk -F';' -v what="$1" 'NF > 40 {print what ": read_kb=" $6 " written_kb=" $47 " error=" $5}'; }
