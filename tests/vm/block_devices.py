#!/usr/bin/env python3
"""Block devices of a real Linux kernel (ublk), made by a server that runs in the virtual machine too.

KILLS=200 kills the server so often, UPGRADES=100 upgrades it so often (5 otherwise); MANY=100 makes and removes so many devices, and stops a server for a minute."""

from datetime import datetime

from linux_guest import *

MODULES = ["virtio_pci", "virtio_blk", "crc32c_generic", "ext4", "ublk_drv"]
KILLS = int(os.environ.get("KILLS") or 5)
UPGRADES = int(os.environ.get("UPGRADES") or 5)
MANY = int(os.environ.get("MANY") or 10)


def guest(t, test, scripts, limit, append="", modules=(), programs=()):
    """What a guest said in which a script has run for so many seconds at most; it has a disk, /dev/vda."""
    unpacked = kernel(t)
    scripts = {"/init": "init", "/test": test, "/ublk_server": "ublk_server.sh", **scripts}
    initramfs.build(t.path("initramfs.gz"), unpacked, [*MODULES, *modules], [BINARY, "fio", "mke2fs", *programs],
                    {inside: HERE / here for inside, here in scripts.items()})
    disk = ["-drive", f"file={t.image('image', 512 * MIB)},format=raw,if=none,id=d0,cache=unsafe", "-device", "virtio-blk-pci,drive=d0"]
    return boot_somehow(t, unpacked, f"disks=0/disk limit={limit} {append}", disk, seconds=limit + 60)


@test(seconds=420 + 4 * KILLS, fairlift_only=True)
def block_devices_are_used_by_file_systems_and_outlive_servers_that_are_killed(t):
    for tool in "qemu-system-x86_64", "mke2fs", "e2fsck", "busybox", "zstd", "fio":
        t.tool(tool)
    xfs = bool(shutil.which("mkfs.xfs"))
    console = guest(t, "ublk.sh", {"/live": "live.sh", "/kill": "ublk_kill.sh"}, 300 + 4 * KILLS, f"kills={KILLS}", ["xfs"] * xfs,
                    ["e2fsck", "blkdiscard", *["mkfs.xfs"] * xfs])
    contains(console, "GUEST-RESULT disk rc=0")
    contains(console, "without the module: error:", "modprobe ublk_drv", "goes on without the device: yes", "same bytes",
             "left after a stop: 0", "cache=write back fua=1 block=512/4096", "queues=2")
    # The disk below has no writes with FUA, so that each is a write and a flush.
    below = {what: int(count) for what, count in re.findall(r"flushes below, of (.*): (\d+)", console)}
    assert below["10 fsyncs"] >= 10 and below["10 writes with FUA"] >= 10, f"flushes below: {below}"
    # Each of the device's two queues has just flushed after each write, so its first of these may be durable at once (sequence.6).
    assert below["40 writes"] <= 2, f"flushes below for writes that nobody flushes: {below}"
    verified = re.search(r"fio verified: read_kb=(\d+) written_kb=(\d+) error=0", console)
    assert verified and int(verified[1]) >= 4 * 6 * 1024 * 0.9, f"fio read back {verified and verified[0]}"
    contains(console, "same after a new mount", "refused while mounted", "discarded all of it", "a live server's id is refused",
             *["xfs has the same bytes"] * xfs, "a dead server's device is replaced", "left by a stop, taken over by the next", "read-only: 1", "kept its bytes while it was left")
    # On a quiet machine they are within 5 %; of five looks on a busy one it is the first that was right, or the last.
    shares = [int(kib) for kib in re.search(r"shares: (\d+) (\d+)", console).groups()]
    assert 2.4 <= shares[1] / shares[0] <= 3.6, f"with weights 1 to 3 two devices wrote {shares}"
    contains(console, f"recovered: {KILLS} times", "kept its bytes under kills", "e2fsck finds nothing", "left: 0 devices; errors=0")
    loads = [int(kb) for kb in re.findall(r"under kills: read_kb=(\d+) written_kb=\d+ error=0", console)]
    assert len(loads) == console.count("under kills: read_kb") and sum(loads) > 100, f"fio read back {loads}"


@test(seconds=420 + 4 * UPGRADES, fairlift_only=True)
def a_block_device_under_load_does_not_notice_that_its_server_is_upgraded(t):
    console = guest(t, "ublk_upgrade.sh", {}, 260 + 4 * UPGRADES, f"upgrades={UPGRADES}", programs=["e2fsck"])
    contains(console, "GUEST-RESULT disk rc=0")
    contains(console, "the kernel keeps what is asked of 1 block device until the new server has it", "a new server could take over",
             "a new server that fails: the running server goes on", "held, and then off: ", f"upgraded: {UPGRADES} times", "the device after the upgrades: the same",
             "the last one was killed: 1", "kept its bytes under upgrades", "e2fsck finds nothing", "left: 0 devices; errors=0",
             "/dev/ublkb0 does not outlive its server")
    equal(console.count("the device is away after the upgrade"), 0, "upgrades whose command ended before the device was there")
    loads = [int(kb) for kb in re.findall(r"under upgrades: read_kb=(\d+) written_kb=\d+ error=0", console)]
    assert len(loads) == console.count("under upgrades: read_kb") and sum(loads) > 100, f"fio read back {loads}"
    # Two processes write these lines, one the first and the other the second, so that either may come before the other. The last device
    # is that of the server which was killed.
    begun = re.findall(r"(\S+)Z  INFO handed over to process \d+", console)
    there = re.findall(r"(\S+)Z  INFO ublk: the device is there .*recovered=true", console)
    equal((len(begun), len(there)), (UPGRADES, UPGRADES + 1), "hand-overs, and times that the device was there again")
    away = [datetime.fromisoformat(there) - datetime.fromisoformat(begun) for begun, there in zip(sorted(begun), sorted(there))]
    milliseconds = sorted(one.total_seconds() * 1000 for one in away)
    figure(f"upgrade: a block device {UPGRADES} times, emulated, from the hand-over until the new server has it: median "
           f"{milliseconds[len(away) // 2]:.0f} ms, most {milliseconds[-1]:.0f} ms (below zero: the new server's line came first)")
    loads = [int(kb) for kb in re.findall(r"NBD beside it: read_kb=(\d+) written_kb=\d+ error=0", console)]
    assert len(loads) == console.count("NBD beside it: ") and sum(loads) > 100, f"fio read back by NBD {loads}"


@test(seconds=420, fairlift_only=True)
def block_devices_are_ordered_about_and_each_mistake_has_its_line(t):
    console = guest(t, "ublk_orders.sh", {}, 260)
    contains(console, "GUEST-RESULT disk rc=0")
    contains(console, "there is no ublk device 7; there are none", "there is no ublk device 7 to take over",
             "quiesced  none: it waits for one", "is mounted at /mnt: let a server take it over, or use --force",
             "/dev/ublkb0 has 67108864 bytes, and the export has 66060288",
             "/dev/ublkb0 is written to, and the export is read-only", "serving bob again as block device /dev/ublkb0",
             "recovered: the same bytes", "recovered, and stopped: left 0", "orphan: a read waits", "orphan: the read fails: ",
             "orphan removed: left 0")
    contains(console, 'export "stays" cannot be removed: /dev/ublkb1 is mounted at /mnt', "kept after --now: yes",
             "removed under load: the server goes on", "removed under load: it answers",
             "given: 640 1000 1001, u may: yes; kept: no", "mode takes an octal number such as 0660", "given again: 600 1000 0")
    contains(console, 'export "bad": /dev/ublkb0: its own file cannot be had', "could not start: the server goes on",
             "could not start: the next one is there at once", "is served by process", "taken away: the server goes on",
             "not removed: left 2", "removed at the end: left 0")
    # This kernel can neither change a device's size nor leave partitions alone.
    contains(console, "partitions: 1 of 4096 sectors", "keeps its size, for this kernel's ublk_drv cannot change it",
             "no_auto_part_scan is not among what its driver can do")
    contains(console, "/dev/ublk-control may not be used by user 1000: run as root, or", "a ublk device needs CAP_SYS_ADMIN: run as root",
             "user: uid 1000, capabilities 0000000000000000", "user: the same bytes; partitions: 0",
             "as many ublk devices as it takes (ublks_max is 1)", "user: left 0", "panics: 0")


@test(seconds=300 + 3 * MANY, fairlift_only=True)
def block_devices_come_and_go_and_a_server_that_stands_still_goes_on(t):
    stopped = 60 if MANY >= 100 else 5
    console = guest(t, "ublk_many.sh", {}, 120 + 2 * MANY + stopped, f"many={MANY} stopped={stopped}")
    contains(console, "GUEST-RESULT disk rc=0", f"at once: {1 + MANY // 10}", f"stopped for {stopped} s: the same bytes; errors=0",
             "read-only now: ", "written again", "behind the end: ", "before it: read", "keeps its size", "told again of its size", "left: 0")
    found = re.search(rf"after {MANY}: 1, threads of the server: (\d+), links: 1, open files: (\d+)", console)
    assert found and int(found[1]) < 20 and int(found[2]) < 40, f"what stays: {found and found[0]}"


if __name__ == "__main__":
    main()
