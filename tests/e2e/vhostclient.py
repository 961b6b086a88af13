"""A vhost-user front-end in Python: what QEMU is to a server, and the guest's driver as well. For tests of what no guest would do.

    with FrontEnd(socket) as disk:
        disk.write(0, b"x" * 512)
        assert disk.read(0, 512) == b"x" * 512

Each ring has its descriptors, both its rings and room for data in one region of memory, which is shared with the server.
"""

import ctypes
import mmap
import os
import select
import socket
import struct
import time

GET_FEATURES, SET_FEATURES, SET_OWNER, RESET_OWNER, SET_MEM_TABLE = 1, 2, 3, 4, 5
SET_VRING_NUM, SET_VRING_ADDR, SET_VRING_BASE, GET_VRING_BASE, SET_VRING_KICK, SET_VRING_CALL = 8, 9, 10, 11, 12, 13
GET_PROTOCOL_FEATURES, SET_PROTOCOL_FEATURES, GET_QUEUE_NUM, SET_VRING_ENABLE = 15, 16, 17, 18
SET_BACKEND_REQ_FD, GET_CONFIG, SET_CONFIG, GET_INFLIGHT_FD, SET_INFLIGHT_FD = 21, 24, 25, 31, 32
MQ, REPLY_ACK, BACKEND_REQ, CONFIG, INFLIGHT = 1 << 0, 1 << 3, 1 << 5, 1 << 9, 1 << 12
RO, FLUSH, MANY, CONFIG_WCE, DISCARD, ZEROES = 1 << 5, 1 << 9, 1 << 12, 1 << 11, 1 << 13, 1 << 14
INDIRECT, EVENT_INDEX, VERSION_1, PROTOCOL = 1 << 28, 1 << 29, 1 << 32, 1 << 30
IN, OUT, FLUSH_IT, GET_ID, DISCARD_IT, ZERO_IT = 0, 1, 4, 8, 11, 13
NEXT, WRITE, TABLE = 1, 2, 4
OK, FAILED, UNSUPPORTED = 0, 1, 2

GUEST = 0x10_0000          # where the guest's memory starts, by its own addresses
USER = 0x7000_0000_0000    # and by its monitor's


class Gone(Exception):
    """The server has closed the connection."""


class FrontEnd:
    def __init__(self, path, rings=1, size=64, without=0, start=True, kept=None, span=1 << 20):
        """`kept`: a front-end whose server is gone, with its memory, its rings and its table of requests under way."""
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(60)
        self.socket.connect(os.fspath(path))
        self.size, self.span = size, span
        self.memory_fd = kept.memory_fd if kept else os.memfd_create("guest")
        if not kept:
            os.ftruncate(self.memory_fd, rings * span)
        self.memory = kept.memory if kept else mmap.mmap(self.memory_fd, rings * span)
        self.inflight = kept.inflight if kept else None
        self.rings = []
        if start:
            self.negotiate(without)
            self.share()
            if kept:
                self.ask(SET_INFLIGHT_FD, self.inflight[1], [self.inflight[0]])
            self.rings = [Ring(self, n, kept.rings[n] if kept else None) for n in range(rings)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    # ---- messages ----

    def send(self, code, payload=b"", descriptors=(), flags=1):
        try:
            socket.send_fds(self.socket, [struct.pack("=III", code, flags, len(payload)) + payload], list(descriptors))
        except OSError as error:
            raise Gone() from error

    def receive(self, descriptors=0):
        data, fds = b"", []
        while len(data) < 12 or len(data) < 12 + struct.unpack("=I", data[8:12])[0]:
            try:
                more, got, _, _ = socket.recv_fds(self.socket, 4096, descriptors)
            except ConnectionError as error:
                raise Gone() from error
            if not more:
                raise Gone()
            data, fds = data + more, fds + got
        return data[12:], fds

    def ask(self, code, payload=b"", descriptors=()):
        """A request without an answer of its own, which the server acknowledges: 0 is success."""
        self.send(code, payload, descriptors, flags=9)
        (answer,) = struct.unpack("=Q", self.receive()[0])
        return answer

    def get(self, code, payload=b""):
        self.send(code, payload)
        return self.receive()[0]

    def number(self, code):
        return struct.unpack("=Q", self.get(code))[0]

    def is_closed(self, seconds=60):
        """Whether the server closes the connection."""
        self.socket.settimeout(seconds)
        try:
            while self.socket.recv(4096):
                pass
            return True
        except TimeoutError:
            return False
        except ConnectionError:
            return True

    # ---- setting up ----

    def negotiate(self, without=0):
        self.offered = self.number(GET_FEATURES)
        self.features = self.offered & ~without
        self.protocol = self.number(GET_PROTOCOL_FEATURES)
        self.send(SET_PROTOCOL_FEATURES, struct.pack("=Q", self.protocol))
        self.send(SET_OWNER)
        self.send(SET_FEATURES, struct.pack("=Q", self.features))

    def share(self):
        region = struct.pack("=IIQQQQ", 1, 0, GUEST, len(self.memory), USER, 0)
        assert self.ask(SET_MEM_TABLE, region, [self.memory_fd]) == 0

    def get_inflight(self, rings, size):
        self.send(GET_INFLIGHT_FD, struct.pack("=QQHHI", 0, 0, rings, size, 0))
        payload, (fd,) = self.receive(1)
        self.inflight = (fd, payload)
        assert self.ask(SET_INFLIGHT_FD, payload, [fd]) == 0

    def listen(self):
        """Makes the socket by which the server speaks first, and returns our end."""
        ours, theirs = socket.socketpair()
        assert self.ask(SET_BACKEND_REQ_FD, b"", [theirs.fileno()]) == 0
        theirs.close()
        ours.settimeout(60)
        return ours

    def config(self, offset=0, size=60):
        return self.get(GET_CONFIG, struct.pack("=III", offset, size, 0) + bytes(size))[12:]

    # ---- requests on the first ring ----

    def read(self, sector, length):
        return self.rings[0].request(IN, sector, length=length)

    def write(self, sector, data):
        return self.rings[0].request(OUT, sector, data)


class Ring:
    """A ring as its driver sees it. A request takes three descriptors, and 16 KiB of the ring's memory."""

    SLOT = 16 << 10

    def __init__(self, front, number, kept=None, start=True):
        self.front, self.number, self.size = front, number, front.size
        self.base = number * front.span
        self.available, self.used = self.base + 16 * self.size, self.base + 16 * self.size + 4096
        self.data = self.base + 64 * 1024
        self.next, self.seen = (kept.next, kept.seen) if kept else (0, 0)
        self.free = list(kept.free) if kept else list(range(min(self.size // 3, (front.span - (64 << 10)) // self.SLOT)))
        self.kick_fd, self.call_fd = (os.eventfd(0, os.EFD_NONBLOCK) for _ in range(2))
        if start:
            self.start(kept.next if kept else 0)

    def start(self, base=0):
        front, n = self.front, self.number
        front.send(SET_VRING_NUM, struct.pack("=II", n, self.size))
        front.send(SET_VRING_BASE, struct.pack("=II", n, base))
        addresses = [USER + at for at in (self.base, self.used, self.available)]
        front.send(SET_VRING_ADDR, struct.pack("=IIQQQQ", n, 0, *addresses, 0))
        front.send(SET_VRING_CALL, struct.pack("=Q", n), [self.call_fd])
        front.send(SET_VRING_KICK, struct.pack("=Q", n), [self.kick_fd])
        front.send(SET_VRING_ENABLE, struct.pack("=II", n, 1))

    def stop(self):
        """Stops the ring; returns where the server was."""
        return struct.unpack("=II", self.front.get(GET_VRING_BASE, struct.pack("=II", self.number, 0)))[1]

    # ---- the guest's memory ----

    def put(self, at, data):
        self.front.memory[at:at + len(data)] = data

    def take(self, at, length):
        return self.front.memory[at:at + length]

    def word(self, at):
        """An index, which the server may read and write at the same time: all of it or nothing."""
        return ctypes.c_uint16.from_buffer(self.front.memory, at)

    def describe(self, index, at, length, flags=0, following=0, table=None):
        """Writes a descriptor; `at` is a place in the shared memory."""
        self.put((self.base if table is None else table) + 16 * index, struct.pack("<QIHH", GUEST + at, length, flags, following))

    def offer(self, *heads):
        for head in heads:
            self.put(self.available + 4 + 2 * (self.next % self.size), struct.pack("<H", head))
            self.next = (self.next + 1) % 65536
        self.word(self.available + 2).value = self.next

    def kick(self):
        os.eventfd_write(self.kick_fd, 1)

    def ends(self):
        """(head, bytes written) of what has ended since the last call."""
        index = self.word(self.used + 2).value
        found = []
        while self.seen != index:
            found.append(struct.unpack("<II", self.take(self.used + 4 + 8 * (self.seen % self.size), 8)))
            self.seen = (self.seen + 1) % 65536
            self.word(self.available + 4 + 2 * self.size).value = self.seen  # used_event: tell me of the next
        return found

    def wait(self, seconds=60):
        """What has ended, at least one."""
        until = time.monotonic() + seconds
        while not (found := self.ends()):
            if time.monotonic() > until:
                raise TimeoutError(f"nothing ends on ring {self.number}")
            if select.select([self.call_fd], [], [], 0.05)[0]:
                os.eventfd_read(self.call_fd)
        return found

    # ---- requests ----

    def prepare(self, kind, sector, data=b"", length=0):
        """Writes a request; returns its slot. Its head is three times that."""
        slot = self.free.pop()
        head, at = 3 * slot, self.data + slot * self.SLOT
        self.put(at, struct.pack("<IIQ", kind, 0, sector))
        self.put(at + 16, b"\xff")
        self.describe(head, at, 16, NEXT, head + 1 if data or length else head + 2)
        if data or length:
            self.put(at + 512, data or bytes(length))
            self.describe(head + 1, at + 512, len(data) or length, NEXT | (0 if data else WRITE), head + 2)
        self.describe(head + 2, at + 16, 1, WRITE)
        return slot

    def submit(self, *request, **options):
        slot = self.prepare(*request, **options)
        self.offer(3 * slot)
        return slot

    def finish(self, slot, length=0):
        """The status of a request that has ended, and what was read."""
        at = self.data + slot * self.SLOT
        self.free.append(slot)
        return self.take(at + 16, 1)[0], self.take(at + 512, length)

    def request(self, kind, sector=0, data=b"", length=0):
        """A request from beginning to end: what was read; None where it failed."""
        slot = self.submit(kind, sector, data, length)
        self.kick()
        ((head, written),) = self.wait()
        assert head == 3 * slot, f"request {3 * slot} was asked, and {head} ended"
        self.status, found = self.finish(slot, length)
        assert written == (length + 1 if self.status == OK and length else 1) or kind == GET_ID, f"{written} bytes written"
        return found if self.status == OK else None
