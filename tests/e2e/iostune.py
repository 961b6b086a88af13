"""`fairlift iostune`: what a disk is like, told of models and of files, and what it leaves alone."""

import json
import os
import signal
import time
from pathlib import Path

from block_device import loop_device
from harness import BINARY, MIB, contains, data, equal, main, sha256, test
from iostest import Page

QUICK = ["--quick", "--time", 3]


def rows(text, title):
    """The lines of a table of streams, in numbers."""
    lines = text.splitlines()
    start = lines.index(title) + 2
    end = next(place for place in range(start, len(lines)) if not lines[place])
    return [[float(word) for word in line.split()] for line in lines[start:end]]


def measured(t, *arguments):
    """What it writes as JSON."""
    path = t.path("found.json")
    t.run(BINARY, "iostune", *arguments, "--json", path)
    return Path(path).read_text()


@test(fairlift_only=True)
def the_table_of_2010_is_measured_on_its_three_disks(t):
    for model, verdict in [("sata-7200", "Verdict: idle "), ("eva-raid5-12", "Verdict: don't idle "),
                           ("ssd-2010", "Verdict: idling doesn't matter ")]:
        out = t.run(BINARY, "iostune", "sim:" + model, "--quick")
        contains(out, verdict)
        equal("disks of data" in out, verdict != "Verdict: idle ", "whether it is told that not to idle is for disks of data")
        for title, numbers in [("Noop", [1, 2, 4, 8, 16]), ("Noop, buffered", [1, 2, 4, 8]), ("CFQ, slice_idle=8ms", [1, 2, 4, 8, 16]),
                               ("CFQ, slice_idle=0", [2, 4, 8, 16])]:
            table = rows(out, title)
            equal([row[0] for row in table], numbers, f"the streams of {model}, {title}")
            for n, total, *each in table:
                equal(len(each), int(n), "one figure for each stream")
                if abs(sum(each) - total) > 0.051 * (n + 1):
                    raise AssertionError(f"{each} are not {total}")


@test(fairlift_only=True)
def what_is_recommended_is_served(t):
    image = t.image("image", 64 * MIB, (0, data(64 * MIB)))
    for device in ["sim:nvme-plp", "sim:sata-7200", image]:
        found = json.loads(measured(t, device, *QUICK))
        equal((found["tool"], found["device"], found["interrupted"]), ("iostune", device, False), "the header")
        equal([row["n"] for row in found["streams"]], [1, 2, 4, 8, 16], "the streams")
        if found["verdict"]["parallel_gain"] <= 0 or not found["verdict"]["why"]:
            raise AssertionError(f"no verdict: {found['verdict']}")
        Path(t.path("tuned.toml")).write_text(found["recommend"]["fairlift"]["config"])
        t.run(BINARY, "serve", "--check", "--config", t.path("tuned.toml"), "--listen", "unix:" + t.path("sock"))
        contains(found["recommend"]["kernel"]["udev"][0], "ATTR{queue/scheduler}=")
        contains(found["recommend"]["kernel"]["io_cost_model"], "rbps=", "rseqiops=", "rrandiops=")


@test(fairlift_only=True)
def the_same_seed_finds_the_same_on_a_model(t):
    found = measured(t, "sim:eva-raid5-12", "--quick", "--seed", 3)
    again = json.loads(found)["command"].split()
    equal(measured(t, *again[2:]), found, "what the command in the results finds")


@test(fairlift_only=True)
def a_file_is_only_read_and_writes_go_where_nothing_stays(t):
    image = t.image("image", 64 * MIB, (0, data(64 * MIB)))
    before, names = sha256(image), sorted(os.listdir(Path(image).parent))
    out = t.run(BINARY, "iostune", image, *QUICK, "--write", "--html", t.path("page.html"), seconds=60)
    contains(out, f"Host={os.uname().nodename} Kernel={os.uname().release}", "Writes", "a random read of 4 KiB beside buffered writers, slice_idle=8ms: ", "durable before the next, flushes shared by Fairlift", "is small, and caches may hold it")
    Page(Path(t.path("page.html")).read_text())
    os.remove(t.path("page.html"))
    equal((sha256(image), sorted(os.listdir(Path(image).parent))), (before, names), "the file and its directory")
    taken = image + ".iostune"
    Path(taken).write_text("mine")
    contains(t.run(BINARY, "iostune", image, *QUICK, "--write", code=2), "exists already and is left alone")
    equal(Path(taken).read_text(), "mine", "the file that was there")


@test(fairlift_only=True)
def ctrl_c_tells_what_was_measured_and_leaves_nothing(t):
    image = t.image("image", 64 * MIB, (0, data(64 * MIB)))
    names = sorted(os.listdir(Path(image).parent))

    def stopped(number, after):
        with open(t.path("log"), "wb") as out:
            process = t.start(BINARY, "iostune", image, "--quick", "--time", 20, "--write", stdout=out, stderr=out)
            time.sleep(after)
            process.send_signal(number)
            code = process.wait(60)
        text = Path(t.path("log")).read_text()
        os.remove(t.path("log"))
        equal(sorted(os.listdir(Path(image).parent)), names, "what is left behind")
        return code, text

    # A busy machine may need longer to fill the scratch file.
    for after in (6, 20):
        code, text = stopped(signal.SIGINT, after)
        if "\nNoop\n" in text:
            break
    equal(code, 130, "the exit code")
    contains(text, "interrupted: the rest was not measured", "\nNoop\n")
    equal(stopped(signal.SIGKILL, 2)[0], -9, "the exit code after SIGKILL")


@test(fairlift_only=True)
def a_block_device_is_written_to_where_it_was_said_that_all_may_go(t):
    device, image = loop_device(t, 64 * MIB)
    Path(image).write_bytes(data(64 * MIB))
    before = sha256(image)
    flags = ["iostune", device, "--write", "--quick", "--time", "4"]
    contains(t.run(BINARY, *flags, code=2), "destroys all data on", "--i-know-this-destroys-data")
    equal(sha256(image), before, "the device after it was refused")
    out = t.run(BINARY, *flags, "--i-know-this-destroys-data", seconds=60)
    contains(out, "\nWrites\n", "each 4 KiB durable")
    if sha256(image) == before:
        raise AssertionError("nothing was written")


@test(fairlift_only=True)
def what_cannot_be_measured_is_refused_before_it_is_asked(t):
    small = t.image("small", MIB, (0, data(MIB)))
    holes = t.image("holes", 64 * MIB)
    image = t.image("image", 64 * MIB, (0, data(64 * MIB)))
    for arguments, *words in [
        ([], "a disk is needed"),
        (["sim:sata-720"], "did you mean"),
        ([t.path("missing")], "missing", "No such file"),
        ([str(Path(image).parent)], "is a directory"),
        (["/dev/null"], "neither a regular file nor a block device"),
        ([small], "1 MiB", "at least 32 MiB are needed"),
        ([holes], "only holes", "dd if=/dev/urandom"),
        ([image, "--time", "0.1"], "the limits are 1 s"),
        ([image, "--i-know-this-destroys-data"], "--write"),
        ([image, "--write", "--i-know-this-destroys-data"], "is for block devices"),
        ([image, "--json", t.path("missing/x.json")], "missing/x.json"),
    ]:
        contains(t.run(BINARY, "iostune", *arguments, code=2, seconds=10), *words)
    if os.geteuid() != 0:
        os.chmod(image, 0)
        contains(t.run(BINARY, "iostune", image, code=2), "Permission denied")
        os.chmod(image, 0o600)
    t.server("disk=" + image)
    contains(t.run(BINARY, "iostune", image, code=2, seconds=20), "is in use by another server")


if __name__ == "__main__":
    main()
