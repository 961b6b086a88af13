//! What is said to a queue and by it: plain data.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use crate::flush::{self, Share};
use crate::group::{Group, StreamId};
use crate::model::Character;
use crate::sched;
use crate::tags::{Bitmap, Users};
use crate::time::secs;
use crate::{Duration, Extent, Flags, Limits, Op, Outcome, Sector, Tag, Token};

/// What a [`Queue`](super::Queue) is made from.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Who goes next.
    pub scheduler: sched::Kind,
    /// What the device can take.
    pub limits: Limits,
    /// Requests in flight.
    pub depth: u16,
    /// The tags of a device that several queues share; `None`: `depth` tags of its own.
    pub tags: Option<SharedTags>,
    /// Requests that wait or are in flight; more is answered [`Refused::Full`].
    pub nr_requests: u32,
    /// How many contexts use the queue; at most 64.
    pub contexts: u16,
    /// The weight tree, the root first.
    pub groups: Vec<Group>,
    /// How long a request may be in the device before its bios fail.
    pub io_timeout: Duration,
    /// Whether neighbours are left apart.
    pub nomerges: bool,
    /// What the device says of itself.
    pub character: Character,
    /// Where all that is random comes from.
    pub seed: u64,
    /// What holds the data, by rising start; the first starts at 0. Flushes are shared within each.
    pub backings: Vec<Backing>,
    /// How flushes are treated.
    pub flush: flush::Settings,
}

impl Settings {
    /// Requests in flight, by default.
    pub const DEPTH: u16 = 128;

    /// A queue for one context and no groups but the root, with the kernel's defaults.
    #[must_use]
    pub fn new(scheduler: sched::Kind, limits: Limits) -> Self {
        Self {
            scheduler,
            limits,
            depth: Self::DEPTH,
            tags: None,
            nr_requests: scheduler.nr_requests(Self::DEPTH),
            contexts: 1,
            groups: vec![Group::root()],
            io_timeout: secs(30),
            nomerges: false,
            character: Character { rotational: false, volatile_cache: false },
            seed: 0,
            backings: vec![Backing::default()],
            flush: flush::Settings::default(),
        }
    }

    /// Rows of the table of requests: those of bios, and a flush for each backing.
    pub(super) fn rows(&self) -> usize {
        self.nr_requests as usize + self.backings.len()
    }

    /// What its scheduler is made from.
    #[must_use]
    pub fn setup(&self) -> sched::Setup<'_> {
        sched::Setup {
            capacity: self.rows(),
            depth: self.depth,
            groups: &self.groups,
            character: self.character,
            seed: self.seed,
        }
    }
}

/// What holds a part of the disk's data.
#[derive(Clone, Debug)]
pub struct Backing {
    /// Where on the disk it starts.
    pub start: Sector,
    /// Whether what was written to it can be lost until it is flushed. If not, no flush is sent.
    pub volatile_cache: bool,
    /// Whether a write with FUA is durable when it ends. If not, it is followed by a flush.
    pub fua: bool,
    /// The state of its flushes, where other queues flush it too; `None`: only this one does. Its own settings hold.
    pub flush: Option<Arc<dyn Share>>,
}

impl Default for Backing {
    /// All of the disk, with a volatile cache and FUA.
    fn default() -> Self {
        Self { start: Sector(0), volatile_cache: true, fua: true, flush: None }
    }
}

/// One queue's part in tags that several queues share.
#[derive(Clone, Debug)]
pub struct SharedTags {
    /// The tags; `depth` of them.
    pub bitmap: Arc<Bitmap>,
    /// How many each queue may hold.
    pub users: Arc<Users>,
    /// Which of the users this queue is.
    pub user: usize,
}

/// A piece of a request for the device to do; see [`Queue::segments`](super::Queue::segments) for its memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dispatch {
    /// The right to have it in flight; given back by [`Queue::handle_completion`](super::Queue::handle_completion).
    pub tag: Tag,
    /// What to do.
    pub op: Op,
    /// How to treat it.
    pub flags: Flags,
    /// Where on the disk.
    pub extent: Extent,
    /// Who asked (first).
    pub stream: StreamId,
}

/// A run of a bio's memory that a request uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// The bio.
    pub token: Token,
    /// Where in the bio's memory it starts, in bytes.
    pub offset: u64,
    /// How long it is, in bytes.
    pub bytes: u64,
}

/// News of a bio.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finished {
    /// It ended, and its memory is free.
    Done(Token, Outcome),
    /// It failed with `ETIMEDOUT`, but the device may still use its memory (Q6).
    TimedOut(Token),
    /// The memory of a bio that had timed out is free.
    Released(Token),
}

/// Why a bio was not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// All of `nr_requests` are in use. `poll_wake` names the context when there is room.
    Full,
    /// It covers nothing, yet is no flush.
    Empty,
    /// It goes beyond the end.
    BeyondEnd {
        /// What was asked.
        extent: Extent,
        /// The device's size in sectors.
        capacity: u64,
    },
    /// It is not whole blocks.
    Unaligned {
        /// What was asked.
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
                write!(f, "{extent:?} is not whole blocks of {} bytes", u64::from(*block) * Sector::SIZE)
            }
            Self::Unsupported(op) => write!(f, "this device cannot {}", op.name()),
        }
    }
}

impl core::error::Error for Refused {}
