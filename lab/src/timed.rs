//! A disk whose times a function gives: for tests, and for measuring the world itself.
//!
//! Each request takes as long as the function says, beside all others: there is no queue in the device.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fairlift_core::model::{Character, Model, ModelCompletion, ModelRequest, Work};
use fairlift_core::{Duration, Instant, Limits, Outcome};

use crate::model::Busy;

/// A disk that takes as long as `F` says: see the [module](self).
pub struct Timed<F> {
    limits: Limits,
    times: F,
    /// (when, in which order, which): the earliest first.
    under_way: BinaryHeap<Reverse<(Instant, u64, u64)>>,
    /// How the one in `under_way` of that order ends, if it does not end well.
    failures: Vec<(u64, Outcome)>,
    order: u64,
    busy: Busy,
}

/// Takes the same time for every request: the plainest disk there is.
#[must_use]
pub fn fixed_time(
    limits: Limits,
    latency: Duration,
) -> Timed<impl FnMut(Instant, &ModelRequest, usize) -> (Duration, Outcome) + Send> {
    Timed::new(limits, move |_, _, _| (latency, Outcome::Done))
}

impl<F: FnMut(Instant, &ModelRequest, usize) -> (Duration, Outcome) + Send> Timed<F> {
    /// A disk at rest. `times` is given the time, the request and how many others are in the device; it says how long
    /// the request takes and how it ends.
    pub fn new(limits: Limits, times: F) -> Self {
        let (under_way, failures) = (BinaryHeap::new(), Vec::new());
        Self { limits, times, under_way, failures, order: 0, busy: Busy::default() }
    }
}

impl<F: FnMut(Instant, &ModelRequest, usize) -> (Duration, Outcome) + Send> Model for Timed<F> {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn character(&self) -> Character {
        Character { rotational: false, volatile_cache: false }
    }

    fn submit(&mut self, now: Instant, request: &ModelRequest) {
        let (latency, outcome) = (self.times)(now, request, self.under_way.len());
        self.busy.submitted(now, request);
        self.order += 1;
        if outcome != Outcome::Done {
            self.failures.push((self.order, outcome));
        }
        self.under_way.push(Reverse((now + latency, self.order, request.id)));
    }

    fn poll_event(&self) -> Option<Instant> {
        self.under_way.peek().map(|Reverse((at, ..))| *at)
    }

    fn advance(&mut self, now: Instant, ended: &mut Vec<ModelCompletion>) {
        while let Some(&Reverse((at, order, id))) = self.under_way.peek()
            && at <= now
        {
            self.under_way.pop();
            let failure = self.failures.iter().position(|(failed, _)| *failed == order);
            let outcome = failure.map_or(Outcome::Done, |place| self.failures.swap_remove(place).1);
            let end = ModelCompletion { at, id, outcome };
            self.busy.ended(&end);
            ended.push(end);
        }
    }

    fn work(&self) -> Work {
        self.busy.work()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlift_core::time::us;
    use fairlift_core::{Extent, Flags, Op, Sector};

    #[test]
    fn work_is_what_was_done_and_how_long_it_was_there() {
        let mut disk = fixed_time(Limits::new(1000), us(10));
        let request = |id, op| ModelRequest { id, op, flags: Flags::NONE, extent: Extent::new(Sector(0), 8) };
        let at = |n| Instant::ZERO + us(n);
        disk.submit(at(0), &request(1, Op::Read));
        disk.submit(at(5), &request(2, Op::Flush));
        let mut ended = Vec::new();
        disk.advance(at(10), &mut ended);
        disk.advance(at(15), &mut ended);
        assert_eq!(ended.iter().map(|one| (one.id, one.at)).collect::<Vec<_>>(), [(1, at(10)), (2, at(15))]);
        assert_eq!(disk.work(), Work { requests: 2, flushes: 1, busy: 15_000, depth_time: 20_000 });
    }
}
