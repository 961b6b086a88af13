# In the guest: lives on /dev/vda, a vhost-user disk with a ring for each CPU; /dev/vdb may only be read; of /dev/vdc each flush is
# counted below the server.
set -e
dev=/dev/vda sys=/sys/block/vda
echo "size=$(cat $sys/size) write_cache=$(cat $sys/queue/write_cache) serial=$(cat $sys/serial) rings=$(ls $sys/mq | wc -l)"
echo "block=$(cat $sys/queue/logical_block_size)/$(cat $sys/queue/physical_block_size) discard_max=$(cat $sys/queue/discard_max_bytes) zeroes_max=$(cat $sys/queue/write_zeroes_max_bytes)"
[ "$(cat $sys/queue/write_cache)" = "write back" ]
mkdir -p /host
mount -t 9p -o trans=virtio,version=9p2000.L,ro host /host
mount --bind /dev /host/dev
# Every CPU has a ring, and each of these a CPU.
chroot /host /fio --name=verify --filename=$dev --direct=1 --ioengine=libaio --iodepth=16 --rw=randwrite --bssplit=4k/60:64k/30:512/10 \
  --size=6m --numjobs=$(nproc) --offset_increment=8m --verify=crc32c --verify_fatal=1 --cpus_allowed=0-$(($(nproc) - 1)) --cpus_allowed_policy=split \
  --group_reporting --output-format=terse | awk -F';' '{print "fio verified: read_kb=" $6 " written_kb=" $47 " error=" $5}'
. /live

# Without a write cache: the guest says so, and sends no flush any more.
echo "write through" >$sys/cache_type
echo "through: $(cat $sys/queue/write_cache) $(cat $sys/cache_type)"
before=$(awk '{print $16}' $sys/stat)
dd if=/dev/urandom of=$dev bs=4k count=8 seek=8192 oflag=direct conv=fsync 2>/dev/null
echo "flushes of the guest in between: $(($(awk '{print $16}' $sys/stat) - before))"

# Every fsync of the guest, with a write cache and without: the host counts what arrives below the server at each GUEST-COUNT, and says so.
count() { sync; echo "GUEST-COUNT $1" >/dev/ttyS0; until [ -e /host/counted.$1 ]; do sleep 0.1; done; }
count start
for i in $(seq 10); do dd if=/dev/urandom of=/dev/vdc bs=4k count=1 seek=$i conv=fsync,notrunc 2>/dev/null; done
count fsyncs
dd if=/dev/urandom of=/dev/vdc bs=4k count=10 oflag=direct 2>/dev/null
count writes
echo "write through" >/sys/block/vdc/cache_type
dd if=/dev/urandom of=/dev/vdc bs=4k count=10 oflag=direct 2>/dev/null
count through

echo "vdb: ro=$(cat /sys/block/vdb/ro) serial=$(cat /sys/block/vdb/serial) sum=$(sha256sum </dev/vdb | cut -d' ' -f1)"
if dd if=/dev/zero of=/dev/vdb bs=512 count=1 oflag=direct 2>/dev/null; then echo "vdb was written"; exit 1; fi
echo "errors=$(dmesg | grep -ciE 'i/o error|ext4.*error')"
