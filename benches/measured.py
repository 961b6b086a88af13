#!/usr/bin/env python3
"""Writes docs/measured/: each page is made of its sentences and its figures.

    benches/measured.py [PAGE...]            write all pages, or those named
    benches/measured.py --check              name each page that is not what would be written; exit code 1 if there is one

benches/pages/NAME.toml holds the figures. [page] has the machine, the commit and the command of all of its tables; each other section is a table:
its columns, its rows, and its own commit and command where they differ. A bench with --record replaces a table or adds a row.

benches/pages/NAME.page holds the sentences; a page without figures has no NAME.toml. `${head}` is the line of machine, commit and command, and
`${reads.from_}` that of a table. `${...}` is an expression of Python over the tables, with a format as in an f-string: `${reads[0].fair / reads[0].none:.2f}`. A line that begins with
`${each reads}` is written once for each row of `reads`, whose columns are names there; `first` and `before` are the first row and the one before.
A cell with a text in place of its figure is written as that text. Ratios, spans and the bold of a missed aim are
computed from the figures: see `span`, `between`, `ratios`, `of_best`, `at_least` and `at_most`.
"""

import json
import re
import subprocess
import sys
import tomllib
from decimal import Decimal
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES, WRITTEN = ROOT / "benches/pages", ROOT / "docs/measured"
# Their own scripts write these: `tests/bugs/run.py --docs` from tests/bugs/bugs.toml, `benches/seeds.py --write` by running each row.
OTHERS = ("planted-bugs", "seeds")
EXPRESSION = re.compile(r"\$\{([^}]*)\}")
NUMBER = (int, Decimal, float)


class Row:
    """A row of a table: its columns are attributes."""

    def __init__(self, columns, cells):
        self.__dict__.update(zip(columns, cells, strict=True))


class Table(list):
    """The rows of a table, with its head as attributes."""

    def __init__(self, name, section, page):
        super().__init__(Row(section["columns"], cells) for cells in section["rows"])
        self.name = name
        self.commit = section.get("commit", page["commit"])
        self.command = section.get("command", page["command"])
        self.from_ = f"`{self.command}`, {self.commit}"


def values(table, expression):
    """The value of an expression for each row that has all of its figures."""
    for row in table:
        named = vars(row)
        used = [named[name] for name in re.findall(r"[a-z]\w*", expression) if name in named]
        if all(isinstance(value, NUMBER) for value in used):
            yield eval(expression, FUNCTIONS, named)


def span(table, expression, form=".2f"):
    """Least to most over the rows: `1.27 to 3.66`."""
    low, high = (format(bound(values(table, expression)), form) for bound in (min, max))
    return low if low == high else f"{low} to {high}"


def between(*figures, form=".2f"):
    """Least to most of the figures of several tables: `1.3 to 4.9`."""
    all_of_them = [figure for each in figures for figure in each]
    low, high = (format(bound(all_of_them), form) for bound in (min, max))
    return low if low == high else f"{low} to {high}"


def ratios(table, ours, others="", best=max):
    """For each row, each of our columns over the best of the others, by words in their names."""
    for row in table:
        there = {name: value for name, value in vars(row).items() if isinstance(value, NUMBER)}
        beside = [value for name, value in there.items() if ours not in name and others in name]
        yield from (Decimal(value) / best(beside) for name, value in there.items() if ours in name and beside)


def only(table, *words):
    """The rows whose first cell has one of the words."""
    return [row for row in table if any(word in str(next(iter(vars(row).values()))) for word in words)]


def at_least(figure, aim, form=".2f"):
    """A figure, in bold where it misses its aim."""
    return f"{figure:{form}}" if figure >= Decimal(str(aim)) else f"**{figure:{form}}**"


def at_most(figure, aim, form=".2f"):
    return f"{figure:{form}}" if figure <= Decimal(str(aim)) else f"**{figure:{form}}**"


def of_best(figure, *others):
    """How often the best of the others it is, in bold where it is behind."""
    return at_least(Decimal(figure) / max(others), 1)


def short(figure):
    """`3519` `4.2k` `128k` `1.09M`: as many digits as were measured."""
    return f"{figure / 1e6:.2f}M" if figure >= 1e6 else f"{figure // 1000}k" if figure >= 1e5 else f"{figure / 1000:.1f}k" if figure % 100 == 0 else str(figure)


FUNCTIONS = {each.__name__: each for each in (Decimal, span, between, ratios, only, of_best, at_least, at_most, short, values)}


def expanded(text, names):
    """The text with each `${...}` replaced by its value."""
    return EXPRESSION.sub(lambda found: eval(f'f"""{{{found[1]}}}"""', FUNCTIONS, names), text)


def cell(pattern, names, numeric):
    """A cell of a table: the text where a figure should be, or the pattern with its figures."""
    used = [names[name] for found in EXPRESSION.findall(pattern) for name in re.findall(r"[a-z]\w*", found) if name in numeric]
    text = [value for value in used if isinstance(value, str)]
    return f" {text[0]} " if text else expanded(pattern, names)


def lines(template, tables):
    for line in template.splitlines():
        each = re.match(r"\$\{each (\w+)\}(.*)", line)
        if not each:
            yield expanded(line, tables)
            continue
        rows = tables[each[1]]
        numeric = {name for row in rows for name, value in vars(row).items() if isinstance(value, NUMBER)}
        for at, row in enumerate(rows):
            names = tables | vars(row) | {"first": rows[0], "before": rows[max(at - 1, 0)], "row": row}
            yield re.sub(r"\|\s+(?=\|)", "| ", "|".join(cell(part, names, numeric) for part in each[2].split("|")))


def data(name):
    return tomllib.loads((PAGES / f"{name}.toml").read_text(), parse_float=Decimal)


def contents():
    """A row for each page that has figures."""
    pages = []
    for path in sorted(PAGES.glob("*.toml")):
        title = re.search(r"^# (.*)", path.with_suffix(".page").read_text())[1]
        pages.append({"title": title, "name": path.stem, **data(path.stem)["page"]})
    pages.sort(key=lambda page: page["title"])
    return [Row(page.keys(), page.values()) for page in pages]


def written(name):
    """The text of a page."""
    note = f"<!-- Written by benches/measured.py from benches/pages/{name}.page. -->\n"
    with_figures = (PAGES / f"{name}.toml").exists()
    names = {"pages": contents()} if name == "README" else figures(data(name)) if with_figures else {}
    return note + "\n".join(lines((PAGES / f"{name}.page").read_text(), names)) + "\n"


def figures(sections):
    """The tables of a page by name, and its head."""
    page = sections.pop("page")
    commit = f"Commit: {page['commit']}, unless a table names another." if page["commit"] else "Commit: each table names its own."
    head = f"Machine: {page['machine']}. {commit} Command: {page['command']}."
    return {"head": head} | {key: Table(key, section, page) for key, section in sections.items()}


def toml(value):
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)


def section(name, columns, rows, **head):
    """A table as it stands in a data file."""
    said = [f"{key} = {toml(value)}" for key, value in head.items() if value is not None]
    cells = "".join(f"  [{', '.join(map(toml, row))}],\n" for row in rows)
    return "\n".join([f"[{name}]", *said, f"columns = [{', '.join(map(toml, columns))}]", f"rows = [\n{cells}]"]) + "\n"


def commit():
    return subprocess.run(["git", "-C", ROOT, "rev-parse", "--short=8", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()


def record(page, name, rows, command):
    """Replaces the rows of a table by those of a run, with the commit that made them, and writes the page."""
    path, columns = PAGES / f"{page}.toml", data(page)[name]["columns"]
    made = section(name, columns, rows, commit=commit(), command=command)
    there = re.compile(rf"(?ms)^\[{re.escape(name)}\]\n.*?^\]\n")
    path.write_text(there.sub(lambda _: made, path.read_text()))
    write(page)


def append(page, name, row):
    """Adds a row to a table, and writes the page."""
    path, cells = PAGES / f"{page}.toml", f"  [{', '.join(map(toml, row))}],\n"
    path.write_text(re.sub(rf"(?ms)^\[{re.escape(name)}\]\n.*?(?=^\]\n)", lambda there: there[0] + cells, path.read_text()))
    write(page)


def write(name):
    (WRITTEN / f"{name}.md").write_text(written(name))


def main(arguments):
    names = sorted(path.stem for path in PAGES.glob("*.page"))
    if arguments != ["--check"]:
        for name in arguments or names:
            write(name)
        return 0
    wrong = []
    for page in sorted(WRITTEN.glob("*.md")):
        if page.stem in OTHERS:
            continue
        if page.stem not in names:
            wrong.append(f"{page.relative_to(ROOT)}: there is no benches/pages/{page.stem}.page to write it from")
        elif page.read_text() != written(page.stem):
            wrong.append(f"{page.relative_to(ROOT)} is not what benches/measured.py writes: change benches/pages/{page.stem}.page or .toml and run it")
    print("\n".join([*wrong, f"{len(names) - len(wrong)} passed, {len(wrong)} failed, 0 skipped"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
