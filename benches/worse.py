#!/usr/bin/env python3
"""worse.py OLD.md NEW.md: what is worse in the tables of NEW than in those of OLD, by more than chance.

Instructions first: they are the same on every run, so a hundredth counts. Rates are compared as ratios to the fastest peer of the same run, for
machines differ; what is worse by the medians, but within what the repetitions spread over, is chance. The server's CPU per I/O, of which the
tables have no spread, is compared as a ratio to the leanest peer's, and a third more counts.
"""
import re
import sys

INSTRUCTIONS, CPU = 1.01, 1.33
UNITS = {"": 1, "k": 1e3, "M": 1e6}


def tables(path):
    """Each table with the last line of text above it and its section: (section, text, [row as {column: cell}])."""
    section = text = ""
    head = rows = None
    with open(path) as lines:
        for line in [*lines, ""]:
            if line.startswith("|"):
                cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
                if head is None:
                    head, rows = cells, []
                elif not set(line.strip()) <= set("|-: "):
                    rows.append(dict(zip(head, cells)))
                continue
            if head:
                yield section, text, rows
                head = None
            if line.startswith("#"):
                section = line.lstrip("# ").strip()
            elif line.strip():
                text = line.strip()


def instructions(path):
    """By scheduler, what one request takes: the last column of the table."""
    found = {}
    for _, _, rows in tables(path):
        for row in rows:
            last = list(row.values())[-1]
            if "scheduler" in row and last.isdigit() and row.get("streams", "64") == "64" and row.get("groups", "8") == "8":
                found[row["scheduler"].split()[0]] = int(last)
    return found


def numbers(cell):
    """`**35.9k** (25.6k..46.2k)`: median, least, most."""
    return [float(n) * UNITS[unit] for n, unit in re.findall(r"(\d+(?:\.\d+)?)([kM]?)", cell)]


def ratios(path, wanted, best, count):
    """By (section, workload, server of ours): median, least and most of ours ÷ the best peer."""
    found = {}
    for section, text, rows in tables(path):
        for row in rows if text.startswith(wanted) else []:
            cells = {name: values for name, cell in row.items() if len(values := numbers(cell)) == count and values[0] > 0}
            peers = [values for name, values in cells.items() if not name.startswith(("fairlift", "×"))]
            if not peers:
                continue
            peer = best(peers)
            for name, ours in cells.items():
                if name.startswith("fairlift"):
                    found[section, row["workload"], name] = (ours[0] / peer[0], ours[count // 2] / peer[-1], ours[-1] / peer[count // 2])
    return found


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    old, new = sys.argv[1:]
    worse, compared = [], 0

    before, after = instructions(old), instructions(new)
    for name in before.keys() & after.keys():
        compared += 1
        if after[name] > before[name] * INSTRUCTIONS:
            worse.append(f"instructions of a request under {name}: {after[name]}, and {before[name]} in {old}")

    before, after = (ratios(path, "Result:", max, 3) for path in (old, new))
    for key in before.keys() & after.keys():
        compared += 1
        if after[key][2] < before[key][1]:
            worse.append(f"{key[0]}, {key[1]}: {key[2]} is {after[key][0]:.2f} of the fastest peer (at most {after[key][2]:.2f}), "
                         f"and was {before[key][0]:.2f} (at least {before[key][1]:.2f})")

    before, after = (ratios(path, "Server CPU", min, 1) for path in (old, new))
    for key in before.keys() & after.keys():
        compared += 1
        if after[key][0] > before[key][0] * CPU:
            worse.append(f"{key[0]}, {key[1]}: {key[2]} takes {after[key][0]:.2f} of the leanest peer's CPU, and took {before[key][0]:.2f}")

    if not compared:
        sys.exit(f"{old} and {new} have nothing in common")
    print(*worse, sep="\n") if worse else None
    print(f"{len(worse)} of {compared} figures are worse than in {old} by more than chance")
    sys.exit(bool(worse))


if __name__ == "__main__":
    main()
