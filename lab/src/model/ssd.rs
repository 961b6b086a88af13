//! Solid-state disk: SATA and NVMe.
//!
//! ```text
//!  host ─▶ overhead ─▶ controller ─▶ dies ─▶ channel ─▶ link ─▶ host          a read
//!  host ─▶ overhead ─▶ controller ─▶ link ─▶ buffer ─▶ host                   a write
//!                                              └─▶ dies, collection           behind it
//! ```
//!
//! ssd.1  A command takes its turn at the controller, for `read_command` or `write_command`: the ceiling of IOPS. No more than
//!     `slots` are taken in at once. With SATA, flushes and discards run alone.
//! ssd.2  A read takes a page read of each die that it touches, then the channel, then the link; each serves one at a time. It ends when
//!     its last page has crossed the link. (nand.1–3.)
//! ssd.3  The second read of a sequential stream has the controller read ahead; what has been read ahead needs no die.
//! ssd.4  A write ends when it is in the buffer; when that is full, as programs make room, in order of arrival. On a link that
//!     carries one direction at a time, data for the host goes between that of one write and the next.
//! ssd.5  The buffer is programmed in whole units, each on the next die without a job; a part of one only for a flush.
//!     (ssd_write.1–3.)
//! ssd.6  Programs leave garbage to collect, which takes the same dies. (space.1–6.)
//! ssd.7  Without protection against power loss a flush, or a write with FUA, waits for the programs of all that was in the
//!     buffer, and then for its turn to make the mapping durable: `flush`. It does so even if nothing was written since the
//!     last, unless `flush_spared`: seed 003 saw an SSD gain much from flushes that were shared. With protection every write is
//!     durable when it ends; the disk says that it has no volatile cache, and a flush costs a command. (Linux then sends none:
//!     a Micron 7400 reports itself so, tanelpoder.com 2025-05-27; some others do not.)
//! ssd.8  Half-kept pages cost a whole one: writes are rounded out to 4 KiB.
//!
//! **Modelled by its statistics only:** which page lies where (a formula instead of a table: what is overwritten stays on its
//! die), what is valid (by region), which blocks are collected (an average, no victim), folding of the one-bit area (only in
//! idle time). **Not modelled:** the data (compression, zeroes), reads that find their data in the write buffer or on pages never
//! written, wear, read retries, temperature, power states, thermal throttling, several namespaces, host memory buffers, the
//! controller's misses in its own mapping.
//!
//! The model runs ahead of its caller, by `overhead` and by the controller's queue: later requests come after that. A request therefore
//! acts as soon as it is taken in, at its own time, and a read costs one event.

mod nand;
mod reads;
mod settings;
mod space;
mod streams;
mod writes;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use fairlift_core::model::{Character, Model, ModelCompletion, ModelRequest};
use fairlift_core::{Direction, Instant, Limits, Op, Outcome};
use slab::Slab;

use nand::Nand;
pub use settings::Settings;
use space::Space;
use streams::Streams;
use writes::Buffer;

/// The model.
pub struct Ssd {
    settings: Settings,
    sectors: u64,
    /// The requests that are taken in and have not ended, by slot.
    requests: Slab<HostCommand>,
    /// Whether one of them runs alone.
    alone: bool,
    /// Not taken in yet, in order of arrival (ssd.1).
    held: VecDeque<ModelRequest>,
    /// Time inside, in nanoseconds: everything before it has happened, and the controller is free from then on (ssd.1).
    clock: u64,
    /// An internal event.
    events: BinaryHeap<Reverse<(u64, PackedEvent)>>,
    /// The ends: (time, slot), sorted.
    ends: VecDeque<(u64, u32)>,
    link: Link,
    channels: Vec<u64>,
    /// Of a sector on a channel.
    channel_cost: Cost,
    nand: Nand,
    read_streams: Streams,
    write_streams: Streams,
    space: Space,
    buffer: Buffer,
    /// When the last request ended.
    idle_since: u64,
}

/// A request that was taken in.
#[derive(Clone, Copy, Debug)]
struct HostCommand {
    id: u64,
    /// Parts of a read that have not crossed the link.
    parts: u32,
}

/// An internal event. One word, since most of the model's time goes into ordering them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct PackedEvent(u64);

#[derive(Clone, Copy)]
enum Happens {
    /// Sectors of a read in a die's register (or, with no channel, in the controller's memory).
    Fetched { slot: u32, channel: Option<u32>, sectors: u64 },
    /// The job of a die ends, unless reads have put it off.
    JobEnds { die: usize },
    /// The data of a write has crossed the link, and that of the next may.
    LinkTurn,
}

impl PackedEvent {
    const JOB: u64 = 1 << 63;
    const LINK_TURN: Self = Self(u64::MAX);
    const MEMORY: u64 = 0xfff;

    fn fetched(slot: u32, channel: Option<u32>, sectors: u64) -> Self {
        assert!(sectors < 1 << 20, "a read of {sectors} sectors is beyond any limit");
        Self(u64::from(slot) << 32 | channel.map_or(Self::MEMORY, u64::from) << 20 | sectors)
    }

    const fn job(die: usize) -> Self {
        Self(Self::JOB | die as u64)
    }

    fn happens(self) -> Happens {
        if self == Self::LINK_TURN {
            return Happens::LinkTurn;
        }
        if self.0 & Self::JOB != 0 {
            return Happens::JobEnds { die: (self.0 & !Self::JOB) as usize };
        }
        let channel = self.0 >> 20 & 0xfff;
        Happens::Fetched {
            slot: (self.0 >> 32) as u32,
            channel: (channel != Self::MEMORY).then_some(channel as u32),
            sectors: self.0 & 0xf_ffff,
        }
    }
}

/// The time of a sector on a wire, in nanoseconds: 16 bits behind the point.
#[derive(Clone, Copy)]
struct Cost(u64);

impl Cost {
    /// Of a wire that carries `rate` 10⁶ bytes a second.
    fn of(rate: u32) -> Self {
        Self(((512 * 1000) << 16) / u64::from(rate))
    }

    const fn times(self, sectors: u64) -> u64 {
        (sectors * self.0) >> 16
    }
}

/// The link to the host: each direction is free from some time on.
struct Link {
    duplex: bool,
    cost: Cost,
    free: [u64; 2],
}

impl Link {
    /// The data of a read or of a write crosses it; when it has arrived.
    fn carry(&mut self, way: Direction, at: u64, sectors: u64) -> u64 {
        let arrived = self.free[way as usize].max(at) + self.cost.times(sectors);
        match self.duplex {
            true => self.free[way as usize] = arrived,
            false => self.free = [arrived; 2],
        }
        arrived
    }
}

impl Ssd {
    /// At rest.
    #[must_use]
    pub fn new(settings: Settings, sectors: u64, seed: u64) -> Self {
        Self {
            sectors,
            requests: Slab::new(),
            alone: false,
            held: VecDeque::new(),
            clock: 0,
            events: BinaryHeap::new(),
            ends: VecDeque::new(),
            link: Link { duplex: settings.duplex, cost: Cost::of(settings.link), free: [0; 2] },
            channels: vec![0; settings.channels as usize],
            channel_cost: Cost::of(settings.channel),
            nand: Nand::new(&settings, seed),
            read_streams: Streams::new(),
            write_streams: Streams::new(),
            space: Space::new(&settings, sectors),
            buffer: Buffer::new(&settings),
            idle_since: 0,
            settings,
        }
    }

    /// Whether the disk takes `op` in now: ssd.1.
    fn takes(&self, op: Op) -> bool {
        let wants_alone = self.settings.alone && !op.has_payload();
        !self.alone
            && if wants_alone { self.requests.is_empty() } else { self.requests.len() < self.settings.slots as usize }
    }

    /// Takes a request in, and goes on to when the controller is done with it: nothing that comes later acts before.
    fn take_in(&mut self, now: Instant, request: &ModelRequest) {
        let slot = self.requests.insert(HostCommand { id: request.id, parts: 0 }) as u32;
        self.alone = self.settings.alone && !request.op.has_payload();
        let time = if request.op == Op::Read { self.settings.read_command } else { self.settings.write_command };
        self.settle(self.arrival(now) + time.as_nanos());
        match request.op {
            Op::Read => self.read(slot, request.extent),
            Op::Write => self.write(slot, request.extent, request.flags),
            Op::Flush => self.flush(slot),
            Op::Discard | Op::WriteZeroes => self.discard(slot, request),
        }
    }

    /// Lets happen what happens inside up to `to`.
    fn settle(&mut self, to: u64) {
        while let Some(Reverse((at, event))) = self.events.peek().copied()
            && at <= to
        {
            self.events.pop();
            self.clock = at;
            match event.happens() {
                Happens::Fetched { slot, channel, sectors } => self.fetched(slot, channel, sectors),
                Happens::JobEnds { die } => self.job_ends(die),
                Happens::LinkTurn => self.link_turn(),
            }
        }
        self.clock = to;
    }

    /// The request in `slot` will end at `at`.
    fn ends_at(&mut self, at: u64, slot: u32) {
        let place = self.ends.partition_point(|(other, _)| *other <= at);
        self.ends.insert(place, (at, slot));
    }

    /// The time at which the controller turns to a request that is submitted now.
    fn arrival(&self, now: Instant) -> u64 {
        (now + self.settings.overhead).as_nanos().max(self.clock)
    }
}

impl Model for Ssd {
    fn limits(&self) -> Limits {
        Limits::new(self.sectors)
    }

    fn character(&self) -> Character {
        Character { rotational: false, volatile_cache: !self.settings.plp } // ssd.7
    }

    fn submit(&mut self, now: Instant, request: &ModelRequest) {
        if self.requests.is_empty() && self.held.is_empty() {
            self.space.rested(now.as_nanos() - self.idle_since);
        }
        if self.held.is_empty() && self.takes(request.op) {
            self.take_in(now, request);
        } else {
            self.held.push_back(*request);
        }
    }

    fn poll_event(&self) -> Option<Instant> {
        let end = self.ends.front().map(|(at, _)| *at);
        let event = self.events.peek().map(|Reverse((at, _))| *at);
        [end, event].into_iter().flatten().min().map(Instant::from_nanos)
    }

    fn advance(&mut self, now: Instant, ended: &mut Vec<ModelCompletion>) {
        self.settle(self.arrival(now));
        while let Some((at, slot)) = self.ends.pop_front_if(|(at, _)| *at <= now.as_nanos()) {
            self.idle_since = at;
            let id = self.requests.remove(slot as usize).id;
            ended.push(ModelCompletion { at: Instant::from_nanos(at), id, outcome: Outcome::Done });
            self.alone = false;
            while let Some(next) = self.held.front().copied()
                && self.takes(next.op)
            {
                self.held.pop_front();
                self.take_in(now, &next);
            }
        }
    }
}

#[cfg(test)]
mod tests;
