//! Writes to a stripe, the reads for its parity, and the cache that collects them.
//!
//! stripe.1  A stripe that is written whole needs no reads. Otherwise the new parity comes from the old data and the old parity
//!     (read-modify-write), or from the rest of the stripe, whichever needs fewer reads.
//! stripe.2  A missing disk's part is not written; its old content cannot be read. Without its parity a stripe is written
//!     as it is.

use std::collections::VecDeque;

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
    /// In order of stripes.
    order: Vec<(u64, u32)>,
    slots: Vec<Spans>,
    free: Vec<u32>,
    complete: VecDeque<u64>,
    /// When stripes came in.
    came: VecDeque<(u64, u64)>,
    sectors: u64,
    hand: u64,
}

/// The most stripes in the cache. Chosen: scattered small writes reach it, others the bound of memory first.
const STRIPES: usize = 4096;

impl Cache {
    pub(super) fn new(on: bool) -> Self {
        let stripes = if on { STRIPES } else { 0 };
        Self {
            order: Vec::with_capacity(stripes),
            slots: vec![Spans::NONE; stripes],
            free: (0..stripes as u32).rev().collect(),
            complete: VecDeque::with_capacity(stripes),
            came: VecDeque::with_capacity(stripes),
            sectors: 0,
            hand: 0,
        }
    }

    pub(super) const fn sectors(&self) -> u64 {
        self.sectors
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Whether it is about as many stripes as it can keep apart.
    pub(super) const fn is_crowded(&self) -> bool {
        self.order.len() * 4 > STRIPES * 3
    }

    /// Whether a write of `stripes` finds place.
    pub(super) const fn has_place(&self, stripes: usize) -> bool {
        self.free.len() >= stripes
    }

    pub(super) fn add(&mut self, now: u64, layout: &Layout, piece: &Piece) {
        let slot = match self.order.binary_search_by_key(&piece.stripe, |entry| entry.0) {
            Ok(at) => self.order[at].1,
            Err(at) => {
                let Some(slot) = self.free.pop() else { return };
                self.slots[slot as usize] = Spans::NONE;
                self.order.insert(at, (piece.stripe, slot));
                self.came.push_back((now, piece.stripe));
                slot
            }
        };
        let spans = &mut self.slots[slot as usize];
        let more = spans.add(piece);
        self.sectors += more;
        if more > 0 && spans.sectors() == layout.stripe() {
            self.complete.push_back(piece.stripe);
        }
    }

    pub(super) fn covers(&self, piece: &Piece) -> bool {
        let at = self.order.binary_search_by_key(&piece.stripe, |entry| entry.0);
        at.is_ok_and(|at| self.slots[self.order[at].1 as usize].covers(piece))
    }

    /// Not later than when the oldest stripe came in.
    pub(super) fn came_first(&self) -> Option<u64> {
        self.came.front().map(|(at, _)| *at)
    }

    /// When the oldest stripe came in.
    pub(super) fn oldest(&mut self) -> Option<u64> {
        while let Some(&(at, stripe)) = self.came.front() {
            if self.order.binary_search_by_key(&stripe, |entry| entry.0).is_ok() {
                return Some(at);
            }
            self.came.pop_front();
        }
        None
    }

    /// Takes out a complete stripe.
    pub(super) fn take_complete(&mut self) -> Option<(u64, Spans)> {
        while let Some(stripe) = self.complete.pop_front() {
            if let Ok(at) = self.order.binary_search_by_key(&stripe, |entry| entry.0) {
                return Some(self.take(at));
            }
        }
        None
    }

    /// Takes out the next stripe in rising order.
    pub(super) fn take_next(&mut self) -> Option<(u64, Spans)> {
        if self.order.is_empty() {
            return None;
        }
        let at = self.order.partition_point(|entry| entry.0 < self.hand);
        Some(self.take(if at == self.order.len() { 0 } else { at }))
    }

    fn take(&mut self, at: usize) -> (u64, Spans) {
        let (stripe, slot) = self.order.remove(at);
        self.free.push(slot);
        self.hand = stripe + 1;
        let spans = self.slots[slot as usize];
        self.sectors -= spans.sectors();
        (stripe, spans)
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
        let mut cache = Cache::new(true);
        LAYOUT.pieces(0, 8).for_each(|piece| cache.add(1, &LAYOUT, &piece));
        LAYOUT.pieces(64, 128).for_each(|piece| cache.add(2, &LAYOUT, &piece));
        assert_eq!(cache.sectors(), 72);
        assert_eq!(cache.take_complete().map(|(stripe, _)| stripe), Some(1));
        assert!(cache.take_complete().is_none());
        assert_eq!(cache.oldest(), Some(1));
        assert_eq!(cache.take_next().map(|(stripe, _)| stripe), Some(0));
        assert_eq!((cache.sectors(), cache.oldest(), cache.is_empty()), (0, None, true));
    }
}
