//! Interactive: a person starts a program and waits for it.
//!
//! interactive.1  A start is 400 reads, each asked when the one before has ended and was worked on for a short time.
//! interactive.2  Most reads are at a place by chance within the region of this start; one in four goes on where the last ended.
//! interactive.3  Most are of one block; one in four of up to 32 blocks, as the kernel reads around a page fault.
//! interactive.4  An operation is a whole start: its latency is the start time. Then nothing is asked for 3 s, and another
//!     program, in another region, is started.
//!
//! The numbers are estimates in the manner of large desktop programs: hundreds of small reads over tens of megabytes, some
//! tens of milliseconds of CPU time.

use fairlift_core::program::{Ask, Meter, Program};
use fairlift_core::time::{secs, us};
use fairlift_core::{Duration, Flags, Instant, Op, Outcome};

use super::Region;
use crate::Random;

/// Reads in a start.
pub(super) const READS: u32 = 400;
/// Between starts: longer than the 2 s after which `bfq` takes a program for a new one.
pub(super) const PAUSE: Duration = secs(3);
/// Where a start reads, in bytes.
const REGION: u64 = 64 << 20;
/// Blocks of the longest read.
pub(crate) const BLOCKS_MAX: u64 = 32;
/// CPU time between reads: 20 to 300 µs.
const WORK: (u64, u64) = (20, 300);

/// Starts programs: see the [module](self).
pub struct Interactive {
    file: Region,
    block: u64,
    random: Random,
    /// The region of this start: its first block, and how many.
    region: (u64, u64),
    /// Where the last read ended, in blocks of the region.
    end: u64,
    reads: u32,
    bytes: u64,
    began: Instant,
    /// When the next read is asked; `None`: one is under way.
    next: Option<Instant>,
    meter: Meter,
}

impl Interactive {
    /// Starts the first at once.
    ///
    /// # Panics
    /// If the file has no whole block.
    #[must_use]
    pub fn new(file: Region, block: u64, seed: u64) -> Self {
        assert!(file.bytes >= block, "blocks of {block} bytes in a file of {}", file.bytes);
        let random = Random::new(seed);
        let (began, next) = (Instant::ZERO, Some(Instant::ZERO));
        let mut this = Self {
            file,
            block,
            random,
            region: (0, 1),
            end: 0,
            reads: 0,
            bytes: 0,
            began,
            next,
            meter: Meter::default(),
        };
        this.start(began);
        this
    }

    fn start(&mut self, at: Instant) {
        let blocks = self.file.bytes / self.block;
        let length = (REGION / self.block).clamp(1, blocks);
        self.region = (self.random.below(blocks - length + 1), length);
        (self.end, self.reads, self.bytes, self.began, self.next) = (0, 0, 0, at, Some(at));
    }

    fn finish(&mut self, now: Instant, outcome: Outcome) {
        self.meter.ended(self.bytes, outcome, now.since(self.began));
        self.start(now + PAUSE); // interactive.4
    }
}

impl Program for Interactive {
    fn poll_ask(&mut self, now: Instant) -> Option<Ask> {
        if self.next? > now {
            return None;
        }
        self.next = None;
        let (first, length) = self.region;
        let place = if self.random.below(4) == 0 { self.end % length } else { self.random.below(length) }; // interactive.2
        let wanted = if self.random.below(4) == 0 { 1 + self.random.below(BLOCKS_MAX) } else { 1 }; // interactive.3
        let blocks = wanted.min(length - place);
        self.end = place + blocks;
        self.bytes += blocks * self.block;
        let extent = self.file.extent((first + place) * self.block, blocks * self.block);
        Some(Ask { token: 0, op: Op::Read, flags: Flags::NONE, extent })
    }

    fn handle_end(&mut self, now: Instant, _token: u32, outcome: Outcome) {
        self.reads += 1;
        if outcome != Outcome::Done || self.reads == READS {
            self.finish(now, outcome);
        } else {
            self.next = Some(now + us(WORK.0 + self.random.below(WORK.1 - WORK.0))); // interactive.1
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.next
    }

    fn meter(&self) -> &Meter {
        &self.meter
    }

    fn open_since(&self) -> Option<Instant> {
        Some(self.began)
    }
}
