//! One page with plots, which needs no network, no script, and no other file.
//!
//! page.1  The page is whole: styles and plots are in it, and it refers to nothing outside.
//! page.2  It is well-formed as XML too, and all text from outside is escaped (report.2).
//! page.3  No plot tells by colour alone: what a mark stands for is in its title, and every figure is in a table below.

mod comparison;
mod distinctions;
mod frontier;
mod latency;
mod shares;
mod svg;
mod throughput;
mod timeline;
mod tune;

use std::fmt::Write as _;

use super::grid::{Grid, grids};
use super::summary::{RunRow, rows, workloads};
use super::table::{limits, round};
use super::{heading, tenants};
use crate::model::show_size;
use crate::result::{Results, Run};
use svg::escaped;

pub use tune::page as tuning;

/// The page of one call, or of several beside each other.
#[must_use]
pub fn html(all: &[Results]) -> String {
    let title = match all {
        [one] => format!("{} with {}", one.device, one.scheduler),
        _ => format!("{} results", all.len()),
    };
    let mut out = head("iostest", &title);
    // The values of a sweep stand beside each other as results of several calls do.
    let apart: Vec<Results> = all.iter().flat_map(Results::by_settings).collect();
    if apart.len() > 1 {
        comparison::write(&mut out, &apart);
    }
    for (results, distinction) in apart.iter().zip(distinctions::distinctions(&apart)) {
        section(&mut out, results, (apart.len() > 1).then_some(&distinction));
    }
    out.push_str(END);
    out
}

/// The beginning of a page.
fn head(tool: &str, title: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <title>{tool}: {0}</title>\n<style>\n{1}</style>\n</head>\n<body>\n<main>\n<h1>{0}</h1>\n",
        escaped(title),
        include_str!("html/style.css")
    )
}

const END: &str = "</main>\n</body>\n</html>\n";

fn section(out: &mut String, results: &Results, among: Option<&String>) {
    if let Some(distinction) = among {
        let (device, scheduler) = (escaped(&results.device), escaped(&results.scheduler));
        let _ = writeln!(out, "<h2>{device} with {scheduler}{}</h2>", escaped(distinction));
    }
    facts(out, results);
    if results.interrupted {
        out.push_str("<p class=\"note\">Interrupted: only finished runs are counted.</p>\n");
    }
    let overview = tenants::overview(results);
    if !overview.is_empty() {
        table(out, "All situations", &tenants::OVERVIEW, &overview);
    }
    for workload in workloads(results) {
        self::workload(out, results, workload);
    }
}

/// The plots and tables of a workload; of a situation of tenants the part of its entitlement that each achieved.
fn workload(out: &mut String, results: &Results, workload: &str) {
    let rows = rows(results, workload);
    let is_situation = rows.iter().any(tenants::is_situation);
    let (kind, all, sets) = match is_situation {
        true => ("", "all tenants", "Over the first set."),
        false => ("Workload ", "all groups", "Over the first set, for each number of jobs."),
    };
    let _ = writeln!(out, "<section>\n<h3>{kind}{}</h3>", escaped(workload));
    legend(out, &rows);
    out.push_str("<div class=\"plots\">\n");
    if is_situation {
        let says =
            "Bars: rate ÷ capacity ÷ entitled. The line: 1, all that a tenant is entitled to. A bar above 2 is cut.";
        figure(out, "Achieved by each tenant", says, &shares::achieved(&rows));
    } else {
        let says = "The bandwidth of each group, stacked; whiskers: the sets.";
        figure(out, "Throughput by jobs", says, &throughput::plot(&rows));
        if rows.iter().any(|row| row.runs.groups.len() > 1) {
            let says = "Bars: the share of the total, with more jobs to the right. Lines: the share that its weight entitles it to.";
            figure(out, "Shares against weights", says, &shares::plot(&rows));
        }
    }
    let says = format!(
        "The part of operations that took no longer, {all} and sets together; each line up is ten times rarer."
    );
    let of = |all| -> Vec<&Run> { <[Run]>::iter(all).filter(|run| run.workload == workload).collect() };
    let runs = of(&results.runs);
    figure(out, "Latency", &says, &latency::plot(&runs, &of(&results.baseline)));
    let plots = timeline::plots(&runs);
    if !plots.is_empty() {
        figure(out, "Groups in service", sets, &plots);
    }
    out.push_str("</div>\n<details open=\"open\">\n<summary>Tables</summary>\n");
    if is_situation {
        for row in &rows {
            let caption = format!("{}: {}", row.name(), tenants::says(row));
            table(out, &escaped(&caption), &tenants::COLUMNS, &tenants::lines(row));
        }
    } else {
        for Grid { title, unit, columns, lines } in grids(results, workload, true) {
            table(out, &format!("{title} <span>{}</span>", escaped(unit)), &columns, &lines);
        }
    }
    out.push_str("</details>\n</section>\n");
}

/// A table with these headings; the first cell of a line is one, too.
fn table(out: &mut String, caption: &str, heads: &[impl AsRef<str>], lines: &[impl AsRef<[String]>]) {
    let heads: String = heads.iter().map(|head| format!("<th>{}</th>", escaped(head.as_ref()))).collect();
    let _ = writeln!(
        out,
        "<div class=\"wide\"><table>\n<caption>{caption}</caption>\n<thead><tr>{heads}</tr></thead>\n<tbody>"
    );
    for line in lines {
        let cell = |(place, cell): (usize, &String)| {
            let tag = if place == 0 { "th" } else { "td" };
            format!("<{tag}>{}</{tag}>", escaped(cell))
        };
        let _ = writeln!(out, "<tr>{}</tr>", line.as_ref().iter().enumerate().map(cell).collect::<String>());
    }
    out.push_str("</tbody>\n</table></div>\n");
}

/// The measurement, and the command to repeat it.
fn facts(out: &mut String, results: &Results) {
    let mut facts = vec![("Device", results.device.clone()), ("Scheduler", results.scheduler.clone())];
    if !results.settings.is_empty() {
        let settings: Vec<_> = results.settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
        facts.push(("Settings", settings.join(" ")));
    }
    facts.extend(limits(results).map(|limits| ("Limits", limits)));
    if let Some(run) = results.runs.first().or(results.baseline.first()) {
        facts.push(("Runtime", format!("{} s", round(run.runtime_s))));
    }
    if results.block_size > 0 {
        facts.push(("Block size", show_size(results.block_size)));
    }
    if results.file_size > 0 {
        facts.push(("File size", show_size(results.file_size)));
    }
    if results.iodepth > 1 {
        facts.push(("I/O depth", results.iodepth.to_string()));
    }
    facts.push(("Seed", results.seed.to_string()));
    facts.push(("Fairlift", results.version.clone()));
    if let Some(host) = &results.host {
        facts.extend([("Host", host.name.clone()), ("Kernel", host.kernel.clone())]);
    }
    out.push_str("<dl>\n");
    for (name, value) in facts {
        let _ = writeln!(out, "<div><dt>{name}</dt><dd>{}</dd></div>", escaped(&value));
    }
    out.push_str("</dl>\n");
    if !results.command.is_empty() {
        let _ = writeln!(out, "<p class=\"again\">To measure it again:</p>\n<pre>{}</pre>", escaped(&results.command));
    }
}

/// Which colour is which group.
fn legend(out: &mut String, rows: &[RunRow<'_>]) {
    let Some(row) = rows.first().filter(|row| row.runs.groups.len() > 1) else { return };
    out.push_str("<ul class=\"legend\">\n");
    for (place, group) in row.runs.groups.iter().enumerate() {
        let (colour, name) = (svg::colour(place), escaped(&heading(&group.path)));
        let _ = writeln!(out, "<li><i class=\"{colour}\"></i>{name} <span>weight {}</span></li>", group.weight);
    }
    out.push_str("</ul>\n");
}

fn figure(out: &mut String, title: &str, says: &str, plot: &str) {
    let (title, says) = (escaped(title), escaped(says));
    let _ = writeln!(out, "<figure>\n<figcaption><b>{title}</b> {says}</figcaption>\n{plot}</figure>");
}

/// `1 job`, `2 jobs`.
fn jobs(row: u32, raw: bool) -> String {
    format!("{row} job{}{}", if row == 1 { "" } else { "s" }, if raw { ", raw" } else { "" })
}

#[cfg(test)]
mod tests;
