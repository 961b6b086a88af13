//! A device, clients and the scheduler, in virtual time: nothing of the queue, nothing of the lab, nothing random.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use fairlift_core::sched::fair::{Fair, Settings};
use fairlift_core::sched::traits::*;
use fairlift_core::sched::{Next, RequestEnd, RequestId, Served, Setup, Waiting};
use fairlift_core::time::us;
use fairlift_core::{
    ContextId, Duration, Extent, Flags, Group, GroupId, Instant, Op, Priority, Sector, Stream, StreamId, Weight,
};
use fairlift_lab::Random;

/// A device that serves all that is in it at once, the slower each the more there are.
#[derive(Clone, Copy)]
pub(crate) struct Device {
    /// What it does with so many in it: units a second, of which a request has so many.
    pub(crate) speed: fn(usize) -> f64,
    pub(crate) work: fn(&Waiting) -> f64,
    pub(crate) answers: Answers,
}

/// When a device answers what has ended.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Answers {
    /// At once.
    Each,
    /// At every such time, all that has ended since.
    Every(Duration),
    /// When such a part of what is in it has ended, or all: a virtual disk, whose host answers many at once.
    Part(f64),
}

/// One request is one unit on average, 5 % more or less: or all that is in the device would end at once.
pub(crate) fn one(request: &Waiting) -> f64 {
    0.95 + 0.1 * (request.extent.start.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f64 / (1_u64 << 24) as f64
}

/// Eight at once, each for 100 µs.
pub(crate) const EIGHT: Device = Device { speed: |n| n.min(8) as f64 * 10_000.0, work: one, answers: Answers::Each };

/// A virtual disk: 11,000 reads a second with one in it, 99,000 with 64.
pub(crate) const DISK: Device = Device {
    speed: |n| line(n, &[(1, 11e3), (2, 20e3), (4, 36e3), (8, 50e3), (16, 62e3), (32, 79e3), (64, 99e3)]),
    work: one,
    answers: Answers::Each,
};

/// A virtual disk that does more with every request, up to 114 of them.
pub(crate) const GROWING: Device = Device {
    speed: |n| line(n, &[(1, 11e3), (2, 20e3), (4, 36e3), (8, 50e3), (16, 62e3), (32, 79e3), (64, 99e3), (114, 118e3)]),
    work: one,
    answers: Answers::Each,
};

/// A virtual disk that does nearly twice as much with 128 requests as with 40.
pub(crate) const STEEP: Device = Device {
    speed: |n| {
        line(n, &[(1, 11e3), (2, 20e3), (4, 38e3), (8, 60e3), (16, 75e3), (32, 95e3), (64, 124e3), (128, 160e3)])
    },
    work: one,
    answers: Answers::Each,
};

/// A disk that is full with 16 to 32.
pub(crate) const EARLY: Device = Device {
    speed: |n| line(n, &[(1, 11e3), (4, 40e3), (8, 70e3), (16, 92e3), (32, 99e3), (64, 100e3)]),
    work: one,
    answers: Answers::Each,
};

/// What a device does with `n` in it, by lines between the points that are known.
fn line(n: usize, points: &[(usize, f64)]) -> f64 {
    let (mut from, mut low) = (0, 0.0);
    for (to, high) in points.iter().copied() {
        if n <= to {
            return low + (high - low) * (n - from) as f64 / (to - from) as f64;
        }
        (from, low) = (to, high);
    }
    low
}

/// Who asks.
#[derive(Clone, Copy)]
pub(crate) struct Client {
    pub(crate) stream: StreamId,
    pub(crate) op: Op,
    /// Requests that it keeps waiting or in the device.
    pub(crate) depth: u32,
    /// From an end to the next request.
    pub(crate) think: Duration,
    /// The same, on average, of a client that is at times quicker: half of it, and more as chance has it.
    pub(crate) away: Duration,
    /// From one request to the next; or else any place in an image of so many sectors.
    pub(crate) stride: u64,
    pub(crate) image: Option<u64>,
    pub(crate) sectors: u64,
    /// It asks from then on, until then.
    pub(crate) starts: Instant,
    pub(crate) stops: Instant,
    next: u64,
    pub(crate) done: u64,
    /// The same in units of work.
    pub(crate) worked: f64,
    pub(crate) inside: u32,
    /// The most of it that were in the device, and the longest that one waited.
    pub(crate) most_inside: u32,
    pub(crate) longest_wait: Duration,
    /// How soon it is to be answered.
    pub(crate) target: Option<Duration>,
}

#[derive(Clone, Copy)]
struct Submitted {
    client: usize,
    request: Waiting,
    submitted: Instant,
    dispatched: Instant,
}

pub(crate) struct Sim {
    pub(crate) fair: Fair,
    pub(crate) now: Instant,
    pub(crate) device: Device,
    /// How many times slower than it says the device is.
    pub(crate) slowness: f64,
    pub(crate) groups: Vec<Group>,
    pub(crate) streams: Vec<Stream>,
    pub(crate) clients: Vec<Client>,
    thinking: BinaryHeap<Reverse<(Instant, usize)>>,
    outstanding: Vec<Option<Submitted>>,
    free: Vec<u32>,
    /// By the progress at which it ends.
    inside: BinaryHeap<Reverse<(u64, u32)>>,
    progress: u64,
    /// What has ended in the device, and is not answered yet.
    ended: Vec<u32>,
    random: Random,
    depth: usize,
    pub(crate) most_inside: usize,
    /// Of clients with a target, by second: how many were answered, and how many late.
    pub(crate) seconds: BTreeMap<(usize, u64), (u64, u64)>,
}

/// A unit of progress of a request.
const UNIT: f64 = (1_u64 << 30) as f64;

impl Sim {
    pub(crate) fn new(device: Device, depth: u16, set: &[(&str, &str)]) -> Self {
        const CAPACITY: u32 = 8192;
        let setup = Setup { depth, ..Setup::new(CAPACITY as usize) };
        let mut fair = Fair::new(&setup, Settings::default());
        for (name, value) in set {
            fair.set(name, value).unwrap();
        }
        Self {
            fair,
            now: Instant::ZERO,
            device,
            slowness: 1.0,
            groups: vec![Group::root()],
            streams: vec![],
            clients: vec![],
            thinking: BinaryHeap::new(),
            outstanding: vec![None; CAPACITY as usize],
            free: (0..CAPACITY).rev().collect(),
            inside: BinaryHeap::new(),
            progress: 0,
            ended: vec![],
            random: Random::new(7),
            depth: depth.into(),
            most_inside: 0,
            seconds: BTreeMap::new(),
        }
    }

    pub(crate) fn group(&mut self, parent: GroupId, weight: u16) -> GroupId {
        let id = GroupId(self.groups.len() as u16);
        let group = Group { path: format!("/{}", id.0), parent: Some(parent), weight: Weight::new(weight) };
        self.fair.set_group(self.now, id, &group);
        self.groups.push(group);
        id
    }

    pub(crate) fn weigh(&mut self, group: GroupId, weight: u16) {
        let at = usize::from(group.0);
        self.groups[at].weight = Weight::new(weight);
        self.fair.set_group(self.now, group, &self.groups[at]);
    }

    /// A reader of single blocks, far from one another, in a group of such a weight.
    pub(crate) fn tenant(&mut self, weight: u16, depth: u32) -> usize {
        let group = self.group(GroupId::ROOT, weight);
        self.client(group, Priority::default(), depth)
    }

    pub(crate) fn client(&mut self, group: GroupId, priority: Priority, depth: u32) -> usize {
        let id = StreamId(self.streams.len() as u32);
        let stream = Stream { group, priority, context: ContextId(0) };
        self.fair.add_stream(id, &stream);
        self.streams.push(stream);
        self.clients.push(Client {
            stream: id,
            op: Op::Read,
            depth,
            think: Duration::ZERO,
            away: Duration::ZERO,
            stride: 1 << 16,
            image: None,
            sectors: 8,
            starts: self.now,
            stops: Instant::MAX,
            next: u64::from(id.0) << 40,
            done: 0,
            worked: 0.0,
            inside: 0,
            most_inside: 0,
            longest_wait: Duration::ZERO,
            target: None,
        });
        self.clients.len() - 1
    }

    /// The requests of a client begin.
    pub(crate) fn begin(&mut self, client: usize) {
        let Client { starts, depth, .. } = self.clients[client];
        (0..depth).for_each(|_| self.thinking.push(Reverse((starts.max(self.now), client))));
    }

    pub(crate) fn begin_all(&mut self) {
        (0..self.clients.len()).for_each(|client| self.begin(client));
    }

    /// Gives a client's group a latency.
    pub(crate) fn target(&mut self, client: usize, target: Option<Duration>) {
        self.clients[client].target = target;
        let group = self.streams[self.clients[client].stream.0 as usize].group;
        self.fair.set_latency(self.now, group, target);
    }

    /// A client with a target is answered.
    fn answered(&mut self, client: usize, group: GroupId, submitted: Instant) {
        let Some(target) = self.clients[client].target else { return };
        let latency = self.now.since(submitted);
        self.fair.answered(self.now, group, latency);
        let second = self.seconds.entry((client, self.now.as_nanos() / 1_000_000_000)).or_default();
        *second = (second.0 + 1, second.1 + u64::from(latency > target));
    }

    /// In which part of the seconds from one on a client had its target: 99 of 100 answers.
    pub(crate) fn met(&self, client: usize, from: u64) -> f64 {
        let seconds = self.seconds.range((client, from)..(client + 1, 0)).map(|(_, second)| *second);
        let (all, met) = seconds.fold((0, 0), |sum, (ended, late)| (sum.0 + 1, sum.1 + u32::from(late * 100 <= ended)));
        f64::from(met) / f64::from(all)
    }

    /// Puts a client's stream elsewhere.
    pub(crate) fn change(&mut self, client: usize, group: GroupId, priority: Priority) {
        let id = self.clients[client].stream;
        let stream = Stream { group, priority, context: ContextId(0) };
        self.streams[id.0 as usize] = stream;
        let inside: Vec<u32> =
            self.inside.iter().map(|Reverse((_, id))| *id).chain(self.ended.iter().copied()).collect();
        for (at, one) in self.outstanding.iter_mut().enumerate() {
            if let Some(one) = one.as_mut().filter(|one| one.client == client)
                && !inside.contains(&(at as u32))
            {
                (one.request.group, one.request.priority) = (group, priority);
            }
        }
        self.fair.change_stream(self.now, id, &stream);
    }

    /// What each of the clients gets from now on for so long.
    pub(crate) fn run(&mut self, time: Duration) -> Vec<u64> {
        let before: Vec<u64> = self.clients.iter().map(|client| client.done).collect();
        let until = self.now + time;
        loop {
            self.ask();
            self.dispatch();
            let next = [self.next_end(), self.thinking.peek().map(|Reverse((at, _))| *at), self.fair.next_timeout()];
            let next = next.into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= until) else { break };
            assert!(next >= self.now);
            self.pass(next);
            self.end();
        }
        self.pass(until);
        self.clients.iter().zip(before).map(|(client, before)| client.done - before).collect()
    }

    /// The same in thousandths of the device's units of work.
    pub(crate) fn run_for_work(&mut self, time: Duration) -> Vec<u64> {
        let before: Vec<f64> = self.clients.iter().map(|client| client.worked).collect();
        self.run(time);
        self.clients.iter().zip(before).map(|(client, before)| ((client.worked - before) * 1000.0) as u64).collect()
    }

    fn in_device(&self) -> usize {
        self.inside.len() + self.ended.len()
    }

    /// Units of progress of each request in a nanosecond: what waits to be answered keeps the others no longer.
    fn rate(&self) -> f64 {
        (self.device.speed)(self.in_device()) / self.inside.len().max(1) as f64 / self.slowness / 1e9 * UNIT
    }

    fn pass(&mut self, to: Instant) {
        if !self.inside.is_empty() {
            self.progress += (to.since(self.now).as_nanos() as f64 * self.rate()).ceil() as u64;
        }
        self.now = to;
    }

    fn next_end(&self) -> Option<Instant> {
        let Reverse((at, _)) = self.inside.peek()?;
        let left = at.saturating_sub(self.progress) as f64 / self.rate();
        let end = self.now.as_nanos() + left.ceil() as u64;
        let step = match self.device.answers {
            Answers::Every(time) => time.as_nanos(),
            Answers::Each | Answers::Part(_) => 1,
        };
        Some(Instant::from_nanos(end.div_ceil(step) * step).max(self.now))
    }

    fn ask(&mut self) {
        while let Some(Reverse((at, index))) = self.thinking.peek().copied().filter(|Reverse((at, _))| *at <= self.now)
        {
            self.thinking.pop();
            let client = &mut self.clients[index];
            if at >= client.stops {
                continue;
            }
            let id = self.free.pop().expect("there is room");
            let Stream { group, priority, .. } = self.streams[client.stream.0 as usize];
            let extent = Extent::new(Sector(client.next), client.sectors);
            let (op, stream, id) = (client.op, client.stream, RequestId(id));
            let request = Waiting { id, op, flags: Flags::NONE, extent, stream, group, priority };
            client.next += client.stride;
            if let Some(image) = client.image {
                client.next = (u64::from(stream.0) << 40) + self.random.below(image / client.sectors) * client.sectors;
            }
            self.outstanding[id.0 as usize] =
                Some(Submitted { client: index, request, submitted: self.now, dispatched: self.now });
            self.fair.insert(self.now, &request);
        }
    }

    fn dispatch(&mut self) {
        while self.in_device() < self.depth && !self.fair.is_empty() {
            let id = match self.fair.dispatch(self.now) {
                Next::Request(id) => id,
                Next::Idle { .. } => panic!("the device is held idle"),
                Next::Empty => break,
            };
            let one = self.outstanding[id.0 as usize].as_mut().expect("it waits");
            one.dispatched = self.now;
            let client = &mut self.clients[one.client];
            client.longest_wait = client.longest_wait.max(self.now.since(one.submitted));
            client.inside += 1;
            client.most_inside = client.most_inside.max(client.inside);
            let work = (self.device.work)(&one.request) * UNIT;
            self.inside.push(Reverse((self.progress + work as u64, id.0)));
        }
        self.most_inside = self.most_inside.max(self.in_device());
        assert!(self.in_device() > 0 || self.fair.is_empty(), "requests wait, and nothing is in the device");
    }

    fn end(&mut self) {
        while let Some(Reverse((_, id))) = self.inside.peek().copied().filter(|Reverse((at, _))| *at <= self.progress) {
            self.inside.pop();
            self.ended.push(id);
        }
        let is_answered = match self.device.answers {
            Answers::Part(part) => self.inside.is_empty() || self.ended.len() as f64 >= part * self.in_device() as f64,
            Answers::Each | Answers::Every(_) => true,
        };
        for id in if is_answered { std::mem::take(&mut self.ended) } else { vec![] } {
            let Submitted { client, request, submitted, dispatched } =
                self.outstanding[id as usize].take().expect("it is in the device");
            self.fair.completed(self.now, &Served { request, dispatched, end: RequestEnd::Done });
            self.answered(client, request.group, submitted);
            self.free.push(id);
            let one = &mut self.clients[client];
            (one.done, one.inside) = (one.done + 1, one.inside - 1);
            one.worked += (self.device.work)(&request);
            let half = Duration::from_nanos(one.away.as_nanos() / 2);
            let away = if half > Duration::ZERO { half + self.random.exponential(half) } else { half };
            let think = one.think + away + us(1);
            self.thinking.push(Reverse((self.now + think, client)));
        }
    }

    /// A counter of the scheduler.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        let mut found = None;
        self.fair.counters(&mut |known, value| {
            if known == name {
                found = Some(value)
            }
        });
        found.expect("it is counted")
    }
}

/// That so many are to each other as the parts, within so many per cent of each.
pub(crate) fn assert_shares(got: &[u64], parts: &[u64], percent: f64) {
    let (all, whole) = (got.iter().sum::<u64>() as f64, parts.iter().sum::<u64>() as f64);
    for (got_one, part) in got.iter().zip(parts) {
        let ideal = all * *part as f64 / whole;
        let off = (*got_one as f64 / ideal - 1.0) * 100.0;
        assert!(off.abs() <= percent, "{got:?} for parts {parts:?}: {off:+.1} %");
    }
}
