//! Submit: a bio is checked, taken in, and cut into requests.

use super::contexts::Seeker;
use super::flush_sequence::Stage;
use super::groups::share;
use super::{BioState, NIL, Queue, Refused, SegmentNode, Settings};
use crate::ceiling::HeldBio;
use crate::group::Stream;
use crate::sched::{RequestId, Waiting};
use crate::trace::Action;
use crate::waits::Part;
use crate::{Bio, Extent, Flags, Instant, Limits, Op, Outcome};

impl Queue {
    /// Asks for a bio to be done.
    ///
    /// # Errors
    /// [`Refused`], and nothing has changed.
    ///
    /// # Panics
    /// If the stream does not exist.
    pub fn submit(&mut self, now: Instant, bio: Bio) -> Result<(), Refused> {
        self.submit_late(now, now, Part::Room, bio)
    }

    /// As [`Queue::submit`], of a bio for which its client asked earlier, and which has waited since for `part`.
    ///
    /// # Errors
    /// As [`Queue::submit`].
    pub fn submit_late(&mut self, now: Instant, arrived: Instant, part: Part, bio: Bio) -> Result<(), Refused> {
        self.settings.check(&bio)?;
        let has_room =
            !self.contexts.are_waiting_for_room() && self.intake.has_room(&self.settings, &self.requests, bio.op, 0);
        if !has_room && !self.finds_room(now, &bio) {
            return Err(Refused::Full);
        }
        let is_held = self.ceilings.are_some()
            && bio.op != Op::Flush
            && !self.ceilings.admit(now, self.groups.stream(bio.stream).stream.group, &bio);
        if self.trace.is_on() {
            self.trace.note(&self.groups, now, Action::Queued, &self.groups.waiting(&bio));
        }
        if is_held {
            // queue.13
            let state = self.groups.stream_mut(bio.stream);
            state.came(now, arrived, part, bio.op);
            let Stream { group, context, .. } = state.stream;
            self.scheduler.limited(bio.stream, group);
            self.ceilings.hold(now, group, HeldBio { bio, context, arrived, since: now });
        } else {
            self.take_in(now, arrived, Some(part), &bio);
        }
        if self.contexts.are_waiting_for_room() {
            self.leave_line(Seeker::Context(self.groups.stream(bio.stream).stream.context));
        }
        Ok(())
    }

    /// Whether a bio finds room beside what is kept for others; else its context stands in the line from now on (queue.20).
    #[cold]
    fn finds_room(&mut self, now: Instant, bio: &Bio) -> bool {
        let context = self.groups.stream(bio.stream).stream.context;
        let who = Seeker::Context(context);
        let has_room = self.has_room(who, bio.op);
        if !has_room {
            self.contexts.wait_for_room(who, 1 << context.0);
            self.trace.note(&self.groups, now, Action::Slept, &self.groups.waiting(bio));
        }
        has_room
    }

    /// Whether there is room for a bio beside what is kept for others (queue.20).
    #[inline]
    pub(super) fn has_room(&self, who: Seeker, op: Op) -> bool {
        self.intake.has_room(&self.settings, &self.requests, op, self.contexts.kept_from(who))
    }

    /// Whoever it is has found room, or seeks none any more: the next in the line may find some.
    #[cold]
    pub(super) fn leave_line(&mut self, who: Seeker) {
        if self.contexts.leave_line(who) {
            self.next_in_line();
        }
    }

    pub(super) fn next_in_line(&mut self) {
        if self.intake.has_room(&self.settings, &self.requests, Op::Read, 0) {
            self.contexts.feed();
        }
    }

    /// Takes in a bio for which there is room, and which has just come and waited for `came`, or has waited for a ceiling.
    #[inline(always)]
    pub(super) fn take_in(&mut self, now: Instant, arrived: Instant, came: Option<Part>, bio: &Bio) {
        self.groups.clock.go_on(now);
        let state = &mut self.groups.streams[bio.stream.0 as usize];
        if let Some(part) = came {
            state.came(now, arrived, part, bio.op);
        }
        if bio.op != Op::Read {
            state.habit.note(bio.op);
        }
        let Stream { group, priority, context } = state.stream;
        let stamp = self.groups.clock.stamp(share(&self.groups.shares, state));
        let row = || BioState {
            bio: *bio,
            context,
            arrived,
            since: now,
            stamp,
            stage: Stage::Data { durable: false },
            remaining: 1,
            outcome: Outcome::Done,
            missed: false,
            timed_out: false,
        };
        if bio.op == Op::Read && bio.flags.contains(Flags::CACHED) {
            return self.was_cached(now, &row());
        }
        let number = self.requests.bios.insert(|_| row());
        let Bio { op, flags, extent, stream, .. } = *bio;
        if op == Op::Flush || flags.intersects(Flags::FUA.with(Flags::PREFLUSH)) {
            return self.begin(now, number);
        }
        let touches = |last: &RequestId| self.requests[last.0].waiting.extent.touches(extent);
        if !self.settings.limits.fits(op, extent) || self.intake.plug.last().is_some_and(touches) {
            let waiting = self.groups.waiting(bio);
            return self.cut(now, waiting, number, 0);
        }
        // Nearly always: it is a request as it is.
        let first = SegmentNode { bio: number, next: NIL, offset: 0, sectors: extent.sectors };
        let waiting = Waiting { id: RequestId(NIL), op, flags, extent, stream, group, priority };
        let id = self.requests.add(&waiting, context, first);
        if self.trace.is_on() {
            self.trace.note(&self.groups, now, Action::Got, &self.requests[id.0].waiting);
        }
        self.intake.plug.push(id);
    }

    /// Makes requests of the rest of a bio, from `offset` sectors on; keeps the remainder if there are too few.
    pub(super) fn cut(&mut self, now: Instant, mut left: Waiting, bio: u32, mut offset: u64) {
        let context = self.requests.bios[bio].context;
        while self.requests.have_room(&self.settings, 0) {
            let Extent { start, sectors } = left.extent;
            let first = self.settings.limits.first_cut(left.op, left.extent);
            if first < sectors {
                self.trace.note(&self.groups, now, Action::Split, &left);
                self.requests.bios[bio].remaining += 1;
            }
            let piece = Waiting { extent: Extent::new(start, first), ..left };
            let segment = SegmentNode { bio, next: NIL, offset, sectors: first };
            match self.intake.merge_candidate(&self.requests, &piece) {
                Some((last, side)) if self.settings.allow_merge(&self.requests[last.0], &piece, context, 1) => {
                    self.requests.join(last, &piece, side, (segment, NIL, 1));
                    self.groups.merged(now, &piece, side, &mut self.trace);
                }
                _ => {
                    self.trace.note(&self.groups, now, Action::Got, &piece);
                    self.intake.plug.push(self.requests.add(&piece, context, segment));
                }
            }
            if first == sectors {
                return;
            }
            offset += first;
            left.extent = Extent::new(piece.extent.end(), sectors - first);
        }
        self.intake.parked.push_front((bio, left));
    }
}

impl Settings {
    /// Whether the device can do a bio.
    #[inline]
    fn check(&self, bio: &Bio) -> Result<(), Refused> {
        let Limits { capacity, block, .. } = self.limits;
        let extent = bio.extent;
        if bio.op == Op::Flush {
            return Ok(());
        }
        if extent.sectors == 0 {
            return Err(Refused::Empty);
        }
        if extent.start.0.checked_add(extent.sectors).is_none_or(|end| end > capacity) {
            return Err(Refused::BeyondEnd { extent, capacity });
        }
        if !self.limits.aligned(extent) {
            return Err(Refused::Unaligned { extent, block });
        }
        if !bio.op.has_payload() && self.limits.max(bio.op) == 0 {
            return Err(Refused::Unsupported(bio.op));
        }
        Ok(())
    }
}
