"""A small initramfs: busybox, some of a kernel's modules, some of the host's programs. Needs no root.

Modules are stored with those that they depend on, in an order in which they can be loaded: `modload NAME` in the guest.
"""

import glob
import gzip
import lzma
import os
import re
import shutil
import stat
import subprocess


def build(out, kernel, modules, programs, files):
    """Writes the initramfs `out`. `kernel`: an unpacked Debian kernel package; `programs`: by name or path; `files`: {path in the guest: path here}."""
    entries = {}

    def directory(path):
        if path and path not in entries:
            directory(os.path.dirname(path))
            entries[path] = (stat.S_IFDIR | 0o755, b"")

    def file(path, data, mode=0o755):
        path = path.lstrip("/")
        directory(os.path.dirname(path))
        entries[path] = (stat.S_IFREG | mode, data)

    for path in "proc sys dev tmp run mnt etc bin sbin usr/bin usr/sbin lib lib64".split():
        directory(path)
    busybox = shutil.which("busybox")
    file("bin/busybox", read(busybox))
    for name in subprocess.check_output([busybox, "--list"], text=True).split():
        if name != "busybox":
            entries[f"bin/{name}"] = (stat.S_IFLNK | 0o777, b"/bin/busybox")
    for name, dependencies, data in resolve(kernel, modules):
        file(f"modules/{name}.ko", data, 0o644)
        file(f"modules/{name}.deps", " ".join(dependencies).encode(), 0o644)
    file("bin/modload", MODLOAD)
    for program in programs:
        path = shutil.which(program)
        program = os.path.basename(program)
        # A busybox applet of the same name would hide it.
        entries.pop(f"bin/{program}", None)
        file(f"usr/sbin/{program}", read(path))
        for library in re.findall(r"(/\S+) \(0x", subprocess.run(["ldd", path], capture_output=True, text=True).stdout):
            file(library, read(library))
    for inside, here in files.items():
        file(inside, read(here))
    with gzip.GzipFile(out, "wb", compresslevel=1, mtime=0) as archive:
        for number, (name, (mode, data)) in enumerate([*sorted(entries.items()), ("TRAILER!!!", (0, b""))], 1):
            name = name.encode() + b"\0"
            fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name), 0)
            archive.write(b"070701" + b"".join(b"%08x" % field for field in fields) + name)
            archive.write(b"\0" * (-(110 + len(name)) % 4) + data + b"\0" * (-len(data) % 4))


MODLOAD = b"""#!/bin/sh
for d in $(cat /modules/$1.deps) $1; do [ -d /sys/module/$d ] || insmod /modules/$d.ko || exit 1; done
"""


def resolve(kernel, wanted):
    """(name, what to load before it, data) of the modules and all that they need; those built in are left out."""
    (base,) = glob.glob(f"{kernel}/lib/modules/*")
    name_of = lambda path: os.path.basename(path).split(".ko")[0].replace("-", "_")
    places = {name_of(path): path for path in glob.glob(f"{base}/kernel/**/*.ko*", recursive=True)}
    with open(f"{base}/modules.builtin") as lines:
        builtin = {name_of(line.strip()) for line in lines}
    found = {}

    def visit(name):
        if name in found or name in builtin:
            return
        data = read(places[name])
        if places[name].endswith(".xz"):
            data = lzma.decompress(data)
        needs = re.search(rb"\0depends=([^\0]*)\0", data)
        names = needs[1].decode().split(",") if needs and needs[1] else []
        names += [n for soft in re.findall(rb"\0softdep=pre: ([^\0]*)\0", data) for n in soft.decode().split()]
        names = [n.replace("-", "_") for n in names]
        names = [n for n in names if n in places and n not in builtin]
        for need in names:
            visit(need)
        all_needed = [n for need in names for n in (*found[need][0], need)]
        found[name] = (list(dict.fromkeys(all_needed)), data)

    for name in wanted:
        visit(name)
    return [(name, dependencies, data) for name, (dependencies, data) in found.items()]


def read(path):
    with open(path, "rb") as file:
        return file.read()
