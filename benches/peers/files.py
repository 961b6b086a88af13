#!/usr/bin/env python3
"""Files as backings, against the file itself and the kernel's loop device: the figures of docs/measured/files.md.

    benches/peers/files.py ceiling     4 KiB random, 1 MiB sequential on a file: fio, library, NBD, loop direct and buffered
    benches/peers/files.py nested      an ext4 image in a squashfs, 1 to 64 readers, 1 and 2 CPUs, cold and warm
    benches/peers/files.py many        100 image files at once: threads, memory, switches, weights (--on ext4|squashfs)
    benches/peers/files.py slow        p99 of a file beside a disk that is slow
    benches/peers/files.py all

    --dir DIR       where its files go (2 GiB, on the disk that is measured; default: $TMPDIR or /tmp)
    --seconds S     of each run (default 3)      --rounds N   of interleaved runs (default 3; figures are medians)
    --json FILE     every single run, a line each

Needs root (loop devices, mounts), fio, nbdkit, nbdfuse, mksquashfs, mkfs.ext4, taskset, cc and make; release build first.
All arms of a comparison run in turn, round by round, so that ratios hold where the machine is shared; the load average at
the start and end is printed. What it mounts and starts it takes away again.
"""

import argparse
import contextlib
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FAIRLIFT = os.environ.get("FAIRLIFT") or str(ROOT / "target/release/fairlift")
MIB = 1 << 20
undo = []


def run(*command, **options):
    options.setdefault("check", True)
    return subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True, **options)


def start(*command, **options):
    process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, start_new_session=True, **options)

    def stop():
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()

    undo.append(stop)
    return process


def wait_for(true, what):
    end = time.monotonic() + 20
    while not true():
        if time.monotonic() > end:
            sys.exit(f"files.py: waited in vain until {what}")
        time.sleep(0.02)


def mount(*arguments):
    run("mount", *arguments)
    undo.append(lambda: subprocess.run(["umount", "-l", arguments[-1]], capture_output=True))


def loop(path, *options):
    device = run("losetup", "-f", "--show", *options, path).stdout.strip()
    undo.append(lambda: subprocess.run(["losetup", "-d", device], capture_output=True))
    return device


def drop_caches():
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3")


class Busy:
    """What the whole machine, and the helper threads of a process or of loop devices, did meanwhile."""

    def __init__(self, pid=None):
        self.pid, self.helpers, self.kernel, self.over = pid, 0, 0, False

    def __enter__(self):
        self.before = self.cpu()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over = True
        self.thread.join()
        self.seconds = self.cpu() - self.before

    @staticmethod
    def cpu():
        user, nice, system, _idle, _wait, irq, softirq = map(int, Path("/proc/stat").read_text().split()[1:8])
        return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")

    def watch(self):
        while not self.over:
            if self.pid:
                names = []
                for task in Path(f"/proc/{self.pid}/task").glob("*/comm"):
                    with contextlib.suppress(OSError):
                        names.append(task.read_text())
                self.helpers = max(self.helpers, sum(name.startswith("helper") for name in names))
                self.kernel = max(self.kernel, sum(name.startswith("iou-wrk") for name in names))
            else:
                count = 0
                for process in Path("/proc").glob("[0-9]*/comm"):
                    with contextlib.suppress(OSError):
                        name = process.read_text()
                        count += name.startswith("kworker") and "loop" in name
                self.helpers = max(self.helpers, count)
            time.sleep(0.05)


def fio(path, rw, bs, depth, jobs, seconds, size, engine="io_uring", cpus=None, direct=True):
    pin = ["taskset", "-c", cpus] if cpus else []
    process = subprocess.Popen(
        [*pin, "fio", "--name=a", f"--ioengine={engine}", f"--{'uri' if engine == 'nbd' else 'filename'}={path}", f"--rw={rw}", f"--bs={bs}",
         f"--iodepth={depth}", f"--numjobs={jobs}", f"--direct={int(direct)}", f"--runtime={seconds}", "--time_based", f"--size={size}", "--thread",
         "--group_reporting", "--norandommap", "--randrepeat=0", "--allow_file_create=0", "--output-format=json",
         *(["--readonly"] if "read" in rw else []), *([f"--offset_increment={size}"] if jobs > 1 else [])],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with Busy() as busy:
        out, errors = process.communicate()
    if process.returncode:
        sys.exit(f"files.py: fio: {errors.strip() or out[-500:]}")
    job = json.loads(out[out.index("{"):])["jobs"][0]
    part = job["read" if "read" in rw else "write"]
    p99 = part["clat_ns"]["percentile"]["99.000000"] / 1000
    own = (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] / 1000
    return dict(iops=part["iops"], p99_us=p99, cpu_us=1e6 * busy.seconds / max(part["total_ios"], 1),
                own_cpu_us=1e6 * own / max(part["total_ios"], 1), helpers=busy.helpers)


def library(path, workload, bs, depth, jobs, seconds, size, cpus=None, direct="auto"):
    pin = ["taskset", "-c", cpus] if cpus else []
    with tempfile.NamedTemporaryFile(suffix=".json") as kept:
        process = subprocess.Popen(
            [*pin, FAIRLIFT, "iostest", "--device", f"file:{path},direct={direct}", "--scheduler", "none", "-w", workload,
             "--bs", str(bs), "--iodepth", str(depth), "--jobs", str(jobs), "--filesize", str((size // jobs // MIB - 1) * MIB),
             "--runtime", str(seconds), "--json", kept.name, "--seed", str(time.monotonic_ns() % 1000000 + 1),
             *(["--write-to-device"] if workload.endswith("w") else [])],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        before = os.times()
        with Busy(process.pid) as busy:
            errors = process.communicate()[1]
        after = os.times()
        if process.returncode:
            sys.exit(f"files.py: iostest: {errors.strip()}")
        result = json.load(open(kept.name))["runs"][0]
    ios = result["iops"] * result["runtime_s"]
    own = after.children_user + after.children_system - before.children_user - before.children_system
    learned = result["counters"].get("concurrency_level")
    return dict(iops=result["iops"], p99_us=result["groups"][0]["lat_p99_us"], cpu_us=1e6 * busy.seconds / max(ios, 1),
                own_cpu_us=1e6 * own / max(ios, 1), helpers=max(busy.helpers, result["counters"].get("helpers_most", 0)),
                kernel_helpers=busy.kernel, learned=learned)


class Served:
    """`fairlift serve` on a unix socket."""

    def __init__(self, directory, *exports, config=None, args=(), cpus=None):
        self.socket = f"{directory}/s{time.monotonic_ns() % 10**9}"
        words = list(exports)
        if config:
            Path(f"{self.socket}.toml").write_text(config)
            words += ["--config", f"{self.socket}.toml"]
        pin = ["taskset", "-c", cpus] if cpus else []
        self.process = start(*pin, FAIRLIFT, "serve", *words, "--listen", f"unix:{self.socket}", *args)
        wait_for(lambda: os.path.exists(self.socket), "the server listens")

    def load(self, load, export, **options):
        words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
        return [load, "--uri", f"nbd+unix:///{export}?socket={self.socket}", "--server-pid", str(self.process.pid), *words]

    def nbd(self, load, export, **options):
        with Busy(self.process.pid) as busy:
            out = json.loads(run(*self.load(load, export, **options)).stdout)
        every = out["all"]
        return dict(iops=out["iops"], p99_us=every["p99_us"], cpu_us=1e6 * busy.seconds / max(every["n"], 1),
                    own_cpu_us=out["server"]["cpu_us_per_io"] + out["client_cpu_us_per_io"], helpers=busy.helpers,
                    kernel_helpers=busy.kernel)


class Bench:
    def __init__(self, options):
        self.o = options
        self.dir = tempfile.mkdtemp(prefix="fairlift-files-", dir=options.dir)
        undo.append(lambda: run("rm", "-rf", self.dir))
        run("make", "-s", "-C", Path(__file__).parent, f"OUT={self.dir}/bin")
        self.nbdload = f"{self.dir}/bin/nbdload"
        self.kept = open(options.json, "a") if options.json else None

    def keep(self, what, **figures):
        if self.kept:
            print(json.dumps({"what": what, **figures}), file=self.kept, flush=True)

    def rounds(self, what, arms):
        """Runs the arms in turn, round by round; the median of each figure by arm."""
        got = {name: [] for name in arms}
        for _ in range(self.o.rounds):
            for name, arm in arms.items():
                os.sync()  # what one arm left in the page cache is not another's to write
                got[name].append(arm())
                self.keep(what, arm=name, **got[name][-1])
        median = lambda runs, key: statistics.median(run[key] for run in runs if run.get(key) is not None) \
            if any(run.get(key) is not None for run in runs) else None
        return {name: {key: median(runs, key) for key in runs[0]} for name, runs in got.items()}

    def image(self, name, size):
        """A file of random bytes, on the disk."""
        path = f"{self.dir}/{name}"
        run("dd", "if=/dev/urandom", f"of={path}", "bs=1M", f"count={size // MIB}", "conv=fsync")
        return path

    def squashfs(self, name, files):
        """A mounted squashfs of these files, as `mksquashfs` makes it by default; where it is."""
        image, at = f"{self.dir}/{name}.squashfs", f"{self.dir}/{name}"
        os.mkdir(at)
        run("mksquashfs", *files, image, "-quiet", "-no-progress")
        mount("-o", "loop,ro", image, at)
        return at

    def half_random(self, name, size):
        """An ext4 image with a file that can be compressed to about the half."""
        path, inside = f"{self.dir}/{name}", f"{self.dir}/{name}.mnt"
        with open(path, "wb") as file:
            file.truncate(size)
        run("mkfs.ext4", "-q", "-F", "-O", "^has_journal", path)  # a journal reads as zeroes, at the speed of memory
        os.mkdir(inside)
        mount("-o", "loop", path, inside)
        with open(f"{inside}/data", "wb") as file, contextlib.suppress(OSError):
            for _ in range(size // 8192):
                file.write(os.urandom(4096) + b"fairlift" * 512)
        os.sync()
        run("umount", inside)
        return path

    # ---- shows ----

    def ceiling(self):
        size, s, o = 1024 * MIB, self.o.seconds, self.o
        path = self.image("ceiling", size)
        size -= 64 * MIB
        direct = loop(path, "--direct-io=on")
        buffered = loop(path, "--direct-io=off")
        print("| | file, fio io_uring | library | NBD | loop direct | loop buffered |\n|---|---|---|---|---|---|")
        for title, rw, workload, bs, depth in [
            ("4 KiB random read, depth 32", "randread", "drr", 4096, 32), ("4 KiB random write, depth 32", "randwrite", "drw", 4096, 32),
            ("1 MiB sequential read, depth 4", "read", "dsr", MIB, 4), ("1 MiB sequential write, depth 4", "write", "dsw", MIB, 4)]:
            def nbd():
                server = Served(self.dir, f"d=file:{path}", args=("--scheduler", "none"))
                try:
                    return server.nbd(self.nbdload, "d", rw=rw, bs=bs, depth=depth, seconds=s, warmup=0.3)
                finally:
                    undo.pop()()
            got = self.rounds(title, {
                "fio": lambda: fio(path, rw, bs, depth, 1, s, size),
                "library": lambda: library(path, workload, bs, depth, 1, s, size),
                "nbd": nbd,
                "loop direct": lambda: fio(direct, rw, bs, depth, 1, s, size),
                "loop buffered": lambda: fio(buffered, rw, bs, depth, 1, s, size)})
            raw = got["fio"]["iops"]
            cells = [f"{run['iops']:,.0f}/s ({run['iops'] / raw:.2f}), {run['cpu_us']:.1f} µs" for run in got.values()]
            print(f"| {title} | {' | '.join(cells)} |", flush=True)
        print("\nRequests per second (of the file's), and busy time of the whole machine per request.")

    def nested(self):
        size = 1024 * MIB
        image = self.half_random("image", size)
        at = self.squashfs("squash", [image])
        file = f"{at}/image"
        device = loop(file, "-r")
        mask = Path("/sys/devices/virtual/workqueue/cpumask")
        everyone = mask.read_text()
        undo.append(lambda: mask.write_text(everyone))
        print("Cold: 128 KiB sequential from as many places as readers; warm: 4 KiB at random.\n")
        print("| cache | CPUs | readers | library: reads/s, p99, helpers, learned | NBD: reads/s, p99, helpers | loop on loop: reads/s, p99, loop workers |")
        print("|---|---|---|---|---|---|")
        for cache in "cold", "warm":
            for cpus in "0", "0,1":
                # The kernel's loop workers are threads of nobody: they keep to this mask.
                mask.write_text("1" if cpus == "0" else everyone)
                for readers in self.o.readers:
                    def ready():
                        if cache == "cold":
                            return drop_caches()
                        with open(file, "rb") as open_file:
                            while open_file.read(4 * MIB):
                                pass
                    # Cold: blocks of squashfs, none of them twice, so that it stays cold. Warm: at random.
                    workload, rw, bs = ("dsr", "read", 128 << 10) if cache == "cold" else ("drr", "randread", 4096)
                    def ours():
                        ready()
                        return library(file, workload, bs, 1, readers, self.o.seconds, size, cpus)
                    def nbd():
                        ready()
                        server = Served(self.dir, f"x=file:{file}", args=("--read-only", "--scheduler", "none"), cpus=cpus)
                        try:
                            with Busy(server.process.pid) as busy:
                                uri = f"nbd+unix:///x?socket={server.socket}"
                                got = fio(uri, rw, bs, 1, readers, self.o.seconds, size // readers, "nbd", cpus)
                            return {**got, "helpers": busy.helpers}
                        finally:
                            undo.pop()()
                    def loops():
                        ready()
                        return fio(device, rw, bs, 1, readers, self.o.seconds, size // readers, "psync", cpus)
                    got = self.rounds(f"nested {cache} {cpus} {readers}", {"library": ours, "NBD": nbd, "loop": loops})
                    cells = [f"{arm['iops']:,.0f}, {arm['p99_us'] / 1000:.2f} ms, {arm['helpers']:.0f}" for arm in got.values()]
                    cells[0] += f", {got['library']['learned'] or '–'}"
                    print(f"| {cache} | {len(cpus.split(','))} | {readers} | {' | '.join(cells)} |", flush=True)
                mask.write_text(everyone)

    def many(self):
        count, size = 100, 8 * MIB
        os.mkdir(f"{self.dir}/images")
        files = [self.image(f"images/i{n:03}", size) for n in range(count)]
        print("| on | requests/s | helper threads | the kernel's | RSS | switches per request | share of weight 300 (ideal 75 %) |\n|---|---|---|---|---|---|---|")
        for on in ["ext4", "squashfs"] if self.o.on == "both" else [self.o.on]:
            names = [os.path.basename(path) for path in files]
            where = f"{self.dir}/images" if on == "ext4" else self.squashfs("many", files)
            config = '[group."/light"]\nweight = 100\n[group."/heavy"]\nweight = 300\n[disk.d]\nscheduler = "bfq"\n' + "".join(
                f'[export.{name}]\nbacking = "file:{where}/{name}"\ndisk = "d"\nread_only = true\ngroup = "/{"heavy" if n % 2 else "light"}"\n'
                for n, name in enumerate(names))
            results = []
            for _ in range(self.o.rounds):
                drop_caches()
                server = Served(self.dir, config=config)
                pid = server.process.pid
                with Busy(pid) as busy:
                    before = switches(pid)
                    clients = [subprocess.Popen(server.load(self.nbdload, name, rw="randread", bs=4096, depth=4, warmup=1, seconds=self.o.seconds),
                                                stdout=subprocess.PIPE, text=True) for name in names]
                    outs = [json.loads(client.communicate()[0]) for client in clients]
                    after = switches(pid)
                    rss = int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1])
                undo.pop()()
                done = [out["all"]["n"] for out in outs]
                results.append(dict(iops=sum(out["iops"] for out in outs), helpers=busy.helpers, kernel=busy.kernel, rss=rss,
                                    switches=(after - before) / max(sum(done), 1) * self.o.seconds / (self.o.seconds + 1),
                                    share=sum(done[1::2]) / max(sum(done), 1)))
                self.keep(f"many {on}", **results[-1])
            m = {key: statistics.median(r[key] for r in results) for key in results[0]}
            print(f"| {on} | {m['iops']:,.0f} | {m['helpers']:.0f} | {m['kernel']:.0f} | {m['rss'] / 1024:.0f} MiB | {m['switches']:.2f} | {m['share']:.1%} |", flush=True)

    def slow(self):
        path = self.image("quick", 256 * MIB)
        mounted, below = f"{self.dir}/fuse", f"{self.dir}/below"
        os.mkdir(mounted)
        start("nbdkit", "-f", "-U", below, "--filter=delay", "memory", "64M", "delay-read=50ms")
        wait_for(lambda: os.path.exists(below), "nbdkit listens")
        start("nbdfuse", mounted, f"nbd+unix:///?socket={below}")
        undo.append(lambda: subprocess.run(["umount", "-l", mounted], capture_output=True))
        wait_for(lambda: os.path.exists(f"{mounted}/nbd"), "nbdfuse shows its file")
        server = Served(self.dir, f"quick=file:{path}", f"slow=file:{mounted}/nbd")
        quick = lambda: server.nbd(self.nbdload, "quick", rw="randread", bs=4096, depth=4, seconds=self.o.seconds, warmup=0.3)
        def beside():
            other = subprocess.Popen(server.load(self.nbdload, "slow", rw="randread", bs=4096, depth=64, seconds=self.o.seconds + 2, warmup=0),
                                     stdout=subprocess.PIPE, text=True)
            time.sleep(1)
            figures = quick()
            out = json.loads(other.communicate()[0])
            return dict(figures, slow_iops=out["iops"])
        got = self.rounds("slow", {"alone": lambda: dict(quick(), slow_iops=None), "beside": beside})
        a, b = got["alone"], got["beside"]
        print("| | reads/s | p99 µs | helpers | the slow disk's reads/s |\n|---|---|---|---|---|")
        print(f"| alone | {a['iops']:,.0f} | {a['p99_us']:.0f} | {a['helpers']:.0f} | – |")
        print(f"| beside the slow disk | {b['iops']:,.0f} ({b['iops'] / a['iops']:.2f}) | {b['p99_us']:.0f} ({b['p99_us'] / a['p99_us']:.2f}) | {b['helpers']:.0f} | {b['slow_iops']:,.0f} |", flush=True)


def switches(pid):
    total = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        with contextlib.suppress(OSError):
            total += sum(map(int, re.findall(r"ctxt_switches:\s+(\d+)", status.read_text())))
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("show", choices=["ceiling", "nested", "many", "slow", "all"])
    parser.add_argument("--dir", default=os.environ.get("TMPDIR", "/tmp"))
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--readers", type=lambda text: [int(n) for n in text.split(",")], default=[1, 2, 4, 8, 16, 32, 64])
    parser.add_argument("--on", choices=["ext4", "squashfs", "both"], default="both")
    parser.add_argument("--json")
    options = parser.parse_args()
    if options.seconds == int(options.seconds):
        options.seconds = int(options.seconds)
    if os.geteuid() != 0:
        sys.exit("files.py: needs root, for loop devices and mounts")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    print(f"load average at the start: {' '.join(map(str, os.getloadavg()))}", file=sys.stderr)
    try:
        bench = Bench(options)
        for show in ["ceiling", "nested", "many", "slow"] if options.show == "all" else [options.show]:
            print(f"\n## {show}: {options.rounds} rounds of {options.seconds} s\n", flush=True)
            getattr(bench, show)()
    finally:
        for function in reversed(undo):
            with contextlib.suppress(Exception):
                function()
    print(f"load average at the end: {' '.join(map(str, os.getloadavg()))}", file=sys.stderr)


if __name__ == "__main__":
    main()
