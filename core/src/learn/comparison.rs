//! Two ways to use the device, compared by what it does.

/// Time per work of two arms, a sample at a time, one of each in turn: what both have in common cancels out.
///
/// A device that works in bursts makes samples that differ much, and then many are needed; one that is steady is judged by
/// three.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Trial {
    /// Samples of each arm: the present way first, then the other.
    taken: [u32; 2],
    sum: [f64; 2],
    squares: [f64; 2],
}

/// Samples of each arm before a verdict.
const LEAST: u32 = 3;

impl Trial {
    /// Which arm the next sample is of: 0 is the present way, 1 the other.
    pub(crate) const fn arm(&self) -> usize {
        (self.taken[0] > self.taken[1]) as usize
    }

    /// Adds a sample: so many sectors in so many nanoseconds, neither of them zero.
    pub(crate) fn add(&mut self, sectors: u64, nanos: u64) {
        let arm = self.arm();
        let each = nanos as f64 / sectors as f64;
        self.taken[arm] += 1;
        self.sum[arm] += each;
        self.squares[arm] += each * each;
    }

    /// Whether the other way is more than `factor` times as fast; `None` while that is not clear and fewer than `most`
    /// samples of each arm were taken.
    pub(crate) fn verdict(&self, factor: f64, most: u32) -> Option<bool> {
        let n = self.taken[1];
        if n < LEAST || self.taken[0] != n {
            return None;
        }
        let count = f64::from(n);
        let mean = self.sum.map(|sum| sum / count);
        let spread = |arm: usize| (self.squares[arm] / count - mean[arm] * mean[arm]).max(0.0);
        let ahead = mean[0] - factor * mean[1];
        let variance = (spread(0) + factor * factor * spread(1)) / (count - 1.0);
        // Three deviations are clear.
        (n >= most || ahead * ahead > 9.0 * variance).then_some(ahead > 0.0)
    }

    /// The throughput of the present way, or of the other, in sectors per second.
    pub(crate) fn rate(&self, other: bool) -> f64 {
        let arm = usize::from(other);
        1e9 * f64::from(self.taken[arm]) / self.sum[arm].max(1e-9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds samples of both arms in turn, each arm's times one after another, until there is a verdict.
    fn judge(factor: f64, most: u32, nanos: [&[u64]; 2]) -> (Option<bool>, u32) {
        let mut trial = Trial::default();
        for round in 0..most {
            for (arm, times) in nanos.iter().enumerate() {
                assert_eq!(trial.arm(), arm);
                trial.add(100, times[round as usize % times.len()]);
            }
            if let Some(better) = trial.verdict(factor, most) {
                return (Some(better), round + 1);
            }
        }
        (None, most)
    }

    #[test]
    fn a_steady_device_is_judged_by_three_samples() {
        assert_eq!(judge(1.025, 24, [&[1000, 1001, 999], &[900, 901, 899]]), (Some(true), 3));
        assert_eq!(judge(1.025, 24, [&[1000, 1001, 999], &[990, 991, 989]]), (Some(false), 3));
    }

    #[test]
    fn a_device_that_works_in_bursts_takes_longer_and_is_judged_by_the_mean_at_last() {
        let (verdict, pairs) = judge(1.025, 24, [&[100, 3000, 200, 2000], &[3000, 100, 2000, 180]]);
        assert_eq!((verdict, pairs), (Some(false), 24));
    }

    #[test]
    fn what_is_half_as_fast_and_uneven_is_seen_before_the_last_sample() {
        let (verdict, pairs) = judge(0.99, 24, [&[900, 1000, 1100, 950], &[1900, 2000, 2100, 2300]]);
        assert_eq!(verdict, Some(false));
        assert!(pairs < 6, "{pairs}");
    }
}
