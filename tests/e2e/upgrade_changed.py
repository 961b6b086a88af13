"""A server that was changed since its start is upgraded all the same, where the new one can be as it is: exports that came and went, in any order."""

from control import Control
from harness import *
from learned import is_held
from nbdclient import READ
from successor import Adopted, finish
from upgrade import SIZE, new_side, turns_down, upgrade


def disk_of(t, server, export):
    """The disk of an export, and its scheduler."""
    control = Control(t, server)
    name = control.ask("GET", f"/v1/exports/{export}")["disk"]
    return name, control.ask("GET", f"/v1/disks/{name}")["scheduler"]


@test(fairlift_only=True)
def a_scheduler_that_tenants_needed_goes_on_when_they_have_gone(t):
    server = t.server(f"a=file:{t.image('image', MIB)}")
    before = disk_of(t, server, "a")
    server.control("add", "export", f"b=file:{t.image('other', MIB)}")
    shared = disk_of(t, server, "a")
    equal((shared[0], shared[1] != before[1]), (before[0], True), "whether a second tenant brings another scheduler")
    server.control("remove", "export", "b")
    for _ in range(2):
        upgrade(server)
        equal(disk_of(t, server, "a"), shared, "the disk at the new server")
    server.control("set", "disk", shared[0], f"scheduler={'none' if shared[1] != 'none' else 'fair'}")
    contains(upgrade(server, code=1), "scheduler", "in the new server", "take back the changes made by command")


@test(fairlift_only=True)
def a_scheduler_that_a_command_has_named_stays_though_another_tenant_comes_after_an_upgrade(t):
    server = t.server(f"a=file:{t.image('image', MIB)}")
    disk = disk_of(t, server, "a")
    server.control("set", "disk", disk[0], f"scheduler={disk[1]}")
    for _ in range(2):
        upgrade(server)
    server.control("add", "export", f"b=file:{t.image('other', MIB)}")
    equal([disk_of(t, server, export) for export in "ab"], [disk, disk], "the disk that both share")


@test(fairlift_only=True)
def an_export_that_was_added_with_a_size_keeps_it(t):
    server = t.server(f"a=file:{t.image('image', MIB)}")
    whole = data(4 * MIB)
    server.control("add", "export", f"b=file:{t.image('other', 4 * MIB, (0, whole))}", "offset=1m", "size=2m")
    with server.connect("b") as client:
        for _ in range(2):
            upgrade(server)
            equal(client.read(0, 2 * MIB), whole[MIB:3 * MIB], "what the export shows")
    with server.connect("b") as client:
        equal(client.size, 2 * MIB, "its size")


@test(fairlift_only=True)
def a_group_that_no_file_names_goes_over_though_its_export_has_gone(t):
    server = t.server(f"a=file:{t.image('image', MIB)}")
    add = lambda name: server.control("add", "export", f"{name}=file:{t.image(name + '.img', MIB)}", f"group=/sandboxes/{name}")
    add("b")
    server.control("set", "group", "/sandboxes/b", "weight=300", "max=riops=900")
    server.control("remove", "export", "b")
    upgrade(server)
    add("c")
    upgrade(server)
    group = Control(t, server).ask("GET", "/v1/groups/sandboxes/b")
    equal((group["weight"], group["max"]), (300, {"riops": 900}), "the group after two upgrades")
    server.serves("c")


@test(fairlift_only=True)
def exports_of_one_disk_go_over_in_whatever_order_they_came(t):
    whole = data(SIZE)
    backing = f"overlay:base={t.image('base.img', SIZE, (0, whole))},top={t.path('a.top')}"
    one, other = (f'[export.{name}]\nbacking = "{backing}"\nread_only = {is_read}\n' for name, is_read in (("z", "false"), ("a", "true")))
    server = t.server(config=one)
    with server.connect("z") as client:
        client.write(512, data(4096, 1))
        Path(t.path("server0.toml")).write_text(other + one)
        server.control("reload")
        upgrade(server)
        wanted = whole[:512] + data(4096, 1) + whole[512 + 4096:]
        equal(client.read(0, SIZE), wanted, "the disk by the export that came first")
        with server.connect("a") as reader:
            equal(reader.read(0, SIZE), wanted, "the same by the export that stands first in the file")


@test(fairlift_only=True)
def writes_to_an_export_that_is_removed_outlive_the_server_though_it_ends_at_once(t):
    size, piece = 192 * MIB, data(16 * MIB)
    base = t.image("base.img", size)
    for top in "stopped", "upgraded":
        # Through the page cache, so that its last flush takes a while.
        server, over = t.server(f"b=mem:{MIB}"), f"overlay:base={base},top={t.path(top)}"
        server.control("add", "export", f"a={over},direct=off")
        with server.connect("a") as client:
            for at in range(0, size, len(piece)):
                client.write(at, piece)
            client.disconnect()
        server.control("remove", "export", "a")
        if top == "upgraded":
            upgrade(server)
            server.kill()
        else:
            server.stop()
        server = t.server(f"a=overlay:top={t.path(top)}")
        with server.connect("a") as client:
            for at in range(0, size, len(piece)):
                equal(client.read(at, len(piece)) == piece, True, f"whether what was written at {at} is there")
        server.stop()


@test(fairlift_only=True)
def no_top_is_frozen_while_another_server_takes_it_over(t):
    size = 256 * MIB
    server = t.server(f"a=overlay:base={t.image('base.img', size)},top={t.path('a.top')}")
    client = server.connect("a")
    for at in range(0, size, 16 * MIB):
        client.write(at, data(16 * MIB))
    peer = new_side(server)
    fork = t.start(BINARY, "fork", "a", "b", "--control", f"unix:{server.socket}.control.sock")
    until(lambda: fork.poll() is not None or os.path.exists(t.path("a.top.1")), "the top is being frozen")
    peer.send("ready")
    said = peer.until("all")[-1][0]
    # A disk that is quick enough has ended the fork by then.
    equal((said["message"], "forked" in said.get("why", "") or "changed" in said.get("why", "")), ("off", True), f"the answer: {said}")
    peer.leave()
    equal(fork.wait(60), 0, "how the fork ended")
    upgrade(server)
    with server.connect("b") as other:
        equal(other.read(size - 512, 512), client.read(size - 512, 512), "the fork")


@test(fairlift_only=True)
def a_tenant_at_its_limit_keeps_nobody_from_an_upgrade_and_pays_later(t):
    server = t.server(config=f"""
        [export.disk]
        backing = "file:{t.image('image', 64 * MIB)}"
        group = "/a"
        [group."/a"]
        max = {{ rbps = 65536 }}
        """)
    with server.connect("disk", timeout=30) as client:
        for hands_over in lambda: turns_down(server, {"why": "it is too warm here"}), lambda: upgrade(server):
            # Eight minutes' worth: a machine may stand still for half a minute, and the debt of one would be paid by then.
            asked = {client.submit(READ, n * MIB, MIB): n for n in range(32)}
            hands_over()
            begun = time.monotonic()
            for _ in range(len(asked)):
                reply = client.reply()
                equal(len(reply.data(asked.pop(reply.cookie) * MIB, MIB)), MIB, "the bytes of a read")
            equal(time.monotonic() - begun < 10, True, "whether what was asked before has been answered soon")
            equal([is_held(server, 1) for _ in range(2)], [True, True], "whether the next reads wait until that is paid for")


@test(fairlift_only=True)
def the_sockets_of_a_server_that_took_over_are_no_stale_ones(t):
    sockets = t.path("vms")
    os.mkdir(sockets)
    server = t.server(f"a=mem:{MIB}", args=["--vhost-user", sockets])
    control, other = f"{server.socket}.control.sock", t.path("other")
    for _ in range(2):
        for words in (["--listen", f"unix:{server.socket}"], ["--listen", f"unix:{other}", "--control", f"unix:{control}"],
                      ["--listen", f"unix:{other}", "--control", "off", "--vhost-user", sockets]):
            contains(t.serve_fails(f"a=mem:{MIB}", *words), "another server is listening there")
        with server.connect("a") as client:
            client.write(0, data(512))
        equal(Control(t, server).ask("GET", "/v1/exports/a")["name"], "a", "what control says")
        equal(os.path.exists(f"{sockets}/a"), True, "whether virtual machines find their socket")
        upgrade(server)


@test(fairlift_only=True)
def a_server_whose_control_has_a_token_is_upgraded_by_those_who_have_it(t):
    token = t.secret("token", "0123456789abcdef\n")
    place = f"unix:{t.path('control')}"
    server = t.server(f"a=mem:{MIB}", args=["--control", f"{place},token={token}"])
    contains(t.run(BINARY, "upgrade", "--control", place, code=1), "token")
    with server.connect("a") as client:
        client.write(0, data(512, 1))
        said = t.run(BINARY, "upgrade", "--control", f"{place},token={os.path.relpath(token)}")
        equal(server.process.wait(60), 0, "the exit code of the previous server")
        server.process = Adopted(int(re.search(r"process (\d+) serves now", said)[1]))
        t.defer(finish, server.process)
        equal(client.read(0, 512), data(512, 1), "what a client of both reads")


@test(fairlift_only=True)
def a_program_is_looked_for_where_the_command_is_given(t):
    server = t.server(f"a=mem:{MIB}")
    os.makedirs(t.path("new/bin"))
    os.symlink(BINARY, t.path("new/bin/fairlift"))
    for program, place in ("bin/fairlift", "new"), ("./fairlift", "new/bin"):
        said = t.run(BINARY, "upgrade", "--dry-run", "--program", program, "--control", f"unix:{server.socket}.control.sock", cwd=t.path(place))
        contains(said, "a new server could take over")


@test(fairlift_only=True)
def clients_keep_the_largest_request_that_they_were_told_of(t):
    text = f'[export.a]\nbacking = "mem:{64 * MIB}"\n[server]\n'
    server = t.server(config=text)
    path = Path(t.path("server0.toml"))
    with server.connect("a") as client:
        path.write_text(text + 'request_max = "1m"\n')
        contains(upgrade(server, code=1), "request_max", "1048576 in the new server", "goes on")
        path.write_text(text + 'request_max = "64m"\nconnection_memory = "64m"\n')
        upgrade(server)
        equal(client.read(0, 32 * MIB), bytes(32 * MIB), "a read of the largest request")


if __name__ == "__main__":
    main()
