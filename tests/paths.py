#!/usr/bin/env python3
"""Whether what ARCHITECTURE.md and SECURITY.md name is there: `path/file.rs`, `path/folder/`, and `path/file.rs:name`, where the file must
define a function, type, constant, macro or rule of that name. NAME in a path stands for one that is still to be written.

It also looks whether the folders of the crates are all on the map, whether the links of all pages lead to a file and a heading, and whether the
book's contents have each page of docs/. Without arguments; the last line counts."""

import re
import subprocess
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


def headings(text):
    """What a link may name in a page behind `#`: its headings, as GitHub and mdBook write them."""
    shown = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title) for title in re.findall(r"^#{1,6} (.*?)\s*$", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), re.M))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in shown}


def links():
    """Each link of a page, and what is wrong with it or None; then each page of docs/, and whether the contents have it."""
    known = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    pages = {page: page.read_text() for page in map(ROOT.joinpath, known) if page.exists()}
    for page, text in pages.items():
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            path, _, heading = link.partition("#")
            to = (page.parent / path).resolve() if path else page
            if re.match(r"[a-z+]+:", link):
                continue
            wrong = None if to.exists() else "there is no such file"
            if heading and to in pages and heading not in headings(pages[to]):
                wrong = "the page has no such heading"
            yield f"{page.relative_to(ROOT)}: ({link})", wrong
    contents = set(re.findall(r"\]\(([^)]+)\)", pages[ROOT / "docs/SUMMARY.md"]))
    for page in pages:
        if page.is_relative_to(ROOT / "docs") and page.name != "SUMMARY.md":
            yield str(page.relative_to(ROOT)), None if str(page.relative_to(ROOT / "docs")) in contents else "it is not in docs/SUMMARY.md"


def main():
    passed, failed = 0, 0
    for name, why in links():
        passed, failed = passed + (why is None), failed + (why is not None)
        if why:
            print(f"{name}: {why}")
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
