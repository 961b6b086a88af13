#!/usr/bin/env python3
"""in_turn.py [--rounds N] [--seconds S] SERVER ... -- NBDLOAD-ARGUMENT ...: one load on several servers, in turn.

    benches/peers/in_turn.py fairlift-file-disk qsd-uring-disk -- --rw randread --depth 1 --size 256M
    benches/peers/in_turn.py fairlift-mem=OLD fairlift-mem=NEW -- --rw randread --depth 32 --conns 4
    benches/peers/in_turn.py "fairlift-file-disk=NEW --workers 1" fairlift-file-disk=NEW fio -- --rw randwrite --depth 1 --flush-every 1 --conns 32

A server is a name of server.sh; NAME=BINARY [ARGUMENT ...] is another build of fairlift, or one with other arguments. `fio` asks the file on
disk itself, as the load says: with io_uring, or where the load flushes from as many threads as it has connections, each write followed by
fdatasync. Every other round goes backwards. Medians (least to most); the CPU is the server's.

--preallocated: the file on disk is allocated anew before each run, so that none of it was written (`compare.sh clean` takes it away).
"""
import argparse
import contextlib
import json
import os
import random
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PLACE = Path(os.environ.get('W') or f"{os.environ.get('TMPDIR', '/tmp')}/fairlift-peers")
DISK = PLACE / 'disk/disk.img'


@contextlib.contextmanager
def started(server):
    """The server's URI and process, while it runs."""
    name, _, build = server.partition('=')
    env = dict(os.environ)
    if build:
        env['FAIRLIFT'], *more = shlex.split(build)
        env['FAIRLIFT_ARGS'] = ' '.join(more)
    uri, pid = subprocess.run([HERE / 'server.sh', 'start', name], env=env, check=True, capture_output=True, text=True).stdout.split()
    try:
        yield uri, pid
    finally:
        subprocess.run([HERE / 'server.sh', 'stop', pid])


def nbd(server, load, seconds):
    with started(server) as (uri, pid):
        words = ['--uri', uri, '--server-pid', pid, '--seconds', seconds, '--warmup', '0.15', '--seed', str(random.randrange(1 << 30)), *load]
        said = json.loads(subprocess.run([PLACE / 'bin/nbdload', *words], check=True, capture_output=True, text=True).stdout)
    return said['iops'], said['server']['cpu_us_per_io'], said['all']['p50_us'], said['all']['p99_us']


def fio(load, seconds):
    wants = dict(zip(load[::2], load[1::2]))
    flushes = '--flush-every' in wants
    depth, jobs = (1, wants.get('--conns', '1')) if flushes else (wants['--depth'], 1)
    words = [f"--rw={wants['--rw']}", f"--bs={wants.get('--bs', '4k')}", f"--size={wants.get('--size', '1G')}", f'--iodepth={depth}', f'--numjobs={jobs}',
             f'--runtime={seconds}', '--ioengine=psync' if flushes else '--ioengine=io_uring', *(['--fdatasync=1'] if flushes else []),
             *(['--readonly'] if 'write' not in wants['--rw'] else [])]
    said = subprocess.run(['fio', '--name=a', f'--filename={DISK}', '--direct=1', '--thread', '--time_based', '--group_reporting', '--norandommap',
                           '--randrepeat=0', '--allow_file_create=0', '--output-format=json', *words], check=True, capture_output=True, text=True).stdout
    job = json.loads(said[said.index('{'):])['jobs'][0]
    part = job['write' if 'write' in wants['--rw'] else 'read']
    cpu = (job['usr_cpu'] + job['sys_cpu']) * job['job_runtime'] * 10 / max(part['total_ios'], 1)
    return part['iops'], cpu, *(part['clat_ns']['percentile'][p] / 1000 for p in ('50.000000', '99.000000'))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--rounds', type=int, default=9)
    parser.add_argument('--seconds', default='1')
    parser.add_argument('--preallocated', action='store_true')
    parser.add_argument('server', nargs='+')
    ours = sys.argv[1:]
    cut = ours.index('--') if '--' in ours else len(ours)
    options, load = parser.parse_args(ours[:cut]), ours[cut + 1:]
    if not load:
        sys.exit('which load? Arguments of nbdload (nbdload.c) after --')
    got = {server: [] for server in options.server}
    for number in range(options.rounds):
        for server in options.server[::-1 if number % 2 else 1]:
            if options.preallocated:
                size = DISK.stat().st_size
                DISK.unlink()
                subprocess.run(['fallocate', '-l', str(size), DISK], check=True)
            os.sync()
            got[server].append(fio(load, options.seconds) if server == 'fio' else nbd(server, load, options.seconds))
    print('| | a second | CPU, µs each | p50, p99 µs |\n|---|---|---|---|')
    for server, runs in got.items():
        rates = sorted(run[0] for run in runs)
        cpu, p50, p99 = (statistics.median(run[column] for run in runs) for column in (1, 2, 3))
        print(f'| {server} | {statistics.median(rates):,.0f} ({rates[0]:,.0f} to {rates[-1]:,.0f}) | {cpu:.1f} | {p50:.0f}, {p99:.0f} |')


if __name__ == '__main__':
    main()
