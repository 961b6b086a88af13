//! Requests in flight: each holds a tag, and they are in a list by time of dispatch (Q2, Q6).

use super::{Dispatch, NIL, Queue, Step};
use crate::group::ContextId;
use crate::sched::{RequestId, Waiting};
use crate::trace::Action;
use crate::{Instant, Op, Tag};

impl Queue {
    /// Gives a request a tag and puts it among those in flight.
    pub(super) fn start(&mut self, now: Instant, id: RequestId, tag: Tag) -> ContextId {
        self.in_flight += 1;
        self.by_tag[usize::from(tag.0)] = id;
        self.dispatched.push_back(self.requests.rows_mut(), id.0);
        let request = &mut self.requests[id.0];
        assert!(request.step == Step::Waiting, "{id:?} was dispatched twice");
        request.step = Step::InFlight(tag);
        request.dispatched = now;
        request.generation = self.generation;
        let Waiting { op, extent, stream, group, .. } = request.waiting;
        let context = request.context;
        if op == Op::Flush {
            self.scheduler.flush_began(now);
        }
        self.note(now, Action::Dispatched, op, extent, stream, group);
        context
    }

    pub(super) fn dispatch_of(&self, id: RequestId) -> Dispatch {
        let request = &self.requests[id.0];
        let (Step::InFlight(tag) | Step::TimedOut(tag)) = request.step else {
            panic!("{id:?} was granted without a tag")
        };
        let Waiting { op, flags, extent, stream, .. } = request.waiting;
        Dispatch { tag, op, flags, extent, stream }
    }

    /// Whether a request waits at all: who has none does not ask for a tag.
    #[inline]
    pub(super) fn has_work(&mut self) -> bool {
        let work = self.requests.len() > usize::from(self.in_flight) || self.flush_is_ready();
        self.lacks_tag &= work;
        work
    }

    /// A tag for the next request, or `None` while there is none (Q2).
    #[inline]
    pub(super) fn next_tag(&mut self) -> Option<Tag> {
        if let Some(tag) = self.spare.pop() {
            return Some(tag);
        }
        let tag = match &self.settings.tags {
            Some(shared) if !shared.users.hold(shared.user, self.tags.depth()) => None,
            Some(shared) => {
                let tag = self.tags.get(&mut self.hint);
                if tag.is_none() {
                    shared.users.release(shared.user);
                }
                tag
            }
            None => self.tags.get(&mut self.hint),
        };
        self.lacks_tag = tag.is_none();
        tag
    }

    /// A tag is free again: it is kept for the next request, warm as it is, unless others could use it meanwhile.
    #[inline]
    pub(super) fn put_back(&mut self, tag: Tag) {
        match &self.settings.tags {
            None => self.spare.push(tag),
            Some(shared) => {
                self.tags.put_now(tag);
                shared.users.release(shared.user);
                self.hint.warm(tag);
            }
        }
        self.lacks_tag = false;
    }

    /// Whether one of our requests has this tag.
    pub(super) fn is_mine(&self, tag: Tag) -> bool {
        self.by_tag.get(usize::from(tag.0)).is_some_and(|id| id.0 != NIL)
    }

    /// Takes the tag from a request in flight and the request from their list.
    pub(super) fn take_back(&mut self, tag: Tag) -> RequestId {
        assert!(self.is_mine(tag), "tag {} is not in flight", tag.0);
        let id = core::mem::replace(&mut self.by_tag[usize::from(tag.0)], RequestId(NIL));
        self.in_flight -= 1;
        self.put_back(tag);
        if let Step::InFlight(_) = self.requests[id.0].step {
            self.dispatched.remove(self.requests.rows_mut(), id.0);
        }
        id
    }
}
