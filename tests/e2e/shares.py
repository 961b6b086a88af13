"""What tenants had and were due is the same in every view, and true: on a disk bound by bandwidth, and on one bound by requests."""

import concurrent.futures

from control import Control, fio
from harness import *
from metrics import samples, scrape
from why import tenants

# 60 MB a second, whatever the size of requests; and one request after another, 0.5 ms each, whatever its size.
BANDWIDTH = "sim:ssd-2010,link=60,size=64m"
REQUESTS = "sim:rbd-3x,link=500us,kib=0s,size=64m"
SECONDS = 240  # of a load that is ended before


def load(t, server, export, size):
    return fio(t, server, export, SECONDS, "--rw=randread", "--verify=0", f"--bs={size}")


def end(*loads):
    for process in loads:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def status(control, seconds=2):
    return {tenant["path"]: tenant for tenant in json.loads(control.cli("status", "--json", f"--seconds={seconds}"))["tenants"]}


def views(control):
    """By view, what each tenant had, was due, and its score; all look at the same 4 s."""
    number = lambda word: float(word.rstrip("%")) / (100 if word.endswith("%") else 1)
    of = lambda tenant: tuple(tenant[word] for word in ("had", "due", "score"))
    table = lambda lines, first: {line.split()[0]: tuple(number(line.split()[at]) for at in first) for line in lines if line.startswith("/")}

    def metrics():
        scrape(control)
        time.sleep(4)
        found = samples(scrape(control)[0])
        labels = lambda path: f'disk="d",tenant="{path}"'
        return {path: tuple(found[f"fairlift_tenant_{word}", labels(path)] for word in ("had", "due", "score")) for path in ("/alice", "/bob")}

    lines = lambda *command: control.cli(*command, "--seconds=4").splitlines()
    looks = {
        "status": lambda: {path: of(tenant) for path, tenant in status(control, 4).items()},
        "metrics": metrics,
        "why": lambda: {one["tenant"]: of(one) for one in json.loads(control.cli("why", "--json", "--seconds=4"))},
        "the table of status": lambda: table(lines("status"), (3, 4, 6)),
        "top": lambda: table(lines("top", "--once"), (2, 3, 5)),
    }
    scrape(control)
    time.sleep(1.1)  # the next scrape begins a look
    with concurrent.futures.ThreadPoolExecutor(len(looks)) as threads:
        said = {view: threads.submit(look) for view, look in looks.items()}
        return {view: future.result() for view, future in said.items()}


def agree(control, due=None):
    """All views say the same, and what is due, if that is known."""
    said = views(control)
    due = due or {path: was_due for path, (_, was_due, _) in said["status"].items()}
    for view, tenants_ in said.items():
        for path, (had, was_due, score) in tenants_.items():
            if not (abs(had - said["status"][path][0]) < 0.04 and abs(was_due - due[path]) < 0.03 and abs(score - had / was_due) < 0.03):
                raise AssertionError(f"{path} in {view}: had {had}, due {was_due}, score {score}; due is {due[path]}: {said}")


def beside_alone(t, backings, sizes, due={"/alice": 0.5, "/bob": 0.5}):
    """What two tenants of equal weights had by all views is what they had beside what each does alone, whatever the size of their requests."""
    server = t.server(config=tenants('scheduler = "fair"', *backings))
    control = Control(t, server)
    alone = {}
    for name, size in sizes.items():
        one = load(t, server, name, size)
        control.working(name)

        def look():
            found = status(control)[f"/{name}"]
            alone[f"/{name}"] = found["iops"]
            if not (abs(found["score"] - 1) < 1e-6 and found["had"] > (0.9 if due else 0)):
                raise AssertionError(f"one that has the disk alone has what it is due: {found}")

        again(look)
        end(one)
    loads = [load(t, server, name, size) for name, size in sizes.items()]
    control.working("alice", "bob")
    time.sleep(1)
    again(lambda: agree(control, due), 3)

    def look():
        found = status(control, 4)
        parts = {path: tenant["iops"] / alone[path] for path, tenant in found.items()}
        print({path: (part, found[path]["had"], found[path]["share"], found[path]["use"]) for path, part in parts.items()})
        for path, part in parts.items():
            true, had = part / sum(parts.values()), found[path]["had"] / sum(tenant["had"] for tenant in found.values())
            if due and abs(true - had) > 0.15:  # a real disk does not do the same twice
                raise AssertionError(f"{path} had {had:.2f} by the view, and {true:.2f} beside what each does alone: {found}")

    again(look, 3)
    end(*loads)


@test(fairlift_only=True, seconds=180)
def every_view_says_the_same_of_a_disk_bound_by_bandwidth(t):
    beside_alone(t, (BANDWIDTH, BANDWIDTH), {"alice": "16k", "bob": "256k"})


@test(fairlift_only=True, seconds=180)
def every_view_says_the_same_of_requests_of_two_sizes_on_a_disk_bound_by_requests(t):
    beside_alone(t, (REQUESTS, REQUESTS), {"alice": "4k", "bob": "64k"})


@test(fairlift_only=True, seconds=180)
def every_view_says_the_same_of_two_files_on_the_disk_of_this_machine(t):
    beside_alone(t, [t.image(name, 64 * MIB, (0, os.urandom(64 * MIB))) for name in ("a", "b")], {"alice": "16k", "bob": "256k"}, due=None)


@test(fairlift_only=True, seconds=180)
def every_view_says_the_same_of_a_disk_bound_by_requests(t):
    server = t.server(config=tenants('scheduler = "fair"', REQUESTS, REQUESTS, weights=(100, 300)))
    control = Control(t, server)
    loads = [load(t, server, name, "4k") for name in ("alice", "bob")]
    control.working("alice", "bob")
    again(lambda: agree(control, {"/alice": 0.25, "/bob": 0.75}), 3)

    def look(by, due):
        """What decides how much is due; requests are alike, so that shares are those of requests."""
        time.sleep(1)
        found = status(control, 5)  # so long that what ended and is not answered yet, some 30 of each, does not count
        had, iops = ({path: tenant[word] for path, tenant in found.items()} for word in ("had", "iops"))
        for path, tenant in found.items():
            if abs(had[path] / sum(had.values()) - iops[path] / sum(iops.values())) > 0.02:
                raise AssertionError(f"{path} had another part of the time than of the requests: {found}")
            if tenant["due_by"] != by[path] or abs(tenant["due"] - due[path]) > 0.04 or not 0.85 < tenant["score"] < 1.15:
                raise AssertionError(f"{path} is due {due[path]} by {by[path]}: {found}")

    told = lambda by, due: again(lambda: look(by, due), 3)
    told({"/alice": "weight", "/bob": "weight"}, {"/alice": 0.25, "/bob": 0.75})
    control.cli("set", "group", "/bob", "max=iops=400")
    told({"/alice": "weight", "/bob": "max"}, {"/alice": 0.8, "/bob": 0.2})
    control.cli("set", "group", "/bob", "max=max")
    control.cli("set", "group", "/alice", "min=iops=1200")
    told({"/alice": "min", "/bob": "weight"}, {"/alice": 0.6, "/bob": 0.4})
    end(*loads)


@test(fairlift_only=True, seconds=180)
def a_tenant_is_due_what_it_would_have_alone_and_one_that_asks_for_little_has_it(t):
    """The disk serves 2,000 requests a second, one after another. Alone a client of 16 has all of them, and one of one outstanding most."""
    server = t.server(config=tenants('scheduler = "fair"', REQUESTS, REQUESTS, weights=(300, 100)))
    control = Control(t, server)
    bob = fio(t, server, "bob", SECONDS, "--rw=randread", "--verify=0", "--bs=4k", "--iodepth=64")

    def told(which, alice, by, due, score):
        one = fio(t, server, "alice", SECONDS, "--rw=randread", "--verify=0", "--bs=4k", *alice)
        control.working("alice", "bob")

        def look():
            time.sleep(1)
            found = status(control, 4)["/alice"]
            if found["due_by"] != by or not due[0] < found["due"] < due[1] or not score[0] < found["score"] < score[1]:
                raise AssertionError(f"a client {which} is due {due} by {by}: {found}")

        again(look, 3)
        end(one)

    told("of a fixed rate", ("--iodepth=16", "--rate_iops=500"), "demand", (0.2, 0.4), (0.7, 1.1))
    told("that waits for all it asked for", ("--iodepth=16",), "weight", (0.7, 0.8), (0.85, 1.15))
    end(bob)


@test(fairlift_only=True, seconds=240)
def a_light_tenant_is_due_on_the_disk_of_this_machine_what_it_has_alone(t):
    """Alice reads one block at a time and bob 64. What alice is due is, within a factor of two, her rate alone beside the disk's, which is bob's
    alone. By her weight she would be due three quarters."""
    images = [t.image(name, 64 * MIB, (0, os.urandom(64 * MIB))) for name in ("a", "b")]
    server = t.server(config=tenants('scheduler = "fair"', *images, weights=(300, 100)))
    control = Control(t, server)
    begin = lambda name, depth: fio(t, server, name, SECONDS, "--rw=randread", "--verify=0", "--bs=4k", f"--iodepth={depth}")

    def alone(name, depth):
        one = begin(name, depth)
        control.working(name)
        time.sleep(1)
        rate = status(control)[f"/{name}"]["iops"]
        end(one)
        return rate

    def attempt():
        """A disk of a machine that others use is another one a minute later: then all is measured again."""
        rates = alone("alice", 1), alone("bob", 64)
        part = rates[0] / rates[1]
        if part > 0.3:
            t.skip(f"this disk does {rates[0]:.0f} reads a second one at a time and {rates[1]:.0f} of 64: too alike to tell them apart")
        both = [begin("alice", 1), begin("bob", 64)]
        control.working("alice", "bob")

        def look():
            time.sleep(1)
            found = status(control, 4)["/alice"]
            if not part / 2 < found["due"] < part * 2 or found["due_by"] != "demand":
                raise AssertionError(f"alone alice has {part:.3f} of what the disk does ({rates}), and is due {found['due']:.3f} by {found['due_by']}: {found}")
            figure(f"alone {rates[0]:.0f} of {rates[1]:.0f} reads a second, {part:.3f}; due {found['due']:.3f}, had {found['had']:.3f}")

        try:
            again(look)
        finally:
            end(*both)

    again(attempt)


if __name__ == "__main__":
    main()
