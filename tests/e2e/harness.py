"""What every end-to-end test stands on: a server, a place to work, and nothing left behind.

A test is a function whose name is the sentence it proves:

    @test
    def a_read_past_the_end_is_refused(t):
        server = t.server("disk=mem:1M")
        with server.connect("disk") as client:
            with refused(EINVAL):
                client.read(1 << 20, 512)

H1  Each test runs in a process of its own, with its own directory under $TMPDIR, and at most `seconds` long.
H2  What a test starts ends with it. A process that is still there afterwards fails the test (and is ended); what was killed, and a tracer whose
    program has ended, have a moment to go.
H3  At its end, each server that the test has not ended itself must still live, and must stop by SIGTERM with exit
    code 0, without a word of panic in its log, without a request that waited for nothing (the watchdog's line), and
    without a system call that its filter refused.
H4  A test that cannot run here says why, aloud: `t.skip("there is no /dev/fuse")`. A missing tool is a failure.

`python3 tests/e2e/run.py` runs all, `python3 tests/e2e/hostile.py [WORD...]` those of one file whose names hold a WORD.

Environment:
    FAIRLIFT            the binary (default: target/release/fairlift)
    FAIRLIFT_STAND_IN=1 runs against qemu-storage-daemon instead, to try the tests themselves; what only Fairlift
                        promises is skipped
    FULL=1              the large sizes (1 GiB copies)
    SEED=N              the seed of everything random (default: drawn, and printed on failure)
    KEEP=1              keeps the directories of failed tests
    FIGURES=FILE        what tests have counted is added to this file, though they pass
"""

import contextlib
import ctypes
import errno
import hashlib
import json
import os
import random
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

import nbdclient

ROOT = Path(__file__).resolve().parents[2]
BINARY = os.environ.get("FAIRLIFT") or str(ROOT / "target/release/fairlift")
STAND_IN = bool(os.environ.get("FAIRLIFT_STAND_IN"))
FULL = bool(os.environ.get("FULL"))
SEED = int(os.environ.get("SEED") or random.SystemRandom().getrandbits(32))

EPERM, EIO, EINVAL, ENOSPC = errno.EPERM, errno.EIO, errno.EINVAL, errno.ENOSPC
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
REQUEST_MAX = 32 * MIB

os.environ["PATH"] += os.pathsep + os.pathsep.join(["/usr/sbin", "/sbin"])
os.environ["LC_ALL"] = "C"

TESTS = []


class Skip(Exception):
    """The test cannot run on this machine; the text says why."""


class TimedOut(BaseException):
    """The test has used up its time. Not an `Exception`, so that no test takes it for one of its own."""


def test(function=None, *, seconds=120, fairlift_only=False):
    """Marks a test. `fairlift_only`: it proves what only Fairlift promises, so a stand-in would fail it."""

    def mark(function):
        function.seconds, function.fairlift_only = seconds, fairlift_only
        TESTS.append(function)
        return function

    return mark(function) if function else mark


# ---- what a test says -------------------------------------------------------------------------------------------


def equal(got, wanted, what="the value"):
    if got != wanted:
        raise AssertionError(f"{what}: wanted {short(wanted)}, got {short(got)}")


def contains(text, *words):
    """Each of `words` occurs in `text`, in any case."""
    for word in words:
        if word.lower() not in text.lower():
            raise AssertionError(f"wanted {word!r} in: {text.strip() or '(nothing)'}")


def short(value):
    text = repr(value)
    return text if len(text) < 400 else f"{text[:380]}… ({len(text)} characters)"


@contextlib.contextmanager
def refused(*errnos, says=()):
    """The block within is answered by one of these errors, with `says` in its message."""
    try:
        yield
    except nbdclient.NbdError as refusal:
        if refusal.errno not in errnos:
            names = " or ".join(errno.errorcode.get(e, str(e)) for e in errnos)
            raise AssertionError(f"wanted {names}, got {refusal}") from refusal
        contains(refusal.message, *([says] if isinstance(says, str) else says))
        return
    raise AssertionError(f"wanted {' or '.join(errno.errorcode[e] for e in errnos)}, but it went through")


@contextlib.contextmanager
def hung_up():
    """The server closes the connection within the block."""
    try:
        yield
    except (nbdclient.Closed, ConnectionError, ssl.SSLEOFError):
        return
    raise AssertionError("wanted the server to close the connection, but it did not")


def until(true, what, seconds=60):
    """Waits until `true()` holds, and returns its value. The time is for a machine that ten others use: it is spent where the test fails."""
    end = time.monotonic() + seconds
    while not (value := true()):
        if time.monotonic() > end:
            raise AssertionError(f"waited {seconds} s in vain: {what}")
        time.sleep(0.01)
    return value


def again(look, times=4):
    """Looks at what a load has or waits for, and again where that is not as it is to be: on a busy machine a client may have no processor for
    a second, and then it asks for less than its share. What is wrong in each of so many looks is wrong."""
    for _ in range(times - 1):
        try:
            return look()
        except AssertionError as why:
            print(f"it is looked again: {why}", flush=True)
    return look()


def until_listening(path, who):
    """Waits until a socket takes clients: its file is there before, from when it was bound. Nothing is connected, which a disk would see."""
    def is_listening():
        with open("/proc/net/unix", encoding="utf-8", errors="replace") as sockets:
            return any(line.rstrip("\n").endswith(f" {path}") and line.split()[3] == "00010000" for line in sockets)
    until(is_listening, f"{who} listens")


def figure(text):
    """Something that was counted, which docs may publish."""
    print(text, flush=True)
    if path := os.environ.get("FIGURES"):
        with open(path, "a") as file:
            file.write(text + "\n")


def sha256(path):
    with open(path, "rb") as file:
        digest = hashlib.sha256()
        while block := file.read(4 * MIB):
            digest.update(block)
        return digest.hexdigest()


def data(length, *key):
    """Bytes that look random, the same for the same key and seed."""
    return random.Random(f"{SEED}/{key}").randbytes(length)


def free_port(count=1):
    """The first of `count` free ports in a row. They are this process's until it ends: no other test is given them, and, since they are not
    ephemeral, no outgoing connection takes one before a server listens there."""
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    # A cluster's daemons take theirs below 10000.
    first = random.SystemRandom().sample([*range(10000, low - count + 1), *range(high + 1, 65536 - count + 1)], 1000)
    return next(port for port in first if all([is_ours(port + n) for n in range(count)]))


PORTS = {}  # a socket whose name says that the port is taken, for as long as the process lives


def is_ours(port):
    """Takes a port, unless somebody has it."""
    if port in PORTS:
        return False
    PORTS[port] = socket.socket(socket.AF_UNIX)
    try:
        PORTS[port].bind(f"\0fairlift-test-port-{port}")
        for kind, place in (socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::"):
            with socket.socket(kind) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: what has ended is no matter
                if kind == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind((place, port))
        return True
    except OSError as error:
        return error.errno in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)  # there is no IPv6 here


def in_flight(server):
    """Requests in its disks."""
    from control import Control

    return sum(disk["in_flight"] for disk in Control(server.t, server).ask("GET", "/v1/disks"))


def stand_still(t, process):
    """Stops a process until it is sent SIGCONT. When this returns, all of its threads stand."""
    t.defer(process.send_signal, signal.SIGCONT)
    process.send_signal(signal.SIGSTOP)
    def stands(task):
        with contextlib.suppress(OSError):  # it has ended
            return ") T" in task.read_text()
        return True

    until(lambda: all(map(stands, Path(f"/proc/{process.pid}/task").glob("*/stat"))), "all of its threads stand")


def at_once(*functions):
    """Runs the functions in threads of their own; the first error, if any, is raised when all have ended."""
    errors = []

    def run(function):
        try:
            function()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(f,), daemon=True) for f in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


# ---- what a test has --------------------------------------------------------------------------------------------


class Context:
    """A test's own directory, servers and processes."""

    def __init__(self, directory):
        self.dir = Path(directory)
        self.random = random.Random(SEED)
        self.servers = []
        self._deferred = []

    def skip(self, why):
        raise Skip(why)

    def defer(self, function, *arguments):
        """Runs `function` when the test has ended, however it ends; the last deferred goes first."""
        self._deferred.append((function, arguments))

    def path(self, name):
        return str(self.dir / name)

    def secret(self, name, text):
        """Writes a file that only its owner can read; returns its path."""
        path = Path(self.path(name))
        path.touch(mode=0o600)
        path.write_text(text)
        return str(path)

    def image(self, name, size, *pieces):
        """Makes a sparse file of `size` bytes that holds each (offset, bytes) of `pieces`; returns its path."""
        path = self.path(name)
        with open(path, "wb") as file:
            file.truncate(size)
            for offset, piece in pieces:
                file.seek(offset)
                file.write(piece)
        return path

    def tool(self, name):
        if not shutil.which(name):
            raise AssertionError(f"{name} is not installed; tests/run says which package has it")
        return name

    def run(self, *command, seconds=60, code=0, **options):
        """Runs a program to its end and returns what it printed (both streams); another exit code is a failure."""
        command = [str(word) for word in command]
        self.tool(command[0])
        print("$", " ".join(command), flush=True)
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace", start_new_session=True, **options)
        try:
            out, _ = process.communicate(timeout=seconds)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise
        print(out, end="", flush=True)
        if code is not None and process.returncode != code:
            raise AssertionError(
                f"{' '.join(command)}: wanted exit code {code}, got {process.returncode}: {out.strip()[-600:]}")
        return out

    def json(self, *command, **options):
        return json.loads(self.run(*command, **options))

    def start(self, *command, **options):
        """Starts a program that runs until it, or the test, ends."""
        command = [str(word) for word in command]
        self.tool(command[0])
        print("$", " ".join(command), "&", flush=True)
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, **options)
        self.defer(end, process)
        return process

    def server(self, *exports, **options):
        """Starts a server of `NAME=BACKING`s, listening on a unix socket, and waits until it takes connections."""
        server = Server(self, exports, **options)
        self.servers.append(server)
        return server

    def serve_fails(self, *arguments, seconds=60, **options):
        """`fairlift serve` with these arguments ends by itself with an error; returns the message."""
        log = self.path(f"refusal{len(list(self.dir.glob('refusal*')))}.log")
        with open(log, "wb") as out:
            process = self.start(BINARY, "serve", *arguments, stdout=out, stderr=out, **options)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"`fairlift serve {' '.join(map(str, arguments))}` runs, but should refuse") from None
        message = plain(Path(log).read_text())
        print(message, end="", flush=True)
        if code <= 0 or code == 101 or "panicked" in message:
            raise AssertionError(f"wanted a clear error and an exit code from 1 to 100, got {code}: {message}")
        return message

    def finish(self, passed):
        """H2 and H3; after a failure only cleans up."""
        trouble = []
        for server in self.servers:
            try:
                if passed and not server.killed and not server.seen_to_end:
                    server.stop()
                server.check_log()
            except Exception as error:
                trouble.append(str(error))
        for function, arguments in reversed(self._deferred):
            try:
                function(*arguments)
            except Exception as error:
                trouble.append(f"when cleaning up: {error}")
        return trouble


class Server:
    """A running server: `fairlift serve`, or its stand-in."""

    killed = False        # by the test
    seen_to_end = False   # the test has looked at how it ended
    may_stick = False     # the test wants requests that wait for nothing

    def __init__(self, t, exports=(), *, listen=None, args=(), config=None, env=None, wait=True, wrap=(), tls=None,
                 read_only=(), max_connections=None):
        number = len(t.servers)
        self.t = t
        self.socket = t.path(f"s{number}")
        self.listen = listen if listen is not None else [f"unix:{self.socket}"]
        self.log_path = t.path(f"server{number}.log")
        words = list(exports)
        if read_only and not STAND_IN:
            config = (config or "") + "".join(
                f'[export."{name}"]\nbacking = "{backing}"\nread_only = true\n'
                for name, backing in (export.split("=", 1) for export in exports) if name in read_only)
            words = [export for export in exports if export.split("=", 1)[0] not in read_only]
        if max_connections is not None:
            args = [*args, "--max-connections", str(max_connections)]
        if config is not None:
            Path(t.path(f"server{number}.toml")).write_text(config)
            words += ["--config", t.path(f"server{number}.toml")]
        for listener in self.listen:
            words += ["--listen", listener]
        if STAND_IN:
            command = stand_in(t, exports, self.listen, args, read_only, max_connections)
        else:
            command = [BINARY, "serve", *words, *args]
        environment = {**os.environ, "RUST_BACKTRACE": "1", "RUST_LOG": os.environ.get("RUST_LOG", "info"), **(env or {})}
        print("$", " ".join(map(str, [*wrap, *command])), "&", flush=True)
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [*map(str, wrap), *map(str, command)], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=environment, start_new_session=True)
        t.defer(end, self.process)
        if wait:
            self.wait_until_ready()

    @property
    def pid(self):
        return self.process.pid

    @property
    def address(self):
        """Where the raw client connects."""
        kind, place = self.listen[0].split(":", 1)
        if kind == "unix":
            return place
        host, port = place.rsplit(":", 1)
        return host, int(port)

    def uri(self, export="", listener=0, tls=False):
        kind, place = self.listen[listener].split(":", 1)
        scheme = "nbds" if tls else "nbd"
        return f"{scheme}+unix:///{export}?socket={place}" if kind == "unix" else f"{scheme}://{place}/{export}"

    def wait_until_ready(self, seconds=60):
        def ready():
            if self.process.poll() is not None:
                raise AssertionError(f"the server ended with {self.process.returncode} at start: {self.log()[-2000:]}")
            try:
                # A greeting, for the socket of a server just killed may take connections a moment longer.
                with nbdclient.Wire(self.address, 20) as wire:
                    return wire.receive(18)
            except (OSError, nbdclient.Closed):
                return False

        until(ready, f"{self.listen[0]} takes connections; the server says: {self.log()[-500:]}", seconds)

    def connect(self, export="", **options):
        return nbdclient.Client(self.address, export, **options)

    def serves(self, export="", size=None):
        """A good client finds what it wants: it reads, writes, and reads back."""
        with self.connect(export) as client:
            if size is not None:
                equal(client.size, size, "the export's size")
            before = client.read(0, 4096)
            equal(len(before), 4096, "bytes read")
            if not client.read_only:
                piece = data(4096, time.monotonic_ns())
                client.write(0, piece)
                client.flush()
                equal(client.read(0, 4096), piece, "what was just written")
                client.write(0, before)
            client.disconnect()

    def control(self, *words, code=0):
        """A command that speaks to the server's control socket: control("set", "export", "a", "size=auto")."""
        return self.t.run(BINARY, *words, env={**os.environ, "FAIRLIFT_CONTROL": f"unix:{self.socket}.control.sock"}, code=code)

    def fds(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def fds_at_rest(self):
        """How many files are open once that has not changed for a while: the control server opens its own after the start."""
        seen = []
        while len(seen) < 4 or len(set(seen[-4:])) > 1:
            seen.append(self.fds())
            time.sleep(0.05)
        return seen[-1]

    def fds_settle(self, base, seconds=60):
        """The server is back at no more than `base` open files."""
        until(lambda: self.fds() <= base, f"back to {base} open files; now {self.fds()}", seconds)

    def log(self):
        return plain(Path(self.log_path).read_text(errors="replace"))

    def says(self, *words):
        """The log has each of `words`, in any case, now or soon: a line may come after the answer to the request that it tells of."""
        with contextlib.suppress(AssertionError):
            until(lambda: all(word.lower() in log for log in [self.log().lower()] for word in words), "the log says it")
        contains(self.log(), *words)

    def check_log(self):
        log = self.log()
        if "panicked" in log or "SAFETY" in log and "violated" in log:
            raise AssertionError(f"the server panicked: {log[-2000:]}")
        if not self.may_stick and (stuck := re.search(r".*watchdog: .*", log)):
            raise AssertionError(f"requests waited for nothing: {stuck[0]}")
        if refused := re.search(r".*system call \d+ refused.*", log):
            raise AssertionError(f"the server made a call that it had given up: {refused[0]}")

    def stats(self):
        """The counters that the server logs when it stops: {export: {op: (operations, bytes or None)}}."""
        found = {}
        for name, counters in re.findall(r'stats export="([^"]*)" (.*)', self.log()):
            pairs = re.findall(r"([a-z-]+)=(\d+)(?:/(\d+))?", counters)
            found[name] = {op: (int(count), int(length) if length else None) for op, count, length in pairs}
        return found

    def stop(self, signal_=signal.SIGTERM, seconds=60):
        """Asks it to end; it must, with exit code 0."""
        if self.process.poll() is not None:
            raise AssertionError(f"the server died by itself ({self.process.returncode}): {self.log()[-2000:]}")
        self.process.send_signal(signal_)
        self.ended(0, seconds)

    def ended(self, code=None, seconds=60):
        """It ends by itself; returns its exit code."""
        try:
            got = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the server did not end within {seconds} s: {self.log()[-1000:]}") from None
        self.seen_to_end = True
        if code is not None and got != code:
            raise AssertionError(f"the server's exit code: wanted {code}, got {got}: {self.log()[-2000:]}")
        return got

    def kill(self):
        """kill -9."""
        self.killed = True
        self.process.kill()
        self.process.wait()


def plain(text):
    """Without the colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def end(process):
    """Ends a process that this test started, with all in its session: TERM, then KILL."""
    for sign, patience in ((signal.SIGTERM, 3), (signal.SIGKILL, 5)):
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, sign)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(patience)


def stand_in(t, exports, listen, args, read_only, max_connections):
    """qemu-storage-daemon instead of Fairlift: only to try the tests themselves."""
    words, server = ["qemu-storage-daemon"], None
    kind, place = listen[0].split(":", 1)
    if kind == "unix":
        server = f"addr.type=unix,addr.path={place}"
    else:
        host, port = place.rsplit(":", 1)
        server = f"addr.type=inet,addr.host={host},addr.port={port}"
    words += ["--nbd-server", f"{server},max-connections={max_connections or 0}"]
    for number, (name, backing) in enumerate(export.split("=", 1) for export in exports):
        kind, _, what = backing.partition(":")
        what = what.split(",")[0]
        writable = "off" if name in read_only else "on"
        if kind == "mem":
            path = t.path(f"mem{len(t.servers)}.{number}")
            with open(path, "wb") as file:
                file.truncate(size(what))
            what, kind = path, "file"
        driver = "host_device" if what.startswith("/dev/") else "file"
        node = f"driver={driver},filename={what}" if kind == "file" else f"driver=null-co,read-zeroes=on,size={size(what)}"
        words += ["--blockdev", f"{node},node-name=p{number},discard=unmap,read-only={'off' if writable == 'on' else 'on'}"]
        words += ["--export", f"nbd,id=e{number},node-name=p{number},name={name},writable={writable}"]
    return words


def size(text):
    return int(text[:-1]) << {"K": 10, "M": 20, "G": 30, "T": 40}[text[-1]] if text[-1].isalpha() else int(text)


# ---- the runner -------------------------------------------------------------------------------------------------

PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans():
    """Processes whose parent has ended become our children, so that none escapes."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(pid):
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()
                if fields[0] != "Z":
                    parents.setdefault(int(fields[1]), []).append(int(entry))
    found, waiting = [], [pid]
    while waiting:
        children = parents.get(waiting.pop(), [])
        found += children
        waiting += children
    return found


def end_descendants(pid):
    """Ends whatever is still below `pid`; returns what it was."""
    left = []
    for _ in range(20):
        now = descendants(pid)
        if not now:
            break
        for child in now:
            with contextlib.suppress(OSError):
                name = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:120]
                if name and (child, name) not in left:  # what has no memory any more is ending
                    left.append((child, name))
                os.kill(child, signal.SIGKILL)
        time.sleep(0.05)
        if pid == os.getpid():
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
    return left


def unmount_below(directory):
    """Takes down mounts and loop devices that a test, ended by force, has left in its directory."""
    for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
        place = line.split()[1]
        if place.startswith(str(directory) + "/"):
            subprocess.run(["umount", "-l", place], check=False)
    if shutil.which("losetup"):
        loops = subprocess.run(["losetup", "-lnO", "NAME,BACK-FILE"], capture_output=True, text=True).stdout
        for line in loops.splitlines():
            name, _, file = line.partition(" ")
            if file.strip().startswith(str(directory) + "/"):
                subprocess.run(["losetup", "-d", name], check=False)


class Run:
    """One test under way, in a process of its own (H1)."""

    def __init__(self, function):
        self.function = function
        self.module = Path(function.__code__.co_filename).stem
        self.started = time.monotonic()
        # Short, because a unix socket's path may have no more than 107 bytes.
        self.directory = tempfile.mkdtemp(prefix="fl-")
        self.pipe, write = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.pipe)
            self.child(write)
        os.close(write)
        self.signalled = False

    def name(self):
        return f"{self.module}: {self.function.__name__.replace('_', ' ')}"

    def child(self, pipe):
        os.setsid()
        adopt_orphans()
        out = os.open(f"{self.directory}/output", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(out, 1)
        os.dup2(out, 2)
        sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
        sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)

        def too_long(*_):
            raise TimedOut(f"it took longer than {self.function.seconds} s")

        signal.signal(signal.SIGALRM, too_long)
        signal.signal(signal.SIGTERM, too_long)
        signal.alarm(self.function.seconds)
        t = Context(self.directory)
        verdict, why = "passed", ""
        try:
            if STAND_IN and self.function.fairlift_only:
                raise Skip("a stand-in serves, not Fairlift")
            self.function(t)
        except Skip as skip:
            verdict, why = "skipped", str(skip)
        except BaseException as error:
            verdict, why = "failed", f"{type(error).__name__}: {error}"
            traceback.print_exc(file=sys.stdout)
        signal.alarm(90)
        try:
            trouble = t.finish(verdict == "passed")
            moment = time.monotonic() + 10
            while descendants(os.getpid()) and time.monotonic() < moment:
                time.sleep(0.02)
            left = end_descendants(os.getpid())
            if left:
                trouble.append(f"left running: {', '.join(f'{pid} {name}' for pid, name in left)}")
            if trouble and verdict != "failed":
                verdict, why = "failed", "; ".join(trouble)
        except BaseException as error:
            verdict, why = "failed", f"{why} (then, cleaning up: {type(error).__name__}: {error})"
        os.write(pipe, json.dumps([verdict, why[:4000]]).encode())
        sys.stdout.flush()
        os._exit(0)

    def poll(self):
        """(verdict, why) once it has ended."""
        late = time.monotonic() - self.started - self.function.seconds
        if late > 100 and not self.signalled:  # its own alarm and clean-up should have ended it
            self.signalled = True
            end_descendants(self.pid)
            os.kill(self.pid, signal.SIGKILL)
        ended, _ = os.waitpid(self.pid, os.WNOHANG)
        if not ended:
            return None
        said = os.read(self.pipe, 1 << 16)
        os.close(self.pipe)
        unmount_below(self.directory)
        return json.loads(said) if said else ["failed", "the test's own process was ended by force"]


def show(text, lines=60):
    every = text.splitlines()
    if len(every) > lines:
        print(f"    | … {len(every) - lines} lines before")
    for line in every[-lines:]:
        print(f"    | {line[:500]}")


def commit():
    """The commit that is checked out, and whether more than that was tested."""
    git = ["git", "-C", str(ROOT)]
    try:
        name = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True)
        changes = subprocess.run([*git, "status", "--porcelain", "--untracked-files=no"], capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown (no git here)"
    return name.stdout.strip() + (", with changes that are not committed" if changes.stdout.strip() else "")


def run_tests(tests, jobs):
    """Runs the tests, `jobs` at a time; prints a line for each and the plain last line; returns the exit code."""
    adopt_orphans()
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    waiting, running, failures = list(tests), [], []
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                running.append(Run(waiting.pop(0)))
            for run in list(running):
                if (outcome := run.poll()) is None:
                    continue
                running.remove(run)
                verdict, why = outcome
                counts[verdict] += 1
                word = {"passed": "ok  ", "failed": "FAIL", "skipped": "SKIP"}[verdict]
                print(f"{word} {run.name()} ({time.monotonic() - run.started:.1f} s){' — ' + why if why else ''}", flush=True)
                if verdict == "failed":
                    failures.append((run.name(), why))
                    with contextlib.suppress(OSError):
                        show(Path(f"{run.directory}/output").read_text(errors="replace"))
                    for log in sorted(Path(run.directory).glob("server*.log")):
                        print(f"    {log.name}:")
                        show(plain(log.read_text(errors="replace")), 30)
                    print(f"    to repeat it, at commit {commit()}:\n"
                          f"      SEED={SEED} python3 {os.path.relpath(run.function.__code__.co_filename)} "
                          f"{run.function.__name__}", flush=True)
                if verdict == "failed" and os.environ.get("KEEP"):
                    print(f"    kept: {run.directory}", flush=True)
                else:
                    shutil.rmtree(run.directory, ignore_errors=True)
            time.sleep(0.02)
    finally:
        for run in running:
            end_descendants(run.pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(run.pid, signal.SIGKILL)
            unmount_below(run.directory)
            shutil.rmtree(run.directory, ignore_errors=True)
    if failures:
        print("\nfailed:")
        for name, why in failures:
            print(f"  {name}: {why.splitlines()[0][:300] if why else ''}")
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped", flush=True)
    return 1 if counts["failed"] or not counts["passed"] else 0


def main(words=None, jobs=None):
    """Runs the tests marked so far whose names hold one of the words of the command line (all without words)."""
    words = sys.argv[1:] if words is None else words
    if not STAND_IN and not os.access(BINARY, os.X_OK):
        sys.exit(f"{BINARY} is not there: `cargo build --release` makes it (or set FAIRLIFT)")
    chosen = [f for f in TESTS if not words or any(w.replace(" ", "_") in f"{Path(f.__code__.co_filename).stem}.{f.__name__}" for w in words)]
    if not chosen:
        sys.exit(f"no test's name holds {' or '.join(words)}")
    sys.exit(run_tests(chosen, jobs or int(os.environ.get("JOBS") or min(6, (os.cpu_count() or 1) + 3))))
