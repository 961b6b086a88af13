//! Submit: a bio is checked, taken in, and cut into requests.

use super::flush_sequence::Stage;
use super::{BioState, NIL, Queue, Refused, Request, SegmentNode, Step};
use crate::group::{ContextId, Stream};
use crate::list::Links;
use crate::sched::{RequestId, Waiting};
use crate::trace::Action;
use crate::waits::{Part, Stamp};
use crate::{Bio, Extent, Instant, Limits, Op, Outcome};

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
        let Stream { group, context, .. } = self.streams[bio.stream.0 as usize].stream;
        self.check(&bio)?;
        if self.has_room_for(bio.op) {
            if self.ceilings.are_some() && bio.op != Op::Flush && !self.ceilings.admit(now, group, &bio) {
                self.hold_back(now, asked, part, &bio); // queue.13
                return Ok(());
            }
        } else {
            self.starved |= 1 << context.0;
            self.note(now, Action::Slept, bio.op, bio.extent, bio.stream, group);
            return Err(Refused::Full);
        }
        self.note(now, Action::Queued, bio.op, bio.extent, bio.stream, group);
        self.came(now, asked, part, bio.stream, bio.op);
        self.take_in(now, asked, bio);
        Ok(())
    }

    /// Takes in a bio for which there is room.
    pub(super) fn take_in(&mut self, now: Instant, asked: Instant, bio: Bio) {
        let Stream { group, priority, context } = self.streams[bio.stream.0 as usize].stream;
        let stamp = self.stamp(now, group, bio.stream);
        let Bio { op, flags, extent, stream, token } = bio;
        self.note_habit(op, stream);
        let (stage, flags) = self.stage_of(op, flags, extent.start);
        let number = self.bios.insert(BioState {
            token,
            op,
            flags,
            start: extent.start,
            sectors: extent.sectors,
            stream,
            context,
            asked,
            since: now,
            stamp,
            stage,
            remaining: 0,
            outcome: Outcome::Done,
            timed_out: false,
        });
        match stage {
            Stage::Data { .. } => {
                let waiting = Waiting { id: RequestId(NIL), op, flags, extent, stream, group, priority };
                self.cut(now, waiting, context, number, 0);
            }
            Stage::Preflush { .. } | Stage::Postflush => self.ask_flush(now, number), // queue.5
        }
    }

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
        if self.settings.limits.max(bio.op) == 0 {
            return Err(Refused::Unsupported(bio.op));
        }
        Ok(())
    }

    /// Whether a bio can be taken in (sequence.1).
    #[inline]
    pub(super) fn has_room_for(&self, op: Op) -> bool {
        if self.bios.len() >= self.settings.parts() {
            return false;
        }
        if op == Op::Flush && self.settings.flush.coordinate {
            return true;
        }
        self.rest.is_none() && self.flushes.resuming.is_empty() && self.has_room()
    }

    pub(super) fn has_room(&self) -> bool {
        self.requests.len() - self.flushes.rows < self.settings.nr_requests as usize
            && self.segments.len() < self.settings.parts()
    }

    /// Makes requests of `whole`, which starts `offset` sectors into its bio; keeps the rest if there are too few.
    pub(super) fn cut(&mut self, now: Instant, whole: Waiting, context: ContextId, bio: u32, mut offset: u64) {
        let mut left = whole.extent;
        while left.sectors > 0 {
            if !self.has_room() {
                self.bios[bio].remaining += 1; // so that it does not end before its rest
                self.rest = Some((bio, Waiting { extent: left, ..whole }));
                return;
            }
            let sectors = self.settings.limits.first_cut(whole.op, left);
            let piece = Waiting { extent: Extent::new(left.start, sectors), ..whole };
            if sectors < left.sectors {
                self.note(now, Action::Split, whole.op, left, whole.stream, whole.group);
            }
            if !self.merge_into_plug(now, &piece, context, bio, offset) {
                self.note(now, Action::Got, whole.op, piece.extent, whole.stream, whole.group);
                let id = self.new_request(&piece, context, bio, offset);
                self.plug.push(id);
            }
            offset += sectors;
            left = Extent::new(piece.extent.end(), left.sectors - sectors);
        }
    }

    pub(super) fn new_request(&mut self, waiting: &Waiting, context: ContextId, bio: u32, offset: u64) -> RequestId {
        let segment = self.new_segment(bio, offset, waiting.extent.sectors);
        let id = RequestId(self.requests.next());
        self.requests.insert(Request {
            waiting: Waiting { id, ..*waiting },
            context,
            step: Step::Waiting,
            dispatched: Instant::ZERO,
            stamp: Stamp::default(),
            head: segment,
            tail: segment,
            segments: 1,
            generation: 0,
            links: Links::NONE,
        });
        id
    }

    pub(super) fn new_segment(&mut self, bio: u32, offset: u64, sectors: u64) -> u32 {
        self.bios[bio].remaining += 1;
        self.segments.insert(SegmentNode { bio, offset, sectors, next: NIL })
    }
}
