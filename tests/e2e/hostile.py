"""Clients that break every rule. After each the server still serves a good client, and holds nothing of the bad one."""

import struct

from harness import *
from nbdclient import *


@contextlib.contextmanager
def attack(t, *exports, **options):
    """A server to be attacked within the block; afterwards it must serve well and have no more open files than before."""
    server = t.server(*(exports or ["disk=mem:64M"]), **options)
    name = (exports or ["disk"])[0].split("=")[0]
    server.serves(name)
    base = server.fds_at_rest()
    yield server
    server.serves(name)
    server.fds_settle(base)


def closed_soon(wire, seconds=10):
    """The server closes the connection, whatever it still says before."""
    try:
        wire.wait_for_close(seconds)
    except TimeoutError:
        raise AssertionError(f"the server keeps the connection for {seconds} s") from None


def option_refused(session, option, payload, *codes):
    try:
        session.option(option, payload)
    except Refused as refusal:
        if refusal.code not in codes:
            raise AssertionError(f"wanted {[c & ~ERR for c in codes]}, got {refusal}") from refusal
        return refusal.message
    raise AssertionError(f"option {option} with {payload[:40]!r} was accepted")


def asked(name, *wanted, length=None, count=None):
    """The data of INFO and GO, true or false."""
    name = name if isinstance(name, bytes) else name.encode()
    return (struct.pack(">I", len(name) if length is None else length) + name
            + struct.pack(f">H{len(wanted)}H", len(wanted) if count is None else count, *wanted))


# ---- negotiation


@test
def an_unknown_export_is_refused_with_its_name_and_the_client_may_try_another(t):
    with attack(t, "disk=mem:64M", "other=mem:1M") as server, Session(server.address).greet() as session:
        message = option_refused(session, GO, asked("nothing"), ERR_UNKNOWN)
        contains(message, "nothing")
        option_refused(session, INFO, asked("diskette"), ERR_UNKNOWN)
        option_refused(session, GO, asked("Disk"), ERR_UNKNOWN)
        session.go("disk")
        equal(len(session.read(0, 512)), 512, "bytes read")


@test
def an_unknown_export_by_the_old_way_in_ends_the_connection(t):
    with attack(t) as server, Session(server.address).greet() as session:
        with hung_up():
            session.export_name("nothing")


@test
def names_that_are_no_names_are_refused(t):
    with attack(t) as server, Session(server.address).greet() as session:
        for name in b"\xff\xfe\xfd", b"disk\0", b"\0", b"disk ", b"x" * 4096, "\u202edisk".encode(), b"../disk", b"%n%s%x":
            option_refused(session, GO, asked(name), ERR_UNKNOWN, ERR_INVALID, ERR_TOO_BIG)
        option_refused(session, GO, asked(b"x" * 4097), ERR_TOO_BIG, ERR_INVALID, ERR_UNKNOWN)
        session.go("disk")


@test
def malformed_options_are_answered_and_the_client_may_go_on(t):
    with attack(t) as server, Session(server.address).greet() as session:
        session.option(STRUCTURED_REPLY)
        session.structured = True
        invalid = (ERR_INVALID, ERR_TOO_BIG, ERR_UNKNOWN)
        for option in INFO, GO:
            for payload in (b"", b"\0", b"\0\0\0\4disk", asked("disk", length=5), asked("disk", length=0xFFFFFFFF),
                            asked("disk", count=1), asked("disk", count=0xFFFF), asked("disk", 1, 2, count=1),
                            asked("disk") + b"more"):
                option_refused(session, option, payload, *invalid)
        for option in LIST_META, SET_META:
            for payload in (b"", b"\0\0\0\4disk", b"\0\0\0\4disk\0\0\0\1", b"\0\0\0\4disk\xff\xff\xff\xff",
                            b"\0\0\0\4disk\0\0\0\1\xff\xff\xff\xffbase:", b"\xff\xff\xff\xffdisk\0\0\0\0",
                            *(() if STAND_IN else (b"\0\0\0\4disk\0\0\0\0more",))):
                option_refused(session, option, payload, *invalid)
        for option in LIST, STRUCTURED_REPLY, *(() if STAND_IN else (STARTTLS, EXTENDED_HEADERS)):
            option_refused(session, option, b"data", ERR_INVALID, ERR_POLICY)
        session.go("disk")
        equal(len(session.read(0, 512)), 512, "bytes read")


@test
def option_data_of_more_than_64_kib_is_passed_over_and_answered(t):
    with attack(t) as server:
        for option in GO, LIST, 999:
            with Session(server.address).greet() as session:
                session.send_option(option, bytes(64 * KIB + 1))
                try:
                    kind, _ = session.option_reply(option)
                except Closed:
                    continue  # a server may as well hang up
                assert kind in (ERR_TOO_BIG, ERR_UNSUP, ERR_INVALID), f"answered {kind & ~ERR}"
                session.go("disk")


@test
def option_data_announced_as_four_gibibytes_takes_no_memory(t):
    with attack(t) as server:
        before = resident(server)
        wires = []
        for _ in range(50):
            session = Session(server.address).greet()
            session.send_option(GO, bytes(32 * KIB), length=0xFFFFFFFF)
            wires.append(session)
        time.sleep(0.2)
        grown = resident(server) - before
        assert grown < 64 * MIB, f"the server grew by {grown >> 20} MiB"
        for wire in wires:
            wire.close()


@test
def an_export_name_announced_too_long_ends_the_connection(t):
    with attack(t) as server, Session(server.address).greet() as session:
        session.send_option(EXPORT_NAME, b"disk", length=0x7FFFFFFF)
        closed_soon(session)


@test
def a_wrong_magic_ends_the_connection_at_every_stage(t):
    with attack(t) as server:
        with Wire(server.address) as wire:              # instead of the client's flags
            wire.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3)
            closed_soon(wire)
        with Wire(server.address) as wire:
            wire.send(bytes.fromhex("16030100a5010000a10303") + bytes(154))  # TLS without STARTTLS
            closed_soon(wire)
        with Session(server.address) as session:        # flags that nobody has offered
            session.greet(0xFFFFFFFF)
            closed_soon(session)
        with Session(server.address).greet() as session:
            session.send_option(GO, asked("disk"), magic=OPTION_REPLY_MAGIC)
            closed_soon(session)
        with server.connect("disk") as client:
            client.send(client.request(READ, 0, 512, magic=SIMPLE_MAGIC))
            closed_soon(client)
        with server.connect("disk") as client:          # options after the negotiation
            with contextlib.suppress(BrokenPipeError):
                client.send_option(LIST)
                client.send_option(LIST)                # now there is enough for a request
            closed_soon(client)
        with server.connect("disk") as client:          # long headers that were not agreed
            client.send(client.request(READ, 0, 512, magic=LONG_REQUEST_MAGIC))
            closed_soon(client)


@test(fairlift_only=True)
def a_flood_of_options_is_cut_off(t):
    with attack(t) as server:
        for option, payload in (999, b""), (LIST, b""), (INFO, asked("disk", 1, 2, 3)), (STRUCTURED_REPLY, b""), (GO, asked("no")):
            with Session(server.address, 10).greet() as session:
                with contextlib.suppress(ConnectionError, BrokenPipeError):
                    for _ in range(100):
                        session.send(struct.pack(">QII", OPTION_MAGIC, option, len(payload)) + payload, *[
                            struct.pack(">QII", OPTION_MAGIC, option, len(payload)) + payload] * 99)
                closed_soon(session)


@test(fairlift_only=True)
def a_flood_of_options_by_a_client_that_reads_nothing_takes_little_memory(t):
    exports = [f"disk{n}=mem:1M" for n in range(500)]
    with attack(t, *exports) as server:
        before = resident(server)
        wires = [Session(server.address, 5).greet() for _ in range(20)]
        for wire in wires:
            with contextlib.suppress(ConnectionError, BrokenPipeError, TimeoutError):
                wire.send(struct.pack(">QII", OPTION_MAGIC, LIST, 0) * 5000)
        time.sleep(0.5)
        grown = resident(server) - before
        assert grown < 256 * MIB, f"the server grew by {grown >> 20} MiB"
        for wire in wires:
            wire.close()


@test(fairlift_only=True)
def a_flood_of_requests_by_a_client_that_reads_nothing_takes_little_memory(t):
    """Answers that carry no payload need memory too: refusals, and maps of a disk with many holes."""
    with attack(t) as server:
        with server.connect("disk") as client:
            for at in range(0, 64 * MIB, 128 * KIB):
                client.write(at, data(512))
        before = resident(server)
        for command in (99, nbdclient.BLOCK_STATUS):
            client = server.connect("disk")
            flood = struct.pack(">IHHQQI", nbdclient.REQUEST_MAGIC, 0, command, 1, 0, 64 * MIB) * 1000
            client.sock.settimeout(0.5)
            sent = 0
            with contextlib.suppress(ConnectionError, BrokenPipeError, TimeoutError, OSError):
                while sent < 64 * MIB:
                    sent += client.sock.send(flood)
            assert sent < 16 * MIB, "a client that takes no answers was read on and on"
            server.serves("disk")
            client.close()
        grown = resident(server) - before
        assert grown < 32 * MIB, f"the server grew by {grown >> 20} MiB"


@test(fairlift_only=True)
def a_handshake_that_takes_too_long_is_dropped(t):
    with attack(t, args=["--handshake-timeout", "1s"]) as server:
        with server.connect("disk") as idle:
            mute = Wire(server.address)
            greeted = Session(server.address).greet()
            midway = Session(server.address).greet()
            midway.send_option(GO, b"\0\0", length=1000)
            # One that keeps sending, and so is never idle: a byte of an option's data now and then.
            slow = Session(server.address).greet()
            slow.send_option(GO, b"", length=1000)

            def drip():
                with contextlib.suppress(OSError):
                    for _ in range(60):
                        slow.send(b"\0")
                        time.sleep(0.1)
                    raise AssertionError("the slow client was allowed to drip for 6 s")

            # One that asks for option after option, and never for an export.
            asking = Session(server.address).greet()

            def ask():
                with contextlib.suppress(Closed, OSError):
                    for _ in range(60):
                        asking.option(STRUCTURED_REPLY)
                        time.sleep(0.2)
                    raise AssertionError("the client that asks was allowed to for 12 s")

            # And one for which each option takes a while.
            def hesitate():
                with Session(server.address).greet() as session:
                    for _ in range(12):
                        time.sleep(0.2)
                        session.option(STRUCTURED_REPLY)

            at_once(drip, ask, hesitate, *(lambda w=w: closed_soon(w, 8) for w in (mute, greeted, midway)))
            for wire in mute, greeted, midway, slow, asking:
                wire.close()
            equal(len(idle.read(0, 512)), 512, "bytes that a client reads who was idle after its handshake")


@test(fairlift_only=True)  # QEMU 7.2 dies of it
def leaving_at_every_byte_of_a_session_harms_nobody(t):
    """Four ways in, left after each byte; by TCP with a reset, by a unix socket with a close."""
    port = free_port()
    with attack(t, listen=[f"unix:{t.path('s')}", f"tcp:127.0.0.1:{port}"]) as server:
        addresses = server.address, ("127.0.0.1", port)
        for stream in sessions():
            for length in range(len(stream) + 1):
                for address in addresses:
                    wire = Wire(address)
                    if length % 2:
                        wire.receive(18)  # some have heard the greeting when they leave
                    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                        wire.send(stream[:length])
                    wire.reset() if length % 3 else wire.close()


def sessions():
    """What clients say from the first byte to the last, without waiting for any answer."""
    maker = object.__new__(Session)
    maker.pending, maker._cookie, maker.extended = {}, 0, False
    option = lambda kind, payload=b"": struct.pack(">QII", OPTION_MAGIC, kind, len(payload)) + payload
    name = b"\0\0\0\4disk"
    meta = option(SET_META, name + b"\0\0\0\1\0\0\0\x0fbase:allocation")

    def requests():
        return b"".join([
            maker.request(WRITE, 8192, 512, bytes(512)), maker.request(READ, 0, 64 * KIB), maker.request(FLUSH),
            maker.request(BLOCK_STATUS, 0, MIB), maker.request(WRITE_ZEROES, 16384, 4096, flags=FUA),
            maker.request(TRIM, 32768, 4096), maker.request(DISC)])

    plain = struct.pack(">I", 3)
    yield plain + option(LIST) + option(STRUCTURED_REPLY) + meta + option(GO, name + b"\0\1\0\3") + requests()
    yield struct.pack(">I", 1) + option(EXPORT_NAME, b"disk") + requests()
    yield plain + option(INFO, name + b"\0\0") + option(ABORT)
    maker.extended = True
    yield plain + option(EXTENDED_HEADERS) + meta + option(GO, name + b"\0\0") + requests()


@test
def closing_in_the_middle_of_export_name_harms_nobody(t):
    with attack(t) as server:
        for _ in range(300):
            session = Session(server.address).greet()
            session.send_option(EXPORT_NAME, b"di", length=4)
            session.close()


@test
def random_bytes_harm_nobody(t):
    with attack(t) as server:
        for turn in range(300):
            noise = t.random.randbytes(t.random.choice([1, 10, 100, 5000]))
            with Wire(server.address) as wire, contextlib.suppress(BrokenPipeError, ConnectionResetError):
                stage = turn % 3
                if stage:
                    wire.send(struct.pack(">I", 3))
                if stage == 2:
                    name = b"\0\0\0\4disk\0\0"
                    wire.send(struct.pack(">QII", OPTION_MAGIC, GO, len(name)) + name)
                wire.send(noise)


# ---- requests


def refusals(client, size):
    """(what, request, the errors it may be answered with, words of the message)"""
    end = size
    ask = client.request
    return [
        ("a read past the end", ask(READ, end, 512), {EINVAL}, str(size)),
        ("a read across the end", ask(READ, end - 512, 1024), {EINVAL}, str(size)),
        ("a read at the end of all numbers", ask(READ, 2 ** 64 - 512, 512), {EINVAL}, ""),
        ("a read around the end of all numbers", ask(READ, 2 ** 64 - 512, 4096), {EINVAL}, ""),
        ("a write past the end", ask(WRITE, end, 512, bytes(512)), {EINVAL, ENOSPC}, str(size)),
        ("a write around the end of all numbers", ask(WRITE, 2 ** 64 - 512, 1024, bytes(1024)), {EINVAL, ENOSPC}, ""),
        ("a trim past the end", ask(TRIM, end - 512, 1024), {EINVAL, ENOSPC}, str(size)),
        ("zeroes past the end", ask(WRITE_ZEROES, end - 512, 1024), {EINVAL, ENOSPC}, str(size)),
        ("a block status past the end", ask(BLOCK_STATUS, end, 512), {EINVAL}, str(size)),
        ("a read over the limit", ask(READ, 0, REQUEST_MAX + 512), {EINVAL, errno.EOVERFLOW}, "32"),
        ("a read of nearly 4 GiB", ask(READ, 0, 2 ** 32 - 512), {EINVAL, errno.EOVERFLOW}, ""),
        ("a write over the limit", ask(WRITE, 0, REQUEST_MAX + 512, bytes(REQUEST_MAX + 512)), {EINVAL}, "32"),
        ("command 8", ask(8, 0, 512), {EINVAL}, "8"),
        ("command 65535", ask(65535, 0, 512), {EINVAL}, "65535"),
        ("a read with a flag that nobody knows", ask(READ, 0, 512, flags=1 << 14), {EINVAL}, "flag"),
        ("a read with the flag of zeroes", ask(READ, 0, 512, flags=NO_HOLE), {EINVAL}, "flag"),
        ("a write with the flag of reads", ask(WRITE, 0, 512, bytes(512), flags=DF), {EINVAL}, "flag"),
        ("a flush with a flag", ask(FLUSH, flags=REQ_ONE), {EINVAL}, "flag"),
        ("a trim with a flag that nobody knows", ask(TRIM, 0, 512, flags=1 << 9), {EINVAL}, "flag"),
    ]


@test(fairlift_only=True)
def a_wrong_request_is_answered_with_its_reason_and_the_next_is_served(t):
    size = 256 * MIB
    with attack(t, f"disk=mem:{size}") as server, server.connect("disk") as client:
        client.write(0, data(4096))
        for what, request, errors, word in refusals(client, size):
            client.send(request)
            reply = client.reply()
            assert reply.error in errors, f"{what}: error {reply.error}, {reply.message!r}"
            assert reply.message and word in reply.message, f"{what}: the message is {reply.message!r}"
            equal(client.read(0, 4096), data(4096), f"a good read after {what}")


@test(fairlift_only=True)
def a_wrong_request_is_answered_in_simple_replies_too(t):
    size = 256 * MIB
    with attack(t, f"disk=mem:{size}") as server, server.connect("disk", structured=False) as client:
        for what, request, errors, _ in refusals(client, size):
            client.send(request)
            reply = client.reply()
            assert reply.error in errors, f"{what}: error {reply.error}"
            equal(len(client.read(0, 512)), 512, f"a good read after {what}")


@test(fairlift_only=True)
def wrong_requests_with_long_headers_are_answered_too(t):
    size = 256 * MIB
    with attack(t, f"disk=mem:{size}") as server, server.connect("disk", extended=True) as client:
        client.write(0, data(4096))
        more = [
            ("a read of 2^63 bytes", client.request(READ, 0, 1 << 63), {EINVAL, errno.EOVERFLOW}, ""),
            ("zeroes around the end of all numbers", client.request(WRITE_ZEROES, 512, 2 ** 64 - 512), {EINVAL, ENOSPC}, ""),
            ("a trim of nearly 2^64 bytes", client.request(TRIM, 0, 2 ** 64 - 512), {EINVAL, ENOSPC}, ""),
        ]
        for what, request, errors, word in refusals(client, size) + more:
            client.send(request)
            reply = client.reply()
            assert reply.error in errors, f"{what}: error {reply.error}, {reply.message!r}"
            assert reply.message and word in reply.message, f"{what}: the message is {reply.message!r}"
            equal(client.read(0, 4096), data(4096), f"a good read after {what}")


@test
def good_requests_around_a_bad_one_are_served(t):
    with attack(t) as server, server.connect("disk") as client:
        client.write(0, data(64 * KIB))
        good = [client.request(READ, n * 4096, 4096) for n in range(8)]
        client.send(*good[:4], client.request(99, 0, 0, cookie=1 << 40), *good[4:])
        errors = {}
        for _ in range(9):
            reply = client.reply()
            errors[reply.cookie] = reply.error
        equal(errors.pop(1 << 40), EINVAL, "the error of the bad request")
        equal(set(errors.values()), {0}, "the errors of the good ones")


@test(fairlift_only=True)  # QEMU 7.2 answers EINVAL to a trim
def writing_to_a_read_only_export_is_not_permitted(t):
    image = t.image("image", MIB, (0, data(MIB)))
    server = t.server(f"disk=file:{image}", read_only=["disk"])
    with server.connect("disk") as client:
        equal(client.read_only, True, "what the flags say")
        for command, payload in (WRITE, bytes(4096)), (TRIM, b""), (WRITE_ZEROES, b""):
            client.send(client.request(command, 0, 4096, payload))
            reply = client.reply()
            contains(reply.message, "read-only")
            equal(reply.error, EPERM, f"the answer to command {command}")
        client.flush()
        equal(client.read(0, 4096), data(MIB)[:4096], "what is still there")
    equal(Path(image).read_bytes() == data(MIB), True, "the file is untouched")


@test
def a_block_status_that_was_not_agreed_is_refused(t):
    with attack(t) as server, Session(server.address).greet() as session:
        session.option(STRUCTURED_REPLY)
        session.structured = True
        session.go("disk")
        with refused(EINVAL):
            session.ask(BLOCK_STATUS, 0, 4096)
        equal(len(session.read(0, 512)), 512, "bytes read")


# ---- clients that take, and do not give


@test
def closing_with_sixteen_replies_of_a_mebibyte_pending_harms_nobody(t):
    port = free_port()
    for listen in [f"unix:{t.path('s')}"], [f"tcp:127.0.0.1:{port}"]:
        with attack(t, listen=listen) as server:
            with server.connect("disk") as client:
                client.write(0, data(16 * MIB))
            for turn in range(30):
                client = server.connect("disk")
                client.send(b"".join(client.request(READ, n * MIB, MIB) for n in range(16)))
                if turn % 2:
                    client.receive(t.random.randrange(1, 3 * MIB))
                client.reset() if turn % 3 else client.close()


@test
def leaving_in_the_middle_of_a_write_harms_nobody(t):
    with attack(t) as server:
        for turn in range(60):
            client = server.connect("disk")
            whole = client.request(WRITE, MIB, MIB, data(MIB))
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                client.send(whole[:t.random.randrange(20, len(whole))])
            client.close()
        with server.connect("disk") as client:
            # All of a write is submitted or nothing: what never came whole was never written.
            equal(client.read(MIB, MIB) == bytes(MIB), True, "where nobody ever finished a write")


@test
def a_client_that_never_reads_its_replies_delays_nobody(t):
    with attack(t) as server:
        before = resident(server)
        greedy = server.connect("disk")
        greedy.sock.settimeout(1)
        asked = 0
        with contextlib.suppress(TimeoutError):
            for _ in range(40):  # 4000 replies of 1 MiB: the server must stop reading before it has them all in memory
                greedy.send(b"".join(greedy.request(READ, n % 64 * MIB, MIB) for n in range(100)))
                asked += 100
        with server.connect("disk") as good:
            for turn in range(200):
                piece = data(4096, turn)
                good.write(turn * 4096, piece)
                equal(good.read(turn * 4096, 4096), piece, "what another client reads meanwhile")
            grown = resident(server) - before
            if not STAND_IN:
                assert grown < 256 * MIB, f"the server grew by {grown >> 20} MiB"
        greedy.close()


@test(fairlift_only=True)
def twenty_clients_that_never_read_their_replies_delay_nobody(t):
    with attack(t) as server:
        greedy = [server.connect("disk") for _ in range(20)]
        for client in greedy:
            client.sock.settimeout(0.3)
            with contextlib.suppress(TimeoutError):
                client.send(b"".join(client.request(READ, 0, REQUEST_MAX) for n in range(10)))
        with server.connect("disk", timeout=30) as good:
            for turn in range(50):
                good.write(turn * 4096, data(4096, turn))
                equal(good.read(turn * 4096, 4096), data(4096, turn), "what another client reads meanwhile")
            equal(len(good.read(0, MIB)), MIB, "bytes of a large read meanwhile")
        assert resident(server) < 1100 * MIB, f"the server takes {resident(server) >> 20} MiB"
        for client in greedy:
            client.close()


@test(fairlift_only=True)
def forty_clients_that_announce_32_mib_and_send_nothing_delay_nobody(t):
    with attack(t) as server:
        liars = []
        for _ in range(40):
            client = server.connect("disk")
            client.send(client.request(WRITE, 0, REQUEST_MAX))
            liars.append(client)
        with server.connect("disk", timeout=30) as good:
            for turn in range(50):
                good.write(turn * 4096, data(4096, turn))
                equal(good.read(turn * 4096, 4096), data(4096, turn), "what another client reads meanwhile")
            equal(len(good.read(0, MIB)), MIB, "bytes of a large read meanwhile")
        for client in liars:
            client.close()


@test(fairlift_only=True)
def a_client_that_drips_what_it_announced_delays_others_for_seconds(t):
    server = t.server(config='[server]\nworkers = 1\nmemory = "32m"\nconnection_memory = "32m"\n[export.disk]\nbacking = "mem:64m"\n')
    stop = threading.Event()

    def drips():
        with server.connect("disk") as client, contextlib.suppress(ConnectionError):
            client.send(client.request(WRITE, 0, REQUEST_MAX))
            while not stop.wait(0.5):
                client.send(b"d")

    def others():
        try:
            time.sleep(1)
            with server.connect("disk", timeout=30) as client:
                client.write(MIB, b"o" * 4096)
                equal(client.read(MIB, 4096), b"o" * 4096)
        finally:
            stop.set()

    at_once(drips, others)
    server.says("too slowly, and others need the memory")


@test(fairlift_only=True)
def a_large_request_finds_memory_though_small_ones_of_others_never_end(t):
    """With as many workers as `memory` has room for, a request of `request_max` needs all of a worker's."""
    server = t.server(config='[server]\nworkers = 1\nmemory = "32m"\nconnection_memory = "32m"\n'
                             '[export.disk]\nbacking = "mem:64m"\n[export.slow]\nbacking = "sim:sata-7200,size=64m"\n')
    stop = threading.Event()

    def small(number):
        def go():
            with server.connect("slow") as client:
                for _ in range(16):
                    client.submit(READ, number * MIB, 4096)
                while not stop.is_set():
                    equal(client.reply().error, 0, "the error of a small read")
                    client.submit(READ, number * MIB, 4096)
        return go

    def large():
        try:
            time.sleep(0.2)
            with server.connect("disk", timeout=20) as client:
                for length in REQUEST_MAX, 30 * MIB, 24 * MIB:
                    client.write(0, b"l" * length)
                    equal(client.read(0, length), b"l" * length, "what was written")
        finally:
            stop.set()

    at_once(large, *map(small, range(4)))


@test(fairlift_only=True)
def connections_beyond_the_limit_are_turned_away_until_another_leaves(t):
    server = t.server("disk=mem:1M", max_connections=4)

    def turned_away():
        """Closed before any greeting, or left to wait without one."""
        with Wire(server.address, 2) as wire:
            try:
                wire.receive(18)
                return False
            except (Closed, TimeoutError, ConnectionError):
                return True

    clients = [until_connected(server) for _ in range(4)]
    equal(turned_away(), True, "a fifth client is turned away")
    for client in clients:
        equal(len(client.read(0, 512)), 512, "bytes read by one of the four")
    clients.pop().disconnect()
    clients.append(until_connected(server))
    equal(turned_away(), True, "a fifth client is turned away again")
    for client in clients:
        client.close()
    until_connected(server).disconnect()


def until_connected(server):
    """A client that tries until there is a place for it."""
    def attempt():
        try:
            return server.connect("disk", timeout=3)
        except (Closed, ConnectionError, TimeoutError):
            return None

    return until(attempt, "a place for a client", 10)


@test
def two_thousand_clients_that_come_and_go_leave_nothing(t):
    with attack(t) as server:
        before = resident(server)
        for turn in range(2000):
            if turn % 4:
                dial(server.address).close()
            else:
                with server.connect("disk") as client:
                    client.read(0, 512)
        grown = resident(server) - before
        assert grown < 32 * MIB, f"the server grew by {grown >> 10} KiB"


@test
def half_a_header_holds_up_only_its_own_client(t):
    with attack(t) as server:
        halves = []
        for length in range(1, 28):
            client = server.connect("disk")
            client.send(client.request(READ, 0, 512)[:length])
            halves.append((client, length))
        server.serves("disk")
        for client, length in halves:
            client.send(struct.pack(">IHHQQI", REQUEST_MAGIC, 0, READ, 1, 0, 512)[length:])
            equal(client.reply().error, 0, f"the answer to a header that came in two parts, {length} bytes first")
            client.close()


def resident(server):
    """Bytes of RAM that the server takes."""
    status = Path(f"/proc/{server.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) << 10


if __name__ == "__main__":
    main()
