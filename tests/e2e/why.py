"""`fairlift why`: each cause is staged with real clients of a real server, and must be named.

A cause is staged so that it has most of the tenant's time: a device that takes 5 ms for each request is slow whatever the machine does.
"""

import itertools

from control import Control
from harness import *

# A device that takes 5 ms for each request, and as many at once as the disk gives it.
SLOW = "null:1g,delay=5ms"


class Load:
    """A client that keeps so many operations outstanding, on a thread of its own."""

    def __init__(self, t, server, export, outstanding=1, *, size=4 * KIB, pause=0.0, step=None):
        self.client = server.connect(export)
        self.outstanding, self.size, self.pause, self.random = outstanding, size, pause, random.Random(SEED)
        self.client.random = self.random
        self.step, self.stopped, self.begun = step or self.read, False, threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()
        t.defer(self.stop)
        self.begun.wait(60)

    def read(self, client):
        client.submit(nbdclient.READ, self.random.randrange(client.size // self.size) * self.size, self.size)

    def run(self):
        with contextlib.suppress(OSError, nbdclient.Closed):
            for _ in range(self.outstanding):
                self.step(self.client)
            self.begun.set()
            while not self.stopped:
                self.client.reply()
                if self.pause:
                    time.sleep(self.pause)
                self.step(self.client)

    def stop(self):
        self.stopped = True
        with contextlib.suppress(OSError):
            self.client.sock.shutdown(socket.SHUT_RDWR)
        self.thread.join(10)
        self.client.close()


def tenants(disk, alice=SLOW, bob=SLOW, weights=(100, 100), server=""):
    """Alice and bob on one disk, each in a group of their own."""
    groups = "".join(f'[group."/{name}"]\nweight = {weight}\n' for name, weight in zip(("alice", "bob"), weights))
    exports = "".join(
        f'[export.{name}]\nbacking = "{backing}"\ndisk = "d"\ngroup = "/{name}"\n'
        for name, backing in (("alice", alice), ("bob", bob)))
    return f"[server]\n{server}\n[disk.d]\n{disk}\n{groups}{exports}"


def why(t, server, cause, *words, export="alice", seconds=1.0, times=4, so=lambda said: True):
    """The command names this cause, with these words, and what it answers is `so`, in one of so many looks; that answer."""
    control = Control(t, server)
    time.sleep(0.3)  # the load has begun

    def look():
        said = json.loads(control.cli("why", export, f"--seconds={seconds}", "--json"))
        if said["cause"] != cause:
            raise AssertionError(f"wanted the cause {cause!r}: {json.dumps(said, indent=1)}")
        contains(said["says"], *words)
        whole = sum(one["part"] for one in said["causes"])
        if not 0.9 < whole < 1.1:
            raise AssertionError(f"the parts add up to {whole}: {json.dumps(said, indent=1)}")
        assert so(said), f"the figures are others: {json.dumps(said, indent=1)}"
        return said

    return again(look, times)


@test(fairlift_only=True)
def nobody_is_connected(t):
    server = t.server(config=tenants('scheduler = "fair"'))
    why(t, server, "nobody", "no client is connected to an export of /alice")
    control = Control(t, server)
    contains(control.cli("why", "alise", code=1), 'there is no export "alise"', 'did you mean "alice"?')
    contains(control.cli("why", "alice"), "alice: no client is connected")


@test(fairlift_only=True)
def all_tenants_and_one_by_its_path(t):
    server = t.server(config=tenants('scheduler = "fair"') + '[export.spare]\nbacking = "mem:1m"\ngroup = "/alice"\n')
    control = Control(t, server)
    Load(t, server, "bob", 4)
    time.sleep(0.3)
    spare = next(disk["name"] for disk in control.ask("GET", "/v1/disks") if disk["name"] != "d")
    said = control.cli("why").splitlines()
    equal(re.sub(r"[\d.]+", "N", said.pop(0)), "no tenant is short of its due, over N s", "the first line")
    equal(sorted(line.split(":")[0] for line in said), sorted(["/alice on d", f"/alice on {spare}", "/bob on d"]), "the tenants")
    contains(next(line for line in said if line.startswith("/bob")), "the device: ")
    one = control.cli("why", "/bob")
    contains(one, "/bob: the device: ", "(/bob on d: ")
    assert "/alice" not in one, one
    equal(control.cli("why", "/alice").count("no client is connected"), 2, "the disks of alice")
    equal(sorted(all["tenant"] for all in control.ask("GET", "/v1/why?seconds=0.1&tenant=/")), ["/alice", "/alice", "/bob"])
    contains(control.cli("why", "/bobby", code=1), 'there is no group "/bobby"', 'did you mean "/bob"?')


@test(fairlift_only=True)
def a_tenant_on_two_disks_is_told_of_each_what_its_clients_do_there(t):
    server = t.server(config=tenants('scheduler = "fair"') + '[export.spare]\nbacking = "mem:64m"\ngroup = "/alice"\n')
    with server.connect("spare") as client:
        client.write(0, random.randbytes(MIB))  # zeroes would be a hole of a few bytes
        client.send(*(client.request(nbdclient.READ, 0, MIB) for _ in range(32)))  # and takes no reply
        why(t, server, "reply", "takes its replies slowly", export="spare")
        why(t, server, "nobody", "no client is connected to an export of /alice on d")
        Load(t, server, "alice", 8)
        said = why(t, server, "device", "the device: ")
        equal(said["connections"], 1, "the connections on the disk")


@test(fairlift_only=True)
def a_client_that_asks_for_nothing(t):
    server = t.server(config=tenants('scheduler = "fair"'))
    with server.connect("alice"):
        why(t, server, "client", "asks for nothing (1 connection)")


@test(fairlift_only=True)
def a_client_that_pauses(t):
    server = t.server(config=tenants('scheduler = "fair"', alice="mem:1g"))
    Load(t, server, "alice", pause=0.51)  # a pause ends a little before it is heard, and later where the client waits for a CPU
    pause = lambda said: float(re.search(r"it pauses ([\d.]+) ms", said["says"])[1])
    why(t, server, "client", "the client itself", "it pauses ", "ms between operations", seconds=3,
        so=lambda said: 400 < pause(said) < 700 and 1 < said["iops"] <= 2)


@test(fairlift_only=True)
def a_client_that_asks_for_one_at_a_time(t):
    server = t.server(config=tenants('scheduler = "fair"', alice="null:1g,delay=50ms"))
    Load(t, server, "alice")
    why(t, server, "one at a time", "asks for one at a time", "ms for each operation")


@test(fairlift_only=True)
def a_client_that_sends_what_it_writes_slowly(t):
    server = t.server(config=tenants('scheduler = "fair"', alice="mem:1g"))

    def write(client):
        client.send(client.request(nbdclient.WRITE, 0, 4 * KIB))
        for _ in range(8):
            client.send(bytes(512))
            time.sleep(0.01)

    Load(t, server, "alice", step=write)
    why(t, server, "client", "the client itself")


@test(fairlift_only=True)
def a_slow_device(t):
    server = t.server(config=tenants('scheduler = "fair"', alice="null:1g,delay=40ms"))
    Load(t, server, "alice", 8)
    why(t, server, "device", "the device: ", "ms for each operation")


@test(fairlift_only=True)
def a_device_that_does_not_answer(t):
    server = t.server(config=tenants('scheduler = "fair"', alice="null:1g,delay=20s"))
    Load(t, server, "alice", 4)
    said = why(t, server, "device", "the device")
    equal(said["iops"], 0, "operations that ended")
    contains(said["says"], "none ended, and 4 have been open for ")
    server.kill()  # or it would wait for the device


@test(fairlift_only=True)
def a_neighbour_who_keeps_much_outstanding(t):
    server = t.server(config=tenants('scheduler = "mq-deadline"\ndepth = 1\nnr_requests = 64'))
    Load(t, server, "bob", 16)
    Load(t, server, "alice")
    why(t, server, "others", "of its latency is waiting behind /bob", "requests outstanding", seconds=2,
        so=lambda said: said["helps"] == "remedy: scheduler=fair, which serves by weight")


@test(fairlift_only=True)
def a_neighbour_of_more_weight(t):
    server = t.server(config=tenants('scheduler = "fair"\ndepth = 1', weights=(100, 900)))
    Control(t, server).cli("set", "group", "/bob", "max=rbps=1g")
    Load(t, server, "bob", 16)
    Load(t, server, "alice", 4)
    why(t, server, "others", "behind /bob, which had", "was due 10 % (weight)", seconds=2,
        so=lambda said: re.fullmatch(
            r'it had its due; for more than that: more weight \(fairlift set group /alice weight=200\), or a ceiling for /bob '
            r'\(fairlift set group /bob max="rbps=1073741824 iops=\d+"\)', said["helps"] or ""))
    contains(Control(t, server).cli("why", "alice"), "\n  it had its due; for more than that: more weight")


SERIAL = "sim:ssd-2010,link=10,size=64m"  # 610 reads of 16 KiB a second, as many of them as may be in it


def behind_bob(t, alice, bob, *words, helps="", without="\n", scheduler="fair", sizes=(16 * KIB, 16 * KIB), weights=(100, 300)):
    """Alice's requests are in the device behind bob's, and alone they would take what she has alone."""
    server = t.server(config=tenants(f'scheduler = "{scheduler}"', SERIAL, SERIAL, weights))
    Load(t, server, "alice", alice, size=sizes[0])
    alone = why(t, server, "one at a time" if alice == 1 else "device")
    Load(t, server, "bob", bob, size=sizes[1])
    was = alone["outstanding"] / alone["iops"]
    print(f"alone each takes {1e3 * was:.2f} ms")

    def is_as_alone(said):
        value, unit = re.search(r"alone, one of its own takes about ([\d.]+) (ms|µs)", said["says"]).groups()
        is_as = was / 2.5 < float(value) / (1e3 if unit == "ms" else 1e6) < was * 2.5
        return is_as and re.search(helps, said["helps"] or "") and without not in (said["helps"] or "")

    why(t, server, "others", "/bob: ", "the device holds", "of /bob's requests beside its own; alone, one of its own takes about", *words, seconds=2, so=is_as_alone)


@test(fairlift_only=True)
def a_neighbour_whose_requests_are_in_the_device(t):
    behind_bob(t, 8, 32, helps=": more weight")


@test(fairlift_only=True)
def a_neighbour_whose_requests_are_in_the_device_under_no_scheduler(t):
    behind_bob(t, 8, 64, helps="remedy: scheduler=fair", scheduler="none")


@test(fairlift_only=True)
def a_neighbour_whose_requests_are_in_the_device_before_a_lone_reader(t):
    behind_bob(t, 1, 64, "(weight)", helps=r"remedy: a latency \(fairlift set group /alice latency=[125]0*ms\)", without="more weight")


@test(fairlift_only=True)
def a_neighbour_whose_requests_are_larger(t):
    behind_bob(t, 8, 8, sizes=(4 * KIB, 128 * KIB), weights=(100, 100))


@test(fairlift_only=True)
def a_device_that_serves_both_at_once(t):
    """A neighbour takes nothing from a device that takes 50 ms for each, however many it has."""
    slow = "null:1g,delay=50ms"
    for scheduler in ("fair", "mq-deadline"):
        server = t.server(config=tenants(f'scheduler = "{scheduler}"', slow, slow))
        Load(t, server, "bob", 32)
        Load(t, server, "alice", 8)
        # A neighbour that took something would make each of them longer.
        why(t, server, "device", "the device: ", "ms for each operation", seconds=2,
            so=lambda said: 45 < float(re.search(r"([\d.]+) ms for each", said["says"])[1]) < 100)


@test(fairlift_only=True)
def other_connections_of_the_root_group(t):
    server = t.server(config=f"""
        [disk.d]
        scheduler = "mq-deadline"
        depth = 1
        nr_requests = 64
        """ + "".join(f'[export.{name}]\nbacking = "{SLOW}"\ndisk = "d"\ngroup = "/"\n' for name in ("alice", "bob")))
    for export in ("alice", "bob", "bob", "bob"):
        Load(t, server, export)
    why(t, server, "others", "other connections have the disk", seconds=2)


@test(fairlift_only=True)
def its_own_queue_at_a_disk_that_takes_one_at_once(t):
    server = t.server(config=tenants('scheduler = "fair"\ndepth = 1'))
    Load(t, server, "alice", 16)
    why(t, server, "own", "its own operations", "the disk takes 1 at once")


@test(fairlift_only=True)
def a_queue_of_the_disk_that_is_full(t):
    server = t.server(config=tenants('scheduler = "mq-deadline"\ndepth = 4\nnr_requests = 4', alice="null:1g,delay=20ms"))
    Load(t, server, "alice", 64)
    why(t, server, "room", "the queue of d is full (nr_requests = 4)")


@test(fairlift_only=True)
def a_queue_of_the_disk_that_a_neighbour_has_filled(t):
    server = t.server(config=tenants('scheduler = "mq-deadline"\ndepth = 1\nnr_requests = 2'))
    Load(t, server, "bob", 16)
    Load(t, server, "alice")
    why(t, server, "room", "the queue of d is full (nr_requests = 2)", seconds=2)


@test(fairlift_only=True)
def more_requests_than_a_connection_may_have(t):
    server = t.server(config=tenants('scheduler = "fair"', alice="null:1g,delay=20ms", server="connection_requests = 2"))
    Load(t, server, "alice", 64)
    why(t, server, "room", "asks for more at once than a connection may (connection_requests = 2)")


@test(fairlift_only=True)
def more_bytes_than_a_connection_may_have(t):
    limits = 'request_max = "1m"\nconnection_memory = "2m"'
    server = t.server(config=tenants('scheduler = "fair"', alice="null:1g,delay=50ms", server=limits))
    Load(t, server, "alice", 32, size=MIB)
    why(t, server, "room", "more bytes at once than a connection may (connection_memory = 2 MiB)")


@test(fairlift_only=True)
def payload_memory_that_others_have(t):
    limits = 'workers = 1\nrequest_max = "1m"\nconnection_memory = "8m"\nmemory = "8m"'
    server = t.server(config=tenants('scheduler = "fair"', "null:1g,delay=50ms", "null:1g,delay=50ms", server=limits))
    Load(t, server, "bob", 32, size=MIB)
    Load(t, server, "alice", 4, size=MIB)
    why(t, server, "memory", "payload memory", "the server's 8 MiB", seconds=2)


@test(fairlift_only=True)
def its_own_ceiling(t):
    server = t.server(config=tenants('scheduler = "fair"', alice="mem:1g") + '[group."/alice".max]\nriops = 50\n')
    Load(t, server, "alice", 4)
    why(t, server, "limit", "its ceiling", "held by max of /alice")


@test(fairlift_only=True)
def its_own_flushes(t):
    server = t.server(config=tenants('scheduler = "fair"', alice="sim:nvme-consumer,size=64M"))

    def write_and_flush(client):
        if not client.pending:
            client.submit(nbdclient.WRITE, client.random.randrange(1000) * 4 * KIB, 4 * KIB, bytes(4 * KIB))
            client.reply()
            client.submit(nbdclient.FLUSH)

    Load(t, server, "alice", step=write_and_flush)
    why(t, server, "own flushes", "its own flushes", "a second")


@test(fairlift_only=True)
def a_neighbour_who_flushes(t):
    model = "sim:sata-7200,size=1G"
    server = t.server(config=tenants('scheduler = "fair"', alice=model, bob=model, weights=(100, 400)))

    def write_and_flush(client):
        if not client.pending:
            client.submit(nbdclient.WRITE, client.random.randrange(1000) * 4 * KIB, 4 * KIB, bytes(4 * KIB))
            client.reply()
            client.submit(nbdclient.FLUSH)

    Load(t, server, "bob", step=write_and_flush)
    Load(t, server, "bob", step=write_and_flush)
    Load(t, server, "alice", 4)
    why(t, server, "flush", "times a second for /bob", seconds=2)


@test(fairlift_only=True)
def a_disk_that_is_held_idle_for_a_neighbour(t):
    disk = 'scheduler = "cfq"\nset = { slice_idle = "20ms", group_idle = "20ms" }'
    fast = "null:1g,delay=1ms"
    server = t.server(config=tenants(disk, fast, fast, weights=(100, 900)))
    place = itertools.count()
    # He reads on from where he was, a little later each time: the disk waits for him.
    Load(t, server, "bob", pause=0.005, step=lambda client: client.submit(nbdclient.READ, next(place) * 4 * KIB, 4 * KIB))
    Load(t, server, "alice")
    why(t, server, "idling", "held idle on purpose (cfq, slice_idle)", seconds=3)


@test(fairlift_only=True)
def a_client_that_does_not_take_its_replies(t):
    server = t.server(config=tenants('scheduler = "fair"', alice="mem:1g"))
    client = server.connect("alice")
    t.defer(client.close)
    client.write(0, random.randbytes(MIB))  # zeroes would be a hole of a few bytes
    client.send(*(client.request(nbdclient.READ, 0, MIB) for _ in range(32)))
    why(t, server, "reply", "takes its replies slowly")
    client.close()  # or the server would wait for it at its end


@test(fairlift_only=True)
def one_slow_worker(t):
    """Others use the CPU of the worker that serves alice; the other worker has its own."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        t.skip("there is one CPU only")
    os.sched_setaffinity(0, cpus[1:])
    server = t.server(config=tenants('scheduler = "fair"', alice="null:1g", bob="null:1g"), args=["--workers=2"])
    # A client that asks for more than a fortieth of a CPU can answer.
    t.start("fio", "--name=alice", "--ioengine=nbd", f"--uri={server.uri('alice')}", "--rw=randread", "--bs=4k", "--iodepth=16",
            "--size=256m", "--time_based", "--runtime=60", stdout=subprocess.DEVNULL)
    Load(t, server, "bob", pause=0.01)
    control = Control(t, server)
    serves = {export: client["worker"] for export, client in control.working("alice", "bob").items()}
    if serves["alice"] == serves["bob"]:
        raise AssertionError(f"two clients have two workers: {serves}")
    for task in Path(f"/proc/{server.pid}/task").iterdir():
        slow = (task / "comm").read_text().strip() == f"worker-{serves['alice']}"
        os.sched_setaffinity(int(task.name), cpus[:1] if slow else cpus[1:])
        if slow:
            os.sched_setscheduler(int(task.name), os.SCHED_IDLE, os.sched_param(0))  # others always have more to do
    with contextlib.suppress(OSError):  # where sessions share CPUs as sessions, the priority of a thread says nothing
        Path(f"/proc/{server.pid}/autogroup").write_text("19")
    for _ in range(4):
        hog = t.start(sys.executable, "-c", "import time\nwhile time.monotonic() < %r: pass" % (time.monotonic() + 60))  # ends whatever becomes of the test
        os.sched_setaffinity(hog.pid, cpus[:1])
    # In a second in which it has a CPU now and then, it answers all that came at once, and its client seems to pause.
    said = why(t, server, "worker", f"worker {serves['alice']}, which serves /alice, has no time left", "it waits for a CPU", times=12)
    contains(said["says"], f"worker {serves['bob']} ")


if __name__ == "__main__":
    main()
