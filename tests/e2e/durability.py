"""What was flushed is there, whatever ends the server."""

import struct

from harness import *
from nbdclient import FLUSH, FUA, WRITE, Closed

BLOCK, SECTOR = 4096, 512
BLOCKS = 512


class Ledger:
    """What each block may hold, and must: kept outside the server, by those who ask.

    A block's versions are numbered from 0 (nothing yet) upwards; at most one write of a block is under way at a time, so
    they land in order. After the crash each sector must hold a version from the last one known to be durable onwards.
    """

    def __init__(self):
        self.lock = threading.Lock()
        self.asked = [0] * BLOCKS
        self.answered = [0] * BLOCKS
        self.durable = [0] * BLOCKS
        self.flushes = 0

    @staticmethod
    def content(block, version):
        if not version:
            return bytes(BLOCK)
        return b"".join(struct.pack(">IIII", 0xFA121F7, block, version, sector) * 32 for sector in range(BLOCK // SECTOR))

    def write(self, block):
        """The payload of the block's next version."""
        with self.lock:
            self.asked[block] += 1
            return self.content(block, self.asked[block])

    def written(self, block, durable=False):
        with self.lock:
            self.answered[block] = self.asked[block]
            if durable:
                self.durable[block] = self.asked[block]

    def flush(self):
        """What a flush that is asked for now must cover."""
        with self.lock:
            return list(self.answered)

    def flushed(self, covered):
        with self.lock:
            self.flushes += 1
            self.durable = [max(pair) for pair in zip(self.durable, covered)]

    def check(self, path):
        """After the crash: every sector is what it may be. What was found is then the only truth."""
        with open(path, "rb") as file:
            image = file.read()
        equal(len(image), BLOCKS * BLOCK, "the size of the file")
        for block in range(BLOCKS):
            found = set()
            for sector in range(BLOCK // SECTOR):
                at = block * BLOCK + sector * SECTOR
                piece = image[at:at + SECTOR]
                version = struct.unpack_from(">IIII", piece)[2]
                if piece != self.content(block, version)[sector * SECTOR:][:SECTOR]:
                    raise AssertionError(f"block {block} sector {sector} holds what nobody wrote: {piece[:16].hex()}")
                if not self.durable[block] <= version <= self.asked[block]:
                    raise AssertionError(
                        f"block {block} sector {sector} holds version {version}, but version {self.durable[block]} was "
                        f"flushed (answered {self.answered[block]}, asked {self.asked[block]})")
                found.add(version)
            # The next life starts from what is there; a block of two versions is as good as its older one.
            self.answered[block] = self.durable[block] = min(found)


def load(client, ledger, own, choose, after_flush):
    """Writes its own blocks, flushing now and then, until the connection breaks."""
    pending = {}
    busy = set()
    try:
        while True:
            while len(pending) < 8:
                what = choose.random()
                if what < 0.1:
                    pending[client.submit(FLUSH)] = ("flush", covered) if (covered := ledger.flush()) else None
                    continue
                block = choose.choice(own)
                if block in busy:
                    break
                busy.add(block)
                fua = what > 0.9
                payload = ledger.write(block)
                pending[client.submit(WRITE, block * BLOCK, BLOCK, payload, FUA if fua else 0)] = ("write", block, fua)
            reply = client.reply()
            equal(reply.error, 0, "a reply's error")
            done = pending.pop(reply.cookie)
            if done[0] == "flush":
                ledger.flushed(done[1])
                after_flush()
            else:
                busy.discard(done[1])
                ledger.written(done[1], done[2])
    except (Closed, ConnectionError, BrokenPipeError):
        pass


def one_life(server, ledger, choose, clients, kill_after_flush):
    """Loads the server until it is killed: just after a flush was answered, or at any moment."""
    connections = [server.connect("disk") for _ in range(clients)]
    flushes_left = choose.randrange(1, 8) if kill_after_flush else None
    once = threading.Lock()

    def after_flush():
        nonlocal flushes_left
        if flushes_left is not None:
            with once:
                flushes_left -= 1
                if flushes_left == 0:
                    server.process.kill()

    def any_moment():
        if flushes_left is None:
            time.sleep(choose.random() * 0.05)
            server.process.kill()

    server.killed = True
    loads = [lambda n=n: load(connections[n], ledger, range(n, BLOCKS, clients), random.Random(choose.random()), after_flush)
             for n in range(clients)]
    at_once(any_moment, *loads)
    server.kill()
    for connection in connections:
        connection.close()


@test(seconds=120)
def fifty_times_kill_9_loses_nothing_that_was_flushed(t):
    image, ledger, choose = t.image("image", BLOCKS * BLOCK), Ledger(), t.random
    for cycle in range(50):
        scheduler = [] if STAND_IN else ["--scheduler", choose.choice(["none", "mq-deadline"])]
        server = t.server(f"disk=file:{image}", args=scheduler)
        one_life(server, ledger, choose, choose.randrange(1, 5), kill_after_flush=cycle % 2 == 0)
        ledger.check(image)
    assert ledger.flushes > 50, f"only {ledger.flushes} flushes were answered: the load was too small to mean anything"


def volatile_device(t, image, number):
    """A file whose device forgets at a power cut what was not flushed; returns its path and the power switch."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        t.skip("there is no /dev/fuse to put a volatile disk under the file")
    socket_path, mount = t.path(f"v{number}"), t.path(f"fuse{number}")
    os.mkdir(mount)
    with open(t.path(f"disk{number}.log"), "wb") as log:
        disk = t.start(sys.executable, ROOT / "tests/e2e/volatile_disk.py", socket_path, image, f"{SEED}{number}", stdout=log)
    until(lambda: os.path.exists(socket_path), "the volatile disk listens")
    fuse = t.start("nbdfuse", mount, f"nbd+unix:///?socket={socket_path}")
    t.defer(subprocess.run, ["umount", "-l", mount], -1, None, None, None, subprocess.DEVNULL)
    until(lambda: os.path.exists(f"{mount}/nbd"), "nbdfuse shows its file")

    def power_cut():
        disk.terminate()
        disk.wait(20)
        end(fuse)
        subprocess.run(["umount", "-l", mount], stderr=subprocess.DEVNULL, check=False)
        return int(Path(t.path(f"disk{number}.log")).read_text().split()[-1])

    return f"{mount}/nbd", power_cut


@test(seconds=120)
def power_cuts_lose_nothing_that_was_flushed(t):
    image, ledger, choose = t.image("image", BLOCKS * BLOCK), Ledger(), t.random
    flushes = 0
    for cycle in range(12):
        file, power_cut = volatile_device(t, image, cycle)
        server = t.server(f"disk=file:{file}")
        one_life(server, ledger, choose, choose.randrange(1, 4), kill_after_flush=cycle % 3 != 0)
        flushes += power_cut()
        ledger.check(image)
    assert ledger.flushes > 12, f"only {ledger.flushes} flushes were answered: the load was too small to mean anything"
    print(f"{ledger.flushes} flushes answered, {flushes} reached the disk")


@test
def a_flush_is_answered_only_when_the_device_below_was_flushed(t):
    image = t.image("image", BLOCKS * BLOCK)
    file, power_cut = volatile_device(t, image, 0)
    server = t.server(f"disk=file:{file}")
    piece = data(MIB)
    with server.connect("disk") as one, server.connect("disk") as other:
        one.write(0, piece)
        other.flush()       # covers what the first connection was answered
        server.kill()
    power_cut()
    equal(Path(image).read_bytes()[:MIB] == piece, True, "the flushed mebibyte is on the disk")


@test(fairlift_only=True)
def a_flush_reaches_the_device_that_was_meant_when_two_share_a_disk(t):
    images = [t.image(name, BLOCKS * BLOCK) for name in ("first", "second")]
    devices = [volatile_device(t, image, number) for number, image in enumerate(images)]
    config = t.path("fairlift.toml")
    exports = (f'[export.{name}]\nbacking = "file:{file}"\ndisk = "one"\n' for name, (file, _) in zip("ab", devices))
    Path(config).write_text('[disk.one]\nscheduler = "mq-deadline"\n' + "".join(exports))
    server = t.server(args=["--config", config])
    piece = data(MIB)
    for name in "ab":
        with server.connect(name) as client:
            client.write(0, piece)
            client.flush()
    server.kill()
    for image, (_, power_cut) in zip(images, devices):
        power_cut()
        equal(Path(image).read_bytes()[:MIB] == piece, True, f"the flushed mebibyte is on {image}")


@test(fairlift_only=True)  # QEMU 7.2 forgets the flush after the very first FUA write: this test found that
def a_write_with_fua_is_answered_only_when_it_is_on_the_device(t):
    image = t.image("image", BLOCKS * BLOCK)
    file, power_cut = volatile_device(t, image, 0)
    server = t.server(f"disk=file:{file}")
    piece = data(64 * KIB)
    with server.connect("disk") as client:
        client.write(128 * KIB, piece, FUA)
        server.kill()
    power_cut()
    equal(Path(image).read_bytes()[128 * KIB:192 * KIB] == piece, True, "the write with FUA is on the disk")


@test(fairlift_only=True)  # QEMU 7.2 forgets the flush after the very first FUA write: this test found that
def zeroes_with_fua_are_answered_only_when_they_are_on_the_device(t):
    image = t.image("image", BLOCKS * BLOCK, (0, data(MIB)))
    file, power_cut = volatile_device(t, image, 0)
    server = t.server(f"disk=file:{file}")
    with server.connect("disk") as client:
        client.zero(0, 64 * KIB, FUA)
        server.kill()
    power_cut()
    equal(Path(image).read_bytes()[:64 * KIB] == bytes(64 * KIB), True, "the zeroes are on the disk")


@test
def the_volatile_disk_does_forget(t):
    """The tests above would prove nothing if the disk below kept what nobody flushed."""
    image = t.image("image", BLOCKS * BLOCK)
    file, power_cut = volatile_device(t, image, 0)
    piece = data(MIB)
    with open(file, "r+b", buffering=0) as out:
        out.write(piece)
    power_cut()
    found = Path(image).read_bytes()[:MIB]
    assert found != piece, "all that was written survived the power cut"
    assert found != bytes(MIB), "nothing that was written survived the power cut"


@test(fairlift_only=True)
def a_graceful_stop_flushes_what_nobody_has_flushed(t):
    image = t.image("image", BLOCKS * BLOCK)
    file, power_cut = volatile_device(t, image, 0)
    server = t.server(f"disk=file:{file}")
    piece = data(MIB)
    with server.connect("disk") as client:
        client.write(0, piece)
    server.stop()
    power_cut()
    equal(Path(image).read_bytes()[:MIB] == piece, True, "all that was answered is on the disk")


if __name__ == "__main__":
    main()
