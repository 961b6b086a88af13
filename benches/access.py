#!/usr/bin/env python3
"""Whether a client can tell by the time that an export exists which it may not open, and what rules cost each connection.

    benches/access.py [--tries 10000] [--exports 1000]
    benches/access.py --rules 0 10 1000 [--seconds 5]
    benches/access.py --strangers 1000 [--seconds 3] [--times 5] [--disk DIR]

A client that may open a tenth of the exports asks (NBD_OPT_GO), in a random order, for some that are others' and for names that no
export has. Told are the medians, and how often one of the first took longer than one of the second: where they cannot be told apart,
that is half, and the distance from it less than about two of its standard deviations.

--rules: how many connections a second a client opens (NBD_OPT_GO) and closes, one after the other, with so many `[client.NAME]`, of which the last
lets it in. The numbers take turns, three times; told are medians and extremes.

--strangers: a tenant reads 4 KiB at a time by a unix socket while so many clients a second fail to authenticate by TCP, by turns with a
certificate of another authority and in plain text for an export of another. Told is the median p99 of its reads without them, while as many
knock elsewhere (at a door of the strangers' own processor, which accepts and closes: what the machine pays for them whoever serves), and with
them, by the limits of the defaults and with none. Server and tenant have one processor, the strangers the other, of which they take what nobody
else wants: strangers come from other machines. The tenant reads RAM, or with
--disk, at random, a file that is made in that directory: direct, so that the disk below answers.
"""

import argparse
import bisect
import contextlib
import multiprocessing
import os
import random
import socket
import ssl
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/e2e"))

from encryption import certificates
from harness import free_port
from nbdclient import GO, Client, Closed, Session

BINARY = os.environ.get("FAIRLIFT") or str(ROOT / "target/release/fairlift")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--tries", type=int, default=10_000)
    arguments.add_argument("--exports", type=int, default=1000)
    arguments.add_argument("--rules", type=int, nargs="+")
    arguments.add_argument("--seconds", type=float, default=5)
    arguments.add_argument("--strangers", type=int, default=0)
    arguments.add_argument("--times", type=int, default=5)
    arguments.add_argument("--disk", metavar="DIR")
    given = arguments.parse_args()
    if given.strangers:
        return beside_strangers(given)
    if given.rules:
        return tell_connects(given)
    with tempfile.TemporaryDirectory(prefix="fl-") as place:
        there = [n for n in range(given.exports) if n not in absent(given)]
        config = "".join(f'[export.disk{n:05}]\nbacking = "mem:64k"\ngroup = "/t{n % 10}"\n' for n in there)
        Path(f"{place}/config.toml").write_text(f'[server]\nhandshake_failures = 0\n{config}[client.me]\nuid = {os.geteuid()}\ngroup = "/t1"\n')
        with served(place):
            tell(measured(f"{place}/s", given))


@contextlib.contextmanager
def served(place, *more, first=()):
    """A server of the config file that lies there."""
    words = [*first, BINARY, "serve", "--config", f"{place}/config.toml", "--listen", f"unix:{place}/s", *more]
    with open(f"{place}/log", "wb") as log:
        server = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        while b"serving" not in Path(f"{place}/log").read_bytes():
            time.sleep(0.1)
            assert server.poll() is None, Path(f"{place}/log").read_text()
        yield
    finally:
        server.terminate()
        server.wait()


def tell_connects(given):
    seen = {rules: [] for rules in given.rules}
    for _ in range(3):
        for rules in given.rules:
            with tempfile.TemporaryDirectory(prefix="fl-") as place:
                others = "".join(f'[client.c{n:05}]\nuid = {10_000 + n}\nexports = "disk"\n' for n in range(rules - 1))
                mine = f'[client.me]\nuid = {os.geteuid()}\nexports = "disk"\n' if rules else ""
                Path(f"{place}/config.toml").write_text(f'[export.disk]\nbacking = "mem:64k"\n{others}{mine}')
                with served(place):
                    seen[rules].append(connects(f"{place}/s", given.seconds))
    for rules, all_ in seen.items():
        print(f"{rules} rules: {statistics.median(all_):.0f} connections a second ({min(all_):.0f} to {max(all_):.0f})")


def connects(address, seconds):
    count, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        Client(address, "disk").close()
        count += 1
    return count / (time.perf_counter() - begun)


def absent(given):
    """Numbers of exports that are not there: their names are like those of exports that are."""
    return range(4, given.exports, 20)


def measured(address, given):
    """Microseconds of each try, of exports of others and of names that no export has."""
    chance = random.Random()
    names = {"not allowed": [b"disk%05d" % (n + 10) for n in absent(given)], "does not exist": [b"disk%05d" % n for n in absent(given)]}
    took = {kind: [] for kind in names}
    session = None
    for number in range(2 * given.tries):
        if number % 200 == 0:  # a client has 256 options
            session = Session(address).greet()
        kind = chance.choice(list(names))
        name = chance.choice(names[kind])
        begun = time.perf_counter_ns()
        session.send_option(GO, struct.pack(">I", len(name)) + name + b"\0\0")
        session.option_reply(GO)
        took[kind].append((time.perf_counter_ns() - begun) / 1000)
    return {kind: sorted(all_) for kind, all_ in took.items()}


def tell(took):
    for kind, all_ in took.items():
        print(f"{kind}: {len(all_)} tries, median {statistics.median(all_):.2f} µs")
    one, other = took.values()
    longer = sum(bisect.bisect_left(other, each) + bisect.bisect_right(other, each) for each in one) / 2 / len(one) / len(other)
    deviation = ((len(one) + len(other) + 1) / 12 / len(one) / len(other)) ** 0.5
    print(f"the first took longer in {longer:.2%} of pairs, {(longer - 0.5) / deviation:+.1f} standard deviations from a half")


# ---- strangers


class Place:
    """As the helpers of the tests want it."""

    def __init__(self, path):
        self.path = lambda name: f"{path}/{name}"

    def run(self, *words):
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout


# Strangers that come at once: each waits until it is closed.
CROWD = 128

# Bytes of the tenant's disk.
SIZE = 64 << 20

# Seconds of strangers before a round counts: the first hundred are heard at once, then ten a second.
LEAD = 1


def beside_strangers(given):
    for says, limit in ("the limits of the defaults", ""), ("no limit", "handshake_failures = 0\n"):
        with tempfile.TemporaryDirectory(prefix="fl-", dir=given.disk) as path:
            port = configure(path, limit, on_disk(path) if given.disk else "mem:64m")
            with served(path, "--listen", f"tcp:127.0.0.1:{port}", first=("taskset", "-c", "0")):
                took, came = rounds(path, port, given)
        middle = {where: statistics.median(all_) for where, all_ in took.items()}
        for where, all_ in took.items():
            print(f"{says}, strangers {where}: p99 {middle[where]:.0f} µs ({min(all_):.0f} to {max(all_):.0f})")
        ratios = [f"{middle['here'] / middle[where]:.2f} of {where}" for where in ("nowhere", "elsewhere")]
        a_second = [count / given.times / given.seconds for count in came]
        print(f"{says}: {', '.join(ratios)}; {a_second[0]:.0f} came a second, {a_second[1]:.1f} were heard")


def rounds(path, port, given):
    """By turns without strangers, with as many elsewhere, and with them: the p99 of each round, and how many came here and were heard in all."""
    took, came = {"nowhere": [], "elsewhere": [], "here": []}, [0, 0]
    with elsewhere() as other:
        for _ in range(given.times):
            for where, (door, rate) in {"nowhere": (port, 0), "elsewhere": (other, given.strangers), "here": (port, given.strangers)}.items():
                p99, counts = one_round(path, door, given, rate)
                took[where].append(p99)
                if where == "here":
                    came = [sum(all_) for all_ in zip(came, counts)]
    return took, came


@contextlib.contextmanager
def elsewhere():
    """The port of a door on the strangers' own processor, where each is accepted and closed."""
    door = socket.create_server(("127.0.0.1", 0), backlog=1024)

    def turn_away():
        os.sched_setaffinity(0, {1})
        while True:
            door.accept()[0].close()

    porter = multiprocessing.Process(target=turn_away, daemon=True)
    porter.start()
    yield door.getsockname()[1]
    porter.terminate()


def on_disk(path):
    """A file of written data, which is not in the page cache of those who read it directly."""
    with open(f"{path}/disk", "wb") as file:
        for _ in range(SIZE >> 20):
            file.write(os.urandom(1 << 20))
        os.fsync(file.fileno())
    return f"file:{path}/disk,direct=on"


def configure(path, limit, backing):
    """A server for a tenant and for strangers; the port of these."""
    place, port = certificates(Place(path)), free_port()
    Path(f"{path}/config.toml").write_text(f"""[server]
tls = "on"
tls_certificates = "{place}"
tls_verify_peer = true
workers = 1
{limit}[export.tenant]
backing = "{backing}"
[client.tenant]
listener = "unix:{path}/s"
exports = "tenant"
""")
    return port


def one_round(path, port, given, rate):
    """The p99 of a tenant's reads in microseconds, once strangers have had what one address may owe; how many came, and how many were heard."""
    begin = time.monotonic() + LEAD
    end = begin + given.seconds
    counts = multiprocessing.Queue()
    crowd = [multiprocessing.Process(target=strangers, args=(path, port, rate / CROWD, begin, end, counts)) for _ in range(CROWD if rate else 0)]
    for each in crowd:
        each.start()
    os.sched_setaffinity(0, {0})
    took = []
    with Client(f"{path}/s", "tenant") as tenant:
        while time.monotonic() < end:
            begun = time.perf_counter_ns()
            tenant.read(4096 * random.randrange(SIZE // 4096), 4096)
            if time.monotonic() >= begin:
                took.append(time.perf_counter_ns() - begun)
    came = [counts.get() for _ in crowd]
    for each in crowd:
        each.join()
    return sorted(took)[len(took) * 99 // 100] / 1000, [sum(all_) for all_ in zip(*came)] or [0, 0]


def strangers(path, port, rate, begin, end, counts):
    """Clients that fail, one after the other, so many a second. They stand for other machines: they run when nobody else wants their processor."""
    os.sched_setaffinity(0, {1})
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    context = ssl.create_default_context(cafile=f"{path}/pki/ca-cert.pem")
    context.load_cert_chain(f"{path}/pki/stranger-cert.pem", f"{path}/pki/stranger-key.pem")
    begun, tries, came, heard = time.monotonic(), 0, 0, 0
    while (now := time.monotonic()) < end:
        if (due := begun + tries / rate) > now:
            time.sleep(due - now)
            continue
        tries += 1
        came += now >= begin
        with contextlib.suppress(Closed, ConnectionError, ssl.SSLError, socket.timeout), Session(("127.0.0.1", port), 5) as session:
            session.greet()
            heard += now >= begin
            if tries % 2:
                session.start_tls(context)
                session.receive(1)  # the alert
            else:
                session.send_option(GO, struct.pack(">I", 6) + b"tenant\0\0")
                session.option_reply(GO)
    counts.put((came, heard))


if __name__ == "__main__":
    main()
