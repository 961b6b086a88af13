"""Limits of groups, over NBD: from the config file, from a flag, and changed while the server runs.

What is counted is what the server says that it did; a busy machine does less, so only the upper bound is exact.
"""

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


def reads(t, server, export, seconds):
    """How many reads of 4 KiB fio does with 32 outstanding, and in what time."""
    job = ["--name=x", "--ioengine=nbd", f"--uri={server.uri(export)}", "--rw=randread", "--bs=4k", "--iodepth=32"]
    out = t.run("fio", *job, "--time_based", f"--runtime={seconds}", "--output-format=json", seconds=60)
    read = json.loads(out[out.index("{"):])["jobs"][0]["read"]
    return read["total_ios"], read["runtime"] / 1000


@test(fairlift_only=True)
def a_ceiling_holds_under_every_scheduler_and_changes_while_it_is_used(t):
    t.tool("fio")
    for scheduler in ["none", "mq-deadline", "bfq", "cfq", "fair"]:
        server = t.server(config=CONFIG, args=["--scheduler", scheduler])
        count, seconds = reads(t, server, "a", 2)
        most = 500 * seconds * 1.01 + 32 + 4  # what was outstanding when the time was over is counted too
        if not 250 * seconds < count <= most:
            raise AssertionError(f"{scheduler}: {count} reads in {seconds} s, and the limit is 500")
        change(t, server, "set", "group", "/t/a", "max=riops=2000")
        count, seconds = reads(t, server, "a", 2)
        if not 600 * seconds < count <= 2000 * seconds * 1.01 + 32 + 12:
            raise AssertionError(f"{scheduler}: {count} reads in {seconds} s, and the limit is 2000")
        server.stop()


@test(fairlift_only=True)
def a_server_ends_at_once_though_a_limit_holds_requests_for_minutes(t):
    server = t.server("a=mem:1m", args=["--max", "a=wiops=1"])
    client = server.connect("a")
    for _ in range(60):
        client.submit(nbdclient.WRITE, 0, 4096, bytes(4096))
    began = time.monotonic()
    server.stop()
    if time.monotonic() - began > 8:
        raise AssertionError("it waited for what the limit held")


@test(fairlift_only=True)
def a_scheduler_is_changed_though_a_limit_holds_requests_for_minutes(t):
    config = '[disk.d]\nscheduler = "none"\n[export.a]\nbacking = "mem:1m"\ndisk = "d"\n'
    server = t.server(config=config, args=["--max", "a=wiops=1", "--workers", "2"])
    client = server.connect("a")
    for _ in range(60):
        client.submit(nbdclient.WRITE, 0, 4096, bytes(4096))
    change(t, server, "set", "disk", "d", "scheduler=bfq")
    until(lambda: "scheduler_in_place: bfq" in change(t, server, "get", "disk", "d"), "it is in place")
    change(t, server, "set", "group", "/a", "max=max")
    for _ in range(60):
        client.reply()


@test(fairlift_only=True)
def limits_that_cannot_be_kept_are_refused_where_they_are_written(t):
    path = Path(t.path("bad.toml"))
    path.write_text('[export.a]\nbacking = "mem:1m"\ngroup = "/a"\n[group."/a"]\nmax = { riops = 0 }\nmin = { iops = 5 }\n')
    out = t.run(BINARY, "serve", "--config", str(path), "--check", code=2)
    contains(out, "bad.toml:5:17: error: group.\"/a\".max.riops: takes 1 to 1000000000, not 0")
    path.write_text('[export.a]\nbacking = "mem:1m"\ngroup = "/a"\n[group."/a"]\nmin = { iops = 5 }\n')
    out = t.run(BINARY, "serve", "--config", str(path), "--check", code=2)
    contains(out, "bad.toml:5:7: error: group.\"/a\".min: export \"a\" is on a disk with scheduler mq-deadline")


if __name__ == "__main__":
    main()
