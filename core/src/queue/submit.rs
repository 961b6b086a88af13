//! Submit: a bio is checked, taken in, and cut into requests.

use super::flush_sequence::Stage;
use super::{BioState, NIL, Queue, Refused, Request, SegmentNode, State};
use crate::group::{ContextId, Stream};
use crate::list::Links;
use crate::sched::{RequestId, Waiting};
use crate::trace::Action;
use crate::waits::{Part, Stamp};
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
    pub fn submit_late(&mut self, now: Instant, asked: Instant, part: Part, bio: Bio) -> Result<(), Refused> {
        self.check(&bio)?;
        if !self.has_room_for(bio.op) {
            return Err(self.refuse(now, &bio));
        }
        if self.ceilings.are_some() && !self.is_admitted(now, &bio) {
            self.hold_back(now, asked, part, &bio); // queue.13
            return Ok(());
        }
        if self.trace.is_some() {
            self.note_bio(now, Action::Queued, &bio);
        }
        self.take_in(now, asked, Some(part), &bio);
        Ok(())
    }

    #[cold]
    fn refuse(&mut self, now: Instant, bio: &Bio) -> Refused {
        self.contexts.starve(1 << self.streams[bio.stream.0 as usize].stream.context.0);
        self.note_bio(now, Action::Slept, bio);
        Refused::Full
    }

    /// Takes in a bio for which there is room, and which has just come and waited for `came`, or has waited for a ceiling.
    #[inline(always)]
    pub(super) fn take_in(&mut self, now: Instant, asked: Instant, came: Option<Part>, bio: &Bio) {
        self.clock.go_on(now);
        let state = &mut self.streams[bio.stream.0 as usize];
        if let Some(part) = came {
            state.came(now, asked, part, bio.op);
        }
        if bio.op != Op::Read {
            state.habit.note(bio.op);
        }
        let Stream { group, priority, context } = state.stream;
        let number = self.requests.bios.insert(|_| BioState {
            bio: *bio,
            context,
            asked,
            since: now,
            stamp: self.clock.stamp(self.groups.share(state)),
            stage: Stage::Data { durable: false },
            remaining: 1,
            outcome: Outcome::Done,
            timed_out: false,
        });
        let Bio { op, flags, extent, stream, .. } = *bio;
        if op == Op::Flush || flags.intersects(Flags::FUA.with(Flags::PREFLUSH)) {
            return self.begin(now, number);
        }
        let touches = |last: &RequestId| self.requests[last.0].waiting.extent.touches(extent);
        if !self.settings.limits.fits(op, extent) || self.intake.plug.last().is_some_and(touches) {
            return self.begin_data(now, number);
        }
        // Nearly always: it is a request as it is.
        self.note(now, Action::Got, op, extent, stream, group);
        let first = SegmentNode { bio: number, next: NIL, offset: 0, sectors: extent.sectors };
        let waiting = Waiting { id: RequestId(NIL), op, flags, extent, stream, group, priority };
        let id = self.new_request(&waiting, context, first);
        self.intake.plug.push(id);
    }

    #[inline]
    pub(super) fn check(&self, bio: &Bio) -> Result<(), Refused> {
        let Limits { capacity, block, .. } = self.settings.limits;
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
        if !self.settings.limits.aligned(extent) {
            return Err(Refused::Unaligned { extent, block });
        }
        if !bio.op.has_payload() && self.settings.limits.max(bio.op) == 0 {
            return Err(Refused::Unsupported(bio.op));
        }
        Ok(())
    }

    /// Whether a bio can be taken in (sequence.1).
    #[inline]
    pub(super) fn has_room_for(&self, op: Op) -> bool {
        let needs_no_request = op == Op::Flush && self.settings.flush.coordinate;
        self.requests.bios.len() < self.settings.parts()
            && (self.intake.parked.is_empty() && self.has_room() || needs_no_request)
    }

    #[inline]
    pub(super) fn has_room(&self) -> bool {
        let requests = self.requests.len() - self.requests.of_flushes;
        requests < self.settings.nr_requests as usize && requests + self.requests.segments.len() < self.settings.parts()
    }

    /// Makes requests of what is left of a bio, `offset` sectors into it; keeps the rest if there are too few.
    pub(super) fn cut(&mut self, now: Instant, mut left: Waiting, bio: u32, mut offset: u64) {
        let context = self.requests.bios[bio].context;
        while self.has_room() {
            let Extent { start, sectors } = left.extent;
            let first = self.settings.limits.first_cut(left.op, left.extent);
            if first == sectors {
                return self.put(now, &left, context, bio, offset);
            }
            self.note(now, Action::Split, left.op, left.extent, left.stream, left.group);
            self.requests.bios[bio].remaining += 1;
            let piece = Waiting { extent: Extent::new(start, first), ..left };
            self.put(now, &piece, context, bio, offset);
            offset += first;
            left.extent = Extent::new(piece.extent.end(), sectors - first);
        }
        self.intake.parked.push_front((bio, left));
    }

    /// Puts a piece of a bio into the plug, for which there is room.
    fn put(&mut self, now: Instant, piece: &Waiting, context: ContextId, bio: u32, offset: u64) {
        let segment = SegmentNode { bio, next: NIL, offset, sectors: piece.extent.sectors };
        if !self.merge_into_plug(now, piece, context, segment) {
            self.note(now, Action::Got, piece.op, piece.extent, piece.stream, piece.group);
            let id = self.new_request(piece, context, segment);
            self.intake.plug.push(id);
        }
    }

    #[inline(always)]
    pub(super) fn new_request(&mut self, waiting: &Waiting, context: ContextId, first: SegmentNode) -> RequestId {
        RequestId(self.requests.insert(|id| Request {
            waiting: Waiting { id: RequestId(id), ..*waiting },
            context,
            state: State::Waiting,
            dispatched: Instant::ZERO,
            stamp: Stamp::default(),
            segments: 1,
            first,
            tail: NIL,
            generation: 0,
            links: Links::NONE,
        }))
    }
}
