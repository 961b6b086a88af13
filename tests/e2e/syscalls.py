"""The n-th system call of its kind fails, at the start and under a light load: the server serves right, or ends and says why.

strace makes one call fail in each life (in each thread of it). Which calls a life has, the first life shows. FULL=1: every call up to the
2,000th of its kind with every error, else some of them by the seed. CALLS=N: so many.

A life passes if no answer is wrong, nothing hangs, nothing panics, and the server that does not serve ends with an error in its log.
"""

from concurrent.futures import ThreadPoolExecutor

from harness import *
from nbdclient import Closed, NbdError

class Wrong(AssertionError):
    """An answer that is wrong: nothing excuses it."""


# A library's own wake-up, by an eventfd or a pair of sockets, failed as the kernel does not let it fail; or there was no memory, and it says
# so. (Without a word ends what the loader could not map.)
LIBRARY = re.compile(r"panicked at \S*/(tokio|signal-hook|mio)-|panicked at /rustc/")
MEMORY = re.compile("memory allocation of|no memory for|failed to allocate")
CALLS = int(os.environ.get("CALLS") or (1 << 30 if FULL else 24))
NTH = 2000
ERRORS = ["EIO", "ENOMEM", "EINTR", "EAGAIN", "ENOSPC", "EPERM"]
# Calls that the kernel can fail in some ways only.
ERRORS_OF = {
    "mmap": ["ENOMEM", "EAGAIN"], "clone": ["EAGAIN", "ENOMEM"], "clone3": ["EAGAIN", "ENOMEM", "EPERM"],
    "io_uring_enter": ["EINTR", "EAGAIN", "EBUSY"], "io_uring_setup": ["ENOMEM", "EPERM", "EMFILE"], "io_uring_register": ["ENOMEM", "EINVAL"],
    "epoll_wait": ["EINTR"], "epoll_pwait": ["EINTR"], "epoll_pwait2": ["EINTR"], "ppoll": ["EINTR"], "epoll_create1": ["EMFILE", "ENOMEM"], "epoll_ctl": ["ENOMEM", "ENOSPC"], "eventfd2": ["EMFILE", "ENOMEM"],
    "openat": ["EIO", "ENOMEM", "EINTR", "EMFILE", "EACCES"], "open": ["EIO", "ENOMEM", "EMFILE", "EACCES"],
    "socket": ["EMFILE", "ENOMEM"], "socketpair": ["EMFILE", "ENOMEM"], "accept4": ["EMFILE", "ENOMEM", "ECONNABORTED"],
    "listen": ["EADDRINUSE"], "bind": ["EADDRINUSE", "EACCES", "ENOMEM"], "getrandom": ["EINTR"], "prctl": ["EPERM", "EINVAL"],
    "recvfrom": ["ECONNRESET", "EAGAIN", "EINTR", "ENOMEM"],
    "fcntl": ["EINTR", "EINVAL"], "flock": ["EINTR", "EWOULDBLOCK", "ENOLCK"], "seccomp": ["EINVAL", "EACCES"],
}
SIZE = MIB
# Of the C library's start and of threads' ends, before or after anything of ours runs; and what cannot fail.
OTHERS = {
    "execve", "arch_prctl", "set_tid_address", "set_robust_list", "rseq", "exit", "exit_group", "rt_sigreturn", "restart_syscall", "prlimit64",
    "rt_sigaction", "rt_sigprocmask", "sigaltstack", "brk", "mprotect", "munmap", "madvise", "gettid", "getpid", "sched_getaffinity", "sched_yield",
    "futex", "poll", "tgkill", "umask", "getuid", "geteuid", "getgid", "getegid", "readlink",
    "close",  # strace would leave the file open
    "sendto",  # a signal's way to the thread that waits for it
    "write",  # wake-ups by eventfd, which the kernel cannot fail, and lines of the log
}


class Life:
    def __init__(self, t, number, engine, inject=None):
        self.socket, self.log, self.trace = t.path(f"l{number}"), t.path(f"life{number}.log"), t.path(f"trace{number}")
        self.image = t.image(f"image{number}", SIZE, (0, b"\1" * SIZE))
        strace = ["strace", "-D", "-f", "-qq", "-o", self.trace]
        strace += ["-e", f"trace={inject[0]}", "-e", f"inject={inject[0]}:error={inject[1]}:when={inject[2]}"] if inject else []
        control = f"unix:{self.socket}.c"
        with open(self.log, "wb") as out:
            self.process = subprocess.Popen(
                [*strace, BINARY, "serve", f"disk=file:{self.image}", "--listen", f"unix:{self.socket}", "--control", control, "--workers", "2", "--engine", engine,
             "--seccomp", "off"],  # a call that strace lets fail looks to the filter like none

                stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
        t.defer(end, self.process)

    def run(self):
        """What is wrong with it, if anything is."""
        try:
            served = self.serve()
            code = self.stop()
        except AssertionError as error:
            excused = LIBRARY.search(self.text()) and not isinstance(error, Wrong)
            return None if excused else str(error)
        log = self.text()
        if LIBRARY.search(log) or MEMORY.search(log) or not log:
            return None
        if code < 0:
            return f"ended by signal {-code}: {log[-500:]}"
        if "panicked" in log or code == 101:
            return "panicked: " + log[log.index("panicked") - 60:][:400] if "panicked" in log else f"panicked: {log[-400:]}"
        if "watchdog" in log:
            return f"stuck: {log[-500:]}"
        if not served and code == 0:
            return f"neither served nor failed: {log[-500:]}"
        if code != 0 and not re.search("error|ERROR|failed|memory allocation", log):
            return f"ended with {code}, and did not say why: {log[-500:]}"
        return None

    def serve(self):
        """Whether a client was served in the end; one answer that is wrong, or a client that waits in vain, is a failure."""
        place, tries, last = 0, 0, None
        deadline = time.monotonic() + 20
        while self.process.poll() is None and tries < 6:
            if time.monotonic() > deadline:
                raise AssertionError(f"serves nobody, and does not end: {last}; {Path(self.log).read_text()[-500:]}")
            if not os.path.exists(self.socket):
                time.sleep(0.01)
                continue
            tries += 1
            place += 65536
            try:
                with nbdclient.Client(self.socket, "disk", timeout=10) as client:
                    if client.read(place, 4096) not in (b"\1" * 4096, b"\2" * 4096):
                        raise Wrong("a read found what nobody wrote")
                    client.write(place, b"\2" * 8192)
                    if client.read(place, 8192) != b"\2" * 8192:
                        raise Wrong("a read did not find what was written")
                    client.flush()
                    client.zero(place + 8192, 4096)
                    if client.read(place + 8192, 4096) != bytes(4096):
                        raise Wrong("a read did not find the zeroes that were written")
                    client.trim(place + 12288, 4096)
                    client.status(0, SIZE)
                    client.disconnect()
                return True
            except TimeoutError as error:
                raise AssertionError(f"a client waited in vain: {error!r}") from None
            except (Closed, OSError, NbdError, nbdclient.Refused) as error:
                last = error
                time.sleep(0.05)
        # A flush that failed goes on failing; all else is answered again.
        return self.process.poll() is None and isinstance(last, NbdError)

    def text(self):
        return plain(Path(self.log).read_text(errors="replace"))

    def stop(self):
        for _ in range(3):  # the signal's own way through the process is system calls too
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self.process.wait(5)
                return 0 if code == 128 + signal.SIGTERM else code
        raise AssertionError(f"does not end: {self.text()[-500:]}") from None


@test(seconds=7200 if FULL else 120, fairlift_only=True)
def when_the_nth_system_call_fails_the_server_serves_right_or_says_why(t):
    t.tool("strace")
    all_ = []
    for number, engine in enumerate(["auto", "poll"]):
        first = Life(t, number, engine)
        wrong = first.run()
        if wrong and "ptrace" in wrong.lower():
            t.skip("strace may not trace here")
        equal(wrong, None, "what is wrong with a life in which nothing fails")
        counts, most = {}, {}
        for thread, call in re.findall(r"^(\d+) +(\w+)\(", Path(first.trace).read_text(), re.M):
            counts[call, thread] = counts.get((call, thread), 0) + 1
        for (call, _), count in counts.items():
            most[call] = max(most.get(call, 0), min(count, NTH))
        all_ += [(engine, (call, error, n)) for call, count in sorted(most.items()) if call not in OTHERS
                 for n in range(1, count + 1) for error in ERRORS_OF.get(call, ERRORS)]
    random.Random(SEED).shuffle(all_)
    chosen = all_[:CALLS]
    with ThreadPoolExecutor(3) as pool:
        results = pool.map(lambda at: (at[1], Life(t, at[0] + 2, *at[1]).run()), enumerate(chosen))
        wrong = [f"{call} {error} at {n}, {engine}: {why}" for (engine, (call, error, n)), why in results if why]
    kinds = len({call for _, (call, *_) in all_})
    figure(f"{len(chosen)} of {len(all_)} (engine, call, error, n) of {kinds} kinds of calls failed: {len(wrong)} wrong")
    print("\n".join(wrong), flush=True)
    equal(len(wrong), 0, f"lives that went wrong, as {wrong[:1]}")


if __name__ == "__main__":
    main()
