"""A live CD (004): Debian boots from an ext4 image inside a squashfs.

The seed's: Fedora's live CD took twice as long with four processors as with one, once the loop device read with up to 512 threads. Here a guest of
Linux 6.12 (by emulation, so times compare with each other alone) has the squashfs in a file system on a virtio disk, and makes two block devices of it, one in the
other. They are the kernel's loop devices or ours (ublk), the outer one direct or buffered; squashfs takes no direct I/O. A tmpfs lies over the
root, and systemd starts it with 24 services that read what programs read. Needs mmdebstrap, mksquashfs, mke2fs, qemu and root. A boot takes a minute;
ROUNDS=3, CPUS="1 2 4" and HELPERS="2 8 32 128" say how many there are. KEPT=FILE keeps what each boot said, and goes on with what it has.
"""

import contextlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/vm"), str(ROOT / "tests/e2e")]

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fairlift-vm/live-cd"
MODULES = ["virtio_pci", "virtio_blk", "crc32c_generic", "ext4", "squashfs", "loop", "overlay", "ublk_drv"]
ARMS = {"loop, direct": "loop on", "loop, buffered": "loop off", "fairlift, direct": "fairlift on", "fairlift, buffered": "fairlift off"}
SERVICES = 24

INIT = r"""#!/bin/busybox sh
export PATH=/bin:/usr/sbin:/sbin:/usr/bin XDG_RUNTIME_DIR=/tmp
/bin/busybox mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev 2>/dev/null; mount -t tmpfs tmp /tmp
for w in $(cat /proc/cmdline); do case $w in how=*) how=${w#*=};; direct=*) direct=${w#*=};; helpers=*) helpers=${w#*=};; esac; done
for module in virtio_blk crc32c_generic ext4 squashfs loop overlay ublk_drv; do [ ! -e /modules/$module.ko ] || modload $module; done
mkdir -p /cd /squash /image /over /root
mount -t ext4 -o ro /dev/vda /cd
echo "GUEST-BOOT from=$(cut -d' ' -f1 /proc/uptime)"
serve() { # NAME FILE WORDS…: waits for the device, whose file is then $device
  name=$1 file=$2; shift 2
  printf '[server]\nhelpers = %s\n' ${helpers:-32} > /tmp/$name.toml
  fairlift serve $name=file:$file$1 --config /tmp/$name.toml --read-only --ublk --listen unix:/tmp/$name.sock >/tmp/$name.said 2>&1 &
  for i in $(seq 600); do device=$(sed -n 's/.*as block device \([^,]*\),.*/\1/p' /tmp/$name.said); [ -n "$device" ] && return; sleep 0.05; done
  cat /tmp/$name.said; poweroff -nf
}
if [ $how = loop ]; then
  losetup.real -r --direct-io=$direct /dev/loop0 /cd/squash; mount -t squashfs /dev/loop0 /squash
  losetup.real -r /dev/loop1 /squash/image; mount -t ext4 -o ro /dev/loop1 /image
else
  serve outer /cd/squash ,direct=$direct; mount -t squashfs $device /squash
  serve inner /squash/image; mount -t ext4 -o ro $device /image
fi
mount -t tmpfs over /over; mkdir /over/up /over/work
mount -t overlay -o lowerdir=/image,upperdir=/over/up,workdir=/over/work over /root
mount --move /proc /root/proc; mount --move /sys /root/sys; mount --move /dev /root/dev
exec switch_root /root /sbin/init
"""

AGREES = """- **Agrees:** the most helpers allowed does not change a boot: 2 to 128 take 32 to 35 s, for the number in use is learned. The seed's loop device took longer with more of up to 512. Two processors boot in three fifths of the time of
  one.
- **As the loop device** with two processors (1.05 direct, 1.00 buffered), and within a tenth with four (1.03, 1.10).
- **Missed:** one processor takes 1.18 and 1.28 times the loop device's time, and leaves 3 and 5 % of four to others where the loop device leaves 5 and 12. Each block crosses between kernel and server twice, 17 to 20 s of these emulated
  processors ([files](files.md) has a host's figures).
- **Does not agree:** four processors are slower than two, by 1.1 to 1.2 with either, for two of the machine emulate the guest's four.
- Two boots of each in turn, so differences below a tenth say nothing. The program is of 52ef77c5."""

# The services read what programs read as they start; the last thing waits for all of them.
LOADS = ["python3 -c 'import json, http.server, sqlite3, asyncio, xml.dom.minidom, email, ssl'",
         "perl -MPOSIX -MStorable -MEncode -MFile::Find -e 'find(sub {}, \"/usr/share/perl\")'",
         "sh -c 'find /usr/share /etc -type f | sort | awk NR%%12==%d | xargs cat >/dev/null'",
         "sh -c 'find /usr/lib /usr/bin -type f -size -300k | sort | awk NR%%12==%d | xargs cat >/dev/null'",
         "git --exec-path=/usr/lib/git-core help -a", "sh -c 'dpkg -l; dpkg --verify libc6; ls -lR /usr'"]

SAID = r"""#!/bin/sh
read up idle < /proc/uptime
served=0
for p in $(pidof fairlift); do
  read -r line < /proc/$p/stat; set -- ${line##*) }; served=$((served + ${12} + ${13})); done
threads=$(for p in $(pidof fairlift); do ls /proc/$p/task; done | wc -l)
{ echo; echo "LIVE-CD up=$up idle=$idle served=$served threads=$threads cpus=$(nproc)"; } > /dev/console
sync; echo o > /proc/sysrq-trigger; sleep 60
"""


def section(fairlift):
    os.environ.setdefault("FAIRLIFT", fairlift)
    rounds = numbers("ROUNDS", "3")[0]
    disk = made()
    arms = [(cpus, name, words, None) for cpus in numbers("CPUS", "1 2 4") for name, words in ARMS.items()]
    arms += [(2, f"fairlift, direct, helpers {n}", "fairlift on", n) for n in numbers("HELPERS", "2 8 32 128")]
    seen = {arm: [] for arm in arms}
    kept = Path(os.environ.get("KEPT", os.devnull))
    for line in kept.read_text().splitlines() if kept.exists() else ():
        arm, said = json.loads(line)
        seen[tuple(arm)].append(said)
    for turn in range(rounds):
        for arm in (arm for arm in arms if len(seen[arm]) <= turn):
            seen[arm].append(booted(disk, *arm))
            with kept.open("a") as file:
                print(json.dumps([arm, seen[arm][-1]]), file=file)
            print(arm, seen[arm][-1], file=sys.stderr, flush=True)
    rows = [row(*arm[:2], all_) for arm, all_ in seen.items()]
    return f"""Seconds from the first process's start until all of {SERVICES} services have ended, medians of {rounds} (least to most). Idle: the part of the guest's processors left for others
meanwhile. Then processor seconds of the servers (the kernel's threads of loop devices do not report it), and threads of both servers at the end.

| processors | by | seconds | idle | server's processor seconds | threads |
|---|---|---|---|---|---|
""" + "\n".join(rows) + f"\n\n{AGREES}"


def numbers(name, usual):
    return [int(word) for word in os.environ.get(name, usual).split()]


def row(cpus, name, seen):
    up = sorted(each["up"] - each["from"] for each in seen)
    of = lambda key: statistics.median(each[key] for each in seen)
    idle = statistics.median(each["idle"] / each["up"] / cpus for each in seen)
    served = f"{of('served') / 100:.1f} | {of('threads'):.0f}" if name.startswith("fairlift") else "– | –"
    return f"| {cpus} | {name} | {statistics.median(up):.1f} ({up[0]:.1f} to {up[-1]:.1f}) | {idle:.0%} | {served} |"


def made():
    """The virtual CD, kept for the next time."""
    disk = CACHE / "cd.img"
    if disk.exists():
        return disk
    CACHE.mkdir(parents=True, exist_ok=True)
    part = CACHE / f"part.{os.getpid()}"
    shutil.rmtree(part, ignore_errors=True)
    root, inside, cd = part / "root", part / "inside", part / "cd"
    for each in inside, cd:
        each.mkdir(parents=True)
    run = lambda *words: subprocess.run([str(word) for word in words], check=True, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    run("mmdebstrap", "--variant=minbase", "--include=systemd-sysv,udev,dbus,python3,perl,openssh-server,git", "bookworm", root)
    services(root)
    run("mke2fs", "-q", "-F", "-t", "ext4", "-O", "^has_journal", "-m", "0", "-d", root, inside / "image", "700M")
    run("mksquashfs", inside, cd / "squash", "-comp", "xz", "-no-progress", "-quiet")
    run("mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", "-d", cd, part / "cd.img", "300M")
    (part / "cd.img").rename(disk)
    shutil.rmtree(part)
    return disk


def services(root):
    units = root / "etc/systemd/system"
    wants = units / "multi-user.target.wants"
    wants.mkdir(exist_ok=True)
    names = [f"load{number}.service" for number in range(SERVICES)]
    for number, name in enumerate(names):
        load = LOADS[number % len(LOADS)]
        load = (load % (number // len(LOADS)) if "%d" in load else load).replace("%", "%%")
        (units / name).write_text(f"[Unit]\nDefaultDependencies=no\nAfter=local-fs.target\n[Service]\nType=oneshot\nStandardOutput=null\nExecStart=/usr/bin/{load}\n")
        (wants / name).symlink_to(f"../{name}")
    (root / "said").write_text(SAID)
    (root / "said").chmod(0o755)
    (units / "said.service").write_text(f"[Unit]\nAfter={' '.join(names)} multi-user.target\n[Service]\nExecStart=/said\n")
    (wants / "said.service").symlink_to("../said.service")
    for mask in "systemd-networkd-wait-online.service", "apt-daily.timer", "e2scrub_all.timer", "ssh.service":
        (units / mask).unlink(missing_ok=True)
        (units / mask).symlink_to("/dev/null")


def booted(disk, cpus, name, words, helpers):
    """What the guest said of its boot."""
    import harness
    import initramfs
    import linux_guest

    said = {}

    def boot(t):
        init = t.path("init")
        Path(init).write_text(INIT)
        programs = {"fairlift": os.environ["FAIRLIFT"], "losetup.real": shutil.which("losetup")}
        for inside, here in programs.items():
            t.run("strip", "-o", t.path(inside), here)
        unpacked = linux_guest.kernel(t)
        initramfs.build(t.path("initramfs.gz"), unpacked, MODULES, [t.path(inside) for inside in programs], {"/init": init})
        how, direct = words.split()
        drive = ["-m", "1G", "-drive", f"file={disk},format=raw,if=none,id=d0,snapshot=on,cache=writeback", "-device", "virtio-blk-pci,drive=d0"]
        append = f"how={how} direct={direct} {f'helpers={helpers}' if helpers else ''} systemd.show_status=0 rdinit=/init"
        console = linux_guest.boot_somehow(t, unpacked, append, drive, seconds=400, cpus=cpus)
        found = re.search(r"GUEST-BOOT (.*)(?s:.*)LIVE-CD (.*)", console)
        assert found, f"{name}: no login: {console[-3000:]}"
        said.update({key: float(value) for key, value in re.findall(r"(\w+)=([\d.]+)", " ".join(found.groups()))})

    with tempfile.TemporaryDirectory(prefix="fl-") as place:
        t = harness.Context(place)
        try:
            with contextlib.redirect_stdout(sys.stderr):
                boot(t)
        finally:
            t.finish(False)
    return said
