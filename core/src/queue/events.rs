//! The messages of a queue: requests to the device, outcomes of bios, refusals, and the amount of work left.

use core::fmt;

use crate::group::StreamId;
use crate::{Bytes, Extent, Flags, Op, Outcome, Tag, Token};

/// A piece of a request for the device to do; see [`Queue::segments`](super::Queue::segments) for its memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dispatch {
    /// The right to have it in flight; given back by [`Queue::handle_completion`](super::Queue::handle_completion).
    pub tag: Tag,
    /// The operation.
    pub op: Op,
    /// How to treat it.
    pub flags: Flags,
    /// Where on the disk.
    pub extent: Extent,
    /// The stream that asked (first).
    pub stream: StreamId,
}

/// A run of a bio's memory that a request uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// The bio.
    pub token: Token,
    /// Where in the bio's memory it starts.
    pub offset: Bytes,
    /// How long it is.
    pub bytes: Bytes,
}

/// How much a queue has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load {
    /// Requests in flight.
    pub in_flight: u16,
    /// Requests that wait for the device, and bios that wait for a flush that has not started.
    pub waiting: usize,
    /// Bios that ceilings hold.
    pub held: usize,
    /// One bit for each context that has something to fetch, from [`Queue::poll_dispatch`](super::Queue::poll_dispatch) or
    /// [`Queue::poll_finished`](super::Queue::poll_finished).
    pub news: u64,
    /// Whether a request may wait that only a tag is missing for.
    ///
    /// Where tags are [shared](super::Settings::tags), their owner then asks to be woken when one comes back, and
    /// [`Queue::poll_dispatch`](super::Queue::poll_dispatch) is to be called once more after that: one may have come back before.
    pub lacks_tag: bool,
}

/// News of a bio.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finished {
    /// It ended, and its memory is free.
    Done(Token, Outcome),
    /// It failed with `ETIMEDOUT`, but the device may still use its memory (queue.6).
    TimedOut(Token),
    /// The memory of a bio that had timed out is free.
    Released(Token),
}

/// Why a bio was not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// All of `nr_requests` are in use, or kept for those that asked before (queue.20). `poll_wake` names the context when there is room.
    Full,
    /// It covers nothing, yet is no flush.
    Empty,
    /// It goes beyond the end.
    BeyondEnd {
        /// The request.
        extent: Extent,
        /// The device's size in sectors.
        capacity: u64,
    },
    /// It is not whole blocks.
    Unaligned {
        /// The request.
        extent: Extent,
        /// The device's block in sectors.
        block: u32,
    },
    /// The device cannot do this at all.
    Unsupported(Op),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("all requests are in use (nr_requests)"),
            Self::Empty => f.write_str("a request for nothing"),
            Self::BeyondEnd { extent, capacity } => {
                write!(f, "sectors {} to {} asked of a disk of {capacity}", extent.start.0, extent.end().0)
            }
            Self::Unaligned { extent, block } => {
                write!(f, "{extent:?} is not whole blocks of {} bytes", Bytes::of(u64::from(*block)).get())
            }
            Self::Unsupported(op) => write!(f, "this device cannot {}", op.name()),
        }
    }
}

impl core::error::Error for Refused {}
