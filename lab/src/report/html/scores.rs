//! The score of each tenant: what it had, over what it is entitled to.

use super::super::summary::RunSummary;
use super::super::{heading, tenants};
use super::shares::short;
use super::svg::{Frame, Svg, colour};

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 320.0;
const FRAME: Frame = Frame { left: 56.0, right: WIDTH - 8.0, top: 34.0, bottom: HEIGHT - 34.0 };
/// A score beyond is cut: what matters is how far below 1 the others are.
const SCORE_MAX: f64 = 2.0;

/// Bars for each tenant, one for each row, and a line at 1: all that it is entitled to.
pub(super) fn plot(rows: &[RunSummary]) -> String {
    let mut svg = Svg::new(WIDTH, HEIGHT, "Score of each tenant: what it had, over what it is entitled to");
    let Some(first) = rows.first() else { return svg.finish() };
    let scores = rows.iter().flat_map(|row| &row.groups).filter_map(|group| Some(group.tenant.as_ref()?.score.mean));
    let largest = scores.fold(1.0, f64::max).min(SCORE_MAX);
    let max = FRAME.upright(&mut svg, largest, "score", |figure| format!("{figure:.1}"));
    let step = (FRAME.right - FRAME.left) / first.groups.len().max(1) as f64;
    let width = step * 0.8 / rows.len() as f64;
    for (place, group) in first.groups.iter().enumerate() {
        let start = FRAME.left + step * (place as f64 + 0.1);
        for (number, row) in rows.iter().enumerate() {
            let Some((group, tenant)) = row.groups.get(place).and_then(|group| Some((group, group.tenant.as_ref()?)))
            else {
                continue;
            };
            let top = FRAME.y(tenant.score.mean.min(max), max);
            let class = format!("bar {}{}", colour(place), if row.raw { " raw" } else { "" });
            let title = format!(
                "{}, weight {}, {}: score {:.2}: {:.0} operations a second of {:.0} alone, entitled to {:.3} of the disk, {}",
                heading(&group.path),
                group.weight,
                tenants::does(tenant),
                tenant.score.mean,
                group.iops.mean,
                tenant.alone.mean,
                tenant.entitled.mean,
                row.name()
            );
            svg.bar(&class, (start + width * number as f64, top), (width, FRAME.bottom - top), &title);
        }
        // Where there are many tenants, their names would lie on each other.
        if step > 40.0 {
            svg.text("tick middle", (start + step * 0.4, FRAME.bottom + 18.0), &short(&heading(&group.path), step));
        }
    }
    let due = FRAME.y(1.0, max);
    svg.line("halo", (FRAME.left, due), (FRAME.right, due));
    svg.line("due", (FRAME.left, due), (FRAME.right, due));
    svg.finish()
}
