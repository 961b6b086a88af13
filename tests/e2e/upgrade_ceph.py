"""Another server takes over from one with images of a Ceph cluster: both have an image open for a while, and its lock changes hands once."""

from ceph import Cluster
from harness import *
from nbdclient import *
from upgrade import BLOCK, goes_on, load, new_side, percentile, shows, turns_down, upgrade

UPGRADES = 40 if FULL else 6
FEATURES = {"locked": "layering,exclusive-lock,object-map,fast-diff", "plain": "layering"}


def watchers(cluster, image):
    return cluster.rbd("status", image).count("watcher=")


@test(seconds=300, fairlift_only=True)
def upgrades_under_load_lose_nothing_of_images_with_a_lock_and_without(t):
    cluster = Cluster(t)
    for name, features in FEATURES.items():
        cluster.rbd("create", "-s", "16M", "--image-feature", features, name)
    listen = [f"unix:{t.path('s0')}", f"tcp:127.0.0.1:{free_port()}"]
    server = t.server(*(f"{name}={cluster.backing(name)}" for name in FEATURES), listen=listen, args=["--workers", "2"])
    loads = {name: load(server, name, 256) for name in FEATURES}
    every, pauses = [one for some in loads.values() for one in some], {name: [] for name in FEATURES}
    goes_on(every, 20)
    for _ in range(UPGRADES):
        [one.longest() for one in every]
        upgrade(server)
        goes_on(every, 20)
        for name, some in loads.items():
            pauses[name].append(1000 * max(one.longest() for one in some))
    away = 1000 * max(one.longest() for one in every if not time.sleep(0.5))
    for one in every:
        one.end()
    equal(server.log().count("connected"), 0, "reconnects")
    for name, some in loads.items():
        with server.connect(name) as client:
            client.flush()
            shows(client, some)
        equal(watchers(cluster, name), 1, f"watchers of {name}: the servers before have closed it")
        figure(f"upgrade: {UPGRADES} with an image ({name}), longest pause of a client: median {percentile(pauses[name], 0.5):.0f} ms, "
               f"most {max(pauses[name]):.0f} ms; away from upgrades {away:.0f} ms")
    server.stop()
    for name, some in loads.items():
        cluster.rbd("export", name, t.path(name))
        there = Path(t.path(name)).read_bytes()
        for one in some:
            wrong = [block for block, wanted in one.known.items() if there[block * BLOCK:(block + 1) * BLOCK] != wanted]
            equal(wrong, [], f"blocks of {name} that are not as they were written")


@test(seconds=200, fairlift_only=True)
def writes_before_an_upgrade_are_in_the_cluster_and_each_side_may_die(t):
    cluster = Cluster(t)
    cluster.rbd("create", "-s", "16M", "--image-feature", FEATURES["locked"], "one")
    t.run("ceph", "config", "set", "osd", "osd_client_watch_timeout", "12", env=cluster.env)
    config = f'[disk.pool]\nio_timeout = "90s"\n[export.one]\ndisk = "pool"\nbacking = "{cluster.backing("one", ",timeout=90s")}"\n'
    server = t.server(config=config)
    with server.connect("one", timeout=90) as client:
        client.write(0, data(BLOCK, 1))
        upgrade(server, "--dry-run")
        equal(watchers(cluster, "one"), 1, "watchers after a look")

        for says in {"why": "it is too warm here"}, None:
            turns_down(server, says)
            client.write(BLOCK, data(BLOCK, 2))  # the old one takes the lock again
            equal(client.read(0, 2 * BLOCK), data(BLOCK, 1) + data(BLOCK, 2), "at the old server")

        upgrade(server)
        cluster.rbd("export", "one", t.path("one"))
        equal(Path(t.path("one")).read_bytes()[:2 * BLOCK], data(BLOCK, 1) + data(BLOCK, 2), "the cluster, before the new server has flushed")
        client.write(2 * BLOCK, data(BLOCK, 3))
        client.flush()
        # The new one dies: as after any crash the cluster waits for its watch to end.
        server.kill()
    began = time.monotonic()
    with t.server(config=config).connect("one", timeout=90) as client:
        client.write(3 * BLOCK, data(BLOCK, 4), flags=1)
        figure(f"upgrade: the first write after a new server was killed: {time.monotonic() - began:.1f} s (osd_client_watch_timeout 12 s)")
        equal(client.read(0, 4 * BLOCK), b"".join(data(BLOCK, n) for n in range(1, 5)), "what was flushed")


@test(seconds=200, fairlift_only=True)
def a_cluster_that_hangs_makes_an_upgrade_fail_and_the_old_server_goes_on(t):
    cluster = Cluster(t)
    cluster.rbd("create", "-s", "16M", "--image-feature", FEATURES["locked"], "one")
    server = t.server(f"one={cluster.backing('one')}", "beside=mem:1m")
    with server.connect("one", timeout=60) as client, server.connect("beside", timeout=30) as beside:
        client.write(0, data(BLOCK, 1))
        client.flush()
        peer = new_side(server)
        client.write(BLOCK, data(BLOCK, 2))
        os.kill(cluster.osd(), signal.SIGSTOP)
        try:
            peer.send("ready")
            began = time.monotonic()
            beside.read(0, BLOCK)
            took = time.monotonic() - began
        finally:
            os.kill(cluster.osd(), signal.SIGCONT)
        equal(peer.until("off")[-1][0]["message"], "off", "what the old server says")
        peer.leave()
        equal(took < 5, True, f"whether others were served again after 2 s ({took:.1f} s)")
        client.write(2 * BLOCK, data(BLOCK, 3))
        client.flush()
        equal(client.read(0, 3 * BLOCK), b"".join(data(BLOCK, n) for n in range(1, 4)), "at the old server")
        upgrade(server)
        equal(client.read(0, 3 * BLOCK), b"".join(data(BLOCK, n) for n in range(1, 4)), "at the new one")
        client.write(0, data(BLOCK, 5), flags=1)


@test(seconds=200, fairlift_only=True)
def a_gateway_is_upgraded_under_its_own_name(t):
    cluster = Cluster(t)
    cluster.rbd("create", "-s", "16M", "one")
    server = t.server(config=f"""
        [server]
        gateway = "gw1"
        [disk.pool]
        scheduler = "fair"
        shares = "rados:rbd/shares,conf={cluster.dir}/ceph.conf"
        [export.one]
        disk = "pool"
        backing = "{cluster.backing('one')}"
        """)
    with server.connect("one", timeout=30) as client:
        client.write(0, data(BLOCK, 1))
        for number in range(2):
            upgrade(server)
            equal(client.read(0, BLOCK), data(BLOCK, 1))
            client.write(BLOCK, data(BLOCK, number), flags=1)
        until(lambda: "gw1" in server.control("gateways"), "it is heard of")
    equal([word for word in ("two gateways", "is left out") if word in server.log()], [], "trouble in the log")


if __name__ == "__main__":
    main()
