//! The work of a device, and the number of requests it held meanwhile.

use fairlift_core::model::{Character, Model, ModelCompletion, ModelRequest, Work};
use fairlift_core::{Instant, Limits, Op};

/// A model, and the account of its work.
pub(crate) struct Metered<M> {
    pub(super) model: M,
    /// Up to the last request that came or ended.
    work: Work,
    inside: u64,
    since: Instant,
    /// Names of the flushes inside.
    flushes: Vec<u64>,
}

impl<M> Metered<M> {
    pub(crate) fn new(model: M) -> Self {
        Self { model, work: Work::default(), inside: 0, since: Instant::ZERO, flushes: Vec::new() }
    }

    fn ended(&mut self, ended: &ModelCompletion) {
        self.go_on(ended.at);
        self.inside -= 1;
        self.work.requests += 1;
        if let Some(at) = self.flushes.iter().position(|id| *id == ended.id) {
            self.flushes.swap_remove(at);
            self.work.flushes += 1;
        }
    }

    fn go_on(&mut self, now: Instant) {
        let length = now.since(self.since).as_nanos();
        self.since = now.max(self.since);
        self.work.depth_time += length * self.inside;
        self.work.busy += if self.inside > 0 { length } else { 0 };
    }
}

impl<M: Model> Model for Metered<M> {
    fn limits(&self) -> Limits {
        self.model.limits()
    }

    fn character(&self) -> Character {
        self.model.character()
    }

    fn submit(&mut self, now: Instant, request: &ModelRequest) {
        self.go_on(now);
        self.inside += 1;
        if request.op == Op::Flush {
            self.flushes.push(request.id);
        }
        self.model.submit(now, request);
    }

    fn poll_event(&self) -> Option<Instant> {
        self.model.poll_event()
    }

    fn advance(&mut self, now: Instant, ended: &mut Vec<ModelCompletion>) {
        let first = ended.len();
        self.model.advance(now, ended);
        ended[first..].iter().for_each(|one| self.ended(one));
    }

    fn work(&self) -> Work {
        self.work
    }
}
