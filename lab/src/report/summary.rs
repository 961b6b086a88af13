//! Repeated sets, as a mean and its spread.

use crate::result::{Results, Run};

/// A figure over sets.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Spread {
    /// The arithmetic mean.
    pub mean: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Of nothing: zero.
    fn of(figures: impl Iterator<Item = f64>) -> Self {
        let (mut sum, mut count) = (0.0, 0_u32);
        let (mut min, mut max) = (f64::INFINITY, f64::NEG_INFINITY);
        for figure in figures {
            sum += figure;
            count += 1;
            min = min.min(figure);
            max = max.max(figure);
        }
        if count == 0 {
            return Self { mean: 0.0, min: 0.0, max: 0.0 };
        }
        Self { mean: sum / f64::from(count), min, max }
    }

    /// Half the distance between smallest and largest, in percent of the mean; zero if the mean is.
    #[must_use]
    pub fn percent(&self) -> f64 {
        if self.mean == 0.0 { 0.0 } else { (self.max - self.min) / 2.0 / self.mean.abs() * 100.0 }
    }
}

/// The figures of a group, over sets.
#[derive(Clone, PartialEq, Debug)]
pub struct GroupSummary {
    /// Its path.
    pub path: String,
    /// Its weight.
    pub weight: u32,
    /// 1024 bytes a second.
    pub kb_s: Spread,
    /// Of the total: 0 to 1.
    pub share: Spread,
    /// The share that its weight entitles it to: 0 to 1.
    pub ideal: f64,
    /// Microseconds that 99 % of its operations did not exceed.
    pub lat_p99_us: Spread,
    /// Microseconds of its longest operation.
    pub lat_max_us: Spread,
    /// The longest time, in microseconds, that it was left unserved.
    pub unserved_max_us: Spread,
    /// How long limits held an operation, on average.
    pub held_us: Spread,
    /// Operations a second.
    pub iops: Spread,
    /// Of a situation: what it is entitled to.
    pub tenant: Option<Tenant>,
}

/// The entitlement of a tenant, and its distance from it, over sets.
#[derive(Clone, PartialEq, Debug)]
pub struct Tenant {
    /// Its operation.
    pub does: String,
    /// Operations a second alone.
    pub alone: Spread,
    /// The part of the disk that it is entitled to.
    pub entitled: Spread,
    /// Its part of the capacity, over that.
    pub achieved: Spread,
}

/// How the tenants of a situation got on together, over sets.
#[derive(Clone, PartialEq, Debug)]
pub struct Together {
    /// The least part of its entitlement that a tenant achieved.
    pub isolation: Spread,
    /// How much of the disk was at work.
    pub used: Spread,
    /// The largest error of a share of saturating tenants over any second.
    pub share_error_1s: Option<Spread>,
}

impl GroupSummary {
    /// How far its share is from its due, as a part of its due: (share − ideal) ÷ ideal.
    #[must_use]
    pub fn share_error(&self) -> f64 {
        if self.ideal == 0.0 { 0.0 } else { (self.share.mean - self.ideal) / self.ideal }
    }
}

/// The figures of a role, over sets.
#[derive(Clone, PartialEq, Debug)]
pub struct Role {
    /// Its name in the workload.
    pub name: String,
    /// 1024 bytes a second.
    pub kb_s: Spread,
    /// Microseconds that 99 % of its operations did not exceed.
    pub lat_p99_us: Spread,
}

/// The runs of one workload with one number of jobs.
#[derive(Clone, PartialEq, Debug)]
pub struct RunSummary {
    /// The workload.
    pub workload: String,
    /// The value that a sweep had, as `slice_idle=0`; empty if there was none.
    pub settings: String,
    /// Whether the path was measured without Fairlift.
    pub raw: bool,
    /// How many sets it was repeated.
    pub sets: usize,
    /// Jobs in each group.
    pub jobs: u32,
    /// The figures of each group, in the order of the tree.
    pub groups: Vec<GroupSummary>,
    /// The figures of each role, of a workload with several; in the order of the workload.
    pub roles: Vec<Role>,
    /// 1024 bytes a second of all groups.
    pub total_kb_s: Spread,
    /// Operations a second of all groups.
    pub iops: Spread,
    /// The largest |share − ideal| ÷ ideal over groups.
    pub share_error_max: Spread,
    /// Jain's index of bandwidth ÷ weight.
    pub jain: Spread,
    /// Of a situation.
    pub together: Option<Together>,
}

impl RunSummary {
    /// The name of the row: the workload, and behind it `:raw` without Fairlift, or the value of a sweep.
    #[must_use]
    pub fn name(&self) -> String {
        let behind = match (self.raw, self.settings.as_str()) {
            (true, _) => ":raw".into(),
            (false, "") => String::new(),
            (false, settings) => format!(":{}", super::printable(settings)),
        };
        format!("{}{behind}", super::printable(&self.workload))
    }
}

/// The workloads, in the order in which they first occur.
#[must_use]
pub fn workloads(results: &Results) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for run in results.runs.iter().chain(&results.baseline) {
        if !names.contains(&run.workload.as_str()) {
            names.push(&run.workload);
        }
    }
    names
}

/// The settings of a run, as `slice_idle=0`.
pub(super) fn shown_settings(run: &Run) -> String {
    run.settings.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

/// A row for each number of jobs of a workload, rising, and each value of a sweep; those without Fairlift behind the others.
#[must_use]
pub fn rows(results: &Results, workload: &str) -> Vec<RunSummary> {
    let of = |runs: &[Run], raw| {
        let mut rows: Vec<Vec<&Run>> = Vec::new();
        for run in runs.iter().filter(|run| run.workload == workload) {
            match rows.iter_mut().find(|row| row[0].jobs == run.jobs && row[0].settings == run.settings) {
                Some(row) => row.push(run),
                None => rows.push(vec![run]),
            }
        }
        rows.sort_by_key(|row| row[0].jobs); // values of a sweep stay in their order
        rows.iter().map(|sets| row(sets, raw)).collect::<Vec<_>>()
    };
    let mut rows = of(&results.runs, false);
    rows.extend(of(&results.baseline, true));
    rows
}

fn row(sets: &[&Run], raw: bool) -> RunSummary {
    let over = |figure: fn(&Run) -> f64| Spread::of(sets.iter().map(|run| figure(run)));
    let first = sets[0];
    let groups = first.groups.iter().enumerate().map(|(place, group)| {
        let over = |figure: fn(&crate::result::Group) -> f64| {
            Spread::of(sets.iter().filter_map(|run| run.groups.get(place)).map(figure))
        };
        GroupSummary {
            path: group.path.clone(),
            weight: group.weight,
            kb_s: over(|group| group.kb_s),
            share: over(|group| group.share),
            ideal: group.ideal,
            lat_p99_us: over(|group| group.lat_p99_us),
            lat_max_us: over(|group| group.lat_max_us),
            unserved_max_us: over(|group| group.unserved_max_us),
            held_us: over(|group| group.held_us),
            iops: over(|group| group.iops),
            tenant: group.tenant.as_ref().map(|tenant| tenant_of(&tenant.does, sets, place)),
        }
    });
    let roles = first.roles.iter().enumerate().map(|(place, role)| {
        let over = |figure: fn(&crate::result::Role) -> f64| {
            Spread::of(sets.iter().filter_map(|run| run.roles.get(place)).map(figure))
        };
        Role { name: role.name.clone(), kb_s: over(|role| role.kb_s), lat_p99_us: over(|role| role.lat_p99_us) }
    });
    RunSummary {
        workload: first.workload.clone(),
        settings: shown_settings(first),
        raw,
        sets: sets.len(),
        jobs: first.jobs,
        groups: groups.collect(),
        roles: roles.collect(),
        total_kb_s: over(|run| run.total_kb_s),
        iops: over(|run| run.iops),
        share_error_max: over(|run| run.share_error_max),
        jain: over(|run| run.jain),
        together: first.together.map(|_| together(sets)),
    }
}

fn tenant_of(does: &str, sets: &[&Run], place: usize) -> Tenant {
    let over = |figure: fn(&crate::result::Tenant) -> f64| {
        Spread::of(sets.iter().filter_map(|run| run.groups.get(place)?.tenant.as_ref()).map(figure))
    };
    Tenant {
        does: does.into(),
        alone: over(|tenant| tenant.demand * tenant.capacity),
        entitled: over(|tenant| tenant.entitled),
        achieved: over(|tenant| tenant.achieved),
    }
}

fn together(sets: &[&Run]) -> Together {
    let all = || sets.iter().filter_map(|run| run.together);
    let errors: Vec<f64> = all().filter_map(|one| one.share_error_1s).collect();
    Together {
        isolation: Spread::of(all().map(|one| one.isolation)),
        used: Spread::of(all().map(|one| one.used)),
        share_error_1s: (!errors.is_empty()).then(|| Spread::of(errors.iter().copied())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::{results, run};

    #[test]
    fn a_row_is_the_mean_of_its_sets_and_rows_rise_with_jobs() {
        let mut results = results(&[100, 300]);
        results.runs = vec![
            run("bsr", 1, 2, &[(100, 10.0), (300, 40.0)]),
            run("bsr", 1, 1, &[(100, 100.0), (300, 300.0)]),
            run("bsr", 2, 1, &[(100, 110.0), (300, 260.0)]),
            run("drr", 1, 1, &[(100, 1.0), (300, 1.0)]),
        ];
        let rows = rows(&results, "bsr");
        let shown: Vec<_> = rows.iter().map(|row| (row.jobs, row.sets, row.total_kb_s.mean)).collect();
        assert_eq!(shown, [(1, 2, 385.0), (2, 1, 50.0)]);
        let first = &rows[0].groups[0];
        assert_eq!(first.kb_s, Spread { mean: 105.0, min: 100.0, max: 110.0 });
        assert!((first.kb_s.percent() - 100.0 * 5.0 / 105.0).abs() < 1e-9);
        assert!((rows[1].groups[0].share_error() - (0.2 - 0.25) / 0.25).abs() < 1e-9);
        assert_eq!(workloads(&results), ["bsr", "drr"]);
    }

    #[test]
    fn the_path_without_fairlift_comes_behind() {
        let mut results = results(&[100]);
        results.runs = vec![run("drr", 1, 1, &[(100, 1.0)])];
        results.baseline = vec![run("drr", 1, 1, &[(100, 2.0)])];
        let names: Vec<_> = rows(&results, "drr").iter().map(RunSummary::name).collect();
        assert_eq!(names, ["drr", "drr:raw"]);
    }

    #[test]
    fn a_figure_that_is_zero_has_no_spread() {
        assert!((Spread { mean: 0.0, min: 0.0, max: 0.0 }).percent().abs() < f64::EPSILON);
        assert_eq!(Spread::of(std::iter::empty()), Spread { mean: 0.0, min: 0.0, max: 0.0 });
    }
}
