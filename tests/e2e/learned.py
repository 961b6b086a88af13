"""A server that is started after one that was killed begins with what that had learned, and groups owe what they owed."""

import array

from harness import *
from successor import upgrade

CONFIG = """
[export.disk]
backing = "mem:64m"
group = "/a"
[group."/a"]
max = {{ rbps = 1048576 }}
[server]
{learned}
"""

KEPT = "begins with the state that a server had learned"

# Passes a file of another process on, as systemd does.
PASS_ON = """
import os, sys
os.dup2(os.dup2(os.open(sys.argv[1], os.O_RDWR), 9), 3, inheritable=True)
os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()), LISTEN_FDNAMES="fairlift-learned")
os.execv(sys.argv[2], sys.argv[2:])
"""


def started(t, learned="", **options):
    """A server of one export that may read a MiB a second."""
    return t.server(config=CONFIG.format(learned=learned), **options)


def owes(server, place):
    """Reads what is paid for in half a minute, and waits until the server has kept that at `place`. It writes every second, and may have been
    about to when the read came: the second write has what is owed."""
    with server.connect("disk") as client:
        client.read(0, 30 * MIB)
    for _ in range(2):
        time.sleep(0.2)  # a write is three, one right after the other
        before = Path(place).read_bytes()
        until(lambda: Path(place).read_bytes() != before, "what the server has learned is kept")


def is_held(server, patience=3):
    """Whether the next read has to wait: one that owes nothing is answered in no time."""
    with server.connect("disk") as client:
        client.sock.settimeout(patience)
        try:
            client.read(0, 4096)
            return False
        except TimeoutError:
            return True


@test(fairlift_only=True)
def a_group_owes_the_next_server_what_it_owed_the_one_that_was_killed(t):
    key = f'learned = "{t.path("kept")}"'
    first = started(t, key)
    owes(first, t.path("kept"))
    first.kill()
    second = started(t, key)
    second.says(KEPT)
    equal(is_held(second), True, "whether a read waits")
    second.kill()
    os.unlink(t.path("kept"))
    third = started(t, key)
    equal((KEPT in third.log(), is_held(third, 60)), (False, False), "without the file")
    equal(os.stat(t.path("kept")).st_mode & 0o777, 0o600, "who may read it")


@test(fairlift_only=True)
def what_systemd_was_given_to_keep_is_what_the_next_server_begins_with(t):
    place = t.path("notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(place)
        notified.settimeout(60)
        first = started(t, env={"NOTIFY_SOCKET": place})
        while True:
            word, passed, _, _ = notified.recvmsg(4096, socket.CMSG_SPACE(4))
            if word.startswith(b"FDSTORE=1"):
                break
        contains(word.decode(), "FDNAME=fairlift-learned")
        kept = array.array("i")
        kept.frombytes(passed[0][2][:4])
    owes(first, f"/proc/self/fd/{kept[0]}")
    first.kill()
    second = started(t, wrap=(sys.executable, "-c", PASS_ON, f"/proc/{os.getpid()}/fd/{kept[0]}"))
    second.says(KEPT)
    equal(is_held(second), True, "whether a read waits")
    second.kill()
    os.close(kept[0])


@test(fairlift_only=True)
def a_file_that_is_something_else_is_left_alone(t):
    letter = Path(t.path("letter"))
    letter.write_text("dear reader, " * 10)
    path = Path(t.path("fairlift.toml"))
    path.write_text(CONFIG.format(learned=f'learned = "{letter}"'))
    said = t.serve_fails("--config", path, "--listen", f"unix:{t.path('s')}")  # its own: another server may have the usual address
    contains(said, "not the learned state", str(letter))
    equal(letter.read_text(), "dear reader, " * 10, "the file")


@test(fairlift_only=True)
def a_file_is_one_servers_and_stays_its_own_at_an_upgrade(t):
    key = f'learned = "{t.path("kept")}"'
    server = started(t, key)
    path = Path(t.path("other.toml"))
    path.write_text(CONFIG.format(learned=key))
    for _ in range(2):
        said = t.serve_fails("--config", path, "--listen", f"unix:{t.path('s')}")
        contains(said, f"{t.path('kept')}: is in use by another server", "no mistake was found in the file")
        upgrade(server)
    server.kill()
