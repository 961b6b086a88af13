#!/usr/bin/env python3
"""Two tenants with weights 3:1, each with a guest (vhost-user) and an NBD client, over upgrades: how long each waits, and the shares around each.

    benches/upgrade_guests.py [--upgrades 6] [--backing file] [--apart 10] [DIRECTORY]

`--backing file`: an image for each tenant in DIRECTORY. `--backing null`: a disk that answers 8 requests at once after 1 ms each, so that it is the
disk that is short and not the processors. A guest is a process with 2 rings of 85 random reads and writes (1:1) of 4 KiB; an NBD client is a
job of fio with 32 (70:30). `--apart`: seconds before each upgrade, over which its shares are taken; around it, half of that before and half after.
FAIRLIFT: the program (default: target/release/fairlift).
"""

import argparse
import http.client
import json
import multiprocessing
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/e2e"))

from upgrade_guests import GuestLoad  # noqa: E402
from vhostclient import FrontEnd  # noqa: E402

BINARY = os.environ.get("FAIRLIFT") or str(ROOT / "target/release/fairlift")
WINDOW = 10  # milliseconds of which fio tells the longest latency
MIB = 1 << 20


class Guest(GuestLoad):
    """One that is not asked what it reads, and that notes when it waited."""

    waited = ()

    def take(self, under_way, slot):
        under_way.pop(slot)
        self.ring.finish(slot)
        self.replies += 1
        if self.gaps and self.gaps[-1] > 0.001:
            self.waited = (*self.waited, (time.time(), self.gaps[-1]))
        self.gaps.clear()


def guest(path, ends, said):
    """A process: its waits of more than a millisecond, when it is told to end."""
    front = FrontEnd(path, rings=2, size=256, span=2 * MIB)
    loads = [Guest(ring, number * 512) for number, ring in enumerate(front.rings)]
    ends.wait()
    for load in loads:
        load.end()
    said.put([wait for load in loads for wait in load.waited])


def shares(control):
    """What each tenant was served so far, in bytes."""
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(control)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    counted = re.findall(r'^fairlift_operation_bytes(?:_total)?\{[^}]*tenant="/(\w)"[^}]*\} (\S+)', text, re.M)
    return {tenant: sum(float(count) for its, count in counted if its == tenant) for tenant in "ab"}


def part_of_a(before, after):
    a, b = (after[tenant] - before[tenant] for tenant in "ab")
    return 100 * a / (a + b)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--upgrades", type=int, default=6)
    parser.add_argument("--backing", choices=["file", "null"], default="file")
    parser.add_argument("--apart", type=float, default=10)
    parser.add_argument("directory", nargs="?", default=None)
    words = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=words.directory) as directory:
        run(Path(directory), words)


def run(directory, words):
    text = '[disk.d]\nscheduler = "fair"\n' + ("depth = 8\n" if words.backing == "null" else "")
    for tenant, weight in ("a", 300), ("b", 100):
        backing = "null:64m,delay=1ms"
        if words.backing == "file":
            (directory / tenant).write_bytes(os.urandom(64 * MIB))
            backing = f"file:{directory / tenant}"
        text += (f'[group."/{tenant}"]\nweight = {weight}\n[export.{tenant}]\nbacking = "{backing}"\ndisk = "d"\ngroup = "/{tenant}"\n'
                 f'vhost_user = "{directory}/vm.{tenant}"\n')
    (directory / "config").write_text(text)
    sock, log = directory / "s", open(directory / "log", "wb")
    server = subprocess.Popen([BINARY, "serve", "--config", directory / "config", "--listen", f"unix:{sock}"], stdout=log, stderr=log,
                              start_new_session=True)
    control = f"{sock}.control.sock"
    while not os.path.exists(control):
        time.sleep(0.05)
    ends, said = multiprocessing.Event(), multiprocessing.Queue()
    guests = [multiprocessing.Process(target=guest, args=(directory / f"vm.{tenant}", ends, said), daemon=True) for tenant in "ab"]
    [one.start() for one in guests]
    jobs = [word for tenant in "ab" for word in (f"--name={tenant}", f"--uri=nbd+unix:///{tenant}?socket={sock}")]
    fio = subprocess.Popen(
        ["fio", "--ioengine=nbd", "--rw=randrw", "--rwmixread=70", "--bs=4k", "--iodepth=32", "--offset=32m", "--size=32m", "--time_based",
         f"--runtime={3 + words.upgrades * (1.5 * words.apart + 0.5)}", "--thread", f"--write_lat_log={directory}/fio", f"--log_avg_msec={WINDOW}",
         "--log_max_value=1", "--log_unix_epoch=1", "--output-format=json", *jobs], stdout=subprocess.PIPE, text=True, cwd=directory)
    time.sleep(3)
    spans, total, moved, pid, parts = [], [], [], server.pid, []
    environment = {**os.environ, "FAIRLIFT_CONTROL": f"unix:{control}"}
    for _ in range(words.upgrades):
        start = shares(control)
        time.sleep(words.apart / 2)
        middle = shares(control)
        time.sleep(words.apart / 2)
        before, begun = shares(control), time.time()
        done = subprocess.run([BINARY, "upgrade"], env=environment, capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        pid = int(re.search(r"process (\d+) serves", done.stdout)[1])
        spans.append((begun, time.time() + 0.05))
        total.append(1000 * (time.time() - begun))
        time.sleep(words.apart / 2)
        parts.append(part_of_a(start, before))
        moved.append(part_of_a(middle, shares(control)) - parts[-1])
    out = fio.communicate()[0]
    errors = sum(job["error"] for job in json.loads(out[out.index("{"):])["jobs"])
    ends.set()
    waits = [[(at, 1000 * wait) for at, wait in said.get(timeout=60)] for _ in guests]
    os.kill(pid, signal.SIGTERM)
    for path in directory.glob("fio_lat.*.log"):
        lines = (line.split(",")[:2] for line in path.read_text().splitlines())
        waits.append([(float(at) / 1000, float(latency) / 1e6) for at, latency in lines])
    met = (directory / "log").read_text().count("a front-end has connected")
    print(f"{words.upgrades} upgrades, {words.backing}: fio errors {errors}, front-ends that connected {met}; the command took "
          f"{statistics.median(total):.0f} ms (median)")
    inside = lambda at: any(low <= at <= high + WINDOW / 1000 for low, high in spans)
    for what, some in ("guests", waits[:2]), ("NBD", waits[2:]):
        longest = [max((wait for one in some for at, wait in one if low <= at <= high + WINDOW / 1000), default=0) for low, high in spans]
        quiet = max((wait for one in some for at, wait in one if not inside(at)), default=0)
        print(f"  {what}: longest wait around each: median {statistics.median(longest):.1f} ms, most {max(longest):.1f} ms; away from upgrades "
              f"most {quiet:.1f} ms")
    print(f"  the share of the tenant with weight 3 of 4, over {words.apart:.0f} s before: {min(parts):.1f} to {max(parts):.1f} %; over as long "
          f"around the upgrade, points more: {', '.join(f'{points:+.1f}' for points in moved)}")


if __name__ == "__main__":
    main()
