# In the guest: writes to /dev/vda and reads back all that it has written, while the server is killed again and again, until the
# host has killed enough of them. fio ends by size: one that ended by time on a slow machine had read nothing back.
set -e
dev=/dev/vda
mkdir -p /host
mount -t 9p -o trans=virtio,version=9p2000.L,ro host /host
mount --bind /dev /host/dev
echo GUEST-LOAD >/dev/ttyS0
until [ -e /host/enough ]; do
  chroot /host /fio --name=load --filename=$dev --direct=1 --ioengine=libaio --iodepth=16 --rw=randwrite --bs=4k --size=8m --numjobs=$(nproc) \
    --offset_increment=8m --verify=crc32c --verify_backlog=256 --verify_fatal=1 --verify_state_save=0 --fsync=64 \
    --group_reporting --output-format=terse | awk -F';' 'NF > 40 {print "fio verified: read_kb=" $6 " written_kb=" $47 " error=" $5}'
done
echo "errors=$(dmesg | grep -ciE 'i/o error|blk_update|hung')"
