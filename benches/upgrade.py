#!/usr/bin/env python3
"""How long clients are kept waiting when another server takes over: fio's longest latency around each upgrade.

    benches/upgrade.py [--upgrades 100] [--idle 0] [--exports 0] [--overlays] [--memory] [DIRECTORY]

Four jobs of fio, two at a unix socket and two over TCP, each with 32 random reads and writes (70:30) of 4 KiB in flight, on one image file in
DIRECTORY. `--idle`: so many more connections, which do nothing. `--exports`: so many more exports, of files of their own, which the idle connections share
out. `--overlays`: all of them are overlays over one image. `--memory`: how much both servers take at most while both are there; to look costs them time. FAIRLIFT: the program (default: target/release/fairlift).
"""

import argparse
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from decimal import Decimal
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/e2e"))

import measured  # noqa: E402
from nbdclient import Client  # noqa: E402

BINARY = os.environ.get("FAIRLIFT") or str(ROOT / "target/release/fairlift")
WINDOW = 10  # milliseconds of which fio tells the longest latency


def memory(pids):
    """What processes take, what they share counted once."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup") as file:
                total += sum(int(line.split()[1]) for line in file if line.startswith("Pss:"))
        except (FileNotFoundError, ProcessLookupError):
            pass
    return total


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(child) for child in file.read().split()]
    except FileNotFoundError:
        return []


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--upgrades", type=int, default=100)
    parser.add_argument("--idle", type=int, default=0)
    parser.add_argument("--exports", type=int, default=0)
    parser.add_argument("--overlays", action="store_true")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--record", action="store_true", help="add a row to docs/measured/upgrade.md")
    parser.add_argument("directory", nargs="?", default=None)
    words = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=words.directory) as directory:
        run(Path(directory), words)


def run(directory, words):
    upgrades, idle = words.upgrades, words.idle
    image, sock = directory / "image", directory / "s"
    with open(image, "wb") as file:
        for _ in range(64):
            file.write(os.urandom(1 << 20))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = open(directory / "log", "wb")
    def backing(name):
        path = directory / name
        if words.overlays:
            return f"{name}=overlay:base={image},top={path}.top"
        if name != "a":
            with open(path, "wb") as file:
                file.truncate(1 << 20)
        return f"{name}=file:{path if name != 'a' else image}"

    exports = ["a", *(f"e{number}" for number in range(words.exports))]
    server = subprocess.Popen([BINARY, "serve", *map(backing, exports), "--listen", f"unix:{sock}", "--listen", f"tcp:127.0.0.1:{port}"],
                              stdout=log, stderr=log, start_new_session=True)
    environment = {**os.environ, "FAIRLIFT_CONTROL": f"unix:{sock}.control.sock"}
    while not os.path.exists(f"{sock}.control.sock"):
        time.sleep(0.05)
    clients = [Client(str(sock), exports[number % len(exports)]) for number in range(idle)]
    seconds = int(upgrades * 0.3 + 10)
    jobs = [f"--name={kind}{number}\n--uri={uri}".split("\n") for kind, uri in
            (("unix", f"nbd+unix:///a?socket={sock}"), ("tcp", f"nbd://127.0.0.1:{port}/a")) for number in (1, 2)]
    fio = subprocess.Popen(
        ["fio", "--ioengine=nbd", "--rw=randrw", "--rwmixread=70", "--bs=4k", "--iodepth=32", "--size=64m", "--time_based",
         f"--runtime={seconds}", "--thread", f"--write_lat_log={directory}/fio", f"--log_avg_msec={WINDOW}", "--log_max_value=1",
         "--log_unix_epoch=1", "--output-format=json", *(word for job in jobs for word in job)],
        stdout=subprocess.PIPE, text=True, cwd=directory)
    time.sleep(3)
    spans, total, pid, both = [], [], server.pid, 0
    for _ in range(upgrades):
        alone = memory([pid]) if words.memory else 1
        begun = time.time()
        command = subprocess.Popen([BINARY, "upgrade"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while command.poll() is None:
            if words.memory:
                both = max(both, memory([pid, *children(command.pid)]) / alone)
            time.sleep(0.01)
        out, errors = command.communicate()
        if command.returncode:
            sys.exit(errors)
        pid = int(re.search(r"process (\d+) serves", out)[1])
        spans.append((begun * 1000, time.time() * 1000 + 50))
        total.append(1000 * (time.time() - begun))
        time.sleep(0.1)
    out = fio.communicate()[0]
    errors = sum(job["error"] for job in json.loads(out[out.index("{"):])["jobs"])
    os.kill(pid, signal.SIGTERM)
    for client in clients:
        client.close()
    samples = []
    for path in directory.glob("fio_lat.*.log"):
        for line in path.read_text().splitlines():
            at, latency = line.split(",")[:2]
            samples.append((float(at), float(latency) / 1e6))
    around = lambda low, high: max((latency for at, latency in samples if low <= at <= high + WINDOW), default=0)
    longest = sorted(around(*span) for span in spans)
    inside = lambda at: any(low <= at <= high + WINDOW for low, high in spans)
    quiet = max((latency for at, latency in samples if not inside(at)), default=0)
    p99 = longest[-(-len(longest) * 99 // 100) - 1]
    print(f"{upgrades} upgrades, {4 + idle} connections, fio errors {errors}: longest latency around each: median "
          f"{statistics.median(longest):.1f} ms, 99th percentile {p99:.1f} ms, most {longest[-1]:.1f} ms; away from upgrades most "
          f"{quiet:.1f} ms; the command took {statistics.median(total):.0f} ms (median)" + (f"; memory of both {both:.2f} times that of one" if words.memory else ""))
    if words.record:
        add = [Decimal(f"{figure:.1f}") for figure in (statistics.median(longest), p99, longest[-1], quiet)]
        connections = f"4 and {idle:,} that do nothing" if idle else 4
        measured.append("upgrade", "upgrades_measured2", [f"{upgrades}, at {measured.commit()}", connections, *add])


if __name__ == "__main__":
    main()
