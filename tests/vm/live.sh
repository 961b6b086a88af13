# In the guest, read by a test with $dev set: makes a file system on a disk, and lives on it. Leaves $fsyncs.
fsyncs=0
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
