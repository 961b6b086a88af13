"""Limits of groups, over NBD: from the config file, from a flag, and changed while the server runs.

What is counted is what the server says that it did; a busy machine does less, so only the upper bound is exact.
"""

import http.client
import socket
import threading

from control import fio, fio_stops
from harness import *

CONFIG = """
[server]
workers = 2
[export.a]
backing = "mem:64m"
group = "/t/a"
[export.b]
backing = "mem:64m"
group = "/t/b"
[group."/t"]
max = "bps=400m"
[group."/t/a"]
max = { riops = 500 }
"""


def change(t, server, *words):
    """What a command answers that speaks to the server."""
    return t.run(BINARY, *words, env={**os.environ, "FAIRLIFT_CONTROL": f"unix:{server.socket}.control.sock"})


class Control(http.client.HTTPConnection):
    """HTTP at the control socket of a server, kept open."""

    def __init__(self, server):
        super().__init__("localhost", timeout=30)
        self.path = f"{server.socket}.control.sock"

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


def reads(t, server, export, seconds, least=0):
    """How many reads of 4 KiB fio does with 32 outstanding, and in what time; asked again where a busy machine does fewer than `least` a second."""
    job = ["--name=x", "--ioengine=nbd", f"--uri={server.uri(export)}", "--rw=randread", "--bs=4k", "--iodepth=32"]
    for _ in range(4):
        out = t.run("fio", *job, "--time_based", f"--runtime={seconds}", "--output-format=json", seconds=60)
        read = json.loads(out[out.index("{"):])["jobs"][0]["read"]
        if read["total_ios"] > least * read["runtime"] / 1000:
            break
    return read["total_ios"], read["runtime"] / 1000


@test(fairlift_only=True)
def a_ceiling_holds_under_every_scheduler_and_changes_while_it_is_used(t):
    t.tool("fio")
    for scheduler in ["none", "mq-deadline", "bfq", "cfq", "fair"]:
        server = t.server(config=CONFIG, args=["--scheduler", scheduler])
        count, seconds = reads(t, server, "a", 1, 250)
        most = 500 * seconds * 1.01 + 32 + 4  # what was outstanding when the time was over is counted too
        if not 250 * seconds < count <= most:
            raise AssertionError(f"{scheduler}: {count} reads in {seconds} s, and the limit is 500")
        change(t, server, "set", "group", "/t/a", "max=riops=2000")
        count, seconds = reads(t, server, "a", 1, 600)
        if not 600 * seconds < count <= 2000 * seconds * 1.01 + 32 + 12:
            raise AssertionError(f"{scheduler}: {count} reads in {seconds} s, and the limit is 2000")
        server.stop()


@test(fairlift_only=True)
def a_server_ends_at_once_though_a_limit_holds_requests_for_minutes(t):
    server = t.server("a=mem:1m", args=["--max", "a=wiops=1"])
    client = server.connect("a")
    for _ in range(60):
        client.submit(nbdclient.WRITE, 0, 4096, bytes(4096))
    server.stop(seconds=30)  # the limit holds the last of them for a minute


@test(fairlift_only=True)
def a_scheduler_is_changed_though_a_limit_holds_requests_for_minutes(t):
    config = '[disk.d]\nscheduler = "none"\n[export.a]\nbacking = "mem:1m"\ndisk = "d"\n'
    server = t.server(config=config, args=["--max", "a=wiops=1", "--workers", "2"])
    client = server.connect("a")
    for _ in range(60):
        client.submit(nbdclient.WRITE, 0, 4096, bytes(4096))
    said = change(t, server, "set", "disk", "d", "scheduler=bfq")
    contains(said, "scheduler_in_place: bfq", "frozen: false")  # the command waits until it is so
    change(t, server, "set", "group", "/a", "max=max")
    for _ in range(60):
        client.reply()


@test(fairlift_only=True)
def limits_change_hundreds_of_times_a_second_while_a_client_checks_what_it_reads(t):
    t.tool("fio")
    limits = ["iops=1000000", "max", "iops=20000 bps=200m", "iops=100", "wiops=5000"]  # the fourth is far below what is in flight
    for scheduler in ["none", "fair"]:
        server = t.server("a=mem:16m", args=["--scheduler", scheduler, "--workers", "2", "--max", "a=iops=1000000"])
        stop, counts = threading.Event(), [0, 0]

        def turn():
            connection = Control(server)
            while not stop.is_set():
                connection.request("PATCH", "/v1/groups/a", json.dumps({"max": limits[sum(counts) % len(limits)]}))
                answer = connection.getresponse()
                answer.read()
                counts[answer.status != 200] += 1
            connection.close()

        thread = threading.Thread(target=turn)
        thread.start()
        try:
            job = ["--name=x", "--ioengine=nbd", f"--uri={server.uri('a')}", "--verify_state_save=0", "--rw=randrw", "--bs=4k", "--iodepth=32", "--size=16m"]
            t.run("fio", *job, "--io_size=12m", "--verify=crc32c", "--verify_fatal=1", seconds=60)
        finally:
            stop.set()
            thread.join()
        if counts[0] < 20 or counts[1]:
            raise AssertionError(f"{scheduler}: {counts[0]} changes, and {counts[1]} were refused")
        server.stop()


@test(fairlift_only=True)
def floors_that_are_more_than_the_disk_does_are_said_in_status_and_in_the_log(t):
    config = """
[disk.d]
scheduler = "fair"
[export.a]
backing = "sim:ssd-2010,size=64m"
group = "/a"
disk = "d"
[group."/a"]
min = "riops=900000"
[group."/elsewhere"]
min = "riops=5"
"""
    server = t.server(config=config)
    load = fio(t, server, "a", 100, "--rw=randread", "--verify=0")  # seconds one after the other have to be short
    says = 'warning: disk "d": floors (min) add up to 900000 I/Os a second, and the disk has done at most '
    until(lambda: says in change(t, server, "status"), "status says so")
    until(lambda: "floors (min) add up to 900000" in server.log(), "it is in the log")
    change(t, server, "set", "group", "/a", "min=riops=10")
    if "add up" in change(t, server, "status"):
        raise AssertionError("it says so of floors that it can keep")
    fio_stops(load)


BAD = [
    ("max = { iops = 5 }\nmin = { iops = 9 }", "6:7: error: group.\"/a\".min: min iops=9 is above max iops=5: both cannot hold"),
    ("max = { iops = -1 }", "5:16: error: group.\"/a\".max.iops: takes 1 to 1000000000, not -1"),
    ("max = { iops = 0 }", "5:16: error: group.\"/a\".max.iops: takes 1 to 1000000000, not 0"),
    ("max = { iops = 1000000001 }", "5:16: error: group.\"/a\".max.iops: takes 1 to 1000000000, not 1000000001"),
    ("burst = { iops = 9 }", "5:9: error: group.\"/a\".burst: a burst of iops needs a max of iops: a rate without a limit has no bursts"),
    ("[group.\"/\"]\nmin = { iops = 9 }", "6:7: error: group.\"/\".min: the root has all of the disk"),
    ("max = { iops = 1 }", None),
    ("max = { iops = 1000000000 }", None),
    ("[group.\"/\"]\nmax = { iops = 9 }", None),
]


@test(fairlift_only=True)
def each_limit_that_cannot_be_is_refused_with_its_line(t):
    path = Path(t.path("bad.toml"))
    for text, says in BAD:
        path.write_text(f'[export.a]\nbacking = "mem:1m"\ngroup = "/a"\n[group."/a"]\n{text}\n')
        out = t.run(BINARY, "serve", "--config", str(path), "--scheduler", "fair", "--check", code=2 if says else 0)
        if says:
            contains(out, f"bad.toml:{says}")


@test(fairlift_only=True)
def limits_that_cannot_be_kept_are_refused_where_they_are_written(t):
    path = Path(t.path("bad.toml"))
    path.write_text('[export.a]\nbacking = "mem:1m"\ngroup = "/a"\n[group."/a"]\nmax = { riops = 0 }\nmin = { iops = 5 }\n')
    out = t.run(BINARY, "serve", "--config", str(path), "--check", code=2)
    contains(out, "bad.toml:5:17: error: group.\"/a\".max.riops: takes 1 to 1000000000, not 0")
    path.write_text('[disk.d]\nscheduler = "mq-deadline"\n[export.a]\nbacking = "mem:1m"\ndisk = "d"\ngroup = "/a"\n[group."/a"]\nmin = { iops = 5 }\n')
    out = t.run(BINARY, "serve", "--config", str(path), "--check", code=2)
    contains(out, "bad.toml:8:7: error: group.\"/a\".min: export \"a\" is on a disk with scheduler mq-deadline")


if __name__ == "__main__":
    main()
