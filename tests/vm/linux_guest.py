#!/usr/bin/env python3
"""A real Linux kernel in a virtual machine, whose own NBD client lives on our exports.

One boot of Debian's Linux 6.12 by emulation: the figures mean nothing there, and none is looked at. The kernel is fetched once with apt-get, unpacked (not installed) in ${XDG_CACHE_HOME:-~/.cache}/fairlift-vm.

Also here: FAIRLIFT_STAND_IN=1 serves by nbdkit, to try the test itself; VM_ACCEL=tcg|kvm insists on one.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))

import initramfs
from harness import *

MODULES = ["virtio_net", "virtio_pci", "nbd", "crc32c_generic", "ext4"]
SIZE = 128 * MIB
BOOTS = 90  # seconds within which a guest says that it has booted: it takes ten, and forty on a busy machine


def kernel(t):
    """The directory of an unpacked kernel of the 6.12 line, fetched if it is not there yet."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fairlift-vm"
    ready = sorted(cache.glob("linux-image-*/boot/vmlinux"), key=lambda path: path.stat().st_mtime)
    if ready:
        return ready[-1].parents[1]
    names = t.run("apt-cache", "search", "--names-only", r"^linux-image-6\.12\.[0-9]+\+deb1[23]-amd64$").split("\n")
    packages = sorted((line.split()[0] for line in names if line), key=lambda name: [int(n) for n in re.findall(r"\d+", name)])
    if not packages:
        raise AssertionError("apt knows no Linux 6.12 (linux-image-6.12.*+deb12-amd64); has `apt-get update` run?")
    part = cache / f"part.{os.getpid()}"
    part.mkdir(parents=True)
    t.defer(shutil.rmtree, part, True)
    t.run("apt-get", "download", packages[-1], cwd=part, seconds=300)
    (package,) = part.glob("*.deb")
    t.run("dpkg-deb", "-x", package, part, seconds=120)
    package.unlink()
    # The uncompressed kernel boots without the loader's detour: seconds less where the machine is emulated.
    (image,) = part.glob("boot/vmlinuz-*")
    compressed = image.read_bytes()
    start = compressed.find(b"\x28\xb5\x2f\xfd")
    if start < 0:
        raise AssertionError(f"{image.name} is not compressed by zstd")
    # There is more after the compressed part, which zstd reports as an error once it has written all.
    unpacked = subprocess.run([t.tool("zstd"), "-dcq"], input=compressed[start:], capture_output=True).stdout
    equal(unpacked[:4], b"\x7fELF", "the start of the uncompressed kernel")
    (part / "boot/vmlinux").write_bytes(unpacked)
    home = cache / packages[-1]
    if not home.exists():
        part.rename(home)
    return home


def boot(t, kernel, append, accel, seconds, devices, cpus=2, meanwhile=lambda said: None):
    """Runs the guest to its end; returns what its console said."""
    console = t.path(f"console.{accel}")
    # `notsc`: on a busy machine the guest takes the speed of its processors from a few moments of emulation, and had it wrong by 25 once:
    # its seconds were too short, and so were all its time limits. The timer it keeps time by then (HPET) says how fast it is.
    # `no_timer_check`: there it also waits too short a time for the first ticks, and took its timer for broken once.
    command = [
        "qemu-system-x86_64", "-accel", "kvm" if accel == "kvm" else "tcg,thread=multi", "-cpu", "max", "-machine", "q35", "-m", "512M",
        "-smp", cpus, "-kernel", kernel / "boot/vmlinux", "-initrd", t.path("initramfs.gz"), "-nodefaults", "-nographic",
        "-serial", f"file:{console}", "-no-reboot", *devices, "-append",
        f"console=ttyS0 quiet loglevel=4 panic=-1 notsc no_timer_check mitigations=off nokaslr random.trust_cpu=1 {append}"]
    said = lambda: Path(console).read_text(errors="replace").replace("\r", "") if os.path.exists(console) else ""
    for patience in BOOTS, BOOTS, seconds:
        qemu = t.start(*command, stdout=open(t.path("qemu.out"), "ab"), stderr=subprocess.STDOUT)
        start = time.monotonic()
        hangs = lambda: time.monotonic() > start + patience and "GUEST-BOOT" not in said()
        try:
            while qemu.poll() is None and time.monotonic() < start + seconds and not hangs():
                meanwhile(said)
                time.sleep(0.1)
        except BaseException:
            print(said())
            raise
        end(qemu)
        # QEMU 7.2's emulation of several CPUs crashed, stood still (`rcu_sched detected stalls`), or had the kernel stumble over its own
        # patched code, once in some hundred boots: before the guest had loaded a module, and so before it knew any disk.
        panicked = "Kernel panic" in said() and re.search(r"Modules linked in:\s*$", said(), re.M)
        if "GUEST-BOOT" in said() or not (panicked or hangs() or qemu.returncode == -signal.SIGSEGV):
            break
        print(said()[-2000:], f"the emulator failed ({qemu.returncode}) before there was a guest: started again", sep="\n")
    print(said() or Path(t.path("qemu.out")).read_text())
    return said()


def boot_somehow(t, kernel, append, devices, seconds=240, **options):
    """Runs the guest by emulation, or as VM_ACCEL says; returns what its console said.

    A /dev/kvm that is there is not always of use: on a virtual machine whose own host emulates it, this kernel stopped at an
    instruction that KVM could not emulate (cmpxchg16b), and without that one took 30 s to its tenth line."""
    console = boot(t, kernel, append, os.environ.get("VM_ACCEL", "tcg"), seconds, devices, **options)
    if "GUEST-BOOT" not in console:
        raise AssertionError(f"the guest did not boot: {console[-500:]}")
    return console


@test(seconds=420)
def a_linux_kernel_makes_and_mounts_ext4_and_each_fsync_arrives_as_a_flush(t):
    for tool in "qemu-system-x86_64", "nbd-client", "mke2fs", "busybox", "zstd", "debugfs":
        t.tool(tool)
    unpacked = kernel(t)
    initramfs.build(t.path("initramfs.gz"), unpacked, MODULES, ["nbd-client", "mke2fs"],
                    {"/init": HERE / "init", "/test": HERE / "nbd.sh", "/live": HERE / "live.sh"})
    image = t.image("image", SIZE)
    disks, finish = serve(t, image)
    devices = ["-netdev", "user,id=n0", "-device", "virtio-net-pci,netdev=n0"]
    console = boot_somehow(t, unpacked, f"disks={disks}", devices)
    flushes = finish()
    for name in flushes:
        lines = {line.removeprefix(f"[{name}] ") for line in console.splitlines() if line.startswith(f"[{name}] ")}
        text = "\n".join(lines)
        assert f"GUEST-RESULT {name} rc=0" in console, f"the guest failed on {name}:\n{text[-1500:]}"
        contains(text, f"size={SIZE // 512} ", "write_cache=write back", "same after a new mount")
        fsyncs = int(re.search(r"fsyncs=(\d+)", text)[1])
        assert fsyncs >= 25, f"the guest synced only {fsyncs} times"
        assert flushes[name] >= fsyncs, f"{name}: {fsyncs} fsyncs in the guest, but only {flushes[name]} flushes arrived"
    if not STAND_IN:
        # The image as the guest left it, looked at without the guest.
        t.run("e2fsck", "-fn", image)
        t.run("debugfs", "-R", f"dump /large {t.path('large')}", image)
        wanted = re.search(r"^\[file\] large=(\w+)", console, re.M)[1]
        equal(sha256(t.path("large")), wanted, "the hash of the guest's large file, on the host")


def serve(t, image):
    """Starts what the guest attaches: (PORT/NAME,…, what stops it and returns {name: flushes})."""
    port = free_port()
    if not STAND_IN:
        server = t.server(f"file=file:{image}", f"ram=mem:{SIZE}", listen=[f"tcp:127.0.0.1:{port}"], args=["--scheduler", "mq-deadline"])

        def finish():
            server.stop()
            stats = server.stats()
            assert set(stats) == {"file", "ram"}, f"the server's counters are {stats}"
            assert all(counted["discard"][0] > 0 for counted in stats.values()), f"no trim arrived: {stats}"
            return {name: counted["flush"][0] for name, counted in stats.items()}

        return f"{port}/file,{port}/ram", finish
    counters = t.path("stats")
    nbdkit = t.start("nbdkit", "-f", "-i", "127.0.0.1", "-p", port, "--filter=stats", "memory", SIZE, f"statsfile={counters}")

    def finish():
        end(nbdkit)
        return {"standin": int(re.search(r"flush: (\d+) ops|$", Path(counters).read_text())[1] or 0)}

    return f"{port}/standin", finish


if __name__ == "__main__":
    main()
