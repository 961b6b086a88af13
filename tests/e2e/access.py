"""Access: each client opens the exports that `[client.NAME]` allows it, and learns nothing of the others."""

from unittest import mock

import nbdclient
from control import Control
from encryption import nbds
from harness import *
from metrics import samples, scrape
from nbdclient import *
from pki import CLIENT, certificates, client_context, sign
from vhostclient import DISCARD, FAILED, FrontEnd, Gone, IN, OK, RO, SET_FEATURES, ZEROES

EXPORTS = """
[export.alice]
backing = "mem:8m"
group = "/tenants/alice"
[export.alice-logs]
backing = "mem:1m"
group = "/tenants/alice/logs"
[export.bob]
backing = "mem:8m"
description = "nobody's business"
group = "/tenants/bob"
[export.iso]
backing = "mem:1m"
"""
ALL = {"alice", "alice-logs", "bob", "iso"}
ALICE = {"alice", "alice-logs"}


def listed(session):
    return {name for name, _ in session.list()}


def refuses(session, export):
    """An export that is not there for this client."""
    try:
        session.info(export, GO)
    except Refused as refusal:
        equal(refusal.code, ERR_UNKNOWN, f"the answer to GO {export}")
        return
    raise AssertionError(f"{export} was opened")


def reload(server, config, says=""):
    Path(server.t.path("server0.toml")).write_text(config)
    contains(server.control("reload"), says)


def is_written(client):
    """Whether a client may write. Other rules reach one that is there when its worker wakes."""
    try:
        client.write(0, data(4096))
        return True
    except NbdError as refusal:
        equal(refusal.errno, EPERM, "the answer to a write")
        return False


def as_user(uid, gid):
    return ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups"]


@test(fairlift_only=True)
def processes_open_what_their_users_may(t):
    if os.geteuid() != 0:
        t.skip("only root can be another user")
    server = t.server(config=EXPORTS + """
        [client.root]
        uid = 0
        group = "/"
        [client.alice]
        uid = 2001
        group = "/tenants/alice"
        [client.readers]
        gid = 2002
        exports = "iso"
        read_only = true
        [client.both]
        uid = 2003
        gid = 2002
        exports = ["bob"]
        """)
    os.chmod(t.dir, 0o711)
    os.chmod(server.socket, 0o666)

    def info(user, *words, code=0):
        return t.run(*user, "nbdinfo", *words, code=code)

    def names(user):
        return set(re.findall(r'export="([^"]*)"', info(user, "--list", server.uri(), code=None)))

    alice, reader, both, stranger = as_user(2001, 2001), as_user(2004, 2002), as_user(2003, 2002), as_user(2003, 2003)
    equal([names(user) for user in ([], alice, reader, both, stranger)], [ALL, ALICE, {"iso"}, {"iso", "bob"}, set()], "what is listed")
    for user, may in ([], ALL), (alice, ALICE), (reader, {"iso"}), (both, {"iso", "bob"}), (stranger, set()):
        for name in [*sorted(ALL), "none"]:  # the first that is refused is told
            info(user, "--size", server.uri(name), code=0 if name in may else 1)
    at = f"unix:{server.socket}"
    server.says(f"uid 2001 cannot connect to {at} (mode 0600 of root): listen = \"{at},mode=0660,group=…\"")
    # What is opened is read and written, or only read.
    t.run(*alice, "qemu-io", "-f", "raw", "-c", "write -P 7 0 64k", "-c", "flush", server.uri("alice"))
    t.run(*alice, "nbdcopy", server.uri("alice"), "null:")
    t.run(*alice, "nbdcopy", server.uri("bob"), "null:", code=1)
    contains(t.run(*reader, "qemu-io", "-f", "raw", "-c", "write 0 4k", server.uri("iso"), code=1), "Permission denied")
    contains(t.run(*reader, "nbdsh", "-u", server.uri("iso"), "-c", "print(h.is_read_only(), len(h.pread(512, 0)))"), "True 512")
    t.run(*stranger, "nbdsh", "-u", server.uri("iso"), "-c", "print(h.get_size())", code=1)
    server.says("uid 2001", f"asked at unix:{server.socket} for export", "no [client] allows it")


@test(fairlift_only=True)
def clients_open_what_their_address_and_their_listener_allow(t):
    port, other = free_port(), free_port()
    server = t.server(listen=[f"tcp:127.0.0.1:{port}", f"tcp:127.0.0.1:{other}"], config=EXPORTS + f"""
        [client.alice]
        address = "127.0.0.2"
        group = "/tenants/alice"
        [client.range]
        address = "127.0.3.0/24"
        listener = "tcp:127.0.0.1:{other}"
        exports = ["bob", "iso"]
        """)

    def seen(source, at):
        dial = lambda address, timeout=20: socket.create_connection(address, timeout, (source, 0))
        with mock.patch.object(nbdclient, "dial", dial), Session(("127.0.0.1", at)).greet() as session:
            return listed(session)

    equal([seen("127.0.0.2", port), seen("127.0.0.2", other)], [ALICE, ALICE], "what an address sees")
    equal([seen("127.0.3.9", port), seen("127.0.3.9", other)], [set(), {"bob", "iso"}], "what a range sees at a listener")
    equal([seen("127.0.0.1", port), seen("127.0.4.1", other)], [set(), set()], "what others see")
    equal(t.run("nbdinfo", "--size", f"nbd://127.0.0.1:{port}/alice", code=1).count("8388608"), 0, "sizes told")


@test(fairlift_only=True)
def clients_open_what_their_certificate_allows(t):
    place, port = certificates(t), free_port()
    sign(t, "ca", "alice", "/O=Example/CN=alice", CLIENT)
    sign(t, "ca", "bob", "/O=Example", CLIENT + "subjectAltName=DNS:bob.example,URI:spiffe://example/bob\n")
    sign(t, "ca", "false", "/O=CN=alice/CN=alice2", CLIENT + "subjectAltName=DNS:alice,email:CN=alice\n")
    sign(t, "ca", "pair", "/CN=alice+CN=mallory", CLIENT)  # one part of the subject with two names
    digest = t.run("openssl", "x509", "-noout", "-fingerprint", "-sha256", "-in", f"{place}/client-cert.pem").strip().split("=")[1]
    at = f"tcp:127.0.0.1:{port}"
    config = EXPORTS + f"""
        [client.alice]
        certificate = "CN=alice"
        group = "/tenants/alice"
        [client.bob]
        certificate = "DNS:Bob.Example"
        exports = ["bob"]
        [client.bob-reads]
        certificate = "URI:spiffe://example/bob"
        exports = ["iso"]
        read_only = true
        [client.one]
        certificate = "sha256:{digest}"
        exports = ["iso"]
        """
    contains(t.serve_fails("--config", write(t, "no.toml", config), "--listen", at), "client.alice.certificate: needs tls_verify_peer = true")
    server = t.server(config=config, listen=[at], args=["--tls", "require", "--tls-certificates", place, "--tls-verify-peer"])

    def seen(name):
        with Session(server.address).greet() as session:
            session.start_tls(client_context(t, name))
            return listed(session)

    wanted = {"alice": ALICE, "bob": {"bob", "iso"}, "client": {"iso"}, "false": set(), "pair": set()}
    equal({name: seen(name) for name in wanted}, wanted, "what certificates see")
    with server.connect("bob", tls=client_context(t, "bob")) as bob:
        bob.write(0, data(4096))
    equal(t.run("nbdinfo", "--size", nbds(t, server, "iso")).strip(), str(MIB))
    t.run("nbdinfo", "--size", nbds(t, server, "alice"), code=1)
    server.says("certificate CN=client asked at", 'for export "alice": no [client] allows it')


LIBNBD = "import nbd, sys; h = nbd.NBD(); h.set_uri_allow_local_file(True); h.connect_uri(sys.argv[1]); h.pwrite(bytes(512), 0)"


@test(fairlift_only=True)
def clients_of_others_with_certificates_are_served_what_is_theirs(t):
    place, port = certificates(t), free_port()
    mine = t.path("alice")  # as each of them wants it: a directory with the names of a client's files
    sign(t, "ca", "alice", "/CN=alice", CLIENT)
    os.mkdir(mine)
    for here, there in ("ca-cert.pem", "ca-cert.pem"), ("alice-cert.pem", "client-cert.pem"), ("alice-key.pem", "client-key.pem"):
        shutil.copy(f"{place}/{here}", f"{mine}/{there}")
    at = f"tcp:127.0.0.1:{port}"
    t.server(listen=[at], args=["--tls", "require", "--tls-certificates", place, "--tls-verify-peer"],
             config=EXPORTS + '[client.alice]\ncertificate = "CN=alice"\ngroup = "/tenants/alice"\n')
    credentials = ["--object", f"tls-creds-x509,id=tls0,endpoint=client,dir={mine}"]
    qemu = lambda name: f"driver=nbd,host=localhost,port={port},export={name},tls-creds=tls0"
    uri = lambda name: f"nbds://localhost:{port}/{name}?tls-certificates={mine}"
    tried = [
        lambda name, code: t.run("nbdinfo", "--size", uri(name), code=code),
        lambda name, code: t.run("nbdcopy", uri(name), "null:", code=code),
        lambda name, code: t.run("/usr/bin/python3", "-c", LIBNBD, uri(name), code=code),
        lambda name, code: t.run("qemu-img", "info", *credentials, "--image-opts", qemu(name), code=code),
        lambda name, code: t.run("qemu-io", *credentials, "--image-opts", "-c", "write -P 7 0 64k", qemu(name), code=code),
    ]
    for client in tried:
        client("alice", 0)
        client("bob", 1)
        client("none", 1)
    # fio names no directory: it has the certificates of its user, who for libnbd is not root.
    own = shutil.copytree(mine, t.path("home/.pki/libnbd"))
    user = []
    if os.geteuid() == 0:
        user = as_user(2001, 2001)
        os.chmod(t.dir, 0o711)
        os.chown(f"{own}/client-key.pem", 2001, 2001)
    if "nbd" in t.run("fio", "--enghelp").split():
        for name, code in ("alice", 0), ("bob", 1):
            t.run(*user, "env", f"HOME={t.path('home')}", "fio", "--name=it", "--ioengine=nbd", f"--uri=nbds://localhost:{port}/{name}",
                  "--rw=randwrite", "--size=1m", "--bs=4k", cwd=t.path("home"), code=code)
    # nbd-client attaches a device of the kernel, which is not to be had everywhere; what it is told of exports it tells without.
    said = t.run("nbd-client", "-l", "localhost", str(port), "-enable-tls", "-cacertfile", f"{mine}/ca-cert.pem", "-certfile",
                 f"{mine}/client-cert.pem", "-keyfile", f"{mine}/client-key.pem", code=None)
    equal(ALL & set(said.split()), ALICE, "what nbd-client lists")


def write(t, name, text):
    Path(t.path(name)).write_text(text)
    return t.path(name)


def answers(address, name):
    """All bytes that a server answers to a client that asks in every way for an export, but for the name in them."""
    got = b""
    asked = struct.pack(">I", len(name)) + name
    ways = [(INFO, asked + b"\0\0"), (GO, asked + b"\0\1\0\1"), (STRUCTURED_REPLY, b""), (LIST_META, asked + bytes(4)),
            (SET_META, asked + struct.pack(">II", 1, 15) + b"base:allocation"), (GO, asked + b"\0\0"), (LIST, b""), (EXPORT_NAME, name)]
    for first in (ways, [(EXTENDED_HEADERS, b""), (EXPORT_NAME, name)], [(EXPORT_NAME, name)]):
        with Session(address).greet() as session:
            for option, payload in first:
                session.send_option(option, payload)
            with contextlib.suppress(Closed):
                while True:
                    got += session.receive(1)
    return got.replace(name, b"NAME") if name else got


@test(fairlift_only=True)
def what_is_not_allowed_is_answered_as_what_does_not_exist(t):
    rule = '[client.me]\nuid = {}\nexports = ["iso", "alice"]\n'.format(os.geteuid())
    server = t.server(config=EXPORTS + rule)
    for forbidden, absent in (b"bob", b"bab"), (b"alice-logs", b"alice-fogs"):
        got = answers(server.address, forbidden)
        equal(got, answers(server.address, absent), f"the bytes for {forbidden}")
        assert b"business" not in got and got.count(b"iso") == 1, got
    # Nor does it differ from a server that has only what the client may open.
    alone = t.server("alice=mem:8m", "iso=mem:1m")
    equal(answers(server.address, b"bob"), answers(alone.address, b"bob"), "the bytes of a server without others")
    equal(answers(server.address, b""), answers(alone.address, b""), "the bytes for no name")
    # Of one who may open nothing, and of one export alone, which is the usual one too.
    reload(server, EXPORTS + "[client.nobody]\nuid = 4000000000\nexports = [\"iso\"]\n")
    equal(answers(server.address, b"iso"), answers(server.address, b"osi"), "the bytes for a stranger")
    with Session(server.address).greet() as session:
        equal(listed(session), set(), "what a stranger sees")
        refuses(session, "")
    reload(server, EXPORTS + f'[client.me]\nuid = {os.geteuid()}\nexports = ["iso"]\n')
    equal(server.connect("").size, MIB, "the size of the only export")


@test(fairlift_only=True)
def who_may_only_read_is_told_so_and_held_to_it(t):
    rule = f"[client.reads]\nuid = {os.geteuid()}\nexports = [\"alice\"]\nread_only = true\n"
    writes = f"[client.writes]\nuid = {os.geteuid()}\ngroup = \"/tenants\"\n"
    server = t.server(config=EXPORTS + rule)
    with server.connect("alice") as client:
        assert client.read_only and not client.flags & (SEND_TRIM | SEND_WRITE_ZEROES), f"flags {client.flags:#x}"
        for ask in lambda: client.write(0, data(4096)), lambda: client.trim(0, 4096), lambda: client.zero(0, 4096):
            with refused(EPERM, says='export "alice" is read-only'):
                ask()
        equal(client.read(0, 4096), bytes(4096), "what nobody wrote")
        contains(t.run("qemu-io", "-f", "raw", "-c", "write 0 4k", server.uri("alice"), code=1), "Permission denied")
        # Another rule that lets it write is enough, also for those that are there.
        reload(server, EXPORTS + rule + writes, 'client "writes": added')
        until(lambda: is_written(client), "it may write")
        with server.connect("alice") as other:
            assert not other.read_only, "read-only"
        reload(server, EXPORTS + rule, 'client "writes": removed')
        until(lambda: not is_written(client), "it may not write any more")
        equal(client.read(0, 4096), data(4096), "what was written")


@test(fairlift_only=True)
def a_write_that_was_announced_before_its_client_might_only_read_is_refused(t):
    rule = lambda read_only: EXPORTS + f'[client.me]\nuid = {os.geteuid()}\nexports = "alice"\nread_only = {read_only}\n'
    server = t.server(config=rule("false"))
    other = server.connect("alice")
    for size in 4096, MIB:  # the kernel receives large payloads into the buffer of their write
        client = server.connect("alice")
        until(lambda: is_written(other), "it may write")
        client.send(client.request(WRITE, 0, size))  # and not its payload yet
        reload(server, rule("true"), "read-only")
        until(lambda: not is_written(other), "it may not write any more")
        client.send(b"Z" * size)
        equal((client.reply().error, client.read(0, 512)[:1] == b"Z"), (EPERM, False), "the answer to a write that comes late, and what is there")
        reload(server, rule("false"))


@test(fairlift_only=True)
def a_right_that_is_taken_away_ends_connections_once_they_are_answered(t):
    slow = EXPORTS.replace('"mem:8m"\ndescription', '"null:8m,delay=3s"\ndescription')
    rule = lambda *exports: slow + f"[client.me]\nuid = {os.geteuid()}\nexports = {json.dumps(exports)}\n"
    server = t.server(config=rule("alice", "bob"))
    stays = server.connect("alice")
    done, stop = [0], threading.Event()

    def load():
        while not stop.is_set():
            piece = data(4096, done[0])
            stays.write(4096 * (done[0] % 256), piece)
            equal(stays.read(4096 * (done[0] % 256), 4096), piece, "what was just written")
            done[0] += 1

    def changes():
        goes, idle = server.connect("bob"), server.connect("bob")
        try:
            for _ in range(2):
                cookies = {goes.submit(READ, MIB // 2 * number, 4096) for number in range(16)}
                until(lambda: in_flight(server) >= 16 or goes.readable(0), "all are in the disk, or were")
                reload(server, rule("alice"), "client \"me\"")
                replies = [goes.reply() for _ in cookies]
                equal({reply.cookie for reply in replies if not reply.error}, cookies, "what was asked before and answered after")
                equal([gone.wait_for_close(60) for gone in (goes, idle)], [0, 0], "bytes after that")
                with Session(server.address).greet() as session:
                    refuses(session, "bob")
                    equal(listed(session), {"alice"}, "what is listed")
                reload(server, rule("alice", "bob"))
                goes, idle = server.connect("bob"), server.connect("bob")
        finally:
            stop.set()

    at_once(load, changes)
    assert done[0] > 0, "nobody wrote"
    equal(len(stays.read(0, 4096)), 4096, "bytes for a client that stays")
    server.says('closed: no [client] allows it any more client="pid', 'export="bob"')


@test(fairlift_only=True)
def random_rules_hold_at_once_for_those_who_are_there_and_those_who_come(t):
    """Three clients, by a socket each, with reads under way while the rules change; what each may do is worked out here once more."""
    places = [f"unix:{t.path(f'c{number}')}" for number in range(3)]
    groups = {"alice": "/tenants/alice", "alice-logs": "/tenants/alice/logs", "bob": "/tenants/bob", "iso": "/iso"}
    exports = "[server]\nhandshake_failures = 0\n" + EXPORTS  # a thousand of them ask for what they may not open
    server = t.server(config=exports, listen=places)
    control = Control(t, server, t.path("c0.control.sock"))
    there = {}

    def any_rule():
        exports = t.random.sample(sorted(ALL), t.random.choice([0, 1, 2]))
        group = t.random.choice(["/tenants/alice", "/tenants", "/tenants/bob", "/"]) if not exports or t.random.random() < 0.3 else None
        return {"listener": t.random.choice(places), "exports": exports, "group": group, "read_only": t.random.random() < 0.5}

    def written(number, rule):
        said = {key: value for key, value in rule.items() if value}
        return f"[client.rule{number}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in said.items())

    def may(rules, place, name):
        """None, "read" or "write"."""
        if not rules:
            return "write"
        below = lambda group: group and (groups[name] + "/").startswith(group.rstrip("/") + "/")
        about = [rule for rule in rules if rule["listener"] == place and (name in rule["exports"] or below(rule["group"]))]
        return about and ("read" if all(rule["read_only"] for rule in about) else "write") or None

    def look(rules, place, name):
        right, session = may(rules, place, name), there.pop((place, name), None)
        if session and not right:
            session.wait_for_close(60)
            return
        if not right:
            with Session(place.removeprefix("unix:")).greet() as stranger:
                refuses(stranger, name)
            return
        session = session or Client(place.removeprefix("unix:"), name)
        while session.pending:
            equal(session.reply().error, 0, f"a read of {name}")
        until(lambda: is_written(session) == (right == "write"), f"{place} may {right} {name}")
        for number in range(3):
            session.submit(READ, 8192 * number, 4096)
        there[place, name] = session

    changes = 0
    for _ in range(100):
        rules = [any_rule() for _ in range(t.random.choice([0, 1, 2, 3, 5]))]
        Path(t.path("server0.toml")).write_text(exports + "".join(written(*each) for each in enumerate(rules)))
        changes += bool(control.ask("POST", "/v1/reload")["changes"])
        for place in places:
            with Session(place.removeprefix("unix:")).greet() as session:
                equal(listed(session), {name for name in ALL if may(rules, place, name)}, f"what {place} lists by {rules}")
            for name in ALL:
                look(rules, place, name)
    assert changes > 50, f"{changes} changes"


@test(fairlift_only=True)
def an_export_that_goes_to_another_tenant_leaves_the_clients_of_the_first(t):
    server = t.server(config=EXPORTS + f"[client.alice]\nuid = {os.geteuid()}\ngroup = \"/tenants/alice\"\n")
    with server.connect("alice") as stays, server.connect("alice-logs") as goes:
        server.control("set", "export", "alice-logs", "group=/tenants/bob")
        equal(goes.wait_for_close(60), 0, "bytes after that")
        equal(len(stays.read(0, 512)), 512, "bytes read")
        server.control("set", "export", "bob", "group=/tenants/alice")
        server.connect("bob").close()


@test(fairlift_only=True)
def a_rule_that_comes_changes_and_goes_by_command_holds_at_once(t):
    own, other = t.path("own.sock"), t.path("other.sock")
    slow = EXPORTS.replace('"mem:8m"\ndescription', '"null:8m,delay=3s"\ndescription')
    server = t.server(listen=[f"unix:{own}", f"unix:{other}"], config=slow)
    change = Control(t, server, t.path("own.control.sock"))

    def seen(place):
        with Session(place).greet() as session:
            return listed(session)

    def answered_and_closed(client, command, *says):
        cookies = {client.submit(READ, MIB // 2 * number, 4096) for number in range(16)}
        until(lambda: sum(disk["in_flight"] for disk in change.ask("GET", "/v1/disks")) >= 16 or client.readable(0), "all are in the disk, or were")
        contains(change.cli(*command), *says)
        replies = [client.reply() for _ in cookies]
        equal({reply.cookie for reply in replies if not reply.error}, cookies, "what was asked before and answered after")
        equal(client.wait_for_close(60), 0, "bytes after that")

    add = ["add", "client", "backup", f"listener=unix:{own}", "exports=alice,bob", "read_only=true"]
    added = f'client "backup": added, listener unix:{own}: exports alice, bob, read-only'
    stranger = Client(other, "alice")
    contains(change.cli(*add, "--dry-run"), added, "nothing was changed")
    equal([seen(own), seen(other)], [ALL, ALL], "what is listed after a dry run")
    contains(change.cli(*add), added)
    equal(stranger.wait_for_close(60), 0, "bytes for a stranger who was there")
    equal([seen(own), seen(other)], [{"alice", "bob"}, set()], "what is listed")
    shown = change.ask("GET", "/v1/clients/backup")
    equal([shown[key] for key in ("exports", "listener", "read_only", "uid")], [["alice", "bob"], f"unix:{own}", True, None], "what is shown")
    contains(change.cli("get", "client", "backup"), "alice", "read_only")
    contains(change.cli("add", "client", "nobody", "exports=iso", code=1), "says not how the client is known: say uid")
    contains(change.cli("set", "client", "backup", "certificate=CN=a", code=1), "needs tls_verify_peer = true")

    stays = server.connect("alice")
    assert not is_written(stays), "a client that may only read has written"
    goes = server.connect("bob")
    answered_and_closed(goes, ["set", "client", "backup", "exports=alice,none", "read_only=default"], 'client "backup": there is no export "none"')
    equal(seen(own), {"alice"}, "what is listed after a change")
    until(lambda: is_written(stays), "the client may write")
    # One rule in the place of another, at once: who is there does not notice.
    rule = {"listener": f"unix:{own}", "exports": ["alice", "bob"]}
    change.ask("POST", "/v1/changes", {"changes": [{"remove": "client", "name": "backup"}, {"add": "client", "name": "mine", **rule},
                                                   {"add": "client", "name": "theirs", "listener": f"unix:{other}", "exports": "iso"}]})
    equal(len(stays.read(0, 512)), 512, "bytes for a client that stays")
    # What a command has added stays; what the file names is as the file has it.
    file = Path(t.path("server0.toml"))
    contains(change.cli("reload"), "nothing differs")
    file.write_text(slow + f'[client.theirs]\nlistener = "unix:{other}"\nexports = "alice-logs"\n')
    contains(change.cli("reload", "--dry-run"), 'client "theirs"')
    equal(seen(other), {"iso"}, "what is listed after a dry run of a reload")
    contains(change.cli("reload"), 'client "theirs"')
    equal([seen(own), seen(other)], [{"alice", "bob"}, {"alice-logs"}], "what is listed after a reload")
    change.cli("set", "client", "theirs", "exports=bob")
    equal(seen(other), {"bob"}, "what is listed after a change of the file's rule")
    contains(change.cli("reload"), 'taken back: client "theirs"')
    change.cli("remove", "client", "theirs")
    equal(seen(other), set(), "what is listed without the file's rule")
    contains(change.cli("reload"), 'client "theirs": added')
    equal(seen(other), {"alice-logs"}, "what is listed when the file has brought it back")
    equal(len(stays.read(0, 512)), 512, "bytes for a client that stays, after all that")

    goes = server.connect("bob")
    answered_and_closed(goes, ["remove", "client", "mine"], 'client "mine": removed')
    equal(stays.wait_for_close(60), 0, "bytes for the other client of the rule")
    equal([seen(own), seen(other)], [set(), {"alice-logs"}], "what is listed without the rule")
    contains(change.cli("remove", "client", "theirs"), "every client may open every export")
    equal([seen(own), seen(other)], [ALL, ALL], "what is listed without rules")
    contains(change.cli("remove", "client", "theirs", code=1), 'there is no client "theirs"')


@test(fairlift_only=True)
def a_client_has_so_many_connections_and_no_more(t):
    rule = f"[client.me]\nuid = {os.geteuid()}\nexports = [\"alice\", \"iso\"]\nmax_connections = "
    server = t.server(config=EXPORTS + rule + "2\n")
    with server.connect("alice") as first, server.connect("iso") as second:
        for _ in range(2):
            try:
                server.connect("alice")
                raise AssertionError("a third connection was let in")
            except Refused as refusal:
                equal(refusal.code, ERR_POLICY, "the answer")
                contains(refusal.message, "as many connections as it may have")
        with hung_up(), Session(server.address).greet() as session:
            session.export_name("iso")
        with Session(server.address).greet() as session:
            session.info("alice")
        shown = " ".join(server.control("status", "--seconds", "0.1").split())
        contains(shown, "CLIENT KNOWN BY CONNECTIONS MAY", f"me uid {os.geteuid()} 2 exports alice, iso, 2 connections")
        second.disconnect()
        until(lambda: Control(t, server).ask("GET", "/v1/status?seconds=0.1")["clients"][0]["connections"] == 1, "one is left")
        server.connect("iso").disconnect()
        # Fewer end nobody, and let nobody in.
        reload(server, EXPORTS + rule + "1\n")
        equal(len(first.read(0, 512)), 512, "bytes read")
        with contextlib.suppress(Refused):
            server.connect("iso")
            raise AssertionError("a second connection was let in")


@test(fairlift_only=True)
def strangers_are_told_of_once_a_minute_and_rules_that_cannot_act_at_once(t):
    config = EXPORTS + """
        [client.alice]
        uid = 4000000000
        listener = "unix:elsewhere"
        exports = ["alcie"]
        group = "/tenants/alcie"
        """
    server = t.server(config=config)
    for name in "alice", "none", "bob":
        with Session(server.address).greet() as session:
            for _ in range(5):
                refuses(session, name)
    server.says("refused:")
    lines = [line for line in server.log().splitlines() if "refused:" in line]
    equal(len(lines), 1, "lines of one user")
    contains(lines[0], f"pid {os.getpid()}, uid {os.geteuid()} asked at unix:{server.socket} for export \"alice\": no [client] allows it")
    vain = ['client.alice: there is no export "alcie"; did you mean "alice"?', 'no export is in group "/tenants/alcie" or below it; did you mean "/tenants/alice"?',
            "it does not listen at unix:", "only at unix:", "export.alice: no [client.…] allows it, so no client may open it; to allow every client of unix:"]
    server.says(*vain, f"client alice, uid 4000000000 and listener unix:{t.path('elsewhere')}: exports alcie, group /tenants/alcie")
    contains(server.control("status", "--seconds", "0.1"), vain[0])
    check = lambda text, code=2: t.run(BINARY, "serve", "--check", "--listen", f"unix:{t.path('x')}", "--config", write(t, "c.toml", EXPORTS + text), code=code)
    contains(check("[client.a]\nuid = 7\ngroup = \"/tenants\"\n", 0), "ok: 4 exports", "client a, uid 7: group /tenants")
    contains(check("[client.a]\nuid = 7\nexports = \"bob\"\n", 0), "warning: export.alice: no [client.…] allows it", f'listener = "unix:{t.path("x")}" and exports = "alice"')
    contains(check("[client.a]\nexports = \"bob\"\n"), "client.a: says not how the client is known: say uid, gid, cgroup, certificate, address, listener or token")
    contains(check("[client.a]\nuid = 7\n"), "client.a: allows nothing: add exports, the group whose exports the client may open, or control")
    contains(check("[client.a]\nuid = 7\naddress = \"10.0.0.1/8\"\ncertificate = \"bob\"\ngroup = \"x\"\n"),
             'did you mean "10.0.0.0/8"?', "takes CN=NAME", 'a group\'s path starts at the root: "/x"')
    contains(check("[client]\n"), "client: allows no client, and without any [client.NAME] every client may open every export")
    other = ["--listen", f"tcp:0.0.0.0:{free_port()}", "--insecure"]
    open_to_all = t.run(BINARY, "serve", "--check", "a=mem:1m", "b=mem:1m", *other)
    contains(open_to_all, "and each may open the exports of all 2 tenants; [client.NAME]", "1 warning")
    assert "each may open" not in t.run(BINARY, "serve", "--check", "a=mem:1m", *other), "one tenant is warned of itself"


@test(fairlift_only=True)
def a_client_whose_right_has_gone_and_which_takes_no_replies_is_dropped(t):
    rule = f"[client.me]\nuid = {os.geteuid()}\nexports = "
    timeout = "[server]\ndrain_timeout = \"1s\"\n"
    server = t.server(config=timeout + EXPORTS + rule + '["alice", "iso"]\n')
    control = Control(t, server)
    with server.connect("alice", structured=False) as deaf, server.connect("iso") as stays:
        for number in range(32):  # more than the sockets hold
            deaf.submit(READ, MIB * (number % 8), MIB)
        until(lambda: deaf.readable(0), "replies have come")
        reload(server, timeout + EXPORTS + rule + '["iso"]\n', 'client "me"')
        until(lambda: control.ask("GET", "/v1/exports/alice")["connections"] == 0, "the one that takes nothing is gone")
        equal(len(stays.read(0, 512)), 512, "bytes for a client that stays")
    server.says("dropped: no [client] allows it any more, and it takes no replies")


def is_heard(address, *failing):
    """Whether the server greets a client, which then asks for these exports and leaves."""
    with contextlib.suppress(Closed, ConnectionError), Session(address).greet() as session:
        for name in failing:
            refuses(session, name)
        return True
    return False


def turned_away(control, limit):
    found = samples(scrape(control)[0])
    return found["fairlift_clients_turned_away_total", f'limit="{limit}"']


@test(fairlift_only=True)
def an_address_whose_clients_fail_is_not_heard_for_a_while_and_others_are(t):
    port = free_port()
    limits = "[server]\nhandshake_failures = 1\n"
    server = t.server(listen=[f"unix:{t.path('s0')}", f"tcp:127.0.0.1:{port}"], config=limits + EXPORTS + "[client.alice]\naddress = \"127.0.0.2\"\ngroup = \"/tenants/alice\"\n")
    control, at, source = Control(t, server), ("127.0.0.1", port), ["127.0.0.1"]
    dial = lambda address, timeout=20: socket.create_connection(address, timeout, (source[0], 0)) if address == at else nbdclient_dial(address, timeout)
    nbdclient_dial = nbdclient.dial
    with mock.patch.object(nbdclient, "dial", dial):
        tries = 0
        while is_heard(at, "bob"):
            tries += 1
            assert tries < 1000, "a thousand failures, and it is still heard"
        assert tries >= 10, f"only {tries} failures were heard"
        source[0] = "127.0.0.2"
        for _ in range(50):  # one that opens what it may comes as often as it likes
            Client(at, "alice").disconnect()
        assert is_heard(at), "another address is not heard"
        source[0] = "127.0.0.1"
        until(lambda: is_heard(at), "its debt is paid off")
    assert turned_away(control, "failures") > 0, "nothing is counted"
    server.says("turned away")
    lines = [line for line in server.log().splitlines() if "turned away" in line]
    equal(len(lines), 1, "lines of one address")
    contains(lines[0], "tcp:127.0.0.1:", "too many of its handshakes have failed (handshake_failures)")


@test(fairlift_only=True)
def one_address_does_not_take_all_places_of_those_who_negotiate(t):
    port = free_port()
    server = t.server("disk=mem:1m", listen=[f"unix:{t.path('s0')}", f"tcp:127.0.0.1:{port}"], config="[server]\nmax_connections = 8\n")
    control, at = Control(t, server), ("127.0.0.1", port)
    silent = [Session(at).greet() for _ in range(4)]  # half of the places
    assert not is_heard(at), "a fifth is heard"
    with mock.patch.object(nbdclient, "dial", lambda address, timeout=20: socket.create_connection(address, timeout, ("127.0.0.2", 0))):
        Client(at, "disk").disconnect()
    equal(turned_away(control, "clients"), 1, "turned away")
    silent.pop().go("disk")  # it has its export, and negotiates no more
    until(lambda: is_heard(at), "another is heard")
    for each in silent:
        each.close()


@test(fairlift_only=True)
def a_stranger_sends_so_many_bytes_and_no_more(t):
    server = t.server("disk=mem:1m", config="[server]\nhandshake_bytes = \"512k\"\n")
    with Session(server.address).greet() as session:
        with contextlib.suppress(ConnectionError):
            for _ in range(64):  # passed over, as an option of which there is no end
                session.send_option(999, bytes(32 * KIB), length=0xFFFFFFFF)
        session.wait_for_close(60)
    equal(turned_away(Control(t, server), "bytes"), 1, "turned away")
    server.serves("disk")


@test(fairlift_only=True)
def the_names_asked_for_in_one_packet_are_told_together(t):
    exports = "".join(f'[export.disk{number}]\nbacking = "null:1m"\ngroup = "/t{number % 2}"\n' for number in range(1000))
    server = t.server(config=EXPORTS + exports + f'[client.me]\nuid = {os.geteuid()}\ngroup = "/t1"\n')
    names = [b"bob", b"bbo", b"disk2", *(b"disk%d" % (2 * number) for number in range(250)), b"disk1"]
    with Session(server.address).greet() as session:
        session.send(b"".join(struct.pack(">QIII", nbdclient.OPTION_MAGIC, INFO, 4 + len(name) + 2, len(name)) + name + b"\0\0" for name in names))
        for name in names[:-1]:
            kind, answer = session.option_reply(INFO)
            equal((kind, b"LIST shows the 500 there are" in answer), (ERR_UNKNOWN, True), f"the answer to {name}")
        equal(session.option_reply(INFO)[0], REP_INFO, "the answer to the last")
    server.says('for export "bob": no [client] allows it, "bbo": there is none, "disk2": no [client] allows it, and 250 more names')


if __name__ == "__main__":
    main()


# ---- virtual machines ----


def is_let_in(place):
    """Whether the server has a front-end in, and does not close its connection."""
    with contextlib.suppress(Gone, ConnectionError, PermissionError), FrontEnd(place) as guest:
        return guest.read(0, 512) is not None
    return False


def until_left(server, *exports):
    """Waits until nobody is at these exports: an export's place for a guest is free then."""
    ask = lambda: Control(server.t, server).ask("GET", "/v1/exports")
    until(lambda: not any(export["connections"] for export in ask() if export["name"] in exports), "all have left")


@contextlib.contextmanager
def acting_as(uid, gid):
    """Connections of the block are this user's and this group's."""
    os.setegid(gid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def guests(t, alice="", bob="", slow="mem:8m"):
    """Two exports with a socket for virtual machines each, and their places."""
    places = [t.path("alice.vm"), t.path("bob.vm")]
    written = lambda name, backing, place: f'[export.{name}]\nbacking = "{backing}"\ngroup = "/tenants/{name}"\nvhost_user = "{place}"\n'
    return written("alice", "mem:8m", places[0] + alice) + written("bob", slow, places[1] + bob), *places


@test(fairlift_only=True)
def a_right_that_a_guest_has_no_more_ends_its_device_once_it_is_answered(t):
    config, alice, bob = guests(t, slow="null:8m,delay=3s")
    rule = lambda *exports, more="": config + f"[client.vm]\nuid = {os.geteuid()}\nexports = {json.dumps(exports)}\n{more}"
    server = t.server(config=config)
    with FrontEnd(alice) as stays, FrontEnd(bob) as goes:
        for number in range(2):
            ring = goes.rings[0]
            slots = [ring.submit(IN, 1000 * each, length=4096) for each in range(8)]
            ring.kick()
            has_ended = lambda: ring.word(ring.used + 2).value != ring.seen
            until(lambda: in_flight(server) >= 8 or has_ended(), "all are in the disk, or were")
            reload(server, rule("alice"), "client")
            assert goes.is_closed(30), "the device of a guest that no rule allows was kept"
            equal([status for status, _ in (ring.finish(slot) for slot in slots)], [OK] * 8, "what was asked before")
            equal(len(ring.ends()), 8, "requests that the guest was told of")
            equal([is_let_in(bob), is_let_in(bob), is_let_in(bob)], [False] * 3, "whether it comes in again")
            stays.write(number, bytes([7]) * 512)
            equal(stays.rings[0].status, OK, "a write of one that stays")
            reload(server, rule("alice", "bob"))
            goes = FrontEnd(bob)
        goes.socket.close()
    server.says("refused:", 'closed: no [client] allows it any more client="pid', 'export="bob"')
    lines = [line for line in server.log().splitlines() if "refused:" in line]
    equal(len(lines), 1, "lines of one user")
    contains(lines[0], f"pid {os.getpid()}, uid {os.geteuid()} asked at unix:{bob} for export \"bob\": no [client] allows it")


@test(fairlift_only=True)
def a_guest_that_may_only_read_is_told_so_and_held_to_it(t):
    config, alice, bob = guests(t)
    rule = lambda words: config + f'[client.vm]\nlistener = "unix:{alice}"\ngroup = "/tenants/alice"\n{words}\n'
    server = t.server(config=rule("read_only = true"))
    server.says(f"export.bob: no virtual machine can use unix:{bob}: no [client.NAME] allows its export")
    writes = lambda guest: (guest.write(0, b"x" * 512), guest.rings[0].status)[1]
    with FrontEnd(alice) as guest:
        equal(guest.offered & (RO | DISCARD | ZEROES), RO, "what it is offered")
        equal((writes(guest), guest.read(0, 512)), (FAILED, bytes(512)), "a write, and what is there")
        reload(server, rule("read_only = false"), "client")
        until(lambda: writes(guest) == OK, "it may write")
    # It may write by one rule, and by the other no more, while it is there and when it comes again.
    until_left(server, "alice")
    with FrontEnd(alice) as guest:
        equal(guest.offered & (RO | DISCARD | ZEROES), DISCARD | ZEROES, "what it is offered")
        reload(server, rule("read_only = true"), "client")
        until(lambda: writes(guest) == FAILED, "it may not write any more")
        chosen = guest.features
    until_left(server, "alice")
    with FrontEnd(alice, start=False) as again:
        equal(again.number(1) & RO, RO, "what it is offered")
        again.send(SET_FEATURES, struct.pack("=Q", chosen))
        equal(again.number(1) & RO, RO, "it is served though it has chosen what was offered before")
    # Guests and NBD clients count together.
    reload(server, config + f"[client.me]\nuid = {os.geteuid()}\nexports = \"alice\"\nmax_connections = 1\n")
    with server.connect("alice") as client:
        assert not is_let_in(alice), "a second connection was let in"
        server.says('for export "alice": it has as many connections as it may have')
        client.disconnect()
    until(lambda: is_let_in(alice), "it has room")
    until_left(server, "alice")
    with FrontEnd(alice) as guest:
        guest.read(0, 512)
        until(lambda: "1 exports alice" in " ".join(server.control("status", "--seconds", "0.1").split()), "it counts")
        with contextlib.suppress(Refused):
            server.connect("alice")
            raise AssertionError("a second connection was let in")


@test(fairlift_only=True)
def the_socket_of_a_guest_lets_in_who_it_says_and_the_rules_say_to_what(t):
    if os.geteuid() != 0:
        t.skip("only root can be another user")
    config, alice, bob = guests(t, alice=",mode=0660,owner=2001,group=2002", bob=",mode=0666")
    os.chmod(t.dir, 0o711)
    server = t.server(config=config)
    of = lambda place: (os.stat(place).st_mode & 0o777, os.stat(place).st_uid, os.stat(place).st_gid)
    equal([of(alice), of(bob)], [(0o660, 2001, 2002), (0o666, 0, 0)], "mode, owner and group")
    equal(json.loads(server.control("get", "export", "alice", "--json"))["vhost_user"], f"{alice},mode=0660,owner=2001,group=2002", "as it is shown")
    users = [(0, 0), (2001, 2001), (2003, 2002), (2003, 2003)]

    def let_in(place):
        found = []
        for user in users:
            with acting_as(*user):
                found.append(is_let_in(place))
            until_left(server, "alice", "bob")
        return found

    equal([let_in(alice), let_in(bob)], [[True, True, True, False], [True] * 4], "who is let in without rules")
    reload(server, config + """
        [client.alice]
        uid = 2001
        group = "/tenants/alice"
        [client.all]
        gid = 2002
        group = "/tenants"
        """, "client")
    equal([let_in(alice), let_in(bob)], [[False, True, True, False], [False, False, True, False]], "who is let in by rules")
    server.says(f"uid 0 asked at unix:{alice} for export \"alice\": no [client] allows it", f"uid 2001 asked at unix:{bob}")
    # At the flag, and of exports that come later.
    Path(t.path("vm")).mkdir()
    other = t.server("a=mem:1m", args=["--vhost-user", f"{t.path('vm')},mode=0666,group=2002"], config="[server]\nkeep_capabilities = [\"CAP_CHOWN\", \"CAP_FOWNER\"]\n")
    other.control("add", "export", "b=mem:1m")
    other.control("add", "export", "c=mem:1m", f"vhost_user={t.path('c.vm')},owner=2001")
    equal([of(t.path(name)) for name in ("vm/a", "vm/b", "c.vm")], [(0o666, 0, 2002)] * 2 + [(0o600, 2001, 0)], "mode, owner and group")
    contains(other.control("add", "export", "d=mem:1m", f"vhost_user={t.path('d.vm')},mode=9", code=1), "mode takes an octal number such as 0660")
