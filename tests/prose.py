#!/usr/bin/env python3
"""Whether the text that people read can be read once: the length of pages and sentences, and turns of speech that need a second reading.

    tests/prose.py            the counts, then what is over a bound; the last line counts
    tests/prose.py --show     each sentence that is counted, with its place
    tests/prose.py FILE...    only these pages, or the comments and messages of these Rust files

What is read:
  user pages    README.md, SECURITY.md, CONTRIBUTING.md and docs/, without docs/measured/ and docs/tried.md, which are records.
                Code blocks and headings are not read.
  records       docs/measured/ and docs/tried.md. They may be long and full of evidence.
  comments      the comments of the crates. Each rule of a header is a paragraph.
  messages      the string literals of the program, of MESSAGE_WORDS words or more, a line at a time. Tests do not count.

Each has bounds: how many sentences of a kind there may be in a thousand words. Each kind, the bounds of each text and that of a page's length
are tried out at every run, on small trees in which one of them is broken: `planted`."""

import re
import sys
import tempfile
from pathlib import Path

import structure

ROOT = Path(__file__).resolve().parent.parent
RECORDS = ("docs/measured/", "docs/tried.md")
NOT_READ = ("docs/SUMMARY.md",)
# Looked up a line at a time, not read: they may be long.
REFERENCE = ("SECURITY.md",)
CRATES = ("core", "host", "lab", "cli", "threads", "proving")
# The crates that a user hears of.
PROGRAM = ("cli", "host")
PAGE_WORDS, SENTENCE_WORDS, MESSAGE_WORDS = 1200, 35, 4

# A kind of riddle, and how it looks in one sentence.
KINDS = {
    # "What was changed so lasts": the subject is a clause. A question may begin so.
    "opening": re.compile(r"^(?:what|who|whoever|whatever|that which|those which|one that|one who|so much|so many|whose)\b(?!.*\?$)", re.I),
    # "beside what weights entitle to": a clause where a noun would stand.
    "what-clause": re.compile(r"(?<!^)\b(?:of|to|by|for|with|in|on|from|than|beside|that|and|or|as|is|was|at|over|but|all|takes|has|tells) what(?:ever)?\b(?!.*\?$)", re.I),
    # "who asks pays": nobody was named before.
    "who": re.compile(r"(?:^|[;:(] |\b(?:and|or|to|by|for|of|that|than|but|if|from|is) )who(?:ever)?\b(?!.*\?$)", re.I),
    "of which": re.compile(r"\b(?:of|beside|than) (?:which|whom)\b", re.I),
    "it is … that": re.compile(r"(?:^it (?:is|was) [^,.;:]{1,40} (?:that|who|which)\b|\bthat (?:is|are|was|were) there\b)", re.I),
    "so much": re.compile(r"\bso (?:much|many)\b", re.I),
    "she": re.compile(r"\b(?:she|hers?)\b", re.I),
}
# Evidence: it belongs in docs/measured/.
EVIDENCE = re.compile(r"\b(?:seeds? \d+|20[12]\d-\d\d-\d\d|(?:commit|at|of|build of) [0-9a-f]{7,40})\b|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,8}\b")

# By a thousand words.
BOUNDS = {"opening": 0.6, "what-clause": 0.4, "who": 0.3, "of which": 0.1, "it is … that": 0.1, "so much": 0.15, "she": 0.1, "long sentence": 0.6, "evidence": 0.2}
# Reached when its pages were first read by this list, and a third more: rows of tables are sentences there.
RECORD_BOUNDS = {"opening": 0.4, "what-clause": 0.7, "who": 0.2, "of which": 0.3, "it is … that": 0.1, "so much": 0.15, "she": 0.1, "long sentence": 1.6}
COMMENT_BOUNDS = {"opening": 0.1, "what-clause": 0.1, "who": 0.1, "of which": 0.1, "it is … that": 0.1, "so much": 0.1, "she": 0.1, "long sentence": 1.2}
MESSAGE_BOUNDS = {"opening": 0.2, "what-clause": 0.1, "who": 0.1, "of which": 0.1, "it is … that": 0.1, "so much": 0.1, "she": 0.1, "long sentence": 0.4}


def plain(text):
    """Text as it is read: a link is its words, code one word."""
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)
    text = re.sub(r"`[^`]*`", "Code", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"<[^>]+>", "", text)
    return re.sub(r"[*_]{1,2}(\S.*?\S|\S)[*_]{1,2}", r"\1", text)


def paragraphs(text):
    """Each paragraph, list item and cell of a table, with the number of its first line."""
    found, at, fence, comment = [], 0, False, False
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.strip()
        if bare.startswith("```"):
            fence = not fence
        comment = comment or bare.startswith("<!--")
        if fence or comment or not bare or bare.startswith(("#", "```")):
            if found:
                yield at, " ".join(found)
            found = []
            comment = comment and not bare.endswith("-->")
            continue
        if bare.startswith("|"):
            for cell in re.split(r"(?<!\\)\|", bare.strip("|")):
                if re.search(r"[a-z]", cell):
                    yield number, cell.strip()
            continue
        item = re.match(r"(?:[-*+]|\d+\.) +(.*)", bare)
        if item and found:
            yield at, " ".join(found)
            found = []
        if not found:
            at = number
        found.append(item.group(1) if item else bare)
    if found:
        yield at, " ".join(found)


def comments(text):
    """The same of a Rust file: the paragraphs of its comments. A rule begins one, as an item of a list does."""
    lines = (re.match(r"\s*//[/!]? ?(.*)", line) for line in text.splitlines())
    bare = (line.group(1) if line else "" for line in lines)
    return paragraphs("\n".join(re.sub(r"^[a-z_]+\.\d+ ", "- ", line) for line in bare))


def messages(source):
    """The lines of a Rust file's string literals, with the number of the literal's first line."""
    code = structure.without_text(source)
    tests = [(start, end) for start, _, end in structure.tests_in(code)]
    for start, end in structure.texts(source):
        found = re.fullmatch(r'(r?)(#*)"(.*)"#*', source[start:end], re.DOTALL)
        if not found or any(first <= start < last for first, last in tests):
            continue
        text = found[3]
        if not found[1]:
            text = re.sub(r"\\\n\s*", "", text).replace("\\n", "\n")
            text = re.sub(r"\\(.)", r"\1", text)
        for line in text.splitlines():
            if len(line.split()) >= MESSAGE_WORDS:
                yield source.count("\n", 0, start) + 1, line.strip()


def sentences(paragraph):
    return [each for each in re.split(r"(?<=[.!?])[)\"']?\s+(?=[A-Z`*(\[\"'])", plain(paragraph)) if each]


def words(text):
    return len(re.findall(r"[A-Za-z0-9][\w'’.,%/-]*", text))


def look(parts, evidence):
    """How many words there are, and what is found in them: (kind, line, sentence)."""
    count, found = 0, []
    for line, paragraph in parts:
        if evidence and EVIDENCE.search(paragraph):
            found.append(("evidence", line, paragraph))
        for sentence in sentences(paragraph):
            count += words(sentence)
            if words(sentence) > SENTENCE_WORDS:
                found.append(("long sentence", line, sentence))
            found += [(kind, line, sentence) for kind, pattern in KINDS.items() for _ in pattern.findall(sentence)]
    return count, found


# What is read, and how much of a kind there may be.


def pages(root, are_records):
    """User pages, or records."""
    every = [root / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md")] + sorted((root / "docs").rglob("*.md"))
    for page in filter(Path.exists, every):
        name = page.relative_to(root).as_posix()
        if name not in NOT_READ and name.startswith(RECORDS) == are_records:
            yield name, page.read_text()


def sources(root, crates):
    """The modules of crates, without those that are tests."""
    for crate in crates:
        for module in structure.modules(root / crate / "src"):
            yield module.file.relative_to(root).as_posix(), module.file.read_text()


def texts(root):
    """(title, bounds, [(file, its paragraphs, whether evidence is looked for)]) of all that is read."""
    files = sorted(file for crate in CRATES for file in (root / crate / "src").rglob("*.rs"))
    yield "user pages", BOUNDS, [(name, paragraphs(text), True) for name, text in pages(root, False)]
    yield "records", RECORD_BOUNDS, [(name, paragraphs(text), False) for name, text in pages(root, True)]
    yield "comments", COMMENT_BOUNDS, [(file.relative_to(root).as_posix(), comments(file.read_text()), False) for file in files]
    yield "messages", MESSAGE_BOUNDS, [(name, messages(text), False) for name, text in sources(root, PROGRAM)]


class Counted:
    """The words of a text, and what is found in it."""

    def __init__(self, title, bounds, parts):
        self.title, self.bounds, self.words, self.found = title, bounds, 0, []
        for name, paragraphs_of, evidence in parts:
            count, found = look(paragraphs_of, evidence)
            self.words += count
            self.found += [(kind, f"{name}:{line}", sentence) for kind, line, sentence in found]

    def number(self, kinds):
        return sum(1 for kind, _, _ in self.found if kind in kinds)

    def rate(self, *kinds):
        return 1000 * self.number(kinds) / max(self.words, 1)

    def above(self):
        """What is wrong with it: a line for each kind of which there is too much."""
        for kind, bound in self.bounds.items():
            if self.rate(kind) > bound:
                yield f"{self.title}: {kind}: {self.rate(kind):.2f} in a thousand words, at most {bound}; see tests/prose.py --show"

    def table(self):
        yield f"{self.title}: {self.words} words"
        for kind in [*KINDS, "long sentence", "evidence"]:
            if kind in self.bounds or not self.bounds:
                bound = f", at most {self.bounds[kind]}" if self.bounds else ""
                yield f"  {kind:14} {self.number([kind]):5}  {self.rate(kind):6.2f} in a thousand{bound}"
        yield f"  {'all riddles':14} {self.number(KINDS):5}  {self.rate(*KINDS):6.2f} in a thousand"

    def show(self):
        return (f"{where}: {kind}: {sentence}" for kind, where, sentence in self.found)


def too_long(root):
    """For each user page, what is wrong with its length or None."""
    for name, text in pages(root, False):
        count, _ = look(paragraphs(text), False)
        wrong = f"{name}: {count} words; a page has at most {PAGE_WORDS}: split it by subject, or move figures to docs/measured/"
        yield wrong if count > PAGE_WORDS and name not in REFERENCE else None


def checks(root, counted):
    """What is wrong or None, one for each check."""
    yield from too_long(root)
    for text in counted:
        above = list(text.above())
        yield from above
        yield from [None] * (len(text.bounds) - len(above))


# What must fail, on a tree that is made for it.

PLAIN = "The server keeps the rate of a tenant below its limit. "
PLANTED = [
    # what is planted, {file: text}, how each line begins that must be wrong
    ("nothing", {"README.md": PLAIN, "docs/a.md": PLAIN, "docs/tried.md": PLAIN, "cli/src/a.rs": f'// {PLAIN}\nconst A: &str = "{PLAIN}";'}, []),
    ("a long page", {"docs/a.md": PLAIN * 110}, ["docs/a.md: 1210 words"]),
    ("a long page of reference, and a long record", {"SECURITY.md": PLAIN * 110, "docs/measured/a.md": PLAIN * 110}, []),
    ("an opening in SECURITY.md", {"SECURITY.md": "What a client asks is checked."}, ["user pages: opening"]),
    ("a clause in CONTRIBUTING.md", {"CONTRIBUTING.md": "The server answers by what it knows."}, ["user pages: what-clause"]),
    ("a subject that is nobody, in a list", {"README.md": "- The disk is busy: who waits longest is next."}, ["user pages: who"]),
    ("a relative clause, in a cell", {"docs/a.md": "| disk | a disk of which no reader is known |"}, ["user pages: of which"]),
    ("a cleft sentence", {"docs/a.md": "It is the disk that waits."}, ["user pages: it is … that"]),
    ("an amount without a number", {"docs/a.md": "The disk takes so many requests."}, ["user pages: so much"]),
    ("a person", {"docs/a.md": "Alice has her own disk."}, ["user pages: she"]),
    ("evidence", {"docs/a.md": "This was seen at seed 17."}, ["user pages: evidence"]),
    ("a long sentence", {"docs/a.md": "The server " + "and its disk " * 12 + "wait."}, ["user pages: long sentence"]),
    ("all of that in code, headings, remarks and questions", {"docs/a.md": "# What is\n```\nWhat is so much\n```\n<!-- what is -->\nWhat is a disk?\n`by what it is`"}, []),
    ("a record", {"docs/measured/a.md": "What a run showed is here. Seed 17 was at fault."}, ["records: opening"]),
    ("a rule and a comment", {"core/src/a.rs": "//! a.1  Rules are kept.\n//! a.2  What waits is told.\nfn f() {} // by what is told"}, ["comments: opening"]),
    ("two rules, long together", {"core/src/a.rs": f"//! a.1  {PLAIN.strip('. ')} and at\n//!      its floor in each second;\n" * 2 + "//! a.2  end"}, []),
    ("a message", {"host/src/a.rs": 'fn f() { log!("what was asked \\\n    is {here}") }'}, ["messages: opening"]),
    ("a message of some lines", {"cli/src/a.rs": 'const A: &str = r#"One line of it.\nwho may connect there: "all""#;'}, ["messages: opening", "messages: who"]),
    ("a long message", {"cli/src/a.rs": f'const A: &str = "{"the disk and " * 12}";'}, ["messages: long sentence"]),
    (
        "messages of tests, of few words, and of another crate",
        {
            "host/src/a.rs": 'const A: &str = "what is it"; const B: char = \'"\'; /* "what is in a comment" */\n'
            '#[cfg(test)]\nmod inside { const C: &str = "what is it that waits"; }\n#[cfg(test)]\nmod tests;\n',
            "host/src/a/tests.rs": 'const A: &str = "what is it that waits";',
            "lab/src/a.rs": 'const A: &str = "what is it that waits";',
        },
        [],
    ),
]


def planted():
    """For each that is planted, what is wrong with this script or None."""
    for what, files, expected in PLANTED:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            wrong = [why for why in checks(root, [Counted(*text) for text in texts(root)]) if why]
        right = len(wrong) == len(expected) and all(why.startswith(begins) for why, begins in zip(wrong, expected))
        yield None if right else f"planted: {what}: {expected or 'nothing'} should be wrong, and this was: {wrong or 'nothing'}"


def named(arguments):
    for argument in arguments:
        text = Path(argument).read_text()
        if argument.endswith(".rs"):
            yield argument, [*comments(text), *messages(text)], False
        else:
            yield argument, paragraphs(text), True


def main(arguments):
    files = [argument for argument in arguments if argument != "--show"]
    if files:
        text = Counted("these files", {}, named(files))
        print(*text.show(), *text.table(), sep="\n")
        return 0
    counted = [Counted(*text) for text in texts(ROOT)]
    for text in counted:
        if "--show" in arguments:
            print(*text.show(), sep="\n")
        print(*text.table(), sep="\n")
    found = [*planted(), *checks(ROOT, counted)]
    wrong = [why for why in found if why]
    print(*wrong, *[f"{len(found) - len(wrong)} passed, {len(wrong)} failed, 0 skipped"], sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
