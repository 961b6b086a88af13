"""A server that is looked at and changed while it serves, by its control socket and by the commands that speak to it.

FULL=1: the sizes of docs/measured/control.md: 10,000 random changes, 1,000 changes of schedulers.
"""

import grp
import http.client

from harness import *


class Unix(http.client.HTTPConnection):
    """HTTP at a unix socket."""

    def __init__(self, path, timeout=30):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Control:
    """The control socket of a server."""

    def __init__(self, t, server, path=None):
        self.t, self.path = t, path or server.socket + ".control.sock"
        self.env = {**os.environ, "FAIRLIFT_CONTROL": f"unix:{self.path}"}

    def ask(self, method, path, body=None, code=200, headers=None):
        """Asks, and returns what was answered, as JSON."""
        connection = Unix(self.path)
        try:
            text = json.dumps(body) if isinstance(body, (dict, list)) else body
            connection.request(method, path, text, headers or {})
            answer = connection.getresponse()
            said = answer.read()
        finally:
            connection.close()
        if answer.status != code:
            raise AssertionError(f"{method} {path}: wanted {code}, got {answer.status}: {short(said)}")
        return json.loads(said)

    def cli(self, *words, code=0):
        return self.t.run(BINARY, *words, env=self.env, code=code)

    def working(self, *exports):
        """Waits until each of these exports has one client, which works; by export, its row. fio connects to learn an export's size,
        leaves, and comes again, perhaps to another worker: a client has come to stay once it is there before and after what was done."""
        def stayed():
            before, status, after = (self.ask("GET", path) for path in ("/v1/connections", "/v1/status?seconds=0.1", "/v1/connections"))
            done = [name for tenant in status["tenants"] if tenant["iops"] for name in tenant["exports"] or []]
            alone = sorted(exports) == sorted(str(row["export"]) for row in after)
            return before == after and alone and set(exports) <= set(done) and {row["export"]: row for row in after}
        return until(stayed, f"{', '.join(exports)} have a client each, which works")


def threads(server):
    return len(os.listdir(f"/proc/{server.pid}/task"))


def resident(server):
    pages = int(Path(f"/proc/{server.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def fio(t, server, export, seconds, *more):
    """Writes and verifies for so long, or until it is stopped; fio ends with an error if one byte differs or a request fails."""
    return t.start(
        "fio", f"--name={export}", "--ioengine=nbd", f"--uri={server.uri(export)}", "--rw=randwrite", "--bs=4k",
        "--iodepth=32", "--size=32m", "--verify=crc32c", "--verify_fatal=1", "--verify_backlog=256", "--verify_state_save=0", "--time_based",
        f"--runtime={seconds}", f"--output={t.path(export + '.fio')}", "--randrepeat=0", *more)


def fio_stops(*load):
    """Ends fio, which has found nothing wrong by then."""
    for process in load:
        process.terminate()
    for process in load:
        equal(process.wait(60), 128, "the exit code of a fio that was stopped")


TENANTS = """
    [disk.d]
    scheduler = "fair"
    """ + "".join(f"""
    [export.t{n}]
    backing = "mem:32m"
    disk = "d"
    group = "/tenants/t{n}"
    """ for n in range(4))


@test(fairlift_only=True)
def exports_are_added_and_removed_by_command_and_clients_see_them_at_once(t):
    server = t.server("a=mem:4m", "b=mem:4m")
    control = Control(t, server)
    image = t.image("c.img", 8 * MIB)
    with server.connect("a") as stays:
        stays.write(0, data(4096, "a"))
        said = control.cli("add", "export", f"carol={image}", "group=/tenants/carol")
        contains(said, "group: /tenants/carol", "version 1")
        # A tenant that has asked for nothing has its line too.
        idle = [tenant for tenant in json.loads(control.cli("status", "--json", "--seconds", "0.1"))["tenants"] if tenant["path"] == "/tenants/carol"]
        equal([(tenant["share"], tenant["iops"], tenant["weight"]) for tenant in idle], [(0, 0, 100)], "what status says of carol")
        listed = t.run("nbdinfo", "--list", "--json", server.uri())
        contains(listed, '"carol"')
        server.serves("carol", 8 * MIB)
        contains(control.cli("add", "export", f"carol={image}", code=1), 'there is an export "carol" already')
        contains(control.cli("set", "group", "/tenants/carl", "weight=3", code=1), 'did you mean "/tenants/carol"?')
        for command in ["set", "group", "carol", "weight=3"], ["get", "group", "/carol"], ["remove", "group", "carol"], ["why", "/carol"]:
            contains(control.cli(*command, code=1), 'there is no group "/carol"; did you mean "/tenants/carol"?')
        contains(control.cli("set", "group", "/tenants/carol", "wieght=3", code=1), 'did you mean "weight"?')
        contains(control.cli("set", "group", "/tenants/carol", "weight=1001", code=1), "from 1 to 1000")
        says = 'group "/tenants/carol": weight 300 (was 100)'
        contains(control.cli("set", "group", "/tenants/carol", "weight=300", "--dry-run"), f"{says}\n", "it could be done")
        contains(control.cli("set", "group", "/tenants/carol", "weight=300"), f"{says}\npath: /tenants/carol\nweight: 300\n", "\nversion ")
        contains(control.cli("set", "group", "/tenants/carol", "weight=300"), "weight: 300\n", "\nnothing differs; nothing was changed\n")
        set_again = json.loads(control.cli("set", "group", "/tenants/carol", "weight=200", "--json"))
        equal((set_again["weight"], set_again["changes"]), (200, ['group "/tenants/carol": weight 200 (was 300)']), "a change's answer")
        disk = control.ask("GET", "/v1/disks")[0]["name"]
        contains(control.cli("set", "disk", disk, "slice_idle=0", code=1), "slice_idle belongs to bfq")
        contains(control.cli("get", "export", "nobody", code=1), 'there is no export "nobody"; there are a, b, carol')
        contains(control.cli("reload", "--if-version", "x", code=2), "takes a number, such as 7")
        contains(control.cli("status", "--seconds", "0", code=2), "takes a number of seconds")
        contains(control.cli("remove", "group", "/tenants/carol", code=1), 'export "carol" is in it')
        with server.connect("carol") as carol:
            control.cli("remove", "export", "carol", "--dry-run")
            carol.read(0, 512)
            contains(control.cli("remove", "export", "carol"), 'export "carol": removed; its group "/tenants/carol" stays\n')
            with hung_up():
                carol.read(0, 512)
        control.cli("remove", "group", "/tenants/carol")
        listed = t.run("nbdinfo", "--list", "--json", server.uri())
        if "carol" in listed:
            raise AssertionError("a removed export is still listed")
        equal(stays.read(0, 4096), data(4096, "a"), "what the other client has")
    server.says('changed: export "carol": added', f"uid {os.getuid()}")
    contains(control.cli("--help"), "status")
    equal(json.loads(control.cli("get", "export", "a", "--json"))["size"], 4 * MIB)
    contains(t.run(BINARY, "get", "--control", "unix:/nowhere.sock", code=1), "no server answers at unix:/nowhere.sock")


@test(fairlift_only=True)
def what_a_limit_holds_of_an_export_that_is_removed_is_still_answered(t):
    server = t.server("a=mem:4m", "stays=mem:4m", args=["--max", "a=riops=40"])
    control = Control(t, server)
    with server.connect("a") as client:
        client.write(0, data(4096, "a"))
        asked = [client.submit(nbdclient.READ, 0, 4096) for _ in range(60)]
        until(lambda: client.readable(1), "the first is answered")
        control.cli("remove", "export", "a")
        assert control.ask("GET", "/v1")["leaving"], "its client has not left"
        for number, reply in enumerate(client.reply() for _ in asked):
            assert not reply.error, f"read {number} after the removal: {reply.error}"
        with hung_up():
            client.read(0, 512)
    server.serves("stays")
    until(lambda: not control.ask("GET", "/v1")["leaving"], "what was removed has gone")


@test(fairlift_only=True)
def a_weight_that_cannot_act_is_told_by_the_command_the_log_and_a_dry_run(t):
    server = t.server("a=mem:4m", "--scheduler=mq-deadline")
    control = Control(t, server)
    disk = control.ask("GET", "/v1/disks")[0]["name"]
    warning = f'group "/b": its weight has no effect: disk "{disk}" has scheduler mq-deadline, which knows no weights; fair, bfq and cfq do'
    contains(control.cli("add", "group", "/b", "weight=300", "--dry-run"), f"warning: {warning}\n", "nothing was changed")
    assert "weight has no effect" not in server.log(), server.log()
    contains(control.cli("add", "group", "/b", "weight=300"), f"warning: {warning}\nversion 1\n")
    server.says(f"WARN {warning}")
    said = control.ask("POST", "/v1/exports", {"name": "b", "backing": "mem:4m", "disk": disk, "group": "/b"})
    equal(said["warnings"], [warning], "an export is put into the group")
    said = control.cli("set", "disk", disk, "scheduler=fair")
    assert "warning" not in said, said
    said = control.cli("set", "group", "/b", "weight=200")
    assert "warning" not in said and said.count("version") == 1, said
    contains(control.cli("set", "disk", disk, "scheduler=none"), 'warning: group "/b": its weight has no effect')


@test(fairlift_only=True)
def an_image_that_grew_is_served_larger_without_a_restart(t):
    image = t.image("a.img", 4 * MIB)
    server = t.server(f"a={image}")
    control = Control(t, server)
    os.truncate(image, 16 * MIB)
    equal(server.connect("a").size, 4 * MIB)
    control.cli("set", "export", "a", "size=auto")
    with server.connect("a") as client:
        equal(client.size, 16 * MIB)
        client.write(15 * MIB, data(4096, "end"))
        equal(client.read(15 * MIB, 4096), data(4096, "end"))
    contains(control.cli("set", "export", "a", "size=1m", code=1), "can only grow")


@test(fairlift_only=True)
def a_transaction_is_made_whole_or_not_and_two_writers_are_told_apart(t):
    server = t.server("a=mem:4m")
    control = Control(t, server)
    changes = [{"add": "group", "name": "/x", "weight": 7}, {"set": "group", "name": "/y", "weight": 3}]
    refused = control.ask("POST", "/v1/changes", {"changes": changes}, code=422)
    contains(refused["error"], 'there is no group "/y"')
    equal([group["path"] for group in control.ask("GET", "/v1/groups")["groups"]], ["/a"], "the groups after a refusal")
    made = control.ask("POST", "/v1/changes", {"changes": changes[:1], "dry_run": True})
    equal((made["version"], made["dry_run"]), (0, True))
    equal(control.ask("POST", "/v1/changes", {"changes": changes[:1]})["version"], 1)
    answer = control.ask("PATCH", "/v1/groups/x", {"weight": 8}, code=409, headers={"If-Match": '"0"'})
    contains(answer["error"], "version 0 was asked for, and the server is at version 1")
    control.ask("PATCH", "/v1/groups/x", {"weight": 8}, headers={"If-Match": '"1"'})
    wins = []

    def race():
        for weight in range(1, 21):
            version = control.ask("GET", "/v1")["version"]
            with contextlib.suppress(AssertionError):
                control.ask("PATCH", "/v1/groups/x", {"weight": weight}, headers={"If-Match": str(version)})
                wins.append(version)

    at_once(race, race)
    equal(len(wins), len(set(wins)), "versions at which two writers both changed something")


@test(fairlift_only=True)
def two_hundred_exports_come_and_go_and_leave_nothing(t):
    server = t.server("stays=mem:4m")
    control = Control(t, server)
    image = t.image("i.img", 4 * MIB)

    def round_():
        backing = f"file:{image}"
        for n in range(4):
            control.ask("POST", "/v1/exports", {"name": f"m{n}", "backing": "mem:4m", "group": f"/g{n}"})
        control.ask("POST", "/v1/exports", {"name": "f", "backing": backing})
        server.serves("f", 4 * MIB)
        server.serves("m0", 4 * MIB)
        for name in ["f", *(f"m{n}" for n in range(4))]:
            control.ask("DELETE", f"/v1/exports/{name}")
        for n in range(4):
            control.ask("DELETE", f"/v1/groups/g{n}")
        until(lambda: not control.ask("GET", "/v1")["leaving"], "what was removed has gone")

    round_()
    fds, count, memory = server.fds_at_rest(), threads(server), resident(server)
    for _ in range(40):
        round_()
    server.fds_settle(fds)
    until(lambda: threads(server) <= count, f"back to {count} threads; now {threads(server)}", 15)
    grown = resident(server) - memory
    if grown > 4 * MIB:
        raise AssertionError(f"the server has {grown} bytes more than before")
    print(f"200 exports: {server.fds() - fds} descriptors, {threads(server) - count} threads, {grown} bytes more")
    equal(control.ask("GET", "/v1")["disks"], 1)


@test(fairlift_only=True, seconds=1200 if FULL else 120)
def schedulers_follow_one_another_under_load(t):
    count = 1000 if FULL else 40
    server = t.server(config=TENANTS)
    control = Control(t, server)
    load = [fio(t, server, f"t{n}", 1200) for n in range(4)]
    control.working(*(f"t{n}" for n in range(4)))
    order = ["none", "fair", "bfq"]
    for n in range(count):
        control.ask("PATCH", "/v1/disks/d", {"scheduler": order[n % 3]})
        until(lambda: control.ask("GET", "/v1/disks/d")["scheduler_in_place"] == order[n % 3], "it is in place")
        if any(process.poll() is not None for process in load):
            raise AssertionError(f"fio has ended at change {n}: " + Path(t.path("t0.fio")).read_text()[-800:])
    fio_stops(*load)


def random_change(t, image, n):
    """A change of one of all kinds. What fio's exports are and hold stays; all else about them changes."""
    one = t.random.choice
    tenant, weight = f"t{t.random.randrange(4)}", t.random.randint(1, 1000)
    group = one([f"/tenants/{tenant}", "/tenants", "/x", "/x/y", "/z"])
    other, disk, door = f"x{t.random.randrange(5)}", one(["e", "f"]), f"unix:{t.path('door')}{t.random.randrange(2)}"
    if t.random.random() < 0.05:
        with open(image, "r+b") as file:
            file.truncate(4 * MIB + n * 4096)
    kinds = [
        ("PATCH", "/v1/groups" + group, {"weight": weight}),
        ("POST", "/v1/groups", {"path": group, "weight": weight}),
        ("DELETE", "/v1/groups" + group, None),
        ("PATCH", "/v1/disks/d", {"scheduler": one(["none", "mq-deadline", "fair", "bfq", "cfq"])}),
        ("PATCH", "/v1/disks/d", {"depth": one(["auto", 4, 32, 64])}),
        ("PATCH", "/v1/disks/d", {"nr_requests": one(["auto", 128, 1024])}),
        ("PATCH", "/v1/disks/d", one([{"isolation_cost": t.random.randrange(90)}, {"slice_idle": one([0, "auto"])}, {"read_expire": "20ms"}])),
        ("POST", "/v1/disks", {"name": disk, "scheduler": one(["none", "fair"])}),
        ("DELETE", f"/v1/disks/{disk}", None),
        ("POST", "/v1/exports", {"name": other, "backing": "mem:1m", "disk": one(["d", "e", "f"]), "group": "/x"}),
        ("POST", "/v1/exports", {"name": other, "backing": f"file:{image}", "read_only": one([True, False])}),
        ("DELETE", f"/v1/exports/{other}{one(['', '?now=true'])}", None),
        ("PATCH", f"/v1/exports/{other}", {"size": "auto"}),
        ("PATCH", f"/v1/exports/{other}", {"read_only": one([True, False])}),
        ("PATCH", f"/v1/exports/{tenant}", {"group": group}),
        ("PATCH", f"/v1/exports/{tenant}", {"ioprio": one(["be/0", "be/7", "rt/1", "idle"])}),
        ("PATCH", f"/v1/exports/{tenant}", {"description": f"change {n}"}),
        ("POST", "/v1/listeners", {"address": door}),
        ("DELETE", f"/v1/listeners/{door}", None),
    ]
    if t.random.random() < 0.05:
        changes = [{"set": "group", "name": group, "weight": weight}, {"set": "disk", "name": "d", "depth": 16},
                   {"add": "group", "name": "/x/y"}]
        return "POST", "/v1/changes", {"changes": changes}
    return one(kinds)


@test(fairlift_only=True, seconds=1200 if FULL else 120)
def random_changes_under_verified_writes_lose_nothing(t):
    count, seconds = (10_000, 300) if FULL else (300, 6)
    server = t.server(config=TENANTS)
    control = Control(t, server)
    load = [fio(t, server, f"t{n}", 1200) for n in range(4)]
    image = t.image("i.img", 4 * MIB)
    control.working(*(f"t{n}" for n in range(4)))
    made, refused, kinds, start = 0, 0, set(), time.monotonic()
    for n in range(count):
        time.sleep(max(0, start + n * seconds / count - time.monotonic()))
        change = random_change(t, image, n)
        try:
            control.ask(*change)
            made += 1
            kinds.add((change[0], change[1].split("/")[2].split("?")[0]))
        except AssertionError as why:
            if "wanted 200, got 422" not in str(why):
                raise
            refused += 1
        ended = [process for process in load if process.poll() is not None]
        if ended:
            raise AssertionError(f"fio has ended at change {n}: " + Path(t.path("t0.fio")).read_text()[-800:])
    print(f"{count} changes asked: {made} made, {refused} refused, in {time.monotonic() - start:.0f} s")
    if made < count // 3:
        raise AssertionError(f"only {made} of {count} changes were made")
    if len(kinds) < (12 if FULL else 9):
        raise AssertionError(f"only these were made: {sorted(kinds)}")
    fio_stops(*load)
    equal(control.ask("GET", "/v1")["flush_errors"], [])


@test(fairlift_only=True)
def clients_that_say_nothing_or_junk_or_never_end_hurt_nobody(t):
    server = t.server("a=mem:4m")
    control = Control(t, server)
    fds = server.fds_at_rest()
    silent = []
    for _ in range(1000):
        one = socket.socket(socket.AF_UNIX)
        one.settimeout(60)
        one.connect(control.path)
        silent.append(one)
    control.ask("GET", "/v1")
    server.serves("a", 4 * MIB)
    with socket.socket(socket.AF_UNIX) as junk:
        junk.connect(control.path)
        junk.settimeout(60)
        with contextlib.suppress(OSError):
            junk.sendall(t.random.randbytes(MIB))
        with contextlib.suppress(OSError):
            junk.recv(4096)
    with socket.socket(socket.AF_UNIX) as heads:
        heads.connect(control.path)
        heads.settimeout(60)
        with contextlib.suppress(OSError):
            heads.sendall(b"GET /v1 HTTP/1.1\r\n" + b"X-A: b\r\n" * 100_000)
        with contextlib.suppress(OSError):
            answer = heads.recv(4096)
            if answer and b"431" not in answer and b"400" not in answer:
                raise AssertionError(f"100,000 fields were answered {answer[:200]}")
    contains(control.ask("POST", "/v1/groups", "x" * (3 * MIB), code=413)["error"], "more than 2 MiB")
    contains(control.ask("POST", "/v1/groups", "[1,2", code=400)["error"], "not JSON")
    contains(control.ask("POST", "/v1/groups", "[1,2]", code=400)["error"], "not an object")
    with socket.socket(socket.AF_UNIX) as endless:
        endless.connect(control.path)
        endless.settimeout(60)
        endless.sendall(b"POST /v1/groups HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
        contains(endless.recv(4096).decode(), "408", "has not come to its end")
    server.serves("a", 4 * MIB)
    # Those that said nothing were left by the server.
    for one in silent:
        with contextlib.suppress(ConnectionError):
            one.recv(4096)
        one.close()
    server.fds_settle(fds + 2)


@test(fairlift_only=True)
def an_export_of_the_empty_name_is_looked_at_and_changed_like_others(t):
    server = t.server("=mem:4m", "b=mem:4m")
    control = Control(t, server)
    contains(control.cli("get", "export", ""), "size: 4194304")
    contains(control.cli("why", ""), "no client is connected")
    contains(control.cli("set", "export", "", "description=nameless"), "nameless")
    contains(control.ask("PUT", "/v1/exports/", code=405)["error"], "it takes GET, PATCH, DELETE")
    control.cli("remove", "export", "")
    equal([row["name"] for row in control.ask("GET", "/v1/exports")], ["b"], "exports")
    contains(control.cli("get", "export", "", code=1), 'there is no export ""')


@test(fairlift_only=True)
def a_body_that_is_refused_takes_no_memory(t):
    server = t.server("a=mem:4m")
    control = Control(t, server)
    before, open_ = resident(server), []
    heads = [b"POST /v1/nothing HTTP/1.1\r\nHost: x", b"POST /v1 HTTP/1.1\r\nHost: x", b"POST /v1/groups HTTP/1.1\r\nHost: x\r\nOrigin: http://evil.example"]
    for number in range(60):
        one = socket.socket(socket.AF_UNIX)
        t.defer(one.close)
        one.settimeout(60)
        one.connect(control.path)
        one.sendall(heads[number % 3] + b"\r\nContent-Length: 2000000\r\n\r\n" + bytes(1_900_000))
        open_.append(one)
    most = resident(server)
    assert most < before + 40 * MIB, f"60 bodies that are refused take {(most - before) // MIB} MiB"
    for number, one in enumerate(open_[:3]):
        one.sendall(bytes(100_000))
        contains(one.recv(4096).decode(), f"HTTP/1.1 {[404, 405, 403][number]}")


@test(fairlift_only=True)
def only_those_who_may_change_a_server_can(t):
    token = "0123456789abcdef0123456789abcdef"
    t.secret("token", token + "\n")
    port = free_port()
    server = t.server("a=mem:4m", args=[
        "--control", f"unix:{t.path('rw.sock')}", "--control", f"unix:{t.path('ro.sock')},mode=0666,read_only",
        "--control", f"tcp:127.0.0.1:{port},token={t.path('token')}"])
    equal(os.stat(t.path("rw.sock")).st_mode & 0o777, 0o600, "the mode of the socket")
    equal(os.stat(t.path("ro.sock")).st_mode & 0o777, 0o666, "the mode of the other")
    control, looker = Control(t, server, t.path("rw.sock")), Control(t, server, t.path("ro.sock"))
    equal(looker.ask("GET", "/v1")["version"], 0)
    contains(looker.ask("POST", "/v1/groups", {"path": "/x"}, code=403)["error"], "this control address is read-only")
    contains(control.ask("GET", "/v1", code=403, headers={"Origin": "http://evil.example"})["error"], "may not speak")
    control.ask("POST", "/v1/groups", {"path": "/x"})
    # As a page of another site asks for a picture, or puts it into a frame: it would take traces for hours.
    for site in "cross-site", "same-site":
        contains(control.ask("GET", "/v1/trace?seconds=0.1", code=403, headers={"Sec-Fetch-Site": site})["error"], "other sites may not speak")
    for site in "same-origin", "none":
        control.ask("GET", "/v1", headers={"Sec-Fetch-Site": site})

    def tcp(code, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", "/v1", headers={name.replace("_", "-"): value for name, value in headers.items()})
        equal(connection.getresponse().status, code, f"the answer to {headers}")

    tcp(401)
    tcp(401, Authorization="Bearer " + token[:-1] + "0")
    tcp(401, Authorization="Bearer " + token[:-1])
    tcp(200, Authorization="Bearer " + token)
    tcp(403, Authorization="Bearer " + token, Host="evil.example")
    tcp(403, Authorization="Bearer " + token, Origin="http://evil.example")
    contains(t.run(BINARY, "get", "group", "/x", "--control", f"tcp:127.0.0.1:{port},token={t.path('token')}"), "/x")
    contains(t.serve_fails("mem:1m", "--listen", f"unix:{t.path('x')}", "--control", "tcp:127.0.0.1:1"), "token")


@test(fairlift_only=True)
def the_config_file_says_where_control_is_and_a_check_finds_what_a_start_would(t):
    t.secret("token", "0123456789abcdef0123456789abcdef\n")
    port = free_port()
    text = f"""
        [server]
        control = ["unix:ctl.sock,mode=0660,group=daemon", "unix:look.sock,read_only", "tcp:127.0.0.1:{port},token=token"]
        [export.a]
        backing = "mem:1m"
        """
    server = t.server(config=text)
    status = os.stat(t.path("ctl.sock"))
    equal((status.st_mode & 0o777, status.st_gid), (0o660, grp.getgrnam("daemon").gr_gid), "mode and group of the socket")
    control = Control(t, server, t.path("ctl.sock"))
    control.ask("POST", "/v1/groups", {"path": "/x"})
    contains(Control(t, server, t.path("look.sock")).ask("POST", "/v1/groups", {"path": "/y"}, code=403)["error"], "this control address is read-only")
    contains(t.run(BINARY, "get", "group", "/x", "--control", f"tcp:127.0.0.1:{port},token={t.path('token')}"), "/x")
    # What was said for control holds to the end; the file says it with its line.
    path = Path(t.path("server0.toml"))
    path.write_text(text.replace("mode=0660", "mode=0600").replace("1m", "1m\"\ndescription = \"new"))
    refused_ = control.ask("POST", "/v1/reload", code=422)["error"]
    contains(refused_, "server0.toml:3:20: server.control: unix:", "ctl.sock cannot have other options while the server runs")
    path.write_text(text.replace('"unix:look.sock,read_only", ', ""))
    contains(control.ask("POST", "/v1/reload", code=422)["error"], f"tcp:127.0.0.1:{port} cannot take the place of unix:", "look.sock while")
    equal(control.ask("GET", "/v1/exports/a")["description"], "", "what a refused reload has changed")
    path.write_text(text.replace("1m", "1m\"\ndescription = \"new"))
    contains(control.ask("POST", "/v1/reload", code=409, headers={"If-Match": '"7"'})["error"], "version 7 was asked for")
    control.ask("POST", "/v1/reload", headers={"If-Match": '"1"'})
    equal(control.ask("GET", "/v1/exports/a")["description"], "new", "the description")
    # A token is another when its file is read again.
    known = f"tcp:127.0.0.1:{port},token={t.path('token')}"
    t.secret("known", Path(t.path("token")).read_text())
    Path(t.path("token")).write_text("short\n")
    contains(control.ask("POST", "/v1/reload", code=422)["error"], "server0.toml:3", "server.control", "at least 16 letters")
    t.run(BINARY, "get", "group", "/x", "--control", f"tcp:127.0.0.1:{port},token={t.path('known')}")
    Path(t.path("token")).write_text("another0another0another0another0\n")
    for more in {"dry_run": True}, {}:
        equal(control.ask("POST", "/v1/reload", more)["changes"], [f"control tcp:127.0.0.1:{port}: other token"])
    contains(t.run(BINARY, "get", "group", "/x", "--control", known), "/x")
    contains(t.run(BINARY, "get", "group", "/x", "--control", f"tcp:127.0.0.1:{port},token={t.path('known')}", code=None), "the token is missing or wrong")
    server.stop()
    equal([os.path.exists(t.path(name)) for name in ("ctl.sock", "look.sock")], [False, False], "whether sockets stay behind")

    def check(value, *says):
        path.write_text(text.replace(text.split("control = ")[1].split("\n")[0], value))
        for more in ["--check"], []:
            shown = t.serve_fails("--config", str(path), "--listen", f"unix:{t.path('n.sock')}", *more)
            contains(shown, "server0.toml:3:", "server.control", *says)

    check('"unix:/no/such/ctl.sock"', "cannot listen for control at unix:/no/such/ctl.sock: its directory does not exist")
    check('"unix:ctl.sock,owner=nobody-at-all"', 'there is no "nobody-at-all" in /etc/passwd')
    check(f'"tcp:127.0.0.1:{port}"', "give the file of a token")
    check(f'"tcp:127.0.0.1:{port},token=none"', "none: No such file")
    check(f'"tcp:127.0.0.1:{port},certificates=none"', "server-cert.pem: No such file")
    check('"unix:n.sock"', "is for clients of exports already")
    check('["unix:c.sock", "unix:c.sock,read_only"]', "is for control already")
    check('["unix:c.sock", "off"]', 'stands alone')
    check('"unix:c.sock,mod=0600"', 'did you mean "mode"?')
    check('7', "takes text in quotes, not 7")
    with socket.socket(socket.AF_UNIX) as there:
        there.bind(t.path("c.sock"))
        there.listen()
        check('"unix:c.sock"', "another server is listening there")


@test(fairlift_only=True)
def a_shell_completes_the_names_of_what_there_is(t):
    server = t.server("alice=mem:1m", "bob=mem:1m")
    control = Control(t, server)
    control.cli("add", "group", "/tenants/carol")
    control.cli("add", "disk", "ssd0", "scheduler=mq-deadline")
    scripts = {shell: t.run(BINARY, "completions", shell) for shell in ("bash", "zsh", "fish")}
    Path(t.path("bin")).mkdir()
    os.symlink(BINARY, t.path("bin") + "/fairlift")

    def offered(line, env=control.env, shell="bash"):
        """What a shell offers at the end of a line. Of zsh, where only a terminal can complete, what the script would show."""
        words = line.split(" ")
        quoted = " ".join(f"'{word}'" for word in words)
        ask = {
            "bash": f"""{scripts["bash"]}
                COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; COMP_TYPE=9
                _clap_complete_fairlift fairlift '{words[-1]}' '{words[-2]}'; printf '%s\\n' "${{COMPREPLY[@]}}" """,
            "zsh": f"""compdef() {{ :; }}; _describe() {{ local one; for one in "${{(@P)3}}"; do print -r -- "$one${{5-}}"; done }}
                {scripts["zsh"]}
                words=({quoted}); CURRENT={len(words)}; _clap_dynamic_completer_fairlift""",
            "fish": f"""{scripts["fish"]}
                complete -C '{line}'""",
        }[shell]
        path = t.path("bin") + ":" + os.environ["PATH"]
        options = {"zsh": ["-f"], "fish": ["--no-config"]}.get(shell, [])
        said = t.run(shell, *options, "-c", ask, env={**env, "PATH": path, "HOME": t.path("bin")}).split("\n")
        said = [re.split(r"[:\t]", word)[0] for word in said]
        return [word for word in said if word and not word.startswith("-")]

    equal(offered("fairlift get export "), ["alice", "bob"], "the exports")
    equal(offered("fairlift set export al"), ["alice"], "the exports with al")
    equal(offered("fairlift set group /"), ["/", "/alice", "/bob", "/tenants", "/tenants/carol"], "the groups")
    equal(offered("fairlift remove disk "), [disk["name"] for disk in control.ask("GET", "/v1/disks")], "the disks")
    control.cli("add", "client", "backup", "uid=0", "exports=alice,bob", "group=/")
    equal(offered("fairlift set client "), ["backup"], "the clients")
    equal(offered("fairlift set client backup exports=a"), ["exports=alice"], "the exports that a client may open")
    equal(offered("fairlift set group /tenants/carol we"), ["weight="], "what a group has that begins with we")
    equal(offered("fairlift set disk ssd0 read"), ["read_expire="], "the tunables of mq-deadline with read")
    if "mq-deadline" not in offered("fairlift set disk ssd0 scheduler = "):
        raise AssertionError("the schedulers are not offered")
    equal(offered("fairlift get export ", {**os.environ, "FAIRLIFT_CONTROL": "unix:/nowhere"}), [], "what a server that is not there has")
    for shell in "zsh", "fish":
        equal(offered("fairlift get export ", shell=shell), ["alice", "bob"], f"the exports, in {shell}")
        # zsh takes "/" for a directory without a name, and leaves it out.
        groups = ["/"] * (shell == "fish") + ["/alice", "/bob", "/tenants", "/tenants/carol"]
        equal(offered("fairlift set group /", shell=shell), groups, f"the groups, in {shell}")
        equal(offered("fairlift set group /tenants/carol we", shell=shell), ["weight="], f"what begins with we, in {shell}")
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(t.path("silent.sock"))
        silent.listen()
        equal(offered("fairlift get export ", {**os.environ, "FAIRLIFT_CONTROL": f"unix:{t.path('silent.sock')}"}), [], "what a silent server has")


@test(fairlift_only=True)
def every_route_of_the_openapi_document_is_there_and_every_event_is_told(t):
    server = t.server("a=mem:4m")
    control = Control(t, server)
    with open(t.path("events"), "wb") as out:
        t.start(BINARY, "events", "--after", "0", "--json", stdout=out, env=control.env)
    document = control.ask("GET", "/v1/openapi.json")
    for method, path, query, codes in (("get", "/v1/events", ["after", "last"], ""), ("post", "/v1/take-over", ["version"], ""),
                                       ("get", "/v1/status", ["seconds"], "429"), ("get", "/v1/why", ["seconds", "tenant"], "404 429")):
        operation = document["paths"][path][method]
        equal([one["name"] for one in operation["parameters"]], query, path)
        equal(sorted(set(codes.split()) - set(operation["responses"])), [], path)
    ends = []
    for path, item in document["paths"].items():
        for method in item:
            if path in ("/v1/stop", "/v1/drain"):
                ends.append(path)
                continue
            if path == "/v1/events":
                continue
            connection = Unix(control.path)
            connection.request(method.upper(), path.replace("{name}", "nobody") + "?seconds=0.1",
                               None if method == "get" else "{}")
            answer = connection.getresponse()
            said = answer.read()
            if answer.status in (405, 500) or b"openapi.json lists" in said:
                raise AssertionError(f"{method} {path} is in the document, and answers {answer.status} {said}")
    equal(sorted(ends), ["/v1/drain", "/v1/stop"])
    image = t.image("cut", 4 * MIB)
    control.ask("POST", "/v1/exports", {"name": "cut", "backing": f"file:{image}"})
    with server.connect("cut") as client:
        os.truncate(image, MIB)
        with refused(EIO):
            client.read(2 * MIB, 4096)
    contains(control.ask("PUT", "/v1/groups", "{}", code=405)["error"], "PUT /v1/groups is not possible; it takes GET, POST")
    contains(control.ask("GET", "/v1/grops", code=404)["error"], 'did you mean "/v1/groups"?')
    place = f"unix:{server.socket}"
    contains(control.cli("get", "listener", place), place)
    contains(control.cli("get", "listener", place + "x", code=1), "there is no listener", "did you mean")
    control.ask("POST", "/v1/groups", {"path": "/told"})
    with server.connect("a") as client:
        client.read(0, 512)
    control.ask("DELETE", "/v1/exports/cut?now=true")
    control.ask("POST", "/v1/acknowledge")
    # An export that is removed goes when its worker has let go of it: before what was asked after that, or later.
    every = {"changed", "connected", "left", "failed", "noted", "removed"}
    events = lambda: [json.loads(line) for line in Path(t.path("events")).read_text().splitlines(True) if line.endswith("\n")]
    until(lambda: every <= {event["event"] for event in events()}, f"each of {sorted(every)} is told")
    told = events()
    contains(" ".join(event["what"] for event in told if event["event"] == "changed"), 'group "/told": added, weight 100')
    failed = next(event for event in told if event["event"] == "failed")
    equal((failed["backing"], failed["request"], failed["error"]), (image, "read", "Input/output error (os error 5)"), "what failed")
    control.ask("POST", "/v1/drain")
    server.ended(0)


@test(fairlift_only=True)
def weights_set_while_tenants_read_are_what_they_get(t):
    # A slow disk, so that it is the disk that they share, and not this machine.
    config = TENANTS.replace('"mem:32m"', '"sim:sata-7200,size=8g"').replace('"fair"', '"bfq"')  # shares in bytes
    server = t.server(config=config)
    control = Control(t, server)
    load = [fio(t, server, f"t{n}", 100, "--rw=randread", "--size=2g", f"--offset={2 * n}g", "--verify=0") for n in range(2)]
    control.working("t0", "t1")

    def shares():
        status = json.loads(control.cli("status", "--json", "--seconds", "4"))
        return {tenant["path"]: tenant for tenant in status["tenants"]}

    def has(weight, entitled, low, high):
        tenant = shares()["/tenants/t0"]
        equal(tenant["entitled"], entitled, f"what it is entitled to by a weight of {weight}")
        assert low < tenant["share"] < high, f"a tenant of weight {weight} beside one of 100 had {tenant['share']:.3f} of the disk"

    again(lambda: has(100, 0.5, 0.4, 0.6))
    control.cli("set", "group", "/tenants/t0", "weight=300")
    time.sleep(1)
    again(lambda: has(300, 0.75, 0.68, 0.82))
    fio_stops(*load)


if __name__ == "__main__":
    main()
