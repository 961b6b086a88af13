//! Journal: a file system's journaling thread, for which every sync waits.
//!
//! journal.1  A commit writes its log blocks in one go (1 to 16 by chance), flushes the disk, and writes the commit block with FUA:
//!     as ext4's jbd2 does for a file system on one disk.
//! journal.2  Commits lie one after another in the journal; at its end it starts again.
//! journal.3  An operation is one commit. The next one begins at once, or after `think`.

use fairlift_core::{Duration, Flags};

use super::Region;
use super::in_turn::{FLUSH, InTurn, write};
use crate::Random;

/// The most blocks that a commit logs (journal.1). An estimate: what a small transaction of ext4 touches.
pub(crate) const BLOCKS_MAX: u64 = 16;

/// Commits: see the [module](self). It starts at once.
///
/// # Panics
/// If the file has less than two blocks.
#[must_use]
pub fn journal(file: Region, block: u64, think: Duration, seed: u64) -> InTurn {
    let count = file.bytes / block;
    assert!(count >= 2, "a journal of {count} blocks");
    let mut random = Random::new(seed);
    // Where the next write goes, in blocks.
    let mut next = 0;
    InTurn::new(think, move |actions| {
        let blocks = (1 + random.below(BLOCKS_MAX)).min(count - next); // journal.1
        let mut write_next = |blocks: u64, flags: Flags| {
            let extent = file.extent(next * block, blocks * block);
            next = (next + blocks) % count; // journal.2
            write(extent, flags | Flags::META | Flags::PRIO)
        };
        actions.extend([write_next(blocks, Flags::NONE), FLUSH, write_next(1, Flags::FUA)]);
        (blocks + 1) * block
    })
}
