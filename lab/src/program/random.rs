//! Which block next.

use super::{File, Order};
use crate::Random;

/// Goes through the blocks of a file.
pub(super) struct Blocks {
    file: File,
    block: u64,
    order: Order,
    next: u64,
    random: Random,
}

impl Blocks {
    pub(super) const fn new(file: File, block: u64, order: Order, seed: u64) -> Self {
        Self { file, block, order, next: 0, random: Random::new(seed) }
    }

    /// The offset of the next block, in bytes.
    pub(super) const fn next(&mut self) -> u64 {
        let blocks = self.file.blocks(self.block);
        let index = match self.order {
            Order::Random => self.random.below(blocks),
            Order::Sequential => {
                let index = self.next;
                self.next = if index + 1 < blocks { index + 1 } else { 0 };
                index
            }
        };
        index * self.block
    }
}
