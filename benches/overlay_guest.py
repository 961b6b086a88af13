#!/usr/bin/env python3
"""Forks as block devices (ublk) beside dm-snapshot, in one guest of Linux 6.12: prints a section of docs/measured/overlay.md.

    benches/overlay_guest.py [--dir PATH] [--count 100] [--writes 1000] [--console]

The guest has two processors and ext4 on a virtio disk, a file in --dir. Forks: see benches/peers/forks.c. First writes: fio, 4 KiB at random of what was never
written, one at a time with an fsync after each, then 32 at once with one fsync at the end; the disk's I/Os are what its /sys/block/vda/stat counted meanwhile.
Needs qemu, mke2fs, fio, cc; takes two minutes or three. FAIRLIFT names another program than target/release/fairlift; --console tells all that the guest said.
"""

import argparse
import contextlib
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/vm"), str(ROOT / "tests/e2e")]
FAIRLIFT = os.environ.get("FAIRLIFT", f"{os.environ.get('CARGO_TARGET_DIR', ROOT / 'target')}/release/fairlift")
MODULES = ["virtio_pci", "virtio_blk", "crc32c_generic", "ext4", "loop", "dm_snapshot", "ublk_drv"]
FORKS = {
    "fairlift": "a fork of a disk that nobody has written",
    "fairlift-alone": "the same fork without a block device, until it is answered",
    "fairlift-written": "a fork of a disk that was written since the last one, 16 blocks of 4 KiB each time",
    "dm-snapshot": "dm-snapshot: a sparse file, a loop device of it, the snapshot",
    "loop": "a sparse file and a loop device of it",
}
WRITES = {"fairlift": "a fork, by ublk", "dm-snapshot": "dm-snapshot, its store a loop device", "loop": "a sparse file's loop device"}

TEST = r"""
set -e
. /ublk_server
for word in $(cat /proc/cmdline); do case $word in count=*) count=${word#*=};; writes=*) writes=${word#*=};; esac; done
for module in loop dm_snapshot ublk_drv; do modload $module; done
mount -t ext4 /dev/vda /mnt
truncate -s 1G /mnt/base
dd if=/dev/urandom of=/mnt/base bs=1M count=1 conv=notrunc,fsync 2>/dev/null
serve a=overlay:base=/mnt/base,top=/mnt/a.top --ublk --control $FAIRLIFT_CONTROL
losetup -r /dev/loop0 /mnt/base
requests() { awk '{print $1, $5, $16}' /sys/block/vda/stat; }
first_writes() { # NAME HOW OFFSET FLAGS…
  name=$1 how=$2 offset=$3; shift 3
  sync; sleep 1
  before=$(requests)
  rate=$(fio --name=w --filename=$device --direct=1 --ioengine=libaio --rw=randwrite --bs=4k --offset=$offset --size=400m --number_ios=$writes "$@" \
    --output-format=terse | awk -F';' 'NF > 40 {print $49, $47 / 4}')
  echo "WRITES $name $how $rate $before $(requests)"
}
for what in fairlift fairlift-alone fairlift-written dm-snapshot loop; do
  case $what in fairlift*) of=${FAIRLIFT_CONTROL#unix:};; *) of=/dev/loop0;; esac
  forks $what $of /mnt $count >/tmp/forks || { tail -5 /tmp/server.log; exit 1; }
  cat /tmp/forks
  device=$(sed -n 's/^LAST //p' /tmp/forks)
  case $what in fairlift-*) continue;; esac
  first_writes $what synced 64m --iodepth=1 --fsync=1
  first_writes $what deep 512m --iodepth=32 --end_fsync=1
done
"""


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--dir")
    arguments.add_argument("--count", type=int, default=100)
    arguments.add_argument("--writes", type=int, default=1000)
    arguments.add_argument("--console", action="store_true")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="fl-", dir=given.dir) as place:
        console = booted(place, given)
    if given.console:
        print(console, file=sys.stderr)
    if "GUEST-RESULT disk rc=0" not in console:
        sys.exit(f"the guest failed:\n{console[-3000:]}")
    print(section(console, given))


def booted(place, given):
    """What the guest said."""
    import harness
    import initramfs
    import linux_guest

    t = harness.Context(place)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            t.run("strip", "-o", t.path("fairlift"), FAIRLIFT)
            t.run("cc", "-O2", "-static", "-o", t.path("forks"), ROOT / "benches/peers/forks.c")
            Path(t.path("test")).write_text(TEST)
            kernel = linux_guest.kernel(t)
            scripts = {"/init": linux_guest.HERE / "init", "/ublk_server": linux_guest.HERE / "ublk_server.sh", "/test": t.path("test")}
            initramfs.build(t.path("initramfs.gz"), kernel, MODULES, [t.path("fairlift"), t.path("forks"), "fio"], scripts)
            image = t.image("image", 4 << 30)
            # Nothing of it is left to be made while I/Os are counted.
            t.run("mke2fs", "-q", "-F", "-t", "ext4", "-N", "8192", "-E", "lazy_itable_init=0,lazy_journal_init=0", image)
            disk = ["-m", "1G", "-drive", f"file={image},format=raw,if=none,id=d0,cache=writeback", "-device", "virtio-blk-pci,drive=d0"]
            return linux_guest.boot_somehow(t, kernel, f"disks=0/disk limit=400 count={given.count} writes={given.writes}", disk, seconds=460)
    finally:
        t.finish(False)


def section(console, given):
    commit = re.search(r"\((\w{8})", subprocess.run([FAIRLIFT, "version"], check=True, capture_output=True, text=True).stdout)[1]
    lines = [f"""## Block devices in a guest, beside dm-snapshot

`benches/overlay_guest.py`, one run of {commit}: Linux 6.12 with two processors, ext4 on a virtio disk. The guest is emulated, without KVM, so its times compare with each other alone.

From asking for a disk of a base of 1 GiB until 4 KiB were read from its block device past the page cache, {given.count} times one after the other, each removed before the next. Fairlift is asked
by HTTP at its control socket, the kernel by the calls that `losetup` and `dmsetup` make, so no program's start is in it.

| | median | p99 |
|---|---|---|"""]
    for name, told in FORKS.items():
        times = sorted(map(float, re.search(rf"TIMES {name} (.*)", console)[1].split()))
        p99 = times[int(len(times) * 0.99) - 1 if len(times) >= 100 else -1]
        lines.append(f"| {told} | {statistics.median(times):.1f} ms | {p99:.1f} ms |")
    lines.append(f"""
First writes: {given.writes:,} of 4 KiB, at random, each where nothing was written before; and what the guest's disk was asked for by each of them (writes, flushes, reads). Stores and tops are sparse
files in that ext4 and bypass the page cache; dm-snapshot's chunks are of 4 KiB, its exceptions persistent.

| | one at a time, an fsync after each | of the disk | 32 at once, one fsync at the end | of the disk |
|---|---|---|---|---|""")
    for name, told in WRITES.items():
        cells = []
        for how in "synced", "deep":
            rate, count, *seen = map(float, re.search(rf"WRITES {name} {how} (.*)", console)[1].split())
            reads, writes, flushes = ((after - before) / count for before, after in zip(seen[:3], seen[3:]))
            cells.append(f"{rate:,.0f} a second | {writes:.2f} writes, {flushes:.2f} flushes, {reads:.2f} reads")
        lines.append(f"| {told} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
