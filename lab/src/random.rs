//! Random numbers that are the same on every machine: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).

use fairlift_core::Duration;

/// 2⁶⁴ divided by the golden ratio, odd: what a sequence goes on by.
pub(crate) const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Spreads a number over 64 bits: the finish of SplitMix64.
pub(crate) const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A sequence that its seed determines.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// A number below `bound`.
    ///
    /// # Panics
    /// If `bound` is 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        // 64 bits of randomness against bounds far below 2^48: the bias is beyond measuring.
        ((self.bits() as u128 * bound as u128) >> 64) as u64
    }

    /// The time to the next of events that come by chance, one every `mean` on average (exponentially distributed).
    ///
    /// By von Neumann's comparisons (1951), so that no machine's logarithm is asked.
    #[must_use]
    pub fn exponential(&mut self, mean: Duration) -> Duration {
        let mut whole: u64 = 0;
        loop {
            let first = self.bits();
            let (mut last, mut descending) = (first, 1);
            loop {
                let next = self.bits();
                if next >= last {
                    break;
                }
                (last, descending) = (next, descending + 1);
            }
            if descending % 2 == 1 {
                let part = (u128::from(first) * u128::from(mean.as_nanos())) >> 64;
                return Duration::from_nanos(whole.saturating_mul(mean.as_nanos()).saturating_add(part as u64));
            }
            whole += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlift_core::time::us;

    /// The first numbers of seed 1234567, as published with the algorithm.
    #[test]
    fn the_sequence_is_the_published_one() {
        let mut random = Random::new(1_234_567);
        let first = [random.bits(), random.bits(), random.bits()];
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    /// Mean 1; 1 − 1/e of them below the mean; e⁻³ beyond three times it.
    #[test]
    fn exponential_times_have_their_mean_and_their_tail() {
        let mut random = Random::new(5);
        let times: Vec<_> = (0..100_000).map(|_| random.exponential(us(100)).as_nanos()).collect();
        let part = |is: fn(u64) -> bool| times.iter().filter(|time| is(**time)).count() as f64 / 1e5;
        let mean = times.iter().sum::<u64>() as f64 / 1e5;
        assert!((99e3..101e3).contains(&mean), "{mean}");
        assert!((part(|time| time < 100_000) - 0.632).abs() < 0.01);
        assert!((part(|time| time > 300_000) - 0.050).abs() < 0.005);
    }
}
