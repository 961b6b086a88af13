# In the guest: what operators order. Each line that is printed is looked for by the test.
set -e
. /ublk_server
orders() { timeout 60 fairlift "$@" 2>&1; }
# Waits until a device is as it is to be: quiesced, or live.
until_is() { until orders ublk list | grep "/dev/ublkb$1 " | grep -q " $2 "; do sleep 0.1; done; }
gone() { until [ "$(left)" = "$1" ]; do sleep 0.1; done; }
echo "u:x:1000:1000::/tmp:/bin/sh" >/etc/passwd
truncate -s 64M /tmp/image
dd if=/dev/urandom of=/tmp/image bs=1M count=4 conv=notrunc 2>/dev/null
sum=$(head -c 4194304 /tmp/image | sha256sum)
modload ublk_drv
echo "driver: $(orders ublk list | tail -1)"

# Numbers that no device has.
orders ublk remove 7 && false || true
orders ublk recover 7 alice=file:/tmp/image && false || true

# It is its user's again where a server takes it over.
serve alice=file:/tmp/image --ublk=queues=1,owner=u
kill -9 $server; wait $server || true
until_is 0 quiesced; chown 0 /dev/ublkb0
serve alice=file:/tmp/image --ublk=queues=1,owner=u
echo "given again: $(stat -c '%a %u %g' /dev/ublkb0)"
stop; gone 0

# A server that will not come back. Its device is taken over under another name, unmounted, and goes with that server.
serve alice=file:/tmp/image --ublk=queues=1
sum_of() { dd if=/dev/ublkb0 bs=1M count=4 iflag=direct 2>/dev/null | sha256sum; }
[ "$(sum_of)" = "$sum" ] && echo "orphan: the same bytes before"
/usr/sbin/mke2fs -q -F -t ext4 /dev/ublkb0
mount -t ext4 /dev/ublkb0 /mnt
dd if=/dev/urandom of=/mnt/kept bs=1M count=4 conv=fsync 2>/dev/null; kept=$(sha256sum </mnt/kept)
kill -9 $server; wait $server || true
until_is 0 quiesced; orders ublk list
orders ublk remove 0 && false || true
truncate -s 63M /tmp/smaller
orders ublk recover 0 bob=file:/tmp/smaller && false || true
orders serve alice=file:/tmp/image --ublk --read-only && false || true
: >/tmp/said
fairlift ublk recover 0 bob=file:/tmp/image --listen unix:/tmp/recover.sock >>/tmp/said 2>>/tmp/server.log & server=$!
until grep -q "again as block device" /tmp/said; do kill -0 $server; sleep 0.1; done
cat /tmp/said
echo 3 >/proc/sys/vm/drop_caches
[ "$(sha256sum </mnt/kept)" = "$kept" ] && echo "recovered: the same bytes"
umount /mnt
stop
echo "recovered, and stopped: left $(left)"

# One that nobody takes over goes, and what waits in it fails.
serve alice=file:/tmp/image --ublk=queues=1
kill -9 $server; wait $server || true
until_is 0 quiesced
dd if=/dev/ublkb0 of=/dev/null bs=4k count=1 iflag=direct 2>/tmp/dd & waits=$!
until grep -q "^State:.*D" /proc/$waits/status; do sleep 0.1; done
sleep 1; kill -0 $waits && echo "orphan: a read waits"
orders ublk remove 0
wait $waits && false || echo "orphan: the read fails: $(grep -oi '[a-z/]* error$' /tmp/dd)"
echo "orphan removed: left $(left)"

# Removed while mounted: refused; lazily, with what was written back.
truncate -s 4M /tmp/stays
serve alice=mem:4m stays=file:/tmp/stays --keep-capability CAP_SYS_ADMIN --keep-capability CAP_CHOWN --keep-capability CAP_FOWNER --ublk=queues=1,depth=16 --max alice=riops=40
until [ -b /dev/fairlift/alice ] && [ -b /dev/fairlift/stays ]; do sleep 0.1; done
/usr/sbin/mke2fs -q -F -t ext4 /dev/fairlift/stays
mount -t ext4 /dev/fairlift/stays /mnt
orders remove export stays && false || true
echo kept >/mnt/kept
order remove export --now stays
gone 2
umount /mnt
# Removed while a limit holds its requests: they are answered, or fail; the server goes on.
fio --name=load --filename=/dev/fairlift/alice --direct=1 --ioengine=libaio --iodepth=16 --rw=randread --bs=4k --size=4m --time_based --runtime=20 >/tmp/fio 2>&1 & load=$!
sleep 4
order remove export --now alice
gone 0
wait $load || true
kill -0 $server && echo "removed under load: the server goes on"
orders status >/dev/null && echo "removed under load: it answers"

# A device that cannot be started: its command fails, and nothing else. (It has no file here.)
minor=$(cat /sys/class/misc/ublk-control/dev); minor=${minor#*:}
mkdir -p /save; mount --bind /dev /save
mount -t tmpfs none /dev; mknod /dev/ublk-control c 10 $minor; mknod /dev/null c 1 3
orders add export bad=mem:4m ublk=queues=1 && false || true
umount -l /dev; umount /save
orders status >/dev/null && echo "could not start: the server goes on"
order add export good=mem:4m ublk=queues=1 && [ -b /dev/fairlift/good ] && echo "could not start: the next one is there at once"
order remove export good; gone 0

# Given to a user, whom the kernel lets in and whom it has not let in before; also when the next server takes it over.
order add export given=mem:4m ublk=owner=u,group=1001,mode=0640
can_open() { su u -c "dd if=$1 of=/dev/null bs=4k count=1" 2>/dev/null && echo yes || echo no; }
order add export kept=mem:4m ublk=queues=1
echo "given: $(stat -L -c '%a %u %g' /dev/fairlift/given), u may: $(can_open /dev/fairlift/given); kept: $(can_open /dev/fairlift/kept)"
orders add export bad=mem:4m ublk=mode=0999 && false || true
order remove export given; order remove export kept; gone 0

# Taken away by somebody else while it is served.
order add export good=mem:4m ublk=queues=1
id=$(basename $(readlink /dev/fairlift/good)); id=${id#ublkb}
orders ublk remove $id && false || true
orders ublk remove $id --force
order remove export good
gone 0
order add export good=mem:4m ublk=queues=1 && order remove export good && gone 0 && echo "taken away: the server goes on"

# One that cannot be removed is tried again at the end.
order add export kept=mem:4m ublk=queues=1
mount -t tmpfs none /dev; mknod /dev/null c 1 3
order remove export kept
until grep -q 'export "kept": there is no /dev/ublk-control' /tmp/server.log; do sleep 0.1; done
umount -l /dev
echo "not removed: left $(left)"
stop
echo "removed at the end: left $(left)"
serve stays=file:/tmp/stays --ublk --read-only
mount -t ext4 -o ro,noload /dev/ublkb0 /mnt && echo "kept after --now: $(grep -q kept /mnt/kept && echo yes)" && umount /mnt
stop

# Partitions: one of 2 MiB.
printf '\000\000\002\000\203\000\002\000\010\000\000\000\000\020\000\000' | dd of=/tmp/image bs=1 seek=446 conv=notrunc 2>/dev/null
printf '\125\252' | dd of=/tmp/image bs=1 seek=510 conv=notrunc 2>/dev/null
serve alice=file:/tmp/image --ublk
echo "partitions: $(ls -d /dev/ublkb0p* | wc -l) of $(cat /sys/block/ublkb0/ublkb0p1/size) sectors"
truncate -s 128M /tmp/image; orders set export alice size=auto >/dev/null
until grep -q "keeps its size" /tmp/server.log; do sleep 0.1; done
grep "keeps its size" /tmp/server.log | tail -1
stop
orders serve alice=file:/tmp/image --ublk=partitions=false && false || true

# Without privileges.
as_user() { timeout 60 su u -c "exec $*"; }
chmod 666 /tmp/image
as_user fairlift serve alice=file:/tmp/image --ublk --listen unix:/tmp/u.sock 2>&1 | sed 's/^/user: /'
chmod 666 /dev/ublk-control
as_user fairlift serve alice=file:/tmp/image --ublk --listen unix:/tmp/u.sock 2>&1 | sed 's/^/user: /'
(while [ ! -e /tmp/enough ]; do chown u /dev/ublkc* 2>/dev/null || true; usleep 10000; done) & udev=$!
: >/tmp/said
su u -c "exec fairlift serve alice=file:/tmp/image --ublk=unprivileged,queues=1 --listen unix:/tmp/u.sock" >>/tmp/said 2>>/tmp/user.log & server=$!
until grep -q "block device" /tmp/said || ! kill -0 $server 2>/dev/null; do sleep 0.1; done
cat /tmp/said /tmp/user.log
echo "user: uid $(awk '/^Uid/ {print $2}' /proc/$server/status), capabilities $(awk '/^CapEff/ {print $2}' /proc/$server/status)"
[ -b /dev/ublkb0 ]
dd if=/dev/urandom of=/tmp/some bs=1M count=2 2>/dev/null
dd if=/tmp/some of=/dev/ublkb0 bs=64k oflag=direct conv=fsync 2>/dev/null
dd if=/dev/ublkb0 bs=64k count=32 iflag=direct 2>/dev/null | cmp - /tmp/some && echo "user: the same bytes; partitions: $(ls -d /dev/ublkb0p* 2>/dev/null | wc -l)"
# As many as the kernel lets users have.
echo 1 >/sys/module/ublk_drv/parameters/ublks_max
as_user fairlift serve bob=mem:4m --ublk=unprivileged,queues=1 --listen unix:/tmp/v.sock 2>&1 | sed 's/^/user: /'
kill $server; wait $server || true; touch /tmp/enough; wait $udev
echo "user: left $(left)"
echo "panics: $(cat /tmp/server.log /tmp/user.log | grep -c panicked)"
