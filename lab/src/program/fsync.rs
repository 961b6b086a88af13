//! Fsync: writes a block and makes it durable, again and again: a database's log.
//!
//! fsync.1  A block is written, and when the write has ended the disk is flushed; by FUA both are one write.
//! fsync.2  An operation is both: until the block is durable.
//! fsync.3  Each block comes after the one before; at the end of the file it starts again.

use std::collections::VecDeque;

use fairlift_core::{Duration, Flags};

use super::blocks::Blocks;
use super::in_turn::{Action, FLUSH, InTurn, Operations, write};
use super::{Pattern, Region, copying};

/// Writes and flushes: see the [module](self).
pub type Fsync = InTurn<Writes>;

/// The operations of [`Fsync`].
pub struct Writes {
    file: Region,
    block: u64,
    fua: bool,
    blocks: Blocks,
}

impl Fsync {
    /// Starts at once.
    ///
    /// # Panics
    /// If the file has no whole block.
    #[must_use]
    pub fn new(file: Region, block: u64, fua: bool, think: Duration) -> Self {
        let blocks = Blocks::new(file, block, Pattern::Sequential, 0); // fsync.3
        Self::of(Writes { file, block, fua, blocks }, think)
    }
}

impl Operations for Writes {
    fn plan(&mut self, actions: &mut VecDeque<Action>) -> u64 {
        let extent = self.file.extent(self.blocks.next(), self.block);
        actions.push_back(Action::Work(copying(self.block)));
        if self.fua {
            actions.push_back(write(extent, Flags::FUA));
        } else {
            actions.extend([write(extent, Flags::NONE), FLUSH]); // fsync.1
        }
        self.block
    }
}
