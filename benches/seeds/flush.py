"""Flushes that are shared (003): which disks gain, and which lose.

The seed ran ffsb's mail server on disks of its own, with and without coordination, and says which gained; its spreadsheet is gone. Here each of
its profiles is a modelled disk. PLACES are sizes of a thread's file: on a disk that turns, where the files lie is worth up to 50 % by itself,
so a figure is the geometric mean over them. A live part counts the flushes that Linux sends for syncs of one file and of many (FLUSH_DIR).
"""

import json
import math
import os
import random
import subprocess
import tempfile
import threading
import time
from pathlib import Path

THREADS = [1, 4, 16, 64]
PLACES = ["60m", "64m", "100m"]
SECONDS = 20
ROUNDS = 5
CABINET = "eva-raid5-12,flush_ignored=1"
# What the seed calls it, what it says it has, its verdict, and the model.
PROFILES = [
    ("elm3c44_sata_wc", "SATA disk, write cache", "gains much", "sata-7200"),
    ("elm3c44_ssd", "SSD", "gains much", "ssd-2010"),
    ("", "the same, of 2015", "", "ssd-sata-consumer"),
    ("elm3b231_ipr, _bigfc, elm3b57, elm3c71_scsi", "large caches, no battery", "gains much", "eva-raid5-12,battery=0"),
    ("(not named)", "no write cache", "no change", "sata-7200,write_cache=0"),
    ("elm3c71_extsas", "cabinet with a battery", "no change", CABINET),
    ("elm3c44_sas", "two such cabinets in a stripe", "**loses**", f"{CABINET},disks=24,level=0"),
    ("", "a disk of today", "", "hdd-8t"),
    ("", "NVMe, no protection", "", "nvme-consumer"),
]


def section(fairlift):
    rows = {workload: [] for workload in ("mail", "fsync")}
    for workload, table in rows.items():
        for name, what, verdict, model in PROFILES:
            table.append((name, what, verdict, model, gain(fairlift, model, workload)))
    return f"""The seed's table of profiles: operations a second with flushes shared, by those without (`flush_coordinate=0`), for 1, 4, 16 and 64 threads.
It said: "variations in the runs were never more than about 5%"; that six profiles gain much; that one, a stripe over two cabinets with batteries, oddly loses.

    fairlift iostest sim:MODEL --scheduler none -w WORKLOAD --jobs 1,4,16,64 --filesize {",".join(PLACES)} --runtime {SECONDS} [--set flush_coordinate=0]

`-w mail` (create, append, read; each write made durable):

{table_of(rows["mail"])}

`-w fsync` (4 KiB and a flush, again and again):

{table_of(rows["fsync"])}

{AGREES}

**Threads that think** for 20 to 400 µs, each for a time of its own, beside a reader every 0.7 s, which keeps the model's threads from one rhythm for good. Syncs a second as a part of those without waits (`flush_company=0`) and each by
itself; means of 18 runs, with the least and most:

{thinking(fairlift)}

Waits cost 2 to 8 % on `sata-7200`, where trials find that they do not pay, and gain on `hdd-8t`. Three threads there lose 9 % to sharing itself: that model ends simultaneous flushes at once, as a SAS drive may, and Linux sends them one
after the other.

**The mail server live**: `iostest --device file:IMAGE --write-to-device -w mail` on an image that lies on ext4 on this machine's virtio disk; operations a second, medians of {ROUNDS} rounds in
turn, with the least and most:

{mail_live(fairlift)}

{LIVE}

**All files of a disk.** The seed shares the flushes of a disk, Fairlift those of a backing. Flushes that Linux sent to the disk (`/sys/dev/block/…/stat`) for each sync, of threads that write 4 KiB and call `fdatasync` on ext4 on this
machine's virtio disk:

{files()}

Linux has one flush of a disk in flight at a time since 2011, and shares the next among all files. Above it only the `fdatasync` of each file is left to share, which no call does for several files without writing out others' data
(`syncfs`). So backings do not share."""


AGREES = """- **Agrees:** SSDs gain most. A SATA disk with a write cache gains from four threads on that sync, from 16 on with mail. One thread, and cabinets with batteries under mail, are the same within 5 %. A disk without a write cache
  is sent no flush, and gains the cost of the command.
- **The stripe loses no more than one cabinet.** There md sent each flush to both cabinets, one after another; Fairlift has no stripe of its own, and its flush is one command.
- **Does not agree:** a cabinet loses 11 % with four threads that only sync, 4 % with 16: it ends four flushes at once in 0.6 ms each, and a shared one waits. One thread gains, for its writes are made durable by FUA (`flush_ahead`).
- **Arrays with large caches and no battery gain nothing**, and lose 1 or 2 % under mail: a flush that finds the cache empty costs the model nothing. On `sata-7200` it takes half a revolution, [an estimate](models.md#where-the-models-stop-being-valid).
- **Mail on hard disks loses:** four threads on `sata-7200` 10 %, all on `hdd-8t` 3 to 13 %. A flush waits for the reads in the drive, a fifth of a second with 64 threads; shared flushes wait for the next one, which waits for reads
  again.
- **Waits for company** are tried out against going at once, and kept where they answer more clients in a second ([why](../tried.md#waits-of-flushes-tried-out)). Beside each by itself no thread of this table that syncs on a disk
  loses 5 %; beside no waits four threads on `sata-7200` keep 0.90, and 64 with close logs on `hdd-8t` 0.84. `iostune` measures the gain of sharing, and says `flush_coordinate=0` where it loses more than 5 %."""


def thinking(fairlift):
    """Threads that sync and think, beside a reader that comes by."""
    lines = ["| disk | threads | of those without waits | of each by itself |", "|---|---|---|---|"]
    for model in "sata-7200", "hdd-8t":
        for count in 3, 4, 8, 16:
            draw, ratios = random.Random(1), {"flush_company=0": [], "flush_coordinate=0": []}
            for _ in range(6):
                thinks = [draw.randrange(20, 400) for _ in range(count)]
                for place in PLACES:
                    rate = thought(fairlift, model, thinks, place, [])
                    for other, found in ratios.items():
                        found.append(rate / thought(fairlift, model, thinks, place, ["--set", other]))
            cells = [f"{mean(found):.2f} ({min(found):.2f} to {max(found):.2f})" for found in ratios.values()]
            lines.append(f"| `{model}` | {count} | {' | '.join(cells)} |")
    return "\n".join(lines)


def thought(fairlift, model, thinks, place, more):
    roles = [dict(name=f"log{n}", does="fsync", think=f"{micros}us") for n, micros in enumerate(thinks)]
    roles.append(dict(name="reader", does="direct-read", order="random", think="700ms"))
    rows = [", ".join(f'{key} = "{value}"' for key, value in role.items()) for role in roles]
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        print("[thinking]\nroles = [", *(f'  {{ {row}, block_size = "4k", share = 1 }},' for row in rows), "]", sep="\n", file=file, flush=True)
        command = [fairlift, "iostest", f"sim:{model}", "--scheduler", "none", "-w", file.name, "--jobs", str(len(roles)), "--filesize", place,
                   "--runtime", "40", "--json", "-", *more]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["runs"][0]["iops"]


LIVE = """- Linux shares the syncs of one file, too (below). So a shared flush saves system calls, and no flush of the disk."""


def mail_live(fairlift):
    """Mail on an image of this machine's disk, with flushes shared and each by itself, in turn."""
    found = {way: {threads: [] for threads in THREADS} for way in "10"}
    with tempfile.TemporaryDirectory(dir=os.environ.get("FLUSH_DIR", "/var/tmp")) as folder:
        image = Path(folder) / "image"
        with open(image, "wb") as file:
            for _ in range(2048):
                file.write(os.urandom(1 << 20))
        os.sync()
        for _ in range(ROUNDS):
            for way, of in found.items():
                command = [fairlift, "iostest", "--device", f"file:{image}", "--write-to-device", "--scheduler", "none", "-w", "mail", "--jobs",
                           ",".join(map(str, THREADS)), "--filesize", "24m", "--runtime", "3", "--set", f"flush_coordinate={way}", "--json", "-"]
                for run in json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["runs"]:
                    of[run["jobs"]].append((run["iops"], run["counters"].get("flushes_sent", 0) / max(1, run["counters"].get("flushes_asked", 0))))
    lines = ["| threads | each by itself | shared | ÷ | flushes for each that is asked for |", "|---|---|---|---|---|"]
    for threads in THREADS:
        each, shared = (sorted(rate for rate, _ in found[way][threads]) for way in "01")
        middle = len(each) // 2
        told = [f"{rates[middle]:,.0f} ({rates[0]:,.0f} to {rates[-1]:,.0f})" for rates in (each, shared)]
        sent = sorted(part for _, part in found["1"][threads])[middle]
        lines.append(f"| {threads} | {told[0]} | {told[1]} | {shared[middle] / each[middle]:.2f} | {sent:.2f} |")
    return "\n".join(lines)


def gain(fairlift, model, workload):
    """For each number of threads: the gain, and the rate with shared flushes; means over the places."""
    found = {threads: [] for threads in THREADS}
    for place in PLACES:
        each = rates(fairlift, model, workload, place, ["--set", "flush_coordinate=0"])
        for threads, shared in rates(fairlift, model, workload, place, []).items():
            found[threads].append((shared / each[threads], shared))
    return {threads: tuple(mean(column) for column in zip(*pairs)) for threads, pairs in found.items()}


def rates(fairlift, model, workload, place, more):
    command = [fairlift, "iostest", f"sim:{model}", "--scheduler", "none", "-w", workload, "--jobs", ",".join(map(str, THREADS)),
               "--filesize", place, "--runtime", str(SECONDS), "--json", "-", *more]
    said = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {run["jobs"]: run["iops"] for run in said["runs"]}


def mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def table_of(rows):
    lines = [f"| the seed's | kind | it says | ours | {' | '.join(map(str, THREADS))} | shared, 64 threads, a second |", "|---" * (5 + len(THREADS)) + "|"]
    for name, what, verdict, model, measured in rows:
        cells = [f"{measured[threads][0]:.2f}" for threads in THREADS]
        lines.append(f"| {name} | {what} | {verdict} | `{model}` | {' | '.join(cells)} | {measured[THREADS[-1]][1]:,.0f} |")
    return "\n".join(lines)


def files():
    lines = ["| threads | files | syncs a second | flushes of the disk for each |", "|---|---|---|---|"]
    with tempfile.TemporaryDirectory(dir=os.environ.get("FLUSH_DIR", "/var/tmp")) as folder:
        for threads, count in [(1, 1), (16, 1), (16, 16), (64, 64)]:
            syncs, flushes = synced(Path(folder), threads, count)
            lines.append(f"| {threads} | {count} | {syncs / 3:,.0f} | {flushes / syncs:.2f} |")
    return "\n".join(lines)


def synced(folder, threads, count, seconds=3):
    """Threads that write a block of their own in one of so many files, and sync it: syncs, and flushes that the disk was sent."""
    fds = []
    for file in range(count):
        fds.append(os.open(folder / f"{file}", os.O_RDWR | os.O_CREAT))
        os.pwrite(fds[-1], bytes(threads * 4096), 0)
        os.fsync(fds[-1])
    device = os.fstat(fds[0]).st_dev
    stat = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat")
    done, until = [0] * threads, time.monotonic() + seconds

    def work(thread):
        while time.monotonic() < until:
            os.pwrite(fds[thread % count], bytes(4096), 4096 * thread)
            os.fdatasync(fds[thread % count])
            done[thread] += 1

    before = int(stat.read_text().split()[15])
    workers = [threading.Thread(target=work, args=(thread,)) for thread in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    flushes = int(stat.read_text().split()[15]) - before
    for fd in fds:
        os.close(fd)
    return sum(done), flushes
