#!/usr/bin/env python3
"""idle.py URI PID [COUNT]: what COUNT idle NBD connections cost a server; one JSON line.

RSS of the process tree: before; after COUNT handshakes (NBD_OPT_GO); after every connection has also read 64 KiB
once and gone idle again; after all are closed. A raw client: nothing is pipelined, nothing retried.
"""
import json, os, resource, socket, struct, sys, time
from urllib.parse import urlsplit, parse_qs


def tree(pid):
    yield pid
    for task in os.listdir(f'/proc/{pid}/task'):
        try:
            with open(f'/proc/{pid}/task/{task}/children') as f:
                children = f.read().split()
        except FileNotFoundError:
            continue
        for child in children:
            yield from tree(int(child))


def memory(pid):
    """RSS and PSS in KiB (PSS does not count pages that forked processes share twice), processes, threads."""
    rss = pss = processes = threads = 0
    for p in list(tree(pid)):
        try:
            with open(f'/proc/{p}/smaps_rollup') as f:
                kib = {l.split(':')[0]: int(l.split()[1]) for l in f if l.endswith('kB\n')}
            threads += len(os.listdir(f'/proc/{p}/task'))
        except (FileNotFoundError, ProcessLookupError):
            continue
        rss, pss, processes = rss + kib.get('Rss', 0), pss + kib.get('Pss', 0), processes + 1
    return {'rss_kb': rss, 'pss_kb': pss, 'processes': processes, 'threads': threads}


def exactly(s, n):
    data = b''
    while len(data) < n:
        part = s.recv(n - len(data))
        if not part:
            raise EOFError('the server closed the connection')
        data += part
    return data


def connect(uri):
    u = urlsplit(uri)
    if u.scheme == 'nbd+unix':
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(8)
        s.connect(parse_qs(u.query)['socket'][0])
    else:
        s = socket.create_connection((u.hostname, u.port or 10809), 8)
    name = u.path.lstrip('/').encode()
    magic, _, _ = struct.unpack('>QQH', exactly(s, 18))
    if magic != 0x4e42444d41474943:
        raise ValueError('not an NBD server')
    s.sendall(struct.pack('>I', 3) + struct.pack('>QII', 0x49484156454F5054, 7, 6 + len(name))
              + struct.pack('>I', len(name)) + name + struct.pack('>H', 0))
    while True:
        _, _, kind, length = struct.unpack('>QIII', exactly(s, 20))
        data = exactly(s, length)
        if kind == 1:
            return s
        if kind & 0x80000000:
            raise ValueError(f'NBD_OPT_GO refused: {kind:#x} {data!r}')


def read_once(s, offset, length=65536):
    s.sendall(struct.pack('>IHHQQI', 0x25609513, 0, 0, 7, offset, length))
    magic, error, _ = struct.unpack('>IIQ', exactly(s, 16))
    if magic != 0x67446698 or error:
        raise ValueError(f'read failed: {magic:#x} {error}')
    exactly(s, length)


def settled(pid):
    time.sleep(0.5)
    return memory(pid)


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    uri, pid, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 1000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count + 64:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count + 64, hard), hard))
    out, conns = {'asked': count, 'before': memory(pid)}, []
    try:
        for _ in range(count):
            conns.append(connect(uri))
        out['idle'] = settled(pid)
        for i, s in enumerate(conns):
            read_once(s, i * 65536)
        out['after_read'] = settled(pid)
    except (OSError, EOFError, ValueError) as e:
        out['error'] = f'after {len(conns)} connections: {e}'
        out.setdefault('idle', settled(pid))
    out['connections'] = len(conns)
    for s in conns:
        try:
            s.sendall(struct.pack('>IHHQQI', 0x25609513, 0, 2, 0, 0, 0))
        except OSError:
            pass
        s.close()
    out['closed'] = settled(pid)
    print(json.dumps(out))


if __name__ == '__main__':
    main()
