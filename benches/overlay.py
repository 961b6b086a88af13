#!/usr/bin/env python3
"""What do overlays cost? Forks: from asking for one to its first read, and the memory of those that nobody uses.

    benches/overlay.py forks               100 forks of a disk that is written, and of one that is not; 1,000 forks of an image of 1 GiB
    benches/overlay.py idle                the CPU time of a request while 1,000 forks that were used are idle beside it
    benches/overlay.py forks --count N     so many in the last row, and in idle [1000]
    benches/overlay.py --dir PATH          where the files lie [the directory of temporary files]

A fork is asked for by HTTP at the control socket (`POST /v1/exports/a/fork`); then a client connects over NBD, opens the fork and reads
4 KiB of it. Between forks of a disk that is written 16 random blocks of 4 KiB are, and every sixth fork a new disk is begun, for chains end at eight.
In idle each fork reads once and its client stays; then nbdload reads 4 KiB at random from one more, with 1 and 32 requests at once: the workers' busy
time for each of those, without what they looked for news.
Memory is the PSS (`smaps_rollup`) of the server, before and after, divided by the number of forks.
"""

import argparse
import http.client
import json
import os
import random
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from decimal import Decimal
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benches/peers"))
sys.path.insert(0, str(ROOT / "tests/e2e"))

import measured  # noqa: E402
from idle import connect, read_once  # noqa: E402

# The rows of the table in docs/measured/overlay.md, in the order in which `forks` measures.
DISKS = ("of a disk that nobody has written (nothing is frozen)", "of a disk that was written since the last fork, 16 blocks of 4 KiB each time")

FAIRLIFT = os.environ.get("FAIRLIFT", f"{os.environ.get('CARGO_TARGET_DIR', ROOT / 'target')}/release/fairlift")


def pss(pid):
    with open(f"/proc/{pid}/smaps_rollup") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


class Control(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)

    def ask(self, method, path, body=None):
        self.request(method, path, body and json.dumps(body))
        answer = self.getresponse()
        told = answer.read()
        if answer.status != 200:
            sys.exit(f"{method} {path}: {told.decode()}")
        return json.loads(told)

    def busy(self):
        """For how long the workers had something to do, in seconds: not while they looked for news."""
        self.request("GET", "/metrics")
        lines = self.getresponse().read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith("fairlift_worker_busy_seconds_total{"))


class Server:
    def __init__(self, place, *exports):
        self.nbd, control = f"{place}/nbd.sock", f"{place}/control.sock"
        command = [FAIRLIFT, "serve", *exports, "--listen", f"unix:{self.nbd}", "--control", f"unix:{control}"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not (os.path.exists(self.nbd) and os.path.exists(control)):
            if self.process.poll() is not None:
                sys.exit("the server does not start")
            time.sleep(0.01)
        self.control = Control(control)

    def client(self, name):
        return connect(f"nbd+unix:///{name}?socket={self.nbd}")

    def fork(self, of, name):
        """Milliseconds until the answer, and until the first read has been answered."""
        begun = time.perf_counter()
        self.control.ask("POST", f"/v1/exports/{of}/fork", {"name": name})
        answered = time.perf_counter()
        client = self.client(name)
        read_once(client, 0, 4096)
        done = time.perf_counter()
        client.close()
        return 1e3 * (answered - begun), 1e3 * (done - begun)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def told(name, times):
    """Median and 99th percentile of the answer, then of the first read."""
    answered, read = ([time[at] for time in times] for at in (0, 1))
    p99 = lambda all: sorted(all)[int(len(all) * 0.99) - 1 if len(all) >= 100 else -1]
    found = [statistics.median(answered), p99(answered), statistics.median(read), p99(read)]
    print(f"{name:44} answer {found[0]:7.2f} ms, p99 {found[1]:7.2f}   first read {found[2]:7.2f} ms, p99 {found[3]:7.2f}", flush=True)
    return found


def record(runs):
    """The table of forks in docs/measured/overlay.md: medians of the runs, and the least and the most of their 99th percentiles."""
    rows = []
    for disk, of in zip(DISKS, zip(*runs)):
        answer, answer_p99, read, read_p99 = zip(*of)
        figures = (statistics.median(answer), min(answer_p99), max(answer_p99), statistics.median(read), min(read_p99), max(read_p99))
        rows.append([disk, *(f"{figure:.1f}" for figure in figures)])
    measured.record("overlay", "forks", [[row[0], *map(Decimal, row[1:])] for row in rows], f"benches/overlay.py forks --runs {len(runs)}")


def base(place, size):
    path = f"{place}/base.img"
    with open(path, "wb") as file:
        file.truncate(size)
        file.write(random.Random(1).randbytes(1 << 20))
    return path


def forks(place, count):
    chance = random.Random(2)
    image = base(place, 1 << 30)
    server = Server(place, f"a=overlay:base={image},top={place}/a.top")
    fresh = told("100 forks of a disk that nobody has written", [server.fork("a", f"x{n}") for n in range(100)])
    times, disk = [], "a"
    from nbdclient import Client
    for n in range(100):
        if n % 6 == 0:
            disk = f"d{n}"
            server.control.ask("POST", "/v1/exports", {"name": disk, "backing": f"overlay:base={image},top={place}/{disk}.top", "group": "/a"})
        with Client(server.nbd, disk) as client:
            for _ in range(16):
                client.write(chance.randrange(1 << 18) * 4096, chance.randbytes(4096))
        times.append(server.fork(disk, f"y{n}"))
    written = told("100 forks of a disk that is written", times)
    server.stop()
    os.unlink(f"{place}/a.top")
    server = Server(place, f"a=overlay:base={image},top={place}/a.top")
    server.fork("a", "z")
    before = pss(server.process.pid)
    begun = time.perf_counter()
    for n in range(count):
        server.control.ask("POST", "/v1/exports/a/fork", {"name": f"z{n}"})
    took = time.perf_counter() - begun
    after = pss(server.process.pid)
    for n in (0, count // 2, count - 1):
        client = server.client(f"z{n}")
        read_once(client, 0, 4096)
        client.close()
    print(f"{count} forks of an image of 1 GiB: {before} KiB before, {after} KiB after: {(after - before) / count:.1f} KiB each; {took / count * 1e3:.2f} ms each", flush=True)
    server.stop()
    return fresh, written


def idle(place, count):
    subprocess.run(["cc", "-O2", "-pthread", "-o", f"{place}/nbdload", ROOT / "benches/peers/nbdload.c"], check=True)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4 * count + 256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2)
    image = base(place, 1 << 30)
    server = Server(place, f"a=overlay:base={image},top={place}/a.top")
    clients = []
    for forks in (0, count):
        for n in range(len(clients), forks):
            server.control.ask("POST", "/v1/exports/a/fork", {"name": f"x{n}"})
            clients.append(server.client(f"x{n}"))
            read_once(clients[-1], 0, 4096)
        for depth in (1, 32):
            load = [f"{place}/nbdload", "--uri", f"nbd+unix:///a?socket={server.nbd}", "--rw", "randread", "--bs", 4096,
                    "--depth", depth, "--seconds", 3, "--warmup", 0, "--offset", 0, "--size", 1 << 20]
            before = server.control.busy()
            rate = json.loads(subprocess.run(list(map(str, load)), check=True, capture_output=True, text=True).stdout)["iops"]
            each = 1e6 * (server.control.busy() - before) / (3 * rate)
            print(f"{forks:5} idle forks, {depth:2} at once: {rate:8.0f} reads a second, {each:6.2f} µs each", flush=True)
    server.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", nargs="?", choices=["forks", "idle"], default="forks")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--dir")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--record", action="store_true", help="put the forks into docs/measured/overlay.md")
    asked = parser.parse_args()
    runs = []
    for _ in range(asked.runs):
        with tempfile.TemporaryDirectory(dir=asked.dir) as place:
            runs.append({"forks": forks, "idle": idle}[asked.what](place, asked.count))
    if asked.record and asked.what == "forks":
        record(runs)


if __name__ == "__main__":
    main()
