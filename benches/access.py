#!/usr/bin/env python3
"""Whether a client can tell by the time that an export exists which it may not open, and what rules cost each connection.

    benches/access.py [--tries 10000] [--exports 1000]
    benches/access.py --rules 0 10 1000 [--seconds 5]

A client that may open a tenth of the exports asks (NBD_OPT_GO), in a random order, for some that are others' and for names that no
export has. Told are the medians, and how often one of the first took longer than one of the second: where they cannot be told apart,
that is half, and the distance from it less than about two of its standard deviations.

--rules: how many connections a second a client opens (NBD_OPT_GO) and closes, one after the other, with so many `[client.NAME]`, of which the last
lets it in. The numbers take turns, three times; told are medians and extremes.
"""

import argparse
import bisect
import contextlib
import os
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/e2e"))

from nbdclient import GO, Client, Session

BINARY = os.environ.get("FAIRLIFT") or str(ROOT / "target/release/fairlift")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--tries", type=int, default=10_000)
    arguments.add_argument("--exports", type=int, default=1000)
    arguments.add_argument("--rules", type=int, nargs="+")
    arguments.add_argument("--seconds", type=float, default=5)
    given = arguments.parse_args()
    if given.rules:
        return tell_connects(given)
    with tempfile.TemporaryDirectory(prefix="fl-") as place:
        there = [n for n in range(given.exports) if n not in absent(given)]
        config = "".join(f'[export.disk{n:05}]\nbacking = "mem:64k"\ngroup = "/t{n % 10}"\n' for n in there)
        Path(f"{place}/config.toml").write_text(f'{config}[client.me]\nuid = {os.geteuid()}\ngroup = "/t1"\n')
        with served(place):
            tell(measured(f"{place}/s", given))


@contextlib.contextmanager
def served(place):
    """A server of the config file that lies there."""
    words = [BINARY, "serve", "--config", f"{place}/config.toml", "--listen", f"unix:{place}/s"]
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


if __name__ == "__main__":
    main()
