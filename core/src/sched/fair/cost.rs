//! Cost: how much of the disk's time a request takes, learned while the disk serves.
//!
//! A 64 KiB write and a 4 KiB read compete for the same thing, the disk's time, and neither sectors nor requests say how much
//! of it each takes. A disk that does 100,000 reads of 4 KiB a second, or 22,000 writes of 64 KiB, spends 10 µs on the one and
//! 45 µs on the other: these are their costs.
//!
//! cost.1  A request costs as much as one of 4 KiB, and a price for each KiB beyond. Both differ for reads and writes; the first
//!         also differs for a request near the end of the stream's last one, and for one far from it (16 MiB, as the kernel's
//!         io.cost).
//! cost.2  A time in which the disk was full is one equation: the time that passed is the sum of the costs of all requests that
//!         ended. The coefficients are those that explain the last [`LAST`] equations best, all looked at anew with each that comes, and
//!         the information from earlier equations. They are reckoned in factors: a tenth of the right coefficient is as wrong as ten
//!         times it. Where a load never tells two coefficients apart, their ratio stays what it was. That of near
//!         and far stays near the starting model's ([`NEAR`]), in which they cost alike unless it is given otherwise.
//! cost.3  A disk is faster or slower than it was as a whole, more often than in one coefficient alone. So ratios are learned from
//!         the difference of two equations in a row, and only if their mixtures differ ([`CHANCE`]). How far equations deviate by
//!         themselves is learned too ([`NOISE`]). The requests in the device at an equation's ends are done by half, more or less. So an
//!         equation that is short beside these counts little, and it goes on while no request of some kind has ended that is in the
//!         device. An equation during which flushes took much time counts little too: their part of the disk is an estimate, and a
//!         tenant that flushes writes. A tenant that commits was charged for its writes a tenth of the cost of others' reads, where both
//!         cost the same, and had 0.8 of a disk in place of half.
//! cost.4  No coefficient is less than 1 ns: less could not be learned again by a factor. A request costs at most a second.
//! cost.5  Where no model is given, the first equations tell the order of magnitude of all coefficients, up to one that is off by less than
//!         a factor of two. A disk that takes 5 ms for a read would otherwise take hundreds of windows to be known as one. One equation is not
//!         enough: clients that begin, one request after the other, make a window in which the disk hardly worked. Costs that were 1,900 times too
//!         large went down by a factor of four in 0.3 s. A tenant that committed meanwhile owed for its flushes at the pace of the larger costs.
//! cost.6  A load that never changes its mixture would leave a wrong model wrong. A reader and a writer that both want all they
//!         can get are served in the model's ratio, in every window. So the kind of request whose cost is known least beside the
//!         others' has a trial. It is charged as if it cost up to twice as much in one equation, and as much less in the next; its
//!         tenants, if others ask too, have fewer places by that factor, then more. Between the two the requests that were in the device
//!         before leave it. Both together leave shares what they are. Whether a stream roams makes a kind, not whether a request is far: a stream that
//!         reads anywhere in an image of 192 MiB asks for a near one each sixth time, and a trial of these alone changes no mixture. Trials
//!         end when no cost may be off by more than [`SURE`], and there are none while flushes take more than [`CHANCE`]: such equations count little.
//! cost.7  Learning starts from the given model. After [`TRUSTED`] of a full disk costs are learned anew, as if none had been
//!         given; so are the speeds of depths, which are measured in costs. Without that, a tenant whose requests are thought
//!         cheap is thought to have all it wants: its charges change nothing that it does, and no trial shows the cost of its
//!         requests. On a virtual disk whose reads were thought ten times too cheap and whose writes ten times too dear, the device
//!         was held too full for the reader to have its share, for as long as it was looked at.
//! cost.8  A disk may become another within a moment: its cache of writes is full, or a cloud's credit is used up. An equation that is
//!         off by more than [`SURPRISE`] deviations is a sign of that: little of it is blamed on its mixture. On a modelled NVMe disk
//!         that became five times slower when its cache was full, the kind that the second window had more of was blamed: 4 KiB were
//!         thought to take as long as 256.
//!
//! Only ratios matter to shares. A model that is wrong by a factor throughout costs nothing.

mod equation;
mod handed;

use alloc::collections::VecDeque;

use equation::{Equation, Matrix, Tells, diagonal, dot, inverse, moved, times};

use crate::cost_model::Model;
use crate::time::{ms, secs};
use crate::{Duration, Extent, Op, Sector};

/// How many equations are looked at anew with each that comes. Chosen: from far off, what an equation says depends on all others.
const LAST: usize = 32;
/// Of the information from earlier equations, one part in this many is forgotten with each equation. Chosen: some 20 s; a virtual disk drifts within minutes.
const MEMORY: f64 = 128.0;
/// By what part the level of all coefficients follows an equation (cost.3). Chosen.
const LEVEL: f64 = 0.25;
/// The deviation of an equation that its completions do not explain, at first, at least and at most. Windows of some hundred
/// requests differed by 5 to 15 % on a virtual disk under a steady load.
const NOISE: [f64; 3] = [0.05, 0.01, 0.15];
/// How far off each coefficient may be at first, as a part: of eight profiles of flash disks (docs/measured/models-flash.md) the ratios differ
/// by a factor of two or so.
const EACH: f64 = 1.0;
/// How far off the ratio of a near request's cost and a far one's may be at first. Chosen: without it 3 of 5,000 trees in
/// `core/tests/floors.rs` missed a weight, with it none of 9,000.
const NEAR: f64 = 0.3;
/// How often the coefficients are improved with each equation.
const STEPS: usize = 3;
/// By how many deviations an equation is off that tells of another disk (cost.8). Chosen.
const SURPRISE: f64 = 3.0;
/// The part of an error always blamed on the whole disk, as a logarithm. Chosen: from one equation to the next a mixture hardly changes
/// enough for a cost that is wrong by a factor of eight to show by more.
const JUMP: f64 = 0.6;
/// By what part a kind may be more or less of an equation by chance. Chosen.
const CHANCE: f64 = 0.05;
/// How long what makes an equation takes at least (cost.2). Chosen: a virtual disk does 64 times its depth in it. In 32 times the depth
/// a kind that comes in bursts was found to cost a third of its real cost.
const EQUATION: Duration = ms(50);
/// By how much an equation may deviate because of the requests in the device at its ends, squared, or else it becomes longer; and how long
/// it is at most. Chosen.
const FIRM: f64 = 0.004;
const LONG: Duration = ms(300);
/// By what part the cost of a kind of request may be off that has no trial, and how much a trial adds to its cost, at least and at most
/// (cost.6). Chosen: with 0.05 four of twenty pairs of kinds were off by more than 15 % after 2 s, and with 0.03 none
/// (`core/tests/fair/costs.rs`); less than half more is not told from chance.
const SURE: f64 = 0.03;
const TRIAL: [f64; 2] = [0.5, 1.0];
/// The least part of the time that a kind takes which has a trial. Chosen: of a rarer one, a trial would tell little.
const TRIAL_PART: f64 = 0.02;
/// The most that a coefficient may be, in nanoseconds. Chosen: a second, more than any disk takes.
const MOST: f64 = 1e9;
/// For how long a given model is learned from (cost.7). Chosen: where none is given costs are right within 2 s on modelled flash disks.
const TRUSTED: Duration = secs(2);
/// How many coefficients there are.
const COUNT: usize = 6;
/// Sectors that a request costs nothing more for: the 4 KiB for which io.cost.model says its rates of requests.
const FREE: u32 = 8;
/// A stream roams if more than this many of its last 32 requests were far (cost.6). Chosen: one that reads on jumps now and then.
const ROAMS: u32 = 4;
/// Kinds of requests (cost.6): read or write, of a stream that roams or not, small or large beside the present reads or writes.
pub(super) const KINDS: usize = 8;

/// The properties of a request that its cost depends on.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Shape {
    pub(super) write: bool,
    pub(super) far: bool,
    /// Its stream asks for far ones too.
    pub(super) roams: bool,
    pub(super) sectors: u32,
}

/// Where a stream's requests are: the end of the last one, and which of the last 32 were far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Track {
    position: Sector,
    far: u32,
}

impl Track {
    /// Of a stream that has asked for nothing: it roams until it is seen to read on.
    pub(super) const NEW: Self = Self { position: Sector(0), far: u32::MAX };

    /// The next request. A discard counts as a small read while it is in the device: of it the length says nothing, and its time is charged when
    /// it has ended.
    #[inline]
    pub(super) fn next(&mut self, op: Op, extent: Extent) -> Shape {
        let mut shape = Shape { write: false, far: true, roams: true, sectors: FREE };
        if op.has_payload() {
            let far = extent.start.0.abs_diff(self.position.0) > Model::FAR;
            self.far = self.far << 1 | u32::from(far);
            shape = Shape { write: op != Op::Read, far, roams: self.far.count_ones() > ROAMS, sectors: 0 };
            shape.resize(op, extent);
        }
        self.position = extent.end();
        shape
    }

    /// The last request has grown up to there.
    pub(super) fn reach(&mut self, end: Sector) {
        self.position = self.position.max(end);
    }
}

impl Shape {
    /// It covers another extent.
    pub(super) fn resize(&mut self, op: Op, extent: Extent) {
        if op.has_payload() {
            self.sectors = u32::try_from(extent.sectors).unwrap_or(u32::MAX);
        }
    }
}

/// Completions in a window, by kind: their number, and their sectors beyond 4 KiB.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Sum {
    /// Near and far ones.
    counts: [[u32; 2]; KINDS],
    beyond: [u64; KINDS],
}

impl Sum {
    #[inline]
    pub(super) fn add(&mut self, shape: Shape, kind: usize) {
        self.counts[kind][usize::from(shape.far)] += 1;
        self.beyond[kind] += u64::from(shape.sectors.saturating_sub(FREE));
    }

    /// Adds what ended in another window.
    pub(super) fn extend(&mut self, other: &Self) {
        for kind in 0..KINDS {
            (0..2).for_each(|far| self.counts[kind][far] += other.counts[kind][far]);
            self.beyond[kind] += other.beyond[kind];
        }
    }

    /// How often each coefficient counts for a kind (KiB for the lengths).
    fn row(&self, kind: usize) -> [f64; COUNT] {
        let first = if kind & WRITE > 0 { 3 } else { 0 };
        let mut row = [0.0; COUNT];
        row[first] = self.beyond[kind] as f64 / 2.0;
        (0..2).for_each(|far| row[first + 1 + far] = f64::from(self.counts[kind][far]));
        row
    }

    /// Sectors of a request beyond 4 KiB, on average, of reads or of writes.
    fn middle(&self, write: bool) -> Option<u32> {
        let (mut count, mut sectors) = (0_u32, 0);
        for kind in (0..KINDS).filter(|kind| (kind & WRITE > 0) == write) {
            (count, sectors) = (count + self.counts[kind].iter().sum::<u32>(), sectors + self.beyond[kind]);
        }
        u32::try_from(sectors.checked_div(count.into())?).ok()
    }
}

/// The bits of a kind.
const WRITE: usize = 1;
const ROAMING: usize = 2;
const LARGE: usize = 4;

/// The findings of a window.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Finding {
    /// Something more.
    More,
    /// The disk's order of magnitude: all costs are this many times the guess (cost.5).
    Scale(f64),
    /// All costs are others, and measurements in the old ones are void (cost.7).
    Anew,
}

/// The coefficients, and how sure they are.
#[derive(Clone, Debug)]
pub(super) struct Costs {
    /// ns for each KiB read beyond 4, of a near read of 4 KiB, of a far one; the same of writes.
    theta: [f64; COUNT],
    /// Whether nothing is known of the disk, not even its order of magnitude (cost.5).
    is_new: bool,
    /// For how long yet learning goes on from the given model; `None`: nothing was given, or no longer (cost.7).
    trusted: Option<Duration>,
    /// Completions in the windows of the next equation, their length, and the time of flushes; and for how long completions are of an
    /// earlier trial.
    sum: Sum,
    passed: Duration,
    lost: Duration,
    settles: Duration,
    /// The last equations.
    equations: VecDeque<Equation>,
    /// The information from earlier equations: the coefficients, and how sure they were.
    before: [f64; COUNT],
    information: Matrix,
    /// The covariance of the coefficients' relative errors.
    p: Matrix,
    /// How far equations deviate by themselves, squared (cost.3).
    noise: f64,
    /// Requests with more sectors beyond 4 KiB than these are large, of reads and of writes.
    middle: [u32; 2],
    /// The kind that has a trial, and its price, in 1,024ths of its cost; whether it is the second window of it (cost.6).
    trial: usize,
    price: u64,
    is_second: bool,
    /// The same for use: of 4 KiB in ns, by write and far; 1/65,536 ns for each sector beyond, by write.
    base: [[u64; 2]; 2],
    rate: [u64; 2],
}

impl Costs {
    /// Starts from a model, or else a flash disk where 8 KiB more cost as much as a 4 KiB request.
    pub(super) fn new(model: Option<Model>) -> Self {
        let kib = |bps: f64| 1024e9 / bps;
        let theta = match model {
            Some(Model { rbps, rseqiops, rrandiops, wbps, wseqiops, wrandiops }) => {
                [kib(rbps), 1e9 / rseqiops, 1e9 / rrandiops, kib(wbps), 1e9 / wseqiops, 1e9 / wrandiops]
            }
            None => [1000.0, 8000.0, 8000.0, 1000.0, 8000.0, 8000.0],
        };
        let theta = theta.map(|each: f64| each.max(1.0));
        let known = prior();
        let mut this = Self {
            theta,
            is_new: model.is_none(),
            trusted: model.map(|_| TRUSTED),
            sum: Sum::default(),
            passed: Duration::ZERO,
            lost: Duration::ZERO,
            settles: Duration::ZERO,
            equations: VecDeque::with_capacity(LAST + 1),
            before: theta,
            information: known,
            p: inverse(known),
            noise: NOISE[0] * NOISE[0],
            middle: [0; 2],
            trial: 0,
            price: PAR,
            is_second: false,
            base: [[1; 2]; 2],
            rate: [0; 2],
        };
        this.tell();
        this
    }

    /// The same of a disk whose order of magnitude has been learned: measurements in other costs are void with the first window.
    pub(super) fn again(model: Option<Model>) -> Self {
        let this = Self::new(model);
        Self { trusted: this.trusted.or(Some(Duration::ZERO)), ..this }
    }

    /// Which kind a request is of (cost.6).
    #[inline]
    pub(super) fn kind(&self, shape: Shape) -> usize {
        let is_large = shape.sectors.saturating_sub(FREE) > self.middle[usize::from(shape.write)];
        WRITE * usize::from(shape.write) + ROAMING * usize::from(shape.roams) + LARGE * usize::from(is_large)
    }

    /// The cost of a request, in nanoseconds of a full disk (cost.4).
    #[inline]
    pub(super) fn of(&self, shape: Shape) -> u32 {
        let write = usize::from(shape.write);
        let base = self.base[write][usize::from(shape.far)];
        let beyond = u64::from(shape.sectors.saturating_sub(FREE));
        let cost = base + (beyond.saturating_mul(self.rate[write]) >> 16);
        cost.min(1 << 30) as u32
    }

    /// The charge for a request: its cost, but for a trial (cost.6).
    #[inline]
    pub(super) fn price(&self, shape: Shape) -> u32 {
        match (self.of(shape), self.times(shape)) {
            (cost, PAR) => cost,
            (cost, times) => (u64::from(cost) * times / PAR).clamp(1, 1 << 30) as u32,
        }
    }

    /// The factor on the places of a tenant whose requests are like this: it goes with their charges (cost.6).
    pub(super) fn trial(&self, shape: Shape) -> f64 {
        PAR as f64 / self.times(shape) as f64
    }

    /// The price of requests like this, in 1,024ths of their cost.
    #[inline]
    fn times(&self, shape: Shape) -> u64 {
        if self.price == PAR || self.kind(shape) != self.trial { PAR } else { self.price }
    }

    /// Which prices are on trial, and by how much: another answer is another trial.
    pub(super) fn on_trial(&self) -> (usize, u64) {
        (self.trial, self.price)
    }

    /// Learns from the completions of a time in which the disk was full (cost.2), and the flush time in it. Requests in the device are
    /// looked up only when they matter.
    pub(super) fn learn(
        &mut self,
        sum: &Sum,
        time: Duration,
        lost: Duration,
        inside: impl FnOnce(&Self) -> [u32; KINDS],
    ) -> Finding {
        if self.settles > time {
            self.settles = self.settles - time;
            return Finding::More;
        }
        self.settles = Duration::ZERO;
        self.sum.extend(sum);
        (self.passed, self.lost) = (self.passed + time, self.lost + lost);
        if self.passed < EQUATION {
            return Finding::More;
        }
        let rows = core::array::from_fn(|kind| self.sum.row(kind));
        let equation = Equation {
            rows,
            inside: inside(self),
            time: self.passed.as_nanos() as f64,
            lost: self.lost.as_nanos() as f64,
        };
        let (variance, _) = equation.chance(&self.theta);
        if variance > FIRM && (variance == f64::INFINITY || self.passed < LONG) {
            return Finding::More;
        }
        let before = self.price;
        let (sum, passed) = (core::mem::take(&mut self.sum), core::mem::take(&mut self.passed));
        self.lost = Duration::ZERO;
        let information = self.explain(&sum, &equation, passed);
        if self.price != before {
            self.settles = Duration::from_nanos(equation.lap() as u64);
        }
        information
    }

    fn explain(&mut self, sum: &Sum, equation: &Equation, time: Duration) -> Finding {
        if let Some(left) = self.trusted {
            if left > time {
                self.trusted = Some(left - time);
            } else {
                *self = Self::new(None);
                self.explain(sum, equation, time);
                return Finding::Anew; // cost.7
            }
        }
        let predicted: f64 = equation.costs(&self.theta).iter().flatten().sum();
        if equation.time <= 0.0 || predicted <= 0.0 {
            return Finding::More;
        }
        let mut learned = Finding::More;
        if self.is_new {
            let times = equation.time / predicted;
            self.is_new = !(0.5..=2.0).contains(&times);
            if self.is_new {
                learned = Finding::Scale(times); // cost.5
                self.equations.clear(); // they would draw it back
                self.scale(times);
            }
        }
        self.takes_in(equation);
        self.fit();
        self.try_price(equation);
        for write in [false, true] {
            if let Some(middle) = sum.middle(write) {
                self.middle[usize::from(write)] = middle;
            }
        }
        self.tell();
        learned
    }

    /// Multiplies all coefficients (cost.4).
    fn scale(&mut self, times: f64) {
        self.theta = self.theta.map(|one| (one * times).clamp(1.0, MOST));
        self.before = self.before.map(|one| (one * times).clamp(1.0, MOST));
    }

    /// One more equation, and the first of more than [`LAST`] is one of those before.
    fn takes_in(&mut self, equation: &Equation) {
        if self.equations.len() == LAST {
            let mut information = self.information.map(|row| row.map(|one| one * (1.0 - 1.0 / MEMORY)));
            let mut towards = times(&information, &self.doubted());
            let prior = prior();
            (0..COUNT).for_each(|n| (0..COUNT).for_each(|m| information[n][m] += prior[n][m] / MEMORY));
            self.pair(&self.equations[0], &self.equations[1]).add_to(&mut information, &mut towards);
            let by = times(&inverse(information), &towards);
            (self.information, self.before) = (information, moved(&self.theta, &by));
            self.equations.pop_front();
        }
        self.equations.push_back(equation.clone());
    }

    /// The information of the second of two equations beside the first.
    fn pair(&self, one: &Equation, next: &Equation) -> Tells {
        let (before, after) = (one.beside(&self.theta), next.beside(&self.theta));
        let mut time_shares = core::array::from_fn(|n| after.time_shares[n] - before.time_shares[n]);
        let (edges, chances) = (one.chance(&self.theta), next.chance(&self.theta));
        let moved = time_shares.iter().map(|part| part.abs()).sum::<f64>() / 2.0;
        if moved < edges.1.max(chances.1) {
            time_shares = [0.0; COUNT];
        }
        let variance = self.noise + edges.0 + chances.0;
        let doubt = dot(&time_shares, &times(&self.p, &time_shares));
        Tells {
            off: after.off - before.off,
            time_shares,
            variance,
            likely: (SURPRISE * SURPRISE * (variance + doubt)).min(JUMP * JUMP),
        }
    }

    /// How far the coefficients are from the earlier information, as factors.
    fn doubted(&self) -> [f64; COUNT] {
        core::array::from_fn(|n| libm::log(self.before[n] / self.theta[n]))
    }

    /// cost.2, cost.3
    fn fit(&mut self) {
        for _ in 0..STEPS {
            let (mut information, mut towards) = (self.information, times(&self.information, &self.doubted()));
            self.pairs().for_each(|tells| tells.add_to(&mut information, &mut towards));
            self.p = inverse(information);
            self.theta = moved(&self.theta, &times(&self.p, &towards));
        }
        let (mut all, mut count) = (NOISE[0] * NOISE[0] * 4.0, 4.0);
        for Tells { off, variance, likely, .. } in self.pairs() {
            (all, count) = (all + (off * off).min(likely) * self.noise / variance, count + 1.0);
        }
        self.noise = (all / count).clamp(NOISE[1] * NOISE[1], NOISE[2] * NOISE[2]);
        let mut level = self.equations[0].beside(&self.theta).off;
        self.equations.iter().for_each(|one| level += LEVEL * (one.beside(&self.theta).off - level));
        self.scale(libm::exp(level));
    }

    fn pairs(&self) -> impl Iterator<Item = Tells> {
        self.equations.iter().zip(self.equations.range(1..)).map(|(one, next)| self.pair(one, next))
    }

    /// The prices until the next equation (cost.6).
    fn try_price(&mut self, equation: &Equation) {
        if core::mem::take(&mut self.is_second) {
            self.price = PAR * PAR / self.price;
            return;
        }
        if equation.flushed() > CHANCE {
            self.price = PAR;
            return;
        }
        let costs = equation.costs(&self.theta);
        let all: f64 = costs.iter().flatten().sum();
        let time_shares = equation.beside(&self.theta).time_shares;
        let (mut most, mut off) = (0.0, 0.0);
        for (kind, row) in costs.iter().enumerate() {
            let time: f64 = row.iter().sum();
            let part = time / all;
            if !(TRIAL_PART..=1.0 - TRIAL_PART).contains(&part) {
                continue;
            }
            // The difference of this kind's cost from that of all, and how sure that is.
            let beside: [f64; COUNT] = core::array::from_fn(|n| row[n] / time - time_shares[n]);
            let doubt = dot(&beside, &times(&self.p, &beside));
            if doubt > SURE * SURE && part * doubt > most {
                (most, off, self.trial) = (part * doubt, doubt, kind);
            }
        }
        self.is_second = off > 0.0;
        self.price = if self.is_second {
            (PAR as f64 * (1.0 + (2.0 * libm::sqrt(off)).clamp(TRIAL[0], TRIAL[1]))) as u64
        } else {
            PAR
        };
    }

    fn tell(&mut self) {
        for write in 0..2 {
            for far in 0..2 {
                self.base[write][far] = (self.theta[3 * write + 1 + far] as u64).max(1);
            }
            self.rate[write] = (self.theta[3 * write] * 32_768.0) as u64;
        }
    }

    /// The learned costs, as the kernel's `io.cost.model` writes them.
    pub(super) fn model(&self) -> Model {
        let [rk, rn, rf, wk, wn, wf] = self.theta;
        Model {
            rbps: 1024e9 / rk,
            rseqiops: 1e9 / rn,
            rrandiops: 1e9 / rf,
            wbps: 1024e9 / wk,
            wseqiops: 1e9 / wn,
            wrandiops: 1e9 / wf,
        }
    }
}

/// The information before a measurement: each coefficient may be off by [`EACH`], near and far from each other by [`NEAR`].
fn prior() -> Matrix {
    let mut covariance = diagonal(EACH * EACH);
    for near in [1, 4] {
        covariance[near][near + 1] = EACH * EACH - NEAR * NEAR / 2.0;
        covariance[near + 1][near] = covariance[near][near + 1];
    }
    inverse(covariance)
}

/// The price of a request whose learned cost is right.
const PAR: u64 = 1024;

#[cfg(test)]
mod tests;
