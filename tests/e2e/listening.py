"""Where the server listens, and where it will not."""

import stat

from harness import *


@test(fairlift_only=True)
def a_unix_socket_is_for_its_owner_only(t):
    server = t.server("disk=mem:1M")
    equal(oct(stat.S_IMODE(os.stat(server.socket).st_mode)), oct(0o600), "the mode of the socket")


@test(fairlift_only=True)
def a_unix_socket_has_the_mode_that_was_said_until_it_is_taken_away(t):
    path = t.path("d.sock")
    group = os.getgroups()[-1] if os.geteuid() else 12345
    text = f'[server]\nlisten = "unix:{path},mode=0660,group={group}"\n[export.disk]\nbacking = "mem:1m"\n'

    def serve(text):
        server = t.server(config=text, listen=[], wait=False)
        server.socket, server.listen = t.path("d"), [f"unix:{path}"]  # its control is at d.control.sock
        server.wait_until_ready()
        return server

    def stands(mode):
        found = os.stat(path)
        equal((oct(stat.S_IMODE(found.st_mode)), found.st_gid), (oct(mode), group), "the socket's mode and group")

    first = serve(text)
    stands(0o660)
    Path(t.path("server0.toml")).write_text(text.replace("0660", "0666"))
    contains(first.control("reload", code=1), "cannot change its mode, owner or group while the server listens there")
    stands(0o660)
    Path(t.path("server0.toml")).write_text(text.replace("1m", "2m\"\ndescription = \"another").replace("disk]", "more]"))
    contains(first.control("reload"), 'export "more": added')
    stands(0o660)
    first.kill()
    serve(text.replace("0660", "0666"))
    stands(0o666)
    contains(t.serve_fails("d=mem:1m", "--listen", f"unix:{path},tsl=require"), 'unknown option "tsl=require"; did you mean "tls"?')


@test(fairlift_only=True)
def a_socket_that_a_running_server_cannot_give_away_is_refused_by_the_dry_run_too(t):
    place = lambda name: f"unix:{t.path(name)}"
    text = f'[server]\nlisten = [\n"{place("a.sock")}",\n"{place("b.sock")}"]\n[export.disk]\nbacking = "mem:1m"\n'
    server = t.server(config=text.replace(f',\n"{place("b.sock")}"', ""), listen=[], wait=False)
    server.socket, server.listen = t.path("a"), [place("a.sock")]
    server.wait_until_ready()
    path = t.path("server0.toml")
    Path(path).write_text(text.replace("b.sock", "b.sock,mode=0660,group=12345"))
    cure = ["keep_capabilities", "mode=0666"] if os.geteuid() == 0 else ["a group that it is in"]
    for flag in ["--dry-run"], []:
        contains(server.control("reload", *flag, code=1), f"{path}:4:1: server.listen", "its owner cannot be changed", *cure)
    Path(path).write_text(text.replace("b.sock", "b.sock,mode=0666"))
    contains(server.control("reload", "--dry-run"), f"{place('b.sock')}")
    contains(server.control("reload"), f"{place('b.sock')}")
    equal(oct(stat.S_IMODE(os.stat(t.path("b.sock")).st_mode)), oct(0o666), "the mode")


@test(fairlift_only=True)
def a_live_socket_is_not_stolen(t):
    server = t.server("disk=mem:1M")
    message = t.serve_fails("disk=mem:2M", "--listen", f"unix:{server.socket}")
    contains(message, server.socket, "another server")
    with server.connect("disk") as client:
        equal(client.size, MIB, "the size: the first server still has the socket")
    server.stop()
    equal(os.path.exists(server.socket), False, "the socket file at the end")


@test(fairlift_only=True)
def a_stale_socket_is_replaced(t):
    first = t.server("disk=mem:1M")
    first.kill()
    equal(os.path.exists(first.socket), True, "the socket file that a killed server leaves")
    server = t.server("disk=mem:2M", listen=[f"unix:{first.socket}"])
    with server.connect("disk") as client:
        equal(client.size, 2 * MIB, "the size")


@test(fairlift_only=True)
def a_server_that_ended_gives_its_port_and_file_to_the_next_at_once(t):
    """What a service manager does: it starts the next when the last has ended, and does not wait."""
    port, image = free_port(), t.image("image", MIB)
    for how in "stop", "kill", "stop", "kill", "kill":
        server = t.server(f"disk=file:{image}", listen=[f"tcp:127.0.0.1:{port}"])
        client = server.connect("disk")
        client.read(0, 512)
        getattr(server, how)()
        client.close()


@test(fairlift_only=True)
def a_file_that_is_no_socket_is_not_touched(t):
    path = t.image("precious", 512, (0, b"precious"))
    contains(t.serve_fails("disk=mem:1M", "--listen", f"unix:{path}"), path, "not a socket")
    equal(Path(path).read_bytes()[:8], b"precious", "the file")


@test(fairlift_only=True)
def a_socket_in_a_directory_that_does_not_exist_is_refused(t):
    contains(t.serve_fails("disk=mem:1M", "--listen", f"unix:{t.path('no/such')}"), t.path("no/such"))


@test(fairlift_only=True)
def a_port_in_use_is_refused(t):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        contains(t.serve_fails("disk=mem:1M", "--listen", f"tcp:127.0.0.1:{port}"), str(port), "in use")


@test(fairlift_only=True)
def other_machines_are_not_let_in_without_tls(t):
    for place in "0.0.0.0", "192.0.2.1", "[::]", "[2001:db8::1]":
        message = t.serve_fails("disk=mem:1M", "--listen", f"tcp:{place}:{free_port()}")
        contains(message, "TLS", "--insecure")


@test(fairlift_only=True)
def one_listener_that_is_refused_stops_the_whole_server(t):
    path = t.path("s")
    t.serve_fails("disk=mem:1M", "--listen", f"unix:{path}", "--listen", f"tcp:0.0.0.0:{free_port()}")
    equal(os.path.exists(path), False, "the socket of the listener that was right")


@test(fairlift_only=True)
def unix_and_tcp_listeners_serve_the_same_exports(t):
    port = free_port()
    server = t.server("disk=mem:1M", listen=[f"unix:{t.path('s')}", f"tcp:127.0.0.1:{port}"])
    piece = data(4096)
    with server.connect("disk") as client:
        client.write(0, piece)
        client.flush()
    equal(t.run("nbdinfo", "--size", server.uri("disk", listener=1)).strip(), str(MIB))
    with nbdclient.Client(("127.0.0.1", port), "disk") as client:
        equal(client.read(0, 4096), piece, "what was written by the other way in")


@test(fairlift_only=True)
def a_server_started_with_nothing_serves_a_gibibyte_of_ram_and_says_where(t):
    run = t.path("run")
    os.mkdir(run, 0o700)
    server = t.server(listen=[], wait=False, env={"XDG_RUNTIME_DIR": run, "RUNTIME_DIRECTORY": run})
    uri = until(lambda: re.search(r"nbd\+unix://\S*", server.log()), "it prints a URI").group().strip("'\"`,.")
    equal(t.run("nbdinfo", "--size", uri).strip(), str(GIB))
    server.says("nbdinfo")
    server.stop()


@test(fairlift_only=True)
def a_tcp_port_may_be_left_to_the_kernel(t):
    server = t.server("disk=mem:1M", listen=["tcp:127.0.0.1:0"], wait=False)
    uri = until(lambda: re.search(r"nbd://127\.0\.0\.1:[1-9]\d*|tcp:127\.0\.0\.1:[1-9]\d*", server.log()),
                "it says which port it got").group().replace("tcp:", "nbd://")
    equal(t.run("nbdinfo", "--size", uri + "/disk").strip(), str(MIB))
    server.stop()


if __name__ == "__main__":
    main()
