#!/usr/bin/env python3
"""A hundred sandboxes boot at once from one image, with weights 1 to 4: has each its weight's part, and when is it up?

    benches/overlay_boots.py                     100 overlays, the base past the page cache and through it
    benches/overlay_boots.py --count 40 --seconds 10 --mib 64
    benches/overlay_boots.py --dir PATH          where the files lie [the directory of temporary files]

A boot is made up, from a seed: MIB of the base in reads of 64 KiB, four at once. Files are read in runs of 64 KiB to 2 MiB, most of them short, as a
system reads programs and libraries; all sandboxes read the same ones in the same order, each over a connection, a group and a top of its own.
First each boots again and again for some seconds, and its part is counted: had beside due by class of weight, and the largest error of a sandbox, in
points of a hundred of what its class is due each. Then each boots once, and it is told when each class is up. The page cache is empty before each.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from shares import processors  # before overlay, beside whose imports there is another module of this name
from overlay import FAIRLIFT

LOAD = Path(os.environ.get("W") or f"{tempfile.gettempdir()}/fairlift-peers") / "bin/nbdload"
BLOCK = 64 << 10
WEIGHTS = (100, 200, 300, 400)


def trace(path, mib, size):
    chance = random.Random(1)
    left, offsets = (mib << 20) // BLOCK, []
    while left:
        run = min(left, 1 + int(chance.paretovariate(1.1)) % 32)
        start = chance.randrange(size // BLOCK - run)
        offsets += [(start + block) * BLOCK for block in range(run)]
        left -= run
    Path(path).write_text("\n".join(map(str, offsets)) + "\n")
    return len(offsets)


def image(path, size):
    chance = random.Random(2)
    with open(path, "wb") as file:
        for _ in range(size >> 20):
            file.write(chance.randbytes(1 << 20))
    subprocess.run(["sync", path], check=True)


class Server:
    """One with so many overlays over one base, sandbox n in a group of its own."""

    def __init__(self, a, place, base, way, scheduler):
        self.place = place
        self.sock = f"{place}/nbd.sock"
        config = [f'[server]\nlisten = "unix:{self.sock}"\ncontrol = "unix:{place}/control.sock"\n[disk.ssd]\nscheduler = "{scheduler}"\n']
        for n in range(a.count):
            backing = f"overlay:base={base},ephemeral={place},base_direct={way}"
            config.append(f'[export.s{n}]\nbacking = "{backing}"\ndisk = "ssd"\ngroup = "/s{n}"\n[group."/s{n}"]\nweight = {WEIGHTS[n % 4]}\n')
        Path(f"{place}/fairlift.toml").write_text("".join(config))
        subprocess.run(["sh", "-c", "sync; echo 3 > /proc/sys/vm/drop_caches"], check=True)
        self.process = subprocess.Popen([FAIRLIFT, "serve", "--config", f"{place}/fairlift.toml"], stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        while not os.path.exists(self.sock):
            if self.process.poll() is not None:
                sys.exit("the server does not start: " + subprocess.run(
                    [FAIRLIFT, "serve", "--check", "--config", f"{place}/fairlift.toml"], capture_output=True, text=True).stderr)

    def load(self, a, seconds, warmup):
        """All sandboxes at once; what each client tells."""
        command = [LOAD, "--depth", "4", "--bs", str(BLOCK), "--trace", f"{self.place}/trace", "--no-preflush", "--seconds", str(seconds),
                   "--warmup", str(warmup)]
        clients = [subprocess.Popen([*map(str, command), "--uri", f"nbd+unix:///s{n}?socket={self.sock}"], stdout=subprocess.PIPE, text=True)
                   for n in range(a.count)]
        return [json.loads(client.communicate()[0].splitlines()[-1]) for client in clients]

    def stop(self):
        self.process.terminate()
        self.process.wait()
        for name in "nbd.sock", "control.sock":
            if os.path.exists(f"{self.place}/{name}"):
                os.unlink(f"{self.place}/{name}")


def classes(values):
    return [values[at::4] for at in range(4)]


def shares(a, place, base, way, scheduler):
    server = Server(a, place, base, way, scheduler)
    before = processors()
    rates = [told["iops"] for told in server.load(a, a.seconds, 2)]
    idle, all_ = (now - then for now, then in zip(processors(), before))
    server.stop()
    whole, weights = sum(rates), sum(WEIGHTS[n % 4] for n in range(a.count))
    had = [100 * sum(of) / whole for of in classes(rates)]
    due = [100 * sum(of) / weights for of in classes([WEIGHTS[n % 4] for n in range(a.count)])]
    # Of one sandbox, in points of what the smallest class's sandbox is due.
    each = max(abs(rate / whole - WEIGHTS[n % 4] / weights) * 100 for n, rate in enumerate(rates))
    relative = max(abs(rate / whole / (WEIGHTS[n % 4] / weights) - 1) for n, rate in enumerate(rates))
    shown = "  ".join(f"{is_:5.1f} of {of:4.1f}" for is_, of in zip(had, due))
    error = max(abs(is_ - of) for is_, of in zip(had, due))
    print(f"{scheduler:12} base_direct={way:4} {whole:9.0f} reads a second   had of due by class: {shown}   error {error:4.1f}, "
          f"of one sandbox {each:4.2f} points, {100 * relative:3.0f} % of its due; idle {100 * idle / all_:3.0f} %", flush=True)


def boots(a, place, base, way, scheduler):
    server = Server(a, place, base, way, scheduler)
    times = [told["trace_ms"] / 1e3 for told in server.load(a, a.limit, 0)]
    server.stop()
    shown = "  ".join(f"{statistics.median(of):5.1f} s (to {max(of):5.1f})" for of in classes(times))
    print(f"{scheduler:12} base_direct={way:4} up after, median of each class and its last: {shown}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--limit", type=float, default=30, help="seconds that all boots together may take")
    parser.add_argument("--mib", type=int, default=64)
    parser.add_argument("--size", type=int, default=4, help="GiB of the base")
    parser.add_argument("--schedulers", default="fair,none")
    parser.add_argument("--dir", default=None)
    a = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=a.dir) as place:
        base = f"{place}/base.img"
        image(base, a.size << 30)
        count = trace(f"{place}/trace", a.mib, a.size << 30)
        print(f"{a.count} sandboxes of weight {', '.join(map(str, WEIGHTS))} in turn; a boot is {count} reads of 64 KiB", flush=True)
        for way in "on", "off":
            for scheduler in a.schedulers.split(","):
                shares(a, place, base, way, scheduler)
        for way in "on", "off":
            for scheduler in a.schedulers.split(","):
                boots(a, place, base, way, scheduler)


if __name__ == "__main__":
    main()
