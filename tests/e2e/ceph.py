"""Images of a Ceph cluster: a cluster of one node is started for each test, where Ceph's packages are installed.

    apt-get install --no-install-recommends ceph-mon ceph-osd ceph-mgr ceph-common librbd1
"""

from harness import *
from nbdclient import *


class Cluster:
    def __init__(self, t):
        missing = [name for name in ("ceph-mon", "ceph-osd", "ceph-mgr", "rbd") if not shutil.which(name)]
        if missing:
            t.skip(f"there is no {', '.join(missing)}: Debian has them in ceph-mon, ceph-osd, ceph-mgr and ceph-common")
        self.t, self.dir = t, t.path("ceph")
        self.env = {**os.environ, "D": self.dir, "SIZE": "4G", "CEPH_CONF": f"{self.dir}/ceph.conf"}
        t.defer(self.command, "stop")
        for _ in range(3):
            self.env["PORT"] = str(free_port(2))
            said = self.command("start")
            if os.path.exists(f"{self.dir}/osd.pid"):
                return
            if "Address already in use" not in said:
                break
        raise AssertionError(f"the cluster did not start: {said[-2000:]}")

    def command(self, word):
        return self.t.run(ROOT / "tests/ceph/minicluster.sh", word, env=self.env, seconds=90, code=None)

    def rbd(self, *words, code=0):
        return self.t.run("rbd", *words, env=self.env, code=code)

    def backing(self, image, options=""):
        return f"rbd:rbd/{image},conf={self.dir}/ceph.conf{options}"

    def osd(self):
        return int(Path(f"{self.dir}/osd.pid").read_text())


@test(fairlift_only=True, seconds=150)
def an_image_is_served_with_its_snapshots_and_its_size_and_bad_ones_are_named(t):
    cluster = Cluster(t)
    cluster.rbd("create", "-s", "64M", "one")
    here = t.server(f"one={cluster.backing('one')}")
    piece = data(3 * MIB)
    with here.connect("one") as client:
        equal(client.size, 64 * MIB)
        client.write(MIB, piece)
        equal(client.read(MIB, len(piece)), piece)
        client.zero(MIB, 64 * KIB)
        client.trim(2 * MIB, 64 * KIB)
        client.write(0, b"f" * 4096, flags=1)  # FUA
        client.flush()
        equal(client.read(MIB, 64 * KIB), bytes(64 * KIB))
    exported = t.path("export")
    cluster.rbd("export", "one", exported)
    with open(exported, "rb") as file:
        equal(file.read(4096), b"f" * 4096, "what rbd itself reads")
    cluster.rbd("snap", "create", "one@then")
    cluster.rbd("resize", "-s", "128M", "one")
    size = lambda: json.loads(here.control("get", "export", "one", "--json"))["size"]
    until(lambda: size() == 128 * MIB, "the gateway is told that the image has grown")
    here.control("add", "export", f"then={cluster.backing('one@then')}")
    with here.connect("one") as client, here.connect("then") as then:
        equal((client.size, then.size, then.read_only), (128 * MIB, 64 * MIB, True))
        client.write(100 * MIB, b"g" * 4096)
        client.write(0, b"n" * 4096)
        client.flush()
        equal(client.read(100 * MIB, 4096), b"g" * 4096)
        equal(then.read(0, 4096), b"f" * 4096, "the snapshot")
    for backing, says in [
        (f"rbd:nopool/x,conf={cluster.dir}/ceph.conf", 'no pool "nopool"'),
        (cluster.backing("none"), "no such image"),
        (cluster.backing("one", ",user=nobody"), "client.nobody"),
        (f"rbd:rbd/one,conf={t.path('nothing')}", "the configuration of Ceph"),
    ]:
        contains(t.serve_fails(f"x={backing}", seconds=40), says)
    conf = re.sub("mon host = .*", "mon host = v1:127.0.0.1:1", Path(f"{cluster.dir}/ceph.conf").read_text())
    Path(t.path("away.conf")).write_text(conf)
    contains(t.serve_fails(f"x=rbd:rbd/one,conf={t.path('away.conf')}", seconds=60), "no monitor")


@test(fairlift_only=True, seconds=200)
def an_osd_that_stops_and_is_killed_under_load_is_sat_out_and_a_file_beside_it_goes_on(t):
    cluster = Cluster(t)
    cluster.rbd("create", "-s", "64M", "one")
    image = t.image("image", 16 * MIB)
    here = t.server(f"one={cluster.backing('one')}", f"beside=file:{image}")
    stop, rounds, slowest = threading.Event(), [0] * 3, [0.0] * 3

    def load(number, export):
        def go():
            with here.connect(export, timeout=90) as client:
                while not stop.is_set():
                    piece = data(16384, number, rounds[number])
                    start = time.monotonic()
                    client.write(number * MIB, piece, flags=1)
                    equal(client.read(number * MIB, 16384), piece)
                    slowest[number] = max(slowest[number], time.monotonic() - start)
                    rounds[number] += 1
        return go

    def trouble():
        try:
            until(lambda: min(rounds) > 20, "the load goes on")
            osd = cluster.osd()
            os.kill(osd, signal.SIGSTOP)
            before = rounds[2]
            time.sleep(3)
            if rounds[2] < before + 50:
                raise AssertionError(f"the file beside it made {rounds[2] - before} rounds in 3 s")
            os.kill(osd, signal.SIGKILL)
            time.sleep(0.5)
            t.run("ceph-osd", "-i", "0", env=cluster.env, seconds=60)
            before = list(rounds)
            until(lambda: all(now > then + 20 for now, then in zip(rounds, before)), "the load goes on", 90)
        finally:
            stop.set()

    at_once(trouble, load(0, "one"), load(1, "one"), load(2, "beside"))
    print(f"rounds {rounds}, the slowest {[round(s, 2) for s in slowest]} s")
    if slowest[0] < 3:
        raise AssertionError("the cluster was never away: this proves nothing")


@test(fairlift_only=True, seconds=150)
def what_lies_beyond_the_end_of_an_image_that_was_made_smaller_fails(t):
    """librbd cuts such requests and says that they are done: stale memory would be read, and writes be lost."""
    cluster = Cluster(t)
    cluster.rbd("create", "-s", "64M", "one")
    here = t.server(f"one={cluster.backing('one')}", "beside=mem:64M")
    with here.connect("one") as client:
        client.write(28 * MIB, data(8 * MIB))
        client.flush()
        cluster.rbd("resize", "--allow-shrink", "-s", "32M", "one")
        for offset, length in [(32 * MIB - 4096, 8192), (28 * MIB, 8 * MIB), (40 * MIB, 4096)]:
            with refused(EIO, EINVAL):
                client.read(offset, length)
            with refused(EIO, EINVAL):
                client.write(offset, bytes(length))
        client.write(MIB, data(MIB))
        equal(client.read(MIB, MIB), data(MIB), "what there is goes on")


@test(fairlift_only=True, seconds=150)
def a_full_pool_fails_writes_in_time_and_an_image_that_is_served_is_not_deleted(t):
    cluster = Cluster(t)
    cluster.rbd("create", "-s", "64M", "one")
    here = t.server(f"one={cluster.backing('one', ',timeout=3s')}", "beside=mem:1M")
    ceph = lambda *words: t.run("ceph", *words, env=cluster.env, code=0)
    is_full = lambda: "full_quota" in ceph("osd", "pool", "ls", "detail")
    with here.connect("one", timeout=60) as client:
        client.write(0, data(16 * MIB))
        client.flush()
        ceph("osd", "pool", "set-quota", "rbd", "max_bytes", str(8 * MIB))
        until(is_full, "the pool is full", 60)
        with refused(EIO, ENOSPC):
            # In librbd's cache there may be room for the first ones; a flush says so then.
            for number in range(8):
                client.write((20 + number) * MIB, data(MIB, number), flags=1)
        equal(client.read(0, 16 * MIB), data(16 * MIB), "what was there")
        here.serves("beside")
        cluster.rbd("rm", "one", code=16)  # it has watchers
        equal(client.read(0, 4096), data(16 * MIB)[:4096])
    here.seen_to_end = True
    here.process.terminate()
    here.process.wait(60)


@test(fairlift_only=True, seconds=150)
def an_image_is_let_go_of_under_load_and_comes_back(t):
    cluster = Cluster(t)
    cluster.rbd("create", "-s", "64M", "one")
    here = t.server("beside=mem:1M", args=["--workers", "2"])
    for _ in range(5):
        here.control("add", "export", f"one={cluster.backing('one')}")
        rounds = [0] * 4

        def load(number):
            def go():
                with contextlib.suppress(NbdError, OSError, EOFError, Closed), here.connect("one") as client:
                    while True:
                        # Apart from each other, or they become a few large requests.
                        cookies = [client.submit(1, (number * 16 + n) * 131072, 65536, bytes(65536)) for n in range(16)]
                        for _ in cookies:
                            client.reply()
                        rounds[number] += 1
            return go

        def remove():
            until(lambda: min(rounds) > 3, "the load goes on")
            osd = cluster.osd()
            os.kill(osd, signal.SIGSTOP)
            until(lambda: in_flight(here) >= 32, "both workers wait for the cluster")
            here.control("remove", "export", "one", "--now")
            os.kill(osd, signal.SIGCONT)
            until(lambda: not json.loads(here.control("get", "server", "--json"))["leaving"], "it is let go of")

        at_once(remove, *map(load, range(4)))
    here.serves("beside")


@test(fairlift_only=True, seconds=200)
def another_gateway_takes_over_from_one_that_was_killed(t):
    cluster = Cluster(t)
    cluster.rbd("create", "-s", "64M", "--image-feature", "layering,exclusive-lock", "one")
    # The cluster takes a client for dead when its watch has not been renewed for 30 s by default; a client renews every 5 s.
    t.run("ceph", "config", "set", "osd", "osd_client_watch_timeout", "12", env=cluster.env)
    config = f'[disk.pool]\nio_timeout = "90s"\n[export.one]\ndisk = "pool"\nbacking = "{cluster.backing("one", ",timeout=90s")}"\n'
    first = t.server(config=config)
    piece = data(MIB)
    with first.connect("one") as client:
        client.write(0, piece)
        client.flush()
        first.kill()
    start = time.monotonic()
    second = t.server(config=config)
    with second.connect("one", timeout=90) as client:
        equal(client.read(0, MIB), piece, "what was flushed")
        client.write(0, b"2" * 4096, flags=1)
        took = time.monotonic() - start
        equal(client.read(0, 4096), b"2" * 4096)
    print(f"taken over in {took:.1f} s")
    blocked = t.run("ceph", "osd", "blocklist", "ls", env=cluster.env)
    contains(blocked, "listed 1 entr")


if __name__ == "__main__":
    main()
