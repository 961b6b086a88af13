"""The tools iostest and iostune (001), and other servers judged by ours.

What the seed's two scripts had, beside ours, and one run of `iostest --target`: nbdkit alone, and Fairlift in front of the same nbdkit.
"""

import json
import subprocess
import tempfile
import time
from pathlib import Path

# nbdkit's memory, which moves so many bits in a second for all connections together: the disk that both share out.
RATE = 400_000_000
RUNS = ["--weights", "100,300", "-w", "drr,dsr,drw", "--iodepth", "16", "--jobs", "1", "--filesize", "32m", "--runtime", "5", "-s", "3", "--write-to-device"]

TOOLS = """\
| the seed's tool | ours |
|---|---|
| `iostest <block-device>`, fio on a file system mounted at `/mnt/iostestmnt` | `iostest sim:MODEL`, a file or device; `--dir DIR` under a mounted file system |
| `-G --nrgrp N`: cgroups of weight 100 to 800 | the same; weights, trees, limits. With `--dir` cgroup v2, `io.weight` and `io.bfq.weight`; without them it says so |
| `-w bsr`, `drr`, …, `-m MAX`, `--total`, `-I IDLE`, `-R DIR` | the same |
| `-c`, which the thread does not explain | taken, and changes nothing |
| head: `Host= Kernel=`, `GROUPMODE=`, `DIR= DEV=`, `Workload= iosched= Filesz= bs=`, settings; table `job Set NR cgrp1 … total` | the same; the host's line where time is real; `DEV=` for a directory, too |
| – | any NBD server: `--target nbd:URI` |
| `iostune <block-device>`: 1, 2, 4, 8 sequential `dd`, direct or buffered, total and each | the same, direct and through a page cache |
| "primarily … for data disks and not root disk as it does not gurantee better latencies in presence of buffered WRITES" | measured with `--write`: a reader beside buffered writers with either `slice_idle`, and said with the verdict |
"""


def section(fairlift):
    with tempfile.TemporaryDirectory() as directory:
        disk, front = f"{directory}/nbdkit", f"{directory}/fairlift"
        uri = "nbd+unix:///{{group}}?socket={}".format
        nbdkit = subprocess.Popen(["nbdkit", "-f", "-U", disk, "--filter=rate", "memory", "128m", f"rate={RATE}"])
        config = "".join(f'[group."/{name}"]\nweight = {weight}\n[export.{name}]\nbacking = "nbd+unix:///?socket={disk}"\ngroup = "/{name}"\n'
                         for name, weight in (("g1", 100), ("g2", 300)))
        Path(f"{directory}/config.toml").write_text(config)
        until_there(disk)
        server = subprocess.Popen([fairlift, "serve", "--config", f"{directory}/config.toml", "--listen", f"unix:{front}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            until_there(front)
            rows = [line for name, socket in (("nbdkit", disk), ("Fairlift before it", front)) for line in judged(fairlift, name, uri(socket))]
        finally:
            for process in (server, nbdkit):
                process.terminate()
                process.wait()
    table = "\n".join(["| server | workload | g1, weight 100 | g2, weight 300 | share error | p99, ms |", "|---|---|---|---|---|---|", *rows])
    return f"""{TOOLS}
### Two servers judged

nbdkit's memory behind its filter `rate`, {RATE // 1_000_000} Mbit/s for all connections, is judged by `fairlift iostest --target 'nbd+unix:///{{group}}?socket=…' {" ".join(RUNS)}`; and
so is Fairlift with that nbdkit behind it (`nbd:`), its groups of the same weights. KB/s of each group and the longer of both 99th percentiles, means of three sets.

{table}

- **nbdkit** knows no weights: both connections get about the same. **Fairlift** before it gives the heavier group more, nearer to 1 : 3 the less else the machine does; judge and servers share two processors, and this is a
  development build.
- **The kernel**, as the seed judged it, is in a guest of the tests (`tests/vm/kernel_groups.py`: Linux 6.12, emulated, ext4 on a virtio disk held to 1,000 requests a second). `--dir` puts each group into its cgroup with its
  weight. Under `bfq` groups of weight 100 and 300 with 16 random readers each got 1 : 1, as both keep the disk's own queue filled; two fio 1 : 1.2 to 1 : 2.9. With `strict_guarantees=1` two `iostest` in such cgroups got
  1 : 3.8. The test asks the kernel for each group's weight and members."""


def judged(fairlift, name, uri):
    out = subprocess.run([fairlift, "iostest", "--target", uri, *RUNS, "--json", "-"], check=True, capture_output=True, text=True).stdout
    runs = json.loads(out)["runs"]
    mean = lambda figures: sum(figures) / len(figures)
    for workload in dict.fromkeys(run["workload"] for run in runs):
        sets = [run for run in runs if run["workload"] == workload]
        each = [mean([run["groups"][place]["kb_s"] for run in sets]) for place in (0, 1)]
        error = mean([run["share_error_max"] for run in sets])
        p99 = mean([max(group["lat_p99_us"] for group in run["groups"]) for run in sets])
        yield f"| {name} | {workload} | {each[0]:,.0f} | {each[1]:,.0f} | {100 * error:.1f} % | {p99 / 1000:.0f} |"


def until_there(path, seconds=30):
    deadline = time.monotonic() + seconds
    while not Path(path).exists():
        assert time.monotonic() < deadline, f"nobody serves {path}"
        time.sleep(0.02)
