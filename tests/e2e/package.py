"""The Debian package: what is in it, and that it is installed, upgraded and purged as an operator wants it, in a root of its own."""

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
        "lib/systemd/system/fairlift@.service", "lib/systemd/system/fairlift.socket", "usr/share/doc/fairlift/copyright",
        "usr/share/doc/fairlift/examples/all-keys.toml", CONFIG,
    ]:
        assert (root / place).stat().st_size > 0, f"{place} is empty"
    contains((root / "etc/passwd").read_text(), "fairlift:")
    user = next(line.split(":") for line in (root / "etc/passwd").read_text().splitlines() if line.startswith("fairlift:"))
    images = (root / "var/lib/fairlift").stat()
    equal((images.st_uid, oct(images.st_mode & 0o777)), (int(user[2]), "0o750"), "owner and mode of the directory of images")

    # What it starts with is served, and its weights can act.
    program = root / "usr/bin/fairlift"
    equal(t.run(program, "serve", "--config", root / CONFIG, "--check").strip(), "ok: 2 exports, 1 disk, 4 groups, 1 listener", "its config")

    edited = (root / CONFIG).read_text().replace("weight = 300", "weight = 200")
    (root / CONFIG).write_text(edited)
    dpkg(t, root, "--install", build(t, "2"))
    contains((root / "var/lib/dpkg/status").read_text(), "-2\n")
    equal((root / CONFIG).read_text(), edited, "the config after an upgrade")

    dpkg(t, root, "--purge", "fairlift")
    left = [str(path.relative_to(root)) for path in root.rglob("*fairlift*") if "dpkg" not in path.parts]
    equal(left, [], "what is left after a purge")


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
