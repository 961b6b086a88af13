"""Another server takes over from one whose exports are those of other NBD servers, and goes on with its connections to them.

nbdkit writes down by which connection each request came; qemu-nbd takes one client, so that a second connection would wait for ever.
"""

from harness import *
from nbdclient import *
from pki import certificates
from remote import Far, forgetful, kit, near, near_two_connections, remote
from upgrade import BLOCK, UPGRADES, goes_on, holds, load, new_side, percentile, shows, turns_down, upgrade

SIZE = 8 * MIB


def listens(t):
    """A unix socket and a port for the next server, which is loaded."""
    return {"listen": [f"unix:{t.path(f's{len(t.servers)}')}", f"tcp:127.0.0.1:{free_port()}"], "args": ["--workers", "2"]}


def logged(t, *words, size=SIZE):
    """nbdkit with a file, its URI and its log."""
    image, log = t.image("kit.img", size), t.path("kit.log")
    uri, process = kit(t, "--filter=log", *words, "file", image, f"logfile={log}")
    return image, uri, log, process


def told(log, word):
    """The connections by which such requests came, in order."""
    return [int(number) for number in re.findall(rf"connection=(\d+) {word} ", Path(log).read_text())]


def sockets(server):
    """How many sockets a server has."""
    links = Path(f"/proc/{server.process.pid}/fd").iterdir()
    count = 0
    for link in links:
        with contextlib.suppress(FileNotFoundError):
            count += os.readlink(link).startswith("socket:")
    return count


@test(seconds=240, fairlift_only=True)
def upgrades_under_load_connect_to_no_remote_server_again(t):
    t.tool("qemu-nbd")
    images = {"kit": None, "one": t.image("one.img", SIZE), "far": t.image("far.img", SIZE)}
    images["kit"], uri, log, _ = logged(t)
    qemu = t.path("qemu")
    t.start("qemu-nbd", "-f", "raw", "-e", "1", "-t", "-k", qemu, images["one"])
    until_listening_once(qemu)
    other = t.server(f"far=file:{images['far']}")
    server = t.server(f"kit={uri}", f"one=nbd+unix:///?socket={qemu}", f"far={other.uri('far')}", **listens(t))
    t.servers.insert(0, t.servers.pop())
    loads = {name: load(server, name, 256) for name in images}
    every = [one for some in loads.values() for one in some]
    goes_on(every, 20)
    connected = told(log, "Connect")
    pauses = []
    for _ in range(UPGRADES):
        [one.longest() for one in every]
        upgrade(server)
        goes_on(every, 20)
        pauses.append(1000 * max(one.longest() for one in every))
    for one in every:
        one.end()
    figure(f"upgrade: {UPGRADES} before other NBD servers, longest pause of a client: median {percentile(pauses, 0.5):.0f} ms, most {max(pauses):.0f} ms")
    equal(told(log, "Connect"), connected, "connections at nbdkit")
    equal(told(log, "Disconnect"), [], "connections that nbdkit has lost")
    equal([server.log().count(word) for word in ("connected again", "degraded")], [0, 0], "reconnects")
    for name, some in loads.items():
        with server.connect(name) as client:
            client.flush()
            shows(client, some)
    server.stop()
    other.stop()
    for name, some in loads.items():
        holds(images[name], some)


def until_listening_once(path):
    """Without a connection, which would be the one that qemu-nbd takes."""
    listening = "00010000"
    is_there = lambda line: line.endswith(f" {path}") and line.split()[3] == listening
    until(lambda: any(map(is_there, Path("/proc/net/unix").read_text().splitlines())), "it listens")


@test(fairlift_only=True)
def a_flush_after_an_upgrade_goes_by_the_connection_of_the_write_before(t):
    _, uri, log, _ = logged(t)
    server = near(t, uri, options=",connections=1")
    with server.connect("near") as client:
        client.write(0, data(BLOCK, 1))
        contains(upgrade(server, "--dry-run"), "1 connection to other servers goes over open")
        upgrade(server)
        client.flush()
        upgrade(server)
        client.write(BLOCK, data(BLOCK, 2))
        upgrade(server)
        client.flush()
        equal(client.read(0, 2 * BLOCK), data(BLOCK, 1) + data(BLOCK, 2))
    equal([told(log, word) for word in ("Connect", "Write", "Flush")], [[1], [1, 1], [1, 1]], "the connections of requests")


@test(fairlift_only=True)
def writes_before_an_upgrade_that_the_remote_server_has_forgotten_after_it_fail_the_flush(t):
    start, uri = forgetful(t)
    disk = start()
    server = near(t, uri)
    with server.connect("near") as client:
        client.write(0, b"a" * 65536)
        upgrade(server)
        disk.terminate()  # the power cut
        disk.wait(60)
        start()
        until(lambda: remote(server)["in_doubt"], "the loss is seen")
        until(lambda: remote(server)["state"] == "connected", "it is found again")
        upgrade(server)
        equal(remote(server)["in_doubt"], True, "whether the third server knows of it")
        with refused(EIO):
            client.flush()
        contains(upgrade(server, code=1), "acknowledge")
        server.control("acknowledge")
        upgrade(server)
        client.write(0, b"b" * 65536)
        client.flush()


@test(fairlift_only=True)
def a_flush_that_timed_out_and_that_the_remote_server_still_has_is_waited_for(t):
    image, sock, hangs = t.image("volatile.img", MIB), t.path("volatile"), Path(t.path("hangs"))
    t.start(sys.executable, ROOT / "tests/e2e/volatile_disk.py", sock, image, 7, env={**os.environ, "HANG_FLUSH": str(hangs)})
    until(lambda: os.path.exists(sock), "the disk listens")
    server = t.server(config=f"""
        [disk.far]
        io_timeout = "1s"
        [export.near]
        backing = "nbd+unix:///?socket={sock}"
        disk = "far"
        """)
    t.servers.reverse()
    with server.connect("near") as client:
        client.write(0, data(BLOCK))
        hangs.touch()
        with refused(EIO):
            client.flush()
        contains(upgrade(server, code=1), "had not ended", "goes on")
        hangs.unlink()

        def takes_over():
            with contextlib.suppress(AssertionError):
                upgrade(server)
                return True

        until(takes_over, "the flush ends, and another server takes over")
        equal(client.read(0, BLOCK), data(BLOCK))
        client.flush()


@test(fairlift_only=True)
def the_new_server_connects_anew_when_a_connection_is_lost_and_keeps_no_socket(t):
    there = Far(t)
    server = near(t, there.uri, options=",reconnect=20s")
    with server.connect("near", timeout=30) as client:
        client.write(0, data(BLOCK, 1), flags=1)
        upgrade(server)
        upgrade(server)
        client.flush()
        until(lambda: remote(server)["connections"] == 4, "all connections are there")
        before = sockets(server)
        for number in range(3):
            there.kill()
            until(lambda: remote(server)["connections"] == 0, "all are lost")
            there.start()
            client.write(BLOCK, data(BLOCK, number), flags=1)
        until(lambda: remote(server)["state"] == "connected", "all connections are there again")
        equal(client.read(0, 2 * BLOCK), data(BLOCK, 1) + data(BLOCK, 2))
        # One of control may have been there before, and of four that were lost none is now.
        until(lambda: sockets(server) <= before, "the sockets of lost connections are closed")


@test(fairlift_only=True)
def a_new_server_that_fails_leaves_the_old_one_its_connections(t):
    kept, uri, log, _ = logged(t)
    image = t.image("image", MIB)
    server = t.server(f"near={uri}", f"beside=file:{image}", **listens(t))
    t.servers.insert(0, t.servers.pop())
    loads = load(server, "near", 256)
    goes_on(loads)
    connected = told(log, "Connect")

    os.rename(image, image + "2")  # after it has its connections, the new server finds that a file is not there
    for _ in range(3):
        contains(upgrade(server, code=1), "image", "goes on")
    os.rename(image + "2", image)
    upgrade(server, "--dry-run")
    goes_on(loads)

    peer = new_side(server)
    agreed = [message for message in peer.offer if message[0]["message"] == "files" and "name" in message[0]]
    equal([(message[0]["name"], len(message[2])) for message in agreed], [(uri, 4)], "the connections of the offer")
    peer.leave()  # it dies with all descriptors
    goes_on(loads)

    for says in {"why": "it is too warm here"}, None:
        turns_down(server, says)
        goes_on(loads)
    upgrade(server)
    goes_on(loads)
    for one in loads:
        one.end()
    equal((told(log, "Connect"), told(log, "Disconnect")), (connected, []), "connections that nbdkit has had, and lost")
    server.stop()
    holds(kept, loads)


@test(fairlift_only=True)
def what_cannot_go_over_is_refused_before(t):
    port = free_port()
    there = t.server("far=mem:1m", listen=[f"tcp:127.0.0.1:{port}"],
                     args=["--tls", "require", "--tls-certificates", certificates(t), "--tls-verify-peer"])
    uri = f"nbds://localhost:{port}/far,tls={certificates(t)}"
    server = near(t, uri)
    contains(upgrade(server, code=1), 'export "near"', "over TLS", "restart the server")
    server.serves("near")
    server.stop()
    there.stop()

    there = Far(t)
    server = near(t, there.uri, "beside=mem:1m")
    upgrade(server, "--dry-run")
    there.kill()
    until(lambda: remote(server)["state"] == "degraded", "the loss is seen")
    contains(upgrade(server, code=1), 'export "near"', "being connected again", "try again")
    server.serves("beside")
    there.start()
    until(lambda: remote(server)["state"] == "connected", "it is found again")
    upgrade(server)
    server.serves("near")


@test(fairlift_only=True)
def connections_that_there_have_long_not_been_refuse_no_upgrade(t):
    liar, server = near_two_connections(t)
    clients = [server.connect("near", timeout=30) for _ in range(4)]
    for _ in range(2):
        for client in clients:
            equal(client.read(4096, 4096), b"z" * 4096)
            client.write(0, b"w" * 4096)
        until(lambda: remote(server)["state"] == "degraded", "the lack is seen")
        time.sleep(1.1)
        upgrade(server)
    for client in clients:
        client.flush()
    equal(liar.connections, 2)


@test(fairlift_only=True)
def an_export_of_a_remote_server_that_is_only_read_goes_over_with_tls_and_without(t):
    port = free_port()
    there = t.server("far=mem:1m", listen=[f"tcp:127.0.0.1:{port}"],
                     args=["--tls", "require", "--tls-certificates", certificates(t), "--tls-verify-peer"])
    _, uri, log, _ = logged(t, "-r")
    server = t.server(f"plain={uri}", f"far=nbds://localhost:{port}/far,tls={certificates(t)}", read_only=["plain", "far"])
    t.servers.insert(0, t.servers.pop())
    with server.connect("plain") as plain, server.connect("far") as far:
        for _ in range(3):
            upgrade(server)
            equal((plain.read(0, BLOCK), far.read(0, BLOCK)), (bytes(BLOCK), bytes(BLOCK)))
    until(lambda: len(set(told(log, "Connect"))) <= 4, "connections at nbdkit")


@test(fairlift_only=True)
def faults_before_a_remote_server_go_over_with_it(t):
    _, uri, log, _ = logged(t)
    rules = Path(t.path("rules.toml"))
    rules.write_text("")
    server = near(t, f"fault:{rules},inner={uri}")
    with server.connect("near") as client:
        client.write(0, data(BLOCK, 1))
        upgrade(server)
        client.flush()
        equal(client.read(0, BLOCK), data(BLOCK, 1))
    equal(set(told(log, "Flush")) <= set(told(log, "Connect")), True)


if __name__ == "__main__":
    main()
