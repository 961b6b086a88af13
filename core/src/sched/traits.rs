//! The interface of a scheduler: six small traits, five of them empty until a scheduler needs them.

use super::{Next, RequestId, Served, Side, Waiting};
use crate::ceiling::Rates;
use crate::objective::Room;
use crate::record::{Record, Unreadable};
use crate::trace::Message;
pub use crate::tunable::Tune;
use crate::{Duration, Group, GroupId, Instant, Stream, StreamId};

/// The order in which waiting requests go to the device.
///
/// A scheduler says here what goes next; what else it knows of tenants, merges, flushes, knobs and counters, it says in
/// the other five, which are empty until it does.
pub trait Scheduler: Membership + Merge + Charge + Tune + Report + Send {
    /// Takes a request in.
    fn insert(&mut self, now: Instant, request: &Waiting);

    /// Says what goes next and takes it out.
    fn dispatch(&mut self, now: Instant) -> Next;

    /// Takes back, to be dispatched first, a request that the device could not take.
    ///
    /// The request was dispatched before and is not new: it is not charged again and does not get a new deadline. It is in
    /// the group of its stream: where that has moved meanwhile, the scheduler is told of a failure ([`Served::end`]) where it
    /// was charged, and of a new request where its stream is now, instead.
    fn requeue(&mut self, now: Instant, request: &Waiting);

    /// Takes out, for another scheduler, what goes next when nothing is held back; `None` if nothing waits.
    fn drain(&mut self, now: Instant) -> Option<RequestId> {
        match self.dispatch(now) {
            Next::Request(id) => Some(id),
            Next::Idle { .. } | Next::Empty => None,
        }
    }

    /// How many requests wait.
    fn len(&self) -> usize;

    /// Whether none waits.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A request that this scheduler dispatched ended. Requests that another one dispatched before a change of scheduler are not told.
    fn completed(&mut self, _now: Instant, _served: &Served) {}

    /// From now on the numbers of requests are below `capacity`, which is never less than before, and the device takes `depth` at once
    /// ([`Setup`](super::Setup)). Waiting requests and those in flight stay as they are.
    fn resize(&mut self, capacity: usize, depth: u16);

    /// The number of requests in the device that another scheduler has dispatched: after a change of scheduler, and whenever one of them
    /// ends.
    fn set_others(&mut self, _others: u32) {}

    /// From now on, this gateway's part of the requests that all gateways of a pool may have outstanding; a fraction is one request for
    /// part of the time. Only where [`Kind::shares_pools`](super::Kind::shares_pools).
    fn share_depth(&mut self, _now: Instant, _depth: f64) {}

    /// Tells the next scheduler of its kind, here or in another server, what it has learned of the device; nothing if it learns nothing.
    fn hand_on(&self, _into: &mut Record) {}

    /// Begins with the state of one of its kind, as that was [handed on](Scheduler::hand_on); before its first request.
    ///
    /// # Errors
    /// A part of it cannot be, and was left out.
    fn take_on(&mut self, _from: &mut Record) -> Result<(), Unreadable> {
        Ok(())
    }

    /// Tells the scheduler of another server what it knows of a group.
    fn hand_on_group(&self, _id: GroupId, _into: &mut Record) {}

    /// Begins with the state of a group from one of its kind, [handed on](Scheduler::hand_on_group) by another server.
    ///
    /// # Errors
    /// A part of it cannot be, and was left out.
    fn take_on_group(&mut self, _id: GroupId, _from: &mut Record) -> Result<(), Unreadable> {
        Ok(())
    }

    /// The earliest time at which `dispatch` could answer differently though nothing happened, if there is one.
    fn next_timeout(&self) -> Option<Instant> {
        None
    }
}

/// The sharers of the device: streams and groups, announced before they ask.
///
/// Groups are told in [`Setup::groups`](super::Setup::groups) and by [`Membership::set_group`], streams by
/// [`Membership::add_stream`]. A scheduler that does not tell tenants apart leaves all of it empty.
pub trait Membership {
    /// A stream may ask from now on; when a scheduler takes over, it is told of all streams there are.
    fn add_stream(&mut self, _id: StreamId, _stream: &Stream) {}

    /// A stream has gone; nothing of it waits or is in flight. Its number may come back as another stream's.
    fn remove_stream(&mut self, _id: StreamId) {}

    /// A stream is in another group now, or has another priority. Its waiting requests go along: from now on they are named with the new
    /// group and priority. Requests in flight end with the old ones in [`Served`].
    fn change_stream(&mut self, _now: Instant, _id: StreamId, _stream: &Stream) {}

    /// A group was added, or has another weight. Its parent is there, and never changes; it may have the greater number.
    ///
    /// A scheduler that takes over is made with the root alone and told of all other groups by this, before the streams.
    fn set_group(&mut self, _now: Instant, _id: GroupId, _group: &Group) {}

    /// A group's floor from now on: it gets at least these rates, as far as the disk can; [`Rates::NONE`]: it has none. A scheduler that
    /// takes over is told of it after the group. Only where [`Kind::has_floors`](super::Kind::has_floors).
    fn set_floor(&mut self, _now: Instant, _id: GroupId, _floor: &Rates) {}

    /// Whether a group is below its floor, and has requests that wait.
    fn is_below_floor(&self) -> bool {
        false
    }

    /// A ceiling holds a request of a stream in this group back, until it is inserted: that the stream has less than it might is due to that.
    fn limited(&mut self, _id: StreamId, _group: GroupId) {}

    /// A group's latency target: 99 of 100 reads and writes of it, and of groups below it, are to be answered in this time, as far as
    /// others can make room for it; `None`: it has none. A scheduler that takes over is told of it after the group. Only where
    /// [`Kind::keeps_latency`](super::Kind::keeps_latency).
    fn set_latency(&mut self, _now: Instant, _id: GroupId, _target: Option<Duration>) {}

    /// A read or write of a group with a [latency](Membership::set_latency), or below it, was answered so long after its client asked.
    fn answered(&mut self, _now: Instant, _id: GroupId, _latency: Duration) {}

    /// Whether others make room for the latency of a group.
    fn room(&self, _now: Instant, _id: GroupId) -> Room {
        Room::Enough
    }

    /// A group has gone: no stream and no group is in it, and nothing of it waits or is in flight. Its number may come
    /// back as another group's.
    fn remove_group(&mut self, _now: Instant, _id: GroupId) {}
}

/// Which waiting request a new one joins. A scheduler that keeps no order of positions leaves it empty.
pub trait Merge {
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
    /// Asked after a back merge, to close a gap; see [`Merge::absorbed`].
    fn neighbour_after(&self, _request: &Waiting) -> Option<RequestId> {
        None
    }

    /// `gone` became part of `kept`, which takes over the earlier deadline of the two; `gone` no longer waits.
    fn absorbed(&mut self, _kept: &Waiting, _gone: RequestId) {}
}

/// The charge of a tenant for time outside of requests: its part of a flush. A scheduler that has no shares leaves it empty.
pub trait Charge {
    /// A flush went to the device. It passes the scheduler by; but others may be served more slowly beside it.
    fn flush_began(&mut self, _now: Instant) {}

    /// A flush that [began](Charge::flush_began) has ended, or the device turned it back. `_charged` of its time is charged next
    /// ([`Charge::charge`]).
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
}

/// The messages of a scheduler about its decisions. A scheduler that counts nothing leaves it empty.
pub trait Report {
    /// Tells what it has counted since it was made, each by name (`queue_merges`), in any order; a name that is told twice
    /// counts with its sum.
    fn counters(&self, _tell: &mut dyn FnMut(&'static str, u64)) {}

    /// Whether to keep messages for [`Report::poll_message`].
    fn set_tracing(&mut self, _on: bool) {}

    /// The oldest message that was kept.
    fn poll_message(&mut self) -> Option<Message> {
        None
    }
}
