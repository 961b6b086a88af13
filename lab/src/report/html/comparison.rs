//! Several results beside each other: the same workload under other schedulers, or on other disks.

use std::fmt::Write as _;

use super::super::summary::{RunSummary, rows, workloads};
use super::super::tenants;
use super::distinctions::distinctions;
use super::svg::{self, Frame, HEIGHT, MIB, Svg, WIDTH, escaped};
use super::{figure, frontier, jobs};
use crate::result::Results;

const FRAME: Frame = Frame { left: 56.0, right: WIDTH - 16.0, top: 34.0, bottom: HEIGHT - 34.0 };

/// A plot for each workload, then a table of them all.
pub(super) fn write(out: &mut String, all: &[Results]) {
    let mut names: Vec<&str> = Vec::new();
    for workload in all.iter().flat_map(workloads) {
        if !names.contains(&workload) {
            names.push(workload);
        }
    }
    out.push_str("<div class=\"plots\">\n");
    let is_situation = |name: &str| all.iter().any(|results| rows(results, name).iter().any(tenants::is_situation));
    let (situations, names): (Vec<&str>, Vec<&str>) = names.into_iter().partition(|name| is_situation(name));
    for workload in names {
        let title = format!("Total throughput of {workload}");
        figure(out, &title, "By jobs in each group, one line for each result.", &plot(all, workload));
        if let Some(plot) = frontier::plot(all, workload) {
            let title = format!("Frontier of {workload}");
            figure(
                out,
                &title,
                "Total throughput against the largest share error: up and to the left is better.",
                &plot,
            );
        }
    }
    out.push_str("</div>\n");
    if !situations.is_empty() {
        isolation(out, all, &situations);
    }
    table(out, all);
}

/// Isolation and use of each situation, a column for each result.
fn isolation(out: &mut String, all: &[Results], situations: &[&str]) {
    out.push_str(
        "<div class=\"wide\"><table>\n<caption>Situations of tenants <span>isolation / use</span></caption>\n<thead><tr><th>situation</th>",
    );
    for (results, distinction) in all.iter().zip(distinctions(all)) {
        let (device, scheduler) = (escaped(&results.device), escaped(&results.scheduler));
        let _ = write!(out, "<th>{device}, {scheduler}{}</th>", escaped(&distinction));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for situation in situations {
        let _ = write!(out, "<tr><th>{}</th>", escaped(situation));
        for results in all {
            let row = rows(results, situation).into_iter().find(|row| !row.raw).and_then(|row| row.together);
            let cell = row.map_or("-".into(), |one| format!("{:.2} / {:.2}", one.isolation.mean, one.used.mean));
            let _ = write!(out, "<td>{cell}</td>");
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table></div>\n");
}

/// A line: what it is called, and its rows.
struct Line {
    name: String,
    raw: bool,
    rows: Vec<RunSummary>,
}

fn plot(all: &[Results], workload: &str) -> String {
    let mut lines: Vec<Line> = Vec::new();
    for (results, distinction) in all.iter().zip(distinctions(all)) {
        for raw in [false, true] {
            let rows: Vec<RunSummary> = rows(results, workload).into_iter().filter(|row| row.raw == raw).collect();
            if !rows.is_empty() {
                let scheduler = if raw { "raw" } else { &results.scheduler };
                lines.push(Line { name: format!("{}, {scheduler}{distinction}", results.device), raw, rows });
            }
        }
    }
    let mut numbers: Vec<u32> = lines.iter().flat_map(|line| &line.rows).map(|row| row.jobs).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let largest = lines.iter().flat_map(|line| &line.rows).map(|row| row.total_kb_s.mean / MIB).fold(0.0, f64::max);
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
        let point = |row: &RunSummary| {
            let title = format!("{name}: {:.1} MiB/s, {}", row.total_kb_s.mean / MIB, jobs(row.jobs, *raw));
            ((x(row.jobs), FRAME.y(row.total_kb_s.mean / MIB, max)), title)
        };
        drawing.curve(place, *raw, name, &rows.iter().map(point).collect::<Vec<_>>());
    }
    drawing.finish()
}

/// A line for each workload of each result, at its largest number of jobs.
fn table(out: &mut String, all: &[Results]) {
    out.push_str(
        "<div class=\"wide\"><table>\n<caption>At the largest number of jobs</caption>\n<thead><tr><th>device</th><th>scheduler</th>\
         <th>workload</th><th>jobs</th><th>total KB/s</th><th>largest share error</th><th>Jain</th><th>longest p99</th></tr></thead>\n\
         <tbody>\n",
    );
    for (results, distinction) in all.iter().zip(distinctions(all)) {
        for workload in workloads(results) {
            for raw in [false, true] {
                let Some(row) = rows(results, workload).into_iter().rfind(|row| row.raw == raw) else { continue };
                let p99 = row.groups.iter().map(|group| group.lat_p99_us.mean).fold(0.0, f64::max);
                let _ = writeln!(
                    out,
                    "<tr><th>{}</th><td>{}{}</td><td>{}</td><td>{}</td><td>{:.0}</td><td>{:.1} %</td><td>{:.3}</td>\
                     <td>{}</td></tr>",
                    escaped(&results.device),
                    if raw { "raw".into() } else { escaped(&results.scheduler) },
                    escaped(&distinction),
                    escaped(workload),
                    row.jobs,
                    row.total_kb_s.mean,
                    row.share_error_max.mean * 100.0,
                    row.jain.mean,
                    svg::time(p99)
                );
            }
        }
    }
    out.push_str("</tbody>\n</table></div>\n");
}
