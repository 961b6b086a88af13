//! What makes an array: its numbers, their ranges, and which of them go together.

use fairlift_core::Duration;
use fairlift_core::time::{ms, secs, us};
use fairlift_core::tunable::{self, Tunable, TunableInfo};

use super::super::disk::{self, KIB, RATE, rows};
use super::super::{show_most, show_size};
use super::layout::Layout;
use super::stripes::DISKS;

/// Its numbers.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Disks, those for parity included.
    pub disks: u32,
    /// 0, 5 or 6.
    pub level: u32,
    /// What lies together on one disk, in KiB.
    pub chunk: u32,
    /// How large each disk is, in units of 1000³ bytes; 0: just large enough. The array uses the outer part.
    pub disk_size: u32,
    /// What the controller needs for a request, one after the other.
    pub controller_overhead: Duration,
    /// How long a request is under way besides.
    pub controller_latency: Duration,
    /// The link, in units of 1000 bytes in a second.
    pub controller_rate: u32,
    /// How fast the data of a single request moves, in the same units: less than the link, for each is cut into frames
    /// that are acknowledged.
    pub command_rate: u32,
    /// How far the controller reads ahead for a sequential reader, in KiB; 0: not at all.
    pub prefetch: u32,
    /// How many sequential readers it follows.
    pub prefetch_streams: u32,
    /// Memory in which writes end, in KiB; 0: they go through.
    pub controller_cache: u32,
    /// Whether that memory survives a power cut.
    pub battery: bool,
    /// Disks that are not there.
    pub missing: u32,
    /// From when on: until then they are there.
    pub missing_from: Duration,
    /// At what rate one that is missing is rebuilt, in units of 1000 bytes in a second of each disk; 0: not.
    pub rebuild: u32,
    /// The disks.
    pub disk: disk::Settings,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            disks: 12,
            level: 5,
            chunk: 64,
            disk_size: 0,
            controller_overhead: us(50),
            controller_latency: us(500),
            controller_rate: 400_000,
            command_rate: 400_000,
            prefetch: 0,
            prefetch_streams: 64,
            controller_cache: 512 * 1024,
            battery: true,
            missing: 0,
            missing_from: Duration::ZERO,
            rebuild: 0,
            disk: disk::Settings { write_cache: false, ..disk::Settings::default() },
        }
    }
}

impl Settings {
    /// What can be changed: the array's own, then those of each of its disks.
    pub const TUNABLES: &[Tunable<Self>] = &Self::ROWS;
    /// The same, described.
    pub const INFO: &[TunableInfo] = &tunable::infos(&Self::ROWS);
    #[rustfmt::skip]
    const ROWS: [Tunable<Self>; 35] = rows![s => s.disk;
        Tunable::count("disks", (2, DISKS as u32), |s| &mut s.disks, "disks, those for parity included");
        Tunable::count("level", (0, 6), |s| &mut s.level, "0, 5 or 6: no parity, one chunk of each stripe, or two");
        Tunable::count("chunk", (4, 16 << 10), |s| &mut s.chunk, "KiB that lie together on one disk");
        Tunable::count("disk_size", (0, 100_000), |s| &mut s.disk_size, "size of each disk in 1000³ bytes, of which the outer part is used; 0: just large enough");
        Tunable::duration("controller_overhead", (us(0), ms(100)), |s| &mut s.controller_overhead, "what the controller needs for a request, one after the other");
        Tunable::duration("controller_latency", (us(0), secs(1)), |s| &mut s.controller_latency, "how long a request is under way besides, all at once");
        Tunable::count("controller_rate", (1000, 100_000_000), |s| &mut s.controller_rate, "the link, in 1000 bytes/s");
        Tunable::count("command_rate", (1000, 100_000_000), |s| &mut s.command_rate, "how fast the data of a single request moves, in 1000 bytes/s");
        Tunable::count("prefetch", KIB, |s| &mut s.prefetch, "KiB that the controller reads ahead for a sequential reader; 0: none");
        Tunable::count("prefetch_streams", (1, 4096), |s| &mut s.prefetch_streams, "sequential readers that it follows");
        Tunable::count("controller_cache", (0, 64 << 20), |s| &mut s.controller_cache, "KiB of memory in which writes end; 0: they go through");
        Tunable::switch("battery", |s| &mut s.battery, "whether that memory survives a power cut");
        Tunable::count("missing", (0, 2), |s| &mut s.missing, "disks that are not there");
        Tunable::duration("missing_from", (us(0), secs(100_000)), |s| &mut s.missing_from, "when they fail; 0: they were never there");
        Tunable::count("rebuild", RATE_OR_NONE, |s| &mut s.rebuild, "at what rate a missing disk is rebuilt, in 1000 bytes/s; 0: not");
    ];

    /// Chunks of a stripe that are parity.
    const fn parity(&self) -> u64 {
        match self.level {
            0 => 0,
            5 => 1,
            _ => 2,
        }
    }

    pub(super) fn layout(&self) -> Layout {
        Layout { disks: self.disks.into(), parity: self.parity(), chunk: u64::from(self.chunk) * 2 }
    }

    /// Sectors of each disk, for an array of so many bytes.
    pub(super) fn each(&self, size: u64) -> u64 {
        let least = self.layout().each(size / 512);
        if self.disk_size == 0 { least } else { u64::from(self.disk_size) * 1_000_000_000 / 512 }
    }

    pub(super) const fn is_volatile(&self) -> bool {
        (self.controller_cache > 0 && !self.battery) || self.disk.write_cache
    }

    pub(crate) fn check(&self, size: u64) -> Result<(), String> {
        if !matches!(self.level, 0 | 5 | 6) {
            return Err(format!("level={} is not possible: it takes 0, 5 or 6", self.level));
        }
        let least = match self.level {
            0 => 2,
            5 => 3,
            _ => 4,
        };
        if self.disks < least {
            return Err(format!("disks={} is not possible: level={} takes at least {least}", self.disks, self.level));
        }
        if u64::from(self.missing) > self.parity() {
            return Err(format!(
                "missing={} is not possible: level={} takes at most {}",
                self.missing,
                self.level,
                self.parity()
            ));
        }
        if self.rebuild > 0 && self.missing == 0 {
            return Err(format!("rebuild={} is not possible: no disk is missing (missing=0)", self.rebuild));
        }
        if self.missing_from > Duration::ZERO && self.missing == 0 {
            return Err("missing_from is not possible: no disk is to fail (missing=0)".into());
        }
        let (least, each) = (self.layout().each(size / 512), self.each(size));
        if least > each {
            let most = each / self.layout().chunk * self.layout().stripe() * 512;
            return Err(format!(
                "size={} is not possible: {} disks of disk_size={} at level={} hold {}",
                show_size(size),
                self.disks,
                self.disk_size,
                self.level,
                show_most(most)
            ));
        }
        self.disk.check(each * 512)
    }
}

const RATE_OR_NONE: (u32, u32) = (0, RATE.1);
