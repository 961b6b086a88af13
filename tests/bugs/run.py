#!/usr/bin/env python3
"""Plants bugs, one at a time, and sees that each is caught by the test that is named beside it (bugs.toml).

    tests/bugs/run.py [WORD ...]     all, or those whose name, file or test holds one of the words

    tests/bugs/run.py --build [WORD ...]
                                     compiles what that needs, and runs nothing

    tests/bugs/run.py --docs         writes docs/measured/planted-bugs.md, and how many each promise of docs/reliability.md has

    tests/bugs/run.py --torture 60 [WORD ...]
                                     makes so many runs of each suite of torture with each bug of core, and says which it finds

The tree is copied to target/bugs with all bugs in it, each asked for by its name in FAIRLIFT_BUG, so that one build serves all.
A test must pass without a bug, and fail, abort or hang with its own.
"""

import concurrent.futures
import json
import os
import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPY = ROOT / "target/bugs"
TARGET = COPY / "target"
PROMISES, LIST = ROOT / "docs/reliability.md", ROOT / "docs/measured/planted-bugs.md"
# A test with a bug hangs if it has not ended after so many seconds. Without a bug it may wait for the processors: CI runs it beside others.
HANGS, PATIENCE = 45, 300
PACKAGES = {"core": "fairlift-core", "threads": "fairlift-threads", "host": "fairlift", "lab": "fairlift-lab", "proving": "fairlift-proving"}
ASKED = '''
#[doc(hidden)]
pub mod planted {
    extern crate std;

    pub fn is(name: &str) -> bool {
        static BUG: std::sync::OnceLock<Option<std::string::String>> = std::sync::OnceLock::new();
        BUG.get_or_init(|| std::env::var("FAIRLIFT_BUG").ok()).as_deref() == Some(name)
    }
}
'''


def planted(bug, text):
    """The source with a bug in it that can be asked for."""
    name, right = bug["name"], bug["right"]
    if text.count(right) != 1:
        sys.exit(f"{bug['file']} has `{right}` {text.count(right)} times, not once: {name}")
    place = "crate" if bug["file"].startswith("core/") else "fairlift_core"
    asked = f"{place}::planted::is({json.dumps(name, ensure_ascii=False)})"
    if "text" in bug:
        return text.replace(right, bug["text"].replace("PLANTED", asked))
    return text.replace(right, f"{{ if {asked} {{ {bug['wrong']} }} else {{ {right} }} }}" if right.endswith(";")
                        else f"(if {asked} {{ {bug['wrong']} }} else {{ {right} }})")


def copy(bugs):
    """The tree with all bugs; what is as it was keeps its time, so that it is not compiled again."""
    files = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, text=True, check=True).stdout.split("\0")
    files = [name for name in files if (ROOT / name).is_file()]
    for there in COPY.rglob("*"):
        if there.is_file() and not there.is_relative_to(COPY / "target") and str(there.relative_to(COPY)) not in files:
            there.unlink()
    for name in files:
        content = (ROOT / name).read_bytes()
        here = [bug for bug in bugs if bug["file"] == name]
        for bug in here:
            content = planted(bug, content.decode()).encode()
        # Those too that are not compiled now are Rust.
        if here and (wrong := subprocess.run(["rustfmt", "--edition", "2024", "--emit", "stdout"], input=content, capture_output=True)).returncode:
            sys.exit(f"{name} with {', '.join(bug['name'] for bug in here)}:\n{wrong.stderr.decode()}")
        if name == "core/src/lib.rs":
            content += ASKED.encode()
        there = COPY / name
        if not there.exists() or there.read_bytes() != content:
            there.parent.mkdir(parents=True, exist_ok=True)
            there.write_bytes(content)
            there.chmod((ROOT / name).stat().st_mode)


def cargo(*words):
    """Runs cargo in the copy; the programs it made, by the names of their targets."""
    # Each test runs by itself, so to compile takes longer than to run.
    quick = ["--config", "profile.dev.package.fairlift-core.opt-level=0", "--config", "profile.dev.debug=false"]
    command = ["cargo", *words, "--locked", "--message-format=json-render-diagnostics", *quick]
    environment = os.environ | {"CARGO_TARGET_DIR": str(TARGET)}
    made = subprocess.run(command, cwd=COPY, stdout=subprocess.PIPE, text=True, env=environment)
    if made.returncode:
        sys.exit("the tree with the bugs does not compile")
    messages = [json.loads(line) for line in made.stdout.splitlines() if line.startswith("{")]
    return {("lib" if "lib" in m["target"]["kind"] else m["target"]["name"]): m["executable"]
            for m in messages if m.get("executable")}


def build(tests):
    """The programs that hold these tests, and no other: by crate and name."""
    needed = {}
    for crate, program, *_ in (test.split(":") for test in tests):
        needed.setdefault(crate, set()).add(program)
    programs = {}
    for crate, names in needed.items():
        if crate == "e2e":
            programs[crate] = cargo("build", "-p", "fairlift-cli")["fairlift"]
        else:
            flags = [flag for name in sorted(names) for flag in (["--lib"] if name == "lib" else ["--test", name])]
            programs[crate] = cargo("test", "--no-run", "-p", PACKAGES[crate], *flags)
    return programs


def run(programs, test, bug=None):
    """Whether a test passes, with a bug or without; and how it failed."""
    crate, rest = test.split(":", 1)
    # With FULL=1 a test has its large size, which takes longer than a bug may.
    environment = {key: value for key, value in os.environ.items() if key not in ("FAIRLIFT_BUG", "FULL")}
    if bug:
        environment["FAIRLIFT_BUG"] = bug
    if crate == "e2e":
        command = [sys.executable, ROOT / "tests/e2e/run.py", rest]
        environment |= {"FAIRLIFT": programs["e2e"], "JOBS": "1"}
    else:
        program, _, word = rest.partition(":")
        command = [programs[crate][program], *filter(None, [word])]
    place, seconds = ROOT if crate == "e2e" else COPY / crate, HANGS if bug else PATIENCE
    try:
        ended = subprocess.run(command, cwd=place, env=environment, timeout=seconds, text=True, errors="replace",
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except subprocess.TimeoutExpired:
        return False, f"hangs for {seconds} s"
    if ended.returncode == 0 and re.search(r"^running 0 tests|^0 passed", ended.stdout, re.M):
        sys.exit(f"{test} names no test")
    failed = re.findall(r"^test (\S+) \.\.\. FAILED|^FAIL (.*?) \(|^test result: FAILED. (.*)", ended.stdout, re.M)
    why = next(filter(None, (word for found in failed for word in found)), f"ends with {ended.returncode}")
    return ended.returncode == 0, why


def described(bugs):
    """The page of promises with how many bugs each has, and the page that lists them: both as they are to be."""
    count = lambda promise: sum(bug["promise"] == promise for bug in bugs)
    rows = [f"| {bug['promise']} | {bug['name'][0].upper()}{bug['name'][1:]} | `{bug['caught_by']}` |" for bug in bugs]
    table = "\n".join(["| promise | bug | caught by |", "|---|---|---|", *rows])
    listed = re.sub(r"(<!-- bugs: .*? -->\n).*?(<!-- end of bugs -->)", lambda m: f"{m[1]}{table}\n{m[2]}", LIST.read_text(), flags=re.S)
    core = sum("core:" in json.dumps(bug).lower() for bug in bugs)  # as tests/run asks for them
    listed = re.sub(r"plants the \d+ (that.*?) plants all \d+", lambda m: f"plants the {core} {m[1]} plants all {len(bugs)}", listed, flags=re.S)
    promised = re.sub(r"^(\| (\w\d) \|.*\|) \d* ?\|$", lambda m: f"{m[1]} {count(m[2]) or ''} |".replace("  |", " |"), PROMISES.read_text(), flags=re.M)
    return {PROMISES: promised, LIST: listed}


def torture(bugs, runs):
    """Which bugs of core the suites of torture find, in so many runs of each."""
    bugs = [bug for bug in bugs if bug["file"].startswith("core/")]
    copy(bugs)
    program = build(["proving:torture"])["proving"]["torture"]

    def found(bug):
        environment = os.environ | {"FAIRLIFT_SEEDS": str(runs)} | ({"FAIRLIFT_BUG": bug["name"]} if bug else {})
        try:
            ended = subprocess.run([program, "every_promise"], cwd=COPY / "proving", env=environment, timeout=HANGS + runs, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        except subprocess.TimeoutExpired:
            return ["a run that does not end"]
        return re.findall(r"^(\w+) with seed", ended.stdout, re.M) or ([f"exit code {ended.returncode}"] if ended.returncode else [])

    assert not found(None), "a promise is broken without a bug"
    with concurrent.futures.ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        results = list(zip(bugs, pool.map(found, bugs)))
    for bug, suites in results:
        print(f"| {bug['promise']} | {bug['name'][0].upper()}{bug['name'][1:]} | {', '.join(suites) or '—'} |")
    by_suite = {suite: sum(suite in suites for _, suites in results) for _, suites in results for suite in suites}
    print(f"{sum(bool(suites) for _, suites in results)} of {len(results)} found in {runs} runs of each suite: {by_suite}")


def main():
    words = [word.lower() for word in sys.argv[1:]]
    bugs = tomllib.loads((Path(__file__).parent / "bugs.toml").read_text())["bug"]
    assert len({bug["name"] for bug in bugs}) == len(bugs), "two bugs of one name"
    if words[:1] == ["--torture"]:
        return torture([bug for bug in bugs if words[2:] == [] or any(word in json.dumps(bug).lower() for word in words[2:])], int(words[1]))
    if words == ["--docs"]:
        for page, text in described(bugs).items():
            page.write_text(text)
        return
    for page, text in described(bugs).items():
        if page.read_text() != text:
            sys.exit(f"{page.relative_to(ROOT)} is not up to date: tests/bugs/run.py --docs")
    for bug in bugs:  # those too that are not asked for now
        planted(bug, (ROOT / bug["file"]).read_text())
    builds_only = words[:1] == ["--build"]
    words = words[builds_only:]
    chosen = [bug for bug in bugs if not words or any(word in json.dumps(bug).lower() for word in words)]
    tests = sorted({bug["caught_by"] for bug in chosen})
    copy(bugs)
    programs = build(tests)
    if builds_only:
        return
    counts = {"passed": 0, "failed": 0}

    def tell(name, good, why, start):
        counts["passed" if good else "failed"] += 1
        print(f"{'ok  ' if good else 'FAIL'} bugs: {name} ({time.monotonic() - start:.1f} s) — {why}", flush=True)

    def without(test):
        start = time.monotonic()
        passes, why = run(programs, test)
        if not passes:
            tell(f"{test} passes without a bug", False, why, start)

    def with_bug(bug):
        start = time.monotonic()
        passes, why = run(programs, bug["caught_by"], bug["name"])
        tell(bug["name"], not passes, f"{bug['caught_by']} passes all the same" if passes else f"caught by {why}", start)

    with concurrent.futures.ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        list(pool.map(without, tests))
        list(pool.map(with_bug, chosen))
    print(f"{counts['passed']} passed, {counts['failed']} failed, 0 skipped")
    sys.exit(1 if counts["failed"] or not counts["passed"] else 0)


if __name__ == "__main__":
    main()
