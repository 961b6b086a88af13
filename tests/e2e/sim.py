"""Modelled disks as exports: their data, and what they say of themselves. How fast they are, benches measure."""

from harness import *

SIZE = 64 * MIB
FAST = "nvme-plp,size=64M"


def only(exports):
    equal(len(exports), 1, "the number of exports")
    return exports[0]


@test(fairlift_only=True)
def a_modelled_disk_gives_back_what_was_copied_in(t):
    block = data(8 * MIB, "original")
    original = t.image("original", SIZE, (0, block), (24 * MIB, block[::-1]), (SIZE - 4096, block[:4096]))
    server = t.server(f"disk=sim:{FAST}")
    t.run("nbdcopy", "--connections=4", original, server.uri("disk"), seconds=100)
    t.run("nbdcopy", "--connections=4", server.uri("disk"), t.path("copy"), seconds=100)
    equal(sha256(t.path("copy")), sha256(original), "the hash of the copy")


@test(fairlift_only=True)
def a_hard_disk_with_a_scheduler_gives_back_what_was_written_in_any_order(t):
    server = t.server("disk=sim:sata-7200,size=1G", args=["--scheduler", "mq-deadline", "--workers", "2"])
    pieces = [(n * 3 * MIB, data(64 * KIB, n)) for n in range(24)]
    t.random.shuffle(pieces)
    with server.connect("disk") as writer, server.connect("disk") as reader:
        for offset, piece in pieces:
            writer.write(offset, piece)
            equal(reader.read(offset, len(piece)), piece, f"what another client reads at {offset}")
        writer.flush()


@test(fairlift_only=True)
def two_clients_on_two_workers_share_one_modelled_disk(t):
    server = t.server(f"disk=sim:{FAST}", args=["--workers", "2"])
    clients = [server.connect("disk") for _ in range(2)]

    def work(number):
        for n in range(200):
            offset, piece = (2 * n + number) * 64 * KIB, data(64 * KIB, number, n)
            clients[number].write(offset, piece)
            equal(clients[number].read(offset, 64 * KIB), piece, f"what client {number} reads back")

    at_once(lambda: work(0), lambda: work(1))
    for n in range(400):
        equal(clients[0].read(n * 64 * KIB, 64 * KIB), data(64 * KIB, n % 2, n // 2), f"piece {n} in the end")


@test(fairlift_only=True)
def exports_of_one_model_on_one_disk_are_parts_of_it_and_others_are_not(t):
    server = t.server(config=f'''
        [disk.one]
        [export.whole]
        backing = "sim:{FAST}"
        disk = "one"
        [export.half]
        backing = "sim:{FAST}"
        offset = "32M"
        disk = "one"
        [export.other]
        backing = "sim:{FAST}"
        ''')
    piece = data(64 * KIB)
    with server.connect("whole") as whole, server.connect("half") as half, server.connect("other") as other:
        half.write(MIB, piece)
        equal(whole.read(33 * MIB, 64 * KIB), piece, "what the whole holds where the half was written")
        equal(other.read(33 * MIB, 64 * KIB), bytes(64 * KIB), "what a disk of its own holds there")


@test(fairlift_only=True)
def an_export_says_of_itself_what_the_modelled_disk_would(t):
    server = t.server("hdd=sim:sata-7200,size=1G", "plp=sim:nvme-plp", "consumer=sim:nvme-consumer")
    found = {name: only(t.json("nbdinfo", "--json", server.uri(name))["exports"]) for name in ("hdd", "plp", "consumer")}
    keys = "can_flush", "can_fua", "is_rotational"
    equal({name: tuple(export[key] for key in keys) for name, export in found.items()},
          {"hdd": (True, True, True), "plp": (False, False, False), "consumer": (True, True, False)}, str(keys))
    equal(found["hdd"]["export-size"], GIB, "a size that was asked for")
    assert found["plp"]["export-size"] > 100 * GIB, "without one, the profile's size"
    equal(found["plp"]["can_trim"], True, "whether a solid-state disk takes trims")


@test(fairlift_only=True)
def a_disk_of_64_tebibytes_costs_what_is_written_to_it(t):
    server = t.server("disk=sim:nvme-plp,size=64T")
    with server.connect("disk") as client:
        piece = data(MIB)
        for offset in 0, 40 << 40, (64 << 40) - MIB:
            client.write(offset, piece)
            equal(client.read(offset, MIB), piece, f"what was written at {offset}")
    memory = int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{server.pid}/status").read_text())[1])
    assert memory < 512 * 1024, f"the server holds {memory >> 10} MiB"


@test(fairlift_only=True)
def a_request_that_takes_longer_than_io_timeout_fails_and_the_server_goes_on(t):
    server = t.server(config="""
        [disk.slow]
        io_timeout = "1ms"
        depth = 1
        [export.disk]
        backing = "sim:sata-7200,size=1G"
        disk = "slow"
        """)
    with server.connect("disk") as client:
        for offset in range(0, GIB, GIB // 8):
            with contextlib.suppress(nbdclient.NbdError):
                client.read(offset, 4096)
                continue
            break
        else:
            raise AssertionError("eight reads all over a hard disk took less than a millisecond each")
    equal(server.process.poll(), None, "whether the server has ended")


@test(fairlift_only=True)
def an_unknown_model_or_parameter_is_answered_with_the_nearest(t):
    contains(t.serve_fails("d=sim:sata-7201"), "sim:sata-7201", 'did you mean "sata-7200"?')
    contains(t.serve_fails("d=sim:sata-7200,sise=1G"), 'unknown parameter "sise"', 'did you mean "size"?')
    contains(t.serve_fails("d=sim:"), "sata-7200", "nvme-plp")


if __name__ == "__main__":
    main()
