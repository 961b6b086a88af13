#!/usr/bin/env python3
"""vhost-user-blk beside qemu-storage-daemon: the same load generator, in turn, medians.

  benches/peers/vhost.py                          all cells, 3 repetitions of 1.5 s
  benches/peers/vhost.py read-disk shares         these cells
  --seconds S --reps N --servers fairlift,qsd --json FILE --disk IMAGE --args "--workers 1"
  --servers fairlift,fairlift=OTHER/BINARY        two builds beside each other
  --awake                                         no CPU sleeps: something of the lowest class runs on each
  taskset -c 0 benches/peers/vhost.py             on one CPU: nobody waits for another to wake, and no server spins

IMAGE is a written file on a real disk; without it one of 2 GiB is made below $W (${TMPDIR:-/tmp}/fairlift-peers). FAIRLIFT=
is the binary. Each cell starts its servers anew, so no two have the image at once.
"""

import argparse
import atexit
import json
import os
import pathlib
import shlex
import shutil
import signal
import statistics
import subprocess
import time

HERE = pathlib.Path(__file__).resolve().parent
WORK = pathlib.Path(os.environ.get("W") or os.path.join(os.environ.get("TMPDIR", "/tmp"), "fairlift-peers"))
FAIRLIFT = os.environ.get("FAIRLIFT") or str(HERE.parents[1] / "target/release/fairlift")

# Load on one disk: cell: (backing, options of vhostload).
LOADS = {f"{way}-{backing}": (backing, f"--rw rand{way} --depth 32") for backing in ("null", "ram", "disk") for way in ("read", "write")}
LOADS["read-disk-4"] = ("disk", "--rw randread --depth 8 --queues 4")
LOADS["write-disk-4"] = ("disk", "--rw randwrite --depth 8 --queues 4")
LOADS["commits"] = ("disk", "--rw randwrite --depth 8 --queues 4 --flush-every 1")
LOADS["read-disk-1"] = ("disk", "--rw randread --depth 1")
# Loads on two disks of one backing at once: cell: (backing, weights, options of each).
PAIRS = {
    "beside-ram": ("ram", (100, 100), "--rw randread --depth 1", "--rw randread --depth 64"),
    "beside-disk": ("disk", (100, 100), "--rw randread --depth 1", "--rw randread --depth 64"),
    "shares": ("disk", (300, 100), "--rw randread --depth 80", "--rw randread --depth 80"),
    "shares-16k": ("disk", (300, 100), "--rw randread --depth 80 --bs 16k", "--rw randread --depth 80 --bs 16k"),
    "shares-deep": ("disk", (300, 100), "--rw randread --depth 160 --qsize 512", "--rw randread --depth 160 --qsize 512"),
    "shares-64k": ("disk", (300, 100), "--rw randread --depth 64 --bs 64k", "--rw randread --depth 64 --bs 64k"),
    "shares-write": ("disk", (300, 100), "--rw randwrite --depth 80 --bs 16k", "--rw randwrite --depth 80 --bs 16k"),
}


class Server:
    """A server of these exports of a backing, each with a weight; all of one file."""

    def __init__(self, kind, backing, weights, image, more):
        self.directory = WORK / "vhost"
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        self.sockets = [self.directory / f"e{number}" for number in range(len(weights))]
        self.image = {"disk": image, "ram": WORK / "ram.img", "null": None}[backing]
        binary = kind.partition("=")[2] or FAIRLIFT
        command = self.qsd(backing) if kind == "qsd" else self.fairlift(binary, backing, weights, more)
        self.process = subprocess.Popen(command, stdout=open(self.directory / "log", "wb"), stderr=subprocess.STDOUT)
        end = time.monotonic() + 10
        while not all(socket.exists() for socket in self.sockets):
            if self.process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"{' '.join(map(str, command))}:\n{(self.directory / 'log').read_text()}")
            time.sleep(0.01)

    def fairlift(self, binary, backing, weights, more):
        part = os.path.getsize(self.image) // len(weights) if self.image else 4 << 30
        config, scheduler = "", "none" if len(weights) == 1 else "fair"
        for number, weight in enumerate(weights):
            what = f"file:{self.image}" if self.image else f"null:{part}"
            config += f'[export.e{number}]\nbacking = "{what}"\noffset = {number * part}\nsize = {part}\ngroup = "/g{number}"\n'
            config += f'[group."/g{number}"]\nweight = {weight}\n'
        (self.directory / "config").write_text(config)
        return [binary, "serve", "--config", self.directory / "config", "--vhost-user", self.directory, "--listen",
                f"unix:{self.directory}/s", "--control", "off", "--scheduler", scheduler, *shlex.split(more)]

    def qsd(self, backing):
        node = (["--blockdev", "driver=null-co,node-name=d,size=4294967296,read-zeroes=off"] if backing == "null" else
                ["--blockdev", f"driver=file,node-name=f,filename={self.image},aio=io_uring,cache.direct=on", "--blockdev", "driver=raw,node-name=d,file=f"])
        # Several exports of one node may not all write.
        writable = "on" if len(self.sockets) == 1 else "off"
        exports = [f"type=vhost-user-blk,id=e{n},node-name=d,addr.type=unix,addr.path={socket},writable={writable},num-queues=4,iothread=io0"
                   for n, socket in enumerate(self.sockets)]
        return ["qemu-storage-daemon", *node, "--object", "iothread,id=io0", *[word for export in exports for word in ("--export", export)]]

    def load(self, number, options, seconds, warmup=0.3, pid=True):
        size = [] if self.image is None or len(self.sockets) == 1 or not isinstance(number, int) else ["--size", str(os.path.getsize(self.image) // 2)]
        command = [WORK / "bin/vhostload", "--socket", self.sockets[number], "--seconds", str(seconds), "--warmup", str(warmup), "--blkstat", "vda", "--qsize", "256",
                   "--seed", str(1 + time.time_ns() % (1 << 30)), *size, *(["--server-pid", str(self.process.pid)] if pid else []), *shlex.split(options)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:  # qemu-storage-daemon, now and then
            self.process.kill()
            self.process.wait()


def keep_awake():
    """Runs something on each CPU whenever nothing else does: a process that is woken there need not wait for the CPU to wake."""
    def settle(cpu):
        os.sched_setaffinity(0, {cpu})
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))

    for cpu in os.sched_getaffinity(0):
        spinner = subprocess.Popen(["sh", "-c", "while :; do :; done"], preexec_fn=lambda: settle(cpu))
        atexit.register(spinner.kill)


def said(load):
    out, _ = load.communicate(timeout=60)
    if not out:
        raise SystemExit("the load generator said nothing")
    return json.loads(out)


def one(cell, kind, args):
    """One repetition of a cell with a server: what was measured."""
    if cell in LOADS:
        backing, options = LOADS[cell]
        server = Server(kind, backing, [100], args.disk, args.args)
        try:
            found = said(server.load(0, options, args.seconds))
        finally:
            server.stop()
        row = {"k/s": found["iops"] / 1e3, "us": found["server"]["cpu_us_per_io"], "p99": found["all"]["p99_us"]}
        if cell == "commits":
            row |= {"k/s": found["commit"]["n"] / found["seconds"] / 1e3, "flushes": found["blk"]["flushes"] / max(1, found["commit"]["n"])}
        return row
    backing, weights, *options = PAIRS[cell]
    server = Server(kind, backing, weights, args.disk, args.args)
    try:
        alone = [said(server.load(n, options[n], args.seconds / 2))["iops"] for n in range(2)] if cell.startswith("beside") else None
        # Each goes on until the other has been measured.
        loads = [server.load(n, options[n] + " --cooldown 0.4", args.seconds, 0.8, pid=n == 1) for n in range(2)]
        first, second = map(said, loads)
    finally:
        server.stop()
    rates = [first["iops"] / 1e3, second["iops"] / 1e3]
    row = {"a k/s": rates[0], "b k/s": rates[1], "a:b": rates[0] / rates[1], "p99": first["all"]["p99_us"], "us": second["server"]["cpu_us_per_io"] * rates[1] / sum(rates)}
    return row | ({"a kept": first["iops"] / alone[0], "b kept": second["iops"] / alone[1]} if alone else {})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", nargs="*", choices=[*LOADS, *PAIRS, []])
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--servers", default="fairlift,qsd")
    parser.add_argument("--disk", type=pathlib.Path)
    parser.add_argument("--args", default="", help="more arguments for fairlift")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--awake", action="store_true", help="keep the CPUs from sleeping")
    args = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    subprocess.run(["make", "-s", "-C", HERE, f"OUT={WORK}/bin", f"{WORK}/bin/vhostload"], check=True)
    if not args.disk:
        args.disk = WORK / "vhost.img"
        if not args.disk.exists():
            subprocess.run(f"openssl enc -aes-128-ctr -nosalt -K 01 -iv 00 </dev/zero 2>/dev/null | dd of={args.disk} bs=1M count=2048 iflag=fullblock oflag=direct", shell=True, check=True)
    ram = WORK / "ram.img"
    if any("ram" in cell for cell in args.cells or [*LOADS, *PAIRS]):
        # A file in RAM: /dev/shm, by a link.
        target = pathlib.Path("/dev/shm/fairlift-vhost.img")
        if not target.exists():
            subprocess.run(f"head -c 1G /dev/urandom >{target}", shell=True, check=True)
        ram.unlink(missing_ok=True)
        ram.symlink_to(target)
    if args.awake:
        keep_awake()
    for cell in args.cells or [*LOADS, *PAIRS]:
        found = {kind: [] for kind in args.servers.split(",")}
        for _ in range(args.reps):
            for kind, rows in found.items():
                rows.append(one(cell, kind, args))
        for kind, rows in found.items():
            for key in rows[0]:
                values = sorted(row[key] for row in rows)
                print(f"{cell:14} {kind[-9:]:9} {key:8} {statistics.median(values):9.2f}   ({values[0]:.2f} to {values[-1]:.2f})", flush=True)
            if args.json:
                with args.json.open("a") as out:
                    out.write(json.dumps({"cell": cell, "server": kind, "args": args.args, "rows": rows}) + "\n")


if __name__ == "__main__":
    main()
