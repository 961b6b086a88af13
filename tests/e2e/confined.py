"""What the server may not do once it has started: files outside of its roots, system calls and capabilities it does not need."""

import resource

from harness import *


def rooted(t):
    """A directory with an image, and a secret beside it that links in the directory lead to."""
    root = Path(t.path("root"))
    (root / "below").mkdir(parents=True)
    image = t.image("root/image", MIB, (0, b"image"))
    secret = t.image("secret", MIB, (0, b"secret"))
    (root / "link").symlink_to("../secret")
    (root / "inside").symlink_to("below/../image")
    return root, image, secret


@test(fairlift_only=True)
def files_outside_of_the_roots_are_served_neither_from_the_start_nor_later(t):
    root, image, secret = rooted(t)
    for path, says in (secret, "is not in"), (root / "link", "leads out of"), (root / "below/../../secret", "leads out of"):
        contains(t.serve_fails(f"a={path}", "--root", root, "--listen", f"unix:{t.path('s')}"), says, str(root), "(--root)")

    config = f'[server]\nroots = ["root"]\n[export.a]\nbacking = "{image}"\n'
    server = t.server(config=config)
    server.serves("a", MIB)
    for path, says in (secret, "is not in"), (root / "link", "leads out of"):
        contains(server.control("add", "export", f"b={path}", code=1), says, str(root), "(server.roots)")
        server.control("add", "export", f"b={path}", "--dry-run", code=1)
    # The same file, by a name that is not in the root, is refused as well, though it is open.
    os.link(image, t.path("other"))
    contains(server.control("add", "export", f"b={t.path('other')}", code=1), "is not in")
    server.control("add", "export", f"b=file:{root / 'inside'},shared")
    with server.connect("b") as client:
        client.write(0, data(4096))
        client.disconnect()
    with server.connect("a") as client:
        equal(client.read(0, 4096), data(4096), "what was written by the file's other name")
        client.disconnect()

    # So do files that a reload brings; and the roots stay as they were.
    path = Path(t.path("server0.toml"))
    for text, *words in [
        (config + f'[export.c]\nbacking = "{secret}"\n', "is not in"),
        (config.replace('"root"', '"/"'), ":2:", "server.roots: is the server's from start to end"),
        (config.replace('roots = ["root"]', ""), "server.roots: is the server's from start to end"),
    ]:
        path.write_text(text)
        contains(server.control("reload", code=1), *words)


@test(fairlift_only=True)
def a_root_that_is_no_directory_is_a_mistake_with_its_line(t):
    path = t.path("fairlift.toml")
    for root, says in ("/no/such/root", "no such file"), (t.image("file", 512), "not a directory"):
        Path(path).write_text(f'[server]\n\nroots = "{root}"\n[export.a]\nbacking = "mem:1m"\n')
        for check in (), ("--check",):
            contains(t.serve_fails("--config", path, "--listen", f"unix:{t.path('s')}", *check), f"{path}:3:9:", f"server.roots: {root}", says)
    contains(t.serve_fails("a=mem:1m", "--root", "/no/such/root"), "--root: /no/such/root")


def threads(server):
    """What the kernel says of each thread of a server: {name of the thread: {word: value}}."""
    all = {}
    for task in Path(f"/proc/{server.pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            lines = (line.split(":", 1) for line in (task / "status").read_text().splitlines())
            words = {word: value.strip() for word, value in lines}
            all[f"{words['Name']} {task.name}"] = words
    return all


def locking():
    """CAP_IPC_LOCK, if a server has to keep it: rings are locked memory, of which it could not have enough otherwise."""
    words = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    has = lambda bit: int(words["CapEff"], 16) >> bit & 1
    unlimited = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1] == resource.RLIM_INFINITY
    return 0 if has(24) or unlimited or not has(14) else 1 << 14


@test(fairlift_only=True)
def after_the_start_no_thread_has_a_capability_or_every_system_call(t):
    below = t.path("below")
    t.start("nbdkit", "-f", "-U", below, "memory", "1m")
    until_listening(below, "nbdkit")
    server = t.server("a=mem:1m", f"b=nbd+unix:///?socket={below}", env={"RUST_LOG": "debug"})
    server.serves("a")
    server.serves("b")
    # A thread has the name of the one that made it until it has begun.
    begun = lambda: {name.rsplit(" ", 1)[0] for name in threads(server)}
    until(lambda: begun() >= {"worker-0", "control", "signals", "nbd-connect"}, "workers, control, signals, who connects")
    for name, words in threads(server).items():
        for sort, kept in ("CapEff", locking()), ("CapPrm", locking()), ("CapInh", 0), ("CapAmb", 0):
            equal(int(words[sort], 16), kept, f"{sort} of {name}")
        equal((words["Seccomp"], words["NoNewPrivs"]), ("2", "1"), f"the filter of {name}")
        if os.geteuid() == 0:
            equal(int(words["CapBnd"], 16), locking(), f"CapBnd of {name}")
    server.says("dropped all capabilities", "the seccomp filter is active")


@test(fairlift_only=True)
def what_is_asked_for_is_kept_and_what_is_not_there_is_refused(t):
    key = "[server]\nseccomp = false\nkeep_capabilities = ['cap_chown', 'DAC_OVERRIDE']\n"
    config = "[export.a]\nbacking = 'mem:1m'\n" + key
    if os.geteuid() == 0:
        server = t.server(config=config, env={"RUST_LOG": "debug"})
        server.serves("a")
        equal({(int(words["CapEff"], 16), words["Seccomp"]) for words in threads(server).values()}, {(0b11 | locking(), "0")}, "what is kept")
        server.says("dropped all capabilities but CAP_CHOWN CAP_DAC_OVERRIDE", "seccomp is off")
        path = Path(t.path("server0.toml"))
        path.write_text(config.replace("'cap_chown', ", ""))
        contains(server.control("reload", code=1), "server.keep_capabilities: is the server's from start to end")
        path.write_text(config.replace("seccomp = false\n", ""))
        contains(server.control("reload", code=1), "server.seccomp: is the server's from start to end")
    # Without the right to have it, it cannot be kept.
    user = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all"] if os.geteuid() == 0 else []
    path = t.path("other.toml")
    Path(path).write_text(config)
    out = t.run(*user, BINARY, "serve", "--config", path, "--listen", f"unix:{t.path('s')}", code=1)
    contains(out, "server.keep_capabilities", "CAP_CHOWN cannot be kept: the process does not have it")
    out = t.run(*user, BINARY, "serve", "--check", "--config", path, "--listen", f"unix:{t.path('s')}", code=1)
    contains(out, f"{path}:5:", "server.keep_capabilities", "CAP_CHOWN cannot be kept: the process does not have it")
    contains(t.serve_fails("a=mem:1m", "--keep-capability", "CAP_EVERYTHING"), "there is no capability", "CAP_EVERYTHING")


@test(fairlift_only=True)
def a_file_of_another_user_that_is_added_later_needs_a_capability_that_was_kept(t):
    if os.geteuid() != 0:
        t.skip("only root can give a file away")
    image = t.image("of-nobody", MIB)
    os.chown(image, 65534, 65534)
    os.chmod(image, 0o600)
    # From the start each may have it: capabilities are given up after that.
    first = t.server(f"b={image}")
    first.serves("b", MIB)
    first.stop()
    first.seen_to_end = True
    strict, kept = t.server("a=mem:1m"), t.server("a=mem:1m", args=["--keep-capability", "CAP_DAC_OVERRIDE"])
    contains(strict.control("add", "export", f"b={image}", code=1), "neither readable nor writable", "CAP_DAC_OVERRIDE")
    kept.control("add", "export", f"b={image}")
    kept.serves("b", MIB)


if __name__ == "__main__":
    main()
