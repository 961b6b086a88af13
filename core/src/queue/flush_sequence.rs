//! The flush sequence of a bio: preflush, data, postflush; and how the queue drives the flushes of its backings.
//!
//! A client asks for durability in three ways: by a flush, by a write with FUA (durable when it ends), by a write with PREFLUSH
//! (all before it is durable first). A device may know FUA or not, and may have a volatile cache or not. So a bio passes up to
//! three steps:
//!
//! | bio | cache, no FUA in the device | cache, FUA | no cache |
//! |---|---|---|---|
//! | flush | flush | flush | ends at once |
//! | write, FUA | data, flush | data with FUA | data |
//! | write, PREFLUSH and FUA | flush, data, flush | flush, data with FUA | data |
//! | all else | data | data | data |
//!
//! A bio of the last row passes none of this file but one test of its flags.
//!
//! sequence.1  A bio that waits for a flush holds no request and no tag. The flush that the device is given is a request with no memory, in
//!             the context of a waiter, and has a row of the table of its own. So a full table of requests does not hold it up, and a
//!             scheduler only by sequence.5. No more than four times `nr_requests` bios of all kinds are taken in at a time. Flushes are
//!             shared within a backing, by the rules of [`flush`](crate::flush).
//! sequence.2  A write with PREFLUSH waits for a flush, then for its data, and with FUA for a flush again. A backing that makes
//!             single writes durable is left to do so; a discard or write of zeroes is always followed by a flush. A step that
//!             fails is the last. Where no cache is volatile only the data is left.
//! sequence.3  A flush is in the device as long as it takes. Its waiters are told after `io_timeout` that it took too long; waiters
//!             for the next one, or for a tag, when as much time has passed since they asked. The next flush starts when the device
//!             has answered.
//! sequence.4  The device time of a flush is charged in equal parts to the groups that shared it, and within a group to those of its
//!             streams that did. Time is charged once: from the later of the dispatch and the end of the last charge. All else passes
//!             through the scheduler, discards and writes of zeroes too, and is charged there like any request.
//! sequence.5  A flush that is asked for only by groups that have had more than their share waits until they have caught up, as a
//!             request of theirs would ([`Charge::is_ahead`](crate::sched::Charge::is_ahead)). When any other group asks for it, it
//!             goes, and they share it: no group waits for another's debt. It goes too once its first waiter has waited for a
//!             quarter of `io_timeout`, so that no debt makes it fail (sequence.3).
//! sequence.6  A stream that asks for a flush after each of its writes waits for the device twice for each. So its next write is
//!             made durable at once, and the flush after it finds nothing to do (flush.6): where the backing can make single writes
//!             durable, and when the write goes to the device no other bio is under way in this queue, and nothing is unflushed, and
//!             the last flush had no company.
//!             The device may do it by a flush, so a flush is under way meanwhile (flush.10), and its time is charged as one.

use super::settings::Backing;
use super::{BioState, NIL, Queue, Request, RequestId, SegmentNode};
use crate::group::ContextId;
use crate::sched::Waiting;
use crate::waits::Part;
use crate::{Bio, Duration, Extent, Flags, Instant, Limits, Op, Outcome};

/// How far a bio is (sequence.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// It waits for a flush, before its data; then for its data.
    Preflush { durable: bool },
    /// Its data; then a flush if it must be `durable` by one.
    Data { durable: bool },
    /// It waits for a flush, after its data or instead of any.
    Postflush,
}

/// How many times in a row a stream has written once and then flushed, until sequence.6 holds. Chosen: if the next write is no such
/// write, the flush that was for nothing is one in five.
const COMMITS: u8 = 4;

/// Whether a stream flushes after each of its writes (sequence.6).
#[derive(Clone, Copy, Default)]
pub(super) struct Habit {
    commits: u8,
    /// Writes since the last flush; two are many.
    writes: u8,
}

impl Habit {
    /// It flushes, or changes something.
    #[inline]
    pub(super) fn note(&mut self, op: Op) {
        if op == Op::Flush {
            if self.writes == 1 {
                self.commits = (self.commits + 1).min(COMMITS);
            }
            self.writes = 0;
            return;
        }
        self.writes = (self.writes + 1).min(2);
        if self.writes > 1 {
            self.commits = 0;
        }
    }

    /// Whether a flush will follow what it has written.
    pub(super) const fn is_followed(self) -> bool {
        self.commits == COMMITS && self.writes == 1
    }
}

impl Queue {
    // ---- on the way in ----

    /// A flush, or a bio that is to be durable, begins with its first step; it has the flags that its requests have (sequence.2).
    #[inline(never)]
    pub(super) fn begin(&mut self, now: Instant, number: u32) {
        let Bio { op, flags, extent, .. } = self.requests.bios[number].bio;
        let (stage, flags) = self.flushes.steps_of(op, flags, extent.start);
        let state = &mut self.requests.bios[number];
        (state.stage, state.bio.flags) = (stage, flags);
        match stage {
            Stage::Data { .. } => {
                let waiting = self.groups.waiting(&state.bio);
                self.cut(now, waiting, number, 0);
            }
            Stage::Preflush { .. } | Stage::Postflush => self.ask_flush(now, number), // queue.5
        }
    }

    pub(super) fn ask_flush(&mut self, now: Instant, number: u32) {
        let BioState { bio, context, .. } = &self.requests.bios[number];
        let waiting = self.groups.waiting(bio);
        let (context, at) = (*context, waiting.extent.start);
        if waiting.op == Op::Flush && !self.settings.flush.coordinate {
            let waiting = Waiting { extent: Extent::new(at, 0), ..waiting };
            let id = self.requests.add(&waiting, context, SegmentNode { bio: number, ..SegmentNode::NONE });
            return self.flushes.again.push_back(id);
        }
        self.flushes.ask(now, at, number, context, waiting.group);
    }

    // ---- to the device ----

    fn look(&mut self, now: Instant, index: usize) {
        let Self { settings, scheduler, device, .. } = self;
        let woken = self.flushes.look(now, index, &settings.flush, scheduler, device.patience);
        self.contexts.wake(woken.0);
        self.tell_flushed(now, false);
    }

    /// Tells bios that their flush has ended, or that it took too long.
    pub(super) fn tell_flushed(&mut self, now: Instant, is_late: bool) {
        let some = !self.flushes.ended.is_empty();
        while let Some((number, outcome)) = self.flushes.ended.pop_front() {
            if is_late {
                self.time_out(now, number);
            } else {
                let bio = &mut self.requests.bios[number];
                self.groups.spent(now, bio, Part::Flush);
                match (bio.stage, outcome) {
                    (Stage::Preflush { durable }, Outcome::Done) => {
                        bio.stage = Stage::Data { durable };
                        self.intake.parked.push_back((number, self.groups.waiting(&bio.bio)));
                        continue;
                    }
                    (Stage::Preflush { .. } | Stage::Postflush, _) => bio.outcome = bio.outcome.and(outcome),
                    (Stage::Data { .. }, _) => unreachable!("a bio whose data is under way waits for no flush"),
                }
            }
            let bio = self.requests.bios.remove(number);
            self.promises.answered(now, &bio, &self.groups, &mut self.scheduler);
            let news = self.groups.stream_mut(bio.bio.stream).ended(now, &bio);
            self.contexts.tell(bio.context, news);
        }
        if some {
            self.made_room(now);
        }
    }

    /// A flush for the device, if one is to go: in this context if a bio of it waits for the flush (sequence.1).
    #[inline(never)]
    pub(super) fn next_flush(&mut self, now: Instant, context: ContextId) -> Option<RequestId> {
        if let Some(id) = self.flushes.again.pop_front() {
            return Some(id);
        }
        for step in 0..self.flushes.backings() {
            let Some(index) = self.flushes.take_ready(step) else { continue };
            match self.flushes.start(now, index, context, &self.requests.bios, self.device.patience) {
                Ok((start, bio)) => {
                    let (op, flags, extent) = (Op::Flush, Flags::NONE, Extent::new(start, 0));
                    let BioState { bio, context, .. } = self.requests.bios[bio];
                    let waiting = Waiting { op, flags, extent, ..self.groups.waiting(&bio) };
                    self.requests.of_flushes += 1;
                    return Some(self.requests.add(&waiting, context, SegmentNode::NONE));
                }
                Err(contexts) => {
                    self.contexts.wake(contexts.0);
                    self.look(now, index);
                }
            }
        }
        None
    }

    // ---- on the way out ----

    /// The device has turned back a request: if it was to be durable at once, it no longer is (sequence.6).
    pub(super) fn turned_back(&mut self, now: Instant, id: RequestId) {
        let request = self.requests[id.0];
        if request.waiting.op == Op::Flush {
            self.scheduler.tell_flush_ended(now, &request, Duration::ZERO);
        }
        if request.waiting.flags.contains(Flags::AHEAD) {
            self.end_ahead(now, id, None);
            self.requests[id.0].waiting.flags = request.waiting.flags.without(Flags::AHEAD);
        }
    }

    /// A write that was to be durable at once is in the device no more (sequence.4, sequence.6): how it ended, and whether no other
    /// write has since then; `None`: the device has turned it back.
    pub(super) fn end_ahead(&mut self, now: Instant, id: RequestId, ended: Option<(Outcome, bool)>) {
        let request = self.requests[id.0];
        let Waiting { stream, group, extent, .. } = request.waiting;
        let (time, outcome, alone) = match ended {
            Some((outcome, alone)) => (self.flushes.device_time(now, request.dispatched), outcome, alone),
            None => (Duration::ZERO, Outcome::Done, true),
        };
        self.scheduler.tell_flush_ended(now, &request, time);
        if self.settings.flush.charge && time > Duration::ZERO {
            self.scheduler.charge(now, stream, group, time);
        }
        let contexts = self.flushes.end_ahead(extent.start, outcome, alone);
        self.contexts.wake(contexts.0);
        self.look(now, self.flushes.backing_of(extent.start));
    }

    /// The device has answered a flush, or a command that changes data: its outcome for bios that have not been told.
    #[inline(never)] // a read passes it by, and is shorter for it
    pub(super) fn settle(&mut self, now: Instant, id: RequestId, outcome: Outcome) -> Outcome {
        let request = self.requests[id.0];
        let Waiting { op, flags, stream, group, extent, .. } = request.waiting;
        let (at, charge) = (extent.start, self.settings.flush.charge);
        if op != Op::Flush {
            let alone = self.flushes.wrote(at, flags, outcome);
            if flags.contains(Flags::AHEAD) {
                self.end_ahead(now, id, Some((outcome, alone)));
            }
            return outcome;
        }
        let time = self.flushes.device_time(now, request.dispatched);
        self.scheduler.tell_flush_ended(now, &request, time);
        if !request.is_coordinated_flush() {
            if charge {
                self.scheduler.charge(now, stream, group, time);
                let stats = &mut self.groups.stream_mut(stream).stats;
                stats.flushed = stats.flushed + time;
            }
            return self.flushes.end_alone(at, outcome);
        }
        self.requests.of_flushes -= 1;
        let contexts = self.flushes.end(now, at, outcome);
        self.contexts.wake(contexts.0);
        if charge {
            self.flushes.charge(now, at, time, &self.requests.bios, &mut self.groups, &mut self.scheduler);
        }
        self.look(now, self.flushes.backing_of(at));
        outcome
    }

    // ---- knobs ----

    /// Takes in the results of other queues that share a backing's flushes: for contexts that were woken and may not ask for a request
    /// ([`Queue::poll_dispatch`] does it too).
    pub fn handle_flushes(&mut self, now: Instant) {
        if self.flushes.are_awaited() {
            (0..self.flushes.backings()).for_each(|index| self.look(now, index));
        }
    }

    /// Adds a backing to the disk, whose limits are from now on these; works under load.
    ///
    /// # Panics
    /// If a backing starts there already.
    pub fn add_backing(&mut self, backing: &Backing, limits: Limits) {
        self.flushes.add(backing, &self.settings.flush);
        self.requests.grow_to(&self.settings, self.flushes.backings());
        self.scheduler.resize(self.requests.capacity(), self.settings.depth);
        self.set_limits(limits);
    }

    /// Changes the limits of the device: a backing has grown, or another one has come. Waiting requests keep their size.
    pub fn set_limits(&mut self, limits: Limits) {
        assert!(limits.block > 0 && limits.rw_max > 0 && limits.segments_max > 0);
        self.settings.limits = limits;
    }
}

impl Request {
    /// Whether it is a flush that several may share (sequence.1).
    #[inline]
    pub(super) fn is_coordinated_flush(&self) -> bool {
        self.waiting.op == Op::Flush && self.first.bio == NIL
    }
}
