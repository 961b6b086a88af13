//! The parameters of a solid-state disk: its numbers, their ranges, and their combinations.

use fairlift_core::Duration;
use fairlift_core::settings;
use fairlift_core::time::{ms, secs, us};

use super::super::show_size;

settings! {
    /// Its numbers. A profile says where each of its own is from (`flash.rs`). The defaults are a SATA disk with protection against power loss and
    /// without a one-bit area: the plainest that profiles differ from.
    #[derive(Clone, Debug)]
    pub struct Settings {
        /// a command's way to the controller and back
        pub overhead: Duration = us(10), duration(us(0), ms(10)); // waited for: it occupies nothing
        /// the controller's time for a read
        pub read_command: Duration = us(10), duration(us(0), ms(1)); // 1 ÷ this is the ceiling of read IOPS
        /// the controller's time for any other command
        pub write_command: Duration = us(11), duration(us(0), ms(1));
        /// commands that it takes in at once
        pub slots: u32 = 32, count(1, 65_535);
        /// rate of the link, in MB/s
        pub link: u32 = 550, count(1, 100_000);
        /// whether the link carries both directions at once
        pub duplex: bool = false, switch;
        /// whether flushes and discards wait for all others, as with SATA
        pub alone: bool = true, switch; // there they are no queued commands
        /// channels to the dies
        pub channels: u32 = 8, count(1, 256);
        /// rate of a channel, in MB/s
        pub channel: u32 = 400, count(1, 10_000);
        /// dies (or planes) that work on their own
        pub dies: u32 = 32, count(1, 4096);
        /// KiB of a flash page, a power of two
        pub page: u32 = 16, count(4, 128); // what one array read brings, and what lies together on one die
        /// an array read
        pub read: Duration = us(60), duration(us(1), ms(10));
        /// per cent by which pages differ in it
        pub spread: u32 = 20, count(0, 90);
        /// KiB that one program operation writes
        pub unit: u32 = 64, count(4, 4096); // planes × pages × bits of a cell
        /// a program operation
        pub program: Duration = us(1500), duration(us(1), ms(100));
        /// MiB that one erase frees
        pub block: u32 = 8, count(1, 1024);
        /// an erase
        pub erase: Duration = ms(4), duration(us(1), secs(1));
        /// suspending a program or an erase for a read
        pub suspend: Duration = us(40), duration(us(0), ms(10));
        /// reads that may go before a program; 0: none
        pub suspends: u32 = 16, count(0, 1000);
        /// KiB of the write buffer
        pub buffer: u32 = 4096, count(64, 1 << 22);
        /// MiB written with one bit per cell first; 0: none
        pub slc: u32 = 0, count(0, 1 << 24);
        /// a program operation there
        pub slc_program: Duration = us(300), duration(us(1), ms(100));
        /// whether the write buffer survives a power cut
        pub plp: bool = true, switch;
        /// making the mapping durable, without plp
        pub flush: Duration = ms(2), duration(us(0), secs(1)); // after the data: what a flush costs beyond its programs
        /// whether a flush with nothing to do costs a command
        pub flush_spared: bool = false, switch;
        /// a discard or a write of zeroes
        pub discard: Duration = us(100), duration(us(0), secs(1));
        /// KiB read ahead of a sequential stream
        pub read_ahead: u32 = 256, count(0, 16_384); // 0: none
        /// spare flash, in 1/1000 of the size
        pub overprovision: u32 = 80, count(20, 10_000);
        /// per cent that hold data at the start
        pub fill: u32 = 100, count(0, 100);
        /// per cent of the spare space erased at the start
        pub pool: u32 = 100, count(0, 100); // 100 is a rested disk, 0 one amid a long load of writes
        /// per cent of the stale data scattered at the start
        pub scatter: u32 = 0, count(0, 100); // as random writes leave them
    }
}

impl Settings {
    /// Whether the numbers go together.
    pub(crate) fn check(&self, size: u64) -> Result<(), String> {
        if !self.page.is_power_of_two() {
            return Err(format!("page={} is not possible: it takes a power of two from 4 to 128", self.page));
        }
        if self.dies < self.channels {
            return Err(format!("dies={} is not possible with channels={}: each has a die", self.dies, self.channels));
        }
        if self.block * 1024 < self.unit {
            return Err(format!("unit={} is not possible with block={}: a block holds a unit", self.unit, self.block));
        }
        let least = (u64::from(self.dies) * u64::from(self.page)) << 10;
        if size < least {
            let (size, least) = (show_size(size), show_size(least));
            return Err(format!("size={size} is not possible: {} dies have a page each, {least}", self.dies));
        }
        Ok(())
    }
}
