#!/usr/bin/env python3
"""Tenants with weights, live: what each gets, all together, and how long they wait. Results are Markdown, and JSON lines.

    tenants.py live    [--scheduler bfq ...]   four groups on one modelled disk, unequal depths and connection counts
    tenants.py peers   [--scheduler bfq ...]   two and eight tenants on a modelled disk (ours alone) and on a real file,
                                               beside servers without weights (nbdkit, qemu-nbd)
    tenants.py kernel  [--scheduler bfq ...]   eight groups of direct sequential readers on one real file: through the
                                               library (iostest), through NBD, and Linux's loop device with bfq
    tenants.py reader  [--scheduler bfq ...]   a 4k random reader (100/s) beside four sequential writers of 1 MiB
    tenants.py clean                           deletes what these made

Clients are fio, one process each tenant: its `nbd` engine (libnbd), or io_uring on the loop device. All run longer than what
is measured, which is what lies between two looks at the counters: those of the server (its metrics) where it is ours, those of
the cgroup for the loop device, else fio's own (whose windows differ by some ms). For `kernel` root is needed, and the blkio
hierarchy of cgroups with bfq's files (`blkio.bfq.weight`), or version 2 with `io.bfq.weight`.

Settings of the environment: FAIRLIFT=binary, W=directory on a real disk (${TMPDIR:-/tmp}/fairlift-peers).
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FAIRLIFT = os.environ.get("FAIRLIFT") or f"{os.environ.get('CARGO_TARGET_DIR', ROOT / 'target')}/release/fairlift"
W = Path(os.environ.get("W") or f"{os.environ.get('TMPDIR', '/tmp')}/fairlift-peers") / "tenants"
MIB = 1 << 20
RAMP = 2
PART, MODEL_DEPTH = 400 << 30, 64  # of a modelled disk


@dataclass
class Tenant:
    """Who asks for what: `depth` requests on each of so many connections, in a part of the disk."""

    name: str
    weight: int
    connections: int = 1
    depth: int = 1
    rw: str = "randread"
    bs: str = "4k"
    more: tuple = ()

    def __str__(self):
        return f"{self.name}: weight {self.weight}, {self.connections} × {self.depth} {self.rw} {self.bs}"


@dataclass
class Got:
    """What a tenant had: bytes a second within the window, and latencies of its requests in µs."""

    bytes_s: float = 0
    p50: float = 0
    p99: float = 0
    p999: float = 0
    longest: float = 0


# ---- clients ----------------------------------------------------------------------------------------------------


def fio(tenant, number, where, part, seconds, cgroup=None):
    """Starts the clients of one tenant; `where` is a URI or the path of a block device."""
    engine = ["--ioengine=nbd", f"--uri={where}"] if "://" in where else ["--ioengine=io_uring", f"--filename={where}", "--direct=1"]
    offset, size = part
    spread = [f"--offset={offset}", f"--size={size // tenant.connections}", f"--offset_increment={size // tenant.connections}"]
    if tenant.rw.startswith("rand"):
        spread = [f"--offset={offset}", f"--size={size}"]
    command = ["fio", f"--name={tenant.name}", *engine, f"--rw={tenant.rw}", f"--bs={tenant.bs}", f"--iodepth={tenant.depth}",
               f"--numjobs={tenant.connections}", *spread, "--time_based", f"--ramp_time={RAMP}", f"--runtime={seconds}", "--thread",
               "--group_reporting", f"--randseed={number + 1}", "--norandommap", "--output-format=json", *tenant.more]
    enter = (lambda: Path(cgroup, "cgroup.procs").write_text(str(os.getpid()))) if cgroup else None
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=enter)


def finish(process):
    out, err = process.communicate(timeout=300)
    start = out.find("{")
    if start < 0:
        sys.exit(f"fio failed ({process.returncode}): {err.strip()[-500:]} {out[-500:]}")
    job = json.loads(out[start:])["jobs"][0]
    if job["error"]:
        sys.exit(f"fio had error {job['error']}: {err.strip()[-500:]}")
    side = max((job["read"], job["write"]), key=lambda side: side["total_ios"])
    at = lambda p: side["clat_ns"].get("percentile", {}).get(p, 0) / 1000
    return Got(side["bw_bytes"], at("50.000000"), at("99.000000"), at("99.900000"), side["clat_ns"]["max"] / 1000)


def run(tenants, where, parts, seconds, counters=None, cgroups=None):
    """All tenants at once; `counters()` gives bytes so far by tenant's name, and is looked at twice."""
    runtime = seconds + 90 if counters else seconds
    processes = [fio(tenant, n, where[n], parts[n], runtime, cgroups and cgroups[n]) for n, tenant in enumerate(tenants)]
    try:
        if counters:
            for _ in range(30):
                time.sleep(1)
                if all(counters().get(tenant.name) for tenant in tenants) or any(process.poll() is not None for process in processes):
                    break
            time.sleep(RAMP)
            begin, before = time.monotonic(), counters()
            time.sleep(seconds)
            end, after = time.monotonic(), counters()
            for process in processes:
                process.send_signal(signal.SIGINT)
        got = [finish(process) for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
    if counters:
        for tenant, had in zip(tenants, got):
            had.bytes_s = (after.get(tenant.name, 0) - before.get(tenant.name, 0)) / (end - begin)
    return got


# ---- servers ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def server(command, socket, log):
    with open(log, "w") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        for _ in range(200):
            if Path(socket).exists() or process.poll() is not None:
                break
            time.sleep(0.05)
        if process.poll() is not None:
            sys.exit(f"{command[0]} did not start: {Path(log).read_text()[-500:]}")
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()


@contextlib.contextmanager
def fairlift(scheduler, backing, tenants, parts, settings, depth=None, workers=None):
    """Our server with a group and an export for each tenant; gives (URIs, counters)."""
    lines = ["[server]", f'listen = "unix:{W}/f.sock"'] + ([f"workers = {workers}"] if workers else [])
    lines += ["[disk.d]", f'scheduler = "{scheduler}"'] + ([f"depth = {depth}", f"nr_requests = {max(256, 2 * depth)}"] if depth else [])
    if settings:
        lines.append("set = { " + ", ".join(f'{name} = "{value}"' for name, value in settings) + " }")
    for tenant, (offset, size) in zip(tenants, parts):
        lines += [f'[group."/{tenant.name}"]', f"weight = {tenant.weight}", f"[export.{tenant.name}]", f'backing = "{backing}"',
                  'disk = "d"', f'group = "/{tenant.name}"', f"offset = {offset}", f"size = {size}"]
    config, log = W / "f.toml", W / "f.log"
    config.write_text("\n".join(lines) + "\n")
    with server([FAIRLIFT, "serve", "--config", str(config)], W / "f.sock", log) as process:

        def counters():
            text = subprocess.run(["curl", "-sf", "--unix-socket", f"{W}/f.sock.control.sock", "http://localhost/metrics"],
                                  capture_output=True, text=True, check=True).stdout
            done = dict.fromkeys((tenant.name for tenant in tenants), 0)
            for name, count in re.findall(r'^fairlift_operation_bytes_total\{[^}]*tenant="/([^"]*)"[^}]*\} (\S+)', text, re.M):
                done[name] = done.get(name, 0) + int(float(count))
            return done

        yield [f"nbd+unix:///{tenant.name}?socket={W}/f.sock" for tenant in tenants], counters


@contextlib.contextmanager
def peer(name, path):
    """A server without weights: one export, and each tenant uses its part of it."""
    socket, uri = W / "p.sock", f"nbd+unix:///?socket={W}/p.sock"
    socket.unlink(missing_ok=True)
    command = {
        "nbdkit": ["nbdkit", "-f", "-U", str(socket), "file", str(path), "cache=none", "fadvise=random"],
        "qemu-nbd": ["qemu-nbd", "-t", "-e", "256", "-x", "", "-k", str(socket), "-f", "raw", "--cache=none", "--aio=io_uring", str(path)],
    }[name]
    with server(command, socket, W / "p.log"):
        time.sleep(0.2)
        yield uri
    socket.unlink(missing_ok=True)


# ---- Linux's own ------------------------------------------------------------------------------------------------


def cgroup_root():
    """Where groups with bfq weights can be made, and the file for a weight there."""
    for root, file in (("/sys/fs/cgroup/blkio", "blkio.bfq.weight"), ("/sys/fs/cgroup", "io.bfq.weight")):
        probe = Path(root, "fairlift-probe")
        try:
            probe.mkdir()
            there = (probe / file).exists()
            probe.rmdir()
            if there:
                return Path(root), file
        except OSError:
            pass
    return None


@contextlib.contextmanager
def linux(path, scheduler, tenants, low_latency=0):
    """The file as a loop device with direct I/O under a kernel scheduler; a cgroup for each tenant."""
    device = subprocess.run(["losetup", "--find", "--show", "--direct-io=on", str(path)], check=True, capture_output=True, text=True).stdout.strip()
    sys_dir = Path("/sys/block", Path(device).name)
    root, file = cgroup_root() or sys.exit("cgroups here have no bfq weights")
    groups = [root / f"fairlift-{tenant.name}" for tenant in tenants]
    try:
        (sys_dir / "queue/scheduler").write_text(scheduler)
        if scheduler == "bfq":
            (sys_dir / "queue/iosched/low_latency").write_text(str(low_latency))
        for group, tenant in zip(groups, tenants):
            group.mkdir(exist_ok=True)
            (group / file).write_text(str(tenant.weight))
        number = (sys_dir / "dev").read_text().strip()

        def counters():
            done = {}
            for group, tenant in zip(groups, tenants):
                for stat in ("blkio.bfq.io_service_bytes", "io.stat"):
                    with contextlib.suppress(OSError):
                        text = (group / stat).read_text()
                        old = re.findall(rf"^{number} (?:Read|Write) (\d+)", text, re.M)
                        new = re.findall(rf"^{number} .*?rbytes=(\d+) wbytes=(\d+)", text, re.M)
                        done[tenant.name] = sum(map(int, old)) + sum(map(int, new[0] if new else ()))
            return done

        # Without bfq the kernel counts nothing by group: then fio's own figures count.
        yield device, groups, counters if scheduler == "bfq" else None
    finally:
        subprocess.run(["losetup", "--detach", device], check=False)
        for group in groups:
            with contextlib.suppress(OSError):
                group.rmdir()


# ---- tables -----------------------------------------------------------------------------------------------------


def shares(tenants, got):
    total, weights = sum(had.bytes_s for had in got) or 1, sum(tenant.weight for tenant in tenants)
    pairs = [(had.bytes_s / total, tenant.weight / weights) for tenant, had in zip(tenants, got)]
    error = max(abs(share - ideal) / ideal for share, ideal in pairs)
    each = [share / ideal for share, ideal in pairs]
    jain = sum(each) ** 2 / (len(each) * sum(x * x for x in each) or 1)
    return [share for share, _ in pairs], error, jain, total


def row(label, tenants, got, best=None):
    each, error, jain, total = shares(tenants, got)
    record = {"label": label, "tenants": [vars(t) | vars(g) for t, g in zip(tenants, got)], "error": error, "jain": jain, "total": total}
    with open(W / "results.jsonl", "a") as out:
        out.write(json.dumps(record, default=str) + "\n")
    rate = f"{total / 1e6:.1f}" if total < 1e8 else f"{total / 1e6:.0f}"
    against = "" if best is None else f" {total / best:.2f} |"
    ms = lambda us: f"{us / 1000:.1f}" if us >= 1000 else f"{us / 1000:.2f}"
    print(f"| {label} | {rate} |{against} {' '.join(f'{share * 100:.1f}' for share in each)} | {error * 100:.1f} | {jain:.3f} | "
          f"{' '.join(ms(had.p99) for had in got)} | {ms(max(had.longest for had in got))} |", flush=True)
    return total


def head(title, tenants, against=False):
    weights = sum(tenant.weight for tenant in tenants)
    print(f"\n### {title}\n\nTenants: {'; '.join(map(str, tenants))}. Ideal shares: {' '.join(f'{t.weight / weights * 100:.1f}' for t in tenants)} %.\n")
    extra = " ÷ none |" if against else ""
    print(f"| server | total MB/s |{extra} shares % | largest error % | Jain | p99 of each, ms | longest, ms |")
    print(f"|---|---|{'---|' if against else ''}---|---|---|---|---|")


def machine(arguments):
    commit = subprocess.run(["git", "-C", ROOT, "log", "-1", "--format=%h"], capture_output=True, text=True).stdout.strip()
    print(f"`benches/peers/tenants.py {' '.join(arguments)}`, {time.strftime('%Y-%m-%d')}, commit {commit}, Linux {os.uname().release}, {os.cpu_count()} CPUs.")


def parts(count, size):
    each = size // count // MIB * MIB
    return [(n * each, each) for n in range(count)]


def image(size):
    """A file on the real disk, written once with noise."""
    path = Path(os.environ.get("DISK") or W.parent / "disk" / "disk.img")
    if not path.exists():
        subprocess.run([ROOT / "benches/peers/prepare.sh"], check=True)
    if path.stat().st_size < size:
        sys.exit(f"{path} is smaller than {size >> 20} MiB: delete it, or set DISK")
    return path


def known():
    return re.findall(r"^(\S+):", subprocess.run([FAIRLIFT, "tunables"], capture_output=True, text=True, check=True).stdout, re.M)


# ---- what is run ------------------------------------------------------------------------------------------------


def live(options):
    """Unequal depths and connection counts, so that what decides is not who asks more.

    All together have no more under way than the disk lets wait (nr_requests, 256): beyond that, who comes first gets in.
    And each has more under way than its share of what the device has at once (64), so that it can use it.
    """
    cases = [
        ("Unequal depths and connection counts",
         [Tenant("a", 100, 8, 8), Tenant("b", 200, 1, 32), Tenant("c", 300, 2, 32), Tenant("d", 400, 1, 64)]),
        ("Eight connections against one, of equal weight", [Tenant("many", 100, 8, 16), Tenant("one", 100, 1, 64)]),
        ("Eight connections of weight 100 against one of weight 300", [Tenant("many", 100, 8, 16), Tenant("one", 300, 1, 96)]),
    ]
    for title, tenants in cases:
        head(f"{title}, on {options.device}", tenants, against=True)
        base = None
        where = parts(len(tenants), PART)
        for scheduler in ["none", *options.scheduler]:
            settings = options.set if scheduler != "none" else ()
            with fairlift(scheduler, options.device, tenants, where, settings, MODEL_DEPTH) as (uris, counters):
                got = run(tenants, uris, [(0, size) for _, size in where], options.seconds, counters)
            base = base or sum(had.bytes_s for had in got)
            row(scheduler, tenants, got, base)


def peers(options):
    two = [Tenant("light", 100, 8, 16), Tenant("heavy", 300, 1, 96)]
    eight = [Tenant(f"t{n}", 100 * n, 1 + n % 2, 32 // (1 + n % 2)) for n in range(1, 9)]
    for tenants in (two, eight):
        where = parts(len(tenants), PART)
        head(f"{len(tenants)} tenants on one modelled disk, {options.device}", tenants)
        for scheduler in ["none", *options.scheduler]:
            with fairlift(scheduler, options.device, tenants, where, options.set if scheduler != "none" else (), MODEL_DEPTH) as (uris, counters):
                row(f"fairlift {scheduler}", tenants, run(tenants, uris, [(0, size) for _, size in where], options.seconds, counters))
        path = image(2 << 30)
        where = parts(len(tenants), 2 << 30)
        head(f"{len(tenants)} tenants on one real file", tenants)
        for name in ["nbdkit", "qemu-nbd", *(f"fairlift {s}" for s in ["none", *options.scheduler])]:
            kind, _, scheduler = name.partition(" ")
            if scheduler:
                settings = options.set if scheduler != "none" else ()
                with fairlift(scheduler, f"file:{path}", tenants, where, settings, options.depth) as (uris, counters):
                    row(name, tenants, run(tenants, uris, [(0, size) for _, size in where], options.seconds, counters))
            else:
                with peer(kind, path) as uri:
                    row(name, tenants, run(tenants, [uri] * len(tenants), where, options.seconds))


def kernel(options):
    path = image(4 << 30)
    linux_too = os.geteuid() == 0 and cgroup_root()
    if not linux_too:
        print("No loop device: that needs root and cgroups with bfq weights.", file=sys.stderr)
    for bs in options.bs.split(","):
        for readers in map(int, options.readers.split(",")):
            tenants = [Tenant(f"g{n}", 100 * n, readers, options.iodepth, "read", bs) for n in range(1, 9)]
            where = parts(8, 4 << 30)
            inside = [(0, size) for _, size in where]
            head(f"8 groups, {readers} direct sequential {bs} readers each, depth {options.iodepth}, on one real file", tenants, against=True)
            if linux_too:
                base = None
                for scheduler in ("none", "bfq"):
                    with linux(path, scheduler, tenants) as (device, groups, counters):
                        got = run(tenants, [device] * 8, where, options.seconds, counters, groups)
                        base = base or sum(had.bytes_s for had in got)
                        row(f"Linux loop, {scheduler}", tenants, got, base)
            base = None
            for scheduler in ["none", *options.scheduler]:
                settings = options.set if scheduler != "none" else ()
                with fairlift(scheduler, f"file:{path}", tenants, where, settings, options.depth) as (uris, counters):
                    got = run(tenants, uris, inside, options.seconds, counters)
                    base = base or sum(had.bytes_s for had in got)
                    row(f"NBD, {scheduler}", tenants, got, base)
            base = None
            for scheduler in ["none", *options.scheduler]:
                got = library(path, scheduler, tenants, options)
                base = base or sum(had.bytes_s for had in got)
                row(f"library, {scheduler}", tenants, got, base)


def library(path, scheduler, tenants, options):
    """The library on the file, by iostest; its latencies are those of the engine, without a socket."""
    first = tenants[0]
    out = W / "iostest.json"
    size = (4 << 30) // len(tenants) // first.connections // MIB - 1  # iostest leaves a gap between files
    command = [FAIRLIFT, "iostest", "--device", f"file:{path}", "--scheduler", scheduler, "-w", "dsr", "--jobs", str(first.connections),
               "--bs", first.bs, "--iodepth", str(first.depth), "--filesize", f"{size}m", "--runtime", str(options.seconds),
               "--weights", ",".join(str(t.weight) for t in tenants), "--json", str(out)]
    command += [word for name, value in (options.set if scheduler != "none" else ()) for word in ("--set", f"{name}={value}")]
    command += ["--depth", str(options.depth)] if options.depth else []
    subprocess.run(command, check=True, capture_output=True)
    groups = json.loads(out.read_text())["runs"][0]["groups"]
    return [Got(g["kb_s"] * 1024, g["lat_p50_us"], g["lat_p99_us"], 0, g["lat_max_us"]) for g in groups]


def reader(options):
    path = image(4 << 30)
    think = ("--rate_iops=100",)
    alone = [Tenant("reader", 100, 1, 1, more=think)]
    both = [*alone, Tenant("writers", 100, 4, 8, "write", "1m")]
    copy = W / "scratch.img"
    shutil.copyfile(path, copy)
    for tenants in (alone, both):
        where = parts(2, 4 << 30)[:len(tenants)]
        head("A 4k random reader" + (" beside 4 sequential writers of 1 MiB, depth 8" if len(tenants) > 1 else ", alone"), tenants)
        if os.geteuid() == 0 and cgroup_root():
            for scheduler in ("none", "mq-deadline", "kyber", "bfq"):
                with linux(copy, scheduler, tenants, low_latency=1) as (device, groups, _):
                    row(f"Linux loop, {scheduler}", tenants, run(tenants, [device] * 2, where, options.seconds, None, groups))
        for scheduler in dict.fromkeys(["none", "mq-deadline", *options.scheduler]):
            settings = options.set if scheduler in options.scheduler else ()
            with fairlift(scheduler, f"file:{copy}", tenants, where, settings, options.depth) as (uris, counters):
                row(f"NBD, {scheduler}", tenants, run(tenants, uris, [(0, size) for _, size in where], options.seconds, counters))
    copy.unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["live", "peers", "kernel", "reader", "clean"])
    parser.add_argument("--scheduler", action="append", help="ours beside `none`; may be said several times (default: all with weights)")
    parser.add_argument("--device", default="sim:eva-raid5-12", help="the modelled disk (%(default)s)")
    parser.add_argument("--seconds", type=int, default=10, help="what is measured (%(default)s)")
    parser.add_argument("--depth", type=int, help="requests in flight on the real file")
    parser.add_argument("--set", action="append", default=[], type=lambda pair: tuple(pair.split("=", 1)), metavar="KEY=VALUE")
    parser.add_argument("--bs", default="4k,64k")
    parser.add_argument("--readers", default="1,2,4,8")
    parser.add_argument("--iodepth", type=int, default=1)
    options = parser.parse_args()
    if options.what == "clean":
        shutil.rmtree(W, ignore_errors=True)
        return
    W.mkdir(parents=True, exist_ok=True)
    if len(str(W)) > 90:
        sys.exit(f"unix socket paths end at 107 bytes: {W} is too long; set W to a shorter path")
    options.scheduler = options.scheduler or [name for name in known() if name in ("cfq", "bfq")] or ["mq-deadline"]
    machine(sys.argv[1:])
    {"live": live, "peers": peers, "kernel": kernel, "reader": reader}[options.what](options)


if __name__ == "__main__":
    main()
