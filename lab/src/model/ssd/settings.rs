//! What makes a solid-state disk: its numbers, their ranges, and which of them go together.

use fairlift_core::Duration;
use fairlift_core::time::{ms, secs, us};
use fairlift_core::tunable::{self, Tunable, TunableInfo};

use super::super::show_size;

/// Its numbers. A profile says where each of its own is from (`flash.rs`).
#[derive(Clone, Debug)]
pub struct Settings {
    /// From the host's doorbell to the controller and from its interrupt back: waited for, occupies nothing.
    pub overhead: Duration,
    /// The controller's own time for a read: 1 ÷ this is the ceiling of read IOPS.
    pub read_command: Duration,
    /// The controller's own time for any other command.
    pub write_command: Duration,
    /// Commands that it takes in at once; others wait outside.
    pub slots: u32,
    /// What the link to the host carries, in 10⁶ bytes a second.
    pub link: u32,
    /// Whether the link carries both directions at once (PCIe), or one after the other (SATA).
    pub duplex: bool,
    /// Whether flushes and discards run alone: not while others are under way (SATA: they are not queued commands).
    pub alone: bool,
    /// Channels between controller and dies.
    pub channels: u32,
    /// What a channel carries, in 10⁶ bytes a second.
    pub channel: u32,
    /// Dies in all; planes that read on their own count as dies.
    pub dies: u32,
    /// KiB of a flash page: what one array read brings, and what lies together on one die. A power of two.
    pub page: u32,
    /// An array read, on average over pages.
    pub read: Duration,
    /// How far pages differ in it: the fastest and slowest are so many per cent off.
    pub spread: u32,
    /// KiB that one program operation of a die writes (planes × pages × bits of a cell).
    pub unit: u32,
    /// A program operation.
    pub program: Duration,
    /// MiB that one erase of a die frees.
    pub block: u32,
    /// An erase.
    pub erase: Duration,
    /// What it takes to suspend a program or an erase for a read.
    pub suspend: Duration,
    /// How many reads may go before a program or an erase that is due; 0: none, it is never suspended.
    pub suspends: u32,
    /// KiB of the write buffer.
    pub buffer: u32,
    /// MiB written as one bit per cell before writes go to the cells as they are; 0: no such area.
    pub slc: u32,
    /// A program operation there.
    pub slc_program: Duration,
    /// Whether what is in the buffer survives a power cut.
    pub plp: bool,
    /// Making the mapping durable, after the data: what a flush costs beyond its programs, where there is no `plp`.
    pub flush: Duration,
    /// Whether a flush is spared that if nothing was written since the last.
    pub flush_spared: bool,
    /// A discard, or a write of zeroes, whatever its length.
    pub discard: Duration,
    /// KiB read ahead of a sequential stream; 0: none.
    pub read_ahead: u32,
    /// Flash beyond the capacity, in tenths of a per cent of it.
    pub overprovision: u32,
    /// Per cent of the capacity that hold data at the start.
    pub fill: u32,
    /// Per cent of the spare space that are erased at the start: 100 is a rested disk, 0 one amid a long load of writes.
    pub pool: u32,
    /// Per cent of the stale data that lie scattered at the start, as random writes leave them.
    pub scatter: u32,
}

impl Default for Settings {
    /// A SATA disk with protection against power loss and without a one-bit area: the plainest that profiles differ from.
    fn default() -> Self {
        Self {
            overhead: us(10),
            read_command: us(10),
            write_command: us(11),
            slots: 32,
            link: 550,
            duplex: false,
            alone: true,
            channels: 8,
            channel: 400,
            dies: 32,
            page: 16,
            read: us(60),
            spread: 20,
            unit: 64,
            program: us(1500),
            block: 8,
            erase: ms(4),
            suspend: us(40),
            suspends: 16,
            buffer: 4096,
            slc: 0,
            slc_program: us(300),
            plp: true,
            flush: ms(2),
            flush_spared: false,
            discard: us(100),
            read_ahead: 256,
            overprovision: 80,
            fill: 100,
            pool: 100,
            scatter: 0,
        }
    }
}

impl Settings {
    /// What can be changed.
    pub const TUNABLES: &[Tunable<Self>] = &Self::ROWS;
    /// The same, described.
    pub const INFO: &[TunableInfo] = &tunable::infos(&Self::ROWS);
    const ROWS: [Tunable<Self>; 31] = [
        Tunable::duration(
            "overhead",
            (us(0), ms(10)),
            |s| &mut s.overhead,
            "a command's way to the controller and back",
        ),
        Tunable::duration("read_command", (us(0), ms(1)), |s| &mut s.read_command, "the controller's time for a read"),
        Tunable::duration(
            "write_command",
            (us(0), ms(1)),
            |s| &mut s.write_command,
            "the controller's time for any other command",
        ),
        Tunable::count("slots", (1, 65_535), |s| &mut s.slots, "commands that it takes in at once"),
        Tunable::count("link", (1, 100_000), |s| &mut s.link, "what the link carries, in MB/s"),
        Tunable::switch("duplex", |s| &mut s.duplex, "whether the link carries both directions at once"),
        Tunable::switch("alone", |s| &mut s.alone, "whether flushes and discards wait for all others, as with SATA"),
        Tunable::count("channels", (1, 256), |s| &mut s.channels, "channels to the dies"),
        Tunable::count("channel", (1, 10_000), |s| &mut s.channel, "what a channel carries, in MB/s"),
        Tunable::count("dies", (1, 4096), |s| &mut s.dies, "dies (or planes) that work on their own"),
        Tunable::count("page", (4, 128), |s| &mut s.page, "KiB of a flash page, a power of two"),
        Tunable::duration("read", (us(1), ms(10)), |s| &mut s.read, "an array read"),
        Tunable::count("spread", (0, 90), |s| &mut s.spread, "per cent by which pages differ in it"),
        Tunable::count("unit", (4, 4096), |s| &mut s.unit, "KiB that one program operation writes"),
        Tunable::duration("program", (us(1), ms(100)), |s| &mut s.program, "a program operation"),
        Tunable::count("block", (1, 1024), |s| &mut s.block, "MiB that one erase frees"),
        Tunable::duration("erase", (us(1), secs(1)), |s| &mut s.erase, "an erase"),
        Tunable::duration(
            "suspend",
            (us(0), ms(10)),
            |s| &mut s.suspend,
            "suspending a program or an erase for a read",
        ),
        Tunable::count("suspends", (0, 1000), |s| &mut s.suspends, "reads that may go before a program; 0: none"),
        Tunable::count("buffer", (64, 1 << 22), |s| &mut s.buffer, "KiB of the write buffer"),
        Tunable::count("slc", (0, 1 << 24), |s| &mut s.slc, "MiB written with one bit per cell first; 0: none"),
        Tunable::duration("slc_program", (us(1), ms(100)), |s| &mut s.slc_program, "a program operation there"),
        Tunable::switch("plp", |s| &mut s.plp, "whether the write buffer survives a power cut"),
        Tunable::duration("flush", (us(0), secs(1)), |s| &mut s.flush, "making the mapping durable, without plp"),
        Tunable::switch("flush_spared", |s| &mut s.flush_spared, "whether a flush with nothing to do costs a command"),
        Tunable::duration("discard", (us(0), secs(1)), |s| &mut s.discard, "a discard or a write of zeroes"),
        Tunable::count("read_ahead", (0, 16_384), |s| &mut s.read_ahead, "KiB read ahead of a sequential stream"),
        Tunable::count("overprovision", (20, 10_000), |s| &mut s.overprovision, "spare flash, in 1/1000 of the size"),
        Tunable::count("fill", (0, 100), |s| &mut s.fill, "per cent that hold data at the start"),
        Tunable::count("pool", (0, 100), |s| &mut s.pool, "per cent of the spare space erased at the start"),
        Tunable::count("scatter", (0, 100), |s| &mut s.scatter, "per cent of the stale data scattered at the start"),
    ];

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
            return Err(format!(
                "size={} is not possible: {} dies have a page each, {}",
                show_size(size),
                self.dies,
                show_size(least)
            ));
        }
        Ok(())
    }
}
