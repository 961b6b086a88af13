//! Turns: when the workers of a run take theirs, on a virtual clock.
//!
//! A worker takes a turn when its clients ask, its requests end, its time has come, or another worker said so, and not otherwise:
//! what waits for a wake-up that never comes, waits for ever, and is found (cut.4, torture.1).

use fairlift_core::{Instant, Outcome, Tag};

/// A worker of a run.
#[derive(Clone, Default)]
pub(crate) struct Worker {
    /// When it takes its turn, if it has a reason to.
    pub(crate) runs_at: Option<Instant>,
    /// The queue's answer at the end of its last turn.
    pub(crate) timeout: Option<Instant>,
    /// The requests that the disk has ended.
    pub(crate) ended: Vec<(Tag, Outcome)>,
    /// How many it has taken.
    pub(crate) turns: u64,
    /// A client of it was turned away, and asks again when it takes a turn.
    pub(crate) waits_for_room: bool,
}

impl Worker {
    /// When it takes its next turn.
    pub(crate) fn next(&self) -> Option<Instant> {
        [self.runs_at, self.timeout].into_iter().flatten().min()
    }

    /// It is to take a turn, at that time unless there is one before.
    pub(crate) fn wake(&mut self, at: Instant) {
        self.runs_at.get_or_insert(at);
    }

    /// Its turn begins: what has ended, and whether the time has come that its queue named.
    pub(crate) fn begin(&mut self, now: Instant) -> (Vec<(Tag, Outcome)>, bool) {
        self.turns += 1;
        self.runs_at = None;
        (std::mem::take(&mut self.ended), self.timeout.take().is_some_and(|at| at <= now))
    }
}

/// When the next turn of any of them is.
pub(crate) fn next(workers: &[Worker]) -> Option<Instant> {
    workers.iter().filter_map(Worker::next).min()
}
