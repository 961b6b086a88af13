"""Two servers cannot write one file."""

import fcntl

from harness import *


@test(fairlift_only=True)
def a_second_server_on_the_same_file_is_refused(t):
    image = t.image("image", MIB)
    server = t.server(f"disk=file:{image}")
    contains(t.serve_fails(f"other=file:{image}", "--listen", f"unix:{t.path('s9')}"), image, "lock")
    server.serves("disk")
    server.stop()
    t.server(f"disk=file:{image}").serves("disk")


@test(fairlift_only=True)
def another_name_of_the_same_file_is_the_same_file(t):
    image = t.image("image", MIB)
    os.link(image, t.path("hard"))
    os.symlink(image, t.path("soft"))
    t.server(f"disk=file:{image}")
    for name in "hard", "soft":
        contains(t.serve_fails(f"other=file:{t.path(name)}", "--listen", f"unix:{t.path('s9')}"), "lock")


@test(fairlift_only=True)
def servers_that_only_read_share_a_file_but_not_with_a_writer(t):
    image = t.image("image", MIB, (0, data(MIB)))
    readers = [t.server(f"disk=file:{image}", read_only=["disk"]) for _ in range(2)]
    for reader in readers:
        with reader.connect("disk") as client:
            equal(client.read(0, 4096), data(MIB)[:4096], "what a reader sees")
    contains(t.serve_fails(f"disk=file:{image}", "--listen", f"unix:{t.path('s9')}"), "lock")
    for reader in readers:
        reader.stop()
    t.server(f"disk=file:{image}")
    Path(t.path("reader.toml")).write_text(f'[export.disk]\nbacking = "file:{image}"\nread_only = true\n')
    contains(t.serve_fails("--config", t.path("reader.toml"), "--listen", f"unix:{t.path('s9')}"), "lock")


@test(fairlift_only=True)
def a_lock_ends_with_a_killed_server(t):
    image = t.image("image", MIB)
    t.server(f"disk=file:{image}").kill()
    t.server(f"disk=file:{image}").serves("disk")


@test(fairlift_only=True)
def a_file_that_another_program_has_locked_is_refused(t):
    image = t.image("image", MIB)
    with open(image, "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        contains(t.serve_fails(f"disk=file:{image}", "--listen", f"unix:{t.path('s9')}"), "lock")


@test(fairlift_only=True)
def two_exports_of_one_server_may_show_the_same_file(t):
    image = t.image("image", MIB)
    server = t.server(config=f'[export.all]\nbacking = "file:{image}"\n'
                             f'[export.look]\nbacking = "file:{image}"\nread_only = true\n')
    piece = data(4096)
    with server.connect("all") as writer, server.connect("look") as reader:
        writer.write(0, piece)
        writer.flush()
        equal(reader.read_only, True, "what the flags of the second say")
        equal(reader.read(0, 4096), piece, "what the second shows of the first's write")


if __name__ == "__main__":
    main()
