#!/usr/bin/env python3
"""Yardsticks that people know: isol-bench's four parts and resctl-bench's three figures. Live: image files on a real disk, NBD clients.

    benches/isolation.py                                     every part, for none, mq-deadline, bfq and fair
    benches/isolation.py --parts fairness,bursts fair bfq    these parts, these schedulers
    benches/isolation.py fair /tmp/before/fairlift@fair      two builds, in turn
    benches/isolation.py none fair linux-bfq,low_latency=0 linux-max
                                                             and the kernel's bfq and io.max in cgroups, as tenants_peers.py has them; root
    benches/isolation.py --parts seconds --hold 30 fair      longer beside the hogs
    benches/isolation.py --json /tmp/out.json                every figure of every repetition, and each second

The parts are those of isol-bench (Doekemeijer et al., "Does Linux Provide Performance Isolation for NVMe SSDs?", IISWC 2025;
github.com/stonet-research/isol-bench) and of resctl-bench (github.com/facebookexperimental/resctl-demo, its memory hog). The loads are
smaller than theirs, and are programs that wait for an answer before they ask again; so figures compare within this file, not with theirs.

  overhead    isol-bench 1: what a scheduler costs a tenant that is alone.
                p50, p99   of a reader of 4 KiB at depth 1, in us
                rate       of the same at 4 connections of depth 32, in I/Os in a second
                cpu        busy time of all processors for an I/O of these, client and all, in us
  fairness    isol-bench 2: Jain's index of (rate / capacity / weight), 1 if all have their shares, 1/n if one has all.
                equal      four readers of 4 KiB, depth 16, 32, 64, 128
                weights    four readers of 4 KiB, depth 64, weights 100, 200, 300, 400
                sizes      two readers of 4 KiB, depth 64, and two of 64 KiB, depth 16
                writes     two readers and two writers of 4 KiB, depth 64
                total      the least sum of rate / capacity of these four
  priority    isol-bench 3: what a tenant gains by its weight, and what that costs the disk, beside four readers of depth 64, weight 100.
              A row is a point of the front between both; where there are no weights it is the only one.
                p99        of a reader of 4 KiB at depth 1, in us; use: the sum of rate / capacity of all in that run
                kept       the part of its lone rate that a reader of depth 32 has; use 32: the same sum in its run
  bursts      isol-bench 4: how soon a tenant of weight 400 that comes has 90 % of the rate in which it settles, beside readers of weights
              100, 200, 300, and how soon they have theirs; 300 ms is the least that can be told (tenants.py --comes-and-goes).
                comes, others, goes   median in ms; longest: the longest of all
                share      the part of the four's I/Os that it settles at; it is due 0.40
  seconds     resctl-bench, by the second: a reader of 4 KiB, depth 16, weight 500, first alone; then a reader of 4 KiB, depth 128, and a
              writer of 64 KiB, depth 16, come as hogs, of weight 100 each. The first second with them is not counted. Median, and the worst second.
                isol       isolation: its rate beside hogs over its rate alone, at most 1
                impact     latency impact: its 99th percentile beside hogs over the one alone, less 1, at least 0
                conserved  work conservation: what all use of the disk over what they could; hogs always want more, so the sum of
                           rate / capacity, at most 1
  idle        in every row: how much of the processors was idle, in percent

A capacity is what the disk does of a kind of request alone, under none, at 4 connections of depth 32. linux-max has ceilings of capacity
by weight. The kernel's io.cost has no row: it needs the io controller of cgroup v2. Medians over interleaved repetitions.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import shares as S
import tenants as T
import tenants_peers

READ = T.Load("randread", 4096, 64)
LARGE = T.Load("randread", 64 << 10, 16)
WRITE = T.Load("randwrite", 4096, 64)
HOG = T.Load("randwrite", 64 << 10, 16)
WEIGHTS = (100, 300, 1000)  # of the tenant that is preferred
WEIGHTLESS = ("none", "mq-deadline")
ALONE = 4  # seconds before hogs come


def reader(depth):
    return T.replace(READ, depth=depth)


def situation(*tenants):
    """Of (weight, load)."""
    return T.Situation("", tuple(T.Tenant(f"/t{i}", weight, load) for i, (weight, load) in enumerate(tenants)))


class Bench:
    """The images, and what the disk does of each kind."""

    def __init__(self, a, loads):
        self.a, self.files, self.known = a, T.images(a, 5), {}
        for load in loads:
            self.known[S.kind(T.Tenant("", 0, load))] = T.alone(a, S.kind(T.Tenant("", 0, load)), self.files[0])

    def capacity(self, load):
        return self.known[S.kind(T.Tenant("", 0, load))]

    def serve(self, row, tenants):
        whole = sum(t.weight for t in tenants.tenants)
        ceilings = [self.capacity(t.load) * t.weight / whole for t in tenants.tenants]
        return T.serve(self.a, row, tenants, self.files, ceilings)

    def run(self, row, *tenants):
        """What each client told, the rate of each over its capacity, and the idle part of the processors."""
        tenants = situation(*tenants)
        server = self.serve(row, tenants)
        before = S.processors()
        clients = [server.load(self.a, i, t.load) for i, t in enumerate(tenants.tenants)]
        told = [T.report(client)[-1] for client in clients]
        idle = idle_since(before)
        server.end()
        return told, [one["iops"] / self.capacity(t.load) for one, t in zip(told, tenants.tenants)], idle


def idle_since(before):
    after = S.processors()
    return (after[0] - before[0]) / max(1, after[1] - before[1])


def jain(values):
    return sum(values) ** 2 / (len(values) * sum(value * value for value in values))


def overhead(bench, row):
    shallow, _, _ = bench.run(row, (100, reader(1)))
    deep, _, idle = bench.run(row, (100, READ.saturating()))
    rate = deep[0]["iops"]
    return {row: {"p50": shallow[0]["all"]["p50_us"], "p99": shallow[0]["all"]["p99_us"], "rate": rate,
                  "cpu": 1e6 * (1 - idle) * os.cpu_count() / rate, "idle": 100 * idle}}


def fairness(bench, row):
    cases = {"equal": [(100, reader(depth)) for depth in (16, 32, 64, 128)],
             "weights": [(weight, READ) for weight in (100, 200, 300, 400)],
             "sizes": [(100, READ), (100, READ), (100, LARGE), (100, LARGE)],
             "writes": [(100, READ), (100, READ), (100, WRITE), (100, WRITE)]}
    figures, totals, idles = {}, [], []
    for name, tenants in cases.items():
        _, parts, idle = bench.run(row, *tenants)
        figures[name] = jain([part / weight for part, (weight, _) in zip(parts, tenants)])
        totals.append(sum(parts))
        idles.append(idle)
    return {row: figures | {"total": min(totals), "idle": 100 * statistics.mean(idles)}}


def priority(bench, row):
    alone = bench.run(row, (100, reader(32)))[0][0]["iops"]
    rows = {}
    for weight in WEIGHTS[:1] if row in WEIGHTLESS else WEIGHTS:
        shallow, parts, idle = bench.run(row, (weight, reader(1)), *[(100, READ)] * 4)
        deep, deep_parts, deep_idle = bench.run(row, (weight, reader(32)), *[(100, READ)] * 4)
        rows[f"{row} {weight}:100"] = {"p99": shallow[0]["all"]["p99_us"], "use": sum(parts), "kept": deep[0]["iops"] / alone,
                                       "use 32": sum(deep_parts), "idle": 100 * (idle + deep_idle) / 2}
    return rows


def bursts(bench, row):
    before = S.processors()
    got = T.comes_and_goes(bench.a, row, bench.files, bench.capacity(READ))
    comes, goes = got["comes"], got["goes"]
    others = [ms for each in comes["ms"][:3] for ms in each]
    return {row: {"comes": statistics.median(comes["ms"][3]), "others": statistics.median(others),
                  "goes": statistics.median(ms for each in goes["ms"] for ms in each),
                  "longest": max(ms for each in (*comes["ms"], *goes["ms"]) for ms in each),
                  "share": comes["settled"][3] / sum(comes["settled"]), "idle": 100 * idle_since(before)}}


def seconds(bench, row):
    tenants = situation((500, reader(16)), (100, reader(128)), (100, HOG))
    server, every = bench.serve(row, tenants), ("--interval", 1000)
    first = server.load(bench.a, 0, tenants.tenants[0].load, *every, "--seconds", ALONE + bench.a.hold + 2)
    time.sleep(T.WARM_UP + ALONE)
    before, came = S.processors(), 1000 * time.monotonic()
    hogs = [server.load(bench.a, i, tenants.tenants[i].load, *every, "--seconds", bench.a.hold, "--warmup", 1, "--no-preflush") for i in (1, 2)]
    others = [T.report(hog)[:-1] for hog in hogs]
    idle = idle_since(before)
    mine = T.report(first)[:-1]
    server.end()
    alone = [line for line in mine if line["at_ms"] < came]
    rate, p99 = (statistics.median(line[key] for line in alone) for key in ("iops", "p99_us"))
    begin, end = max(lines[0]["at_ms"] for lines in others), min(lines[-1]["at_ms"] for lines in others)
    beside = [line for line in mine if begin <= line["at_ms"] <= end]
    counted = [S.Counted(lines, 1000) for lines in (mine, *others)]
    had = [[each.between(line["at_ms"] - 1000, line["at_ms"]) for each in counted] for line in beside]
    series = {"isol": [min(1, line["iops"] / rate) for line in beside],
              "impact": [max(0, line["p99_us"] / p99 - 1) for line in beside],
              "conserved": [min(1, sum(n / bench.capacity(t.load) for n, t in zip(each, tenants.tenants))) for each in had]}
    figures = {}
    for name, values in series.items():
        figures |= {name: statistics.median(values), "worst" + " " * len(figures): (max if name == "impact" else min)(values)}
    return {row: figures | {"idle": 100 * idle, "by second": series}}


# A part, and the kinds of load whose capacity it asks for.
PARTS = {"overhead": (overhead, [READ]), "fairness": (fairness, [READ, LARGE, WRITE]), "priority": (priority, [READ]), "bursts": (bursts, [READ]),
         "seconds": (seconds, [READ, HOG])}


def measure(a, name):
    part, loads = PARTS[name]
    bench, runs = Bench(a, loads), {}
    # The repetitions of bursts are visits.
    for rep in range(1 if part is bursts else a.reps):
        for spec in T.there_and_back(a.schedulers, rep):
            for row, figures in part(bench, spec).items():
                runs.setdefault(row, []).append(figures)
    wide = max(map(len, runs))
    columns = [key for key, value in next(iter(runs.values()))[0].items() if not isinstance(value, dict)]
    print(f"\n{name:{wide}} " + " ".join(f"{key.strip():>18}" for key in columns))
    for row, of in runs.items():
        cells = []
        for key in columns:
            values = [figures[key] for figures in of]
            digits = 0 if max(values) >= 10 else 2
            spread = f" ({min(values):.{digits}f}-{max(values):.{digits}f})" if len(values) > 1 and key != "idle" else ""
            cells.append(f"{statistics.median(values):.{digits}f}{spread}")
        print(f"{row:{wide}} " + " ".join(f"{cell:>18}" for cell in cells), flush=True)
    return runs


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("schedulers", nargs="*", default=["none", "mq-deadline", "bfq", "fair"], metavar="[PROGRAM@]SCHEDULER[,KEY=VALUE...]")
    parser.add_argument("--parts", default=",".join(PARTS), metavar="A,B", help=f"these parts [{','.join(PARTS)}]")
    parser.add_argument("--hold", type=int, default=10, help="seconds beside hogs [10]")
    parser.add_argument("--seconds", type=float, default=3, help="of each run of the other parts, behind a second of warm-up [3]")
    parser.add_argument("--reps", type=int, default=3, help="interleaved repetitions; visits of a burst [3]")
    parser.add_argument("--dir", type=lambda text: Path(text).resolve(), default=T.PEERS / "tenants-images", help="where the images are, on the disk to test")
    parser.add_argument("--fairlift", default=T.FAIRLIFT, help="the program")
    parser.add_argument("--json", type=Path, help="keep all figures")
    a = parser.parse_args()
    a.parts = a.parts.split(",")
    unknown = [name for name in a.parts if name not in PARTS]
    if unknown:
        parser.error(f"unknown part {', '.join(unknown)}: there is {', '.join(PARTS)}")
    return a


def main():
    a = arguments()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    T.SERVERS |= tenants_peers.PEERS
    subprocess.run(["make", "--silent", "-C", T.ROOT / "benches/peers", f"OUT={T.LOAD.parent}"], check=True)
    result = {name: measure(a, name) for name in a.parts}
    if a.json:
        a.json.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
