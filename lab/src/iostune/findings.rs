//! The findings, as data: the schema of `--json` (`docs/iostune-output.md`). Fields may be added; none is renamed.

use serde::{Deserialize, Serialize};

use super::Figure;
use crate::result::Host;

/// The facts known without measuring.
#[derive(Clone, PartialEq, Serialize, Deserialize, Default, Debug)]
pub struct Header {
    /// `iostune`.
    pub tool: String,
    /// Fairlift's.
    pub version: String,
    /// As the user wrote it.
    pub device: String,
    /// Where it was measured; of a model nowhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Host>,
    /// Seed of all random choices.
    pub seed: u64,
    /// The command line that repeats the measurement.
    pub command: String,
    /// Bytes that were read from.
    pub bytes: u64,
    /// The smallest request, in bytes.
    pub block: u32,
    /// Whether time is that of a model.
    pub virtual_time: bool,
    /// Time of the disk that was spent, in seconds.
    pub took_s: f64,
    /// Whether it was stopped before its end: what was not measured is absent.
    pub interrupted: bool,
}

/// All of it.
#[derive(Clone, PartialEq, Serialize, Deserialize, Default, Debug)]
pub struct Findings {
    /// The facts known without measuring.
    #[serde(flatten)]
    pub header: Header,
    /// Parallel sequential readers, straight to the disk.
    pub streams: Vec<Streams>,
    /// The same through a page cache, 4 KiB at a time.
    #[serde(default)]
    pub streams_buffered: Vec<Streams>,
    /// As `streams`, through `cfq` with `slice_idle=8ms`.
    pub streams_idling: Vec<Streams>,
    /// The same through `cfq` with `slice_idle=0`.
    pub streams_not_idling: Vec<Streams>,
    /// Random reads of 4 KiB, by requests in flight.
    pub random: Vec<Size>,
    /// Other reads: sequential, and of other sizes.
    pub sizes: Vec<Size>,
    /// Reads amid pages, if the disk takes them.
    pub alignment: Option<Alignment>,
    /// The same places twice.
    pub again: Option<Again>,
    /// The first measurement, repeated at the end.
    pub reference: Vec<Reference>,
    /// Writes, if there was somewhere to write.
    pub writes: Option<Writes>,
    /// The cost of a request.
    pub model: Option<CostModel>,
    /// The kind of the disk.
    pub character: Character,
    /// Whether to idle.
    pub verdict: Option<Verdict>,
    /// The recommended settings.
    pub recommend: Recommend,
    /// The doubts about the figures.
    pub warnings: Vec<String>,
}

/// A row of the table of streams.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Streams {
    /// How many.
    pub n: u32,
    /// All together, in 1000² bytes a second.
    pub total_mb_s: f64,
    /// Each, the fastest first, averaged over runs by rank.
    pub each_mb_s: Vec<f64>,
    /// Half of the best minus the worst run, in % of the mean.
    pub spread_percent: f64,
    /// Runs.
    pub runs: u32,
}

/// Reads or writes.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    /// Reads in random places.
    RandomRead,
    /// Reads one after the other.
    SequentialRead,
    /// Writes in random places.
    RandomWrite,
    /// Writes one after the other.
    SequentialWrite,
}

/// Blocks of a size, with a number in flight.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Size {
    /// The steps done.
    pub op: Op,
    /// Bytes.
    pub block: u32,
    /// In flight.
    pub depth: u32,
    /// How it went.
    #[serde(flatten)]
    pub figure: Figure,
}

/// Reads amid pages.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Alignment {
    /// Reads of 4 KiB in a second that start at multiples of 4 KiB, 8 in flight.
    pub aligned_iops: f64,
    /// The same, 512 bytes farther.
    pub shifted_iops: f64,
}

/// The same places twice.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Again {
    /// Reads of 16 KiB in a second, the first time.
    pub first_iops: f64,
    /// The second time.
    pub again_iops: f64,
}

/// A figure of the beginning, at the end.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Reference {
    /// The step.
    pub op: Op,
    /// Operations in a second, when it was measured first.
    pub first_iops: f64,
    /// At the end.
    pub last_iops: f64,
}

/// The figures of writes.
#[derive(Clone, PartialEq, Serialize, Deserialize, Default, Debug)]
pub struct Writes {
    /// By order, size and depth.
    pub sizes: Vec<Size>,
    /// 22 random reads and 10 random writes of 4 KiB in flight: all in a second.
    pub mixed_iops: Option<f64>,
    /// Writers that make each 4 KiB durable.
    pub durable: Vec<Durable>,
    /// A random reader of 4 KiB beside buffered writers, through `cfq`: what reads take with either `slice_idle`.
    #[serde(default)]
    pub beside: Vec<Beside>,
    /// The time that a flush adds to a write of 4 KiB, µs.
    pub flush_us: Option<f64>,
    /// How many times as many durable writes 16 writers get done as one: what the disk or file system makes of flushes that
    /// are asked for together.
    pub flush_gain: Option<f64>,
    /// The same, 16 against 16, with flushes shared by Fairlift against each by itself.
    pub shared_gain: Option<f64>,
}

/// A reader beside buffered writers.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Beside {
    /// `8ms` or `0s`.
    pub slice_idle: String,
    /// How its reads went.
    #[serde(flatten)]
    pub figure: Figure,
}

/// Writers that make each 4 KiB durable.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Durable {
    /// How many.
    pub writers: u32,
    /// Whether their flushes are shared by Fairlift.
    pub shared: bool,
    /// How it went.
    #[serde(flatten)]
    pub figure: Figure,
}

/// The cost of a request.
///
/// With as much in flight as the disk can use, a request takes `base + bytes × per byte` of its time: the kernel's model in
/// `blk-iocost`. Alone, it takes `alone`.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct CostModel {
    /// The most sequential bytes in a second that were seen.
    pub rbps: f64,
    /// Sequential reads of 4 KiB in a second.
    pub rseqiops: f64,
    /// Random reads of 4 KiB in a second.
    pub rrandiops: f64,
    /// As `rbps`, of writes.
    pub wbps: Option<f64>,
    /// As `rseqiops`, of writes.
    pub wseqiops: Option<f64>,
    /// As `rrandiops`, of writes.
    pub wrandiops: Option<f64>,
    /// Of a sequential read, beside its bytes, µs.
    pub read_base_sequential_us: f64,
    /// Of a random read.
    pub read_base_random_us: f64,
    /// Of a KiB read.
    pub read_kib_us: f64,
    /// Of a random read with nothing else in flight, beside its bytes, µs.
    pub alone_base_us: Option<f64>,
    /// Of a KiB of it.
    pub alone_kib_us: Option<f64>,
}

/// The kind of the disk.
#[derive(Clone, PartialEq, Serialize, Deserialize, Default, Debug)]
pub struct Character {
    /// A random read takes 2 ms or more, and more than ten times as long as a sequential one.
    pub rotational_like: Option<bool>,
    /// The time of a random read against that of a sequential one, 4 KiB each, alone.
    pub random_cost: Option<f64>,
    /// Random reads with as many in flight as help, against one at a time.
    pub depth_gain: Option<f64>,
    /// The disk works on several requests at once, or orders them: `depth_gain` is 1.3 or more.
    pub queues: Option<bool>,
    /// The least number of random reads in flight that gets 95 % of the most.
    pub depth_saturates: Option<u32>,
    /// Whether the largest number that was tried still got more than 5 % more than half of it.
    pub depth_rises: Option<bool>,
    /// 2 streams against one, straight to the disk.
    pub parallel_gain: Option<f64>,
    /// 2, 4, 8 and 16 streams: the most they move together, against one.
    pub parallel_gain_max: Option<f64>,
}

/// Whether to idle.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Verdict {
    /// `idle`, `don't` or `doesn't matter`.
    pub says: String,
    /// The `slice_idle` that follows: `8ms` or `0s`.
    pub slice_idle: String,
    /// 2 streams against one, straight to the disk.
    pub parallel_gain: f64,
    /// The throughput of parallel streams with `slice_idle=8ms` against 0: the geometric mean of 2, 4, 8 and 16 of them.
    pub idling_gain: Option<f64>,
    /// The figures in a sentence.
    pub why: String,
    /// Where it says not to idle: whether that is so for a disk that holds the system, whose readers wait for buffered writers.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub root_disk: Option<String>,
}

/// The recommended settings.
#[derive(Clone, PartialEq, Serialize, Deserialize, Default, Debug)]
pub struct Recommend {
    /// In Fairlift.
    pub fairlift: RecommendFairlift,
    /// In the kernel.
    pub kernel: RecommendKernel,
}

/// The settings in Fairlift.
#[derive(Clone, PartialEq, Serialize, Deserialize, Default, Debug)]
pub struct RecommendFairlift {
    /// The scheduler.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub scheduler: Option<String>,
    /// Its `slice_idle`, if it has one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub slice_idle: Option<String>,
    /// The cost of requests, for `fair`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cost_model: Option<String>,
    /// Requests in flight.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub depth: Option<u16>,
    /// Whether flushes are shared.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub flush_coordinate: Option<bool>,
    /// A config file for `fairlift serve --config`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub config: Option<String>,
    /// The figure behind each.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub why: Vec<String>,
}

/// The settings in the kernel, for the same disk.
#[derive(Clone, PartialEq, Serialize, Deserialize, Default, Debug)]
pub struct RecommendKernel {
    /// The scheduler.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub scheduler: Option<String>,
    /// Lines for a file in `/etc/udev/rules.d`.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub udev: Vec<String>,
    /// A line for `/sys/fs/cgroup/io.cost.model`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub io_cost_model: Option<String>,
    /// The figure behind each.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub why: Vec<String>,
}
