//! None: first come, first served.
//!
//! none.1  Requests leave in the order in which they came.
//!
//! Suits devices that order their own queue, and RAM. Blind to which tenant asks. Idea: blk-mq's "none".

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use super::{Charge, Entry, Membership, Merge, Next, Report, RequestId, Scheduler, Tune, Waiting};
use crate::Instant;
use crate::entitlement::OWN;

/// Its row of the registry.
pub const ENTRY: Entry = Entry {
    name: "none",
    is_per_disk: false,
    nr_requests_min: 0,
    own_weights: [OWN; 2],
    tunables: &[],
    build: |setup| Box::new(None::new(setup.capacity)),
};

/// First come, first served.
pub struct None {
    fifo: VecDeque<RequestId>,
}

impl None {
    /// An empty queue for up to `capacity` requests.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { fifo: VecDeque::with_capacity(capacity) }
    }
}

impl Scheduler for None {
    fn insert(&mut self, _now: Instant, request: &Waiting) {
        self.fifo.push_back(request.id);
    }

    fn dispatch(&mut self, _now: Instant) -> Next {
        self.fifo.pop_front().map_or(Next::Empty, Next::Request) // none.1
    }

    fn requeue(&mut self, _now: Instant, request: &Waiting) {
        self.fifo.push_front(request.id);
    }

    fn len(&self) -> usize {
        self.fifo.len()
    }

    fn resize(&mut self, capacity: usize, _depth: u16) {
        self.fifo.reserve(capacity - self.fifo.len());
    }
}

impl Membership for None {}

impl Merge for None {}

impl Charge for None {}

impl Tune for None {}

impl Report for None {}
