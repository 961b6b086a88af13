"""The server, its client and its backing are stopped (SIGSTOP) and go on: what was under way ends well, once."""

from contextlib import contextmanager

from control import Control, fio_stops
from harness import *
from nbdclient import FLUSH, READ, WRITE

SIZE = 8 * MIB
WHOLE = data(SIZE)
TIMEOUT = 1.0
CONFIG = '[disk.d]\nio_timeout = "1s"\nscheduler = "{}"\n[export.disk]\nbacking = "{}"\ndisk = "d"\n'


def in_ram(t):
    """A file that no disk is under: whatever the machine does, a flush of it takes no time."""
    place, path = tempfile.mkstemp(dir="/dev/shm")
    t.defer(os.unlink, path)
    os.write(place, WHOLE)
    os.close(place)
    return path


@contextmanager
def stopped(process, seconds):
    """The process does not run for so long."""
    process.send_signal(signal.SIGSTOP)
    try:
        time.sleep(seconds)
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def no_error_after_a_stop(t, engine):
    image = in_ram(t)
    Path(t.path("rules.toml")).write_text('[[fault]]\nop = ["read", "write"]\ndelay = "400ms"\n')
    for scheduler in "none", "fair":
        server = t.server(config=CONFIG.format(scheduler, f"fault:rules.toml,inner=file:{image}"), args=["--engine", engine, "--workers", "2"])
        with server.connect("disk") as one, server.connect("disk") as two:
            for client in one, two:
                reads = {client.submit(READ, n * 65536, 4096): n * 65536 for n in range(16)}
                writes = [client.submit(WRITE, 4 * MIB + n * 65536, 4096, data(4096, n)) for n in range(16)]
                flush = client.submit(FLUSH)
                client.wanted = reads, writes, flush
            until(lambda: in_flight(server) > 0, "requests are in the device")
            with stopped(server.process, 2 * TIMEOUT + 0.5):
                pass
            for client in one, two:
                reads, writes, flush = client.wanted
                for reply in [client.reply() for _ in range(33)]:
                    equal(reply.error, 0, f"the error of a request that was under way with {engine}, {scheduler}")
                    if offset := reads.get(reply.cookie):
                        equal(reply.data(offset, 4096), WHOLE[offset:][:4096], "what it read")
        server.says("did not run for")
        server.stop()


@test(fairlift_only=True)
def what_was_under_way_when_the_server_was_stopped_does_not_fail_when_it_goes_on(t):
    no_error_after_a_stop(t, os.environ.get("FAIRLIFT_ENGINE", "auto"))


@test(fairlift_only=True)
def nor_without_io_uring(t):
    no_error_after_a_stop(t, "poll")


@test(fairlift_only=True)
def a_connection_to_another_server_is_not_given_up_for_the_time_of_a_stop(t):
    path = t.path("kit")
    t.start("nbdkit", "-f", "-U", path, "--filter=delay", "memory", "8M", "rdelay=300ms")
    until_listening(path, "nbdkit")
    server = t.server(config=CONFIG.format("none", f"nbd+unix:///?socket={path}"))
    with server.connect("disk") as client:
        reads = [client.submit(READ, n * 65536, 65536) for n in range(24)]  # more than one receive takes, and fewer than nbdkit has threads
        until(lambda: in_flight(server) > 0, "requests are on their way")
        with stopped(server.process, 2 * TIMEOUT + 0.5):
            pass
        for reply in [client.reply() for _ in reads]:
            equal(reply.error, 0, "the error of a request that was under way")
    equal("was not answered in time" in server.log(), False, "whether the connection was broken off")


@test(fairlift_only=True)
def a_load_on_a_file_goes_on_after_a_stop_without_an_error(t):
    image = in_ram(t)
    for engine in "auto", "poll":
        server = t.server(config=CONFIG.format("fair", f"file:{image}"), args=["--engine", engine])
        end, rounds = threading.Event(), [0] * 4

        def load(number):
            with server.connect("disk", timeout=30) as client:
                while not end.is_set():
                    rounds[number] = n = rounds[number] + 1
                    offset = number * MIB + n % 64 * 4096
                    client.write(offset, data(4096, number, n))
                    if n % 8 == 0:
                        client.flush()
                    equal(client.read(offset, 4096), data(4096, number, n), "what was just written")

        def stops():
            try:
                until(lambda: min(rounds) > 8, "the load goes on")
                with stopped(server.process, TIMEOUT + 1.2):
                    before = list(rounds)
                until(lambda: all(now > then + 8 for now, then in zip(rounds, before)), "the load goes on again")
            finally:
                end.set()

        at_once(stops, *(lambda number=number: load(number) for number in range(4)))
        server.stop()


@test(fairlift_only=True)
def what_really_hangs_still_fails_after_a_stop(t):
    Path(t.path("rules.toml")).write_text('[[fault]]\nop = "read"\nhang = true\n')
    server = t.server(config=CONFIG.format("fair", "fault:rules.toml,inner=mem:8M"))
    with server.connect("disk") as client:
        client.submit(READ, 0, 4096)
        until(lambda: in_flight(server) == 1, "the request hangs")
        with stopped(server.process, TIMEOUT + 1.5):
            pass
        equal(client.reply().error, EIO, "the error of a request that hangs")
        Path(t.path("rules.toml")).write_text("")
        server.control("reload")


@test(fairlift_only=True)
def a_client_that_is_stopped_delays_nobody_and_gets_its_answers_when_it_goes_on(t):
    image = t.image("image", SIZE, (0, WHOLE))
    server = t.server(f"disk=file:{image}")
    fio = t.start("fio", "--name=r", "--ioengine=nbd", f"--uri={server.uri('disk')}", "--rw=randread", "--bs=64k", "--iodepth=32",
                  "--size=8m", "--time_based", "--runtime=100", stdout=subprocess.DEVNULL)
    Control(t, server).working("disk")
    os.killpg(fio.pid, signal.SIGSTOP)
    with server.connect("disk") as client:
        for n in range(64):
            equal(client.read(n * 65536, 4096), WHOLE[n * 65536:][:4096], "what another client reads meanwhile")
    os.killpg(fio.pid, signal.SIGCONT)
    Control(t, server).working("disk")
    fio_stops(fio)


if __name__ == "__main__":
    main()
