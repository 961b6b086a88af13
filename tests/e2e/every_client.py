"""Requests that are not whole blocks, images that are not whole sectors, requests for nothing, and holes: what clients that heed
no block size ask, through our own client and those of others."""

from harness import *
from nbdclient import *

ODD = MIB + 299


def scribble(client, bytes_, bounds, rng, count):
    """Random writes, zeroes and reads within the bounds, compared with a byte array that nobody else changes there."""
    low, high = bounds
    for _ in range(count):
        offset = rng.randrange(low, high)
        length = min(rng.choice([1, 7, 100, 513, 4096, 9000]), high - offset)
        what = rng.randrange(4)
        if what < 2:
            piece = rng.randbytes(length)
            client.write(offset, piece, FUA if rng.randrange(10) == 0 else 0)
            bytes_[offset:offset + length] = piece
        elif what == 2:
            client.zero(offset, length)
            bytes_[offset:offset + length] = bytes(length)
        else:
            assert client.read(offset, length) == bytes_[offset:offset + length], f"{length} bytes at {offset} are others'"


@test
def four_clients_that_share_blocks_lose_nothing_of_each_other(t):
    """Each client has every fourth piece of 100 bytes: all blocks are shared by all four."""
    for backing in "mem:64k", f"file:{t.image('image', 64 * KIB)}":
        server = t.server(f"disk={backing}")
        wanted, size, piece = bytearray(64 * KIB), 64 * KIB, 100

        def one(number):
            rng = random.Random(f"{SEED}/{number}")
            with server.connect("disk", structured=number % 2 == 0) as client:
                for _ in range(300):
                    offset = (rng.randrange(size // piece // 4 - 1) * 4 + number) * piece
                    scribble(client, wanted, (offset, offset + piece), rng, 1)

        at_once(*(lambda number=number: one(number) for number in range(4)))
        with server.connect("disk") as client:
            assert client.read(0, size) == wanted, f"{backing}: a byte is not what was written there"


@test
def a_byte_array_and_an_export_are_the_same_whatever_is_asked(t):
    for backing in "mem:1m", f"file:{t.image('image', MIB)}", f"file:{t.image('cached', MIB)},direct=off":
        server = t.server(f"disk={backing}")
        wanted = bytearray(MIB)
        with server.connect("disk") as client:
            scribble(client, wanted, (0, MIB), t.random, 300)
            client.trim(1000, 3)  # no whole block: nothing happens
            assert client.read(0, MIB) == wanted, "a byte is not what was written there"
            kept = t.random.randbytes(8192)
            client.write(0, kept)
            client.trim(100, 5000)
            left = client.read(0, 8192)
            assert left[:100] == kept[:100] and left[5100:] == kept[5100:], "a discard took bytes along that are not its own"
            client.zero(1, MIB - 2)
            wanted[0] = kept[0]
            wanted[1:MIB - 1] = bytes(MIB - 2)
            assert client.read(0, MIB) == wanted, "zeroes over nearly all of it"


@test(fairlift_only=True)
def an_image_that_ends_within_a_sector_is_served_to_its_last_byte_and_keeps_its_length(t):
    content = data(ODD)
    for name in "image", "other":
        image = t.image(name, ODD, (0, content))
        server = t.server(f"disk=file:{image}{',direct=off' if name == 'other' else ''}")
        with server.connect("disk") as client:
            equal((client.size, client.block_sizes and client.block_sizes[0]), (ODD, client.block_sizes and 1), "size, block")
            equal(client.read(ODD - 400, 400), content[-400:], "the last bytes")
            for offset, length in (ODD, 1), (ODD - 1, 2), (ODD - 299, 512):
                with refused(ENOSPC):
                    client.write(offset, bytes(length))
                with refused(EINVAL):
                    client.read(offset, length)
            wanted = bytearray(content)
            scribble(client, wanted, (ODD - 2000, ODD), t.random, 100)
            client.zero(ODD - 50, 50)
            wanted[-50:] = bytes(50)
            client.flush()
        equal(os.path.getsize(image), ODD, "the length of the file")
        assert Path(image).read_bytes() == wanted, "the file is not what was written"
        t.run("nbdcopy", server.uri("disk"), t.path(f"copy-{name}"))
        equal(sha256(t.path(f"copy-{name}")), sha256(image), "a copy of it")
        t.run("nbdcopy", t.image(f"new-{name}", ODD, (0, data(ODD, 2))), server.uri("disk"))
        equal(sha256(image), sha256(t.path(f"new-{name}")), "what was copied over it")


@test(fairlift_only=True)
def zeroes_read_as_a_hole_and_cost_nothing_on_the_wire(t):
    server = t.server(f"disk=file:{t.image('image', 4 * MIB, (MIB, data(MIB)))}")
    for extended in False, True:
        with server.connect("disk", extended=extended) as client:
            equal(client.ask(READ, 2 * MIB, 2 * MIB).chunks, [OFFSET_HOLE], "the chunks of a hole")
            equal(client.read(2 * MIB, 2 * MIB), bytes(2 * MIB), "the hole")
            equal(client.ask(READ, MIB - 512, 1024).chunks, [OFFSET_DATA], "the chunks of both")
            equal(client.ask(READ, 100, 7, flags=DF).chunks, [OFFSET_HOLE], "a few zeroes in one piece")
    with server.connect("disk", structured=False) as client:
        equal(client.read(2 * MIB, MIB), bytes(MIB), "a hole for a client that knows none")


@test(fairlift_only=True)
def requests_for_nothing_do_nothing(t):
    server = t.server("disk=mem:1m")
    for options in {}, {"structured": False}, {"extended": True}:
        with server.connect("disk", **options) as client:
            for command in READ, WRITE, TRIM, WRITE_ZEROES, CACHE:
                for offset in 0, 100, MIB:
                    reply = client.ask(command, offset, 0)
                    equal(b"".join(piece for _, piece in reply.pieces), b"", f"what command {command} brings")
            with refused(EINVAL, ENOSPC):
                client.ask(WRITE, MIB + 1, 0)
            equal(client.read(0, 512), bytes(512), "a read after that")
    with server.connect("disk") as client, refused(EINVAL):
        client.status(0, 0)


@test(fairlift_only=True)
def requests_of_64_mib_are_served_where_the_config_allows_them(t):
    server = t.server(config="[server]\nrequest_max = '64m'\n[export.disk]\nbacking = 'mem:80m'\n")
    with server.connect("disk") as client:
        piece = data(MIB) * 64
        client.write(100, piece)
        assert client.read(100, 64 * MIB) == piece, "64 MiB come back as something else"
        with refused(EINVAL, errno.EOVERFLOW):
            client.read(0, 64 * MIB + 1)


@test(fairlift_only=True)
def nbdsh_and_qemu_io_may_ask_for_any_bytes(t):
    image = t.image("image", ODD)
    server = t.server(f"disk=file:{image}")
    script = """
h.set_strict_mode(0)
h.connect_uri(uri)
h.pwrite(b"fairlift" * 100, 4999)
assert h.pread(800, 4999) == b"fairlift" * 100
h.zero(8, 5007)
h.pwrite(b"end", h.get_size() - 3)
assert h.pread(24, 4999) == b"fairlift" + bytes(8) + b"fairlift"
assert h.pread(0, 0) == b""
"""
    t.run("/usr/bin/python3", "-m", "nbd", "-c", f"uri = {server.uri('disk')!r}", "-c", script)
    t.run("qemu-io", "-f", "raw", "-c", "read -P 102 4999 1", "-c", "write -P 7 100 1000", "-c", "read -P 7 100 1000",
          "-c", f"write -P 9 {ODD - 5} 2", "-c", f"read -P 9 {ODD - 5} 2", "-c", "write -z 300 700", "-c", "read -P 0 300 700",
          server.uri("disk"))
    content = Path(image).read_bytes()
    equal((len(content), content[-5:], content[99:102]), (ODD, b"\t\tend", b"\0\x07\x07"), "what the two wrote")


if __name__ == "__main__":
    main()
