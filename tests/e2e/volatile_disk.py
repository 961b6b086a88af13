#!/usr/bin/env python3
"""A disk with a volatile write cache, as an NBD server: volatile_disk.py SOCKET FILE SEED

Below `nbdfuse` it stands in for a device that a server's file lies on. What it was told since its last FLUSH is in its
cache only. SIGTERM is the power cut: of each sector still in the cache, chance decides which version, of those since the
flush, has reached the disk; then FILE holds what is left. It prints a line when it listens, and at the end how many
flushes it has done.

The environment names files by which a test turns faults on and off:
    FAIL_FLUSH   while it exists, flushes fail; if it holds a number, only that flush (the first is 1)
    HANG_FLUSH   while it exists, flushes are not answered
    TOLD         the disk writes there how many flushes it was told, answered or not
NO_FLUSH=1: it says that it has no flush.
"""

import contextlib
import os
import random
import signal
import socket
import struct
import sys
import threading
import time

SECTOR = 512


class Disk:
    def __init__(self, path, seed):
        self.path, self.random = path, random.Random(seed)
        with open(path, "rb") as file:
            self.stable = bytearray(file.read())
        self.now = bytearray(self.stable)
        self.cache = []  # (offset, bytes), oldest first
        self.flushed = 0  # how many writes are durable
        self.flushes = self.told = 0
        self.lock = threading.Lock()

    def tell(self):
        """It was told to flush; the answer is which flush this is."""
        with self.lock:
            self.told += 1
        if "TOLD" in os.environ:
            with open(os.environ["TOLD"] + ".new", "w") as file:
                file.write(str(self.told))
            os.rename(os.environ["TOLD"] + ".new", os.environ["TOLD"])
        return self.told

    def fails(self, number):
        try:
            with open(os.environ.get("FAIL_FLUSH", "")) as file:
                which = file.read()
        except FileNotFoundError:
            return False
        return not which or int(which) == number

    def write(self, offset, data):
        with self.lock:
            self.now[offset:offset + len(data)] = data
            self.cache.append((offset, data))

    def written(self):
        """How many writes there were."""
        return self.flushed + len(self.cache)

    def flush(self, covered=None):
        """Makes durable what was written: all of it, or the first so many writes."""
        with self.lock:
            count = (self.written() if covered is None else covered) - self.flushed
            for offset, data in self.cache[:max(count, 0)]:
                self.stable[offset:offset + len(data)] = data
            del self.cache[:max(count, 0)]
            self.flushed += max(count, 0)
            self.flushes += 1

    def power_cut(self, *_):
        for offset, data in self.cache:
            for at in range(0, len(data), SECTOR):
                if self.random.random() < 0.5:
                    self.stable[offset + at:offset + at + SECTOR] = data[at:at + SECTOR]
        with open(self.path, "r+b") as file:
            file.write(self.stable)
        print(f"flushes {self.flushes}", flush=True)
        os._exit(0)


def serve(disk, sock):
    def receive(length):
        data = bytearray()
        while len(data) < length:
            piece = sock.recv(length - len(data))
            if not piece:
                raise EOFError
            data += piece
        return bytes(data)

    flags = 1 if os.environ.get("NO_FLUSH") else 1 | 1 << 2 | 1 << 3  # flags, flush, FUA
    flags |= 1 << 8  # one flush is for all connections: nbdfuse then uses several, and no request waits behind a flush
    sending = threading.Lock()
    hang = os.environ.get("HANG_FLUSH", "")

    def reply(cookie, error, data=b""):
        with sending:
            sock.sendall(struct.pack(">IIQ", 0x67446698, error, cookie) + data)

    def flush_later(cookie, number, covered):
        while os.path.exists(hang):
            time.sleep(0.01)
        failed = disk.fails(number)
        if not failed:
            disk.flush(covered)
        reply(cookie, 5 if failed else 0)

    sock.sendall(struct.pack(">QQH", 0x4E42444D41474943, 0x49484156454F5054, 3))
    receive(4)
    while True:
        _, option, length = struct.unpack(">QII", receive(16))
        receive(length)

        def answer(kind, data=b""):
            sock.sendall(struct.pack(">QIII", 0x3E889045565A9, option, kind, len(data)) + data)

        if option in (6, 7):
            answer(3, struct.pack(">HQH", 0, len(disk.now), flags))
            answer(1)
            if option == 7:
                break
        elif option == 2:
            answer(1)
            raise EOFError
        else:
            answer(1 << 31 | 1)
    while True:
        _, command_flags, command, cookie, offset, length = struct.unpack(">IHHQQI", receive(28))
        data, error = b"", 0
        if command == 0:
            data = bytes(disk.now[offset:offset + length])
        elif command == 1:
            disk.write(offset, receive(length))
            if command_flags & 1:
                disk.flush()
        elif command == 2:
            raise EOFError
        elif command == 3:
            number = disk.tell()
            if os.path.exists(hang):
                threading.Thread(target=flush_later, args=(cookie, number, disk.written()), daemon=True).start()
                continue
            if disk.fails(number):
                error = 5
            else:
                disk.flush()
        reply(cookie, error, data)


def main():
    path, file, seed = sys.argv[1:]
    disk = Disk(file, seed)
    signal.signal(signal.SIGTERM, disk.power_cut)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path + ".new")
    listener.listen()
    os.rename(path + ".new", path)  # whoever sees it can connect
    print("listening", flush=True)

    def connection(sock):
        with contextlib.suppress(EOFError, OSError), sock:
            serve(disk, sock)

    while True:
        sock, _ = listener.accept()
        threading.Thread(target=connection, args=(sock,), daemon=True).start()


if __name__ == "__main__":
    main()
