#!/usr/bin/env python3
"""Prints the table of flush.sh from its JSON lines: flush_report.py FILE"""

import json
import statistics
import sys


def main():
    runs = {}
    with open(sys.argv[1]) as lines:
        for line in map(json.loads, lines):
            runs.setdefault((line["conns"], line["label"]), []).append(line)
    print("| connections | server | commits/s, median (range) | file syncs per commit | disk flushes per commit | p50 / p99 µs | server CPU µs per commit |")
    print("|---|---|---|---|---|---|---|")
    for conns in sorted({conns for conns, _ in runs}):
        for label in dict.fromkeys(label for c, label in runs if c == conns):
            good = [run for run in runs[conns, label] if "run" in run and run["run"]["commit"]["n"]]
            if not good:
                print(f"| {conns} | {label} | failed | - | - | - | - |")
                continue
            rates = [run["run"]["commit"]["n"] / run["run"]["seconds"] for run in good]

            def middle(of):
                return statistics.median(of(run) for run in good)

            def per_commit(run, count):
                return count / run["run"]["commit"]["n"]

            syncs = "-" if good[0]["file_syncs"] < 0 else f"{middle(lambda run: per_commit(run, run['file_syncs'])):.2f}"
            disk = "-" if "blk" not in good[0]["run"] else f"{middle(lambda run: per_commit(run, run['run']['blk']['flushes'])):.2f}"
            p50, p99 = (middle(lambda run: run["run"]["commit"][p]) for p in ("p50_us", "p99_us"))
            cpu = middle(lambda run: run["run"]["server"]["cpu_us_per_io"])
            disturbed = "~" if any((run["run"].get("other_cpu_cores") or 0) > 0.15 for run in good) else ""
            print(f"| {conns} | {label} | **{statistics.median(rates):,.0f}** ({min(rates):,.0f}..{max(rates):,.0f}){disturbed} "
                  f"| {syncs} | {disk} | {p50:.0f} / {p99:.0f} | {cpu:.1f} |")
    print("\n~: other processes took more than 0.15 cores in one of the runs.")


if __name__ == "__main__":
    main()
