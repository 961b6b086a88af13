//! Check: promises that are looked at after every step of every run.
//!
//! check.1  Nothing is lost: what was asked ends, and all of it was given to the disk.
//! check.2  Nothing happens twice: no sector of a bio goes to the disk twice, and no bio ends twice.
//! check.3  Nothing ends before it was given to the disk and the disk has ended it.
//! check.4  A read returns the latest write that had ended when it was asked for, or one that was under way since. Writes that
//!     are under way together may land in either order.
//! check.5  The disk is not left without work while requests wait, unless the scheduler holds it idle for a stream, and that is
//!     never longer than [`Check::hold_max`].
//!
//! Of a single write check.4 says no more than check.1 to check.3, by which it lands once and before it ends: what check.4
//! finds is the wrong order of several, and a write that lands again.
//!
//! A promise that is broken is our own mistake, so it panics: with the seed, the time and the request, to be run again.
//!
//! Every request is looked at by check.1 to check.3 and check.5. One sector of each stretch of [`Check::watch_every`] sectors,
//! by default of 256 KiB, is watched by check.4: which one follows from the stretch and the seed, so other seeds watch others.

use std::fmt;

use fairlift_core::model::ModelCompletion;
use fairlift_core::queue::Segment;
use fairlift_core::time::ms;
use fairlift_core::{Bio, Dispatch, Duration, Extent, Finished, Flags, Instant, Op, Outcome, Queue, Sector, Tag};

mod versions;

use versions::Versions;

/// The record of a bio; its token is the row's number.
struct TrackedBio {
    state: State,
    op: Op,
    extent: Extent,
    stream: u32,
    /// A flush comes before its data.
    is_behind_flush: bool,
    given: Covered,
    ended: Covered,
    /// Its place among all that was submitted or ended.
    order: u64,
    /// For a read: what it must not be older than, for each watched sector that was written before.
    floors: Vec<(u64, u64)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Nobody has it.
    Free,
    Open,
    /// It was told to have timed out; the disk still has it.
    TimedOut,
}

/// Which sectors of a bio were seen: their number, and the sum of their squares' differences, which only pieces that lie
/// side by side make right.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Covered {
    sectors: u64,
    squares: u128,
}

impl Covered {
    fn add(&mut self, offset: u64, sectors: u64) {
        let square = |n: u64| u128::from(n) * u128::from(n);
        self.sectors += sectors;
        self.squares += square(offset + sectors) - square(offset);
    }

    fn is_all(self, sectors: u64) -> bool {
        self.sectors == sectors && self.squares == u128::from(sectors) * u128::from(sectors)
    }
}

#[derive(Clone, Copy)]
struct InDisk {
    since: Instant,
    op: Op,
    extent: Extent,
}

/// Looks at the promises: see the [module](self).
pub struct Check {
    seed: u64,
    rows: Vec<TrackedBio>,
    /// Bios that the queue accepted and that have not ended.
    pub(crate) open: usize,
    /// By tag.
    in_disk: Vec<Option<InDisk>>,
    order: u64,
    versions: Versions,
    hold_max: Duration,
    /// Since when the disk has been without work while requests wait.
    held_since: Option<Instant>,
}

impl Check {
    /// The longest time for which a disk may be held idle, unless said otherwise: twice the largest idle time that the
    /// schedulers have by default (20 ms: `bfq`, for a stream whose weight is raised).
    pub const HOLD_MAX: Duration = ms(40);

    /// Of how many sectors one is watched, unless said otherwise.
    pub const WATCH_EVERY: u64 = 512;

    /// Looks at all that this queue does from now on.
    pub fn new(queue: &Queue) -> Self {
        Self {
            seed: 0,
            rows: Vec::new(),
            open: 0,
            in_disk: vec![None; usize::from(queue.settings().depth)],
            order: 0,
            versions: Versions::new(0, Self::WATCH_EVERY),
            hold_max: Self::HOLD_MAX,
            held_since: None,
        }
    }

    /// Names the seed that the run follows from; before anything is asked.
    pub fn seed(&mut self, seed: u64) {
        self.seed = seed;
        self.versions = Versions::new(seed, self.versions.every);
    }

    /// Watches one sector of each stretch of this length (check.4); 1 watches all. Before anything is asked.
    ///
    /// # Panics
    /// If `sectors` is no power of two.
    pub fn watch_every(&mut self, sectors: u64) {
        self.versions = Versions::new(self.seed, sectors);
    }

    /// The longest time for which the disk may be held idle while requests wait (check.5).
    pub const fn hold_max(&mut self, hold_max: Duration) {
        self.hold_max = hold_max;
    }

    /// The queue accepted a bio.
    pub fn submitted(&mut self, now: Instant, bio: &Bio) {
        let number = bio.token.0 as usize;
        if self.rows.len() <= number {
            self.rows.resize_with(number + 1, TrackedBio::free);
        }
        self.order += 1;
        self.open += 1;
        let order = self.order;
        let row = &mut self.rows[number];
        if row.state != State::Free {
            self.fail(now, number, "is asked with the token of one that has not ended");
        }
        let floors = std::mem::take(&mut row.floors);
        *row = TrackedBio {
            state: State::Open,
            op: bio.op,
            extent: bio.extent,
            stream: bio.stream.0,
            is_behind_flush: bio.flags.contains(Flags::PREFLUSH),
            order,
            floors,
            ..TrackedBio::free()
        };
        if bio.op == Op::Read {
            self.versions.read_begins(bio.extent, &mut row.floors);
        }
    }

    /// The queue gave a request to the disk: made of these segments.
    pub fn dispatched(&mut self, now: Instant, request: &Dispatch, segments: impl Iterator<Item = Segment>) {
        let Dispatch { tag, op, extent, .. } = *request;
        if self.in_disk.len() <= usize::from(tag.0) {
            self.in_disk.resize(usize::from(tag.0) + 1, None);
        }
        if let Some(before) = &self.in_disk[usize::from(tag.0)] {
            self.stop(now, before, "is in the disk, and its tag is given out again"); // check.2
        }
        self.in_disk[usize::from(tag.0)] = Some(InDisk { since: now, op, extent });
        let mut at = extent.start.0;
        for segment in segments {
            let (number, offset, sectors) = segment_key(&segment);
            let row = &mut self.rows[number];
            // The rest of a bio that timed out goes to the disk too.
            if row.state == State::Free || row.op != op {
                self.fail(now, number, &format!("goes to the disk as {} though it is not open", op.name())); // check.2
            }
            row.given.add(offset, sectors);
            if row.given.sectors > row.extent.sectors {
                self.fail(now, number, "goes to the disk twice"); // check.2
            }
            if op != Op::Flush && row.extent.start.0 + offset != at {
                self.fail(now, number, &format!("goes to sector {at}, with the data of another")); // check.1
            }
            at += sectors;
        }
        if at != extent.end().0 {
            self.stop(now, &InDisk { since: now, op, extent }, "asks the disk for more than was asked"); // check.1
        }
    }

    /// The disk has ended a request; whose tag it is.
    pub fn ended(&mut self, now: Instant, ended: &ModelCompletion, queue: &Queue) -> Tag {
        let tag = self.taken_back(now, ended);
        self.landed(now, ended.outcome, queue.segments(tag));
        tag
    }

    fn taken_back(&mut self, now: Instant, ended: &ModelCompletion) -> Tag {
        let request = self.in_disk.get_mut(ended.id as usize).and_then(Option::take);
        let Some(request) = request else {
            panic!("{}: the disk ends request {}, which it does not have", self.place(now), ended.id); // check.2, check.3
        };
        if ended.at < request.since || ended.at > now {
            self.stop(
                now,
                &request,
                &format!("was given at {}, and ends at {}", Clock(request.since), Clock(ended.at)),
            );
        }
        Tag(ended.id as u16)
    }

    fn landed(&mut self, now: Instant, outcome: Outcome, segments: impl Iterator<Item = Segment>) {
        for segment in segments {
            let (number, offset, sectors) = segment_key(&segment);
            let row = &mut self.rows[number];
            row.ended.add(offset, sectors);
            if outcome != Outcome::Done {
                continue;
            }
            let extent = Extent::new(Sector(row.extent.start.0 + offset), sectors);
            match row.op {
                Op::Flush => {}
                Op::Read => {
                    if let Some(stale) = self.versions.stale(extent, &row.floors) {
                        self.fail(now, number, &format!("returns what sector {stale} held before its last write"));
                        // check.4
                    }
                }
                Op::Write | Op::Discard | Op::WriteZeroes => self.versions.landed(extent, row.order),
            }
        }
    }

    /// The queue told that a bio ended.
    pub fn finished(&mut self, now: Instant, news: Finished) {
        let (token, expected) = match news {
            Finished::Done(token, _) | Finished::TimedOut(token) => (token, State::Open),
            Finished::Released(token) => (token, State::TimedOut),
        };
        let number = token.0 as usize;
        let Some(row) = self.rows.get_mut(number).filter(|row| row.state == expected) else {
            panic!("{}: {news:?} of a bio that is not open", self.place(now)); // check.2
        };
        if let Finished::TimedOut(_) = news {
            row.state = State::TimedOut;
            return;
        }
        let whole = row.extent.sectors;
        // Its flush failed or took too long, so that its data never went.
        let has_no_data =
            row.op == Op::Flush || row.is_behind_flush && row.given == Covered::default() && !is_done(news);
        if !has_no_data && !row.given.is_all(whole) {
            self.fail(now, number, "ends, but not all of it was given to the disk"); // check.1, check.3
        }
        if !has_no_data && !row.ended.is_all(whole) {
            self.fail(now, number, "ends before the disk has ended it"); // check.3
        }
        row.state = State::Free;
        self.open -= 1;
        self.order += 1;
        if !matches!(row.op, Op::Read | Op::Flush) {
            self.versions.finished(row.extent, row.order, self.order, is_done(news));
        }
    }

    /// A turn is over: everybody has spoken, and the disk has all that it may have.
    pub fn settled(&mut self, now: Instant, queue: &Queue, timeout: Option<Instant>, someone_waits: bool) {
        if queue.load().in_flight > 0 {
            self.held_since = None;
            return;
        }
        if queue.load().waiting == 0 && queue.load().held > 0 {
            self.held_since = None; // by ceilings, which may leave the disk idle
            return;
        }
        self.idle(now, queue.load().waiting, timeout, someone_waits);
    }

    /// The disk has nothing to do.
    fn idle(&mut self, now: Instant, waiting: usize, timeout: Option<Instant>, someone_waits: bool) {
        if waiting == 0 {
            self.held_since = None;
            if self.open > 0 {
                self.fail(now, self.any_open(), "is nowhere: not waiting, not in the disk, and not ended"); // check.1
            }
            assert!(!someone_waits, "{}: the queue is empty, and someone waits for room", self.place(now)); // check.1
            return;
        }
        let since = *self.held_since.get_or_insert(now);
        let Some(until) = timeout else {
            self.fail(now, self.any_open(), "waits for a disk that has nothing to do, and nobody holds it"); // check.5
        };
        if until.since(since) > self.hold_max || now.since(since) > self.hold_max {
            let (since, until) = (Clock(since), Clock(until));
            let says =
                format!("waits for a disk that is held idle from {since} to {until}, more than {}", self.hold_max);
            self.fail(now, self.any_open(), &says); // check.5
        }
    }

    /// All that was asked should have ended.
    pub fn drained(&self, now: Instant) {
        if self.open > 0 {
            self.fail(now, self.any_open(), "never ends"); // check.1
        }
    }

    fn any_open(&self) -> usize {
        self.rows.iter().position(|row| row.state != State::Free).expect("one is open")
    }

    /// The seed and the time, as a message names them.
    pub(crate) fn place(&self, now: Instant) -> impl fmt::Display {
        format!("seed {} at {}", self.seed, Clock(now))
    }

    #[cold]
    fn fail(&self, now: Instant, number: usize, says: &str) -> ! {
        let TrackedBio { op, extent, stream, .. } = &self.rows[number];
        panic!("{}: {} {extent:?} of stream {stream} {says}", self.place(now), op.name());
    }

    #[cold]
    fn stop(&self, now: Instant, request: &InDisk, says: &str) -> ! {
        panic!("{}: {} {:?} {says}", self.place(now), request.op.name(), request.extent);
    }
}

impl TrackedBio {
    const fn free() -> Self {
        let none = Covered { sectors: 0, squares: 0 };
        Self {
            state: State::Free,
            op: Op::Read,
            extent: Extent::NONE,
            stream: 0,
            is_behind_flush: false,
            given: none,
            ended: none,
            order: 0,
            floors: Vec::new(),
        }
    }
}

const fn is_done(news: Finished) -> bool {
    matches!(news, Finished::Done(_, Outcome::Done))
}

/// Which bio, from which sector of it on, and how many.
fn segment_key(segment: &Segment) -> (usize, u64, u64) {
    (segment.token.0 as usize, segment.offset.sectors(), segment.bytes.sectors())
}

/// A time as people read it.
struct Clock(Instant);

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09} s", self.0.as_nanos() / 1_000_000_000, self.0.as_nanos() % 1_000_000_000)
    }
}

#[cfg(test)]
mod tests;
