//! Journal: a file system's journaling thread, for which every sync waits.
//!
//! journal.1  A commit writes its log blocks in one go (1 to 16 by chance), flushes the disk, and writes the commit block with FUA:
//!     as ext4's jbd2 does for a file system on one disk.
//! journal.2  Commits lie one after another in the journal; at its end it starts again.
//! journal.3  An operation is one commit. The next one begins at once, or after `think`.

use std::collections::VecDeque;

use fairlift_core::{Duration, Flags};

use super::Region;
use super::in_turn::{Action, FLUSH, InTurn, Operations, write};
use crate::Random;

/// The most blocks that a commit logs (journal.1). An estimate: what a small transaction of ext4 touches.
pub(crate) const BLOCKS_MAX: u64 = 16;

/// Commits: see the [module](self).
pub type Journal = InTurn<Commits>;

/// The operations of [`Journal`].
pub struct Commits {
    file: Region,
    block: u64,
    /// Where the next write goes, in blocks, and how many there are.
    next: u64,
    count: u64,
    random: Random,
}

impl Journal {
    /// Starts at once.
    ///
    /// # Panics
    /// If the file has less than two blocks.
    #[must_use]
    pub fn new(file: Region, block: u64, think: Duration, seed: u64) -> Self {
        let count = file.bytes / block;
        assert!(count >= 2, "a journal of {count} blocks");
        Self::of(Commits { file, block, next: 0, count, random: Random::new(seed) }, think)
    }
}

impl Commits {
    fn write(&mut self, blocks: u64, flags: Flags) -> Action {
        let extent = self.file.extent(self.next * self.block, blocks * self.block);
        self.next = (self.next + blocks) % self.count; // journal.2
        write(extent, flags | Flags::META | Flags::PRIO)
    }
}

impl Operations for Commits {
    fn plan(&mut self, actions: &mut VecDeque<Action>) -> u64 {
        let blocks = (1 + self.random.below(BLOCKS_MAX)).min(self.count - self.next); // journal.1
        let log = self.write(blocks, Flags::NONE);
        actions.extend([log, FLUSH, self.write(1, Flags::FUA)]);
        (blocks + 1) * self.block
    }
}
