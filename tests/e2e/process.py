"""The process: killed, with many clients, with little memory. FULL=1: the sizes that docs/measured/process.md publishes; KILLS=10000 and
CONNECTS=1000000 go further."""

import resource

from harness import *
from nbdclient import FLUSH, READ, WRITE, Closed, Wire

KILLS = int(os.environ.get("KILLS") or (500 if FULL else 20))
OVERLAY_KILLS = int(os.environ.get("KILLS") or (200 if FULL else 3))
CONNECTS = int(os.environ.get("CONNECTS") or (100_000 if FULL else 5_000))
IDLE, ACTIVE = (10_000, 1_000) if FULL else (1_000, 100)


def rss(server):
    """Kilobytes."""
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{server.pid}/status").read_text())[1])


# ---- kill -9 under verified load

JOBS, BLOCKS = 4, 64


class Job:
    """A client that writes its blocks, each with a number that rises, and knows what must be there."""

    def __init__(self, number):
        self.number, self.count = number, 0
        self.durable = [0] * BLOCKS   # the number that was flushed last
        self.answered = [0] * BLOCKS  # the number whose write was answered last
        self.newest = [0] * BLOCKS    # the number that was sent last

    def block(self, place, count):
        return b"%02d%06d%012d" % (self.number, place, count) * 204 + bytes(16)

    def work(self, server, random_):
        try:
            with server.connect("disk") as client:
                while True:
                    written = {}
                    for _ in range(random_.randrange(1, 9)):
                        place = random_.randrange(BLOCKS)
                        if place in written:
                            continue
                        self.count += 1
                        self.newest[place] = written[place] = self.count
                        client.submit(WRITE, (self.number * BLOCKS + place) * 4096, 4096, self.block(place, self.count))
                    while client.pending:
                        client.reply()
                    for place, count in written.items():
                        self.answered[place] = count
                    client.flush()
                    for place, count in written.items():
                        self.durable[place] = count
        except (Closed, ConnectionError):
            pass

    def verify(self, server):
        with server.connect("disk") as client:
            self.durable = self.found(client, self.durable, self.newest)
            self.answered = list(self.durable)

    def found(self, client, least, most):
        """What a disk holds of its blocks: of each a write that is none before the least, and none after the most."""
        found = []
        for place in range(BLOCKS):
            piece = client.read((self.number * BLOCKS + place) * 4096, 4096)
            count = int(piece[8:20]) if any(piece) else 0
            if any(piece):
                equal(piece, self.block(place, count), f"block {place} of job {self.number}: one write, whole")
            assert least[place] <= count <= most[place], \
                f"block {place} of job {self.number} holds write {count}; {least[place]} has to be there, {most[place]} was the last"
            found.append(count)
        return found


class Forks:
    """Forks of a disk that are made while it is written and its server is killed: each has what had been answered, and nothing changes it."""

    def __init__(self, t, jobs):
        self.t, self.jobs, self.asked, self.made, self.new, self.holds = t, jobs, 0, 0, {}, {}

    def exports(self):
        return [f"{name}=overlay:top={self.t.path(name)}.top" for name in [*self.new, *self.holds]]

    def work(self, server):
        """Forks the disk until its server is gone, or eight tops lie over each other."""
        while server.process.poll() is None:
            self.asked += 1
            name, least = f"fork{self.asked}", [list(job.answered) for job in self.jobs]
            said = server.control("fork", "disk", name, code=None)
            if f'export "{name}": added' in said:
                self.made += 1
                self.new[name] = least, [list(job.newest) for job in self.jobs]
            elif "8 tops" in said:
                return
            time.sleep(0.02)

    def verify(self, server):
        for name, holds in self.holds.items():
            with server.connect(name) as client:
                equal(client.read(0, len(holds)), holds, f"{name}, which nobody has written since")
        for name, (least, most) in self.new.items():
            with server.connect(name) as client:
                for job, *bounds in zip(self.jobs, least, most):
                    job.found(client, *bounds)
                for place in self.t.random.sample(range(JOBS * BLOCKS), 8):
                    client.write(place * 4096, data(4096, name, place))
                client.flush()
                self.holds[name] = client.read(0, JOBS * BLOCKS * 4096)
        self.new.clear()

    def between(self):
        """No server is there: of the forks four stay, and the disk lies over its base alone once many lie below it."""
        for name in list(self.holds)[:-4]:
            del self.holds[name]
            os.unlink(f"{self.t.path(name)}.top")
        if self.t.random.random() < 0.3:
            self.t.run(BINARY, "overlay", "flatten", self.t.path("disk.top"))


def kills(t, count, backing, forks=None):
    """Kills servers of a disk under load; each next one has what was flushed."""
    jobs = forks.jobs if forks else [Job(number) for number in range(JOBS)]
    began = time.monotonic()
    for kill in range(count):
        args = ["--scheduler", t.random.choice(["none", "mq-deadline", "fair", "bfq"]), "--engine", t.random.choice(["auto", "poll"])]
        server = t.server(f"disk={backing}", *(forks.exports() if forks else []), args=args)
        for one in [*jobs, *([forks] if forks else [])]:
            one.verify(server)

        before = sum(job.count for job in jobs)

        def killer():
            until(lambda: sum(job.count for job in jobs) > before + 20, "there is a load")
            time.sleep(0.02 + 0.08 * t.random.random())
            server.kill()

        at_once(killer, *(lambda job=job: job.work(server, random.Random(f"{SEED}/{kill}/{job.number}")) for job in jobs),
                *([lambda: forks.work(server)] if forks else []))
        if forks:
            forks.between()
    server = t.server(f"disk={backing}", *(forks.exports() if forks else []))
    for one in [*jobs, *([forks] if forks else [])]:
        one.verify(server)
    writes = sum(job.count for job in jobs)
    assert writes > 20 * count, f"only {writes} writes: the load was too small to mean anything"
    seconds = time.monotonic() - began
    figure(f"{count} kills, {writes} writes, {seconds:.1f} s, {seconds / count * 1000:.0f} ms each")


@test(seconds=120 + 2 * KILLS, fairlift_only=True)
def what_was_flushed_is_there_after_each_of_many_kills(t):
    kills(t, KILLS, f"file:{t.image('image', JOBS * BLOCKS * 4096)}")


@test(seconds=120 + 2 * OVERLAY_KILLS, fairlift_only=True)
def what_was_flushed_to_an_overlay_is_there_after_each_of_many_kills(t):
    content = b"".join(job.block(place, 0) for job in map(Job, range(JOBS)) for place in range(BLOCKS))
    base = t.image("base", len(content), (0, content))
    forks = Forks(t, [Job(number) for number in range(JOBS)])
    kills(t, OVERLAY_KILLS, f"overlay:base={base},top={t.path('disk.top')}", forks)
    figure(f"{forks.made} forks")
    equal(Path(base).read_bytes(), content, "the base")


# ---- many clients


def raise_limit(wanted):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < wanted:
        raise Skip(f"a process may have {hard} files open here; this needs {wanted}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


@test(seconds=300 if FULL else 60, fairlift_only=True)
def active_clients_are_served_among_idle_ones_which_hold_no_payload_memory(t):
    raise_limit(IDLE + ACTIVE + 200)
    there = data(MIB)
    server = t.server("disk=mem:64M", args=["--max-connections", str(IDLE + ACTIVE + 10)])
    with server.connect("disk") as client:
        client.write(0, there)
    before, idle = rss(server), []
    for _ in range(IDLE):
        idle.append(server.connect("disk", structured=False))
    each = (rss(server) - before) / IDLE
    assert each < 32, f"an idle connection takes {each:.1f} KiB"
    active = [server.connect("disk", structured=False, timeout=60) for _ in range(ACTIVE)]
    for turn in range(3):
        for number, client in enumerate(active):
            for n in range(4):
                client.submit(READ, (number + n) % 256 * 4096, 4096)
        for number, client in enumerate(active):
            while client.pending:
                reply = client.reply()
                offset = reply.pieces[0][0]
                equal((reply.error, reply.data(offset, 4096)), (0, there[offset:offset + 4096]), "what an active client reads")
    for client in idle[::max(1, IDLE // 50)]:
        equal(client.read(0, 512), there[:512], "what a client reads that was idle")
    figure(f"{IDLE} idle and {ACTIVE} active connections: {rss(server) >> 10} MiB, {each:.1f} KiB for each that is idle")
    for client in idle + active:
        client.close()


@test(seconds=60 + CONNECTS // 100, fairlift_only=True)
def clients_that_come_and_go_leave_nothing_behind(t):
    server = t.server("disk=mem:1M")

    def come_and_go(count, number):
        for n in range(count):
            match (n + number) % 4:
                case 0 | 1:
                    server.connect("disk", structured=False).close()
                case 2:
                    with Wire(server.address) as wire:
                        wire.receive(18)
                case _:
                    with server.connect("disk", structured=False) as client:
                        client.submit(READ, 0, 4096)

    at_once(*(lambda number=number: come_and_go(CONNECTS // 20, number) for number in range(4)))
    files, memory = server.fds_at_rest(), rss(server)
    began = time.monotonic()
    at_once(*(lambda number=number: come_and_go(CONNECTS // 5, number) for number in range(4)))
    seconds = time.monotonic() - began
    server.fds_settle(files)
    grown = rss(server) - memory
    figure(f"{CONNECTS} connections in {seconds:.1f} s: {grown} KiB more than after the first fifth")
    assert grown < 2048, f"{CONNECTS} connections have left {grown} KiB"
    server.serves("disk")


# ---- little memory


@test(fairlift_only=True)
def a_request_for_which_the_kernel_has_no_memory_fails_and_the_server_goes_on(t):
    server = t.server("a=mem:64m", "b=mem:1m", args=["--workers", "1"])
    with server.connect("a") as client, server.connect("b") as other:
        client.write(0, data(MIB))
        other.write(0, data(MIB))
        before = resource.prlimit(server.pid, resource.RLIMIT_AS)
        size = int(Path(f"/proc/{server.pid}/statm").read_text().split()[0]) * resource.getpagesize()
        resource.prlimit(server.pid, resource.RLIMIT_AS, (size + 16 * MIB, before[1]))
        with refused(errno.ENOMEM):
            client.read(0, 32 * MIB)
        with refused(errno.ENOMEM):
            client.write(0, bytes(32 * MIB))
        equal(client.read(0, MIB) == data(MIB), True, "what was written before")
        equal(other.read(0, MIB) == data(MIB), True, "what another client wrote")
        server.says("a request fails")
        resource.prlimit(server.pid, resource.RLIMIT_AS, before)
        equal(len(client.read(0, 32 * MIB)), 32 * MIB, "bytes, once there is memory")


@test(fairlift_only=True)
def a_server_keeps_within_its_stated_memory_whatever_clients_ask(t):
    # What it has at rest, `memory`, and what docs/reliability.md states beside it: 16 MiB of receive buffers for each worker, and replies.
    group = cgroup(t)
    server = t.server("disk=null:1g", config='[server]\nmemory = "64m"\nconnection_memory = "8m"\nrequest_max = "1m"\nworkers = 2\n')
    with server.connect("disk") as client:
        client.read(0, 512)
    at_rest = rss(server) << 10
    bound = at_rest + 64 * MIB + 2 * 16 * MIB
    limit = bound + bound // 10
    Path(f"{group}/cgroup.procs").write_text(str(server.pid))
    Path(f"{group}/{LIMIT[os.path.exists(group + '/memory.max')]}").write_text(str(limit))

    def greedy(number):
        with server.connect("disk", timeout=60) as client:
            for _ in range(12):
                for n in range(16):
                    if (n + number) % 2:
                        client.submit(WRITE, n * MIB, MIB, bytes(MIB))
                    else:
                        client.submit(READ, n * MIB, MIB)
                while client.pending:
                    equal(client.reply().error, 0, "the error of a request while memory is short")

    at_once(*(lambda number=number: greedy(number) for number in range(24)))
    peak = int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{server.pid}/status").read_text())[1])
    figure(f"{at_rest >> 20} MiB at rest, {peak >> 10} MiB at most, {bound >> 20} MiB stated, {limit >> 20} MiB allowed")
    assert peak << 10 <= bound, f"the server had {peak >> 10} MiB, and states {bound >> 20}"
    with server.connect("disk") as client:
        client.read(0, MIB)


LIMIT = {True: "memory.max", False: "memory.limit_in_bytes"}


def cgroup(t):
    """A cgroup of our own with a limit of memory, version 2 or 1."""
    for place in "/sys/fs/cgroup", "/sys/fs/cgroup/memory":
        group = f"{place}/fairlift-test-{os.getpid()}"
        try:
            os.mkdir(group)
        except OSError:
            continue
        if any(os.path.exists(f"{group}/{name}") for name in LIMIT.values()):
            t.defer(lambda: until(lambda: remove(group), "the cgroup goes"))
            return group
        os.rmdir(group)
    t.skip("no cgroup with a limit of memory can be made here (root is needed)")


def remove(group):
    with contextlib.suppress(OSError):
        os.rmdir(group)
    return not os.path.exists(group)


if __name__ == "__main__":
    main()
