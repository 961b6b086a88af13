#!/usr/bin/env python3
"""Gateways before a Ceph cluster of one node: the figures of docs/measured/cluster.md, the part "Measured on Ceph".

    FAIRLIFT=target/release/fairlift benches/gateways_ceph.py             shares: about a minute and a half
    FAIRLIFT=target/release/fairlift benches/gateways_ceph.py --cost      what the exchange costs: a minute

Tenants a, b, c and d have an image of the pool each, equal weights, and read 4 KiB at random, 32 at a time.
"""

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests/e2e"))

from ceph import Cluster  # noqa: E402
from control import Control, fio_stops  # noqa: E402
from gateways import load, parts, rates  # noqa: E402
from gateways_ceph import gateway  # noqa: E402
from groups import reads  # noqa: E402
from harness import *  # noqa: E402,F403


def cpu(server):
    """Seconds of a processor that a server has used."""
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def operations(t, cluster):
    """How many operations of clients the OSD has done."""
    return json.loads(t.run("ceph", "daemon", f"{cluster.dir}/run/osd.0.asok", "perf", "dump", env=cluster.env))["osd"]["op"]


def images(t, cluster, *names):
    Path(t.path("data")).write_bytes(data(64 * MIB))
    for name in names:
        cluster.rbd("import", "--image-feature", "layering", t.path("data"), name)


def second(t, *servers):
    """The report of each gateway on itself: how much it may have outstanding, and its service and due, as parts of the pool."""
    pools = [pool for server in servers for pool in Control(t, server).ask("GET", "/v1/gateways")]
    rows = [row for pool in pools for row in pool["gateways"] if row["own"]]
    return "  ".join(f"{row['name']} depth {row['depth']:.1f} had {row['had']:.3f} due {row['due']:.3f}" for row in rows)


def look(t, what, seconds, *servers):
    each = []
    for _ in range(seconds):
        each.append(rates(1, *servers))
        print("   ", {name: round(rate) for name, rate in sorted(each[-1].items())}, second(t, *servers), flush=True)
    found = parts({name: sum(one.get(name, 0) for one in each) for name in each[-1]})
    whole = sum(sum(one.values()) for one in each) / len(each)
    print(f"{what}: {({name: round(100 * part, 1) for name, part in sorted(found.items())})} % of {whole:.0f}/s", flush=True)
    return found


def shares(t, a):
    cluster = Cluster(t)
    images(t, cluster, "a", "b", "c", "d")
    loaded = lambda *servers: until(lambda: sum(map(len, map(reads, servers))) >= 4, "all read")

    one, two = gateway(t, cluster, "gw1", "a", "", depth=a.depth), gateway(t, cluster, "gw2", "bcd", "", depth=a.depth)
    loads = load(t, one, "a") + load(t, two, "b", "c", "d")
    loaded(one, two)
    time.sleep(3)
    look(t, "without an exchange", 8, one, two)
    fio_stops(*loads)
    one.stop(), two.stop()

    one, two = gateway(t, cluster, "gw1", "a", depth=a.depth), gateway(t, cluster, "gw2", "bcd", depth=a.depth)
    loads = load(t, one, "a") + load(t, two, "b", "c", "d")
    loaded(one, two)
    time.sleep(10)
    before, since = operations(t, cluster), time.monotonic()
    look(t, "two gateways", 10, one, two)
    print(f"the OSD did {(operations(t, cluster) - before) / (time.monotonic() - since):.0f} operations a second")
    for text in (Control(t, one).cli("gateways"), Control(t, one).cli("status")):
        print(text)

    # The cluster stops for 10 s, and goes on: no client has an error, and shares are back.
    os.kill(cluster.osd(), signal.SIGSTOP)
    time.sleep(10)
    os.kill(cluster.osd(), signal.SIGCONT)
    look(t, "the first 8 s after the cluster went on", 8, one, two)
    look(t, "5 s from 8 s after the cluster went on", 5, one, two)

    # gw2 is killed and comes back: its clients come again.
    two.kill()
    look(t, "gw2 killed: gw1 in the next 5 s", 5, one)
    for process in loads[1:]:
        process.wait(60)
    two = gateway(t, cluster, "gw2", "bcd", depth=a.depth)
    again_ = load(t, two, "b", "c", "d")
    until(lambda: len(reads(two)) >= 3, "all read")
    time.sleep(5)
    look(t, "5 s from 5 s after it came back", 5, one, two)
    fio_stops(loads[0], *again_)
    one.stop(), two.stop()

    three = [gateway(t, cluster, f"gw{n}", exports, depth=a.depth) for n, exports in enumerate(["a", "b", "cd"])]
    loads = [process for server, exports in zip(three, ["a", "b", "cd"]) for process in load(t, server, *exports)]
    loaded(*three)
    time.sleep(10)
    look(t, "three gateways: a, b, c and d", 10, *three)
    fio_stops(*loads)


def cost(t, a):
    cluster = Cluster(t)
    hundred = "".join(f'[group."/g{n}"]\nmax = "iops=1000"\n[export.g{n}]\nbacking = "mem:1m"\ndisk = "pool"\ngroup = "/g{n}"\n' for n in range(100))
    memory = lambda export: "mem:1m"
    for name, where in [("without", ""), ("with", None)]:
        both = [gateway(t, cluster, gw, ["x"], where, memory, hundred) for gw in ("gw1", "gw2")]
        time.sleep(5)
        before, since, done = [cpu(here) for here in both], time.monotonic(), operations(t, cluster)
        time.sleep(20)
        took = time.monotonic() - since
        used = [100 * (cpu(here) - then) / took for here, then in zip(both, before)]
        print(f"{name} an exchange: {[round(part, 2) for part in used]} % of a processor, {(operations(t, cluster) - done) / took:.1f} operations a second")
        for here in both:
            here.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--depth", type=int, default=32, help="of the pool")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fl-") as directory:
        t = Context(directory)  # noqa: F405
        try:
            (cost if a.cost else shares)(t, a)
        finally:
            t.finish(True)


main()
