"""No reply ever holds bytes of another tenant, whatever fails: each tenant's bytes carry its name.

Eight tenants share one faulty disk and a server with little memory, so that buffers go from one to the next all the time. Requests fail,
are late, are moved in part, hang until they time out; clients leave in the middle and come back. FULL=1: two minutes, else four seconds.
"""

from harness import *
from nbdclient import READ, WRITE, Closed

SECONDS = 120 if FULL else 4
TENANTS, PART = 8, MIB
RULES = """seed = {seed}
[[fault]]
op = "read"
chance = 0.03
error = "EIO"
[[fault]]
op = "read"
chance = 0.05
short = "4k"
[[fault]]
op = "write"
chance = 0.05
short = 512
[[fault]]
chance = 0.05
delay = "3ms"
[[fault]]
op = ["read", "write"]
chance = 0.002
delay = "400ms"
[[fault]]
op = "write"
chance = 0.02
error = "ENOSPC"
"""
CONFIG = """[server]
memory = "2m"
connection_memory = "256k"
request_max = "128k"
workers = 2
engine = "{engine}"
[disk.d]
io_timeout = "200ms"
scheduler = "{scheduler}"
"""
EXPORT = '[export.t{n}]\nbacking = "fault:rules.toml,inner={inner}"\ndisk = "d"\ngroup = "/t{n}"\noffset = {offset}\nsize = {size}\n'


def mark(tenant, length):
    """Bytes that say whose they are, wherever they are cut to 8."""
    return b"tenant%02d" % tenant * (length // 8)


def check(tenant, piece):
    """All of it is the tenant's, or was never written."""
    own = b"tenant%02d" % tenant
    rest = piece.replace(own, b"").strip(b"\0")
    if rest:
        raise AssertionError(f"a reply to tenant {tenant} holds {short(rest[:64])} at {piece.index(rest[:8])} of {len(piece)}")


def tenant(server, number, seed, end, done):
    random_ = random.Random(f"{seed}/{number}")
    while not end.is_set():
        try:
            with server.connect(f"t{number}", structured=random_.random() < 0.5) as client:
                for _ in range(random_.randrange(1, 12)):
                    asked = {}
                    for _ in range(random_.randrange(1, 8)):
                        length = 512 * random_.randrange(1, 256)
                        offset = 512 * random_.randrange((PART - length) // 512)
                        if random_.random() < 0.5:
                            client.submit(WRITE, offset, length, mark(number, length))
                        else:
                            asked[client.submit(READ, offset, length)] = offset, length
                    if random_.random() < 0.1:
                        break  # it leaves in the middle of it
                    while client.pending:
                        reply = client.reply()
                        for _, piece in reply.pieces:
                            if isinstance(piece, bytes):  # what comes with an error too
                                check(number, piece)
                                done[number] += len(piece)
        except (Closed, ConnectionError):
            pass


def run(t, engine, scheduler, inner):
    seed = t.random.randrange(1 << 30)
    Path(t.path("rules.toml")).write_text(RULES.format(seed=seed))
    config = CONFIG.format(engine=engine, scheduler=scheduler) + "".join(
        EXPORT.format(n=n, inner=inner, offset=n * PART, size=PART) for n in range(TENANTS))
    server = t.server(config=config)
    end, done = threading.Event(), [0] * TENANTS

    def clock():
        time.sleep(SECONDS / 4)
        try:
            until(lambda: min(done) > 0, "each tenant has read something")
        finally:
            end.set()

    at_once(clock, *(lambda n=n: tenant(server, n, seed, end, done) for n in range(TENANTS)))
    figure(f"{engine} {scheduler} {inner}: {sum(done) >> 20} MiB of replies looked through")
    server.says("a read failed")
    server.process.send_signal(signal.SIGTERM)
    server.ended()  # with an error, if a flush has met one


@test(seconds=SECONDS + 60, fairlift_only=True)
def no_reply_holds_bytes_of_another_tenant_whatever_fails(t):
    image = t.image("image", TENANTS * PART)
    for engine, scheduler, inner in ("auto", "fair", f"file:{image}"), ("auto", "none", "mem:8M"), ("poll", "bfq", f"file:{image}"), ("poll", "none", "mem:8M"):
        run(t, engine, scheduler, inner)
        with open(image, "rb") as file:
            for number in range(TENANTS):
                check(number, file.read(PART))


if __name__ == "__main__":
    main()
