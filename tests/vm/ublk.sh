# In the guest: block devices made by a server that runs here. What most of them show is /dev/vda, whose flushes the kernel counts.
set -e
. /ublk_server

# Without the module there is a sentence. A server that may go on without the device does.
fairlift serve a=mem:8m --ublk 2>&1 | sed 's/^/without the module: /' || true
fairlift serve a=mem:8m --ublk=optional >/tmp/said 2>>/tmp/server.log &
server=$!
until fairlift status >/tmp/status 2>/dev/null; do sleep 0.1; done
echo "goes on without the device: yes"
stop
modload ublk_drv

serve alice=mem:64m --ublk
cat /tmp/said
dd if=/dev/urandom of=/tmp/some bs=1M count=4 2>/dev/null
dd if=/tmp/some of=/dev/fairlift/alice bs=64k oflag=direct 2>/dev/null
dd if=/dev/ublkb0 bs=4k count=1024 iflag=direct 2>/dev/null | cmp - /tmp/some && echo "same bytes"
fairlift ublk list
fairlift serve bob=mem:8m --ublk=id=0 --listen unix:/tmp/bob.sock 2>&1 | grep "is served by process $server already" && echo "a live server's id is refused"
# RAM does not outlive its server, and what is left of the device is in nobody's way.
kill -9 $server
wait $server || true
serve alice=mem:64m --ublk
grep -q "/dev/ublkb0" /tmp/said && [ "$(left)" = 2 ] && echo "a dead server's device is replaced"
stop
echo "left after a stop: $(left)"

serve alice=file:/dev/vda --ublk --read-only
echo "read-only: $(cat /sys/block/ublkb0/ro)"
stop

serve alice=file:/dev/vda --ublk=queues=2,depth=64,leave --scheduler mq-deadline
q=/sys/block/ublkb0/queue
echo "cache=$(cat $q/write_cache) fua=$(cat $q/fua) block=$(cat $q/logical_block_size)/$(cat $q/physical_block_size) rotational=$(cat $q/rotational) max_kb=$(cat $q/max_sectors_kb) discard=$(cat $q/discard_max_bytes) zeroes=$(cat $q/write_zeroes_max_bytes) queues=$(ls /sys/block/ublkb0/mq | wc -l)"
fio --name=verify --filename=/dev/ublkb0 --direct=1 --ioengine=libaio --iodepth=32 --rw=randwrite --bssplit=4k/60:64k/30:512/10 --size=6m \
  --numjobs=4 --offset_increment=8m --verify=crc32c --verify_fatal=1 --group_reporting --output-format=terse | fio_says "fio verified"
flushes() { awk '{print $16}' /sys/block/vda/stat; }
count() { sleep 1; before=$(flushes); "$@" >/dev/null 2>&1; echo "flushes below, of $what: $(($(flushes) - before))"; }
what="10 fsyncs" count sh -c 'for i in $(seq 10); do dd if=/tmp/some of=/dev/ublkb0 bs=4k count=1 seek=$i conv=fsync,notrunc; done'
what="10 writes with FUA" count fio --name=fua --filename=/dev/ublkb0 --direct=1 --sync=dsync --rw=write --bs=4k --size=40k
what="40 writes" count dd if=/tmp/some of=/dev/ublkb0 bs=4k count=40 oflag=direct
dev=/dev/ublkb0 sys=/sys/block/ublkb0
. /live
mount -t ext4 /dev/ublkb0 /mnt
fairlift remove export alice 2>&1 | grep "is mounted at /mnt" && echo "refused while mounted"
sum=$(sha256sum </mnt/large)
stop
fairlift ublk list
serve alice=file:/dev/vda --ublk
grep "again as block device" /tmp/said && echo "left by a stop, taken over by the next"
echo 3 >/proc/sys/vm/drop_caches
[ "$(sha256sum </mnt/large)" = "$sum" ] && echo "kept its bytes while it was left"
umount /mnt
if [ -e /usr/sbin/mkfs.xfs ]; then
  modload xfs
  mkfs.xfs -q -f /dev/ublkb0
  mount -t xfs /dev/ublkb0 /mnt
  dd if=/tmp/some of=/mnt/some bs=64k conv=fsync 2>/dev/null
  fstrim -v /mnt
  umount /mnt; echo 3 >/proc/sys/vm/drop_caches; mount -t xfs /dev/ublkb0 /mnt
  cmp /mnt/some /tmp/some && echo "xfs has the same bytes"
  umount /mnt
fi
blkdiscard /dev/ublkb0 && echo "discarded all of it"
stop
grep "stats export=\"alice\"" /tmp/server.log | tail -1

# Two devices on one slow disk, whose shares are 1 to 3.
cat >/tmp/shares.toml <<'CONFIG'
[disk.slow]
scheduler = "bfq"
depth = 16
[export.one]
backing = "sim:sata-7200,size=100g"
disk = "slow"
group = "/one"
ublk = { queues = 1 }
[export.three]
backing = "sim:sata-7200,size=100g"
disk = "slow"
group = "/three"
ublk = { queues = 1 }
[group."/three"]
weight = 300
CONFIG
serve --config /tmp/shares.toml
until [ -b /dev/fairlift/one ] && [ -b /dev/fairlift/three ]; do sleep 0.1; done
loads=
for name in one three; do
  fio --name=$name --filename=/dev/fairlift/$name --direct=1 --ioengine=libaio --iodepth=64 --rw=randread --bs=4k --time_based --runtime=120 >/dev/null &
  loads="$loads $!"
done
has_read() { [ "$(awk '{print $3}' /sys/block/$(basename $(readlink /dev/fairlift/$1))/stat)" -gt 0 ]; }
until has_read one && has_read three; do sleep 0.1; done
written() { for name in one three; do awk '{printf "%d ", $3 / 2}' /sys/block/$(basename $(readlink /dev/fairlift/$name))/stat; done; }
sleep 3
# Emulation on a busy machine may keep a client from asking in time: then it is looked again.
for look in 1 2 3 4 5; do
  before=$(written); sleep 10; after=$(written)
  shares=$(echo $before $after | awk '{print $3 - $1, $4 - $2}')
  echo $shares | awk '{exit !($2 > 2.4 * $1 && $2 < 3.6 * $1)}' && break || true
done
echo "shares: $shares"
kill $loads; wait $loads || true
stop

. /kill
