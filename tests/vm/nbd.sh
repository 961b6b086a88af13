# In the guest: attaches a disk with the kernel's own NBD client, and lives on it. nbd.sh DEVICE PORT EXPORT
# 10.0.2.2 is the host's loopback, as QEMU's user network shows it.
set -e
dev=$1 sys=/sys/block/${1#/dev/} fsyncs=0
nbd-client -N "$3" -C 2 -b 4096 10.0.2.2 $2 $dev
echo "size=$(cat $sys/size) write_cache=$(cat $sys/queue/write_cache) fua=$(cat $sys/queue/fua) discard_max=$(cat $sys/queue/discard_max_bytes)"
[ "$(cat $sys/queue/write_cache)" = "write back" ]
[ "$(cat $sys/queue/discard_max_bytes)" -gt 0 ]
/usr/sbin/mke2fs -q -F -t ext4 $dev
mount -t ext4 $dev /mnt

# A file of 8 MiB, then small ones, each synced: what databases do.
dd if=/dev/urandom of=/mnt/large bs=1M count=8 conv=fsync 2>/dev/null; fsyncs=$((fsyncs + 1))
for i in $(seq 24); do
  dd if=/dev/urandom of=/mnt/small$i bs=4k count=2 conv=fsync 2>/dev/null; fsyncs=$((fsyncs + 1))
done
cp -r /bin/busybox /modules /mnt/
(cd /mnt && find . -type f | sort | xargs sha256sum) >/tmp/before

umount /mnt
echo 3 >/proc/sys/vm/drop_caches
mount -t ext4 $dev /mnt
(cd /mnt && find . -type f | sort | xargs sha256sum) >/tmp/after
cmp /tmp/before /tmp/after
echo "same after a new mount: $(wc -l </tmp/after) files"
rm /mnt/small1? /mnt/busybox
sync
fstrim -v /mnt
(cd /mnt && sha256sum -c /tmp/after 2>/dev/null | grep -c OK)
echo "large=$(sha256sum </mnt/large | cut -d' ' -f1)"
umount /mnt
echo "fsyncs=$fsyncs flushes=$(awk '{print $16}' $sys/stat) errors=$(dmesg | grep -ciE 'i/o error|ext4.*error')"
[ "$(dmesg | grep -ciE 'i/o error|ext4.*error')" = 0 ]
nbd-client -d $dev
