//! What each group got of the total, beside what its weight entitles it to.

use super::super::heading;
use super::super::summary::RunSummary;
use super::jobs;
use super::svg::{Frame, Svg, colour};

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 320.0;
const FRAME: Frame = Frame { left: 56.0, right: WIDTH - 8.0, top: 34.0, bottom: HEIGHT - 34.0 };

/// Bars for each group, one for each row, and a line at its due.
pub(super) fn plot(rows: &[RunSummary]) -> String {
    let mut svg = Svg::new(WIDTH, HEIGHT, "Share of each group beside what its weight entitles it to");
    let Some(first) = rows.first() else { return svg.finish() };
    let figures = rows.iter().flat_map(|row| &row.groups).flat_map(|group| [group.share.mean, group.ideal]);
    let max =
        FRAME.upright(&mut svg, figures.fold(0.0, f64::max), "share", |figure| format!("{:.0} %", figure * 100.0));
    let step = (FRAME.right - FRAME.left) / first.groups.len().max(1) as f64;
    let width = step * 0.8 / rows.len() as f64;
    for (place, group) in first.groups.iter().enumerate() {
        let start = FRAME.left + step * (place as f64 + 0.1);
        for (number, row) in rows.iter().enumerate() {
            let Some(group) = row.groups.get(place) else { continue };
            let top = FRAME.y(group.share.mean, max);
            let class = format!("bar {}{}", colour(place), if row.raw { " raw" } else { "" });
            let title = format!(
                "{}, weight {}: {:.1} % of the total, due {:.1} % ({:+.1} %), {}",
                heading(&group.path),
                group.weight,
                group.share.mean * 100.0,
                group.ideal * 100.0,
                group.share_error() * 100.0,
                jobs(row.jobs, row.raw)
            );
            svg.bar(&class, (start + width * number as f64, top), (width, FRAME.bottom - top), &title);
        }
        let due = FRAME.y(group.ideal, max);
        svg.line("halo", (start - step * 0.05, due), (start + step * 0.85, due));
        svg.line("due", (start - step * 0.05, due), (start + step * 0.85, due));
        // Where there are many groups, their names would lie on each other.
        if step > 40.0 {
            let middle = start + step * 0.4;
            svg.text("tick middle", (middle, FRAME.bottom + 18.0), &short(&heading(&group.path), step));
        }
    }
    svg.finish()
}

/// As many of a name's last letters as fit.
pub(super) fn short(name: &str, width: f64) -> String {
    let fits = (width / 7.0) as usize;
    let length = name.chars().count();
    if length <= fits {
        return name.into();
    }
    format!("…{}", name.chars().skip(length + 1 - fits.max(1)).collect::<String>())
}
