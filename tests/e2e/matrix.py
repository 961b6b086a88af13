"""Access as a matrix: every kind of client by every way to reach the server under every kind of rule, tried and compared with tables."""

import hashlib
import http.client
import itertools
import struct
from unittest import mock

import nbdclient
from access import acting_as, is_written, listed, until_left
from cgroup import Cgroups
from control import Control
from harness import *
from nbdclient import *
from pki import CLIENT, certificates, client_context, sign
from vhostclient import DISCARD_IT, FLUSH_IT, OK, OUT, RO, FrontEnd, Gone

# Whom a rule fits that knows its client by something, at each front: the client that it is for, by what it shows there; and where the rule
# names the socket of a guest, whoever comes by it.
FITS = """
known-by        unix      tcp       tls       guest
uid             client    -         -         client
gid             client    -         -         client
cgroup          client    -         -         client
certificate     -         -         client    -
address         -         client    client    -
listener        client    client    client    -
guest's-socket  -         -         -         all
uid+address     -         -         -         -
uid+listener    client    -         -         -
"""

# What the client may that a rule fits, of alice's export. Nobody may more of bob's than its column says.
MAY = """
rule              lists     open   read   write   flush   trim   bob's
allowed           alice     yes    yes    yes     yes     yes    no
read_only         alice     yes    yes    no      yes     no     no
allowed+reads     alice     yes    yes    yes     yes     yes    no
group             alice     yes    yes    yes     yes     yes    no
group-above       both      yes    yes    yes     yes     yes    yes
other's-export    bob       no     -      -       -       -      yes
other's-group     bob       no     -      -       -       -      yes
nobody's          -         no     -      -       -       -      no
no-rule-at-all    both      yes    yes    yes     yes     yes    yes
"""

# What a client may at the control socket whose rule says so there: of its own group, of all, and what its metrics have of the neighbour.
ROLES = """
control         sees    sees-all   metrics   of-bob's   sets-delegated   resizes   changes   page
none            no      no         no        -          no               no        no        yes
tenant          yes     no         yes       no         yes              no        no        yes
see             yes     yes        yes       yes        no               no        no        yes
change          yes     yes        yes       yes        yes              yes       yes       yes
"""

# Whom such a rule fits at each place of control: the client that it is for, by what it shows there.
CONTROL_FITS = """
known-by       unix      tls
uid            client    -
gid            client    -
cgroup         client    -
certificate    -         client
address        -         client
token          client    client
uid+address    -         -
"""

SAYS = {
    "allowed": ['exports = "alice"'],
    "read_only": ['exports = "alice"\nread_only = true'],
    "allowed+reads": ['exports = "alice"\nread_only = true', 'group = "/tenants/alice"'],
    "group": ['group = "/tenants/alice"'],
    "group-above": ['group = "/tenants"'],
    "other's-export": ['exports = ["bob"]'],
    "other's-group": ['group = "/tenants/bob"'],
}

# The client that rules are for; one that no rule knows; the operator, whom none knows either.
USERS = {"client": (2001, 2002), "stranger": (2003, 2003), "operator": (0, 0)}
ADDRESSES = {"client": "127.0.0.2", "stranger": "127.0.0.3", "operator": "127.0.0.1"}
NAMES = {"client": "alice", "stranger": "client", "operator": "client"}


def table(text):
    """{first column: {header: cell}}"""
    head, *rows = [line.split() for line in text.strip().splitlines()]
    return {row[0]: dict(zip(head[1:], row[1:], strict=True)) for row in rows}


class Fronts:
    """A server with every front. Of listeners there are two of each kind, by the second of which the client comes whom rules know by it; a third
    unix socket is for clients of a load."""

    def __init__(self, t):
        self.t = t
        if os.geteuid() != 0:
            t.skip("only root can be another user")
        place, ports = certificates(t), [free_port() for _ in range(5)]
        sign(t, "ca", "alice", "/CN=alice", CLIENT)
        self.context = {name: client_context(t, name) for name in ("alice", "client")}
        self.places = {"unix": [t.path("a"), t.path("b"), t.path("c")], "tcp": [("127.0.0.1", port) for port in ports[:2]],
                       "tls": [("127.0.0.1", port) for port in ports[2:4]]}
        self.control = ("127.0.0.1", ports[4])
        self.doors = {name: t.path(f"{name}.vm") for name in ("alice", "bob")}
        os.chmod(t.dir, 0o711)
        self.exports = ""
        for name in "alice", "bob":
            self.exports += f'[export.{name}]\nbacking = "mem:1m"\ngroup = "/tenants/{name}"\nvhost_user = "{self.doors[name]},mode=0666"\n'
        listen = [f"unix:{path},mode=0666" for path in self.places["unix"]]
        listen += [f"tcp:127.0.0.1:{port}" for port in ports[:2]] + [f"tcp:127.0.0.1:{port},tls=require" for port in ports[2:4]]
        self.server = t.server(config=self.exports, listen=listen, wait=False, args=[
            "--tls-certificates", place, "--tls", "off", "--tls-verify-peer", "--control", f"unix:{t.path('s')}.control.sock,mode=0666",
            "--control", f"tcp:127.0.0.1:{ports[4]},certificates={place}"])
        self.server.socket = t.path("s")
        # The process of the test is in the client's cgroup, and others come from another.
        self.asks_for_cgroups = False
        try:
            self.cgroups = Cgroups(t, "client", "stranger")
            self.cgroups.enter("client")
        except Skip as why:
            print(f"without clients known by their cgroup: {why}")
            self.cgroups = None
        for path in *self.places["unix"], *self.doors.values(), t.path("s.control.sock"):
            until_listening(path, "the server")

    def rules(self, *tables):
        """Has these rules in force."""
        text = "".join(f"[client.rule{number}]\n{said}\n" for number, said in enumerate(tables))
        Path(self.t.path("server0.toml")).write_text(self.exports + text)
        self.server.control("reload")
        self.asks_for_cgroups = "cgroup = " in text

    def table(self, text):
        """A table, without what cannot be tried here."""
        rows = table(text)
        return rows if self.cgroups else {by: row for by, row in rows.items() if by != "cgroup"}

    @contextlib.contextmanager
    def process_of(self, who):
        """Connections of the block are of a process of this client."""
        is_elsewhere = who != "client" and self.asks_for_cgroups
        with self.cgroups.within("stranger", "client") if is_elsewhere else contextlib.nullcontext(), acting_as(*USERS[who]):
            yield

    def known(self, by):
        """Rules, each with how the client is known, of one that is known by something."""
        uid, gid = USERS["client"]
        listener = f'listener = "unix:{self.places["unix"][1]}"'
        second = [f'listener = "tcp:{at[1][0]}:{at[1][1]}"' for at in (self.places["tcp"], self.places["tls"])]
        address = f'address = "{ADDRESSES["client"]}"'
        cgroup = f'cgroup = "{self.cgroups.path("client")}"' if self.cgroups else ""
        return {"uid": [f"uid = {uid}"], "gid": [f"gid = {gid}"], "cgroup": [cgroup], "certificate": ['certificate = "CN=alice"'], "address": [address],
                "listener": [listener, *second], "guest's-socket": [f'listener = "unix:{door}"' for door in self.doors.values()],
                "uid+address": [f"uid = {uid}\n{address}"], "uid+listener": [f"uid = {uid}\n{listener}"]}[by]

    @contextlib.contextmanager
    def come(self, who, front, second):
        """The session of a client that has come by a listener, and has been let in as far as TLS."""
        place = self.places[front][second]
        dial = lambda address, timeout=20: socket.create_connection(address, timeout, (ADDRESSES[who], 0))
        with self.process_of(who) if front == "unix" else mock.patch.object(nbdclient, "dial", dial):
            session = Session(place).greet()
        with session:
            if front == "tls":
                session.start_tls(self.context[NAMES[who]])
            yield session


def answer(ask):
    """Whether something was done, or refused for want of a right."""
    try:
        ask()
        return "yes"
    except NbdError as refusal:
        equal(refusal.errno, EPERM, "the answer")
        return "no"


def by_nbd(server, who, front, second):
    """A row of `MAY`, as it is."""
    with server.come(who, front, second) as session:
        names = listed(session)
    lists = {"": "-", "alice,bob": "both"}.get(",".join(sorted(names)), ",".join(sorted(names)))
    row = {"lists": lists, "bob's": "no"} | dict.fromkeys(("read", "write", "flush", "trim"), "-")
    for export in "bob", "alice":
        with server.come(who, front, second) as session:
            try:
                session.go(export)
            except Refused as refusal:
                equal(refusal.code, ERR_UNKNOWN, f"the answer to GO {export}")
                row["bob's" if export == "bob" else "open"] = "no"
                continue
            row["bob's" if export == "bob" else "open"] = "yes"
            if export == "alice":
                before = session.read(0, 4096)
                row["read"] = "yes"
                piece = data(4096, who, front, before)
                row["write"] = answer(lambda: session.write(0, piece))
                row["flush"] = answer(session.flush)
                equal(session.read(0, 4096), piece if row["write"] == "yes" else before, "what is there after the write")
                row["trim"] = answer(lambda: session.trim(4096, 4096))
                equal(bool(session.read_only), row["write"] == "no", "read-only, as it was told")
    return row


def by_guest(server, who):
    """The same of a virtual machine's process, which has no list."""
    row = {"open": "no", "bob's": "no"} | dict.fromkeys(("read", "write", "flush", "trim"), "-")
    for export in "bob", "alice":
        until_left(server.server, export)
        with contextlib.suppress(Gone, ConnectionError), contextlib.ExitStack() as stack:
            with server.process_of(who):
                guest = stack.enter_context(FrontEnd(server.doors[export]))
            did = lambda *request, **more: (ring.request(*request, **more), "yes" if ring.status == OK else "no")[1]
            ring = guest.rings[0]
            before = guest.read(0, 4096)
            row["bob's" if export == "bob" else "open"] = "yes"
            if export == "alice":
                row["read"] = "no" if before is None else "yes"
                piece = data(4096, who, before)
                row["write"] = did(OUT, 0, piece)
                row["flush"] = did(FLUSH_IT)
                equal(guest.read(0, 4096), piece if row["write"] == "yes" else before, "what is there after the write")
                row["trim"] = did(DISCARD_IT, 0, struct.pack("<QII", 8, 8, 0))
                equal(bool(guest.offered & RO), row["write"] == "no", "read-only, as it was told")
    return row


@test(fairlift_only=True, seconds=300)
def each_client_by_each_front_under_each_rule_may_what_the_tables_say(t):
    server, may = Fronts(t), table(MAY)
    fits = server.table(FITS)
    fronts = list(fits["uid"])
    tried = 0
    wrong = []
    # By what a client is known makes no difference where no rule says so.
    rules = [(by, rule) for by, rule in itertools.product(fits, may) if by == "uid" or rule in SAYS]
    for by, rule in rules:
        if rule == "no-rule-at-all":
            server.rules()
        elif rule == "nobody's":
            server.rules('uid = 4000000000\ngroup = "/tenants"')
        else:
            server.rules(*("\n".join(both) for both in itertools.product(server.known(by), SAYS[rule])))
        for who, front in itertools.product(USERS, fronts):
            fit = fits[by][front] in (who, "all") or rule in ("nobody's", "no-rule-at-all")
            wanted = dict(may[rule if fit else "nobody's"])
            if front == "guest":
                del wanted["lists"]
                found = by_guest(server, who)
            else:
                found = by_nbd(server, who, front, "listener" in by and who == "client")
            tried += len(found)
            wrong += [f"a client known by {by}, the rule {rule}: {who} at {front}: wanted {wanted}, found {found}"] * (wanted != found)
    equal(wrong, [], f"cells of {tried} that are otherwise")
    equal(tried, len(rules) * len(USERS) * (7 * 3 + 6), "cells that were tried")


def right_of(rules, fits, may, who, front):
    """What a client may of alice's export and of bob's by rules that are in force together: None, "read" or "write"."""
    rights = {"alice": None, "bob": None}
    for by, rule in rules:
        if fits[by][front] in (who, "all"):
            gives = may[rule]
            if gives["open"] == "yes" and rights["alice"] != "write":
                rights["alice"] = "write" if gives["write"] == "yes" else "read"
            if gives["bob's"] == "yes":
                rights["bob"] = "write"
    return rights


@test(fairlift_only=True, seconds=300)
def random_rules_hold_under_load_for_those_who_are_there_and_those_who_come(t):
    """Sets of these rules, one after the other, while a client of another export reads and writes and must not notice."""
    server, may = Fronts(t), table(MAY)
    fits = server.table(FITS)
    server.exports += '[export.busy]\nbacking = "mem:1m"\ngroup = "/busy"\n'
    busy = f'listener = "unix:{server.places["unix"][2]}"\nexports = "busy"'
    server.rules(busy)
    done, stop = [0], threading.Event()

    def load():
        with Client(server.places["unix"][2], "busy") as client:
            while not stop.is_set():
                piece = data(4096, done[0])
                client.write(4096 * (done[0] % 256), piece)
                equal(client.read(4096 * (done[0] % 256), 4096), piece, "what was just written")
                done[0] += 1

    def round_of(there):
        rules = [(t.random.choice(list(fits)), t.random.choice(list(SAYS))) for _ in range(t.random.choice([1, 1, 2, 3, 5]))]
        server.rules(busy, *("\n".join(both) for by, rule in rules for both in itertools.product(server.known(by), SAYS[rule])))
        rights = {(who, front): right_of(rules, fits, may, who, front) for who in USERS for front in fits["uid"]}
        for front, session in there.items():
            right = rights["client", front]["alice"]
            if front != "guest" and not right:
                session.wait_for_close(60)
            elif front != "guest":
                until(lambda: is_written(session) == (right == "write"), f"the client at {front} may {right} by {rules}")
            elif not right:
                assert session.is_closed(20), f"the device of a guest was kept by {rules}"
            else:
                may_write = lambda: (session.write(0, data(512)), session.rings[0].status == OK)[1]
                until(lambda: may_write() == (right == "write"), f"the guest may {right} by {rules}")
            session.__exit__()
        for (who, front), right in rights.items():
            wanted = may[{"write": "allowed", "read": "read_only", None: "nobody's"}[right["alice"]]] | {"bob's": "yes" if right["bob"] else "no"}
            wanted["lists"] = {(False, False): "-", (True, False): "alice", (False, True): "bob", (True, True): "both"}[bool(right["alice"]), bool(right["bob"])]
            if front == "guest":
                del wanted["lists"]
            found = by_guest(server, who) if front == "guest" else by_nbd(server, who, front, who == "client")
            equal(found, wanted, f"{who} at {front} by {rules}")
        there = {}
        until_left(server.server, "alice")
        for front in sorted(fits["uid"], key=lambda front: front != "guest"):
            if rights["client", front]["alice"]:
                there[front] = held.enter_context(guest_of(server) if front == "guest" else server.come("client", front, True))
                if front != "guest":
                    there[front].go("alice")
        return there

    def changes():
        try:
            there, kept = {}, 0
            for _ in range(30):
                there = round_of(there)
                kept += len(there)
            assert kept > 10, f"{kept} sessions were there when rules changed"
        finally:
            stop.set()

    with contextlib.ExitStack() as held:
        at_once(load, changes)
    assert done[0] > 100, f"{done[0]} requests of the load"


def guest_of(server):
    """The client's virtual machine at alice's export."""
    with server.process_of("client"):
        return FrontEnd(server.doors["alice"])


TOKEN = "a token that nobody guesses"


class AtControl(http.client.HTTPConnection):
    """A client of control that has connected: at the unix socket, or with its certificate."""

    def __init__(self, server, who, place):
        super().__init__("localhost", timeout=30)
        if place == "unix":
            with server.process_of(who):
                self.sock = nbdclient.dial(f"{server.server.socket}.control.sock")
                self.ask("/")  # it counts where it is when the server looks
        else:
            sock = socket.create_connection(server.control, 30, (ADDRESSES[who], 0))
            self.sock = server.context[NAMES[who]].wrap_socket(sock, server_hostname="localhost")

    def ask(self, route, method="GET", body=None, token=""):
        """The status of an answer, and its bytes."""
        self.request(method, route, json.dumps(body) if body else None, {"Authorization": f"Bearer {token}"} if token else {})
        answer = self.getresponse()
        return answer.status, answer.read()


def by_control(server, who, place, token, weight):
    """A row of `ROLES`, as it is."""
    with contextlib.closing(AtControl(server, who, place)) as client:
        answers = {200: "yes", 401: "no", 403: "no"}
        allowed = lambda *request: answers[client.ask(*request, token=token)[0]]
        status, metrics = client.ask("/metrics", token=token)
        os.truncate(server.image, os.path.getsize(server.image) + 4096)
        row = {
            "sees": allowed("/v1/exports/alice"),
            "sees-all": allowed("/v1/disks"),
            "metrics": answers[status],
            "of-bob's": "-" if status != 200 else "yes" if b"bob" in metrics else "no",
            "sets-delegated": allowed("/v1/groups/tenants/alice", "PATCH", {"weight": weight}),
            "resizes": allowed("/v1/exports/grows", "PATCH", {"size": "auto"}),
            "changes": allowed("/v1/groups/tenants/bob", "PATCH", {"weight": weight}),
            "page": allowed("/"),
        }
    return row


@test(fairlift_only=True, seconds=300)
def each_client_of_control_may_what_its_role_says(t):
    server, roles = Fronts(t), table(ROLES)
    fits = server.table(CONTROL_FITS)
    server.image = t.image("grows.img", MIB)
    server.exports += f'[group."/tenants/alice"]\ndelegate = ["weight"]\n[export.grows]\nbacking = "{server.image}"\ngroup = "/tenants/alice"\n'
    digest = "sha256:" + hashlib.sha256(TOKEN.encode()).hexdigest()
    weights, tried = itertools.cycle([200, 300]), 0
    size = lambda: Control(t, server.server).ask("GET", "/v1/exports/grows")["size"]
    for by, role in itertools.product(fits, [*roles, "no-rule-at-all"]):
        how = f'token = "{digest}"' if by == "token" else server.known(by)[0]
        said = "" if role == "no-rule-at-all" else f'control = "{role}"\n'
        server.rules(*([f'{how}\n{said}group = "/tenants/alice"'] if said or by != "token" else []))
        for who, place in itertools.product(USERS, ("unix", "tls")):
            before = size()
            found = by_control(server, who, place, TOKEN if by == "token" and who == "client" else "", next(weights))
            is_bound = role != "no-rule-at-all" and (who, place) != ("operator", "unix")
            wanted = roles["change" if not is_bound else role if who == fits[by][place] else "none"]
            equal(found, wanted, f"{who} at {place}, of a client known by {by} with the role {role}")
            equal(size() > before, wanted["resizes"] == "yes", f"whether the export has grown, which {who} at {place} asked for")
            tried += len(found)
    equal(tried, len(fits) * (len(roles) + 1) * len(USERS) * 2 * 8, "cells that were tried")


if __name__ == "__main__":
    main()
