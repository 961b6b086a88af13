#!/usr/bin/env python3
"""Each table and figure of the five works that Fairlift implements, beside ours: docs/measured/seeds.md.

    benches/seeds.py [PART...]            print the sections (all, or those named)
    benches/seeds.py --write [PART...]    put them into the page, each with the commit it was made at

A part is a file of benches/seeds/. Its docstring's first line is the section's title; `section(fairlift)` returns the Markdown below it, where
`fairlift` is the program to run. FAIRLIFT names another program than target/release/fairlift.
"""

import argparse
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/measured/seeds.md"
PARTS = sorted(path.stem for path in (ROOT / "benches/seeds").glob("*.py"))


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--write", action="store_true")
    arguments.add_argument("parts", nargs="*", metavar="PART", choices=[*PARTS, []], help=" ".join(PARTS))
    given = arguments.parse_args()
    fairlift = os.environ.get("FAIRLIFT") or str(ROOT / "target/release/fairlift")
    for name in given.parts or PARTS:
        print(f"{name} …", file=sys.stderr)
        made = f"{head(name)}\n\n{loaded(name).section(fairlift).strip()}\n"
        put(name, f"{made}\nMade at {commit()}.\n") if given.write else print(made)


def loaded(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / f"benches/seeds/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def head(name):
    return f"## {loaded(name).__doc__.strip().splitlines()[0].rstrip('.')}"


def commit():
    return subprocess.run(["git", "-C", ROOT, "rev-parse", "--short=8", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()


def put(name, made):
    """The section instead of the one that the page has, or at the page's end."""
    page = PAGE.read_text()
    there = re.compile(rf"(?ms)^{re.escape(head(name))}$.*?(?=^## |\Z)")
    PAGE.write_text(there.sub(lambda _: made + "\n", page) if there.search(page) else f"{page.rstrip()}\n\n{made}")
    PAGE.write_text(PAGE.read_text().rstrip() + "\n")


if __name__ == "__main__":
    main()
