#!/usr/bin/env python3
"""Where io_uring is refused, as in many containers, the server works without it and says so. All other tests run on the engine that
FAIRLIFT_ENGINE names."""

import json
import sys

from harness import MIB, contains, data, equal, main, test
from nbdclient import READ

# Has the kernel answer these system calls with an error, then becomes the program: as a container's filter does.
REFUSE = """
import ctypes, os, struct, sys
error, calls, program = int(sys.argv[1]), [int(n) for n in sys.argv[2].split(",")], sys.argv[3:]
LOAD, EQUAL, RETURN, ALLOW, ERRNO = 0x20, 0x15, 0x06, 0x7FFF0000, 0x00050000
rows = [(LOAD, 0, 0, 0)] + [(EQUAL, len(calls) - n, 0, call) for n, call in enumerate(calls)]
rows += [(RETURN, 0, 0, ALLOW), (RETURN, 0, 0, ERRNO | error)]
text = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *row) for row in rows))
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("rows", ctypes.c_void_p)]
libc = ctypes.CDLL(None, use_errno=True)
filter_ = Program(len(rows), ctypes.addressof(text))
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(filter_), 0, 0):  # PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP
    sys.exit(f"no filter: {os.strerror(ctypes.get_errno())}")
os.execvp(program[0], program)
"""
SETUP, ENTER, REGISTER = 425, 426, 427  # the same on all machines
EPERM, ENOSYS = 1, 38


def refusing(error, *calls):
    return [sys.executable, "-c", REFUSE, str(error), ",".join(map(str, calls))]


def said(server):
    """What `status` says of the engine, as JSON and as text."""
    return json.loads(server.control("status", "--json", "--seconds=0.1"))["engine"], server.control("status", "--seconds=0.1")


@test(fairlift_only=True)
def where_io_uring_is_refused_the_server_polls_and_says_so(t):
    auto = {"FAIRLIFT_ENGINE": "auto"}
    for name, error, calls in [("EPERM", EPERM, (SETUP, ENTER, REGISTER)), ("ENOSYS", ENOSYS, (SETUP, ENTER, REGISTER)),
                               ("EPERM", EPERM, (REGISTER,)), ("EPERM", EPERM, (ENTER,))]:
        image = t.image(f"{name}{len(calls)}{calls[0]}", 8 * MIB)
        server = t.server(f"file={image}", "ram=mem:8M", wrap=refusing(error, *calls), env=auto)
        server.says(f"engine=poll (io_uring: {name})")
        as_json, as_text = said(server)
        equal(as_json, f"poll (io_uring: {name})", "the engine")
        contains(as_text, f"engine=poll (io_uring: {name})")
        for export in "file", "ram":
            server.serves(export, 8 * MIB)
        with server.connect("file") as client:
            piece = data(4 * MIB, name)
            client.write(MIB + 512, piece)
            client.flush()
        server.stop()
        with open(image, "rb") as file:
            file.seek(MIB + 512)
            assert file.read(len(piece)) == piece, "what was flushed is in the file"


@test(fairlift_only=True)
def an_engine_that_is_named_is_taken_or_the_server_does_not_start(t):
    message = t.serve_fails("ram=mem:1M", "--engine", "io_urgh")
    contains(message, "auto, io_uring or poll", "io_urgh")
    server = t.server("ram=mem:1M", args=["--engine", "io_uring"], wrap=refusing(EPERM, SETUP), wait=False)
    equal(server.ended(), 1, "the exit code")
    server.says("io_uring is not available", "not permitted", "auto")
    # A flag goes before the environment, and that before the file.
    config = '[server]\nengine = "io_uring"\n[export.ram]\nbacking = "mem:1M"\n'
    server = t.server(config=config, env={"FAIRLIFT_ENGINE": "poll"})
    equal(said(server)[0], "poll", "the engine")
    server = t.server("ram=mem:1M", args=["--engine", "poll"], env={"FAIRLIFT_ENGINE": "auto"})
    equal(said(server)[0], "poll", "the engine")
    contains(said(server)[1], "version 0, engine=poll")
    message = t.serve_fails("ram=mem:1M", "--engine", "poll", "--ublk")
    contains(message, "ublk needs io_uring", "engine=poll")


@test(fairlift_only=True)
def a_reply_that_waits_for_its_client_is_the_same_when_many_others_have_come(t):
    # What the server has freed has other content at once.
    env = {"FAIRLIFT_ENGINE": "poll", "MALLOC_PERTURB_": "165"}
    server = t.server("ram=mem:8M", args=["--workers", "1"], env=env)
    server.serves("ram", 8 * MIB)
    there = data(8 * MIB)
    first = server.connect("ram")
    first.write(0, there)
    cookies = [first.submit(READ, 0, 8 * MIB) for _ in range(2)]
    others = [server.connect("ram") for _ in range(300)]
    for _ in cookies:
        reply = first.reply()
        equal(reply.error, 0, "the error of a read whose client was slow to take it")
        assert reply.data(0, len(there)) == there, "what was read is what was written"
    for client in [first, *others]:
        client.close()


if __name__ == "__main__":
    main()
