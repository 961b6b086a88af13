//! What happened, one event at a time.
//!
//! Events are values: the queue keeps the latest ones while tracing is on, and whoever wants them takes them out.
//! The letters are blktrace's, so that its tools can be fed.

use alloc::collections::VecDeque;

use crate::{Extent, GroupId, Instant, Op, StreamId};

/// What happened to a bio or request.
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

impl Action {
    /// blktrace's letter.
    #[must_use]
    pub const fn letter(self) -> char {
        match self {
            Self::Queued => 'Q',
            Self::Split => 'X',
            Self::BackMerged => 'M',
            Self::FrontMerged => 'F',
            Self::Got => 'G',
            Self::Slept => 'S',
            Self::Inserted => 'I',
            Self::Dispatched => 'D',
            Self::Requeued => 'R',
            Self::Completed => 'C',
            Self::TimedOut => 'T',
        }
    }
}

/// Something that happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// When.
    pub at: Instant,
    /// What.
    pub action: Action,
    /// To what kind of request.
    pub op: Op,
    /// Where on the disk.
    pub extent: Extent,
    /// Whose it was.
    pub stream: StreamId,
    /// The group of the stream.
    pub group: GroupId,
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
    /// What.
    pub note: Note,
}

/// What a [`Message`] says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Note {}

/// The latest events, up to a bound.
#[derive(Debug)]
pub struct Trace {
    events: VecDeque<Event>,
    bound: usize,
    lost: u64,
}

impl Trace {
    /// Room for `bound` events.
    #[must_use]
    pub fn new(bound: usize) -> Self {
        Self { events: VecDeque::with_capacity(bound), bound, lost: 0 }
    }

    /// Adds an event; the oldest goes if there is no room.
    pub fn push(&mut self, event: Event) {
        if self.events.len() == self.bound {
            self.events.pop_front();
            self.lost += 1;
        }
        self.events.push_back(event);
    }

    /// Takes the oldest event out.
    pub fn pop(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// How many events nobody took in time.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.lost
    }
}
