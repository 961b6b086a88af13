#!/usr/bin/env python3
"""A real Linux kernel in a virtual machine, whose own NBD client sees that an export has grown."""

from linux_guest import *

GROWN = 2 * SIZE


@test(seconds=420, fairlift_only=True)
def a_linux_guest_sees_an_export_that_grew_when_it_attaches_it_again(t):
    for tool in "qemu-system-x86_64", "nbd-client", "mke2fs", "busybox", "zstd":
        t.tool(tool)
    unpacked = kernel(t)
    initramfs.build(t.path("initramfs.gz"), unpacked, MODULES, ["nbd-client", "mke2fs"],
                    {"/init": HERE / "init", "/test": HERE / "growth.sh"})
    image, port = t.image("image", SIZE), free_port()
    control = t.path("control.sock")
    server = t.server(f"disk=file:{image}", listen=[f"tcp:127.0.0.1:{port}"], args=["--control", f"unix:{control}"])
    grown = []

    def grow(said):
        if not grown and "GUEST-MAY-GROW" in said():
            os.truncate(image, GROWN)
            grown.append(t.run(BINARY, "set", "export", "disk", "size=auto", "--control", f"unix:{control}"))

    devices = ["-netdev", "user,id=n0", "-device", "virtio-net-pci,netdev=n0"]
    console = boot_somehow(t, unpacked, f"disks={port}/disk", devices, meanwhile=grow)
    assert grown, "the guest never came so far"
    contains(grown[0], f"size: {GROWN}")
    contains(console, "GUEST-RESULT disk rc=0", f"size before={SIZE // 512} after={GROWN // 512}")
    server.stop()
    with open(image, "rb") as file:
        file.seek(GROWN - 4096)
        contains(console, f"end={hashlib.sha256(file.read()).hexdigest()}")


if __name__ == "__main__":
    main()
