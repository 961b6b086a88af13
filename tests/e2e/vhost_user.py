"""Exports as vhost-user block devices: what guests are served, what outlives a killed server, and guests and front-ends that
mean harm. A real guest is in tests/vm."""

import itertools
import mmap
import resource
import struct

from flush_disk import Disk
from harness import *
from vhostclient import *

SECTOR = 512


def serve(t, *exports, **options):
    """A server, and the directory of its sockets."""
    sockets = Path(t.path("vm"))
    sockets.mkdir(exist_ok=True)
    args = [*options.pop("args", ()), "--vhost-user", sockets]
    return t.server(*exports, args=args, **options), sockets


def device_lines(server):
    return [line for line in server.log().splitlines() if "vhost-user: the device is stopped" in line]


@test(fairlift_only=True)
def what_a_guest_writes_a_client_reads_and_the_other_way_round(t):
    server, sockets = serve(t, "disk=mem:1M", f"file=file:{t.image('image', MIB)}")
    for name in "disk", "file":
        with FrontEnd(sockets / name, rings=2) as guest, server.connect(name) as client:
            piece = data(4096, name)
            guest.write(8, piece)
            equal(client.read(4096, 4096), piece, "what the client reads")
            client.write(8192, piece[::-1])
            equal(guest.read(16, 4096), piece[::-1], "what the guest reads")
            equal(guest.rings[1].request(IN, 16, length=4096), piece[::-1], "and by its other ring")
            # Not aligned: direct I/O takes it through a buffer.
            ring = guest.rings[0]
            slot = ring.prepare(OUT, 40, data(1024, "odd"))
            ring.describe(3 * slot + 1, ring.data + slot * ring.SLOT + 512 + 3, 1024, NEXT, 3 * slot + 2)
            ring.put(ring.data + slot * ring.SLOT + 515, data(1024, "odd"))
            ring.offer(3 * slot)
            ring.kick()
            ring.wait()
            equal(ring.finish(slot)[0], OK, "the status of a write from an odd address")
            equal(client.read(40 * SECTOR, 1024), data(1024, "odd"))
            slot = ring.prepare(IN, 40, length=1024)
            ring.describe(3 * slot + 1, ring.data + slot * ring.SLOT + 512 + 5, 1024, NEXT | WRITE, 3 * slot + 2)
            ring.offer(3 * slot)
            ring.kick()
            ring.wait()
            equal(ring.take(ring.data + slot * ring.SLOT + 517, 1024), data(1024, "odd"), "what is read to an odd address")
            ring.finish(slot)
            ring.request(FLUSH_IT)
            equal(ring.status, OK, "the status of a flush")
            equal(ring.request(GET_ID, length=20), name.encode().ljust(20, b"\0"), "the disk's name")
            for kind in DISCARD_IT, ZERO_IT:
                guest.write(8, piece)
                ring.request(kind, 0, struct.pack("<QII", 8, 8, 0))
                equal((ring.status, client.read(4096, 4096)), (OK, bytes(4096)), "what was discarded or made zeroes")
    server.stop()
    stats = server.stats()["file"]
    equal((stats["flush"][0], stats["discard"][0], stats["write-zeroes"][0]), (1, 1, 1), "flushes, discards and zeroes")


@test(fairlift_only=True)
def a_device_tells_what_it_is(t):
    image = t.image("image", 3 * MIB)
    config = f'[export.fixed]\nbacking = "file:{image}"\nread_only = true\n'
    server, sockets = serve(t, "disk=mem:2M", config=config)
    with FrontEnd(sockets / "disk") as disk, FrontEnd(sockets / "fixed") as fixed:
        wanted = VERSION_1 | PROTOCOL | INDIRECT | EVENT_INDEX | FLUSH | MANY | CONFIG_WCE | DISCARD | ZEROES
        equal(disk.offered & wanted, wanted, "the features of a disk")
        equal((fixed.offered & (1 << 5), fixed.offered & (DISCARD | ZEROES)), (1 << 5, 0), "those of one that is read-only")
        space = disk.config()
        equal(struct.unpack("<Q", space[:8])[0], 2 * MIB // SECTOR, "its size")
        equal(struct.unpack("<I", space[20:24])[0], SECTOR, "its block")
        equal((space[24], space[32], struct.unpack("<H", space[34:36])[0]), (3, 1, 64), "topology, write cache, rings")
        equal(struct.unpack("<II", space[8:16]), (128 << 10, 254), "the longest piece of a request, and the most")
        equal(disk.config(8, 256)[52:], bytes(204), "there is nothing behind the configuration")
        fixed.write(0, bytes(SECTOR))
        equal(fixed.rings[0].status, FAILED, "the status of a write to a disk that is read-only")
        disk.rings[0].request(77, 0, length=SECTOR)
        equal(disk.rings[0].status, UNSUPPORTED, "the status of what nobody defined")
        disk.read(2 * MIB // SECTOR, SECTOR)
        equal(disk.rings[0].status, FAILED, "the status of a read beyond the end")
        disk.write(0, b"x" * SECTOR)
        equal(disk.rings[0].status, OK, "and after all that it works")
    for longest, pieces in ("64k", (4096, 16)), ("1m", (4096, 254)), ("100k", (4096, 25)):
        server, sockets = serve(t, config=f'[server]\nrequest_max = "{longest}"\n[export.short]\nbacking = "mem:2M"\n')
        with FrontEnd(sockets / "short") as disk:
            equal(struct.unpack("<II", disk.config()[8:16]), pieces, f"the longest piece and the most, where a request has {longest}")
        server.kill()


@test(fairlift_only=True)
def a_write_without_a_cache_is_durable_when_it_ends(t):
    below = Disk(t)
    server, sockets = serve(t, f"disk=file:{below.file}")

    def flushes(guest, count):
        before = below.told()
        for sector in range(count):
            guest.write(sector, b"x" * SECTOR)
            equal(guest.rings[0].status, OK)
        return below.told() - before

    with FrontEnd(sockets / "disk") as guest:
        equal(flushes(guest, 4), 0, "flushes of a disk with a write cache, which the guest did not flush")
        before = below.told()
        guest.rings[0].request(FLUSH_IT)
        equal(below.told() - before, 1, "flushes when the guest asks for one")
        guest.ask(SET_CONFIG, struct.pack("=III", 32, 1, 0) + b"\0")
        equal(guest.config(32, 1), b"\0", "the guest has switched its cache off")
        equal(flushes(guest, 4), 4, "flushes of four writes without a cache")
        guest.ask(SET_CONFIG, struct.pack("=III", 32, 1, 0) + b"\1")
        equal(flushes(guest, 4), 0, "flushes with a cache again")
    with FrontEnd(sockets / "disk", without=FLUSH | CONFIG_WCE) as guest:
        equal(flushes(guest, 4), 4, "flushes of four writes of a driver that knows no flush")


@test(fairlift_only=True)
def a_guest_without_a_write_cache_has_none_at_the_next_server_either(t):
    """QEMU does not say it again, and the guest sends no flushes."""
    below = Disk(t)
    for on in False, True:
        server, sockets = serve(t, f"disk=file:{below.file}")
        guest = FrontEnd(sockets / "disk")
        guest.get_inflight(1, guest.size)
        guest.ask(SET_CONFIG, struct.pack("=III", 32, 1, 0) + b"\0")
        guest.ask(SET_CONFIG, struct.pack("=III", 32, 1, 0) + bytes([on]))
        guest.read(0, SECTOR)
        server.kill()
        kept, guest.socket = guest, guest.socket.close()
        server, _ = serve(t, f"disk=file:{below.file}")
        with FrontEnd(sockets / "disk", kept=kept) as guest:
            equal(guest.config(32, 1), bytes([on]), "whether there is a cache")
            before = below.told()
            for sector in range(4):
                guest.write(sector, b"x" * SECTOR)
            equal(below.told() - before, 0 if on else 4, "flushes of four writes")
        server.kill()


@test(fairlift_only=True)
def rings_that_are_stopped_in_one_breath_all_stop(t):
    _, sockets = serve(t, "disk=mem:4M")
    with FrontEnd(sockets / "disk", rings=4) as guest:
        for ring in guest.rings:
            guest.send(GET_VRING_BASE, struct.pack("=II", ring.number, 0))
        guest.socket.settimeout(60)
        answers = b""
        while len(answers) < 4 * 20:
            answers += guest.socket.recv(4096)
        equal([struct.unpack("=I", answers[at + 12:at + 16])[0] for at in range(0, 80, 20)], [0, 1, 2, 3], "rings that have stopped")


@test(fairlift_only=True)
def a_guest_that_looks_by_itself_and_is_called_by_nothing_is_served_on(t):
    _, sockets = serve(t, "disk=mem:1M")
    with FrontEnd(sockets / "disk", size=16) as guest:
        assert guest.ask(SET_VRING_CALL, struct.pack("=Q", 1 << 8)) == 0
        for turn in range(40):
            equal(guest.read(0, SECTOR), bytes(SECTOR), f"read {turn} of a ring of 16")


# ---- exports that come, grow and go ----


CONFIG_CHANGED = struct.pack("=III", 2, 1, 0)


@test(fairlift_only=True)
def a_guest_is_told_that_its_disk_has_grown(t):
    image = t.image("image", MIB)
    server, sockets = serve(t, f"disk=file:{image}", f"other=file:{t.image('other', MIB)}")
    sectors = lambda guest: struct.unpack("<Q", guest.config(0, 8))[0]
    with FrontEnd(sockets / "disk") as guest, FrontEnd(sockets / "other") as other:
        hears, hears_not = guest.listen(), other.listen()
        assert guest.protocol & BACKEND_REQ, "the server does not say that it speaks first"
        guest.write(3000, b"x" * SECTOR)
        equal((sectors(guest), guest.rings[0].status), (2048, FAILED), "the size, and a write beyond the end")
        os.truncate(image, 2 * MIB)
        server.control("set", "export", "disk", "size=auto")
        equal(hears.recv(99), CONFIG_CHANGED, "what the front-end is told")
        guest.write(3000, b"x" * SECTOR)
        equal((sectors(guest), guest.rings[0].status), (4096, OK), "the size, and a write to what is new")
        server.control("set", "export", "disk", "description=same size")
        hears_not.settimeout(0.2)
        hears.settimeout(0.2)
        for silent in hears_not, hears:
            with contextlib.suppress(TimeoutError):
                raise AssertionError(f"told {silent.recv(99)}, and no size has changed")
        # A front-end that has closed its end.
        hears.close()
        for size in range(3, 10):
            os.truncate(image, size * MIB)
            server.control("set", "export", "disk", "size=auto")
        guest.write(3000, b"y" * SECTOR)
        equal(guest.rings[0].status, OK, "a write after that")


@test(fairlift_only=True)
def an_export_that_is_added_has_a_socket_until_it_is_removed(t):
    server, sockets = serve(t, "disk=mem:1M")
    control, place = server.control, t.path("elsewhere")
    base = server.fds_at_rest()
    for _ in range(3):
        control("add", "export", "late=null:1m,delay=1s")
        equal(os.stat(sockets / "late").st_mode & 0o777, 0o600, "the socket's mode")
        guest = FrontEnd(sockets / "late")
        equal(guest.read(0, SECTOR), bytes(SECTOR), "what the guest reads")
        equal(json.loads(control("get", "export", "late", "--json"))["vhost_user"], f"{sockets}/late", "its socket")
        ring = guest.rings[0]
        slots = {3 * ring.submit(IN, 0, length=SECTOR) for _ in range(4)}
        ring.kick()
        until(lambda: in_flight(server) == 4, "requests are under way")
        control("remove", "export", "late")
        assert guest.is_closed(), "the guest of a removed export stays"
        equal({head for head, _ in ring.ends()}, slots, "requests that were under way and have ended")
        guest.socket.close()
        until(lambda: not os.path.exists(sockets / "late"), "the socket goes")
    contains(control("add", "export", "a/b=mem:1m", code=1), "the socket of export", "cannot have its name")
    control("add", "export", "a/b=mem:1m", f"vhost_user={place}")
    assert served(place), "it is not served at the place that was said"
    contains(control("add", "export", "c=mem:1m", f"vhost_user={place}", code=1), 'export "a/b" has the socket')
    contains(control("add", "export", "c=mem:1m", f"vhost_user={t.path('no')}/c", code=1), "its directory does not exist")
    contains(control("add", "export", "c=mem:1m", f"vhost_user={t.path('no')}/c", "--dry-run", code=1), "its directory does not exist")
    control("remove", "export", "a/b")
    assert served(sockets / "disk"), "the export that was there from the start is not served"
    server.fds_settle(base)


@test(fairlift_only=True)
def a_file_that_is_read_again_brings_and_takes_sockets(t):
    text = f'[export.a]\nbacking = "mem:1m"\nvhost_user = "{t.path("a.vm")}"\n'
    more = f'[export.b]\nbacking = "mem:1m"\nvhost_user = "{t.path("b.vm")}"\n'
    server = t.server(config=text)
    file = Path(t.path("server0.toml"))
    for said, there in (text + more, True), (text, False), (text + more, True):
        file.write_text(said)
        server.control("reload")
        until(lambda: os.path.exists(t.path("b.vm")) == there, f"the socket of b is there: {there}")
        until(lambda: not there or served(t.path("b.vm")), "b is served")
        assert served(t.path("a.vm")), "a is served"


# ---- what outlives a server ----


@test(seconds=180, fairlift_only=True)
def a_server_that_is_killed_20_times_under_load_loses_and_repeats_no_answer(t):
    """Four rings write blocks that say which ring and write they are of. What was answered is there; what was not is
    answered by the next server, once."""
    image, large = t.image("image", 4 * MIB), {"size": 256, "span": 2 * MIB}
    server, sockets = serve(t, f"disk=file:{image}")
    guest = FrontEnd(sockets / "disk", rings=4, **large)
    guest.get_inflight(4, guest.size)
    # With tables: rings are started anew, as they were not when these were given.
    for ring in guest.rings:
        ring.stop()
        ring.start(ring.next)
    wrote, version, pending, left, done_again = {}, 0, [{} for _ in guest.rings], [], 0
    def ask(number):
        """Fills a ring with writes, each to a place of its own."""
        nonlocal version
        ring, free = guest.rings[number], set(range(256)) - {sector // 8 % 256 for sector, _ in pending[number].values()}
        for place in t.random.sample(sorted(free), min(len(free), len(ring.free))):
            version += 1
            sector = number * 2048 + place * 8
            block = struct.pack("<QQ", version, sector) * 256
            pending[number][ring.submit(OUT, sector, block)] = (sector, block)

    for life in range(21):
        until_killed = time.monotonic() + t.random.uniform(0.02, 0.1)
        while time.monotonic() < until_killed:
            for number, ring in enumerate(guest.rings):
                reap(ring, pending[number], wrote)
                ask(number)
                ring.kick()
        if life == 20:
            break
        # As much as there can be, all at once.
        for number, ring in enumerate(guest.rings):
            until(lambda: reap(ring, pending[number], wrote) or not pending[number], "what was asked ends")
            ask(number)
        for ring in guest.rings:
            ring.kick()
        time.sleep(t.random.uniform(0, 0.001))
        server.kill()
        left.append(sum(map(len, pending)))
        kept, guest.socket = guest, guest.socket.close()
        server, _ = serve(t, f"disk=file:{image}")
        guest = FrontEnd(sockets / "disk", rings=4, kept=kept, **large)
    for number, ring in enumerate(guest.rings):
        until(lambda: reap(ring, pending[number], wrote) or not pending[number], f"ring {number} ends all that it was asked")
    guest.rings[0].request(FLUSH_IT)
    for (log, under_way) in zip(sorted(t.dir.glob("server*.log"), key=lambda path: path.stat().st_mtime)[1:], left):
        again = sum(map(int, re.findall(r"(\d+) unfinished requests of the previous server are repeated", plain(log.read_text()))))
        assert again <= under_way, f"{again} are repeated, and {under_way} were under way"
        done_again += again
    print(f"{version} writes, {done_again} of them repeated by another server")
    assert version > 1000 and done_again > 50, "there was too little under way to tell anything"
    content = Path(image).read_bytes()
    for sector, block in wrote.items():
        assert content[sector * SECTOR:sector * SECTOR + 4096] == block, f"sector {sector} is not what was written last"


def reap(ring, pending, wrote):
    for head, _ in ring.ends():
        assert head // 3 in pending, f"request {head} ended twice"
        status, _ = ring.finish(head // 3)
        equal(status, OK, "the status of a write")
        sector, block = pending.pop(head // 3)
        wrote[sector] = block


@test(fairlift_only=True)
def a_guest_is_called_when_a_server_takes_its_rings_up(t):
    """The previous server may have been killed when it had written the used ring, and had not called."""
    server, sockets = serve(t, "disk=mem:1M")
    guest = FrontEnd(sockets / "disk", rings=2)
    guest.get_inflight(2, guest.size)
    guest.read(0, SECTOR)
    server.kill()
    kept, guest.socket = guest, guest.socket.close()
    serve(t, "disk=mem:1M")
    with FrontEnd(sockets / "disk", rings=2, kept=kept) as guest:
        for ring in guest.rings:
            assert select.select([ring.call_fd], [], [], 10)[0], f"ring {ring.number} is taken up, and its guest not called"


@test(fairlift_only=True)
def what_a_firmware_has_left_of_a_ring_takes_no_disk_away(t):
    """The server comes to the ring when a kernel already has its memory; QEMU hands the kick over with a kick of its own."""
    server, sockets = serve(t, "disk=mem:1M")
    with FrontEnd(sockets / "disk") as guest:
        ring = guest.rings[0]
        ring.stop()
        ring.word(ring.available + 2).value = 60_000
        ring.kick()
        ring.call_fd = os.eventfd(0, os.EFD_NONBLOCK)
        ring.start()
        assert select.select([ring.call_fd], [], [], 10)[0], "the ring is not taken up"
        equal(ring.stop(), 0, "where the ring stopped")
        ring.word(ring.available + 2).value = ring.next
        ring.start()
        guest.read(0, SECTOR)
        equal((ring.status, device_lines(server)), (OK, []), "the status of a read after that, and what is said of the device")


@test(fairlift_only=True)
def a_ring_that_is_stopped_has_nothing_under_way_and_goes_on_where_it_was(t):
    server, sockets = serve(t, "slow=null:1M,delay=2s")
    with FrontEnd(sockets / "slow") as guest:
        ring = guest.rings[0]
        slots = {3 * ring.submit(IN, 0, length=SECTOR) for _ in range(5)}
        ring.kick()
        until(lambda: in_flight(server) == 5, "requests are under way")
        equal(ring.stop(), 5, "where the ring stopped")
        equal({head for head, _ in ring.ends()}, slots, "what has ended by then")
        ring.start(5)
        ring.free = list(range(10, 20))
        guest.read(0, SECTOR)
        equal(ring.status, OK, "the status of a read after that")


@test(fairlift_only=True)
def the_last_call_of_a_ring_that_stops_is_by_the_descriptor_that_it_had(t):
    server, sockets = serve(t, "slow=null:1M,delay=1s")
    with FrontEnd(sockets / "slow") as guest:
        ring = guest.rings[0]
        until(lambda: select.select([ring.call_fd], [], [], 0)[0], "the guest is called as its ring is taken up")
        os.eventfd_read(ring.call_fd)
        ring.submit(IN, 0, length=SECTOR)
        ring.kick()
        until(lambda: in_flight(server) == 1, "a request is under way")
        # In one breath: both are there when the request ends.
        guest.send(GET_VRING_BASE, struct.pack("=II", 0, 0))
        guest.send(SET_VRING_CALL, struct.pack("=Q", 0), [os.eventfd(0)])
        guest.receive()
        assert select.select([ring.call_fd], [], [], 10)[0], "the guest was not called for a request that has ended"


@test(fairlift_only=True)
def a_guest_that_vanishes_leaves_its_memory_mapped_until_its_requests_have_ended(t):
    rules = Path(t.path("rules.toml"))
    rules.write_text("[[fault]]\nhang = true\n")
    server, sockets = serve(t, config='[export.slow]\nbacking = "fault:rules.toml,inner=mem:1m"\n')
    mapped = lambda: "memfd:guest" in Path(f"/proc/{server.pid}/maps").read_text()
    guest = FrontEnd(sockets / "slow")
    for _ in range(4):
        guest.rings[0].submit(IN, 0, length=SECTOR)
    guest.rings[0].kick()
    until(lambda: in_flight(server) == 4, "requests are under way")
    guest.socket.close()
    time.sleep(0.3)  # that is noticed
    assert mapped(), "memory that a request names was unmapped"
    # What the next guest asks must not overtake what is under way. It waits at the door for a second, and then asks again, as QEMU does.
    following = FrontEnd(sockets / "slow", start=False)
    rules.write_text("")
    server.control("reload")
    try:
        following.negotiate()
    except Gone:
        following = until(lambda: come_in(sockets / "slow"), "the next guest is let in")
    assert not mapped(), "the next guest was let in while the one before had requests under way"
    equal(len(guest.rings[0].ends()), 4, "requests that have ended")
    following.socket.close()


def come_in(path):
    """A front-end, if it is let in."""
    guest = FrontEnd(path, start=False)
    with contextlib.suppress(Gone):
        guest.negotiate()
        return guest


def served(path):
    """Whether a front-end is taken, and finds what it wants."""
    with contextlib.suppress(Gone), FrontEnd(path) as guest:
        guest.read(0, SECTOR)
        return guest.rings[0].status == OK


@test(fairlift_only=True)
def memory_may_be_shared_anew_while_requests_are_under_way(t):
    server, sockets = serve(t, "slow=null:1M,delay=200ms")
    with FrontEnd(sockets / "slow") as guest:
        ring = guest.rings[0]
        for turn in range(5):
            slot = ring.submit(IN, 0, length=SECTOR)
            ring.put(ring.data + slot * ring.SLOT + 512, b"x" * SECTOR)
            ring.kick()
            time.sleep(0.02)
            guest.share()
            ring.wait()
            equal(ring.finish(slot, SECTOR), (OK, bytes(SECTOR)), "a read that was under way")
        equal(device_lines(server), [])


@test(fairlift_only=True)
def a_large_request_over_nbd_finds_memory_beside_a_guest_whose_requests_never_end(t):
    """Those at odd addresses take memory of the worker, too. It has just enough for a request of `request_max`."""
    config = '[server]\nworkers = 1\nmemory = "32m"\nconnection_memory = "32m"\n'
    server, sockets = serve(t, "disk=mem:64m", f"file=file:{t.image('image', MIB)}", config=config, args=["--max", "file=riops=100"])
    stop = threading.Event()

    def guest():
        with FrontEnd(sockets / "file") as guest:
            ring = guest.rings[0]

            def ask():
                slot = ring.prepare(IN, 0, length=1024)
                ring.describe(3 * slot + 1, ring.data + slot * ring.SLOT + 515, 1024, NEXT | WRITE, 3 * slot + 2)
                ring.offer(3 * slot)

            for _ in range(16):
                ask()
            while not stop.is_set():
                ring.kick()
                for head, _ in ring.wait():
                    equal(ring.finish(head // 3)[0], OK, "the status of a read to an odd address")
                    ask()

    def client():
        try:
            time.sleep(0.3)
            with server.connect("disk", timeout=20) as client:
                client.write(0, b"l" * (32 * MIB))
        finally:
            stop.set()

    at_once(guest, client)


@test(fairlift_only=True)
def a_guest_whose_memory_is_cut_short_loses_its_device_and_nobody_else_anything(t):
    """What is behind the end of a shared file cannot be touched: not by the worker, and not by the kernel on its behalf."""
    image = t.image("image", MIB)
    server, sockets = serve(t, "disk=mem:1M", f"file=file:{image}", "slow=null:1M,delay=200ms", "good=mem:1M")
    with FrontEnd(sockets / "good") as neighbour:
        # With the rings, and with nothing but the rings.
        for name, left in ("disk", 0), ("file", 0), ("slow", 0), ("slow", 4096):
            until(lambda: served(sockets / name), f"the export {name} is free")
            guest, told = FrontEnd(sockets / name), len(device_lines(server))
            guest.get_inflight(1, guest.size)
            for _ in range(4):
                guest.rings[0].submit(IN, 0, length=SECTOR)
            guest.rings[0].kick()
            time.sleep(0.05)
            os.ftruncate(guest.inflight[0], 0)
            os.ftruncate(guest.memory_fd, left)
            guest.rings[0].kick()
            assert guest.is_closed(), f"{name}: the device goes on: {server.log()[-500:]}"
            until(lambda: len(device_lines(server)) > told, f"a line about {name}")
            contains(device_lines(server)[-1], "the file of its guest's memory was cut short", f'export="{name}"')
            equal(neighbour.read(0, SECTOR), bytes(SECTOR), "the neighbour's read after that")
            guest.socket.close()
    server.serves("good")


@test(fairlift_only=True)
def a_guest_whose_memory_is_cut_short_costs_others_no_connection_to_a_remote_server(t):
    there = t.server("far=mem:1m")
    server, sockets = serve(t, *(f"{name}={there.uri('far')},connections=1" for name in ("guest", "other")))
    t.servers.insert(0, t.servers.pop())
    with server.connect("other") as other:
        for kind, flags in (OUT, 0), (IN, WRITE):
            other.write(0, b"o" * 4096)
            until(lambda: served(sockets / "guest"), "the export is free")
            guest, told = FrontEnd(sockets / "guest"), len(device_lines(server))
            ring = guest.rings[0]
            slot = ring.prepare(kind, 64, length=4096)
            # Its data lies behind the new end; the ring does not.
            ring.describe(3 * slot + 1, 512 * KIB, 256 * KIB, NEXT | flags, 3 * slot + 2)
            ring.offer(3 * slot)
            os.ftruncate(guest.memory_fd, 512 * KIB)
            ring.kick()
            assert guest.is_closed(), f"the device goes on: {server.log()[-500:]}"
            until(lambda: len(device_lines(server)) > told, "a line about it")
            guest.socket.close()
            other.flush()
            equal(other.read(0, 4096), b"o" * 4096)
    equal(json.loads(server.control("get", "server", "--json"))["remotes"][0]["lost"], 0, "connections that were lost")


# ---- guests that mean harm ----


def misdeeds(ring):
    """What a driver can do wrong with a ring, each with a word of the line that the server logs."""
    def chain(*descriptors):
        def do():
            for index, descriptor in enumerate(descriptors):
                ring.describe(index, *descriptor)
            ring.put(ring.data, struct.pack("<IIQ", IN, 0, 0))
            ring.offer(0)
        return do

    at, status = ring.data, (ring.data + 16, 1, WRITE, 0)
    long = [(at, 1, NEXT, index + 1) for index in range(64)]

    def table(*descriptors):
        def do():
            for index, descriptor in enumerate(descriptors):
                ring.describe(index, *descriptor, table=ring.data + 4096)
            ring.describe(0, at + 4096, 16 * len(descriptors), TABLE)
            ring.offer(0)
        return do

    def index(value):
        return lambda: ring.put(ring.available + 2, struct.pack("<H", value))

    def twice():
        slot = ring.prepare(IN, 0, length=SECTOR)
        ring.offer(3 * slot, 3 * slot)

    return {
        "a circle": (chain((at, 16, NEXT, 1), (at, 512, NEXT | WRITE, 1)), "goes in circles"),
        "a descriptor beyond the table": (chain((at, 16, NEXT, 64)), "descriptor 64 of a table of 64"),
        "a head beyond the table": (lambda: ring.offer(999), "descriptor 999"),
        "memory that is not there": (chain((at, 16, NEXT, 1), (1 << 40, 512, NEXT | WRITE, 2), status), "not in the guest's memory"),
        "a header that is not there": (chain((1 << 50, 16, NEXT, 1), status), "not in the guest's memory"),
        "a status that is not there": (chain((at, 16, NEXT, 1), (at, 512, NEXT | WRITE, 2), (1 << 41, 1, WRITE, 0)), "not in the guest's memory"),
        "the end of memory": (chain((at, 16, NEXT, 1), ((1 << 20) - 256, 512, NEXT | WRITE, 2), status), "not in the guest's memory"),
        "more than 4 GiB": (chain((at, 16, NEXT, 1), *[(at, 0xffff_f000, NEXT | WRITE, n) for n in (2, 3)], status), "longer than 4 GiB"),
        "no status": (chain((at, 16, 0, 0)), "no room for a status"),
        "no header": (chain((at, 15, NEXT, 1), status), "no whole header"),
        "memory to read after memory to write": (chain((at, 16, NEXT, 1), (at, 512, NEXT | WRITE, 2), (at, 16, NEXT, 3), status), "after memory to be written"),
        "a table within a table": (table((at + 4096, 16, TABLE, 0)), "within another"),
        "a table of half a descriptor": (chain((at, 24, TABLE, 0)), "an indirect table of 24 bytes"),
        "a table that is not there": (chain((1 << 40, 48, TABLE, 0)), "is not in the guest's memory"),
        "an index that runs ahead": (index(40_000), "available ring"),
        "a request that is under way, again": (twice, "again, which has not ended"),
        "a chain as long as its table": (chain(*long), "descriptor 64 of a table of 64"),
    }


@test(seconds=180, fairlift_only=True)
def a_driver_that_is_out_of_step_loses_its_device_and_nobody_else_anything(t):
    server, sockets = serve(t, "disk=null:1M,delay=2ms", "good=mem:1M")
    with FrontEnd(sockets / "good") as neighbour:
        base, names = None, []
        with FrontEnd(sockets / "disk") as guest:
            names = list(misdeeds(guest.rings[0]))
        for name in names:
            until(lambda: served(sockets / "disk"), f"the export is free again before {name}")
            for before in 0, 3:
                guest = connect(sockets / "disk")
                ring = guest.rings[0]
                ring.free = list(range(10, 20))
                for _ in range(before):  # something good is under way
                    ring.submit(IN, 0, length=SECTOR)
                told = len(device_lines(server))
                do, word = misdeeds(ring)[name]
                do()
                ring.kick()
                assert guest.is_closed(), f"{name}: the device goes on: {server.log()[-500:]}"
                until(lambda: len(device_lines(server)) > told, f"a line about {name}")
                line = device_lines(server)[-1]
                assert word in line and 'export="disk"' in line, f"{name}: wanted {word!r} in {line}"
                equal(neighbour.read(0, SECTOR), bytes(SECTOR), f"the neighbour's read after {name}")
                guest.socket.close()
            base = base or server.fds()
        server.fds_settle(base)
        server.serves("good")


def connect(path):
    """Connects as soon as the front-end before is forgotten."""
    for _ in range(200):
        try:
            guest = FrontEnd(path)
            if guest.read(0, SECTOR) is not None:
                return guest
        except (Gone, TimeoutError):
            pass
        time.sleep(0.05)
    raise AssertionError("the export is not free again")


@test(fairlift_only=True)
def a_front_end_that_is_out_of_step_is_left_with_a_line_that_says_why(t):
    server, sockets = serve(t, "disk=mem:1M", "good=mem:1M")
    pipe = os.pipe()
    t.defer(os.close, pipe[0])
    t.defer(os.close, pipe[1])
    event = os.eventfd(0)
    region = lambda size, at=0, user=USER: struct.pack("=IIQQQQ", 1, 0, GUEST, size, user, at)
    num = lambda ring, value: struct.pack("=II", ring, value)
    addresses = lambda descriptors: struct.pack("=IIQQQQ", 0, 0, descriptors, USER + 8192, USER + 4096, 0)
    wrong = {
        "a message that nobody defined": (99, b"", [], "message 99"),
        "a message for network cards": (20, bytes(8), [], "message 20"),
        "a payload that is too long for any": (SET_FEATURES, bytes(5000), [], "none is longer than 4096"),
        "a payload that does not fit": (SET_FEATURES, bytes(7), [], "SET_FEATURES with 7 bytes"),
        "features that were not offered": (SET_FEATURES, struct.pack("=Q", 1 << 3), [], "0x8 was not offered"),
        "memory without a descriptor": (SET_MEM_TABLE, region(MIB), [], "0 descriptors"),
        "memory that is not shared": (SET_MEM_TABLE, bytes(8), [], "share=on"),
        "memory beyond the end of its file": (SET_MEM_TABLE, region(4 * MIB), None, "ends after 1048576 bytes"),
        "memory without an end": (SET_MEM_TABLE, region(MIB, (1 << 64) - 4096), None, "no end"),
        "memory in a pipe": (SET_MEM_TABLE, region(MIB), [pipe[0]], "ends after 0 bytes"),
        "a ring of 0": (SET_VRING_NUM, num(0, 0), [], "a power of two"),
        "a ring of 100": (SET_VRING_NUM, num(0, 100), [], "a power of two"),
        "a ring of 32768": (SET_VRING_NUM, num(0, 32768), [], "at most 1024"),
        "ring 64": (SET_VRING_NUM, num(64, 64), [], "at most 64"),
        "ring 4294967295": (GET_VRING_BASE, num(0xffff_ffff, 0), [], "at most 64"),
        "a kick that is a pipe": (SET_VRING_KICK, struct.pack("=Q", 0), [pipe[0]], "which is no eventfd"),
        "a ring without memory": ([(SET_VRING_NUM, num(0, 64), []), (SET_VRING_ADDR, addresses(USER), []), (SET_VRING_KICK, struct.pack("=Q", 0), [event]),
                                   (SET_VRING_ENABLE, num(0, 1), [])], None, None, "SET_MEM_TABLE"),
        "a ring in memory that is not shared": ([(SET_MEM_TABLE, region(MIB), None), (SET_VRING_NUM, num(0, 64), []), (SET_VRING_ADDR, addresses(1 << 46), []),
                                                 (SET_VRING_KICK, struct.pack("=Q", 0), [event]), (SET_VRING_ENABLE, num(0, 1), [])], None, None, "share=on"),
        "a ring at the end of memory": ([(SET_MEM_TABLE, region(MIB), None), (SET_VRING_NUM, num(0, 1024), []), (SET_VRING_ADDR, addresses(USER + MIB - 4096), []),
                                         (SET_VRING_KICK, struct.pack("=Q", 0), [event]), (SET_VRING_ENABLE, num(0, 1), [])], None, None, "does not fit"),
        "addresses that are not aligned": (SET_VRING_ADDR, addresses(USER + 1), [], "not aligned"),
        "a table for more rings than there are": (GET_INFLIGHT_FD, struct.pack("=QQHHI", 0, 0, 1000, 64, 0), [], "at most 64"),
        "a table that is shorter than it says": (SET_INFLIGHT_FD, struct.pack("=QQHHI", 1 << 40, 1 << 20, 4, 64, 0), None, "take"),
        "a configuration that cannot be changed": (SET_CONFIG, struct.pack("=III", 0, 8, 0) + bytes(8), [], "only the write cache"),
        "RESET_OWNER": (RESET_OWNER, b"", [], "GET_VRING_BASE"),
    }
    with FrontEnd(sockets / "good") as neighbour:
        for name, (code, payload, descriptors, word) in wrong.items():
            until(lambda: served(sockets / "disk"), f"the export is free again before {name}")
            guest = None
            while guest is None:
                try:
                    guest = FrontEnd(sockets / "disk", start=False)
                    guest.negotiate()
                except Gone:
                    guest = None
            told = len(device_lines(server))
            with contextlib.suppress(Gone):
                for one in code if isinstance(code, list) else [(code, payload, descriptors)]:
                    guest.send(one[0], one[1], [guest.memory_fd] if one[2] is None else one[2])
            assert guest.is_closed(), f"{name}: the connection goes on: {server.log()[-500:]}"
            until(lambda: len(device_lines(server)) > told, f"a line about {name}")
            line = device_lines(server)[-1]
            assert word in line and 'export="disk"' in line, f"{name}: wanted {word!r} in {line}"
            equal(neighbour.read(0, SECTOR), bytes(SECTOR), f"the neighbour's read after {name}")
            guest.socket.close()
        for junk in b"\0" * 4096, b"GET / HTTP/1.0\r\n\r\n", os.urandom(64):
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as client:
                client.connect(os.fspath(sockets / "disk"))
                client.sendall(junk)
        until(lambda: served(sockets / "disk"), "the export is free after all that")
    os.close(event)


def kicking(*rings):
    """A process that kicks rings as fast as it can, and the place where it counts."""
    count = mmap.mmap(-1, 8)
    if (pid := os.fork()) == 0:
        for kicks in itertools.count(len(rings), len(rings)):
            for ring in rings:
                ring.kick()
            count[:] = struct.pack("=Q", kicks)
    return pid, lambda: struct.unpack("=Q", count[:])[0]


@test(fairlift_only=True)
def kicks_without_end_and_calls_that_are_not_taken_do_no_harm(t):
    server, sockets = serve(t, "disk=mem:1M", "good=mem:1M")
    with FrontEnd(sockets / "disk", rings=2) as guest, FrontEnd(sockets / "good") as neighbour:
        guest.rings[1].stop()
        pid, kicks = kicking(*guest.rings)  # one of them runs
        start, reads = time.monotonic(), 0
        while kicks() < (1_000_000 if FULL else 100_000) or reads <= 100:
            equal(neighbour.read(0, SECTOR), bytes(SECTOR), "the neighbour's read meanwhile")
            reads += 1
        print(f"{kicks() / (time.monotonic() - start):.0f} kicks a second, {reads} reads of the neighbour")
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        equal(guest.read(0, SECTOR), bytes(SECTOR), "its own read after that")
    # A monitor that takes no call, and whose eventfd is full: the worker must not wait for it.
    with FrontEnd(sockets / "disk", without=EVENT_INDEX) as guest:
        ring = guest.rings[0]
        def fill():  # it may have been called already
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(ring.call_fd)
            with contextlib.suppress(BlockingIOError):
                os.eventfd_write(ring.call_fd, (1 << 64) - 2)
                return True
        until(fill, "the eventfd is full")
        is_left = lambda: any("calls were not taken" in line for line in device_lines(server))
        has_ended = lambda: struct.unpack("<H", ring.take(ring.used + 2, 2))[0] != ring.seen
        ring.wait = lambda seconds=20: (until(lambda: has_ended() or is_left(), "it ends, or the device"), ring.ends())[1]
        with contextlib.suppress(Gone, OSError, AssertionError, BrokenPipeError):
            while not is_left():
                guest.read(0, SECTOR)
        until(is_left, "a line about the calls")
    server.serves("good")


@test(fairlift_only=True)
def messages_without_end_delay_nobody(t):
    _, sockets = serve(t, "disk=mem:1M", "good=mem:1M", args=["--workers", "1"])
    with FrontEnd(sockets / "disk") as guest, FrontEnd(sockets / "good") as neighbour:
        if (pid := os.fork()) == 0:
            many = struct.pack("=III", SET_OWNER, 1, 0) * 4096
            with contextlib.suppress(OSError):
                while True:
                    guest.socket.sendall(many)
            os._exit(0)
        t.defer(os.waitpid, pid, 0)
        t.defer(os.kill, pid, signal.SIGKILL)
        time.sleep(0.5)
        start = time.monotonic()
        for _ in range(100):
            equal(neighbour.read(0, SECTOR), bytes(SECTOR), "the neighbour's read meanwhile")
        assert (took := time.monotonic() - start) < 20, f"a hundred reads of the neighbour took {took:.1f} s"


@test(fairlift_only=True)
def a_guest_that_writes_over_the_used_ring_or_never_reads_it_misleads_itself_alone(t):
    rules = Path(t.path("rules.toml"))
    rules.write_text("")
    config = '[export.slow]\nbacking = "fault:rules.toml,inner=mem:1m"\n'
    server, sockets = serve(t, "disk=null:1M,delay=2ms", "good=mem:1M", config=config)
    with FrontEnd(sockets / "slow", size=16) as guest:
        ring = guest.rings[0]
        index = ring.word(ring.used + 2)
        for turn in range(3):
            rules.write_text("[[fault]]\nhang = true\n")
            server.control("reload")
            slot = ring.submit(IN, 0, length=SECTOR)
            ring.kick()
            until(lambda: in_flight(server) == 1, "the request is under way")
            index.value = 40_000 + turn
            rules.write_text("")
            server.control("reload")
            until(lambda: index.value == turn + 1, "the server's own index is in the ring")
            ring.free.append(slot)
    with FrontEnd(sockets / "disk", size=16) as guest, FrontEnd(sockets / "good") as neighbour:
        ring = guest.rings[0]
        index = ring.word(ring.used + 2)
        # Twenty times as many as the ring has room for, none of them read.
        for turn in range(64):
            slots = [ring.submit(IN, 0, length=SECTOR) for _ in range(5)]
            ring.kick()
            until(lambda: index.value == 5 * (turn + 1), f"the requests of turn {turn} end")
            ring.free += slots
        equal(neighbour.read(0, SECTOR), bytes(SECTOR), "the neighbour's read after all that")


@test(fairlift_only=True)
def thirty_two_devices_of_four_rings_share_a_disk_and_cost_nothing_while_they_idle(t):
    part, count = MIB, 32
    image = t.image("image", count * part)
    config = "".join(f'[export.e{n}]\nbacking = "file:{image}"\noffset = {n * part}\nsize = {part}\n' for n in range(count))
    server, sockets = serve(t, config=config)
    # The kernel makes some of its own for writes to a sparse file; without io_uring helpers do those.
    ours = lambda task: not (task / "comm").read_text().startswith(("iou-", "helper"))
    threads = lambda: sum(map(ours, Path(f"/proc/{server.pid}/task").iterdir()))
    anonymous = lambda: int(re.search(r"Anonymous: +(\d+)", Path(f"/proc/{server.pid}/smaps_rollup").read_text())[1])
    worked = lambda: sum(map(int, Path(f"/proc/{server.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]))
    with FrontEnd(sockets / "e0") as guest:
        guest.read(0, 4096)  # threads that the first request brings
    base, before = threads(), anonymous()
    with contextlib.ExitStack() as stack:
        guests = [stack.enter_context(FrontEnd(sockets / f"e{n}", rings=4, size=256)) for n in range(count)]
        for number, guest in enumerate(guests):
            for ring in guest.rings:
                ring.request(OUT, 8 * ring.number, data(4096, f"{number} {ring.number}"))
                equal(ring.status, OK, "the status of a write")
        # All at once, each ring by what another has written.
        asked = [(number, ring, ring.submit(IN, 8 * (3 - ring.number), length=4096)) for number, guest in enumerate(guests) for ring in guest.rings]
        for _, ring, _ in asked:
            ring.kick()
        for number, ring, slot in asked:
            ring.wait()
            equal(ring.finish(slot, 4096), (OK, data(4096, f"{number} {3 - ring.number}")), f"what ring {ring.number} of guest {number} reads")

        def look():
            """The end of what was asked before may come in the first second."""
            each, start = (anonymous() - before) / count, worked()
            time.sleep(1)
            idle = worked() - start
            print(f"{each:.0f} KiB for each device of four rings of 256; {idle} ticks of 10 ms in a second of idling")
            # One or two of tokio's may have come for a while; a device has none of its own.
            assert threads() <= base + 2, f"{threads()} threads with 32 devices, {base} without"
            assert idle <= 3 and each < 256, "idle devices cost something"

        again(look)


@test(fairlift_only=True)
def a_front_end_that_leaves_without_sharing_memory_is_told_how_to(t):
    """So does QEMU that has no memory to share: it ends the matter by itself, and we never hear why."""
    server, sockets = serve(t, "disk=mem:1M")
    lines = lambda: [line for line in server.log().splitlines() if "the front-end has left" in line]
    assert served(sockets / "disk"), "it is served"
    with FrontEnd(sockets / "disk", start=False) as guest:
        guest.get(GET_FEATURES)
    until(lambda: len(lines()) == 2, "it is noted that both have left")
    assert not any("share=on" in line for line in lines()), "one of them was told what does not concern it"
    with FrontEnd(sockets / "disk", start=False) as guest:
        guest.negotiate()
    until(lambda: len(lines()) == 3, "it is noted that the third has left")
    contains(lines()[2], "has not shared its guest's memory", "share=on", 'export="disk"')


@test(fairlift_only=True)
def a_second_front_end_is_refused_and_a_thousand_connects_leave_nothing(t):
    server, sockets = serve(t, "disk=mem:1M")
    base = server.fds_at_rest()
    with FrontEnd(sockets / "disk") as guest:
        for _ in range(1000):
            with socket.socket(socket.AF_UNIX) as other:
                other.connect(os.fspath(sockets / "disk"))
        second = FrontEnd(sockets / "disk", start=False)
        assert second.is_closed(), "there are two front-ends"
        equal(guest.read(0, SECTOR), bytes(SECTOR), "the first one's read meanwhile")
        server.says("a second front-end was refused")
        lines = [line for line in server.log().splitlines() if "a second front-end was refused" in line]
        equal(len(lines), 1, "lines about it")
    server.fds_settle(base)


@test(fairlift_only=True)
def a_front_end_that_came_when_there_were_no_descriptors_is_served_once_there_are(t):
    server, sockets = serve(t, "disk=mem:1M")
    time.sleep(0.5)  # or the client that found it ready has a descriptor still
    used = {int(fd) for fd in os.listdir(f"/proc/{server.pid}/fd")}
    before = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (min(set(range(1024)) - used), before[1]))
    guest = FrontEnd(sockets / "disk", start=False)
    until(lambda: "a front-end could not be accepted" in server.log(), "a line about that")
    assert "a front-end has connected" not in server.log(), "there was a descriptor left"
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, before)
    guest.socket.settimeout(20)
    guest.negotiate()
    guest.socket.close()


@test(fairlift_only=True)
def where_a_socket_cannot_be_the_server_says_why(t):
    server, sockets = serve(t, "disk=mem:1M")
    other = lambda *args: t.serve_fails(*args, "--listen", f"unix:{t.path('other')}")
    contains(other("disk=mem:1M", "--vhost-user", sockets), "error: --vhost-user", f"{sockets}/disk", "another server is listening there; give this server an address of its own (--vhost-user)")
    contains(other("disk=mem:1M", "--vhost-user", t.path("nowhere")), "its directory does not exist")
    Path(t.path("c.toml")).write_text(f'[export.x]\nbacking = "mem:1m"\nvhost_user = "{t.path("nowhere")}/x"\n')
    said = t.serve_fails("--config", t.path("c.toml"), "--listen", "tcp:127.0.0.1:0")
    contains(said, "export.x.vhost_user", "its directory does not exist")
    contains(other("a/b=mem:1M", "--vhost-user", sockets), "vhost_user")
    nobody = {"user": 65534, "cwd": "/"} if os.getuid() == 0 else {}
    os.chmod(sockets, 0o500)
    said = t.serve_fails("late=mem:1M", "--vhost-user", sockets, "--listen", "tcp:127.0.0.1:0", "--control", "off", **nobody)
    contains(said, f"{sockets}/late", "denied")
    os.chmod(sockets, 0o700)
    (sockets / "file").write_text("")
    contains(other("file=mem:1M", "--vhost-user", sockets), "not a socket")
    server.kill()
    server, _ = serve(t, "disk=mem:1M")  # the killed one's socket file is replaced
    until(lambda: served(sockets / "disk"), "it is served")


if __name__ == "__main__":
    main()
