//! The contents of a queue: requests, the segments that they consist of, and the bios of those segments.

use core::ops::{Deref, DerefMut};

use super::Settings;
use super::flush_sequence::Stage;
use crate::group::ContextId;
use crate::list::{Linked, Links, NIL};
use crate::sched::{RequestId, Side, Waiting};
use crate::table::Table;
use crate::waits::Stamp;
use crate::{Bio, Instant, Outcome, Tag};

/// Where a request is on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// In the plug, the scheduler, or the flush list.
    Waiting,
    /// In the device's hands, or on its way there.
    InFlight(Tag),
    /// In the device's hands, its bios already answered (queue.6).
    TimedOut(Tag),
}

/// One operation on one extent, made of one or more contiguous bios.
#[derive(Clone, Copy)]
pub(super) struct Request {
    pub(super) waiting: Waiting,
    pub(super) context: ContextId,
    pub(super) state: State,
    pub(super) dispatched: Instant,
    /// The clocks at that time.
    pub(super) stamp: Stamp,
    /// Its segments, in sector order: the first, and those that joined it.
    pub(super) first: SegmentNode,
    /// Where the last of them is in the table of segments; [`NIL`]: it is the first.
    pub(super) tail: u32,
    pub(super) segments: u32,
    /// Which of the queue's schedulers dispatched it last ([`Present::generation`](super::switch::Present::generation)).
    pub(super) generation: u32,
    /// Its place in the list of requests in flight.
    pub(super) links: Links,
}

#[derive(Clone, Copy)]
pub(super) struct SegmentNode {
    pub(super) bio: u32,
    pub(super) next: u32,
    /// In sectors, within the bio.
    pub(super) offset: u64,
    pub(super) sectors: u64,
}

impl SegmentNode {
    /// The node of a request without bios.
    pub(super) const NONE: Self = Self { bio: NIL, next: NIL, offset: 0, sectors: 0 };
}

#[derive(Clone, Copy)]
pub(super) struct BioState {
    pub(super) bio: Bio,
    pub(super) context: ContextId,
    /// When its client asked.
    pub(super) arrived: Instant,
    /// The time up to which its time has been divided, and the clocks at that time.
    pub(super) since: Instant,
    pub(super) stamp: Stamp,
    pub(super) stage: Stage,
    /// Segments that have not ended, and one more while all of it, or a rest, waits to be cut.
    pub(super) remaining: u32,
    pub(super) outcome: Outcome,
    /// A part of it was not answered by memory (queue.19).
    pub(super) missed: bool,
    pub(super) timed_out: bool,
}

impl Linked for Request {
    #[inline]
    fn links(&mut self) -> &mut Links {
        &mut self.links
    }
}

/// The requests of a queue, and the tables of their parts.
pub(super) struct Requests {
    /// How many of them are flushes that have rows of their own (sequence.1).
    pub(super) of_flushes: usize,
    pub(super) rows: Table<Request>,
    /// The segments of requests but for the first of each.
    pub(super) segments: Table<SegmentNode>,
    pub(super) bios: Table<BioState>,
}

impl Requests {
    pub(super) fn new(settings: &Settings) -> Self {
        let rows = settings.segment_rows();
        Self { of_flushes: 0, rows: Table::new(settings.rows()), segments: Table::new(rows), bios: Table::new(rows) }
    }

    /// Makes room for these settings (queue.14), and for a flush of each backing (sequence.1).
    pub(super) fn grow_to(&mut self, settings: &Settings, backings: usize) {
        self.rows.grow_to(settings.nr_requests as usize + backings);
        self.segments.grow_to(settings.segment_rows());
        self.bios.grow_to(settings.segment_rows());
    }

    /// Whether there is room for one more that is not of a flush, while so many places are `kept` for others. No more are kept than are in
    /// use: with each that comes free the others hear of it again.
    #[inline]
    pub(super) fn have_room(&self, settings: &Settings, kept: usize) -> bool {
        let in_use = self.len() - self.of_flushes;
        let of_bios = in_use + kept.min(in_use);
        of_bios < settings.nr_requests as usize && of_bios + self.segments.len() < settings.segment_rows()
    }

    /// Adds a request of one segment, or of none, that waits.
    #[inline(always)]
    pub(super) fn add(&mut self, waiting: &Waiting, context: ContextId, first: SegmentNode) -> RequestId {
        RequestId(self.insert(|id| Request {
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

    /// Makes a request part of another; what it was.
    #[inline(never)]
    pub(super) fn absorb(&mut self, kept: RequestId, gone: RequestId, side: Side) -> Waiting {
        let gone = self.remove(gone.0);
        self.join(kept, &gone.waiting, side, (gone.first, gone.tail, gone.segments));
        gone.waiting
    }

    /// Makes a list of segments, and the extent they cover, part of a request: its first, where its last is, and how many they are.
    pub(super) fn join(
        &mut self,
        id: RequestId,
        piece: &Waiting,
        side: Side,
        (first, tail, count): (SegmentNode, u32, u32),
    ) {
        let request = &mut self.rows[id.0];
        let (mut before, after) = match side {
            Side::Back => ((request.first, request.tail), (first, tail)),
            Side::Front => {
                request.waiting.extent.start = piece.extent.start;
                ((first, tail), (request.first, request.tail))
            }
        };
        // The second request has a row for its first segment from now on.
        let row = self.segments.insert(|_| after.0);
        match before.1 {
            NIL => before.0.next = row,
            last => self.segments[last].next = row,
        }
        request.first = before.0;
        request.tail = if after.1 == NIL { row } else { after.1 };
        request.segments += count;
        request.waiting.extent.sectors += piece.extent.sectors;
    }

    /// The segments of a request, in sector order.
    pub(super) fn segments_of(&self, request: &Request) -> impl Iterator<Item = SegmentNode> + '_ {
        let mut next = (request.first.bio != NIL).then_some(request.first);
        core::iter::from_fn(move || {
            let segment = next?;
            next = self.segments.get(segment.next).copied();
            Some(segment)
        })
    }
}

impl Deref for Requests {
    type Target = Table<Request>;

    #[inline]
    fn deref(&self) -> &Table<Request> {
        &self.rows
    }
}

impl DerefMut for Requests {
    #[inline]
    fn deref_mut(&mut self) -> &mut Table<Request> {
        &mut self.rows
    }
}
