//! The questions to a disk, step by step, and the time of each step.

use fairlift_core::{Duration, Op};

use super::Facts;
use crate::Random;
use crate::iostest::{Case, Placement, Plan, START};
use crate::program::{PAGE, Pattern};
use crate::workload::{Does, Role, Workload};

/// By what way requests go to the disk.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Way {
    /// As they come: what the disk does by itself. Goyal's table calls it Noop.
    Straight,
    /// Through `cfq` with `slice_idle=8ms`.
    Idling,
    /// Through `cfq` with `slice_idle=0`.
    NotIdling,
    /// Through Fairlift's queue with `none`, whose flushes are shared.
    Shared,
}

/// Where requests go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Area {
    /// The disk under measurement; it is only read.
    Device,
    /// Where may be written.
    Scratch,
}

/// One thing that is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Probe {
    /// Sequential readers, as far apart as can be: 128 KiB at a time, two in flight for each, as read-ahead has.
    Streams(u32, Way),
    /// Sequential readers through a page cache, 4 KiB at a time: `dd` in Goyal's table.
    Buffered(u32),
    /// One reader of 4 KiB at a time, in random places, beside `WRITERS` writers through a page cache.
    Beside(Way),
    /// One reader: pattern, bytes of a block, and blocks in flight.
    Read(Pattern, u32, u32),
    /// As `Read(Random, 4096, 8)`, with blocks that start amid a page.
    Shifted,
    /// The same random places twice.
    Again,
    /// The first measurements, at the end: `Streams(1, Straight)` and then `Read(Random, 4096, 8)`.
    Reference(Pattern),
    /// One writer: pattern, bytes of a block, and blocks in flight.
    Write(Pattern, u32, u32),
    /// Random reads and writes of 4 KiB: in flight of each.
    Mixed(u32, u32),
    /// Writers that make each 4 KiB durable before the next.
    Durable(u32, Way),
}

/// Bytes that a stream reads at a time: as the kernel's read-ahead, by default.
const WINDOW: u32 = 128 << 10;
/// Writers beside a reader. Chosen: enough that the disk always has writes.
pub(super) const WRITERS: u32 = 4;
/// A small block: a page, as the figures of `io.cost.model` are for (judge.3).
pub(super) const SMALL: u32 = 4096;
/// In flight where the place matters. Chosen: enough that a disk does not wait for us, too few to reorder much.
const SOME: u32 = 8;

impl Probe {
    /// By what way it goes.
    #[must_use]
    pub const fn way(self) -> Way {
        match self {
            Self::Streams(_, way) | Self::Durable(_, way) | Self::Beside(way) => way,
            _ => Way::Straight,
        }
    }

    /// Where it goes.
    #[must_use]
    pub const fn place(self) -> Area {
        match self {
            Self::Write(..) | Self::Mixed(..) | Self::Durable(..) | Self::Beside(_) => Area::Scratch,
            _ => Area::Device,
        }
    }

    /// Requests in flight.
    #[must_use]
    pub const fn in_flight(self) -> u32 {
        match self {
            Self::Streams(n, _) => 2 * n,
            Self::Read(_, _, depth) | Self::Write(_, _, depth) => depth,
            Self::Shifted | Self::Again | Self::Reference(Pattern::Random) => SOME,
            Self::Reference(Pattern::Sequential) => 2,
            Self::Mixed(reads, writes) => reads + writes,
            Self::Durable(n, _) | Self::Buffered(n) => n,
            Self::Beside(_) => 1,
        }
    }

    /// In a few words, for the user who waits.
    #[must_use]
    pub fn about(self) -> String {
        let order = |order| if order == Pattern::Random { "random" } else { "sequential" };
        let size = |bytes: u32| if bytes < 1 << 20 { format!("{}k", bytes >> 10) } else { format!("{}m", bytes >> 20) };
        match self {
            Self::Streams(n, way) => {
                let s = if n == 1 { "" } else { "s" };
                let how = match way {
                    Way::Idling => ", idling",
                    Way::NotIdling => ", not idling",
                    Way::Straight | Way::Shared => "",
                };
                format!("{n} stream{s}{how}")
            }
            Self::Buffered(n) => format!("{n} buffered stream{}", if n == 1 { "" } else { "s" }),
            Self::Beside(way) => {
                let how = if way == Way::Idling { "idling" } else { "not idling" };
                format!("a reader beside buffered writers, {how}")
            }
            Self::Read(by, block, depth) => format!("{} reads of {}, {depth} in flight", order(by), size(block)),
            Self::Shifted => "alignment".into(),
            Self::Again => "the same places twice".into(),
            Self::Reference(_) => "the first figures again".into(),
            Self::Write(by, block, depth) => format!("{} writes of {}, {depth} in flight", order(by), size(block)),
            Self::Mixed(..) => "reads and writes".into(),
            Self::Durable(n, way) => {
                let (s, how) = (if n == 1 { "" } else { "s" }, if way == Way::Shared { ", shared" } else { "" });
                format!("durable writes, {n} writer{s}{how}")
            }
        }
    }
}

/// A probe, and how long it may take.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ProbeRun {
    /// The step.
    pub probe: Probe,
    /// The most runs.
    pub runs: u32,
    /// Of a run.
    pub each: Duration,
}

/// The steps that fit into `time`; `quick` leaves some out and repeats less.
#[must_use]
pub fn plan(facts: &Facts, time: Duration, quick: bool) -> Vec<ProbeRun> {
    use Pattern::{Random, Sequential};
    use Way::{Idling, NotIdling, Shared, Straight};
    // The step to measure, and its length relative to the others.
    let mut list: Vec<(Probe, f64)> = [1, 2, 4, 8, 16].map(|n| (Probe::Streams(n, Straight), 1.0)).into();
    list.push((Probe::Read(Random, SMALL, 1), 0.8));
    let deepest = if quick { 64 } else { 256 };
    let depths = (1..).map(|power| 1 << power).take_while(|depth| *depth <= deepest);
    list.extend(depths.map(|depth| (Probe::Read(Random, SMALL, depth), 0.6)));
    // A slice is 100 ms: to see each stream's turn several times, idling takes long.
    list.extend([(1, 0.6), (2, 0.9), (4, 1.3), (8, 2.0), (16, 3.8)].map(|(n, part)| (Probe::Streams(n, Idling), part)));
    list.extend([(2, 0.9), (4, 0.9), (8, 1.0), (16, 1.2)].map(|(n, part)| (Probe::Streams(n, NotIdling), part)));
    list.extend([1, 2, 4, 8].map(|n| (Probe::Buffered(n), 0.6)));
    list.extend([64 << 10, 256 << 10, 1 << 20].map(|block| (Probe::Read(Random, block, 1), 0.5)));
    list.push((Probe::Read(Sequential, SMALL, 1), 0.4));
    list.push((Probe::Read(Sequential, SMALL, 32), 0.6));
    list.push((Probe::Read(Sequential, 1 << 20, 4), 0.6));
    if facts.block < SMALL {
        list.push((Probe::Shifted, 0.5));
    }
    if facts.scratch.is_some() {
        list.push((Probe::Write(Random, SMALL, 1), 0.6));
        list.push((Probe::Write(Random, SMALL, 32), 0.8));
        list.push((Probe::Write(Sequential, SMALL, 32), 0.6));
        list.push((Probe::Write(Sequential, 1 << 20, 4), 0.8));
        list.push((Probe::Mixed(22, 10), 0.8));
        list.extend([(1, Straight), (16, Straight), (16, Shared)].map(|(n, way)| (Probe::Durable(n, way), 0.8)));
        // Writers fill their caches first, and a slice is 100 ms.
        list.extend([Idling, NotIdling].map(|way| (Probe::Beside(way), 2.4)));
    }
    if !facts.at_rest {
        list.push((Probe::Again, 0.8));
        list.extend([Sequential, Random].map(|order| (Probe::Reference(order), 0.7)));
    }
    let whole: f64 = list.iter().map(|(_, part)| part).sum();
    let step = |(probe, part): (Probe, f64)| {
        let runs = match probe {
            Probe::Again | Probe::Streams(8.., Idling) | Probe::Beside(_) => 2,
            _ if quick => 3,
            Probe::Streams(_, Idling) => 4,
            _ => 6,
        };
        let nanos = time.as_nanos() as f64 * part / whole / f64::from(runs);
        ProbeRun { probe, runs, each: Duration::from_nanos((nanos as u64).max(1_000_000)) }
    };
    list.into_iter().map(step).collect()
}

impl ProbeRun {
    /// The case of one of its runs; `number` tells it from others (iostune.3).
    #[must_use]
    pub fn case(&self, facts: &Facts, seed: u64, number: u64) -> Case {
        let bytes = match self.probe.place() {
            Area::Device => facts.bytes,
            Area::Scratch => facts.scratch.unwrap_or(facts.bytes),
        };
        let direct = |op, order, block, depth| {
            let does = Does::Direct(op, order);
            Role { block_size: block, iodepth: Some(depth), ..Role::new("probe", does) }
        };
        let (roles, jobs) = match self.probe {
            Probe::Streams(n, _) => (vec![direct(Op::Read, Pattern::Sequential, WINDOW, 2)], n),
            Probe::Reference(Pattern::Sequential) => (vec![direct(Op::Read, Pattern::Sequential, WINDOW, 2)], 1),
            Probe::Buffered(n) => {
                let does = Does::Buffered(Op::Read, Pattern::Sequential);
                (vec![Role { block_size: SMALL, ..Role::new("probe", does) }], n)
            }
            Probe::Beside(_) => {
                let role = |op, order| Role { block_size: SMALL, ..Role::new("probe", Does::Buffered(op, order)) };
                let reader = Role { once: true, ..role(Op::Read, Pattern::Random) };
                (vec![reader, role(Op::Write, Pattern::Sequential)], WRITERS)
            }
            Probe::Read(order, block, depth) => (vec![direct(Op::Read, order, block, depth)], 1),
            Probe::Shifted | Probe::Reference(Pattern::Random) => {
                (vec![direct(Op::Read, Pattern::Random, SMALL, SOME)], 1)
            }
            Probe::Again => (vec![direct(Op::Read, Pattern::Random, 16 << 10, SOME)], 1),
            Probe::Write(order, block, depth) => (vec![direct(Op::Write, order, block, depth)], 1),
            Probe::Mixed(reads, writes) => {
                let roles = [(Op::Read, reads), (Op::Write, writes)];
                (roles.map(|(op, depth)| direct(op, Pattern::Random, SMALL, depth)).into(), 2)
            }
            Probe::Durable(writers, _) => {
                (vec![Role { block_size: SMALL, ..Role::new("probe", Does::Fsync { fua: false }) }], writers)
            }
        };
        let files = u64::from(jobs) + roles.iter().filter(|role| role.once).count() as u64;
        let part = (bytes.saturating_sub(START) / files / PAGE * PAGE).max(PAGE);
        let skip = self.skip(part, number);
        let workload = Workload { name: self.probe.about(), about: String::new(), roles, groups: Vec::new() };
        let (file_size, placement) = ((part - skip) / PAGE * PAGE, Placement::Within(skip));
        let plan = Plan { runtime: self.each, file_size, placement, ..Plan::default() };
        let seed = Random::new(seed ^ number.rotate_left(32)).bits();
        Case { slots: SLOTS, seed, ..plan.case(&workload, number as u32 + 1, jobs) }
    }

    /// How far into its part a file begins.
    fn skip(&self, part: u64, number: u64) -> u64 {
        /// Reads at this many places, then the first again. Chosen: more than the runs of a step.
        const PLACES: u64 = 64;
        let sequential = match self.probe {
            Probe::Shifted => return if part > 2 * PAGE { 512 } else { 0 },
            Probe::Streams(..) | Probe::Buffered(_) | Probe::Durable(..) => true,
            Probe::Read(order, ..) | Probe::Write(order, ..) | Probe::Reference(order) => order == Pattern::Sequential,
            Probe::Again | Probe::Mixed(..) | Probe::Beside(_) => false,
        };
        // Not far: on a disk that rotates, the rate follows from the place.
        let apart = (part / (2 * PLACES)).min(1 << 30) / PAGE * PAGE;
        if sequential { number % PLACES * apart } else { 0 }
    }
}

/// Number of parts of a run's timeline. Chosen: the beginning of a run is told from its rest.
const SLOTS: u32 = 8;
