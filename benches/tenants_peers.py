#!/usr/bin/env python3
"""tenants.py beside what Linux and QEMU offer: three more schedulers, `qsd`, `linux-bfq` and `linux-max`. Root.

    benches/tenants_peers.py --only readers-deep,small-beside-deep fair qsd qsd,apart linux-bfq,low_latency=0

  qsd        qemu-storage-daemon: an export for each tenant, below each a throttle group of its own. Ceilings are all that it
             has: iops-total is what the tenant is entitled to, by the capacity measured in the same run, which an operator
             would have to know beforehand. `qsd` is one daemon, thus one thread: with `iothread=`, QEMU 7.2 aborts when a
             client of a throttled export leaves. `qsd,apart` is a daemon for each tenant
  linux-bfq  the kernel's bfq on the disk of --dir, and for each tenant a server (fairlift, scheduler none, one worker) in a
             cgroup with its weight; KEY=VALUE goes to queue/iosched. Without `low_latency=0` bfq heeds its heuristics before
             weights. The disk's scheduler is put back at the end
  linux-max  the same with the kernel's none, and for each cgroup a ceiling (io.max; blkio.throttle of v1) of what the tenant
             is entitled to, as for qsd

Needs Debian's qemu-system-common, and cgroup's blkio (v1) or io (v2) with bfq. Groups within groups are not taken.
"""

import atexit
import os
import signal
import sys
import tempfile
from pathlib import Path

import tenants
from tenants import Server, lone


class Daemon(Server):
    """qemu-storage-daemon, with exports by number: a file, and its ceiling."""

    def __init__(self, exports):
        self.dir = tempfile.TemporaryDirectory(prefix="fairlift-tenants-")
        self.sock, self.log = f"{self.dir.name}/s", f"{self.dir.name}/log"
        command = ["qemu-storage-daemon", "--nbd-server", f"addr.type=unix,addr.path={self.sock},max-connections=64"]
        for i, (file, iops) in exports.items():
            command += ["--object", f"throttle-group,id=g{i},x-iops-total={round(iops)}"]
            command += ["--blockdev", f"driver=file,node-name=f{i},filename={file},aio=native,cache.direct=on"]
            command += ["--blockdev", f"driver=throttle,node-name=d{i},throttle-group=g{i},file=f{i}"]
            command += ["--export", f"type=nbd,id=e{i},name=t{i},node-name=d{i},writable=on"]
        self.start(command)


class ThrottleGroups:
    """A ceiling for each tenant, in one daemon or in a daemon each."""

    def __init__(self, a, scheduler, situation, files, entitled):
        exports = dict(enumerate(zip(files, entitled)))
        self.daemons = [Daemon({i: one}) for i, one in exports.items()] if scheduler == "qsd,apart" else [Daemon(exports)]

    def load(self, a, number, load, *more):
        return self.daemons[number % len(self.daemons)].load(a, number, load, *more)

    def end(self):
        for daemon in self.daemons:
            daemon.end()


class LinuxBfq:
    """A server for each tenant, in a cgroup of its own, on a disk with the kernel's bfq."""

    SCHEDULER = "bfq"

    def __init__(self, a, scheduler, situation, files, entitled):
        self.v1 = Path("/sys/fs/cgroup/blkio").exists()
        above = Path("/sys/fs/cgroup/blkio" if self.v1 else "/sys/fs/cgroup")
        self.disk = Disk(a.dir, self.SCHEDULER, scheduler)
        self.groups, self.servers = [], []
        atexit.register(self.end)
        for i, (tenant, file) in enumerate(zip(situation.tenants, files)):
            group = above / f"fairlift-tenants-{os.getpid()}-{i}"
            group.mkdir()
            self.groups.append(group)
            self.entitle(group, tenant.weight, entitled[i])
            self.servers.append(self.inside(group, a, lone(tenant.load), file))

    def entitle(self, group, weight, _iops):
        (group / ("blkio.bfq.weight" if self.v1 else "io.bfq.weight")).write_text(str(weight))

    def inside(self, group, a, situation, file):
        """A server whose threads are all in the cgroup: this process enters it, starts the server, and leaves again."""
        procs = group / "cgroup.procs"
        before = group.parent / "cgroup.procs"
        procs.write_text(str(os.getpid()))
        try:
            return Server(a, "none", situation, [file], "--workers", "1")
        finally:
            before.write_text(str(os.getpid()))

    def load(self, a, number, load, *more):
        return self.servers[number].load(a, 0, load, *more)

    def end(self):
        atexit.unregister(self.end)
        for server in self.servers:
            server.end()
        for group in self.groups:
            group.rmdir()
        self.disk.restore()


class LinuxMax(LinuxBfq):
    """The same, with ceilings in place of weights."""

    SCHEDULER = "none"

    def entitle(self, group, _weight, iops):
        if self.v1:
            for way in ("read", "write"):
                (group / f"blkio.throttle.{way}_iops_device").write_text(f"{self.disk.number} {round(iops)}")
        else:
            (group / "io.max").write_text(f"{self.disk.number} riops={round(iops)} wiops={round(iops)}")


class Disk:
    """The whole disk below a folder, under a scheduler of the kernel until restored."""

    def __init__(self, folder, name, scheduler):
        device = os.stat(folder).st_dev
        at = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve()
        whole = at if (at / "queue").exists() else at.parent
        self.number, queue = (whole / "dev").read_text().strip(), whole / "queue"
        self.scheduler = queue / "scheduler"
        said = self.scheduler.read_text()
        self.before = said[said.index("[") + 1:said.index("]")]
        atexit.register(self.restore)
        self.scheduler.write_text(name)
        for knob in scheduler.split(",")[1:]:
            key, value = knob.split("=")
            (queue / "iosched" / key).write_text(value)

    def restore(self):
        self.scheduler.write_text(self.before)
        atexit.unregister(self.restore)


PEERS = {"qsd": ThrottleGroups, "linux-bfq": LinuxBfq, "linux-max": LinuxMax}


if __name__ == "__main__":
    # What atexit has to put back is put back also if the run is ended from outside.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    tenants.SERVERS |= PEERS
    tenants.main()
