//! Hard disk.
//!
//! Modelled: a seek curve through three figures of the data sheet (`seek.rs`); the angle of the platters at every moment,
//! zones and skew (`geometry.rs`); the cost of a command, the link, native command queueing that goes where the head
//! gets first, reading on into a cache of segments, a volatile write cache, flush and FUA (`drive.rs`).
//!
//! Not modelled: settling on a neighbouring head (it is in the skew), reading a track from any sector of it on, remapped
//! sectors and retries, recalibration, idle modes, sectors of 4096 bytes (a smaller write costs a revolution there),
//! shingled recording, vibration.
//!
//! `docs/models.md` lists the parameters; `docs/measured/models.md` shows how near to real disks the results are.

mod dirty;
mod drive;
mod geometry;
mod seek;
mod segments;

use fairlift_core::time::{ms, secs, us};
use fairlift_core::{Duration, settings};

pub(super) use drive::Drive;

use super::show_size;
use crate::Random;

/// The ranges of rates and sizes. Chosen: beyond any disk of its kind on either side, without overflow in a run.
pub(super) const RATE: (u32, u32) = (100, 4_000_000);
pub(super) const KIB: (u32, u32) = (0, 4 << 20);

settings! {
    /// Its numbers.
    #[derive(Clone, Debug)]
    pub struct Settings {
        /// revolutions in a minute
        pub rpm: u32 = 7200, count(60, 60_000);
        /// surfaces
        pub heads: u32 = 10, count(1, 64);
        /// zones of equally many tracks
        pub zones: u32 = 30, count(1, 256); // with equally many sectors on each track
        /// sequential rate at the outer edge, in 1000 bytes/s
        pub rate_outer: u32 = 64_800, count(RATE);
        /// sequential rate at the inner edge, in 1000 bytes/s
        pub rate_inner: u32 = 31_000, count(RATE);
        /// from the end of a track to the start of the next
        pub track_switch: Duration = us(1480), duration(us(0), ms(100));
        /// a seek to the next cylinder
        pub seek_track: Duration = us(800), duration(us(0), secs(1));
        /// a seek on average over all pairs of cylinders
        pub seek_average: Duration = us(8500), duration(us(0), secs(1));
        /// a seek from edge to edge
        pub seek_full: Duration = ms(21), duration(us(0), secs(1));
        /// how much longer the arm settles before a write
        pub write_settle: Duration = us(500), duration(us(0), ms(100));
        /// time of the drive itself for a command
        pub overhead: Duration = us(300), duration(us(0), ms(100));
        /// the link, in 1000 bytes/s
        pub interface: u32 = 300_000, count(1000, 100_000_000);
        /// memory in KiB: half for reads, half for writes
        pub cache: u32 = 16 * 1024, count(64, 16 << 20);
        /// streams that the read cache follows
        pub cache_segments: u32 = 16, count(1, 1024);
        /// KiB that the head reads on while nothing else is to do
        pub read_ahead: u32 = 512, count(KIB);
        /// KiB that it reads on for a sequential reader though others wait
        pub read_ahead_min: u32 = 352, count(KIB);
        /// whether a write ends when it is in memory
        pub write_cache: bool = true, switch;
        /// a flush besides what it writes, even if that is nothing
        pub flush: Duration = us(0), duration(us(0), secs(1));
        /// commands that the drive holds and orders; 1: one after the other
        pub ncq: u32 = 32, count(1, 256);
        /// how much longer than expected the drive allows a seek to take when it chooses, in percent
        pub ncq_margin: u32 = 0, count(0, 100);
        /// after what time a command is no longer passed over
        pub ncq_age: Duration = ms(500), duration(us(0), secs(60));
    }
}

impl Settings {
    fn segment_sectors(&self) -> u64 {
        u64::from(self.cache / self.cache_segments)
    }

    fn write_cache_sectors(&self) -> u64 {
        if self.write_cache { u64::from(self.cache) } else { 0 }
    }

    fn ahead_sectors(&self) -> u64 {
        u64::from(self.read_ahead) * 2
    }

    fn ahead_min_sectors(&self) -> u64 {
        u64::from(self.read_ahead_min) * 2
    }

    pub(crate) fn check(&self, size: u64) -> Result<(), String> {
        let Self { seek_track, seek_average, seek_full, rate_inner, rate_outer, .. } = self;
        let Self { read_ahead, read_ahead_min, cache, cache_segments, .. } = self;
        if seek_full < seek_track {
            return Err(format!("seek_full={seek_full} is not possible: it takes at least seek_track={seek_track}"));
        }
        let (least, most) = seek::Seek::averages(seek_track.as_nanos(), seek_full.as_nanos());
        if !(least..=most).contains(&seek_average.as_nanos()) {
            let (least, most) = (us(least.div_ceil(1000)), us(most / 1000));
            return Err(format!(
                "seek_average={seek_average} is not possible: with seek_track={seek_track} and seek_full={seek_full} it \
                 takes {least} to {most}, else a longer way would take less time"
            ));
        }
        if rate_inner > rate_outer {
            return Err(format!("rate_inner={rate_inner} is not possible: it takes at most rate_outer={rate_outer}"));
        }
        if self.ahead_sectors() > self.segment_sectors() {
            let most = self.segment_sectors() / 2;
            return Err(format!(
                "read_ahead={read_ahead} is not possible: half of cache={cache} KiB in cache_segments={cache_segments} \
                 leaves {most} KiB"
            ));
        }
        if read_ahead_min > read_ahead {
            return Err(format!(
                "read_ahead_min={read_ahead_min} is not possible: it takes at most read_ahead={read_ahead}"
            ));
        }
        let least = 1 << 20;
        if size < least {
            let (size, least) = (show_size(size), show_size(least));
            return Err(format!("size={size} is not possible: a hard disk has at least {least}"));
        }
        Ok(())
    }
}

/// A drive at rest.
pub(super) fn new(settings: &Settings, sectors: u64, seed: u64) -> Drive {
    Drive::new(settings, sectors, Random::new(seed).bits())
}

#[cfg(test)]
mod tests;
