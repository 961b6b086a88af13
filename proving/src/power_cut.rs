//! Power cut: whether what was promised is on the disk, should the power fail at any instant.
//!
//! Clients ask, a queue ([`Subject`]) decides what goes to the disk and when they are answered, and a disk with a volatile
//! cache ([`Media`]) takes what it is given. Before and after every event the [`Oracle`], which knows only what clients
//! asked and were told, judges all that each sector may hold if the power fails there: so every event is a *cut*, and one
//! cut stands for all combinations of what the cache may have written back.
//!
//! cut.1  What was promised is there: see [`Oracle`].
//! cut.2  All that was asked ends, and once.
//! cut.3  A flush ends badly only if some flush of the disk did, or took too long, since it was asked for; or ever before, if
//!     the subject remembers failures ([`random::Faults::remembers`]).
//! cut.4  A context that has something to do is woken: it takes its turn when its clients ask, its requests end, its time has
//!     come or another context said so, and not otherwise.
//!
//! [`random`] runs many clients for long, by seed; [`exhaustive`] runs few requests in every order.

use fairlift_core::queue::Segment;
use fairlift_core::sched::Kind;
use fairlift_core::{
    Bio, ContextId, Dispatch, Extent, Finished, Flags, GroupId, Instant, Op, Outcome, Queue, Refused, Sector, Stream,
    StreamId, Tag, Weight,
};

use fairlift_lab::Random;

pub mod exhaustive;
pub mod media;
pub mod oracle;
pub mod random;
pub mod workers;

pub use media::{Landing, Media, OnFailure, Piece, Stamp};
pub use oracle::Oracle;

/// What is put to the test: the queue, or something that stands before it and breaks its promises.
///
/// The functions are those of [`Queue`]; some are told whose turn it is, since workers may have a queue each.
pub trait Subject {
    /// See [`Queue::add_stream`].
    fn add_stream(&mut self, stream: Stream) -> StreamId;
    /// See [`Queue::submit`].
    ///
    /// # Errors
    /// [`Refused`], and nothing has changed.
    fn submit(&mut self, now: Instant, bio: Bio) -> Result<(), Refused>;
    /// See [`Queue::poll_dispatch`].
    fn poll_dispatch(&mut self, now: Instant, context: ContextId) -> Option<Dispatch>;
    /// See [`Queue::segments`].
    fn segments(&self, tag: Tag) -> Vec<Segment>;
    /// See [`Queue::handle_completion`].
    fn handle_completion(&mut self, now: Instant, tag: Tag, outcome: Outcome);
    /// See [`Queue::handle_busy`].
    fn handle_busy(&mut self, now: Instant, tag: Tag);
    /// See [`Queue::handle_timeout`].
    fn handle_timeout(&mut self, now: Instant, context: ContextId);
    /// See [`Queue::poll_finished`].
    fn poll_finished(&mut self, context: ContextId) -> Option<Finished>;
    /// See [`Queue::poll_wake`].
    fn poll_wake(&mut self, context: ContextId) -> Option<ContextId>;
    /// See [`Queue::poll_timeout`].
    fn poll_timeout(&self, context: ContextId) -> Option<Instant>;
    /// An operator changes something, by chance; nothing, if the subject has nothing to change.
    fn change(&mut self, _now: Instant, _random: &mut Random) {}
}

/// The disk is never held idle: that would look like one that nobody woke.
pub fn hold_never(queue: &mut Queue) {
    for name in ["slice_idle", "group_idle"] {
        if queue.tunable(name).is_some() {
            queue.set_tunable(name, "0").unwrap_or_else(|error| panic!("{error}"));
        }
    }
}

impl Subject for Queue {
    fn add_stream(&mut self, stream: Stream) -> StreamId {
        self.add_stream(stream)
    }

    fn submit(&mut self, now: Instant, bio: Bio) -> Result<(), Refused> {
        self.submit(now, bio)
    }

    fn poll_dispatch(&mut self, now: Instant, context: ContextId) -> Option<Dispatch> {
        self.poll_dispatch(now, context)
    }

    fn segments(&self, tag: Tag) -> Vec<Segment> {
        self.segments(tag).collect()
    }

    fn handle_completion(&mut self, now: Instant, tag: Tag, outcome: Outcome) {
        self.handle_completion(now, tag, outcome);
    }

    fn handle_busy(&mut self, now: Instant, tag: Tag) {
        self.handle_busy(now, tag);
    }

    fn handle_timeout(&mut self, now: Instant, _context: ContextId) {
        self.handle_timeout(now);
    }

    fn poll_finished(&mut self, context: ContextId) -> Option<Finished> {
        self.poll_finished(context)
    }

    fn poll_wake(&mut self, _context: ContextId) -> Option<ContextId> {
        self.poll_wake()
    }

    fn poll_timeout(&self, _context: ContextId) -> Option<Instant> {
        self.poll_timeout()
    }

    fn change(&mut self, now: Instant, random: &mut Random) {
        match random.below(3) {
            0 => {
                self.set_scheduler(now, Kind::ALL[random.below(Kind::ALL.len() as u64) as usize]);
                hold_never(self);
            }
            1 => {
                let group = GroupId(random.below(self.groups().iter().count() as u64) as u16);
                self.set_weight(now, group, Weight::new(1 + random.below(1000) as u16));
            }
            _ => {
                let depth = 1 + random.below(16) as u16;
                self.set_bounds(now, depth, u32::from(depth) + random.below(32) as u32);
            }
        }
    }
}

/// What was looked at, and how much happened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Report {
    /// Instants at which the power could have failed, each judged for all that the disk could have held.
    pub cuts: u64,
    /// Bios that ended.
    pub bios: u64,
    /// Flushes that clients were told to have ended well.
    pub flushes: u64,
    /// Flushes given to the disk.
    pub device_flushes: u64,
    /// Writes that were made durable ahead of the flush that would ask for it.
    pub ahead: u64,
    /// Flushes of the disk that failed.
    pub failed_flushes: u64,
    /// Changes of the scheduler, of weights and of the depth.
    pub changes: u64,
}

impl Report {
    /// Adds what another run did.
    pub const fn add(&mut self, other: &Self) {
        self.cuts += other.cuts;
        self.bios += other.bios;
        self.flushes += other.flushes;
        self.device_flushes += other.device_flushes;
        self.ahead += other.ahead;
        self.failed_flushes += other.failed_flushes;
        self.changes += other.changes;
    }
}

/// The oracle, the disk, and what both hear of.
struct Bench {
    media: Media,
    oracle: Oracle,
    /// The sectors of one device: several may be on a disk, and a flush is for one of them.
    place: u64,
    /// Whether the disk knows FUA, which is for writes alone; else it takes no notice.
    fua: bool,
    report: Report,
    /// What the disk and the oracle knew at the last cut: to cut again before either knows more is the same cut.
    cut_at: Option<(u64, u64)>,
}

impl Bench {
    fn new(places: u64, place: u64, on_failure: OnFailure, seed: u64) -> Self {
        let sectors = places * place;
        let (media, oracle) = (Media::new(sectors, on_failure, seed), Oracle::new(sectors));
        Self { media, oracle, place, fua: true, report: Report::default(), cut_at: None }
    }

    /// The sectors that a flush at `start` is for.
    const fn range(&self, start: Sector) -> Extent {
        Extent::new(Sector(start.0 - start.0 % self.place), self.place)
    }

    /// The disk is given a request.
    fn given(&mut self, dispatch: &Dispatch, segments: &[Segment], starts: impl Fn(u64) -> Sector) {
        let Dispatch { tag, op, flags, extent, .. } = *dispatch;
        let pieces = segments.iter().map(|segment| {
            let start = starts(segment.token.0).0 + segment.offset.sectors();
            Piece { extent: Extent::new(Sector(start), segment.bytes.sectors()), stamp: segment.token.0 }
        });
        let pieces: Vec<_> = if matches!(op, Op::Read | Op::Flush) { Vec::new() } else { pieces.collect() };
        for piece in &pieces {
            self.oracle.given(piece.stamp, self.range(piece.extent.start));
        }
        self.report.device_flushes += u64::from(op == Op::Flush);
        let fua = self.fua && op == Op::Write && flags.contains(Flags::FUA);
        self.media.submit(u64::from(tag.0), op, fua, self.range(extent.start), pieces);
    }

    /// The power could fail here.
    fn cut(&mut self) -> Result<(), String> {
        let known = (self.media.clock(), self.oracle.clock());
        if self.cut_at.replace(known) == Some(known) {
            return Ok(());
        }
        self.report.cuts += 1;
        for sector in 0..self.media.sectors() {
            for found in self.media.possible(sector) {
                self.oracle.judge(sector, found)?; // cut.1
            }
        }
        Ok(())
    }
}
