#!/usr/bin/env python3
"""What a mechanism of a scheduler earns: every table of docs/measured/schedulers.md with it and without it, in virtual time.

    benches/bfq.py run -o with.json                                       all cells, with 3 seeds each
    benches/bfq.py run --fairlift OTHER/fairlift -o without.json          the same of another build
    benches/bfq.py run --set low_latency=0 -o without.json                or with another setting
    benches/bfq.py compare with.json without.json                         what is worse, what is better, and the sums
    benches/bfq.py show with.json                                         the table

A cell is one `fairlift iostest` on one modelled disk. Runs are in virtual time: they depend on neither the machine nor what
else it does. One seed of a disk that rotates may be off by some percent for no reason, so means of several are compared, and a
difference counts as chance while it is less than two of its standard errors.

Of each cell: MB/s; the largest share error in percent, and the same after the first fifth; the longest time in ms for which a
group asked and was not served; and of each role its MB/s and its latencies. A figure counts as worse if it is so by more than
3 %, and an error, besides, by half a point.
"""

import argparse
import concurrent.futures
import json
import math
import statistics
import subprocess
import sys

GROUPS8 = "-G --nrgrp 8"
TREE = "--groups docs/examples/groups-three-levels.toml"
HALVES = "-G --nrgrp 2 --weights 100,100"


def cells():
    """Name, and the arguments of iostest: (device, words)."""
    table = []
    for disk, time in [("nvme-plp", 3), ("eva-raid5-12", 60), ("sata-7200", 120)]:
        for load in ["dsr", "drr", "dsw", "drw"]:
            table.append((f"shares {disk} {load}", disk, f"-w {load} --iodepth 32 --jobs 1 {GROUPS8} --runtime {time}"))
        table.append((f"shares {disk} mixed", disk, f"-w mixed --iodepth 32 --jobs 4 {GROUPS8} --runtime {5 * time if time == 3 else time}"))
        for load in ["dsr", "drr", "dsw", "drw"]:
            table.append((f"tree {disk} {load}", disk, f"-w {load} --iodepth 32 --jobs 1 {TREE} --runtime {time}"))
        table.append((f"tree {disk} mixed", disk, f"-w mixed --iodepth 32 --jobs 4 {TREE} --runtime {5 * time if time == 3 else time}"))
    for disk in ["eva-raid5-12", "sata-7200"]:
        for jobs in [1, 2, 4, 8]:
            table.append((f"readers {disk} bsr {jobs}", disk, f"-w bsr --jobs {jobs} {GROUPS8} --runtime 60"))
        for jobs in [1, 4]:
            table.append((f"readers {disk} drr {jobs}", disk, f"-w drr --jobs {jobs} {GROUPS8} --runtime 60"))
            table.append((f"readers {disk} interactive {jobs}", disk, f"-w interactive --jobs {jobs} {GROUPS8} --runtime 60"))
    table.append(("readers nvme-plp drr 1", "nvme-plp", f"-w drr --jobs 1 {GROUPS8} --runtime 3"))
    for load in ["drr", "dsr", "drw"]:
        table.append((f"weights 50 to 900 eva-raid5-12 {load}", "eva-raid5-12",
                      f"-w {load} --iodepth 32 --jobs 1 -G --weights 50,150,400,900 --runtime 60"))
    for disk, time in [("sata-7200", 120), ("ssd-sata-consumer", 120), ("eva-raid5-12", 120)]:
        table.append((f"start {disk}", disk, f"-w docs/examples/start-beside-writers.toml --jobs 4 --runtime {time}"))
    table.append(("start alone sata-7200", "sata-7200", "-w interactive --jobs 1 --runtime 60"))
    for disk, time in [("nvme-plp", 10), ("ssd-plextor-m5", 10), ("sata-7200", 60)]:
        table.append((f"beside writers {disk}", disk,
                      f"-w docs/examples/readers-beside-writers.toml --jobs 4 {HALVES} --runtime {time}"))
    for disk in ["sata-7200", "eva-raid5-12", "ssd-plextor-m5", "nvme-plp"]:
        for jobs in [2, 4, 8]:
            table.append((f"interleaved {disk} {jobs}", disk, f"-w interleaved --jobs {jobs} --runtime {30 if 'eva' in disk else 5}"))
    table.append(("journal ssd-plextor-m5", "ssd-plextor-m5", "-w journal --jobs 6 --runtime 60"))
    for disk, time in [("ssd-sata-consumer", 20), ("sata-7200", 60), ("hdd-8t", 60), ("nvme-consumer", 5)]:
        table.append((f"flushes {disk}", disk, f"-w docs/examples/one-syncs.toml --jobs 4 {HALVES} --runtime {time} --bs 4k"))
    for disk, time in [("nvme-plp", 5), ("ssd-plextor-m5", 10), ("sata-7200", 60), ("eva-raid5-12", 60)]:
        for load in ["bsw", "brw"]:
            table.append((f"write-back {disk} {load}", disk, f"-w {load} --jobs 4 -G --nrgrp 4 --runtime {time}"))
    return table


def late_error(run, groups):
    """The largest share error after the first fifth, in percent."""
    steps = run.get("timeline") or []
    late = steps[len(steps) // 5:]
    had = [sum(step[at] for step in late) for at in range(len(groups))]
    ideal, total = [group["ideal"] for group in groups], sum(had)
    if not total or len(groups) < 2 or sum(ideal) <= 0:
        return None
    return 100 * max(abs(one / total / part - 1) for one, part in zip(had, ideal) if part > 0)


def figures(run):
    groups = run["groups"]
    out = {"MB/s": run["total_kb_s"] / 1000}
    if len(groups) > 1 and not run.get("roles"):
        out["error %"] = 100 * run["share_error_max"]
        late = late_error(run, groups)
        if late is not None:
            out["late error %"] = late
    unserved = [group.get("unserved_max_us", 0) for group in groups]
    if len(groups) > 1:
        out["unserved ms"] = max(unserved) / 1000
    for role in run.get("roles") or []:
        name = role["name"]
        out[f"{name} MB/s"] = role["kb_s"] / 1000
        if role["lat_p50_us"] > 10 and name not in ("writer", "bsw"):
            out[f"{name} p50 ms"] = role["lat_p50_us"] / 1000
            out[f"{name} p99 ms"] = role["lat_p99_us"] / 1000
    out["tree ops"] = run["counters"].get("position_tree_ops", 0)
    return out


def measure(args, cell, seed):
    name, disk, words = cell
    command = [args.fairlift, "iostest", "--device", f"sim:{disk}", "--scheduler", args.scheduler, *words.split(),
               "--seed", str(seed), "--json", "-"]
    for pair in args.set:
        command += ["--set", pair]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{name}: {' '.join(command)}\n{done.stderr}")
    return name, figures(json.loads(done.stdout)["runs"][0])


def run(args):
    wanted = [cell for cell in cells() if not args.only or any(word in cell[0] for word in args.only.split(","))]
    if args.quick:
        wanted = [cell for cell in wanted if not cell[1].startswith("nvme")]
    jobs = [(cell, seed) for cell in wanted for seed in range(args.first, args.first + args.seeds)]
    table = {}
    with concurrent.futures.ThreadPoolExecutor(args.parallel) as pool:
        for name, found in pool.map(lambda job: measure(args, *job), jobs):
            table.setdefault(name, []).append(found)
    seeds = {name: {key: [one.get(key, 0) for one in runs] for key in runs[0]} for name, runs in table.items()}
    with open(args.output, "w", encoding="utf-8") as file:
        json.dump(seeds, file, indent=1)


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def show(args):
    for name, row in load(args.table).items():
        print(f"{name:40}" + "  ".join(f"{key} {statistics.mean(seeds):.4g}" for key, seeds in row.items()))


def is_more_better(key):
    return key.endswith("MB/s")


def kind(key):
    return "MB/s" if key.endswith("MB/s") else key.split(" ", 1)[1] if key.endswith(("p50 ms", "p99 ms")) else key


def standard_error(*samples):
    """Of the difference of the means of two samples."""
    return math.sqrt(sum(statistics.variance(seeds) / len(seeds) for seeds in samples if len(seeds) > 1))


def compare(args):
    before, after = load(args.before), load(args.after)
    sums, lines, chance = {}, {"worse": [], "better": []}, 0
    for name in before:
        for key, old_seeds in before[name].items():
            new_seeds = after.get(name, {}).get(key)
            if new_seeds is None:
                continue
            old, new = statistics.mean(old_seeds), statistics.mean(new_seeds)
            if key == "tree ops":
                if (old == 0) != (new == 0):
                    lines["worse" if new else "better"].append(f"{name:40} {key:16} {old:10.4g} {new:10.4g}")
                continue
            is_error = key.endswith("error %")
            entry = sums.setdefault(kind(key), [])
            if is_error:
                entry.append(new - old)
            elif old > 0 and new > 0:
                entry.append(math.log(new / old))
            change = (new - old) / old if old else 0
            gain = change if is_more_better(key) else -change
            if abs(change) <= 0.03 or is_error and abs(new - old) < 0.5:
                continue
            error = standard_error(old_seeds, new_seeds)
            if abs(new - old) < 2 * error:
                chance += 1
                continue
            shown = f"{name:40} {key:16} {old:10.4g} {new:10.4g}  {100 * change:+7.1f} % +- {100 * error / abs(old or 1):.1f}"
            lines["better" if gain > 0 else "worse"].append(shown)
    for what in ["worse", "better"]:
        print(f"-- {what}: {len(lines[what])}")
        if not args.brief or what == "worse":
            print("\n".join(lines[what]))
    print(f"-- as much by chance: {chance}, of {sum(len(values) for values in sums.values())} figures")
    for key, values in sums.items():
        if key.endswith("error %"):
            print(f"{key:14} mean change {sum(values) / len(values):+.2f} points")
        else:
            print(f"{key:14} geometric mean {math.exp(sum(values) / len(values)):.4f} of before ({len(values)} cells)")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("run")
    one.add_argument("--fairlift", default="target/release/fairlift")
    one.add_argument("--scheduler", default="bfq")
    one.add_argument("--set", action="append", default=[])
    one.add_argument("--only", help="words of names of cells, with commas")
    one.add_argument("--quick", action="store_true", help="without NVMe disks, which take most of the time")
    one.add_argument("--seeds", type=int, default=3)
    one.add_argument("--first", type=int, default=1, help="the first seed")
    one.add_argument("--parallel", type=int, default=2)
    one.add_argument("-o", "--output", required=True)
    one.set_defaults(do=run)
    two = commands.add_parser("compare")
    two.add_argument("--brief", action="store_true", help="only what is worse, and sums")
    two.add_argument("before")
    two.add_argument("after")
    two.set_defaults(do=compare)
    three = commands.add_parser("show")
    three.add_argument("table")
    three.set_defaults(do=show)
    args = parser.parse_args()
    args.do(args)


if __name__ == "__main__":
    main()
