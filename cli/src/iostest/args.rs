//! The flags of `fairlift iostest`.

use std::path::PathBuf;

use clap::Args;
use fairlift_core::time::secs;
use fairlift_core::{Duration, Weight, sched};
use fairlift_lab::workload::{Workload, tenants};

use super::clients::{ClientPart, part};
use crate::syntax::scheduler::{parse_setting, scheduler_help, schedulers};
use crate::syntax::seconds::seconds_or_time;
use crate::syntax::units;
use crate::terminal::columns::pairs;

const EXAMPLES: &str = "\
Examples:
  fairlift iostest sim:eva-raid5-12 --scheduler none -w bsr -m 8 -G --nrgrp 8 --total
      a modelled array: 1, 2, 4 and 8 sequential readers in each of 8 groups
  fairlift iostest sim:sata-7200,size=100g -w drr,bsr --jobs 1,16 --html page.html
      a smaller disk, two workloads, as a page with plots
  fairlift iostest /dev/nvme0n1 -w drr --iodepth 32 -m 1 --raw
      a real disk, with Fairlift and without
  fairlift iostest sim:nvme-plp -G --nrgrp 2 -w drr --iodepth 32 --max /g1=riops=3000
      two readers, the first limited to 3,000 reads a second
  fairlift iostest --target nbd://host/{group} --weights 100,300 -w drr --iodepth 32
      another server: the exports g1 and g2, each by a connection of its own
  fairlift iostest --dir /mnt --weights 100,300 -w drr --iodepth 32 --filesize 64m
      the kernel's own scheduler and cgroups, under a file system
  fairlift iostest sim:nvme-plp --scheduler bfq -w tenants
      the service of tenants in typical situations, beside their entitlement
  fairlift iostest sim:sata-7200 -G -s 3 -o results/one
  fairlift iostest -R results/one --html page.html
      keep the results, and report them again

Modelled disks are measured in virtual time: minutes of disk take seconds, and
--seed makes the figures repeatable. Real disks are measured in real time.
Workloads that write destroy the data of a file, a block device or another
server's export; they run there only with --write-to-device.

Ctrl-C: report the finished runs, exit 130. A second one: stop at once.
";

/// The flags about a queue of ours: nobody else's disk has one.
const OURS: [&str; 11] =
    ["scheduler", "max", "burst", "min", "slice_idle", "set", "sweep", "round_trip", "depth", "raw", "trace"];

/// Measure how a disk is shared: groups with weights, 1, 2, 4, ... jobs in each
///
/// Runs a workload with a rising number of jobs in every group, under a scheduler, on a modelled disk, a file or a block
/// device. It reports for each group: bandwidth, latency, and the difference between its share and its weight's share.
#[derive(Debug, Default, Args)]
#[command(after_long_help = lists())]
pub(crate) struct IostestArgs {
    /// The disk, as with --device
    #[arg(value_name = "DEVICE", conflicts_with = "device")]
    pub(crate) path: Option<String>,

    /// The disk: sim:MODEL[,size=SIZE][,PARAMETER=VALUE], file:PATH, mem:SIZE, null:SIZE[,delay=TIME], nbd:URI, or a path
    ///
    /// The models are listed below; `fairlift models MODEL` shows the parameters of one.
    #[arg(long, value_name = "BACKING")]
    pub(crate) device: Option<String>,

    /// Judge another NBD server: nbd:URI. Each group has a connection; {group} in the URI is its name
    ///
    /// The server sets the weights of its clients. Shares are judged by --weights: give the server's.
    #[arg(long, value_name = "nbd:URI", conflicts_with_all = ["path", "device", "dir"], conflicts_with_all = OURS)]
    pub(crate) target: Option<String>,

    /// Judge the kernel: a file in a directory of a mounted file system, each group a process in a cgroup with its weight
    ///
    /// Cgroup v2 with the io controller is needed for the weights, and BFQ or io.cost on the disk to act on them.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["path", "device"], conflicts_with_all = OURS)]
    pub(crate) dir: Option<PathBuf>,

    /// Run the jobs of one group of one case, for another process that judges
    #[arg(long, hide = true, value_parser = part)]
    pub(crate) part: Option<ClientPart>,

    /// The scheduler
    #[arg(long, value_name = "S", value_parser = schedulers(), help = scheduler_help("The scheduler"))]
    pub(crate) scheduler: Option<sched::Kind>,

    /// The workloads of the jobs: one or more of those listed below, a TOML file of workloads, or one of these (FILE.toml:NAME)
    ///
    /// `tenants` is a set of situations with groups and weights of their own; `tenants:NAME` is one of them.
    #[arg(short, long, value_name = "WORKLOAD", value_delimiter = ',', default_value = "bsr")]
    pub(crate) workload: Vec<String>,

    /// The largest number of jobs in each group: 1, 2, 4, ... below it, then it [default: 8]
    #[arg(short, long, value_name = "MAXJOBS", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) max_jobs: Option<u32>,

    /// The numbers of jobs, instead of -m
    #[arg(long, value_name = "N,N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024), conflicts_with = "max_jobs")]
    pub(crate) jobs: Vec<u32>,

    /// Split the jobs into groups with weights; --nrgrp, --weights and --groups imply it
    #[arg(short = 'G', long)]
    pub(crate) group_mode: bool,

    /// The number of groups: /g1, /g2, ... [default: 8, or the number of weights]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) nrgrp: Option<u16>,

    /// The weights of the groups, 1 to 1000 [default: 100, 200, ...; from the tenth group on 1000]
    #[arg(long, value_name = "W,W", value_delimiter = ',')]
    pub(crate) weights: Vec<Weight>,

    /// Take the tree of groups from the [group."/PATH"] tables of a config file; the jobs run in its leaves
    #[arg(long, value_name = "FILE", conflicts_with_all = ["nrgrp", "weights"])]
    pub(crate) groups: Option<PathBuf>,

    /// Limit the rates of a group, a second: /g1=riops=3000 or "/g1=riops=3000 wbps=50m", and "/=iops=9000" all together; may
    /// be given several times [default: no limit]
    #[arg(long, value_name = "PATH=LIMITS", value_parser = limit)]
    pub(crate) max: Vec<(String, String)>,

    /// Let a group exceed its --max for a while: "/g1=riops=30000 seconds=5"
    #[arg(long, value_name = "PATH=LIMITS", value_parser = limit)]
    pub(crate) burst: Vec<(String, String)>,

    /// Guarantee a group a rate, a second, with scheduler fair: /g2=riops=500
    #[arg(long, value_name = "PATH=LIMITS", value_parser = limit)]
    pub(crate) min: Vec<(String, String)>,

    /// No effect: every run begins with cold caches; accepted for command lines of the original iostest
    #[arg(short = 'c')]
    pub(crate) cold: bool,

    /// Add a column with the total of all groups
    #[arg(long)]
    pub(crate) total: bool,

    /// The scheduler's slice_idle, in ms or with a unit: the time for which the disk is held idle for one stream
    #[arg(short = 'I', long, value_name = "TIME")]
    pub(crate) slice_idle: Option<String>,

    /// Set a tunable of the scheduler, as in read_expire=20ms; `fairlift tunables` lists them
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_setting)]
    pub(crate) set: Vec<(String, String)>,

    /// Run everything once for each value of a tunable, and show the cost of fairness: slice_idle=0,2ms,8ms
    #[arg(long, value_name = "KEY=V,V", value_parser = parse_sweep)]
    pub(crate) sweep: Option<(String, Vec<String>)>,

    /// The length of each run, in seconds or with a unit [default: 30; of tenants 2, behind a second of warm-up]
    #[arg(long, value_name = "S", value_parser = parse_runtime)]
    pub(crate) runtime: Option<Duration>,

    /// With -w tenants on a modelled disk: the mean time from a reply to the next request of the client [default: 50us]
    #[arg(long, value_name = "TIME", value_parser = parse_way)]
    pub(crate) round_trip: Option<Duration>,

    /// The number of repetitions, for means and their spread
    #[arg(short, long, value_name = "SETS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) sets: u32,

    /// The seed of all random choices; with the same seed a modelled disk gives the same figures
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Requests in flight of each direct reader or writer (in dsr, drr, dsw, drw, mixed, or your own workload)
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) iodepth: u32,

    /// The size of a read or write [default: the workload's]
    #[arg(long, value_name = "SIZE", value_parser = parse_block)]
    pub(crate) bs: Option<u32>,

    /// The size of each job's file
    #[arg(long, value_name = "SIZE", default_value = "512m", value_parser = parse_file_size)]
    pub(crate) filesize: u64,

    /// Limit on requests in flight on the disk [default: a model's own, such as 32 for SATA; else 128]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(crate) depth: Option<u16>,

    /// Also measure the disk without Fairlift, as a baseline in the same table
    #[arg(long)]
    pub(crate) raw: bool,

    /// Allow workloads that write to destroy the data of a disk that holds some
    #[arg(long)]
    pub(crate) write_to_device: bool,

    /// Keep the results in a directory: iostest.json, .txt and .html
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,

    /// Measure nothing; report the results that -o or --json kept in a directory or file
    #[arg(short = 'R', long, value_name = "DIR", conflicts_with_all = ["path", "device", "target", "dir", "scheduler", "output", "raw", "set", "sweep", "slice_idle", "trace"])]
    pub(crate) report: Option<PathBuf>,

    /// Also record the end of each run, its last 262,144 steps: FILE and its formats are as those of `fairlift trace`
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,

    /// Write the results as JSON; - is standard output, instead of the tables
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Write an HTML page with plots, which needs no network; - is standard output, instead of the tables
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

impl IostestArgs {
    /// The flag that says what is measured, and its value.
    pub(super) fn measured(&self) -> (&'static str, Option<String>) {
        match (&self.target, &self.dir) {
            (Some(uri), _) => ("--target", Some(uri.clone())),
            (None, Some(dir)) => ("--dir", Some(dir.display().to_string())),
            (None, None) => ("--device", self.device.clone().or_else(|| self.path.clone())),
        }
    }
}

/// The workloads and the models, then examples.
fn lists() -> String {
    let mut out = String::from("Workloads:\n");
    let mut built_in = Workload::built_in();
    built_in.extend(tenants::built_in());
    let rows: Vec<_> = built_in.iter().map(|workload| (workload.name.as_str(), workload.about.as_str())).collect();
    pairs(&mut out, &rows);
    out.push_str("\nModels (`fairlift models MODEL` shows the parameters of one):\n");
    let rows: Vec<_> = fairlift_lab::model::profiles().map(|profile| (profile.name, profile.about)).collect();
    pairs(&mut out, &rows);
    out.push('\n');
    out + EXAMPLES
}

/// Reads `/g1=riops=3000`; what the limits are is read with the others of their group.
fn limit(text: &str) -> Result<(String, String), String> {
    let (path, limits) = text.split_once('=').ok_or("a limit has the form PATH=LIMITS, as in /g1=riops=3000")?;
    Ok((path.into(), limits.into()))
}

/// Reads `slice_idle=0,2ms,8ms`.
fn parse_sweep(text: &str) -> Result<(String, Vec<String>), String> {
    let (name, values) = parse_setting(text)?;
    let values: Vec<String> = values.split(',').map(|value| value.trim().to_owned()).collect();
    match values.iter().any(String::is_empty) {
        true => Err("a sweep has the form KEY=VALUE,VALUE, as in slice_idle=0,2ms,8ms".into()),
        false => Ok((name, values)),
    }
}

/// Reads `30`, `2.5` (seconds), `500ms`.
fn parse_runtime(text: &str) -> Result<Duration, String> {
    let time = seconds_or_time(text, "a runtime is a number of seconds, or a time with a unit, as in 500ms")?;
    if time > secs(86_400) {
        return Err("the limit is a day: 86400".into());
    }
    units::some_time(time)
}

/// Reads `50us`; `0s` is no time.
fn parse_way(text: &str) -> Result<Duration, String> {
    match units::parse_time(text)? {
        time if time <= secs(10) => Ok(time),
        _ => Err("the limit is 10s".into()),
    }
}

fn parse_block(text: &str) -> Result<u32, String> {
    match units::parse_capacity(text)? {
        bytes if bytes <= 16 << 20 => Ok(bytes as u32),
        _ => Err("a read or write has at most 16m".into()),
    }
}

/// A file is made of pages.
fn parse_file_size(text: &str) -> Result<u64, String> {
    match units::parse_size(text)? {
        // Beyond it, the files of all jobs together could not be counted.
        bytes if bytes > 64 << 40 => Err("a file has at most 64t".into()),
        bytes if bytes >= 4096 && bytes.is_multiple_of(4096) => Ok(bytes),
        _ => Err("a file size is a multiple of 4k, at least 4k".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlift_core::time::{ms, secs};

    #[test]
    fn a_runtime_is_in_seconds_or_has_a_unit() {
        assert_eq!(parse_runtime("30"), Ok(secs(30)));
        assert_eq!(parse_runtime("2.5"), Ok(ms(2500)));
        assert_eq!(parse_runtime("500ms"), Ok(ms(500)));
        for (text, why) in [
            ("0", "must be longer than 0"),
            ("-1", "a number of seconds"),
            ("inf", "a number of seconds"),
            ("1e99", "a day: 86400"),
            ("soon", "a time is a whole number"),
        ] {
            let refusal = parse_runtime(text).unwrap_err();
            assert!(refusal.contains(why), "{text}: {refusal}");
        }
    }

    #[test]
    fn blocks_are_sectors_and_files_are_pages() {
        assert_eq!(parse_block("32k"), Ok(32768));
        assert!(parse_block("1000").is_err() && parse_block("0").is_err() && parse_block("32m").is_err());
        assert_eq!(parse_file_size("512m"), Ok(512 << 20));
        assert_eq!(parse_file_size("8191p"), Err("a file has at most 64t".into()));
        assert!(parse_file_size("0").is_err() && parse_file_size("512").is_err());
    }
}
