//! Gauge: how many requests a device had, over time.

use fairlift_core::Instant;
use fairlift_core::model::Work;

use crate::sync::{Mutex, lock};

/// Counts what goes to a device and comes back, up to an end that may be set later.
pub(crate) struct Gauge(Mutex<Reading>);

struct Reading {
    in_device: u64,
    since: Instant,
    end: Instant,
    work: Work,
}

impl Gauge {
    pub(crate) const fn new() -> Self {
        let work = Work { requests: 0, flushes: 0, busy: 0, depth_time: 0 };
        Self(Mutex::new(Reading { in_device: 0, since: Instant::ZERO, end: Instant::MAX, work }))
    }

    /// Counts requests that came back and that went out, with the flushes among them.
    pub(crate) fn note(&self, now: Instant, came: usize, went: usize, flushes: usize) {
        let mut reading = lock(&self.0);
        reading.go_on(now);
        if now <= reading.end {
            reading.work.requests += came as u64;
            reading.work.flushes += flushes as u64;
        }
        reading.in_device = reading.in_device + went as u64 - came as u64;
    }

    /// Events after `end` do not count.
    pub(crate) fn end(&self, end: Instant) {
        lock(&self.0).end = end;
    }

    pub(crate) fn read(&self) -> Work {
        let mut reading = lock(&self.0);
        reading.go_on(Instant::MAX);
        reading.work
    }
}

impl Reading {
    /// Threads tell their times in any order: nobody turns the clock back.
    fn go_on(&mut self, now: Instant) {
        let now = now.min(self.end);
        let nanos = now.since(self.since).as_nanos();
        self.since = self.since.max(now);
        self.work.depth_time += nanos * self.in_device;
        self.work.busy += if self.in_device > 0 { nanos } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use fairlift_core::time::ms;

    use super::*;

    #[test]
    fn a_device_that_had_two_requests_for_half_of_the_time_was_half_busy() {
        let gauge = Gauge::new();
        gauge.end(Instant::ZERO + ms(20));
        let at = |n| Instant::ZERO + ms(n);
        gauge.note(at(10), 0, 2, 1);
        gauge.note(at(15), 2, 0, 0);
        gauge.note(at(14), 0, 1, 0); // another thread, a little behind
        gauge.note(at(15), 1, 0, 0);
        let work = gauge.read();
        assert_eq!(work, Work { requests: 3, flushes: 1, busy: 5_000_000, depth_time: 10_000_000 });
        gauge.note(at(30), 0, 1, 0);
        gauge.note(at(40), 1, 0, 0);
        assert_eq!(gauge.read(), work, "what comes after the end does not count");
    }
}
