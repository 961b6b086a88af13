//! A disk whose times a function gives: for tests, and for measuring the world itself.
//!
//! Each request takes as long as the function says, beside all others: there is no queue in the device.

use std::collections::VecDeque;

use fairlift_core::model::{Character, Model, ModelCompletion, ModelRequest};
use fairlift_core::{Duration, Instant, Limits, Outcome};

use crate::model::Metered;

struct Timed<F> {
    limits: Limits,
    times: F,
    /// How each will end: the earliest first; those that end together, in the order in which they came.
    under_way: VecDeque<ModelCompletion>,
}

/// A disk at rest. `times` is given the time, the request and how many others are in the device; it says how long the request takes and how it
/// ends.
pub fn given_times(
    limits: Limits,
    times: impl FnMut(Instant, &ModelRequest, usize) -> (Duration, Outcome) + Send,
) -> impl Model {
    Metered::new(Timed { limits, times, under_way: VecDeque::new() })
}

/// Takes the same time for every request: the plainest disk there is.
pub fn fixed_time(limits: Limits, latency: Duration) -> impl Model {
    given_times(limits, move |_, _, _| (latency, Outcome::Done))
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
        let at = now + latency;
        let place = self.under_way.partition_point(|one| one.at <= at);
        self.under_way.insert(place, ModelCompletion { at, id: request.id, outcome });
    }

    fn poll_event(&self) -> Option<Instant> {
        self.under_way.front().map(|one| one.at)
    }

    fn advance(&mut self, now: Instant, ended: &mut Vec<ModelCompletion>) {
        ended.extend(std::iter::from_fn(|| self.under_way.pop_front_if(|one| one.at <= now)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlift_core::model::Work;
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
