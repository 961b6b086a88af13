#!/usr/bin/env python3
"""The program that needs no library: packed by packaging/static.sh, tried in a root that holds nothing else, and in the container image that
packaging/image.py makes of it.

Where its target or a C compiler for it cannot be had, the tests skip and say so."""

import fcntl
import json
import os
import sys
import tarfile
from pathlib import Path

# The harness wants a program; this one makes its own.
os.environ.setdefault("FAIRLIFT", sys.executable)
sys.path.insert(0, str(Path(__file__).resolve().parent / "e2e"))

from harness import *

TARGET = "x86_64-unknown-linux-musl"


def unpacked(t):
    """The directory that packaging/static.sh packs, built once for all tests of this file."""
    if not shutil.which("musl-gcc"):
        t.skip("there is no musl-gcc (Debian: musl-tools)")
    if TARGET not in t.run("rustup", "target", "list", "--installed"):
        t.skip(f"the target {TARGET} is not installed (rustup target add {TARGET})")
    (ROOT / "target/static").mkdir(parents=True, exist_ok=True)
    with open(ROOT / "target/static/packing", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Not optimised: what is tried is the same, and it is compiled in a third of the time.
        out = t.run("bash", ROOT / "packaging/static.sh", seconds=800,
                    env={**os.environ, "PROFILE": "dev", "CARGO_TARGET_DIR": str(ROOT / "target/static")})
        with tarfile.open(ROOT / out.strip().splitlines()[-1]) as packed:
            packed.extractall(t.path("unpacked"))
    return next(Path(t.path("unpacked")).iterdir())


@test(fairlift_only=True, seconds=850)
def the_static_program_serves_in_a_root_that_holds_nothing_else(t):
    if os.geteuid() != 0:
        t.skip("only root may chroot")
    packed = unpacked(t)
    for name in ["README.md", "man/fairlift-serve.1", "completions/fairlift.bash", "examples/fairlift.toml", "systemd/fairlift.service"]:
        assert (packed / name).stat().st_size > 0, f"{name} is empty"

    root = Path(t.path("root"))
    (root / "srv").mkdir(parents=True)
    shutil.copy(packed / "fairlift", root / "fairlift")
    image = t.image("root/srv/alice.img", 4 * MIB)
    inside = ["chroot", root, "/fairlift"]
    contains(t.run(*inside, "--version"), "fairlift ")
    log = open(t.path("inside.log"), "w")
    server = t.start(*inside, "serve", "alice=/srv/alice.img", "--root", "/srv", "--listen", "unix:/srv/s", stdout=log, stderr=log,
                     env={**os.environ, "RUST_LOG": "debug"})
    socket_ = root / "srv/s"
    until(socket_.exists, f"the server listens; it says: {Path(t.path('inside.log')).read_text()}")
    with nbdclient.Client(str(socket_), "alice") as client:
        equal(client.size, 4 * MIB, "the size")
        client.write(4096, data(65536))
        client.flush()
        client.disconnect()
    with open(image, "rb") as file:
        file.seek(4096)
        equal(file.read(65536), data(65536), "what was written, in the file")
    control = {**os.environ, "FAIRLIFT_CONTROL": "unix:/srv/s.control.sock"}
    contains(t.run(*inside, "status", env=control), "/alice")
    t.run(*inside, "set", "group", "/", "max=riops=1000", env=control)
    server.send_signal(signal.SIGTERM)
    equal(server.wait(20), 0, "its exit code")
    said = Path(t.path("inside.log")).read_text()
    contains(said, "the seccomp filter is active", "drained")
    refused = [line for line in said.splitlines() if "refused" in line and " DEBUG " not in line]
    assert not refused, f"a call was refused, which this libc makes: {said}"


def tarred(path):
    """The files of a tar archive, by name."""
    with tarfile.open(path) as packed:
        return {member.name: packed.extractfile(member).read() for member in packed if member.isfile()}


@test(fairlift_only=True, seconds=850)
def the_container_image_serves_as_a_user_with_no_rights(t):
    if os.geteuid() != 0 or not shutil.which("umoci") or not shutil.which("runc"):
        t.skip("only root can run a container, by umoci and runc")
    program = unpacked(t) / "fairlift"
    files = []
    for name in "one.tar", "two.tar":
        t.run("python3", ROOT / "packaging/image.py", program, t.path(name))
        files.append(tarred(t.path(name)))
    equal(files[0], files[1], "the same program twice: the image")
    for name, content in files[0].items():
        Path(t.path("layout"), name).parent.mkdir(parents=True, exist_ok=True)
        Path(t.path("layout"), name).write_bytes(content)
    version = t.run(program, "--version").split()[1]
    t.run("umoci", "unpack", "--image", f"{t.path('layout')}:{version}", t.path("bundle"))

    # What `podman run -v srv:/srv -v run:/run/fairlift -v fairlift.toml:/etc/fairlift.toml:ro` mounts.
    for name in "srv", "run":
        os.mkdir(t.path(name))
        os.chown(t.path(name), 65532, 65532)
    os.chown(t.image("srv/alice.img", 4 * MIB), 65532, 65532)
    Path(t.path("fairlift.toml")).write_text("[export.alice]\nbacking = '/srv/alice.img'\n")
    bundle = json.loads(Path(t.path("bundle/config.json")).read_text())
    equal(bundle["process"]["args"], ["/fairlift", "serve", "--config", "/etc/fairlift.toml"], "what it starts")
    bundle["process"]["terminal"] = False
    bundle["root"]["readonly"] = True
    for source, place in ("srv", "/srv"), ("run", "/run/fairlift"), ("fairlift.toml", "/etc/fairlift.toml"):
        bundle["mounts"].append({"destination": place, "type": "bind", "source": t.path(source), "options": ["rbind", "ro" if "." in source else "rw"]})
    (Path(t.path("bundle/rootfs/etc/fairlift.toml"))).touch()
    Path(t.path("bundle/config.json")).write_text(json.dumps(bundle))
    log = open(t.path("inside.log"), "w")
    name = f"fairlift-{os.getpid()}"
    container = t.start("runc", "--root", t.path("runc"), "run", "--bundle", t.path("bundle"), name, stdout=log, stderr=log)
    t.defer(subprocess.run, ["runc", "--root", t.path("runc"), "delete", "--force", name])
    socket_ = Path(t.path("run/fairlift.sock"))
    until(lambda: socket_.exists() or container.poll() is not None, "the server listens")
    if container.poll() is not None and "cgroup" in (said := Path(t.path("inside.log")).read_text()):
        t.skip(f"runc cannot make a container here: {said.strip()[-200:]}")
    with nbdclient.Client(str(socket_), "alice") as client:
        client.write(4096, data(65536))
        client.flush()
        client.disconnect()
    with open(t.path("srv/alice.img"), "rb") as file:
        file.seek(4096)
        equal(file.read(65536), data(65536), "what was written, in the file")
    inside = ["runc", "--root", t.path("runc"), "exec", name, "/fairlift"]
    contains(t.run(*inside, "status"), "/alice")
    t.run("runc", "--root", t.path("runc"), "kill", name, "TERM")
    equal(container.wait(20), 0, "its exit code")


if __name__ == "__main__":
    main()
