//! What it may cost to wait for somebody: a part of the depth that the device could use, on average.
//!
//! U1  While requests are held back for one who is behind and whose requests are all in the device, at least
//!     `share_floor` % of the useful depth stays in use, on average over some milliseconds. Throughput grows less than in
//!     proportion to depth, so at least that part of it is left.
//! U2  The useful depth is what would be in the device if nobody was waited for: no more than its limit, and no more than
//!     there is.
//! U3  The device is never left idle for it.

use crate::{Duration, Instant};
use crate::time::ms;

/// Over how long the average is taken.
const SPAN: Duration = ms(4);

/// An account of depth: see the [module](self).
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Lull {
    /// Requests in the device beyond what U1 asks for, times 100, times nanoseconds.
    credit: i64,
    since: Instant,
}

impl Lull {
    /// From the last call until `now` so many were in flight of so many that could have been.
    #[inline]
    pub(super) fn was(&mut self, now: Instant, in_flight: u32, useful: u32, floor: u32) {
        let passed = now.since(self.since).as_nanos().min(SPAN.as_nanos()) as i64;
        let bound = i64::from(useful) * 100 * SPAN.as_nanos() as i64;
        let slope = i64::from(in_flight) * 100 - i64::from(useful) * i64::from(floor);
        self.credit = (self.credit + slope * passed).clamp(-bound, bound);
        self.since = now;
    }

    /// Whether somebody may be waited for.
    pub(super) const fn may_wait(&self) -> bool {
        self.credit >= 0
    }
}
