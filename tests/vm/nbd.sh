# In the guest: attaches a disk with the kernel's own NBD client, and lives on it. nbd.sh DEVICE PORT EXPORT
# 10.0.2.2 is the host's loopback, as QEMU's user network shows it.
set -e
dev=$1 sys=/sys/block/${1#/dev/}
nbd-client -N "$3" -C 2 -b 4096 10.0.2.2 $2 $dev
echo "size=$(cat $sys/size) write_cache=$(cat $sys/queue/write_cache) fua=$(cat $sys/queue/fua) discard_max=$(cat $sys/queue/discard_max_bytes)"
[ "$(cat $sys/queue/write_cache)" = "write back" ]
[ "$(cat $sys/queue/discard_max_bytes)" -gt 0 ]
. /live
nbd-client -d $dev
