#!/usr/bin/env python3
"""What does it cost to be watched, and is it true? Live: NBD, one server.

    benches/see.py rate        reads a second of 4 connections with 32 in flight each, on RAM: alone, beside a scrape each second, beside a trace
    benches/see.py tenants     10,000 tenants whose names hold quotes, backslashes and emoji (one with a newline is refused): promtool, the time of a scrape, and what a
                               client beside it notices; then a scraper that reads one byte a second
    benches/see.py latency     p50 and p99 that the server tells beside those that fio measures
    benches/see.py history     memory and CPU time of a server with idle tenants (--tenants) that keeps the page's ten minutes; with --old, beside one that does not

    --pairs N            runs without and with, in turn [8]        --seconds S   each [2]
    --old BINARY         of `rate` and `history`: another server, as one more row

A row has the median of the ratios of neighbours and the middle half of them.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/e2e"))
FAIRLIFT = os.environ.setdefault("FAIRLIFT", f"{os.environ.get('CARGO_TARGET_DIR', ROOT / 'target')}/release/fairlift")
import nbdclient  # noqa: E402
from control import Unix  # noqa: E402: it wants to know which binary


class Server:
    def __init__(self, place, *words, binary=FAIRLIFT, control=True):
        self.place, self.socket = place, f"{place}/s"
        self.process = subprocess.Popen(
            [binary, "serve", *words, "--listen", f"unix:{self.socket}", *(["--control", f"unix:{place}/c"] if control else [])],
            stdout=subprocess.DEVNULL, stderr=open(f"{place}/log", "wb"))
        while not os.path.exists(self.socket) or (control and not os.path.exists(f"{place}/c")):
            if self.process.poll() is not None:
                sys.exit(Path(f"{place}/log").read_text())
            time.sleep(0.01)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def get(self, path, accept="application/openmetrics-text;version=1.0.0"):
        connection = Unix(f"{self.place}/c")
        connection.request("GET", path, headers={"Accept": accept})
        return connection.getresponse()


def median(values):
    values = sorted(values)
    quarter = len(values) // 4
    return f"{statistics.median(values):.3f} ({values[quarter]:.3f} to {values[-1 - quarter]:.3f})"


def load(options):
    out = os.environ.get("TMPDIR", "/tmp") + "/fairlift-peers/bin"
    subprocess.run(["make", "-s", "-C", ROOT / "benches/peers", f"OUT={out}", f"{out}/nbdload"], check=True)

    def run(server, *words):
        said = subprocess.run([f"{out}/nbdload", "--uri", f"nbd+unix:///a?socket={server.socket}", "--conns", "4", "--depth", "32", "--warmup", "0.3",
                               "--seconds", str(options.seconds), *words], capture_output=True, text=True, check=True).stdout
        return json.loads(said.splitlines()[-1])["iops"]

    return run


def while_(work):
    """Runs `work(stopped)` beside what is measured."""
    stopped = threading.Event()
    thread = threading.Thread(target=work, args=(stopped,))
    thread.start()

    def end():
        stopped.set()
        thread.join()

    return end


def rate(options):
    run = load(options)

    def scrapes(server):
        def work(stopped):
            while not stopped.wait(1):
                server.get("/metrics").read()
        return while_(work)

    def traces(server):
        answer = server.get(f"/v1/trace?seconds={options.seconds + 0.8}")
        return while_(lambda _: answer.read())

    rows = {"a scrape each second": scrapes, "a trace": traces, "nothing": lambda _: lambda: None}
    print("| beside | reads a second without | with | ratio |\n|---|---|---|---|", flush=True)
    for name, beside in rows.items():
        without, with_ = [], []
        for n in range(options.pairs):
            for kind in (0, 1) if n % 2 else (1, 0):
                with tempfile.TemporaryDirectory() as place, Server(place, "a=mem:256m", "--workers", "1") as server:
                    end = beside(server) if kind else lambda: None
                    (with_ if kind else without).append(run(server))
                    end()
        print(f"| {name} | {statistics.median(without):,.0f} | {statistics.median(with_):,.0f} | "
              f"{median([one / other for one, other in zip(with_, without)])} |", flush=True)
    if options.old:
        old, new = [], []
        for n in range(options.pairs):
            for kind in (0, 1) if n % 2 else (1, 0):
                with tempfile.TemporaryDirectory() as place, Server(place, "a=mem:256m", "--workers", "1", binary=(options.old, FAIRLIFT)[kind], control=False) as server:
                    (new if kind else old).append(run(server))
        print(f"| this server, beside the other | {statistics.median(old):,.0f} | {statistics.median(new):,.0f} | "
              f"{median([one / other for one, other in zip(new, old)])} |", flush=True)


def tenants(options):
    count = options.tenants
    names = [f'a"{n}\\ 😀' for n in range(count)]
    quoted = lambda text: json.dumps(text, ensure_ascii=False)
    with tempfile.TemporaryDirectory() as place:
        config = '[disk.d]\nscheduler = "fair"\n[export.a]\nbacking = "mem:64m"\ndisk = "d"\n' + "".join(
            f'[export.{quoted(name)}]\nbacking = "null:1m"\ndisk = "d"\ngroup = {quoted("/" + name)}\n' for name in names)
        Path(f"{place}/f.toml").write_text(config)
        with Server(place, "--config", f"{place}/f.toml", "--workers", "1") as server:
            for name in names:  # each has read and written once
                with nbdclient.Client(server.socket, name) as client:
                    client.read(0, 4096)
                    client.write(0, bytes(4096))
                    client.disconnect()
            Path(f"{place}/metrics").write_bytes(server.get("/metrics", "text/plain").read())
            text = Path(f"{place}/metrics").read_bytes()
            curl = ["curl", "-s", "-o", "/dev/null", "--unix-socket", f"{place}/c", "-w", "%{time_starttransfer} %{time_total}", "http://x/metrics"]
            times = [[float(one) for one in subprocess.run(curl, capture_output=True, text=True, check=True).stdout.split()] for _ in range(9)]
            said = subprocess.run(["promtool", "check", "metrics"], stdin=open(f"{place}/metrics"), capture_output=True, text=True)
            print(f"{count} tenants: {len(text) / 1e6:.1f} MB, {text.count(10)} lines; promtool: exit code {said.returncode}, says {said.stderr[:300]!r}")
            print(f"a scrape: {statistics.median(whole for _, whole in times) * 1e3:.0f} ms, of which its first byte took {statistics.median(first for first, _ in times) * 1e3:.0f}")
            latencies = {}
            for name in ("alone", "beside scrapes"):
                end = while_(lambda stopped: [server.get("/metrics").read() for _ in iter(lambda: stopped.wait(0.2), True)]) if name != "alone" else lambda: None
                with nbdclient.Client(server.socket, "a") as client:
                    taken = []
                    until = time.monotonic() + options.seconds * 2
                    while time.monotonic() < until:
                        begun = time.monotonic()
                        client.read(0, 4096)
                        taken.append(time.monotonic() - begun)
                    client.disconnect()
                end()
                taken.sort()
                latencies[name] = taken
                print(f"a client {name}: p50 {taken[len(taken) // 2] * 1e6:.0f} us, p99 {taken[len(taken) * 99 // 100] * 1e6:.0f}, "
                      f"p99.9 {taken[len(taken) * 999 // 1000] * 1e6:.0f}, longest {taken[-1] * 1e3:.1f} ms", flush=True)
            slow = []
            for _ in range(12):
                answer = server.get("/metrics")
                slow.append(answer)
            begun = time.monotonic()
            for _ in range(3):
                for answer in slow:
                    try:
                        answer.read(1)
                    except Exception:  # noqa: BLE001: cut off, for another scrape has come
                        pass
                time.sleep(1)
            begun = time.monotonic()
            server.get("/metrics").read()
            rss = int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]) * 4096 / 1e6
            print(f"beside 12 that read a byte a second: a scrape {1e3 * (time.monotonic() - begun):.0f} ms, the server has {rss:.0f} MB")


def history(options):
    count = options.tenants
    exports = "".join(f'[export.t{n}]\nbacking = "null:1m"\ndisk = "d"\ngroup = "/t{n}"\n' for n in range(count))
    print("| tenants | server | memory, MB | CPU time in 30 s, ms | answer, KB | it takes, ms |\n|---|---|---|---|---|---|")
    for name, binary in (("without", options.old), ("with", FAIRLIFT)):
        if not binary:
            continue
        with tempfile.TemporaryDirectory() as place:
            Path(f"{place}/f.toml").write_text('[disk.d]\nscheduler = "fair"\n' + exports)
            with Server(place, "--config", f"{place}/f.toml", "--workers", "1", binary=binary) as server:
                for n in range(count):  # each has read and written once
                    with nbdclient.Client(server.socket, f"t{n}") as client:
                        client.read(0, 4096)
                        client.write(0, bytes(4096))
                        client.disconnect()
                process = Path(f"/proc/{server.process.pid}")
                cpu = lambda: sum(int((task / "schedstat").read_text().split()[0]) for task in (process / "task").iterdir()) / 1e6
                time.sleep(12)
                before = cpu()
                time.sleep(30)
                used, memory = cpu() - before, int((process / "statm").read_text().split()[1]) * 4096 / 1e6
                begun = time.monotonic()
                length = len(server.get("/v1/history").read())
                print(f"| {count} | {name} | {memory:.1f} | {used:.1f} | {length / 1e3:.1f} | {1e3 * (time.monotonic() - begun):.1f} |", flush=True)


def latencies(options, backing, depth, *words):
    """What fio measures, what the server tells (p50 and p99 in us), and operations a second."""
    with tempfile.TemporaryDirectory() as place, Server(place, f"a={backing}", "--workers", "1") as server:
        out = f"{place}/fio"
        fio = subprocess.Popen(["fio", "--name=a", "--ioengine=nbd", f"--uri=nbd+unix:///a?socket={server.socket}", "--rw=randread", "--bs=4k", f"--iodepth={depth}",
                                "--time_based", f"--runtime={options.seconds * 2}", "--output-format=json", f"--output={out}", *words])
        time.sleep(0.7)
        said = json.loads(server.get(f"/v1/status?seconds={options.seconds * 2 - 1.2}").read())["tenants"][0]
        fio.wait()
        read = json.loads(Path(out).read_text())["jobs"][0]["read"]
        found = read["clat_ns"]["percentile"]
        return [found["50.000000"] / 1e3, found["99.000000"] / 1e3], [said["p50_us"], said["p99_us"]], read["iops"]


def latency(options):
    """The wire is what fio measures more than the server on RAM, at the rate and depth of the device."""
    pair = lambda two: ", ".join(f"{one:.0f}" for one in two)
    print("| device | of | fio p50, p99 us | server p50, p99 us | the wire | server and wire, of fio's |\n|---|---|---|---|---|---|")
    for backing, depth in (("null:1g,delay=1ms", 8), ("null:1g,delay=5ms", 32), ("sim:ssd-sata-plp,size=1g", 16), ("sim:sata-7200,size=1g", 4)):
        theirs, mine, iops = latencies(options, backing, depth)
        far, near, _ = latencies(options, "mem:1g", depth, f"--rate_iops={iops:.0f}", "--rate_process=poisson")
        wire = [one - other for one, other in zip(far, near)]
        print(f"| {backing} | {depth} | {pair(theirs)} | {pair(mine)} | {pair(wire)} | "
              f"{', '.join(f'{(one + more) / other:.3f}' for one, more, other in zip(mine, wire, theirs))} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["rate", "tenants", "latency", "history"])
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--tenants", type=int, default=10_000)
    parser.add_argument("--old")
    options = parser.parse_args()
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    print(f"commit {commit}, {os.cpu_count()} CPUs")
    {"rate": rate, "tenants": tenants, "latency": latency, "history": history}[options.what](options)


if __name__ == "__main__":
    main()
