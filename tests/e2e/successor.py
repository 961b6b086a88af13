"""A server that has taken over from the one that a test has started: `upgrade(server)`."""

from harness import *


class Adopted:
    """A server that another one has started: its parent has ended, and this test is the next."""

    def __init__(self, pid):
        self.pid, self.returncode = pid, None

    def poll(self):
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                self.returncode = os.waitstatus_to_exitcode(status) if pid else None
            except ChildProcessError:  # it is not ours yet
                self.returncode = None if os.path.exists(f"/proc/{self.pid}") else 0
        return self.returncode

    def wait(self, timeout=60):
        end = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("a server that took over", timeout)
            time.sleep(0.005)
        return self.returncode

    def send_signal(self, signal_):
        os.kill(self.pid, signal_)

    def kill(self):
        self.send_signal(signal.SIGKILL)


def finish(process):
    if process.poll() is None:
        process.kill()
        process.wait(60)


def upgrade(server, *words, code=0):
    """`fairlift upgrade`; where it is done the server's process is another one, and the one before has ended with 0."""
    said = server.control("upgrade", *words, code=code)
    if code == 0 and "--dry-run" not in words:
        equal(server.process.wait(60), 0, "the exit code of the previous server")
        server.process = Adopted(int(re.search(r"process (\d+) serves now", said)[1]))
        server.t.defer(finish, server.process)
    return said
