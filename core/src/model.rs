//! A device on paper: takes requests, and says when they end.
//!
//! The lab's modelled disks implement [`Model`]; its world drives them in virtual time, and the server drives the same
//! ones in real time (`sim:` backings). A model moves no data: it only knows how long things take.
//!
//! ```text
//!  submit ─▶ (in the device) ─▶ poll_event: when to look again ─▶ advance ─▶ ended
//! ```

use alloc::vec::Vec;

use crate::{Extent, Flags, Instant, Limits, Op, Outcome};

/// The character of a device, as far as it is known without trying.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Character {
    /// Whether what lies close together is served faster because something has to move.
    pub rotational: bool,
    /// Whether a write that has ended may be lost by a power cut until it is flushed.
    pub volatile_cache: bool,
}

/// A request as a model sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ModelRequest {
    /// The submitter's name for it, unique among those in the device.
    pub id: u64,
    /// The operation.
    pub op: Op,
    /// How to treat it.
    pub flags: Flags,
    /// Where on the device; empty for a flush.
    pub extent: Extent,
}

/// A request that ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ModelCompletion {
    /// When.
    pub at: Instant,
    /// Which.
    pub id: u64,
    /// How.
    pub outcome: Outcome,
}

/// Counters of a model since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Work {
    /// Requests that ended, flushes included.
    pub requests: u64,
    /// Flushes that ended.
    pub flushes: u64,
    /// Nanoseconds in which at least one request was in the device.
    pub busy: u64,
    /// The number of requests in the device, integrated over time: request-nanoseconds.
    pub depth_time: u64,
}

/// Takes requests, and says when they end. Deterministic: the same calls give the same answers.
///
/// Time never runs backwards: each `now` is at least as late as all before, and the caller never passes
/// [`Model::poll_event`] without calling [`Model::advance`].
pub trait Model: Send {
    /// Its limits.
    fn limits(&self) -> Limits;

    /// Its character.
    fn character(&self) -> Character;

    /// Takes a request in. It does not end within this call, even if it takes no time.
    fn submit(&mut self, now: Instant, request: &ModelRequest);

    /// When something happens next, if nothing else is submitted; `None`: nothing is under way.
    ///
    /// The next event may be internal (a cache is written back): `advance` may then have nothing to report.
    fn poll_event(&self) -> Option<Instant>;

    /// Goes on to `now`, and appends what has ended since, in order of time.
    fn advance(&mut self, now: Instant, ended: &mut Vec<ModelCompletion>);

    /// Its counters so far; nothing if it keeps none.
    fn work(&self) -> Work {
        Work::default()
    }
}
