//! Dispatch: the next request gets a tag and goes to the device (queue.2, queue.5, queue.7).

use super::{Dispatch, Queue, Request, Segment, State};
use crate::group::ContextId;
use crate::sched::{Next, RequestId, Waiting};
use crate::trace::Action;
use crate::{Bytes, Flags, Instant, Op, Tag};

impl Queue {
    /// The next request that `context` should give to the device; `None` if there is none now.
    ///
    /// Ends the batch of bios submitted before (queue.3). Requests of other contexts whose turn comes are granted to them:
    /// see [`Queue::poll_wake`].
    pub fn poll_dispatch(&mut self, now: Instant, context: ContextId) -> Option<Dispatch> {
        if self.contexts.are_waiting_for_room() && self.contexts.has_asked(context) {
            self.next_in_line(); // queue.20
        }
        if self.ceilings.len > 0 {
            self.let_through(now); // queue.13
        }
        let flushes = self.flushes.may_be_next();
        if flushes {
            self.handle_flushes(now);
        }
        self.unplug(now);
        if let Some(id) = self.contexts.next_granted(context) {
            let request = &self.requests[id.0];
            let (State::InFlight(tag) | State::TimedOut(tag)) = request.state else {
                panic!("{id:?} was granted without a tag")
            };
            return Some(request.dispatch(tag));
        }
        match self.device.busy_until {
            Some(until) if now < until => return None, // queue.7
            _ => self.device.busy_until = None,
        }
        while self.device.tags.are_needed(self.requests.len(), flushes && self.flushes.are_ready())
            && let Some(tag) = self.device.tags.next(&self.settings)
        {
            let flush = if flushes { self.next_flush(now, context) } else { None };
            let id = match flush {
                Some(id) => {
                    self.scheduler.flush_began(now); // queue.5
                    id
                }
                None => match self.scheduler.dispatch(now) {
                    Next::Request(id) => id,
                    next @ (Next::Idle { .. } | Next::Empty) => {
                        self.groups.clock.is_idling = matches!(next, Next::Idle { .. });
                        self.device.tags.put_back(&self.settings, tag);
                        return None;
                    }
                },
            };
            let (owner, dispatch) = self.start(now, id, tag);
            if owner == context {
                return Some(dispatch);
            }
            self.contexts.grant(owner, id); // queue.4
        }
        None // queue.2
    }

    /// The memory of a request in flight, in sector order.
    ///
    /// # Panics
    /// If `tag` is not in flight.
    pub fn segments(&self, tag: Tag) -> impl Iterator<Item = Segment> + '_ {
        let request = &self.requests[self.device.tags.owner(tag).0];
        self.requests.segments_of(request).map(|node| {
            let token = self.requests.bios[node.bio].bio.token;
            Segment { token, offset: Bytes::of(node.offset), bytes: Bytes::of(node.sectors) }
        })
    }

    /// Gives a request a tag and puts it among those in flight.
    #[inline(always)]
    fn start(&mut self, now: Instant, id: RequestId, tag: Tag) -> (ContextId, Dispatch) {
        if self.requests.bios.len() == 1
            && self.requests[id.0].waiting.op == Op::Write
            && self.flushes.goes_ahead(&self.settings.flush, &mut self.requests, &self.groups, id)
        {
            self.scheduler.flush_began(now);
        }
        self.device.tags.give(tag, id);
        self.device.sent.push_back(self.requests.rows_mut(), id.0);
        let request = &mut self.requests[id.0];
        self.trace.note(&self.groups, now, Action::Dispatched, &request.waiting);
        assert!(request.state == State::Waiting, "{id:?} was dispatched twice");
        request.state = State::InFlight(tag);
        request.dispatched = now;
        request.generation = self.scheduler.generation;
        request.stamp = self.groups.begins(now, &request.waiting);
        (request.context, request.dispatch(tag))
    }
}

impl Request {
    /// A request to the device.
    #[inline]
    fn dispatch(&self, tag: Tag) -> Dispatch {
        let Waiting { op, mut flags, extent, stream, .. } = self.waiting;
        if flags.contains(Flags::AHEAD) {
            flags = flags.without(Flags::AHEAD) | Flags::FUA; // sequence.6
        }
        Dispatch { tag, op, flags, extent, stream }
    }
}
