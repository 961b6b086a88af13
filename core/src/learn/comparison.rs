//! Comparison: with which of two settings does a device do more?
//!
//! A load does not stand still: one second brings other requests than the next. Two settings that are measured one after the other
//! are therefore measured on two loads. Here samples alternate, one of the present setting and one of the other, and only the two of
//! a pair are compared. An example: the present depth does 100, 200 and 300 MB/s in three samples, twice that depth 103, 206 and
//! 309 in the three between. The load trebled, and the difference is 3 % all the time: three pairs are enough to say so.
//!
//! compare.1  A pair's difference is (other − present) / (other + present): as far from zero for half as much as for twice as much.
//! compare.2  Three pairs or more make a verdict as soon as their mean is three deviations away from the margin that the other setting
//!            must gain. To take the other one, the mean must also exceed the margin by as much as a sample may be off (`bias`).
//! compare.3  Where so little evidence is wanted, two pairs that agree on a plain difference are enough, or one on a plainer one.
//! compare.4  The present setting's rate is that of its samples, or of the time before the comparison if that was more; unless it was twice
//!            that, for then the device or the load has changed.

/// Work in a time: sectors, most often.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Rate {
    pub(crate) sectors: u64,
    pub(crate) nanos: u64,
}

impl Rate {
    fn add(&mut self, other: Self) {
        self.sectors += other.sectors;
        self.nanos += other.nanos;
    }

    /// Sectors per nanosecond.
    pub(crate) fn get(self) -> f64 {
        self.sectors as f64 / self.nanos.max(1) as f64
    }

    /// KiB per second.
    pub(crate) fn kib(self) -> u64 {
        (self.get() * 5e8) as u64
    }
}

/// The thresholds of a proof.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Proof {
    /// The difference from which on the other setting is taken: see [`difference`].
    pub(crate) margin: f64,
    /// By how much a sample may be off (compare.2).
    pub(crate) bias: f64,
    /// The difference that one pair, and each of two, must exceed to be enough; `None`: never are they (compare.3).
    pub(crate) plain: Option<[f64; 2]>,
}

/// The fewest pairs that make a verdict, but for plain ones (compare.2): with two there is next to no deviation.
const PAIRS_MIN: u32 = 3;

/// The difference of a setting with `times` the throughput (compare.1).
pub(crate) const fn difference(times: f64) -> f64 {
    (times - 1.0) / (times + 1.0)
}

/// Samples of two settings, in turn: see the [module](self).
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Comparison {
    /// The rate of the present setting before, in sectors per nanosecond; 0 if unknown (compare.4).
    pub(super) before: f64,
    /// The next sample is of the other setting; the throughput of the present one in its own sample.
    pub(super) is_other: bool,
    present: f64,
    /// All samples: of the present setting, and of the other.
    pub(super) rates: [Rate; 2],
    /// Pairs since it began, or began [anew](Self::begin_anew).
    pub(super) pairs: u32,
    sum: f64,
    squares: f64,
    least: f64,
    most: f64,
}

impl Comparison {
    /// A comparison with a present setting of this throughput before, in sectors per nanosecond; 0 if that is not known.
    pub(crate) fn new(before: f64) -> Self {
        Self { before, ..Self::default() }
    }

    /// Adds a sample; answers whether that completes a pair.
    pub(crate) fn add(&mut self, sample: Rate) -> bool {
        self.rates[usize::from(self.is_other)].add(sample);
        if self.is_other {
            self.add_pair(self.usual_of(self.present), sample.get());
        } else {
            self.present = sample.get();
        }
        self.is_other = !self.is_other;
        !self.is_other
    }

    fn add_pair(&mut self, present: f64, other: f64) {
        let total = present + other;
        let difference = if total > 0.0 { (other - present) / total } else { 0.0 };
        (self.least, self.most) = match self.pairs {
            0 => (difference, difference),
            _ => (self.least.min(difference), self.most.max(difference)),
        };
        self.pairs += 1;
        self.sum += difference;
        self.squares += difference * difference;
    }

    /// compare.4
    const fn usual_of(&self, rate: f64) -> f64 {
        self.before.min(2.0 * rate).max(rate)
    }

    /// The mean of the differences of pairs.
    pub(crate) fn mean(&self) -> f64 {
        self.sum / f64::from(self.pairs.max(1))
    }

    /// The usual rate of the present setting, in sectors per nanosecond (compare.4).
    pub(crate) fn usual(&self) -> f64 {
        self.usual_of(self.rates[0].get())
    }

    /// Other samples follow, longer ones: the pairs so far do not count with them.
    pub(crate) fn begin_anew(&mut self) {
        (self.pairs, self.sum, self.squares) = (0, 0.0, 0.0);
    }

    /// Whether the other setting is better, if that is clear.
    pub(crate) fn verdict(&self, proof: &Proof) -> Option<bool> {
        if let (Some(plain), 1..) = (proof.plain, self.pairs) {
            let plain = plain[usize::from(self.pairs >= 2)];
            if self.least > plain || self.most < -plain {
                return Some(self.least > 0.0);
            }
        }
        if self.pairs < PAIRS_MIN || self.is_other {
            return None;
        }
        let pairs = f64::from(self.pairs);
        let ahead = self.mean() - proof.margin;
        let spread = (self.squares / pairs - self.mean() * self.mean()).max(0.0) / (pairs - 1.0);
        // To stay needs less proof: a comparison that was wrong about it is followed by another.
        let beyond = if ahead > 0.0 { ahead - proof.bias } else { -ahead };
        (beyond > 0.0 && beyond * beyond > 9.0 * spread).then_some(ahead > 0.0)
    }

    /// The difference of all that was done with each: where samples differ much, long ones count more, as they should.
    fn of_all(&self) -> f64 {
        let [present, other] = self.rates.map(Rate::get);
        (other - present) / (other + present).max(f64::MIN_POSITIVE)
    }

    /// The verdict, or, after the last pair, the verdict of all samples.
    pub(crate) fn verdict_within(&self, proof: &Proof, pairs: u32) -> Option<bool> {
        let last = || (self.pairs >= pairs && !self.is_other).then(|| self.of_all() > proof.margin);
        self.verdict(proof).or_else(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gains(times: f64) -> Proof {
        Proof { margin: difference(times), bias: 0.0, plain: None }
    }

    fn took(nanos: u64) -> Rate {
        Rate { sectors: 100, nanos }
    }

    /// Adds samples of both settings in turn, the times of each one after another, until there is a verdict.
    fn judge(proof: Proof, most: u32, nanos: [&[u64]; 2]) -> (Option<bool>, u32) {
        let mut comparison = Comparison::new(0.0);
        for pair in 0..most {
            for (other, times) in nanos.iter().enumerate() {
                assert_eq!(comparison.is_other, other == 1);
                let completes = comparison.add(took(times[pair as usize % times.len()]));
                assert_eq!(completes, other == 1);
            }
            if let Some(better) = comparison.verdict_within(&proof, most) {
                return (Some(better), pair + 1);
            }
        }
        (None, most)
    }

    /// compare.2
    #[test]
    fn a_steady_device_is_judged_by_three_pairs() {
        assert_eq!(judge(gains(1.025), 24, [&[1000, 1001, 999], &[900, 901, 899]]), (Some(true), 3));
        assert_eq!(judge(gains(1.025), 24, [&[1000, 1001, 999], &[990, 991, 989]]), (Some(false), 3));
    }

    /// compare.1
    #[test]
    fn a_load_that_trebles_meanwhile_does_not_matter() {
        assert_eq!(judge(gains(1.02), 24, [&[3000, 2000, 1000], &[2910, 1940, 970]]), (Some(true), 3));
    }

    /// compare.2
    #[test]
    fn a_device_that_works_in_bursts_takes_longer_and_is_judged_by_the_mean_at_last() {
        let (verdict, pairs) = judge(gains(1.025), 24, [&[100, 3000, 200, 2000], &[3000, 100, 2000, 180]]);
        assert_eq!((verdict, pairs), (Some(false), 24));
    }

    /// compare.2
    #[test]
    fn what_is_half_as_fast_and_uneven_is_seen_before_the_last_pair() {
        let (verdict, pairs) = judge(gains(0.99), 24, [&[900, 1000, 1100, 950], &[1900, 2000, 2100, 2300]]);
        assert_eq!(verdict, Some(false));
        assert!(pairs < 6, "{pairs}");
    }

    /// compare.2
    #[test]
    fn a_gain_within_what_samples_may_be_off_is_not_clear() {
        let samples: [&[u64]; 2] = [&[1000], &[900]];
        assert_eq!(judge(gains(1.0), 4, samples), (Some(true), 3));
        assert_eq!(
            judge(Proof { bias: 0.06, ..gains(1.0) }, 4, samples),
            (Some(true), 4),
            "but it is the mean at last"
        );
        assert_eq!(
            judge(Proof { bias: 0.06, ..gains(1.0) }, 4, [&[900], &[1000]]),
            (Some(false), 3),
            "to stay is easy"
        );
    }

    /// compare.3
    #[test]
    fn plain_differences_need_one_pair_or_two() {
        let proof = Proof { plain: Some([difference(3.0), difference(1.9)]), ..gains(1.0) };
        for (other, pairs) in [(300, 1), (500, 2), (600, 3)] {
            assert_eq!(judge(proof, 9, [&[1000], &[other]]), (Some(true), pairs), "{other}");
        }
        assert_eq!(judge(proof, 9, [&[300], &[1000]]), (Some(false), 1));
    }

    /// compare.4
    #[test]
    fn a_setting_that_has_a_bad_moment_counts_as_it_did_before() {
        for (before, better) in [(0.0, true), (1.0, false), (0.4, true)] {
            let mut comparison = Comparison::new(before);
            for _ in 0..3 {
                comparison.add(took(200)); // 0.5
                comparison.add(took(125)); // 0.8
            }
            assert_eq!(comparison.verdict(&gains(1.0)), Some(better), "{before}");
        }
        let mut comparison = Comparison::new(10.0);
        comparison.add(took(200));
        assert!(comparison.usual() < 1.001, "a twentieth of what it was: that is another load, {}", comparison.usual());
    }
}
