//! Open loop: requests come by the clock, however the disk keeps up: many users, and none waits for another.
//!
//! open_loop.1  Arrivals follow from the seed alone, one every 1/`rate` s on average (Poisson).
//! open_loop.2  An operation is one block, from its arrival to its end: the time that it waits to be asked counts.
//! open_loop.3  At most 1024 are asked at a time, each by itself, as a server has a bounded number of connections; later ones wait in
//! order.

use fairlift_core::program::{Ask, Meter, Program};
use fairlift_core::time::secs;
use fairlift_core::{Duration, Flags, Instant, Op, Outcome};
use slab::Slab;

use super::blocks::Blocks;
use super::{Pattern, Region};
use crate::Random;

/// Requests that one program asks at a time (open_loop.3). Chosen.
const IN_FLIGHT: usize = 1024;

/// Asks by the clock: see the [module](self).
pub struct OpenLoop {
    file: Region,
    op: Op,
    block: u64,
    blocks: Blocks,
    mean: Duration,
    random: Random,
    /// When the first came, or comes, that was not asked. Those behind it are not drawn before it is asked, however many
    /// wait: open_loop.1 holds whenever they are.
    next: Instant,
    /// By token: when that which is under way came.
    came: Slab<Instant>,
    meter: Meter,
}

impl OpenLoop {
    /// The arrivals a second, from the start on.
    ///
    /// # Panics
    /// If the rate is 0 or the file has no whole block.
    #[must_use]
    pub fn new(op: Op, order: Pattern, rate: u32, file: Region, block: u64, seed: u64) -> Self {
        assert!(rate > 0, "nobody ever comes");
        let mut random = Random::new(seed);
        let blocks = Blocks::new(file, block, order, random.bits());
        let mean = Duration::from_nanos(secs(1).as_nanos() / u64::from(rate));
        let next = Instant::ZERO + random.exponential(mean);
        Self {
            file,
            op,
            block,
            blocks,
            mean,
            random,
            next,
            came: Slab::with_capacity(IN_FLIGHT),
            meter: Meter::default(),
        }
    }
}

impl Program for OpenLoop {
    fn poll_ask(&mut self, now: Instant) -> Option<Ask> {
        if self.next > now || self.came.len() == IN_FLIGHT {
            return None; // open_loop.3
        }
        let token = self.came.insert(self.next) as u32;
        self.next += self.random.exponential(self.mean).max(Duration::from_nanos(1)); // open_loop.1
        let flags = if self.op == Op::Write { Flags::SYNC } else { Flags::NONE };
        Some(Ask { token, op: self.op, flags, extent: self.file.extent(self.blocks.next(), self.block) })
    }

    fn handle_end(&mut self, now: Instant, token: u32, outcome: Outcome) {
        let came = self.came.remove(token as usize);
        self.meter.ended(self.block, outcome, now.since(came)); // open_loop.2
    }

    fn poll_timeout(&self) -> Option<Instant> {
        // Without a place it waits for an end (open_loop.3).
        (self.came.len() < IN_FLIGHT).then_some(self.next)
    }

    fn meter(&self) -> &Meter {
        &self.meter
    }

    fn asks_one_by_one(&self) -> bool {
        true // open_loop.3
    }

    fn open_since(&self) -> Option<Instant> {
        // A request that waits to be asked came after all that were.
        Some(self.came.iter().map(|(_, came)| *came).min().unwrap_or(self.next))
    }
}
