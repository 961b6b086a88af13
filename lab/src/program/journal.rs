//! Journal: a file system's journaling thread, for which every sync waits.
//!
//! journal.1  A commit writes its log blocks in one go (1 to 16 by chance), flushes the disk, and writes the commit block with FUA:
//!     as ext4's jbd2 does for a file system on one disk.
//! journal.2  Commits lie one after another in the journal; at its end it starts again.
//! journal.3  An operation is one commit. The next one begins at once, or after `think`.

use fairlift_core::program::{Ask, Meter, Program};
use fairlift_core::{Duration, Extent, Flags, Instant, Op, Outcome};

use super::Region;
use crate::Random;

/// The most blocks that a commit logs (journal.1). An estimate: what a small transaction of ext4 touches.
pub(crate) const BLOCKS_MAX: u64 = 16;

/// Commits: see the [module](self).
pub struct Journal {
    file: Region,
    block: u64,
    think: Duration,
    /// Where the next write goes, in blocks, and how many there are.
    next: u64,
    count: u64,
    /// Blocks of the present commit.
    blocks: u64,
    began: Instant,
    step: State,
    random: Random,
    meter: Meter,
}

/// What comes next, or is under way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Log,
    Flush,
    Commit,
    Asked(Next),
}

/// What follows when that which is under way ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Flush,
    Commit,
    End,
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
        Self {
            file,
            block,
            think,
            next: 0,
            count,
            blocks: 0,
            began: Instant::ZERO,
            step: State::Log,
            random: Random::new(seed),
            meter: Meter::default(),
        }
    }

    fn write(&mut self, blocks: u64, flags: Flags) -> Ask {
        let extent = self.file.extent(self.next * self.block, blocks * self.block);
        self.next = (self.next + blocks) % self.count; // journal.2
        Ask { token: 0, op: Op::Write, flags: flags | Flags::SYNC | Flags::META | Flags::PRIO, extent }
    }

    fn ended(&mut self, now: Instant, outcome: Outcome) {
        self.meter.ended((self.blocks + 1) * self.block, outcome, now.since(self.began)); // journal.3
        self.began = now + self.think;
        self.step = State::Log;
    }
}

impl Program for Journal {
    fn poll_ask(&mut self, now: Instant) -> Option<Ask> {
        match self.step {
            State::Log if self.began <= now => {
                let wanted = 1 + self.random.below(BLOCKS_MAX);
                self.blocks = wanted.min(self.count - self.next); // journal.1
                self.step = State::Asked(Next::Flush);
                Some(self.write(self.blocks, Flags::NONE))
            }
            State::Flush => {
                self.step = State::Asked(Next::Commit);
                Some(Ask { token: 0, op: Op::Flush, flags: Flags::NONE, extent: Extent::NONE })
            }
            State::Commit => {
                self.step = State::Asked(Next::End);
                Some(self.write(1, Flags::FUA))
            }
            State::Log | State::Asked(_) => None,
        }
    }

    fn handle_end(&mut self, now: Instant, _token: u32, outcome: Outcome) {
        let State::Asked(next) = self.step else { panic!("an end that nobody waits for") };
        match next {
            _ if outcome != Outcome::Done => self.ended(now, outcome),
            Next::Flush => self.step = State::Flush,
            Next::Commit => self.step = State::Commit,
            Next::End => self.ended(now, outcome),
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        (self.step == State::Log).then_some(self.began)
    }

    fn meter(&self) -> &Meter {
        &self.meter
    }

    fn open_since(&self) -> Option<Instant> {
        Some(self.began)
    }
}
