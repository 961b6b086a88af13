"""The systemd units: what systemd has to say of them, and that what they start is what this program takes."""

from harness import *

UNITS = ROOT / "cli/systemd"


@test(fairlift_only=True)
def the_service_is_confined(t):
    if not shutil.which("systemd-analyze"):
        t.skip("systemd-analyze is not installed")
    for unit, most in ("fairlift.service", 20), ("fairlift-ublk.service", 30):
        out = t.run("systemd-analyze", "security", "--offline=true", "--no-pager", f"--threshold={most}", UNITS / unit)
        contains(out, "Overall exposure level")


@test(fairlift_only=True)
def the_units_start_and_reload_what_there_is(t):
    Path(t.path("fairlift.toml")).write_text("[export.a]\nbacking = 'mem:1m'\n")
    for name, instance in ("fairlift.service", ""), ("fairlift@.service", "tenants"), ("fairlift-ublk.service", "ublk"):
        unit = (UNITS / name).read_text()
        started = re.search(r"^ExecStart=/usr/bin/fairlift (.*)$", unit, re.M).group(1).replace("%i", instance).split()
        config = started.index("--config") + 1
        equal(started[config], f"/etc/fairlift/{instance or 'fairlift'}.toml", "the config file")
        started[config] = t.path("fairlift.toml")
        t.run(BINARY, *started, "--check", env={**os.environ, "XDG_RUNTIME_DIR": str(t.dir)})
        contains(unit, "Type=notify", "ExecReload=/bin/kill -HUP $MAINPID", "RestartPreventExitStatus=2", "RestartSec=")


@test(fairlift_only=True)
def the_program_writes_units_that_start_it_where_it_is(t):
    copy = Path(t.path("bin")) / "fairlift"
    copy.parent.mkdir()
    os.link(BINARY, copy) if os.stat(BINARY).st_dev == os.stat(copy.parent).st_dev else shutil.copy(BINARY, copy)
    t.run(copy, "units", t.path("units"))
    for name in "fairlift.service", "fairlift@.service", "fairlift.socket", "fairlift-ublk.service":
        packaged = (UNITS / name).read_text()
        equal((Path(t.path("units")) / name).read_text(), packaged.replace("/usr/bin/fairlift", str(copy)), name)
    equal(t.run(copy, "units"), (Path(t.path("units")) / "fairlift.service").read_text(), "the unit on standard output")


@test(fairlift_only=True)
def the_manager_is_told_that_the_server_is_ready_reloads_and_is_ready_again(t):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(t.path("notify"))
        manager.settimeout(10)
        server = t.server(config="[export.a]\nbacking = 'mem:1m'\n", env={"NOTIFY_SOCKET": t.path("notify")})
        equal(manager.recv(100), b"FDSTORE=1\nFDNAME=fairlift-learned", "the first word")
        equal(manager.recv(100), b"READY=1", "the next word")
        server.process.send_signal(signal.SIGHUP)
        word = manager.recv(100).decode()
        assert re.fullmatch(r"RELOADING=1\nMONOTONIC_USEC=\d+", word), word
        equal(manager.recv(100), b"READY=1", "the word after reloading")


if __name__ == "__main__":
    main()
