"""Groups with weights: who they are, and what they get. How much, `benches/peers/tenants.py` measures."""

from types import SimpleNamespace

from control import Control, fio, fio_stops
from harness import *
from metrics import samples, scrape

TREE = """
    [disk.one]
    scheduler = "{scheduler}"
    depth = {depth}

    [group."/gold"]
    weight = 300

    [group."/tenants"]
    weight = 100

    [group."/tenants/a"]
    weight = 900

    [export.gold]
    backing = "{backing}"
    disk = "one"
    group = "/gold"
    size = "16M"

    [export.a]
    backing = "{backing}"
    disk = "one"
    group = "/tenants/a"
    offset = "16M"
    size = "16M"
    ioprio = "rt/0"

    [export.b]
    backing = "{backing}"
    disk = "one"
    group = "/tenants/b"
    offset = "32M"
    size = "16M"
    ioprio = "idle"
    """


def schedulers():
    listed = subprocess.run([BINARY, "tunables"], capture_output=True, text=True, check=True).stdout
    return re.findall(r"^(\S+):", listed, re.M)


def shares(server):
    """What each group has had, as the server logs it: {group: {weight, read: (operations, bytes), share in %}}."""
    found = {}
    line = r'share since the start disk="([^"]*)" group="([^"]*)" read=(\d+)/(\d+) write=(\d+)/(\d+) bytes=([\d.]+)% weight now=(\d+)'
    for disk, group, reads, read, writes, written, share, weight in re.findall(line, server.log()):
        found[group] = {"disk": disk, "weight": int(weight), "read": (int(reads), int(read)),
                        "write": (int(writes), int(written)), "share": float(share)}
    return found


@test(fairlift_only=True)
def a_nested_group_and_a_priority_from_the_file_reach_the_disk_under_every_scheduler(t):
    for scheduler in schedulers():
        server = t.server(config=TREE.format(scheduler=scheduler, depth=8, backing="sim:nvme-plp,size=64M"))
        piece = data(4096)
        for turn, name in enumerate(["gold", "a", "b"]):
            with server.connect(name) as client:
                for n in range(turn + 1):
                    client.write(n * 4096, piece)
                    equal(client.read(n * 4096, 4096), piece, f"what {name} reads under {scheduler}")
                client.disconnect()
        server.stop()
        found = shares(server)
        equal({path: (group["weight"], group["write"]) for path, group in found.items()},
              {"/gold": (300, (1, 4096)), "/tenants/a": (900, (2, 8192)), "/tenants/b": (100, (3, 12288))},
              f"what each group wrote under {scheduler}")
        equal([found[path]["share"] for path in sorted(found)], [16.7, 33.3, 50.0], "the shares of the bytes")


def reads(server):
    """How many reads of each group have ended by now: {group: reads}."""
    text, _ = scrape(SimpleNamespace(path=f"{server.socket}.control.sock"))
    count = lambda labels: re.search(r'tenant="([^"]*)"', labels)[1]
    return {count(labels): int(value) for (name, labels), value in samples(text).items()
            if name == "fairlift_operations_total" and 'operation="read"' in labels}


@test(fairlift_only=True)
def a_signal_that_did_something_once_does_not_end_the_server(t):
    server = t.server(config=TREE.format(scheduler="none", depth=8, backing="mem:64M"))
    for once in signal.SIGUSR1, signal.SIGUSR2:
        server.process.send_signal(once)
        until(lambda: "fairlift acknowledge" in server.log(), "a line that says what does it now")
    with server.connect("gold") as client:
        client.read(0, 4096)
        client.disconnect()
    equal(reads(server)["/gold"], 1, "what /gold has read, by the metrics")


def load(t, server, export, connections, depth):
    """Keeps `depth` random reads under way on each of some connections, until it is stopped."""
    return fio(t, server, export, 600, "--rw=randread", "--verify=0", "--norandommap", "--size=100g", f"--numjobs={connections}", f"--iodepth={depth}")


def done_while(server, count):
    """What each group reads while all read so many, once each reads."""
    until(lambda: all(count > 100 for count in reads(server).values()), "all read")
    before = reads(server)
    while sum((done := {path: now - before.get(path, 0) for path, now in reads(server).items()}).values()) < count:
        time.sleep(0.2)
    return done


def weights_hold(t, scheduler, settings=""):
    if scheduler not in schedulers():
        t.skip(f"there is no scheduler {scheduler} yet")
    # An array of twelve hard disks: some 2,000 reads a second, which any machine can keep up with, so that the disk decides.
    # Together they have less under way than may wait, and each has more than its share of what the disk has at once.
    weights = {"a": 100, "b": 200, "c": 300, "d": 400}
    # Much of it waits, so that a client that does not run for a tenth of a second has still asked for its share.
    loads = {"a": (8, 32), "b": (1, 128), "c": (4, 64), "d": (2, 128)}
    config = f'[disk.one]\nscheduler = "{scheduler}"\ndepth = 64\nnr_requests = 1024\n{settings}\n'
    for number, (name, weight) in enumerate(weights.items()):
        config += f'[group."/{name}"]\nweight = {weight}\n[export.{name}]\nbacking = "{SLOW}"\ndisk = "one"\n'
        config += f'group = "/{name}"\noffset = {number * PART}\nsize = {PART}\n'
    server = t.server(config=config)
    loads = [load(t, server, name, *loads[name]) for name in weights]
    done_while(server, 1000)

    def look():
        done = {path[1:]: count for path, count in done_while(server, 10_000).items()}
        total = sum(done.values())
        for name, weight in weights.items():
            error = done[name] / total / (weight / 1000) - 1
            assert abs(error) < 0.15, f"/{name} of weight {weight} has {done[name] / total:.3f}: {done}"

    again(look)
    fio_stops(*loads)


PART = 100 << 30
SLOW = "sim:eva-raid5-12"


@test(seconds=180, fairlift_only=True)
def under_bfq_shares_follow_weights_however_many_connections_and_requests_each_has(t):
    weights_hold(t, "bfq")


@test(seconds=180, fairlift_only=True)
def under_cfq_without_idling_shares_follow_weights_however_many_connections_and_requests_each_has(t):
    weights_hold(t, "cfq", 'set = { slice_idle = 0 }')


@test(fairlift_only=True)
def weights_of_flags_need_no_config_file_and_an_inert_one_is_told(t):
    a, b = t.image("a", MIB), t.image("b", MIB)
    server = t.server(f"alice={a}", f"bob={b}", args=["--weight", "alice=300"])
    server.serves("alice")
    server.serves("bob")
    assert "WARN" not in server.log(), server.log()
    server.stop()
    found = {path: group["weight"] for path, group in shares(server).items()}
    equal(found, {"/alice": 300, "/bob": 100}, "the groups and their weights")
    said = t.run(BINARY, "serve", "--check", f"alice={a}", "--weight", "alice=300", "--listen", f"unix:{t.path('s')}")
    contains(said, "warning: --weight alice=300: its weight has no effect", "1 warning")


@test(seconds=180, fairlift_only=True)
def the_weights_of_the_example_config_act(t):
    """On a modelled array in place of its RAM, which is faster than any client that could fill it here."""
    example = t.run(BINARY, "config")
    assert example.count('"mem:1g"') == 2, "the example's backings are others"
    config = example.replace('"mem:1g"', f'"{SLOW}"').replace('size = "512m"', 'size = "100g"')
    config = "".join(line for line in config.splitlines(True) if not line.startswith("control = "))  # beside the listener
    server = t.server(config=config)
    # Bob asks four times as much at once as Alice, who has three times his weight and always more waiting than the disk takes.
    loads = [load(t, server, "alice", 1, 128), load(t, server, "bob", 4, 128)]
    # Fair learns what reads cost in the first two seconds. Then the shares are right, and stay so.
    right = 0
    while right < 3:
        done = done_while(server, 3000)
        ratio = done["/tenants/alice"] / done["/tenants/bob"]
        print(f"weights of 300 and 100 gave {ratio:.2f}: {done}")
        right = right + 1 if 2.5 < ratio < 3.5 else 0
    fio_stops(*loads)


if __name__ == "__main__":
    main()


@test(fairlift_only=True)
def two_exports_are_two_tenants_that_share_by_default(t):
    images = [t.image(name, 1 * MIB) for name in ("alice.img", "bob.img")]
    server = t.server(f"alice={images[0]}", f"bob={images[1]}")
    control = Control(t, server)
    exports = {export["name"]: export for export in control.ask("GET", "/v1/exports")}
    equal({name: export["group"] for name, export in exports.items()}, {"alice": "/alice", "bob": "/bob"}, "the groups")
    equal(len({export["disk"] for export in exports.values()}), 1, "disks")
    equal(control.ask("GET", "/v1/disks")[0]["scheduler"], "fair", "the scheduler")
    server.says(": fair, tenants /alice (weight 100), /bob (weight 100)")
    control.cli("set", "group", "/alice", "weight=300")
    server.stop()
    none = t.server(f"alice={images[0]}", f"bob={images[1]}", args=["--scheduler", "none"])
    none.says(": none, which keeps no shares, tenants /alice (weight 100), /bob (weight 100)")


@test(fairlift_only=True)
def a_second_tenant_has_the_disk_shared_while_the_first_reads_and_it_stays_so(t):
    images = [t.image(name, 16 * MIB, (0, data(16 * MIB, name))) for name in ("alice.img", "bob.img")]
    server = t.server(f"alice={images[0]}")
    control = Control(t, server)
    scheduler = lambda: control.ask("GET", "/v1/disks")[0]["scheduler_in_place"]
    equal(scheduler(), "mq-deadline", "the scheduler of a lone tenant")
    server.says(": mq-deadline, one tenant /alice (weight 100)")
    done, failures = threading.Event(), []

    def read():
        with server.connect("alice") as client:
            rounds = 0
            while not done.is_set() or rounds < 16:
                at = rounds % 16 * MIB
                if client.read(at, MIB) != data(16 * MIB, "alice.img")[at:at + MIB]:
                    failures.append(at)
                rounds += 1

    reader = threading.Thread(target=read)
    reader.start()
    said = control.cli("add", "export", f"bob={images[1]}")
    contains(said, "scheduler fair (was mq-deadline), for its tenants to share it")
    server.says(": scheduler fair (was mq-deadline), for its tenants to share it")
    done.set()
    reader.join()
    equal(failures, [], "wrong reads of the first tenant")
    equal(scheduler(), "fair", "the scheduler of two")
    equal([g["path"] for g in control.ask("GET", "/v1/groups")["groups"]], ["/alice", "/bob"], "the groups")
    control.cli("remove", "export", "bob")
    equal([g["path"] for g in control.ask("GET", "/v1/groups")["groups"]], ["/alice"], "a group goes with its export")
    equal(scheduler(), "fair", "the scheduler when the second tenant has gone")


@test(fairlift_only=True)
def what_rotates_has_bfq_for_two_tenants_and_a_floor_gets_the_scheduler_that_keeps_it(t):
    spinning = """
        [disk.one]
        [export.a]
        backing = "sim:sata-7200,size=1g"
        disk = "one"
        [export.b]
        backing = "sim:sata-7200,size=1g"
        disk = "one"
        """
    control = Control(t, t.server(config=spinning))
    equal(control.ask("GET", "/v1/disks")[0]["scheduler"], "bfq", "what rotates")
    control = Control(t, t.server("alice=mem:1m"))
    control.cli("set", "group", "/alice", "min=iops=100")
    equal(control.ask("GET", "/v1/disks")[0]["scheduler"], "fair", "of a floor")
