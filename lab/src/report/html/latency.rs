//! Latency of operations: the part that took no longer than a time.
//!
//! Both axes are logarithmic, the upright one in the part that is missing from all: 90 %, 99 %, 99.9 %, … For programs that mostly find their data in memory, all
//! that is of interest is above 90 %.

use std::collections::BTreeMap;

use super::jobs;
use super::svg::{Frame, HEIGHT, Svg, WIDTH, time};
use crate::result::Run;

const FRAME: Frame = Frame { left: 74.0, right: WIDTH - 24.0, top: 34.0, bottom: HEIGHT - 34.0 };

/// A line for each number of jobs, sets added up, and the names of the lines.
pub(super) fn plot(runs: &[&Run], baseline: &[&Run]) -> String {
    let mut lines = curves(runs, false);
    lines.extend(curves(baseline, true));
    let mut svg = Svg::new(HEIGHT, "Distribution of latency, by number of jobs");
    let bounds = || lines.iter().flat_map(|line| &line.points).map(|(bound, _)| bound.max(0.001));
    let (lowest, highest) = (bounds().fold(f64::INFINITY, f64::min), bounds().fold(0.0, f64::max));
    if lines.is_empty() || !highest.is_finite() {
        svg.text("tick middle", (WIDTH / 2.0, HEIGHT / 2.0), "nothing ended");
        return svg.finish();
    }
    let operations = lines.iter().map(|line| line.operations).max().unwrap_or(1);
    let top = nines(operations);
    let y = |figure: f64| FRAME.y(figure, f64::from(top));
    for (part, label) in [(0.0, "0 %"), (0.5, "50 %")] {
        FRAME.level(&mut svg, y(rarity(part)), label);
    }
    for nine in 1..=top {
        let decimals = (nine as usize).saturating_sub(2);
        let part = 100.0 - 10_f64.powi(2 - nine as i32);
        FRAME.level(&mut svg, y(f64::from(nine)), &format!("{part:.decimals$} %"));
    }
    let (first, last) = (lowest.log10().floor(), highest.log10().ceil());
    let last = if last > first { last } else { first + 1.0 };
    let x = |bound: f64| FRAME.x((bound.max(0.001).log10() - first) / (last - first), 1.0);
    let mut decade = first;
    while decade <= last {
        let bound = 10_f64.powf(decade);
        svg.line("grid", (x(bound), FRAME.top), (x(bound), FRAME.bottom));
        svg.text("tick middle", (x(bound), FRAME.bottom + 18.0), &time(bound));
        decade += 1.0;
    }
    for (place, line) in lines.iter().enumerate() {
        let mut points = vec![(x(lowest), FRAME.bottom)];
        // Steps: a bucket is narrow, and between two that are apart nothing ended.
        let mut before = FRAME.bottom;
        for (bound, part) in &line.points {
            points.push((x(*bound), before));
            before = y(rarity(*part).min(f64::from(top)));
            points.push((x(*bound), before));
        }
        svg.line_through(place, line.raw, &jobs(line.jobs, line.raw), &points);
    }
    svg.finish()
}

/// The rarity of operations beyond `part`, in powers of ten: 90 % is 1, 99 % is 2.
fn rarity(part: f64) -> f64 {
    if part >= 1.0 { f64::INFINITY } else { -(1.0 - part).log10() }
}

/// The number of nines that `operations` can tell apart: at least 1, at most 6.
fn nines(operations: u64) -> u32 {
    operations.max(1).ilog10().clamp(1, 6)
}

struct Curve {
    operations: u64,
    jobs: u32,
    raw: bool,
    /// (upper bound in µs, the part of operations up to it), rising.
    points: Vec<(f64, f64)>,
}

fn curves(runs: &[&Run], raw: bool) -> Vec<Curve> {
    // Bounds of buckets are the same numbers in each run, so their bits name them; those of positive floats rise with them.
    let mut counts: BTreeMap<u32, BTreeMap<u64, u64>> = BTreeMap::new();
    for run in runs {
        let counts = counts.entry(run.jobs).or_default();
        for (bound, count) in run.latencies.iter().filter(|(bound, count)| *bound > 0.0 && *count > 0) {
            *counts.entry(bound.to_bits()).or_default() += count;
        }
    }
    let curve = |(jobs, counts): (u32, BTreeMap<u64, u64>)| {
        let all: u64 = counts.values().sum();
        let mut seen = 0;
        let part = |(bound, count): (u64, u64)| {
            seen += count;
            (f64::from_bits(bound), seen as f64 / all as f64)
        };
        Curve { operations: all, jobs, raw, points: counts.into_iter().map(part).collect() }
    };
    counts.into_iter().map(curve).filter(|curve| !curve.points.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::run;

    #[test]
    fn a_curve_adds_sets_up_and_ends_at_all() {
        let (mut one, mut two) = (run("bsr", 1, 1, &[(100, 1.0)]), run("bsr", 2, 1, &[(100, 1.0)]));
        one.latencies = vec![(10.0, 1), (100.0, 1)];
        two.latencies = vec![(10.0, 1), (1000.0, 1)];
        let [curve] = &curves(&[&one, &two], false)[..] else { panic!("one number of jobs") };
        assert_eq!(curve.points, [(10.0, 0.5), (100.0, 0.75), (1000.0, 1.0)]);
    }

    #[test]
    fn what_is_rare_has_as_much_room_as_what_is_usual() {
        assert!((rarity(0.9) - 1.0).abs() < 1e-9 && (rarity(0.999) - 3.0).abs() < 1e-9);
        assert_eq!((nines(0), nines(99), nines(100), nines(999_999), nines(u64::MAX)), (1, 1, 2, 5, 6));
        let mut one = run("bsr", 1, 1, &[(100, 1.0)]);
        one.latencies = vec![(1.0, 99_000), (1000.0, 1_000)];
        let plot = plot(&[&one], &[]);
        for label in [">0 %<", ">50 %<", ">90 %<", ">99 %<", ">99.9 %<", ">99.99 %<", ">99.999 %<"] {
            assert!(plot.contains(label), "{label}: {plot}");
        }
    }

    #[test]
    fn a_run_in_which_nothing_ended_has_no_curve() {
        let mut one = run("bsr", 1, 1, &[(100, 1.0)]);
        one.latencies.clear();
        assert!(plot(&[&one], &[]).contains("nothing ended"));
    }
}
