//! The tables as data, for the terminal and for the page.

use super::summary::{GroupSummary, Role, RunSummary, Spread, rows};
use super::{heading, printable};
use crate::report::is_ungrouped;
use crate::result::Results;

/// A table: a title, headings, and a line for each row.
pub(super) struct Grid {
    /// Its title, in capitals.
    pub(super) title: &'static str,
    /// In what unit.
    pub(super) unit: &'static str,
    /// The headings behind `job`, `Set` and `NR`.
    pub(super) columns: Vec<String>,
    /// The row and its cells.
    pub(super) lines: Vec<(RunSummary, Vec<String>)>,
}

/// The tables of a workload: averages first, then the longest latency, the 99th percentile, the longest time unserved, the time held (with
/// limits), how far shares are from weights (with groups), what each role got (of workloads with several), and how far sets are apart (if there is more than one).
pub(super) fn grids(results: &Results, workload: &str, total: bool) -> Vec<Grid> {
    let rows = rows(results, workload);
    let ungrouped = results.runs.iter().chain(&results.baseline).all(|run| is_ungrouped(&run.groups));
    let total = total || ungrouped;
    let names: Vec<String> = match rows.first() {
        Some(first) if !ungrouped => first.groups.iter().map(|group| heading(&group.path)).collect(),
        _ => Vec::new(),
    };
    let headed = |titles: &[&str]| names.iter().cloned().chain(titles.iter().map(|&word| word.into())).collect();
    // A figure of each group, then of all together, which alone is shown where there are no groups.
    let grid = |title, unit, last: &str, of: fn(&GroupSummary) -> String, all: fn(&RunSummary) -> String| Grid {
        title,
        unit,
        columns: if total { headed(&[last]) } else { headed(&[]) },
        lines: filled(&rows, |row| {
            let groups = row.groups.iter().filter(|_| !ungrouped).map(of);
            groups.chain(total.then(|| all(row))).collect()
        }),
    };

    let mut grids = vec![
        grid("AVERAGE", "bw in KB/s", "total", |group| whole(group.kb_s.mean), |row| whole(row.total_kb_s.mean)),
        grid(
            "MAX LATENCY",
            "in us, of all sets",
            "max",
            |group| whole(group.lat_max_us.max),
            |row| whole(longest(row, |group| group.lat_max_us.max)),
        ),
        grid(
            "P99 LATENCY",
            "in us, average of the sets",
            "max",
            |group| whole(group.lat_p99_us.mean),
            |row| whole(longest(row, |group| group.lat_p99_us.mean)),
        ),
    ];
    // Results of before have no such figure.
    if rows.iter().any(|row| longest(row, |group| group.unserved_max_us.max) > 0.0) {
        grids.push(grid(
            "UNSERVED",
            "longest without an end while asks waited, in us, of all sets",
            "max",
            |group| whole(group.unserved_max_us.max),
            |row| whole(longest(row, |group| group.unserved_max_us.max)),
        ));
    }
    if !results.limits.is_empty() {
        grids.push(grid(
            "HELD",
            "by limits, in us of an operation, average of the sets",
            "max",
            |group| whole(group.held_us.mean),
            |row| whole(longest(row, |group| group.held_us.mean)),
        ));
    }
    if !ungrouped {
        grids.push(Grid {
            title: "SHARE ERROR",
            unit: "in % of the ideal share; jain: 1 is fair",
            columns: headed(&["max", "jain"]),
            lines: filled(&rows, |row| {
                let groups = row.groups.iter().map(|group| signed(group.share_error() * 100.0));
                let max = format!("{:.1}", row.share_error_max.mean * 100.0);
                groups.chain([max, format!("{:.3}", row.jain.mean)]).collect()
            }),
        });
    }
    if !ungrouped && rows.iter().any(|row| !row.settings.is_empty()) {
        grids.push(Grid {
            title: "FRONTIER",
            unit: "total in KB/s against the largest share error in % and the longest time unserved in us",
            columns: ["total", "error", "unserved"].map(String::from).to_vec(),
            lines: filled(&rows, |row| {
                let error = format!("{:.1}", row.share_error_max.mean * 100.0);
                let unserved = whole(longest(row, |group| group.unserved_max_us.max));
                vec![whole(row.total_kb_s.mean), error, unserved]
            }),
        });
    }
    grids.extend(of_roles(&rows));
    if rows.iter().any(|row| row.sets > 1) {
        let title = "SPREAD";
        let unit = "half of best minus worst set, in % of the average bw";
        grids.push(grid(title, unit, "total", |group| apart(&group.kb_s), |row| apart(&row.total_kb_s)));
    }
    grids
}

/// The figures of each role, of workloads with several; else none.
fn of_roles(rows: &[RunSummary]) -> Vec<Grid> {
    // Not all are there with every number of jobs.
    let Some(most) = rows.iter().max_by_key(|row| row.roles.len()).filter(|row| !row.roles.is_empty()) else {
        return Vec::new();
    };
    let columns: Vec<String> = most.roles.iter().map(|role| printable(&role.name)).collect();
    let by_name = |row: &RunSummary, of: fn(&Role) -> String| -> Vec<String> {
        let cell = |role: &Role| row.roles.iter().find(|own| own.name == role.name).map_or("-".into(), of);
        most.roles.iter().map(cell).collect()
    };
    let grid = |title, unit, of: fn(&Role) -> String| Grid {
        title,
        unit,
        columns: columns.clone(),
        lines: filled(rows, |row| by_name(row, of)),
    };
    vec![
        grid("ROLES", "bw in KB/s of all groups", |role| whole(role.kb_s.mean)),
        grid("P99 LATENCY OF ROLES", "in us, average of the sets", |role| whole(role.lat_p99_us.mean)),
    ]
}

fn filled(rows: &[RunSummary], cells: impl Fn(&RunSummary) -> Vec<String>) -> Vec<(RunSummary, Vec<String>)> {
    rows.iter().map(|row| (row.clone(), cells(row))).collect()
}

fn longest(row: &RunSummary, of: fn(&GroupSummary) -> f64) -> f64 {
    row.groups.iter().map(of).fold(0.0, f64::max)
}

/// To the nearest whole number.
fn whole(figure: f64) -> String {
    format!("{figure:.0}")
}

/// Half the distance of the best and the worst set.
fn apart(spread: &Spread) -> String {
    format!("{:.1}", spread.percent())
}

/// With its sign; what rounds to nothing has none.
fn signed(figure: f64) -> String {
    let shown = format!("{figure:+.1}");
    if shown == "-0.0" || shown == "+0.0" { "0.0".into() } else { shown }
}
