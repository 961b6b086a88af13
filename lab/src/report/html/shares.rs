//! The share of each group, beside its due: of the total, or the part of its entitlement that a tenant achieved.

use super::super::summary::{GroupSummary, RunSummary};
use super::super::{heading, tenants};
use super::jobs;
use super::svg::{Frame, HEIGHT, Svg, WIDTH, coloured};

const FRAME: Frame = Frame { left: 56.0, right: WIDTH - 8.0, top: 34.0, bottom: HEIGHT - 34.0 };
/// A bar beyond is cut: the distance of the others from 1 matters.
const ACHIEVED_MAX: f64 = 2.0;

/// Bars for each group, one for each row, and a line at its entitlement.
pub(super) fn plot(rows: &[RunSummary]) -> String {
    let mut svg = Svg::new(HEIGHT, "Share of each group beside its entitlement");
    let Some(first) = rows.first() else { return svg.finish() };
    let figures = rows.iter().flat_map(|row| &row.groups).flat_map(|group| [group.share.mean, group.ideal]);
    let max =
        FRAME.upright(&mut svg, figures.fold(0.0, f64::max), "share", |figure| format!("{:.0} %", figure * 100.0));
    bars(&mut svg, rows, max, |row, group| {
        let title = format!(
            "{}, weight {}: {:.1} % of the total, due {:.1} % ({:+.1} %), {}",
            heading(&group.path),
            group.weight,
            group.share.mean * 100.0,
            group.ideal * 100.0,
            group.share_error() * 100.0,
            jobs(row.jobs, row.raw)
        );
        Some((group.share.mean, title))
    });
    let step = step(first);
    for (place, group) in first.groups.iter().enumerate() {
        let start = FRAME.left + step * (place as f64 + 0.05);
        due(&mut svg, FRAME.y(group.ideal, max), (start, start + step * 0.9));
    }
    svg.finish()
}

/// Bars for each tenant, one for each row, and a line at 1: all that it is entitled to.
pub(super) fn achieved(rows: &[RunSummary]) -> String {
    let mut svg = Svg::new(HEIGHT, "Achieved by each tenant: rate ÷ capacity ÷ entitled");
    let achieved =
        rows.iter().flat_map(|row| &row.groups).filter_map(|group| Some(group.tenant.as_ref()?.achieved.mean));
    let max = FRAME
        .upright(&mut svg, achieved.fold(1.0, f64::max).min(ACHIEVED_MAX), "achieved", |figure| format!("{figure:.1}"));
    bars(&mut svg, rows, max, |row, group| {
        let tenant = group.tenant.as_ref()?;
        let title = format!(
            "{}, weight {}, {}: achieved {:.2}: {:.0} operations a second of {:.0} alone, entitled to {:.3} of the disk, {}",
            heading(&group.path),
            group.weight,
            tenants::does(tenant),
            tenant.achieved.mean,
            group.iops.mean,
            tenant.alone.mean,
            tenant.entitled.mean,
            row.name()
        );
        Some((tenant.achieved.mean.min(max), title))
    });
    due(&mut svg, FRAME.y(1.0, max), (FRAME.left, FRAME.right));
    svg.finish()
}

/// How much room a group has.
fn step(first: &RunSummary) -> f64 {
    (FRAME.right - FRAME.left) / first.groups.len().max(1) as f64
}

/// For each group a bar of each row, with its height and title, and below them the group's name.
fn bars(
    svg: &mut Svg,
    rows: &[RunSummary],
    max: f64,
    bar: impl Fn(&RunSummary, &GroupSummary) -> Option<(f64, String)>,
) {
    let Some(first) = rows.first() else { return };
    let step = step(first);
    let width = step * 0.8 / rows.len() as f64;
    for (place, group) in first.groups.iter().enumerate() {
        let start = FRAME.left + step * (place as f64 + 0.1);
        for (number, row) in rows.iter().enumerate() {
            let Some((figure, title)) = row.groups.get(place).and_then(|group| bar(row, group)) else { continue };
            let (left, top) = (start + width * number as f64, FRAME.y(figure, max));
            svg.bar(&coloured("bar", place, row.raw), (left, top), (width, FRAME.bottom - top), &title);
        }
        // Where there are many groups, their names would lie on each other.
        if step > 40.0 {
            svg.text("tick middle", (start + step * 0.4, FRAME.bottom + 18.0), &short(&heading(&group.path), step));
        }
    }
}

/// A line at the due, from one place to another.
fn due(svg: &mut Svg, at: f64, (from, to): (f64, f64)) {
    ["halo", "due"].iter().for_each(|class| svg.line(class, (from, at), (to, at)));
}

/// As many of a name's last letters as fit.
fn short(name: &str, width: f64) -> String {
    let fits = (width / 7.0) as usize;
    let length = name.chars().count();
    if length <= fits {
        return name.into();
    }
    format!("…{}", name.chars().skip(length + 1 - fits.max(1)).collect::<String>())
}
