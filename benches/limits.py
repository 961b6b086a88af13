#!/usr/bin/env python3
"""How exact are limits, how smooth, and what do they cost? Live: NBD clients on a unix socket, release builds.

    benches/limits.py ceilings    10 to 300,000 I/Os and 1 MB to 1 GB a second, depth 1 and 64, one connection and eight, two workers
    benches/limits.py engine      up to 500,000 I/Os and 5 GB a second, without sockets: `fairlift iostest` on null:
    benches/limits.py peers       the same limits beside QEMU throttle groups and nbdkit's rate filter, in turn
    benches/limits.py cpu         what a limit costs that binds nothing: CPU time of a request, in turn; --count: instructions
    benches/limits.py bursts      ten times the rate for 5 s, once a minute
    benches/limits.py floors      on a real disk, beside eight neighbours: one floor, two of them, one on a parent of three
    benches/limits.py sandboxes   two tenants of one real disk: each alone, together at 50/50, and at 1:3
    benches/limits.py changes     1,000 changes of limits a second, while a client writes and checks what it reads

    --dir DIR      where images of `floors` and `sandboxes` go [target/bench-limits]       --seconds S    of a run

A window is any time of its length that begins at a multiple of 100 ms; `worst second` is the one that is furthest from the limit, after
the first half second. `gap` is the longest time in which the client had no reply. `undone`: how much less was done than the limit
allows. Needs a C compiler; `peers` needs qemu-storage-daemon and nbdkit.
"""

import argparse
import http.client
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PEERS = Path(os.environ.get("W") or f"{os.environ.get('TMPDIR', '/tmp')}/fairlift-peers")
FAIRLIFT = os.environ.get("FAIRLIFT") or f"{os.environ.get('CARGO_TARGET_DIR', ROOT / 'target')}/release/fairlift"
LOAD = PEERS / "bin/nbdload"
WARM_UP = 0.5
SLOT = 0.1
PLACE = tempfile.TemporaryDirectory(prefix="fairlift-limits-")
SHAPES = ((1, 1), (1, 64), (8, 1), (8, 8))  # connections, depth of each


class Server:
    """A process that serves NBD on a unix socket, until it is ended."""

    def __init__(self, argv, name):
        self.socket = f"{PLACE.name}/{name}"
        self.log = open(f"{PLACE.name}/{name}.log", "wb")
        argv = [str(word).replace("SOCKET", self.socket) for word in argv]
        self.process = subprocess.Popen(argv, stdout=self.log, stderr=self.log)
        for _ in range(1000):
            if os.path.exists(self.socket):
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.01)
        sys.exit(f"{' '.join(argv)}:\n{Path(self.log.name).read_text()}")

    def load(self, conns, depth, *more, export="a", bs=4096, rw="randread", seconds, warm_up=WARM_UP, interval=SLOT, threads=1):
        argv = [LOAD, "--uri", f"nbd+unix:///{export}?socket={self.socket}", "--conns", conns, "--depth", depth, "--bs", bs, "--rw", rw,
                "--seconds", seconds, "--warmup", warm_up, "--interval", 1000 * interval, "--threads", threads,
                "--server-pid", self.process.pid, *more]
        return subprocess.Popen(list(map(str, argv)), stdout=subprocess.PIPE, text=True)

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        if os.path.exists(self.socket):
            os.unlink(self.socket)
        self.log.close()


def fairlift(config, *flags, name="f", wrap=()):
    path = Path(f"{PLACE.name}/{name}.toml")
    path.write_text(config)
    control = ("--control", "unix:SOCKET.control")
    return Server([*wrap, FAIRLIFT, "serve", "--config", path, "--listen", "unix:SOCKET", *control, "--workers", "2", *flags], name)


def null(scheduler, limits="", backing="null:4g"):
    return fairlift(f'[export.a]\nbacking = "{backing}"\ngroup = "/a"\n[group."/a"]\n{limits}\n', "--scheduler", scheduler)


class Run:
    """What a client counted: at which times it had done how much, and the whole."""

    def __init__(self, client):
        *slots, self.whole = [json.loads(line) for line in client.communicate()[0].splitlines()]
        if self.whole["io_errors"] or self.whole["conns_lost"] or client.returncode:
            sys.exit(f"{self.whole['uri']}: failed: {self.whole}")
        self.points = [(slots[0]["at_ms"] / 1000 - SLOT, 0.0)] if slots else []
        for slot in slots:
            at = slot["at_ms"] / 1000
            self.points.append((at, self.points[-1][1] + slot["iops"] * (at - self.points[-1][0])))

    def windows(self, length):
        """I/Os a second in every window of a length, by 100 ms."""
        n = round(length / SLOT)
        return [(b - a) / (t - s) for (s, a), (t, b) in zip(self.points, self.points[n:])]

    def worst(self, length, due):
        """How far the window is off that is furthest, in percent."""
        return max((rate / due - 1 for rate in self.windows(length)), key=abs, default=float("nan")) * 100

    @property
    def iops(self):
        return self.whole["iops"]

    @property
    def cpu(self):
        return self.whole["server"]["cpu_us_per_io"]


def row(*cells):
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def head(*cells):
    row(*cells)
    print("|" + "---|" * len(cells))


def amount(limit, bs):
    """`riops=3000`, or `rbps=…` of as many reads."""
    return f"{limit:,} IOPS" if bs is None else f"{limit / 1e6:,.0f} MB/s"


def ceilings(a):
    loads = [(limit, None) for limit in (10, 100, 3_000, 30_000, 100_000, 300_000)]
    loads += [(limit, bs) for limit, bs in ((1_000_000, 4096), (100_000_000, 65536), (1_000_000_000, 262144))]
    head("limit", "scheduler", "connections x depth", "had", "undone", "worst second", "worst 100 ms", "gap, ms", "CPU, us/IO")
    for scheduler in a.schedulers.split(","):
        free = {}
        for bs in (None, 65536, 262144):
            server = null(scheduler)
            for shape in SHAPES:
                free[bs, shape] = Run(server.load(*shape, bs=bs or 4096, seconds=0.6)).iops
            server.end()
        row("none", scheduler, "; ".join(f"{c}x{d}" for c, d in SHAPES), "; ".join(f"{free[None, s]:,.0f}" for s in SHAPES), "", "", "", "", "")
        for limit, bs in loads:
            due = limit if bs is None else limit / bs
            server = null(scheduler, f'max = "{"riops" if bs is None else "rbps"}={limit}"')
            for shape in SHAPES:
                if free[bs if bs != 4096 else None, shape] < 1.1 * due:
                    continue
                run = Run(server.load(*shape, bs=bs or 4096, seconds=a.seconds or 2.2))
                second = f"{run.worst(1, due):+.2f} %"
                row(amount(limit, bs), scheduler, f"{shape[0]}x{shape[1]}", f"{run.iops:,.1f}/s", f"{max(0, 1 - run.iops / due) * 100:.2f} %", second,
                    f"{run.worst(SLOT, due):+.1f} %", f"{run.whole['gap_max_ms']:.2f}", f"{run.cpu:.1f}")
            server.end()


def engine(a):
    head("limit", "scheduler", "groups x depth", "of bytes", "had", "worst second")
    for limit, bs, groups, depth in (
        ("riops=30000", 4096, 1, 1), ("riops=100000", 4096, 1, 1), ("riops=100000", 4096, 1, 64), ("riops=500000", 4096, 1, 64), ("riops=500000", 4096, 8, 64),
        ("rbps=1000000000", 1 << 20, 1, 64), ("rbps=5000000000", 1 << 20, 1, 1), ("rbps=5000000000", 1 << 20, 1, 64), ("rbps=5000000000", 1 << 18, 8, 64),
    ):
        for scheduler in a.schedulers.split(","):
            seconds = a.seconds or 6  # 60 slots
            argv = [FAIRLIFT, "iostest", "null:64g", "--scheduler", scheduler, "-w", "drr", "--jobs", "1", "--bs", bs, "--filesize", "1g",
                    "--nrgrp", groups, "--max", f"/={limit}", "--runtime", seconds, "--json", "-", "--iodepth", depth]
            run = json.loads(subprocess.run(list(map(str, argv)), capture_output=True, text=True, check=True).stdout)["runs"][0]
            name, due = limit.split("=")
            due = int(due) * (bs if name == "riops" else 1)
            slots = [sum(slot) for slot in run["timeline"]]
            slot, n = run["runtime_s"] / len(slots), round(1 / (run["runtime_s"] / len(slots)))
            seconds_of = [sum(slots[i:i + n]) / (n * slot) for i in range(5, len(slots) - n + 1)]
            worst = max((rate / due - 1 for rate in seconds_of), key=abs) * 100
            row(limit, scheduler, f"{groups}x{depth}", bs, f"{statistics.mean(seconds_of) / bs:,.0f}/s, {statistics.mean(seconds_of) / 1e6:,.0f} MB/s", f"{worst:+.2f} %")


def throttled(limits):
    group = json.dumps({"qom-type": "throttle-group", "id": "g", "limits": limits})
    return Server(["qemu-storage-daemon", "--object", group, "--blockdev", "null-co,node-name=n,size=4294967296,read-zeroes=on",
                   "--blockdev", "throttle,node-name=t,throttle-group=g,file=n", "--nbd-server", "addr.type=unix,addr.path=SOCKET,max-connections=64",
                   "--export", "nbd,id=e,node-name=t,name=a,writable=on"], "qemu")


def rated(bits):
    return Server(["nbdkit", "-f", "-U", "SOCKET", "--filter=rate", "null", "4G", f"rate={bits}"], "nbdkit")


def peers(a):
    head("limit", "connections x depth", "server", "had", "worst 100 ms", "worst second", "worst 10 s", "gap, ms", "CPU, us/IO")
    for limit, bs, shape in ((3_000, None, (1, 64)), (30_000, None, (8, 8)), (100_000_000, 65536, (1, 16))):
        due, rate = (limit, f"riops={limit}") if bs is None else (limit / bs, f"rbps={limit}")
        servers = {
            "fairlift, none": lambda: null("none", f'max = "{rate}"'),
            "fairlift, fair": lambda: null("fair", f'max = "{rate}"'),
            "QEMU": lambda: throttled({"iops-read" if bs is None else "bps-read": limit}),
            "nbdkit": lambda: rated(8 * limit if bs else 8 * 4096 * limit),
        }
        runs = {name: [] for name in servers}
        for _ in range(a.reps):
            for name, start in servers.items():
                server = start()
                runs[name].append(Run(server.load(*shape, bs=bs or 4096, seconds=a.seconds or 10.4)))
                server.end()
        for name, some in runs.items():
            off = [f"{max((run.worst(length, due) for run in some), key=abs):+.2f} %" for length in (SLOT, 1, 10)]
            row(amount(limit, bs), f"{shape[0]}x{shape[1]}", name, f"{statistics.median(run.iops for run in some):,.1f}/s", *off,
                f"{max(run.whole['gap_max_ms'] for run in some):.2f}", f"{statistics.median(run.cpu for run in some):.1f}")


def cpu(a):
    """A limit that is never reached: all that it costs is to look."""
    two = 'max = "riops=100000000 rbps=900g"'
    sides = {"no limit": "", "a limit": 'max = "riops=100000000"', "two rates and one on /": f'{two}\n[group."/"]\nmax = "iops=200000000"'}
    for scheduler in a.schedulers.split(","):
        if a.count:
            head("scheduler", "limits", "instructions of a read in the server")
            for name, limits in sides.items():
                row(scheduler, name, f"{counted(scheduler, limits):,.0f}")
            continue
        head("scheduler", "limits", "connections x depth", "CPU, us/IO (runs)", "beside no limit, median of pairs")
        for shape in ((1, 1), (8, 8)):
            runs = {name: [] for name in sides}
            for _ in range(a.reps):
                for name, limits in sides.items():
                    server = null(scheduler, limits)
                    runs[name].append(Run(server.load(*shape, seconds=a.seconds or 1.5)).cpu)
                    server.end()
            for name, some in runs.items():
                pairs = [x / y - 1 for x, y in zip(some, runs["no limit"])]
                row(scheduler, name, f"{shape[0]}x{shape[1]}", f"{statistics.median(some):.2f} ({min(some):.2f} to {max(some):.2f})", f"{statistics.median(pairs) * 100:+.1f} %")


def counted(scheduler, limits):
    """Instructions of a read, by callgrind: those of a load that comes after another one."""
    out, path = f"{PLACE.name}/callgrind", Path(f"{PLACE.name}/c.toml")
    path.write_text(f'[export.a]\nbacking = "null:4g"\ngroup = "/a"\n[group."/a"]\n{limits}\n')
    server = Server(["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", FAIRLIFT, "serve", "--config", path, "--listen", "unix:SOCKET",
                     "--control", "off", "--workers", "1", "--scheduler", scheduler], "c")
    tell = lambda flag: subprocess.run(["callgrind_control", flag, str(server.process.pid)], check=True, capture_output=True, timeout=60)
    load = lambda seconds: Run(server.load(1, 32, seconds=seconds, warm_up=0)).whole["all"]["n"]
    time.sleep(2)  # it is slow: the socket is there before somebody listens
    load(0.5)
    tell("-z")
    count = load(2.5)
    tell("-d")
    time.sleep(1)
    server.process.kill()  # it would not end for a long time
    server.process.wait()
    os.unlink(server.socket)
    dumps = [file.read_text() for file in Path(PLACE.name).glob("callgrind*")]
    [file.unlink() for file in Path(PLACE.name).glob("callgrind*")]
    return max(int(line.split()[1]) for text in dumps for line in text.splitlines() if line.startswith(("totals:", "summary:"))) / count


def bursts(a):
    server = null(a.schedulers.split(",")[0], 'max = { riops = 1000 }\nburst = { riops = 10000, seconds = 5 }')
    head("burst", "in 1 s", "in 5 s", "in 10 s: 55,000 and the tolerance, 50 + 5 + 1", "worst second of the burst", "worst second after it")
    for number in range(a.reps):
        began = time.monotonic()
        run = Run(server.load(1, 64, seconds=10.05, warm_up=0, interval=SLOT))
        start = run.points[0][0]
        done = lambda until: max(count for at, count in run.points if at <= start + until + 0.03)
        burst, after = run.windows(1)[:39], run.windows(1)[52:]
        far = lambda some, due: f"{max((x / due - 1 for x in some), key=abs) * 100:+.2f} %"
        row(number + 1, f"{done(1):,.0f}", f"{done(5):,.0f}", f"{done(10):,.0f}", far(burst, 10_000), far(after, 1_000))
        if number + 1 < a.reps:
            time.sleep(max(0, began + 60 - time.monotonic()))
    server.end()


def images(a, count):
    a.dir.mkdir(parents=True, exist_ok=True)
    files = [a.dir / f"image-{i}" for i in range(count)]
    for file in files:
        if not file.exists():
            subprocess.run(["dd", "if=/dev/urandom", f"of={file}", "bs=1M", "count=128", "conv=fsync", "status=none"], check=True)
        subprocess.run(["dd", f"if={file}", "of=/dev/null", "bs=1M", "iflag=direct", "status=none"], check=True)
    return files


def disk(files, groups, limits="", scheduler="fair", name="d"):
    """Exports t0, t1, … in these groups, on one disk."""
    text = f'[disk.d]\nscheduler = "{scheduler}"\n{limits}\n'
    for n, (file, group) in enumerate(zip(files, groups)):
        text += f'[export.t{n}]\nbacking = "file:{file}"\ndisk = "d"\ngroup = "{group}"\n'
    return fairlift(text, name=name)


def together(server, count, seconds, bs, depth=32):
    """Runs of all tenants at once."""
    clients = [server.load(1, depth, export=f"t{n}", bs=bs, seconds=seconds, warm_up=1.5, interval=SLOT) for n in range(count)]
    return [Run(client) for client in clients]


def floors(a):
    bs, seconds = a.bs, a.seconds or 6
    files = images(a, 9)
    nine = [f"/t{n}" for n in range(9)]

    def measured(groups, limits):
        server = disk(files, groups, limits)
        runs = together(server, len(groups), seconds, bs)
        server.end()
        return runs

    head("floors, of the disk", "disk, all", "group", "floor", "had, mean", "least second", "the others, least to most")
    total = 0

    def show(what, groups, limits, wanted):
        runs = measured(groups, limits)
        done = sum(run.iops for run in runs)
        members = {at for some, _ in wanted.values() for at in some}
        rest = [run.iops for n, run in enumerate(runs) if n not in members]
        for group, (some, floor) in wanted.items():
            seconds_of = [sum(rates) for rates in zip(*[runs[n].windows(1) for n in some])]
            row(what, f"{done:,.0f}", group, f"{floor:,.0f}" if floor else "weight", f"{statistics.mean(seconds_of):,.0f}", f"{min(seconds_of):,.0f}" + (f" ({min(seconds_of) / floor * 100:.1f} %)" if floor else ""),
                f"{min(rest):,.0f} to {max(rest):,.0f}")
        return done

    total = show("none", nine, "", {"/t0": ([0], 0)})
    total = statistics.mean([total, show("none", nine, "", {"/t0": ([0], 0)})])
    fifth, eighth, half = round(total * 0.2), round(total * 0.125), round(total * 0.5)
    show("20 %", nine, f'[group."/t0"]\nmin = "riops={fifth}"', {"/t0": ([0], fifth)})
    show("20 %, 12.5 %, weights 300, 100", nine, f'[group."/t0"]\nmin = "riops={fifth}"\n[group."/t1"]\nmin = "riops={eighth}"\n[group."/t2"]\nweight = 300',
         {"/t0": ([0], fifth), "/t1": ([1], eighth), "/t2, weight 300": ([2], 0)})
    tree = ["/p/0", "/p/1", "/p/2"] + nine[3:]
    show("50 % on a parent of three", tree, f'[group."/p"]\nmin = "riops={half}"\n[group."/p/1"]\nweight = 200\n[group."/p/2"]\nweight = 300',
         {"/p": ([0, 1, 2], half), "/p/0": ([0], 0), "/p/1": ([1], 0), "/p/2": ([2], 0)})
    show("none", nine, "", {"/t0": ([0], 0)})


def sandboxes(a):
    bs, seconds, files = a.bs, a.seconds or 5, images(a, 2)
    rounds = []
    for _ in range(a.reps):
        rates = {}
        for name, scheduler, limits, who in (
            ("a alone, none", "none", "", [0]), ("a alone", "fair", "", [0]), ("b alone, none", "none", "", [1]), ("b alone", "fair", "", [1]),
            ("together, none", "none", "", [0, 1]), ("50/50", "fair", "", [0, 1]), ("1:3", "fair", '[group."/b"]\nweight = 300', [0, 1]),
        ):
            server = disk(files, ["/a", "/b"], limits, scheduler)
            clients = [server.load(1, a.depth, export=f"t{n}", bs=bs, seconds=seconds, warm_up=1) for n in who]
            rates[name] = [Run(client).iops for client in clients]
            server.end()
        rounds.append(rates)
    middle = lambda of: statistics.median(of(rates) for rates in rounds)
    head("sandboxes", "I/Os a second", "of the disk", "share of the first")
    for name in rounds[0]:
        alone = name.split(",")[0] if "alone" in name else None
        base = f"{alone}, none" if alone else "together, none"
        of_disk = middle(lambda rates: sum(rates[name]) / sum(rates[base])) * 100
        share = f"{middle(lambda rates: rates[name][0] / sum(rates[name])) * 100:.1f} %" if not alone else ""
        row(name, f"{middle(lambda rates: sum(rates[name])):,.0f}", f"{of_disk:.1f} %", share)


class Control(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=30)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


def changes(a):
    head("scheduler", "changes a second", "refused", "reads and writes a second", "blocks checked", "bad", "p99, us", "p99 without, us")
    for scheduler in a.schedulers.split(","):
        server = null(scheduler, 'max = "iops=50000"', backing="mem:256m")
        base = Run(server.load(4, 16, "--verify", rw="randrw", seconds=3)).whole
        stop, counts = threading.Event(), {True: 0, False: 0}

        def change():
            control, number, began = Control(f"{server.socket}.control"), 0, time.monotonic()
            while not stop.is_set():
                number += 1
                # From far above what is asked to far below what is in flight.
                limit = ("iops=1000000", "max", "iops=20000 bps=200m", "iops=100", "wiops=5000")[number % 5]
                control.request("PATCH", "/v1/groups/a", json.dumps({"max": limit}))
                answer = control.getresponse()
                answer.read()
                counts[answer.status == 200] += 1
                time.sleep(max(0, began + number / 1000 - time.monotonic()))
            control.close()

        thread = threading.Thread(target=change)
        thread.start()
        began = time.monotonic()
        client = server.load(4, 16, "--verify", rw="randrw", seconds=a.seconds or 8)
        run = Run(client).whole
        took = time.monotonic() - began
        stop.set()
        thread.join()
        server.end()
        row(scheduler, f"{counts[True] / took:,.0f}", counts[False], f"{run['iops']:,.0f}", f"{run['verify']['checked']:,}", run["verify"]["bad"], f"{run['all']['p99_us']:,.0f}", f"{base['all']['p99_us']:,.0f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    whats = {of.__name__: of for of in (ceilings, engine, peers, cpu, bursts, floors, sandboxes, changes)}
    parser.add_argument("what", choices=whats)
    parser.add_argument("--schedulers", default="none,fair")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--reps", type=int, default=2)
    parser.add_argument("--dir", type=Path, default=ROOT / "target/bench-limits")
    parser.add_argument("--bs", type=int, default=32768)
    parser.add_argument("--depth", type=int, default=32)
    parser.add_argument("--count", action="store_true")
    options = parser.parse_args()
    subprocess.run(["make", "-s", "-C", ROOT / "benches/peers", f"OUT={LOAD.parent}", LOAD], check=True)
    whats[options.what](options)


if __name__ == "__main__":
    main()
