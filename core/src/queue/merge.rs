//! Merge: what touches becomes one request, in the plug and in the scheduler (queue.3, queue.4).

use super::{NIL, Queue, Request, SegmentNode, Settings};
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
        segment: SegmentNode,
    ) -> bool {
        let Some(&id) = self.intake.plug.last() else { return false };
        let last = &self.requests[id.0];
        let side = if last.waiting.extent.end() == piece.extent.start {
            Side::Back
        } else if piece.extent.end() == last.waiting.extent.start {
            Side::Front
        } else {
            return false;
        };
        if last.waiting.stream != piece.stream || !self.settings.allow_merge(last, piece, context, 1) {
            return false;
        }
        self.join(now, id, piece, side, (segment, NIL, 1));
        true
    }

    /// Gives the batch to the scheduler, merging on the way.
    pub(super) fn unplug(&mut self, now: Instant) {
        if self.intake.plug.is_empty() {
            return;
        }
        let mut plug = core::mem::take(&mut self.intake.plug);
        for id in plug.drain(..) {
            let request = &self.requests[id.0];
            let candidate =
                if self.settings.nomerges { None } else { self.scheduler.merge_candidate(&request.waiting) };
            if let Some((kept, side)) = candidate
                && self.settings.allow_merge(
                    &self.requests[kept.0],
                    &request.waiting,
                    request.context,
                    request.segments,
                )
            {
                self.absorb(now, kept, id, side);
                let waiting = self.requests[kept.0].waiting;
                self.scheduler.grown(&waiting, side);
                self.close_gap(now, kept);
                continue;
            }
            self.scheduler.insert(now, &request.waiting);
            self.trace.note(&self.groups, now, Action::Inserted, &request.waiting);
        }
        self.intake.plug = plug;
    }

    /// After a back merge: the request may now touch the one behind it.
    #[inline(never)]
    pub(super) fn close_gap(&mut self, now: Instant, kept: RequestId) {
        let waiting = self.requests[kept.0].waiting;
        let Some(gone) = self.scheduler.neighbour_after(&waiting) else { return };
        let behind = &self.requests[gone.0];
        if self.settings.allow_merge(&self.requests[kept.0], &behind.waiting, behind.context, behind.segments) {
            self.absorb(now, kept, gone, Side::Back);
            let waiting = self.requests[kept.0].waiting;
            self.scheduler.absorbed(&waiting, gone);
        }
    }

    /// Makes a request part of another.
    #[inline(never)]
    pub(super) fn absorb(&mut self, now: Instant, kept: RequestId, gone: RequestId, side: Side) {
        let gone = self.requests.remove(gone.0);
        self.join(now, kept, &gone.waiting, side, (gone.first, gone.tail, gone.segments));
    }

    /// Makes a list of segments, and the extent they cover, part of a request: its first, where its last is, and how many they are.
    pub(super) fn join(
        &mut self,
        now: Instant,
        id: RequestId,
        piece: &Waiting,
        side: Side,
        (first, tail, count): (SegmentNode, u32, u32),
    ) {
        let request = &mut self.requests.rows[id.0];
        let (action, mut before, after) = match side {
            Side::Back => (Action::BackMerged, (request.first, request.tail), (first, tail)),
            Side::Front => {
                request.waiting.extent.start = piece.extent.start;
                (Action::FrontMerged, (first, tail), (request.first, request.tail))
            }
        };
        // What comes after has a row for its first segment from now on.
        let row = self.requests.segments.insert(|_| after.0);
        match before.1 {
            NIL => before.0.next = row,
            last => self.requests.segments[last].next = row,
        }
        request.first = before.0;
        request.tail = if after.1 == NIL { row } else { after.1 };
        request.segments += count;
        request.waiting.extent.sectors += piece.extent.sectors;
        self.groups.stream_mut(piece.stream).stats.merged(piece.op);
        self.trace.note(&self.groups, now, action, piece);
    }
}

impl Settings {
    /// Whether `piece`, of so many segments, may become part of `request` (queue.4 and the limits).
    fn allow_merge(&self, request: &Request, piece: &Waiting, context: ContextId, segments: u32) -> bool {
        let kept = &request.waiting;
        let whole = Extent::new(kept.extent.start.min(piece.extent.start), kept.extent.sectors + piece.extent.sectors);
        !self.nomerges
            && kept.op == piece.op
            && kept.flags == piece.flags
            && kept.group == piece.group
            && kept.priority == piece.priority
            && request.context == context
            && self.limits.allow(kept.op, whole, request.segments + segments)
    }
}
