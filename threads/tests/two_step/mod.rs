//! The counter-example: waking as it was before the counters that only grow. The bitmap is ours.
//!
//! Each wait queue counts completions down; who brings the count to 0 sets it up again and wakes a batch. That is two
//! steps: a completion that comes between them finds the count at 0, takes it below, is nobody's first, and is forgotten
//! when the count is set up again. With nobody left to complete, its waiter sleeps for ever.
//!
//! `super::sync` says whose locks and atomics these are: loom's in the models, std's in the benchmark.

use fairlift_core::Tag;
use fairlift_core::tags::{Bitmap, Hint, WAIT_QUEUES, wake_batch};

use super::sync::{AtomicI32, AtomicUsize, Condvar, Mutex, Ordering::SeqCst, agree, wait};

pub(crate) struct TwoStep {
    bitmap: Bitmap,
    batch: i32,
    waiting: AtomicUsize,
    queues: Vec<Queue>,
    next: AtomicUsize,
    join: AtomicUsize,
}

struct Queue {
    count: AtomicI32,
    /// How many wait here, and how many of them are woken.
    waiters: Mutex<(usize, usize)>,
    bell: Condvar,
}

impl TwoStep {
    pub(crate) fn new(depth: usize) -> Self {
        let batch = wake_batch(depth, None, 1) as i32;
        let queue = |_| Queue { count: AtomicI32::new(batch), waiters: Mutex::new((0, 0)), bell: Condvar::new() };
        let zero = || AtomicUsize::new(0);
        // One queue is enough to lose a wake-up in, and all that a model has time for.
        let queues = if cfg!(loom) { 1 } else { WAIT_QUEUES };
        let queues = (0..queues).map(queue).collect();
        Self { bitmap: Bitmap::new(depth).unwrap(), batch, waiting: zero(), queues, next: zero(), join: zero() }
    }

    pub(crate) fn try_get(&self, hint: &mut Hint) -> Option<Tag> {
        self.bitmap.get(hint)
    }

    pub(crate) fn get(&self, hint: &mut Hint) -> Tag {
        loop {
            if let Some(tag) = self.bitmap.get(hint) {
                return tag;
            }
            let queue = &self.queues[self.join.fetch_add(1, SeqCst) % self.queues.len()];
            self.waiting.fetch_add(1, SeqCst);
            let mut waiters = queue.waiters.lock().unwrap();
            waiters.0 += 1;
            agree();
            let tag = self.bitmap.get(hint);
            while tag.is_none() && waiters.1 == 0 {
                let patience;
                (waiters, patience) = wait(&queue.bell, waiters);
                if patience {
                    break;
                }
            }
            waiters.0 -= 1;
            waiters.1 = waiters.1.saturating_sub(1);
            drop(waiters);
            self.waiting.fetch_sub(1, SeqCst);
            if let Some(tag) = tag {
                return tag;
            }
        }
    }

    pub(crate) fn put(&self, tag: Tag) {
        self.bitmap.put(tag);
        agree();
        if self.waiting.load(SeqCst) == 0 {
            return;
        }
        for step in 0..self.queues.len() {
            let index = self.next.load(SeqCst) + step;
            let queue = &self.queues[index % self.queues.len()];
            if queue.waiters.lock().unwrap().0 == 0 {
                continue;
            }
            let count = queue.count.fetch_sub(1, SeqCst) - 1;
            if count > 0 {
                return;
            }
            if count < 0 {
                continue; // whoever brought it to 0 is about to set it up again
            }
            // A completion that comes just here is lost.
            self.next.store(index + 1, SeqCst);
            queue.count.store(self.batch, SeqCst);
            let mut waiters = queue.waiters.lock().unwrap();
            waiters.1 = (waiters.1 + self.batch as usize).min(waiters.0);
            for _ in 0..self.batch {
                queue.bell.notify_one();
            }
            return;
        }
    }
}
