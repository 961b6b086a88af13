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
    /// `after` is where the stream's last request ended. A discard counts as a small read while it is in the device: of it the
    /// length says nothing, and its time is charged when it has ended.
    pub(super) fn new(op: Op, extent: Extent, after: Sector) -> Self {
        if !op.has_payload() {
            return Self { write: false, far: true, sectors: 8 };
        }
        let mut this = Self { write: op != Op::Read, far: extent.start.0.abs_diff(after.0) > FAR, sectors: 0 };
        this.resize(op, extent);
        this
    }

    /// It covers another extent.
    pub(super) fn resize(&mut self, op: Op, extent: Extent) {
        if op.has_payload() {
            self.sectors = u32::try_from(extent.sectors).unwrap_or(u32::MAX);
        }
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
        let cost = base + (u64::from(shape.sectors).saturating_mul(self.rate[write]) >> 16);
        cost.clamp(1, 1 << 30) as u32
    }

    /// Answers by how much all costs are greater now than what they were a guess for (cost.5).
    ///
    /// The disk was full for so long, and this ended in that time (cost.2, cost.3).
    pub(super) fn learn(&mut self, sum: &Sum, time: Duration) -> f64 {
        let x = sum.row();
        let t = time.as_nanos() as f64;
        let predicted: f64 = (0..COUNT).map(|n| x[n] * self.theta[n]).sum();
        if t <= 0.0 || predicted <= 0.0 {
            return 1.0;
        }
        let (mut predicted, mut times) = (predicted, 1.0);
        if core::mem::take(&mut self.is_new) {
            times = (t / predicted).clamp(1e-3, 1e3); // cost.5
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
            for (one, column) in self.p[n].iter_mut().zip(px) {
                *one -= gain * column;
            }
        }
        self.stay_possible();
        self.tell();
        times
    }

    /// What was rounded may leave a covariance that none can have, from which coefficients go anywhere. Then what is known of
    /// pairs is forgotten.
    fn stay_possible(&mut self) {
        let (p, theta) = (&mut self.p, &self.theta);
        let is_sound = |own: f64| own > 0.0 && own.is_finite();
        let is_possible = |n: usize, m: usize| p[n][m] * p[n][m] <= 1.001 * p[n][n] * p[m][m];
        if (0..COUNT).all(|n| is_sound(p[n][n]) && (0..n).all(|m| is_possible(n, m))) {
            return;
        }
        for n in 0..COUNT {
            let own = if is_sound(p[n][n]) { p[n][n] } else { theta[n] * theta[n] };
            p[n] = [0.0; COUNT];
            p[n][n] = own;
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sector;

    /// What a disk's requests cost, with the deviation that its windows have.
    struct Disk {
        theta: [f64; COUNT],
        noise: f64,
        seed: u64,
    }

    /// What may be in a window.
    #[derive(Clone, Copy)]
    struct Mix {
        /// Parts of writes and of far requests, from and to.
        writes: (f64, f64),
        far: (f64, f64),
        /// Pages, as powers of two, from and to.
        pages: (f64, f64),
    }

    const MIXED: Mix = Mix { writes: (0.0, 1.0), far: (0.0, 1.0), pages: (0.0, 5.0) };
    const SMALL_READS: Mix = Mix { writes: (0.0, 0.0), far: (1.0, 1.0), pages: (0.0, 0.0) };
    /// ns for each KiB, for each near and for each far request, of reads and of writes: like a virtual disk's.
    const TRUE: [f64; COUNT] = [400.0, 3000.0, 8000.0, 900.0, 5000.0, 20_000.0];

    impl Disk {
        fn new(theta: [f64; COUNT]) -> Self {
            Self { theta, noise: 0.1, seed: 7 }
        }

        fn random(&mut self) -> f64 {
            self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.seed >> 11) as f64 / (1_u64 << 53) as f64
        }

        fn between(&mut self, (from, to): (f64, f64)) -> f64 {
            from + (to - from) * self.random()
        }

        /// A window of 128 requests, of a composition of its own, and how long it took.
        fn window(&mut self, mix: Mix) -> (Sum, Duration) {
            let (writes, far, pages) = (self.between(mix.writes), self.between(mix.far), self.between(mix.pages));
            let mut sum = Sum::default();
            for _ in 0..128 {
                let (write, far) = (self.random() < writes, self.random() < far);
                sum.add(Shape { write, far, sectors: 8 << (pages as u32) });
            }
            let row = sum.row();
            let time: f64 = (0..COUNT).map(|n| row[n] * self.theta[n]).sum();
            // Twelve of these make a deviation of one.
            let noise: f64 = (0..12).map(|_| self.random()).sum::<f64>() - 6.0;
            (sum, Duration::from_nanos((time * (1.0 + self.noise * noise).max(0.1)) as u64))
        }

        fn teach(&mut self, costs: &mut Costs, mix: Mix, windows: u32) {
            for _ in 0..windows {
                let (sum, time) = self.window(mix);
                costs.learn(&sum, time);
            }
        }

        /// The greatest factor by which the cost of a request is off, of some that matter: small and large, near and far.
        fn error(&self, costs: &Costs) -> f64 {
            let mut worst: f64 = 1.0;
            for (write, far, sectors) in [false, true]
                .iter()
                .flat_map(|w| [false, true].map(|f| (*w, f)))
                .flat_map(|(w, f)| [8, 64, 256].map(|s| (w, f, s)))
            {
                let shape = Shape { write, far, sectors };
                let mut sum = Sum::default();
                sum.add(shape);
                let row = sum.row();
                let right: f64 = (0..COUNT).map(|n| row[n] * self.theta[n]).sum();
                let ratio = f64::from(costs.of(shape)) / right;
                worst = worst.max(ratio).max(1.0 / ratio);
            }
            worst
        }
    }

    /// Starts where the coefficients are these.
    fn costs(theta: [f64; COUNT]) -> Costs {
        let mut costs = Costs::new(None);
        (costs.theta, costs.p, costs.is_new) = (theta, [[0.0; COUNT]; COUNT], false);
        costs.doubt(WHOLE, EACH);
        costs.tell();
        costs
    }

    /// cost.2: reads and writes, base and length, near and far are told apart where their mixture changes.
    #[test]
    fn what_requests_cost_is_found_from_the_times_of_mixed_windows() {
        let mut disk = Disk::new(TRUE);
        let mut costs = Costs::new(None);
        let before = disk.error(&costs);
        disk.teach(&mut costs, MIXED, 300);
        let after = disk.error(&costs);
        assert!(before > 2.0 && after < 1.2, "off by a factor of {before:.2} before, of {after:.2} after 300 windows");
    }

    /// cost.2, cost.3: which coefficient is wrong does not matter.
    #[test]
    fn a_model_that_is_wrong_by_ten_in_one_coefficient_is_put_right() {
        for wrong in 0..COUNT {
            for factor in [0.1, 10.0] {
                let mut given = TRUE;
                given[wrong] *= factor;
                let (mut disk, mut costs) = (Disk::new(TRUE), costs(given));
                let before = disk.error(&costs);
                disk.teach(&mut costs, MIXED, 600);
                let after = disk.error(&costs);
                assert!(
                    after < 1.6 && after < before,
                    "coefficient {wrong} times {factor}: off by {before:.2}, and by {after:.2} then"
                );
            }
        }
    }

    /// cost.3: a disk becomes another, and is known again soon.
    #[test]
    fn a_disk_that_changes_is_followed() {
        let (mut disk, mut costs) = (Disk::new(TRUE), costs(TRUE));
        disk.teach(&mut costs, MIXED, 2000);
        assert!(disk.error(&costs) < 1.2, "{:.2}", disk.error(&costs));
        for n in 3..COUNT {
            disk.theta[n] *= 3.0;
        }
        disk.teach(&mut costs, MIXED, 400);
        assert!(disk.error(&costs) < 1.3, "writes cost three times as much: off by {:.2}", disk.error(&costs));
    }

    /// cost.2: where there is one kind of request alone, nothing is learned of others, and nothing of what its own time is
    /// made up of.
    #[test]
    fn what_a_load_does_not_tell_apart_keeps_its_ratio() {
        let (mut disk, mut costs) = (Disk::new(TRUE), Costs::new(None));
        let before = costs.theta;
        disk.teach(&mut costs, SMALL_READS, 1000);
        let after = costs.theta;
        let read = costs.of(Shape { write: false, far: true, sectors: 8 });
        let right = TRUE[2] + 4.0 * TRUE[0];
        assert!((f64::from(read) / right - 1.0).abs() < 0.1, "a read costs {read} ns and takes {right}");
        assert!((after[0] / after[2] / (before[0] / before[2]) - 1.0).abs() < 0.05, "{before:?}, then {after:?}");
        assert!(
            (after[3] / after[5] / (before[3] / before[5]) - 1.0).abs() < 1e-9,
            "writes: {before:?}, then {after:?}"
        );
        assert!(
            (after[4] / after[5] / (before[4] / before[5]) - 1.0).abs() < 1e-9,
            "writes: {before:?}, then {after:?}"
        );
    }

    /// cost.4: whatever the windows say, and whatever was given at first.
    #[test]
    fn costs_are_never_negative_nor_beyond_a_second_nor_no_number() {
        for seed in fairlift_lab::repeat::seeds(0..300) {
            let mut disk = Disk { seed, ..Disk::new(TRUE) };
            let any =
                |disk: &mut Disk, decades: f64| core::array::from_fn(|_| 10_f64.powf(disk.between((0.0, decades))));
            let given: [f64; COUNT] = any(&mut disk, 12.0);
            let mut costs = costs(given);
            for phase in 0..6 {
                disk.theta = any(&mut disk, 8.0);
                disk.noise = [0.0, 0.1, 1.0][phase % 3];
                for _ in 0..40 {
                    let mix = [MIXED, SMALL_READS, Mix { writes: (1.0, 1.0), ..MIXED }][phase % 3];
                    let (sum, time) = disk.window(mix);
                    costs.learn(&sum, time);
                    let theta = costs.theta;
                    assert!(theta.iter().all(|one| (0.0..=MOST).contains(one)), "seed {seed}: {theta:?}");
                    let p = costs.p;
                    assert!((0..COUNT).all(|n| p[n][n] >= 0.0 && p[n][n].is_finite()), "seed {seed}: {p:?}");
                    for sectors in [0, 8, u32::MAX] {
                        let cost = costs.of(Shape { write: phase % 2 == 0, far: true, sectors });
                        assert!((1..=1 << 30).contains(&cost));
                    }
                }
            }
        }
    }

    /// cost.5
    #[test]
    fn the_first_window_tells_how_slow_a_disk_is() {
        let slow = TRUE.map(|one| 300.0 * one);
        let (mut disk, mut new) = (Disk::new(slow), Costs::new(None));
        let ratio = |costs: &Costs| costs.theta[5] / costs.theta[2];
        let before = ratio(&new);
        disk.teach(&mut new, SMALL_READS, 20);
        let read = f64::from(new.of(Shape { write: false, far: true, sectors: 8 }));
        assert!((read / (slow[2] + 4.0 * slow[0]) - 1.0).abs() < 0.2, "a read costs {read}");
        assert!(
            (ratio(&new) / before - 1.0).abs() < 0.3,
            "nothing is known of writes: they cost as much as before, in reads"
        );
    }

    /// A window that took no time, or in which nothing ended, says nothing.
    #[test]
    fn an_empty_window_teaches_nothing() {
        let mut costs = Costs::new(None);
        let before = costs.theta;
        let (sum, _) = Disk::new(TRUE).window(MIXED);
        costs.learn(&sum, Duration::ZERO);
        costs.learn(&Sum::default(), Duration::from_nanos(1000));
        assert_eq!(costs.theta, before);
    }

    /// cost.1
    #[test]
    fn a_request_costs_a_base_and_so_much_for_each_kib() {
        let text = "rbps=1024000000 rseqiops=125000 rrandiops=62500 wbps=512000000 wseqiops=62500 wrandiops=31250";
        let model = Model::parse(text).unwrap();
        let costs = Costs::new(Some(model));
        let cost =
            |op, start: u64, sectors| costs.of(Shape::new(op, Extent::new(Sector(start), sectors), Sector(1 << 20)));
        // 1,000 ns for each KiB read, 2,000 for each written; what is left of 8, 16, 16 and 32 µs for 4 KiB is the base.
        assert_eq!([8, 16, 256].map(|sectors| cost(Op::Read, 1 << 20, sectors)), [8_000, 12_000, 132_000]);
        assert_eq!(
            [FAR, FAR + 1].map(|off| cost(Op::Read, (1 << 20) + off, 8)),
            [8_000, 16_000],
            "far is beyond 16 MiB"
        );
        assert_eq!([FAR, FAR + 1].map(|off| cost(Op::Read, (1 << 20) - off, 8)), [8_000, 16_000], "on either side");
        assert_eq!([0, 1 << 30].map(|start| cost(Op::Write, start, 8)), [32_000; 2]);
        assert_eq!(
            cost(Op::Discard, 1 << 20, 1 << 40),
            16_000,
            "a discard counts as a small read far away, whatever its length"
        );
        assert_eq!(costs.model(), model);
        assert_eq!(Model::parse(&format!("8:0 ctrl=user model=linear {model}")), Ok(model));
    }

    #[test]
    fn a_model_that_is_no_model_says_why() {
        for (text, why) in [
            ("rbps=1", "rseqiops is missing from the cost model"),
            ("rbps=0 rseqiops=1", "rbps=0: a rate is a number from 1 to 10^15"),
            ("rbps=NaN", "rbps=NaN: a rate is a number from 1 to 10^15"),
            ("rbps=inf", "rbps=inf: a rate is a number from 1 to 10^15"),
            (
                "bps=1",
                "\"bps\" is no word of a cost model: there is rbps, rseqiops, rrandiops, wbps, wseqiops, wrandiops",
            ),
        ] {
            assert_eq!(Model::parse(text), Err(why.into()));
        }
    }
}
