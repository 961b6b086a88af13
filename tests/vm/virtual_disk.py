#!/usr/bin/env python3
"""A real Linux kernel in a virtual machine whose disks are ours by vhost-user: its own virtio driver, and QEMU between us only
until the rings are set up.

KILLS=500 kills the server so often (20 otherwise), UPGRADES=100 upgrades it so often (10 otherwise)."""

import socket

from linux_guest import *
from flush_disk import Disk
from successor import upgrade

MODULES = ["virtio_pci", "virtio_blk", "9p", "9pnet_virtio", "crc32c_generic", "ext4"]
CPUS = 4
KILLS = int(os.environ.get("KILLS") or 20)
UPGRADES = int(os.environ.get("UPGRADES") or 10)


def share(t):
    """A directory for the guest, with fio and all that it needs."""
    root = Path(t.path("share"))
    for directory in "dev", "tmp", "proc":
        (root / directory).mkdir(parents=True)
    fio = shutil.which(t.tool("fio"))
    shutil.copy(fio, root / "fio")
    for library in re.findall(r"(/\S+) \(0x", subprocess.run(["ldd", fio], capture_output=True, text=True).stdout):
        (root / library[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, root / library[1:])
    return root


def machine(t, script):
    """An unpacked kernel, and an initramfs whose only test is `script`."""
    for tool in "qemu-system-x86_64", "mke2fs", "busybox", "zstd":
        t.tool(tool)
    unpacked = kernel(t)
    initramfs.build(t.path("initramfs.gz"), unpacked, MODULES, ["mke2fs", "resize2fs"],
                    {"/init": HERE / "init", "/test": HERE / script, "/live": HERE / "live.sh"})
    return unpacked


def disk(number, socket, rings, reconnect=False, more=""):
    again = ",reconnect=1" if reconnect else ""
    return ["-chardev", f"socket,id=c{number},path={socket}{again}", "-device", f"vhost-user-blk-pci,chardev=c{number},num-queues={rings}{more}"]


# vhost-user needs the guest's memory in a file that can be shared.
SHARED = ["-object", "memory-backend-memfd,id=ram,size=512M,share=on", "-machine", "memory-backend=ram"]


@test(seconds=420, fairlift_only=True)
def a_linux_guest_lives_on_a_vhost_user_disk_with_a_ring_for_each_cpu(t):
    unpacked, root = machine(t, "vhost_user.sh"), share(t)
    image, fixed = t.image("image", SIZE), t.image("fixed", MIB, (4096, data(8192, "fixed")))
    sockets = Path(t.path("sockets"))
    sockets.mkdir()
    config = f'[export.fixed]\nbacking = "file:{fixed}"\nread_only = true\nvhost_user = "{sockets}/fixed"\n'
    below, told = Disk(t), {}
    server = t.server(f"disk=file:{image}", f"counted=file:{below.file}", config=config,
                      args=["--vhost-user", sockets, "--scheduler", "mq-deadline"])
    threads = len(os.listdir(f"/proc/{server.pid}/task"))
    devices = [*SHARED, *disk(0, sockets / "disk", CPUS), *disk(1, sockets / "fixed", 1), *disk(2, sockets / "counted", 1),
               "-virtfs", f"local,path={root},mount_tag=host,security_model=none,readonly=on"]

    def count(said):
        for point in re.findall(r"GUEST-COUNT (\w+)", said()):
            if point not in told:
                told[point] = below.told()
                (root / f"counted.{point}").touch()

    console = boot_somehow(t, unpacked, "disks=0/disk", devices, cpus=CPUS, meanwhile=count)
    contains(console, "GUEST-RESULT disk rc=0", f"size={SIZE // 512} write_cache=write back serial=disk rings={CPUS}",
             "block=512/4096", "same after a new mount", "through: write through", "flushes of the guest in between: 0",
             f"vdb: ro=1 serial=fixed sum={sha256(fixed)}", "errors=0")
    print(f"flushes below the server, in all: {told}")
    assert told["fsyncs"] - told["start"] >= 10, "ten fsyncs of the guest are fewer flushes of the file"
    equal(told["writes"] - told["fsyncs"], 0, "flushes of the file for ten writes of a guest with a write cache")
    assert told["through"] - told["writes"] >= 10, "ten writes of a guest without a write cache are fewer flushes of the file"
    verified = re.search(r"fio verified: read_kb=(\d+) written_kb=(\d+) error=0", console)
    assert verified and int(verified[1]) >= CPUS * 6 * 1024 * 0.9, f"fio read back {verified and verified[0]}"
    fsyncs = int(re.search(r"fsyncs=(\d+)", console)[1])
    server.stop()
    counted = server.stats()["disk"]
    assert counted["flush"][0] >= fsyncs >= 25, f"{fsyncs} fsyncs in the guest, but only {counted['flush'][0]} flushes arrived"
    assert counted["discard"][0] > 0, f"no trim arrived: {counted}"
    assert "vhost-user: the device is stopped" not in server.log()
    equal(os.listdir(sockets), [], "sockets that are left when the server has ended")
    assert threads <= 40, f"{threads} threads"
    t.run("e2fsck", "-fn", image)
    wanted = re.search(r"large=(\w+)", console)[1]
    t.run("debugfs", "-R", f"dump /large {t.path('large')}", image)
    equal(sha256(t.path("large")), wanted, "the hash of the guest's large file, on the host")


class Monitor:
    """QEMU's own control socket."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(path)
        self.lines = self.socket.makefile("rb")
        self.lines.readline()
        self.do("qmp_capabilities")

    def ask(self, command, **arguments):
        """Answers why not, if it is refused."""
        self.socket.sendall(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
        while "return" not in (answer := json.loads(self.lines.readline())):
            if "error" in answer:
                return answer["error"]["desc"]

    def do(self, command, **arguments):
        equal(self.ask(command, **arguments), None, f"why {command} is refused")

    def unplug(self, device):
        """Has the guest let go of a device. A guest may miss the request, so QEMU lets it be repeated (hw/acpi/pcihp.c): every ten seconds here."""
        for asked in range(6):
            refused = self.ask("device_del", id=device)
            if refused and "not found" in refused:
                return  # it went between two requests
            assert refused is None or "in the process of unplug" in refused, refused
            self.socket.settimeout(10)
            try:
                while (said := json.loads(self.lines.readline())).get("event") != "DEVICE_DELETED" or said["data"].get("device") != device:
                    pass
                return print(f"unplugged after {asked + 1} requests")
            except TimeoutError:
                # A reader that has timed out once reads no more.
                self.lines = self.socket.makefile("rb")
        raise AssertionError(f"the guest has not let go of {device} in a minute: does a request of it hang?")


@test(seconds=420, fairlift_only=True)
def a_guests_disk_grows_and_is_taken_away_and_comes_back_while_the_guest_runs(t):
    t.tool("resize2fs")
    unpacked = machine(t, "vhost_user_changes.sh")
    image, sockets, monitor = t.image("image", 64 * MIB), Path(t.path("sockets")), t.path("monitor")
    sockets.mkdir()
    server = t.server(f"disk=file:{image}", args=["--vhost-user", sockets])
    device = {"driver": "vhost-user-blk-pci", "id": "d0", "chardev": "c0", "num-queues": CPUS, "bus": "rp0"}
    done, met = set(), lambda: server.log().count("a front-end has connected")
    connected = lambda: met() - server.log().count("the front-end has left")
    at_first = []

    def change(said):
        for step in re.findall(r"GUEST-(GROW|UNPLUG|PLUG)", said()):
            if step in done:
                continue
            done.add(step)
            if step == "GROW":
                at_first.append(met())
                os.truncate(image, 2 * 64 * MIB)
                server.control("set", "export", "disk", "size=auto")
                continue
            qemu = Monitor(monitor)
            if step == "UNPLUG":
                contains(qemu.ask("migrate", uri="exec:cat >/dev/null"), "VHOST_USER_PROTOCOL_F_LOG_SHMFD")  # docs/vm.md
                time.sleep(1)  # under load
                qemu.unplug("d0")
                qemu.do("chardev-remove", id="c0")
                until(lambda: connected() == 0, "the front-end leaves the server")
            else:
                address = {"type": "unix", "data": {"path": f"{sockets}/disk"}}
                qemu.do("chardev-add", id="c0", backend={"type": "socket", "data": {"addr": address, "server": False}})
                qemu.do("device_add", **device)
            qemu.socket.close()

    devices = [*SHARED, "-qmp", f"unix:{monitor},server=on,wait=off", "-device", "pcie-root-port,id=rp0,chassis=1",
               *disk(0, sockets / "disk", CPUS, more=",id=d0,bus=rp0")]
    console = boot_somehow(t, unpacked, "disks=0/disk", devices, cpus=CPUS, meanwhile=change)
    sectors = 64 * MIB // 512
    contains(console, "GUEST-RESULT disk rc=0", f"grown: from {sectors} to {2 * sectors}", "unplugged under load",
             f"plugged in again: size={2 * sectors} rings={CPUS}")
    assert "vhost-user: the device is stopped" not in server.log()
    # An emulator that failed before there was a guest had connected too.
    equal(met() - at_first[0], 1, "front-ends that have connected since the guest has run")
    t.run("e2fsck", "-fn", image)


@test(seconds=420 + 4 * KILLS, fairlift_only=True)
def a_guest_under_load_does_not_notice_that_the_server_is_killed_again_and_again(t):
    unpacked, root = machine(t, "vhost_user_kill.sh"), share(t)
    image, sockets = t.image("image", SIZE), Path(t.path("sockets"))
    sockets.mkdir()
    # On a busy machine the guest asks so seldom that a disk without a delay has nothing under way.
    rules = Path(t.path("rules.toml"))
    rules.write_text('[[fault]]\ndelay = "5ms"\n')
    serve = lambda: t.server(f"disk=fault:{rules},inner=file:{image}", args=["--vhost-user", sockets, "--scheduler", "mq-deadline"], env={"RUST_LOG": "debug"})
    servers, next_at = [serve()], [None]

    def kill_now_and_then(said):
        if len(servers) > KILLS or "GUEST-LOAD" not in said():
            return
        now = time.monotonic()
        if next_at[0] is None:
            next_at[0] = now + 2
        # Once the guest's disk is served again: QEMU 7.2 gives a disk up whose server dies while it is set up.
        if now > next_at[0] and f"SetVringEnable {{ ring: {CPUS - 1}" in servers[-1].log():
            servers[-1].kill()
            servers.append(serve())
            next_at[0] = now + t.random.uniform(0.3, 0.8)
            if len(servers) > KILLS:
                (root / "enough").touch()

    devices = [*SHARED, *disk(0, sockets / "disk", CPUS, reconnect=True),
               "-virtfs", f"local,path={root},mount_tag=host,security_model=none,readonly=on"]
    limit = 180 + 4 * KILLS
    console = boot_somehow(t, unpacked, f"disks=0/disk limit={limit}", devices, seconds=limit + 20, cpus=CPUS, meanwhile=kill_now_and_then)
    equal(len(servers) - 1, KILLS, "servers that were killed while the guest worked")
    contains(console, "GUEST-RESULT disk rc=0", "error=0", "errors=0")
    verified = [int(kb) for kb in re.findall(r"fio verified: read_kb=(\d+) written_kb=\d+ error=0", console)]
    assert len(verified) == console.count("fio verified") and sum(verified) > 1000, f"fio read back {verified}"
    again = [int(n) for server in servers for n in re.findall(r"(\d+) unfinished requests of the previous server are repeated", server.log())]
    print(f"{sum(again)} requests were repeated, in {len(again)} rings")
    assert sum(again) > 0, "no server was killed with requests under way"


@test(seconds=420 + 4 * UPGRADES, fairlift_only=True)
def a_guest_under_load_does_not_notice_that_the_server_is_upgraded_again_and_again(t):
    """QEMU is not told to connect again: if it had to, the guest would wait for ever."""
    unpacked, root = machine(t, "vhost_user_kill.sh"), share(t)
    image, sockets = t.image("image", SIZE), Path(t.path("sockets"))
    sockets.mkdir()
    server = t.server(f"disk=file:{image}", args=["--vhost-user", sockets])
    met = lambda: server.log().count("a front-end has connected")
    done, next_at, at_first = [], [None], [0]

    def upgrade_now_and_then(said):
        if len(done) == UPGRADES or "GUEST-LOAD" not in said():
            return
        now = time.monotonic()
        if next_at[0] is None:
            next_at[0], at_first[0] = now + 2, met()
        if now > next_at[0]:
            upgrade(server)
            done.append(now)
            next_at[0] = time.monotonic() + t.random.uniform(0.1, 0.6)
            if len(done) == UPGRADES:
                (root / "enough").touch()

    devices = [*SHARED, *disk(0, sockets / "disk", CPUS), "-virtfs", f"local,path={root},mount_tag=host,security_model=none,readonly=on"]
    limit = 180 + 4 * UPGRADES
    console = boot_somehow(t, unpacked, f"disks=0/disk limit={limit}", devices, seconds=limit + 20, cpus=CPUS, meanwhile=upgrade_now_and_then)
    equal((len(done), met()), (UPGRADES, at_first[0]), "upgrades while the guest worked, and front-ends that have connected")
    contains(console, "GUEST-RESULT disk rc=0", "error=0", "errors=0")
    verified = [int(kb) for kb in re.findall(r"fio verified: read_kb=(\d+) written_kb=\d+ error=0", console)]
    assert len(verified) == console.count("fio verified") and sum(verified) > 1000, f"fio read back {verified}"


if __name__ == "__main__":
    main()
