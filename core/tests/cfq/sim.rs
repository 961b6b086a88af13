//! A device, clients and a scheduler, in virtual time: nothing of the queue, nothing of the lab.

use fairlift_core::model::Character;
use fairlift_core::sched::cfq::{Cfq, Settings};
use fairlift_core::sched::traits::*;
use fairlift_core::sched::{Next, RequestEnd, RequestId, Served, Setup, Waiting};
use fairlift_core::time::ms;
use fairlift_core::{
    ContextId, Duration, Extent, Flags, Group, GroupId, Instant, Op, Priority, PriorityClass, Sector, Stream, StreamId,
    Weight,
};

/// How long things take.
#[derive(Clone, Copy)]
pub(crate) enum Device {
    /// Requests at once, and the service time of each.
    Parallel(usize, Duration),
    /// One after the other, in the order in which they come: so long where the last one ended, so long elsewhere.
    Arm(Duration, Duration),
}

/// A client.
#[derive(Clone, Copy)]
pub(crate) struct Client {
    pub(crate) stream: StreamId,
    pub(crate) op: Op,
    pub(crate) flags: Flags,
    /// Requests that it keeps waiting or in the device.
    pub(crate) depth: u32,
    /// From an end to the next request.
    pub(crate) think: Duration,
    /// From one request to the next; those of different clients are far apart.
    pub(crate) stride: u64,
    pub(crate) sectors: u64,
    pub(crate) starts: Instant,
    pub(crate) stops: Instant,
    next: u64,
    // What it got.
    pub(crate) done: u64,
    pub(crate) longest_wait: Duration,
}

struct InDevice {
    client: usize,
    request: Waiting,
    dispatched: Instant,
    ends: Instant,
}

pub(crate) struct Sim {
    pub(crate) cfq: Cfq,
    pub(crate) now: Instant,
    pub(crate) depth: usize,
    pub(crate) device: Device,
    pub(crate) groups: Vec<Group>,
    pub(crate) streams: Vec<Stream>,
    pub(crate) clients: Vec<Client>,
    /// When who asks next.
    thinking: Vec<(Instant, usize)>,
    waiting: Vec<Option<(usize, Waiting, Instant)>>,
    /// Whether requests that touch become one while they wait; and by request, how many were asked.
    pub(crate) merges: bool,
    outstanding: Vec<u32>,
    /// The longest request in the device so far, in sectors.
    pub(crate) longest_request: u64,
    in_device: Vec<InDevice>,
    free_at: Instant,
    head: u64,
    free: Vec<u32>,
    /// How long the device had nothing to do though somebody waited, at most and in all.
    pub(crate) longest_hold: Duration,
    pub(crate) held: Duration,
    held_since: Option<Instant>,
    pub(crate) most_in_device: usize,
    /// The clients served, in order.
    pub(crate) order: Vec<usize>,
}

const CAPACITY: u32 = 1024;

impl Sim {
    pub(crate) fn new(device: Device, depth: usize, set: &[(&str, &str)]) -> Self {
        let rotational = matches!(device, Device::Arm(..));
        let character = Character { rotational, volatile_cache: false };
        let setup = Setup { depth: depth as u16, character, ..Setup::new(CAPACITY as usize) };
        // The rules are those of one way to take turns; what `auto` does is tested in `auto.rs`.
        let slice_idle = Some(if rotational { Settings::SLICE_IDLE } else { Duration::ZERO });
        let mut cfq = Cfq::new(&setup, Settings { slice_idle, ..Settings::default() });
        for (name, value) in set {
            cfq.set(name, value).unwrap();
        }
        Self {
            cfq,
            now: Instant::ZERO,
            depth,
            device,
            groups: vec![Group::root()],
            streams: vec![],
            clients: vec![],
            thinking: vec![],
            waiting: vec![None; CAPACITY as usize],
            merges: false,
            outstanding: vec![1; CAPACITY as usize],
            longest_request: 0,
            in_device: vec![],
            free_at: Instant::ZERO,
            head: 0,
            free: (0..CAPACITY).rev().collect(),
            longest_hold: Duration::ZERO,
            held: Duration::ZERO,
            held_since: None,
            most_in_device: 0,
            order: vec![],
        }
    }

    pub(crate) fn group(&mut self, parent: GroupId, weight: u16) -> GroupId {
        let id = GroupId(self.groups.len() as u16);
        let group = Group { path: format!("/{}", id.0), parent: Some(parent), weight: Weight::new(weight) };
        self.cfq.set_group(self.now, id, &group);
        self.groups.push(group);
        id
    }

    /// A reader with a place of its own; answers which client it is.
    pub(crate) fn reader(&mut self, group: GroupId, depth: u32) -> usize {
        self.client(group, Priority::default(), depth)
    }

    pub(crate) fn client(&mut self, group: GroupId, priority: Priority, depth: u32) -> usize {
        let id = StreamId(self.streams.len() as u32);
        let stream = Stream { group, priority, context: ContextId(0) };
        self.cfq.add_stream(id, &stream);
        self.streams.push(stream);
        self.clients.push(Client {
            stream: id,
            op: Op::Read,
            flags: Flags::NONE,
            depth,
            think: Duration::ZERO,
            stride: 8,
            sectors: 8,
            starts: Instant::ZERO,
            stops: Instant::MAX,
            next: u64::from(id.0) << 32,
            done: 0,
            longest_wait: Duration::ZERO,
        });
        self.clients.len() - 1
    }

    /// Where a client that has not asked yet begins.
    pub(crate) fn start_at(&mut self, client: usize, sector: u64) {
        self.clients[client].next = sector;
    }

    pub(crate) fn at(class: PriorityClass, level: u8) -> Priority {
        Priority { class, level }
    }

    /// The service of each client over the given time from now on.
    pub(crate) fn run(&mut self, time: Duration) -> Vec<u64> {
        let before: Vec<u64> = self.clients.iter().map(|client| client.done).collect();
        if self.thinking.is_empty() && self.in_device.is_empty() && self.cfq.is_empty() {
            for index in 0..self.clients.len() {
                let at = self.now.max(self.clients[index].starts);
                (0..self.clients[index].depth).for_each(|_| self.thinking.push((at, index)));
            }
        }
        let until = self.now + time;
        loop {
            self.ask();
            self.dispatch();
            let ends = self.in_device.iter().map(|one| one.ends).min();
            let asks = self.thinking.iter().map(|(at, _)| *at).min();
            let next = [ends, asks, self.cfq.next_timeout()].into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= until) else { break };
            assert!(next >= self.now);
            self.now = next;
            self.end();
        }
        self.now = until;
        self.clients.iter().zip(before).map(|(client, before)| client.done - before).collect()
    }

    fn ask(&mut self) {
        while let Some(at) = self.thinking.iter().position(|(at, _)| *at <= self.now) {
            let (_, index) = self.thinking.remove(at);
            let client = &mut self.clients[index];
            if self.now >= client.stops {
                continue;
            }
            let id = self.free.pop().expect("there is room");
            let Stream { group, priority, .. } = self.streams[client.stream.0 as usize];
            let request = Waiting {
                id: RequestId(id),
                op: client.op,
                flags: client.flags,
                extent: Extent::new(Sector(client.next), client.sectors),
                stream: client.stream,
                group,
                priority,
            };
            client.next += client.stride;
            if self.merge(&request) {
                self.free.push(id);
                continue;
            }
            self.outstanding[id as usize] = 1;
            self.waiting[id as usize] = Some((index, request, self.now));
            self.cfq.insert(self.now, &request);
            if self.merges {
                // As by `io_submit`: what is asked at one instant is no batch.
                self.dispatch();
            }
        }
    }

    /// Makes a request part of one that waits, if the two touch.
    fn merge(&mut self, newcomer: &Waiting) -> bool {
        let Some((kept, side)) = self.cfq.merge_candidate(newcomer).filter(|_| self.merges) else { return false };
        let (_, request, _) = self.waiting[kept.0 as usize].as_mut().expect("it waits");
        let start = request.extent.start.min(newcomer.extent.start);
        request.extent = Extent::new(start, request.extent.sectors + newcomer.extent.sectors);
        self.outstanding[kept.0 as usize] += 1;
        self.cfq.grown(request, side);
        true
    }

    fn dispatch(&mut self) {
        while self.in_device.len() < self.depth && !self.cfq.is_empty() {
            let Next::Request(id) = self.cfq.dispatch(self.now) else { break };
            let (client, request, outstanding) = self.waiting[id.0 as usize].take().expect("it waits");
            let waited = self.now.since(outstanding);
            self.clients[client].longest_wait = self.clients[client].longest_wait.max(waited);
            let ends = match self.device {
                Device::Parallel(servers, each) => {
                    let mut ends: Vec<Instant> = self.in_device.iter().map(|one| one.ends).collect();
                    ends.sort();
                    let starts = if ends.len() < servers { self.now } else { ends[ends.len() - servers] };
                    starts + each
                }
                Device::Arm(near, far) => {
                    let takes = if request.extent.start.0 == self.head { near } else { far };
                    self.free_at = self.free_at.max(self.now) + takes;
                    self.free_at
                }
            };
            self.head = request.extent.end().0;
            self.longest_request = self.longest_request.max(request.extent.sectors);
            self.order.push(client);
            self.in_device.push(InDevice { client, request, dispatched: self.now, ends });
        }
        self.most_in_device = self.most_in_device.max(self.in_device.len());
        if self.in_device.is_empty() && !self.cfq.is_empty() {
            assert!(self.cfq.next_timeout().is_some(), "somebody waits, nothing is in the device, and it is not held");
            self.held_since.get_or_insert(self.now);
        } else if let Some(since) = self.held_since.take() {
            self.longest_hold = self.longest_hold.max(self.now.since(since));
            self.held = self.held + self.now.since(since);
        }
    }

    fn end(&mut self) {
        while let Some(at) = self.in_device.iter().position(|one| one.ends <= self.now) {
            let InDevice { client: index, request, dispatched, .. } = self.in_device.remove(at);
            self.cfq.completed(self.now, &Served { request, dispatched, end: RequestEnd::Done });
            self.free.push(request.id.0);
            let client = &mut self.clients[index];
            let outstanding = self.outstanding[request.id.0 as usize];
            client.done += u64::from(outstanding);
            (0..outstanding).for_each(|_| self.thinking.push((self.now + client.think, index)));
        }
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

pub(crate) const FLASH: Device = Device::Parallel(8, fairlift_core::time::us(100));
pub(crate) const DISK: Device = Device::Arm(ms(1), ms(9));
