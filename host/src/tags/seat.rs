//! Where callers sit while they wait: a line is eight queues of seats, and one for those who came in vain.
//!
//! P1  A seat's state changes under the lock of the queue that it is in: it waits exactly while it is in that queue.
//! P2  Whoever takes a seat out of its queue to wake it has counted it as on the way; the one who sits in it says that it
//!     arrived, whether or not it still wants a tag.
//! P3  How to wake it is taken away only by who sits there, when it stands up: one who was told to wake it and comes late
//!     wakes for nothing, but takes nothing away.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use fairlift_core::sync::{AtomicU32, Ordering};
use fairlift_core::tags::{WAIT_QUEUES, Wakes, Wakeups};

use crate::sync::{Mutex, Unparker, lock};

/// Those who wait for the same tags.
#[derive(Default)]
pub(super) struct Line {
    pub(super) wakes: Wakes,
    queues: [Padded; WAIT_QUEUES],
    /// Those who came in vain: they are woken before all others.
    again: Padded,
}

/// Whoever wakes from one queue does not disturb who joins another.
#[derive(Default)]
#[repr(align(128))]
struct Padded(Mutex<VecDeque<Arc<Seat>>>);

/// One caller's seat.
pub(super) struct Seat {
    /// [`AWAY`], [`WAITING`] or [`WOKEN`] (P1).
    state: AtomicU32,
    sleeper: Mutex<Option<Sleeper>>,
}

impl Default for Seat {
    fn default() -> Self {
        Self { state: AtomicU32::new(AWAY), sleeper: Mutex::new(None) }
    }
}

/// How to wake someone.
#[derive(Clone)]
pub(super) enum Sleeper {
    Thread(Unparker),
    Task(Waker),
}

/// Nobody sits here.
pub(super) const AWAY: u32 = 0;
/// In a queue.
pub(super) const WAITING: u32 = 1;
/// Taken out of its queue: on the way.
pub(super) const WOKEN: u32 = 2;

/// Where to sit down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// Behind all others, in the queue whose turn it is.
    Behind,
    /// Before all others: who was woken and came in vain has its place again.
    Before,
}

impl Line {
    fn queue(&self, index: usize) -> &Mutex<VecDeque<Arc<Seat>>> {
        &self.queues.get(index).unwrap_or(&self.again).0
    }

    /// Sits down; answers in which queue. `all` is what is known of all lines.
    pub(super) fn sit(&self, seat: &Arc<Seat>, sleeper: Sleeper, place: Place, all: &Wakeups) -> usize {
        seat.replace(sleeper);
        let index = match place {
            Place::Behind => self.wakes.queue_to_join(),
            Place::Before => WAIT_QUEUES,
        };
        let mut queue = lock(self.queue(index));
        seat.state.store(WAITING, Ordering::SeqCst); // P1
        queue.push_back(Arc::clone(seat));
        self.wakes.joined(all);
        index
    }

    /// Stands up: from its queue, or from being on the way. Answers whether it was on the way (P2): it has then arrived.
    pub(super) fn stand_up(&self, seat: &Arc<Seat>, index: usize, all: &Wakeups) -> bool {
        let mut queue = lock(self.queue(index));
        let woken = match seat.state.swap(AWAY, Ordering::SeqCst) {
            WAITING => {
                let place = queue.iter().position(|other| Arc::ptr_eq(other, seat));
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
        // A waker may own the task that owns this seat. Dropped after the lock: it is somebody else's code.
        let _sleeper = lock(&seat.sleeper).take();
        woken
    }

    /// Wakes up to `count` of those who wait, who are counted as on the way; answers how many it found.
    pub(super) fn wake(&self, count: usize, all: &Wakeups) -> usize {
        let mut woken = 0;
        // Once round from wherever each search begins: more often there is nobody left.
        let mut misses = 0;
        while woken < count && misses < WAIT_QUEUES {
            let mut queue = lock(&self.again.0);
            if queue.is_empty() {
                queue = lock(&self.queues[self.wakes.queue_to_wake()].0);
            }
            let Some(seat) = queue.pop_front() else {
                misses += 1;
                continue;
            };
            seat.state.store(WOKEN, Ordering::SeqCst); // P1
            self.wakes.left(all);
            drop(queue);
            seat.wake();
            (woken, misses) = (woken + 1, 0);
        }
        if woken < count {
            all.arrived(count - woken);
        }
        woken
    }
}

impl Seat {
    pub(super) fn state(&self) -> u32 {
        self.state.load(Ordering::SeqCst)
    }

    /// Says how to wake it (P3).
    pub(super) fn replace(&self, sleeper: Sleeper) {
        let _old = lock(&self.sleeper).replace(sleeper);
    }

    fn wake(&self) {
        let sleeper = lock(&self.sleeper).clone();
        match sleeper {
            Some(Sleeper::Thread(thread)) => thread.unpark(),
            Some(Sleeper::Task(waker)) => waker.wake(),
            None => {}
        }
    }
}
