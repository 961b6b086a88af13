#!/usr/bin/env python3
"""Whether what ARCHITECTURE.md and SECURITY.md name is there: `path/file.rs`, `path/folder/`, and `path/file.rs:name`, where the file must
define a function, type, constant, macro or rule of that name. NAME in a path stands for one that is still to be written.

It also looks whether the folders of the crates are all on the map. Without arguments; the last line counts."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOP = ("core/", "threads/", "host/", "lab/", "cli/", "proving/", "docs/", "tests/", "benches/", "fuzz/")
DEFINES = r"\b(?:fn|struct|enum|trait|const|static|type|macro_rules!|def|class)\s+{}\b"


def wrong(name):
    """What is wrong with what stands between two backticks, or None."""
    path, _, inside = name.partition(":")
    if "NAME" in path:
        path = path.rsplit("/", 1)[0]
    file = ROOT / path
    if not file.exists():
        return "there is no such file or folder"
    if inside and not re.search(DEFINES.format(re.escape(inside)), file.read_text()):
        return f"{path} does not define {inside}"
    return None


def named(text):
    """The paths in a text: all that starts in a folder of the project, and file names that start nowhere."""
    for line, content in enumerate(text.splitlines(), 1):
        for name in re.findall(r"`([^`\s]+)`", content):
            if name.startswith(TOP) or re.search(r"/\w+\.(rs|py|toml|md)\b", name):
                yield line, name


def main():
    passed, failed = 0, 0
    for page in ("SECURITY.md", "ARCHITECTURE.md"):
        text = (ROOT / page).read_text()
        for line, name in named(text):
            if why := wrong(name):
                failed += 1
                print(f"{page}:{line}: `{name}`: {why}")
            else:
                passed += 1
    for crate in ("core", "threads", "host", "lab", "cli", "proving"):
        for folder in sorted(path for path in (ROOT / crate / "src").iterdir() if any(path.glob("**/*.rs"))):
            name = f"{crate}/src/{folder.name}"
            if f"`{name}/" in text or f"`{name}.rs`" in text:
                passed += 1
            else:
                failed += 1
                print(f"ARCHITECTURE.md: {name}/ is not on the map")
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
