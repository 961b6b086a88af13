//! Which groups are served when: for each slot of the run, what each group got, one on the other.

use super::super::heading;
use super::jobs;
use super::svg::{Frame, Svg, WIDTH, coloured};
use crate::result::Run;

const HEIGHT: f64 = 150.0;
const FRAME: Frame = Frame { left: 56.0, right: WIDTH - 8.0, top: 30.0, bottom: HEIGHT - 22.0 };

/// A drawing for each number of jobs that has a timeline, of its first set.
pub(super) fn plots(runs: &[&Run]) -> String {
    let mut drawn: Vec<u32> = Vec::new();
    let mut out = String::new();
    for run in runs {
        let has = run.timeline.iter().flatten().any(|bytes| *bytes > 0);
        if has && run.runtime_s > 0.0 && !drawn.contains(&run.jobs) {
            drawn.push(run.jobs);
            out.push_str(&plot(run));
        }
    }
    out
}

fn plot(run: &Run) -> String {
    let slots = run.timeline.len() as f64;
    let rate = |bytes: u64| bytes as f64 / (run.runtime_s / slots) / f64::from(1 << 20);
    let largest = run.timeline.iter().map(|slot| rate(slot.iter().sum())).fold(0.0, f64::max);
    let mut svg = Svg::new(HEIGHT, &format!("Groups in service over time, with {}", jobs(run.jobs, false)));
    let max = FRAME.upright(&mut svg, largest, "MiB/s", |figure| format!("{figure}"));
    svg.text("value end", (FRAME.right, FRAME.top - 10.0), &jobs(run.jobs, false));
    let edge = |heights: &[f64]| -> Vec<_> {
        let step =
            |(slot, at): (usize, &f64)| [slot, slot + 1].map(|slot| (FRAME.x(slot as f64, slots), FRAME.y(*at, max)));
        heights.iter().enumerate().flat_map(step).collect()
    };
    let groups = run.timeline.iter().map(Vec::len).max().unwrap_or(0);
    let mut below = vec![0.0; run.timeline.len()];
    for group in 0..groups {
        let above: Vec<f64> = (run.timeline.iter().zip(&below))
            .map(|(slot, below)| below + slot.get(group).map_or(0.0, |bytes| rate(*bytes)))
            .collect();
        let points: Vec<_> = edge(&above).into_iter().chain(edge(&below).into_iter().rev()).collect();
        svg.path(
            &coloured("area", group, false),
            &points,
            &run.groups.get(group).map_or_else(String::new, |group| heading(&group.path)),
        );
        below = above;
    }
    for (part, class) in [(0.0, "start"), (0.5, "middle"), (1.0, "end")] {
        let at = (FRAME.x(part, 1.0), FRAME.bottom + 16.0);
        svg.text(&format!("tick {class}"), at, &super::svg::time(run.runtime_s * part * 1e6));
    }
    svg.finish()
}
