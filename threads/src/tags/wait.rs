//! The queues in which callers wait for tags.
//!
//! With one queue, each caller that goes to sleep and each that wakes another would meet at its lock. So there are eight, as in
//! the kernel's sbitmap, which callers join in turn: of sixteen that go to wait, two meet. A ninth is for callers that were
//! woken and found no tag, since they have waited longest.
//!
//! waiter.1  A waiter's state changes under the lock of the queue that it is in: it is `WAITING` exactly while it is in that queue.
//! waiter.2  A waiter that is taken out of its queue to be woken has been counted as on the way; its caller says that it arrived,
//!           whether or not it still wants a tag.
//! waiter.3  How to wake a waiter is taken away only by its own caller, when that stops waiting: a thread that was told to wake it
//!           and comes late wakes for nothing, but takes nothing away.

use std::collections::VecDeque;
use std::sync::Arc;

use fairlift_core::sync::{AtomicU32, Ordering};
use fairlift_core::tags::{WAIT_QUEUES, Wakes, Wakeups};

use crate::sync::{Mutex, Sleeper, lock};

/// The callers that wait for the same tags.
#[derive(Default)]
pub(super) struct WaitQueues {
    pub(super) wakes: Wakes,
    queues: [Padded; WAIT_QUEUES],
    /// Callers that came in vain: they are woken before all others.
    again: Padded,
}

/// A caller that wakes others from one queue does not disturb those that join another.
#[derive(Default)]
#[repr(align(128))]
struct Padded(Mutex<VecDeque<Arc<Waiter>>>);

/// A caller, as the queues know it.
#[derive(Default)]
pub(super) struct Waiter {
    /// [`AWAY`] at first, [`WAITING`] or [`WOKEN`] (waiter.1).
    state: AtomicU32,
    sleeper: Mutex<Option<Sleeper>>,
}

pub(super) const AWAY: u32 = 0;
pub(super) const WAITING: u32 = 1;
/// Taken out of its queue: on the way.
pub(super) const WOKEN: u32 = 2;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum QueueEnd {
    /// Behind all others, in the queue whose turn it is.
    Behind,
    /// Before all others: a caller that was woken and came in vain has its place again.
    Before,
}

impl WaitQueues {
    fn queue(&self, index: usize) -> &Mutex<VecDeque<Arc<Waiter>>> {
        &self.queues.get(index).unwrap_or(&self.again).0
    }

    /// Sits down; answers the queue. `all` is the knowledge about all wait_queues.
    pub(super) fn join(&self, waiter: &Arc<Waiter>, sleeper: Sleeper, place: QueueEnd, all: &Wakeups) -> usize {
        waiter.replace(sleeper);
        let index = match place {
            QueueEnd::Behind => self.wakes.queue_to_join(),
            QueueEnd::Before => WAIT_QUEUES,
        };
        let mut queue = lock(self.queue(index));
        waiter.state.store(WAITING, Ordering::SeqCst); // waiter.1
        queue.push_back(Arc::clone(waiter));
        self.wakes.joined(all);
        index
    }

    /// Stands up: from its queue, or from being on the way. Answers whether it was on the way (waiter.2): it has then arrived.
    pub(super) fn remove(&self, waiter: &Arc<Waiter>, index: usize, all: &Wakeups) -> bool {
        let mut queue = lock(self.queue(index));
        let woken = match waiter.state.swap(AWAY, Ordering::SeqCst) {
            WAITING => {
                let place = queue.iter().position(|other| Arc::ptr_eq(other, waiter));
                queue.remove(place.expect("who waits is in its queue"));
                self.wakes.left(all);
                false
            }
            state => state == WOKEN,
        };
        drop(queue);
        if woken {
            all.arrived(1);
        }
        // A waker may own the task that owns this waiter. Dropped after the lock: it is foreign code.
        let _sleeper = lock(&waiter.sleeper).take();
        woken
    }

    /// Wakes up to `count` of the callers that wait, and counts them as on the way; answers how many it found.
    pub(super) fn wake(&self, count: usize, all: &Wakeups) -> usize {
        let mut woken = 0;
        // Once round from wherever each search begins: more often there is nobody left.
        let mut misses = 0;
        while woken < count && misses < WAIT_QUEUES {
            let mut queue = lock(&self.again.0);
            if queue.is_empty() {
                queue = lock(&self.queues[self.wakes.queue_to_wake()].0);
            }
            let Some(waiter) = queue.pop_front() else {
                misses += 1;
                continue;
            };
            waiter.state.store(WOKEN, Ordering::SeqCst); // waiter.1
            self.wakes.left(all);
            drop(queue);
            waiter.wake();
            (woken, misses) = (woken + 1, 0);
        }
        if woken < count {
            all.arrived(count - woken);
        }
        woken
    }
}

impl Waiter {
    pub(super) fn state(&self) -> u32 {
        self.state.load(Ordering::SeqCst)
    }

    /// Says how to wake it (waiter.3).
    pub(super) fn replace(&self, sleeper: Sleeper) {
        let _old = lock(&self.sleeper).replace(sleeper);
    }

    fn wake(&self) {
        let sleeper = lock(&self.sleeper).clone();
        if let Some(sleeper) = sleeper {
            sleeper.wake();
        }
    }
}
