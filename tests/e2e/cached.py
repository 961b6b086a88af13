"""Reads through the page cache: what it answers is no work of the disk, is counted, and `why` tells which tenant pushes out what others had."""

from control import Control
from harness import *
from metrics import samples, scrape
from why import Load

SIZE = 32 * MIB
BLOCK = 64 * KIB


def forget(*paths):
    """The page cache has nothing of these files."""
    for path in paths:
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def images(t, *names):
    paths = [t.image(f"{name}.img", SIZE, (0, data(SIZE, name))) for name in names]
    if subprocess.run(["stat", "-f", "-c", "%T", paths[0]], capture_output=True, text=True).stdout.strip() in ("tmpfs", "overlayfs"):
        raise Skip("these files have no page cache above a disk")
    return paths


def config(backings, disk='scheduler = "fair"'):
    groups = "".join(f'[group."/{name}"]\n' for name in backings)
    return f"[disk.d]\n{disk}\n{groups}" + "".join(
        f'[export.{name}]\nbacking = "{backing}"\ndisk = "d"\ngroup = "/{name}"\n' for name, backing in backings.items())


def cache(control, tenant):
    """How many reads the page cache answered, how many it did not, and the seconds of the disk that the tenant had."""
    found = samples(scrape(control)[0])
    labels = f'disk="d",tenant="/{tenant}"'
    return [found.get((f"fairlift_tenant_{name}_total", labels), 0) for name in ("cached_reads", "missed_reads", "device_seconds")]


def read_all(client):
    for at in range(0, SIZE, BLOCK):
        client.read(at, BLOCK)


@test(fairlift_only=True)
def what_the_page_cache_answers_is_counted_and_takes_nothing_of_the_disk(t):
    base, plain = images(t, "base", "plain")
    forget(base, plain)
    backings = {
        "plain": f"file:{plain},direct=off",
        "alice": f"overlay:base={base},top={t.path('alice.top')}",
        "bob": f"overlay:base={base},top={t.path('bob.top')}",
        "carol": f"overlay:base={base},top={t.path('carol.top')},base_direct=on",
    }
    server = t.server(config=config(backings))
    control = Control(t, server)
    for name, first in (("plain", False), ("alice", False), ("bob", True)):
        with server.connect(name) as client:
            client.read(0, 512)  # which opens its files
            start = cache(control, name)
            read_all(client)
            hits, misses, had = (now - then for now, then in zip(cache(control, name), start))
            wanted = SIZE // BLOCK
            # The first block was read before, in part or whole.
            assert (hits >= wanted - 1) if first else (misses >= wanted - 1), f"{name}: {hits} of {wanted} were cached, {misses} not"
            equal(hits + misses, wanted, f"{name}: all of its reads")
            if first:
                equal(had, 0, f"{name}: the seconds of the disk for what alice had read")
            read_all(client)
            again = [now - then for now, then in zip(cache(control, name), start)]
            equal(again[:2], [hits + wanted, misses], f"{name}: all are cached by now")
            equal(again[2], had, f"{name}: the seconds of the disk")
            content = data(SIZE, "plain" if name == "plain" else "base")
            equal(client.read(0, SIZE // 2) + client.read(SIZE // 2, SIZE // 2), content, f"{name}: what is read")
    with server.connect("carol") as client:
        client.read(0, 512)
        read_all(client)
    equal(cache(control, "carol")[:2], [0, 0], "reads past the page cache")
    status = json.loads(control.cli("status", "--json", "--seconds=0.2"))
    assert all({"cached_iops", "missed_iops", "missed_bps"} <= set(tenant) for tenant in status["tenants"]), status["tenants"]


@test(fairlift_only=True)
def a_read_that_is_cached_in_part_counts_as_missed(t):
    base, = images(t, "base")
    server = t.server(config=config({"alice": f"overlay:base={base},top={t.path('alice.top')}"}))
    control = Control(t, server)
    with server.connect("alice") as client:
        client.read(0, 512)
        forget(base)
        client.read(0, 4 * KIB)
        start = cache(control, "alice")
        equal(client.read(0, BLOCK), data(SIZE, "base")[:BLOCK])
        equal([now - then for now, then in zip(cache(control, "alice"), start)][:2], [0, 1], "4 of 64 KiB were there")
        # What is in the top is read past the cache, and with it the read that has a part there.
        client.write(0, bytes(4 * KIB))
        start = cache(control, "alice")
        equal(client.read(0, BLOCK), bytes(4 * KIB) + data(SIZE, "base")[4 * KIB:BLOCK])
        equal([now - then for now, then in zip(cache(control, "alice"), start)][:2], [0, 0], "a part is in the top")


@test(fairlift_only=True)
def a_ceiling_counts_reads_that_the_page_cache_answers(t):
    base, = images(t, "base")
    said = config({"alice": f"file:{base},direct=off"})
    server = t.server(config=said.replace('[group."/alice"]\n', '[group."/alice"]\nmax = { riops = 200 }\n'))
    with server.connect("alice") as client:
        read_all(client)
        start = time.monotonic()
        read_all(client)
        took = time.monotonic() - start
    assert took > 0.8 * SIZE / BLOCK / 200, f"{SIZE // BLOCK} reads at 200 a second took {took:.2f} s"


@test(fairlift_only=True)
def why_tells_which_tenant_pushes_out_of_the_page_cache_what_others_had(t):
    base, large = images(t, "base", "large")
    server = t.server(config=config({"alice": f"file:{base},direct=off", "bob": f"file:{large},direct=off"}))
    control = Control(t, server)
    with server.connect("alice") as client:
        for _ in range(4):
            read_all(client)
    alice = Load(t, server, "alice", pause=0.002)
    equal(json.loads(control.cli("why", "alice", "--seconds=0.5", "--json"))["cache"], None, "all is well")
    # Memory that runs short is staged: what is there goes, again and again.
    stopped = threading.Event()
    t.defer(stopped.set)

    def forgets():
        while not stopped.wait(0.01):
            forget(base, large)

    threading.Thread(target=forgets, daemon=True).start()
    Load(t, server, "bob", 4, size=BLOCK)

    def look():
        said = json.loads(control.cli("why", "alice", "--seconds=0.5", "--json"))["cache"] or ""
        contains(said, "the page cache answers ", "and answered ", "/bob reads ", "base_direct=on")
        said = control.cli("why", "bob", "--seconds=0.5")
        contains(said, "its reads pass through the page cache", "evict the data of /alice", "base_direct=on")

    again(look)
    assert not alice.stopped
