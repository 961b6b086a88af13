"""The pages that teach: every command on them runs as it stands, and prints what they say.

P1  The `sh` blocks of a page run in order, in one shell that ends at the first error, in an empty directory, with `fairlift` on the
    PATH. A person pauses between them, and so does the test: until the server listens that the block started.
P2  A `text` block is what the block before it printed, or part of it: each of its lines occurs, numbers and spaces apart; parts of a
    hundred are within NEAR of what was printed. PATH stands for the directory. $PORT is a free port. On a busy machine a client may have
    no processor for a second, and then less of the disk than it is due: where nothing but parts is wrong, the page is run again.
P3  `console` blocks need root, a kernel module, or a screen: they are not run.
"""

from harness import *

DOCS = ROOT / "docs"
PAGES = [DOCS / "learn.md", DOCS / "control.md", DOCS / "control-access.md", *sorted((DOCS / "do").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)


NEAR = 8  # of a hundred: what one look at a second says of a share


def shape(line):
    """What of a line does not change from run to run: whether one of those who ask for all asks for a little less does."""
    return re.sub(r"\s+", " ", re.sub(r"[\d.]+", "N", re.sub(r"\bdemand\b", "weight", line))).strip()


def near(line, other):
    parts = lambda text: [float(part) for part in re.findall(r"([\d.]+) ?%", text)]
    return shape(line) == shape(other) and all(abs(one - two) <= NEAR for one, two in zip(parts(line), parts(other)))


class OtherParts(AssertionError):
    """A line has the words and numbers that it is to have, and its parts of a hundred are others."""


def run_page(t, page):
    tools = t.path("bin")
    os.mkdir(tools)
    os.symlink(BINARY, f"{tools}/fairlift")
    os.symlink("/usr/bin/python3", f"{tools}/python3")  # nbdsh's, whatever else is called so
    for _ in range(2):
        with contextlib.suppress(OtherParts):
            return run_in_order(t, page, tools)
    return run_in_order(t, page, tools)


def run_in_order(t, page, tools):
    shutil.rmtree(t.path("page"), ignore_errors=True)
    os.mkdir(t.path("page"))
    # A page that fails leaves nothing that runs, or its output would have no end.
    script, wanted = ["set -euo pipefail", "set -m", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT"], []
    for kind, text in BLOCK.findall(page.read_text()):
        if kind == "sh":
            script += [f"echo '=== {len(wanted)}'", text, "sleep 1"]
            wanted.append([])
        elif kind == "text":
            wanted[-1] += text.splitlines()
    script.append("echo '=== end'")
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "XDG_RUNTIME_DIR": str(t.dir), "PORT": str(free_port())}
    done = subprocess.run(["bash", "-c", "\n".join(script)], cwd=t.path("page"), env=environment, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=110)
    assert done.returncode == 0 and "=== end" in done.stdout, f"{page.name} ended with {done.returncode}:\n{done.stdout}"
    printed = re.split(r"^=== \w+\n", done.stdout, flags=re.M)[1:]
    for number, (lines, out) in enumerate(zip(wanted, printed)):
        got = [line.replace(t.path("page"), "PATH") for line in out.splitlines()]
        for line in filter(shape, lines):
            if not any(near(line, one) for one in got):
                wrong = OtherParts if shape(line) in map(shape, got) else AssertionError
                raise wrong(f"{page.name}, block {number + 1}: wanted a line like {line!r}, got:\n{out}")
    return len(wanted)


def page_test(page):
    def runs(t):
        assert run_page(t, page) or page.name == "embed.md", f"{page.name} has no command"

    runs.__name__ = f"the_page_{page.stem}_does_what_it_says"
    return test(runs, seconds=240 if page.stem == "learn" else 120, fairlift_only=True)


for page in PAGES:
    page_test(page)


if __name__ == "__main__":
    main()
