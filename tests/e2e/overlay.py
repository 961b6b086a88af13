"""`overlay:`: a disk that is its base until it is written, in files that outlive the server."""

import resource

from harness import *
from nbdclient import HOLE, LIST_META, READ, REQ_ONE, SET_META, WRITE, ZERO, NbdError, Session

SIZE = 8 * MIB
WHOLE = data(SIZE)
NO_HOLE = 1 << 1


def base(t, name="base.img", content=WHOLE):
    return t.image(name, len(content), (0, content))


def overlay(t, *, top="a.top", below="base.img", more=""):
    return f"overlay:base={t.path(below)},top={t.path(top)}{more}"


def takes(path):
    return os.stat(path).st_blocks * 512


def status(client, offset, length):
    return [(run, flags) for run, flags in client.status(offset, length)]


@test(fairlift_only=True)
def what_is_written_is_in_the_top_and_the_base_stays_as_it_is(t):
    image = base(t)
    before = sha256(image)
    server = t.server(f"a={overlay(t)}", f"b={overlay(t, top='b.top')}")
    wanted = bytearray(WHOLE)
    with server.connect("a") as client, server.connect("b") as other:
        equal(client.size, SIZE, "the size of the disk")
        equal(client.read(0, SIZE), WHOLE, "what was never written")
        for n in range(200):
            offset = t.random.randrange(SIZE - 70000)
            piece = data(t.random.choice([1, 512, 4096, 5000, 65536]), n)
            if n % 2:
                offset = offset // 4096 * 4096
            client.write(offset, piece)
            wanted[offset:offset + len(piece)] = piece
        equal(client.read(0, SIZE), bytes(wanted), "the disk that was written")
        equal(other.read(0, SIZE), WHOLE, "the other disk on the same base")
        client.flush()
        client.trim(MIB, MIB)
        client.zero(3 * MIB + 100, 10000)
        wanted[MIB:2 * MIB] = bytes(MIB)
        wanted[3 * MIB + 100:3 * MIB + 10100] = bytes(10000)
        equal(client.read(0, SIZE), bytes(wanted), "what was discarded and zeroed")
    server.stop()
    equal(sha256(image), before, "the base")
    server = t.server(f"a=overlay:top={t.path('a.top')}")
    with server.connect("a") as client:
        equal(client.read(0, SIZE), bytes(wanted), "the disk when it is served again")
    server.kill()
    server = t.server(f"a={overlay(t)}")
    with server.connect("a") as client:
        equal(client.read(0, SIZE), bytes(wanted), "the disk after a kill")


@test(fairlift_only=True)
def what_was_flushed_is_there_after_a_kill_and_nothing_is_torn(t):
    base(t)
    wanted = {}
    for round in range(4):
        server = t.server(f"a={overlay(t)}")
        with server.connect("a") as client:
            for offset, piece in wanted.items():
                equal(client.read(offset, len(piece)), piece, "what was flushed before the kill")
            for n in range(100):
                offset = t.random.randrange(SIZE // 4096) * 4096
                piece = data(4096, round, n)
                client.write(offset, piece)
                wanted[offset] = piece
            client.flush()
            for n in range(32):
                # Never flushed, and never looked at again: above all what was.
                client.submit(WRITE, SIZE - (n + 1) * 4096, 4096, data(4096))
                wanted.pop(SIZE - (n + 1) * 4096, None)
        server.kill()
        log = t.run(BINARY, "overlay", "check", t.path("a.top"))
        contains(log, "nothing is wrong")


@test(fairlift_only=True)
def a_first_write_takes_what_it_writes_and_a_trim_gives_it_back(t):
    base(t)
    server = t.server(f"a={overlay(t)}")
    top = t.path("a.top")
    empty = takes(top)
    assert empty <= 64 * KIB, f"an empty top takes {empty} bytes"
    with server.connect("a") as client:
        for offset in range(0, 4 * MIB, 64 * KIB):
            client.write(offset, data(64 * KIB, offset))
        client.flush()
        full = takes(top)
        assert 4 * MIB <= full <= 4 * MIB + 256 * KIB, f"4 MiB that were written take {full} bytes"
        client.trim(0, 4 * MIB)
        client.flush()
        assert takes(top) <= 256 * KIB, f"a top that was trimmed takes {takes(top)} bytes"
        equal(client.read(0, 4 * MIB), bytes(4 * MIB), "what was trimmed")
        equal(client.read(4 * MIB, 4096), WHOLE[4 * MIB:][:4096], "what is beside it")


@test(fairlift_only=True)
def block_status_tells_data_zeroes_and_what_the_base_says(t):
    t.image("base.img", SIZE, (0, WHOLE[:MIB]))
    server = t.server(f"a={overlay(t, more=',size=9m')}")
    with server.connect("a") as client:
        equal(client.size, 9 * MIB, "a disk that is larger than its base")
        equal(client.read(SIZE, MIB), bytes(MIB), "what is beyond the base")
        equal(status(client, 0, 9 * MIB), [(MIB, 0), (8 * MIB, HOLE | ZERO)], "as the base has it, and a hole beyond")
        client.write(2 * MIB, data(8192))
        client.trim(4096, 4096)
        client.write(9 * MIB - 4096, data(4096))
        equal(status(client, 0, 9 * MIB),
              [(4096, 0), (4096, HOLE | ZERO), (MIB - 8192, 0), (MIB, HOLE | ZERO), (8192, 0), (7 * MIB - 12288, HOLE | ZERO), (4096, 0)],
              "what was written, and what was trimmed")


@test(fairlift_only=True)
def a_dirty_bitmap_tells_what_the_top_has_beside_what_is_allocated(t):
    t.image("base.img", SIZE, (0, WHOLE[:MIB]))
    server = t.server(f"a={overlay(t)}", "m=mem:1M")
    bitmap, dirty = "qemu:dirty-bitmap:top", 1
    for extended in False, True:
        with Session(server.address).greet() as client:
            client.option(11 if extended else 8)
            client.structured, client.extended = True, extended
            equal(set(client.meta(LIST_META, "a")), {"base:allocation", bitmap}, "all contexts")
            for query in "qemu:", "qemu:dirty-bitmap:", bitmap:
                equal(set(client.meta(LIST_META, "a", query)), {bitmap}, f"what {query} finds")
                equal(client.meta(LIST_META, "m", query), {}, "what a disk without a top has")
            equal(client.meta(SET_META, "a", "qemu:"), {}, "a namespace chooses nothing")
            client.contexts = client.meta(SET_META, "a", bitmap, "base:allocation")
            client.go("a")
            changes = lambda *asked: client.status(*asked, context=bitmap)
            if not extended:
                equal(changes(0, SIZE), [(SIZE, 0)], "nothing was written")
                client.write(2 * MIB + 100, data(10))
                client.write(2 * MIB + 4096, data(8192))
                client.trim(8192, 8192)
                client.zero(SIZE - 4096, 4096)
            equal(changes(0, SIZE), [(8192, 0), (8192, dirty), (2 * MIB - 16384, 0), (12288, dirty), (6 * MIB - 16384, 0), (4096, dirty)],
                  "what was written, trimmed and zeroed")
            equal(client.status(0, 2 * MIB), [(8192, 0), (8192, HOLE | ZERO), (MIB - 16384, 0), (MIB, HOLE | ZERO)], "what is allocated")
            equal(changes(0, SIZE, REQ_ONE), [(8192, 0)], "the first run")
            equal(changes(8704, 512), [(512, dirty)], "a part of a block")
            equal(changes(2 * MIB + 8192, MIB), [(4096, dirty), (MIB - 4096, 0)], "from the middle of a run")
    with Session(server.address).greet() as client:
        client.option(8)
        client.structured = True
        client.contexts = client.meta(SET_META, "a", bitmap)
        client.go("a")
        equal(client.status(8192, 8192, context=bitmap), [(8192, dirty)], "the bitmap alone")


@test(fairlift_only=True)
def real_clients_see_what_was_changed_since_the_last_fork(t):
    base(t)
    server = t.server(f"a={overlay(t)}")
    uri = server.uri("a")

    def changed(uri):
        rows = [row.split() for row in t.run("nbdinfo", "--map=qemu:dirty-bitmap:top", uri).splitlines()]
        return [(int(start), int(length)) for start, length, kind, *_ in rows if kind == "1"]

    contains(t.run("nbdinfo", uri), "qemu:dirty-bitmap:top")
    equal(changed(uri), [], "before a write")
    t.run("qemu-io", "-f", "raw", "-c", "write 1M 64k", "-c", "discard 3M 64k", "-c", "write -z 5M 4k", uri)
    equal(changed(uri), [(MIB, 64 * KIB), (3 * MIB, 64 * KIB), (5 * MIB, 4 * KIB)], "what was written, trimmed and zeroed")
    told = json.loads(t.run("qemu-img", "map", "--output=json", "--image-opts",
                            f"driver=nbd,export=a,server.type=unix,server.path={server.address},x-dirty-bitmap=qemu:dirty-bitmap:top"))
    equal([(run["start"], run["length"]) for run in told if not run["data"]], changed(uri), "what QEMU's client makes of it")
    server.control("fork", "a", "b")
    for name in "a", "b":
        equal(changed(server.uri(name)), [], f"{name} after the fork")
    t.run("qemu-io", "-f", "raw", "-c", "write 2M 4k", uri)
    equal((changed(uri), changed(server.uri("b"))), ([(2 * MIB, 4 * KIB)], []), "what each has of its own")


@test(fairlift_only=True)
def real_clients_serve_a_disk_on_it(t):
    base(t)
    server = t.server(f"a={overlay(t)}")
    uri = server.uri("a")
    equal(t.run("nbdinfo", "--size", uri).strip(), str(SIZE))
    t.run("qemu-io", "-f", "raw", "-c", "write -P 0x5a 1M 64k", "-c", "write -P 0xa5 5000 1000", "-c", "flush",
          "-c", "read -P 0x5a 1M 64k", "-c", "read -P 0xa5 5000 1000", "-c", "write -z 2M 1M", "-c", "read -P 0 2M 1M", "-c", "discard 3M 1M", uri)
    copy = t.path("copy")
    t.run("nbdcopy", uri, copy)
    wanted = bytearray(WHOLE)
    wanted[MIB:MIB + 65536] = b"\x5a" * 65536
    wanted[5000:6000] = b"\xa5" * 1000
    wanted[2 * MIB:4 * MIB] = bytes(2 * MIB)
    equal(Path(copy).read_bytes(), bytes(wanted), "what nbdcopy reads")
    for size in "4k", "64k":
        t.run("fio", "--name=v", "--ioengine=nbd", f"--uri={uri}", "--rw=randwrite", f"--bs={size}", "--size=8m", "--iodepth=16",
              "--verify=crc32c", "--do_verify=1", "--verify_state_save=0", "--fsync=64")


@test(fairlift_only=True)
def a_base_that_was_changed_or_is_another_is_refused_with_what_to_do(t):
    image = base(t)
    server = t.server(f"a={overlay(t)}")
    server.stop()
    listen = ["--listen", f"unix:{t.path('s')}"]
    other = base(t, "other.img", data(SIZE // 2, 1))
    contains(t.serve_fails(f"a={overlay(t, below='other.img')}", *listen), f"it is over another base than {other}: over {image}, or a copy")
    with open(image, "r+b") as file:
        file.write(b"x")
    contains(t.serve_fails(f"a={overlay(t)}", *listen), "was changed since: its time of change is another", "begin with a new top")
    contains(t.run(BINARY, "overlay", "check", t.path("a.top"), code=1), "was changed since")
    contains(t.serve_fails(f"a=overlay:top={t.path('none.top')}", *listen), "does not exist; to make it, give its base")
    contains(t.serve_fails(f"a={overlay(t, below='none.img', top='b.top')}", *listen), "none.img: No such file")
    contains(t.serve_fails(f"a=overlay:base={image},top={other}", *listen), "no overlay's top")


@test(fairlift_only=True)
def a_base_that_somebody_writes_is_refused_and_many_servers_read_one(t):
    image = base(t)
    one = t.server(f"a={overlay(t)}")
    two = t.server(f"b={overlay(t, top='b.top')}")
    for server, name in (one, "a"), (two, "b"):
        server.serves(name, SIZE)
    contains(t.serve_fails(f"base=file:{image}", "--listen", f"unix:{t.path('s')}"), "is in use by another server")
    contains(t.serve_fails(f"a={overlay(t)}", "--listen", f"unix:{t.path('s')}"), "a.top", "is in use by another server")
    contains(two.control("add", "export", f"w=file:{image}", code=1), "is in use")
    two.control("add", "export", f"c={overlay(t, top='c.top')}")
    two.serves("c", SIZE)
    two.control("remove", "export", "c")
    writer = t.server(f"w=file:{base(t, 'other.img')}")
    contains(t.serve_fails(f"a={overlay(t, below='other.img', top='d.top')}", "--listen", f"unix:{t.path('s')}"), "is in use by another server")
    writer.serves("w")


@test(fairlift_only=True)
def an_overlay_over_what_an_export_of_the_same_server_writes_is_refused_by_name(t):
    server = t.server(f"w=file:{base(t)}", f"a={overlay(t, below=Path(base(t, 'other.img')).name)}")
    server.serves("a", SIZE)
    for below, writer in ("base.img", "w"), ("a.top", "a"):
        said = server.control("add", "export", f"b={overlay(t, below=below, top='b.top')}", code=1)
        contains(said, f'{below} is written by export "{writer}" of this server', "fork that export, or remove it first")
        assert not os.path.exists(t.path("b.top")), "nothing was made"
    for name in ("w", "a"):
        server.serves(name, SIZE)
    server.control("remove", "export", "w")
    server.control("add", "export", f"b={overlay(t, top='b.top')}")
    server.serves("b", SIZE)


@test(fairlift_only=True)
def a_dry_run_and_a_check_make_no_top_and_write_none(t):
    base(t)
    t.server(f"a={overlay(t)}").stop()
    server = t.server(f"b={overlay(t, top='b.top')}")
    config = t.path("checked.toml")
    Path(config).write_text(f"[export.a]\nbacking = '{overlay(t)}'\n[export.c]\nbacking = '{overlay(t, top='c.top')}'\n")
    there = lambda: {path: (os.stat(path).st_mtime_ns, sha256(path)) for path in map(str, Path(t.path("")).glob("*.top"))}
    before = there()
    contains(t.run(BINARY, "serve", "--check", "--config", config, "--listen", f"unix:{t.path('s')}"), "ok: 2 exports")
    for backing in overlay(t), overlay(t, top="c.top"), overlay(t, top="c.top", more=",size=9m"):
        contains(server.control("add", "export", f"x={backing}", "--dry-run"), 'export "x": added', "nothing was changed")
    for backing, *why in [
        (overlay(t, below="none.img", top="c.top"), "none.img: No such file"),
        (overlay(t, more=",size=9m"), f"a disk of {SIZE} bytes"),
        (overlay(t, top="none/c.top"), "cannot be made: No such file"),
        (overlay(t, top="c.top", more=",size=1m"), "less than its base has"),
    ]:
        for flag in ["--dry-run"], []:
            contains(server.control("add", "export", f"x={backing}", *flag, code=1), *why)
    equal(there(), before, "the tops")
    server.serves("b", SIZE)


def scatter(t, client, wanted, layer, count=40):
    """Writes sectors of this layer anywhere, to the disk and to what is wanted of it."""
    for n in range(count):
        offset = t.random.randrange(len(wanted) // 512) * 512
        client.write(offset, piece := data(512, layer, n))
        wanted[offset:offset + 512] = piece


@test(fairlift_only=True)
def a_chain_of_overlays_is_read_through_and_what_is_in_it_is_not_written(t):
    base(t)
    wanted = bytearray(WHOLE)
    below = "base.img"
    for layer in range(3):
        server = t.server(f"a={overlay(t, top=f't{layer}', below=below)}")
        with server.connect("a") as client:
            scatter(t, client, wanted, layer)
            client.trim(layer * MIB, 8192)
            wanted[layer * MIB:layer * MIB + 8192] = bytes(8192)
            equal(client.read(0, SIZE), bytes(wanted), f"the disk of layer {layer}")
        server.stop()
        below = f"t{layer}"
    server = t.server(*(f"{name}={overlay(t, top=name, below='t2')}" for name in ("x", "y")))
    for name in "x", "y":
        with server.connect(name) as client:
            equal(client.read(0, SIZE), bytes(wanted), "what two have in common")
            client.write(0, data(4096, name))
            client.flush()
    contains(t.serve_fails(f"a=overlay:top={t.path('t2')}", "--listen", f"unix:{t.path('s')}"), "is in use")
    server.stop()
    contains(t.run(BINARY, "overlay", "info", t.path("x")), "t2", "t0", "base.img")
    t.server(f"a=overlay:top={t.path('t2')}").stop()
    contains(t.serve_fails(f"x=overlay:top={t.path('x')}", "--listen", f"unix:{t.path('s')}"), "was opened for writing since")


@test(fairlift_only=True)
def a_top_is_put_over_another_base_and_reads_as_before(t):
    base(t)
    wanted = bytearray(WHOLE)
    for layer, below in enumerate(("base.img", "t0", "t1")):
        server = t.server(f"a={overlay(t, top=f't{layer}', below=below)}")
        with server.connect("a") as client:
            scatter(t, client, wanted, layer)
        tool = lambda *words, code=0: t.run(BINARY, "overlay", *words, code=code)
        contains(tool("flatten", t.path(f"t{layer}"), code=1), "is in use by another server", "remove the export")
        server.stop()

    def reads_as_before(top="t2"):
        server = t.server(f"a=overlay:top={t.path(top)}")
        with server.connect("a") as client:
            equal(client.read(0, SIZE), bytes(wanted), "the disk")
        server.stop()

    contains(tool("flatten", t.path("t2")), "done, ", "copied into it")
    info = tool("info", t.path("t2"))
    assert "t1" not in info and "base.img" in info, info
    reads_as_before()
    base(t, "new.img", data(SIZE // 2, 5))
    tool("rebase", t.path("t2"), t.path("new.img"))
    contains(tool("info", t.path("t2")), "new.img")
    contains(tool("check", t.path("t2")), "nothing is wrong")
    reads_as_before()
    contains(tool("rebase", t.path("t2"), t.path("none.img"), code=1), "none.img: No such file")


def commit(t, top="a.top", code=0, **how):
    """The command, on a top; with `how`, how its process is started. What it says."""
    done = subprocess.run([BINARY, "overlay", "commit", "--write-to-base", t.path(top)], capture_output=True, text=True, **how)
    equal(done.returncode, code, f"the exit code of a commit: {done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def written(t, top="a.top", below="base.img", content=WHOLE):
    """A top that was written anywhere, and what its disk holds."""
    server, wanted = t.server(f"a={overlay(t, top=top, below=below)}"), bytearray(content)
    with server.connect("a") as client:
        scatter(t, client, wanted, top)
        client.trim(MIB, 64 * KIB)
        wanted[MIB:MIB + 64 * KIB] = bytes(64 * KIB)
        client.write(len(content) - 1000, piece := data(1000, top))
        wanted[-1000:] = piece
    server.stop()
    return bytes(wanted)


def serves(t, wanted, top="a.top"):
    server = t.server(f"a=overlay:top={t.path(top)}")
    with server.connect("a") as client:
        equal(client.read(0, len(wanted)), wanted, f"the disk of {top}")
    return server


@test(fairlift_only=True)
def what_a_top_has_is_written_into_its_base_and_the_top_goes_on_empty(t):
    for length in SIZE, SIZE - 3000:
        image = base(t, content=WHOLE[:length])
        tool = lambda *words, code=0: t.run(BINARY, "overlay", *words, code=code)
        wanted = written(t, content=WHOLE[:length])
        contains(tool("commit", t.path("a.top"), code=1), image, "--write-to-base")
        contains(commit(t), "done, ", "written into its base")
        equal(Path(image).read_bytes(), wanted, "the base")
        contains(tool("info", t.path("a.top")), "data     0 B", "zeroes   0 B")
        contains(tool("check", t.path("a.top")), "nothing is wrong")
        assert takes(t.path("a.top")) <= 64 * KIB, f"an empty top takes {takes(t.path('a.top'))} bytes"
        contains(commit(t), "done, 0 B")
        serves(t, wanted).stop()
        wanted = written(t, content=wanted)
        commit(t)
        equal(Path(image).read_bytes(), wanted, "the base, once more")
        os.remove(t.path("a.top"))


@test(fairlift_only=True)
def a_top_is_written_into_another_top_and_those_above_it_stay_good(t):
    base(t)
    wanted = written(t, "t0")
    wanted = written(t, "t1", "t0", wanted)
    above = written(t, "t2", "t1", wanted)
    commit(t, "t1")
    contains(t.run(BINARY, "overlay", "info", t.path("t1")), "data     0 B", "t0")
    t.run("cp", "--sparse=always", t.path("t1"), t.path("copy"))  # t1 itself would be written, once served
    serves(t, wanted, "copy").stop()
    os.remove(t.path("copy"))
    serves(t, above, "t2").stop()
    commit(t, "t1")
    commit(t, "t2")
    serves(t, above, "t2").stop()
    contains(t.run(BINARY, "overlay", "check", t.path("t2")), "nothing is wrong")


@test(fairlift_only=True)
def a_base_that_others_need_is_not_written(t):
    image = base(t)
    before = sha256(image)
    wanted = written(t)
    other = t.server(f"b={overlay(t, top='b.top')}")
    contains(commit(t, code=1), "base.img", "in use by another server", "remove their exports")
    other.stop()
    contains(commit(t, code=1), f"{t.path('b.top')} lies over {image} too", "fairlift overlay rebase")
    os.remove(t.path("b.top"))
    server = serves(t, wanted)
    contains(commit(t, code=1), "a.top", "in use by another server")
    server.stop()
    t.server(f"l={overlay(t, top='large.top', more=',size=9m')}").stop()
    contains(commit(t, "large.top", code=1), f"has {9 * MIB} bytes", f"has {SIZE}")
    os.remove(t.path("large.top"))
    equal(sha256(image), before, "the base that was not written")
    with open(image, "r+b") as file:
        file.write(b"x")
    contains(commit(t, code=1), "was changed since")


@test(fairlift_only=True)
def a_commit_that_is_killed_leaves_the_disk_as_it_is_and_goes_on(t):
    image = base(t)
    wanted = written(t)
    # A write beyond that ends the process, at once.
    limit = lambda size: dict(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)))
    for end in 2 * MIB, 6 * MIB:
        commit(t, code=-signal.SIGXFSZ, **limit(end))
        assert Path(image).read_bytes() not in (WHOLE, wanted), "the base is written in part"
    top = t.path("a.top")
    for words, code in (("check", top), 1), (("info", top), 0), (("flatten", top), 1), (("rebase", top, image), 1):
        contains(t.run(BINARY, "overlay", *words, code=code), "is being written into its base", f"commit --write-to-base {top}")
    assert json.loads(t.run(BINARY, "overlay", "info", "--json", top))["commits"]
    other = base(t, "other.img", data(SIZE, 1))
    contains(t.serve_fails(f"a={overlay(t, below='other.img')}", "--listen", f"unix:{t.path('s')}"), f"it is over another base than {other}")
    server = serves(t, wanted)
    server.says("is being written into its base")
    contains(server.control("fork", "a", "b", code=1), "is being written into its base", "remove this export")
    with server.connect("a") as client:
        client.write(5000, piece := data(5000, 9))
        wanted = wanted[:5000] + piece + wanted[10000:]
    server.stop()
    assert not os.path.exists(t.path("a.top.1")) and not os.path.exists(t.path("b.top"))
    contains(commit(t), "done, ")
    equal(Path(image).read_bytes(), wanted, "the base")
    contains(t.run(BINARY, "overlay", "check", top), "nothing is wrong")
    serves(t, wanted).stop()
    # Killed at any instant.
    for n in range(10):
        wanted = written(t, content=wanted)
        process = subprocess.Popen([BINARY, "overlay", "commit", "--write-to-base", top], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(t.random.random() * 0.03)
        process.kill()
        process.wait()
        serves(t, wanted).stop()
        if n % 2:
            commit(t)
            equal(Path(image).read_bytes(), wanted, "the base")


@test(fairlift_only=True)
def a_full_disk_fails_a_first_write_and_others_go_on(t):
    if os.geteuid() != 0:
        t.skip("mounting needs root")
    mount = t.path("small")
    os.mkdir(mount)
    for kind, options in ("tmpfs", ["-t", "tmpfs", "-o", "size=6m", "tmpfs", mount]), ("ext4", ["-o", "loop", t.path("small.img"), mount]):
        if kind == "ext4":
            if not os.path.exists("/dev/loop-control"):
                return print("SKIP ext4: there is no /dev/loop-control")
            t.image("small.img", 8 * MIB)
            t.run("mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", t.path("small.img"))
        if subprocess.run(["mount", *options]).returncode:
            t.skip("mounting is not allowed here")
        t.defer(subprocess.run, ["umount", "-l", mount])
        image = base(t, f"{kind}.img", content := data(16 * MIB))
        server = t.server(f"a=overlay:base={image},top={mount}/a.top")
        with server.connect("a") as client:
            wanted, failed = {}, 0
            for offset in range(0, 16 * MIB, 64 * KIB):
                piece = data(64 * KIB, offset)
                try:
                    client.write(offset, piece)
                    wanted[offset] = piece
                except NbdError as error:
                    equal(error.errno, ENOSPC, "the error of a write")
                    failed += 1
                    wanted[offset] = content[offset:offset + 64 * KIB]
            assert failed and failed < 256, f"{failed} of 256 writes failed"
            client.flush()
            for offset, piece in wanted.items():
                equal(client.read(offset, 64 * KIB), piece, "a block that was written, or not")
            client.trim(0, 2 * MIB)
            until(lambda: write_goes(client, 15 * MIB), "there is space again")
        server.stop()
        t.run("umount", mount)


def write_goes(client, offset):
    try:
        client.write(offset, data(4096))
        client.flush()
        return True
    except NbdError:
        return False


@test(fairlift_only=True)
def a_base_that_is_cut_while_it_is_served_fails_reads_beyond_and_nothing_else(t):
    image = base(t)
    server = t.server(f"a={overlay(t)}")
    with server.connect("a") as client:
        client.write(6 * MIB, data(4096, 1))
        os.truncate(image, 4 * MIB)
        with refused(EIO):
            client.read(5 * MIB, 4096)
        with refused(EIO):
            client.write(5 * MIB + 512, data(512))
        equal(client.read(6 * MIB, 4096), data(4096, 1), "what is in the top")
        equal(client.read(0, 4096), WHOLE[:4096], "what is left of the base")
        client.write(5 * MIB, data(4096, 2))
        client.flush()
        equal(client.read(5 * MIB, 4096), data(4096, 2), "a block that needs nothing of the base")


@test(fairlift_only=True)
def a_top_that_is_damaged_is_refused_and_check_says_where(t):
    base(t)
    server = t.server(f"a={overlay(t)}")
    with server.connect("a") as client:
        for n in range(3):
            client.write(n * 8192, data(4096, n))
            client.flush()
    server.stop()
    good = Path(t.path("a.top")).read_bytes()
    listen = ["--listen", f"unix:{t.path('s')}"]

    def damaged(says, change, fatal=True):
        Path(t.path("a.top")).write_bytes(change(bytearray(good)))
        found = t.run(BINARY, "overlay", "check", t.path("a.top"), code=1)
        contains(found, says)
        contains(t.serve_fails(f"a=overlay:top={t.path('a.top')}", *listen), says)

    def put(*places):
        def change(bytes_):
            for place in places:
                bytes_[place] ^= 0xff
            return bytes_
        return change

    damaged("checksum is wrong", put(100, 4096 + 100))
    damaged("page 0 of", put(8192 + 100))
    damaged("page 0 of", put(8192 + 100, 12288 + 100))
    damaged("it begins with something else", put(0, 4096))
    damaged("bytes, of", lambda bytes_: bytes_[:-MIB])
    Path(t.path("a.top")).write_bytes(good)
    contains(t.run(BINARY, "overlay", "check", t.path("a.top")), "nothing is wrong")
    contains(t.run(BINARY, "overlay", "info", t.path("a.top")), "base.img", "8 MiB", "12 KiB")
    contains(t.run(BINARY, "overlay", "check", t.path("base.img"), code=1), "no overlay's top")
    t.server(f"a=overlay:top={t.path('a.top')}").serves("a", SIZE)


@test(fairlift_only=True)
def a_top_whose_export_was_removed_a_moment_ago_can_be_added_again_and_others_over_it(t):
    base, top = t.image("base", MIB, (0, data(MIB))), t.path("a.top")
    server = t.server(f"a=overlay:base={base},top={top}")

    def leave(client, after):
        """A client goes while its export is being left."""
        time.sleep(after)
        client.close()

    for number in range(5):
        client = server.connect("a")
        client.write(number * 4096, b"%d" % number * 4096)
        for _ in range(20):
            client.submit(READ, 0, 64 * 1024)
        server.control("remove", "export", "a")
        at_once(lambda: leave(client, 0.05 * number), lambda: server.control("add", "export", f"a=overlay:top={top}"))
    client = server.connect("a")
    for _ in range(20):
        client.submit(READ, 0, 64 * 1024)
    server.control("remove", "export", "a")
    at_once(lambda: leave(client, 0.2), lambda: server.control("add", "export", f"b=overlay:base={top},top={t.path('b.top')}"))
    with server.connect("b") as client:
        equal(client.read(0, 5 * 4096), b"".join(b"%d" % number * 4096 for number in range(5)), "what was written before each")


if __name__ == "__main__":
    main()


@test(fairlift_only=True)
def a_base_may_be_what_another_server_has(t):
    image = base(t)
    there = lambda: t.server(f"gold=file:{image}", args=["--read-only"], listen=[f"unix:{t.path('far')}"])
    far = there()
    over = lambda top: f"overlay:base={far.uri('gold')},top={t.path(top)}"
    server = t.server(f"a={over('a.top')}", f"b={over('b.top')}")
    wanted = bytearray(WHOLE)
    with server.connect("a") as client, server.connect("b") as other:
        equal(client.read(0, SIZE), WHOLE, "what the other server has")
        scatter(t, client, wanted, 1)
        client.flush()
        equal(client.read(0, SIZE), bytes(wanted), "the disk that was written")
        equal(other.read(0, SIZE), WHOLE, "the other disk on the same base")
        for round in range(2):
            server.control("fork", "a", f"f{round}")
            scatter(t, client, wanted, 2 + round)
        # The other server is restarted: reads wait for it.
        far.stop()
        for at in range(0, SIZE, MIB):
            client.submit(READ, at, 4096)
        far = there()
        answers = [client.reply() for _ in range(0, SIZE, MIB)]
        assert all(answer.error == 0 for answer in answers), answers
        equal(client.read(0, SIZE), bytes(wanted), "the disk after the other server was restarted")
        equal(other.read(0, SIZE), WHOLE, "the other disk then")
        client.flush()
    server.kill()
    listen = "--listen", f"unix:{t.path('s')}"
    contains(t.serve_fails(f"a=overlay:top={t.path('a.top')}", *listen), "is not opened merely because a top names it", f"base={far.uri('gold')}")
    server = t.server(f"a={over('a.top')}", f"f=overlay:top={t.path('f1.top')}")
    with server.connect("a") as client:
        equal(client.read(0, SIZE), bytes(wanted), "the disk after a kill")
    server.stop()
    tool = lambda *words, code=0: t.run(BINARY, "overlay", *words, t.path("b.top"), code=code)
    contains(tool("info"), far.uri("gold"))
    contains(tool("check"), "nothing is wrong")
    contains(tool("flatten", code=1), "fairlift overlay reads files")
    contains(tool("commit", "--write-to-base", code=1), "is read, and not written")
    far.stop()
    os.truncate(image, SIZE // 2)
    far = there()
    contains(t.serve_fails(f"b={over('b.top')}", *listen), "was changed since", f"it had {SIZE} bytes and has {SIZE // 2}")
    far.stop()
    contains(t.serve_fails(f"b={over('b.top')}", *listen), "its base nbd:nbd+unix:", "No such file")


@test(fairlift_only=True)
def a_base_may_be_named_by_the_export_that_shows_it(t):
    image = base(t)
    over = lambda name, top: f"overlay:base=export:{name},top={t.path(top)}"
    prepared = f"overlay:base={image},top={t.path('prepared.top')}"
    server = t.server(f"p={prepared}")
    with server.connect("p") as client:
        client.write(0, data(4096, 1))
    server.stop()
    config = f"""
        [export.gold]
        backing = "file:{image}"
        read_only = true
        [export.prepared]
        backing = "{prepared}"
        read_only = true
        [export.a]
        backing = "{over('gold', 'a.top')}"
        [export.b]
        backing = "{over('prepared', 'b.top')}"
        """
    server = t.server(config=config)
    prepared_whole = data(4096, 1) + WHOLE[4096:]
    for name, wanted in ("gold", WHOLE), ("a", WHOLE), ("prepared", prepared_whole), ("b", prepared_whole):
        with server.connect(name) as client:
            equal(client.read(0, SIZE), wanted, name)
            if name in "ab":
                client.write(MIB, data(4096, name))
    server.control("add", "export", f"c={over('prepared', 'c.top')}")
    with server.connect("c") as client:
        equal(client.read(0, SIZE), prepared_whole, "one that was added")
    server.control("fork", "a", "f")
    with server.connect("f") as client:
        equal(client.read(MIB, 4096), data(4096, "a"), "a fork")
    for name, *says in [
        ("a", "is written (export \"a\")", "fairlift fork a NEW", "read_only=true"),
        ("none", "there is no other export \"none\""),
        ("x", "there is no other export \"x\""),
    ]:
        for flag in ["--dry-run"], []:
            contains(server.control("add", "export", f"x={over(name, 'x.top')}", *flag, code=1), *says)
    server.control("add", "export", "m=mem:8m", "read_only=true")
    contains(server.control("add", "export", f"x={over('m', 'x.top')}", code=1), "a base is a file")
    server.control("add", "export", f"part=file:{image}", "read_only=true", "size=1m")
    contains(server.control("add", "export", f"x={over('part', 'x.top')}", code=1), "shows a part of its backing")
    server.kill()
    server = t.server(config=config)
    with server.connect("a") as client:
        equal(client.read(MIB, 4096), data(4096, "a"), "after a kill")
    server.stop()
    mine, where = Path(t.path("mine.toml")), ("--listen", f"unix:{t.path('s')}")
    mine.write_text(config)
    contains(t.run(BINARY, "serve", "--check", "--config", mine, *where), "ok: 4 exports")
    # The name is another one's now.
    base(t, "other.img", data(SIZE, 9))
    mine.write_text(config.replace("base.img", "other.img", 1))
    for check in [], ["--check"]:
        contains(t.serve_fails("--config", mine, *where, *check), "it is over another base than")
