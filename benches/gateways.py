#!/usr/bin/env python3
"""Gateways before one pool: by how much tenants are off what they are due, in each of some situations. Figures of docs/measured/cluster.md.

    FAIRLIFT=target/release/fairlift benches/gateways.py            before a Ceph cluster of one node, depth 16: 3 minutes a run
    FAIRLIFT=target/release/fairlift benches/gateways.py --dir      before a server with a modelled disk, reports in a directory
    FAIRLIFT=target/release/fairlift benches/gateways.py --cost     what the exchange costs on Ceph: a minute

Tenants a, b, c and d read 4 KiB at random, 32 at a time.
"""

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests/e2e"))

import ceph  # noqa: E402
import gateways  # noqa: E402
import gateways_ceph  # noqa: E402
import measured  # noqa: E402
from control import Control, fio_stops  # noqa: E402
from gateways import load, rates  # noqa: E402
from groups import reads  # noqa: E402
from harness import *  # noqa: E402,F403

EQUAL = dict.fromkeys("abcd", 1 / 4)


class Ceph:
    """A cluster of one node: images of its pool, reports in an object of it."""
    table, depth = "ceph", 16

    def __init__(self, t):
        self.t, self.cluster = t, ceph.Cluster(t)
        Path(t.path("data")).write_bytes(data(64 * MIB))
        for name in "abcd":
            self.cluster.rbd("import", "--image-feature", "layering", t.path("data"), name)

    def gateway(self, name, exports, shares=True):
        return gateways_ceph.gateway(self.t, self.cluster, name, exports, None if shares else "", depth=self.depth)

    def signal(self, which):
        os.kill(self.cluster.osd(), which)


class Directory:
    """A server whose disk does one read after another, 2,000 a second; reports are files."""
    table, depth = "directory", 32

    def __init__(self, t):
        self.t, self.cluster = t, gateways.pool(t)

    def gateway(self, name, exports, shares=True):
        return gateways.gateway(self.t, self.cluster, name, exports, shares, depth=self.depth)

    def signal(self, which):
        self.cluster.process.send_signal(which)


def second(t, *servers):
    """The report of each gateway on itself: how much it may have outstanding, and its service and due, as parts of the pool."""
    pools = [pool for server in servers for pool in Control(t, server).ask("GET", "/v1/gateways")]
    rows = [row for pool in pools for row in pool["gateways"] if row["own"]]
    return "  ".join(f"{row['name']} depth {row['depth']:.1f} had {row['had']:.3f} due {row['due']:.3f}" for row in rows)


class Looks:
    """The looks of a run: by situation, each tenant's part and due, and the reads a second."""

    def __init__(self, t):
        self.t, self.found = t, {}

    def __call__(self, what, seconds, due, *servers, beside=None):
        """`beside`: tenants whose due is a rate and not a part of what the others have."""
        each = []
        for _ in range(seconds):
            each.append(rates(1, *servers))
            print("   ", {name: round(rate) for name, rate in sorted(each[-1].items())}, second(self.t, *servers), flush=True)
        had = {name: sum(one.get(name, 0) for one in each) / seconds for name in each[-1]}
        whole, beside = sum(had.values()), beside or {}
        rest = whole - sum(had[name] for name in beside)
        due = {name: part * rest for name, part in due.items()} | beside
        if not whole:
            raise AssertionError(f"{what}: nothing was served")
        off = max(100 * abs(had.get(name, 0) / rate - 1) for name, rate in due.items())
        self.found[what] = (off, {name: 100 * rate / whole for name, rate in had.items()}, whole)
        print(f"{what}: {({name: round(rate) for name, rate in had.items()})}, off by {off:.1f} % at most, {whole:.0f}/s", flush=True)


def shares(t, place):
    look = Looks(t)
    loaded = lambda count, *servers: until(lambda: sum(map(len, map(reads, servers))) >= count, "all read")

    def two(one_has="a", two_has="bcd", shares=True):
        both = [place.gateway("gw1", one_has, shares), place.gateway("gw2", two_has, shares)]
        loads = load(t, both[0], *one_has) + load(t, both[1], *two_has)
        loaded(len(one_has + two_has), *both)
        return *both, loads

    one, other, loads = two(shares=False)
    time.sleep(3)
    look("8 s, a at gw1, b, c and d at gw2, no exchange", 8, EQUAL, one, other)
    fio_stops(*loads)
    one.stop(), other.stop()

    one, other, loads = two()
    time.sleep(10)
    look("10 s, the same with the exchange", 10, EQUAL, one, other)
    Control(t, one).cli("set", "group", "/a", "weight=300")
    time.sleep(10)
    look("10 s, a has a weight of 300", 10, {"a": 1 / 2, "b": 1 / 6, "c": 1 / 6, "d": 1 / 6}, one, other)
    Control(t, one).cli("set", "group", "/a", "weight=100")
    time.sleep(10)

    # No client has an error.
    place.signal(signal.SIGSTOP)
    time.sleep(10)
    place.signal(signal.SIGCONT)
    time.sleep(1)
    look("5 s, from 1 s after the cluster had stood still for 10 s", 5, EQUAL, one, other)
    look("5 s, from 6 s after it", 5, EQUAL, one, other)

    # Its clients come again.
    other.kill()
    look("5 s after gw2 was killed, gw1 alone", 5, {"a": 1}, one)
    for process in loads[1:]:
        process.wait(60)
    other = place.gateway("gw2", "bcd")
    loads[1:] = load(t, other, "b", "c", "d")
    loaded(3, other)
    time.sleep(5)
    look("5 s, from 5 s after gw2 was back", 5, EQUAL, one, other)
    fio_stops(*loads)
    one.stop(), other.stop()

    one, other, loads = two("ab", "acd")
    time.sleep(20)
    look("10 s, a at both", 10, EQUAL, one, other)
    whole = look.found["10 s, a at both"][2]
    most, least = round(whole / 20, -1), round(0.4 * whole, -1)
    Control(t, one).cli("set", "group", "/a", f"max=iops={most:.0f}")
    Control(t, other).cli("set", "group", "/d", f"min=iops={least:.0f}")
    time.sleep(10)
    look("10 s, a at both with a ceiling, d with a floor", 10, {"b": 1 / 2, "c": 1 / 2}, one, other, beside={"a": most, "d": least})
    fio_stops(*loads)
    one.stop(), other.stop()

    three = [place.gateway(f"gw{n}", exports) for n, exports in enumerate(["a", "b", "cd"])]
    loads = [process for server, exports in zip(three, ["a", "b", "cd"]) for process in load(t, server, *exports)]
    loaded(4, *three)
    time.sleep(10)
    look("10 s, three gateways: a, b, and c with d", 10, EQUAL, *three)
    fio_stops(*loads)
    return look.found


def rows(runs):
    """A row for each situation: the least and the most part of a and of the others, by how much the worst was off in each run, reads a second."""
    for what in runs[0]:
        each = [run[what] for run in runs]
        parts = lambda names: [round(part, 1) for _, had, _ in each for name, part in had.items() if name in names] or ["–"]
        a, others = parts("a"), parts("bcd")
        off = ", ".join(f"{off:.1f}" if off <= 5 or "no exchange" in what else f"**{off:.1f}**" for off, _, _ in each)
        if others == ["–"]:
            off = "–"  # it has all
        rates = [whole for _, _, whole in each]
        yield [what, min(a), max(a), min(others), max(others), off, *(int(round(rate, -2)) for rate in (min(rates), max(rates)))]


def cpu(server):
    """Seconds of a processor that a server has used."""
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cost(t, cluster):
    operations = lambda: json.loads(t.run("ceph", "daemon", f"{cluster.dir}/run/osd.0.asok", "perf", "dump", env=cluster.env))["osd"]["op"]
    hundred = "".join(f'[group."/g{n}"]\nmax = "iops=1000"\n[export.g{n}]\nbacking = "mem:1m"\ndisk = "pool"\ngroup = "/g{n}"\n' for n in range(100))
    memory = lambda export: "mem:1m"
    for name, where in [("without", ""), ("with", None)]:
        both = [gateways_ceph.gateway(t, cluster, gw, ["x"], where, memory, hundred) for gw in ("gw1", "gw2")]
        time.sleep(5)
        before, since, done = [cpu(here) for here in both], time.monotonic(), operations()
        time.sleep(20)
        took = time.monotonic() - since
        used = [100 * (cpu(here) - then) / took for here, then in zip(both, before)]
        print(f"{name} an exchange: {[round(part, 2) for part in used]} % of a processor, {(operations() - done) / took:.1f} operations a second")
        for here in both:
            here.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--dir", action="store_true")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--record", action="store_true", help="put the table into docs/measured/cluster.md")
    a = parser.parse_args()
    place, runs = Directory if a.dir else Ceph, []
    for _ in range(a.runs):
        with tempfile.TemporaryDirectory(prefix="fl-") as directory:
            t = Context(directory)  # noqa: F405
            try:
                if a.cost:
                    return cost(t, ceph.Cluster(t))
                runs.append(shares(t, place(t)))
            finally:
                t.finish(True)
    for row in rows(runs):
        print("|", " | ".join(map(str, row)), "|")
    if a.record:
        measured.record("cluster", place.table, list(rows(runs)), f"benches/gateways.py{' --dir' * a.dir} --runs {a.runs}")


main()
