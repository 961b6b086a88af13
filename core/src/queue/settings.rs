//! The settings of a queue.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use crate::flush::{self, SharedFlush};
use crate::group::Group;
use crate::model::Character;
use crate::sched;
use crate::tags::{Bitmap, Users};
use crate::time::secs;
use crate::{Duration, Limits, Sector};

/// The settings of a [`Queue`](super::Queue).
#[derive(Clone, Debug)]
pub struct Settings {
    /// The scheduler.
    pub scheduler: sched::Kind,
    /// The device's limits.
    pub limits: Limits,
    /// Requests in flight.
    pub depth: u16,
    /// The tags of a device that several queues share; `None`: `depth` tags of its own.
    pub tags: Option<SharedTags>,
    /// Requests that wait or are in flight; more is answered [`Refused::Full`](super::Refused::Full).
    pub nr_requests: u32,
    /// How many contexts use the queue; at most 64.
    pub contexts: u16,
    /// The weight tree, the root first.
    pub groups: Vec<Group>,
    /// How long a request may be in the device before its bios fail.
    pub io_timeout: Duration,
    /// Whether neighbours are left apart.
    pub nomerges: bool,
    /// The device's character, as it declares it.
    pub character: Character,
    /// The backings of the data, by rising start; the first starts at 0. Flushes are shared within each.
    pub backings: Vec<Backing>,
    /// How flushes are treated.
    pub flush: flush::Settings,
}

impl Settings {
    /// Requests in flight, by default. Chosen: what the kernel's loop device has (`hw_queue_depth`).
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
            backings: vec![Backing::default()],
            flush: flush::Settings::default(),
        }
    }

    /// Rows of the table of requests: those of bios, and a flush for each backing.
    pub(super) fn rows(&self) -> usize {
        self.nr_requests as usize + self.backings.len()
    }

    /// Rows of the tables of bios and of their parts. Merging lets requests hold several; this many on average keeps the tables
    /// small.
    pub(super) const fn segment_rows(&self) -> usize {
        self.nr_requests as usize * 4
    }

    /// The setup of its scheduler.
    #[must_use]
    pub fn setup(&self) -> sched::Setup<'_> {
        sched::Setup { capacity: self.rows(), depth: self.depth, groups: &self.groups, character: self.character }
    }
}

/// A backing of a part of the disk's data.
#[derive(Clone, Debug)]
pub struct Backing {
    /// Where on the disk it starts.
    pub start: Sector,
    /// Whether what was written to it can be lost until it is flushed. If not, no flush is sent.
    pub volatile_cache: bool,
    /// Whether a write with FUA is durable when it ends. If not, it is followed by a flush.
    pub fua: bool,
    /// The state of its flushes, where other queues flush it too; `None`: only this one does. Its own settings hold.
    pub flush: Option<Arc<dyn SharedFlush>>,
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
