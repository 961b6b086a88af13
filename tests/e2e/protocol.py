"""The corners of the NBD protocol that today's tools reach seldom, spoken by our own client."""

from harness import *
from nbdclient import *


@test
def info_tells_without_entering_and_go_enters(t):
    server = t.server("disk=mem:1M")
    with Session(server.address).greet() as session:
        session.info("disk")
        equal(session.size, MIB, "the size")
        session.size = None
        session.go("disk")
        equal(session.read(0, 512), bytes(512), "the first sector")
        session.disconnect()


@test
def the_old_way_in_by_export_name_works(t):
    server = t.server("disk=mem:1M")
    for flags in FIXED_NEWSTYLE, FIXED_NEWSTYLE | NO_ZEROES:
        with Session(server.address).greet(flags) as session:
            session.export_name("disk")
            equal(session.size, MIB, "the size")
            session.write(512, b"old!" * 128)
            equal(session.read(512, 512), b"old!" * 128, "what was written")
            session.disconnect()


@test
def an_abort_is_acknowledged(t):
    server = t.server("disk=mem:1M")
    with Session(server.address).greet() as session:
        equal(session.option(ABORT), [], "what comes with the answer")
        equal(session.wait_for_close(10), 0, "bytes after the answer")


@test
def an_unknown_option_is_answered_and_the_negotiation_goes_on(t):
    server = t.server("disk=mem:1M")
    with Session(server.address).greet() as session:
        for option, payload in (4, b""), (77, b""), (0xFFFFFFFF, b"something"), (0, bytes(1000)):
            try:
                session.option(option, payload)
                raise AssertionError(f"option {option} was accepted")
            except Refused as refusal:
                equal(refusal.code, ERR_UNSUP, f"the answer to option {option}")
        session.go("disk")
        equal(len(session.read(0, 512)), 512, "bytes read")


@test
def metadata_contexts_are_listed_and_chosen(t):
    server = t.server("disk=mem:1M")
    with Session(server.address).greet() as session:
        try:
            session.meta(SET_META, "disk", "base:allocation")
            raise AssertionError("a context was chosen without structured replies")
        except Refused:
            pass
        session.option(STRUCTURED_REPLY)
        session.structured = True
        equal(set(session.meta(LIST_META, "disk")), {"base:allocation"}, "all contexts")
        equal(set(session.meta(LIST_META, "disk", "base:")), {"base:allocation"}, "those of a namespace")
        equal(session.meta(LIST_META, "disk", "other:thing"), {}, "those that do not exist")
        session.contexts = session.meta(SET_META, "disk", "other:thing", "base:allocation", "base:unknown")
        equal(list(session.contexts), ["base:allocation"], "those chosen")
        session.go("disk")
        equal(sum(length for length, _ in session.status(0, MIB)), MIB, "the bytes that the status tells of")


@test(fairlift_only=True)
def a_context_chosen_for_one_export_does_not_count_for_another(t):
    server = t.server("one=mem:1M", "two=mem:1M")
    with Session(server.address).greet() as session:
        session.option(STRUCTURED_REPLY)
        session.structured = True
        session.contexts = session.meta(SET_META, "one", "base:allocation")
        session.go("two")
        with refused(EINVAL):
            session.status(0, MIB)


@test
def block_status_tells_data_holes_and_only_one_run_if_asked(t):
    server = t.server(f"disk=file:{t.image('image', 4 * MIB, (MIB, data(MIB)))}")
    with server.connect("disk") as client:
        equal(client.status(0, 4 * MIB), [(MIB, HOLE | ZERO), (MIB, 0), (2 * MIB, HOLE | ZERO)], "the status of all")
        equal(client.status(0, 4 * MIB, REQ_ONE), [(MIB, HOLE | ZERO)], "the first run")
        equal(client.status(MIB + 64 * KIB, 64 * KIB), [(64 * KIB, 0)], "the status of a piece of data")
        equal(client.status(4 * MIB - 512, 512), [(512, HOLE | ZERO)], "the status of the last sector")


@test
def a_read_that_must_not_be_fragmented_is_not(t):
    server = t.server(f"disk=file:{t.image('image', 4 * MIB, (MIB, data(MIB)))}")
    with server.connect("disk") as client:
        reply = client.ask(READ, MIB // 2, MIB, flags=DF)
        equal([kind for kind in reply.chunks if kind != NONE], [OFFSET_DATA], "the chunks")
        equal(reply.data(MIB // 2, MIB), bytes(MIB // 2) + data(MIB)[:MIB // 2], "the data")


@test
def the_largest_request_and_the_smallest_are_served(t):
    for backing in "mem:80M", f"file:{t.image('image', 80 * MIB)}":
        server = t.server(f"disk={backing}")
        piece = data(REQUEST_MAX)
        with server.connect("disk") as client:
            client.write(MIB, piece)
            assert client.read(MIB, REQUEST_MAX) == piece, "32 MiB come back as something else"
            client.write(80 * MIB - 512, piece[:512])
            equal(client.read(80 * MIB - 512, 512), piece[:512], "the last sector")
            client.ask(CACHE, 0, REQUEST_MAX)
            client.zero(MIB, REQUEST_MAX)
            equal(client.read(MIB, REQUEST_MAX) == bytes(REQUEST_MAX), True, "zeroes where zeroes were written")


@test
def fast_zero_either_works_or_says_that_it_would_be_slow(t):
    for backing in "mem:1M", f"file:{t.image('image', MIB)}":
        server = t.server(f"disk={backing}")
        with server.connect("disk") as client:
            piece = data(64 * KIB)
            client.write(0, piece)
            try:
                client.zero(0, 64 * KIB, FAST_ZERO)
                equal(client.read(0, 64 * KIB), bytes(64 * KIB), "after fast zeroes")
            except NbdError as error:
                equal(error.errno, errno.ENOTSUP, "the error of zeroes that are not fast")
                equal(client.read(0, 64 * KIB), piece, "after refused zeroes")


@test
def zeroes_stay_allocated_if_asked_and_give_their_space_back_if_not(t):
    image = t.image("image", 4 * MIB)
    server = t.server(f"disk=file:{image}")
    with server.connect("disk") as client:
        client.write(0, data(4 * MIB))
        client.flush()
        full = os.stat(image).st_blocks * 512
        assert full >= 4 * MIB, f"4 MiB written take {full} bytes"
        client.zero(0, MIB, NO_HOLE)
        client.flush()
        assert os.stat(image).st_blocks * 512 >= 4 * MIB, "zeroes that must stay allocated gave their space back"
        client.zero(MIB, MIB)
        client.trim(2 * MIB, MIB)
        client.flush()
        left = os.stat(image).st_blocks * 512
        if left == full:
            t.skip("the file system of $TMPDIR gives nothing back")
        assert left <= full - 2 * MIB + 64 * KIB, f"after zeroes and a trim of 2 MiB, {left} of {full} bytes are left"
        equal(client.read(0, 2 * MIB) == bytes(2 * MIB), True, "zeroes where zeroes were written")
        equal(client.read(3 * MIB, MIB) == data(4 * MIB)[3 * MIB:], True, "the last mebibyte is untouched")


@test(fairlift_only=True)
def zeroes_stay_allocated_on_the_ram_disk_if_asked(t):
    server = t.server("disk=mem:1M")
    with server.connect("disk") as client:
        client.zero(0, 128 * KIB, NO_HOLE)
        assert not client.status(0, 64 * KIB)[0][1] & HOLE, "zeroes that must stay allocated are a hole"
        equal(client.read(0, 128 * KIB), bytes(128 * KIB), "the zeroes")


@test
def every_cookie_comes_back_whatever_the_order(t):
    server = t.server("disk=mem:8M")
    with server.connect("disk") as client:
        cookies = [0, 1, 2 ** 64 - 1, 0x25609513, 2 ** 63, *(t.random.getrandbits(64) for _ in range(95))]
        client.send(b"".join(client.request(READ, n * 4096, 4096, cookie=c) for n, c in enumerate(cookies)))
        equal(sorted(client.reply().cookie for _ in cookies), sorted(cookies), "the cookies")


@test
def requests_in_one_packet_or_a_byte_at_a_time_are_the_same(t):
    server = t.server("disk=mem:1M", listen=[f"tcp:127.0.0.1:{free_port()}"])
    piece = data(1024)
    with server.connect("disk") as client:
        stream = client.request(WRITE, 0, 1024, piece) + client.request(FLUSH) + client.request(READ, 512, 512)
        for byte in stream:
            client.send(bytes([byte]))
        replies = [client.reply() for _ in range(3)]
        equal([reply.error for reply in replies], [0, 0, 0], "the errors")
        stream = b"".join(client.request(WRITE, n * 1024, 1024, piece) for n in range(50))
        client.send(stream)
        equal([client.reply().error for _ in range(50)], [0] * 50, "the errors")
        equal(client.read(0, 50 * 1024), piece * 50, "what was written")


@test(fairlift_only=True)
def the_empty_name_answers_for_a_single_export_in_every_option(t):
    server = t.server("disk=mem:1M")
    with server.connect("") as client:
        equal(client.status(0, MIB), [(MIB, HOLE | ZERO)], "the status under the empty name")
    with Session(server.address).greet() as session:
        equal(session.export_name("").size, MIB, "the size by the old way in")


@test(fairlift_only=True)
def extended_headers_carry_lengths_of_more_than_four_gibibytes(t):
    server = t.server("disk=mem:1T", "small=mem:1M")
    with server.connect("disk", extended=True) as client:
        piece = data(4096)
        client.write(700 * GIB, piece)
        equal(client.read(700 * GIB, 4096), piece, "what was written at 700 GiB")
        runs = client.status(0, 1 << 40)
        equal(sum(length for length, _ in runs), 1 << 40, "the bytes that the status tells of")
        equal(runs[0], (700 * GIB, HOLE | ZERO), "the first run")
        client.zero(512 * GIB, 256 * GIB)
        equal(client.read(700 * GIB, 4096), bytes(4096), "after 256 GiB of zeroes")
        client.write(700 * GIB, piece)
        client.trim(0, 1 << 40)
        equal(client.status(0, 1 << 40), [(1 << 40, HOLE | ZERO)], "the status after a trim of all")
        client.flush()
        with refused(EINVAL):
            client.read(1 << 40, 512)
        equal(len(client.read(4096, 512)), 512, "bytes read after a refusal")
        client.disconnect()
    with Session(server.address).greet() as session:
        session.option(EXTENDED_HEADERS)
        try:
            session.option(STRUCTURED_REPLY)
        except Refused as refusal:
            equal(refusal.code, ERR_EXT_HEADER_REQD, "the answer to asking for less")


@test
def a_disk_of_many_tebibytes_is_served_from_end_to_end(t):
    size = 8 << 40
    server = t.server(f"disk=file:{t.image('image', size)}")
    with server.connect("disk") as client:
        equal(client.size, size, "the size")
        for offset in 0, (1 << 32) - 4096, 1 << 32, 1 << 42, size - 4096:
            client.write(offset, data(4096, offset))
        for offset in 0, (1 << 32) - 4096, 1 << 32, 1 << 42, size - 4096:
            equal(client.read(offset, 4096), data(4096, offset), f"what was written at {offset}")


@test
def a_null_disk_reads_as_zeroes_and_takes_everything(t):
    server = t.server("disk=null:1T")
    with server.connect("disk") as client:
        client.write(1 << 39, data(MIB))
        equal(client.read(0, MIB), bytes(MIB), "what a null disk holds")
        client.flush()


if __name__ == "__main__":
    main()
