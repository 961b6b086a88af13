"""The watchdog: requests that wait for nothing are told, and those that wait for something are not."""

from harness import *
from nbdclient import READ

# Longer than the watchdog's patience, and then some.
PATIENCE = 7


CONFIG = """[disk.d]
scheduler = "{scheduler}"
depth = 1
nr_requests = 64
io_timeout = "500ms"
[export.disk]
backing = "fault:rules.toml,inner=mem:8M"
disk = "d"
[disk.slow]
scheduler = "fair"
[export.slow]
backing = "mem:8M"
disk = "slow"
group = "/slow"
[group."/slow"]
max = "riops=1"
"""


@test(fairlift_only=True)
def requests_that_wait_for_a_device_a_tag_or_a_limit_are_no_concern_of_the_watchdog(t):
    Path(t.path("rules.toml")).write_text('[[fault]]\nop = "read"\nto = "4k"\nhang = true\n')
    servers = [t.server(config=CONFIG.format(scheduler=scheduler), args=["--workers", "2"]) for scheduler in ("fair", "none")]
    clients = []
    for server in servers:
        hung, behind, held = server.connect("disk", timeout=60), server.connect("disk", timeout=60), server.connect("slow", timeout=60)
        hung.submit(READ, 0, 4096)
        until(lambda: in_flight(server) == 1, "a request hangs")
        for n in range(100):
            behind.submit(READ, MIB + n * 8192, 4096)  # no tag is free, and there is no room for all
        for n in range(9):
            held.submit(READ, n * 65536, 4096)
        clients.append((hung, behind, held))
    time.sleep(PATIENCE)
    Path(t.path("rules.toml")).write_text("")
    for server, (hung, behind, held) in zip(servers, clients):
        server.control("reload")
        equal(hung.reply().error, EIO, "the error of the request that hung")
        while behind.pending:
            behind.reply()
        while held.pending:
            equal(held.reply().error, 0, "the error of a request that a limit held")
        assert "watchdog" not in server.log(), "requests that wait for something are told to wait for nothing"


@test(fairlift_only=True)
def workers_of_one_queue_wake_each_other_when_a_tag_is_free(t):
    Path(t.path("rules.toml")).write_text('[[fault]]\ndelay = "1ms"\n')
    server = t.server(config=CONFIG.format(scheduler="fair").replace("500ms", "20s"), args=["--workers", "4"])

    def work():
        with server.connect("disk", timeout=15) as client:
            for n in range(100):
                equal(len(client.read(n * 4096, 4096)), 4096, "bytes read")

    at_once(*[work] * 8)


if __name__ == "__main__":
    main()
