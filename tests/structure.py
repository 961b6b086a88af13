#!/usr/bin/env python3
"""How the modules of the tree hang together, and whether that is within its limits.

    tests/structure.py                        its figures, then what is over a limit; the last line counts
    tests/structure.py --edges core::queue    what a module imports, and where it says so

What is read: every `src/**/*.rs` of the workspace's members. Comments and the text of literals do not count. Nor do tests
and proofs: items behind `#[cfg(test)]`, files named tests.rs or proof.rs, and all that lies in folders of these names.

What a module imports: each path that begins with `crate`, `self`, `super`, a child module, or a name that a `use` of the
file made. A path leads to the module that *defines* what is named: re-exports are followed. A module inside braces belongs
to its file.

Parent and child: a module and one inside it may refer to each other; that is no circle. It is one if the way leads through
a third module outside that line: `a::b` imports `c`, and `c` imports `a::b`.

Limits (each is one check, and is tried out at every run on a small tree in which it is broken: `planted`):
  circle.1  A circle of modules of a crate has at most CIRCLE_MAX of them.
  folder.1  The folders of a crate in NO_FOLDER_CIRCLES import each other in no circle.
  tower.1   A folder of TOWER imports only what stands after it.
  name.1    A name is that of at most NAMES_MAX types, outside NAMES_FREE.
  known.1   What is listed in KNOWN is there still: what has been mended goes from the list.
"""

import re
import statistics
import sys
import tempfile
import tomllib
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

CIRCLE_MAX = 3
NO_FOLDER_CIRCLES = {"host"}
# Arrows down only. `config`, `wire`, `error` and what is not a folder may be imported by all, and are not in the tower.
TOWER = {"host": ["server", "control", "worker", "export", "gateways", "disk", "device", "kernel"]}
NAMES_MAX = 3
NAMES_FREE = {"Settings", "State"}

# What is over a limit today. These lists only shrink: a circle may lose modules and a name types, none may gain, and a line
# for something that is within its limit fails (known.1).
KNOWN_CIRCLES = {}
KNOWN_FOLDERS = {}
KNOWN_UP = {}
KNOWN_NAMES = {}

ITEM_OF_TEST = re.compile(r"#\[cfg\((?:all\()?test\b[^\]]*\]")
LEFT_OUT = {"tests", "proof"}


# Reading a file.

LITERALS = re.compile(
    r"""//[^\n]* | (?P<block>/\*) | b?r(?P<hashes>\#*)".*?"(?P=hashes) | [bc]?"(?:\\.|[^"\\])*"
      | b?'(?:\\(?:u\{[^}]*\}|x..|.)|[^'\\])'""",
    re.VERBOSE | re.DOTALL,
)


def texts(source):
    """Where each comment and literal begins and ends."""
    at = 0
    while found := LITERALS.search(source, at):
        start, end = found.span()
        if found["block"]:  # they nest
            depth = 0
            for mark in re.finditer(r"/\*|\*/", source[start:]):
                depth += 1 if mark[0] == "/*" else -1
                if depth == 0:
                    end = start + mark.end()
                    break
        elif found[0].startswith(("r", "b", "c")) and start and re.match(r"\w", source[start - 1]):
            at = start + 1  # the end of a name, as in `for"`
            continue
        yield start, end
        at = end


def without_text(source):
    """The source with comments and literals blanked, so that lines and columns stay."""
    out, at = [], 0
    for start, end in texts(source):
        out += [source[at:start], re.sub(r"[^\n]", " ", source[start:end])]
        at = end
    return "".join([*out, source[at:]])


def end_of_item(source, at):
    """Where the item that begins here ends: behind its block, its semicolon, or the comma of a field or variant."""
    depth = 0
    for mark in re.finditer(r"[(\[{}\])]|;|,", source[at:]):
        if mark[0] in "([{":
            depth += 1
        elif mark[0] in ")]}":
            depth -= 1
            if depth < 0:
                return at + mark.start()
            if depth == 0 and mark[0] == "}":
                return at + mark.end()
        elif depth == 0 and (mark[0] == ";" or not re.match(r"\s*(?:pub\b|fn\b|impl\b|use\b)", source[at:])):
            return at + mark.end()
    return len(source)


def tests_in(source):
    """Each item behind `#[cfg(test)]`, in a source without text: where its first attribute, the item and its end are."""
    at = 0
    while mark := ITEM_OF_TEST.search(source, at):
        item = mark.end()
        while attribute := re.compile(r"\s*#\[[^\]]*\]").match(source, item):
            item = attribute.end()
        at = end_of_item(source, item)
        yield mark.start(), item, at


def without_tests(source):
    """The source with each item behind `#[cfg(test)]` taken out, with its lines; and the names of modules that were."""
    out, at, modules = [], 0, set()
    for start, item, end in tests_in(source):
        if module := re.match(r"\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*;", source[item:end]):
            modules.add(module[1])
        out.append(source[at:start].rstrip(" \t"))
        at = end
    return "".join([*out, source[at:]]), modules


def uses_of(tree, prefix=()):
    """(path, name it has here) for each leaf of a `use` tree; `*` is the name of a glob."""
    tree = tree.strip()
    if tree.endswith("}"):
        head, inner = tree[:-1].split("{", 1)
        prefix += tuple(part for part in head.replace(" ", "").split("::") if part)
        depth, part = 0, ""
        for char in inner + ",":
            depth += {"{": 1, "}": -1}.get(char, 0)
            if char == "," and depth == 0:
                if part.strip():
                    yield from uses_of(part, prefix)
                part = ""
            else:
                part += char
        return
    path, _, alias = re.sub(r"\s+", " ", tree).partition(" as ")
    path = prefix + tuple(part for part in path.replace(" ", "").split("::") if part)
    if path and path[-1] == "self" and len(path) > 1:
        path = path[:-1]
    if path:
        yield path, alias.strip() or path[-1]


class Module:
    """A file's module: its path in the crate, what it makes known by `use`, the paths in its code."""

    def __init__(self, name, file, source):
        self.name, self.file = name, file
        self.text = source
        code, self.test_modules = without_tests(without_text(source))
        self.code = code
        self.lines = sum(1 for line in code.splitlines() if line.strip())
        self.total = code.count("\n")  # with comments and empty lines
        self.uses, self.globs, self.paths = {}, [], []
        for found in re.finditer(r"\buse\s+([^;]+);", code):
            for path, alias in uses_of(found[1]):
                (self.globs.append(path) if alias == "*" else self.uses.__setitem__(alias, path))
                self.paths.append((path, True))
        body = re.sub(r"\buse\s+[^;]+;", "", code)
        for found in re.finditer(r"(?<![\w:$])(\$?\w+)((?:\s*::\s*\w+)+)", body):
            self.paths.append((tuple(re.split(r"\s*::\s*", found[0].replace("$", "").strip())), False))
        self.types = re.findall(r"^\s*(?:pub(?:\([^)]*\))?\s+)?(?:struct|enum|union|trait|type)\s+([A-Z]\w*)", self.outside_impls(), re.M)
        self.defines = set(re.findall(r"\b(?:struct|enum|union|trait|type|fn|const|static|macro_rules!)\s+(\w+)", code))

    def outside_impls(self):
        """The code without `impl` and `trait` bodies: a `type Item = …` in one is no type of its own."""
        out, at = [], 0
        for found in re.finditer(r"^\s*(?:unsafe\s+)?(?:impl\b|(?:pub(?:\([^)]*\))?\s+)?trait\b)[^{;]*\{", self.code, re.M):
            if found.start() < at:
                continue
            out.append(self.code[at : found.end()])
            at = end_of_item(self.code, found.end() - 1)
        return "".join([*out, self.code[at:]])

    def functions(self):
        """How many lines each function has, from its name to its last brace."""
        for found in re.finditer(r"\bfn\s+\w+[^;{]*\{", self.code):
            end = end_of_item(self.code, found.end() - 1)
            yield self.code.count("\n", found.start(), end) + 1, found[0].split()[1].split("(")[0].split("<")[0]


def modules(src):
    """The modules of a folder of sources, without programs and tests."""
    found, left_out = {}, set()
    for file in sorted(src.rglob("*.rs"), key=lambda file: (len(file.parts), file)):
        parts = list(file.relative_to(src).with_suffix("").parts)
        if parts[0] == "bin" or parts == ["main"] or LEFT_OUT & set(parts):
            continue
        if parts[-1] in ("mod", "lib"):
            parts.pop()
        if any(tuple(parts[: n + 1]) in left_out for n in range(len(parts))):
            continue
        module = Module(tuple(parts), file, file.read_text())
        left_out |= {(*parts, test) for test in module.test_modules}
        found[module.name] = module
    return [module for name, module in found.items() if not any(name[: n + 1] in left_out for n in range(len(name)))]


class Crate:
    def __init__(self, name, src):
        self.name = name
        self.modules = {module.name: module for module in modules(src)}
        self.edges = self.imports()

    def resolve(self, module, path, seen=()):
        """The module that defines what a path in `module` names, or None if that is not of this crate."""
        at, rest = self.start(module, path, seen)
        return None if at is None else self.follow(at, rest, seen)

    def start(self, module, path, seen):
        first, rest = path[0], path[1:]
        if first == "crate":
            return (), rest
        if first == "self":
            return module.name, rest
        if first == "super":
            at = module.name[:-1]
            while rest and rest[0] == "super":
                at, rest = at[:-1], rest[1:]
            return (at, rest) if module.name else (None, ())
        if (*module.name, first) in self.modules:
            return (*module.name, first), rest
        if first in module.uses and module.uses[first][0] != first and (module.name, first) not in seen:
            to = self.resolve_name(module, first, rest, seen)
            return (to, ()) if to is not None else (None, ())
        for glob in module.globs:
            to = self.resolve(module, glob[:-1], (*seen, (module.name, first))) if (module.name, first) not in seen else None
            if to is not None and ((*to, first) in self.modules or first in self.modules[to].uses):
                return to, path
        return None, ()

    def resolve_name(self, module, name, rest, seen):
        return self.resolve(module, module.uses[name] + rest, (*seen, (module.name, name)))

    def follow(self, at, rest, seen):
        """From module `at` on: into children as long as there are, then by the `use` that made the name known there."""
        while rest and (*at, rest[0]) in self.modules:
            at, rest = (*at, rest[0]), rest[1:]
        module = self.modules.get(at)
        if module is None or not rest or (at, rest[0]) in seen:
            return at
        if rest[0] in module.uses and rest[0] not in module.defines:
            to = self.resolve_name(module, rest[0], rest[1:], seen)
            return to  # None: a re-export of another crate's, which is nobody's import here
        if rest[0] not in module.defines:
            for glob in module.globs:
                to = self.resolve(module, (*glob[:-1], rest[0]), (*seen, (at, rest[0])))
                if to in self.modules and rest[0] in self.modules[to].defines:
                    return to
        return at

    def imports(self):
        """Which modules each imports, with the paths by which it does; none between a module and one inside it."""
        edges = defaultdict(lambda: defaultdict(set))
        for module in self.modules.values():
            for path, is_use in module.paths:
                if path[-1] == "*":
                    path = path[:-1]
                to = self.resolve(module, path) if path else None
                if to is None or to == () or to not in self.modules:
                    continue
                if to[: len(module.name)] == module.name or module.name[: len(to)] == to:
                    continue
                edges[module.name][to].add("::".join(path))
        return edges

    def circles(self):
        return circles_of({name: set(self.edges.get(name, ())) for name in self.modules})

    def folders(self):
        """Which folders each imports: top-level modules that have modules inside them."""
        top = {name[0] for name in self.modules if len(name) > 1}
        graph = {folder: {} for folder in sorted(top)}
        for one, others in self.edges.items():
            for other, paths in others.items():
                if one and one[0] in top and other[0] in top and one[0] != other[0]:
                    graph[one[0]].setdefault(other[0], []).append((one, other, sorted(paths)))
        return graph


def circles_of(graph):
    """The strongly connected components of more than one node, largest first (Tarjan, without recursion)."""
    index, low, stack, on, found = {}, {}, [], set(), []
    for root in graph:
        if root in index:
            continue
        work = [(root, iter(sorted(graph[root])))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on.add(root)
        while work:
            node, rest = work[-1]
            for other in rest:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    on.add(other)
                    work.append((other, iter(sorted(graph.get(other, ())))))
                    break
                if other in on:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    circle = []
                    while True:
                        circle.append(stack.pop())
                        on.discard(circle[-1])
                        if circle[-1] == node:
                            break
                    if len(circle) > 1:
                        found.append(sorted(circle))
    return sorted(found, key=lambda circle: (-len(circle), circle))


def said(name):
    return "::".join(name)


def tree(root):
    members = tomllib.loads((root / "Cargo.toml").read_text())["workspace"]["members"]
    return [Crate(member, root / member / "src") for member in members]


def types_by_name(crates):
    names = defaultdict(list)
    for crate in crates:
        for module in crate.modules.values():
            for name in module.types:
                names[name].append(f"{crate.name}::{said(module.name)}" if module.name else crate.name)
    return names


# The limits.


class Known:
    """The lists of what is over a limit today."""

    def __init__(self, circles, folders, up, names):
        self.circles, self.folders, self.up, self.names = circles, folders, up, names


TODAY = Known(KNOWN_CIRCLES, KNOWN_FOLDERS, KNOWN_UP, KNOWN_NAMES)
NOTHING = Known({}, {}, {}, {})


def checks(crates, known):
    """(what was looked at, what is wrong with it or None), one for each check; what is known is not wrong."""
    for crate in crates:
        yield from check_circles(crate, known.circles.get(crate.name, []))
        if crate.name in NO_FOLDER_CIRCLES:
            yield from check_folders(crate, known.folders.get(crate.name, []))
        if crate.name in TOWER:
            yield from check_tower(crate, known.up.get(crate.name, set()))
    yield from check_names(crates, known.names)


def check_circles(crate, known):
    found = [set(map(said, circle)) for circle in crate.circles()]
    yield f"circle.1 {crate.name}", None
    for circle in found:
        if len(circle) > CIRCLE_MAX and not any(circle <= listed for listed in known):
            lines = [f"circle.1 {crate.name}: {len(circle)} modules import each other in a circle, at most {CIRCLE_MAX} may"]
            for one, others in sorted(crate.edges.items()):
                for other in sorted(others):
                    if {said(one), said(other)} <= circle:
                        lines.append(f"    {said(one)} imports {said(other)} ({', '.join(sorted(others[other])[:3])})")
            yield lines[0], "\n".join(lines)
    for listed in known:
        within = not any(len(circle) > CIRCLE_MAX and circle & listed for circle in found)
        yield from stale(within, f"the circle of {', '.join(sorted(listed))} in {crate.name}", "KNOWN_CIRCLES")


def check_folders(crate, known):
    found = [set(circle) for circle in circles_of({one: set(others) for one, others in crate.folders().items()})]
    yield f"folder.1 {crate.name}", None
    for circle in found:
        if not any(circle <= listed for listed in known):
            wrong = f"folder.1 {crate.name}: the folders {', '.join(sorted(circle))} import each other in a circle"
            yield wrong, "\n".join([wrong, *(way for one in sorted(circle) for other in sorted(circle) for way in ways(crate, one, other)[:1])])
    for listed in known:
        yield from stale(not any(circle & listed for circle in found), f"the circle of folders {', '.join(sorted(listed))}", "KNOWN_FOLDERS")


def check_tower(crate, known):
    folders = crate.folders()
    tower = [folder for folder in TOWER[crate.name] if folder in folders]
    yield f"tower.1 {crate.name}", None
    up = {(one, other) for height, one in enumerate(tower) for other in tower[:height] if other in folders[one]}
    for one, other in sorted(up - known):
        wrong = f"tower.1 {crate.name}: {one} imports {other}, which stands above it in {' > '.join(tower)}"
        yield wrong, "\n".join([wrong, *ways(crate, one, other)])
    for one, other in sorted(known):
        yield from stale((one, other) not in up, f"{one} imports {other}", "KNOWN_UP")


def ways(crate, one, other):
    """Each import by which a folder reaches another."""
    found = crate.folders()[one].get(other, [])
    return [f"    {said(by)} imports {said(to)} ({', '.join(paths[:3])})" for by, to, paths in found]


def check_names(crates, known):
    names = types_by_name(crates)
    yield "name.1", None
    for name, places in sorted(names.items()):
        most = known.get(name, NAMES_MAX)
        if len(places) > most and name not in NAMES_FREE:
            wrong = f"name.1 {name} is the name of {len(places)} types, at most {most} may have it:"
            yield wrong, "\n    ".join([wrong, *sorted(places)])
    for name in sorted(known):
        yield from stale(len(names[name]) <= NAMES_MAX, f"{name} as the name of {known[name]} types", "KNOWN_NAMES")


def stale(mended, what, where):
    yield f"known.1 {what}", f"known.1 {what}: that is mended; take it out of {where}" if mended else None


# What must fail, on a tree that is made for it.

PLANTED = [
    # what is planted, {file of a crate: source}, what must be wrong ("" if nothing may be)
    ("nothing", {"host/src/lib.rs": "mod a;", "host/src/a.rs": "pub struct A;"}, ""),
    (
        "a circle of four",
        {f"host/src/{one}.rs": f"use crate::{other}::X{other}; pub struct X{one};" for one, other in ("ab", "bc", "cd", "da")},
        "circle.1 host: 4 modules",
    ),
    ("a circle of three", {f"host/src/{one}.rs": f"use crate::{other}::X; pub fn f() {{}}" for one, other in ("ab", "bc", "ca")}, ""),
    (
        "a circle of four by paths, re-exports and groups",
        {
            "cli/src/a/mod.rs": "mod hidden; pub(crate) use hidden::Deep; pub fn f() {}",
            "cli/src/a/hidden.rs": "pub struct Deep; fn g() { crate::b::f() }",
            "cli/src/b.rs": "use crate::{c::{self, X}}; fn f() { c::f() }",
            "cli/src/c.rs": "pub struct X; fn f() { super::d::f::<u8>() }",
            "cli/src/d.rs": "use crate::a; fn f(of: a::Deep) {}",
        },
        "circle.1 cli: 4 modules",
    ),
    (
        "a circle of four in comments, literals, tests and of parent and child",
        {
            "cli/src/a/mod.rs": "use self::b::X; pub struct Y; /* crate::c /* nested */ crate::c::f() */ // crate::c::f()\n"
            "const A: &str = \"\\\" crate::c::f()\"; const B: &str = r#\"\" crate::c::f()\"#; const C: char = '\"'; const D: &str = \"crate::c::f()\";\n"
            "#[cfg(test)]\nuse crate::c::f;\n#[cfg(all(test, unix))]\nmod inside { use crate::c::f; }\n#[cfg(test)]\nmod tests;",
            "cli/src/a/b.rs": "use super::Y; pub struct X;",
            "cli/src/a/tests.rs": "use crate::c::f;",
            "cli/src/c.rs": "use crate::d::X;",
            "cli/src/d.rs": "use crate::e::X; pub struct X;",
            "cli/src/e.rs": "use crate::a::Y; pub struct X;",
        },
        "",
    ),
    (
        "an import upwards",
        {"host/src/disk/mod.rs": "mod x;", "host/src/disk/x.rs": "use crate::server::y::MOST;", "host/src/server/y.rs": "pub const MOST: u8 = 1;"},
        "tower.1 host: disk imports server",
    ),
    (
        "a circle of four by a glob",
        {
            "cli/src/a/mod.rs": "use crate::b;",
            "cli/src/a/in.rs": "use super::*; fn f() { b::f() }",
            "cli/src/b.rs": "use crate::c::X; pub fn f() {}",
            "cli/src/c.rs": "use crate::d::X; pub struct X;",
            "cli/src/d.rs": "use crate::a::in::f; pub struct X;",
        },
        "circle.1 cli: 4 modules",
    ),
    (
        "an import downwards",
        {"host/src/server/y.rs": "use crate::disk::x::MOST;", "host/src/disk/x.rs": "pub const MOST: u8 = 1;"},
        "",
    ),
    (
        "a circle of folders beside the tower",
        {
            "host/src/wire/a.rs": "use crate::confine::x::X;",
            "host/src/confine/y.rs": "use crate::wire::b::Y;",
            "host/src/confine/x.rs": "pub struct X;",
            "host/src/wire/b.rs": "pub struct Y;",
        },
        "folder.1 host: the folders confine, wire",
    ),
    ("a name for four types", {f"{'host' if at % 2 else 'cli'}/src/m{at}.rs": "struct Step;" for at in range(4)}, "name.1 Step is the name of 4 types"),
    (
        "a name for three types, and what is none",
        {f"host/src/m{at}.rs": "pub(crate) enum Step {}" for at in range(3)}
        | {"host/src/n.rs": "impl Iterator for N { type Step = u8; }\n#[cfg(test)]\nmod tests { struct Step; }\n// struct Step;"},
        "",
    ),
]


def planted():
    """(what was planted, what is wrong with the guard or None): each limit is broken once, and is seen to be."""
    for what, files, expected in PLANTED:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "Cargo.toml").write_text('[workspace]\nmembers = ["host", "cli"]\n')
            for name, source in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(source)
            for folder in [folder for folder in root.glob("*/src/**/") if not folder.with_suffix(".rs").exists()]:
                (folder / ("lib.rs" if folder.name == "src" else "mod.rs")).touch()
            wrong = [why for _, why in checks(tree(root), NOTHING) if why]
            if expected:
                right = len(wrong) == 1 and wrong[0].startswith(expected)
            else:
                right = not wrong
            asked = f"one line `{expected}…`" if expected else "nothing"
            yield what, None if right else f"planted: {what}: {asked} should be wrong, and this was: {wrong or 'nothing'}"
    listed = Known({}, {}, {"host": {("disk", "server")}}, {"Nowhere": 5})
    wrong = [why for _, why in checks([Crate("host", ROOT / "none")], listed) if why]
    yield "a list that is stale", None if len(wrong) == 2 else f"planted: both stale lines should be wrong, and this was: {wrong}"


# The table.


def table(crates):
    yield "| crate | files | lines without tests | of these code | circles of modules | longest file | longest function | median function |"
    yield "|---|---|---|---|---|---|---|---|"
    total = [0, 0, 0]
    for crate in crates:
        modules = crate.modules.values()
        sums = [len(modules), sum(module.total for module in modules), sum(module.lines for module in modules)]
        total = [one + other for one, other in zip(total, sums)]
        circles = ", ".join(str(len(circle)) for circle in crate.circles()) or "none"
        longest = max(modules, key=lambda module: module.total)
        functions = [(lines, module, name) for module in modules for lines, name in module.functions()]
        most, where, name = max(functions, key=lambda function: function[0])
        median = statistics.median(lines for lines, _, _ in functions)
        file, holder = (module.file.relative_to(ROOT) for module in (longest, where))
        yield (
            f"| {crate.name} | {sums[0]} | {sums[1]:,} | {sums[2]:,} | {circles} | {longest.total} (`{file}`) "
            f"| {most} (`{holder}:{name}`) | {median:.0f} |"
        )
    yield f"| all | {total[0]} | {total[1]:,} | {total[2]:,} | | | | |"
    yield ""
    for crate in crates:
        if crate.name in TOWER:
            circles = circles_of({one: set(others) for one, others in crate.folders().items()})
            yield f"Folders of {crate.name} in a circle: {'; '.join(', '.join(circle) for circle in circles) or 'none'}."
    names = {name: len(places) for name, places in types_by_name(crates).items() if name not in NAMES_FREE}
    most = sorted((-count, name) for name, count in names.items() if count > NAMES_MAX)
    yield f"Names of more than {NAMES_MAX} types: {', '.join(f'`{name}` {-count}' for count, name in most) or 'none'}."


def edges(crates, asked):
    crate, _, name = asked.partition("::")
    for one in crates:
        for other, paths in sorted(one.edges.get(tuple(name.split("::")) if name else (), {}).items()) if one.name == crate else ():
            print(f"{one.name}::{said(other)}: {', '.join(sorted(paths))}")


def main(arguments):
    crates = tree(ROOT)
    if len(arguments) == 2 and arguments[0] == "--edges":
        edges(crates, arguments[1])
        return 0
    if arguments:
        print(__doc__)
        return 2
    print(*table(crates), "", sep="\n")
    passed = failed = 0
    for _, wrong in [*planted(), *checks(crates, TODAY)]:
        if wrong:
            failed += 1
            print(wrong)
        else:
            passed += 1
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
