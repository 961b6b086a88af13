# In the guest: devices made and removed one after the other; a server that is stopped for a while; a backing that shrinks. many=N and
# stopped=SECONDS on the kernel's command line say how many and for how long.
set -e
. /ublk_server
modload ublk_drv
for word in $(cat /proc/cmdline); do case $word in many=*) many=${word#*=};; stopped=*) stopped=${word#*=};; esac; done
truncate -s 64M /tmp/image
serve alice=file:/tmp/image --ublk --keep-capability CAP_SYS_ADMIN
for n in $(seq $many); do
  order add export e$n=mem:4m ublk=queues=1,depth=8
  [ -b /dev/fairlift/e$n ]
  [ $((n % 10)) = 0 ] || order remove export e$n
done
echo "at once: $(ls -d /dev/ublkb* | wc -l)"
for n in $(seq 10 10 $many); do order remove export e$n; done
until [ "$(left)" = 2 ]; do sleep 0.1; done
echo "after $many: $(ls -d /dev/ublkb* | wc -l), threads of the server: $(ls /proc/$server/task | wc -l), links: $(ls /dev/fairlift | wc -l), open files: $(ls /proc/$server/fd | grep -c .)"
dd if=/dev/urandom of=/dev/ublkb0 bs=1M count=8 oflag=direct 2>/dev/null
sum=$(dd if=/dev/ublkb0 bs=1M count=8 iflag=direct 2>/dev/null | sha256sum)
kill -STOP $server
dd if=/dev/ublkb0 bs=1M count=8 iflag=direct 2>/dev/null | sha256sum >/tmp/sum & reader=$!
sleep $stopped
kill -CONT $server
wait $reader
[ "$(cat /tmp/sum)" = "$sum" ] && echo "stopped for $stopped s: the same bytes; errors=$(errors)"
# What is refused has an end, and the device goes on.
orders() { timeout 60 fairlift "$@" 2>&1; }
orders set export alice read_only=true >/dev/null
timeout 20 dd if=/dev/zero of=/dev/ublkb0 bs=64k count=1 oflag=direct 2>&1 | grep -oi '[a-z/]* error$' | sed 's/^/read-only now: /'
orders set export alice read_only=false >/dev/null
timeout 20 dd if=/dev/ublkb0 bs=1M count=8 iflag=direct 2>/dev/null | sha256sum >/tmp/sum
[ "$(cat /tmp/sum)" = "$sum" ] && timeout 20 dd if=/dev/zero of=/dev/ublkb0 bs=64k count=1 oflag=direct 2>/dev/null && echo "written again"
truncate -s 4M /tmp/image
dd if=/dev/ublkb0 of=/dev/null bs=64k count=1 skip=512 iflag=direct 2>&1 | grep -oi '[a-z/]* error$' | sed 's/^/behind the end: /'
dd if=/dev/ublkb0 of=/dev/null bs=64k count=1 iflag=direct 2>/dev/null && echo "before it: read"
truncate -s 128M /tmp/image
order set export alice size=auto
until grep -q "keeps its size" /tmp/server.log; do sleep 0.1; done
grep "keeps its size" /tmp/server.log | head -1
kill -9 $server; wait $server || true
truncate -s 192M /tmp/image
serve alice=file:/tmp/image --ublk
until [ "$(grep -c "keeps its size" /tmp/server.log)" = 2 ]; do sleep 0.1; done
echo "told again of its size"
stop
echo "left: $(left)"
