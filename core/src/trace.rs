//! Events of requests, one at a time.
//!
//! Events are values: the queue keeps the latest ones while tracing is on, and the reader of the trace takes them out.
//! The letters are blktrace's, so that its tools can be fed.

use alloc::collections::VecDeque;
use core::fmt;

use crate::learn::idling_trial::Finding;
use crate::request::named;
use crate::{ContextId, Duration, Extent, GroupId, Instant, Op, StreamId};

/// An event of a bio or request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// A bio was submitted (`Q`).
    Queued,
    /// A bio was cut to fit the device (`X`).
    Split,
    /// A bio joined the end of a request (`M`).
    BackMerged,
    /// A bio joined the start of a request (`F`).
    FrontMerged,
    /// A bio became a request (`G`).
    Got,
    /// No request was free (`S`).
    Slept,
    /// A request was given to the scheduler (`I`).
    Inserted,
    /// A request went to the device (`D`).
    Dispatched,
    /// A request came back because the device was busy (`R`).
    Requeued,
    /// A request ended (`C`).
    Completed,
    /// A request took longer than allowed (`T`).
    TimedOut,
}

/// Something that happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceEvent {
    /// When.
    pub at: Instant,
    /// The action.
    pub action: Action,
    /// To what kind of request.
    pub op: Op,
    /// Where on the disk.
    pub extent: Extent,
    /// The stream that asked.
    pub stream: StreamId,
    /// The group of the stream.
    pub group: GroupId,
    /// The worker that the stream belongs to.
    pub context: ContextId,
}

/// Something that a scheduler did for reasons of its own; prints as the kernel's schedulers say it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    /// When.
    pub at: Instant,
    /// For which group.
    pub group: GroupId,
    /// For which stream, if for one.
    pub stream: Option<StreamId>,
    /// The note.
    pub note: Note,
}

/// The content of a [`Message`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Note {
    /// CFQ: a queue's turn with the device is over, and is paid for.
    SliceUsed {
        /// For how long it had the device.
        used: Duration,
        /// Requests that it sent.
        dispatched: u32,
        /// The charge of its group: milliseconds, or requests in IOPS mode.
        charge: u64,
        /// Whether that is IOPS mode.
        iops: bool,
        /// Sectors of those requests.
        sectors: u64,
    },
    /// CFQ: a request took over before the slice of another queue was over.
    Preempted,
    /// CFQ, BFQ: a stream asks through another one's queue from now on, for they read one run.
    Merged,
    /// CFQ, BFQ: a stream asks through a queue of its own again.
    Parted,
    /// CFQ, BFQ: with `slice_idle=auto`, a trial found what the device does when it is held idle, and when it is not.
    Compared(Finding),
    /// BFQ: a queue's turn with the device is over.
    Expired {
        /// Why.
        why: Expiry,
        /// Sectors that it sent.
        used: u64,
        /// Sectors that it might have sent.
        budget: u32,
        /// For how long it had the device.
        time: Duration,
    },
    /// BFQ: the device is held for a queue that has nothing to ask just now.
    Idling {
        /// For how long at most.
        longest: Duration,
        /// Whether others' requests are in the device meanwhile.
        busy: bool,
    },
    /// BFQ: the weight of a queue counts more from now on, for a person seems to wait at it.
    Raised {
        /// How many times it counts.
        times: u32,
    },
    /// BFQ: it counts as it is again.
    Lowered,
}

named! {
    /// Why a turn was over, by the kernel's names.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Expiry {
        /// The queue had nothing to ask for as long as the device was held for it.
        TooIdle = "too_idle",
        /// The queue had nothing to ask, and was not waited for.
        NoMoreRequests = "no_more_requests",
        /// The budget did not suffice for the next request.
        BudgetExhausted = "budget_exhausted",
        /// The longest time of a turn had passed.
        BudgetTimeout = "budget_timeout",
        /// Another queue goes first.
        Preempted = "preempted",
    }
}

impl Note {
    /// A length of time in the kernel's ticks of a millisecond, begun ones counting.
    pub(crate) const fn millis(time: Duration) -> u64 {
        time.as_nanos().div_ceil(1_000_000)
    }
}

/// As the kernel's schedulers say it in blktrace.
impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::SliceUsed { used, dispatched, charge, iops, sectors } => {
                let (used, iops) = (Self::millis(used), u8::from(iops));
                write!(f, "sl_used={used} disp={dispatched} charge={charge} iops={iops} sect={sectors}")
            }
            Self::Preempted => f.write_str("preempt"),
            Self::Merged => f.write_str("scheduling queue merge"),
            Self::Parted => f.write_str("splitting queue"),
            Self::Compared(Finding { from, to, idle, parallel, .. }) => {
                write!(f, "slice_idle auto: {from} -> {to}, {idle} KiB/s idling, {parallel} KiB/s without")
            }
            Self::Expired { why, used, budget, time } => {
                write!(f, "expire ({}) used={used} budget={budget} ms={}", why.name(), Self::millis(time))
            }
            Self::Idling { longest, busy } => {
                write!(f, "arm idle: {} ms busy={}", Self::millis(longest), u8::from(busy))
            }
            Self::Raised { times } => write!(f, "wrais starting x{times}"),
            Self::Lowered => f.write_str("wrais ending"),
        }
    }
}

/// The entries of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Item {
    /// An event of a bio or request.
    Event(TraceEvent),
    /// A message of the scheduler.
    Message(Message),
}

impl Item {
    /// When it was.
    #[must_use]
    pub const fn at(&self) -> Instant {
        match self {
            Self::Event(event) => event.at,
            Self::Message(message) => message.at,
        }
    }

    /// The event that it is; `None`: it is a message.
    #[must_use]
    pub const fn event(self) -> Option<TraceEvent> {
        match self {
            Self::Event(event) => Some(event),
            Self::Message(_) => None,
        }
    }
}

/// The last events, up to a bound; none where it is 0.
///
/// Events stand in the order of their times. The scheduler's messages stand where they were fetched, some of them later.
#[derive(Default, Debug)]
pub struct Trace {
    items: VecDeque<Item>,
    bound: usize,
    lost: u64,
}

impl Trace {
    /// Keeps the latest `bound` items from now on; those that were kept are gone. 0 turns tracing off.
    pub(crate) fn keep(&mut self, bound: usize) {
        *self = Self { items: VecDeque::with_capacity(bound), bound, lost: 0 };
    }

    /// Whether it keeps any.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.bound > 0
    }

    /// Adds an item, where it keeps any; the oldest goes if there is no room.
    pub(crate) fn push(&mut self, item: Item) {
        if self.items.len() == self.bound {
            self.items.pop_front();
            self.lost += 1;
        }
        self.items.push_back(item);
    }

    /// Takes the oldest item out.
    pub fn pop(&mut self) -> Option<Item> {
        self.items.pop_front()
    }

    /// How many items nobody took in time, since this was asked last.
    pub fn take_lost(&mut self) -> u64 {
        core::mem::take(&mut self.lost)
    }
}
