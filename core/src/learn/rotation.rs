//! Rotation: does distance cost time?
//!
//! The declaration is a first guess. A file on a network, a RAID controller, a virtual disk or a USB bridge declares
//! whatever its driver thinks, so what is observed counts more.
//!
//! rotation.1  A sample is a read of at most 64 KiB that was alone in the device from its dispatch to its end; it is near or far
//!     from the one before. Writes tell nothing, caches take them; nor do large ones, which take their time anywhere.
//! rotation.2  After 32 far ones there is a verdict: it does not rotate if three in four of them took less than 1 ms; it does if three in
//!     four took more than 2 ms, while of at least 8 near ones three in four took less than a quarter of a typical far one. Anything else
//!     (a network's delay, which distance does not change; a few hits in a cache) leaves the opinion as it is.
//! rotation.3  It is changed by two verdicts in a row.

use crate::time::{ms, us};
use crate::{Duration, Instant};

/// A read that was alone in the device (rotation.1).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lone {
    pub(crate) dispatched: Instant,
    /// Its distance from the end of the device's last work, in sectors.
    pub(crate) distance: u64,
    pub(crate) sectors: u64,
}

/// Does distance cost time? (rotation.1–3)
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rotation {
    is_rotational: bool,
    /// How many verdicts in a row are against that.
    against: u8,
    far: Spread,
    near: Spread,
}

/// Samples by length of time.
#[derive(Clone, Copy, Default, Debug)]
struct Spread {
    taken: u8,
    /// Below [`FAST`].
    fast: u8,
    /// Above [`SLOW`].
    slow: u8,
    /// Nanoseconds that about half of the samples exceed.
    typical: u64,
}

/// A far read that takes less moved no arm. Chosen: half a revolution alone takes 2 ms at 15,000 a minute.
const FAST: Duration = ms(1);
/// A far read that takes more may have. Chosen: that half a revolution.
const SLOW: Duration = ms(2);
/// Sectors from which a distance is far. Chosen: 128 MiB, further than a track buffer reaches or a short seek hides.
const FAR: u64 = 128 << 11;
/// Sectors up to which it is near. Chosen: 32 KiB, reading on or nearly.
const NEAR: u64 = 64;
/// The largest request that tells, in sectors (rotation.1). Chosen: 64 KiB take a disk 0.6 ms at 109 MB/s, less than [`FAST`].
const SMALL: u64 = 128;
/// Far samples for a verdict. Chosen: as many as BFQ takes to see whether a device queues.
const FAR_SAMPLES: u8 = 32;
/// Near samples for one. Chosen: few, for a load that reads here and there has few near ones.
const NEAR_SAMPLES: u8 = 8;
/// Verdicts in a row that change the opinion (rotation.3). Chosen: one may be chance.
const CHANGE: u8 = 2;

impl Spread {
    fn add(&mut self, took: Duration) {
        // Near ones outnumber far ones by far on the very disks that matter: old ones make room.
        if self.taken == u8::MAX {
            (self.taken, self.fast, self.slow) = (self.taken / 2, self.fast / 2, self.slow / 2);
        }
        self.taken += 1;
        self.fast += u8::from(took < FAST);
        self.slow += u8::from(took > SLOW);
        let took = took.as_nanos();
        if self.taken == 1 {
            self.typical = took;
        }
        // A median in passing: a step of 1/8 towards each sample, whatever its distance.
        let step = (self.typical / 8).max(us(1).as_nanos());
        self.typical = if took > self.typical { self.typical + step } else { self.typical.saturating_sub(step) };
    }

    /// Whether three in four are.
    const fn mostly(&self, count: u8) -> bool {
        4 * count as u16 >= 3 * self.taken as u16
    }
}

impl Rotation {
    /// With what was declared.
    pub(crate) fn new(declared: bool) -> Self {
        Self { is_rotational: declared, against: 0, far: Spread::default(), near: Spread::default() }
    }

    pub(crate) const fn is_rotational(&self) -> bool {
        self.is_rotational
    }

    /// A read ended that had been alone in the device. Answers whether the opinion changed.
    pub(crate) fn ended(&mut self, now: Instant, lone: Lone) -> bool {
        if lone.sectors > SMALL {
            return false; // rotation.1
        }
        let took = now.since(lone.dispatched);
        match lone.distance {
            FAR.. => self.far.add(took),
            ..=NEAR => self.near.add(took),
            _ => return false,
        }
        self.far.taken >= FAR_SAMPLES && self.judge()
    }

    fn judge(&mut self) -> bool {
        let (far, near) = (self.far, self.near);
        let distance_costs = near.taken >= NEAR_SAMPLES && near.typical < far.typical / 4;
        (self.far, self.near) = (Spread::default(), Spread::default());
        // rotation.2
        if far.mostly(far.fast) || far.mostly(far.slow) && distance_costs {
            let is_against = far.mostly(far.fast) == self.is_rotational;
            self.against = if is_against { self.against + 1 } else { 0 };
        }
        let changed = self.against >= CHANGE; // rotation.3
        if changed {
            (self.is_rotational, self.against) = (!self.is_rotational, 0);
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads one after the other: their number, distance and time. Answers whether the opinion changed.
    fn read(rotation: &mut Rotation, times: u32, distance: u64, took: Duration) -> bool {
        let dispatched = Instant::ZERO + ms(7);
        let lone = Lone { dispatched, distance, sectors: 8 };
        (0..times).fold(false, |changed, _| rotation.ended(dispatched + took, lone) || changed)
    }

    const ACROSS: u64 = 1 << 30;

    /// 32 far reads as of an arm that moves, after enough near ones.
    fn read_as_a_disk(rotation: &mut Rotation) {
        read(rotation, 8, 0, us(200));
        read(rotation, 32, ACROSS, ms(12));
    }

    /// rotation.2, rotation.3
    #[test]
    fn a_disk_that_answers_far_reads_at_once_does_not_rotate() {
        let mut rotation = Rotation::new(true);
        read(&mut rotation, 63, ACROSS, us(90));
        assert!(rotation.is_rotational(), "one verdict, and not yet the second");
        assert!(read(&mut rotation, 1, ACROSS, us(90)));
        assert!(!rotation.is_rotational());
        read_as_a_disk(&mut rotation);
        assert!(!rotation.is_rotational(), "back, too, takes two");
        read_as_a_disk(&mut rotation);
        assert!(rotation.is_rotational());
    }

    /// rotation.2
    #[test]
    fn a_disk_that_answers_far_reads_late_and_near_ones_early_rotates_though_some_are_not_so() {
        let mut rotation = Rotation::new(false);
        for _ in 0..2 {
            read(&mut rotation, 1, 0, ms(12));
            read(&mut rotation, 31, 0, us(200));
            read(&mut rotation, 1, ACROSS, us(100));
            read(&mut rotation, 31, ACROSS, ms(12));
        }
        assert!(rotation.is_rotational());
    }

    /// rotation.2
    #[test]
    fn a_network_is_slow_at_any_distance_and_does_not_rotate() {
        let mut rotation = Rotation::new(false);
        for _ in 0..10 {
            read(&mut rotation, 300, 0, ms(5));
            assert!(!read(&mut rotation, 32, ACROSS, ms(6)));
        }
    }

    /// rotation.2
    #[test]
    fn far_reads_that_are_slow_say_nothing_without_near_ones() {
        let mut rotation = Rotation::new(false);
        for _ in 0..100 {
            read(&mut rotation, 7, 0, us(100)); // one too few
            read(&mut rotation, 32, ACROSS, ms(12));
        }
        assert!(!rotation.is_rotational());
        read_as_a_disk(&mut rotation);
        read(&mut rotation, 1000, ACROSS, ms(12)); // those near ones were for the first verdict
        assert!(!rotation.is_rotational());
    }

    /// rotation.2
    #[test]
    fn what_is_neither_fast_nor_slow_says_nothing() {
        for declared in [false, true] {
            let mut rotation = Rotation::new(declared);
            for _ in 0..100 {
                read(&mut rotation, 8, 0, us(100));
                assert!(!read(&mut rotation, 32, ACROSS, us(1500)));
            }
        }
    }

    /// rotation.2
    #[test]
    fn some_hits_in_a_cache_make_no_disk_stand_still() {
        let mut rotation = Rotation::new(true);
        for turn in 0..1000 {
            read(&mut rotation, 1, ACROSS, if turn % 3 == 0 { ms(9) } else { us(50) });
        }
        assert!(rotation.is_rotational(), "two thirds are not three quarters");
    }

    /// rotation.1
    #[test]
    fn large_reads_and_middling_distances_tell_nothing() {
        let mut rotation = Rotation::new(true);
        let dispatched = Instant::ZERO;
        for _ in 0..1000 {
            rotation.ended(dispatched + us(50), Lone { dispatched, distance: ACROSS, sectors: 129 });
        }
        assert!(!read(&mut rotation, 1000, NEAR + 1, us(50)));
        assert!(!read(&mut rotation, 1000, FAR - 1, us(50)));
        assert!(rotation.is_rotational());
    }

    /// rotation.3
    #[test]
    fn verdicts_that_contradict_each_other_change_nothing() {
        let mut rotation = Rotation::new(true);
        for _ in 0..100 {
            assert!(!read(&mut rotation, 32, ACROSS, us(90)));
            read_as_a_disk(&mut rotation);
            assert!(rotation.is_rotational());
        }
    }
}
