"""The Debian package: what is in it, and that it is installed, upgraded and purged as an operator wants it, in a root of its own and in a
fresh Debian."""

import fcntl

from harness import *

CONFIG = "etc/fairlift/fairlift.toml"


def build(t, revision):
    script = ROOT / "packaging/debian/build.sh"
    out = t.run("bash", script, BINARY, t.path("packages"), env={**os.environ, "REVISION": revision, "COMPRESS": "none"}, seconds=100)
    return out.strip().splitlines()[-1]


def dpkg(t, root, *arguments):
    """dpkg in a root that has nothing else; the package's own scripts run outside of it, and are told of it (DPKG_ROOT)."""
    return t.run("dpkg", f"--root={root}", "--force-script-chrootless", "--force-depends", "--force-not-root", "--log=/dev/null", *arguments)


@test(fairlift_only=True, seconds=240)
def it_is_installed_upgraded_with_its_config_kept_and_purged(t):
    if os.geteuid() != 0:
        t.skip("only root can install a package")
    package, root = build(t, "1"), Path(t.path("root"))
    for place in "var/lib/dpkg/updates", "var/lib/dpkg/info", "etc":
        (root / place).mkdir(parents=True)
    (root / "var/lib/dpkg/status").touch()
    dpkg(t, root, "--install", package)
    for place in [
        "usr/bin/fairlift", "usr/share/man/man1/fairlift-serve.1.gz", "usr/share/man/man5/fairlift.toml.5.gz",
        "usr/share/bash-completion/completions/fairlift", "usr/share/zsh/vendor-completions/_fairlift",
        "usr/share/fish/vendor_completions.d/fairlift.fish", "lib/systemd/system/fairlift.service",
        "lib/systemd/system/fairlift@.service", "lib/systemd/system/fairlift-ublk.service", "lib/systemd/system/fairlift.socket", "usr/share/doc/fairlift/copyright",
        "usr/share/doc/fairlift/examples/all-keys.toml", "usr/share/doc/fairlift/examples/iostest/one-syncs.toml", CONFIG,
    ]:
        assert (root / place).stat().st_size > 0, f"{place} is empty"
    contains((root / "etc/passwd").read_text(), "fairlift:")
    user = next(line.split(":") for line in (root / "etc/passwd").read_text().splitlines() if line.startswith("fairlift:"))
    images = (root / "var/lib/fairlift").stat()
    equal((images.st_uid, oct(images.st_mode & 0o777)), (int(user[2]), "0o750"), "owner and mode of the directory of images")

    # What it starts with is served, and its weights can act.
    program = root / "usr/bin/fairlift"
    equal(t.run(program, "serve", "--config", root / CONFIG, "--check").strip(), "ok: 2 exports, 1 disk, 3 groups, 1 listener", "its config")

    edited = (root / CONFIG).read_text().replace("weight = 300", "weight = 200")
    (root / CONFIG).write_text(edited)
    dpkg(t, root, "--install", build(t, "2"))
    contains((root / "var/lib/dpkg/status").read_text(), "-2\n")
    equal((root / CONFIG).read_text(), edited, "the config after an upgrade")

    dpkg(t, root, "--purge", "fairlift")
    left = [str(path.relative_to(root)) for path in root.rglob("*fairlift*") if "dpkg" not in path.parts]
    equal(left, [], "what is left after a purge")


def fresh_debian(t):
    """A directory with a new Debian 12, systemd and libnbd's programs in it, made once with mmdebstrap; or a skip."""
    if os.geteuid() != 0 or not shutil.which("mmdebstrap"):
        t.skip("only root can make a Debian of its own, by mmdebstrap")
    packed = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fairlift-root/bookworm-systemd.tar"
    packed.parent.mkdir(parents=True, exist_ok=True)
    with open(packed.with_suffix(".lock"), "w") as lock: # one test makes it, and the others wait
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not packed.exists():
            part = packed.with_suffix(f".{os.getpid()}.tar")
            t.defer(lambda: part.unlink(missing_ok=True))
            said = t.run("mmdebstrap", "--variant=minbase", "--include=libnbd-bin,systemd-sysv,dbus", "bookworm", part, seconds=300, code=None)
            if not part.exists() or "success in" not in said:
                t.skip(f"Debian's packages cannot be had: {said.strip()[-200:]}")
            part.rename(packed)
    root = Path(t.path("debian"))
    root.mkdir()
    t.run("tar", "-xf", packed, "-C", root)
    return root


def started(t, root, expected):
    """The server as systemd starts it by the installed unit: its command, its user, its run directory."""
    unit = (root / "lib/systemd/system/fairlift.service").read_text()
    say = lambda key: re.search(rf"^{key}=(.*)$", unit, re.M).group(1)
    run = f"/run/{say('RuntimeDirectory')}"
    t.run("chroot", root, "install", "-d", "-o", say("User"), "-g", say("Group"), run)
    log = root / "server.log"
    process = t.start(
        "chroot", root, "setpriv", f"--reuid={say('User')}", f"--regid={say('Group')}", "--init-groups", "--no-new-privs",
        "env", f"XDG_RUNTIME_DIR={run}", f"RUNTIME_DIRECTORY={run}", *say("ExecStart").split(), stdout=open(log, "wb"), stderr=subprocess.STDOUT)
    until(lambda: log.read_text().count("serving ") == expected or process.poll() is not None, "it serves")
    assert process.poll() is None, log.read_text()
    return process


def share_of_bob(t, root):
    """His part of the bytes, while both read all they can; looked at until it is what he is entitled to, for the disk is new to the server."""
    for name in "alice", "bob":
        uri = f"nbd+unix:///{name}?socket={root}/run/fairlift/fairlift.sock"
        t.start("fio", f"--name={name}", "--ioengine=nbd", f"--uri={uri}", "--rw=randread", "--bs=16k", "--iodepth=32", "--size=512m",
                "--time_based", "--runtime=90", stdout=subprocess.DEVNULL)
    for _ in range(20):
        said = json.loads(t.run("chroot", root, "fairlift", "status", "--seconds=2", "--json"))
        had = {tenant["path"]: tenant["share"] for tenant in said["tenants"]}["/tenants/bob"]
        if 0.71 < had < 0.79:
            break
    return had


@test(fairlift_only=True, seconds=540)
def in_a_fresh_debian_it_is_installed_edited_started_shared_and_upgraded(t):
    root = fresh_debian(t)
    shutil.copy(build(t, "1"), root / "fairlift.deb")
    t.run("chroot", root, "dpkg", "-i", "/fairlift.deb")
    t.run("chroot", root, "sed", "-i", "s/^weight = 100$/weight = 900/", f"/{CONFIG}")
    process = started(t, root, 2)
    # Of 300 to 900, where the file came with 300 to 100.
    for name in "alice", "bob":
        equal(t.run("chroot", root, "nbdinfo", "--size", f"nbd+unix:///{name}?socket=/run/fairlift/fairlift.sock").strip(), str(512 * MIB), name)
    had = share_of_bob(t, root)
    assert 0.71 < had < 0.79, f"bob is entitled to 75 %, and has {had}"

    edited = (root / CONFIG).read_text()
    shutil.copy(build(t, "2"), root / "fairlift.deb")
    t.run("chroot", root, "dpkg", "-i", "/fairlift.deb")
    contains(t.run("chroot", root, "dpkg-query", "-Wf", "${Version} ${Status}", "fairlift"), "-2 install ok installed")
    equal((root / CONFIG).read_text(), edited, "the config after an upgrade")
    end(process)
    started(t, root, 2)
    for name in "alice", "bob":
        equal(t.run("chroot", root, "nbdinfo", "--size", f"nbd+unix:///{name}?socket=/run/fairlift/fairlift.sock").strip(), str(512 * MIB), name)
    t.run("chroot", root, "dpkg", "--purge", "fairlift")
    assert not (root / "etc/fairlift").exists() and not (root / "usr/bin/fairlift").exists(), "a purge takes all"


class Booted:
    """A Debian with its own systemd as process 1, in namespaces of its own."""

    def __init__(self, t, root):
        if not shutil.which("systemd-nspawn"):
            t.skip("systemd-nspawn is not installed (systemd-container)")
        self.t, log = t, t.path("boot.log")
        own_unit = [] if Path("/run/systemd/system").exists() else ["--register=no", "--keep-unit"]
        boots = t.start("systemd-nspawn", "--quiet", *own_unit, f"--directory={root}", f"--machine=fairlift{os.getpid()}", "--console=pipe", "--boot",
                        stdout=open(log, "wb"), stderr=subprocess.STDOUT)
        children = Path(f"/proc/{boots.pid}/task/{boots.pid}/children")
        up = lambda: boots.poll() is not None or self.is_up((children.read_text().split() or [None])[0])
        try:
            until(up, "systemd is up", 180)
        except AssertionError:
            t.skip(f"no systemd boots here: {Path(log).read_text(errors='replace')[-300:]}")
        if boots.poll() is not None:
            t.skip(f"systemd-nspawn cannot be used here: {Path(log).read_text(errors='replace')[-300:]}")
        t.defer(self.run, "systemctl", "poweroff", "--no-block")

    def is_up(self, pid):
        try:
            if pid is None or Path(f"/proc/{pid}/comm").read_text() != "systemd\n":
                return False
        except OSError:  # a child that has ended since it was listed
            return False
        self.pid = pid
        return self.run("systemctl", "is-system-running", code=None).strip() in ("running", "degraded")

    def run(self, *command, **options):
        return self.t.run("nsenter", f"--target={self.pid}", "--all", *command, **options)

    def of_service(self, key):
        return self.run("systemctl", "show", f"--property={key}", "--value", "fairlift.service").strip()

    def journal(self):
        return self.run("journalctl", "--unit=fairlift.service", "--no-pager", "--output=cat")

    def says(self, *words):
        """The journal has each of `words`, now or soon: it takes a service's lines in its own time."""
        with contextlib.suppress(AssertionError):
            until(lambda: all(word in said for said in [self.journal()] for word in words), "the journal says it")
        contains(self.journal(), *words)


@test(fairlift_only=True, seconds=540)
def as_a_service_of_systemd_it_starts_reloads_is_upgraded_under_a_client_and_comes_back_after_kill_9(t):
    root = fresh_debian(t)
    for revision in "1", "2":
        shutil.copy(build(t, revision), root / f"fairlift{revision}.deb")
    debian = Booted(t, root)
    debian.run("dpkg", "-i", "/fairlift1.deb")
    equal(debian.of_service("ActiveState"), "inactive", "the service, before the operator has said what to serve")
    debian.run("systemctl", "start", "fairlift.service")
    debian.says("serving alice", "control at unix:/run/fairlift/control.sock")
    assert "could not be installed" not in debian.journal(), debian.journal()
    weight = lambda: json.loads(debian.run("fairlift", "get", "group", "/tenants/alice", "--json"))["weight"]
    first, second = data(4096, 1), data(4096, 2)
    with nbdclient.Client(f"/proc/{debian.pid}/root/run/fairlift/fairlift.sock", "alice") as client:
        client.write(0, first)

        debian.run("sed", "-i", "s/^weight = 300$/weight = 400/", f"/{CONFIG}")
        before = debian.of_service("MainPID")
        debian.run("systemctl", "reload", "fairlift.service")
        until(lambda: weight() == 400, "alice's weight after a reload, of which systemd is not told when it ends")
        equal(debian.of_service("MainPID"), before, "the process after a reload")

        # A modelled disk's content is memory: it goes over too.
        debian.run("dpkg", "-i", "/fairlift2.deb")
        after = debian.of_service("MainPID")
        assert after != before, debian.journal()
        debian.says(f"handed over to process {after}", f"\ntaken over from the previous server; this is process {after}")
        equal(client.read(0, 4096), first, "what was written before the upgrade, by the same connection")
        client.write(4096, second)
        client.flush()
        equal((client.read(4096, 4096), weight()), (second, 400), "after the upgrade")

    debian.run("systemctl", "kill", "--signal=KILL", "fairlift.service")
    until(lambda: (debian.of_service("NRestarts"), debian.of_service("ActiveState")) == ("1", "active"), "systemd starts it again")
    debian.says("begins with the state that a server had learned")
    debian.run("systemctl", "stop", "fairlift.service")
    equal(debian.of_service("Result"), "success", "how it ended")

    # Started by its first client, and then upgraded.
    debian.run("systemctl", "start", "fairlift.socket")
    activated = f"/proc/{debian.pid}/root/run/fairlift.nbd.sock"
    with nbdclient.Client(activated, "bob") as client:
        client.write(0, first)
        before = debian.of_service("MainPID")
        debian.run("dpkg", "-i", "/fairlift1.deb")
        assert debian.of_service("MainPID") != before, debian.journal()
        equal(client.read(0, 4096), first, "after the upgrade of a server that its socket has started")
    with nbdclient.Client(activated, "bob") as client:
        equal(client.read(0, 4096), first, "what a new client reads, at the socket of systemd")


@test(fairlift_only=True)
def the_config_of_the_package_is_served_and_alice_has_her_weight(t):
    server = t.server(config=(ROOT / "packaging/fairlift.toml").read_text())
    for name, weight in ("alice", 300), ("bob", 100):
        equal(json.loads(server.control("get", "group", f"/tenants/{name}", "--json"))["weight"], weight, f"{name}'s weight")
    for name in "alice", "bob":
        with server.connect(name) as client:
            client.write(0, data(4096, name))
            equal(client.read(0, 4096), data(4096, name), f"what {name} wrote")


if __name__ == "__main__":
    main()
