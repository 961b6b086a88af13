#!/usr/bin/env python3
"""The picture of docs/measured/peers.md: Fairlift ÷ the fastest peer, a row for each workload, from its tables.

    benches/peers_picture.py [TABLES.md] > docs/beside-peers.svg
"""
import math
import sys

from worse import ratios

CLASSES = {"RAM/null": ("fairlift-mem", "#3b82f6"), "RAM file": ("fairlift-file-ram", "#10b981"), "disk": ("fairlift-file-disk", "#f59e0b")}
WORKLOADS = {"rr-qd1": "read 4k, 1", "rr-32x1": "read 4k, 32", "rr-32x4": "read 4k, 4 × 32", "rw-32x1": "write 4k, 32", "rw-32x4": "write 4k, 4 × 32",
             "seq64k": "read 64k, 16", "seq1m": "read 1M, 4", "wflush-1": "write and flush, 1", "wflush-32": "write and flush, 32"}
WIDTH, LEFT, TOP, ROW, BAR = 720, 150, 44, 40, 9
LEAST, MOST = 0.25, 8.0


def x(ratio):
    return LEFT + (WIDTH - LEFT - 20) * math.log(min(max(ratio, LEAST), MOST) / LEAST) / math.log(MOST / LEAST)


def main():
    found = ratios(sys.argv[1] if len(sys.argv) > 1 else "docs/measured/peers.md", "Result:", max, 3)
    height = TOP + ROW * len(WORKLOADS) + 10
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12" role="img">')
    print(f'<title>Fairlift beside the fastest other NBD server, as a ratio</title><rect width="{WIDTH}" height="{height}" fill="white"/>')
    for ratio in (0.25, 0.5, 1, 2, 4, 8):
        colour, label = ("#111827", "level") if ratio == 1 else ("#e5e7eb", f"{ratio:g} ×")
        print(f'<line x1="{x(ratio):.0f}" x2="{x(ratio):.0f}" y1="{TOP - 6}" y2="{height - 8}" stroke="{colour}"/>')
        print(f'<text x="{x(ratio):.0f}" y="{TOP - 12}" text-anchor="middle" fill="#6b7280">{label}</text>')
    for place, (name, (_, colour)) in enumerate(CLASSES.items()):
        print(f'<rect x="{LEFT + 150 * place}" y="6" width="10" height="10" fill="{colour}"/><text x="{LEFT + 150 * place + 16}" y="15">{name}</text>')
    for row, (workload, words) in enumerate(WORKLOADS.items()):
        top = TOP + ROW * row
        print(f'<text x="{LEFT - 8}" y="{top + 20}" text-anchor="end">{words}</text>')
        for place, (name, (server, colour)) in enumerate(CLASSES.items()):
            if (name, workload, server) not in found:
                continue
            ratio, least, most = found[name, workload, server]
            y, from_, to = top + 3 + place * (BAR + 2), *sorted((x(1), x(ratio)))
            print(f'<rect x="{from_:.1f}" y="{y}" width="{max(to - from_, 1):.1f}" height="{BAR}" fill="{colour}"/>')
            print(f'<line x1="{x(least):.1f}" x2="{x(most):.1f}" y1="{y + BAR / 2}" y2="{y + BAR / 2}" stroke="#111827" stroke-width="1"/>')
    print("</svg>")


main()
