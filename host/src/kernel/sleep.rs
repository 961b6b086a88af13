//! How a worker waits: it looks for news for a moment, and only then sleeps.

use fairlift_core::{Duration, Instant};

use crate::kernel::clock;
use crate::kernel::ring::{Ring, Wait};

/// How long a worker looks for news before it sleeps, if its last waits were that short: going to sleep and being woken
/// costs more. QEMU's default (`poll-max-ns`).
const SPIN: Duration = fairlift_core::time::us(32);

/// How a worker waits.
pub(crate) struct Sleep {
    /// The last wait was short: the next one may be spun through.
    spin: bool,
    /// Whether others have another CPU to run on meanwhile.
    may_spin: bool,
    /// For how long it has looked for news, since the start.
    looked: Duration,
}

impl Sleep {
    pub(crate) fn new() -> Self {
        let may_spin = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1);
        Self { spin: false, may_spin, looked: Duration::ZERO }
    }

    /// It is `before`: submits what was collected and waits for something to complete, or until something is due; the time
    /// afterwards.
    ///
    /// A timer wakes a sleeper some 20 µs late or more: so it is set earlier, and the rest is looked through.
    pub(crate) fn until(&mut self, ring: &mut Ring, before: Instant, due: Option<Instant>) -> Instant {
        let mut now = before;
        if self.spin || self.is_near(now, due) {
            ring.submit();
            now = self.look(ring, now, due);
            if due.is_some_and(|due| now >= due) && !ring.has_news() {
                return clock::now();
            }
        }
        let lead = if self.may_spin { SPIN } else { Duration::ZERO };
        ring.turn(due.map_or(Wait::ForEver, |due| Wait::AtMost(due.since(now + lead))));
        now = clock::now();
        self.spin = self.may_spin && now.since(before) < SPIN;
        if self.is_near(now, due) && !ring.has_news() {
            now = self.look(ring, now, due);
            if ring.has_news() {
                ring.turn(Wait::AtMost(Duration::ZERO));
            }
        }
        now
    }

    /// For how long it has looked for news, since the start.
    pub(crate) fn looked(&self) -> Duration {
        self.looked
    }

    fn look(&mut self, ring: &mut Ring, from: Instant, due: Option<Instant>) -> Instant {
        let now = look(ring, from, due);
        self.looked = self.looked + now.since(from);
        now
    }

    /// Whether something is due so soon that it is not worth while to sleep.
    fn is_near(&self, now: Instant, due: Option<Instant>) -> bool {
        self.may_spin && due.is_some_and(|due| now < due && due.since(now) <= SPIN)
    }
}

/// Looks for news for a moment, though not longer than until something is due; the time afterwards.
fn look(ring: &mut Ring, from: Instant, due: Option<Instant>) -> Instant {
    let mut now = from;
    while !ring.has_news() && now.since(from) < SPIN && due.is_none_or(|due| now < due) {
        (0..8).for_each(|_| std::hint::spin_loop());
        now = clock::now();
    }
    now
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_though_something_is_always_due_already() {
        let mut ring = Ring::new(8, 8, 1).unwrap();
        let mut sleep = Sleep { spin: true, may_spin: true, looked: Duration::ZERO };
        let start = clock::now();
        let mut now = start;
        for _ in 0..1000 {
            now = sleep.until(&mut ring, now, Some(now));
        }
        assert!(now > start);
    }
}
