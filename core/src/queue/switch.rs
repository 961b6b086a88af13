//! Another scheduler takes over, while requests wait and are in flight.
//!
//! queue.12  A scheduler that takes over is told of the groups that there are, parents first, then of the streams, then of what
//!     waits. It hears nothing of what another has dispatched.

use alloc::boxed::Box;

use super::Queue;
use crate::Instant;
use crate::group::StreamId;
use crate::sched::{Kind, Scheduler, Setup};

impl Queue {
    /// Changes the scheduler; works under load. What waits goes over in the order in which it would have gone out, and
    /// the tunables are the new one's defaults.
    pub fn set_scheduler(&mut self, now: Instant, kind: Kind) {
        let root = self.groups.root();
        let setup = Setup { groups: core::slice::from_ref(root), ..self.settings.setup() };
        let next = kind.build(&setup);
        self.replace_scheduler(now, next);
        self.settings.scheduler = kind;
    }

    /// As [`Queue::set_scheduler`], with a scheduler of the caller's own, which was told of no group but the root and is
    /// made for at least `nr_requests` requests.
    pub fn replace_scheduler(&mut self, now: Instant, mut next: Box<dyn Scheduler>) {
        self.unplug(now);
        for (id, group) in self.groups.parents_first() {
            next.set_group(now, id, group); // queue.12
        }
        for (id, floor) in &self.floors {
            next.set_floor(now, *id, floor);
        }
        for (id, state) in &self.streams {
            next.add_stream(StreamId(id as u32), &state.stream);
        }
        next.set_tracing(self.trace.is_some());
        while let Some(id) = self.scheduler.drain(now) {
            next.insert(now, &self.requests[id.0].waiting);
        }
        assert!(self.scheduler.is_empty(), "{} kept requests to itself", self.settings.scheduler.name());
        self.scheduler = next;
        self.generation += 1;
    }
}
