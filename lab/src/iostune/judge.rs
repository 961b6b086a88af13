//! From samples to findings: tables, a model of costs, a character, a verdict, and doubts.
//!
//! judge.1  Idling is judged by the rate of parallel streams through `cfq` with it and without: by the geometric mean of the ratios for 2,
//!     4, 8 and 16 streams. Within [`MATTERS`] of 1 it does not matter.
//! judge.2  Where that was not measured, the rate of streams straight to the disk decides, as for Goyal in 2010: more than one stream's:
//!     don't idle; less: idle.
//! judge.3  A random read takes `1 / rrandiops` of the disk's time when it is busy. Its bytes take `4096 / rbps` of it; the rest is its
//!     base cost. So `blk-iocost` understands the six figures of `io.cost.model`.
//! judge.4  Not to idle is advice for data disks (Goyal: "primarily … for data disks and not root disk as it does not guarantee better
//!     latencies in presence of buffered WRITES"): what a reader's reads take beside buffered writers with either setting is told with it.

use super::findings::{
    Again, Alignment, Beside, Character, CostModel, Durable, Findings, Header, Op, Reference, Size, Streams, Verdict,
    Writes,
};
use super::probe::{SMALL, WRITERS};
use super::{Figure, KNOWN, Outcome, Probe, Sample, Way};
use crate::program::Pattern;

/// The two settings of `slice_idle` that are compared.
const IDLES: &str = "8ms";
const DOES_NOT: &str = "0s";
/// Within this distance of 1, a gain does not matter. Chosen: verdicts are also judged by whether they are within 5 % of the better setting
/// (`docs/tuning.md`).
const MATTERS: f64 = 0.05;
/// The time of a random read, in µs, from which on something moves. Chosen: half a revolution at 15,000 rpm is 2 ms.
const MOVES_US: f64 = 2000.0;

/// Conclusions from the samples.
#[must_use]
pub fn find(header: Header, outcomes: &[Outcome]) -> Findings {
    let samples = |probe: Probe| outcomes.iter().find(|outcome| outcome.probe == probe).map(|one| &one.samples[..]);
    let figure = |probe: Probe| Figure::of(samples(probe)?);
    let streams =
        |way: Option<Way>| -> Vec<Streams> { outcomes.iter().filter_map(|outcome| row(outcome, way)).collect() };
    let sized = |keep: &dyn Fn(Op, u32, u32) -> bool| -> Vec<Size> {
        let size = |outcome: &Outcome| {
            let (op, block, depth) = op_of(outcome.probe)?;
            let figure = Figure::of(&outcome.samples).filter(|_| keep(op, block, depth))?;
            Some(Size { op, block, depth, figure })
        };
        outcomes.iter().filter_map(size).collect()
    };
    let is_ladder = |op, block| op == Op::RandomRead && block == SMALL;
    let mut found = Findings {
        header,
        streams: streams(Some(Way::Straight)),
        streams_buffered: streams(None),
        streams_idling: streams(Some(Way::Idling)),
        streams_not_idling: streams(Some(Way::NotIdling)),
        random: sized(&|op, block, _| is_ladder(op, block)),
        sizes: sized(&|op, block, _| matches!(op, Op::RandomRead | Op::SequentialRead) && !is_ladder(op, block)),
        ..Findings::default()
    };
    let at_eight = figure(Probe::Read(Pattern::Random, SMALL, 8));
    if let (Some(shifted), Some(aligned)) = (figure(Probe::Shifted), &at_eight) {
        found.alignment = Some(Alignment { aligned_iops: aligned.iops, shifted_iops: shifted.iops });
    }
    if let Some([first, again, ..]) = samples(Probe::Again) {
        found.again = Some(Again { first_iops: first.iops, again_iops: again.iops });
    }
    for (order, op, first) in [
        (Pattern::Sequential, Op::SequentialRead, figure(Probe::Streams(1, Way::Straight))),
        (Pattern::Random, Op::RandomRead, at_eight),
    ] {
        if let (Some(first), Some(last)) = (first, figure(Probe::Reference(order))) {
            found.reference.push(Reference { op, first_iops: first.iops, last_iops: last.iops });
        }
    }
    found.writes = writes(outcomes, sized(&|op, _, _| matches!(op, Op::RandomWrite | Op::SequentialWrite)));
    found.model = cost_model(&found);
    found.character = character(&found);
    found.verdict = verdict(&found);
    found.warnings = doubts(&found, outcomes);
    found
}

fn op_of(probe: Probe) -> Option<(Op, u32, u32)> {
    match probe {
        Probe::Read(Pattern::Random, block, depth) => Some((Op::RandomRead, block, depth)),
        Probe::Read(Pattern::Sequential, block, depth) => Some((Op::SequentialRead, block, depth)),
        Probe::Write(Pattern::Random, block, depth) => Some((Op::RandomWrite, block, depth)),
        Probe::Write(Pattern::Sequential, block, depth) => Some((Op::SequentialWrite, block, depth)),
        _ => None,
    }
}

/// A row of streams that go by this way; `None`: of those through a page cache.
fn row(outcome: &Outcome, way: Option<Way>) -> Option<Streams> {
    let n = match outcome.probe {
        Probe::Streams(n, by) if Some(by) == way => n,
        Probe::Buffered(n) if way.is_none() => n,
        _ => return None,
    };
    let figure = Figure::of(&outcome.samples)?;
    let mean = |rank: usize| {
        let of = |sample: &Sample| sample.each_mb_s.get(rank).copied().unwrap_or(0.0);
        outcome.samples.iter().map(of).sum::<f64>() / outcome.samples.len() as f64
    };
    Some(Streams {
        n,
        total_mb_s: figure.mb_s,
        each_mb_s: (0..n as usize).map(mean).collect(),
        spread_percent: figure.spread_percent,
        runs: figure.runs,
    })
}

fn writes(outcomes: &[Outcome], sizes: Vec<Size>) -> Option<Writes> {
    let mut writes = Writes { sizes, ..Writes::default() };
    for outcome in outcomes {
        let Some(figure) = Figure::of(&outcome.samples) else { continue };
        match outcome.probe {
            Probe::Mixed(..) => writes.mixed_iops = Some(figure.iops),
            Probe::Beside(way) => {
                let slice_idle = if way == Way::Idling { IDLES } else { DOES_NOT }.to_owned();
                writes.beside.push(Beside { slice_idle, figure });
            }
            Probe::Durable(writers, way) => {
                writes.durable.push(Durable { writers, shared: way == Way::Shared, figure });
            }
            _ => {}
        }
    }
    let durable = |writers, shared| {
        let one = writes.durable.iter().find(|one| one.writers == writers && one.shared == shared);
        one.map(|one| one.figure.iops).filter(|iops| *iops > 0.0)
    };
    let plain = writes.sizes.iter().find(|size| size.op == Op::RandomWrite && size.depth == 1);
    writes.flush_us = durable(1, false).zip(plain).map(|(iops, plain)| (1e6 / iops - plain.figure.mean_us).max(0.0));
    writes.flush_gain = durable(16, false).zip(durable(1, false)).map(|(many, one)| many / one);
    writes.shared_gain = durable(16, true).zip(durable(16, false)).map(|(shared, own)| shared / own);
    (!writes.sizes.is_empty() || !writes.durable.is_empty() || !writes.beside.is_empty()).then_some(writes)
}

/// judge.3
fn cost_model(found: &Findings) -> Option<CostModel> {
    let size = |op, block, depth| {
        let all = found.sizes.iter().chain(found.writes.iter().flat_map(|writes| &writes.sizes));
        all.into_iter()
            .find(|size| size.op == op && size.block == block && size.depth == depth)
            .map(|size| &size.figure)
    };
    let most = |figures: &mut dyn Iterator<Item = f64>| figures.fold(0.0, f64::max);
    let large = size(Op::SequentialRead, 1 << 20, 4)?;
    let rbps = 1e6 * most(&mut found.streams.iter().map(|row| row.total_mb_s).chain([large.mb_s]));
    let rrandiops = most(&mut found.random.iter().map(|size| size.figure.iops));
    // Where requests are not merged on their way, small ones one after the other can be slower than elsewhere.
    let rseqiops = size(Op::SequentialRead, SMALL, 32)?.iops;
    if rbps <= 0.0 || rrandiops <= 0.0 || rseqiops <= 0.0 {
        return None;
    }
    let base = |iops: f64| (1e6 / iops - f64::from(SMALL) / rbps * 1e6).max(0.0);
    // Of one at a time: a line through time against size.
    let alone: Vec<(f64, f64)> = (found.random.iter().chain(&found.sizes))
        .filter(|size| size.op == Op::RandomRead && size.depth == 1)
        .map(|size| (f64::from(size.block) / 1024.0, size.figure.mean_us))
        .collect();
    let alone = (alone.len() >= 3).then(|| line(&alone));
    Some(CostModel {
        rbps,
        rseqiops,
        rrandiops,
        wbps: size(Op::SequentialWrite, 1 << 20, 4).map(|figure| figure.mb_s * 1e6),
        wseqiops: size(Op::SequentialWrite, SMALL, 32).map(|figure| figure.iops),
        wrandiops: size(Op::RandomWrite, SMALL, 32).map(|figure| figure.iops),
        read_base_sequential_us: base(rseqiops),
        read_base_random_us: base(rrandiops),
        read_kib_us: 1024.0 / rbps * 1e6,
        alone_base_us: alone.map(|(base, _)| base.max(0.0)),
        alone_kib_us: alone.map(|(_, slope)| slope.max(0.0)),
    })
}

/// The line through points that is off by the least, each against its own size: (at zero, slope).
fn line(points: &[(f64, f64)]) -> (f64, f64) {
    let weighted =
        |of: &dyn Fn(f64, f64) -> f64| points.iter().map(|(x, y)| of(*x, *y) / (y * y).max(1e-9)).sum::<f64>();
    let (w, x, y) = (weighted(&|_, _| 1.0), weighted(&|x, _| x), weighted(&|_, y| y));
    let (xx, xy) = (weighted(&|x, _| x * x), weighted(&|x, y| x * y));
    let slope = (w * xy - x * y) / (w * xx - x * x).max(1e-12);
    ((y - slope * x) / w, slope)
}

fn character(found: &Findings) -> Character {
    let depth = |depth: u32| found.random.iter().find(|size| size.depth == depth).map(|size| &size.figure);
    let alone = depth(1).filter(|figure| figure.iops > 0.0);
    let in_order =
        found.sizes.iter().find(|size| size.op == Op::SequentialRead && (size.block, size.depth) == (SMALL, 1));
    let random_cost = alone.zip(in_order).map(|(random, order)| random.mean_us / order.figure.mean_us.max(1e-3));
    let most = found.random.iter().map(|size| size.figure.iops).fold(0.0, f64::max);
    let depth_gain = alone.filter(|_| found.random.len() > 1).map(|alone| most / alone.iops);
    let enough = found.random.iter().find(|size| size.figure.iops >= 0.95 * most).map(|size| size.depth);
    let rises = match &found.random[..] {
        [.., before, last] => Some(last.figure.iops > 1.05 * before.figure.iops),
        _ => None,
    };
    let total = |n: u32| found.streams.iter().find(|row| row.n == n).map(|row| row.total_mb_s);
    let one = total(1).filter(|one| *one > 0.0);
    let many = found.streams.iter().filter(|row| row.n > 1).map(|row| row.total_mb_s).fold(0.0, f64::max);
    Character {
        rotational_like: alone.zip(random_cost).map(|(alone, cost)| alone.mean_us >= MOVES_US && cost >= 10.0),
        random_cost,
        depth_gain,
        queues: depth_gain.map(|gain| gain >= 1.3),
        depth_saturates: enough.filter(|_| found.random.len() > 1),
        depth_rises: rises,
        parallel_gain: total(2).zip(one).map(|(two, one)| two / one),
        parallel_gain_max: one.filter(|_| many > 0.0).map(|one| many / one),
    }
}

/// judge.1, judge.2
fn verdict(found: &Findings) -> Option<Verdict> {
    let parallel_gain = found.character.parallel_gain?;
    let ratios: Vec<f64> = (found.streams_idling.iter())
        .filter_map(|with| {
            let without = found.streams_not_idling.iter().find(|row| row.n == with.n && row.n > 1)?;
            (without.total_mb_s > 0.0 && with.total_mb_s > 0.0).then(|| with.total_mb_s / without.total_mb_s)
        })
        .collect();
    let idling_gain = (!ratios.is_empty()).then(|| geometric_mean(ratios.iter().copied()));
    let straight = format!("2 streams move {parallel_gain:.2} times what one does");
    let (gain, why) = match idling_gain {
        Some(gain) => {
            let why = format!(
                "{straight}; with slice_idle=8ms parallel streams move {gain:.2} times what they move with slice_idle=0"
            );
            (gain, why)
        }
        None => {
            let one = found.streams.first().map_or(1.0, |row| row.total_mb_s);
            let many = geometric_mean(found.streams.iter().filter(|row| row.n > 1).map(|row| row.total_mb_s / one));
            (1.0 / many, format!("{straight}; whether idling helps was not tried"))
        }
    };
    let (says, slice_idle) = match gain {
        gain if gain > 1.0 + MATTERS => ("idle", IDLES),
        gain if gain < 1.0 / (1.0 + MATTERS) => ("don't", DOES_NOT),
        _ => ("doesn't matter", DOES_NOT),
    };
    let root_disk = (slice_idle == DOES_NOT).then(|| root_disk(found));
    Some(Verdict { says: says.into(), slice_idle: slice_idle.into(), parallel_gain, idling_gain, why, root_disk })
}

/// judge.4
fn root_disk(found: &Findings) -> String {
    let beside = |slice_idle: &str| {
        let rows = found.writes.iter().flat_map(|writes| &writes.beside);
        rows.into_iter().find(|row| row.slice_idle == slice_idle).map(|row| row.figure.mean_us)
    };
    let (Some(with), Some(without)) = (beside(IDLES), beside(DOES_NOT)) else {
        return "this is for disks of data: the time of reads beside buffered writers was not measured (--write)"
            .into();
    };
    let follows = if without > (1.0 + MATTERS) * with {
        "so this is for disks of data; on one that holds the system, keep slice_idle=8ms"
    } else {
        "so this is for a disk that holds the system, too"
    };
    format!(
        "beside {WRITERS} buffered writers a random read of 4 KiB takes {without:.0} us with slice_idle=0 and {with:.0} us with 8ms, {follows}"
    )
}

fn geometric_mean(figures: impl Iterator<Item = f64> + Clone) -> f64 {
    let count = figures.clone().count().max(1) as f64;
    (figures.map(|figure| figure.max(1e-9).ln()).sum::<f64>() / count).exp()
}

/// Doubts about the figures that come from the figures themselves.
fn doubts(found: &Findings, outcomes: &[Outcome]) -> Vec<String> {
    let mut doubts = Vec::new();
    for Reference { op, first_iops, last_iops } in &found.reference {
        let (what, change) =
            (if *op == Op::RandomRead { "random" } else { "sequential" }, last_iops / first_iops - 1.0);
        if change.abs() > 0.15 {
            let (percent, way) = (change.abs() * 100.0, if change < 0.0 { "fell" } else { "rose" });
            doubts.push(format!(
                "the rate of {what} reads {way} by {percent:.0} % between the start and the end (burst credits, a cache, or other \
                 load?), so the verdict compares figures that may not be comparable"
            ));
        }
    }
    let drifts: Vec<String> = (outcomes.iter().filter(|outcome| outcome.probe.place() == super::Area::Device))
        .filter(|outcome| outcome.probe != Probe::Again && outcome.samples.len() > 1)
        .filter(|outcome| outcome.samples.iter().all(|sample| sample.trend < 0.7))
        .map(|outcome| outcome.probe.about())
        .collect();
    if !drifts.is_empty() {
        doubts.push(format!("the rate fell while it was measured, in every run: {}", drifts.join("; ")));
    }
    if let Some(Again { first_iops, again_iops }) = found.again
        && again_iops > 1.3 * first_iops
    {
        let times = again_iops / first_iops;
        doubts.push(format!(
            "the same places are read {times:.1} times as fast the second time: there is a cache. The other figures are from places that were \
             not read just before, if the device is larger than the cache"
        ));
    }
    let unsure: Vec<String> = (outcomes.iter())
        .filter(|outcome| outcome.probe != Probe::Again)
        .filter_map(|outcome| {
            let error = super::sample::standard_error(outcome.samples.iter().map(|sample| sample.iops));
            (error.is_finite() && error > 5.0 * KNOWN).then(|| outcome.probe.about())
        })
        .collect();
    if !unsure.is_empty() {
        doubts.push(format!("the mean is not known to 10 % (other load? too little time?): {}", unsure.join("; ")));
    }
    if let Some(model) = &found.model {
        doubts.extend(doubts_of(model));
    }
    if let Some(alignment) = &found.alignment
        && alignment.shifted_iops < 0.9 * alignment.aligned_iops
    {
        let percent = 100.0 - alignment.shifted_iops / alignment.aligned_iops * 100.0;
        doubts.push(format!(
            "reads that are not aligned to 4 KiB are {percent:.0} % slower; align partitions and images"
        ));
    }
    doubts
}

/// Signs that a cost model is not that of a disk.
fn doubts_of(model: &CostModel) -> Vec<String> {
    let mut doubts = Vec::new();
    let moved = model.rrandiops * f64::from(SMALL);
    if moved > 1.1 * model.rbps {
        doubts.push(format!(
            "implausible: random reads of 4 KiB move {:.0} MB/s, but sequential reads at most {:.0}; a cache or holes have answered",
            moved / 1e6,
            model.rbps / 1e6
        ));
    } else if moved > 0.9 * model.rbps {
        doubts.push(format!(
            "IOPS × size is the bandwidth ({:.0} of {:.0} MB/s): random reads meet a limit of bandwidth, not of operations",
            moved / 1e6,
            model.rbps / 1e6
        ));
    }
    if let (Some(wbps), Some(wrandiops)) = (model.wbps, model.wrandiops) {
        let near = |one: f64, other: f64| (one / other.max(1e-9) - 1.0).abs() < 0.03;
        if near(model.rseqiops, model.rrandiops) && near(wrandiops, model.rrandiops) {
            doubts.push(format!(
                "{:.0} requests of 4 KiB a second, read or written, in order or not: this looks like a rate limit, not like \
                 a disk",
                model.rrandiops
            ));
        }
        if wbps > 1.1 * model.rbps || wrandiops > 2.0 * model.rrandiops && wrandiops * f64::from(SMALL) < 0.5 * wbps {
            doubts.push(
                "writes are faster than reads, because a cache absorbs them; measure the long run with a larger --time"
                    .into(),
            );
        }
    }
    doubts
}
