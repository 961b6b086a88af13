//! Which block of a file next.

use super::{Pattern, Region};
use crate::Random;

/// Goes through the blocks of a file; a rest at its end that is no whole block is left alone.
pub(super) struct Blocks {
    block: u64,
    count: u64,
    order: Pattern,
    first: u64,
    step: u64,
    next: u64,
    random: Random,
}

impl Blocks {
    pub(super) fn new(file: Region, block: u64, order: Pattern, seed: u64) -> Self {
        let count = file.bytes / block;
        assert!(count > 0, "blocks of {block} bytes in a file of {}", file.bytes);
        Self { block, count, order, first: 0, step: 1, next: 0, random: Random::new(seed) }
    }

    /// Every `step`th block from `first` on, and again.
    pub(super) fn every(file: Region, block: u64, first: u64, step: u64) -> Self {
        let all = Self::new(file, block, Pattern::Sequential, 0);
        // In a file of fewer blocks than processes, several read the same one.
        let first = first % all.count;
        Self { first, step, next: first, ..all }
    }

    /// The offset of the next block, in bytes.
    pub(super) const fn next(&mut self) -> u64 {
        let index = match self.order {
            Pattern::Random => self.random.below(self.count),
            Pattern::Sequential => {
                let index = self.next;
                self.next = if index + self.step < self.count { index + self.step } else { self.first };
                index
            }
        };
        index * self.block
    }
}
