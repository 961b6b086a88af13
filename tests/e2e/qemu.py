"""QEMU's own tools as clients."""

from harness import *

SIZE = 32 * MIB


def make_image(t, name="original"):
    return t.image(name, SIZE, (0, data(MIB, 1)), (5 * MIB + 512, data(2 * MIB, 2)), (SIZE - 512, data(512, 3)))


def qemu_io(t, uri, *commands, code=0):
    words = [word for command in commands for word in ("-c", command)]
    return t.run("qemu-io", "-f", "raw", *words, uri, code=code)


@test
def qemu_img_compare_finds_no_difference_and_then_the_one_byte(t):
    original = make_image(t)
    server = t.server(f"disk=file:{make_image(t, 'image')}")
    contains(t.run("qemu-img", "compare", "-f", "raw", "-F", "raw", original, server.uri("disk")), "identical")
    with server.connect("disk") as client:
        sector = bytearray(client.read(7 * MIB, 512))
        sector[100] ^= 1
        client.write(7 * MIB, bytes(sector))
        client.disconnect()
    contains(t.run("qemu-img", "compare", "-f", "raw", "-F", "raw", original, server.uri("disk"), code=1), "mismatch")


@test
def qemu_img_convert_brings_an_image_in_and_out(t):
    original = make_image(t)
    server = t.server(f"disk=mem:{SIZE}")
    t.run("qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", original, server.uri("disk"))
    t.run("qemu-img", "convert", "-f", "raw", "-O", "raw", "-m", "16", "-W", server.uri("disk"), t.path("copy"))
    equal(sha256(t.path("copy")), sha256(original), "the hash of the copy")


@test
def a_qcow2_image_lives_on_an_export(t):
    original = make_image(t)
    server = t.server("disk=mem:64M")
    t.run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", original, t.path("image.qcow2"))
    t.run("qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", t.path("image.qcow2"), server.uri("disk"))
    contains(t.run("qemu-img", "check", "-f", "qcow2", server_qcow2(t, server)), "no errors")
    t.run("qemu-img", "convert", "-f", "qcow2", "-O", "raw", server.uri("disk"), t.path("copy"))
    equal(sha256(t.path("copy")), sha256(original), "the hash of the copy")


def server_qcow2(t, server):
    """Puts the qcow2 file's bytes on the export, as they are."""
    t.run("nbdcopy", t.path("image.qcow2"), server.uri("disk"))
    return server.uri("disk")


@test
def qemu_img_map_shows_data_and_holes(t):
    server = t.server(f"disk=file:{t.image('image', SIZE, (8 * MIB, data(MIB)))}")
    found = [(e["start"], e["length"], e["data"], e["zero"])
             for e in t.json("qemu-img", "map", "--output=json", "-f", "raw", server.uri("disk"))]
    equal(found, [(0, 8 * MIB, False, True), (8 * MIB, MIB, True, False), (9 * MIB, 23 * MIB, False, True)], "the map")


@test
def patterns_written_by_qemu_io_are_read_back(t):
    for backing in "mem:32M", f"file:{t.image('image', SIZE)}":
        server = t.server(f"disk={backing}")
        out = qemu_io(
            t, server.uri("disk"),
            "write -P 0xa5 0 1M", "read -P 0xa5 0 1M",
            "write -P 0x11 512k 64k", "read -P 0xa5 0 512k", "read -P 0x11 512k 64k", "read -P 0xa5 576k 448k",
            "write -f -P 0x22 2M 8k", "read -P 0x22 2M 8k",                       # FUA
            "write -P 0x33 100 100", "read -P 0x33 100 100", "read -P 0xa5 200 312", "read -P 0xa5 0 100",
            "writev -P 0x44 4M 4k 512 8k", "read -P 0x44 4M 12800",
            "aio_write -P 0x55 6M 1M", "aio_write -P 0x66 7M 1M", "aio_flush", "read -P 0x55 6M 1M", "read -P 0x66 7M 1M",
            "flush")
        assert "failed" not in out, out


@test
def zeroes_written_with_and_without_unmap_read_as_zeroes(t):
    for backing in "mem:32M", f"file:{t.image('image', SIZE)}":
        server = t.server(f"disk={backing}")
        out = qemu_io(
            t, server.uri("disk"),
            "write -P 0xff 0 8M",
            "write -z 1M 1M", "read -P 0 1M 1M",                # zeroes that stay allocated
            "write -z -u 3M 1M", "read -P 0 3M 1M",             # zeroes that may be holes
            "write -z -u 5M 512", "read -P 0 5M 512",
            "write -z -f 6M 64k", "read -P 0 6M 64k",
            "read -P 0xff 0 1M", "read -P 0xff 2M 1M", "read -P 0xff 4M 1M", f"read -P 0xff {5 * MIB + 512} 512",
            "discard 7M 1M", "read -P 0xff 6500k 512",
            "write -P 0x77 7M 64k", "read -P 0x77 7M 64k",
            "flush")
        assert "failed" not in out, out


@test
def a_wrong_pattern_is_noticed(t):
    server = t.server("disk=mem:32M")
    contains(qemu_io(t, server.uri("disk"), "write -P 1 0 64k", "write -P 2 32k 512", "read -P 1 0 64k", code=1),
             "verification failed")


@test
def a_block_device_in_an_emulated_machine_would_see_the_limits(t):
    server = t.server("disk=mem:32M")
    contains(t.run("qemu-img", "info", server.uri("disk")), "virtual size: 32 MiB")
    contains(qemu_io(t, server.uri("disk"), "read -P 0 31M 2M", code=1), "input/output error")


if __name__ == "__main__":
    main()
