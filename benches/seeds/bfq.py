"""BFQ (000): a journal beside six clients, and the S suite's start-up and throughput.

All in virtual time, on modelled disks.
"""

import concurrent.futures
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
DISKS = ["sata-7200", "ssd-plextor-m5"]
SCHEDULERS = ["none", "mq-deadline", "bfq"]
SEEDS = [1, 2, 3]
# Of throughput and of start-up, in seconds.
LONG = {"sata-7200": (30, 120), "ssd-plextor-m5": (10, 30)}
# As run_main_benchmarks.sh has them: readers, writers, order. fio's defaults there: 4 KiB at a time through the page cache, a file each.
THROUGHPUT = [(1, 0, "seq"), (10, 0, "seq"), (10, 0, "rand"), (5, 5, "seq"), (5, 5, "rand")]
START = [(0, 0, "seq"), (10, 0, "seq"), (5, 5, "seq"), (10, 0, "rand"), (5, 5, "rand")]


def section(fairlift):
    arms = [line.split("\t") for line in subprocess.run(
        ["cargo", "run", "-q", "--release", "-p", "fairlift-lab", "--example", "merging"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()]
    rate = {name: float(words[0]) for name, *words in arms}
    off, linux = rate["bfq, turns, merging off"], rate["bfq, turns, merging as Linux"]
    lines = [f"| {name} | {mean} ({deviation}) | {float(mean) / rate['none']:.2f} | {merges} | {holds} |" for name, mean, deviation, merges, holds in arms]
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(2) as pool:
        jobs = [(fairlift, folder, start, load, disk, scheduler, seed) for start, loads in ((False, THROUGHPUT), (True, START)) for load in loads
                for disk in DISKS for scheduler in SCHEDULERS for seed in SEEDS]
        found = dict(zip([job[2:] for job in jobs], pool.map(lambda job: measure(*job), jobs)))
    head = "| | " + " | ".join(f"{disk}: {scheduler}" for disk in DISKS for scheduler in SCHEDULERS) + " |\n" + "|---" * (1 + len(DISKS) * len(SCHEDULERS)) + "|"
    return f"""\
**A journal beside six clients** (`cargo run --release -p fairlift-lab --example merging` at 54dd9308, `ssd-plextor-m5`, 60 s, five seeds: mean and
deviation). In the seed dbench with 6 clients and a journal of more weight had about 150 MB/s with merging on flash and 200 without, and 200 with every
other scheduler: 0.75.

| | MB/s | of `none` | queues merged | disk held idle |
|---|---|---|---|---|
{chr(10).join(lines)}

- **Agrees**: a shared queue with the journal's weight costs {100 - 100 * linux / off:.0f} % ({linux / off:.2f}), and without merging BFQ is level with the others. It takes
  both: merging, and the journal's weight for clients that joined it. The last arm exists in this experiment alone; Fairlift merges within a level only (merge.3), and not on flash.
- **Differs**: two of the clients write files close to the journal and four read elsewhere, for a stream that seeks merges with none; dbench does both in each client. `bfq` serves many streams at once and moves more than
  `none`. All arms have `low_latency=0`: with raising the last arm loses more, as in Linux (raising.5).

**Throughput**, in the manner of the S suite's `throughput-sync.sh`: MB/s of all, 30 s and 10 s, mean of three seeds. `10r0w-seq` is ten sequential readers and no writer, through the page cache, 4 KiB at a
time, a file each:

{head}
{table(found, False, THROUGHPUT, "{:.1f}".format)}

**Start-up**, in the manner of `comm_startup_lat.sh` (400 small reads, one after the other, in place of a program): seconds, median in
120 s and 30 s, mean of three seeds. A dash: with one of them no start was over in that time; the suite gives up after 120 s, too:

{head}
{table(found, True, START, "{:.2f}".format)}

The seed has no figures of these; it names the suite, and 1.9 µs a request on a Core i7-2760QM without merging, 10 % less than with it
([ours](schedulers.md#what-it-costs): 19 % less or more). The suite slows writers to 4 MB/s on disks that rotate; here they are not slowed.
"""


def measure(fairlift, folder, start, load, disk, scheduler, seed):
    readers, writers, order = load
    roles = [("buffered-read", readers), ("buffered-write", writers)]
    roles = [f'{{ does = "{does}", order = "{"random" if order == "rand" else "sequential"}", share = {count} }}' for does, count in roles if count]
    if start:
        once = ", once = true" if roles else ""
        roles.insert(0, f'{{ name = "start", does = "interactive"{once} }}')
    path = Path(folder) / f"{start}-{readers}-{writers}-{order}-{disk}-{scheduler}-{seed}.toml"
    path.write_text(f'[load]\nabout = "of the S suite"\nroles = [{", ".join(roles)}]\n', encoding="utf-8")
    command = [fairlift, "iostest", "--device", f"sim:{disk}", "--scheduler", scheduler, "-w", path, "--jobs", str(max(1, readers + writers)),
               "--runtime", str(LONG[disk][start]), "--seed", str(seed), "--json", "-"]
    run = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["runs"][0]
    if not start:
        return run["total_kb_s"] / 1000
    role = next((role for role in run.get("roles") or [] if role["name"] == "start"), None)
    if role:
        return role["lat_p50_us"] / 1e6 if role["iops"] > 0 else None
    each = [latency for latency, count in run["latencies"] for _ in range(count)]
    return statistics.median(each) / 1e6


def table(found, start, loads, show):
    rows = []
    for readers, writers, order in loads:
        cells = [[found[start, (readers, writers, order), disk, scheduler, seed] for seed in SEEDS] for disk in DISKS for scheduler in SCHEDULERS]
        row = " | ".join("–" if None in cell else show(statistics.mean(cell)) for cell in cells)
        rows.append(f"| {readers}r{writers}w-{order} | {row} |")
    return "\n".join(rows)
