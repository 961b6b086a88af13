//! Tables for a terminal, in the layout of the `iostest` of 2010.
//!
//! table.1  One table of averages for each workload: a row for each number of jobs, a column for each group.
//! table.2  Below it, in the same form: the longest latency, the 99th percentile, how far shares are from weights, and how
//!     far sets are apart.
//! table.4  A situation of tenants has a table of its own instead: a row for each tenant. Behind several of them is a table of all.
//! table.3  A column is seven wide, more where a cell needs it; `job`, `Set` and `NR` are eight, four and four.

use std::fmt::Write as _;

use super::grid::{Grid, grids};
use super::summary::{rows, shown_settings, workloads};
use super::{block_size, is_ungrouped, printable, tenants};
use crate::model::show_size;
use crate::result::{Decision, Results};

const RULE: usize = 73;

/// All tables; with `total`, groups are followed by a column of their total.
#[must_use]
pub fn table(results: &Results, total: bool) -> String {
    let mut out = String::new();
    for workload in workloads(results) {
        if !out.is_empty() {
            out.push('\n');
        }
        tables_of(&mut out, results, workload, total);
    }
    let overview = tenants::overview(results);
    if !overview.is_empty() {
        let _ = write!(out, "\n{}", tenants::laid_out(tenants::OVERVIEW, &overview, &[0]));
    }
    if results.interrupted {
        let counted = if results.runs.is_empty() { "no run was finished" } else { "only finished runs are counted" };
        let _ = writeln!(out, "{}interrupted: {counted}", if out.is_empty() { "" } else { "\n" });
    }
    out
}

fn tables_of(out: &mut String, results: &Results, workload: &str, total: bool) {
    let rows = rows(results, workload);
    if rows.iter().any(tenants::is_situation) {
        // The head is the same for all: what differs is in the table.
        if workloads(results).first() == Some(&workload) {
            header(out, results, workload);
        }
        for row in &rows {
            let lines = tenants::laid_out(tenants::COLUMNS, &tenants::lines(row), &[0, 2]);
            let _ = writeln!(out, "{}\n{lines}{}", row.name(), tenants::says(row));
        }
        return;
    }
    header(out, results, workload);
    for (place, table) in grids(results, workload, total).iter().enumerate() {
        if place > 0 {
            out.push('\n');
        }
        let _ = writeln!(out, "{}[{}] [{}]", table.title, printable(workload), table.unit);
        grid(out, table);
    }
    decisions(out, results, workload);
}

/// The findings of `slice_idle=auto`, a line for each trial; nothing if there was none.
fn decisions(out: &mut String, results: &Results, workload: &str) {
    let runs = || results.runs.iter().filter(|run| run.workload == workload);
    if runs().all(|run| run.decisions.is_empty()) {
        return;
    }
    let _ = writeln!(out, "\nSLICE_IDLE[{}] [findings of auto, in KB/s of all groups]\n-------", printable(workload));
    let mut line = |cells: [&str; 8]| {
        let [set, jobs, settings, at, from, to, idle, parallel] = cells;
        let text = format!("{set:4}{jobs:4}{at:>8}  {from:9}{to:9}{idle:>10}{parallel:>10}  {settings}");
        let _ = writeln!(out, "{}", text.trim_end());
    };
    line(["Set", "NR", "", "at s", "from", "to", "idle", "parallel"]);
    line(["---", "--", "", "----", "----", "--", "----", "--------"]);
    for run in runs() {
        let settings = printable(&shown_settings(run));
        for Decision { at_s, from, to, idle_kb_s, parallel_kb_s } in &run.decisions {
            line([
                &run.set.to_string(),
                &run.jobs.to_string(),
                &settings,
                &format!("{at_s:.2}"),
                &printable(from),
                &printable(to),
                &format!("{idle_kb_s:.0}"),
                &format!("{parallel_kb_s:.0}"),
            ]);
        }
    }
}

/// The measurement, and its conditions.
fn header(out: &mut String, results: &Results, workload: &str) {
    let groups = results.runs.iter().chain(&results.baseline).find(|run| run.workload == workload);
    if let Some(host) = &results.host {
        let _ = writeln!(out, "{}", printable(&host.to_string()));
    }
    let _ = writeln!(out, "Fairlift={}", printable(&results.version));
    if let Some(run) = groups {
        if run.together.is_some() {
            // Each situation has groups of its own.
        } else if is_ungrouped(&run.groups) {
            let _ = writeln!(out, "GROUPMODE=0");
        } else {
            let _ = writeln!(out, "GROUPMODE=1 NRGRP={}", run.groups.len());
            let weights: Vec<_> = run.groups.iter().map(|group| group.weight.to_string()).collect();
            let _ = writeln!(out, "WEIGHTS={}", weights.join(","));
        }
        let _ =
            writeln!(out, "DEV={} RUNTIME={}s SEED={}", printable(&results.device), round(run.runtime_s), results.seed);
    }
    let _ = write!(out, "Workload={} iosched={}", printable(workload), printable(&results.scheduler));
    if results.file_size > 0 {
        let _ = write!(out, " Filesz={}", show_size(results.file_size));
    }
    if let Some(bytes) = block_size(results, workload) {
        let _ = write!(out, " bs={}", show_size(bytes));
    }
    if results.iodepth > 1 {
        let _ = write!(out, " iodepth={}", results.iodepth);
    }
    out.push('\n');
    if let Some(limits) = limits(results) {
        let _ = writeln!(out, "LIMITS={}", printable(&limits));
    }
    let mut line = String::new();
    for (name, value) in &results.settings {
        let word = format!("{}={}", printable(name), printable(value));
        if !line.is_empty() && line.len() + 1 + word.len() > RULE {
            let _ = writeln!(out, "{line}");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(&word);
    }
    if !line.is_empty() {
        let _ = writeln!(out, "{line}");
    }
    let _ = writeln!(out, "{}", "=".repeat(RULE));
}

/// The limits of groups, if there are any: `/g1: max riops=300; /g2: min riops=5`.
pub(super) fn limits(results: &Results) -> Option<String> {
    let all: Vec<_> = results.limits.iter().map(|(path, says)| format!("{path}: {says}")).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// The rule under the title, the headings, and a line for each row (table.3).
fn grid(out: &mut String, Grid { columns, lines, .. }: &Grid) {
    let length = |text: &str| text.chars().count();
    let width = |(column, heading): (usize, &String)| {
        let longest = lines.iter().map(|line| &line[column]).chain([heading]).map(|text| length(text)).max();
        match column {
            0 => longest.unwrap_or(0).max(7) + 1,
            1 | 2 => 4,
            _ => longest.unwrap_or(0).max(6) + 1,
        }
    };
    let widths: Vec<usize> = columns.iter().enumerate().map(width).collect();
    let mut line = |cells: &[String]| {
        let padded: String = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        let _ = writeln!(out, "{}", padded.trim_end());
    };
    line(&["-------".into()]);
    line(columns);
    let rules = [3, 3, 2, widths[3..].iter().sum()];
    line(&rules.map(|length| "-".repeat(length)));
    lines.iter().for_each(|cells| line(cells));
}

/// A number with at most three decimals, and no zeroes behind.
pub(super) fn round(figure: f64) -> String {
    let shown = format!("{figure:.3}");
    shown.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::{results, role, run, swept};
    use crate::result::Host;

    /// The array's table of 2010, line by line, but for how blanks are counted where it was kept.
    #[test]
    fn what_auto_found_has_a_line_for_each_trial_and_no_table_without_one() {
        let mut results = results(&[100, 200]);
        results.runs = vec![run("bsr", 1, 4, &[(100, 1000.0), (200, 2000.0)])];
        assert!(!table(&results, false).contains("SLICE_IDLE"));
        results.runs[0].decisions = vec![crate::report::fixture::decision()];
        let text = table(&results, false);
        let (_, found) = text.split_once("SLICE_IDLE[bsr]").expect("a table of what was found");
        let last: Vec<_> = found.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(last, ["1", "4", "0.70", "idle", "parallel", "60412", "187000"], "{text}");
    }

    #[test]
    fn averages_are_laid_out_as_in_2010() {
        let figures = [6186, 12752, 16568, 23068, 28608, 35785, 42322, 48409];
        let groups: Vec<_> = (1..).map(|n| n * 100).zip(figures.map(f64::from)).collect();
        let mut results = results(&[]);
        results.runs = (1..=3).map(|set| run("bsr", set, 1, &groups)).collect();
        let text = table(&results, true);
        let expected = "\
Fairlift=0.1.0
GROUPMODE=1 NRGRP=8
WEIGHTS=100,200,300,400,500,600,700,800
DEV=sim:eva-raid5-12 RUNTIME=30s SEED=1
Workload=bsr iosched=cfq Filesz=512M bs=4K
quantum=8 slice_idle=8ms
=========================================================================
AVERAGE[bsr] [bw in KB/s]
-------
job     Set NR  cgrp1  cgrp2  cgrp3  cgrp4  cgrp5  cgrp6  cgrp7  cgrp8  total
---     --- --  ---------------------------------------------------------------
bsr     3   1   6186   12752  16568  23068  28608  35785  42322  48409  213698

";
        assert!(text.starts_with(expected), "{text}");
        let blanks_as_one = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<_> = text.lines().skip(9).take(3).map(blanks_as_one).collect();
        assert_eq!(lines[0], "job Set NR cgrp1 cgrp2 cgrp3 cgrp4 cgrp5 cgrp6 cgrp7 cgrp8 total");
        assert_eq!(lines[1], "--- --- -- ---------------------------------------------------------------");
        assert_eq!(lines[2], "bsr 3 1 6186 12752 16568 23068 28608 35785 42322 48409 213698");
    }

    #[test]
    fn below_the_averages_come_latencies_fairness_and_spread() {
        let mut results = results(&[]);
        results.runs = vec![
            run("drr", 1, 1, &[(100, 100.0), (300, 300.0)]),
            run("drr", 2, 1, &[(100, 120.0), (300, 280.0)]),
            run("drr", 1, 2, &[(100, 90.0), (300, 310.0)]),
        ];
        results.runs[1].groups[1].lat_max_us = 12_345_678.0;
        results.baseline = vec![run("drr", 1, 1, &[(100, 200.0), (300, 200.0)])];
        let text = table(&results, false);
        let (_, below) = text.split_once("[bw in KB/s]\n").unwrap();
        let expected = "\
-------
job     Set NR  cgrp1  cgrp2
---     --- --  --------------
drr     2   1   110    290
drr     1   2   90     310
drr:raw 1   1   200    200

MAX LATENCY[drr] [in us, of all sets]
-------
job     Set NR  cgrp1  cgrp2
---     --- --  ----------------
drr     2   1   20000  12345678
drr     1   2   20000  40000
drr:raw 1   1   20000  40000

P99 LATENCY[drr] [in us, average of the sets]
-------
job     Set NR  cgrp1  cgrp2
---     --- --  --------------
drr     2   1   1000   2000
drr     1   2   1000   2000
drr:raw 1   1   1000   2000

SHARE ERROR[drr] [in % of the ideal share; jain: 1 is fair]
-------
job     Set NR  cgrp1  cgrp2  max    jain
---     --- --  ----------------------------
drr     2   1   +10.0  -3.3   10.0   0.987
drr     1   2   -10.0  +3.3   10.0   0.987
drr:raw 1   1   +100.0 -33.3  100.0  0.987

SPREAD[drr] [half of best minus worst set, in % of the average bw]
-------
job     Set NR  cgrp1  cgrp2
---     --- --  --------------
drr     2   1   9.1    3.4
drr     1   2   0.0    0.0
drr:raw 1   1   0.0    0.0
";
        assert!(below == expected, "{below}");
    }

    #[test]
    fn a_sweep_has_a_row_for_each_value_and_a_table_of_what_fairness_costs() {
        let text = table(&swept(), false);
        assert!(text.contains("\nquantum=8 slice_idle=0,8ms\n"), "{text}");
        let (_, frontier) = text.split_once("\nFRONTIER[bsr] ").unwrap();
        let expected = "\
[total in KB/s against the largest share error in % and the longest time unserved in us]
-------
job                Set NR  total  error  unserved
---                --- --  -----------------------
bsr:slice_idle=0   1   1   500    100.0  100
bsr:slice_idle=8ms 1   1   400    0.0    100
bsr:slice_idle=0   1   4   500    100.0  400
bsr:slice_idle=8ms 1   4   400    0.0    400
";
        assert!(frontier == expected, "{frontier}");
    }

    #[test]
    fn who_was_left_unserved_is_told_where_it_was_measured() {
        let mut results = results(&[]);
        results.runs = vec![run("drr", 1, 1, &[(100, 100.0), (300, 300.0)])];
        results.runs[0].groups[1].unserved_max_us = 8400.4;
        let text = table(&results, true);
        let (_, unserved) = text.split_once("\nUNSERVED[drr] ").unwrap();
        let expected = "\
[longest without an end while asks waited, in us, of all sets]
-------
job     Set NR  cgrp1  cgrp2  max
---     --- --  ---------------------
drr     1   1   0      8400   8400
";
        assert!(unserved.starts_with(expected), "{unserved}");
    }

    #[test]
    fn limits_and_what_they_held_are_told() {
        let mut results = results(&[]);
        results.limits = [("/g2".to_owned(), "max riops=3000".to_owned())].into();
        results.runs = vec![run("drr", 1, 1, &[(100, 100.0), (300, 300.0)])];
        results.runs[0].groups[1].held_us = 8400.4;
        let text = table(&results, false);
        assert!(text.contains("\nLIMITS=/g2: max riops=3000\n"), "{text}");
        let (_, held) = text.split_once("\nHELD[drr] ").unwrap();
        let expected = "\
[by limits, in us of an operation, average of the sets]
-------
job     Set NR  cgrp1  cgrp2
---     --- --  --------------
drr     1   1   0      8400
";
        assert!(held.starts_with(expected), "{held}");
    }

    #[test]
    fn without_groups_there_is_one_column_and_no_share() {
        let mut results = results(&[]);
        results.settings.clear();
        results.host = Some(Host { name: "tux".into(), kernel: "6.12.57".into() });
        results.runs = vec![run("interleaved", 1, 16, &[(100, 1_234_567.0)])];
        results.runs[0].groups[0].path = "/".into();
        let text = table(&results, false);
        let expected = "\
Host=tux Kernel=6.12.57
Fairlift=0.1.0
GROUPMODE=0
DEV=sim:eva-raid5-12 RUNTIME=30s SEED=1
Workload=interleaved iosched=cfq Filesz=512M bs=4K
=========================================================================
AVERAGE[interleaved] [bw in KB/s]
-------
job         Set NR  total
---         --- --  --------
interleaved 1   16  1234567

MAX LATENCY[interleaved] [in us, of all sets]
-------
job         Set NR  max
---         --- --  -------
interleaved 1   16  20000

P99 LATENCY[interleaved] [in us, average of the sets]
-------
job         Set NR  max
---         --- --  -------
interleaved 1   16  1000
";
        assert!(text == expected, "{text}");
    }

    #[test]
    fn a_workload_with_roles_tells_what_each_got() {
        let mut results = results(&[]);
        results.runs = vec![run("journal", 1, 1, &[(100, 1.0)]), run("journal", 1, 2, &[(100, 1.0)])];
        results.runs[0].roles = vec![role("log", 100.0), role("bsw", 900.0)];
        results.runs[1].roles = vec![role("log", 90.0), role("bsw", 800.0), role("brr", 70.0)];
        let text = table(&results, false);
        let (_, roles) = text.split_once("ROLES[journal]").unwrap();
        let expected = " [bw in KB/s of all groups]
-------
job     Set NR  log    bsw    brr
---     --- --  ---------------------
journal 1   1   100    900    -
journal 1   2   90     800    70

P99 LATENCY OF ROLES[journal] [in us, average of the sets]
-------
job     Set NR  log    bsw    brr
---     --- --  ---------------------
journal 1   1   500    500    -
journal 1   2   500    500    500
";
        assert!(roles == expected, "{roles}");
    }

    #[test]
    fn an_interrupted_run_says_so() {
        let mut results = results(&[]);
        results.interrupted = true;
        assert_eq!(table(&results, false), "interrupted: no run was finished\n");
        results.runs = vec![run("bsr", 1, 1, &[(100, 1.0)])];
        assert!(table(&results, false).ends_with("\n\ninterrupted: only finished runs are counted\n"));
    }

    #[test]
    fn long_settings_are_broken_into_lines_as_wide_as_the_rule() {
        let mut results = results(&[]);
        for name in ["read_expire", "write_expire", "fifo_batch", "writes_starved", "front_merges", "async_depth"] {
            results.settings.insert(name.into(), "500ms".into());
        }
        results.runs = vec![run("bsr", 1, 1, &[(100, 1.0)])];
        let text = table(&results, false);
        assert!(text.lines().all(|line| line.len() <= RULE), "{text}");
        assert!(
            text.contains("\nread_expire=500ms slice_idle=8ms write_expire=500ms writes_starved=500ms\n===="),
            "{text}"
        );
    }

    /// report.2
    #[test]
    fn a_device_cannot_move_the_cursor() {
        let mut results = results(&[]);
        results.device = "file:/\u{1b}[2J\nx".into();
        results.runs = vec![run("bsr", 1, 1, &[(100, 1.0)])];
        let text = table(&results, false);
        assert!(text.contains("DEV=file:/\u{fffd}[2J\u{fffd}x RUNTIME=30s"), "{text}");
    }
}
