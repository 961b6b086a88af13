"""Gateways before a Ceph cluster, which tell each other of their shares by an object of its pool. benches/gateways.py measures them."""

from ceph import Cluster
from control import Control
from harness import *

OBJECT = "fairlift.shares"


def shares(cluster, pool="rbd", options=""):
    return f"rados:{pool}/{OBJECT},conf={cluster.dir}/ceph.conf{options}"


def gateway(t, cluster, name, exports, where=None, backing=None, more="", depth=64):
    """A gateway whose tenants have images of the pool, unless it is told of another backing."""
    backing = backing or (lambda export: cluster.backing(export, ",timeout=60s"))
    where = shares(cluster) if where is None else where
    config = f'[server]\ngateway = "{name}"\n[disk.pool]\nscheduler = "fair"\ndepth = {depth}\nio_timeout = "60s"\n'
    config += f'shares = "{where}"\n' if where else ""
    for export in exports:
        config += f'[export.{export}]\nbacking = "{backing(export)}"\ndisk = "pool"\ngroup = "/{export}"\n'
    return t.server(config=config + more)


def pool_of(t, server):
    return Control(t, server).ask("GET", "/v1/gateways")[0]


def seen(t, server):
    return {row["name"]: row for row in pool_of(t, server)["gateways"]}


@test(fairlift_only=True, seconds=150)
def gateways_meet_in_an_object_of_a_pool_whatever_becomes_of_it(t):
    cluster = Cluster(t)
    rados = lambda *words: t.run("rados", "-p", "rbd", *words, env=cluster.env)
    for where, says in [
        (shares(cluster, "none"), 'the cluster has no pool "none"'),
        (shares(cluster, options=",user=nobody"), "client.nobody"),
        (f"rados:rbd/x,conf={t.path('nothing')}", "the configuration of Ceph"),
    ]:
        Path(t.path("wrong.toml")).write_text(f'[disk.pool]\nshares = "{where}"\n[export.a]\nbacking = "mem:1m"\ndisk = "pool"\n')
        contains(t.serve_fails("--config", t.path("wrong.toml"), seconds=40), says)
    memory = lambda export: "mem:1m"
    one, two = (gateway(t, cluster, name, export, backing=memory) for name, export in [("gw1", "a"), ("gw2", "b")])
    for here in (one, two):
        until(lambda: sorted(seen(t, here)) == ["gw1", "gw2"], "each gateway hears of the other")
    contains(rados("listomapkeys", OBJECT), "gw1", "gw2")
    contains(Control(t, one).cli("gateways"), "gw1", "gw2", "GATEWAY", "this is gw1")

    # A report that is none, and a key that no gateway can have, are left out.
    rados("setomapval", OBJECT, "gw3", "nonsense")
    rados("setomapval", OBJECT, "a/b", "nonsense")
    until(lambda: "gw3" in one.log(), "what cannot be read is told of")
    equal(sorted(seen(t, one)), ["gw1", "gw2"], "gateways")
    rados("rmomapkey", OBJECT, "gw3")

    # The cluster hangs: gateways serve on, and say so.
    os.kill(cluster.osd(), signal.SIGSTOP)
    until(lambda: pool_of(t, one)["trouble"] and pool_of(t, two)["trouble"], "what hangs is told of")
    one.serves("a")
    contains(Control(t, one).cli("status"), "does not hear the others")
    os.kill(cluster.osd(), signal.SIGCONT)
    until(lambda: not pool_of(t, one)["trouble"] and not pool_of(t, two)["trouble"], "they are heard of again")

    # Somebody removes the object: it is made again.
    rados("rm", OBJECT)
    until(lambda: OBJECT in rados("ls") and {"gw1", "gw2"} <= set(rados("listomapkeys", OBJECT).split()), "both have told again")

    two.kill()
    until(lambda: (row := seen(t, one).get("gw2")) and row["wrong"], "the one that was killed is gone")
    gateway(t, cluster, "gw2", "b", backing=memory)
    until(lambda: not seen(t, one)["gw2"]["wrong"], "it is back")


if __name__ == "__main__":
    main()
