#!/usr/bin/env python3
"""report.py FILE.jsonl [--head FILE.md]: Markdown tables of one run of compare.sh.

Each cell is the median over the repetitions. A repetition during which other processes took more than 0.15
cores is left out where an undisturbed one remains; a cell that has none is marked ~.
"""
import json, re, statistics, sys

DISTURBED = 0.15
WORKLOADS = ['rr-qd1', 'rr-32x1', 'rr-32x4', 'rw-32x1', 'rw-32x4', 'seq64k', 'seq1m', 'wflush-1', 'wflush-32']
CLASSES = [  # title, peers, ours
    ('RAM/null', ['nbdkit-mem', 'qsd-null', 'nbdkit-null'], ['fairlift-mem', 'fairlift-null']),
    ('RAM file', ['nbdkit-file-ram', 'qnbd-ram', 'qsd-ram', 'nbdsrv-ram'], ['fairlift-file-ram']),
    ('disk', ['qnbd-uring-disk', 'qsd-uring-disk', 'nbdkit-file-disk', 'nbdkit-file-disk-nc', 'nbdsrv-disk'],
     ['fairlift-file-disk']),
]
DIRECT = ['qnbd-uring-disk', 'qsd-uring-disk']  # the rest of the disk class goes through the page cache


def result(j):
    """What a workload is about: MB/s, write+flush pairs/s, or I/Os per second."""
    w = j['workload']
    return j['mb_s'] if w.startswith('seq') else j['commit']['per_s'] if w.startswith('wflush') else j['iops']


def latency(j, p):
    return j['commit' if j['workload'].startswith('wflush') else 'all'][p]


def number(w, x):
    if w.startswith('seq'):
        return f'{x:.0f}'
    return f'{x / 1e6:.2f}M' if x >= 999_500 else f'{x / 1e3:.0f}k' if x >= 99_950 else f'{x / 1e3:.1f}k'


def micros(x):
    return f'{x / 1000:.1f}ms' if x >= 9_999.5 else f'{x:.0f}'


def cpu(x):
    return f'{x:.0f}' if x >= 99.95 else f'{x:.1f}'


class Cell:
    def __init__(self, runs):
        self.failed = sum(1 for j in runs if j.get('failed') or j['conns_lost'])
        # A lost connection ends part of the load: what is left is no result.
        done = [j for j in runs if not j.get('failed') and not j['conns_lost']]
        calm = [j for j in done if j.get('other_cpu_cores', 0) <= DISTURBED]
        self.disturbed = bool(done) and not calm
        self.runs = calm or done
        self.errors = sum(j['io_errors'] for j in done)
        self.workload = runs[0]['workload']

    def __bool__(self):
        return bool(self.runs)

    def median(self, get):
        return statistics.median(map(get, self.runs))

    @property
    def value(self):
        return self.median(result)

    @property
    def cpu(self):
        return self.median(lambda j: j['server']['cpu_us_per_io'])

    def mark(self):
        return ('~' if self.disturbed else '') + (f' ({self.errors} errors)' if self.errors else '') + (
            f' ({self.failed} failed)' if self.failed else '')

    def spread(self):
        if not self.runs:
            return 'failed'
        f = lambda x: number(self.workload, x)
        v = [result(j) for j in self.runs]
        return f'**{f(self.value)}** ({f(min(v))}..{f(max(v))}){self.mark()}'

    def percentiles(self):
        return ' / '.join(micros(self.median(lambda j: latency(j, p))) for p in ('p50_us', 'p99_us', 'p999_us'))


def load(path):
    runs = {}
    with open(path) as lines:
        lines = [json.loads(line) for line in lines]
    asked = [w for w in WORKLOADS if any(j['workload'] == w for j in lines)]
    for j in lines:
        for w in asked if j['workload'] == 'start' else [j['workload']]:  # a server that did not start fails them all
            runs.setdefault((j['label'], w), []).append({**j, 'workload': w})
    return {k: Cell(v) for k, v in runs.items()}


def table(head, rows):
    print('| ' + ' | '.join(head) + ' |\n|' + '---|' * len(head))
    for r in rows:
        print('| ' + ' | '.join(r) + ' |')
    print()


def versus(mine, peers, cells, w):
    """Ratios of one of our servers to the fastest and to the leanest of `peers`."""
    c = cells.get((mine, w))
    rivals = [cells[p, w] for p in peers if cells.get((p, w))]
    if not c:
        return ['-' if c is None else 'failed', '-', '-', '-']
    best, lean = max(rivals, key=lambda r: r.value), min(rivals, key=lambda r: r.cpu)
    # Too short a run for the kernel's 10 ms accounting can give a CPU time of zero.
    over = lambda r: f'{c.cpu / r.cpu:.2f}' if r.cpu else '-'
    return [number(w, c.value) + c.mark(), f'**{c.value / best.value:.2f}**', over(best), over(lean)]


def summary(cells, labels, workloads):
    schedulers = sorted({re.sub(r'^fairlift-(null|mem|file-ram|file-disk)-?', '', l) for l in labels if l.startswith('fairlift-')})
    if not schedulers:
        return
    head, rows = ['class', 'workload', 'best peer'], []
    for s in schedulers:
        head += [f'fairlift {s or "none"}', '×', 'CPU', 'CPU, leanest']
    for title, peers, ours in CLASSES:
        groups = [(title, peers)]
        if title == 'disk':
            groups = [('disk, O_DIRECT peers', DIRECT), ('disk, all peers', peers)]
        for base in ours:
            for name, rivals in groups:
                if len(ours) > 1:
                    name = f'{name}: {base}'
                for w in workloads:
                    there = [p for p in rivals if cells.get((p, w))]
                    mine = [base + (f'-{s}' if s else '') for s in schedulers]
                    if not there or not any((m, w) in cells for m in mine):
                        continue
                    best = max(there, key=lambda p: cells[p, w].value)
                    row = [name, w, f'{best} {number(w, cells[best, w].value)}{cells[best, w].mark()}']
                    for m in mine:
                        row += versus(m, rivals, cells, w)
                    rows.append(row)
    if not rows:
        return
    print('### Summary: fairlift ÷ best peer of the same class\n')
    print('"×" is fairlift ÷ the fastest peer in the row (above 1 is ahead); "CPU" is its server CPU per I/O ÷ that of the '
          'fastest peer; "CPU, leanest" ÷ that of the peer that uses least (below 1 is better).\n')
    table(head, rows)


def details(cells, labels, workloads):
    for title, peers, ours in CLASSES:
        here = [l for l in labels if l in peers]
        # Longest name first: fairlift-file-ram is also a beginning of fairlift-file-ram-mq-deadline.
        here += [l for o in ours for l in labels if l == o or (l.startswith(o + '-') and l not in here)]
        here = list(dict.fromkeys(here))
        ws = [w for w in workloads if any((l, w) in cells for l in here)]
        if not here or not ws:
            continue
        cell = lambda l, w, f: f(cells[l, w]) if cells.get((l, w)) else 'failed' if (l, w) in cells else '-'
        print(f'### {title}\n\nResult: 4k I/Os per second (rr, rw), MB/s (seq), write+flush pairs per second (wflush); median (min..max)\n')
        table(['workload'] + here, [[w] + [cell(l, w, Cell.spread) for l in here] for w in ws])
        print('Latency p50 / p99 / p99.9, µs (wflush: write sent until flush answered)\n')
        table(['workload'] + here, [[w] + [cell(l, w, Cell.percentiles) for l in here] for w in ws])
        print('Server CPU, µs per I/O (wflush: per write+flush)\n')
        table(['workload'] + here, [[w] + [cell(l, w, lambda c: cpu(c.cpu)) for l in here] for w in ws])
        print('Server memory, threads and processes\n')
        rows = []
        for l in here:
            row = [l]
            for w in ('rr-32x4', 'wflush-32'):
                row.append(cell(l, w, lambda c: f"{c.median(lambda j: j['server']['rss_kb']) / 1024:.0f}"))
                row.append(cell(l, w, lambda c: f"{max(j['server']['threads'] for j in c.runs)} / {max(j['server']['procs'] for j in c.runs)}"))
            rows.append(row)
        table(['server', 'RSS MiB, 4 connections', 'threads / processes', 'RSS MiB, 32 connections', 'threads / processes'], rows)


def main():
    args = sys.argv[1:]
    if not args or args[0].startswith('-'):
        sys.exit(__doc__)
    path = args[0]
    head = args[args.index('--head') + 1] if '--head' in args else re.sub(r'\.jsonl$', '.head.md', path)
    try:
        with open(head) as f:
            print(f.read(), end='')
    except FileNotFoundError:
        print('## Fairlift beside other NBD servers\n')
    cells = load(path)
    labels = list(dict.fromkeys(l for l, _ in cells))
    workloads = [w for w in WORKLOADS if any(w == x for _, x in cells)]
    with open(path) as f:
        runs = [j for j in map(json.loads, f) if not j.get('failed')]
    other = sum(j.get('other_cpu_cores', 0) > DISTURBED for j in runs)
    print(f'* {len(runs)} cells measured, {other} of them disturbed (other processes above {DISTURBED} cores): left out where an '
          f'undisturbed repetition remains, else marked ~. Largest steal: {max((j.get("steal_cores", 0) for j in runs), default=0):.2f} cores.')
    print('* Disk peers: qnbd-uring and qsd-uring use O_DIRECT as fairlift does; nbdkit-file and nbdsrv write and re-read through '
          'the page cache, nbdkit-file-disk-nc drops it behind. qsd-null moves no data.\n')
    summary(cells, labels, workloads)
    details(cells, labels, workloads)


main()
