#!/usr/bin/env python3
"""stations.py [SERVER] [--size 256M]: where each microsecond of a read is, for one client that reads a file on disk one request at a time.

SERVER as for in_turn.py [fairlift-file-disk]. The kernel's tracepoints of 0.3 s, medians and means; root, with tracefs, and a server of ours:
its workers are known by their names. Tracing costs each read some microseconds.
"""
import argparse
import random
import re
import statistics
import subprocess
import time
from pathlib import Path

from in_turn import PLACE, started

TRACE = Path('/sys/kernel/tracing')
EVENTS = """sched/sched_waking block/block_rq_issue block/block_rq_complete io_uring/io_uring_complete syscalls/sys_enter_io_uring_enter
    syscalls/sys_enter_sendmsg syscalls/sys_exit_epoll_wait""".split()
LINE = re.compile(r'\s*(.+)-\d+\s+\[\d+\]\s+\S+\s+([\d.]+): (\w+)(.*)')
STATIONS = [('ask', ''), ('received', "the client asks, until the bytes are the worker's (kernel)"), ('submits', 'the worker: parsed, queued, granted, collected'),
            ('issued', 'submission, until the disk has it (kernel)'), ('done', 'the disk'), ('heard', 'its answer, until the worker has it (kernel)'),
            ('replies', 'the worker: ended, told, replied'), ('wakes', 'the reply, until the client is woken (kernel)'),
            ('runs', 'the client runs, and has received'), ('next', 'the client, until it asks again')]


def requests(text):
    """Of each request that passed all stations, when it was where, in µs."""
    found, at = [], {}
    for who, when, event, rest in (match.groups() for match in map(LINE.match, text.splitlines()) if match):
        now, worker, client = float(when) * 1e6, who.startswith('worker'), who == 'nbdload'
        if client and event == 'sys_sendmsg' and '->' not in rest:
            if len(at) == len(STATIONS) - 1:
                found.append({**at, 'next': now})
            at = {'ask': now}
        elif worker and event == 'io_uring_complete':
            result = int(re.search(r'result (-?\d+)', rest)[1])
            if result == 28 and 'ask' in at:
                at['received'] = now
            elif result == 4096 and 'done' in at:
                at['heard'] = now
        elif worker and event == 'sys_io_uring_enter' and re.search(r'to_submit: [1-9]', rest):
            if 'received' in at and 'submits' not in at:
                at['submits'] = now
            elif 'heard' in at and 'replies' not in at:
                at['replies'] = now
        elif worker and event == 'block_rq_issue' and 'submits' in at:
            at['issued'] = now
        elif event == 'block_rq_complete' and 'issued' in at:
            at['done'] = now
        elif event == 'sched_waking' and 'nbdload' in rest and 'replies' in at:
            at['wakes'] = now
        elif client and event == 'sys_epoll_wait' and '->' in rest and 'replies' in at:
            at['runs'] = now
            at.setdefault('wakes', now)
    return found


def traced(server, size):
    instance = TRACE / 'instances/fairlift-stations'
    instance.mkdir(exist_ok=True)
    with started(server) as (uri, _):
        (instance / 'buffer_size_kb').write_text('16384')
        (instance / 'tracing_on').write_text('0')
        (instance / 'trace').write_text('')
        for event in EVENTS:
            (instance / 'events' / event / 'enable').write_text('1')
        load = subprocess.Popen([PLACE / 'bin/nbdload', '--uri', uri, '--rw', 'randread', '--depth', '1', '--size', size, '--seconds', '1.4',
                                 '--seed', str(random.randrange(1 << 30))], stdout=subprocess.DEVNULL)
        time.sleep(0.7)
        (instance / 'tracing_on').write_text('1')
        time.sleep(0.3)
        (instance / 'tracing_on').write_text('0')
        load.wait()
    text = (instance / 'trace').read_text()
    instance.rmdir()
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('server', nargs='?', default='fairlift-file-disk')
    parser.add_argument('--size', default='256M')
    options = parser.parse_args()
    found = requests(traced(options.server, options.size))
    print(f'{len(found)} reads\n\n| µs | median | mean |\n|---|---|---|')
    for (before, _), (after, says) in zip(STATIONS, STATIONS[1:]):
        times = [at[after] - at[before] for at in found]
        print(f'| {says} | {statistics.median(times):.0f} | {statistics.mean(times):.0f} |')
    whole = [at['next'] - at['ask'] for at in found]
    print(f'| whole | {statistics.median(whole):.0f} | {statistics.mean(whole):.0f} |')


if __name__ == '__main__':
    main()
