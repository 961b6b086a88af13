//! Hard disks behind a controller: RAID 0, 5 and 6.
//!
//! R1  A request is first looked at by the controller (`controller_overhead`, one after the other) and under way to it and
//!     back (`controller_latency`, all at once); its data crosses one link of `controller_rate`, at `command_rate` at most.
//! R2  A read goes to the disks that hold it, or waits for what the controller is reading ahead (`streams.rs`).
//! R3  A write goes through to the disks, each stripe by itself: what parity needs is read, then data and parity are
//!     written (`stripes.rs`). With `controller_cache` it ends in memory, and goes to the disks when its stripe is
//!     complete, after a second, or when the memory is half full.
//! R4  A flush ends at once if no memory that it concerns is volatile: the cache has a battery, and the disks' own write
//!     caches are off. Otherwise it waits until all is on the disks, and the disks are flushed.
//! R5  The first `missing` disks are not there: what they held is made from all others.
//! R6  With `rebuild` the array reads all disks from start to end, a MiB at a time, and writes what a missing one held to its
//!     spare, at that rate at most.
//!
//! The disks are those of `disk`, spindles not in step. Not modelled: two writes to one stripe wait for each other, a cache
//! of what was read before (other than ahead), parity computation, the disks' loop (each disk has its own link), a journal,
//! data on the spare while it is rebuilt (nothing is read from there).

mod layout;
mod members;
mod streams;
mod stripes;

use std::collections::VecDeque;

use fairlift_core::model::{Asked, Character, Ended, Model, Work};
use fairlift_core::time::{ms, secs, us};
use fairlift_core::tunable::{self, Tunable, TunableInfo};
use fairlift_core::{Duration, Errno, Flags, Instant, Limits, Op, Outcome};

use self::layout::Layout;
use self::members::Members;
use self::streams::{Ahead, Streams};
use self::stripes::{Cache, DISKS, Spans};
use super::disk::{self, Busy, KIB, RATE, rows};
use super::{show_most, show_size};

/// Its numbers.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Disks, those for parity included.
    pub disks: u32,
    /// 0, 5 or 6.
    pub level: u32,
    /// What lies together on one disk, in KiB.
    pub chunk: u32,
    /// How large each disk is, in units of 1000³ bytes; 0: just large enough. The array uses the outer part.
    pub disk_size: u32,
    /// What the controller needs for a request, one after the other.
    pub controller_overhead: Duration,
    /// How long a request is under way besides.
    pub controller_latency: Duration,
    /// The link, in units of 1000 bytes in a second.
    pub controller_rate: u32,
    /// How fast the data of a single request moves, in the same units: less than the link, for each is cut into frames
    /// that are acknowledged.
    pub command_rate: u32,
    /// How far the controller reads ahead for a sequential reader, in KiB; 0: not at all.
    pub prefetch: u32,
    /// How many sequential readers it follows.
    pub prefetch_streams: u32,
    /// Memory in which writes end, in KiB; 0: they go through.
    pub controller_cache: u32,
    /// Whether that memory survives a power cut.
    pub battery: bool,
    /// Disks that are not there.
    pub missing: u32,
    /// At what rate one that is missing is rebuilt, in units of 1000 bytes in a second of each disk; 0: not.
    pub rebuild: u32,
    /// The disks.
    pub disk: disk::Settings,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            disks: 12,
            level: 5,
            chunk: 64,
            disk_size: 0,
            controller_overhead: us(50),
            controller_latency: us(500),
            controller_rate: 400_000,
            command_rate: 400_000,
            prefetch: 0,
            prefetch_streams: 64,
            controller_cache: 512 * 1024,
            battery: true,
            missing: 0,
            rebuild: 0,
            disk: disk::Settings { write_cache: false, ..disk::Settings::default() },
        }
    }
}

impl Settings {
    /// What can be changed: the array's own, then those of each of its disks.
    pub const TUNABLES: &[Tunable<Self>] = &Self::ROWS;
    /// The same, described.
    pub const INFO: &[TunableInfo] = &tunable::infos(&Self::ROWS);
    #[rustfmt::skip]
    const ROWS: [Tunable<Self>; 34] = rows![s => s.disk;
        Tunable::count("disks", (2, DISKS as u32), |s| &mut s.disks, "disks, those for parity included");
        Tunable::count("level", (0, 6), |s| &mut s.level, "0, 5 or 6: no parity, one chunk of each stripe, or two");
        Tunable::count("chunk", (4, 16 << 10), |s| &mut s.chunk, "KiB that lie together on one disk");
        Tunable::count("disk_size", (0, 100_000), |s| &mut s.disk_size, "size of each disk in 1000³ bytes, of which the outer part is used; 0: just large enough");
        Tunable::duration("controller_overhead", (us(0), ms(100)), |s| &mut s.controller_overhead, "what the controller needs for a request, one after the other");
        Tunable::duration("controller_latency", (us(0), secs(1)), |s| &mut s.controller_latency, "how long a request is under way besides, all at once");
        Tunable::count("controller_rate", (1000, 100_000_000), |s| &mut s.controller_rate, "the link, in 1000 bytes/s");
        Tunable::count("command_rate", (1000, 100_000_000), |s| &mut s.command_rate, "how fast the data of a single request moves, in 1000 bytes/s");
        Tunable::count("prefetch", KIB, |s| &mut s.prefetch, "KiB that the controller reads ahead for a sequential reader; 0: none");
        Tunable::count("prefetch_streams", (1, 4096), |s| &mut s.prefetch_streams, "sequential readers that it follows");
        Tunable::count("controller_cache", (0, 64 << 20), |s| &mut s.controller_cache, "KiB of memory in which writes end; 0: they go through");
        Tunable::switch("battery", |s| &mut s.battery, "whether that memory survives a power cut");
        Tunable::count("missing", (0, 2), |s| &mut s.missing, "disks that are not there");
        Tunable::count("rebuild", RATE_OR_NONE, |s| &mut s.rebuild, "at what rate a missing disk is rebuilt, in 1000 bytes/s; 0: not");
    ];

    /// Chunks of a stripe that are parity.
    const fn parity(&self) -> u64 {
        match self.level {
            0 => 0,
            5 => 1,
            _ => 2,
        }
    }

    fn layout(&self) -> Layout {
        Layout { disks: self.disks.into(), parity: self.parity(), chunk: u64::from(self.chunk) * 2 }
    }

    /// Sectors of each disk, for an array of so many bytes.
    fn each(&self, size: u64) -> u64 {
        let least = self.layout().each(size / 512);
        if self.disk_size == 0 { least } else { u64::from(self.disk_size) * 1_000_000_000 / 512 }
    }

    const fn is_volatile(&self) -> bool {
        (self.controller_cache > 0 && !self.battery) || self.disk.write_cache
    }

    pub(crate) fn check(&self, size: u64) -> Result<(), String> {
        if !matches!(self.level, 0 | 5 | 6) {
            return Err(format!("level={} is not possible: it takes 0, 5 or 6", self.level));
        }
        let least = match self.level {
            0 => 2,
            5 => 3,
            _ => 4,
        };
        if self.disks < least {
            return Err(format!("disks={} is not possible: level={} takes at least {least}", self.disks, self.level));
        }
        if u64::from(self.missing) > self.parity() {
            return Err(format!(
                "missing={} is not possible: level={} takes at most {}",
                self.missing,
                self.level,
                self.parity()
            ));
        }
        if self.rebuild > 0 && self.missing == 0 {
            return Err(format!("rebuild={} is not possible: no disk is missing (missing=0)", self.rebuild));
        }
        let (least, each) = (self.layout().each(size / 512), self.each(size));
        if least > each {
            let most = each / self.layout().chunk * self.layout().stripe() * 512;
            return Err(format!(
                "size={} is not possible: {} disks of disk_size={} at level={} hold {}",
                show_size(size),
                self.disks,
                self.disk_size,
                self.level,
                show_most(most)
            ));
        }
        self.disk.check(each * 512)
    }
}

const RATE_OR_NONE: (u32, u32) = (0, RATE.1);

/// What is rebuilt at a time, in sectors of each disk.
const REBUILD: u64 = 2048;

/// How long what was written may stay in the cache.
const STAY: u64 = 1_000_000_000;

/// The model.
pub struct Raid {
    layout: Layout,
    numbers: Numbers,
    sectors: u64,
    members: Members,
    /// What is under way to the controller, and when it is there (R1).
    arriving: VecDeque<(u64, Asked)>,
    processor_free: u64,
    link_free: u64,
    tasks: Vec<Task>,
    free: Vec<usize>,
    streams: Streams,
    cache: Cache,
    /// Stripes that are on their way from the cache to the disks, and their sectors.
    leaving: usize,
    leaving_sectors: u64,
    flushes: VecDeque<u64>,
    flushing: bool,
    /// When the next part is rebuilt, and where on each disk.
    rebuild: Option<(u64, u64)>,
    ended: VecDeque<Ended>,
    heard: Vec<usize>,
    told: Vec<usize>,
    busy: Busy,
}

struct Numbers {
    overhead: u64,
    latency: u64,
    /// Nanoseconds for 1024 sectors: on the link, and of a single request.
    link: u64,
    command: u64,
    prefetch: u64,
    cache: u64,
    battery: bool,
    volatile: bool,
    flush_members: bool,
    missing: usize,
    rebuild: u64,
}

/// What the disks are busy with, each with how many parts are not done.
#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "tasks stay in their table: a box would be an allocation for each stripe"
)]
enum Task {
    Free,
    /// A read that was asked for.
    Read {
        asked: Asked,
        left: u32,
    },
    /// A write that was asked for; its parts are stripes.
    Write {
        asked: Asked,
        left: u32,
    },
    /// A stripe is written: for a write, or from the cache.
    Stripe {
        of: Option<usize>,
        stripe: u64,
        spans: Spans,
        left: u32,
        reading: bool,
    },
    /// Read ahead.
    Ahead {
        ahead: Ahead,
        left: u32,
    },
    /// The disks are flushed.
    Flush {
        left: u32,
    },
    /// A part of all disks is rebuilt: read from the others, then written to the spare; the next one not before `next`.
    Rebuild {
        start: u64,
        sectors: u64,
        next: u64,
        left: u32,
        reading: bool,
    },
}

impl Raid {
    /// At rest.
    #[must_use]
    pub fn new(settings: Settings, sectors: u64, seed: u64) -> Self {
        let layout = settings.layout();
        let cache = u64::from(settings.controller_cache) * 2;
        Self {
            layout,
            numbers: Numbers {
                overhead: settings.controller_overhead.as_nanos(),
                latency: settings.controller_latency.as_nanos(),
                link: 1024 * 512 * 1_000_000 / u64::from(settings.controller_rate),
                command: 1024 * 512 * 1_000_000 / u64::from(settings.command_rate),
                prefetch: u64::from(settings.prefetch) * 2,
                cache,
                battery: settings.battery,
                volatile: settings.is_volatile(),
                flush_members: settings.disk.write_cache,
                missing: settings.missing as usize,
                rebuild: u64::from(settings.rebuild) * 1000,
            },
            sectors,
            members: Members::new(&settings.disk, layout.disks, settings.each(sectors * 512), seed),
            arriving: VecDeque::with_capacity(256),
            processor_free: 0,
            link_free: 0,
            tasks: Vec::with_capacity(256),
            free: Vec::with_capacity(256),
            streams: Streams::new(if settings.prefetch > 0 { settings.prefetch_streams as usize } else { 0 }),
            cache: Cache::new(cache > 0),
            leaving: 0,
            leaving_sectors: 0,
            flushes: VecDeque::new(),
            flushing: false,
            rebuild: (settings.rebuild > 0).then_some((0, 0)),
            ended: VecDeque::with_capacity(256),
            heard: Vec::with_capacity(64),
            told: Vec::with_capacity(64),
            busy: Busy::default(),
        }
    }

    fn look(&mut self, now: u64, asked: &Asked) {
        match asked.op {
            Op::Read => self.read(now, asked),
            Op::Write => self.write(now, asked),
            Op::Flush if !self.numbers.volatile => self.end(now, asked.id, Outcome::Done),
            Op::Flush => self.flushes.push_back(asked.id),
            Op::Discard | Op::WriteZeroes => self.end(now, asked.id, Outcome::Failed(Errno::ENOTSUP)),
        }
    }

    /// R2.
    fn read(&mut self, now: u64, asked: &Asked) {
        let (start, end) = (asked.extent.start.0, asked.extent.end().0);
        if self.numbers.cache > 0 && self.layout.pieces(start, end).all(|piece| self.cache.covers(&piece)) {
            return self.transfer(now, asked);
        }
        let task = self.task(Task::Read { asked: *asked, left: 0 });
        let mut left = 0;
        if let Some(found) = self.streams.read(task, start, end) {
            left += self.read_parts(now, task, start, found.start.min(end));
            left += self.read_parts(now, task, found.end, end) + found.under_way;
            self.read_ahead(now, &found);
        } else {
            left += self.read_parts(now, task, start, end);
        }
        if left == 0 {
            self.free_task(task);
            return self.transfer(now, asked);
        }
        self.tasks[task] = Task::Read { asked: *asked, left };
    }

    fn read_ahead(&mut self, now: u64, found: &streams::Found) {
        if !self.streams.wants(found, self.numbers.prefetch) {
            return;
        }
        while let Some(ahead) = self.streams.ahead(found, self.numbers.prefetch, self.layout.chunk, self.sectors) {
            let task = self.task(Task::Free);
            let left = self.read_parts(now, task, ahead.start, ahead.end);
            self.tasks[task] = Task::Ahead { ahead, left };
        }
    }

    /// Asks the disks for what lies from `start` to `end`; in how many parts (R5).
    fn read_parts(&mut self, now: u64, task: usize, start: u64, end: u64) -> u32 {
        let mut parts = 0;
        for piece in self.layout.pieces(start, end) {
            let (place, sectors) = (piece.stripe * self.layout.chunk + piece.from, piece.to - piece.from);
            let disk = self.layout.disk(piece.stripe, piece.index);
            let from = if disk < self.numbers.missing {
                self.numbers.missing..self.layout.disks as usize
            } else {
                disk..disk + 1
            };
            for disk in from {
                self.members.submit(now, disk, task, Op::Read, place, sectors);
                parts += 1;
            }
        }
        parts
    }

    /// R3.
    fn write(&mut self, now: u64, asked: &Asked) {
        let (start, end) = (asked.extent.start.0, asked.extent.end().0);
        let stripes = start / self.layout.stripe()..=(end - 1) / self.layout.stripe();
        let held = self.cache.sectors() + self.leaving_sectors;
        let room = held + (end - start) <= self.numbers.cache && self.cache.has_place(stripes.clone().count());
        let forced = asked.flags.contains(Flags::FUA) && !self.numbers.battery;
        if room && !forced {
            for piece in self.layout.pieces(start, end) {
                self.cache.add(now, &self.layout, &piece);
            }
            return self.transfer(now, asked);
        }
        // Its data crosses the link while the disks are on their way.
        self.crosses(now, end - start);
        let task = self.task(Task::Write { asked: *asked, left: 0 });
        let mut left = 0;
        for stripe in stripes {
            let mut spans = Spans::NONE;
            let (from, to) = (stripe * self.layout.stripe(), (stripe + 1) * self.layout.stripe());
            self.layout.pieces(start.max(from), end.min(to)).for_each(|piece| _ = spans.add(&piece));
            self.write_stripe(now, Some(task), stripe, &spans);
            left += 1;
        }
        self.tasks[task] = Task::Write { asked: *asked, left };
    }

    fn write_stripe(&mut self, now: u64, of: Option<usize>, stripe: u64, spans: &Spans) {
        let task = self.task(Task::Free);
        let mut left = 0;
        let members = &mut self.members;
        spans.reads(&self.layout, stripe, self.numbers.missing, |part| {
            members.submit(now, part.disk, task, Op::Read, part.start, part.sectors);
            left += 1;
        });
        self.tasks[task] = Task::Stripe { of, stripe, spans: *spans, left, reading: true };
        if left == 0 {
            self.write_parts(now, task);
        }
    }

    /// All that the new parity needs was read.
    fn write_parts(&mut self, now: u64, task: usize) {
        let Task::Stripe { stripe, spans, ref mut left, ref mut reading, .. } = self.tasks[task] else {
            unreachable!("only a stripe is written")
        };
        *reading = false;
        let members = &mut self.members;
        spans.writes(&self.layout, stripe, self.numbers.missing, |part| {
            members.submit(now, part.disk, task, Op::Write, part.start, part.sectors);
            *left += 1;
        });
        assert!(*left > 0, "with at most as many disks missing as there is parity, something is written");
    }

    /// A part of a task is done.
    fn part_done(&mut self, now: u64, task: usize) {
        let (Task::Read { left, .. }
        | Task::Write { left, .. }
        | Task::Stripe { left, .. }
        | Task::Ahead { left, .. }
        | Task::Flush { left }
        | Task::Rebuild { left, .. }) = &mut self.tasks[task]
        else {
            unreachable!("a task is free when nothing of it is left")
        };
        *left -= 1;
        if *left > 0 {
            return;
        }
        match self.tasks[task] {
            Task::Free => {}
            Task::Read { asked, .. } => {
                self.streams.done(task);
                self.transfer(now, &asked);
            }
            Task::Write { asked, .. } => self.end(now, asked.id, Outcome::Done),
            Task::Stripe { reading: true, .. } => return self.write_parts(now, task),
            Task::Stripe { of: Some(write), .. } => self.part_done(now, write),
            Task::Stripe { of: None, spans, .. } => {
                self.leaving -= 1;
                self.leaving_sectors -= spans.sectors();
            }
            Task::Ahead { ahead, .. } => {
                let mut told = std::mem::take(&mut self.told);
                self.streams.came(&ahead, |read| told.push(read));
                told.drain(..).for_each(|read| self.part_done(now, read));
                self.told = told;
            }
            Task::Flush { .. } => {
                self.flushing = false;
                self.end_flushes(now);
            }
            Task::Rebuild { reading: true, .. } => return self.rebuild_write(now, task),
            Task::Rebuild { start, sectors, next, .. } => {
                let more = start + sectors < self.layout.each(self.sectors);
                self.rebuild = more.then_some((next.max(now), start + sectors));
            }
        }
        self.free_task(task);
    }

    /// R3: what leaves the cache now.
    fn write_back(&mut self, now: u64) {
        while self.leaving < self.layout.disks as usize * 2 {
            let full = self.cache.sectors() * 2 > self.numbers.cache || self.cache.is_crowded();
            let old = self.cache.oldest().is_some_and(|came| came + STAY <= now);
            let next = self.cache.take_complete();
            let must = full || old || !self.flushes.is_empty();
            let Some((stripe, spans)) = next.or_else(|| if must { self.cache.take_next() } else { None }) else {
                return;
            };
            self.leaving += 1;
            self.leaving_sectors += spans.sectors();
            self.write_stripe(now, None, stripe, &spans);
        }
    }

    /// R4.
    fn flush(&mut self, now: u64) {
        if self.flushes.is_empty() || self.flushing || !self.cache.is_empty() || self.leaving > 0 {
            return;
        }
        if !self.numbers.flush_members {
            return self.end_flushes(now);
        }
        let task = self.task(Task::Free);
        let disks = self.numbers.missing..self.layout.disks as usize;
        self.tasks[task] = Task::Flush { left: disks.len() as u32 };
        disks.for_each(|disk| self.members.submit(now, disk, task, Op::Flush, 0, 0));
        self.flushing = true;
    }

    fn end_flushes(&mut self, now: u64) {
        while let Some(id) = self.flushes.pop_front() {
            self.end(now, id, Outcome::Done);
        }
    }

    /// R6: starts the next part, if it is time.
    fn rebuild(&mut self, now: u64) {
        let Some((_, start)) = self.rebuild.take_if(|(at, _)| *at <= now) else { return };
        let sectors = REBUILD.min(self.layout.each(self.sectors) - start);
        let task = self.task(Task::Free);
        let next = now + sectors * 512 * 1_000_000_000 / self.numbers.rebuild;
        let disks = self.numbers.missing..self.layout.disks as usize;
        self.tasks[task] = Task::Rebuild { start, sectors, next, left: disks.len() as u32, reading: true };
        for disk in disks {
            self.members.submit(now, disk, task, Op::Read, start, sectors);
        }
    }

    fn rebuild_write(&mut self, now: u64, task: usize) {
        let Task::Rebuild { start, sectors, ref mut left, ref mut reading, .. } = self.tasks[task] else {
            unreachable!("only what is rebuilt is written to the spare")
        };
        (*left, *reading) = (1, false);
        // The spare is in the place of the first that is missing.
        self.members.submit(now, 0, task, Op::Write, start, sectors);
    }

    fn task(&mut self, task: Task) -> usize {
        if let Some(free) = self.free.pop() {
            self.tasks[free] = task;
            return free;
        }
        self.tasks.push(task);
        self.tasks.len() - 1
    }

    fn free_task(&mut self, task: usize) {
        self.tasks[task] = Task::Free;
        self.free.push(task);
    }

    /// R1: the data crosses the link, then the request ends.
    fn transfer(&mut self, now: u64, asked: &Asked) {
        let at = self.crosses(now, asked.extent.sectors);
        self.end(at, asked.id, Outcome::Done);
    }

    /// When so much data has crossed the link, and the link is free for others (R1).
    fn crosses(&mut self, now: u64, sectors: u64) -> u64 {
        self.link_free = self.link_free.max(now) + sectors * self.numbers.link / 1024;
        self.link_free.max(now + sectors * self.numbers.command / 1024)
    }

    fn end(&mut self, at: u64, id: u64, outcome: Outcome) {
        let at = Instant::from_nanos(at);
        let after = self.ended.partition_point(|one| one.at <= at);
        self.ended.insert(after, Ended { at, id, outcome });
    }

    fn next(&self) -> Option<u64> {
        let arriving = self.arriving.front().map(|(at, _)| *at);
        let ended = self.ended.front().map(|one| one.at.as_nanos());
        let rebuild = self.rebuild.map(|(at, _)| at);
        let stay =
            self.cache.came_first().map(|at| at + STAY).filter(|_| self.leaving < self.layout.disks as usize * 2);
        [arriving, ended, rebuild, stay, self.members.poll_event()].into_iter().flatten().min()
    }
}

impl Model for Raid {
    fn limits(&self) -> Limits {
        Limits { discard_max: 0, write_zeroes_max: 0, ..Limits::new(self.sectors) }
    }

    fn character(&self) -> Character {
        Character { rotational: true, volatile_cache: self.numbers.volatile }
    }

    fn submit(&mut self, now: Instant, asked: &Asked) {
        self.busy.submitted(now, asked);
        self.processor_free = self.processor_free.max(now.as_nanos()) + self.numbers.overhead;
        self.arriving.push_back((self.processor_free + self.numbers.latency, *asked));
    }

    fn poll_event(&self) -> Option<Instant> {
        self.next().map(Instant::from_nanos)
    }

    fn advance(&mut self, now: Instant, ended: &mut Vec<Ended>) {
        while let Some(at) = self.next().filter(|at| *at <= now.as_nanos()) {
            while let Some(one) = self.ended.pop_front_if(|one| one.at.as_nanos() <= at) {
                self.busy.ended(&one);
                ended.push(one);
            }
            let mut heard = std::mem::take(&mut self.heard);
            self.members.advance(at, &mut heard);
            heard.iter().for_each(|task| self.part_done(at, *task));
            heard.clear();
            self.heard = heard;
            while let Some((_, asked)) = self.arriving.pop_front_if(|(there, _)| *there <= at) {
                self.look(at, &asked);
            }
            self.write_back(at);
            self.flush(at);
            self.rebuild(at);
        }
    }

    fn work(&self) -> Work {
        self.busy.work()
    }
}

#[cfg(test)]
mod tests;
