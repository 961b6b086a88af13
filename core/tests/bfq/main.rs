//! BFQ as a whole: random operations in which nothing may be lost, and what it promises of shares and waiting.
//!
//! A failure ends with the command that repeats it; worst cases are printed (`cargo test --test bfq -- --nocapture`).

use std::collections::{BTreeMap, BTreeSet};

use fairlift_core::model::Character;
use fairlift_core::sched::bfq::{Bfq, QUANTUM, Settings};
use fairlift_core::sched::traits::*;
use fairlift_core::sched::{Next, RequestEnd, RequestId, Served, Setup, Side, Waiting};
use fairlift_core::time::{ms, secs, us};
use fairlift_core::trace::Note;
use fairlift_core::{
    ContextId, Duration, Extent, Flags, Group, GroupId, Instant, Op, Priority, PriorityClass, Sector, Stream, StreamId,
    Weight,
};
use fairlift_lab::Random;
use fairlift_lab::repeat::{named, seeds};

mod rules;

const CAPACITY: usize = 512;
/// Twice the longest hold for one stream: one may begin as another ends.
const HOLD_MAX: Duration = ms(40);

fn groups(weights: &[u16]) -> Vec<Group> {
    let of = |(at, weight): (usize, &u16)| Group {
        path: format!("/g{at}"),
        parent: Some(GroupId::ROOT),
        weight: Weight::new(*weight),
    };
    std::iter::once(Group::root()).chain(weights.iter().enumerate().map(of)).collect()
}

fn bfq(groups: &[Group], depth: u16, rotational: bool, settings: Settings) -> Bfq {
    let character = Character { rotational, volatile_cache: false };
    Bfq::new(&Setup { capacity: CAPACITY, depth, groups, character }, settings)
}

fn stream(group: u16, class: PriorityClass, level: u8) -> Stream {
    Stream { group: GroupId(group), priority: Priority { class, level }, context: ContextId(0) }
}

/// A scheduler, what is known to wait and to be in the device, and a clock.
struct Bench {
    seed: u64,
    bfq: Bfq,
    now: Instant,
    streams: BTreeMap<StreamId, Stream>,
    waiting: BTreeMap<RequestId, Waiting>,
    in_device: BTreeMap<RequestId, (Waiting, Instant)>,
    free: Vec<RequestId>,
    held_since: Option<Instant>,
    ended: u64,
}

impl Bench {
    fn new(seed: u64, bfq: Bfq) -> Self {
        Self {
            seed,
            bfq,
            now: Instant::ZERO + secs(1),
            streams: BTreeMap::new(),
            waiting: BTreeMap::new(),
            in_device: BTreeMap::new(),
            free: (0..CAPACITY as u32).rev().map(RequestId).collect(),
            held_since: None,
            ended: 0,
        }
    }

    fn add_stream(&mut self, id: u32, stream: Stream) {
        self.bfq.add_stream(StreamId(id), &stream);
        assert!(self.streams.insert(StreamId(id), stream).is_none());
    }

    fn is_open(&self, id: StreamId) -> bool {
        self.waiting.values().chain(self.in_device.values().map(|(w, _)| w)).any(|waiting| waiting.stream == id)
    }

    /// As the queue does: joins a neighbour, or is inserted.
    fn ask(&mut self, stream: StreamId, op: Op, flags: Flags, start: u64, sectors: u64) {
        let Some(id) = self.free.pop() else { return };
        let Stream { group, priority, .. } = self.streams[&stream];
        let extent = Extent::new(Sector(start), sectors);
        let newcomer = Waiting { id, op, flags, extent, stream, group, priority };
        if let Some((kept, side)) = self.bfq.merge_candidate(&newcomer) {
            let other = self.waiting[&kept];
            if other.op == op && other.flags == flags && other.group == group && other.priority == priority {
                let start = if side == Side::Front { start } else { other.extent.start.0 };
                let grown = Extent::new(Sector(start), other.extent.sectors + sectors);
                let kept = Waiting { extent: grown, ..other };
                self.waiting.insert(kept.id, kept);
                self.free.push(id);
                self.bfq.grown(&kept, side);
                if let Some(gone) = self.bfq.neighbour_after(&kept) {
                    let behind = self.waiting[&gone];
                    if (behind.op, behind.flags, behind.group) == (op, flags, group) && behind.priority == priority {
                        let whole = Extent::new(grown.start, grown.sectors + behind.extent.sectors);
                        let kept = Waiting { extent: whole, ..kept };
                        self.waiting.insert(kept.id, kept);
                        self.waiting.remove(&gone);
                        self.free.push(gone);
                        self.bfq.absorbed(&kept, gone);
                    }
                }
                return;
            }
        }
        self.waiting.insert(id, newcomer);
        self.bfq.insert(self.now, &newcomer);
    }

    /// Gives the device what it may have, up to `depth`; looks at the promises on the way.
    fn dispatch(&mut self, depth: usize) -> Vec<Waiting> {
        let mut gone = Vec::new();
        while self.in_device.len() < depth {
            match self.bfq.dispatch(self.now) {
                Next::Request(id) => {
                    let waiting = self.waiting.remove(&id);
                    let waiting = waiting.unwrap_or_else(|| panic!("seed {}: {id:?} goes and did not wait", self.seed));
                    self.in_device.insert(id, (waiting, self.now));
                    gone.push(waiting);
                }
                Next::Idle { until } => {
                    assert!(until > self.now, "seed {}: held until the past", self.seed);
                    assert_eq!(self.bfq.next_timeout(), Some(until), "seed {}: the end of a hold is told", self.seed);
                    break;
                }
                Next::Empty => {
                    let timeout = self.bfq.next_timeout();
                    assert!(timeout.is_none_or(|at| at > self.now), "seed {}: to ask again in the past", self.seed);
                    let idle = self.in_device.is_empty() && !self.waiting.is_empty();
                    assert!(!idle, "seed {}: {} wait for an idle device", self.seed, self.waiting.len());
                    break;
                }
            }
        }
        assert_eq!(self.bfq.len(), self.waiting.len(), "seed {}: how many wait", self.seed);
        if self.in_device.is_empty() && !self.waiting.is_empty() {
            let since = *self.held_since.get_or_insert(self.now);
            assert!(self.now.since(since) <= HOLD_MAX, "seed {}: the device is held for too long", self.seed);
        } else {
            self.held_since = None;
        }
        gone
    }

    fn end(&mut self, id: RequestId) {
        let (request, dispatched) = self.in_device.remove(&id).expect("it is in the device");
        self.free.push(id);
        self.ended += 1;
        self.bfq.completed(self.now, &Served { request, dispatched, end: RequestEnd::Done });
    }

    /// Time passes, until the end of a hold if that is sooner and nothing else can happen.
    fn pass(&mut self, time: Duration) {
        let then = self.now + time;
        self.now = match self.bfq.next_timeout() {
            Some(until) if self.in_device.is_empty() && until < then => until.max(self.now),
            _ => then,
        };
    }

    /// All that was asked goes and ends.
    fn settle(&mut self, depth: usize) {
        let mut turns = 0;
        while !self.waiting.is_empty() || !self.in_device.is_empty() {
            self.dispatch(depth);
            self.pass(us(500));
            if let Some((&id, _)) = self.in_device.iter().next() {
                self.end(id);
            }
            turns += 1;
            assert!(turns < 100_000, "seed {}: {} never go", self.seed, self.waiting.len());
        }
    }
}

fn any_stream(random: &mut Random, groups: u64) -> Stream {
    let class = match random.below(10) {
        0 => PriorityClass::RealTime,
        1 => PriorityClass::Idle,
        _ => PriorityClass::BestEffort,
    };
    let level = if random.below(3) == 0 { random.below(8) as u8 } else { 4 };
    stream(random.below(groups) as u16, class, level)
}

fn set_something(bench: &mut Bench, random: &mut Random) {
    let (name, value) = [
        ("strict_guarantees", "1"),
        ("strict_guarantees", "0"),
        ("low_latency", "0"),
        ("low_latency", "1"),
        ("slice_idle", "0"),
        ("slice_idle", "8ms"),
        ("slice_idle_us", "500"),
        ("service", "turns"),
        ("service", "together"),
        ("service", "auto"),
        ("queue_merging", "on"),
        ("queue_merging", "off"),
        ("queue_merging", "auto"),
        ("max_budget", "64"),
        ("max_budget", "0"),
        ("timeout_sync", "20ms"),
        ("device_depth", "3"),
        ("device_depth", "0"),
    ][random.below(18) as usize];
    bench.bfq.set(name, value).expect("it can be set");
}

/// Everything that can happen to a scheduler, in any order.
fn churn(seed: u64, rotational: bool) -> u64 {
    let mut random = Random::new(seed);
    let tree = groups(&[100, 200, 1000]);
    let depth = [1, 4, 32][random.below(3) as usize];
    let mut bench = Bench::new(seed, bfq(&tree, depth, rotational, Settings::default()));
    let mut extra: BTreeSet<u16> = BTreeSet::new();
    for id in 0..6 {
        let new = any_stream(&mut random, 4);
        bench.add_stream(id, new);
    }
    for _ in 0..3000 {
        match random.below(100) {
            0..35 => {
                let ids: Vec<_> = bench.streams.keys().copied().collect();
                let id = ids[random.below(ids.len() as u64) as usize];
                let (op, flags) = match random.below(6) {
                    0 => (Op::Write, Flags::NONE),
                    1 => (Op::Write, Flags::SYNC),
                    2 => (Op::Discard, Flags::NONE),
                    _ => (Op::Read, Flags::NONE),
                };
                // Close together now and then, so that requests and queues are merged.
                let start = if random.below(2) == 0 { random.below(64) * 8 } else { random.below(1 << 30) * 8 };
                bench.ask(id, op, flags, start, 8 << random.below(6));
            }
            35..70 => {
                bench.dispatch(depth.into());
            }
            70..85 => {
                let ids: Vec<_> = bench.in_device.keys().copied().collect();
                if !ids.is_empty() {
                    bench.end(ids[random.below(ids.len() as u64) as usize]);
                }
            }
            85..88 => {
                let ids: Vec<_> = bench.in_device.keys().copied().collect();
                if !ids.is_empty() {
                    let id = ids[random.below(ids.len() as u64) as usize];
                    let (mut request, _) = bench.in_device.remove(&id).expect("it is there");
                    // What waits is told as its stream is now.
                    let Stream { group, priority, .. } = bench.streams[&request.stream];
                    (request.group, request.priority) = (group, priority);
                    bench.bfq.requeue(bench.now, &request);
                    bench.waiting.insert(id, request);
                }
            }
            88..91 => {
                let ids: Vec<_> = bench.streams.keys().copied().collect();
                let id = ids[random.below(ids.len() as u64) as usize];
                let new = any_stream(&mut random, 4);
                bench.streams.insert(id, new);
                for waiting in bench.waiting.values_mut().filter(|waiting| waiting.stream == id) {
                    (waiting.group, waiting.priority) = (new.group, new.priority);
                }
                bench.bfq.change_stream(bench.now, id, &new);
            }
            91 => {
                let id = StreamId(random.below(12) as u32);
                if !bench.streams.contains_key(&id) {
                    let new = any_stream(&mut random, 4);
                    bench.add_stream(id.0, new);
                } else if bench.streams.len() > 2 && !bench.is_open(id) {
                    bench.bfq.remove_stream(id);
                    bench.streams.remove(&id);
                }
            }
            92 => {
                let id = 1 + random.below(3) as u16;
                let weight = 1 + random.below(1000) as u16;
                let group = Group { weight: Weight::new(weight), ..tree[usize::from(id)].clone() };
                bench.bfq.set_group(bench.now, GroupId(id), &group);
            }
            93 => {
                let id = 4 + random.below(3) as u16;
                if extra.remove(&id) {
                    bench.bfq.remove_group(bench.now, GroupId(id));
                } else {
                    let group = Group { path: format!("/x{id}"), parent: Some(GroupId(1)), weight: Weight::new(50) };
                    bench.bfq.set_group(bench.now, GroupId(id), &group);
                    extra.insert(id);
                }
            }
            94 => set_something(&mut bench, &mut random),
            95 => {
                let (&id, stream) = bench.streams.iter().next().expect("one is there");
                let group = stream.group;
                bench.bfq.charge(bench.now, id, group, us(random.below(5000)));
            }
            _ => bench.pass(us(random.below(4000))),
        }
    }
    // Half of the runs end by a change of scheduler, half by themselves.
    if seed.is_multiple_of(2) {
        let mut left: BTreeSet<_> = bench.waiting.keys().copied().collect();
        while let Some(id) = bench.bfq.drain(bench.now) {
            assert!(left.remove(&id), "seed {seed}: {id:?} is handed over twice, or was not there");
        }
        assert!(left.is_empty(), "seed {seed}: {left:?} are not handed over");
        assert!(bench.bfq.is_empty());
    } else {
        bench.bfq.set("slice_idle", "8ms").expect("it can be set");
        bench.settle(depth.into());
    }
    bench.ended
}

#[test]
fn nothing_is_lost_or_goes_twice_whatever_changes_meanwhile() {
    let ended: u64 = seeds(0..300).map(|seed| churn(seed, seed % 3 == 0)).sum();
    assert!(ended > 50_000 || named().is_some(), "the runs did something: {ended} requests ended");
}

/// Every queue always has something waiting; a device that ends in any order. Returns the worst lag, as a part of the bound.
fn share(seed: u64, service: &str, budget: u64) -> f64 {
    let mut random = Random::new(seed);
    let weights: Vec<u16> = (0..2 + random.below(7)).map(|_| 1 + random.below(1000) as u16).collect();
    let tree = groups(&weights);
    let mut bench = Bench::new(seed, bfq(&tree, 32, false, Settings::default()));
    for (name, value) in [("service", service), ("max_budget", &budget.to_string()), ("low_latency", "0")] {
        bench.bfq.set(name, value).expect("it can be set");
    }
    bench.bfq.set("timeout_sync", "1000s").expect("it can be set");
    let mut places: Vec<u64> = (0..weights.len() as u64).map(|at| at << 32).collect();
    let mut ask = |bench: &mut Bench, random: &mut Random, at: usize| {
        let sectors = 8 * (1 + random.below(budget / 8));
        places[at] += sectors + 8; // a gap, so that nothing is merged
        bench.ask(StreamId(at as u32), Op::Read, Flags::NONE, places[at], sectors);
    };
    for at in 0..weights.len() {
        bench.add_stream(at as u32, stream(at as u16 + 1, PriorityClass::BestEffort, 4));
    }
    for at in 0..weights.len() {
        (0..8).for_each(|_| ask(&mut bench, &mut random, at));
    }
    let mut served = vec![0_u64; weights.len()];
    let mut worst = 0_f64;
    for _ in 0..4000 {
        for gone in bench.dispatch(32) {
            let at = gone.stream.0 as usize;
            served[at] += gone.extent.sectors;
            ask(&mut bench, &mut random, at);
            for one in 0..weights.len() {
                for other in 0..one {
                    let (a, b) = (f64::from(weights[one]), f64::from(weights[other]));
                    let lag = (served[one] as f64 / a - served[other] as f64 / b).abs();
                    let bound = 2.0 * budget as f64 * (1.0 / a + 1.0 / b);
                    worst = worst.max(lag / bound);
                    assert!(lag <= bound, "seed {seed}: weights {a} and {b} differ by {lag}, more than {bound}");
                }
            }
        }
        bench.pass(us(100));
        let ids: Vec<_> = bench.in_device.keys().copied().collect();
        if !ids.is_empty() {
            bench.end(ids[random.below(ids.len() as u64) as usize]);
        }
    }
    worst
}

/// The bound of `fair`, through the whole scheduler, at every instant.
#[test]
fn who_always_asks_is_served_by_weight_within_the_bound() {
    for (service, budget) in [("together", u64::from(QUANTUM)), ("turns", 1024)] {
        let worst = seeds(0..60).map(|seed| (share(seed, service, budget), seed));
        let (worst, seed) = worst.max_by(|a, b| a.0.total_cmp(&b.0)).expect("there are runs");
        println!("{service}: the worst lag was {:.0} % of the bound, in the run of seed {seed}", worst * 100.0);
    }
}
