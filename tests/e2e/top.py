"""`fairlift top`: what it prints, and what a person at a terminal of 80 by 24 sees and types."""

import fcntl
import pty
import select
import struct
import termios

from control import Control
from harness import *
from why import SLOW, Load, tenants


class Terminal:
    """What a program has written to a terminal, as it stands on the screen: as much of a VT100 as such programs need."""

    def __init__(self, t, *command, columns=80, lines=24):
        self.columns, self.count, self.row, self.column, self.rest = columns, lines, 0, 0, ""
        self.lines = [[" "] * columns for _ in range(lines)]
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvp(command[0], command)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        t.defer(self.end)

    def end(self):
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)

    def read(self):
        while select.select([self.fd], [], [], 0)[0]:
            try:
                self.take(os.read(self.fd, 1 << 16).decode(errors="replace"))
            except OSError:
                return  # it has ended

    def take(self, text):
        text = self.rest + text
        self.rest = ""
        for piece in re.findall(r"\x1b\[[?0-9;]*[A-Za-z]|\x1b.?|[^\x1b]", text):
            if piece.startswith("\x1b["):
                self.control(piece[2:-1], piece[-1])
            elif piece.startswith("\x1b"):
                self.rest = piece
            elif piece >= " " and self.row < self.count and self.column < self.columns:
                self.lines[self.row][self.column] = piece
                self.column += 1

    def control(self, numbers, letter):
        if letter == "H":
            self.row, self.column = (int(n or 1) - 1 for n in (numbers.split(";") + ["1"])[:2])
        elif letter == "J":
            self.lines = [[" "] * self.columns for _ in range(self.count)]

    def screen(self):
        self.read()
        return ["".join(line).rstrip() for line in self.lines]

    def shows(self, true, what):
        until(lambda: true(self.screen()), f"{what}; the screen: " + "\n".join(self.screen()))

    def type(self, keys):
        os.write(self.fd, keys.encode())


def names(screen):
    """The tenants on a screen, in their order."""
    heads = [number for number, line in enumerate(screen) if line.startswith("TENANT")]
    return [line.split()[0] for line in screen[heads[0] + 1:] if line.startswith("/")] if heads else []


def served(t):
    """Bob has the disk, and alice waits for him: it keeps no shares, so of 66 requests that wait 2 are hers, however slow the clients are."""
    server = t.server(config=tenants('scheduler = "mq-deadline"\ndepth = 4\nnr_requests = 128'))
    Load(t, server, "alice", 2)
    Load(t, server, "bob", 64)
    control = Control(t, server)
    control.working("alice", "bob")
    return server, control


@test(fairlift_only=True)
def top_prints_tenants_with_what_they_wait_for(t):
    _, control = served(t)
    printed = control.cli("top", "--once", "--seconds=0.5").splitlines()
    contains(printed[0], "2 tenants, 2 connections")
    equal(names(printed), ["/bob", "/alice"], "by what they had")
    words = printed[-1].split()
    had, due, score = (float(words[at].rstrip("%")) for at in (2, 3, 5))
    if not (had <= due <= 50 and abs(score - had / due) < 0.05):
        raise AssertionError(f"alice: {printed}")
    contains(printed[-2], "own")
    contains(printed[-1], "others")
    equal(names(control.cli("top", "--once", "--sort=score", "--seconds=0.2").splitlines()), ["/alice", "/bob"], "by score")
    equal(names(control.cli("top", "--once", "--filter=ALI", "--seconds=0.2").splitlines()), ["/alice"], "those with ALI")
    said = json.loads(control.cli("top", "--json", "--seconds=0.2"))
    parts = {tenant["path"]: sum(tenant["waits"].values()) for tenant in said["tenants"]}
    if not all(0.9 < part < 1.1 for part in parts.values()):
        raise AssertionError(f"the parts of a tenant's time: {said}")
    contains(control.cli("top", code=1), "no terminal", "--once")


@test(fairlift_only=True)
def a_person_at_a_terminal_sorts_filters_and_asks_why(t):
    server, _ = served(t)
    os.environ["FAIRLIFT_CONTROL"] = f"unix:{server.socket}.control.sock"
    terminal = Terminal(t, BINARY, "top", "--seconds=0.3")
    terminal.shows(lambda screen: names(screen) == ["/bob", "/alice"], "both tenants by use")
    # The last line is drawn last.
    terminal.shows(lambda screen: "sort: h)ad" in screen[23] and "q)uit" in screen[23], "the keys")
    terminal.type("s")
    terminal.shows(lambda screen: names(screen) == ["/alice", "/bob"], "the least score first")
    terminal.type("/bo")
    terminal.shows(lambda screen: names(screen) == ["/bob"] and 'with "bo"' in screen[0], "only bob")
    terminal.type("\x1b")
    terminal.shows(lambda screen: len(names(screen)) == 2, "all again")
    terminal.type("\r")
    terminal.shows(lambda screen: any(line.startswith("alice: ") and "looking" not in line for line in screen), "why")
    terminal.type("q")
    equal(os.waitstatus_to_exitcode(os.waitpid(terminal.pid, 0)[1]), 0, "the exit code")


if __name__ == "__main__":
    main()
