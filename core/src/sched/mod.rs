//! The schedulers: who goes next.
//!
//! A scheduler holds requests that wait for the device and answers "what next". It never blocks, never reads a clock,
//! and allocates nothing once warm: its tables are sized for `capacity` requests when it is made.

pub mod bfq;
pub mod cfq;
pub mod deadline;
pub mod fair;
pub mod fair_queue;
pub mod habits;
pub mod idling_trial;
pub mod none;
pub mod pace;
pub mod queueing;
pub mod request_list;

use alloc::boxed::Box;
use alloc::string::String;

use crate::model::Character;
use crate::trace::Message;
use crate::tunable::{self, TunableInfo};
use crate::{Duration, Extent, Flags, Group, GroupId, Instant, Op, Priority, Stream, StreamId};

/// What a scheduler is made from.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// Requests that may wait or be in flight at once.
    pub capacity: usize,
    /// Requests that may be in the device at once.
    pub depth: u16,
    /// The weight tree, parents first; what changes later is told by [`Scheduler::set_group`].
    pub groups: &'a [Group],
    /// What the device says of itself: a first guess, for what is observed counts more.
    pub character: Character,
    /// Where all that is random comes from.
    pub seed: u64,
}

impl Setup<'_> {
    /// A device of which nothing is known, with no groups but the root, which is in no list: for those who only want to
    /// know what a scheduler is like.
    #[must_use]
    pub const fn new(capacity: usize) -> Self {
        let character = Character { rotational: false, volatile_cache: false };
        Self { capacity, depth: 1, groups: &[], character, seed: 0 }
    }
}

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
    Idle {
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
///
/// Who asks is told before they ask: groups in [`Setup::groups`] and by [`Scheduler::set_group`], streams by
/// [`Scheduler::add_stream`]. Schedulers that are blind to who asks leave those methods as they are.
pub trait Scheduler: Send {
    /// A stream may ask from now on; when a scheduler takes over, it is told of all streams there are.
    fn add_stream(&mut self, _id: StreamId, _stream: &Stream) {}

    /// A stream has gone; nothing of it waits or is in flight. Its number may come back as another stream's.
    fn remove_stream(&mut self, _id: StreamId) {}

    /// A stream is in another group now, or has another priority. What waits of it goes along: from now on all that is
    /// said of its waiting requests has the new group and priority. What is in flight ends with the old ones in
    /// [`Served`].
    fn change_stream(&mut self, _now: Instant, _id: StreamId, _stream: &Stream) {}

    /// A group was added, or has another weight. Its parent is there, and never changes; it may have the greater number.
    ///
    /// A scheduler that takes over is made with the root alone and told of all other groups by this, before the streams.
    fn set_group(&mut self, _now: Instant, _id: GroupId, _group: &Group) {}

    /// A group has gone: no stream and no group is in it, and nothing of it waits or is in flight. Its number may come
    /// back as another group's.
    fn remove_group(&mut self, _now: Instant, _id: GroupId) {}

    /// A flush went to the device. It passes the scheduler by; but others may be served more slowly beside it.
    fn flush_began(&mut self, _now: Instant) {}

    /// A flush that [began](Scheduler::flush_began) has ended, or the device turned it back. Of its time so much is
    /// charged next ([`Scheduler::charge`]).
    fn flush_ended(&mut self, _now: Instant, _charged: Duration) {}

    /// Charges device time that was spent for a stream outside of its requests: its part of a flush.
    ///
    /// Each scheduler charges it in its own unit. The group is the stream's when it asked; both still exist.
    fn charge(&mut self, _now: Instant, _stream: StreamId, _group: GroupId, _time: Duration) {}

    /// Whether a group has had more than its share, and others wait: a flush that only such groups ask for is held back until
    /// they have caught up, as a request of theirs is.
    ///
    /// Only while requests of others wait, or are in the device, so that something is to happen: it is asked again then.
    fn is_ahead(&mut self, _now: Instant, _group: GroupId) -> bool {
        false
    }

    /// Whether to keep messages for [`Scheduler::poll_message`].
    fn set_tracing(&mut self, _on: bool) {}

    /// The oldest message that was kept.
    fn poll_message(&mut self) -> Option<Message> {
        None
    }

    /// Takes a request in.
    fn insert(&mut self, now: Instant, request: &Waiting);

    /// Says what goes next and takes it out.
    fn dispatch(&mut self, now: Instant) -> Next;

    /// Takes back, to be dispatched first, a request that the device could not take.
    ///
    /// The request was dispatched before and is not new: it is not charged again and does not get a new deadline. It is in
    /// the group of its stream: where that has moved meanwhile, the scheduler is told of a failure ([`Served::ok`]) where it
    /// was charged, and of a new request where its stream is now, instead.
    fn requeue(&mut self, now: Instant, request: &Waiting);

    /// Takes out, for another scheduler, what goes next when nothing is held back; `None` if nothing waits.
    fn drain(&mut self, now: Instant) -> Option<RequestId> {
        match self.dispatch(now) {
            Next::Request(id) => Some(id),
            Next::Idle { .. } | Next::Nothing => None,
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

    /// A request that this scheduler dispatched ended. What another one dispatched before a change of scheduler is not
    /// told.
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
    /// Turns by time, groups by weight; or requests by weight.
    Cfq,
    /// Fair by weight, in sectors.
    Bfq,
    /// Fair by weight, in the disk's time.
    Fair,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::None, Self::MqDeadline, Self::Fair, Self::Bfq, Self::Cfq];

    /// The name, as in the kernel's `queue/scheduler`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::MqDeadline => "mq-deadline",
            Self::Cfq => "cfq",
            Self::Bfq => "bfq",
            Self::Fair => "fair",
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
    pub const fn is_per_disk(self) -> bool {
        !matches!(self, Self::None)
    }

    /// How many requests may wait or be in flight, unless somebody says otherwise.
    ///
    /// Two for each tag, as in the kernel. Where groups share by weight, more: who finds the table full waits outside,
    /// where no weight counts, and a group that has few requests inside cannot use its share.
    #[must_use]
    pub fn nr_requests(self, depth: u16) -> u32 {
        let twice = 2 * u32::from(depth);
        match self {
            Self::None | Self::MqDeadline => twice,
            Self::Bfq | Self::Cfq | Self::Fair => twice.max(4096),
        }
    }

    /// What can be turned.
    #[must_use]
    pub fn tunables(self) -> &'static [TunableInfo] {
        match self {
            Self::None => &[],
            Self::MqDeadline => deadline::Settings::INFO,
            Self::Cfq => cfq::Settings::INFO,
            Self::Bfq => bfq::Settings::INFO,
            Self::Fair => fair::Settings::INFO,
        }
    }

    /// A new instance with default settings.
    #[must_use]
    pub fn build(self, setup: &Setup<'_>) -> Box<dyn Scheduler> {
        match self {
            Self::None => Box::new(none::None::new(setup.capacity)),
            Self::MqDeadline => Box::new(deadline::Deadline::new(setup.capacity, deadline::Settings::default())),
            Self::Cfq => Box::new(cfq::Cfq::new(setup, cfq::Settings::default())),
            Self::Bfq => Box::new(bfq::Bfq::new(setup, bfq::Settings::default())),
            Self::Fair => Box::new(fair::Fair::new(setup, fair::Settings::default())),
        }
    }
}

/// How long a device that said "busy" is left alone when nothing of ours is in flight: the kernel's value.
pub const BUSY_DELAY: Duration = crate::time::ms(3);
