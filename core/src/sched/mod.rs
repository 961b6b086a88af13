//! The schedulers: who goes next.
//!
//! A scheduler holds requests that wait for the device and answers "what next". It never blocks, never reads a clock,
//! and allocates nothing once warm: its tables are sized for `capacity` requests when it is made.

pub mod bfq;
pub mod deadline;
pub mod none;

use alloc::boxed::Box;
use alloc::string::String;

use crate::tunable::{self, TunableInfo};
use crate::{Duration, Extent, Flags, GroupId, Instant, Op, Priority, StreamId};

/// A request's place in the queue's table: below the `capacity` that the scheduler was made with, unique from
/// insertion to completion.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId(pub u32);

/// What a scheduler is told of a request that waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waiting {
    /// Its name while it waits.
    pub id: RequestId,
    /// What it does; never [`Op::Flush`], for flushes do not pass through a scheduler.
    pub op: Op,
    /// How it wants to be treated.
    pub flags: Flags,
    /// Where on the disk.
    pub extent: Extent,
    /// Who asks.
    pub stream: StreamId,
    /// The group of the stream.
    pub group: GroupId,
    /// The priority of the stream.
    pub priority: Priority,
}

/// Which side of a waiting request a newcomer joins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The newcomer ends where the waiting request starts.
    Front,
    /// The newcomer starts where the waiting request ends.
    Back,
}

/// A scheduler's answer to "what next".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// This request; it no longer waits.
    Request(RequestId),
    /// Nothing until then: the device is being held idle for someone.
    Hold {
        /// When to ask again at the latest.
        until: Instant,
    },
    /// Nothing may go before the next insertion, completion or [`Scheduler::next_timeout`].
    Nothing,
}

/// What became of a request, for schedulers that learn from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Served {
    /// The request as it was dispatched.
    pub request: Waiting,
    /// When it went to the device.
    pub dispatched: Instant,
    /// Whether it succeeded.
    pub ok: bool,
}

/// The order in which waiting requests go to the device.
pub trait Scheduler: Send {
    /// Takes a request in.
    fn insert(&mut self, now: Instant, request: &Waiting);

    /// Says what goes next and takes it out.
    fn dispatch(&mut self, now: Instant) -> Next;

    /// Takes back, to be dispatched first, a request that the device could not take.
    ///
    /// The request was dispatched before and is not new: it is not charged again and does not get a new deadline.
    fn requeue(&mut self, now: Instant, request: &Waiting);

    /// Takes out, for another scheduler, what goes next when nothing is held back; `None` if nothing waits.
    fn drain(&mut self, now: Instant) -> Option<RequestId> {
        match self.dispatch(now) {
            Next::Request(id) => Some(id),
            Next::Hold { .. } | Next::Nothing => None,
        }
    }

    /// How many requests wait.
    fn len(&self) -> usize;

    /// Whether none waits.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A waiting request that `newcomer` touches, of the same direction and priority class, or `None`.
    ///
    /// The queue checks everything else that a merge needs (same operation, flags and context, limits).
    fn merge_candidate(&self, _newcomer: &Waiting) -> Option<(RequestId, Side)> {
        None
    }

    /// A waiting request grew at `side` and is now as given.
    fn grown(&mut self, _request: &Waiting, _side: Side) {}

    /// The waiting request directly after the given one (it starts where the given one ends), or `None`.
    ///
    /// Asked after a back merge, to close a gap; see [`Scheduler::absorbed`].
    fn neighbour_after(&self, _request: &Waiting) -> Option<RequestId> {
        None
    }

    /// `gone` became part of `kept`, which takes over the earlier deadline of the two; `gone` no longer waits.
    fn absorbed(&mut self, _kept: &Waiting, _gone: RequestId) {}

    /// A dispatched request ended.
    fn completed(&mut self, _now: Instant, _served: &Served) {}

    /// The earliest time at which `dispatch` could answer differently though nothing happened, if there is one.
    fn next_timeout(&self) -> Option<Instant> {
        None
    }

    /// Tells what it has counted since it was made, each by name (`queue_merges`), in any order; a name that is told twice
    /// counts with its sum.
    fn counters(&self, _tell: &mut dyn FnMut(&'static str, u64)) {}

    /// The tunables and their present values.
    fn tunables(&self) -> &'static [TunableInfo] {
        &[]
    }

    /// The present value of a tunable, as text that [`Scheduler::set`] takes.
    fn get(&self, _name: &str) -> Option<String> {
        None
    }

    /// Sets a tunable.
    ///
    /// # Errors
    /// There is no such tunable here, or the value is malformed or out of range.
    fn set(&mut self, name: &str, _value: &str) -> Result<(), tunable::Error> {
        Err(tunable::Error::unknown(name, self.tunables()))
    }
}

/// Which scheduler.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// First come, first served.
    None,
    /// Sector order with deadlines.
    MqDeadline,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::None, Self::MqDeadline];

    /// The name, as in the kernel's `queue/scheduler`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::MqDeadline => "mq-deadline",
        }
    }

    /// The one called `name`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether all contexts of a disk must share one instance.
    ///
    /// `none` decides nothing between contexts, so each has its own and no lock is contended.
    #[must_use]
    pub const fn is_shared(self) -> bool {
        !matches!(self, Self::None)
    }

    /// What can be turned.
    #[must_use]
    pub fn tunables(self) -> &'static [TunableInfo] {
        match self {
            Self::None => &[],
            Self::MqDeadline => deadline::Settings::INFO,
        }
    }

    /// A new instance that can hold `capacity` requests, with default settings.
    #[must_use]
    pub fn build(self, capacity: usize) -> Box<dyn Scheduler> {
        match self {
            Self::None => Box::new(none::None::new(capacity)),
            Self::MqDeadline => Box::new(deadline::Deadline::new(capacity, deadline::Settings::default())),
        }
    }
}

/// How long a device that said "busy" is left alone when nothing of ours is in flight: the kernel's value.
pub const BUSY_DELAY: Duration = crate::time::ms(3);
