# In the guest: attaches a disk with the kernel's own NBD client, which grows meanwhile. growth.sh DEVICE PORT EXPORT
set -e
dev=$1 size=/sys/block/${1#/dev/}/size
attach() { nbd-client -N "$export" -b 4096 10.0.2.2 "$port" $dev >/dev/null; }
port=$2 export=$3
attach
before=$(cat $size)
/usr/sbin/mke2fs -q -F -t ext4 $dev
mount -t ext4 $dev /mnt
dd if=/dev/urandom of=/mnt/kept bs=1M count=4 conv=fsync 2>/dev/null
sum=$(sha256sum </mnt/kept)
echo "GUEST-MAY-GROW" >/dev/console
# The client that is attached was told the old size: it sees the new one when it is attached again.
for i in $(seq 50); do
  umount /mnt
  nbd-client -d $dev >/dev/null
  attach
  mount -t ext4 $dev /mnt
  [ "$(cat $size)" = "$before" ] || break
  sleep 0.5
done
[ "$(sha256sum </mnt/kept)" = "$sum" ]
umount /mnt
after=$(cat $size)
dd if=/dev/urandom of=$dev bs=4k count=1 seek=$((after / 8 - 1)) oflag=direct conv=fsync 2>/dev/null
echo "size before=$before after=$after end=$(dd if=$dev bs=4k count=1 skip=$((after / 8 - 1)) iflag=direct 2>/dev/null | sha256sum | cut -d' ' -f1)"
nbd-client -d $dev >/dev/null
