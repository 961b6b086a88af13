"""A block device behind an export, by way of a loop device."""

import nbdclient
from files import fuse
from harness import *


def loop_device(t, size):
    if os.geteuid() != 0:
        t.skip("losetup needs root")
    if not os.path.exists("/dev/loop-control"):
        t.skip("there is no /dev/loop-control")
    image = t.image("below", size)
    out = t.run("losetup", "-f", "--show", image, code=None).strip()
    if not out.startswith("/dev/"):
        t.skip(f"no loop device to be had: {out}")
    t.defer(subprocess.run, ["losetup", "-d", out])
    return out, image


@test
def a_block_device_gives_back_what_was_copied_in(t):
    device, image = loop_device(t, 64 * MIB)
    original = t.image("original", 64 * MIB, (0, data(10 * MIB)), (40 * MIB, data(5 * MIB, 2)), (64 * MIB - 512, data(512, 3)))
    server = t.server(f"disk=file:{device}")
    t.run("nbdcopy", "--connections=2", original, server.uri("disk"))
    t.run("nbdcopy", server.uri("disk"), t.path("copy"))
    equal(sha256(t.path("copy")), sha256(original), "the hash of the copy")
    with server.connect("disk") as client:
        client.flush()
    server.stop() if not STAND_IN else server.kill()
    t.run("blockdev", "--flushbufs", device)
    equal(sha256(image), sha256(original), "the hash of the file below the device")


@test
def trims_and_zeroes_reach_the_file_below_the_device(t):
    device, image = loop_device(t, 32 * MIB)
    server = t.server(f"disk=file:{device}")
    with server.connect("disk") as client:
        client.write(0, data(16 * MIB))
        client.flush()
        full = os.stat(image).st_blocks * 512
        assert full >= 16 * MIB, f"16 MiB written take {full} bytes"
        client.trim(0, 8 * MIB)
        client.zero(8 * MIB, 4 * MIB)
        client.flush()
        assert client.read(8 * MIB, 4 * MIB) == bytes(4 * MIB), "zeroes where zeroes were written"
        assert client.read(12 * MIB, 4 * MIB) == data(16 * MIB)[12 * MIB:], "what was not trimmed"
        assert os.stat(image).st_blocks * 512 <= full - 8 * MIB + MIB, "a trim of 8 MiB gave nothing back"


@test(fairlift_only=True)
def a_second_server_on_the_same_device_is_refused(t):
    device, _ = loop_device(t, MIB)
    t.server(f"disk=file:{device}")
    contains(t.serve_fails(f"disk=file:{device}", "--listen", f"unix:{t.path('s9')}"), device, "lock")


@test(fairlift_only=True)
def a_device_that_is_mounted_or_held_by_another_program_is_refused_unless_the_operator_allows_it(t):
    device, image = loop_device(t, 16 * MIB)
    t.run("mkfs.ext4", "-q", "-F", device)
    os.mkdir(t.path("mnt"))
    if "mount" in t.run("mount", device, t.path("mnt"), code=None):
        t.skip("a device cannot be mounted here")
    mounted = [True]
    t.defer(lambda: mounted and subprocess.run(["umount", t.path("mnt")]))
    listen = ["--listen", f"unix:{t.path('s9')}"]
    message = t.serve_fails(f"disk=file:{device}", *listen)
    contains(message, device, f"is mounted at {t.path('mnt')}", f"file:{device},in_use=allow")
    Path(t.path("ro.toml")).write_text(f'[export.disk]\nbacking = "{device}"\nread_only = true\n')
    contains(t.serve_fails("--config", t.path("ro.toml"), *listen), "is mounted at")
    # It may be measured, which only reads, and served if the operator insists.
    t.run(BINARY, "iostest", device, "-w", "drr", "--filesize", "1m", "--runtime", "0.1")
    t.server(f"disk=file:{device},in_use=allow").serves("disk")
    t.servers[-1].stop()
    t.run("umount", t.path("mnt"))
    mounted.clear()
    # Who holds it exclusively is not known by name.
    other = os.open(device, os.O_RDWR | os.O_EXCL)
    contains(t.serve_fails(f"disk=file:{device}", *listen), device, "held by another program")
    os.close(other)
    server = t.server(f"disk=file:{device}")
    server.serves("disk")
    with contextlib.suppress(OSError):
        os.open(device, os.O_RDWR | os.O_EXCL)
        raise AssertionError("another program got the device that is served")


@test(fairlift_only=True)
def the_next_server_waits_for_what_a_killed_one_had_in_flight(t):
    """The kernel lets a device go when the last request of a ring has ended, and that may be after its server."""
    if os.geteuid() != 0:
        t.skip("losetup needs root")
    slow, _ = fuse(t, "--filter=delay", "memory", "8M", "rdelay=2")
    device = t.run("losetup", "-f", "--show", slow, code=None).strip()
    if not device.startswith("/dev/"):
        t.skip(f"no loop device to be had: {device}")
    t.defer(subprocess.run, ["losetup", "-d", device])
    server = t.server(f"disk=file:{device}")
    with server.connect("disk") as client:
        client.submit(nbdclient.READ, 4 * MIB, 4096)
        until(lambda: in_flight(server) == 1, "it is in flight")
        server.kill()
    t.server(f"disk=file:{device}").serves("disk")


if __name__ == "__main__":
    main()
