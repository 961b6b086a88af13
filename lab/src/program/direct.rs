//! Direct: reads or writes blocks past the page cache, a number at a time.
//!
//! direct.1  It keeps `depth` requests in flight: when one ends, it thinks for `think`, and asks the next.
//! direct.2  An operation is one block, from its asking to its end.
//! direct.3  Requests are handed over one by one, as by `io_submit`: what it asks at one instant is no batch.
//! direct.4  With `flush_every` N each of the `depth` slots flushes after N of its writes and waits for that. The N writes and
//!     the flush are one operation, a commit: of depth 4 and N = 1, four commits are under way at a time.
//! direct.5  The next request of a slot takes `round_trip` to come, on average: the reply to the client, and the way back. By
//!     chance it is half of that to one and a half. A server's disk is short of these requests: of 128 that its clients
//!     have outstanding, 25 to 50 were found on their way.
//! direct.6  A request that ends before `counts_from` is warm-up, and is not counted.

use std::collections::VecDeque;

use fairlift_core::program::{Ask, Meter, Program};
use fairlift_core::{Duration, Extent, Flags, Instant, Op, Outcome};

use super::blocks::Blocks;
use super::{Pattern, Region};
use crate::Random;

/// Its operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Reads or writes.
    pub op: Op,
    /// Through the file.
    pub order: Pattern,
    /// Bytes at a time: whole sectors, no more than the file has.
    pub block: u64,
    /// Requests in flight; at least 1.
    pub depth: u32,
    /// Time between the end of a request and the next.
    pub think: Duration,
    /// Time that the reply and the next request are on their way, on average (direct.5).
    pub round_trip: Duration,
    /// Writes of a slot between two of its flushes (direct.4); 0: it does not flush.
    pub flush_every: u32,
    /// The time from which on completions are counted (direct.6).
    pub counts_from: Instant,
}

impl Settings {
    /// Reads or writes, and nothing more: no pauses, no flushes, everything is counted.
    #[must_use]
    pub const fn new(op: Op, order: Pattern, block: u64, depth: u32) -> Self {
        Self {
            op,
            order,
            block,
            depth,
            think: Duration::ZERO,
            round_trip: Duration::ZERO,
            flush_every: 0,
            counts_from: Instant::ZERO,
        }
    }
}

/// One of the requests that are kept in flight, and those that follow it.
#[derive(Clone, Copy, Default)]
struct DepthSlot {
    /// Since when its operation is under way.
    since: Option<Instant>,
    /// Writes of that operation that have ended (direct.4).
    written: u32,
}

/// Reads or writes past the page cache: see the [module](self).
pub struct Direct {
    settings: Settings,
    file: Region,
    blocks: Blocks,
    /// Tokens that may be used again, and from when on, the earliest first.
    thinking: VecDeque<(Instant, u32)>,
    /// By token.
    slots: Vec<DepthSlot>,
    /// Of round trips.
    random: Random,
    meter: Meter,
}

impl Direct {
    /// Starts at once.
    ///
    /// # Panics
    /// If the depth is 0.
    #[must_use]
    pub fn new(settings: Settings, file: Region, seed: u64) -> Self {
        Self::over(settings, file, Blocks::new(file, settings.block, settings.order, seed), seed)
    }

    /// Goes through every `of`th block of its file from block `index` on: one of `of` programs whose reads together are
    /// one sequential run. The order in `settings` does not count.
    ///
    /// # Panics
    /// If the depth is 0, or `index` is not below `of`.
    #[must_use]
    pub fn interleaved(settings: Settings, file: Region, index: u64, of: u64) -> Self {
        assert!(index < of, "process {index} of {of}");
        Self::over(settings, file, Blocks::every(file, settings.block, index, of), index)
    }

    fn over(settings: Settings, file: Region, blocks: Blocks, seed: u64) -> Self {
        assert!(settings.depth > 0, "a program that asks nothing");
        Self {
            settings,
            file,
            blocks,
            thinking: (0..settings.depth).map(|token| (Instant::ZERO, token)).collect(),
            slots: vec![DepthSlot::default(); settings.depth as usize],
            random: Random::new(!seed),
            meter: Meter::default(),
        }
    }

    /// When a slot that heard an end now asks again (direct.1, direct.5).
    fn asks_again(&mut self, now: Instant, token: u32) {
        let way = self.settings.round_trip;
        let by_chance = if way == Duration::ZERO { 0 } else { way.as_nanos() / 2 + self.random.below(way.as_nanos()) };
        let from = now + self.settings.think + Duration::from_nanos(by_chance);
        let place = self.thinking.partition_point(|(other, _)| *other <= from);
        self.thinking.insert(place, (from, token));
    }
}

impl Program for Direct {
    fn poll_ask(&mut self, now: Instant) -> Option<Ask> {
        let (_, token) = self.thinking.pop_front_if(|(from, _)| *from <= now)?; // direct.1
        let slot = &mut self.slots[token as usize];
        if self.settings.flush_every > 0 && slot.written == self.settings.flush_every {
            return Some(Ask { token, op: Op::Flush, flags: Flags::NONE, extent: Extent::NONE }); // direct.4
        }
        slot.since.get_or_insert(now);
        // Direct writes are waited for (`REQ_SYNC`); reads always are.
        let flags = if self.settings.op == Op::Write { Flags::SYNC } else { Flags::NONE };
        let extent = self.file.extent(self.blocks.next(), self.settings.block);
        Some(Ask { token, op: self.settings.op, flags, extent })
    }

    fn handle_end(&mut self, now: Instant, token: u32, outcome: Outcome) {
        let every = self.settings.flush_every;
        let slot = &mut self.slots[token as usize];
        if slot.written < every && outcome == Outcome::Done {
            slot.written += 1; // direct.4: the operation ends with the flush
        } else {
            let since = slot.since.take().expect("it was asked");
            slot.written = 0;
            let failed = matches!(outcome, Outcome::Failed(_));
            if now >= self.settings.counts_from || failed {
                let bytes = self.settings.block * u64::from(every.max(1));
                self.meter.ended(bytes, outcome, now.since(since)); // direct.2, direct.6
            }
        }
        self.asks_again(now, token);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.thinking.front().map(|(from, _)| *from)
    }

    fn meter(&self) -> &Meter {
        &self.meter
    }

    fn asks_one_by_one(&self) -> bool {
        true // direct.3
    }

    fn open_since(&self) -> Option<Instant> {
        self.slots.iter().filter_map(|slot| slot.since).min()
    }
}
