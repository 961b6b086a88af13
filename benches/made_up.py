#!/usr/bin/env python3
"""Do tenants get what is due to them in situations that nobody chose? In the lab, by builds of fairlift.

    benches/made_up.py --toml > my.toml                  the situations; for `fairlift iostest -w my.toml` and benches/tenants.py --file my.toml
    benches/made_up.py OLD NEW                           builds compared, on the models of flash disks
    benches/made_up.py fairlift:none fairlift:fair       BUILD:SCHEDULER [fair]: schedulers compared
    benches/made_up.py --seed 3 --count 12 --seed 5 --count 14 OLD NEW

A situation has 2 to 5 tenants of weights 50 to 800, which read or write 4 KiB to 256 KiB at depths of 1 to 64, at random or in order; some flush. The
same seed makes the same situations. Isolation is the least score of any tenant, use how much of the disk is at work (benches/tenants.py); a score of
more than 1 counts as 1, and isolations have a geometric mean. Better and worse: by a tenth of isolation, beside the first build.
"""
import argparse
import concurrent.futures
import json
import math
import random
import statistics
import subprocess
import tempfile
from pathlib import Path

MODELS = "ssd-2010 ssd-plextor-m5 ssd-sata-consumer ssd-sata-plp nvme-plp nvme-consumer virtio-ssd".split()


def tenant(pick):
    does = pick(["direct-read", "direct-read", "direct-write"])
    order = pick(["random", "random", "random", "sequential"])
    block = pick(["4k", "4k", "4k", "8k", "16k", "64k", "256k"])
    depth = pick([1, 2, 4, 8, 16, 16, 32, 32, 48, 64])
    weight = pick([50, 100, 100, 200, 300, 400, 800])
    flush = pick([0] * 6 + [1, 8]) if does == "direct-write" and order == "random" else 0
    depth = min(depth, 8) if block == "256k" else depth
    flushes = f", flush_every = {flush}" if flush else ""
    return f'  {{ weight = {weight}, does = "{does}", order = "{order}", block_size = "{block}", iodepth = {depth}{flushes} }},'


def situations(seed, count):
    pick = random.Random(seed).choice
    return "\n".join("\n".join([f"[seed{seed}-{number}]", 'about = "made up"', "tenants = [",
                                *(tenant(pick) for _ in range(pick([2, 2, 2, 3, 3, 4, 5]))), "]\n"]) for number in range(count))


def run(build, model, file):
    program, _, scheduler = build.partition(":")
    command = [program, "iostest", f"sim:{model}", "--scheduler", scheduler or "fair", "-w", file, "--seed", "1", "--json", "-"]
    said = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {(model, run["workload"]): (min(max(run["isolation"], 0.01), 1), run["use"]) for run in said["runs"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, action="append")
    parser.add_argument("--count", type=int, action="append")
    parser.add_argument("--toml", action="store_true", help="print the situations, and run nothing")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("build", nargs="*")
    options = parser.parse_args()
    seeds, counts = options.seed or [3], options.count or [12]
    if len(seeds) != len(counts):
        parser.error("a --count for each --seed")
    toml = "\n".join(map(situations, seeds, counts))
    if options.toml:
        return print(toml)
    if not options.build:
        parser.error("which builds?")
    with tempfile.TemporaryDirectory() as place, concurrent.futures.ThreadPoolExecutor(2) as pool:
        file = Path(place, "made-up.toml")
        file.write_text(toml)
        jobs = {build: [pool.submit(run, build, model, file) for model in options.models.split(",")] for build in options.build}
        found = {build: {key: got for job in of for key, got in job.result().items()} for build, of in jobs.items()}
    print("| | isolation | use | better | worse | of |\n|---|---|---|---|---|---|")
    first, worst = found[options.build[0]], []
    for build, cells in found.items():
        isolation = math.exp(statistics.mean(math.log(isolation) for isolation, _ in cells.values()))
        beside = [isolation / first[key][0] for key, (isolation, _) in cells.items()]
        print(f"| {build} | {isolation:.3f} | {statistics.mean(use for _, use in cells.values()):.3f} | {sum(one > 1.1 for one in beside)} | "
              f"{sum(one < 0.9 for one in beside)} | {len(cells)} |", flush=True)
        if cells is not first:
            worst += [f"{build}: {part:.2f} of it in {name} on {model}" for part, (model, name) in sorted(zip(beside, cells))[:3]]
    print("", *worst, sep="\n")


if __name__ == "__main__":
    main()
