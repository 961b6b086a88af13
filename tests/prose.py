#!/usr/bin/env python3
"""Whether the pages that a user reads can be read once: their length, the length of their sentences, and turns of speech that need a second reading.

    tests/prose.py            the counts, and each page that is too long
    tests/prose.py --show     each sentence that is counted, with its place
    tests/prose.py FILE...    only these pages

User pages are README.md and docs/, without docs/measured/, docs/tried.md and docs/changes.md, which are records. Code blocks and headings are not
read. The counts are by a thousand words; BOUNDS says how many of a kind there may be in user pages, MEASURED in docs/measured/ and docs/tried.md, which may
be long and full of evidence. Comments of the crates are counted by the same list."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECORDS = ("docs/measured/", "docs/tried.md", "docs/changes.md", "docs/SUMMARY.md")
CRATES = ("core", "host", "lab", "cli", "threads", "proving")
PAGE_WORDS, SENTENCE_WORDS = 1200, 35

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
MEASURED = {"opening": 0.4, "what-clause": 0.7, "who": 0.2, "of which": 0.3, "it is … that": 0.1, "so much": 0.15, "she": 0.1, "long sentence": 1.6}


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
    """The same of a Rust file: the paragraphs of its comments."""
    lines = (re.match(r"\s*//[/!]? ?(.*)", line) for line in text.splitlines())
    return paragraphs("\n".join(line.group(1) if line else "" for line in lines))


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


def user_pages():
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in pages if not str(page.relative_to(ROOT)).startswith(RECORDS)]


def table(title, count, found, bounds):
    """A line for each kind; the kinds above their bounds."""
    print(f"{title}: {count} words")
    above = []
    for kind in BOUNDS:
        number = sum(1 for each, _, _ in found if each == kind)
        rate = 1000 * number / max(count, 1)
        bound = bounds.get(kind) if bounds else None
        high = bound is not None and rate > bound
        above += [kind] if high else []
        print(f"  {kind:14} {number:5}  {rate:6.2f} in a thousand" + (f", at most {bound}" if bound is not None else "") + ("  TOO MANY" if high else ""))
    total = sum(1 for kind, _, _ in found if kind in KINDS)
    print(f"  {'all riddles':14} {total:5}  {1000 * total / max(count, 1):6.2f} in a thousand")
    return above


def main(arguments):
    show = "--show" in arguments
    named = [Path(each).resolve() for each in arguments if each != "--show"]
    passed, failed = 0, 0
    all_words, all_found = 0, []
    for page in named or user_pages():
        name = str(page.relative_to(ROOT)) if page.is_relative_to(ROOT) else str(page)
        count, found = look(paragraphs(page.read_text()), True)
        all_words, all_found = all_words + count, all_found + found
        if show or named:
            for kind, line, sentence in found:
                print(f"{name}:{line}: {kind}: {sentence}")
        if count > PAGE_WORDS:
            failed += 1
            print(f"{name}: {count} words; a page has at most {PAGE_WORDS}: split it by subject, or move figures to docs/measured/")
        else:
            passed += 1
    above = table("user pages", all_words, all_found, None if named else BOUNDS)
    passed, failed = passed + len(BOUNDS) - len(above), failed + len(above)
    if not named:
        records = [*sorted((ROOT / "docs/measured").glob("*.md")), ROOT / "docs/tried.md"]
        pages = [look(paragraphs(page.read_text()), False) for page in records]
        high = table("docs/measured, docs/tried.md", sum(count for count, _ in pages), [each for _, found in pages for each in found], MEASURED)
        passed, failed = passed + len(MEASURED) - len(high), failed + len(high)
        files = [path for crate in CRATES for path in sorted((ROOT / crate / "src").rglob("*.rs"))]
        looked = [look(comments(path.read_text()), False) for path in files]
        table("comments", sum(count for count, _ in looked), [each for _, found in looked for each in found], None)
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
