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

/// Leaves out steps of a run that fails, as long as a promise is broken and there is time; `None` if it does not fail.
#[must_use]
pub fn shrink(suite: &Suite, seed: u64, time: Duration) -> Option<Small> {
    let start = Instant::now();
    let all: Vec<u64> = (0..(suite.steps)(seed)).collect();
    let mut broken = suite.fails(seed, &all)?;
    let mut left = all;
    // What comes after the failure is no part of it: the shortest beginning that fails, by halves.
    let (mut low, mut high) = (0, left.len());
    while low < high {
        let middle = usize::midpoint(low, high);
        match suite.fails(seed, &left[..middle]) {
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
            match suite.fails(seed, &without) {
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
