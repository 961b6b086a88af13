//! The cost of fairness: total throughput against the largest share error, one point for each result.

use std::collections::BTreeSet;

use super::super::summary::{RunRow, rows};
use super::distinctions::distinctions;
use super::jobs;
use super::svg::{Frame, HEIGHT, MIB, Svg, WIDTH};
use crate::result::Results;

const FRAME: Frame = Frame { left: 56.0, right: WIDTH - 16.0, top: 34.0, bottom: HEIGHT - 44.0 };

/// A line for each number of jobs through the results, in their order; `None` without groups, or without two results.
pub(super) fn plot(all: &[Results], workload: &str) -> Option<String> {
    let mut points: Vec<(String, RunRow<'_>)> = Vec::new();
    for (results, distinction) in all.iter().zip(distinctions(all)) {
        let name = format!("{}{distinction}", results.scheduler);
        let rows = rows(results, workload).into_iter().filter(|row| !row.raw && row.runs.groups.len() > 1);
        points.extend(rows.map(|row| (name.clone(), row)));
    }
    let numbers: BTreeSet<u32> = points.iter().map(|(_, row)| row.runs.jobs).collect();
    let of = |number| points.iter().filter(move |(_, row)| row.runs.jobs == number);
    if !numbers.iter().any(|number| of(*number).count() > 1) {
        return None;
    }
    let total = |row: &RunRow<'_>| row.runs.over(|run| run.total_kb_s).mean / MIB;
    let error = |row: &RunRow<'_>| row.runs.over(|run| run.share_error_max).mean * 100.0;
    let (most, worst) =
        points.iter().fold((0.0_f64, 0.0_f64), |(most, worst), (_, row)| (most.max(total(row)), worst.max(error(row))));
    let mut drawing = Svg::new(HEIGHT, &format!("Total throughput of {workload} against the largest share error"));
    let top = FRAME.upright(&mut drawing, most, "MiB/s", |figure| format!("{figure}"));
    let end = FRAME.along(&mut drawing, worst, |figure| format!("{figure} %"));
    for (place, number) in numbers.iter().enumerate() {
        let name = jobs(*number, false);
        let point = |(point, row): &(String, RunRow<'_>)| {
            let (error, total) = (error(row), total(row));
            let title = format!("{point}, {name}: {total:.1} MiB/s, largest share error {error:.1} %");
            ((FRAME.x(error, end), FRAME.y(total, top)), title)
        };
        drawing.curve(place, false, &name, &of(*number).map(point).collect::<Vec<_>>());
    }
    Some(drawing.finish())
}
