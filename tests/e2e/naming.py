"""What disks are called that nobody named: as the device or file system below, the same everywhere, whatever the order."""

from control import Control
from harness import *
from metrics import scrape


def below(path):
    """What the kernel calls the device of a file's file system, if it has one."""
    number = os.stat(path).st_dev
    place = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    return (place / "dm/name").read_text().strip() if (place / "dm").exists() else place.resolve().name if place.exists() else None


@test(fairlift_only=True)
def a_disk_that_nobody_named_is_called_after_what_is_below_in_any_order_and_everywhere(t):
    alice, bob = t.image("alice.img", MIB), t.image("bob.img", MIB)
    names, server = [], None
    for first, second in [(f"alice={alice}", f"bob={bob}"), (f"bob={bob}", f"alice={alice}")]:
        if server:
            server.stop()
        server = t.server(first, second)
        control = Control(t, server)
        [disk] = control.ask("GET", "/v1/disks")
        names.append(disk["name"])
        server.serves("alice")
    name = names[0]
    equal(names, [name, name], "the names, by the order of exports")
    assert re.fullmatch(r"[\w.+@:-]+", name) and not name.startswith("-"), f"a shell would take {name!r} apart"
    equal(name, below(alice) or name, "beside the kernel's name of the device")
    contains(control.cli("set", "disk", name, "scheduler=bfq"), "scheduler: bfq")
    contains(control.cli("get", "export", "alice"), f"disk: {name}")
    contains(control.cli("why", "alice"), f"/alice on {name}: ")
    contains(control.cli("status", "--seconds", "0.1"), f" {name} ")
    contains(scrape(control)[0], f'disk="{name}",')
    until(lambda: f"disk {name}: " in server.log(), "the log names it")
    contains(control.cli("set", "disk", "nowhere", "scheduler=bfq", code=1), f"there are {name}")
    # What comes later is told apart by its export, and what is there keeps its name.
    contains(control.cli("add", "export", "carol=mem:1m"), "disk: ram-carol")
    contains(control.cli("add", "export", "dave=mem:1m"), "disk: ram-dave")
    contains(control.cli("add", "export", "eve=sim:sata-7200,size=1g"), "disk: sata-7200-eve")


@test(fairlift_only=True)
def disks_that_would_be_called_alike_are_told_apart_by_their_exports(t):
    found = []
    for exports in [("b=mem:1m", "a=mem:1m", "c=null:1m"), ("c=null:1m", "a=mem:1m", "b=mem:1m")]:
        control = Control(t, t.server(*exports))
        found.append({export["name"]: export["disk"] for export in control.ask("GET", "/v1/exports")})
    equal(found, [dict(a="ram-a", b="ram-b", c="null-c")] * 2, "the disk of each export")
    # One more changes none of the others, added or there at the next start.
    for exports in [("a=mem:1m",), ("a=mem:1m", "ram=mem:1m", "aa=mem:1m")]:
        control = Control(t, t.server(*exports))
        control.cli("add", "export", "0=mem:1m")
        found = {export["name"]: export["disk"] for export in control.ask("GET", "/v1/exports")}
        equal((found["a"], found["0"], found.get("ram", "ram")), ("ram-a", "ram-0", "ram"), "the disks of exports with others")
    image = t.image("a.img", MIB)
    server = t.server(f"a={image}")
    name = Control(t, server).ask("GET", "/v1/disks")[0]["name"]
    server.stop()
    server = t.server(config=f'[export.a]\nbacking = "{image}"\n[disk."{name}"]\ndepth = 7\n')
    equal([disk["name"] for disk in Control(t, server).ask("GET", "/v1/disks")], [name, f"{name}-a"], "beside one that the file calls so")


if __name__ == "__main__":
    main()
