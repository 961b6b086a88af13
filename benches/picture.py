#!/usr/bin/env python3
"""The README's picture: two tenants of one disk, as the server is changed under them. Live, as benches/tenants.py.

    benches/picture.py [--dir DIR] [--fairlift PROGRAM] [-o docs/two-tenants.svg]

Bob keeps 256 random reads of 4 KiB outstanding, Alice 64. For 6 s the server has no scheduler; then `fair`, with equal weights; then
Alice has weight 300. Each step is one command to the running server. A line is the median of 7 tenths of a second.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from tenants import FAIRLIFT, INTERVAL, LOAD, PEERS, ROOT, images

STEP = 6  # seconds
STEPS = [("scheduler none", None), ("scheduler fair", ("disk", None, "scheduler=fair")), ("alice: weight 300", ("group", "/alice", "weight=300"))]
TENANTS = {"alice": (2, "#3b82f6"), "bob": (8, "#f59e0b")}  # connections of 32 requests, and a colour
WIDTH, HEIGHT, LEFT, TOP = 720, 240, 56, 34
SMOOTH = 7


def measure(a):
    """By tenant, I/Os in each tenth of a second; and when each step began, in seconds."""
    files = images(a, 2)
    with tempfile.TemporaryDirectory() as place:
        exports = [f"{name}={file}" for name, file in zip(TENANTS, files)]
        control = f"unix:{place}/control"
        server = subprocess.Popen([a.fairlift, "serve", *exports, "--weight", "alice=100", "--weight", "bob=100", "--scheduler", "none",
                                   "--listen", f"unix:{place}/sock", "--control", control], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while not (Path(place) / "control").exists():
                time.sleep(0.02)
            disk = json.loads(subprocess.run([a.fairlift, "get", "disk", "--json", "--control", control], check=True,
                                             capture_output=True, text=True).stdout)
            disk = (disk.get("disks", disk) if isinstance(disk, dict) else disk)[0]["name"]
            clients = [subprocess.Popen([LOAD, "--uri", f"nbd+unix:///{name}?socket={place}/sock", "--rw", "randread", "--bs", "4096",
                                         "--depth", "32", "--conns", str(conns), "--warmup", "1", "--seconds", str(STEP * len(STEPS)),
                                         "--interval", str(round(1000 * INTERVAL))], stdout=subprocess.PIPE, text=True)
                       for name, (conns, _) in TENANTS.items()]
            begun = time.monotonic() + 1
            for number, (_, change) in enumerate(STEPS):
                time.sleep(max(0, begun + number * STEP - time.monotonic()))
                if change:
                    kind, name, what = change
                    subprocess.run([a.fairlift, "set", kind, name or disk, what, "--control", control], check=True, stdout=subprocess.DEVNULL)
            series = [[json.loads(line) for line in client.communicate()[0].splitlines()[:-1]] for client in clients]
        finally:
            server.terminate()
            server.wait()
    return {name: [(line["at_ms"] / 1000 - begun, line["iops"]) for line in lines if "iops" in line and "at_ms" in line]
            for name, lines in zip(TENANTS, series)}


def smooth(points):
    values = [rate for _, rate in points]
    half = SMOOTH // 2
    return [(at, statistics.median(values[max(0, i - half):i + half + 1])) for i, (at, _) in enumerate(points)]


def draw(series):
    whole = STEP * len(STEPS)
    lines = {name: smooth(points) for name, points in series.items()}
    most = 10_000 * (1 + int(max(rate for points in lines.values() for _, rate in points) // 10_000))
    x = lambda at: LEFT + (WIDTH - LEFT - 60) * at / whole
    y = lambda rate: TOP + (HEIGHT - TOP - 30) * (1 - rate / most)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12" fill="#888" '
           'role="img" aria-label="I/Os in a second of two tenants: without a scheduler, under fair with equal weights, and with 300 to 100">']
    for rate in range(0, most + 1, 20_000):
        out.append(f'<path d="M{LEFT} {y(rate):.1f}H{x(whole):.1f}" stroke="#888" stroke-opacity=".25"/>'
                   f'<text x="{LEFT - 6}" y="{y(rate) + 4:.1f}" text-anchor="end">{rate // 1000}k</text>')
    for number, (title, _) in enumerate(STEPS):
        at = x(number * STEP)
        out.append(f'<text x="{at + 6:.1f}" y="{TOP - 14}" font-weight="bold">{title}</text>')
        if number:
            out.append(f'<path d="M{at:.1f} {TOP - 26}V{y(0):.1f}" stroke="#888" stroke-dasharray="3 3"/>')
        out.append(f'<text x="{at:.1f}" y="{HEIGHT - 12}" text-anchor="middle">{number * STEP} s</text>')
    for name, (conns, colour) in TENANTS.items():
        path = " ".join(f"{x(at):.1f},{y(rate):.1f}" for at, rate in lines[name] if 0 <= at <= whole)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
                   f'<text x="{x(whole) + 6:.1f}" y="{y(lines[name][-1][1]) + 4:.1f}" fill="{colour}">{name}</text>')
    return "\n".join([*out, "</svg>\n"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=Path, default=PEERS / "tenants-images", help="where the images are, on the disk to measure")
    parser.add_argument("--fairlift", default=FAIRLIFT, help="the program")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "docs/two-tenants.svg")
    a = parser.parse_args()
    subprocess.run(["make", "--silent", "-C", ROOT / "benches/peers", f"OUT={LOAD.parent}"], check=True)
    series = measure(a)
    for number, (title, _) in enumerate(STEPS):
        # The last four seconds of each step: what it settles at.
        ends = {name: statistics.median(rate for at, rate in points if number * STEP + 2 <= at <= (number + 1) * STEP)
                for name, points in series.items()}
        print(f"{title:18} " + "  ".join(f"{name} {rate:7.0f} ({100 * rate / sum(ends.values()):.0f} %)" for name, rate in ends.items()))
    a.output.write_text(draw(series))


if __name__ == "__main__":
    main()
