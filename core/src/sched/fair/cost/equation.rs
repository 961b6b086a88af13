//! Equations: costs as seen in a time in which the disk was full, and how sure that is (cost.2, cost.3).

use super::{CHANCE, COUNT, KINDS, MOST};

pub(super) type Matrix = [[f64; COUNT]; COUNT];

/// Completions while the disk was full (cost.2).
#[derive(Clone, Debug)]
pub(super) struct Equation {
    /// How often each coefficient counts, by kind.
    pub(super) rows: [[f64; COUNT]; KINDS],
    /// Requests in the device at its end.
    pub(super) inside: [u32; KINDS],
    /// In nanoseconds; and the time of flushes beside that.
    pub(super) time: f64,
    pub(super) lost: f64,
}

impl Equation {
    /// The time of flushes, by its own.
    pub(super) fn flushed(&self) -> f64 {
        self.lost / self.time
    }

    /// The cost of all completions of each kind, by coefficient.
    pub(super) fn costs(&self, theta: &[f64; COUNT]) -> [[f64; COUNT]; KINDS] {
        self.rows.map(|row| core::array::from_fn(|n| row[n] * theta[n]))
    }

    pub(super) fn beside(&self, theta: &[f64; COUNT]) -> Level {
        let costs = self.costs(theta);
        let all: f64 = costs.iter().flatten().sum();
        let time_shares = core::array::from_fn(|n| costs.iter().map(|row| row[n]).sum::<f64>() / all);
        Level { off: libm::log(self.time / all), time_shares }
    }

    /// How often each kind counts.
    pub(super) fn count(&self, kind: usize) -> f64 {
        self.rows[kind][1..3].iter().chain(&self.rows[kind][4..]).sum()
    }

    /// A request's time in the device, for the kind with the longest.
    pub(super) fn lap(&self) -> f64 {
        let lap = |kind| self.time * f64::from(self.inside[kind]) / self.count(kind).max(1.0);
        (0..KINDS).map(lap).fold(0.0, f64::max)
    }

    /// By how much it may be off, squared, and its mixture by chance. The time of flushes is known by half, more or less; and the requests
    /// in the device at either end were done by half, more or less.
    pub(super) fn chance(&self, theta: &[f64; COUNT]) -> (f64, f64) {
        let costs = self.costs(theta);
        let all: f64 = costs.iter().flatten().sum();
        let (mut variance, mut mixture) = (self.flushed() * self.flushed(), 0.0);
        for (kind, row) in costs.iter().enumerate() {
            let part = row.iter().sum::<f64>() / all;
            let count = self.count(kind);
            if self.inside[kind] > 0 && count == 0.0 {
                return (f64::INFINITY, f64::INFINITY);
            }
            if count > 0.0 {
                let edge = f64::from(self.inside[kind]) / (2.0 * count);
                variance += part * part * edge * edge;
                mixture += part * (1.0 - part).max(0.0) * (CHANCE + edge);
            }
        }
        (variance, mixture / 2.0)
    }
}

/// An equation's time by the coefficients' prediction, as a logarithm; and the part of that time that each coefficient makes up, which
/// is also the part of its error that the time has.
pub(super) struct Level {
    pub(super) off: f64,
    pub(super) time_shares: [f64; COUNT],
}

/// The information on ratios in an equation beside the one before: by how much its time and the parts of that differ; by how much it may be
/// off, and is likely to be at most, both squared.
pub(super) struct Tells {
    pub(super) off: f64,
    pub(super) time_shares: [f64; COUNT],
    pub(super) variance: f64,
    pub(super) likely: f64,
}

impl Tells {
    pub(super) fn add_to(&self, information: &mut Matrix, towards: &mut [f64; COUNT]) {
        let beyond = 1.0 + self.off * self.off / self.likely;
        let variance = self.variance * beyond * beyond;
        for n in 0..COUNT {
            towards[n] += self.time_shares[n] * self.off / variance;
            (0..COUNT).for_each(|m| information[n][m] += self.time_shares[n] * self.time_shares[m] / variance);
        }
    }
}

pub(super) fn dot(one: &[f64; COUNT], other: &[f64; COUNT]) -> f64 {
    one.iter().zip(other).map(|(a, b)| a * b).sum()
}

pub(super) fn times(matrix: &Matrix, vector: &[f64; COUNT]) -> [f64; COUNT] {
    core::array::from_fn(|n| dot(&matrix[n], vector))
}

pub(super) fn diagonal(each: f64) -> Matrix {
    core::array::from_fn(|n| core::array::from_fn(|m| if n == m { each } else { 0.0 }))
}

/// Of a positive definite matrix.
pub(super) fn inverse(mut of: Matrix) -> Matrix {
    let mut inverse = diagonal(1.0);
    for n in 0..COUNT {
        let by = 1.0 / of[n][n];
        of[n] = of[n].map(|one| one * by);
        inverse[n] = inverse[n].map(|one| one * by);
        for m in (0..COUNT).filter(|m| *m != n) {
            let by = of[m][n];
            for k in 0..COUNT {
                of[m][k] -= by * of[n][k];
                inverse[m][k] -= by * inverse[n][k];
            }
        }
    }
    inverse
}

/// Coefficients times factors, given as logarithms; e at most at once (cost.4).
pub(super) fn moved(theta: &[f64; COUNT], by: &[f64; COUNT]) -> [f64; COUNT] {
    core::array::from_fn(|n| (theta[n] * libm::exp(by[n].clamp(-1.0, 1.0))).clamp(1.0, MOST))
}
