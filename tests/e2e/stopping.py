"""How a server ends: in order when asked, at once when asked twice."""

from control import Control
from harness import *
from nbdclient import READ, WRITE, Closed, dial


def hanging(t):
    """What stands still until it is sent SIGCONT, and a server of it: nothing that is asked of its disk ends before."""
    path = t.path("below")
    below = t.start("nbdkit", "-f", "-U", path, "memory", "8M")
    until_listening(path, "nbdkit")
    server = t.server(f"disk=nbd+unix:///?socket={path},connections=1", args=["--workers", "1"])
    stand_still(t, below)
    return below, server


def asked_to_end(server):
    server.process.send_signal(signal.SIGTERM)
    until(lambda: "draining" in server.log(), "it has heard that it is to end")


@test(fairlift_only=True)
def sigterm_and_sigint_end_an_idle_server_with_exit_code_0(t):
    for sign in signal.SIGTERM, signal.SIGINT:
        server = t.server("disk=mem:1M")
        server.serves("disk")
        server.stop(sign)


@test(fairlift_only=True)
def clients_that_are_idle_do_not_hold_up_the_end(t):
    server = t.server("disk=mem:1M")
    clients = [server.connect("disk") for _ in range(20)]
    server.stop(seconds=8)
    for client in clients:
        equal(client.wait_for_close(60), 0, "bytes that come at the end")
        client.close()


@test(fairlift_only=True)
def what_is_in_flight_is_answered_before_the_end(t):
    below, server = hanging(t)
    with server.connect("disk") as client:
        for number in range(8):
            client.submit(READ, number * 65536, 4096)  # none is merged
        client.submit(WRITE, MIB, 4096, bytes(4096))
        until(lambda: in_flight(server) == 9, "all is in flight")
        asked_to_end(server)
        equal(server.process.poll(), None, "the exit code while requests are in flight")
        below.send_signal(signal.SIGCONT)
        for _ in range(9):
            equal(client.reply().error, 0, "the error of what was in flight")
        equal(client.wait_for_close(60), 0, "bytes after the last reply")
    server.ended(0)


@test(fairlift_only=True)
def nobody_is_let_in_while_the_server_ends(t):
    below, server = hanging(t)
    with server.connect("disk") as client:
        client.submit(READ, 0, 4096)
        until(lambda: in_flight(server) == 1, "it is in flight")
        asked_to_end(server)

        def is_deaf():
            try:
                with dial(server.address, 1) as late:
                    return late.recv(18) == b""
            except (ConnectionError, FileNotFoundError, TimeoutError):
                return True

        until(is_deaf, "a latecomer hears nothing")
        equal(server.process.poll(), None, "the exit code while a request is in flight")
        below.send_signal(signal.SIGCONT)
        equal(client.reply().error, 0, "the error of what was in flight")
    server.ended(0)


@test(fairlift_only=True)
def a_second_signal_ends_the_server_at_once(t):
    server = t.server("disk=null:1G,delay=25s")
    with server.connect("disk") as client:
        client.submit(READ, 0, 4096)
        until(lambda: in_flight(server) == 1, "it is in flight")
        asked_to_end(server)
        equal(server.process.poll(), None, "the exit code after the first signal, with a request in flight")

        def insists():
            server.process.send_signal(signal.SIGTERM)  # within a tenth of a second it is the first one yet
            return server.process.poll() is not None

        until(insists, "it ends", seconds=10)
        equal(server.ended(), 128 + signal.SIGTERM, "the exit code of an end that lost a request")


@test(fairlift_only=True)
def two_signals_at_once_are_one_and_nothing_in_flight_is_lost(t):
    """`timeout` sends its signal to a process and then to its group."""
    below, server = hanging(t)
    with server.connect("disk") as client:
        client.submit(WRITE, 0, 4096, bytes(4096))
        until(lambda: in_flight(server) == 1, "it is in flight")
        stand_still(t, server.process)  # so that it hears of both at once
        server.process.send_signal(signal.SIGINT)
        server.process.send_signal(signal.SIGTERM)
        server.process.send_signal(signal.SIGCONT)
        until(lambda: "draining" in server.log(), "it has heard that it is to end")
        equal(server.process.poll(), None, "the exit code while a request is in flight")
        below.send_signal(signal.SIGCONT)
        equal(client.reply().error, 0, "the error of what was in flight")
        equal(client.wait_for_close(60), 0, "bytes after the last reply")
    server.ended(0)
    assert "stopped at once" not in server.log(), "both signals counted"


@test(fairlift_only=True)
def a_client_that_takes_no_replies_holds_up_the_end_for_a_bounded_time(t):
    server = t.server("disk=mem:64M")
    with server.connect("disk") as client:
        client.write(0, data(8 * MIB))
        client.send(b"".join(client.request(READ, 0, 8 * MIB) for _ in range(6)))
        time.sleep(0.5)
        server.process.send_signal(signal.SIGTERM)
        code = server.ended(seconds=25)
        assert code >= 0 and code != 101, f"the exit code is {code}"


@test(fairlift_only=True)
def the_end_under_load_loses_nothing_that_was_answered(t):
    image = t.image("image", 8 * MIB)
    for cycle in range(5):
        server = t.server(f"disk=file:{image}")
        answered, asked = {}, {}

        def load(number, server=server):
            with contextlib.suppress(Closed, ConnectionError), server.connect("disk") as client:
                pending, turn = {}, 0
                while True:
                    while len(pending) < 8:
                        block = number * 512 + turn % 512
                        payload = data(4096, cycle, number, turn)
                        asked[block] = payload
                        pending[client.submit(WRITE, block * 4096, 4096, payload)] = (block, payload)
                        turn += 1
                    reply = client.reply()
                    block, payload = pending.pop(reply.cookie)
                    equal(reply.error, 0, "a reply's error")
                    answered[block] = payload

        def stop(server=server):
            until(lambda: {block // 512 for block in list(answered)} == {0, 1, 2, 3}, "each client has been answered")
            server.process.send_signal(signal.SIGTERM)

        at_once(stop, *(lambda n=n: load(n) for n in range(4)))
        server.ended(0)
        assert answered, "nothing was written"
        found = Path(image).read_bytes()
        for block, payload in answered.items():
            piece = found[block * 4096:][:4096]
            assert piece in (payload, asked[block]), f"block {block} is not what was answered"


@test(fairlift_only=True)
def at_the_end_the_server_says_what_each_export_did(t):
    image = t.image("image", MIB)
    server = t.server(f"disk=file:{image}", 'a "quoted" name=mem:1M')
    for turn in range(2):
        with server.connect("disk") as client:
            client.write(0, bytes(8192))
            client.write(65536, bytes(4096))
            client.read(0, 512)
            client.flush()
            client.trim(0, 4096)
            client.zero(8192, 16384)
            client.disconnect()
    server.stop()
    equal(server.stats()["disk"], {"read": (2, 1024), "write": (4, 24576), "flush": (2, None), "discard": (2, 8192),
                                   "write-zeroes": (2, 32768)}, "the counters")
    assert server.log().count("stats export=") == 2, "a line for each export"


@test(fairlift_only=True)
def the_socket_file_is_gone_at_the_end(t):
    server = t.server("disk=mem:1M")
    equal(os.path.exists(server.socket), True, "the socket file while it runs")
    server.stop()
    equal(os.path.exists(server.socket), False, "the socket file at the end")


@test(fairlift_only=True)
def a_server_ends_though_a_change_never_does(t):
    """The rules of faults are a pipe that nobody writes: what reads them waits for ever, as for a file of a server that is gone."""
    rules = t.path("rules.toml")
    Path(rules).write_text("")
    server = t.server(f"a=fault:{rules},inner=mem:4m")
    pipe = t.path("pipe")
    os.mkfifo(pipe)
    t.start(BINARY, "set", "export", "a", f"faults={pipe}", "--control", f"unix:{server.socket}.control.sock", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(1)
    # The control server goes on, as far as nothing is asked that waits for the change.
    t.start(BINARY, "trace", "-o", t.path("traced"), "--control", f"unix:{server.socket}.control.sock", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(1)
    Control(t, server).ask("GET", "/v1/openapi.json")
    server.stop(seconds=20)


@test(fairlift_only=True)
def a_server_ends_though_its_config_file_cannot_be_read_to_its_end(t):
    server = t.server(config='[export.a]\nbacking = "mem:1m"\n')
    file = t.path("server0.toml")
    os.remove(file)
    os.mkfifo(file)
    server.process.send_signal(signal.SIGHUP)
    time.sleep(1)
    control = Control(t, server)
    control.ask("GET", "/v1/status?seconds=0.1")
    control.ask("PATCH", "/v1/groups/a", {"weight": 7})
    server.stop(seconds=20)


if __name__ == "__main__":
    main()
