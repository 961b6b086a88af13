//! Fsync: writes a block and makes it durable, again and again: a database's log, a mail server.
//!
//! fsync.1  A block is written, and when the write has ended the disk is flushed; by FUA both are one write.
//! fsync.2  An operation is both: until the block is durable.
//! fsync.3  Each block comes after the one before; at the end of the file it starts again.

use fairlift_core::program::{Ask, Meter, Program};
use fairlift_core::{Duration, Extent, Flags, Instant, Op, Outcome};

use super::blocks::Blocks;
use super::{Pattern, Region, copying};

/// Writes and flushes: see the [module](self).
pub struct Fsync {
    file: Region,
    block: u64,
    fua: bool,
    think: Duration,
    blocks: Blocks,
    began: Instant,
    step: State,
    meter: Meter,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// The next operation begins; its write goes out when it is copied.
    Thinks(Instant),
    Writes,
    Written,
    Flushes,
}

impl Fsync {
    /// Starts at once.
    ///
    /// # Panics
    /// If the file has no whole block.
    #[must_use]
    pub fn new(file: Region, block: u64, fua: bool, think: Duration) -> Self {
        let blocks = Blocks::new(file, block, Pattern::Sequential, 0); // fsync.3
        let first = Instant::ZERO + copying(block);
        let step = State::Thinks(first);
        Self { file, block, fua, think, blocks, began: Instant::ZERO, step, meter: Meter::default() }
    }

    fn ended(&mut self, now: Instant, outcome: Outcome) {
        self.meter.ended(self.block, outcome, now.since(self.began)); // fsync.2
        self.began = now + self.think;
        self.step = State::Thinks(self.began + copying(self.block));
    }
}

impl Program for Fsync {
    fn poll_ask(&mut self, now: Instant) -> Option<Ask> {
        match self.step {
            State::Thinks(until) if until <= now => {
                self.step = State::Writes;
                let flags = if self.fua { Flags::SYNC | Flags::FUA } else { Flags::SYNC };
                let extent = self.file.extent(self.blocks.next(), self.block);
                Some(Ask { token: 0, op: Op::Write, flags, extent })
            }
            State::Written => {
                self.step = State::Flushes;
                Some(Ask { token: 0, op: Op::Flush, flags: Flags::NONE, extent: Extent::NONE })
            }
            State::Thinks(_) | State::Writes | State::Flushes => None,
        }
    }

    fn handle_end(&mut self, now: Instant, _token: u32, outcome: Outcome) {
        if self.step == State::Writes && !self.fua && outcome == Outcome::Done {
            self.step = State::Written; // fsync.1
        } else {
            self.ended(now, outcome);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self.step {
            State::Thinks(until) => Some(until),
            State::Writes | State::Written | State::Flushes => None,
        }
    }

    fn meter(&self) -> &Meter {
        &self.meter
    }

    fn open_since(&self) -> Option<Instant> {
        Some(self.began)
    }
}
