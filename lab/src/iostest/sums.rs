//! From what jobs got to what groups got, against what their weights entitle them to.

use std::collections::BTreeMap;

use fairlift_core::program::Meter;
use fairlift_core::stats::Histogram;
use fairlift_core::{Duration, GroupId};

use super::{Case, Measured};
use crate::result::{Decision, DeviceStats, Group, Role, Run};

impl Case {
    /// What was measured, in the words of the results.
    #[must_use]
    pub fn run_of(&self, measured: &Measured) -> Run {
        let leaves = self.leaves();
        // Programs count from the end of the warm-up on; the disk is looked at from the start.
        let whole = nanos(measured.runtime) / 1e9;
        let seconds = (nanos(measured.runtime) - nanos(self.warm_up)).max(1.0) / 1e9;
        let mut all = Meter::default();
        let meters: Vec<Meter> = leaves.iter().map(|leaf| sum(measured, *leaf)).collect();
        meters.iter().for_each(|meter| all.add(meter));
        let kb_s = |meter: &Meter| meter.bytes as f64 / 1024.0 / seconds;
        let iops = |meter: &Meter| (meter.operations - meter.failed) as f64 / seconds;
        let groups: Vec<Group> = leaves
            .iter()
            .zip(&meters)
            .map(|(leaf, meter)| Group {
                path: self.groups[usize::from(leaf.0)].path.clone(),
                weight: u32::from(self.groups[usize::from(leaf.0)].weight),
                kb_s: kb_s(meter),
                iops: iops(meter),
                share: if all.bytes == 0 { 0.0 } else { meter.bytes as f64 / all.bytes as f64 },
                ideal: self.ideal(*leaf),
                lat_p50_us: quantile_us(meter, 500),
                lat_p99_us: quantile_us(meter, 990),
                lat_max_us: nanos(meter.latency_max) / 1e3,
                unserved_max_us: nanos(measured.unserved[usize::from(leaf.0)]) / 1e3,
                held_us: nanos(measured.held[usize::from(leaf.0)]) / 1e3 / meter.operations.max(1) as f64,
                tenant: None,
            })
            .collect();
        let work = measured.work;
        Run {
            workload: self.workload.name.clone(),
            settings: BTreeMap::new(),
            set: self.set,
            jobs: self.jobs,
            runtime_s: seconds,
            total_kb_s: kb_s(&all),
            iops: iops(&all),
            share_error_max: groups.iter().map(|g| (g.share - g.ideal).abs() / g.ideal).fold(0.0, f64::max),
            jain: jain(groups.iter().map(|group| group.kb_s / group.ideal)),
            device_stats: DeviceStats {
                requests: work.requests,
                flushes: work.flushes,
                busy: work.busy as f64 / 1e9 / whole,
                depth_mean: work.depth_time as f64 / 1e9 / whole,
            },
            counters: measured.counters.clone(),
            decisions: measured.findings.iter().map(Decision::of).collect(),
            timeline: of_leaves(self.counted(&measured.timeline), &leaves),
            latencies: latencies(&all.latency),
            roles: if self.workload.is_situation() { Vec::new() } else { self.roles(measured, seconds) },
            together: None,
            groups,
        }
    }

    /// The slots behind the warm-up.
    fn counted<'a>(&self, timeline: &'a [Vec<u64>]) -> &'a [Vec<u64>] {
        let slots = u128::from(self.slots) * u128::from(self.warm_up.as_nanos());
        let warm = slots.div_ceil(u128::from(self.runtime.as_nanos()).max(1)) as usize;
        &timeline[warm.min(timeline.len())..]
    }

    /// What each role got, where there are several.
    fn roles(&self, measured: &Measured, seconds: f64) -> Vec<Role> {
        let cast = self.cast();
        assert_eq!(cast.len(), measured.meters.len(), "{self}: a meter for each job");
        let of = |name: &str| -> Vec<&Meter> {
            let jobs = cast.iter().zip(&measured.meters).filter(|((_, role), _)| role.name == name);
            jobs.map(|(_, (_, meter))| meter).collect()
        };
        let roles = self.workload.roles.iter().filter(|_| self.workload.roles.len() > 1);
        let sums = roles.map(|role| {
            let meters = of(&role.name);
            let mut sum = Meter::default();
            meters.iter().for_each(|meter| sum.add(meter));
            Role {
                name: role.name.clone(),
                jobs: meters.len() as u32,
                kb_s: sum.bytes as f64 / 1024.0 / seconds,
                iops: (sum.operations - sum.failed) as f64 / seconds,
                lat_p50_us: quantile_us(&sum, 500),
                lat_p99_us: quantile_us(&sum, 990),
                lat_max_us: nanos(sum.latency_max) / 1e3,
            }
        });
        sums.collect()
    }

    /// The part of the disk that a leaf's weight entitles it to, among siblings on every level.
    fn ideal(&self, leaf: GroupId) -> f64 {
        let mut part = 1.0;
        let mut group = &self.groups[usize::from(leaf.0)];
        while let Some(parent) = group.parent {
            let siblings = self.groups.iter().filter(|other| other.parent == Some(parent));
            part *= f64::from(group.weight) / siblings.map(|other| f64::from(other.weight)).sum::<f64>();
            group = &self.groups[usize::from(parent.0)];
        }
        part
    }
}

/// The columns of the groups that have jobs.
fn of_leaves(timeline: &[Vec<u64>], leaves: &[GroupId]) -> Vec<Vec<u64>> {
    let bytes = |slot: &Vec<u64>, leaf: &GroupId| slot.get(usize::from(leaf.0)).copied().unwrap_or(0);
    timeline.iter().map(|slot| leaves.iter().map(|leaf| bytes(slot, leaf)).collect()).collect()
}

fn sum(measured: &Measured, leaf: GroupId) -> Meter {
    let mut sum = Meter::default();
    measured.meters.iter().filter(|(group, _)| *group == leaf).for_each(|(_, meter)| sum.add(meter));
    sum
}

fn nanos(length: Duration) -> f64 {
    length.as_nanos() as f64
}

/// A quantile is the upper bound of its bucket: it is not beyond the longest that there was. Where nothing ended, it is the
/// age of what has waited longest: nobody fares well by getting nothing.
fn quantile_us(meter: &Meter, per_mille: u32) -> f64 {
    if meter.latency.is_empty() {
        return nanos(meter.latency_max) / 1e3;
    }
    nanos(meter.latency.quantile(per_mille).min(meter.latency_max)) / 1e3
}

/// Jain's index of fairness: 1 when all are equal, 1/n when one has all; 1 when nobody has anything.
fn jain(values: impl Iterator<Item = f64>) -> f64 {
    let (mut n, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for value in values {
        (n, sum, squares) = (n + 1.0, sum + value, squares + value * value);
    }
    if squares == 0.0 { 1.0 } else { sum * sum / (n * squares) }
}

/// The buckets that are not empty: (upper bound in µs, operations).
fn latencies(histogram: &Histogram) -> Vec<(f64, u64)> {
    histogram.buckets().map(|(upper, count)| (nanos(upper) / 1e3, count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeline_keeps_the_groups_that_have_jobs() {
        let timeline = [vec![0, 1, 2, 3], vec![4, 5, 6, 7], vec![8]];
        assert_eq!(of_leaves(&timeline, &[GroupId(1), GroupId(3)]), [[1, 3], [5, 7], [0, 0]]);
    }
}
