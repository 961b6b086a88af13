//! Complete: requests end, are turned back or take too long; a bio ends with its last part, and what waited for room goes on
//! (queue.1, queue.6, queue.7).
//!
//! queue.17  To the scheduler a request that takes too long has failed when its time has run out, and its end is not told once more;
//!     a flush, and a write that is durable at once (sequence.6), is under way no more. The problem: `cfq` and `bfq` let one direction
//!     or stream go when another's requests have ended, and a lower class goes when no higher one is in the device. One request that
//!     never ended kept all others waiting, and of one flush that never ended nobody learned what others cost ([`pace`](crate::learn::pace)).

use super::flush_sequence::Stage;
use super::waits::divide;
use super::{BioState, Finished, NIL, Queue, Request, SegmentNode, State};
use crate::group::ContextId;
use crate::sched::{RequestId, Waiting};
use crate::trace::Action;
use crate::waits::Part;
use crate::{Bio, Duration, Errno, Flags, Instant, Op, Outcome, Tag};

impl Queue {
    /// The device has done the request that holds `tag`, or failed to.
    ///
    /// # Panics
    /// If `tag` is not in flight.
    pub fn handle_completion(&mut self, now: Instant, tag: Tag, outcome: Outcome) {
        let id = self.take_back(now, tag);
        self.device.busy_until = None; // queue.7
        let request = &self.requests[id.0];
        self.trace.note(&self.groups, now, Action::Completed, &request.waiting);
        let Request { waiting: Waiting { op, extent, .. }, first: mut segment, .. } = *request;
        let outcome = match op {
            Op::Read => outcome,
            Op::Flush => self.flush_ended(now, id, outcome),
            _ => {
                self.wrote(now, id, outcome);
                outcome
            }
        };
        while segment.bio != NIL {
            self.end_segment(now, segment.bio, outcome, id);
            segment = match segment.next {
                NIL => SegmentNode::NONE,
                next => self.requests.segments.remove(next),
            };
        }
        let request = self.requests.remove(id.0);
        if op != Op::Flush && matches!(request.state, State::InFlight(_)) {
            self.scheduler.tell_ended(now, &request, outcome == Outcome::Done); // queue.17
        }
        if self.promises.have_floors() {
            self.promises.seen.count(now, extent.bytes(), self.scheduler.is_below_floor()); // queue.16
        }
        if self.groups.are_leaving() {
            self.let_go(now); // queue.11
        }
        self.made_room(now);
    }

    /// The device could not take the request that holds `tag` now; it will be offered again (queue.7).
    ///
    /// # Panics
    /// If `tag` is not in flight.
    pub fn handle_busy(&mut self, now: Instant, tag: Tag) {
        let id = self.tags.owner(tag);
        self.turned_back(now, id);
        let request = &self.requests[id.0];
        if matches!(request.state, State::TimedOut(_)) && !request.is_coordinated_flush() {
            // Its bios are answered already, so nobody wants it done any more.
            return self.handle_completion(now, tag, Outcome::Failed(Errno::ETIMEDOUT));
        }
        let id = self.take_back(now, tag);
        let request = &mut self.requests[id.0];
        request.state = State::Waiting;
        let (waiting, generation) = (request.waiting, request.generation);
        match waiting.op {
            Op::Flush => {
                // Those that shared it may all have timed out and gone meanwhile.
                if let Some(state) = self.groups.streams.get(waiting.stream.0 as usize) {
                    request.follow(&state.stream);
                }
                self.flushes.again.push_front(id);
            }
            _ if self.requeue_elsewhere(now, id) => {} // queue.9
            _ if generation == self.scheduler.generation() => self.scheduler.requeue(now, &waiting),
            _ => {
                // The present scheduler never dispatched it.
                self.scheduler.other_ended();
                self.scheduler.insert(now, &waiting);
            }
        }
        if self.groups.are_leaving() {
            self.let_go(now); // queue.11
        }
        self.device.busy_until = Some(Instant::MAX);
        self.device.ask_again(now);
        self.trace.note(&self.groups, now, Action::Requeued, &waiting);
    }

    /// Where a request whose stream has moved since it was dispatched goes when the device turns it back (queue.9); whether that
    /// is so.
    pub(super) fn requeue_elsewhere(&mut self, now: Instant, id: RequestId) -> bool {
        let request = &mut self.requests[id.0];
        let stream = self.groups.stream(request.waiting.stream).stream;
        if (request.waiting.group, request.waiting.priority) == (stream.group, stream.priority) {
            return false;
        }
        let before = *request;
        request.follow(&stream);
        let waiting = request.waiting;
        self.scheduler.tell_ended(now, &before, false);
        self.scheduler.insert(now, &waiting);
        true
    }

    /// The caller did not run for so long until `now`, and has not heard what devices have answered meanwhile: no request is late that became
    /// so in that time, nor in as much time again, at most `io_timeout` (queue.6). A caller that stands now and then puts nothing off for ever.
    pub fn handle_stall(&mut self, now: Instant, for_so_long: Duration) {
        self.device.patience.extend(now, for_so_long);
    }

    /// It is `now`: whatever was to happen by then happens.
    pub fn handle_timeout(&mut self, now: Instant) {
        let mut next = self.device.sent.front().unwrap_or(NIL);
        while next != NIL {
            let request = &mut self.requests[next];
            if now < self.device.patience.late_at(request.dispatched) {
                break;
            }
            let id = next;
            next = request.links.next();
            if let State::InFlight(tag) = request.state {
                let before = *request;
                request.state = State::TimedOut(tag);
                let Waiting { op, flags, .. } = before.waiting;
                let mut segment = (before.first.bio != NIL).then_some(before.first);
                self.device.sent.remove(self.requests.rows_mut(), id);
                self.trace.note(&self.groups, now, Action::TimedOut, &before.waiting);
                while let Some(SegmentNode { bio, next, .. }) = segment {
                    segment = self.requests.segments.get(next).copied();
                    self.time_out(now, bio);
                }
                if op == Op::Flush || flags.contains(Flags::AHEAD) {
                    self.scheduler.tell_flush_ended(now, &before, Duration::ZERO);
                }
                if op != Op::Flush {
                    self.scheduler.tell_ended(now, &before, false); // queue.17
                }
            }
        }
        self.time_out_flushes(now);
        self.device.ask_again(now);
        self.let_through(now); // queue.13
    }

    /// Takes the tag from a request in flight and the request from their list.
    #[inline(always)]
    pub(super) fn take_back(&mut self, now: Instant, tag: Tag) -> RequestId {
        let id = self.tags.take_back(&self.settings, tag);
        let request = &self.requests[id.0];
        self.groups.ends(now, &request.waiting);
        if let State::InFlight(_) = request.state {
            let links = request.links;
            self.device.sent.unlink(self.requests.rows_mut(), links);
        }
        id
    }

    /// The next news of a bio of `context`.
    pub fn poll_finished(&mut self, context: ContextId) -> Option<Finished> {
        self.contexts.next_finished(context)
    }

    /// A context that now has something to fetch or room to submit. The one that runs fetches anyway; if it was refused in this
    /// round, and is named here, it is to submit once more, for nothing else may ever happen.
    pub fn poll_wake(&mut self) -> Option<ContextId> {
        self.contexts.next_woken()
    }

    /// A part of a bio has ended, with a request that has just left the device.
    #[inline(always)]
    fn end_segment(&mut self, now: Instant, number: u32, outcome: Outcome, id: RequestId) {
        let row = &mut self.requests.bios[number];
        if outcome != Outcome::Done {
            row.outcome = row.outcome.and(outcome);
        }
        row.remaining -= 1;
        if row.remaining > 0 {
            return;
        }
        let Bio { op, stream, .. } = row.bio;
        let state = &mut self.groups.streams[stream.0 as usize];
        // The time of one that has timed out was counted when it was told.
        if !row.timed_out {
            divide(state.stats.times_mut(op), &self.groups.clock, now, row, &self.requests.rows[id.0]);
            if row.stage == (Stage::Data { durable: true }) && row.outcome == Outcome::Done {
                (row.stage, row.since) = (Stage::Postflush, now);
                return self.ask_flush(now, number);
            }
        }
        let (context, news) = (row.context, state.ended(now, row));
        self.promises.answered(now, row, &self.groups, &mut self.scheduler);
        self.requests.bios.free(number);
        self.contexts.tell(context, news);
    }

    pub(super) fn end_bio(&mut self, now: Instant, number: u32) {
        let row = self.requests.bios.remove(number);
        self.promises.answered(now, &row, &self.groups, &mut self.scheduler);
        let news = self.groups.stream_mut(row.bio.stream).ended(now, &row);
        self.contexts.tell(row.context, news);
    }

    pub(super) fn time_out(&mut self, now: Instant, number: u32) {
        let bio = &mut self.requests.bios[number];
        self.promises.answered(now, bio, &self.groups, &mut self.scheduler);
        if core::mem::replace(&mut bio.timed_out, true) {
            return; // another part of it was overdue already
        }
        let part = if matches!(bio.stage, Stage::Data { .. }) { Part::Device } else { Part::Flush };
        self.groups.spent(now, bio, part);
        let BioState { bio: Bio { op, extent, stream, token, .. }, context, asked, .. } = *bio;
        let (stats, outcome) = (&mut self.groups.stream_mut(stream).stats, Outcome::Failed(Errno::ETIMEDOUT));
        stats.ended(op, extent.bytes(), outcome, now.since(asked));
        self.contexts.tell(context, Finished::TimedOut(token));
    }

    /// A request is free again: the rest of a bio goes on, and contexts that were refused hear of it.
    #[inline]
    pub(super) fn made_room(&mut self, now: Instant) {
        if self.intake.parked.is_empty() {
            self.contexts.feed();
        } else {
            self.go_on(now);
        }
    }

    /// What had no room, or had to wait for a flush, goes on as far as there is room now.
    #[cold]
    fn go_on(&mut self, now: Instant) {
        while self.requests.have_room(&self.settings)
            && let Some((number, left)) = self.intake.parked.pop_front()
        {
            let done = self.requests.bios[number].bio.extent.sectors - left.extent.sectors;
            self.cut(now, left, number, done);
        }
        if self.intake.parked.is_empty() {
            self.contexts.feed();
        }
    }
}
