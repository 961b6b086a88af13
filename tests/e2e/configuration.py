"""Flags and config files: what is right works, what is wrong is named with its place."""

from harness import *


def check(t, *arguments):
    """`fairlift serve --check` finds nothing wrong."""
    return t.run(BINARY, "serve", "--check", *arguments)


@test(fairlift_only=True)
def every_mistake_in_a_config_file_is_told_with_file_line_and_key(t):
    good = '[export.disk]\nbacking = "mem:1m"\n'
    for text, line, *words in [
        ("[export.disk]\nbakcing = 'mem:1m'\n", 2, "bakcing", "backing"),
        ("[export.disk]\nread_only = true\n", 1, "backing"),
        ("[export.disk]\nbacking = 17\n", 2, "backing"),
        ("[export.disk]\nbacking = 'mem:1x'\n", 2, "backing"),
        ("[export.disk]\nbacking = 'floppy:1m'\n", 2, "floppy"),
        ("[export.disk]\n\n\nbacking = 'file:/no/such/file'\n", 4, "/no/such/file"),
        (good + "read_only = 'perhaps'\n", 3, "read_only"),
        (good + "disk = 'nowhere'\n", 3, "nowhere"),
        (good + "group = 'tenants'\n", 3, "group"),
        (good + "[disk.d]\nscheduler = 'elevator'\n", 4, "elevator", "mq-deadline"),
        (good + "[disk.d]\ndepth = 0\n", 4, "depth"),
        (good + "[disk.d]\ndepth = 'many'\n", 4, "depth"),
        (good + "[disk.d]\nscheduler = 'mq-deadline'\nset = { read_expires = '1s' }\n", 5, "read_expires", "read_expire"),
        (good + "[disk.d]\nscheduler = 'mq-deadline'\nset = { read_expire = 'soon' }\n", 5, "read_expire"),
        (good + "[group.'/a']\nweight = 0\n", 4, "weight", "1000"),
        (good + "[group.'/a']\nweight = 1001\n", 4, "weight", "1000"),
        (good + "[sever]\n", 3, "sever", "server"),
        (good + "[server]\nhandshake_timeout = '10'\n", 4, "handshake_timeout"),
        (good + "[server]\nlisten = 'tcp:0.0.0.0:10809'\n", 4, "listen", "TLS"),
        (good + "[export.disk]\nbacking = 'mem:2m'\n", 3, "disk"),
        ("[export.disk\nbacking = 'mem:1m'\n", 1, ""),
        ("[export.disk]\nbacking = 'mem:1m\n", 2, ""),
    ]:
        path = t.path("fairlift.toml")
        Path(path).write_text(text)
        message = t.serve_fails("--config", path, "--listen", f"unix:{t.path('s')}") if "listen =" not in text else \
            t.serve_fails("--config", path)
        contains(message, f"{path}:{line}", *words)


@test(fairlift_only=True)
def several_mistakes_are_told_at_once(t):
    path = t.path("fairlift.toml")
    Path(path).write_text("[export.a]\nbacking = 'men:1m'\n[export.b]\nbaking = 'mem:1m'\nbacking = 'mem:1m'\n")
    contains(t.serve_fails("--config", path, "--listen", f"unix:{t.path('s')}"), f"{path}:2", f"{path}:4")


@test(fairlift_only=True)
def a_config_file_that_is_missing_or_no_text_is_refused(t):
    contains(t.serve_fails("--config", t.path("missing.toml")), t.path("missing.toml"))
    contains(t.serve_fails("--config", str(t.dir)), str(t.dir))
    Path(t.path("binary.toml")).write_bytes(b"\xff\xfe\0\0")
    contains(t.serve_fails("--config", t.path("binary.toml")), t.path("binary.toml"))


@test(fairlift_only=True)
def mistakes_in_flags_are_named(t):
    for arguments, *words in [
        (["disk=floppy:1m"], "floppy"),
        (["disk=mem:"], "mem"),
        (["disk=mem:0"], "0"),
        (["disk=mem:1000"], "512"),
        (["disk=mem:99999999999t"], "99999999999t"),
        (["disk=mem:-1"], "-1"),
        (["disk=null:1m,dealy=1s"], "dealy"),
        (["disk=mem:1m", "disk=mem:1m"], "disk", "twice"),
        (["disk=mem:1m", "--scheduler", "elevator"], "elevator", "mq-deadline"),
        (["disk=mem:1m", "--scheduler", "mq-deadline", "--set", "quantum=1"], "quantum", "read_expire"),
        (["disk=mem:1m", "--scheduler", "mq-deadline", "--set", "fifo_batch=0x"], "fifo_batch"),
        (["disk=mem:1m", "--scheduler", "none", "--set", "read_expire=1s"], "read_expire", "none"),
        (["disk=mem:1m", "--set", "read_expire"], "KEY=VALUE"),
        (["disk=mem:1m", "--listen", "nowhere"], "nowhere"),
        (["disk=mem:1m", "--listen", "tcp:localhost"], "tcp"),
        (["disk=mem:1m", "--listen", "unix:"], "unix"),
        (["disk=mem:1m", "--listen", "unix:" + "x" * 200], "x" * 50),
        (["disk=mem:1m", "--max-connections", "0"], "max-connections"),
        (["disk=mem:1m", "--handshake-timeout", "10"], "handshake-timeout"),
        (["disk=mem:1m", "--no-such-flag"], "--no-such-flag"),
        (["x" * 5000 + "=mem:1m"], "4096"),
    ]:
        contains(t.serve_fails(*arguments, *([] if "--listen" in arguments else ["--listen", f"unix:{t.path('s')}"])), *words)


@test(fairlift_only=True)
def a_path_that_is_no_disk_image_is_not_answered_with_a_command_that_would_change_it(t):
    path = t.image("notes.txt", 0)
    message = t.serve_fails(f"disk={path}", "--listen", f"unix:{t.path('s')}")
    contains(message, path, "is empty")
    assert "truncate" not in message, message
    equal(os.path.getsize(path), 0, "the size of the file")


@test(fairlift_only=True)
def a_config_file_serves_what_it_says(t):
    image = t.image("image", 8 * MIB, (4 * MIB, data(4096)))
    server = t.server(config=f"""
[server]
max_connections = 100

[disk.ssd0]
scheduler = "mq-deadline"
depth = 32
set = {{ read_expire = "100ms", fifo_batch = 8 }}

[export.alice]
backing = "file:{image}"
disk = "ssd0"
group = "/tenants/alice"
description = "Alice's disk"

[export.upper]
backing = "file:{image}"
disk = "ssd0"
offset = {4 * MIB}
size = "2m"
group = "/tenants/bob"
read_only = true

[export.ram]
backing = "mem:3m"

[group."/tenants/alice"]
weight = 300
""")
    exports = {e["export-name"]: e for e in t.json("nbdinfo", "--list", "--json", server.uri())["exports"]}
    equal({name: e["export-size"] for name, e in exports.items()}, {"alice": 8 * MIB, "upper": 2 * MIB, "ram": 3 * MIB}, "the list")
    equal(exports["alice"].get("description"), "Alice's disk", "the description")
    with server.connect("upper") as client:
        equal(client.read_only, True, "what the flags of a read-only export say")
        equal(client.read(0, 4096), data(4096), "the range starts where it should")
        with refused(EINVAL):
            client.read(2 * MIB, 512)
        with refused(EPERM):
            client.write(0, data(512, 3))
    with server.connect("alice") as client:
        client.write(6 * MIB - 512, data(512, 2))
    with server.connect("upper") as client:
        equal(client.read(2 * MIB - 512, 512), data(512, 2), "the last sector of the range")


@test(fairlift_only=True)
def the_example_config_is_right_as_it_is(t):
    example = t.run(BINARY, "config")
    contains(example, "[export.", "[disk.", "[group.", "[server]")
    Path(t.path("example.toml")).write_text(example)
    check(t, "--config", t.path("example.toml"))


@test(fairlift_only=True)
def flags_win_over_the_config_file(t):
    Path(t.path("fairlift.toml")).write_text(
        f'[server]\nlisten = "unix:{t.path("from-file")}"\n[export.disk]\nbacking = "mem:1m"\n')
    server = t.server("more=mem:2M", args=["--config", t.path("fairlift.toml")])
    with server.connect("disk") as client:
        equal(client.size, MIB, "the size of the file's export")
    with server.connect("more") as client:
        equal(client.size, 2 * MIB, "the size of the command line's export")
    equal(os.path.exists(t.path("from-file")), False, "the socket that the flag replaces")


@test(fairlift_only=True)
def help_teaches_and_a_version_is_told(t):
    contains(t.run(BINARY, "--help"), "serve", "fairlift serve")
    contains(t.run(BINARY, "serve", "--help"), "--listen", "--scheduler", "--config", "--tls", "mem:SIZE", "file:PATH", "null:SIZE")
    contains(t.run(BINARY, "--version"), "fairlift ")
    contains(t.run(BINARY, "tunables"), "mq-deadline", "read_expire", "writes_starved")
    contains(t.run(BINARY, "completions", "bash"), "fairlift")
    contains(t.run(BINARY, "man"), ".TH")
    contains(t.run(BINARY, code=2), "serve")
    contains(t.run(BINARY, "sevre", code=2), "serve")


if __name__ == "__main__":
    main()
