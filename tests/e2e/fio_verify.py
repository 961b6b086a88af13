"""fio's own NBD engine writes, reads back, and checks every block."""

from harness import *


def fio(t, server, name, *options):
    """Runs fio over the export; it fails by itself on the first block that is not what it wrote."""
    out = t.run(
        "fio", f"--name={name}", "--ioengine=nbd", f"--uri={server.uri('disk')}", "--verify=crc32c", "--verify_fatal=1",
        "--do_verify=1", "--group_reporting", "--thread", "--output-format=json", f"--randseed={SEED}", *options,
        cwd=t.dir, seconds=100)
    job = json.loads(out[out.index("{"):])["jobs"][0]
    equal(job["error"], 0, "fio's error")
    assert job["read"]["total_ios"] > 0 and job["write"]["total_ios"] > 0, "fio read and wrote nothing"


def disk(t, backing, scheduler):
    backing = f"file:{t.image('image', 64 * MIB)}" if backing == "file" else "mem:64M"
    return t.server(f"disk={backing}", args=[] if STAND_IN else ["--scheduler", scheduler])


@test
def random_writes_to_ram_are_what_fio_reads_back(t):
    fio(t, disk(t, "mem", "none"), "randwrite", "--rw=randwrite", "--bs=4k", "--size=48m", "--iodepth=32")


@test
def random_writes_to_a_file_under_mq_deadline_are_what_fio_reads_back(t):
    fio(t, disk(t, "file", "mq-deadline"), "randwrite", "--rw=randwrite", "--bs=4k", "--size=48m", "--iodepth=32")


@test
def a_mix_of_sizes_and_directions_verifies(t):
    fio(t, disk(t, "file", "none"), "mix", "--rw=randrw", "--bsrange=512-64k", "--blockalign=512", "--size=32m",
        "--iodepth=16", "--verify_backlog=64", "--fsync=50")


@test
def four_jobs_with_a_connection_each_verify_their_own_part(t):
    fio(t, disk(t, "mem", "mq-deadline"), "jobs", "--rw=randrw", "--bs=4k", "--size=12m", "--offset_increment=16m",
        "--numjobs=4", "--iodepth=16", "--verify_backlog=256")


@test
def sequential_writes_of_a_mebibyte_verify(t):
    fio(t, disk(t, "file", "mq-deadline"), "seq", "--rw=write", "--bs=1m", "--size=64m", "--iodepth=8", "--end_fsync=1")


@test
def trims_between_writes_do_not_disturb_them(t):
    server = disk(t, "mem", "none")
    out = t.run("fio", "--name=trim", "--ioengine=nbd", f"--uri={server.uri('disk')}", "--rw=randtrim", "--bs=64k",
                "--size=32m", "--iodepth=8", "--thread", "--output-format=json", cwd=t.dir)
    equal(json.loads(out[out.index("{"):])["jobs"][0]["error"], 0, "fio's error")
    fio(t, server, "after", "--rw=randwrite", "--bs=8k", "--size=32m", "--iodepth=8")


if __name__ == "__main__":
    main()
