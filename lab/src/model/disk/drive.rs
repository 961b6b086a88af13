//! The inside of a hard disk: commands, the arm, the link and the caches.
//!
//! drive.1  Commands are looked at one after the other, each for `overhead`; at most `ncq` are in the drive, and a flush is alone (it
//!     cannot be queued in ATA). A flush goes before commands for which the drive has no room yet, as Linux sends it (`block/blk-flush.c`:
//!     at the head of the waiting requests).
//! drive.2  A read whose data is in the cache never waits for the arm. Data crosses the link one command at a time.
//! drive.3  The arm serves what is reached first from where the head is (seek and rotation). Commands that follow each other are
//!     a run, which is served from its start, or on from where the head is: a stream whose commands wait while the arm is
//!     elsewhere stays in order. No run is passed over for longer than `ncq_age` by younger commands.
//! drive.4  After a read the head reads on, until `read_ahead` beyond the reader or until another command needs the arm. A command that
//!     goes on where the head reads on to, or where the one before goes on to, is no other command: it joins and is served as the head
//!     passes. A reader that has gone on before is given at least `read_ahead_min` after the command that is being read: then the visit is
//!     over, and others go first: those that lie before the head, or beyond a gap larger than `read_ahead`.
//! drive.5  A write ends when it is in the cache, if the cache is on and it is not forced to the medium; it waits for room there. The cache
//!     is written back when the arm has nothing else to do. When it is 3/4 full, or a write waits for room, the arm goes in turns: for the
//!     dirty run that it reaches first, a MiB at most, and for a command by drive.3. A write that enters the cache while the arm waits for
//!     a run to come by, and comes by before it, goes first.
//! drive.6  A flush ends when nothing is left to write back, and `flush` after that.

mod choose;
mod read_on;
mod write_back;

use std::collections::VecDeque;

use fairlift_core::model::{Character, Model, ModelCompletion, ModelRequest};
use fairlift_core::{Errno, Instant, Limits, Op, Outcome};

use super::Settings;
use super::dirty::Dirty;
use super::geometry::{Geometry, Position};
use super::seek::Seek;
use super::segments::Segments;
use write_back::RUNS;

/// A drive. Times are nanoseconds, places are sectors.
#[derive(Debug)]
pub(in crate::model) struct Drive {
    geometry: Geometry,
    seek: Seek,
    settings: Settings,
    /// Nanoseconds for 1024 sectors on the link.
    link: u64,
    /// The angle at time zero, as a time.
    phase: u64,
    /// Arrivals not looked at yet, with the time of that (drive.1).
    arriving: VecDeque<(u64, ModelRequest)>,
    /// Until when commands are being looked at.
    looking: u64,
    /// Requests that need the arm.
    waiting: Vec<Queued>,
    /// Reads of data that the head is about to read on to.
    joined: Vec<Queued>,
    arm: Arm,
    head: Head,
    link_free: u64,
    cache: Segments,
    dirty: Dirty,
    /// Whether the arm's last way was for the cache (drive.5).
    wrote_back: bool,
    /// Writes that wait for room in the cache, the oldest first (drive.5).
    held: VecDeque<Queued>,
    flush: Option<Flush>,
    ended: VecDeque<ModelCompletion>,
}

#[derive(Clone, Copy, Debug)]
struct Queued {
    id: u64,
    arrived: u64,
    /// Not before: a write's data is not there yet.
    ready: u64,
    write: bool,
    /// The rest to read or write.
    start: u64,
    end: u64,
    place: Position,
    /// All of it, for the link.
    sectors: u64,
}

/// A flush that is in the drive (drive.6).
#[derive(Clone, Copy, Debug)]
struct Flush {
    id: u64,
    /// When it ends, once nothing is left to write back.
    ends: Option<u64>,
}

/// The arm's activity.
#[derive(Clone, Copy, Debug)]
enum Arm {
    Idle,
    /// For a command; its data passes from `from` to `until`.
    Serves {
        command: Queued,
        segment: usize,
        sequential: bool,
        from: u64,
        until: u64,
    },
    /// Writes back a run: the arm is on its cylinder at `settled`, its start comes by at `from`.
    WritesBack {
        run: (u64, u64),
        settled: u64,
        from: u64,
        until: u64,
    },
    /// Reads on (drive.4): the media time is `media` at `since`; not to be taken away before `owed`, done at `limit`.
    ReadsOn {
        segment: usize,
        since: u64,
        media: u64,
        owed: u64,
        limit: u64,
        visit: bool,
    },
}

/// Where the head was left.
#[derive(Clone, Copy, Debug)]
struct Head {
    cylinder: u64,
    /// The next sector under it, if it stays.
    sector: u64,
    /// How far the commands go that a visit left here (drive.4): they go last. 0: there are none.
    visited: u64,
}

impl Model for Drive {
    fn limits(&self) -> Limits {
        Limits { discard_max: 0, write_zeroes_max: 0, ..Limits::new(self.geometry.capacity) }
    }

    fn character(&self) -> Character {
        Character { rotational: true, volatile_cache: self.settings.write_cache }
    }

    fn submit(&mut self, now: Instant, request: &ModelRequest) {
        self.looking = self.looking.max(now.as_nanos()) + self.settings.overhead.as_nanos();
        let place = if request.op == Op::Flush { self.flush_goes_to() } else { self.arriving.len() };
        self.arriving.insert(place, (self.looking, *request));
    }

    fn poll_event(&self) -> Option<Instant> {
        let arriving = self.arriving.front().filter(|(_, request)| self.has_room(request)).map(|(at, _)| *at);
        let ended = self.ended.front().map(|ended| ended.at.as_nanos());
        let flushed = self.flush.and_then(|flush| flush.ends);
        [arriving, ended, flushed, self.arm_event()].into_iter().flatten().min().map(Instant::from_nanos)
    }

    fn advance(&mut self, now: Instant, ended: &mut Vec<ModelCompletion>) {
        while let Some(at) = self.poll_event().filter(|at| *at <= now) {
            ended.extend(std::iter::from_fn(|| self.ended.pop_front_if(|one| one.at <= at)));
            let at = at.as_nanos();
            // The arm's results come before requests of the same time: the cache then knows them.
            if self.arm_event().is_some_and(|event| event <= at) {
                self.arm_done(at);
            }
            self.look(at);
            self.move_arm(at);
        }
    }
}

impl Drive {
    /// A drive at rest; `phase` is any number: where its spindle stands.
    pub(in crate::model) fn new(settings: &Settings, sectors: u64, phase: u64) -> Self {
        let geometry = Geometry::new(settings, sectors);
        let seek = Seek::new(
            settings.seek_track.as_nanos(),
            settings.seek_average.as_nanos(),
            settings.seek_full.as_nanos(),
            geometry.cylinders,
        );
        let depth = settings.ncq as usize;
        Self {
            seek,
            link: 1024 * 512 * 1_000_000 / u64::from(settings.interface),
            phase: phase % geometry.revolution,
            geometry,
            arriving: VecDeque::with_capacity(256),
            looking: 0,
            waiting: Vec::with_capacity(depth),
            joined: Vec::with_capacity(depth),
            arm: Arm::Idle,
            head: Head { cylinder: 0, sector: 0, visited: 0 },
            link_free: 0,
            cache: Segments::new(settings.cache_segments as usize, settings.segment_sectors()),
            dirty: Dirty::new(RUNS),
            wrote_back: false,
            held: VecDeque::with_capacity(depth),
            flush: None,
            ended: VecDeque::with_capacity(depth),
            settings: settings.clone(),
        }
    }

    /// drive.1: the place of a flush among what has not been looked at.
    fn flush_goes_to(&self) -> usize {
        let is_flush = |(_, request): &(u64, ModelRequest)| request.op == Op::Flush;
        let first = if self.flush.is_some() { Some(0) } else { self.arriving.iter().position(is_flush) };
        match first {
            Some(first) => first + self.arriving.iter().skip(first).take_while(|one| is_flush(one)).count(),
            None => (self.settings.ncq as usize).saturating_sub(self.inside()).min(self.arriving.len()),
        }
    }

    /// The time at which the arm is done with its work, or can be given something else.
    fn arm_event(&self) -> Option<u64> {
        match self.arm {
            Arm::Idle => None,
            Arm::Serves { until, .. } | Arm::WritesBack { until, .. } => Some(until),
            Arm::ReadsOn { since, media, owed, limit, .. } => {
                let reached = |sector: u64| since + (self.geometry.place(sector).media - media);
                let joined = self.joined.first().map(|read| reached(read.end));
                let stop = if self.has_other_work() { owed.min(limit) } else { limit };
                Some(joined.map_or(reached(stop), |at| at.min(reached(stop))).max(since))
            }
        }
    }

    /// Whether the arm is needed elsewhere.
    fn has_other_work(&self) -> bool {
        !self.waiting.is_empty() || self.must_write_back()
    }

    /// drive.1: whether a command can be looked at now.
    fn has_room(&self, request: &ModelRequest) -> bool {
        let inside = self.inside();
        self.flush.is_none() && if request.op == Op::Flush { inside == 0 } else { inside < self.settings.ncq as usize }
    }

    /// Commands that are in the drive, but for a flush.
    fn inside(&self) -> usize {
        let serving = usize::from(matches!(self.arm, Arm::Serves { .. }));
        self.waiting.len() + self.joined.len() + self.held.len() + serving + self.ended.len()
    }

    fn look(&mut self, now: u64) {
        while let Some(&(at, request)) = self.arriving.front()
            && at <= now
            && self.has_room(&request)
        {
            self.arriving.pop_front();
            match request.op {
                Op::Read => self.look_at_read(now, &request),
                Op::Write => self.look_at_write(now, &request),
                Op::Flush => self.flush = Some(Flush { id: request.id, ends: None }),
                Op::Discard | Op::WriteZeroes => self.end(now, request.id, Outcome::Failed(Errno::ENOTSUP)),
            }
        }
        self.end_flush(now);
    }

    /// drive.2, drive.4.
    fn look_at_read(&mut self, now: u64, request: &ModelRequest) {
        let (start, end) = (request.extent.start.0, request.extent.end().0);
        if self.dirty.covers(start, end) {
            return self.transfer(now, now, request.id, end - start);
        }
        self.read_on_to(now);
        let mut read = self.waiting_for(now, request);
        if let Some(segment) = self.cache.find(start) {
            let there = self.cache.get(segment).end;
            if end <= there {
                self.cache.hit(segment, end);
                self.go_further(segment, end);
                return self.transfer(now, now, request.id, end - start);
            }
            self.leave_out(&mut read, there);
        }
        self.waiting.push(read);
        self.join();
    }

    fn waiting_for(&self, now: u64, request: &ModelRequest) -> Queued {
        let start = request.extent.start.0;
        Queued {
            id: request.id,
            arrived: now,
            ready: 0,
            write: request.op == Op::Write,
            start,
            end: request.extent.end().0,
            place: self.geometry.place(start),
            sectors: request.extent.sectors,
        }
    }

    const fn link_time(&self, sectors: u64) -> u64 {
        sectors * self.link / 1024
    }

    /// drive.2: the data of a command crosses the link, from `from` on as far as it is there, and not done before `now`.
    fn transfer(&mut self, now: u64, from: u64, id: u64, sectors: u64) {
        self.link_free = (self.link_free.max(from) + self.link_time(sectors)).max(now);
        self.end(self.link_free, id, Outcome::Done);
    }

    fn end(&mut self, at: u64, id: u64, outcome: Outcome) {
        let last = self.ended.back().map_or(0, |ended| ended.at.as_nanos());
        self.ended.push_back(ModelCompletion { at: Instant::from_nanos(at.max(last)), id, outcome });
    }

    /// The arm's event at `now`.
    fn arm_done(&mut self, now: u64) {
        match self.arm {
            Arm::Idle => {}
            Arm::Serves { command, segment, sequential, from, .. } => {
                self.arm = Arm::Idle;
                if command.write {
                    // Its data has crossed the link before.
                    self.end(now, command.id, Outcome::Done);
                } else {
                    self.cache.extend(segment, command.end);
                    self.cache.hit(segment, command.end);
                    self.transfer(now, from, command.id, command.sectors);
                    self.read_on(now, segment, command.end, sequential);
                }
            }
            Arm::WritesBack { .. } => {
                self.arm = Arm::Idle;
                self.end_flush(now);
            }
            Arm::ReadsOn { segment, owed, limit, visit, .. } => {
                self.read_on_to(now);
                let there = self.cache.get(segment).end;
                while let Some(&read) = self.joined.first()
                    && read.end <= there
                {
                    self.joined.remove(0);
                    self.cache.hit(segment, read.end);
                    // All but the last of it may have crossed already.
                    self.transfer(now, read.arrived, read.id, read.sectors);
                }
                if there >= limit || (self.has_other_work() && there >= owed) {
                    self.end_visit(now, visit && there <= owed);
                } else {
                    self.owe();
                }
            }
        }
    }

    /// Gives the arm what to do next, if it is free or may be taken away.
    fn move_arm(&mut self, now: u64) {
        if let Arm::ReadsOn { owed, visit, .. } = self.arm {
            if !self.has_other_work() {
                return;
            }
            self.read_on_to(now);
            if self.head.sector < owed {
                return;
            }
            self.end_visit(now, visit && self.head.sector <= owed);
        }
        if !matches!(self.arm, Arm::Idle) {
            return;
        }
        if self.waiting.is_empty() {
            if self.dirty.is_empty() {
                self.resume(now);
            } else {
                self.write_back(now);
            }
            return;
        }
        if self.must_write_back() && !self.wrote_back {
            return self.write_back(now);
        }
        let command = self.waiting.remove(self.choose(now));
        let there = self.reach(now, &command);
        self.wrote_back = false;
        let until = there + (self.geometry.place(command.end).media - command.place.media);
        let (segment, sequential) = if command.write { (0, false) } else { self.cache.take(command.start) };
        self.arm = Arm::Serves { command, segment, sequential, from: there, until };
        self.leave_at(command.end);
    }

    fn leave_at(&mut self, sector: u64) {
        let cylinder = self.geometry.place(sector - 1).cylinder;
        self.head = Head { cylinder, sector, visited: 0 };
    }
}
