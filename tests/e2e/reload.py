"""The config file is read again while clients are served: all of its difference is made, or nothing."""

import itertools

from control import Control
from harness import *
from nbdclient import READ

ONE = """[disk.d]
scheduler = "fair"
{disk}
[export.a]
backing = "mem:1m"
disk = "d"
group = "/a"
{a}
[group."/a"]
weight = {weight}
{more}"""

BOB = """[export.b]
backing = "mem:2m"
disk = "d"
group = "/b"
"""


def config(**words):
    return ONE.format(**{"disk": "", "a": "", "weight": 300, "more": "", **words})


def reload(server, text, *says):
    """Writes the file anew, sends SIGHUP, and returns what the log has to say of it: all of these words, which come in lines of their own."""
    before = len(server.log())
    Path(server.t.path("server0.toml")).write_text(text)
    server.process.send_signal(signal.SIGHUP)
    missing = lambda: [word for word in says if word not in server.log()[before:]]
    try:
        until(lambda: not missing(), "the log")
    except AssertionError:
        raise AssertionError(f"the log does not say {missing()}, but {server.log()[before:]!r}") from None
    return server.log()[before:]


@test(fairlift_only=True)
def a_reload_by_signal_is_made_though_changes_come_by_command(t):
    """Nobody has asked for a version: that there is another one by the time that the file was read is no reason to refuse it."""
    others = "".join(f'[export.o{n}]\nbacking = "mem:1m"\ndisk = "d"\n' for n in range(150))
    server = t.server(config=config(more=others))
    control, is_over = Control(t, server), threading.Event()
    control.ask("POST", "/v1/groups", {"path": "/x"})

    def changes():
        for weight in itertools.cycle(range(1, 1001)):
            if is_over.is_set():
                return
            control.ask("PATCH", "/v1/groups/x", {"weight": weight})

    def reloads():
        try:
            for n in range(40):
                said = reload(server, config(more=others, a=f'description = "{n}"'), f'reloaded: export "a": description "{n}"')
                assert "not reloaded" not in said, said
        finally:
            is_over.set()

    at_once(changes, reloads)


def exports(t, server):
    return {e["export-name"]: e["export-size"] for e in t.json("nbdinfo", "--list", "--json", server.uri())["exports"]}


@test(fairlift_only=True)
def sighup_makes_the_difference_and_says_it_and_clients_stay(t):
    server = t.server(config=config())
    with server.connect("a") as client:
        client.write(0, data(4096))
        reload(server, config(weight=200, more=BOB, a='description = "new"'), 'reloaded: group "/a": weight 200 (was 300)',
               'reloaded: group "/b": added, weight 100', 'reloaded: export "a": description "new"', 'export "b": added, RAM, 2 MiB, group "/b"')
        equal(exports(t, server), {"a": MIB, "b": 2 * MIB}, "the exports")
        server.serves("b")
        reload(server, config(weight=200, more=BOB, a='description = "new"'), "reloaded: the config file and the running configuration are the same")
        reload(server, config(disk='depth = 16\nset = { isolation_cost = 5 }', a="read_only = true"), 'disk "d": depth 16 (was default)',
               'disk "d": isolation_cost = 5 (was default)', 'export "b": removed', 'export "a": read-only now', 'group "/b": removed')
        equal(exports(t, server), {"a": MIB}, "the exports when b is gone")
        equal(client.read(0, 4096), data(4096), "what the client of a wrote before all that")
        with refused(EPERM):
            client.write(0, data(4096))
        client.disconnect()


@test(fairlift_only=True)
def a_file_with_one_mistake_changes_nothing_and_is_told_with_its_line(t):
    server = t.server(config=config())
    path = t.path("server0.toml")
    broken = t.image("broken", 0)
    for text, *words in [
        (config(weight=0, more=BOB), f"{path}:10:10: group.\"/a\".weight: takes a number from 1 to 1000"),
        (config(weight=200, more=BOB.replace("mem:2m", broken)), f"{path}:12:11: export.b.backing", "is empty"),
        (config(weight=200, more=BOB.replace("mem:2m", "/no/such/file")), f"{path}:12:11: export.b.backing: /no/such/file"),
        (config(weight=200, more=BOB).replace("mem:1m", "mem:3m"), f"{path}:5:11: export.a.backing: clients would find other data"),
        (config(weight=200, more=BOB).replace("mem:1m", "/no/such/file"), f"{path}:5:11: export.a.backing: /no/such/file: No such file", "; clients would find"),
        (config(weight=200, more=BOB, disk="io_timeout = '1s'"), f"{path}:1:7: disk.d.io_timeout: cannot change while the disk is in use"),
        (config(weight=200, more=BOB + "[server]\nworkers = 3\n"), f"{path}:16:11: server.workers: is the server's from start to end"),
    ]:
        # That nothing has changed is told of the first three: then the line repeats.
        reload(server, text, "ERROR", *words)
        equal(exports(t, server), {"a": MIB}, "the exports")
    server.says("not reloaded: nothing has changed")
    Path(path).write_text(config(weight="150%"))
    for flag in ([], ["--dry-run"]):
        contains(Control(t, server).cli("reload", *flag, code=1), f"error: {path}:10:10: weight takes 1 to 1000", "\n  10 | weight = 150%\n     |          ^")
    os.unlink(path)
    before = len(server.log())
    server.process.send_signal(signal.SIGHUP)
    until(lambda: f"--config {path}: No such file" in server.log()[before:], "a missing file is told")
    # What was refused is not remembered: the weight is still to be changed.
    reload(server, config(weight=200), 'reloaded: group "/a": weight 200 (was 300)')
    server.serves("a")


@test(fairlift_only=True)
def warnings_follow_the_file_and_a_second_tenant_gets_a_scheduler_with_weights(t):
    image, other = t.image("image", MIB), t.image("other", MIB)
    text = f'[export.a]\nbacking = "{image}"\ngroup = "/a"\n[group."/a"]\nweight = 300\n'
    server = t.server(config=text)
    server.says("WARN", 'server0.toml:4:8: group."/a": its weight has no effect: no other group')
    said = reload(server, text + f'[export.b]\nbacking = "{other}"\ngroup = "/b"\n', 'export "b": added', 'scheduler fair (was mq-deadline)')
    assert "WARN" not in said, said
    reload(server, text.replace("/a", "/x", 1), 'group "/x": added', "WARN", "no export is in this group")


@test(fairlift_only=True)
def a_dry_run_tells_what_the_reload_then_does_and_warns_of(t):
    image, other = t.image("image", MIB), t.image("other", MIB)
    export = lambda name, image: f'[export.{name}]\nbacking = "{image}"\ngroup = "/{name}"\n'
    text = '[export.ram]\nbacking = "mem:1m"\n'
    server = t.server(config=text)
    control = Control(t, server)
    weight = '[group."/a"]\nweight = 300\n'
    # Two tenants on a disk that is made for them, which gets a scheduler with weights; then one of them is alone on it.
    for more, warned in [(export("a", image) + export("b", other) + weight, False), (export("a", image) + weight, True)]:
        Path(t.path("server0.toml")).write_text(text + more)
        tried = control.ask("POST", "/v1/reload", {"dry_run": True})
        done = control.ask("POST", "/v1/reload", {})
        equal((tried["changes"], tried["warnings"]), (done["changes"], done["warnings"]), f"what is told, with {more!r}")
        assert tried["changes"] and ("its weight has no effect" in "".join(tried["warnings"])) == warned, tried
    contains(control.cli("reload"), "its weight has no effect", "\nnothing differs; nothing was changed\n")
    Path(t.path("server0.toml")).write_text(text)
    said = control.cli("reload")
    equal(said.count("version"), 1, f"how often {said!r} tells the version")
    contains(said, 'group "/a": removed\n')


@test(fairlift_only=True)
def a_reload_warns_of_tenants_whose_exports_other_machines_may_open(t):
    text = '[export.a]\nbacking = "mem:1m"\n'
    server = t.server(config=text, listen=[f"unix:{t.path('s0')}", f"tcp:0.0.0.0:{free_port()}"], args=["--insecure"])
    Path(t.path("server0.toml")).write_text(text + '[export.b]\nbacking = "mem:1m"\n')
    for words in ("reload", "--dry-run"), ("reload",), ("status", "--seconds", "0.1"):
        contains(Control(t, server).cli(*words), "other machines can reach tcp:0.0.0.0:", "and each may open the exports of all 2 tenants; [client.NAME]")


@test(fairlift_only=True)
def a_tunable_that_was_set_live_stays_unless_the_file_changes_it(t):
    server = t.server(config=config(disk="set = { isolation_cost = 5 }"))
    control = Control(t, server)
    knobs = lambda: {one["name"]: one["value"] for one in control.ask("GET", "/v1/disks/d")["tunables"]}
    control.cli("set", "disk", "d", "device_depth=7", "isolation_cost=9")
    said = control.ask("POST", "/v1/reload", {})["changes"]
    equal(said, ['taken back: disk "d": isolation_cost = 5 (was 9)'], "what a reload of the same file changes")
    equal((knobs()["device_depth"], knobs()["isolation_cost"]), ("7", "5"), "the tunables after it")
    reload(server, config(weight=200), 'disk "d": isolation_cost = default (was 5)')
    equal(knobs()["device_depth"], "7", "what only a command has named")


@test(fairlift_only=True)
def a_tunable_of_the_file_that_the_scheduler_of_a_second_tenant_has_not_is_in_no_reloads_way(t):
    text = '[disk.d]\nset = {{ read_expire = "20ms" }}\n[export.a]\nbacking = "mem:1m"\ndisk = "d"\n[group."/a"]\nweight = {weight}\n'
    server = t.server(config=text.format(weight=300))
    control = Control(t, server)
    contains(control.cli("add", "export", "b=mem:1m", "disk=d"), "scheduler fair (was mq-deadline)")
    contains(control.cli("reload"), "nothing differs")
    control.cli("remove", "export", "b")
    reload(server, text.format(weight=200), 'reloaded: group "/a": weight 200 (was 300)')


@test(fairlift_only=True)
def what_a_command_has_changed_and_a_reload_takes_back_is_named(t):
    text = """[export.alice]
backing = "mem:1m"
[export.bob]
backing = "mem:1m"
description = "{bob}"
"""
    server = t.server(config=text.format(bob="old"))
    control = Control(t, server)
    control.cli("set", "group", "/alice", "weight=300", "max=iops=300")
    control.cli("remove", "export", "bob")
    control.cli("add", "export", "carol=mem:1m")
    control.cli("set", "group", "/carol", "weight=300")
    back = ['taken back: group "/alice": weight 100 (was 300)', 'taken back: group "/alice": max none (was iops=300)', 'taken back: export "bob": added']
    contains(control.cli("reload", "--dry-run"), *back)
    contains(control.cli("reload"), *back)
    server.says(*(f"reloaded: {one}" for one in back))
    equal(control.ask("GET", "/v1/groups/carol")["weight"], 300, "the weight of a group that the file does not have")
    control.cli("set", "group", "/alice", "weight=7")
    reload(server, text.format(bob="new"), 'reloaded: export "bob": description "new"', 'reloaded: taken back: group "/alice": weight 100 (was 7)')
    contains(control.cli("reload"), "nothing differs")


@test(fairlift_only=True)
def a_tenant_with_delegated_keys_is_removed_by_a_command_and_then_from_the_file(t):
    bob = '[export.bob]\nbacking = "mem:1m"\n'
    tenant = lambda name: f'[export.{name}]\nbacking = "mem:1m"\n[group."/{name}"]\ndelegate = ["max"]\n'
    server = t.server(config=bob + tenant("alice") + tenant("carol"))
    control = Control(t, server)
    control.cli("remove", "export", "alice")
    Path(t.path("server0.toml")).write_text(bob + tenant("carol"))
    contains(control.cli("reload"), 'group "/alice": nothing delegated (was max)\n', 'group "/alice": removed\n')
    control.cli("remove", "export", "carol")
    equal(control.ask("GET", "/v1/groups/carol")["path"], "/carol", "the group of which keys are delegated")
    contains(control.cli("remove", "group", "/carol"), 'group "/carol": nothing delegated (was max)\n')
    Path(t.path("server0.toml")).write_text(bob)
    contains(control.cli("reload"), "nothing differs")
    control.cli("add", "group", "/carol")
    Path(t.path("server0.toml")).write_text(bob + tenant("carol"))
    contains(control.cli("reload"), 'group "/carol": max delegated (was nothing)\n')


@test(fairlift_only=True)
def an_export_that_is_served_gets_a_socket_for_guests_once_it_is_removed_and_the_file_is_read_again(t):
    text = '[export.a]\nbacking = "mem:1m"\n'
    server = t.server(config=text)
    control, socket = Control(t, server), Path(t.path("a.guest"))
    Path(t.path("server0.toml")).write_text(f'{text}vhost_user = "{socket}"\n')
    control.cli("reload", code=1)
    assert not socket.exists(), "a refused reload made a socket"
    control.cli("remove", "export", "a")
    contains(control.cli("reload"), 'export "a": added')
    assert socket.is_socket(), "there is no socket for guests"
    server.serves("a")


@test(fairlift_only=True)
def without_a_config_file_sighup_still_ends_the_server_in_order(t):
    server = t.server("disk=mem:1M")
    server.serves("disk")
    server.stop(signal.SIGHUP)


@test(fairlift_only=True)
def clients_under_load_notice_nothing_of_a_hundred_reloads(t):
    server = t.server(config=config(more=BOB))
    stop = threading.Event()

    def load(first):
        # Each client has half of the blocks: what one reads back is what it wrote.
        with server.connect("a") as client:
            number = 0
            while not stop.is_set() or number <= 100:
                piece, block = data(4096, number), first + number % 128
                client.write(block * 4096, piece)
                equal(client.read(block * 4096, 4096), piece, f"block {block}")
                number += 1
            client.disconnect()

    def reloads():
        for turn in range(100):
            more = BOB if turn % 2 else BOB.replace("[export.b]", f"[export.b{turn}]")
            # Another depth each time: of lines that repeat the log tells only the first.
            reload(server, config(weight=1 + turn * 7 % 900, more=more, disk=f"depth = {16 + turn}"), 'depth')
        stop.set()

    at_once(lambda: load(0), lambda: load(128), reloads)
    equal(sorted(exports(t, server)), ["a", "b"], "the exports")


if __name__ == "__main__":
    main()
