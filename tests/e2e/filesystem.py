"""A real file system on an export, through nbdfuse, a loop device and the kernel's ext4."""

from harness import *


def needs_fuse_and_loop(t):
    for device in "/dev/fuse", "/dev/loop-control":
        if not os.path.exists(device):
            t.skip(f"there is no {device}")
        try:
            os.close(os.open(device, os.O_RDWR))
        except OSError as error:
            t.skip(f"{device} cannot be opened: {error}")
    if os.geteuid() != 0:
        t.skip("losetup and mount need root")


def attach(t, server, export):
    """The export as a loop device; returns its path and what takes it down again."""
    os.makedirs(t.path("fuse"), exist_ok=True)
    fuse = t.start("nbdfuse", t.path("fuse"), server.uri(export))
    t.defer(subprocess.run, ["umount", "-l", t.path("fuse")], -1, None, None, None, subprocess.DEVNULL)
    file = t.path("fuse/nbd")
    until(lambda: fuse.poll() is not None or os.path.exists(file), "nbdfuse shows its file")
    try:
        loop = t.run("losetup", "-f", "--show", file).strip()
    except AssertionError as error:
        if "Operation not permitted" in str(error) or "cannot find an unused" in str(error):
            t.skip(f"no loop device to be had: {error}")
        raise
    detached = []

    def detach():
        if not detached:
            detached.append(True)
            t.run("losetup", "-d", loop)
            # The kernel may let go of what is below a little later.
            until(lambda: "busy" not in t.run("umount", t.path("fuse"), code=None), "nbdfuse's file is not used any more")
            fuse.wait(60)

    t.defer(detach)
    return loop, detach


def mount(t, loop):
    os.makedirs(t.path("mnt"), exist_ok=True)
    t.run("mount", "-t", "ext4", loop, t.path("mnt"))
    mounted = [True]

    def unmount():
        if mounted:
            mounted.clear()
            t.run("umount", t.path("mnt"))

    t.defer(unmount)
    return unmount


def grow_tree(t, root):
    """Files of many sizes, a sparse one, links, names of all sorts; some rewritten, some removed."""
    for number in range(120):
        folder = Path(root, f"folder {number % 7}", "ünter")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"file{number}").write_bytes(data(t.random.choice([0, 1, 511, 4096, 70_000, 300_000]), number))
    for number in range(0, 120, 5):
        (Path(root, f"folder {number % 7}", "ünter") / f"file{number}").unlink()
    for number in range(1, 120, 5):
        with open(Path(root, f"folder {number % 7}", "ünter", f"file{number}"), "r+b") as file:
            file.seek(1000)
            file.write(data(10_000, "again", number))
    with open(Path(root, "sparse"), "wb") as file:
        file.seek(5 * MIB)
        file.write(b"end")
    os.symlink("sparse", Path(root, "link"))


def tree(root):
    """Everything in it, with the hash of its content."""
    found = {}
    for path in sorted(Path(root).rglob("*")):
        name = str(path.relative_to(root))
        if name == "lost+found":
            continue
        found[name] = os.readlink(path) if path.is_symlink() else sha256(path) if path.is_file() else "directory"
    return found


def lives_through_a_restart(t, *arguments):
    needs_fuse_and_loop(t)
    backing = f"disk=file:{t.image('image', 128 * MIB)}"
    arguments = [] if STAND_IN else arguments
    server = t.server(backing, args=arguments)
    os.mkdir(t.path("here"))
    grow_tree(t, t.path("here"))
    wanted = tree(t.path("here"))
    assert len(wanted) > 90, "the tree is too small to mean anything"

    loop, detach = attach(t, server, "disk")
    t.run("mkfs.ext4", "-q", loop)
    unmount = mount(t, loop)
    t.run("cp", "-a", t.path("here") + "/.", t.path("mnt"))
    equal(tree(t.path("mnt")), wanted, "the tree just after copying")
    unmount()
    detach()
    if not STAND_IN:
        server.stop()
    else:
        server.kill()

    server = t.server(backing, args=arguments)
    loop, detach = attach(t, server, "disk")
    t.run("e2fsck", "-fn", loop)
    unmount = mount(t, loop)
    equal(tree(t.path("mnt")), wanted, "the tree after a restart of the server")
    t.run("fstrim", t.path("mnt"), code=None)  # nbdfuse of Debian 12 may not pass it on
    equal(tree(t.path("mnt")), wanted, "the tree after a trim of the free space")
    unmount()
    detach()


@test
def a_file_tree_on_ext4_is_the_same_after_a_restart_of_the_server(t):
    lives_through_a_restart(t, "--scheduler", "none")


@test
def a_file_tree_on_ext4_under_mq_deadline_is_the_same_after_a_restart_of_the_server(t):
    lives_through_a_restart(t, "--scheduler", "mq-deadline")


if __name__ == "__main__":
    main()
