//! How long the arm takes to another cylinder.
//!
//! seek.1  `a + b·√x + c·x` for the fraction `x` of the full stroke: short seeks are all acceleration, long ones have a
//!     stretch at full speed. Idea: Ruemmler and Wilkes, "An introduction to disk drive modeling", IEEE Computer 1994.
//! seek.2  `a`, `b`, `c` follow from the three figures of a data sheet: one track, the average over all pairs of cylinders,
//!     and the full stroke.

/// The curve.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seek {
    track: f64,
    root: f64,
    linear: f64,
    cylinders: f64,
}

impl Seek {
    /// From times in nanoseconds.
    ///
    /// Two cylinders drawn at random are `x` of the stroke apart with density 2(1−x): √x is 8/15 on average, x is 1/3.
    pub(super) const fn new(track: u64, average: u64, full: u64, cylinders: u64) -> Self {
        let (track, average, full) = (track as f64, average as f64, full as f64);
        let root = 5.0 * ((average - track) - (full - track) / 3.0);
        Self { track, root, linear: full - track - root, cylinders: cylinders as f64 }
    }

    /// Nanoseconds to cross `cylinders`.
    pub(super) fn time(&self, cylinders: u64) -> u64 {
        if cylinders == 0 {
            return 0;
        }
        let x = cylinders as f64 / self.cylinders;
        (self.track + self.root * x.sqrt() + self.linear * x) as u64
    }

    /// The averages that go with `track` and `full`, such that a longer way never takes less time.
    pub(super) const fn averages(track: u64, full: u64) -> (u64, u64) {
        // b ≥ 0 and b/2 + c ≥ 0.
        let span = full - track;
        (track + span / 3, track + span * 11 / 15)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// seek.2.
    #[test]
    fn the_curve_meets_the_three_figures() {
        let seek = Seek::new(800_000, 8_200_000, 15_000_000, 50_000);
        let mut random = crate::Random::new(1);
        let mut total = 0;
        for _ in 0..100_000 {
            total += seek.time(random.below(50_000).abs_diff(random.below(50_000)));
        }
        let average = total / 100_000;
        assert!(average.abs_diff(8_200_000) < 40_000, "{average}");
        assert_eq!(seek.time(0), 0);
        assert!(seek.time(1).abs_diff(800_000) < 100_000, "{}", seek.time(1));
        assert_eq!(seek.time(50_000), 15_000_000);
    }

    /// seek.1.
    #[test]
    fn a_longer_way_never_takes_less_time_at_either_end_of_the_averages_that_are_possible() {
        let (least, most) = Seek::averages(800_000, 15_000_000);
        for average in [least, most] {
            let seek = Seek::new(800_000, average, 15_000_000, 1000);
            assert!((1..1000).all(|d| seek.time(d) <= seek.time(d + 1)), "{average}");
        }
        let beyond = Seek::new(800_000, most + 200_000, 15_000_000, 1000);
        assert!((1..1000).any(|d| beyond.time(d) > beyond.time(d + 1)));
    }
}
