//! What it may cost to wait for somebody: a part of the depth that the device could use, on average.
//!
//! share_wait.1  While requests are held back for one who is behind and whose requests are all in the device, at least
//!     `share_floor` % of the useful depth stays in use, on average over some milliseconds. Throughput grows less than in
//!     proportion to depth, so at least that part of it is left.
//! share_wait.2  The useful depth is what would be in the device if nobody was waited for: no more than its limit, and no more than
//!     there is.
//! share_wait.3  The device is never left idle for it.

use crate::time::ms;
use crate::{Duration, Instant};

/// Over how long the average is taken. Ours.
const SPAN: Duration = ms(4);

/// An account of depth: see the [module](self).
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct ShareWait {
    /// Requests in the device beyond what share_wait.1 asks for, times 100, times nanoseconds.
    credit: i64,
    since: Instant,
}

impl ShareWait {
    /// When it was last called.
    #[inline]
    pub(super) const fn since(&self) -> Instant {
        self.since
    }

    /// From the last call until `now` so many were in flight of so many that could have been.
    #[inline]
    pub(super) fn was(&mut self, now: Instant, in_flight: u32, useful: u32, floor: u32) {
        let passed = now.since(self.since).as_nanos().min(SPAN.as_nanos()) as i64;
        let bound = i64::from(useful) * 100 * SPAN.as_nanos() as i64;
        let slope = i64::from(in_flight) * 100 - i64::from(useful) * i64::from(floor);
        self.credit = (self.credit + slope * passed).clamp(-bound, bound);
        self.since = now;
    }

    /// Whether somebody may be waited for; with a floor of 100 %, never.
    pub(super) const fn may_wait(&self) -> bool {
        self.credit > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::us;

    const START: Instant = Instant::from_nanos(1_000_000_000);

    fn share_wait() -> ShareWait {
        ShareWait { credit: 0, since: START }
    }

    /// share_wait.1
    #[test]
    fn half_of_the_useful_depth_in_use_is_enough_for_a_floor_of_half() {
        let mut share_wait = share_wait();
        share_wait.was(START + us(100), 5, 8, 50);
        assert!(share_wait.may_wait());
        share_wait.was(START + us(200), 3, 8, 50);
        assert!(!share_wait.may_wait(), "a request too few for 100 µs");
        share_wait.was(START + us(300), 5, 8, 50);
        assert!(share_wait.may_wait(), "on average it is enough again");
    }

    /// share_wait.1
    #[test]
    fn a_long_time_of_plenty_pays_for_some_milliseconds_only() {
        let mut share_wait = share_wait();
        for at in 1..1000 {
            share_wait.was(START + ms(at), 8, 8, 50);
        }
        let mut waited = 1000;
        while share_wait.may_wait() {
            waited += 1;
            share_wait.was(START + ms(waited), 0, 8, 50);
        }
        assert!(waited - 1000 <= 9, "{} ms", waited - 1000);
    }
}
