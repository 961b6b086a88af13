"""`fault:` in front of a backing: what fails, fails for that request alone, as and when the rules say, and can be changed live."""

from harness import *
from nbdclient import READ, WRITE, NbdError

SIZE = 8 * MIB
WHOLE = data(SIZE)


def rules(t, text, name="rules.toml"):
    Path(t.path(name)).write_text(text)
    return t.path(name)


def faulty(t, text, inner="mem:8M", **options):
    """A server of one disk with faults."""
    return t.server(f"disk=fault:{rules(t, text)},inner={inner}", **options)


def struck(client, reads, step=4096):
    """Which of so many reads, one after the other, fail."""
    failed = []
    for n in range(reads):
        try:
            client.read(n * step, 512)
        except NbdError:
            failed.append(n)
    return failed


def replies(client, cookies):
    """The answers to as many requests, as they come."""
    return [client.reply() for _ in cookies]


IO_TIMEOUT = '[disk.d]\nio_timeout = "{}"\n[export.disk]\nbacking = "fault:rules.toml,inner={}"\ndisk = "d"\n'


@test(fairlift_only=True)
def an_error_by_range_reaches_the_client_that_asked_there_alone(t):
    image = t.image("image", SIZE, (0, WHOLE))
    server = faulty(t, '[[fault]]\nop = "read"\nfrom = "1m"\nto = "2m"\nerror = "EIO"\n'
                       '[[fault]]\nop = "write"\nfrom = "2m"\nto = "3m"\nerror = "ENOSPC"\n', f"file:{image}")
    with server.connect("disk") as one, server.connect("disk") as two:
        for _ in range(3):
            asked = [one.submit(READ, MIB + n * 8192, 4096) for n in range(32)]
            others = {two.submit(READ, 4 * MIB + n * 8192, 4096): 4 * MIB + n * 8192 for n in range(32)}
            for reply in replies(two, others):
                offset = others[reply.cookie]
                equal((reply.error, reply.data(offset, 4096)), (0, WHOLE[offset:][:4096]), "what the other client reads")
            equal({reply.error for reply in replies(one, asked)}, {EIO}, "the errors of the client that asked there")
        equal(one.read(2 * MIB, 4096), WHOLE[2 * MIB:][:4096], "the first block that is whole again")
        with refused(EIO):
            one.read(2 * MIB - 512, 1024)
        with refused(ENOSPC):
            one.write(2 * MIB, bytes(4096))
        one.write(MIB, bytes(4096))
        one.flush()
    with open(image, "rb") as file:
        file.seek(MIB)
        equal(file.read(4096), bytes(4096), "a write that no rule is about")
        file.seek(2 * MIB)
        equal(file.read(4096), WHOLE[2 * MIB:][:4096], "what a write would have changed that failed")
    server.says("fail on purpose", "a read failed", "a write failed")


@test(fairlift_only=True)
def real_clients_see_the_error_and_go_on(t):
    server = faulty(t, '[[fault]]\nop = "read"\nfrom = "1m"\nto = "1028k"\nerror = "EIO"\n')
    out = t.run("/usr/bin/python3", "-m", "nbd", "-u", server.uri("disk"), "-c", "\n".join([
        "import errno", "h.pwrite(b'x' * 4096, 1 << 20)",
        "try:", "    h.pread(4096, 1 << 20)",
        "except nbd.Error as error:", "    print('the error is', error.errnum == errno.EIO)",
        "print('beside it', h.pread(512, 0) == bytes(512))", "h.flush()"]))
    contains(out, "the error is True", "beside it True")
    fio = ["fio", "--name=r", "--ioengine=nbd", f"--uri={server.uri('disk')}", "--rw=read", "--bs=4k", "--size=8m", "--iodepth=8"]
    contains(t.run(*fio, "--continue_on_error=read", code=None), "total=", "err=")
    contains(t.run(*fio, code=1), "Input/output error")


@test(fairlift_only=True)
def a_short_read_is_an_error_and_never_zeroes_and_a_short_write_is_torn_where_the_rule_says(t):
    image = t.image("image", SIZE, (0, WHOLE))
    server = faulty(t, 'fault = [{ op = "read", short = "8k", from = 0, to = "64k" }, { op = "write", short = 4096, from = "1m" },'
                       '{ op = "read", short = 0, from = "4m" }]', f"file:{image}")
    with server.connect("disk") as client:
        for offset, length in (0, 65536), (4096, 8192), (0, 512), (5 * MIB, 512):
            with refused(EIO):
                client.read(offset, length)
        equal(client.read(64 * KIB, 4096), WHOLE[64 * KIB:][:4096], "a read beside it")
        with refused(EIO):
            client.write(MIB, b"\7" * 16384)
        equal(client.read(MIB, 16384), b"\7" * 4096 + WHOLE[MIB + 4096:][:12288], "what a write moved that was short")


@test(fairlift_only=True)
def a_hang_ends_by_io_timeout_and_other_requests_go_on_and_it_ends_when_the_rules_change(t):
    rules(t, '[[fault]]\nop = "write"\nto = "4k"\nhang = true\n')
    server = t.server(config=IO_TIMEOUT.format("700ms", "mem:8M"))
    with server.connect("disk") as client:
        client.submit(WRITE, 0, 4096, data(4096))
        with server.connect("disk") as other:
            for n in range(16):
                other.write(MIB + n * 4096, data(4096, n))
                equal(other.read(MIB + n * 4096, 4096), data(4096, n), "what is written beside a request that hangs")
        equal(client.reply().error, EIO, "the error of the request that hangs")
        equal(in_flight(server), 1, "what the device has not answered, though its client was told")
        rules(t, "")
        server.control("reload")
        until(lambda: in_flight(server) == 0, "the device does what it had")
        equal(client.read(0, 4096), data(4096), "what a write that hung has done since")


@test(fairlift_only=True)
def a_delay_is_as_long_as_the_rule_says_for_those_that_it_is_about(t):
    server = faulty(t, '[[fault]]\nop = "read"\nfrom = "1m"\ndelay = "1s"\n[[fault]]\nop = "discard"\ndelay = "150ms"\nerror = "EIO"\n')
    with server.connect("disk") as client:
        began = time.monotonic()
        slow = [client.submit(READ, MIB + n * 8192, 4096) for n in range(8)]
        fast = client.submit(READ, 0, 4096)
        equal(client.reply().cookie, fast, "which is answered first")
        equal([reply.cookie for reply in replies(client, slow)], slow, "the rest, in the order in which their time comes")
        assert time.monotonic() - began >= 1, "delayed reads were answered before their time"
        with refused(EIO):
            client.trim(0, 4096)


@test(fairlift_only=True)
def rules_change_live_by_set_and_by_reload_and_a_mistake_changes_nothing(t):
    rules(t, '[[fault]]\nop = "read"\nerror = "EIO"\n')
    config = '[export.disk]\nbacking = "fault:rules.toml,inner=mem:8M"\n[export.plain]\nbacking = "mem:1M"\n'
    server = t.server(config=config)
    with server.connect("disk") as client:
        equal(struck(client, 4), [0, 1, 2, 3], "what fails at first")
        rules(t, '[[fault]]\nop = "read"\nafter = 2\ntimes = 1\nerror = "EIO"\n')
        equal(struck(client, 4), [0, 1, 2, 3], "what fails while nobody has read the file again")
        contains(server.control("reload"), 'export "disk": faults of', "1 rule")
        equal(struck(client, 8), [2], "what fails under the rules that were reloaded")
        assert "changes" not in server.control("reload"), "a reload changes what is in force"
        equal(struck(client, 8), [], "a reload that finds nothing new does not count anew")
        rules(t, '[[fault]]\nop = "raed"\nerror = "EIO"\n')
        contains(server.control("reload", code=None), "rules.toml:2:6: fault 1.op", 'did you mean "read"')
        contains(server.control("set", "export", "disk", f"faults={t.path('rules.toml')}", code=1), "fault 1.op")
        equal(struck(client, 8), [], "a mistake changed the rules")
        more = rules(t, '[[fault]]\nop = "read"\nto = "8k"\nerror = "EIO"\n', "more.toml")
        server.control("set", "export", "disk", f"faults={more}")
        equal(struck(client, 4), [0, 1], "what fails under the rules that were set")
        contains(server.control("get", "export", "disk", "--json"), f"fault:{more},inner=mem:")
        contains(server.control("set", "export", "plain", f"faults={more}", code=1), "no faults to change")


@test(fairlift_only=True)
def chance_strikes_as_often_as_it_says_and_the_same_again_with_the_same_seed(t):
    def run(seed):
        server = faulty(t, f'seed = {seed}\n[[fault]]\nop = "read"\nchance = 0.1\nerror = "EIO"\n')
        with server.connect("disk") as client:
            return struck(client, 1000)

    seed = t.random.randrange(1 << 30)
    one = run(seed)
    assert 50 < len(one) < 160, f"{len(one)} of 1000 reads failed with a chance of 0.1"
    equal(run(seed), one, "what fails with the same seed")
    assert run(seed + 1) != one, "another seed, and the same reads fail"


@test(fairlift_only=True)
def any_backing_can_have_faults_and_an_export_with_some_can_be_added(t):
    image = t.image("image", SIZE, (0, WHOLE))
    below = t.server(f"far=file:{image}")
    text = '[[fault]]\nop = "read"\nfrom = "1m"\nto = "2m"\nerror = "EIO"\n'
    path = rules(t, text)
    kinds = {"null": "null:8M", "mem": "mem:8M", "sim": "sim:nvme-plp,size=8M", "nbd": below.uri("far"),
             "twice": f"fault:{rules(t, '[[fault]]' + chr(10) + 'to = 4096' + chr(10) + 'error = ' + chr(34) + 'EIO' + chr(34) + chr(10), 'two.toml')},inner=mem:8M"}
    server = t.server(*(f"{name}=fault:{path},inner={inner}" for name, inner in kinds.items()))
    server.control("add", "export", f"late=fault:{path},inner=file:{t.image('late', SIZE)}")
    for name in [*kinds, "late"]:
        with server.connect(name) as client:
            with refused(EIO):
                client.read(MIB, 4096)
            client.write(3 * MIB, data(4096))
            client.flush()
            if name != "null":
                equal(client.read(3 * MIB, 4096), data(4096), f"what was written through {name}")
    with server.connect("twice") as client, refused(EIO):
        client.read(0, 512)
    with server.connect("nbd") as client:
        equal(client.read(0, 4096), WHOLE[:4096], "what another server has")
    server.control("remove", "export", "late")


@test(fairlift_only=True)
def a_file_of_rules_that_is_wrong_or_not_there_is_refused_at_the_start(t):
    contains(t.serve_fails(f"d=fault:{t.path('no')},inner=mem:1M", "--listen", f"unix:{t.path('s')}"), "No such file")
    path = rules(t, '[[fault]]\nop = "read"\n')
    contains(t.serve_fails(f"d=fault:{path},inner=mem:1M", "--listen", f"unix:{t.path('s')}"), "rules.toml:1:1", "add delay, error, short or hang")
    contains(t.serve_fails(f"d=fault:{path}", "--listen", f"unix:{t.path('s')}"), "inner=BACKING")


if __name__ == "__main__":
    main()
