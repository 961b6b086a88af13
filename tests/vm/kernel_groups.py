#!/usr/bin/env python3
"""A real Linux kernel, whose groups and scheduler are judged by `iostest --dir`."""

from linux_guest import *


@test(seconds=300, fairlift_only=True)
def the_kernel_weighs_the_groups_of_iostest(t):
    for tool in "qemu-system-x86_64", "mke2fs", "busybox", "zstd":
        t.tool(tool)
    unpacked = kernel(t)
    modules = ["virtio_pci", "virtio_blk", "crc32c_generic", "ext4", "bfq"]
    initramfs.build(t.path("initramfs.gz"), unpacked, modules, [BINARY], {"/init": HERE / "init", "/test": HERE / "kernel_groups.sh"})
    image = t.image("image", 256 * MIB)
    t.run("mke2fs", "-q", "-t", "ext4", image)
    drive = f"file={image},format=raw,if=none,id=d"
    console = boot_somehow(t, unpacked, "disks=0/groups", ["-drive", drive, "-device", "virtio-blk-pci,drive=d"])
    contains(console, "GUEST-RESULT groups rc=0", "DEV=/mnt", "iosched=bfq", "cgroups=io", "weights and processes: 100:1 300:1",
             "left in the directory: 0, cgroups: 0")


if __name__ == "__main__":
    main()
