//! Costs go to the next scheduler (fair.13): the coefficients and how sure they are, without the equations that told of them.

use alloc::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::equation::{Matrix, inverse};
use super::{COUNT, Costs, MOST, NOISE};
use crate::record::{Record, Unreadable};

const PART: &str = "costs";

#[derive(Serialize, Deserialize)]
struct HandedCosts {
    coefficients: [f64; COUNT],
    covariance: Matrix,
    noise: f64,
    middle: [u32; 2],
}

impl HandedCosts {
    /// Whether costs and how sure they are can be so.
    fn is_possible(&self) -> bool {
        let is_finite = |matrix: &Matrix| matrix.iter().flatten().all(|one| one.is_finite());
        let information = inverse(self.covariance);
        self.coefficients.iter().all(|one| (1.0..=MOST).contains(one))
            && is_finite(&self.covariance)
            && is_finite(&information)
            && (0..COUNT).all(|n| self.covariance[n][n] > 0.0 && information[n][n] > 0.0)
            && (NOISE[1] * NOISE[1]..=NOISE[2] * NOISE[2]).contains(&self.noise)
    }
}

impl Costs {
    /// Whether they are more than a guess, or a setting.
    pub(in crate::sched::fair) fn are_learned(&self) -> bool {
        !self.is_new && self.trusted.is_none()
    }

    pub(in crate::sched::fair) fn hand_on(&self, into: &mut Record) {
        let Self { theta: coefficients, p: covariance, noise, middle, .. } = *self;
        into.put(PART, &HandedCosts { coefficients, covariance, noise, middle });
    }

    pub(in crate::sched::fair) fn take_on(&mut self, from: &mut Record) -> Result<(), Unreadable> {
        let Some(handed) = from.take::<HandedCosts>(PART)? else { return Ok(()) };
        if !handed.is_possible() {
            return Err(Unreadable { part: PART.into(), why: "no disk has such costs".into() });
        }
        let HandedCosts { coefficients, covariance, noise, middle } = handed;
        (self.theta, self.before, self.is_new, self.trusted) = (coefficients, coefficients, false, None);
        (self.p, self.information, self.noise, self.middle) = (covariance, inverse(covariance), noise, middle);
        self.equations = VecDeque::with_capacity(super::LAST + 1);
        self.tell();
        Ok(())
    }
}
