# In the guest: groups of a real kernel, judged by `iostest --dir` on ext4 over a disk of its own, under its bfq.
set -e
mount -t cgroup2 cgroup2 /sys/fs/cgroup
modload bfq
echo bfq >/sys/block/vda/queue/scheduler
# Else bfq fills the disk's own queue from both groups, and the disk decides.
echo 1 >/sys/block/vda/queue/iosched/strict_guarantees
mount -t ext4 /dev/vda /mnt
fairlift iostest --dir /mnt --weights 100,300 -w drr --iodepth 16 --jobs 1 --filesize 32m --runtime 5 --total
echo "left in the directory: $(ls /mnt | grep -v lost+found | wc -l), cgroups: $(ls -d /sys/fs/cgroup/fairlift* 2>/dev/null | wc -l)"
