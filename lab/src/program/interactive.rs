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

use fairlift_core::time::{secs, us};
use fairlift_core::{Duration, Flags, Op};

use super::Region;
use super::in_turn::{Action, InTurn, ask};
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

/// Starts programs: see the [module](self). It starts the first at once.
///
/// # Panics
/// If the file has no whole block.
#[must_use]
pub fn interactive(file: Region, block: u64, seed: u64) -> InTurn {
    assert!(file.bytes >= block, "blocks of {block} bytes in a file of {}", file.bytes);
    let blocks = file.bytes / block;
    let length = (REGION / block).clamp(1, blocks);
    let mut random = Random::new(seed);
    // interactive.4
    InTurn::new(PAUSE, move |actions| {
        let first = random.below(blocks - length + 1);
        // Where the last read ended, in blocks of the region.
        let (mut end, mut read) = (0, 0);
        for number in 0..READS {
            if number > 0 {
                actions.push_back(Action::Work(us(WORK.0 + random.below(WORK.1 - WORK.0)))); // interactive.1
            }
            let place = if random.below(4) == 0 { end % length } else { random.below(length) }; // interactive.2
            let wanted = if random.below(4) == 0 { 1 + random.below(BLOCKS_MAX) } else { 1 }; // interactive.3
            let blocks = wanted.min(length - place);
            end = place + blocks;
            read += blocks;
            actions.push_back(ask(Op::Read, file.extent((first + place) * block, blocks * block), Flags::NONE));
        }
        read * block
    })
}
