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
//! `docs/models.md` says what the numbers mean, and how near to real disks the results are.

mod dirty;
mod drive;
mod geometry;
mod seek;
mod segments;

use fairlift_core::model::{Character, Model, ModelCompletion, ModelRequest, Work};
use fairlift_core::time::{ms, secs, us};
use fairlift_core::tunable::{self, Tunable, TunableInfo};
use fairlift_core::{Duration, Instant, Limits};

pub(super) use drive::Drive;

use super::{Busy, show_size};
use crate::Random;

/// Its numbers.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Revolutions in a minute.
    pub rpm: u32,
    /// Surfaces.
    pub heads: u32,
    /// Zones of equally many tracks, with equally many sectors on each track.
    pub zones: u32,
    /// What is read in a row at the outer edge, in units of 1000 bytes in a second.
    pub rate_outer: u32,
    /// The same at the inner edge.
    pub rate_inner: u32,
    /// From the end of a track to the start of the next.
    pub track_switch: Duration,
    /// A seek to the next cylinder.
    pub seek_track: Duration,
    /// A seek on average over all pairs of cylinders.
    pub seek_average: Duration,
    /// A seek from edge to edge.
    pub seek_full: Duration,
    /// How much longer the arm must settle before a write.
    pub write_settle: Duration,
    /// What the drive itself needs for a command.
    pub overhead: Duration,
    /// The link, in units of 1000 bytes in a second.
    pub interface: u32,
    /// Memory for reads and writes, in KiB: half of it holds read segments, the other half writes.
    pub cache: u32,
    /// How many streams the read cache follows.
    pub cache_segments: u32,
    /// How far the head reads on while nothing else is to do, in KiB.
    pub read_ahead: u32,
    /// How far it reads on for a sequential reader though others wait, in KiB.
    pub read_ahead_min: u32,
    /// Whether a write ends when it is in memory.
    pub write_cache: bool,
    /// Commands that the drive holds and orders; 1: one after the other.
    pub ncq: u32,
    /// How much longer than expected the drive allows a seek to take when it chooses, in percent.
    pub ncq_margin: u32,
    /// After what time a command is no longer passed over.
    pub ncq_age: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            rpm: 7200,
            heads: 10,
            zones: 30,
            rate_outer: 64_800,
            rate_inner: 31_000,
            track_switch: us(1480),
            seek_track: us(800),
            seek_average: us(8500),
            seek_full: ms(21),
            write_settle: us(500),
            overhead: us(300),
            interface: 300_000,
            cache: 16 * 1024,
            cache_segments: 16,
            read_ahead: 512,
            read_ahead_min: 352,
            write_cache: true,
            ncq: 32,
            ncq_margin: 0,
            ncq_age: ms(500),
        }
    }
}

/// What rates and sizes may be set to. Chosen: beyond any disk of its kind on either side, without overflow in a run.
pub(super) const RATE: (u32, u32) = (100, 4_000_000);
pub(super) const KIB: (u32, u32) = (0, 4 << 20);

/// The rows of a disk's parameters: of `$disk`, which is reached from `$s`; more rows may go before them.
macro_rules! rows {
    ($s:ident => $disk:expr; $($more:expr;)*) => {
        [
            $($more,)*
            Tunable::count("rpm", (60, 60_000), |$s| &mut $disk.rpm, "revolutions in a minute"),
            Tunable::count("heads", (1, 64), |$s| &mut $disk.heads, "surfaces"),
            Tunable::count("zones", (1, 256), |$s| &mut $disk.zones, "zones of equally many tracks"),
            Tunable::count("rate_outer", RATE, |$s| &mut $disk.rate_outer, "sequential rate at the outer edge, in 1000 bytes/s"),
            Tunable::count("rate_inner", RATE, |$s| &mut $disk.rate_inner, "sequential rate at the inner edge, in 1000 bytes/s"),
            Tunable::duration("track_switch", (us(0), ms(100)), |$s| &mut $disk.track_switch, "from the end of a track to the start of the next"),
            Tunable::duration("seek_track", (us(0), secs(1)), |$s| &mut $disk.seek_track, "a seek to the next cylinder"),
            Tunable::duration("seek_average", (us(0), secs(1)), |$s| &mut $disk.seek_average, "a seek on average over all pairs of cylinders"),
            Tunable::duration("seek_full", (us(0), secs(1)), |$s| &mut $disk.seek_full, "a seek from edge to edge"),
            Tunable::duration("write_settle", (us(0), ms(100)), |$s| &mut $disk.write_settle, "how much longer the arm settles before a write"),
            Tunable::duration("overhead", (us(0), ms(100)), |$s| &mut $disk.overhead, "what the drive itself needs for a command"),
            Tunable::count("interface", (1000, 100_000_000), |$s| &mut $disk.interface, "the link, in 1000 bytes/s"),
            Tunable::count("cache", (64, 16 << 20), |$s| &mut $disk.cache, "memory in KiB: half for reads, half for writes"),
            Tunable::count("cache_segments", (1, 1024), |$s| &mut $disk.cache_segments, "streams that the read cache follows"),
            Tunable::count("read_ahead", KIB, |$s| &mut $disk.read_ahead, "KiB that the head reads on while nothing else is to do"),
            Tunable::count("read_ahead_min", KIB, |$s| &mut $disk.read_ahead_min, "KiB that it reads on for a sequential reader though others wait"),
            Tunable::switch("write_cache", |$s| &mut $disk.write_cache, "whether a write ends when it is in memory"),
            Tunable::count("ncq", (1, 256), |$s| &mut $disk.ncq, "commands that the drive holds and orders; 1: one after the other"),
            Tunable::count("ncq_margin", (0, 100), |$s| &mut $disk.ncq_margin, "how much longer than expected the drive allows a seek to take when it chooses, in percent"),
            Tunable::duration("ncq_age", (us(0), secs(60)), |$s| &mut $disk.ncq_age, "after what time a command is no longer passed over"),
        ]
    };
}
pub(super) use rows;

impl Settings {
    /// What can be changed.
    pub const TUNABLES: &[Tunable<Self>] = &Self::ROWS;
    /// The same, described.
    pub const INFO: &[TunableInfo] = &tunable::infos(&Self::ROWS);
    const ROWS: [Tunable<Self>; 20] = rows![s => s;];

    /// Sectors of a read segment.
    fn segment_sectors(&self) -> u64 {
        u64::from(self.cache / self.cache_segments)
    }

    /// Sectors of the write cache.
    fn write_cache_sectors(&self) -> u64 {
        u64::from(self.cache)
    }

    pub(crate) fn check(&self, size: u64) -> Result<(), String> {
        let (least, most) =
            seek::Seek::averages(self.seek_track.as_nanos(), self.seek_full.as_nanos().max(self.seek_track.as_nanos()));
        let from_to = |from: u64, to: u64| (us(from.div_ceil(1000)), us(to / 1000));
        if self.seek_full < self.seek_track {
            return Err(format!(
                "seek_full={} is not possible: it takes at least seek_track={}",
                self.seek_full, self.seek_track
            ));
        }
        if !(least..=most).contains(&self.seek_average.as_nanos()) {
            let (least, most) = from_to(least, most);
            return Err(format!(
                "seek_average={} is not possible: with seek_track={} and seek_full={} it takes {least} to {most}, else a \
                 longer way would take less time",
                self.seek_average, self.seek_track, self.seek_full
            ));
        }
        if self.rate_inner > self.rate_outer {
            return Err(format!(
                "rate_inner={} is not possible: it takes at most rate_outer={}",
                self.rate_inner, self.rate_outer
            ));
        }
        if u64::from(self.read_ahead) * 2 > self.segment_sectors() {
            return Err(format!(
                "read_ahead={} is not possible: half of cache={} KiB in cache_segments={} leaves {} KiB",
                self.read_ahead,
                self.cache,
                self.cache_segments,
                self.segment_sectors() / 2
            ));
        }
        if self.read_ahead_min > self.read_ahead {
            return Err(format!(
                "read_ahead_min={} is not possible: it takes at most read_ahead={}",
                self.read_ahead_min, self.read_ahead
            ));
        }
        let least = 1 << 20;
        if size < least {
            return Err(format!(
                "size={} is not possible: a hard disk has at least {}",
                show_size(size),
                show_size(least)
            ));
        }
        Ok(())
    }
}

/// The model: a drive and an account of its work.
pub struct HardDisk {
    drive: Drive,
    volatile: bool,
    sectors: u64,
    busy: Busy,
}

impl HardDisk {
    /// At rest.
    #[must_use]
    pub fn new(settings: Settings, sectors: u64, seed: u64) -> Self {
        let drive = Drive::new(&settings, sectors, Random::new(seed).bits());
        Self { drive, volatile: settings.write_cache, sectors, busy: Busy::default() }
    }
}

impl Model for HardDisk {
    fn limits(&self) -> Limits {
        Limits { discard_max: 0, write_zeroes_max: 0, ..Limits::new(self.sectors) }
    }

    fn character(&self) -> Character {
        Character { rotational: true, volatile_cache: self.volatile }
    }

    fn submit(&mut self, now: Instant, asked: &ModelRequest) {
        self.busy.submitted(now, asked);
        self.drive.submit(now, asked);
    }

    fn poll_event(&self) -> Option<Instant> {
        self.drive.poll_event()
    }

    fn advance(&mut self, now: Instant, ended: &mut Vec<ModelCompletion>) {
        let first = ended.len();
        self.drive.advance(now, ended);
        ended[first..].iter().for_each(|one| self.busy.ended(one));
    }

    fn work(&self) -> Work {
        self.busy.work()
    }
}

#[cfg(test)]
mod tests;
