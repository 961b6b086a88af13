//! Requests taken in and not yet at the scheduler: the plug, and bios that wait for room.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::{Requests, Settings};
use crate::Op;
use crate::group::StreamId;
use crate::sched::{RequestId, Side, Waiting};

/// Bios and requests on their way to the scheduler.
pub(super) struct Intake {
    pub(super) plug: Vec<RequestId>,
    /// Bios, and rests of bios, that wait for room in the table of requests: first, if there is one, the bio that was cut into
    /// more pieces than there were requests; then those whose first flush has ended (sequence.2).
    pub(super) parked: VecDeque<(u32, Waiting)>,
}

impl Intake {
    pub(super) fn new(settings: &Settings) -> Self {
        Self { plug: Vec::with_capacity(settings.nr_requests as usize), parked: VecDeque::with_capacity(64) }
    }

    /// Makes room for this many waiting requests (queue.14).
    pub(super) fn grow_to(&mut self, requests: usize) {
        self.plug.reserve(requests.saturating_sub(self.plug.len()));
    }

    /// Whether a bio can be taken in (sequence.1) while so many places are `kept` for others (queue.20).
    #[inline]
    pub(super) fn has_room(&self, settings: &Settings, requests: &Requests, op: Op, kept: usize) -> bool {
        let needs_no_request = op == Op::Flush && settings.flush.coordinate;
        requests.bios.len() + kept.min(requests.bios.len()) < settings.segment_rows()
            && (self.parked.is_empty() && requests.have_room(settings, kept) || needs_no_request)
    }

    /// The request plugged last, if a piece of a bio of the same stream touches it.
    pub(super) fn merge_candidate(&self, requests: &Requests, piece: &Waiting) -> Option<(RequestId, Side)> {
        let id = *self.plug.last()?;
        let last = &requests[id.0].waiting;
        let side = if last.extent.end() == piece.extent.start {
            Side::Back
        } else if piece.extent.end() == last.extent.start {
            Side::Front
        } else {
            return None;
        };
        (last.stream == piece.stream).then_some((id, side))
    }

    pub(super) fn parked_of(&mut self, id: StreamId) -> impl Iterator<Item = &mut Waiting> {
        self.parked.iter_mut().map(|(_, left)| left).filter(move |left| left.stream == id)
    }
}
