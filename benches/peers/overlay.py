#!/usr/bin/env python3
"""Overlays beside a plain file and beside the overlays of others.

    benches/peers/overlay.py [--dir DIR] [--seconds 2] [--rounds 3] [--images] [--arms file,ephemeral]

Each server has a base of 8 GiB, of which half a GiB is written, and an empty top: what is read of the base, written for the first time, and, once half a GiB
of the top is written, written and read again. The client is nbdload, one connection. Servers take turns; told are medians: requests a second (of the
plain file's), the server's CPU time for each, and how many writes the disk got for each first write. `nbdkit --filter=cow` keeps what is written in a
file that goes with it, and has the page cache below; so has `ephemeral`. All others bypass it, but for the base in the column that says so.

With `--images` the base is a qcow2 image in place of bare bytes, as it is and packed (deflate; half of each cluster is zeroes), beside `qemu-nbd` that
serves the same image. All is in the page cache.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from files import FAIRLIFT, MIB, drop_caches, run, start, undo, wait_for

GIB = 1 << 30
SIZE, WRITTEN = 8 * GIB, GIB // 2

# name: (how it is called, bytes of each, how many at once, of what)
ROWS = {
    "base, 4 KiB read": ("randread", 4096, 32, "base"),
    "base, 64 KiB read": ("randread", 65536, 8, "base"),
    "first write of 4 KiB": ("randwrite", 4096, 32, "fresh"),
    "first write of 64 KiB": ("randwrite", 65536, 8, "fresh"),
    "top, 4 KiB write": ("randwrite", 4096, 32, "top"),
    "top, 64 KiB write": ("randwrite", 65536, 8, "top"),
    "top, 4 KiB read": ("randread", 4096, 32, "top"),
    "top, 64 KiB read": ("randread", 65536, 8, "top"),
}


class Arm:
    """A server of a base with a top of its own."""

    def __init__(self, place, name):
        self.path = lambda what: f"{place}/{what}"
        self.name = name
        self.socket = self.path(f"s{time.monotonic_ns() % 10**9}")
        self.process = start(*getattr(self, name.split()[0].replace("-", "_"))(*name.split()[1:]))
        wait_for(lambda: os.path.exists(self.socket), f"{name} listens")
        time.sleep(0.2)

    def stop(self):
        undo.pop()()
        for left in Path(self.path("")).glob("top*"):
            left.unlink()

    def fairlift(self, backing):
        return FAIRLIFT, "serve", f"x={backing}", "--scheduler", "none", "--listen", f"unix:{self.socket}"

    def image(self, *how):
        return self.fairlift(f"overlay:base=qcow2:{self.path(how[0] if how else 'plain')},top={self.path('top')}")

    def qemu_image(self, *how):
        return "qemu-nbd", "-r", "-t", "-e", "16", "-x", "x", "-k", self.socket, "-f", "qcow2", "--aio=io_uring", self.path(how[0] if how else "plain")

    def file(self):
        run("cp", "--sparse=always", self.path("base"), self.path("top"))
        return self.fairlift(f"file:{self.path('top')}")

    def overlay(self, *how):
        cached = "" if how == ("cached",) else ",base_direct=on"
        return self.fairlift(f"overlay:base={self.path('base')},top={self.path('top')}{cached}")

    def ephemeral(self):
        return self.fairlift(f"overlay:base={self.path('base')},ephemeral={self.path('')},direct=off")

    def chain(self):
        below = self.path("base")
        for layer in range(7):
            top = self.path(f"top{layer}")
            one = subprocess.Popen([FAIRLIFT, "serve", f"x=overlay:base={below},top={top},base_direct=on", "--listen", f"unix:{top}.sock"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            wait_for(lambda: os.path.exists(f"{top}.sock"), "a layer is made")
            # Each layer has a block of its own, so that all are looked at.
            run("qemu-io", "-f", "raw", "-c", f"write {layer * 4096} 4096", f"nbd+unix:///x?socket={top}.sock")
            one.terminate()
            one.wait()
            below = top
        return self.fairlift(f"overlay:base={below},top={self.path('top')},base_direct=on")

    def nbdkit(self):
        return "nbdkit", "-f", "-U", self.socket, "--filter=cow", "file", self.path("base")

    def qcow2(self):
        run("qemu-img", "create", "-q", "-f", "qcow2", "-b", self.path("base"), "-F", "raw", self.path("top"))
        return self.path("top")

    def qemu_nbd(self):
        return "qemu-nbd", "-t", "-e", "16", "-x", "x", "-k", self.socket, "-f", "qcow2", "--cache=none", "--aio=io_uring", self.qcow2()

    def qsd(self):
        at = f"driver=file,filename={self.qcow2()},aio=io_uring,cache.direct=on,node-name=f"
        below = f"driver=file,filename={self.path('base')},aio=io_uring,cache.direct=on,node-name=b,read-only=on"
        return ("qemu-storage-daemon", "--blockdev", at, "--blockdev", below, "--blockdev", "driver=raw,file=b,node-name=r,read-only=on",
                "--blockdev", "driver=qcow2,file=f,backing=r,node-name=d,cache.direct=on",
                "--nbd-server", f"addr.type=unix,addr.path={self.socket},max-connections=16", "--export", "type=nbd,id=e,node-name=d,name=x,writable=on")

    def load(self, nbdload, rw, bs, depth, seconds, offset, size):
        export = "" if self.name == "nbdkit" else "x"
        return json.loads(run(nbdload, "--uri", f"nbd+unix:///{export}?socket={self.socket}", "--server-pid", self.process.pid, "--rw", rw, "--bs", bs,
                              "--depth", depth, "--seconds", seconds, "--warmup", 0.2, "--offset", offset, "--size", size,
                              "--blkstat", given.disk).stdout)


IMAGES = ["overlay cached", "image", "qemu-image", "image packed", "qemu-image packed"]
ARMS = ["file", "overlay", "overlay cached", "ephemeral", "chain", "nbdkit", "qemu-nbd", "qsd"]


def measure(place, nbdload):
    """(arm, row) → what was seen in each round."""
    seen = {}
    for turn in range(given.rounds):
        for name in ARMS[turn % len(ARMS):] + ARMS[:turn % len(ARMS)]:
            arm = Arm(place, name)
            try:
                if given.images:
                    for what in "base", "plain", "packed":
                        run("dd", f"if={arm.path(what)}", "of=/dev/null", "bs=1M", "status=none")
                for row, (rw, bs, depth, of) in ROWS.items():
                    if row == "top, 4 KiB write":
                        # Not in larger ones: ext4 keeps what comes in one write as one piece of the page cache, and looks through all of a piece at each later write.
                        arm.load(nbdload, "write", 65536, 8, 8 if name == "nbdkit" else 4, 0, WRITTEN)
                        os.sync()
                    if of == "base" and not given.images:
                        drop_caches()
                    offset, size = (2 * GIB, SIZE - 2 * GIB) if of == "fresh" else (0, WRITTEN)
                    out = arm.load(nbdload, rw, bs, depth, given.seconds, offset, size)
                    seen.setdefault((name, row), []).append(out)
                    if of == "fresh":
                        os.sync()
            finally:
                arm.stop()
            print(f"round {turn + 1}: {name}", file=sys.stderr)
    return seen


def tell(seen):
    middle = lambda name, row, of: statistics.median(of(out) for out in seen[name, row])
    print(f"| | {' | '.join(ARMS)} |\n|---|{'---|' * len(ARMS)}")
    for row in ROWS:
        plain = middle(ARMS[0], row, lambda out: out["iops"])
        cells = []
        for name in ARMS:
            rate, cpu = middle(name, row, lambda out: out["iops"]), middle(name, row, lambda out: out["server"]["cpu_us_per_io"])
            cells.append(f"{rate:,.0f} ({rate / plain:.2f}), {cpu:.1f} µs")
        print(f"| {row} | {' | '.join(cells)} |")


def main():
    global given
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--dir", default=os.environ.get("TMPDIR", "/tmp"))
    arguments.add_argument("--seconds", type=float, default=2)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--images", action="store_true", help="images as the base")
    arguments.add_argument("--arms", help="only these servers, with commas between; told are rates by the first one's")
    arguments.add_argument("--disk", default="vda", help="the block device below DIR")
    given = arguments.parse_args()
    if given.images:
        ARMS[:] = IMAGES
        for row in [row for row, (_, _, _, of) in ROWS.items() if of != "base"]:
            del ROWS[row]
    if given.arms:
        ARMS[:] = given.arms.split(",")
    place = tempfile.mkdtemp(prefix="fl-overlay-", dir=given.dir)
    undo.append(lambda: run("rm", "-rf", place))
    try:
        run("make", "-s", "-C", Path(__file__).parent, f"OUT={place}/bin")
        with open(f"{place}/base", "wb") as base:
            for _ in range(WRITTEN // MIB):
                half = 32 << 10
                base.write(b"".join(os.urandom(half) + bytes(half) for _ in range(16)) if given.images else os.urandom(MIB))
            base.truncate(SIZE)
            os.fsync(base.fileno())
        if given.images:
            for how, image in ([], "plain"), (["-c"], "packed"):
                run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", *how, f"{place}/base", f"{place}/{image}")
        tell(measure(place, f"{place}/bin/nbdload"))
    finally:
        for function in reversed(undo):
            with contextlib.suppress(Exception):
                function()


if __name__ == "__main__":
    main()
