//! Several results beside each other: the same workload under other schedulers, or on other disks.

use std::collections::BTreeSet;

use super::super::summary::{RunRow, once_each, rows, workloads};
use super::super::tenants;
use super::distinctions::distinctions;
use super::svg::{self, Frame, HEIGHT, MIB, Svg, WIDTH};
use super::{figure, frontier, jobs, table};
use crate::result::Results;

const FRAME: Frame = Frame { left: 56.0, right: WIDTH - 16.0, top: 34.0, bottom: HEIGHT - 34.0 };

/// A plot for each workload, then a table of them all.
pub(super) fn write(out: &mut String, all: &[Results]) {
    let names = once_each(all.iter().flat_map(workloads));
    out.push_str("<div class=\"plots\">\n");
    let is_situation = |name: &str| all.iter().any(|results| rows(results, name).iter().any(tenants::is_situation));
    let (situations, names): (Vec<&str>, Vec<&str>) = names.into_iter().partition(|name| is_situation(name));
    for workload in names {
        let title = format!("Total throughput of {workload}");
        figure(out, &title, "By jobs in each group, one line for each result.", &plot(all, workload));
        if let Some(plot) = frontier::plot(all, workload) {
            let says = "Total throughput against the largest share error: up and to the left is better.";
            figure(out, &format!("Frontier of {workload}"), says, &plot);
        }
    }
    out.push_str("</div>\n");
    if !situations.is_empty() {
        isolation(out, all, &situations);
    }
    largest(out, all);
}

/// Isolation and use of each situation, a column for each result.
fn isolation(out: &mut String, all: &[Results], situations: &[&str]) {
    let named = all.iter().zip(distinctions(all));
    let heads = named.map(|(results, distinction)| format!("{}, {}{distinction}", results.device, results.scheduler));
    let line = |situation: &&str| -> Vec<String> {
        let cell = |results: &Results| {
            let row = rows(results, situation).into_iter().find(|row| !row.raw)?;
            let (isolation, used, _) = tenants::figures(&row)?;
            Some(format!("{isolation} / {used}"))
        };
        let cells = all.iter().map(|results| cell(results).unwrap_or("-".into()));
        std::iter::once((*situation).to_owned()).chain(cells).collect()
    };
    let heads: Vec<_> = std::iter::once("situation".to_owned()).chain(heads).collect();
    let lines: Vec<_> = situations.iter().map(line).collect();
    table(out, "Situations of tenants <span>isolation / use</span>", &heads, &lines);
}

/// A line: what it is called, and its rows.
struct Line<'a> {
    name: String,
    raw: bool,
    rows: Vec<RunRow<'a>>,
}

fn plot(all: &[Results], workload: &str) -> String {
    let mut lines: Vec<Line<'_>> = Vec::new();
    for (results, distinction) in all.iter().zip(distinctions(all)) {
        for raw in [false, true] {
            let rows: Vec<_> = rows(results, workload).into_iter().filter(|row| row.raw == raw).collect();
            if !rows.is_empty() {
                let scheduler = if raw { "raw" } else { &results.scheduler };
                lines.push(Line { name: format!("{}, {scheduler}{distinction}", results.device), raw, rows });
            }
        }
    }
    let numbers: BTreeSet<u32> = lines.iter().flat_map(|line| &line.rows).map(|row| row.runs.jobs).collect();
    let total = |row: &RunRow<'_>| row.runs.over(|run| run.total_kb_s).mean / MIB;
    let largest = lines.iter().flat_map(|line| &line.rows).map(total).fold(0.0, f64::max);
    let mut drawing = Svg::new(HEIGHT, &format!("Total throughput of {workload} by number of jobs"));
    let max = FRAME.upright(&mut drawing, largest, "MiB/s", |figure| format!("{figure}"));
    let step = (FRAME.right - FRAME.left) / numbers.len().max(1) as f64;
    let x = |jobs: u32| {
        let place = numbers.iter().position(|one| *one == jobs).unwrap_or(0);
        FRAME.left + step * (place as f64 + 0.5)
    };
    for number in &numbers {
        drawing.text("tick middle", (x(*number), FRAME.bottom + 18.0), &jobs(*number, false));
    }
    for (place, Line { name, raw, rows }) in lines.iter().enumerate() {
        let point = |row: &RunRow<'_>| {
            let title = format!("{name}: {:.1} MiB/s, {}", total(row), jobs(row.runs.jobs, *raw));
            ((x(row.runs.jobs), FRAME.y(total(row), max)), title)
        };
        drawing.curve(place, *raw, name, &rows.iter().map(point).collect::<Vec<_>>());
    }
    drawing.finish()
}

/// A line for each workload of each result, at its largest number of jobs.
fn largest(out: &mut String, all: &[Results]) {
    let mut lines = Vec::new();
    for (results, distinction) in all.iter().zip(distinctions(all)) {
        for workload in workloads(results) {
            for raw in [false, true] {
                let Some(row) = rows(results, workload).into_iter().rfind(|row| row.raw == raw) else { continue };
                lines.push([
                    results.device.clone(),
                    format!("{}{distinction}", if raw { "raw" } else { &results.scheduler }),
                    workload.to_owned(),
                    row.runs.jobs.to_string(),
                    format!("{:.0}", row.runs.over(|run| run.total_kb_s).mean),
                    format!("{:.1} %", row.runs.over(|run| run.share_error_max).mean * 100.0),
                    format!("{:.3}", row.runs.over(|run| run.jain).mean),
                    svg::time(row.most(|group| group.over(|group| group.lat_p99_us).mean)),
                ]);
            }
        }
    }
    let heads = ["device", "scheduler", "workload", "jobs", "total KB/s", "largest share error", "Jain", "longest p99"];
    table(out, "At the largest number of jobs", &heads, &lines);
}
