//! Hard disks behind a controller: RAID 0, 5 and 6.
//!
//! raid.1  A request is first looked at by the controller (`controller_overhead`, one after the other) and under way to it and back
//!     (`controller_latency`, all at once); its data crosses one link of `controller_rate`, the data of one chunk at `command_rate` at most.
//! raid.2  A read goes to the disks that hold it, or waits for the controller's read-ahead (`streams.rs`).
//! raid.3  A write goes through to the disks, each stripe by itself: what parity needs is read, then data and parity are
//!     written (`stripes.rs`). With `controller_cache` it ends in memory, and goes to the disks when its stripe is
//!     complete, after a second, or when the memory is half full.
//! raid.4  A flush ends at once if no memory that it concerns is volatile: the cache has a battery, and the disks' own write
//!     caches are off. Otherwise it waits until all is on the disks, and the disks are flushed. With `flush_ignored` the array
//!     is sent flushes that it needs not, as the battery-backed cabinets of seed 003 were.
//! raid.5  The first `missing` disks are not there, from `missing_from` on: what they held is made from all others.
//! raid.6  With `rebuild` the array reads all disks from start to end, a MiB at a time, and writes what a missing one held to its
//!     spare, at that rate at most.
//!
//! The disks are those of `disk`, spindles not in step. Not modelled: two writes to one stripe wait for each other, a cache of past reads
//! (other than read-ahead), parity computation, the disks' loop (each disk has its own link), a journal, data on the spare while it is
//! rebuilt (nothing is read from there).

mod layout;
mod members;
mod reads;
mod rebuild;
mod settings;
mod streams;
mod stripes;
mod writes;

use std::collections::VecDeque;

use fairlift_core::model::{Character, Model, ModelCompletion, ModelRequest};
use fairlift_core::{Errno, Instant, Limits, Op, Outcome};
use slab::Slab;

use self::layout::Layout;
use self::members::Members;
use self::streams::{Ahead, Streams};
use self::stripes::{Cache, Spans};

pub use self::settings::Settings;

/// How long what was written may stay in the cache, in nanoseconds (raid.3).
const STAY: u64 = 1_000_000_000;

/// The model.
pub struct Raid {
    layout: Layout,
    settings: Settings,
    /// Nanoseconds for 1024 sectors: on the link, and within a chunk.
    link: u64,
    command: u64,
    /// How many disks have failed by now.
    missing: usize,
    sectors: u64,
    members: Members,
    /// Requests under way to the controller, and the time of their arrival (raid.1).
    arriving: VecDeque<(u64, ModelRequest)>,
    processor_free: u64,
    link_free: u64,
    tasks: Slab<Task>,
    streams: Streams,
    cache: Cache,
    /// Stripes that are on their way from the cache to the disks, and their sectors.
    leaving: usize,
    leaving_sectors: u64,
    flushes: VecDeque<u64>,
    flushing: bool,
    /// When the next part is rebuilt, and where on each disk.
    rebuild: Option<(u64, u64)>,
    /// The time at which disks fail, and their number.
    fails: Option<(u64, usize)>,
    ended: VecDeque<ModelCompletion>,
    heard: Vec<usize>,
    read_ahead_done: Vec<usize>,
}

/// Work of the disks, and the number of its parts that are not done.
#[derive(Clone, Copy, Debug)]
struct Task {
    left: u32,
    kind: TaskKind,
}

#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "tasks stay in their table: a box would be an allocation for each stripe"
)]
enum TaskKind {
    /// A read that was asked for.
    Read { request: ModelRequest, stream: Option<u32> },
    /// A write that was asked for; its parts are stripes.
    Write { request: ModelRequest },
    /// A stripe is written: for a write, or from the cache.
    Stripe { of: Option<usize>, stripe: u64, spans: Spans, reading: bool },
    /// Read ahead.
    Ahead(Ahead),
    /// The disks are flushed.
    Flush,
    /// A part of all disks is rebuilt: read from the others, then written to the spare; the next one not before `next`.
    Rebuild { start: u64, sectors: u64, next: u64, reading: bool },
}

impl Raid {
    /// At rest.
    #[must_use]
    pub fn new(settings: Settings, sectors: u64, seed: u64) -> Self {
        let layout = settings.layout();
        Self {
            layout,
            link: 1024 * 512 * 1_000_000 / u64::from(settings.controller_rate),
            command: 1024 * 512 * 1_000_000 / u64::from(settings.command_rate),
            missing: 0,
            sectors,
            members: Members::new(&settings.disk, layout.disks, settings.each(sectors * 512), seed),
            arriving: VecDeque::with_capacity(256),
            processor_free: 0,
            link_free: 0,
            tasks: Slab::with_capacity(256),
            streams: settings.streams(),
            cache: Cache::new(),
            leaving: 0,
            leaving_sectors: 0,
            flushes: VecDeque::new(),
            flushing: false,
            fails: (settings.missing > 0).then_some((settings.missing_from.as_nanos(), settings.missing as usize)),
            rebuild: (settings.rebuild > 0).then_some((settings.missing_from.as_nanos(), 0)),
            ended: VecDeque::with_capacity(256),
            heard: Vec::with_capacity(64),
            read_ahead_done: Vec::with_capacity(64),
            settings,
        }
    }

    fn look(&mut self, now: u64, request: &ModelRequest) {
        match request.op {
            Op::Read => self.read(now, request),
            Op::Write => self.write(now, request),
            Op::Flush if !self.settings.is_volatile() => self.end(now, request.id, Outcome::Done),
            Op::Flush => self.flushes.push_back(request.id),
            Op::Discard | Op::WriteZeroes => self.end(now, request.id, Outcome::Failed(Errno::ENOTSUP)),
        }
    }

    fn part_done(&mut self, now: u64, task: usize) {
        let Task { left, kind } = &mut self.tasks[task];
        *left = left.checked_sub(1).expect("a task is free when nothing of it is left");
        if *left > 0 {
            return;
        }
        match *kind {
            TaskKind::Read { request, stream } => {
                self.streams.done(task);
                self.read_ends(now, &request, stream);
            }
            TaskKind::Write { request } => self.end(now, request.id, Outcome::Done),
            TaskKind::Stripe { reading: true, .. } => return self.write_parts(now, task),
            TaskKind::Stripe { of: Some(write), .. } => self.part_done(now, write),
            TaskKind::Stripe { of: None, spans, .. } => {
                self.leaving -= 1;
                self.leaving_sectors -= spans.sectors();
            }
            TaskKind::Ahead(ahead) => {
                let mut read_ahead_done = std::mem::take(&mut self.read_ahead_done);
                self.streams.came(&ahead, |read| read_ahead_done.push(read));
                read_ahead_done.drain(..).for_each(|read| self.part_done(now, read));
                self.read_ahead_done = read_ahead_done;
            }
            TaskKind::Flush => {
                self.flushing = false;
                self.end_flushes(now);
            }
            TaskKind::Rebuild { reading: true, .. } => return self.rebuild_write(now, task),
            TaskKind::Rebuild { start, sectors, next, .. } => {
                let more = start + sectors < self.layout.each(self.sectors);
                self.rebuild = more.then_some((next.max(now), start + sectors));
            }
        }
        self.tasks.remove(task);
    }

    /// The place of a new task.
    fn task(&mut self, kind: TaskKind) -> usize {
        self.tasks.insert(Task { left: 0, kind })
    }

    /// raid.1: the data crosses the link, then the request ends.
    fn transfer(&mut self, now: u64, request: &ModelRequest) -> u64 {
        let at = self.crosses(now, request.extent.sectors);
        self.end(at, request.id, Outcome::Done);
        at
    }

    /// The time at which `sectors` have crossed the link, and the link is free for others (raid.1).
    fn crosses(&mut self, now: u64, sectors: u64) -> u64 {
        self.link_free = self.link_free.max(now) + sectors * self.link / 1024;
        self.link_free.max(now + sectors.min(self.layout.chunk) * self.command / 1024)
    }

    fn end(&mut self, at: u64, id: u64, outcome: Outcome) {
        let at = Instant::from_nanos(at);
        let after = self.ended.partition_point(|one| one.at <= at);
        self.ended.insert(after, ModelCompletion { at, id, outcome });
    }

    fn next(&self) -> Option<u64> {
        let arriving = self.arriving.front().map(|(at, _)| *at);
        let ended = self.ended.front().map(|one| one.at.as_nanos());
        let rebuild = self.rebuild.map(|(at, _)| at);
        let fails = self.fails.map(|(at, _)| at);
        let stay =
            self.cache.came_first().map(|at| at + STAY).filter(|_| self.leaving < self.layout.disks as usize * 2);
        [arriving, ended, rebuild, fails, stay, self.members.poll_event()].into_iter().flatten().min()
    }
}

impl Model for Raid {
    fn limits(&self) -> Limits {
        Limits { discard_max: 0, write_zeroes_max: 0, ..Limits::new(self.sectors) }
    }

    fn character(&self) -> Character {
        Character { rotational: true, volatile_cache: self.settings.is_volatile() || self.settings.flush_ignored }
    }

    fn submit(&mut self, now: Instant, request: &ModelRequest) {
        self.processor_free = self.processor_free.max(now.as_nanos()) + self.settings.controller_overhead.as_nanos();
        self.arriving.push_back((self.processor_free + self.settings.controller_latency.as_nanos(), *request));
    }

    fn poll_event(&self) -> Option<Instant> {
        self.next().map(Instant::from_nanos)
    }

    fn advance(&mut self, now: Instant, ended: &mut Vec<ModelCompletion>) {
        while let Some(at) = self.next().filter(|at| *at <= now.as_nanos()) {
            if let Some((_, missing)) = self.fails.take_if(|(when, _)| *when <= at) {
                self.missing = missing; // what they are asked already they still answer
            }
            ended.extend(std::iter::from_fn(|| self.ended.pop_front_if(|one| one.at.as_nanos() <= at)));
            let mut heard = std::mem::take(&mut self.heard);
            self.members.advance(at, &mut heard);
            heard.iter().for_each(|task| self.part_done(at, *task));
            heard.clear();
            self.heard = heard;
            while let Some((_, request)) = self.arriving.pop_front_if(|(there, _)| *there <= at) {
                self.look(at, &request);
            }
            self.write_back(at);
            self.flush(at);
            self.rebuild(at);
        }
    }
}

#[cfg(test)]
mod tests;
