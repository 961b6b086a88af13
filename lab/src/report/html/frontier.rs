//! The cost of fairness: total throughput against the largest share error, one point for each result.

use super::super::summary::{RunSummary, rows};
use super::distinctions::distinctions;
use super::jobs;
use super::svg::{Frame, HEIGHT, MIB, Svg, WIDTH};
use crate::result::Results;

const FRAME: Frame = Frame { left: 56.0, right: WIDTH - 16.0, top: 34.0, bottom: HEIGHT - 44.0 };

/// A line for each number of jobs through the results, in their order; `None` without groups, or without two results.
pub(super) fn plot(all: &[Results], workload: &str) -> Option<String> {
    let mut points: Vec<(String, RunSummary)> = Vec::new();
    for (results, distinction) in all.iter().zip(distinctions(all)) {
        let name = format!("{}{distinction}", results.scheduler);
        let rows = rows(results, workload).into_iter().filter(|row| !row.raw && row.groups.len() > 1);
        points.extend(rows.map(|row| (name.clone(), row)));
    }
    let mut numbers: Vec<u32> = points.iter().map(|(_, row)| row.jobs).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let of = |number| points.iter().filter(move |(_, row)| row.jobs == number);
    if !numbers.iter().any(|number| of(*number).count() > 1) {
        return None;
    }
    let over = |figure: fn(&RunSummary) -> f64| points.iter().map(|(_, row)| figure(row)).fold(0.0, f64::max);
    let mut drawing = Svg::new(HEIGHT, &format!("Total throughput of {workload} against the largest share error"));
    let top = FRAME.upright(&mut drawing, over(|row| row.total_kb_s.mean / MIB), "MiB/s", |figure| format!("{figure}"));
    let end = FRAME.along(&mut drawing, over(|row| row.share_error_max.mean * 100.0), |figure| format!("{figure} %"));
    for (place, number) in numbers.iter().enumerate() {
        let name = jobs(*number, false);
        let point = |(point, row): &(String, RunSummary)| {
            let (error, total) = (row.share_error_max.mean * 100.0, row.total_kb_s.mean / MIB);
            let title = format!("{point}, {name}: {total:.1} MiB/s, largest share error {error:.1} %");
            ((FRAME.x(error, end), FRAME.y(total, top)), title)
        };
        drawing.curve(place, false, &name, &of(*number).map(point).collect::<Vec<_>>());
    }
    Some(drawing.finish())
}
