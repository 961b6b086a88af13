"""Gateways: two servers before one pool share it as one would. The pool is a third server with a modelled disk, which each gateway reaches by NBD."""

from control import Control, fio, fio_stops
from groups import reads
from harness import *

# One request after another, 0.5 ms each: 2,000 a second, whoever asks.
POOL = "sim:rbd-3x,link=500us,kib=0s,size=64m"
TENANTS = ("a", "b", "c", "d")
# The first looks come before shares have settled, which takes some six exchanges.
LOOKS = 10


def pool(t):
    """The server that stands for the cluster: it serves in order of arrival."""
    exports = "".join(f'[export.{name}]\nbacking = "{POOL}"\ndisk = "pool"\n' for name in TENANTS)
    return t.server(config=f'[disk.pool]\nscheduler = "none"\ndepth = 1024\nnr_requests = 4096\n{exports}')


def gateway(t, cluster, name, exports, shares=True, groups="", above="", wait=True, depth=32):
    """A gateway that serves these tenants."""
    Path(t.path("shares")).mkdir(exist_ok=True)
    config = f'[server]\ngateway = "{name}"\n[disk.pool]\nscheduler = "fair"\ndepth = {depth}\n'
    config += f'shares = "dir:{t.path("shares")}"\n' if shares else ""
    for export in exports:
        config += f'[export.{export}]\nbacking = "nbd:{cluster.uri(export)}"\ndisk = "pool"\ngroup = "{above}/{export}"\n'
    return t.server(config=config + groups, wait=wait)


def load(t, server, *exports, depth=32):
    return [fio(t, server, export, 600, "--rw=randread", "--verify=0", "--norandommap", "--size=64m", f"--iodepth={depth}")
            for export in exports]


def rates(seconds, *servers):
    """What each tenant reads a second, over all gateways."""
    def count():
        all_ = {}
        for server in servers:
            for path, number in reads(server).items():
                all_[path[1:]] = all_.get(path[1:], 0) + number
        return all_, time.monotonic()

    before, since = count()
    time.sleep(seconds)
    after, until_ = count()
    return {name: (number - before.get(name, 0)) / (until_ - since) for name, number in after.items()}


def parts(found):
    whole = sum(found.values())
    return {name: rate / whole for name, rate in found.items()}


def has(found, off=0.1, **due):
    """Each tenant has its part, within so much of it: on a machine with few processors the pool is not always busy, and five seconds are few.
    (`benches/gateways.py` measures.)"""
    print({name: round(part, 4) for name, part in found.items()}, flush=True)
    for name, part in due.items():
        if abs(found[name] / part - 1) > off:
            raise AssertionError(f"{name} has {found[name]:.3f} and is due {part:.3f}: {found}")


@test(fairlift_only=True)
def a_tenant_alone_at_its_gateway_has_half_of_the_pool_without_shares_and_a_quarter_with_them(t):
    cluster = pool(t)
    for shares, due in [(False, {"a": 1 / 2, "b": 1 / 6, "c": 1 / 6, "d": 1 / 6}), (True, dict.fromkeys(TENANTS, 1 / 4))]:
        one, two = gateway(t, cluster, "gw1", "a", shares), gateway(t, cluster, "gw2", "bcd", shares)
        loads = load(t, one, "a") + load(t, two, "b", "c", "d")
        until(lambda: len(reads(one)) + len(reads(two)) >= 4, "all read")
        again(lambda: has(parts(rates(3, one, two)), **due), LOOKS)
        fio_stops(*loads)
        one.stop(), two.stop()


@test(fairlift_only=True)
def the_weight_of_a_group_counts_for_the_tenants_below_it_at_whichever_gateway(t):
    cluster = pool(t)
    gold = gateway(t, cluster, "gw1", "a", above="/gold", groups='[group."/gold"]\nweight = 300\n')
    two = gateway(t, cluster, "gw2", "b", above="/silver")
    loads = load(t, gold, "a") + load(t, two, "b")
    until(lambda: len(reads(gold)) + len(reads(two)) >= 2, "all read")
    again(lambda: has(parts(rates(3, gold, two)), **{"gold/a": 3 / 4, "silver/b": 1 / 4}), LOOKS)
    fio_stops(*loads)


@test(fairlift_only=True)
def a_weight_and_a_ceiling_are_the_pools_whichever_gateway_serves_the_tenant(t):
    cluster = pool(t)
    # Two ceilings were said, one after the other, and a weight at one gateway: the last word holds at both.
    one, two = gateway(t, cluster, "gw1", "ab"), gateway(t, cluster, "gw2", "acd")
    one.control("set", "group", "/a", "max=riops=900")
    time.sleep(1.1)
    two.control("set", "group", "/a", "max=riops=200")
    two.control("set", "group", "/c", "weight=300")
    loads = load(t, one, "a", "b") + load(t, two, "a", "c", "d")

    def look():
        found = rates(4, one, two)
        if not 180 <= found["a"] <= 210:
            raise AssertionError(f"/a has {found['a']:.0f} reads a second, of 200 at most")
        del found["a"]
        has(parts(found), b=0.2, c=0.6, d=0.2)

    again(look, LOOKS)
    for gateway_ in one, two:
        gateway_.says('group "/a" is set otherwise at another gateway')
    fio_stops(*loads)


@test(fairlift_only=True)
def a_floor_is_the_pools_for_a_tenant_whose_clients_are_at_two_gateways(t):
    cluster = pool(t)
    # By its weight /d is due a thirtieth of 2,000 reads a second; its floor is 600 of them.
    floor = '[group."/d"]\nweight = 10\nmin = "iops=600"\n'
    one, two = gateway(t, cluster, "gw1", "ad", groups=floor), gateway(t, cluster, "gw2", "bcd", groups=floor)
    loads = load(t, one, "a", "d") + load(t, two, "b", "c", "d")

    def look():
        found = rates(4, one, two)
        print({name: round(rate) for name, rate in found.items()}, flush=True)
        if found["d"] < 570:
            raise AssertionError(f"/d has {found['d']:.0f} reads a second, and its floor is 600: {found}")
        del found["d"]
        has(parts(found), a=1 / 3, b=1 / 3, c=1 / 3)

    again(look, LOOKS)
    fio_stops(*loads)


@test(fairlift_only=True)
def a_latency_is_kept_because_another_gateway_makes_room_and_until_it_is_away(t):
    cluster = pool(t)
    # /a reads one block at a time behind 32 of /b, each of which takes the cluster 0.5 ms: alone at its gateway it has no neighbour there.
    one, two = gateway(t, cluster, "gw1", "a"), gateway(t, cluster, "gw2", "b")
    asks, other = Control(t, one), Control(t, two)
    a, b = load(t, one, "a", depth=1), load(t, two, "b")
    until(lambda: len(reads(one)) + len(reads(two)) >= 2, "both read")
    median = lambda: next(row["p50_us"] for row in asks.ask("GET", "/v1/status")["tenants"] if row["path"] == "/a")
    room = lambda: other.ask("GET", "/v1/gateways")[0]["room"]
    until(lambda: (took := median()) and took >= 11000, "reads of /a take longer than 8 ms by far")
    equal(room(), None, "the room without a latency")
    asks.cli("set", "group", "/a", "latency=8ms")
    until(lambda: (took := median()) and took <= 8000 and (room() or {}).get("group") == "/a", "half of the reads are in time by the room that is made", 60)
    contains(other.cli("gateways"), "it makes room for the latency of /a")
    fio_stops(*a)
    until(lambda: not room(), "/a is away, and no room is made")
    fio_stops(*b)


@test(fairlift_only=True)
def when_a_gateway_is_killed_the_others_are_not_short_and_when_it_is_back_shares_are(t):
    cluster = pool(t)
    one, two = gateway(t, cluster, "gw1", "a"), gateway(t, cluster, "gw2", "bcd")
    quarters = lambda: has(parts(rates(3, one, two)), a=0.25, b=0.25, c=0.25, d=0.25)
    loads, others = load(t, one, "a"), load(t, two, "b", "c", "d")
    until(lambda: len(reads(one)) + len(reads(two)) >= 4, "all read")
    again(quarters, LOOKS)
    before = rates(2, one)["a"]
    two.kill()
    after = rates(5, one)["a"]
    if after < 0.95 * before:
        raise AssertionError(f"/a had {before:.0f} reads a second, and {after:.0f} in the five seconds after the other gateway was killed")
    if not re.search('gateway "gw2" was not heard of for [34] periods', one.log()):
        raise AssertionError(f"nothing says that gw2 is gone:\n{one.log()}")
    for process in others:
        process.wait(60)
    two = gateway(t, cluster, "gw2", "bcd")
    loads += load(t, two, "b", "c", "d")
    until(lambda: len(reads(two)) >= 3, "all read again")
    again(quarters, LOOKS)
    one.says('gateway "gw2" is there')
    fio_stops(*loads)


@test(fairlift_only=True)
def what_is_wrong_with_reports_is_said_once_and_ends_no_server(t):
    cluster = pool(t)
    one = gateway(t, cluster, "gw1", "a")
    shares = Path(t.path("shares"))
    until((shares / "gw1.report").exists, "the first report")
    report = json.loads((shares / "gw1.report").read_text())
    (shares / "torn.report").write_text(json.dumps(report)[:100])
    (shares / "later.report").write_text(json.dumps({**report, "version": report["version"] + 1}))
    until(lambda: "torn" in one.log() and "later" in one.log(), "both are told of")
    one.says('the report of gateway "torn"', 'the report of gateway "later"', "version: it is 3, and this server knows 2")
    # A second gateway of this name is refused at its start; one that came by another way is told of.
    said = t.serve_fails("--config", t.path("server1.toml"), "--listen", f"unix:{t.path('twin')}")
    contains(said, 'another gateway is called "gw1"; give this one another name')
    (shares / "gw1.report").write_text(json.dumps({**report, "instance": 7, "sequence": 1}))
    hidden = shares.rename(t.path("hidden"))
    until(lambda: "shares stay as they are" in one.log(), "it says that it hears of nobody")
    one.serves("a")
    hidden.rename(shares)
    until(lambda: "gateways are heard of again" in one.log(), "and that it hears again")
    one.serves("a")
    equal(one.log().count('"torn"'), 1, "lines about the torn report")
    equal(one.log().count("shares stay as they are"), 1, "lines about the directory")
    one.stop()
    equal(json.loads((shares / "gw1.report").read_text())["ends"], True, "the last report")


@test(fairlift_only=True)
def a_carrier_that_hangs_holds_neither_workers_nor_the_end_of_the_server(t):
    cluster = pool(t)
    shares = Path(t.path("shares"))
    shares.mkdir()
    one = gateway(t, cluster, "gw1", "a")
    # To open a FIFO waits until somebody writes to it.
    os.mkfifo(shares / "stuck.report")
    until(lambda: "shares stay as they are" in one.log(), "it says that there is no answer")
    one.says("no answer")
    one.serves("a")
    one.stop(seconds=30)


@test(fairlift_only=True)
def what_cannot_be_shared_is_refused_with_its_reason(t):
    for settings, says in [
        ('shares = "ftp:x"', "takes dir:PATH or rados:POOL/OBJECT"),
        ('shares = "dir:there"\nscheduler = "none"', "needs the scheduler fair; none shares no pool"),
        ('shares = "dir:nowhere"', "No such file or directory"),
    ]:
        Path(t.path("there")).mkdir(exist_ok=True)
        Path(t.path("c.toml")).write_text(f'[disk.pool]\n{settings}\n[export.a]\nbacking = "mem:1m"\ndisk = "pool"\n')
        contains(t.serve_fails("--config", t.path("c.toml"), "--listen", f"unix:{t.path('s')}"), says)


if __name__ == "__main__":
    main()
