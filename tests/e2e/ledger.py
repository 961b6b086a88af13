"""What must be on a disk after a crash, kept by those who ask; and a disk that forgets what was not flushed."""

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
        disk.wait(60)
        end(fuse)
        subprocess.run(["umount", "-l", mount], stderr=subprocess.DEVNULL, check=False)
        return int(Path(t.path(f"disk{number}.log")).read_text().split()[-1])

    return f"{mount}/nbd", power_cut
