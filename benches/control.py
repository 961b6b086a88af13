#!/usr/bin/env python3
"""What do tenants notice of changes, and of hostile clients at the control socket? Live: fio, NBD, one server.

    benches/control.py changes     p99 of four tenants without and with 33 changes a second
    benches/control.py hostile     the same beside silent clients, junk, bodies that do not end, 10,000 groups
    benches/control.py weights     how soon a new weight is what the tenants get
    benches/control.py instructions   of a request in a worker, with and without a control socket (callgrind)

    --backing file|mem   what the tenants have: image files below --dir [file], or RAM
    --dir DIR            where images go [target/bench-control]
    --pairs N            runs without and with, in turn [12]       --seconds S   each [4]

`changes` and `hostile`: fio runs without and with what disturbs, in turn; four tenants, each 32 random reads and writes of 4 KiB in
flight at one disk with scheduler fair. A row has the median of the tenants' p99 without and with, and the median of the ratios of
neighbours with the middle half of them. The tenants' own weights change all at once, so that their shares stay; likewise all else of
theirs comes back to what it was. `scheduler` goes to bfq and back in one change; `none` to none, whose queues are other ones, so that the
disk is frozen until its own are empty.

`weights`: two tenants, each four connections with 32 random reads of 4 KiB in flight. One has a weight of 100; that of the other goes
from 100 to 300 and back. Shares are of I/Os in 250 ms; the wait lasts to the end of the first 250 ms from which on a second has the
settled share within 2 points; settled is the median of the second half of the time with that weight.
"""

import argparse
import contextlib
import json
import os
import random
import re
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
sys.path.insert(0, str(ROOT / "tests/e2e"))
FAIRLIFT = os.environ.setdefault("FAIRLIFT", f"{os.environ.get('CARGO_TARGET_DIR', ROOT / 'target')}/release/fairlift")
from control import Unix  # noqa: E402: it wants to know which binary

RATE = 10_000 / 300  # changes a second
IMAGE = 512 << 20


class Server:
    """A server with exports t0, t1, … in groups of the same names, on one disk."""

    def __init__(self, place, options, tenants):
        self.place, self.socket, self.control = place, f"{place}/s", f"{place}/c"
        text = f'[disk.d]\nscheduler = "{options.scheduler}"\n'
        for n in range(tenants):
            image = f"{options.dir}/t{n}.img"
            if options.backing == "file" and not (os.path.exists(image) and os.stat(image).st_blocks * 512 >= IMAGE):
                with open(image, "wb") as file:
                    for _ in range(IMAGE >> 20):
                        file.write(os.urandom(1 << 20))
                    os.fsync(file.fileno())
            backing = f"file:{image}" if options.backing == "file" else f"mem:{IMAGE}"
            text += f'[export.t{n}]\nbacking = "{backing}"\ndisk = "d"\ngroup = "/tenants/t{n}"\n'
        Path(f"{place}/f.toml").write_text(text)
        self.process = subprocess.Popen(
            [FAIRLIFT, "serve", "--config", f"{place}/f.toml", "--listen", f"unix:{self.socket}", "--control", f"unix:{self.control}"],
            stdout=subprocess.DEVNULL, stderr=open(f"{place}/log", "wb"))
        while not os.path.exists(self.control):
            if self.process.poll() is not None:
                sys.exit(Path(f"{place}/log").read_text())
            time.sleep(0.01)

    def ask(self, method, path, body=None):
        """The status, and what was answered."""
        connection = Unix(self.control)
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def stop(self):
        self.process.terminate()
        self.process.wait(60)


def fio(server, jobs, seconds, *more):
    """Runs jobs, (name, export) each, at once; answers what fio says of each."""
    words = ["fio", "--output-format=json", "--ioengine=nbd", "--bs=4k", "--iodepth=32", f"--size={IMAGE}", "--time_based", "--thread",
             f"--runtime={seconds}", "--ramp_time=0.5", "--norandommap", "--randrepeat=0", *more]
    for name, export in jobs:
        words += [f"--name={name}", f"--uri=nbd+unix:///{export}?socket={server.socket}"]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def tails(process):
    """The p99 of each job in µs, of reads and writes together weighed by their number."""
    out, err = process.communicate()
    if process.returncode:
        sys.exit(f"fio failed: {err or out[-500:]}")
    tails = []
    for job in json.loads(out[out.index("{"):])["jobs"]:
        both = [(job[way]["clat_ns"]["percentile"]["99.000000"], job[way]["total_ios"]) for way in ("read", "write") if job[way]["total_ios"]]
        tails.append(sum(p99 * ios for p99, ios in both) / sum(ios for _, ios in both) / 1000)
    return tails


def every(seconds, stop, work):
    """Does something again and again until told to stop."""
    next_at = time.monotonic()
    while not stop.is_set():
        work()
        next_at = max(next_at + seconds, time.monotonic() - 1)
        time.sleep(max(0, next_at - time.monotonic()))


def image_of_others(server):
    path = f"{server.place}/other.img"
    with open(path, "wb") as file:
        file.truncate(4 << 20)
    return path


def made(server, stop, counts, kinds):
    """Changes of these kinds at random, until told to stop."""
    def one():
        counts[server.ask(*random.choice(kinds()))[0] == 200] += 1

    every(1 / RATE, stop, one)


def changes_of_others(server):
    """Changes that have nothing to do with the tenants."""
    image = image_of_others(server)

    def kinds():
        name, door, group = f"x{random.randrange(5)}", f"unix:{server.place}/door{random.randrange(2)}", random.choice(["/x", "/x/y", "/z"])
        return [
            ("POST", "/v1/groups", {"path": group}),
            ("PATCH", "/v1/groups" + group, {"weight": random.randint(1, 1000)}),
            ("DELETE", "/v1/groups" + group),
            ("POST", "/v1/disks", {"name": "e"}),
            ("DELETE", "/v1/disks/e"),
            ("POST", "/v1/exports", {"name": name, "backing": "mem:1m", "disk": "d", "group": "/x"}),
            ("POST", "/v1/exports", {"name": name, "backing": f"file:{image}"}),
            ("DELETE", f"/v1/exports/{name}"),
            ("PATCH", f"/v1/exports/{name}", {"read_only": random.choice([True, False])}),
            ("POST", "/v1/listeners", {"address": door}),
            ("DELETE", f"/v1/listeners/{door}"),
        ]

    return kinds


def their_own(*which):
    """Changes of the tenants and of their disk, so that their shares stay."""
    def kinds():
        tenant, weight = f"t{random.randrange(4)}", random.randint(1, 1000)
        same = [{"set": "group", "name": f"/tenants/t{n}", "weight": weight} for n in range(4)]
        there_and_back = [
            {"add": "group", "name": "/tenants/other"}, {"set": "export", "name": tenant, "group": "/tenants/other"},
            {"set": "export", "name": tenant, "group": f"/tenants/{tenant}"}, {"remove": "group", "name": "/tenants/other"}]
        by_way_of = {way: ("POST", "/v1/changes", {"changes": [
            {"set": "disk", "name": "d", "scheduler": way}, {"set": "disk", "name": "d", "scheduler": "fair"}]}) for way in ("bfq", "none")}
        all_ = {
            "weights": ("POST", "/v1/changes", {"changes": same}),
            "groups": ("POST", "/v1/changes", {"changes": there_and_back}),
            "ioprio": ("PATCH", f"/v1/exports/{tenant}", {"ioprio": random.choice(["be/4", "be/3"])}),
            "description": ("PATCH", f"/v1/exports/{tenant}", {"description": str(weight)}),
            "tunables": ("PATCH", "/v1/disks/d", {"isolation_cost": random.choice([15, 16])}),
            "depth": ("PATCH", "/v1/disks/d", {"depth": random.choice(["auto", 127])}),
            "nr_requests": ("PATCH", "/v1/disks/d", {"nr_requests": random.choice(["auto", 8192])}),
            "scheduler": by_way_of["bfq"],
            "queues": by_way_of["none"],
        }
        return [all_[name] for name in which or all_]

    return lambda server: kinds


def changes(*sources):
    """Changes at random, each kind as often as another."""
    def make(server, stop, counts):
        of = [source(server) for source in sources]
        made(server, stop, counts, lambda: [kind for kinds in of for kind in kinds()])

    return make


def connect(server):
    one = socket.socket(socket.AF_UNIX)
    one.connect(server.control)
    return one


def silent(server, stop, _):
    """1,000 clients say nothing. They have to come again every 5 s, as the server leaves them."""
    clients = []
    while not stop.is_set():
        for one in clients:
            one.close()
        clients = []
        for _ in range(1000):
            with contextlib.suppress(OSError):
                clients.append(connect(server))
        stop.wait(5)


def junk(server, stop, _):
    """1 MiB of junk, four times a second."""
    rubbish = random.Random(1).randbytes(1 << 20)

    def one():
        with contextlib.suppress(OSError), connect(server) as client:
            client.settimeout(1)
            client.sendall(rubbish)

    every(0.25, stop, one)


def endless(server, stop, _):
    """50 clients whose bodies do not end: a chunk each, ten times a second."""
    clients = []
    while not stop.is_set():
        while len(clients) < 50:
            clients.append(connect(server))
            clients[-1].sendall(b"POST /v1/groups HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        for one in list(clients):
            try:
                one.sendall(b"400\r\n" + b" " * 1024 + b"\r\n")
            except OSError:
                clients.remove(one)
        stop.wait(0.1)


def groups(server, stop, _):
    """10,000 groups are there, in which nobody is."""
    paths = [f"/many/{n}" for n in range(10_000)]
    for act in "add", "remove":
        status, said = server.ask("POST", "/v1/changes", {"changes": [{act: "group", "name": path} for path in paths]})
        assert status == 200, said
        if act == "add":
            stop.ready.set()
            stop.wait()
    server.ask("DELETE", "/v1/groups/many")


def pairs(options, disturbances):
    print("| | p99 without | with | ratio (middle half) | changes made, refused |\n|---|---|---|---|---|")
    for name, disturb in disturbances.items():
        with tempfile.TemporaryDirectory() as place:
            server = Server(place, options, 4)
            jobs = [(f"t{n}", f"t{n}") for n in range(4)]
            work = ("--rw=randrw", "--rwmixread=70")
            tails(fio(server, jobs, 1, *work))
            counts, all_ = {True: 0, False: 0}, ([], [])
            for pair in range(options.pairs):
                for with_ in (False, True) if pair % 2 else (True, False):
                    stop = threading.Event()
                    stop.ready = threading.Event()
                    thread = threading.Thread(target=disturb, args=(server, stop, counts))
                    if with_:
                        thread.start()
                        stop.ready.wait(10 if disturb is groups else 0.2)
                    all_[with_].append(statistics.mean(tails(fio(server, jobs, options.seconds, *work))))
                    stop.set()
                    if with_:
                        thread.join()
            ratios = sorted(b / a for a, b in zip(*all_))
            quarter = len(ratios) // 4
            a, b = (statistics.median(some) for some in all_)
            print(f"| {name} | {a:.0f} µs | {b:.0f} µs | {statistics.median(ratios):.3f} ({ratios[quarter]:.3f} to {ratios[-1 - quarter]:.3f}) "
                  f"| {f'{counts[True]}, {counts[False]}' if counts[True] else '-'} |", flush=True)
            server.stop()


def weights(options):
    window, held = 0.25, 6
    with tempfile.TemporaryDirectory() as place:
        server = Server(place, options, 2)
        load = fio(server, [(f"t{n}.{c}", f"t{n}") for n in range(2) for c in range(4)], 2 + 2 * held * options.pairs + 5, "--rw=randread")
        time.sleep(2.5)
        series, marks, stop = [], [], threading.Event()

        def look():
            while not stop.is_set():
                said = server.ask("GET", f"/v1/status?seconds={window}")[1]
                rates = {tenant["path"][-2:]: tenant["iops"] for tenant in said["tenants"]}
                series.append((time.monotonic(), rates.get("t0", 0) / max(1, sum(rates.values()))))

        thread = threading.Thread(target=look)
        thread.start()
        for turn in range(2 * options.pairs):
            weight = 100 if turn % 2 else 300
            at = time.monotonic()
            server.ask("PATCH", "/v1/groups/tenants/t0", {"weight": weight})
            marks.append((at, weight))
            time.sleep(held)
        stop.set()
        thread.join()
        load.send_signal(signal.SIGINT)
        load.communicate()
        server.stop()
    shares, waits, spreads = {100: [], 300: []}, [], []
    for at, weight in marks:
        mine = [(end - at, share) for end, share in series if at + window <= end < at + held]
        late = [share for end, share in mine if end > held / 2]
        settled = statistics.median(late)
        shares[weight].append(settled)
        spreads.append(statistics.pstdev(late))
        for n, (end, _) in enumerate(mine):
            if abs(statistics.mean(share for _, share in mine[n:n + 4]) - settled) <= 0.02 and abs(mine[n][1] - settled) <= max(0.02, 2 * spreads[-1]):
                waits.append(end)
                break
        else:
            waits.append(float("inf"))
    for weight, entitled in (100, 50), (300, 75):
        some = sorted(100 * share for share in shares[weight])
        print(f"weight {weight} of {weight + 100}: share {statistics.median(some):.1f} % ({some[0]:.1f} to {some[-1]:.1f}), entitled {entitled} %")
    waits.sort()
    print(f"until a new weight is what they get: median {statistics.median(waits):.2f} s, longest {waits[-1]:.2f} s, {len(waits)} changes; "
          f"{sum(wait <= 1 for wait in waits)} within 1 s. Settled shares of {window} s vary by {100 * statistics.median(spreads):.1f} points (standard deviation)")


def counted(place, name, seconds):
    """Instructions of the worker of a server's whole life, and the reads that it did."""
    load = Path(os.environ.get("W") or f"{os.environ.get('TMPDIR', '/tmp')}/fairlift-peers") / "bin/nbdload"
    at = "off" if name == "off" else f"unix:{place}/c"
    process = subprocess.Popen(
        ["valgrind", "--tool=callgrind", "--separate-threads=yes", f"--callgrind-out-file={place}/callgrind", FAIRLIFT, "serve", "n=null:1g",
         "--listen", f"unix:{place}/s", "--workers", "1", "--scheduler", "fair", "--control", at],
        stdout=subprocess.DEVNULL, stderr=open(f"{place}/log", "wb"))
    while not os.path.exists(f"{place}/s") or (at != "off" and not os.path.exists(f"{place}/c")):
        time.sleep(0.05)
    ended, loads = threading.Event(), []

    def asks():
        # To the end and beyond: under valgrind no thread runs while a worker waits for its ring.
        while not ended.is_set():
            loads.append(subprocess.Popen(
                [load, "--uri", f"nbd+unix:///n?socket={place}/s", "--depth", "32", "--warmup", "0", "--seconds", "1000", "--seed", "1"],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            loads[-1].wait()
            time.sleep(0.2)

    asking = threading.Thread(target=asks)
    asking.start()
    stop, server = threading.Event(), Server.__new__(Server)
    server.place, server.control = place, f"{place}/c"
    asked = [0]

    def work():
        server.ask("POST", "/v1/groups", {"path": f"/g{random.randrange(10 ** 9)}"})
        asked[0] += 1

    thread = threading.Thread(target=every, args=(1 / RATE, stop, work))
    if "changes" in name:
        thread.start()
    time.sleep(seconds)
    stop.set()
    if "changes" in name:
        thread.join()
    process.terminate()
    process.wait()
    ended.set()
    loads[-1].kill()
    asking.join()
    files = [Path(place) / file for file in os.listdir(place) if file.startswith("callgrind")]
    totals = [int(line.split()[1]) for file in files for line in file.read_text().splitlines() if line.startswith(("totals:", "summary:"))]
    reads = re.search(r"read=(\d+)/", re.sub(r"\x1b\[[0-9;]*m", "", Path(f"{place}/log").read_text()))
    return max(totals), int(reads[1]), asked[0]  # The worker is the thread that did most.


def instructions(_):
    print("| control | instructions of a read in the worker | reads | changes |\n|---|---|---|---|")
    for name in "off", "a socket", "a socket, and 33 changes a second":
        figures = []
        for seconds in 4, 12:
            with tempfile.TemporaryDirectory() as place:
                figures.append(counted(place, name, seconds))
        (i0, n0, asked0), (i1, n1, asked1) = figures
        print(f"| {name} | {(i1 - i0) / (n1 - n0):.0f} | {n1 - n0} | {asked1 - asked0} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["changes", "hostile", "weights", "instructions"])
    parser.add_argument("--backing", choices=["file", "mem"], default="file")
    parser.add_argument("--scheduler", default="fair")
    parser.add_argument("--dir", default=str(ROOT / "target/bench-control"))
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--only", help="one row of `changes` or `hostile`")
    options = parser.parse_args()
    Path(options.dir).mkdir(parents=True, exist_ok=True)
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    print(f"commit {commit}, {os.cpu_count()} CPUs, {options.backing}, scheduler {options.scheduler}")
    rows = {
        "changes": {
            "exports, groups, disks, listeners of others": changes(changes_of_others),
            "weights, groups, priorities, descriptions": changes(their_own("weights", "groups", "ioprio", "description")),
            "tunables": changes(their_own("tunables")),
            "depth, nr_requests": changes(their_own("depth", "nr_requests")),
            "scheduler": changes(their_own("scheduler")),
            "none": changes(their_own("queues")),
            "every kind": changes(changes_of_others, their_own()),
        },
        "hostile": {"1,000 silent clients": silent, "1 MiB of junk": junk, "50 bodies without an end": endless, "10,000 groups": groups},
    }
    if options.what in rows:
        pairs(options, {name: row for name, row in rows[options.what].items() if not options.only or options.only in name})
    else:
        {"weights": weights, "instructions": instructions}[options.what](options)


if __name__ == "__main__":
    main()
