#!/usr/bin/env python3
"""A real Linux kernel with TLS of its own: connections with TLS go over to another server, again and again.

The server is in the guest, its clients are here. UPGRADES=100 upgrades it so often (2 otherwise)."""

import itertools
import socket
import ssl

from linux_guest import *
from load import BLOCK, Load, goes_on
from nbdclient import READ, Client, Session
from pki import CLIENT, certificates, client_context, revoke, sign

UPGRADES = int(os.environ.get("UPGRADES") or 2)
# Of TLS, in the order in which they are loaded: the ciphers first.
TLS = ["aesni_intel", "gcm", "chacha_x86_64", "poly1305_x86_64", "chacha20poly1305", "tls"]


class Guest:
    """Commands to the guest."""

    def __init__(self, port):
        self.port = port

    def does(self, command, seconds=120):
        """Runs a command of the guest's shell; its output."""
        with socket.create_connection(("localhost", self.port), seconds) as connection:
            connection.sendall(command.encode() + b"\n")
            connection.shutdown(socket.SHUT_WR)
            said = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
        print(f"# {command.splitlines()[0]}", said, sep="\n", flush=True)
        return said

    def upgrade(self):
        """Another server is there. Where the machine is so busy that the two give up, which is after 2 s, it is tried again."""
        for _ in range(5):
            said = self.does("fairlift upgrade")
            if "serves now" in said:
                return said
            assert re.search("requests of clients had not ended in time|has ended the connection", said), f"the server was not upgraded: {said}"
        raise AssertionError("both servers gave up five times")

    def clients(self):
        return json.loads(self.does("fairlift get connection --json"))


class Stream(Load):
    """Writes and reads so much at once that records arrive in parts."""

    def work(self):
        size = 256 * KIB
        for version in itertools.cycle(range(250)):
            if self.ends:
                return
            payload = bytes([version]) * size
            self.client.write(self.first * BLOCK, payload)
            self.replies += 1
            if self.client.read(self.first * BLOCK, size) != payload:
                raise AssertionError(f"what was written in round {version} is not read")
            self.replies += 1


def one_suite(t, name, suite):
    context = client_context(t, name)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(suite)
    return context


def sends_half_a_record(client):
    """Past the client's TLS: the header of a record of 256 bytes, and 10 of these."""
    os.write(client.sock.fileno(), b"\x17\x03\x03\x01\x00" + bytes(10))


@test(seconds=600 + 10 * UPGRADES, fairlift_only=True)
def clients_with_tls_go_over_by_the_kernel(t):
    for tool in "qemu-system-x86_64", "busybox", "zstd", "openssl":
        t.tool(tool)
    place, port, orders = certificates(t), free_port(), free_port()
    for name in "alice", "bob":
        sign(t, "ca", name, f"/CN={name}", CLIENT)
    unpacked = kernel(t)
    pki = {f"/pki/{name}": f"{place}/{name}" for name in ("ca-cert.pem", "server-cert.pem", "server-key.pem")}
    initramfs.build(t.path("initramfs.gz"), unpacked, ["virtio_net", "virtio_pci", "crc32c_generic", *TLS], [BINARY],
                    {"/init": HERE / "init", "/test": HERE / "kernel_tls.sh", "/config.toml": HERE / "kernel_tls.toml", **pki})
    forwarded = f"hostfwd=tcp:127.0.0.1:{port}-:10809,hostfwd=tcp:127.0.0.1:{orders}-:9000"
    devices = ["-netdev", f"user,id=n0,{forwarded}", "-device", "virtio-net-pci,netdev=n0"]
    guest, console, ready = Guest(orders), [], threading.Event()

    def boots():
        try:
            look = lambda said: ready.set() if "GUEST-SERVES" in said() else None
            limit = 480 + 10 * UPGRADES
            console.append(boot_somehow(t, unpacked, f"disks=0/disk limit={limit}", devices, seconds=limit + 60, meanwhile=look))
        finally:
            ready.set()

    def works():
        ready.wait()
        if console:
            return  # it has ended before there was a server
        try:
            clients_live(t, guest, ("localhost", port))
        finally:
            guest.does("tail -n 60 /tmp/log; touch /tmp/over")

    at_once(boots, works)
    contains(console[0], "GUEST-RESULT disk rc=0")


def clients_live(t, guest, place):
    client = lambda name, export="a", **more: Client(place, export, tls=client_context(t, name), timeout=60, **more)
    # Without the module they are closed, as on any kernel that has none.
    with client("bob") as before:
        contains(guest.does("fairlift upgrade --dry-run"), "0 connections go over", "1 connection with TLS to be closed", "modprobe tls")
        contains(guest.upgrade(), "1 connection with TLS to be closed")
        with hung_up():
            before.read(0, 512)
    guest.does(f"for module in {' '.join(TLS)}; do modload $module; done")
    loads = [Load(place, "a", number * 256, 256, tls=tls, **dialect) for number, (tls, dialect) in enumerate((
        (client_context(t, "alice"), {"structured": False}),
        (client_context(t, "alice"), {"extended": True}),
        (one_suite(t, "bob", "ECDHE-ECDSA-AES128-GCM-SHA256"), {"structured": True}),
        (one_suite(t, "bob", "ECDHE-ECDSA-CHACHA20-POLY1305"), {"structured": False})))]
    loads.append(Stream(place, "a", 1024, 64, tls=client_context(t, "bob")))
    goes_on(loads, 20)
    contains(guest.does("fairlift upgrade --dry-run"), "5 connections go over, 5 of them with TLS, by the kernel's", "a new server could take over")
    negotiates = Session(place, timeout=60).greet()
    negotiates.start_tls(client_context(t, "bob"))
    for _ in range(UPGRADES):
        guest.upgrade()
        goes_on(loads, 20)
    equal({name for name, _ in negotiates.list()}, {"a", "slow"}, "what one is shown that came before it negotiated")
    negotiates.close()
    # A request of another disk does not end: the servers give up after 2 s, and the old one goes on by the kernel's TLS.
    newcomer = Load(place, "a", 1280, 64, tls=client_context(t, "bob"))
    loads.append(newcomer)
    goes_on(loads, 5)
    with client("bob", "slow") as waits:
        guest.does("printf '[[fault]]\\nhang = true\\n' >/tmp/rules.toml; fairlift reload")
        waits.send(waits.request(READ, 0, 4096))
        until(lambda: '"in_flight": 1' in guest.does("fairlift get disk slow --json"), "it is in the disk")
        contains(guest.does("fairlift upgrade"), "requests of clients had not ended in time")
        goes_on(loads, 5)
        guest.does(": >/tmp/rules.toml; fairlift reload")
        waits.reply()
        guest.upgrade()
        goes_on(loads, 5)
    for one in loads:
        one.end()
    # A client that says goodbye leaves.
    count = len(guest.clients())
    loads[0].client.sock.settimeout(60)
    with contextlib.suppress(ssl.SSLError, OSError):
        loads[0].client.sock.unwrap()
    until(lambda: len(guest.clients()) == count - 1, "the client that said goodbye has left")
    # One whose record never ends is closed with the old server, and holds nobody up.
    half = client("bob")
    half.read(0, 4096)
    sends_half_a_record(half)
    guest.upgrade()
    contains(guest.does("grep keeps.its.keys /tmp/log"), "keeps its keys in the server: only a part of a record has arrived")
    # A client's identity goes over: alice's certificate is revoked, and only her connections are closed.
    revoke(t, "alice")
    crl = Path(f"{certificates(t)}/ca-crl.pem").read_text()
    refused = guest.does(f"cat >/pki/ca-crl.pem <<'END'\n{crl}END\nfairlift upgrade")
    contains(refused, "its certificate is revoked by now; fairlift reload, then upgrade")
    contains(guest.does("fairlift reload"), "revoked certificates: other lists, 1")
    equal(loads[1].client.wait_for_close(60), 0, "bytes for one whose certificate is revoked")
    loads[1].client.sock.unwrap()  # it fails where the server did not say goodbye
    for one in loads[2:]:
        equal(len(one.client.read(one.first * BLOCK, BLOCK)), BLOCK, "what others read")
    said = guest.does("cat /tmp/log")
    equal(said.count("kernel does not take"), 0, "keys that the kernel did not take")
    contains(said, "closed: its certificate is revoked")
    for one in loads:
        one.client.close()


if __name__ == "__main__":
    main()
