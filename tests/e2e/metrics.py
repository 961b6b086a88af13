"""What a server tells of itself: metrics that Prometheus takes, and traces that blktrace's tools read."""

import struct

from control import Control, Unix
from harness import *
from successor import upgrade
from why import Load


def scrape(control, accept="text/plain"):
    connection = Unix(control.path)
    try:
        connection.request("GET", "/metrics", headers={"Accept": accept})
        answer = connection.getresponse()
        equal(answer.status, 200, "the status")
        return answer.read().decode(), answer.headers["Content-Type"]
    finally:
        connection.close()


def samples(text):
    """{(name, labels as they are written): value}"""
    found = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            series, value = line.rsplit(" ", 1)
            name, _, labels = series.partition("{")
            found[name, labels.rstrip("}")] = float(value)
    return found


def checked(t, text):
    """promtool has nothing to say against it."""
    path = t.path("metrics")
    Path(path).write_text(text)
    said = t.run("sh", "-c", f"promtool check metrics < {path}", code=None)
    equal(said.strip(), "", "what promtool says")


@test(fairlift_only=True)
def promtool_takes_the_metrics_and_they_say_what_was_done(t):
    name = 'al"ice \\ 😀'
    server = t.server(config=f"""
        [disk.d]
        scheduler = "fair"
        [export.a]
        backing = "mem:64m"
        disk = "d"
        group = {json.dumps("/" + name, ensure_ascii=False)}
        [group.{json.dumps("/" + name, ensure_ascii=False)}]
        weight = 300
        """)
    control = Control(t, server)
    with server.connect("a") as client:
        for n in range(10):
            client.write(n * 4 * KIB, bytes(4 * KIB))
        client.read(0, 8 * KIB)
        client.flush()
        text, kind = scrape(control)
    contains(kind, "text/plain")
    checked(t, text)
    found = samples(text)
    tenant = 'disk="d",tenant="/al\\"ice \\\\ 😀"'
    of = lambda name, more="": found[name, tenant + more]
    write, read = ',operation="write"', ',operation="read"'
    equal(of("fairlift_operations_total", write), 10, "writes")
    equal(of("fairlift_operation_bytes_total", read), 8 * KIB, "bytes read")
    equal(of("fairlift_operation_seconds_count", write), 10, "latencies of writes")
    equal(of("fairlift_tenant_weight"), 300, "the weight")
    equal(of("fairlift_tenant_entitled"), 1, "the entitlement of who is alone")
    buckets = [value for (name, labels), value in found.items()
               if name == "fairlift_operation_seconds_bucket" and write[1:] in labels]
    equal((len(buckets), buckets), (20, sorted(buckets)), "the buckets of writes")
    equal(buckets[-1], 10, "all writes are in the last bucket")
    parts = sum(value for (name, labels), value in found.items()
                if name == "fairlift_operation_part_seconds_total" and write[1:] in labels and 'part="reply"' not in labels)
    whole = of("fairlift_operation_seconds_sum", write)
    if not abs(parts - whole) < 1e-9 + whole / 1e6:
        raise AssertionError(f"the parts of writes add up to {parts}, and they took {whole}")
    text, kind = scrape(control, "application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
    contains(kind, "application/openmetrics-text; version=1.0.0")
    contains(text[-100:], "# EOF")


def counters(text):
    """What may only rise: {series as it is written: value}"""
    kinds = dict(re.findall(r"^# TYPE (\S+) (\w+)$", text, re.M))
    found = samples(text)
    is_one = lambda name: kinds.get(name) == "counter" or kinds.get(re.sub(r"_(bucket|count|sum)$", "", name)) == "histogram"
    return {series: value for series, value in found.items() if is_one(series[0])}


@test(fairlift_only=True)
def counters_only_rise_whatever_comes_and_goes(t):
    """Clients connect, work and leave; exports move, go and come again, and groups, disks, listeners and connections to another server with
    them; schedulers follow one another; the config is read again. Each counter that /metrics describes is there at some time."""
    # So slow that the disk is busy however little the clients run.
    export = '[export.{0}]\nbacking = "null:64m,delay=20ms"\ndisk = "d"\ngroup = "/{0}"\n'
    other = t.server("far=mem:64m")
    door = t.path("door.sock")
    without_alice = ("a disk loses its last export", "and has one again", "all leave")
    config = '[disk.d]\nscheduler = "fair"\n[group."/carol"]\n[group."/bob"]\nweight = 200\n' + export.format("alice") + export.format("bob")
    config += f'[export.far]\nbacking = "{other.uri("far")}"\n'
    cached = t.image("cached.img", MIB)
    config += f'[export.cached]\nbacking = "file:{cached},direct=off"\ngroup = "/carol"\n'
    server = t.server(config=config)
    control = Control(t, server)
    with server.connect("cached") as client:
        for _ in range(3):
            client.read(0, 4 * KIB)
    most, described, fallen, step, ended, looking = {}, set(), [], ["start"], threading.Event(), threading.Lock()

    def look():
        with looking:  # one after another, or an older look would seem a fall
            text = scrape(control)[0]
            described.update(re.findall(r"^# TYPE (\S+) (?:counter|histogram)$", text, re.M))
            now = counters(text)
            fallen.extend(f"{step[0]}: {series} from {most[series]} to {value}" for series, value in now.items() if value < most.get(series, 0))
            fallen.extend(f"{step[0]}: {series} is gone" for series in most if series not in now and 'tenant="/alice"' in series[1] and step[0] not in without_alice)
            most.update(now)

    def watch():
        while not ended.is_set():
            look()

    def mixed(client):
        choice = client.random.randrange(10)
        if choice == 0:
            client.submit(nbdclient.FLUSH)
        elif choice < 5:
            client.submit(nbdclient.WRITE, client.random.randrange(1000) * 4 * KIB, 4 * KIB, bytes(4 * KIB))
        else:
            client.submit(nbdclient.READ, client.random.randrange(1000) * 4 * KIB, 4 * KIB)

    def come(name, at=None):
        with nbdclient.Client(at or server.address, name) as client:
            client.read(0, 4 * KIB)

    def again_at_once(name, *where):
        """It has a request in the device when it goes, and comes again before that has ended."""
        add = lambda: control.cli("add", "export", f"{name}=null:64m,delay=1s", *where)
        add()
        with nbdclient.Client(server.address, name) as old:
            old.read(0, 4 * KIB)
            look()
            old.submit(nbdclient.READ, 0, 4 * KIB)
            control.ask("DELETE", f"/v1/exports/{name}?now=true")
            add()
            with nbdclient.Client(server.address, name) as new:
                new.submit(nbdclient.READ, 0, 4 * KIB)
                look()

    watcher = threading.Thread(target=watch, daemon=True)
    loads = [Load(t, server, name, 8, step=mixed) for name in ("alice", "alice", "bob")]
    time.sleep(0.3)
    watcher.start()
    steps = {
        "a client leaves": loads[0].stop,
        "another comes": lambda: loads.append(Load(t, server, "alice", 8, step=mixed)),
        "an export moves": lambda: control.ask("PATCH", "/v1/exports/bob", {"group": "/carol"}),
        "to another group": lambda: control.ask("PATCH", "/v1/exports/bob", {"group": "/alice"}),
        "and back": lambda: control.ask("PATCH", "/v1/exports/bob", {"group": "/bob"}),
        "no scheduler": lambda: control.ask("PATCH", "/v1/disks/d", {"scheduler": "none"}),
        "bfq": lambda: control.ask("PATCH", "/v1/disks/d", {"scheduler": "bfq"}),
        "fair": lambda: control.ask("PATCH", "/v1/disks/d", {"scheduler": "fair"}),
        "the config again": lambda: (Path(t.path("server1.toml")).write_text(config + export.format("dora")), control.cli("reload")),
        "a new tenant": lambda: loads.append(Load(t, server, "dora", 8, step=mixed)),
        "it goes": lambda: control.ask("DELETE", "/v1/exports/dora?now=true"),
        "it comes again": lambda: (control.cli("add", "export", "dora=null:64m,delay=20ms", "disk=d"), come("dora")),
        "an export goes that has its disk alone": lambda: control.ask("DELETE", "/v1/exports/far?now=true"),
        "and comes again": lambda: (control.cli("add", "export", f"far={other.uri('far')}"), come("far")),
        "a listener comes": lambda: (control.cli("add", "listener", f"unix:{door}"), come("alice", door)),
        "and goes": lambda: control.cli("remove", "listener", f"unix:{door}"),
        "the other server goes": lambda: other.kill(),
        "a disk comes again before the old one has gone": lambda: again_at_once("erin"),
        "a group comes again before the old one has gone": lambda: again_at_once("frank", "disk=d"),
        "a disk loses its last export": lambda: [control.ask("DELETE", f"/v1/exports/{name}?now=true") for name in ("alice", "bob", "dora", "frank")],
        "and has one again": lambda: (control.cli("add", "export", "alice=null:64m,delay=20ms", "disk=d"), come("alice")),
        "all leave": lambda: [load.stop() for load in loads],
    }
    for step[0], act in steps.items():
        act()
        time.sleep(0.2)
    ended.set()
    watcher.join(60)
    look()
    equal(sorted(set(fallen)), [], "counters that fell")
    names = {name for name, _ in most} | {re.sub(r"_(bucket|count|sum)$", "", name) for name, _ in most}
    equal(described - names, set(), "counters that are described, and of which there was none")
    for name in ("active_seconds", "device_seconds"):
        if most[f"fairlift_tenant_{name}_total", 'disk="d",tenant="/alice"'] < 0.5:
            raise AssertionError(f"alice was active for two seconds: {name}")


@test(fairlift_only=True)
def what_a_tenant_did_before_it_went_is_no_part_of_its_rates_when_it_comes_again(t):
    """An export goes with its group, another with its disk too, and both come again: counters go on, and rates and shares are of the time since.
    So they are after an upgrade."""
    reads = 3000  # of 1 ms each
    server = t.server(config='[disk.d]\nscheduler = "fair"\n' + "".join(
        f'[export.{name}]\nbacking = "null:64m,delay=1ms"\n{disk}' for name, disk in (("stays", 'disk = "d"\n'), ("shares", 'disk = "d"\n'), ("alone", ""))))
    control = Control(t, server)
    names = "shares", "alone"

    def work(name, count):
        with server.connect(name) as client:
            for number in range(count):
                client.read(number % 1000 * 4 * KIB, 4 * KIB)

    def had(name):
        return [value for (metric, labels), value in samples(scrape(control)[0]).items() if metric == "fairlift_tenant_had" and f'tenant="/{name}"' in labels]

    for worker in [threading.Thread(target=work, args=(name, reads)) for name in names]:
        worker.start()
        t.defer(worker.join)
    until(lambda: sum("export" in row and row["export"] in names for row in control.ask("GET", "/v1/connections")) == 2, "both work")
    until(lambda: not control.ask("GET", "/v1/connections"), "both have done it")
    for name in names:
        control.ask("DELETE", f"/v1/exports/{name}")
    time.sleep(6)  # longer than a sample of the history
    scrape(control)
    time.sleep(1.1)
    status = t.start(BINARY, "status", "--seconds=2", "--json", env=control.env, stdout=subprocess.PIPE)
    time.sleep(0.5)
    scrape(control)
    came = time.monotonic()
    control.cli("add", "export", "shares=null:64m,delay=1ms", "disk=d")
    control.cli("add", "export", "alone=null:64m,delay=1ms")
    for name in names:
        work(name, 1)
    rows = {row["path"]: row for row in json.loads(status.communicate(timeout=60)[0])["tenants"]}
    for name in names:
        assert 0 < rows["/" + name]["iops"] < 100 and rows["/" + name]["had"] < 0.5, rows["/" + name]
        assert all(value < 0.5 for value in had(name)), had(name)
    series = {labels: value for (metric, labels), value in samples(scrape(control)[0]).items() if metric == "fairlift_operations_total"}
    equal([value for labels, value in series.items() if "alone" in labels or "shares" in labels], [reads + 1.0] * 2, "the counters")

    def since():
        return [sample for sample in control.ask("GET", "/v1/history")["samples"] if sample["ago_seconds"] < time.monotonic() - came]

    until(lambda: len(since()) > 1, "two samples of the history")
    for row in [row for sample in since() for row in sample["tenants"]]:
        assert row["iops"] < 100, f"the history has {row}"
    upgrade(server)
    time.sleep(1.1)
    for name in names:
        work(name, 1)
        assert all(value < 0.5 for value in had(name)), f"after an upgrade {name} had {had(name)}"


@test(fairlift_only=True)
def alerts_and_dashboard_ask_for_what_there_is(t):
    """promtool tests the alerts, parses what the dashboard asks for, and a server has each metric of both."""
    for name in ("alerts.yaml", "alerts_test.yaml"):
        shutil.copy(ROOT / "docs/monitoring" / name, t.path(name))
    t.run("promtool", "check", "rules", "alerts.yaml", cwd=t.dir)
    t.run("promtool", "test", "rules", "alerts_test.yaml", cwd=t.dir)
    dashboard = json.loads((ROOT / "docs/monitoring/dashboard.json").read_text())
    asked = [target["expr"].replace("$__rate_interval", "1m") for panel in dashboard["panels"] for target in panel["targets"]]
    rules = [{"record": f"panel:{number}", "expr": asked} for number, asked in enumerate(asked)]
    Path(t.path("dashboard.yaml")).write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    t.run("promtool", "check", "rules", "dashboard.yaml", cwd=t.dir)
    asked += [variable["query"]["query"] for variable in dashboard["templating"]["list"][1:]]
    server = t.server(config='[export.a]\nbacking = "null:64m,delay=1ms"\n[group."/a"]\nmax = { iops = 100000 }\nmin = { rbps = "1m" }\n')
    with server.connect("a") as client:
        client.write(0, bytes(4 * KIB))
        client.flush()
        found = samples(scrape(Control(t, server))[0])
    limits = {series: value for series, value in found.items() if series[0].endswith(("_max", "_min"))}
    equal(limits, {("fairlift_tenant_max", 'tenant="/a",rate="iops"'): 100_000, ("fairlift_tenant_min", 'tenant="/a",rate="rbps"'): MIB}, "limits")
    there = {name for name, _ in found}
    for text in [*asked, Path(t.path("alerts.yaml")).read_text()]:
        wanted = set(re.findall(r"\b(?:fairlift|process)_[a-z_]+", text))
        equal(wanted - there, set(), f"metrics that nobody has, in {text}")
    alerts = {word for word in re.findall(r"alert: (\w+)", Path(t.path("alerts.yaml")).read_text())}
    tested = set(re.findall(r"alertname: (\w+)", Path(t.path("alerts_test.yaml")).read_text()))
    equal(alerts, tested, "alerts that are tested")


@test(fairlift_only=True)
def each_metric_is_described_by_the_name_of_a_quantity(t):
    server = t.server("a=mem:1m")
    helps = re.findall(r"^# HELP (\S+) (.*)$", scrape(Control(t, server))[0], re.M)
    assert len(helps) > 50, f"{len(helps)} metrics are described"
    clauses = ("What", "Who", "How", "Where", "When", "Which", "That", "Those", "So", "If", "It", "1:", "0:")
    equal([f"{name}: {says}" for name, says in helps if says.split()[0].rstrip(",") in clauses or not says[0].isupper()], [], "clauses")


@test(fairlift_only=True)
def a_scraper_that_reads_nothing_holds_nobody_up(t):
    server = t.server("a=mem:64m")
    control = Control(t, server)
    slow = []
    for _ in range(20):
        connection = Unix(control.path)
        connection.connect()
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        slow.append(connection)
    time.sleep(0.5)
    for connection in slow:
        connection.sock.recv(1)
    text, _ = scrape(control)
    contains(text, "fairlift_worker_busy_seconds_total")
    contains(control.cli("status"), "connections")
    with server.connect("a") as client:
        client.read(0, 4096)
    for connection in slow:
        connection.close()


@test(fairlift_only=True)
def blktrace_tools_read_a_trace(t):
    server = t.server(config="""
        [disk.d]
        scheduler = "fair"
        """ + "".join(f"""
        [export.{name}]
        backing = "null:1g,delay=1ms"
        disk = "d"
        group = "/tenants/{name}"
        """ for name in ("alice", "bob")))
    control = Control(t, server)
    loads = [t.start(
        "fio", f"--name={name}", "--ioengine=nbd", f"--uri={server.uri(name)}", "--rw=randrw", "--bs=4k", "--iodepth=8",
        "--time_based", "--runtime=110", f"--output={t.path(name)}") for name in ("alice", "bob")]
    control.working("alice", "bob")
    contains(control.cli("trace", "--export", "alise", "-o", t.path("x"), code=1), 'did you mean "alice"?')
    said = control.cli("trace", "--seconds=2", "-o", t.path("all"))
    contains(said, "events: ", "all.blktrace.0")
    if "lost" in said:
        raise AssertionError(f"events were lost: {said}")
    files = sorted(str(path) for path in Path(t.dir).glob("all.blktrace.*"))
    for file in files:
        t.run("blkrawverify", Path(file).name.split(".blktrace.")[0], cwd=t.dir)
    for report in Path(t.dir).glob("all.verify.out"):
        if re.search(r"bad|error", report.read_text(), re.I):
            raise AssertionError(report.read_text()[:2000])
    parsed = t.run("blkparse", "-i", "all", cwd=t.dir)
    contains(parsed, "[/tenants/alice]", "[/tenants/bob]")
    letters = set(re.findall(r"^ *240,\d+ +\d+ +\d+ +[\d.]+ +\d+ +([A-Z]) ", parsed, re.M))
    if not {"Q", "G", "I", "D", "C"} <= letters:
        raise AssertionError(f"blkparse saw only {letters}: {parsed[:2000]}")
    t.run("blkparse", "-i", "all", "-d", "all.bin", "-O", cwd=t.dir)
    table = t.run("btt", "-i", "all.bin", cwd=t.dir)
    d2c = re.search(r"^D2C +([\d.]+) +([\d.]+) +([\d.]+)", table, re.M)
    if not d2c or not 0.0009 < float(d2c[2]) < 0.5:
        raise AssertionError(f"the device takes 1 ms: {table[:3000]}")
    control.cli("trace", "--export", "alice", "--seconds=1", "-o", t.path("alice"))
    parsed = t.run("blkparse", "-i", "alice", cwd=t.dir)
    if "[/tenants/bob]" in parsed:
        raise AssertionError("a trace of alice has requests of bob")
    control.cli("trace", "--seconds=0.5", "-o", t.path("t.json"))
    trace = json.loads(Path(t.path("t.json")).read_text())
    phases = [event["ph"] for event in trace["traceEvents"]]
    equal(phases.count("b"), phases.count("e"), "beginnings and ends")
    if phases.count("b") < 100:
        raise AssertionError(f"{phases.count('b')} requests in half a second")
    # What the scheduler says stands among its requests, in words of the kernel's.
    contains(control.cli("trace", "--messages", "--seconds=0.1"), "d: fair says nothing of itself; bfq and cfq do")
    control.cli("set", "disk", "d", "scheduler=cfq")
    said = control.cli("trace", "--messages", "--seconds=2")
    turn = re.search(r"^[\d.]+ d /tenants/(alice|bob) stream \d+: sl_used=\d+ disp=\d+ charge=\d+ iops=[01] sect=\d+$", said, re.M)
    assert turn, f"the turns of cfq: {said[:2000]}"
    equal({json.loads(line)["disk"] for line in control.cli("trace", "--messages", "--json", "--seconds=1").splitlines()}, {"d"}, "disks, as JSON")
    control.cli("trace", "--export", "alice", "--seconds=1", "-o", t.path("turns"))
    parsed = t.run("blkparse", "-i", "turns", cwd=t.dir)
    turns = set(re.findall(r"^ *240,\d+ +0 +\d+ +[\d.]+ +\d+ +m +N (\S+) stream \d+: sl_used=", parsed, re.M))
    equal(turns, {"/tenants/alice"}, "tenants whose turns are in a trace of alice")
    control.cli("trace", "--seconds=1", "-o", t.path("turns.json"))
    marks = [event["name"] for event in json.loads(Path(t.path("turns.json")).read_text())["traceEvents"] if event["ph"] == "i"]
    assert any("sl_used=" in name for name in marks), marks[:20]
    for load in loads:
        load.terminate()
    # The sectors of an export's trace are those of its image, so that it can be replayed.
    image, whole = t.image("image", GIB), max(Path(t.dir).glob("alice.blktrace.*"), key=lambda path: path.stat().st_size)
    t.run("fio", "--name=replay", f"--read_iolog={whole}", f"--replay_redirect={image}", f"--filename={image}",
          "--replay_no_stall=1", "--ioengine=psync", f"--output={t.path('replay')}")
    contains(Path(t.path("replay")).read_text(), "IOPS=")


@test(fairlift_only=True)
def a_trace_ends_in_time_though_its_reader_has_stopped_reading(t):
    server = t.server("a=null:1g")
    control = Control(t, server)
    connection = Unix(control.path, timeout=90)
    connection.connect()
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.request("GET", "/v1/trace?seconds=3")
    answer = connection.getresponse()
    load = Load(t, server, "a", 32)
    contains(control.cli("trace", "--seconds=0.1", "-o", t.path("early"), code=1), "a trace is being taken already")
    time.sleep(3)
    contains(control.cli("trace", "--seconds=0.1", "-o", t.path("late")), "events")
    load.stop()
    # What the first was told is whole, with its end.
    contains(answer.read()[-100:].decode(errors="replace"), "lost=")


@test(fairlift_only=True)
def a_trace_that_nobody_reads_holds_nobody_up_and_counts_what_is_lost(t):
    reads, at_once = 20_000, 50
    server = t.server("a=null:1g", args=["--workers=1", "--scheduler=mq-deadline"])
    for seconds in 10, 60:  # a busy machine may take longer to read than a trace of ten seconds takes
        connection = Unix(Control(t, server).path, timeout=90)
        connection.connect()
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        begun = time.monotonic()
        with server.connect("a") as client:
            connection.request("GET", f"/v1/trace?seconds={seconds}")
            answer = connection.getresponse()  # its head: the trace is being taken
            for n in range(reads):  # every second block, so that none is merged
                client.submit(nbdclient.READ, n * 8 * KIB, 4 * KIB)
                if n >= at_once:
                    client.reply()
            for _ in range(at_once):
                client.reply()
        is_whole = time.monotonic() < begun + seconds
        trace = answer.read()
        if is_whole:
            break
    told, lost, at = {}, 0, 0
    while at < len(trace):
        magic, _, _, _, _, action, _, _, _, _, length = struct.unpack_from("<IIQQIIIIIHH", trace, at)
        equal(magic & 0xFFFFFF00, 0x65617400, "the beginning of a record")
        if action >> 16 & 1 << 10:  # a notice
            for number in re.findall(rb"lost=(\d+)", trace[at + 48:at + 48 + length]):
                lost = int(number)
        else:
            told[action & 0xFFFF] = told.get(action & 0xFFFF, 0) + 1
        at += 48 + length
    if lost < 10_000 or not told:
        raise AssertionError(f"a reader that was not there lost {lost} of {5 * reads} events, and had {told}")
    equal(sum(told.values()) + lost, 5 * reads, "events that were told and that were lost: Q, G, I, D and C of each read")


if __name__ == "__main__":
    main()
