#!/usr/bin/env python3
"""What does a tenant get, beside what it is entitled to? Live: image files on a real disk, NBD clients, one server.

    benches/tenants.py [SCHEDULER[,KEY=VALUE...] ...]    schedulers to compare [bfq]; `none` always runs too
    benches/tenants.py --only many,sizes-mixed bfq       these situations; --list shows them all
    benches/tenants.py fair /tmp/before/fairlift@fair    two builds, in turn
    benches/tenants.py --tenant 100:randread:4k:32 --tenant 300:randwrite:64k:8 --tenant 100:randwrite:4k:4:flush_every=1
                                                         a situation made up here: WEIGHT:WHAT:BLOCK:DEPTH
    benches/tenants.py --file my.toml                    situations of a file, as `fairlift iostest -w my.toml` takes
    benches/tenants.py --split --only small-beside-deep  and the frontier
    benches/tenants.py --comes-and-goes fair             how soon the others have their rates, as a tenant comes and goes

The situations are those of `fairlift iostest -w tenants`: both read lab/src/workload/tenants.toml. Rates are I/Os in a
second; of a tenant that flushes, commits. Everything is a median over repetitions, in which schedulers take turns, in the
opposite order every second time.

  capacity   what the disk does of this tenant's kind of request when saturated: alone, scheduler none, 4 connections of
             depth 32; of depth 8 if blocks are larger than 64 KiB; or what the tenant does alone, if that is more
  demand     what the tenant does alone at its own depth, over the capacity: the part of the disk that it can use
  entitled   weighted max-min: each has its weight's part of the disk, but no more than its demand; what it leaves goes to
             the others by weight; with groups within groups, each group divides what it has so
  achieved   (rate / capacity) / entitled: 1 is all that it is entitled to (`score` in JSON)
  isolation  the least that a tenant achieved
  use        the sum of rate / capacity, over the sum of entitlements: how much of the disk is at work

The disk itself queues, so a shallow tenant beside a deep one cannot achieve 1. --split shows what is possible: each
tenant has a server of its own, at a bounded depth. Of two tenants, the deep one's depth is bounded; of more, a total depth is
divided by entitlement, as a static partition would be. A virtual disk drifts by tens of percent within minutes, and is slow
on blocks that were not read lately: images are read before, and only figures of one run compare.

--comes-and-goes runs three deep readers of weights 100, 200, 300, beside which a fourth of 400 comes and goes several times.
A tenant's settled rate is the median of the second half of each time with and without the fourth. Its wait lasts to the end of
the first 300 ms whose median is 90 % of that, if those that begin in the next half second are so too: 300 ms is the least.

Writes about 200 MiB for each tenant below --dir. Needs a C compiler, and Python 3.11.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SITUATIONS = ROOT / "lab/src/workload/tenants.toml"
PEERS = Path(os.environ.get("W") or f"{os.environ.get('TMPDIR', '/tmp')}/fairlift-peers")
FAIRLIFT = os.environ.get("FAIRLIFT") or f"{os.environ.get('CARGO_TARGET_DIR', ROOT / 'target')}/release/fairlift"
LOAD = PEERS / "bin/nbdload"
STREAMS = 4  # that saturate the disk
IMAGE_MIB = 192
WARM_UP = 1  # second
DEPTHS = (2, 4, 8, 16, 24, 32, 64)  # of a server of the frontier
TOTALS = (16, 32, 48, 64, 96)
PHASE = 4  # seconds with the tenant that comes, and as long without
INTERVAL = 0.1
SERVERS = {}  # for schedulers that are not fairlift's, by name: tenants_peers.py adds some
UNITS = {"k": 1 << 10, "m": 1 << 20}


def size(text):
    """4096, "4k", "1m"."""
    text = str(text).lower()
    return int(text[:-1]) * UNITS[text[-1]] if text[-1] in UNITS else int(text)


@dataclass(frozen=True)
class Load:
    """What a tenant asks."""

    rw: str
    block: int
    depth: int
    flush_every: int = 0
    streams: int = 1

    def saturating(self):
        return replace(self, depth=32 if self.block <= 64 << 10 else 8, streams=STREAMS)

    def __str__(self):
        block = f"{self.block >> 20}m" if self.block % (1 << 20) == 0 else f"{self.block >> 10}k"
        return f"{self.rw} {block} x{self.depth}" + (f" flush_every={self.flush_every}" if self.flush_every else "")


@dataclass(frozen=True)
class Tenant:
    group: str
    weight: int
    load: Load


@dataclass(frozen=True)
class Situation:
    """Tenants, and the weights of groups above them."""

    name: str
    tenants: tuple
    above: tuple = ()

    def weights(self):
        return dict(self.above) | {tenant.group: tenant.weight for tenant in self.tenants}


def read(path):
    """The situations of a workload file."""
    found = []
    for name, raw in tomllib.loads(Path(path).read_text()).items():
        tenants = []
        for number, one in enumerate(raw.get("tenants", ()), 1):
            order = "rand" if one.get("order") == "random" else ""
            load = Load(order + one["does"].removeprefix("direct-"), size(one.get("block_size", "32k")), one["iodepth"], one.get("flush_every", 0))
            tenants.append(Tenant(one.get("group", f"/t{number}"), one.get("weight", 100), load))
        if tenants:
            found.append(Situation(name, tuple(tenants), tuple(raw.get("weights", {}).items())))
    return found


def tenant(text, number):
    """WEIGHT:WHAT:BLOCK:DEPTH[:flush_every=N]."""
    weight, rw, block, depth, *more = text.split(":")
    if rw not in ("read", "write", "randread", "randwrite") or len(more) > 1:
        raise ValueError(text)
    flush_every = int(more[0].removeprefix("flush_every=")) if more else 0
    return Tenant(f"/t{number}", int(weight), Load(rw, size(block), int(depth), flush_every))


def max_min(whole, wants):
    """Divides `whole` by weight among (weight, demand), none of which gets more than its demand."""
    share, left, unmet = [0.0] * len(wants), whole, set(range(len(wants)))
    while unmet:
        total = sum(wants[i][0] for i in unmet)
        full = [i for i in unmet if wants[i][1] <= left * wants[i][0] / total + 1e-12]
        if not full:
            for i in unmet:
                share[i] = left * wants[i][0] / total
            break
        for i in full:
            share[i] = wants[i][1]
        left -= sum(wants[i][1] for i in full)
        unmet -= set(full)
    return share


def entitlements(situation, demands):
    """Weighted max-min in the tree of groups; in the order of the tenants."""
    weights, of = situation.weights(), {t.group: d for t, d in zip(situation.tenants, demands)}
    demand = lambda group: sum(d for leaf, d in of.items() if leaf == group or leaf.startswith(group + "/"))

    def divide(above, whole):
        below = {above + "/" + leaf[len(above) + 1:].split("/")[0] for leaf in of if leaf.startswith(above + "/")}
        below, share = sorted(below), {}
        for group, part in zip(below, max_min(whole, [(weights.get(group, 100), demand(group)) for group in below])):
            share |= divide(group, part) if group not in of else {group: part}
        return share

    share = divide("", 1.0)
    return [share[t.group] for t in situation.tenants]


class Server:
    """fairlift serve on a socket of its own: the exports t0, t1, … are image files, each in its tenant's group."""

    def __init__(self, a, scheduler, situation, files, *flags):
        self.dir = tempfile.TemporaryDirectory(prefix="fairlift-tenants-")
        self.sock, self.log = f"{self.dir.name}/s", f"{self.dir.name}/log"
        program, _, scheduler = scheduler.rpartition("@")
        name, *knobs = scheduler.split(",")
        toml = [f'[server]\nlisten = ["unix:{self.sock}"]']
        toml += [f'[export.t{i}]\nbacking = "file:{files[i]}"\ngroup = "{t.group}"' for i, t in enumerate(situation.tenants)]
        toml += [f'[group."{group}"]\nweight = {weight}' for group, weight in situation.weights().items()]
        config = Path(self.dir.name, "config.toml")
        config.write_text("\n".join(toml))
        command = [program or a.fairlift, "serve", "--config", config, "--scheduler", name]
        command += [word for knob in knobs for word in ("--set", knob)]
        self.start([*command, *flags])

    def start(self, command):
        self.process = subprocess.Popen(command, stdout=open(self.log, "w"), stderr=subprocess.STDOUT)
        for _ in range(100):
            if os.path.exists(self.sock):
                break
            if self.process.poll() is not None:
                sys.exit(f"the server ended: {open(self.log).read().strip()[-300:]}")
            time.sleep(0.05)
        time.sleep(0.2)

    def load(self, a, number, load, *more):
        command = [LOAD, "--uri", f"nbd+unix:///t{number}?socket={self.sock}", "--rw", load.rw]
        command += ["--bs", load.block, "--depth", load.depth, "--conns", load.streams, "--seconds", a.seconds, "--warmup", WARM_UP]
        command += ["--flush-every", load.flush_every] if load.flush_every else []
        return subprocess.Popen([str(word) for word in (*command, *more)], stdout=subprocess.PIPE, text=True)

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        self.dir.cleanup()


def report(client):
    """The lines that a client printed; the last says how it ended."""
    lines = [json.loads(line) for line in client.communicate()[0].splitlines()]
    out = lines[-1]
    if out["io_errors"] or out["conns_lost"]:
        sys.exit(f"{out['uri']}: {out['io_errors']} errors, {out['conns_lost']} connections lost")
    return lines


def rate(client):
    """I/Os or commits in a second, and the 99th percentile of an I/O in µs."""
    out = report(client)[-1]
    return (out["commit"]["per_s"] if out["flush_every"] else out["iops"]), out["all"].get("p99_us", 0)


def lone(load):
    return Situation("alone", (Tenant("/t", 100, load),))


def alone(a, load, file):
    server = Server(a, "none", lone(load), [file])
    got = rate(server.load(a, 0, load))[0]
    server.end()
    return got


def serve(a, scheduler, situation, files, entitled):
    """`entitled`: I/Os in a second, for a server that takes ceilings."""
    other = SERVERS.get(scheduler.split(",")[0])
    return other(a, scheduler, situation, files, entitled) if other else Server(a, scheduler, situation, files)


def together(a, scheduler, situation, files, entitled):
    server = serve(a, scheduler, situation, files, entitled)
    got = [rate(client) for client in [server.load(a, i, t.load) for i, t in enumerate(situation.tenants)]]
    server.end()
    return got


def apart(a, situation, files, depths):
    """Each tenant has a server of its own, of that depth."""
    loads = [t.load for t in situation.tenants]
    flags = [("--workers", "1", *(("--depth", str(depth)) if depth else ())) for depth in depths]
    servers = [Server(a, "none", lone(load), [file], *flag) for load, file, flag in zip(loads, files, flags)]
    got = [rate(client)[0] for client in [server.load(a, 0, load) for server, load in zip(servers, loads)]]
    for server in servers:
        server.end()
    return got


def frontier(a, situation, files, entitled):
    """Rates by the bounded depth."""
    loads = [t.load for t in situation.tenants]
    if len(loads) == 2:
        deep = max((0, 1), key=lambda i: (loads[i].depth * loads[i].block, i))
        bounds = [(d, [d if i == deep else None for i in (0, 1)]) for d in DEPTHS if d <= loads[deep].depth]
    else:
        part = lambda total, e: max(1, round(total * e / sum(entitled)))
        bounds = [(total, [min(load.depth, part(total, e)) for load, e in zip(loads, entitled)]) for total in TOTALS]
    return [(depth, apart(a, situation, files, depths)) for depth, depths in bounds]


def images(a, count):
    """Image files, read twice: what lies below a virtual disk is slow on blocks that it has not read lately."""
    a.dir.mkdir(parents=True, exist_ok=True)
    files = [a.dir / f"image-{i}" for i in range(count)]
    for file in files:
        if not file.exists():
            subprocess.run(["dd", "if=/dev/urandom", f"of={file}", "bs=1M", f"count={IMAGE_MIB}", "conv=fsync", "status=none"], check=True)
    for file in files:
        for _ in range(2):
            subprocess.run(["dd", f"if={file}", "of=/dev/null", "bs=1M", "iflag=direct", "status=none"], check=True)
    return files


def there_and_back(columns, rep):
    """The order of a repetition. The second column had up to 13 % more for large writers: each comes early as often as late."""
    return list(columns)[::-1 if rep % 2 else 1]


def measure(a, situation, files):
    """Runs a situation under every scheduler, and says what came out."""
    tenants = situation.tenants
    kinds = {load for t in tenants for load in (t.load, t.load.saturating())}
    runs, lone_runs = {s: [] for s in a.schedulers}, []

    def yardstick():
        """What each does alone, its capacity, and the part that it is entitled to, by what was measured until now."""
        middle = {load: statistics.median(run[load] for run in lone_runs) for load in kinds}
        own = [middle[t.load] for t in tenants]
        capacity = [statistics.median(max(run[t.load], run[t.load.saturating()]) for run in lone_runs) for t in tenants]
        return own, capacity, entitlements(situation, [min(1, x / c) for x, c in zip(own, capacity)])

    for rep in range(a.reps):
        lone_runs.append({load: alone(a, load, files[0]) for load in sorted(kinds, key=str)})
        _, capacity, entitled = yardstick()
        for scheduler in there_and_back(a.schedulers, rep):
            runs[scheduler].append(together(a, scheduler, situation, files, [c * e for c, e in zip(capacity, entitled)]))
    own, capacity, entitled = yardstick()
    print(f"\n{situation.name}: " + "; ".join(f"{t.group} {t.weight}: {t.load}" for t in tenants))
    wide = max(16, *map(len, a.schedulers))
    print(f"  {'alone':{wide}} " + " ".join(f"{x:8.0f}" for x in own) + "   entitled " + " ".join(f"{x:.3f}" for x in entitled))

    def line(label, rates, p99=()):
        parts = [r / c for r, c in zip(rates, capacity)]
        achieved = [part / e for part, e in zip(parts, entitled)]
        use = sum(parts) / sum(entitled)
        waits = f"  p99 us {' '.join(f'{x:.0f}' for x in p99)}" if p99 else ""
        print(f"  {label:{wide}} {' '.join(f'{x:8.0f}' for x in rates)}   achieved {' '.join(f'{x:.2f}' for x in achieved)}   "
              f"isolation {min(achieved):.2f}  use {use:.2f}{waits}", flush=True)
        return {"rate": rates, "score": achieved, "isolation": min(achieved), "use": use, "p99_us": list(p99)}

    result = {"capacity": capacity, "alone": own, "entitled": entitled, "schedulers": {}}
    for scheduler in a.schedulers:
        rates, p99 = ([statistics.median(x) for x in zip(*[[got[i] for got in run] for run in runs[scheduler]])] for i in (0, 1))
        result["schedulers"][scheduler] = line(scheduler, rates, p99)
    if a.split:
        points = frontier(a, situation, files, entitled)
        result["split"] = [{"depth": depth} | line(f"split {depth}", rates) for depth, rates in points]
    return result


def settles(rates):
    """The settled rate of a time with or without the tenant that comes, and after how many ms 90 % of it is had and kept."""
    width, keep = round(0.3 / INTERVAL), round(0.5 / INTERVAL)
    settled = statistics.median(rates[len(rates) // 2:])
    enough = [statistics.median(rates[i:i + width]) >= 0.9 * settled for i in range(len(rates) - width + 1)]
    first = next((i for i in range(len(enough)) if all(enough[i:i + keep])), len(enough))
    return settled, round(1000 * INTERVAL * (first + width))


def comes_and_goes(a, scheduler, files, capacity=0):
    """Three deep readers; a fourth comes and goes. `capacity`: I/Os in a second, for a server that takes ceilings."""
    load = Load("randread", 4096, 32)
    situation = Situation("comes-and-goes", tuple(Tenant(f"/t{weight}", weight, load) for weight in (100, 200, 300, 400)))
    server = serve(a, scheduler, situation, files, [capacity * t.weight / 1000 for t in situation.tenants])
    every = ("--interval", round(1000 * INTERVAL))
    whole = (2 * a.reps + 1) * (PHASE + 0.2)
    staying = [server.load(a, i, load, *every, "--seconds", whole) for i in range(3)]
    time.sleep(WARM_UP)
    visits = []
    for _ in range(a.reps):
        time.sleep(PHASE)
        visits.append(report(server.load(a, 3, load, *every, "--seconds", PHASE, "--warmup", 0, "--no-preflush"))[:-1])
    lines = [report(client)[:-1] for client in staying]
    server.end()

    def between(lines, begin, end):
        return [line["iops"] for line in lines if begin < line["at_ms"] <= end]

    print(f"\n{scheduler}: weights 100, 200, 300, and 400 that comes and goes; {a.reps} times, {PHASE} s each")
    result = {}
    for event in ("comes", "goes"):
        found = []
        for visit in visits:
            begin = visit[0]["at_ms"] - 1000 * INTERVAL if event == "comes" else visit[-1]["at_ms"]
            series = [between(each, begin, begin + 1000 * PHASE) for each in (lines if event == "goes" else [*lines, visit])]
            found.append([settles(rates) for rates in series])
        tenants = list(zip(*found))
        rates, waits = [statistics.median(rate for rate, _ in each) for each in tenants], [[ms for _, ms in each] for each in tenants]
        print(f"  {event:5} settled {' '.join(f'{rate:8.0f}' for rate in rates)} I/Os in a second; 90 % after ms, median and longest: "
              + ", ".join(f"{statistics.median(each):.0f} {max(each)}" for each in waits), flush=True)
        result[event] = {"settled": rates, "ms": waits}
    result["series"] = {"staying": lines, "visits": visits}
    return result


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("schedulers", nargs="*", default=["bfq"], metavar="[PROGRAM@]SCHEDULER[,KEY=VALUE...]")
    parser.add_argument("--only", metavar="A,B", help="these situations")
    parser.add_argument("--list", action="store_true", help="show the situations, and run nothing")
    parser.add_argument("--file", type=Path, default=SITUATIONS, help="other situations")
    parser.add_argument("--tenant", action="append", default=[], metavar="W:RW:BLOCK:DEPTH", help="a tenant of a situation made up here")
    parser.add_argument("--split", action="store_true", help="measure the frontier too")
    parser.add_argument("--comes-and-goes", action="store_true", help="a tenant comes and goes, --reps times")
    parser.add_argument("--seconds", type=float, default=3, help="of each run, behind a second of warm-up [3]")
    parser.add_argument("--reps", type=int, default=3, help="interleaved repetitions [3]")
    parser.add_argument("--dir", type=Path, default=PEERS / "tenants-images", help="where the images are, on the disk to test")
    parser.add_argument("--fairlift", default=FAIRLIFT, help="the program")
    parser.add_argument("--json", type=Path, help="keep all figures")
    a = parser.parse_args()
    if not a.comes_and_goes:
        a.schedulers = ["none"] + [s for s in a.schedulers if s != "none"]
    known = read(a.file)
    # Groups within groups are run by name, as in the lab.
    a.situations = [s for s in known if a.file != SITUATIONS or all(t.group.count("/") == 1 for t in s.tenants)]
    if a.only:
        by_name = {s.name: s for s in known}
        unknown = [name for name in a.only.split(",") if name not in by_name]
        if unknown:
            parser.error(f"unknown situation {', '.join(unknown)}: there is {', '.join(by_name)}")
        a.situations = [by_name[name] for name in a.only.split(",")]
    if a.tenant:
        try:
            a.situations = [Situation("made up", tuple(tenant(text, i) for i, text in enumerate(a.tenant, 1)))]
        except (ValueError, KeyError) as why:
            parser.error(f"a tenant is WEIGHT:WHAT:BLOCK:DEPTH[:flush_every=N], as in 100:randread:4k:32; {why}")
    if a.list:
        for situation in known:
            print(f"{situation.name:28} " + "; ".join(f"{t.group} {t.weight}: {t.load}" for t in situation.tenants))
        sys.exit()
    return a


def main():
    a = arguments()
    # make builds it only if its source is newer.
    subprocess.run(["make", "--silent", "-C", ROOT / "benches/peers", f"OUT={LOAD.parent}"], check=True)
    files = images(a, 4 if a.comes_and_goes else max(len(situation.tenants) for situation in a.situations))
    if a.comes_and_goes:
        result = {scheduler: comes_and_goes(a, scheduler, files) for scheduler in a.schedulers}
    else:
        result = {situation.name: measure(a, situation, files) for situation in a.situations}
    if a.json:
        a.json.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
