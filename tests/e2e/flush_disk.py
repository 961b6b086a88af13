"""A file on a disk with a volatile cache, for tests of flushes."""

from harness import *


class Disk:
    """A file on a disk with a volatile cache (volatile_disk.py), whose flushes a test makes fail, hang, and counts."""

    def __init__(self, t, name="disk", size=4 * MIB, **environment):
        if not os.access("/dev/fuse", os.R_OK | os.W_OK):
            t.skip("there is no /dev/fuse to put a disk under the file")
        self.image = t.path(f"{name}.img")
        if not os.path.exists(self.image):
            t.image(f"{name}.img", size)
        self.fail, self.hang, self.counter = (Path(t.path(f"{name}.{what}")) for what in ("fail", "hang", "told"))
        below, self.mount, log = t.path(f"{name}.s"), t.path(f"{name}.fuse"), t.path(f"{name}.log")
        Path(below).unlink(missing_ok=True)
        self.counter.unlink(missing_ok=True)
        os.makedirs(self.mount, exist_ok=True)
        faults = {"FAIL_FLUSH": str(self.fail), "HANG_FLUSH": str(self.hang), "TOLD": str(self.counter)}
        with open(log, "wb") as out:
            self.process = t.start(sys.executable, ROOT / "tests/e2e/volatile_disk.py", below, self.image,
                                   t.random.getrandbits(32), stdout=out, env={**os.environ, **faults, **environment})
        until(lambda: os.path.exists(below), "the disk listens")
        self.fuse = t.start("nbdfuse", self.mount, f"nbd+unix:///?socket={below}")
        t.defer(subprocess.run, ["umount", "-l", self.mount], -1, None, None, None, subprocess.DEVNULL)
        t.defer(self.hang.unlink, True)  # before the server's end, which would wait for the disk
        self.file = f"{self.mount}/nbd"
        until(lambda: os.path.exists(self.file), "nbdfuse shows its file")

    def told(self):
        """How many flushes it was told, answered or not."""
        return int(self.counter.read_text()) if self.counter.exists() else 0

    def power_cut(self):
        self.process.terminate()
        self.process.wait(60)
        end(self.fuse)
        subprocess.run(["umount", "-l", self.mount], stderr=subprocess.DEVNULL, check=False)
