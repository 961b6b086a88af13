"""The log: text, JSON, the journal's fields, and lines that repeat."""

from control import Control
from harness import *


def lines(server, first=0):
    """The lines of a JSON log."""
    return [json.loads(line) for line in Path(server.log_path).read_text().splitlines()[first:] if line.startswith("{")]


@test(fairlift_only=True)
def each_line_of_a_json_log_is_an_object_with_fields(t):
    server = t.server("a=mem:1m", args=["--log=json"])
    path = t.path("a \"quoted\"\n.img")
    Path(path).write_bytes(bytes(MIB))
    Control(t, server).ask("POST", "/v1/exports", {"name": "b", "backing": f"file:{path}"})
    server.stop()
    text = Path(server.log_path).read_text()
    told = [json.loads(line) for line in text.splitlines()]
    equal([line for line in told if not {"timestamp", "level", "message"} <= line.keys()], [], "lines without a time, level or text")
    changed = [line for line in told if line["message"].startswith('changed: export "b": added')]
    equal([(line["level"], "uid " in line["who"]) for line in changed], [("INFO", True)], "the change, and who made it")
    equal([line["path"] for line in told if line["message"].startswith("opened")], [path], "the file that was opened")
    contains(text, "serving a (RAM, 1 MiB)", "drained")


@test(fairlift_only=True)
def a_line_that_repeats_is_told_three_times_and_counted(t):
    server = t.server("a=mem:1m", args=["--max-connections=1", "--log=json"])
    refused = 0
    while True:  # until the connection by which it was seen to listen has gone
        try:
            client = server.connect("a")
            break
        except (OSError, nbdclient.Closed):
            refused += 1
    for _ in range(50):
        with contextlib.suppress(OSError, nbdclient.Closed), nbdclient.Wire(server.address, 5) as wire:
            wire.receive(18)
    client.close()
    server.stop()
    full = [line for line in lines(server) if "there are 1 already" in line["message"]]
    equal([line.get("times") for line in full], [None] * 3 + [47 + refused], "three lines, and the number of the others")
    equal({line["level"] for line in full}, {"WARN"}, "their level")
    contains(full[-1]["message"], "a connection was refused", f"{47 + refused} more times in ")


def fields(record):
    """The fields of a record in the journal's own protocol: NAME=VALUE in a line, or NAME, the value's length and the value."""
    found = {}
    while record:
        line, _, rest = record.partition(b"\n")
        if b"=" in line:
            name, _, value = line.partition(b"=")
        else:
            name, length = line, int.from_bytes(rest[:8], "little")
            value, rest = rest[8:8 + length], rest[9 + length:]
        found[name.decode()], record = value.decode(), rest
    return found


@test(fairlift_only=True)
def under_systemd_the_journal_gets_fields(t):
    """A journal of our own stands where that of systemd does, in a file system tree that only the server sees."""
    place = t.path("run")
    os.makedirs(f"{place}/systemd/journal")
    journal = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    journal.bind(f"{place}/systemd/journal/socket")
    t.defer(journal.close)
    if subprocess.run(["unshare", "--mount", "mount", "--bind", place, "/run"], capture_output=True).returncode:
        t.skip("no mount namespace can be had here")
    path, sock = t.path("image"), t.path("s.sock")
    Path(path).write_bytes(bytes(MIB))
    with open(t.path("stderr"), "wb") as stderr:
        here = os.fstat(stderr.fileno())
        environment = {**os.environ, "JOURNAL_STREAM": f"{here.st_dev}:{here.st_ino}"}
        command = f'mount --bind "{place}" /run && exec "{BINARY}" serve a="{path}" --listen unix:"{sock}"'
        process = subprocess.Popen(["unshare", "--mount", "sh", "-c", command], env=environment, stdout=subprocess.DEVNULL,
                                   stderr=stderr, start_new_session=True)
    t.defer(lambda: end(process))
    journal.settimeout(60)
    record = {}
    while not record.get("MESSAGE", "").startswith("opened"):
        record = fields(journal.recv(1 << 16))
    equal((record["PRIORITY"], record["FAIRLIFT_PATH"], record["SYSLOG_IDENTIFIER"]), ("6", path, "fairlift"), "its fields")
    until_listening(sock, "it")
    with nbdclient.Client(sock, "a") as client:  # it serves, and so it heeds signals
        client.disconnect()
    process.send_signal(signal.SIGTERM)
    equal(process.wait(60), 0, "its exit code")
    equal(Path(t.path("stderr")).read_text(), "", "standard error")


if __name__ == "__main__":
    main()
