#!/usr/bin/env python3
"""The program that needs no library: packed by packaging/static.sh, and tried in a root that holds nothing else.

Where its target or a C compiler for it cannot be had, the tests skip and say so."""

import os
import sys
import tarfile
from pathlib import Path

# The harness wants a program; this one makes its own.
os.environ.setdefault("FAIRLIFT", sys.executable)
sys.path.insert(0, str(Path(__file__).resolve().parent / "e2e"))

from harness import *

TARGET = "x86_64-unknown-linux-musl"


@test(fairlift_only=True, seconds=850)
def the_static_program_serves_in_a_root_that_holds_nothing_else(t):
    if not shutil.which("musl-gcc"):
        t.skip("there is no musl-gcc (Debian: musl-tools)")
    if TARGET not in t.run("rustup", "target", "list", "--installed"):
        t.skip(f"the target {TARGET} is not installed (rustup target add {TARGET})")
    if os.geteuid() != 0:
        t.skip("only root may chroot")
    # Not optimised: what is tried is the same, and it is compiled in a third of the time.
    out = t.run("bash", ROOT / "packaging/static.sh", seconds=800,
                env={**os.environ, "PROFILE": "dev", "CARGO_TARGET_DIR": str(ROOT / "target/static")})
    archive = ROOT / out.strip().splitlines()[-1]
    with tarfile.open(archive) as packed:
        packed.extractall(t.path("unpacked"))
    packed = next(Path(t.path("unpacked")).iterdir())
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


if __name__ == "__main__":
    main()
