"""What a service manager expects: sockets handed over, and word when the server is ready."""

from harness import *
from successor import upgrade

HAND_OVER = """
import os, socket, sys
count = int(sys.argv[1]); paths = sys.argv[2:2 + count]; command = sys.argv[2 + count:]
listeners = []
for number, path in enumerate(paths):
    family = socket.AF_INET if path.isdigit() else socket.AF_UNIX
    listener = socket.socket(family)
    listener.bind(("127.0.0.1", int(path)) if path.isdigit() else path)
    listener.listen(64)
    listeners.append(listener)
high = [os.dup2(l.fileno(), 100 + n) for n, l in enumerate(listeners)]
for number, fd in enumerate(high):
    os.dup2(fd, 3 + number, inheritable=True)
os.closerange(3 + count, 200)
os.environ.update(LISTEN_FDS=str(count), LISTEN_PID=os.environ.pop("TEST_PID", "") or str(os.getpid()))
os.execv(command[0], command)
"""


def handed_over(t, *places, env=None, arguments=("disk=mem:3M",)):
    """A server that inherits these listening sockets, as from systemd."""
    wrap = [sys.executable, "-c", HAND_OVER, len(places), *places]
    listen = [f"tcp:127.0.0.1:{p}" if str(p).isdigit() else f"unix:{p}" for p in places]
    server = Server.__new__(Server)
    server.t, server.listen = t, listen
    server.log_path = t.path(f"server{len(t.servers)}.log")
    command = [*map(str, wrap), BINARY, "serve", *arguments]
    print("$", *command[3:], flush=True)
    with open(server.log_path, "ab") as log:
        server.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                          env={**os.environ, "RUST_LOG": "info", **(env or {})}, start_new_session=True)
    t.defer(end, server.process)
    t.servers.append(server)
    return server


@test(fairlift_only=True)
def a_socket_from_the_service_manager_is_served(t):
    path = t.path("activated")
    server = handed_over(t, path)
    server.wait_until_ready()
    with server.connect("disk") as client:
        equal(client.size, 3 * MIB, "the size")
    server.stop()
    equal(os.path.exists(path), True, "the socket file, which is the service manager's")


@test(fairlift_only=True)
def several_sockets_from_the_service_manager_are_all_served(t):
    path, port = t.path("activated"), free_port()
    server = handed_over(t, path, str(port))
    server.wait_until_ready()
    for address in path, ("127.0.0.1", port):
        with nbdclient.Client(address, "disk") as client:
            equal(client.size, 3 * MIB, f"the size at {address}")


@test(fairlift_only=True)
def rules_name_a_socket_of_the_service_manager_by_its_address(t):
    one, other, port = t.path("one"), t.path("other"), free_port()
    Path(t.path("rules.toml")).write_text(f"""
        [export.a]
        backing = "mem:1m"
        [export.b]
        backing = "mem:1m"
        [export.c]
        backing = "mem:1m"
        [client.a]
        listener = "unix:{one}"
        exports = "a"
        [client.b]
        listener = "unix:{other}"
        exports = "b"
        [client.c]
        listener = "tcp:127.0.0.1:{port}"
        exports = "c"
        [client.nobody]
        listener = "unix:elsewhere"
        exports = "c"
        """)
    server = handed_over(t, one, other, str(port), arguments=("--config", t.path("rules.toml")))
    server.wait_until_ready()
    for address, name in (one, "a"), (other, "b"), (("127.0.0.1", port), "c"):
        with nbdclient.Session(address).greet() as session:
            equal([found for found, _ in session.list()], [name], f"what is listed at {address}")
    vain = [line for line in server.log().splitlines() if "it does not listen at" in line]
    equal(len(vain), 1, "rules that cannot act")
    contains(vain[0], f"unix:{one}", f"unix:{other}", f"tcp:127.0.0.1:{port}")


@test(fairlift_only=True)
def a_socket_from_the_service_manager_goes_over_and_stays_as_it_is(t):
    path, own = t.path("activated"), t.path("s0")
    for engine in "poll", "auto":
        server = handed_over(t, path, env={"FAIRLIFT_ENGINE": engine}, arguments=("disk=mem:3M", "--control", f"unix:{own}.control.sock"))
        server.socket = own
        server.wait_until_ready()
        # Both have the same socket: the running server goes on to accept as it does.
        for _ in range(2):
            upgrade(server, "--dry-run")
            with server.connect("disk", timeout=20) as one, server.connect("disk", timeout=20) as two:
                equal(one.read(0, 512) + two.read(0, 512), bytes(1024), "what clients read that came after a look")
        with server.connect("disk", timeout=20) as client:
            upgrade(server)
            equal(client.read(0, 512), bytes(512), "what a client reads that has gone over")
        server.serves("disk")
        server.stop()
        equal(os.path.exists(path), True, "the socket file, which is the service manager's")
        os.unlink(path)


@test(fairlift_only=True)
def a_client_that_came_before_the_server_is_served(t):
    """The socket exists before the server does; who connects meanwhile waits, and is served."""
    path = t.path("early")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(8)
    early = nbdclient.Session(path)
    os.set_inheritable(listener.fileno(), True)
    wrap = ["import os,sys; os.dup2(int(sys.argv[1]), 3, inheritable=True); "
            "os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid())); os.execv(sys.argv[2], sys.argv[2:])"]
    with open(t.path("server0.log"), "ab") as log:
        process = subprocess.Popen([sys.executable, "-c", *wrap, str(listener.fileno()), BINARY, "serve", "disk=mem:3M"],
                                   stdin=subprocess.DEVNULL, stdout=log, stderr=log, close_fds=False, start_new_session=True)
    t.defer(end, process)
    early.greet().go("disk")
    equal(early.size, 3 * MIB, "the size")
    early.close()


@test(fairlift_only=True)
def sockets_meant_for_another_process_are_left_alone(t):
    path, own = t.path("activated"), t.path("own")
    server = handed_over(t, path, env={"TEST_PID": "1"}, arguments=("disk=mem:3M", "--listen", f"unix:{own}"))
    server.listen = [f"unix:{own}"]
    server.wait_until_ready()
    with server.connect("disk") as client:
        equal(client.size, 3 * MIB, "the size")


@test(fairlift_only=True)
def a_socket_that_does_not_listen_is_refused(t):
    """As with Accept=yes, where systemd passes the connection of one client."""
    ours, its = socket.socketpair()
    wrap = "import os, sys; os.dup2(int(sys.argv[1]), 3, inheritable=True); os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid())); os.execv(sys.argv[2], sys.argv[2:])"
    with ours, its:
        said = t.run(sys.executable, "-c", wrap, its.fileno(), BINARY, "serve", "--check", "disk=mem:3M", code=2, pass_fds=[its.fileno()])
    contains(said, "inherited file descriptor 3: not a listening stream socket: it is a connection", "Accept=no")


@test(fairlift_only=True)
def the_service_manager_is_told_when_the_server_is_ready_and_when_it_stops(t):
    path = t.path("notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(path)
        notify.settimeout(60)
        server = t.server("disk=mem:1M", wait=False, env={"NOTIFY_SOCKET": path})
        contains(notify.recv(4096).decode(), "FDSTORE=1")
        contains(notify.recv(4096).decode(), "READY=1")
        server.serves("disk")  # at once: ready means ready
        server.process.send_signal(signal.SIGTERM)
        contains(notify.recv(4096).decode(), "STOPPING=1")
        server.ended(0)


@test(fairlift_only=True)
def an_abstract_notify_socket_works_too(t):
    name = f"fairlift-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind("\0" + name)
        notify.settimeout(60)
        t.server("disk=mem:1M", wait=False, env={"NOTIFY_SOCKET": "@" + name})
        contains(notify.recv(4096).decode(), "FDSTORE=1")
        contains(notify.recv(4096).decode(), "READY=1")


@test(fairlift_only=True)
def a_server_that_cannot_start_is_never_ready(t):
    path = t.path("notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(path)
        notify.settimeout(0.5)
        t.serve_fails(f"disk=file:{t.path('missing')}", "--listen", f"unix:{t.path('s')}", env={**os.environ, "NOTIFY_SOCKET": path})
        try:
            said = notify.recv(4096).decode()
        except TimeoutError:
            said = ""
        assert "READY=1" not in said, said


if __name__ == "__main__":
    main()
