"""Roles: what each client of the control server may see and change, and that a tenant learns nothing of its neighbours."""

import contextlib
import hashlib
import http.client

from access import as_user, reload
from control import Control
from harness import *
from nbdclient import Refused, dial
from top import Terminal
from why import Load

# Names that stand nowhere else, and the pid of a neighbour's client is no part of an answer either.
ALICE = """
[disk.shared]
scheduler = "fair"
[export.alice]
backing = "null:1g,delay=5ms"
disk = "shared"
group = "/tenants/alice"
[export.alice-logs]
backing = "mem:1m"
disk = "shared"
group = "/tenants/alice/logs"
"""
EXPORTS = ALICE + """
[disk.nachbardisk]
[export.bobexport]
backing = "null:1g,delay=5ms"
description = "bobdescription"
disk = "shared"
group = "/tenants/bobgroup"
[export.bobother]
backing = "mem:1m"
disk = "nachbardisk"
group = "/tenants/bobgroup/below"
[group."/tenants/bobgroup"]
weight = 777
latency = "3ms"
"""
NEIGHBOUR = [b"bob", b"nachbar"]
DELEGATED = '[group."/tenants/alice"]\ndelegate = ["max"]\n[group."/tenants/alice/logs"]\ndelegate = ["weight"]\n'
TOKEN = "a token that nobody guesses"
ROOT = '[client.root]\nuid = 0\ngroup = "/"\n'
RULES = f"""
[client.alice]
uid = 2001
group = "/tenants/alice"
control = "tenant"
[client.watch]
token = "sha256:{hashlib.sha256(TOKEN.encode()).hexdigest()}"
control = "see"
[client.operator]
uid = 2002
control = "change"
[client.nothing]
uid = 2003
control = "none"
"""

# Asks as another user; prints the status and all bytes of the answer, of a stream those of a second.
ASK = """
import http.client, socket, sys
path, method, route, body, token = sys.argv[1:]
class Unix(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(path)
connection = Unix("localhost")
connection.request(method, route, body or None, {"Authorization": "Bearer " + token} if token else {})
answer = connection.getresponse()
out = sys.stdout.buffer
out.write(f"{answer.status}\\n{answer.headers}".encode())
out.flush()
connection.sock and answer.length is None and connection.sock.settimeout(1)
try:
    while piece := answer.read1():
        out.write(piece)
        out.flush()
except TimeoutError:
    pass
"""


def stream(t, s, uid, route):
    """An answer that is read while it comes; its status is its first line."""
    process = subprocess.Popen([*as_user(uid, uid), sys.executable, "-c", ASK.replace("settimeout(1)", "settimeout(60)"), s.socket + ".control.sock",
                                "GET", route, "", ""], stdout=subprocess.PIPE)
    t.defer(process.kill)
    return process


def server(t, more=ROOT, exports=EXPORTS):
    if os.geteuid() != 0:
        t.skip("only root can be another user")
    server = t.server(config=exports + DELEGATED + RULES + more)
    os.chmod(t.dir, 0o711)
    os.chmod(server.socket + ".control.sock", 0o666)
    return server


class As(http.client.HTTPConnection):
    """A connection to the control socket by another user: the kernel tells who connects."""

    def __init__(self, path, uid):
        super().__init__("localhost")
        os.setegid(uid)
        os.seteuid(uid)
        try:
            self.sock = dial(path)
        finally:
            os.seteuid(0)
            os.setegid(0)


def ask(server, uid, route, method="GET", body=None, token=""):
    """The status of an answer, and all of its bytes; of a stream those of a second."""
    connection = As(server.socket + ".control.sock", uid)
    connection.request(method, route, json.dumps(body) if body else None, {"Authorization": f"Bearer {token}"} if token else {})
    answer = connection.getresponse()
    found = bytearray(str(answer.headers).encode())
    if connection.sock and answer.length is None:
        connection.sock.settimeout(1)
    with contextlib.suppress(TimeoutError):
        while piece := answer.read1():
            found += piece
    connection.close()
    return answer.status, bytes(found)


def said(server, uid, route, **more):
    status, bytes = ask(server, uid, route, **more)
    equal(status, 200, f"the answer to {route}")
    return json.loads(bytes.partition(b"\n\n")[2] or bytes.partition(b"\r\n\r\n")[2])


def routes(server):
    """Each method and route of the server's own document, with names in place."""
    paths = Control(server.t, server).ask("GET", "/v1/openapi.json")["paths"]
    names = {"exports": ["alice", "bobexport"], "why": ["alice", "bobexport"], "groups": ["tenants/alice", "tenants/bobgroup"],
             "disks": ["shared", "nachbardisk"], "listeners": ["unix:x", "unix:y"], "clients": ["watch", "nothing"]}
    for path, methods in paths.items():
        kind = path.split("/")[2] if path.startswith("/v1/") else ""
        for method in methods:
            for name in names[kind] if "{" in path else [""]:
                yield method.upper(), path.replace("{name}", name), name


@test(fairlift_only=True, seconds=300)
def every_route_asks_for_its_right(t):
    s = server(t)
    allowed = {"alice": set(), "see": set(), "none": set(), "stranger": set()}
    asked = 0
    for method, path, name in routes(s):
        if (method, path) in {("POST", "/v1/stop"), ("POST", "/v1/drain"), ("POST", "/v1/acknowledge"), ("POST", "/v1/reload")}:
            body = None
        else:
            body = {"dry_run": True} if method != "GET" else None
        query = "?seconds=0.05" if method == "GET" and not path.endswith("events") else ""
        for who, uid, token in ("alice", 2001, ""), ("see", 2009, TOKEN), ("none", 2003, ""), ("stranger", 2009, "a token that somebody guesses"):
            status, _ = ask(s, uid, path + query, method, body, token)
            asked += 1
            if status not in (401, 403):
                allowed[who].add((method, path))
    page = {("GET", "/"), ("GET", "/page.css"), ("GET", "/page.js")}
    equal([allowed["none"], allowed["stranger"]], [page, page], "what clients without a role may ask for")
    equal({method for method, _ in allowed["see"]}, {"GET"}, "what one may do who may look")
    equal({path for _, path in allowed["see"]}, {path for method, path, _ in routes(s) if method == "GET"}, "what one may see who may look")
    for route in [("GET", "/v1/trace"), ("GET", "/v1/gateways"), ("GET", "/v1/disks"), ("GET", "/v1/disks/shared"), ("GET", "/v1/listeners"), ("GET", "/v1/clients"), ("GET", "/v1/clients/watch")]:
        assert route in allowed["see"] and route not in allowed["alice"], route
    # Without a key nothing is set, which is in no group of hers but her own a mistake of hers.
    equal({route for route in allowed["alice"] if route[0] != "GET"}, {("PATCH", "/v1/groups/tenants/alice")}, "what a tenant may change")
    for uid, token in (2009, TOKEN), (2002, ""):
        for path in "/v1/clients", "/v1/clients/watch", "/v1/state", "/v1/status?seconds=0.05":
            assert hashlib.sha256(TOKEN.encode()).hexdigest().encode() not in ask(s, uid, path, token=token)[1], f"{path} shows a token's digest"
    assert asked > 150, asked
    assert s.process.poll() is None, "the server has ended"


@test(fairlift_only=True, seconds=300)
def a_tenant_learns_nothing_of_its_neighbours(t):
    s = server(t)
    clients = [Load(t, s, "bobexport", 32), Load(t, s, "bobother", 1), Load(t, s, "alice", 2), Load(t, s, "alice-logs", 1)]
    everything = {}
    for method, path, name in routes(s):
        if method == "GET" and path != "/v1/openapi.json":
            status, everything[path] = ask(s, 2001, path + ("" if path.endswith("events") else "?seconds=0.5"))
    for route in "/v1/events?last=1000", "/v1/events?after=0", "/metrics", "/v1/why?tenant=/&seconds=0.5", "/v1/why?tenant=/tenants&seconds=0.5":
        everything[route] = ask(s, 2001, route)[1]
    for path, got in everything.items():
        for name in NEIGHBOUR:
            # What was asked for stands in the answer that it is not there.
            assert name not in got.replace(b'\\"bobexport\\"', b"").replace(b'\\"/tenants/bobgroup\\"', b""), f"{path}: {got}"
    # An operator's answers have all of them.
    assert all(name in ask(s, 2002, "/v1/status?seconds=0.5")[1] + ask(s, 2002, "/v1/state")[1] for name in NEIGHBOUR)
    # What there is of others is answered as by a server that has nothing of them.
    alone = server(t, exports=ALICE)
    for route in "/v1/exports/NAME", "/v1/why/NAME", "/v1/groups/tenants/NAME", "/v1/why?tenant=/tenants/NAME", "/v1/disks/NAME":
        for method, body in ("GET", None), ("PATCH", {"weight": 3}), ("DELETE", None):
            for name in "bobexport", "bobgroup", "nachbardisk", "shared":
                got = [ask(one, 2001, route.replace("NAME", name), method, body) for one in (s, alone)]
                got = [(status, re.sub(rb"date: .*", b"", rest)) for status, rest in got]
                equal(got[0], got[1], f"the answer to {method} {route} of {name}")
                assert got[0][0] in (403, 404, 405), got
    # Its own is all there.
    status = said(s, 2001, "/v1/status?seconds=0.5")
    equal({row["path"] for row in status["tenants"]}, {"/tenants/alice", "/tenants/alice/logs"}, "tenants")
    equal([(row["name"], row["in_flight"] <= 3, "busy" in row) for row in status["disks"]], [("shared", True, False)], "disks")
    equal([status["connections"], status["clients"], status["warnings"]], [2, [], []], "what is of the server")
    why = said(s, 2001, "/v1/why/alice?seconds=1")
    contains(json.dumps(why), "another tenant")
    metrics = everything["/metrics"].decode()
    contains(metrics, 'fairlift_tenant_had{disk="shared",tenant="/tenants/alice"}', 'tenant="/tenants/alice/logs"')
    assert "fairlift_disk" not in metrics and "fairlift_server" not in metrics, metrics
    server_ = said(s, 2001, "/v1")
    equal([server_[key] for key in ("exports", "disks", "groups", "connections", "listeners", "may_change", "sees_all")],
          [2, 1, 4, 2, [], False, False], "what a tenant sees of the server")
    equal([row["export"] for row in said(s, 2001, "/v1/connections")].count("alice"), 1, "its connections")
    # The tenant of all groups sees all of these, and no more of the server.
    every = server(t, ROOT + '[client.every]\nuid = 2004\ngroup = "/"\ncontrol = "tenant"\n')
    with every.connect("alice") as alice, every.connect("bobexport") as bob:
        alice.read(0, 4096), bob.read(0, 4096)
        metrics = ask(every, 2004, "/metrics")[1].decode()
    contains(metrics, 'tenant="/tenants/alice"', 'tenant="/tenants/bobgroup"')
    assert "fairlift_disk" not in metrics and "fairlift_flush_errors" not in metrics, metrics
    equal([said(every, 2004, "/v1")["sees_all"], ask(every, 2004, "/v1/history")[0]], [False, 403], "what it sees of the server")
    # The commands show it.
    cli = lambda *words: t.run(*as_user(2001, 2001), BINARY, *words, env={**os.environ, "FAIRLIFT_CONTROL": f"unix:{s.socket}.control.sock"})
    shown = [cli("status", "--seconds", "0.2"), cli("top", "--once", "--seconds", "0.2"), cli("why", "alice"), cli("get"), cli("get", "group")]
    for text in shown:
        contains(text, "alice")
        assert not any(name.decode() in text for name in NEIGHBOUR), text
    # Events are its own, from now on.
    watching = stream(t, s, 2001, "/v1/events?last=1000")
    equal(watching.stdout.readline(), b"200\n", "the answer")
    for export in "bobexport", "alice", "bobother":
        s.connect(export).close()
    s.control("set", "group", "/tenants/bobgroup", "weight=776")
    s.control("set", "group", "/tenants/alice", "weight=123")
    told = b""
    while not all(part in told for part in (b"event: connected", b'"export":"alice"', b"event: left", b"event: changed", b"weight 123")):
        piece = watching.stdout.read1()
        assert piece, f"the stream has ended, and had {told}"
        told += piece
    assert not any(name in told for name in [*NEIGHBOUR, b"weight 776"]), told
    assert b"number" not in told and b"\nid:" not in told, told


@test(fairlift_only=True)
def a_tenant_changes_what_is_delegated_and_no_more(t):
    s = server(t)
    change = lambda group, body, uid=2001: ask(s, uid, f"/v1/groups{group}", "PATCH", body)
    equal(change("/tenants/alice", {"max": "riops=900"})[0], 200, "a ceiling of its own")
    equal(change("/tenants/alice/logs", {"max": "riops=90", "weight": 7})[0], 200, "what the group and the one above delegate")
    equal(said(s, 2002, "/v1/groups/tenants/alice/logs")["weight"], 7, "the weight")
    refusals = {change(group, body) for group, body in (
        ("/tenants/alice", {"weight": 1000}), ("/tenants/alice", {"max": "riops=9", "weight": 1000}), ("/tenants/alice/logs", {"latency": "1ms"}),
        ("/tenants/bobgroup", {"max": "riops=1"}), ("/tenants", {"max": "riops=1"}), ("//", {"max": "riops=1"}), ("/tenants/alice/none", {"max": "riops=1"}),
        ("/tenants/alicex", {"max": "riops=1"}), ("/tenants/alice", {"delegate": "weight"}), ("/tenants/alice", {"nonsense": 1}))}
    refusals = {(status, re.sub(rb"date: .*", b"", rest)) for status, rest in refusals}
    equal(len(refusals), 1, f"refusals {refusals}")
    equal(next(iter(refusals))[0], 403, "the status")
    contains(next(iter(refusals))[1].decode(), "this client sees only /tenants/alice and changes only the keys delegated to it there")
    contains(t.run(*as_user(2001, 2001), BINARY, "set", "group", "/tenants/alice", "weight=5", code=1, env={**os.environ, "FAIRLIFT_CONTROL": f"unix:{s.socket}.control.sock"}),
             "this client sees only /tenants/alice")
    # Several at once, and all else, are for who may change all.
    for method, route, body in ("POST", "/v1/changes", {"changes": [{"set": "group", "name": "/tenants/alice/logs", "weight": 9}]}), ("POST", "/v1/reload", None):
        equal(ask(s, 2001, route, method, body)[0], 403, route)
    equal(said(s, 2002, "/v1/groups/tenants/alice/logs")["weight"], 7, "the weight, still")
    # A place for looking only lets nobody change.
    equal(ask(s, 2002, "/v1/groups/tenants/alice", "PATCH", {"weight": 9})[0], 200, "an operator's change")
    # What was delegated is taken back at once.
    reload(s, EXPORTS + RULES + ROOT, 'group "/tenants/alice": nothing delegated (was max)')
    equal(change("/tenants/alice", {"max": "riops=900"})[0], 403, "a ceiling afterwards")
    s.says('who="uid 2001', "max riops=900")
    assert TOKEN not in s.log()


@test(fairlift_only=True)
def a_reload_gives_and_takes_roles_and_ends_streams(t):
    s = server(t)
    token = lambda text: ask(s, 2009, "/v1", token=text)[0]
    equal([token(TOKEN), token(TOKEN + "x"), token("")], [200, 403, 403], "tokens")
    other = RULES.replace(hashlib.sha256(TOKEN.encode()).hexdigest(), hashlib.sha256(b"new").hexdigest())
    reload(s, EXPORTS + DELEGATED + other + ROOT)
    equal([token(TOKEN), token("new")], [403, 200], "tokens after the reload")

    # Those of clients whose role is gone, or is another; that of the operator goes on.
    rules = RULES.replace("uid = 2003\ncontrol = \"none\"", "uid = 2003\ncontrol = \"see\"")
    reload(s, EXPORTS + DELEGATED + rules + ROOT)
    goes = [stream(t, s, 2003, "/v1/trace?seconds=3600"), stream(t, s, 2003, "/v1/events"), stream(t, s, 2001, "/v1/events")]
    stays = stream(t, s, 2002, "/v1/events")
    for process in [*goes, stays]:
        equal(process.stdout.readline(), b"200\n", "the answer")
    top = Terminal(t, *as_user(2001, 2001), BINARY, "top", "--control", f"unix:{s.socket}.control.sock", "--seconds", "0.2")
    until(lambda: "alice" in " ".join(top.screen()), "top shows its tenant")
    time.sleep(0.3)
    equal([process.poll() for process in [*goes, stays]], [None] * 4, "streams that have ended")
    reload(s, EXPORTS + DELEGATED + "[client.operator]\nuid = 2002\ncontrol = \"change\"\n", 'client "alice": removed')
    for process in goes:
        process.wait(60)
    equal(stays.poll(), None, "the stream of one who may still")
    until(lambda: "no [client]" in " ".join(top.screen()), "top says why it shows no more")
    equal([ask(s, uid, "/v1/status?seconds=0.1")[0] for uid in (2001, 2002, 0)], [403, 200, 200], "who may look")
    # An answer that takes time is for who may have it when it goes out.
    slow = stream(t, s, 2002, "/v1/status?seconds=8")
    time.sleep(1)
    reload(s, EXPORTS + "[client.nobody]\nuid = 2008\ncontrol = \"see\"\n")
    equal(slow.stdout.readline(), b"403\n", "the answer")
    # Root mends what nobody else could; without the key all is as it was without.
    reload(s, EXPORTS, "no table has control")
    equal(ask(s, 2009, "/v1/groups/tenants/alice", "PATCH", {"weight": 9})[0], 200, "a change by whoever the place lets in")


@test(fairlift_only=True)
def a_change_is_measured_by_the_role_that_its_client_has_when_it_has_said_all(t):
    s = server(t)
    connection = As(s.socket + ".control.sock", 2002)
    connection.sock.sendall(b"PATCH /v1/groups/tenants/alice HTTP/1.1\r\nHost: localhost\r\nContent-Length: 13\r\n\r\n{")
    time.sleep(0.5)
    reload(s, EXPORTS + DELEGATED + ROOT + "[client.nobody]\nuid = 2008\ncontrol = \"see\"\n", 'client "operator": removed')
    connection.sock.sendall(b'"weight": 9}')
    contains(connection.sock.recv(4096).decode(), "HTTP/1.1 403")
    equal(said(s, 0, "/v1/groups/tenants/alice")["weight"], 100, "the weight")


@test(fairlift_only=True)
def a_tenant_that_gets_an_export_is_not_told_whose_it_was(t):
    s = server(t)
    watching = stream(t, s, 2001, "/v1/events")
    equal(watching.stdout.readline(), b"200\n", "the answer")
    s.control("set", "export", "bobother", "group=/tenants/alice")
    s.control("set", "group", "/tenants/alice", "weight=123")
    told = b""
    while b"weight 123" not in told:
        piece = watching.stdout.read1()
        assert piece, f"the stream has ended, and had {told}"
        told += piece
    assert b"bobgroup" not in told, told


@test(fairlift_only=True)
def one_user_takes_a_quarter_of_the_places_and_a_tenant_looks_so_often_at_once(t):
    s = server(t)
    crowd = [As(s.socket + ".control.sock", 2001) for _ in range(1100)]
    for one in crowd:
        with contextlib.suppress(ConnectionError):
            one.sock.sendall(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    served = 0
    for one in crowd:
        one.sock.settimeout(10)
        with contextlib.suppress(ConnectionError):
            served += one.sock.recv(12) == b"HTTP/1.1 200"
    equal(served, 256, "clients of one user that are served")
    for uid in 0, 2002:
        equal(ask(s, uid, "/v1")[0], 200, f"the answer to user {uid}")
    for one in crowd:
        one.close()
    until(lambda: ask(s, 2001, "/v1")[0] == 200, "the user is served again")
    for uid, wanted in (2001, {200: 16, 429: 24}), (2002, {200: 40}):
        looks = [As(s.socket + ".control.sock", uid) for _ in range(40)]
        for one in looks:
            one.request("GET", "/v1/status?seconds=3")
        answers = [one.getresponse().status for one in looks]
        equal({status: answers.count(status) for status in set(answers)}, wanted, f"the answers to forty looks of user {uid}")


@test(fairlift_only=True)
def streams_end_when_the_token_that_let_them_in_is_another(t):
    first, second = "0123456789abcdef0123", "fedcba98765432100123"
    t.secret("token", first + "\n")
    place, config = t.path("at.sock"), t.path("token.toml")
    s = t.server(config=f'[server]\ncontrol = ["unix:{place},token={t.path("token")}"]\n[export.a]\nbacking = "mem:1m"\n')
    head = lambda token: f"GET /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    streams = []
    for route in "/v1/events", "/v1/trace?seconds=3600":
        one = dial(place)
        t.defer(one.close)
        one.settimeout(20)
        one.sendall(head(first).replace(b"/v1/events", route.encode()))
        contains(one.recv(4096).decode(errors="replace"), "HTTP/1.1 200")
        streams.append(one)
    t.secret("token", second + "\n")
    os.kill(s.pid, signal.SIGHUP)
    s.says("other token")
    for one in streams:
        while one.recv(4096):
            pass
    one = dial(place)
    one.sendall(head(second))
    contains(one.recv(4096).decode(), "HTTP/1.1 200")
    one.close()


@test(fairlift_only=True)
def tables_that_cannot_be_meant_are_told(t):
    def says(table):
        path = Path(t.path("wrong.toml"))
        path.write_text(EXPORTS + table)
        return t.serve_fails("--check", "--config", path)

    contains(says('[client.a]\nuid = 1\ncontrol = "tenant"\n'), '"tenant" needs the group that is the client\'s')
    contains(says('[client.a]\nuid = 1\ncontrol = "all"\n'), "none, tenant, see, change")
    contains(says('[client.a]\ntoken = "secret"\ncontrol = "see"\n'), "takes sha256: and the 64 hexadecimal digits")
    contains(says(f'[client.a]\ntoken = "sha256:{"0" * 64}"\ngroup = "/tenants"\n'), "add control, with the client's rights there")
    contains(says('[client.a]\ncontrol = "see"\n'), "says not how the client is known")
    contains(says('[client.a]\nuid = 1\nlistener = "unix:a"\ncontrol = "see"\n'), "say control in a table of its own")
    contains(says('[group."/tenants/alice"]\ndelegate = ["weigth"]\n'), 'not "weigth"; did you mean')


@test(fairlift_only=True)
def tables_for_control_alone_leave_exports_to_all(t):
    s = server(t, '[client.tenant]\ntoken = "sha256:' + "0" * 64 + '"\ngroup = "/tenants/bobgroup"\ncontrol = "tenant"\n')
    # Alice's table is about exports too: nobody else opens any.
    with contextlib.suppress(Refused):
        s.connect("bobexport")
        raise AssertionError("an export was opened that no table allows")
    reload(s, EXPORTS + RULES.replace('uid = 2001', 'token = "sha256:' + "1" * 64 + '"'))
    s.connect("bobexport").close()


if __name__ == "__main__":
    main()
