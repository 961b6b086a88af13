"""The systemd units: what systemd has to say of them, and that what they start is what this program takes."""

import shlex

from harness import *
from nbdclient import Client

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
        contains(unit, "Type=notify", "ExecReload=-/usr/bin/fairlift upgrade --if-changed\n", "\nExecReload=/bin/sh -c \"kill -HUP $MAINPID\"\n", "RestartPreventExitStatus=2", "RestartSec=")


@test(fairlift_only=True)
def a_command_of_a_service_finds_the_server_of_that_service(t):
    for name, instance in ("fairlift@.service", "tenants"), ("fairlift-ublk.service", ""):
        unit = (UNITS / name).read_text().replace("%i", instance).replace("%t", str(t.dir))
        run = Path(t.dir) / re.search(r"^RuntimeDirectory=(.*)$", unit, re.M).group(1)
        run.mkdir()
        # As systemd sets it for ExecStart= and ExecReload=.
        env = {re.search(r"^Environment=(.*?)=(.*)$", unit, re.M).group(1): str(run), "RUNTIME_DIRECTORY": str(run)}
        server = t.server(listen=[], wait=False, config="[export.a]\nbacking = 'mem:1m'\n", env=env)
        until(lambda: f"control at unix:{run}/control.sock" in server.log(), "it says where its control is")
        reloaded = re.search(r"^ExecReload=-/usr/bin/fairlift (.*)$", unit, re.M).group(1).split()
        contains(t.run(BINARY, *reloaded, env={**os.environ, **env}), "already runs this program")
        server.stop()


@test(fairlift_only=True)
def the_program_writes_units_that_start_it_where_it_is(t):
    copy = Path(t.path("bin")) / "fairlift"
    copy.parent.mkdir()
    os.link(BINARY, copy) if os.stat(BINARY).st_dev == os.stat(copy.parent).st_dev else shutil.copy(BINARY, copy)
    t.run(copy, "units", t.path("units"))
    for name in "fairlift.service", "fairlift@.service", "fairlift.socket", "fairlift-ublk.service":
        packaged = (UNITS / name).read_text()
        equal((Path(t.path("units")) / name).read_text(), packaged.replace("/usr/bin/fairlift", str(copy)), name)
    *warned, unit = t.run(copy, "units").rpartition("call `fairlift units` there\n")
    equal(unit, (Path(t.path("units")) / "fairlift.service").read_text(), "the unit on standard output")
    hidden = str(copy).startswith(("/tmp/", "/var/tmp/", "/home/", "/root/", "/run/user/"))
    equal(any(warned), hidden, "a warning if the service would not see the program")


@test(fairlift_only=True)
def the_manager_is_told_that_the_server_is_ready_reloads_and_is_ready_again(t):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(t.path("notify"))
        manager.settimeout(60)
        server = t.server(config="[export.a]\nbacking = 'mem:1m'\n", env={"NOTIFY_SOCKET": t.path("notify")})
        equal(manager.recv(100), b"FDSTORE=1\nFDNAME=fairlift-learned", "the first word")
        equal(manager.recv(100), b"READY=1", "the next word")
        server.process.send_signal(signal.SIGHUP)
        word = manager.recv(100).decode()
        assert re.fullmatch(r"RELOADING=1\nMONOTONIC_USEC=\d+", word), word
        equal(manager.recv(100), b"READY=1", "the word after reloading")


@test(fairlift_only=True)
def a_reload_has_a_program_that_was_installed_since_take_over_and_reads_the_file_again(t):
    installed, socket_, text = t.path("installed"), t.path("s"), "[export.a]\nbacking = 'mem:1m'\n"
    shutil.copy(BINARY, installed)
    Path(t.path("fairlift.toml")).write_text(text)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(t.path("notify"))
        manager.settimeout(60)
        environment = {**os.environ, "NOTIFY_SOCKET": t.path("notify"), "FAIRLIFT_CONTROL": f"unix:{socket_}.control.sock"}
        first = t.start(installed, "serve", "--config", t.path("fairlift.toml"), "--listen", f"unix:{socket_}", env=environment)
        equal([manager.recv(100)[:7] for _ in range(2)], [b"FDSTORE", b"READY=1"], "the first words")

        def reload(pid):
            """As the unit says it; the words that the manager hears by the end."""
            for line in re.findall(r"^ExecReload=-?(.*)$", (UNITS / "fairlift.service").read_text(), re.M):
                t.run(*shlex.split(line.replace("/usr/bin/fairlift", installed).replace("$MAINPID", str(pid()))), env=environment)
            words = []
            while not words or not words[-1].startswith("RELOADING"):
                words.append(manager.recv(100).decode())
            equal(manager.recv(100), b"READY=1", "the last word")
            return words[:-1]

        equal(reload(lambda: first.pid), [], "what is told where the program is the same")
        shutil.copy(BINARY, installed + ".new")
        os.rename(installed + ".new", installed)
        client = Client(socket_, "a")
        client.write(0, data(512))
        words = reload(lambda: json.loads(t.run("curl", "-s", "--unix-socket", f"{socket_}.control.sock", "-X", "POST", "http://localhost/v1/upgrade"))["pid"])
        equal(first.wait(60), 0, "the exit code of the previous server")
        # Of two processes: the new one is ready before the other ends, and either may be heard first.
        pid = next(int(word.removeprefix("MAINPID=")) for word in words if word.startswith("MAINPID="))
        equal(client.read(0, 512), data(512), "what the client wrote before")
        client.disconnect()
        os.kill(pid, signal.SIGTERM)


if __name__ == "__main__":
    main()
