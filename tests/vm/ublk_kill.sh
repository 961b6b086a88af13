# In the guest: ext4 on a block device whose server is killed again and again, under load that is verified. kills=N on the kernel's command
# line says how often.
set -e
. /ublk_server
modload ublk_drv
for word in $(cat /proc/cmdline); do case $word in kills=*) kills=${word#*=};; esac; done
serve alice=file:/dev/vda --ublk
/usr/sbin/mke2fs -q -F -t ext4 /dev/ublkb0
mount -t ext4 /dev/ublkb0 /mnt
dd if=/dev/urandom of=/mnt/kept bs=1M count=8 conv=fsync 2>/dev/null
sum=$(sha256sum </mnt/kept)
while [ ! -e /tmp/enough ]; do
  fio --name=load --directory=/mnt --direct=1 --ioengine=libaio --iodepth=16 --rw=randwrite --bs=4k --size=4m --numjobs=2 \
    --verify=crc32c --verify_backlog=64 --verify_fatal=1 --verify_state_save=0 --fsync=64 --group_reporting --output-format=terse |
    fio_says "under kills"
done >/tmp/fio 2>&1 &
load=$!
sleep 2
for kill in $(seq $kills); do
  kill -9 $server
  before=$(up)
  serve alice=file:/dev/vda --ublk
  after=$(up)
  fairlift --version >/dev/null
  echo "$before $after $(up)" >>/tmp/times
  sleep 0.$((kill % 7))
done
touch /tmp/enough
wait $load
cat /tmp/fio
middle() { sort -n | awk '{all[NR] = $1} END {print "median", all[int((NR + 1) / 2)], "most", all[NR]}'; }
echo "recovered: $(wc -l </tmp/times) times, from kill to use in s: $(awk '{print $2 - $1}' /tmp/times | middle)"
echo "of these, starting a program that only says its version, in s: $(awk '{print $3 - $2}' /tmp/times | middle)"
echo "of these, taking the device over, in us: $(grep 'recovered=true' /tmp/server.log | grep -o 'took_us=[0-9]*' | cut -d= -f2 | middle)"
[ "$(sha256sum </mnt/kept)" = "$sum" ] && echo "kept its bytes under kills"
umount /mnt
e2fsck -fn /dev/ublkb0 >/tmp/fsck 2>&1 && echo "e2fsck finds nothing"
stop
echo "left: $(left) devices; errors=$(errors)"
dmesg | grep -iE 'WARN|BUG|error|hung' | head || true
