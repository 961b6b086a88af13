//! Figures of one run, and of several.

use fairlift_core::program::Measured;
use fairlift_core::stats::Histogram;
use serde::{Deserialize, Serialize};

/// The figures of one run.
#[derive(Clone, PartialEq, Debug)]
pub struct Sample {
    /// Operations in a second, all jobs together.
    pub iops: f64,
    /// Of each job, in 1000² bytes a second, the fastest first.
    pub each_mb_s: Vec<f64>,
    /// How long an operation took on average, µs.
    pub mean_us: f64,
    /// The time that 99 % of them did not exceed, µs.
    pub p99_us: f64,
    /// The rate of its last quarter against that of its first.
    pub trend: f64,
}

impl Sample {
    /// The figures of a run with this number of requests in flight.
    #[must_use]
    pub fn of(measured: &Measured, in_flight: u32) -> Self {
        let seconds = measured.runtime.as_nanos() as f64 / 1e9;
        let operations: u64 = measured.meters.iter().map(|(_, meter)| meter.operations).sum();
        let rate = |bytes: u64| bytes as f64 / seconds / 1e6;
        let mut each_mb_s: Vec<f64> = measured.meters.iter().map(|(_, meter)| rate(meter.bytes)).collect();
        each_mb_s.sort_by(|a, b| b.total_cmp(a));
        let mut latency = Histogram::default();
        measured.meters.iter().for_each(|(_, meter)| latency.add(&meter.latency));
        let slots: Vec<u64> = measured.timeline.iter().map(|slot| slot.iter().sum()).collect();
        let quarter = slots.len() / 4;
        let sum = |slots: &[u64]| slots.iter().sum::<u64>() as f64;
        let trend = match quarter {
            0 => 1.0,
            some => (sum(&slots[slots.len() - some..]) / sum(&slots[..some]).max(1.0)).min(1e6),
        };
        Self {
            iops: operations as f64 / seconds,
            each_mb_s,
            // All are under way all the time, or nearly: Little's law. A histogram would be off by its buckets.
            mean_us: if operations == 0 { 0.0 } else { f64::from(in_flight) * seconds * 1e6 / operations as f64 },
            p99_us: latency.quantile(990).as_nanos() as f64 / 1e3,
            trend,
        }
    }

    /// All jobs together, in 1000² bytes a second.
    #[must_use]
    pub fn mb_s(&self) -> f64 {
        self.each_mb_s.iter().sum()
    }
}

/// A figure of several runs: their mean, and how far they are apart.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Figure {
    /// Operations in a second.
    pub iops: f64,
    /// 1000² bytes a second.
    pub mb_s: f64,
    /// How long an operation took on average, µs.
    pub mean_us: f64,
    /// The time that 99 % of operations did not exceed, µs, averaged over runs.
    pub p99_us: f64,
    /// Runs.
    pub runs: u32,
    /// Half of the best minus the worst run, in % of the mean.
    pub spread_percent: f64,
}

impl Figure {
    /// Of these runs; `None` of none.
    #[must_use]
    pub fn of(samples: &[Sample]) -> Option<Self> {
        if samples.is_empty() {
            return None;
        }
        let mean = |of: fn(&Sample) -> f64| samples.iter().map(of).sum::<f64>() / samples.len() as f64;
        let rates = || samples.iter().map(|sample| sample.iops);
        let apart = rates().fold(0.0, f64::max) - rates().fold(f64::INFINITY, f64::min);
        let iops = mean(|sample| sample.iops);
        Some(Self {
            iops,
            mb_s: mean(Sample::mb_s),
            mean_us: mean(|sample| sample.mean_us),
            p99_us: mean(|sample| sample.p99_us),
            runs: samples.len() as u32,
            spread_percent: if iops > 0.0 { apart / 2.0 / iops * 100.0 } else { 0.0 },
        })
    }
}

/// The standard error of a mean against it; infinite where that is not known.
pub(super) fn standard_error(figures: impl Iterator<Item = f64> + Clone) -> f64 {
    let count = figures.clone().count() as f64;
    let mean = figures.clone().sum::<f64>() / count;
    if count < 2.0 || mean <= 0.0 {
        return f64::INFINITY;
    }
    let variance = figures.map(|figure| (figure - mean).powi(2)).sum::<f64>() / (count - 1.0);
    (variance / count).sqrt() / mean
}
