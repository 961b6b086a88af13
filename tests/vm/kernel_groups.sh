# In the guest: groups of a real kernel, judged by `iostest --dir` on ext4 over a disk of its own, under its bfq.
set -e
mount -t cgroup2 cgroup2 /sys/fs/cgroup
modload bfq
echo bfq >/sys/block/vda/queue/scheduler
mount -t ext4 /dev/vda /mnt
fairlift iostest --dir /mnt --weights 100,300 -w drr --iodepth 16 --jobs 1 --filesize 32m --runtime 5 --total &
judge=$!
# Who is in which group, looked at while they are: the weight that the kernel has, and how many processes.
members() {
  for group in /sys/fs/cgroup/fairlift-iostest-*/*/; do
    echo "$(sed 's/default //' $group/io.bfq.weight):$(wc -l <$group/cgroup.procs)"
  done 2>/dev/null
}
until [ "$(members | grep -c ':[1-9]')" = 2 ]; do kill -0 $judge; sleep 0.1; done
echo "weights and processes: $(echo $(members))"
wait $judge
echo "left in the directory: $(ls /mnt | grep -v lost+found | wc -l), cgroups: $(ls -d /sys/fs/cgroup/fairlift* 2>/dev/null | wc -l)"
