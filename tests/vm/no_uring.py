#!/usr/bin/env python3
"""A real Linux kernel whose administrator has switched io_uring off (`kernel.io_uring_disabled`)."""

from linux_guest import *


@test(seconds=300, fairlift_only=True)
def where_the_kernel_refuses_io_uring_the_server_says_so_and_serves(t):
    for tool in "qemu-system-x86_64", "busybox", "zstd", "fio", "setpriv":
        t.tool(tool)
    unpacked = kernel(t)
    initramfs.build(t.path("initramfs.gz"), unpacked, [], [BINARY, "fio", "setpriv"], {"/init": HERE / "init", "/test": HERE / "no_uring.sh"})
    console = boot_somehow(t, unpacked, "disks=0/disk", [])
    contains(console, "GUEST-RESULT disk rc=0")
    # With 1 it is for those with CAP_SYS_ADMIN, which root's server gives up once it has started.
    poll = "engine=poll (io_uring: EPERM)"
    for who, setting, engine in ("root", 2, poll), ("root", 1, poll), ("nobody", 1, poll), ("nobody", 0, "engine=io_uring"):
        contains(console, f"{who}, io_uring_disabled={setting}: {engine}, fio read_kb=1024")
    equal(console.count(f"WARN {poll}: served by epoll and threads"), 3, "warnings, one of each server without")
    contains(console, "asked for io_uring: exit code 1")


if __name__ == "__main__":
    main()
