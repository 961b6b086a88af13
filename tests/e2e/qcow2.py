"""`qcow2:`: images of QEMU as the base of overlays, and read as they are."""

from control import Control
from harness import *
from nbdclient import HOLE, ZERO

SIZE = 8 * MIB
CLUSTER = 64 * KIB


def create(t, name, *words):
    t.run("qemu-img", "create", "-q", "-f", "qcow2", *words, t.path(name), str(SIZE))
    return t.path(name)


def write(t, image, *pieces):
    """Writes one byte, many times, at each of some places: (where, how much, which byte)."""
    commands = [word for at, length, byte in pieces for word in ("-c", f"write -P {byte} {at} {length}")]
    t.run("qemu-io", "-f", "qcow2", image, *commands)


def made(t):
    """An image over another one over raw bytes, and what its disk has."""
    t.image("raw.img", SIZE // 2, (MIB, data(MIB)))
    write(t, create(t, "below.qcow2", "-F", "raw", "-b", "raw.img"), (0, 100 * KIB, 1), (3 * MIB + 512, 3 * KIB, 2), (6 * MIB, MIB, 3))
    image = create(t, "image.qcow2", "-F", "qcow2", "-b", "below.qcow2")
    write(t, image, (4096, 8192, 4), (7 * MIB, 70 * KIB, 5))
    t.run("qemu-img", "convert", "-O", "raw", image, t.path("disk.raw"))
    return image, Path(t.path("disk.raw")).read_bytes()


def overlay(t, top="a.top", image="image.qcow2", more=""):
    return f"overlay:base=qcow2:{t.path(image)},top={t.path(top)}{more}"


def fails(t, backing):
    return t.serve_fails(f"a={backing}", "--listen", f"unix:{t.path('s')}")


@test(fairlift_only=True)
def a_disk_begins_as_an_image_and_its_writes_are_in_the_top(t):
    image, whole = made(t)
    before = [sha256(t.path(name)) for name in ("image.qcow2", "below.qcow2", "raw.img")]
    server = t.server(f"a={overlay(t)}", f"b={overlay(t, top='b.top')}", f"c={overlay(t, top='c.top', more=',size=9m')}")
    wanted = bytearray(whole)
    with server.connect("a") as client, server.connect("b") as other, server.connect("c") as larger:
        equal(client.size, SIZE, "the size of the disk")
        equal(client.read(0, SIZE), whole, "what QEMU reads")
        for n in range(200):
            offset = t.random.randrange(SIZE - 70000)
            piece = data(t.random.choice([1, 512, 4096, 5000, 65536]), n)
            client.write(offset, piece)
            wanted[offset:offset + len(piece)] = piece
        client.flush()
        equal(client.read(0, SIZE), bytes(wanted), "the disk that was written")
        equal(other.read(0, SIZE), whole, "the other disk on the same image")
        equal(larger.read(0, 9 * MIB), whole + bytes(MIB), "a disk that is larger than its image")
    opened = [line for line in server.log().splitlines() if "qcow2 image opened" in line]
    equal(len(opened), 1, "how often the image was opened for three disks")
    server.kill()
    server = t.server(f"a=overlay:top={t.path('a.top')}")
    with server.connect("a") as client:
        equal(client.read(0, SIZE), bytes(wanted), "the disk after a kill, by what its top knows of its base")
    server.stop()
    equal([sha256(t.path(name)) for name in ("image.qcow2", "below.qcow2", "raw.img")], before, "the files of the chain")
    tool = lambda *words, code=0: t.run(BINARY, "overlay", *words, t.path("a.top"), code=code)
    contains(tool("info"), f"qcow2:{image}")
    contains(tool("check"), "nothing is wrong")
    contains(tool("commit", "--write-to-base", code=1), "is read, and not written")


@test(fairlift_only=True)
def real_clients_read_an_image_as_qemu_does_compressed_or_not(t):
    image, whole = made(t)
    t.run("qemu-img", "convert", "-c", "-O", "qcow2", image, t.path("packed.qcow2"))
    server = t.server(f"a={overlay(t)}", f"p={overlay(t, top='p.top', image='packed.qcow2')}")
    for name in "a", "p":
        for tool in (("nbdcopy",), ("qemu-img", "convert", "-f", "raw", "-O", "raw")):
            t.run(*tool, server.uri(name), t.path("copy"))
            assert Path(t.path("copy")).read_bytes() == whole, f"{name} by {tool[0]}"
    with server.connect("a") as client:
        runs = client.status(0, SIZE)
        holes = sum(length for length, flags in runs if flags & HOLE and flags & ZERO)
        # QEMU says the same: what no file of the chain has.
        told = json.loads(t.run("qemu-img", "map", "--output=json", image))
        equal(holes, sum(one["length"] for one in told if one["zero"] and not one["data"]), "bytes that are holes")


@test(fairlift_only=True)
def an_image_is_served_alone_to_readers_only(t):
    image, whole = made(t)
    contains(fails(t, f"qcow2:{image}"), "is read, and not written", f"overlay:base=qcow2:{image},top=")
    server = t.server(f"a=qcow2:{image}", args=["--read-only"])
    with server.connect("a") as client:
        assert client.read_only, "an image is not written"
        equal(client.read(0, SIZE), whole, "what QEMU reads")


@test(fairlift_only=True)
def disks_over_an_image_are_forked(t):
    image, whole = made(t)
    server = t.server(f"a={overlay(t)}")
    server.control("fork", "a", "new")
    equal(Control(t, server).ask("GET", "/v1/exports/new")["backing"], f"overlay:base=qcow2:{image},top={t.path('new.top')}", "a fork of what was not written")
    wanted = bytearray(whole)
    with server.connect("a") as client:
        for n in range(3):
            client.write(n * MIB, data(5000, n))
            wanted[n * MIB:n * MIB + 5000] = data(5000, n)
            server.control("fork", "a", f"f{n}")
            with server.connect(f"f{n}") as fork:
                equal(fork.read(0, SIZE), bytes(wanted), f"fork {n}")
    server.stop()
    tops = [f"f{n}=overlay:top={t.path(f'f{n}.top')}" for n in range(3)]
    server = t.server(f"a={overlay(t)}", *tops)
    with server.connect("a") as client:
        equal(client.read(0, SIZE), bytes(wanted), "the disk, by the base that it began with")
    server.stop()
    contains(t.run(BINARY, "overlay", "flatten", t.path("a.top")), "copied into it")
    info = t.run(BINARY, "overlay", "info", t.path("a.top"))
    assert f"qcow2:{image}" in info and "a.top.1" not in info, info
    # Into another form of the same image: what both have is not copied.
    t.run("qemu-img", "convert", "-c", "-O", "qcow2", image, t.path("packed.qcow2"))
    t.run(BINARY, "overlay", "rebase", t.path("a.top"), f"qcow2:{t.path('packed.qcow2')}")
    server = t.server(f"a={overlay(t, image='packed.qcow2')}")
    with server.connect("a") as client:
        equal(client.read(0, SIZE), bytes(wanted), "the disk over the packed image")


@test(fairlift_only=True)
def an_image_that_was_changed_or_anything_below_it_is_refused(t):
    image, _ = made(t)
    t.server(f"a={overlay(t)}").stop()
    for name in "image.qcow2", "below.qcow2", "raw.img":
        path = t.path(name)
        was = os.stat(path)
        os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns + 1))
        contains(fails(t, overlay(t)), f"its base qcow2:{image} was changed since", "one of its 3 files")
        contains(t.run(BINARY, "overlay", "check", t.path("a.top"), code=1), "was changed since")
        os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
    t.server(f"a={overlay(t)}").stop()
    t.run("qemu-img", "convert", "-O", "qcow2", image, t.path("flat.qcow2"))
    os.rename(t.path("flat.qcow2"), image)
    contains(fails(t, f"overlay:top={t.path('a.top')}"), "was changed since")
    contains(fails(t, overlay(t, image="below.qcow2")), "over another base than")
    contains(fails(t, f"overlay:base={t.path('raw.img')},top={t.path('a.top')}"), "another base")


@test(fairlift_only=True)
def an_image_that_qemu_writes_is_refused_and_qemu_writes_none_that_is_served(t):
    image, _ = made(t)
    writer = t.start("qemu-nbd", "-f", "qcow2", "-k", t.path("qemu"), "--persistent", image)
    until(lambda: Path(t.path("qemu")).exists(), "QEMU listens")
    contains(fails(t, overlay(t)), "is being written by QEMU")
    writer.kill()  # by SIGTERM it may go on for ever, if that comes as it begins
    writer.wait()
    server = t.server(f"a={overlay(t)}")
    contains(t.run("qemu-io", "-f", "qcow2", image, "-c", "write 0 512", code=1), "lock")
    t.run("qemu-io", "-r", "-f", "qcow2", image, "-c", "read 0 512")
    for name in "below.qcow2", "raw.img":
        contains(t.serve_fails(f"w=file:{t.path(name)},format=raw", "--listen", f"unix:{t.path('s')}"), "is in use by another server")
    server.serves("a")


@test(fairlift_only=True)
def a_chain_lies_in_the_roots_and_an_image_that_cannot_be_read_says_why(t):
    image, _ = made(t)
    os.mkdir(t.path("root"))
    t.run("qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", "../raw.img", t.path("root/out.qcow2"))
    where = "--listen", f"unix:{t.path('s')}"
    backing = f"overlay:base=qcow2:{t.path('root/out.qcow2')},top={t.path('root/o.top')}"
    contains(t.serve_fails(f"a={backing}", "--root", t.path("root"), *where), "lies over", "raw.img", "(--root)")
    contains(t.serve_fails(f"a={overlay(t, top='root/o.top')}", "--root", t.path("root"), *where), "is not in")
    create(t, "zstd.qcow2", "-o", "compression_type=zstd")
    contains(fails(t, overlay(t, image="zstd.qcow2")), "zstd", "qemu-img convert")
    whole = Path(image).read_bytes()
    Path(t.path("short.qcow2")).write_bytes(whole[:len(whole) - 3 * CLUSTER])
    contains(fails(t, overlay(t, image="short.qcow2")), "is damaged", "it was cut short")
    server = t.server(f"a={overlay(t)}")
    for name, says in ("short.qcow2", "is damaged"), ("none.qcow2", "No such file"), ("raw.img", "is no qcow2 image"):
        contains(server.control("add", "export", f"x={overlay(t, top='x.top', image=name)}", code=1), says)
    server.serves("a")


@test(fairlift_only=True)
def an_image_that_is_cut_while_it_is_served_fails_reads_and_nothing_else(t):
    image, _ = made(t)
    server = t.server(f"a={overlay(t)}", "m=mem:1m")
    with server.connect("a") as client:
        client.write(MIB, data(4096))
        os.truncate(t.path("raw.img"), 512)
        os.truncate(image, 512)
        with refused(EIO):
            client.read(7 * MIB, 4096)
        with refused(EIO):
            client.read(MIB + 64 * KIB, 4096)
        equal(client.read(MIB, 4096), data(4096), "what is in the top")
    server.serves("m")
