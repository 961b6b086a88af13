//! A scheduler under anything: streams and groups come, go, change and move, tunables are at their extremes, the device turns
//! requests back, another scheduler takes over; and nothing is lost, nothing goes twice, and the device is not left idle for
//! longer than the scheduler may.

use std::collections::BTreeMap;

use fairlift_core::model::Character;
use fairlift_core::record::Record;
use fairlift_core::sched::traits::*;
use fairlift_core::sched::{Kind, Next, RequestEnd, RequestId, Served, Setup, Side, Waiting};
use fairlift_core::time::{ms, secs, us};
use fairlift_core::tunable::Range;
use fairlift_core::{
    ContextId, Duration, Extent, Flags, Group, GroupId, Instant, Op, Priority, PriorityClass, Sector, Stream, StreamId,
    Weight,
};
use proptest::prelude::*;

const CAPACITY: u32 = 64;

/// What is tried, and how long it may hold the device idle; `None`: not at all.
#[derive(Clone, Copy)]
pub(crate) struct Subject {
    pub(crate) kind: Kind,
    pub(crate) idle_max: Option<fn(&dyn Scheduler) -> Duration>,
}

/// One thing that happens.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Insert {
        stream: usize,
        op: Op,
        flags: Flags,
        place: u64,
    },
    Dispatch {
        times: u8,
    },
    Complete {
        nth: usize,
    },
    TurnBack {
        nth: usize,
    },
    Wait(Duration),
    Set {
        knob: usize,
        end: u8,
    },
    AddStream {
        group: usize,
        priority: Priority,
    },
    RemoveStream {
        nth: usize,
    },
    Change {
        stream: usize,
        group: usize,
        priority: Priority,
    },
    AddGroup {
        parent: usize,
        weight: u16,
    },
    Weigh {
        group: usize,
        weight: u16,
    },
    RemoveGroup {
        nth: usize,
    },
    /// Of the stream's own group, or of one that it was in once.
    Charge {
        stream: usize,
        group: Option<usize>,
        time: Duration,
    },
    TakeOver,
    /// So many numbers of requests more, and another depth.
    Resize {
        more: u32,
        depth: u16,
    },
    /// So many requests come and go, so that there is much to learn from.
    Busy {
        rounds: u16,
        stride: usize,
    },
}

fn priority() -> impl Strategy<Value = Priority> {
    use PriorityClass::{BestEffort, Idle, RealTime};
    (prop_oneof![1 => Just(RealTime), 6 => Just(BestEffort), 1 => Just(Idle)], 0..8_u8)
        .prop_map(|(class, level)| Priority { class, level })
}

/// Anything.
pub(crate) fn step() -> impl Strategy<Value = Step> {
    let any = any::<usize>;
    let op = prop_oneof![4 => Just(Op::Read), 3 => Just(Op::Write), 1 => Just(Op::Discard)];
    let flags =
        prop_oneof![5 => Just(Flags::NONE), 1 => Just(Flags::SYNC), 1 => Just(Flags::META), 1 => Just(Flags::FUA)];
    let weight = prop_oneof![Just(1), Just(1000), 1..=1000_u16];
    let time =
        prop_oneof![6 => (0..3000_u64).prop_map(us), 4 => (0..40_u64).prop_map(ms), 1 => (0..5_u64).prop_map(secs)];
    prop_oneof![
        30 => (any(), op, flags, 0..4000_u64)
            .prop_map(|(stream, op, flags, place)| Step::Insert { stream, op, flags, place }),
        20 => (1..8_u8).prop_map(|times| Step::Dispatch { times }),
        16 => any().prop_map(|nth| Step::Complete { nth }),
        2 => any().prop_map(|nth| Step::TurnBack { nth }),
        10 => time.clone().prop_map(Step::Wait),
        2 => (any(), 0..4_u8).prop_map(|(knob, end)| Step::Set { knob, end }),
        1 => (any(), priority()).prop_map(|(group, priority)| Step::AddStream { group, priority }),
        1 => any().prop_map(|nth| Step::RemoveStream { nth }),
        3 => (any(), any(), priority())
            .prop_map(|(stream, group, priority)| Step::Change { stream, group, priority }),
        1 => (any(), weight.clone()).prop_map(|(parent, weight)| Step::AddGroup { parent, weight }),
        1 => (any(), weight).prop_map(|(group, weight)| Step::Weigh { group, weight }),
        1 => any().prop_map(|nth| Step::RemoveGroup { nth }),
        1 => (any(), proptest::option::of(any()), time)
            .prop_map(|(stream, group, time)| Step::Charge { stream, group, time }),
        1 => Just(Step::TakeOver),
        1 => (0..40_u32, 1..40_u16).prop_map(|(more, depth)| Step::Resize { more, depth }),
        4 => (100..700_u16, 1..7_usize).prop_map(|(rounds, stride)| Step::Busy { rounds, stride }),
    ]
}

/// A request as it was told to the scheduler.
#[derive(Clone, Copy)]
struct Inserted {
    request: Waiting,
    /// It was turned back and waits as it was.
    returned: bool,
}

/// A scheduler, and what it must know and hold.
pub(crate) struct Run {
    subject: Subject,
    scheduler: Box<dyn Scheduler>,
    depth: u16,
    rotational: bool,
    now: Instant,
    groups: BTreeMap<u16, Group>,
    streams: BTreeMap<u32, Stream>,
    waiting: BTreeMap<RequestId, Inserted>,
    out: BTreeMap<RequestId, Waiting>,
    /// What another scheduler dispatched.
    foreign: Vec<RequestId>,
    free: Vec<RequestId>,
    capacity: u32,
}

/// A scheduler that knows these groups.
fn build(
    kind: Kind,
    (capacity, depth): (u32, u16),
    rotational: bool,
    groups: &BTreeMap<u16, Group>,
) -> Box<dyn Scheduler> {
    let character = Character { rotational, volatile_cache: false };
    let mut scheduler = kind.build(&Setup { depth, character, ..Setup::new(capacity as usize) });
    // Parents first, though their numbers may be greater.
    let mut known = vec![];
    while known.len() < groups.len() {
        for (id, group) in groups {
            if !known.contains(id) && group.parent.is_none_or(|parent| known.contains(&parent.0)) {
                scheduler.set_group(Instant::ZERO, GroupId(*id), group);
                known.push(*id);
            }
        }
    }
    scheduler
}

impl Run {
    pub(crate) fn new(subject: Subject, depth: u16, rotational: bool) -> Self {
        let groups = [(0, Group::root())].into();
        let mut run = Self {
            subject,
            scheduler: build(subject.kind, (CAPACITY, depth), rotational, &groups),
            depth,
            rotational,
            now: Instant::ZERO + secs(1),
            groups,
            streams: BTreeMap::new(),
            waiting: BTreeMap::new(),
            out: BTreeMap::new(),
            foreign: vec![],
            free: (0..CAPACITY).rev().map(RequestId).collect(),
            capacity: CAPACITY,
        };
        for _ in 0..3 {
            run.add_stream(0, Priority::default());
        }
        run
    }

    fn nth<K: Copy + Ord, V>(map: &BTreeMap<K, V>, nth: usize) -> Option<K> {
        (!map.is_empty()).then(|| *map.keys().nth(nth % map.len()).unwrap())
    }

    fn add_stream(&mut self, group: u16, priority: Priority) {
        let id = (0..).find(|id| !self.streams.contains_key(id)).unwrap();
        let stream = Stream { group: GroupId(group), priority, context: ContextId(0) };
        self.streams.insert(id, stream);
        self.scheduler.add_stream(StreamId(id), &stream);
    }

    pub(crate) fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match *step {
            Step::Insert { stream, op, flags, place } => self.insert(stream, op, flags, place)?,
            Step::Dispatch { times } => {
                for _ in 0..times {
                    if !self.dispatch()? {
                        break;
                    }
                }
            }
            Step::Complete { nth } => self.complete(nth),
            Step::TurnBack { nth } => {
                let Some(id) = Self::nth(&self.out, nth) else { return Ok(()) };
                let mut request = self.out.remove(&id).unwrap();
                let Stream { group, priority, .. } = self.streams[&request.stream.0];
                let moved = (request.group, request.priority) != (group, priority);
                if moved {
                    // As the queue tells it: it ended, and a new one came.
                    self.scheduler
                        .completed(self.now, &Served { request, dispatched: self.now, end: RequestEnd::Failed });
                    (request.group, request.priority) = (group, priority);
                    self.scheduler.insert(self.now, &request);
                } else {
                    self.scheduler.requeue(self.now, &request);
                }
                self.waiting.insert(id, Inserted { request, returned: !moved });
            }
            Step::Wait(time) => self.now += time,
            Step::Set { knob, end } => self.set(knob, end),
            Step::AddStream { group, priority } if self.streams.len() < 12 => {
                let group = Self::nth(&self.groups, group).unwrap();
                self.add_stream(group, priority);
            }
            Step::RemoveStream { nth } => {
                let Some(id) = Self::nth(&self.streams, nth) else { return Ok(()) };
                let mine = |request: &Waiting| request.stream == StreamId(id);
                if !self.waiting.values().any(|known| mine(&known.request)) && !self.out.values().any(mine) {
                    self.streams.remove(&id);
                    self.scheduler.remove_stream(StreamId(id));
                }
            }
            Step::Change { stream, group, priority } => {
                let Some(id) = Self::nth(&self.streams, stream) else { return Ok(()) };
                let group = GroupId(Self::nth(&self.groups, group).unwrap());
                let stream = Stream { group, priority, context: ContextId(0) };
                self.streams.insert(id, stream);
                for known in self.waiting.values_mut().filter(|known| known.request.stream == StreamId(id)) {
                    (known.request.group, known.request.priority) = (group, priority);
                }
                self.scheduler.change_stream(self.now, StreamId(id), &stream);
            }
            Step::AddGroup { parent, weight } if self.groups.len() < 9 => {
                let id = (0..).find(|id| !self.groups.contains_key(id)).unwrap();
                let parent = Some(GroupId(Self::nth(&self.groups, parent).unwrap()));
                let group = Group { path: format!("/{id}"), parent, weight: Weight::new(weight) };
                self.scheduler.set_group(self.now, GroupId(id), &group);
                self.groups.insert(id, group);
            }
            Step::Weigh { group, weight } => {
                let id = Self::nth(&self.groups, group).unwrap();
                let group = self.groups.get_mut(&id).unwrap();
                group.weight = Weight::new(weight);
                self.scheduler.set_group(self.now, GroupId(id), group);
            }
            Step::RemoveGroup { nth } => {
                let id = Self::nth(&self.groups, nth).unwrap();
                let mine = |request: &Waiting| request.group == GroupId(id);
                let is_used = id == 0
                    || self.groups.values().any(|group| group.parent == Some(GroupId(id)))
                    || self.streams.values().any(|stream| stream.group == GroupId(id))
                    || self.out.values().any(mine);
                if !is_used {
                    self.groups.remove(&id);
                    self.scheduler.remove_group(self.now, GroupId(id));
                }
            }
            Step::Charge { stream, group, time } => {
                let Some(id) = Self::nth(&self.streams, stream) else { return Ok(()) };
                self.scheduler.flush_began(self.now);
                self.now += time;
                self.scheduler.flush_ended(self.now, time);
                let group = group.and_then(|nth| Self::nth(&self.groups, nth)).map(GroupId);
                self.scheduler.charge(self.now, StreamId(id), group.unwrap_or(self.streams[&id].group), time);
            }
            Step::TakeOver => self.take_over()?,
            Step::Resize { more, depth } => {
                self.free.extend((self.capacity..self.capacity + more).map(RequestId));
                (self.capacity, self.depth) = (self.capacity + more, depth);
                self.scheduler.resize(self.capacity as usize, depth);
            }
            Step::Busy { rounds, stride } => {
                for round in 0..usize::from(rounds) {
                    let op = if round % 5 == 0 { Op::Write } else { Op::Read };
                    for turn in 0..3 {
                        // Some streams ask more than others.
                        self.insert(round * stride / (1 + turn), op, Flags::NONE, (round * 2003) as u64)?;
                        if self.out.len() < usize::from(self.depth) {
                            self.dispatch()?;
                        }
                    }
                    self.now += us(40);
                    (0..2).for_each(|_| self.complete(round));
                }
            }
            Step::AddStream { .. } | Step::AddGroup { .. } => {}
        }
        prop_assert_eq!(self.scheduler.len(), self.waiting.len());
        Ok(())
    }

    /// Merges as the queue does, or inserts.
    fn insert(&mut self, stream: usize, op: Op, flags: Flags, place: u64) -> Result<(), TestCaseError> {
        let Some(stream) = Self::nth(&self.streams, stream) else { return Ok(()) };
        let Some(id) = self.free.pop() else { return Ok(()) };
        let Stream { group, priority, .. } = self.streams[&stream];
        // Few places, so that neighbours are common, in two regions that are far apart.
        let start = place % 40 * 8 + place / 2000 * 10_000_000;
        let extent = Extent::new(Sector(start), 8);
        let request = Waiting { id, op, flags, extent, stream: StreamId(stream), group, priority };
        let candidate = self.scheduler.merge_candidate(&request);
        let Some((host, side)) = candidate else {
            self.scheduler.insert(self.now, &request);
            self.waiting.insert(id, Inserted { request, returned: false });
            return Ok(());
        };
        let kept = self.waiting[&host].request;
        prop_assert!(!self.waiting[&host].returned, "a request that was turned back does not grow");
        prop_assert_eq!(kept.op.direction(), op.direction());
        let touches = match side {
            Side::Back => kept.extent.end() == extent.start,
            Side::Front => extent.end() == kept.extent.start,
        };
        prop_assert!(touches, "{:?} at the {:?} of {:?}", extent, side, kept.extent);
        if (kept.op, kept.flags, kept.group, kept.priority) != (op, flags, group, priority) {
            self.scheduler.insert(self.now, &request);
            self.waiting.insert(id, Inserted { request, returned: false });
            return Ok(());
        }
        self.free.push(id);
        let known = self.waiting.get_mut(&host).unwrap();
        known.request.extent.sectors += 8;
        known.request.extent.start = known.request.extent.start.min(extent.start);
        let grown = known.request;
        self.scheduler.grown(&grown, side);
        if let Some(gone) = self.scheduler.neighbour_after(&grown) {
            let behind = self.waiting[&gone].request;
            prop_assert_eq!(behind.extent.start, grown.extent.end());
            if (behind.op, behind.flags, behind.group, behind.priority) == (op, flags, group, priority) {
                self.waiting.remove(&gone);
                self.free.push(gone);
                let known = self.waiting.get_mut(&host).unwrap();
                known.request.extent.sectors += behind.extent.sectors;
                let whole = known.request;
                self.scheduler.absorbed(&whole, gone);
            }
        }
        Ok(())
    }

    /// Whether something went.
    fn dispatch(&mut self) -> Result<bool, TestCaseError> {
        if self.out.len() >= usize::from(self.depth) || self.waiting.is_empty() {
            return Ok(false);
        }
        let next = self.scheduler.dispatch(self.now);
        match next {
            Next::Request(id) => {
                let known = self.waiting.remove(&id);
                prop_assert!(known.is_some(), "{:?} goes, and does not wait", id);
                self.out.insert(id, known.unwrap().request);
            }
            Next::Idle { until } => {
                prop_assert!(until > self.now, "it is held until a time that has passed");
                prop_assert_eq!(self.scheduler.next_timeout(), Some(until));
                let most = self.idle_max();
                prop_assert!(most.is_some(), "the device is never held idle");
                let held = until.since(self.now);
                prop_assert!(
                    !self.out.is_empty() || Some(held) <= most,
                    "held for {}, and the most is {:?}",
                    held,
                    most
                );
            }
            Next::Empty => prop_assert!(!self.out.is_empty(), "nothing is in the device, and nothing goes"),
        }
        Ok(matches!(next, Next::Request(_)))
    }

    fn idle_max(&self) -> Option<Duration> {
        self.subject.idle_max.map(|most| most(&*self.scheduler))
    }

    fn complete(&mut self, nth: usize) {
        let Some(id) = Self::nth(&self.out, nth) else { return };
        let request = self.out.remove(&id).unwrap();
        self.free.push(id);
        self.scheduler.completed(self.now, &Served { request, dispatched: self.now, end: RequestEnd::Done });
    }

    fn set(&mut self, knob: usize, end: u8) {
        const FAST: &str = "rbps=1e12 rseqiops=1e9 rrandiops=1e9 wbps=1e12 wseqiops=1e9 wrandiops=1e9";
        const SLOW: &str = "rbps=1 rseqiops=1 rrandiops=1 wbps=1 wseqiops=1 wrandiops=1";
        let tunables = self.scheduler.tunables();
        let info = tunables[knob % tunables.len()];
        let (least, most) = match info.range {
            Range::Duration(least, most) | Range::AutoDuration(least, most) => (least.to_string(), most.to_string()),
            Range::Count(least, most) | Range::AutoCount(least, most) => (least.to_string(), most.to_string()),
            Range::Switch => ("0".to_owned(), "1".to_owned()),
            Range::AutoCostModel => (FAST.to_owned(), SLOW.to_owned()),
            Range::Choice(names) => (names[0].to_owned(), names[names.len() - 1].to_owned()),
        };
        let usual = self.subject.kind.build(&Setup::new(1)).get(info.name).unwrap();
        let value = match end {
            0 => least,
            1 => most,
            _ => usual,
        };
        self.scheduler.set(info.name, &value).unwrap();
    }

    /// Another scheduler takes over and gives back: here, a new one of the same kind.
    fn take_over(&mut self) -> Result<(), TestCaseError> {
        let mut next = build(self.subject.kind, (self.capacity, self.depth), self.rotational, &self.groups);
        let mut learned = Record::default();
        self.scheduler.hand_on(&mut learned);
        let text = learned.to_string();
        next.take_on(&mut learned).unwrap_or_else(|why| panic!("its own record can be: {why}: {text}"));
        for (id, stream) in &self.streams {
            next.add_stream(StreamId(*id), stream);
        }
        for _ in 0..self.waiting.len() {
            let id = self.scheduler.drain(self.now);
            prop_assert!(id.is_some(), "it keeps requests to itself");
            let known = self.waiting.get_mut(&id.unwrap());
            prop_assert!(known.is_some(), "{:?} is given twice", id);
            let known = known.unwrap();
            known.returned = false;
            next.insert(self.now, &known.request);
        }
        prop_assert_eq!(self.scheduler.drain(self.now), None);
        self.scheduler = next;
        // What is in the device ends without anybody hearing of it.
        self.foreign.extend(std::mem::take(&mut self.out).into_keys());
        self.free.append(&mut self.foreign);
        Ok(())
    }

    /// All that waits goes, each within its bound, when nothing new comes.
    pub(crate) fn finish(&mut self) -> Result<(), TestCaseError> {
        let mut holds = 0;
        while !self.waiting.is_empty() || !self.out.is_empty() {
            if self.dispatch()? {
                holds = 0;
                continue;
            }
            if self.out.is_empty() {
                let (until, most) = (self.scheduler.next_timeout(), self.idle_max());
                prop_assert!(until.is_some_and(|until| Some(until.since(self.now)) <= most), "{:?}", until);
                self.now = until.unwrap();
                holds += 1;
                // One for each group that may be expected, and one for the stream.
                prop_assert!(holds <= 20, "held {} times in a row", holds);
            } else {
                self.now += us(100);
                self.complete(0);
            }
        }
        Ok(())
    }
}
