//! Where there is room to write: erased blocks, what garbage collection costs, and the one-bit area.
//!
//! space.1  Programs use up erased space. While there is more of it than the reserve, nothing is collected.
//! space.2  Below that, every program owes collection: the more, the less there is left. Half the reserve is the balance, at which
//!     as much is freed as is used up.
//! space.3  To free room for one program of scattered data takes as many moves as the write amplification says, less one. Amplification is
//!     that of uniform random writes and oldest-first collection: 1 / (1 − V), where V, the part of the oldest block that is still valid,
//!     solves (1 − V) / −ln V = valid ÷ all flash (Menon 1995; Desnoyers 2012). Data that were written in sequence are stale in whole
//!     blocks: no moves. Data between the two follows the mix of the last GiB.
//! space.4  Writes go to the one-bit area first, as long as it has room; they owe nothing.
//! space.5  Idle time, beyond its first millisecond, gives back: the area is emptied and blocks are erased at the rate of
//!     programs.
//! space.6  How much is valid is counted by region: a sequential write counts in full, a scattered write by the chance that it hits invalid
//!     data.

use super::Settings;

/// Bytes over which the mix of writes is remembered (space.3): chosen, see there.
const MIX: f64 = (1_u64 << 30) as f64;
/// Idle time before a controller begins to tidy up, in nanoseconds (space.5): chosen, no data sheet says.
const PATIENCE: u64 = 1_000_000;
/// Regions in which validity is counted, at most (space.6). Chosen: 64 MiB each on a disk of 256 GiB, in a table of some pages.
const REGIONS: u64 = 4096;

/// Room to write.
pub(super) struct Space {
    /// Valid sectors of each region, and of all.
    regions: Vec<u32>,
    region_shift: u32,
    valid: u64,
    capacity: u64,
    physical: u64,
    /// Bytes that are erased.
    free: f64,
    reserve: f64,
    /// The part of recent writes that were not sequential: 0 to 1.
    scatter: f64,
    /// Amplification of scattered writes, for how much was valid when it was worked out.
    amplification: f64,
    worked_out_for: u64,
    slc: u64,
    slc_used: u64,
    unit: u64,
    block: u64,
    /// Bytes that all dies program in a second.
    rate: f64,
}

/// The extra cost of a program operation, in operations.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Cost {
    /// Whether it goes to the one-bit area.
    pub(super) slc: bool,
    pub(super) moves: f64,
    pub(super) erases: f64,
}

impl Space {
    pub(super) fn new(settings: &Settings, capacity: u64) -> Self {
        let physical = capacity + (u128::from(capacity) * u128::from(settings.overprovision) / 1000) as u64;
        let mut region_shift = 11;
        while capacity >> region_shift >= REGIONS {
            region_shift += 1;
        }
        let count = capacity.div_ceil(1 << region_shift);
        let size = |region: u64| (capacity - (region << region_shift)).min(1 << region_shift);
        let regions: Vec<u32> =
            (0..count).map(|region| (size(region) * u64::from(settings.fill) / 100) as u32).collect();
        let valid = regions.iter().map(|valid| u64::from(*valid)).sum();
        let spare = ((physical - valid) * 512) as f64;
        let reserve = spare / 8.0;
        let unit = u64::from(settings.unit) << 10;
        let balance = reserve / 2.0;
        let mut space = Self {
            regions,
            region_shift,
            valid,
            capacity,
            physical,
            free: balance + (spare - balance) * f64::from(settings.pool) / 100.0,
            reserve,
            scatter: f64::from(settings.scatter) / 100.0,
            amplification: 1.0,
            worked_out_for: u64::MAX,
            slc: u64::from(settings.slc) << 20,
            slc_used: 0,
            unit,
            block: u64::from(settings.block) << 20,
            rate: (unit * u64::from(settings.dies)) as f64 * 1e9 / settings.program.as_nanos() as f64,
        };
        space.work_out();
        space
    }

    /// Something was written: space.3, space.6.
    pub(super) fn written(&mut self, start: u64, sectors: u64, sequential: bool) {
        let weight = (sectors * 512) as f64 / MIX;
        self.scatter += (f64::from(u8::from(!sequential)) - self.scatter) * weight.min(1.0);
        self.count(start, sectors, |valid, size, part| {
            let room = size - valid;
            valid + if sequential { part.min(room) } else { part * room / size }
        });
    }

    /// Something is no longer needed: space.6.
    pub(super) fn discarded(&mut self, start: u64, sectors: u64) {
        self.count(start, sectors, |valid, _, part| valid.saturating_sub(part));
    }

    fn count(&mut self, start: u64, sectors: u64, new: impl Fn(u64, u64, u64) -> u64) {
        let end = (start + sectors).min(self.capacity);
        let mut at = start;
        while at < end {
            let region = at >> self.region_shift;
            let first = region << self.region_shift;
            let size = (self.capacity - first).min(1 << self.region_shift);
            let part = end.min(first + size) - at;
            let valid = &mut self.regions[region as usize];
            let old = u64::from(*valid);
            let now = new(old, size, part);
            *valid = now as u32;
            self.valid = self.valid + now - old;
            at += part;
        }
    }

    /// A program operation of the buffer is about to start: space.1, space.2, space.4.
    pub(super) fn program(&mut self, bytes: u64) -> Cost {
        if self.slc_used + bytes <= self.slc {
            self.slc_used += bytes;
            return Cost { slc: true, moves: 0.0, erases: 0.0 };
        }
        let used = self.unit as f64; // A part of a unit uses up all of it.
        if self.free > self.reserve {
            self.free -= used;
            return Cost { slc: false, moves: 0.0, erases: 0.0 };
        }
        if self.valid.abs_diff(self.worked_out_for) > self.physical >> 10 {
            self.work_out();
        }
        let effort = 2.0 - 2.0 * self.free / self.reserve;
        self.free = (self.free + (effort - 1.0) * used).max(0.0);
        let amplification = self.amplification();
        Cost {
            slc: false,
            moves: effort * (amplification - 1.0),
            erases: effort * amplification * used / self.block as f64,
        }
    }

    /// The disk was idle for `time` nanoseconds: space.5.
    pub(super) fn rested(&mut self, time: u64) {
        let Some(time @ 1..) = time.checked_sub(PATIENCE) else { return };
        let programs = self.rate * time as f64 / 1e9;
        let folded = (programs as u64).min(self.slc_used);
        self.slc_used -= folded;
        let spare = ((self.physical - self.valid) * 512) as f64;
        // Erasing alone goes at some ten times the rate of programming the same space.
        let gained = (programs - folded as f64) / (self.amplification() - 1.0 + 0.1);
        self.free = (self.free + gained).clamp(0.0, spare.max(self.free));
    }

    /// The programs for each program of the buffer in the long run, with the mix of late: space.3.
    pub(super) fn amplification(&self) -> f64 {
        1.0 + (self.amplification - 1.0) * self.scatter
    }

    fn work_out(&mut self) {
        self.worked_out_for = self.valid;
        self.amplification = amplification(self.valid as f64 / self.physical as f64);
    }
}

/// space.3: of scattered writes, where `used` of the flash is valid.
fn amplification(used: f64) -> f64 {
    // Rises with V: halve the interval. Sums and quotients alone, so that every machine finds the same.
    let (mut low, mut high) = (0.0, 0.999);
    for _ in 0..40 {
        let middle = (low + high) / 2.0;
        if (1.0 - middle) / minus_ln(middle) < used { low = middle } else { high = middle }
    }
    1.0 / (1.0 - low)
}

/// −ln V, by the series of 2 artanh((1 − V) / (1 + V)).
fn minus_ln(v: f64) -> f64 {
    let z = (1.0 - v) / (1.0 + v);
    let (mut power, mut sum) = (z, 0.0);
    for term in 0..200_u32 {
        sum += power / f64::from(2 * term + 1);
        power *= z * z;
    }
    2.0 * sum
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 21;

    fn worn(overprovision: u32) -> Space {
        Space::new(&Settings { overprovision, pool: 0, scatter: 100, ..Settings::default() }, 8 * GIB)
    }

    fn moves(space: &mut Space) -> f64 {
        (0..1000).map(|_| space.program(64 << 10).moves).sum::<f64>() / 1000.0
    }

    /// space.3: the values of the literature (Desnoyers 2012, LRU cleaning): 7 % spare: about 7; 28 %: about 2.6.
    #[test]
    fn amplification_is_that_of_random_writes() {
        for (spare, low, high) in [(0.07, 7.0, 8.5), (0.28, 2.3, 2.8), (1.0, 1.2, 1.3)] {
            let found = amplification(1.0 / (1.0 + spare));
            assert!((low..high).contains(&found), "{spare}: {found}");
        }
    }

    /// space.1
    #[test]
    fn a_rested_disk_collects_nothing() {
        let mut space = Space::new(&Settings { scatter: 100, ..Settings::default() }, 8 * GIB);
        assert_eq!(space.program(64 << 10), Cost { slc: false, moves: 0.0, erases: 0.0 });
    }

    /// space.1, space.2
    #[test]
    fn when_the_erased_space_runs_out_programs_owe_moves_and_the_rest_stays_at_the_balance() {
        let settings = Settings { overprovision: 70, scatter: 100, ..Settings::default() };
        let mut space = Space::new(&settings, 8 * GIB);
        for _ in 0..40_000 {
            space.program(64 << 10);
        }
        let owed = moves(&mut space);
        let expected = space.amplification() - 1.0;
        assert!((owed / expected - 1.0).abs() < 0.01, "{owed} against {expected}");
        assert!((space.free / space.reserve - 0.5).abs() < 0.01);
    }

    /// space.3, space.6
    #[test]
    fn it_owes_more_the_fuller_it_is_and_less_the_more_sequential() {
        let full = moves(&mut worn(70));
        assert!(moves(&mut worn(280)) < full / 2.0, "more spare flash");
        let mut emptied = worn(70);
        emptied.discarded(0, 4 * GIB);
        assert!(moves(&mut emptied) < full / 4.0, "half of it discarded");
        let mut sequential = worn(70);
        sequential.written(0, 4 * GIB, true);
        assert!(moves(&mut sequential) < 0.01, "written in sequence");
    }

    /// space.5
    #[test]
    fn rest_gives_back_erased_blocks_and_the_one_bit_area() {
        let mut space = worn(70);
        assert!(moves(&mut space) > 1.0);
        space.rested(60_000_000_000);
        assert_eq!(space.program(64 << 10).moves, 0.0);
        let settings = Settings { slc: 1, ..Settings::default() };
        let mut space = Space::new(&settings, 8 * GIB);
        assert!((0..16).all(|_| space.program(64 << 10).slc));
        assert!(!space.program(64 << 10).slc, "P4: it is full");
        space.rested(1_000_000_000);
        assert!(space.program(64 << 10).slc);
    }

    /// space.6
    #[test]
    fn validity_is_exact_for_whole_regions_and_never_more_than_there_is() {
        let mut space = Space::new(&Settings { fill: 0, ..Settings::default() }, 8 * GIB + 77);
        assert_eq!(space.valid, 0);
        space.written(0, 8 * GIB + 77, true);
        assert_eq!(space.valid, 8 * GIB + 77);
        space.written(5, 4096, false);
        assert_eq!(space.valid, 8 * GIB + 77);
        space.discarded(0, 8 * GIB + 77);
        assert_eq!(space.valid, 0);
        space.discarded(100, 8);
        assert_eq!(space.valid, 0);
    }
}
