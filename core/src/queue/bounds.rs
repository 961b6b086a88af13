//! Bounds: another depth, or room for another number of requests, while requests wait and are in flight.
//!
//! An operator says `depth=32` of a disk that has 128 requests in flight. The kernel stops taking requests until those have
//! ended, and then makes other tags. Here nothing stops: the 128 end as they would have, and the next one goes when fewer
//! than 32 are left.
//!
//! queue.14  Other bounds hold from the next request on. With a smaller depth nothing is dispatched until fewer are in flight;
//!     with room for fewer requests none is taken in until fewer are there. Nothing that was taken in waits, moves or fails for it.

use super::Queue;
use crate::Instant;

impl Queue {
    /// Changes how many requests may be in flight, and how many may wait or be in flight; works under load. Contexts are to
    /// be asked for more after it.
    ///
    /// Where tags are [shared](super::Settings::tags), their owner resizes them.
    ///
    /// # Panics
    /// If `depth` is 0 or above `nr_requests`, or above what shared tags have room for.
    pub fn set_bounds(&mut self, now: Instant, depth: u16, nr_requests: u32) {
        assert!(depth > 0 && nr_requests >= u32::from(depth), "{depth} of {nr_requests} requests in flight");
        self.device.tags.resize(&self.settings, depth);
        (self.settings.depth, self.settings.nr_requests) = (depth, nr_requests);
        self.contexts.resize(depth);
        self.requests.grow_to(&self.settings, self.flushes.backings());
        self.intake.grow_to(nr_requests as usize);
        self.scheduler.resize(self.requests.capacity(), depth);
        self.made_room(now);
    }

    /// Sets this gateway's part of the requests that all gateways of a pool may have outstanding; it matters only where the scheduler
    /// [shares pools](crate::sched::Kind::shares_pools). Contexts are to be asked for more after it.
    pub fn share_depth(&mut self, now: Instant, depth: f64) {
        self.scheduler.share_depth(now, depth);
        self.made_room(now);
    }
}
