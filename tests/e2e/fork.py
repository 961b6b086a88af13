"""`fairlift fork`: a disk that is what another one is at one instant, made while that is written."""

import contextlib
import struct
import threading

from control import Control
from harness import *
from nbdclient import NbdError

SIZE = 8 * MIB
WHOLE = data(SIZE)


def served(t, *exports):
    t.image("base.img", SIZE, (0, WHOLE))
    return t.server(*(f"{name}=overlay:base={t.path('base.img')},top={t.path(name)}.top" for name in exports or ("a",)))


class Counter(threading.Thread):
    """A client that writes 1, 2, 3 … to the blocks in turn, each when the one before has been answered."""

    BLOCKS = 100

    def __init__(self, server, export="a"):
        super().__init__()
        self.server, self.export, self.done, self.ends, self.failure = server, export, 0, False, None
        self.start()

    def run(self):
        try:
            with self.server.connect(self.export) as client:
                while not self.ends:
                    client.write((self.done % self.BLOCKS) * 4096, struct.pack("<Q", self.done + 1) * 512)
                    self.done += 1
        except Exception as failure:  # the test tells of it
            self.failure = failure

    def stop(self):
        self.ends = True
        self.join()
        if self.failure:
            raise self.failure


def count_of(client):
    """How many writes of a `Counter` a disk has, all of them and no later one."""
    found = [client.read(block * 4096, 4096) for block in range(Counter.BLOCKS)]
    values = [struct.unpack("<Q", one[:8])[0] if one != WHOLE[at * 4096:][:4096] else 0 for at, one in enumerate(found)]
    latest = max(values)
    for block, value in enumerate(values):
        wanted = max((n for n in range(max(1, latest - Counter.BLOCKS + 1), latest + 1) if (n - 1) % Counter.BLOCKS == block), default=0)
        equal(value, wanted, f"block {block} of a disk after {latest} writes")
        if value:
            equal(found[block], struct.pack("<Q", value) * 512, f"block {block}, all of it")
    return latest


def forked_while_written(t, server):
    """Six forks of an export, each with what had been answered; the writer, stopped, and how many writes each fork has."""
    writer = Counter(server)
    t.defer(writer.stop)
    counts = []
    for number in range(6):
        until(lambda: writer.done > 50 + 70 * number or writer.failure, "writes have been answered", 60)
        before = writer.done
        contains(server.control("fork", "a", f"f{number}"), f'export "f{number}": added')
        after = writer.done + 1  # one may have been answered, and not be counted yet
        with server.connect(f"f{number}") as client:
            counts.append(count_of(client))
        assert before <= counts[-1] <= after, f"{before} writes were answered before the fork, {after} after it; it has {counts[-1]}"
    writer.stop()
    return writer, counts


@test(fairlift_only=True)
def a_fork_has_what_was_answered_before_and_nothing_later(t):
    server = served(t)
    writer, counts = forked_while_written(t, server)
    for number, count in enumerate(counts):
        with server.connect(f"f{number}") as client:
            equal(count_of(client), count, "a fork while its parent went on")
    with server.connect("a") as client:
        equal(count_of(client), writer.done, "the parent")
    contains(server.control("fork", "a", "late"), "added")
    server.kill()
    # The next server has the same, by the words of the first.
    server = t.server(f"a=overlay:base={t.path('base.img')},top={t.path('a.top')}",
                      *(f"f{number}=overlay:top={t.path(f'f{number}.top')}" for number in range(6)))
    for number, count in enumerate(counts):
        with server.connect(f"f{number}") as client:
            equal(count_of(client), count, "a fork after a kill: what it was forked from was durable")


FAILS_ONCE = """
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
int fdatasync(int file) {
    if (unlink(getenv("FAIL_ONCE")) == 0) { errno = EIO; return -1; }
    return syscall(SYS_fdatasync, file);
}
"""


@test(fairlift_only=True)
def what_a_fork_is_told_was_lost_fails_the_next_flush_and_forks_until_that_is_acknowledged(t):
    source, library, fails = (Path(t.path(name)) for name in ("fails.c", "fails.so", "fail"))
    source.write_text(FAILS_ONCE)
    t.run("cc", "-shared", "-fPIC", "-o", str(library), str(source))
    t.image("base.img", SIZE, (0, WHOLE))
    server = t.server(f"a=overlay:base={t.path('base.img')},top={t.path('a.top')}",
                      env={"LD_PRELOAD": str(library), "FAIL_ONCE": str(fails)})
    with server.connect("a") as client:
        client.write(0, data(4096))
        fails.touch()
        contains(server.control("fork", "a", "b", code=1), "its top cannot be made durable: Input/output error")
        equal(sorted(name for name in os.listdir(t.path(".")) if ".top" in name), ["a.top"], "what is left of a fork that failed")
        with refused(errno.EIO):
            client.flush()
        contains(server.control("fork", "a", "b", code=1), "a flush of it failed", "fairlift acknowledge")
        server.control("acknowledge")
        contains(server.control("fork", "a", "b"), "added")
        client.flush()


@test(fairlift_only=True)
def forks_of_forks_see_nothing_of_each_other(t):
    server = served(t)
    wanted = {"a": bytearray(WHOLE)}

    def write(name, n):
        offset = t.random.randrange(SIZE - 9000)
        piece = data(t.random.choice([512, 4096, 9000]), name, n)
        with server.connect(name) as client:
            client.write(offset, piece)
        wanted[name][offset:offset + len(piece)] = piece

    for n in range(10):
        of = t.random.choice(list(wanted))
        write(of, n)
        server.control("fork", of, f"x{n}")
        wanted[f"x{n}"] = bytearray(wanted[of])
        for name in list(wanted):
            if t.random.random() < 0.6:
                write(name, n)
    for name, content in wanted.items():
        with server.connect(name) as client:
            equal(client.read(0, SIZE), bytes(content), f"the disk of {name}")
    # One that goes takes nothing with it.
    server.control("remove", "export", "a")
    with server.connect("x0") as client:
        equal(client.read(0, SIZE), bytes(wanted["x0"]), "a fork of what is gone")


@test(fairlift_only=True)
def many_forks_of_what_nobody_has_written_lie_over_the_base(t):
    server = served(t)
    for n in range(100):
        server.control("fork", "a", f"x{n}")
    assert not os.path.exists(t.path("a.top.1")), "nothing was written, and nothing is frozen"
    for name in "x0", "x57", "x99":
        with server.connect(name) as client:
            client.write(0, data(4096, name))
            equal(client.read(4096, 65536), WHOLE[4096:][:65536], "what the base has")
    with server.connect("x58") as client:
        equal(client.read(0, 4096), WHOLE[:4096], "a disk that nobody wrote")
    contains(t.run(BINARY, "overlay", "info", t.path("x99.top")), "base.img")


@test(fairlift_only=True)
def a_fork_of_what_is_being_removed_is_made_or_refused_and_forks_of_forks_of_it_read_what_it_was(t):
    server = served(t)
    env = {**os.environ, "FAIRLIFT_CONTROL": f"unix:{server.socket}.control.sock"}
    wanted = bytearray(WHOLE)
    for number, (name, fork) in enumerate((("a", "x0"), ("x0", "x1"), ("x1", "x2"), ("x2", "x3"))):
        client = server.connect(name)
        client.write(number * 4096, data(4096, number))
        wanted[number * 4096:(number + 1) * 4096] = data(4096, number)
        server.control("fork", name, fork)
        for _ in range(20):
            client.submit(nbdclient.READ, 0, 65536)
        # Its client is there, and so is what it asked for.
        removing = subprocess.Popen([BINARY, "remove", "export", name], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        forking = subprocess.run([BINARY, "fork", name, f"late{number}"], env=env, capture_output=True, text=True)
        client.close()
        removing.wait(60)
        if forking.returncode:
            contains(forking.stderr, f'there is no export "{name}"')
        for one in [fork] + ([f"late{number}"] if forking.returncode == 0 else []):
            with server.connect(one) as client:
                equal(client.read(0, SIZE), bytes(wanted), f"{one}, a fork of {name}, which has gone")


@test(fairlift_only=True)
def a_fork_of_what_is_being_replaced_is_of_the_one_or_of_the_other(t):
    server, other = served(t), bytes(WHOLE[::-1])
    t.image("other.img", SIZE, (0, other))
    ends, made = threading.Event(), []

    def replace():
        for number in range(1000):
            if ends.is_set():
                return
            below = ("other.img", "base.img")[number % 2]
            server.control("remove", "export", "a")
            server.control("add", "export", f"a=overlay:base={t.path(below)},top={t.path(f'top{number}')}")

    replacing = threading.Thread(target=replace)
    replacing.start()
    try:
        for number in range(400):
            if len(made) == 10:
                break
            env = {**os.environ, "FAIRLIFT_CONTROL": f"unix:{server.socket}.control.sock"}
            forking = subprocess.run([BINARY, "fork", "a", f"x{number}"], env=env, capture_output=True, text=True)
            if forking.returncode == 0:
                made.append(f"x{number}")
            else:
                contains(forking.stderr, '"a"')
    finally:
        ends.set()
        replacing.join()
    equal(len(made), 10, "forks that were made")
    for name in made:
        with server.connect(name) as client:
            found = client.read(0, SIZE)
            assert found in (WHOLE, other), f"{name} is neither"


@test(fairlift_only=True)
def forks_without_end_are_refused_where_descriptors_end_and_the_others_go_on(t):
    t.image("base.img", SIZE, (0, WHOLE))
    server = t.server(f"a=overlay:base={t.path('base.img')},top={t.path('a.top')}", wrap=("prlimit", "--nofile=256:256"))
    control, made = Control(t, server), 1
    control.cli("fork", "a", "x0")
    clients = {name: server.connect(name) for name in ("a", "x0")}
    while True:
        try:
            control.ask("POST", "/v1/exports/a/fork", {"name": f"x{made}"})
        except AssertionError as refusal:
            contains(str(refusal), "ulimit -n")
            break
        made += 1
        assert made < 256, "each takes a descriptor"
    assert made > 50, f"{made} forks"
    for name, client in clients.items():
        client.write(0, data(4096, name))
        equal(client.read(0, 8192), data(4096, name) + WHOLE[4096:8192], f"{name} goes on")
        client.close()
    for gone in range(1, 9):
        server.control("remove", "export", f"x{gone}")
    with server.connect(f"x{made - 1}") as client:
        equal(client.read(0, 4096), WHOLE[:4096], "the last one that was made")
    server.control("fork", "a", "again")


@test(fairlift_only=True)
def what_is_no_overlay_or_is_taken_is_refused_with_what_to_do(t):
    t.image("plain.img", MIB)
    t.image("base.img", SIZE, (0, WHOLE))
    t.image("bare", MIB)
    server = t.server(f"a=overlay:base={t.path('base.img')},top={t.path('a.top')}", f"p={t.path('plain.img')}", "m=mem:1m", f"q={t.path('bare')}")
    fails = lambda *words: server.control("fork", *words, code=1)
    for name, why in ("p", "copies by reference (XFS, btrfs), and this one does not"), ("m", "only an overlay can be forked, and a file"):
        contains(fails(name, "x"), why, "overlay:base=PATH,top=PATH")
    contains(fails("none", "x"), 'there is no export "none"')
    # By such a name another file would be opened: here the original.
    for words in ("q", "bare,shared"), ("q", "x,direct=off"), ("a", "x", "--top", t.path("x,size=1g")):
        for flag in ["--dry-run"], []:
            contains(fails(*words, *flag), "would be read as another path, with options")
    contains(fails("a", "p"), 'there is an export "p" already')
    contains(fails("a", "x", "--group", "a/b"), "group")
    contains(fails("a", "x", "--top", t.path("plain.img")), "exists already")
    contains(fails("a", "x/y"), "needs a file of its own")
    contains(fails("a", "x", "backing=mem:1m"), "backing")
    Path(t.path("y.top")).write_bytes(b"")
    contains(fails("a", "y"), "y.top exists already")
    contains(server.control("fork", "a", "x", "--dry-run"), "nothing was changed")
    with server.connect("a") as client:
        client.write(0, data(4096))
        contains(fails("a", "x", "--top", "/no/such/directory/x.top"), "directory")
    contains(server.control("fork", "a", "x", "--group", "/tenants/x", "--top", t.path("other.top")), 'export "x": added')
    contains(server.control("get", "export", "x"), "/tenants/x", "other.top", "a.top.1")
    contains(server.control("status"), "/tenants/x")
    with server.connect("x") as client:
        equal(client.read(0, 8192), data(4096) + WHOLE[4096:8192], "the fork")
    server.control("remove", "export", "x")
    contains(fails("x", "z"), 'there is no export "x"')


@test(fairlift_only=True)
def exports_that_share_a_top_go_on_above_one_and_a_read_only_one_is_forked_as_it_is(t):
    t.image("base.img", SIZE, (0, WHOLE))
    backing = f"overlay:base={t.path('base.img')},top={t.path('a.top')}"
    server = t.server(f"a={backing}", f"b={backing}", "--workers", "2")
    with server.connect("a") as one, server.connect("b") as two:
        one.write(0, data(4096, 1))
        server.control("fork", "b", "x")
        two.write(4096, data(4096, 2))
        equal(one.read(0, 8192), data(4096, 1) + data(4096, 2), "both show one disk")
        one.write(0, data(4096, 3))
        equal(two.read(0, 4096), data(4096, 3), "both show one disk")
        one.flush()
    with server.connect("x") as client:
        equal(client.read(0, 8192), data(4096, 1) + WHOLE[4096:8192], "the fork")
    server.stop()
    server = t.server(config=f'[server]\nroots = ["{t.path("")}"]\n[export.a]\nbacking = "{backing}"\nread_only = true\n')
    server.control("fork", "a", "y")
    with server.connect("y") as client:
        client.write(8192, data(4096, 4))
        equal(client.read(0, 12288), data(4096, 3) + data(4096, 2) + data(4096, 4), "a fork of what is only read")
    server.control("fork", "y", "z")
    contains(server.control("fork", "y", "w", "--top", "/tmp/w.top", code=1), "is not in")
    for flag in ["--dry-run"], []:
        contains(server.control("fork", "y", "w", "--ephemeral=/tmp", *flag, code=1), "is not in")
    contains(server.control("fork", "y", "w", "--ephemeral"), "added")


def held(server):
    """Files without a name that a server has in the test's directory."""
    links = []
    for descriptor in os.listdir(f"/proc/{server.pid}/fd"):
        path = f"/proc/{server.pid}/fd/{descriptor}"
        with contextlib.suppress(FileNotFoundError):
            if os.stat(path).st_nlink == 0:
                links.append(os.readlink(path))
    return {link for link in links if link.startswith(server.t.path(""))}


@test(fairlift_only=True)
def an_ephemeral_fork_leaves_nothing_whatever_ends_it(t):
    server = served(t)
    files = lambda: {name for name in os.listdir(t.path("")) if os.path.isfile(t.path(name)) and not name.endswith(".log")}
    with server.connect("a") as client:
        client.write(0, data(4096, 1))
        server.control("fork", "a", "kept")  # a.top.1 is there from now on
        before = files()
        contains(server.control("fork", "a", "x", "--ephemeral", "--dry-run"), "nothing was changed")
        equal(held(server), set(), "tops of dry runs")
        contains(server.control("fork", "a", "x", "--ephemeral"), 'export "x": added', "an ephemeral overlay")
        contains(server.control("get", "export", "x"), f"ephemeral={t.path('')[:-1]}")
        contains(server.control("get", "export"), f"ephemeral={t.path('')[:-1]}")
        with server.connect("x") as fork:
            equal(fork.read(0, 8192), data(4096, 1) + WHOLE[4096:8192], "the fork")
            fork.write(4096, data(4096, 2))
            fork.trim(MIB, MIB)
            fork.flush()
            equal(fork.read(0, SIZE), data(4096, 1) + data(4096, 2) + WHOLE[8192:MIB] + bytes(MIB) + WHOLE[2 * MIB:], "what it wrote")
        equal(client.read(4096, 4096), WHOLE[4096:8192], "what it was forked from")
        equal((files(), len(held(server))), (before, 1), "its top has no name")
        contains(server.control("fork", "x", "y", code=1), "is ephemeral, and was written")
        server.control("remove", "export", "x")
        until(lambda: not held(server), "its top is closed")
        server.control("fork", "a", "x", "--ephemeral")
        with server.connect("x") as fork:
            equal(fork.read(0, 8192), data(4096, 1) + WHOLE[4096:8192], "the next one of that name begins anew")
        # What nobody has written is forked like what it was forked from.
        server.control("fork", "x", "y", "--ephemeral")
        server.control("fork", "x", "z")
        with server.connect("y") as fork, server.connect("z") as kept:
            for one in fork, kept:
                equal(one.read(0, 4096), data(4096, 1), "a fork of it")
                one.write(0, data(4096, 3))
                one.flush()
    assert "deleted" not in server.log(), "no file that is meant to have no name is missed"
    server.kill()
    equal(files() - before, {"z.top"}, "what is left by a server that was killed")
    server = t.server(f"z=overlay:top={t.path('z.top')}", f"e=overlay:base={t.path('base.img')},ephemeral={t.path('')}")
    with server.connect("z") as kept, server.connect("e") as fork:
        equal(kept.read(0, 4096), data(4096, 3), "one that was kept")
        equal(fork.read(0, SIZE), WHOLE, "an ephemeral one of the config begins as its base")
        fork.write(0, data(4096, 4))
    server.stop()
    equal(files() - before, {"z.top"}, "what is left by a server that ended")


@test(fairlift_only=True)
def an_ephemeral_fork_is_asked_for_by_http_in_a_directory_of_its_own_and_refused_with_what_is_possible(t):
    os.mkdir(t.path("tops"))
    server = served(t)
    control = Control(t, server)

    def ask(code=200, **keys):
        return control.ask("POST", "/v1/exports/a/fork", keys, code=code)

    contains(ask(name="x", ephemeral=t.path("tops"))["backing"], f"ephemeral={t.path('tops')}")
    assert any(link.startswith(t.path("tops")) for link in held(server)), held(server)
    contains(ask(name="y", ephemeral=False)["backing"], "top=", "y.top")
    for keys, why in [
        (dict(ephemeral=3), "takes true, false, or the path"),
        (dict(ephemeral=True, top=t.path("u.top")), "one of the two"),
        (dict(ephemeral=t.path("none")), "No such file"),
        (dict(ephemeral=t.path("base.img")), "Not a directory"),
    ]:
        contains(ask(code=422, name="u", **keys)["error"], why)
    contains(server.control("fork", "a", "u", "--ephemeral", "--top", t.path("u.top"), code=2), "cannot be used with")
    contains(server.control("fork", "a", "u", f"--ephemeral={t.path('none')}", "--dry-run", code=1), "No such file")
    # Real clients, on disks that need no flush.
    server.control("fork", "a", "w", f"--ephemeral={t.path('tops')}")
    t.run("qemu-io", "-f", "raw", "-c", "write -P 0x5a 1M 64k", "-c", "flush", "-c", "read -P 0x5a 1M 64k", "-c", "discard 3M 1M", server.uri("w"))
    t.run("fio", "--name=v", "--ioengine=nbd", f"--uri={server.uri('w')}", "--rw=randwrite", "--bs=4k", "--size=8m", "--iodepth=16",
          "--verify=crc32c", "--do_verify=1", "--verify_state_save=0", "--fsync=64")
    server.control("remove", "export", "w")
    equal(os.listdir(t.path("tops")), [], "what is left in the directory")


def layers_of(t, top):
    """What lies below a top, from the nearest to the base."""
    return json.loads(t.run(BINARY, "overlay", "info", "--json", t.path(top)))["below"]


@test(fairlift_only=True)
def a_disk_at_the_eighth_top_is_flattened_while_it_is_written_and_forks_go_on(t):
    server = served(t)
    wanted = bytearray(WHOLE)

    def put(at, piece):
        wanted[at:at + len(piece)] = piece
        client.write(at, piece)

    with server.connect("a") as client:
        for n in range(7):
            for block in (n, 40 + n, 200 * n):
                put(block * 4096, data(4096, n, block))
            wanted[(60 + n) * 4096:(61 + n) * 4096] = bytes(4096)
            client.zero((60 + n) * 4096, 4096)
            server.control("fork", "a", f"f{n}")
        # It is written all the time, at blocks that are copied and at others.
        n = 0
        while len(layers_of(t, "a.top")) > 1:
            n += 1
            assert n < 20000, "it is never flattened"
            put(t.random.randrange(SIZE - 4096) // 512 * 512 if n % 2 else n // 2 % 8 * 4096 + 512, data(512, "late", n))
        equal(layers_of(t, "a.top"), [t.path("base.img")], "what lies below the top")
        equal(client.read(0, SIZE), bytes(wanted), "the disk, flattened")
        server.control("fork", "a", "late")
    with server.connect("late") as client:
        equal(client.read(0, SIZE), bytes(wanted), "a fork of what was flattened")
    # One that lies over as many is flattened once it is to be forked.
    assert len(layers_of(t, "f6.top")) == 8, "nothing is copied for a fork that nobody forks"
    with server.connect("f6") as client:
        before = client.read(0, SIZE)
        client.write(4096, data(4096, "f6"))
        contains(server.control("fork", "f6", "deep", code=1), "8 tops lie over each other", "being flattened")
        until(lambda: len(layers_of(t, "f6.top")) == 1, "the fork is flattened", 60)
        contains(server.control("fork", "f6", "deep"), "added")
        client.flush()
    server.kill()
    server = t.server(*(f"{name}=overlay:base={t.path('base.img')},top={t.path(name)}.top" for name in ("a", "f6", "deep")))
    with server.connect("a") as client:
        equal(client.read(0, SIZE), bytes(wanted), "the disk, after a kill")
    for name in "f6", "deep":
        with server.connect(name) as client:
            equal(client.read(0, SIZE), before[:4096] + data(4096, "f6") + before[8192:], "a disk that was flattened to be forked")


def open_files(server):
    place = f"/proc/{server.pid}/fd"
    found = set()
    for name in os.listdir(place):
        try:
            found.add(os.readlink(f"{place}/{name}"))
        except FileNotFoundError:
            pass  # closed meanwhile
    return found


def deep(server, name, wanted):
    """Forks a disk until as many tops lie over each other as may; the first of them has all of the disk."""
    with server.connect(name) as client:
        for n in range(7):
            at, piece = n * 4096, data(4096 if n else SIZE, name, n)
            client.write(at, piece)
            wanted[at:at + len(piece)] = piece
            server.control("fork", name, f"{name}{n}")


@test(fairlift_only=True)
def what_is_copied_to_flatten_a_disk_is_its_tenants(t):
    server, wanted = served(t), bytearray(WHOLE)
    deep(server, "a", wanted)
    until(lambda: len(layers_of(t, "a.top")) == 1, "the disk is flattened", 60)
    server.stop()
    own = sum(int(count) for count in re.findall(r"stats export=.* write=(\d+)/", server.log()))
    group, = re.findall(r'share since the start .*group="/a" .*write=(\d+)/', server.log())
    equal(int(group) - own, SIZE // 65536, "writes of the group that are no client's: copies of 64 KiB")


@test(fairlift_only=True)
def a_flattening_ends_with_its_export_or_its_server_and_the_disk_reads_the_same(t):
    server, wanted = served(t, "a", "b"), {name: bytearray(WHOLE) for name in "ab"}
    deep(server, "a", wanted["a"])
    server.control("remove", "export", "a")
    until(lambda: t.path("a.top") not in open_files(server), "the copy that was under way has ended, and the top is closed", 60)
    server.control("add", "export", f"a=overlay:top={t.path('a.top')}")
    deep(server, "b", wanted["b"])
    for ends in "stop", "kill":
        for name, content in wanted.items():
            with server.connect(name) as client:
                equal(client.read(0, SIZE), bytes(content), f"the disk of {name}")
        getattr(server, ends)()
        server = t.server(*(f"{name}=overlay:top={t.path(name)}.top" for name in wanted))
    for name, content in wanted.items():
        with server.connect(name) as client:
            equal(client.read(0, SIZE), bytes(content), f"the disk of {name}, at last")


def reflinking(t, *mkfs):
    """A directory on a file system that copies files by reference, or the test skips."""
    if os.geteuid() != 0 or not shutil.which(mkfs[0]):
        t.skip(f"a file system that copies by reference needs root and {mkfs[0]}")
    disk, place = t.image("reflinking", 320 * MIB), t.path("reflinks")
    t.run(*mkfs, disk)
    os.mkdir(place)
    mounted = subprocess.run(["mount", "-o", "loop", disk, place], capture_output=True, text=True)
    if mounted.returncode:
        t.skip(f"what {mkfs[0]} makes cannot be mounted here: {mounted.stderr.strip()}")
    t.defer(t.run, "umount", "-l", place)
    return place


@test(fairlift_only=True)
def an_image_on_xfs_is_forked_without_an_overlay(t):
    forked_by_reference(t, reflinking(t, "mkfs.xfs", "-q", "-m", "reflink=1"))


@test(fairlift_only=True)
def an_image_on_btrfs_is_forked_without_an_overlay(t):
    forked_by_reference(t, reflinking(t, "mkfs.btrfs", "-q"))


def forked_by_reference(t, place):
    with open(f"{place}/a.img", "wb") as image:
        image.write(WHOLE)
    server = t.server(f"a=file:{place}/a.img")
    writer, counts = forked_while_written(t, server)
    with server.connect("f5") as client:
        client.write(0, b"x" * 4096)
    with server.connect("a") as client:
        equal(count_of(client), writer.done, "the parent, and nothing of what its fork wrote")
    server.control("fork", "f4", "deep", "--top", f"{place}/deep.raw")
    contains(server.control("fork", "a", "f0", "--top", f"{place}/new.img", code=1), 'there is an export "f0" already')
    contains(server.control("fork", "a", "x", "--top", f"{place}/f1.img", code=1), "exists already")
    contains(server.control("fork", "a", "x", "--ephemeral", code=1), "is no overlay")
    equal(sorted(os.listdir(place)), ["a.img", "deep.raw", *(f"f{number}.img" for number in range(6))], "one file for each, and none for what was refused")
    server.kill()
    server = t.server(f"deep={place}/deep.raw", *(f"f{number}={place}/f{number}.img" for number in range(5)))
    for number, count in [*enumerate(counts[:5]), ("deep", counts[4])]:
        with server.connect(f"f{number}" if number != "deep" else number) as client:
            equal(count_of(client), count, "a fork after a kill")


@test(fairlift_only=True)
def a_fork_of_a_part_of_a_disk_is_that_part(t):
    t.image("base.img", SIZE, (0, WHOLE))
    words = f'backing = "overlay:base={t.path("base.img")},top={t.path("a.top")}"'
    server = t.server(config=f'[export.low]\n{words}\nsize = "1m"\n[export.high]\n{words}\noffset = "1m"\n')
    for name, part in ("low", WHOLE[:MIB]), ("high", WHOLE[MIB:]):
        server.control("fork", name, f"of-{name}")
        with server.connect(f"of-{name}") as client:
            equal(client.size, len(part), f"the size of a fork of {name}")
            equal(client.read(0, len(part)), part, f"a fork of {name}")


if __name__ == "__main__":
    main()
