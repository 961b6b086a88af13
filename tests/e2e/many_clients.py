"""Several clients at once."""

from harness import *
from nbdclient import FLUSH, FUA, READ, TRIM, WRITE, WRITE_ZEROES


def busy(server, export, start, length, rounds, key, depth=16):
    """A client that works on its own range with `depth` requests under way, and knows what it must read."""
    choose = random.Random(f"{SEED}/{key}")
    block = 4096
    model = bytearray(length)
    with server.connect(export) as client:
        client.write(start, bytes(length))
        busy_blocks, waiting = set(), {}
        for number in range(rounds):
            first = choose.randrange(length // block)
            count = min(choose.choice([1, 1, 1, 2, 8]), length // block - first)
            blocks = set(range(first, first + count))
            while len(waiting) >= depth or blocks & busy_blocks:
                take(client, waiting, busy_blocks)
            at, size = first * block, count * block
            command = choose.choice([READ] * 4 + [WRITE] * 4 + [WRITE_ZEROES, FLUSH])
            expected = None
            if command == READ:
                expected = bytes(model[at:at + size])
                cookie = client.submit(READ, start + at, size)
            elif command == WRITE:
                model[at:at + size] = data(size, key, number)
                cookie = client.submit(WRITE, start + at, size, bytes(model[at:at + size]), choose.choice([0, 0, 0, FUA]))
            elif command == WRITE_ZEROES:
                model[at:at + size] = bytes(size)
                cookie = client.submit(WRITE_ZEROES, start + at, size)
            else:
                blocks, cookie = set(), client.submit(FLUSH)
            busy_blocks |= blocks
            waiting[cookie] = (blocks, start + at, size, expected)
        while waiting:
            take(client, waiting, busy_blocks)
        equal(client.read(start, length) == bytes(model), True, f"what client {key} finds of its own at the end")
        client.disconnect()
    return bytes(model)


def take(client, waiting, busy_blocks):
    reply = client.reply()
    equal(reply.error, 0, "a reply's error")
    blocks, offset, size, expected = waiting.pop(reply.cookie)
    busy_blocks -= blocks
    if expected is not None:
        assert reply.data(offset, size) == expected, f"a read at {offset}+{size} brought something else"


def eight_at_once(t, backing, *arguments):
    server = t.server(f"disk={backing}", args=[] if STAND_IN else arguments)
    part, models = 2 * MIB, {}

    def client(number):
        models[number] = busy(server, "disk", number * part, part, 600, number)

    at_once(*(lambda n=n: client(n) for n in range(8)))
    with server.connect("disk") as last:
        for number, model in models.items():
            assert last.read(number * part, part) == model, f"what a later client finds in part {number}"
        last.disconnect()


@test
def eight_clients_on_a_ram_disk_each_find_their_own_part_as_they_left_it(t):
    eight_at_once(t, "mem:16M", "--scheduler", "none")


@test
def eight_clients_on_a_file_each_find_their_own_part_as_they_left_it(t):
    eight_at_once(t, f"file:{t.image('image', 16 * MIB)}", "--scheduler", "none")


@test
def eight_clients_under_mq_deadline_each_find_their_own_part_as_they_left_it(t):
    eight_at_once(t, f"file:{t.image('image', 16 * MIB)}", "--scheduler", "mq-deadline")


def shared(t, backing, depth):
    """A disk whose two workers share `depth` tags."""
    return t.server(config=f"""
[server]
workers = 2

[disk.one]
scheduler = "none"
depth = {depth}
shared_tags = true

[export.disk]
backing = "{backing}"
disk = "one"
""")


@test(fairlift_only=True)
def workers_that_share_two_tags_serve_eight_clients(t):
    server = shared(t, f"file:{t.image('image', 16 * MIB)}", 2)
    at_once(*(lambda n=n: busy(server, "disk", n * 2 * MIB, 2 * MIB, 200, n) for n in range(8)))


@test(fairlift_only=True)
def workers_that_share_a_tag_have_one_request_in_the_device_and_forget_nobody(t):
    server, held = shared(t, "null:1M,delay=10ms", 1), 0.010

    def client(_):
        with server.connect("disk") as own:
            cookies = {own.submit(READ, 4096 * n, 4096) for n in range(10)}
            while cookies:
                reply = own.reply()
                equal(reply.error, 0, "a reply's error")
                cookies.remove(reply.cookie)
            own.disconnect()

    began = time.monotonic()
    at_once(*(lambda n=n: client(n) for n in range(4)))
    # Neighbours of one client may have been merged: at least one request each is left, one after the other.
    assert time.monotonic() - began >= 4 * held, "requests of two workers were in the device at once"


@test
def clients_of_different_exports_never_see_each_others_bytes(t):
    names = ["a", "b", "c", "d"]
    server = t.server(*(f"{name}=mem:4M" for name in names[:2]),
                      *(f"{name}=file:{t.image(name, 4 * MIB)}" for name in names[2:]))

    def client(name):
        busy(server, name, 0, 4 * MIB, 500, name)

    at_once(*(lambda n=n: client(n) for n in names))


def many_write_the_same_sectors(t, server, reads_are_whole):
    sectors = 64

    def client(number):
        with server.connect("disk") as own:
            for turn in range(100):
                payload = b"".join(bytes([number, turn]) * 256 for _ in range(sectors))
                cookies = {own.submit(WRITE, 0, len(payload), payload), own.submit(READ, 0, sectors * 512)}
                for _ in range(2):
                    reply = own.reply()
                    equal(reply.error, 0, "a reply's error")
                    cookies.remove(reply.cookie)
                    if reply.pieces and reads_are_whole:
                        whole(reply.data(0, sectors * 512))
            own.disconnect()

    def whole(found):
        for sector in range(sectors):
            piece = found[sector * 512:][:512]
            assert piece == piece[:2] * 256, f"sector {sector} is torn: {piece[:8].hex()} … {piece[-8:].hex()}"

    at_once(*(lambda n=n: client(n + 1) for n in range(4)))
    with server.connect("disk") as last:
        whole(last.read(0, sectors * 512))


@test(fairlift_only=True)
def a_sector_of_ram_written_by_many_at_once_is_never_seen_torn(t):
    many_write_the_same_sectors(t, t.server("disk=mem:1M"), reads_are_whole=True)


@test
def a_sector_of_a_file_written_by_many_at_once_holds_in_the_end_what_one_of_them_wrote(t):
    # Linux does not promise that a buffered read sees a write of another at once or not at all.
    many_write_the_same_sectors(t, t.server(f"disk=file:{t.image('image', MIB)}"), reads_are_whole=False)


@test
def what_one_connection_wrote_and_flushed_another_reads_at_once(t):
    server = t.server(f"disk=file:{t.image('image', MIB)}")
    with server.connect("disk") as writer, server.connect("disk") as reader:
        for turn in range(200):
            piece = data(4096, turn)
            writer.write(8192, piece)
            assert reader.read(8192, 4096) == piece, f"turn {turn}: the other connection reads something else"


@test
def trims_of_one_client_leave_its_neighbours_alone(t):
    server = t.server("disk=mem:8M")
    keep = data(4 * MIB)
    with server.connect("disk") as neighbour:
        neighbour.write(0, keep[:2 * MIB])
        neighbour.write(4 * MIB, keep[2 * MIB:])

        def trimmer():
            with server.connect("disk") as client:
                for turn in range(300):
                    client.write(2 * MIB + (turn % 4) * 512 * KIB, data(64 * KIB, turn))
                    client.ask(TRIM, 2 * MIB, 2 * MIB)

        def looker():
            for _ in range(20):
                assert neighbour.read(0, 2 * MIB) == keep[:2 * MIB], "the part below has changed"
                assert neighbour.read(4 * MIB, 2 * MIB) == keep[2 * MIB:], "the part above has changed"

        at_once(trimmer, looker)


@test
def three_hundred_idle_connections_do_not_hinder_one_that_works(t):
    server = t.server("disk=mem:4M")
    idle = [server.connect("disk") for _ in range(300)]
    try:
        busy(server, "disk", 0, 4 * MIB, 300, "busy")
        for number in (0, 150, 299):
            equal(len(idle[number].read(0, 512)), 512, "bytes that an idle connection reads")
    finally:
        for client in idle:
            client.close()


if __name__ == "__main__":
    main()
