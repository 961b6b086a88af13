"""What was flushed is there, whatever ends the server."""

from harness import *
from files import needs_root
from ledger import BLOCK, BLOCKS, Ledger, one_life, volatile_device
from nbdclient import FUA


@test
def fifty_times_kill_9_loses_nothing_that_was_flushed(t):
    image, ledger, choose = t.image("image", BLOCKS * BLOCK), Ledger(), t.random
    for cycle in range(50):
        scheduler = [] if STAND_IN else ["--scheduler", choose.choice(["none", "mq-deadline"])]
        server = t.server(f"disk=file:{image}", args=scheduler)
        one_life(server, ledger, choose, choose.randrange(1, 5), kill_after_flush=cycle % 2 == 0)
        ledger.check(image)
    assert ledger.flushes > 50, f"only {ledger.flushes} flushes were answered: the load was too small to mean anything"


@test
def power_cuts_lose_nothing_that_was_flushed(t):
    image, ledger, choose = t.image("image", BLOCKS * BLOCK), Ledger(), t.random
    flushes = 0
    for cycle in range(12):
        file, power_cut = volatile_device(t, image, cycle)
        server = t.server(f"disk=file:{file}")
        one_life(server, ledger, choose, choose.randrange(1, 4), kill_after_flush=cycle % 3 != 0)
        flushes += power_cut()
        ledger.check(image)
    # Eight of the lives end after a flush.
    assert ledger.flushes >= 8, f"only {ledger.flushes} flushes were answered: the load was too small to mean anything"
    print(f"{ledger.flushes} flushes answered, {flushes} reached the disk")


@test
def a_flush_is_answered_only_when_the_device_below_was_flushed(t):
    image = t.image("image", BLOCKS * BLOCK)
    file, power_cut = volatile_device(t, image, 0)
    server = t.server(f"disk=file:{file}")
    piece = data(MIB)
    with server.connect("disk") as one, server.connect("disk") as other:
        one.write(0, piece)
        other.flush()       # covers what the first connection was answered
        server.kill()
    power_cut()
    equal(Path(image).read_bytes()[:MIB] == piece, True, "the flushed mebibyte is on the disk")


@test(fairlift_only=True)
def a_flush_reaches_the_device_that_was_meant_when_two_share_a_disk(t):
    images = [t.image(name, BLOCKS * BLOCK) for name in ("first", "second")]
    devices = [volatile_device(t, image, number) for number, image in enumerate(images)]
    config = t.path("fairlift.toml")
    exports = (f'[export.{name}]\nbacking = "file:{file}"\ndisk = "one"\n' for name, (file, _) in zip("ab", devices))
    Path(config).write_text('[disk.one]\nscheduler = "mq-deadline"\n' + "".join(exports))
    server = t.server(args=["--config", config])
    piece = data(MIB)
    for name in "ab":
        with server.connect(name) as client:
            client.write(0, piece)
            client.flush()
    server.kill()
    for image, (_, power_cut) in zip(images, devices):
        power_cut()
        equal(Path(image).read_bytes()[:MIB] == piece, True, f"the flushed mebibyte is on {image}")


@test(fairlift_only=True)  # QEMU 7.2 forgets the flush after the very first FUA write: this test found that
def a_write_with_fua_is_answered_only_when_it_is_on_the_device(t):
    image = t.image("image", BLOCKS * BLOCK)
    file, power_cut = volatile_device(t, image, 0)
    server = t.server(f"disk=file:{file}")
    piece = data(64 * KIB)
    with server.connect("disk") as client:
        client.write(128 * KIB, piece, FUA)
        server.kill()
    power_cut()
    equal(Path(image).read_bytes()[128 * KIB:192 * KIB] == piece, True, "the write with FUA is on the disk")


@test(fairlift_only=True)
def a_write_with_fua_is_on_a_block_device_without_a_flush_of_all(t):
    """Where writes can be made durable by themselves (reliability.md), and on other files, as above, where they cannot."""
    needs_root(t)
    image = t.image("image", BLOCKS * BLOCK)
    file, power_cut = volatile_device(t, image, 0)
    device = t.run("losetup", "-f", "--show", file).strip()
    t.defer(subprocess.run, ["losetup", "-d", device])
    server = t.server(f"disk=file:{device}")
    with server.connect("disk") as client:
        client.write(256 * KIB, data(64 * KIB, "plain"))
        client.write(128 * KIB, data(64 * KIB), FUA)
        server.kill()
    power_cut()
    equal(Path(image).read_bytes()[128 * KIB:192 * KIB] == data(64 * KIB), True, "the write with FUA is on the disk")


@test(fairlift_only=True)  # QEMU 7.2 forgets the flush after the very first FUA write: this test found that
def zeroes_with_fua_are_answered_only_when_they_are_on_the_device(t):
    image = t.image("image", BLOCKS * BLOCK, (0, data(MIB)))
    file, power_cut = volatile_device(t, image, 0)
    server = t.server(f"disk=file:{file}")
    with server.connect("disk") as client:
        client.zero(0, 64 * KIB, FUA)
        server.kill()
    power_cut()
    equal(Path(image).read_bytes()[:64 * KIB] == bytes(64 * KIB), True, "the zeroes are on the disk")


@test
def the_volatile_disk_does_forget(t):
    """The tests above would prove nothing if the disk below kept what nobody flushed."""
    image = t.image("image", BLOCKS * BLOCK)
    file, power_cut = volatile_device(t, image, 0)
    piece = data(MIB)
    with open(file, "r+b", buffering=0) as out:
        out.write(piece)
    power_cut()
    found = Path(image).read_bytes()[:MIB]
    assert found != piece, "all that was written survived the power cut"
    assert found != bytes(MIB), "nothing that was written survived the power cut"


@test(fairlift_only=True)
def a_graceful_stop_flushes_what_nobody_has_flushed(t):
    image = t.image("image", BLOCKS * BLOCK)
    file, power_cut = volatile_device(t, image, 0)
    server = t.server(f"disk=file:{file}")
    piece = data(MIB)
    with server.connect("disk") as client:
        client.write(0, piece)
    server.stop()
    power_cut()
    equal(Path(image).read_bytes()[:MIB] == piece, True, "all that was answered is on the disk")


if __name__ == "__main__":
    main()
