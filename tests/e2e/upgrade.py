"""Another server takes over, and no client notices.

Load runs on four connections while servers take over from each other, and every byte is held against what was written. What fails is tried with a new
server, or an old one, that is played by the test: it stops at any message of the protocol that a real one would go on from.
"""

import fcntl
import http.client
import statistics
import struct

from control import Control
from harness import *
from learned import is_held
from load import BLOCK, Load, goes_on
from nbdclient import (FIXED_NEWSTYLE, FLUSH, FUA, GO, NO_ZEROES, OPTION_MAGIC, READ, STRUCTURED_REPLY, WRITE, Client,
                       Session)
from pki import certificates, client_context
from successor import Adopted, finish, upgrade
from top import Terminal

UPGRADES = 100 if FULL else 10


def load(server, export="a", blocks=512, begins=None):
    """Four connections, two over each socket, each in another dialect."""
    kind, place = server.listen[1].split(":", 1)
    host, port = place.rsplit(":", 1)
    dialects = [{"structured": False}, {"extended": True}, {"structured": True}, {"structured": False}]
    return [Load(server.address if number % 2 else (host, int(port)), export, number * blocks, blocks, begins, **dialect)
            for number, dialect in enumerate(dialects)]


def served(t, name="image", size=64 * MIB, **options):
    image = t.image(name, size)
    listen = [f"unix:{t.path('s0')}", f"tcp:127.0.0.1:{free_port()}"]
    return image, t.server(f"a=file:{image}", listen=listen, args=["--workers", "2"], **options)


def percentile(values, part):
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


def holds(image, loads):
    """The file has what each client knows to be there."""
    with open(image, "rb") as file:
        for one in loads:
            for block, wanted in one.known.items():
                file.seek(block * BLOCK)
                if file.read(BLOCK) != wanted:
                    raise AssertionError(f"block {block} of the file is not as it was written")


def ended(server, image, loads):
    """The load ends, and what it knows to be there is."""
    for one in loads:
        one.end()
    server.stop()
    holds(image, loads)


@test(seconds=240, fairlift_only=True)
def upgrades_under_load_lose_and_double_nothing(t):
    image, server = served(t)
    loads, pauses = load(server), []
    goes_on(loads)
    for _ in range(UPGRADES):
        [one.longest() for one in loads]
        upgrade(server)
        goes_on(loads)
        pauses.append(max(one.longest() for one in loads))
    ended(server, image, loads)
    equal(server.log().count("connected"), 0, "reconnects")
    milliseconds = [1000 * pause for pause in pauses]
    figure(f"upgrade: {UPGRADES} under load, longest pause of a client: median {statistics.median(milliseconds):.0f} ms, "
           f"99th percentile {percentile(milliseconds, 0.99):.0f} ms, most {max(milliseconds):.0f} ms")


def shows(client, loads):
    """A disk has what each client of it knows to be there."""
    for one in loads:
        piece = client.read(one.first * BLOCK, one.blocks * BLOCK)
        for block, wanted in one.known.items():
            at = (block - one.first) * BLOCK
            if piece[at:at + BLOCK] != wanted:
                raise AssertionError(f"block {block} is not as it was written")


SIZE = 8 * MIB  # of the disks below


@test(seconds=240, fairlift_only=True)
def disks_whose_state_is_in_memory_go_over_under_load(t):
    whole = data(SIZE)
    base = t.image("base.img", SIZE, (0, whole))
    over = f"overlay:base={base}"
    backings = {"top": f"{over},top={t.path('a.top')}", "gone": f"{over},ephemeral={t.path('')}", "gone2": f"{over},ephemeral={t.path('')}",
                "ram": f"mem:{SIZE}", "ram2": f"mem:{SIZE}", "model": f"sim:nvme-plp,size={SIZE}"}
    listen = [f"unix:{t.path('s0')}", f"tcp:127.0.0.1:{free_port()}"]
    server = t.server(*(f"{name}={backing}" for name, backing in backings.items()), listen=listen, args=["--workers", "2"])
    loads = {name: load(server, name, 256, whole if "overlay" in backing else None) for name, backing in backings.items()}
    every = [one for some in loads.values() for one in some]
    for _ in range(UPGRADES):
        goes_on(every, 20)
        upgrade(server)
    goes_on(every)
    for one in every:
        one.end()
    equal(server.log().count("connected"), 0, "reconnects")
    for name, some in loads.items():
        with server.connect(name) as client:
            shows(client, some)
    equal(os.listdir(t.dir).count("a.top"), 1, "the top that has a name")
    equal(any(name.startswith(".fairlift") for name in os.listdir(t.dir)), False, "whether one without has got one")
    server.stop()
    server = t.server(f"top=overlay:top={t.path('a.top')}")
    with server.connect("top") as client:
        shows(client, loads["top"])
    equal(Path(base).read_bytes() == whole, True, "whether the base is as it was")


@test(fairlift_only=True)
def writes_before_an_upgrade_are_durable_by_a_flush_after_it(t):
    base = t.image("base.img", SIZE, (0, data(SIZE)))
    server = t.server(f"a=overlay:base={base},top={t.path('a.top')}")
    with server.connect("a") as client:
        client.write(MIB, data(BLOCK, 1))
        client.flush()
        client.write(2 * MIB, data(BLOCK, 2))
        client.trim(3 * MIB, MIB)
        upgrade(server)
        client.flush()  # with no write before it: the new server has to know of those of the old one
        server.kill()
    server = t.server(f"a=overlay:top={t.path('a.top')}")
    with server.connect("a") as client:
        for at, number in (MIB, 1), (2 * MIB, 2):
            equal(client.read(at, BLOCK), data(BLOCK, number), f"what was written at {at}")
        equal(client.read(3 * MIB, MIB), bytes(MIB), "what was discarded")
    server.stop()
    contains(t.run(BINARY, "overlay", "check", t.path("a.top")), "a.top")


@test(fairlift_only=True)
def a_chain_of_tops_goes_over_and_its_flattening_goes_on(t):
    # Slow, so that it is not flattened before the upgrade.
    base = t.image("base.img", SIZE, (0, data(SIZE)))
    server = t.server(config=f"""
        [export.a]
        backing = "overlay:base={base},top={t.path('a.top')}"
        group = "/a"
        [group."/a"]
        max = {{ wbps = 4194304 }}
        """)
    wanted = bytearray(data(SIZE))
    with server.connect("a") as client:
        for n in range(7):
            client.write(n * MIB, data(900 * KIB, n))
            wanted[n * MIB:n * MIB + 900 * KIB] = data(900 * KIB, n)
            server.control("fork", "a", f"b{n}", *["--ephemeral"] * (n % 2))
        layers = lambda: t.run(BINARY, "overlay", "info", t.path("a.top")).count(".top.")
        server.says("they are flattened")
        equal(layers() > 0, True, "whether it is not yet flattened")
        upgrade(server)
        equal(client.read(0, SIZE), bytes(wanted), "the disk of eight tops at the new server")
        with server.connect("b6") as fork, server.connect("b5") as other:
            equal(fork.read(0, SIZE), bytes(wanted), "a fork that was added by hand")
            other.write(0, data(BLOCK, 8))
            upgrade(server)
            equal(other.read(0, BLOCK), data(BLOCK, 8), "one without a file of its own, at the third server")
        until(lambda: layers() == 0, "the new server flattens it", 60)
        client.write(512, data(BLOCK, 9))
        wanted[512:512 + BLOCK] = data(BLOCK, 9)
        upgrade(server)
        equal(client.read(0, SIZE), bytes(wanted), "the disk, flattened")
        client.disconnect()
    server.stop()


@test(fairlift_only=True)
def bases_of_all_kinds_go_over(t):
    t.tool("qemu-img")
    whole = data(SIZE)
    t.image("raw.img", SIZE, (0, whole))
    t.run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", t.path("raw.img"), t.path("image.qcow2"))
    other = t.server(f"gold=file:{t.path('raw.img')}", read_only=["gold"])
    tops = {"q": f"qcow2:{t.path('image.qcow2')}", "n": f"nbd+unix:///gold?socket={other.socket}", "e": "export:gold", "p": t.path("raw.img")}
    server = t.server(f"gold=file:{t.path('raw.img')}", *(f"{name}=overlay:base={base},top={t.path(name)}.top" for name, base in tops.items()),
                      read_only=["gold"])
    clients = {name: server.connect(name) for name in tops}
    for number, client in enumerate(clients.values()):
        client.write(number * MIB + 512, data(BLOCK, number))
    upgrade(server)
    for number, (name, client) in enumerate(clients.items()):
        wanted = bytearray(whole)
        wanted[number * MIB + 512:number * MIB + 512 + BLOCK] = data(BLOCK, number)
        equal(client.read(0, SIZE), bytes(wanted), f"the disk over {tops[name]}")
        client.disconnect()
    contains(t.serve_fails(f"b=file:{t.path('raw.img')}", "--listen", f"unix:{t.path('s9')}"), "in use by another server")
    server.stop()
    other.stop()


@test(fairlift_only=True)
def a_group_owes_the_new_server_what_it_owed_the_old_one(t):
    image = t.image("image", 64 * MIB)
    server = t.server(config=f"""
        [export.disk]
        backing = "file:{image}"
        group = "/a"
        [group."/a"]
        max = {{ rbps = 1048576 }}
        """)
    with server.connect("disk") as client:
        client.read(0, 30 * MIB)
    upgrade(server)
    equal(is_held(server), True, "whether a read waits")
    server.kill()


@test(fairlift_only=True)
def the_engine_without_io_uring_hands_over_as_well(t):
    image, server = served(t, env={"FAIRLIFT_ENGINE": "poll"})
    loads = load(server)
    for _ in range(3):
        goes_on(loads)
        upgrade(server)
    goes_on(loads)
    ended(server, image, loads)


@test(fairlift_only=True)
def a_request_of_which_a_part_has_come_is_done_when_the_rest_comes(t):
    image, server = served(t)
    host = server.listen[1].split(":", 1)[1].rsplit(":", 1)
    size, large, cases = 3 * BLOCK, 512 * KIB, []
    for place, address in enumerate([server.address, (host[0], int(host[1]))]):
        for dialect in {"structured": False}, {"extended": True}:
            head = 32 if dialect.get("extended") else 28
            for sent in 1, 4, head - 1, head, head + 1, head + size - 1, ("large", 1), ("large", 200 * KIB + 3), ("refused", 5):
                kind, sent = sent if isinstance(sent, tuple) else ("small", sent)
                client = Client(address, "a", timeout=30, **dialect)
                at, length = len(cases) * large, large if kind == "large" else size
                payload = data(length, len(cases))
                if kind == "refused":
                    at = 64 * MIB  # beyond the end: its payload is passed over
                # One before it, so that its reply is not the first.
                client.submit(READ, 0, BLOCK)
                client.reply()
                request = client.request(WRITE, at, length, payload)
                cut = sent if kind == "small" else head + sent
                client.send(request[:cut])
                cases.append((client, kind, at, payload, request[cut:]))
    time.sleep(0.2)  # most is received by then; what is not is as good
    for _ in range(2):
        upgrade(server)
    for client, kind, at, payload, rest in cases:
        client.send(rest)
        reply = client.reply()
        equal(reply.error, ENOSPC if kind == "refused" else 0, f"the answer to a write at {at}")
        if kind != "refused":
            equal(client.read(at, len(payload)), payload, "what was written")
        client.disconnect()
    server.stop()


@test(fairlift_only=True)
def a_client_that_sends_a_byte_at_a_time_is_served_across_upgrades(t):
    image, server = served(t)
    client = server.connect("a", timeout=30)
    request, stop = b"".join(client.request(WRITE, n * 512, 512, data(512, n)) for n in range(4)), []

    def drip():
        for byte in request:
            client.send(bytes([byte]))
            time.sleep(0.0005)
        stop.append(True)

    def exchange():
        while not stop:
            upgrade(server)

    at_once(drip, exchange)
    for _ in range(4):
        equal(client.reply().error, 0, "the answer")
    equal(client.read(0, 2048), b"".join(data(512, n) for n in range(4)), "what was written")
    client.disconnect()
    server.stop()


@test(fairlift_only=True)
def a_client_that_does_not_take_its_replies_gets_each_once(t):
    pieces = [data(MIB, n) for n in range(24)]
    image = t.image("image", 24 * MIB, *((n * MIB, piece) for n, piece in enumerate(pieces)))
    listen = [f"unix:{t.path('s0')}", f"tcp:127.0.0.1:{free_port()}"]
    server = t.server(f"a=file:{image}", listen=listen)
    host, port = listen[1].split(":", 1)[1].rsplit(":", 1)
    clients = [Client(address, "a", timeout=30, **dialect) for address in (server.address, (host, int(port)))
               for dialect in ({"structured": False}, {"extended": True})]
    for client in clients:
        client.send(*(client.request(READ, n * MIB, MIB) for n in range(24)))
    for _ in range(3):
        time.sleep(0.1)
        upgrade(server)
    for client in clients:
        asked = dict(client.pending)
        for _ in range(24):
            reply = client.reply()
            _, offset, length = asked.pop(reply.cookie)
            equal(reply.data(offset, length) == pieces[offset // MIB], True, f"the bytes at {offset}")
        client.write(0, pieces[0][:512])
        client.disconnect()
    server.stop()


@test(fairlift_only=True)
def a_client_that_negotiates_goes_on_with_it(t):
    image, server = served(t)
    option = lambda number, payload=b"": struct.pack(">QII", OPTION_MAGIC, number, len(payload)) + payload
    go = option(GO, struct.pack(">I", 1) + b"a" + struct.pack(">H", 0))
    sessions = []
    for cut in 0, 2, 4, 4 + 7, 4 + 16 + len(go) // 2:
        session = Session(server.address, 20)
        whole = struct.pack(">I", FIXED_NEWSTYLE | NO_ZEROES) + option(STRUCTURED_REPLY) + go
        session.send(whole[:cut])
        sessions.append((session, whole[cut:]))
    time.sleep(0.1)
    upgrade(server)
    for session, rest in sessions:
        session.send(rest)
        session.receive(18)
        equal(session.option_reply(STRUCTURED_REPLY)[0], 1, "the answer to STRUCTURED_REPLY")
        while session.option_reply(GO)[0] != 1:
            pass
        session.structured = True
        equal(session.read(0, 512), bytes(512), "a read")
        session.disconnect()
    server.stop()


@test(fairlift_only=True)
def the_lock_of_a_file_is_never_free(t):
    image, server = served(t)
    stop, free = [], []

    def try_lock():
        with open(image, "rb") as file:
            while not stop:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    free.append(time.monotonic())
                    fcntl.flock(file, fcntl.LOCK_UN)

    def exchange():
        try:
            for _ in range(5):
                upgrade(server)
            contains(t.serve_fails(f"b=file:{image}", "--listen", f"unix:{t.path('s9')}"), image, "lock")
        finally:
            stop.append(True)

    at_once(try_lock, exchange)
    equal(len(free), 0, "times that the lock was free")
    server.stop()
    t.server(f"a=file:{image}").serves("a")


@test(fairlift_only=True)
def counters_never_fall(t):
    image, server = served(t)

    def counters():
        """`None`: there was no answer."""
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        try:
            connection.sock.connect(f"{server.socket}.control.sock")
            connection.request("GET", "/metrics")
            lines = connection.getresponse().read().decode().splitlines()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()
        samples = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        # Those of the process and its threads are of another one by then.
        return {name: float(value) for name, value in samples
                if re.match(r"\w+_(total|count|sum)\b", name) and not re.match("process_|fairlift_worker_", name)}

    looks, ends = [counters()], []

    def look():
        while not ends:
            looks.extend(filter(None, [counters()]))

    loads = load(server)
    goes_on(loads, 500)
    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    for _ in range(3):
        upgrade(server)
        seen = len(looks)
        until(lambda: len(looks) > seen + 2, "the new server tells its counters")
        goes_on(loads)
    ends.append(True)
    looking.join(20)
    falls = [(name, was, after.get(name, 0)) for before, after in zip(looks, looks[1:]) for name, was in before.items() if after.get(name, 0) < was]
    equal(falls, [], "counters that fell")
    equal(any(value > 1000 for value in looks[-1].values()), True, "whether there is a counter of requests")
    for one in loads:
        one.end()
    server.stop()


@test(fairlift_only=True)
def the_version_of_the_settings_goes_on(t):
    server = served(t)[1]
    control = Control(t, server)
    for version in 1, 2:
        control.ask("POST", "/v1/groups", {"path": f"/{version}"})
        upgrade(server)
        equal(control.ask("GET", "/v1")["version"], version)
        control.ask("PATCH", "/v1/groups/1", {"weight": 7}, code=409, headers={"If-Match": '"0"'})


@test(fairlift_only=True)
def commands_that_watch_go_on_at_the_new_server(t):
    image, server = served(t)
    control = Control(t, server)
    with open(t.path("told"), "wb") as out:
        events = t.start(BINARY, "events", "--after", "0", "--json", stdout=out, env=control.env)
    top = Terminal(t, BINARY, "top", "--seconds=0.2", f"--control=unix:{control.path}")
    clients = []
    for number in range(1, 4):
        clients.append(server.connect("a"))
        top.shows(lambda screen: any(f"{number} connection" in line for line in screen), f"top shows {number} connections")
        said = [False]

        def change():
            try:
                upgrade(server)
            finally:
                said[0] = True

        def watch():
            while not said[0]:
                screen = "\n".join(top.screen())
                equal([word for word in ("lost", "answers") if word in screen], [], "trouble on the screen")

        at_once(change, watch)
    clients.append(server.connect("a"))
    top.shows(lambda screen: any("4 connections" in line for line in screen), "top shows a client of the last server")
    lines = lambda: [json.loads(line) for line in Path(t.path("told")).read_text().splitlines(True) if line.endswith("\n")]
    connected = lambda: sum(event["event"] == "connected" for event in lines())
    until(lambda: connected() == 4, "each client that has come was told")
    numbers = [event["number"] for event in lines()]
    equal(numbers, list(range(1, len(numbers) + 1)), "numbers of events")
    server.kill()
    equal(events.wait(60) != 0, True, "whether it ends with an error once no server has come")


@test(fairlift_only=True)
def a_tenant_has_its_burst_once_however_often_its_server_is_upgraded(t):
    image, limit, burst = t.image("image", 64 * MIB), 4 * MIB, 64 * MIB
    server = t.server(config=f"""
        [export.disk]
        backing = "file:{image}"
        group = "/a"
        [group."/a"]
        max = {{ rbps = {limit} }}
        burst = {{ rbps = {burst}, seconds = 1 }}
        """)
    piece, count, ends, had = 256 * KIB, 8, [], [0]

    def reads():
        with server.connect("disk", timeout=30) as client:
            begun, waiting = time.monotonic(), 0
            while not ends:
                while waiting < count:
                    client.submit(READ, had[0] % (32 * MIB), piece)
                    waiting += 1
                equal(client.reply().error, 0, "a read")
                waiting -= 1
                had[0] += piece
                most = burst + limit * (time.monotonic() - begun) + count * piece
                if had[0] > most:
                    raise AssertionError(f"{had[0]} bytes came where {most:.0f} may")

    def upgrades():
        try:
            for _ in range(3):
                before = had[0]
                until(lambda: had[0] > max(before + MIB, burst - 4 * MIB), "it has had its burst")
                upgrade(server)
            before = had[0]
            until(lambda: had[0] > before + MIB, "it goes on")
        finally:
            ends.append(True)

    at_once(reads, upgrades)
    server.kill()


# ---- what is refused, and what fails -----------------------------------------------------------------------------


@test(fairlift_only=True)
def what_cannot_go_over_is_refused_before_and_the_server_goes_on(t):
    image = t.image("image", MIB)
    other = t.server(f"a=file:{image}")
    other.control("set", "group", "/a", "weight=300")
    said = upgrade(other, code=1)
    contains(said, "/a weight: 300 in force, 100 in the new server", "the running server goes on")
    other.control("set", "group", "/a", "weight=100")
    other.control("add", "listener", f"unix:{t.path('more')}")
    contains(upgrade(other, code=1), t.path("more"), "goes on")
    other.control("remove", "listener", f"unix:{t.path('more')}")
    until(lambda: "1 file" in upgrade(other, "--dry-run", code=None), "the listener has gone, and nothing is in the way")
    upgrade(other)
    other.serves("a")


@test(fairlift_only=True)
def a_setting_of_a_disk_that_only_a_restart_changes_is_not_changed_by_an_upgrade(t):
    text = f'[export.a]\nbacking = "file:{t.image("image", MIB)}"\ndisk = "d"\n[disk.d]\n'
    server = t.server(config=text)
    path = Path(t.path("server0.toml"))
    shares = f'shares = "dir:{t.dir}"\nscheduler = "fair"'
    for line in 'io_timeout = "7s"', "shared_tags = true", "concurrency = 3", "concurrency_max = 3", shares:
        path.write_text(text + line)
        contains(upgrade(server, code=1), line.split(" ")[0], "in the new server", "goes on")
    path.write_text(text)
    upgrade(server)
    server.serves("a")


@test(fairlift_only=True)
def a_connection_with_tls_has_its_answers_and_is_closed(t):
    image = t.image("image", 64 * MIB, (0, data(64 * MIB)))
    # 32 MiB a second: what is asked has not ended when the upgrade begins.
    server = t.server(config=f"""
        [export.disk]
        backing = "file:{image}"
        group = "/a"
        [group."/a"]
        max = {{ rbps = 33554432 }}
        """, args=["--tls", "on", "--tls-certificates", certificates(t)])
    with server.connect("disk", tls=client_context(t), timeout=30) as client:
        contains(upgrade(server, "--dry-run"), "0 connections go over", "1 connection with TLS to be closed", "connect again")
        client.write(0, data(4096, 1))
        client.send(*(client.request(READ, n * MIB, MIB) for n in range(40)))
        client.reply()
        said = []
        at_once(lambda: said.append(upgrade(server)), lambda: [client.reply() for _ in range(39)])
        contains(said[0], "1 connection with TLS to be closed", "serves now")
        with hung_up():
            client.read(0, 512)
    with server.connect("disk", tls=client_context(t)) as client:
        equal(client.read(0, 4096), data(4096, 1), "what the new server shows to a client with TLS")


@test(fairlift_only=True)
def a_connection_with_tls_over_tcp_goes_over_if_the_kernel_has_tls(t):
    """With such a kernel, under load: tests/vm/kernel_tls.py."""
    ulps = Path("/proc/sys/net/ipv4/tcp_available_ulp")
    has_tls = ulps.exists() and "tls" in ulps.read_text().split()
    port = free_port()
    server = t.server(f"disk=mem:{MIB}", listen=[f"unix:{t.path('s0')}", f"tcp:127.0.0.1:{port}"], args=["--tls", "on", "--tls-certificates", certificates(t)])
    with Client(("localhost", port), "disk", tls=client_context(t)) as client:
        client.write(0, data(4096, 1))
        said = upgrade(server)
        if has_tls:
            contains(said, "1 of them with TLS, by the kernel's")
            equal(client.read(0, 4096), data(4096, 1), "what the new server shows to a client with TLS")
            return
        contains(said, "0 connections go over", "1 connection with TLS to be closed", "modprobe tls")
        with hung_up():
            client.read(0, 512)


@test(fairlift_only=True)
def a_server_is_upgraded_by_its_own_user(t):
    if os.geteuid() != 0:
        t.skip("it needs root, to start a server of another user")
    nobody, image = 65534, t.image("image", MIB)
    for path in t.dir, image:
        os.chown(path, nobody, nobody)
    server = t.server(f"a=file:{image}", wrap=["setpriv", f"--reuid={nobody}", f"--regid={nobody}", "--clear-groups"])
    contains(upgrade(server, code=1), "user 65534", "user 0", "sudo -u")
    server.serves("a")


@test(fairlift_only=True)
def a_new_server_that_fails_costs_no_client_anything(t):
    image = t.image("image", 64 * MIB)
    text = f'[export.a]\nbacking = "file:{image}"\n'
    server = t.server(config=text, listen=[f"unix:{t.path('s0')}", f"tcp:127.0.0.1:{free_port()}"])
    loads = load(server)
    goes_on(loads)
    path = Path(t.path("server0.toml"))
    path.write_text(text + "nonsense = 7\n")
    contains(upgrade(server, code=1), "nonsense", "goes on")
    os.rename(image, image + "2")
    path.write_text(text)
    contains(upgrade(server, code=1), "image", "goes on")
    t.image("image", 64 * MIB)
    contains(upgrade(server, code=1), "does not have this file", "goes on")
    os.rename(image + "2", image)
    for name, script in ("crashes", "kill -9 $$"), ("ends", "exit 0"), ("hangs", "exec sleep 1000"):
        program = Path(t.path(name))
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        contains(upgrade(server, "--program", program, "--within", "1", code=1), "goes on")
        goes_on(loads)
    contains(upgrade(server, "--program", t.path("none"), code=1), "No such file")
    upgrade(server)
    goes_on(loads)
    ended(server, image, loads)


@test(fairlift_only=True)
def a_new_server_that_gets_no_memory_costs_no_client_anything(t):
    image, server = served(t)
    loads = load(server)
    goes_on(loads)
    program, fails, limit = Path(t.path("short")), 0, 64 * 1024
    program.touch(0o755)
    # Each limit is reached at another place, until one is enough. The steps are half of the memory that has to be left when it takes over.
    while True:
        program.write_text(f"#!/bin/sh\nulimit -v {limit}\nexec {BINARY} \"$@\"\n")
        said = upgrade(server, "--program", program, code=None)
        goes_on(loads)
        if "goes on" not in said:
            break
        fails, limit = fails + 1, limit + 32 * 1024
    equal(fails > 2, True, f"whether it failed at three places ({fails}) before {limit} KiB were enough")
    contains(said, "serves now")
    server.process = Adopted(int(re.search(r"process (\d+) serves now", said)[1]))
    t.defer(finish, server.process)
    ended(server, image, loads)


@test(fairlift_only=True)
def another_version_takes_over_from_this_one_and_this_one_from_it(t):
    # FAIRLIFT_BEFORE: an older program. Else it is this one, which says that it is another.
    other = os.environ.get("FAIRLIFT_BEFORE")
    if not other:
        other = Path(t.path("fairlift"))
        other.write_bytes(Path(BINARY).read_bytes().replace(b"0.1.0", b"0.1.9"))
        other.chmod(0o755)
    whole = data(SIZE)
    base = t.image("base.img", SIZE, (0, whole))
    over = f"overlay:base={base}"
    backings = {"top": f"{over},top={t.path('a.top')}", "gone": f"{over},ephemeral={t.path('')}", "ram": f"mem:{SIZE}"}
    listen = [f"unix:{t.path('s0')}", f"tcp:127.0.0.1:{free_port()}"]
    server = t.server(*(f"{name}={backing}" for name, backing in backings.items()), listen=listen, args=["--workers", "2"])
    loads = {name: load(server, name, 256, whole if "overlay" in backing else None) for name, backing in backings.items()}
    every = [one for some in loads.values() for one in some]
    for program in other, BINARY, other, BINARY:
        goes_on(every, 20)
        upgrade(server, "--program", program)
    goes_on(every)
    for one in every:
        one.end()
    equal([word for word in ("is left out", "is ignored") if word in server.log()], [], "parts that another version could not read")
    for name, some in loads.items():
        with server.connect(name) as client:
            shows(client, some)


class Peer:
    """One side of a hand-over, played by the test."""

    def __init__(self, sock):
        self.sock, self.kept = sock, []

    def send(self, name, says=(), payload=b"", fds=()):
        text = json.dumps({**dict(says), "message": name}).encode()
        frame = b"flho" + struct.pack(">III", len(text), len(payload), len(fds))
        socket.send_fds(self.sock, [frame], list(fds))
        self.sock.sendall(text + payload)

    def receive(self):
        """A message: what it says, its bytes and descriptors. `None`: the other side has ended."""
        frame, fds, _, _ = socket.recv_fds(self.sock, 16, 200)
        if not frame:
            return None
        while len(frame) < 16:
            frame += self.sock.recv(16 - len(frame))
        text, payload, _ = struct.unpack(">III", frame[4:])
        body = b""
        while len(body) < text + payload:
            body += self.sock.recv(text + payload - len(body))
        self.kept += fds
        return json.loads(body[:text]), body[text:], fds

    def until(self, name):
        """The messages up to one of this name, with it."""
        got = []
        while message := self.receive():
            got.append(message)
            if message[0]["message"] in (name, "off"):
                return got
        return got

    def leave(self):
        for fd in self.kept:
            os.close(fd)
        self.sock.close()


def new_side(server):
    """A new server that has heard what the running one offers."""
    version = Control(server.t, server).ask("GET", "/v1/state")["version"]
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(60)
    sock.connect(f"{server.socket}.control.sock")
    sock.sendall(f"POST /v1/take-over?version={version} HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: fairlift-hand-over\r\n"
                 "Content-Length: 0\r\n\r\n".encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += sock.recv(1)
    contains(head.decode(), "101")
    peer = Peer(sock)
    peer.offer = peer.until("offered")
    equal(peer.offer[0][0]["message"], "offer", "the first message")
    return peer


def turns_down(server, says=None):
    """A new server has been given all, and refuses it for that reason, or dies."""
    peer = new_side(server)
    peer.send("ready")
    peer.until("all")
    if says:
        peer.send("refused", says)
        equal(peer.until("off")[-1][0]["message"], "off", "the answer to a refusal")
    peer.leave()


@test(fairlift_only=True)
def a_new_server_that_dies_on_the_way_or_hangs_costs_a_pause(t):
    image, server = served(t)
    loads = load(server)
    goes_on(loads)

    peer = new_side(server)
    contains(upgrade(server, code=1), "taking over already")
    peer.leave()  # it dies with all descriptors
    goes_on(loads)

    peer = new_side(server)
    peer.send("ready")
    equal(len([m for m in peer.until("all") if m[0]["message"] == "client"]), 4, "clients that came")
    peer.leave()  # it dies with all clients
    goes_on(loads)

    turns_down(server, {"why": "it is too warm here"})
    until(lambda: "it is too warm here" in server.log(), "the log has the reason")
    goes_on(loads)

    peer = new_side(server)
    peer.send("ready")  # and then it hangs
    goes_on(loads, 2000)
    said = peer.until("off")
    equal(said[-1][0]["message"], "off", "what is said to a server that hangs")
    with contextlib.suppress(OSError):
        peer.send("accepted")  # too late
    peer.leave()
    goes_on(loads)

    peer = new_side(server)
    peer.send("ready")
    peer.until("all")
    peer.send("nonsense")
    peer.leave()
    goes_on(loads)
    upgrade(server)
    goes_on(loads)
    ended(server, image, loads)


@test(fairlift_only=True)
def a_flush_that_fails_after_the_new_server_has_come_is_not_forgotten(t):
    Path(t.path("rules.toml")).write_text('[[fault]]\nop = "flush"\nerror = "EIO"\ntimes = 1\n')
    server = t.server(f"a=fault:{t.path('rules.toml')},inner=file:{t.image('image', MIB)}")
    with server.connect("a") as client:
        client.write(0, data(BLOCK, 1))
        peer = new_side(server)
        with refused(EIO):
            client.flush()
        peer.send("ready")
        said = peer.until("all")[-1][0]
        equal(said["message"], "off", "what is said to a server that would not know of it")
        contains(said["why"], "failed", "fairlift acknowledge")
        peer.leave()
        with refused(EIO):
            client.flush()
        server.control("acknowledge")
        client.flush()


@test(fairlift_only=True)
def a_command_that_dies_leaves_no_server_behind_and_none_without_control(t):
    image, server = served(t)
    loads = load(server)
    goes_on(loads)
    control = f"unix:{server.socket}.control.sock"
    others = lambda: [pid for pid in map(str, os.listdir("/proc")) if pid.isdigit() and int(pid) != server.pid
                      and f"--take-over={control[5:]}".encode() in cmdline(pid)]

    def cmdline(pid):
        with contextlib.suppress(OSError):
            return Path(f"/proc/{pid}/cmdline").read_bytes()
        return b""

    program = Path(t.path("slow"))
    program.write_text(f"#!/bin/sh\nsleep 0.5\nexec {BINARY} \"$@\"\n")
    program.chmod(0o755)
    for words in [], ["--dry-run"]:
        command = t.start(BINARY, "upgrade", "--program", program, "--control", control, *words)
        until(others, "the new server has been started")
        command.kill()
        until(lambda: not others(), "the new server ends, too", 20)
        goes_on(loads)

    # Of what the new server says, the first word is heard alone.
    program.write_text(f"#!/bin/sh\n{BINARY} \"$@\" | head -n 1\n")
    command = t.start(BINARY, "upgrade", "--program", program, "--control", control)
    equal(server.process.wait(60), 0, "the exit code of the previous server")
    command.kill()
    served_by = lambda: t.run(BINARY, "status", "--control", control, "--json", code=None)
    until(lambda: '"version"' in served_by(), "the new server has control", 20)
    server.process = Adopted(Control(t, server).ask("GET", "/v1")["pid"])
    t.defer(finish, server.process)
    goes_on(loads)
    upgrade(server)
    goes_on(loads)
    ended(server, image, loads)


@test(fairlift_only=True)
def an_old_server_that_is_killed_before_it_has_handed_over_costs_what_a_crash_does(t):
    image, server = served(t)
    client = server.connect("a")
    peer = new_side(server)
    peer.send("ready")
    peer.until("all")
    server.kill()
    peer.leave()
    with hung_up():
        client.read(0, 512)
    t.server(f"a=file:{image}").serves("a")


def old_side(t, server, state):
    """An old server that waits for a new one: it answers the questions before, and has the clients of the test."""
    path = f"{server.socket}.control.sock"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(8)
    listener.settimeout(60)
    process = t.start(BINARY, "serve", *server.words, f"--take-over={path}", stdout=subprocess.PIPE)
    for _ in range(3):
        sock, _ = listener.accept()
        sock.settimeout(60)
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += sock.recv(1)
        answers = [body for asked, body in ((b"GET /v1/state", state), (b"POST /v1/upgrade", {"added": []})) if asked in head]
        if answers:
            body = json.dumps(answers[0]).encode()
            sock.sendall(b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nETag: "0"\r\nContent-Length: %d\r\n\r\n' % len(body) + body)
            sock.close()
    sock.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: fairlift-hand-over\r\n\r\n")
    return Peer(sock), process, listener


@test(fairlift_only=True)
def a_new_server_serves_when_the_old_one_dies_after_it_gave_all_and_never_when_it_is_off(t):
    image = t.image("image", MIB)
    for is_off in False, True:
        server = t.server(f"a=file:{image}")
        state = Control(t, server).ask("GET", "/v1/state")
        server.words = [f"a=file:{image}", "--listen", f"unix:{server.socket}"]
        server.stop()
        place = socket.socket(socket.AF_UNIX)
        place.bind(server.socket)
        place.listen(8)
        with open(image, "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            peer, process, control = old_side(t, server, state)
            off = os.eventfd(0, os.EFD_NONBLOCK)
            peer.send("offer", {"version": 1, "program": "test", "plan": []}, fds=[off])
            peer.send("listener", {"name": f"unix:{server.socket}", "inherited": False}, fds=[place.fileno()])
            peer.send("beside", {"name": f"control unix:{server.socket}.control.sock"}, fds=[control.fileno()])
            peer.send("files", fds=[file.fileno()])
            peer.send("offered")
            equal(peer.receive()[0]["message"], "ready", "what the new server says")
            ours, theirs = socket.socketpair()
            request = struct.pack(">IHHQQI", 0x25609513, 0, READ, 77, 0, 512)
            says = {"protocol": "nbd", "listener": f"unix:{server.socket}", "export": "a", "structured": False, "extended": False,
                    "allocation": False, "changes": False, "leaves": False, "input": 10, "replies": 3}
            peer.send("client", says, request[:10] + b"abc", fds=[theirs.fileno()])
            theirs.close()
            peer.send("all", {"clients": 1})
            equal(peer.receive()[0]["message"], "accepted", "what the new server says to its clients")
            ours.settimeout(0.3)
            with contextlib.suppress(TimeoutError):
                raise AssertionError(f"served before it was its turn: {ours.recv(100)}")
            if is_off:
                os.eventfd_write(off, 1)
        os.close(off)
        peer.leave()  # the old server has died
        ours.settimeout(60)
        if is_off:
            equal(process.wait(60), 1, "the exit code of a server that must not serve")
            equal(ours.recv(100), b"", "what a client of it gets")
            equal(os.path.exists(server.socket), True, "the socket file, which is another server's")
        else:
            equal(ours.recv(3), b"abc", "the rest of a reply")
            ours.sendall(request[10:])
            got = b""
            while len(got) < 16 + 512:
                got += ours.recv(4096)
            equal(got, struct.pack(">IIQ", 0x67446698, 0, 77) + bytes(512), "the answer to the request")
            process.terminate()
            equal(process.wait(60), 0, "its exit code")
        for one in place, control, ours:
            one.close()
        for path in server.socket, f"{server.socket}.control.sock":
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)


if __name__ == "__main__":
    main()
