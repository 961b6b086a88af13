//! Cost: how much of the disk's time a request takes, learned while the disk serves.
//!
//! A 64 KiB write and a 4 KiB read compete for the same thing, the disk's time, and neither sectors nor requests say how much
//! of it each takes. A disk that does 100,000 reads of 4 KiB a second, or 22,000 writes of 64 KiB, spends 10 µs on the one and
//! 45 µs on the other: that is what they cost.
//!
//! cost.1  A request costs a base and so much for each KiB. Both differ for reads and writes; the base also differs for a
//!         request near the end of the stream's last one, and for one far from it (16 MiB, as the kernel's io.cost).
//! cost.2  A window in which the disk was full is one equation: the time that passed is the sum of what ended, each at its
//!         cost. A Kalman filter keeps the six coefficients that explain the windows best. Where a load never tells two
//!         coefficients apart, their ratio stays what it was.
//! cost.3  A disk is faster or slower than it was thought as a whole, more often than in one coefficient alone: all coefficients
//!         have an error in common ([`WHOLE`]), and each a smaller one of its own ([`EACH`]). So a load of one kind moves all of
//!         them together, and only a load that changes its mixture moves one against another.
//! cost.4  No coefficient is less than 1 ns. A request costs at most a second.
//! cost.5  Where no model is given, the first window tells the order of magnitude of all coefficients. A disk that takes 5 ms for
//!         a read would otherwise take hundreds of windows to be known as one.
//!
//! Only ratios matter to shares. A model that is wrong by a factor throughout costs nothing.

use alloc::format;
use alloc::string::String;
use core::fmt;

use crate::{Duration, Extent, Op, Sector};

/// How far from the end of the stream's last request a request is far, in sectors: 4096 pages, as in Linux's `blk-iocost`.
const FAR: u64 = 4096 * 8;
/// The deviation of a window's time that has nothing to do with what ended in it: windows of some hundred requests differed by
/// 5 to 15 % on a virtual disk under a steady load.
const NOISE: f64 = 0.1;
/// How far off all coefficients may be by a common factor, and each by its own, at first: nothing is known of the disk's speed;
/// of eight profiles of flash disks (docs/models-flash.md) the ratios differ by a factor of two or so.
const WHOLE: f64 = 2.0;
const EACH: f64 = 0.5;
/// The same, from one window to the next: a virtual disk drifts by tens of percent within minutes, which are 10,000 windows.
const WHOLE_DRIFT: f64 = 0.02;
const EACH_DRIFT: f64 = 0.002;
/// The most that a coefficient may be: a second.
const MOST: f64 = 1e9;
/// How many coefficients there are.
const COUNT: usize = 6;

/// What requests cost, in the words of the kernel's `io.cost.model`: bytes a second, and requests of 4 KiB a second, of a disk
/// that does nothing else.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Model {
    /// Bytes read in a second, in long runs.
    pub rbps: f64,
    /// Reads of 4 KiB in a second, each after the one before it.
    pub rseqiops: f64,
    /// Reads of 4 KiB in a second, here and there.
    pub rrandiops: f64,
    /// As `rbps`, of writes.
    pub wbps: f64,
    /// As `rseqiops`, of writes.
    pub wseqiops: f64,
    /// As `rrandiops`, of writes.
    pub wrandiops: f64,
}

impl Model {
    /// The words, in the order of the fields.
    pub const WORDS: [&str; COUNT] = ["rbps", "rseqiops", "rrandiops", "wbps", "wseqiops", "wrandiops"];

    const fn values(&self) -> [f64; COUNT] {
        [self.rbps, self.rseqiops, self.rrandiops, self.wbps, self.wseqiops, self.wrandiops]
    }

    /// Reads `rbps=500000000 rseqiops=90000 …`: all six words, each once, in any order. Words of the kernel's line that say no
    /// figure (`ctrl=user model=linear`, a device number) are passed over.
    ///
    /// # Errors
    /// What is missing or malformed.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut values = [None; COUNT];
        for word in text.split([' ', ',']).filter(|word| !word.is_empty()) {
            let Some((name, value)) = word.split_once('=') else { continue };
            let Some(at) = Self::WORDS.iter().position(|known| *known == name) else {
                if ["ctrl", "model"].contains(&name) {
                    continue;
                }
                return Err(format!("\"{name}\" is no word of a cost model: there is {}", Self::WORDS.join(", ")));
            };
            let value = value.parse::<f64>().ok().filter(|value| (1.0..=1e15).contains(value));
            values[at] = Some(value.ok_or_else(|| format!("{word}: a rate is a number from 1 to 10^15"))?);
        }
        match values {
            [Some(rbps), Some(rseqiops), Some(rrandiops), Some(wbps), Some(wseqiops), Some(wrandiops)] => {
                Ok(Self { rbps, rseqiops, rrandiops, wbps, wseqiops, wrandiops })
            }
            _ => {
                let missing = Self::WORDS.iter().zip(&values).find(|(_, value)| value.is_none());
                Err(format!("{} is missing from the cost model", missing.map_or("", |(word, _)| word)))
            }
        }
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (word, value)) in Self::WORDS.iter().zip(self.values()).enumerate() {
            write!(f, "{}{word}={value:.0}", if n == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

/// What a request is like, as far as its cost goes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Shape {
    pub(super) write: bool,
    pub(super) far: bool,
    pub(super) sectors: u32,
}

impl Shape {
    /// `after` is where the stream's last request ended.
    pub(super) fn new(op: Op, extent: Extent, after: Sector) -> Self {
        let mut this = Self { write: op != Op::Read, far: extent.start.0.abs_diff(after.0) > FAR, sectors: 0 };
        this.resize(op, extent);
        this
    }

    /// It covers another extent. Of a discard the length says nothing; its time is charged when it has ended.
    pub(super) fn resize(&mut self, op: Op, extent: Extent) {
        self.sectors = if op.has_payload() { u32::try_from(extent.sectors).unwrap_or(u32::MAX) } else { 0 };
    }
}

/// What ended in a window: for each coefficient, how often it counts (KiB for the lengths).
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Sum {
    counts: [[u32; 2]; 2],
    sectors: [u64; 2],
}

impl Sum {
    #[inline]
    pub(super) fn add(&mut self, shape: Shape) {
        self.counts[usize::from(shape.write)][usize::from(shape.far)] += 1;
        self.sectors[usize::from(shape.write)] += u64::from(shape.sectors);
    }

    /// Adds what ended in another window.
    pub(super) fn extend(&mut self, other: &Self) {
        for write in 0..2 {
            self.sectors[write] += other.sectors[write];
            (0..2).for_each(|far| self.counts[write][far] += other.counts[write][far]);
        }
    }

    /// How many requests that were.
    pub(super) fn requests(&self) -> u64 {
        self.counts.iter().flatten().map(|count| u64::from(*count)).sum()
    }

    fn row(&self) -> [f64; COUNT] {
        let kib = |write: usize| self.sectors[write] as f64 / 2.0;
        let count = |write: usize, far: usize| f64::from(self.counts[write][far]);
        [kib(0), count(0, 0), count(0, 1), kib(1), count(1, 0), count(1, 1)]
    }
}

/// The coefficients, and how sure they are.
#[derive(Clone, Debug)]
pub(super) struct Costs {
    /// ns for each KiB read, of a near read, of a far read; the same of writes.
    theta: [f64; COUNT],
    /// Whether nothing is known of the disk, not even its order of magnitude (cost.5).
    is_new: bool,
    /// Their covariance.
    p: [[f64; COUNT]; COUNT],
    /// The same for use: base in ns, by write and far; 1/65,536 ns for each sector, by write.
    base: [[u64; 2]; 2],
    rate: [u64; 2],
}

impl Costs {
    /// Starts from a model, or else from a flash disk of which 4 KiB of data take as long as the request itself.
    pub(super) fn new(model: Option<Model>) -> Self {
        let theta = match model {
            Some(model) => {
                let each = |bps: f64, iops: f64| (1e9 / iops - 4e9 * 1024.0 / bps).max(0.0);
                let kib = |bps: f64| 1024e9 / bps;
                [
                    kib(model.rbps),
                    each(model.rbps, model.rseqiops),
                    each(model.rbps, model.rrandiops),
                    kib(model.wbps),
                    each(model.wbps, model.wseqiops),
                    each(model.wbps, model.wrandiops),
                ]
            }
            None => [1000.0, 4000.0, 4000.0, 1000.0, 4000.0, 4000.0],
        };
        let theta = theta.map(|each: f64| each.max(1.0));
        let p = [[0.0; COUNT]; COUNT];
        let mut this = Self { theta, is_new: model.is_none(), p, base: [[1; 2]; 2], rate: [0; 2] };
        this.doubt(WHOLE, EACH);
        this.tell();
        this
    }

    /// The coefficients may be off by so much more, all by the same factor and each by its own (cost.3).
    fn doubt(&mut self, whole: f64, each: f64) {
        for n in 0..COUNT {
            for m in 0..COUNT {
                self.p[n][m] += self.theta[n] * self.theta[m] * whole * whole;
            }
            let own = self.theta[n] * self.theta[n];
            // What is never seen is not doubted more and more.
            if self.p[n][n] < own * (WHOLE * WHOLE + EACH * EACH) {
                self.p[n][n] += own * each * each;
            }
        }
    }

    /// What a request costs, in nanoseconds of a full disk (cost.4).
    #[inline]
    pub(super) fn of(&self, shape: Shape) -> u32 {
        let write = usize::from(shape.write);
        let base = self.base[write][usize::from(shape.far)];
        let cost = base + ((u64::from(shape.sectors) * self.rate[write]) >> 16);
        cost.clamp(1, 1 << 30) as u32
    }

    /// The disk was full for so long, and this ended in that time (cost.2, cost.3).
    pub(super) fn learn(&mut self, sum: &Sum, time: Duration) {
        let x = sum.row();
        let t = time.as_nanos() as f64;
        let predicted: f64 = (0..COUNT).map(|n| x[n] * self.theta[n]).sum();
        if t <= 0.0 || predicted <= 0.0 {
            return;
        }
        let mut predicted = predicted;
        if core::mem::take(&mut self.is_new) {
            let times = (t / predicted).clamp(1e-3, 1e3); // cost.5
            self.theta = self.theta.map(|one| one * times);
            self.p = self.p.map(|row| row.map(|one| one * times * times));
            predicted *= times;
        }
        self.doubt(WHOLE_DRIFT, EACH_DRIFT);
        let px: [f64; COUNT] = core::array::from_fn(|n| (0..COUNT).map(|m| self.p[n][m] * x[m]).sum());
        let variance: f64 = (0..COUNT).map(|n| x[n] * px[n]).sum::<f64>() + (NOISE * t) * (NOISE * t);
        let error = t - predicted;
        for n in 0..COUNT {
            let gain = px[n] / variance;
            self.theta[n] = (self.theta[n] + gain * error).clamp(1.0, MOST); // cost.4
            for m in 0..COUNT {
                self.p[n][m] -= gain * px[m];
            }
        }
        self.tell();
    }

    fn tell(&mut self) {
        for write in 0..2 {
            for far in 0..2 {
                self.base[write][far] = self.theta[3 * write + 1 + far] as u64;
            }
            self.rate[write] = (self.theta[3 * write] * 32_768.0) as u64;
        }
    }

    /// What was learned, in the words of the kernel.
    pub(super) fn model(&self) -> Model {
        let [rk, rn, rf, wk, wn, wf] = self.theta;
        let bps = |kib: f64| 1024e9 / kib.max(1e-3);
        let iops = |kib: f64, each: f64| 1e9 / (4.0 * kib + each).max(1e-3);
        Model {
            rbps: bps(rk),
            rseqiops: iops(rk, rn),
            rrandiops: iops(rk, rf),
            wbps: bps(wk),
            wseqiops: iops(wk, wn),
            wrandiops: iops(wk, wf),
        }
    }
}
