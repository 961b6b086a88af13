"""Whole images through nbdcopy, into an export and out of it, compared by hash."""

from harness import *

SIZE = GIB if FULL else 256 * MIB


def make_image(t, name="original"):
    """Half data, half holes, with data at both ends."""
    step = SIZE // 16
    block = data(step, name)
    # Each piece differs from the others, or a block in the wrong place would go unseen.
    pieces = [(n * step, bytes([n]) + block[1:-8] + n.to_bytes(8, "big")) for n in range(0, 15, 2)]
    return t.image(name, SIZE, *pieces, (SIZE - 4096, data(4096, "end")))


def round_trip(t, server, *options, out_options=None):
    original = make_image(t)
    t.run("nbdcopy", *options, original, server.uri("disk"), seconds=170)
    t.run("nbdcopy", *(options if out_options is None else out_options), server.uri("disk"), t.path("copy"), seconds=170)
    equal(sha256(t.path("copy")), sha256(original), "the hash of the copy")


@test(seconds=180)
def a_ram_disk_gives_back_what_was_copied_in(t):
    round_trip(t, t.server(f"disk=mem:{SIZE}"))


@test(seconds=180)
def a_file_gives_back_what_was_copied_in_over_four_connections(t):
    image = t.image("image", SIZE)
    round_trip(t, t.server(f"disk=file:{image}"), "--connections=4", "--requests=64", "--threads=2")
    equal(sha256(image), sha256(t.path("original")), "the hash of the file behind the export")


@test(seconds=180)
def mq_deadline_gives_back_what_was_copied_in_over_four_connections(t):
    scheduler = [] if STAND_IN else ["--scheduler", "mq-deadline"]
    round_trip(t, t.server(f"disk=mem:{SIZE}", args=scheduler), "--connections=4", "--requests=64", "--threads=2")


@test(seconds=180)
def tcp_gives_back_what_was_copied_in_by_requests_of_the_largest_size(t):
    server = t.server(f"disk=mem:{SIZE}", listen=[f"tcp:127.0.0.1:{free_port()}"])
    round_trip(t, server, f"--request-size={REQUEST_MAX}", "--requests=4", "--connections=2")


@test(seconds=180)
def a_client_without_structured_replies_copies_the_same(t):
    server = t.server(f"disk=mem:{SIZE}")
    with server.connect("disk", structured=False) as client:
        piece = data(3 * MIB)
        client.write(5 * MIB, piece)
        equal(client.read(5 * MIB, 3 * MIB), piece, "what a simple reply brings")
        client.disconnect()
    # Reading in order over one synchronous connection takes other paths through the client.
    round_trip(t, server, "--synchronous")


@test(seconds=180)
def holes_stay_holes_on_the_way_in_and_out(t):
    original = make_image(t)
    image = t.image("image", SIZE)
    server = t.server(f"disk=file:{image}")
    t.run("nbdcopy", original, server.uri("disk"), seconds=100)
    t.run("nbdcopy", server.uri("disk"), t.path("copy"), seconds=100)
    equal(sha256(t.path("copy")), sha256(original), "the hash of the copy")
    for path in image, t.path("copy"):
        used, first = os.stat(path).st_blocks * 512, os.stat(original).st_blocks * 512
        assert used <= first + MIB, f"{path} takes {used >> 10} KiB on disk, the original {first >> 10} KiB"


@test(seconds=180)
def one_export_is_copied_to_another_of_the_same_server(t):
    original = make_image(t)
    # qemu gives the same file only one writer, so each side has its own.
    server = t.server(f"from=file:{original}", f"to=mem:{SIZE}")
    t.run("nbdcopy", "--connections=2", server.uri("from"), server.uri("to"), seconds=170)
    t.run("nbdcopy", server.uri("to"), t.path("copy"), seconds=170)
    equal(sha256(t.path("copy")), sha256(original), "the hash of the copy")


if __name__ == "__main__":
    main()
