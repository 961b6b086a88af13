//! Slots: less than a whole number of requests in the device is one more for part of the time.
//!
//! A gateway of a pool may have 0.4 requests outstanding ([`gateways`](crate::gateways)). So it may have one in four of ten slots of
//! 10 ms, and none in the other six.
//!
//! slots.1  A slot that begins late is no longer for that, and those that have passed meanwhile are not made up for: what was not sent
//!         while nothing waited is lost.

use crate::time::ms;
use crate::{Duration, Instant};

/// Chosen: a hundred parts of the second after which the number is another one, and long beside a request.
const SLOT: Duration = ms(10);

/// How many requests may be in the device, on average and now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slots {
    mean: f64,
    /// The fraction of a request that is due.
    due: f64,
    now: u32,
    until: Instant,
}

impl Slots {
    pub(super) fn new(now: Instant, mean: f64) -> Self {
        let mut this = Self { mean, due: 0.0, now: 0, until: now };
        this.pass(now);
        this
    }

    /// Sets the average from the next slot on.
    pub(super) fn set(&mut self, mean: f64) {
        self.mean = mean;
    }

    /// The whole number nearest to the average, at least 1.
    pub(super) fn nearest(&self) -> u32 {
        ((self.mean + 0.5) as u32).max(1)
    }

    /// The present slot may be over (slots.1).
    #[inline]
    pub(super) fn pass(&mut self, now: Instant) {
        if now >= self.until {
            self.due += self.mean;
            self.now = self.due as u32;
            self.due -= f64::from(self.now);
            self.until = now + SLOT;
        }
    }

    /// How many may be in the device in the present slot.
    #[inline]
    pub(super) fn at_most(&self) -> u32 {
        self.now
    }

    /// When there may be more.
    pub(super) fn until(&self) -> Instant {
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// slots.1
    #[test]
    fn parts_of_a_request_add_up() {
        for mean in [0.05, 0.4, 1.0, 2.5, 30.3] {
            let mut slots = Slots::new(Instant::ZERO, mean);
            let mut sum = 0;
            for slot in 1..=1000 {
                let before = slots.at_most();
                slots.pass(Instant::ZERO + ms(10 * slot - 1));
                assert_eq!(slots.at_most(), before, "the slot goes on");
                slots.pass(Instant::ZERO + ms(10 * slot));
                sum += slots.at_most();
            }
            assert!((f64::from(sum) - 1000.0 * mean).abs() <= 1.0, "{mean}: {sum}");
        }
    }

    /// slots.1
    #[test]
    fn time_in_which_nothing_was_asked_is_not_made_up_for() {
        let mut slots = Slots::new(Instant::ZERO, 0.5);
        slots.pass(Instant::ZERO + ms(60_000));
        assert!(slots.at_most() <= 1);
    }
}
