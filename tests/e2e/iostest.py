"""`fairlift iostest`: what a user types, and what he gets."""

import json
import os
import shlex
import signal
import time
from html.parser import HTMLParser
from pathlib import Path

from harness import BINARY, MIB, contains, data, equal, main, sha256, test, until_listening

SHORT = ["--scheduler", "none", "--weights", "100,300", "--jobs", "1,2", "--runtime", "0.5"]
MODEL = ["iostest", "--device", "sim:eva-raid5-12", *SHORT]


@test(fairlift_only=True)
def a_modelled_disk_is_measured_by_the_command_of_2010(t):
    out = t.run(BINARY, "iostest", "sim:eva-raid5-12", "--scheduler", "none", "-G", "-w", "bsr", "-m", 8, "-c", "--nrgrp", 8,
                "--total", "--runtime", 1)
    lines = [line.split() for line in out.splitlines()]
    head = lines.index("job Set NR cgrp1 cgrp2 cgrp3 cgrp4 cgrp5 cgrp6 cgrp7 cgrp8 total".split())
    equal(lines[head - 2], "AVERAGE[bsr] [bw in KB/s]".split(), "the title")
    equal(lines[head + 1][:3], ["---", "---", "--"], "the rule")
    rows = lines[head + 2:head + 6]
    equal([row[:3] for row in rows], [["bsr", "1", jobs] for jobs in "1248"], "workload, sets and jobs")
    for row in rows:
        figures = [int(figure) for figure in row[3:]]
        if abs(sum(figures[:8]) - figures[8]) > 8:
            raise AssertionError(f"the groups of {row} are not its total")


@test(fairlift_only=True)
def the_same_seed_gives_the_same_bytes_and_another_does_not(t):
    def measured(name, seed):
        out = t.run(BINARY, *MODEL, "-w", "drr,bsr", "-s", 2, "--seed", seed, "--json", t.path(name))
        return out, Path(t.path(name)).read_bytes()

    first = measured("first.json", 7)
    equal(measured("again.json", 7), first, "the tables and the JSON of the same seed")
    other = json.loads(measured("other.json", 8)[1])
    results = json.loads(first[1])
    equal((results["tool"], results["device"], results["seed"]), ("iostest", "sim:eva-raid5-12", 7), "the header")
    equal([(run["set"], run["workload"], run["jobs"]) for run in results["runs"]],
          [(s, w, j) for s in (1, 2) for w in ("drr", "bsr") for j in (1, 2)], "the runs")
    equal([(g["path"], g["weight"], g["ideal"]) for g in results["runs"][0]["groups"]],
          [("/g1", 100, 0.25), ("/g2", 300, 0.75)], "the groups")
    if other["runs"] == results["runs"]:
        raise AssertionError("another seed changes nothing")
    again = results["command"].split()
    equal(t.run(BINARY, *again[1:]), first[0], "what the command in the results measures")


@test(fairlift_only=True)
def the_end_of_each_run_is_traced_with_what_the_scheduler_said(t):
    t.run(BINARY, "iostest", "sim:ssd-2010", "--scheduler", "cfq", "-w", "bsr", "--weights", "100,300", "--jobs", 1, "--runtime", 0.5, "--trace", t.path("one"))
    parsed = t.run("blkparse", "-i", "one", cwd=t.dir)
    contains(parsed, "disk=sim:ssd-2010", " m   N /g2 stream 1: sl_used=", "[/g1]")
    # Several runs have a file each; on a real disk as on a model.
    said = t.run(BINARY, "iostest", t.image("image", 16 * MIB), "--scheduler", "bfq", "-w", "drr", "--filesize", "1m", "--jobs", "1,2", "--runtime", 0.1, "--trace", t.path("two.json"))
    contains(said, "drr, set 1, 1 job: ", "two-1.json", "two-2.json")
    for number, jobs in (1, 1), (2, 2):
        events = json.loads(Path(t.path(f"two-{number}.json")).read_text())["traceEvents"]
        assert any(event["ph"] == "b" for event in events), f"no requests of run {number}"
        assert any(event["ph"] == "i" and event["name"].startswith("stream ") for event in events), f"no messages in run {number}"


@test(fairlift_only=True)
def what_was_kept_is_reported_again(t):
    kept = t.path("kept")
    tables = t.run(BINARY, *MODEL, "-w", "bsr", "-o", kept)
    equal(sorted(os.listdir(kept)), ["iostest.html", "iostest.json", "iostest.txt"], "what is kept")
    equal(Path(kept, "iostest.txt").read_text(), tables, "the tables")
    equal(t.run(BINARY, "iostest", "-R", kept), tables, "the tables, again")
    equal(t.run(BINARY, "iostest", "-R", kept + "/iostest.json", "--json", "-"),
          Path(kept, "iostest.json").read_text(), "the JSON, again")
    equal(t.run(BINARY, "iostest", "-R", kept, "--html", "-"), Path(kept, "iostest.html").read_text(), "the page, again")
    contains(t.run(BINARY, *MODEL, "-o", kept, code=2), "already holds results")
    equal(Path(kept, "iostest.txt").read_text(), tables, "what was kept before")


class Page(HTMLParser):
    """Every tag that opens is closed in its turn, and none points elsewhere."""

    def __init__(self, text):
        super().__init__()
        self.open, self.seen = [], set()
        self.feed(text)
        self.close()
        equal(self.open, [], "tags that are never closed")

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)
        self.look(tag, attributes)

    def handle_startendtag(self, tag, attributes):
        self.look(tag, attributes)

    def handle_endtag(self, tag):
        equal(tag, self.open.pop(), "the tag that closes")

    def look(self, tag, attributes):
        self.seen.add(tag)
        for name, value in attributes:
            if name in ("src", "href", "srcset", "data") or "//" in (value or ""):
                raise AssertionError(f"<{tag} {name}={value!r}> points elsewhere")


@test(fairlift_only=True)
def the_page_needs_nothing_but_itself(t):
    page = Page(t.run(BINARY, *MODEL, "-w", "bsr,drr", "--html", "-"))
    if "script" in page.seen or "link" in page.seen or not {"svg", "table", "style"} <= page.seen:
        raise AssertionError(f"the page is made of {sorted(page.seen)}")


@test(fairlift_only=True)
def ctrl_c_keeps_what_is_finished(t):
    log = t.path("log")

    def stopped(number, code, after):
        with open(log, "wb") as out:
            process = t.start(BINARY, "iostest", "sim:eva-raid5-12", "-G", "--jobs", 1, "--runtime", 60, "-s", 1000,
                              "--json", t.path("stopped.json"), stdout=out, stderr=out)
        time.sleep(after)
        process.send_signal(number)
        equal(process.wait(60), code, f"the exit code after {number.name}")
        return json.loads(Path(t.path("stopped.json")).read_text())

    for number, code in [(signal.SIGINT, 130), (signal.SIGTERM, 143)]:
        # A busy machine may need longer for its first set.
        for after in (1, 4, 16):
            results = stopped(number, code, after)
            if results["runs"]:
                break
        contains(Path(log).read_text(), "AVERAGE[bsr]", "interrupted: only finished runs are counted")
        equal(results["interrupted"], True, "whether it was interrupted")
        equal([run["set"] for run in results["runs"]], list(range(1, len(results["runs"]) + 1)), "the sets")
        if len(results["runs"]) >= 1000:
            raise AssertionError("it was not stopped")


@test(fairlift_only=True)
def mistakes_are_told_before_anything_runs(t):
    for arguments, *words in [
        ([], "--device", "sim:MODEL"),
        (["sim:sata-720"], "sata-7200", "did you mean"),
        (["sim:sata-7200,size=0"], "size"),
        (["sim:sata-7200", "-w", "bsrr"], "bsr", "drw", "did you mean"),
        (["sim:sata-7200", "--scheduler", "noop"], "none", "mq-deadline"),
        (["sim:sata-7200", "--nrgrp", "8", "--weights", "1,2"], "2 weights are given for 8 groups"),
        (["sim:sata-7200", "-m", "0"], "0"),
        (["sim:sata-7200", "--scheduler", "none", "-I", "0"], "slice_idle"),
        (["sim:sata-7200", "--scheduler", "mq-deadline", "--set", "read_expir=1s"], "read_expire"),
        (["sim:sata-7200", "--runtime", "86400", "--html", t.path("missing/x.html")], "missing/x.html"),
        (["sim:sata-7200", "--runtime", "86400", "-o", "/proc/iostest"], "/proc/iostest"),
        (["sim:sata-7200,size=1g", "--runtime", "86400", "-m", "64"], "do not fit on this disk of 1G"),
        (["-R", t.path("missing")], "missing"),
    ]:
        out = t.run(BINARY, "iostest", *arguments, code=None, seconds=10)
        contains(out, *words)
    t.run(BINARY, "iostest", "-R", t.path("missing"), code=1)
    t.run(BINARY, "iostest", "sim:sata-720", code=2)


@test(fairlift_only=True)
def a_file_is_measured_and_not_written_to_unasked(t):
    image = t.image("image", 64 * MIB, (0, data(MIB)), (63 * MIB, data(MIB)))
    before = sha256(image)
    flags = ["iostest", image, "--weights", "100,300", "--jobs", 1, "--filesize", "16m", "--runtime", "0.5"]
    contains(t.run(BINARY, *flags, "-w", "dsw", code=2), "--write-to-device")
    out = t.run(BINARY, *flags, "-w", "drr", "--raw", "--json", t.path("real.json"))
    contains(out, "drr:raw")
    results = json.loads(Path(t.path("real.json")).read_text())
    for run in results["runs"] + results["baseline"]:
        if run["total_kb_s"] <= 0 or run["device_stats"]["requests"] <= 0:
            raise AssertionError(f"nothing was read: {run}")
    equal(sha256(image), before, "the file after reading it")
    warning, head, *_ = out.splitlines()
    contains(warning, "97 % of the file are holes", "rates are too high", f"cp --sparse=never {image} COPY")
    equal(head, f"Host={os.uname().nodename} Kernel={os.uname().release}", "where it was measured")
    t.run("cp", "--sparse=never", image, t.path("whole"))
    whole = t.run(BINARY, "iostest", t.path("whole"), *flags[2:], "-w", "drr")
    assert "holes" not in whole, "a file without holes is warned of"
    t.run(BINARY, *flags, "-w", "dsw", "--write-to-device")
    if sha256(image) == before:
        raise AssertionError("nothing was written")


def judged(t, *flags):
    """The runs of another's disk, in which each of two groups did something, and the first two lines of the report."""
    flags = [*flags, "--filesize", "4m", "--runtime", "0.5"]
    out = t.run(BINARY, "iostest", *flags, "--json", t.path("judged.json"))
    results = json.loads(Path(t.path("judged.json")).read_text())
    for run in results["runs"]:
        equal(len(run["groups"]), 2, "groups")
        if min(group["iops"] for group in run["groups"]) <= 0 or run["device_stats"]["requests"] <= 0:
            raise AssertionError(f"nothing was read: {run}")
    return results, out


@test(fairlift_only=True)
def another_server_is_judged_by_a_connection_for_each_group(t):
    path, log = t.path("nbdkit"), t.path("log")
    t.start("nbdkit", "-f", "-U", path, "--filter=log", "memory", "64m", "logfile=" + log)
    until_listening(path, "nbdkit")
    uri = "nbd+unix:///{group}?socket=" + path
    results, out = judged(t, "--target", uri, "--weights", "100,300", "-w", "drr", "--jobs", 1)
    equal((results["device"], results["scheduler"], results["settings"]), (uri, "server", {}), "whose disk it is")
    contains(out, f"DEV={uri}", "iosched=server", "SHARE ERROR[drr]")
    contains(Path(log).read_text(), 'export=g1 ', 'export=g2 ')
    contains(t.run(BINARY, *shlex.split(results["command"])[1:]), "AVERAGE[drr]")
    # Tenants have their scores, and alone they are the group "root".
    results, out = judged(t, "--target", uri, "-w", "tenants:small-beside-deep")
    contains(out, "isolation ", "/t1 ")
    contains(Path(log).read_text(), 'export=root ', 'export=t1 ')
    contains(t.run(BINARY, "iostest", "--target", uri, "-w", "dsw", code=2), "destroys its contents", "--write-to-device")
    contains(t.run(BINARY, "iostest", "--target", "mem:1m", code=2), "nbd:URI")
    contains(t.run(BINARY, "iostest", "--target", uri, "--scheduler", "bfq", code=2), "--scheduler")
    contains(t.run(BINARY, "iostest", "--target", "nbd+unix:///x?socket=" + t.path("nobody"), "--runtime", 1, code=1), "client of / failed", "nobody")


@test(fairlift_only=True)
def blocks_and_writes_that_the_disk_does_not_take_are_refused_before_anything_runs(t):
    path = t.path("nbdkit")
    t.start("nbdkit", "-f", "-r", "-U", path, "--filter=blocksize-policy", "memory", "64m", "blocksize-minimum=4096",
            "blocksize-preferred=4096", "blocksize-maximum=1m", "blocksize-error-policy=error")
    until_listening(path, "nbdkit")
    flags = ["iostest", "nbd+unix:///x?socket=" + path, "--filesize", "4m", "--jobs", 1, "--runtime", 4]
    contains(t.run(BINARY, *flags, "-w", "drr", "--bs", "512", code=2, seconds=20), "a block size of 512 bytes", "is 4096 bytes")
    contains(t.run(BINARY, *flags, "-w", "drr,dsw", "--write-to-device", code=2, seconds=20), "dsw", "read-only")
    flags[-1] = 0.5
    contains(t.run(BINARY, *flags, "-w", "drr,bsr", "--bs", "4k"), "AVERAGE[drr]")
    contains(t.run(BINARY, *flags, "-w", "bsr", "--bs", "512"), "AVERAGE[bsr]")


@test(fairlift_only=True)
def the_kernel_is_judged_in_a_directory(t):
    os.mkdir(t.path("mounted"))
    results, out = judged(t, "--dir", t.path("mounted"), "--weights", "100,300", "-w", "drr,dsw", "--jobs", 1)
    equal(os.listdir(t.path("mounted")), [], "what is left behind")
    equal([run["workload"] for run in results["runs"]], ["drr", "dsw"], "what was run")
    # Where the kernel has no groups, it says so and runs without.
    has_groups = results["settings"]["cgroups"] == "io"
    equal("the groups have no weights in the kernel, and run without" in out, not has_groups, "whether it says so")
    contains(t.run(BINARY, "iostest", "--dir", t.path("nowhere"), code=2), "--dir", "nowhere", "No such file")


@test(fairlift_only=True)
def help_and_models_teach(t):
    contains(t.run(BINARY, "iostest", "--help"), "interleaved", "eva-raid5-12", "--nrgrp", "Examples", "-R")
    contains(t.run(BINARY, "models"), "sata-7200", "ssd-2010")
    contains(t.run(BINARY, "models", "sata-7200"), "size")
    contains(t.run(BINARY, "models", "sata-7300", code=2), "sata-7200")


if __name__ == "__main__":
    main()
