//! The bandwidth of each group, stacked, for each number of jobs.

use super::super::heading;
use super::super::summary::RunSummary;
use super::jobs;
use super::svg::{Frame, HEIGHT, MIB, Svg, WIDTH, coloured};

const FRAME: Frame = Frame { left: 56.0, right: WIDTH - 8.0, top: 34.0, bottom: HEIGHT - 34.0 };

/// A stack of bars for each row, its total above.
pub(super) fn plot(rows: &[RunSummary]) -> String {
    let largest = rows.iter().map(|row| row.total_kb_s.max / MIB).fold(0.0, f64::max);
    let mut svg = Svg::new(HEIGHT, "Throughput of each group, stacked, by number of jobs");
    let max = FRAME.upright(&mut svg, largest, "MiB/s", |figure| format!("{figure}"));
    let step = (FRAME.right - FRAME.left) / rows.len().max(1) as f64;
    let width = (step * 0.6).min(72.0);
    for (place, row) in rows.iter().enumerate() {
        let middle = FRAME.left + step * (place as f64 + 0.5);
        let mut below = 0.0;
        for (place, group) in row.groups.iter().enumerate() {
            let figure = group.kb_s.mean / MIB;
            let top = FRAME.y(below + figure, max);
            let height = FRAME.y(below, max) - top;
            let class = coloured("bar", place, row.raw);
            let title = format!(
                "{}: {:.1} MiB/s of {:.1}, {}",
                heading(&group.path),
                figure,
                row.total_kb_s.mean / MIB,
                jobs(row.jobs, row.raw)
            );
            svg.bar(&class, (middle - width / 2.0, top), (width, height), &title);
            below += figure;
        }
        let mut top = FRAME.y(row.total_kb_s.mean / MIB, max);
        if row.sets > 1 {
            let highest = FRAME.y(row.total_kb_s.max / MIB, max);
            svg.line("whisker", (middle, highest), (middle, FRAME.y(row.total_kb_s.min / MIB, max)));
            top = highest;
        }
        svg.text("value middle", (middle, top - 6.0), &shown(row.total_kb_s.mean / MIB));
        svg.text("tick middle", (middle, FRAME.bottom + 18.0), &jobs(row.jobs, row.raw));
    }
    svg.finish()
}

/// As many decimals as say something.
fn shown(figure: f64) -> String {
    if figure < 99.95 { format!("{figure:.1}") } else { format!("{figure:.0}") }
}
