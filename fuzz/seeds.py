#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets: corpus/nbd/* and corpus/nbd_client/*, one conversation each, corpus/virtio/*, one chain or message
each, corpus/ublk/*, descriptors, corpus/overlay/*, headers of tops, and what those of the command read. Run it again after changing it."""

import json
import pathlib
import struct

nbd = pathlib.Path(__file__).parent / "corpus" / "nbd"
nbd.mkdir(parents=True, exist_ok=True)

LIST, STARTTLS, INFO, GO, STRUCTURED, LIST_META, SET_META, EXTENDED = 3, 5, 6, 7, 8, 9, 10, 11


def option(number, data=b""):
    return b"IHAVEOPT" + struct.pack(">II", number, len(data)) + data


def go(name, *wanted):
    return struct.pack(">I", len(name)) + name + struct.pack(f">H{len(wanted)}H", len(wanted), *wanted)


def contexts(name, *queries):
    data = struct.pack(">I", len(name)) + name + struct.pack(">I", len(queries))
    return data + b"".join(struct.pack(">I", len(query)) + query for query in queries)


def request(command, offset, length, flags=0):
    return struct.pack(">IHHQQI", 0x25609513, flags, command, 7, offset, length)


def extended(command, offset, length, flags=0):
    return struct.pack(">IHHQQQ", 0x21E41C71, flags, command, 7, offset, length)


def seed(name, setting, *parts):
    """`setting`: see the head of fuzz_targets/nbd.rs. The client's flags come first."""
    (nbd / name).write_bytes(bytes([setting]) + struct.pack(">I", 3) + b"".join(parts))


WHOLE, ALL = 7 << 4, 3 << 2
seed("export-name", WHOLE | ALL, option(1, b"disk"), request(0, 0, 4096), request(2, 0, 0))
seed("list-info-abort", WHOLE | ALL, option(LIST), option(INFO, go(b"disk", 1, 2, 3)), option(2))
seed("structured", ALL, option(STRUCTURED), option(LIST_META, contexts(b"disk", b"base:")),
     option(SET_META, contexts(b"disk", b"base:allocation")), option(GO, go(b"disk", 3)),
     request(1, 512, 4) + b"data", request(7, 0, 1 << 20, 8), request(6, 0, 4096, 1))
seed("extended", WHOLE | ALL, option(EXTENDED), option(STRUCTURED), option(SET_META, contexts(b"", b"base:allocation")),
     option(GO, go(b"")), extended(1, 0, 4, 0x20) + b"data", extended(6, 0, 1 << 40), extended(7, 0, 1 << 40))
seed("bitmap", WHOLE | ALL, option(STRUCTURED), option(LIST_META, contexts(b"disk", b"qemu:")),
     option(SET_META, contexts(b"disk", b"qemu:dirty-bitmap:top", b"base:allocation")), option(GO, go(b"disk")), request(7, 0, 1 << 20))
seed("tls", WHOLE | 1 << 7 | 2 | ALL, option(LIST), option(STARTTLS), option(STRUCTURED), option(GO, go(b"disk")),
     request(3, 0, 0))
seed("tls-injected", WHOLE | 1 | ALL, option(STRUCTURED), option(STARTTLS), option(GO, go(b"disk")))

client = pathlib.Path(__file__).parent / "corpus" / "nbd_client"
client.mkdir(parents=True, exist_ok=True)


def reply(number, kind, data=b""):
    return struct.pack(">QIII", 0x3E889045565A9, number, kind, len(data)) + data


def chunk(asked, slot, kind, data=b"", done=1):
    """An answer to the request that the target asked as the so many-th, in such a slot."""
    return struct.pack(">IHHQI", 0x668E33EF, done, kind, asked << 16 | slot, len(data)) + data


HELLO = b"NBDMAGICIHAVEOPT" + struct.pack(">H", 3)
OFFER = reply(GO, 3, struct.pack(">HQH", 0, 1 << 20, 0x1ED)) + reply(GO, 3, struct.pack(">HIII", 3, 512, 4096, 1 << 25)) + reply(GO, 1)
NEGOTIATED = HELLO + reply(STRUCTURED, 1) + reply(SET_META, 4, struct.pack(">I", 5) + b"base:allocation") + reply(SET_META, 1) + OFFER
ANSWERS = (chunk(1, 0, 2, struct.pack(">QI", 8704, 512), 0) + chunk(2, 1, 0) + chunk(1, 0, 1, struct.pack(">Q", 8192) + b"x" * 512)
           + chunk(3, 2, 5, struct.pack(">IIIII", 5, 4096, 0, 9000, 3)) + chunk(4, 3, 0x8001, struct.pack(">IH", 5, 2) + b"no"))
for name, setting, said in [
    ("structured", 7, NEGOTIATED + ANSWERS),
    ("pieces", 1, NEGOTIATED + ANSWERS),
    ("answers", 0x8F, ANSWERS),
    ("tls", 23, HELLO + reply(STARTTLS, 1)),
    ("old", 7, HELLO + reply(STRUCTURED, 1 << 31 | 1) + reply(GO, 1 << 31 | 1) + struct.pack(">QH", 1 << 20, 1)
     + struct.pack(">IIQ", 0x67446698, 0, 2 << 16 | 1) + struct.pack(">IIQ", 0x67446698, 0, 4 << 16 | 3) + b"y" * 512),
]:
    (client / name).write_bytes(bytes([setting]) + said)
seed("unknown-and-too-big", ALL, option(77, b"x"), b"IHAVEOPT" + struct.pack(">II", INFO, 70000))


# ---- virtio: see the head of fuzz_targets/virtio.rs

virtio = nbd.parent / "virtio"
virtio.mkdir(parents=True, exist_ok=True)
NEXT, WRITE, TABLE = 1, 2, 4
HEADER, DATA, STATUS, ELSEWHERE = 0x400, 0x1000, 0x500, 0x600


def chain(name, kind, *descriptors, data=b"", elsewhere=(), setting=0):
    memory = bytearray(0x700)
    for start, table in (0, descriptors), (ELSEWHERE, elsewhere):
        for index, (at, length, flags, following) in enumerate(table):
            memory[start + 16 * index:start + 16 * index + 16] = struct.pack("<QIHH", at, length, flags, following)
    memory[HEADER:HEADER + 16] = struct.pack("<IIQ", kind, 0, 8)
    memory[0x420:0x420 + len(data)] = data
    (virtio / name).write_bytes(bytes([setting, 0, 0, 0, 0, 4]) + memory)


def message(name, code, payload, descriptors=0):
    (virtio / name).write_bytes(bytes([0, code, 1, descriptors, 0, 4]) + payload)


status = (STATUS, 1, WRITE, 0)
chain("read", 0, (HEADER, 16, NEXT, 1), (DATA, 4096, NEXT | WRITE, 2), status)
chain("write", 1, (HEADER, 16, NEXT, 1), (DATA, 4096, NEXT, 2), status)
chain("flush", 4, (HEADER, 16, NEXT, 1), status)
chain("discard", 11, (HEADER, 16, NEXT, 1), (0x420, 16, NEXT, 2), status, data=struct.pack("<QII", 16, 8, 0))
chain("indirect", 0, (ELSEWHERE, 48, TABLE, 0), elsewhere=[(HEADER, 16, NEXT, 1), (DATA, 4096, NEXT | WRITE, 2), status])
chain("circle", 0, (HEADER, 16, NEXT, 1), (DATA, 512, NEXT | WRITE, 1))
message("memory", 5, struct.pack("=IIQQQQ", 1, 0, 0, 1 << 20, 1 << 30, 0), 1)
message("address", 9, struct.pack("=IIQQQQ", 0, 0, 0, 8192, 4096, 0))
message("kick", 12, struct.pack("=Q", 3), 1)
message("config", 24, struct.pack("=III", 0, 60, 0) + bytes(60))
message("inflight", 32, struct.pack("=QQHHI", 4096, 0, 4, 128, 0), 1)
message("backend-requests", 21, b"", 1)


# ---- ublk: see the head of fuzz_targets/ublk.rs

ublk = nbd.parent / "ublk"
ublk.mkdir(parents=True, exist_ok=True)
FUA, NO_UNMAP = 1 << 13, 1 << 15


def descriptors(name, *all, setting=0):
    (ublk / name).write_bytes(bytes([setting]) + b"".join(struct.pack("=IIQQ", kind, sectors, start, 0) for kind, sectors, start in all))


descriptors("each", (0, 8, 16), (1, 8, 0), (1 | FUA, 2048, 8), (2, 0, 0), (3, 1 << 21, 0), (5 | NO_UNMAP, 8, 8))
descriptors("at-the-end", (0, 8, (1 << 21) - 8), (0, 8, (1 << 21) - 7), (1, 8, (1 << 64) - 1))
descriptors("blocks", (0, 1, 0), (1, 8, 4), (3, 8, 8), setting=3 << 4)
descriptors("read-only", (1, 8, 0), (3, 8, 0), (5, 8, 0), setting=7)


# ---- config: two files, parted by %%

config = nbd.parent / "config"
config.mkdir(parents=True, exist_ok=True)
example = (nbd.parent.parent.parent / "cli/src/config/example.toml").read_text()
SERVED = """\
[disk.ssd]
scheduler = "bfq"
set = { slice_idle = "4ms" }
[group."/tenants/alice"]
weight = 300
max = "rbps=10m riops=5000"
[export.alice]
backing = "null:1g"
disk = "ssd"
group = "/tenants/alice"
[export.bob]
backing = "mem:1g"
disk = "ssd"
size = "1m"
"""
for name, text in [
    ("example", example),
    ("served", SERVED),
    ("another-scheduler", SERVED + "\n%%\n" + SERVED.replace("bfq", "fair").replace("set =", "#")),
    ("another-tenant", SERVED + "\n%%\n" + SERVED.replace("alice", "carol")),
    ("moved", SERVED + "\n%%\n" + SERVED.replace("ssd", "nvme").replace("/tenants/alice", "/alice")),
    ("grown", SERVED + "\n%%\n" + SERVED.replace('"1m"', '"2m"').replace("300", "70")),
    ("lines", "[disk.ssd]\nscheduler = \"bfq\"\nset = { \"slice\\nidle\" = \"4ms\" }\n"),
    ("broken", "[disk.a]\ndepth = \"many\"\nschedular = \"bfq\"\n[export.\"a\\u001b[2J\"]\nbacking = [1, {é = 2}]\n[export.a\n"),
]:
    (config / name).write_text(text)


# ---- control: the body of a transaction

control = nbd.parent / "control"
control.mkdir(parents=True, exist_ok=True)
for name, changes in [
    ("groups", [{"add": "group", "name": "/tenants/carol", "weight": 200, "max": "rbps=1m"}, {"set": "group", "name": "/tenants/carol", "min": "wiops=5", "latency": "2ms"},
                {"remove": "group", "name": "/tenants/carol"}]),
    ("exports", [{"add": "export", "name": "carol", "backing": "null:2g", "disk": "ssd", "group": "/tenants/carol", "ioprio": "be/3"},
                 {"set": "export", "name": "bob", "group": "/", "description": "what é is", "size": "2g"}, {"remove": "export", "name": "alice", "now": True}]),
    ("disks", [{"add": "disk", "name": "hdd", "scheduler": "cfq", "tunables": {"group_idle": "4ms"}, "depth": "auto", "io_timeout": "3s"},
               {"set": "disk", "name": "ssd", "scheduler": "fair", "depth": 7, "nr_requests": 4096}, {"set": "disk", "name": "nvme", "scheduler": "bfq", "slice_idle": "auto"},
               {"remove": "disk", "name": "hdd"}]),
    ("listeners", [{"add": "listener", "name": "unix:/run/a.sock"}, {"remove": "listener", "name": "unix:fairlift.sock"}]),
    ("wrong", [{"set": "group", "name": "/tenats\n", "weight": 1e99}, {"add": "export", "remove": []}, 7]),
]:
    (control / name).write_text(json.dumps(changes))


# ---- trace: records of blktrace

trace = nbd.parent / "trace"
trace.mkdir(parents=True, exist_ok=True)


def record(action, time=1000, sector=8, length=4096, pid=3, disk=1, cpu=0, pdu=b""):
    return struct.pack("<IIQQIIIIIHH", 0x65617407, 1, time, sector, length, action, pid, 240 << 20 | disk, cpu, 0, len(pdu)) + pdu


NOTIFY, READ_OF, WRITE_OF = 1 << 26, 1 << 16, 1 << 17
life = b"".join(record(READ_OF | kind, 1000 * at) for at, kind in enumerate((1, 4, 7, 8)))
(trace / "life").write_bytes(record(NOTIFY, pdu=b"/tenants/alice") + record(NOTIFY | 1, pdu=bytes(8)) + life + record(NOTIFY | 2, pdu=b"lost=3"))
(trace / "twice").write_bytes(record(WRITE_OF | 7) + record(WRITE_OF | 7, 5) + record(WRITE_OF | 8, 9) + record(WRITE_OF | 8, 2) + record(WRITE_OF | 9)[:60])
(trace / "names").write_bytes(record(NOTIFY, pid=0, pdu=b"\xff\x00\xfe") + record(NOTIFY | 2, pdu=b"lost=99999999999999999999"))


# ---- overlay: headers and pages of a top

overlay = nbd.parent / "overlay"
overlay.mkdir(parents=True, exist_ok=True)
TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    TABLE.append(byte)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def header(sequence, size=1 << 30, clean=0, base=b"/images/base.img", top=False):
    pages = -(-(-(-size // 4096)) // 16128)
    data = (8192 + 8192 * pages + (1 << 20) - 1) >> 20 << 20
    head = struct.pack("<8sIIQQ16sQQII", b"FLoverly", 1, 4096, sequence, size, bytes(16), 1, data, top, len(base))
    head += struct.pack("<QQQ16sQI", size, 1700000000, 5, bytes(16), 2, clean)
    head = (head.ljust(160, b"\0") + base).ljust(4092, b"\0")
    return head + struct.pack("<I", crc32c(head))


def page(sequence, index=0, words=b"\x49\x12"):
    head = struct.pack("<8sQQ16s", b"FLmap", index, sequence, bytes(16)).ljust(60, b"\0")
    words = words.ljust(4032, b"\0")
    return head + struct.pack("<I", crc32c(head + words)) + words


(overlay / "whole").write_bytes(header(1) + header(2, clean=1) + page(1) + page(2))
(overlay / "over-a-top").write_bytes(header(1, size=70 << 20, top=True) + bytes(4096) + page(1, index=1) + bytes(4096))
(overlay / "torn").write_bytes(header(1) + header(2)[:512] + bytes(3584) + page(3) + page(2)[:1024] + bytes(3072))
(overlay / "sealed").write_bytes(b"\1\1\7" + bytes(8189) + bytes(64) + b"\x66" * 4032 + page(2) + b"\0")
