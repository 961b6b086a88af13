"""A client at a unix socket that is known by the cgroup of its process."""

from unittest import mock

import nbdclient
from access import acting_as, guests, is_let_in, listed, reload
from harness import *
from nbdclient import *
from roles import ask
from vhostclient import FrontEnd


def own():
    """The path of this process's cgroup of version 2."""
    paths = [line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::")]
    return paths[0] if paths and ".." not in paths[0] else None


class Cgroups:
    """Cgroups below that of this process, by names such as "alice/below"."""

    def __init__(self, t, *names):
        mounts = [line.split(" ") for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        trees = [line[4] for line in mounts if line[line.index("-") + 1] == "cgroup2" and line[3] == "/"]
        if not trees or not own():
            t.skip("there is no tree of cgroups of version 2 here")
        self.base = f"{own().rstrip('/')}/fairlift-test-{os.getpid()}"
        self.home = trees[0] + own()
        self.below = trees[0] + self.base
        try:
            for name in ["", *names]:
                os.mkdir(f"{self.below}/{name}")
                t.defer(os.rmdir, f"{self.below}/{name}")
            t.defer(self.go_home)
            self.enter(names[0])
            self.go_home()
        except OSError as error:
            t.skip(f"cgroups cannot be made here: {error}")

    def path(self, name):
        return f"{self.base}/{name}"

    def enter(self, name):
        """This process, with all its threads, goes there."""
        Path(f"{self.below}/{name}/cgroup.procs").write_text("0")

    def go_home(self):
        Path(f"{self.home}/cgroup.procs").write_text("0")

    @contextlib.contextmanager
    def within(self, name, then=None):
        """In a cgroup, and then in another or at home."""
        self.enter(name)
        try:
            yield
        finally:
            self.enter(then) if then else self.go_home()


def seen(place):
    with Session(place).greet() as session:
        return listed(session)


@test(fairlift_only=True)
def a_client_is_known_by_the_cgroup_that_its_process_is_in(t):
    """Without a cgroup that could be made: that of the test is one, and one below it is another."""
    if not own():
        t.skip("there is no cgroup of version 2 here")
    below = f"{own().rstrip('/')}/nobody"
    rule = lambda name, path: f'[client.{name}]\ncgroup = "{path}"\nexports = "{name}"\n'
    config = '[export.alice]\nbacking = "mem:1m"\n[export.bob]\nbacking = "mem:1m"\n'
    server = t.server(config=config + rule("alice", own()) + rule("bob", below))
    equal(seen(server.socket), {"alice"}, "what is listed")
    with Session(server.socket).greet() as session:
        try:
            session.go("bob")
        except Refused as refusal:
            equal(refusal.code, ERR_UNKNOWN, "the answer to GO bob")
    server.says(f"cgroup {own()} asked at unix:{server.socket} for export \"bob\": no [client] allows it")
    contains(server.control("status"), f"cgroup {below}")
    contains(t.serve_fails("--config", write(t, config + rule("alice", "alice.scope"))), "takes a path as /proc/PID/cgroup has it after 0::")


def write(t, text):
    place = t.path("other.toml")
    Path(place).write_text(text)
    return place


def of_two(t):
    """A server where the cgroup alice has alice's, and one that begins alike has bob's."""
    if os.geteuid() != 0:
        t.skip("only root can move processes")
    groups = Cgroups(t, "alice", "alice/below", "alices")
    config, *doors = guests(t, ",mode=0666", ",mode=0666")
    rules = "".join(f'[client.{name}]\ncgroup = "{groups.path(there)}"\ngroup = "/tenants/{name}"\ncontrol = "tenant"\n'
                    for name, there in (("alice", "alice"), ("bob", "alices")))
    os.chmod(t.dir, 0o711)
    return groups, config, rules, doors


@test(fairlift_only=True)
def processes_of_a_cgroup_and_below_it_reach_what_is_theirs_by_each_unix_socket(t):
    groups, config, rules, doors = of_two(t)
    server = t.server(config=config + rules)
    os.chmod(server.socket + ".control.sock", 0o666)
    exports = ["alice", "bob"]
    for name, theirs in ("alice", "alice"), ("alice/below", "alice"), ("alices", "bob"), (None, None):
        with groups.within(name) if name else contextlib.nullcontext():
            equal(seen(server.socket), {theirs} - {None}, f"what {name} is listed")
            with acting_as(2001, 2001):
                let_in = [is_let_in(door) for door in doors]
            equal(let_in, [export == theirs for export in exports], f"where {name} is a guest")
            told = [ask(server, 2001, f"/v1/exports/{export}")[0] == 200 for export in exports]
            equal(told, [export == theirs for export in exports], f"what control tells {name}")


@test(fairlift_only=True)
def rules_by_cgroup_that_come_hold_for_those_who_are_there(t):
    groups, config, rules, (alice, _) = of_two(t)
    server = t.server(config=config)
    with groups.within("alice/below"):
        stays, guest = Client(server.socket, "alice"), FrontEnd(alice)
        goes = Client(server.socket, "bob")
        reload(server, config + rules, "client")
        goes.wait_for_close(60)
        stays.write(0, data(4096))
        guest.write(0, bytes(512))
    # It counts where the process was when it was looked at; a rule that does not ask for cgroups changes nothing of it.
    reload(server, config, "client")
    with Client(server.socket, "alice") as stranger:
        reload(server, config + rules, "client")
        stranger.wait_for_close(60)
    stays.write(0, data(4096))
    guest.write(0, bytes(512))
    guest.socket.close()
    stays.close()


@test(fairlift_only=True)
def a_process_that_has_ended_is_in_no_cgroup_whoever_has_its_number_now(t):
    groups, config, rules, _ = of_two(t)
    server = t.server(config=config + rules)

    def heard(then):
        """What a client is listed that has connected from outside, and has ended before the server accepts it."""
        stand_still(t, server.process)
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(60)
            pid = forked(lambda: sock.connect(server.socket))
            os.waitpid(pid, 0)
            again = then(pid)
            server.process.send_signal(signal.SIGCONT)
            try:
                with mock.patch.object(nbdclient, "dial", lambda *_: sock), Session(server.socket).greet() as session:
                    return listed(session)
            finally:
                if again:
                    os.kill(again, signal.SIGKILL)
                    os.waitpid(again, 0)

    def taken_again(pid):
        for _ in range(1000):
            Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
            last = forked(signal.pause)
            if last == pid:
                Path(f"{groups.below}/alice/cgroup.procs").write_text(str(pid))
                return pid
            os.kill(last, signal.SIGKILL)
            os.waitpid(last, 0)
        t.skip("the number of a process is not given again here")

    equal(heard(lambda _: None), set(), "what one is listed that has ended")
    try:
        Path("/proc/sys/kernel/ns_last_pid").write_text(Path("/proc/sys/kernel/ns_last_pid").read_text())
    except OSError as error:
        t.skip(f"numbers of processes cannot be chosen here: {error}")
    if tuple(map(int, re.findall(r"\d+", os.uname().release)[:2])) < (6, 5):
        t.skip("this kernel tells the number of a client's process alone")
    equal(heard(taken_again), set(), "what one is listed whose number one of alice's processes has")


def forked(what):
    """A process that does something and ends."""
    pid = os.fork()
    if pid == 0:
        try:
            what()
        finally:
            os._exit(0)
    return pid


@test(fairlift_only=True)
def a_proc_that_hides_processes_lets_nobody_in_and_is_warned_of(t):
    if os.geteuid() != 0 or not own():
        t.skip("only root can mount, and there is to be a cgroup of version 2")
    hidden = ["unshare", "-m", "sh", "-c", 'mount -t proc -o hidepid=2 proc /proc && exec "$0" "$@"']
    stranger = ["setpriv", "--regid=2005", "--clear-groups"]
    if subprocess.run([*hidden, "true"], stderr=subprocess.DEVNULL).returncode:
        t.skip("/proc cannot be mounted here")
    os.chmod(t.dir, 0o711)
    config = f'[export.alice]\nbacking = "mem:1m"\n[client.alice]\ncgroup = "{own()}"\nexports = "alice"\n'
    found = []
    for wrap in stranger, hidden, [*hidden, *stranger]:
        server = t.server(config=config, wrap=wrap)
        os.chmod(server.socket, 0o666)
        with acting_as(2001, 2001):
            session = Session(server.socket).greet()
        with session:
            found.append((listed(session), "/proc is mounted with hidepid=" in server.log()))
    equal(found, [({"alice"}, False)] * 2 + [(set(), True)], "what is listed, and whether it was warned of /proc")


if __name__ == "__main__":
    main()
