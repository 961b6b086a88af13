# In the guest: io_uring is refused by the kernel's own setting, to all (2) or to those without CAP_SYS_ADMIN (1).
set -e
export XDG_RUNTIME_DIR=/tmp/run
setting=/proc/sys/kernel/io_uring_disabled
mkdir -m 777 $XDG_RUNTIME_DIR
serve() { # WORDS… COMMAND: serves by this command, writes and reads, and says with which engine
  "$@" serve a=mem:64m >/dev/null 2>>/tmp/server.log &
  server=$!
  until "$@" status >/tmp/status 2>/dev/null; do
    kill -0 $server || { cat /tmp/server.log; return 1; }
    sleep 0.1
  done
  fio --name=verify --ioengine=nbd "--uri=nbd+unix:///a?socket=$XDG_RUNTIME_DIR/fairlift.sock" --iodepth=32 --rw=randwrite --bs=4k --size=1m \
    --verify=crc32c --verify_fatal=1 --output-format=terse >/tmp/fio || { cat /tmp/fio; return 1; }
  echo "$who, io_uring_disabled=$(cat $setting): $(grep -o 'engine=.*' /tmp/status || echo engine=io_uring), fio read_kb=$(tail -n 1 /tmp/fio | cut -d';' -f6)"
  kill $server
  wait $server
  rm -rf $XDG_RUNTIME_DIR/*
}
echo 2 >$setting
who=root serve fairlift
echo 1 >$setting
who=root serve fairlift
who=nobody serve /usr/sbin/setpriv --reuid=65534 --clear-groups /usr/sbin/fairlift
echo 0 >$setting
who=nobody serve /usr/sbin/setpriv --reuid=65534 --clear-groups /usr/sbin/fairlift
grep -o 'WARN.*' /tmp/server.log
echo 2 >$setting
fairlift serve a=mem:64m --engine io_uring 2>&1 && echo "it started" || echo "asked for io_uring: exit code $?"
