//! Which write each watched sector holds, and which it must at least hold.
//!
//! Orders are places in one row of all submissions and ends. A read is stale if the write it returns had ended before
//! another was asked for that itself ended before the read was asked for.

use std::collections::HashMap;

use fairlift_core::Extent;

use crate::random::mix;

/// The history of a watched sector that was written.
#[derive(Clone, Copy, Default)]
struct Version {
    /// The write that landed last, by its order of submission.
    landed: u64,
    /// When that write ended, in the same order; `u64::MAX` until then.
    landed_end: u64,
    /// The latest submission among the writes that ended.
    floor: u64,
}

/// The watched sectors: see the [module](self).
pub(super) struct Versions {
    seed: u64,
    pub(super) every: u64,
    /// Only looked up, never gone through: its order is nobody's business.
    held: HashMap<u64, Version>,
}

impl Versions {
    /// # Panics
    /// If `every` is no power of two.
    pub(super) fn new(seed: u64, every: u64) -> Self {
        assert!(every.is_power_of_two(), "one of every {every} sectors is watched: not a power of two");
        Self { seed, every, held: HashMap::new() }
    }

    /// A read is asked for: what its watched sectors must not be older than.
    pub(super) fn read_begins(&self, extent: Extent, floors: &mut Vec<(u64, u64)>) {
        floors.clear();
        if self.held.is_empty() {
            return; // a run of readers alone
        }
        watched(self.seed, self.every, extent, |sector| {
            if let Some(held) = self.held.get(&sector)
                && held.floor > 0
            {
                floors.push((sector, held.floor));
            }
        });
    }

    /// The disk has written an extent.
    pub(super) fn landed(&mut self, extent: Extent, order: u64) {
        let (seed, every) = (self.seed, self.every);
        watched(seed, every, extent, |sector| {
            let held = self.held.entry(sector).or_default();
            (held.landed, held.landed_end) = (order, u64::MAX);
        });
    }

    /// A write ended, well or not.
    pub(super) fn finished(&mut self, extent: Extent, order: u64, end: u64, is_done: bool) {
        let (seed, every) = (self.seed, self.every);
        watched(seed, every, extent, |sector| {
            let Some(held) = self.held.get_mut(&sector) else { return };
            if is_done {
                held.floor = held.floor.max(order);
            }
            if held.landed == order {
                held.landed_end = end;
            }
        });
    }

    /// A sector of `extent` that now holds less than its floor, if there is one.
    pub(super) fn stale(&self, extent: Extent, floors: &[(u64, u64)]) -> Option<u64> {
        let within = |sector: u64| (extent.start.0..extent.end().0).contains(&sector);
        let is_stale = |sector, floor| self.held[&sector].landed_end < floor;
        floors.iter().find(|&&(sector, floor)| within(sector) && is_stale(sector, floor)).map(|&(sector, _)| sector)
    }
}

/// The watched sectors of an extent, one of each stretch.
#[inline]
fn watched(seed: u64, every: u64, extent: Extent, mut each: impl FnMut(u64)) {
    let (start, end) = (extent.start.0, extent.end().0);
    let shift = every.trailing_zeros();
    for stretch in start >> shift..=(end - 1) >> shift {
        let sector = (stretch << shift) + (mix(stretch ^ seed) & (every - 1));
        if (start..end).contains(&sector) {
            each(sector);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlift_core::Sector;

    const E: Extent = Extent::new(Sector(8), 8);

    fn floors(versions: &Versions) -> Vec<(u64, u64)> {
        let mut floors = Vec::new();
        versions.read_begins(E, &mut floors);
        floors
    }

    /// check.4: the first write lands again after the second has ended.
    #[test]
    fn a_write_that_lands_again_after_a_later_one_makes_reads_stale() {
        let mut versions = Versions::new(1, 1);
        versions.landed(E, 1);
        versions.finished(E, 1, 2, true);
        versions.landed(E, 3);
        versions.finished(E, 3, 4, true);
        assert_eq!(versions.stale(E, &floors(&versions)), None, "it holds the latest");
        versions.landed(E, 1);
        versions.finished(E, 1, 2, true);
        assert_eq!(versions.stale(E, &floors(&versions)), Some(8));
        assert_eq!(versions.stale(Extent::new(Sector(0), 8), &floors(&versions)), None, "of another place");
    }

    #[test]
    fn writes_under_way_together_may_land_in_either_order() {
        let mut versions = Versions::new(1, 1);
        versions.landed(E, 2);
        versions.landed(E, 1);
        versions.finished(E, 2, 3, true);
        versions.finished(E, 1, 4, true);
        assert_eq!(versions.stale(E, &floors(&versions)), None);
    }

    /// A write that nobody knows to have landed sets no floor.
    #[test]
    fn a_write_that_failed_may_be_seen_or_not() {
        let mut versions = Versions::new(1, 1);
        versions.landed(E, 1);
        versions.finished(E, 1, 2, true);
        versions.finished(E, 3, 4, false);
        assert_eq!(versions.stale(E, &floors(&versions)), None);
    }

    #[test]
    fn one_sector_of_each_stretch_is_watched_wherever_the_extent_is_cut() {
        let mut whole = Vec::new();
        watched(7, 64, Extent::new(Sector(0), 6400), |sector| whole.push(sector));
        assert_eq!(whole.len(), 100);
        let mut parts = Vec::new();
        for start in (0..6400).step_by(8) {
            watched(7, 64, Extent::new(Sector(start), 8), |sector| parts.push(sector));
        }
        assert_eq!(whole, parts);
        let mut other = Vec::new();
        watched(8, 64, Extent::new(Sector(0), 6400), |sector| other.push(sector));
        assert_ne!(whole, other, "another seed watches others");
    }
}
