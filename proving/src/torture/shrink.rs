//! A run that fails is made short: steps are left out while it still fails (Zeller & Hildebrandt, *Simplifying and Isolating
//! Failure-Inducing Input*, TSE 2002).

use std::time::{Duration, Instant};

use super::{Broken, Suite};

/// A short run that fails.
#[derive(Debug)]
pub struct Small {
    /// The numbers of the steps that are left.
    pub steps: Vec<u64>,
    /// How it fails.
    pub broken: Broken,
}

impl Suite {
    fn fails(&self, seed: u64, steps: &[u64]) -> Option<Broken> {
        self.run(seed, &mut steps.iter().copied()).broken
    }
}

/// Whether two failures are one: they break the same promise, and differ in numbers alone.
fn is_same(one: &Broken, other: &Broken) -> bool {
    let words = |broken: &Broken| broken.says.replace(|c: char| c.is_ascii_digit() || c == '.', "");
    one.promise == other.promise && words(one) == words(other)
}

/// Leaves out steps of a run that fails, as long as it fails in the same way and there is time; `None` if it does not fail.
#[must_use]
pub fn shrink(suite: &Suite, seed: u64, time: Duration) -> Option<Small> {
    let start = Instant::now();
    let all: Vec<u64> = (0..(suite.steps)(seed)).collect();
    let mut broken = suite.fails(seed, &all)?;
    let first = broken.clone();
    let fails = |steps: &[u64]| suite.fails(seed, steps).filter(|how| is_same(how, &first));
    let mut left = all;
    // Steps after the failure are no part of it: the shortest beginning that fails, by halves.
    let (mut low, mut high) = (0, left.len());
    while low < high {
        let middle = usize::midpoint(low, high);
        match fails(&left[..middle]) {
            Some(how) => (high, broken) = (middle, how),
            None => low = middle + 1,
        }
    }
    left.truncate(high);
    let mut chunk = (left.len() / 2).max(1);
    loop {
        let mut at = 0;
        let mut was_shorter = false;
        while at < left.len() && start.elapsed() < time {
            let end = (at + chunk).min(left.len());
            let without: Vec<u64> = left[..at].iter().chain(&left[end..]).copied().collect();
            match fails(&without) {
                Some(how) => (left, broken, was_shorter) = (without, how, true),
                None => at = end,
            }
        }
        if start.elapsed() >= time || (chunk == 1 && !was_shorter) {
            return Some(Small { steps: left, broken });
        }
        if !was_shorter || chunk > left.len() {
            chunk = (chunk / 2).max(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_the_same_if_they_differ_in_numbers_alone() {
        let broken = |promise, says: &str| Broken::new(promise, says);
        let first = broken("L4", "bio 17 times out after 3.5 ms");
        assert!(is_same(&first, &broken("L4", "bio 2 times out after 10 ms")));
        assert!(!is_same(&first, &broken("L1", "bio 17 times out after 3.5 ms")));
        assert!(!is_same(&first, &broken("L4", "bio 17 was told nothing after 3.5 ms")));
    }
}
