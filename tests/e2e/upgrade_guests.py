"""Another server takes over from one with virtual machines (vhost-user), and no guest notices.

A guest here keeps to the letter: it kicks once for what it has put into a ring, and sleeps until it is called. Where a kick or a call is lost, it
waits for ever.
"""

import statistics
import struct

from control import Control
from harness import *
from upgrade import BLOCK, UPGRADES, Load, goes_on, holds, load, new_side, old_side, percentile, upgrade
from vhostclient import *


class GuestLoad(Load):
    """Reads, writes and flushes by one ring, as many at once as it has room for, and knows what is in each block."""

    def __init__(self, ring, first, blocks=512):
        threading.Thread.__init__(self, daemon=True)
        self.ring, self.first, self.blocks, self.ends, self.version = ring, first, blocks, False, 0
        self.random = random.Random(f"{SEED}/{first}")
        self.known = {block: bytes(BLOCK) for block in range(first, first + blocks)}
        self.error, self.replies, self.gaps = None, 0, []
        self.start()

    def ask(self, under_way):
        while self.ring.free:
            block, kind = self.random.randrange(self.first, self.first + self.blocks), self.random.random()
            if any(block == asked[0] for asked in under_way.values()):
                continue
            if kind < 0.02:
                under_way[self.ring.submit(FLUSH_IT, 0)] = (None, None)
            elif kind < 0.5:
                under_way[self.ring.submit(IN, block * 8, length=BLOCK)] = (block, None)
            else:
                self.version += 1
                payload = struct.pack(">QQ", block, self.version) * (BLOCK // 16)
                under_way[self.ring.submit(OUT, block * 8, payload)] = (block, payload)

    def work(self):
        under_way, last = {}, time.monotonic()
        while not self.ends or under_way:
            if not self.ends:
                self.ask(under_way)
                self.ring.kick()
            if not select.select([self.ring.call_fd], [], [], 20)[0]:
                raise AssertionError(f"ring {self.ring.number} waits for a call, with {len(under_way)} requests under way")
            os.eventfd_read(self.ring.call_fd)
            while found := self.ring.ends():
                self.gaps.append(time.monotonic() - last)
                last = time.monotonic()
                for head, _ in found:
                    self.take(under_way, head // 3)

    def take(self, under_way, slot):
        if slot not in under_way:
            raise AssertionError(f"request {3 * slot} of ring {self.ring.number} ended twice")
        block, payload = under_way.pop(slot)
        is_read = block is not None and payload is None
        status, found = self.ring.finish(slot, BLOCK if is_read else 0)
        equal(status, OK, "the status of a request")
        self.replies += 1
        if payload is not None:
            self.known[block] = payload
        elif is_read and found != self.known[block]:
            raise AssertionError(f"block {block} is not as it was written")


def served(t, names=("a",)):
    """A server with an image for each name, which both virtual machines and NBD clients find."""
    sockets = Path(t.path("vm"))
    sockets.mkdir(exist_ok=True)
    images = {name: t.image(name, 64 * MIB) for name in names}
    listen = [f"unix:{t.path('s0')}", f"tcp:127.0.0.1:{free_port()}"]
    args = ["--workers", "2", "--vhost-user", sockets]
    server = t.server(*(f"{name}=file:{image}" for name, image in images.items()), listen=listen, args=args)
    return images, server, sockets


def guest(sockets, name, tables=True, rings=4):
    """A guest with so many rings; `tables`: with a table of what is under way."""
    front = FrontEnd(sockets / name, rings=rings, size=256, span=2 * MIB)
    if tables:
        front.get_inflight(rings, front.size)
        for ring in front.rings:  # those that have a table have it from their start
            ring.stop()
            ring.start(ring.next)
    return front


def connected(server):
    return server.log().count("a front-end has connected")


@test(seconds=240, fairlift_only=True)
def upgrades_under_guests_that_work_lose_and_double_nothing(t):
    images, server, sockets = served(t, ("a", "b", "c"))
    guests = {"a": guest(sockets, "a"), "b": guest(sockets, "b", tables=False)}
    loads = {name: [GuestLoad(ring, n * 512) for n, ring in enumerate(one.rings)] for name, one in guests.items()}
    loads["c"] = load(server, "c")
    all_, pauses = sum(loads.values(), []), []
    goes_on(all_)
    for _ in range(UPGRADES):
        [one.longest() for one in all_]
        upgrade(server)
        goes_on(all_)
        pauses.append(1000 * max(one.longest() for one in all_))
    [one.end() for one in all_]
    for one in guests.values():
        equal(len(one.config()), 60, "the configuration, by the connection of before")
        one.socket.close()
    equal(connected(server), 2, "front-ends that have connected")
    with FrontEnd(sockets / "a") as another:
        equal(another.read(0, BLOCK), loads["a"][0].known[0], "what the next front-end reads, by the same socket")
    server.stop()
    equal(os.listdir(sockets), [], "sockets that are left")
    for name, image in images.items():
        holds(image, loads[name])
    figure(f"upgrade: {UPGRADES} under 2 guests with 4 rings of 85 requests and 4 connections, longest pause of any: median "
           f"{statistics.median(pauses):.0f} ms, 99th percentile {percentile(pauses, 0.99):.0f} ms, most {max(pauses):.0f} ms")


@test(fairlift_only=True)
def requests_that_wait_in_a_ring_for_room_go_over_there(t):
    """The disk's queue takes a few of each ring: the others were taken from the ring, and not begun with."""
    image = t.image("a", 64 * MIB)
    config = f'[disk.d]\nscheduler = "mq-deadline"\ndepth = 2\nnr_requests = 4\n[export.a]\nbacking = "file:{image}"\ndisk = "d"\n'
    sockets = Path(t.path("vm"))
    sockets.mkdir()
    for tables in True, False:
        server = t.server(config=config, args=["--vhost-user", sockets])
        one = guest(sockets, "a", tables)
        loads = [GuestLoad(ring, n * 512) for n, ring in enumerate(one.rings)]
        for _ in range(5):
            goes_on(loads)
            upgrade(server)
        goes_on(loads)
        [one.end() for one in loads]
        one.socket.close()
        server.stop()
        holds(image, loads)
        Path(image).write_bytes(bytes(64 * MIB))


@test(fairlift_only=True)
def a_guest_of_a_ram_disk_that_was_added_by_command_keeps_it(t):
    images, server, sockets = served(t)
    server.control("add", "export", "late=mem:64m")
    one = guest(sockets, "late")
    loads = [GuestLoad(ring, n * 512) for n, ring in enumerate(one.rings)]
    for _ in range(3):
        goes_on(loads)
        upgrade(server)
    goes_on(loads)
    [load.end() for load in loads]
    one.socket.close()
    server.control("remove", "export", "late")
    until(lambda: not os.path.exists(sockets / "late"), "the socket of an export that was removed has gone")
    server.stop()


@test(fairlift_only=True)
def a_front_end_goes_on_with_half_a_message_and_with_rings_that_are_stopped(t):
    images, server, sockets = served(t)
    one = guest(sockets, "a", rings=3)
    one.rings[0].request(OUT, 8, data(BLOCK))
    equal(one.rings[1].stop(), 0, "where a ring is that was not used")
    one.ask(SET_CONFIG, struct.pack("=III", 32, 1, 0) + bytes(1))
    one.rings[2].call_fd = os.eventfd(0, os.EFD_NONBLOCK)
    message = struct.pack("=III", SET_VRING_CALL, 9, 8) + struct.pack("=Q", 2)
    for cut in 1, 11, 12, 19:
        # Its descriptor comes with its first byte.
        socket.send_fds(one.socket, [message[:cut]], [one.rings[2].call_fd])
        time.sleep(0.05)  # most is received by then; what is not is as good
        upgrade(server)
        one.socket.sendall(message[cut:])
        equal(struct.unpack("=Q", one.receive()[0])[0], 0, "the answer to a message that came in two parts")
        slot = one.rings[2].submit(IN, 8, length=BLOCK)
        one.rings[2].kick()
        assert select.select([one.rings[2].call_fd], [], [], 10)[0], "the guest is not called by the new descriptor"
        one.rings[2].wait()
        equal(one.rings[2].finish(slot, BLOCK), (OK, data(BLOCK)), "what was written before")
    equal(one.rings[0].request(IN, 8, length=BLOCK), data(BLOCK), "what was written before")
    equal(one.config(32, 1), bytes(1), "the write cache, which the guest has switched off")
    one.rings[1].start()
    equal(one.rings[1].request(IN, 8, length=BLOCK), data(BLOCK), "and by the ring that had been stopped")
    equal(one.rings[0].stop(), 2, "where the first ring is")
    one.socket.close()
    server.stop()


@test(fairlift_only=True)
def a_new_server_that_dies_on_the_way_or_hangs_costs_guests_a_pause(t):
    images, server, sockets = served(t)
    one = guest(sockets, "a", tables=False)
    loads = [GuestLoad(ring, n * 512) for n, ring in enumerate(one.rings)]

    def off(*says):
        """A new server that has got all, and says this."""
        peer = new_side(server)
        peer.send("ready")
        got = [message[0] for message in peer.until("all")]
        equal([message["descriptors"][0] for message in got if message["message"] == "client"], ["door", "socket"], "what comes first of each")
        if says:
            peer.send(*says)
        if says != ("nonsense",):
            peer.until("off")
        peer.leave()

    goes_on(loads)
    peer = new_side(server)
    peer.leave()
    goes_on(loads)
    peer = new_side(server)
    peer.send("ready")
    peer.until("all")
    peer.leave()  # it dies with all descriptors of the guest
    goes_on(loads)
    off("refused", {"why": "it is too warm here"})
    goes_on(loads)
    off()  # it hangs
    goes_on(loads)
    off("nonsense")
    goes_on(loads)
    upgrade(server)
    goes_on(loads)
    [one.end() for one in loads]
    one.socket.close()
    equal(connected(server), 1, "front-ends that have connected")
    server.stop()
    holds(images["a"], loads)


def given(t, server):
    """What a server has given that was killed then: its settings, and its messages."""
    state = Control(t, server).ask("GET", "/v1/state")
    peer = new_side(server)
    peer.send("ready")
    clients = peer.until("all")
    server.kill()
    os.unlink(f"{server.socket}.control.sock")
    return state, peer, clients


def give(t, server, state, peer, clients):
    """Gives the same to a real server, and dies: its process, and what it said to the clients."""
    server.words = ["--config", Path(server.log_path).with_suffix(".toml"), "--listen", f"unix:{server.socket}"]
    new, process, control = old_side(t, server, state)
    for says, payload, fds in peer.offer:
        name = says["message"]
        new.send(name, says, payload, [control.fileno()] if says.get("name", "").startswith("control") else fds)
    answer = new.receive()[0]
    equal(answer["message"], "ready", f"what the new server says ({answer})")
    with contextlib.suppress(BrokenPipeError):  # it may refuse one, and leave, before the rest has come
        for says, payload, fds in clients:
            new.send(says["message"], says, payload, fds)
    answer = new.receive()[0]
    control.close()
    return new, process, answer


def one_guest(t):
    """A server with a guest that works, by a config file."""
    sockets = Path(t.path("vm"))
    sockets.mkdir(exist_ok=True)
    image = t.image("a", 64 * MIB)
    server = t.server(config=f'[export.a]\nbacking = "file:{image}"\nvhost_user = "{sockets}/a"\n')
    return image, server, sockets


@test(fairlift_only=True)
def a_guest_is_served_when_the_old_server_dies_after_it_gave_all_and_never_when_it_is_off(t):
    for is_off in False, True:
        image, server, sockets = one_guest(t)
        one = guest(sockets, "a", tables=False)
        loads = [GuestLoad(ring, n * 512) for n, ring in enumerate(one.rings)]
        goes_on(loads)
        state, peer, clients = given(t, server)
        new, process, answer = give(t, server, state, peer, clients)
        equal(answer["message"], "accepted", f"what the new server says to the guest ({answer})")
        before = [load.replies for load in loads]
        time.sleep(0.3)
        equal([load.replies for load in loads], before, "answers before it is the new server's turn")
        if is_off:
            (off,) = peer.offer[0][2]
            os.eventfd_write(off, 1)
        new.leave()  # the old server has died
        if is_off:
            equal(process.wait(60), 1, "the exit code of a server that must not serve")
            equal([load.replies for load in loads], before, "answers of a server that must not serve")
        else:
            goes_on(loads)
            [load.end() for load in loads]
            process.terminate()
            equal(process.wait(60), 0, "its exit code")
            holds(image, loads)
        peer.leave()
        one.socket.close()
        for path in server.socket, f"{server.socket}.control.sock", sockets / "a":
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)


@test(fairlift_only=True)
def what_does_not_fit_of_a_guest_is_refused_before_the_new_server_serves(t):
    def cut(what):
        """A front-end of which something is missing."""
        def change(says, fds):
            if what not in says["descriptors"]:
                return says, fds
            at = says["descriptors"].index(what)
            return {**says, "descriptors": says["descriptors"][:at] + says["descriptors"][at + 1:]}, fds[:at] + fds[at + 1:]
        return change

    wrong = {
        "its socket did not come": cut("socket"),
        "0 of 1 files of its memory came": cut("memory"),
        "descriptors came": lambda says, fds: (says, fds[:-1]),
        "its listener did not come": lambda says, fds: None if "door" in says["descriptors"] else (says, fds),
        "rings: it is missing": lambda says, fds: ({part: what for part, what in says.items() if part != "rings"}, fds),
        "cannot be mapped": lambda says, fds: ({**says, "regions": [[0, 1 << 40, 0, 0]]}, fds) if "regions" in says else (says, fds),
    }
    for why, change in wrong.items():
        image, server, sockets = one_guest(t)
        one = guest(sockets, "a")
        one.write(0, data(BLOCK))
        state, peer, clients = given(t, server)
        changed = []
        for says, payload, fds in clients:
            made = change(says, fds) if says["message"] == "client" else (says, fds)
            changed += [(made[0], payload, made[1])] if made else []
        changed[-1][0]["clients"] = len(changed) - 1
        new, process, answer = give(t, server, state, peer, changed)
        equal(answer["message"], "refused", f"the answer to a guest of which {why!r}")
        contains(answer["why"], why)
        equal(process.wait(60), 1, "the exit code")
        new.leave()
        peer.leave()
        one.socket.close()
        for path in server.socket, f"{server.socket}.control.sock", sockets / "a":
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)


if __name__ == "__main__":
    main()
