# In the guest: ext4 on a block device, and an NBD client beside it with a third of its weight, whose server is upgraded again and again under
# load that is verified. upgrades=N on the kernel's command line says how often.
set -e
. /ublk_server
modload ublk_drv
for word in $(cat /proc/cmdline); do case $word in upgrades=*) upgrades=${word#*=};; esac; done
half=268435456
cat >/tmp/both.toml <<CONFIG
[disk.d]
scheduler = "fair"
[group."/alice"]
weight = 300
[export.alice]
backing = "file:/dev/vda"
size = $half
disk = "d"
group = "/alice"
ublk = true
[export.bob]
backing = "file:/dev/vda"
offset = $half
size = $half
disk = "d"
group = "/bob"
[disk.slow]
scheduler = "none"
io_timeout = "300s" # an attempt takes more than 30 s where the machine is busy
[export.slow]
backing = "fault:/tmp/rules.toml,inner=null:1m"
disk = "slow"
CONFIG
: >/tmp/rules.toml
serve --config /tmp/both.toml
/usr/sbin/mke2fs -q -F -t ext4 /dev/ublkb0
mount -t ext4 /dev/ublkb0 /mnt
dd if=/dev/urandom of=/mnt/kept bs=1M count=8 conv=fsync 2>/dev/null
sum=$(sha256sum </mnt/kept)
node() { ls -li /dev/ublkb0 | awk '{print $1, $6, $7}'; }
before=$(node)
# Another server is there. Where the machine is so busy that the two give up, which is after 2 s, or that the new one does not find the device
# live for a moment, it is tried again.
upgrade() {
  for try in 1 2 3 4 5; do
    fairlift upgrade >/tmp/upgraded 2>&1 && break
    grep -qE 'requests of clients had not ended in time|has ended the connection|while the kernel has it as|could be handed over' /tmp/upgraded ||
      { cat /tmp/upgraded; tail -20 /tmp/server.log; return 1; }
    echo "the two gave up, and the old server goes on: $(grep -o 'the kernel has it as [a-z ]*' /tmp/upgraded || true)"
    sleep 0.3
  done
  server=$(sed -n 's/^process \([0-9]*\) serves now.*/\1/p' /tmp/upgraded)
}
fairlift upgrade --dry-run
fairlift upgrade --program /bin/false 2>&1 | tail -1 | sed 's/^/a new server that fails: /' || true
while [ ! -e /tmp/enough ]; do
  fio --name=load --directory=/mnt --direct=1 --ioengine=libaio --iodepth=16 --rw=randwrite --bs=4k --size=4m --numjobs=2 \
    --verify=crc32c --verify_backlog=64 --verify_fatal=1 --verify_state_save=0 --fsync=64 --group_reporting --output-format=terse |
    fio_says "under upgrades"
done >/tmp/fio 2>&1 &
load=$!
while [ ! -e /tmp/enough ]; do
  fio --name=beside --ioengine=nbd "--uri=nbd+unix:///bob?socket=/tmp/fairlift.sock" --iodepth=16 --rw=randwrite --bs=4k --size=4m \
    --verify=crc32c --verify_backlog=64 --verify_fatal=1 --verify_state_save=0 --group_reporting --output-format=terse | fio_says "NBD beside it"
done >/tmp/beside 2>&1 &
beside=$!
sleep 2
# A client of another disk has a request that does not end: all are held, and go on after 2 s.
printf '[[fault]]\nhang = true\n' >/tmp/rules.toml
order reload
fio --name=hangs --ioengine=nbd "--uri=nbd+unix:///slow?socket=/tmp/fairlift.sock" --rw=read --bs=4k --size=4k >/dev/null 2>&1 & hangs=$!
until fairlift get disk slow --json | grep -q '"in_flight": 1'; do sleep 0.1; done
fairlift upgrade 2>&1 | grep 'requests of clients had not ended in time' | sed 's/^/held, and then off: /'
: >/tmp/rules.toml
order reload
wait $hangs
for upgrade in $(seq $upgrades); do
  upgrade
  # The command ends once the new server has the device.
  fairlift get export alice --json | tr -d ' \n' | grep -q '"live":true' || echo "the device is away after the upgrade"
  sleep 0.$((upgrade % 7))
done
tail -1 /tmp/upgraded
echo "the device after the upgrades: $([ "$(node)" = "$before" ] && echo the same)"
touch /tmp/enough
wait $beside
# One that has taken over leaves the device to the kernel when it is killed, as any server does.
kill -9 $server
serve --config /tmp/both.toml
echo "the last one was killed: $(grep -c again /tmp/said)"
wait $load
cat /tmp/fio /tmp/beside
grep -E 'handed over to|recovered=true' /tmp/server.log
echo "upgraded: $upgrades times"
[ "$(sha256sum </mnt/kept)" = "$sum" ] && echo "kept its bytes under upgrades"
umount /mnt
e2fsck -fn /dev/ublkb0 >/tmp/fsck 2>&1 && echo "e2fsck finds nothing"
stop
echo "left: $(left) devices; errors=$(errors)"
serve alice=file:/dev/vda --ublk=recover=false
fairlift upgrade 2>&1 | sed 's/^/does not outlive: /' || true
stop
dmesg | grep -iE 'WARN|BUG|error|hung' | head || true
