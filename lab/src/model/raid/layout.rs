//! Which disk holds what.
//!
//! layout.1  A stripe is one chunk of each disk, at the same place on all. RAID 5 and 6 keep one or two of them for parity.
//! layout.2  Left-symmetric, as Linux md's default: parity moves one disk to the left with every stripe, and data starts right
//!     of it; a sequential reader meets all disks in turn. RAID 6 keeps its second parity right of the first.

/// Where things lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) disks: u64,
    /// Chunks of a stripe that are parity.
    pub(super) parity: u64,
    /// Sectors.
    pub(super) chunk: u64,
}

/// A run of sectors within one chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    pub(super) stripe: u64,
    /// Which data chunk of the stripe.
    pub(super) index: u64,
    /// Within the chunk.
    pub(super) from: u64,
    pub(super) to: u64,
}

impl Layout {
    pub(super) const fn data(&self) -> u64 {
        self.disks - self.parity
    }

    /// Sectors of data in a stripe.
    pub(super) const fn stripe(&self) -> u64 {
        self.chunk * self.data()
    }

    /// Sectors that each disk must have.
    pub(super) const fn each(&self, sectors: u64) -> u64 {
        sectors.div_ceil(self.stripe()) * self.chunk
    }

    /// The first piece of the extent from `start` to `end`.
    pub(super) fn piece(&self, start: u64, end: u64) -> Piece {
        let (chunk, from) = (start / self.chunk, start % self.chunk);
        let to = (from + (end - start)).min(self.chunk);
        Piece { stripe: chunk / self.data(), index: chunk % self.data(), from, to }
    }

    /// All pieces of the extent from `start` to `end`.
    pub(super) fn pieces(self, start: u64, end: u64) -> impl Iterator<Item = Piece> {
        let mut at = start;
        std::iter::from_fn(move || {
            let piece = (at < end).then(|| self.piece(at, end))?;
            at += piece.to - piece.from;
            Some(piece)
        })
    }

    /// The disk of a stripe's data chunk (layout.2).
    pub(super) const fn disk(&self, stripe: u64, index: u64) -> usize {
        if self.parity == 0 {
            return (index % self.disks) as usize;
        }
        ((self.parity_at(stripe) + self.parity + index) % self.disks) as usize
    }

    /// The disk of a stripe's parity chunk (layout.2).
    pub(super) const fn parity_disk(&self, stripe: u64, index: u64) -> usize {
        ((self.parity_at(stripe) + index) % self.disks) as usize
    }

    const fn parity_at(&self, stripe: u64) -> u64 {
        self.disks - 1 - stripe % self.disks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIVE: Layout = Layout { disks: 4, parity: 1, chunk: 8 };

    /// layout.2: the picture of md(4).
    #[test]
    fn left_symmetric_is_the_picture_that_everyone_knows() {
        let picture: Vec<String> = (0..4)
            .map(|stripe| {
                let mut row = vec![String::new(); 4];
                (0..3).for_each(|index| row[FIVE.disk(stripe, index)] = (stripe * 3 + index).to_string());
                row[FIVE.parity_disk(stripe, 0)] = "P".into();
                row.join(" ")
            })
            .collect();
        assert_eq!(picture, ["0 1 2 P", "4 5 P 3", "8 P 6 7", "P 9 10 11"]);
    }

    /// layout.1.
    #[test]
    fn every_stripe_uses_each_disk_once() {
        for (disks, parity) in [(3, 0), (3, 1), (4, 2), (12, 1), (12, 2)] {
            let layout = Layout { disks, parity, chunk: 8 };
            for stripe in 0..30 {
                let data = (0..layout.data()).map(|index| layout.disk(stripe, index));
                let mut all: Vec<_> = data.chain((0..parity).map(|index| layout.parity_disk(stripe, index))).collect();
                all.sort_unstable();
                assert_eq!(all, (0..disks as usize).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn pieces_cover_a_run_and_stay_within_chunks() {
        let pieces: Vec<_> = FIVE.pieces(5, 27).collect();
        let seen: Vec<_> = pieces.iter().map(|p| (p.stripe, p.index, p.from, p.to)).collect();
        assert_eq!(seen, [(0, 0, 5, 8), (0, 1, 0, 8), (0, 2, 0, 8), (1, 0, 0, 3)]);
        assert_eq!(FIVE.pieces(5, 5).count(), 0);
    }
}
