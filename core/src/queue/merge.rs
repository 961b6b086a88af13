//! Merge: what touches becomes one request, in the plug and in the scheduler (queue.3, queue.4).

use super::{Groups, Queue, Request, Settings};
use crate::group::ContextId;
use crate::sched::{RequestId, Side, Waiting};
use crate::trace::{Action, Trace};
use crate::{Extent, Instant};

impl Queue {
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
            let Request { waiting, context, segments, .. } = request;
            if let Some((kept, side)) = candidate
                && self.settings.allow_merge(&self.requests[kept.0], waiting, *context, *segments)
            {
                let gone = self.requests.absorb(kept, id, side);
                self.groups.merged(now, &gone, side, &mut self.trace);
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
            let joined = self.requests.absorb(kept, gone, Side::Back);
            self.groups.merged(now, &joined, Side::Back, &mut self.trace);
            let waiting = self.requests[kept.0].waiting;
            self.scheduler.absorbed(&waiting, gone);
        }
    }
}

impl Groups {
    /// A piece has become part of a request.
    pub(super) fn merged(&mut self, now: Instant, piece: &Waiting, side: Side, trace: &mut Trace) {
        self.stream_mut(piece.stream).stats.of_mut(piece.op).merges += 1;
        let action = match side {
            Side::Back => Action::BackMerged,
            Side::Front => Action::FrontMerged,
        };
        trace.note(self, now, action, piece);
    }
}

impl Settings {
    /// Whether `piece`, with its segments, may become part of `request` (queue.4 and the limits).
    pub(super) fn allow_merge(&self, request: &Request, piece: &Waiting, context: ContextId, segments: u32) -> bool {
        let kept = &request.waiting;
        let whole = Extent::new(kept.extent.start.min(piece.extent.start), kept.extent.sectors + piece.extent.sectors);
        !self.nomerges
            && kept.op == piece.op
            && kept.flags == piece.flags
            && kept.group == piece.group
            && kept.priority == piece.priority
            && request.context == context
            && request.segments + segments <= u32::from(self.limits.segments_max)
            && self.limits.fits(kept.op, whole)
    }
}
