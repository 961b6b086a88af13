//! Power cut: whether what was promised is on the disk, should the power fail at any instant.
//!
//! Clients ask, a queue ([`Subject`]) sends requests to the disk and answers clients, and a disk with a volatile cache ([`Media`]) takes
//! its requests. Before and after every event the [`Oracle`], which knows only the clients' requests and answers, judges all that each
//! sector may hold if the power fails there: so every event is a *cut*, and one cut stands for all combinations of sectors that the cache
//! may have written back.
//!
//! cut.1  Promised data is there: see [`Oracle`].
//! cut.2  All that was asked ends, and once.
//! cut.3  A flush ends badly only if some flush of the disk did, or took too long, since it was asked for; or ever before, if
//!     the subject remembers failures ([`random::Faults::remembers`]).
//! cut.4  A context that has something to do is woken: it takes its turn when its clients ask, its requests end, its time has
//!     come or another context said so, and not otherwise.
//!
//! [`random`] runs many clients for long, by seed; [`exhaustive`] runs few requests in every order.

use fairlift_core::queue::Segment;
use fairlift_core::{
    Bio, ContextId, Dispatch, Extent, Finished, Flags, Instant, Op, Outcome, Refused, Sector, Stream, StreamId, Tag,
    Token,
};

use fairlift_lab::Random;

pub mod exhaustive;
pub mod media;
pub mod oracle;
pub mod random;
pub mod workers;

pub use crate::tally::{Count, Tally};
pub use media::{Landing, Media, OnFailure, Piece, Stamp};
pub use oracle::Oracle;

/// The subject of a test: the queue, or something that stands before it and breaks its promises.
///
/// The functions are those of [`Queue`](fairlift_core::Queue); some are told whose turn it is, since workers may have a queue each.
pub trait Subject {
    /// See [`add_stream`](fairlift_core::Queue::add_stream).
    fn add_stream(&mut self, stream: Stream) -> StreamId;
    /// See [`submit`](fairlift_core::Queue::submit).
    ///
    /// # Errors
    /// [`Refused`], and nothing has changed.
    fn submit(&mut self, now: Instant, bio: Bio) -> Result<(), Refused>;
    /// See [`poll_dispatch`](fairlift_core::Queue::poll_dispatch).
    fn poll_dispatch(&mut self, now: Instant, context: ContextId) -> Option<Dispatch>;
    /// See [`segments`](fairlift_core::Queue::segments).
    fn segments(&self, tag: Tag) -> Vec<Segment>;
    /// See [`handle_completion`](fairlift_core::Queue::handle_completion).
    fn handle_completion(&mut self, now: Instant, tag: Tag, outcome: Outcome);
    /// See [`handle_busy`](fairlift_core::Queue::handle_busy).
    fn handle_busy(&mut self, now: Instant, tag: Tag);
    /// See [`handle_timeout`](fairlift_core::Queue::handle_timeout).
    fn handle_timeout(&mut self, now: Instant, context: ContextId);
    /// See [`poll_finished`](fairlift_core::Queue::poll_finished).
    fn poll_finished(&mut self, context: ContextId) -> Option<Finished>;
    /// See [`poll_wake`](fairlift_core::Queue::poll_wake).
    fn poll_wake(&mut self, context: ContextId) -> Option<ContextId>;
    /// See [`poll_timeout`](fairlift_core::Queue::poll_timeout).
    fn poll_timeout(&self, context: ContextId) -> Option<Instant>;
    /// An operator changes something, by chance; nothing, if the subject has nothing to change.
    fn change(&mut self, _now: Instant, _random: &mut Random) {}
}

/// The oracle, the disk, and the events that both hear of.
struct Bench {
    media: Media,
    oracle: Oracle,
    /// The sectors of one device: several may be on a disk, and a flush is for one of them.
    place: u64,
    /// Whether the disk knows FUA, which is for writes alone; else it takes no notice.
    fua: bool,
    tally: Tally,
    /// The knowledge of the disk and the oracle at the last cut: to cut again before either knows more is the same cut.
    cut_at: Option<(u64, u64)>,
}

impl Bench {
    fn new(places: u64, place: u64, on_failure: OnFailure, seed: u64) -> Self {
        let sectors = places * place;
        let (media, oracle) = (Media::new(sectors, on_failure, seed), Oracle::new(sectors));
        Self { media, oracle, place, fua: true, tally: Tally::default(), cut_at: None }
    }

    /// The sectors that a flush at `start` is for.
    const fn range(&self, start: Sector) -> Extent {
        Extent::new(Sector(start.0 - start.0 % self.place), self.place)
    }

    /// A client asks: what of. A flush is for the whole of a device.
    fn submitted(&mut self, op: Op, flags: Flags, extent: Extent, stream: StreamId) -> Bio {
        let range = if op == Op::Flush { self.range(extent.start) } else { extent };
        let token = Token(self.oracle.submitted(op, flags, range));
        let extent = if op == Op::Flush { Extent::new(range.start, 0) } else { extent };
        Bio { op, flags, extent, stream, token }
    }

    /// The disk is given a request.
    fn given(&mut self, dispatch: &Dispatch, segments: &[Segment]) {
        let Dispatch { tag, op, flags, extent, .. } = *dispatch;
        let pieces = segments.iter().map(|segment| {
            let start = self.oracle.extent(segment.token.0).start.0 + segment.offset.sectors();
            Piece { extent: Extent::new(Sector(start), segment.bytes.sectors()), stamp: segment.token.0 }
        });
        let pieces: Vec<_> = if matches!(op, Op::Read | Op::Flush) { Vec::new() } else { pieces.collect() };
        for piece in &pieces {
            self.oracle.given(piece.stamp, self.range(piece.extent.start));
        }
        let fua = self.fua && op == Op::Write && flags.contains(Flags::FUA);
        self.media.submit(u64::from(tag.0), op, fua, self.range(extent.start), pieces);
        if flags.contains(Flags::FUA) && segments.iter().all(|segment| !self.oracle.has_fua(segment.token.0)) {
            self.tally.one(Count::Ahead);
            self.media.holds_flush(tag.0.into());
        }
    }

    /// The disk ends a request.
    fn ends(&mut self, tag: Tag, outcome: Outcome, landing: Landing) -> Result<(), String> {
        let is_failed_flush = outcome != Outcome::Done && self.media.is_flush(tag.0.into());
        self.tally.add(Count::FailedFlushes, is_failed_flush.into());
        self.media.end(tag.0.into(), outcome, landing);
        self.cut()
    }

    /// A client hears how a bio ended.
    fn heard(&mut self, token: Token, outcome: Outcome) {
        self.tally.one(Count::Ios);
        let flushes = self.oracle.answered_flushes;
        self.oracle.ended(token.0, outcome);
        self.tally.add(Count::Flushes, self.oracle.answered_flushes - flushes);
    }

    /// The power could fail here.
    fn cut(&mut self) -> Result<(), String> {
        let known = (self.media.clock, self.oracle.clock);
        if self.cut_at.replace(known) == Some(known) {
            return Ok(());
        }
        self.tally.one(Count::Cuts);
        for sector in 0..self.media.sectors() {
            for found in self.media.possible(sector) {
                self.oracle.judge(sector, found)?; // cut.1
            }
        }
        Ok(())
    }
}
