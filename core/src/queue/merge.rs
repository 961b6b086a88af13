//! Merge: what touches becomes one request, in the plug and in the scheduler (queue.3, queue.4).

use super::{Queue, Request};
use crate::group::ContextId;
use crate::sched::{RequestId, Side, Waiting};
use crate::trace::Action;
use crate::{Extent, Instant};

impl Queue {
    /// Joins a piece of a bio to the request plugged last, if they touch.
    pub(super) fn merge_into_plug(
        &mut self,
        now: Instant,
        piece: &Waiting,
        context: ContextId,
        bio: u32,
        offset: u64,
    ) -> bool {
        let Some(id) = self.plug.last() else { return false };
        let last = &self.requests[id.0];
        let side = if last.waiting.extent.end() == piece.extent.start {
            Side::Back
        } else if piece.extent.end() == last.waiting.extent.start {
            Side::Front
        } else {
            return false;
        };
        if last.waiting.stream != piece.stream || !self.may_merge(last, piece, context, 1) {
            return false;
        }
        let id = *id;
        let segment = self.new_segment(bio, offset, piece.extent.sectors);
        self.join(now, id, piece, side, (segment, segment, 1));
        true
    }

    /// Gives the batch to the scheduler, merging on the way.
    pub(super) fn unplug(&mut self, now: Instant) {
        if self.plug.is_empty() {
            return;
        }
        for index in 0..self.plug.len() {
            let id = self.plug[index];
            let request = &self.requests[id.0];
            let waiting = request.waiting;
            let candidate = if self.settings.nomerges { None } else { self.scheduler.merge_candidate(&waiting) };
            if let Some((kept, side)) = candidate
                && self.may_merge(&self.requests[kept.0], &waiting, request.context, request.segments)
            {
                self.absorb(now, kept, id, side);
                let waiting = self.requests[kept.0].waiting;
                self.scheduler.grown(&waiting, side);
                self.close_gap(now, kept);
            } else {
                self.note(now, Action::Inserted, waiting.op, waiting.extent, waiting.stream, waiting.group);
                self.scheduler.insert(now, &waiting);
            }
        }
        self.plug.clear();
    }

    /// After a back merge: the request may now touch the one behind it.
    pub(super) fn close_gap(&mut self, now: Instant, kept: RequestId) {
        let waiting = self.requests[kept.0].waiting;
        let Some(gone) = self.scheduler.neighbour_after(&waiting) else { return };
        let behind = &self.requests[gone.0];
        if self.may_merge(&self.requests[kept.0], &behind.waiting, behind.context, behind.segments) {
            self.absorb(now, kept, gone, Side::Back);
            let waiting = self.requests[kept.0].waiting;
            self.scheduler.absorbed(&waiting, gone);
        }
    }

    /// Whether `piece`, of so many segments, may become part of `request` (queue.4 and the limits).
    pub(super) fn may_merge(&self, request: &Request, piece: &Waiting, context: ContextId, segments: u32) -> bool {
        let kept = &request.waiting;
        let whole = Extent::new(kept.extent.start.min(piece.extent.start), kept.extent.sectors + piece.extent.sectors);
        !self.settings.nomerges
            && kept.op == piece.op
            && kept.flags == piece.flags
            && kept.group == piece.group
            && kept.priority == piece.priority
            && request.context == context
            && self.settings.limits.allow(kept.op, whole, request.segments + segments)
    }

    /// Makes a request part of another.
    pub(super) fn absorb(&mut self, now: Instant, kept: RequestId, gone: RequestId, side: Side) {
        let gone = self.requests.remove(gone.0);
        self.join(now, kept, &gone.waiting, side, (gone.head, gone.tail, gone.segments));
    }

    /// Makes a list of segments, and the extent they cover, part of a request.
    pub(super) fn join(
        &mut self,
        now: Instant,
        id: RequestId,
        piece: &Waiting,
        side: Side,
        (head, tail, count): (u32, u32, u32),
    ) {
        let request = &mut self.requests[id.0];
        let action = match side {
            Side::Back => {
                self.segments[request.tail].next = head;
                request.tail = tail;
                Action::BackMerged
            }
            Side::Front => {
                self.segments[tail].next = request.head;
                request.head = head;
                request.waiting.extent.start = piece.extent.start;
                Action::FrontMerged
            }
        };
        request.segments += count;
        request.waiting.extent.sectors += piece.extent.sectors;
        self.streams[piece.stream.0 as usize].stats.merged(piece.op);
        self.note(now, action, piece.op, piece.extent, piece.stream, piece.group);
    }
}
