# In the guest: /dev/vda grows while a file system on it is in use, is taken away under load, and comes back.
set -e
dev=/dev/vda sys=/sys/block/vda
# Waits up to a minute for a condition: until_so WHAT TEST...
until_so() {
  what=$1; shift
  for i in $(seq 600); do "$@" && return; usleep 100000; done
  echo "waited in vain: $what"
  return 1
}
size=$(cat $sys/size)
/usr/sbin/mke2fs -q -F -t ext4 $dev
mount -t ext4 $dev /mnt
dd if=/dev/urandom of=/mnt/before bs=1M count=8 conv=fsync 2>/dev/null
sum=$(sha256sum </mnt/before)

grown() { [ "$(cat $sys/size)" -gt $size ]; }
echo GUEST-GROW >/dev/ttyS0
until_so "the disk grows" grown
/usr/sbin/resize2fs $dev 2>&1 | grep -o 'now [0-9]*'
dd if=/dev/urandom of=/mnt/after bs=1M count=$(($size / 2048)) conv=fsync 2>/dev/null
[ "$(sha256sum </mnt/before)" = "$sum" ]
echo "grown: from $size to $(cat $sys/size), a file of $(stat -c %s /mnt/after) bytes where there was no room"
umount /mnt

# Readers all the time, which may fail once the disk has gone, and must not hang.
for i in 1 2 3 4; do (while dd if=$dev of=/dev/null bs=4k count=1000 skip=$((i * 1000)) iflag=direct 2>/dev/null; do :; done) & done
gone() { [ ! -e $sys ]; }
is_there() { [ -e $sys ]; }
echo GUEST-UNPLUG >/dev/ttyS0
until_so "the disk goes" gone
wait
echo "unplugged under load"
echo GUEST-PLUG >/dev/ttyS0
until_so "the disk is back" is_there
mount -t ext4 $dev /mnt
[ "$(sha256sum </mnt/before)" = "$sum" ]
umount /mnt
echo "plugged in again: size=$(cat $sys/size) rings=$(ls $sys/mq | wc -l)"
