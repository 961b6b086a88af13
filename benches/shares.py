#!/usr/bin/env python3
"""Do weights hold where everybody wants more? Live: image files on a real disk, NBD clients that never pause, one server.

    benches/shares.py fair bfq                           schedulers, in turn; `none` always runs too
    benches/shares.py fair /tmp/before/fairlift@fair     two builds, in turn
    benches/shares.py --client fio --only three-to-one   fio's nbd engine asks: slower between a reply and the next request
    benches/shares.py --frontier fair                    and the split by hand that has these shares: what there is to be had
    benches/shares.py --made-up 6 --seed 3 fair          weights, depths and sizes that nobody chose
    benches/shares.py --by-second 60 --only even fair    one run: each second for itself
    benches/shares.py --change fair                      a weight is changed, and a tenant comes and goes: how soon shares are right

The situations are those of lab/src/workload/shares.toml, or of another --file. Each tenant could do its weight's part alone, so
each is due just that. Everything is a median over interleaved repetitions; the least and the most error are told too.

  had     a tenant's rate over what the disk does of its kind of request alone, as a part of the sum of all
  error   the largest |had - due| of any tenant, in points of a hundred
  total   the sum of all rates over capacity, beside that under `none` in the same run
  idle    how much of the processors was idle

--frontier looks for depths, a server of its own for each tenant, at which they have their shares: whoever has too little at its full
depth bounds the others. What it finds runs in turn with the schedulers, as a row of its own, and `split` is a row's total beside it.
If the row's own error is large, no split of that kind has these shares.

--change runs three readers of 64. Shares are right from the end of the first 100 ms in which each is within 4 points of its part, if
each is so in the median of the 500 ms from then on. A lone window may be off later: `off` counts those among the rest.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import time
from decimal import Decimal
from pathlib import Path

import measured
import tenants as T

SITUATIONS = T.ROOT / "lab/src/workload/shares.toml"
SPLITS = 4  # tries to find one
NEAR = 0.04  # of the whole: a share that is right
WINDOW = 0.1  # second
PHASE = 4  # seconds between two changes


def processors():
    """Time of all processors: idle, and in all."""
    times = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return times[3] + times[4], sum(times)


def by_fio(a, server, number, load):
    """I/Os in a second and the 99th percentile in µs, by fio's nbd engine."""
    command = ["fio", "--name=t", "--ioengine=nbd", f"--uri=nbd+unix:///t{number}?socket={server.sock}", f"--rw={load.rw}", f"--bs={load.block}",
               f"--iodepth={load.depth}", "--time_based", f"--runtime={a.seconds}", f"--ramp_time={T.WARM_UP}", "--output-format=json",
               f"--size={T.IMAGE_MIB}m", f"--randseed={number + 1}", "--norandommap"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def of_fio(client):
    out = client.communicate()[0]
    job = json.loads(out[out.index("{"):])["jobs"][0]
    one = max((job["read"], job["write"]), key=lambda side: side["iops"])
    return one["iops"], one["clat_ns"]["percentile"]["99.000000"] / 1000


def asked(a, server, number, load):
    return by_fio(a, server, number, load) if a.client == "fio" else server.load(a, number, load)


def answers(a, clients):
    return [of_fio(client) if a.client == "fio" else T.rate(client) for client in clients]


def together(a, servers, situation):
    """Rates and 99th percentiles, and the idle part of the processors. `servers`: one for all, or one for each."""
    loads = [t.load for t in situation.tenants]
    where = [(servers[0], i) if len(servers) == 1 else (server, 0) for i, server in enumerate(servers * (len(loads) // len(servers)))]
    before = processors()
    got = answers(a, [asked(a, *at, load) for at, load in zip(where, loads)])
    after = processors()
    for server in servers:
        server.end()
    return got, (after[0] - before[0]) / (after[1] - before[1])


def apart(a, situation, files, depths):
    """A server for each tenant, of that depth."""
    return [T.Server(a, "none", T.lone(t.load), [file], "--workers", "1", "--depth", str(depth))
            for t, file, depth in zip(situation.tenants, files, depths)]


def due_to(situation):
    whole = sum(t.weight for t in situation.tenants)
    return [t.weight / whole for t in situation.tenants]


def parts(got, capacity, situation):
    return [rate / capacity[kind(t)] for (rate, _), t in zip(got, situation.tenants)]


def off_by(had, due):
    """In points of a hundred."""
    return 100 * max(abs(h / sum(had) - d) for h, d in zip(had, due))


def kind(tenant):
    return T.replace(tenant.load.saturating(), flush_every=0)


def capacities(a, situation, files):
    """What the disk does of each kind. Of one kind alone only the ratios count."""
    kinds = sorted({kind(t) for t in situation.tenants}, key=str)
    return {one: T.alone(a, one, files[0]) for one in kinds} if len(kinds) > 1 else {kinds[0]: 1.0}


def split_by_hand(a, situation, files):
    """Depths at which tenants apart have their shares: the mean of what each try but the first asks for, as one try is noise."""
    due, capacity = due_to(situation), capacities(a, situation, files)
    most = [t.load.depth for t in situation.tenants]

    def fit(places):
        """The largest depths of these proportions that clients can fill: one has its full depth."""
        scale = min(m / p for m, p in zip(most, places))
        return [max(1, min(m, round(p * scale))) for m, p in zip(most, places)]

    asked_for = [due]
    for _ in range(SPLITS):
        depths = fit([statistics.geometric_mean(each) for each in zip(*(asked_for[2:] or asked_for[-1:]))])
        had = parts(together(a, apart(a, situation, files, depths), situation)[0], capacity, situation)
        places = [depth * d * sum(had) / h for depth, d, h in zip(depths, due, had)]
        asked_for.append([each / sum(places) for each in places])
    return fit([statistics.geometric_mean(each) for each in zip(*asked_for[2:])])


def measure(a, situation, files):
    due = due_to(situation)
    rows = {spec: (lambda spec=spec: [T.Server(a, spec, situation, files)]) for spec in a.schedulers}
    split = None
    if a.frontier:
        depths = split_by_hand(a, situation, files)
        split = "split " + "+".join(map(str, depths))
        rows[split] = lambda: apart(a, situation, files, depths)
    runs = {row: [] for row in rows}
    for rep in range(a.reps):
        capacity = capacities(a, situation, files)
        for row, servers in T.there_and_back(rows.items(), rep):
            got, idle = together(a, servers(), situation)
            runs[row].append((parts(got, capacity, situation), [p99 for _, p99 in got], idle))
    whole = {row: statistics.median(sum(had) for had, _, _ in of) for row, of in runs.items()}
    result = {}
    for row, of in runs.items():
        errors = [off_by(had, due) for had, _, _ in of]
        middle = [statistics.median(each) for each in zip(*([part / sum(had) for part in had] for had, _, _ in of))]
        error = 100 * max(abs(h - d) for h, d in zip(middle, due))
        total, beside = whole[row] / whole["none"], whole[row] / whole[split] if split else None
        p99 = [statistics.median(each) / 1000 for each in zip(*(waits for _, waits, _ in of))]
        idle = statistics.median(idle for _, _, idle in of)
        print(f"{situation.name:26} {row[-24:]:24} {error:5.1f} ({min(errors):.1f}-{max(errors):.1f})  {total:5.2f}  "
              + (f"{beside:5.2f}  " if split else "") + f"{100 * idle:3.0f} %   "
              + " ".join(f"{100 * h:.0f} ({100 * d:.0f})" for h, d in zip(middle, due)) + "; " + " ".join(f"{p:.1f}" for p in p99), flush=True)
        result["split" if row == split else row] = {"error": error, "errors": errors, "total": total, "of_split": beside, "idle": idle,
                                                    "had": middle, "due": due, "p99_ms": p99} | ({"depths": depths} if row == split else {})
    return result


class Counted:
    """I/Os that a client had until a moment, by the lines of `nbdload --interval`; moments are of CLOCK_MONOTONIC, in ms."""

    def __init__(self, lines, every=1000 * WINDOW):
        self.at, self.count = [], [0.0]
        for line, before in zip(lines, [None, *lines]):
            since = before["at_ms"] if before else line["at_ms"] - every
            self.at = self.at or [since]
            self.at.append(line["at_ms"])
            self.count.append(self.count[-1] + line["iops"] * (line["at_ms"] - since) / 1000)

    def until(self, at):
        for i in range(1, len(self.at)):
            if at <= self.at[i]:
                return self.count[i - 1] + (self.count[i] - self.count[i - 1]) * max(0, at - self.at[i - 1]) / (self.at[i] - self.at[i - 1])
        return self.count[-1]

    def between(self, begin, end):
        return self.until(end) - self.until(begin)


def by_second(a, spec, situation, files):
    """One run; every second for itself."""
    due, capacity = due_to(situation), capacities(a, situation, files)
    server, before = T.Server(a, spec, situation, files), processors()
    clients = [server.load(a, i, t.load, "--interval", round(1000 * WINDOW), "--seconds", a.by_second) for i, t in enumerate(situation.tenants)]
    counted = [Counted(T.report(client)[:-1]) for client in clients]
    after = processors()
    server.end()
    begin = max(each.at[0] for each in counted)
    had = [[each.between(begin + 1000 * second, begin + 1000 * (second + 1)) / capacity[kind(t)] for each, t in zip(counted, situation.tenants)]
           for second in range(int((min(each.at[-1] for each in counted) - begin + 50) / 1000))]
    errors = [off_by(each, due) for each in had]
    worst, idle = max(range(len(errors)), key=errors.__getitem__), (after[0] - before[0]) / (after[1] - before[1])
    whole = off_by([sum(each) for each in zip(*had)], due)
    totals = [sum(each) for each in had]
    over = sum(error > 100 * NEAR for error in errors)
    print(f"{situation.name:26} {spec[-24:]:24} {len(had)} s: error {whole:.1f}; of a second: median {statistics.median(errors):.1f}, largest "
          f"{errors[worst]:.1f} in second {worst + 1}, {over} above {100 * NEAR:.0f}; least total of a second {min(totals) / statistics.median(totals):.2f} "
          f"of the median; idle {100 * idle:.0f} %", flush=True)
    return {"error": whole, "errors": errors, "totals": totals, "idle": idle}


def settles(counted, due, begin, end):
    """After how many ms shares are right, and the part of the windows from then on that are not."""
    step = 1000 * WINDOW
    windows = [[each.between(at, at + step) for each in counted] for at in (begin + step * i for i in range(int((end - begin) / step)))]
    right = lambda had: off_by(had, due) <= 100 * NEAR if sum(had) else False
    middle = lambda some: [statistics.median(each) for each in zip(*([h / max(1, sum(had)) for h in had] for had in some))]
    for i, had in enumerate(windows):
        if right(had) and right(middle(windows[i:i + 5])):
            return round(step * (i + 1)), sum(not right(w) for w in windows[i + 1:]) / max(1, len(windows) - i - 1)
    return round(end - begin), 1.0


def changes(a, spec, files):
    """Weights 100 and 300 that change places, live; then a third tenant comes and goes."""
    load = T.Load("randread", 4096, 64)
    situation = T.Situation("change", tuple(T.Tenant(f"/t{i}", weight, load) for i, weight in enumerate((100, 300, 200))))
    server = T.Server(a, spec, situation, files)
    program = spec.rpartition("@")[0] or a.fairlift
    every, now = ("--interval", round(1000 * WINDOW)), lambda: 1000 * time.monotonic()
    clients = [server.load(a, i, load, *every, "--seconds", a.reps * (4 * PHASE + 2)) for i in (0, 1)]
    time.sleep(T.WARM_UP + PHASE / 2)
    events, weights, visits = [], [100, 300], []
    for _ in range(a.reps):
        weights = weights[::-1]
        events.append(("weight", now(), [*weights]))
        for i, weight in enumerate(weights):
            subprocess.run([program, "set", "--control", f"unix:{server.sock}.control.sock", "group", f"/t{i}", f"weight={weight}"], check=True, capture_output=True)
        time.sleep(PHASE)
        visit = server.load(a, 2, load, *every, "--seconds", PHASE, "--warmup", 0, "--no-preflush")
        visits.append(T.report(visit)[:-1])
        events += [("comes", visits[-1][0]["at_ms"] - 1000 * WINDOW, [*weights, 200]), ("goes", visits[-1][-1]["at_ms"], [*weights])]
        time.sleep(PHASE)
    counted = [Counted(T.report(client)[:-1]) for client in clients]
    server.end()
    result = {}
    for what in ("weight", "comes", "goes"):
        found, visitors = [], iter(visits)
        for event, at, due in events:
            if event != what:
                continue
            present = [*counted, Counted(next(visitors))] if what == "comes" else counted
            found.append(settles(present, [d / sum(due) for d in due], at, at + 1000 * PHASE - 200))
        waits, off = [ms for ms, _ in found], statistics.mean(part for _, part in found)
        print(f"{spec[-24:]:24} {what:7} right after ms, median and longest: {statistics.median(waits):.0f} {max(waits)}; later off by more than "
              f"{100 * NEAR:.0f} points: {100 * off:.0f} % of windows", flush=True)
        result[what] = {"ms": waits, "off": off}
    return result


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("schedulers", nargs="*", default=["fair"], metavar="[PROGRAM@]SCHEDULER[,KEY=VALUE...]")
    parser.add_argument("--only", metavar="A,B", help="these situations")
    parser.add_argument("--file", type=Path, default=SITUATIONS, help="other situations")
    parser.add_argument("--client", choices=("nbdload", "fio"), default="nbdload", help="who asks [nbdload]")
    parser.add_argument("--frontier", action="store_true", help="and a split by hand")
    parser.add_argument("--made-up", type=int, metavar="N", help="so many situations made up at random")
    parser.add_argument("--seed", type=int, default=1, help="of what is made up [1]")
    parser.add_argument("--by-second", type=int, metavar="S", help="one run of so many seconds")
    parser.add_argument("--change", action="store_true", help="a weight is changed, a tenant comes and goes, --reps times")
    parser.add_argument("--list", action="store_true", help="show the situations, and run nothing")
    parser.add_argument("--seconds", type=float, default=3, help="of each run, behind a second of warm-up [3]")
    parser.add_argument("--reps", type=int, default=3, help="interleaved repetitions [3]")
    parser.add_argument("--dir", type=lambda text: Path(text).resolve(), default=T.PEERS / "tenants-images", help="where the images are, on the disk to test")
    parser.add_argument("--fairlift", default=T.FAIRLIFT, help="the program")
    parser.add_argument("--json", type=Path, help="keep all figures")
    parser.add_argument("--record", action="store_true", help="with --frontier, of all situations: put the figures of `fair` into docs/measured/fairness.md")
    a = parser.parse_args()
    if (a.by_second or a.change) and a.client == "fio":
        parser.error("--by-second and --change count by nbdload, not by fio")
    if a.record and (not a.frontier or a.only or a.made_up or a.by_second or a.change or a.file != SITUATIONS or "fair" not in a.schedulers):
        parser.error("--record needs --frontier, `fair`, and all situations")
    if not (a.by_second or a.change):
        a.schedulers = ["none"] + [spec for spec in a.schedulers if spec != "none"]
    return a


def made_up(seed, number):
    """Tenants that could each do their part alone: none has less than its part of 128 requests outstanding."""
    pick = random.Random(f"{seed}.{number}").choice
    weights = [pick([50, 100, 100, 150, 200, 300, 400, 700, 900]) for _ in range(pick([2, 2, 3, 3, 4, 6]))]
    alike = pick([True, True, False])
    one = (pick(["randread", "randread", "randwrite", "read"]), pick(["4k", "4k", "8k", "16k", "64k"]))
    tenants = []
    for i, weight in enumerate(weights):
        rw, block = one if alike else (pick(["randread", "randwrite"]), pick(["4k", "8k", "16k", "64k"]))
        least = 128 * weight / sum(weights)
        depth = pick([d for d in (16, 24, 32, 48, 64, 96, 128, 192, 256) if d >= least])
        tenants.append(T.Tenant(f"/t{i + 1}", weight, T.Load(rw, T.size(block), depth)))
    return T.Situation(f"made-up-{seed}.{number}", tuple(tenants))


def record(a, result):
    """The table of weights in docs/measured/fairness.md. Its sentence for each situation is kept."""
    tenants = {row[0]: row[1] for row in measured.data("fairness")["weights_exactly"]["rows"]}
    rows = []
    for name, of in result.items():
        fair, split = of["fair"], of["split"]
        depths = " + ".join(map(str, split["depths"])) if len(split["depths"]) < 4 else ", ".join(map(str, split["depths"][:3])) + " …"
        errors = [Decimal(f"{figure:.1f}") for figure in (of["none"]["error"], fair["error"], min(fair["errors"]), max(fair["errors"]))]
        beside = [Decimal(f"{figure:.1f}") for figure in (split["error"], min(split["errors"]), max(split["errors"]))]
        rows.append([name, tenants[name], *errors, Decimal(f"{fair['total']:.2f}"), depths, *beside, Decimal(f"{fair['of_split']:.2f}")])
    measured.record("fairness", "weights_exactly", rows, f"benches/shares.py --frontier --reps {a.reps} --seconds {a.seconds:g} fair")


def main():
    a = arguments()
    known = [made_up(a.seed, number) for number in range(a.made_up)] if a.made_up else T.read(a.file)
    situations = [one for one in known if not a.only or one.name in a.only.split(",")]
    if not situations:
        sys.exit(f"no situation is called {a.only}: there is {', '.join(one.name for one in known)}")
    if a.list:
        for one in situations:
            print(f"{one.name:26} " + "; ".join(f"{t.weight}: {t.load}" for t in one.tenants))
        return
    subprocess.run(["make", "--silent", "-C", T.ROOT / "benches/peers", f"OUT={T.LOAD.parent}"], check=True)
    files = T.images(a, 3 if a.change else max(len(one.tenants) for one in situations))
    if a.change:
        result = {spec: changes(a, spec, files) for spec in a.schedulers}
    elif a.by_second:
        result = {one.name: {spec: by_second(a, spec, one, files) for spec in a.schedulers} for one in situations}
    else:
        print(f"{'':51} error (least-most)  total  {'split  ' if a.frontier else ''}idle   had % (due %); p99 ms")
        result = {one.name: measure(a, one, files) for one in situations}
        for spec in [*a.schedulers, *(["split"] if a.frontier else [])]:
            errors = [one[spec]["error"] for one in result.values()]
            print(f"{spec[-24:]:24} mean error {statistics.mean(errors):.1f}, largest {max(errors):.1f}")
    if a.record:
        record(a, result)
    if a.json:
        a.json.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
