#!/usr/bin/env python3
"""Looks through a crate for what only an operating system has: no_std.py CRATE

Not as strict as a build for bare metal, which tests/run prefers; for where that target cannot be had. The crate must say
`no_std` and depend only on what is used without its default features, and nothing outside its tests may name std.
"""

import re
import sys
import tomllib
from pathlib import Path


def without_tests(source):
    """The source with each item behind `#[cfg(test)]` blanked, so that line numbers stay."""
    out, at = [], 0
    for mark in re.finditer(r"#\[cfg\(test\)\]", source):
        if mark.start() < at:
            continue
        brace, semicolon = source.find("{", mark.end()), source.find(";", mark.end())
        if semicolon >= 0 and (brace < 0 or semicolon < brace):
            end = semicolon + 1
        else:
            depth, end = 0, brace
            while end < len(source):
                depth += {"{": 1, "}": -1}.get(source[end], 0)
                end += 1
                if depth == 0:
                    break
        out += [source[at:mark.start()], "\n" * source.count("\n", mark.start(), end)]
        at = end
    return "".join([*out, source[at:]])


def test_modules(file):
    """Where the modules are that a file declares behind `#[cfg(test)]`: each DIR/NAME.rs, or what is in DIR/NAME."""
    folder = file.parent if file.stem in ("lib", "mod") else file.with_suffix("")
    return [folder / name for name in re.findall(r"#\[cfg\(test\)\]\s*mod\s+(\w+)\s*;", file.read_text())]


def main():
    crate = Path(sys.argv[1])
    wrong = []
    manifest = tomllib.loads((crate / "Cargo.toml").read_text())
    for name, how in manifest.get("dependencies", {}).items():
        if not isinstance(how, dict) or how.get("default-features") is not False or "std" in how.get("features", []):
            wrong.append(f"{crate}/Cargo.toml: depends on {name} with its default features or std")
    library = crate / "src/lib.rs"
    if not re.search(r"^#!\[(no_std|cfg_attr\(.*, no_std\))\]", library.read_text(), re.M):
        wrong.append(f"{library}: does not say #![no_std]")
    files = sorted((crate / "src").rglob("*.rs"))
    tests = [module for file in files for module in test_modules(file)]
    for file in files:
        if any(file == module.with_suffix(".rs") or module in file.parents for module in tests):
            continue
        for number, line in enumerate(without_tests(file.read_text()).splitlines(), 1):
            code = line.split("//")[0]
            if re.search(r"\bstd\s*::|\bextern\s+crate\s+(?!alloc\b|core\b)|\buse\s+std\b|\bextern\s+\"", code):
                wrong.append(f"{file}:{number}: {line.strip()}")
    print("\n".join(wrong) if wrong else f"{len(files)} files of {crate} name nothing outside core and alloc")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
