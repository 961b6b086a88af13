//! The parameters of an array: its numbers, their ranges, and their combinations.

use fairlift_core::time::{ms, secs, us};
use fairlift_core::{Duration, settings};

use super::super::disk::{self, KIB, RATE};
use super::super::{show_most, show_size};
use super::layout::Layout;
use super::streams::Streams;
use super::stripes::DISKS;

settings! {
    /// Its numbers.
    #[derive(Clone, Debug)]
    pub struct Settings {
        /// disks, those for parity included
        pub disks: u32 = 12, count(2, DISKS as u32);
        /// 0, 5 or 6: no parity, one chunk of each stripe, or two
        pub level: u32 = 5, count(0, 6);
        /// KiB that lie together on one disk
        pub chunk: u32 = 64, count(4, 16 << 10);
        /// size of each disk in 1000³ bytes; the outer part is used; 0: just large enough
        pub disk_size: u32 = 0, count(0, 100_000);
        /// time of the controller for a request, one after the other
        pub controller_overhead: Duration = us(50), duration(us(0), ms(100));
        /// how long a request is under way besides, all at once
        pub controller_latency: Duration = us(500), duration(us(0), secs(1));
        /// the link, in 1000 bytes/s
        pub controller_rate: u32 = 400_000, count(1000, 100_000_000);
        /// how fast the data of a request moves that lies on one chunk, in 1000 bytes/s; chunks move together
        pub command_rate: u32 = 400_000, count(1000, 100_000_000); // less than the link: it is cut into frames that are acknowledged
        /// KiB that the controller reads ahead for a sequential reader; 0: none
        pub prefetch: u32 = 0, count(KIB);
        /// sequential readers that it follows
        pub prefetch_streams: u32 = 64, count(1, 4096);
        /// KiB that a reader has read in a row when it is read ahead for
        pub prefetch_after: u32 = 0, count(KIB);
        /// time after which an idle reader is forgotten, with the data read ahead for it; 0: never
        pub prefetch_keep: Duration = Duration::ZERO, duration(us(0), secs(1000));
        /// KiB of memory in which writes end; 0: they go through
        pub controller_cache: u32 = 512 * 1024, count(0, 64 << 20);
        /// whether that memory survives a power cut
        pub battery: bool = true, switch;
        /// whether it says all the same that its memory does not, so that it is sent flushes, which end at once
        pub flush_ignored: bool = false, switch;
        /// disks that are not there
        pub missing: u32 = 0, count(0, 2);
        /// when they fail; 0: they were never there
        pub missing_from: Duration = Duration::ZERO, duration(us(0), secs(100_000));
        /// at what rate a missing disk is rebuilt, in 1000 bytes/s; 0: not
        pub rebuild: u32 = 0, count(0, RATE.1);
        ..
        /// the disks
        pub disk: disk::Settings = disk::Settings { write_cache: false, ..disk::Settings::default() };
    }
}

impl Settings {
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

    /// Sectors of each disk, for an array of `size` bytes.
    pub(super) fn each(&self, size: u64) -> u64 {
        let least = self.layout().each(size / 512);
        if self.disk_size == 0 { least } else { u64::from(self.disk_size) * 1_000_000_000 / 512 }
    }

    pub(super) fn streams(&self) -> Streams {
        let count = if self.prefetch > 0 { self.prefetch_streams as usize } else { 0 };
        let keep = if self.prefetch_keep == Duration::ZERO { u64::MAX } else { self.prefetch_keep.as_nanos() };
        Streams::new(count, u64::from(self.prefetch_after) * 2, keep)
    }

    pub(super) fn prefetch_sectors(&self) -> u64 {
        u64::from(self.prefetch) * 2
    }

    pub(super) fn cache_sectors(&self) -> u64 {
        u64::from(self.controller_cache) * 2
    }

    pub(super) const fn is_volatile(&self) -> bool {
        (self.controller_cache > 0 && !self.battery) || self.disk.write_cache
    }

    pub(crate) fn check(&self, size: u64) -> Result<(), String> {
        let Self { level, disks, disk_size, missing, missing_from, rebuild, .. } = *self;
        if !matches!(level, 0 | 5 | 6) {
            return Err(format!("level={level} is not possible: it takes 0, 5 or 6"));
        }
        let (parity, least) = (self.parity(), self.parity() + 2); // a stripe has two chunks of data
        if u64::from(disks) < least {
            return Err(format!("disks={disks} is not possible: level={level} takes at least {least}"));
        }
        if u64::from(missing) > parity {
            return Err(format!("missing={missing} is not possible: level={level} takes at most {parity}"));
        }
        if rebuild > 0 && missing == 0 {
            return Err(format!("rebuild={rebuild} is not possible: no disk is missing (missing=0)"));
        }
        if missing_from > Duration::ZERO && missing == 0 {
            return Err("missing_from is not possible: no disk is to fail (missing=0)".into());
        }
        let (least, each) = (self.layout().each(size / 512), self.each(size));
        if least > each {
            let most = each / self.layout().chunk * self.layout().stripe() * 512;
            let (size, most) = (show_size(size), show_most(most));
            return Err(format!(
                "size={size} is not possible: {disks} disks of disk_size={disk_size} at level={level} hold {most}"
            ));
        }
        self.disk.check(each * 512)
    }
}
