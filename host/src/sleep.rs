//! How a worker waits: it looks for news for a moment, and only then sleeps.

use fairlift_core::{Duration, Instant};

use crate::clock;
use crate::ring::{Ring, Wait};

/// How long a worker looks for news before it sleeps, if its last waits were that short: going to sleep and being woken
/// costs more. QEMU's default (`poll-max-ns`).
const SPIN: Duration = fairlift_core::time::us(32);

/// How a worker waits.
pub(crate) struct Sleep {
    /// The last wait was short: the next one may be spun through.
    spin: bool,
    /// Whether others have another CPU to run on meanwhile.
    may_spin: bool,
}

impl Sleep {
    pub(crate) fn new() -> Self {
        Self { spin: false, may_spin: std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1) }
    }

    /// It is `before`: submits what was collected and waits for something to complete, or until something is due; the time
    /// afterwards.
    pub(crate) fn until(&mut self, ring: &mut Ring, before: Instant, due: Option<Instant>) -> Instant {
        let mut now = before;
        if self.spin {
            ring.submit();
            while !ring.has_news() && now.since(before) < SPIN && due.is_none_or(|due| now < due) {
                (0..8).for_each(|_| std::hint::spin_loop());
                now = clock::now();
            }
        }
        ring.turn(due.map_or(Wait::ForEver, |due| Wait::AtMost(due.since(now))));
        now = clock::now();
        self.spin = self.may_spin && now.since(before) < SPIN;
        now
    }
}
