//! Pages: a random reader through the page cache.
//!
//! pages.1  Each `read()` of a block asks for the pages that it touches, and no more: random reads have no read-ahead.
//! pages.2  An operation is one `read()`: until its pages have come and are copied.
//!
//! Not modelled: pages found in memory from before, as if the page cache were much smaller than the file.

use fairlift_core::program::{Ask, Meter, Program};
use fairlift_core::{Duration, Flags, Instant, Op, Outcome};

use super::blocks::Blocks;
use super::{PAGE, Pattern, Region, copying};

/// A buffered random reader: see the [module](self).
pub struct Pages {
    file: Region,
    block: u64,
    think: Duration,
    blocks: Blocks,
    step: State,
    meter: Meter,
}

#[derive(Clone, Copy)]
enum State {
    /// Reads again from then on.
    Thinks(Instant),
    /// Since then, for pages.
    Waits(Instant),
    /// The read that began then is copied until then.
    Copies(Instant, Instant),
}

impl Pages {
    /// Starts at once; reads `block` bytes at a time and thinks for `think` between reads.
    ///
    /// # Panics
    /// If the file has no whole block.
    #[must_use]
    pub fn new(file: Region, block: u64, think: Duration, seed: u64) -> Self {
        let blocks = Blocks::new(file, block, Pattern::Random, seed);
        Self { file, block, think, blocks, step: State::Thinks(Instant::ZERO), meter: Meter::default() }
    }
}

impl Program for Pages {
    fn poll_ask(&mut self, now: Instant) -> Option<Ask> {
        if let State::Copies(began, until) = self.step
            && until <= now
        {
            self.meter.ended(self.block, Outcome::Done, until.since(began)); // pages.2
            self.step = State::Thinks(until + self.think);
        }
        let State::Thinks(from) = self.step else { return None };
        if from > now {
            return None;
        }
        self.step = State::Waits(now);
        let offset = self.blocks.next();
        let (start, end) = (offset / PAGE * PAGE, (offset + self.block).next_multiple_of(PAGE)); // pages.1
        Some(Ask { token: 0, op: Op::Read, flags: Flags::NONE, extent: self.file.extent(start, end - start) })
    }

    fn handle_end(&mut self, now: Instant, _token: u32, outcome: Outcome) {
        let State::Waits(began) = self.step else { panic!("an end that nobody waits for") };
        self.step = match outcome {
            Outcome::Done => State::Copies(began, now + copying(self.block)),
            Outcome::Failed(_) => {
                self.meter.ended(self.block, outcome, now.since(began));
                State::Thinks(now + self.think)
            }
        };
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self.step {
            State::Thinks(at) | State::Copies(_, at) => Some(at),
            State::Waits(_) => None,
        }
    }

    fn meter(&self) -> &Meter {
        &self.meter
    }

    fn open_since(&self) -> Option<Instant> {
        match self.step {
            State::Waits(began) | State::Copies(began, _) => Some(began),
            State::Thinks(_) => None,
        }
    }
}
