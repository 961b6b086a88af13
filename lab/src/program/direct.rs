//! Direct: reads or writes blocks past the page cache, so many at a time.
//!
//! P1  It keeps `depth` requests in flight: when one ends, it thinks for `think`, and asks the next.
//! P2  An operation is one block, from its asking to its end.
//! P3  Requests are handed over one by one, as by `io_submit`: what it asks at one instant is no batch.

use std::collections::VecDeque;

use fairlift_core::program::{Ask, Meter, Program};
use fairlift_core::{Duration, Flags, Instant, Op, Outcome};

use super::blocks::Blocks;
use super::{File, Order};

/// What it does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Reads or writes.
    pub op: Op,
    /// Through the file.
    pub order: Order,
    /// Bytes at a time: whole sectors, no more than the file has.
    pub block: u64,
    /// Requests in flight; at least 1.
    pub depth: u32,
    /// Time between the end of a request and the next.
    pub think: Duration,
}

/// Reads or writes past the page cache: see the [module](self).
pub struct Direct {
    settings: Settings,
    file: File,
    blocks: Blocks,
    /// Tokens that may be used again, and from when on; the think time is the same for all, so they are in order.
    thinking: VecDeque<(Instant, u32)>,
    /// By token: since when it is under way.
    asked: Vec<Option<Instant>>,
    meter: Meter,
}

impl Direct {
    /// Starts at once.
    ///
    /// # Panics
    /// If the depth is 0.
    #[must_use]
    pub fn new(settings: Settings, file: File, seed: u64) -> Self {
        Self::over(settings, file, Blocks::new(file, settings.block, settings.order, seed))
    }

    /// Goes through every `of`th block of its file from block `index` on: one of `of` programs whose reads together are
    /// one sequential run. The order in `settings` does not count.
    ///
    /// # Panics
    /// If the depth is 0, or `index` is not below `of`.
    #[must_use]
    pub fn interleaved(settings: Settings, file: File, index: u64, of: u64) -> Self {
        assert!(index < of, "process {index} of {of}");
        Self::over(settings, file, Blocks::every(file, settings.block, index, of))
    }

    fn over(settings: Settings, file: File, blocks: Blocks) -> Self {
        assert!(settings.depth > 0, "a program that asks nothing");
        Self {
            settings,
            file,
            blocks,
            thinking: (0..settings.depth).map(|token| (Instant::ZERO, token)).collect(),
            asked: vec![None; settings.depth as usize],
            meter: Meter::default(),
        }
    }
}

impl Program for Direct {
    fn poll_ask(&mut self, now: Instant) -> Option<Ask> {
        let (_, token) = self.thinking.pop_front_if(|(from, _)| *from <= now)?; // P1
        self.asked[token as usize] = Some(now);
        // Direct writes are waited for (`REQ_SYNC`); reads always are.
        let flags = if self.settings.op == Op::Write { Flags::SYNC } else { Flags::NONE };
        let extent = self.file.extent(self.blocks.next(), self.settings.block);
        Some(Ask { token, op: self.settings.op, flags, extent })
    }

    fn handle_end(&mut self, now: Instant, token: u32, outcome: Outcome) {
        let asked = self.asked[token as usize].take().expect("it was asked");
        self.meter.ended(self.settings.block, outcome, now.since(asked)); // P2
        self.thinking.push_back((now + self.settings.think, token));
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.thinking.front().map(|(from, _)| *from)
    }

    fn meter(&self) -> &Meter {
        &self.meter
    }

    fn asks_one_by_one(&self) -> bool {
        true // P3
    }

    fn open_since(&self) -> Option<Instant> {
        self.asked.iter().flatten().min().copied()
    }
}
