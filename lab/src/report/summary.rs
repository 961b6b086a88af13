//! Repeated sets, as a mean and its spread.

use std::ops::Deref;

use crate::result::{Group, Results, Role, Run};

/// A figure over sets.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Spread {
    pub(super) mean: f64,
    pub(super) min: f64,
    pub(super) max: f64,
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
    pub(super) fn percent(&self) -> f64 {
        if self.mean == 0.0 { 0.0 } else { (self.max - self.min) / 2.0 / self.mean.abs() * 100.0 }
    }
}

/// The same thing of each set. What does not differ between sets is looked up in the first.
#[derive(Clone)]
pub(super) struct Sets<'a, T>(Vec<&'a T>);

impl<T> Deref for Sets<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0[0]
    }
}

impl<'a, T> Sets<'a, T> {
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    pub(super) fn over(&self, figure: fn(&T) -> f64) -> Spread {
        Spread::of(self.0.iter().map(|one| figure(one)))
    }

    /// A part of each that has it; `None` if none has.
    pub(super) fn part<P>(&self, of: impl Fn(&'a T) -> Option<&'a P>) -> Option<Sets<'a, P>> {
        let parts: Vec<_> = self.0.iter().filter_map(|one| of(one)).collect();
        (!parts.is_empty()).then_some(Sets(parts))
    }
}

impl Sets<'_, Group> {
    /// How far its share is from its due, as a part of its due: (share − ideal) ÷ ideal.
    pub(super) fn share_error(&self) -> f64 {
        if self.ideal == 0.0 { 0.0 } else { (self.over(|group| group.share).mean - self.ideal) / self.ideal }
    }
}

/// The runs of one workload with one number of jobs.
#[derive(Clone)]
pub(super) struct RunRow<'a> {
    /// Whether the path was measured without Fairlift.
    pub(super) raw: bool,
    pub(super) runs: Sets<'a, Run>,
}

impl<'a> RunRow<'a> {
    /// The name of the row: the workload, and behind it `:raw` without Fairlift, or the value of a sweep.
    pub(super) fn name(&self) -> String {
        let behind = match (self.raw, shown_settings(&self.runs)) {
            (true, _) => ":raw".into(),
            (false, settings) if settings.is_empty() => settings,
            (false, settings) => format!(":{}", super::printable(&settings)),
        };
        format!("{}{behind}", super::printable(&self.runs.workload))
    }

    /// In the order of the tree.
    pub(super) fn groups(&self) -> Vec<Sets<'a, Group>> {
        (0..self.runs.groups.len()).filter_map(|place| self.runs.part(|run| run.groups.get(place))).collect()
    }

    /// In the order of the workload.
    pub(super) fn roles(&self) -> Vec<Sets<'a, Role>> {
        (0..self.runs.roles.len()).filter_map(|place| self.runs.part(|run| run.roles.get(place))).collect()
    }

    /// The largest of a figure over groups.
    pub(super) fn most(&self, of: impl Fn(&Sets<'a, Group>) -> f64) -> f64 {
        self.groups().iter().map(of).fold(0.0, f64::max)
    }
}

/// The workloads, in the order in which they first occur.
pub(super) fn workloads(results: &Results) -> Vec<&str> {
    once_each(results.runs.iter().chain(&results.baseline).map(|run| run.workload.as_str()))
}

/// Names, each where it first occurs.
pub(super) fn once_each<'a>(all: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut names = Vec::new();
    for name in all {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The settings of a run, as `slice_idle=0`.
pub(super) fn shown_settings(run: &Run) -> String {
    run.settings.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

/// A row for each number of jobs of a workload, rising, and each value of a sweep; those without Fairlift behind the others.
pub(super) fn rows<'a>(results: &'a Results, workload: &str) -> Vec<RunRow<'a>> {
    let of = |runs: &'a [Run], raw| {
        let mut rows: Vec<RunRow<'a>> = Vec::new();
        for run in runs.iter().filter(|run| run.workload == workload) {
            match rows.iter_mut().find(|row| row.runs.jobs == run.jobs && row.runs.settings == run.settings) {
                Some(row) => row.runs.0.push(run),
                None => rows.push(RunRow { raw, runs: Sets(vec![run]) }),
            }
        }
        rows.sort_by_key(|row| row.runs.jobs); // values of a sweep stay in their order
        rows
    };
    let mut rows = of(&results.runs, false);
    rows.extend(of(&results.baseline, true));
    rows
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
        let shown: Vec<_> = rows
            .iter()
            .map(|row| (row.runs.jobs, row.runs.count(), row.runs.over(|run| run.total_kb_s).mean))
            .collect();
        assert_eq!(shown, [(1, 2, 385.0), (2, 1, 50.0)]);
        let first = rows[0].groups()[0].over(|group| group.kb_s);
        assert_eq!(first, Spread { mean: 105.0, min: 100.0, max: 110.0 });
        assert!((first.percent() - 100.0 * 5.0 / 105.0).abs() < 1e-9);
        assert!((rows[1].groups()[0].share_error() - (0.2 - 0.25) / 0.25).abs() < 1e-9);
        assert_eq!(workloads(&results), ["bsr", "drr"]);
    }

    #[test]
    fn the_path_without_fairlift_comes_behind() {
        let mut results = results(&[100]);
        results.runs = vec![run("drr", 1, 1, &[(100, 1.0)])];
        results.baseline = vec![run("drr", 1, 1, &[(100, 2.0)])];
        let names: Vec<_> = rows(&results, "drr").iter().map(RunRow::name).collect();
        assert_eq!(names, ["drr", "drr:raw"]);
    }

    #[test]
    fn a_figure_that_is_zero_has_no_spread() {
        assert!((Spread { mean: 0.0, min: 0.0, max: 0.0 }).percent().abs() < f64::EPSILON);
        assert_eq!(Spread::of(std::iter::empty()), Spread { mean: 0.0, min: 0.0, max: 0.0 });
    }
}
