//! The bandwidth of each group, stacked, for each number of jobs.

use super::super::heading;
use super::super::summary::RunRow;
use super::jobs;
use super::svg::{Frame, HEIGHT, MIB, Svg, WIDTH, coloured};

const FRAME: Frame = Frame { left: 56.0, right: WIDTH - 8.0, top: 34.0, bottom: HEIGHT - 34.0 };

/// A stack of bars for each row, its total above.
pub(super) fn plot(rows: &[RunRow<'_>]) -> String {
    let total = |row: &RunRow<'_>| row.runs.over(|run| run.total_kb_s / MIB);
    let largest = rows.iter().map(|row| total(row).max).fold(0.0, f64::max);
    let mut svg = Svg::new(HEIGHT, "Throughput of each group, stacked, by number of jobs");
    let max = FRAME.upright(&mut svg, largest, "MiB/s", |figure| format!("{figure}"));
    let step = (FRAME.right - FRAME.left) / rows.len().max(1) as f64;
    let width = (step * 0.6).min(72.0);
    for (place, row) in rows.iter().enumerate() {
        let (total, jobs) = (total(row), jobs(row.runs.jobs, row.raw));
        let middle = FRAME.left + step * (place as f64 + 0.5);
        let mut below = 0.0;
        for (place, group) in row.groups().iter().enumerate() {
            let figure = group.over(|group| group.kb_s).mean / MIB;
            let top = FRAME.y(below + figure, max);
            let height = FRAME.y(below, max) - top;
            let class = coloured("bar", place, row.raw);
            let title = format!("{}: {figure:.1} MiB/s of {:.1}, {jobs}", heading(&group.path), total.mean);
            svg.bar(&class, (middle - width / 2.0, top), (width, height), &title);
            below += figure;
        }
        let mut top = FRAME.y(total.mean, max);
        if row.runs.count() > 1 {
            top = FRAME.y(total.max, max);
            svg.line("whisker", (middle, top), (middle, FRAME.y(total.min, max)));
        }
        svg.text("value middle", (middle, top - 6.0), &shown(total.mean));
        svg.text("tick middle", (middle, FRAME.bottom + 18.0), &jobs);
    }
    svg.finish()
}

/// As many decimals as say something.
fn shown(figure: f64) -> String {
    if figure < 99.95 { format!("{figure:.1}") } else { format!("{figure:.0}") }
}
