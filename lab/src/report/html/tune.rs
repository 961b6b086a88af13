//! The page of `iostune`: throughput by streams, latency against throughput, and the conclusions.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::super::tune;
use super::svg::{Frame, HEIGHT, Svg, WIDTH, escaped, time};
use super::{END, figure, head};
use crate::iostune::{Findings, Streams};

const FRAME: Frame = Frame { left: 74.0, right: WIDTH - 24.0, top: 34.0, bottom: HEIGHT - 44.0 };

/// One page with plots (page.1, page.2, page.3).
#[must_use]
pub fn page(found: &Findings) -> String {
    let mut out = head("iostune", &found.header.device);
    if let Some(verdict) = &found.verdict {
        let (says, why) = (escaped(&verdict.says), escaped(&verdict.why));
        let _ = writeln!(out, "<p><b>Idle? {says}: slice_idle={}.</b> {why}.</p>", escaped(&verdict.slice_idle));
        verdict.root_disk.iter().for_each(|root| _ = writeln!(out, "<p>{}.</p>", escaped(root)));
    }
    for warning in &found.warnings {
        let _ = writeln!(out, "<p class=\"note\">{}</p>", escaped(warning));
    }
    out.push_str("<div class=\"plots\">\n");
    let says = "Sequential readers far apart, all together; MB are 1000² bytes.";
    figure(&mut out, "Throughput by streams", says, &streams(found));
    let says = "Random reads of 4 KiB: each point has twice as many in flight as the one before. Average, and 99th percentile.";
    figure(&mut out, "Latency against throughput", says, &latency(found));
    out.push_str("</div>\n");
    let _ = writeln!(out, "<h3>All figures</h3>\n<pre>{}</pre>", escaped(&tune::text(found)));
    if !found.header.command.is_empty() {
        let command = escaped(&found.header.command);
        let _ = writeln!(out, "<p class=\"again\">To measure it again:</p>\n<pre>{command}</pre>");
    }
    out.push_str(END);
    out
}

/// A line for each way to the disk; streams double from place to place.
fn streams(found: &Findings) -> String {
    let lines: Vec<(&str, &[Streams])> = [
        ("straight to the disk", &found.streams[..]),
        ("cfq, slice_idle=8ms", &found.streams_idling),
        ("cfq, slice_idle=0", &found.streams_not_idling),
    ]
    .into_iter()
    .filter(|(_, rows)| !rows.is_empty())
    .collect();
    let all = || lines.iter().flat_map(|(_, rows)| rows.iter());
    let numbers: BTreeSet<u32> = all().map(|row| row.n).collect();
    let mut svg = Svg::new(HEIGHT, "Throughput by number of sequential streams");
    let max =
        FRAME.upright(&mut svg, all().map(|row| row.total_mb_s).fold(0.0, f64::max), "MB/s", |at| format!("{at}"));
    let steps = numbers.len().max(2) as f64 - 1.0;
    let x = |n: u32| FRAME.x(numbers.iter().position(|one| *one == n).unwrap_or(0) as f64, steps);
    for &n in &numbers {
        svg.text("tick middle", (x(n), FRAME.bottom + 18.0), &n.to_string());
    }
    for (place, (name, rows)) in lines.iter().enumerate() {
        let point = |row: &Streams| {
            let s = if row.n == 1 { "" } else { "s" };
            let title =
                format!("{} stream{s}, {name}: {:.1} MB/s ± {:.1} %", row.n, row.total_mb_s, row.spread_percent);
            ((x(row.n), FRAME.y(row.total_mb_s, max)), title)
        };
        svg.curve(place, false, name, &rows.iter().map(point).collect::<Vec<_>>());
    }
    svg.finish()
}

/// Average and 99th percentile, along the rate.
fn latency(found: &Findings) -> String {
    let figures = || found.random.iter().map(|size| &size.figure);
    let mut svg = Svg::new(HEIGHT, "Latency of random reads against their rate");
    let highest = figures().map(|figure| figure.mean_us.max(figure.p99_us)).fold(0.0, f64::max);
    let top = FRAME.upright(&mut svg, highest, "", time);
    let end = FRAME.along(&mut svg, figures().map(|figure| figure.iops).fold(0.0, f64::max), |at| format!("{at}"));
    svg.text("tick middle", ((FRAME.left + FRAME.right) / 2.0, FRAME.bottom + 36.0), "reads a second");
    for (place, name) in ["average", "99th percentile"].into_iter().enumerate() {
        let us = |size: &crate::iostune::Size| if place == 0 { size.figure.mean_us } else { size.figure.p99_us };
        let point = |size: &crate::iostune::Size| {
            let title =
                format!("{} in flight: {:.0} reads a second, {name} {}", size.depth, size.figure.iops, time(us(size)));
            ((FRAME.x(size.figure.iops, end), FRAME.y(us(size), top)), title)
        };
        svg.curve(place, false, name, &found.random.iter().map(point).collect::<Vec<_>>());
    }
    svg.finish()
}
