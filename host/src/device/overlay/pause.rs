//! Pause: all lanes of an overlay stop between two requests, for a fork, and go on afterwards.
//!
//! A fork puts another top in the place of the one that is written, on all workers at the same instant. No lock is taken for that where
//! requests are served: the thread that forks asks all lanes to stop, and each says so once it has nothing under way. Example: worker 0 has
//! two writes under way and worker 1 none; worker 1 stops at its next turn, worker 0 when both have ended. What comes meanwhile waits.
//!
//! pause.1  A lane that has stopped begins nothing until the pause is over: it has said so itself, in its own turn, and so there is no moment
//!          at which it might have begun something that was not seen.
//! pause.2  A lane that is made during a pause begins stopped. One that goes is not waited for.
//! pause.3  A pause that takes too long is given up: the lanes go on as they were.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::sync::{Mutex, lock};

/// What lanes are asked, and which have stopped.
#[derive(Default)]
pub(super) struct Pause {
    /// Odd: they are to stop. It grows by one with each beginning and each end.
    asked: AtomicU64,
    lanes: Mutex<Lanes>,
}

#[derive(Default)]
struct Lanes {
    made: u64,
    /// For which pause each of them has stopped.
    stopped: HashMap<u64, u64>,
}

/// Whether lanes are to stop for what was asked.
pub(super) const fn stops(asked: u64) -> bool {
    asked % 2 == 1
}

impl Pause {
    // ---- lanes ----

    /// A lane comes: its number, and what is asked (pause.2).
    pub(super) fn join(&self) -> (u64, u64) {
        let mut lanes = lock(&self.lanes);
        lanes.made += 1;
        let (number, asked) = (lanes.made, self.asked.load(Ordering::Acquire));
        lanes.stopped.insert(number, asked);
        (number, asked)
    }

    pub(super) fn leave(&self, lane: u64) {
        lock(&self.lanes).stopped.remove(&lane);
    }

    /// What is asked now.
    pub(super) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Acquire)
    }

    /// A lane has nothing under way, and begins nothing until something else is asked (pause.1).
    pub(super) fn stopped(&self, lane: u64, asked: u64) {
        lock(&self.lanes).stopped.insert(lane, asked);
    }

    // ---- the thread that forks ----

    /// Asks all lanes to stop.
    pub(super) fn begin(&self) {
        let _lanes = lock(&self.lanes);
        let before = self.asked.fetch_add(1, Ordering::AcqRel);
        assert!(!stops(before), "one pause at a time");
    }

    /// Whether all lanes have stopped.
    pub(super) fn is_quiet(&self) -> bool {
        let asked = self.asked();
        lock(&self.lanes).stopped.values().all(|stopped| *stopped == asked)
    }

    /// Lets the lanes go on.
    pub(super) fn end(&self) {
        let before = self.asked.fetch_add(1, Ordering::AcqRel);
        assert!(stops(before), "a pause that was not begun");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// pause.1, pause.2, pause.3
    #[test]
    fn it_is_quiet_when_each_lane_that_is_there_has_stopped_for_this_pause() {
        let pause = Pause::default();
        let ((one, _), (two, _)) = (pause.join(), pause.join());
        pause.begin();
        let asked = pause.asked();
        assert!(stops(asked) && !pause.is_quiet());
        pause.stopped(one, asked);
        let (late, told) = pause.join();
        assert!(stops(told) && !pause.is_quiet(), "the second one has not stopped");
        pause.leave(two);
        assert!(pause.is_quiet());
        pause.end();
        pause.begin();
        assert!(!pause.is_quiet(), "they stopped for the pause before");
        [one, late].iter().for_each(|lane| pause.stopped(*lane, pause.asked()));
        assert!(pause.is_quiet());
        pause.end();
        assert!(!stops(pause.asked()));
    }
}
