//! The tables as data, for the terminal and for the page.

use super::summary::{RunRow, Sets, Spread, rows};
use super::{heading, printable};
use crate::report::is_ungrouped;
use crate::result::{Group, Results, Role};

/// A table: a title, headings, and a line for each row. The first columns are `job`, `Set` and `NR`.
pub(super) struct Grid {
    /// In capitals.
    pub(super) title: &'static str,
    pub(super) unit: &'static str,
    pub(super) columns: Vec<String>,
    pub(super) lines: Vec<Vec<String>>,
}

impl Grid {
    fn new(
        title: &'static str,
        unit: &'static str,
        columns: Vec<String>,
        rows: &[RunRow<'_>],
        cells: impl Fn(&RunRow<'_>) -> Vec<String>,
    ) -> Self {
        let line = |row: &RunRow<'_>| {
            let first = [row.name(), row.runs.count().to_string(), row.runs.jobs.to_string()];
            first.into_iter().chain(cells(row)).collect()
        };
        let columns = ["job", "Set", "NR"].map(String::from).into_iter().chain(columns).collect();
        Self { title, unit, columns, lines: rows.iter().map(line).collect() }
    }
}

/// The tables of a workload: averages first, then the longest latency, the 99th percentile, the longest time unserved, the time held (with
/// limits), how far shares are from weights (with groups), what each role got (of workloads with several), and how far sets are apart (if there is more than one).
pub(super) fn grids(results: &Results, workload: &str, total: bool) -> Vec<Grid> {
    let rows = rows(results, workload);
    let ungrouped = results.runs.iter().chain(&results.baseline).all(|run| is_ungrouped(&run.groups));
    let total = total || ungrouped;
    let names: Vec<String> = match rows.first() {
        Some(first) if !ungrouped => first.runs.groups.iter().map(|group| heading(&group.path)).collect(),
        _ => Vec::new(),
    };
    let headed = |titles: &[&str]| names.iter().cloned().chain(titles.iter().map(|&word| word.into())).collect();
    // A figure of each group, then of all together, which alone is shown where there are no groups.
    let grid =
        |title, unit, last: &str, of: &dyn Fn(&Sets<'_, Group>) -> String, all: &dyn Fn(&RunRow<'_>) -> String| {
            Grid::new(title, unit, if total { headed(&[last]) } else { headed(&[]) }, &rows, |row| {
                let groups = row.groups();
                let groups = groups.iter().filter(|_| !ungrouped).map(of);
                groups.chain(total.then(|| all(row))).collect()
            })
        };
    let largest = |title, unit, of: fn(&Sets<'_, Group>) -> f64| {
        grid(title, unit, "max", &|group| whole(of(group)), &|row| whole(row.most(of)))
    };
    let unserved: fn(&Sets<'_, Group>) -> f64 = |group| group.over(|one| one.unserved_max_us).max;
    let error = |row: &RunRow<'_>| format!("{:.1}", row.runs.over(|run| run.share_error_max).mean * 100.0);

    let mut grids = vec![
        grid("AVERAGE", "bw in KB/s", "total", &|group| whole(group.over(|one| one.kb_s).mean), &average),
        largest("MAX LATENCY", "in us, of all sets", |group| group.over(|one| one.lat_max_us).max),
        largest("P99 LATENCY", "in us, average of the sets", |group| group.over(|one| one.lat_p99_us).mean),
    ];
    // Results of before have no such figure.
    if rows.iter().any(|row| row.most(unserved) > 0.0) {
        let unit = "longest without an end while asks waited, in us, of all sets";
        grids.push(largest("UNSERVED", unit, unserved));
    }
    if !results.limits.is_empty() {
        let unit = "by limits, in us of an operation, average of the sets";
        grids.push(largest("HELD", unit, |group| group.over(|one| one.held_us).mean));
    }
    if !ungrouped {
        let unit = "in % of the ideal share; jain: 1 is fair";
        grids.push(Grid::new("SHARE ERROR", unit, headed(&["max", "jain"]), &rows, |row| {
            let groups = row.groups();
            let groups = groups.iter().map(|group| signed(group.share_error() * 100.0));
            groups.chain([error(row), format!("{:.3}", row.runs.over(|run| run.jain).mean)]).collect()
        }));
    }
    if !ungrouped && rows.iter().any(|row| !row.runs.settings.is_empty()) {
        let unit = "total in KB/s against the largest share error in % and the longest time unserved in us";
        let columns = ["total", "error", "unserved"].map(String::from).to_vec();
        grids.push(Grid::new("FRONTIER", unit, columns, &rows, |row| {
            vec![average(row), error(row), whole(row.most(unserved))]
        }));
    }
    grids.extend(of_roles(&rows));
    if rows.iter().any(|row| row.runs.count() > 1) {
        let unit = "half of best minus worst set, in % of the average bw";
        let apart = |spread: Spread| format!("{:.1}", spread.percent());
        grids.push(grid("SPREAD", unit, "total", &|group| apart(group.over(|one| one.kb_s)), &|row| {
            apart(row.runs.over(|run| run.total_kb_s))
        }));
    }
    grids
}

/// The figures of each role, of workloads with several; else none.
fn of_roles(rows: &[RunRow<'_>]) -> Vec<Grid> {
    // Not all are there with every number of jobs.
    let Some(most) = rows.iter().max_by_key(|row| row.runs.roles.len()).filter(|row| !row.runs.roles.is_empty()) else {
        return Vec::new();
    };
    let names: Vec<&str> = most.runs.roles.iter().map(|role| role.name.as_str()).collect();
    let grid = |title, unit, of: fn(&Role) -> f64| {
        Grid::new(title, unit, names.iter().map(|name| printable(name)).collect(), rows, |row| {
            let own = row.roles();
            let cell = |name: &&str| own.iter().find(|role| role.name == *name).map(|role| whole(role.over(of).mean));
            names.iter().map(|name| cell(name).unwrap_or("-".into())).collect()
        })
    };
    vec![
        grid("ROLES", "bw in KB/s of all groups", |role| role.kb_s),
        grid("P99 LATENCY OF ROLES", "in us, average of the sets", |role| role.lat_p99_us),
    ]
}

/// 1024 bytes a second of all groups.
fn average(row: &RunRow<'_>) -> String {
    whole(row.runs.over(|run| run.total_kb_s).mean)
}

/// To the nearest whole number.
fn whole(figure: f64) -> String {
    format!("{figure:.0}")
}

/// With its sign; what rounds to nothing has none.
fn signed(figure: f64) -> String {
    let shown = format!("{figure:+.1}");
    if shown == "-0.0" || shown == "+0.0" { "0.0".into() } else { shown }
}
