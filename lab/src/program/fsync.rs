//! Fsync: writes a block and makes it durable, again and again: a database's log.
//!
//! fsync.1  A block is written, and when the write has ended the disk is flushed; by FUA both are one write.
//! fsync.2  An operation is both: until the block is durable.
//! fsync.3  Each block comes after the one before; at the end of the file it starts again.

use fairlift_core::{Duration, Flags};

use super::blocks::Blocks;
use super::in_turn::{Action, FLUSH, InTurn, write};
use super::{Pattern, Region, copying};

/// Writes and flushes: see the [module](self). It starts at once.
///
/// # Panics
/// If the file has no whole block.
#[must_use]
pub fn fsync(file: Region, block: u64, fua: bool, think: Duration) -> InTurn {
    let mut blocks = Blocks::new(file, block, Pattern::Sequential, 0); // fsync.3
    InTurn::new(think, move |actions| {
        let extent = file.extent(blocks.next(), block);
        actions.push_back(Action::Work(copying(block)));
        if fua {
            actions.push_back(write(extent, Flags::FUA));
        } else {
            actions.extend([write(extent, Flags::NONE), FLUSH]); // fsync.1
        }
        block
    })
}
