#!/usr/bin/env python3
"""What do exports cost that nobody uses? Time from exec to the first reply, and memory of each.

    benches/exports.py                     null disks and files, default scheduler and none; 1, 100, 1,000 and 10,000 exports
    benches/exports.py --only null/none    rows whose name has this in it
    benches/exports.py --counts 1,1000     so many exports
    benches/exports.py --runs N            starts of each row [7]

A row starts `fairlift serve` with a config file, connects as soon as the socket takes it, opens the last export (NBD_OPT_GO) and
reads 4 KiB of it. Time is the median of all starts, with the least and greatest; memory is the PSS (`smaps_rollup`) half a second
after the reply, and that of an export is what N have more than one has, divided by N - 1. Files are sparse, of 1 MiB, all on one
file system and so on one disk; each null disk is a disk of its own. Where a process may not open so many files the row is left out.
"""

import argparse
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benches/peers"))

from idle import connect, read_once  # noqa: E402

FAIRLIFT = os.environ.get("FAIRLIFT", f"{os.environ.get('CARGO_TARGET_DIR', ROOT / 'target')}/release/fairlift")
PATIENCE = 60  # seconds for a start


def first_reply(path, name, until):
    """Connects as soon as that can be done, opens the export and reads 4 KiB."""
    while True:
        try:
            client = connect(f"nbd+unix:///{name}?socket={path}")
            break
        except (FileNotFoundError, ConnectionRefusedError):
            if time.monotonic() > until:
                sys.exit("the server does not start")
            time.sleep(0.0001)
    read_once(client, 0, 4096)
    return client


def pss(pid):
    with open(f"/proc/{pid}/smaps_rollup") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


class Row:
    """A way to serve so many exports, started once a run."""

    def __init__(self, place, kind, scheduler, count):
        self.place, self.count = place, count
        self.name = f"{kind}/{scheduler or 'default'}"
        lines = []
        for number in range(count):
            if kind == "file":
                backing = f"file:{place}/{number}.img"
                with open(f"{place}/{number}.img", "wb") as image:
                    image.truncate(1 << 20)
            else:
                backing = "null:1G"
            lines.append(f'[export.e{number}]\nbacking = "{backing}"\n')
        Path(f"{place}/config.toml").write_text("".join(lines))
        self.command = [FAIRLIFT, "serve", "--config", f"{place}/config.toml", "--listen", f"unix:{place}/s", "--control", "off"]
        self.command += ["--scheduler", scheduler] if scheduler else []

    def start(self):
        """Milliseconds to the first reply, and KiB of memory half a second later."""
        Path(f"{self.place}/s").unlink(missing_ok=True)
        with open(f"{self.place}/log", "w") as log:
            begun = time.monotonic()
            outputs = [(os.POSIX_SPAWN_DUP2, log.fileno(), 1), (os.POSIX_SPAWN_DUP2, log.fileno(), 2)]
            pid = os.posix_spawn(self.command[0], self.command, os.environ, file_actions=outputs)
        try:
            client = first_reply(f"{self.place}/s", f"e{self.count - 1}", begun + PATIENCE)
            took = time.monotonic() - begun
            time.sleep(0.5)
            memory = pss(pid)
            client.close()
        except (EOFError, OSError, ValueError):
            sys.exit(f"{self.name}, {self.count} exports: {Path(f'{self.place}/log').read_text()[-400:]}")
        finally:
            os.kill(pid, signal.SIGTERM)
            os.waitpid(pid, 0)
        return took * 1e3, memory


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", default="1,100,1000,10000")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    counts = [int(count) for count in options.counts.split(",")]
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    print(f"commit {commit}, {os.cpu_count()} CPUs, {options.runs} starts of each row\n")
    print("| exports | | first reply, ms | least | greatest | memory, KiB | of an export, KiB |\n|---|---|---|---|---|---|---|")
    for kind, scheduler in ("null", None), ("null", "none"), ("file", None), ("file", "none"):
        alone = None
        for count in counts:
            if options.only not in f"{kind}/{scheduler or 'default'}" or (kind == "file" and count + 100 > files):
                continue
            with tempfile.TemporaryDirectory() as place:
                row = Row(place, kind, scheduler, count)
                row.start()  # The first brings the binary and the files into memory.
                runs = [row.start() for _ in range(options.runs)]
            times, memory = [took for took, _ in runs], statistics.median(memory for _, memory in runs)
            alone = alone or (count, memory)
            each = f"{(memory - alone[1]) / (count - alone[0]):.2f}" if count > alone[0] else ""
            print(f"| {row.name} | {count:,} | {statistics.median(times):.1f} | {min(times):.1f} | {max(times):.1f} "
                  f"| {memory:,.0f} | {each} |", flush=True)


if __name__ == "__main__":
    main()
