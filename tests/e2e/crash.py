"""kill -9 and power cuts under fio and under SQLite: nothing that they were told to be durable is lost.

What must be there is kept by the clients, outside of what the server and the disk below it can reach. FULL=1: 100 crashes
of each kind, else 10. In every other crash the disk below loses its power too, with all that was not flushed to it.
"""

import sqlite3

from control import Control
from flush_disk import Disk
from harness import *
from metrics import samples, scrape
from nbdclient import FLUSH, WRITE, Closed

CYCLES = 100 if FULL else 10
SECONDS = 1200 if FULL else 240


def backing(t, cycle, name, size):
    """What the server serves in this life, and what cuts its power; the same bytes in every life."""
    if cycle % 2 == 0:
        return t.path(f"{name}.img"), lambda: None
    disk = Disk(t, name, size)
    return disk.file, disk.power_cut


def connections(server):
    """How many clients are connected to a server, as the kernel counts the sockets that have its name."""
    names = (line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines())
    return sum(name == server.socket for name in names) - 1


def flushes(server):
    """How many flushes it has answered."""
    found = samples(scrape(Control(server.t, server))[0])
    return sum(value for (name, labels), value in found.items() if name == "fairlift_operations_total" and 'operation="flush"' in labels)


# ---- fio


JOBS, REGION = 4, 8 * MIB


def pattern(cycle):
    """What every block holds that is written in this life: its offset, and whose life it is."""
    return f"0x{SEED % 1000 * 1000 + cycle + 1:08x}%o"


def fio_writes(t, server, cycle):
    """Four jobs that write 4 KiB and flush; returns how many writes of each are durable."""
    out = t.path("fio.json")
    with open(out, "wb") as file:
        fio = t.start("fio", "--name=w", "--ioengine=nbd", f"--uri={server.uri('disk')}", "--rw=write", "--bs=4k",
                      f"--size={REGION}", f"--offset_increment={REGION}", f"--numjobs={JOBS}", "--thread", "--fsync=1",
                      "--iodepth=1", "--verify=pattern", f"--verify_pattern={pattern(cycle)}", "--do_verify=0",
                      "--output-format=json", stdout=file, stderr=subprocess.STDOUT, cwd=t.dir)

    return fio, lambda: durable(Path(out).read_text())


def durable(text):
    """How many writes of each job fio was told to be durable: those before the first that failed.

    Not what fio counts, which goes on for some operations after the first that failed.
    """
    jobs = json.loads(text[text.index("{\n"):])["jobs"]
    counts = [0 if job["error"] else REGION // 4096 for job in jobs]
    found = {}
    for number, what, offset in re.findall(r"io_u error on file w\.(\d+)\.0: [^:]*: (\w+) offset=(\d+)", text):
        number, block = int(number), (int(offset) - int(number) * REGION) // 4096
        found[number] = min(found.get(number, block), block if what == "write" else 0)
    return [found.get(number, count) for number, count in enumerate(counts)]


def fio_verifies(t, server, cycle, counts, must_fail=False):
    jobs = "".join(f"[w{number}]\noffset={number * REGION}\nsize={count * 4096}\n" for number, count in enumerate(counts) if count)
    if not jobs:
        return
    head = (f"[global]\nioengine=nbd\nuri={server.uri('disk')}\nrw=write\nbs=4k\nthread\niodepth=1\n"
            f"verify=pattern\nverify_pattern={pattern(cycle)}\nverify_only\nverify_fatal=1\n")
    Path(t.path("verify.fio")).write_text(head + jobs)
    out = t.run("fio", t.path("verify.fio"), code=None if must_fail else 0, cwd=t.dir)
    equal("verify failed" in out or "Bad pattern" in out or "got pattern" in out, must_fail, "whether fio finds what it did not write")


@test(seconds=SECONDS)
def what_fio_was_told_to_be_durable_survives_kill_9_and_power_cuts(t):
    t.image("fio.img", JOBS * REGION)
    told = 0
    for cycle in range(CYCLES):
        file, power_cut = backing(t, cycle, "fio", JOBS * REGION)
        args = [] if STAND_IN else ["--scheduler", t.random.choice(["none", "mq-deadline"])]
        server = t.server(f"disk=file:{file}", args=args)
        fio, counts = fio_writes(t, server, cycle)
        until(lambda: connections(server) >= JOBS and (STAND_IN or flushes(server) > 60), "fio writes")
        time.sleep(t.random.random() * 0.8)
        server.kill()
        fio.wait(60)
        power_cut()
        counts = counts()
        told += sum(counts)
        file, cut = backing(t, cycle, "fio", JOBS * REGION)
        server = t.server(f"disk=file:{file}", args=args)
        fio_verifies(t, server, cycle, counts)
        if cycle == 0:  # fio does look: what it has not written is not as it would be
            fio_verifies(t, server, cycle + 1, counts, must_fail=True)
        server.kill()
        cut()
        print(f"cycle {cycle}: {counts}", flush=True)
    # Sixty flushes were answered in each life; of a job whose flush was under way at the end nothing is counted.
    assert told > 10 * CYCLES, f"only {told} writes were durable: the load was too small to mean anything"
    print(f"{told} durable writes in {CYCLES} crashes")


# ---- SQLite on ext4


class FileSystem:
    """The export as a loop device with ext4 on it, through nbdfuse."""

    def __init__(self, t, server, export, make=False):
        self.t, self.fuse, self.mount = t, t.path("client"), t.path("mnt")
        for place in self.fuse, self.mount:
            os.makedirs(place, exist_ok=True)
        self.process = t.start("nbdfuse", self.fuse, server.uri(export))
        until(lambda: self.process.poll() is not None or os.path.exists(f"{self.fuse}/nbd"), "nbdfuse shows its file")
        out = t.run("losetup", "-f", "--show", f"{self.fuse}/nbd", code=None).strip()
        if not out.startswith("/dev/"):
            t.skip(f"no loop device to be had: {out}")
        self.loop = out
        t.defer(self.let_go)
        if make:
            t.run("mkfs.ext4", "-q", "-F", "-J", "size=4", out)
        t.run("mount", "-t", "ext4", out, self.mount)
        t.defer(subprocess.run, ["umount", "-l", self.mount], -1, None, None, None, subprocess.DEVNULL)

    def let_go(self):
        """Once: after that a loop device of this number may be another test's."""
        if self.loop:
            subprocess.run(["losetup", "-d", self.loop], stderr=subprocess.DEVNULL)
            self.loop = None

    def detach(self):
        """In order, or what is left of it after a crash."""
        until(lambda: subprocess.run(["umount", self.mount], capture_output=True).returncode == 0, f"umount {self.mount}")
        self.let_go()
        until(lambda: subprocess.run(["umount", "-l", self.fuse], capture_output=True).returncode == 0, f"umount {self.fuse}")
        end(self.process)


WRITER = """
import hashlib, sqlite3, sys
path, acknowledged, mode = sys.argv[1:]
base = sqlite3.connect(path, timeout=30, isolation_level=None)
base.execute(f"PRAGMA journal_mode={mode}")
base.execute("PRAGMA synchronous=FULL")
if mode == "DELETE":
    base.execute("PRAGMA synchronous=EXTRA")
base.execute("CREATE TABLE IF NOT EXISTS log (n INTEGER PRIMARY KEY, body BLOB)")
n = base.execute("SELECT coalesce(max(n), 0) FROM log").fetchone()[0]
with open(acknowledged, "a", buffering=1) as told:
    while True:
        n += 1
        body = hashlib.sha256(str(n).encode()).digest() * (1 + n % 200)
        base.execute("BEGIN")
        base.execute("INSERT INTO log VALUES (?, ?)", (n, body))
        base.execute("COMMIT")
        told.write(f"{n}\\n")
"""

BASES = [("wal", "WAL"), ("delete", "DELETE"), ("truncate", "TRUNCATE")]


def acknowledged(t, name):
    """The last transaction that the writer was told to be committed."""
    path = Path(t.path(f"{name}.told"))
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return int(lines[-1]) if lines else 0


def check_base(t, mount, name):
    """All that was committed is there, and nothing else but the transaction after it; returns how many are there."""
    told, path = acknowledged(t, name), f"{mount}/{name}.db"
    if not os.path.exists(path):
        equal(told, 0, f"transactions of {name}, whose file is gone")
        return 0
    base = sqlite3.connect(path, timeout=30)
    equal(base.execute("PRAGMA integrity_check").fetchall(), [("ok",)], f"what SQLite says of {name}")
    rows = base.execute("SELECT n, body FROM log ORDER BY n").fetchall() if base.execute(
        "SELECT count(*) FROM sqlite_master").fetchone()[0] else []
    base.close()
    equal([n for n, _ in rows], list(range(1, len(rows) + 1)), f"the transactions in {name}")
    assert told <= len(rows), f"{name} holds {len(rows)} transactions, but {told} were acknowledged"
    for n, body in rows:
        if body != hashlib.sha256(str(n).encode()).digest() * (1 + n % 200):
            raise AssertionError(f"transaction {n} of {name} holds something else")
    # What is there now is durable, though it was not acknowledged: the next life counts from it.
    Path(t.path(f"{name}.told")).write_text(f"{len(rows)}\n")
    return len(rows)


def storm(server):
    """Writes and flushes on another part of the same file, so that flushes are shared, until the server is gone."""
    client = server.connect("other")
    try:
        while True:
            for number in range(4):
                client.submit(WRITE, number * 4096, 4096, data(4096, number))
                client.submit(FLUSH)
            for _ in range(8):
                client.reply()
    except (Closed, ConnectionError, BrokenPipeError):
        client.close()


@test(seconds=SECONDS, fairlift_only=True)
def what_sqlite_has_committed_on_ext4_survives_kill_9_and_power_cuts(t):
    if os.geteuid() != 0 or not os.path.exists("/dev/loop-control") or not os.access("/dev/fuse", os.R_OK | os.W_OK):
        t.skip("this needs root, /dev/fuse and /dev/loop-control")
    size = 40 * MIB
    t.image("sqlite.img", size)
    commits = 0
    for cycle in range(CYCLES + 1):
        file, power_cut = backing(t, cycle, "sqlite", size)
        config = f'[disk.one]\nscheduler = "{t.random.choice(["none", "mq-deadline"])}"\n' + "".join(
            f'[export.{name}]\nbacking = "file:{file}"\ndisk = "one"\noffset = "{offset}"\nsize = "{length}"\n'
            for name, offset, length in (("fs", "0", "32m"), ("other", "32m", "8m")))
        server = t.server(config=config)
        fs = FileSystem(t, server, "fs", make=cycle == 0)
        found = {name: check_base(t, fs.mount, name) for name, _ in BASES}
        print(f"cycle {cycle}: {found}", flush=True)
        if cycle == CYCLES:
            fs.detach()
            server.stop()
            power_cut()
            break
        if max(found.values()) > 2000:  # so that it does not fill up
            for name, _ in BASES:
                for file_ in Path(fs.mount).glob(f"{name}.db*"):
                    file_.unlink()
                Path(t.path(f"{name}.told")).write_text("")
            os.sync()
            found = dict.fromkeys(found, 0)
        writers = [t.start(sys.executable, "-c", WRITER, f"{fs.mount}/{name}.db", t.path(f"{name}.told"), mode,
                           stderr=subprocess.DEVNULL) for name, mode in BASES]
        storms = [threading.Thread(target=storm, args=(server,), daemon=True) for _ in range(2)]
        for one in storms:
            one.start()
        until(lambda: sum(acknowledged(t, name) - found[name] for name, _ in BASES) > 12, "SQLite commits")
        time.sleep(t.random.random() * 0.8)
        server.kill()
        power_cut()
        for writer in writers:
            writer.wait(60)
        for one in storms:
            one.join(20)
        commits += sum(max(0, acknowledged(t, name) - found[name]) for name, _ in BASES)
        fs.detach()
    assert commits > 10 * CYCLES, f"only {commits} transactions were committed: the load was too small to mean anything"
    print(f"{commits} commits in {CYCLES} crashes")


if __name__ == "__main__":
    main()
