//! From the work of jobs to the shares of groups, against the entitlements of their weights.

use std::collections::BTreeMap;

use fairlift_core::ceiling::Rate;
use fairlift_core::program::Meter;
use fairlift_core::stats::Histogram;
use fairlift_core::{Direction, Duration, GroupId};

use super::tenants::{children, up_from};
use super::{Case, Measured};
use crate::result::{Decision, DeviceStats, Group, Role, Run};

impl Case {
    /// The measurements, in the words of the results.
    #[must_use]
    pub fn run_of(&self, measured: &Measured) -> Run {
        let leaves = self.leaves();
        // Programs count from the end of the warm-up on; the disk is looked at from the start.
        let whole = nanos(measured.runtime) / 1e9;
        let seconds = (nanos(measured.runtime) - nanos(self.warm_up)).max(1.0) / 1e9;
        let of = |leaf| measured.meters.iter().filter(move |(group, _)| group == leaf).map(|(_, meter)| meter);
        let meters: Vec<Meter> = leaves.iter().map(|leaf| sum(of(leaf))).collect();
        let all = sum(&meters);
        let kb_s = |meter: &Meter| meter.bytes as f64 / 1024.0 / seconds;
        let ideals = self.ideals(&leaves, &meters, &measured.asked, seconds);
        let iops = |meter: &Meter| (meter.operations - meter.failed) as f64 / seconds;
        let groups: Vec<Group> = leaves
            .iter()
            .zip(&meters)
            .zip(ideals)
            .map(|((leaf, meter), ideal)| Group {
                path: self.groups[usize::from(leaf.0)].path.clone(),
                weight: u32::from(self.groups[usize::from(leaf.0)].weight),
                kb_s: kb_s(meter),
                iops: iops(meter),
                share: if all.bytes == 0 { 0.0 } else { meter.bytes as f64 / all.bytes as f64 },
                ideal,
                lat_p50_us: quantile_us(meter, 500),
                lat_p99_us: quantile_us(meter, 990),
                lat_max_us: nanos(meter.latency_max) / 1e3,
                unserved_max_us: nanos(measured.unserved[usize::from(leaf.0)]) / 1e3,
                held_us: nanos(measured.held[usize::from(leaf.0)]) / 1e3 / meter.operations.max(1) as f64,
                tenant: None,
            })
            .collect();
        let work = measured.work;
        // Due nothing is a group under a limit of I/Os that did none, and one beside floors that are more than there is.
        let due = || groups.iter().filter(|group| group.ideal > 0.0);
        Run {
            workload: self.workload.name.clone(),
            settings: BTreeMap::new(),
            set: self.set,
            jobs: self.jobs,
            runtime_s: seconds,
            total_kb_s: kb_s(&all),
            iops: iops(&all),
            share_error_max: due().map(|g| (g.share - g.ideal).abs() / g.ideal).fold(0.0, f64::max),
            jain: jain(due().map(|group| group.kb_s / group.ideal)),
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

    /// The figures of each role, where there are several.
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
            let sum = sum(meters.iter().copied());
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

    /// The part of the work that each leaf's weight entitles it to, among siblings on every level: no less than its floor, no more than its
    /// ceiling. Where there are neither, how much was done does not matter.
    fn ideals(&self, leaves: &[GroupId], meters: &[Meter], asked: &[(u64, u64)], seconds: f64) -> Vec<f64> {
        // By group: what was done in it and below it, and the requests for that with their bytes.
        let (mut bytes, mut requests) = (vec![0.0; self.groups.len()], vec![(0, 0); self.groups.len()]);
        for (leaf, meter) in leaves.iter().zip(meters) {
            // An operation may be less than a request or many. It is all that is known where there is no queue.
            let (count, size) = match asked[usize::from(leaf.0)] {
                (0, _) => (meter.operations, meter.bytes),
                some => some,
            };
            for group in up_from(&self.groups, *leaf) {
                bytes[group] += meter.bytes as f64 / seconds;
                requests[group] = (requests[group].0 + count, requests[group].1 + size);
            }
        }
        let all = if bytes[0] > 0.0 { bytes[0] } else { 1.0 };
        // The part that the rates give. Those of one direction are known where the workload has one.
        let goes = |way| self.workload.roles.iter().any(|role| role.does.writes() == (way == Direction::Write));
        let part = |(rate, amount): (Rate, u64), at: usize| {
            let is_known = Direction::ALL.into_iter().all(|way| rate.counts(way) || !goes(way));
            let (count, sizes) = requests[at];
            let size = if rate.counts_bytes() { 1.0 } else { sizes as f64 / count.max(1) as f64 };
            is_known.then_some(amount as f64 * size / all)
        };
        let (mut least, mut most) = (vec![0.0; self.groups.len()], vec![f64::INFINITY; self.groups.len()]);
        // Children come after their parents.
        for (at, group) in self.groups.iter().enumerate().rev() {
            let children = children(&self.groups, at);
            if !children.is_empty() {
                least[at] = children.iter().map(|child| least[*child]).sum();
                most[at] = children.iter().map(|child| most[*child]).sum();
            }
            let Some(bounds) = self.bounds.get(&group.path) else { continue };
            let floors = bounds.floor.iter().filter_map(|rate| part(rate, at));
            let ceilings = bounds.ceiling.max.iter().filter_map(|rate| part(rate, at));
            least[at] = floors.fold(least[at], f64::max);
            most[at] = ceilings.fold(most[at], f64::min);
        }
        let mut has = vec![1.0; self.groups.len()];
        for at in 0..self.groups.len() {
            let children = children(&self.groups, at);
            let bounds = children.iter().map(|at| (f64::from(self.groups[*at].weight), least[*at], most[*at]));
            let parts = divide(has[at], &bounds.collect::<Vec<_>>());
            children.iter().zip(parts).for_each(|(child, part)| has[*child] = part);
        }
        leaves.iter().map(|leaf| has[usize::from(leaf.0)]).collect()
    }
}

/// Divides something by weight; each gets no less and no more than that, unless the least are more than there is.
fn divide(whole: f64, all: &[(f64, f64, f64)]) -> Vec<f64> {
    let least: f64 = all.iter().map(|(_, least, _)| least).sum();
    if least > whole {
        return all.iter().map(|(_, own, _)| own * whole / least).collect();
    }
    let weights: f64 = all.iter().map(|(weight, ..)| weight).sum();
    if all.iter().all(|(_, least, most)| *least <= 0.0 && most.is_infinite()) {
        return all.iter().map(|(weight, ..)| whole * (weight / weights)).collect();
    }
    let at = |level: f64| all.iter().map(move |(weight, least, most)| (level * weight).min(*most).max(*least));
    // By a level that is enough for the lightest.
    let (mut low, mut high) = (0.0, whole / all.iter().map(|(weight, ..)| *weight).fold(f64::INFINITY, f64::min));
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if at(middle).sum::<f64>() < whole { low = middle } else { high = middle }
    }
    at(high).collect()
}

/// The columns of the groups that have jobs.
fn of_leaves(timeline: &[Vec<u64>], leaves: &[GroupId]) -> Vec<Vec<u64>> {
    let bytes = |slot: &Vec<u64>, leaf: &GroupId| slot.get(usize::from(leaf.0)).copied().unwrap_or(0);
    timeline.iter().map(|slot| leaves.iter().map(|leaf| bytes(slot, leaf)).collect()).collect()
}

fn sum<'a>(meters: impl IntoIterator<Item = &'a Meter>) -> Meter {
    let mut sum = Meter::default();
    meters.into_iter().for_each(|meter| sum.add(meter));
    sum
}

fn nanos(length: Duration) -> f64 {
    length.as_nanos() as f64
}

/// A quantile is the upper bound of its bucket: it is not beyond the longest that there was. Where nothing ended, it is the age of the
/// oldest waiting operation: a tenant that got nothing does not fare well.
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
