//! Writes to a stripe, the reads for its parity, and the cache that collects them.
//!
//! stripe.1  A stripe that is written whole needs no reads. Otherwise the new parity comes from the old data and the old parity
//!     (read-modify-write), or from the rest of the stripe, whichever needs fewer reads.
//! stripe.2  A missing disk's part is not written; its old content cannot be read. Without its parity a stripe is written
//!     as it is.

use std::collections::{BTreeMap, VecDeque};

use super::layout::{Layout, Piece};

/// The most disks of an array. Chosen: more than the profiles have (12), and a stripe's table stays small.
pub(super) const DISKS: usize = 32;

/// For each data chunk of a stripe, which of its sectors; all between the first and the last of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spans {
    spans: [(u32, u32); DISKS],
}

/// One thing to do on a member disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MemberIo {
    pub(super) disk: usize,
    pub(super) start: u64,
    pub(super) sectors: u64,
}

impl Spans {
    pub(super) const NONE: Self = Self { spans: [(0, 0); DISKS] };

    /// Adds a piece; how many sectors that is more.
    pub(super) fn add(&mut self, piece: &Piece) -> u64 {
        let span = &mut self.spans[piece.index as usize];
        let before = span.1 - span.0;
        let (from, to) = (piece.from as u32, piece.to as u32);
        *span = if before == 0 { (from, to) } else { (span.0.min(from), span.1.max(to)) };
        u64::from(span.1 - span.0 - before)
    }

    pub(super) fn covers(&self, piece: &Piece) -> bool {
        let span = self.spans[piece.index as usize];
        u64::from(span.0) <= piece.from && piece.to <= u64::from(span.1)
    }

    pub(super) fn sectors(&self) -> u64 {
        self.spans.iter().map(|span| u64::from(span.1 - span.0)).sum()
    }

    /// From the first to the last sector of a chunk that any disk writes.
    fn hull(&self) -> (u32, u32) {
        let touched = self.spans.iter().filter(|span| span.0 < span.1);
        touched.fold((u32::MAX, 0), |hull, span| (hull.0.min(span.0), hull.1.max(span.1)))
    }

    /// The reads needed before it can be written (stripe.1, stripe.2).
    pub(super) fn reads(&self, layout: &Layout, stripe: u64, missing: usize, mut read: impl FnMut(MemberIo)) {
        let gone = |disk: usize| disk < missing;
        let parity = || (0..layout.parity).map(|index| layout.parity_disk(stripe, index));
        let data = || (0..layout.data()).map(|index| (self.spans[index as usize], layout.disk(stripe, index)));
        let hull = self.hull();
        if !parity().any(|disk| !gone(disk)) || data().all(|(span, _)| span == (0, layout.chunk as u32)) {
            return;
        }
        let part = |disk: usize, span: (u32, u32)| MemberIo {
            disk,
            start: stripe * layout.chunk + u64::from(span.0),
            sectors: u64::from(span.1 - span.0),
        };
        let touched = |span: (u32, u32)| span.0 < span.1;
        let modify = data().filter(|(span, _)| touched(*span)).count() + parity().filter(|disk| !gone(*disk)).count();
        let rest = data().filter(|(span, _)| *span != hull).count();
        let rest_only = data().any(|(span, disk)| touched(span) && gone(disk));
        let modify_only = data().any(|(span, disk)| !touched(span) && gone(disk));
        if rest_only || (rest < modify && !modify_only) {
            data().filter(|(span, disk)| *span != hull && !gone(*disk)).for_each(|(_, disk)| read(part(disk, hull)));
        } else {
            data().filter(|(span, _)| touched(*span)).for_each(|(span, disk)| read(part(disk, span)));
            parity().filter(|disk| !gone(*disk)).for_each(|disk| read(part(disk, hull)));
        }
    }

    pub(super) fn writes(&self, layout: &Layout, stripe: u64, missing: usize, mut write: impl FnMut(MemberIo)) {
        let mut part = |disk: usize, span: (u32, u32)| {
            if disk >= missing && span.0 < span.1 {
                let start = stripe * layout.chunk + u64::from(span.0);
                write(MemberIo { disk, start, sectors: u64::from(span.1 - span.0) });
            }
        };
        for index in 0..layout.data() {
            part(layout.disk(stripe, index), self.spans[index as usize]);
        }
        for index in 0..layout.parity {
            part(layout.parity_disk(stripe, index), self.hull());
        }
    }
}

/// The content of the controller's cache that the disks do not have yet, by stripe.
///
/// A stripe that is complete goes first; else they go round in rising order.
pub(super) struct Cache {
    stripes: BTreeMap<u64, Spans>,
    complete: VecDeque<u64>,
    /// When stripes came in.
    came: VecDeque<(u64, u64)>,
    pub(super) sectors: u64,
    hand: u64,
}

/// The most stripes in the cache. Chosen: scattered small writes reach it, others the bound of memory first.
const STRIPES: usize = 4096;

impl Cache {
    pub(super) const fn new() -> Self {
        Self { stripes: BTreeMap::new(), complete: VecDeque::new(), came: VecDeque::new(), sectors: 0, hand: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.stripes.is_empty()
    }

    /// Whether it is about as many stripes as it can keep apart.
    pub(super) fn is_crowded(&self) -> bool {
        self.stripes.len() * 4 > STRIPES * 3
    }

    /// Whether a write of `stripes` finds place.
    pub(super) fn has_place(&self, stripes: usize) -> bool {
        self.stripes.len() + stripes <= STRIPES
    }

    pub(super) fn add(&mut self, now: u64, layout: &Layout, piece: &Piece) {
        let spans = self.stripes.entry(piece.stripe).or_insert_with(|| {
            self.came.push_back((now, piece.stripe));
            Spans::NONE
        });
        let more = spans.add(piece);
        self.sectors += more;
        if more > 0 && spans.sectors() == layout.stripe() {
            self.complete.push_back(piece.stripe);
        }
    }

    pub(super) fn covers(&self, piece: &Piece) -> bool {
        self.stripes.get(&piece.stripe).is_some_and(|spans| spans.covers(piece))
    }

    /// Not later than when the oldest stripe came in.
    pub(super) fn came_first(&self) -> Option<u64> {
        self.came.front().map(|(at, _)| *at)
    }

    /// When the oldest stripe came in.
    pub(super) fn oldest(&mut self) -> Option<u64> {
        while self.came.pop_front_if(|(_, stripe)| !self.stripes.contains_key(stripe)).is_some() {}
        self.came_first()
    }

    /// Takes out a complete stripe.
    pub(super) fn take_complete(&mut self) -> Option<(u64, Spans)> {
        while let Some(stripe) = self.complete.pop_front() {
            // It may have gone in its turn before it was complete.
            if let Some(taken) = self.take(stripe) {
                return Some(taken);
            }
        }
        None
    }

    /// Takes out the next stripe in rising order.
    pub(super) fn take_next(&mut self) -> Option<(u64, Spans)> {
        let next = self.stripes.range(self.hand..).chain(&self.stripes).next().map(|(stripe, _)| *stripe)?;
        self.take(next)
    }

    fn take(&mut self, stripe: u64) -> Option<(u64, Spans)> {
        let spans = self.stripes.remove(&stripe)?;
        self.hand = stripe + 1;
        self.sectors -= spans.sectors();
        Some((stripe, spans))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout { disks: 5, parity: 1, chunk: 16 };

    fn plan(start: u64, end: u64, missing: usize) -> (usize, usize) {
        let mut spans = Spans::NONE;
        LAYOUT.pieces(start, end).for_each(|piece| _ = spans.add(&piece));
        let (mut reads, mut writes) = (0, 0);
        spans.reads(&LAYOUT, 0, missing, |part| {
            assert!(part.disk >= missing);
            reads += 1;
        });
        spans.writes(&LAYOUT, 0, missing, |_| writes += 1);
        (reads, writes)
    }

    /// stripe.1.
    #[test]
    fn a_small_write_is_two_reads_and_two_writes_and_a_whole_stripe_only_writes() {
        assert_eq!(plan(0, 8, 0), (2, 2));
        assert_eq!(plan(0, 64, 0), (0, 5));
        assert_eq!(plan(0, 48, 0), (1, 4), "the one chunk that is left is less than four");
    }

    /// stripe.2: disk 0 is data chunk 1 of stripe 0 of five disks (parity on disk 4, data from disk 0 on: chunk 0).
    #[test]
    fn with_a_disk_missing_its_data_is_made_up_for_by_parity() {
        assert_eq!(plan(0, 8, 1), (3, 1), "on the missing disk: the rest of the stripe, then parity alone");
        assert_eq!(plan(16, 24, 1), (2, 2), "elsewhere: as ever, for the missing one cannot be read");
    }

    #[test]
    fn a_stripe_that_is_complete_goes_before_others() {
        let mut cache = Cache::new();
        LAYOUT.pieces(0, 8).for_each(|piece| cache.add(1, &LAYOUT, &piece));
        LAYOUT.pieces(64, 128).for_each(|piece| cache.add(2, &LAYOUT, &piece));
        assert_eq!(cache.sectors, 72);
        assert_eq!(cache.take_complete().map(|(stripe, _)| stripe), Some(1));
        assert!(cache.take_complete().is_none());
        assert_eq!(cache.oldest(), Some(1));
        assert_eq!(cache.take_next().map(|(stripe, _)| stripe), Some(0));
        assert_eq!((cache.sectors, cache.oldest(), cache.is_empty()), (0, None, true));
    }
}
