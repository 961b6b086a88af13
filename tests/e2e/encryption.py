"""TLS: who is let in, and that nothing is told before."""

import ssl
import struct

from control import Control
from harness import *
from nbdclient import *
from pki import *


def tls_server(t, mode, *exports, verify=False):
    port = free_port()
    arguments = ["--tls", mode, "--tls-certificates", certificates(t), *(["--tls-verify-peer"] if verify else [])]
    return t.server(*(exports or ["disk=mem:64M"]), listen=[f"tcp:127.0.0.1:{port}"], args=arguments)


def nbds(t, server, export="disk", place=None):
    host = server.address[1]
    return f"nbds://localhost:{host}/{export}?tls-certificates={place or certificates(t)}"


@test(fairlift_only=True)
def nbdinfo_and_nbdcopy_come_in_by_tls(t):
    server = tls_server(t, "require")
    equal(t.run("nbdinfo", "--size", nbds(t, server)).strip(), str(64 * MIB))
    contains(t.run("nbdinfo", nbds(t, server)), "TLS")
    original = t.image("original", 64 * MIB, (0, data(20 * MIB)), (50 * MIB, data(MIB)))
    t.run("nbdcopy", "--connections=2", original, nbds(t, server))
    t.run("nbdcopy", "--connections=2", nbds(t, server), t.path("copy"))
    equal(sha256(t.path("copy")), sha256(original), "the hash of the copy")


@test(fairlift_only=True)
def qemu_comes_in_by_tls(t):
    server = tls_server(t, "require")
    credentials = f"tls-creds-x509,id=tls0,endpoint=client,dir={qemu_directory(t)}"
    image = f"driver=nbd,host=localhost,port={server.address[1]},export=disk,tls-creds=tls0"
    contains(t.run("qemu-img", "info", "--object", credentials, "--image-opts", image), "64 MiB")
    original = t.image("original", 64 * MIB, (MIB, data(3 * MIB)))
    t.run("qemu-img", "convert", "-n", "--object", credentials, "--target-image-opts", original, image)
    t.run("qemu-img", "compare", "--object", credentials, "--image-opts", f"driver=raw,file.filename={original}", image)


def qemu_directory(t):
    """QEMU's names for the same certificates."""
    place = t.path("qemu")
    os.mkdir(place)
    for name in "ca-cert.pem", "client-cert.pem", "client-key.pem":
        shutil.copy(f"{certificates(t)}/{name}", place)
    return place


@test(fairlift_only=True)
def where_tls_is_required_a_plaintext_client_is_refused(t):
    server = tls_server(t, "require")
    plain = f"nbd://127.0.0.1:{server.address[1]}/disk"
    t.run("nbdinfo", "--size", plain, code=1)
    contains(t.run("qemu-img", "info", plain, code=1), "TLS")
    with Session(server.address).greet() as session:
        with hung_up():
            session.export_name("disk")


@test(fairlift_only=True)
def nothing_is_told_before_tls(t):
    server = tls_server(t, "require", "secret-name=mem:64M", "other-secret=mem:1M")
    with Session(server.address).greet() as session:
        name = b"\0\0\0\x0bsecret-name"
        for option, payload in ((LIST, b""), (INFO, name + b"\0\0"), (GO, name + b"\0\0"), (INFO, b"\0\0\0\2no\0\0"),
                                (STRUCTURED_REPLY, b""), (LIST_META, name + bytes(4)), (SET_META, name + bytes(4)),
                                (EXTENDED_HEADERS, b""), (99, b"")):
            try:
                session.option(option, payload)
                raise AssertionError(f"option {option} was answered before TLS")
            except Refused as refusal:
                equal(refusal.code, ERR_TLS_REQD, f"the answer to option {option}")
                assert "secret" not in refusal.message, refusal.message
        session.start_tls(client_context(t))
        equal({name for name, _ in session.list()}, {"secret-name", "other-secret"}, "what is listed after TLS")


@test(fairlift_only=True)
def where_tls_is_optional_both_are_served(t):
    server = tls_server(t, "on")
    equal(t.run("nbdinfo", "--size", nbds(t, server)).strip(), str(64 * MIB))
    equal(t.run("nbdinfo", "--size", f"nbd://127.0.0.1:{server.address[1]}/disk").strip(), str(64 * MIB))
    with server.connect("disk", tls=client_context(t)) as inside, server.connect("disk") as outside:
        inside.write(0, data(MIB))
        assert outside.read(0, MIB) == data(MIB), "what the plain client reads"


@test(fairlift_only=True)
def where_tls_is_off_it_is_refused_and_the_client_may_go_on(t):
    server = t.server("disk=mem:1M", listen=[f"tcp:127.0.0.1:{free_port()}"])
    with Session(server.address).greet() as session:
        try:
            session.option(STARTTLS)
            raise AssertionError("STARTTLS was accepted")
        except Refused as refusal:
            assert refusal.code in (ERR_POLICY, ERR_UNSUP), str(refusal)
        session.go("disk")


@test(fairlift_only=True)
def a_client_needs_a_certificate_of_the_right_authority_if_so_said(t):
    server = tls_server(t, "require", verify=True)
    equal(t.run("nbdinfo", "--size", nbds(t, server)).strip(), str(64 * MIB))
    with server.connect("disk", tls=client_context(t, "client")) as client:
        equal(len(client.read(0, 512)), 512, "bytes read with a certificate")
    for name in None, "stranger":
        try:
            with server.connect("disk", tls=client_context(t, name)) as client:
                client.read(0, 512)
        except (ssl.SSLError, Closed, ConnectionError):
            continue
        raise AssertionError(f"a client with the certificate of {name or 'nobody'} was let in")
    t.run("nbdinfo", "--size", nbds(t, server, place=f"{certificates(t)}/anonymous"), code=1)
    server.connect("disk", tls=client_context(t, "client")).close()


@test(fairlift_only=True)
def no_session_is_resumed_where_clients_show_certificates(t):
    """A session that goes on would not have its client's certificate looked at again."""
    for verify in False, True:
        server = tls_server(t, "require", "disk=mem:1m", verify=verify)
        for version in ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3:
            context, known, resumed = client_context(t, "client"), None, []
            context.maximum_version = version
            for _ in range(2):
                with Session(server.address).greet() as session:
                    session.option(STARTTLS)
                    session.sock = context.wrap_socket(session.sock, server_hostname="localhost", session=known)
                    equal(session.list()[0][0], "disk", "the export")  # what a ticket comes before
                    known = session.sock.session
                    resumed.append(session.sock.session_reused)
            equal(resumed, [False, not verify], f"whether sessions were resumed ({version.name}, verify={verify})")
        server.stop()


@test(fairlift_only=True)
def plain_text_that_follows_starttls_is_never_used(t):
    """What an attacker on the way puts behind STARTTLS must not count as said inside TLS."""
    server = tls_server(t, "on", "disk=mem:1M")
    for injected in (struct.pack(">QII", OPTION_MAGIC, STRUCTURED_REPLY, 0),
                     struct.pack(">QII", OPTION_MAGIC, GO, 10) + b"\0\0\0\4disk\0\0", b"\0"):
        with Session(server.address).greet() as session:
            session.send(struct.pack(">QII", OPTION_MAGIC, STARTTLS, 0) + injected)
            try:
                session.option_reply(STARTTLS)
                session.sock = client_context(t).wrap_socket(session.sock, server_hostname="localhost")
                session.go("disk")
            except (ssl.SSLError, Closed, ConnectionError, AssertionError):
                continue
            raise AssertionError("a session went on after plain text behind STARTTLS")
    with server.connect("disk", tls=client_context(t)) as client:
        equal(len(client.read(0, 512)), 512, "bytes read")


@test(fairlift_only=True)
def what_was_agreed_before_tls_does_not_count_after_it(t):
    server = tls_server(t, "on")
    with Session(server.address).greet() as session:
        session.option(STRUCTURED_REPLY)
        session.meta(SET_META, "disk", "base:allocation")
        session.start_tls(client_context(t))
        session.go("disk")
        equal(len(session.read(0, 512)), 512, "bytes in a simple reply")
        with refused(EINVAL):
            session.ask(BLOCK_STATUS, 0, 4096)


@test(fairlift_only=True)
def a_second_starttls_is_refused(t):
    server = tls_server(t, "require")
    with Session(server.address).greet() as session:
        session.start_tls(client_context(t))
        try:
            session.option(STARTTLS)
            raise AssertionError("STARTTLS within TLS was accepted")
        except Refused as refusal:
            equal(refusal.code, ERR_INVALID, "the answer")
        session.go("disk")


@test(fairlift_only=True)
def tls_carries_large_and_pipelined_requests(t):
    server = tls_server(t, "require")
    with server.connect("disk", tls=client_context(t)) as client:
        piece = data(REQUEST_MAX)
        client.write(0, piece)
        assert client.read(0, REQUEST_MAX) == piece, "32 MiB come back as something else"
        for number in range(64):
            client.submit(READ, number * 64 * KIB, 64 * KIB)
        for number in range(64):
            reply = client.reply()
            at = (reply.cookie - client._cookie + 63) * 64 * KIB
            assert reply.data(at, 64 * KIB) == piece[at:at + 64 * KIB], "a pipelined read brings something else"
        client.disconnect()


@test(fairlift_only=True)
def a_connection_is_ended_in_order(t):
    """So a client knows that nothing more is done of what it asked: an end without a goodbye may come from the network."""
    server = tls_server(t, "require")
    clients = [server.connect("disk", tls=client_context(t)) for _ in range(2)]
    for client in clients:
        client.write(0, b"w" * 4096)
        client.sock.suppress_ragged_eofs = False
    clients[0].disconnect()
    server.process.send_signal(signal.SIGTERM)
    clients[1].wait_for_close(20)
    server.ended(0)


@test(fairlift_only=True)
def writes_that_come_together_with_a_goodbye_are_done(t):
    """NBD_CMD_DISC: "The server MUST handle all outstanding requests", also those beyond `connection_requests`."""
    server = t.server(config='[server]\nconnection_requests = 2\n[export.disk]\nbacking = "mem:16m"\n',
                      listen=[f"tcp:127.0.0.1:{free_port()}"], args=["--tls", "require", "--tls-certificates", certificates(t)])
    client = server.connect("disk", tls=client_context(t))
    stand_still(t, server.process)  # it is to find all of it at once
    client.send(*(client.request(WRITE, at * 4096, 4096, bytes([at + 1]) * 4096) for at in range(16)), client.request(DISC))
    client.sock.settimeout(0.1)
    with contextlib.suppress(TimeoutError):
        client.sock.unwrap()
    server.process.send_signal(signal.SIGCONT)
    with server.connect("disk", tls=client_context(t)) as other:
        until(lambda: other.read(15 * 4096, 1) == bytes([16]), "the last write is done")
        for at in range(16):
            equal(other.read(at * 4096, 4096), bytes([at + 1]) * 4096, f"write {at}")


@test(fairlift_only=True)
def replies_that_no_client_takes_count_when_encrypted(t):
    """Each of four clients leaves 32 MiB untaken. There is room for one, so they go, one after the other, and a fifth is served."""
    server = t.server(config='[server]\nworkers = 1\nmemory = "64m"\n[export.disk]\nbacking = "null:64m"\n',
                      listen=[f"tcp:127.0.0.1:{free_port()}"], args=["--tls", "require", "--tls-certificates", certificates(t)])
    before = most_resident(server)
    greedy = [server.connect("disk", tls=client_context(t)) for _ in range(4)]
    for client in greedy:
        client.submit(READ, 0, REQUEST_MAX)
    with server.connect("disk", timeout=60, tls=client_context(t)) as good:
        equal(len(good.read(0, REQUEST_MAX)), REQUEST_MAX, "bytes of a large read")
    grown = most_resident(server) - before
    assert grown < 160 * MIB, f"the server grew by {grown >> 20} MiB"
    for client in greedy:
        client.close()


def most_resident(server):
    """Bytes of RAM that the server took at most."""
    status = Path(f"/proc/{server.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) << 10


@test(fairlift_only=True)
def garbage_instead_of_a_tls_handshake_harms_nobody(t):
    server = tls_server(t, "require")
    with server.connect("disk", tls=client_context(t)) as client:
        client.read(0, 512)
    base = server.fds_at_rest()
    hello = ssl_hello(t)
    for turn in range(100):
        with Session(server.address).greet() as session:
            session.option(STARTTLS)
            with contextlib.suppress(ConnectionError):
                noise = t.random.randbytes(t.random.choice([1, 5, 300, 20000]))
                cut = t.random.randrange(len(hello))
                session.send([noise, hello[:cut], hello[:cut] + noise, b"\x16\x03\x01\xff\xff" + noise][turn % 4])
            session.close()
    with server.connect("disk", tls=client_context(t)) as client:
        equal(len(client.read(0, 512)), 512, "bytes read")
    server.fds_settle(base)


def ssl_hello(t):
    """The first bytes that a TLS client sends."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = client_context(t).wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


@test(fairlift_only=True)
def certificates_that_cannot_be_used_are_refused_by_name(t):
    place = certificates(t)
    os.mkdir(t.path("bad"))
    listen = ["--listen", f"unix:{t.path('s')}"]
    contains(t.serve_fails("disk=mem:1M", *listen, "--tls", "require"), "tls-certificates")
    contains(t.serve_fails("disk=mem:1M", *listen, "--tls", "require", "--tls-certificates", t.path("bad")), "server-cert.pem")
    shutil.copy(f"{place}/server-cert.pem", t.path("bad"))
    shutil.copy(f"{place}/client-key.pem", t.path("bad/server-key.pem"))
    contains(t.serve_fails("disk=mem:1M", *listen, "--tls", "require", "--tls-certificates", t.path("bad")), "server-key.pem")
    shutil.copy(f"{place}/server-key.pem", t.path("bad/server-key.pem"))
    contains(t.serve_fails("disk=mem:1M", *listen, "--tls", "require", "--tls-verify-peer", "--tls-certificates", t.path("bad")),
             "ca-cert.pem")


@test(fairlift_only=True)
def the_control_server_lets_in_who_shows_a_certificate(t):
    place, port = certificates(t), free_port()
    at = f"tcp:localhost:{port},certificates={place}"
    server = t.server("disk=mem:1M", args=["--control", at])
    url = f"https://localhost:{port}/v1"

    def curl(*words, name="client", code=0):
        own = ["--cert", f"{place}/{name}-cert.pem", "--key", f"{place}/{name}-key.pem"] if name else []
        return t.run("curl", "-sS", "--cacert", f"{place}/ca-cert.pem", *own, *words, code=code)

    contains(curl(url), '"version": 0')
    contains(curl(f"{url}/groups", "-X", "POST", "-d", '{"path": "/x"}'), '"path": "/x"')
    contains(curl("-H", "Origin: http://evil.example", url), "may not speak")
    # Neither nobody, nor somebody whom another authority signed, nor plain text.
    curl(url, name=None, code=56)
    curl(url, name="stranger", code=56)
    curl(url.replace("https", "http"), code=1)
    contains(t.run(BINARY, "set", "group", "/x", "weight=7", "--control", at), "weight: 7")
    shutil.copytree(place, t.path("wrong"))
    for kind in "cert", "key":
        shutil.copy(f"{place}/stranger-{kind}.pem", t.path("wrong") + f"/client-{kind}.pem")
    t.run(BINARY, "get", "--control", at.replace(place, t.path("wrong")), code=1)
    contains(t.run(BINARY, "get", "--control", at.replace(place, t.path("none")), code=1), "client-cert.pem: No such file")
    shown = t.run("openssl", "x509", "-noout", "-fingerprint", "-sha256", "-in", f"{place}/client-cert.pem")
    server.says('changed: group "/x": weight 7 (was 100)', f"certificate {shown.strip().split('=')[1][:23]}")
    says = t.serve_fails("mem:1m", "--listen", f"unix:{t.path('x')}", "--control", f"tcp:0.0.0.0:{free_port()},token={place}/server-key.pem")
    contains(says, "would cross the network in plain text")
    server.serves("disk")


@test(fairlift_only=True)
def strangers_at_the_control_server_do_not_fill_the_log(t):
    port = free_port()
    server = t.server("disk=mem:1M", args=["--control", f"tcp:127.0.0.1:{port},certificates={certificates(t)}"])
    for _ in range(50):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=10) as stranger:
            stranger.sendall(b"no handshake of TLS\r\n" * 10)
            while stranger.recv(4096):
                pass
    server.stop()
    told = server.log().count("a control connection was refused")
    assert 0 < told < 10, f"{told} lines of fifty strangers"


@test(fairlift_only=True)
def a_reload_takes_a_new_certificate_and_those_who_are_connected_stay(t):
    place, port = certificates(t), free_port()
    server = t.server(config=f"""
        [server]
        listen = "tcp:127.0.0.1:{port}"
        tls = "require"
        tls_certificates = "{place}"
        [export.disk]
        backing = "mem:1m"
        """, listen=[f"tcp:127.0.0.1:{port}"])

    def reload(says):
        before = len(server.log())
        server.process.send_signal(signal.SIGHUP)
        until(lambda: says in server.log()[before:], f"{says!r} is in the log: {server.log()[before:]}")

    def shown():
        with server.connect("disk", tls=client_context(t)) as client:
            client.read(0, 512)
            return client.sock.getpeercert()["serialNumber"]

    first = shown()
    with server.connect("disk", tls=client_context(t)) as stays:
        reload("the running configuration are the same")
        t.run("openssl", "x509", "-req", "-in", f"{place}/server.csr", "-days", "2", "-CA", f"{place}/ca-cert.pem", "-CAkey",
              f"{place}/ca-key.pem", "-CAcreateserial", "-extfile", f"{place}/server.ext", "-out", f"{place}/server-cert.pem")
        equal(shown(), first, "the certificate before a reload")
        reload("reloaded: certificates: read anew")
        second = shown()
        if second == first:
            raise AssertionError("a client that connects after the reload sees the old certificate")
        reload("the running configuration are the same")
        # A key that does not belong to it is refused, and the one that there is stays.
        shutil.copy(f"{place}/client-key.pem", f"{place}/server-key.pem")
        reload("nothing has changed")
        server.says("the key does not belong to")
        equal(shown(), second, "the certificate after a reload that was refused")
        equal(len(stays.read(0, 512)), 512, "bytes for a client that came before")


@test(fairlift_only=True)
def a_revoked_certificate_opens_nothing_and_what_it_had_open_is_closed(t):
    place, port, door = certificates(t), free_port(), free_port()
    for name in "alice", "bob":
        sign(t, "ca", name, f"/CN={name}", CLIENT)
    at, here = f"tcp:localhost:{door},certificates={place}", t.path("s0.control.sock")
    server = t.server("disk=null:8m,delay=3s", "fast=mem:1m", listen=[f"tcp:127.0.0.1:{port}"],
                      args=["--tls", "require", "--tls-certificates", place, "--tls-verify-peer", "--control", f"unix:{here}", "--control", at],
                      config="")
    control = Control(t, server, here)

    def reload(code=200):
        return json.dumps(control.ask("POST", "/v1/reload", code=code))

    def lets_in(name):
        try:
            with server.connect("fast", tls=client_context(t, name)) as client:
                return len(client.read(0, 512)) == 512
        except (ssl.SSLError, Closed, ConnectionError):
            return False

    def events(name):
        sock = client_context(t, name).wrap_socket(socket.create_connection(("localhost", door), 30), server_hostname="localhost")
        sock.sendall(f"GET /v1/events HTTP/1.1\r\nHost: localhost:{door}\r\n\r\n".encode())
        contains(sock.recv(4096).decode(), "200 OK")
        return sock

    equal([lets_in("alice"), lets_in("bob")], [True, True], "who is let in without a list")
    goes, idle, stays = (server.connect("disk", tls=client_context(t, name)) for name in ("alice", "alice", "bob"))
    watching, others = events("alice"), events("bob")
    cookies = {goes.submit(READ, 4096 * number, 4096) for number in range(16)}
    until(lambda: in_flight(server) >= 16 or goes.readable(0), "all are in the disk, or were")
    revoke(t, "alice")
    contains(reload(), "revoked certificates: other lists, 1 (were 0)", f"control tcp:127.0.0.1:{door}: other certificates")
    replies = [goes.reply() for _ in cookies]
    equal({reply.cookie for reply in replies if not reply.error}, cookies, "what was asked before and answered after")
    equal([goes.wait_for_close(60), idle.wait_for_close(60)], [0, 0], "bytes after that")
    server.says("closed: its certificate is revoked")
    equal([lets_in("alice"), lets_in("bob")], [False, True], "who is let in")
    while watching.recv(4096):  # what was told before, then its end
        pass
    curl = lambda name, code: t.run("curl", "-sS", "--cacert", f"{place}/ca-cert.pem", "--cert", f"{place}/{name}-cert.pem", "--key",
                                    f"{place}/{name}-key.pem", f"https://localhost:{door}/v1", code=code)
    curl("alice", 56), curl("bob", 0)

    # What is no list changes nothing; one that has expired lets nobody in, and those who are there stay.
    good = Path(f"{place}/ca-crl.pem").read_text()
    Path(f"{place}/ca-crl.pem").write_text("no list")
    contains(reload(422), "ca-crl.pem: no revocation list in it")
    equal([lets_in("alice"), lets_in("bob")], [False, True], "who is let in after a mistake")
    revoke(t, more=["-crl_lastupdate", "20200101000000Z", "-crl_nextupdate", "20200201000000Z"])
    contains(reload(), "ca-crl.pem has a list of", "that has expired: clients that it has signed are refused")
    equal([lets_in("alice"), lets_in("bob")], [False, False], "who is let in by an expired list")
    # An authority that is not trusted revokes nobody, and one that is must have a list.
    revoke(t, "stranger", authority="stranger-ca")
    shutil.copy(f"{place}/stranger-ca-crl.pem", f"{place}/ca-crl.pem")
    contains(reload(), "which is no authority of ca-cert.pem", "ca-crl.pem has no list of CN=Fairlift test ca")
    equal(lets_in("bob"), False, "whether one whose authority has no list is let in")
    Path(f"{place}/ca-crl.pem").write_text(good + Path(f"{place}/stranger-ca-crl.pem").read_text())
    reload()
    equal([lets_in("alice"), lets_in("bob")], [False, True], "who is let in with both lists")
    os.remove(f"{place}/ca-crl.pem")
    contains(reload(), "revoked certificates: no list, 0 (were 2)")
    equal([lets_in("alice"), lets_in("bob")], [True, True], "who is let in without a list again")
    equal(len(stays.read(0, 512)), 512, "bytes for a client that has been there all the time")
    others.settimeout(1)
    with contextlib.suppress(TimeoutError):
        while True:
            assert others.recv(4096), "the events of one who may still have ended"


if __name__ == "__main__":
    main()
