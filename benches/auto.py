#!/usr/bin/env python3
"""slice_idle=auto against both fixed settings, on modelled disks in virtual time.

Runs `fairlift iostest` for every profile, scheduler, workload and number of jobs with slice_idle=auto, 8ms and 0, and prints
for each cell the throughput of all groups, the largest share error, and auto as a part of the better of the two fixed
settings. The last lines count the cells and exit with 1 if the promise is broken: at least 95 % of the better one in 95 %
of the cells, and never below 90 %.

    cargo build --release -p fairlift-cli && nice benches/auto.py
    benches/auto.py --profiles sata-7200,eva-raid5-12 --schedulers cfq --runtime 10
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

ARMS = ["auto", "8ms", "0s"]


def profiles(fairlift):
    """The names of all modelled disks."""
    lines = subprocess.run([fairlift, "models"], check=True, capture_output=True, text=True).stdout.splitlines()
    return [line.split()[0] for line in lines if line.startswith("  ") and not line.startswith("   ")]


def measure(args, device, scheduler):
    """Runs one disk with one scheduler; answers the runs by (workload, jobs) and then by setting."""
    with tempfile.TemporaryDirectory() as scratch:
        out = os.path.join(scratch, "out.json")
        command = [args.fairlift, "iostest", "--device", f"sim:{device}", "--scheduler", scheduler, "-w", args.workloads,
                   "-m", "8", "-G", "--nrgrp", "8", "--runtime", str(args.runtime), "--seed", str(args.seed),
                   "--sweep", "slice_idle=auto,8ms,0", "--json", out]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with open(out, encoding="utf-8") as file:
            runs = json.load(file)["runs"]
    cells = {}
    for run in runs:
        value = run["settings"]["slice_idle"]
        arm = {"0": "0s", "0ms": "0s"}.get(value, value)
        cells.setdefault((run["workload"], run["jobs"]), {})[arm] = run
    return cells


def shown(run):
    """Throughput in MiB/s and the largest share error."""
    return f"{run['total_kb_s'] / 1024:8.1f} {100 * run['share_error_max']:4.0f}%"


def settled(run):
    """When the way was chosen that was kept, in seconds; and how many trials there were."""
    decisions = run.get("decisions", [])
    changes = [one["at_s"] for one in decisions if one["from"] != one["to"]]
    return f"{changes[-1]:5.1f}s" if changes else "    -", len(decisions)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fairlift", default="target/release/fairlift")
    parser.add_argument("--profiles", help="names, with commas; default: all")
    parser.add_argument("--schedulers", default="cfq,bfq")
    parser.add_argument("--workloads", default="bsr,drr,mixed,interactive")
    parser.add_argument("--runtime", type=float, default=30, help="seconds of disk time of a run")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--verbose", action="store_true", help="print every decision")
    args = parser.parse_args()
    parts, promised = [], True
    for scheduler in args.schedulers.split(","):
        mine = []
        for device in args.profiles.split(",") if args.profiles else profiles(args.fairlift):
            print(f"\n{scheduler} on sim:{device}: MiB/s and largest share error; when the way last changed, and findings")
            heads = "".join(f"{arm:>15}" for arm in ARMS)
            print(f"{'workload':12}{'jobs':>5}{heads}{'of best':>9}{'change':>8}{'found':>7}", flush=True)
            for (workload, jobs), arms in measure(args, device, scheduler).items():
                best = max(arms["8ms"]["total_kb_s"], arms["0s"]["total_kb_s"])
                part = arms["auto"]["total_kb_s"] / best
                mine.append(part)
                cells = "".join(f" {shown(arms[arm])}" for arm in ARMS)
                change, found = settled(arms["auto"])
                mark = "" if part >= 0.95 else " *" if part >= 0.9 else " **"
                print(f"{workload:12}{jobs:5}{cells}{part:9.3f}{change:>8}{found:7}{mark}", flush=True)
                for one in arms["auto"].get("decisions", []) if args.verbose else []:
                    print(f"    {one['at_s']:6.2f} {one['from']:>8} -> {one['to']:8} {one['idle_kb_s'] / 1024:8.1f} idle"
                          f"{one['parallel_kb_s'] / 1024:8.1f} parallel")
        near = sum(part >= 0.95 for part in mine)
        is_kept = near >= 0.95 * len(mine) and min(mine) >= 0.9
        promised &= is_kept
        print(f"\n{scheduler}: {near} of {len(mine)} cells ({100 * near / len(mine):.1f} %) within 5 % of the better fixed "
              f"setting; the worst has {min(mine):.3f}: {'kept' if is_kept else 'NOT KEPT'}")
        parts += mine
    print(f"all: {sum(part >= 0.95 for part in parts)} of {len(parts)} cells, worst {min(parts):.3f}")
    sys.exit(0 if promised else 1)


if __name__ == "__main__":
    main()
