"""Backings that are other NBD servers: what is behind them is passed on whole, and their troubles stay theirs."""

import socketserver
import struct

from harness import *
from nbdclient import *
from pki import certificates


def far(t, *exports, **options):
    """A server of ours that stands for another one."""
    return t.server(*(exports or ["far=mem:64M"]), **options)


def kit(t, *words, name="kit"):
    """nbdkit at a socket; what it is started with may be given again to start it anew."""
    path = t.path(name)
    Path(path).unlink(missing_ok=True)
    process = t.start("nbdkit", "-f", "-U", path, *words)
    until_listening(path, "nbdkit")
    return f"nbd+unix:///?socket={path}", process


def near(t, uri, *others, options="", **rest):
    """A server of what is at `uri`; it is ended before those that it needs."""
    server = t.server(f"near={uri}{options}", *others, **rest)
    t.servers.insert(0, t.servers.pop())
    return server


def remote(server, which=0):
    """What the server says of its connections."""
    return json.loads(server.control("get", "server", "--json"))["remotes"][which]


# ---- what goes through -------------------------------------------------------------------------------------------


@test(fairlift_only=True)
def reads_writes_zeroes_discards_and_what_is_allocated_go_through(t):
    image = t.image("image", 16 * MIB, (4 * MIB, data(MIB, "there")))
    there = far(t, f"far=file:{image}")
    here = near(t, there.uri("far"))
    with here.connect("near") as client:
        equal(client.size, 16 * MIB)
        equal(client.read(4 * MIB, MIB), data(MIB, "there"), "what was there")
        piece = data(300 * KIB, "piece")
        client.write(MIB, piece)
        equal(client.read(MIB, len(piece)), piece, "what was written")
        client.write(8 * MIB, piece[:4096], flags=1)  # FUA
        client.zero(MIB + 4096, 8192)
        client.trim(4 * MIB, MIB)
        client.flush()
        equal(client.read(MIB, 16384), piece[:4096] + bytes(8192) + piece[12288:16384], "zeroes in the middle")
        with there.connect("far") as straight:
            equal(client.status(0, 16 * MIB), straight.status(0, 16 * MIB), "what is allocated")
        equal(client.status(0, 16 * MIB)[0], (MIB, 3))
    state = remote(here)
    equal((state["state"], state["connections"], state["lost"]), ("connected", 4, 0))
    contains(here.control("get", "server"), "connected")


@test(fairlift_only=True)
def nbdcopy_brings_an_image_in_and_out_with_its_holes(t):
    size = GIB if FULL else 256 * MIB
    step = size // 16
    pieces = [(n * step, data(step, n)) for n in range(0, 15, 4)] + [(size - 4096, data(4096, "end"))]
    original = t.image("original", size, *pieces)
    uri, _ = kit(t, "memory", size)
    here = near(t, uri, "wide=" + uri.replace("///", "///x"))  # nbdkit's memory has one disk under every name
    t.run("nbdcopy", original, here.uri("near"), seconds=100)
    t.run("nbdcopy", "--connections=4", "--requests=64", here.uri("wide"), t.path("copy"), seconds=100)
    equal(sha256(t.path("copy")), sha256(original), "the hash of the copy")
    is_there = os.stat(t.path("copy")).st_blocks * 512
    if is_there > os.stat(original).st_blocks * 512 + MIB:
        raise AssertionError(f"the copy has {is_there} bytes: holes were filled")


@test(fairlift_only=True)
def what_the_other_server_cannot_do_is_not_offered(t):
    def offers(*words):
        uri, _ = kit(t, *words, name=f"kit{len(t.servers)}")
        with near(t, uri).connect("near") as client:
            return client.flags

    flush, fua, trim, zeroes, read_only = 1 << 2, 1 << 3, 1 << 5, 1 << 6, 1 << 1
    equal(offers("memory", "1M") & (flush | fua | trim | zeroes | read_only), flush | fua | trim | zeroes)
    equal(offers("-r", "memory", "1M") & (trim | zeroes | read_only), read_only)
    equal(offers("--filter=nozero", "memory", "1M") & (trim | zeroes), trim)
    script = 'case $1 in get_size) echo 1M;; pread) dd if=/dev/zero bs=$3 count=1;; can_write|pwrite) exit 0;; *) exit 2;; esac'
    Path(t.path("plain.sh")).write_text(f"#!/bin/sh\n{script}\n")
    os.chmod(t.path("plain.sh"), 0o755)
    equal(offers("sh", t.path("plain.sh")) & (flush | trim), 0)


@test(fairlift_only=True)
def the_blocks_of_the_other_server_are_kept_to(t):
    uri, _ = kit(t, "--filter=blocksize-policy", "memory", "1M", "blocksize-minimum=4096", "blocksize-maximum=65536",
                 "blocksize-error-policy=error")
    with near(t, uri).connect("near") as client:
        piece = data(200 * KIB)
        client.write(4096, piece)
        client.write(512, b"x" * 512)  # less than a block: it is read, changed and written
        equal(client.read(0, 8192), bytes(512) + b"x" * 512 + bytes(3072) + piece[:4096])
    here = t.server(config=f'[export.part]\nbacking = "{uri}"\nsize = "512k"\n')
    t.servers.insert(0, t.servers.pop())
    contains(here.control("set", "export", "part", f"size={512 * KIB + 512}", code=1), "must be a multiple of 4096, the block of its backing")
    contains(here.control("set", "export", "part", "size=516k"), "size 516 KiB")


@test(fairlift_only=True)
def a_server_without_structured_replies_or_shared_connections_serves_all_workers(t):
    uri, _ = kit(t, "--no-sr", "--filter=multi-conn", "memory", "16M", "multi-conn-mode=disable")
    here = near(t, uri, args=["--workers", "3"])
    clients = [here.connect("near") for _ in range(6)]

    def own(number):
        def go():
            for round in range(20):
                piece = data(8192, number, round)
                clients[number].write(number * MIB, piece)
                equal(clients[number].read(number * MIB, 8192), piece)
            clients[number].flush()
        return go

    at_once(*map(own, range(6)))
    equal(remote(here)["wanted"], 1)
    equal(clients[0].status(0, MIB), [(MIB, 0)], "without block status all is data")


@test(fairlift_only=True)
def it_can_be_encrypted(t):
    port = free_port()
    there = t.server("far=mem:16M", listen=[f"tcp:127.0.0.1:{port}"],
                     args=["--tls", "require", "--tls-certificates", certificates(t), "--tls-verify-peer"])
    uri = f"nbds://localhost:{port}/far,tls={certificates(t)}"
    here = near(t, uri)
    with here.connect("near") as client:
        piece = data(3 * MIB)
        client.write(MIB, piece)
        client.flush()
        equal(client.read(MIB, len(piece)), piece)
    contains(t.serve_fails(f"near=nbd://localhost:{port}/far"), "wants TLS")
    contains(t.serve_fails(f"near=nbds://localhost:{port}/far,tls={certificates(t)}/anonymous"), "certificate")
    contains(t.serve_fails(f"near=nbds://127.0.0.1:{port}/far,tls={t.path('')}"), "ca-cert.pem")
    contains(t.serve_fails(f"near={uri}", f"other={uri}/anonymous"), "certificate")
    there.stop()


@test(fairlift_only=True)
def an_encrypted_qcow2_behind_qemu_storage_daemon_is_served(t):
    image, sock = t.path("disk.qcow2"), t.path("qsd")
    secret = ["--object", "secret,id=key,data=hunter2"]
    create = ["qemu-img", "create", *secret, "-f", "qcow2", "-o", "encrypt.format=luks,encrypt.key-secret=key,encrypt.iter-time=10",
              image, "64M"]
    # It measures how quick the machine is, and gives up where others use the processors too: "Unable to get accurate CPU usage".
    until(lambda: "accurate CPU usage" not in t.run(*create, code=None), "qemu-img makes an encrypted image", seconds=60)
    t.start("qemu-storage-daemon", *secret, "--blockdev", f"file,node-name=file,filename={image}",
            "--blockdev", "qcow2,node-name=disk,file=file,encrypt.format=luks,encrypt.key-secret=key,discard=unmap",
            "--nbd-server", f"addr.type=unix,addr.path={sock}",
            "--export", "nbd,id=disk,node-name=disk,name=disk,writable=on")
    until_listening(sock, "qemu-storage-daemon")
    here = near(t, f"nbd+unix:///disk?socket={sock}")
    with here.connect("near") as client:
        piece = data(5 * MIB)
        client.write(MIB, piece)
        client.flush()
        equal(client.read(MIB, len(piece)), piece)
        equal(client.status(32 * MIB, 32 * MIB), [(32 * MIB, 3)], "what was never written is a hole")


@test(fairlift_only=True)
def an_export_grows_with_what_is_behind_it(t):
    image = t.image("image", 4 * MIB)
    there = far(t, f"far=file:{image}")
    here = near(t, there.uri("far"))
    os.truncate(image, 8 * MIB)
    there.control("set", "export", "far", "size=auto")
    here.control("set", "export", "near", "size=auto")
    with here.connect("near") as client:
        equal(client.size, 8 * MIB)
        client.write(7 * MIB, b"y" * 4096)
        equal(client.read(7 * MIB, 4096), b"y" * 4096)


# ---- when it is gone ---------------------------------------------------------------------------------------------


class Far:
    """A server of ours with a file, that can be killed and started again."""

    def __init__(self, t, size=16 * MIB):
        self.t, self.image, self.socket = t, t.image("far.img", size), t.path("far.sock")
        self.start()

    def start(self):
        self.server = self.t.server(f"far=file:{self.image}", listen=[f"unix:{self.socket}"])

    def kill(self):
        self.server.kill()

    @property
    def uri(self):
        return self.server.uri("far")


@test(fairlift_only=True)
def a_restart_under_load_fails_nothing_and_loses_nothing(t):
    there = Far(t)
    here = near(t, there.uri, "beside=mem:1M")
    stop, rounds = threading.Event(), [0] * 4

    def load(number):
        def go():
            with here.connect("near") as client:
                while not stop.is_set():
                    piece = data(16384, number, rounds[number])
                    client.write(number * MIB, piece, flags=1)  # FUA: what was answered is there
                    equal(client.read(number * MIB, 16384), piece)
                    rounds[number] += 1
        return go

    def trouble():
        for away in [0.3, 0.3, 5]:
            before = sum(rounds)
            until(lambda: sum(rounds) > before + 20, "the load goes on")
            there.kill()
            time.sleep(away)
            there.start()
        before = sum(rounds)
        until(lambda: sum(rounds) > before + 20, "the load goes on")
        stop.set()

    at_once(trouble, *map(load, range(4)))
    until(lambda: remote(here)["state"] == "connected", "all connections are there again")
    state = remote(here)
    if state["lost"] < 3:
        raise AssertionError(f"three restarts, and {state['lost']} connections were lost")
    with here.connect("near") as client:
        client.flush()
    here.serves("beside")


@test(fairlift_only=True)
def a_server_that_is_ended_and_started_again_fails_nothing_over_tls(t):
    """It says that it ends: then it does nothing more of what it has not answered, and that is asked again."""
    image, port = t.image("far.img", 16 * MIB), free_port()

    def start():
        return t.server(f"far=file:{image}", listen=[f"tcp:127.0.0.1:{port}"],
                        args=["--tls", "require", "--tls-certificates", certificates(t)])

    there = start()
    here = near(t, f"nbds://localhost:{port}/far,tls={certificates(t)}")
    stop, rounds = threading.Event(), [0] * 4

    def load(number):
        def go():
            with here.connect("near") as client:
                while not stop.is_set():
                    for at in range(16):
                        client.submit(WRITE, number * MIB + at * 4096, 4096, data(4096, number, rounds[number], at), flags=FUA)
                    for _ in range(16):
                        equal(client.reply().error, 0, "the error of a write")
                    equal(client.read(number * MIB + 60 * KIB, 4096), data(4096, number, rounds[number], 15))
                    rounds[number] += 1
        return go

    def trouble():
        nonlocal there
        try:
            for _ in range(5):
                before = sum(rounds)
                until(lambda: sum(rounds) > before + 20, "the load goes on")
                there.stop()
                there = start()
            before = sum(rounds)
            until(lambda: sum(rounds) > before + 20, "the load goes on")
        finally:
            stop.set()

    at_once(trouble, *map(load, range(4)))


@test(fairlift_only=True)
def a_flush_fails_after_a_restart_if_there_were_writes_that_were_not_flushed(t):
    there = Far(t)
    here = near(t, there.uri)
    with here.connect("near") as client:
        client.write(0, b"a" * 4096)
        client.flush()
        there.kill()
        until(lambda: remote(here)["state"] == "degraded", "the loss is seen")
        there.start()
        until(lambda: remote(here)["state"] == "connected", "it is found again")
        client.flush()  # nothing was owed
        client.write(4096, b"b" * 4096)
        there.kill()
        until(lambda: remote(here)["in_doubt"], "the loss is seen")
        there.start()
        equal(client.read(0, 4096), b"a" * 4096, "reads go on")
        with refused(EIO):
            client.flush()
        with refused(EIO):
            client.flush()  # until somebody has taken note
        contains(here.control("get", "server"), far_name := there.uri)
        contains(here.control("acknowledge"), "acknowledged: 1")
        client.write(4096, b"b" * 4096)
        client.flush()
        here.says("may be lost", far_name)


def forgetful(t):
    """How to start a disk that loses at its end what was not flushed, and its URI."""
    image, sock = t.image("volatile.img", MIB), t.path("volatile")

    def start():
        Path(sock).unlink(missing_ok=True)
        disk = t.start(sys.executable, ROOT / "tests/e2e/volatile_disk.py", sock, image, 7)
        until(lambda: os.path.exists(sock), "the disk listens")
        return disk

    return start, f"nbd+unix:///?socket={sock}"


@test(fairlift_only=True)
def a_disk_that_forgets_is_found_out(t):
    """The volatile disk loses what was not flushed when it ends: the next flush says so."""
    start, uri = forgetful(t)
    disk = start()
    here = near(t, uri)
    with here.connect("near") as client:
        client.write(0, b"a" * 65536)
        client.flush()
        client.write(0, b"b" * 65536)
        disk.terminate()  # the power cut
        disk.wait(60)
        start()
        there = client.read(0, 65536)
        if there == b"b" * 65536:
            raise AssertionError("the disk has lost nothing: this proves nothing")
        with refused(EIO):
            client.flush()
    equal(here.process.poll(), None)
    here.seen_to_end = True
    here.process.terminate()
    if here.process.wait(60) == 0:
        raise AssertionError("writes were lost, and it ends as if all were well")


@test(fairlift_only=True)
def a_server_that_stays_away_fails_its_own_export_within_the_bound(t):
    there = Far(t)
    here = near(t, there.uri, "beside=mem:1M", options=",reconnect=3s")
    with here.connect("near") as client:
        client.read(0, 4096)
        there.kill()
        with refused(EIO):
            client.read(0, 4096)  # waits three seconds

        def look():
            start = time.monotonic()
            with refused(EIO):
                client.read(0, 4096)  # and not again
            if time.monotonic() - start > 2.5:
                raise AssertionError("a request waits though nobody has come back in time")

        again(look)
        here.serves("beside")
        contains(here.control("status"), "degraded")
        there.start()
        until(lambda: remote(here)["state"] == "connected", "it is found again")
        equal(client.read(0, 4096), bytes(4096))
        here.says("degraded", "connected again")


@test(fairlift_only=True)
def a_server_that_hangs_fails_its_requests_in_time_and_no_others(t):
    there = Far(t)
    config = "[server]\n[disk.far]\nio_timeout = \"3s\"\n" \
             f"[export.near]\nbacking = \"nbd:{there.uri}\"\ndisk = \"far\"\n[export.beside]\nbacking = \"mem:1M\"\n"
    here = t.server(config=config)
    t.servers.reverse()
    with here.connect("near") as client:
        client.write(0, b"a" * 4096, flags=1)
        stand_still(t, there.server.process)
        with refused(EIO):
            client.read(0, 4096)
        here.serves("beside")
        there.server.process.send_signal(signal.SIGCONT)
        until(lambda: remote(here)["state"] == "connected", "it is found again")
        equal(client.read(0, 4096), b"a" * 4096)


# ---- bad input ---------------------------------------------------------------------------------------------------


@test(fairlift_only=True)
def a_server_that_is_not_there_or_no_nbd_server_is_named_at_start(t):
    for backing, says in [
        (f"nbd+unix:///?socket={t.path('nothing')}", ["nothing", "No such file"]),
        ("nbd://127.0.0.1:1/x", ["127.0.0.1:1", "refused"]),
        ("nbd://no.such.host.invalid/x", ["no.such.host.invalid"]),
        ("nbd:far", ["no URI of NBD", "nbd://HOST"]),
    ]:
        contains(t.serve_fails(f"near={backing}"), *says)
    there = far(t)
    contains(t.serve_fails(f"near={there.uri('fra')}"), 'no export "fra"')


class Liar:
    """An NBD server that negotiates as it should, and then answers as a test says: `answer(command, cookie, offset, length)`. It hangs
    up where there is `HANG_UP`, and reads the payload of a write where there is `PAYLOAD`, or else before it answers. It serves as
    many connections at once as `room` has places."""

    def __init__(self, t, answer, size=MIB, structured=True, tcp=False, flags=0, room=100):
        self.path, self.answer, self.size, self.structured = t.path(f"liar{len(os.listdir(t.dir))}"), answer, size, structured
        self.connections, self.payloads, self.reads_late, self.flags = 0, [], False, flags
        room = threading.Semaphore(room)
        liar = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self):
                if not room.acquire(blocking=False):
                    return
                liar.connections += 1
                with contextlib.suppress(OSError, EOFError):
                    liar.serve(self.request)
                room.release()

        class Threads(socketserver.ThreadingTCPServer if tcp else socketserver.ThreadingUnixStreamServer):
            daemon_threads = True

        server = Threads(("127.0.0.1", 0) if tcp else self.path, Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        t.defer(server.shutdown)
        self.uri = f"nbd://127.0.0.1:{server.server_address[1]}/" if tcp else f"nbd+unix:///?socket={self.path}"

    def serve(self, sock):
        def receive(length):
            got = b""
            while len(got) < length:
                piece = sock.recv(length - len(got))
                if not piece:
                    raise EOFError
                got += piece
            return got

        sock.sendall(struct.pack(">QQH", 0x4E42444D41474943, 0x49484156454F5054, 3))
        receive(4)
        while True:
            _, option, length = struct.unpack(">QII", receive(16))
            payload = receive(length)

            def reply(kind, data=b""):
                sock.sendall(struct.pack(">QIII", 0x3E889045565A9, option, kind, len(data)) + data)

            if option == 7:
                reply(3, struct.pack(">HQH", 0, self.size, 1 | 1 << 2 | 1 << 3 | self.flags))
                reply(1)
                break
            if option == 8 and self.structured:
                reply(1)
            elif option == 10 and self.structured:
                reply(4, struct.pack(">I", 5) + b"base:allocation")
                reply(1)
            else:
                reply(1 << 31 | 1)
        while True:
            _, _, command, cookie, offset, length = struct.unpack(">IHHQQI", receive(28))
            if command == 1 and not self.reads_late:
                self.payloads.append(receive(length))
            for piece in self.answer(command, cookie, offset, length):
                if piece is HANG_UP:
                    return
                if piece is PAYLOAD:
                    self.payloads.append(receive(length))
                else:
                    sock.sendall(piece)


HANG_UP, PAYLOAD = object(), object()


def chunk(cookie, kind, body, done=1):
    return struct.pack(">IHHQI", 0x668E33EF, done, kind, cookie, len(body)) + body


def part(cookie, offset, payload, done=1):
    return chunk(cookie, 1, struct.pack(">Q", offset) + payload, done)


@test(fairlift_only=True)
def a_hostile_server_harms_its_own_export_alone(t):
    def endless(cookie):
        while True:
            yield chunk(cookie, 1 << 15 | 1, struct.pack(">IH", 5, 0), done=0)

    lies = {
        "to nothing": lambda c, o, n: [part(c + 1, o, bytes(n))],
        "twice": lambda c, o, n: [part(c, o, b"x" * n), part(c, o, b"x" * n)],
        "before": lambda c, o, n: [part(c, o - 512, b"x" * n)],
        "behind": lambda c, o, n: [part(c, o + 512, b"x" * n)],
        "too long": lambda c, o, n: [part(c, o, b"x" * (n + 1))],
        "too short": lambda c, o, n: [part(c, o, b"x" * (n - 1))],
        "overlapping": lambda c, o, n: [part(c, o, b"x" * 1024, 0), part(c, o + 512, b"x" * (n - 512))],
        "a hole too long": lambda c, o, n: [chunk(c, 2, struct.pack(">QI", o, 1 << 31))],
        "huge": lambda c, o, n: [struct.pack(">IHHQI", 0x668E33EF, 1, 1, c, 0xFFFFFFFF) + struct.pack(">Q", o), bytes(1 << 20)],
        "nothing": lambda c, o, n: [chunk(c, 0, b"")],
        "status": lambda c, o, n: [chunk(c, 5, struct.pack(">III", 5, n, 0))],
        "simple": lambda c, o, n: [struct.pack(">IIQ", 0x67446698, 0, c) + bytes(n)],
        "garbage": lambda c, o, n: [b"HTTP/1.1 200 OK\r\n\r\n" * 100],
        "endless": lambda c, o, n: endless(c),
    }
    for name, lie in lies.items():
        def answer(command, cookie, offset, length, lie=lie):
            return lie(cookie, offset, length) if command == 0 else [struct.pack(">IIQ", 0x67446698, 0, cookie)]

        liar = Liar(t, answer)
        here = near(t, liar.uri, "beside=mem:1M", options=",reconnect=200ms")
        with here.connect("near") as client:
            client.write(0, b"w" * 4096, flags=1)
            print(f"-- {name}", flush=True)
            try:
                got = client.read(65536, 4096)
                if name != "twice" or got != b"x" * 4096:
                    raise AssertionError(f"a lie was believed: {name}")
            except NbdError as refusal:
                equal(refusal.errno, EIO)
            client.disconnect()
        here.serves("beside")
        here.seen_to_end = True
        here.process.terminate()
        here.process.wait(60)


def done(cookie):
    return struct.pack(">IIQ", 0x67446698, 0, cookie)


@test(fairlift_only=True)
def a_write_that_is_answered_before_it_was_sent_ends_when_it_was_and_nobody_elses_data_goes_with_it(t):
    size, is_answered, go_on = MIB, threading.Event(), threading.Event()

    def answer(command, cookie, offset, length):
        yield done(cookie)
        is_answered.set()
        go_on.wait(60)
        yield PAYLOAD

    liar = Liar(t, answer, size=16 * MIB)
    liar.reads_late = True
    here = near(t, liar.uri, "beside=mem:16M")

    def tenant():
        with here.connect("near") as client:
            client.write(0, b"a" * size)

    def others():
        is_answered.wait(60)
        try:
            for _ in range(3):
                with here.connect("beside") as client:
                    client.write(0, b"b" * size)
        finally:
            go_on.set()

    at_once(tenant, others)
    # The write ends when it was sent; the other server may read on.
    until(lambda: liar.payloads, "the other server has what it was sent")
    if set(b"".join(liar.payloads)) != set(b"a"):
        raise AssertionError("the other server was sent another tenant's data")


@test(fairlift_only=True)
def an_answer_to_what_was_not_asked_yet_breaks_the_connection(t):
    """The first write is not read, so that the second one waits; it is answered."""
    is_here, go_on, round = threading.Event(), threading.Event(), [0]

    def answer(command, cookie, offset, length):
        round[0] += 1
        if round[0] > 1:
            yield from [PAYLOAD, done(cookie)]
            return
        is_here.set()
        go_on.wait(60)
        yield done(2 << 16 | 1)  # the second request, in the second place
        yield PAYLOAD
        yield done(cookie)

    liar = Liar(t, answer, size=16 * MIB)
    liar.reads_late = True
    here = near(t, liar.uri, "beside=mem:1M")

    def first():
        with here.connect("near") as client:
            with contextlib.suppress(NbdError):
                client.write(0, b"a" * MIB)

    def second():
        is_here.wait(60)
        with here.connect("near") as client:
            client.submit(1, 8 * MIB, 4096, b"b" * 4096)
            before = remote(here)["lost"]
            until(lambda: in_flight(here) == 2, "both writes are at the other server's door")
            go_on.set()
            until(lambda: remote(here)["lost"] > before, "the connection is cut")

    at_once(first, second)
    here.says("answers what was not asked yet")
    here.serves("beside")


@test(fairlift_only=True)
def what_is_allocated_is_told_by_one_connection_alone(t):
    is_first = [True]

    def answer(command, cookie, offset, length):
        if command != 7:
            return [part(cookie, offset, bytes(length)) if command == 0 else done(cookie)]
        if is_first[0]:
            is_first[0] = False
            return [chunk(cookie, 5, struct.pack(">III", 5, 65536, 3), done=0), HANG_UP]
        return [chunk(cookie, 5, struct.pack(">IIIII", 5, 4096, 0, MIB - 4096, 3))]

    liar = Liar(t, answer)
    with near(t, liar.uri).connect("near") as client:
        equal(client.status(0, MIB), [(4096, 0), (MIB - 4096, 3)])
        equal(is_first, [False])


@test(fairlift_only=True)
def a_write_is_asked_again_only_where_the_server_itself_hung_up(t):
    """By a network the end of a connection may come from what is in between: the server may execute the write yet."""
    for tcp in [False, True]:
        is_first = [True]

        def answer(command, cookie, offset, length):
            if command == 1 and is_first[0]:
                is_first[0] = False
                return [HANG_UP]
            return [part(cookie, offset, bytes(length)) if command == 0 else done(cookie)]

        liar = Liar(t, answer, tcp=tcp)
        with near(t, liar.uri).connect("near") as client:
            with refused(EIO) if tcp else contextlib.nullcontext():
                client.write(0, b"w" * 4096)
            equal(len(liar.payloads), 1 if tcp else 2, "so often the write was sent")
            equal(client.read(0, 4096), bytes(4096), "reads go on")


@test(fairlift_only=True)
def a_server_that_goes_after_a_long_rest_is_waited_for_like_any_other(t):
    uri, first = kit(t, "memory", "8M")
    server = near(t, uri, options=",reconnect=4s")
    with server.connect("near", timeout=20) as client:
        client.read(0, 4096)
        time.sleep(4.5)  # nothing is asked for longer than `reconnect`
        first.kill()
        first.wait()
        until(lambda: remote(server)["state"] != "connected", "the server has seen it")
        client.submit(READ, 0, 4096)
        kit(t, "memory", "8M")
        equal(client.reply().error, 0, "the error of a read that was asked for while there was no server")


def near_two_connections(t):
    """Four workers before a server that takes two connections, as qemu-nbd -e 2; any of them may flush."""
    def answer(command, cookie, offset, length):
        return [part(cookie, offset, b"z" * length) if command == 0 else done(cookie)]

    liar = Liar(t, answer, flags=1 << 8, room=2)
    return liar, near(t, liar.uri, options=",reconnect=1s", args=["--workers", "4"])


@test(fairlift_only=True)
def a_server_that_takes_fewer_connections_than_there_are_workers_serves_all_clients(t):
    liar, here = near_two_connections(t)
    clients = [here.connect("near", timeout=30) for _ in range(8)]
    for _ in range(2):
        for client in clients:
            equal(client.read(4096, 4096), b"z" * 4096)
            client.write(0, b"w" * 4096)
            client.flush()
    # It is told of all that there are not, also of those that came to be wanted while others failed.
    until(lambda: remote(here)["connections"] == 2, "all that lack are known")
    equal((liar.connections, remote(here)["wanted"], remote(here)["state"]), (2, 4, "degraded"))


@test(fairlift_only=True)
def overlays_over_a_server_that_takes_one_connection_share_it(t):
    """As qemu-nbd, which takes one unless it is told otherwise."""
    def answer(command, cookie, offset, length):
        time.sleep(0.2)
        return [part(cookie, offset, b"z" * length)]

    liar = Liar(t, answer, room=1)
    here = near(t, f"overlay:base=nbd:{liar.uri},reconnect=300ms,top={t.path('top')}")
    clients = [here.connect("near", timeout=30) for _ in range(8)]

    def reads(number):
        def go():
            equal(clients[number].read(number * 64 * KIB, 4096), b"z" * 4096)
        return go

    at_once(*map(reads, range(8)))


@test(fairlift_only=True)
def a_server_that_says_it_goes_is_asked_again_when_it_is_back(t):
    """ESHUTDOWN is no error of the request: nbdkit says so when it is told to end."""
    goes = [True]

    def answer(command, cookie, offset, length):
        if goes[0] and command == 0:
            goes[0] = False
            return [chunk(cookie, 1 << 15 | 1, struct.pack(">IH", 108, 0))]
        return [part(cookie, offset, b"z" * length)] if command == 0 else [struct.pack(">IIQ", 0x67446698, 0, cookie)]

    with near(t, Liar(t, answer).uri).connect("near") as client:
        equal(client.read(0, 4096), b"z" * 4096)


@test(fairlift_only=True)
def a_request_that_one_connection_turns_down_goes_by_another_at_once(t):
    left = ["", "", "goes"]

    def answer(command, cookie, offset, length):
        if command == 0 and offset and left:
            return [chunk(cookie, 1 << 15 | 1, struct.pack(">IH", 108, 0))] if left.pop(0) else []
        return [part(cookie, offset, b"z" * length)]

    liar = Liar(t, answer, flags=1 << 8)
    here = near(t, liar.uri, options=",connections=2", args=["--workers", "1"])
    with here.connect("near", timeout=10) as client:
        client.read(0, 4096)
        until(lambda: liar.connections == 2, "both are there")
        time.sleep(0.3)
        # One by each, which it does not answer; then one more.
        for place in 1, 2, 3:
            cookie = client.submit(READ, place * 128 * KIB, 4096)
            until(lambda: len(left) == 3 - place, "it has come")
        reply = client.reply()
        equal((reply.cookie, reply.error), (cookie, 0), "the third read")
    here.kill()


if __name__ == "__main__":
    main()
