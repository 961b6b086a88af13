//! The share of each group, beside its due: of the total, or the part of its entitlement that a tenant achieved.

use super::super::summary::{RunRow, Sets};
use super::super::{heading, printable, tenants};
use super::jobs;
use super::svg::{Frame, HEIGHT, Svg, WIDTH, coloured};
use crate::result::Group;

const FRAME: Frame = Frame { left: 56.0, right: WIDTH - 8.0, top: 34.0, bottom: HEIGHT - 34.0 };
/// A bar beyond is cut: the distance of the others from 1 matters.
const ACHIEVED_MAX: f64 = 2.0;

/// Bars for each group, one for each row, and a line at its entitlement.
pub(super) fn plot(rows: &[RunRow<'_>]) -> String {
    let mut svg = Svg::new(HEIGHT, "Share of each group beside its entitlement");
    let Some(first) = rows.first() else { return svg.finish() };
    let share = |group: &Sets<'_, Group>| group.over(|group| group.share).mean;
    let largest = rows.iter().map(|row| row.most(|group| share(group).max(group.ideal))).fold(0.0, f64::max);
    let max = FRAME.upright(&mut svg, largest, "share", |figure| format!("{:.0} %", figure * 100.0));
    bars(&mut svg, rows, max, |row, group| {
        let title = format!(
            "{}, weight {}: {:.1} % of the total, due {:.1} % ({:+.1} %), {}",
            heading(&group.path),
            group.weight,
            share(group) * 100.0,
            group.ideal * 100.0,
            group.share_error() * 100.0,
            jobs(row.runs.jobs, row.raw)
        );
        Some((share(group), title))
    });
    let step = step(first);
    for (place, group) in first.runs.groups.iter().enumerate() {
        let start = FRAME.left + step * (place as f64 + 0.05);
        due(&mut svg, FRAME.y(group.ideal, max), (start, start + step * 0.9));
    }
    svg.finish()
}

/// Bars for each tenant, one for each row, and a line at 1: all that it is entitled to.
pub(super) fn achieved(rows: &[RunRow<'_>]) -> String {
    let mut svg = Svg::new(HEIGHT, "Achieved by each tenant: rate ÷ capacity ÷ entitled");
    let achieved = |group: &Sets<'_, Group>| {
        let tenant = group.part(|group| group.tenant.as_ref())?;
        Some(tenant.over(|tenant| tenant.achieved).mean)
    };
    let largest = rows.iter().map(|row| row.most(|group| achieved(group).unwrap_or(0.0))).fold(1.0, f64::max);
    let max = FRAME.upright(&mut svg, largest.min(ACHIEVED_MAX), "achieved", |figure| format!("{figure:.1}"));
    bars(&mut svg, rows, max, |row, group| {
        let (tenant, achieved) = (group.part(|group| group.tenant.as_ref())?, achieved(group)?);
        let title = format!(
            "{}, weight {}, {}: achieved {achieved:.2}: {:.0} operations a second of {:.0} alone, entitled to {:.3} of the disk, {}",
            heading(&group.path),
            group.weight,
            printable(&tenant.does),
            group.over(|group| group.iops).mean,
            tenant.over(tenants::alone).mean,
            tenant.over(|tenant| tenant.entitled).mean,
            row.name()
        );
        Some((achieved.min(max), title))
    });
    due(&mut svg, FRAME.y(1.0, max), (FRAME.left, FRAME.right));
    svg.finish()
}

/// How much room a group has.
fn step(first: &RunRow<'_>) -> f64 {
    (FRAME.right - FRAME.left) / first.runs.groups.len().max(1) as f64
}

/// For each group a bar of each row, with its height and title, and below them the group's name.
fn bars(
    svg: &mut Svg,
    rows: &[RunRow<'_>],
    max: f64,
    bar: impl Fn(&RunRow<'_>, &Sets<'_, Group>) -> Option<(f64, String)>,
) {
    let Some(first) = rows.first() else { return };
    let step = step(first);
    let width = step * 0.8 / rows.len() as f64;
    for (place, group) in first.runs.groups.iter().enumerate() {
        let start = FRAME.left + step * (place as f64 + 0.1);
        for (number, row) in rows.iter().enumerate() {
            let Some((figure, title)) = row.groups().get(place).and_then(|group| bar(row, group)) else { continue };
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
