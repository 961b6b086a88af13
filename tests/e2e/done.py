"""A success is done, a refusal changes nothing, and a dry run says which of the two it will be: for every key of groups, exports and
listeners that the API's document names, in each state that they may be in. (Of disks: `host/tests/control/random.rs`.)"""

import itertools

from control import Control, Unix
from harness import *
from metrics import samples, scrape
from nbdclient import READ, WRITE

# By kind and key: values that suit, as they are said and as they are shown afterwards (None: not shown); then values that do not.
# What the type of the key in the API's document forbids is tried as well.
KEYS = {
    "groups": {
        "weight": ([(7, 7), ("1000", 1000)], [1.5]),
        "max": ([("riops=1", {"riops": 1}), ({"iops": 50_000, "wbps": "1m"}, {"iops": 50_000, "wbps": MIB}), ("none", None)], ["riops", "riops=0", {"odd": 1}]),
        "burst": ([("riops=9 seconds=2", {"riops": 9, "seconds": 2}), ("none", None)], ["seconds=x", {"riops": -1}]),
        "min": ([({"riops": 5}, {"riops": 5}), ("none", None)], ["riops=max=3"]),
        "latency": ([("7ms", "7ms"), ("none", None)], ["7", "0s", "x"]),
    },
    "exports": {
        "backing": ([("mem:2m", "mem:2097152"), ("null:1m", "null:1048576")], ["mem:", "file:/nowhere/x.img", "odd:1"]),
        "offset": ([(0, 0), ("512k", 512 * KIB)], [511, "9g"]),
        "size": ([("2m", 2 * MIB), ("auto", 4 * MIB)], [0, 511, "1p"]),
        "disk": ([("d", "d")], ["nowhere"]),
        "group": ([("/a", "/a"), ("/new/one", "/new/one")], ["odd", "/a//b"]),
        "ioprio": ([("rt/2", "rt/2"), ("idle", "idle")], ["rt/8", "best"]),
        "read_only": ([(True, True), ("off", False)], []),
        "vhost_user": ([], ["", "relative"]),
        "ublk": ([(False, None)], ["maybe", {"odd": 1}]),
        "description": ([("Alice's", "Alice's"), ("", "")], ["x" * 4097]),
        "faults": ([], ["relative", "/nowhere/rules.toml"]),
    },
    "clients": {
        "uid": ([(7, 7), ("65534", 65534), ("default", None)], [2**32 - 1]),
        "gid": ([("8", 8), (None, None)], [2**32 - 1]),
        "cgroup": ([("/a.slice", "/a.slice"), ("default", None)], ["odd", "/a/../b"]),
        "certificate": ([("CN=alice", "CN=alice"), ("default", None)], ["CN=", "odd"]),
        "address": ([("10.0.0.0/8", "10.0.0.0/8"), ("::1", "::1"), ("default", None)], ["10.0.0.1/8", "x", ""]),
        "listener": ([("unix:/x.sock", "unix:/x.sock"), ("default", None)], ["unix:x.sock", "odd"]),
        "token": ([("sha256:" + "7" * 64, "sha256:77777777…")], ["7" * 64, "sha256:7"]),
        "exports": ([("a", ["a"]), ("a,b", ["a", "b"]), (["b"], ["b"]), ("default", [])], [",", {"odd": 1}, [["a"]]]),
        "group": ([("/a", "/a"), ("default", None)], ["odd", "/a//b"]),
        "control": ([("none", "none"), ("see", "see"), ("change", "change"), ("tenant", "tenant"), ("default", None)], ["all"]),
        "read_only": ([(True, True), ("off", False)], []),
        "max_connections": ([(3, 3), ("1", 1), ("default", None)], [0, "many"]),
    },
    "listeners": {"tls": ([("off", "off")], ["on", "require"])},  # there is no certificate
}


def wrong(schema):
    """Values that a type forbids."""
    if "enum" in schema:
        return ["nonsense"]
    if "oneOf" in schema:
        return [[], None] if any("const" in one for one in schema["oneOf"]) else [[]]
    kind = schema.get("type")
    if kind == "integer":
        return [schema["minimum"] - 1, schema["maximum"] + 1, "x", None, []]
    return {"boolean": ["maybe", 7], "string": [[]]}.get(str(kind), [[]])


class Asks:
    def __init__(self, t, server):
        self.t, self.control = t, Control(t, server)
        self.document = self.control.ask("GET", "/v1/openapi.json")
        self.done, self.refused = set(), set()

    def ask(self, method, path, body):
        connection = Unix(self.control.path)
        try:
            connection.request(method, path, json.dumps(body))
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def keys(self, method, path):
        body = self.document["paths"][path][method]["requestBody"]["content"]["application/json"]["schema"]["properties"]
        return {key: schema for key, schema in body.items() if key != "name"}

    def state(self):
        """All that is in force, without figures that move by themselves."""
        def still(value):
            moves = {"started", "connections", "in_flight", "waiting", "findings", "concurrency", "leaving", "frozen", "scheduler_in_place", "tunables"}
            if isinstance(value, dict):
                return {key: still(one) for key, one in value.items() if key not in moves}
            return [still(one) for one in value] if isinstance(value, list) else value
        return still(self.control.ask("GET", "/v1/state"))

    def change(self, method, path, body, what, suits):
        """Tried dry, then for good: both say the same, and only what is done changes anything. What is in force, if it was."""
        before = self.state()
        dry, said = self.ask(method, path + "?dry_run=true", body)
        equal(self.state(), before, f"after a dry run of {what}")
        code, answer = self.ask(method, path, body)
        equal((dry, said.get("error")), (code, answer.get("error")), f"a dry run, beside {what}")
        if code == 200:
            (self.done if suits else self.refused).add(what[1])
            return answer
        equal(self.state(), before, f"after a refusal of {what}: {answer}")
        assert code in (400, 404, 409, 422) and answer["error"], f"{what}: {code} {answer}"
        return None


def tried(asks, kind, act, path, state, make):
    """Each value of each key: `make(key, value)` is the request's path and body. Yields what was done: key, value, answer."""
    named = asks.keys(act.lower(), path)
    equal(set(named) - set(KEYS[kind]), set(), f"keys of {kind} that this test has no values of")
    for key, schema in named.items():
        suiting, others = KEYS[kind][key]
        for value, shown in suiting:
            place, body = make(key, value)
            answer = asks.change(act, place, body, (kind, key, value, state), True)
            if answer is not None:
                found = answer.get(key)
                assert found == shown, f"{kind} {key}={value!r} in state {state} was answered with success, and {found!r} is shown"
                yield key, value, answer
        for value in [*others, *wrong(schema)]:
            place, body = make(key, value)
            answer = asks.change(act, place, body, (kind, key, value, state), False)
            assert answer is None or value is None, f"{kind} {key}={value!r} in state {state} was taken: {answer}"


@test(fairlift_only=True)
def a_group_has_what_was_answered_with_success_in_every_state(t):
    config = "".join(f'[disk.{scheduler}]\nscheduler = "{scheduler}"\n[export.{scheduler}]\nbacking = "null:4m"\ndisk = "{scheduler}"\ngroup = "/{scheduler}/below"\n'
                     for scheduler in ("none", "mq-deadline", "fair", "bfq"))
    server = t.server(config=config)
    asks = Asks(t, server)
    asks.control.ask("POST", "/v1/groups", {"name": "/nobody"})
    names = ["/", "/nobody", *(f"/{name}{below}" for name in ("none", "mq-deadline", "fair", "bfq") for below in ("", "/below"))]
    for name in names:
        place = "/v1/groups/" + name.strip("/") if name != "/" else "/v1/groups//"
        for key, value, answer in tried(asks, "groups", "PATCH", "/v1/groups/{name}", name, lambda key, value: (place, {key: value})):
            equal(asks.control.ask("GET", place).get(key), answer.get(key), f"{key} of {name} afterwards")
            if key == "latency" and name == "/fair/below":
                targets = {value for (metric, _), value in samples(scrape(asks.control)[0]).items() if metric == "fairlift_tenant_latency_target_seconds"}
                equal(targets, set() if value == "none" else {0.007}, "the target that the disk has")
            if key == "max" and value == "riops=1" and name.count("/") == 2:
                with server.connect(name.split("/")[1]) as client:
                    [client.submit(READ, 0, 512) for _ in range(8)]
                    contains(asks.control.cli("why", name), f"max of {name}")
        asks.change("PATCH", place, {"max": "none", "burst": "none", "min": "none", "latency": "none"}, ("groups", "all", "none", name), True)
    equal(asks.done, set(KEYS["groups"]) | {"all"}, "keys of which a value was taken in some state")


@test(fairlift_only=True)
def an_export_is_what_was_answered_with_success_in_every_state(t):
    images = {state: t.image(f"{state}.img", 4 * MIB) for state in ("alone", "connected", "asking")}
    config = '[disk.d]\n[disk.slow]\nscheduler = "fair"\n[group."/a"]\n' + "".join(
        f'[export.{state}]\nbacking = "{image}"\nsize = "1m"\ndisk = "d"\n' for state, image in images.items())
    server = t.server(config=config)
    asks = Asks(t, server)
    clients = {"connected": server.connect("connected"), "asking": server.connect("asking")}
    asks.control.ask("PATCH", "/v1/groups/asking", {"max": "wiops=1"})
    for _ in range(3):
        clients["asking"].submit(WRITE, 0, 512, bytes(512))  # and the last waits
    for state in images:
        place = f"/v1/exports/{state}"
        for key, value, answer in tried(asks, "exports", "PATCH", "/v1/exports/{name}", state, lambda key, value: (place, {key: value})):
            equal(asks.control.ask("GET", place)[key], answer[key], f"{key} of {state} afterwards")
            with server.connect(state) as client:
                if key == "size":
                    equal(client.size, answer[key], "the size that a client is told")
                if key == "read_only":
                    equal(client.read_only, answer[key], "whether a client may only read")
                if key == "description":
                    [listed] = [one for one in asks_list(t, server) if one["export-name"] == state]
                    equal(listed.get("description", ""), answer[key], "what a list of exports says")
                if key == "group":
                    client.read(0, 512)
                    [tenant] = [labels for (name, labels), value in samples(scrape(asks.control)[0]).items()
                                if name == "fairlift_tenant_connections" and f'tenant="{answer[key]}"' in labels and value]
        if state in clients and state != "asking":
            clients[state].read(0, 512)
    equal(asks.done, {"size", "group", "ioprio", "read_only", "description"}, "keys that can change")
    number = itertools.count()
    for key, value, answer in tried(asks, "exports", "POST", "/v1/exports", "added", lambda key, value: (
            "/v1/exports", {"backing": "mem:4m", **({"disk": "slow"} if key != "disk" else {}), "name": f"new{next(number) // 2}", key: value})):
        with server.connect(answer["name"]) as client:
            equal((client.size, client.read_only), (answer["size"], answer["read_only"]), f"what a client is told with {key}={value!r}")
        asks.control.ask("DELETE", f"/v1/exports/{answer['name']}")
        until(lambda: not asks.control.ask("GET", "/v1")["leaving"], "it has gone")


def asks_list(t, server):
    return json.loads(t.run("nbdinfo", "--list", "--json", server.uri()))["exports"]


@test(fairlift_only=True)
def a_listener_is_there_when_success_was_answered_in_every_state(t):
    server = t.server("a=mem:1m")
    asks = Asks(t, server)
    taken = t.path("taken.sock")
    other = socket.socket(socket.AF_UNIX)
    other.bind(taken)
    other.listen()
    Path(t.path("file.sock")).write_text("a file")
    for state, place in [("free", t.path("free.sock")), ("taken", taken), ("a file", t.path("file.sock")), ("no directory", t.path("no/x.sock")), ("there", server.socket)]:
        for key, value, answer in tried(asks, "listeners", "POST", "/v1/listeners", state, lambda key, value: ("/v1/listeners", {"name": f"unix:{place}", key: value})):
            equal(state, "free", f"where {answer} was opened")
            t.run("nbdinfo", "--size", f"nbd+unix:///a?socket={place}")
            asks.control.ask("DELETE", f"/v1/listeners/unix:{place}")
            until(lambda: not os.path.exists(place), "it is closed")
    other.close()
    equal(asks.done, {"tls"}, "keys that were taken")


@test(fairlift_only=True)
def a_client_is_allowed_what_was_answered_with_success_in_every_state(t):
    digest = "sha256:" + "1" * 64
    server = t.server(config=f"""
        [export.a]
        backing = "mem:1m"
        [client.exports]
        uid = 1
        exports = ["a"]
        [client.tenant]
        gid = 1
        group = "/a"
        control = "tenant"
        [client.token]
        token = "{digest}"
        control = "see"
        """)
    asks = Asks(t, server)
    for name in "exports", "tenant", "token":
        for key, value, answer in tried(asks, "clients", "PATCH", "/v1/clients/{name}", name, lambda key, value: (f"/v1/clients/{name}", {key: value})):
            equal(asks.control.ask("GET", f"/v1/clients/{name}").get(key), answer.get(key), f"{key} of {name} afterwards")
    equal(asks.done, set(KEYS["clients"]), "keys of which a value was taken in some state")
    number = itertools.count()
    for more in {"exports": "a"}, {"group": "/a", "control": "see"}:
        for key, value, answer in tried(asks, "clients", "POST", "/v1/clients", f"added with {more}", lambda key, value: (
                "/v1/clients", {"name": f"new {next(number)}", "uid": 7, **more, key: value})):
            place = f"/v1/clients/{answer['name'].replace(' ', '%20')}"
            equal(asks.control.ask("GET", place).get(key), answer.get(key), f"{key} of what was added")
            asks.control.ask("DELETE", place)
            asks.control.ask("GET", place, code=404)


if __name__ == "__main__":
    main()
