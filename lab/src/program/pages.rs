//! Pages: a random reader through the page cache.
//!
//! pages.1  Each `read()` of a block asks for the pages that it touches, and no more: random reads have no read-ahead.
//! pages.2  An operation is one `read()`: until its pages have come and are copied.
//!
//! Not modelled: pages found in memory from before, as if the page cache were much smaller than the file.

use std::collections::VecDeque;

use fairlift_core::{Duration, Flags, Op};

use super::blocks::Blocks;
use super::in_turn::{Action, InTurn, Operations, ask};
use super::{PAGE, Pattern, Region, copying};

/// A buffered random reader: see the [module](self).
pub type Pages = InTurn<PageReads>;

/// The operations of [`Pages`].
pub struct PageReads {
    file: Region,
    block: u64,
    blocks: Blocks,
}

impl Pages {
    /// Starts at once; reads `block` bytes at a time and thinks for `think` between reads.
    ///
    /// # Panics
    /// If the file has no whole block.
    #[must_use]
    pub fn new(file: Region, block: u64, think: Duration, seed: u64) -> Self {
        let blocks = Blocks::new(file, block, Pattern::Random, seed);
        Self::of(PageReads { file, block, blocks }, think)
    }
}

impl Operations for PageReads {
    fn plan(&mut self, actions: &mut VecDeque<Action>) -> u64 {
        let offset = self.blocks.next();
        let (start, end) = (offset / PAGE * PAGE, (offset + self.block).next_multiple_of(PAGE)); // pages.1
        let read = ask(Op::Read, self.file.extent(start, end - start), Flags::NONE);
        actions.extend([read, Action::Work(copying(self.block))]); // pages.2
        self.block
    }
}
