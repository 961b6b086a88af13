"""What nbdinfo sees of an export."""

from harness import *


def only(exports):
    equal(len(exports), 1, "the number of exports")
    return exports[0]


@test
def nbdinfo_sees_the_size_and_everything_the_server_can_do(t):
    server = t.server("disk=mem:64M")
    export = only(t.json("nbdinfo", "--json", server.uri("disk"))["exports"])
    wanted = {"export-name": "disk", "export-size": 64 * MIB, "is_read_only": False, "can_flush": True, "can_fua": True,
              "can_trim": True, "can_zero": True, "can_multi_conn": True}
    equal({key: export.get(key) for key in wanted}, wanted, "what nbdinfo says")
    contains(" ".join(export["contexts"]), "base:allocation")
    if not STAND_IN:
        wanted = {"can_cache": True, "can_df": True, "can_fast_zero": True}
        equal({key: export.get(key) for key in wanted}, wanted, "what nbdinfo says")


@test(fairlift_only=True)
def the_block_sizes_are_512_some_power_of_two_and_32_mib(t):
    server = t.server("disk=mem:64M", f"file=file:{t.image('image', 8 * MIB)}")
    for name in "disk", "file":
        export = only(t.json("nbdinfo", "--json", server.uri(name))["exports"])
        equal(export["block_size_minimum"], 512, "the minimum")
        equal(export["block_size_maximum"], REQUEST_MAX, "the maximum")
        preferred = export["block_size_preferred"]
        assert preferred >= 512 and preferred & (preferred - 1) == 0, f"the preferred size is {preferred}"


@test
def the_list_names_every_export(t):
    server = t.server("first=mem:1M", "second=null:2M", f"third=file:{t.image('image', 3 * MIB)}")
    exports = t.json("nbdinfo", "--list", "--json", server.uri())["exports"]
    equal({e["export-name"]: e["export-size"] for e in exports},
          {"first": MIB, "second": 2 * MIB, "third": 3 * MIB}, "the list")


@test(fairlift_only=True)
def a_single_export_also_answers_to_the_empty_name(t):
    server = t.server("disk=mem:5M")
    equal(t.run("nbdinfo", "--size", server.uri("")).strip(), str(5 * MIB))


@test(fairlift_only=True)
def one_of_several_exports_does_not_answer_to_the_empty_name(t):
    server = t.server("first=mem:1M", "second=mem:2M")
    t.run("nbdinfo", "--size", server.uri(""), code=1)
    equal(t.run("nbdinfo", "--size", server.uri("second")).strip(), str(2 * MIB))


@test
def a_name_may_hold_any_letters(t):
    server = t.server("größe α disk=mem:1M")
    equal(t.run("nbdinfo", "--size", server.uri("gr%C3%B6%C3%9Fe%20%CE%B1%20disk")).strip(), str(MIB))


@test(fairlift_only=True)
def a_name_from_a_config_file_may_hold_a_slash_and_anything_else(t):
    server = t.server(config="""[export."a/b=c:d 'e'"]\nbacking = "mem:1m"\n[export.other]\nbacking = "mem:2m"\n""")
    with server.connect("a/b=c:d 'e'") as client:
        equal(client.size, MIB, "the size")


@test
def a_read_only_export_says_so(t):
    server = t.server(f"disk=file:{t.image('image', MIB)}", read_only=["disk"])
    equal(only(t.json("nbdinfo", "--json", server.uri("disk"))["exports"])["is_read_only"], True, "is_read_only")


@test
def the_map_of_a_sparse_file_is_its_holes_and_data(t):
    pieces = [(MIB, data(MIB, 1)), (8 * MIB, data(64 * KIB, 2)), (15 * MIB, data(MIB, 3))]
    server = t.server(f"disk=file:{t.image('image', 16 * MIB, *pieces)}")
    entries = t.json("nbdinfo", "--map", "--json", server.uri("disk"))
    equal(merged(entries), [(0, MIB, "hole,zero"), (MIB, MIB, "data"), (2 * MIB, 6 * MIB, "hole,zero"),
                            (8 * MIB, 64 * KIB, "data"), (8 * MIB + 64 * KIB, 7 * MIB - 64 * KIB, "hole,zero"),
                            (15 * MIB, MIB, "data")], "the map")


@test(fairlift_only=True)
def the_map_of_the_ram_disk_follows_what_is_written_and_trimmed(t):
    server = t.server("disk=mem:64M")

    def now():
        return merged(t.json("nbdinfo", "--map", "--json", server.uri("disk")))

    equal(now(), [(0, 64 * MIB, "hole,zero")], "the map of a new disk")
    with server.connect("disk") as client:
        client.write(16 * MIB, data(4 * MIB))
        client.disconnect()
    equal(now(), [(0, 16 * MIB, "hole,zero"), (16 * MIB, 4 * MIB, "data"), (20 * MIB, 44 * MIB, "hole,zero")],
          "the map after a write")
    with server.connect("disk") as client:
        client.trim(0, 32 * MIB)
        client.disconnect()
    equal(now(), [(0, 64 * MIB, "hole,zero")], "the map after a trim")


def merged(entries):
    """nbdinfo's map with equal neighbours joined, as [(offset, length, description)]."""
    found = []
    for entry in entries:
        offset, length, kind = entry["offset"], entry["length"], entry["description"]
        if found and found[-1][2] == kind and found[-1][0] + found[-1][1] == offset:
            found[-1] = (found[-1][0], found[-1][1] + length, kind)
        else:
            found.append((offset, length, kind))
    return found


if __name__ == "__main__":
    main()
