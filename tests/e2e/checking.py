"""What a start would refuse, `--check` refuses, in the same words; and what cannot act is a warning with its line."""

from harness import *


def refused_alike(t, *arguments):
    """`serve` and `serve --check` end with the same code and message, which is returned."""
    checked = t.run(BINARY, "serve", "--check", *arguments, code=None)
    started = t.serve_fails(*arguments)
    started = "".join(line for line in started.splitlines(keepends=True) if " INFO " not in line)
    equal(checked, started, "what --check says, beside the start")
    code = subprocess.run([BINARY, "serve", "--check", *map(str, arguments)], capture_output=True).returncode
    assert code in (1, 2), f"the exit code of --check is {code}"
    return checked


@test(fairlift_only=True)
def what_the_start_would_refuse_the_check_refuses_with_its_line(t):
    image, small = t.image("image", MIB), t.image("small", 0)
    os.mkdir(t.path("directory"))
    live = t.server(f"disk={image}")
    for text, line, *words in [
        (f"[export.a]\nbacking = '{small}'\n", 2, "export.a.backing", small, "is empty"),
        (f"[export.a]\nbacking = '{t.path('directory')}'\n", 2, "export.a.backing", "is a directory"),
        (f"[export.a]\nbacking = '{image}'\n", 2, "export.a.backing", image, "in use by another server", "fairlift reload --dry-run"),
        ("[export.a]\nbacking = 'mem:1m'\n[server]\nlearned = 'no/such/file'\n", 4, "server.learned", "No such file or directory"),
        (f"[export.a]\nbacking = 'mem:1m'\n[server]\nlearned = '{image}'\n", 4, "server.learned", "not the learned state of a server"),
        ("[export.a]\nbacking = 'mem:1m'\n[server]\nlisten = 'unix:no/such/socket'\n", 4, "server.listen", "does not exist"),
        (f"[export.a]\nbacking = 'mem:1m'\n[server]\nlisten = ['unix:{live.socket}']\n", 4, "server.listen", "another server", "fairlift reload --dry-run"),
        (f"[export.a]\nbacking = 'mem:1m'\n[server]\nlisten = 'unix:{small}'\n", 4, "server.listen", "not a socket"),
        (f"[export.a]\nbacking = 'mem:1m'\n[server]\nlisten = 'unix:{small}/s'\n", 4, "server.listen", "Not a directory"),
        ("[export.a]\nbacking = 'mem:1m'\n[server]\ntls = 'require'\ntls_certificates = 'pki'\n", 5, "server-cert.pem"),
        (f"[export.a]\nbacking = '{t.image('two', MIB)}'\nsize = '2m'\n", 1, "export.a", "a backing that has 1048576"),
        ("[disk.d]\n[disk.e]\n[export.a]\nbacking = '" + t.image("three", MIB) + "'\ndisk = 'd'\n"
         "[export.b]\nbacking = 'three'\ndisk = 'e'\n", 6, "export.b", "one backing has one queue"),
        ("[disk.d]\ndepth = 200\n[export.a]\nbacking = 'mem:1m'\ndisk = 'd'\n[disk.e]\nnr_requests = 5\n", 6, "disk.e", "nr_requests"),
    ]:
        path = t.path("fairlift.toml")
        Path(path).write_text(text)
        listen = [] if "listen =" in text else ["--listen", f"unix:{t.path('s')}"]
        message = refused_alike(t, "--config", path, *listen)
        contains(message, f"{path}:{line}:", "error: ", *words)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        contains(refused_alike(t, "mem:1m", "--listen", f"tcp:127.0.0.1:{other.getsockname()[1]}"), "--listen", "in use")
    contains(refused_alike(t, f"a={small}", f"b={image}", "--listen", f"unix:{t.path('s')}"), 'export "a"', 'export "b"', "2 mistakes")
    live.serves("disk")


@test(fairlift_only=True)
def what_another_server_has_is_no_mistake_of_the_file(t):
    image, path = t.image("image", MIB), t.path("server0.toml")
    place = f"unix:{t.path('s0')}"
    live = t.server(config=f"[server]\nlisten = '{place}'\ncontrol = '{place}.control.sock'\n[export.a]\nbacking = '{image}'\n")
    said = refused_alike(t, "--config", path)
    contains(said, f"{path}:2:10: error: server.listen", f"{path}:3:11: error: server.control", f"{path}:5:11: error: export.a.backing",
             f"\nno mistake was found in the file; it cannot start now, for these 3 are in use by process {live.pid}\n", "fairlift reload --dry-run")
    assert "mistakes" not in said, said
    contains(live.control("reload", "--dry-run"), "nothing differs")
    doubted = t.path("doubted.toml")
    Path(doubted).write_text(Path(path).read_text() + '[group."/aa"]\nweight = 3\n[client.c]\nuid = 0\nexports = ["a", "aa"]\n')
    contains(t.run(BINARY, "serve", "--check", "--config", doubted, code=1), 'warning: group."/aa": no export is in this group; did you mean "/a"?',
             'warning: client.c: there is no export "aa"; did you mean "a"?', "\nno mistake was found in the file")
    more = t.path("more.toml")
    Path(more).write_text(Path(path).read_text() + f"[export.b]\nbacking = '{t.path('none')}'\n")
    contains(refused_alike(t, "--config", more), "4 mistakes; 3 of them because another server has it; the server was not started", "fairlift reload --dry-run")
    live.serves("a")


@test(fairlift_only=True)
def a_check_leaves_nothing_behind_and_a_good_config_is_ok(t):
    image = t.image("image", MIB, (0, data(4096)))
    Path(t.path("fairlift.toml")).write_text(
        f"[server]\nlisten = ['unix:s', 'tcp:127.0.0.1:{free_port()}']\n[export.a]\nbacking = 'image'\n")
    before = sorted(os.listdir(t.dir))
    equal(t.run(BINARY, "serve", "--check", "--config", t.path("fairlift.toml")),
          "ok: 1 export, 1 disk, 1 group, 2 listeners\n", "what a check says")
    equal(sorted(os.listdir(t.dir)), before, "the files")
    equal(Path(image).read_bytes()[:4096], data(4096), "the image")
    equal(os.path.getsize(image), MIB, "its size")


TENANTS = """[export.a]
backing = "{a}"
{on_a}group = "/tenants/alice"
[export.b]
backing = "{b}"
{on_b}group = "/tenants/bob"
[group."/tenants/{alice}"]
weight = 300
{disk}"""


@test(fairlift_only=True)
def a_weight_that_cannot_act_is_a_warning_with_its_line_at_check_and_at_start(t):
    a, b = t.image("a", MIB), t.image("b", MIB)
    own = dict(a=a, b=b, on_a="", on_b="", alice="alice", disk="")
    one = dict(on_a='disk = "d"\n', on_b='disk = "d"\n')
    for changes, line, *words in [
        ({}, None),
        (dict(alice="alcie"), 7, 'group."/tenants/alcie"', 'did you mean "/tenants/alice"?'),
        (dict(**one, disk='[disk.d]\nscheduler = "mq-deadline"\n'), 9, "mq-deadline, which knows no weights", "fair, bfq and cfq do"),
        (dict(**one, disk='[disk.d]\nscheduler = "none"\n'), 9, "none, which knows no weights"),
        (dict(**one, disk='[disk.d]\nscheduler = "cfq"\n'), None),
        # Each modelled disk is one of its own.
        (dict(a="mem:1m", b="mem:1m"), 7, 'its exports are on disk "ram-a"', '"/tenants/bob" on disk "ram-b"'),
        (dict(disk="[disk.unused]\n"), 9, "disk.unused: no export is on this disk"),
    ]:
        config = TENANTS.format(**{**own, **changes})
        Path(t.path("f.toml")).write_text(config)
        said = t.run(BINARY, "serve", "--check", "--config", t.path("f.toml"), "--listen", f"unix:{t.path('s')}")
        server = t.server(config=config)
        if line is None:
            equal(said, "ok: 2 exports, 1 disk, 3 groups, 1 listener\n", "--check")
            assert "WARN" not in server.log(), server.log()
        else:
            contains(said, f"{t.path('f.toml')}:{line}:", "warning: ", "; 1 warning", *words)
            server.says("WARN", f"server{len(t.servers) - 1}.toml:{line}:", *words)
        server.serves("a")
        server.stop()


if __name__ == "__main__":
    main()
