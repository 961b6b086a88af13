"""Flushes: many become one, none is answered too early, and each way in which they can fail is told.

The disk lies below FUSE, which lets no write begin while a flush runs; so what is tested here is written before.

What is promised about a failed flush is Linux's lesson of 2018: the kernel tells an error once and may have dropped what it
could not write. So by default every flush after a failed one fails too, until the server starts again.
"""

from flush_disk import Disk
from harness import *
from ledger import BLOCK, BLOCKS, Ledger
from nbdclient import FLUSH, FUA, READ


def take(client, count, what):
    """The errors of the next so many answers, each of which must be one of `what`."""
    for _ in range(count):
        error = client.early.pop() if getattr(client, "early", None) else client.reply().error
        assert error in what, f"a flush was answered with {errno.errorcode.get(error, error)}, not {what}"


def ask(client, count):
    """Asks for flushes, and returns when the server has taken them in; some may have been answered by then."""
    for _ in range(count):
        client.submit(FLUSH)
    # Beyond the end, for nbdfuse lets nothing pass a flush on the same one of its connections.
    cookie = client.submit(READ, client.size, 512)
    client.early = []
    while (reply := client.reply()).cookie != cookie:
        client.early.append(reply.error)


def hang_one(disk, client):
    """A flush that the disk does not answer."""
    before = disk.told()
    client.write(0, data(4096, time.monotonic_ns()))
    disk.hang.touch()
    client.submit(FLUSH)
    until(lambda: disk.told() == before + 1, "the disk is told to flush")


# ---- many into one


def a_thousand_wait(t, scheduler):
    """A server whose disk hangs in a flush, who asked for that, and 20 clients with 50 flushes each behind it."""
    disk = Disk(t)
    config = f'[disk.one]\nscheduler = "{scheduler}"\nset = {{ flush_remember = "0" }}\n' + "".join(
        f'[export.{name}]\nbacking = "file:{disk.file}"\ndisk = "one"\noffset = "{offset}"\nsize = "2m"\n'
        for name, offset in (("a", "0"), ("b", "2m")))
    server = t.server(config=config, args=["--workers", "2"])
    first, others = server.connect("a"), [server.connect("ab"[number % 2]) for number in range(20)]
    for number, client in enumerate(others):
        client.write(number * 8192 + 8192, data(4096, number))
    hang_one(disk, first)
    for client in others:
        ask(client, 50)
    equal(disk.told(), 1, "flushes that the disk was told while one runs")
    return disk, server, first, others


def a_thousand_share_one(t, scheduler):
    disk, server, first, others = a_thousand_wait(t, scheduler)
    disk.fail.write_text("1")  # or they would need none: nothing has been written since it began
    disk.hang.unlink()
    take(first, 1, [EIO])
    for client in others:
        take(client, 50, [0])
    equal(disk.told(), 2, "flushes that the disk was told for one and 1,000 who asked while it ran")
    ask(first, 1)
    take(first, 1, [0])
    equal(disk.told(), 2, "flushes that the disk was told when nothing had been written since")
    server.kill()
    disk.power_cut()
    image = Path(disk.image).read_bytes()
    for number in range(20):
        start = (2 * MIB if number % 2 else 0) + number * 8192 + 8192
        equal(image[start:start + 4096] == data(4096, number), True, f"what client {number} flushed is on the disk")


@test(fairlift_only=True)
def a_thousand_who_wait_share_one_flush_of_the_disk(t):
    a_thousand_share_one(t, "mq-deadline")


@test(fairlift_only=True)
def a_thousand_who_wait_in_queues_of_several_workers_share_one_flush_of_the_disk(t):
    a_thousand_share_one(t, "none")


@test(fairlift_only=True)
def a_thousand_who_wait_need_no_flush_if_nothing_was_written_since_the_last_began(t):
    disk, _, first, others = a_thousand_wait(t, "none")
    disk.hang.unlink()
    for client, count in (first, 1), *((client, 50) for client in others):
        take(client, count, [0])
    equal(disk.told(), 1, "flushes that the disk was told")


@test(fairlift_only=True)
def who_wait_for_a_flush_are_answered_before_the_server_ends(t):
    disk = Disk(t)
    server = t.server(f"disk=file:{disk.file}")
    first, other = server.connect("disk"), server.connect("disk")
    other.write(8192, data(4096))
    hang_one(disk, first)
    ask(other, 100)
    server.process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    equal(server.process.poll(), None, "the exit code while flushes wait")
    disk.hang.unlink()
    take(first, 1, [0])
    take(other, 100, [0])
    server.ended(0)
    disk.power_cut()
    equal(Path(disk.image).read_bytes()[8192:12288] == data(4096), True, "what was written is on the disk")


@test(fairlift_only=True)
def clients_that_go_while_they_wait_for_a_flush_disturb_nobody(t):
    disk = Disk(t)
    server = t.server(f"disk=file:{disk.file}")
    before = server.fds_at_rest()
    first, stays = server.connect("disk"), server.connect("disk")
    hang_one(disk, first)
    gone = [server.connect("disk") for _ in range(10)]
    for client in gone:
        ask(client, 20)
    ask(stays, 3)
    for client in [*gone, first]:
        client.reset()
    time.sleep(0.2)
    disk.hang.unlink()
    take(stays, 3, [0])
    stays.flush()
    server.fds_settle(before + 1)
    stays.close()
    server.serves("disk")


# ---- failures


@test(fairlift_only=True)
def after_a_flush_that_fails_every_later_one_fails_too_until_the_server_starts_again(t):
    disk = Disk(t)
    server = t.server(f"disk=file:{disk.file}", "good=mem:1M")
    first, others = server.connect("disk"), [server.connect("disk") for _ in range(10)]
    for number, client in enumerate(others):
        client.write(8192 * number, data(4096, number))
    hang_one(disk, first)
    for client in others:
        ask(client, 3)
    disk.fail.write_text("1")
    disk.hang.unlink()
    take(first, 1, [EIO])
    for client in others:
        take(client, 3, [EIO])  # the second flush went well: but who knows what the first has lost
    equal(disk.told(), 2, "flushes that the disk was told")
    disk.fail.unlink()
    for client in first, *others:
        with refused(EIO):
            client.flush()
        with refused(EIO):
            client.write(0, data(4096), FUA)
        equal(client.read(8192, 4096), data(4096, 1), "what is read while flushes fail")
    server.serves("good")
    server.says("a flush failed")
    server.process.send_signal(signal.SIGTERM)
    equal(server.ended(), 1, "the exit code of a server that could not make durable what it was told")
    # A new server knows nothing of it, flushes before it trusts the disk, and is trusted.
    again = t.server(f"disk=file:{disk.file}")
    with again.connect("disk") as client:
        before = disk.told()
        client.flush()
        equal(disk.told(), before + 1, "flushes that the disk was told by the server after")


@test(fairlift_only=True)
def flushes_succeed_again_when_the_operator_has_taken_note_that_one_failed(t):
    for scheduler in "none", "mq-deadline":
        disk = Disk(t, scheduler)
        server = t.server(config=f'[disk.one]\nscheduler = "{scheduler}"\n[export.disk]\nbacking = "file:{disk.file}"\n'
                          'disk = "one"\n', args=["--workers", "2"])
        one, other = server.connect("disk"), server.connect("disk")
        one.write(0, data(4096, 1))
        disk.fail.write_text("1")
        with refused(EIO):
            one.flush()
        disk.fail.unlink()
        with refused(EIO):
            other.flush()
        contains(server.control("acknowledge"), "acknowledged: 1")
        server.says("a flush error was acknowledged")
        for client in one, other:
            client.write(8192, data(4096, 2))
            client.flush()
        contains(server.control("acknowledge"), "no flush has failed")
        for client in one, other:
            client.close()
        server.process.send_signal(signal.SIGTERM)
        server.ended(0)


@test(fairlift_only=True)
def where_a_retry_counts_a_flush_after_a_failed_one_must_make_all_of_it_durable(t):
    disk = Disk(t)
    config = f'[disk.one]\nset = {{ flush_remember = "0" }}\n[export.disk]\nbacking = "file:{disk.file}"\ndisk = "one"\n'
    server = t.server(config=config)
    with server.connect("disk") as client:
        client.write(0, data(MIB))
        disk.fail.write_text("1")
        with refused(EIO):
            client.flush()
        equal(disk.told(), 1, "flushes so far")
        client.flush()  # nothing was written since: yet it must not be spared
        equal(disk.told(), 2, "flushes that the disk was told")
        server.kill()
    disk.power_cut()
    equal(Path(disk.image).read_bytes()[:MIB] == data(MIB), True, "what was written before the failed flush is on the disk")


@test(fairlift_only=True)
def flushes_that_fail_for_ever_fail_and_everything_else_goes_on(t):
    disk = Disk(t)
    disk.fail.touch()
    server = t.server(f"disk=file:{disk.file}", "good=mem:1M")
    with server.connect("disk") as client:
        for number in range(20):
            client.write(8192 * number, data(4096, number))
            with refused(EIO):
                client.flush()
            equal(client.read(8192 * number, 4096), data(4096, number), "what was written")
        ask(client, 50)
        take(client, 50, [EIO])
        server.serves("good")
    server.process.send_signal(signal.SIGTERM)
    equal(server.ended(), 1, "the exit code of a server whose last flush failed")


@test(fairlift_only=True)
def a_last_flush_that_fails_or_hangs_keeps_no_other_disk_from_its_own(t):
    disks = {name: Disk(t, name) for name in ("failing", "hanging", "good")}
    server = t.server(*(f"{name}=file:{disk.file}" for name, disk in disks.items()))
    for name in disks:
        with server.connect(name) as client:
            client.write(0, data(MIB))
    disks["failing"].fail.touch()
    disks["hanging"].hang.touch()
    server.process.send_signal(signal.SIGTERM)
    until(lambda: disks["good"].told() == 1, "the disk is told to flush that neither fails nor hangs", 20)
    disks["hanging"].hang.unlink()
    equal(server.ended(), 1, "the exit code of a server one of whose last flushes failed")
    server.says("failing.fuse")
    disks["good"].power_cut()
    equal(Path(disks["good"].image).read_bytes()[:MIB] == data(MIB), True, "what was written is on the disk")


@test(fairlift_only=True)
def a_last_flush_of_a_removed_export_that_hangs_is_named_to_whoever_waits_for_it(t):
    disk = Disk(t)
    server = t.server("good=mem:1m")
    server.control("add", "export", f"gone=file:{disk.file}")
    with server.connect("gone") as client:
        client.write(0, data(MIB))
    disk.hang.touch()
    server.control("remove", "export", "gone")
    until(lambda: disk.told() == 1, "the disk is told to flush")
    contains(server.control("upgrade", code=1), f"the last flush of {disk.file}", "has not ended")
    server.serves("good")
    server.process.send_signal(signal.SIGTERM)
    server.says("the end waits for it", disk.file)
    disk.hang.unlink()
    equal(server.ended(), 0, "the exit code of a server whose last flush took long")


@test(fairlift_only=True)
def a_flush_that_never_returns_is_told_in_time_and_holds_up_nothing_else(t):
    disk = Disk(t)
    config = (f'[disk.one]\nio_timeout = "2s"\n[export.disk]\nbacking = "file:{disk.file}"\ndisk = "one"\n'
              '[export.good]\nbacking = "mem:1m"\n')
    server = t.server(config=config)
    first, other, third = (server.connect("disk") for _ in range(3))
    start = time.monotonic()
    third.write(8192, data(4096))
    hang_one(disk, first)
    ask(other, 20)
    equal(third.read(8192, 4096), data(4096), "what goes on while a flush hangs")
    take(first, 1, [EIO, errno.ETIMEDOUT])
    take(other, 20, [EIO, errno.ETIMEDOUT])
    assert time.monotonic() - start < 15, "a flush that hangs was told late"
    server.serves("good")
    equal(disk.told(), 1, "flushes that the disk was told while one hangs")
    disk.hang.unlink()
    until(lambda: flushes(other), "flushes work again once the disk has answered")
    server.kill()
    disk.power_cut()
    equal(Path(disk.image).read_bytes()[8192:12288] == data(4096), True, "what was flushed in the end is on the disk")


def flushes(client):
    client.submit(FLUSH)
    return client.reply().error == 0


@test(fairlift_only=True)
def a_disk_without_flush_is_served_and_flushes_succeed(t):
    disk = Disk(t, NO_FLUSH="1")
    server = t.server(f"disk=file:{disk.file}")
    with server.connect("disk") as client:
        client.write(0, data(MIB), FUA)
        client.flush()
        ask(client, 50)
        take(client, 50, [0])
        equal(client.read(0, MIB), data(MIB), "what was written")
    equal(disk.told(), 0, "flushes that a disk without them was told")


@test(fairlift_only=True)
def a_file_in_ram_and_ram_itself_flush_at_once(t):
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        file.truncate(MIB)
        server = t.server("ram=mem:1M", f"file=file:{file.name}")
        for export in "ram", "file":
            with server.connect(export) as client:
                client.write(0, data(4096), FUA)
                ask(client, 100)
                take(client, 100, [0])
        server.stop()


@test(fairlift_only=True)
def every_flush_of_a_run_fails_once_and_none_after_it_is_believed(t):
    """For each n of the first flushes of a run: the n-th fails; all before it are true, and none after it says done."""
    ledger, choose = Ledger(), t.random
    for number in range(1, 11):
        disk = Disk(t, f"d{number}", BLOCKS * BLOCK)
        disk.fail.write_text(str(number))
        server = t.server(f"disk=file:{disk.file}")
        ledger, done = Ledger(), 0
        with server.connect("disk") as client:
            for _ in range(number + 4):
                block = choose.randrange(BLOCKS)
                client.write(block * BLOCK, ledger.write(block))
                ledger.written(block)
                covered = ledger.flush()
                client.submit(FLUSH)
                error = client.reply().error
                if not error:
                    ledger.flushed(covered)
                    done += 1
                assert error in (0, EIO), f"a flush was answered with error {error}"
        equal(done, number - 1, f"flushes answered as done when number {number} fails")
        server.kill()
        disk.power_cut()
        ledger.check(disk.image)


if __name__ == "__main__":
    main()
