//! A disk whose times a function gives: for tests, and for measuring the world itself.
//!
//! Each request takes as long as the function says, beside all others: there is no queue in the device.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fairlift_core::model::{Asked, Character, Ended, Model, Work};
use fairlift_core::{Duration, Instant, Limits, Op, Outcome};

/// A disk that takes as long as `F` says: see the [module](self).
pub struct Timed<F> {
    limits: Limits,
    times: F,
    /// (when, in what order, which): the earliest first.
    under_way: BinaryHeap<Reverse<(Instant, u64, u64)>>,
    /// How the one in `under_way` of that order ends, if it does not end well.
    failures: Vec<(u64, Outcome)>,
    flushes: Vec<u64>,
    order: u64,
    load: Load,
}

/// Takes the same time for every request: the plainest disk there is.
#[must_use]
pub fn fixed_time(
    limits: Limits,
    latency: Duration,
) -> Timed<impl FnMut(Instant, &Asked, usize) -> (Duration, Outcome) + Send> {
    Timed::new(limits, move |_, _, _| (latency, Outcome::Done))
}

impl<F: FnMut(Instant, &Asked, usize) -> (Duration, Outcome) + Send> Timed<F> {
    /// A disk at rest. `times` is given the time, the request and how many others are in the device; it says how long
    /// the request takes and how it ends.
    pub fn new(limits: Limits, times: F) -> Self {
        let (under_way, failures, flushes) = (BinaryHeap::new(), Vec::new(), Vec::new());
        Self { limits, times, under_way, failures, flushes, order: 0, load: Load::default() }
    }
}

impl<F: FnMut(Instant, &Asked, usize) -> (Duration, Outcome) + Send> Model for Timed<F> {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn character(&self) -> Character {
        Character { rotational: false, volatile_cache: false }
    }

    fn submit(&mut self, now: Instant, asked: &Asked) {
        let (latency, outcome) = (self.times)(now, asked, self.under_way.len());
        self.load.is(now, self.under_way.len() + 1);
        self.order += 1;
        if outcome != Outcome::Done {
            self.failures.push((self.order, outcome));
        }
        if asked.op == Op::Flush {
            self.flushes.push(self.order);
        }
        self.under_way.push(Reverse((now + latency, self.order, asked.id)));
    }

    fn poll_event(&self) -> Option<Instant> {
        self.under_way.peek().map(|Reverse((at, ..))| *at)
    }

    fn advance(&mut self, now: Instant, ended: &mut Vec<Ended>) {
        while let Some(&Reverse((at, order, id))) = self.under_way.peek()
            && at <= now
        {
            self.under_way.pop();
            self.load.is(at, self.under_way.len());
            self.load.work.requests += 1;
            if let Some(place) = self.flushes.iter().position(|flush| *flush == order) {
                self.flushes.swap_remove(place);
                self.load.work.flushes += 1;
            }
            let failure = self.failures.iter().position(|(failed, _)| *failed == order);
            let outcome = failure.map_or(Outcome::Done, |place| self.failures.swap_remove(place).1);
            ended.push(Ended { at, id, outcome });
        }
    }

    fn work(&self) -> Work {
        self.load.work
    }
}

/// How much there was to do, over time.
#[derive(Default)]
struct Load {
    since: Instant,
    requests: u64,
    work: Work,
}

impl Load {
    /// From `now` on so many requests are in the device.
    fn is(&mut self, now: Instant, requests: usize) {
        let time = now.since(self.since).as_nanos();
        self.work.busy += if self.requests > 0 { time } else { 0 };
        self.work.depth_time += time * self.requests;
        (self.since, self.requests) = (now, requests as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlift_core::time::us;
    use fairlift_core::{Extent, Flags, Sector};

    #[test]
    fn work_is_what_was_done_and_how_long_it_was_there() {
        let mut disk = fixed_time(Limits::new(1000), us(10));
        let asked = |id, op| Asked { id, op, flags: Flags::NONE, extent: Extent::new(Sector(0), 8) };
        let at = |n| Instant::ZERO + us(n);
        disk.submit(at(0), &asked(1, Op::Read));
        disk.submit(at(5), &asked(2, Op::Flush));
        let mut ended = Vec::new();
        disk.advance(at(10), &mut ended);
        disk.advance(at(15), &mut ended);
        assert_eq!(ended.iter().map(|one| (one.id, one.at)).collect::<Vec<_>>(), [(1, at(10)), (2, at(15))]);
        assert_eq!(disk.work(), Work { requests: 2, flushes: 1, busy: 15_000, depth_time: 20_000 });
    }
}
