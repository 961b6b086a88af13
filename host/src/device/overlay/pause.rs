//! Pause: all lanes of an overlay stop between two requests, for a fork, and go on afterwards.
//!
//! A fork puts another top in the place of the one that is written, on all workers at the same instant. No lock is taken for that where
//! requests are served: the thread that forks asks all lanes to stop, and each says so once it has nothing under way. Example: worker 0 has
//! two writes under way and worker 1 none; worker 1 stops when it is told, worker 0 when both have ended. Requests that come meanwhile
//! wait.
//!
//! pause.1  A lane that has stopped begins nothing until the pause is over: it has said so itself, in its own turn, and so there is no moment
//!          at which it might have begun something that was not seen.
//! pause.2  A lane that is made during a pause begins stopped. A lane that goes is not waited for.
//! pause.3  A pause that takes too long is given up: the lanes go on as they were.
//! pause.4  Each lane is told of the beginning and of the end. Between them it costs nothing: of a thousand overlays of a worker 999 may be idle.

use std::sync::atomic::{AtomicU64, Ordering};

use fairlift_core::ContextId;
use slab::Slab;

use crate::device::lane::Tell;
use crate::sync::{Mutex, lock};

/// The request to lanes, and the lanes that have stopped.
#[derive(Default)]
pub(super) struct Pause {
    /// Odd: they are to stop. It grows by one with each beginning and each end.
    order: AtomicU64,
    lanes: Mutex<Slab<Joined>>,
}

/// A lane: for which pause it has stopped, and how it is told.
struct Joined {
    stopped: u64,
    worker: ContextId,
    look: u64,
}

/// Whether lanes are to stop for the order `order`.
pub(super) const fn stops(order: u64) -> bool {
    order % 2 == 1
}

impl Pause {
    // ---- lanes ----

    /// A lane comes, which is told by `look`: its number, and the present order (pause.2).
    pub(super) fn join(&self, worker: ContextId, look: u64) -> (usize, u64) {
        let mut lanes = lock(&self.lanes);
        let order = self.order();
        (lanes.insert(Joined { stopped: order, worker, look }), order)
    }

    pub(super) fn leave(&self, lane: usize) {
        lock(&self.lanes).remove(lane);
    }

    pub(super) fn order(&self) -> u64 {
        self.order.load(Ordering::Acquire)
    }

    /// A lane has nothing under way, and begins nothing until something else is ordered (pause.1).
    pub(super) fn stopped(&self, lane: usize, order: u64) {
        lock(&self.lanes)[lane].stopped = order;
    }

    // ---- the thread that forks ----

    pub(super) fn is_quiet(&self) -> bool {
        let order = self.order();
        lock(&self.lanes).iter().all(|(_, lane)| lane.stopped == order)
    }

    /// Begins a pause, or ends it, and tells the present lanes (pause.4).
    pub(super) fn turn(&self, tell: Tell<'_>) {
        let lanes = lock(&self.lanes);
        self.order.fetch_add(1, Ordering::AcqRel);
        lanes.iter().for_each(|(_, lane)| tell(lane.worker, lane.look));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// pause.1, pause.2, pause.3, pause.4
    #[test]
    fn it_is_quiet_when_each_lane_that_is_there_has_stopped_for_this_pause() {
        let (pause, log) = (Pause::default(), RefCell::new(Vec::new()));
        let tell = |worker: ContextId, look| log.borrow_mut().push((worker.0, look));
        let were_told = || {
            let mut log = log.take();
            log.sort_unstable();
            log
        };
        let ((one, _), (two, _)) = (pause.join(ContextId(0), 7), pause.join(ContextId(1), 8));
        pause.turn(&tell);
        let order = pause.order();
        assert!(stops(order) && !pause.is_quiet());
        assert_eq!(were_told(), [(0, 7), (1, 8)]);
        pause.stopped(one, order);
        let (late, asks) = pause.join(ContextId(1), 9);
        assert!(stops(asks) && !pause.is_quiet(), "the second one has not stopped");
        pause.leave(two);
        assert!(pause.is_quiet());
        pause.turn(&tell);
        assert_eq!(were_told(), [(0, 7), (1, 9)]);
        pause.turn(&tell);
        assert!(!pause.is_quiet(), "they stopped for the pause before");
        [one, late].iter().for_each(|lane| pause.stopped(*lane, pause.order()));
        assert!(pause.is_quiet());
        pause.turn(&tell);
        assert!(!stops(pause.order()));
    }
}
