"""Files as backings: on file systems that make us wait, under names that change, and on disks that go away."""

from harness import *
from nbdclient import CACHE, READ, NbdError

TRIM, FAST_ZERO = 1 << 5, 1 << 11


def needs_root(t):
    if os.geteuid() != 0:
        t.skip("mounting needs root")
    if not os.path.exists("/dev/loop-control"):
        t.skip("there is no /dev/loop-control")


def squashfs(t, content, name="image"):
    """A file with this content in a mounted squashfs."""
    needs_root(t)
    if "squashfs" not in Path("/proc/filesystems").read_text():
        t.skip("this kernel has no squashfs")
    tree, image, mount = t.path("tree"), t.path("tree.squashfs"), t.path("squash")
    os.mkdir(tree)
    os.mkdir(mount)
    Path(tree, name).write_bytes(content)
    t.run("mksquashfs", tree, image, "-quiet", "-no-progress")
    t.run("mount", "-o", "loop,ro", image, mount)
    t.defer(subprocess.run, ["umount", "-l", mount])
    return f"{mount}/{name}"


def ext4(t, megabytes, *options, name="small"):
    needs_root(t)
    mount, image = t.path(name), t.image(f"{name}.img", megabytes * MIB)
    os.mkdir(mount)
    t.run("mkfs.ext4", "-q", "-F", *options, image)
    t.run("mount", "-o", "loop", image, mount)
    t.defer(subprocess.run, ["umount", "-l", mount])
    return mount


def fuse(t, *nbdkit, name="fuse"):
    """A file that FUSE shows of what nbdkit serves; returns its path and the process that shows it."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        t.skip("there is no /dev/fuse")
    below, mount = t.path(f"{name}.sock"), t.path(name)
    os.mkdir(mount)
    t.start("nbdkit", "-f", "-U", below, *nbdkit)
    until_listening(below, "nbdkit")
    process = t.start("nbdfuse", mount, f"nbd+unix:///?socket={below}")
    t.defer(subprocess.run, ["umount", "-l", mount], -1, None, None, None, subprocess.DEVNULL)
    until(lambda: os.path.exists(f"{mount}/nbd"), "nbdfuse shows its file")
    return f"{mount}/nbd", process


def threads(server):
    """How many threads of each name a server has; the kernel's own helpers are called iou-wrk-…."""
    names = []
    for task in Path(f"/proc/{server.pid}/task").iterdir():
        with contextlib.suppress(OSError):
            names.append(re.sub(r"[-\d]+$", "", (task / "comm").read_text().strip()))
    return {name: names.count(name) for name in names}


def lines(server, *words):
    """The lines of its log that hold all of these words."""
    return [line for line in server.log().splitlines() if all(word in line for word in words)]


def drop_caches(t):
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3")
    except OSError:
        t.skip("the page cache cannot be emptied here")


# ---- threads ----


@test(fairlift_only=True)
def many_readers_of_a_squashfs_are_served_by_few_threads(t):
    content = data(8 * MIB) + bytes(8 * MIB)
    path = squashfs(t, content)
    server = t.server(f"disk=file:{path}", "other=mem:1M", read_only=["disk"])
    server.says("helper threads")
    drop_caches(t)
    most = 0
    clients = [server.connect("disk") for _ in range(16)]
    for round in range(4):
        asked = []
        for client in clients:
            for _ in range(8):
                offset = t.random.randrange(16 * MIB // 4096) * 4096
                asked.append((client, client.submit(READ, offset, 4096), offset))
        most = max(most, threads(server).get("helper", 0))
        for client, _, offset in asked:
            reply = client.reply()
            offset = next(o for c, cookie, o in asked if c is client and cookie == reply.cookie)
            equal(reply.error, 0, "a read's answer")
            assert reply.data(offset, 4096) == content[offset:offset + 4096], f"other bytes at {offset}"
    counts = threads(server)
    most = max(most, counts.get("helper", 0))
    assert most <= 16, f"{most} helper threads for one disk"
    equal(counts.get("iou-wrk", 0), 0, "threads that the kernel made for reads")
    server.serves("other")
    for client in clients:
        client.disconnect()
    server.stop()
    server.says("stats helpers busy_most", "concurrency=")


@test(fairlift_only=True)
def nothing_of_a_squashfs_is_read_ahead(t):
    content = data(16 * MIB)
    path = squashfs(t, content)
    drop_caches(t)
    server = t.server(f"disk=file:{path}", read_only=["disk"])
    with server.connect("disk") as client:
        for offset in range(4 * MIB, 5 * MIB, 128 * KIB):
            assert client.read(offset, 128 * KIB) == content[offset:offset + 128 * KIB], f"other bytes at {offset}"
    cached = int(t.run("fincore", "--bytes", "--noheadings", "--output", "RES", path))
    assert cached <= 2 * MIB, f"{cached} bytes are in the cache, and 1 MiB was asked for"


@test(fairlift_only=True)
def what_is_cached_of_a_squashfs_is_read_without_a_thread(t):
    content = data(4 * MIB)
    path = squashfs(t, content)
    # Another test may drop what is cached while this one reads it: then once more.
    for _ in range(5):
        server = t.server(f"disk=file:{path}", read_only=["disk"])
        if not lines(server, "cached data at once"):
            t.skip("whether data is cached cannot be told here: " + "".join(lines(server, "opened")))
        Path(path).read_bytes()
        with server.connect("disk") as client:
            for offset in range(0, 4 * MIB, 64 * KIB):
                assert client.read(offset, 64 * KIB) == content[offset:offset + 64 * KIB], f"other bytes at {offset}"
            assert client.read(512, 3 * MIB) == content[512:3 * MIB + 512]
        helpers = threads(server).get("helper", 0)
        if helpers == 0:
            break
    equal(helpers, 0, "helper threads")


@test(fairlift_only=True)
def what_a_setting_fixes_is_not_exceeded(t):
    path = squashfs(t, data(16 * MIB))
    config = f"""
        [disk.d]
        concurrency = 2
        [export.disk]
        backing = "file:{path}"
        disk = "d"
        read_only = true
        """
    server = t.server(config=config)
    drop_caches(t)
    with server.connect("disk") as client:
        for n in range(64):
            client.submit(READ, n * 256 * KIB, 4096)
        for _ in range(64):
            equal(client.reply().error, 0, "a read's answer")
    server.stop()
    most = re.search(r"busy_most=(\d+)", server.log())
    assert most and int(most[1]) <= 2, f"{most and most[1]} threads were busy at once"


@test(fairlift_only=True)
def a_disk_that_hangs_leaves_threads_to_the_others(t):
    """Four files that hang together hold no more threads than there are, and a fifth file is read while they hang."""
    slow = [fuse(t, "memory", "8M", name=f"slow{n}") for n in range(4)]
    quick, _ = fuse(t, "memory", "8M", name="quick")
    server = t.server(*(f"slow{n}=file:{path}" for n, (path, _) in enumerate(slow)), f"quick=file:{quick}")
    clients = [server.connect(f"slow{n}") for n in range(4)]
    for _, process in slow:
        stand_still(t, process)
    # More than the 32 threads.
    for client in clients:
        for n in range(9):
            client.submit(READ, n * 512 * KIB, 4096)
    with server.connect("quick") as other:
        for n in range(50):
            other.read(n * 4096, 4096)
        waiting = [client for client in clients if not client.readable(0)]
        equal(len(waiting), 4, "slow disks that have answered nothing when the quick one had answered all")
    counts = threads(server)
    assert counts["helper"] <= 32, f"threads: {counts}"
    for (_, process), client in zip(slow, clients):
        process.send_signal(signal.SIGCONT)
        for _ in range(9):
            equal(client.reply().error, 0, "a read's answer once the disk goes on")


@test(fairlift_only=True)
def buffered_writes_of_a_file_land_in_order(t):
    """Writes to one place, all in flight at once, where only the last may remain."""
    image = t.image("image", 8 * MIB)
    path, _ = fuse(t, "memory", "8M")
    server = t.server(f"cached=file:{image},direct=off", f"fuse=file:{path},direct=off")
    for name in "cached", "fuse":
        with server.connect(name) as client:
            for n in range(100):
                client.write(n % 10 * 4096, data(4096, name, n))
            client.flush()
            for n in range(90, 100):
                equal(client.read(n % 10 * 4096, 4096), data(4096, name, n), f"block {n % 10} of {name}")


# ---- direct or not ----


@test(fairlift_only=True)
def the_log_says_whether_io_is_direct_and_why(t):
    image = t.image("image", MIB)
    path = squashfs(t, data(MIB))
    server = t.server(f"a=file:{image}", f"b=file:{path}", read_only=["b"])
    equal(len(lines(server, "opened", path, "through the page cache", "no direct I/O")), 1, "lines about the squashfs")
    if lines(server, "opened", image, "direct, in blocks of"):
        assert lines(server, "opened", image, "statx") or lines(server, "opened", image, "by trying")
    Path(t.path("on.toml")).write_text(f'[export.c]\nbacking = "file:{path},direct=on"\nread_only = true\n')
    message = t.serve_fails("--config", t.path("on.toml"), "--listen", f"unix:{t.path('s')}")
    contains(message, path, "no direct I/O", "auto")


# ---- files that change under us ----


@test(fairlift_only=True)
def a_file_that_is_deleted_or_replaced_is_served_on_and_told_once(t):
    for name in "deleted", "replaced":
        image = t.image(name, MIB, (0, data(MIB)))
        server = t.server(f"disk=file:{image}", "other=mem:1M")
        with server.connect("disk") as client:
            if name == "deleted":
                os.unlink(image)
            else:
                os.rename(t.image("new", MIB), image)
            for n in range(5):
                client.write(n * 4096, data(4096, n))
                client.flush()
            equal(client.read(4096, 4096), data(4096, 1), "what was written after that")
        server.serves("other")
        server.stop()
        equal(len(lines(server, "deleted or replaced", image)), 1, "lines about it")


@test(fairlift_only=True)
def a_file_that_is_cut_is_told_once_and_is_whole_when_it_is_as_long_again(t):
    image = t.image("image", MIB, (0, data(MIB)))
    server = t.server(f"disk=file:{image}", "other=mem:1M")
    with server.connect("disk") as client:
        os.truncate(image, 512 * KIB)
        for _ in range(50):
            with refused(EIO):
                client.read(768 * KIB, 4096)
        equal(client.read(0, 4096), data(MIB)[:4096], "what is left")
        os.truncate(image, MIB)
        equal(client.read(768 * KIB, 4096), bytes(4096), "what was cut off")
        client.flush()
    server.serves("other")
    equal(len(lines(server, "cut to")), 1, "lines that it was cut")
    equal(len(lines(server, "a read failed")), 1, "lines about reads")
    equal(len(lines(server, "has its full size again; the part")), 1, "lines that it is whole")


@test(fairlift_only=True)
def a_full_file_system_is_one_line_and_goes_on_when_there_is_space(t):
    mount = ext4(t, 16)
    with open(f"{mount}/image", "wb") as file:
        file.truncate(8 * MIB)
    server = t.server(f"disk=file:{mount}/image", "other=mem:1M")
    with server.connect("disk") as client:
        Path(mount, "filler").touch()
        with open(f"{mount}/filler", "wb", buffering=0) as filler, contextlib.suppress(OSError):
            while True:
                filler.write(bytes(4096))
        for n in range(40):
            with refused(ENOSPC):
                client.write(n * 64 * KIB, data(64 * KIB, n))
        server.serves("other")
        os.unlink(f"{mount}/filler")
        os.sync()
        for n in range(40):
            client.write(n * 64 * KIB, data(64 * KIB, n))
        client.flush()
        equal(client.read(39 * 64 * KIB, 64 * KIB), data(64 * KIB, 39), "what was written when there was space")
    equal(len(lines(server, "a write failed")), 1, "lines about it")


@test(fairlift_only=True)
def a_file_system_that_becomes_read_only_refuses_writes_and_goes_on_reading(t):
    mount = ext4(t, 16, "-e", "remount-ro")
    Path(mount, "image").write_bytes(data(MIB))
    device = os.path.basename(t.run("findmnt", "-no", "SOURCE", mount).strip())
    trigger = Path(f"/sys/fs/ext4/{device}/trigger_fs_error")
    if not trigger.exists():
        t.skip("this kernel cannot be told to find an error in ext4")
    server = t.server(f"disk=file:{mount}/image", "other=mem:1M")
    with server.connect("disk") as client:
        client.read(0, 4096)
        trigger.write_text("a test")
        until(lambda: re.search(r"\b(emergency_)?ro\b", t.run("findmnt", "-no", "FS-OPTIONS", mount)), "it is read-only")
        failed = 0
        for n in range(30):
            try:
                client.write(n * 4096, data(4096, n))
            except NbdError as error:
                assert error.errno in (EPERM, EIO), f"the answer to a write: {error}"
                failed += 1
        assert failed == 30, f"{failed} of 30 writes were refused"
        equal(client.read(64 * KIB, 4096), data(MIB)[64 * KIB:68 * KIB], "what can still be read")
    server.serves("other")
    equal(len(lines(server, "a write failed")), 1, "lines about it")
    server.process.send_signal(signal.SIGTERM)
    assert server.ended() in (0, 1)


@test(fairlift_only=True)
def a_path_that_leads_in_a_circle_is_refused(t):
    os.symlink(t.path("b"), t.path("a"))
    os.symlink(t.path("a"), t.path("b"))
    contains(t.serve_fails(f"disk=file:{t.path('a')}", "--listen", f"unix:{t.path('s')}"), t.path("a"), "symbolic links")


@test(fairlift_only=True)
def a_permission_that_is_lost_counts_for_the_next_server(t):
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        t.skip("needs root, and setpriv to become somebody else")
    image = t.image("image", MIB)
    for part in Path(t.dir).parents:
        if not part.stat().st_mode & 0o001:
            t.skip(f"others may not enter {part}")
    os.chmod(t.dir, 0o777)
    binary = t.path("fairlift")
    shutil.copy(BINARY, binary)
    os.chmod(image, 0o666)
    somebody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    server = t.server(f"disk=file:{image}")
    os.chmod(image, 0o000)
    server.serves("disk")
    server.stop()
    out = t.run(*somebody, binary, "serve", f"disk=file:{image}", "--listen", f"unix:{t.path('s')}", code=None)
    contains(out, image, "permission denied")


@test(fairlift_only=True)
def a_device_below_that_goes_away_fails_alone(t):
    path, process = fuse(t, "memory", "8M")
    server = t.server(f"disk=file:{path}", "other=mem:1M")
    with server.connect("disk") as client:
        client.write(0, data(4096))
        equal(client.read(0, 4096), data(4096), "before it went")
        process.kill()
        process.wait()
        for n in range(30):
            try:
                client.read(n * 4096, 4096)
            except NbdError as error:
                equal(error.errno, EIO, f"the answer to a read ({error})")
            else:
                raise AssertionError("a read of a file that is gone went through")
        server.serves("other")
    assert len(lines(server, "a read failed")) <= 2, "\n".join(lines(server, "a read failed"))
    server.process.send_signal(signal.SIGTERM)
    assert server.ended() in (0, 1)


@test(fairlift_only=True)
def a_block_device_that_is_cut_off_below_fails_and_comes_back(t):
    """A loop device whose file is cut: its reads fail or are empty, and it serves again when the file is there again."""
    needs_root(t)
    image = t.image("image", 4 * MIB, (0, data(4 * MIB)))
    loop = t.run("losetup", "-f", "--show", "--direct-io=on", image).strip()
    t.defer(subprocess.run, ["losetup", "-d", loop])
    server = t.server(f"disk=file:{loop}", "other=mem:1M")
    with server.connect("disk") as client:
        equal(client.read(2 * MIB, 4096), data(4 * MIB)[2 * MIB:2 * MIB + 4096], "before")
        os.truncate(image, MIB)
        for n in range(20):
            try:
                equal(client.read(2 * MIB + n * 4096, 4096), bytes(4096), "what a loop device says is there")
            except NbdError as error:
                equal(error.errno, EIO, f"the answer to a read ({error})")
        server.serves("other")
        os.truncate(image, 4 * MIB)
        client.write(2 * MIB, data(4096, "again"))
        client.flush()
        equal(client.read(2 * MIB, 4096), data(4096, "again"), "what was written when it was back")
    assert len(lines(server, "a read failed")) <= 1


# ---- holes ----


@test(fairlift_only=True)
def what_a_file_system_cannot_do_is_not_offered_to_those_who_come_later(t):
    disk = t.image("disk", 8 * MIB)
    path, _ = fuse(t, "eval", "get_size=echo 8M", f"pread=dd if={disk} bs=4096 skip=$4 count=$3 iflag=skip_bytes,count_bytes",
                   f"pwrite=dd of={disk} bs=4096 seek=$4 conv=notrunc oflag=seek_bytes")
    server = t.server(f"disk=file:{path}")
    with server.connect("disk") as client:
        client.write(0, data(MIB))
        first = client.flags
        client.trim(0, 64 * KIB)
        client.zero(64 * KIB, 64 * KIB)
        equal(client.read(64 * KIB, 64 * KIB), bytes(64 * KIB), "zeroes that no file system helps with")
    if not lines(server, "cannot punch holes"):
        t.skip("this FUSE file system punches holes")
    with server.connect("disk") as client:
        assert first & TRIM and not client.flags & TRIM, f"flags {first:#x}, then {client.flags:#x}"
        assert not client.flags & FAST_ZERO, f"flags {client.flags:#x}"
        client.zero(0, 64 * KIB)
        equal(client.read(0, 64 * KIB), bytes(64 * KIB), "zeroes")


@test(fairlift_only=True)
def where_a_worker_would_wait_for_another_process_all_is_data(t):
    """Block status and CACHE of a FUSE file are answered while its server stands still, and so are other exports."""
    path, process = fuse(t, "memory", "8M")
    server = t.server(f"disk=file:{path},direct=off", "other=mem:1M")
    stand_still(t, process)
    with server.connect("disk") as client:
        equal(client.status(0, 8 * MIB), [(8 * MIB, 0)], "what is there of an empty file")
        client.ask(CACHE, 0, 8 * MIB)
        for _ in range(4):
            server.serves("other")
    process.send_signal(signal.SIGCONT)


@test(fairlift_only=True)
def a_discard_gives_space_back_and_reads_as_zeroes(t):
    image = t.image("image", 8 * MIB, (0, data(8 * MIB)))
    os.sync()
    before = os.stat(image).st_blocks
    server = t.server(f"disk=file:{image}")
    with server.connect("disk") as client:
        client.trim(MIB, 4 * MIB)
        client.zero(6 * MIB, MIB)
        client.flush()
        equal(client.read(MIB, MIB), bytes(MIB), "what was discarded")
        equal(client.read(6 * MIB, MIB), bytes(MIB), "what was zeroed")
        equal(client.read(0, MIB), data(8 * MIB)[:MIB], "what was not")
    if lines(server, "cannot punch holes"):
        t.skip("this file system punches no holes")
    after = os.stat(image).st_blocks
    assert after <= before - 4 * MIB // 512, f"{before} blocks before, {after} after"
    equal(os.stat(image).st_size, 8 * MIB, "its size")


@test(fairlift_only=True)
def preallocated_sparse_and_immutable_files_are_served(t):
    preallocated, sparse = t.image("preallocated", 0), t.image("sparse", 64 * MIB)
    with open(preallocated, "r+b") as file:
        os.posix_fallocate(file.fileno(), 0, 8 * MIB)
    server = t.server(f"a=file:{preallocated}", f"b=file:{sparse}")
    for name in "a", "b":
        with server.connect(name) as client:
            equal(client.read(4 * MIB, 4096), bytes(4096), "what was never written")
            client.write(4 * MIB, data(4096, name))
            client.flush()
            equal(client.read(4 * MIB, 4096), data(4096, name), "what was written")
    server.stop()
    immutable = t.image("immutable", MIB, (0, data(MIB)))
    if subprocess.run(["chattr", "+i", immutable], capture_output=True).returncode != 0:
        t.skip("files cannot be made immutable here (the rest passed)")
    t.defer(subprocess.run, ["chattr", "-i", immutable])
    contains(t.serve_fails(f"c=file:{immutable}", "--listen", f"unix:{t.path('s')}"), immutable, "not writable")
    t.server(f"c=file:{immutable}", read_only=["c"]).serves("c")


# ---- nested ----


@test(fairlift_only=True)
def an_image_inside_an_image_that_we_serve_is_written_through_little_memory(t):
    """A server's file lies on ext4, on a loop device, on FUSE, on another server; each has little page cache to use.

    In one group the kernel may let them wait for each other: what it does for those that serve I/O (PR_SET_IO_FLUSHER)
    needs CAP_SYS_RESOURCE.
    """
    needs_root(t)
    root = Path("/sys/fs/cgroup/memory")
    if not (root / "memory.limit_in_bytes").exists():
        t.skip("there is no cgroup v1 memory controller at /sys/fs/cgroup/memory")
    capabilities = int(re.search(r"CapEff:\s*(\w+)", Path("/proc/self/status").read_text())[1], 16)
    outer = t.server(f"outer=file:{t.image('outer', 192 * MIB)},direct=off")
    mount, inside = t.path("fuse"), t.path("inside")
    os.mkdir(mount)
    os.mkdir(inside)
    t.start("nbdfuse", mount, outer.uri("outer"))
    t.defer(subprocess.run, ["umount", "-l", mount], -1, None, None, None, subprocess.DEVNULL)
    until(lambda: os.path.exists(f"{mount}/nbd"), "nbdfuse shows its file")
    t.run("mkfs.ext4", "-q", "-F", f"{mount}/nbd")
    t.run("mount", "-o", "loop", f"{mount}/nbd", inside)
    t.defer(subprocess.run, ["umount", inside], -1, None, None, None, subprocess.DEVNULL)
    with open(f"{inside}/image", "wb") as file:
        file.truncate(128 * MIB)
    inner = t.server(f"inner=file:{inside}/image,direct=off")
    for number, server in enumerate((outer, inner)):
        group = root / f"fairlift-{os.getpid()}-{0 if capabilities >> 24 & 1 else number}"
        if not group.exists():
            group.mkdir()
            t.defer(lambda group=group: until(lambda: not (group / "cgroup.procs").read_text(), "it is empty") and group.rmdir())
            (group / "memory.limit_in_bytes").write_text("64M")
        (group / "cgroup.procs").write_text(str(server.pid))
    with inner.connect("inner", timeout=90) as client:
        for n in range(96):
            client.write(n * MIB, data(MIB, n))
        client.flush()
        for n in range(96):
            assert client.read(n * MIB, MIB) == data(MIB, n), f"mebibyte {n} is another"
    inner.stop()
    t.run("umount", inside)
    t.run("umount", mount)


if __name__ == "__main__":
    main()
