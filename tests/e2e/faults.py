"""Backings that are wrong from the start, and backings that fail under way."""

from harness import *
from nbdclient import READ, WRITE, NbdError


# ---- wrong from the start


@test(fairlift_only=True)
def a_backing_that_cannot_be_served_is_refused_with_its_name_and_reason(t):
    fifo, empty = t.path("fifo"), t.image("empty", 0)
    os.mkfifo(fifo)
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(t.path("socket"))
    for path, *words in [
        (t.path("missing"), "no such file"),
        (t.path("missing/below"), "no such file"),
        (str(t.dir), "directory"),
        (fifo, "regular file"),
        (t.path("socket"), "regular file"),
        ("/dev/null", "regular file"),
        (empty, "empty"),
    ]:
        for other in [], ["good=mem:1M"]:
            message = t.serve_fails(*other, f"disk=file:{path}", "--listen", f"unix:{t.path('s')}")
            contains(message, path, *words)
            equal(os.path.exists(t.path("s")), False, "the socket of a server that did not start")


@test(fairlift_only=True)
def a_file_that_cannot_be_written_is_refused_and_served_read_only(t):
    if os.geteuid() == 0:
        mount = tmpfs(t, "4m")
        path = f"{mount}/image"
        Path(path).write_bytes(data(MIB))
        t.run("mount", "-o", "remount,ro", mount)
    else:
        path = t.image("image", MIB, (0, data(MIB)))
        os.chmod(path, 0o400)
    message = t.serve_fails(f"disk=file:{path}", "--listen", f"unix:{t.path('s')}")
    contains(message, path, "not writable", "read-only")
    server = t.server(f"disk=file:{path}", read_only=["disk"])
    with server.connect("disk") as client:
        equal(client.read_only, True, "what the flags say")
        assert client.read(0, MIB) == data(MIB), "a read-only file shows something else"


# ---- failing under way


@test
def a_file_that_was_cut_under_us_fails_where_it_is_cut_and_nowhere_else(t):
    image = t.image("image", 8 * MIB, (0, data(8 * MIB)))
    server = t.server(f"disk=file:{image}", "other=mem:1M")
    with server.connect("disk") as client:
        os.truncate(image, 4 * MIB)
        if STAND_IN:
            return  # QEMU shows zeroes there
        for offset, length in (4 * MIB, 512), (7 * MIB, MIB), (4 * MIB - 4096, 8192), (3 * MIB, 2 * MIB):
            with refused(EIO):
                client.read(offset, length)
            assert client.read(0, MIB) == data(8 * MIB)[:MIB], "what is left reads as something else"
        assert client.read(3 * MIB, MIB) == data(8 * MIB)[3 * MIB:4 * MIB], "the last mebibyte that is left"
        client.flush()
        try:
            client.write(6 * MIB, data(4096))  # grows the file again, or is refused
            equal(client.read(6 * MIB, 4096), data(4096), "what was written beyond the cut")
        except NbdError as error:
            assert error.errno in (EIO, ENOSPC), f"the error is {error}"
    server.serves("other")


def tmpfs(t, size):
    if os.geteuid() != 0:
        t.skip("mounting a small file system needs root")
    mount = t.path("small")
    os.mkdir(mount)
    t.run("mount", "-t", "tmpfs", "-o", f"size={size}", "none", mount)
    t.defer(subprocess.run, ["umount", "-l", mount])
    return mount


def small_ext4(t):
    if os.geteuid() != 0:
        t.skip("mounting a small file system needs root")
    if not os.path.exists("/dev/loop-control"):
        t.skip("there is no /dev/loop-control")
    mount = t.path("small")
    os.mkdir(mount)
    t.run("mkfs.ext4", "-q", "-F", "-O", "^has_journal", t.image("small.img", 16 * MIB))
    t.run("mount", "-o", "loop", t.path("small.img"), mount)
    t.defer(subprocess.run, ["umount", mount])
    return mount


def fills_up(t, mount):
    """A sparse file that is larger than its file system: what fits stays, what does not is refused by name."""
    with open(f"{mount}/image", "wb") as file:
        file.truncate(64 * MIB)
    server = t.server(f"disk=file:{mount}/image", f"good=file:{t.image('good', MIB)}")
    with server.connect("disk") as client, server.connect("good") as other:
        written = {}
        full = False
        for number in range(200):
            piece = data(256 * KIB, number)
            try:
                client.write(number * 256 * KIB, piece)
                written[number] = piece
            except NbdError as error:
                equal(error.errno, ENOSPC, f"the error of a full disk ({error})")
                full = True
                break
        assert full, "50 MiB went into a file system of 16"
        assert written, "nothing went into the file system"
        other.write(0, data(4096))
        other.flush()
        equal(other.read(0, 4096), data(4096), "what goes on elsewhere")
        client.flush()
        for number, piece in written.items():
            assert client.read(number * 256 * KIB, 256 * KIB) == piece, f"piece {number} was changed by the full disk"
        # Many at once, some of which fail: each has its own answer.
        cookies = {client.submit(WRITE, (150 + n) * 256 * KIB, 4096 if n % 2 else MIB, bytes(4096 if n % 2 else MIB))
                   for n in range(20)}
        cookies |= {client.submit(READ, n % len(written) * 256 * KIB, 256 * KIB) for n in range(20)}
        for _ in range(40):
            reply = client.reply()
            cookies.remove(reply.cookie)
            assert reply.error in (0, ENOSPC), f"error {reply.error}"
        # Space that is given back can be used again.
        for number in list(written)[:8]:
            client.trim(number * 256 * KIB, 256 * KIB)
        client.write(0, data(64 * KIB, "again"))
        equal(client.read(0, 64 * KIB), data(64 * KIB, "again"), "what was written into space given back")


@test
def a_full_tmpfs_is_told_to_who_wrote_and_others_go_on(t):
    fills_up(t, tmpfs(t, "4m"))


@test
def a_full_ext4_is_told_to_who_wrote_and_others_go_on(t):
    fills_up(t, small_ext4(t))


def failing_device(t):
    """A file on a device below the kernel, which is another server's, and a function that gives that device other faults."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        t.skip("there is no /dev/fuse to put a failing device under the file")
    rules, mount = Path(t.path("rules.toml")), t.path("fuse")
    rules.touch()
    os.mkdir(mount)
    device = t.server(config='[export.device]\nbacking = "fault:rules.toml,inner=mem:8M"\n')
    device.seen_to_end = True  # it goes after the server whose device it is, and a flush that failed is no mistake
    t.start("nbdfuse", mount, device.uri("device"))
    t.defer(subprocess.run, ["umount", "-l", mount], -1, None, None, None, subprocess.DEVNULL)
    until(lambda: os.path.exists(f"{mount}/nbd"), "nbdfuse shows its file")

    def fails(*ops):
        rules.write_text(f'[[fault]]\nop = {list(ops)}\nerror = "EIO"\n' if ops else "")
        device.control("reload")

    return f"{mount}/nbd", fails


@test(fairlift_only=True)
def an_io_error_reaches_exactly_who_asked_and_passes_when_the_device_recovers(t):
    file, fails = failing_device(t)
    server = t.server(f"disk=file:{file}", "good=mem:1M")
    with server.connect("disk") as client, server.connect("good") as other:
        client.write(0, data(MIB))
        client.flush()
        fails("read")
        with refused(EIO):
            client.read(0, 4096)
        with refused(EIO):
            client.read(4 * MIB, MIB)
        other.write(0, data(4096))
        equal(other.read(0, 4096), data(4096), "what goes on elsewhere")
        client.write(2 * MIB, data(4096))
        fails()
        assert client.read(0, MIB) == data(MIB), "after the device recovered"
        equal(client.read(2 * MIB, 4096), data(4096), "what was written while reads failed")
        fails("write", "zeroes", "discard")
        with refused(EIO):
            client.write(0, bytes(4096))
        with refused(EIO):
            client.zero(MIB, 64 * KIB)
        assert client.read(0, MIB) == data(MIB), "what a failed write has changed"
        fails()
        client.write(0, data(4096, 2))
        equal(client.read(0, 4096), data(4096, 2), "what was written after the device recovered")
        # A mix in flight at once: every read fails, every write succeeds, each under its own cookie.
        fails("read")
        kinds = {client.submit(READ, n * 4096, 4096): EIO for n in range(20)}
        kinds |= {client.submit(WRITE, 3 * MIB + n * 4096, 4096, data(4096, n)): 0 for n in range(20)}
        for _ in range(40):
            reply = client.reply()
            equal(reply.error, kinds.pop(reply.cookie), "the answer in a mix")
        fails()
        equal(client.read(3 * MIB + 19 * 4096, 4096), data(4096, 19), "a write amid failing reads")


@test(fairlift_only=True)
def a_failed_flush_is_told_to_everyone_whom_it_covers(t):
    """Neither a flush nor a write with FUA may claim success when the device below could not flush."""
    file, fails = failing_device(t)
    server = t.server(f"disk=file:{file}", "good=mem:1M")
    with server.connect("disk") as one, server.connect("disk") as two:
        one.write(0, data(4096))
        one.flush()
        one.write(8192, data(4096))
        fails("flush")
        cookies = [(client, client.submit(nbdclient.FLUSH)) for client in (one, two, one, two)]
        for client, _ in cookies:
            equal(client.reply().error, EIO, "the answer to a flush that failed")
        with refused(EIO):
            two.write(4096, data(4096), nbdclient.FUA)
        server.serves("good")
        fails()
    # The last flush, at the end, succeeds again or is told: but the server says so itself.
    server.process.send_signal(signal.SIGTERM)
    assert server.ended() in (0, 1), "the server's end after a failed flush"


@test(fairlift_only=True)
def an_io_error_of_a_block_device_reaches_the_client(t):
    if os.geteuid() != 0:
        t.skip("device mapper needs root")
    if subprocess.run(["dmsetup", "targets"], capture_output=True).returncode != 0:
        t.skip("this kernel has no device mapper (`dmsetup targets` fails)")
    loop = t.run("losetup", "-f", "--show", t.image("image", 4 * MIB)).strip()
    t.defer(subprocess.run, ["losetup", "-d", loop])
    name = f"fairlift-test-{os.getpid()}"
    table = f"0 4096 linear {loop} 0\n4096 2048 error\n6144 2048 linear {loop} 6144\n"
    subprocess.run(["dmsetup", "create", name], input=table, text=True, check=True)
    t.defer(subprocess.run, ["dmsetup", "remove", "--retry", name])
    server = t.server(f"disk=file:/dev/mapper/{name}")
    with server.connect("disk") as client:
        client.write(0, data(MIB))
        client.write(6144 * 512, data(MIB))
        for command in lambda: client.read(2 * MIB, 4096), lambda: client.write(2 * MIB, bytes(4096)):
            with refused(EIO):
                command()
        assert client.read(0, MIB) == data(MIB), "what lies before the bad sectors"
        assert client.read(6144 * 512, MIB) == data(MIB), "what lies after the bad sectors"
        client.flush()
    server.stop()


if __name__ == "__main__":
    main()
