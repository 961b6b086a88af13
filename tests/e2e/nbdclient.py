"""A small NBD client of our own: the honest one that knows what it wrote, and the hostile one.

`Client` does as a good client does. `Session` is the same in single steps, to be left at any point, and `Wire` only
sends and receives bytes. The words and numbers are those of the NBD protocol's document.
"""

import errno as errnos
import os
import select
import socket
import ssl
import struct
import time

MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC = 0x4E42444D41474943, 0x49484156454F5054, 0x3E889045565A9
REQUEST_MAGIC, SIMPLE_MAGIC, CHUNK_MAGIC = 0x25609513, 0x67446698, 0x668E33EF
LONG_REQUEST_MAGIC, LONG_REPLY_MAGIC = 0x21E41C71, 0x6E8A278C

FIXED_NEWSTYLE, NO_ZEROES = 1, 2
EXPORT_NAME, ABORT, LIST, STARTTLS, INFO, GO, STRUCTURED_REPLY, LIST_META, SET_META, EXTENDED_HEADERS = (
    1, 2, 3, 5, 6, 7, 8, 9, 10, 11)
ACK, REP_SERVER, REP_INFO, REP_META = 1, 2, 3, 4
ERR = 1 << 31
ERR_UNSUP, ERR_POLICY, ERR_INVALID, ERR_PLATFORM, ERR_TLS_REQD, ERR_UNKNOWN, ERR_SHUTDOWN, ERR_BLOCK_SIZE_REQD, ERR_TOO_BIG, ERR_EXT_HEADER_REQD = (
    ERR + n for n in range(1, 11))
INFO_EXPORT, INFO_NAME, INFO_DESCRIPTION, INFO_BLOCK_SIZE = range(4)

HAS_FLAGS, READ_ONLY, SEND_FLUSH, SEND_FUA, ROTATIONAL, SEND_TRIM, SEND_WRITE_ZEROES, SEND_DF, CAN_MULTI_CONN, SEND_RESIZE, SEND_CACHE, SEND_FAST_ZERO = (
    1 << n for n in range(12))
READ, WRITE, DISC, FLUSH, TRIM, CACHE, WRITE_ZEROES, BLOCK_STATUS = range(8)
FUA, NO_HOLE, DF, REQ_ONE, FAST_ZERO, PAYLOAD_LEN = (1 << n for n in range(6))
DONE = 1
NONE, OFFSET_DATA, OFFSET_HOLE, STATUS_CHUNK, STATUS_EXT_CHUNK = 0, 1, 2, 5, 6
ERROR_CHUNK, ERROR_OFFSET_CHUNK = 1 << 15 | 1, 1 << 15 | 2
HOLE, ZERO = 1, 2


class Closed(Exception):
    """The server has closed the connection."""


class Refused(Exception):
    """The server answered an option with an error."""

    def __init__(self, code, message):
        super().__init__(f"option refused with {code & ~ERR}: {message}")
        self.code, self.message = code, message


class NbdError(Exception):
    """The server answered a request with an error."""

    def __init__(self, errno, message=""):
        super().__init__(f"{errnos.errorcode.get(errno, errno)}{': ' + message if message else ''}")
        self.errno, self.message = errno, message


def dial(address, timeout=60):
    """Connects to a unix socket's path or a (host, port)."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.settimeout(timeout)
    try:
        sock.connect(address)
    except BaseException:
        sock.close()
        raise
    if family == socket.AF_INET:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


class Wire:
    """Bytes to and from a server."""

    def __init__(self, address, timeout=60):
        self.sock = dial(address, timeout)

    def send(self, *pieces):
        self.sock.sendall(b"".join(pieces))

    def receive(self, length):
        """Exactly so many bytes, or `Closed`."""
        pieces = bytearray()
        while len(pieces) < length:
            try:
                piece = self.sock.recv(min(length - len(pieces), 1 << 20))
            except (ConnectionResetError, BrokenPipeError, ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
                raise Closed(str(error)) from error
            if not piece:
                raise Closed(f"after {len(pieces)} of {length} bytes")
            pieces += piece
        return bytes(pieces)

    def wait_for_close(self, seconds):
        """Reads and forgets until the server closes; returns how many bytes came. `TimeoutError` if it does not."""
        count, end = 0, time.monotonic() + seconds
        while True:
            self.sock.settimeout(max(0.01, end - time.monotonic()))
            try:
                piece = self.sock.recv(1 << 16)
            except (ConnectionResetError, BrokenPipeError):
                return count
            if not piece:
                return count
            count += len(piece)
            if time.monotonic() > end:
                raise TimeoutError(f"the server still sends after {seconds} s")

    def readable(self, seconds):
        """Whether anything (or the end) arrives within so long."""
        return bool(select.select([self.sock], [], [], seconds)[0])

    def reset(self):
        """Closes at once, with a reset instead of a farewell where the socket knows one."""
        if self.sock.family == socket.AF_INET:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def close(self):
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Reply:
    """All of the answer to one request."""

    def __init__(self, cookie):
        self.cookie = cookie
        self.error, self.message = 0, ""
        self.pieces = []     # (offset, bytes), or (offset, length) of a hole
        self.extents = {}    # context id: [(length, flags)]
        self.chunks = []     # their types, in order

    def data(self, offset, length):
        out, covered = bytearray(length), 0
        for at, piece in self.pieces:
            size = piece if isinstance(piece, int) else len(piece)
            if at < offset or at + size > offset + length:
                raise AssertionError(f"a piece at {at}+{size} of a read of {offset}+{length}")
            if not isinstance(piece, int):
                out[at - offset:at - offset + size] = piece
            covered += size
        if covered != length:
            raise AssertionError(f"{covered} bytes answer a read of {length}")
        return bytes(out)


class Session(Wire):
    """The protocol in single steps."""

    def __init__(self, address, timeout=60):
        super().__init__(address, timeout)
        self.structured = self.extended = False
        self.size = self.flags = None
        self.block_sizes = self.description = self.name = None
        self.contexts = {}
        self.pending, self._partial, self._cookie = {}, {}, 0

    # -- negotiation

    def greet(self, flags=FIXED_NEWSTYLE | NO_ZEROES):
        """The greeting, and the client's flags in answer to it."""
        magic, option_magic, offered = struct.unpack(">QQH", self.receive(18))
        if (magic, option_magic) != (MAGIC, OPTION_MAGIC):
            raise AssertionError(f"the greeting is {magic:#x} {option_magic:#x}")
        self.offered, self.zeroes = offered, not flags & NO_ZEROES
        self.send(struct.pack(">I", flags))
        return self

    def send_option(self, option, payload=b"", length=None, magic=OPTION_MAGIC):
        self.send(struct.pack(">QII", magic, option, len(payload) if length is None else length), payload)

    def option_reply(self, option=None):
        magic, asked, kind, length = struct.unpack(">QIII", self.receive(20))
        if magic != OPTION_REPLY_MAGIC:
            raise AssertionError(f"an option reply's magic is {magic:#x}")
        if option is not None and asked != option:
            raise AssertionError(f"asked option {option}, got an answer to {asked}")
        return kind, self.receive(length)

    def option(self, option, payload=b""):
        """Asks, and returns what came before the ACK; `Refused` if none comes."""
        self.send_option(option, payload)
        got = []
        while True:
            kind, answer = self.option_reply(option)
            if kind == ACK:
                return got
            if kind & ERR:
                raise Refused(kind, answer.decode(errors="replace"))
            got.append((kind, answer))

    def start_tls(self, context, hostname="localhost"):
        self.option(STARTTLS)
        self.sock = context.wrap_socket(self.sock, server_hostname=hostname)

    def list(self):
        """[(name, description)]"""
        found = []
        for _, answer in self.option(LIST):
            (length,) = struct.unpack_from(">I", answer)
            found.append((answer[4:4 + length].decode(), answer[4 + length:].decode()))
        return found

    def info(self, export, option=INFO, wanted=(INFO_NAME, INFO_DESCRIPTION, INFO_BLOCK_SIZE)):
        name = export if isinstance(export, bytes) else export.encode()
        asked = struct.pack(">I", len(name)) + name + struct.pack(f">H{len(wanted)}H", len(wanted), *wanted)
        for kind, answer in self.option(option, asked):
            if kind != REP_INFO:
                raise AssertionError(f"reply {kind} to INFO")
            (what,), rest = struct.unpack_from(">H", answer), answer[2:]
            if what == INFO_EXPORT:
                self.size, self.flags = struct.unpack(">QH", rest)
            elif what == INFO_NAME:
                self.name = rest.decode()
            elif what == INFO_DESCRIPTION:
                self.description = rest.decode()
            elif what == INFO_BLOCK_SIZE:
                self.block_sizes = struct.unpack(">III", rest)
        if self.size is None:
            raise AssertionError("no NBD_INFO_EXPORT in the answer")

    def go(self, export, **options):
        self.info(export, GO, **options)
        return self

    def meta(self, option, export, *queries):
        name = export.encode()
        asked = struct.pack(">I", len(name)) + name + struct.pack(">I", len(queries))
        asked += b"".join(struct.pack(">I", len(q.encode())) + q.encode() for q in queries)
        return {answer[4:].decode(): struct.unpack_from(">I", answer)[0] for _, answer in self.option(option, asked)}

    def export_name(self, export):
        """The old way in: no answer but the export's size, or the end of the connection."""
        self.send_option(EXPORT_NAME, export.encode())
        self.size, self.flags = struct.unpack(">QH", self.receive(10))
        if self.zeroes and self.receive(124) != bytes(124):
            raise AssertionError("the 124 zeroes are not zeroes")
        return self

    @property
    def read_only(self):
        return bool(self.flags & READ_ONLY)

    # -- transmission

    def request(self, command, offset=0, length=0, payload=b"", flags=0, magic=None, cookie=None):
        """The bytes of a request, noted as pending."""
        if cookie is None:
            self._cookie += 1
            cookie = self._cookie
        if command != DISC:
            self.pending[cookie] = (command, offset, length)
        if self.extended:
            if command == WRITE:
                flags |= PAYLOAD_LEN
            return struct.pack(">IHHQQQ", magic or LONG_REQUEST_MAGIC, flags, command, cookie, offset, length) + payload
        return struct.pack(">IHHQQI", magic or REQUEST_MAGIC, flags, command, cookie, offset, length) + payload

    def submit(self, *arguments, **options):
        """Sends a request without waiting; returns its cookie."""
        self.send(self.request(*arguments, **options))
        return self._cookie

    def reply(self):
        """The next request that is answered in full, whichever that is."""
        while True:
            (magic,) = struct.unpack(">I", self.receive(4))
            if magic == SIMPLE_MAGIC and not self.extended:
                error, cookie = struct.unpack(">IQ", self.receive(12))
                command, offset, length = self._asked(cookie)
                if self.structured and command == READ:
                    raise AssertionError("a simple reply to a read, though structured replies were agreed")
                reply = Reply(cookie)
                reply.error = error
                if command == READ and not error:
                    reply.pieces.append((offset, self.receive(length)))
                del self.pending[cookie]
                return reply
            if magic == LONG_REPLY_MAGIC and self.extended:
                flags, kind, cookie, offset, length = struct.unpack(">HHQQQ", self.receive(28))
                if offset != self._asked(cookie)[1]:
                    raise AssertionError(f"a long reply at {offset} to a request at {self._asked(cookie)[1]}")
            elif magic == CHUNK_MAGIC and self.structured and not self.extended:
                flags, kind, cookie, length = struct.unpack(">HHQI", self.receive(16))
            else:
                raise AssertionError(f"a reply's magic is {magic:#x}")
            self._asked(cookie)
            reply = self._partial.setdefault(cookie, Reply(cookie))
            self._chunk(reply, kind, self.receive(length))
            if flags & DONE:
                del self.pending[cookie], self._partial[cookie]
                return reply

    def _asked(self, cookie):
        if cookie not in self.pending:
            raise AssertionError(f"a reply to {cookie:#x}, which nobody asked")
        return self.pending[cookie]

    def _chunk(self, reply, kind, body):
        reply.chunks.append(kind)
        if kind == OFFSET_DATA:
            reply.pieces.append((struct.unpack_from(">Q", body)[0], body[8:]))
        elif kind == OFFSET_HOLE:
            reply.pieces.append(struct.unpack(">QI", body))
        elif kind == STATUS_CHUNK:
            (context,) = struct.unpack_from(">I", body)
            reply.extents[context] = list(struct.iter_unpack(">II", body[4:]))
        elif kind == STATUS_EXT_CHUNK:
            context, count = struct.unpack_from(">II", body)
            reply.extents[context] = list(struct.iter_unpack(">QQ", body[8:]))
            if len(reply.extents[context]) != count:
                raise AssertionError(f"{count} extents announced, {len(reply.extents[context])} sent")
        elif kind & 1 << 15:
            error, length = struct.unpack_from(">IH", body)
            reply.error = reply.error or error
            reply.message = reply.message or body[6:6 + length].decode()
        elif kind != NONE or body:
            raise AssertionError(f"a chunk of type {kind} with {len(body)} bytes")

    def ask(self, command, offset=0, length=0, payload=b"", flags=0):
        """One request and its answer; an error is raised as `NbdError`."""
        cookie = self.submit(command, offset, length, payload, flags)
        reply = self.reply()
        if reply.cookie != cookie:
            raise AssertionError(f"asked {cookie}, answered {reply.cookie}")
        if reply.error:
            raise NbdError(reply.error, reply.message)
        return reply

    def read(self, offset, length, flags=0):
        return self.ask(READ, offset, length, flags=flags).data(offset, length)

    def write(self, offset, payload, flags=0):
        self.ask(WRITE, offset, len(payload), payload, flags)

    def flush(self):
        self.ask(FLUSH)

    def trim(self, offset, length, flags=0):
        self.ask(TRIM, offset, length, flags=flags)

    def zero(self, offset, length, flags=0):
        self.ask(WRITE_ZEROES, offset, length, flags=flags)

    def status(self, offset, length, flags=0, context="base:allocation"):
        """[(length, flags)]"""
        return self.ask(BLOCK_STATUS, offset, length, flags=flags).extents[self.contexts[context]]

    def disconnect(self):
        """Says goodbye, and waits until the server has closed."""
        self.send(self.request(DISC))
        left = self.wait_for_close(60)
        if left:
            raise AssertionError(f"{left} bytes after the goodbye")
        self.close()


class Client(Session):
    """A good client, ready to read and write."""

    def __init__(self, address, export="", *, structured=True, extended=False, tls=None, timeout=60):
        super().__init__(address, timeout)
        try:
            self.greet()
            if tls:
                self.start_tls(tls)
            if extended:
                self.option(EXTENDED_HEADERS)
                self.extended = self.structured = True
            elif structured:
                self.option(STRUCTURED_REPLY)
                self.structured = True
            if self.structured:
                self.contexts = self.meta(SET_META, export, "base:allocation")
            self.go(export)
        except BaseException:
            self.close()
            raise


if __name__ == "__main__":  # a first look at a server: nbdclient.py SOCKET [EXPORT]
    import sys

    with Client(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "") as client:
        print(f"{client.size} bytes, flags {client.flags:#x}, block sizes {client.block_sizes}")
