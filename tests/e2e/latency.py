"""Latencies of groups, with real clients: set in the file and while the server runs, and seen in status, why, metrics, events and the log.

Nothing is timed. A device that takes 5 ms for each request never keeps 1 ms and always keeps an hour, whatever the machine does.
"""

from control import Control
from harness import *
from metrics import samples, scrape
from why import Load, tenants


def tenant(control, path):
    """A tenant, as status has it."""
    said = json.loads(control.cli("status", "--seconds=0.3", "--json"))
    return next(one for one in said["tenants"] if one["path"] == path)


@test(fairlift_only=True)
def a_latency_is_set_live_and_shown_everywhere(t):
    server = t.server(config=tenants('scheduler = "fair"'))
    control = Control(t, server)
    told = Path(t.path("events"))
    with open(told, "wb") as out:
        t.start(BINARY, "events", "--after", "0", "--json", stdout=out, env=control.env)
    Load(t, server, "alice")
    Load(t, server, "bob", 16)
    equal(tenant(control, "/alice")["latency_target_us"], None, "nothing is said")
    control.cli("set", "group", "/alice", "latency=3600s")
    until(lambda: tenant(control, "/alice")["latency_met"] == 1, "a second was good")
    contains(control.cli("get", "group", "/alice"), "latency: 3600s")
    equal(control.ask("GET", "/v1/groups/alice")["latency"], "3600s", "the API's")
    contains(control.cli("why", "alice"), "its latency of 3600s: kept in 100 % of the last 60 s")
    found = samples(scrape(control)[0])
    of = lambda name: found[f"fairlift_tenant_latency_{name}", 'disk="d",tenant="/alice"']
    equal((of("target_seconds"), of("met"), of("given_up")), (3600, 1, 0), "the metrics")
    equal([series for series in found if series[0].startswith("fairlift_tenant_latency") and "bob" in series[1]], [], "bob's")
    # One that cannot be kept.
    control.ask("PATCH", "/v1/groups/alice", {"latency": "1ms"})
    until(lambda: tenant(control, "/alice")["latency_given_up"], "it is given up")
    says = "group /alice: a latency of 1ms cannot be kept"
    contains(control.cli("status"), f'warning: disk "d": {says}: the device takes ')
    until(lambda: says in server.log(), "it is in the log")
    until(lambda: "given up" in told.read_text(), "it is an event")
    contains(told.read_text(), '"latency"', "/alice")
    contains(control.cli("why", "alice"), "its latency of 1ms: kept in 0 % of the last 60 s; given up: the device takes ")
    equal(samples(scrape(control)[0])["fairlift_tenant_latency_given_up", 'disk="d",tenant="/alice"'], 1, "the metric")
    contains(control.cli("status"), "latency 1.0ms, given up")
    # Of another one nobody says that it is kept again.
    control.cli("set", "group", "/alice", "latency=3600s")
    until(lambda: tenant(control, "/alice")["latency_met"] == 1, "a second was good")
    if "kept again" in server.log():
        raise AssertionError("3600s was never given up")
    # And none.
    control.cli("set", "group", "/alice", "latency=none")
    equal(tenant(control, "/alice")["latency_target_us"], None, "nothing is said any more")
    if "latency" in control.cli("get", "group", "/alice"):
        raise AssertionError("it is still there")


@test(fairlift_only=True)
def a_latency_that_the_own_queue_exceeds_is_given_up_with_that_reason(t):
    """One after the other, 610 a second: 64 outstanding take 100 ms, and each alone takes less than 2 ms."""
    server = t.server(config=tenants('scheduler = "fair"', alice="sim:ssd-2010,link=10,size=64m"))
    control = Control(t, server)
    with server.connect("alice") as client:  # what one alone takes is known from these: of 64 at once, the eighth waits for seven
        for block in range(16):
            client.read(block * 16 * KIB, 16 * KIB)
    Load(t, server, "alice", 64, size=16 * KIB)
    control.cli("set", "group", "/alice", "latency=20ms")
    says = r"group /alice: a latency of 20ms cannot be kept: \d+ of its own are outstanding: at the \d+ a second that it has, that alone takes \d+"
    until(lambda: re.search(says, control.cli("status")), "status says so", 60)
    until(lambda: re.search(says, server.log()), "it is in the log")
    until(lambda: re.search(r"remedy: at most \d+ outstanding, or more weight, or a longer latency \(fairlift set group /alice latency=", control.cli("why", "alice")), "why says so")


@test(fairlift_only=True)
def others_make_room_and_learn_for_whom(t):
    model = "sim:sata-7200,size=1G"
    server = t.server(config=tenants('scheduler = "fair"', alice=model, bob=model) + '[group."/carol"]\n')
    control = Control(t, server)
    Load(t, server, "bob", 16)
    Load(t, server, "alice")
    control.cli("set", "group", "/alice", "latency=40ms")  # with one at a time it takes a third of that, and beside 16 more than twice
    until(lambda: "others make room for it" in control.cli("why", "alice", "--seconds=0.2"), "room is made")
    until(lambda: "for the latency of /alice, 40ms" in control.cli("why", "bob", "--seconds=0.2"), "bob learns of it")


@test(fairlift_only=True)
def a_latency_is_checked_and_said_to_be_inert(t):
    server = t.server(config=tenants('scheduler = "bfq"'))
    control = Control(t, server)
    said = control.cli("set", "group", "/alice", "latency=2ms")
    contains(said, 'its latency has no effect: disk "d" has scheduler bfq, which makes no room for it; fair does')
    Load(t, server, "alice")
    until(lambda: tenant(control, "/alice")["latency_met"] == 0, "it is looked at all the same")
    contains(control.cli("why", "alice"), "scheduler bfq does nothing for it")
    for value, why in [("2", "a time needs a unit: 2s, 2ms, 2us"), ("0ms", "the time must be longer than 0"), ("soon", "a whole number with a unit")]:
        contains(control.cli("set", "group", "/alice", f"latency={value}", code=1), "latency: ", why)
    contains(control.cli("set", "group", "/", "latency=2ms", code=1), "the root has no siblings that could make room")
    control.cli("add", "group", "/carol", "latency=1ns")
    equal(control.ask("GET", "/v1/groups/carol")["latency"], "1ns", "of a new group")


@test(fairlift_only=True)
def a_latency_comes_and_goes_with_the_file(t):
    config = tenants('scheduler = "fair"') + '[group."/carol"]\nlatency = "2ms"\n'
    server = t.server(config=config)
    control = Control(t, server)
    equal(control.ask("GET", "/v1/groups/carol")["latency"], "2ms", "the file's")
    file = Path(t.path("server0.toml"))
    file.write_text(file.read_text().replace('"2ms"', '"500us"'))
    for asked in ["--dry-run"], []:
        contains(control.cli("reload", *asked), 'group "/carol": latency 500us (was 2ms)')
    equal(control.ask("GET", "/v1/groups/carol")["latency"], "500us", "the new file's")
