//! Limits of a device, and the cutting of a bio to fit them.
//!
//! limits.1  No request is longer than its operation's maximum.
//! limits.2  No request crosses a boundary, where the device has one.
//! limits.3  A cut keeps pieces whole blocks, because maxima and boundaries are.

use crate::{Extent, Op};

/// Limits of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The device's size in sectors: no extent goes beyond.
    pub capacity: u64,
    /// The device's own block, in sectors: extents start and end on its multiples. At least 1.
    pub block: u32,
    /// The longest read or write, in sectors.
    pub rw_max: u32,
    /// The longest discard, in sectors; 0 where the device cannot discard.
    pub discard_max: u64,
    /// The longest write of zeroes, in sectors; 0 where the device cannot.
    pub write_zeroes_max: u64,
    /// The most pieces of memory that one request may have.
    pub segments_max: u16,
    /// Distance of lines, in sectors, that no request crosses (a stripe of an array); 0: none.
    pub boundary: u64,
}

impl Limits {
    /// A device of `capacity` sectors that takes 1 MiB at a time in 128 pieces, and a gibibyte of discards or zeroes.
    #[must_use]
    pub const fn new(capacity: u64) -> Self {
        Self {
            capacity,
            block: 1,
            rw_max: 2048,
            discard_max: 1 << 21,
            write_zeroes_max: 1 << 21,
            segments_max: 128,
            boundary: 0,
        }
    }

    /// The longest request of an operation, in sectors; 0 where the device cannot do it.
    #[inline]
    #[must_use]
    pub fn max(&self, op: Op) -> u64 {
        if op.has_payload() { self.rw_max.into() } else { self.max_without_payload(op) }
    }

    #[cold]
    fn max_without_payload(&self, op: Op) -> u64 {
        match op {
            Op::Discard => self.discard_max,
            Op::WriteZeroes => self.write_zeroes_max,
            Op::Read | Op::Write | Op::Flush => 0,
        }
    }

    /// How much of `extent`, from its start, one request can take: all of it or a first piece. Never 0.
    #[must_use]
    pub fn first_cut(&self, op: Op, extent: Extent) -> u64 {
        let mut cut = extent.sectors.min(self.max(op)); // limits.1
        if self.boundary != 0 {
            cut = cut.min(self.boundary - extent.start.0 % self.boundary); // limits.2
        }
        assert!(cut > 0, "a cut of nothing from {extent:?}: the limits of {op:?} allow no piece");
        cut
    }

    /// Whether one request may cover the whole of `extent`.
    #[inline]
    #[must_use]
    pub fn fits(&self, op: Op, extent: Extent) -> bool {
        extent.sectors <= self.max(op) && (self.boundary == 0 || extent.sectors == self.first_cut(op, extent))
    }

    /// Whether `extent` is whole blocks.
    #[must_use]
    pub fn aligned(&self, extent: Extent) -> bool {
        let block = u64::from(self.block);
        // Most devices have a block of one sector: the test keeps two divisions off their path.
        block == 1 || extent.start.0.is_multiple_of(block) && extent.sectors.is_multiple_of(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sector;

    fn pieces(limits: &Limits, op: Op, mut extent: Extent) -> alloc::vec::Vec<(u64, u64)> {
        let mut pieces = alloc::vec![];
        while extent.sectors > 0 {
            let cut = limits.first_cut(op, extent);
            pieces.push((extent.start.0, cut));
            extent = Extent::new(Sector(extent.start.0 + cut), extent.sectors - cut);
        }
        pieces
    }

    /// limits.1
    #[test]
    fn a_long_read_is_cut_into_the_longest_pieces() {
        let limits = Limits { rw_max: 8, ..Limits::new(1000) };
        assert_eq!(pieces(&limits, Op::Read, Extent::new(Sector(3), 20)), [(3, 8), (11, 8), (19, 4)]);
    }

    /// limits.2
    #[test]
    fn no_piece_crosses_a_stripe() {
        let limits = Limits { rw_max: 100, boundary: 16, ..Limits::new(1000) };
        assert_eq!(pieces(&limits, Op::Write, Extent::new(Sector(10), 30)), [(10, 6), (16, 16), (32, 8)]);
        assert!(!limits.fits(Op::Write, Extent::new(Sector(15), 2)), "15 and 16 are in different stripes");
    }

    #[test]
    fn half_blocks_are_not_aligned() {
        let limits = Limits { block: 8, ..Limits::new(1000) };
        assert!(limits.aligned(Extent::new(Sector(16), 8)));
        assert!(!limits.aligned(Extent::new(Sector(12), 8)));
        assert!(!limits.aligned(Extent::new(Sector(16), 4)));
        let odd = Limits { block: 3, ..Limits::new(1000) };
        assert!(odd.aligned(Extent::new(Sector(6), 9)));
    }
}
