//! Complete: requests end, are turned back or take too long; a bio ends with its last part, and bios that wait for room go on
//! (queue.1, queue.6, queue.7).
//!
//! queue.17  To the scheduler a request that takes too long has failed when its time has run out, and its end is not told once more; a flush,
//!     and a write that is durable at once (sequence.6), is under way no more. The problem: `cfq` and `bfq` let one direction or stream go
//!     when another's requests have ended, and a lower class goes when no higher one is in the device. One request that never ended kept all
//!     others waiting, and a flush that never ended kept the scheduler from learning the cost of other flushes
//!     ([`pace`](crate::learn::pace)).
//! queue.19  A read that memory above the disk answers (the page cache) is no work of the disk. The problem: a hundred sandboxes read one base. Nine
//!     of ten reads cost a copy, and a scheduler that charges them as disk time, or learns from them, takes the disk for ten times as fast, and the
//!     tenant whose reads miss for one that has had more than its share. A read that memory has answered before it is submitted ([`Flags::CACHED`])
//!     passes the ceilings, and then ends: it takes no tag, and no scheduler hears of it. A read that memory did not have then ([`Flags::MISSED`])
//!     and has when it goes to the device, because another read of the same data came first, teaches a scheduler nothing ([`Queue::handle_cached`]),
//!     and `fair` pays it back. A request of several parts counts as cached if all of it was. Both are counted
//!     ([`Stats::cache`](crate::stats::Stats::cache)).

use super::flush_sequence::Stage;
use super::waits::divide;
use super::{BioState, Finished, NIL, Queue, Request, SegmentNode, State};
use crate::group::ContextId;
use crate::sched::{RequestEnd, RequestId, Waiting};
use crate::trace::Action;
use crate::waits::Part;
use crate::{Bio, Duration, Errno, Flags, Instant, Op, Outcome, Tag};

impl Queue {
    /// The device has done the request that holds `tag`, or failed to.
    ///
    /// # Panics
    /// If `tag` is not in flight.
    pub fn handle_completion(&mut self, now: Instant, tag: Tag, outcome: Outcome) {
        self.complete(now, tag, outcome, false);
    }

    #[inline(always)]
    fn complete(&mut self, now: Instant, tag: Tag, outcome: Outcome, cached: bool) {
        let id = self.device.take_back(&self.settings, &mut self.requests, tag);
        self.device.busy_until = None; // queue.7
        let request = &self.requests[id.0];
        self.groups.ends(now, &request.waiting);
        self.trace.note(&self.groups, now, Action::Completed, &request.waiting);
        if self.trace.is_on() {
            self.hear();
        }
        let request = &self.requests[id.0];
        let Request { waiting: Waiting { op, extent, .. }, first: mut segment, .. } = *request;
        let outcome = if op == Op::Read { outcome } else { self.settle(now, id, outcome) };
        while segment.bio != NIL {
            self.end_segment(now, segment.bio, outcome, cached, id);
            segment = match segment.next {
                NIL => SegmentNode::NONE,
                next => self.requests.segments.remove(next),
            };
        }
        self.requests.free(id.0);
        let request = &self.requests[id.0];
        if op != Op::Flush && matches!(request.state, State::InFlight(_)) {
            let end = match outcome {
                Outcome::Done if cached => RequestEnd::Cached, // queue.19
                Outcome::Done => RequestEnd::Done,
                Outcome::Failed(_) => RequestEnd::Failed,
            };
            self.scheduler.tell_ended(now, request, end); // queue.17
        }
        if self.promises.have_floors() && !cached {
            self.promises.seen.count(now, extent.bytes(), self.scheduler.is_below_floor()); // queue.16
        }
        if self.groups.are_leaving() {
            self.let_go(now); // queue.11
        }
        self.made_room(now);
    }

    /// As [`Queue::handle_completion`] of a read that succeeded: memory above the disk has answered all of it (queue.19).
    ///
    /// # Panics
    /// If `tag` is not in flight.
    pub fn handle_cached(&mut self, now: Instant, tag: Tag) {
        self.complete(now, tag, Outcome::Done, true);
    }

    /// A read that memory had answered before it was submitted ends (queue.19).
    #[inline(never)]
    pub(super) fn was_cached(&mut self, now: Instant, row: &BioState) {
        if self.trace.is_on() {
            self.trace.note(&self.groups, now, Action::Completed, &self.groups.waiting(&row.bio));
        }
        let news = self.groups.stream_mut(row.bio.stream).ended(now, row);
        self.promises.answered(now, row, &self.groups, &mut self.scheduler);
        self.contexts.tell(row.context, news);
    }

    /// The device could not take the request that holds `tag` now; it will be offered again (queue.7).
    ///
    /// # Panics
    /// If `tag` is not in flight.
    pub fn handle_busy(&mut self, now: Instant, tag: Tag) {
        let id = self.device.tags.owner(tag);
        self.turned_back(now, id);
        let request = &self.requests[id.0];
        if matches!(request.state, State::TimedOut(_)) && !request.is_coordinated_flush() {
            // Its bios are answered already, so nobody wants it done any more.
            return self.handle_completion(now, tag, Outcome::Failed(Errno::ETIMEDOUT));
        }
        let id = self.device.take_back(&self.settings, &mut self.requests, tag);
        let request = &mut self.requests[id.0];
        self.groups.ends(now, &request.waiting);
        request.state = State::Waiting;
        let before = *request;
        match before.waiting.op {
            Op::Flush => {
                // Those that shared it may all have timed out and gone meanwhile.
                if let Some(state) = self.groups.streams.get(before.waiting.stream.0 as usize) {
                    request.follow(&state.stream);
                }
                self.flushes.again.push_front(id);
            }
            _ => {
                request.follow(&self.groups.stream(before.waiting.stream).stream);
                let waiting = request.waiting;
                if waiting == before.waiting && before.generation == self.scheduler.generation {
                    self.scheduler.requeue(now, &waiting);
                } else {
                    // It is new to the present scheduler, or to the group that its stream is in now (queue.9).
                    self.scheduler.tell_ended(now, &before, RequestEnd::Failed);
                    self.scheduler.insert(now, &waiting);
                }
            }
        }
        if self.groups.are_leaving() {
            self.let_go(now); // queue.11
        }
        self.device.busy_until = Some(Instant::MAX);
        self.device.ask_again(now);
        self.trace.note(&self.groups, now, Action::Requeued, &before.waiting);
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
            next = request.links.next;
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
                    self.scheduler.tell_ended(now, &before, RequestEnd::Failed); // queue.17
                }
            }
        }
        self.handle_flushes(now);
        self.flushes.give_up(now, self.device.patience); // sequence.3
        self.tell_flushed(now, true);
        self.device.ask_again(now);
        self.let_through(now); // queue.13
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
    fn end_segment(&mut self, now: Instant, number: u32, outcome: Outcome, cached: bool, id: RequestId) {
        let row = &mut self.requests.bios[number];
        if outcome != Outcome::Done {
            row.outcome = row.outcome.and(outcome);
        }
        row.missed |= !cached;
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

    pub(super) fn time_out(&mut self, now: Instant, number: u32) {
        let bio = &mut self.requests.bios[number];
        self.promises.answered(now, bio, &self.groups, &mut self.scheduler);
        if core::mem::replace(&mut bio.timed_out, true) {
            return; // another part of it was overdue already
        }
        let part = if matches!(bio.stage, Stage::Data { .. }) { Part::Device } else { Part::Flush };
        self.groups.spent(now, bio, part);
        let BioState { bio: Bio { op, extent, stream, token, .. }, context, arrived, .. } = *bio;
        let (stats, outcome) = (&mut self.groups.stream_mut(stream).stats, Outcome::Failed(Errno::ETIMEDOUT));
        stats.ended(op, extent.bytes(), outcome, now.since(arrived));
        self.contexts.tell(context, Finished::TimedOut(token));
    }

    /// A request is free again: what had no room, or had to wait for a flush, goes on as far as there is room now, and contexts that
    /// were refused hear of it.
    #[inline(always)]
    pub(super) fn made_room(&mut self, now: Instant) {
        while let Some((number, left)) = self.intake.parked.front().copied() {
            if !self.requests.have_room(&self.settings, 0) {
                return;
            }
            self.intake.parked.pop_front();
            let done = self.requests.bios[number].bio.extent.sectors - left.extent.sectors;
            self.cut(now, left, number, done);
        }
        self.contexts.feed();
    }
}
